// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `report --hdr`, `--csv` and `--parquet`: the times of a run's messages, for the tools of
//! HdrHistogram and for everything that reads tables.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::bail;
use clap::Args;
use timewire_base::Span;
use timewire_capture::table::{self, Cell, Column, csv_head, csv_line};
use timewire_report::hdr::{HdrLog, HdrSeries};
use timewire_report::parquet::ParquetWriter;
use timewire_runner::reports::{self, Kind};

use crate::new_file::NewFile;
use crate::traffic::parse_interval;

#[derive(Debug, Args)]
pub struct Times {
    /// Also write the time that each message took to this file, as an interval log of
    /// HdrHistogram; of `run`, `demo`, `sim`, `talk` and `listen`
    #[arg(long, value_name = "FILE", conflicts_with = "serve")]
    pub hdr: Option<PathBuf>,
    /// With --hdr: one histogram of each stream for so long [default: 1s]
    #[arg(long, value_name = "TIME", value_parser = interval, requires = "hdr")]
    pub hdr_interval: Option<Span>,
    /// Also write when each message began and how long it took to this file, as CSV; of the same
    #[arg(long, value_name = "FILE", conflicts_with = "serve")]
    pub csv: Option<PathBuf>,
    /// Also write the same table to this file as Parquet; of the same
    #[arg(long, value_name = "FILE", conflicts_with = "serve")]
    pub parquet: Option<PathBuf>,
    /// With --hdr, --csv and --parquet: write over a file that is there
    #[arg(long)]
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

impl Times {
    /// Makes the files of a run that are asked for, which [`NewFile::finish`] puts in their places.
    ///
    /// **Errors**: the run keeps no times of single messages, they are too many intervals, or a
    /// file cannot be written.
    pub(super) fn files(
        &self,
        directory: &Path,
        kind: Option<Kind>,
    ) -> anyhow::Result<Vec<NewFile>> {
        // Before anything is computed: it says whether they can be there.
        let create = |path: &Option<PathBuf>| {
            path.as_ref().map(|path| NewFile::create(path, self.force)).transpose()
        };
        let (hdr, csv, parquet) = (create(&self.hdr)?, create(&self.csv)?, create(&self.parquet)?);
        if hdr.is_none() && csv.is_none() && parquet.is_none() {
            if self.force {
                bail!("--force is for the files of --hdr, --csv and --parquet");
            }
            return Ok(Vec::new());
        }
        let Some((what, series)) = reports::times(directory, kind)? else {
            bail!(
                "{} has no times of single messages for --hdr, --csv and --parquet: they are for \
                 runs of `run`, `demo`, `sim`, `talk` and `listen`",
                directory.display()
            );
        };
        let mut files = Vec::new();
        if let Some(mut file) = csv {
            file.write_all(csv_head(&columns()).as_bytes())?;
            rows(&series, &mut |row| file.write_all(csv_line(row).as_bytes()))?;
            files.push(file);
        }
        if let Some(file) = parquet {
            let mut table = ParquetWriter::new(file, &what, &columns())?;
            rows(&series, &mut |row| table.row(row))?;
            files.push(table.finish()?);
        }
        if let Some(mut file) = hdr {
            let log = HdrLog { what, interval: self.hdr_interval.unwrap_or(INTERVAL), series };
            let lines = log.lines();
            if lines > LINES {
                bail!(
                    "intervals of {} make {lines} histograms, and a log has at most {LINES}: take \
                     a longer --hdr-interval",
                    log.interval
                );
            }
            log.write(&mut file)?;
            files.push(file);
        }
        Ok(files)
    }
}

fn columns() -> [Column; 3] {
    let integer = table::Kind::Integer;
    [("series", table::Kind::Text), ("begin_ns", integer), ("took_ns", integer)]
        .map(|(name, kind)| Column::new(name, kind))
}

/// Every message as a row, series by series, each in the order in which they began.
fn rows(all: &[HdrSeries], row: &mut dyn FnMut(&[Cell<'_>]) -> io::Result<()>) -> io::Result<()> {
    for series in all {
        for (begin_ns, took_ns) in &series.times {
            let name = Cell::text(series.name.as_str());
            row(&[name, Cell::Integer(*begin_ns), Cell::integer(*took_ns)])?;
        }
    }
    Ok(())
}
