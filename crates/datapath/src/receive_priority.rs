// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Receive priority on an interface, without a process: started, changed, shown and stopped by
//! commands, kept by the kernel in between. All that is known of it is in the kernel: the rules
//! with the text they were made of, the counters, the threads.
//!
//! Not here: the program (`timewire-bpf`), the file (`timewire-model`), printing (`timewire-cli`).

mod error;
mod plan;
mod status;
mod threads;

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use timewire_base::{FileError, IfName};
use timewire_bpf::receive::resident::{OTHER, PROGRAM_NAME, Resident};
use timewire_bpf::{AttachMode, Attached, BpfError};
use timewire_host::HostError;
use timewire_host::journal::{Inverse, Journal};
use timewire_host::pins::{self, BpfUndo, Lock};
use timewire_host::tool::{self, Tool};
use timewire_model::scenario::host::{CpuList, Destination, Receive, XdpMode};
use timewire_sys::nic::LinkBefore;

pub use error::ReceiveError;
pub use status::{ClassStatus, CpuCounter, OtherProgram, ReceiveStatus, ThreadStatus, show};

use plan::Plan;

/// Where all of it is, below the BPF file system.
const HOME: &str = "timewire/receive";
/// How long another command may hold what this one needs.
const TIMEOUT: Duration = Duration::from_secs(10);

/// What was done, besides what was asked for.
pub type Notes = Vec<String>;

/// Puts receive priority on an interface.
///
/// **Errors**: it is there already; another program is in the way; the kernel lacks something. The
/// host is as it was then.
pub fn start(interface: &IfName, desired: &Receive) -> Result<Notes, ReceiveError> {
    let place = AttachedInterface::of(interface)?;
    are_online(interface, desired)?;
    is_mounted()?;
    let journal = Journal::begin(&format!("receive priority on {interface}"))?;
    let mut lock = None;
    let started = start_journaled(&place, desired, &journal, &mut lock);
    // When all went well, what undoes it finds nothing any more, and the rest is there to stay.
    journal.finish()?;
    drop(lock);
    if started.is_err() {
        pins::unmount_if_unused()?;
    }
    started
}

fn start_journaled(
    place: &AttachedInterface,
    desired: &Receive,
    journal: &Journal,
    lock: &mut Option<Lock>,
) -> Result<Notes, ReceiveError> {
    let mut notes = Notes::new();
    *lock = Some(pins::mount(journal, TIMEOUT)?.ok_or(ReceiveError::Busy)?);
    sweep(&mut notes)?;
    let last = place.directory();
    if exists(&last)? {
        let resident = Resident::open(&last);
        let is_attached = |it: &Resident| matches!(it.attached(place.index), Ok(Some(_)));
        if resident.is_ok_and(|resident| is_attached(&resident)) {
            return Err(ReceiveError::Runs { interface: place.interface.clone() });
        }
        BpfUndo::RemovePins { path: last.clone() }.undo()?;
        notes.push(format!("removed {}, of a program that is not attached", last.display()));
    }
    let other = place.other()?;
    let modes = modes(desired.mode, other.as_ref(), place)?;
    let staging = place.staging();
    journal.record(BpfUndo::RemovePins { path: staging.clone() })?;
    let mode = in_first_mode(place, &modes, other.as_ref(), &mut notes, |mode, notes| {
        BpfUndo::RemovePins { path: staging.clone() }.undo()?;
        make_directory(&staging)?;
        put(place, desired, mode, other.as_ref(), journal, notes)
    })?;
    fs::rename(&staging, &last).map_err(ReceiveError::file("make", &last))?;
    place.note_doubts(desired, mode, other.as_ref(), &mut notes);
    Ok(notes)
}

/// The modes to try, in their order.
fn modes(
    desired: XdpMode,
    other: Option<&Attached>,
    place: &AttachedInterface,
) -> Result<Vec<AttachMode>, ReceiveError> {
    let Some(other) = other else {
        return Ok(match desired {
            XdpMode::Auto => vec![AttachMode::Native, AttachMode::Generic],
            XdpMode::Native => vec![AttachMode::Native],
            XdpMode::Generic => vec![AttachMode::Generic],
        });
    };
    if other.link.is_some() {
        let why = "a link attaches it, whose owner alone may replace it";
        return Err(place.in_the_way(other, why));
    }
    if other.name.starts_with("xdp_dispatcher") {
        let why = "it is the dispatcher of libxdp, which attaches programs by its own tools only";
        return Err(place.in_the_way(other, why));
    }
    let Some(mode) = other.mode else {
        return Err(place.in_the_way(other, "it runs in the NIC, or in several places"));
    };
    let differs = match desired {
        XdpMode::Auto => false,
        XdpMode::Native => mode != AttachMode::Native,
        XdpMode::Generic => mode != AttachMode::Generic,
    };
    if differs {
        let why = format!("it is attached in {mode} mode, and both modes at once cannot be");
        return Err(place.in_the_way(other, &why));
    }
    Ok(vec![mode])
}

/// Does the work in the first mode that the driver takes.
fn in_first_mode(
    place: &AttachedInterface,
    modes: &[AttachMode],
    other: Option<&Attached>,
    notes: &mut Notes,
    work: impl Fn(AttachMode, &mut Notes) -> Result<(), ReceiveError>,
) -> Result<AttachMode, ReceiveError> {
    let mut refused = None;
    for mode in modes {
        let mut said = Notes::new();
        match work(*mode, &mut said) {
            Ok(()) => {
                if let Some(error) = refused {
                    notes.push(format!("in {mode} mode, which is slower: {error}"));
                }
                notes.append(&mut said);
                return Ok(*mode);
            }
            Err(error @ ReceiveError::Bpf { source: BpfError::Attach { .. }, .. }) => {
                refused = Some(error);
            }
            Err(error) => return Err(error),
        }
    }
    // Who came meanwhile is in the way; everything else is the kernel's or the driver's.
    match place.other()? {
        Some(found) if other.is_none() => Err(place.in_the_way(&found, "it came at this moment")),
        _ => Err(refused.expect("invariant: there is a mode to try")),
    }
}

/// Loads the program with its rules and threads into the directory in the making, and attaches it.
fn put(
    place: &AttachedInterface,
    desired: &Receive,
    mode: AttachMode,
    other: Option<&Attached>,
    journal: &Journal,
    notes: &mut Notes,
) -> Result<(), ReceiveError> {
    let failed = |error| ReceiveError::bpf(&place.interface, error);
    let prepared = Resident::prepare(&place.staging(), mode, other);
    let (resident, uncounted) = match (prepared, other) {
        (Err(error), Some(other)) => {
            let why = format!("it cannot be called by another program ({error})");
            return Err(place.in_the_way(other, &why));
        }
        (prepared, _) => prepared.map_err(failed)?,
    };
    if let Some(why) = uncounted {
        notes.push(format!("frames lost behind a redirection are not counted: {why}"));
    }
    let plan = Plan::first(desired);
    plan.prepare_threads(&resident).map_err(failed)?;
    threads::schedule(&resident, &plan)?;
    resident.replace(&plan.rules).map_err(failed)?;
    if other.is_some() {
        journal.record(BpfUndo::RestoreXdp {
            interface: place.interface.clone(),
            mode: error::place_of(mode).to_owned(),
            taken_by: resident.program().map_err(failed)?,
            former: resident.directory().join(OTHER),
        })?;
    }
    let link = LinkBefore::of(&place.interface);
    resident.attach(place.index, mode).map_err(failed)?;
    notes.extend(link.is_back());
    Ok(())
}

/// Replaces the rules on an interface: each frame is judged by the old rules alone or by the
/// new ones alone. Counters of classes that keep their name go on.
///
/// **Errors**: it is not there, or somebody has taken its program off; threads cannot be made or
/// scheduled. The old rules hold then.
pub fn set(interface: &IfName, desired: &Receive) -> Result<Notes, ReceiveError> {
    let place = AttachedInterface::of(interface)?;
    are_online(interface, desired)?;
    let (_lock, resident) = place.open()?;
    let failed = |error| ReceiveError::bpf(interface, error);
    let mut notes = Notes::new();
    let attached = resident.attached(place.index).map_err(failed)?;
    let Some(attached) = attached else {
        return Err(ReceiveError::NotAttached { interface: interface.clone() });
    };
    let mode = attached.mode;
    let wanted = match desired.mode {
        XdpMode::Auto => None,
        XdpMode::Native => Some(AttachMode::Native),
        XdpMode::Generic => Some(AttachMode::Generic),
    };
    if let (Some(wanted), Some(mode)) = (wanted, mode)
        && wanted != mode
    {
        return Err(ReceiveError::OtherMode { interface: interface.clone(), mode, wanted });
    }
    let old = plan::in_force(&resident).map_err(failed)?;
    let plan = Plan::after(desired, &old);
    let made = plan.prepare_threads(&resident).map_err(failed)?;
    let put = threads::schedule(&resident, &plan).and_then(|()| {
        for slot in &plan.fresh_slots {
            resident.clear(*slot).map_err(failed)?;
        }
        resident.replace(&plan.rules).map_err(failed)
    });
    if let Err(error) = put {
        for (lane, cpu) in made {
            // Best effort: a thread without frames harms nobody, and `stop` ends it.
            let _ = resident.remove_thread(lane, cpu);
        }
        let _ = threads::schedule(&resident, &Plan::again(&old));
        return Err(error);
    }
    plan.end_other_threads(&resident).map_err(failed)?;
    // No frame comes any more by rules in which another class had the lane.
    for lane in &plan.fresh_lanes {
        resident.clear_lost(*lane).map_err(failed)?;
    }
    let chained = resident.chained().map_err(failed)?;
    if chained.is_some() && desired.normal_cpus.is_some() {
        notes.push(CHAINED_NORMAL.to_owned());
    }
    if let Some(mode) = mode {
        place.note_offloads(desired, mode, &mut notes);
    }
    Ok(notes)
}

const CHAINED_NORMAL: &str =
    "frames without a class go to the program that was there before, not to `normal_cpus`";

/// Takes receive priority off an interface, and restores a program that was there before.
///
/// **Errors**: it is not there; the kernel refuses.
pub fn stop(interface: &IfName) -> Result<Notes, ReceiveError> {
    let place = AttachedInterface::of(interface)?;
    place.is_there()?;
    let journal = Journal::begin(&format!("the end of receive priority on {interface}"))?;
    let mut lock = None;
    let stopped = stop_journaled(&place, &journal, &mut lock);
    drop(lock);
    // All that is open now is what everybody may do who finds the mount empty.
    journal.finish()?;
    stopped
}

/// Killed before the renaming, all is there to be stopped again; afterwards the journal goes on.
fn stop_journaled(
    place: &AttachedInterface,
    journal: &Journal,
    lock: &mut Option<Lock>,
) -> Result<Notes, ReceiveError> {
    let mut notes = Notes::new();
    let failed = |error| ReceiveError::bpf(&place.interface, error);
    *lock = Some(pins::mount(journal, TIMEOUT)?.ok_or(ReceiveError::Busy)?);
    // Another command may have ended it meanwhile.
    place.is_there()?;
    let resident = Resident::open(&place.directory()).map_err(failed)?;
    if resident.attached(place.index).map_err(failed)?.is_none() {
        notes.push(format!(
            "the program was not on {} any more; what is there now was not touched",
            place.interface
        ));
    }
    resident.detach(place.index).map_err(failed)?;
    drop(resident);
    let leaving = place.leaving();
    let rest = journal.record(BpfUndo::RemovePins { path: leaving.clone() })?;
    fs::rename(place.directory(), &leaving)
        .map_err(ReceiveError::file("rename", &place.directory()))?;
    journal.undo(rest)?;
    sweep(&mut notes)?;
    Ok(notes)
}

/// Removes what interfaces have left that are gone.
fn sweep(notes: &mut Notes) -> Result<(), ReceiveError> {
    let netns = own_netns()?.to_string();
    let interfaces = timewire_sys::Interfaces::here();
    let here = interfaces.map_err(ReceiveError::file("list", Path::new("interfaces")))?;
    for entry in entries(&home())? {
        let (path, name) = (entry.path(), entry.file_name());
        let Some((of, index)) = name.to_str().and_then(|name| name.split_once('-')) else {
            continue;
        };
        let Ok(index) = index.parse::<u32>() else { continue };
        let is_gone = match Resident::link_is_dead(&path) {
            Some(is_dead) => is_dead,
            // Attached over netlink: it goes with its interface.
            None => of == netns && !here.has(index),
        };
        if is_gone {
            BpfUndo::RemovePins { path }.undo()?;
            notes.push(format!("removed what interface number {index}, which is gone, has left"));
        }
    }
    Ok(())
}

/// A thread on a CPU that is off would never run.
fn are_online(interface: &IfName, desired: &Receive) -> Result<(), ReceiveError> {
    let path = Path::new("/sys/devices/system/cpu/online");
    let text = fs::read_to_string(path).map_err(ReceiveError::file("read", path))?;
    let Ok(online) = CpuList::parse(text.trim()) else { return Ok(()) };
    let of_classes = desired.classes.iter().flat_map(|class| class.cpus());
    let mut wanted = desired.normal_cpus().into_iter().chain(of_classes);
    match wanted.find(|cpu| online.iter().all(|it| it != *cpu)) {
        Some(cpu) => Err(ReceiveError::NoCpu { interface: interface.clone(), cpu }),
        None => Ok(()),
    }
}

/// An interface, and where its program has its names.
#[derive(Debug)]
struct AttachedInterface {
    interface: IfName,
    index: u32,
    netns: u64,
}

impl AttachedInterface {
    fn of(interface: &IfName) -> Result<AttachedInterface, ReceiveError> {
        let index = timewire_sys::interface_index(interface)
            .map_err(|source| ReceiveError::NoInterface { interface: interface.clone(), source })?;
        Ok(AttachedInterface { interface: interface.clone(), index, netns: own_netns()? })
    }

    fn directory(&self) -> PathBuf {
        home().join(format!("{}-{}", self.netns, self.index))
    }

    /// Where it is made; no dots, which the BPF file system reserves.
    fn staging(&self) -> PathBuf {
        self.own("starting")
    }

    /// Where it is taken apart.
    fn leaving(&self) -> PathBuf {
        self.own("stopping")
    }

    /// A name that no other command has.
    fn own(&self, what: &str) -> PathBuf {
        let process = std::process::id();
        home().join(format!("{what}-{}-{}-{process}", self.netns, self.index))
    }

    fn open(&self) -> Result<(Lock, Resident), ReceiveError> {
        self.is_there()?;
        let lock = pins::lock(TIMEOUT)?.ok_or(ReceiveError::Busy)?;
        // Another command may have ended it meanwhile.
        self.is_there()?;
        let failed = |error| ReceiveError::bpf(&self.interface, error);
        Ok((lock, Resident::open(&self.directory()).map_err(failed)?))
    }

    /// **Errors**: `RunsNot`; it cannot be seen from here.
    fn is_there(&self) -> Result<(), ReceiveError> {
        if is_mounted()? && exists(&self.directory())? {
            return Ok(());
        }
        Err(ReceiveError::RunsNot { interface: self.interface.clone() })
    }

    /// Another program that is attached.
    fn other(&self) -> Result<Option<Attached>, ReceiveError> {
        timewire_bpf::attached(self.index)
            .map_err(|source| ReceiveError::Query { interface: self.interface.clone(), source })
    }

    fn in_the_way(&self, other: &Attached, why: &str) -> ReceiveError {
        let ours = other.name == PROGRAM_NAME;
        let whose = if ours { "; it is one of Timewire's own" } else { "" };
        ReceiveError::InTheWay {
            interface: self.interface.clone(),
            program: other.program,
            name: other.name.clone(),
            link: other.link,
            mode: other.mode,
            why: format!("{why}{whose}"),
        }
    }

    /// What the user should know about this interface.
    fn note_doubts(
        &self,
        desired: &Receive,
        mode: AttachMode,
        other: Option<&Attached>,
        notes: &mut Notes,
    ) {
        if let Some(Attached { program, name, .. }) = other {
            notes.push(format!(
                "program {program} (`{name}`) was there before: it goes on deciding about frames \
                 that go up at once, and `receive stop` restores it"
            ));
            if desired.normal_cpus.is_some() {
                notes.push(CHAINED_NORMAL.to_owned());
            }
        }
        self.note_offloads(desired, mode, notes);
    }

    /// What the NIC, or the other end of a virtual cable, keeps from the program or the threads.
    fn note_offloads(&self, desired: &Receive, mode: AttachMode, notes: &mut Notes) {
        let name = self.interface.as_str();
        let ethtool = |flag| tool::run(Tool::Ethtool, &[flag, name]).unwrap_or_default();
        let is_veth = ethtool("-i").lines().any(|line| line == "driver: veth");
        let offloads = ethtool("-k");
        let offloads_tags = offloads.lines().any(|line| line.starts_with("rx-vlan-offload: on"));
        let to_threads = desired.normal_cpus.is_some()
            || desired.classes.iter().any(|class| class.to == Destination::Threads);
        // In generic mode the kernel's own description of a frame goes with it to the thread.
        let loses = to_threads && mode == AttachMode::Native;
        if desired.looks_at_tags() && is_veth {
            notes.push(
                "a tag is seen only if the other end of the veth pair leaves it in the frame: \
                 `ethtool -K PEER txvlan off` there"
                    .to_owned(),
            );
        } else if desired.looks_at_tags() && offloads_tags {
            notes.push(format!(
                "the NIC takes VLAN tags out of frames before they are looked at: \
                 `ethtool -K {name} rxvlan off` leaves them in"
            ));
        }
        if loses && !is_veth && offloads_tags {
            notes.push(format!(
                "the NIC takes VLAN tags out of frames, and behind a thread they are lost: frames \
                 of a VLAN arrive as if they had none; `ethtool -K {name} rxvlan off` leaves them \
                 in"
            ));
        }
        if loses && !is_veth {
            notes.push("frames have no timestamp of the NIC behind a thread".to_owned());
        }
        if loses && is_veth {
            notes.push(
                "frames that the other end of the veth pair sends without a checksum are dropped \
                 behind a thread, and VLAN tags that it does not leave in the frame are lost: \
                 `ethtool -K PEER tx off txvlan off` there"
                    .to_owned(),
            );
        }
    }
}

/// Whether the BPF file system is there; an error where one that was mounted would end with this
/// process.
fn is_mounted() -> Result<bool, ReceiveError> {
    let is_mounted = pins::is_mounted()?;
    if !is_mounted && pins::mounts_are_private() {
        return Err(ReceiveError::PrivateMounts { netns: netns_name() });
    }
    Ok(is_mounted)
}

fn exists(path: &Path) -> Result<bool, ReceiveError> {
    path.try_exists().map_err(ReceiveError::file("look at", path))
}

/// What lives there; nothing when there is no such directory.
fn entries(path: &Path) -> Result<Vec<fs::DirEntry>, ReceiveError> {
    let list = || fs::read_dir(path)?.collect::<io::Result<Vec<_>>>();
    match list() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other.map_err(ReceiveError::file("list", path)),
    }
}

/// The name of this network namespace, where it has one.
fn netns_name() -> Option<String> {
    let ours = own_netns().ok()?;
    let named = fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let is_it = |it: &fs::DirEntry| fs::metadata(it.path()).is_ok_and(|file| file.ino() == ours);
    named.into_iter().find(is_it)?.file_name().into_string().ok()
}

fn home() -> PathBuf {
    Path::new(pins::BPF_MOUNT).join(HOME)
}

fn own_netns() -> Result<u64, ReceiveError> {
    let path = Path::new("/proc/thread-self/ns/net");
    fs::metadata(path).map(|file| file.ino()).map_err(ReceiveError::file("read", path))
}

fn make_directory(path: &Path) -> Result<(), ReceiveError> {
    let mut builder = DirBuilder::new();
    let made = builder.recursive(true).mode(0o700).create(path);
    Ok(made.map_err(FileError::unusable::<HostError>("make", path))?)
}
