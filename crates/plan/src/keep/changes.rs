// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What differs between the reservations of an earlier plan and a new one.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::{Replan, Reservation, Starts};
use crate::model::{LinkId, Plan, PortGates};

/// What differs between the reservations of an earlier plan and a new one. Lists are in the order
/// of names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Changes {
    /// Streams without an earlier reservation that are admitted.
    pub added: Vec<Change>,
    /// Streams that are other than they were, admitted anew or rejected.
    pub changed: Vec<Change>,
    /// How many streams have the reservation that they had.
    pub kept: usize,
    /// Streams that are as they were and have another reservation.
    pub moved: Vec<Change>,
    /// The ports, by link, whose gates differ.
    pub ports: Vec<String>,
    /// Streams that are gone.
    pub removed: Vec<Change>,
}

/// A stream whose reservation differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// Its name.
    pub name: String,
    /// How the stream differs, with its values before and now; empty when it is as it was.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<String>,
    /// When its frames started; `None`: it had no reservation.
    #[serde(rename = "old_start_ns")]
    pub old: Option<Starts>,
    /// When they start now; `None`: it has no reservation.
    #[serde(rename = "new_start_ns")]
    pub new: Option<Starts>,
}

impl Changes {
    /// Whether nothing has to be deployed.
    pub fn is_empty(&self) -> bool {
        let lists = [&self.added, &self.changed, &self.moved, &self.removed];
        lists.iter().all(|list| list.is_empty()) && self.ports.is_empty()
    }
}

pub(super) fn of(replan: &Replan<'_>, plan: &Plan) -> Changes {
    let problem = replan.planner.problem();
    let mut changes = Changes::default();
    let mut admitted = BTreeSet::new();
    for admission in &plan.admitted {
        let id = admission.stream;
        admitted.insert(id);
        let name = problem.stream(id).name.clone();
        let starts = || Some(Starts::of(problem.network(), &admission.transmissions));
        let change = |old: Option<&Reservation>, differences: &[String]| Change {
            name: name.clone(),
            differences: differences.to_vec(),
            old: old.map(|old| old.starts.clone()),
            new: starts(),
        };
        match (replan.known.get(&id), replan.differences.get(&id)) {
            (None, _) => changes.added.push(change(None, &[])),
            (Some(old), Some(other)) => changes.changed.push(change(Some(old), other)),
            (Some(old), None) if starts().as_ref() == Some(&old.starts) => changes.kept += 1,
            (Some(old), None) => changes.moved.push(change(Some(old), &[])),
        }
    }
    for (id, old) in &replan.known {
        if !admitted.contains(id) {
            let differences = replan.differences.get(id).cloned().unwrap_or_default();
            let (name, old) = (old.name.clone(), Some(old.starts.clone()));
            changes.changed.push(Change { name, differences, old, new: None });
        }
    }
    for old in &replan.earlier.streams {
        if problem.find(&old.name).is_none() {
            let (name, starts) = (old.name.clone(), Some(old.starts.clone()));
            changes.removed.push(Change { name, differences: Vec::new(), old: starts, new: None });
        }
    }
    for list in [&mut changes.added, &mut changes.changed, &mut changes.moved] {
        list.sort_by(|a, b| a.name.cmp(&b.name));
    }
    let new: BTreeMap<LinkId, &PortGates> =
        plan.gates.iter().map(|gates| (gates.link, gates)).collect();
    let old = replan.earlier_gates();
    let links: BTreeSet<LinkId> = new.keys().chain(old.keys()).copied().collect();
    let differs = |link: &LinkId| new.get(link).copied() != old.get(link).and_then(Option::as_ref);
    let ports = links.into_iter().filter(differs);
    changes.ports = ports.map(|link| problem.network().link(link).name.clone()).collect();
    changes
}
