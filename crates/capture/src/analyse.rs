// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From the records of one case to its [`CaseSummary`].
//!
//! The messages of a stream `NAME` go by the flow names `NAME` (one way), `NAME.request` and
//! `NAME.response`; a message is known by its flow and sequence number in every file. A message
//! counts when its `Send` lies in the measured interval, a frame on the segment when its `Segment`
//! timestamp does.
//!
//! Records that do not fit together are no error: they are counted and told as notes.
//!
//! Not here: the record format (`record`), whether the result is good enough (`judge`).

mod messages;
mod reserved;
mod series;
mod wire;

use thiserror::Error;
use timewire_base::{BitsPerSecond, Instant, Span, Tai, WindowError};

use crate::record::RecordFile;
use crate::series::StreamTimeSeries;
use crate::summary::{
    BackendSummary, CaseSummary, Finding, MacSummary, Published, SlotShape, StreamClass,
};
use timewire_stats::Bins;

pub use series::{CaseSeries, CaseTransfers, StreamSeries, StreamTransfers, series, transfers};

/// Everything known about one case.
#[derive(Clone, Debug)]
pub struct CaseInput {
    /// Name of the scenario.
    pub scenario: String,
    /// Name of the case.
    pub case: String,
    /// Title of the case for people.
    pub title: String,
    /// Name of the load.
    pub load: String,
    /// Payload of a measured message, bytes.
    pub message_bytes: u32,
    /// Whether slots were in force.
    pub tdm: bool,
    /// Who carried the schedule out.
    pub backend: Option<BackendSummary>,
    /// What the real-time classes of stations have reserved.
    pub reserved: Vec<ReservedInput>,
    /// When a cycle starts.
    pub base_time: Instant<Tai>,
    /// Length of the cycle; also given without TDM, for comparison.
    pub cycle: Span,
    /// The slots of the cycle; also given without TDM, for comparison. None at all: no frame is
    /// compared with a slot.
    pub slots: Vec<SlotShape>,
    /// Rate of the segment.
    pub rate: BitsPerSecond,
    /// Figure published for this case.
    pub published: Option<Published>,
    /// The measured streams.
    pub streams: Vec<StreamInput>,
    /// The measured interval starts here,
    pub from: Instant<Tai>,
    /// and ends here (the first instant outside).
    pub to: Instant<Tai>,
    /// A message has arrived once the kernel of its listener has it; otherwise, its program.
    pub until_kernel: bool,
    /// What talkers, listeners, clients and servers timestamped.
    pub endpoints: Vec<RecordFile>,
    /// What the observer of the segment timestamped.
    pub observers: Vec<RecordFile>,
    /// Counters of each station's MAC.
    pub macs: Vec<MacSummary>,
    /// How late the segment's timestamp can be, where that was measured.
    pub timestamp_bound: Option<TimestampBound>,
}

/// One stream to be found in the records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamInput {
    /// Its name, of which the names of its flows are made.
    pub name: String,
    /// Whether it is served before best effort.
    pub class: StreamClass,
    /// A message received later than this after its `Send` is late; zero: none is.
    pub deadline: Span,
    /// A message is due in each period; those that were not sent are counted. `None`: who knows.
    pub period: Option<Span>,
}

/// What a station's real-time class may send: in any time, the rate times its length, and a burst.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReservedInput {
    /// Whose class.
    pub station: String,
    /// The rate, on the wire.
    pub rate: BitsPerSecond,
    /// The burst. **Units**: bits.
    pub burst_bits: u64,
}

/// How late the segment's timestamp of a frame was against its release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimestampBound {
    /// 99.9th percentile.
    pub p999: Span,
    /// Maximum.
    pub max: Span,
}

/// What the records of one case came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Analysis {
    /// The numbers.
    pub case: CaseSummary,
    /// What a reader of the numbers should know: lost or damaged records, timestamps that do not
    /// fit together. All of [`None`].
    pub notes: Vec<Finding>,
    /// For drawing: transfer times over time, of the first streams of each class.
    pub series: Vec<StreamTimeSeries>,
}

/// A case that cannot be analysed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AnalyseError {
    /// The slots of a station, or the cycle, cannot exist.
    #[error("the slots of {station} cannot be: {source}")]
    Slots {
        /// Whose slots.
        station: String,
        /// What is wrong with them.
        source: WindowError,
    },
}

/// Width of the bins of times that contain a wait for a slot; they reach over [`SLOT_WAIT_CYCLES`].
const SLOT_WAIT_BIN: Span = Span::from_us(20);
const SLOT_WAIT_CYCLES: i64 = 4;
/// Width and reach of the bins of receive processing.
const RECEIVE_BIN: Span = Span::from_us(2);
const RECEIVE_UPTO: Span = Span::from_us(500);

/// Computes one case. Same input, same output.
///
/// **Errors**: slots or a cycle that cannot exist.
pub fn analyse(mut input: CaseInput) -> Result<Analysis, AnalyseError> {
    let id = format!("{}/{}/{}", input.scenario, input.case, input.load);
    input.slots.sort_by_key(|slot| slot.offset_ns);
    let mut notes = Notes { case: id.clone(), list: Vec::new() };
    file_notes(&input, &mut notes);
    let wire = wire::summarise(&input, &mut notes)?;
    let (streams, series) = messages::summarise(&input, &mut notes);
    let reserved = reserved::summarise(&input);
    let case = CaseSummary {
        id,
        scenario: input.scenario,
        case: input.case,
        title: input.title,
        load: input.load,
        message_bytes: input.message_bytes,
        cycle_ns: input.cycle.as_ns(),
        tdm: input.tdm,
        backend: input.backend,
        slots: input.slots,
        published: input.published,
        streams,
        clock_bound_ns: None,
        wire,
        macs: input.macs,
        reserved,
        drop_causes: Vec::new(),
        traced: None,
    };
    Ok(Analysis { case, notes: notes.list, series })
}

impl CaseInput {
    fn files(&self) -> impl Iterator<Item = &RecordFile> {
        self.endpoints.iter().chain(&self.observers)
    }

    fn measures(&self, at_ns: i64) -> bool {
        (self.from.as_ns()..self.to.as_ns()).contains(&at_ns)
    }

    /// For each flow of a file, whether it is of a real-time stream.
    fn real_time_flows(&self, file: &RecordFile) -> Vec<bool> {
        let of = |flow: &String| {
            let stream = flow.strip_suffix(".request").or(flow.strip_suffix(".response"));
            let name = stream.unwrap_or(flow);
            let known = |s: &&StreamInput| s.name == *name || s.name == *flow;
            self.streams.iter().find(known).is_some_and(|s| s.class == StreamClass::RealTime)
        };
        file.header.flows.iter().map(of).collect()
    }

    fn transfer_bins(&self) -> Bins {
        transfer_bins(self.cycle)
    }
}

/// The bins of every distribution of a case that contains a wait for a slot, in a cycle so long.
pub fn transfer_bins(cycle: Span) -> Bins {
    let upto = cycle.checked_mul(SLOT_WAIT_CYCLES).unwrap_or(cycle);
    // A cycle of seconds gets wider bins instead of more than a drawing can show.
    let widest = Span::from_ns(upto.as_ns() / 10_000);
    Bins::covering(upto, SLOT_WAIT_BIN.max(widest))
}

pub(crate) fn receive_bins() -> Bins {
    Bins::covering(RECEIVE_UPTO, RECEIVE_BIN)
}

/// Notes on one case, in the order they were made.
struct Notes {
    case: String,
    list: Vec<Finding>,
}

impl Notes {
    /// Notes `what` when `count` is above zero.
    fn count(&mut self, count: u64, id: &str, what: &str, why: &str) {
        if count > 0 {
            self.list.push(Finding {
                id: id.to_owned(),
                verdict: None,
                limit: String::new(),
                measured: format!("{}: {count} {what}", self.case),
                note: why.to_owned(),
            });
        }
    }
}

fn file_notes(input: &CaseInput, notes: &mut Notes) {
    for file in input.files() {
        let writer = &file.header.writer;
        let missing = "the records of this writer are incomplete, and so are the numbers they feed";
        let lost = format!("timestamps given up by {writer}");
        notes.count(file.lost, "timestamps-lost", &lost, missing);
        let torn = format!("damaged blocks of records of {writer}");
        notes.count(file.corrupt_blocks, "records-damaged", &torn, missing);
        let unknown = format!("records of {writer} that this version cannot read");
        notes.count(file.unknown_records, "records-unknown", &unknown, missing);
        let open = format!("record file not closed by its writer, {writer}");
        let killed = "the writer was stopped before its end; what it wrote until then is here";
        notes.count(u64::from(!file.clean_end), "records-open", &open, killed);
    }
}

#[cfg(test)]
mod tests;
