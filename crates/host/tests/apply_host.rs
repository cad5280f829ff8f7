// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Transactions on this kernel, in network namespaces of their own: random ones, killed ones, ones
//! that nobody confirms.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking; it has a main of its own")]

mod harness;

use std::env;
use std::fs;
use std::process::{Command, ExitCode, Stdio};

use harness::{Role, hear_line, scratch, wait_until, watchdog_of};
use timewire_base::{IfName, Span};
use timewire_host::apply::applied::{self, Title, Undoing};
use timewire_host::apply::store::Store;
use timewire_host::apply::{
    self, ALL, Host, PollingFile, RealHost, Setting, Settings, State, ThreadScheduling,
    ThreadState, ThreadsOf, TransactionOutcome, Value,
};
use timewire_host::tool::{self, Tool};
use timewire_host::{HostError, recover};
use timewire_sys::namespace::Process;

fn main() -> ExitCode {
    harness::main(
        &[
            ("t3_random_transactions_leave_a_host_as_it_was", || inside("random")),
            ("t3_whenever_apply_is_killed_the_host_is_restored", || inside("killed")),
            ("t3_what_nobody_confirms_is_taken_back", || inside("unconfirmed")),
            ("t3_a_second_transaction_is_refused", || inside("second")),
            ("t3_after_a_reboot_nothing_is_written", || inside("rebooted")),
            ("t3_drift_is_seen_and_left", || inside("drift")),
        ],
        &[
            ("random", role_random),
            ("killed", role_killed),
            ("unconfirmed", role_unconfirmed),
            ("second", role_second),
            ("rebooted", role_rebooted),
            ("drift", role_drift),
            ("apply", role_apply),
        ],
    )
}

/// Runs a test in a network namespace of its own, with the `/sys` of that.
fn inside(test: &str) {
    let netns = format!("tw-apply-{test}");
    tool::run(Tool::Ip, &["netns", "add", &netns]).unwrap();
    let status = Command::new("ip")
        .args(["netns", "exec", &netns])
        .arg(env::current_exe().unwrap())
        .args(["role", test])
        .env("TIMEWIRE_STATE_DIR", scratch(test))
        .status()
        .unwrap();
    tool::run(Tool::Ip, &["netns", "del", &netns]).unwrap();
    assert!(status.success(), "{test}: {status}");
}

/// The interface of a test: threads are named by it, and those of all namespaces are seen here.
fn name() -> IfName {
    IfName::new(&format!("tw{}", std::process::id() % 1_000_000)).unwrap()
}

fn sh(line: &str) -> String {
    let output = Command::new("sh").args(["-c", line]).stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "{line}");
    String::from_utf8(output.stdout).unwrap()
}

/// A virtual pair with two queues, addresses and routes of both families.
fn pair(name: &IfName) {
    sh(&format!(
        "sysctl -qw net.ipv6.conf.default.accept_dad=0
         ip link add {name} numtxqueues 2 numrxqueues 2 type veth \
            peer name {name}p numtxqueues 2 numrxqueues 2
         ip link set {name}p addrgenmode none; ip link set {name}p up; ip link set {name} up
         ip address add 10.9.0.1/24 dev {name}; ip address add fd00::1/64 dev {name} nodad
         ip neigh add 10.9.0.9 lladdr 02:00:00:00:00:09 dev {name}
         ip route add 10.10.0.0/16 via 10.9.0.2; ip route add fd01::/64 via fd00::2"
    ));
}

/// All that a transaction here could change, as the tools print it.
fn picture(name: &IfName) -> String {
    sh(&format!(
        "tc -d -r qdisc show dev {name} | sed 's/direct_packets_stat [0-9]*//'
         ip -d link show dev {name}; ip address show dev {name}; ip route; ip -6 route
         ip neigh show nud permanent
         ethtool -k {name}; ethtool -l {name}
         cd /sys/class/net/{name}; grep -H . threaded napi_defer_hard_irqs gro_flush_timeout
         grep -H . queues/*/rps_cpus queues/*/xps_cpus
         cat /proc/sys/net/ipv4/conf/{name}/rp_filter"
    ))
}

/// A fixed generator: the same sequence for a seed, everywhere.
struct Dice(u64);

impl Dice {
    fn throw(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % sides
    }
}

/// Disciplines that this kernel has, as they are when they are there.
fn disciplines(name: &IfName) -> Vec<(String, Value)> {
    let all = [
        "pfifo limit 10",
        "bfifo limit 20000",
        "htb default 10 r2q 7",
        "tbf rate 100mbit burst 10005b limit 70000",
        "fq_codel target 3ms ecn",
        "pfifo_fast",
    ];
    let mut there = Vec::new();
    for words in all {
        let line = format!("tc qdisc add dev {name} root handle 9: {words}");
        if !Command::new("sh").args(["-c", &line]).output().unwrap().status.success() {
            continue;
        }
        let setting = Setting::Qdiscs { interface: name.clone() };
        let value = RealHost.observe(&setting).unwrap();
        sh(&format!("tc qdisc del dev {name} root"));
        there.push((line, value));
    }
    there
}

fn any_desired(dice: &mut Dice, name: &IfName, qdiscs: &[(String, Value)]) -> Settings {
    let own = |make: fn(IfName) -> Setting| make(name.clone());
    let polling = |file| Setting::Polling { interface: name.clone(), file };
    let pick = |dice: &mut Dice, values: &[&str]| {
        let sides = u64::try_from(values.len()).unwrap();
        values[usize::try_from(dice.throw(sides)).unwrap()].to_owned()
    };
    let mut desired = Settings::new();
    if dice.throw(2) == 0 {
        let name = format!("net.ipv4.conf.{name}.rp_filter");
        desired.set(Setting::Sysctl { name }, Value::text(pick(dice, &["0", "1", "2"])));
    }
    if dice.throw(2) == 0 {
        let mtu = pick(dice, &["1000", "1400", "9000"]);
        desired.set(own(|interface| Setting::Mtu { interface }), Value::text(mtu));
    }
    if dice.throw(3) == 0 {
        let fields = [("rx", pick(dice, &["1", "2"])), ("tx", pick(dice, &["1", "2"]))];
        desired.set(own(|interface| Setting::Channels { interface }), Value::fields(fields));
    }
    if dice.throw(3) == 0 {
        let link = pick(dice, &["up", "down"]);
        desired.set(own(|interface| Setting::Link { interface }), Value::text(link));
    }
    let threaded = dice.throw(2) == 0;
    if threaded || dice.throw(2) == 0 {
        let gro = if threaded { "on".to_owned() } else { pick(dice, &["on", "off"]) };
        let fields = [
            ("generic-receive-offload", gro),
            ("tx-checksum-ip-generic", pick(dice, &["on", "off"])),
        ];
        desired.set(own(|interface| Setting::Features { interface }), Value::fields(fields));
    }
    if threaded {
        desired.set(polling(PollingFile::Threaded), Value::text("1"));
        let priority = u8::try_from(1 + dice.throw(50)).unwrap();
        let state = ThreadState {
            scheduling: Some(ThreadScheduling::Fifo(priority)),
            cpus: Some("0".to_owned()),
        };
        let setting = Setting::Threads { interface: name.clone(), of: ThreadsOf::Napi };
        desired.set(setting, Value::Threads([(ALL.to_owned(), state)].into()));
    }
    if dice.throw(2) == 0 {
        let count = Value::text(pick(dice, &["1", "2", "100"]));
        desired.set(polling(PollingFile::NapiDeferHardIrqs), count);
        desired.set(polling(PollingFile::GroFlushTimeout), Value::text("20000"));
    }
    for make in [|interface| Setting::Rps { interface }, |interface| Setting::Xps { interface }] {
        if dice.throw(3) == 0 {
            desired.set(own(make), Value::fields([(ALL, pick(dice, &["0", "0-1", ""]))]));
        }
    }
    if dice.throw(2) == 0 {
        let sides = u64::try_from(qdiscs.len()).unwrap();
        let (_, value) = &qdiscs[usize::try_from(dice.throw(sides)).unwrap()];
        desired.set(own(|interface| Setting::Qdiscs { interface }), value.clone());
    }
    desired
}

fn go(desired: &Settings, confirm_within: Option<Span>) -> TransactionOutcome {
    let title = Title { name: "a test", file: "none", by_hand: &[] };
    match applied::apply(&title, desired, confirm_within, &mut |_, _, _| {}).unwrap() {
        Ok(outcome) => outcome,
        Err(failure) => panic!("{failure:?}"),
    }
}

fn take_back() {
    match applied::undo(false).unwrap() {
        Undoing::Done { undone, .. } => assert_eq!(undone.left, [], "{:?}", undone.reasons),
        other => panic!("{other:?}"),
    }
}

fn role_random(_: &[String]) {
    let name = name();
    pair(&name);
    let qdiscs = disciplines(&name);
    let (mut applied, mut refused, mut commands) = (0, 0, 0);
    for seed in 1..=100_u64 {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        // What someone put there before.
        let before = dice.throw(3) == 0;
        if before {
            let sides = u64::try_from(qdiscs.len()).unwrap();
            sh(&qdiscs[usize::try_from(dice.throw(sides)).unwrap()].0);
        }
        let then = picture(&name);
        let desired = any_desired(&mut dice, &name, &qdiscs);
        let (_, plan) = apply::plan(&mut RealHost, &desired).unwrap();
        commands += plan.steps.iter().map(|step| step.commands.len()).sum::<usize>();
        let title = Title { name: "a test", file: "none", by_hand: &[] };
        let result = applied::apply(&title, &desired, None, &mut |_, _, _| {}).unwrap();
        if let Err(failure) = &result {
            // Some desired configurations contradict themselves: no thread polls while the link is
            // down.
            let words = format!("{failure:?}");
            assert!(words.contains("left: []"), "seed {seed}: {words}");
            refused += 1;
        }
        if matches!(result, Ok(TransactionOutcome::Done { .. })) {
            applied += 1;
            for (setting, value) in desired.iter() {
                let have = RealHost.observe(setting).unwrap();
                assert!(value.is_met_by(&have), "seed {seed}: {setting} is {have}, not {value}");
            }
            take_back();
        }
        assert_eq!(picture(&name), then, "seed {seed}");
        if before {
            sh(&format!("tc qdisc del dev {name} root"));
        }
    }
    let kinds = qdiscs.len();
    println!("{applied} applied, {refused} failed; {commands} commands, {kinds} disciplines");
    assert!(applied > 60 && applied + refused > 85 && commands > 300);
}

/// Several steps, some of several commands.
fn a_desired(name: &IfName) -> Settings {
    let qdiscs = disciplines(name);
    let mut desired = any_desired(&mut Dice(1), name, &qdiscs);
    let own = |make: fn(IfName) -> Setting| make(name.clone());
    desired.set(own(|interface| Setting::Mtu { interface }), Value::text("1000"));
    desired.set(own(|interface| Setting::Link { interface }), Value::text("down"));
    desired.set(own(|interface| Setting::Rps { interface }), Value::fields([(ALL, "0-1")]));
    desired.set(own(|interface| Setting::Qdiscs { interface }), qdiscs[0].1.clone());
    desired
}

/// Applies to the interface of its parent. Says when it begins and when it is done; ends when told.
fn role_apply(arguments: &[String]) {
    let name = IfName::new(&arguments[0]).unwrap();
    let within = arguments.get(1).map(|ms| Span::from_ns(ms.parse::<i64>().unwrap() * 1_000_000));
    let desired = a_desired(&name);
    println!("begins");
    hear_line();
    match applied::apply(
        &Title { name: "a test", file: "none", by_hand: &[] },
        &desired,
        within,
        &mut |_, _, _| {},
    ) {
        Ok(Ok(_)) => println!("done"),
        Ok(Err(failure)) => println!("{failure:?}"),
        Err(error) => println!("{error}"),
    }
    hear_line();
}

/// The watchdog of the record of this namespace.
fn apply_watchdog_process() -> Option<Process> {
    let record = Store::open().unwrap().log_path();
    watchdog_of(record.to_str().unwrap())
}

fn lines_of_record() -> usize {
    let text = fs::read_to_string(Store::open().unwrap().log_path());
    text.map_or(0, |text| text.lines().count())
}

fn role_killed(_: &[String]) {
    let name = name();
    pair(&name);
    let then = picture(&name);
    let record = Store::open().unwrap().log_path();
    let mut taken_back = 0;
    for (round, watchdog_too) in (0..14).flat_map(|round| [(round, false), (round, true)]) {
        let what = format!("killed after {round} lines, the watchdog too: {watchdog_too}");
        let mut process = Role::start("apply", &[name.as_str()]);
        assert_eq!(process.hear(), "begins");
        process.tell("go");
        // The last rounds are after its end: what is applied stays.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(5);
        let is_done = || {
            let text = fs::read_to_string(&record).unwrap_or_default();
            text.contains("\"applied\"")
        };
        while lines_of_record() < round && !is_done() && std::time::Instant::now() < deadline {
            std::hint::spin_loop();
        }
        let guard = apply_watchdog_process();
        if watchdog_too && let Some(guard) = guard {
            guard.kill().unwrap();
        }
        process.kill();
        if let Some(guard) = guard {
            wait_until("the watchdog is gone", || !guard.is_alive());
        }
        // Before there was a watchdog, there is only the head of a record.
        if watchdog_too || guard.is_none() {
            taken_back += usize::from(!recover().unwrap().is_empty());
        }
        if is_done() {
            take_back();
        }
        assert!(!record.exists(), "{what}");
        assert_eq!(picture(&name), then, "{what}");
    }
    println!("{taken_back} were taken back by the next start");
    assert!(taken_back > 3);
    asked_to_end(&name, &then);
}

/// What Ctrl-C does: it takes back what it did, and says so.
fn asked_to_end(name: &IfName, then: &str) {
    let record = Store::open().unwrap().log_path();
    let mut interrupted = 0;
    for round in 3..14 {
        let mut process = Role::start("apply", &[name.as_str()]);
        assert_eq!(process.hear(), "begins");
        process.tell("go");
        let text = || fs::read_to_string(&record).unwrap_or_default();
        wait_until("it comes to this step", || {
            lines_of_record() >= round || text().contains("\"applied\"")
        });
        sh(&format!("kill -INT {}", process.child.id()));
        let said = process.hear();
        if said.contains("ended on request") {
            assert!(said.contains("left: []"), "{said}");
            interrupted += 1;
            process.end();
        } else {
            // It had done the last command; the signal ends it, and what is applied stays.
            assert!(["done", ""].contains(&said.as_str()), "{said}");
            process.kill();
            take_back();
        }
        assert!(!record.exists(), "interrupted after {round} lines");
        assert_eq!(picture(name), *then, "interrupted after {round} lines");
    }
    println!("{interrupted} were interrupted");
    assert!(interrupted > 0);
}

fn role_unconfirmed(_: &[String]) {
    let name = name();
    pair(&name);
    let then = picture(&name);
    let record = Store::open().unwrap().log_path();
    // Its shell and all that goes with it are gone long before.
    let mut process = Role::start("apply", &[name.as_str(), "300"]);
    process.hear();
    process.tell("go");
    assert_eq!(process.hear(), "done");
    assert_ne!(picture(&name), then);
    assert!(applied::status().unwrap().saved.unwrap().transaction.undo_log.confirm_by_ns.is_some());
    process.kill();
    wait_until("it is taken back", || !record.exists());
    assert_eq!(picture(&name), then);
    let ending = applied::status().unwrap().ending.unwrap();
    assert_eq!(ending.how, "nobody confirmed it; taken back");
    wait_until("the watchdog is gone", || apply_watchdog_process().is_none());

    // The watchdog is killed as well: the next start does it, once the time is over.
    go(&a_desired(&name), Some(Span::from_ns(200_000_000)));
    apply_watchdog_process().unwrap().kill().unwrap();
    wait_until("the time is over", || !recover().unwrap().is_empty());
    assert_eq!(picture(&name), then);

    // Confirmed, it stays; and there is nothing more to confirm.
    go(&a_desired(&name), Some(Span::from_ns(60_000_000_000)));
    applied::confirm().unwrap();
    wait_until("the watchdog is gone", || apply_watchdog_process().is_none());
    assert!(record.exists());
    assert!(matches!(applied::confirm(), Err(HostError::NothingToConfirm)));
    take_back();
    assert_eq!(picture(&name), then);
}

fn role_second(_: &[String]) {
    let name = name();
    pair(&name);
    let then = picture(&name);
    let lock = Store::open().unwrap().lock().unwrap();
    for _ in 0..2 {
        let mut process = Role::start("apply", &[name.as_str()]);
        process.hear();
        process.tell("go");
        let said = process.hear();
        let own = std::process::id();
        assert_eq!(said, format!("process {own} is changing the settings of this host"));
        process.end();
    }
    assert!(matches!(applied::undo(false), Err(HostError::Busy { .. })));
    drop(lock);
    let desired = a_desired(&name);
    go(&desired, None);
    // The same again changes nothing; another one is refused.
    assert_eq!(go(&desired, None), TransactionOutcome::Nothing);
    let other: Settings =
        [(Setting::Mtu { interface: name.clone() }, Value::text("1200"))].into_iter().collect();
    let title = Title::default();
    let error = applied::apply(&title, &other, None, &mut |_, _, _| {}).unwrap_err();
    assert!(error.to_string().starts_with("`a test` is applied already"), "{error}");
    take_back();
    assert_eq!(picture(&name), then);
}

fn role_rebooted(_: &[String]) {
    let name = name();
    pair(&name);
    let then = picture(&name);
    go(&a_desired(&name), None);
    let applied = picture(&name);
    let record = Store::open().unwrap().log_path();
    let text = fs::read_to_string(&record).unwrap();
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let earlier = text.replace(boot.trim(), "another-boot");
    assert_ne!(text, earlier);
    fs::write(&record, &earlier).unwrap();
    assert!(applied::status().unwrap().rebooted);
    match applied::undo(false).unwrap() {
        Undoing::Rebooted { differences, .. } => assert!(!differences.is_empty()),
        other => panic!("{other:?}"),
    }
    assert_eq!(picture(&name), applied, "nothing was written");
    assert!(!record.exists());
    // Another network namespace of the same number: only its cookie tells.
    let another: String = text
        .lines()
        .map(|line| match line.split_once("\"cookie\":") {
            Some((start, rest)) => {
                let end = rest.trim_start_matches(|c: char| c.is_ascii_digit());
                format!("{start}\"cookie\":1{end}\n")
            }
            None => format!("{line}\n"),
        })
        .collect();
    assert_ne!(text, another);
    fs::write(&record, &another).unwrap();
    assert!(recover().unwrap().is_empty());
    assert!(matches!(applied::undo(true).unwrap(), Undoing::Rebooted { .. }));
    assert_eq!(picture(&name), applied, "nothing was written");
    assert!(matches!(applied::undo(false).unwrap(), Undoing::Nothing));
    // With the record as it was, it is restored.
    fs::write(&record, text).unwrap();
    take_back();
    assert_eq!(picture(&name), then);
}

fn role_drift(_: &[String]) {
    let name = name();
    pair(&name);
    let then = picture(&name);
    go(&a_desired(&name), None);
    assert!(applied::status().unwrap().settings.iter().all(|(_, state)| *state == State::Applied));
    sh(&format!("ip link set {name} mtu 1300"));
    let status = applied::status().unwrap();
    let drifted: Vec<String> = status
        .settings
        .iter()
        .filter(|(_, state)| *state == State::Drifted)
        .map(|(difference, _)| difference.to_string())
        .collect();
    assert_eq!(drifted, [format!("{name}: MTU was 1000, is 1300")]);
    let text = fs::read_to_string(Store::open().unwrap().log_path()).unwrap();
    match applied::undo(false).unwrap() {
        Undoing::Done { undone, .. } => {
            let left: Vec<String> = undone.left.iter().map(ToString::to_string).collect();
            assert_eq!(left, [format!("{name}: MTU was 1500, is 1300")]);
        }
        other => panic!("{other:?}"),
    }
    let saved = applied::status().unwrap().saved.unwrap();
    assert_eq!(saved.transaction.undo_log.left.len(), 1);
    // The same undo, killed before it could say what it leaves: the next start goes on as it began.
    let lines: Vec<&str> = text.lines().collect();
    let record = fs::read_to_string(&saved.path).unwrap();
    let undoing = record.lines().nth(lines.len()).unwrap();
    assert!(undoing.contains("undoing"), "{undoing}");
    fs::write(&saved.path, format!("{text}{undoing}\n")).unwrap();
    let said = recover().unwrap()[0].to_string();
    assert!(said.contains("MTU was 1500, is 1300"), "{said}");
    assert_eq!(
        applied::status().unwrap().saved.unwrap().transaction.undo_log.left,
        saved.transaction.undo_log.left
    );
    sh(&format!("ip link set {name} mtu 1500"));
    take_back();
    assert_eq!(picture(&name), then);
}
