// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tables of the page about host settings are made of the JSON Schema: every key is there, as
//! the program reads it. `UPDATE_GOLDEN=1 cargo test -p timewire-model` writes them.
#![expect(clippy::disallowed_methods, reason = "a committed page is read and written by the test")]

use std::path::Path;

use serde_json::Value as Json;
use timewire_model::scenario::network::network_schema;

/// The key of a station.
const HOST: &str = "host";
const START: &str = "<!-- keys: made of the schema by a test, not by hand -->\n";
const END: &str = "<!-- end of the keys -->\n";

/// What the pattern of a text is called in the page.
const KINDS: [(&str, &str); 11] = [
    ("^[0-9][0-9_]*(\\.[0-9]+)? *(ns|us|µs|ms|s)$", "time"),
    ("^[0-9][0-9_]*(\\.[0-9]+)? *(bit|kbit|Mbit|Gbit)$", "rate"),
    ("^[0-9][0-9_]*(\\.[0-9]+)? *(B|kB|KiB)$", "length"),
    ("^[a-z][a-z0-9_-]{0,47}$", "name"),
    ("^[^/:\\s]{1,15}$", "interface"),
    ("^[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}$", "address"),
    ("^[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*$", "CPUs"),
    ("^0x(0[6-9a-fA-F]|[1-9a-fA-F][0-9a-fA-F])[0-9a-fA-F]{2}$", "EtherType"),
    ("^[0-9a-fA-F]{1,4}:?$", "handle"),
    ("^[0-9]{1,5}@[0-9]{1,5}$", "queues"),
    ("", "text"),
];

/// The tables so far.
#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    fn group(&mut self, path: &str, schema: &Json) {
        let level = if path == HOST { "##" } else { "###" };
        self.text += &format!("{level} `{path}`\n\n");
        let about = schema["description"].as_str().unwrap_or_default();
        self.text += &format!("{}\n\n", joined(about));
        let mut later = Vec::new();
        match schema["oneOf"].as_array() {
            Some(kinds) => {
                for kind in kinds {
                    let (tag, word) = tag(kind);
                    let about = joined(kind["description"].as_str().unwrap_or_default());
                    self.text += &format!("With `{tag}: {word}`: {about}\n\n");
                    self.table(path, kind, &mut later);
                }
            }
            None => self.table(path, schema, &mut later),
        }
        for (path, schema) in later {
            self.group(&path, &schema);
        }
    }

    fn table(&mut self, path: &str, schema: &Json, later: &mut Vec<(String, Json)>) {
        let properties = schema["properties"].as_object().expect("a group has keys");
        let needed: Vec<&str> =
            schema["required"].as_array().unwrap().iter().filter_map(Json::as_str).collect();
        self.text += "| key | value | default | meaning |\n| --- | --- | --- | --- |\n";
        let is_tag = |schema: &&Json| schema["const"].is_string();
        for (key, schema) in properties.iter().filter(|(_, schema)| !is_tag(schema)) {
            let below = format!("{path}.{key}");
            let default = match schema.get("default") {
                Some(default) if default.as_object().is_some() => "all defaults".to_owned(),
                Some(default) if *default == Json::Array(Vec::new()) => "empty".to_owned(),
                Some(Json::String(text)) if text.is_empty() => "empty".to_owned(),
                Some(Json::String(text)) => format!("`{text}`"),
                Some(default) => format!("`{default}`"),
                None if needed.contains(&key.as_str()) => "required".to_owned(),
                None => "-".to_owned(),
            };
            let value = value(&below, schema, later);
            let mut meaning = joined(schema["description"].as_str().unwrap_or_default());
            for word in schema["oneOf"].as_array().into_iter().flatten() {
                if let (Some(word), Some(about)) =
                    (word["const"].as_str(), word["description"].as_str())
                {
                    meaning += &format!(" `{word}`: {}", joined(about));
                }
            }
            self.text += &format!("| `{key}` | {value} | {default} | {meaning} |\n");
        }
        self.text.push('\n');
    }
}

/// What a key takes; groups in it come later.
fn value(path: &str, schema: &Json, later: &mut Vec<(String, Json)>) -> String {
    if schema.get("$ref").is_some() {
        return "a group, as `host.groups`".to_owned();
    }
    if let Some(constant) = schema.get("const") {
        return format!("`{constant}`").replace('"', "");
    }
    if let Some(choices) = schema["oneOf"].as_array() {
        if choices.iter().all(|choice| choice.get("const").is_some()) {
            let words: Vec<String> = choices
                .iter()
                .map(|choice| format!("`{}`", choice["const"].as_str().unwrap()))
                .collect();
            return words.join(", ");
        }
        later.push((path.to_owned(), schema.clone()));
        return "keys below".to_owned();
    }
    let kind = match &schema["type"] {
        Json::String(kind) => kind.as_str(),
        _ => "string",
    };
    match kind {
        "object" => {
            later.push((path.to_owned(), schema.clone()));
            "keys below".to_owned()
        }
        "array" => match value(&format!("{path}[]"), &schema["items"], later) {
            below if below == "keys below" => "list".to_owned(),
            one => format!("list: {one}"),
        },
        "boolean" => "`true`, `false`".to_owned(),
        "integer" => match (schema["minimum"].as_u64(), schema["maximum"].as_u64()) {
            (Some(min), Some(max)) => format!("{min} to {max}"),
            _ => "number".to_owned(),
        },
        _ => {
            let pattern = schema["pattern"].as_str().unwrap_or_default();
            let known = KINDS.iter().find(|(known, _)| *known == pattern);
            known.map_or_else(
                || format!("`{pattern}`").replace('|', "\\|"),
                |(_, n)| (*n).to_owned(),
            )
        }
    }
}

/// The key that tells kinds of a group apart, and its word.
fn tag(kind: &Json) -> (&str, &str) {
    let properties = kind["properties"].as_object().expect("a group has keys");
    let tag = properties.iter().find_map(|(key, s)| Some((key.as_str(), s["const"].as_str()?)));
    tag.expect("a kind has a word")
}

fn joined(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn t1_every_key_of_host_settings_is_on_its_page() {
    let schema: Json = serde_json::from_str(&network_schema()).unwrap();
    let station = &schema["else"]["properties"]["stations"]["items"];
    let kinds = station["anyOf"].as_array().expect("a station is a name or a group");
    let host = kinds.iter().find_map(|kind| kind["properties"].get(HOST));
    let mut page = Page::default();
    page.group(HOST, host.expect("a station has host settings"));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/reference/host.md");
    let committed = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = committed.split_once(START).expect("the line before the tables");
    let (_, after) = rest.split_once(END).expect("the line after the tables");
    let fresh = format!("{before}{START}\n{}{END}{after}", page.text);
    if std::env::var("UPDATE_GOLDEN").is_ok() {
        std::fs::write(&path, &fresh).unwrap();
        return;
    }
    assert!(
        committed == fresh,
        "docs/src/reference/host.md is stale: UPDATE_GOLDEN=1 cargo test -p timewire-model"
    );
    for key in ["classes", "launch_time", "sysctls", "verify_time"] {
        assert!(page.text.contains(&format!("| `{key}` |")), "{key}");
    }
}
