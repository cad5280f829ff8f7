// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One station of a segment: its kernel, its two sockets, its NIC.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixListener;
use std::path::Path;

use timewire_base::{BitsPerSecond, Instant, Span, Utc};
use timewire_sys::Randomness;

use super::calendar::Calendar;
use super::nic::{Answer, Nic};
use super::wire::{CallLine, DeviceConnection};
use super::{KernelStation, SegmentLab};
use crate::LabError;
use crate::uml::{Kernel, Machine, Running, Time};

/// A station whose kernel runs.
#[derive(Debug)]
pub struct Station {
    pub machine: Running,
    pub nic: Nic,
    /// Its line to the master of time; there once it has said who it is.
    pub calendar: Option<Calendar>,
    /// Under which number it waits for the acknowledgement of its start.
    pub start_sequence: u32,
    /// Where its driver connects.
    door: UnixListener,
    line: Option<DeviceConnection>,
    call_line: Option<CallLine>,
    /// Frames for which its driver had no buffer.
    pub no_buffer: u64,
}

/// Where stations run.
#[derive(Clone, Copy, Debug)]
pub struct StationPlatform<'a> {
    pub kernel: &'a Kernel,
    /// The first process of each.
    pub init: &'a Path,
    /// For sockets.
    pub scratch: &'a Path,
    /// For what the stations leave behind.
    pub out: &'a Path,
    /// The CPU of the host.
    pub cpu: Option<u32>,
}

/// What a station's driver did.
#[derive(Debug, PartialEq, Eq)]
pub enum Did {
    /// Nothing that others can see.
    Nothing,
    /// It has these frames to be sent, each with a tag; [`Station::acknowledge`] is owed.
    Kicked(Vec<(u64, Vec<u8>)>),
}

impl Station {
    /// Starts the kernel of a station.
    ///
    /// **Errors**: those of [`Machine::start`]; a socket cannot be made.
    pub fn start(
        number: usize,
        lab: &SegmentLab,
        place: &StationPlatform<'_>,
    ) -> Result<Station, LabError> {
        let StationPlatform { kernel, init, scratch, out, cpu } = *place;
        let station = &lab.stations[number];
        let directory = out.join(station.name.as_str());
        std::fs::create_dir_all(&directory).map_err(LabError::file("create", &directory))?;
        let path = scratch.join(format!("nic{number}"));
        let door = UnixListener::bind(&path).map_err(LabError::file("listen on", &path))?;
        let mut machine = Machine::new(init, &[]);
        machine.command = command(lab, station);
        machine.writable = vec![directory.clone()];
        machine.directory = directory;
        let begin = lab.epoch + lab.start;
        let own = [
            ("TIMEWIRE_STATION", station.name.to_string()),
            ("TIMEWIRE_START", begin.as_ns().to_string()),
            ("HOME", "/".to_owned()),
        ];
        machine.environment.extend(lab.environment.iter().cloned());
        machine.environment.extend(own.map(|(name, value)| (name.to_owned(), value)));
        machine.memory_mib = station.memory_mib;
        let wall = station.clock.wall(lab.epoch, timewire_sim::SimTime::START);
        machine.time = Time::Master {
            socket: Path::new(SCRATCH).join("time"),
            id: u64::try_from(number).expect("invariant: few stations"),
            start: Instant::<Utc>::from_ns(wall.as_ns()),
        };
        let sockets = File::open(scratch).map_err(LabError::file("open", scratch))?;
        machine.descriptors = vec![(sockets.into(), SCRATCH_FD)];
        machine.kernel_arguments = vec![
            format!("virtio_uml.device={SCRATCH}/nic{number}:1"),
            // Its addresses' detection of duplicates waits random times.
            "ipv6.disable=1".to_owned(),
        ];
        machine.randomness = Randomness::None;
        machine.cpu = cpu;
        let machine = machine.start(kernel)?;
        let nic = Nic::new(station.mac.0, mbit_per_second(lab.segment.rate), station.queues);
        Ok(Station {
            machine,
            nic,
            calendar: None,
            start_sequence: 0,
            door,
            line: None,
            call_line: None,
            no_buffer: 0,
        })
    }

    /// The line to the master of time.
    pub fn calendar(&mut self) -> io::Result<&mut Calendar> {
        self.calendar.as_mut().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Where the driver speaks next: its line, or the door while it has none.
    pub fn driver_side(&self) -> BorrowedFd<'_> {
        match &self.line {
            Some(line) => line.as_fd(),
            None => self.door.as_fd(),
        }
    }

    /// Hears the driver; everything but a kick is answered at once.
    ///
    /// **Errors**: the driver breaks the protocol.
    pub fn hear_driver(&mut self) -> io::Result<Did> {
        let Some(line) = &mut self.line else {
            let (stream, _) = self.door.accept()?;
            self.line = Some(DeviceConnection::new(stream));
            return Ok(Did::Nothing);
        };
        let Some(asked) = line.ask()? else {
            // It may come again.
            self.line = None;
            return Ok(Did::Nothing);
        };
        let (request, wants_reply) = (asked.request, asked.wants_reply);
        match self.nic.on(asked)? {
            Answer::Done if wants_reply => line.answer(request, &[0; 8])?,
            Answer::Done => {}
            Answer::Payload(bytes) => line.answer(request, &bytes)?,
            Answer::Kick(queue) => {
                if !wants_reply {
                    return Err(io::Error::other("a kick that nobody waits for"));
                }
                return Ok(Did::Kicked(self.nic.kicked(queue)?));
            }
        }
        if let Some(descriptor) = self.nic.take_call_line() {
            self.call_line = Some(CallLine::new(descriptor));
        }
        Ok(Did::Nothing)
    }

    /// Tells the driver that its kick was dealt with.
    pub fn acknowledge(&mut self) -> io::Result<()> {
        match &mut self.line {
            Some(line) => line.answer(super::wire::request::VRING_KICK, &[0; 8]),
            None => Ok(()),
        }
    }

    /// The line for interrupts.
    pub fn call_line(&mut self) -> Option<&mut CallLine> {
        self.call_line.as_mut()
    }

    /// Both lines on which an interrupted kernel speaks: to the master, and back to the NIC.
    pub fn interrupted_sides(&self) -> Option<[BorrowedFd<'_>; 2]> {
        Some([self.calendar.as_ref()?.as_fd(), self.call_line.as_ref()?.as_fd()])
    }
}

/// Configures the NIC, waits for the common start, and runs what the station runs, until that ends
/// or the duration is over. What is written is in the station's directory, and complete: files are
/// closed before the kernel ends.
fn command(lab: &SegmentLab, station: &KernelStation) -> Vec<String> {
    let (address, prefix) = station.address;
    let queues = match station.queues {
        1 => String::new(),
        count => format!("ethtool -L eth0 combined {count}\n"),
    };
    let run = match lab.duration {
        None => "exec \"$@\"".to_owned(),
        Some(duration) => {
            let end = (lab.epoch + duration).as_ns();
            format!("exec timeout -k 0.1 $(seconds_to {end}) \"$@\"")
        }
    };
    let script = format!(
        "exec >stdout 2>stderr\n\
         set -e\n\
         seconds_to() {{\n\
         left=$(($1 - $(date +%s%N)))\n\
         [ $left -gt 0 ] || left=1\n\
         printf %d.%09d $((left / 1000000000)) $((left % 1000000000))\n\
         }}\n\
         {queues}\
         ip address add {address}/{prefix} dev eth0\n\
         ip link set eth0 up\n\
         sleep $(seconds_to $TIMEWIRE_START)\n\
         {run}\n"
    );
    let shell = ["/bin/sh", "-c", &script, station.name.as_str()].map(str::to_owned);
    shell.into_iter().chain(station.run.iter().cloned()).collect()
}

/// As `virtio_net` takes it: whole Mbit/s, or unknown.
fn mbit_per_second(rate: BitsPerSecond) -> u32 {
    const UNKNOWN: u32 = u32::MAX;
    match rate.get() {
        bps if bps.is_multiple_of(1_000_000) => u32::try_from(bps / 1_000_000).unwrap_or(UNKNOWN),
        _ => UNKNOWN,
    }
}

/// Under this number a kernel's program finds the directory of the sockets. The directory's own
/// name differs from run to run, and a kernel's command line is part of what its random numbers are
/// made from.
const SCRATCH_FD: i32 = 64;
const SCRATCH: &str = "/proc/self/fd/64";
/// How long the driver waits for a kernel before it looks whether the kernel still lives.
pub const POLL_INTERVAL: Span = Span::from_ms(200);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_rates_are_told_when_they_can_be() {
        let rate = |bps| mbit_per_second(BitsPerSecond::new(bps).unwrap());
        assert_eq!((rate(100_000_000), rate(2_500_000_000)), (100, 2_500));
        assert_eq!(rate(1_500_000), u32::MAX);
    }
}
