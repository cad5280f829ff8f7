// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Laboratories of real namespaces: they carry frames, at the rate asked for, and nothing is left
//! of them, whatever ends their owner.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking; it has a main of its own")]

#[path = "../../host/tests/harness/mod.rs"]
mod harness;

use std::env;
use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use harness::{Role, hear_line, scratch, wait_until, watchdog_of};
use timewire_base::{BitsPerSecond, Failure, Span, StationName};
use timewire_host::Undo;
use timewire_host::journal::Inverse;
use timewire_host::tool::{self, Tool};
use timewire_lab::ns::{self, OnParentDeath};
use timewire_lab::privilege::{self, Privilege};
use timewire_lab::{Lab, LabError, LabSpec, StationSpec, clean_leftovers};
use timewire_sys::namespace::{self, Namespace, Process};

fn main() -> ExitCode {
    harness::main(
        &[
            ("t3_stations_exchange_datagrams_and_the_hub_floods", datagrams),
            ("t3_the_segment_has_the_rate_asked_for", rate),
            ("t3_a_neighbour_once_found_is_not_asked_for_again", neighbours),
            ("t3_nothing_is_left_after_the_normal_end", normal_end),
            ("t3_laboratories_of_one_process_are_apart", two_labs),
            ("t3_a_builder_killed_at_any_step_leaves_nothing", builder_killed),
            ("t3_the_next_laboratory_removes_only_what_the_dead_left", both_killed),
            ("t3_a_child_dies_with_its_parent", child_dies),
            ("t3_a_name_that_is_taken_is_left_alone", name_taken),
            ("t3_a_failure_half_way_leaves_nothing", half_way),
            ("t3_a_missing_tool_is_named", missing_tool),
            ("t3_a_namespace_cut_short_is_removed", cut_short),
            ("t3_an_ordinary_user_has_a_laboratory_too", ordinary_user),
            ("t3_without_user_namespaces_the_missing_piece_is_named", unsupported),
        ],
        &[
            ("build", role_build),
            ("hold", role_hold),
            ("child", role_child),
            ("try", role_try),
            ("no-ip", role_no_ip),
            ("user", role_user),
            ("forbid", role_forbid),
            ("enter", role_enter),
        ],
    )
}

fn name(text: &str) -> StationName {
    StationName::new(text).unwrap()
}

fn spec(names: &[&str]) -> LabSpec {
    let station = |(number, text): (u8, &&str)| StationSpec {
        name: name(text),
        mac: timewire_base::wire::MacAddress([2, 0, 0, 0, 0, number]),
    };
    let stations = (1..).zip(names).map(station).collect();
    LabSpec {
        stations,
        rate: BitsPerSecond::new(100_000_000).unwrap(),
        delay: Span::ZERO,
        queues: 2,
    }
}

const FOUR: [&str; 4] = ["alpha", "beta", "gamma", "delta"];

/// A laboratory with addresses 10.77.0.1, .2, ...
fn lab(names: &[&str]) -> Lab {
    let lab = Lab::create(&spec(names), &mut |_| {}).unwrap();
    for (number, text) in (1..).zip(names) {
        lab.assign(&name(text), &lab.phy(), &format!("10.77.0.{number}/24")).unwrap();
    }
    lab
}

fn socket(lab: &Lab, station: &str, address: &str) -> UdpSocket {
    let path = lab.station_netns_path(&name(station)).unwrap();
    let socket = ns::in_namespace(&path, || UdpSocket::bind((address, 5_000))).unwrap().unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    socket
}

/// A counter of a station's interface: `rx` or `tx` packets.
fn packets(lab: &Lab, station: &str, direction: &str) -> u64 {
    let path = lab.station_netns_path(&name(station)).unwrap();
    let netns = path.file_name().unwrap().to_str().unwrap();
    let text = tool::run(Tool::Ip, &["-n", netns, "-j", "-s", "link", "show", "phy0"]).unwrap();
    let links: serde_json::Value = serde_json::from_str(&text).unwrap();
    links[0]["stats64"][direction]["packets"].as_u64().unwrap()
}

/// Two datagrams, the second after the time in which Linux asks again by default: 5 s in the state
/// of one that was only heard.
fn neighbours() {
    let lab = lab(&FOUR);
    let (alpha, beta) = (socket(&lab, "alpha", "10.77.0.1"), socket(&lab, "beta", "10.77.0.2"));
    let mut buffer = [0; 16];
    let mut exchange = || {
        alpha.send_to(b"ask", ("10.77.0.2", 5_000)).unwrap();
        let (_, from) = beta.recv_from(&mut buffer).unwrap();
        beta.send_to(b"answer", from).unwrap();
        alpha.recv(&mut buffer).unwrap();
    };
    exchange();
    let before = packets(&lab, "beta", "tx");
    std::thread::sleep(Duration::from_millis(5_500));
    exchange();
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(
        packets(&lab, "beta", "tx"),
        before + 1,
        "the answer, and no request for an address"
    );
    lab.destroy().unwrap();
}

/// The named namespaces there are.
fn namespaces() -> Vec<String> {
    let Ok(entries) = fs::read_dir("/run/netns") else {
        return Vec::new();
    };
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn journals() -> usize {
    fs::read_dir("/run/timewire/journal").map_or(0, Iterator::count)
}

fn datagrams() {
    let start = Instant::now();
    let lab = lab(&FOUR);
    eprintln!("a laboratory of four with addresses took {:?}", start.elapsed());
    assert_eq!(lab.stations().len(), 4);
    let quiet = |station: &&str| packets(&lab, station, "rx") + packets(&lab, station, "tx") == 0;
    assert!(FOUR.iter().all(quiet), "a station spoke unasked");
    let alpha = socket(&lab, "alpha", "10.77.0.1");
    let gamma = socket(&lab, "gamma", "10.77.0.3");
    let mut buffer = [0; 2_000];
    for size in [1_usize, 64, 1_472] {
        let request = vec![7; size];
        alpha.send_to(&request, "10.77.0.3:5000").unwrap();
        let (length, from) = gamma.recv_from(&mut buffer).unwrap();
        assert_eq!(
            (&buffer[..length], from.to_string().as_str()),
            (&request[..], "10.77.0.1:5000")
        );
        gamma.send_to(&buffer[..length], from).unwrap();
        assert_eq!(alpha.recv(&mut buffer).unwrap(), size);
    }
    // Three requests and three answers, and address resolution: all at the ones not spoken to.
    for bystander in ["beta", "delta"] {
        wait_until("the hub has flooded", || packets(&lab, bystander, "rx") >= 6);
        assert_eq!(packets(&lab, bystander, "tx"), 0);
    }
    lab.unassign(&name("alpha"), &lab.phy(), "10.77.0.1/24").unwrap();
    assert!(lab.unassign(&name("alpha"), &lab.phy(), "10.77.0.1/24").is_err());
    let bad = lab.assign(&name("alpha"), &lab.phy(), "10.77.0.9/24\nlink del phy0").unwrap_err();
    assert!(matches!(bad, LabError::Spec { .. }));
    let none = lab.station_netns_path(&name("omega")).unwrap_err();
    assert_eq!(none.to_string(), "the laboratory has no station omega");
}

fn rate() {
    let lab = lab(&["alpha", "beta"]);
    let hub = lab.hub_netns_path();
    let netns = hub.file_name().unwrap().to_str().unwrap();
    let port = lab.hub_port(&name("beta")).unwrap();
    let show = ["-n", netns, "-j", "qdisc", "show", "dev", port.as_str()];
    let qdiscs: serde_json::Value =
        serde_json::from_str(&tool::run(Tool::Tc, &show).unwrap()).unwrap();
    assert_eq!((&qdiscs[0]["kind"], &qdiscs[0]["root"]), (&"tbf".into(), &true.into()));
    // tc reports bytes per second.
    assert_eq!(qdiscs[0]["options"]["rate"], 12_500_000);
    assert_eq!(qdiscs[0]["options"]["overhead"], 24);

    let alpha = socket(&lab, "alpha", "10.77.0.1");
    let beta = socket(&lab, "beta", "10.77.0.2");
    beta.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let start = Instant::now();
    let sender = std::thread::spawn(move || {
        while start.elapsed() < Duration::from_millis(500) {
            alpha.send_to(&[0; 1_472], "10.77.0.2:5000").unwrap();
        }
    });
    let (mut frames, mut last) = (0_u32, start);
    let mut buffer = [0; 2_000];
    while beta.recv(&mut buffer).is_ok() {
        (frames, last) = (frames + 1, Instant::now());
    }
    sender.join().unwrap();
    // Only an upper bound holds on any machine: no more than the rate, and the burst at its start.
    let wire_bytes = f64::from(frames) * 1_538.0;
    let elapsed = (last - start).as_secs_f64();
    eprintln!("{frames} frames in {elapsed:.3} s: {:.1} Mbit/s", wire_bytes * 8e-6 / elapsed);
    assert!(frames > 10);
    assert!(wire_bytes - 3_300.0 <= elapsed * 12_500_000.0 * 1.01);
}

fn normal_end() {
    // With the privilege this test has, it is there already.
    privilege::enter().unwrap();
    let mut steps = Vec::new();
    let lab = Lab::create(&spec(&FOUR), &mut |step| steps.push(step.to_owned())).unwrap();
    assert_eq!(
        steps,
        ["making namespaces", "connecting stations to the hub", "waiting for the links"]
    );
    assert_eq!((namespaces().len(), journals()), (5, 1));
    let hub = lab.hub_netns_path();
    lab.destroy().unwrap();
    assert_eq!((namespaces().len(), journals()), (0, 0));
    let gone = ns::in_namespace(&hub, || ()).unwrap_err().to_string();
    assert!(gone.starts_with("cannot open network namespace /run/netns/twlab-"), "{gone}");
}

fn two_labs() {
    let (one, two) = (lab(&["alpha", "beta"]), lab(&["alpha", "beta"]));
    assert_ne!(one.hub_netns_path(), two.hub_netns_path());
    let here = socket(&one, "alpha", "10.77.0.1");
    let there = socket(&two, "beta", "10.77.0.2");
    here.send_to(b"lost", "10.77.0.2:5000").unwrap();
    there.set_nonblocking(true).unwrap();
    let beta = socket(&one, "beta", "10.77.0.2");
    here.send_to(b"found", "10.77.0.2:5000").unwrap();
    let mut buffer = [0; 8];
    assert!(beta.recv(&mut buffer).is_ok());
    assert!(there.recv(&mut buffer).is_err());
    drop(one);
    assert_eq!(namespaces().len(), 3);
    drop(two);
    assert_eq!((namespaces().len(), journals()), (0, 0));
}

/// Builds laboratories of four, one after the other; says each step.
fn role_build(_: &[String]) {
    loop {
        drop(Lab::create(&spec(&FOUR), &mut |step| println!("{step}")).unwrap());
    }
}

fn builder_killed() {
    let steps = ["making namespaces", "connecting stations to the hub", "waiting for the links"];
    for (round, step) in (0..30).zip(steps.iter().cycle()) {
        let mut builder = Role::start("build", &[]);
        while builder.hear() != *step {}
        // Somewhere inside the step, at a different moment each time.
        let moment = Instant::now() + Duration::from_micros(300) * round;
        while Instant::now() < moment {}
        builder.kill();
        // A builder that is killed before its watchdog is on guard has changed nothing yet; only
        // its empty journal stays, for the next start to remove. A journal under guard is left
        // alone.
        wait_until("the watchdog is done", || {
            clean_leftovers().unwrap();
            journals() == 0
        });
        assert_eq!(namespaces(), [""; 0], "round {round}");
    }
}

/// Holds a laboratory of two; says its journal and its hub.
fn role_hold(_: &[String]) {
    let lab = lab(&["alpha", "beta"]);
    println!("{}", lab.journal().path().display());
    println!("{}", lab.hub_netns_path().display());
    hear_line();
}

fn hold() -> (Role, String, String) {
    let mut role = Role::start("hold", &[]);
    let (journal, hub) = (role.hear(), role.hear());
    (role, journal, hub)
}

fn both_killed() {
    let (mut dead, journal, dead_hub) = hold();
    let (live, _, live_hub) = hold();
    let watchdog = watchdog_of(&journal).unwrap();
    watchdog.kill().unwrap();
    wait_until("the watchdog is gone", || !watchdog.is_alive());
    dead.kill();
    assert!(Path::new(&dead_hub).exists());
    let mut steps = Vec::new();
    let lab = Lab::create(&spec(&["alpha"]), &mut |step| steps.push(step.to_owned())).unwrap();
    let found = format!("process {} (laboratory of alpha, beta) ended", dead.child.id());
    assert!(steps[0].starts_with(&found), "{steps:?}");
    assert!(!Path::new(&dead_hub).exists() && Path::new(&live_hub).exists());
    assert_eq!(namespaces().len(), 3 + 2);
    drop(lab);
    live.end();
    assert_eq!((namespaces().len(), journals()), (0, 0));
}

/// Starts a child in a laboratory; says both journal and child.
fn role_child(_: &[String]) {
    let lab = lab(&["alpha"]);
    let mut cat = Command::new("cat");
    cat.stdin(Stdio::piped()).stdout(Stdio::null());
    let path = lab.station_netns_path(&name("alpha")).unwrap();
    let child = ns::spawn(&path, cat, OnParentDeath::Kill).unwrap();
    println!("{}", child.id());
    hear_line();
    drop(lab);
    // Keeps the child's stdin open until the end: it does not die of that.
    drop(child);
}

fn child_dies() {
    let mut parent = Role::start("child", &[]);
    let child = Process::of(parent.hear().parse().unwrap()).unwrap();
    assert!(child.is_alive());
    parent.kill();
    wait_until("the child is dead", || !child.is_alive());
    wait_until("the watchdog is done", || namespaces().is_empty() && journals() == 0);
}

/// Tries to build a laboratory; says why it is not.
fn role_try(_: &[String]) {
    let error = Lab::create(&spec(&FOUR), &mut |_| {}).unwrap_err();
    println!("{error}");
}

fn name_taken() {
    let first = lab(&["alpha"]);
    let path = first.hub_netns_path();
    let hub = path.file_name().unwrap().to_str().unwrap();
    let (prefix, count) = hub.strip_suffix(".hub").unwrap().rsplit_once('-').unwrap();
    let taken = format!("{prefix}-{}-alpha", count.parse::<u32>().unwrap() + 1);
    tool::run(Tool::Ip, &["netns", "add", &taken]).unwrap();
    let error = Lab::create(&spec(&["alpha"]), &mut |_| {}).unwrap_err().to_string();
    assert!(error.starts_with(&format!("network namespace {taken} exists already")), "{error}");
    assert!(namespaces().contains(&taken));
    tool::run(Tool::Ip, &["netns", "del", &taken]).unwrap();
    drop(first);
    assert_eq!((namespaces().len(), journals()), (0, 0));
}

fn half_way() {
    let dir = scratch("bin");
    fs::create_dir(&dir).unwrap();
    for failing in ["tc", "ethtool"] {
        let program = dir.join(failing);
        fs::write(&program, "#!/bin/sh\necho out of luck >&2\nexit 7\n").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let path = format!("{}:{}", dir.display(), env::var("PATH").unwrap());
        let mut role =
            Role::spawn(Command::new("/proc/self/exe").args(["role", "try"]).env("PATH", path));
        let said = role.hear();
        assert!(said.contains(failing) && said.contains("out of luck"), "{said}");
        assert!(said.contains("exit status: 7"), "{said}");
        role.end();
        assert_eq!((namespaces().len(), journals()), (0, 0));
        fs::remove_file(program).unwrap();
    }
}

/// Hides the directories that `ip` can be in from itself, then tries.
fn role_no_ip(arguments: &[String]) {
    namespace::unshare(&[Namespace::Mount]).unwrap();
    namespace::make_mounts_private().unwrap();
    for dir in ["/usr/sbin", "/usr/bin"] {
        namespace::mount_tmpfs(Path::new(dir)).unwrap();
    }
    role_try(arguments);
}

fn missing_tool() {
    let mut role = Role::start("no-ip", &[]);
    assert_eq!(role.hear(), "`ip` is not installed; on Debian: apt-get install iproute2");
    role.end();
    assert_eq!((namespaces().len(), journals()), (0, 0));
}

fn cut_short() {
    let name = format!("twlab-{}-short", std::process::id());
    fs::create_dir_all("/run/netns").unwrap();
    fs::write(Path::new("/run/netns").join(&name), "").unwrap();
    Undo::DeleteNetns { name }.undo().unwrap();
    assert!(namespaces().is_empty());
}

/// A directory of the ordinary user with this program in it.
fn nobody_dir(name: &str) -> PathBuf {
    let dir = scratch(name);
    fs::create_dir(&dir).unwrap();
    fs::copy("/proc/self/exe", dir.join("program")).unwrap();
    chown(&dir, Some(65_534), Some(65_534)).unwrap();
    dir
}

fn as_nobody(dir: &Path, role: &str) -> Role {
    Role::spawn(
        Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(dir.join("program"))
            .args(["role", role])
            .env("XDG_RUNTIME_DIR", dir)
            .current_dir("/"),
    )
}

/// As an ordinary user: a whole laboratory, used and taken down. Says how it went.
fn role_user(_: &[String]) {
    match privilege::enter() {
        Err(error @ LabError::Unsupported { .. }) => return println!("SKIP: {error}"),
        entered => assert_eq!(entered.unwrap(), Privilege::UserNamespace),
    }
    assert_eq!(privilege::enter().unwrap(), Privilege::UserNamespace);
    let own = PathBuf::from(env::var_os("XDG_RUNTIME_DIR").unwrap());
    fs::write(own.join("result"), "kept").unwrap();
    let lab = lab(&FOUR);
    let (alpha, delta) = (socket(&lab, "alpha", "10.77.0.1"), socket(&lab, "delta", "10.77.0.4"));
    alpha.send_to(b"hello", "10.77.0.4:5000").unwrap();
    let mut buffer = [0; 8];
    assert_eq!(delta.recv(&mut buffer).unwrap(), 5);
    assert_eq!(namespaces().len(), 5);
    println!("{}", lab.journal().path().display());
    hear_line();
    lab.destroy().unwrap();
    assert_eq!((namespaces().len(), journals()), (0, 0));
    println!("done");
}

fn ordinary_user() {
    let dir = nobody_dir("user");
    let mut user = as_nobody(&dir, "user");
    let journal = user.hear();
    if journal.starts_with("SKIP") {
        return eprintln!("{journal}");
    }
    assert!(watchdog_of(&journal).is_some());
    assert!(namespaces().is_empty(), "the user's namespaces are its own");
    user.tell("go on");
    assert_eq!(user.hear(), "done");
    user.end();
    assert_eq!(fs::read_to_string(dir.join("result")).unwrap(), "kept");

    let mut user = as_nobody(&dir, "user");
    let journal = user.hear();
    user.kill();
    wait_until("the watchdog is done", || watchdog_of(&journal).is_none());
}

/// Forbids user namespaces inside its own one, and tries there again without capabilities.
fn role_forbid(_: &[String]) {
    match privilege::enter() {
        Err(error @ LabError::Unsupported { .. }) => return println!("SKIP: {error}"),
        entered => assert_eq!(entered.unwrap(), Privilege::UserNamespace),
    }
    fs::write("/proc/sys/user/max_user_namespaces", "0").unwrap();
    let program = PathBuf::from(env::var_os("XDG_RUNTIME_DIR").unwrap()).join("program");
    let mut setpriv = Command::new("setpriv");
    setpriv.args(["--bounding-set=-all", "--inh-caps=-all"]).arg(program).args(["role", "enter"]);
    assert!(setpriv.status().unwrap().success());
}

fn role_enter(_: &[String]) {
    let error = privilege::enter().unwrap_err();
    println!("{error}\n{}", error.hint().unwrap());
}

fn unsupported() {
    let mut user = as_nobody(&nobody_dir("forbidden"), "forbid");
    let said = user.hear();
    if said.starts_with("SKIP") {
        return eprintln!("{said}");
    }
    let start = "no laboratory is possible here: CAP_NET_ADMIN and CAP_SYS_ADMIN, and user \
                 namespaces are switched off";
    assert!(said.starts_with(start), "{said}");
    assert_eq!(user.hear(), "run as root, or: sysctl user.max_user_namespaces=10000");
    user.end();
}
