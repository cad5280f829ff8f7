// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Groups of keys, choices of words and groups that differ by kind. A type is written once, with
//! the documentation of its fields and their defaults; its reader, writer and JSON Schema are made
//! here.
//!
//! Not here: the types themselves (`model.rs`).

use serde_json::{Map, Value as Json, json};

use super::item::{Item, Reader};
use super::suggest::{did_you_mean, listed, nearest};
use super::tree::{self, Key, Mark, Node, Value};

/// A group of keys.
pub trait Record: Sized {
    /// What the group is.
    const DOC: &'static str;
    /// The keys, in the order in which people write them.
    fn fields() -> Vec<Field>;
    /// Takes the values out of a group; the keys are known to be right.
    fn take(group: &mut Group<'_>) -> Option<Self>;
    /// Keys and values; without a value, the key is left out.
    fn put(&self) -> Vec<(&'static str, Option<Json>)>;
}

/// One key of a group. It is described when its schema is asked for: a file of many groups is read
/// without that.
pub struct Field {
    key: &'static str,
    doc: &'static str,
    default: Option<&'static str>,
    describe: fn(&Field) -> Described,
}

/// What a schema says of a key.
struct Described {
    needed: bool,
    schema: Json,
}

/// A group that is being read.
pub struct Group<'a> {
    entries: &'a [(Key, Node)],
    mark: Mark,
    /// Missing keys that were reported as mistyped ones already.
    mistyped: Vec<&'static str>,
    reader: &'a mut Reader,
}

impl Field {
    /// Describes a key; `default` is the text of its default.
    pub fn of<T: Item>(
        key: &'static str,
        doc: &'static str,
        default: Option<&'static str>,
    ) -> Field {
        Field { key, doc, default, describe: described::<T> }
    }
}

fn described<T: Item>(field: &Field) -> Described {
    let mut schema = T::schema();
    schema["description"] = json!(field.doc.trim());
    if let Some(value) = field.default.and_then(|text| default_value::<T>(text).emit()) {
        schema["default"] = value;
    }
    Described { needed: field.default.is_none() && T::absent().is_none(), schema }
}

/// The default is text as in the file, so it is read and checked the same way.
fn default_value<T: Item>(text: &str) -> T {
    let node = tree::parse(text).ok();
    node.and_then(|node| T::read(&node, &mut Reader::new(node.mark)))
        .expect("invariant: the default of a key is a good value of it")
}

impl Group<'_> {
    /// The value of a key, its default, or an error that it is missing.
    pub fn take<T: Item>(
        &mut self,
        key: &'static str,
        doc: &str,
        default: Option<&str>,
    ) -> Option<T> {
        if let Some((_, node)) = self.entries.iter().find(|(given, _)| given.text == key) {
            return self.reader.read_key(key, node);
        }
        if let Some(value) = default.map(default_value).or_else(T::absent) {
            return Some(value);
        }
        if !self.mistyped.contains(&key) {
            let hint = format!("{key}: {}", doc.trim());
            self.reader.fail(self.mark, format!("the key `{key}` is missing"), &hint);
        }
        None
    }
}

/// Reads a group; `tag` is a key that was read before.
pub fn read<R: Record>(node: &Node, reader: &mut Reader, tag: Option<&'static str>) -> Option<R> {
    let fields = R::fields();
    let known: Vec<&'static str> = tag.into_iter().chain(fields.iter().map(|f| f.key)).collect();
    let entries = entries_of(node, reader, &known)?;
    let is_given = |key: &&&str| entries.iter().any(|(given, _)| given.text == **key);
    let free: Vec<&'static str> = known.iter().filter(|key| !is_given(key)).copied().collect();
    let hint = format!("the keys here are {}", listed(known.iter().copied()));
    let before = reader.problems.len();
    let mut mistyped = Vec::new();
    for (key, _) in entries.iter().filter(|(key, _)| !known.contains(&key.text.as_str())) {
        let meant = did_you_mean(&key.text, free.iter().copied());
        mistyped.extend(nearest(&key.text, free.iter().copied()));
        reader.fail(key.mark, format!("unknown key `{}`{meant}", key.text), &hint);
    }
    let record = R::take(&mut Group { entries, mark: node.mark, mistyped, reader });
    record.filter(|_| reader.problems.len() == before)
}

/// Most keys of one group that are looked at.
const MAX_KEYS: usize = 256;

fn entries_of<'n>(
    node: &'n Node,
    reader: &mut Reader,
    known: &[&str],
) -> Option<&'n [(Key, Node)]> {
    if let Value::Map(entries) = &node.value {
        if entries.len() <= MAX_KEYS {
            return Some(entries);
        }
        reader.fail(node.mark, format!("{} keys are more than {MAX_KEYS}", entries.len()), "");
        return None;
    }
    let hint = format!("write `key: value` with the keys {}", listed(known.iter().copied()));
    reader.fail(node.mark, format!("here is {}, where a group of keys goes", node.what()), &hint);
    None
}

/// Writes a group.
pub fn emit<R: Record>(record: &R) -> Json {
    let values = record.put().into_iter();
    Json::Object(values.filter_map(|(key, value)| Some((key.to_owned(), value?))).collect())
}

/// Describes a group.
pub fn schema<R: Record>() -> Json {
    let mut needed = Vec::new();
    let mut properties = Map::new();
    for field in R::fields() {
        let described = (field.describe)(&field);
        if described.needed {
            needed.push(field.key);
        }
        properties.insert(field.key.to_owned(), described.schema);
    }
    json!({
        "type": "object",
        "description": R::DOC.trim(),
        "properties": properties,
        "required": needed,
        "additionalProperties": false,
    })
}

/// Describes one kind of a group that differs by kind.
pub fn schema_of_kind<R: Record>(tag: &str, kind: &str, doc: &str) -> Json {
    let mut schema = schema::<R>();
    schema["description"] = json!(doc.trim());
    schema["properties"][tag] = json!({"const": kind});
    if let Some(needed) = schema["required"].as_array_mut() {
        needed.insert(0, json!(tag));
    }
    schema
}

/// Reads the key that says which kind of group this is.
pub fn read_kind<'n>(
    node: &'n Node,
    reader: &mut Reader,
    tag: &'static str,
    kinds: &[&str],
) -> Option<&'n str> {
    let entries = entries_of(node, reader, &[tag])?;
    let Some((_, kind)) = entries.iter().find(|(key, _)| key.text == tag) else {
        let hint = format!("{tag}: one of {}", listed(kinds.iter().copied()));
        reader.fail(node.mark, format!("the key `{tag}` is missing"), &hint);
        return None;
    };
    read_word(kind, reader, kinds)
}

/// Reads one of some words.
pub fn read_word<'n>(node: &'n Node, reader: &mut Reader, words: &[&str]) -> Option<&'n str> {
    let one_of = if words.len() > 1 { "one of " } else { "" };
    let wanted = format!("{one_of}{}", listed(words.iter().copied()));
    let text = reader.scalar(node, &wanted)?;
    if words.contains(&text) {
        return Some(text);
    }
    let meant = did_you_mean(text, words.iter().copied());
    reader.fail(
        node.mark,
        format!("`{text}` is not known here{meant}"),
        &format!("write {wanted}"),
    );
    None
}

/// Defines a struct that is a group of keys in the file: `field: Type = "default",`.
macro_rules! record {
    (
        $(#[doc = $doc:literal])+
        $vis:vis struct $name:ident {
            $($(#[doc = $field_doc:literal])+ $field:ident: $type:ty $(= $default:literal)?,)+
        }
    ) => {
        $(#[doc = $doc])+
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        $vis struct $name {
            $($(#[doc = $field_doc])+ pub $field: $type,)+
        }
        impl $crate::scenario::record::Record for $name {
            const DOC: &'static str = concat!($($doc,)+);
            fn fields() -> Vec<$crate::scenario::record::Field> {
                vec![$($crate::scenario::record::Field::of::<$type>(
                    stringify!($field),
                    concat!($($field_doc,)+),
                    [$($default)?].first().copied(),
                ),)+]
            }
            fn take(group: &mut $crate::scenario::record::Group<'_>) -> Option<Self> {
                // All keys are read before one that failed ends it: each has its own errors.
                $(let $field = group.take(
                    stringify!($field),
                    concat!($($field_doc,)+),
                    [$($default)?].first().copied(),
                );)+
                Some($name { $($field: $field?,)+ })
            }
            fn put(&self) -> Vec<(&'static str, Option<serde_json::Value>)> {
                vec![$((stringify!($field), $crate::scenario::item::Item::emit(&self.$field)),)+]
            }
        }
        impl $crate::scenario::item::Item for $name {
            fn read(
                node: &$crate::scenario::tree::Node,
                reader: &mut $crate::scenario::item::Reader,
            ) -> Option<Self> {
                $crate::scenario::record::read(node, reader, None)
            }
            fn emit(&self) -> Option<serde_json::Value> {
                Some($crate::scenario::record::emit(self))
            }
            fn schema() -> serde_json::Value {
                $crate::scenario::record::schema::<Self>()
            }
        }
    };
}
pub(super) use record;

/// Defines an enum that is one of some words in the file: `Variant = "word",`.
macro_rules! choice {
    (
        $(#[doc = $doc:literal])+
        $vis:vis enum $name:ident {
            $($(#[doc = $word_doc:literal])+ $variant:ident = $word:literal,)+
        }
    ) => {
        $(#[doc = $doc])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis enum $name {
            $($(#[doc = $word_doc])+ $variant,)+
        }
        impl $name {
            /// The word in the file.
            pub fn word(self) -> &'static str {
                match self { $($name::$variant => $word,)+ }
            }
        }
        impl $crate::scenario::item::Item for $name {
            fn read(
                node: &$crate::scenario::tree::Node,
                reader: &mut $crate::scenario::item::Reader,
            ) -> Option<Self> {
                match $crate::scenario::record::read_word(node, reader, &[$($word),+])? {
                    $($word => Some($name::$variant),)+
                    _ => None,
                }
            }
            fn emit(&self) -> Option<serde_json::Value> {
                Some(serde_json::json!(self.word()))
            }
            fn schema() -> serde_json::Value {
                serde_json::json!({
                    "oneOf": [$({
                        "const": $word,
                        "description": concat!($($word_doc,)+).trim(),
                    },)+]
                })
            }
        }
    };
}
pub(super) use choice;

/// Defines an enum of groups that differ by a key: `Variant(Group) = "word",`.
macro_rules! kinds {
    (
        $(#[doc = $doc:literal])+
        $vis:vis enum $name:ident by $tag:literal {
            $($(#[doc = $word_doc:literal])+ $variant:ident($type:ty) = $word:literal,)+
        }
    ) => {
        $(#[doc = $doc])+
        #[derive(Clone, Debug, PartialEq, Eq)]
        $vis enum $name {
            $($(#[doc = $word_doc])+ $variant($type),)+
        }
        impl $crate::scenario::item::Item for $name {
            fn read(
                node: &$crate::scenario::tree::Node,
                reader: &mut $crate::scenario::item::Reader,
            ) -> Option<Self> {
                use $crate::scenario::record::{read, read_kind};
                match read_kind(node, reader, $tag, &[$($word),+])? {
                    $($word => read(node, reader, Some($tag)).map($name::$variant),)+
                    _ => None,
                }
            }
            fn emit(&self) -> Option<serde_json::Value> {
                let (mut group, kind) = match self {
                    $($name::$variant(group) => ($crate::scenario::record::emit(group), $word),)+
                };
                group[$tag] = serde_json::json!(kind);
                Some(group)
            }
            fn schema() -> serde_json::Value {
                use $crate::scenario::record::schema_of_kind;
                serde_json::json!({
                    "oneOf": [
                        $(schema_of_kind::<$type>($tag, $word, concat!($($word_doc,)+)),)+
                    ]
                })
            }
        }
    };
}
pub(super) use kinds;
