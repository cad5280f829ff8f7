// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which ways there are here to carry a schedule out, and which is the best.
//!
//! Not here: putting one in its place.

use super::about_link::Link;
use super::finding::{Road, RoadFinding};
use super::{Outcome, Probe, Probes};

/// Where a schedule is to be carried out.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place<'a> {
    /// On an interface.
    Link(Link<'a>),
    /// In the local laboratory, or nowhere in particular: on virtual interfaces.
    Virtual,
}

/// All roads, the best first, each with why it can or cannot be had.
pub(super) fn roads(probes: &Probes, place: Place<'_>) -> Vec<RoadFinding> {
    let road = |road: Road| match open(road, probes, place) {
        Ok(why) => RoadFinding { carrier: road, possible: true, why },
        Err(why) => RoadFinding { carrier: road, possible: false, why },
    };
    Road::BY_PREFERENCE.into_iter().map(road).collect()
}

/// The best one of those that are asked for, and keeps slots; without any, the best one.
pub(super) fn best(roads: &[RoadFinding], is_asked: impl Fn(Road) -> bool) -> Option<Road> {
    let open = |road: &&RoadFinding| road.possible && is_asked(road.carrier);
    let possible = || roads.iter().filter(open).map(|road| road.carrier);
    possible().find(|road| road.keeps_slots()).or_else(|| possible().next())
}

/// Why a road is open, or why not.
fn open(road: Road, probes: &Probes, place: Place<'_>) -> Result<String, String> {
    let tried = |probe: Probe| match probes.of(probe) {
        Outcome::Works { .. } => Ok(()),
        Outcome::Absent { said } => Err(said),
        Outcome::Forbidden { said } => Err(format!("not allowed: {said}")),
        Outcome::Untried { why } => Err(format!("not tried: {why}")),
    };
    match road {
        Road::TaprioOffload => {
            tried(Probe::Taprio)?;
            in_the_card(place, "taprio", |can| can.taprio, probes)
        }
        Road::EtfOffload => {
            tried(Probe::Etf)?;
            in_the_card(place, "etf", |can| can.etf, probes)
        }
        Road::Taprio => {
            tried(Probe::Taprio)?;
            several_queues(place)?;
            Ok("every frame in its slot, by gates of the kernel".to_owned())
        }
        Road::TaprioAssist => {
            tried(Probe::TaprioTxtimeAssist)?;
            tried(Probe::Etf)?;
            several_queues(place)?;
            Ok("every frame in its slot, by launch times that the kernel computes".to_owned())
        }
        Road::MacNative => {
            tried(Probe::XskNative)?;
            let mut why = "every frame in its slot, by a thread of Timewire".to_owned();
            // It was tried on an interface of the kernel's own.
            if let Place::Link(link) = place {
                let driver = link.driver().unwrap_or("unknown");
                match link.abilities().map(|can| can.xdp) {
                    Some(true) => {}
                    Some(false) => return Err(format!("the driver {driver} has no XDP")),
                    None => why += &format!(", if the driver {driver} has XDP, which is not known"),
                }
            }
            Ok(why)
        }
        Road::MacGeneric => {
            tried(Probe::XskGeneric)?;
            Ok("every frame in its slot, by a thread of Timewire; slower than in the driver".into())
        }
        Road::MacPacket => {
            tried(Probe::PacketSocket)?;
            Ok("every frame in its slot, by a thread of Timewire; slower than AF_XDP".to_owned())
        }
        Road::Etf => {
            tried(Probe::Etf)?;
            tried(Probe::LaunchTimes)?;
            several_queues(place)?;
            Ok("real-time frames in their slots, best effort at any time".to_owned())
        }
        Road::Cbs => {
            tried(Probe::Cbs)?;
            several_queues(place)?;
            Ok("no slots, but a rate for each class".to_owned())
        }
        Road::Mqprio => {
            tried(Probe::Mqprio)?;
            several_queues(place)?;
            Ok("no slots, but classes that go before others".to_owned())
        }
    }
}

/// The classes of a carrier of the kernel need queues of their own; the laboratory makes its
/// interfaces with enough.
fn several_queues(place: Place<'_>) -> Result<(), String> {
    match place {
        Place::Link(link) if link.transmit_queues().1 < 2 => {
            Err(format!("{} has one transmit queue", link.name))
        }
        _ => Ok(()),
    }
}

/// What the card does counts only when it was tried.
fn in_the_card(
    place: Place<'_>,
    what: &str,
    can: impl Fn(super::drivers::Abilities) -> bool,
    probes: &Probes,
) -> Result<String, String> {
    let Place::Link(link) = place else {
        return Err("there is no card".to_owned());
    };
    if !link.is_card() {
        return Err(format!("{} is no card", link.name));
    }
    let tried = probes.offloads.get(link.name).and_then(|tried| tried.get(what));
    match tried {
        Some(Outcome::Works { .. }) => return Ok("in the card".to_owned()),
        Some(other) => return Err(other.text().to_owned()),
        None => {}
    }
    let driver = link.driver().unwrap_or("unknown");
    match link.abilities().map(can) {
        Some(false) => Err(format!("the driver {driver} has it not")),
        _ if link.clock().is_none() => Err("the card has no clock".to_owned()),
        Some(true) => Err(format!(
            "the driver {driver} has it for some of its cards, and this one was not tried \
             (--try-offload {})",
            link.name
        )),
        None => Err(format!("nothing is known of the driver {driver}, and it was not tried")),
    }
}
