// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a talker's timestamps have been like, to tell packets that are lost from a talker that
//! timestamps at another pace than that of its samples.
//!
//! A number of eight bits says nothing of 256 lost packets; the timestamps do, if they count
//! samples. A talker that timestamps when it sends, in bursts or with pauses, has timestamps that
//! jump though nothing is lost.

use timewire_base::{Instant, Span, Tai};

/// How far timestamps were from the nominal rate, over the last one to two seconds of them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    now: Option<Window>,
    before: Option<Window>,
}

#[derive(Clone, Copy, Debug)]
struct Window {
    begun: Instant<Tai>,
    least: i64,
    most: i64,
}

/// How much timestamps tell for; clocks of talkers that are off by 200 ppm are 400 us off in two.
const WINDOW: Span = Span::from_secs(1);
/// How far the clock of a talker may be off, as one in so many.
const CLOCK: i64 = 5_000;

impl Pace {
    /// Notes how far a timestamp is from the nominal rate.
    pub fn note(&mut self, off: Span, timestamp: Instant<Tai>) {
        let off = off.as_ns();
        match &mut self.now {
            Some(now) if timestamp < now.begun.saturating_add(WINDOW) => {
                (now.least, now.most) = (now.least.min(off), now.most.max(off));
            }
            now => {
                self.before = *now;
                *now = Some(Window { begun: timestamp, least: off, most: off });
            }
        }
    }

    /// How many times 256 packets are missing before one that is so far from the nominal rate, when
    /// a packet takes so long and 256 of them so long.
    ///
    /// None, unless timestamps have kept to the rate so well, and are after those packets where
    /// they would be, that no pace of the talker's explains it.
    pub fn turns(&self, off: Span, packet: Span, turn: Span) -> i64 {
        let Some(now) = self.now else { return 0 };
        let (turn, packet, off) = (turn.as_ns().max(1), packet.as_ns(), off.as_ns());
        let (mut least, mut most) = (now.least, now.most);
        if let Some(before) = self.before {
            (least, most) = (least.min(before.least), most.max(before.most));
        }
        let spread = most.saturating_sub(least);
        let ahead = off.saturating_sub(most);
        let allowed = packet.saturating_add(ahead.max(0) / CLOCK).min(turn / 4);
        if spread > 2 * packet || ahead <= allowed {
            return 0;
        }
        let middle = least.saturating_add(spread / 2);
        let turns = off.saturating_sub(middle).saturating_add(turn / 2).div_euclid(turn);
        let rest = off.saturating_sub(middle).saturating_sub(turns.saturating_mul(turn));
        if rest.saturating_abs() <= allowed.saturating_add(spread / 2) { turns } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_only_what_no_pace_explains_is_taken_for_lost() {
        let (packet, turn) = (Span::from_us(125), Span::from_ms(32));
        let with = |offs: &[i64]| {
            let mut pace = Pace::default();
            for off in offs {
                pace.note(Span::from_us(*off), Instant::from_ns(0));
            }
            pace
        };
        let turns = |pace: &Pace, us: i64| pace.turns(Span::from_us(us), packet, turn);
        assert_eq!(turns(&Pace::default(), 64_000), 0, "nothing is known");
        let regular = with(&[0, 5, -5]);
        for (us, expected) in
            [(0, 0), (120, 0), (32_000, 1), (32_100, 1), (63_950, 2), (-32_000, 0), (48_000, 0)]
        {
            assert_eq!(turns(&regular, us), expected, "{us}");
        }
        // A burst of more than two packets.
        assert_eq!(turns(&with(&[0, -300]), 32_000), 0);
        // Within the clock of a talker that is 150 ppm off: 1024 packets, 19 us.
        assert_eq!(turns(&regular, 128_019), 4);
        assert_eq!(Pace::default().turns(Span::MAX, packet, turn), 0);
        assert_eq!(with(&[i64::MIN / 1_000, 0]).turns(Span::MAX, packet, turn), 0);
    }
}
