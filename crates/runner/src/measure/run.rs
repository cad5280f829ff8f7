// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The runner of all measurements: from the check of what is asked for to the files of the result.
//!
//! ```text
//! check -> directory -> signals -> endpoints -> NIC -> trials -> NIC, endpoints restored -> files
//! ```
//!
//! A measurement gives its parts to it ([`Measurement`]), and what it came to the text, the JSON
//! and the exit code ([`Report`]).

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use serde::Serialize;
use timewire_base::IfName;
use timewire_datapath::files::write_json;
use timewire_datapath::timestamping;
use timewire_host::HostError;
use timewire_host::journal::Journal;
use timewire_host::timestamping::Timestamped;
use timewire_lab::LabError;
use timewire_sys::event::EndRequests;

use super::bench::{End, Pair, PairSpec};
use super::nic_clock::{self, Look};
use crate::RunnerError;

/// The parts of a measurement.
pub trait Measurement {
    /// What it comes to.
    type Report: Report;

    /// Checks what no type can.
    ///
    /// **Errors**: in words, with what would be right.
    fn check(&self) -> Result<(), RunnerError>;

    /// Makes the endpoints ready.
    ///
    /// **Errors**: no privilege, no such interface.
    fn endpoints(&self, session: &mut Session<'_>) -> Result<EndpointSetup, RunnerError>;

    /// What the NIC is told to timestamp.
    fn timestamped(&self, _: &EndpointSetup) -> Timestamped {
        Timestamped::default()
    }

    /// Whether it goes on when the NIC cannot.
    fn has_other_timestamps(&self) -> bool {
        false
    }

    /// Makes all trials. When it is asked to end, it tells what it has.
    ///
    /// **Errors**: what cannot be measured.
    fn measure(
        &self,
        endpoints: &EndpointSetup,
        session: &mut Session<'_>,
    ) -> Result<Self::Report, RunnerError>;
}

/// What a measurement came to. As JSON it is what `--json` prints and `NAME.json` holds.
pub trait Report: Serialize + Sized {
    /// What its files are called.
    const NAME: &'static str;

    /// The first line of `frames.csv`, of those that keep every frame. All that is in their
    /// directory is of one measurement.
    const FRAMES: Option<&'static str> = None;

    /// As text for a terminal.
    fn text(&self) -> String;

    /// Whether it was ended before all was measured.
    fn ended_early(&self) -> bool;

    /// When nothing could be measured: whether another kernel, driver or NIC would have it.
    fn absent(&self) -> Option<bool> {
        None
    }

    /// Whether something was lost or a limit does not pass.
    fn has_findings(&self) -> bool;

    /// The exit code of the command. A measurement that was ended has kept what it has, and is not
    /// done.
    fn exit_code(&self) -> u8 {
        match self.absent() {
            _ if self.ended_early() => 2,
            Some(true) => 4,
            Some(false) => 2,
            None => u8::from(self.has_findings()),
        }
    }

    /// Takes the notes that belong into it; what stays is told beside it.
    fn keep(&mut self, _: &mut Vec<String>) {}

    /// Writes the other lines of `frames.csv`.
    ///
    /// **Errors**: those of the file.
    fn write_frames(&self, _: &mut dyn Write) -> io::Result<()> {
        Ok(())
    }

    /// Writes pictures beside the other files.
    ///
    /// **Errors**: one cannot be written.
    fn write_pictures(&self, _: &Path) -> Result<(), RunnerError> {
        Ok(())
    }
}

/// Makes the directory for the files of a result.
fn make_directory<R: Report>(path: &Path) -> Result<(), RunnerError> {
    fs::create_dir_all(path).map_err(RunnerError::file("make", path))?;
    let mut listing = match R::FRAMES {
        Some(_) => fs::read_dir(path).map_err(RunnerError::file("list", path))?,
        None => return Ok(()),
    };
    if listing.next().is_some() {
        let why = format!("{} is not empty: name another directory", path.display());
        return Err(RunnerError::Invalid(why));
    }
    Ok(())
}

/// Writes the files of a result.
fn write<R: Report>(
    report: &R,
    directory: &Path,
    notes: &mut Vec<String>,
) -> Result<(), RunnerError> {
    report.write_pictures(directory)?;
    write_json(&directory.join(format!("{}.json", R::NAME)), report)?;
    let Some(head) = R::FRAMES else { return Ok(()) };
    let text = directory.join(format!("{}.txt", R::NAME));
    fs::write(&text, report.text()).map_err(RunnerError::file("write", &text))?;
    let file = directory.join("frames.csv");
    let frames = || -> io::Result<()> {
        let mut out = io::BufWriter::new(fs::File::create(&file)?);
        writeln!(out, "{head}")?;
        report.write_frames(&mut out)?;
        out.flush()
    };
    frames().map_err(RunnerError::file("write", &file))?;
    notes.push(format!("every frame is in {}", directory.display()));
    Ok(())
}

/// A measurement that runs: who ends it and who hears of it.
pub struct Session<'a> {
    pub(super) ends: EndRequests,
    pub(super) tell: &'a mut (dyn FnMut(&str) + Send),
    pub(super) notes: &'a mut Vec<String>,
}

/// Measures; with a directory, writes the files of the result into it. `tell` hears what is being
/// done, `notes` has what else is to be known, also of a measurement that failed.
///
/// A request to end (SIGINT, SIGTERM) ends it with what was measured so far.
///
/// **Errors**: what cannot be measured; the host is as it was, or the error says otherwise.
pub fn run<M: Measurement>(
    measurement: &M,
    directory: Option<&Path>,
    tell: &mut (dyn FnMut(&str) + Send),
    notes: &mut Vec<String>,
) -> Result<M::Report, RunnerError> {
    measurement.check()?;
    directory.map_or(Ok(()), make_directory::<M::Report>)?;
    // Before anything is made: from here on it ends by itself when it is asked to.
    let ends = EndRequests::new().map_err(|error| RunnerError::kernel("block signals", error))?;
    let mut session = Session { ends, tell, notes };
    let endpoints = measurement.endpoints(&mut session)?;
    let wanted = measurement.timestamped(&endpoints);
    let nic = match timestamping::begin(endpoints.named(), wanted, session.notes) {
        Err(error) if measurement.has_other_timestamps() => {
            session.notes.push(error.to_string());
            None
        }
        begun => begun?,
    };
    let mut report = measurement.measure(&endpoints, &mut session)?;
    notes.extend(timestamping::end(nic)?);
    if let EndpointSetup::Bench(pair) = endpoints {
        pair.destroy()?;
    }
    report.keep(notes);
    directory.map_or(Ok(()), |path| write(&report, path, notes))?;
    Ok(report)
}

/// The endpoints of a measurement, ready for it.
#[derive(Debug)]
pub enum EndpointSetup {
    /// A pair that was made for it.
    Bench(Pair),
    /// An interface of this host, where it is named, with another host at its other end.
    Interface {
        /// Its name.
        name: Option<IfName>,
        /// What undoes changes of this host.
        journal: OnceLock<Arc<Journal>>,
    },
}

impl EndpointSetup {
    pub(super) fn bench(
        queues: u32,
        tell: &mut dyn FnMut(&str),
    ) -> Result<EndpointSetup, RunnerError> {
        Ok(EndpointSetup::Bench(Pair::create(PairSpec { queues, ipv6: false }, tell)?))
    }

    pub(super) fn interface(name: Option<&IfName>) -> EndpointSetup {
        EndpointSetup::Interface { name: name.cloned(), journal: OnceLock::new() }
    }

    pub(super) fn pair(&self) -> Option<&Pair> {
        match self {
            EndpointSetup::Bench(pair) => Some(pair),
            EndpointSetup::Interface { .. } => None,
        }
    }

    /// The interface of this host.
    pub(super) fn named(&self) -> Option<&IfName> {
        match self {
            EndpointSetup::Bench(_) => None,
            EndpointSetup::Interface { name, .. } => name.as_ref(),
        }
    }

    /// The interface, of the bench at either end.
    pub(super) fn name(&self) -> Option<IfName> {
        self.pair().map(Pair::interface).or_else(|| self.named().cloned())
    }

    /// Runs something at one end on a thread of its own; an interface of this host has one end
    /// here.
    pub(super) fn inside<T: Send>(
        &self,
        end: End,
        work: impl FnOnce() -> T + Send,
    ) -> Result<T, LabError> {
        if let Some(pair) = self.pair() {
            return pair.inside(end, work);
        }
        let joined = std::thread::scope(|scope| scope.spawn(work).join());
        joined.or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// How the NIC's clock stands now.
    pub(super) fn look(&self) -> Result<Look, String> {
        match self {
            EndpointSetup::Bench(_) => Err("the bench's interfaces have no clock".to_owned()),
            EndpointSetup::Interface { name: Some(name), .. } => nic_clock::look(name),
            EndpointSetup::Interface { name: None, .. } => {
                Err("without --interface nobody knows which NIC it is".to_owned())
            }
        }
    }

    /// What undoes changes of the host.
    pub(super) fn journal(&self) -> Result<&Journal, HostError> {
        let journal = match self {
            EndpointSetup::Bench(pair) => return Ok(pair.journal()),
            EndpointSetup::Interface { journal, .. } => journal,
        };
        if let Some(journal) = journal.get() {
            return Ok(journal);
        }
        let new = Arc::new(Journal::begin("settings of a measurement")?);
        Ok(journal.get_or_init(|| new))
    }
}

/// The order of what is measured in one repeat: each repeat begins one later, so that none always
/// comes after the same pause or the same neighbour of the beginning.
pub(super) fn order(count: usize, repeat: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |at| (at + repeat) % count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct Known(bool, Option<bool>, bool);

    impl Report for Known {
        const NAME: &'static str = "known";

        fn text(&self) -> String {
            String::new()
        }

        fn ended_early(&self) -> bool {
            self.0
        }

        fn absent(&self) -> Option<bool> {
            self.1
        }

        fn has_findings(&self) -> bool {
            self.2
        }
    }

    #[test]
    fn t0_what_was_ended_goes_before_what_is_missing_and_that_before_findings() {
        let code = |ended, absent, bad| Known(ended, absent, bad).exit_code();
        assert_eq!([code(true, Some(true), true), code(true, None, false)], [2, 2]);
        assert_eq!([code(false, Some(true), true), code(false, Some(false), false)], [4, 2]);
        assert_eq!([code(false, None, true), code(false, None, false)], [1, 0]);
    }

    #[test]
    fn t0_repeats_begin_one_later_each() {
        let of = |repeat| order(3, repeat).collect::<Vec<_>>();
        assert_eq!((of(0), of(1), of(5)), (vec![0, 1, 2], vec![1, 2, 0], vec![2, 0, 1]));
    }
}
