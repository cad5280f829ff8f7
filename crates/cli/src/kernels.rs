// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `run` with a network file of programs alone: several kernels on a simulated segment.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use serde_json::json;
use timewire_lab::uml::Kernel;
use timewire_lab::uml::segment::{KernelStation, SegmentLab, Summary};
use timewire_model::scenario::FileKind;
use timewire_model::scenario::network::NetworkFile;
use timewire_runner::kernels::{self, ProgramFiles};
use timewire_runner::network::Obstacle;
use timewire_sim::SegmentKind;
use timewire_sys::event::EndRequests;
use timewire_tsn::file;

use crate::ending::{CODE, WORDS};
use crate::experiment::Run;
use crate::lab::LabTime;
use crate::place::{self, Place};
use crate::{input, output, sim};

/// Exit code 0: no program failed, and those that went on were ended with the duration; 1: one
/// failed; 2: it was ended on request; 4: the laboratory does not do what the file asks for.
pub fn run(args: &Run) -> anyhow::Result<ExitCode> {
    let [path] = args.files.as_slice() else {
        bail!("one network file with programs alone at a time; {} were given", args.files.len());
    };
    args.refuse_options_of_scenarios("networks of programs", false)?;
    args.limits.refuse()?;
    args.place.check()?;
    let (network, text) =
        input::read(path, FileKind::Programs, "nothing was run", file::without_streams)?;
    let file = &network.base;
    let is_json = args.output.json;
    if args.place.on != Place::LabUml {
        let why = "programs without streams run on kernels of their own: --on lab:uml".to_owned();
        let obstacle = Obstacle { what: "programs".to_owned(), why };
        return place::refuse(file.name.as_str(), &args.place, &[obstacle], is_json);
    }
    anyhow::ensure!(
        !matches!(args.place.time, Some(LabTime::Wall)),
        "--time wall is not for kernels with clocks of their own: their time is simulated"
    );
    let mut lab = match kernels::laboratory(&network) {
        Ok(lab) => lab,
        Err(obstacles) => {
            return place::refuse(file.name.as_str(), &args.place, &obstacles, is_json);
        }
    };
    let files = ProgramFiles::read(file, sim::directory_of(path))?;
    if args.dry_run {
        return show(file, &lab, is_json);
    }
    let kernel = Kernel::find(args.place.kernel.as_deref())?;
    let out = timewire_datapath::files::empty_directory(&args.directory(file.name.as_str())?)?;
    files.write(&out)?;
    fs::write(out.join("network.yaml"), &text).context("cannot keep the file")?;
    lab.environment.extend(environment(path)?);
    let init = std::env::current_exe().context("cannot find the path of this program")?;
    let end = EndRequests::new().context("cannot wait for requests to end")?;
    let summary = lab.run(&kernel, &init, &out, Some(&end))?;
    if is_json {
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

/// What would run.
fn show(file: &NetworkFile, lab: &SegmentLab, is_json: bool) -> anyhow::Result<ExitCode> {
    let stations = lab.stations.iter().map(|station| {
        let KernelStation { name, mac, address: (address, bits), queues, run, .. } = station;
        let command = run.last().map_or("", String::as_str);
        (name, format!("{address}/{bits}"), mac.to_string(), queues, command)
    });
    if is_json {
        let stations: Vec<_> = stations
            .map(|(name, address, mac, queues, command)| {
                json!({"name": name, "address": address, "mac": mac, "queues": queues,
                    "command": command})
            })
            .collect();
        return output::json(&json!({
            "schema": "timewire.kernels/1", "network": file.name.as_str(), "stations": stations,
        }));
    }
    let medium = match lab.segment.kind {
        SegmentKind::Switch => "a switch",
        _ => "a segment",
    };
    let (count, rate, duration) = (lab.stations.len(), lab.segment.rate, file.duration);
    let s = if count == 1 { "" } else { "s" };
    let mut text =
        format!("{}: {count} kernel{s} on {medium} of {rate}, for {duration}\n", file.name);
    for (name, address, mac, _, command) in stations {
        let first = command.trim().lines().next().unwrap_or_default();
        let _ = writeln!(text, "  {:<12} {address:<16} {mac}  {first}", name.as_str());
    }
    output::print(&text)
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
