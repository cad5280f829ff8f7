// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `sbom PACKAGE`: what a package is made of, as a bill of materials of CycloneDX 1.5.
//! Unlike SPDX 2.3 it needs neither a date nor a name of its own in the world, so that the same
//! tree gives the same bytes.
//!
//! In it are the crates that are compiled into the package: the normal dependencies of its crate,
//! of the target that it is built for, procedural macros among them, since what they write is
//! compiled, too. `cargo tree` knows which those are, with the features that they are built with;
//! what `cargo metadata` resolves has crates that no feature asks for. C code that a crate brings
//! along (libbpf, assembly of ring) is in its crate. Rust's standard library is named with its
//! version; nobody publishes a checksum of it as it is linked. Left out are dependencies of build
//! scripts and of tests, and shared libraries, which are no part of a Debian package: its
//! `Depends` names them. Libraries of Debian that are put into a package are named by who makes it
//! (more arguments), as `pkg:deb`; a checksum is left to Debian's archive.
//!
//! **Source**: CycloneDX 1.5 JSON schema; package URLs (`pkg:cargo`); `cargo metadata` version 1.
//!
//! Not here: the packages (`scripts/package.sh`), which licences are allowed (`deny.toml`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value as Json, json};

use crate::command::{cargo, output_of};

/// A package, and the crate that it is built from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Package {
    name: &'static str,
    root: &'static str,
    /// The word of CycloneDX for what it is.
    kind: &'static str,
}

const PACKAGES: [Package; 4] = [
    Package { name: "timewire", root: "timewire-cli", kind: "application" },
    Package { name: "libtimewire-dev", root: "timewire-capi", kind: "library" },
    Package { name: "timewire-static", root: "timewire-cli", kind: "application" },
    Package { name: "timewire-python", root: "timewire-capi", kind: "library" },
];

/// How the libraries of Debian that may be put into a package are licensed, by how the names of
/// their packages begin.
const OF_DEBIAN: [(&str, &str); 5] = [
    ("libc6", "LGPL-2.1-or-later"),
    ("libelf", "GPL-2.0-or-later OR LGPL-3.0-or-later"),
    ("libgcc-", "GPL-3.0-or-later WITH GCC-exception-3.1"),
    ("libzstd", "BSD-3-Clause OR GPL-2.0-only"),
    ("zlib1g", "Zlib"),
];

/// The crate whose programs for the kernel have a licence of their own, and that licence
/// (`LICENSE-BPF.md`); its manifest names that of its Rust.
const BPF: (&str, &str) = ("timewire-bpf", "GPL-2.0-only OR BSD-2-Clause");

/// Prints the bill of a package with the libraries that were put into it, each a
/// `DISTRIBUTION/PACKAGE@VERSION`.
///
/// **Errors**: there is no such package, cargo fails, or a crate or a library lacks what a bill
/// says of it.
pub fn run(root: &Path, name: &str, libraries: &[&str]) -> Result<(), String> {
    let names = PACKAGES.map(|package| package.name).join(", ");
    let package = PACKAGES.into_iter().find(|package| package.name == name);
    let package =
        package.ok_or_else(|| format!("there is no package `{name}`; one of: {names}"))?;
    let linked = libraries.iter().map(|library| linked(library));
    print!("{}", text(root, package, linked.collect::<Result<_, _>>()?)?);
    Ok(())
}

fn text(root: &Path, package: Package, linked: Vec<Json>) -> Result<String, String> {
    let target = host()?;
    let metadata = metadata(root, &target)?;
    let read = |name: &str| {
        fs::read_to_string(root.join(name)).map_err(|error| format!("{name}: {error}"))
    };
    let known = Known {
        metadata: &metadata,
        compiled: compiled(root, &target)?,
        checksums: checksums(&read("Cargo.lock")?),
        rust: channel(&read("rust-toolchain.toml")?)?,
        linked,
    };
    let bill = bill(package, &known)?;
    let text = serde_json::to_string_pretty(&bill).map_err(|error| error.to_string())?;
    Ok(format!("{text}\n"))
}

/// What there is to know of all packages.
struct Known<'a> {
    metadata: &'a Json,
    compiled: BTreeSet<Named>,
    checksums: BTreeMap<Named, String>,
    rust: String,
    /// Libraries that are no crates, as they stand in the bill.
    linked: Vec<Json>,
}

/// Name and version of a crate.
type Named = (String, String);

fn metadata(root: &Path, target: &str) -> Result<Json, String> {
    let words = ["metadata", "--format-version", "1", "--locked", "--filter-platform", target];
    let said = output_of(&mut cargo(root, &words))?;
    serde_json::from_str(&said).map_err(|error| format!("cargo metadata: {error}"))
}

/// All crates that are compiled into any of the packages, which are built together.
fn compiled(root: &Path, target: &str) -> Result<BTreeSet<Named>, String> {
    let mut tree = cargo(root, &["tree", "--locked", "--edges", "normal", "--target", target]);
    tree.args(["--prefix", "none", "--format", "{p}"]);
    for package in PACKAGES {
        tree.args(["--package", package.root]);
    }
    // `NAME vVERSION`, and more.
    let one = |line: &str| {
        let mut words = line.split(' ');
        Some((words.next()?.to_owned(), words.next()?.strip_prefix('v')?.to_owned()))
    };
    Ok(output_of(&mut tree)?.lines().filter_map(one).collect())
}

/// The target that is built for when none is named.
fn host() -> Result<String, String> {
    let program = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let said = output_of(Command::new(program).arg("-vV"))?;
    let host = said.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| format!("rustc does not name its host:\n{said}"))
}

/// The version of Rust.
fn channel(toolchain: &str) -> Result<String, String> {
    let line = toolchain.lines().find_map(|line| line.strip_prefix("channel"));
    let value = line.and_then(|rest| rest.trim_start().strip_prefix('='));
    let value = value.map(|value| value.trim().trim_matches('"').to_owned());
    value.ok_or_else(|| "rust-toolchain.toml names no channel".to_owned())
}

/// The checksums of a lock file by name and version.
fn checksums(lock: &str) -> BTreeMap<Named, String> {
    let mut found = BTreeMap::new();
    for block in lock.split("[[package]]").skip(1) {
        let value = |key: &str| {
            let of = |line: &str| line.strip_prefix(key)?.strip_prefix(" = ").map(str::to_owned);
            block.lines().find_map(of).map(|value| value.trim_matches('"').to_owned())
        };
        if let (Some(name), Some(version), Some(sum)) =
            (value("name"), value("version"), value("checksum"))
        {
            found.insert((name, version), sum);
        }
    }
    found
}

/// The bill. The same input gives the same value.
fn bill(package: Package, known: &Known<'_>) -> Result<Json, String> {
    let rust = &known.rust;
    let crates = Crates::of(known);
    let root = crates.root(package.root)?;
    let used = crates.used_by(root);
    let mut components = Vec::new();
    let mut dependencies = Vec::new();
    for id in &used {
        let found = crates.get(id)?;
        components.push(component(found, &known.checksums)?);
        let on = crates.normal(id).into_iter().map(|id| Ok(reference(crates.get(id)?)));
        let mut on = on.collect::<Result<Vec<String>, String>>()?;
        on.sort();
        dependencies.push((reference(found), on));
    }
    let standard = format!("rust-std@{rust}");
    components.push(json!({
        "type": "library",
        "bom-ref": standard,
        "name": "rust-std",
        "version": rust,
        "description": "Rust's standard library",
        "licenses": [{"expression": "MIT OR Apache-2.0"}],
        "purl": format!("pkg:github/rust-lang/rust@{rust}"),
    }));
    components.extend(known.linked.iter().cloned());
    components.sort_by_key(|it| words(it, "bom-ref").to_owned());
    let root = crates.get(root)?;
    let mut of_root = vec![reference(root), standard.clone()];
    for library in &known.linked {
        of_root.push(words(library, "bom-ref").to_owned());
        dependencies.push((words(library, "bom-ref").to_owned(), Vec::new()));
    }
    of_root.sort();
    dependencies.push((package.name.to_owned(), of_root));
    dependencies.push((standard, Vec::new()));
    dependencies.sort();
    let dependencies = dependencies.into_iter().map(|(of, on)| json!({"ref": of, "dependsOn": on}));
    let has_programs =
        used.iter().any(|id| crates.get(id).is_ok_and(|it| words(it, "name") == BPF.0));
    let licence = if has_programs { with_programs(&licence(root)?) } else { licence(root)? };
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": package.kind,
                "bom-ref": package.name,
                "name": package.name,
                "version": words(root, "version"),
                "licenses": [{"expression": licence}],
            },
        },
        "components": components,
        "dependencies": dependencies.collect::<Vec<Json>>(),
    }))
}

/// What `cargo metadata` says of what is compiled, by the numbers that it gives to packages.
struct Crates<'a> {
    packages: BTreeMap<&'a str, &'a Json>,
    nodes: BTreeMap<&'a str, &'a Json>,
}

impl<'a> Crates<'a> {
    fn of(known: &Known<'a>) -> Crates<'a> {
        let all = |pointer| list(known.metadata, pointer).iter().map(|it| (words(it, "id"), it));
        let packages = all("/packages").filter(|(_, it)| known.compiled.contains(&named(it)));
        Crates { packages: packages.collect(), nodes: all("/resolve/nodes").collect() }
    }

    fn get(&self, id: &str) -> Result<&'a Json, String> {
        self.packages.get(id).copied().ok_or_else(|| format!("cargo metadata has no {id}"))
    }

    /// The number of a crate of the workspace.
    fn root(&self, name: &str) -> Result<&'a str, String> {
        let mut own = self.packages.iter().filter(|(_, it)| is_own(it));
        let found = own.find(|(_, it)| words(it, "name") == name);
        found.map(|(id, _)| *id).ok_or_else(|| format!("the workspace has no crate {name}"))
    }

    /// What a crate depends on for what is compiled into it.
    fn normal(&self, id: &str) -> Vec<&'a str> {
        let node = self.nodes.get(id).copied().unwrap_or(&Json::Null);
        let is_normal =
            |it: &&Json| list(it, "/dep_kinds").iter().any(|kind| kind["kind"].is_null());
        let on = list(node, "/deps").iter().filter(is_normal).map(|it| words(it, "pkg"));
        on.filter(|on| self.packages.contains_key(on)).collect()
    }

    /// The same, and what those depend on, with itself.
    fn used_by(&self, root: &'a str) -> BTreeSet<&'a str> {
        let (mut used, mut open) = (BTreeSet::from([root]), vec![root]);
        while let Some(id) = open.pop() {
            open.extend(self.normal(id).into_iter().filter(|on| used.insert(on)));
        }
        used
    }
}

fn named(package: &Json) -> Named {
    (words(package, "name").to_owned(), words(package, "version").to_owned())
}

fn component(of: &Json, checksums: &BTreeMap<Named, String>) -> Result<Json, String> {
    let (name, version) = (words(of, "name"), words(of, "version"));
    let licence = licence(of)?;
    let licence = if name == BPF.0 { with_programs(&licence) } else { licence };
    let mut found = json!({
        "type": "library",
        "bom-ref": reference(of),
        "name": name,
        "version": version,
        "licenses": [{"expression": licence}],
    });
    if !is_own(of) {
        let sum = checksums.get(&named(of));
        let sum = sum.ok_or_else(|| format!("Cargo.lock has no checksum of {name} {version}"))?;
        found["hashes"] = json!([{"alg": "SHA-256", "content": sum}]);
        // A `+` means a space in some places of a URL.
        found["purl"] = json!(format!("pkg:cargo/{name}@{}", version.replace('+', "%2B")));
    }
    Ok(found)
}

/// A library of Debian, or of what is made of it: `DISTRIBUTION/PACKAGE@VERSION`.
fn linked(library: &str) -> Result<Json, String> {
    let parts = library.split_once('/').and_then(|(of, it)| Some((of, it.split_once('@')?)));
    let Some((distribution, (name, version))) = parts else {
        return Err(format!("`{library}` is no DISTRIBUTION/PACKAGE@VERSION"));
    };
    let licence = OF_DEBIAN.iter().find(|(begin, _)| name.starts_with(begin));
    let (_, licence) = licence.ok_or_else(|| format!("the licence of {name} is not known"))?;
    let encoded = version.replace('+', "%2B");
    Ok(json!({
        "type": "library",
        "bom-ref": format!("deb:{name}@{version}"),
        "name": name,
        "version": version,
        "licenses": [{"expression": licence}],
        "purl": format!("pkg:deb/{distribution}/{name}@{encoded}"),
    }))
}

/// Whether it is of this workspace.
fn is_own(package: &Json) -> bool {
    package["source"].is_null()
}

fn reference(package: &Json) -> String {
    format!("cargo:{}@{}", words(package, "name"), words(package, "version"))
}

/// The licence of a crate as an expression of SPDX; manifests once had `A/B` for `A OR B`.
fn licence(package: &Json) -> Result<String, String> {
    let text = words(package, "license").replace('/', " OR ");
    let name = words(package, "name");
    if is_expression(&text) { Ok(text) } else { Err(format!("{name}: `{text}` is no licence")) }
}

fn with_programs(licence: &str) -> String {
    format!("({licence}) AND ({})", BPF.1)
}

/// Whether a text has the shape of an SPDX licence expression.
fn is_expression(text: &str) -> bool {
    let spaced = text.replace('(', " ( ").replace(')', " ) ");
    let (mut depth, mut wants_name) = (0_u32, true);
    for word in spaced.split_whitespace() {
        match (word, wants_name) {
            ("(", true) => depth += 1,
            (")", false) if depth > 0 => depth -= 1,
            ("AND" | "OR" | "WITH", false) => wants_name = true,
            ("AND" | "OR" | "WITH", true) => return false,
            (name, true) if name.chars().all(is_of_a_name) => wants_name = false,
            _ => return false,
        }
    }
    depth == 0 && !wants_name
}

fn is_of_a_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || ['-', '.', '+'].contains(&c)
}

/// A text in an object; empty where there is none.
fn words<'a>(of: &'a Json, key: &str) -> &'a str {
    of.get(key).and_then(Json::as_str).unwrap_or_default()
}

/// A list in a value; empty where there is none.
fn list<'a>(of: &'a Json, pointer: &str) -> &'a [Json] {
    of.pointer(pointer).and_then(Json::as_array).map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests;
