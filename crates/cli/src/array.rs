// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `array`: an experiment file as tasks of an engine that the user has.
//!
//! Not here: what is in an array and what a task does (`timewire_ctl::campaign::array`).

use std::fmt::Write as _;
use std::path::{Path, PathBuf, absolute};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use timewire_ctl::campaign::array::{self, Array, Damage, Kubernetes, Slurm, Survey, Target, Wish};
use timewire_ctl::campaign::{Reach, own_agent_directory};
use timewire_ctl::conductor::Connect;
use timewire_sys::event::EndRequests;

use crate::{ending, output, stations};

#[derive(Debug, Subcommand)]
pub enum ArrayCommand {
    /// Make the directory of a job array for Slurm; its `submit.sh` submits it
    Slurm(SlurmArgs),
    /// Make the directory of an Indexed Job for Kubernetes; `kubectl create -f DIR/job.yaml`
    /// submits it
    Kubernetes(KubernetesArgs),
    /// Perform the share of one task, or what is not done of it; the engine calls this
    ///
    /// Exit code 0: all of the share was done, whatever its limits say: the join tells that; 2:
    /// something failed, or it was ended early: begun again, the task does what is not done; 3: a
    /// host was left changed.
    Task(TaskArgs),
    /// Tell what is done, failed and missing, and the command that does the rest
    ///
    /// Exit code 0: all was done; 1: not.
    Status(StatusArgs),
    /// Join the shares to the run directory that `run FILE` would have left
    ///
    /// Exit code as that of `run FILE`. Where something is missing, nothing is joined.
    Merge(MergeArgs),
}

#[derive(Debug, Args)]
pub struct Make {
    /// The experiment file (YAML or JSON)
    file: PathBuf,
    /// The directory of the array; it must be empty or not exist
    #[arg(long, value_name = "DIR")]
    into: PathBuf,
    /// Where the stations of each task are, as for `run` [default: all are the machine on which
    /// the task runs]
    #[arg(long, value_name = "FILE")]
    map: Option<PathBuf>,
    /// So many tasks [default: one for each performance, up to 1000]
    #[arg(long, value_name = "N", value_parser = count())]
    tasks: Option<u16>,
    /// So many of them at the same time at most
    #[arg(long, value_name = "N", value_parser = count())]
    at_once: Option<u16>,
}

fn count() -> clap::builder::RangedI64ValueParser<u16> {
    clap::value_parser!(u16).range(1..=9_999)
}

#[derive(Debug, Args)]
pub struct SlurmArgs {
    #[command(flatten)]
    make: Make,
    /// The program on the nodes [default: this one, by its path]
    #[arg(long, value_name = "TIMEWIRE")]
    program: Option<String>,
}

#[derive(Debug, Args)]
pub struct KubernetesArgs {
    #[command(flatten)]
    make: Make,
    /// The image of the tasks, with this Timewire and what the experiment runs
    #[arg(long)]
    image: String,
    /// The name of the PersistentVolumeClaim that takes the shares
    #[arg(long, value_name = "NAME")]
    claim: String,
    /// CPUs of each task, such as 2 or 500m
    #[arg(long, default_value = "1")]
    cpu: String,
    /// Memory of each task, with what its programs write to /tmp
    #[arg(long, default_value = "2Gi")]
    memory: String,
    /// The program in the image
    #[arg(long, value_name = "TIMEWIRE", default_value = "timewire")]
    program: String,
}

#[derive(Debug, Args)]
pub struct TaskArgs {
    /// The directory of the array
    array: PathBuf,
    /// Which task, from 0: $SLURM_ARRAY_TASK_ID or $JOB_COMPLETION_INDEX
    task: usize,
    /// Where the share goes, in a directory of its own [default: ARRAY/shards]
    #[arg(long, value_name = "DIR")]
    shards: Option<PathBuf>,
    /// Print the summary of the share as JSON instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub struct StatusArgs {
    /// The directory of the array
    array: PathBuf,
    /// Where shares are; may be repeated [default: ARRAY/shards]
    #[arg(long, value_name = "DIR")]
    shards: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub struct MergeArgs {
    /// The directory of the array
    array: PathBuf,
    /// Where shares are; may be repeated [default: ARRAY/shards]
    #[arg(long, value_name = "DIR")]
    shards: Vec<PathBuf>,
    /// The run directory; it must be empty or not exist
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Join what there is, though performances failed or are missing
    #[arg(long)]
    partial: bool,
    /// Print the summary as JSON instead of a table
    #[arg(long)]
    json: bool,
}

pub fn run(command: ArrayCommand) -> anyhow::Result<ExitCode> {
    match command {
        ArrayCommand::Slurm(args) => {
            let program = match args.program {
                Some(program) => program,
                None => own_program()?,
            };
            make(&args.make, Target::Slurm(Slurm { program }))
        }
        ArrayCommand::Kubernetes(args) => {
            let KubernetesArgs { make: wish, image, claim, cpu, memory, program } = args;
            make(&wish, Target::Kubernetes(Kubernetes { program, image, claim, cpu, memory }))
        }
        ArrayCommand::Task(args) => task(&args),
        ArrayCommand::Status(args) => {
            ending::exit_on_request()?;
            status(&args)
        }
        ArrayCommand::Merge(args) => {
            ending::exit_on_request()?;
            merge(&args)
        }
    }
}

fn own_program() -> anyhow::Result<String> {
    let program = std::env::current_exe().context("cannot find the path of this program")?;
    program.into_os_string().into_string().map_err(|path| {
        anyhow::anyhow!("{} is no text (UTF-8): name the program with --program", path.display())
    })
}

fn make(args: &Make, target: Target) -> anyhow::Result<ExitCode> {
    let script = stations::script(&args.file, "nothing was made")?;
    let map =
        args.map.as_deref().map(|map| stations::stations(map, "nothing was made")).transpose()?;
    let map = map.as_ref().map(|(map, text)| (map, text.as_str()));
    let submit = match &target {
        Target::Slurm(_) => "submit.sh",
        Target::Kubernetes(_) => "job.yaml",
    };
    let wish =
        Wish { tasks: args.tasks.map(usize::from), at_once: args.at_once.map(usize::from), target };
    let array = array::make(&script, map, &wish, &args.into)?;
    let Array { head, .. } = &array;
    if wish.tasks.is_some_and(|tasks| tasks > head.tasks) {
        say!("note: there are {} performances, and so no more tasks", head.performances);
    }
    let submit = args.into.join(submit);
    output::print(&format!(
        "{}: {} performances as {} tasks\nsubmit:  {}{}\njoin:    timewire array merge {} --out \
         RUN\n",
        head.name,
        head.performances,
        head.tasks,
        if submit.extension().is_some_and(|it| it == "yaml") { "kubectl create -f " } else { "" },
        submit.display(),
        args.into.display()
    ))
}

/// Where shares are, as paths that programs elsewhere understand too.
fn places(array: &Array, shards: &[PathBuf]) -> Vec<PathBuf> {
    if shards.is_empty() { vec![array.shards()] } else { shards.to_vec() }
}

fn task(args: &TaskArgs) -> anyhow::Result<ExitCode> {
    let array = array::open(&args.array)?;
    array.share(args.task)?;
    let shards = args.shards.clone().unwrap_or_else(|| array.shards());
    let shards = absolute(&shards).context("the current directory is gone")?;
    let directory = array::place(&shards, args.task);
    let program = std::env::current_exe().context("cannot find the path of this program")?;
    let keys = own_agent_directory();
    let reach = Reach::new(&array.script.file, &array.map, &keys, program, &directory)?;
    // Before any thread: all of them leave the signals to us.
    let requests = EndRequests::new().context("cannot wait for signals")?;
    let connect: Arc<dyn Connect> = Arc::new(reach);
    let mut is_asked = || requests.take();
    let (task, tell) = (args.task, &mut stations::tell);
    let summary = array::perform(&array, task, &shards, &connect, &mut is_asked, tell)?;
    stations::show(&summary, &directory, args.json)?;
    Ok(ExitCode::from(match summary.exit_code() {
        // A number beyond its limit is a result, and no reason for an engine to try again.
        1 => 0,
        code => code,
    }))
}

fn status(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    let array = array::open(&args.array)?;
    let survey = array::survey(&array, &places(&array, &args.shards))?;
    if args.json {
        output::json(&survey)?;
    } else {
        output::print(&told(&array, &survey))?;
    }
    Ok(ExitCode::from(u8::from(!survey.is_whole())))
}

fn merge(args: &MergeArgs) -> anyhow::Result<ExitCode> {
    let array = array::open(&args.array)?;
    let survey = array::survey(&array, &places(&array, &args.shards))?;
    if !survey.is_whole() {
        say_text!("{}", told(&array, &survey));
    }
    if !survey.doubles.is_empty() {
        bail!("performances are there twice; nothing was joined");
    }
    if !survey.is_whole() && !args.partial {
        bail!("not all is there; nothing was joined. --partial joins what there is");
    }
    let summary = array::merge(&array, &survey, &args.out)?;
    stations::show(&summary, &args.out, args.json)?;
    Ok(ExitCode::from(summary.exit_code()))
}

fn told(array: &Array, survey: &Survey) -> String {
    let Survey { name, performances, tasks, done, failed, missing, .. } = survey;
    let mut text = format!(
        "{name}: {performances} performances in {tasks} tasks: {} done, {} failed, {} missing\n",
        done.len(),
        failed.len(),
        missing.len()
    );
    let values = |number: usize| {
        let it = array.performances.iter().find(|it| it.number == number);
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
