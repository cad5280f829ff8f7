// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What host settings need: of each interface they name, of the kernel, of the tools.

use timewire_base::Span;
use timewire_model::scenario::host::{
    Class, DesiredClock, DesiredCredit, DesiredHost, DesiredInterface, GateMode, Gates, Group,
    GroupPolicy, Hardware, LaunchTime, MemberKind, Receive, RxFilter, Shaper, Timestamping,
    Timestamps, Transmit, XdpMode,
};
use timewire_tsn::qdisc::{CreditRange, GatedRate};

use super::about_groups;
use super::about_host::Needs;
use super::about_link::{self, Link, offload, queues, tried};
use super::finding::{Accuracy, BackendVariant, Check, Finding, State};
use super::judge::clock_tools;
use super::{Probe, Probes, mend};
use crate::apply::foreign;
use crate::snapshot::Snapshot;
use crate::snapshot::model::{Bounded, InterfaceSettings, Reading};

/// Has each NIC timestamp by the narrowest filter it has that covers the one asked for; what was
/// taken, in words. A NIC that has none is left: it is a finding.
pub fn take_covering(desired: &mut DesiredHost, snapshot: &Snapshot) -> Vec<String> {
    let mut taken = Vec::new();
    for interface in &mut desired.interfaces {
        let known = snapshot.settings.interfaces.get(&interface.name);
        let timestamps = known.and_then(|known| known.timestamping.known());
        let (Some(timestamps), Some(asked)) = (timestamps, &mut interface.timestamping) else {
            continue;
        };
        let Some(wider) = asked.rx.covered_by(&timestamps.rx_filters) else { continue };
        if wider != asked.rx {
            let (name, asked_for) = (&interface.name, asked.rx.word());
            taken.push(format!("{name}: {} is taken, which covers {asked_for}", wider.word()));
            asked.rx = wider;
        }
    }
    taken
}

/// The variant that the file takes, as far as its accuracy goes.
pub(super) fn variant(desired: &DesiredHost) -> Option<BackendVariant> {
    let transmits = desired.interfaces.iter().filter_map(|interface| interface.transmit.as_ref());
    let variants = transmits.filter_map(|transmit| match &transmit.gates {
        Some(gates) => Some(match gates.mode {
            GateMode::FullOffload => BackendVariant::TaprioOffload,
            GateMode::TxtimeAssist => BackendVariant::TaprioAssist,
            GateMode::Software => BackendVariant::Taprio,
        }),
        None => launch_times(transmit).next().map(|launch| match launch.offload {
            true => BackendVariant::EtfOffload,
            false => BackendVariant::Etf,
        }),
    });
    // The least exact one.
    variants.max()
}

fn launch_times(transmit: &Transmit) -> impl Iterator<Item = &LaunchTime> {
    let classes = transmit.classes.iter().filter_map(|class| class.launch_time.as_ref());
    classes.chain(&transmit.launch_time)
}

fn shapers(transmit: &Transmit) -> impl Iterator<Item = &Shaper> {
    let classes = transmit.classes.iter().filter_map(|class| class.shaper.as_ref());
    classes.chain(&transmit.shaper)
}

/// What the file needs of the host in general.
pub(super) fn needs(desired: &DesiredHost) -> Needs {
    let gates = desired.interfaces.iter().filter_map(|one| one.transmit.as_ref());
    let mut needs = Needs {
        // With `clock` the file has it kept on time.
        clock: desired.clock.is_none() && gates.into_iter().any(|one| one.gates.is_some()),
        groups: desired.groups.is_some(),
        ..Needs::default()
    };
    if let Some(group) = &desired.groups {
        of_group(group, &mut needs);
    }
    needs
}

fn of_group(group: &Group, needs: &mut Needs) {
    needs.deadline |= group.policy == GroupPolicy::Deadline;
    needs.cpu_sets |= group.cpus.is_some();
    for member in &group.members {
        if let MemberKind::Group(inner) = &member.is {
            of_group(&inner.group, needs);
        }
    }
}

/// The findings about host settings.
pub(super) fn findings(
    snapshot: &Snapshot,
    probes: &Probes,
    accuracy: &Accuracy,
    desired: &DesiredHost,
) -> Vec<Finding> {
    let machine = snapshot.settings.host.kernel.machine.known().map_or("", String::as_str);
    let mut all = Vec::new();
    for interface in &desired.interfaces {
        match Link::find(snapshot, probes, &interface.name) {
            Some(link) => {
                let findings = about_link::findings(&link, true);
                let tags = interface.features.iter();
                let mut tags = tags.filter(|one| one.name.as_str() == "rx-vlan-offload");
                let desired_changes_tags = tags.any(|one| !one.on);
                let asked = Asked { link, machine, accuracy, desired_changes_tags };
                let findings = findings.into_iter().chain(asked.findings(interface));
                all.extend(findings.map(|finding| changed(finding, link.settings, interface)));
            }
            None if is_made(desired, interface) => {
                all.push(Finding::ok(Check::Link, "the file makes it").of(&interface.name));
            }
            None => all.push(about_link::absent(snapshot, &interface.name)),
        }
    }
    all.extend(about_groups::polling(snapshot, desired));
    for sysctl in &desired.sysctls {
        let known = snapshot.settings.host.sysctls.get(sysctl.name.as_str());
        if let Some(reading @ Reading::Absent(_)) = known {
            let found = format!("{}: {}", sysctl.name, reading.why_not().unwrap_or_default());
            all.push(Finding::new(Check::Sysctl, State::Missing, found));
        }
    }
    if let Some(clock) = &desired.clock {
        all.push(clock_tools(probes, !clock.daemons.is_empty()));
        all.extend(clock_interfaces(snapshot, probes, clock));
    }
    all
}

/// Whether an interface is a VLAN that the file makes.
fn is_made(desired: &DesiredHost, interface: &DesiredInterface) -> bool {
    desired.interfaces.iter().any(|link| {
        link.vlans.iter().any(|vlan| match &vlan.name {
            Some(name) => *name == interface.name,
            None => format!("{}.{}", link.name, vlan.id.get()) == interface.name.as_str(),
        })
    })
}

/// What the file mends itself is well.
fn changed(finding: Finding, settings: &InterfaceSettings, desired: &DesiredInterface) -> Finding {
    let mends = match finding.id {
        Check::LinkUp => desired.up == Some(true) && finding.found == "down",
        Check::LinkEee => desired.eee == Some(false),
        Check::LinkCoalescing => desired.coalescing.is_some(),
        // Where it could not be restored, it would not be replaced.
        Check::LinkQdisc => {
            let mut all = settings.qdiscs.known().into_iter().flatten();
            desired.transmit.is_some() && all.all(foreign::comes_back)
        }
        Check::LinkQueues => makes_queues(desired),
        Check::LinkSteering => {
            desired.features.iter().any(|one| one.name.as_str() == "ntuple-filters" && one.on)
        }
        _ => false,
    };
    if finding.state != State::Degraded || !mends {
        return finding;
    }
    let found = format!("{}; the file changes it", finding.found);
    let Finding { interface, needed_by, .. } = finding;
    Finding { interface, needed_by, ..Finding::ok(finding.id, found) }
}

/// Whether the NIC has as many transmit queues as the classes need, once the file has changed it.
fn makes_queues(desired: &DesiredInterface) -> bool {
    let Some(channels) = &desired.channels else { return false };
    let sum = [&channels.tx, &channels.combined].into_iter().flatten().map(|count| count.get());
    let needed = desired.transmit.as_ref().map_or(1, |transmit| queues_of(&transmit.classes));
    sum.sum::<u64>() >= needed
}

fn clock_interfaces(snapshot: &Snapshot, probes: &Probes, clock: &DesiredClock) -> Vec<Finding> {
    let mut all = Vec::new();
    for name in &clock.interfaces {
        let Some(link) = Link::find(snapshot, probes, name) else {
            all.push(about_link::absent(snapshot, name).needed_by("clock"));
            continue;
        };
        let hardware = link.clock().is_some() && link.timestamps();
        let finding = match clock.timestamps {
            _ if hardware => Finding::ok(Check::LinkTimestamps, "the NIC"),
            Timestamps::Hardware => {
                let found = "the NIC timestamps nothing, and `timestamps: hardware` is asked for";
                Finding::new(Check::LinkTimestamps, State::Missing, found)
                    .mended_by("`timestamps: software` in `clock`")
            }
            Timestamps::Auto | Timestamps::Software => {
                Finding::new(Check::LinkTimestamps, State::Degraded, "the kernel only")
                    .mended_by("a NIC that timestamps, such as one with an i210 or i225")
            }
        };
        all.push(finding.of(name).needed_by("clock"));
    }
    all
}

/// One interface and what is asked of it.
struct Asked<'a> {
    link: Link<'a>,
    machine: &'a str,
    accuracy: &'a Accuracy,
    /// The file has the NIC leave tags in the frame.
    desired_changes_tags: bool,
}

impl Asked<'_> {
    fn findings(&self, desired: &DesiredInterface) -> Vec<Finding> {
        let mut all = Vec::new();
        all.extend(desired.channels.as_ref().map(|channels| {
            let most = |rx: bool| {
                let known = self.link.settings.channels.known();
                known.and_then(|known| if rx { known.rx } else { known.tx })
            };
            let combined = self.link.settings.channels.known().and_then(|known| known.combined);
            let asked = [
                ("rx", channels.rx, most(true)),
                ("tx", channels.tx, most(false)),
                ("combined", channels.combined, combined),
            ];
            let asked = asked.map(|(what, count, has)| (what, count.map(|count| count.get()), has));
            self.bounded(Check::LinkQueues, "channels", &asked)
        }));
        all.extend(desired.rings.as_ref().map(|rings| {
            let has = |what| {
                let known = self.link.settings.rings.known();
                known.and_then(|known| known.frames.get(what).copied())
            };
            let asked = [
                ("rx", rings.rx.map(|count| count.get()), has("rx")),
                ("tx", rings.tx.map(|count| count.get()), has("tx")),
            ];
            self.bounded(Check::LinkRings, "rings", &asked)
        }));
        if desired.coalescing.is_some() {
            all.push(self.known(Check::LinkCoalescing, &self.link.settings.coalescing));
        }
        if desired.eee == Some(true) {
            all.push(self.known(Check::LinkEee, &self.link.settings.eee));
        }
        all.extend(
            desired.features.iter().map(|feature| self.feature(feature.name.as_str(), feature.on)),
        );
        if desired.mac_merge.is_some() {
            all.push(self.known(Check::LinkPreemption, &self.link.settings.mac_merge));
        }
        all.extend(desired.timestamping.as_ref().map(|timestamps| self.timestamps(timestamps)));
        if desired.napi.as_ref().is_some_and(|napi| napi.threaded == Some(true)) {
            all.push(self.tried(Probe::ThreadedNapi, Check::LinkNapi, "threaded NAPI"));
        }
        if !desired.rps.is_empty() {
            all.push(self.tried(Probe::Rps, Check::LinkQueueCpus, "CONFIG_RPS").needed_by("rps"));
        }
        if !desired.xps.is_empty() {
            all.push(self.tried(Probe::Xps, Check::LinkQueueCpus, "CONFIG_XPS").needed_by("xps"));
        }
        if !desired.steering.is_empty() {
            all.push(self.steering());
        }
        if !desired.vlans.is_empty() {
            all.push(self.tried(Probe::Vlan, Check::LinkVlan, "CONFIG_VLAN_8021Q"));
        }
        all.extend(desired.transmit.iter().flat_map(|transmit| self.transmit(transmit)));
        all.extend(desired.receive.iter().flat_map(|receive| self.receive(receive)));
        all
    }

    fn tried(&self, probe: Probe, id: Check, option: &str) -> Finding {
        let mend = Some(mend::other_kernel(self.machine, option));
        tried(self.link.probes, probe, id, true, mend).of(self.link.name)
    }

    /// Something that the NIC has or has not.
    fn known<T>(&self, id: Check, reading: &Reading<T>) -> Finding {
        let finding = match reading {
            Reading::Known(_) => Finding::ok(id, "it can be set"),
            Reading::Absent(why) => Finding::new(id, State::Missing, why),
            Reading::Unreadable(why) => Finding::new(id, State::Degraded, why),
        };
        finding.of(self.link.name)
    }

    /// Numbers that must not be larger than the NIC has them.
    fn bounded(
        &self,
        id: Check,
        what: &str,
        asked: &[(&str, Option<u64>, Option<Bounded>)],
    ) -> Finding {
        let mut good = Vec::new();
        for (kind, count, has) in asked {
            let Some(count) = count else { continue };
            let most = has.map(|has| has.most.unwrap_or(has.now));
            match most {
                Some(most) if *count <= most => good.push(format!("{kind} {count} of {most}")),
                other => {
                    let most = other.map_or("none".to_owned(), |most| format!("at most {most}"));
                    let found = format!("{kind} {count} are asked for, and there are {most}");
                    return Finding::new(id, State::Missing, found)
                        .mended_by(format!("fewer of them in `{what}` of {}", self.link.name))
                        .of(self.link.name);
                }
            }
        }
        Finding::ok(id, good.join(", ")).of(self.link.name).needed_by(what)
    }

    fn feature(&self, name: &str, on: bool) -> Finding {
        let id = Check::LinkFeatures;
        let features = self.link.settings.features.known();
        let finding = match features.map(|features| features.get(name)) {
            Some(Some(feature)) if feature.on == on => {
                Finding::ok(id, format!("{name} is {} already", on_off(on)))
            }
            Some(Some(feature)) if feature.fixed == Some(true) => {
                let found = format!("{name} is {} and fixed", on_off(feature.on));
                Finding::new(id, State::Missing, found)
            }
            Some(Some(_)) => Finding::ok(id, format!("{name} can be set")),
            Some(None) => Finding::new(id, State::Missing, format!("{name} is not there"))
                .mended_by(format!("a name that `ethtool -k {}` shows", self.link.name)),
            None => Finding::new(id, State::Degraded, "its features could not be read"),
        };
        finding.of(self.link.name)
    }

    fn timestamps(&self, desired: &Timestamping) -> Finding {
        let id = Check::LinkTimestamps;
        let Some(timestamps) = self.link.settings.timestamping.known() else {
            return self.known(id, &self.link.settings.timestamping);
        };
        let has = |what: &str| timestamps.capabilities.iter().any(|one| one == what);
        let rx = desired.rx.covered_by(&timestamps.rx_filters);
        let finding = match rx {
            _ if desired.tx && !has("hardware-transmit") => {
                Finding::new(id, State::Missing, "the NIC timestamps no sent frames")
                    .mended_by("`timestamping: { tx: false }`, for received frames alone")
                    .mended_by(mend::TIMESTAMPING_NIC)
            }
            None => {
                let found = format!("the NIC timestamps only {}", timestamps.rx_filters.join(", "));
                let known = |word: &str| TIMESTAMPS.iter().any(|filter| filter.word() == word);
                let has = timestamps.rx_filters.iter().map(String::as_str).filter(|it| known(it));
                let has: Vec<String> = has.map(|word| format!("`rx: {word}`")).collect();
                let finding = Finding::new(id, State::Missing, found);
                let finding = match has.is_empty() {
                    true => finding.mended_by("`rx: none` in `timestamping`"),
                    false => finding
                        .mended_by(format!("{} in `timestamping`, for PTP", has.join(" or "))),
                };
                finding.mended_by(mend::TIMESTAMPING_NIC)
            }
            Some(wider) if wider != desired.rx => Finding::ok(
                id,
                format!("the NIC has {}, which covers {}", wider.word(), desired.rx.word()),
            ),
            Some(_) => Finding::ok(id, "the NIC timestamps what is asked for"),
        };
        finding.of(self.link.name).needed_by("timestamping")
    }

    fn steering(&self) -> Finding {
        let id = Check::LinkSteering;
        let features = self.link.settings.features.known();
        let feature = features.and_then(|features| features.get("ntuple-filters"));
        let finding = match feature {
            Some(feature) if feature.on => Finding::ok(id, "ntuple-filters on"),
            Some(feature) if feature.fixed != Some(true) => {
                Finding::new(id, State::Degraded, "ntuple-filters off")
                    .mended_by(format!("ethtool -K {} ntuple on", self.link.name))
            }
            _ => Finding::new(id, State::Missing, "the NIC has no such rules"),
        };
        finding.of(self.link.name)
    }

    fn transmit(&self, desired: &Transmit) -> Vec<Finding> {
        let mut all = Vec::new();
        if !desired.classes.is_empty() {
            all.push(queues(&self.link, queues_of(&desired.classes), "transmit"));
        }
        match &desired.gates {
            Some(gates) => all.extend(self.gates(gates)),
            None if !desired.classes.is_empty() => {
                all.push(self.tried(Probe::Mqprio, Check::QdiscMqprio, "CONFIG_NET_SCH_MQPRIO"));
            }
            None => {}
        }
        if desired.hardware == Hardware::Offload && desired.gates.is_none() {
            let driver = self.link.driver().unwrap_or("unknown").to_owned();
            if !self.link.is_nic() {
                let found = format!("{driver} is no NIC, and `hardware: offload` is asked for");
                let finding = Finding::new(Check::QdiscMqprio, State::Missing, found)
                    .mended_by("`hardware: software` in `transmit`");
                all.push(finding.of(self.link.name));
            }
        }
        for launch in launch_times(desired) {
            all.push(self.tried(Probe::Etf, Check::QdiscEtf, "CONFIG_NET_SCH_ETF"));
            if launch.offload {
                let id = Check::QdiscEtfOffload;
                all.push(offload(&self.link, id, "etf", |can| can.etf, true));
            }
        }
        all.extend(self.launch_traps(desired));
        all.extend(self.gated_credit(desired));
        for shaper in shapers(desired) {
            all.push(self.tried(Probe::Cbs, Check::QdiscCbs, "CONFIG_NET_SCH_CBS"));
            if shaper.offload {
                let id = Check::QdiscCbsOffload;
                all.push(offload(&self.link, id, "cbs", |can| can.cbs, true));
            }
        }
        if desired.classes.iter().any(|class| class.preemptible) {
            all.push(self.known(Check::LinkPreemption, &self.link.settings.mac_merge));
        }
        all.dedup();
        all
    }

    /// Frames that a class with launch times will refuse, whoever sends them.
    ///
    /// **Source**: `linux v6.12 net/sched/sch_etf.c:is_packet_valid`, `sch_taprio.c:
    /// is_valid_interval`.
    fn launch_traps(&self, desired: &Transmit) -> Vec<Finding> {
        let mut all = Vec::new();
        let finding = |found: String, mend: &str| {
            Finding::new(Check::QdiscEtf, State::Degraded, found)
                .mended_by(mend)
                .of(self.link.name)
                .needed_by("transmit")
        };
        let classes = desired.classes.iter().enumerate();
        let own = classes.filter_map(|(class, it)| Some((Some(class), it.launch_time.as_ref()?)));
        let root = desired.launch_time.iter().map(|launch| (None, launch));
        for (class, launch) in own.chain(root) {
            let whose = class.map_or("the interface".to_owned(), |class| format!("class {class}"));
            if !launch.skip_sock_check {
                all.push(finding(
                    format!(
                        "{whose}: etf drops every frame of a socket without SO_TXTIME and the \
                         clock CLOCK_TAI, and those whose launch time is past"
                    ),
                    "senders with launch times (`timewire talk --launch`), or `skip_sock_check: \
                     true` in `launch_time`",
                ));
            }
            let (Some(class), Some(gates)) = (class, &desired.gates) else { continue };
            let is_open = |entry: &&timewire_model::scenario::host::GateEntry| {
                entry.open.iter().any(|open| usize::try_from(open.get()) == Ok(class))
            };
            let open = gates.entries.iter().filter(is_open).count();
            if open > 1 && open == gates.entries.len() {
                all.push(finding(
                    format!(
                        "{whose}: its gate is always open, and taprio drops a frame with a launch \
                         time whose transmission crosses from one of the {open} entries to the next"
                    ),
                    "launch times that keep a frame within one entry",
                ));
            } else {
                all.push(finding(
                    format!(
                        "{whose}: taprio drops a frame with a launch time outside the gate or \
                         across the end of an entry"
                    ),
                    "launch times that keep a frame within one open entry",
                ));
            }
        }
        all
    }

    /// Classes whose credit is behind a gate carry another rate than is reserved, at least here.
    fn gated_credit(&self, desired: &Transmit) -> Vec<Finding> {
        let Some(gates) = &desired.gates else { return Vec::new() };
        let mut all = Vec::new();
        for (class, shaper) in desired.classes.iter().enumerate() {
            let Some(shaper) = &shaper.shaper else { continue };
            let states: Vec<_> = gates
                .entries
                .iter()
                .map(|entry| {
                    let mut open = entry.open.iter();
                    (open.any(|open| usize::try_from(open.get()) == Ok(class)), entry.interval)
                })
                .collect();
            let (rate, port, range) = match &shaper.credit {
                DesiredCredit::Slopes(it) => {
                    let range = CreditRange::of_bytes(it.hi_credit.0, it.lo_credit.0);
                    (it.idle_slope, it.port, range)
                }
                DesiredCredit::Reservation(it) => {
                    let (between, own) = (it.interference.get(), it.frame.get());
                    let range =
                        CreditRange::of_frames(it.rate, it.port, between.into(), own.into());
                    (it.rate, it.port, range)
                }
            };
            let Some(gated) = GatedRate::of(rate, port, range, &states) else { continue };
            let mend = match gated.open_ppm {
                0 => "a gate that opens for the class".to_owned(),
                open => {
                    let wanted = u128::from(rate.get()) * 1_000_000 / u128::from(open);
                    format!("with Linux, a rate of {wanted} bit/s in `shaper` for what is reserved")
                }
            };
            all.push(
                Finding::new(Check::QdiscCbs, State::Degraded, format!("class {class}: {gated}"))
                    .mended_by(mend)
                    .of(self.link.name)
                    .needed_by("shaper"),
            );
        }
        all
    }

    fn gates(&self, gates: &Gates) -> Vec<Finding> {
        let option = "CONFIG_NET_SCH_TAPRIO";
        let probe = match gates.mode {
            GateMode::TxtimeAssist => Probe::TaprioTxtimeAssist,
            GateMode::Software | GateMode::FullOffload => Probe::Taprio,
        };
        let mut all = vec![self.tried(probe, Check::QdiscTaprio, option)];
        if gates.mode == GateMode::FullOffload {
            let id = Check::QdiscTaprioOffload;
            all.push(offload(&self.link, id, "taprio", |can| can.taprio, true));
            if self.link.clock().is_none() {
                let found = "the NIC has no clock, and `full_offload` is by it";
                let finding = Finding::new(Check::LinkClock, State::Missing, found)
                    .mended_by("`mode: software` in `gates`");
                all.push(finding.of(self.link.name).needed_by("gates"));
            }
            return all;
        }
        if let Some(shortest) = gates.entries.iter().map(|entry| entry.interval).min() {
            all.push(gate_length(shortest, self.accuracy).of(self.link.name));
        }
        all
    }

    fn receive(&self, desired: &Receive) -> Vec<Finding> {
        let mut all = Vec::new();
        let native_driver = self.link.abilities().map(|can| can.xdp);
        let generic = || self.tried(Probe::XdpGeneric, Check::Xdp, "CONFIG_BPF_SYSCALL");
        let native = || self.tried(Probe::XdpNative, Check::Xdp, "CONFIG_BPF_SYSCALL");
        let driver = self.link.driver().unwrap_or("unknown");
        let no_native = || {
            let found = format!("the driver {driver} has no XDP, so it is in the generic layer");
            Finding::new(Check::Xdp, State::Degraded, found).of(self.link.name)
        };
        all.push(match (desired.mode, native_driver) {
            (XdpMode::Generic, _) => generic(),
            (XdpMode::Auto, Some(false)) => {
                let finding = generic();
                if finding.state == State::Ok { no_native() } else { finding }
            }
            (XdpMode::Native, Some(false)) => {
                let found = format!("the driver {driver} has no XDP");
                Finding::new(Check::Xdp, State::Missing, found)
                    .mended_by("`mode: generic` in `receive`")
                    .of(self.link.name)
            }
            _ => native(),
        });
        if desired.normal_cpus.is_some() || desired.classes.iter().any(|class| class.cpus.is_some())
        {
            all.push(self.tried(Probe::CpuMap, Check::CpuMap, "CONFIG_BPF_SYSCALL"));
        }
        let tags = desired.classes.iter().flat_map(|class| &class.matches);
        let tags = tags.into_iter().any(|one| one.pcp.is_some() || one.vlan.is_some());
        if !self.desired_changes_tags {
            all.push(about_link::vlan_tag(&self.link, tags));
        }
        all
    }
}

/// Whether the shortest gate is longer than the error of what opens and closes it.
pub(super) fn gate_length(shortest: Span, accuracy: &Accuracy) -> Finding {
    let class = accuracy.class.word();
    match accuracy.allowance {
        Some(allowance) if shortest >= allowance + allowance => {
            let found = format!("{shortest}, the class {class} allows for {allowance}");
            Finding::ok(Check::Gates, found)
        }
        Some(allowance) => {
            let least = allowance + allowance;
            let found = format!("{shortest}, and the class {class} asks for {least} at least");
            Finding::new(Check::Gates, State::Degraded, found)
                .mended_by(format!("gates of {least} and more"))
        }
        None => {
            let found = format!("{shortest}, and the class {class} has no bound");
            Finding::new(Check::Gates, State::Degraded, found)
        }
    }
}

/// The filters that a file can ask for, none apart.
const TIMESTAMPS: [RxFilter; 4] =
    [RxFilter::All, RxFilter::PtpV2, RxFilter::PtpV2L4, RxFilter::PtpV2L2];

fn on_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

/// How many queues there must be for `2@0` and the like.
fn queues_of(classes: &[Class]) -> u64 {
    let ends = classes.iter().filter_map(|class| class.queues).map(|range| u64::from(range.end()));
    ends.max().unwrap_or(1)
}
