// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Instance data of YANG in JSON (RFC 7951), read by name, with the place of every mistake. The
//! prefix of a module may stand before a name of it or be left out; a name of another module is an
//! augmentation and passed over.
//!
//! Not here: what the names mean.

use std::fmt;

use serde_json::{Map, Value};

use super::csv::quoted;

/// What is wrong in instance data, where, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceError {
    /// The file's name.
    pub file: String,
    /// Names from the root, such as `/cnc-config/domain[0]/cuc[0]`; empty: the whole text.
    pub path: String,
    /// What is wrong.
    pub what: String,
    /// What would be right.
    pub remedy: String,
}

impl fmt::Display for InstanceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.file)?;
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        write!(f, "{}\n  remedy: {}", self.what, self.remedy)
    }
}

impl std::error::Error for InstanceError {}

/// A value of the data and its place.
#[derive(Clone)]
pub struct Data<'a> {
    file: &'a str,
    path: String,
    value: &'a Value,
}

/// The value of a text.
///
/// **Errors**: it is no JSON.
pub fn parse(file: &str, bytes: &[u8]) -> Result<Value, InstanceError> {
    serde_json::from_slice(bytes).map_err(|error| InstanceError {
        file: file.to_owned(),
        path: String::new(),
        what: format!("it is no JSON: {error}"),
        remedy: "instance data of YANG as JSON (RFC 7951)".to_owned(),
    })
}

impl<'a> Data<'a> {
    /// The data themselves: what is around them in an answer of RESTCONF (RFC 8040) or in a file of
    /// instance data (RFC 9195) is taken off.
    pub fn root(file: &'a str, mut value: &'a Value) -> Data<'a> {
        let wraps =
            ["ietf-yang-instance-data:instance-data-set", "content-data", "ietf-restconf:data"];
        for wrap in wraps {
            value = value.get(wrap).unwrap_or(value);
        }
        Data { file, path: String::new(), value }
    }

    /// A mistake here.
    pub fn error(&self, what: impl Into<String>, remedy: impl Into<String>) -> InstanceError {
        let (file, path) = (self.file.to_owned(), self.path.clone());
        InstanceError { file, path, what: what.into(), remedy: remedy.into() }
    }

    fn map(&self) -> Result<&'a Map<String, Value>, InstanceError> {
        self.value
            .as_object()
            .ok_or_else(|| self.error("it is no object", "names and values in {}"))
    }

    /// A child, if it is there, with or without a prefix of one of these modules.
    pub fn child(&self, modules: &[&str], name: &str) -> Result<Option<Data<'a>>, InstanceError> {
        let map = self.map()?;
        let prefixed = |module: &&str| map.get(&format!("{module}:{name}"));
        let value = map.get(name).or_else(|| modules.iter().find_map(prefixed));
        let path = format!("{}/{name}", self.path);
        Ok(value.map(|value| Data { file: self.file, path, value }))
    }

    /// A child that must be there.
    pub fn needed(&self, modules: &[&str], name: &str) -> Result<Data<'a>, InstanceError> {
        let found = self.child(modules, name)?;
        found.ok_or_else(|| self.error(format!("`{name}` is missing"), format!("add `{name}`")))
    }

    /// The entries of a list that may be missing.
    pub fn list(&self, modules: &[&str], name: &str) -> Result<Vec<Data<'a>>, InstanceError> {
        let Some(list) = self.child(modules, name)? else { return Ok(Vec::new()) };
        let Some(entries) = list.value.as_array() else {
            return Err(list.error("it is no list", "entries in [], also of a single one"));
        };
        let entries = entries.iter().enumerate().map(|(index, value)| {
            let path = format!("{}[{index}]", list.path);
            Data { file: self.file, path, value }
        });
        Ok(entries.collect())
    }

    /// That each name is one of these, or one of another module.
    pub fn only(&self, module: &str, names: &[&str]) -> Result<(), InstanceError> {
        for key in self.map()?.keys() {
            let name = match key.split_once(':') {
                Some((prefix, name)) if prefix == module => name,
                Some(_) => continue,
                None if key.starts_with('@') => continue,
                None => key.as_str(),
            };
            if !names.contains(&name) {
                let what = format!("{} is no name of {module} here", quoted(name));
                return Err(self.error(what, format!("one of {}", names.join(", "))));
            }
        }
        Ok(())
    }

    /// A whole number with its bounds, both included.
    pub fn number(&self, least: u64, most: u64) -> Result<u64, InstanceError> {
        let remedy = || format!("a whole number from {least} to {most}");
        let number = self.value.as_u64();
        let number = number.ok_or_else(|| self.error(self.is_not("whole number"), remedy()))?;
        if number < least || number > most {
            return Err(self.error(format!("{number} is out of its bounds"), remedy()));
        }
        Ok(number)
    }

    /// A number of 64 bits, which is text in JSON.
    pub fn long_number(&self) -> Result<u64, InstanceError> {
        let number = self.value.as_str().and_then(|text| text.parse().ok());
        let number = number.or_else(|| self.value.as_u64());
        number.ok_or_else(|| {
            self.error(self.is_not("number of 64 bits"), "digits in quotation marks, such as \"0\"")
        })
    }

    /// A text.
    pub fn text(&self) -> Result<&'a str, InstanceError> {
        let text = self.value.as_str();
        text.ok_or_else(|| self.error(self.is_not("text"), "text in quotation marks"))
    }

    /// Yes or no.
    pub fn boolean(&self) -> Result<bool, InstanceError> {
        let value = self.value.as_bool();
        value.ok_or_else(|| self.error(self.is_not("boolean"), "true or false"))
    }

    fn is_not(&self, what: &str) -> String {
        let text = match self.value {
            Value::Array(_) => "a list".to_owned(),
            Value::Object(_) => "an object".to_owned(),
            Value::String(text) => quoted(text),
            value => format!("`{value}`"),
        };
        format!("{text} is no {what}")
    }
}
