// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `timewire run` and `report` from the first file to the verdict: as root, as an ordinary user,
//! with damaged records, and ended in every way.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Instant;

use crate::support;
use crate::support::{
    BOTH_CASES, Host, NOBODY, PLAIN_CASE, Running, TIMEWIRE, Tiny, run, wait_until,
};
use serde_json::Value;

/// Writes a scenario into the host's directory; its path.
fn scenario(host: &Host, cases: &'static str, more: &'static str) -> String {
    host.scratch().write("tiny.yaml", &Tiny { name: "tiny", cases, more }.text())
}

fn read(host: &Host, file: &str) -> String {
    fs::read_to_string(host.scratch().path().join(file)).unwrap()
}

fn json(host: &Host, file: &str) -> Value {
    serde_json::from_str(&read(host, file)).unwrap()
}

const IMPOSSIBLE: &str = "limits:
  - { id: at-once, metric: latency-p50, stream: control, case: tdm, load: alone, at_most: 1ns }
";

#[test]
fn t3_a_run_leaves_all_that_its_summary_comes_from() {
    let Some(host) = Host::start() else { return };
    let file = scenario(&host, BOTH_CASES, "");
    let said = host.timewire(&["run", &file, "--out", "out"]).done();
    assert_eq!(said.stderr, "");
    assert!(said.stdout.contains("\nverdict: PASS (no limits were set)\n"), "{said:?}");
    assert!(said.stdout.contains("\nMACs of tiny: transmit: "), "{said:?}");
    let out = host.scratch().join("out");
    assert!(said.stdout.ends_with(&format!("\nreport:  {out}/report.html\n")), "{said:?}");
    let list = |directory: &str| support::list(&host.scratch().path().join(directory));
    assert_eq!(
        list("out"),
        [
            "cases",
            "end.json",
            "hosts",
            "logs",
            "report.html",
            "run.json",
            "summary.json",
            "sync.jsonl",
            "tiny.scenario.yaml"
        ]
    );
    assert_eq!(list("out/cases"), ["tiny.plain.alone", "tiny.tdm.alone"]);
    // The stations are left as they were.
    let hosts = list("out/hosts");
    for before in hosts.iter().filter(|name| name.ends_with(".before.json")) {
        let after = before.replace(".before.", ".after.");
        let [before, after] =
            [before, &after].map(|name| json(&host, &format!("out/hosts/{name}")));
        assert_eq!(before["schema"], "timewire.snapshot/1");
        assert_eq!(before["settings"], after["settings"]);
    }
    assert_eq!(hosts.len(), 4, "{hosts:?}");
    for case in ["tiny.plain.alone", "tiny.tdm.alone"] {
        let names = list(&format!("out/cases/{case}"));
        for part in ["control-client", "control-server", "hub"] {
            assert!(names.contains(&format!("{part}.twr")), "{names:?}");
        }
        assert!(names.contains(&"case.json".to_owned()));
    }
    assert_eq!(read(&host, "out/tiny.scenario.yaml"), read(&host, "tiny.yaml"));
    let (first, page) = (read(&host, "out/summary.json"), read(&host, "out/report.html"));
    assert_eq!(json(&host, "out/summary.json")["complete"], true);
    for case in json(&host, "out/summary.json")["cases"].as_array().unwrap() {
        assert!(case["streams"][0]["transfer"]["count"].as_u64().unwrap() > 0, "{case}");
    }
    // From the records alone the same comes once more, byte for byte.
    for name in ["summary.json", "report.html"] {
        fs::remove_file(host.scratch().path().join("out").join(name)).unwrap();
    }
    let again = host.timewire(&["report", "out", "--json"]).done();
    assert_eq!((again.stdout.as_str(), again.stderr.as_str()), (first.as_str(), ""));
    assert_eq!(read(&host, "out/summary.json"), first);
    assert_eq!(read(&host, "out/report.html"), page);
    // Whoever stops reading is no error.
    let mut head = host.command("", &["sh", "-c", "$0 report out --json | head -c 1; exit $?"]);
    assert_eq!(run(head.arg(TIMEWIRE)).done().stdout, "{");
    host.is_clean();
}

#[test]
fn t3_a_limit_that_fails_is_exit_code_1() {
    let Some(host) = Host::start() else { return };
    let file = scenario(&host, BOTH_CASES, IMPOSSIBLE);
    let said = host.timewire(&["run", &file, "--json", "--out", "out"]);
    assert_eq!((said.code, said.stderr.as_str()), (Some(1), ""));
    assert_eq!(said.stdout, read(&host, "out/summary.json"));
    let summary = said.json();
    assert_eq!(summary["verdict"], "fail");
    let finding = &summary["findings"][0];
    assert_eq!((&finding["id"], &finding["verdict"]), (&"tiny/at-once".into(), &"fail".into()));
    let told = host.timewire(&["report", "out"]);
    assert_eq!(told.code, Some(1));
    assert!(told.stdout.contains("\nFAIL tiny/at-once: "), "{told:?}");
    assert!(told.stdout.contains("\nverdict: FAIL"), "{told:?}");
    host.is_clean();
}

#[test]
fn t3_without_a_name_the_run_directory_has_the_time_and_the_scenario() {
    let Some(host) = Host::start() else { return };
    let file = scenario(&host, PLAIN_CASE, "");
    host.timewire(&["run", &file]).done();
    let runs = support::list(&host.scratch().path().join("runs"));
    let [only] = runs.as_slice() else { panic!("{runs:?}") };
    assert!(only.starts_with("20") && only.ends_with("Z-tiny"), "{only}");
}

/// What a report says of a run directory that something happened to.
#[test]
fn t3_a_damaged_run_says_what_is_damaged() {
    let Some(host) = Host::start() else { return };
    let file = scenario(&host, BOTH_CASES, "");
    host.timewire(&["run", &file, "--out", "whole"]).done();
    let damage = |line: &str| {
        host.tool("rm -rf hurt");
        host.tool("cp -r whole hurt");
        run(&mut host.command("", &["sh", "-c", &format!("cd hurt && {line}")])).done();
        host.timewire(&["report", "hurt"])
    };
    let client = "cases/tiny.tdm.alone/control-client.twr";

    let said = damage(&format!("truncate -s 5000 {client}")).done();
    assert!(said.stdout.contains("NOTE records-damaged: tiny/tdm/alone: 1 damaged"), "{said:?}");
    let said = damage(&format!("truncate -s 4096 {client}")).done();
    assert!(said.stdout.contains("NOTE records-open: tiny/tdm/alone: 1 record file"), "{said:?}");
    let said = damage("rm cases/tiny.tdm.alone/*.twr").done();
    assert!(said.stdout.contains("NOTE records-missing: tiny/tdm/alone has no "), "{said:?}");
    let said = damage("rm -r cases/tiny.tdm.alone end.json");
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.stdout.contains("NOTE case-missing: tiny/tdm/alone did not run"), "{said:?}");
    assert!(said.stdout.contains("note: the run was cut short"), "{said:?}");

    damage(&format!("truncate -s 20 {client}")).failed(
        2,
        &format!(
            "error: hurt/{client}: the record file ends within its header: 20 bytes of 4096\n"
        ),
    );
    damage(&format!("echo garbage > {client}")).failed(
        2,
        &format!(
            "error: hurt/{client}: this is no record file: it does not start with the .twr magic\n"
        ),
    );
    damage("sed -i s,timewire.run/1,timewire.run/2, run.json").failed(
        2,
        "error: hurt/run.json: it is of version `timewire.run/2`, and this program reads \
         `timewire.run/1`: use the program that wrote it\n",
    );
    damage("echo garbage > cases/tiny.tdm.alone/case.json").failed(
        2,
        "error: hurt/cases/tiny.tdm.alone/case.json: expected value at line 1 column 1\n",
    );
    damage("rm tiny.scenario.yaml").failed(
        2,
        "error: cannot read hurt/tiny.scenario.yaml: No such file or directory (os error 2)\n",
    );
    let said = damage("echo 'timewire: 2' > tiny.scenario.yaml");
    assert_eq!(said.code, Some(2));
    assert!(said.stderr.contains("the file format 2 is not known"), "{said:?}");
}

/// A command as an ordinary user without any variable, in a directory of its own.
fn as_nobody(host: &Host, words: &[&str]) -> Command {
    let scratch = host.scratch();
    let program = scratch.join("tw");
    if fs::metadata(&program).is_err() {
        fs::copy(TIMEWIRE, &program).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o777)).unwrap();
    }
    let user = [format!("--reuid={NOBODY}"), format!("--regid={NOBODY}")];
    let mut command = host.command("", &["setpriv", &user[0], &user[1], "--clear-groups"]);
    command.args(["env", "-i", "PATH=/usr/bin:/bin"]).args(words);
    command
}

#[test]
fn t3_an_ordinary_user_runs_it_too_and_is_told_what_is_missing() {
    let Some(host) = Host::start() else { return };
    let file = scenario(&host, BOTH_CASES, "");
    let said = run(&mut as_nobody(&host, &["./tw", "run", &file, "--out", "out"]));
    if said.code == Some(4) {
        return eprintln!("SKIP: {}", said.stderr);
    }
    let said = said.done();
    assert_eq!(said.stderr, "");
    assert!(said.stdout.contains("\nMACs of tiny: transmit: af_packet\n"), "{said:?}");
    assert!(said.stdout.contains("\nMACs of tiny: not available: af_xdp native: "), "{said:?}");
    assert!(said.stdout.contains("\nMACs of tiny: not available: SCHED_FIFO 80 "), "{said:?}");
    let summary = json(&host, "out/summary.json");
    for case in summary["cases"].as_array().unwrap() {
        assert!(case["streams"][0]["transfer"]["count"].as_u64().unwrap() > 0, "{case}");
    }
    // Each frame arrived once, through the MAC and not around it.
    let findings = summary["findings"].as_array().unwrap();
    assert!(findings.iter().all(|finding| finding["id"] != "timestamps-repeated"), "{summary}");
    let owner = host.tool("stat -c %u out/summary.json");
    assert_eq!(owner.trim(), NOBODY.to_string());
    host.is_clean();
}

#[test]
fn t3_an_ordinary_user_without_a_runtime_directory_is_told_so() {
    let Some(host) = Host::start() else { return };
    for verb in [&["tdm", "show"][..], &["lab", "clean"]] {
        run(as_nobody(&host, &["./tw"]).args(verb)).failed(
            2,
            "error: this needs root, whose undo logs and control sockets are in /run/timewire; \
             without root there are laboratories only, and for their undo logs XDG_RUNTIME_DIR is \
             not set\n",
        );
    }
    let file = scenario(&host, PLAIN_CASE, "");
    host.tool("ip link add phy0 type veth peer name far0");
    let directory = format!("XDG_RUNTIME_DIR={}", host.scratch().path().display());
    let mut start = as_nobody(&host, &[&directory, "./tw", "tdm", "start", "phy0"]);
    let said = run(start.args(["--file", &file, "--station", "alpha"]));
    assert_eq!((said.code, said.stdout.as_str()), (Some(2), ""));
    assert!(said.stderr.contains("Operation not permitted"), "{said:?}");
    assert!(said.stderr.ends_with("\n  hint: needs CAP_NET_ADMIN (run as root)\n"), "{said:?}");
    let left = host.scratch().path().join("timewire");
    assert_eq!(support::list(&left), ["journal"]);
    assert!(support::list(&left.join("journal")).is_empty());
    host.is_clean();
}

#[test]
fn t3_where_user_namespaces_are_forbidden_the_missing_piece_is_named() {
    let Some(host) = Host::start() else { return };
    let file = scenario(&host, PLAIN_CASE, "");
    // Inside a user namespace of the user's own the setting is the user's to write.
    let line = "echo 0 > /proc/sys/user/max_user_namespaces && \
                exec setpriv --bounding-set=-all --inh-caps=-all ./tw run $0 --out out";
    let user = ["unshare", "--user", "--map-root-user", "sh", "-c", line, &file];
    let said = run(&mut as_nobody(&host, &user));
    if said.stderr.starts_with("unshare") {
        return eprintln!("SKIP: no user namespace for an ordinary user: {}", said.stderr);
    }
    said.failed(
        4,
        "error: no laboratory is possible here: CAP_NET_ADMIN and CAP_SYS_ADMIN, and user \
         namespaces are switched off (No space left on device (os error 28))
  hint: run as root, or: sysctl user.max_user_namespaces=10000\n",
    );
    assert!(!host.scratch().path().join("out").exists());
}

/// Starts a run of both cases into `out`.
fn start(host: &Host) -> Running {
    let file = scenario(host, BOTH_CASES, "");
    host.tool("rm -rf out");
    host.spawn(&["run", &file, "--out", "out"])
}

/// The end of a run that was cut short: nothing is left but the records, and they have a summary.
fn is_kept(host: &Host) {
    host.is_clean();
    if !host.scratch().path().join("out/run.json").exists() {
        return host.timewire(&["report", "out"]).failed(
            2,
            "error: out: it has no file run.json, so it is no run directory of `timewire run`, \
             `sim` or `demo`\n",
        );
    }
    let said = host.timewire(&["report", "out", "--json"]);
    let summary = said.json();
    assert_eq!((&summary["complete"], said.stderr.as_str()), (&false.into(), ""));
    // Nothing that was recorded is wrong, and nobody knows about the rest.
    assert_eq!((&summary["verdict"], said.code), (&"inconclusive".into(), Some(1)));
    let told = host.timewire(&["report", "out"]);
    assert!(told.stdout.contains("note: the run was cut short"), "{told:?}");
}

/// Numbers between 0 and 1 that are the same each time (a linear congruence, as in POSIX).
fn moments(seed: u32) -> impl Iterator<Item = f64> {
    let mut state = seed;
    std::iter::repeat_with(move || {
        state = state.wrapping_mul(1_103_515_245).wrapping_add(12_345);
        f64::from(state >> 16 & 0x7fff) / 32_768.0
    })
}

#[test]
fn t3_a_run_that_is_killed_at_any_moment_leaves_only_its_records() {
    let Some(host) = Host::start() else { return };
    let started = Instant::now();
    start(&host).end().done();
    let whole = started.elapsed();
    for moment in moments(1).take(10) {
        let mut run = start(&host);
        let until = Instant::now() + whole.mul_f64(moment);
        // Not a wait for something: any moment is as good as another.
        while Instant::now() < until && !run.has_ended() {
            std::thread::sleep(support::MOMENT);
        }
        wait_until("the run directory is there", || host.scratch().path().join("out").exists());
        run.signal("KILL");
        if run.end().code.is_none() {
            is_kept(&host);
        }
    }
}

#[test]
fn t3_a_run_ends_on_request() {
    let Some(host) = Host::start() else { return };
    let cases = ["INT", "TERM", "HUP"];
    for (signal, marker) in cases.iter().zip(["tiny.plain.alone", "tiny.tdm.alone", "logs"]) {
        let run = start(&host);
        let path = host.scratch().path().join("out/cases").join(marker).join("case.json");
        wait_until("it is under way", || {
            path.exists() || marker == "logs" && !host.list("/run/netns").is_empty()
        });
        // As a terminal does it: all processes of the run get it, those of the stations too.
        for process in host.processes().iter().filter(|p| p.command.starts_with(TIMEWIRE)) {
            process.signal(signal);
        }
        let said = run.end();
        let out = host.scratch().join("out");
        said.failed(
            2,
            &format!(
                "error: ended on request; what was recorded until then is kept in {out}\n  hint: \
                 `timewire run --continue {out}` goes on with it\n"
            ),
        );
        is_kept(&host);
    }
}

#[test]
fn t3_what_run_and_watchdog_leave_when_both_are_killed_the_next_one_removes() {
    let Some(host) = Host::start() else { return };
    for again in ["lab clean", "run"] {
        let run = start(&host);
        wait_until("there is a laboratory", || {
            host.scratch().path().join("out/cases/tiny.plain.alone/hub.twr").exists()
        });
        let owner = run.inside();
        let all = host.processes();
        host.processes_with("__watchdog").iter().for_each(|watchdog| watchdog.signal("KILL"));
        run.signal("KILL");
        assert_eq!(run.end().code, None);
        wait_until("all have ended", || all.iter().all(support::Process::has_ended));
        assert_eq!(host.list("/run/netns").len(), 3);
        let found = format!(
            "process {owner} (laboratory of alpha, beta) ended without cleaning up; done now: \
             delete network namespace twlab-{owner}-0-beta, delete network namespace \
             twlab-{owner}-0-alpha, delete network namespace twlab-{owner}-0.hub\n"
        );
        if again == "run" {
            let said = start(&host).end().done();
            assert_eq!(said.stderr, format!("note: {found}"));
        } else {
            assert_eq!(host.timewire(&["lab", "clean"]).done().stdout, found);
        }
        host.is_clean();
    }
}
