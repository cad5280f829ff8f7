// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a file must keep beyond its keys: what Linux and an interface can do. The reader asks for
//! it among its own checks, so that all errors of a file stand in one list, each at its place; a
//! file whose values need it is read in no other way.

use timewire_base::IfName;

use super::host::{Group, Transmit};
use super::{Case, Scenario};

/// What only the models of Linux can say about a file.
pub trait FurtherChecks {
    /// Why a case of the scenario cannot be carried out.
    fn case(&self, scenario: &Scenario, case: &Case) -> Option<String>;

    /// Everything that no interface could do of its transmit side; keys are below `transmit`.
    fn transmit(&self, interface: &IfName, desired: &Transmit) -> Vec<Refused>;

    /// The first thing in a tree of groups that no host could do; the key is below the outermost
    /// group.
    fn groups(&self, top: &Group) -> Option<Refused>;
}

/// No further checks: for tests of files without anything that Linux could not do.
#[derive(Clone, Copy, Debug)]
pub struct NothingFurther;

impl FurtherChecks for NothingFurther {
    fn case(&self, _: &Scenario, _: &Case) -> Option<String> {
        None
    }
    fn transmit(&self, _: &IfName, _: &Transmit) -> Vec<Refused> {
        Vec::new()
    }
    fn groups(&self, _: &Group) -> Option<Refused> {
        None
    }
}

/// Something in a part of a file that cannot be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Its key below that part, such as `classes[1].shaper`; empty for the part itself.
    pub key: String,
    /// What is wrong.
    pub message: String,
    /// What would be right; empty when there is nothing to add.
    pub hint: String,
}
