// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The scenarios that are shipped.
#![expect(clippy::disallowed_methods, reason = "committed files are read and written by the test")]

use std::path::{Path, PathBuf};

use timewire_base::{FrameLen, Span, StationName};
use timewire_model::scenario::{AtMost, CaseBackend, Limit, Metric, Scenario, with_included};
use timewire_tsn::backend::{SlotPromise, TransmitBackend};
use timewire_tsn::file::ParseFile;

use super::any_text::written;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The text of a shipped file, with those that it includes.
pub fn text(name: &str) -> String {
    let path = repository().join("scenarios").join(name);
    with_included(&path, &mut |path| std::fs::read_to_string(path)).expect("a shipped file")
}

fn shipped(name: &str) -> Scenario {
    Scenario::parse(name, &text(name)).unwrap_or_else(|errors| panic!("{errors}"))
}

/// File, cycle, published mean.
const SHIPPED: [(&str, i64, i64); 3] =
    [("tdm-64.yaml", 1040, 592), ("tdm-256.yaml", 1200, 698), ("tdm-1472.yaml", 1920, 1244)];

#[test]
fn t1_shipped_scenarios_are_the_published_experiment() {
    for (file, cycle_us, mean_us) in SHIPPED {
        let scenario = shipped(file);
        let cycle = Span::from_us(cycle_us);
        assert_eq!(file, format!("{}.yaml", scenario.name));
        assert_eq!(scenario.schedule.cycle(), cycle);
        assert_eq!(scenario.published.as_ref().unwrap().latency_mean, Span::from_us(mean_us));
        let control = scenario.measured().next().unwrap();
        assert_eq!(format!("tdm-{}", control.size.get()), scenario.name.as_str());
        let start = |name: &StationName| scenario.schedule.windows_of(name).windows()[0].offset;
        // Half a cycle apart, so that a closed loop waits that long each way.
        let [client, server] = control.senders[..] else { panic!("{:?}", control.senders) };
        assert_eq!(start(server) - start(client), Span::from_us(cycle_us / 2));
        // Slots without a gap: the guards and the transmit times fill the cycle.
        let filled: i64 =
            scenario.schedule.slots().iter().map(|s| (s.transmit + s.guard).as_ns()).sum();
        assert_eq!(Span::from_ns(filled), cycle);
    }
}

#[test]
fn t1_the_pipeline_is_the_published_experiment() {
    let scenario = shipped("pipeline.yaml");
    let (us, cycle) = (Span::from_us, scenario.schedule.cycle());
    let slots = scenario.schedule.slots();
    assert_eq!((slots.len(), cycle), (4, us(1040)));
    assert!(slots.iter().all(|slot| (slot.transmit, slot.guard) == (us(220), us(40))));
    let published = scenario.published.as_ref().unwrap();
    assert_eq!(published.latency_mean, us(537));
    assert_eq!((published.transmit_mean, published.receive_mean), (Some(us(492)), Some(us(41))));
    let load = &scenario.experiment.loads[0];
    let pipeline = scenario.pipelines_in(load).next().unwrap();
    assert_eq!((pipeline.stations.len(), pipeline.components.get()), (3, 2));
    assert_eq!((pipeline.size.get(), pipeline.compute), (10, Span::ZERO));
    let connections = pipeline.connections();
    let ways: Vec<_> = connections
        .iter()
        .map(|it| (it.name.as_str(), it.from.as_str(), it.to.as_str(), it.port.get()))
        .collect();
    let expected =
        [("pipeline-1", "delta", "gamma", 15_001), ("pipeline-2", "gamma", "beta", 15_002)];
    assert_eq!(ways, expected);
    let names: Vec<_> = scenario.measured_in(load).map(|it| it.name.to_string()).collect();
    assert_eq!(names, ["pipeline", "pipeline-1", "pipeline-2"]);
    // With the slots in its order the source is just before the next station.
    let planned = shipped("pipeline-planned.yaml");
    let order: Vec<_> = planned.schedule.slots().iter().map(|it| it.station.as_str()).collect();
    assert_eq!(order, ["alpha", "beta", "delta", "gamma"]);
    assert_eq!(planned.pipelines_in(load).next(), Some(pipeline));
    // Stimuli begin at all places of the cycle: none is passed over by 10us.
    let step = pipeline.period.unwrap().as_ns() % cycle.as_ns();
    assert_eq!(cycle.as_ns() - step, 10_000);
}

#[test]
fn t1_the_scenarios_of_both_backends_are_the_same_experiment() {
    for (file, ..) in SHIPPED {
        let (one, other) = (shipped(file), shipped(&file.replace("tdm", "taprio")));
        assert_eq!(one.schedule, other.schedule);
        assert_eq!(one.stations, other.stations);
        assert_eq!(one.queues, other.queues);
        assert_eq!(one.streams, other.streams);
        assert_eq!(one.published, other.published);
        for mac in [CaseBackend::Mac, CaseBackend::Taprio] {
            assert_eq!(other.experiment.cases.iter().filter(|case| case.backend == mac).count(), 2);
        }
        // In virtual time no frame may be outside.
        let kept = other.limits().into_iter().filter(|limit| limit.metric == Metric::OutsideSlots);
        let none = |limit: &Limit| matches!(limit.at_most, AtMost::Share(p) if p.get() == 0);
        assert_eq!(kept.filter(none).count(), 8, "{file}");
    }
}

#[test]
fn t1_every_backend_runs_the_same_experiment_side_by_side() {
    let (one, all) = (shipped("tdm-64.yaml"), shipped("backends-64.yaml"));
    assert_eq!(one.schedule, all.schedule);
    assert_eq!(one.stations, all.stations);
    assert_eq!(one.streams, all.streams);
    let macs: Vec<_> = all.experiment.cases.iter().map(|case| case.backend).collect();
    assert_eq!(macs[0], CaseBackend::None);
    for backend in TransmitBackend::BY_PREFERENCE {
        assert_eq!(
            macs.iter().filter(|mac| **mac == backend.case_backend()).count(),
            1,
            "{backend}"
        );
        let case = all
            .experiment
            .cases
            .iter()
            .find(|case| case.backend == backend.case_backend())
            .unwrap();
        // What it promises is held against it under every load, and may not fail once.
        let promise = match backend.slots() {
            SlotPromise::All => Metric::OutsideSlots,
            SlotPromise::RealTime => Metric::OutsideSlotsRealTime,
            SlotPromise::None => Metric::OutsideRate,
        };
        let limits =
            all.limits().into_iter().filter(|l| l.case == case.name && l.metric == promise);
        let none = |l: &Limit| matches!(l.at_most, AtMost::Share(ppm) if ppm.get() == 0);
        assert_eq!(limits.filter(none).count(), all.experiment.loads.len(), "{backend}");
    }
}

#[test]
fn t1_shipped_limits_cover_every_tdm_case_and_load() {
    for (file, ..) in SHIPPED {
        let scenario = shipped(file);
        let kept =
            scenario.limits().into_iter().filter(|limit| limit.metric == Metric::OutsideSlots);
        let mut pairs: Vec<String> = kept
            .inspect(|limit| assert!(matches!(limit.at_most, AtMost::Share(p) if p.get() == 1_000)))
            .map(|limit| format!("{} {}", limit.case, limit.load))
            .collect();
        pairs.sort();
        pairs.dedup();
        assert_eq!(pairs.len(), 6, "{file}");
    }
}

#[test]
fn t1_largest_frame_of_the_first_scenario() {
    let scenario = shipped("tdm-64.yaml");
    let alpha = StationName::new("alpha").unwrap();
    // 220 us at 100 Mbit/s are 2750 bytes on the wire, 24 of them around the frame.
    let largest = scenario.schedule.largest_frame(&alpha, scenario.segment().rate);
    assert_eq!(largest, Some(FrameLen::new(2_726).unwrap()));
}

#[test]
fn t1_a_written_scenario_reads_back() {
    for (file, ..) in SHIPPED {
        let (scenario, text) = (shipped(file), text(file));
        let json = written(&text, &scenario).to_string();
        assert_eq!(Scenario::parse("json", &json).as_ref(), Ok(&scenario), "{json}");
    }
}

/// Every file of `scenarios/` that a command is given; what an experiment puts onto its stations is
/// in a directory of its own below and not among them.
fn library() -> Vec<PathBuf> {
    let mut files = Vec::new();
    for directory in ["", "experiments", "hosts", "kernels", "networks"] {
        for entry in std::fs::read_dir(repository().join("scenarios").join(directory))
            .expect("the repository is readable")
        {
            let path = entry.expect("the repository is readable").path();
            if path.is_file() {
                files.push(path);
            }
        }
    }
    files
}

#[test]
fn t1_the_page_of_the_library_lists_every_file_and_no_other() {
    let page = repository().join("docs/src/how-to/library.md");
    let page = std::fs::read_to_string(page).unwrap();
    // The first column of the tables.
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let mut listed: Vec<&str> = rows
        .flat_map(|row| row.split(" | ").next().unwrap().split(", "))
        .map(|name| name.trim_matches('`'))
        .collect();
    let files = library();
    let mut names: Vec<_> =
        files.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
    listed.sort_unstable();
    names.sort_unstable();
    assert_eq!(names, listed);
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("# "), "{} does not say what it is", path.display());
    }
}
