// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rules about single files: words, licence lines, width, length, names.

use super::{Breach, Tree};

/// Words that no file contains, and why. Letters and digits at their ends match only whole words.
/// They are written in halves because this file is checked too.
const BANNED: &[(&str, &str)] = &[
    (concat!("TO", "DO"), "finish it or leave it out"),
    (concat!("FIX", "ME"), "finish it or leave it out"),
    (concat!("XX", "X"), "finish it or leave it out"),
    (concat!("todo", "!("), "finish it or leave it out"),
    (concat!("unimplemented", "!("), "finish it or leave it out"),
    (concat!("#[ig", "nore"), "a test that cannot run here prints `SKIP: why` and returns"),
    (concat!("keep in", " sync"), "generate it, or assert it"),
    (concat!("issue", " #"), "say what is true now, not where it was asked for"),
    (concat!("language", " model"), "speak of the product"),
    (concat!("far", "m-"), "a name of one workplace"),
    (concat!("/wo", "rk/"), "a path of one machine"),
    (concat!("/ro", "ot/"), "a path of one machine"),
    (concat!("/tmp/", "tgt"), "a path of one machine"),
    (concat!("../sha", "red"), "a path of one machine"),
    (concat!("<<<<", "<<< "), "a conflict that nobody resolved"),
    (concat!(">>>>", ">>> "), "a conflict that nobody resolved"),
];

/// No banned word in any file we wrote.
pub fn banned_words(tree: &Tree) -> Vec<Breach> {
    let mut found = Vec::new();
    for (path, text) in tree.ending(&[""]).filter(|(path, _)| is_ours(path)) {
        for (number, line) in numbered(text) {
            for (word, why) in BANNED.iter().filter(|(word, _)| contains_word(line, word)) {
                found.push(Breach::new(path, number, format!("`{word}`: {why}")));
            }
        }
    }
    found
}

fn is_ours(path: &str) -> bool {
    !path.starts_with("LICENSE") && path != "Cargo.lock"
}

fn contains_word(line: &str, word: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        let starts = !word.starts_with(is_word) || !before.is_some_and(is_word);
        let ends = !word.ends_with(is_word) || !after.is_some_and(is_word);
        starts && ends
    })
}

/// The licence of eBPF programs in C and their headers, and of everything else.
const BPF_LICENCE: &str = "GPL-2.0-only OR BSD-2-Clause";
const LICENCE: &str = "Apache-2.0 OR MIT";

/// Every source names its licence in its first two lines (the first may be `#!`).
pub fn licence_lines(tree: &Tree) -> Vec<Breach> {
    let mut found = Vec::new();
    for (path, text) in tree.ending(&[".rs", ".c", ".h", ".sh", ".py"]) {
        let is_c = path.ends_with(".c") || path.ends_with(".h");
        let licence = if is_c && path.starts_with("crates/bpf/") { BPF_LICENCE } else { LICENCE };
        let wanted = [
            format!("SPDX-License-Identifier: {licence}"),
            format!("SPDX-License-Identifier: ({licence})"),
        ];
        if !text.lines().take(2).any(|line| wanted.iter().any(|wanted| line.contains(wanted))) {
            found.push(Breach::new(path, 1, format!("no line `{}`", wanted[0])));
        }
    }
    found
}

const WIDTH: usize = 100;

/// No line of a source is wider than 100 columns.
pub fn line_width(tree: &Tree) -> Vec<Breach> {
    let mut found = Vec::new();
    for (path, text) in tree.ending(&[".rs", ".c", ".h", ".py"]) {
        for (number, line) in numbered(text) {
            let width = columns(line);
            if width > WIDTH {
                found.push(Breach::new(path, number, format!("{width} columns; at most {WIDTH}")));
            }
        }
    }
    found
}

/// Columns of a line; a tab goes to the next multiple of eight.
fn columns(line: &str) -> usize {
    line.chars().fold(0, |at, c| if c == '\t' { (at / 8 + 1) * 8 } else { at + 1 })
}

const LINES: usize = 800;

/// No Rust file is longer than 800 lines.
pub fn file_length(tree: &Tree) -> Vec<Breach> {
    let lengths = tree.ending(&[".rs"]).map(|(path, text)| (path, text.lines().count()));
    let long = lengths.filter(|(_, lines)| *lines > LINES);
    long.map(|(path, lines)| Breach::new(path, 0, format!("{lines} lines; split it"))).collect()
}

/// Names that say nothing about what is inside.
const EMPTY_NAMES: &[&str] = &["util", "utils", "common", "misc", "helper", "helpers"];

/// No crate and no module is named for nothing.
pub fn empty_names(tree: &Tree) -> Vec<Breach> {
    let mut found = Vec::new();
    for (path, _) in tree.ending(&[".rs"]) {
        let parts = path.trim_end_matches(".rs").split('/');
        for part in parts.filter(|part| EMPTY_NAMES.contains(part)) {
            found.push(Breach::new(path, 0, format!("`{part}` says nothing; name the content")));
        }
    }
    found
}

/// The lines of a text, from 1.
pub fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    (1..).zip(text.lines())
}

#[cfg(test)]
mod tests {
    use super::super::places;
    use super::*;

    #[test]
    fn t0_banned_words_are_found_as_words() {
        let word = BANNED[0].0;
        let text = format!("fine\n// {word}: later\n{word}S is another word\n");
        let tree = Tree::of(&[("a.rs", &text), ("LICENSES/x.txt", &text)]);
        assert_eq!(places(&banned_words(&tree)), [("a.rs", 2)]);
        for (word, _) in BANNED {
            let text = format!("see {word}.");
            assert!(!banned_words(&Tree::of(&[("b.md", &text)])).is_empty(), "{word}");
        }
    }

    #[test]
    fn t0_every_source_names_its_licence() {
        let tree = Tree::of(&[
            ("good.rs", "// SPDX-License-Identifier: Apache-2.0 OR MIT\n"),
            ("good.sh", "#!/bin/sh\n# SPDX-License-Identifier: Apache-2.0 OR MIT\n"),
            ("good.py", "# SPDX-License-Identifier: Apache-2.0 OR MIT\n"),
            ("bad.py", "\"\"\"No licence.\"\"\"\n"),
            ("bad.rs", "//! No licence.\n"),
            ("late.rs", "\n\n// SPDX-License-Identifier: Apache-2.0 OR MIT\n"),
            ("crates/bpf/good.c", "// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)\n"),
            ("crates/bpf/wrong.h", "// SPDX-License-Identifier: Apache-2.0 OR MIT\n"),
            ("notes.md", "needs none\n"),
        ]);
        let expected = [("bad.py", 1), ("bad.rs", 1), ("crates/bpf/wrong.h", 1), ("late.rs", 1)];
        assert_eq!(places(&licence_lines(&tree)), expected);
    }

    #[test]
    fn t0_wide_lines_are_found_and_tabs_count_to_eight() {
        let (exact, wide) = ("ä".repeat(100), "x".repeat(101));
        let tabs = format!("ab\t{}", "x".repeat(93));
        let tree = Tree::of(&[("a.rs", &format!("{exact}\n{wide}\n")), ("b.c", &tabs)]);
        assert_eq!(places(&line_width(&tree)), [("a.rs", 2), ("b.c", 1)]);
    }

    #[test]
    fn t0_long_files_are_found() {
        let tree = Tree::of(&[("a.rs", &"\n".repeat(800)), ("b.rs", &"\n".repeat(801))]);
        assert_eq!(places(&file_length(&tree)), [("b.rs", 0)]);
    }

    #[test]
    fn t0_names_that_say_nothing_are_found() {
        let tree = Tree::of(&[
            ("crates/x/src/utils.rs", ""),
            ("crates/x/tests/common/mod.rs", ""),
            ("crates/x/src/commonly.rs", ""),
        ]);
        let expected = [("crates/x/src/utils.rs", 0), ("crates/x/tests/common/mod.rs", 0)];
        assert_eq!(places(&empty_names(&tree)), expected);
    }
}
