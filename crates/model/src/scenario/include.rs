// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files that include others: the text of a file with those of the files that it includes before
//! its own, each in a part that begins with a line of its name. Each part changes what stands
//! before it, as a case changes its file.
//!
//! Not here: reading the files.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use super::ScenarioErrors;
use super::change::merged;
use super::error::{Mark, Problem};
use super::tree::{MAX_BYTES, Node, Value};

/// How the line begins that names the file of the part behind it.
const PART: &str = "#% file ";
/// The key that names the files.
pub(super) const KEY: &str = "include";

/// Why a file cannot be read with those that it includes.
#[derive(Debug)]
pub enum IncludeError<E> {
    /// The file itself cannot be read.
    Read(E),
    /// What is wrong with a file that it includes, with the place that names it.
    Wrong(ScenarioErrors),
}

/// The text of a file, with those of the files that it includes. `read` reads one.
///
/// **Errors**: one cannot be read; a file includes itself; they are too many or too long.
pub fn with_included<E: Display>(
    path: &Path,
    read: &mut dyn FnMut(&Path) -> Result<String, E>,
) -> Result<String, IncludeError<E>> {
    let own = read(path).map_err(IncludeError::Read)?;
    if let Ok([]) = included(&own).as_deref() {
        return Ok(own);
    }
    let mut all = Collected { read, above: vec![path.to_owned()], files: Vec::new(), bytes: 0 };
    all.add(path, own).map_err(IncludeError::Wrong)?;
    Ok(bundle(all.files.iter().map(|(name, text)| (name.as_str(), text.as_str()))))
}

/// Files that were read.
struct Collected<'a, E> {
    read: &'a mut dyn FnMut(&Path) -> Result<String, E>,
    /// Those that include the next one, one in the other.
    above: Vec<PathBuf>,
    files: Vec<(String, String)>,
    bytes: usize,
}

impl<E: Display> Collected<'_, E> {
    /// Adds what a file includes, and then the file.
    fn add(&mut self, path: &Path, own: String) -> Result<(), ScenarioErrors> {
        let name = path.display().to_string();
        let wrong = |mark: Mark, message: String, hint: &str| {
            let problem = Problem { key: KEY.to_owned(), ..Problem::new(mark, message, hint) };
            ScenarioErrors::new(&name, &own, vec![problem])
        };
        let named = included(&own);
        for (other, mark) in named.map_err(|problem| wrong(problem.mark, problem.message, HINT))? {
            let other = path.parent().unwrap_or(Path::new("")).join(other);
            let shown = other.display();
            if self.above.contains(&other) {
                let message = format!("{shown} includes this file");
                return Err(wrong(mark, message, "let one of them stand alone"));
            }
            if self.above.len() > DEEPEST || self.files.len() >= MOST || self.bytes > MAX_BYTES {
                let message = format!(
                    "more than {DEEPEST} files in each other, {MOST} in all or {MAX_BYTES} bytes"
                );
                return Err(wrong(mark, message, "write fewer files"));
            }
            let text = (self.read)(&other);
            let text = text.map_err(|error| {
                wrong(mark, format!("{error:#}"), "name a file, as seen from this one")
            })?;
            self.above.push(other.clone());
            self.add(&other, text)?;
            self.above.pop();
        }
        self.bytes = self.bytes.saturating_add(own.len());
        // What a run kept has its parts already.
        let parts = parts(&own).into_iter();
        let file = |part: Part<'_>| {
            let name = part.name.map_or_else(|| name.clone(), ToOwned::to_owned);
            (name, part.text.to_owned())
        };
        self.files.extend(parts.map(file));
        Ok(())
    }
}

/// So many files can include each other, one in the other.
const DEEPEST: usize = 8;
/// So many files can be one.
const MOST: usize = 64;
const HINT: &str = "write `include: FILE`, or a list of files";

/// One text of the texts of several files, each with its name, the including one last.
pub fn bundle<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let part = |(name, text): (&str, &str)| {
        // Nobody's comment begins a part.
        let text = format!("\n{text}").replace(&format!("\n{PART}"), &format!("\n {PART}"));
        let end = if text.ends_with('\n') { "" } else { "\n" };
        format!("{PART}{}{text}{end}", name.replace(['\n', '\r'], " "))
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

/// The files that a text includes, in their order, each with its place; none of a text that is no
/// YAML.
///
/// **Errors**: something else stands where names go.
fn included(text: &str) -> Result<Vec<(String, Mark)>, Problem> {
    // Most files include none, and a long one is not read twice for that.
    if !text.contains(KEY) {
        return Ok(Vec::new());
    }
    let (mut roots, none) = (parts(text), Ok(Vec::new()));
    let (Some(part), true) = (roots.pop(), roots.is_empty()) else { return none };
    let Ok(root) = super::tree::read(part.text, part.line) else { return none };
    let Value::Map(entries) = root.value else { return none };
    let Some((_, node)) = entries.into_iter().find(|(key, _)| key.text == KEY) else { return none };
    let name = |node: Node| match node.value {
        Value::Scalar { ref text, .. } if !node.is_null() && !text.is_empty() => {
            Ok((text.clone(), node.mark))
        }
        _ => {
            let message = format!("here is {}, where the name of a file goes", node.what());
            Err(Problem::new(node.mark, message, HINT))
        }
    };
    match node.value {
        Value::List(nodes) => nodes.into_iter().map(name).collect(),
        _ => name(node).map(|one| vec![one]),
    }
}

/// What the parts are together; each but the first changes what stands before it.
pub(super) fn together(parts: Vec<Node>) -> Result<Node, Vec<Problem>> {
    let mut problems: Vec<Problem> = parts.iter().filter_map(no_group).collect();
    if !problems.is_empty() {
        return Err(problems);
    }
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

fn no_group(part: &Node) -> Option<Problem> {
    let Value::Map(_) = part.value else {
        let message = format!("here is {}, where a group of keys goes", part.what());
        return Some(Problem::new(part.mark, message, "write `key: value`"));
    };
    None
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
        let file = parse(&of(own)).unwrap().base;
        assert_eq!((file.name.as_str(), file.streams[0].size.unwrap().get()), ("own", 128));
        assert_eq!(file.limits[0].at_most.to_string(), "2ms");
        assert_eq!(file.stations.len(), 2);
    }

    #[test]
    fn t0_a_change_of_a_case_can_be_changed_and_keeps_what_it_takes_out() {
        let cases = "experiment: { cases: [{ name: c, change: { seed: 3 } }, { name: d }] }\n";
        let base = format!("{BASE}{cases}");
        let of = |own: &str| bundle([("base.yaml", base.as_str()), ("own.yaml", own)]);
        let own = "experiment: { cases: { c: { change: { seed: null, streams: { s: { size: 80B } },
            description: x } }, d: { change: { limits: null, seed: 9 } } } }";
        let told = parse(&of(own)).unwrap_err();
        assert!(told.contains("`limits` is of the whole file"), "{told}");
        let all = parse(&of(&own.replace("limits: null, ", ""))).unwrap();
        let [c, d] = &all.cases[..] else { panic!("{all:?}") };
        assert_eq!((c.file.seed.get(), d.file.seed.get()), (1, 9));
        assert_eq!(c.file.streams[0].size.unwrap().get(), 80);
        // What takes out a key that there is not is a mistake.
        let told =
            parse(&of("sed: null\nexperiment: { cases: { c: { change: { sead: null } } } }"));
        let told = told.unwrap_err();
        assert!(told.starts_with("error: own.yaml:1:1: unknown key `sed`: did you"), "{told}");
        let told = parse(&of("experiment: { cases: { c: { change: { sead: null } } } }"));
        let says = "own.yaml:1:39: in the case `c`: unknown key `sead`: did you mean `seed`?";
        let told = told.unwrap_err();
        assert!(told.contains(says), "{told}");
        let told = parse(&of("stations: null")).unwrap_err();
        let says = "error: own.yaml:1:11: the key `stations` is needed, and taken out here";
        assert!(told.starts_with(says), "{told}");
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
            ("null.yaml", "include:\n - null"),
            ("many.yaml", &format!("include: [{}]", ["one.yaml"; 99].join(", "))),
            ("one.yaml", "seed: 1"),
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
        let mut wrong = |name: &str| match with_included(Path::new(name), &mut read).unwrap_err() {
            IncludeError::Wrong(errors) => errors.to_string().lines().next().unwrap().to_owned(),
            IncludeError::Read(error) => error.to_owned(),
        };
        assert_eq!(wrong("me.yaml"), "error: me.yaml:1:10: include: me.yaml includes this file");
        assert_eq!(wrong("lost.yaml"), "error: lost.yaml:1:10: include: not there");
        assert_eq!(wrong("none.yaml"), "not there");
        assert_eq!(
            wrong("null.yaml"),
            "error: null.yaml:2:4: include: here is nothing, where the name of a file goes"
        );
        let many = wrong("many.yaml");
        assert!(many.contains(": include: more than 8 files in each other, 64 in all"), "{many}");
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
        assert!(told.contains("own.yaml:2:") && told.contains("this is no YAML"), "{told}");
    }
}
