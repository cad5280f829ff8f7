// SPDX-License-Identifier: Apache-2.0 OR MIT
//! YAML text as a tree in which every key and value knows where it stands. Of YAML only what a
//! scenario needs is let in: mappings with words as keys, lists and scalars. Anchors, aliases,
//! tags, several documents, deep nesting and a key given twice are refused, so no short text can
//! unfold into a large one. JSON is a subset of this.
//!
//! Not here: what the keys mean (`model.rs`).

use std::borrow::Cow;
use std::collections::HashMap;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span as ParserSpan};

use super::error::Problem;

/// Longest text that is read.
pub(super) const MAX_BYTES: usize = 1 << 20;
/// Deepest nesting that is read; a scenario needs six levels.
const MAX_DEPTH: usize = 32;

/// A place in the text.
///
/// **Units**: lines and columns count from 1, columns and width in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub line: usize,
    pub column: usize,
    pub width: usize,
}

/// A value and its place.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub mark: Mark,
    pub value: Value,
}

#[derive(Clone, Debug)]
pub(super) enum Value {
    Scalar {
        text: String,
        /// Without quotes: it may be a number or a truth value.
        plain: bool,
    },
    List(Vec<Node>),
    Map(Vec<(Key, Node)>),
}

#[derive(Clone, Debug)]
pub(super) struct Key {
    pub text: String,
    pub mark: Mark,
}

impl Node {
    /// What stands here, for messages.
    pub fn what(&self) -> &'static str {
        match &self.value {
            Value::Scalar { .. } if self.is_null() => "nothing",
            Value::Scalar { .. } => "a single value",
            Value::List(_) => "a list",
            Value::Map(_) => "a group of keys",
        }
    }

    /// Whether it is a key without a value.
    pub fn is_null(&self) -> bool {
        let Value::Scalar { text, plain: true } = &self.value else {
            return false;
        };
        matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL")
    }
}

/// Reads a text.
///
/// **Errors**: the first thing that is no YAML, or is YAML that a scenario has no use for; of keys
/// given twice, all.
pub(super) fn parse(text: &str) -> Result<Node, Vec<Problem>> {
    if text.len() > MAX_BYTES {
        let message = format!("{} bytes are more than the {MAX_BYTES} of a scenario", text.len());
        return Err(vec![Problem::new(START, message, "")]);
    }
    let mut builder = Builder::default();
    for event in Parser::new_from_str(text) {
        match event {
            Ok((event, span)) => builder.on(event, span).map_err(|problem| vec![problem])?,
            Err(error) => return Err(vec![syntax(text, error.info(), error.marker())]),
        }
    }
    if !builder.duplicates.is_empty() {
        return Err(builder.duplicates);
    }
    let nothing = || vec![Problem::new(START, "there is nothing in it".into(), HINT_EMPTY)];
    builder.root.filter(|root| !root.is_null()).ok_or_else(nothing)
}

const START: Mark = Mark { line: 1, column: 1, width: 1 };
const HINT_EMPTY: &str = "a file starts with `timewire: 1` and `name: ...`";
const HINT_ALIAS: &str = "write the value out where it is used";

/// A mapping or a list whose end has not come yet.
enum Open {
    List(Mark, Vec<Node>),
    Map { mark: Mark, entries: Vec<(Key, Node)>, seen: HashMap<String, usize>, key: Option<Key> },
}

#[derive(Default)]
struct Builder {
    open: Vec<Open>,
    root: Option<Node>,
    duplicates: Vec<Problem>,
}

impl Builder {
    fn on(&mut self, event: Event<'_>, span: ParserSpan) -> Result<(), Problem> {
        let mark = mark_of(span);
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                refuse_extras(mark, anchor, tag.is_some())?;
                self.scalar(mark, text, style == ScalarStyle::Plain);
            }
            Event::SequenceStart(anchor, tag) => {
                refuse_extras(mark, anchor, tag.is_some())?;
                self.start(Open::List(bracket(mark), Vec::new()), mark)?;
            }
            Event::MappingStart(anchor, tag) => {
                refuse_extras(mark, anchor, tag.is_some())?;
                let (entries, seen) = (Vec::new(), HashMap::new());
                let opened = Open::Map { mark: bracket(mark), entries, seen, key: None };
                self.start(opened, mark)?;
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::Alias(_) => {
                let message = "an alias (`*name`) is not used in scenarios".into();
                return Err(Problem::new(mark, message, HINT_ALIAS));
            }
            Event::DocumentStart(_) if self.root.is_some() => {
                let message = "a second document starts here".into();
                return Err(Problem::new(mark, message, "one file holds one scenario"));
            }
            Event::DocumentStart(_)
            | Event::DocumentEnd
            | Event::StreamStart
            | Event::StreamEnd
            | Event::Nothing => {}
        }
        Ok(())
    }

    fn scalar(&mut self, mark: Mark, text: Cow<'_, str>, plain: bool) {
        if let Some(Open::Map { seen, key: key @ None, .. }) = self.open.last_mut() {
            if let Some(line) = seen.insert(text.to_string(), mark.line) {
                let message = format!("the key `{text}` is given twice, first in line {line}");
                self.duplicates.push(Problem::new(mark, message, "remove one of them"));
            }
            *key = Some(Key { text: text.into_owned(), mark });
            return;
        }
        self.add(Node { mark, value: Value::Scalar { text: text.into_owned(), plain } });
    }

    fn start(&mut self, opened: Open, mark: Mark) -> Result<(), Problem> {
        if let Some(Open::Map { key: None, .. }) = self.open.last() {
            let message = "a key must be a single word, not a list or a group".into();
            return Err(Problem::new(mark, message, ""));
        }
        if self.open.len() >= MAX_DEPTH {
            let message = format!("nested deeper than {MAX_DEPTH} levels");
            return Err(Problem::new(mark, message, "a scenario needs six"));
        }
        self.open.push(opened);
        Ok(())
    }

    fn end(&mut self) {
        match self.open.pop() {
            Some(Open::List(mark, nodes)) => self.add(Node { mark, value: Value::List(nodes) }),
            Some(Open::Map { mark, entries, .. }) => {
                let mark = entries.first().map_or(mark, |(key, _)| first_mark(mark, key.mark));
                self.add(Node { mark, value: Value::Map(entries) });
            }
            None => {}
        }
    }

    fn add(&mut self, node: Node) {
        match self.open.last_mut() {
            None => self.root = Some(node),
            Some(Open::List(_, nodes)) => nodes.push(node),
            Some(Open::Map { entries, key, .. }) => {
                if let Some(key) = key.take() {
                    entries.push((key, node));
                }
            }
        }
    }
}

/// Where a group is pointed at: its brace, or its first key when it has none.
fn first_mark(start: Mark, key: Mark) -> Mark {
    if (start.line, start.column) == (key.line, key.column) { key } else { start }
}

fn bracket(mark: Mark) -> Mark {
    Mark { width: 1, ..mark }
}

fn refuse_extras(mark: Mark, anchor: usize, tagged: bool) -> Result<(), Problem> {
    if anchor != 0 {
        let message = "an anchor (`&name`) is not used in scenarios".into();
        return Err(Problem::new(mark, message, HINT_ALIAS));
    }
    if tagged {
        let message = "a tag (`!name`) is not used in scenarios".into();
        return Err(Problem::new(mark, message, "write the value without it"));
    }
    Ok(())
}

fn mark_of(span: ParserSpan) -> Mark {
    let (start, end) = (span.start, span.end);
    let width = if start.line() == end.line() {
        end.col().saturating_sub(start.col()).max(1)
    } else {
        usize::MAX
    };
    Mark { line: start.line().max(1), column: start.col() + 1, width }
}

fn syntax(text: &str, info: &str, marker: &Marker) -> Problem {
    let line = marker.line().max(1);
    if let Some((line, column)) = tab(text, line) {
        let message = "a tab in the indentation, which YAML does not allow".into();
        return Problem::new(Mark { line, column, width: 1 }, message, "indent with spaces");
    }
    let mark = Mark { line, column: marker.col() + 1, width: 1 };
    Problem::new(mark, format!("this is no YAML: {info}"), HINT_SYNTAX)
}

/// Line and column of the first tab before the first word of a line: of this one, of that before or
/// of that behind it. The parser names one of them, not always the one with the tab.
fn tab(text: &str, line: usize) -> Option<(usize, usize)> {
    let around = text.lines().enumerate().skip(line.saturating_sub(2)).take(3);
    around.into_iter().find_map(|(index, text)| {
        let blank = text.len() - text.trim_start().len();
        let column = text[..blank].chars().position(|c| c == '\t')?;
        (blank < text.len()).then_some((index + 1, column + 1))
    })
}

const HINT_SYNTAX: &str = "check the indentation (spaces, no tabs), quotes, brackets and colons \
                           here and in the lines before";
