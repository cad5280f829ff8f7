// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the doctor says of recorded hosts, word by word: `doctor/HOST.QUESTION.txt` and, of two
//! hosts, `.json`. `UPDATE_GOLDEN=1 cargo test -p timewire-host --test all doctor::` writes them;
//! read each as someone who has that host.
//!
//! A host is a directory of `fixtures/hosts`; its file ORIGIN says how it came about.
//!
//! Not here: trying (tests of `timewire-cli`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use timewire_base::{IfName, Span, StationName};
use timewire_host::doctor::{
    self, Check, Diagnosis, Finding, Probe, ProbeOutcome, Probes, Question, State, StationAsked,
    Verdict,
};
use timewire_host::snapshot::Snapshot;
use timewire_host::snapshot::model::{Bounded, BpfProgram, Feature, Reading};
use timewire_model::scenario::host::HostSettings;
use timewire_model::scenario::{Scenario, SocketType};
use timewire_tsn::backend::TransmitBackend;
use timewire_tsn::file::ParseFile;

fn here(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/doctor").join(name)
}

fn recorded(name: &str) -> (Snapshot, Probes) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/hosts").join(name);
    let read = |name: &str| std::fs::read_to_string(directory.join(name)).unwrap();
    let snapshot = Snapshot::parse(&read("snapshot.json")).unwrap();
    (snapshot, serde_json::from_str(&read("probes.json")).unwrap())
}

fn eth0() -> IfName {
    IfName::new("eth0").unwrap()
}

/// The laptop before anything was installed, for someone who is not root.
fn laptop_of_a_user() -> (Snapshot, Probes) {
    let (mut snapshot, mut probes) = recorded(LAPTOP);
    let privilege = &mut snapshot.settings.host.privilege;
    let all = ["CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_SYS_ADMIN", "CAP_SYS_NICE", "CAP_BPF"];
    privilege.capabilities = Reading::Known(Vec::new());
    privilege.missing = Reading::Known(all.map(str::to_owned).to_vec());
    let refused =
        ProbeOutcome::Forbidden { said: "Operation not permitted (os error 1)".to_owned() };
    for probe in Probe::ALL {
        let id = probe.id();
        if ["sched.", "xdp.", "xsk.", "bpf.", "memory."].iter().any(|area| id.starts_with(area)) {
            probes.results.insert(*probe, refused.clone());
        }
        if ["tool.ethtool", "tool.ptp4l", "tool.phc2sys", "tool.ts2phc"].contains(&id) {
            let said = format!("`{}` is not installed", &id["tool.".len()..]);
            probes.results.insert(*probe, ProbeOutcome::Absent { said });
        }
    }
    (snapshot, probes)
}

fn hosts() -> Vec<(&'static str, (Snapshot, Probes))> {
    let names = [GUEST, CONTAINER, LABORATORY, LABORATORY_6_1, EMULATED, I210, I225, LAPTOP];
    let mut all: Vec<_> = names.map(|name| (name, recorded(name))).to_vec();
    all.push((USER, laptop_of_a_user()));
    all
}

const GUEST: &str = "guest-6.18";
const CONTAINER: &str = "container-veth-6.18";
const LABORATORY: &str = "laboratory-6.12";
const LABORATORY_6_1: &str = "laboratory-6.1";
const EMULATED: &str = "qemu-82576-6.12";
const I210: &str = "i210-6.12-rt";
const I225: &str = "i225-6.12-rt";
const LAPTOP: &str = "laptop-r8169-6.12";
const USER: &str = "laptop-user";

fn settings_file(name: &str) -> Question {
    let text = std::fs::read_to_string(here(name)).unwrap();
    Question::HostSettings(Box::new(
        HostSettings::parse(name, &text).unwrap_or_else(|e| panic!("{e}")),
    ))
}

fn scenario() -> Scenario {
    let text = std::fs::read_to_string(here("scenario.yaml")).unwrap();
    Scenario::parse("scenario.yaml", &text).unwrap_or_else(|e| panic!("{e}"))
}

/// A host as a station on `eth0`.
fn station(scenario: Scenario, name: &str, by: Option<TransmitBackend>) -> Question {
    let (station, interface) = (StationName::new(name).unwrap(), eth0());
    Question::Station(Box::new(StationAsked { scenario, station, interface, by }))
}

fn questions() -> [(&'static str, Question); 6] {
    [
        ("host", Question::Host),
        ("interface", Question::Interface(eth0())),
        ("scenario", Question::Scenario(Box::new(scenario()))),
        ("station-on-eth0", station(scenario(), "alpha", None)),
        ("host-settings", settings_file("host.yaml")),
        ("offload", settings_file("offload.yaml")),
    ]
}

#[test]
fn t1_recorded_hosts_are_judged_word_by_word() {
    let mut different = Vec::new();
    let mut compare = |name: String, told: String| {
        let golden = here(&name);
        if std::env::var("UPDATE_GOLDEN").is_ok() {
            std::fs::write(&golden, &told).unwrap();
        }
        let expected = std::fs::read_to_string(&golden).unwrap_or_default();
        if told != expected {
            different.push(format!("--- {name}: expected\n{expected}--- told\n{told}"));
        }
    };
    for (host, (snapshot, probes)) in hosts() {
        for (what, question) in questions() {
            let diagnosis = doctor::judge(&snapshot, &probes, &question);
            compare(format!("{host}.{what}.txt"), doctor::text(&diagnosis, what == "host"));
            if [I225, LABORATORY].contains(&host) {
                let json = serde_json::to_string_pretty(&diagnosis).unwrap() + "\n";
                compare(format!("{host}.{what}.json"), json);
            }
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

/// Every judgement of every question on every host.
fn judgements() -> Vec<(String, Diagnosis)> {
    let mut all = Vec::new();
    for (host, (snapshot, probes)) in hosts() {
        for (what, question) in questions() {
            let diagnosis = doctor::judge(&snapshot, &probes, &question);
            all.push((format!("{host}.{what}"), diagnosis));
        }
    }
    all
}

#[test]
fn t1_a_judgement_follows_from_its_findings() {
    for (name, diagnosis) in judgements() {
        let asked = diagnosis.findings.iter().map(|finding| finding.state);
        let worst = asked.filter(|state| *state != State::NotAsked).max();
        let expected = match worst {
            Some(State::Missing) => (Verdict::No, 4),
            Some(State::Degraded) => (Verdict::YesBut, 1),
            _ => (Verdict::Yes, 0),
        };
        assert_eq!((diagnosis.verdict, diagnosis.exit_code()), expected, "{name}");
        for finding in &diagnosis.findings {
            let well = finding.state == State::Ok;
            assert_eq!(well, finding.why.is_empty(), "{name}: {finding:?}");
            assert!(!well || finding.mend.is_empty(), "{name}: {finding:?}");
            assert!(!finding.found.is_empty(), "{name}: {finding:?}");
        }
        if let Some(backend) = diagnosis.backend {
            let taken = diagnosis.backends.iter().find(|variant| variant.backend == backend);
            assert!(taken.is_some_and(|variant| variant.possible), "{name}");
        }
        assert!(diagnosis.backends.iter().all(|variant| !variant.why.is_empty()), "{name}");
    }
}

#[test]
fn t1_hosts_differ_in_what_they_should() {
    let all = judgements();
    let of = |name: &str| &all.iter().find(|(known, _)| known == name).unwrap().1;
    let class = |name: &str| of(name).accuracy.class.word();
    assert_eq!(class("laboratory-6.12.host"), "exact");
    assert_eq!(class("guest-6.18.host"), "unbounded");
    assert_eq!(class("i225-6.12-rt.interface"), "real_time");
    assert_eq!(class("laptop-r8169-6.12.interface"), "standard");
    assert_eq!(class("laptop-user.interface"), "unbounded");
    assert_eq!(class("i225-6.12-rt.offload"), "hardware");
    let state = |name: &str, check: Check| {
        let findings = of(name).findings.iter().filter(move |finding| finding.id == check);
        findings.map(|finding| finding.state).max()
    };
    assert_eq!(state("i225-6.12-rt.offload", Check::LinkTimestamps), Some(State::Ok));
    assert_eq!(state("laptop-r8169-6.12.offload", Check::LinkTimestamps), Some(State::Missing));
    assert_eq!(state("laptop-r8169-6.12.host-settings", Check::LinkQueues), Some(State::Missing));
    assert_eq!(state("guest-6.18.scenario", Check::Backend), Some(State::Missing));
    assert_eq!(state("laboratory-6.12.scenario", Check::Backend), Some(State::Ok));
    // What was tried on a NIC goes before what its driver is known for.
    let (snapshot, mut probes) = recorded(I225);
    let tried = ProbeOutcome::Works { found: "installed and seen".to_owned() };
    let tried = BTreeMap::from([("taprio".to_owned(), tried)]);
    probes.offloads.insert(eth0(), tried);
    let diagnosis = doctor::judge(&snapshot, &probes, &Question::Interface(eth0()));
    assert_eq!(diagnosis.backend.map(doctor::BackendVariant::word), Some("taprio-offload"));
    assert_eq!(diagnosis.accuracy.class.word(), "hardware");
}

/// The finding of this name about `eth0`.
#[track_caller]
fn finding(host: &(Snapshot, Probes), question: &Question, check: Check) -> Finding {
    let diagnosis = doctor::judge(&host.0, &host.1, question);
    let mut all = diagnosis.findings.into_iter().filter(|finding| finding.id == check);
    all.next().unwrap_or_else(|| panic!("nothing is said of {check}"))
}

/// `xdp off` alone leaves a program in the generic layer where the driver has XDP.
#[test]
fn t1_a_program_is_taken_off_where_it_runs() {
    let mut host = recorded(I225);
    let program = |id, mode: &str| BpfProgram { id, name: None, mode: Some(mode.to_owned()) };
    let nic = host.0.settings.interfaces.get_mut(&eth0()).unwrap();
    nic.bpf.xdp = Reading::Known(vec![program(7, "generic"), program(8, "offloaded")]);
    let found = finding(&host, &Question::Interface(eth0()), Check::LinkXdp);
    assert_eq!(found.found, "without a name, number 7; without a name, number 8");
    let off = ["xdpgeneric", "xdpoffload"].map(|mode| format!("ip link set dev eth0 {mode} off"));
    assert_eq!(found.mend, off);
}

/// What the file itself changes first needs nobody's hand.
#[test]
fn t1_what_a_host_file_mends_is_well() {
    let mut host = recorded(I225);
    let nic = host.0.settings.interfaces.get_mut(&eth0()).unwrap();
    let Reading::Known(qdiscs) = &mut nic.qdiscs else { panic!("it has disciplines") };
    qdiscs.truncate(1);
    qdiscs[0].kind = "pfifo".to_owned();
    qdiscs[0].handle = "8001:".to_owned();
    qdiscs[0].options = Some(serde_json::json!({ "limit": 100 }));
    let Reading::Known(channels) = &mut nic.channels else { panic!("it has channels") };
    channels.combined = Some(Bounded { now: 1, most: Some(4) });
    let Reading::Known(features) = &mut nic.features else { panic!("it has features") };
    let off = Feature { on: false, fixed: Some(false), requested: None };
    features.insert("ntuple-filters".to_owned(), off);
    let classes = "steering: [{ queue: 1, ethertype: '0x88f7' }], transmit: { classes: [\
                   { priorities: [3], queues: 1@0 }, { queues: 1@1 }] }";
    let judged = |host: &(Snapshot, Probes), more: &str| {
        let interface = format!("{{ name: eth0, {more}{classes} }}");
        let text = format!(
            "timewire: 1\nkind: network\nname: x\n\
             stations:\n- name: alpha\n  host:\n    interfaces:\n      - {interface}\n"
        );
        let file = HostSettings::parse("x.yaml", &text).unwrap_or_else(|error| panic!("{error}"));
        let question = Question::HostSettings(Box::new(file));
        let diagnosis = doctor::judge(&host.0, &host.1, &question);
        let of = |check| {
            let all = diagnosis.findings.iter().filter(|finding| finding.id == check);
            all.map(|finding| finding.state).max()
        };
        [Check::LinkQdisc, Check::LinkQueues, Check::LinkSteering].map(|check| of(check).unwrap())
    };
    let file = |more: &str| judged(&host, more);
    assert_eq!(file(""), [State::Ok, State::Degraded, State::Degraded]);
    let ntuple = "features: [{ name: ntuple-filters, on: true }], ";
    let enough = format!("channels: {{ combined: 2 }}, {ntuple}");
    assert_eq!(file(&enough), [State::Ok, State::Ok, State::Ok]);
    let few = format!("channels: {{ combined: 1 }}, {ntuple}");
    assert_eq!(file(&few), [State::Ok, State::Degraded, State::Ok]);
    // What could not be restored is not replaced.
    let mut strange = host.clone();
    let nic = strange.0.settings.interfaces.get_mut(&eth0()).unwrap();
    let Reading::Known(qdiscs) = &mut nic.qdiscs else { panic!("it has disciplines") };
    qdiscs[0].kind = "prio".to_owned();
    assert_eq!(judged(&strange, &enough)[0], State::Degraded);
}

/// The MAC is in the driver only where the driver can, whatever another interface could.
#[test]
fn t1_a_driver_without_xdp_is_no_variant() {
    for (host, possible) in [(LAPTOP, false), (I225, true), (GUEST, true)] {
        let (snapshot, probes) = recorded(host);
        let diagnosis = doctor::judge(&snapshot, &probes, &Question::Interface(eth0()));
        let is_it = |variant: &&doctor::BackendFinding| {
            variant.backend == doctor::BackendVariant::MacNative
        };
        let native = diagnosis.backends.iter().find(is_it).unwrap();
        assert_eq!(native.possible, possible, "{host}: {}", native.why);
    }
}

/// Host settings with one program, which is above everything that is no member.
fn one_program(interface: &str, members: &str) -> Question {
    let members: String = members.lines().map(|line| format!("  {line}\n")).collect();
    let text = format!(
        "timewire: 1\nkind: network\nname: x\n\
         stations:\n- name: alpha\n  host:\n    interfaces:\n      \
         - {{ name: eth0, {interface} }}\n    groups:\n      \
         name: all\n      policy: sequential\n{members}"
    );
    let file =
        HostSettings::parse("x.yaml", &text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    Question::HostSettings(Box::new(file))
}

#[test]
fn t1_a_program_above_the_threads_that_receive_is_told() {
    let host = recorded(I225);
    let program = "- is: { kind: program, run: [./control] }\n";
    let napi = "- is: { kind: napi, interface: eth0 }\n";
    let state = |interface: &str, members: &str| {
        let found = finding(&host, &one_program(interface, members), Check::GroupsPolling);
        (found.state, found.found)
    };
    let alone = format!("    members:\n      {program}");
    let (state_alone, found) = state("napi: { threaded: true }", &alone);
    assert_eq!(state_alone, State::Degraded, "{found}");
    assert_eq!(
        found,
        "its NAPI threads have no real-time priority, and program `./control` has the real-time \
         priority 60"
    );
    let threads = "napi: { threaded: true, scheduling: { policy: fifo, priority: 61 } }";
    assert_eq!(state(threads, &alone).0, State::Ok);
    let after = format!("    members:\n      {program}      {napi}");
    assert_eq!(state("up: true", &after).0, State::Degraded);
    let before = format!("    members:\n      {napi}      {program}");
    assert_eq!(state("up: true", &before).0, State::Ok);
    // A CPU that the program may not use is enough.
    let elsewhere = format!("    cpus: 0\n{alone}");
    assert_eq!(state("napi: { threaded: true, cpus: 1 }", &elsewhere).0, State::Ok);
    assert_eq!(state("napi: { threaded: true, cpus: 0 }", &elsewhere).0, State::Degraded);
}

/// What restores the groups is an ordinary process, so some of the time has to be its own.
#[test]
fn t1_groups_need_the_bound_on_real_time_threads() {
    let groups = one_program("up: true", "    members: []\n");
    let mut host = recorded(I225);
    host.0.settings.host.scheduling.rt_runtime = Reading::Known(Some(Span::from_ms(950)));
    let of = |host: &_, question: &_| finding(host, question, Check::SchedulingThrottling);
    assert_eq!(of(&host, &groups).state, State::Ok);
    let alone = of(&host, &Question::Host);
    assert_eq!(alone.state, State::Degraded);
    assert!(alone.mend[0].contains("only where no real-time thread spins"), "{alone:?}");
    host.0.settings.host.scheduling.rt_runtime = Reading::Known(None);
    assert_eq!(of(&host, &Question::Host).state, State::Ok);
    let without = of(&host, &groups);
    assert_eq!(without.mend, ["sysctl -w kernel.sched_rt_runtime_us=950000"]);
}

/// What no case asks for is not taken, however good.
#[test]
fn t1_a_scenario_takes_what_its_cases_ask_for() {
    let (snapshot, mut probes) = recorded(I225);
    let tried = ProbeOutcome::Works { found: "installed and seen".to_owned() };
    let tried = BTreeMap::from([("taprio".to_owned(), tried)]);
    probes.offloads.insert(eth0(), tried);
    let taken = |mac: &str, socket: SocketType| {
        let mut scenario = scenario();
        scenario.mac.socket = socket;
        scenario.experiment.cases.retain(|case| case.backend.word() == mac);
        let question = station(scenario, "alpha", None);
        let diagnosis = doctor::judge(&snapshot, &probes, &question);
        assert_ne!(diagnosis.accuracy.class.word(), "hardware");
        diagnosis.backend.map(doctor::BackendVariant::word)
    };
    assert_eq!(taken("taprio", SocketType::Auto), Some("taprio"));
    assert_eq!(taken("mac", SocketType::Auto), Some("mac-af_xdp_native"));
    assert_eq!(taken("mac", SocketType::AfPacket), Some("mac-af_packet"));
    assert_eq!(taken("none", SocketType::Auto), None);
}

/// The reference page names every check, with the same words.
#[test]
fn t1_the_reference_has_every_check() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/reference/doctor.md");
    let page = std::fs::read_to_string(path).unwrap();
    let mut ids = BTreeSet::new();
    for check in Check::ALL {
        assert!(ids.insert(check.id()), "{check} is there twice");
        let row = format!("| `{}` | {} | {} |", check.id(), check.what(), check.why());
        assert!(page.contains(&row), "the page has no row that begins with\n{row}");
    }
    for probe in Probe::ALL {
        let row = format!("| `{}` | {} |", probe.id(), probe.what());
        assert!(page.contains(&row), "the page has no row that begins with\n{row}");
    }
    for class in doctor::AccuracyClass::ALL {
        assert!(page.contains(&format!("| `{}` |", class.word())), "{}", class.word());
    }
}

/// Whatever is missing or degraded, the doctor says what mends it.
#[test]
fn t1_what_is_not_well_names_what_mends_it() {
    let mut seen = BTreeSet::new();
    for (name, diagnosis) in judgements() {
        for finding in diagnosis.findings {
            if matches!(finding.state, State::Missing | State::Degraded) {
                assert!(!finding.mend.is_empty(), "{name}: {finding:?}");
                assert!(finding.mend.iter().all(|mend| !mend.is_empty()), "{name}: {finding:?}");
                seen.insert(finding.id);
            }
        }
    }
    assert!(seen.len() > 20, "{seen:?}");
}

/// By what a NIC has and what is asked for: the filter that is taken, the narrowest that covers it.
#[test]
fn t1_a_wider_receive_filter_that_covers_the_asked_one_is_taken() {
    let cases: &[(&[&str], &str, Option<&str>)] = &[
        (&["none", "ptpv2-event"], "ptpv2-event", Some("ptpv2-event")),
        (&["none", "ptpv2-event"], "ptpv2-l2-event", Some("ptpv2-event")),
        (&["none", "ptpv2-event"], "ptpv2-l4-event", Some("ptpv2-event")),
        (&["none", "ptpv2-event"], "all", None),
        (&["none", "all"], "ptpv2-l2-event", Some("all")),
        (&["none", "all", "ptpv2-event"], "ptpv2-l4-event", Some("ptpv2-event")),
        (&["none", "ptpv2-l4-event"], "ptpv2-l2-event", None),
        (&["none", "ptpv2-l4-event", "ptpv2-l2-event"], "ptpv2-event", None),
        (&["none", "ptpv1-l4-event"], "ptpv2-event", None),
        (&["none"], "none", Some("none")),
    ];
    for (has, asked, taken) in cases {
        let mut host = recorded(I225);
        let nic = host.0.settings.interfaces.get_mut(&eth0()).unwrap();
        let Reading::Known(timestamps) = &mut nic.timestamping else { panic!("it timestamps") };
        timestamps.rx_filters = has.iter().map(|word| (*word).to_owned()).collect();
        let text = format!(
            "timewire: 1\nkind: network\nname: x\n\
             stations:\n- name: alpha\n  host:\n    interfaces:\n      - {{ name: eth0, \
             timestamping: {{ tx: true, rx: {asked} }} }}\n"
        );
        let mut file =
            HostSettings::parse("x.yaml", &text).unwrap_or_else(|error| panic!("{error}"));
        let question = Question::HostSettings(Box::new(file.clone()));
        let diagnosis = doctor::judge(&host.0, &host.1, &question);
        let about = |it: &&Finding| it.needed_by.as_deref() == Some("timestamping");
        let found = diagnosis.findings.iter().find(about).unwrap();
        doctor::take_covering(&mut file.host, &host.0);
        let now = file.host.interfaces[0].timestamping.as_ref().unwrap().rx.word();
        match taken {
            Some(taken) => assert_eq!((found.state, now), (State::Ok, *taken), "{has:?} {asked}"),
            None => {
                assert_eq!((found.state, now), (State::Missing, *asked), "{has:?} {asked}");
                assert!(!found.mend.is_empty(), "{found:?}");
            }
        }
    }
}

/// `tc` reads masks as hexadecimal: 10, 32 and 128 that were meant as decimal set stray bits.
#[test]
fn t1_stray_bits_of_gate_masks_are_commented() {
    let of = |masks: [&str; 3]| {
        let mut host = recorded(I225);
        let nic = host.0.settings.interfaces.get_mut(&eth0()).unwrap();
        let Reading::Known(qdiscs) = &mut nic.qdiscs else { panic!("it has disciplines") };
        qdiscs[0].kind = "taprio".to_owned();
        let schedule = masks.map(|mask| serde_json::json!({ "cmd": "S", "gatemask": mask }));
        qdiscs[0].options = Some(serde_json::json!({ "tc": 8, "schedule": schedule }));
        let diagnosis = doctor::judge(&host.0, &host.1, &Question::Interface(eth0()));
        diagnosis.findings.into_iter().find(|finding| finding.id == Check::Gates)
    };
    let found = of(["0x10", "0x32", "0x128"]).unwrap();
    assert_eq!(found.state, State::Degraded);
    assert!(
        found.found.starts_with("the gate mask 0x128 opens classes beyond the 8; "),
        "{found:?}"
    );
    assert_eq!(found.mend, ["sched-entry with the masks 0a, 20, 80 in their order"]);
    let found = of(["0xa", "0x20", "0x180"]).unwrap();
    assert_eq!(found.mend, ["sched-entry with masks of no more than 8 bits"]);
    assert_eq!(of(["0xa", "0x20", "0x80"]), None);
}

fn about_file(host: &(Snapshot, Probes), interfaces: &str) -> Vec<Finding> {
    let text = format!(
        "timewire: 1\nkind: network\nname: x\n\
         stations:\n- name: alpha\n  host:\n    interfaces:\n{interfaces}"
    );
    let file =
        HostSettings::parse("x.yaml", &text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    doctor::judge(&host.0, &host.1, &Question::HostSettings(Box::new(file))).findings
}

/// A VLAN that the file makes need not be there before.
#[test]
fn t1_a_vlan_that_the_file_makes_is_not_missing() {
    let host = recorded(I225);
    for (vlan, own, state) in [
        ("{ id: 5 }", "eth0.5", State::Ok),
        ("{ id: 5, name: tsn }", "tsn", State::Ok),
        ("{ id: 5 }", "eth0.6", State::Missing),
    ] {
        let interfaces =
            format!("    - {{ name: eth0, vlans: [{vlan}] }}\n    - {{ name: {own}, up: true }}\n");
        let all = about_file(&host, &interfaces);
        let of = |it: &&Finding| it.interface.as_ref().is_some_and(|name| name.as_str() == own);
        let found = all.iter().filter(of).find(|finding| finding.id == Check::Link).unwrap();
        assert_eq!(found.state, state, "{found:?}");
    }
}

/// What a kernel will drop is a warning before anybody sends.
#[test]
fn t1_frames_that_classes_with_launch_times_drop_are_told_before() {
    let host = recorded(LABORATORY);
    let told = |launch: &str, entries: &str| {
        let gates = if entries.is_empty() {
            String::new()
        } else {
            format!(", gates: {{ entries: [{entries}] }}")
        };
        let text = format!(
            "    - {{ name: eth0, transmit: {{ classes: [{{ queues: 1@0 }}, {{ priorities: [3], \
             queues: 1@1, launch_time: {{ delta: 300us{launch} }} }}]{gates} }} }}\n"
        );
        let all = about_file(&host, &text).into_iter();
        let own = |it: &Finding| it.id == Check::QdiscEtf && it.state == State::Degraded;
        all.filter(own).map(|it| it.found).collect::<Vec<_>>()
    };
    let plain = told("", "");
    assert_eq!(plain.len(), 1, "{plain:?}");
    assert!(plain[0].starts_with("class 1: etf drops every frame of a socket without SO_TXTIME"));
    assert_eq!(told(", skip_sock_check: true", ""), Vec::<String>::new());
    let open = "{ open: [0, 1], interval: 1ms }, { open: [1], interval: 1ms }";
    let always = told(", skip_sock_check: true", open);
    assert!(always[0].contains("is always open, and taprio drops"), "{always:?}");
    assert!(always[0].contains("from one of the 2 entries to the next"), "{always:?}");
    let some = "{ open: [0], interval: 1ms }, { open: [1], interval: 1ms }";
    let outside = told("", some);
    assert!(outside[1].contains("outside the gate or across the end"), "{outside:?}");
}

/// Both rates of a class with credit behind a gate.
#[test]
fn t1_the_effective_rate_of_credit_behind_gates_is_told() {
    let host = recorded(LABORATORY);
    let told = |entries: &str| {
        let text = format!(
            "    - {{ name: eth0, transmit: {{ classes: [{{ queues: 1@0 }}, {{ priorities: [3], \
             queues: 1@1, shaper: {{ credit: {{ from: slopes, idle_slope: 20Mbit, port: 100Mbit, \
             hi_credit: 0, lo_credit: -1200 }} }} }}], gates: {{ entries: [{entries}] }} }} }}\n"
        );
        let all = about_file(&host, &text).into_iter();
        all.filter(|it| it.needed_by.as_deref() == Some("shaper")).collect::<Vec<_>>()
    };
    let quarter = told("{ open: [1], interval: 250us }, { open: [0], interval: 750us }");
    assert_eq!(
        quarter[0].found,
        "class 1: credit of 20.000 Mbit/s behind a gate that is open for 25.0 % of the cycle \
         carries 20.000 Mbit/s by IEEE 802.1Q, and 5.000 to 14.600 Mbit/s with Linux"
    );
    assert!(quarter[0].mend[0].contains("80000000 bit/s"), "{quarter:?}");
    assert_eq!(told("{ open: [0, 1], interval: 1ms }"), []);
}
