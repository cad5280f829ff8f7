// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The list of what is not executed: a line for each block, or for all of a page, with the reason.

/// `PAGE | BEGIN OF THE FIRST COMMAND | REASON` in each line that is neither empty nor a comment;
/// `*` for all commands of the page, and a begin with `$` at its end for that command alone.
pub struct Listed(Vec<Entry>);

struct Entry {
    page: String,
    begin: String,
    uses: usize,
}

impl Listed {
    /// # Errors
    ///
    /// A line that is something else, or has no reason.
    pub fn of(text: &str) -> Result<Listed, String> {
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let entries = lines.map(|line| match line.split(" | ").collect::<Vec<_>>()[..] {
            [page, begin, reason] if !reason.trim().is_empty() => {
                Ok(Entry { page: page.to_owned(), begin: begin.to_owned(), uses: 0 })
            }
            _ => Err(format!("not `PAGE | BEGIN | REASON`: {line}")),
        });
        entries.collect::<Result<_, _>>().map(Listed)
    }

    /// Whether a block is listed, by its first command.
    pub fn has(&mut self, page: &str, command: &str) -> bool {
        let begins = |begin: &str| match begin.strip_suffix('$') {
            Some(whole) => command == whole,
            None => begin == "*" || command.starts_with(begin),
        };
        let is_it = |entry: &&mut Entry| entry.page == page && begins(&entry.begin);
        let entry = self.0.iter_mut().find(is_it);
        entry.map(|entry| entry.uses += 1).is_some()
    }

    /// What is wrong with the entries that named no block, or several where one was meant.
    pub fn unused(&self) -> impl Iterator<Item = String> {
        let wrong = |entry: &Entry| entry.uses == 0 || (entry.uses > 1 && entry.begin != "*");
        self.0.iter().filter(move |entry| wrong(entry)).map(|entry| {
            let Entry { page, begin, uses } = entry;
            format!("not_executed.txt: {page} has {uses} blocks that begin with `{begin}`")
        })
    }
}

#[test]
fn t0_a_list_is_of_blocks_that_are_there() {
    let mut listed = Listed::of("# no\n\na.md | * | far\nb.md | make | long\n").unwrap();
    assert!(listed.has("a.md", "one") && listed.has("a.md", "two"));
    assert!(!listed.has("b.md", "one") && !listed.has("c.md", "make"));
    let why = "not_executed.txt: b.md has 0 blocks that begin with `make`";
    assert_eq!(listed.unused().collect::<Vec<_>>(), [why]);
    assert!(listed.has("b.md", "make demo") && listed.unused().count() == 0);
    assert!(listed.has("b.md", "make lab") && listed.unused().count() == 1);
    let mut listed = Listed::of("a.md | make$ | long\n").unwrap();
    assert!(!listed.has("a.md", "make demo") && listed.has("a.md", "make"));
    for wrong in ["a.md", "a.md | *", "a.md | * | "] {
        assert!(Listed::of(wrong).is_err(), "{wrong}");
    }
}
