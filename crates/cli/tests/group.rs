// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `timewire group` as a user meets it: words and exit codes, on a host of its own with processes
//! of its own.

use std::fs;

use crate::support;
use crate::support::interrupted::{To, end, hears_as};
use crate::support::{Host, Running, Said, Scratch, timewire, wait_until};

const TREE: &str = "timewire: 1
kind: network
name: station
stations:
  - name: alpha
    host:
      groups:
        name: top
        policy: sequential
        highest: 40
        members:
          - is:
              kind: group
              group:
                name: control
                policy: priority
                cpus: 0
                members: []
          - is:
              kind: group
              group:
                name: turns
                policy: tdm
                cycle: 100ms
                members:
                  - is: {kind: program, run: [sleep, '1000']}
                    offset: 20ms
                    length: 30ms
";

fn write(text: &str) -> (Scratch, String) {
    let scratch = Scratch::new();
    let file = scratch.write("groups.yaml", text);
    (scratch, file)
}

#[test]
fn t1_check_prints_what_is_asked_of_the_host() {
    let tree = TREE.replace("members: []", "members: [{is: {kind: process, pid: 7}, priority: 3}]");
    let (_scratch, file) = write(&tree);
    let said = timewire(&["group", "check", &file]).done();
    assert_eq!(
        said.stdout,
        "top (sequential, priorities 40 to 39)
  | descending real-time priorities: of the members that can run, the first run, as many as \
         there are CPUs
  control (priority, priority 40, CPUs 0)
    | a real-time priority for each number: on its one CPU, the lowest number that can run, runs; \
         equal ones in the order in which they became able to
    process 7                            SCHED_FIFO 40
  turns (tdm, cycle 100ms, priority 39)
    | stopped outside of its windows: late at either end by the wake-up of the supervisor and the \
         time that a thread needs to reach the end of a system call
    program `sleep 1000`                 SCHED_FIFO 39, windows 20ms+30ms of 100ms
"
    );
    let json = timewire(&["group", "check", "--json", &file]).done().json();
    assert_eq!(json["schema"], "timewire.group-plan/1");
    assert_eq!(json["rows"][2]["priority"], 40);
    assert_eq!(json["rows"][4]["windows"]["windows"][0]["offset_ns"], 20_000_000);
}

#[test]
fn t1_check_refuses_what_cannot_be() {
    let (_scratch, file) = write(&TREE.replace("length: 30ms", "length: 90ms"));
    let said = timewire(&["group", "check", &file]);
    assert_eq!(said.code, Some(2));
    assert!(said.stderr.contains("the window at 20ms ends at 110ms, after the cycle of 100ms"));
    assert!(said.stderr.contains("; nothing was changed"));
    let (_scratch, file) = write(
        "timewire: 1\nkind: network\nname: x\n\
         stations: [{name: alpha, host: {}}]\n",
    );
    let said = timewire(&["group", "check", &file]);
    said.failed(2, "error: `x` has no `host.groups`: nothing to put in force\n");
    let members: Vec<String> = (1..500)
        .map(|pid| format!("{{is: {{kind: process, pid: {pid}}}, runtime: 9ms, period: 10ms}}"))
        .collect();
    let (_scratch, file) = write(&format!(
        "timewire: 1\nkind: network\nname: x\n\
         stations: [{{name: alpha, host: {{groups: {{name: d, policy: deadline, \
         members: [{}]}}}}}}]\n",
        members.join(", ")
    ));
    let said = timewire(&["group", "check", &file]);
    assert_eq!(said.code, Some(2));
    assert!(said.stderr.contains("with this one the reservations need"), "{}", said.stderr);
}

#[test]
fn t1_host_settings_are_those_of_the_station_that_is_named() {
    let member = "members: [{is: {kind: process, pid: 7}, priority: 3}]";
    let mut two = TREE.replace("members: []", member);
    two += "  - {name: beta, host: {groups: {name: b, policy: sequential, members: []}}}\n";
    let (_scratch, file) = write(&two);
    let both = timewire(&["group", "check", &file]);
    assert_eq!(both.code, Some(2));
    assert!(both.stderr.contains("stations: 2 stations have `host`\n"), "{}", both.stderr);
    assert!(both.stderr.contains("say which with --station: `alpha`, `beta`\n"));
    let other = timewire(&["group", "check", &file, "--station", "gamma"]);
    assert_eq!(other.code, Some(2));
    assert!(other.stderr.contains("there is no station `gamma`"), "{}", other.stderr);
    let of_beta = timewire(&["group", "check", &file, "--station", "beta", "--json"]);
    assert_eq!(of_beta.done().json()["rows"].as_array().map(Vec::len), Some(1));
    // Of a whole network it is the same key.
    let network = two
        + "links: [[alpha, beta]]\n\
           streams: [{name: s, talker: alpha, listeners: beta, size: 64B, period: 1ms}]\n";
    let (_scratch, file) = write(&network);
    let of_alpha = timewire(&["group", "check", &file, "--station", "alpha", "--json"]);
    assert_eq!(of_alpha.done().json()["rows"].as_array().map(Vec::len), Some(5));
    timewire(&["sim", &file]).done();
    let wrong = network.replace("length: 30ms", "length: 90ms");
    let (_scratch, file) = write(&wrong);
    for verb in ["sim", "plan"] {
        let said = timewire(&[verb, &file]);
        assert_eq!(said.code, Some(2));
        assert!(said.stderr.contains("the window at 20ms ends at 110ms"), "{}", said.stderr);
    }
}

/// The policy and the real-time priority of a process.
fn scheduling(process: &Running) -> (u32, u32) {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.pid())).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    // Fields 41 and 40 of proc(5).
    (fields[38].parse().unwrap(), fields[37].parse().unwrap())
}

fn sleeper(host: &Host) -> Running {
    host.spawn_in("", &["sleep", "999"])
}

fn started(host: &Host, file: &str) -> Running {
    let watchdog = host.spawn(&["group", "start", file]);
    wait_until("the groups are in force", || host.timewire(&["group", "show"]).code == Some(0));
    watchdog
}

#[track_caller]
fn refused(said: Said, words: &str) {
    assert_eq!((said.code, said.stdout.as_str()), (Some(2), ""), "{said:?}");
    assert!(said.stderr.contains(words), "{said:?}");
}

#[test]
fn t3_a_day_of_groups() {
    let Some(host) = Host::start() else { return };
    let (_scratch, file) = write(TREE);
    let (one, two) = (sleeper(&host), sleeper(&host));
    refused(host.timewire(&["group", "show"]), "no groups are in force");
    let watchdog = started(&host, &file);
    refused(host.timewire(&["group", "start", &file]), "groups are in force already");
    let (first, second) = (one.inside().to_string(), two.inside().to_string());
    host.timewire(&["group", "add", "control", &first, "--priority", "2"]).done();
    host.timewire(&["group", "add", "control", &second, "--priority", "1"]).done();
    assert_eq!((scheduling(&two), scheduling(&one)), ((1, 40), (1, 39)));
    let again = host.timewire(&["group", "add", "turns", &first]);
    refused(again, "a member of a `tdm` group needs `offset`");
    let again = host.timewire(&["group", "add", "control", &first, "--priority", "9"]);
    refused(again, &format!("process {first} is a member before"));
    refused(host.timewire(&["group", "add", "no", &first]), "there are top, control, turns");
    refused(host.timewire(&["group", "add", "top", "4194302"]), "there is no process 4194302");
    refused(host.timewire(&["group", "remove", "4194302"]), "no member is written as process");
    assert_eq!((scheduling(&two), scheduling(&one)), ((1, 40), (1, 39)));

    let shown = host.timewire(&["group", "show"]).done().stdout;
    assert!(shown.contains(&format!("process {second}")), "{shown}");
    assert!(shown.contains("windows ") && shown.contains("SCHED_FIFO 40"), "{shown}");
    let json = host.timewire(&["group", "show", "--json"]).done().json();
    assert_eq!(json["schema"], "timewire.group-status/1");
    let members = json["rows"].as_array().unwrap().iter().filter(|row| row["row"] == "member");
    let members: Vec<_> = members.collect();
    assert_eq!(members.len(), 3);
    assert_eq!(members[0]["processes"], serde_json::json!([one.inside()]));
    assert_eq!(members[0]["threads"], 1);
    assert!(members[2]["kept"]["opened"].is_u64());

    // A member that has ended is no obstacle, and a program that has is not started again.
    two.signal("KILL");
    host.processes_with("1000")[0].signal("KILL");
    wait_until("their ends are seen", || {
        host.timewire(&["group", "show"]).done().stdout.matches(" ended ").count() == 2
    });
    host.timewire(&["group", "remove", &first]).done();
    assert_eq!(scheduling(&one), (0, 0));
    host.timewire(&["group", "add", "control", &first, "--priority", "2"]).done();
    assert_eq!(scheduling(&one), (1, 39));
    assert!(host.processes_with("1000").is_empty());
    let two = sleeper(&host);
    let second = two.inside().to_string();
    host.timewire(&["group", "add", "control", &second, "--priority", "3"]).done();
    assert_eq!((scheduling(&one), scheduling(&two)), ((1, 39), (1, 38)));

    // A file of its own: who is in both stays, the others go back.
    let other = format!(
        "timewire: 1\nkind: network\nname: other\n\
         stations: [{{name: alpha, host: {{groups: {{name: all, policy: round_robin, members: \
         [{{is: {{kind: process, pid: {first}}}}}]}}}}}}]\n"
    );
    let (_scratch, other) = write(&other);
    host.timewire(&["group", "switch", &other]).done();
    assert_eq!((scheduling(&one), scheduling(&two)), ((2, 60), (0, 0)));
    assert!(host.processes_with("1000").is_empty(), "the program of the old model has ended");
    let bad = format!(
        "timewire: 1\nkind: network\nname: bad\n\
         stations: [{{name: alpha, host: {{groups: {{name: all, policy: sequential, members: \
         [{{is: {{kind: process, pid: {second}}}}}, \
         {{is: {{kind: napi, interface: none0}}}}]}}}}}}]\n"
    );
    let (_scratch, bad) = write(&bad);
    refused(host.timewire(&["group", "switch", &bad]), "there is no interface none0");
    assert_eq!((scheduling(&one), scheduling(&two)), ((2, 60), (0, 0)));
    host.timewire(&["group", "remove", &first]).done();
    assert_eq!(scheduling(&one), (0, 0));

    host.timewire(&["group", "switch", &file]).done();
    assert_eq!(host.processes_with("1000").len(), 1);
    host.timewire(&["group", "stop"]).done();
    watchdog.end().done();
    assert!(host.processes_with("1000").is_empty());
    drop((one, two));
    host.is_clean();
}

#[test]
fn t3_signals_end_the_groups_and_restore_all() {
    let Some(host) = Host::start() else { return };
    for signal in ["TERM", "INT", "KILL"] {
        let (_scratch, file) = write(TREE);
        let one = sleeper(&host);
        let watchdog = started(&host, &file);
        let pid = one.inside().to_string();
        host.timewire(&["group", "add", "control", &pid, "--priority", "1"]).done();
        assert_eq!(scheduling(&one), (1, 40));
        if signal != "KILL" {
            let show = ["group", "show", "--watch"];
            let running = host.spawn_in("", &[&["setsid", support::TIMEWIRE], &show[..]].concat());
            let said = end(running, &show, || hears_as(&host, "--watch"), (signal, To::Alone));
            assert_eq!(said.code, Some(0), "{said:?}");
        }
        watchdog.signal(signal);
        let said = watchdog.end();
        assert_eq!(said.code == Some(0), signal != "KILL", "{said:?}");
        wait_until("it has what it had", || scheduling(&one) == (0, 0));
        wait_until("the program has ended", || host.processes_with("1000").is_empty());
        drop(one);
        host.is_clean();
    }
}

#[test]
fn t3_what_this_kernel_lacks_is_named() {
    let Some(host) = Host::start() else { return };
    // The loopback interface does not poll, anywhere.
    let (_scratch, file) = write(
        "timewire: 1\nkind: network\nname: x\n\
         stations: [{name: alpha, host: {groups: {name: g, policy: sequential, \
         members: [{is: {kind: \
         napi, interface: lo}}]}}}]\n",
    );
    let said = host.timewire(&["group", "start", &file]);
    assert_eq!(said.code, Some(4), "{said:?}");
    assert!(said.stderr.contains("not supported here: its driver does not poll"), "{said:?}");
    host.is_clean();
}
