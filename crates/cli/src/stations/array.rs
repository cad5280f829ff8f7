// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `run` with a network of phases alone as an array of tasks: `--array` makes it for an engine that
//! the user has, `--task` performs the share of a task, `--merge` merges the shares.
//!
//! Not here: what an array is (`timewire_agent::sweep::array`).

use std::fmt::Write as _;
use std::path::{Path, PathBuf, absolute};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use timewire_agent::controller::Connect;
use timewire_agent::sweep::array::{self, Array, Damage, Kubernetes, Slurm, Spec, Survey, Target};
use timewire_agent::sweep::{Reach, own_agent_directory};
use timewire_model::scenario::FileKind;
use timewire_runner::experiment::default_directory;
use timewire_sys::event::EndRequests;

use crate::experiment::Run;
use crate::place::Place;
use crate::{ending, input, output, place, stations};

#[derive(Debug, Args)]
#[command(next_help_heading = "Arrays of tasks")]
pub struct ArrayOptions {
    /// Divide a network with phases alone into tasks for this engine; the directory of the array is
    /// --out
    #[arg(long, value_enum, value_name = "ENGINE", conflicts_with_all = ["task", "merge"])]
    array: Option<EngineChoice>,
    /// With --array: this many tasks [default: one for each trial, up to 1000]
    #[arg(long, value_name = "N", value_parser = count(), hide_short_help = true)]
    tasks: Option<u16>,
    /// With --array: at most this many tasks at the same time
    #[arg(long, value_name = "N", value_parser = count(), hide_short_help = true)]
    at_once: Option<u16>,
    /// With --array: the program of the tasks [default: of slurm this one, by its path; of
    /// kubernetes `timewire`]
    #[arg(long, value_name = "TIMEWIRE", hide_short_help = true)]
    program: Option<String>,
    /// With --array kubernetes: the image of the tasks, with this Timewire and the programs of the
    /// experiment
    #[arg(long, required_if_eq("array", "kubernetes"), hide_short_help = true)]
    image: Option<String>,
    /// With --array kubernetes: the name of the PersistentVolumeClaim for the shares
    #[arg(
        long,
        value_name = "NAME",
        required_if_eq("array", "kubernetes"),
        hide_short_help = true
    )]
    claim: Option<String>,
    /// With --array kubernetes: CPUs of each task, such as 2 or 500m [default: 1]
    #[arg(long, hide_short_help = true)]
    cpu: Option<String>,
    /// With --array kubernetes: memory of each task, with what its programs write to /tmp
    /// [default: 2Gi]
    #[arg(long, hide_short_help = true)]
    memory: Option<String>,
    /// Perform the share of this task, or the rest of it; FILE is the directory of an array
    ///
    /// Tasks count from 0: $SLURM_ARRAY_TASK_ID, $JOB_COMPLETION_INDEX. Exit code 0: the whole
    /// share is done, within its limits or not; 2: something failed, or was ended early: repeat
    /// the task; 3: a host was left changed.
    #[arg(long, value_name = "N", conflicts_with = "merge", hide_short_help = true)]
    task: Option<usize>,
    /// Merge the shares of all tasks into the run directory --out; FILE is the directory of an
    /// array
    ///
    /// With --dry-run: only list what is done, failed and missing, and the command that runs the
    /// rest; exit code 1 when something is missing.
    #[arg(long)]
    merge: bool,
    /// With --task and --merge: where the shares are; may be repeated [default: FILE/shards]
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    shards: Vec<PathBuf>,
    /// With --merge: merge what there is, though trials failed or are missing
    #[arg(long, hide_short_help = true)]
    partial: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum EngineChoice {
    /// A job array
    Slurm,
    /// An Indexed Job
    Kubernetes,
}

fn count() -> clap::builder::RangedI64ValueParser<u16> {
    clap::value_parser!(u16).range(1..=9_999)
}

/// What is done with an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Make(EngineChoice),
    Task(usize),
    Merge,
}

impl Action {
    /// The option that asks for it.
    fn option(self) -> &'static str {
        match self {
            Action::Make(_) => "--array",
            Action::Task(_) => "--task",
            Action::Merge => "--merge",
        }
    }
}

/// With what an option has a meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum With {
    Make,
    Kubernetes,
    Shares,
    Merge,
}

impl With {
    fn fits(self, action: Action) -> bool {
        match self {
            With::Make => matches!(action, Action::Make(_)),
            With::Kubernetes => action == Action::Make(EngineChoice::Kubernetes),
            With::Shares => matches!(action, Action::Task(_) | Action::Merge),
            With::Merge => action == Action::Merge,
        }
    }

    /// The options that ask for it.
    fn options(self) -> &'static str {
        match self {
            With::Make => "`--array slurm` and `--array kubernetes`",
            With::Kubernetes => "`--array kubernetes`",
            With::Shares => "`--task N` and `--merge`",
            With::Merge => "`--merge`",
        }
    }
}

impl ArrayOptions {
    /// Whether one of them is given.
    pub fn are_given(&self) -> bool {
        self.action().is_some() || self.given().next().is_some()
    }

    fn action(&self) -> Option<Action> {
        let make = self.array.map(Action::Make);
        make.or(self.task.map(Action::Task)).or(self.merge.then_some(Action::Merge))
    }

    /// The options that are given and go with another one.
    fn given(&self) -> impl Iterator<Item = (&'static str, With)> {
        let all = [
            ("--tasks", self.tasks.is_some(), With::Make),
            ("--at-once", self.at_once.is_some(), With::Make),
            ("--program", self.program.is_some(), With::Make),
            ("--image", self.image.is_some(), With::Kubernetes),
            ("--claim", self.claim.is_some(), With::Kubernetes),
            ("--cpu", self.cpu.is_some(), With::Kubernetes),
            ("--memory", self.memory.is_some(), With::Kubernetes),
            ("--shards", !self.shards.is_empty(), With::Shares),
            ("--partial", self.partial, With::Merge),
        ];
        all.into_iter().filter(|(_, given, _)| *given).map(|(option, _, with)| (option, with))
    }

    /// What is asked for; none without an option that says so.
    ///
    /// **Errors**: an option is given that does not go with it.
    fn asked(&self) -> anyhow::Result<Option<Action>> {
        let action = self.action();
        let fits = |with: With| action.is_some_and(|action| with.fits(action));
        match self.given().find(|(_, with)| !fits(*with)) {
            Some((option, with)) => {
                bail!("{option} is for {}: add that, or leave {option} out", with.options())
            }
            None => Ok(action),
        }
    }
}

pub fn run(args: &Run) -> anyhow::Result<ExitCode> {
    let action = args.array.asked()?.context("invariant: one of the options is given")?;
    let [path] = args.files.as_slice() else {
        let of = match action {
            Action::Make(_) => "network file",
            Action::Task(_) | Action::Merge => "directory of an array",
        };
        bail!("{} takes one {of}; {} were given", action.option(), args.files.len());
    };
    args.refuse_options_of_scenarios("arrays", false)?;
    args.limits.refuse()?;
    args.place.check()?;
    if args.place.clock_error.is_some() {
        bail!("--clock-error is not for arrays: tasks take what their stations measure");
    }
    let is_elsewhere = args.place.on != Place::Lab;
    match action {
        Action::Make(engine) => make(args, path, engine),
        Action::Task(_) | Action::Merge if is_elsewhere => bail!(
            "--on is for `--array`, which keeps the hosts file in the array: leave --on out of {}",
            action.option()
        ),
        Action::Task(_) if args.dry_run => {
            bail!("--dry-run is for `--merge`, which lists what is done and missing of all tasks")
        }
        Action::Task(_) if args.output.out.is_some() => {
            bail!("--out is for `--merge`; the share of a task goes to --shards")
        }
        Action::Task(number) => task(args, path, number),
        Action::Merge => {
            ending::exit_on_request()?;
            if args.dry_run { status(args, path) } else { merge(args, path) }
        }
    }
}

fn own_program() -> anyhow::Result<String> {
    let program = std::env::current_exe().context("cannot find the path of this program")?;
    program.into_os_string().into_string().map_err(|path| {
        anyhow::anyhow!("{} is no text (UTF-8): name the program with --program", path.display())
    })
}

fn target(options: &ArrayOptions, engine: EngineChoice) -> anyhow::Result<Target> {
    let program = options.program.clone();
    let or =
        |value: &Option<String>, default: &str| value.clone().unwrap_or_else(|| default.to_owned());
    Ok(match engine {
        EngineChoice::Slurm => {
            Target::Slurm(Slurm { program: program.map_or_else(own_program, Ok)? })
        }
        EngineChoice::Kubernetes => Target::Kubernetes(Kubernetes {
            program: program.unwrap_or_else(|| "timewire".to_owned()),
            image: options.image.clone().context("invariant: clap requires it")?,
            claim: options.claim.clone().context("invariant: clap requires it")?,
            cpu: or(&options.cpu, "1"),
            memory: or(&options.memory, "2Gi"),
        }),
    })
}

const NOTHING_MADE: &str = "nothing was made";

fn make(args: &Run, path: &Path, engine: EngineChoice) -> anyhow::Result<ExitCode> {
    let hosts = match &args.place.on {
        Place::Hosts(on) => Some(place::hosts(on, NOTHING_MADE)?),
        Place::Lab => None,
        Place::LabUml | Place::LabQemu | Place::Sim => bail!(
            "with --array the stations are on the node of the task, or where a hosts file says; \
             for a simulation or a laboratory on each node, let a step of the experiment be \
             `timewire run NETWORK --on lab:uml` or `--on sim`"
        ),
    };
    let text = input::text(path)?;
    if let Some(kind @ (FileKind::Segment | FileKind::Network)) = FileKind::of(&text) {
        bail!(
            "{0} is {kind}, and --array divides networks with phases alone: run it without \
             --array, or let `timewire run {0}` be a step of a station",
            path.display()
        );
    }
    let script = stations::script(path, NOTHING_MADE)?;
    let hosts = hosts.as_ref().map(|(hosts, text)| (hosts, text.as_str()));
    let options = &args.array;
    let spec = Spec {
        tasks: options.tasks.map(usize::from),
        at_once: options.at_once.map(usize::from),
        target: target(options, engine)?,
    };
    let prepared = array::prepare(&script, hosts, &spec)?;
    let head = &prepared.head;
    if spec.tasks.is_some_and(|tasks| tasks > head.tasks) {
        say!("note: there are {} trials, and so no more tasks", head.trials);
    }
    let divided = format!("{}: {} trials as {} tasks", head.name, head.trials, head.tasks);
    if args.dry_run {
        say!("{divided}; {NOTHING_MADE}");
        return stations::dry_run(&script, args.output.json);
    }
    let here = std::env::current_dir().context("the current directory is gone")?;
    let into = match &args.output.out {
        Some(directory) => directory.clone(),
        None => default_directory(&head.name, &here),
    };
    prepared.write(&into)?;
    if args.output.json {
        return output::json(head);
    }
    let submit = into.join(head.engine.submits());
    output::print(&format!(
        "{divided}\nsubmit:  {}{}\nmerge:   timewire run {} --merge --out RUN\n",
        match engine {
            EngineChoice::Slurm => "",
            EngineChoice::Kubernetes => "kubectl create -f ",
        },
        submit.display(),
        into.display()
    ))
}

/// The array at this path.
fn opened(path: &Path) -> anyhow::Result<Array> {
    if !Array::is_at(path) {
        bail!(
            "{} is no directory of an array; `timewire run EXPERIMENT --array slurm --out DIR` \
             makes one",
            path.display()
        );
    }
    Ok(array::open(path)?)
}

/// Where shares are.
fn places(array: &Array, shards: &[PathBuf]) -> Vec<PathBuf> {
    if shards.is_empty() { vec![array.shards()] } else { shards.to_vec() }
}

fn task(args: &Run, path: &Path, task: usize) -> anyhow::Result<ExitCode> {
    let array = opened(path)?;
    array.share(task)?;
    let [shards] = &places(&array, &args.array.shards)[..] else {
        bail!("the share of a task goes to one directory; --shards names several");
    };
    let shards = absolute(shards).context("the current directory is gone")?;
    let directory = array::place(&shards, task);
    let program = std::env::current_exe().context("cannot find the path of this program")?;
    let keys = own_agent_directory();
    let names = stations::names_of(&array.script.file);
    let reach = Reach::new(names, &array.hosts, &keys, program, &directory)?;
    // Before any thread: all of them leave the signals to us.
    let requests = EndRequests::new().context("cannot wait for signals")?;
    let connect: Arc<dyn Connect> = Arc::new(reach);
    let mut is_asked = || requests.take();
    let tell = &mut stations::tell;
    let summary = array::perform(&array, task, &shards, &connect, &mut is_asked, tell)?;
    stations::show(&summary, &directory, args.output.json)?;
    Ok(ExitCode::from(match summary.exit_code() {
        // A number beyond its limit is a result, and no reason for an engine to try again.
        1 => 0,
        code => code,
    }))
}

fn status(args: &Run, path: &Path) -> anyhow::Result<ExitCode> {
    let array = opened(path)?;
    let survey = array::survey(&array, &places(&array, &args.array.shards))?;
    if args.output.json {
        output::json(&survey)?;
    } else {
        output::print(&told(&array, &survey))?;
    }
    Ok(ExitCode::from(u8::from(!survey.is_whole())))
}

fn merge(args: &Run, path: &Path) -> anyhow::Result<ExitCode> {
    let array = opened(path)?;
    let survey = array::survey(&array, &places(&array, &args.array.shards))?;
    if !survey.is_whole() {
        say_text!("{}", told(&array, &survey));
    }
    if !survey.doubles.is_empty() {
        bail!("trials are there twice; nothing was merged");
    }
    if !survey.is_whole() && !args.array.partial {
        bail!("not all is there; nothing was merged. --partial merges what there is");
    }
    let here = std::env::current_dir().context("the current directory is gone")?;
    let out = match &args.output.out {
        Some(directory) => directory.clone(),
        None => default_directory(&array.head.name, &here),
    };
    let summary = array::merge(&array, &survey, &out)?;
    stations::show(&summary, &out, args.output.json)?;
    Ok(ExitCode::from(summary.exit_code()))
}

fn told(array: &Array, survey: &Survey) -> String {
    let Survey { name, trials, tasks, done, failed, missing, .. } = survey;
    let mut text = format!(
        "{name}: {trials} trials in {tasks} tasks: {} done, {} failed, {} missing\n",
        done.len(),
        failed.len(),
        missing.len()
    );
    let values = |number: usize| {
        let it = array.trials.iter().find(|it| it.number == number);
        let values = it.into_iter().flat_map(|it| &it.values);
        values.map(|(k, v)| format!("  {k}={v}")).collect::<String>()
    };
    for (number, why) in failed {
        let _ = writeln!(text, "  failed   {number:04}{}: {why}", values(*number));
    }
    for number in missing {
        let _ = writeln!(text, "  missing  {number:04}{}", values(*number));
    }
    let kinds =
        [("twice", &survey.doubles), ("foreign", &survey.foreign), ("damaged", &survey.damaged)];
    for (kind, all) in kinds {
        for Damage { path, why } in all {
            let _ = writeln!(text, "  {kind:<8} {}: {why}", show(path));
        }
    }
    if let Some(command) = &survey.command {
        let _ = writeln!(text, "again:  {command}");
    }
    text
}

fn show(path: &Path) -> String {
    path.display().to_string()
}
