// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The network file: a network to plan, simulate and run, and the host settings of its stations.
//! The same text, units and errors as a scenario, other keys.

use serde_json::{Value as Json, json};
use timewire_base::wire::MacAddress;
use timewire_base::{BitsPerSecond, FrameLen, Port, Span, StationName};

pub use super::device::{DeviceModel, NetDevice, Profile};
use super::host::{DesiredHost, Group};
use super::item::{Item, Reader};
use super::model::{MacOptions, Metric, Published, Queues, ReferenceRule};
pub use super::network_cases::{NetExperiment, NetworkCase, NetworkCases, RelativeLimit};
pub use super::network_plan::NetReserve;
pub use super::network_traffic::{
    NetAfter, NetCyclic, NetFlood, NetPipeline, NetReplay, NetRequest, NetRequestResponse,
    NetSporadic, NetTraffic,
};
use super::phases::{CheckSpec, NodePhases};
use super::programs::StationProgram;
use super::record::{choice, kinds, record};
use super::several::Several;
use super::shared_schema::shared;
pub use super::slots::{NetSchedule, ScheduleBy};
use super::tree::{Node, Value};
use super::value::{
    AtMost, ByteCount, Capacity, Count, Drift, FormatVersion, Ipv4Prefix, LossShare, Name, Offset,
    Text,
};

record! {
    /// A network, its traffic, its faults and the limits of its verdict; or host settings alone.
    pub struct NetworkFile {
        /// Version of this file format.
        timewire: FormatVersion,
        /// What kind of file it is: `network`.
        kind: NetworkKind,
        /// Short name, shown in results.
        name: Name,
        /// What it is for, for people.
        description: Text = "''",
        /// How long it runs.
        duration: Span = "1s",
        /// Latencies of frames released before are not counted.
        warm_up: Span = "0s",
        /// How far beyond a window of its class a transmission may be, by the right time, before it
        /// counts as outside.
        tolerance: Span = "0ns",
        /// By how much the clocks of two neighbours differ at most, and how late ports act. Only
        /// plans ask for it. Unless written, what IEEE 802.1AS asks for over seven hops
        /// (802.1AS-2020, B.3).
        sync_error: Span = "1us",
        /// Time on every link in which nothing planned is sent.
        reserve: Option<NetReserve>,
        /// Everything that is random follows from it.
        seed: Count<0, 0xffff_ffff> = "1",
        /// Where streams start and end, and what is to be set on their hosts.
        stations: Vec<NetStation>,
        /// What forwards frames.
        bridges: Vec<NetBridge> = "[]",
        /// Links between two of them, full duplex.
        links: Vec<NetLink> = "[]",
        /// Segments that several stations share, half duplex.
        segments: Vec<NetSegment> = "[]",
        /// Slots of the stations: in each, one station may send frames of all classes.
        schedule: Option<NetSchedule>,
        /// How kernels on a segment carry the schedule out. Without it, as its keys have it, and
        /// queues of 1000 frames.
        mac: Option<MacOptions>,
        /// On a segment: transmit queues, and ports of other programs that go before others.
        /// Streams with a `class` need no entry here.
        queues: Queues = "{}",
        /// Ports that are not plain.
        ports: Vec<NetPort> = "[]",
        /// Streams of messages. Host settings need none, nor a planner to which others are given.
        streams: Vec<NetStream> = "[]",
        /// The user's own programs. Without streams, one a station, each on a kernel of its own.
        programs: Vec<StationProgram> = "[]",
        /// What goes wrong.
        faults: Vec<NetFault> = "[]",
        /// What is compared; without it, the network runs as it is.
        experiment: Option<NetExperiment>,
        /// On a segment: a figure that others published for the same experiment, printed beside the
        /// own result.
        published: Option<Published>,
        /// The verdict.
        limits: Vec<NetLimit> = "[]",
        /// Limits on numbers in records of stations, which their phases leave.
        checks: Vec<CheckSpec> = "[]",
    }
}

choice! {
    /// What kind of file it is.
    pub enum NetworkKind {
        /// A network.
        Network = "network",
    }
}

record! {
    /// A station, where streams start and end; or its name alone.
    pub struct NetStation by "name" {
        /// Its name.
        name: StationName,
        /// Addresses of its NICs, by which requests for streams name it.
        mac: Vec<MacAddress> = "[]",
        /// On a segment: its IPv4 address and the length of the subnet's prefix. Without addresses,
        /// stations have 10.77.0.1/24, 10.77.0.2/24, and so on, in their order.
        address: Option<Ipv4Prefix>,
        /// From the release of a message to the queue of its port.
        send: NetDelay = "0us",
        /// From the last bit of a frame to the application.
        receive: NetDelay = "0us",
        /// How its clock goes.
        clock: NetClock = "{}",
        /// What its ports can do.
        device: NetDevice = "{}",
        /// What is to be set on its host, by a run on hosts and by the verbs of a host such as
        /// `apply`.
        host: Option<DesiredHost>,
        /// What it does by itself in a run, phase by phase.
        phases: Option<NodePhases>,
    }
}

record! {
    /// A bridge; or its name alone.
    pub struct NetBridge by "name" {
        /// Its name.
        name: StationName,
        /// From the last bit of a frame, or what it cuts through after, to the queue of a port.
        forward: NetDelay = "0us",
        /// It forwards a frame once so much of it is there; without it, when all of it is.
        cut_through: Option<ByteCount>,
        /// How its clock goes.
        clock: NetClock = "{}",
        /// What its ports can do.
        device: NetDevice = "{}",
        /// What it does by itself in a run, phase by phase.
        phases: Option<NodePhases>,
    }
}

record! {
    /// How a clock goes.
    pub struct NetClock {
        /// How far it is ahead at the start; negative: behind.
        offset: Offset = "0ns",
        /// How much too fast it goes; negative: too slow.
        drift: Drift = "0ppm",
        /// How much its rate changes at most, either way, with each correction; without
        /// corrections, ten times a second.
        wander: Drift = "0ppm",
        /// How it is set right; without it, nobody does.
        sync: Option<NetSync>,
    }
}

record! {
    /// How a clock is set right.
    pub struct NetSync {
        /// `beacon` sets its time, `ptp` its rate too.
        by: NetSyncKind = "ptp",
        /// How often.
        interval: Span = "125ms",
        /// Standard deviation of the error that remains.
        error: Span = "100ns",
        /// How late a beacon is heard, which nobody corrects.
        bias: Span = "0ns",
    }
}

choice! {
    /// What sets a clock right.
    pub enum NetSyncKind {
        /// A message of the master at regular times.
        Beacon = "beacon",
        /// A servo, as of IEEE 1588.
        Ptp = "ptp",
    }
}

record! {
    /// A link between two stations or bridges, full duplex; or the two alone: `[alpha, west]`.
    pub struct NetLink by "between" {
        /// The two.
        between: Vec<StationName>,
        /// Its rate.
        rate: BitsPerSecond = "100Mbit",
        /// From one end to the other.
        delay: Span = "500ns",
        /// How often a frame is lost.
        loss: LossShare = "0%",
        /// How often a frame arrives damaged.
        corruption: LossShare = "0%",
    }
}

record! {
    /// A segment that several stations share.
    pub struct NetSegment {
        /// Its name.
        name: StationName = "segment",
        /// Who may send when.
        access: NetAccess = "contention",
        /// The stations on it, in the order of a token; without it, all of the file.
        stations: Vec<StationName> = "[]",
        /// Its rate.
        rate: BitsPerSecond = "100Mbit",
        /// From any station to any other.
        delay: Span = "500ns",
        /// How often a frame is lost.
        loss: LossShare = "0%",
        /// How often a frame arrives damaged.
        corruption: LossShare = "0%",
        /// With a token: a station that has it starts no frame later than this.
        hold: Span = "200us",
        /// With a token: what a station needs to pass it on, besides the token's own time.
        pass: Span = "5us",
    }
}

choice! {
    /// Who may send when on a shared segment.
    pub enum NetAccess {
        /// Whoever hears nothing; collisions and binary exponential back-off.
        Contention = "contention",
        /// Who waits longest, without collisions.
        InTurn = "in-turn",
        /// Who has the token.
        Token = "token",
    }
}

record! {
    /// What some ports are like.
    pub struct NetPort {
        /// Stations and bridges that have them.
        of: Vec<StationName>,
        /// The station, bridge or segment at the other end; without it, all their ports.
        to: Option<StationName>,
        /// When which classes may send.
        gates: Option<NetGates>,
        /// Classes with a credit-based shaper.
        cbs: Vec<NetCbs> = "[]",
        /// Classes whose frames can be interrupted by those of the others.
        preemptable: Vec<Count<0, 7>> = "[]",
        /// How long before a state with hold preemptable frames hold back; without it, as long as
        /// 143 bytes take.
        hold_advance: Option<Span>,
        /// Classes with asynchronous traffic shaping: frames leave in the order of their
        /// eligibility times.
        ats: Vec<Count<0, 7>> = "[]",
        /// Classes whose frames leave at their launch times; one that comes later is dropped.
        launch: Vec<Count<0, 7>> = "[]",
        /// Most frames that wait in each class, or `unbounded`; without it, 1000 at a station and
        /// 100 at a bridge.
        capacity: Option<Capacity>,
    }
}

record! {
    /// A gate control list, which repeats.
    pub struct NetGates {
        /// When it begins, by the clock of the station or bridge. Until then all gates are open.
        base_time: Span = "0s",
        /// Its length; without it, all its intervals together.
        cycle_time: Option<Span>,
        /// The gate states; the last lasts to the end of the cycle.
        entries: Vec<NetGateEntry>,
    }
}

record! {
    /// A state of the gates.
    pub struct NetGateEntry {
        /// The classes that may send.
        open: Vec<Count<0, 7>>,
        /// How long.
        interval: Span,
        /// Preemptable frames hold back.
        hold: bool = "false",
    }
}

record! {
    /// The credit-based shaper of a class.
    pub struct NetCbs {
        /// The class.
        class: Count<0, 7>,
        /// What it may use of the rate.
        idle_slope: BitsPerSecond,
        /// Who counts the credit.
        rules: NetCbsRules = "standard",
        /// As Linux counts: most credit.
        hi_credit: Option<ByteCount>,
        /// As Linux counts: least credit, without its sign.
        lo_credit: Option<ByteCount>,
    }
}

choice! {
    /// Who counts the credit of a class.
    pub enum NetCbsRules {
        /// IEEE 802.1Q.
        Standard = "standard",
        /// The software of Linux' `cbs`.
        Linux = "linux",
    }
}

record! {
    /// A stream of messages from one station to another, or to several. Limits of the verdict
    /// follow from `max_latency`, `max_jitter` and `max_loss`.
    pub struct NetStream {
        /// Its name.
        name: Name,
        /// The station that sends.
        talker: StationName,
        /// The station that receives, or a list of them; of a pipeline, the stations after the
        /// first, in the order of the computation.
        listeners: Several<StationName>,
        /// Its traffic class at every port; 7 is the most urgent.
        class: Count<0, 7> = "0",
        /// Its frames have a VLAN tag, which tells bridges the class and makes them 4 bytes longer.
        /// Without the key, those of classes 1 to 7 have one, except between stations of one
        /// segment. Not with a replay.
        tagged: Option<bool>,
        /// UDP payload of its frames: 42 bytes of headers come on top. Not with a replay, whose
        /// frames are as long as they were.
        size: Option<ByteCount>,
        /// It is to have a reservation in the schedule, which `timewire plan` finds.
        scheduled: bool = "false",
        /// The longest latency: of a scheduled stream, from its first bit at the talker's port
        /// until its last at the listener, and its period where this is left out; of others, from
        /// release to application.
        max_latency: Option<Span>,
        /// How much the latency may differ from message to message.
        max_jitter: Option<Span>,
        /// The largest share of messages that may be lost.
        max_loss: Option<AtMost>,
        /// On a segment: a message that takes longer is counted as late. Without it, `max_latency`;
        /// without that, its period, or the `timeout` of requests.
        deadline: Option<Span>,
        /// On a segment: UDP port of the listener, and of the following ones of a pipeline the next
        /// higher ones. Without it, the next free one from 15001 on.
        port: Option<Port>,
        /// Its frames have launch times so much after their release.
        launch: Option<Span>,
        /// Bridges shape it asynchronously.
        ats: Option<NetAts>,
        /// In which loads of the experiment the stream runs; without it, in all.
        loads: Option<Vec<Name>>,
        ..traffic: NetTraffic,
    }
}

record! {
    /// What a stream with asynchronous traffic shaping may send.
    pub struct NetAts {
        /// Its committed information rate.
        rate: BitsPerSecond,
        /// Its committed burst size, as bytes on the link.
        burst: ByteCount,
        /// A frame that would have to wait longer is dropped.
        max_residence: Span = "10ms",
    }
}

/// A time, or how it is distributed: `5us`, or a group with a `kind`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetDelay {
    /// Always this.
    Fixed(Span),
    /// It differs.
    Drawn(NetDrawn),
}

kinds! {
    /// How a time is distributed.
    pub enum NetDrawn by "kind" {
        /// Every time between two is as likely.
        Uniform(NetUniform) = "uniform",
        /// Around a mean.
        Normal(NetNormal) = "normal",
        /// Exponential, beyond a least time.
        Exponential(NetExponential) = "exponential",
        /// As measured: each of these is as likely.
        Empirical(NetEmpirical) = "empirical",
        /// As a run recorded it: each value of a file is as likely.
        Recorded(NetRecorded) = "recorded",
    }
}

record! {
    /// Every time between two is as likely.
    pub struct NetUniform {
        /// The least.
        min: Span,
        /// The most.
        max: Span,
    }
}

record! {
    /// Around a mean, at most six deviations away, and never negative.
    pub struct NetNormal {
        /// The mean.
        mean: Span,
        /// The standard deviation.
        deviation: Span,
    }
}

record! {
    /// Exponential beyond a least time.
    pub struct NetExponential {
        /// The least.
        min: Span = "0us",
        /// The mean of what comes on top.
        mean: Span,
    }
}

record! {
    /// Times as they were measured.
    pub struct NetEmpirical {
        /// The times.
        times: Vec<Span>,
    }
}

record! {
    /// Times of a file: of the messages in records of a run, or of a column of a CSV file.
    pub struct NetRecorded {
        /// Records (`.twr`) or CSV (`.csv`), beside this file.
        file: Text,
        /// Of records: the timestamp point at which the time begins.
        from: Text = "RxSw",
        /// Of records: the timestamp point at which it ends.
        to: Text = "Receive",
        /// Of records: only messages of this flow.
        flow: Option<Text>,
        /// Of CSV: the name of the column, which has whole nanoseconds.
        column: Option<Text>,
    }
}

kinds! {
    /// Something that goes wrong.
    pub enum NetFault by "kind" {
        /// A link loses frames.
        Loss(NetShareFault) = "loss",
        /// A link damages frames.
        Corruption(NetShareFault) = "corruption",
        /// A link is down.
        LinkDown(NetLinkFault) = "link-down",
        /// A stream sends as much as its link takes.
        Babble(NetStreamFault) = "babble",
        /// A station or bridge starts again.
        Restart(NetNodeFault) = "restart",
        /// A clock jumps.
        ClockStep(NetStepFault) = "clock-step",
        /// A clock goes at another rate.
        ClockDrift(NetDriftFault) = "clock-drift",
        /// Nobody hears the master of the time.
        MasterLost(NetMasterFault) = "master-lost",
        /// An application is late.
        Late(NetLateFault) = "late",
        /// The gates of a port change.
        Gates(NetGatesFault) = "gates",
    }
}

record! {
    /// A link loses or damages frames.
    pub struct NetShareFault {
        /// The two ends of the link.
        link: Vec<StationName>,
        /// How many of them.
        share: LossShare,
        /// When it begins.
        at: Span,
        /// How long.
        duration: Span,
    }
}

record! {
    /// A link is down.
    pub struct NetLinkFault {
        /// The two ends of the link.
        link: Vec<StationName>,
        /// When it begins.
        at: Span,
        /// How long.
        duration: Span,
    }
}

record! {
    /// Something is wrong with the application of a stream.
    pub struct NetStreamFault {
        /// The stream.
        stream: Name,
        /// When it begins.
        at: Span,
        /// How long.
        duration: Span,
    }
}

record! {
    /// A station or bridge starts again, and loses what it has.
    pub struct NetNodeFault {
        /// The station or bridge.
        node: StationName,
        /// When it begins.
        at: Span,
        /// How long.
        duration: Span,
    }
}

record! {
    /// A clock jumps.
    pub struct NetStepFault {
        /// Whose clock.
        node: StationName,
        /// When.
        at: Span,
        /// How far; negative: back.
        by: Offset,
    }
}

record! {
    /// A clock goes at another rate from then on.
    pub struct NetDriftFault {
        /// Whose clock.
        node: StationName,
        /// When.
        at: Span,
        /// How much too fast it goes; negative: too slow.
        drift: Drift,
    }
}

record! {
    /// Nobody hears the master of the time.
    pub struct NetMasterFault {
        /// When it begins.
        at: Span,
        /// How long.
        duration: Span,
    }
}

record! {
    /// An application is late.
    pub struct NetLateFault {
        /// The stream.
        stream: Name,
        /// How late.
        by: Span,
        /// When it begins.
        at: Span,
        /// How long.
        duration: Span,
    }
}

record! {
    /// The gates of a port change.
    pub struct NetGatesFault {
        /// Whose port.
        node: StationName,
        /// The station, bridge or segment at the other end.
        to: StationName,
        /// When the new list is given to the port.
        at: Span,
        /// When it is in force, by the clock of the station or bridge.
        change: Span,
        /// The new list; without it, all gates are open.
        gates: Option<NetGates>,
    }
}

record! {
    /// One limit of the verdict, or one for each of several streams, cases and loads.
    pub struct NetLimit {
        /// Its name; of several streams, each has its name behind it.
        id: Name,
        /// What is limited.
        metric: Metric,
        /// Of which stream, or of which several; all metrics but those of the segment,
        /// `outside-slots` and so on, need it.
        stream: Option<Several<Name>>,
        /// The case of the experiment, or several; without it, all.
        case: Option<Several<Name>>,
        /// The load of the experiment, or several; without it, all in which the stream runs.
        load: Option<Several<Name>>,
        /// The largest good value: a time or a share, and a bare number such as 0.5 with
        /// `relative_to`.
        at_most: AtMost,
        /// Judge the value divided by the same metric of another case or load.
        relative_to: Option<ReferenceRule>,
    }
}

/// One limit of the verdict, written or from what its stream asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamLimit {
    /// As written; of those that follow from a stream, its name and `-latency`, `-jitter` or
    /// `-lost`.
    pub id: String,
    /// What is limited.
    pub metric: Metric,
    /// Of which stream.
    pub stream: Name,
    /// The largest good value: a time or a share.
    pub at_most: AtMost,
}

impl NetworkFile {
    /// The limits that are written, then those that follow from the streams. What a plan promises
    /// of a scheduled stream is none of them.
    pub fn all_limits(&self) -> Vec<StreamLimit> {
        let written = self.limits.iter().filter(|limit| limit.relative_to.is_none());
        let written = written.flat_map(NetLimit::of_streams);
        written.chain(self.limits_of_streams()).collect()
    }

    /// The stream that a stream of `kind: after` follows.
    pub fn followed(&self, stream: &NetStream) -> Option<&NetStream> {
        let NetTraffic::After(after) = &stream.traffic else { return None };
        self.streams.iter().find(|it| it.name == after.follows)
    }

    /// The stream from whose release the latencies of a stream count: itself, but for a chain that
    /// counts from its start.
    pub fn counts_from<'s>(&'s self, stream: &'s NetStream) -> &'s NetStream {
        let mut from = stream;
        for _ in 0..self.streams.len() {
            let is_chain = matches!(&from.traffic, NetTraffic::After(it) if it.from_start);
            let Some(before) = self.followed(from).filter(|_| is_chain) else { break };
            from = before;
        }
        from
    }

    /// The limits that follow from the streams.
    pub(super) fn limits_of_streams(&self) -> Vec<StreamLimit> {
        self.streams.iter().flat_map(NetStream::limits).collect()
    }

    /// The file as [`NetworkCases::parse_with`] reads it, with all defaults filled in.
    pub fn to_json(&self) -> Json {
        self.emit().unwrap_or_default()
    }
}

impl NetLimit {
    /// The streams that it names.
    pub(super) fn streams(&self) -> &[Name] {
        self.stream.as_ref().map(Several::all).unwrap_or_default()
    }

    /// One for each of its streams.
    fn of_streams(&self) -> impl Iterator<Item = StreamLimit> {
        let NetLimit { id, metric, at_most, .. } = self;
        let several = self.streams().len() > 1;
        self.streams().iter().map(move |stream| StreamLimit {
            id: if several { format!("{id}-{stream}") } else { id.to_string() },
            metric: *metric,
            stream: stream.clone(),
            at_most: *at_most,
        })
    }
}

impl NetStream {
    /// What results call it, and the messages of a pipeline by their own names.
    pub(super) fn result_names(&self) -> Vec<Name> {
        let messages = match self.traffic {
            NetTraffic::Pipeline(_) => self.listeners.all().len(),
            _ => 0,
        };
        let of = |number: usize| Name::new(&format!("{}-{number}", self.name));
        std::iter::once(self.name.clone()).chain((1..=messages).filter_map(of)).collect()
    }

    /// The limits that follow from what it asks for.
    pub(super) fn limits(&self) -> Vec<StreamLimit> {
        let asked = |most: Option<Span>| most.filter(|_| !self.scheduled).map(AtMost::Time);
        let limits = [
            ("latency", Metric::LatencyMax, asked(self.max_latency)),
            ("jitter", Metric::Jitter, asked(self.max_jitter)),
            ("lost", Metric::Lost, self.max_loss),
        ];
        let limits = limits.into_iter().filter_map(|(what, metric, at_most)| {
            let (id, stream) = (format!("{}-{what}", self.name), self.name.clone());
            Some(StreamLimit { id, metric, stream, at_most: at_most? })
        });
        limits.collect()
    }

    /// Whether its frames have a VLAN tag (IEEE Std 802.1Q-2022, 9.3).
    pub fn is_tagged(&self) -> bool {
        self.tagged == Some(true)
    }

    /// Its frames: a message with the headers of Ethernet, IPv4 and UDP, and the VLAN tag; of a
    /// replay, which says nothing of lengths, the shortest.
    pub fn frame_len(&self) -> FrameLen {
        let tag = if self.is_tagged() { TAG } else { 0 };
        let frame = FrameLen::new(self.size.map_or(0, ByteCount::get) + HEADERS + tag);
        frame.expect("invariant: a checked file has messages of at most a jumbo frame")
    }
}

/// What is before a message in its frame. **Units**: bytes.
const HEADERS: u32 = 42;
/// A VLAN tag (IEEE Std 802.1Q-2022, 9.3). **Units**: bytes.
const TAG: u32 = 4;

impl Item for NetDelay {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        match &node.value {
            Value::Map(_) => NetDrawn::read(node, reader).map(NetDelay::Drawn),
            _ => Span::read(node, reader).map(NetDelay::Fixed),
        }
    }
    fn emit(&self) -> Option<Json> {
        match self {
            NetDelay::Fixed(span) => span.emit(),
            NetDelay::Drawn(drawn) => drawn.emit(),
        }
    }
    fn schema() -> Json {
        json!({"anyOf": [Span::schema(), NetDrawn::schema()]})
    }
}

/// The JSON Schema (draft 2020-12) of the network file, as pretty JSON with a final newline.
pub fn network_schema() -> String {
    let whole: Json = NetworkFile::schema();
    let include = json!({
        "description": "A file, as seen from this one, or a list of them, which this one changes.",
        "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
    });
    // A file that changes others has keys of the file, with values of any part.
    let keys = whole["properties"].as_object().into_iter().flatten();
    let described = |(key, of): (&String, &Json)| {
        (key.clone(), json!({"description": of["description"].clone()}))
    };
    let mut keys: serde_json::Map<String, Json> = keys.map(described).collect();
    keys.insert("include".to_owned(), include);
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Timewire network",
        "$defs": {"group": Group::schema()},
        "if": {"required": ["include"]},
        "then": {"type": "object", "properties": keys, "additionalProperties": false},
        "else": whole,
    });
    let text =
        serde_json::to_string_pretty(&shared(schema, &[("phases", "phases"), ("setup", "phase")]));
    text.expect("invariant: a JSON value with text keys can be written") + "\n"
}
