// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What of queueing disciplines and host settings the check of gates does not judge: such a
//! setting is named, and the streams are not said to hold.

use timewire_model::scenario::host::{DesiredInterface, HostSettings};
use timewire_tsn::qdisc::{FramePreemption, Qdisc, QdiscClock, QdiscPosition, Taprio};

/// Kinds that send what they hold at once, or nothing: they hold no frame back.
pub(super) const SENDS_AT_ONCE: &[&str] =
    &["noqueue", "mq", "pfifo", "bfifo", "pfifo_fast", "fq_codel", "ingress", "clsact"];

/// Settings of a discipline that change when frames go, and are not judged.
pub(super) fn settings_not_judged(place: QdiscPosition, qdisc: &Qdisc) -> Vec<String> {
    let mut all = Vec::new();
    let mut name = |is: bool, what: &str| {
        if is {
            all.push(what.to_owned());
        }
    };
    let other = |clock: Option<QdiscClock>| clock.is_some_and(|clock| clock != QdiscClock::Tai);
    match qdisc {
        Qdisc::Taprio(taprio) => {
            let options = taprio.options();
            name(place != QdiscPosition::Root, "not at the root");
            name(other(options.clock), "clockid, another than TAI");
            name(options.preemption.contains(&FramePreemption::Preemptible), "fp");
            name(has_stray_bits(taprio), "gatemask, with bits of no class");
            let count = options.classes.as_ref().map_or(0, |classes| classes.count());
            name(count > 8, "more than 8 classes");
        }
        Qdisc::Etf(etf) => {
            name(etf.flags().deadline_mode, "deadline_mode");
        }
        Qdisc::Mqprio(mqprio) => {
            let options = mqprio.options();
            let preemptible = options.preemption.contains(&FramePreemption::Preemptible);
            name(preemptible, "fp");
            let limited = !options.min_rate.is_empty() || !options.max_rate.is_empty();
            name(limited, "min_rate and max_rate");
        }
        Qdisc::Cbs(_) => name(true, "credit"),
    }
    all
}

fn has_stray_bits(taprio: &Taprio) -> bool {
    let options = taprio.options();
    let Some(classes) = &options.classes else { return false };
    let own = 1_u64.checked_shl(classes.count().into()).unwrap_or(0);
    options.entries.iter().any(|entry| u64::from(entry.gate_states.bits()) >= own.max(1))
}

/// Host settings, besides queueing disciplines, that decide whether and when frames of
/// streams go, and are not judged.
pub(super) fn not_judged(host: &HostSettings) -> Vec<String> {
    let mut all = Vec::new();
    for interface in &host.host.interfaces {
        let DesiredInterface { up, mtu, eee, mac_merge, vlans, marks, .. } = interface;
        let keys = [
            ("up", *up == Some(false)),
            ("mtu", mtu.is_some()),
            ("eee", *eee == Some(true)),
            ("mac_merge", mac_merge.is_some()),
            ("vlans", !vlans.is_empty()),
            ("marks", !marks.is_empty()),
        ];
        let given = keys.into_iter().filter(|(_, is)| *is);
        all.extend(given.map(|(key, _)| format!("{}: {key}", interface.name)));
    }
    all
}
