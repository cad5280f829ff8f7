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
mod avtp;
mod clock;
mod compare;
mod doctor;
mod ending;
mod experiment;
mod group;
mod in_places;
mod input;
mod kernels;
mod lab;
mod listen;
mod machine;
mod measure;
mod network;
mod new_file;
mod pages;
mod place;
mod plan;
mod receive;
mod report;
mod schema;
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

use clap::{CommandFactory, Parser};
use timewire_base::Failure;
use timewire_model::scenario::FileKind;
use timewire_runner::experiment::{connection, held, station_trace};

use args::{Command, Hidden, Request};
use place::Place;

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
            let failure = output::failure(&error);
            let code = failure.map_or(2, Failure::exit_code);
            let hint = failure.and_then(Failure::hint);
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
        Command::Demo(mut args) => {
            args.place.refuse_several("the demo")?;
            args.place.settle(Place::Lab);
            experiment::demo(&args)
        }
        Command::Run(args) if args.resumed.as_deref().is_some_and(in_places::is_at) => {
            let directory = args.resumed.clone().unwrap_or_default();
            in_places::resume(&directory, &args)
        }
        Command::Run(args) if args.resumed.is_some() => {
            run_files(experiment::resumed::asked(args)?)
        }
        Command::Run(args) => run_files(args),
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
        Command::Completions(args) => pages::completions(&args, Request::command()),
        Command::Man(args) => pages::man(&args, Request::command()),
        Command::Snapshot(args) => snapshot::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Hidden(Hidden::Watchdog { log }) => watchdog(&log),
        Command::Hidden(Hidden::Probe { needs }) => doctor::probe(needs),
        Command::Hidden(Hidden::Program { file, from_start, alone }) => {
            Ok(timewire_runner::program::run(&file, from_start, alone)?)
        }
        Command::Hidden(Hidden::Reply { file }) => {
            timewire_runner::network::send_replies(&file)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Hidden(Hidden::Connection { file, wait }) => {
            match wait {
                true => held::wait(&file)?,
                false => connection::hold(&file)?,
            }
            Ok(ExitCode::SUCCESS)
        }
        Command::Hidden(Hidden::Trace { file, wait }) => {
            match wait {
                true => held::wait(&file)?,
                false => station_trace::hold(&file)?,
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// `run`, by the kinds of its files.
fn run_files(mut args: experiment::Run) -> anyhow::Result<ExitCode> {
    if args.place.all().len() > 1 {
        return in_places::run(&args);
    }
    let is_fresh = args.resumed.is_none();
    let programs = is_fresh && args.has(FileKind::Programs);
    let needs_kernels = programs || args.has_links();
    args.place.settle(if needs_kernels { Place::LabUml } else { Place::Lab });
    match () {
        () if is_fresh && args.array.are_given() => stations::array::run(&args),
        () if is_fresh && args.has(FileKind::Steps) => stations::run(&args),
        () if programs => kernels::run(&args),
        () if args.has_networks() => network::run(&args),
        () => experiment::run(&args),
    }
}

fn watchdog(log: &Path) -> anyhow::Result<ExitCode> {
    Ok(match timewire_host::watchdog_main(log) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say!("error: {error}");
            ExitCode::from(3)
        }
    })
}
