// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Scenarios of TSNBench: small ones of the same shape, written by hand.

use timewire_base::Span;
use timewire_plan::check::check;
use timewire_plan::exchange::{Tsnbench, read_tsnbench};
use timewire_plan::model::{Forwarding, Plan, Problem, Role};
use timewire_plan::synth::{Options, plan};

/// Two bridges with two links between them, and two stations at each.
fn topology(header: &str) -> String {
    let mut nodes = Vec::new();
    for (name, is_switch) in
        [("n0", true), ("n1", true), ("n2", false), ("n3", false), ("n4", false), ("n5", false)]
    {
        nodes.push(format!(
            "{{\"id\": \"{name}\", \"is_switch\": {is_switch}, \"processing_delay_ns\": 2000,
              \"fwd_header_b\": {header}, \"queues_per_port\": 8, \"pos\": [-0.5, 0.5]}}"
        ));
    }
    let mut links = Vec::new();
    for (a, b) in
        [("n0", "n1"), ("n0", "n1"), ("n2", "n0"), ("n3", "n0"), ("n4", "n1"), ("n5", "n1")]
    {
        for (from, to) in [(a, b), (b, a)] {
            links.push(format!(
                "{{\"key\": \"e{}\", \"source\": \"{from}\", \"target\": \"{to}\",
                  \"link_speed_mbps\": 1000, \"propagation_delay_ns\": 200}}",
                links.len()
            ));
        }
    }
    format!(
        "{{\"directed\": true, \"multigraph\": true, \"graph\": {{\"path_length_cutoff_rel\": 1}},
          \"nodes\": [{}], \"links\": [{}]}}",
        nodes.join(","),
        links.join(",")
    )
}

/// 1508 bytes with the preamble take 12064 ns; three links and two bridges besides it.
const CUT_THROUGH_NS: i64 = 12_064 + 3 * 200 + 2 * (2000 + 192);

fn streams(latency: &str) -> String {
    let first = r#""route": [["n2", "n0", "e4"], ["n0", "n1", "e2"], ["n1", "n4", "e9"]]"#;
    let second = r#""route": [["n3", "n0", "e6"], ["n0", "n1", "e2"], ["n1", "n4", "e9"],
                              ["n1", "n5", "e11"]]"#;
    format!(
        r#"{{"s000": {{"sources": ["n2"], "destinations": ["n4"], "cycle_time_ns": 190000,
                       "frame_size_b": 1500, "max_latency_ns": {latency}, {first}}},
             "s001": {{"sources": ["n3"], "destinations": ["n4", "n5"], "cycle_time_ns": 190000,
                       "frame_size_b": 100, "max_latency_ns": null, {second}}}}}"#
    )
}

fn read(streams: &str, topology: &str, keeps_ways: bool) -> Result<Problem, String> {
    let topology = ("t.json", topology.as_bytes());
    let how = Tsnbench { keeps_ways };
    read_tsnbench(("s.json", streams.as_bytes()), topology, how).map_err(|error| error.to_string())
}

fn planned(problem: &Problem) -> Plan {
    let plan = plan(problem.clone(), Options::default(), 100_000);
    assert_eq!(check(problem, &plan).expect("short cycles").findings, []);
    plan
}

#[test]
fn t0_a_scenario_becomes_a_problem_with_its_own_latency() {
    let (streams, topology) = (streams(&CUT_THROUGH_NS.to_string()), topology("24"));
    let problem = read(&streams, &topology, false).expect("a scenario");
    let network = problem.network();
    assert_eq!(network.options().overhead_bytes, 20);
    assert_eq!(network.node(problem.streams()[0].talker).role, Role::EndStation);
    assert_eq!(network.nodes()[0].forwarding, Forwarding::CutThrough { header_bytes: 24 });
    assert_eq!(network.links()[2].name, "e2", "one of two between the same nodes");
    assert_eq!(problem.streams()[0].latency_max, Span::from_ns(CUT_THROUGH_NS + 96));
    assert_eq!(problem.streams()[1].listeners.len(), 2);
    assert!(planned(&problem).refused.is_empty(), "it needs just as long as it may");
    // A nanosecond less is too little.
    let problem = read(&streams.replace("17048", "17047"), &topology, false).expect("a scenario");
    assert_eq!(planned(&problem).refused.len(), 1);
}

#[test]
fn t0_bridges_that_store_take_the_whole_frame() {
    let store = 3 * 12_064 + 3 * 200 + 2 * 2000;
    for (latency, admitted) in [(store, 2), (store - 1, 1)] {
        let problem = read(&streams(&latency.to_string()), &topology("null"), false);
        let problem = problem.expect("a scenario");
        assert_eq!(problem.network().nodes()[0].forwarding, Forwarding::StoreAndForward);
        assert_eq!(planned(&problem).admitted.len(), admitted, "{latency}");
    }
}

#[test]
fn t0_the_ways_of_a_scenario_are_kept_when_asked_for() {
    let problem = read(&streams("100000"), &topology("24"), true).expect("a scenario");
    let plan = planned(&problem);
    assert_eq!(plan.admitted.len(), 2);
    for admission in &plan.admitted {
        let names: Vec<&str> = admission
            .transmissions
            .iter()
            .map(|sent| problem.network().link(sent.link).name.as_str())
            .collect();
        assert!(names.contains(&"e2") && !names.contains(&"e0"), "{names:?}");
    }
}

#[test]
fn t0_mistakes_of_a_scenario_have_their_place_and_remedy() {
    let (streams, topology) = (streams("100000"), topology("24"));
    for (from, to, words) in [
        ("\"n2\"]", "\"n9\"]", "s.json: stream s000: there is no node n9"),
        ("\"n2\"]", "\"n2\", \"n3\"]", "stream s000: 2 sources"),
        ("\"n2\"]", "\"n0\"]", "n0 is a bridge"),
        ("\"e2\"", "\"e0\"", ""),
        ("\"e2\"", "\"e1\"", "no link e1 from n0 to n1"),
        ("s001", "s000", "the name is taken"),
        ("190000", "-1", "s.json: line 1"),
        ("\"frame_size_b\": 100,", "", "missing field `frame_size_b`"),
        ("\"frame_size_b\"", "\"jitter_ns\": 1, \"frame_size_b\"", "unknown field `jitter_ns`"),
        ("190000", "18446744073709551615", "cycle_time_ns"),
        ("\"frame_size_b\"", "\"size\"", "unknown field `size`"),
        ("{", "", "s.json: line 1"),
    ] {
        let said = read(&streams.replacen(from, to, 1), &topology, true);
        match said {
            Ok(_) => assert_eq!(words, "", "{from} -> {to}"),
            Err(said) => {
                assert!(!words.is_empty() && said.contains(words), "{said}");
                assert!(said.contains("remedy: "), "{said}");
            }
        }
    }
    for (from, to, words) in [
        ("\"link_speed_mbps\": 1000", "\"link_speed_mbps\": 0", "link e0: link_speed_mbps is 0"),
        ("\"source\": \"n0\"", "\"source\": \"n7\"", "t.json: link e0: there is no node n7"),
        ("\"e1\"", "\"e0\"", "the name is taken"),
        ("\"queues_per_port\": 8", "\"queues_per_port\": 9", "queues"),
        ("\"nodes\"", "\"stations\"", "unknown field `stations`"),
    ] {
        let said = read(&streams, &topology.replacen(from, to, 1), true).expect_err(to);
        assert!(said.contains(words) && said.contains("remedy: "), "{said}");
    }
}
