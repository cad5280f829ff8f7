// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The search for the smallest delta of `etf` with which no frame is missed: doubling until none
//! is, halving between what missed and what did not, and a longer run that has to confirm it.

use timewire_base::Span;

use super::result::Trial;

/// How the search goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Search {
    /// Where it begins.
    pub(super) from: Span,
    /// What is too much.
    pub(super) most: Span,
    /// Frames of each trial.
    pub(super) frames: u64,
    /// Frames of the run that confirms.
    pub(super) confirm: u64,
}

/// Tries deltas; the smallest found, `None` when all up to the most missed frames, or the search
/// was ended: `attempt` returns `None` then.
///
/// The answer is at most a 16th above one that missed frames, before it was confirmed.
///
/// **Errors**: those of `attempt`.
pub(super) fn smallest<E>(
    search: Search,
    mut attempt: impl FnMut(Span, u64) -> Result<Option<Trial>, E>,
) -> Result<Option<Span>, E> {
    let mut works =
        |delta: Span, frames: u64| Ok(attempt(delta, frames)?.map(|trial| trial.missed == 0));
    // With none at all a frame is late when its timer has come.
    let mut misses = 0;
    let mut keeps = search.from.as_ns().max(1);
    loop {
        match works(Span::from_ns(keeps), search.frames)? {
            None => return Ok(None),
            Some(true) => break,
            Some(false) if keeps >= search.most.as_ns() => return Ok(None),
            Some(false) => {
                misses = keeps;
                keeps = (keeps * 2).min(search.most.as_ns());
            }
        }
    }
    while keeps - misses > (keeps / 16).max(1) {
        let middle = misses + (keeps - misses) / 2;
        match works(Span::from_ns(middle), search.frames)? {
            None => return Ok(None),
            Some(true) => keeps = middle,
            Some(false) => misses = middle,
        }
    }
    loop {
        match works(Span::from_ns(keeps), search.confirm)? {
            None => return Ok(None),
            Some(true) => return Ok(Some(Span::from_ns(keeps))),
            Some(false) if keeps >= search.most.as_ns() => return Ok(None),
            Some(false) => keeps = (keeps + (keeps / 8).max(1)).min(search.most.as_ns()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    const SEARCH: Search =
        Search { from: Span::from_us(130), most: Span::from_ms(10), frames: 100, confirm: 400 };

    /// A host that needs this in a short run, and that in a long one.
    fn found(short: i64, long: i64) -> (Option<i64>, Vec<Trial>) {
        let mut trials = Vec::new();
        let found = smallest(SEARCH, |delta, frames| {
            let needed = if frames == SEARCH.frames { short } else { long };
            let missed = u64::from(delta.as_ns() < needed);
            trials.push(Trial { delta_ns: delta.as_ns(), frames, missed, invalid: 0 });
            Ok::<_, Infallible>(trials.last().copied())
        });
        (found.unwrap().map(Span::as_ns), trials)
    }

    #[test]
    fn t0_the_smallest_delta_is_found_to_a_16th_and_confirmed() {
        for needed in [1, 2, 512, 9_999, 130_000, 130_001, 777_777, 10_000_000] {
            let (found, trials) = found(needed, needed);
            let found = found.unwrap();
            assert!(found >= needed && found - needed <= found / 16, "{needed}: {found}");
            let last = trials.last().unwrap();
            assert_eq!((last.delta_ns, last.frames, last.missed), (found, 400, 0));
            assert!(trials.len() < 30, "{needed}: {} trials", trials.len());
        }
    }

    #[test]
    fn t0_a_longer_run_can_ask_for_more() {
        let (found, trials) = found(1_000, 3_000);
        let found = found.unwrap();
        assert!((3_000..3_400).contains(&found), "{found}");
        assert!(trials.iter().filter(|trial| trial.frames == 400).count() > 5);
    }

    #[test]
    fn t0_what_is_too_much_is_not_found() {
        let (nothing, trials) = found(10_000_001, 1);
        assert_eq!(nothing, None);
        assert_eq!(trials.last().unwrap().delta_ns, 10_000_000);
        let ended = smallest(SEARCH, |_, _| Ok::<_, Infallible>(None));
        assert_eq!(ended, Ok(None));
    }
}
