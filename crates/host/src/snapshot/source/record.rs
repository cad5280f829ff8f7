// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A host that was recorded: everything that was asked of it, with the answers. Reading a snapshot
//! from the record gives the snapshot of the host.
//!
//! Texts of several lines stand as lists of lines, so that a difference between two records reads
//! well.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use timewire_base::{FileError, IfName};

use super::{Output, Question, Source};
use crate::HostError;
use crate::snapshot::Reading;

/// The format and its version.
pub const RECORD_SCHEMA: &str = "timewire.recorded-host/1";

/// Answers of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    schema: String,
    /// Those that were asked for; none is all.
    interfaces: Vec<IfName>,
    files: BTreeMap<String, Reading<Text>>,
    directories: BTreeMap<String, Reading<Vec<String>>>,
    links: BTreeMap<String, Reading<String>>,
    /// By the words with spaces between them; none of the words that are run has one.
    programs: BTreeMap<String, Reading<Spoken>>,
    questions: BTreeMap<String, Reading<Value>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Spoken {
    code: Option<i32>,
    stdout: Text,
    stderr: Text,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Text(String);

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.contains('\n') {
            serializer.collect_seq(self.0.split('\n'))
        } else {
            serializer.serialize_str(&self.0)
        }
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Text, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            One(String),
            Lines(Vec<String>),
        }
        Ok(Text(match Form::deserialize(deserializer)? {
            Form::One(text) => text,
            Form::Lines(lines) => lines.join("\n"),
        }))
    }
}

impl Default for Record {
    fn default() -> Record {
        Record {
            schema: RECORD_SCHEMA.to_owned(),
            interfaces: Vec::new(),
            files: BTreeMap::new(),
            directories: BTreeMap::new(),
            links: BTreeMap::new(),
            programs: BTreeMap::new(),
            questions: BTreeMap::new(),
        }
    }
}

impl Record {
    /// The text of a record.
    ///
    /// **Errors**: it is none, or one of another version; a sentence says what is wrong.
    pub fn parse(text: &str) -> Result<Record, String> {
        let record: Record = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if record.schema != RECORD_SCHEMA {
            return Err(format!("it is of version `{}`, not `{RECORD_SCHEMA}`", record.schema));
        }
        Ok(record)
    }

    /// The interfaces that it has answers about; none is all.
    pub fn interfaces(&self) -> &[IfName] {
        &self.interfaces
    }

    /// Its text, the same for equal records.
    pub fn to_text(&self) -> String {
        let text = serde_json::to_string_pretty(self);
        text.expect("invariant: a record has a form in JSON") + "\n"
    }

    /// Reads a directory that `timewire snapshot --record` wrote.
    ///
    /// **Errors**: the file cannot be read or is no record.
    pub fn load(directory: &Path) -> Result<Record, HostError> {
        let path = directory.join(RECORD_FILE);
        let text = fs::read_to_string(&path).map_err(|e| HostError::file("read", &path, e))?;
        Record::parse(&text).map_err(|why| FileError::content(path, why).into())
    }

    /// Writes it into a directory, which is made when it is not there.
    ///
    /// **Errors**: a file or directory cannot be written.
    pub fn save(&self, directory: &Path) -> Result<(), HostError> {
        fs::create_dir_all(directory).map_err(|e| HostError::file("create", directory, e))?;
        let path = directory.join(RECORD_FILE);
        fs::write(&path, self.to_text()).map_err(|e| HostError::file("write", &path, e))
    }
}

const RECORD_FILE: &str = "record.json";

fn answer<T: Clone>(answers: &BTreeMap<String, Reading<T>>, key: &str) -> Reading<T> {
    let recorded = answers.get(key).cloned();
    recorded.unwrap_or_else(|| Reading::Unreadable("not in the record".to_owned()))
}

impl Source for Record {
    fn read(&self, path: &str) -> Reading<String> {
        answer(&self.files, path).map(|text| text.0)
    }

    fn list(&self, path: &str) -> Reading<Vec<String>> {
        answer(&self.directories, path)
    }

    fn link(&self, path: &str) -> Reading<String> {
        answer(&self.links, path)
    }

    fn run(&self, words: &[&str]) -> Reading<Output> {
        answer(&self.programs, &words.join(" ")).map(|spoken| Output {
            code: spoken.code,
            stdout: spoken.stdout.0,
            stderr: spoken.stderr.0,
        })
    }

    fn ask(&self, question: Question<'_>) -> Reading<Value> {
        answer(&self.questions, &question.name())
    }
}

/// A source that notes every answer of another.
#[derive(Debug)]
pub struct Recording<S> {
    source: S,
    record: RefCell<Record>,
}

impl<S: Source> Recording<S> {
    /// Has noted nothing yet; these interfaces are to be asked for, or all when none is named.
    pub fn new(source: S, interfaces: &[IfName]) -> Recording<S> {
        let record = Record { interfaces: interfaces.to_vec(), ..Record::default() };
        Recording { source, record: RefCell::new(record) }
    }

    /// What was noted.
    pub fn into_record(self) -> Record {
        self.record.into_inner()
    }
}

impl<S: Source> Source for Recording<S> {
    fn read(&self, path: &str) -> Reading<String> {
        let answer = self.source.read(path);
        let noted = answer.clone().map(Text);
        self.record.borrow_mut().files.insert(path.to_owned(), noted);
        answer
    }

    fn list(&self, path: &str) -> Reading<Vec<String>> {
        let answer = self.source.list(path);
        self.record.borrow_mut().directories.insert(path.to_owned(), answer.clone());
        answer
    }

    fn link(&self, path: &str) -> Reading<String> {
        let answer = self.source.link(path);
        self.record.borrow_mut().links.insert(path.to_owned(), answer.clone());
        answer
    }

    fn run(&self, words: &[&str]) -> Reading<Output> {
        let answer = self.source.run(words);
        let noted = answer.clone().map(|output| Spoken {
            code: output.code,
            stdout: Text(output.stdout),
            stderr: Text(output.stderr),
        });
        self.record.borrow_mut().programs.insert(words.join(" "), noted);
        answer
    }

    fn ask(&self, question: Question<'_>) -> Reading<Value> {
        let answer = self.source.ask(question);
        self.record.borrow_mut().questions.insert(question.name(), answer.clone());
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed;

    impl Source for Fixed {
        fn read(&self, path: &str) -> Reading<String> {
            Reading::Known(format!("of {path}\nsecond"))
        }
        fn list(&self, _: &str) -> Reading<Vec<String>> {
            Reading::Known(vec!["a".to_owned()])
        }
        fn link(&self, _: &str) -> Reading<String> {
            Reading::Absent("no link".to_owned())
        }
        fn run(&self, words: &[&str]) -> Reading<Output> {
            let stdout = words.join("+");
            Reading::Known(Output { code: Some(1), stdout, stderr: String::new() })
        }
        fn ask(&self, _: Question<'_>) -> Reading<Value> {
            Reading::Unreadable("EPERM".to_owned())
        }
    }

    #[test]
    fn t0_a_record_answers_as_the_host_did() {
        let recording = Recording::new(Fixed, &[]);
        let asked = |source: &dyn Source| {
            (
                source.read("/a"),
                source.list("/b"),
                source.link("/c"),
                source.run(&["d", "-e"]),
                source.ask(Question::Polls("eth0")),
            )
        };
        let first = asked(&recording);
        let record = Record::parse(&recording.into_record().to_text()).unwrap();
        assert_eq!(asked(&record), first);
        assert!(record.to_text().contains("\"of /a\",\n"));
        assert_eq!(record.read("/other").why_not(), Some("not in the record"));
    }

    #[test]
    fn t0_a_record_of_another_version_is_refused() {
        let text = Record::default().to_text().replace("host/1", "host/2");
        assert!(Record::parse(&text).unwrap_err().contains("host/2"));
        assert!(Record::parse("{}").is_err());
    }
}
