// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The stations of a capture: network namespaces, their interfaces and queueing disciplines.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::Deserialize;
use timewire_bpf::BpfError;
use timewire_bpf::trace::Tracer;
use timewire_capture::capture::{Note, Station};
use timewire_capture::event::Hook;
use timewire_host::tool::{Tool, run};
use timewire_lab::ns::in_namespace;

use super::TraceError;

/// A station to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StationAt {
    /// Its name.
    pub name: String,
    /// Its network namespace, as a file.
    pub netns: PathBuf,
}

#[derive(Deserialize)]
struct Link {
    ifindex: u32,
    ifname: String,
    flags: Vec<String>,
}

/// A NIC that was reset has its link again after some seconds, or not at all.
const LONGEST_RESET: Duration = Duration::from_secs(10);
/// Between two looks at it.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Deserialize)]
struct Qdisc {
    kind: String,
    handle: String,
    dev: String,
}

/// Looks at a station: what it is, and its queueing disciplines as notes; `number` is its index in
/// the capture.
pub(super) fn look(at: &StationAt, number: u8) -> Result<(Station, Vec<Note>), TraceError> {
    let read = |source| TraceError::Host { what: at.netns.display().to_string(), source };
    let namespace = std::fs::metadata(&at.netns).map_err(read)?.ino();
    let (links, qdiscs) = in_namespace(&at.netns, || {
        (
            run(Tool::Ip, &["-json", "link", "show"]),
            run(Tool::Tc, &["-json", "qdisc", "show", "invisible"]),
        )
    })?;
    let links: Vec<Link> = parse(&links?, "ip -json link show", &at.name)?;
    let interfaces: BTreeMap<u32, String> =
        links.into_iter().map(|link| (link.ifindex, link.ifname)).collect();
    let qdiscs: Vec<Qdisc> = parse(&qdiscs?, "tc -json qdisc show invisible", &at.name)?;
    let note = |qdisc: Qdisc| {
        let index = interfaces.iter().find(|(_, name)| **name == qdisc.dev);
        let major = qdisc.handle.trim_end_matches(':');
        Some(Note::Qdisc {
            station: number,
            interface: *index?.0,
            handle: u32::from_str_radix(major, 16).ok()? << 16,
            kind: qdisc.kind,
        })
    };
    let notes = qdiscs.into_iter().filter_map(note).collect();
    Ok((Station { name: at.name.clone(), namespace, interfaces }, notes))
}

/// Has the drivers of all interfaces show their frames, and waits until NICs that were reset for
/// it have their links again. What cannot be watched comes back: a name for the header, and why.
pub(super) fn watch(
    tracer: &mut Tracer,
    stations: &[StationAt],
    found: &[Station],
) -> Result<BTreeMap<String, String>, TraceError> {
    let mut missing = BTreeMap::new();
    let mut had_carrier = Vec::new();
    for (at, station) in stations.iter().zip(found) {
        let carriers = carriers(at)?;
        let watched = in_namespace(&at.netns, || {
            let mut watched = BTreeSet::new();
            for (index, name) in &station.interfaces {
                match tracer.watch(*index)? {
                    None => drop(watched.insert(*index)),
                    Some(why) => {
                        let hook = Hook::Xdp.name();
                        missing.insert(format!("{hook} at {}/{name}", at.name), why);
                    }
                }
            }
            Ok::<_, BpfError>(watched)
        })??;
        had_carrier.push(&carriers & &watched);
    }
    let begun = Instant::now();
    for ((at, station), had) in stations.iter().zip(found).zip(&had_carrier) {
        let gone = loop {
            let gone = had - &carriers(at)?;
            if gone.is_empty() || begun.elapsed() >= LONGEST_RESET {
                break gone;
            }
            std::thread::sleep(POLL_INTERVAL);
        };
        for index in gone {
            let name = station.interfaces.get(&index).map_or("", String::as_str);
            let why = "its link was reset for the program of `xdp`, and is still down";
            missing.insert(format!("carrier at {}/{name}", at.name), why.to_owned());
        }
    }
    Ok(missing)
}

/// The interfaces of a station that have a carrier.
fn carriers(at: &StationAt) -> Result<BTreeSet<u32>, TraceError> {
    let shown = in_namespace(&at.netns, || run(Tool::Ip, &["-json", "link", "show"]))??;
    let links: Vec<Link> = parse(&shown, "ip -json link show", &at.name)?;
    let up = |link: &Link| link.flags.iter().any(|flag| flag == "LOWER_UP");
    Ok(links.into_iter().filter(up).map(|link| link.ifindex).collect())
}

fn parse<T: for<'a> Deserialize<'a>>(
    text: &str,
    tool: &'static str,
    station: &str,
) -> Result<Vec<T>, TraceError> {
    // What both say when there is nothing.
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let why = |error: serde_json::Error| TraceError::Said {
        tool,
        station: station.to_owned(),
        why: error.to_string(),
    };
    serde_json::from_str(text).map_err(why)
}
