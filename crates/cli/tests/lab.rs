// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `timewire lab` and `run --on lab:uml` as a user meets them: words and exit codes of a command in
//! the laboratory's kernel, files, time, wrong use, and an experiment that is the same every time.

use std::fs;
use std::io::{Read, Write};
use std::process::{Command, Stdio};

use crate::support;
use crate::support::{
    BOTH_CASES, PLAIN_CASE, Said, Scratch, TIMEWIRE, Tiny, has_kernel, run, timewire, wait_until,
};

fn exec(words: &[&str]) -> Said {
    let mut arguments = vec!["lab", "exec"];
    arguments.extend(words);
    timewire(&arguments)
}

#[test]
fn t4_a_command_has_its_own_words_and_exit_code() {
    if !has_kernel() {
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
    if !has_kernel() {
        return;
    }
    let said = exec(&["--", "seq", "1", "100000"]).done();
    assert_eq!(said.stdout.lines().count(), 100_000);
    assert!(said.stdout.ends_with("\n100000\n"));
}

#[test]
fn t4_standard_input_is_read_when_asked_for() {
    if !has_kernel() {
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
    if !has_kernel() {
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
    if !has_kernel() {
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
    if !has_kernel() {
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
    if !has_kernel() {
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
    if !has_kernel() {
        return;
    }
    let scratch = Scratch::new();
    // A long experiment, so that it cannot be over before it is interrupted.
    let text = Tiny { name: "tiny", cases: PLAIN_CASE, more: "" }.text();
    let file = scratch.write("tiny.yaml", &text.replace("duration: 250ms", "duration: 1000s"));
    let out = scratch.join("out");
    let mut command = Command::new(TIMEWIRE);
    command.args(["run", &file, "--on", "lab:uml", "--out", &out]).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let records = scratch.path().join("out/cases/tiny.plain.alone/control-client.twr");
    // More than of what comes before the measured interval.
    wait_until("something is recorded", || {
        fs::metadata(&records).is_ok_and(|file| file.len() > 100_000)
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
    if !has_kernel() {
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

/// A command on a terminal of its own: what it said, and its exit code. Once it has said `begun`,
/// these keys are pressed, each after the words before it were said.
fn on_terminal(arguments: &[&str], keys: &[(&str, &str)]) -> Option<(String, Option<i32>)> {
    let quoted = |word: &&str| format!("'{word}'");
    let words: Vec<String> = [&[TIMEWIRE], arguments].concat().iter().map(quoted).collect();
    let mut command = Command::new("script");
    let line = format!("exec {}", words.join(" "));
    command.args(["-qefc", &line, "/dev/null"]).env("SHELL", "/bin/sh");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let Ok(mut child) = command.spawn() else {
        eprintln!("SKIP: no `script`, which makes terminals");
        return None;
    };
    let mut keyboard = child.stdin.take().unwrap();
    let mut screen = child.stdout.take().unwrap();
    let (mut said, mut keys, mut buffer) = (String::new(), keys.iter(), [0; 4096]);
    let mut next = keys.next();
    while let Ok(count @ 1..) = screen.read(&mut buffer) {
        said.push_str(&String::from_utf8_lossy(&buffer[..count]));
        while let Some((_, press)) = next.filter(|(after, _)| said.contains(after)) {
            keyboard.write_all(press.as_bytes()).unwrap();
            next = keys.next();
        }
    }
    Some((said, child.wait().unwrap().code()))
}

const CTRL_C: &str = "\u{3}";

#[test]
fn t4_ctrl_c_in_a_terminal_ends_a_command_with_its_machine() {
    if !has_kernel() {
        return;
    }
    const GOES_ON: &str = "echo be''gun; while :; do sleep 1000; done";
    for place in [&["--time", "wall"][..], &[], &["--in", "qemu"]] {
        if place.contains(&"qemu") && exec(&["--in", "qemu", "--", "true"]).code != Some(0) {
            eprintln!("SKIP: no emulated machine here; `timewire lab qemu` gets one");
            continue;
        }
        let script = GOES_ON.replace("''", "\"\"");
        let words = [&["lab", "exec"], place, &["--", "sh", "-c", &script]].concat();
        let Some((said, code)) = on_terminal(&words, &[("begun", CTRL_C)]) else { return };
        assert_eq!(code, Some(2), "{place:?}: {said}");
        assert!(said.contains("begun\r\n") && said.contains("ended on request"), "{said}");
    }
}

#[test]
fn t4_a_shell_has_the_terminal_and_its_ctrl_c() {
    if !has_kernel() {
        return;
    }
    // What is typed is shown too, so that no answer may be a word of it.
    let keys = [
        ("# ", "echo be\"\"gun; sleep 100000\r"),
        ("begun\r\n", CTRL_C),
        ("^C", "echo $((30 + 12)) is \"the\" answer\r"),
        ("42 is the answer", "exit 7\r"),
    ];
    let Some((said, code)) = on_terminal(&["lab", "shell", "--time", "wall"], &keys) else {
        return;
    };
    assert_eq!(code, Some(7), "{said}");
}

#[test]
fn t4_a_machine_without_memory_says_so() {
    if !has_kernel() {
        return;
    }
    // `tail` keeps a line, which never ends.
    let eats = ["--", "sh", "-c", "head -c 400000000 /dev/zero | tail | wc -c"];
    let hungry: [(&[&str], u32); 3] = [
        (&["--memory", "128"], 128),
        (&["--memory", "128", "--time", "wall"], 128),
        (&["--in", "qemu", "--memory", "64"], 64),
    ];
    for (place, mib) in hungry {
        if place.contains(&"qemu") && exec(&["--in", "qemu", "--", "true"]).code != Some(0) {
            eprintln!("SKIP: no emulated machine here; `timewire lab qemu` gets one");
            continue;
        }
        let said = exec(&[place, &eats].concat());
        assert_eq!(said.code, Some(2), "{said:?}");
        let words = format!("machine ran out of memory ({mib} MiB)");
        assert!(said.stderr.contains(&words), "{said:?}");
        assert!(said.stderr.contains(&format!("--memory {}", 2 * mib)), "{said:?}");
        assert!(!said.stderr.contains("Call Trace"), "{said:?}");
    }
}

#[test]
fn t4_what_cannot_be_started_is_named() {
    if !has_kernel() {
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

const ALL_BACKENDS: &str = "{ name: plain, title: Plain, change: { schedule: null } }, \
     { name: own, title: Own }, \
     { name: gates, title: taprio, change: { schedule: { by: taprio } } }, \
     { name: assist, title: Assisted, change: { schedule: { by: taprio-assist } } }, \
     { name: etf, title: Launch times, change: { schedule: { by: etf } } }, \
     { name: cbs, title: Shaped, change: { schedule: { by: cbs } } }";

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
fn t4_an_experiment_has_the_same_timestamps_every_time() {
    if !has_kernel() {
        return;
    }
    let scratch = Scratch::new();
    let text = Tiny { name: "tiny", cases: ALL_BACKENDS, more: "" }.text();
    let file = scratch.write("tiny.yaml", &text);
    let start = |out: &str| {
        let out = scratch.join(out);
        timewire(&["run", &file, "--on", "lab:uml", "--out", &out, "--json"]).done()
    };
    let (one, two) = (start("one"), start("two"));
    let (a, b) = (records(&scratch.path().join("one")), records(&scratch.path().join("two")));
    assert_eq!(a.len(), 18, "six cases with client, server and observer");
    for (one, two) in a.iter().zip(&b) {
        assert!(one == two, "{} differs between two runs", one.0);
    }
    let summary = one.json();
    let found = |case: &str| {
        let cases = summary["cases"].as_array().unwrap();
        cases.iter().find(|found| found["case"] == case).unwrap().clone()
    };
    for case in ["own", "gates", "assist", "etf"] {
        assert_eq!(found(case)["wire"]["outside_slots"], 0, "{case}");
    }
    assert_eq!(one.stdout, two.stdout);
    let machine = summary["environment"].to_string();
    assert!(machine.contains("in virtual time"), "{machine}");
}

#[test]
fn t4_a_case_that_this_kernel_cannot_carry_says_where_it_runs() {
    let Some(host) = support::Host::start() else { return };
    let text = Tiny { name: "tiny", cases: ALL_BACKENDS, more: "" }.text();
    let file = host.scratch().write("tiny.yaml", &text);
    let said = host.timewire(&["run", &file, "--out", "out"]);
    if said.code == Some(0) {
        // A host with taprio carries it.
        assert!(said.stdout.contains("gates"), "{said:?}");
        return;
    }
    assert_eq!(said.code, Some(4), "{said:?}");
    assert!(said.stderr.contains("taprio: Specified qdisc kind is unknown"), "{said:?}");
    assert!(said.stderr.contains("mend: timewire run --on lab:uml FILE\n"), "{said:?}");
}

/// Whether there is a kernel of this series; says so when not.
fn kernel_of(series: &str) -> bool {
    let there = exec(&["--kernel", series, "--", "true"]).code == Some(0);
    if !there {
        eprintln!("SKIP: no laboratory kernel {series} here; `timewire lab uml` builds one");
    }
    there
}

/// What is alike in all kernels: what each backend promises, and to the nanosecond where it
/// promises one.
#[test]
fn t4_every_backend_keeps_its_promise_on_both_kernels() {
    let flood = "  - { name: load, kind: flood, talker: beta, listeners: alpha, port: 17001, \
                 size: 512B, rate: 60Mbit, burst: 8 }\n";
    for series in ["6.12", "6.1"] {
        if !kernel_of(series) {
            continue;
        }
        let scratch = Scratch::new();
        let text = Tiny { name: "tiny", cases: ALL_BACKENDS, more: "" }.text();
        let text = text.replace("experiment:\n", &format!("{flood}experiment:\n"));
        let file = scratch.write("tiny.yaml", &text);
        let out = scratch.join("out");
        let run = ["run", &file, "--on", "lab:uml", "--kernel", series, "--out", &out, "--json"];
        let summary = timewire(&run).done().json();
        let found = |case: &str| {
            let cases = summary["cases"].as_array().unwrap();
            cases.iter().find(|found| found["case"] == case).unwrap().clone()
        };
        let count = |value: &serde_json::Value| value.as_u64().unwrap();
        for case in ["own", "gates", "assist"] {
            let case = found(case);
            assert_eq!(case["backend"]["slots"], "all");
            assert_eq!(case["wire"]["outside_slots"], 0, "{series} {}", case["case"]);
            // Best effort was there, too.
            let (all, real_time) = (&case["wire"]["frames"], &case["wire"]["real_time_frames"]);
            assert!(count(all) > count(real_time) + 200, "{series} {all} {real_time}");
        }
        let etf = found("etf");
        assert_eq!(etf["wire"]["real_time_outside_slots"], 0, "{series}");
        assert!(count(&etf["wire"]["outside_slots"]) > 200, "{series}: best effort has no gate");
        let launch = &etf["streams"][0]["launch"];
        assert_eq!((&launch["refused"], &launch["missed"]), (&0.into(), &0.into()), "{series}");
        assert_eq!(launch["launched"], etf["streams"][0]["sent"], "{series}");
        assert_eq!(etf["streams"][0]["lost"], 0, "{series}");
        // A timer is at most 512 ns late; a program that runs in that instant may come on top.
        let error = &launch["error"];
        let [min, p50] = ["min_ns", "p50_ns"].map(|key| error[key].as_i64().unwrap());
        assert!((1..=512).contains(&min) && (1..=512).contains(&p50), "{series}: {error}");
        let cbs = found("cbs");
        assert_eq!((&cbs["tdm"], &cbs["backend"]["slots"]), (&false.into(), &"none".into()));
        for station in cbs["reserved"].as_array().unwrap() {
            assert_eq!(station["outside_rate"], 0, "{series}: {station}");
            // It gets what it reserved: in 200 ms, 200 frames and a few for the rounding.
            let frames = count(&station["frames"]);
            assert!((100..=203).contains(&frames), "{series}: {station}");
        }
    }
}

#[test]
fn t4_launch_times_that_cannot_be_kept_are_counted_and_named() {
    if !has_kernel() {
        return;
    }
    let scratch = Scratch::new();
    let cases = "{ name: etf, title: Launch times, \
                 change: { streams: { control: { class: 0 } }, queues: null } }";
    let limit = "mac: { launch_delta: 0ns }\n";
    let text = Tiny { name: "tiny", cases, more: limit }.text();
    let file = scratch.write("tiny.yaml", &text);
    // Tried first: a frame of the trial is missed, so nothing is measured.
    let out = scratch.join("out");
    let said = timewire(&["run", &file, "--on", "lab:uml", "--backend", "etf", "--out", &out]);
    assert_eq!(said.code, Some(4), "{said:?}");
    let why = "timers here are later than the launch_delta of 0ns";
    assert!(said.stderr.contains(why), "{said:?}");
    // No other kernel would mend that.
    assert!(!said.stderr.contains("hint"), "{said:?}");
    // As long as timers are late, all but a few: the kernel tells of each message that it dropped,
    // and each is lost. Without a warm-up, in which more are dropped than measured. The frames of
    // the trial are of those few with hardly any delta, and not with all three.
    let text = text.replace("warm_up: 50ms", "warm_up: 0ms");
    let text = text.replace("duration: 250ms", "duration: 3s").replace("100ms", "5ms");
    let run = |delta: &&str| {
        let file = scratch.write("tiny.yaml", &text.replace("0ns }", &format!("{delta} }}")));
        let out = scratch.join(delta);
        timewire(&["run", &file, "--on", "lab:uml", "--backend", "etf", "--out", &out, "--json"])
    };
    let tried = ["512ns", "520ns", "528ns"].iter().map(run).find(|said| said.code != Some(4));
    let said = tried.expect("a trial that is in time").done();
    let stream = &said.json()["cases"][0]["streams"][0];
    let launch = |what: &str| stream["launch"][what].as_u64().unwrap();
    let missed = launch("missed");
    assert!(missed > 0 && missed < launch("launched") / 10, "{stream}");
    // A launch time may be over already when its frame arrives.
    assert_eq!(stream["lost"], missed + launch("refused"), "{stream}");
}

#[test]
fn t4_the_best_backend_is_found_by_trying() {
    for (series, best) in [("6.12", "taprio"), ("6.1", "taprio-assist")] {
        if !kernel_of(series) {
            continue;
        }
        let scratch = Scratch::new();
        let text = Tiny { name: "tiny", cases: BOTH_CASES, more: "" }.text();
        let file = scratch.write("tiny.yaml", &text);
        let out = scratch.join("out");
        let run = ["run", &file, "--on", "lab:uml", "--kernel", series, "--backend", "auto"];
        let said = timewire(&[&run[..], &["--out", &out]].concat()).done();
        let told = format!("backend of tiny: {best}, because it is the best");
        assert!(said.stdout.contains(&told), "{series}: {said:?}");
        let passed = "     not taprio: while its gates are open, best effort goes first\n";
        assert_eq!(said.stdout.contains(passed), series == "6.1", "{said:?}");
        let summary = timewire(&["report", &out, "--json"]).json();
        assert_eq!(summary["backends"][0]["chosen"], best);
        assert_eq!(summary["cases"][0]["backend"], serde_json::Value::Null);
        assert_eq!(summary["cases"][1]["backend"]["name"], best);
        assert_eq!(summary["cases"][1]["wire"]["outside_slots"], 0);
    }
}

#[test]
fn t4_limits_of_slots_are_inconclusive_where_there_are_none() {
    if !has_kernel() {
        return;
    }
    let scratch = Scratch::new();
    let more =
        "limits: [{ id: kept, metric: outside-slots, case: tdm, load: alone, at_most: 0% }]\n";
    let text = Tiny { name: "tiny", cases: BOTH_CASES, more }.text();
    let file = scratch.write("tiny.yaml", &text);
    let out = scratch.join("out");
    let said = timewire(&["run", &file, "--on", "lab:uml", "--backend", "cbs", "--out", &out]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.stdout.contains("INCONCLUSIVE tiny/kept: not enough data"), "{said:?}");
    assert!(said.stdout.contains("the backend cbs of tiny/tdm/alone has no slots"), "{said:?}");
}

/// A machine leaves the standard output that it shared so that writing does not wait; what comes
/// after must wait all the same.
#[test]
fn t4_a_summary_arrives_whole_however_slowly_it_is_read() {
    if !has_kernel() {
        return;
    }
    let scratch = Scratch::new();
    let file =
        scratch.write("tiny.yaml", &Tiny { name: "tiny", cases: BOTH_CASES, more: "" }.text());
    let mut command = Command::new(TIMEWIRE);
    command.args(["run", &file, "--on", "lab:uml", "--json", "--out", &scratch.join("out")]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    // Written after the summary has been computed, and just before it is printed.
    let report = scratch.path().join("out/report.html");
    wait_until("the summary is there", || report.exists());
    let mut text = String::new();
    let mut output = child.stdout.take().unwrap();
    let mut byte = [0];
    while std::io::Read::read(&mut output, &mut byte).unwrap() == 1 {
        text.push(char::from(byte[0]));
    }
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(text.len() > 1 << 16, "more than a pipe holds: {}", text.len());
    assert_eq!(text, fs::read_to_string(scratch.path().join("out/summary.json")).unwrap());
}

/// Where this kernel has the disciplines, others of these backends work.
#[test]
fn t3_on_a_kernel_without_the_disciplines_the_mac_is_taken_and_nothing_else() {
    let Some(host) = support::Host::start() else { return };
    let text = Tiny { name: "tiny", cases: BOTH_CASES, more: "" }.text();
    let file = host.scratch().write("tiny.yaml", &text);
    let probe = "ip link add probe type dummy numtxqueues 2; \
                 tc qdisc add dev probe root mqprio num_tc 2 map 0 1 queues 1@0 1@1 hw 0";
    if run(&mut host.command("", &["sh", "-c", probe])).code == Some(0) {
        eprintln!("SKIP: this kernel has mqprio");
        return;
    }
    let said = host.timewire(&["run", &file, "--backend", "auto", "--out", "out"]);
    assert!(matches!(said.code, Some(0 | 1)), "{said:?}");
    let refused = |backend: &str, kind: &str| {
        let why = "Specified qdisc kind is unknown";
        format!("     not {backend}: the kernel refuses the queueing discipline {kind}: {why}\n")
    };
    let told = [
        "backend of tiny: mac, because it is the best that works here (--backend auto)\n".into(),
        refused("taprio", "taprio"),
        refused("taprio-assist", "taprio"),
        refused("etf", "mqprio"),
        refused("cbs", "mqprio"),
    ];
    assert!(said.stdout.contains(&told.concat()), "{said:?}");
    for backend in ["taprio", "taprio-assist", "etf", "cbs"] {
        let out = format!("out-{backend}");
        let said = host.timewire(&["run", &file, "--backend", backend, "--out", &out]);
        assert_eq!(said.code, Some(4), "{said:?}");
        // The doctor says so before anything is made.
        assert!(said.stderr.contains("error: schedule.backend, for the case"), "{said:?}");
        let told = format!("{backend}: Specified qdisc kind is unknown");
        assert!(said.stderr.contains(&told), "{said:?}");
        assert!(said.stderr.contains("mend: timewire run --on lab:uml FILE\n"), "{said:?}");
        assert!(said.stderr.ends_with("  host: unchanged; nothing was run\n"), "{said:?}");
        assert!(!host.scratch().list().contains(&out), "{said:?}");
    }
    host.is_clean();
}

#[test]
fn t3_a_backend_needs_a_case_that_leaves_it_open() {
    let Some(host) = support::Host::start() else { return };
    let text = Tiny { name: "tiny", cases: PLAIN_CASE, more: "" }.text();
    let file = host.scratch().write("tiny.yaml", &text);
    let said = host.timewire(&["run", &file, "--backend", "mac", "--out", "out"]);
    said.failed(
        2,
        "error: --backend is for cases that Timewire's MAC carries out, and tiny has none\n",
    );
    assert_eq!(host.scratch().list(), ["tiny.yaml"]);
}

#[test]
fn t3_the_kernel_of_this_host_is_as_it_is() {
    let scratch = Scratch::new();
    let text = Tiny { name: "tiny", cases: BOTH_CASES, more: "" }.text();
    let file = scratch.write("tiny.yaml", &text);
    let said = timewire(&["run", &file, "--kernel", "6.1"]);
    let kernels = "--kernel is for `--on lab:uml` and `--on lab:qemu`";
    said.failed(2, &format!("error: {kernels}; other kernels are as they are\n"));
}
