// SPDX-License-Identifier: Apache-2.0 OR MIT
//! YAML text as a tree in which every key and value knows where it stands. Of YAML only what a
//! scenario needs is let in: mappings with words as keys, lists, scalars, and aliases of what has
//! an anchor, up to so many values that no short text unfolds into a large one; `<<` merges groups.
//! Tags, several documents, deep nesting and a key given twice are refused. JSON is a subset of
//! this.

use std::borrow::Cow;
use std::collections::HashMap;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span as ParserSpan};

use super::error::{Mark, Problem};
use super::include;

/// Longest text that is read.
pub(super) const MAX_BYTES: usize = 1 << 20;
/// Deepest nesting that is read; a scenario needs six levels.
const MAX_DEPTH: usize = 32;

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
    /// What a change took out of its group: a `null`, whose key is read as if it were not there,
    /// and told when it is none of the group.
    Absent,
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
            Value::Absent => "nothing",
        }
    }

    /// Whether a change took it out.
    pub fn is_absent(&self) -> bool {
        matches!(self.value, Value::Absent)
    }

    /// How much memory it takes, about. **Units**: bytes.
    pub fn size(&self) -> usize {
        size_of::<Node>()
            + match &self.value {
                Value::Scalar { text, .. } => text.len(),
                Value::Absent => 0,
                Value::List(nodes) => nodes.iter().map(Node::size).sum(),
                Value::Map(entries) => {
                    let key = |key: &Key| size_of::<Key>() + key.text.len();
                    entries.iter().map(|(own, node)| key(own) + node.size()).sum()
                }
            }
    }

    /// How many lists and groups are in each other in it.
    fn depth(&self) -> usize {
        let deepest = match &self.value {
            Value::Scalar { .. } | Value::Absent => return 0,
            Value::List(nodes) => nodes.iter().map(Node::depth).max(),
            Value::Map(entries) => entries.iter().map(|(_, node)| node.depth()).max(),
        };
        1 + deepest.unwrap_or(0)
    }

    /// Whether it is a key without a value.
    pub fn is_null(&self) -> bool {
        let Value::Scalar { text, plain: true } = &self.value else {
            return false;
        };
        matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL")
    }
}

/// Reads a text, with what is bundled in it.
///
/// **Errors**: the first thing that is no YAML, or is YAML that a file has no use for; of keys
/// given twice, all; a file that is included is not in the text.
pub(super) fn parse(text: &str) -> Result<Node, Vec<Problem>> {
    if text.len() > MAX_BYTES {
        let message = format!("{} bytes are more than the {MAX_BYTES} of a file", text.len());
        return Err(vec![Problem::new(START, message, "")]);
    }
    match include::parts(text).as_slice() {
        [include::Part { name: None, text, .. }] => {
            let root = read(text, 0)?;
            match include::alone(&root) {
                Some(problem) => Err(vec![problem]),
                None => Ok(root),
            }
        }
        parts => {
            let roots = parts.iter().map(|part| read(part.text, part.line));
            include::together(roots.collect::<Result<_, _>>()?)
        }
    }
}

/// Reads the text of one file, which begins behind so many lines.
pub(super) fn read(text: &str, line: usize) -> Result<Node, Vec<Problem>> {
    let mut builder = Builder { line, ..Builder::default() };
    let moved = |mut problem: Problem| {
        // What is wrong at the end is behind the last line.
        let (mark, last) = (&mut problem.mark, text.lines().count().max(1));
        if mark.line > last {
            let end = text.lines().last().map_or(0, |text| text.chars().count());
            *mark = Mark { line: last, column: end + 1, width: 1 };
        }
        mark.line += line;
        vec![problem]
    };
    for event in Parser::new_from_str(text) {
        match event {
            Ok((event, span)) => builder.on(event, span).map_err(|problem| vec![problem])?,
            Err(error) => return Err(moved(syntax(text, error.info(), error.marker()))),
        }
    }
    if !builder.duplicates.is_empty() {
        return Err(builder.duplicates);
    }
    let nothing = || moved(Problem::new(START, "there is nothing in it".into(), HINT_EMPTY));
    builder.root.filter(|root| !root.is_null()).ok_or_else(nothing)
}

const START: Mark = Mark { line: 1, column: 1, width: 1 };
const HINT_EMPTY: &str = "a file starts with `timewire: 1` and `name: ...`";
/// Most memory that aliases stand for: about what a text of the longest length takes without them.
const MAX_UNFOLDED: usize = 16 << 20;

/// A mapping or a list whose end has not come yet, with its anchor.
struct Open {
    anchor: usize,
    part: Part,
}

enum Part {
    List(Mark, Vec<Node>),
    Map { mark: Mark, entries: Vec<(Key, Node)>, seen: HashMap<String, usize>, key: Option<Key> },
}

#[derive(Default)]
struct Builder {
    open: Vec<Open>,
    root: Option<Node>,
    duplicates: Vec<Problem>,
    /// What has an anchor, by its number.
    anchored: HashMap<usize, Node>,
    /// Bytes that aliases stand for so far.
    unfolded: usize,
    /// Lines before the text.
    line: usize,
}

impl Builder {
    fn on(&mut self, event: Event<'_>, span: ParserSpan) -> Result<(), Problem> {
        let mut mark = mark_of(span);
        mark.line += self.line;
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                refuse_tag(mark, tag.is_some())?;
                self.scalar(mark, text, style == ScalarStyle::Plain, anchor)?;
            }
            Event::SequenceStart(anchor, tag) => {
                refuse_tag(mark, tag.is_some())?;
                let part = Part::List(bracket(mark), Vec::new());
                self.start(Open { anchor, part }, mark)?;
            }
            Event::MappingStart(anchor, tag) => {
                refuse_tag(mark, tag.is_some())?;
                let (entries, seen) = (Vec::new(), HashMap::new());
                let part = Part::Map { mark: bracket(mark), entries, seen, key: None };
                self.start(Open { anchor, part }, mark)?;
            }
            Event::SequenceEnd | Event::MappingEnd => self.end()?,
            Event::Alias(anchor) => self.alias(mark, anchor)?,
            Event::DocumentStart(_) if self.root.is_some() => {
                let message = "a second document starts here".into();
                return Err(Problem::new(
                    mark,
                    message,
                    "a file holds one; `include: FILE` adds another file to it",
                ));
            }
            Event::DocumentStart(_)
            | Event::DocumentEnd
            | Event::StreamStart
            | Event::StreamEnd
            | Event::Nothing => {}
        }
        Ok(())
    }

    /// What has this anchor stands here, too.
    fn alias(&mut self, mark: Mark, anchor: usize) -> Result<(), Problem> {
        self.refuse_as_key(mark)?;
        let Some(node) = self.anchored.get(&anchor).cloned() else {
            let message = "an alias of the group that it stands in".to_owned();
            return Err(Problem::new(mark, message, "write out what is meant"));
        };
        self.unfolded = self.unfolded.saturating_add(node.size());
        if self.open.len() + node.depth() > MAX_DEPTH {
            return Err(too_deep(mark));
        }
        if self.unfolded > MAX_UNFOLDED {
            let message = format!("aliases stand for more than {MAX_UNFOLDED} bytes");
            return Err(Problem::new(mark, message, "write out what is used once"));
        }
        self.add(node);
        Ok(())
    }

    fn refuse_as_key(&self, mark: Mark) -> Result<(), Problem> {
        if let Some(Open { part: Part::Map { key: None, .. }, .. }) = self.open.last() {
            let message = "a key must be a single word, not a list or a group".into();
            return Err(Problem::new(mark, message, ""));
        }
        Ok(())
    }

    fn scalar(
        &mut self,
        mark: Mark,
        text: Cow<'_, str>,
        plain: bool,
        anchor: usize,
    ) -> Result<(), Problem> {
        if let Some(Open { part: Part::Map { seen, key: key @ None, .. }, .. }) =
            self.open.last_mut()
        {
            if anchor != 0 {
                let message = "an anchor (`&name`) is of a value, and not of a key".to_owned();
                return Err(Problem::new(mark, message, "write it behind the colon"));
            }
            if let Some(line) = seen.insert(text.to_string(), mark.line) {
                let message = format!("the key `{text}` is given twice, first in line {line}");
                self.duplicates.push(Problem::new(mark, message, "remove one of them"));
            }
            *key = Some(Key { text: text.into_owned(), mark });
            return Ok(());
        }
        let node = Node { mark, value: Value::Scalar { text: text.into_owned(), plain } };
        self.anchor(anchor, &node);
        self.add(node);
        Ok(())
    }

    fn anchor(&mut self, anchor: usize, node: &Node) {
        if anchor != 0 {
            self.anchored.insert(anchor, node.clone());
        }
    }

    fn start(&mut self, opened: Open, mark: Mark) -> Result<(), Problem> {
        self.refuse_as_key(mark)?;
        if self.open.len() >= MAX_DEPTH {
            return Err(too_deep(mark));
        }
        self.open.push(opened);
        Ok(())
    }

    fn end(&mut self) -> Result<(), Problem> {
        let Some(Open { anchor, part }) = self.open.pop() else { return Ok(()) };
        let node = match part {
            Part::List(mark, nodes) => Node { mark, value: Value::List(nodes) },
            Part::Map { mark, entries, .. } => {
                let mark = entries.first().map_or(mark, |(key, _)| first_mark(mark, key.mark));
                Node { mark, value: Value::Map(with_merged(entries)?) }
            }
        };
        self.anchor(anchor, &node);
        self.add(node);
        Ok(())
    }

    fn add(&mut self, node: Node) {
        match self.open.last_mut() {
            None => self.root = Some(node),
            Some(Open { part: Part::List(_, nodes), .. }) => nodes.push(node),
            Some(Open { part: Part::Map { entries, key, .. }, .. }) => {
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

fn too_deep(mark: Mark) -> Problem {
    let message = format!("nested deeper than {MAX_DEPTH} levels");
    Problem::new(mark, message, "a file needs six")
}

/// The keys of a group, with those of the groups that `<<` names, as far as it has none of its own.
fn with_merged(mut entries: Vec<(Key, Node)>) -> Result<Vec<(Key, Node)>, Problem> {
    let Some(place) = entries.iter().position(|(key, _)| key.text == "<<") else {
        return Ok(entries);
    };
    let (key, merged) = entries.remove(place);
    let groups = match merged.value {
        Value::List(nodes) => nodes,
        value => vec![Node { mark: merged.mark, value }],
    };
    for group in groups {
        let Value::Map(more) = group.value else {
            let message = format!("`<<` merges a group of keys, and here is {}", group.what());
            return Err(Problem::new(
                key.mark,
                message,
                "name a group with an anchor: `<<: *name`",
            ));
        };
        for (key, node) in more {
            if !entries.iter().any(|(own, _)| own.text == key.text) {
                entries.push((key, node));
            }
        }
    }
    Ok(entries)
}

fn refuse_tag(mark: Mark, tagged: bool) -> Result<(), Problem> {
    if tagged {
        let message = "a tag (`!name`) is not used in these files".into();
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The tree in few signs.
    fn told(node: &Node) -> String {
        match &node.value {
            Value::Scalar { text, .. } => text.clone(),
            Value::Absent => "-".to_owned(),
            Value::List(nodes) => {
                format!("[{}]", nodes.iter().map(told).collect::<Vec<_>>().join(" "))
            }
            Value::Map(entries) => {
                let entry = |(key, node): &(Key, Node)| format!("{}:{}", key.text, told(node));
                format!("{{{}}}", entries.iter().map(entry).collect::<Vec<_>>().join(" "))
            }
        }
    }

    #[test]
    fn t0_aliases_stand_for_what_has_the_anchor_and_groups_are_merged() {
        for (text, tree) in [
            ("a: &x 5us\nb: *x", "{a:5us b:5us}"),
            ("- &x { k: 1, l: [2] }\n- *x", "[{k:1 l:[2]} {k:1 l:[2]}]"),
            ("a: &x { k: 1, l: 2 }\nb: { <<: *x, l: 3 }", "{a:{k:1 l:2} b:{l:3 k:1}}"),
            ("a: &x {k: 1}\nb: &y {m: 2}\nc: {<<: [*x, *y]}", "{a:{k:1} b:{m:2} c:{k:1 m:2}}"),
        ] {
            assert_eq!(told(&parse(text).unwrap()), tree, "{text}");
        }
        let wrong = |text: &str| parse(text).unwrap_err()[0].message.clone();
        assert_eq!(wrong("a: &x [*x]"), "an alias of the group that it stands in");
        assert_eq!(wrong("&x a: 1"), "an anchor (`&name`) is of a value, and not of a key");
        let merged = "`<<` merges a group of keys, and here is a single value";
        assert_eq!(wrong("a: &x 1\nb: { <<: *x }"), merged);
        assert!(wrong("a: *nobody").starts_with("this is no YAML: "));
    }

    #[test]
    fn t0_a_short_text_does_not_unfold_into_a_large_one() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for i in 1..20 {
            let all = vec![format!("*a{}", i - 1); 10].join(", ");
            text += &format!("a{i}: &a{i} [{all}]\n");
        }
        let message = &parse(&text).unwrap_err()[0].message;
        assert_eq!(message, "aliases stand for more than 16777216 bytes");
        let long = "x".repeat(500_000);
        let text = format!("a: &a {long}\nb: [{}]", vec!["*a"; 9_000].join(", "));
        let message = &parse(&text).unwrap_err()[0].message;
        assert_eq!(message, "aliases stand for more than 16777216 bytes");
        let mut text = "a0: &a0 [x]\n".to_owned();
        for i in 1..40 {
            text += &format!("a{i}: &a{i} [*a{}]\n", i - 1);
        }
        let message = &parse(&text).unwrap_err()[0].message;
        assert_eq!(message, "nested deeper than 32 levels");
    }
}
