// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `receive`: which received frames go before others, on one interface.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Map, Value as Json, json};
use timewire_base::{IfName, Span, StationName, parse_span};
use timewire_datapath::receive_priority::{self, ClassStatus, Notes, ReceiveStatus};
use timewire_model::scenario::host::Receive;

use crate::ending::Ending;
use crate::{input, output};

#[derive(Debug, Subcommand)]
pub enum ReceiveCommand {
    /// Put receive priority on an interface; it stays until it is stopped, without a process
    ///
    /// Each frame belongs to the first class that has a match for it. A class goes up the kernel's
    /// stack at once, to an AF_XDP socket, or to threads on chosen CPUs; all other frames go to
    /// threads on --normal-cpus.
    Start(Rules),
    /// Replace the classes in one step: each frame is judged by the old ones or by the new ones
    Set(Rules),
    /// Show classes, counters and threads, of all interfaces or of one
    Show(Show),
    /// Take receive priority off an interface, and restore a program that was there before
    Stop(Stop),
}

#[derive(Debug, Args)]
pub struct Rules {
    /// The interface
    pub interface: IfName,
    /// Network file (YAML or JSON); `receive` of this interface in its host settings is taken
    #[arg(long, value_name = "FILE", conflicts_with_all = ["class", "normal_cpus", "mode"])]
    pub file: Option<PathBuf>,
    /// The station of the file, where several have host settings
    #[arg(long, value_name = "NAME", requires = "file")]
    pub station: Option<StationName>,
    /// All rules as JSON, as `show --json` prints them under `receive`
    #[arg(long, value_name = "JSON", conflicts_with_all = ["file", "class", "normal_cpus", "mode"])]
    pub rules: Option<String>,
    /// A class, such as 'control:1:port=15001,pcp=6+vlan=10->threads:2'; may be repeated
    ///
    /// NAME:PRIORITY:MATCH,MATCH...->DESTINATION. A match is KEY=VALUE, several joined by `+` must
    /// all fit. Keys: port, to_port, from_port, address, to_address, from_address, pcp, vlan, dscp,
    /// ethertype, destination, source, stream. Destinations: kernel (the default), socket,
    /// threads:CPUS, threads:CPUS:fifo:PRIORITY, threads:CPUS:other.
    #[arg(long, value_name = "CLASS", value_parser = parse_class)]
    pub class: Vec<Json>,
    /// CPUs whose threads take all other frames further, such as 2,4-6; without, they go at once
    #[arg(long, value_name = "CPUS")]
    pub normal_cpus: Option<String>,
    /// Where the program runs [default: native, or else generic]
    #[arg(long, value_enum)]
    pub mode: Option<Mode>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Mode {
    /// In the driver where it can, or else in the kernel's generic layer
    Auto,
    /// In the driver
    Native,
    /// In the kernel's generic layer
    Generic,
}

#[derive(Debug, Args)]
pub struct Show {
    /// The interface [default: all that have it]
    pub interface: Option<IfName>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Show rates again and again, until ended
    #[arg(
        long, value_name = "INTERVAL", num_args = 0..=1, default_missing_value = "1s",
        value_parser = parse_span
    )]
    pub watch: Option<Span>,
}

#[derive(Debug, Args)]
pub struct Stop {
    /// The interface
    pub interface: IfName,
}

pub fn run(command: ReceiveCommand) -> anyhow::Result<ExitCode> {
    match command {
        ReceiveCommand::Start(rules) => {
            let desired = desired(&rules)?;
            crate::apply::recover()?;
            Ok(tell(receive_priority::start(&rules.interface, &desired)?))
        }
        ReceiveCommand::Set(rules) => {
            Ok(tell(receive_priority::set(&rules.interface, &desired(&rules)?)?))
        }
        ReceiveCommand::Stop(Stop { interface }) => {
            crate::apply::recover()?;
            Ok(tell(receive_priority::stop(&interface)?))
        }
        ReceiveCommand::Show(show) => match show.watch {
            Some(interval) => watch(&show, interval),
            None => print(
                &receive_priority::show(show.interface.as_ref())?,
                show.json,
                &Rates::default(),
            ),
        },
    }
}

fn tell(notes: Notes) -> ExitCode {
    for note in notes {
        say!("note: {note}");
    }
    ExitCode::SUCCESS
}

fn desired(rules: &Rules) -> anyhow::Result<Receive> {
    if let Some(path) = &rules.file {
        return from_file(path, rules);
    }
    if let Some(text) = &rules.rules {
        let rules: Json = serde_json::from_str(text).context("--rules is no JSON")?;
        return of_json(&rules);
    }
    if rules.class.is_empty() && rules.normal_cpus.is_none() {
        bail!("no rules: give --file, or --class, or --normal-cpus");
    }
    let mut receive = json!({"classes": rules.class});
    if let Some(cpus) = &rules.normal_cpus {
        receive["normal_cpus"] = json!(cpus);
    }
    if let Some(mode) = rules.mode.and_then(|mode| mode.to_possible_value()) {
        receive["mode"] = json!(mode.get_name());
    }
    of_json(&receive)
}

fn of_json(rules: &Json) -> anyhow::Result<Receive> {
    Receive::from_json("the command line", rules).map_err(|errors| {
        // Where it stands in a file that nobody has written helps nobody.
        let said = errors.errors.iter().map(|error| {
            let key = error.key.strip_prefix("receive.").unwrap_or(&error.key);
            let hint = if error.hint.is_empty() { "" } else { "; " };
            format!("{key}: {}{hint}{}", error.message, error.hint)
        });
        anyhow::anyhow!("{}", said.collect::<Vec<_>>().join("\nerror: "))
    })
}

fn from_file(path: &Path, rules: &Rules) -> anyhow::Result<Receive> {
    let Rules { interface, station, .. } = rules;
    let file = input::host_settings(path, station.as_ref(), "nothing was changed")?;
    let desired = file.host.interfaces.into_iter().find(|it| it.name == *interface);
    let receive = desired.and_then(|it| it.receive);
    receive.with_context(|| format!("{} has no `receive` of {interface}", path.display()))
}

/// A class of the command line, as host settings have it.
fn parse_class(text: &str) -> Result<Json, String> {
    let form = "a class is like control:1:port=15001,pcp=6+vlan=10->threads:2";
    let (rules, target) = text.split_once("->").unwrap_or((text, "kernel"));
    let mut parts = rules.splitn(3, ':');
    let (Some(name), Some(priority), Some(matches)) = (parts.next(), parts.next(), parts.next())
    else {
        return Err(form.to_owned());
    };
    let priority: u64 = priority.parse().map_err(|_| format!("`{priority}` is no priority"))?;
    let matches: Result<Vec<Json>, String> = matches.split(',').map(parse_match).collect();
    let mut class = json!({"name": name, "priority": priority, "matches": matches?});
    let words: Vec<&str> = target.split(':').collect();
    match words[..] {
        ["kernel"] | ["socket"] => class["to"] = json!(words[0]),
        ["threads", cpus] => (class["to"], class["cpus"]) = (json!("threads"), json!(cpus)),
        ["threads", cpus, policy] => {
            (class["to"], class["cpus"]) = (json!("threads"), json!(cpus));
            class["scheduling"] = json!({"policy": policy});
        }
        ["threads", cpus, policy, priority] => {
            let priority: u64 =
                priority.parse().map_err(|_| format!("`{priority}` is no real-time priority"))?;
            (class["to"], class["cpus"]) = (json!("threads"), json!(cpus));
            class["scheduling"] = json!({"policy": policy, "priority": priority});
        }
        _ => {
            return Err(format!(
                "`{target}` is no destination: kernel, socket, threads:CPUS or \
                 threads:CPUS:fifo:PRIORITY"
            ));
        }
    }
    Ok(class)
}

fn parse_match(text: &str) -> Result<Json, String> {
    let mut keys = Map::new();
    for pair in text.split('+') {
        let Some((key, value)) = pair.split_once('=') else {
            return Err(format!("`{pair}` is no KEY=VALUE, such as port=15001"));
        };
        let is_number = ["port", "to_port", "from_port", "pcp", "vlan", "dscp"].contains(&key);
        let value = match value.parse::<u64>() {
            Ok(number) if is_number => json!(number),
            _ => json!(value),
        };
        if keys.insert(key.to_owned(), value).is_some() {
            return Err(format!("`{key}` is there twice; a comma starts another match"));
        }
    }
    Ok(Json::Object(keys))
}

/// Frames per second of each class of each interface; empty without a look before.
type Rates = BTreeMap<(String, String), f64>;

fn watch(show: &Show, interval: Span) -> anyhow::Result<ExitCode> {
    if interval < Span::from_ms(10) {
        bail!("less than 10ms between two looks is too short");
    }
    let ending = Ending::new()?;
    let look =
        || receive_priority::show(show.interface.as_ref()).map(|found| (found, Instant::now()));
    let (mut before, mut at) = look()?;
    while !ending.rest(interval) {
        let (now, when) = look()?;
        print(&now, show.json, &rates(&before, &now, when - at))?;
        (before, at) = (now, when);
    }
    Ok(ExitCode::SUCCESS)
}

fn rates(before: &[ReceiveStatus], now: &[ReceiveStatus], passed: Duration) -> Rates {
    let counts = |statuses: &[ReceiveStatus]| -> BTreeMap<(String, String), u64> {
        let classes = statuses.iter().flat_map(|status| {
            status
                .classes
                .iter()
                .map(|class| ((status.interface.clone(), class.name.clone()), class.frames))
        });
        classes.collect()
    };
    let before = counts(before);
    let rate = |(key, frames): ((String, String), u64)| {
        let more = frames.saturating_sub(before.get(&key).copied().unwrap_or(0));
        let more = u32::try_from(more).map_or(f64::MAX, f64::from);
        (key, more / passed.as_secs_f64())
    };
    counts(now).into_iter().map(rate).collect()
}

fn print(statuses: &[ReceiveStatus], json: bool, rates: &Rates) -> anyhow::Result<ExitCode> {
    if json {
        let mut all = serde_json::to_value(statuses)?;
        for status in all.as_array_mut().into_iter().flatten() {
            let interface = status["interface"].as_str().unwrap_or_default().to_owned();
            for class in status["classes"].as_array_mut().into_iter().flatten() {
                let name = class["name"].as_str().unwrap_or_default().to_owned();
                if let Some(rate) = rates.get(&(interface.clone(), name)) {
                    class["frames_per_second"] = json!(rate);
                }
            }
        }
        let shown = json!({"schema": "timewire.receive-list/1", "interfaces": all});
        return output::json(&shown);
    }
    if statuses.is_empty() {
        return output::print("no interface here has receive priority\n");
    }
    let texts: Vec<String> = statuses.iter().map(|status| describe(status, rates)).collect();
    output::print(&texts.concat())
}

fn describe(status: &ReceiveStatus, rates: &Rates) -> String {
    let mode = status.mode.as_deref().map_or("NOT attached".to_owned(), |it| format!("{it} mode"));
    let mut text =
        format!("receive priority on {}: {mode}, program {}\n", status.interface, status.program);
    if let Some(other) = &status.chained {
        text += &format!(
            "  before program {} (`{}`), which decides about frames that go up at once\n",
            other.program, other.name
        );
    }
    text += &format!(
        "  {:<16} {:>8}  {:<18} {:>12} {:>14} {:>11} {:>11} {:>11} {:>8}{}\n",
        "class",
        "priority",
        "to",
        "frames",
        "bytes",
        "at once",
        "to socket",
        "to threads",
        "lost",
        if rates.is_empty() { "" } else { "    frames/s" },
    );
    for class in &status.classes {
        let priority = class.priority.map_or("-".to_owned(), |it| it.to_string());
        let lost = class.lost.map_or("-".to_owned(), |it| it.to_string());
        let rate = rates.get(&(status.interface.clone(), class.name.clone()));
        text += &format!(
            "  {:<16} {:>8}  {:<18} {:>12} {:>14} {:>11} {:>11} {:>11} {:>8}{}\n",
            class.name,
            priority,
            destination(class),
            class.frames,
            class.bytes,
            class.to_kernel + class.to_other_program,
            class.to_socket,
            class.to_threads,
            lost,
            rate.map(|rate| format!(" {rate:>11.0}")).unwrap_or_default(),
        );
    }
    for class in &status.classes {
        for thread in &class.threads {
            let scheduling = thread.scheduling.as_deref().unwrap_or("not seen from here");
            text += &format!("  threads of {} on CPU {}: {scheduling}\n", class.name, thread.cpu);
        }
        if class.turned > 0 {
            text += &format!(
                "  {} frames of {} went up at once, because there is no {}\n",
                class.turned,
                class.name,
                if class.to == "socket" { "socket on their queue" } else { "thread" },
            );
        }
    }
    if let Some(lost) = status.lost_to_sockets.filter(|lost| *lost > 0) {
        text += &format!("  {lost} frames lost on the way to sockets\n");
    }
    text
}

fn destination(class: &ClassStatus) -> String {
    if class.threads.is_empty() {
        return class.to.to_owned();
    }
    let cpus: Vec<_> = class.threads.iter().map(|thread| thread.cpu.to_string()).collect();
    format!("{} on {}", class.to, cpus.join(","))
}
