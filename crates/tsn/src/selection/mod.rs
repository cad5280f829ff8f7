// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Transmission selection: of the queues in which a frame waits, which one may send now. The rule
//! stands here once; what holds a frame back are parts beside it: the windows of a station on a
//! shared segment ([`tdm`]), the gates of classes ([`gates`]), credit ([`credit`]).
//!
//! Both who send on real interfaces ([`crate::Machine`]) and the ports of simulated networks
//! ([`crate::port::Port`]) select by [`select`]; each has the parts that it needs.
//!
//! **Source**: IEEE 802.1Q-2022, 8.6.8.
//!
//! Not here: the queues, and what follows of a choice (`machine`, `port`).

pub(crate) mod credit;
pub(crate) mod gates;
pub(crate) mod tdm;

/// What a part has against the first frame of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held<W> {
    /// It may go at another time.
    Until(W),
    /// It is longer than everything that will ever be open for it.
    NeverFits,
}

/// What to do with the frames that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice<Q, W> {
    /// The first frame of this queue goes now.
    Send(Q),
    /// The first frame of this queue can never go.
    NeverFits(Q),
    /// Nothing goes before this.
    Wait(W),
}

/// When to look again.
pub(crate) trait LookAgain: Sized {
    /// Time alone changes nothing.
    const NEVER: Self;

    /// The sooner of two.
    fn sooner(self, other: Self) -> Self;
}

/// The caller knows it from something that holds for all queues.
impl LookAgain for () {
    const NEVER: () = ();

    #[inline(always)]
    fn sooner(self, (): ()) {}
}

/// The first of some queues, the most urgent first, whose first frame nothing holds back.
///
/// One that never fits is an end, too: it is dropped before a less urgent queue is asked, since the
/// frame behind it may fit.
#[inline(always)]
pub(crate) fn select<Q: Copy, W: LookAgain>(
    queues: impl Iterator<Item = Q>,
    mut may_go: impl FnMut(Q) -> Result<(), Held<W>>,
) -> Choice<Q, W> {
    let mut wait = W::NEVER;
    for queue in queues {
        match may_go(queue) {
            Ok(()) => return Choice::Send(queue),
            Err(Held::NeverFits) => return Choice::NeverFits(queue),
            Err(Held::Until(when)) => wait = wait.sooner(when),
        }
    }
    Choice::Wait(wait)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What a part says of a queue; times are numbers.
    type Says = Result<(), Held<Time>>;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Time(u8);

    impl LookAgain for Time {
        const NEVER: Time = Time(u8::MAX);

        fn sooner(self, other: Time) -> Time {
            Time(self.0.min(other.0))
        }
    }

    fn says() -> impl Strategy<Value = Says> {
        prop_oneof![
            Just(Ok(())),
            Just(Err(Held::NeverFits)),
            (0..9_u8).prop_map(|at| Err(Held::Until(Time(at)))),
        ]
    }

    #[test]
    fn t0_nothing_waits_for_ever() {
        let none = std::iter::empty::<usize>();
        assert_eq!(select(none, |_| Ok::<(), Held<Time>>(())), Choice::Wait(Time::NEVER));
    }

    proptest! {
        /// Nobody is passed over but who has to wait, and nobody is asked after the end.
        #[test]
        fn t0_only_who_has_to_wait_is_passed_over(
            all in proptest::collection::vec(says(), 0..6),
        ) {
            let mut asked = Vec::new();
            let choice = select(0..all.len(), |queue| {
                asked.push(queue);
                all[queue]
            });
            let waits = |said: &Says| matches!(said, Err(Held::Until(_)));
            let first = all.iter().position(|said| !waits(said));
            let expected = match first.map(|queue| (queue, all[queue])) {
                Some((queue, Ok(()))) => Choice::Send(queue),
                Some((queue, Err(_))) => Choice::NeverFits(queue),
                None => {
                    let times = all.iter().filter_map(|said| match said {
                        Err(Held::Until(Time(at))) => Some(*at),
                        _ => None,
                    });
                    Choice::Wait(Time(times.min().unwrap_or(u8::MAX)))
                }
            };
            prop_assert_eq!(choice, expected);
            let until = first.map_or(all.len(), |queue| queue + 1);
            prop_assert_eq!(asked, (0..until).collect::<Vec<_>>());
        }
    }
}
