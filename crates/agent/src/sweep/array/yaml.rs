// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Values as YAML in blocks. Every text is in double quotes with all but printable ASCII escaped,
//! so that it is the same text to every reader of YAML, old and new.

use std::fmt::Write as _;

use serde_json::Value;

/// A document.
pub(super) fn document(value: &Value) -> String {
    let mut text = String::new();
    block(value, 0, &mut text);
    text
}

fn block(value: &Value, depth: usize, text: &mut String) {
    let indent = "  ".repeat(depth);
    match value {
        Value::Object(entries) if !entries.is_empty() => {
            for (key, value) in entries {
                text.push_str(&indent);
                text.push_str(&key_of(key));
                text.push(':');
                below(value, depth + 1, text);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                let _ = write!(text, "{indent}-");
                match item {
                    // The first entry stands behind the dash.
                    Value::Object(entries) if !entries.is_empty() => {
                        let mut inner = String::new();
                        block(item, depth + 1, &mut inner);
                        text.push(' ');
                        text.push_str(inner.trim_start_matches(' '));
                    }
                    _ => below(item, depth + 1, text),
                }
            }
        }
        scalar => {
            let _ = writeln!(text, "{indent}{}", word(scalar));
        }
    }
}

fn below(value: &Value, depth: usize, text: &mut String) {
    let is_empty = value.as_array().is_some_and(Vec::is_empty)
        || value.as_object().is_some_and(serde_json::Map::is_empty);
    if is_empty || !(value.is_array() || value.is_object()) {
        let _ = writeln!(text, " {}", word(value));
    } else {
        text.push('\n');
        block(value, depth, text);
    }
}

fn word(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text),
        other => other.to_string(),
    }
}

fn key_of(key: &str) -> String {
    let is_plain = key.starts_with(|c: char| c.is_ascii_alphabetic())
        && key.chars().all(|c| c.is_ascii_alphanumeric() || "._-/".contains(c));
    // Words that mean something else to some reader.
    let is_word = ["y", "n", "yes", "no", "on", "off", "true", "false", "null"]
        .contains(&key.to_ascii_lowercase().as_str());
    if is_plain && !is_word { key.to_owned() } else { quoted(key) }
}

fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            ' '..='~' => quoted.push(c),
            _ => {
                let number = u32::from(c);
                let _ = match number {
                    0..=0xff => write!(quoted, "\\x{number:02X}"),
                    0x100..=0xffff => write!(quoted, "\\u{number:04X}"),
                    _ => write!(quoted, "\\U{number:08X}"),
                };
            }
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn t0_values_are_blocks_and_texts_are_quoted() {
        let value = json!({
            "a": 1, "b": {"c": [], "on": {}}, "d": ["x", {"e": true, "f": [2]}, [3]], "k v": null,
            "t": "\"\\\n\t\u{85}\u{2028}\u{1f600}: #",
        });
        let expected = "a: 1\nb:\n  c: []\n  \"on\": {}\nd:\n  - \"x\"\n  - e: true\n    f:\n      \
                        - 2\n  -\n    - 3\n\"k v\": null\n\
                        t: \"\\\"\\\\\\n\\t\\x85\\u2028\\U0001F600: #\"\n";
        assert_eq!(document(&value), expected);
    }
}
