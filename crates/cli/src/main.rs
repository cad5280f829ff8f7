// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The `timewire` command: parses, calls, prints, and answers with an exit code.
//!
//! Data goes to stdout, talk to stderr. Exit codes: 0 done and within limits; 1 done, with a missed
//! limit; 2 usage or operation failed, host unchanged; 3 host left changed; 4 unsupported here.
//!
//! Not here: anything that measures or changes something.

mod args;
mod experiment;
mod lab;
mod output;
mod segment;
mod tdm;

use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use timewire_ctl::CtlError;
use timewire_host::HostError;
use timewire_lab::LabError;

use args::{Command, Hidden, Request};

fn main() -> ExitCode {
    timewire_lab::enter_guest();
    let request = Request::parse();
    match run(request.command) {
        Ok(code) => code,
        Err(error) => {
            let (code, hint) = classify(&error);
            if !output::is_broken_pipe(&error) {
                eprintln!("error: {}", output::message(&error));
                if let Some(hint) = hint {
                    eprintln!("  hint: {hint}");
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
        Command::Run(args) => experiment::run(&args),
        Command::Report(args) => experiment::report(&args),
        Command::Tdm(command) => tdm::run(command),
        Command::Lab(command) => lab::run(command),
        Command::Schema => output::print(&timewire_sched::scenario::json_schema()),
        Command::Hidden(Hidden::Guardian { journal }) => guardian(&journal),
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
            eprintln!("error: {error}");
            ExitCode::from(3)
        }
    })
}

/// The exit code of an error, and what the user can do about it.
fn classify(error: &anyhow::Error) -> (u8, Option<String>) {
    let of_host = |error: &HostError| match error {
        HostError::NotUndone { .. } => 3,
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
            CtlError::Mac { source: timewire_path::mac::PathError::NoCarrier { .. }, .. } => 4,
            _ => 2,
        };
        return (code, error.hint());
    }
    if let Some(error) = error.downcast_ref::<LabError>() {
        return (of_lab(error), error.hint());
    }
    if let Some(error) = error.downcast_ref::<HostError>() {
        return (of_host(error), error.hint().map(str::to_owned));
    }
    (2, None)
}
