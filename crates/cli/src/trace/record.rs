// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `trace record`: a capture of this kernel.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufWriter};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::str::FromStr;
use std::time::Instant;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use serde_json::json;
use timewire_base::{Span, parse_bytes};
use timewire_bpf::trace::{Levels, Mode, Settings, hooks};
use timewire_capture::capture::Writer;
use timewire_capture::event::Hook;
use timewire_capture::filter::Filter;
use timewire_capture::identity::TagPlace;
use timewire_host::tool::netns_path;
use timewire_runner::markers::Marks;
use timewire_runner::trace::collect::{
    ClockOffset, Collected, Collector, Request, Sink, StationAt,
};
use timewire_runner::trace::live::{Nowhere, Shown};
use timewire_sys::event::{EndRequests, wait_readable};
use timewire_sys::marker::Users;
use timewire_sys::namespace::Process;

use super::{hook_of, live};
use crate::output::{self, ProgressLine};
use crate::traffic::parse_interval;

#[derive(Debug, Args)]
pub struct Record {
    /// The capture, such as `here.twc`
    #[arg(short, long, value_name = "FILE",
          required_unless_present_any = ["only", "live"])]
    pub out: Option<PathBuf>,
    /// Only these packets, in tcpdump's words: 'udp port 7000 or ether proto 0x88f7'
    #[arg(long, value_name = "FILTER", default_value = "")]
    pub filter: String,
    /// A station: a network namespace of `ip netns`, or NAME=FILE; may be repeated [default: the
    /// own namespace]
    #[arg(long, value_name = "NETNS")]
    pub station: Vec<StationArg>,
    /// Keep one of so many packets, each with its whole way
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub keep_one_of: u32,
    /// Look here only; `trace info` names the hooks of a capture
    #[arg(long, value_name = "HOOK,...", value_delimiter = ',', value_parser = parse_hook)]
    pub hooks: Vec<Hook>,
    /// Look at interrupts, deferred work and polls, too
    #[arg(long, conflicts_with = "hooks")]
    pub interrupts: bool,
    /// Look at system calls that send, too: each such call of this host costs a little
    #[arg(long, conflicts_with = "hooks")]
    pub calls: bool,
    /// Look at frames in drivers, too: an XDP program on every interface of the stations whose
    /// driver can have one and that has none yet. Some NICs reset their link for it, at the start
    /// and at the end
    #[arg(long)]
    pub xdp: bool,
    /// Look at transmit timestamps, too: when the kernel tells a sender that its frame has left,
    /// and the NIC's timestamp. For sockets that ask for timestamps; needs fentry or kprobes
    #[arg(long, conflicts_with = "hooks")]
    pub transmit_timestamps: bool,
    /// How to look at what is no tracepoint in every kernel (sockets before Linux 6.3, transmit
    /// timestamps): auto, tracepoint, fentry or kprobe
    #[arg(long, value_name = "LEVEL", default_value = "auto")]
    pub level: Levels,
    /// The messages' own tag: bytes OFFSET to OFFSET+WIDTH of their payload; `be` when the first
    /// is the most significant
    #[arg(long, value_name = "OFFSET:WIDTH[:be]")]
    pub tag: Option<TagArg>,
    /// Leave out the marks that programs put
    #[arg(long)]
    pub no_marks: bool,
    /// Write no events: only count how often each hook was reached, or how long packets took
    /// between hooks, in the kernel
    #[arg(long, value_enum, conflicts_with_all = ["out", "no_marks"])]
    pub only: Option<Only>,
    /// Show packet paths while they are recorded, once a second: losses, stages, the slowest of
    /// each station. Without --out nothing is written
    #[arg(long, conflicts_with = "only")]
    pub live: bool,
    /// Room for the events of each CPU
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, default_value = "16384KiB")]
    pub ring: u32,
    /// End after so long
    #[arg(long = "for", value_name = "TIME", value_parser = parse_interval)]
    pub duration: Option<Span>,
    /// Write over a file that is there
    #[arg(long)]
    pub force: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// A command; the capture ends with it
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// What is kept instead of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Only {
    /// How often each hook was reached
    Counters,
    /// How long packets took from each hook to the next
    Histograms,
}

/// A station to be.
#[derive(Clone, Debug)]
pub struct StationArg(StationAt);

impl FromStr for StationArg {
    type Err = String;
    fn from_str(text: &str) -> Result<StationArg, String> {
        let (name, netns) = match text.split_once('=') {
            Some((name, file)) => (name, PathBuf::from(file)),
            None => (text, netns_path(text)),
        };
        if name.is_empty() || name.contains('/') {
            return Err(format!("`{text}` is no station: NETNS or NAME=FILE"));
        }
        Ok(StationArg(StationAt { name: name.to_owned(), netns }))
    }
}

/// Where a tag lies.
#[derive(Clone, Copy, Debug)]
pub struct TagArg(TagPlace);

impl FromStr for TagArg {
    type Err = String;
    fn from_str(text: &str) -> Result<TagArg, String> {
        let wrong = || format!("`{text}` is no place: OFFSET:WIDTH[:be], WIDTH 1, 2, 4 or 8");
        let (place, big_endian) = match text.strip_suffix(":be") {
            Some(place) => (place, true),
            None => (text, false),
        };
        let (offset, width) = place.split_once(':').ok_or_else(wrong)?;
        let offset = offset.parse().map_err(|_| wrong())?;
        let width = width.parse().ok().filter(|width| [1, 2, 4, 8].contains(width));
        Ok(TagArg(TagPlace { offset, width: width.ok_or_else(wrong)?, big_endian }))
    }
}

fn parse_hook(text: &str) -> Result<Hook, String> {
    hook_of(text, hooks())
}

fn settings(args: &Record, filter: &Filter) -> anyhow::Result<Settings> {
    let usual = Settings::default();
    let interrupts =
        [Hook::IrqEntry, Hook::IrqExit, Hook::SoftirqEntry, Hook::SoftirqExit, Hook::NapiPoll];
    let mut wanted: BTreeSet<Hook> = match args.hooks[..] {
        [] => usual.hooks.iter().copied().collect(),
        ref named => named.iter().copied().collect(),
    };
    if args.interrupts {
        wanted.extend(interrupts);
    }
    if args.calls {
        wanted.insert(Hook::SendEnter);
    }
    if args.xdp {
        wanted.insert(Hook::Xdp);
    }
    if args.transmit_timestamps {
        wanted.insert(Hook::TransmitTimestamp);
    }
    Ok(Settings {
        hooks: wanted.into_iter().collect(),
        levels: args.level,
        filter: filter.compile()?,
        mode: match args.only {
            None => Mode::Events,
            Some(Only::Counters) => Mode::Counters,
            Some(Only::Histograms) => Mode::Histograms,
        },
        keep_one_of: args.keep_one_of,
        tag: args.tag.map(|tag| tag.0),
        ring_bytes: usize::try_from(args.ring).context("the ring is too large")?,
        ..usual
    })
}

pub fn run(args: &Record) -> anyhow::Result<ExitCode> {
    let filter = Filter::parse(&args.filter)?;
    let mut stations: Vec<StationAt> = args.station.iter().map(|it| it.0.clone()).collect();
    if stations.is_empty() {
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname")?.trim().to_owned();
        stations.push(StationAt { name, netns: PathBuf::from("/proc/self/ns/net") });
    }
    let names: BTreeSet<&str> = stations.iter().map(|station| station.name.as_str()).collect();
    if names.len() < stations.len() {
        bail!("two stations have the same name");
    }
    let requests = EndRequests::new().context("cannot wait for signals")?;
    let listens = !args.no_marks && args.only.is_none();
    let marks = listens.then(|| Marks::open(Users::All)).transpose();
    let request = Request {
        settings: settings(args, &filter)?,
        filter: filter.text().to_owned(),
        stations,
        meta: BTreeMap::from([("arguments".to_owned(), crate::traffic::arguments().join(" "))]),
        offset: timewire_datapath::ptp_offset().map(|offset| Box::new(offset) as ClockOffset),
        marks: marks.context("cannot listen to the marks of programs")?,
    };
    let show = args.live.then(|| live::Show::new(args.json));
    let view = |header: &_| show.as_ref().map(|show| show.start(header)).transpose();
    match &args.out {
        Some(out) => {
            let place = CaptureFile::new(out, args.force)?;
            let collector = Collector::start(request, |header: &_| {
                let sink = Writer::new(BufWriter::new(place.create()?), header)?;
                Ok(Shown { sink, live: view(header)? })
            });
            let collector = collector.inspect_err(|_| place.restore())?;
            let child = spawn(args, show.as_ref()).inspect_err(|_| place.restore())?;
            place.keep();
            let status = wait(args, &requests, &collector, show.as_ref(), child)?;
            let (shown, tracer, collected) = collector.finish()?;
            drop(tracer);
            let written: BufWriter<File> = shown.sink.finish().context("cannot end the capture")?;
            written.into_inner().context("cannot end the capture")?.sync_all()?;
            live::end(shown.live)?;
            said(args, &collected, status)
        }
        None if args.live => {
            let collector = Collector::start(request, |header: &_| {
                Ok(Shown { sink: Nowhere, live: view(header)? })
            })?;
            let child = spawn(args, show.as_ref())?;
            let status = wait(args, &requests, &collector, show.as_ref(), child)?;
            let (shown, tracer, collected) = collector.finish()?;
            drop(tracer);
            live::end(shown.live)?;
            said(args, &collected, status)
        }
        None => {
            let collector =
                Collector::start(request, |header: &_| Writer::new(std::io::sink(), header))?;
            let child = spawn(args, None)?;
            let status = wait(args, &requests, &collector, None, child)?;
            let (_, tracer, collected) = collector.finish()?;
            let matched = tracer.matched();
            let intervals = tracer.intervals()?;
            let mut text = String::new();
            if args.json {
                let of = |(hook, count): (&Hook, &u64)| (hook.name().to_owned(), (*count).into());
                let matched: serde_json::Map<String, serde_json::Value> =
                    matched.iter().map(of).collect();
                let intervals: Vec<_> = intervals
                    .iter()
                    .map(
                        |it| json!({ "from": it.from.name(), "to": it.to.name(), "bins": it.bins }),
                    )
                    .collect();
                let data = json!({ "matched": matched, "intervals": intervals,
                                   "hooks": collected.hooks });
                text = format!("{data}\n");
            } else {
                for (hook, count) in &matched {
                    text += &format!("{:<16} {count:>12}\n", hook.name());
                }
                for interval in &intervals {
                    text += &histogram(interval.from, interval.to, &interval.bins);
                }
            }
            output::print(&text)?;
            ended(collected_lost(&collected), status)
        }
    }
}

/// Where a capture is written. What is in it stays when this program is killed, so it is not
/// written beside its place; what it replaces is put aside until the capture has begun.
struct CaptureFile<'a> {
    path: &'a Path,
    /// Where the file that was there is meanwhile.
    aside: Option<PathBuf>,
    is_begun: Cell<bool>,
}

impl CaptureFile<'_> {
    fn new(path: &Path, force: bool) -> anyhow::Result<CaptureFile<'_>> {
        let cannot = || format!("cannot write {}", path.display());
        let name = path.file_name().with_context(|| format!("{}: no file name", cannot()))?;
        let there = match std::fs::symlink_metadata(path) {
            Ok(there) => there,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(CaptureFile { path, aside: None, is_begun: Cell::new(false) });
            }
            Err(error) => return Err(error).with_context(cannot),
        };
        if !force {
            bail!("{}: it is there; --force writes over it", cannot());
        }
        if there.is_dir() {
            bail!("{}: it is a directory", cannot());
        }
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}.old", std::process::id()));
        let aside = Some(path.with_file_name(hidden));
        Ok(CaptureFile { path, aside, is_begun: Cell::new(false) })
    }

    fn create(&self) -> io::Result<File> {
        if let Some(aside) = &self.aside {
            std::fs::rename(self.path, aside)?;
        }
        let file = File::create_new(self.path);
        match (&file, &self.aside) {
            (Ok(_), _) => self.is_begun.set(true),
            (Err(_), Some(aside)) => drop(std::fs::rename(aside, self.path)),
            (Err(_), None) => {}
        }
        file
    }

    /// As if nothing had been recorded. What cannot be restored stays beside.
    fn restore(&self) {
        if !self.is_begun.get() {
            return;
        }
        let _ = match &self.aside {
            Some(aside) => std::fs::rename(aside, self.path),
            None => std::fs::remove_file(self.path),
        };
    }

    /// The capture has begun; what it replaces goes.
    fn keep(&self) {
        if let Some(aside) = &self.aside {
            let _ = std::fs::remove_file(aside);
        }
    }
}

/// Starts the command, if there is one.
fn spawn(args: &Record, show: Option<&live::Show>) -> anyhow::Result<Option<Child>> {
    let [program, arguments @ ..] = &args.command[..] else { return Ok(None) };
    let mut command = Command::new(program);
    if let Some(show) = show {
        show.adopt(&mut command).context("cannot listen to the command")?;
    }
    let spawned = command.args(arguments).spawn();
    Ok(Some(spawned.with_context(|| format!("cannot run `{program}`"))?))
}

/// Waits for the end; the command's status, when it ended by itself.
fn wait<S: Sink>(
    args: &Record,
    requests: &EndRequests,
    collector: &Collector<S>,
    show: Option<&live::Show>,
    mut child: Option<Child>,
) -> anyhow::Result<Option<ExitStatus>> {
    let began = Instant::now();
    let mut progress = show.is_none().then(ProgressLine::new);
    // Without a file there is nobody else to record for.
    let is_unseen = || args.out.is_none() && show.is_some_and(live::Show::is_gone);
    let status = loop {
        if let Some(progress) = &mut progress {
            progress.line(&format!("{} events", collector.events()));
        }
        let elapsed = Span::from_ns(i64::try_from(began.elapsed().as_nanos()).unwrap_or(i64::MAX));
        if let Some(status) = child.as_mut().map(Child::try_wait).transpose()?.flatten() {
            break Some(status);
        }
        let left = args.duration.map_or(POLL_INTERVAL, |whole| whole - elapsed);
        if left <= Span::ZERO || collector.is_over() || is_unseen() {
            break None;
        }
        if wait_readable(&[requests.as_fd()], Some(left.min(POLL_INTERVAL)))? && requests.take() {
            break None;
        }
    };
    if let Some(progress) = &mut progress {
        progress.clear();
    }
    if let Some(child) = child.filter(|_| status.is_none()) {
        stop(child, requests)?;
    }
    Ok(status)
}

/// How often the command is looked at.
const POLL_INTERVAL: Span = Span::from_ms(100);

/// Ends a command that still runs: asks it, and kills it when we are asked again.
fn stop(mut child: Child, requests: &EndRequests) -> anyhow::Result<()> {
    let process = Process::of(child.id()).context("cannot end the command")?;
    process.ask_to_end().context("cannot end the command")?;
    while child.try_wait()?.is_none() {
        if wait_readable(&[requests.as_fd()], Some(POLL_INTERVAL))? && requests.take() {
            child.kill().context("cannot end the command")?;
        }
    }
    Ok(())
}

fn collected_lost(collected: &Collected) -> u64 {
    collected.hooks.values().map(|count| count.lost).sum()
}

fn said(
    args: &Record,
    collected: &Collected,
    status: Option<ExitStatus>,
) -> anyhow::Result<ExitCode> {
    let lost = collected_lost(collected);
    if args.json {
        let data = json!({
            "events": collected.events,
            "lost": lost,
            "hooks": collected.hooks,
            "scattered": collected.troubles.scattered,
            "evicted": collected.troubles.evicted,
        });
        let data = if args.live { json!({ "type": "result", "data": data }) } else { data };
        output::print(&format!("{data}\n"))?;
    } else {
        let mut text = match lost {
            0 => "no event was lost\n".to_owned(),
            lost => format!("{lost} events were LOST: give --ring more, or filter\n"),
        };
        if collected.troubles.evicted > 0 {
            let evicted = collected.troubles.evicted;
            text +=
                &format!("{evicted} packets were no longer followed: too many were under way\n");
        }
        text += &format!("{} events\n", collected.events);
        for (hook, count) in &collected.hooks {
            text += &format!("  {hook:<16} {:>12} {:>10} lost\n", count.written, count.lost);
        }
        output::print(&text)?;
    }
    ended(lost, status)
}

fn ended(lost: u64, status: Option<ExitStatus>) -> anyhow::Result<ExitCode> {
    let failed = status.is_some_and(|status| !status.success());
    if let Some(status) = status.filter(|status| !status.success()) {
        say!("the command ended with {status}");
    }
    Ok(if lost > 0 || failed { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

fn histogram(from: Hook, to: Hook, bins: &[u64]) -> String {
    let all: u64 = bins.iter().sum();
    let mut text = format!("\n{} -> {}: {all}\n", from.name(), to.name());
    let used = bins.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
    let first = bins.iter().position(|count| *count > 0).unwrap_or(0);
    for (power, count) in bins.iter().enumerate().take(used).skip(first) {
        let share = count * 40 / all.max(1);
        let bar = "#".repeat(usize::try_from(share).unwrap_or(0));
        text += &format!("  from {:>11} ns {count:>12} {bar}\n", 1_u64 << power);
    }
    text
}
