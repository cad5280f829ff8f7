// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is said about mistakes: hundreds of them are made, and each is answered by the same rules;
//! what is said about the worst is held word by word.
//! `UPDATE_GOLDEN=1 cargo test -p timewire-cli --test all mistakes::` writes `mistakes/said.txt`;
//! read it as someone who made the mistake.
//!
//! Not here: each wrong key of a file (`timewire-tsn` has them all).

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::support::{Host, NOBODY, PLAIN_CASE, Said, TIMEWIRE, Tiny, run, wait_until};

const COMMANDS: &str = include_str!("mistakes/commands.txt");
const SAID: &str = include_str!("mistakes/said.txt");

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A host with a file of each kind, and with what is none.
fn host() -> Option<Host> {
    let host = Host::start()?;
    let files = host.scratch();
    let copy = |from: &str, name: &str| {
        fs::copy(repository().join(from), files.path().join(name)).expect("a file to copy");
    };
    files.write("scenario.yaml", &Tiny { name: "tiny", cases: PLAIN_CASE, more: "" }.text());
    copy("scenarios/networks/tsn-line.network.yaml", "network.yaml");
    copy("scenarios/hosts/cbs-20mbit-nic.yaml", "settings.yaml");
    copy("scenarios/experiments/rates.yaml", "phases.yaml");
    copy("scenarios/kernels/two-gates.network.yaml", "programs.yaml");
    copy("crates/capture/tests/data/v1.twc", "cap.twc");
    files.hosts(&[("alpha", "local")]);
    files.write("tab.yaml", "timewire: 1\nname: x\nstations:\n\t- name: alpha\n");
    files.write("broken.yaml", "a: [\n");
    files.write("empty.yaml", "");
    files.write("obj.json", "{}\n");
    files.write("bad.json", "[1,2\n");
    fs::write(files.path().join("binary.yaml"), [0xff, 0xfe, 0, 1, 0x80]).expect("a file");
    fs::create_dir(files.path().join("dir")).expect("a directory");
    fs::copy(TIMEWIRE, files.path().join("timewire")).expect("the program is copied");
    for path in [files.path().to_owned(), files.path().join("timewire")] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("it is ours");
    }
    Some(host)
}

/// What a command of the list says; a word may be in single quotes.
fn made(host: &Host, line: &str) -> Said {
    let (user, line) = match line.strip_prefix("! ") {
        Some(line) => (NOBODY, line),
        None => (0, line),
    };
    let mut words: Vec<String> = Vec::new();
    for (index, part) in line.split('\'').enumerate() {
        match index % 2 {
            0 => words.extend(part.split_whitespace().map(str::to_owned)),
            _ => words.push(part.to_owned()),
        }
    }
    let user = [format!("--reuid={user}"), format!("--regid={user}")];
    let mut command = host.command("", &["setpriv", &user[0], &user[1], "--clear-groups"]);
    command.args(["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/nonexistent"]);
    command.args(["timeout", "20", "./timewire"]).args(words);
    run(&mut command)
}

fn commands() -> impl Iterator<Item = &'static str> {
    COMMANDS.lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// What is wrong with an answer; nothing when it keeps to the rules.
fn faults(said: &Said) -> Vec<&'static str> {
    let text = &said.stderr;
    let errors: Vec<&str> = text.lines().filter(|line| line.starts_with("error: ")).collect();
    // Several mistakes in one file are several errors, each with its place.
    let is_placed = |line: &&str| {
        let mut parts = line.trim_start_matches("error: ").split(':').skip(1);
        let mut number = || parts.next().is_some_and(|part| part.trim().parse::<u32>().is_ok());
        number() && number()
    };
    let machine = [env!("CARGO_MANIFEST_DIR"), "/.cargo/", "/rustc/", "src/main.rs"];
    let debug = [
        "Some(",
        "None)",
        "Err(",
        "Os {",
        "Custom {",
        "ParseIntError",
        "entity already exists",
        "invalid digit",
        "panicked",
        "RUST_BACKTRACE",
        "\\\"",
        "unwrap",
    ];
    let rules: [(&str, bool); 9] = [
        ("the exit code is 2 or 4", matches!(said.code, Some(2 | 4))),
        ("nothing is on stdout", said.stdout.is_empty()),
        ("it begins with `error: `", text.starts_with("error: ")),
        ("`error:` is said once for a mistake", !text.contains("error: error:")),
        ("one error, or each with its place", errors.len() == 1 || errors.iter().all(is_placed)),
        ("it says what is wrong", errors.iter().all(|line| line.len() > 20)),
        ("no output of Rust", debug.iter().all(|word| !text.contains(word))),
        ("no path of another machine", machine.iter().all(|path| !text.contains(path))),
        ("it has no control characters", text.chars().all(|c| c == '\n' || !c.is_control())),
    ];
    rules.into_iter().filter(|(_, kept)| !kept).map(|(rule, _)| rule).collect()
}

/// Names and times of all files below a directory.
fn state(directory: &Path) -> Vec<String> {
    let mut all = Vec::new();
    let mut open = vec![directory.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).expect("our directory").flatten() {
            let about = fs::symlink_metadata(entry.path()).expect("a file of ours");
            all.push(format!("{} {} {:?}", entry.path().display(), about.len(), about.modified()));
            if about.is_dir() {
                open.push(entry.path());
            }
        }
    }
    all.sort();
    all
}

#[test]
fn t3_every_mistake_is_answered_by_the_same_rules() {
    let Some(host) = host() else { return };
    let before = (state(host.scratch().path()), host.tool("ip -o -d link"));
    let mut wrong = Vec::new();
    for line in commands() {
        let said = made(&host, line);
        let mut faults = faults(&said);
        if state(host.scratch().path()) != before.0 {
            faults.push("nothing is written");
        }
        if !faults.is_empty() {
            wrong.push(format!("timewire {line}\n  {}\n{said:?}", faults.join("\n  ")));
        }
    }
    assert!(commands().count() >= 100, "{} mistakes", commands().count());
    assert!(wrong.is_empty(), "{} mistakes:\n{}", wrong.len(), wrong.join("\n\n"));
    assert_eq!(host.tool("ip -o -d link"), before.1);
    host.is_clean();
}

#[test]
fn t3_what_is_said_about_the_worst_mistakes() {
    let Some(host) = host() else { return };
    let mut now = String::new();
    for line in SAID.lines() {
        let Some(command) = line.strip_prefix("$ timewire ") else {
            // The head of the file, before the first command.
            if now.is_empty() || now.lines().all(|line| line.starts_with('#') || line.is_empty()) {
                now += &format!("{line}\n");
            }
            continue;
        };
        let said = made(&host, command);
        let code = said.code.map_or("a signal".to_owned(), |code| code.to_string());
        let here = format!("{}/", host.scratch().path().display());
        let text = said.stderr.replace(&here, "HERE/");
        now += &format!("$ timewire {command}\n{text}[{code}]\n\n");
    }
    let now = format!("{}\n", now.trim_end());
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mistakes/said.txt");
        fs::write(path, &now).expect("the file can be written");
        return;
    }
    assert!(SAID.lines().filter(|line| line.starts_with("$ ")).count() >= 30);
    assert_eq!(now, SAID, "UPDATE_GOLDEN=1 cargo test -p timewire-cli --test all mistakes::");
}

/// A name in place of an address: of `/etc/hosts`.
#[test]
fn t3_names_of_hosts_are_taken_where_addresses_are() {
    let Some(host) = host() else { return };
    for to in [
        &["localhost:15009", "--count", "500"][..],
        &["--stream", "1:to=localhost:15009,count=500"],
    ] {
        let heard = host.spawn(&["listen", "localhost:15009", "--count", "1", "--for", "60s"]);
        wait_until("it listens", || heard.stderr().contains("listening: "));
        // Some may be skipped on a busy machine.
        let said = host.timewire(&[&["talk"], to].concat());
        assert!(said.stdout.contains(" 127.0.0.1:15009 "), "{said:?}");
        heard.end().done();
    }
    let said = host.timewire(&["talk", "no-such-host.invalid:15009"]);
    said.failed(
        2,
        "error: no host `no-such-host.invalid` is known here: neither /etc/hosts nor DNS has its \
         name\n",
    );
}
