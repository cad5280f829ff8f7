// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rules about test programs: the integration tests of a crate are one program, `tests/all.rs`,
//! beside those that its manifest names; no file of tests is left out; and a command that names
//! a program or a module of tests names one that is there, since a filter that selects nothing
//! passes.

use super::text::numbered;
use super::{Breach, Tree};

/// Every file below `tests` is a program, or a module of one; a crate with several files says in
/// its manifest which are programs.
pub fn test_files(tree: &Tree) -> Vec<Breach> {
    let mut found = Vec::new();
    for (manifest, text) in tree.ending(&["/Cargo.toml"]) {
        let Some(package) = manifest.strip_suffix("/Cargo.toml") else { continue };
        let tests = format!("{package}/tests/");
        if !text.contains(NOT_FOUND) && found_by_cargo(tree, package).count() > 1 {
            let what = "cargo makes each file of tests a program: `autotests = false`";
            found.push(Breach::new(manifest, 0, what));
            continue;
        }
        let files = tree.ending(&[".rs"]).filter_map(|(path, _)| path.strip_prefix(&tests));
        for file in files.filter(|file| !is_compiled(tree, package, file)) {
            let what = "no test program has this file: declare it in `tests/all.rs`";
            found.push(Breach::new(&format!("{tests}{file}"), 0, what));
        }
    }
    found
}

/// In a manifest: cargo makes no programs of the files that it finds.
const NOT_FOUND: &str = "\nautotests = false\n";

/// The names of programs that cargo would find, but for those that the manifest names.
fn found_by_cargo<'a>(tree: &'a Tree, package: &str) -> impl Iterator<Item = &'a str> {
    let (tests, manifest) = (format!("{package}/tests/"), manifest(tree, package));
    let names = tree.ending(&[".rs"]).filter_map(move |(path, _)| {
        let file = path.strip_prefix(&tests)?;
        file.strip_suffix("/main.rs").or_else(|| file.strip_suffix(".rs"))
    });
    names.filter(move |name| !name.contains('/') && !is_named(manifest, name))
}

fn manifest<'a>(tree: &'a Tree, package: &str) -> &'a str {
    tree.get(&format!("{package}/Cargo.toml")).unwrap_or_default()
}

fn is_named(manifest: &str, program: &str) -> bool {
    manifest.contains(&format!("[[test]]\nname = \"{program}\"\n"))
}

fn is_program(tree: &Tree, package: &str, name: &str) -> bool {
    let manifest = manifest(tree, package);
    let found = || found_by_cargo(tree, package).any(|found| found == name);
    is_named(manifest, name) || !manifest.contains(NOT_FOUND) && found()
}

/// Whether a file below `tests` is in a program.
fn is_compiled(tree: &Tree, package: &str, file: &str) -> bool {
    let tests = format!("{package}/tests/");
    let program = file.strip_suffix("/main.rs").or_else(|| file.strip_suffix(".rs"));
    if program.is_some_and(|name| is_program(tree, package, name)) {
        return true;
    }
    let module = file.strip_suffix("/mod.rs").unwrap_or(file.trim_end_matches(".rs"));
    let (directory, module) = match module.rsplit_once('/') {
        Some((directory, module)) => (format!("{tests}{directory}/"), module),
        None => (tests, module),
    };
    // That of the directory may be a file beside it.
    let parent = format!("{}.rs", directory.trim_end_matches('/'));
    let (declaration, by_path) = (format!("mod {module};"), format!("/tests/{file}\"]"));
    tree.ending(&[".rs"]).any(|(path, text)| {
        let beside = path.strip_prefix(&directory).is_some_and(|rest| !rest.contains('/'));
        let declares = (beside || path == parent)
            && text.lines().any(|line| line.trim_start_matches("pub ") == declaration);
        let includes = |line: &str| line.starts_with("#[path = ") && line.ends_with(&by_path);
        declares || text.contains(&by_path) && text.lines().any(includes)
    })
}

/// What `cargo test -p CRATE --test PROGRAM MODULE::TEST` names, in pages, scripts and sources, is
/// there.
pub fn commands(tree: &Tree) -> Vec<Breach> {
    let mut found = Vec::new();
    for (path, text) in tree.ending(&[".md", ".rs", ".sh", ".ci/run"]) {
        // The tests of these rules name what is not there.
        if path.starts_with("xtask/") {
            continue;
        }
        let mut command = String::new();
        for (number, line) in numbered(text) {
            command.push_str(line);
            if command.ends_with('\\') {
                command.pop();
                continue;
            }
            for what in missing(tree, &command) {
                found.push(Breach::new(path, number, what));
            }
            command.clear();
        }
    }
    found
}

/// What a command names and is not there.
fn missing(tree: &Tree, command: &str) -> Vec<String> {
    let words: Vec<&str> = command.split_whitespace().collect();
    let after = |options: &[&str]| {
        let at = words.iter().position(|word| options.contains(word))?;
        words.get(at + 1).map(|word| bare(word))
    };
    let package = after(&["-p", "--package"]).and_then(|name| name.strip_prefix("timewire-"));
    let Some((package, first)) = package.zip(words.iter().position(|word| *word == "--test"))
    else {
        return Vec::new();
    };
    let directory = format!("crates/{package}");
    let mut found = Vec::new();
    for pair in words[first..].windows(2) {
        let (option, word) = (pair[0], bare(pair[1]));
        if option == "--test" && !is_program(tree, &directory, word) {
            found.push(format!("`{package}` has no test program `{word}`"));
        }
        if let Some((module, test)) = word.split_once("::")
            && !has_test(tree, &format!("{directory}/tests/{module}"), test)
        {
            found.push(format!("`{package}` has no test `{word}`"));
        }
        // A page goes on after a command.
        if pair[1].contains('`') {
            break;
        }
    }
    found
}

/// A word without what stands around it in a text.
fn bare(word: &str) -> &str {
    let word = word.split(['`', '"', '\'', ')']).find(|part| !part.is_empty()).unwrap_or_default();
    word.trim_end_matches(['.', ',', ';'])
}

/// Whether a module, a file or a directory, has a test whose name begins so.
fn has_test(tree: &Tree, module: &str, start: &str) -> bool {
    let is_of = |path: &str| {
        path.strip_prefix(module).is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
    };
    let test = format!("fn {start}");
    tree.ending(&[".rs"]).any(|(path, text)| is_of(path) && text.contains(&test))
}

#[cfg(test)]
mod tests {
    use super::super::places;
    use super::*;

    const MANIFEST: &str =
        "[package]\nautotests = false\n\n[[test]]\nname = \"all\"\n\n[[test]]\nname = \"own\"\n";

    #[test]
    fn t0_files_of_tests_that_no_program_has_are_found() {
        let tree = Tree::of(&[
            ("crates/a/Cargo.toml", MANIFEST),
            ("crates/a/src/x/tests/y.rs", ""),
            ("crates/a/tests/all.rs", "mod one;\npub mod support;\n// mod left;\n"),
            ("crates/a/tests/one.rs", "mod below;\n"),
            ("crates/a/tests/one/below.rs", ""),
            ("crates/a/tests/left.rs", ""),
            ("crates/a/tests/own/main.rs", "mod part;\n#[path = \"../../tests/far/it.rs\"]\n"),
            ("crates/a/tests/own/part.rs", ""),
            ("crates/a/tests/own/other.rs", ""),
            ("crates/a/tests/far/it.rs", ""),
            ("crates/a/tests/support/mod.rs", ""),
            ("crates/a/tests/gone/mod.rs", ""),
            ("crates/b/Cargo.toml", "[package]\n\n[[test]]\nname = \"all\"\n"),
            ("crates/b/tests/all.rs", ""),
            ("crates/b/tests/one.rs", ""),
            ("crates/b/tests/two/main.rs", ""),
            ("crates/c/Cargo.toml", "[package]\n"),
            ("crates/c/tests/alone.rs", "mod support;\n"),
            ("crates/c/tests/support/mod.rs", ""),
        ]);
        let expected = [
            ("crates/a/tests/gone/mod.rs", 0),
            ("crates/a/tests/left.rs", 0),
            ("crates/a/tests/own/other.rs", 0),
            ("crates/b/Cargo.toml", 0),
        ];
        assert_eq!(places(&test_files(&tree)), expected);
    }

    #[test]
    fn t0_commands_that_name_no_program_or_no_test_are_found() {
        let page = "\
`cargo test -p timewire-a --test own` and `x::y`, `cargo test -p timewire-a --test all one::`.
`cargo test -p timewire-a --test gone`
`cargo test -p timewire-a --test all -- gone::`
cargo test --package timewire-a --test all \\
    -- one::t0_first one::t0_second
cargo test -p timewire-b --test all
";
        let tree = Tree::of(&[
            ("crates/a/Cargo.toml", MANIFEST),
            ("crates/a/tests/one.rs", "fn t0_first_of_all() {}\n"),
            ("docs/src/page.md", page),
            ("xtask/src/x.rs", page),
        ]);
        let found = commands(&tree);
        let at = |line| ("docs/src/page.md", line);
        assert_eq!(places(&found), [at(2), at(3), at(5), at(6)]);
        assert!(found[2].to_string().ends_with("`a` has no test `one::t0_second`"));
    }
}
