// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a scenario says, key by key. These definitions are the file format: the reader, the writer
//! and the JSON Schema all come from them (`record.rs`), the documentation of a field is its
//! description in the schema, and `= "..."` is its default.
//!
//! Not here: what must hold between keys (`check.rs`), the text of quantities (`item.rs`).

use std::collections::BTreeSet;

use timewire_base::{BitsPerSecond, FrameLen, Port, Priority, SocketPriority, Span, StationName};

use super::pipeline::Pipeline;
use super::record::{choice, kinds, record};
use super::value::{AtMost, ByteCount, Count, FormatVersion, Ipv4Prefix, Name, Text};
use crate::qdisc::TdmPort;
use crate::tdm::TdmSchedule;

/// The longest frame of the segment, as Linux counts: 1500 bytes and the Ethernet header.
const LARGEST_FRAME: u32 = 1_514;

record! {
    /// One scenario: a network, its schedule, its traffic, the experiment and its limits.
    pub struct Scenario {
        /// Version of this file format.
        timewire: FormatVersion,
        /// Short name, used in directory names and results.
        name: Name,
        /// What the scenario shows, for people.
        description: Text = "''",
        /// The link that all stations share.
        segment: Segment,
        /// The hosts on the segment, at least two, all in one subnet.
        stations: Vec<Station>,
        /// Who may send when, in the cases that use TDM.
        schedule: TdmSchedule,
        /// How each station carries the schedule out.
        mac: MacOptions = "{}",
        /// Which ports go before others, in the cases that use priorities.
        queues: Queues = "{}",
        /// The streams that are measured and the load beside them.
        traffic: Vec<Stream>,
        /// How the measurement is done.
        experiment: Experiment,
        /// Figure that others published for the same experiment, printed beside the own result.
        published: Option<Published>,
        /// What must hold for the verdict to be good.
        limits: Vec<Limit> = "[]",
    }
}

record! {
    /// The link that all stations share.
    pub struct Segment {
        /// What kind of link it is.
        kind: SegmentKind,
        /// Rate of the link.
        rate: BitsPerSecond,
        /// How long a frame takes from one end of the link to the other. More than 0us needs a
        /// kernel with the queueing discipline netem, as the laboratory's own has it.
        delay: Span = "0us",
    }
}

choice! {
    /// What kind of link the stations share.
    pub enum SegmentKind {
        /// One medium: every frame reaches every station, and one frame at a time is on it.
        Hub = "hub",
    }
}

record! {
    /// A host on the segment.
    pub struct Station {
        /// Name of the host; in a slot and in the traffic it is called by it.
        name: StationName,
        /// IPv4 address on the segment and length of the subnet's prefix.
        address: Ipv4Prefix,
    }
}

record! {
    /// How each station carries the schedule out.
    pub struct MacOptions {
        /// How frames get to the interface.
        carrier: Carrier = "auto",
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
        /// How long before the start of its slot a frame may be handed to the carrier; at most the
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
    pub enum Carrier {
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

kinds! {
    /// A stream of messages over UDP.
    pub enum Stream by "kind" {
        /// Measured: a client sends a request, the server answers it, the client sends the next
        /// one.
        RequestResponse(RequestResponse) = "request_response",
        /// Measured: a computation in steps on several stations, one after the other; each hands
        /// what it has on to the next.
        Pipeline(Pipeline) = "pipeline",
        /// Load that is not measured: one station sends to another at a steady rate.
        Flood(Flood) = "flood",
    }
}

record! {
    /// A measured stream: a client sends a request, the server answers it, the client sends the
    /// next one.
    pub struct RequestResponse {
        /// Name of the stream.
        name: Name,
        /// The station that sends requests.
        client: StationName,
        /// The station that answers them.
        server: StationName,
        /// UDP port of the server; no other stream may use it.
        port: Port,
        /// Length of requests and responses (UDP payload).
        message: ByteCount,
        /// Whether the stream goes before others.
        class: StreamClass,
        /// A message that arrives later than this after it was sent is counted as late.
        deadline: Span,
        /// A request not answered by then is counted as lost, and the client sends the next one.
        timeout: Span,
        /// In which loads of the experiment the stream runs; without it, in all.
        loads: Option<Vec<Name>>,
    }
}

record! {
    /// Load that is not measured: one station sends to another at a steady rate.
    pub struct Flood {
        /// Name of the stream.
        name: Name,
        /// The station that sends.
        from: StationName,
        /// The station that receives.
        to: StationName,
        /// UDP port of the receiver; no other stream may use it.
        port: Port,
        /// Length of a message (UDP payload).
        message: ByteCount,
        /// How much is sent, counted as the link is kept busy by it. More than a slot can carry
        /// keeps the queue full.
        rate: BitsPerSecond,
        /// How many messages are sent at once; the mean rate stays. A burst that is longer than a
        /// slot waits in the station's queue for the next ones.
        burst: Count<1, 1024> = "1",
        /// In which loads of the experiment the stream runs; without it, in all.
        loads: Option<Vec<Name>>,
    }
}

/// What the results have an entry for: a stream with requests and responses, a whole pipeline, or
/// one of its connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measured<'a> {
    /// Its name in results.
    pub name: Name,
    /// Whether it goes before others.
    pub class: StreamClass,
    /// What arrives later than this is late.
    pub deadline: Span,
    /// Length of its messages.
    pub message: ByteCount,
    /// How its messages go.
    pub way: Way,
    /// The stations that send them.
    pub senders: Vec<&'a StationName>,
}

/// How the messages of something measured go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
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

impl Way {
    /// The port that its messages go to.
    pub fn port(self) -> Option<Port> {
        match self {
            Way::Asked { port } | Way::OneWay { port } => Some(port),
            Way::Whole => None,
        }
    }
}

choice! {
    /// Whether a stream goes before others.
    pub enum StreamClass {
        /// Its program is started and served as a real-time one.
        RealTime = "real_time",
        /// Like any other program.
        BestEffort = "best_effort",
    }
}

record! {
    /// How the measurement is done: each case under each load, one after the other.
    pub struct Experiment {
        /// Time at the start of each measurement that is not counted.
        warm_up: Span = "300ms",
        /// How long each case is measured under each load.
        duration: Span,
        /// The same for a quick run.
        quick_duration: Span = "1s",
        /// Names of the loads; a stream names those in which it runs.
        loads: Vec<Name>,
        /// What is compared.
        cases: Vec<Case>,
    }
}

record! {
    /// One of the configurations that are compared.
    pub struct Case {
        /// Name of the case.
        name: Name,
        /// Title of the case in tables.
        title: Text,
        /// Whether the schedule is in force.
        mac: CaseMac,
        /// Whether the priorities of `queues` are in force.
        priorities: bool = "false",
        /// When client and server of a real-time stream send.
        release: Release = "free",
        /// With the aligned release: how long before the slot of its station a program sends. Long
        /// enough for the message to pass the stack, short enough to be fresh.
        lead: Option<Span>,
    }
}

choice! {
    /// Whether the schedule is in force in a case, and who carries it out. All but `none` and `tdm`
    /// need a kernel that has the queueing disciplines, as the laboratory's own does.
    pub enum CaseMac {
        /// Plain Ethernet.
        None = "none",
        /// The schedule, carried out by Timewire's own MAC, as `mac` says; or by the carrier that
        /// `timewire run --carrier` names.
        Tdm = "tdm",
        /// The schedule, carried out by the queueing discipline taprio of the kernel.
        Taprio = "taprio",
        /// The schedule, carried out by taprio in its txtime-assist mode over the queueing
        /// discipline etf.
        TaprioAssist = "taprio_assist",
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
        /// Mean end-to-end transfer time.
        transfer_mean: Span,
        /// Mean time on the transmit side, from the program to the driver; printed where the run is
        /// traced.
        transmit_mean: Option<Span>,
        /// Mean time on the receive side, from the driver to the program; as before.
        receive_mean: Option<Span>,
    }
}

record! {
    /// One promise of the verdict.
    pub struct Limit {
        /// Stable short name.
        id: Name,
        /// What is judged.
        metric: Metric,
        /// The measured stream; all metrics but those of the segment, `outside_...`, need it.
        stream: Option<Name>,
        /// The case.
        case: Name,
        /// The load.
        load: Name,
        /// The largest good value: a time such as 1040us for times, a share such as 0.1% for
        /// shares, and a bare number such as 0.5 with `relative_to`.
        at_most: AtMost,
        /// Judge the value divided by the same metric of another case or load.
        relative_to: Option<Reference>,
    }
}

record! {
    /// What a value is divided by.
    pub struct Reference {
        /// The case.
        case: Name,
        /// The load.
        load: Name,
    }
}

choice! {
    /// What a limit judges.
    pub enum Metric {
        /// Shortest end-to-end transfer time.
        TransferMin = "transfer_min",
        /// Median of the end-to-end transfer times.
        TransferP50 = "transfer_p50",
        /// 90th percentile of the end-to-end transfer times.
        TransferP90 = "transfer_p90",
        /// 99th percentile of the end-to-end transfer times.
        TransferP99 = "transfer_p99",
        /// 99.9th percentile of the end-to-end transfer times.
        TransferP999 = "transfer_p999",
        /// Longest end-to-end transfer time.
        TransferMax = "transfer_max",
        /// Mean of the end-to-end transfer times.
        TransferMean = "transfer_mean",
        /// Median of the times from sending to the segment.
        SlotWaitP50 = "slot_wait_p50",
        /// 90th percentile of the times from sending to the segment.
        SlotWaitP90 = "slot_wait_p90",
        /// 99th percentile of the times from sending to the segment.
        SlotWaitP99 = "slot_wait_p99",
        /// 99.9th percentile of the times from sending to the segment.
        SlotWaitP999 = "slot_wait_p999",
        /// Longest time from sending to the segment.
        SlotWaitMax = "slot_wait_max",
        /// Mean of the times from sending to the segment.
        SlotWaitMean = "slot_wait_mean",
        /// Median of the times from the stack to the program.
        ReceiveP50 = "receive_p50",
        /// 90th percentile of the times from the stack to the program.
        ReceiveP90 = "receive_p90",
        /// 99th percentile of the times from the stack to the program.
        ReceiveP99 = "receive_p99",
        /// 99.9th percentile of the times from the stack to the program.
        ReceiveP999 = "receive_p999",
        /// Longest time from the stack to the program.
        ReceiveMax = "receive_max",
        /// Mean of the times from the stack to the program.
        ReceiveMean = "receive_mean",
        /// Share of the messages sent that never arrived.
        Lost = "lost",
        /// Share of the messages sent that arrived after the deadline.
        Late = "late",
        /// Share of all frames on the segment that were outside the slot and guard of their
        /// station.
        OutsideSlots = "outside_slots",
        /// The same, of the frames of real-time streams.
        OutsideSlotsRealTime = "outside_slots_real_time",
        /// Share of the real-time frames on the segment that came before the reserved rate and
        /// burst of their station let them, in a case with `mac: cbs`.
        OutsideRate = "outside_rate",
        /// Share of the messages sent that the kernel dropped because of their launch time, in a
        /// case with `mac: etf`.
        LaunchRefused = "launch_refused",
        /// Longest time from the instant for which a frame was launched to the segment, in a case
        /// with `mac: etf`.
        LaunchErrorMax = "launch_error_max",
    }
}

impl Scenario {
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
        self.traffic.iter().flat_map(Stream::measured)
    }

    /// What is measured under a load.
    pub fn measured_in(&self, load: &Name) -> impl Iterator<Item = Measured<'_>> {
        self.traffic.iter().filter(|stream| stream.runs_in(load)).flat_map(Stream::measured)
    }

    /// The floods, in the order of the file.
    pub fn floods(&self) -> impl Iterator<Item = &Flood> {
        self.traffic.iter().filter_map(|stream| match stream {
            Stream::Flood(stream) => Some(stream),
            Stream::RequestResponse(_) | Stream::Pipeline(_) => None,
        })
    }
}

impl Scenario {
    /// The socket priority of real-time streams where a kernel's queueing discipline tells classes
    /// apart by it; all others have 0.
    ///
    /// **Panics**: never; the number is in range.
    pub fn real_time_priority() -> SocketPriority {
        SocketPriority::new(6).expect("invariant: at most 15")
    }

    /// A station's interface in the laboratory: a virtual Ethernet pair, which states 10 Gbit/s
    /// whatever the segment's rate (linux v6.12 `drivers/net/veth.c:veth_get_link_ksettings`).
    pub fn virtual_port(&self) -> TdmPort {
        TdmPort {
            link: self.segment.rate,
            stated: BitsPerSecond::new(10_000_000_000).expect("invariant: in range"),
            largest: FrameLen::new(LARGEST_FRAME).expect("invariant: in range"),
            urgent: vec![Scenario::real_time_priority()],
        }
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
    fn measured(&self) -> Vec<Measured<'_>> {
        match self {
            Stream::RequestResponse(stream) => vec![Measured {
                name: stream.name.clone(),
                class: stream.class,
                deadline: stream.deadline,
                message: stream.message,
                way: Way::Asked { port: stream.port },
                senders: vec![&stream.client, &stream.server],
            }],
            Stream::Pipeline(stream) => stream.measured(),
            Stream::Flood(_) => Vec::new(),
        }
    }

    /// Name of the stream.
    pub fn name(&self) -> &Name {
        match self {
            Stream::RequestResponse(stream) => &stream.name,
            Stream::Pipeline(stream) => &stream.name,
            Stream::Flood(stream) => &stream.name,
        }
    }

    /// UDP port of the side that receives first: of a pipeline, the first of its ports.
    pub fn port(&self) -> Port {
        match self {
            Stream::RequestResponse(stream) => stream.port,
            Stream::Pipeline(stream) => stream.port,
            Stream::Flood(stream) => stream.port,
        }
    }

    /// Every UDP port that it receives at.
    pub fn ports(&self) -> Vec<Port> {
        match self {
            Stream::Pipeline(stream) => stream.ports(),
            other => vec![other.port()],
        }
    }

    /// Length of its messages.
    pub fn message(&self) -> ByteCount {
        match self {
            Stream::RequestResponse(stream) => stream.message,
            Stream::Pipeline(stream) => stream.message,
            Stream::Flood(stream) => stream.message,
        }
    }

    /// The stations that send, each with the key that names it.
    pub(super) fn senders(&self) -> Vec<(String, &StationName)> {
        match self {
            Stream::RequestResponse(s) => {
                vec![("client".to_owned(), &s.client), ("server".to_owned(), &s.server)]
            }
            Stream::Pipeline(s) => {
                let all = s.stations.iter().enumerate();
                let senders = all.take(s.stations.len().saturating_sub(1));
                senders.map(|(i, station)| (format!("stations[{i}]"), station)).collect()
            }
            Stream::Flood(s) => vec![("from".to_owned(), &s.from)],
        }
    }

    /// The loads it names; `None` means all.
    pub fn loads(&self) -> Option<&[Name]> {
        match self {
            Stream::RequestResponse(stream) => stream.loads.as_deref(),
            Stream::Pipeline(stream) => stream.loads.as_deref(),
            Stream::Flood(stream) => stream.loads.as_deref(),
        }
    }

    /// Whether it runs in this load.
    pub fn runs_in(&self, load: &Name) -> bool {
        self.loads().is_none_or(|loads| loads.contains(load))
    }
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
        !(self.is_of_segment()
            || matches!(self, Metric::Lost | Metric::Late | Metric::LaunchRefused))
    }

    /// Whether it is of frames on the segment, and not of one stream.
    pub fn is_of_segment(self) -> bool {
        matches!(self, Metric::OutsideSlots | Metric::OutsideSlotsRealTime | Metric::OutsideRate)
    }
}
