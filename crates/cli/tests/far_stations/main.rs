// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stations that are far away: agents behind half a second of delay and losses of one packet in
//! twenty, each way, over mutual TLS. In a machine of the laboratory and its virtual time, where
//! each station is a network namespace and `netem` is the network.
//!
//! Four stations, 64 when `TIMEWIRE_SLOW=1` asks for them, or as many as `TIMEWIRE_STATIONS` says:
//! with each number other packets are lost.
//!
//! Not here: stations that are near (`stations`), links alone (`timewire-agent`).
#![expect(clippy::unwrap_used, reason = "a test fails by panicking; it has a main of its own")]

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value as Json;
use timewire_agent::links::{Identity, Peers, Role};
use timewire_lab::trial::{self, Trial};
use timewire_lab::uml::Kernel;

fn main() -> ExitCode {
    trial::main(&[
        Trial::new("t4_far_stations_keep_phases_barriers_and_the_common_start", whole)
            .prepared(how_many)
            .memory(MEMORY_MIB)
            .limit(LIMIT),
        Trial::new("t4_far_stations_are_restored_when_agents_are_killed_and_links_cut", killed)
            .prepared(how_many)
            .memory(MEMORY_MIB)
            .limit(LIMIT),
        Trial::new("t4_a_far_station_whose_link_is_cut_for_a_while_goes_on", cut_for_a_while),
    ])
}

const TIMEWIRE: &str = env!("CARGO_BIN_EXE_timewire");
const COUNT: &str = "TIMEWIRE_STATIONS";
const MEMORY_MIB: u32 = 2_048;
/// On the host, for 64 stations on a busy machine.
const LIMIT: Duration = Duration::from_secs(900);
/// Each way.
const NETWORK: &str = "delay 500ms loss 5% limit 10000";
/// The times are those that an experiment has by itself, but for the difference of clocks: over
/// such a network it cannot be known to less than half a round trip.
const TIMING: &str = "{clock_within: 3s, preflight: 30s, start_within: 5ms}";
const PHASES: [&str; 7] = ["setup", "open", "run", "finish", "close", "report", "teardown"];
const HOST_SETTINGS: &str = "timewire: 1
kind: network
name: forwarding
stations: [{name: alpha, host: {sysctls: [{name: net.ipv4.ip_forward, value: '1'}]}}]
";

#[expect(clippy::unnecessary_wraps, reason = "as a preparation is")]
fn how_many(_: &Kernel) -> Result<Vec<(String, String)>, String> {
    let is_slow = std::env::var("TIMEWIRE_SLOW").is_ok_and(|value| value == "1");
    let count = std::env::var(COUNT);
    Ok(vec![(COUNT.to_owned(), count.unwrap_or(if is_slow { "64" } else { "4" }.to_owned()))])
}

fn count() -> usize {
    std::env::var(COUNT).unwrap().parse().unwrap()
}

/// Stations of this machine, each with an agent and a link to the controller.
struct Stations {
    directory: PathBuf,
    agents: Vec<Child>,
}

impl Stations {
    fn start(count: usize) -> Stations {
        // The controller's keys.
        tool(&["mount", "-t", "tmpfs", "tmpfs", "/var/lib"]);
        let directory = PathBuf::from(format!("/tmp/far-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let mut stations = Stations { directory, agents: Vec::new() };
        let controller = Path::new("/var/lib/timewire/agent");
        fs::create_dir_all("/var/lib/timewire").unwrap();
        let desk = Identity::load_or_create(controller).unwrap();
        let mut hosts = "timewire: 1\nkind: hosts\nstations:\n".to_owned();
        for number in 0..count {
            stations.connect(number);
            let keys = stations.keys(number);
            let identity = Identity::load_or_create(&keys).unwrap();
            let peers = Peers::in_directory(&keys);
            peers.add(Role::Controller, "desk", desk.fingerprint()).unwrap();
            let name = format!("s{number}");
            let peers = Peers::in_directory(controller);
            peers.add(Role::Agent, &name, identity.fingerprint()).unwrap();
            let agent = address(number);
            hosts += &format!("  - {{ name: {name}, agent: 'tls://{agent}:28411' }}\n");
            let agent = stations.agent(number);
            stations.agents.push(agent);
        }
        fs::write(stations.at("hosts.yaml"), hosts).unwrap();
        fs::write(stations.at("host.yaml"), HOST_SETTINGS).unwrap();
        for number in 0..count {
            let said = stations.at(&format!("agent-{number}.stderr"));
            wait_until("the agent serves", || {
                fs::read_to_string(&said).unwrap().contains("serving on")
            });
            stations.network(number, NETWORK);
        }
        stations
    }

    /// A namespace and a link to it.
    fn connect(&self, number: usize) {
        let near = format!("10.77.{number}.1");
        batch(
            &["ip", "-batch", "-"],
            &format!(
                "netns add s{number}\nlink add v{number} type veth peer name eth0 netns s{number}\n\
                 addr add {near}/24 dev v{number}\nlink set v{number} up\n"
            ),
        );
        batch(
            &["ip", "-n", &format!("s{number}"), "-batch", "-"],
            &format!(
                "link set lo up\naddr add {}/24 dev eth0\nlink set eth0 up\n",
                address(number)
            ),
        );
    }

    /// What the network of a station does, in both directions.
    fn network(&self, number: usize, netem: &str) {
        let netem: Vec<&str> = netem.split(' ').collect();
        let (near, far) = (format!("v{number}"), format!("s{number}"));
        let near = ["tc", "qdisc", "replace", "dev", &near, "root", "netem"];
        let far = ["tc", "-n", &far, "qdisc", "replace", "dev", "eth0", "root", "netem"];
        tool(&[&near[..], &netem].concat());
        tool(&[&far[..], &netem].concat());
    }

    /// How many packets were lost in both directions.
    fn lost(&self, number: usize) -> u64 {
        let far = format!("s{number}");
        let shown = [
            tool(&["tc", "-s", "qdisc", "show", "dev", &format!("v{number}")]),
            tool(&["tc", "-n", &far, "-s", "qdisc", "show", "dev", "eth0"]),
        ];
        let dropped = |shown: &String| -> u64 {
            let (_, dropped) = shown.split_once("(dropped ").unwrap();
            dropped.split(',').next().unwrap().parse().unwrap()
        };
        shown.iter().map(dropped).sum()
    }

    fn agent(&self, number: usize) -> Child {
        let listen = format!("{}:28411", address(number));
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &format!("s{number}"), TIMEWIRE, "agent", "serve"]);
        // All of them would look at one machine, process by process, on one processor.
        command.arg("--disposable");
        command.args(["--listen", &listen, "--dir"]).arg(self.keys(number));
        command.env("TIMEWIRE_STATE_DIR", self.at("state")).stdin(Stdio::null());
        let said = File::create(self.at(&format!("agent-{number}.stderr"))).unwrap();
        command.stdout(Stdio::null()).stderr(said).spawn().unwrap()
    }

    fn keys(&self, number: usize) -> PathBuf {
        self.at(&format!("agent-{number}"))
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Starts the controller; what it says is in `run.stdout` and `run.stderr`.
    fn controller(&self) -> Child {
        let mut command = Command::new(TIMEWIRE);
        command.args(["run", "e.yaml", "--on", "hosts.yaml", "--out", "out", "--json"]);
        command.current_dir(&self.directory).stdin(Stdio::null());
        let file = |name: &str| File::create(self.at(name)).unwrap();
        command.stdout(file("run.stdout")).stderr(file("run.stderr")).spawn().unwrap()
    }

    /// Waits for the controller's end; its exit code and the result of the trial.
    fn end(&self, mut controller: Child) -> (Option<i32>, Json) {
        let mut code = None;
        wait_until("the controller ends", || {
            code = controller.try_wait().unwrap();
            code.is_some()
        });
        let said = fs::read_to_string(self.at("run.stdout")).unwrap();
        let errors = fs::read_to_string(self.at("run.stderr")).unwrap();
        let json: Json = serde_json::from_str(&said).unwrap_or_else(|e| panic!("{e}: {errors}"));
        eprintln!("{errors}");
        (code.unwrap().code(), json["results"][0].clone())
    }

    /// Writes the experiment: each station does in `phase` what `steps` says.
    fn experiment(&self, count: usize, steps: impl Fn(&str, usize) -> String) {
        let mut all = String::new();
        for number in 0..count {
            all += &format!("  - name: s{number}\n    phases:\n");
            for phase in PHASES {
                all += &format!("      {phase}: {}\n", steps(phase, number));
            }
        }
        let text = format!(
            "timewire: 1\nkind: network\nname: far\nexperiment: {{timing: {TIMING}}}\n\
             stations:\n{all}"
        );
        fs::write(self.at("e.yaml"), text).unwrap();
    }

    /// The lines that programs wrote, as phases and stations.
    fn log(&self) -> Vec<(usize, usize)> {
        let log = fs::read_to_string(self.at("log")).unwrap_or_default();
        let line = |line: &str| {
            let (phase, number) = line.split_once(' ').unwrap();
            (PHASES.iter().position(|known| *known == phase).unwrap(), number.parse().unwrap())
        };
        log.lines().map(line).collect()
    }

    /// No program runs any more, and all settings are what they were.
    fn are_restored(&self) -> bool {
        let is_back = |number: usize| {
            let file = "/proc/sys/net/ipv4/ip_forward";
            tool(&["ip", "netns", "exec", &format!("s{number}"), "cat", file]).trim() == "0"
        };
        (0..self.agents.len()).all(is_back) && !is_running(LONG)
    }

    /// How many links the agents took.
    fn links(&self) -> usize {
        (0..self.agents.len()).map(|number| self.links_of(number)).sum()
    }

    fn links_of(&self, number: usize) -> usize {
        let said = fs::read_to_string(self.at(&format!("agent-{number}.stderr"))).unwrap();
        said.lines().filter(|line| line.contains("link of")).count()
    }
}

impl Drop for Stations {
    fn drop(&mut self) {
        for agent in &mut self.agents {
            let _ = agent.kill();
            let _ = agent.wait();
        }
    }
}

fn address(number: usize) -> String {
    format!("10.77.{number}.2")
}

/// A word in the command of the programs that go on.
const LONG: &str = "987654";

fn is_running(word: &str) -> bool {
    let commands = fs::read_dir("/proc").unwrap().flatten();
    let mut commands = commands.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    commands.any(|command| command.split(|byte| *byte == 0).any(|part| part == word.as_bytes()))
}

#[track_caller]
fn tool(words: &[&str]) -> String {
    let done = Command::new(words[0]).args(&words[1..]).output().unwrap();
    assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

#[track_caller]
fn batch(words: &[&str], lines: &str) {
    let mut command = Command::new(words[0]);
    let mut tool = command.args(&words[1..]).stdin(Stdio::piped()).spawn().unwrap();
    tool.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    assert!(tool.wait().unwrap().success(), "{words:?}: {lines}");
}

/// Computing takes no time here, so a wait must sleep.
#[track_caller]
fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(3_000), "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// A step that writes its phase and station into the log.
fn writes(stations: &Stations, phase: &str, number: usize) -> String {
    let log = stations.at("log").display().to_string();
    format!("{{run: [sh, -c, 'echo {phase} {number} >> {log}'], name: {phase}}}")
}

fn whole() {
    let count = count();
    let stations = Stations::start(count);
    stations.experiment(count, |phase, number| {
        let (order, apply) = match phase {
            "setup" => (number % 2, "{snapshot: before.json}, {apply: host.yaml}, "),
            "run" => (0, ""),
            _ => (number % 2, ""),
        };
        format!("{{order: {order}, steps: [{apply}{}]}}", writes(&stations, phase, number))
    });
    let began = Instant::now();
    let (code, result) = stations.end(stations.controller());
    let seconds = began.elapsed().as_secs();
    assert_eq!(code, Some(0), "{result:#}");
    let log = stations.log();
    assert_eq!(log.len(), PHASES.len() * count);
    // One after the other: the phases, and in each but `run` the even stations before the odd ones.
    let order =
        |(phase, number): &(usize, usize)| (*phase, if *phase == 2 { 0 } else { number % 2 });
    let groups: Vec<_> = log.iter().map(order).collect();
    assert!(groups.is_sorted(), "{log:?}");
    // All records are here, and all hosts back.
    for number in 0..count {
        let records = stations.at(&format!("out/0001/records/s{number}"));
        assert!(records.join("before.json").exists() && records.join("run.out").exists());
    }
    assert!(stations.are_restored());
    // All began at the common instant. In virtual time only timers add something.
    let start = &result["starts"][0];
    assert_eq!(start["started"], count, "{start:#}");
    assert_eq!((&start["late"], &start["unknown"]), (&0.into(), &0.into()));
    let number = |key: &str| start[key].as_i64().unwrap();
    assert!(number("min_ns") >= 0 && number("max_ns") <= 5_000_000, "{start:#}");
    assert_eq!(result["checks"][0]["verdict"], "pass", "{result:#}");
    for (name, station) in start["stations"].as_object().unwrap() {
        // Half a round trip of at least a second.
        let error = station["clock_error_ns"].as_i64().unwrap();
        assert!((500_000_000..3_000_000_000).contains(&error), "{name}: {station:#}");
    }
    let lost: u64 = (0..count).map(|number| stations.lost(number)).sum();
    assert!(lost > 0);
    eprintln!(
        "{count} stations: {seconds} s of virtual time, {} links, {lost} packets lost; start: \
         min {} ns, median {} ns, max {} ns, spread {} ns, with the clocks at most {} ns",
        stations.links(),
        number("min_ns"),
        number("median_ns"),
        number("max_ns"),
        number("spread_ns"),
        number("spread_within_ns"),
    );
}

/// All stations change their hosts and run programs that go on; then the test goes on.
fn long_running(stations: &Stations, count: usize, seconds: &str) {
    let log = stations.at("log").display().to_string();
    stations.experiment(count, |phase, number| match phase {
        "setup" => "{steps: [{apply: host.yaml}]}".to_owned(),
        "open" => format!("{{steps: [{{start: [sleep, '{LONG}'], name: server}}]}}"),
        "run" => format!(
            "{{steps: [{{run: [sh, -c, 'echo run {number} >> {log}; exec sleep {seconds}'], \
             name: work, timeout: 1000s}}]}}"
        ),
        "close" => "{steps: [{stop: server}]}".to_owned(),
        _ => "{}".to_owned(),
    });
}

fn killed() {
    let count = count();
    let mut stations = Stations::start(count);
    long_running(&stations, count, "200");
    let began = Instant::now();
    let controller = stations.controller();
    wait_until("all programs run", || stations.log().len() == count);
    assert!(!stations.are_restored());
    // An agent is killed and does not come back, one is killed and does, and a link is cut.
    for victim in [0, 1] {
        stations.agents[victim].kill().unwrap();
        stations.agents[victim].wait().unwrap();
    }
    stations.agents[1] = stations.agent(1);
    stations.network(2, "loss 100%");
    let (code, result) = stations.end(controller);
    assert_eq!(code, Some(2), "{result:#}");
    assert_eq!(result["left"], serde_json::json!({}));
    // It cannot be asked; the one whose agent came back can.
    assert_eq!(result["unasked"], serde_json::json!(["s0", "s2"]), "{result:#}");
    let failures = result["failures"].to_string();
    assert!(failures.contains("run: s1: it restored its host: its agent ended"), "{failures}");
    // All that could be asked told when they began, though they were stopped; but for those whose
    // link broke, which may have been as they told it.
    let start = &result["starts"][0];
    let told = start["stations"].as_object().unwrap().iter();
    let unknown = told.filter(|(_, station)| station["state"] == "unknown");
    for (name, station) in unknown.filter(|(name, _)| !["s0", "s1", "s2"].contains(&name.as_str()))
    {
        let number = name[1..].parse().unwrap();
        assert!(stations.links_of(number) > 1, "{name}: {station:#}, its link did not break");
    }
    let seconds = began.elapsed().as_secs();
    wait_until("all hosts are as they were", || stations.are_restored());
    eprintln!("{count} stations, 2 agents killed, 1 link cut: {seconds} s of virtual time");
}

fn cut_for_a_while() {
    let stations = Stations::start(2);
    long_running(&stations, 2, "40");
    let controller = stations.controller();
    wait_until("all programs run", || stations.log().len() == 2);
    stations.network(1, "loss 100%");
    std::thread::sleep(Duration::from_secs(15));
    stations.network(1, NETWORK);
    let (code, result) = stations.end(controller);
    assert_eq!(code, Some(0), "{result:#}");
    assert_eq!(result["starts"][0]["started"], 2);
    assert!(stations.are_restored());
}
