// SPDX-License-Identifier: Apache-2.0 OR MIT
//! YANG that verbs write and that the book shows, held against the published modules by `yanglint`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Scratch, timewire};

/// Where the modules are; `None` with a reason why nothing is validated.
fn modules() -> Option<PathBuf> {
    let Some(modules) = std::env::var_os("TIMEWIRE_YANG_MODULES").map(PathBuf::from) else {
        eprintln!("SKIP: TIMEWIRE_YANG_MODULES names no directory of YANG modules");
        return None;
    };
    if Command::new("yanglint").arg("--version").output().is_err() {
        eprintln!("SKIP: yanglint (package libyang-tools) is not installed");
        return None;
    }
    Some(modules)
}

/// What the data are instances of. Gates are a configuration: state of interfaces is none of it.
const GATES: &[&str] = &["ieee802-dot1q-sched", "ieee802-dot1q-sched-bridge", "iana-if-type"];
const REQUESTS: &[&str] = &["ieee802-dot1q-cnc-config"];

/// What is wrong with a file of whole data.
fn faults(modules: &Path, names: &[&str], file: &Path) -> String {
    let mut lint = Command::new("yanglint");
    let kind = if names == GATES { "config" } else { "data" };
    lint.arg("-p").arg(modules).args(["-t", kind]);
    lint.args(names.iter().map(|name| modules.join(format!("{name}.yang"))));
    let said = lint.arg(file).output().unwrap();
    let text = String::from_utf8_lossy(&said.stderr).into_owned();
    if said.status.success() { String::new() } else { format!("{}: {text}", file.display()) }
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

#[test]
fn t1_rendered_gates_are_valid_by_the_published_modules() {
    let Some(modules) = modules() else { return };
    let scratch = Scratch::new();
    let cell = repository().join("scenarios/networks/planned-cell.network.yaml");
    let mut networks = vec![cell.to_str().unwrap().to_owned()];
    // Every device that has gates, with what it says of its limits, and fewer queues.
    for device in [
        "taprio",
        "ls1028a",
        "sja1105",
        "sja1110",
        "lan966x",
        "i226",
        "{ queues: 5, offload: true }",
    ] {
        let text = format!(
            "timewire: 1\nkind: network\nname: pair\nduration: 10ms\nstations: [{{ name: a }}, \
             {{ name: b }}]\nbridges: [{{ name: br, forward: 2us, device: {device} }}]\n\
             links: [{{ between: [a, br], rate: 1Gbit }}, {{ between: [br, b], rate: 1Gbit }}]\n\
             streams: [{{ name: s, talker: a, listeners: b, class: 4, size: 200B, scheduled: true, \
             kind: cyclic, period: 700us }}]\n"
        );
        networks.push(scratch.write(&format!("network-{}.yaml", networks.len()), &text));
    }
    let mut validated = 0;
    for (index, network) in networks.iter().enumerate() {
        let dir = scratch.join(&format!("out-{index}"));
        timewire(&["plan", network, "--render", &dir]).done();
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            if path.to_string_lossy().ends_with(".yang.json") {
                assert_eq!(faults(&modules, GATES, &path), "", "{network}");
                validated += 1;
            }
        }
    }
    assert!(validated > networks.len(), "{validated} files");
}

/// Blocks of a page that are instance data, by the module at their root.
fn shown(page: &str) -> Vec<(&'static [&'static str], String)> {
    let mut found = Vec::new();
    for block in page.split("\n```").skip(1).step_by(2) {
        let Some((kind, text)) = block.split_once('\n') else { continue };
        if !matches!(kind, "json" | "xml") {
            continue;
        }
        if text.contains("ieee802-dot1q-cnc-config:cnc-config") {
            found.push((REQUESTS, text.to_owned()));
        } else if text.contains("ietf-interfaces:interfaces") || text.contains("ietf-interfaces\"")
        {
            found.push((GATES, text.to_owned()));
        }
    }
    found
}

fn pages(dir: &Path, all: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            pages(&path, all);
        } else if path.extension().is_some_and(|end| end == "md") {
            all.push(path);
        }
    }
}

#[test]
fn t1_shown_requests_and_their_answers_are_valid_by_the_published_modules() {
    let Some(modules) = modules() else { return };
    let scratch = Scratch::new();
    let mut all = Vec::new();
    pages(&repository().join("docs/src"), &mut all);
    let mut validated = 0;
    for page in all {
        let text = fs::read_to_string(&page).unwrap();
        for (names, data) in shown(&text) {
            let end = if data.trim_start().starts_with('<') { "xml" } else { "json" };
            let file = scratch.write(&format!("shown-{validated}.{end}"), &data);
            assert_eq!(faults(&modules, names, Path::new(&file)), "", "{}", page.display());
            validated += 1;
        }
    }
    assert!(validated > 0, "no page shows any");
    // The answers of the page's network: a place, and none.
    let page = fs::read_to_string(repository().join("docs/src/how-to/plan.md")).unwrap();
    let block = |name: &str| {
        let (_, after) = page.split_once(&format!("<!-- file: {name} -->\n```")).unwrap();
        let (_, text) = after.split_once('\n').unwrap();
        text.split_once("\n```").unwrap().0.to_owned()
    };
    let network = scratch.write("network.yaml", &block("network.yaml"));
    for (name, code, latency) in [("ready", 0, "300000"), ("failed", 1, "101000")] {
        let asked = block("asked.json").replace("300000", latency);
        // Without a key of the list, which the answer has.
        let asked = scratch.write(name, &asked.replacen(", \"interface-name\": \"\"", "", 1));
        let answer = scratch.join(&format!("{name}.json"));
        let words = ["plan", &network, "--streams", &asked, "--status", &answer];
        assert_eq!(timewire(&words).code, Some(code), "{name}");
        assert!(fs::read_to_string(&answer).unwrap().contains(name));
        assert_eq!(faults(&modules, REQUESTS, Path::new(&answer)), "", "{name}");
    }
    // A file that is none is found.
    let wrong = block("asked.json").replace("\"denominator\": 1000", "\"denominators\": 1000");
    let wrong = scratch.write("wrong.json", &wrong);
    assert!(faults(&modules, REQUESTS, Path::new(&wrong)).contains("denominators"));
}
