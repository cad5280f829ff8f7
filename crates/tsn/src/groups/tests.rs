// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The order of the tree is the order of the priorities; windows meet exactly; what Linux cannot do
//! is refused.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value as Json, json};
use timewire_base::{CyclicWindows, Instant, Span, Tai, Window};

use super::*;
use crate::file::ParseFile;
use timewire_model::scenario::host::HostSettings;

fn file_of(groups: &Json) -> Json {
    let host = json!({"groups": groups});
    json!({"timewire": 1, "kind": "network", "name": "t",
        "stations": [{"name": "alpha", "host": host}]})
}

fn parse(groups: &Json) -> Result<Group, String> {
    let text = file_of(groups).to_string();
    let file = HostSettings::parse("t", &text).map_err(|errors| errors.to_string())?;
    Ok(file.host.groups.expect("it was given"))
}

fn plan(groups: &Json) -> GroupPlan {
    let group = parse(groups).unwrap_or_else(|errors| panic!("{errors}"));
    GroupPlan::new(&group, &Facts::unknown()).unwrap()
}

fn program(name: &str) -> Json {
    json!({"kind": "program", "run": [name]})
}

/// A random tree of the policies whose order can be compared, by a list of numbers.
fn tree(shape: &mut dyn FnMut() -> u64, depth: usize, names: &mut u64) -> Json {
    *names += 1;
    let name = format!("g{names}");
    let policy = ["sequential", "priority", "round_robin", "tdm"][(shape() % 4) as usize];
    let count = shape() % 4;
    let members: Vec<Json> = (0..count)
        .map(|i| {
            let nested = depth < 3 && policy != "round_robin" && shape().is_multiple_of(3);
            *names += 1;
            let is = if nested {
                json!({"kind": "group", "group": tree(shape, depth + 1, names)})
            } else {
                program(&format!("p{names}"))
            };
            match policy {
                // Groups have numbers of their own; others may share one.
                "priority" if nested => json!({"is": is, "priority": i + 10}),
                "priority" => json!({"is": is, "priority": shape() % 4 + 1}),
                "tdm" => {
                    json!({"is": is, "offset": format!("{}us", i * 250), "length": "200us"})
                }
                _ => json!({"is": is}),
            }
        })
        .collect();
    match policy {
        "tdm" => json!({"name": name, "policy": policy, "cycle": "1ms", "members": members}),
        _ => json!({"name": name, "policy": policy, "members": members}),
    }
}

/// The order that the tree asks for between two members, by their first different ancestors:
/// `Some(true)` when the first goes before the second, `None` when nothing is said.
fn before(groups: &Json, a: &str, b: &str) -> Option<bool> {
    let steps = |key: &str| -> Vec<usize> {
        key.split("members[")
            .skip(1)
            .map(|rest| rest.split(']').next().unwrap().parse().unwrap())
            .collect()
    };
    let (a, b) = (steps(a), steps(b));
    let mut group = groups;
    for (i, j) in a.iter().zip(&b) {
        if i != j {
            return match group["policy"].as_str().unwrap() {
                "sequential" => Some(i < j),
                "priority" => {
                    let number = |k: &usize| group["members"][*k]["priority"].as_u64().unwrap();
                    (number(i) != number(j)).then(|| number(i) < number(j))
                }
                _ => None,
            };
        }
        group = &group["members"][*i]["is"]["group"];
    }
    None
}

proptest! {
    #[test]
    fn t0_order_in_the_tree_is_order_of_priorities(
        numbers in proptest::collection::vec(any::<u64>(), 64),
    ) {
        let mut next = numbers.iter().cycle().copied();
        let groups = tree(&mut || next.next().unwrap(), 0, &mut 0);
        // Windows that never meet are refused; the rest is laid out.
        let Ok(group) = parse(&groups) else { return Ok(()) };
        let plan = GroupPlan::new(&group, &Facts::unknown()).unwrap();
        let members: Vec<_> = plan.members().collect();
        for a in &members {
            let of_a = a.scheduling.priority().unwrap();
            prop_assert!((1..=60).contains(&of_a) && of_a < plan.supervisor_priority);
            for b in &members {
                let of_b = b.scheduling.priority().unwrap();
                if let Some(first) = before(&groups, &a.key, &b.key) {
                    prop_assert_eq!(of_a > of_b, first, "{} and {}", a.key, b.key);
                    prop_assert_ne!(of_a, of_b);
                }
            }
        }
        // A group's range holds its members, and nobody else's of those it has an order with.
        let mut ranges: Vec<(usize, PriorityRange)> = Vec::new();
        for row in &plan.rows {
            let (depth, low, high) = match row {
                Row::Group(PlannedGroup { priorities: None, .. }) => continue,
                Row::Group(group) => {
                    let (low, high) = group.priorities.unwrap();
                    (group.depth, low, high)
                }
                Row::Member(member) => {
                    let priority = member.scheduling.priority().unwrap();
                    (member.depth, priority, priority)
                }
            };
            ranges.retain(|(other, _)| *other < depth);
            for (_, (outer_low, outer_high)) in &ranges {
                prop_assert!(*outer_low <= low && high <= *outer_high);
            }
            if matches!(row, Row::Group(_)) {
                ranges.push((depth, (low, high)));
            }
        }
    }

    /// second method: ask every microsecond.
    #[test]
    fn t0_windows_within_windows_agree_with_brute_force(
        outer in (1_i64..13, 0_i64..12, 1_i64..12),
        inner in (1_i64..13, 0_i64..12, 1_i64..12),
    ) {
        let windows = |(cycle, offset, length): (i64, i64, i64)| {
            let us = Span::from_us;
            let window = Window { offset: us(offset), length: us(length) };
            CyclicWindows::new(Instant::from_ns(0), us(cycle), vec![window]).ok()
        };
        let (Some(a), Some(b)) = (windows(outer), windows(inner)) else { return Ok(()) };
        let both = windows::intersection(&a, &b).unwrap();
        let inside = |windows: &CyclicWindows, at: i64| {
            let phase = windows.phase(Instant::<Tai>::from_ns(at * 1_000));
            matches!(phase, Some(timewire_base::Phase::Inside { .. }))
        };
        for at in -200..400 {
            prop_assert_eq!(inside(&both, at), inside(&a, at) && inside(&b, at), "at {}us", at);
        }
    }

    /// second method: their sum.
    #[test]
    fn t0_reservations_are_admitted_up_to_the_share(
        runtimes in proptest::collection::vec(2_u64..900, 1..6),
        cpus in 1_u32..5,
    ) {
        let members: Vec<Json> = runtimes.iter().enumerate().map(|(i, runtime)| json!({
            "is": program(&format!("p{i}")),
            "runtime": format!("{runtime}us"),
            "period": "1ms",
        })).collect();
        let groups = json!({"name": "d", "policy": "deadline", "members": members});
        let result = GroupPlan::new(&parse(&groups).unwrap(), &Facts::of(cpus, Some(950_000)));
        let fits = runtimes.iter().sum::<u64>() <= 950 * u64::from(cpus);
        prop_assert_eq!(result.is_ok(), fits);
    }
}

#[test]
fn t0_what_one_that_never_sleeps_would_do_is_said() {
    let napi = |interface: &str| json!({"is": {"kind": "napi", "interface": interface}});
    let notes = |members: &[Json], facts: &Facts| {
        let groups = json!({"name": "t", "policy": "sequential", "members": members});
        GroupPlan::new(&parse(&groups).unwrap(), facts).unwrap().notes
    };
    let mut facts = Facts::unknown();
    facts.polled = vec![("eth0".to_owned(), 0), ("eth1".to_owned(), 90)];
    let work = json!({"is": program("work")});
    let [eth0] = &notes(std::slice::from_ref(&work), &facts)[..] else { panic!("one note") };
    assert!(eth0.starts_with("the threads that poll eth0 (priority 0) go after members with"));
    // As members they have the priority of their place.
    assert_eq!(notes(&[napi("eth0"), work.clone()], &facts), [""; 0]);
    let after = notes(&[work.clone(), napi("eth1"), napi("eth0")], &facts);
    assert!(after[0].contains("poll eth0 (priority 58)") && after[1].contains("(priority 59)"));
    assert_eq!(notes(&[napi("eth0")], &facts), [""; 0], "polling alone is no danger");
    facts = Facts::unknown();
    facts.is_unbounded = true;
    assert!(notes(&[work], &facts)[0].starts_with("kernel.sched_rt_runtime_us is -1"));
    assert_eq!(notes(&[], &facts), [""; 0]);
}

#[test]
fn t0_a_tree_is_laid_out() {
    let groups = json!({
        "name": "top", "policy": "sequential", "highest": 40, "members": [
            {"is": {"kind": "group", "group": {"name": "fast", "policy": "deadline", "members": [
                {"is": program("d"), "runtime": "1ms", "period": "10ms"}]}}},
            {"is": {"kind": "napi", "interface": "eth0"}},
            {"is": {"kind": "group", "group": {"name": "by-number", "policy": "priority",
                "members": [
                    {"is": program("last"), "priority": 9},
                    {"is": program("a"), "priority": 1},
                    {"is": program("b"), "priority": 1}]}}},
            {"is": {"kind": "group", "group": {"name": "turns", "policy": "round_robin",
                "cpus": "1", "members": [{"is": program("r1")}, {"is": program("r2")}]}}},
            {"is": {"kind": "group", "group": {"name": "slots", "policy": "tdm", "cycle": "10ms",
                "members": [
                    {"is": program("w1"), "offset": "0ms", "length": "4ms"},
                    {"is": {"kind": "group", "group": {"name": "inner", "policy": "tdm",
                        "cycle": "5ms", "members": [
                            {"is": program("w2"), "offset": "0ms", "length": "1ms"}]}},
                        "offset": "5ms", "length": "5ms"}]}}},
            {"is": {"kind": "softirq", "cpu": 0}},
        ]
    });
    let plan = plan(&groups);
    let laid_out: BTreeMap<String, String> = plan
        .members()
        .map(|m| {
            (m.member.to_string(), m.to_string().split_whitespace().collect::<Vec<_>>().join(" "))
        })
        .collect();
    let expected = [
        ("NAPI threads of eth0", "SCHED_FIFO 40"),
        ("program `a`", "SCHED_FIFO 39"),
        ("program `b`", "SCHED_FIFO 39"),
        ("program `d`", "SCHED_DEADLINE 1ms by 10ms every 10ms"),
        ("program `last`", "SCHED_FIFO 38"),
        ("program `r1`", "SCHED_RR 37"),
        ("program `r2`", "SCHED_RR 37"),
        ("program `w1`", "SCHED_FIFO 36, windows 0ns+4ms of 10ms"),
        ("program `w2`", "SCHED_FIFO 36, windows 5ms+1ms of 10ms"),
        ("softirq thread of CPU 0", "SCHED_FIFO 35"),
    ];
    let expected: BTreeMap<String, String> =
        expected.iter().map(|(who, how)| ((*who).to_owned(), format!("{who} {how}"))).collect();
    assert_eq!(laid_out, expected);
    assert_eq!(plan.supervisor_priority, 41);
    let cpus = plan.members().find(|m| m.member.to_string() == "program `r1`").unwrap();
    assert_eq!(cpus.cpus.as_ref().unwrap().to_string(), "1");
    let report = serde_json::to_value(plan.report()).unwrap();
    assert_eq!(report["schema"], PLAN_SCHEMA);
    assert_eq!(report["rows"].as_array().unwrap().len(), plan.rows.len());
}

#[test]
fn t0_a_tree_survives_its_file() {
    let groups = json!({"name": "top", "policy": "tdm", "cycle": "10ms", "cpus": "0-1",
        "members": [{"is": {"kind": "process", "pid": 12}, "offset": "1ms", "length": "2ms"}]});
    let text = file_of(&groups).to_string();
    let file = HostSettings::parse("t", &text).unwrap();
    let again = serde_json::to_string(&file).unwrap();
    assert_eq!(HostSettings::parse("t", &again).unwrap(), file);
}

#[test]
fn t0_more_levels_than_priorities_are_refused() {
    let members: Vec<Json> = (0..61).map(|i| json!({"is": program(&format!("p{i}"))})).collect();
    let errors = parse(&json!({"name": "top", "policy": "sequential", "members": members}));
    let errors = errors.unwrap_err();
    assert!(errors.contains("needs 61 real-time priorities, and there are 60"), "{errors}");
}
