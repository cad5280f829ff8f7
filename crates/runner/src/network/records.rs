// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What stations recorded of a network's run, put into a case of the run directory: the record
//! files of talkers and listeners with the names of the file's streams, and what was measured of
//! each.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use timewire_base::{BitsPerSecond, Instant, Span};
use timewire_capture::analyse::transfer_bins;
use timewire_capture::record::{Encoder, Record, RecordFile, RecordHeader, TimestampPoint};
use timewire_capture::summary::{Fact, FactLevel, StreamClass};
use timewire_model::scenario::Variant;
use timewire_model::scenario::network::{NetTraffic, NetworkCase, NetworkFile};
use timewire_stats::{Bins, Distribution};

use super::judge::Measured;
use super::{Compiled, EXPERIMENT, Promise, PromisedBy, traced};
use crate::RunnerError;
use crate::error::{Context as _, invalid};
use crate::rundir::{
    CaseMeta, ClockBoundMeta, NumberedMeta, RunDir, RunMeta, RunRequest, StreamMeta,
};

/// What a run is, before it begins.
#[derive(Debug)]
pub struct Begun<'a> {
    /// Name and text of each network file.
    pub files: Vec<(String, &'a str)>,
    /// Each of their networks, and the experiment that carries it out.
    pub cases: &'a [(NetworkCase, Compiled)],
    /// What the place is, in words.
    pub place: &'a str,
    /// When it starts, nanoseconds since 1970 UTC.
    pub started_utc_ns: i64,
    /// What was asked for.
    pub request: RunRequest,
}

/// What is read of how a trial ended.
#[derive(Deserialize)]
struct TrialEnd {
    failures: Vec<serde::de::IgnoredAny>,
}

/// What listeners could not hear or understand, by station and program, in a case's directory.
const LISTENERS: &str = "listeners.json";
/// What talkers counted of each stream, in a case's directory.
const TALKERS: &str = "talkers.json";
/// The only trial.
const TRIAL: &str = "0001";
/// Its file, once it came to its end.
const TRIAL_END: &str = "end.json";

/// Writes what the run is told: the files, and of each case its network and its experiment.
///
/// **Errors**: a file cannot be written.
pub fn begin(directory: &RunDir, begun: &Begun<'_>) -> Result<(), RunnerError> {
    let Begun { files, cases, place, started_utc_ns, request } = begun;
    let (first, _) = cases.first().context("a network file has a network")?;
    for (name, text) in files {
        let network = directory.network_path(name);
        fs::write(&network, text).map_err(RunnerError::file("write", &network))?;
    }
    for (case, compiled) in *cases {
        let path = directory.case_path(&case.id());
        fs::create_dir_all(&path).map_err(RunnerError::file("create", &path))?;
        directory.write_network(&case.id(), &case.file)?;
        compiled.write(&path)?;
    }
    let names: Vec<String> = files.iter().map(|(name, _)| name.clone()).collect();
    let mut meta = RunMeta::new(title(&first.file, &names), *started_utc_ns);
    meta.cases = cases.iter().map(|(case, _)| case.id()).collect();
    meta.environment = environment(cases, place);
    meta.networks = names;
    meta.request = Some(request.clone());
    directory.write_meta(&meta)
}

/// The title of a run of networks with these names: what the file of the only one says of it.
pub(crate) fn title(first: &NetworkFile, names: &[String]) -> String {
    match (names, first.description.as_str()) {
        ([_], description) if !description.is_empty() => description.to_owned(),
        _ => names.join(", "),
    }
}

/// Goes on with a run in its directory; its cases as they were when it began.
///
/// **Errors**: as [`RunDir::resume`]; its cases would be carried out otherwise than they were.
pub fn resume(
    path: &Path,
    cases: &[(NetworkCase, Compiled)],
) -> Result<(RunDir, Vec<(NetworkCase, Compiled)>), RunnerError> {
    let ids: Vec<String> = cases.iter().map(|(case, _)| case.id()).collect();
    let kept = RunDir::open(path)?;
    let mut all = Vec::new();
    if kept.meta()?.cases == ids {
        for (case, compiled) in cases {
            let (_, before) = begun(&kept, &case.id())?;
            let mut now = compiled.clone();
            // What its hosts file is called makes no difference.
            now.launch_error.place.clone_from(&before.launch_error.place);
            if before != now {
                return Err(invalid(format!(
                    "{}: {} would be carried out otherwise than when the run began; the program \
                     is another: run it anew, with another --out",
                    path.display(),
                    case.id()
                )));
            }
            all.push((case.clone(), before));
        }
    }
    Ok((RunDir::resume(path, &ids)?.0, all))
}

/// A case of a run that has begun: its network, and its experiment.
///
/// **Errors**: a file cannot be read, or is of another version.
pub fn begun(directory: &RunDir, id: &str) -> Result<(NetworkCase, Compiled), RunnerError> {
    let compiled = Compiled::read(&directory.case_path(id))?;
    let case = NetworkCase {
        case: compiled.case.clone(),
        of: compiled.case.clone(),
        variant: Variant::default(),
        title: compiled.title.clone(),
        load: compiled.load.clone(),
        file: directory.network(id)?,
        quick_duration: None,
    };
    Ok((case, compiled))
}

/// Puts what the stations recorded of a case into its directory, where it came to its end.
///
/// **Errors**: a record is missing or damaged, or a file cannot be written.
pub fn keep(
    directory: &RunDir,
    case: &NetworkCase,
    compiled: &Compiled,
) -> Result<(), RunnerError> {
    let id = case.id();
    let path = directory.case_path(&id);
    let end = path.join(EXPERIMENT).join(TRIAL).join(TRIAL_END);
    if !end.exists() {
        return Ok(());
    }
    let end: TrialEnd = timewire_datapath::files::read_json(&end)?;
    if !end.failures.is_empty() {
        return Ok(());
    }
    let taken = take(&path, compiled, &id)?;
    let troubles = serde_json::to_string_pretty(&taken.troubles).map_err(invalid)? + "\n";
    let listeners = path.join(LISTENERS);
    fs::write(&listeners, troubles).map_err(RunnerError::file("write", &listeners))?;
    let sent = serde_json::to_string_pretty(&taken.sent).map_err(invalid)? + "\n";
    let talkers = path.join(TALKERS);
    fs::write(&talkers, sent).map_err(RunnerError::file("write", &talkers))?;
    let mut meta = case_meta(case, compiled, &taken)?;
    meta.traces = compiled.keep_captures(&path, &traced::records(&path, TRIAL))?;
    directory.write_case(&id, &meta)
}

/// What was measured of each promise, in their order, from the records of the run directory.
///
/// **Errors**: a record file is missing or damaged.
pub fn measured(
    directory: &RunDir,
    id: &str,
    compiled: &Compiled,
) -> Result<Vec<Measured>, RunnerError> {
    let case = directory.case(id)?;
    let path = directory.case_path(id);
    let bins = transfer_bins(case.cycle());
    let mut all: BTreeMap<String, Messages> = BTreeMap::new();
    for name in &case.endpoints {
        let file = read(&path.join(name))?;
        let lost = file.lost + file.corrupt_blocks;
        for name in &file.header.flows {
            all.entry(name.clone()).or_default().unrecorded += lost;
        }
        for record in &file.records {
            let Some(flow) = file.header.flows.get(usize::from(record.flow)) else { continue };
            all.entry(flow.clone()).or_default().take(record);
        }
    }
    let listeners = path.join(LISTENERS);
    let troubles: BTreeMap<String, Vec<String>> = timewire_datapath::files::read_json(&listeners)?;
    let sent: BTreeMap<String, Sent> = timewire_datapath::files::read_json(&path.join(TALKERS))?;
    let of = |promise: &Promise| {
        let mut messages = all.get(&promise.name).cloned().unwrap_or_default();
        messages.heard.retain(|seq, _| promise.messages.is_none_or(|it| u64::from(*seq) < it));
        let sent = sent.get(&promise.name).copied().unwrap_or_default().judged_of(promise);
        let interval = case.from_ns.as_ns()..case.to_ns.as_ns();
        let mut measured = messages.measured(sent, promise, &interval, bins);
        let listener = format!("{}.{}", promise.to, promise.to_interface);
        measured.troubles.extend(troubles.get(&listener).into_iter().flatten().cloned());
        measured
    };
    Ok(compiled.promises.iter().map(of).collect())
}

/// The messages of a stream at one listener.
#[derive(Clone, Debug, Default)]
struct Messages {
    due: BTreeMap<u32, i64>,
    sent: BTreeMap<u32, i64>,
    heard: BTreeMap<u32, i64>,
    twice: u64,
    unrecorded: u64,
}

/// What a talker counted of a stream.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Sent {
    /// Messages that the kernel took.
    sent: u64,
    /// Of those, dropped because of their launch time.
    launch_missed: u64,
    /// Requests that were not answered in time.
    timeouts: u64,
}

impl Sent {
    /// Of those that are judged, as if all that are missing were among them.
    fn judged_of(self, promise: &Promise) -> Sent {
        let Some(judged) = promise.messages else { return self };
        let missing = (judged + promise.tail).saturating_sub(self.sent);
        Sent { sent: judged.saturating_sub(missing), ..self }
    }
}

impl Messages {
    fn take(&mut self, record: &Record) {
        match record.point {
            TimestampPoint::Scheduled => drop(self.due.insert(record.seq, record.at_ns)),
            TimestampPoint::Send => drop(self.sent.insert(record.seq, record.at_ns)),
            TimestampPoint::RxSw => {
                let before = self.heard.insert(record.seq, record.at_ns);
                self.twice += u64::from(before.is_some());
            }
            _ => {}
        }
    }

    /// Latencies of messages of the measured interval; counts are of all.
    fn measured(
        &self,
        sent: Sent,
        promise: &Promise,
        interval: &Range<i64>,
        bins: Bins,
    ) -> Measured {
        let launch_delta = promise.launch_delta;
        let begins = if launch_delta.is_some() { &self.due } else { &self.sent };
        let early = launch_delta.unwrap_or(Span::ZERO).as_ns();
        let begin = |seq| begins.get(seq).map(|at| at - early);
        let begun = self.heard.iter().filter_map(|(seq, at)| Some((begin(seq)?, *at)));
        let counted = begun.filter(|(begin, _)| interval.contains(begin));
        let latency: Vec<i64> = counted.map(|(begin, at)| at - begin).collect();
        let limit = promise.limit().map_or(i64::MAX, Span::as_ns);
        let late = latency.iter().filter(|latency| **latency > limit).count();
        let mut troubles = Vec::new();
        if self.unrecorded > 0 {
            troubles.push(format!("{} records were lost", self.unrecorded));
        }
        let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let received = count(self.heard.len());
        Measured {
            sent: sent.sent,
            received,
            lost: sent.sent.saturating_sub(received),
            late: count(late),
            twice: self.twice,
            launch_missed: sent.launch_missed,
            timeouts: sent.timeouts,
            latency: Distribution::of(latency, bins),
            troubles,
        }
    }
}

/// What was taken from the stations.
struct Taken {
    endpoints: Vec<String>,
    troubles: BTreeMap<String, Vec<String>>,
    /// By stream and listener.
    sent: BTreeMap<String, Sent>,
    /// The first and the last moment that a message was sent.
    first: i64,
    last: i64,
}

/// Copies the records of each program, with the names of the network file.
fn take(to: &Path, compiled: &Compiled, id: &str) -> Result<Taken, RunnerError> {
    let mut taken = Taken {
        endpoints: Vec::new(),
        troubles: BTreeMap::new(),
        sent: BTreeMap::new(),
        first: i64::MAX,
        last: i64::MIN,
    };
    let records = traced::records(to, TRIAL);
    let senders: BTreeSet<(&str, &str)> =
        compiled.promises.iter().map(|it| (&*it.from, &*it.program)).collect();
    for (station, program) in senders {
        let own = compiled.promises.iter();
        let own = own.filter(|it| it.from == station && it.program == program);
        let counted = counted_by(&records.join(station).join(format!("{program}.out")))?;
        for promise in own {
            let sent = counted.get(&promise.stream).copied().unwrap_or_default();
            taken.sent.insert(promise.name.clone(), sent);
        }
    }
    let listeners: BTreeSet<(&str, &str)> =
        compiled.promises.iter().map(|it| (&*it.to, &*it.to_interface)).collect();
    for (station, interface) in listeners {
        let own = |it: &&Promise| it.to == station && it.to_interface == interface;
        let own: Vec<&Promise> = compiled.promises.iter().filter(own).collect();
        let from = records.join(station).join(format!("listen-{interface}.twr"));
        let name = format!("{station}.listen-{interface}.twr");
        let file = read(&from)?;
        // What the talker wrote into its message.
        for record in file.records.iter().filter(|it| it.station == 1) {
            taken.first = taken.first.min(record.at_ns);
            taken.last = taken.last.max(record.at_ns);
        }
        let writer = format!("{station} listen");
        rewrite(&file, (&writer, id), &own, &to.join(&name))?;
        taken.endpoints.push(name);
        let said = records.join(station).join(format!("listen-{interface}.out"));
        let troubles = troubles_of(&said)?;
        if !troubles.is_empty() {
            taken.troubles.insert(format!("{station}.{interface}"), troubles);
        }
    }
    Ok(taken)
}

/// What a talker or another sender counted, by the number of each stream.
fn counted_by(path: &Path) -> Result<BTreeMap<u16, Sent>, RunnerError> {
    let text = fs::read_to_string(path).map_err(RunnerError::file("read", path))?;
    let said: Json = serde_json::from_str(&text).with_context(|| path.display().to_string())?;
    let streams = said["streams"].as_array();
    let streams = streams.with_context(|| format!("{}: no streams", path.display()))?;
    let one = |stream: &Json| {
        let number = u16::try_from(stream["stream"].as_u64()?).ok()?;
        let count = |key: &str| stream[key].as_u64();
        // Only talkers have launch times.
        let launch_missed =
            count("launch_missed").unwrap_or(0) + count("launch_invalid").unwrap_or(0);
        let timeouts = count("timeouts").unwrap_or(0);
        Some((number, Sent { sent: count("sent")?, launch_missed, timeouts }))
    };
    let counted: Option<BTreeMap<u16, Sent>> = streams.iter().map(one).collect();
    counted.with_context(|| format!("{}: a stream without counts", path.display()))
}

/// Why a listener cannot vouch for what it heard, as its last line says.
fn troubles_of(path: &Path) -> Result<Vec<String>, RunnerError> {
    let text = fs::read_to_string(path).map_err(RunnerError::file("read", path))?;
    let last = text.lines().last().unwrap_or_default();
    let said: Json = serde_json::from_str(last).with_context(|| path.display().to_string())?;
    let troubles = said.pointer("/data/heard/inconclusive").and_then(Json::as_array);
    let troubles = troubles.with_context(|| format!("{}: no result", path.display()))?;
    Ok(troubles.iter().filter_map(Json::as_str).map(str::to_owned).collect())
}

fn read(path: &Path) -> Result<RecordFile, RunnerError> {
    let bytes = fs::read(path).map_err(RunnerError::file("read", path))?;
    RecordFile::decode(&bytes)
        .map_err(|source| RunnerError::Records { path: path.to_owned(), source })
}

/// Writes records with flows by their names in the network file. A flow of the file begins with the
/// number of its stream; one that is of several listeners is written for each.
fn rewrite(
    file: &RecordFile,
    (writer, case): (&str, &str),
    promises: &[&Promise],
    path: &Path,
) -> Result<(), RunnerError> {
    let number = |flow: &String| flow.split(' ').next().and_then(|it| it.parse::<u16>().ok());
    let mut by_flow: BTreeMap<u16, Vec<u16>> = BTreeMap::new();
    for (flow, named) in (0..).zip(&file.header.flows) {
        let Some(number) = number(named) else { continue };
        let own = (0..).zip(promises).filter(|(_, promise)| promise.stream == number);
        by_flow.insert(flow, own.map(|(place, _)| place).collect());
    }
    let header = RecordHeader {
        writer: writer.to_owned(),
        case: case.to_owned(),
        flows: promises.iter().map(|promise| promise.name.clone()).collect(),
        ..file.header.clone()
    };
    let (mut encoder, first) = Encoder::new(&header).map_err(invalid)?;
    let mut bytes = first;
    let put = |bytes: &mut Vec<u8>, block: &[u8], offset: u64| {
        let end = usize::try_from(offset).unwrap_or(usize::MAX);
        bytes.truncate(end);
        bytes.resize(end, 0);
        bytes.extend_from_slice(block);
    };
    for record in &file.records {
        for flow in by_flow.get(&record.flow).into_iter().flatten() {
            if let Some(block) = encoder.push(&Record { flow: *flow, ..*record }) {
                put(&mut bytes, block.bytes, block.offset);
            }
        }
    }
    let last = encoder.finish(file.lost);
    put(&mut bytes, &last.bytes[..], last.offset);
    fs::write(path, bytes).map_err(RunnerError::file("write", path))
}

fn case_meta(
    case: &NetworkCase,
    compiled: &Compiled,
    taken: &Taken,
) -> Result<CaseMeta, RunnerError> {
    let file = &case.file;
    let streams = compiled.promises.iter().map(|promise| StreamMeta {
        name: promise.name.clone(),
        class: match promise.by {
            PromisedBy::Load => StreamClass::BestEffort,
            _ => StreamClass::RealTime,
        },
        deadline_ns: promise.limit().unwrap_or(Span::ZERO),
        port: None,
        numbered: Some(NumberedMeta { stream: promise.stream, listener: promise.to.clone() }),
        period_ns: None,
    });
    let mut lengths: Vec<u32> =
        file.streams.iter().map(|it| it.size.map_or(0, |bytes| bytes.get())).collect();
    lengths.sort_unstable();
    lengths.dedup();
    let periods = file.streams.iter().filter_map(|stream| match &stream.traffic {
        NetTraffic::Cyclic(cyclic) => Some(cyclic.period),
        _ => None,
    });
    let rate: Option<BitsPerSecond> = file.links.first().map(|link| link.rate);
    // Where nothing was heard, all that was sent counts.
    let (from, to) = match taken.first <= taken.last {
        true => (
            taken.first.saturating_add(file.warm_up.as_ns()),
            taken.first.saturating_add(file.duration.as_ns()),
        ),
        false => (0, i64::MAX),
    };
    Ok(CaseMeta {
        scenario: compiled.network.clone(),
        case: case.case.clone(),
        title: match case.title.as_str() {
            "" => format!("on {}", compiled.launch_error.place),
            title => title.to_owned(),
        },
        load: case.load.clone(),
        message_bytes: if let [one] = lengths[..] { one } else { 0 },
        tdm: false,
        backend: None,
        reserved: Vec::new(),
        schedule: None,
        cycle_ns: Some(periods.max().unwrap_or(Span::from_ms(1))),
        rate: rate.context("a network without a link has no route")?,
        published: None,
        streams: streams.collect(),
        endpoints: taken.endpoints.clone(),
        observers: Vec::new(),
        from_ns: Instant::from_ns(from),
        // Talkers go on a little while after the last message that is judged.
        to_ns: Instant::from_ns(to),
        until_kernel: true,
        macs: Vec::new(),
        timestamp_bound: None,
        clock_bound: (compiled.launch_error.clock > Span::ZERO).then(|| ClockBoundMeta {
            bound_ns: compiled.launch_error.clock,
            by: "as the hosts file or --clock-error says".to_owned(),
        }),
        traces: Vec::new(),
        ended: true,
    })
}

/// What the run stands on.
fn environment(cases: &[(NetworkCase, Compiled)], place: &str) -> Vec<Fact> {
    let fact = |name: &str, value: String, level| Fact {
        area: "network".to_owned(),
        name: name.to_owned(),
        value,
        level,
    };
    let mut facts = vec![
        fact(
            "messages",
            "from the hand-over, or the launch time, to the listener's kernel".to_owned(),
            FactLevel::Ok,
        ),
        fact("place", place.to_owned(), FactLevel::Ok),
    ];
    let errors = cases.iter().map(|(_, compiled)| compiled.launch_error.text());
    let notes = cases.iter().flat_map(|(_, compiled)| compiled.notes.clone());
    let errors = errors.map(|error| fact("launch error", error, FactLevel::Ok));
    let notes = notes.map(|note| fact("otherwise than in the file", note, FactLevel::Degraded));
    for fact in errors.chain(notes) {
        if !facts.contains(&fact) {
            facts.push(fact);
        }
    }
    facts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(point: TimestampPoint, seq: u32, at_ns: i64) -> Record {
        Record { at_ns, seq, frame_len: 0, point, station: 0, flow: 0, flags: 0, clock: 0 }
    }

    fn measured_of(messages: &Messages, sent: Sent, launch_delta: Option<Span>) -> Measured {
        let promise =
            Promise { launch_delta, at_most: Some(Span::from_ns(80)), ..Promise::example() };
        messages.measured(sent, &promise, &(-1_000..9_000), transfer_bins(Span::from_ms(1)))
    }

    #[test]
    fn t0_messages_are_counted_by_their_numbers_and_timed_from_hand_over_or_launch() {
        let mut messages = Messages::default();
        for seq in 0..3 {
            let at = i64::from(seq) * 1_000;
            messages.take(&record(TimestampPoint::Scheduled, seq, at));
            messages.take(&record(TimestampPoint::Send, seq, at - 200));
        }
        messages.take(&record(TimestampPoint::RxSw, 0, 50));
        messages.take(&record(TimestampPoint::RxSw, 2, 2_070));
        messages.take(&record(TimestampPoint::RxSw, 2, 2_090));
        let sent = Sent { sent: 3, launch_missed: 1, timeouts: 0 };
        let measured = measured_of(&messages, sent, None);
        assert_eq!((measured.sent, measured.received, measured.lost), (3, 2, 1));
        assert_eq!((measured.twice, measured.launch_missed), (1, 1));
        let latency = measured.latency.unwrap();
        assert_eq!((latency.min_ns, latency.max_ns), (250, 290));
        assert_eq!(measured.late, 2);
        let measured = measured_of(&messages, sent, Some(Span::from_ns(20)));
        assert_eq!(measured.late, 1);
        let latency = measured.latency.unwrap();
        assert_eq!((latency.min_ns, latency.max_ns), (70, 110));
        assert!(measured_of(&Messages::default(), sent, None).latency.is_none());
    }
}
