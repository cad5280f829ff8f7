// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The queueing disciplines of an interface as `tc` shows them, with the words that put each of
//! them there again, or why there are none.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use timewire_tsn::qdisc::{
    Mqprio, MqprioHardware, Qdisc, QdiscCommand, QdiscError, ShownQdisc, Taprio,
};

use super::foreign;
use crate::snapshot::model::GatedCredit;

/// All disciplines of an interface on transmit. Those for received frames (`clsact`, `ingress`) are
/// not among them: nothing here touches them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QdiscTree {
    /// The root, then its children by class.
    pub nodes: Vec<QdiscNode>,
    /// What hangs on them and would be lost with them: classes, filters.
    pub holds: Vec<String>,
}

/// One discipline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QdiscNode {
    /// Its kind.
    pub kind: String,
    /// Its name, as `100:`; `0:` is one that the kernel put there by itself. Empty in a desired
    /// configuration: any.
    pub handle: String,
    /// Where it stands: `root`, `parent 100:1`.
    pub place: String,
    /// What is added to the length of each frame: `stab overhead 24`, or nothing.
    pub size_table: String,
    /// The words after the kind.
    pub words: String,
    /// The words by which it is compared: what `tc` does not show is left out.
    pub compared: String,
    /// Why `words` do not put it there again exactly.
    pub fault: Option<String>,
}

impl QdiscNode {
    /// Whether the kernel put it there by itself.
    pub fn is_of_kernel(&self) -> bool {
        self.handle == "0:"
    }

    /// The arguments of `tc` that put it there.
    pub fn arguments(&self, interface: &str) -> Vec<String> {
        // In a class there can be a discipline of the kernel's with a handle of its own.
        let verb = if self.place == "root" { "add" } else { "replace" };
        let mut line = format!("qdisc {verb} dev {interface} {}", self.place);
        if !self.handle.is_empty() {
            line += &format!(" handle {}", self.handle);
        }
        for part in [&self.size_table, &self.kind, &self.words] {
            line.push(' ');
            line += part;
        }
        line.split_whitespace().map(str::to_owned).collect()
    }
}

impl QdiscTree {
    /// What the kernel does by itself.
    pub fn of_kernel() -> QdiscTree {
        QdiscTree::default()
    }

    /// Whether the kernel put all of it there by itself, or is asked to.
    pub fn is_of_kernel(&self) -> bool {
        self.nodes.iter().all(QdiscNode::is_of_kernel)
    }

    /// What classes with credit carry behind gates.
    pub fn gated_credit(&self) -> Vec<GatedCredit> {
        let each = self.nodes.iter().map(|node| {
            let parent = node.place.strip_prefix("parent ").unwrap_or(&node.place);
            (parent, format!("{} {}", node.kind, node.words).parse().ok())
        });
        GatedCredit::of(each)
    }

    /// Those that someone put there.
    pub fn own(&self) -> impl Iterator<Item = &QdiscNode> {
        self.nodes.iter().filter(|node| !node.is_of_kernel())
    }

    /// Whether it is a `taprio` with disciplines below it that someone put there.
    ///
    /// Putting them there while the interface is up ends its timer for ever: no frame leaves any
    /// more (found with Linux 6.12).
    pub fn needs_link_down(&self) -> bool {
        let mut own = self.own();
        own.next().is_some_and(|root| root.kind == "taprio") && own.next().is_some()
    }

    /// Why this cannot be built again exactly as it is; `None` when it can.
    pub fn fault(&self) -> Option<String> {
        let root_is_of_kernel = self.nodes.first().is_some_and(QdiscNode::is_of_kernel);
        if root_is_of_kernel && let Some(child) = self.own().next() {
            let QdiscNode { kind, handle, .. } = child;
            return Some(format!("{kind} {handle} hangs below a root without a name"));
        }
        if let Some(what) = self.holds.first() {
            return Some(format!("it has {what}"));
        }
        let fault = |node: &QdiscNode| {
            node.fault.as_ref().map(|why| format!("{} {}: {why}", node.kind, node.handle))
        };
        self.own().find_map(fault)
    }

    /// The tree that commands of `tc` make.
    ///
    /// **Errors**: a command that does not put one there.
    pub fn of_commands(commands: &[QdiscCommand]) -> Result<QdiscTree, String> {
        let node = |command: &QdiscCommand| {
            let (Some(qdisc), Some(place)) = (command.qdisc(), command.place()) else {
                return Err(format!("`{command}` puts no discipline anywhere"));
            };
            let whole = qdisc.to_string();
            Ok(QdiscNode {
                kind: qdisc.kind().to_string(),
                handle: command.handle().map(|handle| handle.to_string()).unwrap_or_default(),
                place: place.to_string(),
                size_table: command.size_table().map(|table| table.to_string()).unwrap_or_default(),
                words: after_kind(&whole),
                compared: compared(qdisc),
                fault: None,
            })
        };
        let nodes = commands.iter().map(node).collect::<Result<_, _>>()?;
        Ok(QdiscTree { nodes, holds: Vec::new() })
    }

    /// Reads what `tc -j -d -r qdisc show dev IF` printed. `holds` is what else hangs on them.
    ///
    /// **Errors**: text of another kind.
    pub fn parse(text: &str, holds: Vec<String>) -> Result<QdiscTree, QdiscError> {
        let shown = ShownQdisc::parse(text)?;
        // Raw values of the disciplines that are not of the four; of those, nothing breaks JSON.
        let raw: Vec<Json> = serde_json::from_str(text).unwrap_or_default();
        let mut nodes = Vec::new();
        for (index, one) in shown.iter().enumerate() {
            if matches!(one.kind.as_str(), "clsact" | "ingress") {
                continue;
            }
            nodes.push(node(one, raw.get(index)));
        }
        nodes.sort_by_key(|node: &QdiscNode| place_order(&node.place));
        Ok(QdiscTree { nodes, holds })
    }

    /// Whether disciplines that are there are as this asks; what the kernel puts below them by
    /// itself does not count.
    pub fn is_met_by(&self, have: &QdiscTree) -> bool {
        let own: Vec<&QdiscNode> = have.own().collect();
        let wanted: Vec<&QdiscNode> = self.own().collect();
        let meets = |want: &&QdiscNode| {
            own.iter().any(|have| {
                have.place == want.place
                    && have.kind == want.kind
                    && have.size_table == want.size_table
                    && have.compared == want.compared
                    && (want.handle.is_empty() || have.handle == want.handle)
            })
        };
        own.len() == wanted.len() && wanted.iter().all(meets)
    }
}

/// `root` first, then by class.
fn place_order(place: &str) -> (u32, u32) {
    let part = |text: &str| u32::from_str_radix(text, 16).unwrap_or(0);
    match place.strip_prefix("parent ").and_then(|class| class.split_once(':')) {
        Some((major, minor)) => (part(major) + 1, part(minor)),
        None => (0, 0),
    }
}

fn after_kind(whole: &str) -> String {
    whole.split_once(' ').map_or(String::new(), |(_, words)| words.to_owned())
}

fn node(shown: &ShownQdisc, raw: Option<&Json>) -> QdiscNode {
    let handle = shown.handle.map_or_else(|| "0:".to_owned(), |handle| handle.to_string());
    let mut node = QdiscNode {
        kind: shown.kind.clone(),
        handle,
        place: shown.place.map_or_else(|| "root".to_owned(), |place| place.to_string()),
        size_table: shown.size_table.map(|table| table.to_string()).unwrap_or_default(),
        words: String::new(),
        compared: String::new(),
        fault: None,
    };
    match shown.configured() {
        Some(qdisc) => {
            node.words = after_kind(&with_sdu_in_force(&qdisc, shown).to_string());
            node.compared = compared(&qdisc);
            if matches!(&qdisc, Qdisc::Mqprio(mqprio) if hides_hardware(mqprio)) {
                let why = "tc does not show whether the NIC tells its classes apart";
                node.fault = Some(why.to_owned());
            }
            if shown.oper.is_some() && shown.admin.is_some() {
                let why = "it has a schedule that runs and one that waits";
                node.fault = Some(why.to_owned());
            }
        }
        None if node.is_of_kernel() => {
            node.words = raw.map(foreign::options).unwrap_or_default();
            node.compared = node.words.clone();
        }
        None => {
            match raw.map_or(Err("tc shows nothing".to_owned()), foreign::words) {
                Ok(words) => node.words = words,
                Err(why) => node.fault = Some(why),
            }
            node.compared = raw.map(foreign::options).unwrap_or_default();
        }
    }
    node
}

/// What a class was given as its longest payload, and what its gates leave room for, are one number
/// when shown; given again, it is the same number.
fn with_sdu_in_force(qdisc: &Qdisc, shown: &ShownQdisc) -> Qdisc {
    let Qdisc::Taprio(taprio) = qdisc else { return qdisc.clone() };
    let mut options = taprio.options().clone();
    options.max_sdu.clone_from(&shown.max_sdu_in_force);
    // The kernel showed these numbers, so it takes them.
    Taprio::new(options).map_or_else(|_| qdisc.clone(), Qdisc::Taprio)
}

/// A `mode dcb` without rates is printed for `hw 0` and for `hw 1`.
fn hides_hardware(mqprio: &Mqprio) -> bool {
    mqprio.options().hardware == MqprioHardware::Dcb
}

/// The words without what `tc` does not show, and with what the kernel fills in.
fn compared(qdisc: &Qdisc) -> String {
    match qdisc {
        Qdisc::Taprio(taprio) => {
            let mut options = taprio.options().clone();
            options.max_sdu = Vec::new();
            options.cycle_time = taprio.cycle();
            Taprio::new(options).map_or_else(|_| qdisc.to_string(), |taprio| taprio.to_string())
        }
        Qdisc::Mqprio(mqprio) => {
            let mut options = mqprio.options().clone();
            if options.hardware == MqprioHardware::Dcb {
                options.hardware = MqprioHardware::None;
            }
            Mqprio::new(options).map_or_else(|_| qdisc.to_string(), |mqprio| mqprio.to_string())
        }
        other => other.to_string(),
    }
}

impl fmt::Display for QdiscTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let own: Vec<String> = self
            .own()
            .map(|node| {
                let QdiscNode { kind, handle, place, size_table, words, .. } = node;
                let parts = [place, handle, size_table, kind, words];
                let parts = parts.into_iter().filter(|part| !part.is_empty()).cloned();
                parts.collect::<Vec<_>>().join(" ")
            })
            .collect();
        if !own.is_empty() {
            return f.write_str(&own.join("; "));
        }
        match self.nodes.first() {
            Some(root) => write!(f, "the kernel's own ({})", root.kind),
            None => f.write_str("the kernel's own"),
        }
    }
}
