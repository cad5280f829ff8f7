// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `measure`: experiments that show how exact this host is.
//!
//! Not here: doing them (`timewire_runner::measure`).

mod launch;
mod path;
mod receive;

use std::path::Path;
use std::process::ExitCode;

use clap::{Subcommand, ValueEnum};
use timewire_datapath::NicTimestamping;
use timewire_runner::measure::{self, Measurement, Report};

use crate::output::{self, ProgressLine};

#[derive(Debug, Subcommand)]
pub enum MeasureCommand {
    /// Measure how long received frames take, from the NIC or the sender to the program
    ///
    /// All sources, ways to wait, rates and settings are measured in turn in one run and compared.
    /// Settings of the host are restored, also when this is killed. Exit code 0: all messages came;
    /// 1: some were lost; 2 also when it was ended, with what was measured until then.
    Receive(Box<receive::Receive>),
    /// Measure how long messages take from program to program, point by point, at several loads
    ///
    /// First finds the largest rate at which nothing is lost, then measures at shares of it. Exit
    /// code 0: nothing was lost at any of them; 1: something was, or every rate lost something; 2
    /// also when it was ended, with what was measured until then.
    Path(Box<path::PathArgs>),
    /// How far from its launch time a frame leaves: slept for, held by the kernel, by the NIC, or
    /// in a slot of Timewire's MAC
    ///
    /// The ways take turns in one run. Exit code 0: no frame was lost to its launch time, and all
    /// clocks could be compared; 1: not so; 2 also when it was ended before its end, with what was
    /// measured until then; 4: nothing that was asked for can be measured here.
    Launch(Box<launch::Launch>),
}

/// Makes a measurement, with its files in a directory; what is to be known beside it is said.
fn measured<M: Measurement>(measurement: &M, out: Option<&Path>) -> anyhow::Result<M::Report> {
    let (mut line, mut notes) = (ProgressLine::new(), Vec::new());
    let report = measure::run(measurement, out, &mut |step| line.line(step), &mut notes);
    line.clear();
    notes.iter().for_each(|note| say!("note: {note}"));
    Ok(report?)
}

/// Prints what a measurement came to.
fn told(report: &impl Report, json: bool) -> anyhow::Result<ExitCode> {
    match json {
        true => output::json(report)?,
        false => output::print(&report.text())?,
    };
    Ok(ExitCode::from(report.exit_code()))
}

/// Whose timestamps are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TimestampsArg {
    /// The NIC's, if it timestamps already
    Auto,
    /// The NIC's: it is told to timestamp, and restored at the end
    Hardware,
    /// The kernel's alone
    Software,
}

impl From<TimestampsArg> for NicTimestamping {
    fn from(timestamps: TimestampsArg) -> NicTimestamping {
        match timestamps {
            TimestampsArg::Auto => NicTimestamping::AsItIs,
            TimestampsArg::Hardware => NicTimestamping::Told,
            TimestampsArg::Software => NicTimestamping::Unused,
        }
    }
}

pub fn run(command: MeasureCommand) -> anyhow::Result<ExitCode> {
    match command {
        MeasureCommand::Receive(args) => receive::run(&args),
        MeasureCommand::Path(args) => path::run(&args),
        MeasureCommand::Launch(args) => launch::run(&args),
    }
}
