// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files as callers read them: checked by their own keys and by what Linux can do.

use timewire_base::IfName;
use timewire_model::scenario::host::{Group, HostFile, Transmit};
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

impl ParseFile for HostFile {
    fn parse(file_name: &str, text: &str) -> Result<HostFile, ScenarioErrors> {
        HostFile::parse_with(&Linux, file_name, text)
    }
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
