// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From what a host is and can do to whether something can run on it. A function of values: the
//! same host gives the same judgement anywhere.

use timewire_base::IfName;
use timewire_model::scenario::Scenario;
use timewire_model::scenario::host::HostSettings;

use super::about_host::{self, Needs};
use super::about_link::{self, Link, tried};
use super::about_scenario::{self, Ground};
use super::about_station::{self, StationAsked};
use super::backends::{self, BackendSite};
use super::class;
use super::finding::{Check, DOCTOR_SCHEMA, Diagnosis, Finding, RunSite, State, Subject, Verdict};
use super::{Probe, Probes, about_desired, mend};
use crate::snapshot::Snapshot;

/// What is asked about.
#[derive(Clone, Debug)]
pub enum Question {
    /// The host in general.
    Host,
    /// An interface.
    Interface(IfName),
    /// Host settings.
    HostSettings(Box<HostSettings>),
    /// A scenario, in the local laboratory.
    Scenario(Box<Scenario>),
    /// This host as a station of a scenario.
    Station(Box<StationAsked>),
}

impl Question {
    fn subject(&self) -> Subject {
        match self {
            Question::Host => Subject::Host,
            Question::Interface(name) => Subject::Interface { name: name.clone() },
            Question::HostSettings(file) => Subject::HostSettings { name: file.name() },
            Question::Scenario(scenario) => {
                let names: Vec<_> =
                    scenario.stations.iter().map(|station| station.name.as_str()).collect();
                let names = if names.len() > LISTED { "NAME".to_owned() } else { names.join("|") };
                let this_host = format!("--station {names} --interface INTERFACE");
                let place = RunSite::Laboratory { this_host };
                Subject::Scenario { name: scenario.name.as_str().to_owned(), place }
            }
            Question::Station(asked) => {
                let (station, interface) = (asked.station.clone(), asked.interface.clone());
                let place = RunSite::Station { station, interface };
                Subject::Scenario { name: asked.scenario.name.as_str().to_owned(), place }
            }
        }
    }

    /// The real interface that frames are sent through in turn.
    fn interface(&self) -> Option<&IfName> {
        match self {
            Question::Interface(name) => Some(name),
            Question::Station(asked) => Some(&asked.interface),
            Question::Host | Question::HostSettings(_) | Question::Scenario(_) => None,
        }
    }
}

/// More stations are not listed in a line.
const LISTED: usize = 8;

/// Judges.
pub fn judge(snapshot: &Snapshot, probes: &Probes, question: &Question) -> Diagnosis {
    let link = question.interface().and_then(|name| Link::find(snapshot, probes, name));
    let variants = backends::variants(probes, link.map_or(BackendSite::Virtual, BackendSite::Link));
    let backend = match question {
        Question::HostSettings(_) => None,
        Question::Scenario(scenario) => {
            let needed = about_scenario::of_cases(scenario);
            let of = scenario.mac.socket;
            backends::best(&variants, |variant| about_scenario::asks_for(&needed, of, variant))
        }
        Question::Station(asked) => {
            let (needed, of) = (asked.needed(), asked.scenario.mac.socket);
            backends::best(&variants, |variant| about_scenario::asks_for(&needed, of, variant))
        }
        Question::Host | Question::Interface(_) => backends::best(&variants, |_| true),
    };
    let accuracy = match question {
        Question::HostSettings(file) => {
            class::accuracy(snapshot, probes, about_desired::variant(&file.host))
        }
        _ => class::accuracy(snapshot, probes, backend),
    };
    let mut findings = about_host::findings(snapshot, probes, needs(question));
    if let Some(name) = question.interface() {
        match &link {
            Some(link) => {
                findings.extend(about_link::findings(link, true));
                findings.extend(offloads(link));
            }
            None => findings.push(about_link::absent(snapshot, name)),
        }
    }
    match question {
        Question::Host | Question::Interface(_) => findings.extend(general(snapshot, probes)),
        Question::HostSettings(file) => {
            findings.extend(about_desired::findings(snapshot, probes, &accuracy, &file.host));
        }
        Question::Scenario(_) | Question::Station(_) => {
            let (variants, accuracy) = (&variants[..], &accuracy);
            let ground = Ground { snapshot, probes, variants, accuracy, link };
            findings.extend(match question {
                Question::Station(asked) => about_station::findings(asked, &ground),
                Question::Scenario(scenario) => about_scenario::findings(scenario, &ground),
                _ => Vec::new(),
            });
        }
    }
    for finding in &mut findings {
        let is_bad = matches!(finding.state, State::Degraded | State::Missing);
        if is_bad && finding.mend.is_empty() {
            finding.mend.push(mend::otherwise(finding.id, finding.interface.as_ref()));
        }
    }
    let worst = findings.iter().map(|finding| finding.state).filter(|s| *s != State::NotAsked);
    let verdict = match worst.max() {
        Some(State::Missing) => Verdict::No,
        Some(State::Degraded) => Verdict::YesBut,
        _ => Verdict::Yes,
    };
    let backends =
        if matches!(question, Question::HostSettings(_)) { Vec::new() } else { variants };
    Diagnosis {
        schema: DOCTOR_SCHEMA,
        subject: question.subject(),
        verdict,
        backend,
        backends,
        accuracy,
        findings,
    }
}

fn needs(question: &Question) -> Needs {
    match question {
        Question::Host | Question::Interface(_) => Needs::default(),
        Question::HostSettings(file) => about_desired::needs(&file.host),
        // The stations of a laboratory have one clock.
        Question::Scenario(_) => Needs::default(),
        Question::Station(_) => Needs { clock: true, ..Needs::default() },
    }
}

/// What nobody asked for, and is good to know.
fn general(snapshot: &Snapshot, probes: &Probes) -> Vec<Finding> {
    let machine = snapshot.settings.host.kernel.machine.known().map_or("", String::as_str);
    let kernel = |option: &str| Some(mend::other_kernel(machine, option));
    let not_asked = |probe, id, option: &str| tried(probes, probe, id, false, kernel(option));
    vec![
        not_asked(Probe::Mqprio, Check::QdiscMqprio, "CONFIG_NET_SCH_MQPRIO"),
        not_asked(Probe::Taprio, Check::QdiscTaprio, "CONFIG_NET_SCH_TAPRIO"),
        not_asked(Probe::Etf, Check::QdiscEtf, "CONFIG_NET_SCH_ETF"),
        not_asked(Probe::Cbs, Check::QdiscCbs, "CONFIG_NET_SCH_CBS"),
        not_asked(Probe::Netem, Check::LabNetem, "CONFIG_NET_SCH_NETEM"),
        not_asked(Probe::Tbf, Check::LabTbf, "CONFIG_NET_SCH_TBF"),
        not_asked(Probe::Vlan, Check::LinkVlan, "CONFIG_VLAN_8021Q"),
        not_asked(Probe::XdpNative, Check::Xdp, "CONFIG_XDP_SOCKETS"),
        not_asked(Probe::CpuMap, Check::CpuMap, "CONFIG_BPF_SYSCALL"),
        not_asked(Probe::Tcx, Check::Tcx, "CONFIG_NET_XGRESS, which Linux has since 6.6"),
        not_asked(Probe::ThreadedNapi, Check::LinkNapi, "threaded NAPI (Linux 5.12)"),
        clock_tools(probes, false),
    ]
}

/// The daemons of linuxptp.
pub(super) fn clock_tools(probes: &Probes, needed: bool) -> Finding {
    let daemons = [Probe::ToolPtp4l, Probe::ToolPhc2sys, Probe::ToolTs2phc];
    let missing: Vec<_> = daemons.into_iter().filter(|probe| !probes.works(*probe)).collect();
    if missing.is_empty() {
        return Finding::ok(Check::ClockTools, "ptp4l, phc2sys, ts2phc");
    }
    let names: Vec<_> = missing.iter().map(|probe| &probe.id()["tool.".len()..]).collect();
    let state = about_host::if_needed(needed, State::Degraded);
    Finding::new(Check::ClockTools, state, format!("without {}", names.join(", ")))
        .mended_by(mend::install(&["linuxptp"]))
}

fn offloads(link: &Link<'_>) -> [Finding; 3] {
    [
        about_link::offload(link, Check::QdiscTaprioOffload, "taprio", |can| can.taprio, false),
        about_link::offload(link, Check::QdiscEtfOffload, "etf", |can| can.etf, false),
        about_link::offload(link, Check::QdiscCbsOffload, "cbs", |can| can.cbs, false),
    ]
}
