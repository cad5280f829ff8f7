// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Wrong use: each mistake gets its message and its exit code, and changes nothing.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::{BOTH_CASES, Host, PLAIN_CASE, Scratch, TIMEWIRE, Tiny, run, timewire};

#[test]
fn t1_an_unknown_verb_lists_what_there_is() {
    let said = timewire(&["fly"]);
    assert_eq!((said.code, said.stdout.as_str()), (Some(2), ""));
    assert!(said.stderr.contains("unrecognized subcommand 'fly'"), "{said:?}");
    let near = timewire(&["rum"]);
    assert!(near.stderr.contains("'run'"), "{near:?}");
    let help = timewire(&["--help"]).done().stdout;
    for verb in ["demo", "run", "report", "tdm", "lab", "schema"] {
        assert!(help.contains(&format!("\n  {verb} ")), "{verb}: {help}");
    }
    assert!(!help.contains("__"), "{help}");
}

#[test]
fn t1_run_without_a_file_or_with_a_missing_one() {
    let said = timewire(&["run"]);
    assert_eq!((said.code, said.stdout.as_str()), (Some(2), ""));
    assert!(said.stderr.contains("required arguments were not provided:\n  <FILE>..."), "{said:?}");
    timewire(&["run", "no-such.yaml"])
        .failed(2, "error: cannot read no-such.yaml: No such file or directory (os error 2)\n");
}

#[test]
fn t1_run_shows_what_is_wrong_in_a_scenario() {
    let bad = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tsn/tests/bad");
    for name in ["no-unit", "slots-overlap", "many-at-once", "unknown-key", "not-yaml", "empty"] {
        let file = format!("{name}.yaml");
        let golden = fs::read_to_string(bad.join(format!("{name}.stderr"))).unwrap();
        let said = run(Command::new(TIMEWIRE).args(["run", &file]).current_dir(&bad));
        said.failed(2, &format!("{}; nothing was run\n", golden.trim_end()));
    }
}

#[test]
fn t1_two_files_of_one_name() {
    let scratch = Scratch::new();
    let text = Tiny { name: "tiny", cases: PLAIN_CASE, more: "" }.text();
    let (one, two) = (scratch.write("one.yaml", &text), scratch.write("two.yaml", &text));
    timewire(&["run", &one, &two]).failed(
        2,
        &format!(
            "error: {two}: its `name: tiny` is that of {one} too; results are kept by name, so \
             each file needs its own\n"
        ),
    );
}

#[test]
fn t1_dry_run_prints_the_schedule_and_runs_nothing() {
    let scratch = Scratch::new();
    let file = scratch.write("a.yaml", &Tiny { name: "tiny", cases: BOTH_CASES, more: "" }.text());
    let mut command = Command::new(TIMEWIRE);
    command.args(["run", "--dry-run", &file]).current_dir(scratch.path());
    let said = run(&mut command).done();
    assert_eq!(
        said.stdout,
        "tiny: cycle 1ms at 100Mbit
  alpha        at      0ns  transmit    450us  guard    50us  largest frame 5601B  sends 1 in 10.4us
  beta         at    500us  transmit    450us  guard    50us  largest frame 5601B  sends 1 in 10.4us
  control  alpha <-> beta:15001  64B, 10.4us  class 7  one after the other, late after 1ms, lost \
         after 100ms
  2 cases x 1 load
"
    );
    assert_eq!(said.stderr, "");
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1);
}

#[test]
fn t1_a_file_is_read_with_those_that_it_includes() {
    let scratch = Scratch::new();
    let base = Tiny { name: "tiny", cases: BOTH_CASES, more: "" }.text();
    scratch.write("base.yaml", &base);
    let own = "include: base.yaml\nname: own\nexperiment: { cases: { plain: null } }\n\
        limits: [{ id: half, metric: latency-p50, stream: control, at_most: 1ms }]\n";
    let own = scratch.write("own.yaml", own);
    let said = timewire(&["run", &own, "--dry-run"]).done();
    let shown = "  1 case x 1 load\n  half  latency-p50 of control in tdm/alone at most 1ms\n";
    assert!(said.stdout.starts_with("own: ") && said.stdout.ends_with(shown), "{said:?}");
    let out = scratch.join("out");
    let said = timewire(&["run", &own, "--on", "sim", "--out", &out]).done();
    assert!(said.stdout.contains("verdict: PASS"), "{said:?}");
    // The run has all of it.
    fs::remove_file(scratch.path().join("base.yaml")).unwrap();
    let said = timewire(&["report", &out]).done();
    assert!(said.stdout.contains("half"), "{said:?}");
    let lost = format!("error: {own}:1:10: include: cannot read {}", scratch.join("base.yaml"));
    let said = timewire(&["run", &own, "--dry-run"]);
    assert!(said.code == Some(2) && said.stderr.starts_with(&lost), "{said:?}");
    assert!(said.stderr.ends_with("1 error; nothing was done\n"), "{said:?}");
    let base = scratch.write("base.yaml", "include: own.yaml\n");
    let said = timewire(&["run", &own, "--dry-run"]);
    let circle = format!("error: {base}:1:10: include: {own} includes this file");
    assert!(said.code == Some(2) && said.stderr.starts_with(&circle), "{said:?}");
    // What was kept is a file as any other.
    let kept = scratch.join("out/own.scenario.yaml");
    let of_kept = scratch.write("kept.yaml", &format!("include: {kept}\nname: again\n"));
    let said = timewire(&["run", &of_kept, "--dry-run"]).done();
    assert!(said.stdout.starts_with("again: cycle 1ms"), "{said:?}");
    // A pipe is read once.
    let mut cat = Command::new("sh");
    let words = format!("cat {kept} | {TIMEWIRE} run /dev/stdin --dry-run --on sim");
    let said = run(cat.args(["-c", &words])).done();
    assert!(said.stdout.starts_with("own: cycle 1ms"), "{said:?}");
}

#[test]
fn t1_who_needs_slots_says_that_a_file_has_none() {
    let scratch = Scratch::new();
    let text = "timewire: 1\nkind: network\nname: plain\nsegments: [{}]\nstations: [alpha, beta]\n\
        streams: [{ name: s, talker: alpha, listeners: beta, size: 64B, period: 1ms }]\n";
    let file = scratch.write("plain.yaml", text);
    let shown = timewire(&["run", &file, "--dry-run"]).done();
    let none = "plain: no schedule, at 100Mbit\n  s  alpha -> beta:15001  ";
    assert!(shown.stdout.starts_with(none), "{shown:?}");
    for words in [
        &["apply", &file, "--interface", "lo", "--dry-run"][..],
        &["doctor", &file, "--interface", "lo"],
        &["tdm", "start", "lo", "--file", &file],
    ] {
        let said = timewire(&[words, &["--station", "alpha"]].concat());
        let says = format!("error: {file}:1:1: schedule: there is no `schedule`, and so there are");
        assert!(said.code == Some(2) && said.stderr.starts_with(&says), "{said:?}");
    }
    let cyclic = "listeners: beta, size: 64B, period: 1ms";
    let pipeline = "listeners: beta, size: 64B, kind: pipeline, deadline: 1ms";
    scratch.write("plain.yaml", &text.replace(cyclic, pipeline));
    let said = timewire(&["run", &file, "--dry-run"]);
    let says = "streams[0].period: without a `schedule` there is no cycle";
    assert!(said.code == Some(2) && said.stderr.contains(says), "{said:?}");
}

#[test]
fn t1_a_backend_is_checked_before_anything_is_made_or_told() {
    let scratch = Scratch::new();
    let tiny = |cases| Tiny { name: "tiny", cases, more: "" }.text();
    let plain = scratch.write("plain.yaml", &tiny(PLAIN_CASE));
    // Long enough for each message, not for one of best effort beside the real-time one.
    let short = tiny(BOTH_CASES).replace("transmit: 450us", "transmit: 20us");
    let short = scratch.write("short.yaml", &short);
    let none = "error: --backend is for cases that Timewire's MAC carries out, and tiny has none\n";
    let what = "error: the backend taprio-assist, which --backend asks for, cannot carry tiny: ";
    let why = "the slot of `alpha` at 0ns transmits for 20us";
    for more in [&["--dry-run"][..], &["--on", "lab:uml", "--out", "out"], &["--out", "out"]] {
        let run = |file: &str| {
            let mut command = Command::new(TIMEWIRE);
            command.args(["run", file, "--backend", "taprio-assist"]).args(more);
            run(command.current_dir(scratch.path()))
        };
        run(&plain).failed(2, none);
        let said = run(&short);
        assert_eq!((said.code, said.stdout.as_str()), (Some(2), ""), "{said:?}");
        assert!(said.stderr.starts_with(&format!("{what}{why}")), "{said:?}");
        assert!(!said.stderr.contains("hint"), "{said:?}");
    }
    assert_eq!(scratch.list(), ["plain.yaml", "short.yaml"]);
}

#[test]
fn t1_lists_of_ports_are_checked_before_any_mac_is_asked() {
    let cases: [(&[&str], &str); 9] = [
        (&["1", "15001"], "port 15001 has no priority: write pairs, such as `15001 1 15002 2`"),
        (&["1", "0", "1"], "0 is no port: 1 to 65535"),
        (&["1", "65536", "1"], "65536 is no port: 1 to 65535"),
        (&["1", "15001", "0"], "0 is no priority: 1 (most urgent) to 32 (least urgent)"),
        (&["1", "15001", "33"], "33 is no priority: 1 (most urgent) to 32 (least urgent)"),
        (
            &["2", "15001", "1", "15001", "2"],
            "port 15001 has two rules, priority 1 and priority 2: a port takes one",
        ),
        (
            &["1", "15001", "1", "15001", "1"],
            "port 15001 has two rules, priority 1 and priority 1: a port takes one",
        ),
        (
            &["1", "15001", "1", "15002", "2"],
            "the number of queues is 1, but the rules name 2 priorities: say 2",
        ),
        (
            &["33", "15001", "1"],
            "33 queues cannot be: there are 32 priorities, and the default queue is extra",
        ),
    ];
    for verb in ["send", "recv"] {
        for (arguments, message) in &cases {
            timewire(&[&["tdm", verb], *arguments].concat())
                .failed(2, &format!("error: {message}\n"));
        }
    }
    let said = timewire(&["tdm", "send", "1", "fifteen", "1"]);
    assert_eq!(said.code, Some(2));
    assert!(said.stderr.contains("invalid value 'fifteen'"), "{said:?}");
}

#[test]
fn t1_report_of_what_is_no_run() {
    let scratch = Scratch::new();
    let path = scratch.path().display();
    timewire(&["report", &path.to_string()]).failed(
        2,
        &format!(
            "error: {path}: it has no file run.json, so it is no run directory of `timewire run`, \
             `sim` or `demo`\n"
        ),
    );
    timewire(&["report", "no-such"]).failed(
        2,
        "error: no-such: no such directory, so it is no run directory of `timewire run`, `sim` \
         or `demo`\n",
    );
}

#[test]
fn t3_without_a_mac_there_is_nobody_to_ask() {
    let Some(host) = Host::start() else { return };
    let commands: [&[&str]; 7] = [
        &["show"],
        &["show", "--json"],
        &["stop"],
        &["send", "1", "15001", "1"],
        &["recv", "0"],
        &["add", "process", "1"],
        &["remove", "process", "1"],
    ];
    for command in commands {
        host.timewire(&[&["tdm"], command].concat())
            .failed(2, "error: no MAC runs here: `timewire tdm start` starts one\n");
    }
    host.timewire(&["tdm", "show", "--name", "eth0"]).failed(
        2,
        "error: no MAC runs as `eth0`; none runs here: `timewire tdm start` starts one\n",
    );
    host.timewire(&["tdm", "show", "--name", "../eth0"]).failed(
        2,
        "error: `../eth0` is no name of a MAC: 1 to 64 of a-z, A-Z, 0-9, `-`, `_`, `.`, not \
         starting with a dot\n",
    );
    assert_eq!(host.timewire(&["lab", "clean"]).done().stdout, "nothing was left behind\n");
    host.is_clean();
}

#[test]
fn t3_run_does_not_write_into_a_directory_in_use() {
    let Some(host) = Host::start() else { return };
    let scratch = host.scratch();
    let text = Tiny { name: "tiny", cases: PLAIN_CASE, more: "" }.text();
    let file = scratch.write("tiny.yaml", &text);
    let out = scratch.path().display().to_string();
    host.timewire(&["run", &file, "--out", &out])
        .failed(2, &format!("error: {out}: it is not empty; a run needs a directory of its own\n"));
    host.timewire(&["run", &file, "--out", &file]).failed(
        2,
        &format!("error: {file}: it is no directory; a run needs a directory of its own\n"),
    );
    assert_eq!(scratch.list(), ["tiny.yaml"]);
    host.is_clean();
}

#[test]
fn t3_what_tdm_start_refuses() {
    let Some(host) = Host::start() else { return };
    let file = &host
        .scratch()
        .write("tiny.yaml", &Tiny { name: "tiny", cases: PLAIN_CASE, more: "" }.text());
    host.tool("ip link add phy0 type veth peer name far0");
    host.tool("ip link add addressed type veth peer name far1");
    host.tool("ip address add 10.1.0.1/24 dev addressed");
    host.tool("ip address add 10.1.0.2/24 dev addressed");
    host.tool("ip link add tw7 type veth peer name far2");
    host.tool("ip link set phy0 up");
    let before = host.tool("ip -o address") + &host.tool("ip -o link");
    let start = |arguments: &str, message: &str| {
        for foreground in [&[][..], &["--foreground"]] {
            let words: Vec<&str> = arguments.split_whitespace().collect();
            host.timewire(&[&["tdm", "start"], &words[..], foreground].concat())
                .failed(2, &format!("error: {message}\n"));
        }
    };
    let right = format!("--file {file} --station alpha");
    start(
        &format!("nosuch0 {right}"),
        "there is no interface nosuch0; there are lo, far0, phy0, far1, addressed, far2, tw7",
    );
    start(
        &format!("phy0 --file {file} --station gamma"),
        "there is no station `gamma`: there are alpha, beta",
    );
    start(
        "phy0 --file no-such.yaml --station alpha",
        "cannot read no-such.yaml: No such file or directory (os error 2)",
    );
    start(
        &format!("addressed {right}"),
        "addressed carries the addresses 10.1.0.1/24, 10.1.0.2/24, which would stop working: \
         `--move-addresses` moves them to tw0 until the MAC ends",
    );
    start(
        &format!("phy0 {right} --stack twelve-chars"),
        "`twelve-chars` is too long for the virtual interface: at most 11 characters, since its \
         far side is called `twelve-chars-mac`",
    );
    start(
        &format!("phy0 {right} --stack tw7"),
        "interface tw7 exists already: choose another with `--stack`, or delete it",
    );
    start(&format!("lo {right}"), "lo: it is no Ethernet interface");
    start(
        &format!("phy0 {right} --name a/b"),
        "`a/b` is no name of a MAC: 1 to 64 of a-z, A-Z, 0-9, `-`, `_`, `.`, not starting with a \
         dot",
    );
    // Refused in the way of all arguments, or by `ip` when much is done already: all is undone.
    let address = "10.7.0.1/24";
    for (what, message) in [
        ("sixteen-letters0", "`sixteen-letters0` is no interface name: 1 to 15 bytes"),
        ("phy0 --stack a/b", "`a/b` is no interface name: 1 to 15 bytes"),
        ("phy0 --address 10.7.0.1", "an address and its prefix are like 10.77.0.1/24"),
        ("phy0 --address 10.7.0.1/33", "an address and its prefix are like 10.77.0.1/24"),
        ("phy0 --address fd00::/129", "an address and its prefix are like 10.77.0.1/24"),
        ("phy0 --max-clock-error 100", "has no unit"),
        (
            &format!("phy0 --address {address} --address {address}"),
            "at `address add 10.7.0.1/24 dev tw0`: ",
        ),
    ] {
        let words: Vec<&str> = what.split(' ').chain(right.split(' ')).collect();
        let said = host.timewire(&[&["tdm", "start"], &words[..]].concat());
        assert_eq!((said.code, said.stdout.as_str()), (Some(2), ""));
        assert!(said.stderr.contains(message), "{said:?}");
    }
    assert_eq!(host.tool("ip -o address") + &host.tool("ip -o link"), before);
    assert_eq!(host.list("/run/timewire"), ["journal"]);
    host.is_clean();
}

/// Who listens to what is said may stop listening: the exit code is what it was.
#[test]
fn t1_talk_that_nobody_hears_stops_nothing() {
    for (words, code) in [(&["run", "no-such.yaml"][..], 2), (&["plan", "no-such.yaml"], 2)] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ended = Command::new(TIMEWIRE).args(words).stderr(writer).status().unwrap();
        assert_eq!(ended.code(), Some(code), "{words:?}");
    }
}
