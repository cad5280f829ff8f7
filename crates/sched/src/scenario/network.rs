// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The file of a network to simulate: the same text, units and errors as a scenario, other keys.
//!
//! Not here: simulating it (`timewire-sim`), what must hold between the keys (`network_check.rs`).

use serde_json::{Value as Json, json};
use timewire_base::{BitsPerSecond, FrameLen, Span, StationName};

use super::ScenarioErrors;
pub use super::device::{DeviceModel, NetDevice, Profile};
use super::item::{Item, Reader};
use super::kernels::{Drift, LossShare, MacAddress, Offset};
use super::network_check;
use super::network_plan;
pub use super::network_plan::{NetPlace, NetReserve};
pub use super::network_value::NetListeners;
use super::record::{choice, kinds, record};
use super::tree::{self, Node, Value};
use super::value::{AtMost, ByteCount, Count, FormatVersion, Name, Text};
use crate::tdm::TdmSchedule;

record! {
    /// A network, its traffic, its faults and the limits of its verdict.
    pub struct NetworkFile {
        /// Version of this file format.
        timewire: FormatVersion,
        /// That it is a network.
        kind: NetworkKind,
        /// Short name, shown in results.
        name: Name,
        /// What it is for, for people.
        description: Text = "''",
        /// How long it runs.
        duration: Span,
        /// Latencies of frames released before are not counted.
        warm_up: Span = "0s",
        /// How far beyond a window of its class a transmission may be, by the right time, before it
        /// counts as outside.
        tolerance: Span = "0ns",
        /// By how much the clocks of two neighbours differ at most, and how late ports act. Only a
        /// planner asks for it.
        sync_error: Span = "0ns",
        /// Time on every link in which nothing planned is sent.
        reserve: Option<NetReserve>,
        /// Everything that is random follows from it.
        seed: Count<0, 0xffff_ffff> = "1",
        /// Where streams start and end.
        stations: Vec<NetStation>,
        /// What forwards frames.
        bridges: Vec<NetBridge> = "[]",
        /// Links between two of them, full duplex.
        links: Vec<NetLink> = "[]",
        /// Segments that several stations share, half duplex.
        segments: Vec<NetSegment> = "[]",
        /// Slots of the stations: in each, one station may send frames of all classes.
        schedule: Option<TdmSchedule>,
        /// Ports that are not plain.
        ports: Vec<NetPort> = "[]",
        /// Streams of messages. Only a planner to which others are given needs none.
        streams: Vec<NetStream> = "[]",
        /// What goes wrong.
        faults: Vec<NetFault> = "[]",
        /// The verdict.
        limits: Vec<NetLimit> = "[]",
    }
}

choice! {
    /// What kind of file it is.
    pub enum NetworkKind {
        /// A network to simulate.
        Network = "network",
    }
}

record! {
    /// A station, where streams start and end.
    pub struct NetStation {
        /// Its name.
        name: StationName,
        /// Addresses of its cards, by which requests for streams name it.
        mac: Vec<MacAddress> = "[]",
        /// From the release of a message to the queue of its port.
        send: NetDelay = "0us",
        /// From the last bit of a frame to the application.
        receive: NetDelay = "0us",
        /// How its clock goes.
        clock: NetClock = "{}",
        /// What its ports can do.
        device: NetDevice = "{}",
    }
}

record! {
    /// A bridge.
    pub struct NetBridge {
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
    /// A link between two stations or bridges, full duplex.
    pub struct NetLink {
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
        name: StationName,
        /// Who may send when.
        access: NetAccess = "contention",
        /// The stations on it, in the order of a token.
        stations: Vec<StationName>,
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
        InTurn = "in_turn",
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
        credit: Vec<NetCredit> = "[]",
        /// Classes whose frames can be interrupted by those of the others.
        preemptable: Vec<Count<0, 7>> = "[]",
        /// How long before a state with hold preemptable frames hold back; without it, as long as
        /// 143 bytes take.
        hold_advance: Option<Span>,
        /// Classes whose frames leave in the order of their times of asynchronous shaping.
        timed: Vec<Count<0, 7>> = "[]",
        /// Classes whose frames leave at their launch times; one that comes later is dropped.
        launch: Vec<Count<0, 7>> = "[]",
        /// Most frames that wait in each class; without it, there is no bound.
        capacity: Option<Count<1, 1000000>>,
    }
}

record! {
    /// A list of states of the gates, which repeats.
    pub struct NetGates {
        /// When it begins, by the clock of the station or bridge.
        base: Span = "0s",
        /// Its length; without it, all its states together.
        cycle: Option<Span>,
        /// The states; the last lasts to the end of the cycle.
        entries: Vec<NetGateEntry>,
    }
}

record! {
    /// A state of the gates.
    pub struct NetGateEntry {
        /// The classes that may send.
        open: Vec<Count<0, 7>>,
        /// How long.
        lasts: Span,
        /// Preemptable frames hold back.
        hold: bool = "false",
    }
}

record! {
    /// The credit of a class.
    pub struct NetCredit {
        /// The class.
        class: Count<0, 7>,
        /// Its idle slope: what it may use of the rate.
        rate: BitsPerSecond,
        /// Who counts the credit.
        rules: NetCreditRules = "standard",
        /// As Linux counts: most credit.
        hi: Option<ByteCount>,
        /// As Linux counts: least credit, without its sign.
        lo: Option<ByteCount>,
    }
}

choice! {
    /// Who counts the credit of a class.
    pub enum NetCreditRules {
        /// IEEE 802.1Q.
        Standard = "standard",
        /// The software of Linux' `cbs`.
        Linux = "linux",
    }
}

record! {
    /// A stream of messages from one station to another, or to several.
    pub struct NetStream {
        /// Its name.
        name: Name,
        /// Where it starts.
        from: StationName,
        /// Where it goes: a station, or a list of them.
        to: NetListeners,
        /// Its class at every port; 7 is the most urgent.
        class: Count<0, 7> = "0",
        /// UDP payload of its frames: 42 bytes of headers come on top. Not with a replay, whose
        /// frames are as long as they were.
        message: Option<ByteCount>,
        /// When messages are released.
        traffic: NetTraffic,
        /// Its frames have launch times so much after their release.
        launch: Option<Span>,
        /// Bridges shape it asynchronously.
        shape: Option<NetShape>,
        /// It is to have a place in a schedule, which `timewire plan` finds.
        place: Option<NetPlace>,
    }
}

record! {
    /// What a stream that is shaped asynchronously may send.
    pub struct NetShape {
        /// Its rate.
        rate: BitsPerSecond,
        /// What it may send at once, as bytes on the link.
        burst: ByteCount,
        /// A frame that would have to wait longer is dropped.
        max_wait: Span = "10ms",
    }
}

kinds! {
    /// When messages are released.
    pub enum NetTraffic by "kind" {
        /// In every period, by the station's clock.
        Cyclic(NetCyclic) = "cyclic",
        /// At any time, with a gap before the next.
        Sporadic(NetSporadic) = "sporadic",
        /// At a rate, by the station's clock.
        Flood(NetFlood) = "flood",
        /// The next when the answer to the last has come.
        Request(NetRequest) = "request",
        /// One for each message of another stream that arrives: an answer, or a step of a
        /// pipeline.
        After(NetAfter) = "after",
        /// As captured: the frames of a file, at their times and with their lengths.
        Replay(NetReplay) = "replay",
    }
}

record! {
    /// Messages in every period.
    pub struct NetCyclic {
        /// The period.
        period: Span,
        /// When in the period.
        offset: Span = "0us",
        /// How much later it really is.
        jitter: NetDelay = "0us",
        /// Messages in each period.
        burst: Count<1, 100000> = "1",
        /// From one to the next of those.
        spacing: Span = "0us",
    }
}

record! {
    /// Messages at any time.
    pub struct NetSporadic {
        /// From one to the next.
        gap: NetDelay,
    }
}

record! {
    /// Messages at a rate.
    pub struct NetFlood {
        /// The rate of the link that they take, preamble and gap included.
        rate: BitsPerSecond,
        /// Messages that are released at once.
        burst: Count<1, 1000> = "1",
    }
}

record! {
    /// Requests.
    pub struct NetRequest {
        /// The stream with the answers.
        answer: Name,
        /// From an answer to the next request.
        think: NetDelay = "0us",
        /// Without an answer the next goes after this.
        timeout: Span = "100ms",
        /// When the first goes.
        first: Span = "0us",
    }
}

record! {
    /// Messages that follow others.
    pub struct NetAfter {
        /// The stream that it follows.
        stream: Name,
        /// How long the station needs to make the message.
        work: NetDelay = "0us",
        /// Latencies count from the release of the first message of the chain.
        from_start: bool = "false",
    }
}

record! {
    /// Frames of a capture.
    pub struct NetReplay {
        /// The capture, pcapng or pcap, beside this file.
        file: Text,
        /// When the first frame of the file is due, whether it is taken or not, by the station's
        /// clock: streams of one file keep their distance.
        offset: Span = "0us",
        /// Only frames of this VLAN.
        vlan: Option<Count<0, 4094>>,
        /// Only frames with this priority in their VLAN tag.
        pcp: Option<Count<0, 7>>,
        /// Only frames from this MAC address.
        source: Option<MacAddress>,
        /// Only frames to this MAC address.
        destination: Option<MacAddress>,
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
        /// Of records: the tap at which the time begins.
        from: Text = "RxSw",
        /// Of records: the tap at which it ends.
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
        LinkDown(NetLinkFault) = "link_down",
        /// A stream sends as much as its link takes.
        Babble(NetStreamFault) = "babble",
        /// A station or bridge starts again.
        Restart(NetNodeFault) = "restart",
        /// A clock jumps.
        ClockStep(NetStepFault) = "clock_step",
        /// Nobody hears the master of the time.
        MasterLost(NetMasterFault) = "master_lost",
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
        lasts: Span,
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
        lasts: Span,
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
        lasts: Span,
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
        lasts: Span,
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
    /// Nobody hears the master of the time.
    pub struct NetMasterFault {
        /// When it begins.
        at: Span,
        /// How long.
        lasts: Span,
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
        lasts: Span,
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
    /// One limit of the verdict.
    pub struct NetLimit {
        /// Its name.
        id: Name,
        /// What is limited.
        metric: NetMetric,
        /// Of which stream.
        stream: Name,
        /// The largest good value: a time or a share.
        at_most: AtMost,
    }
}

choice! {
    /// What a limit is about.
    pub enum NetMetric {
        /// The longest time from release to application.
        LatencyMax = "latency_max",
        /// 99 of 100 messages need at most this.
        LatencyP99 = "latency_p99",
        /// The mean time.
        LatencyMean = "latency_mean",
        /// The longest less the shortest time.
        Jitter = "jitter",
        /// The share of messages that are lost.
        Lost = "lost",
        /// Transmissions outside the windows of their class, one at each hop, as a share of the
        /// messages.
        OutsideWindows = "outside_windows",
    }
}

impl NetworkFile {
    /// Reads and checks a file; `file_name` is for the messages.
    ///
    /// **Errors**: everything that is wrong with the text, each with its place.
    pub fn parse(file_name: &str, text: &str) -> Result<NetworkFile, ScenarioErrors> {
        NetworkFile::parse_with(file_name, text, true)
    }

    /// As [`NetworkFile::parse`], and a file without streams is one too: they come from elsewhere.
    ///
    /// **Errors**: as there.
    pub fn parse_without_streams(
        file_name: &str,
        text: &str,
    ) -> Result<NetworkFile, ScenarioErrors> {
        NetworkFile::parse_with(file_name, text, false)
    }

    fn parse_with(
        file_name: &str,
        text: &str,
        streams: bool,
    ) -> Result<NetworkFile, ScenarioErrors> {
        let failed = |problems| ScenarioErrors::new(file_name, text, problems);
        let root = tree::parse(text).map_err(failed)?;
        let mut reader = Reader::new(root.mark);
        let file = NetworkFile::read(&root, &mut reader);
        if let Some(file) = &file {
            if streams && file.streams.is_empty() {
                reader.fail_at("streams", "there is no stream".into(), "write at least one");
            }
            network_check::check(file, &mut reader);
            network_plan::check(file, &mut reader);
        }
        match file {
            Some(file) if reader.problems.is_empty() => Ok(file),
            _ => Err(failed(reader.problems)),
        }
    }

    /// The file as [`NetworkFile::parse`] reads it, with all defaults filled in.
    pub fn to_json(&self) -> Json {
        self.emit().unwrap_or_default()
    }
}

impl NetStream {
    /// Its frames: a message with the headers of Ethernet, IPv4 and UDP; of a replay, which says
    /// nothing of lengths, the shortest.
    pub fn frame_len(&self) -> FrameLen {
        let frame = FrameLen::new(self.message.map_or(0, ByteCount::get) + HEADERS);
        frame.expect("invariant: a checked file has messages of at most a jumbo frame")
    }
}

/// What is before a message in its frame. **Units**: bytes.
const HEADERS: u32 = 42;

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
    let mut schema: Json = NetworkFile::schema();
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("Timewire network");
    let text = serde_json::to_string_pretty(&schema);
    text.expect("invariant: a JSON value with text keys can be written") + "\n"
}
