// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Links that are cut completely into frames: streams that are known to have a plan are all placed,
//! and of frames that are too coarse for their link it is proven.

mod made;

use timewire_plan::check::{Verdict, check};
use timewire_plan::model::{Certificate, Plan, Problem};
use timewire_plan::synth::{Options, plan};
use timewire_plan::words;

use made::Packing;

fn planned(problem: &Problem) -> (Plan, Vec<Verdict>) {
    let plan = plan(problem.clone(), Options::default(), 400_000_000);
    let report = check(problem, &plan).unwrap();
    assert!(report.is_clean(), "{:?}", report.findings);
    (plan, report.verdicts.into_iter().map(|(_, verdict)| verdict).collect())
}

#[test]
fn t0_full_links_are_packed() {
    let mut full = 0;
    for seed in [7, 8, 15, 17, 19, 29, 30, 37, 39] {
        let packing = Packing::of(seed);
        let problem = packing.problem();
        full += usize::from(packing.spare(&problem) == 0);
        let (plan, _) = planned(&problem);
        assert_eq!(plan.refused, [], "{packing:?}");
    }
    assert!(full > 3, "{full}");
}

#[test]
fn t0_links_of_frames_that_are_too_coarse_are_proven_to_be_full() {
    for seed in 0..12 {
        let packing = Packing::of(seed);
        let problem = packing.too_coarse();
        assert!(packing.spare(&problem) > 0);
        let (plan, verdicts) = planned(&problem);
        assert_eq!(verdicts, [Verdict::Proven], "{packing:?}");
        let certificate = &plan.refused[0].certificate;
        assert!(matches!(certificate, Certificate::Packing { .. }), "{certificate:?}");
        let words = words::reason(&problem, certificate);
        assert!(words.contains("one that comes every 1ms"), "{words}");
        let json = serde_json::to_string(certificate).unwrap();
        assert_eq!(serde_json::from_str::<Certificate>(&json).unwrap(), *certificate);
    }
}

/// One frame more that the link has no time for costs one stream its place, and no more.
#[test]
fn t0_one_frame_too_many_is_proven() {
    for seed in [2, 16, 21] {
        let packing = Packing::of(seed);
        let problem = packing.with_one_more(-1_000).unwrap();
        let (plan, verdicts) = planned(&problem);
        assert!(!plan.refused.is_empty());
        assert!(verdicts.iter().all(|verdict| *verdict == Verdict::Proven), "{:?}", plan.refused);
    }
}
