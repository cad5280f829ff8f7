// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `timewire clock` as a user meets it: real daemons in a namespace, and two kernels whose clocks
//! differ, where the simulator knows how late it is.

use std::fs;
use std::process::Command;

use crate::support;
use crate::support::interrupted::{WAYS, end, hears_as};
use crate::support::{Host, Scratch, timewire, wait_until};
use serde_json::Value as Json;
use timewire_base::SocketPriority;
use timewire_lab::ns;
use timewire_sys::udp::TimestampedUdp;

/// Whether linuxptp is installed; says so when not.
fn linuxptp() -> bool {
    let there = Command::new("sh").args(["-c", "command -v ptp4l pmc"]).output();
    let there = there.is_ok_and(|output| output.status.success());
    if !there {
        eprintln!("SKIP: ptp4l and pmc (package linuxptp) are needed");
    }
    there
}

fn file(interface: &str, role: &str, more: &str) -> String {
    format!(
        "timewire: 1\nkind: network\nname: a\n\
         stations:\n- name: alpha\n  host:\n    clock: {{interfaces: [{interface}], role: {role}, \
         adjust: false, limits: {{offset: 100ms, good_samples: 3}}{more}}}\n"
    )
}

/// Two ends of a cable, the second in a namespace of its own, which compare one clock with itself.
fn pair() -> Option<Host> {
    let host = Host::start()?;
    host.tool("ip netns add b");
    host.tool("ip link add va address 02:00:00:00:00:0a type veth peer name vb netns b");
    host.tool("ip address add 10.77.0.1/24 dev va");
    host.tool("ip -n b address add 10.77.0.2/24 dev vb");
    host.tool("ip link set va up");
    host.tool("ip -n b link set vb up");
    host.tool("ip -n b neigh add 10.77.0.1 lladdr 02:00:00:00:00:0a dev vb");
    Some(host)
}

/// Datagrams of priority 6 from the second end.
fn send_urgent(host: &Host, count: usize) {
    let sent = ns::in_namespace(&host.netns("b"), || {
        let from = "10.77.0.2:5000".parse().unwrap();
        let socket = TimestampedUdp::bind(from).unwrap();
        socket.set_priority(SocketPriority::new(6).unwrap()).unwrap();
        for _ in 0..count {
            // The kernel says when the gate at the other end drops it.
            let _ = socket.send_to(b"urgent", "10.77.0.1:5000".parse().unwrap());
        }
    });
    sent.unwrap();
}

fn status(host: &Host, name: &str) -> Option<Json> {
    let said = host.timewire(&["clock", "status", "--name", name, "--json"]);
    serde_json::from_str(&said.stdout).ok()
}

fn is_on_time(host: &Host, name: &str) -> bool {
    status(host, name).is_some_and(|status| status["guard"]["on_time"] == true)
}

#[test]
fn t3_a_clock_is_kept_shown_and_given_back() {
    if !linuxptp() {
        return;
    }
    let Some(host) = pair() else { return };
    host.scratch().write("give.yaml", &file("va", "transmitter", ""));
    host.scratch().write("take.yaml", &file("vb", "receiver", ""));
    let start =
        ["clock", "start", "take.yaml", "--name", "take", "--close", "vb", "--priorities", "6"];
    let words: Vec<&str> = [&[support::TIMEWIRE], &start[..]].concat();
    let _take = host.spawn_in("b", &words);
    // Nobody gives the time yet, so urgent frames do not leave.
    let gate = |key: &str| {
        status(&host, "take").map_or(0, |status| status["closes"][0][key].as_u64().unwrap_or(0))
    };
    wait_until("the gate is there", || status(&host, "take").is_some());
    assert!(!is_on_time(&host, "take"));
    send_urgent(&host, 3);
    wait_until("what was held back is counted", || gate("dropped") == 3);
    let _give = host.spawn(&["clock", "start", "give.yaml", "--name", "give"]);
    wait_until("the clock is on time", || is_on_time(&host, "take"));
    send_urgent(&host, 2);
    wait_until("what passed is counted", || gate("passed") == 2);
    assert_eq!(gate("dropped"), 3);

    // Others on this host find both.
    let top = host.timewire(&["top", "--once", "--json"]).done().json();
    let found = |name: &str| {
        let all = top["ptp4l"].as_array().unwrap();
        all.iter().any(|it| it["watched_as"] == name && it["pid"].is_u64())
    };
    assert!(found("take") && found("give"), "{}", top["ptp4l"]);

    // The same as pmc says, which asks over the same socket.
    let socket = "/run/timewire/clock/take/ptp4l";
    let shown = host.timewire_in("b", &["clock", "status", "--socket", socket, "--json"]).done();
    let shown = shown.json();
    assert_eq!(shown["schema"], "timewire.ptp-state/1");
    let ask = |what: &str| {
        let words = ["pmc", "-u", "-b", "0", "-t", "1", "-s", socket, "-i", "/run/q", what];
        support::run(&mut host.command("b", &words)).done().stdout
    };
    let value = |text: &str, key: &str| {
        let line = text.lines().find(|line| line.trim_start().starts_with(key)).unwrap_or_default();
        line.split_whitespace().nth(1).unwrap_or_default().to_owned()
    };
    let default = ask("GET DEFAULT_DATA_SET");
    assert_eq!(value(&default, "clockIdentity"), shown["default"]["clock"]);
    assert_eq!(value(&default, "priority1"), shown["default"]["priority1"].to_string());
    assert_eq!(value(&default, "clockClass"), shown["default"]["quality"]["class"].to_string());
    let status_np = ask("GET TIME_STATUS_NP");
    assert_eq!(value(&status_np, "gmIdentity"), shown["status"]["giver"]);
    let port = ask("GET PORT_DATA_SET");
    assert_eq!(
        value(&port, "logSyncInterval"),
        shown["ports"][0][0]["log_sync_interval"].to_string()
    );
    let stats = ask("GET PORT_STATS_NP");
    let announced: u64 = value(&stats, "rx_Announce").parse().unwrap();
    let before = shown["ports"][0][1]["received"][11].as_u64().unwrap();
    assert!(before > 0 && (before..before + 30).contains(&announced), "{before} {announced}");
    let time = ask("GET TIME_PROPERTIES_DATA_SET");
    assert_eq!(value(&time, "currentUtcOffset"), shown["time"]["utc_offset_s"].to_string());

    // A second one under that name, and one on that interface, are refused.
    let again = host.timewire_in("b", &["clock", "start", "take.yaml", "--name", "take"]);
    assert_eq!(again.code, Some(2), "{again:?}");
    assert!(again.stderr.contains("watches the clock `take` already"), "{again:?}");

    // A daemon that is killed is lost, is started again, and the clock is on time once more.
    let pid = status(&host, "take").unwrap()["daemons"][0]["pid"].as_u64().unwrap();
    host.tool(&format!("kill -KILL {pid}"));
    wait_until("the loss is counted", || {
        status(&host, "take").is_some_and(|s| s["guard"]["losses"].as_u64() >= Some(1))
    });
    wait_until("it is on time again", || is_on_time(&host, "take"));
    assert!(status(&host, "take").unwrap()["daemons"][0]["restarts"].as_u64() >= Some(1));

    for name in ["give", "take"] {
        host.timewire(&["clock", "stop", "--name", name]).done();
    }
    assert_eq!(host.list("/run/timewire/clock"), Vec::<String>::new());
    assert_eq!(host.list("/run/timewire/journal"), Vec::<String>::new());
    assert!(host.processes_with("ptp4l").is_empty());
}

#[test]
fn t3_a_clock_that_is_asked_to_end_leaves_nothing() {
    if !linuxptp() {
        return;
    }
    let Some(host) = pair() else { return };
    host.scratch().write("give.yaml", &file("va", "transmitter", ""));
    let start = ["clock", "start", "give.yaml", "--name", "give"];
    let watch = ["clock", "watch", "--name", "look", "--role", "transmitter", "--socket"];
    let watch = [&watch[..], &["/run/timewire/clock/give/ptp4l"]].concat();
    let gives = || is_on_time(&host, "give");
    let begin =
        |words: &[&str]| host.spawn_in("", &[&["setsid", support::TIMEWIRE], words].concat());
    for way in WAYS {
        let running = begin(&start);
        wait_until("it gives the time", gives);
        // It ends with what it found, as far as it came.
        let said = end(begin(&watch), &watch, || status(&host, "look").is_some(), way);
        assert_eq!(said.code, Some(0), "{way:?}: {said:?}");
        let show = ["clock", "status", "--name", "give", "--watch"];
        let said = end(begin(&show), &show, || hears_as(&host, "--watch"), way);
        assert_eq!(said.code, Some(0), "{way:?}: {said:?}");
        let said = end(running, &start, gives, way);
        assert_eq!(said.code, Some(0), "{way:?}: {said:?}");
        assert!(host.processes().iter().all(|it| !it.command.contains("ptp4l")), "{way:?}");
        assert_eq!(host.list("/run/timewire/clock"), Vec::<String>::new());
        assert_eq!(host.list("/run/timewire/journal"), Vec::<String>::new());
    }
}

#[test]
fn t3_a_killed_clock_leaves_nothing() {
    if !linuxptp() {
        return;
    }
    let Some(host) = pair() else { return };
    host.scratch().write("give.yaml", &file("va", "transmitter", ""));
    let _running = host.spawn(&["clock", "start", "give.yaml"]);
    wait_until("it gives the time", || is_on_time(&host, "clock"));
    let pid = status(&host, "clock").unwrap()["pid"].as_u64().unwrap();
    host.tool(&format!("kill -KILL {pid}"));
    wait_until("its daemons are gone", || {
        host.processes().iter().all(|p| !p.command.contains("ptp4l"))
    });
    wait_until("its files are gone", || {
        host.list("/run/timewire/clock").is_empty() && host.list("/run/timewire/journal").is_empty()
    });
    let said = host.timewire(&["clock", "status"]);
    said.failed(2, "error: no clock is watched here: `timewire clock start` starts one\n");
}

#[test]
fn t3_stopping_says_what_could_not_be_restored() {
    if !linuxptp() {
        return;
    }
    let Some(host) = pair() else { return };
    host.scratch().write("give.yaml", &file("va", "transmitter", ""));
    let _running = host.spawn(&["clock", "start", "give.yaml"]);
    wait_until("it gives the time", || is_on_time(&host, "clock"));
    // A file on which something is mounted cannot be removed.
    let log = "/run/timewire/clock/clock/ptp4l.log";
    host.tool(&format!("mount --bind {log} {log}"));
    let said = host.timewire(&["clock", "stop"]);
    assert_eq!(said.code, Some(3), "{said:?}");
    assert!(said.stderr.contains(log) && said.stderr.contains("/journal/"), "{said:?}");
    host.tool(&format!("umount {log}"));
}

#[test]
fn t3_what_cannot_be_is_refused_and_changes_nothing() {
    if !linuxptp() {
        return;
    }
    let Some(host) = pair() else { return };
    let refused = |text: &str, code: i32, why: &str| {
        host.scratch().write("bad.yaml", text);
        let said = host.timewire(&["clock", "start", "bad.yaml"]);
        assert_eq!(said.code, Some(code), "{said:?}");
        assert!(said.stderr.contains(why), "{said:?}");
        assert_eq!(host.list("/run/timewire/clock"), Vec::<String>::new());
    };
    refused(
        &file("va", "receiver", ", timestamps: hardware"),
        4,
        "va cannot timestamp in hardware",
    );
    refused(&file("nix", "receiver", ""), 2, "nix: there is no such interface");
    refused(
        "timewire: 1\nkind: network\nname: a\n\
         stations: [{name: alpha, host: {}}]\n",
        2,
        "has no `clock`",
    );
    // A clock that is at work on the interface by its configuration alone.
    host.scratch().write("give.yaml", &file("va", "transmitter", ""));
    let _running = host.spawn(&["clock", "start", "give.yaml", "--name", "give"]);
    wait_until("it gives the time", || is_on_time(&host, "give"));
    let said = host.timewire(&["clock", "start", "give.yaml", "--name", "second"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.stderr.contains("(ptp4l) is at work on an interface named va"), "{said:?}");
    host.timewire(&["clock", "stop", "--name", "give"]).done();
    // Somebody who steers the same clock: the kernel knows a program by the name of its file.
    host.scratch().write("good.yaml", &file("va", "receiver", "").replace("false", "true"));
    host.tool("cp /bin/sleep chronyd");
    let _rival = host.spawn_in("", &["./chronyd", "600"]);
    wait_until("the rival runs", || !host.processes_with("./chronyd").is_empty());
    let said = host.timewire(&["clock", "start", "good.yaml"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.stderr.contains("(chronyd) steers the system's clock too"), "{said:?}");
    assert!(said.stderr.contains("hint: `systemctl stop chrony`"), "{said:?}");
}

#[test]
fn t1_tai_is_shown_and_not_set() {
    let said = timewire(&["clock", "tai", "--json"]);
    assert_eq!(said.json()["schema"], "timewire.tai/1");
    let wrong = said.json()["note"].is_string();
    assert_eq!(said.code, Some(i32::from(wrong)), "{said:?}");
}

/// The record of a station, with simulated time.
struct Record {
    /// Simulated ns, what, why.
    events: Vec<(f64, String)>,
    /// Simulated ns, how much the clock is ahead in truth, how much by what it measured.
    samples: Vec<(f64, f64, Option<f64>)>,
}

const EPOCH_NS: i64 = 1_767_225_600_000_000_000;

#[expect(clippy::cast_precision_loss, reason = "a minute in ns is far below 2^53")]
impl Record {
    /// `offset_ns` and `drift` are those of the station's clock, which nobody steers: it counts
    /// simulated time by them, and `CLOCK_MONOTONIC_RAW` is that count from the boot on.
    fn read(path: &str, offset_ns: f64, drift: f64) -> Record {
        let text = fs::read_to_string(path).unwrap();
        let lines: Vec<Json> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let of = |kind: &'static str| {
            lines.iter().filter(move |line| line["type"] == kind).map(|line| &line["data"])
        };
        let int = |data: &Json, key: &str| data[key].as_i64().unwrap();
        // Nothing has steered the clock when the first sample is taken.
        let booted = int(of("sample").next().unwrap(), "realtime_ahead_ns") - EPOCH_NS;
        let simulated = |raw: i64| ((raw + booted) as f64 - offset_ns) / (1.0 + drift);
        let events = of("event");
        let events =
            events.map(|e| (simulated(int(e, "raw_ns")), e["what"].as_str().unwrap().to_owned()));
        let samples = of("sample").map(|s| {
            let (raw, ahead) = (int(s, "raw_ns"), int(s, "realtime_ahead_ns"));
            let truth = (raw + ahead - EPOCH_NS) as f64 - simulated(raw);
            (simulated(raw), truth, s["ptp"]["offset_ns"].as_i64().map(|offset| offset as f64))
        });
        Record { events: events.collect(), samples: samples.collect() }
    }

    /// The times in which the slots were open.
    fn open(&self) -> Vec<(f64, f64)> {
        let (mut open, mut since) = (Vec::new(), None);
        for (at, what) in &self.events {
            match (what.as_str(), since) {
                ("locked", _) => since = Some(*at),
                ("lost" | "ended", Some(from)) => {
                    open.push((from, *at));
                    since = None;
                }
                _ => {}
            }
        }
        open
    }

    fn at(&self, what: &str) -> Vec<f64> {
        self.events.iter().filter(|(_, is)| is == what).map(|(at, _)| *at).collect()
    }
}

/// A station's frames: first and last bit, in simulated ns.
fn frames(trace: &str, from: &str) -> Vec<(f64, f64)> {
    let mut found = Vec::new();
    for line in trace.lines() {
        let line: Json = serde_json::from_str(line).unwrap();
        let data = &line["data"];
        if line["type"] == "frame" && data["from"] == from && data["length"] == 142 {
            let ns = |key: &str| data[key].as_f64().unwrap() / 1_000.0;
            found.push((ns("start_ps"), ns("end_ps")));
        }
    }
    found
}

/// Two kernels share a hub in slots of 10 ms. One gives the time; the other is 30 us ahead and
/// 20 ppm too fast. Its daemon is killed; later the giver falls silent for five seconds.
#[test]
fn t4_slots_close_with_the_clock_and_open_again() {
    if !linuxptp() {
        return;
    }
    if !support::has_kernel() {
        return;
    }
    const MS: f64 = 1e6;
    let scratch = Scratch::new();
    let out = scratch.join("out");
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/kernels/clock.network.yaml");
    timewire(&["run", "--on", "lab:uml", path, "--out", &out]).done();
    let trace = fs::read_to_string(format!("{out}/segment.jsonl")).unwrap();
    let alpha = Record::read(&format!("{out}/alpha/sync.jsonl"), 0.0, 0.0);
    let beta = Record::read(&format!("{out}/beta/sync.jsonl"), 30_000.0, 20e-6);

    for (name, record, slot) in [("alpha", &alpha, 0.0), ("beta", &beta, 10.0 * MS)] {
        let (open, frames) = (record.open(), frames(&trace, name));
        assert!(frames.len() > 150, "{name} sent {} frames", frames.len());
        for (start, end) in frames {
            // Not before the slots have opened, and none once they have closed. The word goes out
            // before it is written down.
            assert!(
                open.iter().any(|(from, to)| start >= from - MS && start <= to + MS),
                "{name} at {start}, open {open:?}"
            );
            // In its own slot by the simulator's clock, with the guard that a clock within its
            // limit of 20 us cannot use up.
            let phase = (start - slot + 0.04 * MS).rem_euclid(20.0 * MS) - 0.04 * MS;
            assert!(phase > -0.02 * MS && phase + (end - start) < 9.98 * MS, "{name} at {start}");
        }
        // Hysteresis: eight samples, one every 125 ms, lie between a loss and the next opening.
        for pair in open.windows(2) {
            assert!(pair[1].0 - pair[0].1 > 7.0 * 125.0 * MS, "{name} {open:?}");
        }
    }

    // What it measured is what it was off, by the simulator's own clock, and it is kept within its
    // limit while slots are open. A message that waits for a frame of the MAC is measured late.
    let open = beta.open();
    let is_open = |at: f64| open.iter().any(|(from, to)| (*from..*to).contains(&at));
    let mut compared = 0;
    for (at, truth, measured) in &beta.samples {
        if is_open(*at) {
            assert!(truth.abs() < 20_000.0, "{truth} ns off at {at}");
            if let Some(measured) = measured {
                compared += 1;
                assert!(
                    (truth - measured).abs() < 20_000.0,
                    "{truth}, measured {measured}, at {at}"
                );
            }
        }
    }
    assert!(compared > 50, "{compared}");
    // It was far off at first: so much that slots of 10 ms would have been left after minutes.
    let worst = beta.samples.iter().map(|(_, truth, _)| truth.abs()).fold(0.0, f64::max);
    assert!(worst > 40_000.0, "{worst}");

    // The daemon ended, and slots closed in the same look, at most 100 ms after it was killed.
    let ended = beta.at("daemon_ended");
    assert_eq!(ended.len(), 1, "{:?}", beta.events);
    let closed = beta.at("lost")[0];
    assert!(closed >= ended[0] && closed < ended[0] + 50.0 * MS, "{:?}", beta.events);
    // The giver fell silent at 25 s. The follower was told by its daemon, the giver's own guard by
    // the silence, both within 3 s and a look; both opened again.
    let silent = 25_000.0 * MS;
    for (name, record) in [("alpha", &alpha), ("beta", &beta)] {
        let lost = record.at("lost").into_iter().find(|at| *at > silent).unwrap();
        assert!(lost < silent + 3_200.0 * MS, "{name} {:?}", record.events);
        let again = record.at("locked").into_iter().find(|at| *at > silent + 5_000.0 * MS);
        assert!(again.is_some(), "{name} {:?}", record.events);
    }
    let mac: Json =
        serde_json::from_str(&fs::read_to_string(format!("{out}/beta/mac.json")).unwrap()).unwrap();
    assert!(mac["sync"]["losses"].as_u64() >= Some(2), "{mac}");
    assert!(mac["sync"]["said"]["by"].as_str().unwrap().starts_with("process "), "{mac}");
}

/// An ordinary switch: it forwards no link-local address, so gPTP waits, and says why; plain PTP
/// goes through.
#[test]
fn t3_what_does_not_cross_a_switch_is_told() {
    if !linuxptp() {
        return;
    }
    let Some(host) = Host::start() else { return };
    host.tool("ip netns add b");
    host.tool("ip link add br0 type bridge");
    host.tool("ip link add va address 02:00:00:00:00:0a type veth peer name pa");
    host.tool("ip link add vb address 02:00:00:00:00:0b netns b type veth peer name pb");
    for line in [
        "ip link set pa master br0",
        "ip link set pb master br0",
        "ip link set br0 up",
        "ip link set pa up",
        "ip link set pb up",
        "ip link set va up",
        "ip -n b link set vb up",
    ] {
        host.tool(line);
    }
    host.scratch().write("take.yaml", &file("va", "receiver", ""));
    host.scratch().write("give.yaml", &file("vb", "transmitter", ""));
    let give = |file: &'static str| {
        let start = [support::TIMEWIRE, "clock", "start", file, "--name", "give"];
        host.spawn_in("b", &start)
    };
    let first = give("give.yaml");
    let start = ["clock", "start", "take.yaml", "--name", "take", "--within", "15s"];
    let said = host.timewire(&start);
    assert_eq!(said.code, Some(2), "{said:?}");
    for words in [
        "not on time within 15s",
        "no Announce message was heard for 1",
        "the bridge br0 of this host, behind va",
        "01-80-C2-00-00-0E",
        "gptp: false",
    ] {
        assert!(said.stderr.contains(words), "{words}: {said:?}");
    }
    drop(first);
    let plain = ", gptp: false";
    host.scratch().write("take.yaml", &file("va", "receiver", plain));
    host.scratch().write("give-plain.yaml", &file("vb", "transmitter", plain));
    wait_until("the first giver is gone", || status(&host, "give").is_none());
    let _give = give("give-plain.yaml");
    let _take = host.spawn(&["clock", "start", "take.yaml", "--name", "take"]);
    wait_until("plain PTP crosses the switch", || is_on_time(&host, "take"));
}
