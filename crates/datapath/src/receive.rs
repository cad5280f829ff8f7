// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The receive side of a station: frames from the link reach the stack's interface, priority ones
//! at once, the others when nothing urgent waits.
//!
//! With eBPF this happens in the kernel (`timewire_bpf::receive`). Without, a thread reads the link
//! with AF_PACKET and writes to the stack's interface; it costs a copy and a wake-up per frame.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use timewire_base::Span;
use timewire_bpf::AttachMode;
use timewire_bpf::receive::{RealTimeCounter, Receive, ReceiveCounters, Settings};
use timewire_sys::packet::{PacketOptions, PacketSocket};
use timewire_sys::{Frame, FrameMemory, event};
use timewire_tsn::PortRules;

use crate::mac::{PathError, PortList};

/// Bytes of a frame that the classifier looks at.
pub(crate) const LOOKED_AT: usize = 128;
/// Normal frames that can wait in the user-space path.
const DEFERRED: usize = 512;
const BUFFERS: u32 = 1_024;
const BATCH: usize = 64;

/// The receive side, in the kernel or in a thread.
pub(crate) enum ReceiveSide {
    Kernel(Receive),
    Thread(ReceiveThread),
}

/// Where frames come from and go to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceiveLinks {
    /// The link's interface.
    pub(crate) link: u32,
    /// The interface with the station's addresses.
    pub(crate) stack: u32,
    /// Its far side, which the user-space path writes to.
    pub(crate) far: u32,
    /// The station's address.
    pub(crate) address: [u8; 6],
    /// CPU of the deferred thread.
    pub(crate) defer_cpu: u32,
}

impl ReceiveSide {
    /// Sets up the best path that works, eBPF only if wanted; says what was refused.
    pub(crate) fn open(
        path: ReceiveLinks,
        with_bpf: bool,
    ) -> Result<(ReceiveSide, Vec<String>), PathError> {
        let mut refused = Vec::new();
        let settings = Settings {
            stack_interface: path.stack,
            defer_cpu: path.defer_cpu,
            address: path.address,
        };
        if with_bpf {
            for mode in [AttachMode::Native, AttachMode::Generic] {
                match Receive::attach(path.link, mode, settings) {
                    Ok(receive) => return Ok((ReceiveSide::Kernel(receive), refused)),
                    Err(error) => refused.push(format!("receive by XDP {mode}: {error}")),
                }
            }
        }
        Ok((ReceiveSide::Thread(ReceiveThread::start(path)?), refused))
    }

    /// How it is done, in words.
    pub(crate) fn describe(&self) -> String {
        match self {
            ReceiveSide::Kernel(receive) => format!("XDP {} + CPUMAP", receive.mode()),
            ReceiveSide::Thread(_) => "AF_PACKET thread".to_owned(),
        }
    }

    /// Replaces the list of prioritised ports in one step.
    pub(crate) fn set_rules(&self, list: &PortList) -> Result<(), PathError> {
        match self {
            ReceiveSide::Kernel(receive) => {
                list.rules()?;
                Ok(receive.set_rules(&list.ports)?)
            }
            ReceiveSide::Thread(thread) => thread.set_rules(list),
        }
    }

    /// A handle for the thread that must know whether real-time traffic exists.
    pub(crate) fn probe(&self) -> Result<RealTimeProbe, PathError> {
        match self {
            ReceiveSide::Kernel(receive) => Ok(RealTimeProbe::Kernel(receive.real_time_counter()?)),
            ReceiveSide::Thread(thread) => Ok(RealTimeProbe::Thread(Arc::clone(&thread.shared))),
        }
    }

    /// Frames per class since the start.
    pub(crate) fn counters(&self) -> Result<ReceiveCounters, PathError> {
        match self {
            ReceiveSide::Kernel(receive) => Ok(receive.counters()?),
            ReceiveSide::Thread(thread) => Ok(thread.shared.counters()),
        }
    }
}

/// Counts frames with a priority that the link showed, whomever they are for.
pub(crate) enum RealTimeProbe {
    Kernel(RealTimeCounter),
    Thread(Arc<Shared>),
}

impl RealTimeProbe {
    /// The count since the start; 0 when it cannot be read.
    pub(crate) fn read(&self) -> u64 {
        match self {
            RealTimeProbe::Kernel(counter) => counter.read().unwrap_or(0),
            RealTimeProbe::Thread(shared) => shared.real_time.load(Ordering::Relaxed),
        }
    }
}

/// The path without eBPF.
pub(crate) struct ReceiveThread {
    shared: Arc<Shared>,
    wake: Arc<event::Wake>,
    thread: Option<JoinHandle<()>>,
}

pub(crate) struct Shared {
    /// Those in force, and those before: the thread may still hold the latter, and gives them up
    /// without being the last, so that it never frees.
    rules: Mutex<[Arc<PortRules>; 2]>,
    changed: AtomicBool,
    stop: AtomicBool,
    normal: AtomicU64,
    by_priority: [AtomicU64; 32],
    foreign: AtomicU64,
    not_deferred: AtomicU64,
    lost: AtomicU64,
    real_time: AtomicU64,
}

impl Shared {
    fn counters(&self) -> ReceiveCounters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut by_priority = [0; 32];
        for (value, counter) in by_priority.iter_mut().zip(&self.by_priority) {
            *value = read(counter);
        }
        ReceiveCounters {
            normal: read(&self.normal),
            by_priority,
            foreign: read(&self.foreign),
            not_deferred: read(&self.not_deferred),
            lost: Some(read(&self.lost)),
        }
    }

    fn rules(&self) -> Arc<PortRules> {
        let held = self.rules.lock().expect("invariant: nobody panics with the rules locked");
        Arc::clone(&held[0])
    }
}

impl ReceiveThread {
    fn start(path: ReceiveLinks) -> Result<ReceiveThread, PathError> {
        let failed =
            |interface| move |source| PathError::Socket { kind: "AF_PACKET", interface, source };
        let options =
            |receive| PacketOptions { receive, timestamps: false, buffer_bytes: 16 << 20 };
        let link = PacketSocket::open(path.link, options(true)).map_err(failed(path.link))?;
        let far = PacketSocket::open(path.far, options(false)).map_err(failed(path.far))?;
        let memory = FrameMemory::new(BUFFERS).map_err(PathError::Memory)?;
        let wake = Arc::new(event::Wake::new().map_err(PathError::Memory)?);
        let shared = Arc::new(Shared {
            rules: Mutex::new(Default::default()),
            changed: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            normal: AtomicU64::new(0),
            by_priority: Default::default(),
            foreign: AtomicU64::new(0),
            not_deferred: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            real_time: AtomicU64::new(0),
        });
        let path = UserReceive {
            link,
            far,
            memory,
            address: path.address,
            shared: Arc::clone(&shared),
            wake: Arc::clone(&wake),
            deferred: VecDeque::with_capacity(DEFERRED),
            free: (0..BUFFERS).collect(),
        };
        let thread = std::thread::Builder::new()
            .name("tw-receive".to_owned())
            .spawn(move || path.run())
            .map_err(PathError::Memory)?;
        Ok(ReceiveThread { shared, wake, thread: Some(thread) })
    }

    fn set_rules(&self, list: &PortList) -> Result<(), PathError> {
        let rules = Arc::new(list.rules()?);
        let lock = self.shared.rules.lock();
        let mut held = lock.expect("invariant: nobody panics with the rules locked");
        held[1] = std::mem::replace(&mut held[0], rules);
        drop(held);
        self.shared.changed.store(true, Ordering::Release);
        Ok(())
    }
}

impl Drop for ReceiveThread {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        // Best effort: the thread looks at the flag by itself soon after.
        let _ = self.wake.set();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct UserReceive {
    link: PacketSocket,
    far: PacketSocket,
    memory: Arc<FrameMemory>,
    address: [u8; 6],
    shared: Arc<Shared>,
    wake: Arc<event::Wake>,
    deferred: VecDeque<Frame>,
    free: Vec<u32>,
}

impl UserReceive {
    fn run(mut self) {
        let (_awake, _refused) = crate::realtime::enter();
        let mut rules = self.shared.rules();
        let mut got = Vec::with_capacity(BATCH);
        while !self.shared.stop.load(Ordering::Acquire) {
            // A failing read (the link went away) is met again by the wait, which then paces it.
            let count = self.link.receive(&self.memory, &mut self.free, &mut got).unwrap_or(0);
            // Asked after the frames were taken: a frame that came after a change is met by it.
            if self.shared.changed.swap(false, Ordering::AcqRel) {
                rules = self.shared.rules();
            }
            for frame in got.drain(..) {
                self.take(frame, &rules);
            }
            // Deferred frames go up one at a time, and only while no new frame waits.
            if count == 0 {
                match self.deferred.pop_front() {
                    Some(frame) => self.deliver(frame),
                    None => {
                        self.count_drops();
                        self.wait();
                    }
                }
            }
        }
    }

    fn wait(&self) {
        let fds = [self.link.as_fd(), self.wake.as_fd()];
        if event::wait_readable(&fds, Some(Span::from_ms(100))).is_err() {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }

    fn take(&mut self, frame: Frame, rules: &PortRules) {
        let mut bytes = [0; LOOKED_AT];
        let length = self.memory.copy_prefix(frame, &mut bytes);
        let bytes = &bytes[..length];
        let priority = rules.classify_captured(bytes, frame.len() as usize);
        if priority.is_some() {
            self.shared.real_time.fetch_add(1, Ordering::Relaxed);
        }
        if is_foreign(bytes, self.address) {
            self.shared.foreign.fetch_add(1, Ordering::Relaxed);
            self.free.push(self.memory.buffer_of(frame));
            return;
        }
        if let Some(priority) = priority {
            let index = usize::from(priority.get() - 1);
            self.shared.by_priority[index].fetch_add(1, Ordering::Relaxed);
            self.deliver(frame);
            return;
        }
        self.shared.normal.fetch_add(1, Ordering::Relaxed);
        if rules.rules().len() == 0 && self.deferred.is_empty() {
            self.deliver(frame);
            return;
        }
        // Normal frames keep their order: where there is no room to wait, the oldest goes at once.
        if self.deferred.len() == DEFERRED
            && let Some(oldest) = self.deferred.pop_front()
        {
            self.shared.not_deferred.fetch_add(1, Ordering::Relaxed);
            self.deliver(oldest);
        }
        self.deferred.push_back(frame);
    }

    fn deliver(&mut self, frame: Frame) {
        if self.far.send(&self.memory, frame).is_err() {
            self.shared.lost.fetch_add(1, Ordering::Relaxed);
        }
        self.free.push(self.memory.buffer_of(frame));
    }

    fn count_drops(&mut self) {
        let drops = self.link.take_drops().unwrap_or(0);
        self.shared.lost.fetch_add(u64::from(drops), Ordering::Relaxed);
    }
}

/// Whether a frame is unicast to another station.
fn is_foreign(bytes: &[u8], own: [u8; 6]) -> bool {
    match bytes.first_chunk::<6>() {
        Some(to) => to[0] & 1 == 0 && *to != own,
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_only_unicast_to_others_is_foreign() {
        let own = [2, 0, 0, 0, 0, 1];
        assert!(!is_foreign(&own, own));
        assert!(is_foreign(&[2, 0, 0, 0, 0, 2], own));
        assert!(!is_foreign(&[0xff; 14], own));
        assert!(!is_foreign(&[1, 0, 0x5e, 0, 0, 1], own));
        assert!(!is_foreign(&[], own));
    }
}
