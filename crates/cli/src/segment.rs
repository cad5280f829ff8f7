// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `lab segment`: several kernels on a simulated segment.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use timewire_lab::uml::Kernel;
use timewire_lab::uml::segment::Summary;
use timewire_model::scenario::FileKind;
use timewire_runner::experiment;
use timewire_runner::kernels::{self, ProgramFiles};
use timewire_sys::event::EndRequests;
use timewire_tsn::file;

use crate::ending::{CODE, WORDS};
use crate::{input, output, place, sim};

#[derive(Debug, Args)]
pub struct SegmentArgs {
    /// A network file with a program for each station (YAML or JSON)
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

/// Exit code 0: no program failed, and those that went on were ended with the duration; 1: one
/// failed; 2: it was ended on request; 4: the laboratory does not do what the file asks for.
pub fn run(args: &SegmentArgs) -> anyhow::Result<ExitCode> {
    let (network, text) =
        input::read(&args.file, FileKind::Programs, "nothing was run", file::without_streams)?;
    let file = &network.base;
    let kind = FileKind::of(&text).filter(|kind| *kind != FileKind::Programs);
    if let Some(kind) = kind.filter(|_| file.programs.is_empty()) {
        return Err(input::other_kind(&args.file, &kind, &FileKind::Programs.to_string()));
    }
    let mut lab = match kernels::laboratory(&network) {
        Ok(lab) => lab,
        Err(obstacles) => {
            return place::refuse_on(file.name.as_str(), PLACE, &obstacles, args.json);
        }
    };
    let files = ProgramFiles::read(file, sim::directory_of(&args.file))?;
    let kernel = Kernel::find(args.kernel.as_deref())?;
    let here = std::env::current_dir().context("the current directory is gone")?;
    let out = match &args.out {
        Some(out) => here.join(out),
        None => experiment::default_directory(file.name.as_str(), &here),
    };
    let out = timewire_datapath::files::empty_directory(&out)?;
    files.write(&out)?;
    fs::write(out.join("network.yaml"), &text).context("cannot keep the file")?;
    lab.environment.extend(environment(&args.file)?);
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
    let failed = summary.stations.iter().any(|it| it.exit_code.is_some_and(|code| code != 0));
    Ok(ExitCode::from(u8::from(failed)))
}

/// What messages call the laboratory.
const PLACE: &str = "lab segment";

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
