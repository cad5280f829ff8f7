// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Texts made at random: each is a scenario or a list of errors, soon, and never a panic; and each
//! scenario that is written reads back as itself.

use std::time::Duration;

use proptest::prelude::*;
use timewire_model::scenario::network::NetworkCases;
use timewire_model::scenario::{Scenario, ScenarioErrors};
use timewire_tsn::file::ParseFile;

const GOOD: &str = include_str!("../../../scenarios/tdm-64.yaml");

fn good() -> Scenario {
    Scenario::parse("good", GOOD).unwrap_or_else(|errors| panic!("{errors}"))
}

/// The file that a scenario is of, with all that follows from the rest.
pub fn written(text: &str, scenario: &Scenario) -> serde_json::Value {
    let network = NetworkCases::parse("good", text).unwrap_or_else(|errors| panic!("{errors}"));
    scenario.filled_into(&network.written).to_json()
}

/// Reads a text that must be refused, and checks that what is printed about it is sane.
fn refused(text: &str) -> ScenarioErrors {
    let errors = Scenario::parse("any", text).expect_err("no scenario");
    assert!(!errors.errors.is_empty());
    check_print(&errors);
    errors
}

fn check_print(errors: &ScenarioErrors) {
    let print = errors.to_string();
    assert!(print.chars().all(|c| c == '\n' || !c.is_control()), "{print:?}");
    for error in &errors.errors {
        assert!(error.line >= 1 && error.column >= 1);
        assert!(error.source.chars().count() <= 120);
        assert!(error.mark_start + error.mark_width <= 121, "{error:?}");
    }
}

#[expect(clippy::disallowed_methods, reason = "a test may look at the clock")]
#[test]
fn t0_hostile_texts_are_refused_soon() {
    let deep = "[".repeat(500_000);
    let deep_map = "{a: ".repeat(200_000);
    let deep_block: String = (0..700).map(|i| format!("{}a:\n", " ".repeat(i))).collect();
    let dashes = "- ".repeat(400_000);
    let questions = "? ".repeat(400_000);
    let bomb = "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n".to_owned();
    let wide = format!("timewire: 1\nstations: [{}]", "a, ".repeat(300_000));
    let keys: String = (0..60_000).map(|i| format!("key{i}: 1\n")).collect();
    let same: String = "timewire: 1\n".repeat(60_000);
    let long_word = format!("timewire: {}", "9".repeat(900_000));
    let long_key = format!("{}: 1", "k".repeat(900_000));
    let quoted = format!("name: \"{}\"", "\\e[31m".repeat(100));
    let too_long = "#".repeat((1 << 20) + 1);
    let open_quote = format!("name: \"{}", "x\n ".repeat(200_000));
    let colons = ":".repeat(1_000_000);
    let flow_colons = format!("{{{}", "a: b, ".repeat(150_000));
    let texts = [
        deep,
        deep_map,
        deep_block,
        dashes,
        questions,
        bomb,
        wide,
        keys,
        same,
        long_word,
        long_key,
        quoted,
        too_long,
        open_quote,
        colons,
        flow_colons,
        String::new(),
        "\u{feff}".into(),
        "---\n---\n".into(),
        "%YAML 9.9\n---\na: 1".into(),
        "\0".into(),
        "\t".into(),
        "!!binary a".into(),
        "- a".into(),
        "~".into(),
        "{}".into(),
        "'".into(),
    ];
    for text in &texts {
        // Time is looked at only to find what grows with the square of the length.
        let start = std::time::Instant::now();
        refused(text);
        let took = start.elapsed();
        let head: String = text.chars().take(20).collect();
        assert!(took < Duration::from_secs(10), "{took:?} for {} bytes of {head:?}", text.len());
    }
}

#[test]
fn t0_a_flood_of_errors_is_cut_and_counted() {
    let text: String = (0..200).map(|i| format!("unknown{i}: 1\n")).collect();
    let errors = refused(&text);
    assert_eq!(errors.errors.len(), ScenarioErrors::MAX_SHOWN);
    // 200 unknown keys and the four that every network needs.
    assert_eq!(errors.errors.len() + errors.not_shown, 204);
    assert!(errors.to_string().ends_with("any: 204 errors, 154 of them not shown"));
}

#[test]
fn t0_windows_line_ends_and_a_byte_order_mark_do_not_matter() {
    let windows = format!("\u{feff}{}", GOOD.replace('\n', "\r\n"));
    assert_eq!(Scenario::parse("windows", &windows), Ok(good()));
}

#[test]
fn t0_json_with_tabs_is_read() {
    let json = serde_json::to_string_pretty(&written(GOOD, &good())).unwrap().replace("  ", "\t");
    assert_eq!(Scenario::parse("json", &json), Ok(good()));
}

/// A good file with some bytes changed is nearly one, which gets the deepest into the reader.
fn damaged() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just(String::new()),
        Just("\n".into()),
        Just("  ".into()),
        "[-:,{}\\[\\]#&*!|>'\"%@`~0-9a-z. \n\t]{1,3}",
        "\\PC{1,3}",
        Just("-1us".into()),
        Just("9223372036854775807ns".into()),
        Just("18446744073709551615".into()),
        Just("100Gbit".into()),
        Just("null".into()),
    ];
    let edits = prop::collection::vec((0..GOOD.len(), 0_usize..12, piece), 1..6);
    edits.prop_map(|edits| {
        let mut text: Vec<char> = GOOD.chars().collect();
        for (at, cut, piece) in edits {
            let at = at.min(text.len());
            let end = (at + cut).min(text.len());
            text.splice(at..end, piece.chars());
        }
        text.into_iter().collect()
    })
}

/// A good scenario with other numbers.
fn changed() -> impl Strategy<Value = String> {
    let span = |low: i64, high: i64| (low..high).prop_map(|ns| format!("{ns}ns"));
    (span(1, 5_000_000), span(0, 60_000), span(0, 2_000_000_000), 0..=1_000_000_u32, "\\PC{0,20}")
        .prop_map(|(deadline, guard, base_time, share, title)| {
            let title = serde_json::Value::from(title).to_string();
            GOOD.replace("deadline: 1040us", &format!("deadline: {deadline}"))
                .replace("guard: 40us", &format!("guard: {guard}, base_time: {base_time}"))
                .replace("0.1%", &format!("{}.{:04}%", share / 10_000, share % 10_000))
                .replace("title: Plain Ethernet", &format!("title: {title}"))
        })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 512,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn t0_any_text_is_read_or_refused(text in "\\PC{0,200}") {
        refused(&text);
    }

    #[test]
    fn t0_any_yaml_like_text_is_read_or_refused(
        text in "([a-z]{1,8}|[0-9]{1,3}|[:,\\-?&*!|>'\"%#{}\\[\\]~]|: |- |\n|\n  |\n    | ){0,80}",
    ) {
        refused(&text);
    }

    #[test]
    fn t0_damaged_scenarios_are_read_or_refused(text in damaged()) {
        match Scenario::parse("damaged", &text) {
            Err(errors) => check_print(&errors),
            Ok(scenario) => {
                let json = written(&text, &scenario).to_string();
                prop_assert_eq!(Scenario::parse("json", &json), Ok(scenario));
            }
        }
    }

    #[test]
    fn t0_written_scenarios_read_back(text in changed()) {
        let scenario = Scenario::parse("changed", &text);
        let Ok(scenario) = scenario else { return Err(TestCaseError::fail(text)) };
        let json = written(&text, &scenario).to_string();
        prop_assert_eq!(Scenario::parse("json", &json), Ok(scenario));
    }
}
