// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `measure`: experiments that show how exact this host is.
//!
//! Not here: doing them (`timewire_ctl::measure`).

mod launch;
mod path;
mod receive;

use std::process::ExitCode;

use clap::{Subcommand, ValueEnum};
use timewire_ctl::CardStamping;

#[derive(Debug, Subcommand)]
pub enum MeasureCommand {
    /// Measure how long received frames take, from the card or the sender to the program
    ///
    /// All sources, ways to wait, rates and settings are measured in turn in one run and compared.
    /// Settings of the host are put back, also when this is killed. Exit code 0: all messages came;
    /// 1: some were lost; 2 also when it was ended, with what was measured until then.
    Receive(Box<receive::Receive>),
    /// Measure how long messages take from program to program, point by point, at several loads
    ///
    /// First finds the largest rate at which nothing is lost, then measures at shares of it. Exit
    /// code 0: nothing was lost at any of them; 1: something was, or every rate lost something; 2
    /// also when it was ended, with what was measured until then.
    Path(Box<path::PathArgs>),
    /// How far from its launch time a frame leaves: slept for, held by the kernel, by the card, or
    /// in a slot of Timewire's MAC
    ///
    /// The ways take turns in one run. Exit code 0: no frame was lost to its launch time, and all
    /// clocks could be compared; 1: not so; 2 also when it was ended before its end, with what was
    /// measured until then; 4: nothing that was asked for can be measured here.
    Launch(Box<launch::Launch>),
}

/// The exit code of a measurement. One that was ended has kept what it has, and is not done.
fn exit_code(ended_early: bool, is_bad: bool) -> ExitCode {
    match (ended_early, is_bad) {
        (true, _) => ExitCode::from(2),
        (false, true) => ExitCode::from(1),
        (false, false) => ExitCode::SUCCESS,
    }
}

/// Whose stamps are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StampsArg {
    /// The card's, if it stamps already
    Auto,
    /// The card's: it is told to stamp, and put back at the end
    Hardware,
    /// The kernel's alone
    Software,
}

impl From<StampsArg> for CardStamping {
    fn from(stamps: StampsArg) -> CardStamping {
        match stamps {
            StampsArg::Auto => CardStamping::AsItIs,
            StampsArg::Hardware => CardStamping::Told,
            StampsArg::Software => CardStamping::Unused,
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
