// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `lab`: which laboratories there are, their kernels, and commands inside them.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;
use timewire_base::FileError;
use timewire_lab::LabError;
use timewire_lab::doctor::{self, Check, Level};
use timewire_lab::qemu::{self, nic::Timestamped};
use timewire_lab::tools;
use timewire_lab::uml::{About, Connection, Finished, Kernel, Machine, Time};
use timewire_sys::Randomness;
use timewire_sys::machine::TerminalSettings;

use crate::ending::{self, Ending, WORDS};
use crate::output::{self, ProgressLine};

#[derive(Debug, Subcommand)]
pub enum LabCommand {
    /// Tell which laboratories this machine can have, and what mends what is missing
    ///
    /// Exit code 0: all work now; 1: one needs the named command first; 4: one cannot be had.
    Doctor {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Build the laboratory's kernel, or show the one that is there
    ///
    /// From the distribution's kernel source, into the cache ($TIMEWIRE_CACHE, or
    /// ~/.cache/timewire); nothing is installed. It takes some minutes, once.
    Uml(Uml),
    /// Fetch a kernel of the distribution and an emulator for it, or show those that are there
    ///
    /// For what User-Mode Linux lacks: XDP in drivers, BTF, kprobes, NICs with clocks.
    /// Packages (about 130 MB) go into the cache; nothing is installed.
    Qemu(Qemu),
    /// Run a command in the laboratory's kernel
    ///
    /// It sees the host's files, read only, and what it writes to /tmp is lost.
    Exec(Exec),
    /// Inside `exec --in qemu`: keep the receive timestamps of the emulated NICs coming
    ///
    /// The emulated NIC timestamps one kind of message, and after it no other until it is helped.
    /// Runs until it is ended.
    Timestamps {
        /// What each NIC is to timestamp: a time transmitter needs `delay-req`, a receiver `sync`
        #[arg(required = true, value_name = "sync|delay-req")]
        nics: Vec<Timestamped>,
    },
    /// Start a shell in the laboratory's kernel
    Shell(Shell),
    /// Remove what laboratories and MACs of dead processes have left behind
    Clean,
}

#[derive(Debug, Args)]
pub struct Uml {
    /// The kernel series, such as 6.1, of which the distribution has the source [default: 6.12, or
    /// else the newest there is]
    #[arg(long, value_name = "SERIES")]
    pub kernel: Option<String>,
    /// Fetch the distribution's own build instead: ready at once, but without virtual time
    #[arg(long, conflicts_with = "kernel")]
    pub prebuilt: bool,
    /// Only list the kernels that are there
    #[arg(long, conflicts_with_all = ["kernel", "prebuilt"])]
    pub list: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Qemu {
    /// The kernel series, such as 6.1, of which the distribution has a kernel [default: the newest]
    #[arg(long, value_name = "SERIES")]
    pub kernel: Option<String>,
    /// Only list the kernels that are there
    #[arg(long, conflicts_with = "kernel")]
    pub list: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// A kernel to run a command in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum In {
    /// User-Mode Linux: boots in a fraction of a second, exact
    Uml,
    /// An emulated machine with the distribution's kernel: boots in seconds
    Qemu,
}

#[derive(Debug, Args)]
pub struct LabKernel {
    /// The kernel series, such as 6.1 [default: 6.12, or the newest that is there]
    #[arg(long, value_name = "SERIES")]
    pub kernel: Option<String>,
    /// Use the distribution's own build
    #[arg(long, conflicts_with = "kernel")]
    pub prebuilt: bool,
    /// How time passes in the machine
    #[arg(long, value_enum)]
    pub time: Option<LabTime>,
    /// Memory of the machine, MiB [default: 256, of an emulated one 1024]
    #[arg(long, value_name = "MIB", value_parser = memory_mib())]
    pub memory: Option<u32>,
    /// A directory of the host that the command may change; may be repeated
    #[arg(long, value_name = "DIR")]
    pub writable: Vec<PathBuf>,
}

fn memory_mib() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(64..=65_536)
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum LabTime {
    /// As fast as events follow each other; computing takes no time
    Virtual,
    /// As on the host
    Wall,
}

#[derive(Debug, Args)]
pub struct Exec {
    /// Which kernel of the laboratory
    #[arg(long = "in", value_enum, default_value = "uml")]
    pub place: In,
    #[command(flatten)]
    pub kernel: LabKernel,
    /// NICs of an emulated machine, 0 to 8, on one hub: eth0, eth1, ... with clocks
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=8))]
    pub nics: Option<u32>,
    /// Programs that an emulated machine has, with their libraries, instead of the host's files:
    /// two such runs are the same to the nanosecond
    #[arg(long, value_name = "PROGRAM,...", value_delimiter = ',')]
    pub sealed: Option<Vec<PathBuf>>,
    /// Read standard input to its end and give it to the command; without, it reads nothing
    #[arg(short = 'i', long)]
    pub stdin: bool,
    /// Say on standard error how much time passed in the machine and on the host
    #[arg(long)]
    pub stats: bool,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub command: Vec<String>,
}

#[derive(Debug, Args)]
pub struct Shell {
    #[command(flatten)]
    pub kernel: LabKernel,
}

pub fn run(command: LabCommand) -> anyhow::Result<ExitCode> {
    match command {
        LabCommand::Doctor { json } => {
            ending::exit_on_request()?;
            doctor(json)
        }
        LabCommand::Uml(args) => uml(&args),
        LabCommand::Qemu(args) => qemu(&args),
        LabCommand::Exec(args) => exec(args),
        LabCommand::Timestamps { nics } => {
            ending::exit_on_request()?;
            match qemu::nic::keep_timestamping(&nics)? {}
        }
        LabCommand::Shell(args) => shell(args),
        LabCommand::Clean => clean(),
    }
}

fn clean() -> anyhow::Result<ExitCode> {
    let leftovers = timewire_lab::clean_leftovers()?;
    for found in &leftovers {
        output::print(&format!("{found}\n"))?;
    }
    if leftovers.is_empty() {
        output::print("nothing was left behind\n")?;
    }
    let failed = leftovers.iter().any(|found| !found.failures.is_empty());
    Ok(ExitCode::from(if failed { 3 } else { 0 }))
}

/// Exit code 0: all laboratories work now; 1: some need a command first; 4: one cannot be had.
fn doctor(json: bool) -> anyhow::Result<ExitCode> {
    #[derive(Serialize)]
    struct Doctor<'a> {
        schema: &'static str,
        laboratories: Vec<(&'static str, Level)>,
        checks: &'a [Check],
    }
    let checks = doctor::checks()?;
    let names = ["netns", "uml", "prebuilt", "qemu"];
    let laboratories: Vec<_> =
        names.iter().map(|&name| (name, doctor::level_of(name, &checks))).collect();
    let worst = laboratories.iter().map(|(_, level)| *level).max().unwrap_or(Level::Missing);
    let code = match worst {
        Level::Ok => 0,
        Level::Degraded => 1,
        Level::Missing => 4,
    };
    if json {
        let told = Doctor { schema: "timewire.lab-doctor/1", laboratories, checks: &checks };
        output::json(&told)?;
        return Ok(ExitCode::from(code));
    }
    let mut text = String::new();
    for (name, level) in laboratories {
        text += &format!("{:<9} {:<9} {}\n", name, level_text(level), what_it_is(name));
        for check in checks.iter().filter(|check| check.laboratory == name) {
            text += &format!("  {:<9} {}: {}\n", level_text(check.level), check.name, check.found);
            if check.level != Level::Ok {
                text += &format!("            {}\n", check.why);
            }
            if let Some(mend) = &check.mend {
                text += &format!("            mend: {mend}\n");
            }
        }
    }
    output::print(&text)?;
    Ok(ExitCode::from(code))
}

fn level_text(level: Level) -> &'static str {
    match level {
        Level::Ok => "ok",
        Level::Degraded => "degraded",
        Level::Missing => "missing",
    }
}

fn what_it_is(laboratory: &str) -> &'static str {
    match laboratory {
        "netns" => "stations on this kernel, at its own speed",
        "uml" => "a kernel with all queueing disciplines, in virtual time",
        "qemu" => "the distribution's kernel in an emulated machine, with NICs",
        _ => "the distribution's kernel with all queueing disciplines, at wall speed",
    }
}

/// Gets a kernel. A request to end kills what makes it, which takes back what it has begun.
fn gotten<K>(get: impl FnOnce() -> Result<K, LabError>) -> anyhow::Result<K> {
    ending::on_request(tools::end_all)?;
    let got = get();
    anyhow::ensure!(!tools::is_ended() || got.is_ok(), "{WORDS}; nothing of the kernel was kept");
    Ok(got?)
}

fn uml(args: &Uml) -> anyhow::Result<ExitCode> {
    let kernels = if args.list {
        Kernel::cached()?
    } else {
        let mut line = ProgressLine::new();
        let mut tell = |step: &str| line.line(step);
        let made = gotten(|| match (&args.kernel, args.prebuilt) {
            (_, true) => Kernel::fetch_prebuilt(&mut tell),
            (series, false) => Kernel::build(series.as_deref(), &mut tell),
        });
        line.clear();
        vec![made?]
    };
    if args.json {
        let all: Vec<&About> = kernels.iter().map(Kernel::about).collect();
        return output::json(&all);
    }
    for kernel in &kernels {
        output::print(&format!("{}\n", describe(kernel)))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn describe(kernel: &Kernel) -> String {
    let about = kernel.about();
    let mut text = format!(
        "Linux {} from {} {}, configuration {}\n  {}",
        about.release,
        about.package,
        about.package_version,
        about.configuration,
        kernel.program().display()
    );
    if !about.missing.is_empty() {
        text += &format!("\n  without {}", about.missing.join(", "));
    }
    text
}

fn qemu(args: &Qemu) -> anyhow::Result<ExitCode> {
    let kernels = if args.list {
        qemu::Kernel::cached()?
    } else {
        let mut line = ProgressLine::new();
        let mut tell = |step: &str| line.line(step);
        let kernel = gotten(|| qemu::Kernel::fetch(args.kernel.as_deref(), &mut tell));
        line.clear();
        vec![kernel?]
    };
    let all: Vec<&qemu::About> = kernels.iter().map(qemu::Kernel::about).collect();
    if args.json {
        return output::json(&all);
    }
    for about in all {
        let mut text = format!(
            "Linux {} from {} {}, configuration {}\n  in the emulator {}\n",
            about.release,
            about.package,
            about.package_version,
            about.configuration,
            about.emulator_version
        );
        if !about.missing_modules.is_empty() {
            text += &format!("  without {}\n", about.missing_modules.join(", "));
        }
        output::print(&text)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The kernel that a command asks for, and how time passes in it.
fn kernel_for(kernel: Option<&str>, prebuilt: bool) -> anyhow::Result<Kernel> {
    Ok(if prebuilt { Kernel::find_prebuilt()? } else { Kernel::find(kernel)? })
}

/// How time passes: as asked for, or else virtually where the kernel can.
pub fn time_for(time: Option<LabTime>, kernel: &Kernel) -> Time {
    match time {
        Some(LabTime::Wall) => Time::Wall,
        Some(LabTime::Virtual) => Time::virtual_from_2026(),
        None if kernel.about().has_time_travel() => Time::virtual_from_2026(),
        None => Time::Wall,
    }
}

/// A machine that is to the command as this process would be.
pub fn machine_like_this(command: Vec<String>, time: Time) -> anyhow::Result<Machine> {
    let init = std::env::current_exe().context("cannot find the path of this program")?;
    let mut machine = Machine::new(&init, &[]);
    machine.command = command;
    machine.directory = std::env::current_dir().context("the current directory is gone")?;
    machine.environment = std::env::vars().collect();
    // What is exact is to be the same in every run.
    machine.randomness = match time {
        Time::Wall => Randomness::OfTheHost,
        _ => Randomness::None,
    };
    machine.time = time;
    Ok(machine)
}

/// The same, emulated.
pub fn emulated_like_this(command: Vec<String>) -> anyhow::Result<qemu::Machine> {
    let like_this = machine_like_this(command, Time::Wall)?;
    let mut machine = qemu::Machine::new(&like_this.init, &[]);
    machine.command = like_this.command;
    machine.directory = like_this.directory;
    machine.environment = like_this.environment;
    Ok(machine)
}

/// Exit code: that of the command; 2: it was ended on request.
fn exec(args: Exec) -> anyhow::Result<ExitCode> {
    let stats = args.stats;
    // Before the machine starts: it is to end with this process, and not by itself.
    let ending = Ending::new()?;
    let finished = match args.place {
        In::Uml => exec_in_uml(args, &ending)?,
        In::Qemu => exec_in_qemu(args, &ending)?,
    };
    if stats {
        let spent = finished.outcome.ended_ns - finished.outcome.started_ns;
        let host = finished.host_time.as_nanos();
        let _ = writeln!(io::stderr(), "time: {spent}ns in the machine, {host}ns on the host");
    }
    Ok(ExitCode::from(finished.outcome.code))
}

fn exec_in_uml(args: Exec, ending: &Ending) -> anyhow::Result<Finished> {
    if args.nics.is_some() {
        anyhow::bail!("--nics is for `--in qemu`; User-Mode Linux has no NICs");
    }
    if args.sealed.is_some() {
        anyhow::bail!("--sealed is for `--in qemu`; User-Mode Linux repeats itself without");
    }
    let kernel = kernel_for(args.kernel.kernel.as_deref(), args.kernel.prebuilt)?;
    let mut machine = machine_like_this(args.command, time_for(args.kernel.time, &kernel))?;
    machine.memory_mib = args.kernel.memory.unwrap_or(machine.memory_mib);
    machine.writable = writable(&args.kernel.writable)?;
    machine.connection = to_our_descriptors(input(args.stdin, ending)?)?;
    run_until_asked(machine, &kernel, ending)
}

fn exec_in_qemu(args: Exec, ending: &Ending) -> anyhow::Result<Finished> {
    if args.kernel.prebuilt || args.kernel.time.is_some() {
        anyhow::bail!(
            "--prebuilt and --time are for `--in uml`; the emulated kernel is always the \
             distribution's, and its time always counts instructions"
        );
    }
    let kernel = qemu::Kernel::find(args.kernel.kernel.as_deref())?;
    let mut machine = emulated_like_this(args.command)?;
    machine.memory_mib = args.kernel.memory.unwrap_or(machine.memory_mib);
    machine.writable = writable(&args.kernel.writable)?;
    machine.nics = args.nics.unwrap_or(0);
    if let Some(mut programs) = args.sealed {
        programs.extend(machine.command.first().map(PathBuf::from));
        machine.directory = "/".into();
        machine.sealed = Some(programs);
    }
    machine.connection = to_our_descriptors(input(args.stdin, ending)?)?;
    Ok(machine.run_while(&kernel, &mut || !ending.is_asked())?)
}

/// Runs a machine to its end.
///
/// **Errors**: as [`Machine::run`]; [`LabError::EndRequested`].
pub fn run_until_asked(
    machine: Machine,
    kernel: &Kernel,
    ending: &Ending,
) -> anyhow::Result<Finished> {
    Ok(machine.start(kernel)?.wait_while(&mut || !ending.is_asked())?)
}

/// Standard input to its end, or nothing.
fn input(wanted: bool, ending: &Ending) -> anyhow::Result<Vec<u8>> {
    let mut input = Vec::new();
    if wanted {
        let stdin = io::stdin().as_fd().try_clone_to_owned().map(File::from);
        let stdin = stdin.context("cannot copy standard input")?;
        ending.reading(stdin).read_to_end(&mut input).context("cannot read standard input")?;
        if ending.is_asked() {
            return Err(LabError::EndRequested.into());
        }
    }
    Ok(input)
}

/// Words of the machine's command come out as those of this process.
pub fn to_our_descriptors(input: Vec<u8>) -> anyhow::Result<Connection> {
    let copy = |fd: io::Result<OwnedFd>| fd.context("cannot copy a standard descriptor");
    Ok(Connection::Descriptors {
        output: copy(io::stdout().as_fd().try_clone_to_owned())?,
        errors: copy(io::stderr().as_fd().try_clone_to_owned())?,
        input,
    })
}

fn shell(args: Shell) -> anyhow::Result<ExitCode> {
    let stdin = io::stdin();
    if !stdin.is_terminal() {
        anyhow::bail!("a shell needs a terminal; `timewire lab exec -- COMMAND` needs none");
    }
    let kernel = kernel_for(args.kernel.kernel.as_deref(), args.kernel.prebuilt)?;
    let shell = std::env::var("SHELL").unwrap_or_else(|_| "/bin/sh".to_owned());
    // Time that runs away while a person thinks helps nobody.
    let time = time_for(Some(args.kernel.time.unwrap_or(LabTime::Wall)), &kernel);
    let mut machine = machine_like_this(vec![shell], time)?;
    machine.memory_mib = args.kernel.memory.unwrap_or(machine.memory_mib);
    machine.writable = writable(&args.kernel.writable)?;
    let terminal = stdin.as_fd().try_clone_to_owned().context("cannot copy the terminal")?;
    machine.connection = Connection::Terminal(terminal);
    let about = kernel.about();
    say!(
        "Linux {} of the laboratory; the host's files are read only, changes of /tmp are lost; \
         `exit` ends it",
        about.release
    );
    let ending = Ending::new()?;
    let settings = TerminalSettings::make_raw(stdin.as_fd()).context("cannot use the terminal")?;
    let finished = run_until_asked(machine, &kernel, &ending);
    drop(settings);
    Ok(ExitCode::from(finished?.outcome.code))
}

/// Whole paths of existing directories.
fn writable(paths: &[PathBuf]) -> Result<Vec<PathBuf>, LabError> {
    let whole = |path: &PathBuf| match std::fs::canonicalize(path) {
        Ok(whole) if whole.is_dir() => Ok(whole),
        Ok(_) => Err(LabError::Spec { why: format!("{} is no directory", path.display()) }),
        Err(error) => Err(FileError::unusable("find", path)(error)),
    };
    paths.iter().map(whole).collect()
}
