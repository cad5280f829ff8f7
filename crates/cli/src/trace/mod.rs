// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `timewire trace`: where each packet spent its time.
//!
//! Not here: taking captures (`timewire_runner::trace`), studying them (`timewire_runner::study`).

mod files;
mod live;
mod record;
mod show;

use std::fs::File;
use std::path::Path;
use std::process::ExitCode;

use clap::Subcommand;
use timewire_capture::capture::{CaptureError, Reader};
use timewire_capture::event::Hook;
use timewire_runner::study::StudyError;

use crate::ending::{CODE, Ending, Reading, WORDS};

pub use show::{OfRun, run_page, run_perfetto, windows_of};

/// What is done with captures.
#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// Follow packets through this host's kernel into a capture, until ended or while a command
    /// runs
    ///
    /// Needs root. Exit code 0: nothing was lost; 1: events were lost, or the command failed; 4:
    /// this kernel lacks what is needed.
    Record(Box<record::Record>),
    /// Packet paths of packets: where each spent its time, of one host or of several on one
    /// timeline
    ///
    /// Exit code 1: a deadline of --chain was missed or nothing passed all of it, or the limit of
    /// --below does not pass.
    Show(Box<show::Show>),
    /// What is in a capture: stations, hooks, times, and what was lost
    Info(files::InfoArgs),
    /// A part of a capture: of a time, stations, hooks, flows, or by a filter
    Cut(files::CutArgs),
    /// Captures of one kernel as one
    Merge(files::MergeArgs),
    /// The events of a capture as CSV or JSON Lines, or its packets as pcapng
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

/// A capture, to be read: it ends where somebody asks this process to end.
type Capture = Reader<Reading<'static, File>>;

fn open(file: &Path) -> anyhow::Result<Capture> {
    let opened =
        File::open(file).map_err(|source| StudyError::Open { file: file.to_owned(), source })?;
    let ending = Ending::of_this_process()?;
    let reader = Reader::new(ending.reading(opened));
    if reader.is_err() {
        is_whole()?;
    }
    Ok(reader.map_err(of(file))?)
}

/// Whether all was read of what was opened so far.
fn was_ended() -> anyhow::Result<bool> {
    Ok(Ending::of_this_process()?.is_asked())
}

/// What is read before anything can be made of captures was read.
///
/// **Errors**: somebody asked this process to end.
fn is_whole() -> anyhow::Result<()> {
    anyhow::ensure!(!was_ended()?, "{WORDS}; nothing was written");
    Ok(())
}

/// Says that what was told or written is of a part of the captures, if it is; the exit code.
fn code_of(read: impl FnOnce() -> String) -> anyhow::Result<ExitCode> {
    if !was_ended()? {
        return Ok(ExitCode::SUCCESS);
    }
    say!("{WORDS}: this is of {}", read());
    Ok(ExitCode::from(CODE))
}

/// What became of a capture that is read.
fn of(file: &Path) -> impl FnOnce(CaptureError) -> StudyError {
    |source| StudyError::Capture { file: file.to_owned(), source }
}

/// A flow, in the words of `trace export`.
fn parse_flow(text: &str) -> Result<u32, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u32::from_str_radix(digits, 16).map_err(|_| format!("`{text}` is no flow, such as 0x0123abcd"))
}

/// One of these hooks by its name.
fn hook_of(text: &str, known: impl Iterator<Item = Hook>) -> Result<Hook, String> {
    let known: Vec<Hook> = known.collect();
    let hook = Hook::from_name(text).filter(|hook| known.contains(hook));
    hook.ok_or_else(|| {
        let names: Vec<&str> = known.iter().map(|hook| hook.name()).collect();
        format!("`{text}` is no hook; there are {}", names.join(", "))
    })
}
