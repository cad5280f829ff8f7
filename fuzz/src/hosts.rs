// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Recorded hosts, and what in them can be another answer.

use std::fs;
use std::path::Path;

use serde_json::Value;
use timewire_host::snapshot::source::Record;

/// An answer of a host, by what was asked.
pub enum Answer {
    /// The content of a file.
    File(String),
    /// The names in a directory.
    Directory(String),
    /// What a program printed, by its words.
    Program(String),
    /// What the kernel answered.
    Question(String),
}

/// A recorded host.
pub struct Host {
    /// Its answers.
    pub record: Record,
    /// What was asked, in a fixed order.
    pub answers: Vec<Answer>,
    /// What was answered, as text.
    pub texts: Vec<String>,
}

/// The recorded hosts of the repository, in the order of their names.
///
/// **Panics**: they are not there.
pub fn hosts() -> Vec<Host> {
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/hosts");
    let entries = fs::read_dir(all).expect("recorded hosts");
    let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    paths.iter().filter_map(|path| host(&path.join("record.json"))).collect()
}

fn host(path: &Path) -> Option<Host> {
    let text = fs::read_to_string(path).ok()?;
    let record = Record::parse(&text).expect("a recorded host");
    let json: Value = serde_json::from_str(&text).expect("a recorded host");
    let (mut answers, mut texts) = (Vec::new(), Vec::new());
    let kinds: [(&str, fn(String) -> Answer); 4] = [
        ("files", Answer::File),
        ("directories", Answer::Directory),
        ("programs", Answer::Program),
        ("questions", Answer::Question),
    ];
    for (key, answer) in kinds {
        for (asked, said) in json[key].as_object().into_iter().flatten() {
            let said = said.get("known").unwrap_or(said);
            let text = match (key, said.get("stdout")) {
                ("questions", _) => said.to_string(),
                (_, Some(stdout)) => lines(stdout),
                _ => lines(said),
            };
            answers.push(answer(asked.clone()));
            texts.push(text);
        }
    }
    Some(Host { record, answers, texts })
}

fn lines(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(lines) => {
            let lines: Vec<&str> = lines.iter().filter_map(Value::as_str).collect();
            lines.join("\n")
        }
        other => other.to_string(),
    }
}
