// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finding out what a NIC does itself, which cannot be known without asking it to. The one try
//! that changes an interface of the host: only of one that was named, with a journal and its
//! watchdog, and only where the kernel's own discipline is at the root, so that it comes back by
//! itself.

use std::collections::BTreeMap;

use timewire_base::IfName;

use super::ProbeOutcome;
use super::attempt::of_tool_error;
use crate::HostError;
use crate::journal::Journal;
use crate::snapshot::Snapshot;
use crate::tool::{self, Tool};
use crate::undo::Undo;

/// Asks a NIC for gates, launch times and shapers of its own, one after the other. The link may
/// go down for a moment: some drivers start the NIC anew.
///
/// **Errors**: the interface is not there, has a discipline that somebody put there, or does not
/// tell; `NotUndone` when what was set could not be undone, and is there still.
pub fn try_offloads(
    snapshot: &Snapshot,
    interface: &IfName,
) -> Result<BTreeMap<String, ProbeOutcome>, HostError> {
    may_be_tried(snapshot, interface)?;
    let journal = Journal::begin(&format!("trying what {interface} does itself"))?;
    let tried = try_each(&journal, interface);
    // It undoes once more what could not be undone; that error says that the host is changed.
    journal.finish()?;
    tried
}

/// Whether nothing would be lost at the root. Who cannot tell does not try.
fn may_be_tried(snapshot: &Snapshot, interface: &IfName) -> Result<(), HostError> {
    let refused =
        |why: String| HostError::kernel(format!("try {interface}"), std::io::Error::other(why));
    let Some(settings) = snapshot.settings.interfaces.get(interface) else {
        return Err(refused("there is no such interface".to_owned()));
    };
    let Some(qdiscs) = settings.qdiscs.known() else {
        let why = settings.qdiscs.why_not().unwrap_or_default();
        return Err(refused(format!("its queueing disciplines cannot be read: {why}")));
    };
    match qdiscs.iter().find(|qdisc| qdisc.handle != "0:") {
        Some(own) => Err(refused(format!(
            "somebody put the discipline {} {} there, and it would be lost",
            own.kind, own.handle
        ))),
        None => Ok(()),
    }
}

fn try_each(
    journal: &Journal,
    interface: &IfName,
) -> Result<BTreeMap<String, ProbeOutcome>, HostError> {
    let mut results = BTreeMap::new();
    for (what, lines) in TRIES {
        let id = journal.record(Undo::DeleteRootQdisc { interface: interface.clone() })?;
        let lines: Vec<_> =
            lines.iter().map(|line| line.replace("IFACE", interface.as_str())).collect();
        let tried = tool::batch(Tool::Tc, None, &lines);
        journal.undo(id)?;
        let outcome = match tried {
            Ok(()) => {
                ProbeOutcome::Works { found: "the NIC took it, and it was undone".to_owned() }
            }
            Err(error) => of_tool_error(&error),
        };
        results.insert(what.to_owned(), outcome);
    }
    Ok(results)
}

/// What is asked for, and how.
const TRIES: [(&str, &[&str]); 3] = [
    (
        "taprio",
        &["qdisc replace dev IFACE parent root handle 100: taprio num_tc 1 \
           map 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 queues 1@0 base-time 0 \
           sched-entry S 1 1000000 flags 0x2"],
    ),
    // At the root they are about the first queue, which is one of those that can in every NIC.
    (
        "etf",
        &["qdisc replace dev IFACE parent root handle 100: etf clockid CLOCK_TAI delta 300000 \
           offload"],
    ),
    (
        "cbs",
        &["qdisc replace dev IFACE parent root handle 100: cbs idleslope 20000 \
           sendslope -980000 hicredit 30 locredit -1470 offload 1"],
    ),
];

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::snapshot::Reading;

    /// What a recorded NIC says when its disciplines are these.
    fn asked(change: impl FnOnce(&mut crate::snapshot::model::InterfaceSettings)) -> String {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../fixtures/hosts/i225-6.12-rt/snapshot.json");
        let mut snapshot = Snapshot::parse(&std::fs::read_to_string(path).unwrap()).unwrap();
        let eth0 = IfName::new("eth0").unwrap();
        change(snapshot.settings.interfaces.get_mut(&eth0).unwrap());
        let answer = may_be_tried(&snapshot, &eth0);
        answer.map_or_else(|error| error.to_string(), |()| "yes".to_owned())
    }

    #[test]
    fn t0_a_nic_whose_disciplines_nobody_knows_is_not_tried() {
        assert_eq!(asked(|_| {}), "yes");
        let said = asked(|nic| nic.qdiscs = Reading::Unreadable("tc is missing".to_owned()));
        assert!(said.contains("cannot be read: tc is missing"), "{said}");
        let said = asked(|nic| {
            let mut own = nic.qdiscs.known().unwrap().clone();
            own[0].handle = "8001:".to_owned();
            nic.qdiscs = Reading::Known(own);
        });
        assert!(said.contains("it would be lost"), "{said}");
    }
}
