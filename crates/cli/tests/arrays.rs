// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An experiment as an array: the scripts for Slurm with a stand-in for `sbatch`, tasks in any
//! order, killed and begun again, and their shares joined to what one run leaves.
//!
//! Not here: the files that are made (`timewire-ctl`), experiments on stations (`stations`).
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value as Json;
use support::{Said, Scratch, TIMEWIRE, run, wait_until};

const NETWORK: &str = "timewire: 1
kind: network
name: net
duration: 200ms
stations: [{name: a}, {name: b}]
segments: [{name: hub, access: contention, stations: [a, b], rate: 100Mbit}]
streams:
  - {name: s, from: a, to: b, message: 64B,
      traffic: {kind: sporadic, gap: {kind: exponential, mean: 1ms}}}
";

/// `HOLD` begins what waits as long as there is a file of that name.
const EXPERIMENT: &str = r#"timewire: 1
kind: experiment
name: seeds
seed: 4
timing: {lease: 2s, resend: 100ms, lead: 500ms, phase: 60s}
variables:
  - {name: seed, from: 1, to: 3}
  - {name: text, values: [plain, "it's \"$(touch pwned)\"\n`x` $${seed} #"]}
  - {name: which, values: [a, b]}
together: [[text, which]]
stations:
  - name: here
    setup: {steps: [{put: net.yaml, from: 'below/the "net" $(x).yaml'}, {put: blob, from: blob}]}
    run:
      steps:
        - run: [sh, -c, ': > "$0.began"; while [ -e "$0" ]; do sleep 0.05; done; printf %s "$1"',
                'HOLD-${seed}-${which}', '${text}']
          name: text
        - run: [timewire, sim, net.yaml, --seed, '${seed}', --json]
          name: sim
checks:
  - {station: here, record: sim.out, value: /seed, at_most: 2}
"#;

/// A file that is no text and takes three pieces.
fn blob() -> Vec<u8> {
    (0..300_000_u32)
        .flat_map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes())
        .take(300_000)
        .collect()
}

/// An array of its own in a directory whose name is no word of a shell.
struct Cluster {
    scratch: Scratch,
    array: PathBuf,
}

impl Cluster {
    fn start(tasks: &str) -> Cluster {
        let scratch = Scratch::new();
        let at = |name: &str| scratch.path().join(name);
        let hold = at("hold");
        let text = EXPERIMENT.replace("HOLD", hold.to_str().unwrap());
        scratch.write("e.yaml", &text);
        scratch.write("map.yaml", "here: local\n");
        fs::create_dir(at("below")).unwrap();
        fs::write(at("below/the \"net\" $(x).yaml"), NETWORK).unwrap();
        fs::write(at("blob"), blob()).unwrap();
        // What a script must not take apart.
        symlink(TIMEWIRE, at("time wire's $(x)")).unwrap();
        fs::create_dir(at("bin")).unwrap();
        let sbatch = at("bin/sbatch");
        fs::write(&sbatch, "#!/bin/sh\nfor word; do printf '%s\\n' \"$word\"; done\n").unwrap();
        fs::set_permissions(&sbatch, fs::Permissions::from_mode(0o755)).unwrap();
        let array = at("an \"array\"\n of $(tasks)'");
        let cluster = Cluster { scratch, array };
        let program = cluster.join("time wire's $(x)");
        let into = cluster.array.to_str().unwrap();
        let words = ["array", "slurm", "e.yaml", "--into", into, "--tasks", tasks];
        cluster.timewire(&[&words[..], &["--program", &program]].concat()).done();
        cluster
    }

    fn join(&self, name: &str) -> String {
        self.scratch.join(name)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.scratch.path());
        command.env("TIMEWIRE_STATE_DIR", self.scratch.path().join("state"));
        command
    }

    fn timewire(&self, words: &[&str]) -> Said {
        run(self.command(TIMEWIRE).args(words))
    }

    fn status(&self) -> Said {
        self.timewire(&["array", "status", self.array.to_str().unwrap(), "--json"])
    }

    fn merge(&self, words: &[&str]) -> Said {
        let array = ["array", "merge", self.array.to_str().unwrap()];
        self.timewire(&[&array[..], words].concat())
    }

    /// Runs what submits tasks; the indices that `sbatch` was given.
    fn submitted(&self, line: &str) -> Vec<usize> {
        let path = format!("{}:{}", self.join("bin"), std::env::var("PATH").unwrap());
        let said = run(self.command("sh").env("PATH", path).args(["-c", line])).done();
        let words: Vec<&str> = said.stdout.lines().collect();
        assert_eq!(words.last(), Some(&"task.sh"), "{said:?}");
        // The last one counts, as with `sbatch`.
        let indices = words.iter().filter_map(|word| word.strip_prefix("--array=")).next_back();
        let indices = indices.unwrap().split('%').next().unwrap();
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            first.parse::<usize>().unwrap()..=last.parse().unwrap()
        };
        indices.split(',').flat_map(range).collect()
    }

    /// A task as Slurm starts it: a copy of the script, from anywhere, with two variables.
    fn task(&self, index: usize) -> Command {
        let spool = self.join("spool");
        fs::copy(self.array.join("task.sh"), &spool).unwrap();
        let mut task = self.command("sh");
        task.arg(spool).current_dir("/").stdin(Stdio::null());
        task.env("SLURM_SUBMIT_DIR", &self.array).env("SLURM_ARRAY_TASK_ID", index.to_string());
        task
    }

    /// The performances of a task, with their values.
    fn points(&self, task: usize) -> Vec<(u64, Json)> {
        let points = fs::read(self.array.join("points.json")).unwrap();
        let points: Json = serde_json::from_slice(&points).unwrap();
        let points = points["points"].as_array().unwrap().iter();
        let points = points.filter(|point| point["task"] == task);
        points.map(|it| (it["number"].as_u64().unwrap(), it["values"].clone())).collect()
    }

    /// Holds the performance with these values; the file that does.
    fn hold(&self, values: &Json) -> String {
        let value = |name: &str| values[name].as_str().unwrap();
        self.scratch.write(&format!("hold-{}-{}", value("seed"), value("which")), "")
    }

    fn shard(&self, task: usize) -> PathBuf {
        self.array.join("shards").join(format!("{task:04}"))
    }

    /// Starts a task that holds at one of its performances, and kills all of it there.
    fn killed_midway(&self, index: usize, number: u64, values: &Json) {
        let hold = self.hold(values);
        let began = format!("{hold}.began");
        let _ = fs::remove_file(&began);
        let mut task = self.task(index);
        let mut task = task.process_group(0).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let group = format!("-{}", task.as_ref().unwrap().id());
        let place = self.shard(index).join(format!("{number:04}"));
        wait_until("the task holds", || Path::new(&began).exists() && place.exists());
        assert!(run(Command::new("kill").args(["-KILL", "--", &group])).code == Some(0));
        task.as_mut().unwrap().wait().unwrap();
        fs::remove_file(hold).unwrap();
        assert!(!place.join("end.json").exists());
    }
}

/// All files of a run that are results: what stations recorded, and what came of it.
fn results(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    fn collect(root: &Path, at: &Path, all: &mut BTreeMap<PathBuf, Vec<u8>>) {
        for entry in fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                collect(root, &path, all);
            } else {
                let name = path.strip_prefix(root).unwrap().to_owned();
                all.insert(name, fs::read(&path).unwrap());
            }
        }
    }
    let mut all = BTreeMap::new();
    collect(directory, directory, &mut all);
    let is_result = |path: &Path| {
        let text = path.to_str().unwrap();
        text.contains("/records/") || ["summary.json", "experiment.yaml"].contains(&text)
    };
    all.retain(|path, _| is_result(path));
    all
}

/// A summary without when programs really started: each performance starts at its own instant.
fn without_starts(mut summary: serde_json::Value) -> serde_json::Value {
    for result in summary["results"].as_array_mut().unwrap() {
        let starts = result.as_object_mut().unwrap().remove("starts").unwrap();
        assert_eq!(starts.as_array().unwrap().len(), 1, "{starts}");
    }
    summary
}

#[test]
fn t3_shares_of_tasks_in_any_order_killed_and_repeated_join_to_one_run() {
    let cluster = Cluster::start("4");
    let one = cluster.timewire(&["run", "e.yaml", "--map", "map.yaml", "--out", "one", "--json"]);
    assert_eq!(one.code, Some(1), "{one:?}");
    let submit = |words: &str| format!("cd /; '{}'/submit.sh {words}", quoted(&cluster.array));
    let all = cluster.submitted(&submit("--partition='long one'"));
    assert_eq!(all, [0, 1, 2, 3]);
    // Nothing is there yet: all is missing, and nothing is joined.
    let said = cluster.status();
    assert_eq!((said.code, &said.json()["again"]), (Some(1), &serde_json::json!(all)));
    let said = cluster.merge(&["--out", "early"]);
    assert!(said.code == Some(2) && said.stderr.contains("6 missing"), "{said:?}");
    assert!(!cluster.scratch.path().join("early").exists());
    // Out of order; one is killed in the last of its performances, and the others are done.
    let victim = *all.iter().find(|task| cluster.points(**task).len() == 2).unwrap();
    let (number, values) = cluster.points(victim)[1].clone();
    let rest = [3, 1, 0, 2].into_iter().filter(|task| *task != victim);
    cluster.killed_midway(victim, number, &values);
    for index in rest {
        let said = run(&mut cluster.task(index));
        assert_eq!(said.code, Some(0), "a limit is no failure of a task: {said:?}");
    }
    let said = cluster.status();
    let status = said.json();
    assert_eq!((said.code, &status["missing"]), (Some(1), &serde_json::json!([number])));
    // The command that is told does what is missing.
    assert_eq!(cluster.submitted(status["command"].as_str().unwrap()), [victim]);
    let first = cluster.shard(victim).join(format!("{:04}/end.json", cluster.points(victim)[0].0));
    let before = fs::metadata(&first).unwrap().modified().unwrap();
    run(&mut cluster.task(victim)).done();
    assert_eq!(fs::metadata(&first).unwrap().modified().unwrap(), before, "done stays done");
    assert!(cluster.shard(victim).join(format!("aside/{number:04}-1/end.json")).exists());
    // Once more does nothing.
    run(&mut cluster.task(victim)).done();
    cluster.status().done();
    let merged = cluster.merge(&["--out", "merged", "--json"]);
    assert_eq!(merged.code, one.code, "{merged:?}");
    assert_eq!(without_starts(merged.json()), without_starts(one.json()), "{merged:?}");
    let (one, merged) = (cluster.join("one"), cluster.join("merged"));
    let (one, merged) = (results(Path::new(&one)), results(Path::new(&merged)));
    assert_eq!(one.keys().collect::<Vec<_>>(), merged.keys().collect::<Vec<_>>());
    for (path, bytes) in &one {
        if path == Path::new("summary.json") {
            let [one, merged] =
                [bytes, &merged[path]].map(|it| serde_json::from_slice(it).unwrap());
            assert_eq!(without_starts(one), without_starts(merged));
        } else {
            assert!(*bytes == merged[path], "{}", path.display());
        }
    }
    // Six times the text, the simulation, what both said, the network and the large file.
    assert_eq!(one.len(), 2 + 6 * 6, "{:?}", one.keys());
    assert!(merged[Path::new("0001/records/here/blob")] == blob(), "it came whole, and back");
    // What is joined is a run like any other.
    let again = ["run", "e.yaml", "--map", "map.yaml", "--out", "merged"];
    assert_eq!(cluster.timewire(&again).code, Some(1));
    for place in [cluster.array.clone(), cluster.scratch.path().to_owned(), PathBuf::from("/")] {
        assert!(!place.join("pwned").exists());
    }
}

fn quoted(path: &Path) -> String {
    path.to_str().unwrap().replace('\'', r"'\''")
}

#[test]
fn t3_what_is_foreign_twice_or_damaged_is_named() {
    let cluster = Cluster::start("100");
    let points: Vec<_> = (0..6).map(|task| cluster.points(task)).collect();
    assert!(points.iter().all(|points| points.len() == 1), "no more tasks than performances");
    let said = run(&mut cluster.task(6));
    assert!(said.code == Some(2) && said.stderr.contains("tasks 0 to 5"), "{said:?}");
    run(&mut cluster.task(0)).done();
    run(&mut cluster.task(1)).done();
    // A share of an array that was made anew from the same file.
    let other = cluster.join("other");
    cluster.timewire(&["array", "slurm", "e.yaml", "--into", &other]).done();
    let shards = cluster.array.join("shards");
    cluster.timewire(&["array", "task", &other, "2"]).done();
    fs::rename(Path::new(&other).join("shards/0002"), shards.join("0002")).unwrap();
    let said = run(&mut cluster.task(2));
    assert!(said.code == Some(2) && said.stderr.contains("another array"), "{said:?}");
    fs::create_dir(shards.join("notes")).unwrap();
    let record = shards.join(format!("0001/{:04}/records/here/sim.out", points[1][0].0));
    let whole = fs::read(&record).unwrap();
    fs::write(&record, &whole[..whole.len() / 2]).unwrap();
    let status = cluster.status().json();
    assert_eq!(status["foreign"].as_array().unwrap().len(), 2, "{status}");
    assert!(status["foreign"][0]["path"].as_str().unwrap().ends_with("shards/0002"), "{status}");
    assert_eq!(status["damaged"][0]["path"], record.to_str().unwrap());
    assert_eq!(status["again"], serde_json::json!([1, 2, 3, 4, 5]));
    // With --partial what is good is joined, and the rest is said.
    let said = cluster.merge(&["--out", "part", "--partial", "--json"]);
    assert_eq!((said.code, said.json()["results"].as_array().unwrap().len()), (Some(2), 1));
    assert!(said.stderr.contains("foreign") && said.stderr.contains("damaged"), "{said:?}");
    // The same performance twice is never joined.
    let copy = cluster.join("copy");
    run(Command::new("cp").arg("-r").arg(&shards).arg(&copy)).done();
    let words = ["--out", "twice", "--partial", "--shards", shards.to_str().unwrap()];
    let said = cluster.merge(&[&words[..], &["--shards", &copy]].concat());
    assert!(said.code == Some(2) && said.stderr.contains("twice"), "{said:?}");
    assert!(!cluster.scratch.path().join("twice").exists());
}

#[test]
fn t3_a_task_that_failed_is_performed_again_and_one_that_goes_on_is_not() {
    let cluster = Cluster::start("1");
    let (number, values) = cluster.points(0)[0].clone();
    let hold = cluster.hold(&values);
    let began = format!("{hold}.began");
    let mut task = cluster.task(0).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("the task holds", || Path::new(&began).exists());
    let said = run(&mut cluster.task(0));
    assert!(said.code == Some(2) && said.stderr.contains("another process"), "{said:?}");
    // Asked to end, as before the kill of an engine, it puts back what it holds and says so.
    run(Command::new("kill").arg(task.id().to_string())).done();
    assert_eq!(task.wait().unwrap().code(), Some(2));
    fs::remove_file(hold).unwrap();
    let status = cluster.status().json();
    assert!(status["failed"][number.to_string()].is_string(), "{status}");
    assert_eq!(status["missing"].as_array().unwrap().len(), 5, "{status}");
    run(&mut cluster.task(0)).done();
    cluster.status().done();
}

#[test]
fn t3_the_shipped_sweep_is_divided_and_a_task_of_it_is_done() {
    let cluster = Cluster::start("1");
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/clusters/seeds.yaml");
    let words = ["array", "slurm", file, "--into", "seeds", "--tasks", "60"];
    let said = cluster.timewire(&words).done();
    assert!(said.stdout.contains("60 performances as 60 tasks"), "{said:?}");
    let said = cluster.timewire(&["array", "task", "seeds", "59", "--json"]).done();
    let checks = &said.json()["results"][0]["checks"];
    assert_eq!((&checks[0]["ok"], checks.as_array().unwrap().len()), (&true.into(), 1), "{said:?}");
}
