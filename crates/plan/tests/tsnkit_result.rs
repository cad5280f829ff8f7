// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Result tables of tsnkit read back and judged: what was written is clean, and each kind of change
//! to it is found or refused.

use std::collections::BTreeSet;

use proptest::prelude::*;
use timewire_base::Span;
use timewire_plan::check::{Rule, check};
use timewire_plan::exchange::{
    Tsnkit, TsnkitPlan, TsnkitResult, TsnkitTables, read_tsnkit, read_tsnkit_result, write_tsnkit,
};
use timewire_plan::model::Problem;
use timewire_plan::synth::{Options, plan};
use timewire_plan::words;

const TASK: &str = "stream,src,dst,size,period,deadline,jitter
0,2,[3],1000,100000,100000,100000
1,2,[3],100,200000,100000,0
2,3,\"[2, 4]\",400,200000,100000,0
";
const TOPO: &str = "link,q_num,rate,t_proc,t_prop
\"(0, 1)\",8,1,2000,0
\"(1, 0)\",8,1,2000,0
\"(0, 2)\",8,1,2000,0
\"(2, 0)\",8,1,2000,0
\"(1, 3)\",8,1,2000,0
\"(3, 1)\",8,1,2000,0
\"(0, 4)\",8,1,2000,0
\"(4, 0)\",8,1,2000,0
\"(1, 5)\",8,1,2000,0
\"(5, 1)\",8,1,2000,0
";

fn problem(task: &str) -> Problem {
    read_tsnkit(("t", task.as_bytes()), ("n", TOPO.as_bytes()), Tsnkit::default()).unwrap()
}

fn written() -> TsnkitPlan {
    let problem = problem(TASK);
    let plan = plan(problem.clone(), Options::default(), 10_000);
    assert_eq!(plan.refused, []);
    write_tsnkit(&problem, &plan).unwrap()
}

fn read(problem: &Problem, tables: &TsnkitPlan) -> Result<TsnkitResult, String> {
    let tables = TsnkitTables {
        gcl: ("gcl", tables.gcl.as_bytes()),
        offset: ("offset", tables.offset.as_bytes()),
        queue: ("queue", tables.queue.as_bytes()),
        route: ("route", tables.route.as_bytes()),
        delay: Some(("delay", tables.delay.as_bytes())),
    };
    read_tsnkit_result(problem, &tables).map_err(|error| error.to_string())
}

/// Rules that are broken; numbers of entries and spare time are in no table.
fn broken(result: &TsnkitResult) -> BTreeSet<Rule> {
    let report = check(&result.problem, &result.plan).unwrap();
    let rules = report.findings.iter().map(|finding| finding.rule);
    rules.filter(|rule| !matches!(rule, Rule::GateSpare | Rule::GateCount)).collect()
}

#[test]
fn t0_what_was_written_is_clean() {
    let problem = problem(TASK);
    let wanted = plan(problem.clone(), Options::default(), 10_000);
    let result = read(&problem, &written()).unwrap();
    assert_eq!(broken(&result), BTreeSet::new());
    assert_eq!(result.problem.streams(), problem.streams());
    for (admitted, own) in result.plan.admitted.iter().zip(&wanted.admitted) {
        let starts = |all: &[timewire_plan::model::Transmission]| -> BTreeSet<_> {
            all.iter().map(|sent| (sent.link, sent.start, sent.queue)).collect()
        };
        assert_eq!(starts(&admitted.transmissions), starts(&own.transmissions));
    }
    assert_eq!(result.delays.len(), 3);
    for (stream, delay) in &result.delays {
        assert_eq!(words::latency(&result.problem, &result.plan, *stream), Some(*delay));
    }
}

/// A change of a table: which, what, into what; and the rule that finds it, or the words.
type Case =
    (fn(&mut TsnkitPlan) -> &mut String, &'static str, &'static str, Result<Rule, &'static str>);

fn first_line<'a>(table: &'a str, with: &str) -> &'a str {
    table.lines().find(|line| line.contains(with)).unwrap()
}

#[test]
fn t0_each_change_of_a_table_is_found() {
    let tables = written();
    let window = first_line(&tables.gcl, "\"(0, 1)\",7,").to_owned();
    let last = window.replace(",200000", ",300000");
    let short = {
        let mut fields: Vec<String> = window.rsplitn(4, ',').map(str::to_owned).collect();
        fields[1] = (fields[1].parse::<i64>().unwrap() - 1).to_string();
        fields.reverse();
        fields.join(",")
    };
    let cases: Vec<(Case, String, String)> = vec![
        (
            (|t| &mut t.gcl, "a window is gone", "", Ok(Rule::GateShut)),
            window.clone() + "\n",
            String::new(),
        ),
        ((|t| &mut t.gcl, "a window is too short", "", Ok(Rule::GateShut)), window.clone(), short),
        (
            (|t| &mut t.gcl, "a window overlaps another", "", Ok(Rule::GateWindows)),
            window.clone(),
            format!("{window}\n\"(0, 1)\",6,0,199000,200000"),
        ),
        (
            (|t| &mut t.gcl, "a link has two cycles", "", Err("the link had another")),
            window.clone(),
            last,
        ),
        (
            (|t| &mut t.gcl, "a window is of another queue", "", Ok(Rule::GateShut)),
            window.clone(),
            window.replace(",7,", ",5,"),
        ),
        (
            (|t| &mut t.gcl, "a window of no link", "", Err("is no link of the network")),
            window.clone(),
            window.replace("(0, 1)", "(0, 9)"),
        ),
        (
            (|t| &mut t.gcl, "a port without windows", "", Ok(Rule::GatesMissing)),
            tables.gcl.clone(),
            tables
                .gcl
                .lines()
                .filter(|line| !line.contains("(0, 1)"))
                .map(|line| line.to_owned() + "\n")
                .collect(),
        ),
        (
            (|t| &mut t.offset, "a start is beyond the interval", "", Ok(Rule::Release)),
            first_line(&tables.offset, "1,0,").to_owned(),
            "1,0,250000".to_owned(),
        ),
        (
            (|t| &mut t.offset, "a start is gone", "", Ok(Rule::StreamMissing)),
            first_line(&tables.offset, "1,0,").to_owned() + "\n",
            String::new(),
        ),
        (
            (|t| &mut t.offset, "a start is no number", "", Err("is no whole number")),
            "0,0,0".to_owned(),
            "0,0,x".to_owned(),
        ),
        (
            (|t| &mut t.queue, "a frame is in another queue", "", Ok(Rule::GateShut)),
            "0,0,\"(0, 1)\",7".to_owned(),
            "0,0,\"(0, 1)\",4".to_owned(),
        ),
        (
            (|t| &mut t.queue, "a frame is in no queue", "", Err("has no queue on (0, 1)")),
            "0,0,\"(0, 1)\",7\n".to_owned(),
            String::new(),
        ),
        (
            (|t| &mut t.route, "a way has a hole", "", Ok(Rule::Path)),
            "0,\"(0, 1)\"\n".to_owned(),
            String::new(),
        ),
        (
            (|t| &mut t.route, "a listener is not reached", "", Ok(Rule::ListenerMissed)),
            "2,\"(0, 4)\"\n".to_owned(),
            String::new(),
        ),
        (
            (|t| &mut t.route, "a stream has no way", "", Ok(Rule::StreamMissing)),
            tables.route.clone(),
            tables
                .route
                .lines()
                .filter(|line| !line.starts_with("1,"))
                .map(|line| line.to_owned() + "\n")
                .collect(),
        ),
        (
            (|t| &mut t.delay, "a delay of no frame", "", Err("it has no start")),
            "0,0,".to_owned(),
            "0,3,".to_owned(),
        ),
    ];
    assert!(cases.len() > 10);
    let problem = problem(TASK);
    for ((table, what, _, found), from, to) in cases {
        let mut tables = written();
        let text = table(&mut tables);
        assert!(text.contains(&from), "{what}: {from} is not in\n{text}");
        *text = text.replacen(&from, &to, 1);
        match (found, read(&problem, &tables)) {
            (Ok(rule), Ok(result)) => {
                let rules = broken(&result);
                assert!(rules.contains(&rule), "{what}: {rules:?}");
            }
            (Err(words), Err(error)) => {
                assert!(error.contains(words) && error.contains("remedy: "), "{what}: {error}");
            }
            (found, result) => panic!("{what}: {found:?}, {result:?}"),
        }
    }
}

#[test]
fn t0_a_task_that_asks_for_more_is_found() {
    let cases = [
        ("0,2,[3],1000,100000,100000,", "0,2,[3],1000,100000,20000,", Rule::Latency),
        ("1,2,[3],100,", "1,2,[3],900,", Rule::GateShut),
        ("2,3,\"[2, 4]\",400,200000,", "2,3,\"[2, 4]\",400,50000,", Rule::GateShut),
    ];
    for (from, to, rule) in cases {
        let task = TASK.replace(from, to);
        assert_ne!(task, TASK);
        let result = read(&problem(&task), &written()).unwrap();
        let rules = broken(&result);
        assert!(rules.contains(&rule), "{to}: {rules:?}");
    }
}

#[test]
fn t0_a_start_for_each_interval_is_a_stream_for_each() {
    // Stream 0 has two intervals in the cycle; the second starts 7 us later in its own.
    let mut tables = written();
    tables.offset = tables.offset.replace("0,0,0\n", "0,0,0\n0,1,7000\n");
    let rows: Vec<String> = tables
        .queue
        .lines()
        .filter(|line| line.starts_with("0,0,"))
        .map(|line| line.replacen("0,0,", "0,1,", 1) + "\n")
        .collect();
    tables.queue += &rows.concat();
    let mut gcl = String::new();
    for line in tables.gcl.lines() {
        let fields: Vec<&str> = line.rsplitn(4, ',').collect();
        let moved = fields[2].parse::<i64>().is_ok_and(|start| start >= 100_000);
        let later = |text: &str| (text.parse::<i64>().unwrap() + 7_000).to_string();
        gcl += &match moved {
            true => {
                format!("{},{},{},{}\n", fields[3], later(fields[2]), later(fields[1]), fields[0])
            }
            false => format!("{line}\n"),
        };
    }
    tables.gcl = gcl;
    let result = read(&problem(TASK), &tables).unwrap();
    assert_eq!(broken(&result), BTreeSet::new());
    let names: Vec<&str> = result.problem.streams().iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["0#0", "0#1", "1", "2"]);
    let second = result.problem.find("0#1").unwrap();
    assert_eq!(result.problem.stream(second).interval, Span::from_us(200));
    assert_eq!(result.plan.admitted[1].transmissions[0].start, Span::from_us(107));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Any field of any table may be anything.
    #[test]
    fn t0_mutations_of_results_end_well(
        which in 0_usize..5,
        place in any::<prop::sample::Index>(),
        text in "[-0-9()\", .x]{0,20}",
    ) {
        let mut tables = written();
        let table = [
            &mut tables.gcl, &mut tables.offset, &mut tables.queue, &mut tables.route,
            &mut tables.delay,
        ].into_iter().nth(which).unwrap();
        let fields = table.split_inclusive([',', '\n']);
        let mut fields: Vec<String> = fields.map(str::to_owned).collect();
        let place = place.index(fields.len());
        let end = fields[place].pop().unwrap();
        fields[place] = format!("{text}{end}");
        *table = fields.concat();
        if let Ok(result) = read(&problem(TASK), &tables) {
            let _ = check(&result.problem, &result.plan);
        }
    }

    /// So may any bytes of them.
    #[test]
    fn t0_any_bytes_of_results_end_well(
        place in any::<prop::sample::Index>(),
        byte in 0_u8..128,
        noise in "\\PC{0,60}",
    ) {
        let mut tables = written();
        let mut bytes = tables.gcl.clone().into_bytes();
        let place = place.index(bytes.len());
        bytes[place] = byte;
        tables.gcl = String::from_utf8(bytes).unwrap();
        let _ = read(&problem(TASK), &tables);
        tables.gcl.truncate(place);
        let _ = read(&problem(TASK), &tables);
        tables.route = noise;
        let _ = read(&problem(TASK), &tables);
    }
}
