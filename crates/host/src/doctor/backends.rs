// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which ways there are here to carry a schedule out, and which is the best.

use super::about_link::Link;
use super::finding::{BackendFinding, BackendVariant};
use super::{Probe, ProbeOutcome, Probes};

/// Where a schedule is to be carried out.
#[derive(Clone, Copy, Debug)]
pub(super) enum BackendSite<'a> {
    /// On an interface.
    Link(Link<'a>),
    /// In the local laboratory, or nowhere in particular: on virtual interfaces.
    Virtual,
}

/// All variants, the best first, each with why it can or cannot be had.
pub(super) fn variants(probes: &Probes, place: BackendSite<'_>) -> Vec<BackendFinding> {
    let variant = |variant: BackendVariant| match open(variant, probes, place) {
        Ok(why) => BackendFinding { backend: variant, possible: true, why },
        Err(why) => BackendFinding { backend: variant, possible: false, why },
    };
    BackendVariant::BY_PREFERENCE.into_iter().map(variant).collect()
}

/// The best one of those that are asked for, and keeps slots; without any, the best one.
pub(super) fn best(
    variants: &[BackendFinding],
    is_asked: impl Fn(BackendVariant) -> bool,
) -> Option<BackendVariant> {
    let open = |variant: &&BackendFinding| variant.possible && is_asked(variant.backend);
    let possible = || variants.iter().filter(open).map(|variant| variant.backend);
    possible().find(|variant| variant.keeps_slots()).or_else(|| possible().next())
}

/// Why a variant is open, or why not.
fn open(
    variant: BackendVariant,
    probes: &Probes,
    place: BackendSite<'_>,
) -> Result<String, String> {
    let tried = |probe: Probe| match probes.of(probe) {
        ProbeOutcome::Works { .. } => Ok(()),
        ProbeOutcome::Absent { said } => Err(said),
        ProbeOutcome::Forbidden { said } => Err(format!("not allowed: {said}")),
        ProbeOutcome::Untried { why } => Err(format!("not tried: {why}")),
    };
    match variant {
        BackendVariant::TaprioOffload => {
            tried(Probe::Taprio)?;
            in_the_nic(place, "taprio", |can| can.taprio, probes)
        }
        BackendVariant::EtfOffload => {
            tried(Probe::Etf)?;
            in_the_nic(place, "etf", |can| can.etf, probes)
        }
        BackendVariant::Taprio => {
            tried(Probe::Taprio)?;
            several_queues(place)?;
            Ok("every frame in its slot, by gates of the kernel".to_owned())
        }
        BackendVariant::TaprioAssist => {
            tried(Probe::TaprioTxtimeAssist)?;
            tried(Probe::Etf)?;
            several_queues(place)?;
            Ok("every frame in its slot, by launch times that the kernel computes".to_owned())
        }
        BackendVariant::MacNative => {
            tried(Probe::XskNative)?;
            let mut why = "every frame in its slot, by a thread of Timewire".to_owned();
            // It was tried on an interface of the kernel's own.
            if let BackendSite::Link(link) = place {
                let driver = link.driver().unwrap_or("unknown");
                match link.abilities().map(|can| can.xdp) {
                    Some(true) => {}
                    Some(false) => return Err(format!("the driver {driver} has no XDP")),
                    None => why += &format!(", if the driver {driver} has XDP, which is not known"),
                }
            }
            Ok(why)
        }
        BackendVariant::MacGeneric => {
            tried(Probe::XskGeneric)?;
            Ok("every frame in its slot, by a thread of Timewire; slower than in the driver".into())
        }
        BackendVariant::MacPacket => {
            tried(Probe::PacketSocket)?;
            Ok("every frame in its slot, by a thread of Timewire; slower than AF_XDP".to_owned())
        }
        BackendVariant::Etf => {
            tried(Probe::Etf)?;
            tried(Probe::LaunchTimes)?;
            several_queues(place)?;
            Ok("real-time frames in their slots, best effort at any time".to_owned())
        }
        BackendVariant::Cbs => {
            tried(Probe::Cbs)?;
            several_queues(place)?;
            Ok("no slots, but a rate for each class".to_owned())
        }
        BackendVariant::Mqprio => {
            tried(Probe::Mqprio)?;
            several_queues(place)?;
            Ok("no slots, but classes that go before others".to_owned())
        }
    }
}

/// The classes of a backend of the kernel need queues of their own; the laboratory makes its
/// interfaces with enough.
fn several_queues(place: BackendSite<'_>) -> Result<(), String> {
    match place {
        BackendSite::Link(link) if link.transmit_queues().1 < 2 => {
            Err(format!("{} has one transmit queue", link.name))
        }
        _ => Ok(()),
    }
}

/// What the NIC does counts only when it was tried.
fn in_the_nic(
    place: BackendSite<'_>,
    what: &str,
    can: impl Fn(super::drivers::Abilities) -> bool,
    probes: &Probes,
) -> Result<String, String> {
    let BackendSite::Link(link) = place else {
        return Err("there is no NIC".to_owned());
    };
    if !link.is_nic() {
        return Err(format!("{} is no NIC", link.name));
    }
    let tried = probes.offloads.get(link.name).and_then(|tried| tried.get(what));
    match tried {
        Some(ProbeOutcome::Works { .. }) => return Ok("in the NIC".to_owned()),
        Some(other) => return Err(other.text().to_owned()),
        None => {}
    }
    let driver = link.driver().unwrap_or("unknown");
    match link.abilities().map(can) {
        Some(false) => Err(format!("the driver {driver} has it not")),
        _ if link.clock().is_none() => Err("the NIC has no clock".to_owned()),
        Some(true) => Err(format!(
            "the driver {driver} has it for some of its NICs, and this one was not tried \
             (--try-offload {})",
            link.name
        )),
        None => Err(format!("nothing is known of the driver {driver}, and it was not tried")),
    }
}
