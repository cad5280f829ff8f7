// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `run SCENARIO --on HOSTS`: a scenario on hosts with agents, which here are network namespaces
//! on a hub that somebody else made, one of them paired over TLS.

use std::fs;
use std::path::Path;

use serde_json::Value as Json;
use timewire_agent::links::{Identity, Peers, Role};

use crate::programs;
use crate::support::{BOTH_CASES, Host, PLAIN_CASE, Running, Said, Scratch, Tiny, wait_until};

/// `alpha` and `beta` on a hub, `alpha` with an address of its own, and an agent that serves TLS.
pub struct Stations {
    pub host: Host,
    agent: Running,
}

const HOSTS: &str = "timewire: 1
kind: hosts
clock: one-host
stations:
  - { name: alpha, agent: 'tls://10.9.0.2:28411', interface: eth0 }
  - { name: beta, agent: 'netns:beta', interface: eth0 }
observers:
  - { name: watcher, agent: 'netns:hub', interfaces: [alpha, beta] }
";

impl Stations {
    /// `None`, after saying why, where it cannot be.
    pub fn start() -> Option<Stations> {
        let host = Host::start()?;
        host.tool("ip netns add hub");
        host.tool("ip -n hub link add hub0 type bridge ageing_time 0");
        host.tool("ip -n hub link set hub0 up");
        for station in ["alpha", "beta"] {
            host.tool(&format!("ip netns add {station}"));
            host.tool(&format!("ip -n {station} link set lo up"));
            let pair = format!("link add {station} type veth peer name eth0 netns {station}");
            host.tool(&format!("ip -n hub {pair}"));
            host.tool(&format!("ip -n hub link set {station} master hub0 up"));
        }
        // The interface of `beta` is down, and that of `alpha` has what the scenario wants already.
        host.tool("ip -n alpha link set eth0 up");
        host.tool("ip -n alpha address add 10.77.0.1/24 dev eth0");
        host.tool("ip link add ctl type veth peer name ctl netns alpha");
        for (netns, address) in [("", "10.9.0.1/24"), ("alpha", "10.9.0.2/24")] {
            host.tool_in(netns, &format!("ip address add {address} dev ctl"));
            host.tool_in(netns, "ip link set ctl up");
        }
        let keys = host.scratch().join("agent");
        let own = host.see("/var/lib/timewire/agent");
        let identity = |at: &Path| Identity::load_or_create(at).unwrap().fingerprint();
        let (theirs, ours) = (identity(Path::new(&keys)), identity(&own));
        Peers::in_directory(Path::new(&keys)).add(Role::Controller, "desk", ours).unwrap();
        Peers::in_directory(&own).add(Role::Agent, "alpha", theirs).unwrap();
        let serve = ["agent", "serve", "--listen", "10.9.0.2:28411", "--dir", &keys];
        let agent = host.spawn_in("alpha", &[&[crate::support::TIMEWIRE], &serve[..]].concat());
        wait_until("the agent serves", || agent.stderr().contains("serving on"));
        host.scratch().write("hosts.yaml", HOSTS);
        Some(Stations { host, agent })
    }

    fn run(&self, more: &[&str]) -> Said {
        self.host.timewire(&[&["run", "tiny.yaml", "--on", "hosts.yaml"], more].concat())
    }

    /// What of both hosts an experiment changes.
    pub fn look(&self) -> String {
        let of = |station: &str| {
            let shown = self.host.tool_in(station, "ip -br -4 address show");
            let qdiscs = self.host.tool_in(station, "tc qdisc show dev eth0");
            // Without those that the kernel puts there by itself.
            let qdiscs = qdiscs.lines().filter(|line| !line.contains(" 0: "));
            shown + &qdiscs.collect::<String>()
        };
        of("alpha") + &of("beta")
    }
}

fn streams(summary: &Json) -> Vec<&Json> {
    let cases = summary["cases"].as_array().unwrap();
    cases.iter().flat_map(|case| case["streams"].as_array().unwrap()).collect()
}

#[test]
fn t3_programs_of_users_run_on_agents_with_their_files() {
    let Some(stations) = Stations::start() else { return };
    let host = &stations.host;
    let left = "98765.4";
    programs::write(host.scratch(), left);
    let before = stations.look();
    let words = ["run", "own.yaml", "--on", "hosts.yaml", "--json", "--out", "out"];
    programs::is_measured(&host.timewire(&words).done().json());
    let log = host.scratch().path().join("out/logs/own.tdm.alone.plant-program.log");
    let log = fs::read_to_string(log).unwrap();
    assert!(log.contains("asked\n"), "{log}");
    assert!(!programs::runs(left));
    assert_eq!(stations.look(), before);
}

#[test]
fn t3_a_scenario_runs_on_agents_as_in_the_laboratory() {
    let Some(stations) = Stations::start() else { return };
    let host = &stations.host;
    let more = "limits:\n  - { id: slots, metric: outside-slots, case: tdm, load: alone, at_most: \
                100% }\n  - { id: lost, metric: lost, stream: control, case: tdm, load: alone, \
                at_most: 50% }\n";
    host.scratch().write("tiny.yaml", &Tiny { name: "tiny", cases: BOTH_CASES, more }.text());
    let before = stations.look();
    let said = stations.run(&["--json", "--out", "out"]).done();
    let here = said.json();
    let lab = host.timewire(&["run", "tiny.yaml", "--json", "--out", "lab"]).done().json();
    // The same cases, streams, figures and limits; only numbers differ.
    let shape = |summary: &Json| {
        let cases = summary["cases"].as_array().unwrap().iter();
        let names: Vec<_> = cases.map(|case| case["id"].clone()).collect();
        let keys = |stream: &Json| stream.as_object().unwrap().keys().cloned().collect();
        let streams: Vec<Vec<String>> = streams(summary).into_iter().map(keys).collect();
        let limits = summary["findings"].as_array().unwrap().iter();
        let limits = limits.filter(|it| !it["verdict"].is_null());
        let limits: Vec<_> = limits.map(|it| (it["id"].clone(), it["verdict"].clone())).collect();
        (names, streams, limits)
    };
    assert_eq!(shape(&here), shape(&lab), "{here:#}");
    for case in here["cases"].as_array().unwrap() {
        assert!(case["streams"][0]["sent"].as_u64() > Some(20), "{case:#}");
        // The observer tells the stations by their addresses.
        assert!(case["wire"]["frames"].as_u64() > Some(40), "{case:#}");
        assert_eq!(case["clock_bound_ns"], 0, "{case:#}");
    }
    let macs = here["cases"][1]["macs"].as_array().unwrap();
    assert_eq!(macs.len(), 2, "{macs:?}");
    assert!(macs.iter().all(|mac| mac["released"].as_u64() > Some(20)), "{macs:?}");
    // Both hosts are as they were, and nothing runs.
    assert_eq!(stations.look(), before);
    for word in ["tdm", "__connection", "__program"] {
        assert!(host.processes_with(word).is_empty(), "{word}");
    }
    // The run directory is one as any other.
    host.timewire(&["report", "out"]).done();
    host.timewire(&["compare", "out", "lab", "--tolerance", "10000000%"]);
    for name in ["hosts.yaml", "hosts/tiny.alpha.before.json", "hosts/tiny.beta.after.json"] {
        assert!(host.scratch().path().join("out").join(name).is_file(), "{name}");
    }
    drop(stations.agent);
}

/// Each host takes a capture of its own; together they say where the time of each message went.
#[test]
fn t3_a_traced_run_on_agents_has_the_parts_of_each_message() {
    let Some(stations) = Stations::start() else { return };
    let host = &stations.host;
    host.scratch().write("tiny.yaml", &Tiny { name: "tiny", cases: BOTH_CASES, more: "" }.text());
    let said = stations.run(&["--json", "--out", "out", "--trace"]);
    if said.stderr.contains("cannot trace: ") {
        eprintln!("SKIP: no tracing on this kernel: {}", said.stderr.trim());
        return;
    }
    let summary = said.done().json();
    for case in summary["cases"].as_array().unwrap() {
        let (traced, measured) = (&case["traced"], &case["streams"][0]);
        let names = ["alpha", "beta"].map(|name| format!("trace.{name}.twc"));
        let captures = traced["captures"].as_array().unwrap();
        for (capture, name) in captures.iter().zip(&names) {
            assert!(capture.as_str().unwrap().ends_with(name), "{captures:?}");
        }
        assert_eq!(captures.len(), 2, "{captures:?}");
        let stream = &traced["streams"][0];
        // The same messages as the records have, with the points of both hosts.
        assert_eq!((&stream["sent"], &stream["incomplete"]), (&measured["sent"], &0.into()));
        let count = stream["transfer"]["count"].as_u64();
        assert!(count > Some(20) && count >= measured["received"].as_u64(), "{stream:#}");
        let mean = |part: &str| stream[part]["mean_ns"].as_f64().unwrap();
        let parts = mean("transmit") + mean("link") + mean("receive");
        assert!((parts - mean("transfer")).abs() < 10.0, "{stream:#}");
        let page = host.scratch().join("out/") + traced["page"].as_str().unwrap();
        let page = fs::read_to_string(page).unwrap();
        assert!(page.contains("alpha") && page.contains("beta"), "no station is drawn");
    }
    assert!(host.processes_with("__trace").is_empty());
    host.timewire(&["report", "out"]).done();
    drop(stations.agent);
}

const PAIR: &str = "timewire: 1
kind: network
name: pair
duration: 300ms
warm_up: 50ms
stations:
  - name: left
    phases:
      run: { steps: [{ run: [sh, -c, 'echo {\\\"own\\\":$((40+2))} > own.json'], name: own }] }
  - right
links: [[left, right]]
streams:
  - { name: state, talker: left, listeners: right, size: 100B, kind: cyclic, period: 5ms }
  - { name: ask, talker: right, listeners: left, size: 64B, kind: request, answer: told,
      think: 5ms }
  - { name: told, talker: left, listeners: right, size: 200B, kind: after, follows: ask,
      work: 500us }
limits:
  - { id: state-lost, metric: lost, stream: state, at_most: 50% }
checks:
  - { station: left, record: own.json, value: /own, at_least: 42, at_most: 42 }
";

/// Two hosts with one link between them; what the stations do by themselves is done beside.
#[test]
fn t3_a_network_with_links_is_traced_on_hosts() {
    let Some(host) = Host::start() else { return };
    for station in ["left", "right"] {
        host.tool(&format!("ip netns add {station}"));
        host.tool(&format!("ip -n {station} link set lo up"));
    }
    host.tool("ip -n left link add eth0 type veth peer name eth0 netns right");
    host.tool("ip -n left link set eth0 up");
    host.tool("ip -n right link set eth0 up");
    let scratch = host.scratch();
    scratch.write("pair.yaml", PAIR);
    let hosts = ["left", "right"]
        .map(|name| format!("  - {{ name: {name}, agent: 'netns:{name}', interface: eth0 }}\n"));
    let hosts = hosts.concat();
    scratch.write(
        "two.yaml",
        &format!("timewire: 1\nkind: hosts\nclock: one-host\nstations:\n{hosts}"),
    );
    let words = ["run", "pair.yaml", "--on", "two.yaml", "--trace", "--out", "out", "--json"];
    let said = host.timewire(&words);
    if said.code == Some(4) && said.stderr.contains("--trace: ") {
        eprintln!("SKIP: no tracing on this kernel: {}", said.stderr.trim());
        return;
    }
    let summary = said.json();
    let case = &summary["cases"][0];
    let traced = &case["traced"];
    let captures = traced["captures"].as_array().unwrap();
    assert_eq!(captures.len(), 2, "{traced:#}");
    for (stream, name) in traced["streams"].as_array().unwrap().iter().zip(["state", "ask", "told"])
    {
        assert_eq!(stream["stream"], name);
        let count = |part: &str| stream[part]["count"].as_u64().unwrap_or(0);
        let sent = stream["sent"].as_u64().unwrap();
        assert!(sent > 10 && stream["ambiguous"] == 0, "{stream:#}");
        assert_eq!(count("transfer") + stream["incomplete"].as_u64().unwrap(), sent, "{stream:#}");
        assert!(count("transfer") > 10, "{stream:#}");
        let mean = |part: &str| stream[part]["mean_ns"].as_f64().unwrap();
        let parts = mean("transmit") + mean("link") + mean("receive");
        assert!((parts - mean("transfer")).abs() < 10.0, "{stream:#}");
    }
    // What the kernel drops behind the sockets of talkers and listeners is no loss.
    let files: Vec<String> =
        captures.iter().map(|it| format!("out/{}", it.as_str().unwrap())).collect();
    let shown =
        [&["trace", "show", "--json"], &*files.iter().map(String::as_str).collect::<Vec<_>>()];
    let shown = host.timewire(&shown.concat()).done().json();
    let all = shown["packet_paths"].as_array().unwrap();
    let complete = all.iter().filter(|it| it["status"] == "complete");
    let complete = complete.filter_map(|it| it["count"].as_u64()).sum::<u64>();
    assert!(complete > 30, "{all:?}");
    assert_eq!(shown["drops"].as_array().unwrap().len(), 0, "{shown}");
    let own = summary["findings"].as_array().unwrap();
    let own = own.iter().find(|it| it["id"].as_str().unwrap().contains("own.json"));
    assert_eq!(own.unwrap()["verdict"], "pass", "{summary:#}");
    assert!(host.processes_with("__trace").is_empty());
}

/// All hosts are judged at the same time, and one that cannot be asked keeps nobody waiting.
#[test]
fn t3_hosts_are_judged_as_the_stations_that_they_are_to_be() {
    let Some(stations) = Stations::start() else { return };
    let scratch = stations.host.scratch();
    scratch.write("tiny.yaml", &Tiny { name: "tiny", cases: BOTH_CASES, more: "" }.text());
    let before = stations.look();
    let judged = |more: &[&str]| {
        let words = [&["doctor", "tiny.yaml", "--on", "hosts.yaml"], more].concat();
        stations.host.timewire(&words)
    };
    let said = judged(&[]);
    assert!(matches!(said.code, Some(0 | 1)), "{said:?}");
    assert!(said.stdout.starts_with("tiny on 3 hosts\n  alpha    eth0 of tls://"), "{said:?}");
    let beta = "\n  beta     eth0 of netns:beta: can take part, mac-";
    assert!(said.stdout.contains(beta), "{said:?}");
    assert!(said.stdout.contains("\n  watcher  netns:hub: can observe\n"), "{said:?}");
    // The clocks of one host need nothing.
    assert!(!said.stdout.contains("clock.synchronised"), "{said:?}");
    // One is not there, which keeps nobody from judging the other; that has no such interface.
    let gone = HOSTS.replace("10.9.0.2:28411", "10.9.0.2:1");
    scratch.write("hosts.yaml", &gone);
    let said = judged(&["--json"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    let report = said.json();
    assert_eq!(report["schema"], "timewire.doctor-hosts/1");
    let why = report["stations"][0]["why"].as_str().unwrap();
    assert!(why.contains("not reached within 5s"), "{report:#}");
    assert_eq!(report["stations"][1]["report"]["schema"], "timewire.doctor/1", "{report:#}");
    let beta = "'netns:beta', interface: eth0";
    scratch.write("hosts.yaml", &gone.replace(beta, "'netns:beta', interface: eth7"));
    let said = judged(&[]);
    assert_eq!(said.code, Some(4), "{said:?}");
    assert!(
        said.stdout.contains("missing\n  beta: link eth7: there are only eth0, lo"),
        "{said:?}"
    );
    // An observer is asked for its interfaces, and as every other whether it can be reached.
    scratch.write("hosts.yaml", &HOSTS.replace("[alpha, beta]", "[alpha, gamma]"));
    let said = judged(&[]);
    assert_eq!(said.code, Some(4), "{said:?}");
    let lacks = "not supported\n  watcher: no interface gamma: there are alpha, beta, hub0";
    assert!(said.stdout.contains(lacks), "{said:?}");
    // The file itself: clocks that may be off by more than the guards between slots allow, and an
    // agent that is reached over the network of the experiment.
    let loose = HOSTS.replace("one-host", "synchronised\nmax_clock_error: 1ms");
    scratch
        .write("hosts.yaml", &loose.replace("28411', interface: eth0", "28411', interface: ctl"));
    let said = judged(&[]);
    let degraded =
        "\n  alpha, beta: clock.guard: max_clock_error: 1ms is more than half the guard of ";
    assert!(said.stdout.contains(degraded), "{said:?}");
    let degraded = "\n  alpha: control.link ctl: its agent is reached at 10.9.0.2, on the network";
    assert!(said.stdout.contains(degraded), "{said:?}");
    assert_eq!(judged(&["--json"]).json()["stations"][0]["findings"][1]["id"], "control.link");
    // What the kernel lacks is missing at both.
    scratch.write("hosts.yaml", HOSTS);
    let taprio = Tiny { name: "tiny", cases: BOTH_CASES, more: "" }.text();
    let by_taprio = |text: &str| {
        text.replace("title: TDM }", "title: TDM, change: { schedule: { by: taprio } } }")
    };
    scratch.write("tiny.yaml", &by_taprio(&taprio));
    let backends = report["stations"][1]["report"]["backends"].as_array().unwrap();
    let lacks = |it: &Json| it["backend"] == "taprio" && it["possible"] == false;
    if backends.iter().any(lacks) {
        let said = judged(&[]);
        assert_eq!(said.code, Some(4), "{said:?}");
        assert!(said.stdout.contains("missing\n  alpha, beta: schedule.backend"), "{said:?}");
        // A run is refused for it before anything is done, also where an option asks for it.
        let out = scratch.path().join("out");
        let refused = |more: &[&str]| {
            let said = stations.run(&[&["--out", "out"], more].concat());
            assert_eq!(said.code, Some(4), "{said:?}");
            let why = "error: tiny: not supported on hosts.yaml: station beta: taprio";
            assert!(said.stderr.contains(why), "{said:?}");
            assert!(
                said.stderr.contains("unchanged; nothing was run") && !out.exists(),
                "{said:?}"
            );
        };
        refused(&[]);
        // Also of the second of two files: all are asked about both at once.
        let second = by_taprio(&taprio).replace("name: tiny", "name: second");
        scratch.write("second.yaml", &second);
        scratch.write("tiny.yaml", &taprio);
        refused(&["second.yaml"]);
        refused(&["--backend", "taprio-assist"]);
    }
    let refused = stations.host.timewire(&["doctor", "--on", "hosts.yaml"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("name that as well"), "{refused:?}");
    assert_eq!(stations.look(), before);
}

#[test]
fn t3_what_the_hosts_cannot_do_is_said_before_anything_changes() {
    let Some(stations) = Stations::start() else { return };
    let scratch = stations.host.scratch();
    scratch.write("tiny.yaml", &Tiny { name: "tiny", cases: BOTH_CASES, more: "" }.text());
    let before = stations.look();
    let refused_with = |code: i32, hosts: &str, more: &[&str], why: &str| {
        scratch.write("hosts.yaml", hosts);
        let said = stations.run(&[&["--out", "refused"], more].concat());
        assert!(said.code == Some(code) && said.stderr.contains(why), "{said:?}");
        assert_eq!(stations.look(), before);
        let _ = fs::remove_dir_all(scratch.path().join("refused"));
    };
    let refused = |hosts: &str, more: &[&str], why: &str| refused_with(2, hosts, more, why);
    let without = HOSTS.replace("name: beta", "name: gamma");
    refused(&without, &[], "the hosts file has no station `beta`, which tiny needs");
    let without = HOSTS.replace("'netns:beta', interface: eth0", "'netns:beta'");
    refused(&without, &[], "station `beta` has no `interface` in the hosts file; tiny needs");
    let other = HOSTS.replace("'netns:beta', interface: eth0", "'netns:beta', interface: eth7");
    refused_with(4, &other, &[], "hosts.yaml: station beta: link eth7: there are only eth0, lo");
    // All hosts are asked at once, and all that cannot be are named.
    let gone = HOSTS.replace("10.9.0.2:28411", "10.9.0.2:1").replace("netns:beta", "unix:/gone");
    let why = "2 of 3 hosts cannot be asked; nothing was run\n  station alpha (tls://10.9.0.2:1): ";
    refused(&gone, &[], why);
    let other = HOSTS.replace("name: watcher", "name: omega").replace("netns:hub", "netns:nowhere");
    refused(&other, &[], "omega: there is no network namespace `nowhere`");
    refused(HOSTS, &["--backend", "auto"], "name one in place of `--backend auto`");
    refused(HOSTS, &["--kernel", "6.1"], "--kernel is for `--on lab:uml` and `--on lab:qemu`");
    scratch.write("hosts.yaml", HOSTS);
    let said = stations.run(&["--backend", "taprio", "--dry-run"]).done();
    let of_beta = said.stdout.split("tiny/tdm/alone").nth(1).unwrap().split("beta").nth(1).unwrap();
    assert!(of_beta.contains("open     start connection, run connection-begun"), "{said:?}");
}

/// Host settings of a station, with a program that is started with its groups and writes what it
/// finds set to a file.
fn host_settings(scratch: &Scratch) -> String {
    let look = format!(
        "(ip link show eth0; cat /proc/sys/net/ipv4/ip_default_ttl) > {}; exec sleep 100",
        scratch.join("seen")
    );
    format!(
        "{{ interfaces: [{{ name: eth0, mtu: 1460 }}], \
         sysctls: [{{ name: net.ipv4.ip_default_ttl, value: '99' }}], \
         groups: {{ name: g, policy: priority, highest: 40, members: [{{ priority: 1, \
         is: {{ kind: program, run: [sh, -c, '{look}'] }} }}] }} }}"
    )
}

#[test]
fn t3_host_settings_of_stations_are_applied_for_a_run() {
    let Some(stations) = Stations::start() else { return };
    let (host, scratch) = (&stations.host, stations.host.scratch());
    host.tool("ip -n beta link set eth0 up");
    let set = || {
        let link = host.tool_in("beta", "ip link show eth0");
        let ttl = host.tool_in("beta", "sysctl -n net.ipv4.ip_default_ttl");
        link.split(" qdisc").next().unwrap().to_owned() + &ttl
    };
    let before = set();
    assert!(!before.contains("1460"), "{before}");
    let settings = host_settings(scratch);
    let text = Tiny { name: "tiny", cases: BOTH_CASES, more: "" }.text();
    let address = "address: 10.77.0.2/24";
    let text = text.replace(address, &format!("{address}, host: {settings}"));
    // One stream, which asks for no discipline that a kernel may lack.
    let network = format!(
        "timewire: 1\nkind: network\nname: link\nduration: 200ms\n\
         stations: [alpha, {{ name: beta, host: {settings} }}]\nlinks: [[alpha, beta]]\n\
         streams: [{{ name: s, talker: alpha, listeners: beta, size: 64B, period: 2ms }}]\n"
    );
    for (file, text) in [("tiny.yaml", text.as_str()), ("network.yaml", network.as_str())] {
        scratch.write(file, text);
        let run = ["run", file, "--on", "hosts.yaml"];
        let out = ["--json", "--out", file.trim_end_matches(".yaml")];
        let said = host.timewire(&[&run[..], &out].concat());
        assert!(matches!(said.code, Some(0 | 1)), "{said:?}");
        let seen = fs::read_to_string(scratch.path().join("seen")).unwrap();
        assert!(seen.contains("mtu 1460 ") && seen.ends_with("\n99\n"), "{file}: {seen}");
        fs::remove_file(scratch.path().join("seen")).unwrap();
        assert_eq!(set(), before, "{file}");
        assert!(host.processes_with("group").is_empty(), "{file}");
        // Elsewhere they are no settings of this host.
        let said = host.timewire(&["run", file, "--on", "sim", "--out", &format!("sim-{file}")]);
        assert!(said.stderr.contains("not here: beta\n"), "{said:?}");
        // A verb of a host takes them from the same file.
        let said = host.timewire_in("beta", &["apply", file, "--dry-run"]);
        assert!(said.stdout.contains("1460"), "{said:?}");
        // What the run sets by itself is not for both.
        scratch.write(file, &text.replace("name: eth0, mtu", "name: eth9, mtu"));
        let said = host.timewire(&[&run[..], &["--out", "refused"]].concat());
        let why = "station beta: no interface eth9: there are ";
        assert!(said.code == Some(4) && said.stderr.contains(why), "{said:?}");
        for (key, more) in [
            ("marks", "marks: [{ protocol: udp, to_port: 5000, priority: 6 }]"),
            ("up", "up: true"),
        ] {
            scratch.write(file, &text.replace("mtu: 1460", &format!("mtu: 1460, {more}")));
            let said = host.timewire(&[&run[..], &["--dry-run"]].concat());
            let why = format!("`{key}` of eth0: the run puts its own there");
            assert!(said.code == Some(4) && said.stderr.contains(&why), "{said:?}");
        }
    }
}

#[test]
fn t3_ctrl_c_keeps_what_was_recorded_and_restores_the_hosts() {
    let Some(stations) = Stations::start() else { return };
    let text = Tiny { name: "tiny", cases: BOTH_CASES, more: "" }.text();
    let text = text.replace("\nduration: 250ms", "\nduration: 60s");
    stations.host.scratch().write("tiny.yaml", &text);
    let before = stations.look();
    let words = ["run", "tiny.yaml", "--on", "hosts.yaml", "--out", "out", "--json"];
    let running = stations.host.spawn(&words);
    let has = |what: &str| !stations.host.processes_with(what).is_empty();
    wait_until("the programs run", || has("control-client.json"));
    running.signal("INT");
    let said = running.end();
    assert!(said.code == Some(2) && said.stderr.contains("ended on request"), "{said:?}");
    wait_until("the hosts are as they were", || stations.look() == before);
    assert!(!has("__program") && !has("__connection"));
    // What there is makes a report.
    let said = stations.host.timewire(&["report", "out"]);
    assert!(said.stdout.contains("did not run"), "{said:?}");
}

#[test]
fn t3_a_controller_that_is_killed_leaves_no_host_changed() {
    let Some(stations) = Stations::start() else { return };
    let text = Tiny { name: "tiny", cases: PLAIN_CASE, more: "" }.text();
    let text = text.replace("\nduration: 250ms", "\nduration: 60s");
    stations.host.scratch().write("tiny.yaml", &text);
    let before = stations.look();
    let words = ["run", "tiny.yaml", "--on", "hosts.yaml", "--out", "out", "--json"];
    let running = stations.host.spawn(&words);
    let has = |what: &str| !stations.host.processes_with(what).is_empty();
    wait_until("the programs run", || has("control-client.json"));
    assert_ne!(stations.look(), before);
    running.signal("KILL");
    // The agent that is paired restores its host when its lease is over.
    wait_until("the hosts are as they were", || stations.look() == before);
    wait_until("nothing runs", || !has("__program") && !has("__connection"));
}

/// Two stations on a link, which is the hub here, in two cases.
const NETWORK: &str = "timewire: 1
kind: network
name: link
duration: 200ms
stations: [alpha, beta]
links: [[alpha, beta]]
streams:
  - { name: control, talker: alpha, listeners: beta, class: 5, size: 64B, period: 2ms }
  - { name: files, talker: alpha, listeners: beta, size: 1400B, kind: flood, rate: 5Mbit,
      loads: [files] }
experiment:
  loads: [alone, files]
  cases:
    - { name: one-queue, change: { streams: { control: { class: 0 } } } }
    - { name: priority }
";

#[test]
fn t3_the_cases_of_a_network_run_on_hosts() {
    let Some(stations) = Stations::start() else { return };
    let (host, scratch) = (&stations.host, stations.host.scratch());
    host.tool("ip -n beta link set eth0 up");
    scratch.write("network.yaml", NETWORK);
    let before = stations.look();
    let run = |more: &[&str]| {
        let words = ["run", "network.yaml", "--on", "hosts.yaml", "--out", "out"];
        host.timewire(&[&words[..], more].concat())
    };
    let said = host.timewire(&["doctor", "network.yaml", "--on", "hosts.yaml"]);
    assert!(matches!(said.code, Some(0 | 1 | 4)), "{said:?}");
    assert!(said.stdout.starts_with("link on 2 hosts\n  alpha  eth0 of tls://"), "{said:?}");
    // A busy host may miss what was promised; what it did is there all the same. Some kernels
    // have no strict priority behind a rate: the last case needs it, and is not begun.
    let said = run(&["--json"]);
    let has = host.timewire(&["doctor", "--json"]).json();
    let lacks = |kind: &str| has["probes"]["results"][format!("qdisc.{kind}")]["state"] == "absent";
    let why = |kind: &str| {
        format!(
            "error: link: not supported on hosts.yaml: station alpha: queueing discipline {kind}: "
        )
    };
    let said = if lacks("prio") {
        assert_eq!(said.code, Some(4), "{said:?}");
        assert!(said.stderr.contains(&why("prio")), "{said:?}");
        assert!(!scratch.path().join("out").exists(), "{said:?}");
        // Both streams in one class need none.
        let plain = "{ name: priority, change: { streams: { files: { class: 5 } } } }";
        scratch.write("network.yaml", &NETWORK.replace("{ name: priority }", plain));
        run(&["--json"])
    } else {
        said
    };
    assert!(matches!(said.code, Some(0 | 1)), "{said:?}");
    let summary = said.json();
    let ids: Vec<_> =
        summary["cases"].as_array().unwrap().iter().map(|it| it["id"].as_str().unwrap()).collect();
    assert_eq!(
        ids,
        [
            "link/one-queue/alone",
            "link/one-queue/files",
            "link/priority/alone",
            "link/priority/files",
        ]
    );
    for stream in streams(&summary) {
        let count = |key: &str| stream[key].as_u64().unwrap();
        let sent = count("sent");
        assert!(sent > 50 && count("received") > sent / 2, "{stream}");
        assert_eq!(stream["transfer"]["count"], count("received"), "{stream}");
    }
    let said = host.timewire(&["compare", "--places", "out", "out", "--json"]);
    assert_eq!(said.json()["runs"][0]["place"], "hosts", "{said:?}");
    assert_eq!(stations.look(), before);
    // What the kernel of a station lacks for one of the cases is told before the first of them.
    fs::remove_dir_all(scratch.path().join("out")).unwrap();
    let shaped = "ports: [{ of: [alpha], cbs: [{ class: 5, idle_slope: 10Mbit }] }]";
    let case = format!("{{ name: priority, change: {{ {shaped} }} }}");
    scratch.write("network.yaml", &NETWORK.replace("{ name: priority }", &case));
    let said = run(&[]);
    if lacks("cbs") {
        assert_eq!(said.code, Some(4), "{said:?}");
        assert!(said.stderr.contains(&why("cbs")) && !scratch.path().join("out").exists());
    }
    assert_eq!(stations.look(), before);
}
