// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counts frames that are lost behind a redirection (`losses.bpf.c`).
//!
//! Not here: what redirects them (`receive`).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use libbpf_rs::{MapCore, MapFlags};

use crate::{BpfError, load, map_of, objects, program_of};

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/losses.bpf.o"));
const PROGRAM: &str = "losses";
/// Each program with its tracepoint.
pub(crate) const PROBES: [(&str, &str); 3] = [
    ("tw_lost_before", "xdp_cpumap_enqueue"),
    ("tw_lost_behind", "xdp_cpumap_kthread"),
    ("tw_lost_at_once", "xdp_redirect_err"),
];

/// The programs, attached.
#[derive(Debug)]
pub(crate) struct Losses {
    object: libbpf_rs::Object,
    links: Vec<OwnedFd>,
}

impl Losses {
    /// Loads and attaches them; `watched_maps` are the maps that are watched.
    ///
    /// **Errors**: no privilege, or a kernel without these tracepoints.
    pub(crate) fn attach(watched_maps: &[BorrowedFd<'_>]) -> Result<Losses, BpfError> {
        let object = load(PROGRAM, OBJECT, |_| Ok(()))?;
        let map = map_of(&object, "watched_maps");
        for (number, watched) in (0_u32..).zip(watched_maps) {
            let failed = |source| BpfError::Tracepoint { source };
            let key = objects::map_number(*watched).map_err(failed)?;
            map.update(&key.to_ne_bytes(), &number.to_ne_bytes(), MapFlags::ANY)
                .map_err(|source| BpfError::Map { map: "watched_maps", source })?;
        }
        let links: io::Result<Vec<OwnedFd>> = PROBES
            .iter()
            .map(|(program, tracepoint)| {
                objects::raw_tracepoint(tracepoint, program_of(&object, program).as_fd())
            })
            .collect();
        let links = links.map_err(|source| BpfError::Tracepoint { source })?;
        Ok(Losses { object, links })
    }

    /// The links, in the order of [`PROBES`].
    pub(crate) fn links(&self) -> &[OwnedFd] {
        &self.links
    }

    /// The counter of a watched map, summed over all CPUs.
    pub(crate) fn lost(&self, watched: u32) -> Result<u64, BpfError> {
        read(&map_of(&self.object, "lost"), watched)
    }

    /// Gives the map of the counters a name.
    pub(crate) fn pin_counters(&self, path: &std::path::Path) -> io::Result<()> {
        objects::pin(map_of(&self.object, "lost").as_fd(), path)
    }
}

/// The counter of a watched map, summed over all CPUs.
pub(crate) fn read(map: &impl MapCore, watched: u32) -> Result<u64, BpfError> {
    let per_cpu = map
        .lookup_percpu(&watched.to_ne_bytes(), MapFlags::ANY)
        .map_err(|source| BpfError::Map { map: "lost", source })?;
    let values = per_cpu.into_iter().flatten();
    Ok(values.filter_map(|bytes| bytes.try_into().ok().map(u64::from_ne_bytes)).sum())
}

/// Sets the counter of a watched map to 0 on all CPUs.
pub(crate) fn clear(map: &impl MapCore, watched: u32) -> Result<(), BpfError> {
    let failed = |source| BpfError::Map { map: "lost", source };
    let zero = vec![vec![0; 8]; libbpf_rs::num_possible_cpus().map_err(failed)?];
    map.update_percpu(&watched.to_ne_bytes(), &zero, MapFlags::ANY).map_err(failed)
}
