// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is no directory of a run but looks like something of ours, and which command is for it.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

/// What a path is, and what would be right; `None` when it may be the directory of a run, or
/// nobody knows.
pub(super) fn of(path: &Path) -> Option<String> {
    let shown = path.display();
    if path.is_file() {
        return Some(of_file(path));
    }
    if !path.is_dir() || path.join("run.json").is_file() {
        return None;
    }
    let there = |name: &str| path.join(name).is_file();
    let parent = || path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let is_run =
        |parent: &&Path| ["run.json", "sweep.json"].iter().any(|name| parent.join(name).is_file());
    if there("array.json") {
        return Some(format!(
            "it has the tasks of an experiment; `timewire run {shown} --merge --out RUN` merges \
             what they did, and `timewire report RUN` shows it"
        ));
    }
    if there("places.json") {
        return Some(format!(
            "it has a run for each of several places; `timewire compare --places {shown}` shows \
             them side by side"
        ));
    }
    if there("probes.json") || there("record.json") {
        return Some(format!(
            "it is a recorded host; `timewire snapshot --of {shown}` shows it, and `timewire \
             doctor --on {shown}` judges it"
        ));
    }
    let above =
        [parent(), parent().and_then(Path::parent), parent().and_then(|it| it.ancestors().nth(2))];
    if let Some(run) = above.into_iter().flatten().find(is_run) {
        let run = run.display();
        return Some(format!("it is a part of the run {run}; `timewire report {run}` shows all"));
    }
    None
}

/// What a file is, by its first bytes and its name.
fn of_file(path: &Path) -> String {
    let shown = path.display();
    let mut first = [0_u8; 4];
    let whole = File::open(path).and_then(|mut file| file.read_exact(&mut first)).is_ok();
    let is_named = |end: &str| path.extension().is_some_and(|it| it.eq_ignore_ascii_case(end));
    if is_named("twc") {
        return format!(
            "it is a capture of `trace record`; `timewire trace show {shown}` shows it"
        );
    }
    if is_named("twr") {
        return "it has the records of a run; name the directory of the run".to_owned();
    }
    if whole && &first == b"RIFF" {
        return "it is a sound file, as `avtp listen` writes; `avtp listen` has told what came"
            .to_owned();
    }
    if is_named("pcapng") || is_named("pcap") {
        return format!(
            "it is a capture of frames, for the usual tools, such as `tcpdump -r {shown}`"
        );
    }
    "it is a file; name the directory that `--out` named".to_owned()
}
