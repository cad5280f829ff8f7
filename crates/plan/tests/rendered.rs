// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is planned is rendered, or the plan says why not; and what was rendered is what was
//! planned.

use std::fmt::Write;

use proptest::prelude::*;
use timewire_model::scenario::network::NetworkFile;
use timewire_plan::file::{self, FileProblem, Rendered, hold, is_rendered_beside};
use timewire_plan::model::Plan;
use timewire_plan::synth::{Options, plan};
use timewire_tsn::file::ParseFile;

/// Devices whose limits are all known to the search: their plans are rendered whatever they are.
const KNOWN: [&str; 6] = ["taprio", "i210", "i225", "i226", "ls1028a", "lan966x"];
/// Those of which only the plan tells.
const ANY: [&str; 6] = [
    "{}",
    "{ offload: true }",
    "sja1105",
    "sja1110",
    "{ model: i226, launch_time: 20us }",
    "{ queues: 1, gate_entries: 12 }",
];
const PERIODS: [&str; 6] = ["250us", "400us", "500us", "1ms", "3ms", "1s"];

fn planned(text: &str) -> (NetworkFile, FileProblem, Plan) {
    let network = NetworkFile::parse("test", text).unwrap_or_else(|errors| panic!("{errors}"));
    let given = file::problem(&network).unwrap();
    let found = plan(given.problem.clone(), Options::default(), 20_000);
    (network, given, found)
}

/// Three stations at each of two bridges.
fn network(devices: [&str; 8], rate: &str, streams: &[(usize, usize, usize, u32, u32)]) -> String {
    let mut text = "timewire: 1\nkind: network\nname: net\nduration: 10ms\nsync_error: 100ns\n\
                    stations:\n"
        .to_owned();
    for (number, device) in devices[..6].iter().enumerate() {
        let _ = writeln!(text, "- {{ name: s{number}, device: {device} }}");
    }
    text += "bridges:\n";
    for (number, device) in devices[6..].iter().enumerate() {
        let _ = writeln!(text, "- {{ name: b{number}, forward: 2us, device: {device} }}");
    }
    text += "links:\n";
    for number in 0..6 {
        let bridge = number / 3;
        let _ = writeln!(text, "- {{ between: [s{number}, b{bridge}], rate: {rate} }}");
    }
    let _ = writeln!(text, "- {{ between: [b0, b1], rate: {rate} }}");
    text += "streams:\n";
    for (number, (from, to, period, size, offset)) in streams.iter().enumerate() {
        let to = (from + 1 + to) % 6;
        let class = 5 + number % 3;
        let period = PERIODS[*period];
        let _ = writeln!(
            text,
            "- {{ name: f{number}, talker: s{from}, listeners: s{to}, class: {class}, size: \
             {size}B, kind: cyclic, period: {period}, offset: {offset}us, scheduled: true }}"
        );
    }
    text
}

fn streams() -> impl Strategy<Value = Vec<(usize, usize, usize, u32, u32)>> {
    let one = (0..6_usize, 0..5_usize, 0..PERIODS.len(), 50..800_u32, 0..200_u32);
    prop::collection::vec(one, 1..8)
}

/// The files as `plan --check` reads them.
fn is_clean(network: &NetworkFile, given: &FileProblem, files: &[Rendered]) -> Result<(), String> {
    let files: Vec<(String, Vec<u8>)> = files
        .iter()
        .filter(|file| !is_rendered_beside(&file.name))
        .map(|file| (file.name.clone(), file.text.clone().into_bytes()))
        .collect();
    let held = hold(network, given, &files, &mut || true).map_err(|error| error.to_string())?;
    match held.configured.report.findings.first() {
        Some(finding) => Err(finding.describe(&given.problem)),
        None => Ok(()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 100,
        rng_seed: proptest::test_runner::RngSeed::Fixed(17),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn t0_every_plan_of_known_devices_is_rendered(
        devices in prop::array::uniform8(0..KNOWN.len()),
        rate in 0..2_usize,
        streams in streams(),
    ) {
        let text = network(devices.map(|it| KNOWN[it]), ["100Mbit", "1Gbit"][rate], &streams);
        let (network, given, plan) = planned(&text);
        let unrendered = file::unrendered(&network, &given, &plan);
        prop_assert_eq!(&unrendered, &None, "{}", &text);
        let files = file::render(&network, &given, &plan);
        let files = files.map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
        if plan.refused.is_empty() {
            let clean = is_clean(&network, &given, &files);
            prop_assert!(clean.is_ok(), "{:?}\n{}", clean, &text);
        }
    }

    #[test]
    fn t0_a_plan_says_whether_it_is_rendered(
        devices in prop::array::uniform8(0..KNOWN.len() + ANY.len()),
        rate in 0..2_usize,
        streams in streams(),
    ) {
        let all: Vec<&str> = KNOWN.into_iter().chain(ANY).collect();
        let text = network(devices.map(|it| all[it]), ["100Mbit", "1Gbit"][rate], &streams);
        let (network, given, plan) = planned(&text);
        let said = file::unrendered(&network, &given, &plan);
        let rendered = file::render(&network, &given, &plan);
        prop_assert_eq!(said.is_none(), rendered.is_ok(), "{:?} {:?}\n{}", said,
            rendered.as_ref().err(), &text);
        if let (Ok(files), true) = (&rendered, plan.refused.is_empty()) {
            let clean = is_clean(&network, &given, files);
            prop_assert!(clean.is_ok(), "{:?}\n{}", clean, &text);
        }
    }
}
