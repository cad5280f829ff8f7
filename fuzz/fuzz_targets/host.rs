// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a host says of itself through `ip`, `tc`, `ethtool` and files: a recorded host, one of
//! whose answers is the input. The first byte says which host, the next two which answer.
#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use timewire_fuzz::hosts::{Answer, Host, hosts};
use timewire_host::snapshot::source::{Output, Question, Source};
use timewire_host::snapshot::{Reading, Snapshot};

/// A host with another answer.
struct Changed<'a> {
    host: &'a Host,
    answer: &'a Answer,
    text: &'a str,
}

impl Source for Changed<'_> {
    fn read(&self, path: &str) -> Reading<String> {
        match self.answer {
            Answer::File(changed) if changed == path => Reading::Known(self.text.to_owned()),
            _ => self.host.record.read(path),
        }
    }
    fn list(&self, path: &str) -> Reading<Vec<String>> {
        match self.answer {
            Answer::Directory(changed) if changed == path => {
                Reading::Known(self.text.lines().map(str::to_owned).collect())
            }
            _ => self.host.record.list(path),
        }
    }
    fn link(&self, path: &str) -> Reading<String> {
        self.host.record.link(path)
    }
    fn run(&self, words: &[&str]) -> Reading<Output> {
        match self.answer {
            Answer::Program(changed) if *changed == words.join(" ") => Reading::Known(Output {
                code: Some(0),
                stdout: self.text.to_owned(),
                stderr: String::new(),
            }),
            _ => self.host.record.run(words),
        }
    }
    fn ask(&self, question: Question<'_>) -> Reading<Value> {
        match self.answer {
            Answer::Question(changed) if *changed == question.name() => {
                Reading::Known(serde_json::from_str(self.text).unwrap_or_default())
            }
            _ => self.host.record.ask(question),
        }
    }
}

fuzz_target!(|data: &[u8]| {
    static HOSTS: OnceLock<Vec<Host>> = OnceLock::new();
    let hosts = HOSTS.get_or_init(hosts);
    let Some(([host, low, high], text)) = data.split_first_chunk::<3>() else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    let host = &hosts[usize::from(*host) % hosts.len()];
    let which = usize::from(u16::from_le_bytes([*low, *high])) % host.answers.len();
    let changed = Changed { host, answer: &host.answers[which], text };
    let Ok(snapshot) = Snapshot::read(&changed, host.record.interfaces()) else { return };
    let json = serde_json::to_string(&snapshot).expect("a snapshot is written");
    assert_eq!(Snapshot::parse(&json), Ok(snapshot));
});
