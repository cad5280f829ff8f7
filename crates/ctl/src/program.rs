// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One program of an experiment, in a process of its own: it reads what to do from a file, does it
//! between two instants, and leaves its records behind.
//!
//! Not here: which programs an experiment has (`experiment`), what they do (`timewire_path`).

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use timewire_base::{CyclicWindows, Instant, Port, Span, Tai};
use timewire_path::observe::{ObservedPort, observe};
use timewire_path::pipeline::{self, Step};
use timewire_path::record::Recorder;
use timewire_path::release::SlotTimer;
use timewire_path::traffic::{self, FloodRate, Pace, Task};
use timewire_trace::record::RecordHeader;
use timewire_trace::summary::ProgramDrops;

use crate::CtlError;
use crate::control::Client;
use crate::drops::{self, Heard, QdiscCounts};

/// What a program is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case", deny_unknown_fields)]
pub enum Program {
    /// Sends requests and measures.
    Client {
        /// Where from, what and how long.
        task: Task,
        /// Whom to.
        server: Ipv4Addr,
        /// When.
        pace: ProgramPace,
        /// A response later than this is lost.
        timeout: Span,
        /// Where the records go.
        records: Records,
    },
    /// Answers requests and measures.
    Server {
        /// Where and how long.
        task: Task,
        /// When the answers leave.
        pace: ProgramPace,
        /// How long to go on after the end.
        drain: Span,
        /// Where the records go.
        records: Records,
    },
    /// One station of a pipeline: computes with each stimulus and hands it on, and measures.
    Pipeline {
        /// Where from, what and how long.
        task: Task,
        /// Its part.
        step: Step,
        /// When messages leave.
        pace: ProgramPace,
        /// How long to go on after the end.
        drain: Span,
        /// Where the records go.
        records: Records,
    },
    /// Sends best-effort messages at a rate.
    Flood {
        /// Where from, what and how long.
        task: Task,
        /// Whom to.
        to: Ipv4Addr,
        /// How much.
        flow: FloodRate,
    },
    /// Keeps a port open.
    Sink {
        /// Where and how long.
        task: Task,
    },
    /// Stamps every frame on the segment.
    Observer {
        /// The ports of the hub.
        hub: Vec<ObservedPort>,
        /// The measured streams' ports.
        ports: Vec<Port>,
        /// Until when.
        end: Instant<Tai>,
        /// Where the records go.
        records: Records,
    },
}

/// When a program sends.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProgramPace {
    /// As soon as it can.
    Closed,
    /// Once in so much time.
    Every(Span),
    /// Before each slot of its station, which the station's MAC is asked for.
    Aligned {
        /// Name of the MAC.
        instance: String,
        /// How long before.
        lead: Span,
    },
    /// Before each of these windows.
    Windows {
        /// Which.
        windows: CyclicWindows,
        /// How long before.
        lead: Span,
    },
}

/// Where records go.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Records {
    /// The file.
    pub path: PathBuf,
    /// Its header.
    pub header: RecordHeader,
}

impl Records {
    fn create(&self) -> Result<Recorder, CtlError> {
        Recorder::create(&self.path, &self.header).map_err(CtlError::file("write", &self.path))
    }

    /// Closes the file; the program's own failure is told first.
    fn close(&self, recorder: Recorder, result: io::Result<()>) -> Result<(), CtlError> {
        let closed = recorder.finish().map_err(CtlError::file("write", &self.path));
        result.map_err(|error| CtlError::Invalid(error.to_string()))?;
        closed
    }
}

impl ProgramPace {
    fn resolve(&self) -> Result<Pace, CtlError> {
        Ok(match self {
            ProgramPace::Closed => Pace::Closed,
            ProgramPace::Every(span) => Pace::Every(*span),
            ProgramPace::Aligned { instance, lead } => {
                Pace::Aligned(Client::new(instance).slot_timer(*lead)?)
            }
            ProgramPace::Windows { windows, lead } => {
                Pace::Aligned(SlotTimer::new(windows.clone(), *lead))
            }
        })
    }
}

/// Reads a program from a file and runs it to its end.
///
/// **Errors**: the file is none, or the program failed.
pub fn run(file: &Path) -> Result<(), CtlError> {
    let text = fs::read_to_string(file).map_err(CtlError::file("read", file))?;
    let program: Program = serde_json::from_str(&text)
        .map_err(|error| CtlError::Content { path: file.to_owned(), why: error.to_string() })?;
    let failed = |error: io::Error| CtlError::Invalid(error.to_string());
    match &program {
        Program::Client { task, server, pace, timeout, records } => {
            let pace = pace.resolve()?;
            let recorder = records.create()?;
            let told =
                telling(file, task, || traffic::client(task, *server, pace, *timeout, &recorder));
            records.close(recorder, told)
        }
        Program::Server { task, pace, drain, records } => {
            let pace = pace.resolve()?;
            let recorder = records.create()?;
            let told = telling(file, task, || traffic::server(task, pace, *drain, &recorder));
            records.close(recorder, told)
        }
        Program::Pipeline { task, step, pace, drain, records } => {
            let pace = pace.resolve()?;
            let recorder = records.create()?;
            let told =
                telling(file, task, || pipeline::pipeline(task, step, pace, *drain, &recorder));
            records.close(recorder, told)
        }
        Program::Flood { task, to, flow } => {
            telling(file, task, || traffic::flood(task, *to, *flow)).map_err(failed)
        }
        Program::Sink { task } => traffic::sink(task).map_err(failed),
        Program::Observer { hub, ports, end, records } => {
            let recorder = records.create()?;
            let result = observe(hub, ports, *end, &recorder);
            records.close(recorder, result)
        }
    }
}

/// What the name of a file ends with that says why messages of a program did not leave.
pub const DROPS: &str = ".drops.json";

/// Runs what sends, and writes beside the program's file why messages did not leave, if any did
/// not.
fn telling(file: &Path, task: &Task, send: impl FnOnce() -> io::Result<Heard>) -> io::Result<()> {
    let before = QdiscCounts::now();
    let socket = task.socket_settings();
    let drop_causes = drops::causes(&[(socket, send()?)], &before);
    if drop_causes.is_empty() {
        return Ok(());
    }
    let program = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let path = file.with_file_name(format!("{program}{DROPS}"));
    fs::write(path, serde_json::to_vec_pretty(&ProgramDrops { program, drop_causes })?)
}
