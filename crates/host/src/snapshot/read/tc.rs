// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `tc` prints: queueing disciplines with their settings, state and counters; classes and
//! filters.

use std::collections::BTreeMap;

use serde_json::Value;
use timewire_tsn::qdisc::{QdiscKind, ShownQdisc};

use super::ip::text;
use crate::snapshot::model::{QdiscCounters, QdiscSettings, QdiscState};

/// The disciplines of an interface, in three parts.
#[derive(Clone, Debug, Default)]
pub struct Qdiscs {
    pub settings: Vec<QdiscSettings>,
    pub state: Vec<QdiscState>,
    pub counters: Vec<QdiscCounters>,
}

/// Keys that are no counters, beside those that say which discipline it is.
const SETTINGS: [&str; 5] = ["stab", "offloaded", "ingress_block", "egress_block", "invisible"];
const WHICH: [&str; 7] = ["kind", "handle", "parent", "root", "dev", "options", "refcnt"];

/// The text of `tc -j -d -s qdisc show dev INTERFACE`.
///
/// **Errors**: it is no list of disciplines.
pub fn qdiscs(printed: &str) -> Result<Qdiscs, String> {
    if printed.trim().is_empty() {
        return Ok(Qdiscs::default());
    }
    let mut objects = ShownQdisc::objects(printed).map_err(|error| error.to_string())?;
    objects.sort_by_cached_key(|object| {
        let parent = parent(object);
        (parent != "root", parent, text(object, "handle").unwrap_or_default().to_owned())
    });
    let mut found = Qdiscs::default();
    for object in &objects {
        let kind = text(object, "kind").ok_or("a discipline without a kind")?.to_owned();
        let handle = text(object, "handle").unwrap_or("0:").to_owned();
        let parent = parent(object);
        let options =
            object.get("options").filter(|o| o.as_object().is_some_and(|o| !o.is_empty()));
        let modelled = kind.parse::<QdiscKind>().is_ok();
        let shown = ShownQdisc::of_object(object).ok().filter(|_| modelled);
        let words = shown.and_then(|shown| shown.configured()).map(|qdisc| qdisc.to_string());
        let others = |wanted: bool| -> BTreeMap<String, Value> {
            let all = object.as_object().into_iter().flatten();
            let all = all.filter(|(key, _)| !WHICH.contains(&key.as_str()));
            let chosen = all.filter(|(key, _)| SETTINGS.contains(&key.as_str()) == wanted);
            chosen.map(|(key, value)| (key.clone(), value.clone())).collect()
        };
        if let Some(options) = options.filter(|_| modelled) {
            found.state.push(QdiscState {
                kind: kind.clone(),
                handle: handle.clone(),
                parent: parent.clone(),
                options: options.clone(),
            });
        }
        found.counters.push(QdiscCounters {
            kind: kind.clone(),
            handle: handle.clone(),
            parent: parent.clone(),
            counters: others(false),
        });
        // Of one that our types refuse, the options as they are.
        let options = options.filter(|_| words.is_none()).cloned();
        found.settings.push(QdiscSettings {
            kind,
            handle,
            parent,
            words,
            options,
            more: others(true),
        });
    }
    Ok(found)
}

fn parent(object: &Value) -> String {
    let is_root = object.get("root").and_then(Value::as_bool) == Some(true);
    let parent = if is_root { Some("root") } else { text(object, "parent") };
    match (parent, text(object, "kind")) {
        (Some("ffff:fff1"), Some(kind)) => kind.to_owned(),
        (parent, _) => parent.unwrap_or_default().to_owned(),
    }
}

/// Kinds of classes that people make; those of other disciplines follow from them.
const MADE_BY_HAND: [&str; 5] = ["htb", "hfsc", "drr", "qfq", "cbq"];

/// Of classes, as objects or as lines, those that were made by hand.
pub fn made_by_hand(classes: Vec<Value>) -> Vec<Value> {
    let made = |one: &Value| match one {
        Value::String(line) => {
            MADE_BY_HAND.iter().any(|kind| line.contains(&format!("class {kind} ")))
        }
        one => text(one, "class").is_none_or(|kind| MADE_BY_HAND.contains(&kind)),
    };
    classes.into_iter().filter(made).collect()
}
