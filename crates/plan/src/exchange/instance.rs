// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Instance data of YANG, in JSON (RFC 7951) or XML (RFC 7950), read by name, with the place of
//! every mistake. The prefix of a module may stand before a name of it or be left out. What nobody
//! asks for is told at the end.

use std::fmt;

use serde_json::{Map, Value};
use timewire_model::unread::{Seen, Unread};

use super::csv::quoted;
use super::json::Strict;
use super::xml;

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

/// Instance data, and which of it was asked for.
#[derive(Debug)]
pub struct Document {
    file: String,
    value: Value,
    /// Leaves are text, and an element alone may be a list.
    is_xml: bool,
    seen: Seen,
}

/// A value of the data and its place.
#[derive(Clone)]
pub struct Data<'a> {
    document: &'a Document,
    path: String,
    value: &'a Value,
}

/// What is around the data in a file of instance data (RFC 9195) and in answers of RESTCONF (RFC
/// 8040) and NETCONF (RFC 6241), whose namespace ends with its version.
const WRAPS: &[&str] = &[
    "ietf-yang-instance-data:instance-data-set",
    "ietf-yang-instance-data:content-data",
    "content-data",
    "ietf-restconf:data",
    "1.0:rpc-reply",
    "1.0:data",
    "1.0:config",
    "data",
    "config",
];
/// What stands beside the data there and is no data.
const BESIDE: &[&str] = &[
    "name",
    "format-version",
    "content-schema",
    "revision",
    "description",
    "contact",
    "organization",
    "datastore",
    "entity-tag",
    "last-modified",
    "timestamp",
    "inline-yang-library",
    "@message-id",
];

impl Document {
    /// Reads a text, which is XML when its first character is `<`, else JSON.
    ///
    /// **Errors**: it is neither.
    pub fn parse(file: &str, bytes: &[u8]) -> Result<Document, InstanceError> {
        let failed = |what: String, remedy: &str| InstanceError {
            file: file.to_owned(),
            path: String::new(),
            what,
            remedy: remedy.to_owned(),
        };
        let text = std::str::from_utf8(bytes)
            .map_err(|_| failed("it is no text".to_owned(), "instance data of YANG, as UTF-8"))?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let is_xml = text.trim_start().starts_with('<');
        let value = if is_xml {
            xml::parse(text).map_err(|error| {
                let what = format!("line {}: {}", error.line, error.what);
                failed(what, "instance data of YANG as XML (RFC 7950)")
            })?
        } else {
            let value = serde_json::from_str(text).map(|Strict(value)| value);
            value.map_err(|error| {
                let remedy = "instance data of YANG as JSON (RFC 7951)";
                failed(format!("it is no JSON: {error}"), remedy)
            })?
        };
        Ok(Document { file: file.to_owned(), value, is_xml, seen: Seen::default() })
    }

    /// The data themselves: what is around them is taken off.
    pub fn root(&self) -> Data<'_> {
        let mut value = &self.value;
        loop {
            let inner = WRAPS.iter().find_map(|wrap| value.get(wrap));
            let Some(inner) = inner.filter(|inner| inner.is_object()) else { break };
            for beside in BESIDE {
                value.get(beside).into_iter().for_each(|value| self.seen.mark_all(value));
            }
            self.seen.mark(inner);
            value = inner;
        }
        Data { document: self, path: String::new(), value }
    }

    /// Whether it is XML, where every leaf is text.
    pub fn is_xml(&self) -> bool {
        self.is_xml
    }

    /// What was not asked for.
    pub fn unread(&self) -> Vec<Unread> {
        self.seen.unread(&self.value)
    }
}

impl<'a> Data<'a> {
    /// Whether it is of XML.
    pub fn is_xml(&self) -> bool {
        self.document.is_xml
    }

    /// A mistake here.
    pub fn error(&self, what: impl Into<String>, remedy: impl Into<String>) -> InstanceError {
        let (file, path) = (self.document.file.clone(), self.path.clone());
        InstanceError { file, path, what: what.into(), remedy: remedy.into() }
    }

    /// Names and values; `None`: an empty element.
    fn map(&self) -> Result<Option<&'a Map<String, Value>>, InstanceError> {
        match self.value {
            Value::Object(map) => Ok(Some(map)),
            Value::String(text) if self.document.is_xml && text.is_empty() => Ok(None),
            _ => Err(self.error("it is no object", "names and values in {}")),
        }
    }

    fn at(&self, path: String, value: &'a Value) -> Data<'a> {
        self.document.seen.mark(value);
        Data { document: self.document, path, value }
    }

    /// A child, if it is there, with or without a prefix of one of these modules.
    pub fn child(&self, modules: &[&str], name: &str) -> Result<Option<Data<'a>>, InstanceError> {
        let Some(map) = self.map()? else { return Ok(None) };
        let prefixed = |module: &&str| map.get(&format!("{module}:{name}"));
        let value = map.get(name).or_else(|| modules.iter().find_map(prefixed));
        let path = format!("{}/{name}", self.path);
        Ok(value.map(|value| self.at(path, value)))
    }

    /// A child that must be there.
    pub fn needed(&self, modules: &[&str], name: &str) -> Result<Data<'a>, InstanceError> {
        let found = self.child(modules, name)?;
        found.ok_or_else(|| self.error(format!("`{name}` is missing"), format!("add `{name}`")))
    }

    /// The entries of a list that may be missing.
    pub fn list(&self, modules: &[&str], name: &str) -> Result<Vec<Data<'a>>, InstanceError> {
        let Some(list) = self.child(modules, name)? else { return Ok(Vec::new()) };
        let entries = match list.value {
            Value::Array(entries) => entries.as_slice(),
            one if self.document.is_xml => std::slice::from_ref(one),
            _ => return Err(list.error("it is no list", "entries in [], also of a single one")),
        };
        let entries = entries.iter().enumerate();
        Ok(entries.map(|(index, one)| self.at(format!("{}[{index}]", list.path), one)).collect())
    }

    /// This and everything in it changes nothing here.
    pub fn pass_over(&self) {
        self.document.seen.mark_all(self.value);
    }

    /// That each name is one of these, or one of another module.
    pub fn only(&self, module: &str, names: &[&str]) -> Result<(), InstanceError> {
        for key in self.map()?.into_iter().flat_map(Map::keys) {
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

    /// All of it, without the prefix of this module.
    pub fn copied(&self, module: &str) -> Value {
        without_prefix(self.value, &format!("{module}:"))
    }

    fn u64(&self) -> Option<u64> {
        let text = self.value.as_str().filter(|_| self.document.is_xml);
        text.map_or_else(|| self.value.as_u64(), |text| text.parse().ok())
    }

    /// A whole number with its bounds, both included.
    pub fn number(&self, least: u64, most: u64) -> Result<u64, InstanceError> {
        let remedy = || format!("a whole number from {least} to {most}");
        let number = self.u64();
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
        let text = self.value.as_str().filter(|_| self.document.is_xml);
        let value = text.map_or_else(|| self.value.as_bool(), |text| text.parse().ok());
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

fn without_prefix(value: &Value, prefix: &str) -> Value {
    match value {
        Value::Array(list) => list.iter().map(|one| without_prefix(one, prefix)).collect(),
        Value::Object(map) => {
            let members = map.iter().map(|(name, one)| {
                let name = name.strip_prefix(prefix).unwrap_or(name);
                (name.to_owned(), without_prefix(one, prefix))
            });
            Value::Object(members.collect())
        }
        other => other.clone(),
    }
}
