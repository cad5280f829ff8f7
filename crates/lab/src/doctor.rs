// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which laboratories this machine can have, what is missing for the others, and what mends it.
//! Everything is found out by trying or looking; nothing is changed and nothing is downloaded.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde::Serialize;
use timewire_host::tool::Tool;
use timewire_sys::namespace::{self, Capabilities, Capability};

use crate::qemu;
use crate::uml::{self, Kernel, Origin};
use crate::{LabError, cache, deb};

/// How something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Works, now.
    Ok,
    /// Works after one command, or in part.
    Degraded,
    /// Does not work here.
    Missing,
}

/// One laboratory, or one thing that a laboratory needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Which laboratory: `netns`, `uml`, `prebuilt`, `qemu`.
    pub laboratory: &'static str,
    /// What was looked at.
    pub name: String,
    /// How it is.
    pub level: Level,
    /// What was seen.
    pub found: String,
    /// Why it matters; empty when all is well.
    pub why: &'static str,
    /// The command that mends it, where there is one.
    pub mend: Option<String>,
}

/// Looks at everything.
///
/// **Errors**: the cache cannot be used.
pub fn checks() -> Result<Vec<Check>, LabError> {
    let mut checks = vec![namespaces()];
    checks.extend(Tool::ALL.map(tool));
    checks.push(ptrace());
    checks.push(memory());
    let kernels = Kernel::cached()?;
    checks.push(kernel(&kernels));
    checks.push(build_tools(&kernels));
    checks.push(packages(&kernels));
    checks.push(room()?);
    checks.push(prebuilt(&kernels));
    checks.push(emulated()?);
    Ok(checks)
}

/// The worst of a laboratory's checks.
pub fn level_of(laboratory: &str, checks: &[Check]) -> Level {
    let of_it = checks.iter().filter(|check| check.laboratory == laboratory);
    of_it.map(|check| check.level).max().unwrap_or(Level::Missing)
}

fn check(laboratory: &'static str, name: &str, level: Level, found: String) -> Check {
    Check { laboratory, name: name.to_owned(), level, found, why: "", mend: None }
}

fn namespaces() -> Check {
    let held = Capabilities::of_this_process();
    let full =
        held.is_ok_and(|held| held.has(Capability::NetAdmin) && held.has(Capability::SysAdmin));
    let setting = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let allowed = Path::new("/proc/self/ns/user").exists()
        && setting("/proc/sys/user/max_user_namespaces") != "0"
        && setting("/proc/sys/kernel/unprivileged_userns_clone") != "0";
    let name = "network namespaces";
    match (full && namespace::effective_user() == 0, allowed) {
        (true, _) => check("netns", name, Level::Ok, "as root".to_owned()),
        (false, true) => Check {
            why: "without root: no real-time scheduling and no eBPF",
            mend: Some("run as root".to_owned()),
            ..check("netns", name, Level::Degraded, "in a user namespace".to_owned())
        },
        (false, false) => Check {
            why: "stations are network namespaces",
            mend: Some("run as root, or: sysctl user.max_user_namespaces=10000".to_owned()),
            ..check("netns", name, Level::Missing, "not allowed".to_owned())
        },
    }
}

fn tool(tool: Tool) -> Check {
    let name = format!("tool {}", tool.program());
    match tool.version() {
        Ok(version) => check("netns", &name, Level::Ok, version),
        Err(error) => Check {
            why: "stations and links are made with it",
            mend: Some(format!("apt-get install {}", tool.package())),
            ..check("netns", &name, Level::Missing, error.to_string())
        },
    }
}

/// User-Mode Linux traces its programs.
fn ptrace() -> Check {
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    let name = "tracing of own programs";
    match scope.trim() {
        "3" => Check {
            why: "the kernel runs as a program that traces the programs inside it",
            mend: Some("kernel.yama.ptrace_scope below 3, set before the start".to_owned()),
            ..check("uml", name, Level::Missing, "forbidden by ptrace_scope 3".to_owned())
        },
        _ => check("uml", name, Level::Ok, "allowed".to_owned()),
    }
}

/// A machine's memory is a file in memory that programs are run from.
fn memory() -> Check {
    let name = "executable memory files";
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    let shm = mounts.lines().find(|line| line.split(' ').nth(1) == Some("/dev/shm"));
    match shm {
        Some(line) if !line.split(' ').nth(3).unwrap_or_default().contains("noexec") => {
            check("uml", name, Level::Ok, "/dev/shm".to_owned())
        }
        Some(_) => Check {
            why: "a machine's memory is kept there, and its programs run from it",
            mend: Some("mount -o remount,exec /dev/shm, or set TMPDIR to another place".to_owned()),
            ..check("uml", name, Level::Degraded, "/dev/shm is mounted noexec".to_owned())
        },
        None => Check {
            why: "without it a machine's memory is a file on disk: slower",
            mend: Some("mount -t tmpfs tmpfs /dev/shm".to_owned()),
            ..check("uml", name, Level::Degraded, "no /dev/shm".to_owned())
        },
    }
}

fn kernel(kernels: &[Kernel]) -> Check {
    let ours: Vec<_> = kernels.iter().filter(|k| k.about().origin == Origin::Source).collect();
    let name = "kernel";
    if ours.is_empty() {
        return Check {
            why: "it is built once, from the distribution's source",
            mend: Some("timewire lab uml".to_owned()),
            ..check("uml", name, Level::Degraded, "none is built".to_owned())
        };
    }
    let releases: Vec<_> = ours.iter().map(|kernel| kernel.about().release.clone()).collect();
    check("uml", name, Level::Ok, releases.join(", "))
}

/// Level of something that only a build needs: of no matter when there is a kernel.
fn for_a_build(kernels: &[Kernel]) -> Level {
    let built = kernels.iter().any(|kernel| kernel.about().origin == Origin::Source);
    if built { Level::Degraded } else { Level::Missing }
}

fn build_tools(kernels: &[Kernel]) -> Check {
    let missing: Vec<_> = uml::BUILD_TOOLS.iter().filter(|(tool, _)| !deb::have(tool)).collect();
    let name = "tools of the kernel's build";
    if missing.is_empty() {
        let all: Vec<_> = uml::BUILD_TOOLS.iter().map(|(tool, _)| *tool).collect();
        return check("uml", name, Level::Ok, all.join(", "));
    }
    let names: Vec<_> = missing.iter().map(|(tool, _)| *tool).collect();
    let packages: Vec<_> = missing.iter().map(|(_, package)| *package).collect();
    Check {
        why: "without them no other kernel can be built",
        mend: Some(format!("apt-get install --no-install-recommends {}", packages.join(" "))),
        ..check("uml", name, for_a_build(kernels), format!("without {}", names.join(", ")))
    }
}

fn packages(kernels: &[Kernel]) -> Check {
    let name = "packages of the distribution";
    if ["apt-get", "apt-cache", "dpkg-deb"].iter().all(|tool| deb::have(tool)) {
        return check("uml", name, Level::Ok, "through apt, without installing them".to_owned());
    }
    Check {
        why: "the kernel's source comes from there",
        mend: Some("set TIMEWIRE_CACHE to a cache that was filled on Debian".to_owned()),
        ..check("uml", name, for_a_build(kernels), "no apt".to_owned())
    }
}

/// Room for a build.
fn room() -> Result<Check, LabError> {
    let root = cache::root()?;
    let name = format!("room in {}", root.display());
    let output = Command::new("df")
        .args(["--output=avail", "--block-size=M"])
        .arg(&root)
        .stdin(Stdio::null())
        .output();
    let text = output.map(|output| output.stdout).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let digits: String = text.lines().nth(1).unwrap_or_default().trim().to_owned();
    let mib: u64 = digits.trim_end_matches('M').parse().unwrap_or(0);
    let found = format!("{mib} MiB");
    Ok(if mib >= ROOM_MIB {
        check("uml", &name, Level::Ok, found)
    } else {
        Check {
            why: "a kernel's source and build take 2.5 GiB for some minutes",
            mend: Some("set TIMEWIRE_CACHE to a directory with more room".to_owned()),
            ..check("uml", &name, Level::Degraded, found)
        }
    })
}

/// The distribution's kernel in an emulated machine.
fn emulated() -> Result<Check, LabError> {
    let (laboratory, name) = ("qemu", "kernel");
    let kernels = qemu::Kernel::cached()?;
    if !kernels.is_empty() {
        let releases: Vec<_> = kernels.iter().map(|k| k.about().release.clone()).collect();
        return Ok(check(laboratory, name, Level::Ok, releases.join(", ")));
    }
    let level = if cfg!(target_arch = "x86_64") { Level::Degraded } else { Level::Missing };
    Ok(Check {
        why: "for XDP in drivers, BTF, and NICs with clocks; only on x86-64",
        mend: Some("timewire lab qemu".to_owned()),
        ..check(laboratory, name, level, "not fetched".to_owned())
    })
}

fn prebuilt(kernels: &[Kernel]) -> Check {
    let found = kernels.iter().rfind(|kernel| kernel.about().origin == Origin::Prebuilt);
    match found {
        Some(kernel) => {
            let found = format!("{}, at wall speed only", kernel.about().release);
            check("prebuilt", "kernel", Level::Ok, found)
        }
        None => Check {
            why: "ready in seconds, but without virtual time",
            mend: Some("timewire lab uml --prebuilt".to_owned()),
            ..check("prebuilt", "kernel", Level::Degraded, "not fetched".to_owned())
        },
    }
}

const ROOM_MIB: u64 = 2_560;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_a_laboratory_is_as_good_as_its_worst_check() {
        let of = |level| check("x", "y", level, String::new());
        let checks = [of(Level::Ok), of(Level::Degraded)];
        assert_eq!(level_of("x", &checks), Level::Degraded);
        assert_eq!(level_of("x", &checks[..1]), Level::Ok);
        assert_eq!(level_of("other", &checks), Level::Missing);
    }

    #[test]
    fn t0_what_is_not_well_says_why() {
        for check in checks().unwrap() {
            assert_eq!(check.level == Level::Ok, check.why.is_empty(), "{check:?}");
        }
    }
}
