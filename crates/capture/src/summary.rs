// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a run came to: the versioned value behind `summary.json`, the report and the verdict.
//! Everything here is recomputed from the records of the run directory; nothing is typed in by
//! hand.
//!
//! All `_ns` fields are nanoseconds.

use serde::{Deserialize, Serialize};
use thiserror::Error;
use timewire_base::Verdict;
use timewire_base::drops::DropCause;

use crate::sync::SyncSummary;
use timewire_stats::Distribution;

/// The `schema` field of a summary this version writes.
pub const SUMMARY_SCHEMA: &str = "timewire.summary/1";

/// The whole run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Format and version, [`SUMMARY_SCHEMA`].
    pub schema: String,
    /// Name and version of the program that wrote it.
    pub tool: String,
    /// Title for people: the experiment's name.
    pub title: String,
    /// When the run started, nanoseconds since 1970 UTC.
    pub started_utc_ns: i64,
    /// How long the whole run took.
    pub elapsed_ns: i64,
    /// Whether the run came to its end (a killed run keeps its records and says so).
    pub complete: bool,
    /// What the run stood on: kernel, CPUs, clocks, capabilities, what was not available.
    pub environment: Vec<Fact>,
    /// Which backend each scenario's schedule was given, where the user left or forced the choice.
    #[serde(default)]
    pub backends: Vec<BackendChoice>,
    /// How the clocks were through the run; `None` when that was not recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync: Option<SyncSummary>,
    /// One entry per case and load, in the order they ran.
    pub cases: Vec<CaseSummary>,
    /// Every limit with its verdict, and everything else worth saying.
    pub findings: Vec<Finding>,
    /// Over all limits: fail when one fails, else inconclusive when one is.
    pub verdict: Verdict,
}

/// Text that is no summary of this version.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SummaryError {
    /// Another schema, or another version of it.
    #[error("the summary has the schema `{found}`; this program reads `{supported}` only")]
    Schema {
        /// What the text says.
        found: String,
        /// What this version reads.
        supported: &'static str,
    },
    /// No JSON, or not that of a summary.
    #[error("the summary cannot be read: {source}")]
    Json {
        /// What the JSON reader said, with line and column.
        #[from]
        source: serde_json::Error,
    },
}

impl Summary {
    /// The summary as JSON text: indented, keys in a fixed order, a newline at the end.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self)
            .expect("invariant: text, numbers and lists are always JSON");
        text.push('\n');
        text
    }

    /// Reads [`Summary::to_json`].
    ///
    /// **Errors**: no JSON, another schema, a missing or wrong field.
    pub fn from_json(text: &str) -> Result<Summary, SummaryError> {
        #[derive(Deserialize)]
        struct Head {
            schema: String,
        }
        let Head { schema } = serde_json::from_str(text)?;
        if schema != SUMMARY_SCHEMA {
            return Err(SummaryError::Schema { found: schema, supported: SUMMARY_SCHEMA });
        }
        Ok(serde_json::from_str(text)?)
    }
}

/// Who carries the schedule of one scenario out, where `--backend` was given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackendChoice {
    /// Name of the scenario.
    pub scenario: String,
    /// What was asked for: `auto`, or a backend.
    pub asked: String,
    /// What was taken.
    pub chosen: String,
    /// Why.
    pub why: String,
    /// What is wrong with it here; empty when nothing is.
    pub lacks: String,
    /// The others, the best first, when there was a choice.
    pub passed_over: Vec<PassedOver>,
}

/// A backend that was not taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PassedOver {
    /// Its name.
    pub backend: String,
    /// Why not.
    pub why: String,
}

/// Who carried the schedule out in one case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackendSummary {
    /// Its name: `mac`, `taprio`, `taprio-assist`, `etf` or `cbs`.
    pub name: String,
    /// Which frames it keeps in their slots.
    pub slots: SlotPromise,
    /// What it promises, in words.
    pub promise: String,
}

/// Which frames a backend keeps in their slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SlotPromise {
    /// All.
    All,
    /// Those of real-time streams.
    RealTime,
    /// None: it has no slots.
    None,
}

/// One fact about the environment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fact {
    /// What it is about: `kernel`, `cpu`, `clock`, `privilege`, `interface alpha/phy0`, ...
    pub area: String,
    /// What was looked at.
    pub name: String,
    /// What was found.
    pub value: String,
    /// Whether that is good enough.
    pub level: FactLevel,
}

/// How good a fact is for accurate timing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FactLevel {
    /// As it should be, or neutral.
    Ok,
    /// It works, less accurately.
    Degraded,
    /// Not available; something else was done instead.
    Missing,
}

/// One line of the verdict.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Stable short name: `SCENARIO/LIMIT`, or a word for what is no limit.
    pub id: String,
    /// What the limit came to; `None` of a note, which is no limit.
    pub verdict: Option<Verdict>,
    /// What was promised, in words with units.
    pub limit: String,
    /// What was measured, in words with units.
    pub measured: String,
    /// Why it came out so, or what to look at; empty when there is nothing to add.
    pub note: String,
}

/// One case under one load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaseSummary {
    /// Unique in the run: `SCENARIO/CASE/LOAD`.
    pub id: String,
    /// Name of the scenario it belongs to.
    pub scenario: String,
    /// Name of the case, e.g. `tdm-priority`.
    pub case: String,
    /// Title of the case for people.
    pub title: String,
    /// Name of the load, e.g. `alone` or `flood`.
    pub load: String,
    /// Payload of a measured message, bytes; 0 where messages differ in length.
    pub message_bytes: u32,
    /// Length of the TDM cycle (also given for cases without TDM, for comparison).
    pub cycle_ns: i64,
    /// Whether slots were in force.
    pub tdm: bool,
    /// Who carried the schedule out; `None` for plain Ethernet.
    #[serde(default)]
    pub backend: Option<BackendSummary>,
    /// The slots of the cycle, sorted by offset.
    pub slots: Vec<SlotShape>,
    /// Figure published for this case by the source the experiment follows.
    pub published: Option<Published>,
    /// One entry per measured stream.
    pub streams: Vec<StreamSummary>,
    /// How far the clocks of the stations are apart at most; `None` where they share one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_bound_ns: Option<i64>,
    /// What the segment saw of all frames of all stations.
    pub wire: WireSummary,
    /// Counters of each station's MAC; empty when there was none.
    pub macs: Vec<MacSummary>,
    /// What became of each station's reserved rate; empty where none was reserved.
    #[serde(default)]
    pub reserved: Vec<ReservedSummary>,
    /// Why messages and flood of a program did not leave, of each that had some.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drop_causes: Vec<ProgramDrops>,
    /// What its capture says of the messages; `None` where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traced: Option<TracedSummary>,
}

/// Why messages of a program did not leave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProgramDrops {
    /// Which: role, stream and station.
    pub program: String,
    /// Why, with how many.
    pub drop_causes: Vec<DropCause>,
}

/// What the capture of a case says of the measured messages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TracedSummary {
    /// The captures, relative to the run directory: one of a host with all stations, or one of
    /// each station.
    pub captures: Vec<String>,
    /// The page that shows it over time, relative to the run directory.
    pub page: String,
    /// Events that the capture lost. A message that one of them was of is incomplete.
    pub lost: u64,
    /// One entry per stream whose messages can be told apart.
    pub streams: Vec<ProcessingSummary>,
}

/// Where the time of one stream's messages went, by the marks of its programs and by events.
///
/// The four distributions are of the same messages: those that have all points.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessingSummary {
    /// Name of the stream.
    pub stream: String,
    /// Messages that a program says it sent.
    pub sent: u64,
    /// Messages with a point missing: lost, still under way, or their events were lost.
    pub incomplete: u64,
    /// Messages with two points where one belongs, or with points in an impossible order.
    pub ambiguous: u64,
    /// What told of the driver: `mac.transmit`, `driver-start`.
    pub driver: Vec<String>,
    /// Transmit side: the sending program to the driver.
    pub transmit: Option<Distribution>,
    /// The driver to the receiver's stack.
    pub link: Option<Distribution>,
    /// Receive side: the stack to the receiving program.
    pub receive: Option<Distribution>,
    /// The sending program to the receiving one.
    pub transfer: Option<Distribution>,
}

/// One slot of the cycle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotShape {
    /// Whose slot it is.
    pub station: String,
    /// Start in the cycle.
    pub offset_ns: i64,
    /// Time in which frames may be on the link.
    pub transmit_ns: i64,
    /// Silence after it.
    pub guard_ns: i64,
}

/// A figure someone else published.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Published {
    /// Who and where.
    pub source: String,
    /// The mean end-to-end transfer time that was published.
    pub transfer_mean_ns: i64,
    /// The mean time on the transmit side, from the program to the driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transmit_mean_ns: Option<i64>,
    /// The mean time on the receive side, from the driver to the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receive_mean_ns: Option<i64>,
}

/// What became of one measured stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StreamSummary {
    /// Name of the stream, e.g. `control`.
    pub name: String,
    /// Whether it is served before best effort.
    pub class: StreamClass,
    /// Messages sent (requests and responses).
    pub sent: u64,
    /// Messages that were due and not sent: the kernel did not take them, or the talker woke up
    /// too late.
    #[serde(default)]
    pub skipped: u64,
    /// Messages received.
    pub received: u64,
    /// Messages sent and never received.
    pub lost: u64,
    /// Messages received later than the stream's deadline.
    pub late: u64,
    /// The deadline that `late` counts against; 0: there is none.
    pub deadline_ns: i64,
    /// End-to-end transfer time, `Send -> Receive`.
    pub transfer: Option<Distribution>,
    /// `transfer` of the requests alone; `None` for a stream without responses.
    #[serde(default)]
    pub transfer_request: Option<Distribution>,
    /// `transfer` of the responses alone; `None` for a stream without responses.
    #[serde(default)]
    pub transfer_response: Option<Distribution>,
    /// Transmit side with the wait for the slot, `Send -> Segment`.
    pub slot_wait: Option<Distribution>,
    /// Receive processing, `RxSw -> Receive`.
    pub receive: Option<Distribution>,
    /// What became of its launch times; `None` where it had none.
    #[serde(default)]
    pub launch: Option<LaunchSummary>,
    /// What it was promised; `None` where nothing was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promise: Option<StreamPromise>,
}

/// The latency that a stream was promised.
///
/// **Units**: nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamPromise {
    /// How it is known: `plan`, a reservation in the schedule, `bound`, or only `limits`.
    pub by: String,
    /// The longest latency; `None` where only limits of the file say something.
    pub latency_ns: Option<i64>,
    /// The longest latency that is no failure: the same with the launch error of the place, or a
    /// limit of the file that is tighter.
    pub limit_ns: i64,
}

/// What became of the launch times of one stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LaunchSummary {
    /// Messages that were given one.
    pub launched: u64,
    /// Messages refused as they came to the queueing discipline.
    pub refused: u64,
    /// Messages dropped because the launch time was over.
    pub missed: u64,
    /// How late a frame was on the segment, `Scheduled -> Segment`.
    pub error: Option<Distribution>,
}

/// Real time or best effort.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StreamClass {
    /// Has a deadline and, where the case has priorities, a priority.
    RealTime,
    /// Everything else.
    BestEffort,
}

/// What the segment saw, timestamped on its side of the link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WireSummary {
    /// Frames seen.
    pub frames: u64,
    /// Frames on the segment outside their station's slot and its guard time. Also counted for a
    /// case without TDM: what plain Ethernet does to the same slots.
    pub outside_slots: u64,
    /// Of `frames`, those of real-time streams.
    #[serde(default)]
    pub real_time_frames: u64,
    /// Of `outside_slots`, those of real-time streams.
    #[serde(default)]
    pub real_time_outside_slots: u64,
    /// Frames that reached into the guard time after their slot.
    pub in_guard: u64,
    /// The farthest any frame was outside its slot: by how much the worst one would have had to be
    /// earlier or later, whichever is less.
    pub worst_outside_ns: i64,
    /// Frames the observer lost at any time of the case, and so cannot judge; a torn block of
    /// records counts with as many as it can hold.
    pub unobserved: u64,
    /// Bound of the measurement: how late the segment's timestamp can be against the release of a
    /// frame, measured on the release side (99.9th percentile and maximum).
    pub timestamp_bound_p999_ns: Option<i64>,
    /// See `timestamp_bound_p999_ns`.
    pub timestamp_bound_max_ns: Option<i64>,
    /// Where in the cycle the frames of each station appeared.
    pub phases: Vec<PhaseHistogram>,
}

/// What one station's real-time class reserved, and what it sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservedSummary {
    /// Whose class.
    pub station: String,
    /// The reserved rate, bits per second on the wire.
    pub rate_bps: u64,
    /// What it may send at once, bits.
    pub burst_bits: u64,
    /// Real-time frames seen.
    pub frames: u64,
    /// Of them, those that came before rate and burst let them.
    pub outside_rate: u64,
}

/// Arrival phase of one station's frames.
///
/// **Shape**: `counts[i]` frames had a phase in `[i * bin_ns, (i + 1) * bin_ns)` of the cycle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseHistogram {
    /// Whose frames.
    pub station: String,
    /// Width of a bin.
    pub bin_ns: i64,
    /// Frames per bin.
    pub counts: Vec<u64>,
}

/// Counters of one station's MAC over one case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MacSummary {
    /// Whose MAC.
    pub station: String,
    /// How frames went out: `af_xdp native`, `af_packet`, ...
    pub socket: String,
    /// Frames released.
    pub released: u64,
    /// Slots that the thread woke too late for, while frames were waiting.
    pub missed_slots: u64,
    /// Frames dropped on the way into the MAC, before any queue.
    pub ingress_dropped: u64,
    /// One entry per queue, most urgent first; the default queue is last.
    pub queues: Vec<QueueSummary>,
}

/// Counters of one transmit queue over one case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueSummary {
    /// Priority number, or `default`.
    pub name: String,
    /// Frames that came.
    pub arrived: u64,
    /// Frames that left.
    pub released: u64,
    /// Frames that found the queue full.
    pub dropped_full: u64,
    /// Frames that fit no slot of this station.
    pub dropped_oversize: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use timewire_base::Span;
    use timewire_stats::Bins;

    fn summary() -> Summary {
        let bins = Bins::covering(Span::from_us(100), Span::from_us(20));
        let transfer = Distribution::of(vec![10_000, 33_333, 70_001], bins);
        Summary {
            schema: SUMMARY_SCHEMA.to_owned(),
            tool: "timewire 0.1.0".to_owned(),
            title: "first experiment".to_owned(),
            started_utc_ns: 1_700_000_000_000_000_000,
            elapsed_ns: 90_000_000_000,
            complete: true,
            sync: None,
            environment: vec![Fact {
                area: "kernel".to_owned(),
                name: "release".to_owned(),
                value: "6.18.44".to_owned(),
                level: FactLevel::Ok,
            }],
            backends: vec![BackendChoice {
                scenario: "first".to_owned(),
                asked: "auto".to_owned(),
                chosen: "mac".to_owned(),
                why: "it is the best that works here".to_owned(),
                lacks: String::new(),
                passed_over: Vec::new(),
            }],
            cases: vec![CaseSummary {
                id: "first/tdm/alone".to_owned(),
                scenario: "first".to_owned(),
                case: "tdm".to_owned(),
                title: "TDM".to_owned(),
                load: "alone".to_owned(),
                message_bytes: 64,
                cycle_ns: 1_040_000,
                tdm: true,
                backend: Some(BackendSummary {
                    name: "mac".to_owned(),
                    slots: SlotPromise::All,
                    promise: "every frame inside its station's slot".to_owned(),
                }),
                slots: Vec::new(),
                published: None,
                streams: vec![StreamSummary {
                    name: "control".to_owned(),
                    class: StreamClass::RealTime,
                    sent: 4,
                    skipped: 1,
                    received: 3,
                    lost: 1,
                    late: 0,
                    deadline_ns: 1_000_000,
                    transfer,
                    transfer_request: None,
                    transfer_response: None,
                    slot_wait: None,
                    receive: None,
                    launch: None,
                    promise: None,
                }],
                clock_bound_ns: None,
                wire: WireSummary {
                    frames: 0,
                    outside_slots: 0,
                    real_time_frames: 0,
                    real_time_outside_slots: 0,
                    in_guard: 0,
                    worst_outside_ns: 0,
                    unobserved: 0,
                    timestamp_bound_p999_ns: None,
                    timestamp_bound_max_ns: None,
                    phases: Vec::new(),
                },
                drop_causes: Vec::new(),
                macs: Vec::new(),
                reserved: Vec::new(),
                traced: None,
            }],
            findings: Vec::new(),
            verdict: Verdict::Pass,
        }
    }

    #[test]
    fn t0_a_summary_reads_back_to_the_last_digit() {
        let text = summary().to_json();
        assert!(
            text.starts_with("{\n  \"schema\": \"timewire.summary/1\",\n") && text.ends_with("}\n")
        );
        let read = Summary::from_json(&text).unwrap();
        assert_eq!(read, summary());
        assert_eq!(read.to_json(), text);
    }

    #[test]
    fn t0_another_schema_is_refused_before_anything_else() {
        let refused = |text: &str| Summary::from_json(text).unwrap_err().to_string();
        assert_eq!(
            refused(r#"{"schema":"timewire.summary/2","rounds":[]}"#),
            "the summary has the schema `timewire.summary/2`; this program reads \
             `timewire.summary/1` only"
        );
        assert!(refused("{}").starts_with("the summary cannot be read: missing field `schema`"));
        assert!(refused(r#"{"schema":"timewire.summary/1"}"#).contains("missing field `tool`"));
    }

    #[test]
    fn t0_a_summary_without_the_optional_fields_is_read() {
        let text = summary().to_json();
        let lines = text.lines().filter(|line| !line.contains("\"transfer_re"));
        let without: String = lines.collect();
        assert_ne!(without.len(), text.lines().collect::<String>().len());
        assert_eq!(Summary::from_json(&without).unwrap(), summary());
    }
}
