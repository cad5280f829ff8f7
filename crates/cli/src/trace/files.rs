// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `trace info`, `cut`, `merge` and `export`.

use std::collections::BTreeSet;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use serde_json::{Value as Json, json};
use timewire_base::Span;
use timewire_capture::align::Twins;
use timewire_capture::capture::{
    COLUMNS, CaptureError, CaptureHeader, Cut, Format, Info, Item, Merge, Names, ONCE, Writer,
    export as write_events, export_packets, rows, sees_packets,
};
use timewire_capture::event::Hook;
use timewire_capture::filter::Filter;
use timewire_capture::table::Column;
use timewire_report::parquet::ParquetWriter;

use super::{Capture, code_of, hook_of, is_whole, of, open, parse_flow, was_ended};
use crate::new_file::{NewFile, cannot_write};
use crate::output;
use crate::traffic::parse_time;

#[derive(Debug, Args)]
pub struct InfoArgs {
    /// Captures
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Print JSON: an object for each capture
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct CutArgs {
    /// The capture
    pub file: PathBuf,
    /// The part
    #[arg(short, long, value_name = "FILE")]
    pub out: PathBuf,
    /// From so long after the first event on
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub from: Option<Span>,
    /// Up to so long after the first event
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub until: Option<Span>,
    /// Only of this station; may be repeated
    #[arg(long, value_name = "NAME")]
    pub station: Vec<String>,
    /// Only at these hooks
    #[arg(long, value_name = "HOOK,...", value_delimiter = ',', value_parser = hook)]
    pub hooks: Vec<Hook>,
    /// Only of this flow, as `trace export` shows it (0x0123abcd); may be repeated
    #[arg(long, value_name = "FLOW", value_parser = parse_flow)]
    pub flow: Vec<u32>,
    /// Only these, in tcpdump's words; also 'thread NAME', 'hook NAME', 'cpu N'
    #[arg(long, value_name = "FILTER")]
    pub filter: Option<String>,
    /// Write over a file that is there
    #[arg(long)]
    pub force: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct MergeArgs {
    /// Captures of one kernel
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// The whole
    #[arg(short, long, value_name = "FILE")]
    pub out: PathBuf,
    /// Write over a file that is there
    #[arg(long)]
    pub force: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct ExportArgs {
    /// The capture
    pub file: PathBuf,
    /// How
    #[arg(long = "as", value_enum, value_name = "FORMAT")]
    pub format: FormatArg,
    /// At these hooks, of pcapng; those that see packets [default: driver-start,stack-receive,drop]
    #[arg(long, value_name = "HOOK,...", value_delimiter = ',', value_parser = packet_hook)]
    pub hooks: Vec<Hook>,
    /// Into this file [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Write over a file that is there
    #[arg(long)]
    pub force: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FormatArg {
    /// Columns, with a first line of names
    Csv,
    /// An object on each line
    Jsonl,
    /// The same columns, as Parquet
    Parquet,
    /// Packets for Wireshark, with the headers that the capture knows
    Pcapng,
}

fn hook(text: &str) -> Result<Hook, String> {
    hook_of(text, Hook::ALL.into_iter())
}

fn packet_hook(text: &str) -> Result<Hook, String> {
    hook_of(text, Hook::ALL.into_iter().filter(|hook| sees_packets(*hook)))
}

/// A capture could not be read, or what is made of it not be written.
fn failed(file: &Path) -> impl FnOnce(CaptureError) -> anyhow::Error {
    |error| match error {
        CaptureError::Io(error) if cannot_write(&error) => error.into(),
        source => of(file)(source).into(),
    }
}

/// As [`failed`], where one of several captures failed.
fn either(error: CaptureError) -> anyhow::Error {
    match error {
        CaptureError::Io(error) if cannot_write(&error) => error.into(),
        error => error.into(),
    }
}

/// What is in a file.
pub(super) fn about(file: &Path) -> anyhow::Result<(Info, Names)> {
    Ok(Info::read(&mut open(file)?).map_err(of(file))?)
}

pub fn info(args: &InfoArgs) -> anyhow::Result<ExitCode> {
    for file in &args.files {
        let (info, names) = about(file)?;
        if args.json {
            let mut data = serde_json::to_value(&info)?;
            data["file"] = json!(file);
            data["lost"] = json!(info.lost());
            let flows =
                names.flows.iter().map(|(flow, name)| json!({ "flow": flow, "name": name }));
            data["flows"] = flows.collect();
            data["clock"] = clock(&names).0;
            data["counters"] = counters(&names);
            data["histograms"] = histograms(&names);
            data["ended_early"] = json!(was_ended()?);
            output::print(&format!("{data}\n"))?;
        } else {
            output::print(&text(file, &info, &names))?;
        }
        if was_ended()? {
            let events = info.events;
            return code_of(|| format!("the first {events} events of {}", file.display()));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn counters(names: &Names) -> Json {
    let each = names.counters.iter().map(|((process, thread, name), value)| {
        json!({ "name": name, "process": process, "thread": thread, "value": value })
    });
    each.collect()
}

/// Of each: how many values of 0, of 1 bit, of 2 bits and so on, and the sum of all.
fn histograms(names: &Names) -> Json {
    let each = names.histograms.iter().map(|((process, thread, name), (buckets, sum))| {
        let count: u64 = buckets.iter().sum();
        json!({ "name": name, "process": process, "thread": thread, "values": count,
                "sum": sum, "by_bits": buckets })
    });
    each.collect()
}

/// What is known of the host's clock: as JSON, and in words.
fn clock(names: &Names) -> (Json, String) {
    let samples = names.clocks.len();
    let offsets = names.clocks.iter().map(|sample| sample.offset_ns);
    let offset = offsets.collect::<Option<Vec<i64>>>().filter(|offsets| !offsets.is_empty());
    let largest = offset.and_then(|all| all.into_iter().max_by_key(|offset| offset.abs()));
    let words = match largest {
        Some(offset) => format!("{samples} samples; at most {offset} ns from the one it follows"),
        None => format!("{samples} samples; not known to be synchronised"),
    };
    (json!({ "samples": samples, "largest_offset_ns": largest }), words)
}

fn text(file: &Path, info: &Info, names: &Names) -> String {
    let mut text = format!("{}\n", file.display());
    let mut line = |what: &str, value: String| text += &format!("  {what:<11} {value}\n");
    line(
        "lost",
        match info.lost() {
            0 => "nothing".to_owned(),
            lost => format!("{lost} events"),
        },
    );
    let health = &info.health;
    if !health.clean_end {
        line("end", format!("the writer did not end it; {} bytes are torn", health.torn_bytes));
    }
    if health.damaged > 0 || health.missing_blocks > 0 {
        let (places, blocks) = (health.damaged, health.missing_blocks);
        line("damage", format!("{places} places; {blocks} blocks are missing"));
    }
    for what in health.left_out() {
        line("unread", what);
    }
    let header = &info.header;
    line("host", format!("{}, Linux {}, by {}", header.host, header.kernel, header.writer));
    if !header.filter.is_empty() {
        line("filter", header.filter.clone());
    }
    if header.keep_one_of > 1 {
        line("kept", format!("1 packet of {}", header.keep_one_of));
    }
    let length = info.first_ns.zip(info.last_ns).map_or(0, |(first, last)| last - first);
    let length = Span::from_ns(i64::try_from(length).unwrap_or(i64::MAX));
    line("events", format!("{} in {length}, {:.2} bytes each", info.events, info.bytes_per_event));
    line("clock", clock(names).1);
    for (name, count) in &info.stations {
        let name = if name.is_empty() { "(no station)" } else { name };
        line("station", format!("{name:<16} {count:>12}"));
    }
    for (name, count) in &info.hooks {
        let lost = info.losses.as_ref().and_then(|losses| losses.get(name));
        let lost = lost.map_or(0, |count| count.lost);
        line("hook", format!("{name:<16} {count:>12} {lost:>10} lost"));
    }
    for (reason, count) in &info.drops {
        line("dropped", format!("{count:>12} {reason}"));
    }
    if let Some(levels) = header.meta.get("levels") {
        line("beyond", format!("tracepoints: {levels}"));
    }
    for (hook, why) in &header.missing {
        line("missing", format!("{hook}: {why}"));
    }
    for (flow, name) in &names.flows {
        line("flow", format!("{flow:#010x} {name}"));
    }
    for ((process, thread, name), value) in &names.counters {
        line("counter", format!("{name} of process {process}, thread {thread}: {value}"));
    }
    for ((process, thread, name), (buckets, sum)) in &names.histograms {
        let count: u64 = buckets.iter().sum();
        let whose = format!("{name} of process {process}, thread {thread}");
        line("histogram", format!("{whose}: {count} values, sum {sum}, by bits {buckets:?}"));
    }
    text
}

pub fn cut(args: &CutArgs) -> anyhow::Result<ExitCode> {
    let filter = args.filter.as_deref().map(Filter::parse).transpose()?;
    let (info, names) = about(&args.file)?;
    is_whole()?;
    let first = info.first_ns.unwrap_or(0);
    let at = |after: Span| first.saturating_add(u64::try_from(after.as_ns()).unwrap_or(0));
    let mut stations = BTreeSet::new();
    for name in &args.station {
        stations.insert(station_of(&info.header, name)?);
    }
    let cut = Cut {
        from_ns: args.from.map(at),
        until_ns: args.until.map(at),
        stations,
        hooks: args.hooks.iter().copied().collect(),
        flows: args.flow.iter().copied().collect(),
        filter,
    };
    let out = NewFile::create(&args.out, args.force)?;
    let mut writer = Writer::new(out, &cut.header(&info.header))?;
    let report = cut.copy(&mut open(&args.file)?, &names, &mut writer);
    let report = report.map_err(failed(&args.file))?;
    writer.finish()?.finish()?;
    let part = || format!("the first {} events", report.kept + report.left_out);
    if args.json {
        let (kept, left_out) = (report.kept, report.left_out);
        let undecided = report.undecided;
        let data = json!({ "kept": kept, "left_out": left_out, "undecided": undecided,
                           "ended_early": was_ended()? });
        output::print(&format!("{data}\n"))?;
        return code_of(part);
    }
    let mut text = format!("{} events kept, {} left out\n", report.kept, report.left_out);
    if report.undecided > 0 {
        let undecided = report.undecided;
        text +=
            &format!("of {undecided} of those the capture does not tell what the filter asks\n");
    }
    output::print(&text)?;
    code_of(part)
}

fn station_of(header: &CaptureHeader, name: &str) -> anyhow::Result<u8> {
    let place = header.stations.iter().position(|station| station.name == name);
    let Some(place) = place else {
        let names: Vec<&str> = header.stations.iter().map(|it| it.name.as_str()).collect();
        bail!("there is no station `{name}` in it; there are {}", names.join(", "));
    };
    u8::try_from(place).context("too many stations")
}

pub fn merge(args: &MergeArgs) -> anyhow::Result<ExitCode> {
    let all: Vec<(Info, Names)> =
        args.files.iter().map(|file| about(file)).collect::<Result<_, _>>()?;
    let sources: Vec<_> = all.iter().map(|(info, names)| (&info.header, names)).collect();
    let merge = Merge::new(&sources)?;
    not_twins(&args.files)?;
    is_whole()?;
    let out = NewFile::create(&args.out, args.force)?;
    let mut writer = Writer::new(out, merge.header())?;
    let mut readers: Vec<_> = args.files.iter().map(|file| open(file)).collect::<Result<_, _>>()?;
    let report = merge.copy(&mut readers, &mut writer).map_err(either)?;
    writer.finish()?.finish()?;
    let part = || format!("the first {} events", report.events.iter().sum::<u64>());
    if args.json {
        let data = json!({ "events": report.events, "ended_early": was_ended()? });
        output::print(&format!("{data}\n"))?;
        return code_of(part);
    }
    let each = args.files.iter().zip(&report.events);
    let lines = each.map(|(file, events)| format!("{events:>12} {}\n", file.display()));
    output::print(&lines.collect::<String>())?;
    code_of(part)
}

/// Captures of one kernel that saw the same packets are not to be merged: each packet would be
/// there twice.
fn not_twins(files: &[PathBuf]) -> anyhow::Result<()> {
    let mut twins = Twins::new(files.len(), MAX_EVENTS);
    for (capture, file) in files.iter().enumerate() {
        let mut reader = open(file)?;
        let stations = reader.header().stations.clone();
        while let Some(item) = reader.next().map_err(of(file))? {
            if let Item::Event(event) = item {
                twins.event(capture, &stations, &event);
            }
        }
    }
    for (b, second) in files.iter().enumerate() {
        for (a, first) in files[..b].iter().enumerate() {
            let shared = twins.between(a, b);
            if shared.is_one_kernel() {
                bail!(
                    "{} saw what {} saw ({} of {} events that were compared): merged, each packet \
                     would be there twice; leave one of them out",
                    second.display(),
                    first.display(),
                    shared.same_time,
                    shared.looked_at.1
                );
            }
        }
    }
    Ok(())
}

/// Most events of each capture that are compared.
const MAX_EVENTS: usize = 1 << 16;

pub fn export(args: &ExportArgs) -> anyhow::Result<ExitCode> {
    if !args.hooks.is_empty() && args.format != FormatArg::Pcapng {
        bail!("--hooks is of --as pcapng; `timewire trace cut --hooks` makes a part of a capture");
    }
    let (_, names) = about(&args.file)?;
    is_whole()?;
    let mut reader = open(&args.file)?;
    match &args.out {
        Some(out) => {
            let mut file = NewFile::create(out, args.force)?;
            let said =
                write_as(args, &mut reader, &names, &mut file).map_err(failed(&args.file))?;
            file.finish()?;
            output::print(&said)?;
            code_of(|| said.trim_end().to_owned())
        }
        None => {
            let mut stdout = BufWriter::new(io::stdout());
            let written = write_as(args, &mut reader, &names, &mut stdout);
            let flushed = written.and_then(|_| Ok(stdout.flush()?));
            match flushed {
                Err(CaptureError::Io(error)) => Err(error.into()),
                other => {
                    other?;
                    code_of(|| "a part of the capture".to_owned())
                }
            }
        }
    }
}

/// Writes it; what there is to say of that.
fn write_as(
    args: &ExportArgs,
    reader: &mut Capture,
    names: &Names,
    out: &mut (impl Write + Send),
) -> Result<String, CaptureError> {
    let format = match args.format {
        FormatArg::Csv => Format::Csv,
        FormatArg::Jsonl => Format::JsonLines,
        FormatArg::Parquet => {
            let columns = COLUMNS.map(|(name, kind)| Column::new(name, kind));
            let mut table = ParquetWriter::new(out, "events of a capture", &columns)?;
            let count = rows(reader, names, &mut |cells| table.row(cells))?;
            table.finish()?;
            return Ok(format!("{count} events\n"));
        }
        FormatArg::Pcapng => {
            let hooks = if args.hooks.is_empty() { &ONCE[..] } else { &args.hooks };
            let report = export_packets(reader, names, hooks, out)?;
            let without = match report.without_bytes {
                0 => String::new(),
                without => format!(", {without} of no named flow and so without headers"),
            };
            return Ok(format!("{} packets{without}\n", report.packets));
        }
    };
    let count = write_events(reader, names, format, out)?;
    Ok(format!("{count} events\n"))
}
