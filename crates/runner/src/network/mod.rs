// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A network file run on kernels: compiled into an experiment for a place, carried out by the
//! orchestrator, and judged stream by stream against its plan.
//!
//! The compiled experiment has everything that follows from the file: routes as VLANs, addresses,
//! queueing disciplines of each egress port, a talker and a listener on each station that has
//! streams, and the phases. Nobody writes any of it.
//!
//! Not here: planning (`timewire-plan`), one phase on one station (`timewire-agent`), the simulator
//! (`simulation`).

mod compile;
pub mod judge;
mod port;
mod records;
mod reply;
pub mod segment;
mod show;
mod traced;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use timewire_agent::sweep::{Script, file_beside};
use timewire_base::{FileError, Span, parse_span};
use timewire_model::scenario::Metric;
use timewire_model::scenario::network::NetworkFile;
use timewire_model::scenario::orchestrated::Orchestrated;
use timewire_model::scenario::phases::NodePhases;

use crate::RunnerError;
use crate::error::invalid;
use crate::experiment::connection::Connection;

pub use compile::{Obstacle, Planned, Site, compile};
pub(crate) use records::title;
pub use records::{Begun, begin, begun, keep, resume};
pub use reply::send_replies;
pub use show::{conditions, described, table};
pub use traced::{LaboratoryTrace, can_be_traced};

/// The disciplines that egress ports have.
const DISCIPLINES: [&str; 6] = ["taprio", "mqprio", "etf", "cbs", "tbf", "prio"];
/// The format of a compiled network.
pub const COMPILED_SCHEMA: &str = "timewire.compiled-network/1";
/// Its file in the directory of a case.
pub const COMPILED: &str = "compiled.json";
/// Where the orchestrator keeps its journals and what stations recorded, in the directory of a
/// case.
pub const EXPERIMENT: &str = "experiment";

/// By how much kernels of a place miss an instant; a part of every verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchError {
    /// The place, in words.
    pub place: String,
    /// How long before its start a message is handed over; the gate holds it.
    pub lead: Span,
    /// How late each egress port acts at most.
    pub port: Span,
    /// How late, once on a route, a timer is that finds the machine at work.
    pub wake: Span,
    /// How far the clocks of talker and listener are apart at most.
    pub clock: Span,
}

impl LaunchError {
    /// In a kernel of the laboratory, in virtual time.
    pub fn lab_uml() -> LaunchError {
        LaunchError {
            place: "lab:uml".to_owned(),
            lead: Span::from_us(5),
            port: Span::from_us(1),
            wake: Span::from_us(7),
            clock: Span::ZERO,
        }
    }

    /// In namespaces of an ordinary kernel.
    pub fn lab() -> LaunchError {
        LaunchError::ordinary("lab".to_owned(), Span::ZERO)
    }

    /// In an emulated machine of the laboratory, where each instruction takes time.
    pub fn lab_qemu() -> LaunchError {
        LaunchError::ordinary("lab:qemu".to_owned(), Span::ZERO)
    }

    /// On hosts with ordinary kernels, whose clocks are at most so far apart.
    pub fn hosts(place: String, clock: Span) -> LaunchError {
        LaunchError::ordinary(place, clock)
    }

    fn ordinary(place: String, clock: Span) -> LaunchError {
        LaunchError {
            place,
            lead: Span::from_us(100),
            port: Span::from_us(20),
            wake: Span::from_us(100),
            clock,
        }
    }

    /// How much longer than promised a message takes at most over so many egress ports; a gate
    /// holds it until its start, or it goes at once.
    pub fn late(&self, ports: usize, is_held: bool) -> Span {
        let ports = i64::try_from(ports).unwrap_or(i64::MAX);
        let all = self.port.checked_mul(ports).unwrap_or(Span::MAX);
        let lead = if is_held { self.lead } else { Span::ZERO };
        lead + all + self.wake + self.clock
    }

    /// How much shorter it takes at most: its talker's timer was late twice, and the gate opens all
    /// the same.
    pub fn early(&self) -> Span {
        (self.wake + self.wake - self.lead).max(Span::ZERO) + self.clock
    }

    /// In words.
    pub fn text(&self) -> String {
        let LaunchError { place, lead, port, wake, clock } = self;
        let clock = match *clock {
            Span::ZERO => String::new(),
            clock => format!(", clocks at most {clock} apart"),
        };
        format!(
            "launch error on {place}: handed over {lead} before the start, each egress port up to \
             {port} late, one wake-up of a route up to {wake} late{clock}"
        )
    }
}

/// What a stream is promised at one of its listeners, and what follows for a measurement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Promise {
    /// The stream; with the listener, where there are several.
    pub name: String,
    /// Its number in messages.
    pub stream: u16,
    /// The talker.
    pub from: String,
    /// The talker's interface.
    pub from_interface: String,
    /// The program that sends it there.
    pub program: String,
    /// The listener.
    pub to: String,
    /// The listener's interface.
    pub to_interface: String,
    /// The traffic class.
    pub class: u8,
    /// How it is known.
    pub by: PromisedBy,
    /// Messages that are judged; absent where nobody knows how many there are: all are, then.
    pub messages: Option<u64>,
    /// Messages that the talker sends after those: one that ends disturbs the timers of others.
    pub tail: u64,
    /// Its latency is measured from its launch time less so long, when `etf` sends it; absent where
    /// it has none, and its latency is measured from its hand-over.
    pub launch_delta: Option<Span>,
    /// The promised latency; absent where nothing bounds it.
    pub latency: Option<Span>,
    /// The shortest time that it can take.
    pub at_least: Span,
    /// The promised latency with the launch error of the place.
    pub at_most: Option<Span>,
    /// Limits that the file has for it.
    pub limits: Vec<PromisedLimit>,
}

impl Promise {
    /// The longest latency that is no failure: the promise with the launch error of the place, or
    /// the file's own limit where that is tighter.
    pub fn limit(&self) -> Option<Span> {
        let own = self.limits.iter().filter(|it| it.metric == Metric::LatencyMax.word());
        let own = own.filter_map(|it| parse_span(&it.at_most).ok());
        own.chain(self.at_most).min()
    }
}

#[cfg(test)]
impl Promise {
    /// A stream with a reservation: 25 us, of which a measurement may see 16 to 39.
    fn example() -> Promise {
        Promise {
            name: "state".to_owned(),
            stream: 1,
            from: "drive".to_owned(),
            from_interface: "eth0".to_owned(),
            program: "talk-eth0".to_owned(),
            to: "plc".to_owned(),
            to_interface: "eth0".to_owned(),
            class: 7,
            by: PromisedBy::Plan,
            messages: Some(500),
            tail: 20,
            launch_delta: None,
            latency: Some(Span::from_us(25)),
            at_least: Span::from_us(16),
            at_most: Some(Span::from_us(39)),
            limits: Vec::new(),
        }
    }
}

/// How the promised latency of a stream is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PromisedBy {
    /// Its reservation in the schedule.
    Plan,
    /// A bound.
    Bound,
    /// Nothing: only what the file's limits say.
    Limits,
    /// Nothing at all: it is load for the others.
    Load,
}

impl PromisedBy {
    /// The word in tables.
    pub const fn word(self) -> &'static str {
        match self {
            PromisedBy::Plan => "plan",
            PromisedBy::Bound => "bound",
            PromisedBy::Limits => "limits",
            PromisedBy::Load => "load",
        }
    }
}

/// A limit of the file for one stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromisedLimit {
    /// Its name.
    pub id: String,
    /// What is limited, as in the file.
    pub metric: String,
    /// The largest good value, as in the file.
    pub at_most: String,
}

/// A network file as the experiment that carries it out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Compiled {
    /// The format.
    pub schema: String,
    /// Name of the network.
    pub network: String,
    /// Name of the case.
    pub case: String,
    /// Its title; empty where the network is the only one.
    pub title: String,
    /// Name of the load.
    pub load: String,
    /// What it is for.
    pub description: String,
    /// By how much the place misses an instant.
    pub launch_error: LaunchError,
    /// What the place does otherwise than the file says.
    pub notes: Vec<String>,
    /// Whether a capture is taken.
    pub traced: bool,
    /// Every stream at every listener.
    pub promises: Vec<Promise>,
    /// What the stations do.
    pub experiment: Json,
    /// The files that it names.
    pub files: BTreeMap<String, String>,
}

impl Compiled {
    /// The experiment as the orchestrator takes it.
    ///
    /// **Errors**: the experiment is none, which is a mistake of this program.
    pub fn script(&self) -> Result<Script, RunnerError> {
        let text = self.experiment.to_string();
        let file = Orchestrated::parse("the compiled experiment", &text).map_err(invalid)?;
        let files = self.files.iter().map(|(name, text)| (name.clone(), text.clone().into_bytes()));
        Ok(Script { files: files.collect(), ..Script::new(file, PathBuf::new()) })
    }

    /// Takes the files that nodes put and apply by themselves; they are beside the network file.
    ///
    /// **Errors**: one cannot be read, or is no text.
    pub fn take_files(&mut self, file: &NetworkFile, beside: &Path) -> Result<(), RunnerError> {
        for (node, phases) in file.phases() {
            for (phase, spec) in phases.into_iter().flat_map(NodePhases::all) {
                for step in &spec.steps {
                    let Some(name) = step.from.as_ref().or(step.apply.as_ref()) else { continue };
                    let at =
                        |why: &dyn std::fmt::Display| invalid(format!("{node}, {phase}: {why}"));
                    let bytes = file_beside(beside, name.as_str()).map_err(|error| at(&error))?;
                    let text = String::from_utf8(bytes).map_err(|_| {
                        at(&format!(
                            "`{name}` is no text (UTF-8), as files of networks with streams are"
                        ))
                    })?;
                    self.files.insert(name.to_string(), text);
                }
            }
        }
        Ok(())
    }

    /// What queueing disciplines a node needs, by their kinds.
    pub fn disciplines(&self, node: &str) -> BTreeSet<String> {
        let text = |name: &str| self.files.get(&format!("{node}/{name}"));
        let connection = text(compile::CONNECTION);
        let connection = connection.and_then(|it| serde_json::from_str::<Connection>(it).ok());
        let interfaces = connection.map(|it| it.interfaces).unwrap_or_default();
        let on_host = interfaces.iter().flat_map(|it| &it.qdiscs).map(String::as_str);
        let script = text(compile::SETUP).into_iter().flat_map(|it| it.lines());
        let in_laboratory = script.filter(|line| line.starts_with("tc qdisc"));
        // Before it are its place and, of a `stab`, the bytes around a frame.
        let kind = |line: &str| {
            let words = line.split_whitespace();
            words.map(str::to_owned).find(|word| DISCIPLINES.contains(&word.as_str()))
        };
        on_host.chain(in_laboratory).filter_map(kind).collect()
    }

    /// Reads what [`Compiled::write`] wrote.
    ///
    /// **Errors**: the file cannot be read, or is of another version.
    pub fn read(directory: &Path) -> Result<Compiled, RunnerError> {
        let path = directory.join(COMPILED);
        let compiled: Compiled = timewire_datapath::files::read_json(&path)?;
        if compiled.schema != COMPILED_SCHEMA {
            let why = format!("its schema is {}, not {COMPILED_SCHEMA}", compiled.schema);
            return Err(FileError::content(path, why).into());
        }
        Ok(compiled)
    }

    /// Writes it into the directory of a case.
    ///
    /// **Errors**: the file cannot be written.
    pub fn write(&self, directory: &Path) -> Result<(), RunnerError> {
        Ok(timewire_datapath::files::write_json(&directory.join(COMPILED), self)?)
    }
}
