// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where one value may stand, or several in a list.

use std::fmt::{self, Display};

use serde_json::{Value as Json, json};

use super::item::{Item, Reader};
use super::tree::{Node, Value};

/// One value, or several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Several<T>(Vec<T>);

impl<T> Several<T> {
    /// These; `None` of an empty list.
    pub(super) fn of(values: Vec<T>) -> Option<Several<T>> {
        (!values.is_empty()).then_some(Several(values))
    }

    /// All of them, in the order of the file.
    pub fn all(&self) -> &[T] {
        &self.0
    }

    /// All of them, each with its key below `key`.
    pub(super) fn keyed(&self, key: &str) -> Vec<(String, &T)> {
        match self.0.as_slice() {
            [one] => vec![(key.to_owned(), one)],
            all => all.iter().enumerate().map(|(i, it)| (format!("{key}[{i}]"), it)).collect(),
        }
    }
}

impl<T: PartialEq> Several<T> {
    /// Whether this value is one of them.
    pub fn contains(&self, value: &T) -> bool {
        self.0.contains(value)
    }
}

impl<T: Display> Display for Several<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> = self.0.iter().map(T::to_string).collect();
        f.write_str(&all.join(", "))
    }
}

impl<T: Item> Item for Several<T> {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        match &node.value {
            Value::List(_) => Vec::read(node, reader).map(Several),
            _ => T::read(node, reader).map(|one| Several(vec![one])),
        }
    }
    fn emit(&self) -> Option<Json> {
        match self.0.as_slice() {
            [one] => one.emit(),
            _ => self.0.emit(),
        }
    }
    fn schema() -> Json {
        json!({"anyOf": [T::schema(), Vec::<T>::schema()]})
    }
}
