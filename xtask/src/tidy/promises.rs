// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rule about `SPECIFICATION.md`: its promises are numbered in turn, and each names tests that
//! are there.

use std::collections::BTreeSet;

use super::text::numbered;
use super::{Breach, Tree};

const FILE: &str = "SPECIFICATION.md";

/// Every promise has the next number and at least one test; every test is there.
pub fn have_tests(tree: &Tree) -> Vec<Breach> {
    let Some(text) = tree.get(FILE) else {
        return vec![Breach::new(FILE, 0, "is not there")];
    };
    let tests: BTreeSet<&str> =
        tree.ending(&[".rs"]).flat_map(|(_, source)| source.split(|c| !is_of_a_name(c))).collect();
    let mut found = Vec::new();
    // The last promise, and how many tests it has.
    let mut last: Option<(usize, u32, usize)> = None;
    for (line, content) in numbered(text) {
        let number = content.split_once(". ").and_then(|(number, _)| number.parse::<u32>().ok());
        if let Some(number) = number {
            found.extend(without_a_test(last));
            if number != last.map_or(0, |(_, number, _)| number) + 1 {
                found.push(Breach::new(FILE, line, format!("promise {number} is out of turn")));
            }
            last = Some((line, number, 0));
        } else if let Some(name) = content.trim_start().strip_prefix("- `") {
            let name = name.trim_end_matches('`');
            if !tests.contains(name) {
                found.push(Breach::new(FILE, line, format!("there is no test `{name}`")));
            }
            if let Some((_, _, count)) = &mut last {
                *count += 1;
            }
        }
    }
    found.extend(without_a_test(last));
    found
}

fn without_a_test(promise: Option<(usize, u32, usize)>) -> Option<Breach> {
    let (line, number, 0) = promise? else { return None };
    Some(Breach::new(FILE, line, format!("promise {number} has no test")))
}

fn is_of_a_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::super::places;
    use super::*;

    #[test]
    fn t0_promises_without_tests_and_tests_that_are_not_there_are_found() {
        let source = ("a.rs", "fn t0_one() {}\nconst B: &str = \"t4_two\";\n");
        let good =
            "# P\n\n1. One\n   more.\n   - `t0_one`\n   - `t4_two`\n\n2. Two.\n   - `t0_one`\n";
        assert!(have_tests(&Tree::of(&[source, (FILE, good)])).is_empty());
        let bad = "1. One.\n\n3. Two.\n   - `t0_on`\n\n4. Three.\n";
        let tree = Tree::of(&[source, (FILE, bad)]);
        let found = have_tests(&tree);
        assert_eq!(places(&found), [(FILE, 1), (FILE, 3), (FILE, 4), (FILE, 6)]);
        assert_eq!(have_tests(&Tree::default()).len(), 1);
    }
}
