// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `timewire doctor` as a user meets it: on this host, without privilege, killed in the middle, and
//! in kernels of the laboratory, where what it says is held against what `tc` says.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::support::{
    BOTH_CASES, Host, NOBODY, Said, Scratch, TIMEWIRE, Tiny, run, timewire, wait_until,
};
use serde_json::Value;

/// The state of a finding.
fn state<'a>(told: &'a Value, id: &str) -> &'a str {
    let findings = told["findings"].as_array().expect("findings");
    let found = findings.iter().find(|finding| finding["id"] == id);
    found.unwrap_or_else(|| panic!("no finding is {id}: {told}"))["state"].as_str().unwrap()
}

fn works(told: &Value, probe: &str) -> bool {
    told["probes"]["results"][probe]["state"] == "works"
}

/// It is one value, its exit code is that of its verdict, and what is not well says why.
#[track_caller]
fn consistent(said: &Said) -> Value {
    let told = said.json();
    assert_eq!(told["schema"], "timewire.doctor/1");
    assert_eq!(told["probes"]["schema"], "timewire.probes/1");
    let code = match told["verdict"].as_str().unwrap() {
        "yes" => 0,
        "yes_but" => 1,
        "no" => 4,
        other => panic!("{other}"),
    };
    assert_eq!(said.code, Some(code), "{told}");
    for finding in told["findings"].as_array().unwrap() {
        let well = finding["state"] == "ok";
        assert_eq!(well, finding["why"] == "", "{finding}");
        assert!(!well || finding["mend"].as_array().unwrap().is_empty(), "{finding}");
        assert!(!finding["found"].as_str().unwrap().is_empty(), "{finding}");
    }
    told
}

#[test]
fn t3_this_host_is_judged_and_stays_as_it_is() {
    let Some(host) = Host::start() else { return };
    let settings = || {
        let mut snapshot = host.timewire(&["snapshot", "--json"]).json();
        snapshot["settings"].take()
    };
    let before = settings();
    let said = host.timewire(&["doctor", "--json"]);
    let told = consistent(&said);
    assert_eq!(settings(), before);
    assert_eq!(told["subject"]["kind"], "host");
    // As root some things work on every Linux.
    for probe in ["scratch", "socket.packet", "socket.rx-timestamps", "tool.ip", "memory.lock"] {
        assert!(works(&told, probe), "{probe}: {told}");
    }
    // What is taken is one of what is possible, and the best of them that keeps slots.
    let backends = told["backends"].as_array().unwrap();
    let possible = backends.iter().find(|backend| backend["possible"] == true);
    assert_eq!(told["backend"], possible.unwrap()["backend"]);
    let text = host.timewire(&["doctor"]);
    assert_eq!(text.code, said.code);
    assert!(text.stdout.starts_with("this host\n"), "{}", text.stdout);
    host.is_clean();
}

#[test]
fn t3_a_scenario_and_an_interface_are_judged() {
    let Some(host) = Host::start() else { return };
    let file = host
        .scratch()
        .write("tiny.yaml", &Tiny { name: "tiny", cases: BOTH_CASES, more: "" }.text());
    let told = consistent(&host.timewire(&["doctor", &file, "--json"]));
    assert_eq!(told["subject"]["kind"], "scenario");
    assert!(["ok", "missing"].contains(&state(&told, "schedule.backend")), "{told}");
    host.tool("ip link add da type veth peer name db");
    let told = consistent(&host.timewire(&["doctor", "da", "--json"]));
    assert_eq!(told["subject"]["name"], "da");
    // It is down, and the command that mends it does.
    assert_eq!(state(&told, "link.up"), "degraded");
    let findings = told["findings"].as_array().unwrap();
    let down = findings.iter().find(|finding| finding["id"] == "link.up").unwrap();
    assert_eq!(down["mend"][0], "ip link set da up");
    host.tool(down["mend"][0].as_str().unwrap());
    host.tool("ip link set db up");
    let told = consistent(&host.timewire(&["doctor", "da", "--json"]));
    assert_eq!(state(&told, "link.up"), "ok");
    host.timewire(&["doctor", "dc"]).failed(
        2,
        "error: `dc` is neither a file nor an interface of the host; its interfaces are da, db, \
         lo\n",
    );
}

#[test]
fn t3_a_recorded_host_is_judged_as_it_was() {
    let Some(host) = Host::start() else { return };
    let directory = host.scratch().join("host");
    let here = host.timewire(&["doctor", "--record", &directory, "--json"]);
    let told = consistent(&here);
    let there = timewire(&["doctor", "--on", &directory, "--json"]);
    assert_eq!(there.json(), told);
    fs::remove_file(host.scratch().path().join("host/probes.json")).unwrap();
    let failed = timewire(&["doctor", "--on", &directory]);
    assert_eq!(failed.code, Some(2));
    assert!(failed.stderr.contains("probes.json"), "{failed:?}");
}

/// Of a host with many interfaces, some are enough.
#[test]
fn t3_a_record_of_some_interfaces_is_judged() {
    let Some(host) = Host::start() else { return };
    host.tool("ip link add da type veth peer name db");
    let directory = host.scratch().join("host");
    assert_ne!(host.timewire(&["doctor", "--record", &directory, "--json"]).code, Some(2));
    host.timewire(&["snapshot", "da", "--record", &directory]).done();
    let told = consistent(&timewire(&["doctor", "da", "--on", &directory, "--json"]));
    assert_eq!((state(&told, "link"), state(&told, "link.up")), ("ok", "degraded"));
    let other = timewire(&["doctor", "db", "--on", &directory]);
    assert!(other.stderr.contains("its interfaces are da\n"), "{other:?}");
}

/// Nothing in it is the address of a NIC, not even in a name; asked about is the NIC itself.
#[test]
fn t3_a_record_can_be_given_away() {
    let Some(host) = Host::start() else { return };
    host.tool("ip link add enx525400abcdef address 52:54:00:ab:cd:ef type veth peer name db");
    let directory = host.scratch().join("host");
    let said = host.timewire(&["doctor", "enx525400abcdef", "--record", &directory, "--json"]);
    let told = consistent(&said);
    let shown = told["subject"]["name"].as_str().unwrap().to_owned();
    assert!(shown.starts_with("enx0200000000"), "{shown}");
    assert_eq!(state(&told, "link.up"), "degraded");
    for file in ["record.json", "probes.json"] {
        let text = fs::read_to_string(host.scratch().path().join("host").join(file)).unwrap();
        for own in ["525400abcdef", "52:54:00:ab:cd:ef"] {
            assert!(!text.contains(own), "{file} has {own}");
        }
    }
    let there = timewire(&["doctor", &shown, "--on", &directory, "--json"]);
    assert_eq!(there.json(), told);
}

#[test]
fn t3_a_wrong_file_is_told_before_anything_is_tried() {
    let scratch = Scratch::new();
    let scenario = scratch.write("bad.yaml", "timewire: 1\nstations: 7\n");
    let said = timewire(&["doctor", &scenario]);
    assert_eq!((said.code, said.stdout.as_str()), (Some(2), ""));
    assert!(said.stderr.contains("bad.yaml:2"), "{said:?}");
    let file = scratch.write(
        "host.yaml",
        "timewire: 1\nkind: network\nname: x\n\
         stations:\n- name: alpha\n  host:\n    interfaces: 7\n",
    );
    let said = timewire(&["doctor", &file]);
    assert_eq!((said.code, said.stdout.as_str()), (Some(2), ""));
    assert!(said.stderr.contains("host.yaml:7"), "{said:?}");
}

#[test]
fn t3_an_ordinary_user_is_told_what_root_could() {
    let Some(host) = Host::start() else { return };
    let user = [format!("--reuid={NOBODY}"), format!("--regid={NOBODY}")];
    let words = ["setpriv", &user[0], &user[1], "--clear-groups", TIMEWIRE, "doctor", "--json"];
    let said = run(&mut host.command("", &words));
    if said.code.is_none_or(|code| code == 126) || said.stderr.contains("Permission denied") {
        return eprintln!("SKIP: nobody else may run the program: {}", said.stderr);
    }
    let told = consistent(&said);
    assert_eq!(state(&told, "privilege"), "degraded");
    assert_eq!(told["probes"]["results"]["sched.fifo"]["state"], "forbidden");
    assert_eq!(told["probes"]["results"]["xdp.native"]["state"], "forbidden");
    assert_ne!(told["probes"]["privilege"], "root");
    assert_eq!(told["accuracy"]["class"], "unbounded");
}

/// The network namespaces that any process of a host is in, with those of single threads.
fn networks(host: &Host) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for process in host.processes() {
        let threads = fs::read_dir(format!("/proc/{}/task", process.pid));
        for thread in threads.into_iter().flatten().flatten() {
            let network = fs::read_link(thread.path().join("ns/net"));
            found.extend(network.map(|link| link.display().to_string()));
        }
    }
    found
}

#[test]
fn t3_a_killed_doctor_leaves_nothing() {
    let Some(host) = Host::start() else { return };
    let own = fs::read_link(host.netns("")).unwrap().display().to_string();
    for _ in 0..3 {
        let doctor = host.spawn(&["doctor"]);
        // Something is being tried.
        let mut scratch = None;
        wait_until("a namespace is made", || {
            scratch = networks(&host).into_iter().find(|network| *network != own);
            scratch.is_some()
        });
        doctor.signal("KILL");
        wait_until("everything of it is gone", || {
            host.processes().iter().all(|process| !process.command.contains("__probe"))
                && networks(&host).iter().all(|network| *network == own)
        });
        assert!(host.list("/run/netns").is_empty());
        assert!(!host.tool("ip -o link show").contains("twd"));
        drop(doctor);
    }
    host.is_clean();
}

/// A kernel of the laboratory: nothing when there is none.
fn in_kernel(series: &str, words: &[&str]) -> Option<Said> {
    let mut arguments = vec!["lab", "exec", "--kernel", series, "--"];
    arguments.extend(words);
    let said = timewire(&arguments);
    if said.stderr.contains("lab uml") {
        eprintln!("SKIP: no laboratory kernel {series} here; `timewire lab uml` builds one");
        return None;
    }
    Some(said)
}

/// What the doctor says of each discipline, and the words by which `tc` is asked for it.
const DISCIPLINES: [(&str, &str); 8] = [
    ("qdisc.mqprio", "mqprio num_tc 2 map 0 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 queues 1@0 1@1 hw 0"),
    (
        "qdisc.taprio",
        "taprio num_tc 2 map 0 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 queues 1@0 1@1 base-time 5 \
         sched-entry S 3 1000000 clockid CLOCK_TAI",
    ),
    (
        "qdisc.taprio-txtime-assist",
        "taprio num_tc 2 map 0 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 queues 1@0 1@0 base-time 5 \
         sched-entry S 3 1000000 flags 0x1 txtime-delay 100000 clockid CLOCK_TAI",
    ),
    ("qdisc.etf", "etf clockid CLOCK_TAI delta 100000"),
    ("qdisc.cbs", "cbs idleslope 10000 sendslope -90000 hicredit 100 locredit -100"),
    ("qdisc.fq", "fq"),
    ("qdisc.netem", "netem delay 2ms"),
    ("qdisc.tbf", "tbf rate 10mbit burst 3000 latency 1ms"),
];

/// What the doctor calls possible is accepted when someone else does it, and what it calls missing
/// is refused: disciplines, a VLAN interface, tcx by its version.
fn doctor_is_right(series: &str) {
    let Some(said) = in_kernel(series, &[TIMEWIRE, "doctor", "--json", "--all"]) else { return };
    let told = consistent(&said);
    assert!(told["probes"]["kernel"].as_str().unwrap().starts_with(series), "{told}");
    assert_eq!(told["accuracy"]["class"], "exact");
    let mut script = "ip link add name ta numtxqueues 2 type veth peer name tb\n".to_owned();
    script += "ask() { if $2 >/dev/null 2>&1; then echo $1 yes; else echo $1 no; fi; }\n";
    for (probe, words) in DISCIPLINES {
        script += &format!("ask {probe} 'tc qdisc add dev ta root {words}'\n");
        script += "tc qdisc del dev ta root 2>/dev/null\n";
    }
    script += "ask vlan 'ip link add link ta name ta.7 type vlan id 7'\n";
    script += "ask queue.rps 'test -w /sys/class/net/ta/queues/rx-0/rps_cpus'\n";
    script += "ask bpf.btf 'test -r /sys/kernel/btf/vmlinux'\n";
    script += "ask sched.fifo 'chrt -f 1 true'\nask sched.deadline \
               'chrt -d -T 100000 -D 1000000 -P 1000000 0 true'\n";
    let asked = in_kernel(series, &["sh", "-c", &script]).unwrap().done();
    let mut possible = 0;
    for line in asked.stdout.lines() {
        let (probe, answer) = line.split_once(' ').unwrap();
        assert_eq!(works(&told, probe), answer == "yes", "{probe}: {answer}, {told}");
        possible += usize::from(answer == "yes");
    }
    assert_eq!(asked.stdout.lines().count(), DISCIPLINES.len() + 5);
    // The laboratory's kernels have all the disciplines, so that this compares something.
    assert!(possible >= DISCIPLINES.len(), "{}", asked.stdout);
    // Linux has tcx since 6.6.
    assert_eq!(works(&told, "bpf.tcx"), series != "6.1", "{told}");
}

#[test]
fn t4_the_doctor_is_right_in_6_12() {
    doctor_is_right("6.12");
}

#[test]
fn t4_the_doctor_is_right_in_6_1() {
    doctor_is_right("6.1");
}

#[test]
fn t4_a_scenario_that_this_kernel_cannot_run_runs_in_the_laboratory() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/taprio-64.yaml");
    let Some(said) = in_kernel("6.12", &[TIMEWIRE, "doctor", file, "--json"]) else { return };
    let told = consistent(&said);
    assert_eq!((said.code, state(&told, "schedule.backend")), (Some(0), "ok"));
    assert_eq!(told["backend"], "taprio");
}

/// A NIC's driver, its clock and what it needs: a 82576 in the emulated machine.
#[test]
fn t4_qemu_a_nic_with_a_clock_is_judged() {
    if std::env::var_os("TIMEWIRE_SLOW").is_none() {
        return eprintln!("SKIP: slow: it boots an emulated machine; TIMEWIRE_SLOW=1 runs it");
    }
    let words = ["lab", "exec", "--in", "qemu", "--nics", "2", "--"];
    let said = timewire(&[&words[..], &[TIMEWIRE, "doctor", "eth0", "--json"]].concat());
    if said.stderr.contains("lab qemu") {
        return eprintln!("SKIP: no kernel for the emulated machine; `timewire lab qemu`");
    }
    let told = consistent(&said);
    assert_eq!((state(&told, "link.phc"), state(&told, "link.timestamps")), ("ok", "ok"));
    let findings = told["findings"].as_array().unwrap();
    let coalescing = findings.iter().find(|finding| finding["id"] == "link.coalescing").unwrap();
    // The commands that mend it do; and asking the NIC what it does itself leaves it as it was,
    // whether it takes the question or not.
    let mend = coalescing["mend"].as_array().unwrap().iter().map(|one| one.as_str().unwrap());
    let mend = mend.collect::<Vec<_>>().join(" && ");
    let script = format!(
        "ip link set eth0 up && {mend} && tc qdisc show dev eth0 >/tmp/before && \
         {TIMEWIRE} doctor eth0 --try-offload eth0 --json; code=$?; \
         tc qdisc show dev eth0 | diff /tmp/before - >&2 && \
         test -z \"$(ls /run/timewire/journal)\" && exit $code; exit 77"
    );
    let said = timewire(&[&words[..], &["sh", "-c", &script]].concat());
    let told = consistent(&said);
    assert_eq!(state(&told, "link.coalescing"), "ok");
    let tried = &told["probes"]["offloads"]["eth0"];
    for what in ["taprio", "etf", "cbs"] {
        // The emulated NIC has none of them, and says so.
        assert_eq!(tried[what]["state"], "absent", "{tried}");
        assert_eq!(state(&told, &format!("qdisc.{what}-offload")), "not_asked");
    }
}

/// A scenario of the repository.
fn scenario_file(name: &str) -> String {
    format!("{}/../../scenarios/{name}.yaml", env!("CARGO_MANIFEST_DIR"))
}

/// This host as a station needs both options, and a station and a scenario that there are.
#[test]
fn t3_a_host_is_judged_as_a_station_of_a_scenario() {
    let Some(host) = Host::start() else { return };
    host.tool("ip link add eth0 type veth peer name far0");
    let file = scenario_file("tdm-64");
    let names = "alpha, beta, gamma, delta";
    let mistakes: [(&[&str], String); 5] = [
        (
            &["--station", "alpha"],
            "error: --station needs --interface, the one to the segment\n".into(),
        ),
        (
            &["--interface", "eth0"],
            format!(
                "error: --interface needs --station, which of the stations this host is: {names}\n"
            ),
        ),
        (
            &["--station", "omega", "--interface", "eth0"],
            format!("error: there is no station `omega`: there are {names}\n"),
        ),
        (&["--station", "Alpha", "--interface", "eth0"], "`Alpha` is no station name".into()),
        (&["--station", "alpha", "--interface", "a/b"], "a/b".into()),
    ];
    for (options, said) in mistakes {
        let failed = host.timewire(&[&["doctor", &file], options].concat());
        assert_eq!((failed.code, failed.stdout.as_str()), (Some(2), ""), "{failed:?}");
        assert!(failed.stderr.contains(&said), "{failed:?}");
    }
    let elsewhere = host.timewire(&["doctor", "eth0", "--station", "alpha", "--interface", "eth0"]);
    let said = "error: --station and --interface are about a segment; name its file as well\n";
    elsewhere.failed(2, said);
    // The first line says which of both is judged, and so does JSON.
    let of = |options: &[&str]| host.timewire(&[&["doctor", &file], options].concat());
    let both = ["--station", "beta", "--interface", "eth0"];
    let json = ["--station", "beta", "--interface", "eth0", "--json"];
    let (lab, here) = (of(&["--json"]), of(&json));
    let (lab, here) = (consistent(&lab), consistent(&here));
    assert_eq!(lab["subject"]["place"], "laboratory");
    let options = "--station alpha|beta|gamma|delta --interface INTERFACE";
    assert_eq!(lab["subject"]["this_host"], options);
    let expected = serde_json::json!({
        "kind": "scenario", "name": "tdm-64", "place": "station", "station": "beta",
        "interface": "eth0",
    });
    assert_eq!(here["subject"], expected);
    let first = of(&both).stdout.lines().next().unwrap().to_owned();
    assert_eq!(first, "scenario tdm-64, this host as beta on eth0");
    assert!(of(&[]).stdout.starts_with(&format!(
        "scenario tdm-64, in the local laboratory (to judge this host: {options})\n"
    )));
    assert_eq!(state(&here, "link.up"), "degraded");
    assert_eq!(state(&here, "link"), "ok");
    // An interface that is not there is missing, and named.
    let absent = of(&["--station", "beta", "--interface", "eth9", "--json"]);
    assert_eq!((absent.code, state(&consistent(&absent), "link")), (Some(4), "missing"));
    host.is_clean();
}

/// One judgement: `run` of a scenario, and its dry run, say of this kernel what the doctor says; of
/// the laboratory's own kernel, nothing.
#[test]
fn t3_a_run_says_what_the_doctor_says() {
    let Some(host) = Host::start() else { return };
    let mut codes = BTreeSet::new();
    for name in ["tdm-64", "taprio-64", "backends-64", "rtnet-like", "pipeline"] {
        let file = scenario_file(name);
        let judged = host.timewire(&["doctor", &file, "--json"]).json();
        let is_no = judged["verdict"] == "no";
        let dry = host.timewire(&["run", &file, "--dry-run"]);
        assert_eq!(dry.code, Some(if is_no { 4 } else { 0 }), "{name}: {dry:?}");
        assert_eq!(dry.stderr.contains("error: schedule.backend"), is_no, "{name}: {dry:?}");
        assert!(dry.stdout.starts_with(&format!("{name}: cycle")), "{dry:?}");
        codes.insert(is_no);
        if is_no {
            let out = host.scratch().join("out");
            let run = host.timewire(&["run", &file, "--quick", "--out", &out]);
            assert_eq!((run.code, &run.stderr), (Some(4), &dry.stderr), "{name}");
            assert!(!Path::new(&out).exists(), "nothing was run");
            let json = host.timewire(&["run", &file, "--dry-run", "--json"]);
            assert_eq!(json.json()["schema"], "timewire.doctor/1");
            let uml = host.timewire(&["run", &file, "--dry-run", "--on", "lab:uml"]);
            assert_eq!((uml.code, uml.stderr.as_str()), (Some(0), ""), "{uml:?}");
        }
        let with =
            |backend: &str| host.timewire(&["run", &file, "--dry-run", "--backend", backend]).code;
        // What a backend is asked of, the doctor is asked of.
        if name == "tdm-64" {
            let mut backends = judged["backends"].as_array().unwrap().iter();
            let etf = backends.find(|it| it["backend"] == "etf").unwrap();
            let code = if etf["possible"] == true { 0 } else { 4 };
            assert_eq!((with("etf"), with("mac"), with("auto")), (Some(code), Some(0), Some(0)));
        }
    }
    assert!(codes.contains(&false), "Timewire's own MAC runs anywhere");
    host.is_clean();
}

/// Where `apply` of a station says what the doctor says: with queues for the classes and without,
/// in a kernel with all disciplines, and nothing is changed where something is missing.
#[test]
fn t4_apply_of_a_station_asks_the_doctor() {
    let file = scenario_file("taprio-64");
    let script = format!(
        "ip link add one numtxqueues 1 type veth peer name far1 numtxqueues 1
         ip link add two numtxqueues 2 type veth peer name far2 numtxqueues 2
         for on in one two absent; do for word in --dry-run --json; do
           tc qdisc show dev $on >/tmp/before 2>/dev/null
           {TIMEWIRE} apply {file} --station alpha --interface $on $word >/tmp/out 2>/tmp/err
           echo $on $word $? $(grep -c link.queues /tmp/err) \
             $(tc qdisc show dev $on 2>/dev/null | cmp -s - /tmp/before && echo same || echo other)
         done; done
         {TIMEWIRE} undo >/dev/null 2>&1; tc qdisc show dev two | grep -c taprio"
    );
    let Some(said) = in_kernel("6.12", &["sh", "-c", &script]) else { return };
    let lines: Vec<&str> = said.stdout.lines().collect();
    let expected = [
        "one --dry-run 4 1 same",
        "one --json 4 1 same",
        "two --dry-run 0 0 same",
        "two --json 0 0 other",
    ];
    assert_eq!(lines[..4], expected, "{said:?}");
    for line in &lines[4..6] {
        let refused = [" 2 0 same", " 4 0 same"].iter().any(|end| line.ends_with(end));
        assert!(line.starts_with("absent ") && refused, "{said:?}");
    }
    assert_eq!(lines[6], "0", "it was undone: {said:?}");
}

/// Settings of which some cannot be carried out by a virtual pair with one queue, and a NIC that
/// is not there.
const FILES: &[(&str, &str)] = &[
    ("up", "{ name: eth0, up: true }"),
    ("absent", "{ name: eth7, mtu: 1400 }"),
    (
        "two",
        "{ name: eth0, transmit: { classes: [{ queues: 1@0 }, \
         { priorities: [1], queues: 1@1 }] } }",
    ),
    (
        "gates",
        "{ name: eth0, transmit: { classes: [{ queues: 1@0 }, { priorities: [1], queues: 1@1 }], \
         gates: { entries: [{ open: [0], interval: 1ms }, { open: [1], interval: 1ms }] } } }",
    ),
    ("launch", "{ name: eth0, transmit: { launch_time: { delta: 200us } } }"),
    ("timestamps", "{ name: eth0, timestamping: { tx: true, rx: all } }"),
    ("channels", "{ name: eth0, channels: { combined: 1000 } }"),
    ("coalescing", "{ name: eth0, coalescing: { rx: 0us } }"),
    ("steering", "{ name: eth0, steering: [{ queue: 0, ethertype: '0x88f7' }] }"),
    ("no-feature", "{ name: eth0, features: [{ name: no-such-thing, on: true }] }"),
    ("preemption", "{ name: eth0, mac_merge: { pmac: true } }"),
];

/// One judgement: whatever the doctor says cannot be, `apply` says as well, and changes nothing.
#[test]
fn t3_apply_never_says_yes_where_the_doctor_says_no() {
    let Some(host) = Host::start() else { return };
    host.tool("ip link add eth0 type veth peer name far0");
    let (mut refused, mut taken) = (0, 0);
    for (name, interface) in FILES {
        let text = format!(
            "timewire: 1\nkind: network\nname: {name}\n\
             stations:\n- name: alpha\n  host:\n    interfaces: [{interface}]\n"
        );
        let file = host.scratch().write(&format!("{name}.host.yaml"), &text);
        let judged = host.timewire(&["doctor", &file, "--json"]);
        let told = judged.json();
        let dry = host.timewire(&["apply", &file, "--dry-run"]);
        if told["verdict"] != "no" {
            taken += usize::from(dry.code == Some(0));
            continue;
        }
        refused += 1;
        assert!(matches!(dry.code, Some(2 | 4)), "{name}: {dry:?}\n{told}");
        let before = host.tool("ip -d link show eth0");
        let real = host.timewire(&["apply", &file]);
        assert!(matches!(real.code, Some(2 | 4)), "{name}: {real:?}");
        assert!(real.stderr.contains("error: "), "{name}: {real:?}");
        assert_eq!(host.tool("ip -d link show eth0"), before, "{name}");
    }
    assert!(refused > 4 && taken > 0, "{refused} refused, {taken} taken");
    host.is_clean();
}
