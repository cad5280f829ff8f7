// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Scheduling groups in a laboratory kernel: windows of processes to the nanosecond of virtual
//! time, and threads of the kernel, which on the host are somebody else's.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking; it has a main of its own")]

use std::env;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Arc;

use timewire_base::{Failure, Instant, Phase, Span, Tai};
use timewire_host::groups::{Kept, Model, RowStatus, facts};
use timewire_host::journal::Journal;
use timewire_host::watchdog::WATCHDOG_VERB;
use timewire_host::watchdog_main;
use timewire_lab::cache::fingerprint;
use timewire_lab::trial::{self, Trial};
use timewire_model::scenario::host::HostSettings;
use timewire_sys::namespace::{self, Process};
use timewire_sys::{clock, scheduler};
use timewire_tsn::file::ParseFile;
use timewire_tsn::groups::GroupPlan;

const TRIALS: &[Trial] = &[
    Trial::new("t4_members_run_only_inside_their_windows", windows).repeated(2),
    Trial::new("t4_windows_of_nested_groups_are_where_both_are_open", nested_windows),
    Trial::new("t4_windows_by_signals_are_kept_too", windows_by_signals),
    Trial::new("t4_new_windows_are_in_force_at_once", switched_windows),
    Trial::new("t4_softirq_threads_are_members", softirq),
    Trial::new("t4_polling_threads_are_members", napi),
    Trial::new("t4_threads_of_interfaces_with_like_names_are_told_apart", napi_of_alike),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [verb, journal] if *verb == WATCHDOG_VERB => match watchdog_main(Path::new(journal)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("watchdog: {error}");
                ExitCode::from(3)
            }
        },
        ["looker", file, until] => {
            look_at_the_clock(file, Instant::from_ns(until.parse().unwrap()));
            ExitCode::SUCCESS
        }
        _ => trial::main(TRIALS),
    }
}

/// A look at the clock takes 256 ns here and nothing else takes any time, so looks that follow each
/// other belong to one stay on the processor. Writes first and last look of each.
fn look_at_the_clock(file: &str, until: Instant<Tai>) {
    let mut stays: Vec<(i64, i64)> = Vec::new();
    loop {
        let now = clock::now::<Tai>();
        if now >= until {
            break;
        }
        let now = now.as_ns();
        match stays.last_mut() {
            Some((_, last)) if now - *last <= LONGEST_LOOK => *last = now,
            _ => stays.push((now, now)),
        }
    }
    let lines = stays.iter().map(|(first, last)| format!("{first} {last}\n"));
    fs::write(format!("{file}.new"), lines.collect::<String>()).unwrap();
    fs::rename(format!("{file}.new"), file).unwrap();
}

/// One look, and what the supervisor and the timer interrupt look at meanwhile.
const LONGEST_LOOK: i64 = 16 * 256;

/// How late a window opens or closes at most: the timer (511 ns), the looks of the supervisor until
/// it has stopped or woken the member, and a look of the member itself.
const LATE: i64 = 4_096;

fn plan(groups: &str) -> GroupPlan {
    let text = format!(
        "timewire: 1\nkind: network\nname: t\n\
         stations:\n- name: alpha\n  host:\n    groups: {groups}\n"
    );
    let file = HostSettings::parse("t", &text).unwrap_or_else(|errors| panic!("{errors}"));
    GroupPlan::new(file.host.groups.as_ref().unwrap(), &facts()).unwrap()
}

fn model() -> (Arc<Journal>, Model) {
    let journal = Arc::new(Journal::begin("a test").unwrap());
    let model = Model::new(Arc::clone(&journal));
    (journal, model)
}

fn end(journal: Arc<Journal>, model: Model) {
    model.finish().unwrap();
    Arc::into_inner(journal).unwrap().finish().unwrap();
}

/// A member that looks at the clock until then.
fn looker(name: &str, until: Instant<Tai>) -> String {
    let exe = env::current_exe().unwrap();
    format!("{{kind: program, run: [{}, looker, /tmp/{name}, '{}']}}", exe.display(), until.as_ns())
}

fn stays(name: &str) -> Vec<(i64, i64)> {
    let path = format!("/tmp/{name}");
    // Time has to pass for what is to happen.
    while !Path::new(&path).exists() {
        clock::sleep_until(clock::now::<Tai>() + Span::from_us(100));
    }
    let text = fs::read_to_string(path).unwrap();
    let number = |word: &str| word.parse::<i64>().unwrap();
    let line = |line: &str| line.split_once(' ').map(|(a, b)| (number(a), number(b))).unwrap();
    text.lines().map(line).collect()
}

fn kept(model: &Model) -> Vec<Kept> {
    let rows = model.status().rows.into_iter();
    rows.filter_map(|row| match row {
        RowStatus::Member(member) => member.kept,
        RowStatus::Group { .. } => None,
    })
    .collect()
}

/// Every stay of a member lies inside one of its windows, and every whole window has one that
/// fills it. How many there were, and the latest start and end.
#[track_caller]
fn check(plan: &GroupPlan, member: usize, stays: &[(i64, i64)]) -> (usize, i64, i64) {
    let windows = plan.members().nth(member).unwrap().windows.clone().unwrap();
    let (mut late_start, mut late_end) = (0, 0);
    for (i, (first, last)) in stays.iter().enumerate() {
        // A look that was begun in time may come back late, when the member goes on.
        let inside = windows.phase(Instant::from_ns(first + 1));
        let Some(Phase::Inside { start, end }) = inside else {
            panic!("stay {i}, {first} to {last}, begins outside of {windows:?}");
        };
        let (start, end) = (start.as_ns(), end.as_ns());
        assert!(*last <= end + LATE, "stay {i} ends {} ns after its window", last - end);
        late_end = late_end.max(last - end);
        // The first stay begins when the program does, the last one ends with it.
        if i > 0 {
            assert!(first - start <= LATE, "stay {i} begins {} ns after its window", first - start);
            late_start = late_start.max(first - start);
        }
        if i > 0 && i + 1 < stays.len() {
            assert!(end - last <= LATE, "stay {i} ends {} ns before its window", end - last);
        }
    }
    for pair in stays.windows(2) {
        let next = windows.next_start_at_or_after(Instant::from_ns(pair[0].1)).unwrap().as_ns();
        assert!(pair[1].0 - next <= LATE, "a window at {next} was not used");
    }
    (stays.len(), late_start, late_end)
}

fn windows() {
    let until = clock::now::<Tai>() + Span::from_ms(40);
    let groups = format!(
        "{{name: top, policy: tdm, cycle: 1024us, members: [{{is: {}, offset: 0us, length: \
         128us}}, {{is: {}, offset: 512us, length: 64us}}, {{is: {}, offset: 576us, length: \
         192us}}]}}",
        looker("a", until),
        looker("b", until),
        looker("c", until)
    );
    let plan = plan(&groups);
    let (journal, mut model) = model();
    model.switch(&plan).unwrap();
    let all = ["a", "b", "c"].map(stays);
    let mut said = String::new();
    for (member, stays) in all.iter().enumerate() {
        let (count, late_start, late_end) = check(&plan, member, stays);
        // To the end, without a gap.
        assert!(count >= 15 && until.as_ns() - stays[count - 1].1 < 1_024_000, "{count} stays");
        said += &format!("{count} stays, start {late_start} ns late, end {late_end} ns late\n");
    }
    for kept in kept(&model) {
        assert_eq!((kept.missed, kept.late, kept.not_stopped, kept.refused), (0, 0, 0, 0));
        assert!(kept.open_late_max_ns <= LATE && kept.close_late_max_ns <= LATE, "{kept:?}");
        said += &format!("{kept:?}\n");
    }
    // Nobody runs in another's window.
    let mut order: Vec<(i64, i64)> = all.concat();
    order.sort_unstable();
    for pair in order.windows(2) {
        assert!(pair[0].1 <= pair[1].0, "{pair:?} at one time");
    }
    end(journal, model);
    println!("{said}stays {}", fingerprint(&[&format!("{all:?}")]));
}

fn nested_windows() {
    let until = clock::now::<Tai>() + Span::from_ms(40);
    let groups = format!(
        "{{name: top, policy: tdm, cycle: 2048us, members: [{{is: {{kind: group, group: {{name: \
         in, policy: tdm, cycle: 512us, members: [{{is: {}, offset: 128us, length: \
         128us}}]}}}}, offset: 0us, length: 1216us}}]}}",
        looker("a", until)
    );
    let plan = plan(&groups);
    let windows = plan.members().next().unwrap().windows.clone().unwrap();
    // At 128, 640 and 1152 us, the last cut off at 1216.
    assert_eq!(windows.windows().len(), 3);
    let (journal, mut model) = model();
    model.switch(&plan).unwrap();
    let (count, ..) = check(&plan, 0, &stays("a"));
    // Three windows in each of some twelve cycles.
    assert!(count >= 30, "{count} stays");
    end(journal, model);
}

fn windows_by_signals() {
    namespace::unmount(Path::new("/sys/fs/cgroup")).unwrap();
    let until = clock::now::<Tai>() + Span::from_ms(30);
    let groups = format!(
        "{{name: top, policy: tdm, cycle: 1024us, members: [{{is: {}, offset: 0us, length: \
         128us}}, {{is: {}, offset: 512us, length: 64us}}]}}",
        looker("a", until),
        looker("b", until)
    );
    let plan = plan(&groups);
    let (journal, mut model) = model();
    model.switch(&plan).unwrap();
    let notes = model.status().notes.join("\n");
    assert!(notes.contains("no control groups of version 2 are mounted"), "{notes}");
    for (member, name) in ["a", "b"].into_iter().enumerate() {
        let (count, ..) = check(&plan, member, &stays(name));
        assert!(count >= 8, "{count} stays");
    }
    end(journal, model);
}

fn switched_windows() {
    let begin = clock::now::<Tai>();
    let until = begin + Span::from_ms(60);
    let groups = |offset: &str| {
        format!(
            "{{name: top, policy: tdm, cycle: 1024us, members: [{{is: {}, offset: {offset}, \
             length: 128us}}]}}",
            looker("a", until)
        )
    };
    let (first, second) = (plan(&groups("0us")), plan(&groups("512us")));
    let (journal, mut model) = model();
    model.switch(&first).unwrap();
    let pid = |model: &Model| match &model.status().rows[1] {
        RowStatus::Member(member) => member.processes.clone(),
        RowStatus::Group { .. } => Vec::new(),
    };
    let before = pid(&model);
    clock::sleep_until(begin + Span::from_ms(36));
    let from = clock::now::<Tai>().as_ns();
    model.switch(&second).unwrap();
    let to = clock::now::<Tai>().as_ns();
    assert_eq!(pid(&model), before, "it is the same process, which was not started again");
    let stays = stays("a");
    let (early, rest): (Vec<_>, Vec<_>) = stays.iter().partition(|(_, last)| *last < from);
    let late: Vec<(i64, i64)> = rest.iter().copied().filter(|(first, _)| *first > to).collect();
    assert!(rest.len() - late.len() <= 1, "{rest:?}");
    assert!(check(&first, 0, &early).0 >= 10 && check(&second, 0, &late).0 >= 10);
    end(journal, model);
}

fn scheduling(process: Process) -> (u32, u32) {
    let now = scheduler::attributes(process.pid).unwrap();
    (now.policy, now.rt_priority)
}

fn kernel_thread(name: &str) -> Option<Process> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let mut pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let pid = pids.find(|pid: &u32| {
        let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        comm.starts_with(name)
    })?;
    Process::of(pid).ok()
}

fn softirq() {
    let thread = kernel_thread("ksoftirqd/0").unwrap();
    assert_eq!(scheduling(thread), (0, 0));
    let (journal, mut model) = model();
    let groups =
        "{name: top, policy: sequential, cpus: 0, members: [{is: {kind: softirq, cpu: 0}}]}";
    model.switch(&plan(groups)).unwrap();
    assert_eq!(scheduling(thread), (1, 60));
    model.switch(&plan(&groups.replace("sequential", "round_robin, highest: 9"))).unwrap();
    assert_eq!(scheduling(thread), (2, 9));
    end(journal, model);
    assert_eq!(scheduling(thread), (0, 0));
}

fn napi() {
    tool("ip link add v0 type veth peer name v1");
    tool("ip link set v0 up");
    tool("ip link set v1 up");
    let setting = || fs::read_to_string("/sys/class/net/v0/threaded").unwrap();
    let groups = "{name: top, policy: sequential, members: [{is: {kind: napi, interface: v0}}]}";
    let (journal, mut model) = model();
    // A veth polls only when it gathers frames (GRO).
    let before = setting();
    let error = model.switch(&plan(groups)).unwrap_err();
    assert!(error.is_unsupported(), "{error}");
    assert_eq!(setting(), before);
    tool("ethtool -K v0 gro on");
    model.switch(&plan(groups)).unwrap();
    assert_eq!(setting(), "1\n");
    let thread = kernel_thread("napi/v0-").unwrap();
    assert_eq!(scheduling(thread), (1, 60));
    end(journal, model);
    assert_eq!(setting(), before);
}

/// Names of interfaces for which the first 15 bytes of the threads' names are alike.
fn napi_of_alike() {
    let both = ["timewire-long-0", "timewire-long-1"];
    tool(&format!("ip link add {} type veth peer name {}", both[0], both[1]));
    for name in both {
        tool(&format!("ethtool -K {name} gro on"));
        tool(&format!("ip link set {name} up"));
        fs::write(format!("/sys/class/net/{name}/threaded"), "1").unwrap();
    }
    let threads = both.map(|name| kernel_thread(&format!("napi/{name}-")).unwrap());
    let member = format!("{{is: {{kind: napi, interface: {}}}}}", both[0]);
    let (journal, mut model) = model();
    model
        .switch(&plan(&format!("{{name: top, policy: sequential, members: [{member}]}}")))
        .unwrap();
    assert_eq!(threads.map(scheduling), [(1, 60), (0, 0)]);
    end(journal, model);
    assert_eq!(threads.map(scheduling), [(0, 0); 2]);
}

fn tool(line: &str) {
    let words: Vec<&str> = line.split(' ').collect();
    let status = Command::new(words[0]).args(&words[1..]).status().unwrap();
    assert!(status.success(), "{line}");
}
