// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A transaction ends as it began or as it was desired, wherever it is broken off: every place in
//! turn on chosen plans, and random plans on random hosts.

use std::collections::BTreeSet;
use std::sync::Once;

use crate::model::{Death, FAULTS, Fault, Interface, Memory, Model, alive, napi, polling};
use proptest::prelude::*;
use timewire_base::IfName;
use timewire_host::apply::{
    self, ALL, Failure, PollingFile, QdiscNode, QdiscTree, Setting, Settings, ThreadScheduling,
    ThreadState, TransactionOutcome, Undone, Value,
};
use timewire_tsn::qdisc::QdiscCommand;

/// The deaths of processes are not worth a line each.
fn quiet() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !info.payload().is::<Death>() {
                usual(info);
            }
        }));
    });
}

fn name(text: &str) -> IfName {
    IfName::new(text).unwrap()
}

fn tree(lines: &[&str]) -> Value {
    let commands: Vec<QdiscCommand> = lines.iter().map(|line| line.parse().unwrap()).collect();
    Value::Qdiscs(QdiscTree::of_commands(&commands).unwrap())
}

const TAPRIO: &str = "tc qdisc add dev eth0 root handle 100: taprio num_tc 2 map 1 0 0 0 0 0 \
                      0 0 0 0 0 0 0 0 0 0 queues 1@0 1@1 base-time 0 sched-entry S 01 300000 \
                      sched-entry S 02 700000 clockid CLOCK_TAI";
const ETF: &str =
    "tc qdisc replace dev eth0 parent 100:1 handle 101: etf clockid CLOCK_TAI delta 300000";
const MQPRIO: &str = "tc qdisc add dev eth0 root handle 100: mqprio num_tc 2 map 1 0 0 0 0 0 \
                      0 0 0 0 0 0 0 0 0 0 queues 1@0 1@1 hw 0";
const CBS: &str = "tc qdisc replace dev eth0 parent 100:1 handle 101: cbs idleslope 20000 \
                   sendslope -980000 hicredit 30 locredit -1470 offload 0";

const CLSACT: &str = "clsact";
const MARK: &str = "pref 100 protocol ip handle 1 flower ip_proto udp action skbedit priority :3";

fn marks(words: &[&str]) -> Value {
    Value::List(words.iter().map(|&words| words.to_owned()).collect())
}

fn foreign(kind: &str, words: &str) -> Value {
    let node = QdiscNode {
        kind: kind.to_owned(),
        handle: "9:".to_owned(),
        place: "root".to_owned(),
        size_table: String::new(),
        words: words.to_owned(),
        compared: words.to_owned(),
        fault: None,
    };
    Value::Qdiscs(QdiscTree { nodes: vec![node], holds: Vec::new() })
}

/// Two NICs, a VLAN that was there before, addresses of both families, routes.
fn host() -> Model {
    let mut model = Model::default();
    for (name, value) in [("net.core.netdev_budget", "300"), ("net.core.busy_read", "0")] {
        model.sysctls.insert(name.to_owned(), value.to_owned());
    }
    let mut eth0 = Interface::new(4);
    eth0.addresses =
        vec!["10.0.0.1/24 scope global".to_owned(), "fd00::1/64 scope global".to_owned()];
    eth0.routes = vec!["-6 fd01::/64 via fd00::2".to_owned(), "default via 10.0.0.2".to_owned()];
    eth0.neighbours = vec!["10.0.0.9 lladdr 02:00:00:00:00:09 nud permanent".to_owned()];
    eth0.xps = eth0.xps.keys().map(|queue| (queue.clone(), "1".to_owned())).collect();
    model.interfaces.insert("eth0".to_owned(), eth0);
    let mut vlan = Interface::new(1);
    vlan.addresses = vec!["fd07::1/64 scope global".to_owned()];
    vlan.vlan = Some(
        [("link", "eth0"), ("id", "7"), ("egress 2", "2")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
    );
    model.interfaces.insert("eth0.7".to_owned(), vlan);
    model.interfaces.insert("eth1".to_owned(), Interface::new(1));
    model
}

fn fifo(priority: u8) -> Value {
    let state = ThreadState {
        scheduling: Some(ThreadScheduling::Fifo(priority)),
        cpus: Some("1".to_owned()),
    };
    Value::Threads([(ALL.to_owned(), state)].into())
}

/// Plans of several steps, of every kind.
fn plans() -> Vec<(&'static str, Model, Settings)> {
    let eth0 = || name("eth0");
    let vlan = name("eth0.5");
    let sysctl = Setting::Sysctl { name: "net.core.netdev_budget".to_owned() };
    let talker: Settings = [
        (sysctl.clone(), Value::text("64")),
        (Setting::Channels { interface: eth0() }, Value::fields([("combined", "2")])),
        (Setting::Coalescing { interface: eth0() }, Value::fields([("rx-usecs", "0")])),
        (Setting::Features { interface: eth0() }, Value::fields([("tso", "off")])),
        (
            Setting::Vlan { interface: vlan },
            Value::fields([("link", "eth0"), ("id", "5"), ("egress 3", "3")]),
        ),
        (Setting::Qdiscs { interface: eth0() }, tree(&[TAPRIO, ETF])),
    ]
    .into_iter()
    .collect();
    let listener: Settings = [
        (sysctl, Value::text("64")),
        (polling("eth0", PollingFile::Threaded), Value::text("1")),
        (polling("eth0", PollingFile::GroFlushTimeout), Value::text("20000")),
        (napi("eth0"), fifo(50)),
        (Setting::Rps { interface: eth0() }, Value::fields([(ALL, "0-1")])),
        (Setting::Mtu { interface: eth0() }, Value::text("1000")),
        (Setting::Link { interface: name("eth1") }, Value::text("down")),
    ]
    .into_iter()
    .collect();
    let classes: Settings = [
        (Setting::Qdiscs { interface: eth0() }, tree(&[MQPRIO, CBS])),
        (Setting::Marks { interface: eth0() }, marks(&[CLSACT, MARK, "pref 101 protocol ipv6 x"])),
        (Setting::Xps { interface: eth0() }, Value::fields([("0", "0")])),
        (
            Setting::Vlan { interface: name("eth0.7") },
            Value::fields([("link", "eth0"), ("id", "7"), ("ingress 5", "3")]),
        ),
    ]
    .into_iter()
    .collect();
    // A discipline that someone put there is in the way of new channels, and comes back.
    let mut shaped = host();
    shaped.interfaces.get_mut("eth0").unwrap().qdiscs = match foreign("htb", "r2q 10 default 0") {
        Value::Qdiscs(tree) => tree.nodes,
        _ => Vec::new(),
    };
    let channels: Settings = [
        (Setting::Channels { interface: eth0() }, Value::fields([("combined", "2")])),
        (Setting::Mtu { interface: name("eth1") }, Value::text("9000")),
    ]
    .into_iter()
    .collect();
    // What was there has children below a taprio itself.
    let mut gated = host();
    let before: Settings =
        [(Setting::Qdiscs { interface: eth0() }, tree(&[TAPRIO, ETF]))].into_iter().collect();
    done(&mut gated, &before);
    gated.count = 0;
    // And it has marks, which others take the place of.
    gated.interfaces.get_mut("eth0").unwrap().marks =
        vec![CLSACT.to_owned(), MARK.to_owned(), "pref 105 protocol all y".to_owned()];
    let plain: Settings = [
        (Setting::Marks { interface: eth0() }, marks(&[CLSACT, "pref 100 protocol ip z"])),
        (Setting::Qdiscs { interface: eth0() }, tree(&[MQPRIO])),
        (Setting::Channels { interface: eth0() }, Value::fields([("combined", "3")])),
    ]
    .into_iter()
    .collect();
    vec![
        ("talker", host(), talker),
        ("listener", host(), listener),
        ("classes", host(), classes),
        ("channels", shaped, channels),
        ("gates", gated, plain),
    ]
}

fn go(
    model: &mut Model,
    log: &mut Memory,
    desired: &Settings,
) -> Result<TransactionOutcome, Failure> {
    apply::apply(model, log, desired, &|| None, &mut |_, _, _| {})
}

/// Applies a desired configuration to a host on which nothing fails.
fn done(model: &mut Model, desired: &Settings) -> Memory {
    let mut log = Memory::default();
    match go(model, &mut log, desired) {
        Ok(_) => log,
        Err(failure) => panic!("{failure:?}"),
    }
}

fn undo(model: &mut Model, log: &mut Memory) -> Undone {
    let undo_log = log.undo_log();
    apply::undo(model, log, &undo_log, false).unwrap()
}

/// Nothing is left over, and the host is as it was.
fn assert_as_before(what: &str, before: &Model, after: &Model, undone: &Undone) {
    assert_eq!(undone.left, [], "{what}: {:?}", undone.reasons);
    assert_eq!(after.state(), before.state(), "{what}");
}

#[test]
fn t0_a_plan_does_what_is_wanted_and_undo_restores_all() {
    for (what, before, desired) in plans() {
        let mut model = before.clone();
        let mut log = done(&mut model, &desired);
        for (setting, value) in desired.iter() {
            let have = apply::Host::observe(&mut model, setting).unwrap();
            assert!(value.is_met_by(&have), "{what}: {setting} is {have}");
        }
        assert!(model.interfaces.values().all(|interface| !interface.is_dead), "{what}");
        let count = model.count;
        assert!(matches!(
            go(&mut model, &mut Memory::default(), &desired),
            Ok(TransactionOutcome::Nothing)
        ));
        assert_eq!(model.count, count, "{what}: applied again, nothing is done");
        let undone = undo(&mut model, &mut log);
        assert_as_before(what, &before, &model, &undone);
        let count = model.count;
        let undone = undo(&mut model, &mut log);
        assert_as_before(what, &before, &model, &undone);
        assert_eq!(model.count, count, "{what}: undone again, nothing is done");
    }
}

/// A NIC that was pulled out cannot be restored; with force it is forgotten, and all else is.
#[test]
fn t0_an_interface_that_is_gone_can_be_forgotten() {
    for (what, before, desired) in plans() {
        let mut model = before.clone();
        let mut log = done(&mut model, &desired);
        model.interfaces.retain(|name, _| !name.starts_with("eth0"));
        let undo_log = log.undo_log();
        let undone = apply::undo(&mut model, &mut log, &undo_log, false).unwrap();
        let of_eth0 = |setting: &Setting| {
            setting.interface().is_some_and(|interface| interface.as_str().starts_with("eth0"))
        };
        assert!(undone.left.iter().any(|left| of_eth0(&left.setting)), "{what}: {undone:?}");
        assert!(undone.left.iter().all(|left| of_eth0(&left.setting)), "{what}: {undone:?}");
        let undo_log = log.undo_log();
        let undone = apply::undo(&mut model, &mut log, &undo_log, true).unwrap();
        assert_eq!(undone.left, [], "{what}: {:?}", undone.reasons);
        let mut rest = before.clone();
        rest.interfaces.retain(|name, _| !name.starts_with("eth0"));
        assert_eq!(model.state(), rest.state(), "{what}");
    }
}

#[test]
fn t0_whatever_command_fails_or_dies_the_host_ends_as_it_began() {
    quiet();
    for (what, before, desired) in plans() {
        let mut whole = before.clone();
        done(&mut whole, &desired);
        for at in 0..whole.count {
            for fault in FAULTS {
                let what = format!("{what}, {fault:?} at command {at}");
                let mut model = before.clone();
                model.faults.insert(at, fault);
                let mut log = Memory::default();
                match alive(|| go(&mut model, &mut log, &desired)) {
                    Some(Err(Failure::Failed { left, reasons, .. })) => {
                        let undone = Undone { left, reasons, ..Undone::default() };
                        assert_as_before(&what, &before, &model, &undone);
                    }
                    Some(other) => panic!("{what}: {other:?}"),
                    None => {
                        let undo_log = log.undo_log();
                        let undone = apply::roll_back(&mut model, &mut log, &undo_log);
                        assert_as_before(&what, &before, &model, &undone);
                        let undo_log = log.undo_log();
                        let undone = apply::roll_back(&mut model, &mut log, &undo_log);
                        assert_as_before(&format!("{what}, again"), &before, &model, &undone);
                    }
                }
                // After that, it can be done.
                let mut log = done(&mut model, &desired);
                let undone = undo(&mut model, &mut log);
                assert_as_before(&what, &before, &model, &undone);
            }
        }
    }
}

#[test]
fn t0_whenever_the_record_is_cut_off_the_host_ends_as_it_began() {
    quiet();
    for (what, before, desired) in plans() {
        let mut whole = before.clone();
        let entries = done(&mut whole, &desired).entries.len();
        for at in 0..entries {
            for is_kept in [false, true] {
                let what = format!("{what}, entry {at}, kept: {is_kept}");
                let mut model = before.clone();
                let mut log = Memory { dies_at: Some((at, is_kept)), ..Memory::default() };
                assert!(alive(|| go(&mut model, &mut log, &desired)).is_none(), "{what}");
                let undo_log = log.undo_log();
                let is_complete = at + 1 == entries && is_kept;
                assert_eq!(undo_log.after.is_some(), is_complete, "{what}");
                let undone = apply::roll_back(&mut model, &mut log, &undo_log);
                assert_as_before(&what, &before, &model, &undone);
            }
        }
    }
}

#[test]
fn t0_an_undo_that_dies_is_done_to_its_end_the_next_time() {
    quiet();
    for (what, before, desired) in plans() {
        let mut applied = before.clone();
        let log = done(&mut applied, &desired);
        let mut whole = applied.clone();
        undo(&mut whole, &mut log.clone());
        for at in applied.count..whole.count {
            for fault in FAULTS {
                let what = format!("{what}, {fault:?} at command {at} of the undo");
                let (mut model, mut log) = (applied.clone(), log.clone());
                model.faults.insert(at, fault);
                let undo_log = log.undo_log();
                match alive(|| apply::undo(&mut model, &mut log, &undo_log, false)) {
                    // It is tried again in the same undo.
                    Some(undone) => assert_as_before(&what, &before, &model, &undone.unwrap()),
                    None => {
                        let undone = undo(&mut model, &mut log);
                        assert_as_before(&what, &before, &model, &undone);
                    }
                }
            }
        }
    }
}

#[test]
fn t0_a_process_that_dies_while_it_takes_back_is_done_to_its_end() {
    quiet();
    let (what, before, desired) = plans().remove(0);
    let mut whole = before.clone();
    done(&mut whole, &desired);
    for at in 0..whole.count {
        for then in 0..whole.count {
            for fault in [Fault::DiesBefore, Fault::DiesAfter] {
                let what = format!("{what}, fails at {at}, {fault:?} {then} later");
                let mut model = before.clone();
                model.faults.insert(at, Fault::DoesAndFails);
                model.faults.insert(at + 1 + then, fault);
                let mut log = Memory::default();
                if alive(|| go(&mut model, &mut log, &desired)).is_none() {
                    let undo_log = log.undo_log();
                    let undone = apply::roll_back(&mut model, &mut log, &undo_log);
                    assert_as_before(&what, &before, &model, &undone);
                } else {
                    assert_eq!(model.state(), before.state(), "{what}");
                }
            }
        }
    }
}

#[test]
fn t0_what_cannot_be_undone_is_named_and_nothing_else() {
    for (what, before, desired) in plans() {
        let mut applied = before.clone();
        let log = done(&mut applied, &desired);
        let mut whole = applied.clone();
        undo(&mut whole, &mut log.clone());
        let lines: BTreeSet<String> = whole.done[applied.done.len()..].iter().cloned().collect();
        for line in lines {
            let what = format!("{what}, without `{line}`");
            let (mut model, mut log) = (applied.clone(), log.clone());
            model.broken.insert(line);
            let undone = undo(&mut model, &mut log);
            // What is named is what differs: the record says what was there before.
            let undo_log = log.undo_log();
            let mut other = model.clone();
            let now = apply::observe(&mut other, undo_log.before.keys()).unwrap();
            let differences = undo_log.before.differences(&now);
            assert_eq!(undone.left, differences, "{what}");
            assert_eq!(undo_log.left, undone.left, "{what}: on record");
            assert_eq!(undone.left.is_empty(), model.state() == before.state(), "{what}");
            model.broken.clear();
            let undone = undo(&mut model, &mut log);
            assert_as_before(&what, &before, &model, &undone);
        }
    }
}

#[test]
fn t0_what_someone_else_changed_stays_and_is_told() {
    let (_, before, desired) = plans().remove(0);
    let mut model = before.clone();
    let mut log = done(&mut model, &desired);
    let eth0 = model.interfaces.get_mut("eth0").unwrap();
    eth0.coalescing.insert("rx-usecs".to_owned(), "100".to_owned());
    // An address that came meanwhile is nobody's mistake, and stays.
    eth0.addresses.push("fd00::9/64 scope global".to_owned());
    let undone = undo(&mut model, &mut log);
    let left: Vec<String> = undone.left.iter().map(ToString::to_string).collect();
    assert_eq!(left, ["eth0: interrupt coalescing was rx-usecs 3, is rx-usecs 100"]);
    assert!(undone.reasons[0].contains("someone else changed it"), "{:?}", undone.reasons);
    let eth0 = &model.interfaces["eth0"];
    assert!(eth0.addresses.iter().any(|address| address.starts_with("fd00::9")));
    assert_eq!(eth0.coalescing["rx-usecs"], "100");

    let mut model = before.clone();
    let mut log = done(&mut model, &desired);
    let eth0 = model.interfaces.get_mut("eth0").unwrap();
    eth0.coalescing.insert("rx-usecs".to_owned(), "100".to_owned());
    let undo_log = log.undo_log();
    let undone = apply::undo(&mut model, &mut log, &undo_log, true).unwrap();
    assert_as_before("by force", &before, &model, &undone);
}

#[test]
fn t0_what_cannot_be_restored_is_refused_before_anything_changes() {
    let (_, mut model, desired) = plans().remove(0);
    let eth0 = model.interfaces.get_mut("eth0").unwrap();
    eth0.qdiscs = match foreign("htb", "r2q 10") {
        Value::Qdiscs(tree) => tree.nodes,
        _ => Vec::new(),
    };
    eth0.holds = vec!["classes of 9:".to_owned()];
    let mut log = Memory::default();
    let Err(Failure::Refused(refusals)) = go(&mut model, &mut log, &desired) else {
        panic!("refused")
    };
    let words: Vec<String> = refusals.iter().map(ToString::to_string).collect();
    assert!(words[0].contains("cannot be restored exactly: it has classes of 9:"), "{words:?}");
    assert!(words.iter().any(|words| words.starts_with("eth0: channels")), "{words:?}");
    assert!(log.entries.is_empty() && model.count == 0);
    let missing: Settings =
        [(Setting::Mtu { interface: name("eth9") }, Value::text("1500"))].into_iter().collect();
    let Err(Failure::Refused(refusals)) = go(&mut model, &mut log, &missing) else {
        panic!("refused")
    };
    assert_eq!(refusals[0].to_string(), "eth9: MTU: there is no interface eth9");
    let threads: Settings = [(napi("eth0"), fifo(50))].into_iter().collect();
    let Err(Failure::Refused(refusals)) = go(&mut model, &mut log, &threads) else {
        panic!("refused")
    };
    assert!(refusals[0].to_string().contains("threaded: true"), "{refusals:?}");
}

#[test]
fn t0_the_steps_of_a_plan_are_in_an_order_that_works() {
    let (_, mut model, desired) = plans().remove(0);
    let (_, plan) = apply::plan(&mut model, &desired).unwrap();
    let lines: Vec<String> =
        plan.steps.iter().flat_map(|step| &step.commands).map(ToString::to_string).collect();
    assert_eq!(
        lines,
        [
            "ip link add link eth0 name eth0.5 type vlan id 5 egress-qos-map 3:3",
            "echo 64 > /proc/sys/net/core/netdev_budget",
            "ip link set dev eth0 down",
            "ethtool -L eth0 combined 2",
            "ethtool -K eth0 tso off",
            "ethtool -C eth0 rx-usecs 0",
            &TAPRIO.split_whitespace().collect::<Vec<_>>().join(" "),
            ETF,
            "ip link set dev eth0 up",
            "ip address replace 10.0.0.1/24 scope global dev eth0",
            "ip address replace fd00::1/64 scope global dev eth0",
            "ip address replace fd07::1/64 scope global dev eth0.7",
            "ip neighbour replace 10.0.0.9 lladdr 02:00:00:00:00:09 nud permanent dev eth0",
            "ip -6 route replace fd01::/64 via fd00::2 dev eth0",
            "ip -4 route replace default via 10.0.0.2 dev eth0",
        ]
    );
}

/// What differs, in lines.
fn differences(before: &Model, after: &Model) -> String {
    let lines = |model: &Model| -> Vec<String> {
        let text = format!("{:#?}", model.state());
        text.lines().map(|line| line.trim().to_owned()).collect()
    };
    let (before, after) = (lines(before), lines(after));
    let only = |one: &[String], two: &[String]| -> Vec<String> {
        one.iter().filter(|line| !two.contains(line)).cloned().collect()
    };
    format!("was {:?}, is {:?}", only(&before, &after), only(&after, &before))
}

/// Any host of two NICs, with what was put there before.
fn any_host() -> impl Strategy<Value = Model> {
    let nic = (any::<bool>(), 1_usize..5, any::<bool>(), any::<bool>(), 0_u8..4, any::<bool>());
    let nics = proptest::collection::vec(nic, 2);
    (nics, any::<bool>()).prop_map(|(nics, has_vlan)| {
        let mut model = host();
        if !has_vlan {
            model.interfaces.remove("eth0.7");
        }
        for (name, (up, tx, has_xps, threaded, qdisc, has_routes)) in
            ["eth0", "eth1"].into_iter().zip(nics)
        {
            let mut nic = Interface::new(tx);
            nic.addresses = vec!["10.0.0.1/24 scope global".to_owned()];
            if has_routes {
                nic.addresses.push("fd00::1/64 scope global".to_owned());
                nic.routes = vec!["default via 10.0.0.2".to_owned()];
            }
            if has_xps {
                nic.xps = nic.xps.keys().map(|queue| (queue.clone(), "1".to_owned())).collect();
            }
            model.interfaces.insert(name.to_owned(), nic);
            let mut before = Settings::new();
            if threaded {
                before.set(polling(name, PollingFile::Threaded), Value::text("1"));
            }
            let interface = IfName::new(name).unwrap();
            if qdisc > 0 {
                before.set(
                    Setting::Qdiscs { interface: interface.clone() },
                    any_tree(name, qdisc, tx),
                );
            }
            if !up {
                before.set(Setting::Link { interface }, Value::text("down"));
            }
            done(&mut model, &before);
        }
        model.count = 0;
        model.done.clear();
        model
    })
}

/// One of the trees, for a NIC with so many queues.
fn any_tree(interface: &str, which: u8, tx: usize) -> Value {
    let on = |line: &str| line.replace("eth0", interface);
    let one = tx < 2;
    match which {
        1 => foreign("pfifo", "limit 10"),
        2 => foreign("htb", "r2q 10 default 0 direct_qlen 1000"),
        _ if one => foreign("pfifo", "limit 100"),
        3 => tree(&[&on(TAPRIO), &on(ETF)]),
        4 => tree(&[&on(TAPRIO)]),
        5 => tree(&[&on(MQPRIO), &on(CBS)]),
        _ => Value::Qdiscs(QdiscTree::of_kernel()),
    }
}

/// Any desired configuration for such a host.
fn any_desired() -> impl Strategy<Value = Settings> {
    let nic = (
        (
            proptest::option::of(any::<bool>()),
            proptest::option::of(prop_oneof![Just(1000), Just(9000)]),
        ),
        (proptest::option::of(1_usize..5), proptest::option::of(any::<bool>())),
        (proptest::option::of(1_u8..7), proptest::option::of(any::<bool>())),
        (proptest::option::of(any::<bool>()), proptest::option::of(1_u8..99)),
        (any::<bool>(), any::<bool>()),
    );
    let nics = proptest::collection::vec(nic, 2);
    (nics, proptest::option::of(0_u16..99), 0_u8..3).prop_map(|(nics, budget, vlan)| {
        let mut desired = Settings::new();
        if let Some(budget) = budget {
            let name = "net.core.netdev_budget".to_owned();
            desired.set(Setting::Sysctl { name }, Value::text(budget.to_string()));
        }
        for (number, id) in [5, 7].into_iter().take(vlan.into()).enumerate() {
            let interface = IfName::new(&format!("eth0.{id}")).unwrap();
            let egress = format!("egress {}", number + 2);
            let fields = [("link", "eth0"), ("id", &id.to_string()), (&egress, "4")];
            desired.set(Setting::Vlan { interface }, Value::fields(fields));
        }
        for (name, nic) in ["eth0", "eth1"].into_iter().zip(nics) {
            let ((up, mtu), (tx, tso), (qdisc, rps), (threaded, priority), (xps, coalesces)) = nic;
            let own = |make: fn(IfName) -> Setting| make(IfName::new(name).unwrap());
            let on_off = |on: bool| if on { "on" } else { "off" };
            if let Some(up) = up {
                let value = Value::text(if up { "up" } else { "down" });
                desired.set(own(|interface| Setting::Link { interface }), value);
            }
            if let Some(mtu) = mtu {
                desired
                    .set(own(|interface| Setting::Mtu { interface }), Value::text(mtu.to_string()));
            }
            if let Some(tx) = tx {
                let value = Value::fields([("combined", tx.to_string())]);
                desired.set(own(|interface| Setting::Channels { interface }), value);
            }
            if let Some(tso) = tso {
                let value = Value::fields([("tso", on_off(tso))]);
                desired.set(own(|interface| Setting::Features { interface }), value);
            }
            if let Some(qdisc) = qdisc {
                let value = any_tree(name, qdisc, tx.unwrap_or(1));
                desired.set(own(|interface| Setting::Qdiscs { interface }), value);
            }
            if let Some(both) = rps {
                let value = Value::fields([(ALL, if both { "0-1" } else { "1" })]);
                desired.set(own(|interface| Setting::Rps { interface }), value);
            }
            if let Some(threaded) = threaded {
                let value = Value::text(if threaded { "1" } else { "0" });
                desired.set(polling(name, PollingFile::Threaded), value);
                if let Some(priority) = priority.filter(|_| threaded) {
                    desired.set(napi(name), fifo(priority));
                }
            }
            if xps {
                desired
                    .set(own(|interface| Setting::Xps { interface }), Value::fields([("0", "0")]));
            }
            if coalesces {
                let value = Value::fields([("rx-usecs", "0"), ("tx-usecs", "0")]);
                desired.set(own(|interface| Setting::Coalescing { interface }), value);
            }
        }
        desired
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 1000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// The desired configurations of a case follow each other; each may be broken off anywhere.
    #[test]
    fn t0_random_transactions_leave_no_trace(
        before in any_host(),
        desired in proptest::collection::vec(
            (any_desired(), proptest::option::of((0_usize..30, 0_usize..4))),
            1..4,
        ),
    ) {
        quiet();
        let mut model = before.clone();
        for (desired, fault) in desired {
            model.count = 0;
            model.faults.clear();
            model.faults.extend(fault.map(|(at, which)| (at, FAULTS[which])));
            let mut log = Memory::default();
            match alive(|| go(&mut model, &mut log, &desired)) {
                Some(Ok(TransactionOutcome::Done { .. })) => {
                    for (setting, value) in desired.iter() {
                        let have = apply::Host::observe(&mut model, setting).unwrap();
                        prop_assert!(value.is_met_by(&have), "{setting} is {have}, not {value}");
                    }
                    let (_, interfaces) = model.state();
                    prop_assert!(interfaces.values().all(|interface| !interface.is_dead));
                    let undo_log = log.undo_log();
                    if alive(|| apply::undo(&mut model, &mut log, &undo_log, false)).is_none() {
                        let undone = undo(&mut model, &mut log);
                        prop_assert_eq!(undone.left, []);
                    }
                }
                Some(Ok(TransactionOutcome::Nothing)) => prop_assert_eq!(model.count, 0),
                Some(Err(Failure::Failed { left, reasons, .. })) => {
                    prop_assert_eq!(left, [], "{:?}", reasons);
                }
                Some(Err(Failure::Refused(_))) => prop_assert_eq!(model.count, 0),
                Some(Err(other)) => prop_assert!(false, "{other:?}"),
                None => {
                    let undo_log = log.undo_log();
                    let undone = apply::roll_back(&mut model, &mut log, &undo_log);
                    prop_assert_eq!(undone.left, [], "{:?}", undone.reasons);
                }
            }
            prop_assert!(model.state() == before.state(), "{}", differences(&before, &model));
        }
    }
}

/// Made anew while the link is down, or else the link comes up with one that sends nothing.
#[test]
fn t0_a_taprio_runs_again_whatever_command_fails_once() {
    quiet();
    let eth0 = || name("eth0");
    let mut before = host();
    let gates: Settings =
        [(Setting::Qdiscs { interface: eth0() }, tree(&[TAPRIO, ETF]))].into_iter().collect();
    done(&mut before, &gates);
    before.count = 0;
    let down: Settings = [
        (Setting::Link { interface: eth0() }, Value::text("down")),
        (Setting::Mtu { interface: eth0() }, Value::text("1000")),
    ]
    .into_iter()
    .collect();
    for at in 0..30 {
        let mut model = before.clone();
        model.faults.extend([(at, Fault::Fails)]);
        let mut log = Memory::default();
        if let Ok(TransactionOutcome::Done { .. }) = go(&mut model, &mut log, &down) {
            let undo_log = log.undo_log();
            let undone = apply::undo(&mut model, &mut log, &undo_log, false).unwrap();
            assert_eq!(undone.left, [], "{at}: {:?}", undone.reasons);
        }
        assert!(model.state() == before.state(), "{at}: {}", differences(&before, &model));
    }
}
