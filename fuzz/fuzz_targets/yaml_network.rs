// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Network files; what was read is written and reads as itself, in each of its cases, and is a
//! problem for the planner. The orchestrator reads again what its stations do. One segment is a
//! scenario, whose file with all that follows is that.
#![no_main]

use libfuzzer_sys::fuzz_target;
use timewire_model::scenario::Scenario;
use timewire_model::scenario::network::{NetworkCases, NetworkFile};
use timewire_model::scenario::orchestrated::Orchestrated;
use timewire_tsn::file::{ParseFile, without_streams};

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(file) = without_streams("any", text) {
        let steps = Orchestrated::of(&file.written);
        let json = serde_json::to_string(&steps).expect("text keys");
        assert_eq!(Orchestrated::parse("json", &json).as_ref(), Ok(&steps));
    }
    let all = match NetworkCases::parse("any", text) {
        Ok(all) => all,
        Err(errors) => return timewire_fuzz::check_errors(&errors),
    };
    for file in all.cases.iter().map(|case| &case.file).chain([&all.base]) {
        let json = file.to_json().to_string();
        assert_eq!(NetworkFile::parse("json", &json).as_ref(), Ok(file));
        let _ = timewire_plan::file::problem(file);
    }
    match Scenario::parse("any", text) {
        Ok(scenario) => {
            let json = scenario.filled_into(&all.written).to_json().to_string();
            let again = Scenario::parse("json", &json).map(|it| it.streams);
            assert_eq!(again, Ok(scenario.streams));
        }
        Err(errors) => timewire_fuzz::check_errors(&errors),
    }
});
