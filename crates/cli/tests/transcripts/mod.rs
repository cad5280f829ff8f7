// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The README and the book do what they say: their blocks of commands are executed, in a directory
//! of their own for each page, and print what the page shows.
//!
//! A block whose first word is `console` is executed. Its lines `$ command` are run by `sh`, one
//! after the other; the lines below are what the command prints on both streams. `...`, as a line
//! or in one, stands for anything. A command below which nothing is shown may print anything. A
//! command succeeds, unless the next one is `echo $?`, which then shows how it failed.
//!
//! A block with `<!-- file: NAME -->` on the line above it is written to that file; one with
//! `<!-- keys of: NAME -->` takes the place of the same keys of that file, as the text next to it
//! tells the reader to do. `scenarios` is there, as in a clone of the repository.
//!
//! Notes above a block say how it is executed; readers do not see them either:
//!
//! - `<!-- two hosts -->`, once in a page: the host that it gets has `eth0`, 10.0.0.1 and
//!   02:00:00:00:00:01, to another one, which has `eth0`, 10.0.0.2 and 02:00:00:00:00:02
//! - `<!-- bare system -->`, once in a page: it is for a system with nothing but the packages,
//!   which `scripts/test-packages.sh` makes, and has no `scenarios`; from its first file of its own
//!   on it is executed here, too; `<!-- bare system, too -->`: all of it is
//! - `<!-- on: there -->`: on the other host
//! - `<!-- meanwhile -->`: it goes on during what comes next, and is ended with the page (SIGINT)
//!   and held against it then; `<!-- until: WORDS -->`: what comes next waits until it says them
//! - `<!-- after all -->`: all that goes on ends by itself before
//! - `<!-- or: 1, 4 -->`: other exit codes that are right, where they judge the machine
//! - `<!-- needs: COMMAND -->`: skipped, with the reason, where this fails
//!
//! All other blocks with commands are in `not_executed.txt`, with the reason.
//!
//! Not here: commands in running text and in tables, of which `book` checks that they are there.

mod listed;
mod page;
mod perform;
mod text;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;

use crate::support;
use listed::Listed;
use page::Page;
use perform::{Done, perform};

const NOT_EXECUTED: &str = include_str!("not_executed.txt");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The README and all pages of the book but decisions, which may name what is no more; by name.
fn pages() -> Vec<Page> {
    let mut names = vec!["README.md".to_owned()];
    let mut directories = vec!["docs/src".to_owned()];
    while let Some(directory) = directories.pop() {
        for name in support::list(&root().join(&directory)) {
            let path = format!("{directory}/{name}");
            if name.ends_with(".md") {
                names.push(path);
            } else if name != "adr" && root().join(&path).is_dir() {
                directories.push(path);
            }
        }
    }
    names.sort();
    let read = |name: String| {
        let text = fs::read_to_string(root().join(&name)).unwrap();
        Page::of(&name, &text)
    };
    names.into_iter().map(read).collect()
}

/// Performs pages, as many at a time as there are processors.
fn all(pages: Vec<Page>) -> Done {
    let left = Mutex::new(pages);
    let sum = Mutex::new(Done::default());
    let work = || {
        loop {
            let Some(page) = left.lock().unwrap().pop() else { return };
            let done = perform(&page, &root(), None);
            sum.lock().unwrap().add(done);
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    sum.into_inner().unwrap()
}

/// What is to be executed of each page, of those of a bare system what needs none.
fn to_execute() -> Vec<Page> {
    let all = all_to_execute();
    assert!(all.iter().any(|page| page.system.is_bare()), "no page is about a bare system");
    all.into_iter().map(Page::here).collect()
}

fn all_to_execute() -> Vec<Page> {
    let (mut pages, mut listed) = (pages(), Listed::of(NOT_EXECUTED).unwrap());
    pages.iter_mut().for_each(|page| page.keep_executed(&mut listed));
    pages
}

#[test]
fn t1_every_block_of_commands_is_executed_or_listed_with_a_reason() {
    let (mut pages, mut listed) = (pages(), Listed::of(NOT_EXECUTED).unwrap());
    let mut doubts = Vec::new();
    for page in &mut pages {
        page.keep_executed(&mut listed);
        doubts.extend(page.doubts().map(str::to_owned));
    }
    doubts.extend(listed.unused());
    assert!(doubts.is_empty(), "{}", doubts.join("\n"));
}

#[test]
fn t1_pages_say_what_their_commands_print() {
    let pages = to_execute().into_iter().filter(|page| !page.needs_a_host());
    let done = all(pages.filter_map(Page::until_the_laboratory).collect());
    println!("{done}");
    assert!(done.doubts.is_empty(), "{}", done.doubts.join("\n\n"));
    assert!(done.commands >= MIN_COMMANDS && done.compared >= MIN_COMPARED, "only {done}");
}

/// So many are executed without the laboratory's kernel, at least: a page that loses its blocks, or
/// a reader that does not find them, is no success.
const MIN_COMMANDS: usize = 60;
const MIN_COMPARED: usize = 45;
/// The same of pages with a host, where one can be made.
const MIN_ON_HOSTS: usize = 120;

#[test]
fn t3_pages_of_a_host_say_what_their_commands_print() {
    let pages = to_execute().into_iter().filter(Page::needs_a_host);
    let pages: Vec<Page> = pages.filter_map(Page::until_the_laboratory).collect();
    assert!(!pages.is_empty(), "no page changes a host");
    let done = all(pages);
    println!("{done}");
    assert!(done.doubts.is_empty(), "{}", done.doubts.join("\n\n"));
    assert!(done.pages == 0 || done.commands >= MIN_ON_HOSTS, "only {done}");
}

#[test]
fn t4_pages_of_the_laboratory_say_what_their_commands_print() {
    if !support::has_kernel() {
        return;
    }
    let done = all(to_execute().into_iter().filter(Page::needs_the_laboratory).collect());
    println!("{done}");
    assert!(done.doubts.is_empty(), "{}", done.doubts.join("\n\n"));
    assert!(done.pages > 0, "no page has commands of the laboratory");
}

/// `scripts/test-packages.sh` makes the system, and calls it with the root of that.
#[test]
fn t4_pages_of_a_bare_system_say_what_their_commands_print() {
    let Some(system) = std::env::var_os("TIMEWIRE_BARE_SYSTEM").map(PathBuf::from) else {
        eprintln!("SKIP: slow: scripts/test-packages.sh makes a bare system, and runs it there");
        return;
    };
    let mut done = Done::default();
    for page in all_to_execute().into_iter().filter(|page| page.system.is_bare()) {
        done.add(perform(&page, &root(), Some(&system)));
    }
    println!("{done}");
    assert!(done.doubts.is_empty(), "{}", done.doubts.join("\n\n"));
    assert!(done.compared >= 8, "only {done}");
}
