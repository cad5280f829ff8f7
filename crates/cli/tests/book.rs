// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The commands that the README and the book name are there, with the options that they name; and
//! so are manual pages and completions.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const TIMEWIRE: &str = env!("CARGO_BIN_EXE_timewire");

/// The help of verbs, each asked for once.
#[derive(Default)]
struct Helps(HashMap<Vec<String>, Option<String>>);

impl Helps {
    /// `None` when there is no such verb.
    fn of(&mut self, verbs: &[String]) -> Option<String> {
        let ask = || {
            let output = Command::new(TIMEWIRE).args(verbs).arg("--help").output().unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            output.status.success().then_some(text)
        };
        self.0.entry(verbs.to_vec()).or_insert_with(ask).clone()
    }

    /// The verbs that follow a verb; none of one that has no more.
    fn below(&mut self, verbs: &[String]) -> Vec<String> {
        let text = self.of(verbs).unwrap_or_default();
        let Some((_, list)) = text.split_once("\nCommands:\n") else { return Vec::new() };
        let names = list.lines().take_while(|line| !line.is_empty());
        let names = names.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
        names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
    }
}

fn pages(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            pages(&path, found);
        } else if path.extension().is_some_and(|it| it == "md") {
            found.push(path);
        }
    }
}

/// What stands behind `timewire ` up to the end of the line or of the quotation.
fn commands(text: &str) -> Vec<&str> {
    let starts = ["`timewire ", "\ntimewire ", "\n# timewire ", "\n$ timewire ", "-- timewire "];
    let mut found = Vec::new();
    for start in starts {
        for (at, _) in text.match_indices(start) {
            let rest = &text[at + start.len()..];
            let end = rest.find(['\n', '`']).unwrap_or(rest.len());
            found.push(rest[..end].split(" #").next().unwrap());
        }
    }
    found.retain(|line| line.starts_with(|c: char| c.is_ascii_lowercase()));
    found
}

/// What is wrong with a command, if anything.
fn doubt(line: &str, helps: &mut Helps) -> Option<String> {
    let line = line.split(" -- ").next().unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    let is_verb = |word: &&str| word.chars().all(|c| c.is_ascii_lowercase());
    let mut verbs = Vec::new();
    loop {
        let below = helps.below(&verbs);
        let next = words.get(verbs.len()).filter(|word| !below.is_empty() && is_verb(word));
        let Some(next) = next else { break };
        if !below.iter().any(|name| name == next) {
            return Some(format!("there is no `{next}`"));
        }
        verbs.push((*next).to_owned());
    }
    // Options are said of a verb with others below it when they are of one of these.
    let mut help = helps.of(&verbs).unwrap_or_default();
    for name in helps.below(&verbs) {
        help += &helps.of(&[&verbs[..], &[name]].concat()).unwrap_or_default();
    }
    let options = words.iter().filter_map(|word| {
        let word = word.trim_start_matches(['[', '(']);
        let end = |c: char| !c.is_ascii_lowercase() && c != '-';
        let name = word.strip_prefix("--")?.split(end).next()?;
        (!name.is_empty()).then(|| format!("--{name}"))
    });
    let known = |option: &String| ["--help", "--version"].contains(&option.as_str());
    let mut options = options.filter(|option| !known(option) && !help.contains(option.as_str()));
    options.next().map(|option| format!("there is no `{option}`"))
}

#[test]
fn t1_commands_of_the_book_are_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = vec![root.join("README.md")];
    pages(&root.join("docs/src"), &mut files);
    let (mut helps, mut doubts, mut count) = (Helps::default(), Vec::new(), 0);
    for file in files {
        // What was decided once may name what is no more.
        if file.components().any(|part| part.as_os_str() == "adr") {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        for line in commands(&text) {
            count += 1;
            if let Some(why) = doubt(line, &mut helps) {
                doubts.push(format!("{}: timewire {line}: {why}", file.display()));
            }
        }
    }
    assert!(doubts.is_empty(), "{}", doubts.join("\n"));
    assert!(count > 200, "only {count} commands were found");
}

/// What a command answers, and its exit code.
fn said(words: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(TIMEWIRE).args(words).output().unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap());
    (output.status.code(), out, err)
}

#[test]
fn t1_every_verb_has_a_manual_page_that_is_the_same_each_time() {
    let directory = std::env::temp_dir().join(format!("timewire-pages-{}", std::process::id()));
    let into = directory.to_str().unwrap();
    assert_eq!(said(&["man", "--into", into]), (Some(0), String::new(), String::new()));
    let (mut helps, mut left, mut count) = (Helps::default(), vec![Vec::new()], 0);
    while let Some(verbs) = left.pop() {
        let name = [&["timewire".to_owned()], &verbs[..]].concat().join("-");
        let page = fs::read_to_string(directory.join(format!("{name}.1"))).unwrap();
        let heading = format!(".TH {name} 1  \"timewire {}\" Timewire", env!("CARGO_PKG_VERSION"));
        assert!(page.contains(&heading), "{name}: {}", page.lines().nth(2).unwrap());
        let words: Vec<&str> =
            ["man"].into_iter().chain(verbs.iter().map(String::as_str)).collect();
        assert!(said(&words) == (Some(0), page, String::new()), "{name} differs");
        count += 1;
        let below = helps.below(&verbs).into_iter().filter(|name| name != "help");
        left.extend(below.map(|verb| [&verbs[..], &[verb]].concat()));
    }
    assert!(count > 60, "{count} pages");
    assert_eq!(fs::read_dir(&directory).unwrap().count(), count, "a page of no verb");
    fs::remove_dir_all(&directory).unwrap();
    let (code, _, why) = said(&["man", "trace", "recor"]);
    assert_eq!(code, Some(2));
    let what =
        "error: `timewire trace` has no verb `recor`: record, show, info, cut, merge, export";
    assert_eq!(why.trim(), what);
    let (_, _, why) = said(&["man", "sim", "x"]);
    assert_eq!(why.trim(), "error: `timewire sim` has no verbs, so none is called `x`");
    assert_eq!(said(&["man", "__watchdog"]).0, Some(2));
}

#[test]
fn t1_shells_complete_what_there_is() {
    for shell in ["bash", "zsh", "fish"] {
        let (code, text, _) = said(&["completions", shell]);
        assert_eq!(code, Some(0));
        let all = ["doctor", "measure", "launch", "transmit-timestamps", "completions"];
        assert!(all.iter().all(|word| text.contains(word)), "{shell}");
    }
    let (code, _, why) = said(&["completions", "csh"]);
    assert!(code == Some(2) && why.contains("bash, elvish, fish"), "{why}");
}
