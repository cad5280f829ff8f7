// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a case changes of its file, and the file with it, as RFC 7396 merges, in lists by names.

use serde_json::{Map, Value as Json, json};

use super::error::Problem;
use super::item::{Item, Reader};
use super::suggest::{did_you_mean, listed};
use super::tree::{Key, Node, Value};

/// A part of a network file that differs in a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change(pub(super) Json);

/// The value below keys.
pub(super) fn find<'n>(node: &'n Node, keys: &[&str]) -> Option<&'n Node> {
    let Some((first, rest)) = keys.split_first() else { return Some(node) };
    let Value::Map(entries) = &node.value else { return None };
    let (_, node) = entries.iter().find(|(key, node)| key.text == *first && !node.is_absent())?;
    find(node, rest)
}

/// A value with a change in it; `None` where it goes.
pub(super) fn merged(
    base: Option<&Node>,
    change: &Node,
    at: &str,
    problems: &mut Vec<Problem>,
) -> Option<Node> {
    if change.is_null() {
        return None;
    }
    let Value::Map(changes) = &change.value else { return Some(change.clone()) };
    // What is wrong with the whole is of who changed it last.
    let mark = change.mark;
    let value = match base.map(|base| &base.value) {
        Some(Value::List(items)) => {
            let mut items: Vec<Node> = items.clone();
            for (key, change) in changes {
                let at = format!("{at}.{}", key.text);
                named(&mut items, key, change, &at, problems);
            }
            Value::List(items)
        }
        // A change of a change keeps what that takes out.
        Some(Value::Map(entries)) if is_change(at) => {
            Value::Map(both_changes(entries.clone(), changes))
        }
        Some(Value::Map(entries)) => {
            Value::Map(merged_keys(entries.clone(), changes, at, problems))
        }
        _ if is_change(at) => return Some(change.clone()),
        Some(_) | None => Value::Map(merged_keys(Vec::new(), changes, at, problems)),
    };
    Some(Node { mark, value })
}

fn merged_keys(
    mut entries: Vec<(Key, Node)>,
    changes: &[(Key, Node)],
    at: &str,
    problems: &mut Vec<Problem>,
) -> Vec<(Key, Node)> {
    for (key, change) in changes {
        let at = format!("{at}{}{}", if at.is_empty() { "" } else { "." }, key.text);
        let place = entries.iter().position(|(own, _)| own.text == key.text);
        let base = place.map(|place| &entries[place].1);
        match (place, merged(base, change, &at, problems)) {
            (Some(place), Some(node)) => entries[place].1 = node,
            (None, Some(node)) => entries.push((key.clone(), node)),
            (place, None) => {
                let absent = Node { mark: change.mark, value: Value::Absent };
                match place {
                    Some(place) => entries[place] = (key.clone(), absent),
                    None => entries.push((key.clone(), absent)),
                }
            }
        }
    }
    entries
}

/// Whether this is what a case changes: `experiment.cases.NAME.change`.
fn is_change(at: &str) -> bool {
    let mut parts = at.splitn(4, '.');
    let [experiment, cases, _, change] = [(); 4].map(|()| parts.next());
    experiment == Some("experiment")
        && cases == Some("cases")
        && change.is_some_and(|it| it == "change" || it.starts_with("change."))
}

/// What two changes do together, the later one last: a `null` in it stays one.
fn both_changes(mut entries: Vec<(Key, Node)>, later: &[(Key, Node)]) -> Vec<(Key, Node)> {
    for (key, change) in later {
        let own = entries.iter_mut().find(|(own, _)| own.text == key.text);
        match (own, &change.value) {
            (Some((_, node)), Value::Map(later)) => {
                let entries = match &node.value {
                    Value::Map(entries) => entries.clone(),
                    _ => Vec::new(),
                };
                let value = Value::Map(both_changes(entries, later));
                *node = Node { mark: change.mark, value };
            }
            (Some((_, node)), _) => *node = change.clone(),
            (None, _) => entries.push((key.clone(), change.clone())),
        }
    }
    entries
}

/// Changes the thing of this name in a list.
fn named(items: &mut Vec<Node>, key: &Key, change: &Node, at: &str, problems: &mut Vec<Problem>) {
    let names: Vec<Option<String>> = items.iter().map(name_of).collect();
    let place = names.iter().position(|name| name.as_deref() == Some(key.text.as_str()));
    let Some(place) = place else {
        let known = || names.iter().flatten().map(String::as_str);
        let meant = did_you_mean(&key.text, known());
        let message = format!("there is no `{}` in this list{meant}", key.text);
        let hint = match known().next() {
            Some(_) if !at.starts_with("experiment.") => format!("there are {}", listed(known())),
            Some(_) => format!(
                "there are {}; what only some cases have stands in the file, and `null` takes it \
                 out of the others",
                listed(known())
            ),
            None => "its entries have no names: write the whole list".to_owned(),
        };
        problems.push(Problem { mark: key.mark, key: at.to_owned(), message, hint });
        return;
    };
    let item = &items[place];
    let base = match &item.value {
        Value::Scalar { .. } => {
            let name = if at.contains("schedule.slots.") { "station" } else { "name" };
            let key = Key { text: name.to_owned(), mark: item.mark };
            Node { mark: item.mark, value: Value::Map(vec![(key, item.clone())]) }
        }
        _ => item.clone(),
    };
    match merged(Some(&base), change, at, problems) {
        Some(node) => items[place] = node,
        None => drop(items.remove(place)),
    }
}

/// The name of a thing in a list.
pub(super) fn name_of(item: &Node) -> Option<String> {
    let named = match &item.value {
        Value::Map(_) => {
            let name = find(item, &["name"]).or_else(|| find(item, &["id"]));
            name.or_else(|| find(item, &["station"]))?
        }
        _ => item,
    };
    match &named.value {
        Value::Scalar { text, .. } => Some(text.clone()),
        _ => None,
    }
}

impl Item for Change {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        let Value::Map(_) = &node.value else {
            let message = format!("here is {}, where a group of keys goes", node.what());
            reader.fail(node.mark, message, "write keys of this file with other values");
            return None;
        };
        Some(Change(json_of(node)))
    }
    fn emit(&self) -> Option<Json> {
        Some(self.0.clone())
    }
    fn schema() -> Json {
        json!({"type": "object"})
    }
}

/// A value as JSON, which reads as it.
fn json_of(node: &Node) -> Json {
    match &node.value {
        Value::Scalar { .. } if node.is_null() => Json::Null,
        Value::Scalar { text, plain: true } => match text.as_str() {
            "true" => json!(true),
            "false" => json!(false),
            text => text.parse::<u64>().map_or_else(|_| json!(text), |number| json!(number)),
        },
        Value::Scalar { text, .. } => json!(text),
        Value::Absent => Json::Null,
        Value::List(nodes) => nodes.iter().map(json_of).collect(),
        Value::Map(entries) => {
            let entries = entries.iter().map(|(key, node)| (key.text.clone(), json_of(node)));
            Json::Object(entries.collect::<Map<String, Json>>())
        }
    }
}
