// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `run` with several `--on`: the same files in one place after the other, each a run of its own in
//! one directory, and then side by side.
//!
//! Not here: a run in one place (`network`, `experiment`), the comparison (`compare`).

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf, absolute};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use serde::{Deserialize, Serialize};
use timewire_datapath::files::{empty_directory, read_json, write_json};
use timewire_model::scenario::FileKind;
use timewire_runner::rundir::RunDir;
use timewire_sys::children::spawn_leader;
use timewire_sys::namespace::Process;

use crate::compare;
use crate::ending::{Ending, WORDS};
use crate::experiment::Run;
use crate::input;
use crate::machine::RunMachine;
use crate::place::{self, Place};

/// What is run where.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Places {
    schema: String,
    /// The directory in which the commands are run.
    here: PathBuf,
    /// The files, as they were read in the beginning: all places have the same.
    files: Vec<(String, String)>,
    places: Vec<OnePlace>,
}

/// A run in one place.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OnePlace {
    /// Its directory below that of all.
    directory: String,
    /// The words of its command, without those of its results.
    command: Vec<String>,
}

const SCHEMA: &str = "timewire.places-run/1";
const PLACES: &str = "places.json";
const PAGE: &str = "places.html";

/// Runs the files in each place. Exit code: as of the worst of the runs.
pub fn run(args: &Run) -> anyhow::Result<ExitCode> {
    let places = args.place.all();
    let refused = [
        ("--baseline", args.baseline.is_some()),
        ("--trace", args.trace && places.contains(&Place::Sim)),
        ("--array, --task and --merge", args.array.are_given()),
    ];
    if let Some((option, _)) = refused.iter().find(|(_, is_given)| *is_given) {
        bail!("{option} is not for runs in several places: run it with one `--on`");
    }
    let has = |is: fn(&Place) -> bool| places.iter().any(is);
    let machine = has(|it| matches!(it, Place::LabUml | Place::LabQemu));
    let of_places = [
        ("--kernel", args.place.kernel.is_some(), machine),
        ("--time", args.place.time.is_some(), has(|it| *it == Place::LabUml)),
        (
            "--clock-error",
            args.place.clock_error.is_some(),
            has(|it| matches!(it, Place::Hosts(_))),
        ),
        ("--seed", args.limits.seed.is_some(), has(|it| *it == Place::Sim)),
    ];
    if let Some((option, ..)) = of_places.iter().find(|(_, is_given, has)| *is_given && !has) {
        bail!("{option} is for none of these places: leave it out");
    }
    compare::Limits { seed: None, ..args.limits }.refuse()?;
    for (kind, what) in [(FileKind::Steps, "phases"), (FileKind::Programs, "programs")] {
        ensure!(!args.has(kind), "{what} without streams run in one place: write one `--on`");
    }
    let here = std::env::current_dir().context("the current directory is gone")?;
    let mut names = BTreeSet::new();
    let mut all = Vec::new();
    for place in places {
        let directory = directory_of(place);
        ensure!(
            names.insert(directory.clone()),
            "two places would have their results in `{directory}`: name each once"
        );
        all.push(OnePlace { directory, command: command(args, place)? });
    }
    ensure!(
        !args.dry_run || !args.output.json,
        "--dry-run with --json shows one place: write one `--on`"
    );
    let hosts = places.iter().filter_map(|place| match place {
        Place::Hosts(path) => Some(path),
        _ => None,
    });
    let files = args.files.iter().chain(hosts).map(|path| {
        let name = path.to_str().context("the name of a file is no text (UTF-8)")?.to_owned();
        Ok((name, input::text(path)?))
    });
    let files = files.collect::<anyhow::Result<_>>()?;
    let all = Places { schema: SCHEMA.to_owned(), here, files, places: all };
    // What one place cannot do is told before another one begins.
    for place in places.iter().filter(|it| matches!(it, Place::LabUml | Place::LabQemu)) {
        RunMachine::find(&args.place.with(place))?;
    }
    for one in &all.places {
        let mut asked = program(&all.here, &one.command)?;
        asked.arg("--dry-run");
        if !args.dry_run {
            asked.stdout(Stdio::null());
        }
        if args.dry_run {
            say!("== {}", one.directory);
        }
        match asked.status().context("cannot start this program")?.code() {
            Some(0) => {}
            code => return Ok(ExitCode::from(code.and_then(|it| it.try_into().ok()).unwrap_or(2))),
        }
    }
    if args.dry_run {
        return Ok(ExitCode::SUCCESS);
    }
    let first = args.files.first().and_then(|it| it.file_stem()).unwrap_or_default();
    let first = first.to_string_lossy();
    let name = first.split('.').next().unwrap_or("run");
    let into = empty_directory(&args.directory(name)?)?;
    write_json(&into.join(PLACES), &all)?;
    perform(&into, &all, args.output.json)
}

/// Whether a directory is one of several places.
pub fn is_at(directory: &Path) -> bool {
    directory.join(PLACES).is_file()
}

/// The runs of such a directory, those of which a case came to its end.
///
/// **Errors**: what it says is of another version, or a run cannot be read.
pub fn runs(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for one in read(directory)?.places {
        let path = directory.join(&one.directory);
        let run = path.join("run.json").is_file().then(|| RunDir::open(&path)).transpose()?;
        let has_any =
            |run: &RunDir| run.meta().map(|it| it.cases.iter().any(|id| run.has_ended(id)));
        match run.as_ref().map(has_any).transpose()? {
            Some(true) => all.push(path),
            _ => say!("note: in {} no case came to its end", one.directory),
        }
    }
    Ok(all)
}

fn read(directory: &Path) -> anyhow::Result<Places> {
    let path = directory.join(PLACES);
    let all: Places = read_json(&path)?;
    ensure!(all.schema == SCHEMA, "{}: its schema is {}", path.display(), all.schema);
    Ok(all)
}

/// Goes on where a run in several places was interrupted.
pub fn resume(directory: &Path, args: &Run) -> anyhow::Result<ExitCode> {
    ensure!(args.baseline.is_none(), "--baseline is not for runs in several places");
    args.limits.refuse()?;
    let into = absolute(directory).context("the current directory is gone")?;
    let all = read(&into)?;
    ensure!(
        all.here.is_dir(),
        "{}: the directory {} in which it began is gone",
        into.display(),
        all.here.display()
    );
    for (name, text) in &all.files {
        let path = all.here.join(name);
        let now = input::text(&path).with_context(|| {
            format!("{} goes on with the files that it began with", into.display())
        })?;
        ensure!(
            now == *text,
            "{} is not what it was when {} began; run it anew, with another --out",
            path.display(),
            into.display()
        );
    }
    perform(&into, &all, args.output.json)
}

fn perform(into: &Path, all: &Places, json: bool) -> anyhow::Result<ExitCode> {
    let ending = Ending::new()?;
    let mut worst = 0;
    for one in &all.places {
        let own = into.join(&one.directory);
        let has_begun = own.join("run.json").is_file();
        if has_begun {
            let run = RunDir::open(&own)?;
            // One that cannot be read is not one that has ended.
            run.meta()?;
            if run.check_unfinished().is_err() {
                continue;
            }
        }
        say!("== {}", one.directory);
        let mut command = match has_begun {
            true => program(&all.here, ["run", "--continue"])?,
            false => program(&all.here, [&one.command[..], &["--out".to_owned()]].concat())?,
        };
        command.arg(&own);
        if json {
            command.stdout(Stdio::null());
        }
        let code = ended(command, &ending)?;
        if ending.is_asked() {
            let what = into.display();
            say!("  hint: `timewire run --continue {what}` goes on in all places that are left");
            bail!("{WORDS}; what was recorded until then is kept in {what}");
        }
        worst = worse(worst, code);
        if code > 1 {
            break;
        }
    }
    let runs = runs(into)?;
    if !runs.is_empty() {
        let verdict = compare::of_places(&runs, Some(&into.join(PAGE)), json)?;
        worst = worse(worst, verdict);
    }
    if worst > 1 {
        let what = into.display();
        say!("  hint: `timewire run --continue {what}` goes on in all places that are left");
    }
    Ok(ExitCode::from(worst))
}

/// The code that says more: a host left changed, then a failure.
fn worse(one: u8, other: u8) -> u8 {
    let rank = |code: u8| [0, 1, 4, 2, 3].iter().position(|it| *it == code).unwrap_or(3);
    if rank(one) < rank(other) { other } else { one }
}

/// Waits for a command, to which requests to end are handed on.
fn ended(command: Command, ending: &Ending) -> anyhow::Result<u8> {
    let mut child = spawn_leader(command).context("cannot start this program")?;
    loop {
        if let Some(status) = child.try_wait().context("cannot wait for a run")? {
            return Ok(status.code().and_then(|code| code.try_into().ok()).unwrap_or(2));
        }
        if ending.is_asked_anew()
            && let Ok(run) = Process::of(child.id())
        {
            run.ask_to_end().context("cannot ask a run to end")?;
        }
        std::thread::sleep(ASKED_EVERY);
    }
}

const ASKED_EVERY: Duration = Duration::from_millis(20);

/// This program in a directory.
fn program(
    here: &Path,
    words: impl IntoIterator<Item = impl AsRef<OsStr>>,
) -> anyhow::Result<Command> {
    let path = std::env::current_exe().context("cannot find the path of this program")?;
    let mut command = Command::new(path);
    command.args(words).current_dir(here);
    Ok(command)
}

/// The words of a run in this place, without those of its results.
fn command(args: &Run, place: &Place) -> anyhow::Result<Vec<String>> {
    let mut words = vec!["run".to_owned()];
    for file in &args.files {
        words.push(file.to_str().context("the name of a file is no text (UTF-8)")?.to_owned());
    }
    let path = match place {
        Place::Hosts(path) => path.to_str().context("the name of a file is no text (UTF-8)")?,
        place => place::word(place),
    };
    words.extend(["--on".to_owned(), path.to_owned()]);
    words.extend(args.request_in(place).options);
    Ok(words)
}

/// The name of a place's directory.
fn directory_of(place: &Place) -> String {
    match place {
        Place::Hosts(path) => path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        place => place::word(place).replace(':', "-"),
    }
}
