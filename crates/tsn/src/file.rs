// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files as callers read them: checked by their own keys and by what Linux can do.

use timewire_base::{IfName, StationName};
use timewire_model::scenario::host::{Group, HostSettings, Transmit};
use timewire_model::scenario::network::{NetworkCases, NetworkFile};
use timewire_model::scenario::{Case, FurtherChecks, Refused, Scenario, ScenarioErrors};

use crate::backend::{TransmitBackend, check_backend};
use crate::desired::QdiscTree;
use crate::groups::{Facts, GroupPlan};

/// A file whose values only the models of Linux can check to the end.
pub trait ParseFile: Sized {
    /// Reads and checks a file; `file_name` is for the messages.
    ///
    /// **Errors**: everything that is wrong with the text, each with its place.
    fn parse(file_name: &str, text: &str) -> Result<Self, ScenarioErrors>;
}

impl ParseFile for Scenario {
    fn parse(file_name: &str, text: &str) -> Result<Scenario, ScenarioErrors> {
        Scenario::parse_with(&Linux, file_name, text)
    }
}

impl ParseFile for NetworkCases {
    fn parse(file_name: &str, text: &str) -> Result<NetworkCases, ScenarioErrors> {
        NetworkCases::parse_with(&Linux, file_name, text)
    }
}

/// The file as it stands, without its experiment.
impl ParseFile for NetworkFile {
    fn parse(file_name: &str, text: &str) -> Result<NetworkFile, ScenarioErrors> {
        NetworkCases::parse(file_name, text).map(|cases| cases.base)
    }
}

/// The host settings of the only station that has some.
impl ParseFile for HostSettings {
    fn parse(file_name: &str, text: &str) -> Result<HostSettings, ScenarioErrors> {
        host_settings(file_name, text, None)
    }
}

/// The host settings of a station of a network file, or of the only one that has some.
///
/// **Errors**: as of [`ParseFile::parse`]; no station or several have some, or this one has none.
pub fn host_settings(
    file_name: &str,
    text: &str,
    station: Option<&StationName>,
) -> Result<HostSettings, ScenarioErrors> {
    HostSettings::parse_with(&Linux, file_name, text, station)
}

/// A network of one segment whose stations have slots.
///
/// **Errors**: as of [`ParseFile::parse`]; the file has no schedule.
pub fn with_slots(file_name: &str, text: &str) -> Result<Scenario, ScenarioErrors> {
    let scenario = Scenario::parse(file_name, text)?;
    match scenario.without_slots(file_name, text) {
        Some(errors) => Err(errors),
        None => Ok(scenario),
    }
}

/// A network file whose streams may come from elsewhere.
///
/// **Errors**: as of [`ParseFile::parse`].
pub fn without_streams(file_name: &str, text: &str) -> Result<NetworkCases, ScenarioErrors> {
    NetworkCases::parse_without_streams(&Linux, file_name, text)
}

/// The models of this crate.
struct Linux;

impl FurtherChecks for Linux {
    fn case(&self, scenario: &Scenario, case: &Case) -> Option<String> {
        let backend = TransmitBackend::of_case(case.backend)?;
        Some(check_backend(scenario, backend).err()?.to_string())
    }

    fn transmit(&self, interface: &IfName, desired: &Transmit) -> Vec<Refused> {
        let errors = QdiscTree::of_desired(interface, desired).err().unwrap_or_default();
        let refused = errors.into_iter();
        refused
            .map(|error| Refused { key: error.key, message: error.message, hint: error.hint })
            .collect()
    }

    fn groups(&self, top: &Group) -> Option<Refused> {
        let error = GroupPlan::new(top, &Facts::unknown()).err()?;
        let hint = error.hint().to_owned();
        Some(Refused { key: error.key, message: error.why, hint })
    }
}
