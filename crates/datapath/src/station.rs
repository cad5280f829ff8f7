// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One station: makes the virtual interface for the local stack, starts the MAC on the link, takes
//! requests until it is told to end, and restores the host as it was, also when it is killed.
//!
//! Not here: how frames are released (`talker`, `listen`, `timewire-tsn`).

mod address;
mod link;

use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::sync::Arc;

use crate::SocketChoice;
use crate::mac::{ClockRule, Mac, MacSpec, MacStatus, PortList};
use timewire_base::drops::Socket;
use timewire_base::{IfName, Instant, Mono, Span, StationName, Tai};
use timewire_capture::summary::{MacSummary, QueueSummary};
use timewire_host::group::{Group, MemberId};
use timewire_host::journal::Journal;
use timewire_host::{HostError, Undo};
use timewire_model::scenario::{MacMode, OnSyncLoss, PortPriority, Queues, Scenario, SocketType};
use timewire_model::tdm::TdmSchedule;
use timewire_sys::scheduler::RtPriority;
use timewire_sys::{clock, event};
use timewire_tsn::drops::decide;
use timewire_tsn::{Config, Counters, Mode, QueueIndex, QueueSet};

use crate::DatapathError;
use crate::control::{
    MemberStatus, OnTime, Received, Request, Response, STATUS_SCHEMA, Server, Status, SyncStatus,
};
use link::{LinkState, far_name, make_interfaces};

/// Of members of the priority group: below the MAC that carries their frames.
pub const GROUP_PRIORITY: u8 = 60;
/// How far ahead a change of the schedule lies when nobody says when: long enough for a command
/// that goes to every station.
const CHANGE_AHEAD: Span = Span::from_ms(50);
/// For how long somebody's word about the clock can hold.
const HOLD_MAX: Span = Span::from_secs(60);

/// What a station is started with.
#[derive(Clone, Debug)]
pub struct StationSpec {
    /// Name of the MAC, for the control socket.
    pub instance: String,
    /// Which station of the schedule this is.
    pub station: StationName,
    /// The interface to the segment.
    pub link: IfName,
    /// The virtual interface to make.
    pub stack: IfName,
    /// Addresses for it, as `10.77.0.1/24`.
    pub addresses: Vec<String>,
    /// Move the addresses that the link has.
    pub move_addresses: bool,
    /// The schedule; `None` sends at once.
    pub schedule: Option<TdmSchedule>,
    /// How the machine is configured.
    pub config: Config,
    /// How long before its slot the thread spins.
    pub spin: Span,
    /// Which socket type.
    pub socket: SocketChoice,
    /// How the clock must be.
    pub clock: ClockRule,
    /// Slots that have opened stay open when the clock is not on time any more.
    pub keep_open: bool,
    /// Transmit priorities.
    pub send: PortList,
    /// Receive priorities.
    pub recv: PortList,
}

/// What a station of a scenario is started with, without addresses.
///
/// **Errors**: the scenario has no such station, or the station has no slot.
pub fn from_scenario(
    scenario: &Scenario,
    station: StationName,
    link: IfName,
    stack: IfName,
    instance: String,
    clock: ClockRule,
) -> Result<StationSpec, DatapathError> {
    if scenario.station(&station).is_none() {
        let known = scenario.stations.iter().map(|known| known.name.to_string()).collect();
        return Err(DatapathError::NoStation { name: station, known });
    }
    let options = &scenario.mac;
    let (send, recv) = port_lists(&scenario.queues);
    let socket = match options.socket {
        SocketType::Auto => SocketChoice::Auto,
        SocketType::AfXdpNative => SocketChoice::AfXdpNative,
        SocketType::AfXdpGeneric => SocketChoice::AfXdpGeneric,
        SocketType::AfPacket => SocketChoice::AfPacket,
    };
    let spec = StationSpec {
        instance,
        station,
        link,
        stack,
        addresses: Vec::new(),
        move_addresses: false,
        schedule: Some(scenario.schedule.clone()),
        config: mac_config(scenario),
        spin: options.spin,
        socket,
        clock,
        keep_open: options.on_sync_loss == OnSyncLoss::Keep,
        send,
        recv,
    };
    has_slot(&scenario.schedule, &spec.station)?;
    Ok(spec)
}

/// How the MACs of a scenario are configured.
pub fn mac_config(scenario: &Scenario) -> Config {
    let options = &scenario.mac;
    Config {
        rate: scenario.segment().rate,
        margin: options.margin,
        ahead: options.ahead,
        mode: match options.mode {
            MacMode::Tdm => Mode::Tdm,
            MacMode::Hybrid => Mode::Hybrid { idle_after: options.hybrid_idle_after },
        },
        best_effort_share: options.best_effort_share,
        queue_capacity: usize::try_from(options.queue_frames.get()).unwrap_or(usize::MAX),
    }
}

/// The transmit and receive lists of a scenario as a MAC takes them.
pub fn port_lists(queues: &Queues) -> (PortList, PortList) {
    let list = |entries: &[PortPriority], queues: Option<usize>| {
        let ports: Vec<_> = entries.iter().map(|entry| (entry.port, entry.priority)).collect();
        let distinct = ports.iter().map(|(_, priority)| *priority).collect::<BTreeSet<_>>();
        PortList { queues: queues.unwrap_or(distinct.len()), ports }
    };
    let transmit = usize::try_from(queues.transmit_queues()).unwrap_or(usize::MAX);
    (list(&queues.send, Some(transmit)), list(&queues.recv, None))
}

fn has_slot(schedule: &TdmSchedule, station: &StationName) -> Result<(), DatapathError> {
    if schedule.slots().iter().any(|slot| slot.station == *station) {
        return Ok(());
    }
    Err(DatapathError::Invalid(format!(
        "the schedule has no slot for station `{station}`, which could then never send"
    )))
}

/// A running station. Dropping it restores the host.
pub struct Station {
    spec: StationSpec,
    /// The schedule that is to come.
    next: Option<TdmSchedule>,
    /// The last word about the clock.
    said: Option<Said>,
    far: IfName,
    server: Server,
    requests: event::EndRequests,
    // Fields drop in this order: members back first, then the frames stop, then the interfaces go.
    group: Group,
    mac: Mac,
    journal: Arc<Journal>,
}

impl Station {
    /// Makes the virtual interface and starts the MAC.
    ///
    /// **Errors**: whatever stands in the way; the host is as it was then.
    pub fn start(spec: StationSpec) -> Result<Station, DatapathError> {
        // Before any thread is started, so that all of them leave the signals to us.
        let requests = event::EndRequests::new()
            .map_err(|error| DatapathError::Invalid(format!("cannot wait for signals: {error}")))?;
        let link = LinkState::read(&spec.link)?;
        if !link.addresses.is_empty() && !spec.move_addresses {
            return Err(DatapathError::LinkHasAddresses {
                link: spec.link.clone(),
                stack: spec.stack.clone(),
                addresses: link.addresses.iter().map(|it| it.name.clone()).collect(),
            });
        }
        let far = far_name(&spec.stack)?;
        for name in [&spec.stack, &far] {
            if timewire_sys::interface_index(name).is_ok() {
                return Err(DatapathError::InterfaceExists { name: name.clone() });
            }
        }
        let journal = Arc::new(Journal::begin(&format!("MAC on {}", spec.link))?);
        let (server, socket) = Server::bind(&spec.instance)?;
        journal.record(Undo::RemoveFile { path: socket })?;
        make_interfaces(&journal, &spec, &far, &link)?;
        let mac = Mac::start(mac_spec(&spec, &far, link.address.0))
            .map_err(|source| DatapathError::Mac { link: spec.link.clone(), source })?;
        let priority = RtPriority::new(GROUP_PRIORITY)
            .expect("invariant: the priority lies in the kernel's range");
        let group = Group::new(Arc::clone(&journal), priority);
        Ok(Station { spec, next: None, said: None, far, server, requests, group, mac, journal })
    }

    /// Answers requests until one says stop or a signal asks to end; then restores the host.
    ///
    /// **Errors**: the MAC ended by itself, or something could not be restored.
    pub fn serve(mut self) -> Result<(), DatapathError> {
        let mut ended = None;
        let mut stop = false;
        while !stop && ended.is_none() {
            self.server.wait(self.requests.as_fd());
            stop = self.requests.take();
            let Station { spec, next, said, server, group, mac, .. } = &mut self;
            stop |= server.answer_all(|request| answer(spec, next, group, mac, said, request));
            ended = self.mac.ended();
        }
        let Station { spec, server, group, mac, journal, .. } = self;
        drop(group);
        let stopped = match ended {
            Some(error) => Err(error),
            None => mac.stop(),
        };
        let journal = Arc::into_inner(journal).expect("invariant: the group was the other owner");
        let restore = journal.finish();
        server.has_stopped(&match &restore {
            Ok(()) => Response::Done,
            Err(error) => Response::LeftChanged { message: error.to_string() },
        });
        restore?;
        stopped.map_err(|source| DatapathError::Mac { link: spec.link, source })
    }

    /// How the station is; also what was chosen and what the host refused.
    pub fn status(&mut self) -> Result<Status, DatapathError> {
        let Station { spec, next, said, group, mac, .. } = self;
        status(spec, next, group, mac, said.as_ref())
    }

    /// The name of the virtual interface's far side.
    pub fn far(&self) -> &IfName {
        &self.far
    }
}

fn mac_spec(spec: &StationSpec, far: &IfName, address: [u8; 6]) -> MacSpec {
    MacSpec {
        link: spec.link.clone(),
        stack: spec.stack.clone(),
        far: far.clone(),
        address,
        config: spec.config,
        windows: spec.schedule.as_ref().map(|schedule| schedule.windows_of(&spec.station)),
        spin: spec.spin,
        socket: spec.socket,
        send: spec.send.clone(),
        recv: spec.recv.clone(),
        defer_cpu: last_cpu(),
        clock: spec.clock,
        keep_open: spec.keep_open,
    }
}

fn answer(
    spec: &mut StationSpec,
    next: &mut Option<TdmSchedule>,
    group: &mut Group,
    mac: &mut Mac,
    said: &mut Option<Said>,
    request: Request,
) -> Response {
    let result = match request {
        Request::Stop => unreachable!("the server keeps it for the end"),
        Request::Show => status(spec, next, group, mac, said.as_ref())
            .map(|status| Response::Status { status: Box::new(status) }),
        Request::Set { schedule, not_before_ns } => set(spec, next, mac, schedule, not_before_ns),
        Request::Send { list } => changed(spec, mac.set_send(&list)),
        Request::Recv { list } => changed(spec, mac.set_recv(&list)),
        Request::OnTime { word } => on_time(spec, mac, said, word),
        Request::AddProcess { pids } => add_processes(group, &pids),
        Request::RemoveProcess { members } => remove_processes(group, &members),
    };
    result.unwrap_or_else(|error| Response::Refused { message: error.with_hint() })
}

fn changed(
    spec: &StationSpec,
    result: Result<(), crate::mac::PathError>,
) -> Result<Response, DatapathError> {
    result
        .map(|()| Response::Done)
        .map_err(|source| DatapathError::Mac { link: spec.link.clone(), source })
}

fn set(
    spec: &mut StationSpec,
    next: &mut Option<TdmSchedule>,
    mac: &mut Mac,
    schedule: TdmSchedule,
    not_before: Option<Instant<Tai>>,
) -> Result<Response, DatapathError> {
    has_slot(&schedule, &spec.station)?;
    let now = clock::now::<Tai>();
    let not_before = not_before.unwrap_or(now + CHANGE_AHEAD);
    if not_before < now {
        // Stations that hear of it at different times would change at different times.
        return Err(DatapathError::Invalid(format!(
            "the change is to come not before TAI {}ns, which is {} ago (now is {}ns); the \
             schedule stays as it is",
            not_before.as_ns(),
            now - not_before,
            now.as_ns()
        )));
    }
    // An earlier change may have taken effect since anybody asked.
    status_of(spec, next, mac)?;
    let result = mac.set_windows(Some(schedule.windows_of(&spec.station)), not_before);
    if result.is_ok() {
        *next = Some(schedule);
    }
    changed(spec, result)
}

/// How the MAC is. A schedule that was to come and has come is the one in force from here on.
fn status_of(
    spec: &mut StationSpec,
    next: &mut Option<TdmSchedule>,
    mac: &mut Mac,
) -> Result<MacStatus, DatapathError> {
    let now =
        mac.status().map_err(|source| DatapathError::Mac { link: spec.link.clone(), source })?;
    if now.pending.is_none() {
        spec.schedule = next.take().or_else(|| spec.schedule.take());
    }
    Ok(now)
}

/// All or none: when one cannot be added, those added before it are removed again.
fn add_processes(group: &mut Group, pids: &[u32]) -> Result<Response, DatapathError> {
    let mut members = Vec::new();
    if pids.contains(&std::process::id()) {
        return Err(DatapathError::Invalid(format!(
            "process {} is this MAC itself; it has a higher priority than the group",
            std::process::id()
        )));
    }
    for &pid in pids {
        match group.add(pid, None) {
            Ok(member) => members.push(member),
            Err(error) => {
                for member in members {
                    group.remove(member)?;
                }
                return Err(error.into());
            }
        }
    }
    Ok(Response::Members { members: members.into_iter().map(MemberId::get).collect() })
}

/// All or none: a number that is no member's is found before any member is removed.
fn remove_processes(group: &mut Group, members: &[u32]) -> Result<Response, DatapathError> {
    let known: Vec<u32> = group.members()?.iter().map(|member| member.id.get()).collect();
    if let Some(&member) = members.iter().find(|member| !known.contains(member)) {
        return Err(HostError::NoMember { member, members: known }.into());
    }
    for member in BTreeSet::from_iter(members) {
        group.remove(MemberId::new(*member))?;
    }
    Ok(Response::Done)
}

/// The MAC sends beside all queueing disciplines, so that none of them is asked.
fn bypassing(link: &IfName) -> Socket {
    let interface = Some(link.to_string());
    Socket { interface, bypasses_qdisc: true, ..Socket::default() }
}

fn status(
    spec: &mut StationSpec,
    next: &mut Option<TdmSchedule>,
    group: &mut Group,
    mac: &mut Mac,
    said: Option<&Said>,
) -> Result<Status, DatapathError> {
    let now = status_of(spec, next, mac)?;
    let members = group.members()?;
    let by_priority = (1_u8..).zip(now.received.by_priority).filter(|(_, frames)| *frames > 0);
    Ok(Status {
        schema: STATUS_SCHEMA.to_owned(),
        name: spec.instance.clone(),
        pid: std::process::id(),
        station: spec.station.to_string(),
        link: spec.link.to_string(),
        stack: spec.stack.to_string(),
        receive: now.receive.clone(),
        clock: clock_state(spec.clock, now.observed.on_time),
        sync: sync_status(spec, &now, said),
        refused: now.refused.clone(),
        transmit: transmit_summary(&spec.station, &now),
        not_sent: now.observed.not_sent.total(),
        drop_causes: decide(&[(bypassing(&spec.link), now.observed.not_sent)], None),
        sent_late: now.observed.sent_late,
        held_unsynchronised: now.counters.held_unsynchronised,
        schedule_changes: now.counters.schedule_changes,
        call_p999_ns: now.observed.calls.percentile_at_most(999_000).map(Span::as_ns),
        call_max_ns: now.observed.calls.range().map_or(0, |(_, longest)| longest.as_ns()),
        received: Received {
            normal: now.received.normal,
            by_priority: by_priority.collect(),
            foreign: now.received.foreign,
            not_deferred: now.received.not_deferred,
            lost: now.received.lost,
        },
        schedule: spec.schedule.clone(),
        windows: now.windows,
        change_at_ns: now.pending.map(|pending| pending.config_change_time),
        next_schedule: next.clone(),
        send: now.send,
        recv: now.recv,
        members: members
            .into_iter()
            .map(|member| MemberStatus {
                member: member.id.get(),
                pid: member.process.pid,
                threads: member.threads,
            })
            .collect(),
    })
}

/// Takes somebody's word about the clock.
fn on_time(
    spec: &StationSpec,
    mac: &mut Mac,
    said: &mut Option<Said>,
    word: OnTime,
) -> Result<Response, DatapathError> {
    if spec.clock != ClockRule::Watched {
        return Err(DatapathError::Invalid(format!(
            "the MAC `{}` does not take anybody's word about the clock: start it with `--clock \
             watched`",
            spec.instance
        )));
    }
    let hold = word.hold_ns.filter(|hold| *hold > Span::ZERO);
    if hold.is_some_and(|hold| hold > HOLD_MAX) {
        let message = format!("a clock is on time for {HOLD_MAX} at most, then say it again");
        return Err(DatapathError::Invalid(message));
    }
    let until = hold.map(|hold| clock::now::<Mono>() + hold);
    let response = changed(spec, mac.set_on_time(until));
    *said = Some(Said { word, at: clock::now() });
    response
}

/// Somebody's last word about the clock.
struct Said {
    word: OnTime,
    at: Instant<Mono>,
}

fn sync_status(spec: &StationSpec, now: &MacStatus, said: Option<&Said>) -> Option<SyncStatus> {
    (spec.clock != ClockRule::OneHost).then(|| SyncStatus {
        on_time: now.observed.on_time,
        losses: now.observed.sync_losses,
        keep_open: spec.keep_open,
        said: said.map(|said| said.word.clone()),
        said_ago_ns: said.map(|said| clock::now::<Mono>() - said.at),
    })
}

fn clock_state(rule: ClockRule, on_time: bool) -> String {
    let max_error = match rule {
        ClockRule::OneHost => return "that of one host, not checked".to_owned(),
        ClockRule::Watched if on_time => return "watched, and on time".to_owned(),
        ClockRule::Watched => {
            return "watched, and not known to be on time: nothing is sent (`timewire clock start` \
                    or `watch` with `--tdm` says when it is)"
                .to_owned();
        }
        ClockRule::Synchronised { max_error } => max_error,
    };
    match clock::discipline() {
        Ok(state) if state.synchronised && state.max_error <= max_error => {
            format!("synchronised within {}", state.max_error)
        }
        Ok(state) if state.synchronised => format!(
            "synchronised within {} only, not within {max_error}: nothing is sent",
            state.max_error
        ),
        Ok(_) => {
            "not synchronised by any daemon (such as ptp4l with phc2sys, or chronyd): nothing \
                  is sent; where all stations run on this one host, start with `--clock one-host`"
                .to_owned()
        }
        Err(error) => format!("cannot be asked ({error}): nothing is sent"),
    }
}

fn transmit_summary(station: &StationName, now: &MacStatus) -> MacSummary {
    let listed = now.send.rules().map(|rules| rules.queue_set()).unwrap_or_default();
    MacSummary {
        ingress_dropped: now.observed.ingress_dropped,
        ..mac_summary(station, &now.socket, listed, &now.counters)
    }
}

/// What a MAC with these queues has counted.
pub fn mac_summary(
    station: &StationName,
    socket: &str,
    listed: QueueSet,
    counters: &Counters,
) -> MacSummary {
    // A queue that is no longer in the list keeps its counters, and so its line.
    let shown = |index: &QueueIndex| {
        index.priority().is_none_or(|priority| listed.index_of(priority).is_some())
            || counters.queue(*index).arrived > 0
    };
    let queues = QueueIndex::all().filter(shown).map(|index| {
        let counters = counters.queue(index);
        QueueSummary {
            name: match index.priority() {
                Some(priority) => priority.get().to_string(),
                None => "default".to_owned(),
            },
            arrived: counters.arrived,
            released: counters.released,
            dropped_full: counters.dropped_full,
            dropped_oversize: counters.dropped_oversize,
        }
    });
    MacSummary {
        station: station.to_string(),
        socket: socket.to_owned(),
        released: counters.total().released,
        missed_slots: counters.missed_windows,
        ingress_dropped: 0,
        queues: queues.collect(),
    }
}

/// The CPU for deferred work: the last one, since the kernel and most programs favour the first.
fn last_cpu() -> u32 {
    let cpus = timewire_sys::scheduler::affinity(0).unwrap_or_default();
    cpus.last().copied().unwrap_or(0)
}
