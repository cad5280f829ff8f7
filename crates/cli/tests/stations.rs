// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Experiments on stations with agents: phases of many stations, sweeps and checks, the lease, and
//! agents and controllers that are killed at any moment.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::support::{Host, Running, Scratch, TIMEWIRE, timewire, wait_until};
use serde_json::Value as Json;

const TIMING: &str = "{lease: 2s, resend: 100ms, lead: 500ms, phase: 15s, clock_within: 1s}";

/// Stations of one host, each with its agent.
struct Stations {
    host: Host,
    agents: Vec<Running>,
    count: usize,
}

impl Stations {
    /// `None`, after saying why, where it cannot be.
    fn start(count: usize) -> Option<Stations> {
        let host = Host::start()?;
        let mut stations = Stations { host, agents: Vec::new(), count };
        let names: Vec<String> = (0..count).map(|n| format!("s{n}")).collect();
        let of =
            |(n, name): (usize, &String)| (name.clone(), format!("unix:{}", stations.socket(n)));
        let hosts: Vec<_> = names.iter().enumerate().map(of).collect();
        let hosts: Vec<_> = hosts.iter().map(|(name, agent)| (name.as_str(), agent)).collect();
        stations.host.scratch().hosts(&hosts);
        for number in 0..count {
            // Each is a host of its own as far as its network settings go.
            stations.host.tool(&format!("ip netns add s{number}"));
            let agent = stations.agent(number);
            stations.agents.push(agent);
        }
        (0..count).for_each(|number| stations.serves(number));
        Some(stations)
    }

    fn socket(&self, number: usize) -> String {
        self.host.scratch().join(&format!("s{number}.sock"))
    }

    fn agent(&self, number: usize) -> Running {
        let (socket, directory) = (self.socket(number), self.directory(number));
        let state = format!("TIMEWIRE_STATE_DIR={}", self.host.scratch().join("state"));
        let serve = ["agent", "serve", "--socket", &socket, "--dir", &directory];
        let words = [&["env", &state, TIMEWIRE], &serve[..]].concat();
        self.host.spawn_in(&format!("s{number}"), &words)
    }

    fn directory(&self, number: usize) -> String {
        self.host.scratch().join(&format!("agent-{number}"))
    }

    fn serves(&self, number: usize) {
        let socket = self.socket(number);
        wait_until("the agent serves", || std::os::unix::net::UnixStream::connect(&socket).is_ok());
    }

    /// The controller, with results in `out`.
    fn controller(&self) -> Running {
        self.host.spawn(&["run", "e.yaml", "--on", "hosts.yaml", "--out", "out", "--json"])
    }

    fn forward(&self, number: usize) -> String {
        let file = "/proc/sys/net/ipv4/ip_forward";
        self.host.tool_in(&format!("s{number}"), &format!("cat {file}")).trim().to_owned()
    }

    fn out(&self) -> PathBuf {
        self.host.scratch().path().join("out")
    }

    /// Waits until no agent has anything of an experiment to restore or to end.
    fn are_restored(&self) {
        wait_until("all hosts are as they were", || {
            (0..self.count).all(|number| self.forward(number) == "0")
                && self.host.processes_with("987654").is_empty()
        });
    }
}

/// Applies host settings, starts a program that goes on, and leaves records.
const EVENTFUL: &str = "
    phases:
      setup: [{snapshot: before.json}, {apply: host.yaml}]
      open: [{start: [sleep, '987654'], name: server}]
      run: [{run: [sh, -c, 'cat /proc/sys/net/ipv4/ip_forward; sleep 0.1'], name: work}]
      close: [{stop: server}]
";

const HOST_SETTINGS: &str = "timewire: 1
kind: network
name: forwarding
stations: [{name: alpha, host: {sysctls: [{name: net.ipv4.ip_forward, value: '1'}]}}]
";

fn eventful(stations: &Stations) -> String {
    stations.host.scratch().write("host.yaml", HOST_SETTINGS);
    let station = |n| format!("  - name: s{n}{EVENTFUL}");
    let all: String = (0..stations.count).map(station).collect();
    let text = format!(
        "timewire: 1\nkind: network\nname: kills\nexperiment: {{timing: {TIMING}}}\n\
         stations:\n{all}\
         checks:\n  - {{station: s0, record: work.out, value: '', at_least: 1}}\n"
    );
    stations.host.scratch().write("e.yaml", &text)
}

fn summary(stations: &Stations) -> Json {
    serde_json::from_slice(&fs::read(stations.out().join("summary.json")).unwrap()).unwrap()
}

#[test]
fn t3_a_paired_station_and_a_namespace_are_reached() {
    let Some(host) = Host::start() else { return };
    // The keys and journals of this host.
    host.tool("mount -t tmpfs tmpfs /var/lib");
    host.tool("ip netns add inner");
    let directory = host.scratch().join("agent");
    let offer = host.spawn(&["agent", "pair", "--listen", "127.0.0.1:28412", "--dir", &directory]);
    let mut code = String::new();
    wait_until("the agent shows a code", || {
        let said = host.scratch().list().into_iter().filter(|name| name.ends_with(".stdout"));
        let said: String = said
            .map(|name| fs::read_to_string(host.scratch().path().join(name)).unwrap())
            .collect();
        code = said.split("--code ").nth(1).unwrap_or_default().trim().to_owned();
        !code.is_empty()
    });
    host.timewire(&["agent", "pair", "127.0.0.1:28412", "--code", &code]).done();
    offer.end().done();
    let agent = host.spawn(&["agent", "serve", "--listen", "127.0.0.1:28411", "--dir", &directory]);
    wait_until("the agent serves", || agent.stderr().contains("serving on"));
    host.scratch().hosts(&[("s0", "netns:inner"), ("s1", "tls://127.0.0.1:28411")]);
    host.scratch().write("e.yaml", &SWEEP.replace("TIMING", TIMING));
    let said = host.timewire(&["run", "e.yaml", "--on", "hosts.yaml", "--out", "out", "--json"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert_eq!(said.json()["results"].as_array().unwrap().len(), 4, "{said:?}");
    host.scratch().hosts(&[("s0", "netns:inner")]);
    let said = host.timewire(&["run", "e.yaml", "--on", "hosts.yaml", "--out", "other"]);
    assert!(said.code == Some(2) && said.stderr.contains("no station `s1`"), "{said:?}");
}

#[test]
fn t3_a_station_is_reached_over_a_real_ssh_server() {
    if !Path::new(SSHD).exists() {
        eprintln!("SKIP: sshd (package openssh-server) is not installed");
        return;
    }
    let Some(host) = Host::start() else { return };
    // The keys, the user's and the server's, and the journals are this host's.
    let root = host.tool("getent passwd root");
    let keys = format!("{}/.ssh", root.split(':').nth(5).unwrap());
    let is_there = Path::new(&keys).exists();
    for place in ["/var/lib", &keys] {
        host.tool(&format!("mkdir -p {place}"));
        host.tool(&format!("mount -t tmpfs -o mode=700 tmpfs {place}"));
    }
    host.tool("mkdir -p /run/sshd");
    let at = |name: &str| host.scratch().join(name);
    for key in ["user", "server", "other"] {
        host.tool_words("", &["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", &at(key)]);
    }
    let public =
        |key: &str| fs::read_to_string(at(&format!("{key}.pub"))).unwrap().trim().to_owned();
    host.scratch().write("authorized", &public("user"));
    fs::create_dir(at("bin")).unwrap();
    std::os::unix::fs::symlink(TIMEWIRE, at("bin/timewire")).unwrap();
    let server = format!(
        "ListenAddress 127.0.0.1:2222\nHostKey {}\nAuthorizedKeysFile {}\nStrictModes no\n\
         PermitRootLogin prohibit-password\nPasswordAuthentication no\nUsePAM no\n\
         PidFile none\nSetEnv PATH={}:/usr/sbin:/usr/bin:/sbin:/bin\n",
        at("server"),
        at("authorized"),
        at("bin")
    );
    let server = host.scratch().write("sshd_config", &server);
    let _sshd = host.spawn_in("", &[SSHD, "-D", "-e", "-f", &server]);
    wait_until("sshd listens", || {
        host.tool("cat /proc/net/tcp").contains("0100007F:08AE 00000000:0000 0A")
    });
    let knows = |key: &str| {
        let line = format!("[127.0.0.1]:2222 {}\n", public(key));
        let known = host.scratch().write("known", &line);
        let config = format!(
            "Host st1\n  HostName 127.0.0.1\n  Port 2222\n  User root\n  IdentityFile {}\n  \
             IdentitiesOnly yes\n  UserKnownHostsFile {known}\n  StrictHostKeyChecking yes\n",
            at("user")
        );
        fs::write(host.see(&format!("{keys}/config")), config).unwrap();
    };
    host.scratch().hosts(&[("s0", "ssh://st1")]);
    let one = "stations:\n  - name: s0\n    phases: {run: [{run: [sh, -c, 'echo $SSH_CLIENT'], \
               name: say}]}\n";
    let timing = TIMING.replace("phase: 15s", "phase: 4s");
    let text = format!(
        "timewire: 1\nkind: network\nname: over-ssh\nexperiment: {{timing: {timing}}}\n{one}"
    );
    host.scratch().write("e.yaml", &text);
    let run = |out: &str| host.timewire(&["run", "e.yaml", "--on", "hosts.yaml", "--out", out]);
    // A server that is not the one that is known is not talked to.
    knows("other");
    let said = run("refused");
    assert!(said.code == Some(2) && said.stderr.contains("s0 cannot be reached"), "{said:?}");
    knows("server");
    let said = run("out");
    assert_eq!(said.code, Some(0), "{said:?}");
    let record = fs::read_to_string(at("out/0001/records/s0/say.out")).unwrap();
    assert!(record.starts_with("127.0.0.1 "), "{record}");
    // The agent ended with its link.
    wait_until("no agent is left", || host.processes_with("--stdio").is_empty());
    if !is_there {
        fs::remove_dir(&keys).unwrap();
    }
}

const SSHD: &str = "/usr/sbin/sshd";

const SWEEP: &str = "timewire: 1
kind: network
name: sweep
seed: 3
experiment:
  repeats: 2
  timing: TIMING
  variables: [{name: n, from: 1, to: 2}]
stations:
  - {name: s0, phases: {run: [{run: [sh, -c, 'echo $TIMEWIRE_N ${n}'], name: say}]}}
  - {name: s1, phases: {run: [{run: [echo, '{\"n\": ${n}}'], name: say}]}}
checks:
  - {station: s1, record: say.out, value: /n, at_most: 1}
";

#[test]
fn t3_a_sweep_is_performed_judged_and_not_done_twice() {
    let Some(stations) = Stations::start(2) else { return };
    let scratch = stations.host.scratch();
    let text = SWEEP.replace("TIMING", TIMING);
    scratch.write("e.yaml", &text);
    let said = stations.controller().end();
    assert_eq!(said.code, Some(1), "{said:?}");
    let results = said.json()["results"].clone();
    let numbers: Vec<_> = (0..4).map(|i| results[i]["checks"][0]["number"].clone()).collect();
    assert_eq!(numbers, [1.0, 1.0, 2.0, 2.0]);
    // Its report has them, each value of the variable in a row.
    let report = stations.host.timewire(&["report", "out", "--json"]);
    let checked = &report.json()["sections"][0];
    assert_eq!((report.code, &checked["title"]), (Some(1), &"What was checked".into()));
    let rows = checked["tables"][0]["rows"].as_array().unwrap().clone();
    let told: Vec<_> = rows.iter().map(|row| (row[1].clone(), row[3].clone())).collect();
    assert_eq!(told, [("2".into(), "1".into()), ("2".into(), "2".into())]);
    let out = stations.out();
    let record = |number: &str| fs::read_to_string(out.join(number).join("records/s0/say.out"));
    assert_eq!(
        (record("0002").unwrap(), record("0003").unwrap()),
        ("1 1\n".into(), "2 2\n".into())
    );
    // A half-done sweep goes on with what is not done, as another trial of the same run.
    let before = fs::read(out.join("0001/end.json")).unwrap();
    fs::remove_dir_all(out.join("0004")).unwrap();
    let again = stations.controller().end();
    assert_eq!(again.code, Some(2), "an experiment's name is used once: {again:?}");
    assert_eq!(fs::read(out.join("0001/end.json")).unwrap(), before);
    scratch.write("e.yaml", &text.replace("seed: 3", "seed: 4"));
    let other = stations.controller().end();
    assert!(other.code == Some(2) && other.stderr.contains("another text"), "{other:?}");
}

#[test]
fn t3_64_agents_keep_phases_and_barriers() {
    let Some(stations) = Stations::start(64) else { return };
    let log = stations.host.scratch().join("log");
    let phases = ["setup", "open", "run", "finish", "close", "report", "teardown"];
    let step = |phase: &str, n: usize| {
        format!(
            "      {phase}: {{order: {}, steps: [{{run: [sh, -c, 'echo {phase} {n} >> {log}'], \
             name: {phase}}}]}}\n",
            n % 2
        )
    };
    let station = |n| {
        let parts: String = phases.iter().map(|phase| step(phase, n)).collect();
        format!("  - name: s{n}\n    phases:\n{parts}")
    };
    let all: String = (0..64).map(station).collect();
    let timing = "{lease: 20s, resend: 1s, lead: 3s, clock_within: 1s, phase: 60s}";
    let text = format!(
        "timewire: 1\nkind: network\nname: many\nexperiment: {{timing: {timing}}}\n\
         stations:\n{all}"
    );
    stations.host.scratch().write("e.yaml", &text);
    let said = stations.controller().end();
    assert_eq!(said.code, Some(0), "{said:?}");
    // Each of both orders had its instant, and all stations tell when they really began.
    for index in [0, 1] {
        let start = &said.json()["results"][0]["starts"][index];
        assert_eq!((&start["started"], &start["unknown"]), (&32.into(), &0.into()), "{start:#}");
        let stations = start["stations"].as_object().unwrap().values();
        for station in stations {
            assert!(station["difference_ns"].as_i64() >= Some(0), "{station:#}");
            assert!(station["clock_error_ns"].as_i64() > Some(0), "{station:#}");
        }
    }
    let log = fs::read_to_string(&log).unwrap();
    let lines: Vec<(usize, usize)> = log
        .lines()
        .map(|line| {
            let (phase, number) = line.split_once(' ').unwrap();
            (phases.iter().position(|p| *p == phase).unwrap(), number.parse().unwrap())
        })
        .collect();
    assert_eq!(lines.len(), 7 * 64);
    // One after the other: the phases, and in each the even stations before the odd ones.
    let groups: Vec<_> = lines.iter().map(|(phase, number)| (*phase, number % 2)).collect();
    assert!(groups.is_sorted(), "{log}");
    for n in 0..64 {
        assert!(stations.out().join(format!("0001/records/s{n}/run.out")).exists());
    }
}

#[test]
fn t3_a_station_that_hears_nothing_puts_its_host_back_and_keeps_its_records() {
    let Some(stations) = Stations::start(2) else { return };
    let text = eventful(&stations);
    let slow = fs::read_to_string(&text).unwrap().replace("sleep 0.1", "exec sleep 300");
    fs::write(&text, slow).unwrap();
    let controller = stations.controller();
    wait_until("the hosts are changed", || (0..2).all(|n| stations.forward(n) == "1"));
    wait_until("the programs run", || stations.host.processes_with("300").len() == 2);
    drop(controller);
    stations.are_restored();
    // It comes back, is told why, and fetches what there is.
    let said = stations.controller().end();
    assert_eq!(said.code, Some(2), "{said:?}");
    let failures = summary(&stations)["results"][0]["failures"].to_string();
    assert!(failures.contains("length of its lease"), "{failures}");
    assert!(stations.out().join("0001/records/s1/work.out").exists());
}

#[test]
fn t1_options_of_scenarios_are_refused_and_not_passed_over() {
    let scratch = Scratch::new();
    let text = "timewire: 1\nkind: network\nname: e\n\
                stations: [{name: s, phases: {run: [{snapshot: s.json}]}}]\n";
    let file = scratch.write("e.yaml", text);
    for words in ["--quick", "--trace", "--baseline x"] {
        let option = words.split(' ').next().unwrap();
        let given: Vec<&str> =
            ["run", &file, "--dry-run"].into_iter().chain(words.split(' ')).collect();
        let error = format!(
            "error: {option} is for networks with streams, not for networks with phases alone\n"
        );
        timewire(&given).failed(2, &error);
    }
    for (option, value, why) in [
        (
            "--kernel",
            "6.1",
            "--kernel is for `--on lab:uml` and `--on lab:qemu`; other kernels are",
        ),
        ("--time", "wall", "--time is for `--on lab:uml`; elsewhere time passes"),
    ] {
        let rest = if option == "--kernel" { "as they are" } else { "as it does" };
        let error = format!("error: {why} {rest}\n");
        timewire(&["run", &file, "--dry-run", option, value]).failed(2, &error);
    }
    timewire(&["run", &file, "--dry-run", "--clock-error", "1ms"]).failed(
        2,
        "error: --clock-error is for hosts; the stations of a laboratory and of a simulation share \
         a clock\n",
    );
    timewire(&["run", &file, "--dry-run", "--seed", "5"])
        .failed(2, "error: --seed is for a comparison; name the run with --baseline DIR\n");
}

#[test]
fn t3_an_agent_keeps_nothing_where_others_can_write() {
    let scratch = Scratch::new();
    let open = scratch.path().join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    let (dir, socket) =
        (open.display().to_string(), scratch.path().join("s").display().to_string());
    let said = timewire(&["agent", "serve", "--dir", &dir, "--socket", &socket]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.stderr.contains("mode 0777"), "{said:?}");
    assert_eq!(fs::read_dir(&open).unwrap().count(), 0);
}

#[test]
fn t3_ctrl_c_ends_an_experiment_with_its_records_and_hosts_back() {
    let Some(stations) = Stations::start(1) else { return };
    let text = eventful(&stations);
    let slow = fs::read_to_string(&text).unwrap().replace("sleep 0.1", "echo seen; sleep 300");
    fs::write(&text, slow).unwrap();
    let controller = stations.controller();
    wait_until("the program runs", || stations.host.processes_with("300").len() == 1);
    controller.signal("INT");
    let said = controller.end();
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.stderr.contains("ended on request"), "{said:?}");
    stations.are_restored();
    let record = fs::read_to_string(stations.out().join("0001/records/s0/work.out")).unwrap();
    assert_eq!(record, "1\nseen\n");
    // What was ended so is not repeated.
    assert_eq!(stations.controller().end().code, Some(2));
    let failures = &summary(&stations)["results"][0]["failures"];
    assert_eq!(failures.as_array().unwrap().len(), 1, "{failures}");
}

#[test]
fn t3_an_agent_that_ends_and_cannot_put_its_host_back_says_so() {
    let Some(mut stations) = Stations::start(1) else { return };
    let text = eventful(&stations);
    let slow = fs::read_to_string(&text).unwrap().replace("sleep 0.1", "sleep 300");
    fs::write(&text, slow).unwrap();
    let _controller = stations.controller();
    wait_until("the program runs", || stations.host.processes_with("300").len() == 1);
    // Where it is written what was applied.
    let state = stations.host.scratch().path().join("state");
    fs::rename(&state, state.with_extension("gone")).unwrap();
    fs::write(&state, "no directory").unwrap();
    let agent = stations.agents.remove(0);
    agent.signal("TERM");
    let said = agent.end();
    assert_eq!(said.code, Some(3), "{said:?}");
    assert!(said.stderr.contains("error: this host is left changed: "), "{said:?}");
}

/// Everything that an agent's journal says it keeps is there, or at the controller.
fn no_record_is_lost(stations: &Stations, number: usize) {
    let directory = PathBuf::from(stations.directory(number)).join("work");
    let journal = fs::read_to_string(directory.join("journal")).unwrap();
    // Of this round; the records of those before went with their results.
    let end = fs::read(stations.out().join("0001/end.json")).unwrap();
    let end: Json = serde_json::from_slice(&end).unwrap();
    for line in journal.lines().filter(|line| line.contains("\"kept\"")) {
        let entry: Json = serde_json::from_str(&line[9..]).unwrap();
        let experiment = entry["ended"]["experiment"].as_str().unwrap();
        if end["experiment"] != experiment {
            continue;
        }
        let records = entry["ended"]["outcome"]["kept"]["records"].as_array().unwrap();
        for record in records {
            let name = record["name"].as_str().unwrap();
            let here = directory.join("experiments").join(experiment).join(name);
            let there = stations.out().join(format!("0001/records/s{number}")).join(name);
            let size = |path: &Path| fs::metadata(path).ok().map(|found| found.len());
            let is_kept = [here, there].iter().any(|path| size(path) == record["bytes"].as_u64());
            let told = fs::read_to_string(stations.out().join("0001/journal")).unwrap();
            assert!(is_kept, "station {number} has lost {name}:\n{journal}\n{told}");
        }
    }
}

/// One experiment in which one side is killed after so long; what the controller said at last.
fn killed(stations: &mut Stations, victim: usize, after: Duration) -> Option<i32> {
    let _ = fs::remove_dir_all(stations.out());
    let controller = stations.controller();
    std::thread::sleep(after);
    let said = if victim == stations.count {
        drop(controller);
        stations.controller().end()
    } else {
        drop(stations.agents.remove(victim));
        let agent = stations.agent(victim);
        stations.agents.insert(victim, agent);
        controller.end()
    };
    stations.are_restored();
    assert!(stations.out().join("0001/end.json").exists(), "{said:?}");
    (0..stations.count).for_each(|number| no_record_is_lost(stations, number));
    let code = said.code;
    assert!(matches!(code, Some(0 | 2)), "{said:?}");
    assert!(!summary(stations)["results"][0].is_null(), "{said:?}");
    code
}

/// Sixteen moments, or two hundred when `TIMEWIRE_SLOW=1` asks for them.
#[test]
fn t3_killed_at_any_moment_every_host_is_restored_and_no_record_lost() {
    let Some(mut stations) = Stations::start(3) else { return };
    eventful(&stations);
    let rounds = if std::env::var_os("TIMEWIRE_SLOW").is_some() { 200 } else { 16 };
    let mut state = 0x5eed_u64;
    let (mut whole, mut failed) = (0, 0);
    for round in 0..rounds {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let victim = usize::try_from((state >> 33) % 5).unwrap().min(stations.count);
        let after = Duration::from_millis((state >> 40) % 1_600);
        eprintln!("round {round}: {victim} is killed after {after:?}");
        match killed(&mut stations, victim, after) {
            Some(0) => whole += 1,
            _ => failed += 1,
        }
    }
    eprintln!("{whole} experiments went on to their end, {failed} failed and said so");
    assert!(whole > 0 && failed > 0, "{whole} whole, {failed} failed: the moments miss something");
}
