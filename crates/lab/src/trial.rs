// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A test harness whose tests each run in a laboratory machine of their own, in virtual time. Its
//! test programs have a main function that is [`main`], are the first process of their machines
//! too, and speak like the standard harness.
//!
//! Environment: `TIMEWIRE_LAB_KERNEL`, the kernel series to use, such as `6.1`;
//! `TIMEWIRE_LAB_REPEAT`, how often to run every test, which must write the same each time;
//! `TIMEWIRE_LAB_LOAD`, when set, has every processor of the host busy meanwhile.

use std::collections::BTreeMap;
use std::env;
use std::panic;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use timewire_base::Failure;
use timewire_sys::{Randomness, machine};

use crate::LabError;
use crate::uml::{Kernel, Machine};

/// A test. It fails by panicking, and says that it cannot run by a line `SKIP: reason` on standard
/// error.
#[derive(Clone, Copy, Debug)]
pub struct Trial {
    name: &'static str,
    run: fn(),
    since: Option<(u32, u32)>,
    prepare: Option<Preparation>,
    repeats: usize,
    loaded: bool,
    memory_mib: Option<u32>,
    limit: Duration,
}

/// What is done on the host first: variables for the test's environment, or why it cannot run.
pub type Preparation = fn(&Kernel) -> Result<Vec<(String, String)>, String>;

impl Trial {
    /// A test of this name.
    pub const fn new(name: &'static str, run: fn()) -> Trial {
        Trial {
            name,
            run,
            since: None,
            prepare: None,
            repeats: 1,
            loaded: false,
            memory_mib: None,
            limit: LIMIT,
        }
    }

    /// It needs a kernel of this series or a newer one.
    pub const fn since(mut self, major: u32, minor: u32) -> Trial {
        self.since = Some((major, minor));
        self
    }

    /// It needs something that is made on the host.
    pub const fn prepared(mut self, preparation: Preparation) -> Trial {
        self.prepare = Some(preparation);
        self
    }

    /// It is run at least so often, and must write the same each time.
    pub const fn repeated(mut self, times: usize) -> Trial {
        self.repeats = times;
        self
    }

    /// Its machine has so much memory, in MiB.
    pub const fn memory(mut self, mib: u32) -> Trial {
        self.memory_mib = Some(mib);
        self
    }

    /// It may take so long on the host.
    pub const fn limit(mut self, limit: Duration) -> Trial {
        self.limit = limit;
        self
    }

    /// It runs beside as many busy loops on the host as it has processors.
    pub const fn loaded(mut self) -> Trial {
        self.loaded = true;
        self
    }
}

/// Runs this process as what it was started for: a machine's first process, a test in a machine,
/// or all the tests.
pub fn main(trials: &[Trial]) -> ExitCode {
    crate::enter_guest();
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.as_slice() {
        [verb, name] if verb == TRIAL_VERB => in_machine(trials, name),
        _ => on_host(trials, &arguments),
    }
}

/// The kernel that tests run in, in words; inside a machine.
pub fn kernel_name() -> String {
    env::var(KERNEL).unwrap_or_else(|_| "an unknown kernel".to_owned())
}

fn in_machine(trials: &[Trial], name: &str) -> ExitCode {
    let Some(trial) = trials.iter().find(|trial| trial.name == name) else {
        eprintln!("no test is called {name}");
        return ExitCode::FAILURE;
    };
    // So that UTC and TAI cannot be mixed up unnoticed.
    if let Err(error) = machine::set_tai_offset(TAI_AHEAD_OF_UTC) {
        eprintln!("cannot set the TAI offset: {error}");
        return ExitCode::FAILURE;
    }
    match panic::catch_unwind(trial.run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// What was asked for on the command line; the standard harness' words, as far as they matter.
#[derive(Debug, Default)]
struct Wanted {
    filters: Vec<String>,
    skipped: Vec<String>,
    exact: bool,
    list: bool,
    show_output: bool,
    threads: Option<usize>,
}

impl Wanted {
    fn parse(arguments: &[String]) -> Wanted {
        let mut wanted = Wanted::default();
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            match argument.as_str() {
                "--list" => wanted.list = true,
                "--exact" => wanted.exact = true,
                "--show-output" | "--nocapture" => wanted.show_output = true,
                "--skip" => wanted.skipped.extend(rest.next().cloned()),
                "--test-threads" => wanted.threads = rest.next().and_then(|n| n.parse().ok()),
                word if word.starts_with('-') => {
                    let threads = word.strip_prefix("--test-threads=");
                    wanted.threads = threads.and_then(|n| n.parse().ok()).or(wanted.threads);
                }
                word => wanted.filters.push(word.to_owned()),
            }
        }
        wanted
    }

    fn chooses(&self, name: &str) -> bool {
        let fits =
            |word: &String| if self.exact { name == word } else { name.contains(word.as_str()) };
        (self.filters.is_empty() || self.filters.iter().any(fits)) && !self.skipped.iter().any(fits)
    }
}

/// How a test went.
#[derive(Clone, Debug, Default)]
struct Verdict {
    passed: bool,
    /// What it wrote to standard output: the same each time.
    output: String,
    /// What else is to be said.
    talk: String,
    /// How long all its runs took.
    took: Duration,
}

fn on_host(trials: &[Trial], arguments: &[String]) -> ExitCode {
    let wanted = Wanted::parse(arguments);
    let chosen: Vec<&Trial> = trials.iter().filter(|trial| wanted.chooses(trial.name)).collect();
    if wanted.list {
        chosen.iter().for_each(|trial| println!("{}: test", trial.name));
        return ExitCode::SUCCESS;
    }
    let repeats = env::var("TIMEWIRE_LAB_REPEAT").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let series = env::var("TIMEWIRE_LAB_KERNEL").ok();
    let kernel = Kernel::find(series.as_deref());
    let started = Instant::now();
    println!("\nrunning {} tests", chosen.len());
    if let Ok(kernel) = &kernel {
        println!("in {}", described(kernel));
    }
    let verdicts = run_all(&chosen, &kernel, repeats, wanted.threads);
    let failed = verdicts.values().filter(|verdict| !verdict.passed).count();
    let told = |passed| verdicts.iter().filter(move |(_, verdict)| verdict.passed == passed);
    if wanted.show_output {
        section("successes", told(true));
    }
    if failed > 0 {
        section("failures", told(false));
    }
    slowest(&verdicts);
    println!(
        "\ntest result: {}. {} passed; {failed} failed; 0 ignored; 0 measured; {} filtered out; \
         finished in {:.2}s\n",
        if failed == 0 { "ok" } else { "FAILED" },
        verdicts.len() - failed,
        trials.len() - chosen.len(),
        started.elapsed().as_secs_f64()
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::from(101) }
}

fn section<'a>(
    title: &str,
    verdicts: impl Iterator<Item = (&'a &'static str, &'a Verdict)> + Clone,
) {
    println!("\n{title}:\n");
    for (name, Verdict { output, talk, .. }) in verdicts.clone() {
        if !(talk.is_empty() && output.is_empty()) {
            println!("---- {name} stdout ----\n{talk}{output}");
        }
    }
    println!("\n{title}:");
    verdicts.for_each(|(name, _)| println!("    {name}"));
}

fn slowest(verdicts: &BTreeMap<&'static str, Verdict>) {
    let mut all: Vec<_> = verdicts.iter().map(|(name, verdict)| (verdict.took, name)).collect();
    all.sort_unstable();
    let slow = all.iter().rev().take(5).map(|(t, name)| format!("{name} {:.1}s", t.as_secs_f64()));
    println!("\nslowest: {}", slow.collect::<Vec<_>>().join(", "));
}

fn described(kernel: &Kernel) -> String {
    let about = kernel.about();
    format!("kernel {}, configuration {}", about.release, about.configuration)
}

/// Runs every test so often, several at a time; says of each how it went as soon as that is known.
fn run_all(
    trials: &[&Trial],
    kernel: &Result<Kernel, LabError>,
    repeats: usize,
    threads: Option<usize>,
) -> BTreeMap<&'static str, Verdict> {
    let next = Mutex::new(trials.iter());
    let verdicts = Mutex::new(BTreeMap::new());
    let work = || {
        // The guard must go before the test starts, so not in the condition of a loop.
        let take = || next.lock().expect("invariant: no test panics here").next();
        while let Some(trial) = take() {
            let started = Instant::now();
            let mut verdict = run_repeatedly(trial, kernel, repeats);
            verdict.took = started.elapsed();
            let word = if verdict.passed { "ok" } else { "FAILED" };
            println!("test {} ... {word}", trial.name);
            verdicts.lock().expect("invariant: no test panics here").insert(trial.name, verdict);
        }
    };
    thread::scope(|scope| {
        for _ in 0..threads.unwrap_or_else(cpus).max(1) {
            scope.spawn(work);
        }
    });
    verdicts.into_inner().expect("invariant: no test panics here")
}

fn run_repeatedly(trial: &Trial, kernel: &Result<Kernel, LabError>, repeats: usize) -> Verdict {
    let loaded = trial.loaded || env::var_os("TIMEWIRE_LAB_LOAD").is_some();
    let done = AtomicBool::new(!loaded);
    thread::scope(|scope| {
        for _ in 0..cpus() {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let first = run(trial, kernel);
        let worse = run_again(trial, kernel, repeats.max(trial.repeats), &first);
        done.store(true, Ordering::Relaxed);
        worse.unwrap_or(first)
    })
}

/// What is wrong with a repetition.
fn run_again(
    trial: &Trial,
    kernel: &Result<Kernel, LabError>,
    repeats: usize,
    first: &Verdict,
) -> Option<Verdict> {
    for number in 1..repeats {
        let again = run(trial, kernel);
        if !first.passed || first.talk.starts_with("SKIP") {
            break;
        }
        if !again.passed {
            return Some(again);
        }
        if again.output != first.output {
            let talk = format!("run {number} differs from run 0, which wrote\n{}", first.output);
            return Some(Verdict { passed: false, talk, ..again });
        }
    }
    None
}

fn cpus() -> usize {
    thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

fn skip(reason: &str) -> Verdict {
    Verdict { passed: true, talk: format!("SKIP: {reason}\n"), ..Verdict::default() }
}

fn run(trial: &Trial, kernel: &Result<Kernel, LabError>) -> Verdict {
    let kernel = match kernel {
        Ok(kernel) => kernel,
        Err(error) => {
            let hint = error.hint().map(|hint| format!("; {hint}")).unwrap_or_default();
            return skip(&format!("{error}{hint}"));
        }
    };
    if let Some((major, minor)) = trial.since
        && series_of(&kernel.about().release) < (major, minor)
    {
        return skip(&format!("it needs a kernel {major}.{minor} or newer"));
    }
    let mut environment = vec![(KERNEL.to_owned(), described(kernel))];
    match trial.prepare.map(|prepare| prepare(kernel)) {
        Some(Err(why)) => return skip(&why),
        Some(Ok(more)) => environment.extend(more),
        None => {}
    }
    in_new_machine(trial, kernel, environment)
        .unwrap_or_else(|error| Verdict { talk: format!("{error}\n"), ..Verdict::default() })
}

fn series_of(release: &str) -> (u32, u32) {
    let mut numbers = release.split('.').map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

fn in_new_machine(
    trial: &Trial,
    kernel: &Kernel,
    environment: Vec<(String, String)>,
) -> Result<Verdict, LabError> {
    let this =
        env::current_exe().map_err(LabError::file("find", &PathBuf::from("/proc/self/exe")))?;
    let program = this.display().to_string();
    let mut machine = Machine::new(&this, &[&program, TRIAL_VERB, trial.name]);
    machine.randomness = Randomness::None;
    machine.memory_mib = trial.memory_mib.unwrap_or(machine.memory_mib);
    machine.environment.extend(environment);
    machine
        .environment
        .extend(env::var("RUST_BACKTRACE").map(|it| ("RUST_BACKTRACE".to_owned(), it)));
    let mut running = machine.start(kernel)?;
    let started = Instant::now();
    while !running.has_ended()? {
        if started.elapsed() > trial.limit {
            let limit = trial.limit;
            let why = format!("it did not end within {limit:?} on the host and was killed");
            return Err(LabError::Guest { why, log: running.kernel_log() });
        }
        thread::sleep(POLL_INTERVAL);
    }
    let log = running.kernel_log();
    let finished = running.wait()?;
    let mut talk = String::from_utf8_lossy(&finished.errors).into_owned();
    let warned = ["WARNING:", "BUG:", "Call Trace:"].iter().any(|word| log.contains(word));
    if warned {
        talk.push_str(&format!("its kernel complains:\n{log}\n"));
    }
    let output = String::from_utf8_lossy(&finished.output).into_owned();
    let passed = finished.outcome.code == 0 && !warned;
    Ok(Verdict { passed, output, talk, took: Duration::ZERO })
}

const TRIAL_VERB: &str = "__trial";
const KERNEL: &str = "TIMEWIRE_LAB_KERNEL_NAME";
/// How long a test may take on the host, unless it says otherwise.
const LIMIT: Duration = Duration::from_secs(300);
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// **Units**: seconds.
const TAI_AHEAD_OF_UTC: i32 = 37;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_the_command_line_chooses_tests() {
        let wanted = |words: &[&str]| {
            Wanted::parse(&words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>())
        };
        assert!(wanted(&[]).chooses("t4_a"));
        assert!(wanted(&["_a"]).chooses("t4_a") && !wanted(&["_b"]).chooses("t4_a"));
        assert!(!wanted(&["--exact", "t4"]).chooses("t4_a"));
        assert!(!wanted(&["--skip", "t4_a"]).chooses("t4_a"));
        assert_eq!(wanted(&["--test-threads=3"]).threads, Some(3));
        assert_eq!(wanted(&["--test-threads", "2", "--show-output"]).threads, Some(2));
    }

    #[test]
    fn t0_series_are_ordered() {
        assert!(series_of("6.12.117") > series_of("6.2.9") && series_of("6.1.176") < (6, 2));
    }
}
