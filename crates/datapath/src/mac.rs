// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A station's MAC: starting it on an interface, changing it while it runs, asking it how it is.
//!
//! ```text
//! programs -> stack -> tw0 | tw1 -> [ queues, slots: real-time thread ] -> link
//! programs <- stack <- tw0 <-------- [ XDP classifier, CPUMAP ] <--------- link
//! ```

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use timewire_base::{CyclicWindows, IfName, Instant, Mono, Port, Priority, Span, Tai};
use timewire_bpf::BpfError;
use timewire_sys::{FrameMemory, Interfaces, event, interface_index};
use timewire_tsn::{Config, Counters, MacError, Machine, Mode, Pending, PortRules};

use crate::engine::{Engine, Observation, SendList};
use crate::receive::{ReceiveLinks, ReceiveSide};
use crate::socket::{MacSockets, SocketChoice};

/// Frames that can be anywhere between the stack and the link.
const BUFFERS: u32 = 8_192;
/// How long a change of the running MAC may take before it is given up.
const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(2);

/// Why a MAC cannot be started or changed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PathError {
    /// An interface is missing.
    #[error("interface {name}: {source}")]
    Interface {
        /// Its name.
        name: IfName,
        /// Why.
        source: io::Error,
    },
    /// A socket could not be opened or bound.
    #[error("{kind} socket on interface {interface}: {source}")]
    Socket {
        /// Which kind.
        kind: &'static str,
        /// Index of the interface.
        interface: u32,
        /// Why.
        source: io::Error,
    },
    /// The far side has receive queues that AF_XDP's one socket does not hear.
    #[error(
        "{name} has {queues} receive queues, of which AF_XDP hears one here: make the pair with \
         `numrxqueues 1`, or take one with `ethtool --set-channels {name} rx 1`"
    )]
    ManyQueues {
        /// Its name.
        name: IfName,
        /// How many it has.
        queues: u32,
    },
    /// Another MAC has the link.
    #[error("interface {name} has a MAC already; stop that one first")]
    Taken {
        /// Its name.
        name: IfName,
    },
    /// No way to carry frames works here.
    #[error("no socket type works here: {}", .reasons.join("; "))]
    NoSocket {
        /// Each one's reason.
        reasons: Vec<String>,
    },
    /// An eBPF program was refused.
    #[error(transparent)]
    Bpf(#[from] BpfError),
    /// Memory, a thread or a wake-up could not be had.
    #[error("the MAC cannot start: {0}")]
    Memory(io::Error),
    /// A list of ports or a configuration that cannot be.
    #[error(transparent)]
    Mac(#[from] MacError),
    /// The real-time thread did not answer.
    #[error("the MAC's thread did not take the change within {} s", TIMEOUT.as_secs())]
    NotTaken,
    /// The real-time thread ended by itself.
    #[error("the MAC's thread has ended: {reason}")]
    Ended {
        /// What it said.
        reason: String,
    },
}

/// How the clock must be for the slots to open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClockRule {
    /// All stations share this host's clock (the laboratory): nothing to check.
    OneHost,
    /// A daemon must keep the clock synchronised, within this error.
    Synchronised {
        /// The largest error the kernel may report.
        max_error: Span,
    },
    /// Somebody who watches the clock says again and again until when it is on time
    /// ([`Mac::set_on_time`]); when nobody does, it is not.
    Watched,
}

/// A list of prioritised ports, as `tdm send N port priority ...` gives it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortList {
    /// How many prioritised queues; at least one for each priority named.
    pub queues: usize,
    /// Ports and their priorities.
    pub ports: Vec<(Port, Priority)>,
}

impl PortList {
    /// The list, checked.
    ///
    /// **Errors**: a port twice, too many ports, too few or too many queues.
    pub fn rules(&self) -> Result<PortRules, MacError> {
        PortRules::new(self.queues, &self.ports)
    }
}

/// Everything a MAC is started with.
#[derive(Clone, Debug)]
pub struct MacSpec {
    /// The interface to the segment. It carries no addresses, and the kernel must neither take IPv4
    /// packets from it (`rp_filter` 1) nor answer address requests on it (`arp_ignore` 8): without
    /// eBPF it sees what the link receives as well, and by default it takes a packet for any of its
    /// addresses on any interface.
    pub link: IfName,
    /// The interface with the station's addresses.
    pub stack: IfName,
    /// Its far side, set like the link.
    pub far: IfName,
    /// The station's Ethernet address.
    pub address: [u8; 6],
    /// How the machine is configured.
    pub config: Config,
    /// When this station may send; `None` sends at once (no TDM).
    pub windows: Option<CyclicWindows>,
    /// How long before its window the thread stops sleeping and spins.
    pub spin: Span,
    /// Which socket type.
    pub socket: SocketChoice,
    /// Transmit priorities by port.
    pub send: PortList,
    /// Receive priorities by port.
    pub recv: PortList,
    /// CPU of the thread that normal received frames are deferred to.
    pub defer_cpu: u32,
    /// How the clock must be.
    pub clock: ClockRule,
    /// Slots that have opened stay open when the clock is not on time any more.
    pub keep_open: bool,
}

/// How a running MAC is.
#[derive(Clone, Debug)]
pub struct MacStatus {
    /// How frames go out.
    pub socket: String,
    /// How frames come in.
    pub receive: String,
    /// What was asked of the host and refused; the MAC works without it, less exactly.
    pub refused: Vec<String>,
    /// The machine's counters.
    pub counters: Counters,
    /// What the thread counts itself.
    pub observed: Observation,
    /// Received frames per class.
    pub received: timewire_bpf::receive::ReceiveCounters,
    /// The windows in force.
    pub windows: Option<CyclicWindows>,
    /// Windows that are to come, and when.
    pub pending: Option<Pending>,
    /// Transmit priorities in force.
    pub send: PortList,
    /// Receive priorities in force.
    pub recv: PortList,
}

/// What the control side asks of the thread, and what the thread hands back.
pub(crate) enum Command {
    SetWindows { windows: Option<CyclicWindows>, not_before: Instant<Tai> },
    SetSend(Box<SendList>),
    OnTime(Option<Instant<Mono>>),
    Report,
}

/// What the thread answers with; values it no longer needs are freed by the asker.
pub(crate) enum Answer {
    Done,
    Replaced(#[expect(dead_code, reason = "carried out of the thread to be freed")] Box<SendList>),
    Status(Box<Report>),
}

pub(crate) struct Report {
    pub(crate) counters: Counters,
    pub(crate) observed: Observation,
    pub(crate) windows: Option<CyclicWindows>,
    pub(crate) pending: Option<Pending>,
}

/// Where both sides meet. The thread only ever tries the lock.
#[derive(Default)]
pub(crate) struct Mailbox {
    pub(crate) asked: AtomicBool,
    pub(crate) stop: AtomicBool,
    pub(crate) slot: Mutex<Exchange>,
}

#[derive(Default)]
pub(crate) struct Exchange {
    pub(crate) command: Option<Command>,
    pub(crate) answer: Option<Answer>,
    pub(crate) retired: Option<CyclicWindows>,
}

/// A running MAC; dropping it stops it.
pub struct Mac {
    mailbox: Arc<Mailbox>,
    wake: Arc<event::Wake>,
    thread: Option<JoinHandle<Result<(), String>>>,
    /// Why the thread ended by itself.
    reason: Option<String>,
    interfaces: Interfaces,
    /// What the MAC stands on.
    ground: [(IfName, u32); 3],
    receive: ReceiveSide,
    socket: SocketChoice,
    refused: Vec<String>,
    lists: Lists,
    _claim: UnixDatagram,
}

struct Lists {
    send: PortList,
    recv: PortList,
}

impl Mac {
    /// Opens everything in the caller's network namespace and starts the real-time thread.
    ///
    /// **Errors**: an interface is missing, the link has a MAC already, a list or the configuration
    /// cannot be, or no socket type works; nothing is left behind.
    pub fn start(spec: MacSpec) -> Result<Mac, PathError> {
        let index = |name: &IfName| {
            interface_index(name)
                .map_err(|source| PathError::Interface { name: name.clone(), source })
        };
        let (link, stack, far) = (index(&spec.link)?, index(&spec.stack)?, index(&spec.far)?);
        let claim = claim(&spec.link, link)?;
        let interfaces = Interfaces::here().map_err(PathError::Memory)?;
        let send = SendList::new(&spec.send)?;
        let machine = Machine::new(spec.config, spec.windows, send.queues)?;
        spec.recv.rules()?;
        let memory = FrameMemory::new(BUFFERS).map_err(PathError::Memory)?;
        let mut socket = MacSockets::open(spec.socket, &memory, (far, &spec.far), link)?;
        let mut refused = std::mem::take(&mut socket.refused);
        let path =
            ReceiveLinks { link, stack, far, address: spec.address, defer_cpu: spec.defer_cpu };
        let kind = socket.kind;
        let (receive, more) = ReceiveSide::open(path, kind != SocketChoice::AfPacket)?;
        refused.extend(more);
        receive.set_rules(&spec.recv)?;

        let probe = match spec.config.mode {
            Mode::Tdm => None,
            Mode::Hybrid { .. } => Some(receive.probe()?),
        };

        let mailbox = Arc::new(Mailbox::default());
        let wake = Arc::new(event::Wake::new().map_err(PathError::Memory)?);
        let (told, tell) = std::sync::mpsc::channel();
        let of_engine = (Arc::clone(&mailbox), Arc::clone(&wake));
        let (spin, clock) = (spec.spin, (spec.clock, spec.keep_open));
        let thread = std::thread::Builder::new()
            .name("tw-mac".to_owned())
            .spawn(move || {
                let (_awake, refused) = crate::realtime::enter();
                let engine = Engine::new(machine, send, socket, spin, clock, probe, of_engine)
                    .map_err(|error| format!("it cannot put marks: {error}"))?;
                // Nobody waits for this any more only if the start itself was given up.
                let _ = told.send(refused);
                engine.run()
            })
            .map_err(PathError::Memory)?;
        refused.extend(tell.recv().unwrap_or_default());
        Ok(Mac {
            mailbox,
            wake,
            thread: Some(thread),
            reason: None,
            interfaces,
            ground: [(spec.link, link), (spec.stack, stack), (spec.far, far)],
            receive,
            socket: kind,
            refused,
            lists: Lists { send: spec.send, recv: spec.recv },
            _claim: claim,
        })
    }

    /// Changes the schedule without losing a frame: from the first cycle of the new one at or after
    /// `not_before`, and until then the old one holds. `None` sends at once from then on.
    pub fn set_windows(
        &mut self,
        windows: Option<CyclicWindows>,
        not_before: Instant<Tai>,
    ) -> Result<(), PathError> {
        self.ask(Command::SetWindows { windows, not_before }).map(drop)
    }

    /// Replaces the transmit priorities; frames that wait keep their order.
    pub fn set_send(&mut self, list: &PortList) -> Result<(), PathError> {
        let new = Box::new(SendList::new(list)?);
        self.ask(Command::SetSend(new))?;
        self.lists.send = list.clone();
        Ok(())
    }

    /// Replaces the receive priorities in one step.
    pub fn set_recv(&mut self, list: &PortList) -> Result<(), PathError> {
        self.receive.set_rules(list)?;
        self.lists.recv = list.clone();
        Ok(())
    }

    /// Until when the clock is on time, as far as is known now; `None` when it is not. It counts
    /// only with [`ClockRule::Watched`]; the thread has it when this returns.
    pub fn set_on_time(&mut self, until: Option<Instant<Mono>>) -> Result<(), PathError> {
        self.ask(Command::OnTime(until)).map(drop)
    }

    /// How the MAC is now.
    pub fn status(&mut self) -> Result<MacStatus, PathError> {
        let Answer::Status(report) = self.ask(Command::Report)? else {
            unreachable!("the thread answers a report with a status")
        };
        Ok(MacStatus {
            socket: self.socket.to_string(),
            receive: self.receive.describe(),
            refused: self.refused.clone(),
            counters: report.counters,
            observed: report.observed,
            received: self.receive.counters()?,
            windows: report.windows,
            pending: report.pending,
            send: self.lists.send.clone(),
            recv: self.lists.recv.clone(),
        })
    }

    /// Why the MAC ended by itself, if it did: its thread could not go on, or an interface is gone.
    pub fn ended(&mut self) -> Option<PathError> {
        if self.reason.is_none() {
            self.reason = self.find_end();
        }
        self.reason.clone().map(|reason| PathError::Ended { reason })
    }

    fn find_end(&mut self) -> Option<String> {
        let Some(thread) = &self.thread else { return Some("it was stopped".to_owned()) };
        if thread.is_finished() {
            return Some(self.join().err().unwrap_or_else(|| "nobody asked it to".to_owned()));
        }
        let gone = self.ground.iter().find(|(_, index)| !self.interfaces.has(*index));
        let reason = gone.map(|(name, _)| format!("interface {name} is gone"))?;
        // Whatever the thread says of it now, this is why.
        let _ = self.join();
        Some(reason)
    }

    /// Stops the thread; what waits in the queues is dropped, as with a cable pulled.
    pub fn stop(mut self) -> Result<(), PathError> {
        self.join().map_err(|reason| PathError::Ended { reason })
    }

    fn exchange(&self) -> MutexGuard<'_, Exchange> {
        self.mailbox.slot.lock().expect("invariant: nobody panics with the mailbox locked")
    }

    fn ask(&mut self, command: Command) -> Result<Answer, PathError> {
        if let Some(ended) = self.ended() {
            return Err(ended);
        }
        {
            let mut exchange = self.exchange();
            exchange.command = Some(command);
            // One that came after its asker had given up.
            exchange.answer = None;
        }
        self.mailbox.asked.store(true, Ordering::Release);
        self.wake.set().map_err(PathError::Memory)?;
        let give_up = std::time::Instant::now() + TIMEOUT;
        loop {
            let (answer, retired) = {
                let mut exchange = self.exchange();
                (exchange.answer.take(), exchange.retired.take())
            };
            // Freed here and not in the real-time thread, and not with the mailbox locked.
            drop(retired);
            if let Some(answer) = answer {
                return Ok(answer);
            }
            if let Some(ended) = self.ended() {
                return Err(ended);
            }
            if std::time::Instant::now() > give_up {
                self.mailbox.asked.store(false, Ordering::Release);
                self.exchange().command = None;
                return Err(PathError::NotTaken);
            }
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
    }

    fn join(&mut self) -> Result<(), String> {
        self.mailbox.stop.store(true, Ordering::Release);
        // Best effort: the thread looks at the flag by itself within a cycle.
        let _ = self.wake.set();
        let Some(thread) = self.thread.take() else {
            return Ok(());
        };
        thread.join().unwrap_or_else(|_| Err("it panicked".to_owned()))
    }
}

impl Drop for Mac {
    fn drop(&mut self) {
        // An error was either told by an earlier call or has nobody left to be told to.
        let _ = self.join();
    }
}

/// Keeps other MACs off the link until it is dropped or the process ends. The name is known in this
/// network namespace only, as the link is. A child that another thread has just forked has the name
/// of a MAC that has ended until it executes its program, so a name that is taken is tried again.
///
/// **Errors**: another MAC has the link.
fn claim(name: &IfName, link: u32) -> Result<UnixDatagram, PathError> {
    let mut tries = 0..CLAIM_TRIES;
    loop {
        match try_to_claim(name, link) {
            Err(PathError::Taken { .. }) if tries.next().is_some() => {
                std::thread::sleep(CLAIM_INTERVAL);
            }
            claimed => return claimed,
        }
    }
}

/// How often, and how long after each other, a name that is taken is tried again.
const CLAIM_TRIES: u32 = 50;
const CLAIM_INTERVAL: std::time::Duration = std::time::Duration::from_millis(2);

fn try_to_claim(name: &IfName, link: u32) -> Result<UnixDatagram, PathError> {
    let taken = |error: io::Error| match error.kind() {
        io::ErrorKind::AddrInUse => PathError::Taken { name: name.clone() },
        _ => PathError::Memory(error),
    };
    let address = SocketAddr::from_abstract_name(format!("timewire-mac/{link}"));
    address.and_then(|address| UnixDatagram::bind_addr(&address)).map_err(taken)
}
