// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files that `plan` writes besides those of `--render`: begun before the search, so that none is
//! found to be there after it.

use std::io::Write as _;
use std::path::Path;

use anyhow::Context;
use timewire_plan::exchange::{TsnkitPlan, write_tsnkit};
use timewire_plan::gantt;
use timewire_plan::keep::Reservations;
use timewire_plan::model::{Plan, Problem, StreamId};

use super::PlanArgs;
use super::file::OwnFile;
use crate::new_file::NewFile;

/// Those that were asked for.
pub struct Files {
    tables: Option<Vec<NewFile>>,
    status: Option<NewFile>,
    drawing: Option<NewFile>,
    reservations: Option<NewFile>,
}

impl Files {
    /// **Errors**: one is there already, or cannot be written.
    pub fn begin(args: &PlanArgs) -> anyhow::Result<Files> {
        let whole = |path: &Path| path.canonicalize().ok();
        let read = args.file.as_deref().and_then(whole);
        let new = |path: &Option<_>| -> anyhow::Result<Option<NewFile>> {
            let path: Option<&std::path::PathBuf> = path.as_ref();
            let is_read = path.is_some_and(|path| read.is_some() && whole(path) == read);
            if let Some(path) = path.filter(|_| is_read) {
                anyhow::bail!("{} is the network; write into another file", path.display());
            }
            path.map(|path| NewFile::create(path, args.force)).transpose()
        };
        let prefix = args.export_tsnkit.as_deref();
        Ok(Files {
            tables: prefix.map(|prefix| export_files(prefix, args.force)).transpose()?,
            status: new(&args.status)?,
            drawing: new(&args.gantt)?,
            reservations: new(&args.out)?,
        })
    }

    /// Writes them: of the network of this name, drawn as far as one stream goes if it is told.
    pub fn finish(
        self,
        network: &str,
        (problem, plan): (&Problem, &Plan),
        explained: Option<StreamId>,
        own: Option<&OwnFile>,
    ) -> anyhow::Result<()> {
        if let Some(mut file) = self.reservations {
            let reservations = Reservations::of(network, problem, plan);
            file.write_all(reservations.to_text().as_bytes())?;
            file.finish()?;
        }
        if let Some(mut file) = self.drawing {
            let svg = gantt::svg(problem, plan, explained).map_err(|why| {
                anyhow::anyhow!(
                    "cannot draw the plan: {why}; --explain STREAM draws a stream's links"
                )
            })?;
            file.write_all(svg.as_bytes())?;
            file.finish()?;
        }
        if let Some(mut files) = self.tables {
            let tables = write_tsnkit(problem, plan);
            let tables = tables.map_err(|why| anyhow::anyhow!("cannot write the tables: {why}"))?;
            for (file, (_, text)) in files.iter_mut().zip(tables.files()) {
                file.write_all(text.as_bytes()).context("cannot write the tables")?;
            }
            files.into_iter().try_for_each(NewFile::finish)?;
        }
        if let (Some(mut file), Some(own)) = (self.status, own) {
            file.write_all(own.status(plan).unwrap_or_default().as_bytes())?;
            file.finish()?;
        }
        Ok(())
    }
}

/// The files of an export, none of which is there yet.
fn export_files(prefix: &Path, force: bool) -> anyhow::Result<Vec<NewFile>> {
    let ends = TsnkitPlan::default().files().map(|(end, _)| end);
    let create = |end: &str| {
        let mut name = prefix.as_os_str().to_owned();
        name.push(end);
        NewFile::create(Path::new(&name), force)
    };
    ends.into_iter().map(create).collect()
}
