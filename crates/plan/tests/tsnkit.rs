// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tables of tsnkit: read, planned, written, and refused with a place and a remedy.

use proptest::prelude::*;
use timewire_base::Span;
use timewire_plan::exchange::{Tsnkit, read_tsnkit, write_tsnkit};
use timewire_plan::model::Problem;
use timewire_plan::synth::{Budget, Options, Planner, plan};

const TASK: &str = "stream,src,dst,size,period,deadline,jitter
0,2,[3],50,100000,100000,100000
1,3,[2],100,200000,7000,0
";
const TOPO: &str = "link,q_num,rate,t_proc,t_prop
\"(0, 1)\",8,1,2000,0
\"(1, 0)\",8,1,2000,0
\"(0, 2)\",8,1,2000,0
\"(2, 0)\",8,1,2000,0
\"(1, 3)\",8,1,2000,0
\"(3, 1)\",8,1,2000,0
\"(0, 4)\",8,10,2000,0
\"(4, 0)\",8,10,2000,0
\"(1, 5)\",8,1,2000,0
\"(5, 1)\",8,1,2000,0
";

fn read(task: &str, topo: &str, how: Tsnkit) -> Result<Problem, String> {
    let tables = (("task.csv", task.as_bytes()), ("topo.csv", topo.as_bytes()));
    read_tsnkit(tables.0, tables.1, how).map_err(|error| error.to_string())
}

#[test]
fn t0_tables_become_a_problem_and_a_plan_tables() {
    let problem = read(TASK, TOPO, Tsnkit::default()).unwrap();
    assert_eq!(problem.cycle(), Span::from_us(200));
    let plan = plan(problem.clone(), Options::default(), 1_000);
    assert_eq!(plan.refused, []);
    let tables = write_tsnkit(&problem, &plan).unwrap();
    // 50 bytes are 400 ns; then 2 us of processing at each bridge.
    assert_eq!(tables.offset, "stream,frame,offset\n0,0,0\n1,0,0\n");
    assert_eq!(tables.delay, "stream,frame,delay\n0,0,5200\n1,0,6400\n");
    assert_eq!(
        tables.route,
        "stream,link\n0,\"(2, 0)\"\n0,\"(0, 1)\"\n0,\"(1, 3)\"\n\
         1,\"(3, 1)\"\n1,\"(1, 0)\"\n1,\"(0, 2)\"\n"
    );
    assert!(tables.gcl.contains("\n\"(0, 1)\",7,2400,2800,200000\n\"(0, 1)\",7,102400,102800,"));
    assert!(tables.queue.contains("\n1,0,\"(3, 1)\",7\n"));
}

/// 2018, 2026 and 2042 us repeat together after 2087 s.
#[test]
fn t0_tables_with_millions_of_windows_are_not_written() {
    let task = "stream,src,dst,size,period,deadline,jitter
0,2,[3],50,2018000,100000,100000
1,3,[2],50,2026000,100000,100000
2,2,[3],50,2042000,100000,100000
";
    let problem = read(task, TOPO, Tsnkit::default()).unwrap();
    let plan = plan(problem.clone(), Options::default(), 1_000);
    let said = write_tsnkit(&problem, &plan).unwrap_err();
    assert!(said.starts_with("9259737 windows in the cycle of "), "{said}");
}

#[test]
fn t0_rounding_is_an_option() {
    let how = Tsnkit { round: true, overhead_bytes: 0 };
    let problem = read(TASK, TOPO, how).unwrap();
    assert_eq!(problem.streams()[0].length_bytes, 100);
    let how = Tsnkit { round: false, overhead_bytes: 20 };
    let problem = read(TASK, TOPO, how).unwrap();
    assert_eq!(problem.streams()[0].length_bytes, 50);
    assert_eq!(problem.network().options().overhead_bytes, 20);
}

#[test]
fn t0_mistakes_have_their_place_and_remedy() {
    let wrong = [
        ("", "task.csv:1: it is empty"),
        ("stream,src,dst,size,period,deadline\n", "task.csv:1: column `jitter`: the column is"),
        ("stream,src,dst,size,period,deadline,jitter\n", "task.csv:1: there is nothing after"),
        ("H\n0,2,[3],x,1000,1000,0\n", "task.csv:2: column `size`: `x` is no whole number"),
        ("H\n0,2,[3],0,1000,1000,0\n", "task.csv:2: column `size`: 0 is out of its bounds"),
        ("H\n0,2,[3],50,1000,1000\n", "task.csv:2: 6 fields; the header has 7"),
        ("H\n0,2,\"[3],50,1000,1000,0\n", "task.csv:2: a quotation mark is open"),
        ("H\n0,2,[9],50,1000,1000,0\n", "task.csv:2: column `dst`: `9` is no node"),
        ("H\n0,0,[3],50,1000,1000,0\n", "task.csv:2: column `src`: node 0 is a bridge"),
        ("H\n0,2,[],50,1000,1000,0\n", "task.csv:2: column `dst`: `[]` names no listener"),
        ("H\n0,2,[2],50,1000,1000,0\n", "task.csv:2: column `dst`: `[2]` has the talker"),
        ("H\n0,2,[3],50,1000,1000,0\n0,2,[3],50,1000,1000,0\n", "task.csv:3: stream 0: the name"),
    ];
    for (task, said) in wrong {
        let task = task.replace('H', "stream,src,dst,size,period,deadline,jitter");
        let error = read(&task, TOPO, Tsnkit::default()).unwrap_err();
        assert!(error.starts_with(said), "{error}");
        assert!(error.contains("\n  remedy: "), "{error}");
    }
    let wrong = [
        ("\"(0, 1)\",8,7,2000,0", "topo.csv:2: column `rate`: 7 is no code of a rate"),
        ("\"(0, 0)\",8,1,2000,0", "topo.csv:2: column `link`: `(0, 0)` goes nowhere"),
        ("\"0-1\",8,1,2000,0", "topo.csv:2: column `link`: `0-1` is no link"),
        ("\"(0, 1)\",9,1,2000,0", "topo.csv:2: column `q_num`: 9 is out of its bounds"),
        ("\"(0, 1)\",8,1,-1,0", "topo.csv:2: column `t_proc`: -1 is out of its bounds"),
    ];
    for (line, said) in wrong {
        let topo = format!("link,q_num,rate,t_proc,t_prop\n{line}\n");
        let error = read(TASK, &topo, Tsnkit::default()).unwrap_err();
        assert!(error.starts_with(said), "{error}");
    }
}

proptest! {
    #[test]
    fn t0_any_bytes_are_a_problem_or_a_mistake(
        task in proptest::collection::vec(any::<u8>(), 0..200),
        topo in proptest::collection::vec(any::<u8>(), 0..200),
        how in (any::<bool>(), 0u32..40),
    ) {
        let how = Tsnkit { round: how.0, overhead_bytes: how.1 };
        let _ = read_tsnkit(("t", &task), ("n", &topo), how);
        let _ = read_tsnkit(("t", &task), ("n", TOPO.as_bytes()), how);
    }

    #[test]
    fn t0_nearly_right_tables_are_a_problem_or_a_mistake(
        place in 0usize..100,
        byte in "[0-9,\\[\\]()\"\n. -]",
        topo_place in 0usize..200,
    ) {
        let change = |text: &str, place: usize| {
            let mut text = text.to_owned();
            let place = place % text.len();
            text.replace_range(place..=place, &byte);
            text
        };
        let (task, topo) = (change(TASK, place), change(TOPO, topo_place));
        for (task, topo) in [(task.as_str(), TOPO), (TASK, topo.as_str())] {
            if let Ok(problem) = read(task, topo, Tsnkit::default()) {
                let plan = plan(problem.clone(), Options::default(), 100);
                prop_assert_eq!(plan.admitted.len() + plan.refused.len(), problem.streams().len());
            }
        }
    }
}

/// Three of 45 us in each 200 us are admitted, and one more in each 300 us is not: what is free
/// modulo 100 us is shorter. No divisor of a pair says so; with steps enough there is a proof.
#[test]
fn t0_a_search_ends_by_its_limit_or_with_a_proof() {
    let mut task = "stream,src,dst,size,period,deadline,jitter\n".to_owned();
    for (stream, period) in [(0, 200_000), (1, 200_000), (2, 200_000), (3, 300_000)] {
        task.push_str(&format!("{stream},2,[3],5625,{period},1000000,1000000\n"));
    }
    let problem = read(&task, TOPO, Tsnkit::default()).unwrap();
    for (work, ended, words) in [
        (100, true, "no reservation was found in "),
        (
            20_000,
            false,
            "4 streams (3, 0, 1, 2) meet on links that they cannot avoid ((0, 1), (2, 0), (1, 3)), \
             however they start; one of them needs another interval, length or way",
        ),
    ] {
        let mut planner = Planner::new(problem.clone(), Options::default());
        let cut = planner.run(&mut Budget { work, go_on: &mut |_| true });
        let plan = planner.plan();
        let said: Vec<String> = plan
            .refused
            .iter()
            .map(|refusal| timewire_plan::words::reason(&problem, &refusal.certificate))
            .collect();
        assert_eq!((cut, said.len()), (ended, 1), "{} steps: {said:?}", planner.work());
        assert!(said[0].starts_with(words), "{said:?}");
        assert!(timewire_plan::check::check(&problem, &plan).unwrap().is_clean());
    }
}
