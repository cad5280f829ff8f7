// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files that include others: the text of a file with those of the files that it includes before
//! its own, each in a part that begins with a line of its name. Each part changes what stands
//! before it, as a case changes its file.
//!
//! Not here: reading the files.

use std::path::{Path, PathBuf};

use super::change::merged;
use super::error::Problem;
use super::tree::{Node, Value};

/// How the line begins that names the file of the part behind it.
const PART: &str = "#% file ";
/// The key that names the files.
pub(super) const KEY: &str = "include";

/// Why a file cannot be read with those that it includes.
#[derive(Debug)]
pub enum IncludeError<E> {
    /// One of them cannot be read.
    Read {
        /// Who includes it; `None` of the file itself.
        by: Option<PathBuf>,
        /// Why.
        error: E,
    },
    /// A file includes itself, or others that do, or too many are in each other.
    Circle {
        /// The file.
        file: PathBuf,
        /// What it includes.
        other: PathBuf,
    },
}

/// The text of a file, with those of the files that it includes. `read` reads one.
///
/// **Errors**: one cannot be read; a file includes itself.
pub fn with_included<E>(
    path: &Path,
    read: &mut dyn FnMut(&Path) -> Result<String, E>,
) -> Result<String, IncludeError<E>> {
    let own = read(path).map_err(|error| IncludeError::Read { by: None, error })?;
    if included(&own).is_empty() {
        return Ok(own);
    }
    let mut files = Vec::new();
    collect(path, own, &mut vec![path.to_owned()], read, &mut files)?;
    Ok(bundle(files.iter().map(|(name, text)| (name.as_str(), text.as_str()))))
}

/// Adds what a file includes, and then the file.
fn collect<E>(
    path: &Path,
    own: String,
    above: &mut Vec<PathBuf>,
    read: &mut dyn FnMut(&Path) -> Result<String, E>,
    files: &mut Vec<(String, String)>,
) -> Result<(), IncludeError<E>> {
    for name in included(&own) {
        let other = path.parent().unwrap_or(Path::new("")).join(name);
        if above.len() > DEEPEST || above.contains(&other) {
            return Err(IncludeError::Circle { file: path.to_owned(), other });
        }
        let text = read(&other);
        let text = text.map_err(|error| IncludeError::Read { by: Some(path.to_owned()), error })?;
        above.push(other.clone());
        collect(&other, text, above, read, files)?;
        above.pop();
    }
    files.push((path.display().to_string(), own));
    Ok(())
}

/// So many files can include each other, one in the other.
const DEEPEST: usize = 8;

/// One text of the texts of several files, each with its name, the including one last.
pub fn bundle<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let part = |(name, text): (&str, &str)| {
        let end = if text.ends_with('\n') { "" } else { "\n" };
        format!("{PART}{}\n{text}{end}", name.replace(['\n', '\r'], " "))
    };
    files.into_iter().map(part).collect()
}

/// A part of a text.
pub(super) struct Part<'a> {
    /// The name of its file; `None` of a text of one file.
    pub name: Option<&'a str>,
    /// Its lines.
    pub text: &'a str,
    /// Lines of the whole text before it.
    pub line: usize,
}

/// The parts of a text: one, or those that were bundled.
pub(super) fn parts(text: &str) -> Vec<Part<'_>> {
    if !text.starts_with(PART) {
        return vec![Part { name: None, text, line: 0 }];
    }
    let mut parts: Vec<Part<'_>> = Vec::new();
    let (mut at, mut begin) = (0, 0);
    for (line, piece) in text.split_inclusive('\n').enumerate() {
        let end = at + piece.len();
        if let Some(name) = piece.strip_prefix(PART) {
            if let Some(last) = parts.last_mut() {
                last.text = &text[begin..at];
            }
            begin = end;
            parts.push(Part { name: Some(name.trim_end()), text: "", line: line + 1 });
        }
        at = end;
    }
    if let Some(last) = parts.last_mut() {
        last.text = &text[begin..];
    }
    parts
}

/// The files that a text includes, in their order; none of a text that is no YAML.
fn included(text: &str) -> Vec<String> {
    let Ok(root) = super::tree::read(text, 0) else { return Vec::new() };
    let Value::Map(entries) = root.value else { return Vec::new() };
    let named = entries.into_iter().find(|(key, _)| key.text == KEY).map(|(_, node)| node.value);
    let name = |node: Node| match node.value {
        Value::Scalar { text, .. } => Some(text),
        Value::List(_) | Value::Map(_) => None,
    };
    match named {
        Some(Value::Scalar { text, .. }) => vec![text],
        Some(Value::List(nodes)) => nodes.into_iter().filter_map(name).collect(),
        Some(Value::Map(_)) | None => Vec::new(),
    }
}

/// What the parts are together; each but the first changes what stands before it.
pub(super) fn together(parts: Vec<Node>) -> Result<Node, Vec<Problem>> {
    let mut problems = Vec::new();
    let mut all = parts.into_iter().map(without_key);
    let first = all.next();
    let whole = all.fold(first, |base, part| {
        base.as_ref().and_then(|base| merged(Some(base), &part, "", &mut problems))
    });
    match whole {
        Some(whole) if problems.is_empty() => Ok(whole),
        _ => Err(problems),
    }
}

fn without_key(mut node: Node) -> Node {
    if let Value::Map(entries) = &mut node.value {
        entries.retain(|(key, _)| key.text != KEY);
    }
    node
}

/// That a text includes files that are not there.
pub(super) fn alone(root: &Node) -> Option<Problem> {
    let Value::Map(entries) = &root.value else { return None };
    let (key, _) = entries.iter().find(|(key, _)| key.text == KEY)?;
    let message = "what it includes is not here".to_owned();
    let hint = "read it by its name, as `timewire` does, or write out what it includes";
    Some(Problem { key: KEY.to_owned(), ..Problem::new(key.mark, message, hint) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::NothingFurther;
    use crate::scenario::network::NetworkCases;

    const BASE: &str = "timewire: 1\nkind: network\nname: base\nstations: [a, b]\n\
        links: [[a, b]]\nstreams:\n\
        - { name: s, talker: a, listeners: b, size: 64B, period: 1ms }\n\
        limits: [{ id: fast, metric: latency-max, stream: s, at_most: 1ms }]\n";

    fn of(own: &str) -> String {
        bundle([("base.yaml", BASE), ("own.yaml", own)])
    }

    fn parse(text: &str) -> Result<NetworkCases, String> {
        let read = NetworkCases::parse_with(&NothingFurther, "own.yaml", text);
        read.map_err(|errors| errors.to_string())
    }

    #[test]
    fn t0_a_file_changes_what_it_includes() {
        let own = "include: base.yaml\nname: own\nstreams: { s: { size: 128B } }\n\
            limits: { fast: { at_most: 2ms } }\nwarm_up: 1ms";
        assert_eq!(included(own), ["base.yaml"]);
        let file = parse(&of(own)).unwrap().base;
        assert_eq!((file.name.as_str(), file.streams[0].size.unwrap().get()), ("own", 128));
        assert_eq!(file.limits[0].at_most.to_string(), "2ms");
        assert_eq!(file.stations.len(), 2);
        assert_eq!(included("include: [a.yaml, ../b.yaml]\nx: ["), [""; 0]);
        assert_eq!(included("include: [a.yaml, ../b.yaml]"), ["a.yaml", "../b.yaml"]);
        assert_eq!(included("name: x"), [""; 0]);
    }

    #[test]
    fn t0_files_are_read_beside_those_that_include_them() {
        let files = [
            ("d/own.yaml", "include: [e/one.yaml, two.yaml]\nname: own"),
            ("d/e/one.yaml", "include: ../../base.yaml\n"),
            ("d/e/../../base.yaml", BASE),
            ("d/two.yaml", "seed: 7"),
            ("me.yaml", "include: me.yaml"),
            ("lost.yaml", "include: nowhere.yaml"),
        ];
        let mut asked = Vec::new();
        let mut read = |path: &Path| {
            asked.push(path.display().to_string());
            let found = files.iter().find(|(name, _)| Path::new(name) == path);
            found.map(|(_, text)| (*text).to_owned()).ok_or("not there")
        };
        let text = with_included(Path::new("d/own.yaml"), &mut read).unwrap();
        let file = parse(&text).unwrap().base;
        assert_eq!((file.name.as_str(), file.seed.get()), ("own", 7));
        let circle = with_included(Path::new("me.yaml"), &mut read).unwrap_err();
        assert!(matches!(circle, IncludeError::Circle { .. }), "{circle:?}");
        let lost = with_included(Path::new("lost.yaml"), &mut read).unwrap_err();
        let IncludeError::Read { by: Some(by), error: "not there" } = lost else {
            panic!("{lost:?}")
        };
        assert_eq!(by, Path::new("lost.yaml"));
        let order = ["d/own.yaml", "d/e/one.yaml", "d/e/../../base.yaml", "d/two.yaml"];
        assert_eq!(asked[..4], order);
    }

    #[test]
    fn t0_errors_are_told_with_the_file_that_they_are_in() {
        let own = "include: base.yaml\nname: own\nstreams: { video: { size: 128B } }\n";
        let told = parse(&of(own)).unwrap_err();
        let expected = "error: own.yaml:3:12: streams.video: there is no `video` in this list\n";
        assert!(told.starts_with(expected), "{told}");
        let source = "    3 | streams: { video: { size: 128B } }\n      |            ^^^^^\n";
        assert!(told.contains(source) && told.contains("hint: there are `s`"), "{told}");
        let own = "include: base.yaml\nstreams: { s: { size: 64 } }\nwarm_up: 5s\n";
        let told = parse(&of(own)).unwrap_err();
        assert!(told.starts_with("error: own.yaml:2:23: streams[0].size: `64` has no"), "{told}");
        let short =
            of("include: base.yaml\nduration: 1ms\n").replace("stations: [a, b]", "stations: [a]");
        let told = parse(&short).unwrap_err();
        assert!(told.starts_with("error: base.yaml:5:9: links[0].between: there is no"), "{told}");
        let told = parse("include: base.yaml\nname: own").unwrap_err();
        assert!(told.starts_with("error: own.yaml:1:1: include: what it includes"), "{told}");
        let told = parse(&of("include: base.yaml\nname: [")).unwrap_err();
        assert!(told.contains("own.yaml:3:") && told.contains("this is no YAML"), "{told}");
    }
}
