// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The world around a round: settings of the kernel, handing frames to other CPUs, load, other
//! sockets; made so, and taken back when the value goes. What belongs to the host is in the undo
//! journal before it is changed, so a watchdog takes it back when this process is killed.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use timewire_base::IfName;
use timewire_host::Undo;
use timewire_host::journal::EntryId;
use timewire_sys::namespace::{self, Namespace};
use timewire_sys::receive::{ReceiveSocket, ReceiveTimestamps, SocketOptions};
use timewire_sys::scheduler::{self, Attributes};
use timewire_sys::{filter::FrameFilter, interface_index};

use super::plan::{Combination, OtherSockets, Policy, Setting};
use crate::RunnerError;
use crate::measure::bench::End;
use crate::measure::run::EndpointSetup;

/// What is different from the host as it was, until the value goes.
#[derive(Debug)]
pub(super) struct World<'a> {
    place: &'a EndpointSetup,
    entries: Vec<EntryId>,
    /// Of the bench's interface, which goes anyway: what RPS was.
    rps_before: Vec<(PathBuf, String)>,
    helpers: Helpers,
    /// Frames that other packet sockets read.
    others_read: Arc<AtomicU64>,
}

impl<'a> World<'a> {
    /// Makes the world of a combination.
    ///
    /// **Errors**: the host has not what is asked for, or refuses. It is as before then.
    pub(super) fn make(
        place: &'a EndpointSetup,
        of: &Combination,
    ) -> Result<World<'a>, RunnerError> {
        let mut world = World {
            place,
            entries: Vec::new(),
            rps_before: Vec::new(),
            helpers: Helpers::default(),
            others_read: Arc::default(),
        };
        for setting in &of.settings {
            match setting {
                Setting::NetdevBudget(value) | Setting::NetdevBudgetUsecs(value) => {
                    world.set_sysctl(setting.key(), &value.to_string())?;
                }
                Setting::TstampPrequeue(is_on) => {
                    world.set_sysctl(setting.key(), if *is_on { "1" } else { "0" })?;
                }
                Setting::Rps(cpus) => world.set_rps(cpus)?,
                Setting::Load(percent) => world.helpers.burn(*percent)?,
                Setting::Sockets(sockets) => world.open_sockets(*sockets)?,
                // The receiving thread's own.
                Setting::Cpu(_) | Setting::Policy(_) => {}
            }
        }
        Ok(world)
    }

    fn interface(&self) -> IfName {
        self.place.name().expect("invariant: what receives is named")
    }

    /// How many frames other packet sockets read so far.
    pub(super) fn others_read(&self) -> u64 {
        self.others_read.load(Ordering::Relaxed)
    }

    /// Takes it back.
    ///
    /// **Errors**: something could not be; its journal names it and stays.
    pub(super) fn undo(mut self) -> Result<(), RunnerError> {
        self.take_back()
    }

    fn take_back(&mut self) -> Result<(), RunnerError> {
        self.helpers.end();
        let rps = std::mem::take(&mut self.rps_before);
        let mut result = if rps.is_empty() { Ok(()) } else { self.write_rps(rps).map(drop) };
        while let Some(entry) = self.entries.pop() {
            let journal = self.place.journal()?;
            let undone = journal.undo(entry).map_err(|error| RunnerError::LeftChanged {
                why: error.to_string(),
                journal: journal.path().to_owned(),
            });
            result = result.and(undone);
        }
        result
    }

    fn set_sysctl(&mut self, key: &str, value: &str) -> Result<(), RunnerError> {
        let path = Path::new("/proc/sys/net/core").join(key);
        if !path.exists() {
            return Err(RunnerError::Unsupported {
                what: format!("the setting {key}"),
                why: "this kernel has it not, or not in this network namespace".to_owned(),
            });
        }
        self.write_journalled(&path, value)
    }

    fn write_journalled(&mut self, path: &Path, value: &str) -> Result<(), RunnerError> {
        let failed = |error| RunnerError::kernel(format!("set {}", path.display()), error);
        let before = fs::read_to_string(path).map_err(failed)?.trim().to_owned();
        let undo = Undo::WriteSetting { path: path.to_owned(), value: before };
        self.entries.push(self.place.journal()?.record(undo)?);
        fs::write(path, value).map_err(failed)
    }

    fn set_rps(&mut self, cpus: &[u32]) -> Result<(), RunnerError> {
        let (interface, mask) = (self.interface(), mask_of(cpus));
        let is_bench = self.place.pair().is_some();
        let files = self.at_files(move || rps_files(&interface))?;
        if files.is_empty() {
            return Err(RunnerError::Unsupported {
                what: "rps".to_owned(),
                why: "this kernel is built without receive packet steering".to_owned(),
            });
        }
        if is_bench {
            let wanted = files.into_iter().map(|file| (file, mask.clone())).collect();
            self.rps_before = self.write_rps(wanted)?;
            return Ok(());
        }
        files.iter().try_for_each(|file| self.write_journalled(file, &mask))
    }

    /// Writes files of the bench's interface; returns what they had.
    fn write_rps(
        &self,
        files: Vec<(PathBuf, String)>,
    ) -> Result<Vec<(PathBuf, String)>, RunnerError> {
        self.at_files(move || {
            let write = |(path, value): (PathBuf, String)| {
                let before = fs::read_to_string(&path)?.trim().to_owned();
                fs::write(&path, value)?;
                Ok((path, before))
            };
            files.into_iter().map(write).collect::<io::Result<_>>()
        })
    }

    /// Does something with the files of the receiving interface, which `/sys` shows only of the
    /// namespace that it was mounted in.
    fn at_files<T: Send>(
        &self,
        work: impl FnOnce() -> io::Result<T> + Send,
    ) -> Result<T, RunnerError> {
        let is_bench = self.place.pair().is_some();
        let inside = || -> io::Result<T> {
            if is_bench {
                // Of this thread alone, which ends with it.
                namespace::unshare(&[Namespace::Mount])?;
                namespace::make_mounts_private()?;
                namespace::mount_sysfs(Path::new("/sys"))?;
            }
            work()
        };
        self.place
            .inside(End::B, inside)?
            .map_err(|error| RunnerError::kernel("set the CPUs of the receive queues", error))
    }

    fn open_sockets(&mut self, wanted: OtherSockets) -> Result<(), RunnerError> {
        let interface = self.interface();
        let opened = self.place.inside(End::B, move || open_others(wanted, &interface))?;
        let (udp, packet) =
            opened.map_err(|error| RunnerError::kernel("open other sockets", error))?;
        if !packet.is_empty() || !udp.is_empty() {
            self.helpers.drain(udp, packet, Arc::clone(&self.others_read))?;
        }
        Ok(())
    }
}

impl Drop for World<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.take_back() {
            eprintln!("timewire: {error}");
        }
    }
}

fn open_others(
    wanted: OtherSockets,
    interface: &IfName,
) -> io::Result<(Vec<UdpSocket>, Vec<ReceiveSocket>)> {
    let udp = (0..wanted.udp).map(|_| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)));
    let udp = udp.collect::<io::Result<_>>()?;
    let index = interface_index(interface)?;
    let options = SocketOptions {
        timestamps: ReceiveTimestamps::default(),
        buffer_bytes: 1 << 20,
        longest: 64,
        busy_poll: None,
    };
    let packet =
        (0..wanted.packet).map(|_| ReceiveSocket::frames(index, &FrameFilter::default(), options));
    Ok((udp, packet.collect::<io::Result<_>>()?))
}

fn rps_files(interface: &IfName) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for queue in fs::read_dir(format!("/sys/class/net/{interface}/queues"))? {
        let file = queue?.path().join("rps_cpus");
        if file.exists() {
            files.push(file);
        }
    }
    files.sort();
    Ok(files)
}

/// CPUs as the kernel reads a mask: groups of 32 in hexadecimal, the highest first.
fn mask_of(cpus: &[u32]) -> String {
    let groups = cpus.iter().max().map_or(1, |most| most / 32 + 1);
    let group = |number: u32| {
        let own = cpus.iter().filter(|cpu| **cpu / 32 == number);
        own.fold(0_u32, |mask, cpu| mask | 1 << (cpu % 32))
    };
    let text: Vec<_> = (0..groups).rev().map(|number| format!("{:x}", group(number))).collect();
    text.join(",")
}

/// Threads that load CPUs and read what nobody wants.
#[derive(Debug, Default)]
struct Helpers {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

/// How long a turn of burning and sleeping takes.
const BURN_PERIOD: Duration = Duration::from_millis(10);

impl Helpers {
    /// Keeps every CPU that this process may use so busy, in normal scheduling.
    fn burn(&mut self, percent: u8) -> Result<(), RunnerError> {
        if percent == 0 {
            return Ok(());
        }
        let cpus = scheduler::affinity(0);
        for cpu in cpus.map_err(|error| RunnerError::kernel("tell this process' CPUs", error))? {
            let stop = Arc::clone(&self.stop);
            self.start("burner", move || {
                if scheduler::set_affinity(0, &[cpu]).is_ok() {
                    burn(percent, &stop);
                }
            })?;
        }
        Ok(())
    }

    /// Reads what packet sockets get; UDP sockets of unknown ports get nothing.
    fn drain(
        &mut self,
        udp: Vec<UdpSocket>,
        mut packet: Vec<ReceiveSocket>,
        read: Arc<AtomicU64>,
    ) -> Result<(), RunnerError> {
        let stop = Arc::clone(&self.stop);
        self.start("other sockets", move || {
            let _open = udp;
            while !stop.load(Ordering::Relaxed) {
                for socket in &mut packet {
                    // An interface that went away ends the round by itself.
                    while let Ok(count @ 1..) = socket.receive(&mut |_| {}) {
                        read.fetch_add(u64::try_from(count).unwrap_or(0), Ordering::Relaxed);
                    }
                }
                thread::sleep(Duration::from_millis(1));
            }
        })
    }

    fn start(
        &mut self,
        name: &str,
        work: impl FnOnce() + Send + 'static,
    ) -> Result<(), RunnerError> {
        let thread = thread::Builder::new().name(name.to_owned()).spawn(work);
        let thread = thread.map_err(|error| RunnerError::kernel("start a thread", error))?;
        self.threads.push(thread);
        Ok(())
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A panic of a helper has been printed.
            let _ = thread.join();
        }
    }
}

fn burn(percent: u8, stop: &AtomicBool) {
    let work = BURN_PERIOD * u32::from(percent) / 100;
    while !stop.load(Ordering::Relaxed) {
        let start = Instant::now();
        while start.elapsed() < work {
            std::hint::spin_loop();
        }
        thread::sleep(BURN_PERIOD.saturating_sub(start.elapsed()));
    }
}

/// Puts the calling thread where and as a combination wants its receiver.
pub(super) fn settle(of: &Combination) -> Result<(), RunnerError> {
    if let Some(Setting::Cpu(cpu)) = of.setting("cpu") {
        scheduler::set_affinity(0, &[*cpu])
            .map_err(|error| RunnerError::kernel(format!("run on CPU {cpu}"), error))?;
    }
    schedule(of.policy())
}

/// Gives the calling thread a policy.
pub(super) fn schedule(policy: Policy) -> Result<(), RunnerError> {
    let attributes = match policy {
        Policy::Other => return Ok(()),
        Policy::Fifo(priority) => Attributes::fifo(priority),
        Policy::RoundRobin(priority) => Attributes::round_robin(priority),
    };
    scheduler::set_attributes(0, &attributes)
        .map_err(|error| RunnerError::kernel(format!("schedule a thread as {policy}"), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_masks_are_groups_of_32_the_highest_first() {
        assert_eq!(mask_of(&[]), "0");
        assert_eq!(mask_of(&[0, 1, 5]), "23");
        assert_eq!(mask_of(&[1, 32, 65]), "2,1,2");
    }
}
