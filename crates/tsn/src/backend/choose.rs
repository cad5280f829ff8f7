// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which backend is taken, from what was tried. Kernels are not judged by their version: what
//! counts is what a station did when it was given each of them.

use thiserror::Error;

use super::TransmitBackend;

/// What the user wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// The best one that works.
    Auto,
    /// This one and no other.
    Only(TransmitBackend),
}

/// What came of trying one in a station.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tried {
    /// It does what it promises.
    Works,
    /// It carries frames, but not as it promises: what is wrong.
    Lacks(String),
    /// The kernel does not have it: what is missing.
    Missing(String),
    /// The kernel has it, and it does not carry frames, or cannot carry this schedule: why not.
    Fails(String),
}

/// The backend that is taken, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Which one.
    pub backend: TransmitBackend,
    /// Why this one.
    pub why: String,
    /// What is wrong with it; empty when nothing is.
    pub lacks: String,
    /// All others, the best first, when there was a choice.
    pub passed_over: Vec<PassedOver>,
}

/// A backend that was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassedOver {
    /// Which one.
    pub backend: TransmitBackend,
    /// Why not.
    pub why: String,
}

/// No backend can be taken.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}", .0.iter().map(text).collect::<Vec<_>>().join("; "))]
pub struct NoneWorks(pub Vec<PassedOver>);

fn text(passed: &PassedOver) -> String {
    format!("{}: {}", passed.backend, passed.why)
}

/// Takes one. A backend that was not tried counts as missing.
///
/// Automatically, one that does what it promises goes before any that does not, and within both
/// the order is that of [`TransmitBackend::BY_PREFERENCE`].
///
/// **Errors**: what was asked for cannot be had.
pub fn choose(asked: Asked, tried: &[(TransmitBackend, Tried)]) -> Result<Choice, NoneWorks> {
    let outcome = |backend| {
        let found = tried.iter().find(|(known, _)| *known == backend);
        found.map_or_else(|| Tried::Missing("it was not tried".to_owned()), |(_, t)| t.clone())
    };
    if let Asked::Only(backend) = asked {
        let lacks = match outcome(backend) {
            Tried::Works => String::new(),
            Tried::Lacks(what) => what,
            Tried::Missing(why) | Tried::Fails(why) => {
                return Err(NoneWorks(vec![PassedOver { backend, why }]));
            }
        };
        let why = "it was asked for".to_owned();
        return Ok(Choice { backend, why, lacks, passed_over: Vec::new() });
    }
    let all = || TransmitBackend::BY_PREFERENCE.into_iter();
    let works = all().find(|&backend| outcome(backend) == Tried::Works);
    let usable = || all().find(|&backend| matches!(outcome(backend), Tried::Lacks(_)));
    let reason = |backend: TransmitBackend| match outcome(backend) {
        Tried::Works => backend.shortcoming().to_owned(),
        Tried::Lacks(why) | Tried::Missing(why) | Tried::Fails(why) => why,
    };
    let Some(backend) = works.or_else(usable) else {
        let passed = all().map(|backend| PassedOver { backend, why: reason(backend) });
        return Err(NoneWorks(passed.collect()));
    };
    let lacks = match outcome(backend) {
        Tried::Lacks(what) => what,
        _ => String::new(),
    };
    let why = match backend {
        _ if !lacks.is_empty() => "it is the best that carries frames at all here",
        TransmitBackend::Taprio => "it is the best of all, and works here",
        _ => "it is the best that works here",
    };
    let passed = all().filter(|other| *other != backend);
    let passed = passed.map(|backend| PassedOver { backend, why: reason(backend) });
    Ok(Choice { backend, why: why.to_owned(), lacks, passed_over: passed.collect() })
}

#[cfg(test)]
mod tests {
    use super::TransmitBackend::{Cbs, Etf, Mac, Taprio, TaprioAssist};
    use super::*;

    fn missing() -> Tried {
        Tried::Missing("unknown kind".to_owned())
    }

    fn lacks() -> Tried {
        Tried::Lacks("best effort goes first".to_owned())
    }

    /// What was tried, and what is taken of it.
    #[test]
    fn t0_the_best_that_does_what_it_promises_is_taken() {
        use Tried::Works;
        let table = [
            ([Works, Works, Works, Works, Works], Some((Taprio, ""))),
            ([lacks(), Works, Works, Works, Works], Some((TaprioAssist, ""))),
            ([missing(), Works, Works, Works, Works], Some((TaprioAssist, ""))),
            ([missing(), missing(), Works, missing(), missing()], Some((Mac, ""))),
            ([lacks(), missing(), Works, Works, Works], Some((Mac, ""))),
            ([missing(), missing(), missing(), Works, Works], Some((Etf, ""))),
            ([missing(), missing(), missing(), missing(), Works], Some((Cbs, ""))),
            // One that does what it promises goes before a better one that does not.
            ([lacks(), missing(), missing(), missing(), Works], Some((Cbs, ""))),
            (
                [lacks(), missing(), missing(), missing(), missing()],
                Some((Taprio, "best effort goes first")),
            ),
            ([missing(), missing(), missing(), missing(), missing()], None),
        ];
        for (tried, expected) in table {
            let tried: Vec<_> = TransmitBackend::BY_PREFERENCE.into_iter().zip(tried).collect();
            let taken = choose(Asked::Auto, &tried);
            let found = taken.as_ref().ok().map(|choice| (choice.backend, choice.lacks.as_str()));
            assert_eq!(found, expected, "{tried:?}");
            let Ok(choice) = taken else { continue };
            // Everyone else is accounted for, in order, with a reason.
            assert_eq!(choice.passed_over.len(), 4);
            assert!(choice.passed_over.iter().map(|passed| passed.backend).is_sorted());
            assert!(choice.passed_over.iter().all(|passed| !passed.why.is_empty()));
        }
    }

    #[test]
    fn t0_reasons_are_those_of_the_trial_or_of_the_backend() {
        let tried = [(Taprio, missing()), (TaprioAssist, lacks()), (Mac, Tried::Works)];
        let choice = choose(Asked::Auto, &tried).unwrap();
        assert_eq!((choice.backend, choice.why.as_str()), (Mac, "it is the best that works here"));
        let whys: Vec<_> = choice.passed_over.iter().map(|passed| passed.why.as_str()).collect();
        assert_eq!(
            whys,
            ["unknown kind", "best effort goes first", "it was not tried", "it was not tried"]
        );
        let all: Vec<_> = TransmitBackend::BY_PREFERENCE.map(|c| (c, Tried::Works)).to_vec();
        let choice = choose(Asked::Auto, &all).unwrap();
        let etf = choice.passed_over.iter().find(|passed| passed.backend == Etf).unwrap();
        assert_eq!(etf.why, "it leaves best effort without gates");
    }

    #[test]
    fn t0_what_was_asked_for_is_taken_or_nothing() {
        let tried = [(Taprio, lacks()), (Mac, Tried::Works), (Cbs, missing())];
        let choice = choose(Asked::Only(Taprio), &tried).unwrap();
        assert_eq!((choice.backend, choice.lacks.as_str()), (Taprio, "best effort goes first"));
        assert_eq!(choice.passed_over, []);
        let refused = choose(Asked::Only(Cbs), &tried).unwrap_err();
        assert_eq!(refused.to_string(), "cbs: unknown kind");
        let refused = choose(Asked::Auto, &[(Taprio, missing())]).unwrap_err().to_string();
        assert!(
            refused.starts_with("taprio: unknown kind; taprio-assist: it was not"),
            "{refused}"
        );
    }
}
