// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A host before and after an experiment: whatever a step changes, and however, is restored, or
//! named with exit code 3. A table over the commands that change a host, those of this program and
//! those of others, on a station in a network namespace.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::support::{BOTH_CASES, Host, Running, TIMEWIRE, Tiny, run, wait_until};

/// A station `s0` in a namespace of that name, with an interface, an address, and an agent.
struct Station {
    host: Host,
    agent: Option<Running>,
    runs: std::cell::Cell<u32>,
}

impl Station {
    fn start() -> Option<Station> {
        let host = Host::start()?;
        if run(&mut host.command("", &["mount", "-t", "bpf", "bpf", "/sys/fs/bpf"])).code != Some(0)
        {
            eprintln!("SKIP: no BPF file system");
            return None;
        }
        if run(&mut host.command("", &["ethtool", "--version"])).code != Some(0) {
            eprintln!("SKIP: no ethtool");
            return None;
        }
        host.tool("ip netns add s0");
        host.tool("ip netns add peer");
        host.tool_in("s0", "ip link add phy0 type veth peer name phy0 netns peer");
        for (netns, address) in [("s0", "10.9.0.1/24"), ("peer", "10.9.0.2/24")] {
            host.tool_in(netns, &format!("ip address add {address} dev phy0"));
            host.tool_in(netns, "ip link set phy0 up");
            host.tool_in(netns, "ip link set lo up");
        }
        host.tool_in("s0", "ip route add 10.8.0.0/16 via 10.9.0.2");
        let scratch = host.scratch();
        scratch.hosts(&[("s0", format!("unix:{}", scratch.join("s0.sock")))]);
        scratch.write("tiny.yaml", &tiny());
        scratch.write("slower.yaml", &tiny().replace("cycle_time: 1ms", "cycle_time: 2ms"));
        let sysctls = "timewire: 1\nkind: network\nname: forwarding\n\
                       stations: [{name: alpha, host: {sysctls: [{name: \
                       net.ipv4.ip_forward, value: '1'}]}}]\n";
        scratch.write("host.yaml", sysctls);
        let station = Station { host, agent: None, runs: 0.into() };
        let agent = station.agent();
        Some(Station { agent: Some(agent), ..station })
    }

    fn agent(&self) -> Running {
        self.agent_with(&[])
    }

    fn agent_with(&self, environment: &[&str]) -> Running {
        let scratch = self.host.scratch();
        let (socket, directory) = (scratch.join("s0.sock"), scratch.join("agent"));
        let serve = ["agent", "serve", "--socket", &socket, "--dir", &directory];
        let state = self.state_directory();
        let words = [&["env", &state], environment, &[TIMEWIRE], &serve[..]].concat();
        let agent = self.host.spawn_in("s0", &words);
        wait_until("the agent serves", || std::os::unix::net::UnixStream::connect(&socket).is_ok());
        agent
    }

    fn state_directory(&self) -> String {
        format!("TIMEWIRE_STATE_DIR={}", self.host.scratch().join("state"))
    }

    /// Runs an experiment with these steps of `setup`; its exit code and what it says is left.
    fn perform(&self, steps: &str) -> (Option<i32>, Vec<String>, String) {
        let number = self.runs.get() + 1;
        self.runs.set(number);
        let text = format!(
            "timewire: 1\nkind: network\nname: drift-{number}\n\
             experiment: {{timing: {{phase: 60s}}}}\n\
             stations:\n  - name: s0\n    phases:\n     setup:\n      steps:\n{steps}"
        );
        let file = self.host.scratch().write("e.yaml", &text);
        let out = format!("out-{number}");
        let words = ["run", &file, "--on", "hosts.yaml", "--out", &out, "--json"];
        let said = self.host.timewire(&words);
        let result = &said.json()["results"][0];
        let failed: Vec<_> = result["failures"].as_array().unwrap().iter().collect();
        // That it is left changed is a failure, and the only one.
        let others = failed.iter().filter(|f| !f.as_str().unwrap().contains("not restored"));
        assert_eq!(others.count(), 0, "{steps}: {failed:?}");
        let left = result["left"]["s0"].as_array().cloned().unwrap_or_default();
        let left = left.iter().map(|one| one.as_str().unwrap().to_owned()).collect();
        let not_compared = &result["not_compared"];
        (said.code, left, format!("not compared: {not_compared}; {}", said.stderr))
    }

    /// What the host is like, by other means than those of the product.
    fn state(&self) -> String {
        let mut text = String::new();
        for line in [
            "ip -o link",
            "ip -4 -o address",
            "ip -4 route show table all",
            "ip -4 rule",
            "tc qdisc",
            "ethtool -k phy0",
            "sysctl net.ipv4.ip_forward net.ipv4.conf.all.log_martians",
            "sysctl net.ipv6.conf.phy0.disable_ipv6 net.ipv4.conf.phy0.rp_filter",
        ] {
            text += &self.host.tool_in("s0", line);
        }
        // The kernel makes link-local addresses again a moment later.
        text + &self.host.list("/run/timewire/journal").join(" ")
    }
}

fn tiny() -> String {
    let text = Tiny { name: "tiny", cases: BOTH_CASES, more: "" }.text();
    text.replace("10.77.0.", "10.9.0.")
}

/// A step that runs these words, one per line of the table.
fn steps(all: &[&str]) -> String {
    let step = |(number, words): (usize, &&str)| {
        let (kind, words) = words.split_once(' ').unwrap();
        match kind {
            "apply" => format!("        - {{apply: {words}}}\n"),
            "put" => format!("        - {{put: {words}, from: {words}}}\n"),
            // Words with spaces in them are for a shell.
            _ => format!(
                "        - {{{kind}: [sh, -c, '{}'], name: step{number}}}\n",
                words.replace("timewire ", &format!("{TIMEWIRE} "))
            ),
        }
    };
    all.iter().enumerate().map(step).collect()
}

const TDM: &str =
    "tdm start phy0 --file tiny.yaml --station alpha --move-addresses --clock one-host";

#[test]
fn t3_what_commands_of_this_program_change_is_restored() {
    let Some(station) = Station::start() else { return };
    let background = format!("run timewire {TDM}");
    let foreground = format!("start timewire {TDM} --foreground");
    let killed = format!("run timewire {TDM} && kill -9 $(pgrep -f -- --[f]oreground)");
    let unmarked = format!("run env -u TIMEWIRE_PART timewire {TDM}; timewire tdm stop");
    let table: [(&str, &[&str]); 9] = [
        ("a MAC in the background", &["put tiny.yaml", &background]),
        ("a MAC that is a program of the experiment", &["put tiny.yaml", &foreground]),
        ("a MAC that is killed", &["put tiny.yaml", &killed]),
        ("a MAC that the step ends itself", &["put tiny.yaml", &unmarked]),
        ("receive priority", &["run timewire receive start phy0 --class control:1:port=15001"]),
        ("host settings as a step", &["apply host.yaml"]),
        ("host settings that are applied", &["put host.yaml", "run timewire apply host.yaml"]),
        (
            "host settings that wait for their confirmation",
            &["put host.yaml", "run timewire apply host.yaml --confirm-within 600s"],
        ),
        (
            "all at once",
            &[
                "put tiny.yaml",
                "put host.yaml",
                &background,
                "run timewire apply host.yaml",
                "run ip link show phy0; setsid sleep 9876543 & ping -c 1 -W 1 10.9.0.2; true",
            ],
        ),
    ];
    let before = station.state();
    for (what, words) in table {
        let (code, left, said) = station.perform(&steps(words));
        assert_eq!((code, left), (Some(0), Vec::new()), "{what}: {said}");
        assert_eq!(station.state(), before, "{what}");
        assert!(station.host.processes_with("9876543").is_empty(), "{what}");
        let ours = || station.host.processes().iter().filter(|p| p.is_ours()).count();
        wait_until("nothing but the agent runs", || ours() == 1);
    }
}

#[test]
fn t3_what_others_change_is_named_with_exit_code_3() {
    let Some(station) = Station::start() else { return };
    let host = &station.host;
    let sleeper = host.spawn_in("s0", &["sleep", "9876544"]);
    let sleeper = sleeper.inside();
    host.tool_in("s0", "ip link add other0 type veth peer name other1");
    let other = ["receive", "start", "other0", "--class", "theirs:1:port=1", "--mode", "native"];
    host.timewire_in("s0", &other).done();
    let pinned = host.list("/sys/fs/bpf/timewire/receive").remove(0);
    let pinned = format!("/sys/fs/bpf/timewire/receive/{pinned}/program");
    let attached = format!("ip link set dev phy0 xdpdrv pinned {pinned}");
    let scheduled = format!("chrt -f -p 10 {sleeper}");
    let scheduled_back = format!("chrt -o -p 0 {sleeper}");
    // What a step does, what undoes it here, and what is said of it.
    let table = [
        (
            "ip address add 10.9.1.1/24 dev phy0",
            "ip address del 10.9.1.1/24 dev phy0",
            "interface phy0 addresses 10.9.1.1/24 was added",
        ),
        (
            "ip route add 10.7.0.0/16 via 10.9.0.2",
            "ip route del 10.7.0.0/16",
            "interface phy0 routes 10.7.0.0/16 via 10.9.0.2 dev phy0 was added",
        ),
        (
            "ip route add blackhole 10.6.0.0/16",
            "ip route del blackhole 10.6.0.0/16",
            "route without an interface blackhole 10.6.0.0/16 was added",
        ),
        (
            "ip rule add from 10.9.0.1 table 77",
            "ip rule del from 10.9.0.1 table 77",
            "from 10.9.0.1 lookup 77 was added",
        ),
        (
            "ip neigh add 10.9.0.9 lladdr 02:00:00:00:00:09 nud permanent dev phy0",
            "ip neigh del 10.9.0.9 dev phy0",
            "neighbour 10.9.0.9 dev phy0",
        ),
        (
            "ip link add extra0 type veth peer name extra1",
            "ip link del extra0",
            "interface extra0 was added",
        ),
        ("ip netns add extra", "ip netns del extra", "network namespace extra was added"),
        (
            "tc qdisc replace dev phy0 root handle 7: pfifo limit 9",
            "tc qdisc del dev phy0 root",
            "interface phy0 qdiscs",
        ),
        (
            "sysctl -w net.ipv4.conf.all.log_martians=1",
            "sysctl -w net.ipv4.conf.all.log_martians=0",
            "sysctl net.ipv4.conf.all.log_martians: 0 -> 1",
        ),
        ("ethtool -K phy0 gro on", "ethtool -K phy0 gro off", "interface phy0 features"),
        (
            "ip link set phy0 mtu 1400",
            "ip link set phy0 mtu 1500",
            "interface phy0 mtu: 1500 -> 1400",
        ),
        (
            "ip link set phy0 promisc on",
            "ip link set phy0 promisc off",
            "interface phy0 flags PROMISC",
        ),
        (&attached, "ip link set dev phy0 xdpdrv off", "interface phy0 bpf xdp"),
        (&scheduled, &scheduled_back, "SCHED_OTHER 0, nice 0"),
    ];
    host.tool_in("s0", "ethtool -K phy0 gro off");
    let before = station.state();
    let all: Vec<String> = table.iter().map(|(change, ..)| format!("run {change}")).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let (code, left, said) = station.perform(&steps(&all));
    assert_eq!(code, Some(3), "{said}");
    for (change, _, words) in &table {
        assert!(left.iter().any(|one| one.contains(words)), "{change}: {left:#?}");
    }
    assert!(said.contains("not restored"), "{said}");
    for (_, back, _) in &table {
        host.tool_in("s0", back);
    }
    assert_eq!(station.state(), before);
    // Each alone is enough.
    for (change, back, words) in table.iter().take(1).chain(table.iter().skip(8).take(1)) {
        let (code, left, said) = station.perform(&steps(&[&format!("run {change}")]));
        assert_eq!((code, left.len()), (Some(3), 1), "{change}: {left:?} {said}");
        assert!(left[0].contains(words), "{change}: {left:?}");
        host.tool_in("s0", back);
    }
    // A link that goes down takes its routes along.
    let (code, left, said) = station.perform(&steps(&["run ip link set phy0 down"]));
    assert_eq!(code, Some(3), "{said}");
    assert!(left.iter().any(|one| one == "interface phy0 up: true -> false"), "{left:?}");
    host.tool_in("s0", "ip link set phy0 up");
    host.tool_in("s0", "ip route add 10.8.0.0/16 via 10.9.0.2");
    // What changes by itself is no change.
    let noise = "run ping -c 2 -i 0.2 10.9.0.2; ip neigh flush dev phy0; ping -c 1 10.9.0.2; \
                 ip neigh replace 10.9.0.8 lladdr 02:00:00:00:00:08 nud stale dev phy0";
    let (code, left, said) = station.perform(&steps(&[noise]));
    assert_eq!((code, left), (Some(0), Vec::new()), "{said}");
}

#[test]
fn t3_what_runs_on_the_host_before_is_not_changed_unsaid() {
    let Some(mut station) = Station::start() else { return };
    let host = &station.host;
    let state = station.state_directory();
    let mac = [
        "tdm",
        "start",
        "phy0",
        "--file",
        "tiny.yaml",
        "--station",
        "alpha",
        "--move-addresses",
        "--clock",
        "one-host",
        "--name",
        "mine",
    ];
    host.timewire_in("s0", &mac).done();
    host.timewire_in("s0", &["receive", "start", "tw0", "--class", "control:1:port=15001"]).done();
    host.tool_in("s0", &format!("env {state} {TIMEWIRE} apply host.yaml"));
    let table = [
        ("timewire tdm set --name mine --file slower.yaml", "the MAC `mine` has another schedule"),
        ("timewire tdm send --name mine 1 15009 1", "`mine` has another list of send priorities"),
        ("timewire tdm recv --name mine 0", "`mine` has another list of receive priorities"),
        (
            "timewire receive set tw0 --class other:2:port=15002",
            "receive priority on tw0 was changed",
        ),
        ("timewire undo", "applied: `forwarding` -> nothing"),
    ];
    let all: Vec<String> = table.iter().map(|(change, _)| format!("run {change}")).collect();
    let all: Vec<&str> = ["put slower.yaml"].into_iter().chain(all.iter().map(|s| &**s)).collect();
    let (code, left, said) = station.perform(&steps(&all));
    assert_eq!(code, Some(3), "{said}");
    for (change, words) in table {
        assert!(left.iter().any(|one| one.contains(words)), "{change}: {left:#?}");
    }
    // What was there before goes on.
    let status = host.timewire(&["tdm", "show", "--name", "mine"]);
    assert_eq!(status.code, Some(0), "{status:?}");
    let (code, left, said) = station.perform(&steps(&["run timewire tdm stop --name mine"]));
    assert_eq!(code, Some(3), "{said}");
    assert!(left.contains(&"the MAC `mine` has ended".to_owned()), "{left:#?}");
    // An agent that is killed compares when it is there again.
    let slow = "start ip address add 10.9.2.1/24 dev phy0; exec sleep 9876545";
    let text = format!(
        "timewire: 1\nkind: network\nname: killed\n\
         experiment: {{timing: {{lease: 60s, phase: 60s}}}}\n\
         stations:\n  - name: s0\n    phases:\n     setup:\n      steps:\n{}     \
         run: [{{wait: step0}}]\n",
        steps(&[slow])
    );
    host.scratch().write("e.yaml", &text);
    let words = ["run", "e.yaml", "--on", "hosts.yaml", "--out", "killed", "--json"];
    let controller = host.spawn(&words);
    wait_until("the step has run", || {
        host.tool_in("s0", "ip -o address").contains("10.9.2.1")
            && host.processes_with("9876545").iter().any(|p| p.command.starts_with("sleep"))
    });
    drop(station.agent.take());
    station.agent = Some(station.agent());
    let said = controller.end();
    assert_eq!(said.code, Some(3), "{said:?}");
    let left = said.json()["results"][0]["left"]["s0"].to_string();
    assert!(left.contains("interface phy0 addresses 10.9.2.1/24 was added"), "{left}");
    assert!(station.host.processes_with("9876545").is_empty());
    let out = fs::read_to_string(station.host.scratch().path().join("killed/summary.json"));
    assert!(out.unwrap().contains("10.9.2.1/24"));
}

#[test]
fn t3_what_is_not_known_before_and_after_is_named_and_the_run_inconclusive() {
    let Some(mut station) = Station::start() else { return };
    drop(station.agent.take());
    let real = station.host.tool_words("s0", &["sh", "-c", "command -v ip"]);
    let real = real.trim();
    let scratch = station.host.scratch();
    let ip = format!(
        "#!/bin/sh\ncase \"$*\" in *rule*) echo no right to do so >&2; exit 2;; esac\n\
         exec {real} \"$@\"\n"
    );
    let file = scratch.write("ip", &ip);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("PATH={}:/usr/sbin:/usr/bin:/sbin:/bin", scratch.path().display());
    station.agent = Some(station.agent_with(&[&path]));
    let rule = format!("run {real} rule add from 10.9.3.1 lookup 100");
    let (code, left, said) = station.perform(&steps(&[&rule]));
    assert_eq!((code, left.len()), (Some(1), 0), "{said}");
    assert!(said.contains(r#"not compared: {"s0":["rule: "#), "{said}");
    assert!(said.contains("no right to do so"), "{said}");
}
