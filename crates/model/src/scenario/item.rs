// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How one thing of a scenario is read from the tree, written again and described in the JSON
//! Schema. The three stand side by side for each type, so they cannot drift apart.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Value as Json, json};
use timewire_base::{
    BitsPerSecond, Port, Priority, QuantityError, Span, StationName, parse_rate, parse_span,
};

use super::error::{Mark, Problem};
use super::record::{Word, read_word};
use super::suggest::{did_you_mean, listed};
use super::tree::{Node, Value};

/// One thing of a scenario.
pub trait Item: Sized {
    /// Reads it; what is wrong goes to the reader, and then there is no value.
    fn read(node: &Node, reader: &mut Reader) -> Option<Self>;

    /// The value when the key is absent and has no default; `None` when the key is needed.
    fn absent() -> Option<Self> {
        None
    }

    /// As [`Item::read`] takes it; `None` leaves the key out.
    fn emit(&self) -> Option<Json>;

    /// JSON Schema of what [`Item::read`] takes.
    fn schema() -> Json;
}

/// Where the reading is, what stands where, and what was wrong so far.
#[derive(Debug)]
pub struct Reader {
    path: String,
    places: BTreeMap<String, Mark>,
    pub(super) problems: Vec<Problem>,
}

impl Reader {
    pub(super) fn new(root: Mark) -> Reader {
        let places = BTreeMap::from([(String::new(), root)]);
        Reader { path: String::new(), places, problems: Vec::new() }
    }

    /// Something is wrong at this place, with the key that is being read.
    pub(super) fn fail(&mut self, mark: Mark, message: String, hint: &str) {
        let key = self.path.clone();
        self.problems.push(Problem { mark, key, message, hint: hint.to_owned() });
    }

    /// Refuses a name that is not among the known ones; whether it is known.
    pub(super) fn known_name<'a>(
        &mut self,
        key: &str,
        what: &str,
        name: &str,
        known: impl Iterator<Item = &'a str> + Clone,
    ) -> bool {
        if known.clone().any(|other| other == name) {
            return true;
        }
        let meant = did_you_mean(name, known.clone());
        let hint = format!("the {what}s are: {}", listed(known));
        self.fail_at(key, format!("there is no {what} `{name}`{meant}"), &hint);
        false
    }

    /// Something is wrong with the value of a key that was read before. A key that is absent is
    /// pointed at where the group stands that it could be in.
    pub(super) fn fail_at(&mut self, key: &str, message: String, hint: &str) {
        let mark = self.place(key);
        let (key, hint) = (key.to_owned(), hint.to_owned());
        self.problems.push(Problem { mark, key, message, hint });
    }

    /// The key being read.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    fn place(&self, key: &str) -> Mark {
        let mut key = key;
        loop {
            if let Some(mark) = self.places.get(key) {
                return *mark;
            }
            key = &key[..key.rfind(['.', '[']).unwrap_or(0)];
        }
    }

    /// Reads a value that stands under a key of the group being read.
    pub(super) fn read_key<T: Item>(&mut self, key: &str, node: &Node) -> Option<T> {
        let dot = if self.path.is_empty() { "" } else { "." };
        self.read_below(format_args!("{dot}{key}"), node)
    }

    fn read_below<T: Item>(&mut self, step: fmt::Arguments<'_>, node: &Node) -> Option<T> {
        let before = self.path.len();
        let value = if self.enter(step, node) { T::read(node, self) } else { None };
        self.path.truncate(before);
        value
    }

    /// Goes on to a value; whether there is one.
    fn enter(&mut self, step: fmt::Arguments<'_>, node: &Node) -> bool {
        self.path += &step.to_string();
        self.places.insert(self.path.clone(), node.mark);
        let is_null = node.is_null();
        if is_null {
            self.fail(node.mark, "it has no value".into(), "write a value, or remove the key");
        }
        !is_null
    }

    /// Reads the word that says which kind a group is.
    pub(super) fn read_tag(&mut self, tag: &str, node: &Node, kinds: &[Word]) -> Option<usize> {
        let before = self.path.len();
        let dot = if self.path.is_empty() { "" } else { "." };
        let is_there = self.enter(format_args!("{dot}{tag}"), node);
        let kind = if is_there { read_word(node, self, kinds) } else { None };
        self.path.truncate(before);
        kind
    }

    /// The entries of a list.
    fn list<'n>(&mut self, node: &'n Node) -> Option<&'n [Node]> {
        let Value::List(nodes) = &node.value else {
            let message = format!("here is {}, where a list goes", node.what());
            let hint = "write `[a, b]`, or each entry in a line of its own after `- `";
            self.fail(node.mark, message, hint);
            return None;
        };
        if nodes.len() > MAX_LIST {
            let message = format!("{} entries are more than {MAX_LIST}", nodes.len());
            self.fail(node.mark, message, "");
            return None;
        }
        Some(nodes)
    }

    /// The text of a single value.
    pub(super) fn scalar<'n>(&mut self, node: &'n Node, wanted: &str) -> Option<&'n str> {
        match &node.value {
            Value::Scalar { text, .. } if text.len() <= MAX_TEXT => Some(text),
            Value::Scalar { text, .. } => {
                let message = format!("{} bytes are too long for {wanted}", text.len());
                self.fail(node.mark, message, "");
                None
            }
            Value::List(_) | Value::Map(_) | Value::Absent => {
                self.fail(node.mark, format!("here is {}, where {wanted} goes", node.what()), "");
                None
            }
        }
    }

    /// A value checked by a function of text.
    pub(super) fn checked<T, E: std::fmt::Display>(
        &mut self,
        node: &Node,
        wanted: &str,
        hint: &str,
        check: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        let text = self.scalar(node, wanted)?;
        match check(text) {
            Ok(value) => Some(value),
            Err(error) => {
                self.fail(node.mark, error.to_string(), hint);
                None
            }
        }
    }

    /// A whole number, written without quotes.
    pub(super) fn integer(&mut self, node: &Node, wanted: &str) -> Option<u64> {
        let text = self.scalar(node, wanted)?;
        let is_digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        match (&node.value, text.parse::<u64>()) {
            (Value::Scalar { plain: true, .. }, Ok(number)) if is_digits => return Some(number),
            (Value::Scalar { plain: false, .. }, _) if is_digits => {
                let message = format!("\"{text}\" is text, not {wanted}");
                self.fail(node.mark, message, &format!("write {text} without quotes"));
            }
            _ if is_digits => self.fail(node.mark, format!("{text} is too large for {wanted}"), ""),
            _ => self.fail(node.mark, format!("`{text}` is not {wanted}"), ""),
        }
        None
    }

    /// A whole number from `min` to `max`.
    pub(super) fn integer_within(&mut self, node: &Node, min: u64, max: u64) -> Option<u64> {
        let wanted = format!("a whole number, {min} to {max}");
        let number = self.integer(node, &wanted)?;
        if !(min..=max).contains(&number) {
            self.fail(node.mark, format!("{number} is not {wanted}"), "");
            return None;
        }
        Some(number)
    }
}

/// Longest single value, bytes.
const MAX_TEXT: usize = 4096;
/// Longest time; sums of a few of them, and today, still fit an instant.
const LONGEST_TIME: Span = Span::from_secs(100 * 366 * 86_400);
/// Longest list.
const MAX_LIST: usize = 1024;

/// A key that may be left out.
impl<T: Item> Item for Option<T> {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        T::read(node, reader).map(Some)
    }
    fn absent() -> Option<Self> {
        Some(None)
    }
    fn emit(&self) -> Option<Json> {
        self.as_ref()?.emit()
    }
    fn schema() -> Json {
        T::schema()
    }
}

/// A list.
impl<T: Item> Item for Vec<T> {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        let nodes = reader.list(node)?;
        let mut items = Vec::with_capacity(nodes.len());
        // All entries are read before one that failed ends it: each has its own errors to report.
        for (i, node) in nodes.iter().enumerate() {
            items.extend(reader.read_below::<T>(format_args!("[{i}]"), node));
        }
        (items.len() == nodes.len()).then_some(items)
    }
    fn emit(&self) -> Option<Json> {
        let mut items = Vec::with_capacity(self.len());
        for item in self {
            items.extend(item.emit());
        }
        Some(Json::Array(items))
    }
    fn schema() -> Json {
        schema_of_list(T::schema())
    }
}

fn schema_of_list(items: Json) -> Json {
    json!({"type": "array", "items": items, "maxItems": MAX_LIST})
}

impl Item for bool {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        let text = reader.scalar(node, "`true` or `false`")?;
        match (&node.value, text) {
            (Value::Scalar { plain: true, .. }, "true") => Some(true),
            (Value::Scalar { plain: true, .. }, "false") => Some(false),
            _ => {
                let message = format!("`{text}` is neither `true` nor `false`");
                reader.fail(node.mark, message, "write `true` or `false`, without quotes");
                None
            }
        }
    }
    fn emit(&self) -> Option<Json> {
        Some(json!(self))
    }
    fn schema() -> Json {
        json!({"type": "boolean"})
    }
}

/// What to write, after a quantity that could not be read.
fn quantity_hint(error: &QuantityError) -> &'static str {
    match error {
        QuantityError::NoUnit { .. } => "write the unit with the number",
        _ => "",
    }
}

fn quantity<T>(
    node: &Node,
    reader: &mut Reader,
    wanted: &str,
    parse: fn(&str) -> Result<T, QuantityError>,
) -> Option<T> {
    match parse(reader.scalar(node, wanted)?) {
        Ok(value) => Some(value),
        Err(error) => {
            reader.fail(node.mark, error.to_string(), quantity_hint(&error));
            None
        }
    }
}

/// Times of a scenario are never negative; whether zero makes sense depends on the key.
impl Item for Span {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        let span = quantity(node, reader, "a time such as 125us", parse_span)?;
        if span.is_negative() {
            reader.fail(node.mark, format!("{span} is negative"), "write a time of zero or more");
            return None;
        }
        if span > LONGEST_TIME {
            reader.fail(node.mark, format!("{span} is longer than a hundred years"), "");
            return None;
        }
        Some(span)
    }
    fn emit(&self) -> Option<Json> {
        Some(json!(self.to_string()))
    }
    fn schema() -> Json {
        json!({"type": "string", "pattern": "^[0-9][0-9_]*(\\.[0-9]+)? *(ns|us|µs|ms|s)$"})
    }
}

impl Item for BitsPerSecond {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        quantity(node, reader, "a rate such as 100Mbit", parse_rate)
    }
    fn emit(&self) -> Option<Json> {
        Some(json!(self.to_string()))
    }
    fn schema() -> Json {
        json!({"type": "string", "pattern": "^[0-9][0-9_]*(\\.[0-9]+)? *(bit|kbit|Mbit|Gbit)$"})
    }
}

impl Item for StationName {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        reader.checked(node, "the name of a station", "", StationName::new)
    }
    fn emit(&self) -> Option<Json> {
        Some(json!(self.as_str()))
    }
    fn schema() -> Json {
        json!({"type": "string", "pattern": "^[a-z][a-z0-9-]{0,23}$"})
    }
}

macro_rules! number_item {
    ($name:ident, $wanted:literal, $max:expr) => {
        impl Item for $name {
            fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
                let number = reader.integer(node, $wanted)?;
                match $name::new(number) {
                    Ok(value) => Some(value),
                    Err(error) => {
                        reader.fail(node.mark, error.to_string(), "");
                        None
                    }
                }
            }
            fn emit(&self) -> Option<Json> {
                Some(json!(self.get()))
            }
            fn schema() -> Json {
                json!({"type": "integer", "minimum": 1, "maximum": $max})
            }
        }
    };
}
number_item!(Port, "a port, 1 to 65535", u16::MAX);
number_item!(Priority, "a priority, 1 to 32", Priority::MAX);
