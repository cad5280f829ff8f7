// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `report --hdr`: the times of a run's messages for the tools of HdrHistogram.
//!
//! Not here: the format (`timewire_report::hdr`).

use std::path::{Path, PathBuf};

use anyhow::bail;
use clap::Args;
use timewire_base::Span;
use timewire_ctl::rundir::RunDir;
use timewire_report::hdr::{HdrLog, HdrSeries};

use super::{Kind, traffic};
use crate::new_file::NewFile;
use crate::traffic::parse_interval;

#[derive(Debug, Args)]
pub struct Hdr {
    /// Also write the time that each message took to this file, as an interval log of
    /// HdrHistogram; of `run`, `demo`, `sim`, `talk` and `listen`
    #[arg(long, value_name = "FILE", conflicts_with = "serve")]
    pub hdr: Option<PathBuf>,
    /// With --hdr: one histogram of each stream for so long [default: 1s]
    #[arg(long, value_name = "TIME", value_parser = interval, requires = "hdr")]
    pub hdr_interval: Option<Span>,
    /// With --hdr: write over a file that is there
    #[arg(long, requires = "hdr")]
    pub force: bool,
}

/// An interval when nothing is said.
const INTERVAL: Span = Span::from_ms(1_000);
/// The longest log: some hundred bytes a line.
const LINES: u64 = 1_000_000;

fn interval(text: &str) -> Result<Span, String> {
    let span = parse_interval(text)?;
    if span < HdrLog::SHORTEST {
        let shortest = HdrLog::SHORTEST;
        return Err(format!("the log tells times in milliseconds; {span} is below {shortest}"));
    }
    Ok(span)
}

impl Hdr {
    /// Makes the log of a run, which [`NewFile::finish`] puts in its place; nothing when none is
    /// asked for.
    ///
    /// **Errors**: the run keeps no times of single messages, they are too many intervals, or the
    /// file cannot be written.
    pub(super) fn log(
        &self,
        directory: &Path,
        kind: Option<Kind>,
    ) -> anyhow::Result<Option<NewFile>> {
        let Some(path) = &self.hdr else { return Ok(None) };
        // Before anything is computed: it says whether it can be there.
        let mut file = NewFile::create(path, self.force)?;
        let (what, series) = match kind {
            None => of_run(&RunDir::open(directory)?)?,
            Some(Kind::Traffic) => traffic::times(directory)?,
            Some(_) => bail!(
                "{} has no times of single messages for --hdr: it is for runs of `run`, `demo`, \
                 `sim`, `talk` and `listen`",
                directory.display()
            ),
        };
        let log = HdrLog { what, interval: self.hdr_interval.unwrap_or(INTERVAL), series };
        let lines = log.lines();
        if lines > LINES {
            bail!(
                "intervals of {} make {lines} histograms, and a log has at most {LINES}: take a \
                 longer --hdr-interval",
                log.interval
            );
        }
        log.write(&mut file)?;
        Ok(Some(file))
    }
}

fn of_run(directory: &RunDir) -> anyhow::Result<(String, Vec<HdrSeries>)> {
    let mut series = Vec::new();
    for case in directory.transfers()? {
        for stream in case.streams {
            let name = format!("{}/{}", case.id, stream.name);
            series.push(HdrSeries::new(name, case.from_ns, stream.messages));
        }
    }
    Ok(("transfer, Send to Receive".to_owned(), series))
}
