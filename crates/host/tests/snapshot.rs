// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Snapshots of recorded hosts, and of this one before and after changes.
//!
//! `fixtures/hosts/NAME/record.json` is read into exactly `snapshot.json` beside it.
//! `UPDATE_GOLDEN=1 cargo test -p timewire-host --test all snapshot::` rewrites those.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;
use serde_json::Value;
use timewire_base::IfName;
use timewire_host::snapshot::source::{Live, Output, Question, Record, Source, with_own_sysfs};
use timewire_host::snapshot::{Reading, Snapshot};
use timewire_host::tool::{Tool, run};
use timewire_sys::namespace::{self, Namespace};

fn hosts() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/hosts");
    let entries = fs::read_dir(directory).expect("the recorded hosts");
    let mut hosts: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    hosts.sort();
    assert!(hosts.len() >= 8, "only {} recorded hosts", hosts.len());
    hosts
}

#[test]
fn t1_each_recorded_host_gives_its_snapshot() {
    for host in hosts() {
        let record = Record::load(&host).unwrap();
        let text = Snapshot::read(&record, record.interfaces()).unwrap().to_text();
        let golden = host.join("snapshot.json");
        if std::env::var("UPDATE_GOLDEN").is_ok() {
            fs::write(&golden, &text).unwrap();
        }
        let expected = fs::read_to_string(&golden).unwrap_or_default();
        assert!(text == expected, "{} differs from what was read", golden.display());
        let parsed = Snapshot::parse(&text).unwrap();
        assert_eq!(parsed.to_text(), text);
    }
}

#[test]
fn t1_each_recorded_host_says_where_it_is_from() {
    for host in hosts() {
        let origin = fs::read_to_string(host.join("ORIGIN")).unwrap_or_default();
        let first = origin.lines().next().unwrap_or_default();
        let says = first.starts_with("Recorded: ") || first.starts_with("Composed: ");
        assert!(says, "{}/ORIGIN begins with `{first}`", host.display());
    }
}

#[test]
fn t1_nothing_that_a_record_has_is_left_out() {
    for host in hosts() {
        let text = fs::read_to_string(host.join("snapshot.json")).unwrap();
        assert!(!text.contains("not in the record"), "{}", host.display());
    }
}

/// A source whose answers are cut, doubled or replaced.
struct Mangled<'a> {
    record: &'a Record,
    seed: AtomicU64,
}

impl Mangled<'_> {
    fn next(&self) -> u64 {
        let mix = |n: u64| n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_041);
        let previous =
            self.seed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| Some(mix(n)));
        previous.unwrap_or_default() >> 33
    }

    fn text(&self, text: String) -> String {
        let count = u64::try_from(text.chars().count()).unwrap() + 1;
        let at = usize::try_from(self.next() % count).unwrap();
        let cut = |text: &str| text.chars().take(at).collect::<String>();
        match self.next() % 8 {
            0 => cut(&text),
            1 => format!("{text}{text}"),
            2 => String::new(),
            3 => text.replace(':', ""),
            4 => text.replace(['0', '1', '2'], "9999999999999999999999"),
            5 => format!("{}\u{fffd}{}", cut(&text), text),
            _ => text,
        }
    }
}

impl Source for Mangled<'_> {
    fn read(&self, path: &str) -> Reading<String> {
        self.record.read(path).map(|text| self.text(text))
    }
    fn list(&self, path: &str) -> Reading<Vec<String>> {
        self.record.list(path).map(|names| names.into_iter().map(|n| self.text(n)).collect())
    }
    fn link(&self, path: &str) -> Reading<String> {
        self.record.link(path)
    }
    fn run(&self, words: &[&str]) -> Reading<Output> {
        // Without a list of interfaces there is nothing to read.
        let whole = words.contains(&"link");
        let mangle = |output: Output| Output { stdout: self.text(output.stdout), ..output };
        let answer = self.record.run(words);
        if whole { answer } else { answer.map(mangle) }
    }
    fn ask(&self, question: Question<'_>) -> Reading<Value> {
        let answer = self.record.ask(question);
        answer.map(|value| {
            let text = self.text(value.to_string());
            serde_json::from_str(&text).unwrap_or(Value::String(text))
        })
    }
}

proptest! {
    #![proptest_config(
        ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) }
    )]
    #[test]
    fn t0_mangled_answers_never_panic_and_still_give_a_snapshot(seed: u64) {
        let hosts = hosts();
        let host = &hosts[usize::try_from(seed % u64::try_from(hosts.len()).unwrap()).unwrap()];
        let record = Record::load(host).unwrap();
        let mangled = Mangled { record: &record, seed: AtomicU64::new(seed) };
        let snapshot = Snapshot::read(&mangled, record.interfaces()).unwrap();
        prop_assert!(Snapshot::parse(&snapshot.to_text()).is_ok());
        let _ = snapshot.facts();
    }
}

/// Does something on a thread in a network namespace of its own with a veth pair `v0`, `v1`.
fn in_own_network(work: impl FnOnce() + Send) {
    let inside = || {
        if let Err(error) = namespace::unshare(&[Namespace::Network]) {
            eprintln!("SKIP: no network namespace: {error}");
            return;
        }
        let make = "link add v0 numtxqueues 2 numrxqueues 2 type veth peer name v1";
        ip(make);
        ip("link set v0 up");
        ip("link set v1 up");
        with_own_sysfs(work);
    };
    std::thread::scope(|scope| scope.spawn(inside).join()).unwrap();
}

fn words(tool: Tool, line: &str) {
    let words: Vec<&str> = line.split_whitespace().collect();
    run(tool, &words).unwrap();
}

fn ip(line: &str) {
    words(Tool::Ip, line);
}

fn v0() -> Snapshot {
    Snapshot::read(&WithoutVersions, &[IfName::new("v0").unwrap()]).unwrap()
}

/// This host, without what takes time to read and no test here changes.
struct WithoutVersions;

impl Source for WithoutVersions {
    fn read(&self, path: &str) -> Reading<String> {
        Live.read(path)
    }
    fn list(&self, path: &str) -> Reading<Vec<String>> {
        Live.list(path)
    }
    fn link(&self, path: &str) -> Reading<String> {
        Live.link(path)
    }
    fn run(&self, words: &[&str]) -> Reading<Output> {
        let is_version = ["-V", "-v", "--version"].contains(&words[1]);
        if is_version { Reading::Absent("not asked".to_owned()) } else { Live.run(words) }
    }
    fn ask(&self, question: Question<'_>) -> Reading<Value> {
        match question {
            Question::KernelConfig => Reading::Absent("not asked".to_owned()),
            question => Live.ask(question),
        }
    }
}

fn write(path: &str, value: &str) {
    fs::write(path, value).unwrap_or_else(|error| panic!("{path}: {error}"));
}

/// What is done, what undoes it, and what alone it changes.
type Change = (fn(), fn(), &'static [&'static str]);

const CHANGES: &[Change] = &[
    (|| ip("link set v0 mtu 1400"), || ip("link set v0 mtu 1500"), &["mtu"]),
    (
        || ip("link set v0 txqueuelen 77"),
        || ip("link set v0 txqueuelen 1000"),
        &["tx_queue_length"],
    ),
    (|| ip("link set v0 promisc on"), || ip("link set v0 promisc off"), &["flags"]),
    (|| ip("addr add 10.9.0.1/24 dev v0"), || ip("addr del 10.9.0.1/24 dev v0"), &["addresses"]),
    (
        || ip("route add 10.8.0.0/24 dev v0 metric 7"),
        || ip("route del 10.8.0.0/24 dev v0 metric 7"),
        &["routes"],
    ),
    (
        || words(Tool::Tc, "qdisc add dev v0 root handle 1: tbf rate 1mbit burst 2k limit 9000"),
        || words(Tool::Tc, "qdisc del dev v0 root"),
        &["qdiscs"],
    ),
    (
        || words(Tool::Ethtool, "-K v0 rx-udp-gro-forwarding on"),
        || words(Tool::Ethtool, "-K v0 rx-udp-gro-forwarding off"),
        &["features.rx-udp-gro-forwarding"],
    ),
    (
        || words(Tool::Ethtool, "-L v0 tx 1"),
        || words(Tool::Ethtool, "-L v0 tx 2"),
        &["channels.tx", "tx."],
    ),
    (
        || write("/sys/class/net/v0/napi_defer_hard_irqs", "5"),
        || write("/sys/class/net/v0/napi_defer_hard_irqs", "0"),
        &["napi."],
    ),
    (
        || write("/sys/class/net/v0/gro_flush_timeout", "20000"),
        || write("/sys/class/net/v0/gro_flush_timeout", "0"),
        &["napi."],
    ),
    (
        || write("/sys/class/net/v0/queues/rx-0/rps_cpus", "1"),
        || write("/sys/class/net/v0/queues/rx-0/rps_cpus", "0"),
        &["rx.0.rps_cpus"],
    ),
    (
        || write("/sys/class/net/v0/queues/rx-0/rps_flow_cnt", "64"),
        || write("/sys/class/net/v0/queues/rx-0/rps_flow_cnt", "0"),
        &["rx.0.rps_flows"],
    ),
    (
        || write("/proc/sys/net/ipv4/conf/v0/arp_ignore", "1"),
        || write("/proc/sys/net/ipv4/conf/v0/arp_ignore", "0"),
        &["sysctls.net.ipv4.conf.arp_ignore"],
    ),
];

#[test]
fn t3_a_snapshot_twice_has_equal_settings() {
    in_own_network(|| {
        let whole = || Snapshot::read(&Live, &[IfName::new("v0").unwrap()]).unwrap();
        let (first, second) = (whole(), whole());
        let found = first.settings.differences(&second.settings);
        assert!(found.is_empty(), "{found:?}");
        assert_eq!(first.settings, second.settings);
        let interface = &first.settings.interfaces[&IfName::new("v0").unwrap()];
        assert_eq!(interface.kind.as_deref(), Some("veth"));
        assert_eq!(interface.rx.known().map(Vec::len), Some(2));
    });
}

#[test]
fn t3_a_change_changes_its_own_settings_and_undoing_it_all_back() {
    in_own_network(|| {
        for (change, undo, own) in CHANGES {
            let before = v0().settings;
            change();
            let found = before.differences(&v0().settings);
            assert!(!found.is_empty(), "{own:?}: nothing changed");
            for difference in &found {
                let inside = difference.path.strip_prefix("interfaces.v0.");
                let is_own = own.iter().any(|own| inside.is_some_and(|at| at.starts_with(own)));
                assert!(is_own, "{own:?}: {difference}");
            }
            undo();
            let left = before.differences(&v0().settings);
            assert!(left.is_empty(), "{own:?}: {left:?}");
        }
    });
}

#[test]
fn t3_a_sysfs_of_another_namespace_is_not_taken_for_this_one() {
    let inside = || {
        if let Err(error) = namespace::unshare(&[Namespace::Network]) {
            eprintln!("SKIP: no network namespace: {error}");
            return;
        }
        // Another number than the first namespace's interfaces have.
        ip("link add v0 index 999 type veth peer name v1");
        let snapshot = v0();
        let interface = &snapshot.settings.interfaces[&IfName::new("v0").unwrap()];
        assert!(interface.rx.is_unreadable(), "{:?}", interface.rx);
        let own = with_own_sysfs(v0);
        let interface = &own.settings.interfaces[&IfName::new("v0").unwrap()];
        assert!(interface.rx.known().is_some(), "{:?}", interface.rx);
    };
    std::thread::scope(|scope| scope.spawn(inside).join()).unwrap();
}

#[test]
fn t3_an_interface_that_is_not_there_is_named() {
    let missing = IfName::new("no-such-if").unwrap();
    let error = Snapshot::of_this_host(&[missing]).unwrap_err().to_string();
    assert!(error.starts_with("there is no interface no-such-if; there are "), "{error}");
}
