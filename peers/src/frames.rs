// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Timewire beside the tools that do the same: what a frame costs of the CPU, all in one run, in
//! turns, as ratios. `cargo peers frames [--rounds N] [--json]`, as root.
//!
//! isochron sends one frame of 64 bytes per millisecond to its receiver, as does `timewire talk` to
//! `timewire listen`, both over a packet socket and both asleep between frames. xdp-trafficgen
//! sends what it can.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::fetch::{self, Peers};
use crate::measure::{self, Counted, FAR, FAR_ADDRESS, FAR_IP, NEAR, Pair, far, per};
use crate::{command, timewire, touched};

/// Marks the process that has namespaces of its own.
const INSIDE: &str = "--inside";
const ROUNDS: usize = 5;
const WINDOW: Duration = Duration::from_secs(2);
const CYCLE_NS: u64 = 1_000_000;
/// Frames of the two runs of which the difference is counted.
const SHORT_RUN_FRAMES: u64 = 500;
const LONG_RUN_FRAMES: u64 = 2500;
const FLOOD_SHORT_RUN: u64 = 200_000;
const FLOOD_LONG_RUN: u64 = 600_000;
/// What isochron's sender leaves.
const LOG: &str = "/run/isochron.dat";
/// No end within a round.
const NO_END: u64 = 100_000;

/// What both are asked to do with each frame.
#[derive(Clone, Copy)]
struct Variant {
    name: &'static str,
    timewire: &'static [&'static str],
    isochron: &'static [&'static str],
    /// Whether isochron makes a table of it: without timestamps it has nothing to compute.
    has_report: bool,
}

const VARIANTS: [Variant; 3] = [
    Variant { name: "sent", timewire: &[], isochron: &["--no-ts"], has_report: false },
    Variant {
        name: "with timestamps",
        timewire: &["--timestamps", "sched,software"],
        isochron: &[],
        has_report: true,
    },
    Variant {
        name: "with launch time",
        timewire: &["--launch", "500us"],
        isochron: &["--no-ts", "--txtime", "--advance-time", "0.0005"],
        has_report: false,
    },
];

/// One line of the table. Ratios are of the same round.
struct Row {
    what: String,
    peer: &'static str,
    unit: &'static str,
    /// Ours and theirs, of each round.
    rounds: Vec<[f64; 2]>,
}

/// Runs the comparison and prints it.
///
/// **Errors**: no root, a tool is missing, or one does not run.
pub fn run(root: &Path, arguments: &[&str]) -> Result<(), String> {
    let (mut rounds, mut as_json, mut inside) = (ROUNDS, false, false);
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        match *word {
            "--json" => as_json = true,
            INSIDE => inside = true,
            "--rounds" => {
                let number = words.next().and_then(|number| number.parse().ok());
                rounds = number.filter(|n| *n > 0).ok_or("--rounds needs a number above zero")?;
            }
            other => return Err(format!("`{other}`: there are --rounds N and --json")),
        }
    }
    if !inside {
        return start(root, arguments);
    }
    let tools = Tools { peers: fetch::peers(root)?, timewire: timewire(root)? };
    measure::lay_cable()?;
    let rows = compare(&tools, rounds)?;
    if as_json {
        let rows: Vec<_> = rows.iter().map(Row::to_json).collect();
        println!("{:#}", json!({ "schema": "timewire-peers/1", "rounds": rounds, "rows": rows }));
    } else {
        print(&rows, rounds);
    }
    Ok(())
}

/// Builds and fetches, and goes on in namespaces of its own, which end with it.
fn start(root: &Path, arguments: &[&str]) -> Result<(), String> {
    let build = ["build", "--quiet", "--release", "--package", "timewire-cli"];
    command::succeed(&mut command::cargo(root, &build))?;
    fetch::peers(root)?;
    let itself = std::env::current_exe().map_err(|error| format!("this program: {error}"))?;
    let mut unshare = Command::new("unshare");
    unshare.args(["--net", "--mount", "--propagation", "private"]).arg(itself).arg("frames");
    command::succeed(unshare.args(arguments).arg(INSIDE))
}

struct Tools {
    peers: Peers,
    timewire: PathBuf,
}

impl Tools {
    fn timewire(&self, variant: &Variant, cycle_ns: u64, count: u64) -> Pair {
        let mut talker = Command::new(&self.timewire);
        talker.args(["talk", FAR_ADDRESS, "--interface", NEAR, "--over", "frames"]);
        talker.args(["--size", "50B", "--priority", "3", "--spin", "0us", "--send-late"]);
        talker.arg("--cycle").arg(format!("{cycle_ns}ns")).arg("--count").arg(count.to_string());
        talker.args(variant.timewire);
        let mut listener = far(&self.timewire);
        listener.args(["listen", "--interface", FAR, "--over", "frames", "--every", "60s"]);
        listener.arg("--count").arg(count.to_string());
        Pair { talker, listener, connects: false }
    }

    fn isochron(&self, variant: &Variant, cycle_ns: u64, count: u64) -> Pair {
        let mut talker = Command::new(&self.peers.isochron);
        talker.args(["send", "--interface", NEAR, "--dmac", FAR_ADDRESS, "--client", FAR_IP]);
        talker.args(["--frame-size", "64", "--priority", "3", "--omit-sync", "--quiet"]);
        talker.args(["--output-file", LOG]);
        talker.arg("--cycle-time").arg(format!("0.{cycle_ns:09}"));
        talker.arg("--num-frames").arg(count.to_string()).args(variant.isochron);
        let mut listener = far(&self.peers.isochron);
        listener.args(["rcv", "--interface", FAR, "--quiet"]);
        for command in [&mut talker, &mut listener] {
            self.helped(command);
        }
        Pair { talker, listener, connects: true }
    }

    /// The table of what its sender and its receiver wrote down.
    fn isochron_report(&self) -> Command {
        let mut report = Command::new(&self.peers.isochron);
        report.args(["report", "--input-file", LOG, "--summary"]);
        self.helped(&mut report);
        report
    }

    fn helped(&self, command: &mut Command) {
        command.env("LD_LIBRARY_PATH", &self.peers.libraries);
        command.env("LD_PRELOAD", &self.peers.shim);
    }

    /// As many frames as fit, all of them late.
    fn timewire_flood(&self, over: &str, count: u64) -> Command {
        let mut talker = Command::new(&self.timewire);
        talker.args(["talk", FAR_ADDRESS, "--interface", NEAR, "--over", over, "--size", "50B"]);
        talker.args(["--cycle", "1ms", "--per-cycle", "20000", "--spin", "0us", "--send-late"]);
        talker.arg("--count").arg(count.to_string());
        talker
    }

    fn trafficgen(&self, count: u64) -> Command {
        let mut talker = Command::new(&self.peers.trafficgen);
        talker.args(["udp", "--dst-mac", FAR_ADDRESS, "--num-packets", &count.to_string(), NEAR]);
        self.helped(&mut talker);
        talker
    }
}

fn compare(tools: &Tools, rounds: usize) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for variant in &VARIANTS {
        eprintln!("isochron: {}", variant.name);
        let mut costs: [Vec<[f64; 2]>; 2] = Default::default();
        for _ in 0..rounds {
            let mut ours = tools.timewire(variant, CYCLE_NS, NO_END);
            let mut theirs = tools.isochron(variant, CYCLE_NS, NO_END);
            let ours = measure::cpu_per_frame(&mut ours, WINDOW)?;
            let theirs = measure::cpu_per_frame(&mut theirs, WINDOW)?;
            for of in [0, 1] {
                costs[of].push([ours[of], theirs[of]]);
            }
        }
        let own = own(tools, variant, rounds);
        let mut instructions = [None, None, None];
        // One that reads timestamps does not do the same for each frame.
        let touched = (!variant.has_report).then(|| touched(tools, variant));
        if command::exists("valgrind") {
            let ours = |count| tools.timewire(variant, CYCLE_NS, count);
            let theirs = |count| tools.isochron(variant, CYCLE_NS, count);
            let ours = difference(|count| measure::instructions(&mut ours(count), None))?;
            let mut report = variant.has_report.then(|| tools.isochron_report());
            let theirs =
                difference(|count| measure::instructions(&mut theirs(count), report.as_mut()))?;
            // Its first thread fetches the receiver's log at the end.
            let sending = [ours.first + ours.others, theirs.others];
            instructions[..2]
                .copy_from_slice(&[Some(sending), Some([ours.listener, theirs.listener])]);
            instructions[2] = report.map(|_| [ours.whole(), theirs.whole()]);
        } else {
            eprintln!("SKIP: instructions: valgrind is not installed; run scripts/setup.sh bench");
        }
        for (of, who) in ["talker", "listener"].into_iter().enumerate() {
            let what = format!("{who}, {}", variant.name);
            let rounds = std::mem::take(&mut costs[of]);
            rows.push(Row { what: what.clone(), peer: "isochron", unit: "CPU ns", rounds });
            if !own.is_empty() {
                let rounds = own.iter().map(|round| round[of]).collect();
                let unit = "ns between calls of the kernel";
                rows.push(Row { what: what.clone(), peer: "isochron", unit, rounds });
            }
            if let Some(counted) = instructions[of] {
                let (peer, unit) = ("isochron", "instructions in user space");
                rows.push(Row { what: what.clone(), peer, unit, rounds: vec![counted] });
            }
            match &touched {
                Some(Ok(counts)) if who == "talker" => {
                    let units = ["lines of memory touched", "pages of memory touched"];
                    for (unit, counted) in units.into_iter().zip(counts) {
                        let (what, rounds) = (what.clone(), vec![*counted]);
                        rows.push(Row { what, peer: "isochron", unit, rounds });
                    }
                }
                Some(Err(why)) if who == "talker" => eprintln!("SKIP: {what}: memory: {why}"),
                _ => {}
            }
        }
        if let Some(counted) = instructions[2] {
            let what = format!("from sending to the table, {}", variant.name);
            let (peer, unit) = ("isochron", "instructions in user space");
            rows.push(Row { what, peer, unit, rounds: vec![counted] });
        }
    }
    rows.extend(floods(tools, rounds));
    eprintln!("SKIP: plget: no distribution has it");
    Ok(rows)
}

/// Of each round, of talker and listener: how long ours and theirs compute for a frame themselves.
fn own(tools: &Tools, variant: &Variant, rounds: usize) -> Vec<[[f64; 2]; 2]> {
    let round = |_| {
        if !command::exists("bpftrace") {
            return Err("bpftrace is not installed".to_owned());
        }
        let mut ours = tools.timewire(variant, CYCLE_NS, NO_END);
        let mut theirs = tools.isochron(variant, CYCLE_NS, NO_END);
        let ours = measure::own_per_frame(&mut ours, WINDOW)?;
        let theirs = measure::own_per_frame(&mut theirs, WINDOW)?;
        Ok([[ours[0], theirs[0]], [ours[1], theirs[1]]])
    };
    // What else was measured is worth having without it.
    (0..rounds).map(round).collect::<Result<_, _>>().unwrap_or_else(|why| {
        eprintln!("SKIP: time between calls of the kernel: {why}");
        Vec::new()
    })
}

/// Lines and pages of memory that ours and theirs touch for a frame as they talk.
fn touched(tools: &Tools, variant: &Variant) -> Result<[[f64; 2]; 2], String> {
    if !command::exists("valgrind") {
        return Err("valgrind is not installed; run scripts/setup.sh bench".to_owned());
    }
    let (cycle_ns, count) = (touched::CYCLE_NS, touched::FRAMES);
    let ours = touched::per_frame(&mut tools.timewire(variant, cycle_ns, count))?;
    let theirs = touched::per_frame(&mut tools.isochron(variant, cycle_ns, count))?;
    let count = |count: usize| per(u64::try_from(count).unwrap_or(u64::MAX), 1);
    Ok([0, 1].map(|of| [count(ours[of]), count(theirs[of])]))
}

/// Instructions for a frame.
struct PerFrame {
    first: f64,
    others: f64,
    listener: f64,
    report: f64,
}

impl PerFrame {
    fn whole(&self) -> f64 {
        self.first + self.others + self.listener + self.report
    }
}

/// For a frame, between two numbers of frames.
fn difference(mut run: impl FnMut(u64) -> Result<Counted, String>) -> Result<PerFrame, String> {
    let (few, many) = (run(SHORT_RUN_FRAMES)?, run(LONG_RUN_FRAMES)?);
    let between = |of: fn(&Counted) -> u64| {
        per(of(&many).saturating_sub(of(&few)), LONG_RUN_FRAMES - SHORT_RUN_FRAMES)
    };
    Ok(PerFrame {
        first: between(|it| it.first),
        others: between(|it| it.others),
        listener: between(|it| it.listener),
        report: between(|it| it.report),
    })
}

fn floods(tools: &Tools, rounds: usize) -> Vec<Row> {
    let mut rows: Vec<_> = ["frames", "xdp"]
        .into_iter()
        .map(|over| Row {
            what: format!("as fast as it goes, --over {over}"),
            peer: "xdp-trafficgen",
            unit: "CPU ns",
            rounds: Vec::new(),
        })
        .collect();
    let cost = |command: &dyn Fn(u64) -> Command| {
        let few = measure::cpu_of_flood(&mut command(FLOOD_SHORT_RUN), FLOOD_SHORT_RUN)?;
        let many = measure::cpu_of_flood(&mut command(FLOOD_LONG_RUN), FLOOD_LONG_RUN)?;
        Ok::<f64, String>(per(many.saturating_sub(few), FLOOD_LONG_RUN - FLOOD_SHORT_RUN))
    };
    eprintln!("xdp-trafficgen");
    for _ in 0..rounds {
        let run = || {
            let theirs = cost(&|count| tools.trafficgen(count))?;
            let frames = cost(&|count| tools.timewire_flood("frames", count))?;
            let xdp = cost(&|count| tools.timewire_flood("xdp", count))?;
            Ok::<_, String>([[frames, theirs], [xdp, theirs]])
        };
        match run() {
            Ok(costs) => rows.iter_mut().zip(costs).for_each(|(row, cost)| row.rounds.push(cost)),
            Err(why) => {
                eprintln!("SKIP: xdp-trafficgen: {why}");
                break;
            }
        }
    }
    rows.retain(|row| !row.rounds.is_empty());
    rows
}

impl Row {
    fn spreads(&self) -> [[f64; 3]; 3] {
        let ours = self.rounds.iter().map(|round| round[0]);
        let theirs = self.rounds.iter().map(|round| round[1]);
        let ratio = self.rounds.iter().map(|round| round[0] / round[1]);
        [spread(ours), spread(theirs), spread(ratio)]
    }

    fn to_json(&self) -> Value {
        let [ours, theirs, ratio] = self.spreads();
        let of = |[min, median, max]: [f64; 3]| json!({"min": min, "median": median, "max": max});
        json!({
            "what": self.what, "peer": self.peer, "per_frame": self.unit,
            "timewire": of(ours), "theirs": of(theirs), "ratio": of(ratio),
        })
    }
}

/// Smallest, median and largest.
fn spread(values: impl Iterator<Item = f64>) -> [f64; 3] {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
    [at(0), at(values.len() / 2), at(values.len().saturating_sub(1))]
}

fn print(rows: &[Row], rounds: usize) {
    println!("for a frame; {rounds} rounds in turns: median, ratio smallest / median / largest");
    println!("{:<34} {:<30} {:>9} {:>16} {:>22}", "", "", "timewire", "peer", "timewire / peer");
    for row in rows {
        let [ours, theirs, [min, median, max]] = row.spreads();
        let ratio = match row.rounds.len() {
            1 => format!("{median:.2}"),
            _ => format!("{min:.2} / {median:.2} / {max:.2}"),
        };
        let peer = format!("{} {:.0}", row.peer, theirs[1]);
        println!("{:<34} {:<30} {:>9.0} {peer:>16} {ratio:>22}", row.what, row.unit, ours[1]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_ratios_are_of_the_same_round() {
        let rounds = vec![[10.0, 20.0], [30.0, 10.0], [20.0, 20.0]];
        let row = Row { what: "x".to_owned(), peer: "y", unit: "z", rounds };
        let [ours, theirs, ratio] = row.spreads();
        assert_eq!(format!("{ours:?}"), "[10.0, 20.0, 30.0]");
        assert_eq!(format!("{theirs:?}"), "[10.0, 20.0, 20.0]");
        assert_eq!(format!("{ratio:?}"), "[0.5, 1.0, 3.0]");
        assert_eq!(row.to_json()["ratio"]["median"], 1.0);
    }

    #[test]
    fn t0_start_and_end_are_in_no_difference() {
        let run = |count| {
            let (first, others) = (5_000 + 3 * count, 70 + 10 * count);
            Ok(Counted { first, others, listener: 7 * count, report: 90 + count })
        };
        let found = difference(run).unwrap();
        let parts = [found.first, found.others, found.listener, found.report, found.whole()];
        assert_eq!(format!("{parts:?}"), "[3.0, 10.0, 7.0, 1.0, 21.0]");
    }

    #[test]
    fn t0_wrong_arguments_are_refused() {
        for wrong in [&["--rounds"][..], &["--rounds", "0"], &["--round", "3"]] {
            assert!(run(Path::new("."), wrong).is_err(), "{wrong:?}");
        }
    }
}
