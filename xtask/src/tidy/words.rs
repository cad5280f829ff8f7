// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Words that a reader of this field does not know, or knows otherwise: a private dialect that this
//! repository once had. Names and prose use the terms of IEEE 802.1Q, IEEE 1588 and Linux.

use super::text::numbered;
use super::{Breach, Tree};

/// Words, alone or as a part of a name, the term instead, and where the word is right: text that a
/// line or path then contains. They are written in halves because this file is checked too.
const DIALECT: &[(&str, &str, &[&str])] = &[
    (concat!("ca", "rd"), "NIC", &[]),
    (concat!("ca", "rds"), "NICs", &[]),
    (concat!("sta", "mp"), "timestamp", &["--time-sta"]),
    (concat!("sta", "mps"), "timestamps", &[]),
    (concat!("sta", "mped"), "timestamped", &[]),
    (concat!("sta", "mping"), "timestamping", &["time_sta", "ime sta"]),
    (concat!("unsta", "mped"), "not timestamped", &[]),
    (concat!("ta", "p"), "timestamp point", &[]),
    (concat!("ta", "ps"), "timestamp points", &[]),
    (concat!("jour", "ney"), "packet path", &[]),
    (concat!("jour", "neys"), "packet paths", &[]),
    (concat!("guar", "dian"), "watchdog", &[]),
    (concat!("kee", "per"), "watchdog", &[]),
    (concat!("cam", "paign"), "sweep", &[]),
    (concat!("cam", "paigns"), "sweeps", &[]),
    (concat!("conduc", "tor"), "orchestrator", &[]),
    (concat!("stu", "dio"), "endpoint setup", &[]),
    (concat!("ri", "g"), "test fixture", &[]),
    (concat!("ri", "gs"), "test fixtures", &[]),
    (concat!("cour", "se"), "time series", &["of course", "Of course"]),
    (concat!("she", "et"), "report", &["style she", "stylesh"]),
    (concat!("wi", "sh"), "desired configuration", &[]),
    (concat!("wi", "shes"), "desired configurations", &[]),
    (concat!("wi", "shed"), "desired", &[]),
    (concat!("PATI", "ENCE"), "TIMEOUT, or the limit that it is", &[]),
    (concat!("MA", "NY"), "the number that it is", &[]),
    (concat!("SO", "ME"), "the number that it is", &[]),
    (concat!("SO", "ON"), "the time that it is", &[]),
    (concat!("Ea", "rs"), "the receiver that it is", &[]),
    (concat!("Sto", "ry"), "undo log", &[]),
];

/// No word of the old dialect in any file we wrote.
pub fn dialect(tree: &Tree) -> Vec<Breach> {
    let mut found = Vec::new();
    let ours = |path: &str| !path.starts_with("LICENSE") && path != "Cargo.lock";
    for (path, text) in tree.ending(&[""]).filter(|(path, _)| ours(path)) {
        let names = [(0, path)];
        for (number, line) in names.into_iter().chain(numbered(text)) {
            for (word, instead) in words(line).filter_map(|part| known(part, line)) {
                found.push(Breach::new(path, number, format!("`{word}`: say {instead}")));
            }
        }
    }
    found
}

/// The entry of a word, unless it is right on this line. A word of the list that has capitals is
/// meant with them.
fn known(part: &str, line: &str) -> Option<(&'static str, &'static str)> {
    let is_it = |word: &str| match word.chars().any(char::is_uppercase) {
        true => part == word,
        false => part.eq_ignore_ascii_case(word),
    };
    let (word, instead, right) = DIALECT.iter().find(|(word, _, _)| is_it(word))?;
    (!right.iter().any(|right| line.contains(right))).then_some((*word, *instead))
}

/// The words of a line: runs of ASCII letters, cut where a capital follows a small letter.
fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_ascii_alphabetic()).flat_map(|run| {
        let bytes = run.as_bytes();
        let starts = (1..bytes.len())
            .filter(|at| bytes[at - 1].is_ascii_lowercase() && bytes[*at].is_ascii_uppercase());
        let mut from = 0;
        let parts: Vec<&str> = starts
            .chain([bytes.len()])
            .map(|to| {
                let part = &run[from..to];
                from = to;
                part
            })
            .collect();
        parts
    })
}

#[cfg(test)]
mod tests {
    use super::super::places;
    use super::*;

    #[test]
    fn t0_lines_are_cut_into_their_words() {
        let parts: Vec<&str> = words("let rx_hwQueue2 = TxPoint::SO_Mark; // it's").collect();
        let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        assert_eq!(parts, ["let", "rx", "hw", "Queue", "Tx", "Point", "SO", "Mark", "it", "s"]);
    }

    #[test]
    fn t0_every_word_of_the_dialect_is_found_alone_and_in_names() {
        for (word, _, _) in DIALECT {
            let alone = format!("see the {word}.");
            assert_eq!(places(&dialect(&Tree::of(&[("b.md", &alone)]))), [("b.md", 1)], "{word}");
            let within = format!("x_{word}_of: y{word}s2");
            assert_eq!(dialect(&Tree::of(&[("c.rs", &within)])).len(), 1, "{word}");
            let path = format!("src/{word}.rs");
            assert_eq!(places(&dialect(&Tree::of(&[(&path, "")]))), [(path.as_str(), 0)]);
        }
    }

    #[test]
    fn t0_words_are_right_where_the_list_says_so() {
        let right = concat!("a style she", "et, of cour", "se, and time_sta", "mping\n");
        assert!(dialect(&Tree::of(&[("a.rs", right)])).is_empty());
        let other = "some timestamps of a tapestry soon are many discards";
        assert!(dialect(&Tree::of(&[("a.rs", other)])).is_empty());
    }
}
