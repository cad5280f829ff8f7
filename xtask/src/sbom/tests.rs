// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bills of materials: of the packages as they are, and of small workspaces made by hand.

use super::*;

/// A bill of the real workspace.
fn real(package: Package) -> (String, Json) {
    let text = text(&crate::root(), package, Vec::new()).unwrap();
    let bill = serde_json::from_str(&text).unwrap();
    (text, bill)
}

#[test]
fn t1_every_normal_dependency_is_named_once() {
    let target = host().unwrap();
    let metadata = metadata(&crate::root(), &target).unwrap();
    let all = list(&metadata, "/packages");
    // What is resolved for the target with the features of the whole workspace, tests included.
    let known = Known {
        metadata: &metadata,
        compiled: all.iter().map(named).collect(),
        checksums: BTreeMap::new(),
        rust: String::new(),
        linked: Vec::new(),
    };
    let resolved = Crates::of(&known);
    for package in PACKAGES {
        let (_, bill) = real(package);
        let components = list(&bill, "/components");
        let found = components.iter().map(named).filter(|it| it.0 != "rust-std");
        let found: Vec<Named> = found.collect();
        let once: BTreeSet<Named> = found.iter().cloned().collect();
        assert_eq!(found.len(), once.len(), "each once");
        assert_eq!(found.len() + 1, components.len(), "and the standard library");
        assert!(once.len() > 20, "{}", once.len());
        // At most what is resolved, and at least what manifests ask for without conditions.
        let root = resolved.root(package.root).unwrap();
        let most = resolved.used_by(root).into_iter().map(|id| named(resolved.get(id).unwrap()));
        let most: BTreeSet<Named> = most.collect();
        assert!(once.is_subset(&most), "{:?}", once.difference(&most).collect::<Vec<_>>());
        let names: BTreeSet<&str> = once.iter().map(|it| it.0.as_str()).collect();
        for it in all.iter().filter(|it| once.contains(&named(it))) {
            let asks = list(it, "/dependencies").iter().filter(|on| {
                on["kind"].is_null() && on["target"].is_null() && on["optional"] == false
            });
            for on in asks.map(|on| words(on, "name")) {
                assert!(names.contains(on), "{} needs {on}", words(it, "name"));
            }
        }
        for name in ["proptest", "regex", "xtask", "cc", "zlib-rs"] {
            assert!(!names.contains(name), "{name} is for tests, builds or nobody");
        }
        for name in ["libbpf-sys", "thiserror-impl", "libc"] {
            assert!(names.contains(name), "{name}");
        }
    }
}

#[test]
fn t1_a_bill_has_the_shape_of_cyclonedx() {
    for package in PACKAGES {
        let (text, bill) = real(package);
        assert_eq!((words(&bill, "bomFormat"), words(&bill, "specVersion")), ("CycloneDX", "1.5"));
        assert_eq!(bill["version"], 1);
        let components = list(&bill, "/components");
        let mut known = BTreeSet::new();
        for it in components.iter().chain([&bill["metadata"]["component"]]) {
            assert!(["application", "library"].contains(&words(it, "type")), "{it}");
            assert!(!words(it, "name").is_empty() && !words(it, "version").is_empty(), "{it}");
            assert!(known.insert(words(it, "bom-ref")), "{it}: the reference is another's");
            let [licence] = list(it, "/licenses") else { panic!("{it}") };
            assert!(is_expression(words(licence, "expression")), "{it}");
            let keys: Vec<&str> = it.as_object().unwrap().keys().map(String::as_str).collect();
            let allowed =
                ["type", "bom-ref", "name", "version", "description", "licenses", "hashes", "purl"];
            assert!(keys.iter().all(|key| allowed.contains(key)), "{keys:?}");
            let is_ours = words(it, "name").contains("timewire");
            assert_eq!(words(it, "purl").starts_with("pkg:"), !is_ours, "{it}");
            assert!(!words(it, "purl").contains('+'), "{it}");
            if is_ours || words(it, "name") == "rust-std" {
                continue;
            }
            let [hash] = list(it, "/hashes") else { panic!("{it}") };
            assert_eq!(words(hash, "alg"), "SHA-256");
            let content = words(hash, "content");
            assert!(content.len() == 64 && content.chars().all(|c| c.is_ascii_hexdigit()), "{it}");
        }
        let programs = "(Apache-2.0 OR MIT) AND (GPL-2.0-only OR BSD-2-Clause)";
        assert!(text.contains(&format!("\"expression\": \"{programs}\"")));
        // Each has its line in the graph, which leads to each from the package.
        let of = |it: &Json| -> BTreeSet<String> {
            list(it, "/dependsOn").iter().map(|on| on.as_str().unwrap().to_owned()).collect()
        };
        let graph: BTreeMap<&str, BTreeSet<String>> =
            list(&bill, "/dependencies").iter().map(|it| (words(it, "ref"), of(it))).collect();
        assert_eq!(graph.len(), list(&bill, "/dependencies").len());
        assert_eq!(graph.keys().copied().collect::<BTreeSet<&str>>(), known);
        let mut reached = BTreeSet::new();
        let mut open = vec![package.name.to_owned()];
        while let Some(of) = open.pop() {
            if reached.insert(of.clone()) {
                open.extend(graph[of.as_str()].iter().cloned());
            }
        }
        assert_eq!(reached.len(), known.len());
    }
}

#[test]
fn t1_the_same_tree_gives_the_same_bill_wherever_it_lies() {
    let (first, _) = real(PACKAGES[0]);
    assert!(first == real(PACKAGES[0]).0, "the same bytes");
    let here = crate::root().canonicalize().unwrap();
    assert!(!first.contains(here.to_str().unwrap()) && !first.contains("path+file"));
    assert!(!first.contains("timestamp") && !first.contains("serialNumber"));
}

/// A workspace: `timewire-cli` needs `a`, `a` needs `b` and with some feature `built`; builds and
/// tests need others.
fn metadata_with(licence: &str) -> Json {
    let package = |name: &str, source: Json| {
        json!({"id": name, "name": name, "version": "1.0.0+v1", "source": source,
               "license": licence})
    };
    let on = |id: &str, kinds: Json| json!({"pkg": id, "dep_kinds": kinds});
    let normal = || json!([{"kind": null}]);
    let node = |id: &str, deps: Vec<Json>| json!({"id": id, "deps": deps});
    let registry = || json!("registry+https://github.com/rust-lang/crates.io-index");
    json!({
        "packages": [
            package("timewire-cli", Json::Null),
            package("a", registry()),
            package("b", registry()),
            package("built", registry()),
            package("tested", registry()),
        ],
        "resolve": {"nodes": [
            node("timewire-cli", vec![
                on("a", json!([{"kind": "dev"}, {"kind": null}])),
                on("tested", json!([{"kind": "dev"}])),
            ]),
            node("a", vec![on("b", normal()), on("built", normal())]),
            node("b", vec![]),
            node("built", vec![on("b", normal())]),
            node("tested", vec![on("built", normal())]),
        ]},
    })
}

/// Of the workspace with this licence and these checksums; all but `built` is compiled.
fn of(package: Package, licence: &str, sums: &[&str]) -> Result<Json, String> {
    let all = ["timewire-cli", "a", "b", "tested"];
    let known = Known {
        metadata: &metadata_with(licence),
        compiled: all.map(|name| (name.to_owned(), "1.0.0+v1".to_owned())).into(),
        checksums: lock(sums),
        rust: "1.2.3".to_owned(),
        linked: vec![linked("debian/zlib1g-dev@1:1.2.13.dfsg-1+b1").unwrap()],
    };
    bill(package, &known)
}

fn lock(names: &[&str]) -> BTreeMap<Named, String> {
    let block = |name: &&str| {
        format!("[[package]]\nname = \"{name}\"\nversion = \"1.0.0+v1\"\nchecksum = \"0f\"\n\n")
    };
    let own =
        "# by cargo\nversion = 4\n\n[[package]]\nname = \"x\"\nversion = \"1\"\n\n".to_owned();
    checksums(&(own + &names.iter().map(block).collect::<String>()))
}

#[test]
fn t0_what_builds_and_tests_need_is_left_out() {
    let bill = of(PACKAGES[0], "MIT/Apache-2.0", &["a", "b"]).unwrap();
    let named: Vec<&str> =
        list(&bill, "/components").iter().map(|it| words(it, "bom-ref")).collect();
    assert_eq!(
        named,
        [
            "cargo:a@1.0.0+v1",
            "cargo:b@1.0.0+v1",
            "cargo:timewire-cli@1.0.0+v1",
            "deb:zlib1g-dev@1:1.2.13.dfsg-1+b1",
            "rust-std@1.2.3"
        ]
    );
    let linked = &bill["components"][3];
    assert_eq!(linked["licenses"][0]["expression"], "Zlib");
    assert_eq!(linked["purl"], "pkg:deb/debian/zlib1g-dev@1:1.2.13.dfsg-1%2Bb1");
    let of_root = list(&bill, "/dependencies").iter().find(|it| words(it, "ref") == "timewire");
    assert!(of_root.unwrap()["dependsOn"].to_string().contains("deb:zlib1g-dev"));
    let a = &bill["components"][0];
    assert_eq!(a["licenses"][0]["expression"], "MIT OR Apache-2.0");
    assert_eq!(a["hashes"][0]["content"], "0f");
    assert_eq!(a["purl"], "pkg:cargo/a@1.0.0%2Bv1");
    let package = &bill["metadata"]["component"];
    assert_eq!(package["licenses"][0]["expression"], "MIT OR Apache-2.0", "no eBPF in it");
    assert_eq!(
        bill["dependencies"][0],
        json!({"ref": "cargo:a@1.0.0+v1",
                                               "dependsOn": ["cargo:b@1.0.0+v1"]})
    );
}

#[test]
fn t0_what_a_bill_cannot_say_is_an_error() {
    let of = |licence: &str, sums: &[&str]| of(PACKAGES[0], licence, sums).map(drop);
    assert_eq!(of("MIT", &["a", "b"]), Ok(()));
    let no_sum = "Cargo.lock has no checksum of b 1.0.0+v1".to_owned();
    assert_eq!(of("MIT", &["a"]), Err(no_sum));
    for wrong in ["", "MIT OR", "(MIT", "MIT)", "MIT Apache-2.0", "OR MIT", "see file"] {
        assert!(of(wrong, &["a", "b"]).unwrap_err().ends_with("is no licence"), "{wrong}");
    }
    let other = super::tests::of(PACKAGES[1], "MIT", &["a", "b"]);
    assert_eq!(other, Err("the workspace has no crate timewire-capi".to_owned()));
    let unknown = run(&crate::root(), "timewire-dev", &[]).unwrap_err();
    let names = "timewire, libtimewire-dev, timewire-static, timewire-python";
    assert_eq!(unknown, format!("there is no package `timewire-dev`; one of: {names}"));
    for wrong in ["libelf1@1", "debian/libelf1", "debian/libssl3@3"] {
        assert!(linked(wrong).is_err(), "{wrong}");
    }
    assert!(channel("[toolchain]\n").is_err());
    assert_eq!(channel("[toolchain]\nchannel = \"1.90.0\"\n").unwrap(), "1.90.0");
    assert!(is_expression("(MIT OR Apache-2.0 WITH LLVM-exception) AND Unicode-3.0"));
}
