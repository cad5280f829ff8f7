// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why frames did not leave: the counters of the queueing disciplines before and after, joined with
//! what the sockets heard.
//!
//! Not here: the decision (`timewire_tsn::drops`), sending (`traffic`, `avtp`, `measure`).

mod ports;

pub use crate::heard::Hear;
pub use ports::PortDrops;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
pub use timewire_base::drops::{Candidate, Cause, DropCause, Heard, Socket};
use timewire_host::tool::{self, Tool};
use timewire_tsn::drops::{QdiscDrops, Refuser, decide, without_children};
use timewire_tsn::qdisc::{Qdisc, ShownQdisc};

/// What became of answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnswerCounts {
    /// Handed to the kernel.
    pub sent: u64,
    /// Not taken.
    pub not_sent: u64,
    /// Why, in the last summary; empty before.
    pub drop_causes: Vec<DropCause>,
}

/// The counters of all queueing disciplines of this network namespace, or why they are not known.
#[derive(Clone, Debug)]
pub struct QdiscCounts(Result<Vec<Counted>, String>);

#[derive(Clone, Debug)]
struct Counted {
    at: QdiscDrops,
    drops: u64,
    overlimits: u64,
}

impl QdiscCounts {
    /// Reads them.
    pub fn now() -> QdiscCounts {
        let shown = tool::run(Tool::Tc, &["-j", "-d", "-s", "qdisc", "show"]);
        QdiscCounts(shown.map_err(|error| error.to_string()).and_then(|text| counted(&text)))
    }

    /// What the disciplines dropped from then to now.
    ///
    /// **Errors**: why it is not known.
    pub fn since(&self, before: &QdiscCounts) -> Result<Vec<QdiscDrops>, String> {
        let (now, before) = (self.0.as_ref(), before.0.as_ref());
        let (now, before) = (now.map_err(String::clone)?, before.map_err(String::clone)?);
        let mut found: Vec<QdiscDrops> = Vec::new();
        for after in now {
            let was = before.iter().find(|it| it.at.is_same(&after.at));
            let (drops, overlimits) = was.map_or((0, 0), |it| (it.drops, it.overlimits));
            found.push(QdiscDrops {
                drops: after.drops.saturating_sub(drops),
                overlimits: after.overlimits.saturating_sub(overlimits),
                ..after.at.clone()
            });
        }
        Ok(without_children(found))
    }
}

fn counted(text: &str) -> Result<Vec<Counted>, String> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let objects = ShownQdisc::objects(text).map_err(|error| error.to_string())?;
    Ok(objects.iter().map(one).collect())
}

fn one(object: &Json) -> Counted {
    let word = |key: &str| object.get(key).and_then(Json::as_str).unwrap_or_default().to_owned();
    let count = |key: &str| object.get(key).and_then(Json::as_u64).unwrap_or(0);
    let set = ShownQdisc::of_object(object).ok().and_then(|shown| shown.oper);
    let refuser = match set {
        Some(Qdisc::Etf(etf)) => Refuser::Etf { deadline: etf.flags().deadline_mode },
        Some(Qdisc::Taprio(taprio)) => Refuser::of_taprio(taprio.options()),
        _ => Refuser::Other,
    };
    let parent = word("parent");
    Counted {
        at: QdiscDrops {
            interface: word("dev"),
            kind: word("kind"),
            handle: word("handle"),
            parent: if parent.is_empty() { "root".to_owned() } else { parent },
            refuser,
            drops: 0,
            overlimits: 0,
        },
        drops: count("drops"),
        overlimits: count("overlimits"),
    }
}

/// Why frames of these sockets did not leave, with the counters of before and now. Without a frame
/// that was dropped nothing is read.
pub fn causes(sockets: &[(Socket, Heard)], before: &QdiscCounts) -> Vec<DropCause> {
    if sockets.iter().all(|(_, heard)| heard.is_empty()) {
        return Vec::new();
    }
    let counted = QdiscCounts::now().since(before);
    let mut told = decide(sockets, counted.as_deref().ok());
    for one in &mut told {
        one.not_counted = counted.as_ref().err().cloned();
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t1_what_tc_prints_becomes_drops_of_each_discipline() {
        let text = |dropped: u64, child: u64| {
            format!(
                r#"[{{"kind":"noqueue","handle":"0:","dev":"lo","root":true,"refcnt":2,
                "options":{{}},"drops":0,"overlimits":0}},
                {{"kind":"mqprio","handle":"8001:","dev":"eth0","root":true,"options":{{}},
                "drops":{dropped},"overlimits":4}},
                {{"kind":"etf","handle":"8002:","dev":"eth0","parent":"8001:1","options":
                {{"clockid":"TAI","delta":300000,"offload":"off","deadline_mode":"on",
                "skip_sock_check":"off"}},"drops":{child},"overlimits":4}}]"#
            )
        };
        let counts = |text: String| QdiscCounts(counted(&text));
        let found = counts(text(12, 9)).since(&counts(text(2, 2))).unwrap();
        let told: Vec<_> =
            found.iter().map(|it| (it.interface.as_str(), it.handle.as_str(), it.drops)).collect();
        // The parent's counter has its children's in it.
        assert_eq!(told, [("lo", "0:", 0), ("eth0", "8001:", 3), ("eth0", "8002:", 7)]);
        assert_eq!(found[2].refuser, Refuser::Etf { deadline: true });
        let unknown = counts("no list".to_owned());
        assert!(unknown.since(&counts(text(0, 0))).is_err());
        let sockets = [(Socket::default(), Heard { no_buffers: 3, ..Heard::default() })];
        let told = causes(&sockets, &unknown);
        assert!(told[0].to_string().contains("counters of queueing disciplines are not known: "));
    }
}
