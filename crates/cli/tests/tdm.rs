// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The daily tool on two stations of a segment: starting, asking, changing and ending a MAC, and
//! what the host is like afterwards, however the MAC ended.

use std::fs;

use crate::support;
use crate::support::{Host, Running, Segment, wait_until};
use serde_json::{Value, json};

/// What could be changed by a MAC: interfaces, addresses, routes, settings.
fn state(host: &Host) -> String {
    let mut text = String::new();
    for what in ["-o link", "-4 -o address", "-6 -o address show scope global", "-4 route"] {
        text += &host.tool(&format!("ip {what}"));
    }
    // The kernel makes link-local routes again a moment later.
    let routes = host.tool("ip -6 route");
    text.extend(routes.lines().filter(|line| !line.starts_with("fe80")));
    for setting in ["ipv6/conf/phy0/disable_ipv6", "ipv4/conf/phy0/rp_filter"] {
        text += &host.tool(&format!("cat /proc/sys/net/{setting}"));
    }
    text
}

#[test]
fn t3_a_mac_is_started_asked_changed_and_ended() {
    let Some(Segment { host, file }) = Segment::start() else { return };
    let before = state(&host);
    let start = ["tdm", "start", "phy0", "--file", &file, "--station", "alpha"];
    let said = host.timewire(&[&start[..], &["--clock", "one-host"]].concat()).done();
    assert_eq!(said.stderr, "");
    let status = host.timewire(&["tdm", "show", "--json"]).done().json();
    let pid = &status["pid"];
    let head = format!("MAC `phy0` (process {pid}): station alpha on phy0, stack on tw0\n");
    assert!(said.stdout.starts_with(&head), "{said:?}");
    for (field, value) in [
        ("schema", json!("timewire.tdm-status/1")),
        ("name", json!("phy0")),
        ("station", json!("alpha")),
        ("link", json!("phy0")),
        ("stack", json!("tw0")),
        ("change_at_ns", Value::Null),
        ("send", json!({"queues": 1, "ports": [[15001, 1]]})),
        ("recv", json!({"queues": 1, "ports": [[15001, 1]]})),
        ("members", json!([])),
    ] {
        assert_eq!(status[field], value, "{field}");
    }
    let shown = host.timewire(&["tdm", "show", "--name", "phy0"]).done().stdout;
    for line in [
        head.as_str(),
        "\n  cycle 1ms\n  * alpha        at      0ns  transmit    450us  guard    50us\n",
        "\n    beta         at    500us  transmit    450us  guard    50us\n",
        "\n  clock: ",
        "\n  send 1 15001 1\n",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    host.timewire(&["tdm", "start", "phy0", "--file", &file, "--station", "alpha"]).failed(
        2,
        "error: a MAC runs as `phy0` already: `timewire tdm stop --name phy0` ends it\n",
    );

    assert_eq!(host.timewire(&["tdm", "send", "3", "15001", "2", "80", "1"]).done().stdout, "");
    host.timewire(&["tdm", "recv", "0"]).done();
    let status = host.timewire(&["tdm", "show", "--json"]).done().json();
    assert_eq!(status["send"], json!({"queues": 3, "ports": [[15001, 2], [80, 1]]}));
    assert_eq!(status["recv"], json!({"queues": 0, "ports": []}));
    assert_eq!(status["pid"], *pid);

    assert_eq!(host.timewire(&["tdm", "stop"]).done().stdout, "");
    assert_eq!(host.list("/run/timewire"), ["journal"]);
    host.is_clean();
    assert_eq!(state(&host), before);
}

#[test]
fn t3_of_several_macs_one_must_be_named() {
    let Some(segment) = Segment::start() else { return };
    let alpha = segment.foreground("", "alpha", &[]);
    let beta = segment.foreground("beta", "beta", &[]);
    let host = &segment.host;
    for command in [&["show"][..], &["stop"], &["send", "0"]] {
        host.timewire(&[&["tdm"], command].concat())
            .failed(2, "error: several MACs run: alpha, beta; say which with `--name`\n");
    }
    host.timewire(&["tdm", "show", "--name", "gamma"])
        .failed(2, "error: no MAC runs as `gamma`; running: alpha, beta\n");
    host.timewire(&["tdm", "stop", "--name", "alpha"]).done();
    let said = alpha.end().done();
    assert!(said.stderr.starts_with("MAC `alpha` (process "), "{said:?}");
    beta.signal("TERM");
    beta.end().done();
    host.is_clean();
}

#[test]
fn t3_a_new_schedule_starts_with_a_cycle_of_its_own() {
    let Some(segment) = Segment::start() else { return };
    let _mac = segment.foreground("", "alpha", &[]);
    let host = &segment.host;
    let text = fs::read_to_string(&segment.file).unwrap();
    let slower = text.replace("cycle_time: 1ms", "cycle_time: 1700us").replace("450us", "700us");
    let slower = host.scratch().write("slower.yaml", &slower);
    let show = || host.timewire(&["tdm", "show", "--json"]).done().json();
    let before = show();

    // In the past: stations that hear of it later would change later.
    let words = ["tdm", "set", "--file", &slower, "--not-before", "1700000000000000000"];
    let said = host.timewire(&words);
    assert!(said.code == Some(2) && said.stderr.contains(" ago (now is "), "{said:?}");
    assert_eq!((&show()["change_at_ns"], &show()["schedule"]), (&Value::Null, &before["schedule"]));

    // Far in the future: it waits, and the old one stays in force.
    let not_before = 4_102_444_800_123_456_789_i64;
    let words = ["tdm", "set", "--file", &slower, "--not-before", &not_before.to_string()];
    host.timewire(&words).done();
    let status = show();
    let at = status["change_at_ns"].as_i64().unwrap();
    assert!((not_before..not_before + 1_700_000).contains(&at), "{at}");
    assert_eq!((at % 1_700_000, &status["windows"]), (0, &before["windows"]));
    assert_eq!(status["schedule"], before["schedule"]);
    assert_eq!(status["next_schedule"]["cycle_ns"], 1_700_000, "{status}");
    let shown = host.timewire(&["tdm", "show"]).done().stdout;
    let change = format!("guard    50us\n  from TAI {at}ns on:\n  cycle 1700us\n  * alpha ");
    assert!(shown.contains(&change), "{shown}");

    // At once: it is in force soon, for good, and in place of the other one.
    host.timewire(&["tdm", "set", "--file", &slower]).done();
    wait_until("the change has taken effect", || show()["change_at_ns"].is_null());
    let status = show();
    assert_eq!(status["schedule_changes"], 1);
    assert_ne!(status["windows"], before["windows"]);
    assert!(host.timewire(&["tdm", "show"]).done().stdout.contains("\n  cycle 1700us\n"));

    assert_eq!(
        (&status["next_schedule"], &status["schedule"]["cycle_ns"]),
        (&Value::Null, &json!(1_700_000))
    );
    let alone = text.replace("alpha", "gamma");
    let alone = host.scratch().write("alone.yaml", &alone);
    host.timewire(&["tdm", "set", "--file", &alone]).failed(
        2,
        "error: the schedule has no slot for station `alpha`, which could then never send\n",
    );
    assert_eq!(show()["pid"], before["pid"]);
    assert_eq!(show()["windows"], status["windows"]);
}

/// Policy, real-time priority, nice value and CPUs of a process.
fn scheduling(pid: u32) -> (u32, u32, i32, String) {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    // proc(5) counts from 1, and the first field here is the third.
    let field = |number: usize| fields[number - 3];
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let cpus = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    let number = |at: usize| field(at).parse().unwrap();
    (number(41), number(40), field(19).parse().unwrap(), cpus.trim().to_owned())
}

/// What a process has that is nice and stays on the first CPU.
fn nice() -> (u32, u32, i32, String) {
    // This run may be nice itself.
    (0, 0, (scheduling(std::process::id()).2 + 5).min(19), "0".to_owned())
}

/// What it has as a member.
fn is_member(pid: u32) -> bool {
    let (policy, priority, ..) = scheduling(pid);
    // SCHED_FIFO, below the MAC's own thread.
    (policy, priority) == (1, 60)
}

fn sleeper(host: &Host) -> Running {
    let words = ["nice", "-n", "5", "taskset", "--cpu-list", "0", "sleep", "1000"];
    let sleeper = host.spawn_in("", &words);
    wait_until("it sleeps", || {
        host.processes_with("sleep")
            .iter()
            .any(|process| process.pid == sleeper.pid() && process.command.starts_with("sleep"))
    });
    assert_eq!(scheduling(sleeper.pid()), nice());
    sleeper
}

#[test]
fn t3_members_of_the_group_get_back_what_they_had() {
    let Some(segment) = Segment::start() else { return };
    let mac = segment.foreground("", "alpha", &[]);
    let host = &segment.host;
    let [one, two] = [sleeper(host), sleeper(host)];
    let (first, second) = (one.inside().to_string(), two.inside().to_string());
    let tdm = |words: &[&str]| host.timewire(&[&["tdm"], words].concat());

    let said = tdm(&["add", "process", &first, &second]);
    if said.stderr.contains("CAP_SYS_NICE") {
        return eprintln!("SKIP: no real-time scheduling here");
    }
    assert_eq!(said.done().stdout, "1 2\n");
    assert!(is_member(one.pid()) && is_member(two.pid()));
    let members = tdm(&["show", "--json"]).done().json()["members"].clone();
    assert_eq!(members[0], json!({"member": 1, "pid": one.inside(), "threads": 1}));
    assert!(tdm(&["show"]).done().stdout.contains(&format!("  member 2: process {second}, 1 th")));
    tdm(&["add", "process", &first])
        .failed(2, &format!("error: process {first} is a member already, with id 1\n"));
    tdm(&["remove", "process", "2", "7"])
        .failed(2, "error: the group has no member 7; its members are 1, 2\n");
    assert!(is_member(two.pid()), "all or none");

    assert_eq!(tdm(&["remove", "process", "2"]).done().stdout, "");
    assert_eq!(scheduling(two.pid()), nice());
    tdm(&["remove", "process", "2"])
        .failed(2, "error: the group has no member 2; its members are 1\n");
    tdm(&["add", "process", &second, "999999"]).failed(2, "error: there is no process 999999\n");
    assert_eq!(scheduling(two.pid()), nice(), "all or none");
    let own = mac.inside();
    tdm(&["add", "process", &second, &own.to_string()]).failed(
        2,
        &format!(
            "error: process {own} is this MAC itself; it has a higher priority than the group\n"
        ),
    );
    assert_eq!(scheduling(two.pid()), nice(), "all or none");
    assert_eq!(tdm(&["add", "process", &second]).done().stdout, "4\n");

    tdm(&["stop"]).done();
    mac.end().done();
    assert_eq!((scheduling(one.pid()), scheduling(two.pid())), (nice(), nice()));
    host.is_clean();
}

/// Addresses and routes of an interface in use.
fn use_link(host: &Host) {
    host.tool("ip address add 10.1.0.1/24 broadcast + dev phy0");
    host.tool("ip address add fd00::1/64 dev phy0");
    host.tool("ip route add default via 10.1.0.254 metric 7");
    host.tool("ip -6 route add default via fd00::fe");
    host.tool("ip -6 route add fd01::/64 dev phy0");
}

#[test]
fn t3_a_killed_mac_gives_everything_back() {
    let Some(Segment { host, file }) = Segment::start() else { return };
    use_link(&host);
    let before = state(&host);
    let start =
        ["tdm", "start", "phy0", "--file", &file, "--station", "alpha", "--clock", "one-host"];
    for kill in [true, false] {
        host.timewire(&[&start[..], &["--move-addresses"]].concat()).done();
        let moved = host.tool("ip -o address show dev tw0 scope global");
        assert!(moved.contains("10.1.0.1/24 brd 10.1.0.255") && moved.contains("fd00::1/64"));
        for (family, route) in [("-4", "default via 10.1.0.254"), ("-6", "fd01::/64")] {
            let routes = host.tool(&format!("ip {family} route show dev tw0"));
            assert!(routes.contains(route), "{routes}");
        }
        assert_eq!(host.tool("cat /proc/sys/net/ipv6/conf/phy0/disable_ipv6"), "1\n");
        let status = host.timewire(&["tdm", "show", "--json"]).done().json();
        let pid = status["pid"].to_string();
        let sleeper = sleeper(&host);
        let inside = sleeper.inside().to_string();
        let member = host.timewire(&["tdm", "add", "process", &inside]);
        assert!(member.code == Some(0) || member.stderr.contains("CAP_SYS_NICE"), "{member:?}");
        if kill {
            // The shell's own: there may be no other.
            let kill = format!("kill -9 {pid}");
            support::run(&mut host.command("", &["sh", "-c", &kill])).done();
        } else {
            host.timewire(&["tdm", "stop"]).done();
        }
        host.is_clean();
        assert_eq!(state(&host), before);
        assert_eq!(scheduling(sleeper.pid()), nice());
        let log = fs::read_to_string(host.see("/run/timewire/phy0.log")).unwrap_or_default();
        let last = format!("process {pid} (MAC on phy0) ended without cleaning up; done now: ");
        assert_eq!(log.contains(&last), kill, "{log}");
    }
}

/// Addresses that differ in all that an address can have.
fn use_link_in_many_ways(host: &Host) {
    for address in [
        "10.1.0.2/24 broadcast + label phy0:b",
        "10.1.0.1/24 broadcast + label phy0:a",
        "10.1.0.3/24",
        "10.2.0.1 peer 10.2.0.9/32 metric 50",
        "10.3.0.1/24 valid_lft 5000 preferred_lft 3000",
        "10.4.0.1/24 scope link noprefixroute",
    ] {
        host.tool(&format!("ip address add {address} dev phy0"));
    }
    for address in [
        "fd00::1/64 nodad",
        "fd01::1/64 nodad noprefixroute valid_lft 5000 preferred_lft 0",
        "fd02::1/64 nodad home",
        "fe80::77/64 nodad",
    ] {
        host.tool(&format!("ip -6 address add {address} dev phy0"));
    }
    host.tool("ip route add default via 10.1.0.254 metric 7");
    host.tool("ip route add 10.9.0.0/16 via 10.1.0.254 src 10.1.0.3 table 100");
    host.tool("ip -6 route add fd09::/64 via fd00::9 metric 9 table 100");
}

/// The addresses of the link with all that they have, and its routes; lifetimes rounded to ten
/// minutes, in which a test ends.
fn addresses(host: &Host) -> (Vec<String>, Vec<String>) {
    let shown = host.tool("ip -j -d address show dev phy0");
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    let mut all = shown[0]["addr_info"].as_array().unwrap().clone();
    let mut told = Vec::new();
    for info in &mut all {
        for key in ["valid_life_time", "preferred_life_time"] {
            info[key] = info[key].as_u64().unwrap().div_ceil(600).into();
        }
        // Not yet made sure of, a moment after it came.
        info.as_object_mut().unwrap().remove("tentative");
        told.push(info.to_string());
    }
    // Of IPv6 the kernel shows the newest first.
    told.sort_by_key(|info| info.contains("inet6").then(|| info.clone()));
    let routes = |family: &str| host.tool(&format!("ip {family} route show table all dev phy0"));
    let routes = routes("-4") + &routes("-6");
    // The kernel makes those of link-local and multicast addresses again a moment later.
    let is_kept = |line: &&str| !["fe80", "ff00", "table local"].iter().any(|it| line.contains(it));
    let mut routes: Vec<String> = routes.lines().filter(is_kept).map(str::to_owned).collect();
    routes.sort();
    (told, routes)
}

#[test]
fn t3_an_address_comes_back_with_all_that_it_had() {
    let Some(Segment { host, file }) = Segment::start() else { return };
    use_link_in_many_ways(&host);
    let before = addresses(&host);
    let start =
        ["tdm", "start", "phy0", "--file", &file, "--station", "alpha", "--clock", "one-host"];
    for kill in [true, false] {
        host.timewire(&[&start[..], &["--move-addresses"]].concat()).done();
        let moved = host.tool("ip -o address show dev tw0");
        for address in [
            "10.1.0.2/24 brd 10.1.0.255 scope global tw0",
            "10.1.0.1/24 brd 10.1.0.255 scope global secondary tw0",
            "10.2.0.1 peer 10.2.0.9/32 metric 50",
            "10.4.0.1/24 scope link",
            "fd02::1/64 scope global nodad home",
            "fe80::77/64 scope link",
        ] {
            assert!(moved.contains(address), "{address}: {moved}");
        }
        assert_eq!(host.tool("ip -4 -o address show dev phy0"), "");
        if kill {
            let status = host.timewire(&["tdm", "show", "--json"]).done().json();
            let kill = format!("kill -9 {}", status["pid"]);
            support::run(&mut host.command("", &["sh", "-c", &kill])).done();
        } else {
            host.timewire(&["tdm", "stop"]).done();
        }
        host.is_clean();
        assert_eq!(addresses(&host), before);
    }
}

#[test]
fn t3_what_mac_and_watchdog_leave_the_next_start_restores() {
    let Some(Segment { host, file }) = Segment::start() else { return };
    use_link(&host);
    let before = state(&host);
    let start =
        ["tdm", "start", "phy0", "--file", &file, "--station", "alpha", "--clock", "one-host"];
    let start = [&start[..], &["--move-addresses"]].concat();
    host.timewire(&start).done();
    let both = [host.processes_with("__watchdog"), host.processes_with("tdm")].concat();
    both.iter().for_each(|process| process.signal("KILL"));
    wait_until("both have ended", || both.iter().all(support::Process::has_ended));
    assert_eq!(host.list("/run/timewire/journal").len(), 1);
    // The kernel closes its socket a moment later.
    wait_until("nobody answers", || {
        let said = host.timewire(&["tdm", "show"]);
        assert_eq!(said.code, Some(2), "{said:?}");
        said.stderr == "error: no MAC runs here: `timewire tdm start` starts one\n"
    });
    let said = host.timewire(&start).done();
    assert!(said.stderr.starts_with("note: process "), "{said:?}");
    assert!(said.stderr.contains("(MAC on phy0) ended without cleaning up; done"), "{said:?}");
    host.timewire(&["tdm", "stop"]).done();
    host.is_clean();
    assert_eq!(state(&host), before);
}

#[test]
fn t3_what_cannot_be_restored_is_exit_code_3_and_can_be_later() {
    let Some(Segment { host, file }) = Segment::start() else { return };
    use_link(&host);
    let before = state(&host);
    let start =
        ["tdm", "start", "phy0", "--file", &file, "--station", "alpha", "--clock", "one-host"];
    host.timewire(&[&start[..], &["--move-addresses"]].concat()).done();
    // Too small for IPv6, so that the link can have no such address.
    host.tool("ip link set phy0 mtu 1200");
    let said = host.timewire(&["tdm", "stop"]);
    assert_eq!((said.code, said.stdout.as_str()), (Some(3), ""), "{said:?}");
    assert!(said.stderr.contains("not undone; the journal is /run/timewire/journal/"), "{said:?}");
    assert!(said.stderr.contains("give phy0 its address fd00::1/64 back"), "{said:?}");
    let journals = host.list("/run/timewire/journal");
    assert!(said.stderr.contains(&journals[0]) && journals.len() == 1, "{journals:?}");
    let again = host.timewire(&["lab", "clean"]);
    assert_eq!(again.code, Some(3));
    assert!(again.stdout.contains("; NOT done: give phy0 its address fd00::1/64"), "{again:?}");
    host.tool("ip link set phy0 mtu 1500");
    host.timewire(&["lab", "clean"]).done();
    host.is_clean();
    assert_eq!(state(&host), before);
}

#[test]
fn t3_a_mac_whose_link_goes_away_ends_and_says_so() {
    let Some(segment) = Segment::start() else { return };
    let host = &segment.host;
    use_link(host);
    let mac = segment.foreground("", "alpha", &["--move-addresses"]);
    host.tool("ip link delete phy0");
    let said = mac.end();
    assert_eq!((said.code, said.stdout.as_str()), (Some(2), ""), "{said:?}");
    assert!(said.stderr.contains("\nerror: MAC of phy0: the MAC's thread has ended: "), "{said:?}");
    host.is_clean();
}

#[test]
fn t3_without_a_synchronised_clock_a_mac_says_that_it_sends_nothing() {
    let Some(segment) = Segment::start() else { return };
    let host = &segment.host;
    let words = ["tdm", "start", "phy0", "--file", &segment.file, "--station", "alpha"];
    // No clock is as good as this.
    let said = host.timewire(&[&words[..], &["--max-clock-error", "0ns"]].concat());
    assert_eq!(said.code, Some(1), "{said:?}");
    let line = said.stdout.lines().find(|line| line.starts_with("  clock: ")).unwrap();
    assert!(line.contains("synchronised") && line.contains("nothing is sent"), "{line}");
    host.timewire(&["tdm", "stop"]).done();
}

#[test]
fn t3_a_link_that_was_down_is_down_again() {
    let Some(Segment { host, file }) = Segment::start() else { return };
    host.tool("ip link set phy0 down");
    let before = state(&host);
    let words = ["tdm", "start", "phy0", "--file", &file, "--station", "alpha"];
    host.timewire(&[&words[..], &["--clock", "one-host"]].concat()).done();
    assert!(host.tool("ip link show phy0").contains(",UP"));
    host.timewire(&["tdm", "stop"]).done();
    assert_eq!(state(&host), before);
}

/// What keeps a MAC from sending, what is said of it, and what mends it.
#[test]
fn t3_a_start_that_can_send_nothing_says_why() {
    let Some(Segment { host, file }) = Segment::start() else { return };
    let start = ["tdm", "start", "phy0", "--file", &file, "--station", "alpha", "--wait", "100ms"];
    let cases: [(&[&str], &str, &[&str]); 4] = [
        (&["--clock", "watched"], "", &["the clock is watched, and not known to be on time"]),
        (&["--clock", "synchronised", "--max-clock-error", "1ns"], "", &["the clock is "]),
        (&["--clock", "one-host"], "down", &["the link phy0 is down (no carrier)"]),
        (&["--clock", "watched"], "down", &["the clock is ", "the link phy0 is down"]),
    ];
    for (more, peer, expected) in cases {
        host.tool_in(
            "beta",
            &format!("ip link set phy0 {}", if peer == "down" { peer } else { "up" }),
        );
        let said = host.timewire(&[&start[..], more].concat());
        assert_eq!(said.code, Some(1), "{more:?} {peer}: {said:?}");
        let warning = "warning: the MAC runs, and sends nothing now: ";
        assert!(said.stderr.starts_with(warning), "{more:?} {peer}: {said:?}");
        for words in expected {
            assert!(said.stderr.contains(words), "{more:?} {peer}: {said:?}");
        }
        // It runs, and sends when it can.
        assert!(said.stdout.starts_with("MAC `phy0` (process "), "{said:?}");
        host.timewire(&["tdm", "stop"]).done();
    }
    // Who does not wait is told, and finds nothing bad.
    let words = [&start[..7], &["--clock", "watched", "--wait", "0s"]].concat();
    let said = host.timewire(&words);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.stderr.starts_with("note: the MAC runs, and sends nothing now: "), "{said:?}");
    host.timewire(&["tdm", "stop"]).done();
    // What comes in time is waited for.
    let words = [&start[..7], &["--clock", "one-host", "--wait", "60s"]].concat();
    let starting = host.spawn(&words);
    wait_until("the MAC runs", || !host.processes_with("--foreground").is_empty());
    host.tool_in("beta", "ip link set phy0 up");
    assert_eq!(starting.end().code, Some(0));
    host.timewire(&["tdm", "stop"]).done();
    host.is_clean();
}
