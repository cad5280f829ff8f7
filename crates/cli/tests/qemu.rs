// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `timewire lab qemu`, `lab exec --in qemu` and `run --on lab:qemu`: an experiment on the
//! distribution's kernel with its XDP in drivers.
//!
//! A boot takes some ten seconds, and the packages are fetched at the first one, so they run only
//! when `TIMEWIRE_SLOW=1` asks for it.

use std::fs;

use crate::support::{Scratch, TIMEWIRE, Tiny, timewire};
use serde_json::Value;

/// Whether the slow tests were asked for; says so if not.
fn asked() -> bool {
    let asked = std::env::var("TIMEWIRE_SLOW").is_ok_and(|value| value == "1");
    if !asked {
        eprintln!("SKIP: slow: TIMEWIRE_SLOW=1 runs it");
    }
    asked
}

/// The newest kernel, fetched if need be.
fn kernel() -> Value {
    timewire(&["lab", "qemu", "--json"]).done().json()
}

const CASE: &str = "{ name: tdm, title: TDM }";
const LIMITS: &str = "limits:
  - { id: slots-kept, metric: outside-slots, case: tdm, load: alone, at_most: 0% }
";

#[test]
fn t4_qemu_the_mac_keeps_its_slots_with_xdp_in_the_driver() {
    if !asked() {
        return;
    }
    let about = kernel();
    eprintln!("{about}");
    let scratch = Scratch::new();
    let file = scratch.write("tiny.yaml", &Tiny { name: "tiny", cases: CASE, more: LIMITS }.text());
    let words = ["run", &file, "--on", "lab:qemu", "--trace", "--out", &scratch.join("out")];
    let said = timewire(&words).done();
    eprintln!("{}{}", said.stdout, said.stderr);
    assert!(said.stdout.contains("\ntraced messages, all times in us; transmit: "), "{said:?}");
    assert!(said.stdout.contains("PASS tiny/slots-kept: "), "{said:?}");
    assert!(said.stdout.contains("transmit: af_xdp native\n"), "{said:?}");
    assert!(said.stdout.contains("receive: XDP native + CPUMAP\n"), "{said:?}");
    assert!(!said.stdout.contains("not available: receive"), "{said:?}");
    let run = fs::read_to_string(scratch.path().join("out/run.json")).unwrap();
    assert!(run.contains(about[0]["release"].as_str().unwrap()), "{run}");
}

const BRIDGED: &str = "timewire: 1
kind: network
name: bridged
duration: 300ms
stations: [left, right]
bridges: [middle]
links: [[left, middle], [middle, right]]
streams:
  - { name: state, talker: left, listeners: right, size: 100B, kind: cyclic, period: 20ms }
";

/// One capture of all nodes of the laboratory.
#[test]
fn t4_qemu_a_network_with_links_is_traced() {
    if !asked() {
        return;
    }
    eprintln!("{}", kernel());
    let scratch = Scratch::new();
    let file = scratch.write("bridged.yaml", BRIDGED);
    let out = scratch.join("out");
    let said = timewire(&["run", &file, "--on", "lab:qemu", "--trace", "--json", "--out", &out]);
    let summary = said.json();
    let traced = &summary["cases"][0]["traced"];
    assert_eq!(traced["captures"].as_array().unwrap().len(), 1, "{said:?}");
    let state = &traced["streams"][0];
    let sent = state["sent"].as_u64().unwrap();
    assert!(sent >= 10 && state["transfer"]["count"].as_u64() == Some(sent), "{state:#}");
}

#[test]
fn t4_qemu_a_sealed_command_has_what_was_named() {
    if !asked() {
        return;
    }
    kernel();
    let script = "cat /proc/uptime; ls /usr/share; exit 5";
    let exec = ["lab", "exec", "--in", "qemu", "--sealed", "sh,cat", "--", "sh", "-c", script];
    let (first, second) = (timewire(&exec), timewire(&exec));
    assert_eq!(first.code, Some(5), "{first:?}");
    assert!(first.stderr.contains("ls: not found"), "{first:?}");
    // Two boots end at the same hundredth of a second.
    assert_eq!(first.stdout, second.stdout);
}

/// A host that gives the time by the clock of its NIC. That clock is set by the system's, and goes
/// a millionth slower: nobody may steer it, for the emulated NIC then jumps (`phc2sys` drives it
/// away by hours). So the limits are wide, and hold for minutes of the machine's time, however much
/// of that passes while the host is slow to give it files.
const GIVER: &str = "\
timewire: 1
kind: network
name: giver
stations:
  - name: alpha
    host:
      clock:
        interfaces: [eth0]
        daemons: [ptp4l]
        role: transmitter
        timestamps: hardware
        limits: {offset: 500us, silence: 60s}
";
/// The NIC's clock is set back by so much.
const BACK_NS: i64 = 1_000_000;
/// How many parts per million it goes slower, at most.
const SLOWER: i64 = 4;

#[test]
fn t4_qemu_a_nic_that_follows_the_system_is_on_time_until_it_jumps() {
    if !asked() {
        return;
    }
    kernel();
    let scratch = Scratch::new();
    let file = scratch.write("giver.yaml", GIVER);
    // The last time that it is set, nothing has to be read from the host any more.
    let script = format!(
        "ip link set eth0 up
         until grep -q 1 /sys/class/net/eth0/carrier; do sleep 0.1; done
         for i in 1 2 3 4 5; do phc_ctl -q eth0 set adj 37 cmp > /tmp/set; done; cat /tmp/set
         {TIMEWIRE} clock start {file} --record /tmp/sync > /tmp/said 2>&1 &
         for i in $(seq 200); do
             {TIMEWIRE} clock status > /tmp/status 2>&1 && break; sleep 0.2
         done; cat /tmp/status
         phc_ctl -q eth0 -- adj -0.001
         for i in $(seq 200); do
             {TIMEWIRE} clock status > /tmp/status || break; sleep 0.2
         done; cat /tmp/status
         {TIMEWIRE} clock stop; wait; cat /tmp/said; grep sample /tmp/sync"
    );
    let exec = ["lab", "exec", "--in", "qemu", "--nics", "1", "--", "sh", "-c", &script];
    let said = timewire(&exec).done();
    let (samples, words): (Vec<_>, Vec<_>) =
        said.stdout.lines().partition(|line| line.starts_with("{\"type\":\"sample\""));
    let words = words.join("\n");
    eprintln!("{words}\n{}", said.stderr);
    let in_order = ["): on time for ", "gives the time; time from itself", "): NOT on time for "];
    let places: Vec<_> = in_order.iter().map(|what| words.find(what)).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?} of {in_order:?}");
    assert!(words.contains("\nlocked: the clock is on time, after "), "{words}");
    let lost: Vec<_> = words.lines().filter_map(|line| line.strip_prefix("lost: ")).collect();
    let [lost] = lost[..] else { panic!("{lost:?}") };
    let off = lost.strip_prefix("it is off by ").and_then(|off| off.strip_suffix("ms")).unwrap();
    // The system's clock is ahead of a NIC that was set back by a millisecond.
    assert!((1.0..1.5).contains(&off.parse::<f64>().unwrap()), "{lost}");
    let nics: Vec<Nic> = samples.iter().filter_map(|line| Nic::of(line)).collect();
    // The NIC has TAI, which is 37 s ahead of the system's UTC.
    let ahead = nics[0].ahead_ns - 37_000_000_000;
    assert!((-250_000..10_000).contains(&ahead), "{:?}", nics[0]);
    assert!(nics.iter().all(|nic| (1..1_000).contains(&nic.error_ns)), "{nics:?}");
    // From one look to the next it is what it was, less its slowness, but once, by what was asked.
    let jumps = nics.windows(2).filter(|pair| {
        let slower = (pair[1].raw_ns - pair[0].raw_ns) * SLOWER / 1_000_000;
        let back = pair[0].ahead_ns - pair[1].ahead_ns;
        let error = pair[0].error_ns + pair[1].error_ns;
        let jumped = (back - BACK_NS).abs() <= slower + error;
        assert!(jumped || back.abs() <= slower + error, "{pair:?}");
        jumped
    });
    assert_eq!(jumps.count(), 1, "{nics:?}");
}

/// What one look at the NIC's clock found.
#[derive(Debug)]
struct Nic {
    raw_ns: i64,
    ahead_ns: i64,
    error_ns: i64,
}

impl Nic {
    /// Of a line of the record; `None` when it was not looked at.
    fn of(line: &str) -> Option<Nic> {
        let sample: Value = serde_json::from_str(line).expect("a line is JSON");
        let nic = sample["data"]["nics"].get(0)?;
        let number = |value: &Value| value.as_i64().expect("a number");
        Some(Nic {
            raw_ns: number(&sample["data"]["raw_ns"]),
            ahead_ns: number(&nic["ahead_ns"]),
            error_ns: number(&nic["error_ns"]),
        })
    }
}

/// Two NICs on one hub: each verb tells the NIC what to timestamp and restores that, also when it
/// is killed, and what the NICs timestamp is where it belongs. The one that receives timestamps PTP
/// only, so messages are wrapped into it.
#[test]
fn t4_qemu_nics_timestamp_for_the_verbs_and_as_before_after_them() {
    if !asked() {
        return;
    }
    kernel();
    let script = format!(
        "now() {{ {TIMEWIRE} snapshot $1 | grep 'timestamps now'; }}
         until_now() {{
             for i in $(seq 100); do now $1 | grep -q \"$2\" && return; sleep 0.2; done; now $1
         }}
         {TIMEWIRE} lab timestamps sync sync &
         for nic in eth0 eth1; do ip link set $nic up; done
         ethtool -L eth0 combined 4
         for nic in eth0 eth1; do
             until grep -q 1 /sys/class/net/$nic/carrier; do sleep 0.1; done
         done
         to=$(cat /sys/class/net/eth1/address)
         {TIMEWIRE} listen --interface eth1 --ethertype 0x88f7 --timestamps software,hardware \
             --clock-error 1ms --nic-ahead 0s \
             --count 40 --json > /tmp/heard 2>/tmp/said & listener=$!
         until grep -q listening: /tmp/said; do sleep 0.1; done
         echo while listening $(now eth1)
         {TIMEWIRE} talk $to --interface eth0 --ptp 200 --cycle 20ms --count 40 --send-late \
             --timestamps software,hardware --json > /tmp/talked
         wait $listener; cat /tmp/said; tail -n 1 /tmp/heard; tr -d '\\n' < /tmp/talked; echo
         echo after $(now eth0) $(now eth1)
         {TIMEWIRE} talk $to --interface eth0 --timestamps hardware > /tmp/killed 2>&1 & talker=$!
         until_now eth0 'tx on'; echo while talking $(now eth0)
         kill -9 $talker; wait $talker; until_now eth0 'tx off'; echo killed $(now eth0)
         {TIMEWIRE} measure receive --interface eth1 --over frames --count 20 --for 60s \
             --repeat 1 --timestamps hardware --max-clock-error 1ms \
             > /tmp/received 2>&1 & receiver=$!
         until_now eth1 'rx ptp'
         {TIMEWIRE} talk $to --interface eth0 --ptp 200 --cycle 20ms --for 60s > /tmp/more & more=$!
         wait $receiver; kill $more; wait $more; cat /tmp/received
         {TIMEWIRE} measure launch --interface eth0 --how plain,etf,etf-offload --cycle 10ms \
             --count 40 --repeats 1 --delta 1ms --at tx-hardware 2>&1
         ip netns add far; ip link set eth1 netns far; ip -n far addr add 10.0.0.2/24 dev eth1
         ip -n far link set eth1 up; ip addr add 10.0.0.1/24 dev eth0
         until ip netns exec far grep -q 1 /sys/class/net/eth1/carrier; do sleep 0.1; done
         ip netns exec far {TIMEWIRE} measure path --answer 10.0.0.2:15100 2> /tmp/answer &
         until grep -q answering /tmp/answer; do sleep 0.1; done
         {TIMEWIRE} measure path --to 10.0.0.2:15100 --interface eth0 --reflect --rate 20 \
             --loads 100 --trial 2s --timestamps hardware --max-clock-error 1ms 2>&1
         ip link add v0 type veth peer name v1
         {TIMEWIRE} talk $to --interface v0 --timestamps hardware 2>&1; echo refused $?
         {TIMEWIRE} listen --interface v0 --timestamps hardware 2>&1; echo refused $?
         echo at the end $(now eth0)"
    );
    let said = timewire(&["lab", "exec", "--in", "qemu", "--nics", "2", "--", "sh", "-c", &script]);
    let text = said.done().stdout;
    eprintln!("{text}");
    let off = "timestamps now tx off, rx none";
    for line in [
        "while listening timestamps now tx off, rx ptpv2-event".to_owned(),
        format!("after {off} {off}"),
        "while talking timestamps now tx on, rx none".to_owned(),
        format!("killed {off}"),
        format!("at the end {off}"),
    ] {
        assert!(text.lines().any(|it| it == line), "{line}");
    }
    let told = "note: of received frames the NIC of eth1 timestamps PTP's event messages only";
    assert_eq!(text.matches(told).count(), 2);
    let json = |start: &str| -> Value {
        serde_json::from_str(text.lines().find(|line| line.starts_with(start)).unwrap()).unwrap()
    };
    // Two timestamps of each message that was sent, and a NIC's of each that came.
    let talked = json("{  \"schema\": \"timewire.talk");
    let total = &talked["total"];
    assert_eq!((&total["sent"], &total["timestamps"]), (&40.into(), &80.into()), "{total}");
    let heard = json("{\"data\":");
    let ways = heard["data"]["heard"]["ways"].as_array().unwrap();
    let of_nic = ways.iter().find(|way| way["from_point"] == "RxHw").unwrap();
    assert_eq!(of_nic["between"]["count"], 40, "{of_nic}");
    let row = |name: &str| {
        let row = text.lines().map(str::trim_start).find(|line| line.starts_with(name));
        row.unwrap_or_else(|| panic!("no row {name}")).to_owned()
    };
    for name in ["hardware->kernel", "hardware->user", "kernel->user", "tx-sw -> tx-hw"] {
        row(name);
    }
    assert!(row("etf-offload: not measured: ").contains("eth0"), "{text}");
    let timestamps = row("timestamp ");
    assert_eq!(timestamps.matches("tx-hardware").count(), 2, "{timestamps}");
    assert!(row("not timestamped ").split_whitespace().skip(2).all(|count| count == "0"));
    let refused = "error: the NIC of v0 cannot timestamp: its driver has no timestamps of the NIC";
    assert_eq!(text.matches(refused).count(), 2);
    assert_eq!(text.matches("refused 4\n").count(), 2);
}

#[test]
fn t1_options_of_the_other_kernel_are_refused() {
    let words = |more: &[&str]| timewire(&[&["lab", "exec"], more, &["--", "true"]].concat());
    for (more, why) in [
        (&["--nics", "2"][..], "--nics is for `--in qemu`"),
        (&["--sealed", "sh"], "--sealed is for `--in qemu`"),
        (&["--in", "qemu", "--time", "wall"], "--prebuilt and --time are for `--in uml`"),
        (&["--in", "qemu", "--nics", "9"], "9 is not in 0..=8"),
    ] {
        let said = words(more);
        assert_eq!(said.code, Some(2), "{said:?}");
        assert!(said.stderr.contains(why), "{said:?}");
    }
}

/// igb takes its link down when a program comes. A listener that says that it listens has to be
/// heard from then on. The emulated machine may hold the talker up: late messages count.
#[test]
fn t4_qemu_a_listener_says_that_it_listens_once_the_link_is_back() {
    if !asked() {
        return;
    }
    kernel();
    let script = format!(
        "ip link set eth0 up; ip link set eth1 up
         for nic in eth0 eth1; do
             until grep -q 1 /sys/class/net/$nic/carrier; do sleep 0.1; done
         done
         {TIMEWIRE} listen --interface eth1 --over xdp:native --ethertype 0x88b5 --count 20 \\
             --for 30s --clock-error 0s --json > /tmp/heard 2> /tmp/said &
         until grep -q listening /tmp/said; do sleep 0.01; done
         cat /sys/class/net/eth1/carrier
         {TIMEWIRE} talk --interface eth0 --over frames --count 20 --send-late \\
             $(cat /sys/class/net/eth1/address) > /dev/null 2>&1
         wait; cat /tmp/said >&2; tail -n 1 /tmp/heard"
    );
    let exec = ["lab", "exec", "--in", "qemu", "--nics", "2", "--", "sh", "-c", &script];
    let said = timewire(&exec).done();
    let line = said.stdout.lines().last().unwrap_or_default();
    let result: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{said:?}"));
    assert_eq!(result["data"]["heard"]["streams"][0]["between"]["count"], 20, "{said:?}");
    assert!(said.stderr.contains("AF_XDP native"), "{said:?}");
    assert_eq!(said.stdout.lines().next(), Some("1"), "no carrier: {said:?}");
}
