// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `trace show`: packet paths of captures, as tables, pages and files.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::{Context as _, bail};
use clap::Args;
use serde::Deserialize;
use serde_json::{Value as Json, json};
use timewire_base::{CyclicWindows, Span, parse_span};
use timewire_capture::capture::{CaptureHeader, Note};
use timewire_capture::event::Event;
use timewire_capture::packet_path::analysis::Wanted;
use timewire_capture::packet_path::chain::{Chain, ChainPoint, ChainReport};
use timewire_capture::packet_path::culprit::Known;
use timewire_capture::packet_path::table::{Filter, Scope};
use timewire_capture::packet_path::worst::{Judged, Keep};
use timewire_capture::packet_path::{Observer, PacketPath, Parts, Point, export};
use timewire_capture::table::{csv_head, csv_line};
use timewire_model::scenario::FileKind;
use timewire_model::tdm::TdmSchedule;
use timewire_report::packet_paths::{self, PacketPathsInput};
use timewire_report::parquet::ParquetWriter;
use timewire_report::timeline::{Gather, GatherOptions, Names, TimelineInput};
use timewire_report::{LongPacketPath, perfetto};
use timewire_runner::study::{Audience, ClockWay, Studied, Study};
use timewire_tsn::file::with_slots;

use super::{code_of, is_whole, open, parse_flow};
use crate::ending::Ending;
use crate::input;
use crate::new_file::NewFile;
use crate::output::{self, ProgressLine};
use crate::traffic::{clock_error, parse_interval, parse_time};

#[derive(Debug, Args)]
pub struct Show {
    /// Captures, of one host or of several; the clock of the first is that of all
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// How many of the longest packet paths are shown one by one
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub worst: usize,
    /// Only packet paths of this flow, as `trace info` shows it (0x0123abcd); may be repeated
    #[arg(long, value_name = "FLOW", value_parser = parse_flow, help_heading = "Which")]
    pub flow: Vec<u32>,
    /// Only packet paths that pass this station; may be repeated
    #[arg(long, value_name = "NAME", help_heading = "Which")]
    pub station: Vec<String>,
    /// Only packet paths in which a stage took longer, such as qdisc=1ms
    #[arg(long, value_name = "STAGE=TIME", help_heading = "Which")]
    pub longer: Option<Longer>,
    /// Only packet paths that begin so long after the first event, or later
    #[arg(long, value_name = "TIME", value_parser = parse_time, help_heading = "Which")]
    pub from: Option<Span>,
    /// Only packet paths that begin before that
    #[arg(long, value_name = "TIME", value_parser = parse_time, help_heading = "Which")]
    pub until: Option<Span>,
    /// Also packet paths that are lossy or ambiguous, or whose packet no program received
    #[arg(long, help_heading = "Which")]
    pub all: bool,

    /// A chain of markers and hooks that one tag passes, NAME=POINT,POINT,...[@DEADLINE]; a POINT
    /// is NAME or STATION.NAME; may be repeated
    #[arg(long, value_name = "CHAIN", help_heading = "Judge")]
    pub chain: Vec<ChainArg>,
    /// Exit code 1 when a packet path from end to end takes this long, or may do so within the
    /// bound of clocks
    #[arg(long, value_name = "TIME", value_parser = parse_interval, help_heading = "Judge")]
    pub below: Option<Span>,
    /// The clocks of two hosts are at most so far apart, where neither packets nor synchronisation
    /// tell it [default: that of TIMEWIRE_CLOCK_ERROR]
    #[arg(long, value_name = "TIME", value_parser = parse_time, help_heading = "Judge")]
    pub clock_error: Option<Span>,
    /// When stations may send: a network file, `case.json` of a run, or what `tdm show --json`
    /// prints
    #[arg(long, value_name = "FILE", help_heading = "Judge")]
    pub schedule: Option<PathBuf>,

    /// Write the tables, and the longest packet paths drawn, as a page
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub html: Option<PathBuf>,
    /// Write a file for the Perfetto UI
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub perfetto: Option<PathBuf>,
    /// Write each packet path as a line of CSV
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub csv: Option<PathBuf>,
    /// Write the same table as Parquet
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub parquet: Option<PathBuf>,
    /// Write each packet path as a line of JSON
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub jsonl: Option<PathBuf>,
    /// Write over files that are there
    #[arg(long, help_heading = "Output")]
    pub force: bool,
    /// Print JSON
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

/// A stage and how long it took.
#[derive(Clone, Copy, Debug)]
pub struct Longer(Parts, Span);

impl FromStr for Longer {
    type Err = String;
    fn from_str(text: &str) -> Result<Longer, String> {
        let (stage, time) = text.split_once('=').ok_or(format!("`{text}` is not STAGE=TIME"))?;
        let names = || Parts::ALL.iter().map(|(_, name)| *name).collect::<Vec<_>>().join(", ");
        let parts = Parts::from_name(stage)
            .ok_or_else(|| format!("`{stage}` is no stage; there are {}", names()))?;
        Ok(Longer(parts, parse_span(time).map_err(|error| error.to_string())?))
    }
}

/// A chain.
#[derive(Clone, Debug)]
pub struct ChainArg(Chain);

impl FromStr for ChainArg {
    type Err = String;
    fn from_str(text: &str) -> Result<ChainArg, String> {
        let wrong = || format!("`{text}` is not NAME=POINT,POINT,...[@DEADLINE]");
        let (name, rest) = text.split_once('=').ok_or_else(wrong)?;
        let (points, deadline) = match rest.rsplit_once('@') {
            Some((points, deadline)) => {
                let deadline = parse_span(deadline).map_err(|error| error.to_string())?;
                (points, Some(deadline))
            }
            None => (rest, None),
        };
        let points: Result<Vec<ChainPoint>, String> = points.split(',').map(str::parse).collect();
        let points = points?;
        if name.is_empty() || points.len() < 2 {
            return Err(wrong());
        }
        Ok(ChainArg(Chain { name: name.to_owned(), points, deadline }))
    }
}

/// What is written while captures are read.
struct Writing {
    names: Names,
    known: Known,
    page: Option<Gather>,
    perfetto: Option<Gather>,
    csv: Option<NewFile>,
    parquet: Option<ParquetWriter<NewFile>>,
    jsonl: Option<NewFile>,
    failed: Option<io::Error>,
}

impl Writing {
    fn gathers(&mut self) -> impl Iterator<Item = &mut Gather> {
        [&mut self.page, &mut self.perfetto].into_iter().flatten()
    }

    fn keep(&mut self, result: io::Result<()>) {
        if let Err(error) = result {
            self.failed.get_or_insert(error);
        }
    }
}

impl Observer for Writing {
    fn event(&mut self, capture: usize, point: &Point, event: &Event) {
        self.gathers().for_each(|gather| gather.event(capture, point, event));
    }

    fn packet_path(&mut self, packet_path: &PacketPath) {
        self.gathers().for_each(|gather| gather.packet_path(packet_path));
        if self.csv.is_some() || self.parquet.is_some() {
            let row = export::row(packet_path, &self.known);
            if let Some(csv) = &mut self.csv {
                let written = csv.write_all(csv_line(&row).as_bytes());
                self.keep(written);
            }
            if let Some(parquet) = &mut self.parquet {
                let written = parquet.row(&row);
                self.keep(written);
            }
        }
        if let Some(jsonl) = &mut self.jsonl {
            let written =
                jsonl.write_all(export::json_line(packet_path, &self.known, None).as_bytes());
            self.keep(written);
        }
    }
}

impl Audience for Writing {
    fn header(&mut self, capture: usize, header: &CaptureHeader) {
        self.names.header(capture, header);
        self.known.header(capture, header);
        self.gathers().for_each(|gather| gather.names().header(capture, header));
    }

    fn note(&mut self, capture: usize, note: &Note) {
        self.names.note(capture, note);
        self.known.learn(capture, note);
        self.gathers().for_each(|gather| gather.names().note(capture, note));
    }
}

/// A file with a schedule in it, as a run has for each case, and as `tdm show --json` prints.
#[derive(Deserialize)]
struct WithSchedule {
    schedule: TdmSchedule,
}

/// When stations may send.
fn schedules(args: &Show) -> anyhow::Result<BTreeMap<String, CyclicWindows>> {
    let Some(file) = &args.schedule else { return Ok(BTreeMap::new()) };
    let schedule = match serde_json::from_str::<WithSchedule>(&input::text(file)?) {
        Ok(found) => found.schedule,
        Err(_) => {
            let read = input::read(file, FileKind::Segment, "nothing was shown", with_slots);
            read?.0.schedule
        }
    };
    Ok(windows_of(&schedule))
}

/// When the stations of a schedule may send, by their names.
pub fn windows_of(schedule: &TdmSchedule) -> BTreeMap<String, CyclicWindows> {
    let stations: BTreeSet<_> = schedule.slots().iter().map(|slot| &slot.station).collect();
    stations.iter().map(|name| (name.to_string(), schedule.windows_of(name))).collect()
}

/// The captures of a case of a run.
#[derive(Clone, Debug, Default)]
pub struct OfRun {
    /// One of all stations, or one of each host.
    pub captures: Vec<PathBuf>,
    /// When stations may send.
    pub windows: BTreeMap<String, CyclicWindows>,
    /// How far the clocks of the hosts are apart at most, where the captures do not tell it.
    pub clock_error_ns: Option<u64>,
}

/// The page of the captures of a run, and their longest packet paths.
///
/// **Errors**: one cannot be read.
pub fn run_page(title: &str, of_run: OfRun) -> anyhow::Result<(String, Vec<LongPacketPath>)> {
    let options = GatherOptions { packet_paths: RUN_PACKET_PATHS, ..GatherOptions::for_a_page() };
    let (gather, studied, names) = study_run(of_run, options)?;
    let longest = studied.analysis.longest();
    let told = longest.iter().take(REPORT_LONGEST).map(|it| long_packet_path(it, &names));
    let told = told.collect();
    Ok((page(&studied, &names, &finished(gather, title, &studied)), told))
}

/// The captures of a run as a file for Perfetto.
///
/// **Errors**: one cannot be read.
pub fn run_perfetto(title: &str, of_run: OfRun) -> anyhow::Result<Vec<u8>> {
    let (gather, studied, _) = study_run(of_run, GatherOptions::default())?;
    Ok(perfetto::file(&finished(gather, title, &studied)))
}

/// What was gathered, with the streams that have one number.
fn finished(gather: Gather, title: &str, studied: &Studied) -> TimelineInput {
    let input = gather.finish(title, studied.analysis.longest(), &studied.clocks);
    TimelineInput { clashes: clashes(studied.analysis.known()), ..input }
}

/// The page of what was gathered.
fn page(studied: &Studied, names: &Names, drawn: &TimelineInput) -> String {
    let analysis = &studied.analysis;
    let (counts, rows) = (analysis.counts(), analysis.rows());
    let input =
        PacketPathsInput { counts: &counts, rows: &rows, longest: analysis.longest(), names };
    packet_paths::page(&input, drawn, &notes(studied))
}

fn study_run(
    OfRun { captures, windows, clock_error_ns }: OfRun,
    options: GatherOptions,
) -> anyhow::Result<(Gather, Studied, Names)> {
    let study = Study {
        captures,
        wanted: Wanted {
            keep: Keep { longest: RUN_LONGEST, ..Keep::default() },
            ..Wanted::default()
        },
        schedules: windows,
        clock_error_ns,
        ..Study::default()
    };
    let mut writing = Writing {
        names: Names::default(),
        known: Known::default(),
        page: Some(Gather::new(options)),
        perfetto: None,
        csv: None,
        parquet: None,
        jsonl: None,
        failed: None,
    };
    let studied = study.run(&mut writing, &mut |_| true)?;
    let mut gather = writing.page.take().context("the page is there")?;
    show_schedules(&mut gather, &study, &studied);
    Ok((gather, studied, writing.names))
}

/// A packet path for the report, which draws no more than its stages.
fn long_packet_path(judged: &Judged, names: &Names) -> LongPacketPath {
    let packet_path = &judged.packet_path;
    let at = |point: usize| packet_path.points.get(point).map_or(0, |point| point.at_ns);
    let stages = packet_path.stages.iter().map(|stage| {
        let name = match stage.hop {
            0 => stage.parts.name(),
            hop => format!("{} (hop {hop})", stage.parts.name()),
        };
        (name, at(stage.from).saturating_sub(packet_path.from_ns()), stage.ns)
    });
    LongPacketPath {
        flow: names.flow(packet_path.flow()),
        end_to_end_ns: packet_path.end_to_end_ns(),
        sentence: judged.sentence.clone(),
        stages: stages.collect(),
    }
}

/// Packet paths on the page of a run, and how many of the longest are told about.
const RUN_PACKET_PATHS: usize = 1_000;
const RUN_LONGEST: usize = 20;
/// Of these, so many in the report itself.
const REPORT_LONGEST: usize = 3;

fn show_schedules(gather: &mut Gather, study: &Study, studied: &Studied) {
    for (capture, report) in studied.captures.iter().enumerate() {
        for (station, number) in report.header.stations.iter().zip(0_u8..) {
            if let Some(windows) = study.schedules.get(&station.name) {
                gather.schedule(capture, number, windows.clone());
            }
        }
    }
}

/// The time of the first event of the first capture on the clock of all, which is its own.
fn beginning(args: &Show) -> anyhow::Result<i64> {
    let (info, _) = super::files::about(&args.files[0])?;
    Ok(info.first_ns.and_then(|first| i64::try_from(first).ok()).unwrap_or(0))
}

fn filter(args: &Show) -> anyhow::Result<Filter> {
    let mut filter = Filter {
        flows: args.flow.iter().copied().collect(),
        longer: args.longer.map(|Longer(parts, than)| (parts, than)),
        any_status: args.all,
        any_outcome: args.all,
        ..Filter::default()
    };
    if args.from.is_some() || args.until.is_some() {
        let first = beginning(args)?;
        filter.from_ns = args.from.map_or(i64::MIN, |from| first.saturating_add(from.as_ns()));
        filter.to_ns = args.until.map_or(i64::MAX, |until| first.saturating_add(until.as_ns()));
    }
    let mut known = BTreeSet::new();
    for (capture, file) in args.files.iter().enumerate() {
        for (station, number) in open(file)?.header().stations.iter().zip(0_u8..) {
            if args.station.contains(&station.name) {
                filter.stations.insert((capture, number));
            }
            known.insert(station.name.clone());
        }
    }
    if let Some(unknown) = args.station.iter().find(|name| !known.contains(*name)) {
        let known: Vec<String> = known.into_iter().collect();
        bail!("there is no station `{unknown}`; there are {}", known.join(", "));
    }
    Ok(filter)
}

pub fn run(args: &Show) -> anyhow::Result<ExitCode> {
    let stated = clock_error(args.clock_error)?;
    let wanted = Wanted {
        filter: filter(args)?,
        keep: Keep {
            longest: args.worst,
            above_ns: args.below.map(|below| below.as_ns() - 1),
            ..Keep::default()
        },
        chains: args.chain.iter().map(|chain| chain.0.clone()).collect(),
        ..Wanted::default()
    };
    let study = Study {
        captures: args.files.clone(),
        wanted,
        schedules: schedules(args)?,
        clock_error_ns: stated.map(|error| error.as_ns().unsigned_abs()),
        ..Study::default()
    };
    let make = |file: &Option<PathBuf>| {
        file.as_ref().map(|file| NewFile::create(file, args.force)).transpose()
    };
    let thresholds_ns: Vec<i64> = args.below.iter().map(|below| below.as_ns()).collect();
    let gather = |file: &Option<PathBuf>, options: GatherOptions| {
        let options = GatherOptions { thresholds_ns: thresholds_ns.clone(), ..options };
        file.as_ref().map(|_| Gather::new(options))
    };
    let mut writing = Writing {
        names: Names::default(),
        known: Known::default(),
        page: gather(&args.html, GatherOptions::for_a_page()),
        perfetto: gather(&args.perfetto, GatherOptions::default()),
        csv: make(&args.csv)?,
        parquet: make(&args.parquet)?
            .map(|file| ParquetWriter::new(file, "packet paths", &export::columns()))
            .transpose()?,
        jsonl: make(&args.jsonl)?,
        failed: None,
    };
    let (html, trace) = (make(&args.html)?, make(&args.perfetto)?);
    if let Some(csv) = &mut writing.csv {
        csv.write_all(csv_head(&export::columns()).as_bytes())?;
    }
    let mut progress = ProgressLine::new();
    let ending = Ending::of_this_process()?;
    is_whole()?;
    let studied = study.run(&mut writing, &mut |share| {
        progress.line(&format!("{:.0} %", share * 100.0));
        !ending.is_asked()
    });
    progress.clear();
    let studied = studied?;
    stations_are_read(args, &studied)?;
    if let Some(error) = writing.failed {
        return Err(error.into());
    }
    let parquet = writing.parquet.map(ParquetWriter::finish).transpose()?;
    for file in [writing.csv, parquet, writing.jsonl].into_iter().flatten() {
        file.finish()?;
    }
    let title = title(args);
    let finish = |gather: Option<Gather>| {
        let mut gather = gather?;
        show_schedules(&mut gather, &study, &studied);
        Some(finished(gather, &title, &studied))
    };
    if let (Some(mut file), Some(input)) = (html, finish(writing.page)) {
        file.write_all(page(&studied, &writing.names, &input).as_bytes())?;
        file.finish()?;
    }
    if let (Some(mut file), Some(input)) = (trace, finish(writing.perfetto)) {
        let bytes = perfetto::file(&input);
        file.write_all(&bytes)?;
        file.finish()?;
        say!("{}", perfetto::said(&input, &bytes));
    }
    if args.json {
        output::json_line(&as_json(&studied)?)?;
    } else {
        output::print(&as_text(&studied, &writing.names))?;
    }
    if studied.ended_early {
        return code_of(|| part(&studied));
    }
    let kept = |chain: &ChainReport| chain.missed == 0 && chain.complete > 0;
    let missed = !studied.analysis.chains().iter().all(kept);
    let above = args.below.is_some() && studied.analysis.worst().count_above() > 0;
    let judged = args.below.is_some() || !args.chain.is_empty();
    let unread = unread(&studied);
    let inconclusive = judged && !missed && !above && !unread.is_empty();
    if inconclusive {
        say!("INCONCLUSIVE: {}", unread.join("; "));
    }
    Ok(if missed || above || inconclusive { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

/// What was gone through of captures.
fn part(studied: &Studied) -> String {
    let captures = studied.captures.iter().filter(|capture| capture.twin.is_none());
    let all: u64 = captures.map(|capture| capture.events).sum();
    format!("the first {} of {all} events", studied.analysis.counts().events)
}

/// What was read and not understood, had no room, or is in a capture that is left out: a limit that
/// is kept without it may be missed with it.
fn unread(studied: &Studied) -> Vec<String> {
    let mut unread = Vec::new();
    for capture in &studied.captures {
        let of = |what: String| format!("{}: {what}", capture.file.display());
        if let Some(twin) = &capture.twin {
            let (only, all) = (twin.only_here(), twin.shared.looked_at.1);
            let what = format!("left out, and {only} of {all} events are in it alone");
            unread.extend((only > 0).then(|| of(what)));
        } else {
            unread.extend(capture.health.left_out().into_iter().map(of));
        }
    }
    let counts = studied.analysis.counts();
    let doubtful = studied.analysis.worst().count_doubtful();
    if doubtful > 0 {
        unread.push(format!(
            "{doubtful} packet paths may be above --below, within the bound of clocks"
        ));
    }
    unread.extend(counts.left_out.iter().map(|(what, count)| format!("left out: {count} {what}")));
    unread
}

/// Stations that are asked for are in captures that are read.
fn stations_are_read(args: &Show, studied: &Studied) -> anyhow::Result<()> {
    let has = |name: &String, twin: bool| {
        let captures = studied.captures.iter().filter(move |it| it.twin.is_some() == twin);
        let stations = captures.flat_map(|it| &it.header.stations);
        stations.filter(|station| station.name == *name).count() > 0
    };
    let gone = args.station.iter().find(|name| has(name, true) && !has(name, false));
    match gone {
        Some(name) => bail!(
            "station `{name}` is in a capture that is left out, since another saw the same \
             packets of the same kernel; show that capture alone"
        ),
        None => Ok(()),
    }
}

fn title(args: &Show) -> String {
    let names = args.files.iter().map(|file| match file.file_stem() {
        Some(stem) => stem.to_string_lossy().into_owned(),
        None => file.display().to_string(),
    });
    names.collect::<Vec<_>>().join(", ")
}

/// Which captures are left out, what was not read of the others, and how their clocks are compared.
fn notes(studied: &Studied) -> String {
    let mut text = String::new();
    for capture in &studied.captures {
        let file = capture.file.display();
        if let Some(twin) = &capture.twin {
            let shared = &twin.shared;
            text += &format!(
                "{file} is left out: it is of the same kernel as {} and saw the same ({} of {} \
                 events that were compared, at the same time); {} are in it alone\n",
                twin.of.display(),
                shared.same_time,
                shared.looked_at.1,
                twin.only_here()
            );
        }
        for what in capture.health.left_out() {
            text += &format!("{file}: {what}\n");
        }
    }
    for clock in studied.clocks.aligned().iter().filter(|it| it.way != ClockWay::Itself) {
        let (how, to) = match &clock.way {
            ClockWay::Packets { to } => ("by the packets between it and", to.as_str()),
            ClockWay::Synchronised { to } => ("by synchronisation with", to.as_str()),
            ClockWay::Itself => continue,
        };
        text += &format!("clock of {}: {how} {to}, ", clock.host);
        text += &match clock.bound_ns {
            Some(bound) => {
                format!("within {}", Span::from_ns(i64::try_from(bound).unwrap_or(i64::MAX)))
            }
            None => "not known at all times".to_owned(),
        };
        if clock.stated {
            text += ", as --clock-error states";
        }
        if let Some(rate) = clock.rate_ppb {
            text += &format!("; {:+.3} ppm", rate / 1_000.0);
        }
        if clock.contradictions > 0 {
            text += &format!("; {} instants at which packets contradict", clock.contradictions);
        }
        text.push('\n');
    }
    for both in studied.clocks.agreements() {
        let (a, b) = &both.hosts;
        let (packets, by_packets) = both.packets_ns;
        let (synchronised, by_clock) = both.synchronised_ns;
        text += &format!(
            "{b} ahead of {a}: {packets} ns (bound {by_packets}) by packets, {synchronised} ns \
             (bound {by_clock}) by synchronisation: {}\n",
            match both.excess_ns {
                0 => "they agree".to_owned(),
                excess => format!("they CONTRADICT each other by {excess} ns"),
            }
        );
    }
    text
}

fn as_text(studied: &Studied, names: &Names) -> String {
    let analysis = &studied.analysis;
    let (counts, rows) = (analysis.counts(), analysis.rows());
    let input =
        PacketPathsInput { counts: &counts, rows: &rows, longest: analysis.longest(), names };
    let mut text = notes(studied) + &packet_paths::text(&input);
    clashes(analysis.known()).iter().for_each(|clash| text += &format!("{clash}\n"));
    for chain in analysis.chains() {
        text += &chain_text(&chain);
    }
    text
}

/// Streams that have one number, a line each.
fn clashes(known: &Known) -> Vec<String> {
    let (clashes, more) = known.clashes();
    let mut lines: Vec<_> =
        clashes.iter().map(|clash| format!("clash: {}", clash.describe())).collect();
    if more > 0 {
        lines.push(format!("clash: {more} more numbers are of several talkers"));
    }
    lines
}

fn chain_text(chain: &ChainReport) -> String {
    let mut text = format!(
        "\nchain {}: {} complete, {} late, {} lossy, {} ambiguous\n",
        chain.name, chain.complete, chain.missed, chain.lossy, chain.ambiguous
    );
    if chain.left_out > 0 {
        text += &format!("  {} times a tag had no room and was not followed\n", chain.left_out);
    }
    for (point, count) in &chain.unfinished {
        text += &format!("  {count} did not come to {point}\n");
    }
    let heads = ["min", "p50", "p99", "max", "mean"].map(|head| format!("{head:>9}"));
    text += &format!("  {:<50} {:>8}{}   share\n", "us", "n", heads.concat());
    for part in &chain.parts {
        let times = &part.times;
        let us = |ns: i64| format!("{:>5}.{:03}", ns / 1_000, (ns % 1_000).abs());
        let mean = times.mean_ns / 1_000.0;
        text += &format!(
            "  {:<50} {:>8}{}{mean:>9.3} {:>6.1} %\n",
            format!("{} -> {}", part.from, part.to),
            times.count,
            [times.min_ns, times.p50_ns, times.p99_ns, times.max_ns].map(us).concat(),
            part.share * 100.0
        );
    }
    text
}

fn as_json(studied: &Studied) -> anyhow::Result<Json> {
    let analysis = &studied.analysis;
    let known = analysis.known();
    let counts = analysis.counts();
    let packet_paths: Vec<Json> = counts
        .packet_paths
        .iter()
        .map(|((status, outcome), count)| {
            json!({ "status": status.name(), "outcome": outcome, "count": count })
        })
        .collect();
    let rows: Vec<Json> = analysis
        .rows()
        .iter()
        .map(|row| {
            let mut value = serde_json::to_value(row)?;
            if let Scope::Flow(flow) = row.scope {
                value["flow"] = json!(known.flow(flow));
            }
            Ok(value)
        })
        .collect::<Result<_, serde_json::Error>>()?;
    let drops = counts.drops.iter().map(|(&(capture, reason), count)| {
        json!({ "capture": capture, "reason": reason, "name": known.reason(capture, reason),
                "has_name": known.has_reason(capture, reason), "packet_paths": count })
    });
    let drops: Vec<Json> = drops.collect();
    let (clashes, more_clashes) = known.clashes();
    let longest = analysis.longest().iter().map(|judged| {
        serde_json::from_str(&export::json_line(&judged.packet_path, known, Some(&judged.sentence)))
    });
    Ok(json!({
        "schema": "timewire.packet-paths/1",
        "captures": studied.captures,
        "clocks": studied.clocks.aligned(),
        "agreements": studied.clocks.agreements(),
        "events": counts.events,
        "ended_early": studied.ended_early,
        "late": counts.late,
        "unmatched_receives": counts.unmatched_receives,
        "packet_paths": packet_paths,
        "drops": drops,
        "clashes": clashes,
        "more_clashes": more_clashes,
        "left_out": counts.left_out,
        "unread": unread(studied),
        "rows": rows,
        "longest": longest.collect::<Result<Vec<Json>, serde_json::Error>>()?,
        "above": analysis.worst().count_above(),
        "doubtful": analysis.worst().count_doubtful(),
        "chains": analysis.chains(),
    }))
}
