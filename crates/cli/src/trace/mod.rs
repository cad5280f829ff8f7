// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `timewire trace`: where each packet spent its time.
//!
//! Not here: taking captures (`timewire_ctl::trace`), studying them (`timewire_ctl::study`).

mod files;
mod record;
mod show;

use std::fs::{File, OpenOptions};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Subcommand;
use timewire_ctl::study::StudyError;
use timewire_trace::capture::Reader;

pub use show::{run_page, windows_of};

/// What is done with captures.
#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// Follow packets through this host's kernel into a capture, until ended or while a command
    /// runs
    ///
    /// Needs root. Exit code 0: nothing was lost; 1: events were lost, or the command failed; 4:
    /// this kernel lacks what is needed.
    Record(Box<record::Record>),
    /// Journeys of packets: where each spent its time, of one host or of several on one timeline
    ///
    /// Exit code 1: a deadline of --chain was missed or nothing passed all of it, or the limit of
    /// --below was missed.
    Show(Box<show::Show>),
    /// What is in a capture: stations, hooks, times, and what was lost
    Info(files::InfoArgs),
    /// A part of a capture: of a time, stations, hooks, flows, or by a filter
    Cut(files::CutArgs),
    /// Captures of one kernel as one
    Merge(files::MergeArgs),
    /// The events of a capture as CSV or JSON Lines
    Export(files::ExportArgs),
}

pub fn run(command: TraceCommand) -> anyhow::Result<ExitCode> {
    match command {
        TraceCommand::Record(args) => record::run(&args),
        TraceCommand::Show(args) => show::run(&args),
        TraceCommand::Info(args) => files::info(&args),
        TraceCommand::Cut(args) => files::cut(&args),
        TraceCommand::Merge(args) => files::merge(&args),
        TraceCommand::Export(args) => files::export(&args),
    }
}

/// A capture, to be read.
fn open(file: &Path) -> anyhow::Result<Reader<File>> {
    let opened =
        File::open(file).map_err(|source| StudyError::Open { file: file.to_owned(), source })?;
    let failed = |source| StudyError::Capture { file: file.to_owned(), source };
    Ok(Reader::new(opened).map_err(failed)?)
}

/// A file that must not be there yet, unless it is to be replaced.
fn create(file: &Path, force: bool) -> anyhow::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true);
    if force {
        options.create(true).truncate(true);
    } else {
        options.create_new(true);
    }
    options.open(file).with_context(|| {
        let what = if file.exists() { "; --force writes over it" } else { "" };
        format!("cannot write {}{what}", file.display())
    })
}
