// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The `timewire` command: parses, calls, prints, and answers with an exit code.
//!
//! Data goes to stdout, talk to stderr. Exit codes: 0 done, and all is well; 1 done, with bad
//! findings; 2 usage or operation failed, host unchanged; 3 host left changed; 4 unsupported here.
//!
//! Not here: anything that measures or changes something.

#[macro_use]
mod output;

mod agent;
mod apply;
mod args;
mod array;
mod avtp;
mod clock;
mod compare;
mod doctor;
mod ending;
mod experiment;
mod group;
mod input;
mod lab;
mod listen;
mod measure;
mod new_file;
mod pages;
mod plan;
mod receive;
mod report;
mod schema;
mod segment;
mod serve;
mod sim;
mod snapshot;
mod stations;
mod talk;
mod tdm;
mod top;
mod trace;
mod traffic;

use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use timewire_ctl::CtlError;
use timewire_ctl::avtp::StreamError;
use timewire_ctl::measure::MeasureError;
use timewire_ctl::receive::ReceiveError;
use timewire_ctl::study::StudyError;
use timewire_ctl::trace::TraceError;
use timewire_ctl::traffic::TrafficError;
use timewire_host::HostError;
use timewire_lab::LabError;
use timewire_remote::RemoteError;

use args::{Command, Hidden, Request};

fn main() -> ExitCode {
    timewire_lab::enter_guest();
    let request = match Request::try_parse() {
        Ok(request) => request,
        Err(error) if error.use_stderr() => {
            say_text!("{}", output::usage(&error.render().to_string()));
            return ExitCode::from(2);
        }
        Err(error) => error.exit(),
    };
    match run(request.command) {
        Ok(code) => code,
        Err(error) => {
            let (code, hint) = classify(&error);
            if !output::is_broken_pipe(&error) {
                say!("{}", output::error(&error));
                if let Some(hint) = hint {
                    say!("  hint: {hint}");
                }
                return ExitCode::from(code);
            }
            ExitCode::SUCCESS
        }
    }
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Demo(args) => experiment::demo(&args),
        Command::Run(args) if stations::are_meant(&args) => stations::run(&args),
        Command::Run(args) => experiment::run(&args),
        Command::Array(command) => array::run(command),
        Command::Report(args) => report::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Apply(args) => apply::run(&args),
        Command::Status(args) => apply::status(&args),
        Command::Undo(args) => apply::undo(&args),
        Command::Agent(command) => agent::run(command),
        Command::Avtp(command) => avtp::run(command),
        Command::Tdm(command) => tdm::run(command),
        Command::Receive(command) => receive::run(command),
        Command::Talk(args) => talk::run(&args),
        Command::Listen(args) => listen::run(&args),
        Command::Clock(command) => clock::run(command),
        Command::Group(command) => group::run(command),
        Command::Lab(command) => lab::run(command),
        Command::Sim(args) => sim::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Measure(command) => measure::run(command),
        Command::Trace(command) => trace::run(command),
        Command::Schema(args) => schema::run(&args),
        Command::Completions(args) => pages::completions(&args),
        Command::Man(args) => pages::man(&args),
        Command::Snapshot(args) => snapshot::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Hidden(Hidden::Guardian { journal }) => guardian(&journal),
        Command::Hidden(Hidden::Probe { needs }) => doctor::probe(needs),
        Command::Hidden(Hidden::Keeper { record }) => keeper(&record),
        Command::Hidden(Hidden::Program { file }) => {
            timewire_ctl::program::run(&file)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn guardian(journal: &Path) -> anyhow::Result<ExitCode> {
    Ok(match timewire_host::guardian::guardian_main(journal) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say!("error: {error}");
            ExitCode::from(3)
        }
    })
}

fn keeper(record: &Path) -> anyhow::Result<ExitCode> {
    Ok(match timewire_host::apply::keeper::keeper_main(record) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say!("error: {error}");
            ExitCode::from(3)
        }
    })
}

/// The exit code of an error, and what the user can do about it.
fn classify(error: &anyhow::Error) -> (u8, Option<String>) {
    let of_host = |error: &HostError| match error {
        HostError::NotUndone { .. } => 3,
        error if error.is_unsupported() => 4,
        _ => 2,
    };
    let of_lab = |error: &LabError| match error {
        LabError::Host(error) => of_host(error),
        error if error.is_unsupported() => 4,
        _ => 2,
    };
    if let Some(error) = error.downcast_ref::<CtlError>() {
        let code = match error {
            CtlError::Host(error) => of_host(error),
            CtlError::Lab(error) => of_lab(error),
            CtlError::Clock(_) | CtlError::Gate { .. } => 4,
            CtlError::Mac { source: timewire_path::mac::PathError::NoCarrier { .. }, .. } => 4,
            CtlError::NoCarrier { .. } => 4,
            CtlError::Trace(error) if error.is_unsupported() => 4,
            _ => 2,
        };
        return (code, error.hint());
    }
    if let Some(error) = error.downcast_ref::<ReceiveError>() {
        let code = match error {
            ReceiveError::Host(error) => of_host(error),
            error if error.is_unsupported() => 4,
            _ => 2,
        };
        return (code, error.hint());
    }
    if let Some(error) = error.downcast_ref::<TrafficError>() {
        let code = match error {
            TrafficError::Ctl(CtlError::Host(error)) => of_host(error),
            error if error.is_unsupported() => 4,
            _ => 2,
        };
        return (code, error.hint());
    }
    if let Some(error) = error.downcast_ref::<MeasureError>() {
        let code = match error {
            error if error.leaves_changed() => 3,
            error if error.is_unsupported() => 4,
            _ => 2,
        };
        return (code, error.hint());
    }
    if let Some(error) = error.downcast_ref::<StreamError>() {
        let code = if error.is_unsupported() { 4 } else { 2 };
        return (code, error.hint().map(str::to_owned));
    }
    if let Some(error) = error.downcast_ref::<TraceError>() {
        let code = if error.is_unsupported() { 4 } else { 2 };
        return (code, error.hint().map(str::to_owned));
    }
    if let Some(error) = error.downcast_ref::<RemoteError>() {
        return (2, error.hint().map(str::to_owned));
    }
    if let Some(error) = error.downcast_ref::<StudyError>() {
        return (2, error.hint());
    }
    if let Some(error) = error.downcast_ref::<LabError>() {
        return (of_lab(error), error.hint());
    }
    if let Some(error) = error.downcast_ref::<HostError>() {
        return (of_host(error), error.hint().map(str::to_owned));
    }
    (2, None)
}
