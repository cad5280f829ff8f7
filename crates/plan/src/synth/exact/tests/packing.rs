// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bins held against trying every bin and every start.

use super::super::bins::{Bins, Item};
use super::super::order::{Near, Order};
use super::*;

/// Few items in bins that repeat in several ways.
fn some_bins(random: &mut Sequence) -> Bins {
    let families: [&[usize]; 5] =
        [&[1, 2, 4], &[1, 2, 5, 10], &[1, 3, 6], &[2, 4, 8], &[1, 2, 3, 6, 12]];
    let turns = families[random.below(5)];
    let size = 6 + i64::try_from(random.below(8)).unwrap();
    let items = (0..2 + random.below(6)).map(|_| Item {
        every: turns[random.below(turns.len())],
        length: 1 + i64::try_from(random.below(5)).unwrap(),
    });
    Bins { size, count: turns[turns.len() - 1], items: items.collect() }
}

fn fits(bins: &Bins, firsts: &[usize]) -> bool {
    (0..bins.count).all(|bin| {
        let items = bins.items.iter().zip(firsts);
        let own = items.filter(|(item, first)| bin % item.every == **first);
        own.map(|(item, _)| item.length).sum::<i64>() <= bins.size
    })
}

fn has_packing(bins: &Bins, firsts: &mut Vec<usize>) -> bool {
    let Some(item) = bins.items.get(firsts.len()) else { return true };
    (0..item.every).any(|first| {
        firsts.push(first);
        let part = Bins { items: bins.items[..firsts.len()].to_vec(), ..*bins };
        let found = fits(&part, firsts) && has_packing(bins, firsts);
        if !found {
            firsts.pop();
        }
        found
    })
}

#[test]
fn t0_bins_are_packed_or_refuted_as_by_trying_every_bin() {
    let (mut packed, mut refuted, mut deep) = (0, 0, 0);
    for seed in 0..6_000 {
        let mut random = Sequence::new(seed);
        let bins = some_bins(&mut random);
        let always = bins.items.iter().filter(|item| item.every == 1);
        if always.map(|item| item.length).sum::<i64>() > bins.size {
            continue;
        }
        let is_possible = has_packing(&bins, &mut Vec::new());
        let found = bins.pack(0, &mut random, &mut (1 << 20));
        assert_eq!(found.is_some(), is_possible, "seed {seed}: {bins:?}");
        let proof = bins.refute(&mut (1 << 24));
        assert_eq!(proof.is_none(), is_possible, "seed {seed}: {bins:?}");
        if let Some(firsts) = found {
            assert!(fits(&bins, &firsts), "seed {seed}: {bins:?} {firsts:?}");
            packed += 1;
        }
        if let Some(proof) = proof {
            refuted += 1;
            deep += usize::from(proof.tree.len() > 1);
        }
    }
    println!("{packed} packed, {refuted} refuted, {deep} of these by cases");
    assert!(packed > 1_000 && refuted > 1_000 && deep > 100, "{packed} {refuted} {deep}");
}

/// No two meet on the link, nor where they would on others.
#[test]
fn t0_what_is_put_in_order_does_not_meet() {
    let (mut ordered, mut changed) = (0, 0);
    for seed in 0..2_000 {
        let mut random = Sequence::new(seed);
        let bins = some_bins(&mut random);
        let Some(firsts) = bins.pack(0, &mut random, &mut (1 << 20)) else { continue };
        let Some(mut order) = Order::new(&bins, &firsts) else { continue };
        let every = |one: usize, other: usize| {
            let turns = (bins.items[one].every, bins.items[other].every);
            let turns = (i64::try_from(turns.0).unwrap(), i64::try_from(turns.1).unwrap());
            super::super::super::table::divisor(turns.0, turns.1) * bins.size
        };
        let count = bins.items.len();
        let mut near = vec![Vec::new(); count];
        for one in 0..count {
            for other in (0..one).filter(|_| random.below(3) == 0) {
                let every = every(one, other);
                near[one].push(Near { other, every, first: 1, length: 2 });
                near[other].push(Near { other: one, every, first: -2, length: 2 });
            }
        }
        let before = order.starts().to_vec();
        let mut is_free = |_: usize, at: i64| at != 1;
        if !order.settle(&near, &mut is_free, &mut random, &mut (1 << 16)) {
            continue;
        }
        ordered += 1;
        let starts = order.starts();
        changed += usize::from(before != starts);
        for one in 0..count {
            assert_ne!(starts[one], 1);
            for other in (0..count).filter(|other| *other != one) {
                let ahead = (starts[other] - starts[one]).rem_euclid(every(one, other));
                assert!(ahead >= bins.items[one].length, "seed {seed}: {bins:?} {starts:?}");
                let meets = |near: &&Near| near.other == other && (1..3).contains(&ahead);
                assert!(!near[one].iter().any(|near| near.first == 1 && meets(&near)));
            }
        }
    }
    println!("{ordered} in order, {changed} after changes");
    assert!(ordered > 300 && changed > 50, "{ordered} {changed}");
}

/// Streams on one way, of which some find no place; intervals divide each other or do not.
fn one_way(seed: u64) -> Problem {
    let mut random = Sequence::new(seed);
    let intervals: &[i64] = [&[6, 12, 24][..], &[5, 10, 15], &[4, 8, 10]][random.below(3)];
    let streams = (0..3 + random.below(4)).map(|number| {
        let interval = intervals[random.below(3)];
        let bytes = 1 + u32::try_from(random.below(3)).unwrap();
        let mut stream = stream(&format!("s{number}"), 0, 3, interval, bytes);
        stream.frames = if random.below(8) == 0 && bytes == 1 { 2 } else { 1 };
        stream
    });
    Problem::new(network(0), streams.collect()).unwrap()
}

#[test]
fn t0_a_proof_by_bins_is_of_streams_that_have_no_plan() {
    let (mut proofs, mut other) = (0, 0);
    for seed in 0..4_000 {
        let problem = one_way(seed);
        let Some(mut planner) = planner(&problem) else { continue };
        let waiting: Vec<usize> =
            planner.order().into_iter().filter(|id| !planner.fit(*id)).collect();
        let Some(&id) = waiting.first() else { continue };
        let Some(proof) = planner.refute(id, &mut (1 << 20)) else { continue };
        let mut named: Vec<usize> = proof.others().iter().map(|id| id.index()).collect();
        named.sort_unstable();
        let streams = named.iter().map(|id| problem.streams()[*id].clone()).collect();
        let part = Problem::new(problem.network().clone(), streams).unwrap();
        assert!(!Brute::new(&part).has_plan(&mut Vec::new()), "seed {seed}: {proof:?}");
        let admitted = (0..problem.streams().len()).filter(|id| !waiting.contains(id));
        let admitted = admitted
            .map(|id| Admission { stream: StreamId::from_index(id), transmissions: Vec::new() });
        let plan = Plan { admitted: admitted.collect(), ..Plan::default() };
        other += usize::from(!planner.explain(id).is_proof());
        let refusal = Refusal { stream: StreamId::from_index(id), certificate: proof };
        assert_eq!(judge(&problem, &plan, &refusal), Verdict::Proven, "seed {seed}: {refusal:?}");
        proofs += 1;
    }
    println!("{proofs} proofs, {other} of what has no other reason");
    assert!(proofs > 500 && other > 30, "{proofs} {other}");
}
