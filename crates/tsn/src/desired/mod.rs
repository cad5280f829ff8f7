// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From what an interface is to do on transmit to the queueing disciplines that do it: one at the
//! root, and one in each class of it that has a shaper or launch times.
//!
//! ```text
//! classes, no gates     mqprio   + cbs or etf in the queues of a class
//! classes and gates     taprio   + cbs or etf in the queues of a class
//! no classes            cbs or etf alone
//! ```
//!
//! Not here: the keys (`timewire_model::scenario::host`), running `tc` (`timewire-host`).

mod build;
mod compare;
mod marks;
mod shaper;
mod warning;

use std::fmt;

use serde::Serialize;
use timewire_base::{IfName, StationName};

use crate::qdisc::{
    Handle, InstallVerb, PortLimits, Qdisc, QdiscAction, QdiscCommand, QdiscError, QdiscPosition,
    SizeTable, TdmPort, TdmTaprioError, taprio_of_station,
};
use timewire_model::scenario::host::Transmit;
use timewire_model::tdm::TdmSchedule;

pub use compare::Difference;
pub use marks::{MarkFilter, shown_filters};
pub use warning::Warning;

/// A discipline in its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct QdiscNode {
    place: QdiscPosition,
    handle: Option<Handle>,
    size_table: Option<SizeTable>,
    qdisc: Qdisc,
}

impl QdiscNode {
    /// Where it stands.
    pub fn place(&self) -> QdiscPosition {
        self.place
    }

    /// Its name; `None` lets the kernel choose.
    pub fn handle(&self) -> Option<Handle> {
        self.handle
    }

    /// What is added to the length of each frame.
    pub fn size_table(&self) -> Option<SizeTable> {
        self.size_table
    }

    /// The discipline.
    pub fn qdisc(&self) -> &Qdisc {
        &self.qdisc
    }
}

/// The disciplines of an interface: a root, and what stands in its classes.
///
/// **Shape**: the root first; then by queue; no two in one place; each is one that the kernel takes
/// on some interface and shows whole. `tc` may have no room for it: see
/// [`QdiscCommand::check_tc_message`].
///
/// Prints the commands of `tc` that put it there, a line for each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct QdiscTree {
    device: IfName,
    root: QdiscNode,
    children: Vec<QdiscNode>,
    #[serde(skip)]
    warnings: Vec<Warning>,
}

impl QdiscTree {
    /// What does on this interface what is desired.
    ///
    /// **Errors**: everything in the desired configuration that no interface could do, each with
    /// its key.
    pub fn of_desired(device: &IfName, desired: &Transmit) -> Result<QdiscTree, Vec<DesiredError>> {
        build::tree(device, desired)
    }

    /// The gates of a station of a TDM schedule: see [`taprio_of_station`].
    ///
    /// **Errors**: a schedule that `taprio` cannot carry out for this station.
    pub fn of_station(
        device: &IfName,
        schedule: &TdmSchedule,
        station: &StationName,
        port: &TdmPort,
    ) -> Result<QdiscTree, TdmTaprioError> {
        let gates = taprio_of_station(schedule, station, port)?;
        let root = QdiscNode {
            place: QdiscPosition::Root,
            handle: Some(build::ROOT),
            size_table: Some(gates.size_table),
            qdisc: Qdisc::Taprio(gates.taprio),
        };
        Ok(QdiscTree { device: device.clone(), root, children: Vec::new(), warnings: Vec::new() })
    }

    /// On which interface.
    pub fn device(&self) -> &IfName {
        &self.device
    }

    /// The discipline at the root.
    pub fn root(&self) -> &QdiscNode {
        &self.root
    }

    /// The disciplines in classes of the root, by queue.
    pub fn children(&self) -> &[QdiscNode] {
        &self.children
    }

    /// The root, then the others by queue.
    pub fn nodes(&self) -> impl Iterator<Item = &QdiscNode> {
        std::iter::once(&self.root).chain(&self.children)
    }

    /// The commands that put the disciplines in their places, in the order in which they must run.
    ///
    /// **Panics** with [`InstallVerb::Change`], which `mqprio` and `etf` do not have.
    pub fn commands(&self, verb: InstallVerb) -> Vec<QdiscCommand> {
        assert!(verb != InstallVerb::Change, "a tree is put there, not changed");
        let command = |node: &QdiscNode| {
            let action = QdiscAction::Install { verb, qdisc: node.qdisc.clone() };
            let (device, place) = (self.device.clone(), Some(node.place));
            QdiscCommand::new(action, device, place, node.handle, node.size_table)
                .expect("invariant: checked when the tree was made")
        };
        self.nodes().map(command).collect()
    }

    /// The command that takes all of it away: the kernel restores its default disciplines.
    pub fn delete(&self) -> QdiscCommand {
        let action = QdiscAction::Delete { kind: None };
        QdiscCommand::new(action, self.device.clone(), Some(QdiscPosition::Root), None, None)
            .expect("invariant: the root can be deleted")
    }

    /// The same disciplines on another interface.
    pub fn on(&self, device: &IfName) -> QdiscTree {
        QdiscTree { device: device.clone(), ..self.clone() }
    }

    /// What this interface refuses of it that another would take.
    pub fn problems(&self, limits: &PortLimits) -> Vec<(QdiscPosition, QdiscError)> {
        let of = |node: &QdiscNode| {
            let place = node.place;
            limits.problems(&node.qdisc).into_iter().map(move |problem| (place, problem))
        };
        self.nodes().flat_map(of).collect()
    }
}

/// Prints `tc qdisc replace ...`, a line for each discipline.
impl fmt::Display for QdiscTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> =
            self.commands(InstallVerb::Replace).iter().map(QdiscCommand::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

/// A desired configuration that no interface could carry out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{key}: {message}")]
pub struct DesiredError {
    /// The key below `transmit`, such as `classes[1].shaper`; empty for `transmit` itself.
    pub key: String,
    /// What is wrong.
    pub message: String,
    /// What would be right.
    pub hint: String,
}
