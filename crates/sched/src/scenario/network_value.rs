// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Single values that only network files have: one or several listeners.
//!
//! Not here: names and lengths (`value.rs`), groups of keys (`network.rs`).

use std::fmt;

use serde_json::{Value as Json, json};
use timewire_base::StationName;

use super::item::{Item, Reader};
use super::tree::{Node, Value};

/// Where a stream goes: a station, or several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetListeners(Vec<StationName>);

impl NetListeners {
    /// All of them; one at least, in a file that was checked.
    pub fn all(&self) -> &[StationName] {
        &self.0
    }

    /// Whether this station is one of them.
    pub fn contains(&self, name: &StationName) -> bool {
        self.0.contains(name)
    }
}

impl fmt::Display for NetListeners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.0.iter().map(StationName::as_str).collect();
        f.write_str(&names.join(", "))
    }
}

impl Item for NetListeners {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        match &node.value {
            Value::List(_) => Vec::read(node, reader).map(NetListeners),
            _ => StationName::read(node, reader).map(|name| NetListeners(vec![name])),
        }
    }
    fn emit(&self) -> Option<Json> {
        match self.0.as_slice() {
            [one] => one.emit(),
            _ => self.0.emit(),
        }
    }
    fn schema() -> Json {
        json!({"anyOf": [StationName::schema(), Vec::<StationName>::schema()]})
    }
}
