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
    let (_, node) = entries.iter().find(|(key, _)| key.text == *first)?;
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
    let (mark, value) = match base.map(|base| (base.mark, &base.value)) {
        Some((mark, Value::List(items))) => {
            let mut items: Vec<Node> = items.clone();
            for (key, change) in changes {
                let at = format!("{at}.{}", key.text);
                named(&mut items, key, change, &at, problems);
            }
            (mark, Value::List(items))
        }
        Some((mark, Value::Map(entries))) => {
            (mark, Value::Map(merged_keys(entries.clone(), changes, at, problems)))
        }
        Some(_) | None => (change.mark, Value::Map(merged_keys(Vec::new(), changes, at, problems))),
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
            (Some(place), None) => drop(entries.remove(place)),
            (None, Some(node)) => entries.push((key.clone(), node)),
            (None, None) => {}
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
            let key = Key { text: "name".to_owned(), mark: item.mark };
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
        Value::Map(_) => find(item, &["name"]).or_else(|| find(item, &["id"]))?,
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
        Value::List(nodes) => nodes.iter().map(json_of).collect(),
        Value::Map(entries) => {
            let entries = entries.iter().map(|(key, node)| (key.text.clone(), json_of(node)));
            Json::Object(entries.collect::<Map<String, Json>>())
        }
    }
}
