// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Trees of groups in force on this kernel, with processes of the test alone: what members have,
//! who runs first, who follows whom, and that everything is restored whatever happens.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking; it has a main of its own")]

mod harness;

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;

use harness::{Role, hear_line, scratch, wait_until};
use timewire_base::Failure;
use timewire_host::HostError;
use timewire_host::groups::{Model, RowStatus, facts};
use timewire_host::journal::Journal;
use timewire_model::scenario::host::HostSettings;
use timewire_sys::clock;
use timewire_sys::namespace::{self, Namespace, Process};
use timewire_sys::scheduler::{self, Attributes};
use timewire_tsn::file::ParseFile;
use timewire_tsn::groups::{Facts, GroupPlan};

fn main() -> ExitCode {
    harness::main(
        &[
            ("t3_members_have_what_the_tree_says_and_get_back_what_they_had", given_and_back),
            ("t3_the_first_in_the_tree_runs_first", sequential_order),
            ("t3_the_lowest_number_runs_first", priority_order),
            ("t3_members_of_round_robin_take_turns", round_robin_turns),
            ("t3_members_are_followed_through_fork_exec_and_exit", followed),
            ("t3_without_control_groups_members_are_looked_for", followed_by_looking),
            ("t3_outside_of_its_window_a_member_is_stopped", stopped_outside),
            ("t3_a_killed_model_is_restored", killed),
            ("t3_a_switch_changes_all_or_nothing", switch_is_atomic),
            ("t3_a_refused_reservation_changes_nothing", reservation_refused),
            ("t3_programs_are_members_from_their_first_instruction", programs),
            ("t3_an_amended_tree_leaves_the_others_who_they_are", amended),
            ("t3_programs_that_never_sleep_are_ended", hogs_end),
            ("t3_threads_are_members_by_their_name", threads_by_name),
            ("t3_who_is_not_there_is_said", nobody_there),
        ],
        &[
            ("worker", role_worker),
            ("runner", role_runner),
            ("model", role_model),
            ("tell", role_tell),
        ],
    )
}

/// Waits for lines and does what they say: `fork` starts a child and says its number, `exec` makes
/// this process another program of the same kind, `thread NAME` starts a thread of that name.
#[expect(clippy::zombie_processes, reason = "the test ends them, or they end with it")]
fn role_worker(_: &[String]) {
    println!("ready");
    while let Some(line) = hear_line() {
        match line.split_once(' ').unwrap_or((&line, "")) {
            ("fork", _) => {
                let child = Command::new("sleep").arg("1000").spawn().unwrap();
                println!("{}", child.id());
            }
            ("exec", _) => {
                panic!("{}", Command::new("/proc/self/exe").args(["role", "worker"]).exec())
            }
            ("thread", name) => {
                let (tell, told) = std::sync::mpsc::channel();
                let body = move || {
                    tell.send(scheduler::thread_id()).unwrap();
                    std::thread::park();
                };
                std::thread::Builder::new().name(name.to_owned()).spawn(body).unwrap();
                println!("{}", told.recv().unwrap());
            }
            _ => println!("ok"),
        }
    }
}

/// Time on a processor that this process has had, ns.
fn ran() -> u64 {
    let text = fs::read_to_string("/proc/self/schedstat").unwrap();
    text.split_whitespace().next().unwrap().parse().unwrap()
}

/// Waits for a line, then works for so many times 10 ms of processor time, and writes its name
/// into a log each time. The name `first` works until a file is there.
fn role_runner(arguments: &[String]) {
    let [name, log, pieces] = arguments else { panic!("name, log, pieces") };
    let mut log = OpenOptions::new().append(true).create(true).open(log).unwrap();
    println!("ready");
    hear_line();
    for _ in 0..pieces.parse::<u32>().unwrap() {
        let until = ran() + 10_000_000;
        while ran() < until {}
        log.write_all(format!("{name} ").as_bytes()).unwrap();
    }
    if name == "first" {
        println!("running");
        // A loop of system calls, but none that sleeps.
        while !Path::new(&arguments[1]).with_extension("go").exists() {}
    }
    println!("done");
    hear_line();
}

/// Puts the groups of a file in force. Says `in force` or the error; ends when told.
fn role_model(arguments: &[String]) {
    if arguments.get(1).is_some_and(|word| word == "no-cgroups") {
        hide_control_groups();
    }
    let journal = Arc::new(Journal::begin("a test").unwrap());
    let mut model = Model::new(Arc::clone(&journal));
    let text = fs::read_to_string(&arguments[0]).unwrap();
    match model.switch(&plan(&text)) {
        Ok(()) => println!("in force"),
        Err(error) => println!("{error}"),
    }
    while hear_line().is_some() {
        model.follow().unwrap();
        println!("looked");
    }
    model.finish().unwrap();
}

/// Writes its own scheduling into a file, and waits.
fn role_tell(arguments: &[String]) {
    let now = scheduler::attributes(0).unwrap();
    let cpus = scheduler::affinity(0).unwrap();
    let hidden = format!("{}.new", arguments[0]);
    fs::write(&hidden, format!("{} {} {cpus:?}", now.policy, now.rt_priority)).unwrap();
    fs::rename(hidden, &arguments[0]).unwrap();
    std::thread::park();
}

fn hide_control_groups() {
    namespace::unshare(&[Namespace::Mount]).unwrap();
    namespace::make_mounts_private().unwrap();
    for line in fs::read_to_string("/proc/self/mounts").unwrap().lines() {
        let words: Vec<&str> = line.split(' ').collect();
        if words[2] == "cgroup2" {
            namespace::unmount(Path::new(words[1])).unwrap();
        }
    }
}

fn settings_file(groups: &str) -> String {
    format!(
        "timewire: 1\nkind: network\nname: t\n\
         stations:\n- name: alpha\n  host:\n    groups: {groups}\n"
    )
}

fn plan(text: &str) -> GroupPlan {
    let file = HostSettings::parse("t", text).unwrap_or_else(|errors| panic!("{errors}"));
    GroupPlan::new(file.host.groups.as_ref().unwrap(), &facts()).unwrap()
}

fn plan_of(groups: &str) -> GroupPlan {
    plan(&settings_file(groups))
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

fn worker() -> Role {
    let mut worker = Role::start("worker", &[]);
    assert_eq!(worker.hear(), "ready");
    worker
}

/// Everything that a model changes of a thread: attributes, CPUs, control group.
type State = (Attributes, Vec<u32>, String);

fn state(pid: u32) -> State {
    let cgroup = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let cgroup = cgroup.lines().find(|line| line.starts_with("0::")).unwrap_or_default();
    (scheduler::attributes(pid).unwrap(), scheduler::affinity(pid).unwrap(), cgroup.to_owned())
}

fn scheduling(pid: u32) -> (u32, u32) {
    let now = scheduler::attributes(pid).unwrap();
    (now.policy, now.rt_priority)
}

const OTHER: u32 = 0;
const FIFO: u32 = 1;
const RR: u32 = 2;
const DEADLINE: u32 = 6;

fn given_and_back() {
    let workers: Vec<Role> = (0..5).map(|_| worker()).collect();
    let pids: Vec<u32> = workers.iter().map(|worker| worker.child.id()).collect();
    scheduler::set_attributes(pids[1], &Attributes { policy: 3, nice: 7, ..state(pids[1]).0 })
        .unwrap();
    let before: Vec<State> = pids.iter().map(|pid| state(*pid)).collect();
    let groups = format!(
        "{{name: top, policy: sequential, cpus: 0, highest: 30, members: [
            {{is: {{kind: process, pid: {}}}}},
            {{is: {{kind: group, group: {{name: n, policy: priority, members: [
                {{is: {{kind: process, pid: {}}}, priority: 9}},
                {{is: {{kind: process, pid: {}}}, priority: 2}}]}}}}}},
            {{is: {{kind: group, group: {{name: r, policy: round_robin, members: [
                {{is: {{kind: process, pid: {}}}}},
                {{is: {{kind: process, pid: {}}}}}]}}}}}}]}}",
        pids[0], pids[1], pids[2], pids[3], pids[4]
    );
    let (journal, mut model) = model();
    model.switch(&plan_of(&groups)).unwrap();
    let now: Vec<(u32, u32)> = pids.iter().map(|pid| scheduling(*pid)).collect();
    assert_eq!(now, [(FIFO, 30), (FIFO, 28), (FIFO, 29), (RR, 27), (RR, 27)]);
    for pid in &pids {
        assert_eq!(scheduler::affinity(*pid).unwrap(), [0]);
    }
    let rows = model.status().rows;
    let members = rows.iter().filter_map(|row| match row {
        RowStatus::Member(member) => Some(member),
        RowStatus::Group { .. } => None,
    });
    let shown: Vec<Vec<u32>> = members.map(|member| member.processes.clone()).collect();
    let expected: Vec<Vec<u32>> = pids.iter().map(|pid| vec![*pid]).collect();
    assert_eq!(shown, expected);
    end(journal, model);
    let after: Vec<State> = pids.iter().map(|pid| state(*pid)).collect();
    assert_eq!(after, before);
    workers.into_iter().for_each(Role::end);
}

/// Starts runners as members of a group on one CPU, behind one that keeps it busy, has them become
/// able to run in this order, and gives back the order in which they did their pieces.
fn run_on_one_cpu(group: &str, names: &[&str], able: &[&str], pieces: &str) -> String {
    let log = scratch("order");
    let path = log.to_str().unwrap();
    let start = |name: &str| {
        let pieces = if name == "first" { "0" } else { pieces };
        let mut runner = Role::start("runner", &[name, path, pieces]);
        assert_eq!(runner.hear(), "ready");
        runner
    };
    let mut first = start("first");
    let mut runners: Vec<(&str, Role)> = names.iter().map(|name| (*name, start(name))).collect();
    let mut inner = group.to_owned();
    for (name, runner) in &runners {
        inner = inner.replace(&format!("<{name}>"), &runner.child.id().to_string());
    }
    let groups = format!(
        "{{name: top, policy: sequential, cpus: 0, members: [
            {{is: {{kind: process, pid: {}}}}}, {{is: {{kind: group, group: {inner}}}}}]}}",
        first.child.id()
    );
    let (journal, mut model) = model();
    model.switch(&plan_of(&groups)).unwrap();
    first.tell("go");
    assert_eq!(first.hear(), "running");
    for name in able {
        let (_, runner) = runners.iter_mut().find(|(other, _)| other == name).unwrap();
        runner.tell("go");
        // It has been woken when it has read its line, or waits for the processor.
        let stat = format!("/proc/{}/stat", runner.child.id());
        wait_until("it can run", || fs::read_to_string(&stat).unwrap().contains(") R "));
    }
    assert_eq!(fs::read_to_string(&log).unwrap(), "", "somebody ran beside the first");
    fs::write(log.with_extension("go"), "").unwrap();
    assert_eq!(first.hear(), "done");
    for (_, runner) in &mut runners {
        assert_eq!(runner.hear(), "done");
    }
    let order = fs::read_to_string(&log).unwrap();
    end(journal, model);
    first.end();
    runners.into_iter().for_each(|(_, runner)| runner.end());
    fs::remove_file(&log).unwrap();
    fs::remove_file(log.with_extension("go")).unwrap();
    order
}

fn sequential_order() {
    let group = "{name: s, policy: sequential, members: [{is: {kind: process, pid: <a>}}, \
                 {is: {kind: process, pid: <b>}}, {is: {kind: process, pid: <c>}}]}";
    for able in [["c", "b", "a"], ["b", "a", "c"]] {
        let order = run_on_one_cpu(group, &["a", "b", "c"], &able, "2");
        assert_eq!(order, "a a b b c c ", "able in the order {able:?}");
    }
}

fn priority_order() {
    let group = "{name: p, policy: priority, members: [{is: {kind: process, pid: <a>}, priority: \
                 5}, {is: {kind: process, pid: <b>}, priority: 1}, {is: {kind: process, pid: <c>}, \
                 priority: 5}]}";
    // Those of one number in the order in which they became able to.
    let order = run_on_one_cpu(group, &["a", "b", "c"], &["c", "a", "b"], "2");
    assert_eq!(order, "b b c c a a ");
}

fn round_robin_turns() {
    let quantum: u32 = fs::read_to_string("/proc/sys/kernel/sched_rr_timeslice_ms")
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    let group = "{name: r, policy: round_robin, members: [{is: {kind: process, pid: <a>}}, \
                 {is: {kind: process, pid: <b>}}]}";
    // Two and a half quanta each.
    let pieces = (quantum / 4).max(5);
    let order = run_on_one_cpu(group, &["a", "b"], &["a", "b"], &pieces.to_string());
    let turns: Vec<&str> = order.split_whitespace().collect();
    let changes = turns.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert_eq!(turns.len(), 2 * pieces as usize);
    // One after the other would be a single change; FIFO is.
    assert!((3..=12).contains(&changes), "{changes} changes in `{order}`");
}

/// The control group that a process would be in as a member, when there are any here.
fn has_control_groups() -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    mounts.lines().any(|line| line.split(' ').nth(2) == Some("cgroup2"))
}

fn followed() {
    if !has_control_groups() {
        eprintln!("SKIP: no control groups of version 2 here");
        return;
    }
    let mut worker = worker();
    let pid = worker.child.id();
    let before = state(pid);
    let groups = format!(
        "{{name: top, policy: sequential, members: [{{is: {{kind: process, pid: {pid}}}}}]}}"
    );
    let (journal, mut model) = model();
    model.switch(&plan_of(&groups)).unwrap();
    let place = state(pid).2;
    assert!(place.contains(&format!("timewire-{}-", std::process::id())), "{place}");
    worker.tell("fork");
    let child: u32 = worker.hear().parse().unwrap();
    worker.tell("exec");
    assert_eq!(worker.hear(), "ready");
    worker.tell("fork");
    let second: u32 = worker.hear().parse().unwrap();
    for pid in [pid, child, second] {
        assert_eq!(scheduling(pid), (FIFO, 60), "{pid}");
        assert_eq!(state(pid).2, place);
    }
    model.follow().unwrap();
    // It is followed also by what outlives it, and by a change.
    worker.kill();
    model.follow().unwrap();
    let changed = groups.replace("policy: sequential", "policy: sequential, highest: 20");
    let RowStatus::Member(member) = &model.status().rows[1] else { panic!("a member") };
    let mut processes = member.processes.clone();
    processes.sort_unstable();
    let mut expected = vec![child, second];
    expected.sort_unstable();
    assert_eq!(processes, expected);
    model.switch(&plan_of(&changed)).unwrap();
    assert_eq!((scheduling(child), scheduling(second)), ((FIFO, 20), (FIFO, 20)));
    // All have gone: a member that has ended is no obstacle, a stranger that has is one.
    let stranger = changed.replace(&pid.to_string(), "4194302");
    let gone = model.switch(&plan_of(&stranger)).unwrap_err().to_string();
    assert_eq!(gone, "process 4194302: there is no process 4194302");
    end(journal, model);
    for pid in [child, second] {
        assert_eq!(scheduling(pid), (OTHER, 0));
        assert_eq!(state(pid).2, before.2);
        Process::of(pid).unwrap().kill().unwrap();
    }
}

fn followed_by_looking() {
    let mut worker = worker();
    let pid = worker.child.id();
    let before = state(pid);
    let file = scratch("looking.yaml");
    // A window that is over: the member is stopped, by a signal.
    let now = clock::now::<timewire_base::Tai>().as_ns() / 1_000_000_000;
    let start = now % 100_000;
    let groups = format!(
        "{{name: top, policy: tdm, cycle: 100000s, members: [{{is: {{kind: process, pid: {pid}}}, \
         offset: {}s, length: 5000s}}]}}",
        if start < 50_000 { 90_000 } else { 10_000 }
    );
    worker.tell("fork");
    let child: u32 = worker.hear().parse().unwrap();
    fs::write(&file, settings_file(&groups)).unwrap();
    let mut model = Role::start("model", &[file.to_str().unwrap(), "no-cgroups"]);
    assert_eq!(model.hear(), "in force");
    let process = Process::of(pid).unwrap();
    wait_until("it is stopped", || process.is_stopped());
    model.tell("look");
    assert_eq!(model.hear(), "looked");
    let child = Process::of(child).unwrap();
    wait_until("what it has started is stopped", || child.is_stopped());
    assert_eq!((scheduling(pid), scheduling(child.pid)), ((FIFO, 60), (FIFO, 60)));
    model.kill();
    for (process, before) in [(process, &before), (child, &before)] {
        wait_until("it goes on", || !process.is_stopped());
        wait_until("it has what it had", || state(process.pid) == *before);
    }
    worker.tell("still there?");
    assert_eq!(worker.hear(), "ok");
    child.kill().unwrap();
    worker.end();
    fs::remove_file(file).unwrap();
}

/// A `tdm` group in which a process has a window now, or not for a long time.
fn windowed(pid: u32, now: bool) -> String {
    let cycle = 100_000;
    let at = clock::now::<timewire_base::Tai>().as_ns() / 1_000_000_000 % cycle;
    let first_half = at < cycle / 2;
    let offset = if first_half == now { 0 } else { cycle / 2 };
    format!(
        "{{name: top, policy: tdm, cycle: {cycle}s, members: [{{is: {{kind: process, pid: \
         {pid}}}, offset: {offset}s, length: {}s}}]}}",
        cycle / 2
    )
}

fn is_frozen(pid: u32) -> bool {
    let place = state(pid).2;
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let mount = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2")).unwrap();
    let mount = PathBuf::from(mount.split(' ').nth(1).unwrap());
    let events = mount.join(place.trim_start_matches("0::/")).join("cgroup.events");
    fs::read_to_string(events).is_ok_and(|text| text.contains("frozen 1"))
}

fn stopped_outside() {
    if !has_control_groups() {
        eprintln!("SKIP: no control groups of version 2 here");
        return;
    }
    let mut worker = worker();
    let pid = worker.child.id();
    let before = state(pid);
    let (journal, mut model) = model();
    model.switch(&plan_of(&windowed(pid, false))).unwrap();
    wait_until("it is stopped", || is_frozen(pid));
    model.switch(&plan_of(&windowed(pid, true))).unwrap();
    wait_until("it goes on", || !is_frozen(pid));
    worker.tell("run");
    assert_eq!(worker.hear(), "ok");
    let RowStatus::Member(member) = &model.status().rows[1] else { panic!("a member") };
    assert_eq!(member.kept.unwrap().opened, 1);
    model.switch(&plan_of(&windowed(pid, false))).unwrap();
    wait_until("it is stopped again", || is_frozen(pid));
    end(journal, model);
    assert_eq!(state(pid), before);
    worker.tell("run");
    assert_eq!(worker.hear(), "ok");
    worker.end();
}

fn killed() {
    let mut worker = worker();
    let pid = worker.child.id();
    worker.tell("fork");
    let earlier: u32 = worker.hear().parse().unwrap();
    let before = state(pid);
    let file = scratch("killed.yaml");
    fs::write(&file, settings_file(&windowed(pid, false))).unwrap();
    let mut model = Role::start("model", &[file.to_str().unwrap()]);
    assert_eq!(model.hear(), "in force");
    assert_eq!(scheduling(pid), (FIFO, 60));
    let place = state(pid).2;
    model.kill();
    wait_until("it has what it had", || state(pid) == before);
    worker.tell("still there?");
    assert_eq!(worker.hear(), "ok");
    if place != before.2 {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let mount = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2")).unwrap();
        let mount = PathBuf::from(mount.split(' ').nth(1).unwrap());
        let place = mount.join(place.trim_start_matches("0::/"));
        wait_until("its control group is gone", || !place.exists());
    }
    assert_eq!(scheduling(earlier), (OTHER, 0));
    Process::of(earlier).unwrap().kill().unwrap();
    worker.end();
    fs::remove_file(file).unwrap();
}

fn switch_is_atomic() {
    let workers: Vec<Role> = (0..5).map(|_| worker()).collect();
    let pids: Vec<u32> = workers.iter().map(|worker| worker.child.id()).collect();
    let at_home: Vec<State> = pids.iter().map(|pid| state(*pid)).collect();
    let process = |i: usize| format!("{{kind: process, pid: {}}}", pids[i]);
    let old = format!(
        "{{name: top, policy: sequential, members: [
            {{is: {{kind: group, group: {{name: d, policy: deadline, members: [
                {{is: {}, runtime: 1ms, period: 10ms}}]}}}}}},
            {{is: {}}}, {{is: {}}}, {{is: {{kind: program, run: [sleep, '1001']}}}}]}}",
        process(0),
        process(1),
        process(2)
    );
    let new = format!(
        "{{name: top, policy: sequential, highest: 33, members: [
            {{is: {}}},
            {{is: {{kind: program, run: [sleep, '1002']}}}},
            {{is: {{kind: group, group: {{name: r, policy: round_robin, members: [
                {{is: {}}}, {{is: {}}}]}}}}}},
            {{is: {{kind: group, group: {{name: w, policy: tdm, cycle: 100000s, members: [
                {{is: {}, offset: 0s, length: 100000s}}]}}}}}}]}}",
        process(0),
        process(2),
        process(3),
        process(4)
    );
    let (journal, mut model) = model();
    model.switch(&plan_of(&old)).unwrap();
    // The number of a control group is new when somebody joins again, so only whether it is ours.
    let view = || -> Vec<(u32, u32, Vec<u32>, bool)> {
        let one = |pid: &u32| {
            let (now, cpus, place) = state(*pid);
            (now.policy, now.rt_priority, cpus, place.contains("timewire-"))
        };
        pids.iter().map(one).collect()
    };
    let programs = |model: &Model| -> Vec<Vec<u32>> {
        let rows = model.status().rows.into_iter();
        rows.filter_map(|row| match row {
            RowStatus::Member(m) if m.asked["member"].as_str().unwrap().contains("sleep") => {
                Some(m.processes)
            }
            _ => None,
        })
        .collect()
    };
    let (in_force, sleeper) = (view(), programs(&model));
    assert_eq!(sleeper[0].len(), 1);
    let place_of_2 = state(pids[2]).2;
    let mut steps = 0;
    loop {
        let mut count = 0;
        let result = model.switch_with(&plan_of(&new), &mut |step| {
            count += 1;
            if count == steps + 1 {
                let what = format!("injected before `{step}`");
                return Err(HostError::NobodyThere { what });
            }
            Ok(())
        });
        let Err(error) = result else { break };
        assert!(error.to_string().contains("injected before"), "{error}");
        assert_eq!(view(), in_force, "after {error}");
        assert_eq!(programs(&model), sleeper, "after {error}");
        // Who is in both was not let go.
        assert_eq!(state(pids[2]).2, place_of_2, "after {error}");
        steps += 1;
    }
    assert_eq!(steps, 7, "one for each member that changes, and the windows");
    let now: Vec<(u32, u32)> = pids.iter().map(|pid| scheduling(*pid)).collect();
    assert_eq!(now, [(FIFO, 33), (OTHER, 0), (RR, 31), (RR, 31), (FIFO, 30)]);
    assert_eq!(state(pids[1]), at_home[1]);
    assert_eq!(state(pids[2]).2, place_of_2);
    let old_sleeper = Path::new("/proc").join(sleeper[0][0].to_string());
    assert!(!old_sleeper.exists(), "the program that is not in the new model has ended");
    let new_sleeper = programs(&model)[0][0];
    assert_eq!(scheduling(new_sleeper), (FIFO, 32));
    end(journal, model);
    assert!(!Path::new("/proc").join(new_sleeper.to_string()).exists());
    let after: Vec<State> = pids.iter().map(|pid| state(*pid)).collect();
    assert_eq!(after, at_home);
    workers.into_iter().for_each(Role::end);
}

fn reservation_refused() {
    let workers: Vec<Role> = (0..3).map(|_| worker()).collect();
    let pids: Vec<u32> = workers.iter().map(|worker| worker.child.id()).collect();
    let before: Vec<State> = pids.iter().map(|pid| state(*pid)).collect();
    let groups = |runtime: &str, period: &str| {
        let members: Vec<String> = pids
            .iter()
            .map(|pid| {
                format!(
                    "{{is: {{kind: process, pid: {pid}}}, runtime: {runtime}, period: {period}}}"
                )
            })
            .collect();
        format!("{{name: d, policy: deadline, members: [{}]}}", members.join(", "))
    };
    let (journal, mut model) = model();
    model.switch(&plan_of(&groups("100us", "10ms"))).unwrap();
    let reserved = scheduler::attributes(pids[0]).unwrap();
    assert_eq!((reserved.policy, reserved.runtime_ns), (DEADLINE, 100_000));
    assert_eq!((reserved.deadline_ns, reserved.period_ns), (10_000_000, 10_000_000));
    let in_force: Vec<State> = pids.iter().map(|pid| state(*pid)).collect();
    // More than all processors have; with these facts nobody computes that before the kernel.
    let blind = |text: &str| {
        let file = HostSettings::parse("t", &settings_file(text)).unwrap();
        GroupPlan::new(file.host.groups.as_ref().unwrap(), &Facts::unknown()).unwrap()
    };
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap().matches("processor\t").count();
    if cpus < 4 && pids.len() as f64 * 0.94 > cpus as f64 * 0.95 {
        let error = model.switch(&blind(&groups("9400us", "10ms"))).unwrap_err();
        let said = error.to_string();
        assert!(said.contains("the kernel does not admit a reservation of"), "{said}");
        assert!(error.hint().unwrap().contains("sched_rt_runtime_us"), "{error}");
        let now: Vec<State> = pids.iter().map(|pid| state(*pid)).collect();
        assert_eq!(now, in_force, "the old reservations are in force");
    }
    let error = model.switch(&blind(&groups("5us", "10us"))).unwrap_err();
    assert!(error.to_string().contains("Invalid argument"), "{error}");
    assert!(error.hint().unwrap().contains("sched_deadline_period_min_us"));
    let now: Vec<State> = pids.iter().map(|pid| state(*pid)).collect();
    assert_eq!(now, in_force);
    end(journal, model);
    let after: Vec<State> = pids.iter().map(|pid| state(*pid)).collect();
    assert_eq!(after, before);
    workers.into_iter().for_each(Role::end);
}

fn programs() {
    let told = scratch("told");
    let exe = fs::read_link("/proc/self/exe").unwrap();
    let groups = format!(
        "{{name: top, policy: sequential, highest: 17, cpus: 0, members: [{{is: {{kind: program, \
         run: [{}, role, tell, {}]}}}}]}}",
        exe.display(),
        told.display()
    );
    let (journal, mut model) = model();
    model.switch(&plan_of(&groups)).unwrap();
    wait_until("it has told", || told.exists());
    assert_eq!(fs::read_to_string(&told).unwrap(), "1 17 [0]");
    let RowStatus::Member(member) = &model.status().rows[1] else { panic!("a member") };
    let pid = member.processes[0];
    // It ends by itself: nobody is held any more, and the end is no trouble.
    Process::of(pid).unwrap().kill().unwrap();
    wait_until("its end is seen", || {
        model.follow().unwrap();
        let RowStatus::Member(member) = &model.status().rows[1] else { panic!("a member") };
        member.processes.is_empty()
    });
    assert!(model.status().notes.iter().all(|note| !note.contains("cannot")));
    end(journal, model);
    fs::remove_file(told).unwrap();
}

/// A program that goes into the background ends, and what does its work goes on.
fn amended() {
    if !has_control_groups() {
        eprintln!("SKIP: no control groups of version 2 here");
        return;
    }
    let daemon = |file: &Path| {
        let line = format!("sleep 1000 & echo $! > {0}.new; mv {0}.new {0}", file.display());
        format!("{{is: {{kind: program, run: [sh, -c, '{line}']}}}}")
    };
    let pid_in = |file: &Path| {
        wait_until("it has said its number", || file.exists());
        let pid = fs::read_to_string(file).unwrap().trim().parse().unwrap();
        fs::remove_file(file).unwrap();
        pid
    };
    let added = worker();
    let file = scratch("daemon");
    // Two that are written alike.
    let both = [daemon(&file), daemon(&file)].join(", ");
    let groups = |more: &str| {
        format!("{{name: top, policy: sequential, highest: 17, members: [{more}{both}]}}")
    };
    let (journal, mut model) = model();
    let first = daemon(&file);
    model
        .switch(&plan_of(&format!(
            "{{name: top, policy: sequential, highest: 17, members: [{first}]}}"
        )))
        .unwrap();
    let first: u32 = pid_in(&file);
    model.amend(&plan_of(&groups(""))).unwrap();
    let second: u32 = pid_in(&file);
    let daemons = [first, second];
    let had_ended = || {
        let rows = model.status().rows;
        rows.iter().all(|row| match row {
            RowStatus::Member(member) => daemons.iter().any(|pid| member.processes == [*pid]),
            RowStatus::Group { .. } => true,
        })
    };
    wait_until("they are in the background", had_ended);
    let more = format!("{{is: {{kind: process, pid: {}}}}}, ", added.child.id());
    for (more, expected) in [(more.as_str(), [16, 15]), ("", [17, 16])] {
        model.amend(&plan_of(&groups(more))).unwrap();
        assert_eq!(daemons.map(scheduling), expected.map(|priority| (FIFO, priority)));
        assert!(!file.exists(), "a program was started again");
    }
    end(journal, model);
    added.end();
}

/// On one CPU at one priority, the one that runs keeps the other even from dying.
fn hogs_end() {
    let hog = |word: &str| {
        format!("{{is: {{kind: program, run: [sh, -c, 'while {word}; do :; done']}}}}")
    };
    let groups = |hogs: &[&str]| {
        let hogs: Vec<String> = hogs.iter().map(|word| hog(word)).collect();
        format!("{{name: top, policy: round_robin, cpus: 0, members: [{}]}}", hogs.join(", "))
    };
    let (journal, mut model) = model();
    model.switch(&plan_of(&groups(&[":", "true"]))).unwrap();
    model.switch(&plan_of(&groups(&["true"]))).unwrap();
    model.switch(&plan_of(&groups(&[":", "true"]).replace("round_robin", "sequential"))).unwrap();
    let rows = model.status().rows;
    let pids: Vec<u32> = rows
        .iter()
        .flat_map(|row| match row {
            RowStatus::Member(member) => member.processes.clone(),
            RowStatus::Group { .. } => Vec::new(),
        })
        .collect();
    assert_eq!(pids.len(), 2);
    end(journal, model);
    for pid in pids {
        wait_until("it has ended", || !Path::new("/proc").join(pid.to_string()).exists());
    }
}

fn threads_by_name() {
    let mut worker = worker();
    let pid = worker.child.id();
    worker.tell("thread fast");
    let first: u32 = worker.hear().parse().unwrap();
    worker.tell("thread slow");
    let slow: u32 = worker.hear().parse().unwrap();
    let groups = format!(
        "{{name: top, policy: sequential, members: [{{is: {{kind: process, pid: {pid}, thread: \
         fast}}}}]}}"
    );
    let (journal, mut model) = model();
    model.switch(&plan_of(&groups)).unwrap();
    worker.tell("thread fast");
    let second: u32 = worker.hear().parse().unwrap();
    model.follow().unwrap();
    let all = [pid, first, slow, second];
    assert_eq!(all.map(scheduling), [(OTHER, 0), (FIFO, 60), (OTHER, 0), (FIFO, 60)]);
    // Somebody else gives the same to one that is no member; that is not taken from it.
    let same = Attributes::fifo(scheduler::RtPriority::new(60).unwrap());
    scheduler::set_attributes(slow, &same).unwrap();
    end(journal, model);
    assert_eq!(all.map(scheduling), [(OTHER, 0), (OTHER, 0), (FIFO, 60), (OTHER, 0)]);
    assert!(!scheduler::attributes(first).unwrap().resets_on_fork());
    worker.end();
}

fn nobody_there() {
    let cases = [
        ("{kind: process, pid: 4194301}", "process 4194301: there is no process 4194301"),
        ("{kind: process, comm: nobody-has-this}", "no process is called `nobody-has-this`"),
        ("{kind: program, run: [/no/such/program]}", "there is no program `/no/such/program`"),
        ("{kind: napi, interface: nosuch0}", "there is no interface nosuch0"),
        ("{kind: interrupt, interface: lo}", "lo has no interrupt of its own"),
        ("{kind: softirq, cpu: 8191}", "there is no softirq thread of a CPU 8191"),
    ];
    let mut worker = worker();
    let pid = worker.child.id();
    let before = state(pid);
    let (journal, mut model) = model();
    for (member, message) in cases {
        let groups = format!(
            "{{name: top, policy: sequential, members: [{{is: {{kind: process, pid: {pid}}}}}, \
             {{is: {member}}}]}}"
        );
        let error = model.switch(&plan_of(&groups)).unwrap_err().to_string();
        assert!(error.ends_with(message), "{error}");
        assert_eq!(state(pid), before, "{error}");
    }
    let own = format!(
        "{{name: top, policy: sequential, members: [{{is: {{kind: process, pid: {}}}}}]}}",
        std::process::id()
    );
    let error = model.switch(&plan_of(&own)).unwrap_err().to_string();
    assert!(error.contains("is this program itself"), "{error}");
    let cpu =
        "{name: top, policy: sequential, cpus: 8000, members: [{is: {kind: process, pid: 1}}]}";
    let error = model.switch(&plan_of(cpu)).unwrap_err().to_string();
    assert!(error.contains("there is no CPU 8000 here"), "{error}");
    end(journal, model);
    worker.tell("run");
    assert_eq!(worker.hear(), "ok");
    worker.end();
}
