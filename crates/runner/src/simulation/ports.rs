// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What each port of a simulated network sent: counted while it runs, kept in the run directory,
//! and drawn with the network.

use std::fs;

use crate::rundir::RunDir;
use serde::{Deserialize, Serialize};
use timewire_base::{FileError, Span, StationName};
use timewire_model::scenario::network::NetworkFile;
use timewire_report::{Carried, Topology, TopologyKind, TopologyLink, TopologyNode};
use timewire_sim::net::{PortIndex, Seen, What};
use timewire_tsn::file::ParseFile;

use crate::RunnerError;
use crate::error::Context as _;

/// The file of a run directory.
const PORTS: &str = "ports.json";
const SCHEMA: &str = "timewire.ports/1";

/// What ports sent, of all runs together.
#[derive(Debug, Default)]
pub struct Loads(Vec<Load>);

#[derive(Clone, Copy, Debug, Default)]
struct Load {
    frames: u64,
    busy_ps: u64,
    /// When the frame began that it sends.
    since_ps: u64,
}

/// The file.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    schema: String,
    /// The time that all runs together took.
    time_ns: i64,
    /// Two of each link, in the order of the file and of its ends; then one of each station of each
    /// segment.
    ports: Vec<Port>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Port {
    from: String,
    /// The other end of the link, or the segment.
    to: String,
    rate_bps: u64,
    frames: u64,
    busy_ns: u64,
}

impl Loads {
    pub fn seen(&mut self, seen: &Seen) {
        let (What::Started { port, .. } | What::Ended { port, .. }) = seen.what else { return };
        if self.0.len() <= port.0 {
            self.0.resize(port.0 + 1, Load::default());
        }
        let Some(load) = self.0.get_mut(port.0) else { return };
        match seen.what {
            What::Ended { at_ps, .. } => {
                load.frames += 1;
                load.busy_ps += at_ps.saturating_sub(load.since_ps);
            }
            _ => load.since_ps = seen.at_ps,
        }
    }

    /// Adds those of another run; the order does not matter.
    pub fn add(&mut self, other: &Loads) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), Load::default());
        }
        for (mine, other) in self.0.iter_mut().zip(&other.0) {
            mine.frames += other.frames;
            mine.busy_ps += other.busy_ps;
        }
    }

    /// Keeps them.
    ///
    /// **Errors**: the file cannot be written.
    pub fn write(&self, run: &RunDir, file: &NetworkFile, time: Span) -> Result<(), RunnerError> {
        let load = |at: usize| self.0.get(at).copied().unwrap_or_default();
        let mut ports = Vec::new();
        for (from, to, rate_bps) in all(file) {
            let Load { frames, busy_ps, .. } = load(ports.len());
            let busy_ns = busy_ps / 1_000;
            let (from, to) = (from.to_string(), to.to_string());
            ports.push(Port { from, to, rate_bps, frames, busy_ns });
        }
        let kept = Kept { schema: SCHEMA.to_owned(), time_ns: time.as_ns(), ports };
        run.write_text(
            PORTS,
            &(serde_json::to_string_pretty(&kept).context("cannot write JSON")? + "\n"),
        )?;
        Ok(())
    }
}

/// All ports, in the order of [`PortIndex`]: whose each is, what is at the other end, and the rate.
fn all(file: &NetworkFile) -> Vec<(&StationName, &StationName, u64)> {
    let mut ports = Vec::new();
    for link in &file.links {
        if let [one, two] = &link.between[..] {
            ports.push((one, two, link.rate.get()));
            ports.push((two, one, link.rate.get()));
        }
    }
    for segment in &file.segments {
        let of = |station| (station, &segment.name, segment.rate.get());
        ports.extend(segment.stations.iter().map(of));
    }
    ports
}

/// Whose a port is, and what is at the other end.
pub(super) fn ends(file: &NetworkFile, port: PortIndex) -> Option<(&str, &str)> {
    all(file).get(port.0).map(|(own, far, _)| (own.as_str(), far.as_str()))
}

/// The network that was simulated, with what its ports sent; `None` where the run is of none, or of
/// several.
///
/// **Errors**: a file does not hold what it should.
pub fn topology(run: &RunDir) -> Result<Option<Topology>, RunnerError> {
    let networks = run.meta()?.networks;
    let [name] = networks.as_slice() else { return Ok(None) };
    let path = run.network_path(name);
    let shown = path.display().to_string();
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {shown}"))?;
    let file = NetworkFile::parse(&shown, &text)
        .map_err(|errors| RunnerError::Invalid(errors.to_string()))?;
    Ok(Some(drawn(&file, kept(run)?.as_ref())))
}

/// Directories that older versions wrote have none, nor have runs that were cut short.
fn kept(run: &RunDir) -> Result<Option<Kept>, RunnerError> {
    let path = run.path().join(PORTS);
    if !path.exists() {
        return Ok(None);
    }
    let shown = || format!("cannot read {}", path.display());
    let text = fs::read_to_string(&path).with_context(shown)?;
    let kept: Kept = serde_json::from_str(&text).with_context(shown)?;
    if kept.schema != SCHEMA {
        let why = format!("it is of version {}", kept.schema);
        return Err(FileError::content(path, why).into());
    }
    Ok(Some(kept))
}

fn drawn(file: &NetworkFile, kept: Option<&Kept>) -> Topology {
    let mut nodes = Vec::new();
    let named = |name: String, kind| TopologyNode { name, kind };
    let stations = file.stations.iter().map(|it| named(it.name.to_string(), TopologyKind::Station));
    nodes.extend(stations);
    nodes.extend(file.bridges.iter().map(|it| named(it.name.to_string(), TopologyKind::Bridge)));
    nodes.extend(file.segments.iter().map(|it| named(it.name.to_string(), TopologyKind::Segment)));
    let place = |name: &str| nodes.iter().position(|node| node.name == name);
    let mut ports = 0_usize;
    let mut carried = || {
        let at = ports;
        ports += 1;
        let kept = kept?;
        let port = kept.ports.get(at)?;
        let share = as_f64(port.busy_ns) / as_f64(kept.time_ns.max(1).unsigned_abs());
        Some(Carried { frames: port.frames, share })
    };
    let mut links = Vec::new();
    for link in &file.links {
        let [one, two] = &link.between[..] else { continue };
        let (there, back) = (carried(), carried());
        if let (Some(one), Some(two)) = (place(one.as_str()), place(two.as_str())) {
            let carried = there.zip(back).map(|(there, back)| [there, back]);
            links.push(TopologyLink { ends: [one, two], rate_bps: link.rate.get(), carried });
        }
    }
    for segment in &file.segments {
        for station in &segment.stations {
            let there = carried();
            let ends = (place(station.as_str()), place(segment.name.as_str()));
            if let (Some(station), Some(at)) = ends {
                // Nothing comes from the segment itself.
                let carried = there.map(|there| [there, Carried::default()]);
                let rate_bps = segment.rate.get();
                links.push(TopologyLink { ends: [station, at], rate_bps, carried });
            }
        }
    }
    Topology { nodes, links }
}

#[expect(clippy::cast_precision_loss, reason = "a share, for drawing")]
fn as_f64(count: u64) -> f64 {
    count as f64
}
