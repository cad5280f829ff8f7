// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel's own definitions of `mqprio`, `taprio`, `etf` and `cbs` tests (tc-testing), read by
//! the model of these disciplines, and run in a laboratory kernel with the commands that the model
//! prints in place of the original ones.
//!
//! The definitions are those beside each kernel in the cache, and those in the directories that
//! `TIMEWIRE_TC_TESTING` lists (each a `tools/testing/selftests/tc-testing`), which are read only.
//!
//! Not here: the disciplines themselves (`timewire-tsn`).
#![expect(clippy::expect_used, reason = "a test fails by panicking; it has a main of its own")]

mod definition;
mod guest;
mod rules;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::env;
use std::panic;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use definition::{Definition, Reading, reading};
use guest::{Came, Ran};
use rules::Ruled;
use timewire_lab::uml::{Kernel, Machine, Origin};
use timewire_tsn::qdisc::{QdiscCommand, QdiscError, Refuser};

type Test = (&'static str, fn());

const TESTS: [Test; 3] = [
    ("t4_the_model_agrees_with_the_kernels_definitions", read_definitions),
    ("t4_the_kernel_takes_what_the_model_prints", run_definitions),
    ("t4_the_rules_are_those_of_tc_and_the_kernel", run_rules),
];

fn main() -> ExitCode {
    timewire_lab::enter_guest();
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let [verb, directory] = arguments.as_slice()
        && verb == GUEST_VERB
    {
        match directory.as_str() {
            RULES_VERB => rules::main(),
            directory => guest::main(Path::new(directory)),
        }
        return ExitCode::SUCCESS;
    }
    let filters: Vec<_> = arguments.iter().filter(|a| !a.starts_with('-')).collect();
    let chosen = |name: &str| filters.is_empty() || filters.iter().any(|f| name.contains(*f));
    let tests = TESTS.iter().filter(|(name, _)| chosen(name));
    if arguments.iter().any(|argument| argument == "--list") {
        tests.for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let (mut passed, mut failed, mut skipped) = (0, 0, String::new());
    for (name, test) in tests {
        let outcome = panic::catch_unwind(test);
        println!("test {name} ... {}", if outcome.is_ok() { "ok" } else { "FAILED" });
        *if outcome.is_ok() { &mut passed } else { &mut failed } += 1_u32;
        if let Some(reason) = SKIPPED.take() {
            skipped += &format!("---- {name} stdout ----\nSKIP: {reason}\n\n");
        }
    }
    println!("\nsuccesses:\n\n{skipped}");
    // The closing line of the standard harness, by which tests are counted.
    let word = if failed == 0 { "ok" } else { "FAILED" };
    println!("test result: {word}. {passed} passed; {failed} failed; 0 ignored; 0 measured");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

thread_local! {
    /// Why the test that runs now cannot.
    static SKIPPED: Cell<Option<String>> = const { Cell::new(None) };
}

fn skip(reason: &str) {
    SKIPPED.set(Some(reason.to_owned()));
}

const GUEST_VERB: &str = "guest";
const RULES_VERB: &str = "rules";
/// On the host; the machine's own time is virtual.
const LIMIT: Duration = Duration::from_secs(300);

/// Kernels that can run the definitions.
fn kernels() -> Vec<Kernel> {
    let kernels = match Kernel::cached() {
        Ok(kernels) => kernels,
        Err(error) => {
            skip(&error.to_string());
            return Vec::new();
        }
    };
    let fit = |kernel: &Kernel| kernel.about().origin == Origin::Source;
    kernels.into_iter().filter(fit).collect()
}

/// Where definitions are, and whose they are.
fn places() -> Vec<(String, PathBuf)> {
    let of_kernel = |kernel: Kernel| {
        let tests = kernel.selftests()?.join("tc-testing");
        Some((format!("Linux {}", kernel.about().release), tests))
    };
    let mut places: Vec<_> = kernels().into_iter().filter_map(of_kernel).collect();
    let more = env::var_os("TIMEWIRE_TC_TESTING").unwrap_or_default();
    let more = env::split_paths(&more).filter(|path| !path.as_os_str().is_empty());
    places.extend(more.map(|path| (path.display().to_string(), path)));
    places
}

const NONE: &str = "no kernel with its tests is in the cache; `timewire lab uml` builds one";

/// Each command that the kernel takes is read and printed; each one that is refused is refused for
/// a reason, or passed on.
fn read_definitions() {
    let places = places();
    if places.is_empty() {
        return skip(NONE);
    }
    for (whose, place) in places {
        let definitions = definition::read_all(&place);
        println!("\n{whose}: {} definitions, read\n", definitions.len());
        let mut differs = 0;
        for definition in &definitions {
            let verdict = definition.verdict();
            differs += u32::from(verdict.is_err());
            row(definition, &verdict.unwrap_or_else(|why| format!("DIFFERS: {why}")));
            for what in &definition.unknown {
                println!("            not understood: {what}");
            }
        }
        assert!(definitions.len() >= 20, "{whose}: where are the definitions?");
        assert_eq!(differs, 0, "{whose}: the model differs from the definitions");
    }
}

/// Each definition comes to the same end with the model's commands as with its own, and that end
/// is the one that it describes.
fn run_definitions() {
    let kernels = kernels();
    if kernels.is_empty() {
        return skip(NONE);
    }
    for kernel in kernels {
        let whose = format!("Linux {}", kernel.about().release);
        let Some(tests) = kernel.selftests().map(|tests| tests.join("tc-testing")) else {
            skip(&format!("{whose} was kept without its tests"));
            continue;
        };
        let definitions = definition::read_all(&tests);
        let (ran, took) = run_in(&kernel, &tests);
        println!("\n{whose}: {} definitions, run in {} ms\n", definitions.len(), took.as_millis());
        let mut wrong = 0;
        for definition in &definitions {
            let Some(ran) = ran.get(&definition.id) else {
                wrong += 1;
                row(definition, "DIFFERS: it did not run");
                continue;
            };
            let judged = judge(definition, ran);
            wrong += u32::from(judged.is_err());
            row(definition, &judged.unwrap_or_else(|why| format!("DIFFERS: {why}")));
        }
        assert_eq!(wrong, 0, "{whose}: definitions came to another end");
    }
}

fn run_in(kernel: &Kernel, tests: &Path) -> (BTreeMap<String, Ran>, Duration) {
    let (said, took) = in_machine(kernel, &tests.display().to_string());
    let read = |line: &str| serde_json::from_str::<Ran>(line).expect("a line of ours");
    (said.lines().map(read).map(|ran| (ran.id.clone(), ran)).collect(), took)
}

/// What this program says in a machine.
fn in_machine(kernel: &Kernel, argument: &str) -> (String, Duration) {
    let program = env::current_exe().expect("the program's own file");
    let words = [&program.display().to_string(), GUEST_VERB, argument];
    let mut machine = Machine::new(&program, &words);
    machine.limit = Some(LIMIT);
    let finished = machine.run(kernel).expect("a machine that ends");
    let errors = String::from_utf8_lossy(&finished.errors);
    assert_eq!(finished.outcome.code, 0, "{errors}");
    (String::from_utf8_lossy(&finished.output).into_owned(), finished.host_time)
}

/// Whoever the model says refuses a command does refuse it; and the kernel has what it takes.
fn run_rules() {
    let kernels = kernels();
    if kernels.is_empty() {
        return skip(NONE);
    }
    for kernel in kernels {
        let (said, took) = in_machine(&kernel, RULES_VERB);
        let release = &kernel.about().release;
        let ruled =
            said.lines().map(|line| serde_json::from_str::<Ruled>(line).expect("a line of ours"));
        let ruled: Vec<_> = ruled.collect();
        println!("\nLinux {release}: {} rules, in {} ms\n", ruled.len(), took.as_millis());
        assert_eq!(ruled.len(), rules::all().len());
        let mut wrong = 0;
        for one in ruled {
            let model = rules::line(&one.words).parse::<QdiscCommand>().err();
            let expected = model.as_ref().map(QdiscError::refuser);
            let found = rules::refused_by(one.code);
            // What the model alone refuses, the others take.
            let agree = expected.filter(|who| *who != Refuser::Timewire) == found;
            let fits = agree && one.misread.is_none();
            let known = rules::is_known_to(&one.words, release);
            wrong += u32::from(!fits && known);
            let why = model.map_or_else(String::new, |error| error.to_string());
            let end = match (fits, known) {
                (true, _) => "ok     ",
                (false, true) => "DIFFERS",
                (false, false) => "older  ",
            };
            println!("{end} {}", one.words);
            println!("        {}: {why}", rules::name(expected));
            println!("        tc ends with {}: {}", one.code, one.said);
            if let Some(why) = one.misread {
                println!("        misread: {why}");
            }
        }
        assert_eq!(wrong, 0, "Linux {release}: rules differ");
    }
}

/// What came of a definition, in words; an error when it is not what should have come.
fn judge(definition: &Definition, ran: &Ran) -> Result<String, String> {
    let refused = definition.exit != 0;
    if ran.rendered.fits(definition) {
        return Ok(if refused { "ok: the kernel refuses".to_owned() } else { "ok".to_owned() });
    }
    let original = ran.original.as_ref().ok_or("the original command was not run")?;
    let apart = || format!("original {original:?}, ours {:?}", ran.rendered);
    match &ran.rendered {
        Came::Skipped(why) => {
            eprintln!("SKIP: definition {}: {why}", definition.id);
            Ok(format!("skipped: {why}"))
        }
        Came::Misread(why) => Err(format!("what the kernel has is misread: {why}")),
        // The model refused it, and so did the kernel; both left everything as it was.
        Came::Ended { code: None, matches } if refused && original.fits(definition) => {
            match reading(&definition.command) {
                Reading::Refused(error) if *matches == definition.count => {
                    Ok(format!("ok: refused here and by the kernel: {error}"))
                }
                _ => Err(apart()),
            }
        }
        ours if ours == original => Ok(format!("as the original command, {original:?}")),
        _ => Err(apart()),
    }
}

fn row(definition: &Definition, end: &str) {
    println!("{:6} {:4} {:56} {end}", definition.kind.as_str(), definition.id, definition.name);
}
