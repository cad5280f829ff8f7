// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `timewire plan` beside tsnkit's methods and a model for OR-Tools CP-SAT, on the same problems:
//! `cargo peers plans [--limit 60s] [--ours 5s] [--quick] [--only PART] [--methods M,...|none]
//! [--jobs N] [--timewire PROGRAM] [--json]`.
//!
//! The peers come from PyPI into a virtual environment in the cache, and nowhere else. What they
//! cost is their CPU time; every plan of everybody is held against `planning/check.py`.
//!
//! Not here: running and judging them (`planning/compare.py`).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{command, fetch, timewire};

/// What is installed, as it was when the book's table was made. tsnkit needs the last two and does
/// not name them.
const PACKAGES: [&str; 5] =
    ["tsnkit==0.3.0", "ortools==9.15.6755", "z3-solver==5.4.1.0", "scipy", "scikit-learn"];
const SCRIPTS: &str = "peers/src/planning";
const USAGE: &str = "--limit SECONDS, --ours SECONDS (such as 60s), --quick, --only PART, \
                     --methods NAME,... or none, --jobs N, --timewire PROGRAM, --json";

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
struct Request<'a> {
    limit: u32,
    ours: u32,
    is_quick: bool,
    /// Handed on as they are.
    rest: Vec<&'a str>,
    /// A build that there is; otherwise one is made.
    timewire: Option<&'a str>,
}

/// Fetches, builds, makes the problems, and compares.
///
/// **Errors**: something cannot be had, or `timewire plan` misses what another solves.
pub fn run(root: &Path, arguments: &[&str]) -> Result<(), String> {
    let request = parse(arguments)?;
    let python = environment()?;
    let program = match request.timewire {
        Some(program) => PathBuf::from(program),
        None => {
            let build = ["build", "--quiet", "--release", "--package", "timewire-cli"];
            command::succeed(&mut command::cargo(root, &build))?;
            timewire(root)?
        }
    };
    let work = fetch::cache()?.join("peers").join("planning");
    fs::create_dir_all(&work).map_err(|error| format!("{}: {error}", work.display()))?;
    problems(root, &python, &work, request.is_quick)?;
    let mut compare = Command::new(&python);
    compare.arg(root.join(SCRIPTS).join("compare.py")).arg("--work").arg(&work);
    compare.arg("--timewire").arg(program).args(&request.rest);
    compare.args(["--limit", &request.limit.to_string(), "--ours", &request.ours.to_string()]);
    command::succeed(&mut compare)
}

fn parse<'a>(arguments: &[&'a str]) -> Result<Request<'a>, String> {
    let mut request =
        Request { limit: 60, ours: 5, is_quick: false, rest: Vec::new(), timewire: None };
    let mut words = arguments.iter();
    while let Some(&word) = words.next() {
        let mut value = || words.next().copied().ok_or(format!("{word} needs a value: {USAGE}"));
        match word {
            "--limit" => request.limit = seconds(value()?)?,
            "--ours" => request.ours = seconds(value()?)?,
            "--quick" => request.is_quick = true,
            "--json" => request.rest.push(word),
            "--only" | "--methods" | "--jobs" => {
                let value = value()?;
                request.rest.extend([word, value]);
            }
            "--timewire" => request.timewire = Some(value()?),
            other => return Err(format!("`{other}`: there are {USAGE}")),
        }
    }
    Ok(request)
}

fn seconds(text: &str) -> Result<u32, String> {
    let number = text.strip_suffix('s').and_then(|number| number.parse().ok());
    number.filter(|n| *n > 0).ok_or_else(|| format!("`{text}`: whole seconds, such as 60s"))
}

/// The Python of the environment, with everything in it.
fn environment() -> Result<PathBuf, String> {
    let place = fetch::cache()?.join("peers").join("python");
    let (python, done) = (place.join("bin/python"), place.join("packages"));
    let wanted = PACKAGES.join("\n");
    if fs::read_to_string(&done).is_ok_and(|there| there == wanted) {
        return Ok(python);
    }
    eprintln!("fetching {} from PyPI", PACKAGES.join(", "));
    let mut make = Command::new("python3");
    command::output_of(make.args(["-m", "venv", "--clear"]).arg(&place)).map_err(|why| {
        format!("no virtual environment: {why}\nDebian has it in the package python3-venv")
    })?;
    let mut install = Command::new(&python);
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(PACKAGES);
    command::output_of(&mut install).map_err(|why| {
        format!("{why}\nthe peers come from PyPI, for which there has to be a network")
    })?;
    fs::write(&done, wanted).map_err(|error| format!("{}: {error}", done.display()))?;
    Ok(python)
}

/// Writes the problems, and a line for each.
fn problems(root: &Path, python: &Path, work: &Path, is_quick: bool) -> Result<(), String> {
    let write = |name: &str, text: String| {
        let path = work.join(name);
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
    };
    let example = "run --quiet --release --package timewire-plan --example peer_instances --";
    let mut ours = command::cargo(root, &example.split(' ').collect::<Vec<_>>());
    ours.arg(work).args(is_quick.then_some("--quick"));
    write("ours.jsonl", command::output_of(&mut ours)?)?;
    let mut theirs = Command::new(python);
    theirs.arg(root.join(SCRIPTS).join("tsnkit_method.py")).arg("make").arg(work);
    let text = if is_quick { String::new() } else { command::output_of(&mut theirs)? };
    write("theirs.jsonl", text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_limits_have_a_unit() {
        let request = parse(&["--limit", "20s", "--only", "line", "--quick", "--json"]);
        let request = request.expect("options that there are");
        assert_eq!((request.limit, request.ours, request.is_quick), (20, 5, true));
        assert_eq!(request.rest, ["--only", "line", "--json"]);
        for wrong in [&["--limit", "20"][..], &["--ours", "0s"], &["--limit"], &["--slow"]] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }

    const TASK: &str = "stream,src,dst,size,period,deadline,jitter\n\
                        0,2,[3],1000,100000,28000,0\n1,4,[3],500,200000,200000,0\n";
    const TOPO: &str = "link,q_num,rate,t_proc,t_prop\n\
                        \"(0, 1)\",8,1,2000,0\n\"(1, 0)\",8,1,2000,0\n\"(2, 0)\",8,1,2000,0\n\
                        \"(0, 2)\",8,1,2000,0\n\"(4, 0)\",8,1,2000,0\n\"(0, 4)\",8,1,2000,0\n\
                        \"(1, 3)\",8,1,2000,0\n\"(3, 1)\",8,1,2000,0\n";
    /// The first stream at 0 and 100 us, 8 us on each link; the second at 14 us, 4 us on each.
    const PLAN: [(&str, &str); 4] = [
        (
            "GCL",
            "link,queue,start,end,cycle\n\
             \"(2, 0)\",7,0,8000,200000\n\"(2, 0)\",7,100000,108000,200000\n\
             \"(0, 1)\",7,10000,18000,200000\n\"(0, 1)\",7,110000,118000,200000\n\
             \"(1, 3)\",7,20000,28000,200000\n\"(1, 3)\",7,120000,128000,200000\n\
             \"(4, 0)\",7,14000,18000,200000\n\"(0, 1)\",7,20000,24000,200000\n\
             \"(1, 3)\",7,28000,32000,200000\n",
        ),
        ("OFFSET", "stream,frame,offset\n0,0,0\n1,0,14000\n"),
        (
            "QUEUE",
            "stream,frame,link,queue\n0,0,\"(2, 0)\",7\n0,0,\"(0, 1)\",7\n0,0,\"(1, 3)\",7\n\
             1,0,\"(4, 0)\",7\n1,0,\"(0, 1)\",7\n1,0,\"(1, 3)\",7\n",
        ),
        (
            "ROUTE",
            "stream,link\n0,\"(2, 0)\"\n0,\"(0, 1)\"\n0,\"(1, 3)\"\n\
             1,\"(4, 0)\"\n1,\"(0, 1)\"\n1,\"(1, 3)\"\n",
        ),
    ];

    /// What the checker says of the plan with one text in one of its tables changed.
    fn said(table: &str, from: &str, to: &str) -> serde_json::Value {
        let name = format!("timewire-peers-plan-{}", std::process::id());
        let place = std::env::temp_dir().join(name);
        fs::create_dir_all(&place).expect("a directory");
        let put = |name: &str, text: &str| {
            let path = place.join(name);
            fs::write(&path, text).expect("a file");
            path
        };
        for (name, text) in PLAN {
            let text = if name == table { text.replacen(from, to, 1) } else { text.to_owned() };
            put(&format!("p-{name}.csv"), &text);
        }
        let (task, topo) = (put("task.csv", TASK), put("topo.csv", TOPO));
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/planning/check.py");
        let mut check = Command::new("python3");
        check.arg(script).args([&task, &topo]).arg(place.join("p"));
        let text = command::output_of(&mut check).expect("a checker that ends");
        fs::remove_dir_all(&place).expect("it was made");
        serde_json::from_str(&text).expect("an object")
    }

    #[test]
    fn t1_plans_that_do_not_hold_are_found() {
        if !command::exists("python3") {
            println!("SKIP: no python3");
            return;
        }
        assert_eq!(said("GCL", "", ""), serde_json::json!({"ok": true}));
        for (table, from, to, why) in [
            // Too late at the last link, and then later than 28 us.
            ("GCL", "\"(1, 3)\",7,20000,28000", "\"(1, 3)\",7,20100,28100", "takes 28100 ns"),
            // Too short a window for it in the first interval: it goes in the second one's.
            ("GCL", "\"(0, 1)\",7,10000,18000", "\"(0, 1)\",7,10000,17900", "takes"),
            // Never open.
            ("GCL", "\"(4, 0)\",7,14000,18000", "\"(4, 0)\",6,14000,18000", "does not arrive"),
            // Both at one instant on one link.
            ("GCL", "\"(1, 3)\",7,28000,32000", "\"(1, 3)\",7,26000,30000", "takes"),
            ("ROUTE", "1,\"(0, 1)\"\n", "", "ends at 0"),
            ("ROUTE", "1,\"(1, 3)\"", "1,\"(1, 9)\"", "no link"),
            ("OFFSET", "1,0,14000\n", "", "offsets"),
            ("QUEUE", "1,0,\"(4, 0)\",7\n", "", "no queue"),
        ] {
            let said = said(table, from, to);
            let text = said["why"].as_str().unwrap_or_default();
            assert!(said["ok"] == false && text.contains(why), "{table} {from}: {said}");
        }
    }
}
