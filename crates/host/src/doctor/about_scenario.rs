// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a scenario needs: of the backend of each of its cases, and of its times and lengths.

use std::collections::BTreeMap;

use timewire_base::Span;
use timewire_model::scenario::{Scenario, SocketType, Stream};
use timewire_tsn::backend::TransmitBackend;

use super::about_host::rounded_up;
use super::about_link::{Link, tried};
use super::finding::{Accuracy, BackendFinding, BackendVariant, Check, Finding, State};
use super::{Probe, Probes, mend};
use crate::snapshot::Snapshot;

/// What is judged a scenario by.
pub(super) struct Ground<'a> {
    pub snapshot: &'a Snapshot,
    pub probes: &'a Probes,
    pub variants: &'a [BackendFinding],
    pub accuracy: &'a Accuracy,
    /// The real interface; without it, the local laboratory.
    pub link: Option<Link<'a>>,
}

/// A backend of the schedule, and who needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Needed {
    /// Which.
    pub backend: TransmitBackend,
    /// The cases with it, or what else asks for it.
    pub by: String,
}

impl Needed {
    /// Somebody asked for it on the command line.
    pub(super) fn by_hand(backend: TransmitBackend) -> Needed {
        Needed { backend, by: format!("the backend {backend}") }
    }
}

/// The backends that the cases of a scenario need, each once.
pub(super) fn of_cases(scenario: &Scenario) -> Vec<Needed> {
    let mut by_word: BTreeMap<&str, (TransmitBackend, Vec<&str>)> = BTreeMap::new();
    for case in &scenario.experiment.cases {
        let Some(backend) = TransmitBackend::of_case(case.backend) else { continue };
        let of_word = by_word.entry(case.backend.word()).or_insert((backend, Vec::new()));
        of_word.1.push(case.name.as_str());
    }
    let needed = by_word.into_values().map(|(backend, names)| {
        let cases = if names.len() == 1 { "the case" } else { "the cases" };
        Needed { backend, by: format!("{cases} {}", names.join(", ")) }
    });
    needed.collect()
}

/// The findings about a scenario in the local laboratory.
pub(super) fn findings(scenario: &Scenario, ground: &Ground<'_>) -> Vec<Finding> {
    let needed = of_cases(scenario);
    let mut all = carried(&needed, scenario.mac.socket, ground, |_| mend::laboratory());
    all.extend(guard(scenario, ground, &mend::laboratory()));
    if needed.iter().any(|needed| needed.backend == TransmitBackend::Mac) {
        all.extend(mac_times(scenario, ground));
    }
    all.extend(laboratory(scenario, ground));
    all.extend(receive(scenario, ground));
    all
}

/// Whether one of these backends is this variant. A run leaves to the kernel what a NIC could do.
pub(super) fn asks_for(needed: &[Needed], socket: SocketType, variant: BackendVariant) -> bool {
    needed.iter().any(|needed| variants_of(needed.backend, socket).contains(&variant))
}

/// The variants of which one is needed, the best first.
fn variants_of(wanted: TransmitBackend, socket: SocketType) -> Vec<BackendVariant> {
    let is_asked = |variant: &BackendVariant| match (variant, socket) {
        (variant, _) if variant.backend() != Some(wanted) || variant.is_in_the_nic() => false,
        (BackendVariant::MacNative, socket) => {
            matches!(socket, SocketType::Auto | SocketType::AfXdpNative)
        }
        (BackendVariant::MacGeneric, socket) => {
            matches!(socket, SocketType::Auto | SocketType::AfXdpGeneric)
        }
        (BackendVariant::MacPacket, socket) => {
            matches!(socket, SocketType::Auto | SocketType::AfPacket)
        }
        _ => true,
    };
    BackendVariant::BY_PREFERENCE.into_iter().filter(is_asked).collect()
}

/// Whether each backend can be had.
pub(super) fn carried(
    needed: &[Needed],
    socket: SocketType,
    ground: &Ground<'_>,
    mend: impl Fn(&Needed) -> String,
) -> Vec<Finding> {
    let mut all = Vec::new();
    for one in needed {
        let wanted = variants_of(one.backend, socket);
        let of = |variant: &BackendVariant| {
            ground.variants.iter().find(|found| found.backend == *variant)
        };
        let found: Vec<&BackendFinding> = wanted.iter().filter_map(of).collect();
        let finding = match found.iter().find(|variant| variant.possible) {
            Some(variant) => Finding::ok(Check::Backend, variant.backend.word()),
            None => {
                let why =
                    found.iter().map(|variant| format!("{}: {}", variant.backend, variant.why));
                let why = why.collect::<Vec<_>>().join("; ");
                Finding::new(Check::Backend, State::Missing, why).mended_by(mend(one))
            }
        };
        all.push(finding.needed_by(one.by.clone()));
    }
    all
}

/// Whether frames may be as late as they can be here. `exact` is where they are not.
pub(super) fn guard(scenario: &Scenario, ground: &Ground<'_>, exact: &str) -> Option<Finding> {
    let id = Check::Guard;
    let least = scenario.schedule.slots().iter().map(|slot| slot.guard).min()?;
    let class = ground.accuracy.class.word();
    Some(match ground.accuracy.allowance {
        Some(allowance) if least >= allowance => {
            Finding::ok(id, format!("{least}, and the class {class} asks for {allowance}"))
        }
        Some(allowance) => Finding::new(
            id,
            State::Degraded,
            format!("{least}, and the class {class} asks for {allowance}"),
        )
        .mended_by(format!("`guard: {allowance}` in the schedule, or what betters the class")),
        None => Finding::new(
            id,
            State::Degraded,
            format!("{least}, and the class {class} has no bound"),
        )
        .mended_by(exact),
    })
}

/// The times of Timewire's own MAC.
pub(super) fn mac_times(scenario: &Scenario, ground: &Ground<'_>) -> Vec<Finding> {
    let mut all = Vec::new();
    if let Some(best) = ground.probes.wake_ups.last() {
        let (spin, late) = (scenario.mac.spin, rounded_up(best.p99_ns));
        let found = format!("{spin}, and 99% of the wake-ups here were at most {late} late");
        all.push(if late <= spin {
            Finding::ok(Check::Spin, found)
        } else {
            Finding::new(Check::Spin, State::Degraded, found).mended_by(format!(
                "`spin: {late}` in `mac`, for a CPU that is busy for so long before each slot"
            ))
        });
    }
    let margin = scenario.mac.margin;
    let rt = Span::from_us(2);
    all.push(if margin >= rt {
        Finding::ok(Check::Margin, margin.to_string())
    } else {
        let found = format!("{margin}: handing a frame over takes some microseconds");
        Finding::new(Check::Margin, State::Degraded, found).mended_by("`margin: 5us` in `mac`")
    });
    all
}

/// What the local laboratory needs of the kernel.
fn laboratory(scenario: &Scenario, ground: &Ground<'_>) -> Vec<Finding> {
    let probes = ground.probes;
    let length = scenario.segment().delay > Span::ZERO;
    let lab = || Some(mend::laboratory());
    let mut all = vec![
        tried(probes, Probe::Netem, Check::LabNetem, length, lab()),
        tried(probes, Probe::Tbf, Check::LabTbf, true, lab()),
    ];
    let cpus = ground.snapshot.settings.host.cpus.online.known();
    let cpus = cpus.map_or(1, crate::snapshot::model::CpuSet::len);
    let stations = scenario.stations.len();
    let found = format!("{cpus} for {stations} stations");
    all.push(if cpus >= stations || ground.snapshot.settings.host.kernel.virtual_time {
        Finding::ok(Check::LabCpus, found)
    } else {
        Finding::new(Check::LabCpus, State::Degraded, found).mended_by(mend::laboratory())
    });
    all
}

/// What a real interface must be like for some of the streams.
pub(super) fn on_link<'s>(
    scenario: &Scenario,
    streams: impl Iterator<Item = &'s Stream>,
    link: &Link<'_>,
) -> Vec<Finding> {
    let mut all = Vec::new();
    let wanted = scenario.segment().rate.get() / 1_000_000;
    let rate = link.state.and_then(|state| state.speed_mbps);
    all.push(match rate {
        Some(rate) if rate == wanted => Finding::ok(Check::LinkRate, format!("{rate} Mbit/s")),
        Some(rate) => Finding::new(
            Check::LinkRate,
            State::Degraded,
            format!("{rate} Mbit/s, and the scenario says {}", scenario.segment().rate),
        )
        .mended_by(format!("ethtool -s {} speed {wanted} duplex full autoneg on", link.name)),
        None => Finding::new(Check::LinkRate, State::Degraded, "the link states none")
            .mended_by(format!("ip link set {} up, with its cable connected", link.name)),
    });
    let longest = streams.map(|stream| u64::from(stream.size().get()) + 28).max();
    if let Some(longest) = longest {
        let found = format!("{}, and the longest packet has {longest} bytes", link.settings.mtu);
        all.push(if longest <= link.settings.mtu {
            Finding::ok(Check::LinkMtu, found)
        } else {
            Finding::new(Check::LinkMtu, State::Degraded, found)
                .mended_by(format!("ip link set {} mtu {longest}", link.name))
        });
    }
    all.into_iter().map(|finding| finding.of(link.name)).collect()
}

/// Priorities on receive.
pub(super) fn receive(scenario: &Scenario, ground: &Ground<'_>) -> Vec<Finding> {
    let needed = !scenario.queues.recv.is_empty()
        && scenario.experiment.cases.iter().any(|case| case.priorities);
    if !needed {
        return Vec::new();
    }
    // Without them the MAC classifies in a socket, which costs time but loses nothing.
    let soften = |finding: Finding| match finding.state {
        State::Missing => Finding { state: State::Degraded, ..finding },
        _ => finding,
    };
    let probes = ground.probes;
    let native = probes.works(Probe::XdpNative);
    let xdp = if native { Probe::XdpNative } else { Probe::XdpGeneric };
    let all = [
        tried(probes, xdp, Check::Xdp, true, None),
        tried(probes, Probe::CpuMap, Check::CpuMap, true, None),
        tried(probes, Probe::Tcx, Check::Tcx, true, None),
    ];
    let by = "priorities on receive";
    all.into_iter().map(|finding| soften(finding).needed_by(by)).collect()
}
