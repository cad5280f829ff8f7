// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Control groups (version 2) as the way to follow a member through fork and exec, to stop and
//! continue it with all it has started, and to keep it on its CPUs.
//!
//! A member's group is made below the one that it is in, so all limits that it has stay in force.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Where a member is while it is one, and where it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberCgroup {
    /// Its control group as a member: a directory of ours.
    pub own: PathBuf,
    /// Its control group before and after.
    pub home: PathBuf,
}

/// Where the hierarchy of version 2 is mounted, if this process sees it.
pub(crate) fn mount() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let mut found = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        let path = words.next()?;
        (words.next()? == "cgroup2").then(|| PathBuf::from(path))
    });
    found.find(|path| path.join("cgroup.procs").exists())
}

/// The place for a process as member `number` of a model of this process.
///
/// **Errors**: why there is none, in words.
pub(crate) fn place_for(pid: u32, number: u64) -> Result<MemberCgroup, String> {
    let mount = mount().ok_or("no control groups of version 2 are mounted")?;
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).map_err(|e| e.to_string())?;
    let inside = text.lines().find_map(|line| line.strip_prefix("0::"));
    let inside = inside.ok_or("the process is in no control group of version 2")?;
    let home = mount.join(inside.trim_start_matches('/'));
    if !home.join("cgroup.procs").exists() {
        return Err(format!("its control group {inside} is not to be seen from here"));
    }
    let name = format!("timewire-{}-{number}", std::process::id());
    Ok(MemberCgroup { own: home.join(name), home })
}

impl MemberCgroup {
    /// Makes the control group.
    pub(crate) fn make(&self) -> io::Result<()> {
        fs::create_dir(&self.own)?;
        if self.own.join("cgroup.freeze").exists() {
            return Ok(());
        }
        fs::remove_dir(&self.own)?;
        Err(io::Error::new(io::ErrorKind::Unsupported, "it has no freezer (Linux 5.2)"))
    }

    /// Moves a process with all its threads there.
    pub(crate) fn enter(&self, pid: u32) -> io::Result<()> {
        fs::write(self.own.join("cgroup.procs"), pid.to_string())
    }

    /// Restricts it to these CPUs; whether control groups can do that here.
    pub(crate) fn set_cpus(&self, cpus: Option<&str>) -> io::Result<bool> {
        let file = self.own.join("cpuset.cpus");
        if !file.exists() {
            return Ok(false);
        }
        fs::write(file, cpus.unwrap_or("\n")).map(|()| true)
    }

    /// The processes in it; none when it is gone.
    pub(crate) fn processes(&self) -> Vec<u32> {
        processes(&self.own)
    }

    /// Lets all go home and removes it; `before` is called for each process that goes. Those that
    /// are born meanwhile go too.
    pub(crate) fn leave(&self, mut before: impl FnMut(u32)) -> io::Result<()> {
        if !self.own.exists() {
            return Ok(());
        }
        // Who was in a group below that a member has made goes home as well.
        let mut all = vec![self.own.clone()];
        let mut next = 0;
        while let Some(directory) = all.get(next).cloned() {
            let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
            all.extend(entries.map(|entry| entry.path()).filter(|path| path.is_dir()));
            next += 1;
        }
        let home = self.nearest_home();
        for _ in 0..ROUNDS {
            let pids: Vec<u32> = all.iter().flat_map(|directory| processes(directory)).collect();
            if pids.is_empty() {
                break;
            }
            for pid in pids {
                before(pid);
                match fs::write(home.join("cgroup.procs"), pid.to_string()) {
                    Err(error) if error.raw_os_error() == Some(ESRCH) => {}
                    other => other?,
                }
            }
        }
        freeze(&self.own, false)?;
        for directory in all.iter().rev() {
            match fs::remove_dir(directory) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                other => other?,
            }
        }
        Ok(())
    }

    /// The group it came from may have been removed once it was empty.
    fn nearest_home(&self) -> &Path {
        let there = |path: &&Path| path.join("cgroup.procs").exists();
        self.home.ancestors().find(there).unwrap_or(&self.home)
    }

    /// Ends all in it at once; whether the kernel can (5.14).
    pub(crate) fn kill(&self) -> io::Result<bool> {
        let file = self.own.join("cgroup.kill");
        if !file.exists() {
            return Ok(false);
        }
        fs::write(file, "1").map(|()| true)
    }
}

/// Stops or continues all in a control group; gone is fine.
pub(crate) fn freeze(own: &Path, stop: bool) -> io::Result<()> {
    match fs::write(own.join("cgroup.freeze"), if stop { "1" } else { "0" }) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.raw_os_error() == Some(ENODEV) => Ok(()),
        other => other,
    }
}

/// Whether somebody in it still runs although it is to be stopped.
pub(crate) fn is_running(own: &Path) -> bool {
    let text = fs::read_to_string(own.join("cgroup.events")).unwrap_or_default();
    let has = |line: &str| text.lines().any(|other| other == line);
    has("populated 1") && has("frozen 0")
}

fn processes(own: &Path) -> Vec<u32> {
    let text = fs::read_to_string(own.join("cgroup.procs")).unwrap_or_default();
    // 0 is a process that this PID namespace does not see.
    text.lines().filter_map(|line| line.parse().ok()).filter(|pid| *pid != 0).collect()
}

const ESRCH: i32 = 3;
const ENODEV: i32 = 19;
const ROUNDS: usize = 64;
