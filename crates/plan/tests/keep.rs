// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random networks that are planned again after random additions, removals and changes: streams of
//! the earlier plan stay where they are, and each plan holds.

use std::collections::BTreeMap;

use timewire_base::Span;
use timewire_plan::generate::{Recipe, Topology};
use timewire_plan::keep::{KeepError, Replan, Reservations};
use timewire_plan::model::{Certificate, Plan, Problem, Stream, Transmission};
use timewire_plan::synth::{Budget, Options, Planner, plan};

use super::checked::{Random, Seen, look, problem, stream};

/// A network and some of its streams, as they were planned, and as they are to be planned again.
struct Case {
    earlier: Reservations,
    before: BTreeMap<String, Vec<Transmission>>,
    /// Names of streams that are as they were.
    same: Vec<String>,
    next: Problem,
}

fn sent(problem: &Problem, plan: &Plan) -> BTreeMap<String, Vec<Transmission>> {
    let each = plan.admitted.iter();
    let name = |id| problem.stream(id).name.clone();
    each.map(|it| (name(it.stream), it.transmissions.clone())).collect()
}

fn case(seed: u64) -> Case {
    let whole = problem(seed);
    let mut random = Random::new(seed);
    let network = whole.network();
    let (first, more) = whole.streams().split_at(whole.streams().len() * 2 / 3);
    let part = Problem::new(network.clone(), first.to_vec()).unwrap();
    let planned = plan(part.clone(), Options { seed, routes: 3 }, 20_000);
    let text = Reservations::of("net", &part, &planned).to_text();
    let earlier = Reservations::read("net.plan", &text).unwrap();
    assert_eq!(earlier.to_text(), text, "seed {seed}");
    let before = sent(&part, &planned);
    let (mut streams, mut same): (Vec<Stream>, Vec<String>) = (Vec::new(), Vec::new());
    for old in first {
        if random.rarely(6) {
            continue;
        }
        let mut now = old.clone();
        match random.below(12) {
            0 => now.length_bytes += 10,
            1 => now.priority = (now.priority + 1) % 8,
            2 => now = Stream { name: old.name.clone(), ..whole.streams()[0].clone() },
            _ => {}
        }
        if now == *old {
            same.push(now.name.clone());
        }
        streams.push(now);
    }
    streams.extend(more.iter().cloned());
    for index in 0..random.below(6) {
        streams.push(stream(&mut random, network, 100 + index, &[100, 200, 400]));
    }
    // Their order says nothing.
    if random.rarely(2) {
        streams.reverse();
    }
    let next = Problem::new(network.clone(), streams).unwrap();
    Case { earlier, before, same, next }
}

fn budget(work: u64, act: &mut dyn FnMut(&mut Budget) -> bool) -> bool {
    act(&mut Budget { work, go_on: &mut |_| true })
}

#[test]
fn t0_streams_of_an_earlier_plan_stay_and_each_plan_holds() {
    let (mut seen, mut moved, mut added, mut changed) = (Seen::default(), 0, 0, 0);
    let (mut told, mut full) = (0, 0);
    for seed in 0..1_200 {
        let Case { earlier, before, same, next } = case(seed);
        let moves = [0, 0, 1, 2, 5][Random::new(seed).below(5)];
        let options = Options { seed, routes: 3 };
        let replan = Replan::new(next.clone(), options, &earlier, &mut || true);
        let mut replan = match replan {
            // Which gaps of a limited port are filled depends on those who are gone.
            Err(KeepError::Gates { .. }) => {
                full += 1;
                continue;
            }
            other => other.unwrap_or_else(|why| panic!("seed {seed}: {why}")),
        };
        budget(20_000, &mut |budget| replan.run(moves, budget));
        let plan = replan.planner().plan();
        look(seed, &next, &plan, &mut seen);
        let changes = replan.changes_to(&plan);
        let after = sent(&next, &plan);
        let had = same.iter().filter(|name| before.contains_key(*name));
        let others = had.clone().filter(|name| after.get(*name) != before.get(*name));
        let others: Vec<&str> = others.map(String::as_str).collect();
        assert!(others.len() <= moves, "seed {seed}: {others:?} moved, at most {moves}");
        assert!(had.clone().all(|name| after.contains_key(name)), "seed {seed}");
        let said: Vec<&str> = changes.moved.iter().map(|change| change.name.as_str()).collect();
        let mut others = others;
        others.sort_unstable();
        assert_eq!(said, others, "seed {seed}");
        assert_eq!(changes.kept, had.count() - said.len(), "seed {seed}");
        let all = changes.kept + said.len() + changes.changed.len() + changes.removed.len();
        assert_eq!(all, earlier.streams.len(), "seed {seed}");
        let new = changes.changed.iter().filter(|change| change.new.is_some()).count();
        let admitted = changes.kept + said.len() + changes.added.len() + new;
        assert_eq!(admitted, after.len(), "seed {seed}");
        (moved, added) = (moved + said.len(), added + changes.added.len());
        changed += changes.changed.len();
        for refusal in &plan.refused {
            if let Certificate::Kept { needed: Some(needed), allowed } = refusal.certificate {
                assert!(needed > allowed, "seed {seed}: {refusal:?}");
                assert_eq!(usize::try_from(allowed), Ok(moves));
                told += 1;
            }
        }
    }
    println!("{seen:?}: {moved} moved, {added} added, {changed} changed, {told} told, {full} full");
    assert!(moved > 50 && added > 1_000 && changed > 500, "{moved} {added} {changed}");
    assert!(told > 20 && full < 10, "{told} told, {full} full");
}

/// The same streams and the same reservations: nothing differs, and nothing was looked for.
#[test]
fn t0_a_plan_that_is_kept_whole_takes_no_search() {
    for seed in 0..40 {
        let mut recipe = Recipe::new(Topology::Ring(5), 3, 200, seed);
        recipe.load_percent = 60;
        let problem = recipe.problem().unwrap();
        let mut planner = Planner::new(problem.clone(), Options::default());
        budget(1_000_000, &mut |budget| planner.run(budget));
        let planned = planner.plan();
        let earlier = Reservations::of("ring", &problem, &planned);
        let mut streams = problem.streams().to_vec();
        streams.retain(|stream| earlier.streams.iter().any(|it| it.name == stream.name));
        streams.rotate_left(7);
        let problem = Problem::new(problem.network().clone(), streams).unwrap();
        let options = Options::default();
        let mut replan = Replan::new(problem.clone(), options, &earlier, &mut || true).unwrap();
        let links: usize = planned.admitted.iter().map(|it| it.transmissions.len()).sum();
        budget(1, &mut |budget| replan.run(0, budget));
        assert!(replan.planner().work() <= u64::try_from(links).unwrap(), "seed {seed}");
        let changes = replan.changes();
        assert!(changes.is_empty(), "seed {seed}: {changes:?}");
        assert_eq!(changes.kept, problem.streams().len(), "seed {seed}");
        let again = Reservations::of("ring", &problem, &replan.planner().plan());
        assert_eq!(again, earlier, "seed {seed}");
    }
}

/// One that has room only where another is: it says how many moves would do, and so many do.
#[test]
fn t0_as_many_moves_as_are_told_admit_a_stream() {
    let mut told = 0;
    for seed in 0..400 {
        let mut recipe = Recipe::new(Topology::Line(3), 3, 80, seed);
        recipe.lengths = (64, 1_500);
        recipe.intervals = [100, 150, 200].map(Span::from_us).to_vec();
        let whole = recipe.problem().unwrap();
        let first = whole.streams()[..whole.streams().len() - 1].to_vec();
        let part = Problem::new(whole.network().clone(), first).unwrap();
        let earlier = plan(part.clone(), Options::default(), 100_000);
        let earlier = Reservations::of("line", &part, &earlier);
        let rejected = |stream: &&Stream| !earlier.streams.iter().any(|it| it.name == stream.name);
        let lost: Vec<String> =
            part.streams().iter().filter(rejected).map(|stream| stream.name.clone()).collect();
        let mut streams = whole.streams().to_vec();
        streams.retain(|stream| !lost.contains(&stream.name));
        let next = Problem::new(whole.network().clone(), streams).unwrap();
        let run = |moves: usize| {
            let options = Options::default();
            let mut replan = Replan::new(next.clone(), options, &earlier, &mut || true).unwrap();
            budget(1_000_000, &mut |budget| replan.run(moves, budget));
            let plan = replan.planner().plan();
            (replan.changes_to(&plan).moved.len(), plan)
        };
        let (moved, plan) = run(0);
        assert_eq!(moved, 0);
        let Some(refusal) = plan.refused.first() else { continue };
        let Certificate::Kept { needed: Some(needed), .. } = refusal.certificate else { continue };
        told += 1;
        let (moved, plan) = run(usize::try_from(needed).unwrap());
        assert!(plan.refused.is_empty(), "seed {seed}: {needed} would do");
        assert!(moved <= usize::try_from(needed).unwrap(), "seed {seed}: {moved} of {needed}");
    }
    assert!(told > 20, "{told} told");
}
