// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `lab segment`: several kernels on a simulated segment.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use timewire_lab::uml::Kernel;
use timewire_lab::uml::segment::{KernelStation, SegmentLab, Summary};
use timewire_model::scenario::{self, FileKind, MediumKind, SegmentFile};
use timewire_runner::experiment;
use timewire_sim::{Loss, SegmentConfig, SegmentKind, SimTime, StationClock};
use timewire_sys::event::EndRequests;

use crate::ending::{CODE, WORDS};
use crate::{input, output};

#[derive(Debug, Args)]
pub struct SegmentArgs {
    /// What is on the segment (YAML or JSON)
    pub file: PathBuf,
    /// The directory for results; it must be empty or not exist [default: runs/TIME-NAME]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// The kernel series, such as 6.1 [default: 6.12, or the newest that is there]
    #[arg(long, value_name = "SERIES")]
    pub kernel: Option<String>,
    /// Print the summary as JSON instead of a table
    #[arg(long)]
    pub json: bool,
}

/// Exit code 0: all commands ended well; 1: one ended with another code, or with the duration; 2:
/// it was ended on request.
pub fn run(args: &SegmentArgs) -> anyhow::Result<ExitCode> {
    let (file, text) =
        input::read(&args.file, FileKind::Segment, "nothing was run", SegmentFile::parse)?;
    let kernel = Kernel::find(args.kernel.as_deref())?;
    let here = std::env::current_dir().context("the current directory is gone")?;
    let out = match &args.out {
        Some(out) => here.join(out),
        None => experiment::default_directory(file.name.as_str(), &here),
    };
    let out = timewire_datapath::files::empty_directory(&out)?;
    fs::write(out.join("segment.yaml"), &text).context("cannot keep the file")?;
    let mut lab = laboratory(&file)?;
    lab.environment = environment(&args.file)?;
    let init = std::env::current_exe().context("cannot find the path of this program")?;
    let end = EndRequests::new().context("cannot wait for requests to end")?;
    let summary = lab.run(&kernel, &init, &out, Some(&end))?;
    if args.json {
        output::json(&summary)?;
    } else {
        output::print(&table(&summary, &out))?;
    }
    if summary.ended_early {
        return Ok(ExitCode::from(CODE));
    }
    let ended_well = summary.stations.iter().all(|station| station.exit_code == Some(0));
    Ok(ExitCode::from(u8::from(!ended_well)))
}

/// The file's values as the laboratory takes them.
fn laboratory(file: &SegmentFile) -> anyhow::Result<SegmentLab> {
    let segment = SegmentConfig {
        kind: match file.segment.kind {
            MediumKind::Hub => SegmentKind::Hub,
            MediumKind::Switch => SegmentKind::Switch,
        },
        rate: file.segment.rate,
        delay: file.segment.delay,
        loss: Loss::from_ppb(file.segment.loss.0).context("a share is at most 100%")?,
        seed: file.segment.seed.get(),
    };
    let stations = (0..file.stations.len()).map(|number| station(file, number));
    let mut lab = SegmentLab::new(segment, stations.collect::<anyhow::Result<_>>()?);
    lab.start = file.start;
    lab.duration = file.duration;
    Ok(lab)
}

fn station(file: &SegmentFile, number: usize) -> anyhow::Result<KernelStation> {
    let station = &file.stations[number];
    let scenario::ClockErrors { offset, drift, changes, .. } = &station.clock;
    let mut clock = StationClock::new(offset.0, drift.0)?;
    for change in changes {
        clock = clock.drifting_from(SimTime::START.plus(change.at), change.drift.0)?;
    }
    Ok(KernelStation {
        name: station.name.clone(),
        mac: file.mac(number),
        address: (station.address.address(), station.address.prefix_bits()),
        clock,
        queues: u16::try_from(station.queues.get()).context("at most 16 queues")?,
        memory_mib: u32::try_from(station.memory_mib.get()).context("at most 4096 MiB")?,
        run: station.run.iter().map(|word| word.as_str().to_owned()).collect(),
    })
}

/// What the stations' commands find beside the usual: this program, and where the file is.
fn environment(file: &Path) -> anyhow::Result<Vec<(String, String)>> {
    let program = std::env::current_exe().context("cannot find the path of this program")?;
    let whole = fs::canonicalize(file).context("cannot find the file's directory")?;
    let directory = whole.parent().unwrap_or(Path::new("/")).display().to_string();
    Ok(vec![
        ("TIMEWIRE".to_owned(), program.display().to_string()),
        ("TIMEWIRE_FILES".to_owned(), directory),
    ])
}

fn table(summary: &Summary, out: &Path) -> String {
    let mut text = format!(
        "{:<12} {:>5} {:>8} {:>10} {:>8} {:>6}  output\n",
        "station", "exit", "sent", "found busy", "received", "lost"
    );
    for station in &summary.stations {
        let code = station.exit_code.map_or("ended".to_owned(), |code| code.to_string());
        let lost = station.lost + station.no_buffer + station.queue_full;
        let name = station.name.as_str();
        let (sent, busy, received) =
            (station.frames_sent, station.found_busy, station.frames_received);
        let output = station.output.strip_prefix(out).unwrap_or(&station.output).display();
        let _ = writeln!(
            text,
            "{name:<12} {code:>5} {sent:>8} {busy:>10} {received:>8} {lost:>6}  {output}"
        );
    }
    let (simulated, host) = (summary.simulated_ns, summary.host_ns.max(1));
    if summary.ended_early {
        let _ = writeln!(text, "{WORDS}: this is what there was until then");
    }
    // Thousandths, rounded down.
    let ratio = u128::from(simulated) * 1_000 / u128::from(host);
    let _ = writeln!(
        text,
        "Linux {}: {} simulated in {} of the host, {}.{:03} to 1\nresults: {}",
        summary.kernel,
        milliseconds(simulated),
        milliseconds(host),
        ratio / 1_000,
        ratio % 1_000,
        out.display()
    );
    text
}

fn milliseconds(ns: u64) -> String {
    format!("{}.{:03}s", ns / 1_000_000_000, ns % 1_000_000_000 / 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_the_example_is_a_laboratory() {
        let text = include_str!("../../../scenarios/two-gates.segment.yaml");
        let file = SegmentFile::parse("two-gates.segment.yaml", text).unwrap();
        let lab = laboratory(&file).unwrap();
        assert_eq!(lab.stations.len(), 2);
        assert_eq!(lab.stations[1].mac.to_string(), "02:00:00:00:00:02");
        assert_eq!(lab.stations[1].queues, 2);
    }
}
