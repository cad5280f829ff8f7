// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rules about the crates: which may know which, which are pure, where unsafe code may stand, and
//! that every dependency is explained.

use std::collections::BTreeSet;

use super::text::numbered;
use super::{Breach, Tree};

/// What each crate may depend on. An arrow points to a crate nearer to the top of this table.
const ARROWS: &[(&str, &[&str])] = &[
    ("base", &[]),
    ("model", &["base"]),
    ("tsn", &["base", "model"]),
    ("stats", &["base"]),
    ("capture", &["base", "stats"]),
    ("sim", &["base", "stats", "tsn"]),
    ("avtp", &["base"]),
    ("plan", &["base", "model", "stats", "tsn"]),
    ("sys", &["base"]),
    ("bpf", &["base", "sys", "capture"]),
    ("host", &["base", "model", "stats", "sys", "tsn"]),
    ("datapath", &["avtp", "base", "bpf", "capture", "host", "model", "stats", "sys", "tsn"]),
    ("lab", &["base", "host", "model", "sim", "stats", "sys"]),
    ("report", &["base", "capture", "model", "stats"]),
    ("agent", &["base", "datapath", "host", "model", "stats", "sys", "tsn"]),
    (
        "runner",
        &[
            "agent", "base", "bpf", "capture", "datapath", "host", "lab", "model", "plan",
            "report", "sim", "stats", "sys", "tsn",
        ],
    ),
    ("capi", &["base", "datapath", "model", "sys", "tsn"]),
    (
        "cli",
        &[
            "agent", "avtp", "base", "bpf", "capture", "datapath", "host", "lab", "model", "plan",
            "report", "runner", "sim", "stats", "sys", "tsn",
        ],
    ),
];
/// Crates without clocks, files, threads and unsafe code.
const PURE: &[&str] = &["base", "model", "tsn", "stats", "capture", "sim", "avtp", "plan"];
/// Modules as pure as those, in crates that are not.
const PURE_MODULES: &[&str] = &["crates/agent/src/protocol"];
/// What acts on the world, or reads it.
const ACTS: &[&str] = &[
    "std::env",
    "std::fs",
    "std::net",
    "std::os",
    "std::process",
    "std::thread",
    "SystemTime",
    "Instant::now",
    "timewire_bpf",
    "timewire_datapath",
    "timewire_host",
    "timewire_sys",
];
/// Crates in which unsafe code may stand: those that speak to the kernel, and the one to which
/// programs in other languages speak.
const UNSAFE: &[&str] = &["sys", "bpf", "capi"];
/// Tests of any crate with privileges may use the laboratory's stations, and compare with the
/// machine's decisions.
const FIXTURES: &[&str] = &["lab", "tsn"];
/// Benchmarks of the planner read the clock of their thread.
const CLOCK: (&str, &str) = ("plan", "sys");
/// External crates that only these may use.
const RESERVED: &[(&str, &[&str])] = &[("anyhow", &["cli", "xtask"])];

const EXPLAINED_IN: &str = "docs/src/adr/0003-dependencies.md";

#[derive(Debug, PartialEq, Eq)]
struct Dependency<'a> {
    name: &'a str,
    of_tests: bool,
    line: usize,
}

/// The dependencies a manifest names, workspace-wide ones included.
fn dependencies(manifest: &str) -> Vec<Dependency<'_>> {
    let mut found = Vec::new();
    let mut section = "";
    for (line, text) in numbered(manifest) {
        if let Some(header) = text.trim().strip_prefix('[').and_then(|t| t.strip_suffix(']')) {
            section = header;
            // [dependencies.NAME]
            if let Some((kind, name)) = header.rsplit_once("dependencies.") {
                found.push(Dependency { name, of_tests: kind.ends_with("dev-"), line });
            }
        } else if section.ends_with("dependencies")
            && let Some((key, _)) = text.split_once('=')
            && !text.starts_with([' ', '#'])
        {
            let name = key.trim().trim_end_matches(".workspace");
            found.push(Dependency { name, of_tests: section.ends_with("dev-dependencies"), line });
        }
    }
    found
}

/// Of workspaces of their own.
const APART: [&str; 2] = ["fuzz/Cargo.toml", "peers/Cargo.toml"];

/// `crates/NAME/Cargo.toml` -> `NAME`.
fn crate_of(path: &str) -> Option<&str> {
    path.strip_prefix("crates/")?.split('/').next()
}

/// Every arrow between crates is one of the table.
pub fn arrows(tree: &Tree) -> Vec<Breach> {
    let mut found = Vec::new();
    for (path, manifest) in tree.ending(&["/Cargo.toml"]) {
        let Some(name) = crate_of(path) else { continue };
        let Some((_, allowed)) = ARROWS.iter().find(|(known, _)| *known == name) else {
            found.push(Breach::new(path, 0, format!("`{name}` is not in the table of arrows")));
            continue;
        };
        for dependency in dependencies(manifest) {
            let Some(target) = dependency.name.strip_prefix("timewire-") else {
                continue;
            };
            let fixture =
                dependency.of_tests && FIXTURES.contains(&target) && !PURE.contains(&name);
            let measures = dependency.of_tests && (name, target) == CLOCK;
            if !fixture && !measures && !allowed.contains(&target) {
                let what = format!("{name} -> {target} is not in the table of arrows");
                found.push(Breach::new(path, dependency.line, what));
            }
        }
    }
    found
}

/// Every crate has the workspace's lints and its own name, and leaves others' dependencies alone.
pub fn manifests(tree: &Tree) -> Vec<Breach> {
    let mut found = Vec::new();
    for (path, manifest) in tree.ending(&["/Cargo.toml"]).filter(|(path, _)| !APART.contains(path))
    {
        if !manifest.contains("[lints]\nworkspace = true") {
            found.push(Breach::new(path, 0, "`[lints]` does not say `workspace = true`"));
        }
        let name = crate_of(path).unwrap_or("xtask");
        let expected = if name == "xtask" { name.to_owned() } else { format!("timewire-{name}") };
        if !manifest.contains(&format!("name = \"{expected}\"\n")) {
            found.push(Breach::new(path, 0, format!("the package is not named {expected}")));
        }
        for dependency in dependencies(manifest) {
            let reserved = RESERVED.iter().find(|(external, _)| *external == dependency.name);
            if reserved.is_some_and(|(_, users)| !users.contains(&name)) {
                let what = format!("`{}` is not for libraries", dependency.name);
                found.push(Breach::new(path, dependency.line, what));
            }
        }
    }
    found
}

/// A pure crate forbids unsafe code and has the clippy rules of all pure crates.
pub fn purity(tree: &Tree) -> Vec<Breach> {
    let mut found = Vec::new();
    let shared_rules = tree.get("crates/base/clippy.toml");
    for name in PURE {
        let (root, rules) =
            (format!("crates/{name}/src/lib.rs"), format!("crates/{name}/clippy.toml"));
        let forbids = |text: &str| text.lines().any(|line| line == "#![forbid(unsafe_code)]");
        if !tree.get(&root).is_some_and(forbids) {
            found.push(Breach::new(&root, 0, "a pure crate has `#![forbid(unsafe_code)]`"));
        }
        if tree.get(&rules) != shared_rules || shared_rules.is_none() {
            found.push(Breach::new(&rules, 0, "differs from crates/base/clippy.toml"));
        }
    }
    found
}

/// A pure module names nothing that acts, and of its own crate only itself.
pub fn pure_modules(tree: &Tree) -> Vec<Breach> {
    let mut found = Vec::new();
    for module in PURE_MODULES {
        let own = module.split_once("/src/").map_or("", |(_, module)| module).replace('/', "::");
        let inside = tree.ending(&[".rs"]).filter(|(path, _)| path.starts_with(module));
        for (path, text) in inside {
            for (number, line) in numbered(text) {
                let code = line.split("//").next().unwrap_or_default();
                let acts = ACTS.iter().find(|word| code.contains(**word));
                let elsewhere = code
                    .match_indices("crate::")
                    .any(|(at, word)| !code[at + word.len()..].starts_with(&own));
                if let Some(word) = acts {
                    let what = format!("`{word}` in a pure module");
                    found.push(Breach::new(path, number, what));
                } else if elsewhere {
                    let what = "a pure module uses another of its crate";
                    found.push(Breach::new(path, number, what));
                }
            }
        }
    }
    found
}

/// Unsafe code stands in three crates, and in tests that count allocations.
pub fn unsafe_code(tree: &Tree) -> Vec<Breach> {
    let mut found = Vec::new();
    for (path, text) in tree.ending(&[".rs"]) {
        let counts_allocations = ["/tests/", "/benches/"].iter().any(|part| path.contains(part))
            && text.contains("#[global_allocator]");
        if counts_allocations || crate_of(path).is_some_and(|name| UNSAFE.contains(&name)) {
            continue;
        }
        for (number, line) in numbered(text) {
            if has_unsafe(line) {
                found.push(Breach::new(
                    path,
                    number,
                    "unsafe code outside `sys`, `bpf` and `capi`",
                ));
            }
        }
    }
    found
}

/// Whether a line opens unsafe code: the keyword and what can follow it.
fn has_unsafe(line: &str) -> bool {
    const KEYWORD: &str = concat!("un", "safe");
    let code = line.split("//").next().unwrap_or_default();
    code.match_indices(KEYWORD).any(|(at, _)| {
        let after = code[at + KEYWORD.len()..].trim_start();
        let starts = ["{", "fn ", "impl", "extern ", "trait ", "("];
        !code[..at].ends_with(['_', '"', '`'])
            && starts.iter().any(|start| after.starts_with(start))
    })
}

/// Every external dependency has its line in the decision about dependencies.
pub fn dependencies_explained(tree: &Tree) -> Vec<Breach> {
    let explained = tree.get(EXPLAINED_IN).unwrap_or_default();
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for (path, manifest) in tree.ending(&["Cargo.toml"]) {
        for dependency in dependencies(manifest) {
            let external = !dependency.name.starts_with("timewire-");
            if external
                && !explained.contains(&format!("`{}`", dependency.name))
                && seen.insert(dependency.name)
            {
                let what = format!("`{}` is not explained in {EXPLAINED_IN}", dependency.name);
                found.push(Breach::new(path, dependency.line, what));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::places;
    use super::*;

    #[test]
    fn t0_dependencies_are_read_in_every_notation() {
        let manifest = "\
[package]
name = \"x\"
[dependencies]
a.workspace = true
b = { version = \"1\", features = [
  \"c\",
] }
[dependencies.d]
version = \"1\"
[target.'cfg(unix)'.dev-dependencies]
e = \"1\"
[workspace.dependencies]
# f = \"1\"
g = \"1\"
";
        let found: Vec<_> = dependencies(manifest).iter().map(|d| (d.name, d.of_tests)).collect();
        assert_eq!(found, [("a", false), ("b", false), ("d", false), ("e", true), ("g", false)]);
    }

    #[test]
    fn t0_arrows_point_down_only() {
        let tree = Tree::of(&[
            ("crates/tsn/Cargo.toml", "[dependencies]\ntimewire-sys.workspace = true\n"),
            ("crates/datapath/Cargo.toml", "[dev-dependencies]\ntimewire-lab.workspace = true\n"),
            ("crates/model/Cargo.toml", "[dev-dependencies]\ntimewire-lab.workspace = true\n"),
            ("crates/plan/Cargo.toml", "[dev-dependencies]\ntimewire-sys.workspace = true\n"),
            ("crates/new/Cargo.toml", "[dependencies]\n"),
        ]);
        let expected = [
            ("crates/model/Cargo.toml", 2),
            ("crates/new/Cargo.toml", 0),
            ("crates/tsn/Cargo.toml", 2),
        ];
        assert_eq!(places(&arrows(&tree)), expected);
    }

    #[test]
    fn t0_the_table_of_arrows_has_no_arrow_upward() {
        for (at, (name, targets)) in ARROWS.iter().enumerate() {
            for target in *targets {
                assert!(
                    ARROWS[..at].iter().any(|(above, _)| above == target),
                    "{name} -> {target}"
                );
            }
        }
    }

    #[test]
    fn t0_manifests_without_lints_or_with_a_reserved_crate_are_found() {
        let good = "name = \"timewire-tsn\"\n[lints]\nworkspace = true\n";
        let lints = good.replace("tsn", "lab");
        let tree = Tree::of(&[
            ("crates/tsn/Cargo.toml", good),
            ("crates/sys/Cargo.toml", "name = \"timewire-sys\"\n"),
            ("crates/bpf/Cargo.toml", good),
            ("xtask/Cargo.toml", "name = \"xtask\"\n[lints]\nworkspace = true\n"),
            ("crates/lab/Cargo.toml", &format!("{lints}[dependencies]\nanyhow = \"1\"\n")),
        ]);
        let expected = [
            ("crates/bpf/Cargo.toml", 0),
            ("crates/lab/Cargo.toml", 5),
            ("crates/sys/Cargo.toml", 0),
        ];
        assert_eq!(places(&manifests(&tree)), expected);
    }

    #[test]
    fn t0_pure_crates_forbid_unsafe_code_and_share_their_rules() {
        let tree = Tree::of(&[
            ("crates/base/clippy.toml", "a"),
            ("crates/base/src/lib.rs", "#![forbid(unsafe_code)]\n"),
            ("crates/model/clippy.toml", "b"),
            ("crates/model/src/lib.rs", "#![forbid(unsafe_code)]\n"),
            ("crates/tsn/clippy.toml", "a"),
            ("crates/tsn/src/lib.rs", "// #![forbid(unsafe_code)]\n"),
            ("crates/capture/src/lib.rs", "#![forbid(unsafe_code)]\n"),
            ("crates/stats/clippy.toml", "a"),
            ("crates/stats/src/lib.rs", "#![forbid(unsafe_code)]\n"),
            ("crates/sim/clippy.toml", "a"),
            ("crates/sim/src/lib.rs", "#![forbid(unsafe_code)]\n"),
            ("crates/avtp/clippy.toml", "a"),
            ("crates/avtp/src/lib.rs", "#![forbid(unsafe_code)]\n"),
            ("crates/plan/clippy.toml", "a"),
            ("crates/plan/src/lib.rs", "#![forbid(unsafe_code)]\n"),
        ]);
        let expected = [
            ("crates/model/clippy.toml", 0),
            ("crates/tsn/src/lib.rs", 0),
            ("crates/capture/clippy.toml", 0),
        ];
        assert_eq!(places(&purity(&tree)), expected);
    }

    #[test]
    fn t0_a_pure_module_names_nothing_that_acts() {
        let tree = Tree::of(&[
            (
                "crates/agent/src/protocol/a.rs",
                "use std::fs;\n// std::fs\nuse crate::protocol::b;\n",
            ),
            ("crates/agent/src/protocol/b.rs", "use crate::links::Link;\n"),
            ("crates/agent/src/links/a.rs", "use std::fs;\n"),
        ]);
        let expected =
            [("crates/agent/src/protocol/a.rs", 1), ("crates/agent/src/protocol/b.rs", 1)];
        assert_eq!(places(&pure_modules(&tree)), expected);
    }

    #[test]
    fn t0_unsafe_code_is_found_and_talk_about_it_is_not() {
        let block = concat!("let x = un", "safe { y };\n");
        let allocator = format!("#[global_allocator]\n{block}");
        let tree = Tree::of(&[
            ("crates/sys/src/a.rs", block),
            ("crates/capi/src/a.rs", block),
            ("crates/host/src/a.rs", block),
            ("crates/host/tests/a.rs", block),
            ("crates/tsn/tests/a.rs", &allocator),
            ("crates/tsn/src/a.rs", concat!("un", "safe impl Send for X {}")),
            ("crates/lab/src/a.rs", concat!("//! un", "safe fn\n#![forbid(un", "safe_code)]\n")),
        ]);
        let expected = [
            ("crates/host/src/a.rs", 1),
            ("crates/host/tests/a.rs", 1),
            ("crates/tsn/src/a.rs", 1),
        ];
        assert_eq!(places(&unsafe_code(&tree)), expected);
    }

    #[test]
    fn t0_an_unexplained_dependency_is_found_once() {
        let tree = Tree::of(&[
            (EXPLAINED_IN, "| `serde` | why |"),
            ("Cargo.toml", "[workspace.dependencies]\nserde = \"1\"\nleft-pad = \"1\"\n"),
            ("crates/a/Cargo.toml", "[dependencies]\nleft-pad.workspace = true\n"),
        ]);
        assert_eq!(places(&dependencies_explained(&tree)), [("Cargo.toml", 3)]);
    }
}
