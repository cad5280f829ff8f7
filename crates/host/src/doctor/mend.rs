// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What mends things on Debian, as commands.
//!
//! Not here: what needs mending.

/// Installs packages.
pub(super) fn install(packages: &[&str]) -> String {
    format!("apt-get install {}", packages.join(" "))
}

/// Adds words to the kernel's command line, from the next start on.
pub(super) fn boot_with(words: &str) -> String {
    format!(
        "sed -i 's/^GRUB_CMDLINE_LINUX_DEFAULT=\"/&{words} /' /etc/default/grub && update-grub, \
         and start anew"
    )
}

/// Takes a parameter off the kernel's command line, from the next start on.
pub(super) fn boot_without(parameter: &str) -> String {
    format!(
        "sed -i '/^GRUB_CMDLINE_LINUX/s/ *\\b{parameter}=[^ \"]*//g' /etc/default/grub && \
         update-grub, and start anew"
    )
}

/// A kernel that can be interrupted nearly everywhere, as Debian has it for this machine.
pub(super) fn real_time_kernel(machine: &str) -> Vec<String> {
    let flavour = match machine {
        "x86_64" => "rt-amd64",
        "aarch64" => "rt-arm64",
        "armv7l" => "rt-armmp",
        _ => return Vec::new(),
    };
    vec![format!("apt-get install linux-image-{flavour}, and start anew")]
}

/// A kernel that has what the running one lacks.
pub(super) fn other_kernel(machine: &str, option: &str) -> String {
    let flavour = match machine {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "armv7l" => "armmp",
        "riscv64" => "riscv64",
        _ => return format!("a kernel with {option}"),
    };
    format!("a kernel with {option}, as Debian has: apt-get install linux-image-{flavour}")
}

/// A run of a scenario where everything is there.
pub(super) fn laboratory() -> String {
    "timewire run --lab uml FILE".to_owned()
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::*;

    /// What the command, of which only the file is another, makes of a file.
    fn edited(command: &str, before: &str) -> String {
        let (command, _) = command.split_once(" && ").unwrap();
        let (script, file) = command.strip_prefix("sed -i ").unwrap().rsplit_once(' ').unwrap();
        assert_eq!(file, "/etc/default/grub");
        let mut sed = Command::new("sed");
        let sed = sed.arg(script.trim_matches('\'')).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut sed = sed.spawn().unwrap();
        sed.stdin.take().unwrap().write_all(before.as_bytes()).unwrap();
        String::from_utf8(sed.wait_with_output().unwrap().stdout).unwrap()
    }

    #[test]
    fn t0_words_are_put_into_the_command_line_of_the_kernel() {
        let before = "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet\"\nGRUB_CMDLINE_LINUX=\"\"\n";
        assert_eq!(
            edited(&boot_with("isolcpus=3"), before),
            "GRUB_CMDLINE_LINUX_DEFAULT=\"isolcpus=3 quiet\"\nGRUB_CMDLINE_LINUX=\"\"\n"
        );
    }

    #[test]
    fn t0_a_parameter_is_taken_off_the_command_line_of_the_kernel() {
        let before = "# lockdown=x\nGRUB_CMDLINE_LINUX_DEFAULT=\"quiet lockdown=integrity nosmt\"\n\
                      GRUB_CMDLINE_LINUX=\"lockdown=confidentiality\"\n";
        assert_eq!(
            edited(&boot_without("lockdown"), before),
            "# lockdown=x\nGRUB_CMDLINE_LINUX_DEFAULT=\"quiet nosmt\"\nGRUB_CMDLINE_LINUX=\"\"\n"
        );
    }

    #[test]
    fn t0_only_debian_s_machines_have_its_kernel() {
        assert_eq!(
            real_time_kernel("x86_64"),
            ["apt-get install linux-image-rt-amd64, and start anew"]
        );
        assert!(real_time_kernel("riscv64").is_empty());
    }
}
