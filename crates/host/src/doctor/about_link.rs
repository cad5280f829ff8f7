// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is to be said of one interface, whatever is to be done with it.

use timewire_base::IfName;

use super::drivers::{self, Abilities};
use super::finding::{Check, Finding, State};
use super::{Probe, ProbeOutcome, Probes};
use crate::snapshot::Snapshot;
use crate::snapshot::model::{InterfaceSettings, InterfaceState, Word};

/// An interface with everything that is known of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link<'a> {
    /// Its name.
    pub name: &'a IfName,
    /// How it is set.
    pub settings: &'a InterfaceSettings,
    /// What came of it.
    pub state: Option<&'a InterfaceState>,
    /// The host's probes.
    pub probes: &'a Probes,
}

impl<'a> Link<'a> {
    /// The interface of this name, where there is one.
    pub(super) fn find(
        snapshot: &'a Snapshot,
        probes: &'a Probes,
        name: &'a IfName,
    ) -> Option<Link<'a>> {
        let settings = snapshot.settings.interfaces.get(name)?;
        let state = snapshot.state.interfaces.get(name);
        Some(Link { name, settings, state, probes })
    }

    /// What its driver is called; of a virtual one, its kind.
    pub(super) fn driver(&self) -> Option<&str> {
        let driver = self.settings.driver.known().map(|driver| driver.name.as_str());
        driver.or(self.settings.kind.as_deref())
    }

    /// What its driver is known to do.
    pub(super) fn abilities(&self) -> Option<Abilities> {
        drivers::of(self.driver()?)
    }

    /// Whether it is a NIC, and not made by the kernel alone.
    pub(super) fn is_nic(&self) -> bool {
        self.settings.kind.is_none() && self.settings.link_type == "ether"
    }

    /// Transmit queues that are used, and the most that can be.
    pub(super) fn transmit_queues(&self) -> (u64, u64) {
        let all = self.settings.tx_queues.unwrap_or(1);
        let Some(channels) = self.settings.channels.known() else {
            return (self.settings.tx.known().map_or(all, |tx| count(tx.len())), all);
        };
        let now = |kind: Option<crate::snapshot::model::Bounded>| kind.map_or(0, |one| one.now);
        let most = |kind: Option<crate::snapshot::model::Bounded>| {
            kind.map_or(0, |one| one.most.unwrap_or(one.now))
        };
        let sum = now(channels.tx) + now(channels.combined);
        let bound = most(channels.tx) + most(channels.combined);
        (sum.max(1), bound.max(1))
    }

    /// The clock of the NIC: its number.
    pub(super) fn clock(&self) -> Option<u32> {
        self.settings.timestamping.known().and_then(|timestamps| timestamps.phc)
    }

    /// Whether it timestamps both ways in the NIC.
    pub(super) fn timestamps(&self) -> bool {
        let Some(timestamps) = self.settings.timestamping.known() else {
            return false;
        };
        let has = |what: &str| timestamps.capabilities.iter().any(|one| one == what);
        has("hardware-transmit") && has("hardware-receive")
    }

    fn switched_on(&self, name: &str) -> Option<bool> {
        self.settings.features.known()?.get(name).map(|feature| feature.on)
    }
}

fn count(length: usize) -> u64 {
    u64::try_from(length).expect("invariant: a length fits 64 bits")
}

/// The findings about an interface. Whether it has to be connected depends on what is asked.
pub(super) fn findings(link: &Link<'_>, to_be_used: bool) -> Vec<Finding> {
    let mut all = vec![exists(link), up(link, to_be_used), duplex(link), eee(link)];
    all.push(coalescing(link));
    all.push(nic_clock(link));
    all.push(timestamps(link));
    all.extend(in_the_way(link, to_be_used));
    all.push(route(link));
    all.into_iter().map(|finding| finding.of(link.name)).collect()
}

fn exists(link: &Link<'_>) -> Finding {
    let driver = link.driver().unwrap_or("an unknown driver");
    let (now, most) = link.transmit_queues();
    let queues = if now == most { now.to_string() } else { format!("{now} of {most}") };
    let address = link.settings.driver.known().map(|driver| driver.bus.as_str());
    let bus = address.filter(|bus| !bus.is_empty()).map(|bus| format!(" at {bus}"));
    let bus = bus.unwrap_or_default();
    Finding::ok(Check::Link, format!("{driver}{bus}, transmit queues: {queues}"))
}

/// An interface that is not there.
pub(super) fn absent(snapshot: &Snapshot, name: &IfName) -> Finding {
    let others: Vec<_> = snapshot.settings.interfaces.keys().map(IfName::as_str).collect();
    let found = if others.is_empty() {
        "there is none".to_owned()
    } else {
        format!("there are only {}", others.join(", "))
    };
    Finding::new(Check::Link, State::Missing, found).of(name)
}

fn up(link: &Link<'_>, needed: bool) -> Finding {
    let id = Check::LinkUp;
    let bad = if needed { State::Degraded } else { State::NotAsked };
    if !link.settings.up {
        return Finding::new(id, bad, "down").mended_by(format!("ip link set {} up", link.name));
    }
    match link.state {
        Some(state) if !state.carrier => Finding::new(id, bad, "up, and not connected")
            .mended_by("connect the other end of its cable, and switch that on"),
        Some(InterfaceState { speed_mbps: Some(rate), .. }) => {
            Finding::ok(id, format!("up, {rate} Mbit/s"))
        }
        _ => Finding::ok(id, "up"),
    }
}

fn duplex(link: &Link<'_>) -> Finding {
    let duplex = link.state.and_then(|state| state.duplex.as_deref());
    match duplex {
        Some("Half") => Finding::new(Check::LinkDuplex, State::Degraded, "half")
            .mended_by(format!("ethtool -s {} autoneg on", link.name)),
        Some(other) => Finding::ok(Check::LinkDuplex, other.to_lowercase()),
        None => Finding::ok(Check::LinkDuplex, "it has none"),
    }
}

fn eee(link: &Link<'_>) -> Finding {
    let id = Check::LinkEee;
    match link.settings.eee.known() {
        Some(eee) if eee.enabled => Finding::new(id, State::Degraded, "on")
            .mended_by(format!("ethtool --set-eee {} eee off", link.name)),
        Some(_) => Finding::ok(id, "off"),
        None => Finding::ok(id, link.settings.eee.why_not().unwrap_or_default()),
    }
}

fn coalescing(link: &Link<'_>) -> Finding {
    let id = Check::LinkCoalescing;
    let Some(settings) = link.settings.coalescing.known() else {
        return Finding::ok(id, link.settings.coalescing.why_not().unwrap_or_default());
    };
    let waits = |name: &str| settings.get(name).and_then(Word::number).filter(|us| *us > 0);
    let adapts = |name: &str| settings.get(name).and_then(Word::switch) == Some(true);
    let mut found = Vec::new();
    let mut mend = Vec::new();
    // One command for each: a NIC that refuses one parameter refuses all that are with it. Receive
    // goes first: of queues in pairs it sets both, and what is adaptive sets the time itself.
    for direction in ["rx", "tx"] {
        let (adaptive, time) = (format!("adaptive-{direction}"), format!("{direction}-usecs"));
        if adapts(&adaptive) {
            found.push(format!("{adaptive} on"));
            mend.push(format!("ethtool -C {} {adaptive} off", link.name));
        }
        if let Some(us) = waits(&time) {
            found.push(format!("{time} {us}"));
            mend.push(format!("ethtool -C {} {time} 0", link.name));
        }
    }
    if found.is_empty() {
        return Finding::ok(id, "none");
    }
    Finding::new(id, State::Degraded, found.join(", ")).mended_by_all(mend)
}

fn nic_clock(link: &Link<'_>) -> Finding {
    let id = Check::LinkClock;
    let Some(index) = link.clock() else {
        return Finding::new(id, State::NotAsked, "the NIC has none");
    };
    let probe = link.probes.hardware_clocks.iter().find(|clock| clock.index == index);
    match probe.map(|probe| (&probe.read, probe)) {
        Some((ProbeOutcome::Works { .. }, probe)) => {
            let crossed = if probe.cross_timestamps { ", with cross timestamps" } else { "" };
            let window = probe.reading_window_ns.map(|ns| format!(", read within {ns}ns"));
            let window = window.unwrap_or_default();
            Finding::ok(id, format!("/dev/ptp{index} {}{crossed}{window}", probe.name))
        }
        Some((ProbeOutcome::Forbidden { said }, _)) => {
            Finding::new(id, State::Degraded, format!("/dev/ptp{index}: {said}"))
                .mended_by("run it as root: sudo timewire")
        }
        Some((other, _)) => {
            Finding::new(id, State::Degraded, format!("/dev/ptp{index}: {}", other.text()))
        }
        None => Finding::new(id, State::Degraded, format!("/dev/ptp{index} is not there"))
            .mended_by("udevadm trigger --subsystem-match=ptp --action=add"),
    }
}

fn timestamps(link: &Link<'_>) -> Finding {
    let id = Check::LinkTimestamps;
    let Some(timestamps) = link.settings.timestamping.known() else {
        let found = link.settings.timestamping.why_not().unwrap_or_default();
        return Finding::new(id, State::NotAsked, found);
    };
    if link.timestamps() {
        return Finding::ok(id, format!("the NIC, {}", timestamps.rx_filters.join(", ")));
    }
    let software = timestamps.capabilities.iter().any(|one| one == "software-transmit");
    let found = if software { "the kernel only" } else { "received frames only, in the kernel" };
    Finding::new(id, State::NotAsked, found)
}

/// What someone else has put on it.
fn in_the_way(link: &Link<'_>, to_be_used: bool) -> Vec<Finding> {
    let mut all = Vec::new();
    let programs = link.settings.bpf.xdp.known().map_or(&[][..], Vec::as_slice);
    if !programs.is_empty() {
        let state = if to_be_used { State::Degraded } else { State::NotAsked };
        let found = programs.iter().map(|program| {
            let name = program.name.as_deref().unwrap_or("without a name");
            format!("{name}, number {}", program.id)
        });
        let found = found.collect::<Vec<_>>().join("; ");
        // A plain `off` is about the driver where that can, and leaves the others as they are.
        let off = programs.iter().map(|program| {
            let kind = match program.mode.as_deref() {
                Some("driver") => "xdpdrv",
                Some("generic") => "xdpgeneric",
                Some("offloaded") => "xdpoffload",
                _ => "xdp",
            };
            format!("ip link set dev {} {kind} off", link.name)
        });
        all.push(Finding::new(Check::LinkXdp, state, found).mended_by_all(off.collect()));
    } else {
        all.push(Finding::ok(Check::LinkXdp, "none"));
    }
    let common = ["mq", "noqueue", "pfifo_fast", "fq_codel", "fq", "pfifo"];
    let root = link.settings.qdiscs.known().and_then(|all| {
        all.iter().find(|qdisc| qdisc.parent == "root").map(|qdisc| qdisc.kind.as_str())
    });
    all.push(match root {
        Some(kind) if !common.contains(&kind) && to_be_used => {
            Finding::new(Check::LinkQdisc, State::Degraded, kind)
                .mended_by(format!("tc qdisc del dev {} root", link.name))
        }
        Some(kind) => Finding::ok(Check::LinkQdisc, kind),
        None => Finding::ok(Check::LinkQdisc, "none"),
    });
    all.extend(stray_masks(link));
    all
}

/// A gate mask that opens classes that are not there: `tc` reads masks as hexadecimal, and the
/// kernel ignores the bits.
///
/// **Source**: `linux v6.12 net/sched/sch_taprio.c:fill_sched_entry`, `iproute2 v6.11
/// tc/q_taprio.c:taprio_parse_opt`.
fn stray_masks(link: &Link<'_>) -> Option<Finding> {
    let settings = link.settings.qdiscs.known().into_iter().flatten();
    let settings = settings.filter(|qdisc| qdisc.kind == "taprio");
    let states = link.state.iter().flat_map(|state| &state.qdiscs);
    let states = states.filter(|qdisc| qdisc.kind == "taprio").map(|qdisc| &qdisc.options);
    for options in states.chain(settings.filter_map(|qdisc| qdisc.options.as_ref())) {
        let classes = options.get("tc").and_then(serde_json::Value::as_u64).unwrap_or(8);
        let entries = options.get("schedule").and_then(serde_json::Value::as_array);
        let masks: Vec<&str> = entries
            .into_iter()
            .flatten()
            .filter_map(|entry| entry.get("gatemask")?.as_str()?.strip_prefix("0x"))
            .collect();
        let is_stray = |mask: &&&str| {
            u64::from_str_radix(mask, 16).is_ok_and(|mask| mask >> classes.min(63) != 0)
        };
        let Some(stray) = masks.iter().find(is_stray) else { continue };
        let mut found = format!("the gate mask 0x{stray} opens classes beyond the {classes}");
        let decimal: Option<Vec<String>> = masks
            .iter()
            .map(|mask| mask.parse::<u64>().ok().filter(|mask| mask >> classes.min(63) == 0))
            .map(|mask| mask.map(|mask| format!("{mask:02x}")))
            .collect();
        let mend = match decimal {
            Some(masks) => {
                found += "; masks are hexadecimal, and these may have been meant as decimal";
                format!("sched-entry with the masks {} in their order", masks.join(", "))
            }
            None => format!("sched-entry with masks of no more than {classes} bits"),
        };
        return Some(Finding::new(Check::Gates, State::Degraded, found).mended_by(mend));
    }
    None
}

fn route(link: &Link<'_>) -> Finding {
    let routes = link.settings.routes.known().map_or(&[][..], Vec::as_slice);
    if routes.iter().any(|route| route.starts_with("default")) {
        return Finding::new(Check::LinkRoute, State::Degraded, "the default route")
            .mended_by("timewire apply --confirm-within 30s FILE");
    }
    Finding::ok(Check::LinkRoute, "no default route")
}

/// Whether XDP sees the VLAN tag of a frame.
pub(super) fn vlan_tag(link: &Link<'_>, needed: bool) -> Finding {
    let id = Check::LinkVlanTag;
    match link.switched_on("rx-vlan-offload") {
        Some(true) if link.is_nic() => {
            let state = if needed { State::Degraded } else { State::NotAsked };
            Finding::new(id, state, "the NIC takes it off")
                .mended_by(format!("ethtool -K {} rxvlan off", link.name))
        }
        _ => Finding::ok(id, "it stays in the frame"),
    }
    .of(link.name)
}

/// What is known of something that the NIC would do; it is tried only when that was asked for.
pub(super) fn offload(
    link: &Link<'_>,
    id: Check,
    what: &str,
    can: impl Fn(Abilities) -> bool,
    needed: bool,
) -> Finding {
    let driver = link.driver().unwrap_or("unknown");
    let bad = |state| if needed { state } else { State::NotAsked };
    let tried = link.probes.offloads.get(link.name).and_then(|tried| tried.get(what));
    match tried {
        Some(ProbeOutcome::Works { found }) => return Finding::ok(id, found).of(link.name),
        Some(other) => {
            return Finding::new(id, bad(State::Missing), other.text()).of(link.name);
        }
        None => {}
    }
    let finding = match link.abilities().map(can) {
        _ if !link.is_nic() => Finding::new(id, bad(State::Missing), "it is no NIC"),
        Some(true) => Finding::new(
            id,
            bad(State::Degraded),
            format!("the driver {driver} has it for some of its NICs; this one was not tried"),
        )
        .mended_by(format!("timewire doctor --try-offload {}", link.name)),
        Some(false) => {
            Finding::new(id, bad(State::Missing), format!("the driver {driver} has it not"))
        }
        None => Finding::new(id, bad(State::Degraded), format!("the driver {driver} is not known"))
            .mended_by(format!("timewire doctor --try-offload {}", link.name)),
    };
    finding.of(link.name)
}

/// Enough transmit queues for so many classes.
pub(super) fn queues(link: &Link<'_>, wanted: u64, needed_by: &str) -> Finding {
    let id = Check::LinkQueues;
    let (now, most) = link.transmit_queues();
    let finding = if now >= wanted {
        Finding::ok(id, format!("{now}, and {wanted} are needed"))
    } else if most >= wanted {
        let channels = link.settings.channels.known();
        let combined = channels.is_some_and(|channels| channels.combined.is_some());
        let kind = if combined { "combined" } else { "tx" };
        Finding::new(id, State::Degraded, format!("{now} of {most}, and {wanted} are needed"))
            .mended_by(format!("ethtool -L {} {kind} {wanted}", link.name))
    } else {
        Finding::new(id, State::Missing, format!("{now}, and {wanted} are needed"))
    };
    finding.of(link.name).needed_by(needed_by)
}

/// What was tried, as a finding.
pub(super) fn tried(
    probes: &Probes,
    probe: Probe,
    id: Check,
    needed: bool,
    mend: Option<String>,
) -> Finding {
    let bad = |state| if needed { state } else { State::NotAsked };
    match probes.of(probe) {
        ProbeOutcome::Works { found } => Finding::ok(id, found),
        ProbeOutcome::Absent { said } => {
            mend.into_iter().fold(Finding::new(id, bad(State::Missing), said), Finding::mended_by)
        }
        ProbeOutcome::Forbidden { said } => {
            Finding::new(id, bad(State::Degraded), said).mended_by("run it as root: sudo timewire")
        }
        ProbeOutcome::Untried { why } => Finding::new(id, bad(State::Degraded), why),
    }
}
