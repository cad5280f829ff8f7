// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether an interface has the disciplines that were desired.

use std::fmt;

use serde::Serialize;

use super::{QdiscNode, QdiscTree};
use crate::qdisc::{
    ClassId, Handle, Mqprio, MqprioHardware, Qdisc, QdiscKind, QdiscPosition, ShownQdisc,
    SizeTable, Taprio,
};

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Difference {
    /// There is another discipline, or none of the four.
    Kind {
        /// Where.
        place: QdiscPosition,
        /// What should be there.
        wanted: QdiscKind,
        /// What is there; `None` is nothing.
        found: Option<String>,
    },
    /// It has another name.
    Handle {
        /// Which it should have.
        wanted: Handle,
        /// Which it has.
        found: Option<Handle>,
    },
    /// Frames count with another length.
    SizeTable {
        /// Where.
        place: QdiscPosition,
        /// What should be added.
        wanted: Option<SizeTable>,
        /// What is added.
        found: Option<SizeTable>,
    },
    /// It has other settings.
    Settings {
        /// Where.
        place: QdiscPosition,
        /// Those it should have, as `tc` takes them.
        wanted: String,
        /// Those it has; `None` when the kernel shows none.
        found: Option<String>,
    },
    /// One of the four disciplines stands where none was desired.
    Unwanted {
        /// Where.
        place: QdiscPosition,
        /// Which.
        found: String,
    },
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = |table: &Option<SizeTable>| {
            table.map_or_else(|| "no stab".to_owned(), |table| table.to_string())
        };
        match self {
            Difference::Kind { place, wanted, found } => {
                let found = found.as_deref().unwrap_or("nothing");
                write!(f, "{place}: {found}, not {wanted}")
            }
            Difference::Handle { wanted, found } => {
                let found = found.map_or_else(|| "none".to_owned(), |handle| handle.to_string());
                write!(f, "root: handle {found}, not {wanted}")
            }
            Difference::SizeTable { place, wanted, found } => {
                write!(f, "{place}: {}, not {}", table(found), table(wanted))
            }
            Difference::Settings { place, wanted, found } => {
                let found = found.as_deref().unwrap_or("no settings shown");
                write!(f, "{place}: {found}, not {wanted}")
            }
            Difference::Unwanted { place, found } => write!(f, "{place}: {found}, not desired"),
        }
    }
}

impl QdiscTree {
    /// How what `tc -d -j qdisc show` shows differs from the tree; nothing when it is the same.
    ///
    /// What the kernel does not show is taken to be right: who keeps the classes of `mqprio` apart
    /// (in part), and the longest packet of a class where the gates leave room for less. Entries
    /// about other interfaces are passed over, and so are disciplines that the kernel puts into
    /// queues by itself.
    pub fn differences(&self, shown: &[ShownQdisc]) -> Vec<Difference> {
        let ours = |one: &&ShownQdisc| one.device.as_ref().is_none_or(|d| *d == self.device);
        let shown: Vec<&ShownQdisc> = shown.iter().filter(ours).collect();
        let root = shown.iter().find(|one| one.place == Some(QdiscPosition::Root));
        // The kernel chooses the handle of a root that has none here.
        let major = root.and_then(|root| root.handle).or(self.root.handle());
        let mut differences = Vec::new();
        for node in self.nodes() {
            let place = self.place_under(node, major);
            let found = shown.iter().find(|one| one.place == Some(place));
            differences.extend(compare(node, place, found.copied()));
        }
        let wanted: Vec<QdiscPosition> =
            self.nodes().map(|node| self.place_under(node, major)).collect();
        for one in &shown {
            let known = one.kind.parse::<QdiscKind>().is_ok();
            // What the kernel puts into classes by itself, such as a `pfifo`, is none of our kinds.
            let Some(place) = one.place.filter(|place| known && !wanted.contains(place)) else {
                continue;
            };
            differences.push(Difference::Unwanted { place, found: one.kind.clone() });
        }
        differences
    }

    fn place_under(&self, node: &QdiscNode, root: Option<Handle>) -> QdiscPosition {
        match (node.place(), root) {
            (QdiscPosition::Parent(class), Some(root)) => {
                QdiscPosition::Parent(ClassId { major: root.get(), ..class })
            }
            (place, _) => place,
        }
    }
}

fn compare(node: &QdiscNode, place: QdiscPosition, found: Option<&ShownQdisc>) -> Vec<Difference> {
    let wanted = node.qdisc().kind();
    let Some(found) = found.filter(|found| found.kind == wanted.as_str()) else {
        let found = found.map(|found| found.kind.clone());
        return vec![Difference::Kind { place, wanted, found }];
    };
    let mut differences = Vec::new();
    if let Some(wanted) = node.handle().filter(|handle| found.handle != Some(*handle)) {
        differences.push(Difference::Handle { wanted, found: found.handle });
    }
    if node.size_table() != found.size_table {
        let (wanted, found) = (node.size_table(), found.size_table);
        differences.push(Difference::SizeTable { place, wanted, found });
    }
    let configured = found.configured();
    let in_force = &found.max_sdu_in_force;
    let same = configured.as_ref().is_some_and(|configured| {
        seen(node.qdisc(), configured, in_force) == seen(configured, configured, in_force)
            && bounded(node.qdisc(), in_force)
    });
    if !same {
        let wanted = node.qdisc().to_string();
        let found = configured.map(|configured| configured.to_string());
        differences.push(Difference::Settings { place, wanted, found });
    }
    differences
}

/// The settings as far as the kernel shows them beside what it has.
fn seen(qdisc: &Qdisc, configured: &Qdisc, max_sdu_in_force: &[u32]) -> Qdisc {
    match (qdisc, configured) {
        (Qdisc::Mqprio(mqprio), Qdisc::Mqprio(configured)) => {
            let mut options = mqprio.options().clone();
            if options.classes.queues().is_empty() {
                // The NIC chose them.
                options.classes = options
                    .classes
                    .with_queues(configured.options().classes.queues().to_vec())
                    .unwrap_or(options.classes);
            }
            if options.hardware == MqprioHardware::Dcb && options.preemption.is_empty() {
                options.hardware = MqprioHardware::None;
            }
            Mqprio::new(options).map_or_else(|_| qdisc.clone(), Qdisc::Mqprio)
        }
        (Qdisc::Taprio(taprio), _) => {
            let mut options = taprio.options().clone();
            options.max_sdu = max_sdu_in_force.to_vec();
            // The kernel shows the sum of the intervals where no cycle was given.
            options.cycle_time = taprio.cycle();
            Taprio::new(options).map_or_else(|_| qdisc.clone(), Qdisc::Taprio)
        }
        _ => qdisc.clone(),
    }
}

/// No class lets longer packets through than desired. Linux before 6.3 shows none of it at all.
fn bounded(qdisc: &Qdisc, in_force: &[u32]) -> bool {
    let Qdisc::Taprio(taprio) = qdisc else { return true };
    let mut wanted = taprio.options().max_sdu.iter().enumerate();
    wanted.all(|(class, &most)| {
        let in_force = in_force.get(class).copied().unwrap_or(0);
        most == 0 || (in_force != 0 && in_force <= most)
    })
}
