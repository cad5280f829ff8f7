// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An experiment as an array: tasks in any order, killed and repeated, by Slurm and by hand, and
//! their shares merged to what one run leaves.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::{Said, Scratch, TIMEWIRE, run, wait_until};
use serde_json::Value as Json;

const NETWORK: &str = "timewire: 1
kind: network
name: net
duration: 200ms
stations: [{name: a}, {name: b}]
segments: [{name: hub, access: contention, stations: [a, b], rate: 100Mbit}]
streams:
  - {name: s, talker: a, listeners: b, size: 64B,
      kind: sporadic, gap: {kind: exponential, mean: 1ms}}
";

/// `HOLD` begins what waits as long as there is a file of that name.
const EXPERIMENT: &str = r#"timewire: 1
kind: network
name: seeds
seed: 4
experiment:
  timing: {lease: 2s, resend: 100ms, lead: 500ms, phase: 60s}
  variables:
    - {name: seed, from: 1, to: 3}
    - {name: text, values: [plain, "it's \"$(touch pwned)\"\n`x` $${seed} #"]}
    - {name: which, values: [a, b]}
  together: [[text, which]]
stations:
  - name: here
    phases:
      setup: [{put: net.yaml, from: 'below/the "net" $(x).yaml'}, {put: blob, from: blob}]
      run:
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
        scratch.hosts(&[("here", "local")]);
        fs::create_dir(at("below")).unwrap();
        fs::write(at("below/the \"net\" $(x).yaml"), NETWORK).unwrap();
        fs::write(at("blob"), blob()).unwrap();
        // What a script must not take apart.
        symlink(TIMEWIRE, at("time wire's $(x)")).unwrap();
        let array = at("an \"array\"\n of $(tasks)'");
        let cluster = Cluster { scratch, array };
        let program = cluster.join("time wire's $(x)");
        let out = cluster.array.to_str().unwrap();
        let words = ["run", "e.yaml", "--array", "slurm", "--out", out, "--tasks", tasks];
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
        self.merge(&["--dry-run", "--json"])
    }

    fn merge(&self, words: &[&str]) -> Said {
        let array = ["run", self.array.to_str().unwrap(), "--merge"];
        self.timewire(&[&array[..], words].concat())
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

    /// The trials of a task, with their values.
    fn points(&self, task: usize) -> Vec<(u64, Json)> {
        let points = fs::read(self.array.join("points.json")).unwrap();
        let points: Json = serde_json::from_slice(&points).unwrap();
        let points = points["points"].as_array().unwrap().iter();
        let points = points.filter(|point| point["task"] == task);
        points.map(|it| (it["number"].as_u64().unwrap(), it["values"].clone())).collect()
    }

    /// A task with two trials, and the number and the values of the last of them.
    fn victim(&self) -> (usize, u64, Json) {
        let all = (0..4).map(|task| (task, self.points(task)));
        let (task, points) = all.into_iter().find(|(_, points)| points.len() == 2).unwrap();
        (task, points[1].0, points[1].1.clone())
    }

    /// Holds the trial with these values; the file that does.
    fn hold(&self, values: &Json) -> String {
        let value = |name: &str| values[name].as_str().unwrap();
        self.scratch.write(&format!("hold-{}-{}", value("seed"), value("which")), "")
    }

    fn shard(&self, task: usize) -> PathBuf {
        self.array.join("shards").join(format!("{task:04}"))
    }

    /// Starts a task that holds at one of its trials, and kills all of it there.
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
        text.contains("/records/") || ["summary.json", "experiment.json"].contains(&text)
    };
    all.retain(|path, _| is_result(path));
    all
}

/// A summary without when programs really started: each trial starts at its own instant.
fn without_starts(mut summary: serde_json::Value) -> serde_json::Value {
    for result in summary["results"].as_array_mut().unwrap() {
        let starts = result.as_object_mut().unwrap().remove("starts").unwrap();
        assert_eq!(starts.as_array().unwrap().len(), 1, "{starts}");
    }
    summary
}

/// Merges what the tasks of a cluster left, and finds that it is the same as one run.
fn merged_is_one_run(cluster: &Cluster) {
    let one = cluster.timewire(&["run", "e.yaml", "--on", "hosts.yaml", "--out", "one", "--json"]);
    assert_eq!(one.code, Some(1), "{one:?}");
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
    // What is merged is a run like any other.
    let again = ["run", "e.yaml", "--on", "hosts.yaml", "--out", "merged"];
    assert_eq!(cluster.timewire(&again).code, Some(1));
    for place in [cluster.array.clone(), cluster.scratch.path().to_owned(), PathBuf::from("/")] {
        assert!(!place.join("pwned").exists());
    }
}

#[test]
fn t3_shares_of_tasks_in_any_order_killed_and_repeated_merge_to_one_run() {
    let cluster = Cluster::start("4");
    // Nothing is there yet: all is missing, and nothing is merged.
    let said = cluster.status();
    let all = serde_json::json!([0, 1, 2, 3]);
    assert_eq!((said.code, &said.json()["again"]), (Some(1), &all));
    let said = cluster.merge(&["--out", "early"]);
    assert!(said.code == Some(2) && said.stderr.contains("6 missing"), "{said:?}");
    assert!(!cluster.scratch.path().join("early").exists());
    // Out of order; one is killed in the last of its trials, and the others are done.
    let (victim, number, values) = cluster.victim();
    let rest = [3, 1, 0, 2].into_iter().filter(|task| *task != victim);
    cluster.killed_midway(victim, number, &values);
    for index in rest {
        let said = run(&mut cluster.task(index));
        assert_eq!(said.code, Some(0), "a limit is no failure of a task: {said:?}");
    }
    let said = cluster.status();
    let status = said.json();
    assert_eq!((said.code, &status["missing"]), (Some(1), &serde_json::json!([number])));
    assert_eq!(status["again"], serde_json::json!([victim]));
    let first = cluster.shard(victim).join(format!("{:04}/end.json", cluster.points(victim)[0].0));
    let before = fs::metadata(&first).unwrap().modified().unwrap();
    run(&mut cluster.task(victim)).done();
    assert_eq!(fs::metadata(&first).unwrap().modified().unwrap(), before, "done stays done");
    assert!(cluster.shard(victim).join(format!("aside/{number:04}-1/end.json")).exists());
    // Once more does nothing.
    run(&mut cluster.task(victim)).done();
    cluster.status().done();
    merged_is_one_run(&cluster);
}

/// Runs a command beside a Slurm of its own.
const SLURM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/slurm-one-node.sh");

/// Whether there is a Slurm; says why not.
fn has_slurm() -> bool {
    let said = run(Command::new(SLURM).arg("true"));
    if said.code == Some(4) {
        eprintln!("SKIP: {}", said.stderr.trim());
        return false;
    }
    said.done();
    true
}

/// Submits all tasks, waits until only the one with index `$2` is left, which holds at `$1`,
/// cancels that, and waits until Slurm has nothing to do.
const SUBMIT_AND_CANCEL: &str = r#"
    job=$("$0" --parsable --comment='two words')
    until [ -e "$1" ] && [ "$(squeue --noheader --format=%K)" = "$2" ]; do sleep 0.1; done
    scancel "${job}_$2"
    while [ -n "$(squeue --noheader)" ]; do sleep 0.1; done
"#;

#[test]
fn t4_slurm_runs_an_array_and_a_cancelled_task_of_it_again() {
    if !has_slurm() {
        return;
    }
    let cluster = Cluster::start("4");
    let slurm = |line: &str| {
        // It ends with this test, and after a while.
        let mut command = cluster.command("setpriv");
        command.args(["--pdeathsig", "TERM", "timeout", "--kill-after=5", "240"]);
        command.args([SLURM, "sh", "-euc", line]);
        command
    };
    let (victim, number, values) = cluster.victim();
    let hold = cluster.hold(&values);
    let submit = cluster.array.join("submit.sh");
    let began = format!("{hold}.began");
    run(slurm(SUBMIT_AND_CANCEL).arg(submit).args([&began, &victim.to_string()])).done();
    fs::remove_file(hold).unwrap();
    let status = cluster.status().json();
    assert_eq!(status["done"].as_array().unwrap().len(), 5, "{status}");
    let failure = status["failed"][number.to_string()].as_str().unwrap();
    assert!(failure.contains("ended on request"), "{status}");
    assert_eq!(status["again"], serde_json::json!([victim]), "{status}");
    // The command that is told does what failed, and nothing else.
    let again = status["command"].as_str().unwrap();
    let wait = "while [ -n \"$(squeue --noheader)\" ]; do sleep 0.1; done";
    run(&mut slurm(&format!("{again}; {wait}"))).done();
    // A new Slurm has the same number for its first job, and logs are appended to.
    let logs: Vec<_> = fs::read_dir(cluster.array.join("logs")).unwrap().collect();
    assert_eq!(logs.len(), 4, "{logs:?}");
    cluster.status().done();
    merged_is_one_run(&cluster);
}

#[test]
fn t3_what_is_foreign_twice_or_damaged_is_named() {
    let cluster = Cluster::start("100");
    let points: Vec<_> = (0..6).map(|task| cluster.points(task)).collect();
    assert!(points.iter().all(|points| points.len() == 1), "no more tasks than trials");
    let said = run(&mut cluster.task(6));
    assert!(said.code == Some(2) && said.stderr.contains("tasks 0 to 5"), "{said:?}");
    run(&mut cluster.task(0)).done();
    run(&mut cluster.task(1)).done();
    // A share of an array that was made anew from the same file.
    let other = cluster.join("other");
    cluster.timewire(&["run", "e.yaml", "--array", "slurm", "--out", &other]).done();
    let shards = cluster.array.join("shards");
    cluster.timewire(&["run", &other, "--task", "2"]).done();
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
    // With --partial what is good is merged, and the rest is said.
    let said = cluster.merge(&["--out", "part", "--partial", "--json"]);
    assert_eq!((said.code, said.json()["results"].as_array().unwrap().len()), (Some(2), 1));
    assert!(said.stderr.contains("foreign") && said.stderr.contains("damaged"), "{said:?}");
    // The same trial twice is never merged.
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
    // Asked to end, as before the kill of an engine, it restores what it holds and says so.
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
    let words = ["run", file, "--array", "slurm", "--out", "seeds", "--tasks", "60"];
    let said = cluster.timewire(&words).done();
    assert!(said.stdout.contains("60 trials as 60 tasks"), "{said:?}");
    let said = cluster.timewire(&["run", "seeds", "--task", "59", "--json"]).done();
    let checks = &said.json()["results"][0]["checks"];
    assert_eq!(
        (&checks[0]["verdict"], checks.as_array().unwrap().len()),
        (&"pass".into(), 1),
        "{said:?}"
    );
}

#[test]
fn t3_an_array_is_checked_without_being_made_and_made_for_programs_that_read_json() {
    let cluster = Cluster::start("1");
    let words = ["run", "e.yaml", "--array", "kubernetes", "--image", "i", "--claim", "c"];
    let words = [&words[..], &["--tasks", "3", "--out", "made", "--json"]].concat();
    let said = cluster.timewire(&[&words[..], &["--dry-run"]].concat()).done();
    assert_eq!(said.json()["trials"].as_array().unwrap().len(), 6, "{said:?}");
    assert!(said.stderr.contains("6 trials as 3 tasks; nothing was made"), "{said:?}");
    assert!(!cluster.scratch.path().join("made").exists());
    let said = cluster.timewire(&words).done();
    let head = fs::read(cluster.join("made/array.json")).unwrap();
    assert_eq!(said.json(), serde_json::from_slice::<Json>(&head).unwrap());
    assert!(Path::new(&cluster.join("made/job.yaml")).is_file());
    // It is wrong before it is made, too.
    let said = cluster.timewire(&[&words[..], &["--dry-run", "--cpu", "two"]].concat());
    assert!(said.code == Some(2) && said.stderr.contains("no amount of CPUs"), "{said:?}");
}
