// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A network of one segment as kernels and programs carry it out: what a network file says with all
//! that follows from it. The groups of keys that both share are defined here.

use std::collections::BTreeSet;

use timewire_base::{BitsPerSecond, Port, Priority, SocketPriority, Span, StationName};

use super::cyclic::{Cyclic, Sporadic};
use super::from_streams::ceil;
use super::host::DesiredHost;
use super::pipeline::Pipeline;
use super::programs::StationProgram;
use super::record::{choice, record};
use super::several::Several;
use super::value::{AtMost, ByteCount, Count, Ipv4Prefix, Name, Text};
use crate::tdm::TdmSchedule;

/// One scenario: a network, its schedule, its traffic, the experiment and its limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// Short name, used in directory names and results.
    pub name: Name,
    /// What the experiment shows, for people.
    pub description: Text,
    /// How long each case is measured under each load.
    pub duration: Span,
    /// Time at the start of each measurement that is not counted.
    pub warm_up: Span,
    /// Gaps of sporadic streams follow from it.
    pub seed: Count<0, 0xffff_ffff>,
    /// The segment that all stations share: one.
    pub segments: Vec<Segment>,
    /// The hosts on the segment, at least two, all in one subnet.
    pub stations: Vec<Station>,
    /// Who may send when, in the cases that use TDM. Of a file without a schedule, one that
    /// nobody carries out.
    pub schedule: TdmSchedule,
    /// Whether the file has a schedule.
    pub has_schedule: bool,
    /// How each station carries the schedule out.
    pub mac: MacOptions,
    /// Transmit queues, and ports of other programs that go before others, in the cases that
    /// use priorities. Streams with a `priority` need no entry here.
    pub queues: Queues,
    /// The streams that are measured and the load beside them.
    pub streams: Vec<Stream>,
    /// The user's own programs, in place of Timewire's for their streams.
    pub programs: Vec<StationProgram>,
    /// How the measurement is done.
    pub experiment: Experiment,
    /// Figure that others published for the same experiment, printed beside the own result.
    pub published: Option<Published>,
    /// What must hold for the verdict to be good.
    pub limits: Vec<LimitRule>,
}

/// One medium that all stations share: every frame reaches every station, and one frame at a
/// time is on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its name.
    pub name: Name,
    /// Rate of the link.
    pub rate: BitsPerSecond,
    /// How long a frame takes from one end of the link to the other. More than 0us needs a
    /// kernel with the queueing discipline netem, as the laboratory's own has it.
    pub delay: Span,
}

/// A host on the segment; or its name alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Station {
    /// Name of the host; slots and streams call it by this name.
    pub name: StationName,
    /// IPv4 address on the segment and length of the subnet's prefix. Without addresses,
    /// stations have 10.77.0.1/24, 10.77.0.2/24, and so on, in their order.
    pub address: Option<Ipv4Prefix>,
    /// What is to be set on its host, by a run on hosts and by the verbs of a host such as
    /// `apply`.
    pub host: Option<DesiredHost>,
}

record! {
    /// How each station carries the schedule out.
    pub struct MacOptions {
        /// How frames get to the interface.
        socket: SocketType = "auto",
        /// Whether the schedule is in force always or only while it is needed.
        mode: MacMode = "tdm",
        /// In the hybrid mode: after so long without a real-time frame, anyone may send at any
        /// time.
        hybrid_idle_after: Span = "10ms",
        /// Part of each slot that is kept for frames without a priority.
        best_effort_share: Span = "0us",
        /// How many frames each transmit queue keeps; a frame that finds it full is dropped and
        /// counted.
        queue_frames: Count<1, 65_536> = "64",
        /// How long before its slot the transmit thread wakes up and then waits without sleeping.
        spin: Span = "60us",
        /// Time allowed from the decision to send a frame until it is on the link; a frame that
        /// would not be off the link by the end of the slot even then waits for the next slot.
        margin: Span = "5us",
        /// How long before the start of its slot a frame may be handed to the socket; at most the
        /// guard.
        ahead: Span = "0us",
        /// How long before its launch time the queueing discipline etf hands a frame over, in cases
        /// that use it. A timer of the host that is later than that loses frames.
        launch_delta: Span = "100us",
        /// What happens to the slots when the clock is not on time any more. Before it has been on
        /// time they are closed in either case.
        on_sync_loss: OnSyncLoss = "close",
    }
}

choice! {
    /// What happens to the slots when the clock is not on time any more.
    pub enum OnSyncLoss {
        /// They close, and open again when it is: nothing is sent in another station's slot.
        Close = "close",
        /// They stay open, and the loss is counted and shown.
        Keep = "keep",
    }
}

choice! {
    /// How frames get to the interface.
    pub enum SocketType {
        /// The first of the others that works, in their order; which one is printed.
        Auto = "auto",
        /// AF_XDP in the driver.
        AfXdpNative = "af_xdp_native",
        /// AF_XDP in the generic layer of the kernel.
        AfXdpGeneric = "af_xdp_generic",
        /// Packet sockets.
        AfPacket = "af_packet",
    }
}

choice! {
    /// Whether the schedule is in force always or only while it is needed.
    pub enum MacMode {
        /// Always.
        Tdm = "tdm",
        /// Only while real-time traffic exists.
        Hybrid = "hybrid",
    }
}

record! {
    /// Which ports go before others.
    pub struct Queues {
        /// How many transmit queues there are beside the default queue; without it, one for each
        /// priority in `send`.
        count: Option<Count<1, 32>>,
        /// Priority of frames to or from a port, on transmit.
        send: Vec<PortPriority> = "[]",
        /// Priority of frames to or from a port, on receive: they go up at once, others are
        /// deferred.
        recv: Vec<PortPriority> = "[]",
    }
}

record! {
    /// The priority of one port.
    pub struct PortPriority {
        /// UDP or TCP port.
        port: Port,
        /// Priority; a lower number is served first. Several ports may share one.
        priority: Priority,
    }
}

/// A stream of messages over UDP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Measured: a client sends a request, the server answers it, the client sends the next
    /// one.
    RequestResponse(RequestResponse),
    /// Measured: one station sends to another in each period.
    Cyclic(Cyclic),
    /// Measured: one station sends to another at any time, with a gap before the next.
    Sporadic(Sporadic),
    /// Measured: a computation in steps on several stations, one after the other; each hands
    /// what it has on to the next.
    Pipeline(Pipeline),
    /// Load that is not measured: one station sends to another at a steady rate.
    Flood(Flood),
}

/// A measured stream: a client sends a request, the server answers it, the client sends the
/// next one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestResponse {
    /// Name of the stream.
    pub name: Name,
    /// The station that sends requests.
    pub talker: StationName,
    /// The station that answers them.
    pub listeners: StationName,
    /// Length of requests and responses (UDP payload).
    pub size: ByteCount,
    /// Its transmit and receive queue in the cases that use priorities, 1 first. A stream with
    /// a priority is a real-time stream: its programs run with a real-time policy. Without,
    /// it is best effort.
    pub priority: Option<Priority>,
    /// UDP port of the listener; no other stream may use it. Without, the next free one from
    /// 15001 on.
    pub port: Option<Port>,
    /// A message that arrives later than this after it was sent is counted as late.
    pub deadline: Span,
    /// A request not answered by then is counted as lost, and the client sends the next one.
    pub timeout: Span,
    /// In which loads of the experiment the stream runs; without it, in all.
    pub loads: Option<Vec<Name>>,
}

/// Load that is not measured: one station sends to another at a steady rate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flood {
    /// Name of the stream.
    pub name: Name,
    /// The station that sends.
    pub talker: StationName,
    /// The station that receives.
    pub listeners: StationName,
    /// Length of a message (UDP payload).
    pub size: ByteCount,
    /// UDP port of the listener; no other stream may use it. Without, the next free one from
    /// 15001 on.
    pub port: Option<Port>,
    /// How much is sent, counted as the link is kept busy by it. More than a slot can carry
    /// keeps the queue full.
    pub rate: BitsPerSecond,
    /// How many messages are sent at once; the mean rate stays. A burst that is longer than a
    /// slot waits in the station's queue for the next ones.
    pub burst: Count<1, 1024>,
    /// In which loads of the experiment the stream runs; without it, in all.
    pub loads: Option<Vec<Name>>,
}

/// What the results have an entry for: a cyclic stream, one with requests and responses, a whole
/// pipeline, or one of its connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measured<'a> {
    /// Its name in results.
    pub name: Name,
    /// Whether it goes before others.
    pub class: StreamClass,
    /// What arrives later than this is late.
    pub deadline: Span,
    /// Length of its messages.
    pub size: ByteCount,
    /// From one message to the next, where that is fixed.
    pub period: Option<Span>,
    /// How its messages go.
    pub way: MessageFlow,
    /// The stations that send them.
    pub senders: Vec<&'a StationName>,
}

impl Measured<'_> {
    /// How many of its messages each sender sends in a cycle, at most: as many as come by its
    /// period, one where that is not fixed.
    pub fn frames_in(&self, cycle: Span) -> u64 {
        self.period.map_or(1, |period| ceil(cycle, period))
    }
}

/// How the messages of something measured go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageFlow {
    /// To a port, and answers from it.
    Asked {
        /// The port.
        port: Port,
    },
    /// To a port, and no answers.
    OneWay {
        /// The port.
        port: Port,
    },
    /// Over other measured ways, one after the other: it has no message of its own.
    Whole,
}

impl MessageFlow {
    /// The port that its messages go to.
    pub fn port(self) -> Option<Port> {
        match self {
            MessageFlow::Asked { port } | MessageFlow::OneWay { port } => Some(port),
            MessageFlow::Whole => None,
        }
    }
}

/// Whether a stream goes before others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamClass {
    /// Its program is started and served as a real-time one.
    RealTime,
    /// Like any other program.
    BestEffort,
}

impl StreamClass {
    /// The class of a stream with this priority, or without one.
    pub(super) fn of(priority: Option<Priority>) -> StreamClass {
        match priority {
            Some(_) => StreamClass::RealTime,
            None => StreamClass::BestEffort,
        }
    }
}

/// How the measurement is done: each case under each load, one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Experiment {
    /// How long each case is measured under each load with `--quick`; without it, 1s, or
    /// `duration` where that is shorter.
    pub quick_duration: Option<Span>,
    /// Names of the loads; a stream names those in which it runs.
    pub loads: Vec<Name>,
    /// What is compared.
    pub cases: Vec<Case>,
}

/// One of the configurations that are compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// Name of the case.
    pub name: Name,
    /// Title of the case in tables.
    pub title: Text,
    /// Whether the schedule is in force, and what carries it out.
    pub backend: CaseBackend,
    /// Whether the priorities of streams and `queues` are in force.
    pub priorities: bool,
    /// When client and server of a real-time stream send.
    pub release: Release,
    /// With the aligned release: how long before the slot of its station a program sends. Long
    /// enough for the message to pass the stack, short enough to be fresh.
    pub lead: Option<Span>,
}

choice! {
    /// Whether the schedule is in force in a case, and what carries it out.
    pub enum CaseBackend {
        /// Plain Ethernet.
        None = "none",
        /// The schedule, carried out by Timewire's own MAC, as `mac` says; or by the backend that
        /// `timewire run --backend` names.
        Mac = "mac",
        /// The schedule, carried out by the queueing discipline taprio of the kernel.
        Taprio = "taprio",
        /// The schedule, carried out by taprio in its txtime-assist mode over the queueing
        /// discipline etf.
        TaprioAssist = "taprio-assist",
        /// Real-time frames in the slots by a launch time each, which the queueing discipline etf
        /// keeps; best effort at any time.
        Etf = "etf",
        /// No slots: the real-time class of each station is shaped to its rate by the queueing
        /// discipline cbs.
        Cbs = "cbs",
    }
}

choice! {
    /// When the programs of a real-time stream send.
    pub enum Release {
        /// As soon as they can.
        Free = "free",
        /// Just before the next slot of their station.
        Aligned = "aligned",
        /// As `aligned`; but a pipeline begins each computation so that its first message is just
        /// before the slot of the source, and hands it on as soon as it can: for slots in the order
        /// of the pipeline.
        Planned = "planned",
    }
}

record! {
    /// A figure that others published.
    pub struct Published {
        /// Who, and where it can be read.
        source: Text,
        /// Mean latency, from program to program.
        latency_mean: Span,
        /// Mean time on the transmit side, from the program to the driver; printed where the run is
        /// traced.
        transmit_mean: Option<Span>,
        /// Mean time on the receive side, from the driver to the program; as before.
        receive_mean: Option<Span>,
    }
}

/// Limits of the verdict: one, or one for each of several streams, cases and loads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitRule {
    /// Stable short name. Where there are several limits, each has its stream, case and load
    /// behind it, as far as there are several: `slots-kept-tdm-flood`.
    pub id: Name,
    /// What is judged.
    pub metric: Metric,
    /// The measured stream, or several; all metrics but those of the segment, `outside-...`,
    /// need it.
    pub stream: Option<Several<Name>>,
    /// The case, or several; without it, all that have the metric.
    pub case: Option<Several<Name>>,
    /// The load, or several; without it, all in which the stream runs.
    pub load: Option<Several<Name>>,
    /// The largest good value: a time such as 1040us for times, a share such as 0.1% for
    /// shares, and a bare number such as 0.5 with `relative_to`.
    pub at_most: AtMost,
    /// Judge the value divided by the same metric of another case or load.
    pub relative_to: Option<ReferenceRule>,
}

record! {
    /// What a value is divided by.
    pub struct ReferenceRule {
        /// The case; without it, the same.
        case: Option<Name>,
        /// The load; without it, the same.
        load: Option<Name>,
    }
}

/// One limit of the verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Stable short name.
    pub id: String,
    /// What is judged.
    pub metric: Metric,
    /// The measured stream; `None` for metrics of the segment.
    pub stream: Option<Name>,
    /// The case.
    pub case: Name,
    /// The load.
    pub load: Name,
    /// The largest good value.
    pub at_most: AtMost,
    /// What the value is divided by.
    pub relative_to: Option<Reference>,
}

/// What a value is divided by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// The case.
    pub case: Name,
    /// The load.
    pub load: Name,
}

choice! {
    /// What a limit judges.
    pub enum Metric {
        /// Shortest latency.
        LatencyMin = "latency-min",
        /// Median of the latencies.
        LatencyP50 = "latency-p50",
        /// 90th percentile of the latencies.
        LatencyP90 = "latency-p90",
        /// 99th percentile of the latencies.
        LatencyP99 = "latency-p99",
        /// 99.9th percentile of the latencies.
        LatencyP999 = "latency-p999",
        /// Longest latency.
        LatencyMax = "latency-max",
        /// Mean of the latencies.
        LatencyMean = "latency-mean",
        /// Longest latency less the shortest.
        Jitter = "jitter",
        /// Median of the times from sending to the segment.
        SlotWaitP50 = "slot-wait-p50",
        /// 90th percentile of the times from sending to the segment.
        SlotWaitP90 = "slot-wait-p90",
        /// 99th percentile of the times from sending to the segment.
        SlotWaitP99 = "slot-wait-p99",
        /// 99.9th percentile of the times from sending to the segment.
        SlotWaitP999 = "slot-wait-p999",
        /// Longest time from sending to the segment.
        SlotWaitMax = "slot-wait-max",
        /// Mean of the times from sending to the segment.
        SlotWaitMean = "slot-wait-mean",
        /// Median of the times from the stack to the program.
        ReceiveP50 = "receive-p50",
        /// 90th percentile of the times from the stack to the program.
        ReceiveP90 = "receive-p90",
        /// 99th percentile of the times from the stack to the program.
        ReceiveP99 = "receive-p99",
        /// 99.9th percentile of the times from the stack to the program.
        ReceiveP999 = "receive-p999",
        /// Longest time from the stack to the program.
        ReceiveMax = "receive-max",
        /// Mean of the times from the stack to the program.
        ReceiveMean = "receive-mean",
        /// Share of the messages sent that never arrived.
        Lost = "lost",
        /// Share of the messages sent that arrived after the deadline.
        Late = "late",
        /// Share of all frames on the segment that were outside the slot and guard of their
        /// station.
        OutsideSlots = "outside-slots",
        /// The same, of the frames of real-time streams.
        OutsideSlotsRealTime = "outside-slots-real-time",
        /// Share of the real-time frames on the segment that came before the reserved rate and
        /// burst of their station let them, in a case with `by: cbs`.
        OutsideRate = "outside-rate",
        /// Share of the messages sent that the kernel dropped because of their launch time, in a
        /// case with `by: etf`.
        LaunchRefused = "launch-refused",
        /// Longest time from the instant for which a frame was launched to the segment, in a case
        /// with `by: etf`.
        LaunchErrorMax = "launch-error-max",
        /// Transmissions outside the windows of their class, one at each hop, as a share of the
        /// messages: of networks with gates, not of slots.
        OutsideWindows = "outside-windows",
    }
}

impl Scenario {
    /// The segment that all stations share.
    ///
    /// **Panics**: never, of a file that was read.
    pub fn segment(&self) -> &Segment {
        self.segments.first().expect("invariant: a checked file has one segment")
    }

    /// The stations that have a slot, in the order of the file.
    pub fn stations_with_slots(&self) -> impl Iterator<Item = &Station> {
        let has_slot =
            |station: &&Station| self.schedule.slots().iter().any(|s| s.station == station.name);
        self.stations.iter().filter(has_slot)
    }

    /// The station of this name, or `None`.
    pub fn station(&self, name: &StationName) -> Option<&Station> {
        self.stations.iter().find(|station| station.name == *name)
    }

    /// What is measured, in the order of the file.
    pub fn measured(&self) -> impl Iterator<Item = Measured<'_>> {
        self.streams.iter().flat_map(Stream::measured)
    }

    /// What is measured under a load.
    pub fn measured_in(&self, load: &Name) -> impl Iterator<Item = Measured<'_>> {
        self.streams.iter().filter(|stream| stream.runs_in(load)).flat_map(Stream::measured)
    }

    /// The floods, in the order of the file.
    pub fn floods(&self) -> impl Iterator<Item = &Flood> {
        self.streams.iter().filter_map(|stream| match stream {
            Stream::Flood(stream) => Some(stream),
            Stream::RequestResponse(_)
            | Stream::Cyclic(_)
            | Stream::Sporadic(_)
            | Stream::Pipeline(_) => None,
        })
    }
}

impl Scenario {
    /// How long each case is measured under each load.
    pub fn measured_for(&self, quick: bool) -> Span {
        let quick = self.experiment.quick_duration.filter(|_| quick);
        quick.unwrap_or(self.duration)
    }

    /// The socket priority of real-time streams where a kernel's queueing discipline tells classes
    /// apart by it; all others have 0.
    ///
    /// **Panics**: never; the number is in range.
    pub fn real_time_priority() -> SocketPriority {
        SocketPriority::new(6).expect("invariant: at most 15")
    }
}

impl Queues {
    /// How many transmit queues there are beside the default queue: `count`, or else the number of
    /// different priorities in `send`.
    pub fn transmit_queues(&self) -> u64 {
        self.count.map_or_else(|| self.different_priorities(), Count::get)
    }

    pub(super) fn different_priorities(&self) -> u64 {
        let priorities: BTreeSet<Priority> = self.send.iter().map(|entry| entry.priority).collect();
        u64::try_from(priorities.len()).expect("invariant: at most 32 priorities")
    }
}

impl Stream {
    /// The shortest message that is measured: it carries its number.
    ///
    /// **Units**: bytes of UDP payload.
    pub const SMALLEST_MEASURED: u32 = 8;

    fn measured(&self) -> Vec<Measured<'_>> {
        match self {
            Stream::RequestResponse(stream) => vec![Measured {
                name: stream.name.clone(),
                class: StreamClass::of(stream.priority),
                deadline: stream.deadline,
                size: stream.size,
                period: None,
                way: MessageFlow::Asked { port: filled(stream.port) },
                senders: vec![&stream.talker, &stream.listeners],
            }],
            Stream::Cyclic(stream) => vec![stream.measured()],
            Stream::Sporadic(stream) => vec![stream.measured()],
            Stream::Pipeline(stream) => stream.measured(),
            Stream::Flood(_) => Vec::new(),
        }
    }

    /// Name of the stream.
    pub fn name(&self) -> &Name {
        match self {
            Stream::RequestResponse(stream) => &stream.name,
            Stream::Cyclic(stream) => &stream.name,
            Stream::Sporadic(stream) => &stream.name,
            Stream::Pipeline(stream) => &stream.name,
            Stream::Flood(stream) => &stream.name,
        }
    }

    /// UDP port of the side that receives first: of a pipeline, the first of its ports.
    pub fn port(&self) -> Port {
        match self {
            Stream::RequestResponse(stream) => filled(stream.port),
            Stream::Cyclic(stream) => stream.port(),
            Stream::Sporadic(stream) => filled(stream.port),
            Stream::Pipeline(stream) => filled(stream.port),
            Stream::Flood(stream) => stream.port(),
        }
    }

    /// Every UDP port that it receives at.
    pub fn ports(&self) -> Vec<Port> {
        match self {
            Stream::RequestResponse(stream) => stream.port.into_iter().collect(),
            Stream::Cyclic(stream) => stream.port.into_iter().collect(),
            Stream::Sporadic(stream) => stream.port.into_iter().collect(),
            Stream::Pipeline(stream) => stream.ports(),
            Stream::Flood(stream) => stream.port.into_iter().collect(),
        }
    }

    /// Its priority; floods have none.
    pub fn priority(&self) -> Option<Priority> {
        match self {
            Stream::RequestResponse(stream) => stream.priority,
            Stream::Cyclic(stream) => stream.priority,
            Stream::Sporadic(stream) => stream.priority,
            Stream::Pipeline(stream) => stream.priority,
            Stream::Flood(_) => None,
        }
    }

    /// Length of its messages.
    pub fn size(&self) -> ByteCount {
        match self {
            Stream::RequestResponse(stream) => stream.size,
            Stream::Cyclic(stream) => stream.size,
            Stream::Sporadic(stream) => stream.size,
            Stream::Pipeline(stream) => stream.size,
            Stream::Flood(stream) => stream.size,
        }
    }

    /// The stations that send, each with the key that names it.
    pub(super) fn senders(&self) -> Vec<(String, &StationName)> {
        match self {
            Stream::RequestResponse(s) => {
                vec![("talker".to_owned(), &s.talker), ("listeners".to_owned(), &s.listeners)]
            }
            Stream::Pipeline(s) => {
                let all = s.stations.iter().enumerate();
                let senders = all.take(s.stations.len().saturating_sub(1));
                let key = |i: usize| match i.checked_sub(1) {
                    None => "talker".to_owned(),
                    Some(i) => format!("listeners[{i}]"),
                };
                senders.map(|(i, station)| (key(i), station)).collect()
            }
            Stream::Cyclic(s) => vec![("talker".to_owned(), &s.talker)],
            Stream::Sporadic(s) => vec![("talker".to_owned(), &s.talker)],
            Stream::Flood(s) => vec![("talker".to_owned(), &s.talker)],
        }
    }

    /// The loads it names; `None` means all.
    pub fn loads(&self) -> Option<&[Name]> {
        match self {
            Stream::RequestResponse(stream) => stream.loads.as_deref(),
            Stream::Cyclic(stream) => stream.loads.as_deref(),
            Stream::Sporadic(stream) => stream.loads.as_deref(),
            Stream::Pipeline(stream) => stream.loads.as_deref(),
            Stream::Flood(stream) => stream.loads.as_deref(),
        }
    }

    /// Whether it runs in this load.
    pub fn runs_in(&self, load: &Name) -> bool {
        self.loads().is_none_or(|loads| loads.contains(load))
    }
}

impl Flood {
    /// UDP port of the listener.
    ///
    /// **Panics**: never, of a file that was read.
    pub fn port(&self) -> Port {
        filled(self.port)
    }
}

impl RequestResponse {
    /// UDP port of the listener.
    ///
    /// **Panics**: never, of a file that was read.
    pub fn port(&self) -> Port {
        filled(self.port)
    }

    /// Whether it goes before others.
    pub fn class(&self) -> StreamClass {
        StreamClass::of(self.priority)
    }
}

impl Station {
    /// Its IPv4 address on the segment.
    ///
    /// **Panics**: never, of a file that was read.
    pub fn address(&self) -> Ipv4Prefix {
        self.address.expect("invariant: addresses that are not written are derived")
    }
}

pub(super) fn filled(port: Option<Port>) -> Port {
    port.expect("invariant: ports that are not written are derived")
}

impl Segment {
    /// The longest delay that a link may have.
    pub const MAX_DELAY: Span = Span::from_secs(1);
}

impl Case {
    /// How long before a slot the client and the server of a real-time stream wake up to send;
    /// `None` when they send as soon as they can.
    pub fn aligned_lead(&self) -> Option<Span> {
        match self.release {
            Release::Aligned | Release::Planned => self.lead,
            Release::Free => None,
        }
    }
}

impl Metric {
    /// Whether it is a time.
    pub fn is_time(self) -> bool {
        let is_share = matches!(
            self,
            Metric::Lost | Metric::Late | Metric::LaunchRefused | Metric::OutsideWindows
        );
        !(self.is_of_segment() || is_share)
    }

    /// Whether networks with links are judged by it.
    pub fn is_of_networks(self) -> bool {
        matches!(
            self,
            Metric::LatencyMax
                | Metric::LatencyP99
                | Metric::LatencyMean
                | Metric::Jitter
                | Metric::Lost
                | Metric::OutsideWindows
        )
    }

    /// Whether it is of frames on the segment, and not of one stream.
    pub fn is_of_segment(self) -> bool {
        matches!(self, Metric::OutsideSlots | Metric::OutsideSlotsRealTime | Metric::OutsideRate)
    }
}
