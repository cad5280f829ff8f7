// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rules about the documentation: every page is in the table of contents, and every link leads
//! somewhere.

use super::text::numbered;
use super::{Breach, Tree};

const PAGES: &str = "docs/src/";
const CONTENTS: &str = "docs/src/SUMMARY.md";

/// Every page of the book is in its table of contents.
pub fn every_page_is_listed(tree: &Tree) -> Vec<Breach> {
    let contents = tree.get(CONTENTS).unwrap_or_default();
    let listed: Vec<String> = links_of(contents).map(|(_, to)| resolve(CONTENTS, to)).collect();
    let pages = tree.ending(&[".md"]).map(|(path, _)| path);
    let missing = pages.filter(|path| {
        path.starts_with(PAGES) && *path != CONTENTS && !listed.iter().any(|page| page == path)
    });
    missing.map(|path| Breach::new(path, 0, "not in docs/src/SUMMARY.md")).collect()
}

/// Every relative link of every Markdown file leads to a file or directory of the repository.
pub fn links(tree: &Tree) -> Vec<Breach> {
    broken(tree, |tree, _, target| !tree.has(target), "leads nowhere")
}

/// A page of the book links to pages of the book: nothing else is there when it is read as a book.
pub fn links_stay_in_the_book(tree: &Tree) -> Vec<Breach> {
    let leaves =
        |_: &Tree, from: &str, target: &str| from.starts_with(PAGES) && !target.starts_with(PAGES);
    broken(tree, leaves, "leads out of the book; name the file as `code`")
}

fn broken(tree: &Tree, is: fn(&Tree, &str, &str) -> bool, what: &str) -> Vec<Breach> {
    let mut found = Vec::new();
    for (path, text) in tree.ending(&[".md"]) {
        for (line, link) in links_of(text) {
            if is(tree, path, &resolve(path, link)) {
                found.push(Breach::new(path, line, format!("`{link}` {what}")));
            }
        }
    }
    found
}

/// The relative links outside code, without their anchors, with their lines.
fn links_of(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    let prose = numbered(text).filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        in_code ^= fence;
        !fence && !in_code
    });
    let targets = prose.flat_map(|(number, line)| {
        let outside_code = line.split('`').step_by(2);
        let ends = outside_code.flat_map(|part| part.split("](").skip(1));
        // `[`code`](target)`: the bracket closes right after the code.
        ends.filter_map(move |rest| Some((number, rest.split_once(')')?.0)))
    });
    let relative =
        targets.filter(|(_, link)| !link.contains("://") && !link.starts_with("mailto:"));
    let without_anchor = relative.map(|(n, link)| (n, link.split('#').next().unwrap_or_default()));
    without_anchor.filter(|(_, link)| !link.is_empty())
}

/// The path from the top of the repository that a link means.
fn resolve(from: &str, link: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in link.trim_end_matches('/').split('/') {
        match part {
            "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::super::places;
    use super::*;

    #[test]
    fn t0_pages_and_contents_agree() {
        let tree = Tree::of(&[
            (CONTENTS, "- [A](a.md)\n- [B](how-to/b.md)\n- [Gone](gone.md)\n"),
            ("docs/src/a.md", ""),
            ("docs/src/how-to/b.md", ""),
            ("docs/src/how-to/forgotten.md", ""),
            ("README.md", ""),
        ]);
        let unlisted = every_page_is_listed(&tree);
        assert_eq!(places(&unlisted), [("docs/src/how-to/forgotten.md", 0)]);
        assert_eq!(places(&links(&tree)), [(CONTENTS, 3)]);
    }

    #[test]
    fn t0_links_are_followed_relative_to_their_page() {
        let text = "\
[up](../README.md#start) [web](https://example.org/x) [here](#anchor) [mail](mailto:a@b)
[dir](../crates/) `[code](nowhere.md)` [`named`](nowhere.md)
```
[fenced](nowhere.md)
```
[bad](../../README.md)
";
        let tree = Tree::of(&[("docs/x.md", text), ("README.md", ""), ("crates/a/Cargo.toml", "")]);
        assert_eq!(places(&links(&tree)), [("docs/x.md", 2), ("docs/x.md", 6)]);
    }

    #[test]
    fn t0_a_page_of_the_book_stays_in_the_book() {
        let text = "[a](b.md)\n[out](../../README.md)\n";
        let tree = Tree::of(&[("docs/src/a.md", text), ("docs/src/b.md", ""), ("README.md", text)]);
        assert_eq!(places(&links_stay_in_the_book(&tree)), [("docs/src/a.md", 2)]);
    }
}
