// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Groups of keys, choices of words and groups that differ by kind. A type is written once, with
//! the documentation of its fields and their defaults; its reader, writer and JSON Schema are made
//! here.

use std::slice;

use serde_json::{Map, Value as Json, json};

use super::error::Mark;
use super::item::{Item, Reader};
use super::suggest::{did_you_mean, listed, nearest};
use super::tree::{self, Key, Node, Value};

/// A group of keys.
pub trait Record: Sized {
    /// What the group is.
    const DOC: &'static str;
    /// The key that a value or a list in place of the group stands for.
    const PLAIN: Option<&'static str>;
    /// The keys, in the order in which people write them.
    const FIELDS: &'static [Field];
    /// Keys that differ by kind, and stand among those of the group.
    const FLAT: Option<Flat>;
    /// Takes the values out of a group, in the order of the keys, which are known to be right.
    fn take(group: &mut Group<'_>) -> Option<Self>;
    /// The values in the order of the keys; without a value, the key is left out.
    fn put(&self) -> Vec<Option<Json>>;
    /// The kind, and the values of the keys that differ by it.
    fn put_flat(&self) -> Option<(usize, Vec<Option<Json>>)>;
}

/// Groups that differ by a key.
pub struct Flat {
    /// The key that says which kind it is.
    pub tag: &'static str,
    /// The kinds. Where the key is not written, it is the first.
    pub kinds: &'static [Word],
    /// Of each kind, its keys.
    pub fields: &'static [&'static [Field]],
}

/// An enum of groups that differ by a key.
pub trait Kinds: Sized {
    /// The groups.
    const FLAT: Flat;
    /// Takes the values of a kind out of a group.
    fn take(kind: usize, group: &mut Group<'_>) -> Option<Self>;
    /// Which kind it is, and its values.
    fn put(&self) -> (usize, Vec<Option<Json>>);
}

/// One key of a group. It is described when its schema is asked for: a file of many groups is read
/// without that.
pub struct Field {
    key: &'static str,
    doc: &'static str,
    default: Option<&'static str>,
    describe: fn(Option<&str>) -> Described,
}

/// What a schema says of a key, by its type alone.
struct Described {
    is_absent: bool,
    default: Option<Json>,
    schema: Json,
}

/// A group that is being read. What depends on no type is done by functions that are compiled
/// once: there are hundreds of groups and keys.
pub struct Group<'a> {
    entries: &'a [(Key, Node)],
    mark: Mark,
    /// Those that were not taken yet.
    fields: slice::Iter<'static, Field>,
    /// Missing keys that were reported as mistyped ones already.
    mistyped: Vec<&'static str>,
    /// Problems before this group.
    before: usize,
    reader: &'a mut Reader,
}

impl Field {
    /// A key; `default` is the text of its default.
    pub const fn of<T: Item>(
        key: &'static str,
        doc: &'static str,
        default: Option<&'static str>,
    ) -> Field {
        Field { key, doc, default, describe: described::<T> }
    }
}

fn described<T: Item>(default: Option<&str>) -> Described {
    let default = default.and_then(|text| default_value::<T>(text).emit());
    Described { is_absent: T::absent().is_some(), default, schema: T::schema() }
}

/// The default is text as in the file, so it is read and checked the same way.
pub(super) fn default_value<T: Item>(text: &str) -> T {
    let node = default_node(text);
    T::read(&node, &mut Reader::new(node.mark)).expect(GOOD_DEFAULT)
}

fn default_node(text: &str) -> Node {
    tree::parse(text).expect(GOOD_DEFAULT)
}

const GOOD_DEFAULT: &str = "invariant: the default of a key is a good value of it";

impl<'a> Group<'a> {
    /// The value of the next key, its default, or an error that it is missing.
    pub fn take<T: Item>(&mut self) -> Option<T> {
        let field = self.fields.next().expect("invariant: a value for each key");
        if let Some(node) = self.given(field) {
            return self.reader.read_key(field.key, node);
        }
        if let Some(text) = field.default {
            return Some(default_value(text));
        }
        let value = T::absent();
        if value.is_none() {
            self.missing(field);
        }
        value
    }

    /// What differs by kind, of keys that stand among the others.
    pub fn take_flat<T: Kinds>(&mut self) -> Option<T> {
        let Flat { tag, kinds, fields } = T::FLAT;
        let said = self.entries.iter().find(|(key, node)| key.text == tag && !node.is_absent());
        let kind = match said {
            Some((_, node)) => self.reader.read_tag(tag, node, kinds)?,
            None => 0,
        };
        let fields = fields.get(kind).copied().unwrap_or_default().iter();
        let (entries, mark, before) = (self.entries, self.mark, self.before);
        let (mistyped, reader) = (self.mistyped.clone(), &mut *self.reader);
        T::take(kind, &mut Group { entries, mark, fields, mistyped, before, reader })
    }

    fn given(&self, field: &Field) -> Option<&'a Node> {
        let (_, node) = self.entries.iter().find(|(given, _)| given.text == field.key)?;
        Some(node).filter(|node| !node.is_absent())
    }

    fn missing(&mut self, field: &Field) {
        if self.mistyped.contains(&field.key) {
            return;
        }
        let hint = format!("{}: {}", field.key, field.doc.trim());
        match self.entries.iter().find(|(given, _)| given.text == field.key) {
            Some((key, node)) => {
                let message = format!("the key `{}` is needed, and taken out here", key.text);
                self.reader.fail(node.mark, message, &hint);
            }
            None => {
                self.reader.fail(self.mark, format!("the key `{}` is missing", field.key), &hint);
            }
        }
    }
}

/// Reads a group; `tag` is a key that was read before.
pub fn read<R: Record>(node: &Node, reader: &mut Reader, tag: Option<&'static str>) -> Option<R> {
    if let (Some(key), Value::Scalar { .. } | Value::List(_)) = (R::PLAIN, &node.value) {
        let key = Key { text: key.to_owned(), mark: node.mark };
        let value = Value::Map(vec![(key, node.clone())]);
        return read_group(&Node { value, mark: node.mark }, reader, tag);
    }
    read_group(node, reader, tag)
}

fn read_group<R: Record>(node: &Node, reader: &mut Reader, tag: Option<&'static str>) -> Option<R> {
    let mut group = open(node, reader, tag, R::FIELDS, R::FLAT)?;
    let record = R::take(&mut group);
    record.filter(|_| group.reader.problems.len() == group.before)
}

fn open<'a>(
    node: &'a Node,
    reader: &'a mut Reader,
    tag: Option<&'static str>,
    fields: &'static [Field],
    flat: Option<Flat>,
) -> Option<Group<'a>> {
    let mut known: Vec<&'static str> =
        tag.into_iter().chain(fields.iter().map(|f| f.key)).collect();
    known.extend(flat.iter().map(|flat| flat.tag));
    let entries = entries_of(node, reader, &known)?;
    known.extend(flat.iter().flat_map(|flat| flat.keys(entries)));
    let is_given = |key: &&&str| entries.iter().any(|(given, _)| given.text == **key);
    let free: Vec<&'static str> = known.iter().filter(|key| !is_given(key)).copied().collect();
    let hint = format!("the keys here are {}", listed(known.iter().copied()));
    let before = reader.problems.len();
    let mut mistyped = Vec::new();
    for (key, node) in entries.iter().filter(|(key, _)| !known.contains(&key.text.as_str())) {
        // What takes out a key means one that is there.
        let others = if node.is_absent() { &known } else { &free };
        let meant = did_you_mean(&key.text, others.iter().copied());
        mistyped.extend(nearest(&key.text, free.iter().copied()));
        reader.fail(key.mark, format!("unknown key `{}`{meant}", key.text), &hint);
    }
    Some(Group { entries, mark: node.mark, fields: fields.iter(), mistyped, before, reader })
}

impl Flat {
    /// The keys of the kind that these entries say; of all kinds, where that is no kind.
    fn keys(&self, entries: &[(Key, Node)]) -> Vec<&'static str> {
        let said = entries.iter().find(|(key, node)| key.text == self.tag && !node.is_absent());
        let kind = match said.map(|(_, node)| &node.value) {
            None => Some(0),
            Some(Value::Scalar { text, .. }) => {
                self.kinds.iter().position(|(kind, _)| kind == text)
            }
            Some(_) => None,
        };
        let own = self.fields.iter().enumerate().filter(|it| kind.is_none_or(|kind| kind == it.0));
        own.flat_map(|(_, fields)| fields.iter().map(|field| field.key)).collect()
    }
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
    let mut group = object(R::FIELDS, record.put());
    if let (Some(flat), Some((kind, values))) = (R::FLAT, record.put_flat()) {
        group.extend(object(flat.fields[kind], values));
        group.insert(flat.tag.to_owned(), json!(flat.kinds[kind].0));
    }
    Json::Object(group)
}

fn object(fields: &[Field], values: Vec<Option<Json>>) -> Map<String, Json> {
    let entries = fields.iter().zip(values);
    entries.filter_map(|(field, value)| Some((field.key.into(), value?))).collect()
}

/// Describes a group, and what differs by kind in it.
pub fn schema_of<R: Record>() -> Json {
    let Some(Flat { tag, kinds, fields }) = R::FLAT else {
        return or_plain(schema(R::DOC, R::FIELDS.iter()), R::PLAIN);
    };
    let described = kinds.iter().zip(fields).enumerate().map(|(i, ((kind, doc), fields))| {
        let doc = format!("{} {}", R::DOC.trim(), doc.trim());
        let mut schema = schema(&doc, R::FIELDS.iter().chain(fields.iter()));
        schema["properties"][tag] = json!({"const": kind});
        if let Some(needed) = schema["required"].as_array_mut().filter(|_| i > 0) {
            needed.insert(0, json!(tag));
        }
        schema
    });
    json!({"oneOf": described.collect::<Vec<Json>>()})
}

/// Describes a group.
pub fn schema<'f>(doc: &str, fields: impl Iterator<Item = &'f Field>) -> Json {
    let mut needed = Vec::new();
    let mut properties = Map::new();
    for field in fields {
        let Described { is_absent, default, mut schema } = (field.describe)(field.default);
        schema["description"] = json!(field.doc.trim());
        if let Some(default) = default {
            schema["default"] = default;
        }
        if field.default.is_none() && !is_absent {
            needed.push(field.key);
        }
        properties.insert(field.key.to_owned(), schema);
    }
    json!({
        "type": "object",
        "description": doc.trim(),
        "properties": properties,
        "required": needed,
        "additionalProperties": false,
    })
}

/// Describes a group that a value or a list, that of the key `plain`, may stand for.
fn or_plain(group: Json, plain: Option<&str>) -> Json {
    let Some(key) = plain else { return group };
    let value = group["properties"][key].clone();
    json!({"anyOf": [value, group]})
}

/// A word of a file, and what it means.
pub type Word = (&'static str, &'static str);

/// Describes one of some words.
pub fn schema_of_words(words: &[Word]) -> Json {
    let described =
        words.iter().map(|(word, doc)| json!({"const": word, "description": doc.trim()}));
    json!({"oneOf": described.collect::<Vec<Json>>()})
}

/// Describes groups that differ by kind; of each kind, its keys.
pub fn schema_of_kinds(tag: &str, kinds: &[Word], fields: &[&[Field]]) -> Json {
    let described = kinds.iter().zip(fields).map(|((kind, doc), fields)| {
        let mut schema = schema(doc, fields.iter());
        schema["properties"][tag] = json!({"const": kind});
        if let Some(needed) = schema["required"].as_array_mut() {
            needed.insert(0, json!(tag));
        }
        schema
    });
    json!({"oneOf": described.collect::<Vec<Json>>()})
}

/// Reads the key that says which kind of group this is: its place among the kinds.
pub fn read_kind(node: &Node, reader: &mut Reader, tag: &str, kinds: &[Word]) -> Option<usize> {
    let entries = entries_of(node, reader, &[tag])?;
    let Some((_, kind)) = entries.iter().find(|(key, _)| key.text == tag) else {
        let hint = format!("{tag}: one of {}", listed(kinds.iter().map(|(kind, _)| *kind)));
        reader.fail(node.mark, format!("the key `{tag}` is missing"), &hint);
        return None;
    };
    read_word(kind, reader, kinds)
}

/// Reads one of some words: its place among them.
pub fn read_word(node: &Node, reader: &mut Reader, words: &[Word]) -> Option<usize> {
    let one_of = if words.len() > 1 { "one of " } else { "" };
    let known = || words.iter().map(|(word, _)| *word);
    let wanted = format!("{one_of}{}", listed(known()));
    let text = reader.scalar(node, &wanted)?;
    let place = known().position(|word| word == text);
    if place.is_none() {
        let meant = did_you_mean(text, known());
        let message = format!("`{text}` is not known here{meant}");
        reader.fail(node.mark, message, &format!("write {wanted}"));
    }
    place
}

/// Defines a struct that is a group of keys in the file: `field: Type = "default",`. After `by` is
/// the key that a value or a list in place of the group stands for. Last may stand
/// `..field: Kinds,`: keys that differ by kind, among those of the group.
macro_rules! record {
    (
        $(#[doc = $doc:literal])+
        $vis:vis struct $name:ident $(by $plain:literal)? {
            $($(#[doc = $field_doc:literal])+ $field:ident: $type:ty $(= $default:literal)?,)+
            $(..$flat:ident: $flat_type:ty,)?
        }
    ) => {
        $(#[doc = $doc])+
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        $vis struct $name {
            $($(#[doc = $field_doc])+ pub $field: $type,)+
            $(/// What differs by its kind.
            pub $flat: $flat_type,)?
        }
        impl $crate::scenario::record::Record for $name {
            const DOC: &'static str = concat!($($doc,)+);
            const PLAIN: Option<&'static str> = [$($plain)?].first().copied();
            const FIELDS: &'static [$crate::scenario::record::Field] =
                &[$($crate::scenario::record::Field::of::<$type>(
                    stringify!($field),
                    concat!($($field_doc,)+),
                    [$($default)?].first().copied(),
                ),)+];
            $crate::scenario::record::flat_of! { $($flat: $flat_type)? }
            fn take(group: &mut $crate::scenario::record::Group<'_>) -> Option<Self> {
                // All keys are read before one that failed ends it: each has its own errors.
                $(let $field = group.take();)+
                $(let $flat = group.take_flat();)?
                Some($name { $($field: $field?,)+ $($flat: $flat?,)? })
            }
            fn put(&self) -> Vec<Option<serde_json::Value>> {
                vec![$($crate::scenario::item::Item::emit(&self.$field),)+]
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
                $crate::scenario::record::schema_of::<Self>()
            }
        }
    };
}
pub(super) use record;

/// What differs by kind in a group, if anything does.
macro_rules! flat_of {
    () => {
        const FLAT: Option<$crate::scenario::record::Flat> = None;
        fn put_flat(&self) -> Option<(usize, Vec<Option<serde_json::Value>>)> {
            None
        }
    };
    ($flat:ident: $type:ty) => {
        const FLAT: Option<$crate::scenario::record::Flat> =
            Some(<$type as $crate::scenario::record::Kinds>::FLAT);
        fn put_flat(&self) -> Option<(usize, Vec<Option<serde_json::Value>>)> {
            Some($crate::scenario::record::Kinds::put(&self.$flat))
        }
    };
}
pub(super) use flat_of;

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
            const WORDS: &'static [$crate::scenario::record::Word] =
                &[$(($word, concat!($($word_doc,)+)),)+];

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
                let place = $crate::scenario::record::read_word(node, reader, Self::WORDS)?;
                [$($name::$variant),+].get(place).copied()
            }
            fn emit(&self) -> Option<serde_json::Value> {
                Some(serde_json::json!(self.word()))
            }
            fn schema() -> serde_json::Value {
                $crate::scenario::record::schema_of_words(Self::WORDS)
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
        impl $name {
            const KINDS: &'static [$crate::scenario::record::Word] =
                &[$(($word, concat!($($word_doc,)+)),)+];
        }
        impl $crate::scenario::record::Kinds for $name {
            const FLAT: $crate::scenario::record::Flat = $crate::scenario::record::Flat {
                tag: $tag,
                kinds: Self::KINDS,
                fields: &[$(<$type as $crate::scenario::record::Record>::FIELDS),+],
            };
            fn take(kind: usize, group: &mut $crate::scenario::record::Group<'_>) -> Option<Self> {
                use $crate::scenario::record::{Group, Record};
                type Take = fn(&mut Group<'_>) -> Option<$name>;
                let takers: &[Take] =
                    &[$(|group| <$type as Record>::take(group).map($name::$variant)),+];
                takers[kind](group)
            }
            fn put(&self) -> (usize, Vec<Option<serde_json::Value>>) {
                let (word, values) = match self {
                    $($name::$variant(group) => {
                        ($word, $crate::scenario::record::Record::put(group))
                    })+
                };
                let kind = Self::KINDS.iter().position(|(kind, _)| *kind == word);
                (kind.expect("invariant: each kind is a word"), values)
            }
        }
        impl $crate::scenario::item::Item for $name {
            fn read(
                node: &$crate::scenario::tree::Node,
                reader: &mut $crate::scenario::item::Reader,
            ) -> Option<Self> {
                use $crate::scenario::record::{read, read_kind};
                type Read = fn(&$crate::scenario::tree::Node, &mut $crate::scenario::item::Reader)
                    -> Option<$name>;
                let readers: &[Read] =
                    &[$(|node, reader| read(node, reader, Some($tag)).map($name::$variant),)+];
                readers[read_kind(node, reader, $tag, Self::KINDS)?](node, reader)
            }
            fn emit(&self) -> Option<serde_json::Value> {
                let (mut group, kind) = match self {
                    $($name::$variant(group) => ($crate::scenario::record::emit(group), $word),)+
                };
                group[$tag] = serde_json::json!(kind);
                Some(group)
            }
            fn schema() -> serde_json::Value {
                use $crate::scenario::record::{Record, schema_of_kinds};
                schema_of_kinds($tag, Self::KINDS, &[$(<$type>::FIELDS),+])
            }
        }
    };
}
pub(super) use kinds;
