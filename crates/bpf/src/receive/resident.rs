// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The receive program without a process: its link and its maps have names in a directory of the
//! BPF file system, which keeps them until they are removed. Whoever may open them changes the
//! rules, reads the counters and registers AF_XDP sockets.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use libbpf_rs::{MapCore, MapFlags, MapHandle};

use super::ClassCounter;
use super::program::{
    LANE_MAPS, PROGRAM, ProgramSettings, Programs, add_thread, has_thread, number_of, read_counter,
    read_rules, replace_rules,
};
use super::rules::{LANES, Rules, places_of, text_of};
use crate::losses::{self, Losses};
use crate::{AttachMode, Attached, BpfError, attach, map_of, objects, program_of};

const LINK: &str = "link";
const CLASSIFIER: &str = "program";
/// Name, in the directory, of the program that was attached before.
pub const OTHER: &str = "other";
const LOST: &str = "lost";
/// Name of the classifier in the kernel.
pub const PROGRAM_NAME: &str = "tw_classify";

/// A directory with the program and its maps.
#[derive(Debug)]
pub struct Resident {
    directory: PathBuf,
    rules: MapHandle,
    counters: MapHandle,
    sockets: MapHandle,
    lanes: Vec<MapHandle>,
    lost: Option<MapHandle>,
}

impl Resident {
    /// Loads the program and gives it and its maps names in an empty directory; nothing is
    /// attached. With `other`, that program will be given the frames that go up at once. The second
    /// part of the answer says why losses are not counted, if they are not.
    ///
    /// **Errors**: no privilege; the other program cannot be called by ours.
    pub fn prepare(
        directory: &Path,
        mode: AttachMode,
        other: Option<&Attached>,
    ) -> Result<(Resident, Option<BpfError>), BpfError> {
        let programs = load(mode, other)?;
        let pin = |object: BorrowedFd<'_>, name: &str| {
            let path = directory.join(name);
            objects::pin(object, &path).map_err(|source| BpfError::Pin {
                what: "make",
                path,
                source,
            })
        };
        let map = |name: &str| map_of(&programs.0, name);
        for name in ["rules", "counters", "sockets", "chain"].iter().chain(&LANE_MAPS) {
            pin(map(name).as_fd(), name)?;
        }
        pin(program_of(&programs.0, PROGRAM_NAME).as_fd(), CLASSIFIER)?;
        if let Some(other) = other {
            pin(other_program(other)?.as_fd(), OTHER)?;
        }
        let lanes: Vec<_> = LANE_MAPS.iter().map(|name| map(name)).collect();
        let sockets = map("sockets");
        let watched_maps: Vec<_> =
            lanes.iter().map(|map| map.as_fd()).chain([sockets.as_fd()]).collect();
        let uncounted = match Losses::attach(&watched_maps) {
            Err(error) => Some(error),
            Ok(losses) => {
                for (link, (_, tracepoint)) in losses.links().iter().zip(losses::PROBES) {
                    pin(link.as_fd(), tracepoint)?;
                }
                let path = directory.join(LOST);
                losses.pin_counters(&path).map_err(|source| BpfError::Pin {
                    what: "make",
                    path,
                    source,
                })?;
                None
            }
        };
        Ok((Resident::open(directory)?, uncounted))
    }

    /// Opens what is there.
    ///
    /// **Errors**: `NotFound` in [`BpfError::Map`] when the directory is not complete.
    pub fn open(directory: &Path) -> Result<Resident, BpfError> {
        let map = |name: &'static str| {
            MapHandle::from_pinned_path(directory.join(name))
                .map_err(|source| BpfError::Map { map: name, source })
        };
        Ok(Resident {
            directory: directory.to_owned(),
            rules: map("rules")?,
            counters: map("counters")?,
            sockets: map("sockets")?,
            lanes: LANE_MAPS.into_iter().map(map).collect::<Result<_, _>>()?,
            lost: directory.join(LOST).exists().then(|| map(LOST)).transpose()?,
        })
    }

    /// Where it is.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Attaches the program: by a link, or in the place of the other program that it was prepared
    /// with.
    ///
    /// **Errors**: the driver does not know the mode; another program is attached.
    pub fn attach(&self, interface: u32, mode: AttachMode) -> Result<(), BpfError> {
        let failed = |source| BpfError::Attach { program: PROGRAM, interface, source };
        let program = self.pinned(CLASSIFIER)?;
        match self.other()? {
            None => {
                let link = attach::xdp(program.as_fd(), interface, mode).map_err(failed)?;
                let path = self.directory.join(LINK);
                objects::pin(link.as_fd(), &path).map_err(|source| BpfError::Pin {
                    what: "make",
                    path,
                    source,
                })
            }
            Some(other) => {
                let new = Some(program.as_fd());
                objects::replace_xdp(interface, mode, other.as_fd(), new).map_err(failed)
            }
        }
    }

    /// Takes the program off and restores the other one, if there was one. Off already is fine.
    ///
    /// **Errors**: the kernel refuses; a third program has taken its place.
    pub fn detach(&self, interface: u32) -> Result<(), BpfError> {
        let failed = |source| BpfError::Attach { program: PROGRAM, interface, source };
        if self.directory.join(LINK).exists() {
            let link = self.pinned(LINK)?;
            return match objects::detach(link.as_fd()) {
                // The interface is gone.
                Err(error) if error.raw_os_error() == Some(ENOLINK) => Ok(()),
                other => other.map_err(failed),
            };
        }
        let Some(attached) = self.attached(interface)? else { return Ok(()) };
        let (program, other) = (self.pinned(CLASSIFIER)?, self.other()?);
        let mode = attached.mode.unwrap_or(AttachMode::Native);
        let back = other.as_ref().map(AsFd::as_fd);
        objects::replace_xdp(interface, mode, program.as_fd(), back).map_err(failed)
    }

    /// How the program is attached to this interface; `None` when it is not.
    pub fn attached(&self, interface: u32) -> Result<Option<Attached>, BpfError> {
        let ours = self.program()?;
        match objects::attached(interface) {
            Ok(found) => Ok(found.filter(|found| found.program == ours)),
            Err(source) => Err(BpfError::Attach { program: PROGRAM, interface, source }),
        }
    }

    /// Whether the link of this directory has lost its interface; `None` when it has no link.
    pub fn link_is_dead(directory: &Path) -> Option<bool> {
        let link = objects::pinned(&directory.join(LINK)).ok()?;
        objects::link_info(link.as_fd()).ok().map(|(_, _, interface)| interface == 0)
    }

    /// The number of the program.
    pub fn program(&self) -> Result<u32, BpfError> {
        Ok(self.info(&self.pinned(CLASSIFIER)?)?.0)
    }

    /// Number and name of the other program that frames are given to.
    pub fn chained(&self) -> Result<Option<(u32, String)>, BpfError> {
        self.other()?.map(|other| self.info(&other)).transpose()
    }

    /// Puts other rules into force, as [`Rules`] says; threads must be there before.
    pub fn replace(&self, rules: &Rules) -> Result<(), BpfError> {
        replace_rules(&self.rules, rules)
    }

    /// The text of the rules in force, and slot and lane of each class, the normal one first.
    pub fn rules(&self, classes: impl Fn(&str) -> usize) -> Result<InForce, BpfError> {
        let block = read_rules(&self.rules)?;
        let text = text_of(&block).unwrap_or_default();
        let places = places_of(&block, 1 + classes(&text));
        Ok(InForce { text, places })
    }

    /// The counters of a class, by CPU.
    pub fn counter(&self, slot: u32) -> Result<Vec<ClassCounter>, BpfError> {
        read_counter(&self.counters, slot)
    }

    /// Sets the counters of a slot to 0.
    pub fn clear(&self, slot: u32) -> Result<(), BpfError> {
        let failed = |source| BpfError::Map { map: "counters", source };
        let cpus = libbpf_rs::num_possible_cpus().map_err(failed)?;
        let zero = vec![vec![0; usize::try_from(self.counters.value_size()).unwrap_or(0)]; cpus];
        self.counters.update_percpu(&slot.to_ne_bytes(), &zero, MapFlags::ANY).map_err(failed)
    }

    /// Frames lost on the way to a lane's threads, or, for `None`, to sockets; `None` when this is
    /// not counted.
    pub fn lost(&self, lane: Option<u8>) -> Result<Option<u64>, BpfError> {
        let watched = u32::from(lane.unwrap_or(LANES));
        self.lost.as_ref().map(|map| losses::read(map, watched)).transpose()
    }

    /// Sets the losses of a lane to 0, where they are counted.
    pub fn clear_lost(&self, lane: u8) -> Result<(), BpfError> {
        self.lost.as_ref().map_or(Ok(()), |map| losses::clear(map, lane.into()))
    }

    /// Makes a thread of a lane; one that is there stays.
    pub fn add_thread(&self, lane: u8, cpu: u32) -> Result<(), BpfError> {
        add_thread(self.lane(lane), cpu)
    }

    /// Ends a thread of a lane, after the frames that wait for it.
    pub fn remove_thread(&self, lane: u8, cpu: u32) -> Result<(), BpfError> {
        self.lane(lane)
            .delete(&cpu.to_ne_bytes())
            .map_err(|source| BpfError::Thread { cpu, source })
    }

    /// The CPUs that have a thread of a lane, ascending.
    pub fn threads(&self, lane: u8) -> Result<Vec<u32>, BpfError> {
        let map = self.lane(lane);
        let mut cpus = Vec::new();
        for cpu in 0..map.max_entries() {
            if has_thread(map, cpu)? {
                cpus.push(cpu);
            }
        }
        Ok(cpus)
    }

    /// The number of a lane's map, which is in the names of its threads.
    pub fn lane_number(&self, lane: u8) -> Result<u32, BpfError> {
        objects::map_number(self.lane(lane).as_fd()).map_err(|source| {
            let path = self.directory.join(LANE_MAPS[usize::from(lane)]);
            BpfError::Pin { what: "ask", path, source }
        })
    }

    /// From now on frames of this queue whose class goes to a socket go to this one. It ends with
    /// the socket.
    pub fn set_socket(&self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), BpfError> {
        self.sockets
            .update(&queue.to_ne_bytes(), &number_of(socket), MapFlags::ANY)
            .map_err(|source| BpfError::Map { map: "sockets", source })
    }

    fn lane(&self, lane: u8) -> &MapHandle {
        &self.lanes[usize::from(lane)]
    }

    fn pinned(&self, name: &str) -> Result<OwnedFd, BpfError> {
        let path = self.directory.join(name);
        objects::pinned(&path).map_err(|source| BpfError::Pin { what: "open", path, source })
    }

    fn other(&self) -> Result<Option<OwnedFd>, BpfError> {
        let is_there = self.directory.join(OTHER).exists();
        is_there.then(|| self.pinned(OTHER)).transpose()
    }

    fn info(&self, program: &OwnedFd) -> Result<(u32, String), BpfError> {
        objects::program_info(program.as_fd()).map_err(|source| BpfError::Pin {
            what: "ask",
            path: self.directory.clone(),
            source,
        })
    }
}

/// Rules as they are in the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InForce {
    /// What they were made of.
    pub text: String,
    /// Slot of the counters and lane of each class; the first is that of normal frames.
    pub places: Vec<(u32, u8)>,
}

/// Loads the programs: for a driver so that frames in several buffers are taken, where the kernel
/// can, since only then it lets long packets in. Another program must have been loaded the same way
/// to be called.
///
/// In generic mode such a program would get a copy of most frames, which the kernel then gives to
/// threads with the Ethernet header in the place of the IP header (`skb_pp_cow_data` of Linux 6.18
/// does not copy `mac_len`); without, frames are put into one buffer before.
fn load(mode: AttachMode, other: Option<&Attached>) -> Result<Programs, BpfError> {
    let told = ProgramSettings { is_chained: other.is_some(), ..ProgramSettings::default() };
    let with = |takes_fragments| {
        let programs = Programs::load(ProgramSettings { takes_fragments, ..told })?;
        if let Some(other) = other {
            let fd = other_program(other)?;
            map_of(&programs.0, "chain")
                .update(&0_u32.to_ne_bytes(), &number_of(fd.as_fd()), MapFlags::ANY)
                .map_err(|source| BpfError::Map { map: "chain", source })?;
        }
        Ok(programs)
    };
    match mode {
        AttachMode::Native => with(true).or_else(|_: BpfError| with(false)),
        AttachMode::Generic => with(false),
    }
}

fn other_program(other: &Attached) -> Result<OwnedFd, BpfError> {
    objects::program_by_number(other.program)
        .map_err(|source| BpfError::Other { program: other.program, source })
}

const ENOLINK: i32 = 67;
