// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whatever kills the process that changed the host, the host ends as it was.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking; it has a main of its own")]

mod harness;

use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::thread;

use harness::{Role, hear_line, scratch, wait_until, watchdog_of};
use timewire_base::{Failure, IfName};
use timewire_host::group::{Group, MemberId};
use timewire_host::journal::Journal;
use timewire_host::tool::{self, Tool, netns_path};
use timewire_host::{HostError, Undo, recover, watchdog};
use timewire_sys::namespace::{self, Namespace, Process};
use timewire_sys::scheduler::{self, Attributes, RtPriority};

fn main() -> ExitCode {
    harness::main(
        &[
            ("t3_the_normal_end_undoes_all_and_leaves_no_watchdog", normal_end),
            ("t3_the_watchdog_undoes_when_its_owner_is_killed", owner_killed),
            ("t3_the_next_start_undoes_when_the_watchdog_is_killed_too", both_killed),
            ("t3_links_are_undone_in_the_namespace_of_their_owner", other_namespace),
            ("t3_links_of_a_namespace_that_is_gone_are_gone", namespace_gone),
            ("t3_a_live_owner_is_not_recovered", live_owner),
            ("t3_no_watchdog_no_journal", no_watchdog),
            ("t3_what_cannot_be_undone_stays_in_the_journal", not_undone),
            ("t3_a_group_gives_priority_and_restores_exactly", group_restores),
            ("t3_a_group_says_what_is_wrong", group_errors),
            ("t3_without_privilege_nothing_changes", group_without_privilege),
        ],
        &[
            ("owner", role_owner),
            ("link-owner", role_link_owner),
            ("broken-watchdog", role_broken_watchdog),
            ("obstacle", role_obstacle),
            ("worker", role_worker),
            ("group-error", role_group_error),
        ],
    )
}

/// Makes a file, undone by removing it. Says the journal's path; ends when told.
fn role_owner(arguments: &[String]) {
    let journal = Journal::begin("a test").unwrap();
    let path = PathBuf::from(&arguments[0]);
    journal.record(Undo::RemoveFile { path: path.clone() }).unwrap();
    fs::write(path, "").unwrap();
    println!("{}", journal.path().display());
    hear_line();
}

fn normal_end() {
    let file = scratch("normal");
    let mut owner = Role::start("owner", &[file.to_str().unwrap()]);
    let journal = owner.hear();
    assert!(file.exists() && Path::new(&journal).exists() && watchdog_of(&journal).is_some());
    owner.end();
    assert!(!file.exists() && !Path::new(&journal).exists() && watchdog_of(&journal).is_none());
}

fn owner_killed() {
    let file = scratch("killed");
    let mut owner = Role::start("owner", &[file.to_str().unwrap()]);
    let journal = owner.hear();
    let watchdog = watchdog_of(&journal).unwrap();
    for signal in ["INT", "TERM", "HUP", "QUIT"] {
        let kill = format!("kill -{signal} {}", watchdog.pid);
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    }
    assert!(watchdog.is_alive() && file.exists());
    owner.kill();
    wait_until("the watchdog is done", || !watchdog.is_alive());
    assert!(!file.exists() && !Path::new(&journal).exists());
}

fn both_killed() {
    let file = scratch("both");
    let mut owner = Role::start("owner", &[file.to_str().unwrap()]);
    let journal = owner.hear();
    let watchdog = watchdog_of(&journal).unwrap();
    watchdog.kill().unwrap();
    wait_until("the watchdog is gone", || !watchdog.is_alive());
    owner.kill();
    assert!(file.exists());
    let found = recover().unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].owner, found[0].title.as_str()), (owner.child.id(), "a test"));
    assert_eq!(found[0].undone, [format!("remove {}", file.display())]);
    assert!(!file.exists() && !Path::new(&journal).exists());
    assert!(recover().unwrap().is_empty());
}

/// Makes an interface in a named network namespace. Says the journal's path; ends when told.
fn role_link_owner(arguments: &[String]) {
    let netns = fs::File::open(netns_path(&arguments[0])).unwrap();
    namespace::enter_network(netns.as_fd()).unwrap();
    let journal = Journal::begin("a link").unwrap();
    let undo = Undo::DeleteLink { netns: None, name: IfName::new("twlink").unwrap() };
    journal.record(undo).unwrap();
    ip("link add twlink type veth peer name twpeer");
    println!("{}", journal.path().display());
    hear_line();
}

fn ip(line: &str) {
    tool::batch(Tool::Ip, None, &[line.to_owned()]).unwrap();
}

/// A namespace with an interface whose owner and watchdog are dead.
fn orphaned_link(name: &str) {
    ip(&format!("netns add {name}"));
    let mut owner = Role::start("link-owner", &[name]);
    let journal = owner.hear();
    let watchdog = watchdog_of(&journal).unwrap();
    watchdog.kill().unwrap();
    wait_until("the watchdog is gone", || !watchdog.is_alive());
    owner.kill();
}

/// Runs a test in a network namespace of its own that has an interface of the orphan's name.
fn beside_a_namesake(test: fn()) {
    let inside = || {
        namespace::unshare(&[Namespace::Network]).unwrap();
        ip("link add twlink type veth peer name twpeer");
        test();
        tool::run(Tool::Ip, &["link", "show", "twlink"]).unwrap();
    };
    thread::scope(|scope| scope.spawn(inside).join()).unwrap();
}

fn other_namespace() {
    beside_a_namesake(|| {
        orphaned_link("orphan");
        tool::run(Tool::Ip, &["-n", "orphan", "link", "show", "twlink"]).unwrap();
        let found = recover().unwrap();
        assert_eq!(found[0].undone, ["delete interface twlink"], "{found:?}");
        assert!(tool::run(Tool::Ip, &["-n", "orphan", "link", "show", "twlink"]).is_err());
        ip("netns del orphan");
    });
}

fn namespace_gone() {
    beside_a_namesake(|| {
        orphaned_link("gone");
        ip("netns del gone");
        let found = recover().unwrap();
        assert_eq!(found[0].failures, [""; 0], "{found:?}");
        assert!(recover().unwrap().is_empty());
    });
}

fn live_owner() {
    let file = scratch("live");
    let mut owner = Role::start("owner", &[file.to_str().unwrap()]);
    let journal = owner.hear();
    assert!(recover().unwrap().is_empty());
    watchdog_of(&journal).unwrap().kill().unwrap();
    assert!(recover().unwrap().is_empty());
    assert!(file.exists());
    owner.end();
    assert!(!file.exists());
}

fn role_broken_watchdog(_: &[String]) {
    watchdog::set_program("/bin/false".into(), Vec::new());
    println!("{}", Journal::begin("a test").unwrap_err());
}

fn no_watchdog() {
    let mut role = Role::start("broken-watchdog", &[]);
    let said = role.hear();
    assert!(said.starts_with("the watchdog process did not start"), "{said}");
    role.end();
    assert_eq!(fs::read_dir("/run/timewire/journal").unwrap().count(), 0);
}

fn role_obstacle(arguments: &[String]) {
    let journal = Journal::begin("a test").unwrap();
    let path = PathBuf::from(&arguments[0]);
    let file = path.join("made-by-someone-else");
    journal.record(Undo::RemoveDir { path: path.clone() }).unwrap();
    fs::create_dir(&path).unwrap();
    fs::write(&file, "").unwrap();
    println!("{}", journal.path().display());
    println!("{}", journal.finish().unwrap_err());
}

fn not_undone() {
    let dir = scratch("obstacle");
    let mut role = Role::start("obstacle", &[dir.to_str().unwrap()]);
    let journal = role.hear();
    let said = role.hear();
    assert!(
        said.starts_with(&format!("1 change was not undone; the journal is {journal}")),
        "{said}"
    );
    role.end();
    let found = recover().unwrap();
    assert_eq!((found[0].undone.len(), found[0].failures.len()), (0, 1));
    assert!(Path::new(&journal).exists());
    fs::remove_file(dir.join("made-by-someone-else")).unwrap();
    assert_eq!(recover().unwrap()[0].failures.len(), 0);
    assert!(!dir.exists() && !Path::new(&journal).exists());
}

/// A process with threads of different scheduling; starts another thread whenever it is told.
fn role_worker(_: &[String]) {
    let nice = Attributes { nice: 7, ..Attributes::default() };
    let batch = Attributes { policy: 3, nice: 3, flags: 1, ..Attributes::default() };
    let round_robin = Attributes { policy: 2, rt_priority: 5, ..Attributes::default() };
    let idle = Attributes { policy: 5, ..Attributes::default() };
    for attributes in [nice, batch, round_robin, idle] {
        start_thread(move || {
            scheduler::set_attributes(0, &attributes).unwrap();
            scheduler::set_affinity(0, &scheduler::affinity(0).unwrap()[..1]).unwrap();
        });
    }
    println!("ready");
    while hear_line().is_some() {
        start_thread(|| {});
        println!("started");
    }
}

/// A thread that prepares itself and then lives as long as the process; returns when it is ready.
fn start_thread(prepare: impl FnOnce() + Send + 'static) {
    let (ready, wait) = std::sync::mpsc::channel();
    thread::spawn(move || {
        prepare();
        ready.send(()).unwrap();
        loop {
            thread::park();
        }
    });
    wait.recv().unwrap();
}

/// What all threads of a process have, by thread number.
fn all_of(pid: u32) -> Vec<(u32, Attributes, Vec<u32>)> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let mut tids: Vec<u32> =
        entries.map(|entry| entry.file_name().to_str().unwrap().parse().unwrap()).collect();
    tids.sort_unstable();
    let all = tids
        .into_iter()
        .map(|tid| (tid, scheduler::attributes(tid).unwrap(), scheduler::affinity(tid).unwrap()));
    all.collect()
}

fn priority() -> RtPriority {
    RtPriority::new(20).unwrap()
}

fn group_restores() {
    let mut worker = Role::start("worker", &[]);
    assert_eq!(worker.hear(), "ready");
    let pid = worker.child.id();
    let before = all_of(pid);
    let mut group = Group::new(Arc::new(Journal::begin("a test").unwrap()), priority());
    let id = group.add(pid, None).unwrap();
    assert_eq!(group.members().unwrap()[0].threads, 5);
    for ((_, now, cpus), (_, was, cpus_before)) in all_of(pid).iter().zip(&before) {
        assert!(now.is_fifo(priority()), "{now:?}");
        assert_eq!((now.flags, cpus), (was.flags, cpus_before));
    }
    worker.tell("another thread");
    assert_eq!(worker.hear(), "started");
    assert!(all_of(pid).iter().all(|(_, now, _)| now.is_fifo(priority())));
    group.remove(id).unwrap();
    let after = all_of(pid);
    assert_eq!(after[..5], before[..]);
    assert_eq!((after[5].1, &after[5].2), (before[0].1, &before[0].2));
    let first_cpu = &before[0].2[..1];
    let second = group.add(pid, Some(first_cpu)).unwrap();
    assert!(second > id);
    assert!(all_of(pid).iter().all(|(_, _, cpus)| cpus == first_cpu));
    drop(group);
    assert_eq!(all_of(pid), after);
    worker.end();
}

fn group_errors() {
    let mut group = Group::new(Arc::new(Journal::begin("a test").unwrap()), priority());
    let mut worker = Role::start("worker", &[]);
    assert_eq!(worker.hear(), "ready");
    let pid = worker.child.id();
    let error = |result: Result<MemberId, HostError>| result.unwrap_err().to_string();
    assert_eq!(error(group.add(4_194_305, None)), "there is no process 4194305");
    assert!(error(group.add(std::process::id(), None)).contains("this program itself"));
    let id = group.add(pid, None).unwrap();
    assert!(error(group.add(pid, None)).contains(&format!("a member already, with id {id}")));
    let none = group.remove(MemberId::new(77)).unwrap_err().to_string();
    assert_eq!(none, format!("the group has no member 77; its members are {id}"));
    let before = all_of(std::process::id());
    worker.end();
    assert!(group.members().unwrap().is_empty());
    assert_eq!(
        group.remove(id).unwrap_err().to_string(),
        format!("the group has no member {id}; it is empty")
    );
    let gone = Process { pid, start_ticks: 1 };
    assert!(!gone.is_alive());
    assert_eq!(all_of(std::process::id()), before);
}

/// Tries what needs privilege; says the error and its hint.
fn role_group_error(arguments: &[String]) {
    let mut group = Group::new(Arc::new(Journal::begin("a test").unwrap()), priority());
    let error = group.add(arguments[0].parse().unwrap(), None).unwrap_err();
    println!("{error}");
    println!("{}", error.hint().unwrap_or_default());
}

fn group_without_privilege() {
    let mut worker = Role::start("worker", &[]);
    assert_eq!(worker.hear(), "ready");
    let pid = worker.child.id();
    let before = all_of(pid);
    let dir = scratch("nobody");
    let program = dir.join("program");
    fs::create_dir(&dir).unwrap();
    fs::copy("/proc/self/exe", &program).unwrap();
    std::os::unix::fs::chown(&dir, Some(65_534), Some(65_534)).unwrap();
    let mut nobody = Role::spawn(
        Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(&program)
            .args(["role", "group-error", &pid.to_string()])
            .env("XDG_RUNTIME_DIR", &dir),
    );
    let (error, hint) = (nobody.hear(), nobody.hear());
    assert_eq!(
        error,
        format!(
            "cannot change the scheduling of process {pid}: Operation not permitted (os error 1)"
        )
    );
    assert!(hint.contains("CAP_SYS_NICE"), "{hint}");
    nobody.end();
    assert_eq!(all_of(pid), before);
    worker.end();
}
