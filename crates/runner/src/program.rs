// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One program of an experiment, in a process of its own: it reads what to do from a file, does it
//! between two instants, and leaves its records behind.

use std::env;
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::{Deserialize, Serialize};
use timewire_base::wire::MacAddress;
use timewire_base::{CyclicWindows, FileError, Instant, Span, Tai};
use timewire_capture::record::RecordHeader;
use timewire_capture::summary::ProgramDrops;
use timewire_datapath::monitor::{Between, End, monitor};
use timewire_datapath::observe::{MeasuredPort, ObservedPort, observe};
use timewire_datapath::pipeline::{self, Step};
use timewire_datapath::record::Recorder;
use timewire_datapath::release::SlotTimer;
use timewire_datapath::traffic::{self, Due, FloodRate, Pace, Task};

use crate::RunnerError;
use crate::error::Context;
use crate::own_program::{self, OwnProgram};
use timewire_datapath::DatapathError;
use timewire_datapath::control::{Client, Request, Response};
use timewire_datapath::drops::{self, Heard, QdiscCounts};
use timewire_datapath::station::GROUP_PRIORITY;
use timewire_sys::scheduler::{self, Attributes, RtPriority};

/// The file that a program is started with.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProgramFile {
    /// How it gets real-time priority; absent where it has none.
    #[serde(default)]
    pub priority: Option<ProgramPriority>,
    /// What it does.
    pub program: Program,
}

/// How a program gets real-time priority. Without the privilege it runs as it is.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProgramPriority {
    /// By the priority group of the MAC of this name.
    Group(String),
    /// By itself.
    Own,
}

/// What a program does.
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
    /// Sends a message in each period and measures.
    Talker {
        /// Where from, what and how long.
        task: Task,
        /// Whom to.
        to: Ipv4Addr,
        /// When messages are due.
        due: Due,
        /// When they leave.
        pace: ProgramPace,
        /// Where the records go.
        records: Records,
    },
    /// Receives the messages of a talker and measures.
    Listener {
        /// Where and how long.
        task: Task,
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
    /// Timestamps the messages of a user's program at one end.
    Monitor {
        /// Where, and how long.
        task: Task,
        /// Whose messages.
        between: Between,
        /// Which end.
        end: End,
        /// How long to go on after the end.
        drain: Span,
        /// Where the records go.
        records: Records,
    },
    /// Runs a user's program.
    Own(OwnProgram),
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
    /// Timestamps every frame on the segment.
    Observer {
        /// Where the frames arrive.
        hub: Vec<ObservedPort>,
        /// The addresses of the stations, in the order of the record file's list; empty where the
        /// ports tell them.
        addresses: Vec<MacAddress>,
        /// The measured streams' ports.
        ports: Vec<MeasuredPort>,
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
    fn create(&self) -> Result<Recorder, RunnerError> {
        Recorder::create(&self.path, &self.header).map_err(RunnerError::file("write", &self.path))
    }

    /// Closes the file; the program's own failure is told first.
    fn close(&self, recorder: Recorder, result: io::Result<()>) -> Result<(), RunnerError> {
        let closed = recorder.finish().map_err(RunnerError::file("write", &self.path));
        result.map_err(|error| RunnerError::Invalid(error.to_string()))?;
        closed
    }
}

impl ProgramPace {
    fn resolve(&self) -> Result<Pace, RunnerError> {
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

impl Program {
    /// Moves its times: those that it has count from this instant.
    fn begin_at(&mut self, start: Instant<Tai>) {
        let since = start - Instant::from_ns(0);
        match self {
            Program::Client { task, .. }
            | Program::Server { task, .. }
            | Program::Talker { task, .. }
            | Program::Listener { task, .. }
            | Program::Pipeline { task, .. }
            | Program::Monitor { task, .. }
            | Program::Flood { task, .. }
            | Program::Sink { task } => {
                task.start = task.start.saturating_add(since);
                task.end = task.end.saturating_add(since);
            }
            Program::Own(own) => own.begin_after(since),
            Program::Observer { end, .. } => *end = end.saturating_add(since),
        }
    }
}

/// A program in the priority group of a MAC; it leaves the group when this goes.
struct InGroup {
    client: Client,
    members: Vec<u32>,
}

impl Drop for InGroup {
    fn drop(&mut self) {
        // A MAC that has ended has no members.
        let _ = self.client.ask(&Request::RemoveProcess { members: self.members.clone() });
    }
}

impl ProgramPriority {
    fn take(&self) -> Result<Option<InGroup>, RunnerError> {
        match self {
            ProgramPriority::Group(instance) => {
                let client = Client::new(instance);
                match client.ask(&Request::AddProcess { pids: vec![std::process::id()] }) {
                    Ok(Response::Members { members }) => Ok(Some(InGroup { client, members })),
                    Ok(_) => Ok(None),
                    // The MAC has said so already.
                    Err(DatapathError::Refused { message }) if message.contains("CAP_SYS_NICE") => {
                        Ok(None)
                    }
                    Err(error) => Err(error.into()),
                }
            }
            ProgramPriority::Own => {
                let priority = RtPriority::new(GROUP_PRIORITY)
                    .expect("invariant: the priority lies in the kernel's range");
                // Threads that it starts have it, too. Without the privilege it has none.
                let _ = scheduler::set_attributes(0, &Attributes::fifo(priority));
                Ok(None)
            }
        }
    }
}

/// The variable with the instant at which the phase `run` of an experiment begins on a station,
/// nanoseconds of TAI.
const START: &str = "TIMEWIRE_START";

/// The instant at which the phase `run` begins, of which an agent tells its programs there.
pub(crate) fn start_of_phase() -> Result<Instant<Tai>, RunnerError> {
    let text = env::var(START).ok();
    let number = text.and_then(|text| text.parse().ok());
    let missing = || format!("{START} has no instant: an agent sets it in the phase `run`");
    number.map(Instant::from_ns).with_context(missing)
}

/// Reads a program from a file and runs it to its end. With `from_start` the times in the file
/// count from the begin of the phase `run` of an experiment on agents, else they are of TAI.
///
/// A user's program is run by another process of this one's, `alone` in a process namespace, so
/// that nothing of it is left behind whichever way this one ends.
///
/// **Errors**: the file is none, or the program failed. Of a program that is run by another process
/// that one has said so, and the exit code is its own.
pub fn run(file: &Path, from_start: bool, alone: bool) -> Result<ExitCode, RunnerError> {
    let text = fs::read_to_string(file).map_err(RunnerError::file("read", file))?;
    let ProgramFile { priority, mut program } =
        serde_json::from_str(&text).map_err(|error| FileError::content(file, error))?;
    if from_start {
        program.begin_at(start_of_phase()?);
    }
    // Those without a real-time policy would otherwise wake up to 50 us late. Where it cannot be
    // set, they do.
    if !matches!(program, Program::Own(_)) {
        let _ = timewire_sys::clock::set_timer_slack(Span::from_ns(1));
    }
    let in_group = priority.filter(|_| !alone).map(|priority| priority.take());
    let _in_group = in_group.transpose()?;
    if matches!(program, Program::Own(_))
        && !alone
        && let Some(code) = own_program::run_alone(file, from_start)?
    {
        return Ok(code);
    }
    perform(&program, file).map(|()| ExitCode::SUCCESS)
}

fn perform(program: &Program, file: &Path) -> Result<(), RunnerError> {
    let failed = |error: io::Error| RunnerError::Invalid(error.to_string());
    match program {
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
        Program::Talker { task, to, due, pace, records } => {
            let pace = pace.resolve()?;
            let recorder = records.create()?;
            let told = telling(file, task, || traffic::talker(task, *to, due, pace, &recorder));
            records.close(recorder, told)
        }
        Program::Listener { task, drain, records } => {
            let recorder = records.create()?;
            let result = traffic::listener(task, *drain, &recorder);
            records.close(recorder, result)
        }
        Program::Pipeline { task, step, pace, drain, records } => {
            let pace = pace.resolve()?;
            let recorder = records.create()?;
            let told =
                telling(file, task, || pipeline::pipeline(task, step, pace, *drain, &recorder));
            records.close(recorder, told)
        }
        Program::Monitor { task, between, end, drain, records } => {
            let recorder = records.create()?;
            let result = monitor(task, *between, *end, *drain, &recorder);
            records.close(recorder, result)
        }
        Program::Own(own) => own.run(),
        Program::Flood { task, to, flow } => {
            telling(file, task, || traffic::flood(task, *to, *flow)).map_err(failed)
        }
        Program::Sink { task } => traffic::sink(task).map_err(failed),
        Program::Observer { hub, addresses, ports, end, records } => {
            let recorder = records.create()?;
            let result = observe(hub, addresses, ports, *end, &recorder);
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
