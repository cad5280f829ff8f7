// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From one model to another in single steps: who stays, who changes, who joins, who leaves.
//!
//! Reservations are let go first, because the kernel admits the new ones only when all fit; all
//! others leave when the new order stands. Programs that are not in the new model end after the
//! last step that can fail.

use std::fmt;

use timewire_tsn::groups::Scheduling;

use super::hold::{Given, Held};
use super::resolve::{Wanted, Who};

/// Somebody as the new model wants it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Desired {
    pub key: String,
    pub wanted: Wanted,
    pub given: Given,
}

/// One step of a switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub(crate) what: What,
    words: String,
}

/// What is done; numbers are indices of who is held now, and of who is desired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Leave(usize),
    Join(usize),
    Change(usize, usize),
    /// What it has cannot be changed in place.
    Again(usize, usize),
    Windows,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

/// The steps, and the programs that end after them.
pub(crate) fn steps(held: &[Held], desired: &[Desired]) -> (Vec<Step>, Vec<usize>) {
    let mut taken = vec![false; held.len()];
    let mut middle = Vec::new();
    let mut first = Vec::new();
    for (to, desired) in desired.iter().enumerate() {
        let is_it = |(i, held): &(usize, &Held)| !taken[*i] && is_same(held, &desired.wanted);
        let found = held.iter().enumerate().find(is_it);
        let Some((from, now)) = found else {
            middle.push(step(What::Join(to), format!("join {}", words(&desired.wanted))));
            continue;
        };
        taken[from] = true;
        if now.given == desired.given && now.key == desired.key {
            continue;
        }
        if now.can_change_to(&desired.given) {
            let text = format!("give {} {}", now.who, desired.given.scheduling);
            middle.push(step(What::Change(from, to), text));
        } else {
            let text = format!("let {} join again", now.who);
            middle.push(step(What::Again(from, to), text));
        }
    }
    let mut last = Vec::new();
    let mut ends = Vec::new();
    for (from, held) in held.iter().enumerate().filter(|(from, _)| !taken[*from]) {
        let leave = step(What::Leave(from), format!("let {} go", held.who));
        match (&held.who, held.given.scheduling) {
            (Who::Program { .. }, _) => ends.push(from),
            (_, Scheduling::Deadline { .. }) => first.push(leave),
            _ => last.push(leave),
        }
    }
    let windows = step(What::Windows, "open and close other windows".to_owned());
    let all = first.into_iter().chain(middle).chain([windows]).chain(last);
    (all.collect(), ends)
}

fn step(what: What, words: String) -> Step {
    Step { what, words }
}

fn is_same(held: &Held, wanted: &Wanted) -> bool {
    match (wanted, &held.who) {
        (Wanted::There(who), held) => who == held,
        (Wanted::Program(run), Who::Program { run: running, process }) => {
            run == running && process.is_alive()
        }
        (Wanted::Program(_), _) => false,
    }
}

fn words(wanted: &Wanted) -> String {
    match wanted {
        Wanted::There(who) => who.to_string(),
        Wanted::Program(run) => format!("program `{}`", run.join(" ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use timewire_base::Span;
    use timewire_sys::namespace::Process;

    fn who(pid: u32) -> Who {
        Who::Process(Process { pid, start_ticks: 1 })
    }

    fn given(priority: u8) -> Given {
        Given { scheduling: Scheduling::Fifo { priority }, cpus: None, windowed: false }
    }

    fn reserved() -> Given {
        let ms = Span::from_ms(1);
        let scheduling = Scheduling::Deadline { runtime: ms, deadline: ms, period: ms };
        Given { scheduling, ..given(1) }
    }

    fn held(pid: u32, given: Given) -> Held {
        Held::new(&format!("k{pid}"), who(pid), given)
    }

    fn desired(pid: u32, given: Given) -> Desired {
        Desired { key: format!("k{pid}"), wanted: Wanted::There(who(pid)), given }
    }

    #[test]
    fn t0_who_stays_as_it_is_is_left_alone() {
        let now = [held(1, given(5)), held(2, given(6)), held(3, given(7)), held(4, reserved())];
        let then = [desired(5, given(9)), desired(2, given(6)), desired(1, given(8))];
        let (steps, ends) = steps(&now, &then);
        let words: Vec<String> = steps.iter().map(Step::to_string).collect();
        assert_eq!(
            words,
            [
                "let process 4 go",
                "join process 5",
                "give process 1 SCHED_FIFO 8",
                "open and close other windows",
                "let process 3 go",
            ]
        );
        assert!(ends.is_empty());
    }

    #[test]
    fn t0_what_cannot_be_changed_in_place_joins_again() {
        let now = [held(1, given(5))];
        let (steps, _) = steps(&now, &[desired(1, reserved())]);
        assert_eq!(steps[0].what, What::Again(0, 0));
    }
}
