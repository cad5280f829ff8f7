// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a reader of JSON did not look at: each value that is asked for is marked, and the rest is
//! named with its place.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;

/// Something that was there and was not interpreted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Unread {
    /// Names from the root, without the place in a list.
    pub path: String,
    /// How often.
    pub count: usize,
}

impl Unread {
    /// One, at this place.
    pub fn at(path: impl Into<String>) -> Unread {
        Unread { path: path.into(), count: 1 }
    }
}

/// Which values of one document were asked for.
#[derive(Clone, Debug, Default)]
pub struct Seen(RefCell<BTreeSet<*const Value>>);

impl Seen {
    /// This value of the document was asked for. What is in it is asked for by itself.
    pub fn mark(&self, value: &Value) {
        self.0.borrow_mut().insert(std::ptr::from_ref(value));
    }

    /// This value and everything in it was looked at.
    pub fn mark_all(&self, value: &Value) {
        self.mark(value);
        match value {
            Value::Array(list) => list.iter().for_each(|one| self.mark_all(one)),
            Value::Object(map) => map.values().for_each(|one| self.mark_all(one)),
            _ => {}
        }
    }

    /// What below this value of the document was not asked for, the outermost each; in the order of
    /// their places.
    pub fn unread(&self, root: &Value) -> Vec<Unread> {
        let mut found = BTreeMap::new();
        self.collect(root, "", &mut found);
        found.into_iter().map(|(path, count)| Unread { path, count }).collect()
    }

    fn collect(&self, value: &Value, at: &str, found: &mut BTreeMap<String, usize>) {
        let is_seen = |value: &Value| self.0.borrow().contains(&std::ptr::from_ref(value));
        let mut below = |value: &Value, path: String| {
            if is_seen(value) {
                self.collect(value, &path, found);
            } else {
                *found.entry(path).or_insert(0) += 1;
            }
        };
        match value {
            Value::Array(list) => list.iter().for_each(|one| below(one, at.to_owned())),
            Value::Object(map) => {
                map.iter().for_each(|(key, one)| below(one, format!("{at}/{key}")));
            }
            _ => {}
        }
    }
}
