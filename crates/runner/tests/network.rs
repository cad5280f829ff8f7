// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The compile step: what a network file becomes for a laboratory's kernel, and for hosts.

use std::fs;
use std::path::{Path, PathBuf};

use timewire_base::{Instant, Span};
use timewire_datapath::reply::{ReplyTask, SendWhen};
use timewire_model::scenario::hosts_file::HostsFile;
use timewire_model::scenario::network::{NetworkCases, NetworkFile};
use timewire_plan::file;
use timewire_plan::synth::{self, Options};
use timewire_runner::experiment::connection::Connection;
use timewire_runner::network::{self, Compiled, LaunchError, Obstacle, Planned, PromisedBy, Site};
use timewire_tsn::file::ParseFile;

fn networks() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/networks")
}

fn text_of(name: &str) -> String {
    fs::read_to_string(networks().join(format!("{name}.network.yaml"))).expect("a shipped network")
}

fn compile(text: &str) -> Result<Compiled, Vec<Obstacle>> {
    compile_at(text, Site::Laboratory)
}

fn compile_at(text: &str, site: Site<'_>) -> Result<Compiled, Vec<Obstacle>> {
    let network = NetworkCases::parse("network.yaml", text).expect("a good network");
    let compiled = network.cases.iter().map(|case| {
        let given = file::problem(&case.file).expect("a network that can be planned");
        let plan = synth::plan(given.problem.clone(), Options::default(), u64::MAX);
        assert!(plan.refused.is_empty(), "{:?}", plan.refused);
        let planned = Planned { case, given: &given, plan: &plan };
        network::compile(planned, site, &LaunchError::lab_uml())
    });
    let compiled = compiled.collect::<Result<Vec<_>, _>>()?;
    Ok(compiled.into_iter().next_back().expect("a network file has a network"))
}

#[test]
fn t1_the_compiled_line_is_as_before() {
    let compiled = compile(&text_of("line")).unwrap();
    let told = network::described(&compiled);
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/line.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&golden, &told).unwrap();
    }
    assert!(
        told == fs::read_to_string(&golden).unwrap(),
        "tests/golden/line.txt is stale: UPDATE_GOLDEN=1 cargo test -p timewire-runner\n{told}"
    );
}

/// Two renderings of one plan: gates of the compile step, and those of `plan --render`.
#[test]
fn t1_the_gates_of_a_planned_line_are_those_that_the_planner_renders() {
    let network = NetworkFile::parse("line", &text_of("line")).unwrap();
    let given = file::problem(&network).unwrap();
    let plan = synth::plan(given.problem.clone(), Options::default(), u64::MAX);
    let compiled = compile(&text_of("line")).unwrap();
    let mut compared = 0;
    for rendered in file::render(&network, &given, &plan).unwrap() {
        let Some(node) = rendered.name.strip_suffix(".tc") else { continue };
        let setup = &compiled.files[&format!("{node}/setup.sh")];
        let own = setup.lines().filter(|line| line.starts_with("tc "));
        assert_eq!(own.collect::<Vec<_>>(), rendered.text.lines().collect::<Vec<_>>(), "{node}");
        compared += 1;
    }
    assert_eq!(compared, 11);
}

#[test]
fn t1_every_network_becomes_an_experiment_or_says_why_not() {
    let (mut made, mut refused) = (Vec::new(), 0);
    for entry in fs::read_dir(networks()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).unwrap();
        match compile(&text) {
            Ok(compiled) => {
                let script = compiled.script().unwrap();
                assert!(!script.files.is_empty(), "{name}");
                made.push(name.split('.').next().unwrap().to_owned());
            }
            Err(obstacles) => {
                assert!(obstacles.iter().all(|it| !it.what.is_empty() && !it.why.is_empty()));
                refused += 1;
            }
        }
    }
    made.sort();
    assert_eq!(
        made,
        [
            "access-switched",
            "avb",
            "control-loop",
            "line",
            "line-qos",
            "opcua-pubsub-like",
            "planned-cell",
            "profinet-like",
            "ring",
        ]
    );
    assert!(refused > 5, "{refused}");
}

#[test]
fn t1_what_kernels_cannot_do_is_named() {
    let text = text_of("avb");
    for (from, to, what) in [
        ("[b1,", "[{ name: b1, cut_through: 64B },", "bridge b1"),
        (
            "{ between: [b1, b2], delay: 1us }",
            "{ between: [b1, b2], delay: 1us, loss: 1% }",
            "link b1-b2",
        ),
        ("  - of: [b4, b5, b6]\n", "  - of: [b4, b5, b6]\n    preemptable: [0]\n", "ports[1]"),
        ("  - of: [b4, b5, b6]\n", "  - of: [b4, b5, b6]\n    capacity: 9\n", "ports[1]"),
        ("period: 250us", "period: 250us, jitter: 1us", "stream class-b"),
        (
            "streams:\n",
            "faults: [{ kind: babble, stream: files, at: 1ms, duration: 1ms }]\nstreams:\n",
            "faults",
        ),
    ] {
        let changed = text.replacen(from, to, 1);
        assert_ne!(changed, text, "{from}");
        let obstacles = compile(&changed).unwrap_err();
        let named: Vec<_> = obstacles.iter().map(|it| it.what.as_str()).collect();
        assert_eq!(named, [what], "{obstacles:?}");
    }
}

/// Answers, requests and sporadic streams: each kind has a program on its station, and its times.
#[test]
fn t1_streams_that_wait_for_others_have_programs_of_their_own() {
    let text = text_of("control-loop");
    let compiled = compile(&text).unwrap();
    let task = |name: &str| -> ReplyTask {
        serde_json::from_str(&compiled.files[name]).unwrap_or_else(|it| panic!("{name}: {it}"))
    };
    let act = task("controller/follow-eth0.json");
    assert_eq!((act.hears.unwrap().as_str(), act.end, act.streams.len()), ("eth0", None, 1));
    let of = &act.streams[0];
    assert_eq!((of.stream, of.vid, of.class), (2, 11, 6));
    let (work, from_start) = (Span::from_us(100), Some(Span::ZERO));
    assert_eq!(of.when, SendWhen::After { stream: 1, work, from_start });
    let ask = task("panel/request-eth0.json");
    assert_eq!(ask.end, Some(Instant::from_ns(500_000_000)));
    let (think, timeout, first) = (Span::from_ms(2), Span::from_ms(50), Span::ZERO);
    assert_eq!(ask.streams[0].when, SendWhen::Request { answer: 5, think, timeout, first });
    let alarms = task("sensor/sporadic-3.json");
    assert_eq!(alarms.hears, None);
    let promise = |name: &str| compiled.promises.iter().find(|it| it.name == name).unwrap();
    match &alarms.streams[0].when {
        SendWhen::At { gaps } => {
            assert_eq!(promise("alarms").messages, u64::try_from(gaps.len()).ok());
            assert!(gaps.iter().all(|gap| *gap >= Span::from_us(500)), "{gaps:?}");
        }
        other => panic!("{other:?}"),
    }
    // What follows a talker has as many messages; of requests nobody knows how many there are.
    assert_eq!((promise("act").messages, promise("act").tail), (Some(500), 21));
    assert_eq!((promise("ask").messages, promise("state").messages), (None, None));
    assert_eq!(promise("state").program, "follow-eth0");
    let steps = |station: &str, phase: &str| {
        let stations = compiled.experiment["stations"].as_array().unwrap();
        let station = stations.iter().find(|it| it["name"] == station).unwrap();
        let steps = station["phases"][phase]["steps"].as_array().unwrap().iter();
        steps.map(|it| it.to_string()).collect::<Vec<_>>()
    };
    // Who follows is there before anybody sends, and until all have sent.
    assert!(steps("controller", "open")[0].contains("follow-eth0.json"));
    assert!(steps("controller", "close").iter().any(|it| it.contains("\"stop\":\"follow-eth0\"")));
    assert!(steps("panel", "run").iter().any(|it| it.contains("request-eth0.json")));
    assert!(steps("panel", "finish").iter().any(|it| it.contains("\"wait\":\"request-eth0\"")));
    let differs = "{ kind: uniform, min: 1us, max: 2us }";
    for (from, to, says) in [
        ("work: 100us", format!("work: {differs}"), "`work`: a program takes one time"),
        ("think: 2ms", format!("think: {differs}"), "`think`: a program takes one time"),
        ("min: 500us, mean: 3ms", "min: 0us, mean: 100ns".to_owned(), "more than 400000 messages"),
        ("work: 50us", "work: 50us, launch: 1ms".to_owned(), "only talkers of cyclic streams"),
    ] {
        let changed = text.replacen(from, &to, 1);
        assert_ne!(changed, text, "{from}");
        let ports = "ports: [{ of: [sensor], launch: [0, 3] }]\nstreams:\n";
        let obstacles = compile(&changed.replacen("streams:\n", ports, 1)).unwrap_err();
        assert!(obstacles.iter().any(|it| it.why.contains(says)), "{from}: {obstacles:?}");
    }
}

/// What changes a host is held by a program with an undo log, and never done by a script.
#[test]
fn t1_on_hosts_a_program_holds_what_is_to_be_taken_back() {
    let hosts = "timewire: 1
kind: hosts
clock: one-host
stations:
  - { name: a, agent: local, interface: eth0 }
  - { name: b, agent: local, interface: eth1 }
  - { name: br, agent: local, links: [{ to: a, interface: p0 }, { to: b, interface: p1 }] }
";
    let hosts = HostsFile::parse("hosts.yaml", hosts).unwrap();
    let text = "timewire: 1
kind: network
name: pair
duration: 10ms
stations: [{ name: a }, { name: b }]
bridges: [{ name: br }]
links: [{ between: [a, br] }, { between: [br, b] }]
streams:
  - { name: s, talker: a, listeners: b, class: 7, size: 64B, kind: cyclic, period: 1ms }
  - { name: t, talker: a, listeners: b, class: 3, size: 64B, kind: cyclic, period: 1ms }
";
    let compiled = compile_at(text, Site::Hosts(&hosts)).unwrap();
    assert!(compiled.files.keys().all(|name| !name.ends_with(".sh")), "{:?}", compiled.files);
    let held: Connection = serde_json::from_str(&compiled.files["br/connection.json"]).unwrap();
    let bridge = held.bridge.unwrap();
    let ports: Vec<_> = bridge.ports.iter().map(|(port, vlans)| (port.as_str(), vlans)).collect();
    assert_eq!(ports, [("p0", &vec![10, 11]), ("p1", &vec![10, 11])]);
    let shaped: Vec<_> = held.interfaces.iter().map(|it| it.qdiscs.len()).collect();
    assert_eq!(shaped, [0, 2], "p0 receives, p1 sends two classes");
    // Where nothing is sent nothing is put, and nobody else may have put anything.
    let held: Connection = serde_json::from_str(&compiled.files["b/connection.json"]).unwrap();
    assert!(
        held.interfaces.iter().all(|it| it.alone && it.qdiscs.is_empty()) && held.bridge.is_none()
    );
    // Each that holds something is waited for, and ended in the end.
    let stations = compiled.experiment["stations"].as_array().unwrap();
    for station in stations {
        let steps = station["phases"]["setup"]["steps"].to_string();
        assert!(steps.contains("--wait"), "{steps}");
        assert_eq!(station["phases"]["teardown"]["steps"][0]["stop"], "connection");
    }
}

#[test]
fn t1_promises_come_from_the_plan_a_bound_or_the_limits_and_load_has_none() {
    let by = |name: &str, stream: &str| {
        let compiled = compile(&text_of(name)).unwrap();
        let promise = compiled.promises.iter().find(|it| it.name == stream).unwrap();
        promise.clone()
    };
    let state = by("line", "state-1");
    // 2 x (10.72 us + 1 us) and a window that opens 2 us after the frame is there.
    let ns = |span: Option<timewire_base::Span>| span.map(timewire_base::Span::as_ns);
    assert_eq!((state.by, ns(state.latency)), (PromisedBy::Plan, Some(25_446)));
    // Handed over 5 us before, two ports, one wake-up.
    assert_eq!((state.at_least.as_ns(), ns(state.at_most)), (23_440, Some(39_446)));
    assert_eq!(ns(state.limit()), Some(39_446));
    let class_a = by("avb", "class-a");
    assert_eq!((class_a.by, class_a.messages), (PromisedBy::Bound, Some(4_000)));
    assert_eq!((class_a.at_least.as_ns(), ns(class_a.limit())), (198_520, Some(1_241_000)));
    let files = by("avb", "files");
    assert_eq!((files.by, files.limit()), (PromisedBy::Load, None));
    let group = by("opcua-pubsub-like", "group-1>subscriber-2");
    assert_eq!((group.by, ns(group.launch_delta)), (PromisedBy::Limits, Some(20_000)));
    // The file counts from the release, 200 us before the launch time.
    assert_eq!((group.at_least.as_ns(), ns(group.limit())), (40_720, Some(57_080)));
    assert_eq!((group.to.as_str(), group.to_interface.as_str()), ("subscriber-2", "eth0"));
}

#[test]
fn t0_a_phase_has_the_time_that_its_steps_have() {
    let phase = |duration: &str| {
        let text = text_of("line");
        let at = text.find("\nduration:").expect("the line has a duration");
        let end = at + 1 + text[at + 1..].find('\n').unwrap();
        let text = format!("{}\nduration: {duration}{}", &text[..at], &text[end..]);
        let compiled = compile(&text).unwrap();
        compiled.experiment["timing"]["phase"].as_str().unwrap().to_owned()
    };
    assert_eq!(phase("500ms"), "300s");
    let long = timewire_base::parse_span(&phase("1200s")).unwrap();
    assert!(long >= Span::from_secs(1_260), "{long}");
}

#[test]
fn t0_a_file_that_is_missing_is_told_with_who_puts_it() {
    let text = "timewire: 1\nkind: network\nname: two\nstations:\n- name: a\n  \
                phases: { setup: [{ put: x, from: gone.txt }] }\n- b\nlinks: [[a, b]]\n\
                streams:\n- { name: s, talker: a, listeners: b, size: 64B, period: 1ms }\n";
    let mut compiled = compile(text).unwrap();
    let network = NetworkCases::parse("network.yaml", text).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let told = compiled.take_files(&network.cases[0].file, directory.path()).unwrap_err();
    assert!(told.to_string().starts_with("a, setup: "), "{told}");
    assert!(told.to_string().contains("gone.txt"), "{told}");
}
