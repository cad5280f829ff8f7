// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The simulator beside ns-3: processor time of a frame's hop, on the same networks, in one run.
//! `cargo peers sim [--quick] [--json]`.
//!
//! ns-3 comes from PyPI, of a fixed version, into a virtual environment of the cache; nothing else
//! of the system changes. The networks are those of the benchmark of `timewire-sim`, which
//! describes them for ns-3.
//!
//! Not here: the networks (`crates/sim/benches/net.rs`), what runs in ns-3 (`networks.py`).

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::command;

/// As PyPI has it, with the C++ interpreter that its wheel names.
const NS3: &str = "ns3==3.44.post0";
const SCRIPT: &str = "peers/src/sim/networks.py";
const QUICK: [[&str; 2]; 3] = [["line", "8"], ["ring", "8"], ["fat-tree", "20"]];
const ALL: [[&str; 2]; 8] = [
    ["line", "8"],
    ["ring", "8"],
    ["fat-tree", "20"],
    ["line", "64"],
    ["ring", "64"],
    ["fat-tree", "80"],
    ["line", "512"],
    ["fat-tree", "320"],
];
/// So much may the hops differ: ns-3 counts a frame when it has arrived, Timewire when it starts.
const MAX_APART: f64 = 0.02;

/// One network in both.
struct Row {
    name: String,
    bridges: String,
    hops: [f64; 2],
    ns_per_hop: [f64; 2],
}

/// Runs the comparison and prints it.
///
/// **Errors**: a word that is none, no Python, no network for what is not fetched yet, or two
/// simulations that are not of the same.
pub fn run(root: &Path, arguments: &[&str]) -> Result<(), String> {
    let (mut quick, mut as_json) = (false, false);
    for word in arguments {
        match *word {
            "--quick" => quick = true,
            "--json" => as_json = true,
            other => return Err(format!("`{other}`: there are --quick and --json")),
        }
    }
    let python = environment(&crate::fetch::cache()?.join("peers-sim"))?;
    let bench = bench(root)?;
    let networks = if quick { QUICK.as_slice() } else { &ALL };
    let mut described = String::new();
    for network in networks {
        described += &command::output_of(Command::new(&bench).arg("describe").args(network))?;
    }
    eprintln!("ns-3 compiles its headers before it starts; this takes a minute or more");
    let theirs = ns3(root, &python, &described)?;
    let mut rows = Vec::new();
    for (network, theirs) in networks.iter().zip(theirs.lines()) {
        let ours = command::output_of(Command::new(&bench).args(network))?;
        rows.push(Row::of(&ours, theirs)?);
    }
    if rows.len() != networks.len() {
        return Err(format!("ns-3 ended after {} of {} networks", rows.len(), networks.len()));
    }
    if as_json {
        let rows: Vec<_> = rows.iter().map(Row::to_json).collect();
        println!("{:#}", json!({ "schema": "timewire-peers-sim/1", "ns3": NS3, "rows": rows }));
    } else {
        print(&rows);
    }
    Ok(())
}

/// The Python of an environment that has ns-3; made and filled if it is not there.
fn environment(cache: &Path) -> Result<PathBuf, String> {
    let place = cache.join(NS3.replace("==", "-"));
    let (python, whole) = (place.join("bin/python"), place.join("fetched"));
    if whole.exists() {
        return Ok(python);
    }
    if !command::exists("python3") {
        return Err("there is no python3, which ns-3 needs; install it, with its venv".to_owned());
    }
    fs::create_dir_all(cache).map_err(|error| format!("{}: {error}", cache.display()))?;
    eprintln!("fetching {NS3} from PyPI into {} (about 500 MB)", place.display());
    let mut make = Command::new("python3");
    command::output_of(make.args(["-m", "venv", "--clear"]).arg(&place))?;
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", NS3]);
    command::output_of(&mut pip).map_err(|error| {
        format!(
            "{NS3} cannot be had from PyPI, so there is nothing to compare with; this needs a \
             network, and is no part of the tests\n{error}"
        )
    })?;
    fs::write(&whole, "").map_err(|error| format!("{}: {error}", whole.display()))?;
    Ok(python)
}

/// Builds the benchmark and tells where it is.
fn bench(root: &Path) -> Result<PathBuf, String> {
    let build = ["bench", "--quiet", "--package", "timewire-sim", "--bench", "net", "--no-run"];
    let mut cargo = command::cargo(root, &build);
    let told = command::output_of(cargo.arg("--message-format=json"))?;
    let executable = told.lines().find_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        let is_it = message["target"]["name"] == "net";
        message["executable"].as_str().filter(|_| is_it).map(PathBuf::from)
    });
    executable.ok_or_else(|| "cargo names no executable of the benchmark `net`".to_owned())
}

fn ns3(root: &Path, python: &Path, described: &str) -> Result<String, String> {
    let mut command = Command::new(python);
    // What is compiled there is to be as quick as the rest of ns-3.
    command.arg(root.join(SCRIPT)).env("EXTRA_CLING_ARGS", "-O2");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let failed = |error: std::io::Error| format!("ns-3: {error}");
    let mut child = command.spawn().map_err(failed)?;
    // It reads all of it before it says much.
    child
        .stdin
        .take()
        .map_or(Ok(()), |mut to| to.write_all(described.as_bytes()))
        .map_err(failed)?;
    let output = child.wait_with_output().map_err(failed)?;
    if !output.status.success() {
        return Err(format!(
            "ns-3: {}\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        ));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

impl Row {
    /// From the last line of the benchmark's table, and a line of ns-3.
    fn of(ours: &str, theirs: &str) -> Result<Row, String> {
        let line = ours.lines().last().unwrap_or_default();
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, bridges, _, _, hops, .., ns] = words[..] else {
            return Err(format!("the benchmark printed `{line}`"));
        };
        let number = |text: &str| text.parse::<f64>().map_err(|_| format!("`{text}` in `{line}`"));
        let (hops, ns) = (number(hops)?, number(ns)?);
        let told: Value = serde_json::from_str(theirs).map_err(|e| format!("{theirs}: {e}"))?;
        let of_ns3 = |name: &str| told[name].as_f64().ok_or(format!("no {name} in {theirs}"));
        let (their_hops, seconds) = (of_ns3("hops")?, of_ns3("seconds")?);
        if (their_hops - hops).abs() > hops * MAX_APART {
            return Err(format!(
                "{name} of {bridges}: {hops} hops here and {their_hops} in ns-3 are not the same \
                 network"
            ));
        }
        Ok(Row {
            name: name.to_owned(),
            bridges: bridges.to_owned(),
            hops: [hops, their_hops],
            ns_per_hop: [ns, seconds * 1e9 / their_hops],
        })
    }

    fn ratio(&self) -> f64 {
        self.ns_per_hop[1] / self.ns_per_hop[0]
    }

    fn to_json(&self) -> Value {
        json!({
            "network": self.name, "bridges": self.bridges,
            "hops": { "timewire": self.hops[0], "ns3": self.hops[1] },
            "cpu_ns_per_hop": { "timewire": self.ns_per_hop[0], "ns3": self.ns_per_hop[1] },
            "ratio": self.ratio(),
        })
    }
}

fn print(rows: &[Row]) {
    println!("processor time of a hop of a frame, beside {NS3}");
    println!(
        "{:<10} {:>7} {:>10} {:>10} {:>12} {:>10} {:>7}",
        "network", "bridges", "hops", "ns-3 hops", "Timewire ns", "ns-3 ns", "ratio"
    );
    for row in rows {
        println!(
            "{:<10} {:>7} {:>10} {:>10} {:>12.1} {:>10.1} {:>6.1}x",
            row.name,
            row.bridges,
            row.hops[0],
            row.hops[1],
            row.ns_per_hop[0],
            row.ns_per_hop[1],
            row.ratio()
        );
    }
}
