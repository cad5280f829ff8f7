// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Running the distribution's network tools, with errors that name the command, what it said and,
//! when it is missing, the package to install.

use std::env;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde::{Deserialize, Serialize};
use timewire_sys::namespace::{self, OnParentDeath};

use crate::HostError;

/// A program of the distribution that Timewire drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tool {
    /// Interfaces, addresses, namespaces.
    Ip,
    /// Queueing disciplines.
    Tc,
    /// Properties of NICs.
    Ethtool,
    /// Tables of bridges; only laboratories need it.
    Bridge,
    /// What a NIC timestamps.
    HwstampCtl,
    /// This program itself, for what it keeps in the kernel without a process.
    Timewire,
}

impl Tool {
    /// Those that a station needs.
    pub const ALL: [Tool; 3] = [Tool::Ip, Tool::Tc, Tool::Ethtool];

    /// The program's name.
    pub fn program(self) -> &'static str {
        match self {
            Tool::Ip => "ip",
            Tool::Tc => "tc",
            Tool::Ethtool => "ethtool",
            Tool::Bridge => "bridge",
            Tool::HwstampCtl => "hwstamp_ctl",
            Tool::Timewire => "timewire",
        }
    }

    /// The Debian package that has it.
    pub fn package(self) -> &'static str {
        match self {
            Tool::Ip | Tool::Tc | Tool::Bridge => "iproute2",
            Tool::Ethtool => "ethtool",
            Tool::HwstampCtl => "linuxptp",
            Tool::Timewire => "timewire",
        }
    }

    /// What the program says about its version, on one line.
    ///
    /// **Errors**: as [`run`].
    pub fn version(self) -> Result<String, HostError> {
        let argument = if self == Tool::Ethtool { "--version" } else { "-V" };
        run(self, &[argument]).map(|text| text.trim().to_owned())
    }

    /// Where it is: the first of `PATH`, then of the directories for administrators, which the
    /// `PATH` of an ordinary user lacks on Debian.
    fn find(self) -> Result<PathBuf, HostError> {
        if self == Tool::Timewire {
            // The same one, whatever else there is of that name.
            return env::current_exe().map_err(|e| HostError::kernel("find this program", e));
        }
        let path = env::var_os("PATH").unwrap_or_default();
        let dirs = env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
        self.find_in(dirs)
    }

    fn find_in(self, dirs: impl Iterator<Item = PathBuf>) -> Result<PathBuf, HostError> {
        let mut candidates = dirs.map(|dir| dir.join(self.program()));
        candidates
            .find(|candidate| candidate.is_file())
            .ok_or(HostError::ToolMissing { program: self.program(), package: self.package() })
    }
}

/// Runs a tool to its end; what it wrote to stdout.
///
/// **Errors**: it is missing, does not start, or ends with an error.
pub fn run(tool: Tool, arguments: &[&str]) -> Result<String, HostError> {
    execute(tool, arguments, None)
}

/// Runs many commands in one `ip` or `tc` process, in a named namespace or the caller's own. It
/// stops at the first line that fails.
///
/// **Errors**: as [`run`]; the line that failed is named.
pub fn batch(tool: Tool, netns: Option<&str>, lines: &[String]) -> Result<(), HostError> {
    if lines.is_empty() {
        return Ok(());
    }
    let arguments: &[&str] = match netns {
        Some(name) => &["-n", name, "-batch", "-"],
        None => &["-batch", "-"],
    };
    execute(tool, arguments, Some(lines)).map(drop)
}

fn execute(tool: Tool, arguments: &[&str], lines: Option<&[String]>) -> Result<String, HostError> {
    let program = tool.find()?;
    let shown = format!("{} {}", tool.program(), arguments.join(" "));
    let start_error = |source| HostError::ToolStart { command: shown.clone(), source };
    let mut command = Command::new(&program);
    // Messages are read below and shown to people: keep them in one language.
    command.args(arguments).env("LC_ALL", "C");
    let input = lines.map(|lines| lines.join("\n") + "\n").unwrap_or_default();
    let output = feed(command, &input).map_err(start_error)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let stderr = String::from_utf8_lossy(&output.stderr).trim().replace('\n', " / ");
    Err(HostError::ToolFailed {
        command: shown,
        status: output.status.to_string(),
        line: lines.and_then(|lines| failed_line(&stderr, lines)),
        stderr,
    })
}

/// Runs a command on this input. Its output must be small: it is read after all input was written.
///
/// It dies with this process, so that it makes no more changes once the watchdog takes them back.
fn feed(mut command: Command, input: &str) -> std::io::Result<Output> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = namespace::spawn(command, None, OnParentDeath::Kill)?;
    let mut stdin = child.stdin.take().expect("invariant: stdin was piped");
    // A child that stops reading at a bad line says why on stderr; that is the better message.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    child.wait_with_output()
}

/// The line that `Command failed -:N` speaks of.
fn failed_line(stderr: &str, lines: &[String]) -> Option<String> {
    let (_, rest) = stderr.rsplit_once("Command failed -:")?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    lines.get(digits.parse::<usize>().ok()?.checked_sub(1)?).cloned()
}

/// Where named network namespaces appear as files.
pub fn netns_path(name: &str) -> PathBuf {
    Path::new("/run/netns").join(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_a_missing_tool_names_its_package() {
        let error = Tool::Tc.find_in([PathBuf::from("/nonexistent")].into_iter()).unwrap_err();
        assert_eq!(error.to_string(), "`tc` is not installed; on Debian: apt-get install iproute2");
    }

    #[test]
    fn t0_the_failed_line_of_a_batch_is_found() {
        let lines = ["link add a".to_owned(), "link add b".to_owned()];
        let stderr = "RTNETLINK answers: File exists / Command failed -:2";
        assert_eq!(failed_line(stderr, &lines), Some("link add b".to_owned()));
        assert_eq!(failed_line("Command failed -:3", &lines), None);
        assert_eq!(failed_line("Command failed -:0", &lines), None);
        assert_eq!(failed_line("no such thing", &lines), None);
    }

    #[test]
    fn t3_errors_show_command_status_and_message() {
        let Ok(version) = Tool::Ip.version() else {
            eprintln!("SKIP: ip is not installed");
            return;
        };
        assert!(version.contains("iproute2"), "{version}");
        let error = run(Tool::Ip, &["link", "show", "no-such-link"]).unwrap_err().to_string();
        assert!(
            error.starts_with("`ip link show no-such-link` failed (exit status: 1)"),
            "{error}"
        );
        assert!(error.contains("does not exist"), "{error}");
        let lines = ["link show".to_owned(), "link show no-such-link".to_owned()];
        let error = batch(Tool::Ip, None, &lines).unwrap_err().to_string();
        assert!(error.contains("at `link show no-such-link`"), "{error}");
    }
}
