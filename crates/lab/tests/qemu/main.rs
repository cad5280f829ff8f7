// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Emulated machines with a distribution's kernel: what they are, that timing in them is exact and
//! repeatable, and what only they have: NICs with clocks and hardware timestamps.
//!
//! Each boot takes some ten seconds, and the packages are fetched at the first one, so they run
//! only when `TIMEWIRE_SLOW=1` asks for it.
//!
//! Not here: the same machines from the command line, and XDP in them (`crates/cli/tests/qemu.rs`).
#![expect(clippy::unwrap_used, reason = "a test fails by panicking; it has a main of its own")]

mod inside;
mod stations;

use std::env;
use std::fs;
use std::io::{self, Read};
use std::panic;
use std::process::ExitCode;
use std::time::Duration;

use timewire_base::Failure;
use timewire_lab::LabError;
use timewire_lab::qemu::{Kernel, Machine};
use timewire_lab::uml::{Connection, Finished};

const TESTS: [(&str, fn()); 8] = [
    ("t4_qemu_a_machine_is_the_distributions_kernel_with_what_is_needed", states),
    ("t4_qemu_a_command_has_input_output_and_an_exit_code", command),
    ("t4_qemu_much_that_is_said_is_heard_whole", much_is_said),
    ("t4_qemu_what_goes_wrong_is_named", wrong),
    ("t4_qemu_frames_keep_gates_and_launch_times_and_do_so_again", gates_and_launch_times),
    ("t4_qemu_an_older_kernel_keeps_them_too", older_kernel),
    ("t4_qemu_nics_have_clocks_and_hardware_timestamps", stations::nics),
    ("t4_qemu_two_stations_synchronise_by_hardware_timestamps", stations::synchronise),
];

fn main() -> ExitCode {
    timewire_lab::enter_guest();
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let [verb, role, rest @ ..] = arguments.as_slice()
        && verb == "role"
    {
        inside::run(role, rest);
        return ExitCode::SUCCESS;
    }
    run_tests(&arguments)
}

/// As the standard harness does, one test after the other.
fn run_tests(arguments: &[String]) -> ExitCode {
    let filters: Vec<_> = arguments.iter().filter(|a| !a.starts_with('-')).collect();
    let chosen = |name: &str| filters.is_empty() || filters.iter().any(|f| name.contains(*f));
    let tests = TESTS.iter().filter(|(name, _)| chosen(name));
    if arguments.iter().any(|argument| argument == "--list") {
        tests.for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let (mut passed, mut failed, mut ignored) = (0, 0, 0);
    let asked = env::var("TIMEWIRE_SLOW").is_ok_and(|value| value == "1");
    for (name, test) in tests {
        if !asked {
            println!("test {name} ... ignored, slow: TIMEWIRE_SLOW=1 runs it");
            ignored += 1;
            continue;
        }
        let outcome = panic::catch_unwind(test);
        println!("test {name} ... {}", if outcome.is_ok() { "ok" } else { "FAILED" });
        *(if outcome.is_ok() { &mut passed } else { &mut failed }) += 1;
    }
    let result = if failed == 0 { "ok" } else { "FAILED" };
    println!("test result: {result}. {passed} passed; {failed} failed; {ignored} ignored");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The newest kernel, or the newest of a series.
pub fn kernel(series: Option<&str>) -> Kernel {
    Kernel::prepare(series, &mut |step| eprintln!("{step}")).unwrap()
}

/// A machine that starts this program, or another, by its words.
pub fn machine(words: &[&str]) -> Machine {
    let init = env::current_exe().unwrap();
    let mut machine = Machine::new(&init, words);
    machine.limit = Some(LIMIT);
    machine
}

/// Runs this program in a role inside a sealed machine that has these programs too.
pub fn role(kernel: &Kernel, role: &str, programs: &[&str]) -> String {
    let this = env::current_exe().unwrap();
    let mut machine = machine(&[this.to_str().unwrap(), "role", role]);
    machine.sealed = Some(programs.iter().map(Into::into).collect());
    said(&machine.run(kernel).unwrap())
}

/// What a command said that ended well.
pub fn said(finished: &Finished) -> String {
    let errors = String::from_utf8_lossy(&finished.errors);
    let output = String::from_utf8_lossy(&finished.output).into_owned();
    assert_eq!(finished.outcome.code, 0, "{output}{errors}");
    eprintln!("{:.1} s on the host", finished.host_time.as_secs_f64());
    output
}

fn states() {
    let kernel = kernel(None);
    let about = kernel.about();
    eprintln!(
        "Linux {} of {} {}, configuration {}, emulator {}",
        about.release,
        about.package,
        about.package_version,
        about.configuration,
        about.emulator_version
    );
    let configuration = fs::read_to_string(kernel.config()).unwrap();
    for symbol in [
        "CONFIG_DEBUG_INFO_BTF=y",
        "CONFIG_KPROBES=y",
        "CONFIG_XDP_SOCKETS=y",
        "CONFIG_BPF_JIT=y",
        "CONFIG_IGB=m",
        "CONFIG_NET_SCH_TAPRIO=m",
        "CONFIG_NET_SCH_ETF=m",
        "CONFIG_NET_SCH_CBS=m",
        "CONFIG_NET_SCH_MQPRIO=m",
    ] {
        assert!(configuration.lines().any(|line| line == symbol), "{symbol}");
    }
    let text = said(&machine(&["sh", "-c", "uname -r; cat /proc/modules"]).run(&kernel).unwrap());
    assert_eq!(text.lines().next(), Some(about.release.as_str()));
    for module in ["sch_taprio", "sch_etf", "sch_cbs", "sch_mqprio", "veth", "igb"] {
        assert!(text.lines().any(|line| line.starts_with(&format!("{module} "))), "{module}");
    }
}

fn command() {
    let kernel = kernel(None);
    let scratch = env::temp_dir().join(format!("timewire-qemu-test-{}", std::process::id()));
    fs::create_dir(&scratch).unwrap();
    let file = scratch.join("from-inside");
    let script = format!(
        "echo out; echo err >&2; pwd; echo $WORD; head -c 300000 /dev/zero | wc -c; \
         echo new > {}; touch /etc/forbidden; exit 7",
        file.display()
    );
    let mut machine = machine(&["sh", "-c", &script]);
    machine.directory = "/usr/share".into();
    machine.environment.push(("WORD".to_owned(), "a b".to_owned()));
    machine.writable.push(scratch.clone());
    let finished = machine.run(&kernel).unwrap();
    assert_eq!(finished.outcome.code, 7);
    assert_eq!(String::from_utf8_lossy(&finished.output), "out\n/usr/share\na b\n300000\n");
    let errors = String::from_utf8_lossy(&finished.errors);
    assert!(errors.contains("err\n") && errors.contains("Read-only file system"), "{errors}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "new\n");
    fs::remove_dir_all(scratch).unwrap();
}

/// More than a pipe holds, said at once and read slowly.
fn much_is_said() {
    for version in [None, Some("6.1")] {
        let kernel = kernel(version);
        let (mut reader, output) = io::pipe().unwrap();
        let (_errors_reader, errors) = io::pipe().unwrap();
        let mut machine = machine(&["sh", "-c", "seq 1 60000 >/tmp/much; cat /tmp/much"]);
        machine.connection = Connection::Descriptors {
            input: Vec::new(),
            output: output.into(),
            errors: errors.into(),
        };
        let slow = std::thread::spawn(move || {
            let (mut all, mut buffer) = (Vec::new(), [0; 10_000]);
            while let count @ 1.. = reader.read(&mut buffer).unwrap() {
                all.extend_from_slice(&buffer[..count]);
                std::thread::sleep(Duration::from_millis(20));
            }
            all
        });
        assert_eq!(machine.run(&kernel).unwrap().outcome.code, 0);
        let lines: String = (1..=60_000).map(|number| format!("{number}\n")).collect();
        assert!(slow.join().unwrap() == lines.as_bytes(), "something was lost");
    }
}

fn wrong() {
    let kernel = kernel(None);
    let error = machine(&["/no/such/program"]).run(&kernel).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("cannot run `/no/such/program`"), "{text}");
    let mut slow = machine(&["sleep", "1000000"]);
    slow.limit = Some(Duration::from_millis(500));
    let error = slow.run(&kernel).unwrap_err();
    assert!(error.to_string().contains("did not end within its time"), "{error}");
    let mut many = machine(&["true"]);
    many.nics = 9;
    let error = many.run(&kernel).unwrap_err();
    assert!(error.to_string().contains("9 NICs are more than 8"), "{error}");
    let error = Kernel::find(Some("2.4")).unwrap_err();
    assert!(matches!(error, LabError::NoKernel { .. }), "{error}");
    assert!(error.hint().unwrap().contains("timewire lab qemu --kernel 2.4"), "{error}");
}

/// So many are made at most until two are the same.
const MAX_RUNS: usize = 5;

fn gates_and_launch_times() {
    let kernel = kernel(None);
    let run = || role(&kernel, "gates", &["ip", "tc"]);
    let mut runs = vec![run()];
    inside::judge(&runs[0]);
    // Where the host has more to do than processors, some are off by 200 ns: where threads of
    // the emulator are interrupted is not of the machine's time. Hardly two of those in one way.
    while runs.len() < MAX_RUNS {
        let next = run();
        if runs.contains(&next) {
            return;
        }
        let differs = |(one, two): &(&str, &str)| one != two;
        let first = runs[0].lines().zip(next.lines()).find(differs);
        eprintln!("run {} is not as the first one from {first:?} on", runs.len() + 1);
        runs.push(next);
    }
    panic!("no two of {MAX_RUNS} runs are the same");
}

fn older_kernel() {
    inside::judge(&role(&kernel(Some("6.1")), "gates", &["ip", "tc"]));
}

const LIMIT: Duration = Duration::from_secs(240);
