// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `timewire lab` and `run --lab uml` as a user meets them: words and exit codes of a command in
//! the laboratory's kernel, files, time, wrong use, and an experiment that is the same every time.
//!
//! Not here: what the kernel's queueing disciplines do (tests of `timewire-lab`).
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use support::{BOTH_CASES, PLAIN_CASE, Said, Scratch, TIMEWIRE, Tiny, run, timewire, wait_until};

/// Whether there is a kernel to test with; says so when not.
fn kernel() -> bool {
    let there = timewire(&["lab", "exec", "--", "true"]).code == Some(0);
    if !there {
        eprintln!("SKIP: no laboratory kernel here; `timewire lab uml` builds one");
    }
    there
}

fn exec(words: &[&str]) -> Said {
    let mut arguments = vec!["lab", "exec"];
    arguments.extend(words);
    timewire(&arguments)
}

#[test]
fn t4_a_command_has_its_own_words_and_exit_code() {
    if !kernel() {
        return;
    }
    let said = exec(&["--", "sh", "-c", "echo out; echo err >&2; test -t 1; echo $?; exit 7"]);
    assert_eq!(
        (said.code, said.stdout.as_str(), said.stderr.as_str()),
        (Some(7), "out\n1\n", "err\n")
    );
    let said = exec(&["--", "sh", "-c", "kill -9 $$"]);
    assert_eq!(said.code, Some(137), "{said:?}");
}

#[test]
fn t4_much_output_arrives_whole() {
    if !kernel() {
        return;
    }
    let said = exec(&["--", "seq", "1", "100000"]).done();
    assert_eq!(said.stdout.lines().count(), 100_000);
    assert!(said.stdout.ends_with("\n100000\n"));
}

#[test]
fn t4_standard_input_is_read_when_asked_for() {
    if !kernel() {
        return;
    }
    let feed = |arguments: &[&str]| {
        let mut command = Command::new(TIMEWIRE);
        command.args(["lab", "exec"]).args(arguments).args(["--", "cat"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // Without being asked for it is not read, and may be closed before all is written.
        let _ = child.stdin.take().unwrap().write_all(b"one\ntwo");
        String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
    };
    assert_eq!(feed(&["--stdin"]), "one\ntwo");
    assert_eq!(feed(&[]), "");
}

#[test]
fn t4_the_hosts_files_are_there_and_stay_as_they_are() {
    if !kernel() {
        return;
    }
    let scratch = Scratch::new();
    let file = scratch.write("kept", "before");
    let open = Scratch::new();
    let script = format!(
        "cat {file}; echo lost > {file}; cat {file}; echo kept > {}/made; touch /etc/nothing",
        open.path().display()
    );
    let open_path = open.path().to_str().unwrap();
    let said = exec(&["--writable", open_path, "--", "sh", "-c", &script]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert_eq!(said.stdout, "beforelost\n");
    assert!(said.stderr.contains("/etc/nothing") && said.stderr.contains("Read-only"), "{said:?}");
    assert_eq!(fs::read_to_string(file).unwrap(), "before");
    assert_eq!(fs::read_to_string(open.join("made")).unwrap(), "kept\n");
}

#[test]
fn t4_waiting_takes_exactly_as_long_as_asked_and_no_time_of_the_host() {
    if !kernel() {
        return;
    }
    let script = "a=$(date +%s%N); sleep 86400; b=$(date +%s%N); echo $((b - a))";
    let said = exec(&["--", "sh", "-c", script]).done();
    let spent: u64 = said.stdout.trim().parse().unwrap();
    let day = 86_400_000_000_000;
    // Every look at the clock, also of the kernel itself, takes 256 ns, and programs start.
    assert!((day..day + 1_000_000).contains(&spent), "{spent}");
    let again = exec(&["--", "sh", "-c", script]).done();
    assert_eq!(said.stdout, again.stdout);
}

#[test]
fn t4_random_numbers_are_the_same_every_time() {
    if !kernel() {
        return;
    }
    let script = "head -c 16 /dev/random | od -An -tx1; cat /proc/sys/kernel/random/uuid";
    let (one, two) = (exec(&["--", "sh", "-c", script]).done(), exec(&["--", "sh", "-c", script]));
    assert_eq!(one.stdout, two.stdout);
    let wall = exec(&["--time", "wall", "--", "sh", "-c", script]).done();
    assert_ne!(one.stdout, wall.stdout);
}

/// How much there is depends on where the host puts the parts of the kernel's program; what a
/// program may do then depends on that.
#[test]
fn t4_a_machine_has_the_same_memory_every_time() {
    if !kernel() {
        return;
    }
    let total = || exec(&["--memory", "64", "--", "grep", "MemTotal", "/proc/meminfo"]).done();
    let first = total();
    for _ in 0..5 {
        assert_eq!(total().stdout, first.stdout);
    }
}

#[test]
fn t4_an_interrupted_run_keeps_its_records() {
    if !kernel() {
        return;
    }
    let scratch = Scratch::new();
    // A long experiment, so that it cannot be over before it is interrupted.
    let text = Tiny { name: "tiny", cases: PLAIN_CASE, more: "" }.text();
    let file = scratch.write("tiny.yaml", &text.replace("duration: 200ms", "duration: 1000s"));
    let out = scratch.join("out");
    let mut command = Command::new(TIMEWIRE);
    command.args(["run", &file, "--lab", "uml", "--out", &out]).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let records = scratch.path().join("out/cases/tiny.plain.alone/control-client.twr");
    wait_until("something is recorded", || {
        fs::metadata(&records).is_ok_and(|file| file.len() > 10_000)
    });
    run(Command::new("kill").args(["-INT", &child.id().to_string()])).done();
    let said = child.wait_with_output().unwrap();
    assert_eq!(said.status.code(), Some(2));
    let told = String::from_utf8(said.stderr).unwrap();
    assert!(told.contains("what was recorded until then is kept"), "{told}");
    let report = timewire(&["report", &out, "--json"]).json();
    assert_eq!(report["complete"], false);
    assert!(report["cases"][0]["streams"][0]["sent"].as_u64() > Some(0));
}

#[test]
fn t4_a_killed_owner_takes_its_machine_along() {
    if !kernel() {
        return;
    }
    let mark = format!("machine-of-{}", std::process::id());
    let mut command = Command::new(TIMEWIRE);
    // At wall speed, and with a name on its command line to be found by.
    command.args(["lab", "exec", "--time", "wall", "--", "sh", "-c"]);
    command.arg(format!("echo up; exec sleep 1000 # {mark}")).stdout(Stdio::piped());
    let mut owner = command.spawn().unwrap();
    let mut first = [0; 3];
    std::io::Read::read_exact(&mut owner.stdout.take().unwrap(), &mut first).unwrap();
    let machines = || {
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let of_owner = processes.filter(|entry| {
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains("__lab-init")
                && parent(&entry.path()) == Some(owner_id())
        });
        of_owner.count()
    };
    let id = owner.id();
    OWNER.store(id, std::sync::atomic::Ordering::Relaxed);
    assert!(machines() >= 1);
    owner.kill().unwrap();
    owner.wait().unwrap();
    wait_until("the machine is gone", || machines() == 0);
    let left = run(Command::new("pgrep").args(["-f", &mark]));
    assert_eq!(left.stdout, "", "programs of the machine outlived it");
}

static OWNER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);

fn owner_id() -> u32 {
    OWNER.load(std::sync::atomic::Ordering::Relaxed)
}

fn parent(process: &std::path::Path) -> Option<u32> {
    let stat = fs::read_to_string(process.join("stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

#[test]
fn t4_what_cannot_be_started_is_named() {
    if !kernel() {
        return;
    }
    let said = exec(&["--", "no-such-program"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.stderr.contains("cannot run `no-such-program` in "), "{said:?}");
    let said = exec(&["--writable", "/no/such/directory", "--", "true"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.stderr.contains("/no/such/directory"), "{said:?}");
}

#[test]
fn t3_a_kernel_that_is_not_there_is_named_with_the_command_that_gets_it() {
    let cache = Scratch::new();
    let mut command = Command::new(TIMEWIRE);
    command.env("TIMEWIRE_CACHE", cache.path()).args(["lab", "exec", "--kernel", "6.1", "true"]);
    run(&mut command).failed(
        4,
        "error: no laboratory kernel 6.1 is there\n  hint: `timewire lab uml --kernel 6.1` gets \
         it; `timewire lab doctor` tells what is possible\n",
    );
    let mut command = Command::new(TIMEWIRE);
    command.env("TIMEWIRE_CACHE", cache.path()).args(["lab", "uml", "--kernel", "six"]);
    run(&mut command).failed(
        2,
        "error: this laboratory cannot be built: `six` is no kernel series such as `6.12`\n",
    );
    let mut command = Command::new(TIMEWIRE);
    command.env("TIMEWIRE_CACHE", cache.path()).args(["lab", "doctor", "--json"]);
    let told = run(&mut command).json();
    assert_eq!(told["schema"], "timewire.lab-doctor/1");
    let kernel = told["checks"]
        .as_array()
        .unwrap()
        .iter()
        .find(|check| check["laboratory"] == "uml" && check["name"] == "kernel");
    assert_eq!(kernel.unwrap()["mend"], "timewire lab uml");
}

#[test]
fn t3_a_shell_needs_a_terminal() {
    let said = timewire(&["lab", "shell"]);
    said.failed(2, "error: a shell needs a terminal; `timewire lab exec -- COMMAND` needs none\n");
}

const ALL_CARRIERS: &str = "{ name: plain, title: Plain, mac: none }, \
     { name: own, title: Own, mac: tdm, priorities: true }, \
     { name: gates, title: taprio, mac: taprio, priorities: true }";

/// Every file of records of a run, by name.
fn records(directory: &std::path::Path) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    for case in support::list(&directory.join("cases")) {
        let dir = directory.join("cases").join(&case);
        for name in support::list(&dir).into_iter().filter(|name| name.ends_with(".twr")) {
            files.push((format!("{case}/{name}"), fs::read(dir.join(&name)).unwrap()));
        }
    }
    files
}

#[test]
fn t4_an_experiment_has_the_same_stamps_every_time() {
    if !kernel() {
        return;
    }
    let scratch = Scratch::new();
    let text = Tiny { name: "tiny", cases: ALL_CARRIERS, more: "" }.text();
    let file = scratch.write("tiny.yaml", &text);
    let start = |out: &str| {
        let out = scratch.join(out);
        timewire(&["run", &file, "--lab", "uml", "--out", &out, "--json"]).done()
    };
    let (one, two) = (start("one"), start("two"));
    let (a, b) = (records(&scratch.path().join("one")), records(&scratch.path().join("two")));
    assert_eq!(a.len(), 9, "three cases with client, server and observer");
    for (one, two) in a.iter().zip(&b) {
        assert!(one == two, "{} differs between two runs", one.0);
    }
    let summary = one.json();
    let found = |case: &str| {
        let cases = summary["cases"].as_array().unwrap();
        cases.iter().find(|found| found["case"] == case).unwrap().clone()
    };
    for case in ["own", "gates"] {
        assert_eq!(found(case)["wire"]["outside_slots"], 0, "{case}");
    }
    assert_eq!(one.stdout, two.stdout);
    let machine = summary["environment"].to_string();
    assert!(machine.contains("in virtual time"), "{machine}");
}

#[test]
fn t4_a_case_that_this_kernel_cannot_carry_says_where_it_runs() {
    let Some(host) = support::Host::start() else { return };
    let text = Tiny { name: "tiny", cases: ALL_CARRIERS, more: "" }.text();
    let file = host.scratch().write("tiny.yaml", &text);
    let said = host.timewire(&["run", &file, "--out", "out"]);
    if said.code == Some(0) {
        // A host with taprio carries it.
        assert!(said.stdout.contains("gates"), "{said:?}");
        return;
    }
    assert_eq!(said.code, Some(4), "{said:?}");
    assert!(said.stderr.contains("taprio, which a case of the scenario uses"), "{said:?}");
    assert!(said.stderr.ends_with("hint: run in a kernel that has it: --lab uml\n"), "{said:?}");
}

#[test]
fn t3_the_kernel_of_this_host_is_as_it_is() {
    let scratch = Scratch::new();
    let text = Tiny { name: "tiny", cases: BOTH_CASES, more: "" }.text();
    let file = scratch.write("tiny.yaml", &text);
    let said = timewire(&["run", &file, "--kernel", "6.1"]);
    said.failed(2, "error: --kernel and --time are for `--lab uml`; this kernel is as it is\n");
}
