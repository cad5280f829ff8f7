// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The two machines against everything that can go wrong: all kill points and all fates of the
//! first messages of small experiments, and random ones from seeds. A seed that fails is printed as
//! the line that repeats it.
//!
//! Not here: what must hold (`world`).

#![allow(clippy::disallowed_methods, reason = "the seed to repeat is in the environment")]

mod chance;
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use chance::{Chance, Fate, Kill, MS, Random};
use timewire_agent::protocol::controller::{Cause, Failure};
use timewire_agent::protocol::{
    ExperimentId, FailureKind, Part, Phase, Plan, Program, Retry, StationPlan, Step, Task, Timing,
    WordName,
};
use timewire_base::{Span, StationName};
use world::World;

fn task(phase: Phase, number: usize) -> Task {
    Task::Run(Program {
        name: WordName::new(&format!("{phase}-{number}")).unwrap(),
        command: vec!["true".to_owned()],
        environment: BTreeMap::new(),
        accept: Vec::new(),
    })
}

fn timing() -> Timing {
    Timing {
        lease: Span::from_ms(1_000),
        resend: Span::from_ms(50),
        preflight: Span::from_secs(5),
        lead: Span::from_ms(200),
        step: Span::from_ms(7),
        clock_within: Span::from_ms(20),
        phases: Phase::ALL.into_iter().map(|phase| (phase, Span::from_secs(4))).collect(),
    }
}

/// As many stations, each with as many steps in each of these phases.
fn plan(stations: usize, phases: &[Phase], steps: usize) -> Plan {
    let part = |phase: Phase| {
        let step = |number| Step {
            task: task(phase, number),
            timeout: Span::from_ms(500),
            retry: Retry::default(),
        };
        (phase, Part { steps: (0..steps).map(step).collect(), ..Part::default() })
    };
    let station = |number| StationPlan {
        name: StationName::new(&format!("s{number}")).unwrap(),
        parts: phases.iter().copied().map(part).collect(),
    };
    Plan {
        experiment: ExperimentId::new("explored").unwrap(),
        timing: timing(),
        stations: (0..stations).map(station).collect(),
    }
}

/// Of a seed: one to four stations, any phases, orders, delays and retries.
fn any_plan(seed: u64) -> Plan {
    let mut random = Random::new(seed ^ 0x5eed);
    let mut plan = plan(usize::try_from(1 + random.below(4)).unwrap(), &Phase::ALL, 2);
    for station in &mut plan.stations {
        for part in station.parts.values_mut() {
            part.order = u32::try_from(random.below(3)).unwrap();
            part.after = Span::from_ns(random.between(0, 20 * MS));
            part.steps.truncate(usize::try_from(random.below(3)).unwrap());
            for step in &mut part.steps {
                step.retry.times = u32::try_from(random.below(3)).unwrap();
                step.retry.pause = Span::from_ns(random.between(0, 50 * MS));
                let kinds = [FailureKind::Exited, FailureKind::Unknown, FailureKind::TimedOut];
                step.retry.after = kinds.into_iter().collect::<BTreeSet<_>>();
            }
        }
    }
    // The start that is judged has neither an order nor a delay.
    for station in &mut plan.stations {
        let run = station.parts.entry(Phase::Run).or_default();
        (run.order, run.after) = (0, Span::ZERO);
    }
    plan
}

/// Runs it; when something does not hold, says how to see it again.
fn explore(what: &str, plan: Plan, chance: Chance) -> World {
    let mut world = World::new(plan, chance);
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| world.run())) {
        eprintln!("again: {what}");
        resume_unwind(panic);
    }
    world
}

fn is_success(world: &World) -> bool {
    world.end.as_ref().is_some_and(|end| end.failures.is_empty())
}

fn wild(seed: u64) -> World {
    let again = format!(
        "TIMEWIRE_SEED={seed} cargo test -p timewire-agent --test all explore::t2_random_seeds"
    );
    explore(&again, any_plan(seed), Chance::wild(seed))
}

#[test]
fn t2_nothing_goes_wrong_and_all_is_done() {
    for seed in 0..200 {
        let mut calm = any_plan(seed);
        calm.stations.iter_mut().flat_map(|s| s.parts.values_mut()).for_each(|part| {
            part.steps.iter_mut().for_each(|step| step.retry = Retry::default());
        });
        let world = explore(&format!("calm seed {seed}"), calm, Chance::calm(seed));
        assert!(is_success(&world), "seed {seed}: {:?}", world.end);
    }
}

/// With the times that an experiment has by itself, but for the difference of clocks, which cannot
/// be known better, and the first sign of life.
#[test]
fn t2_sixty_four_stations_behind_half_a_second_and_losses_of_one_in_twenty() {
    for seed in 0..4 {
        let mut far = plan(64, &Phase::ALL, 1);
        let (clock_within, preflight) = (Span::from_secs(3), Span::from_secs(30));
        far.timing = Timing { clock_within, preflight, ..Timing::default() };
        // Time for many signs of life.
        for station in &mut far.stations {
            station.parts.get_mut(&Phase::Finish).unwrap().after = Span::from_secs(120);
        }
        let world = explore(&format!("far seed {seed}"), far, Chance::far(seed));
        let end = world.end.as_ref().expect("it ends");
        assert!(is_success(&world), "seed {seed}: {end:?}");
        let [start] = end.starts.as_slice() else { panic!("one start: {:?}", end.starts) };
        let skew = start.skew();
        let differences = skew.differences.expect("all started");
        assert_eq!((skew.started, skew.late, skew.unknown), (64, 0, 0));
        // Each starts at the instant by its own clock.
        assert_eq!((differences.min, differences.max), (Span::ZERO, Span::ZERO));
        // What is said of all of them holds for what really happened.
        let (first, last) = world.first_and_last_start();
        let within = differences.spread_within.expect("all clocks are known");
        assert!(last - first <= within.as_ns(), "{first} {last} {within}");
    }
}

/// Half a second each way: bringing the records takes twice as long as a phase may.
#[test]
fn t2_records_that_keep_coming_are_waited_for() {
    let mut slow = plan(2, &[Phase::Run], 1);
    slow.timing = Timing { clock_within: Span::from_secs(3), ..Timing::default() };
    slow.timing.phases.insert(Phase::Report, Span::from_secs(4));
    let chance = Chance { repeated: 0, ..Chance::far(1) };
    let world = explore("slow records", slow, chance);
    assert!(is_success(&world), "{:?}", world.end);
}

/// While the way is long the exchanges cannot tell that the clocks are near enough.
#[test]
fn t2_a_clock_that_is_not_known_well_enough_is_asked_again() {
    let begins = |until| {
        let plan = plan(2, &[Phase::Open, Phase::Run], 1);
        let slow = Chance { slow: (0..until, 100 * MS), ..Chance::calm(3) };
        explore("a busy network", plan, slow)
    };
    let world = begins(2_000 * MS);
    assert!(is_success(&world), "{:?}", world.end);
    let world = begins(i64::MAX);
    let failures = &world.end.as_ref().expect("it ends").failures;
    let is_clock = |failure: &Failure| matches!(failure.cause, Cause::Clock { .. });
    assert!(!failures.is_empty() && failures.iter().all(is_clock), "{failures:?}");
}

/// A lead that is too short for the way: stations that get their orders too late say by how much.
#[test]
fn t2_a_start_that_is_too_late_is_told_as_such() {
    let mut late = plan(2, &[Phase::Setup, Phase::Run], 1);
    for station in &mut late.stations {
        station.parts.get_mut(&Phase::Setup).unwrap().after = Span::from_ms(200);
    }
    late.timing.lease = Span::from_secs(10);
    // The way becomes long when it has been measured.
    let slow = Chance { slow: (1_210 * MS..i64::MAX, 1_000 * MS), ..Chance::calm(3) };
    let world = explore("late", late, slow);
    let end = world.end.as_ref().expect("it ends");
    let failures: Vec<String> = end.failures.iter().map(ToString::to_string).collect();
    assert!(failures.iter().any(|failure| failure.contains("came too late")), "{failures:?}");
    let skew = end.starts[0].skew();
    assert!(skew.late > 0 && skew.differences.is_none(), "{skew:?}");
    for station in end.starts[0].stations.values() {
        assert!(station.difference() > Some(Span::ZERO), "{station:?}");
    }
}

#[test]
fn t2_every_kill_point_of_an_experiment() {
    let whole = || plan(2, &Phase::ALL, 1);
    let actions = explore("nothing killed", whole(), Chance::calm(1)).actions();
    assert!(actions > 200, "{actions} actions are not the experiment that was meant");
    let mut succeeded = 0_u32;
    for at in 0..actions {
        for restart in [Some(MS), Some(60 * MS), Some(1_500 * MS), None] {
            for torn in [0, 5, 8] {
                let kill = Kill { torn, restart };
                let chance = Chance { kills: vec![(at, kill)], ..Chance::calm(1) };
                let world = explore(&format!("kill at action {at}: {kill:?}"), whole(), chance);
                succeeded += u32::from(is_success(&world));
            }
        }
    }
    // A controller that comes back within the lease goes on.
    assert!(u64::from(succeeded) > actions, "{succeeded} of {actions} kill points went on");
}

#[test]
fn t2_every_two_kill_points_of_a_small_experiment() {
    let small = || plan(1, &[Phase::Setup, Phase::Run], 1);
    let actions = explore("nothing killed", small(), Chance::calm(1)).actions();
    for first in 0..actions {
        for second in first + 1..actions + 20 {
            let kill = |torn| Kill { torn, restart: Some(30 * MS) };
            let kills = vec![(first, kill(3)), (second, kill(8))];
            let chance = Chance { kills, ..Chance::calm(1) };
            explore(&format!("kills at {first} and {second}"), small(), chance);
        }
    }
}

#[test]
fn t2_every_fate_of_the_messages_of_a_small_experiment() {
    let small = || plan(1, &[Phase::Run], 1);
    let fates = [Fate::Arrives, Fate::Lost, Fate::Twice, Fate::Late];
    // Six messages at a time, from several places of the experiment on.
    for from in [0, 6, 12, 18] {
        for code in 0..4_usize.pow(6) {
            let fate = |at: u32| fates[code / 4_usize.pow(at) % 4];
            let before = std::iter::repeat_n(Fate::Arrives, from);
            let chance =
                Chance { fates: before.chain((0..6).map(fate)).collect(), ..Chance::calm(1) };
            let world = explore(&format!("fates {code} from {from}"), small(), chance);
            assert!(is_success(&world) || code != 0, "{:?}", world.end);
        }
    }
}

#[test]
fn t2_random_seeds() {
    if let Ok(seed) = std::env::var("TIMEWIRE_SEED") {
        let world = wild(seed.parse().expect("TIMEWIRE_SEED is a number"));
        return eprintln!("{:#?}", world.end);
    }
    let (mut succeeded, mut failed, mut unended) = (0_u32, 0_u32, 0_u32);
    for seed in 0..4_000 {
        let world = wild(seed);
        match &world.end {
            Some(end) if end.failures.is_empty() => succeeded += 1,
            Some(_) => failed += 1,
            None => unended += 1,
        }
    }
    // Otherwise the seeds do not explore what they are for.
    let all = succeeded > 400 && failed > 400 && unended > 20;
    assert!(all, "{succeeded} succeeded, {failed} failed, {unended} controllers never came back");
}
