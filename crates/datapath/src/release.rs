// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Slot-aligned release: a program sleeps until just before its station's slot, computes with the
//! freshest data, sends, and its frame leaves at the start of the slot. The wait for the slot, on
//! average half a cycle, is spent before the message is made instead of after.
//!
//! ```text
//! ---- slot of others ----|<- lead ->|<-- own slot -->|
//!           sleep ... spin ^ send      ^ frame leaves
//! ```
//!
//! A sleep ends late, so the thread spins for the last [`SPIN`] before the release: of a cycle of a
//! millisecond that is less than a tenth of one CPU.
//!
//! [`SlotTimer`] is for a thread that sends itself, of the program or of a C library's user; a
//! talker with many streams has [`next_release`] in its timetable and one sleep for all of them.

use timewire_base::{CyclicWindows, Instant, Span, Tai};
use timewire_sys::clock;

/// How long before the release the thread stops sleeping and spins, since a sleep ends late.
const SPIN: Span = Span::from_us(80);

/// The first release *at or after* an instant: `lead` before a slot starts. `None` without slots.
pub fn next_release(
    windows: &CyclicWindows,
    lead: Span,
    from: Instant<Tai>,
) -> Option<Instant<Tai>> {
    Some(windows.next_start_at_or_after(from.saturating_add(lead))? - lead)
}

/// Wakes its caller a fixed time before each slot of one station.
#[derive(Clone, Debug)]
pub struct SlotTimer {
    windows: CyclicWindows,
    lead: Span,
    last: Option<Instant<Tai>>,
    /// Whether the thread's sleeps end as exactly as the kernel can.
    exact: bool,
}

impl SlotTimer {
    /// A timer for these windows that releases `lead` before each starts.
    pub fn new(windows: CyclicWindows, lead: Span) -> SlotTimer {
        SlotTimer { windows, lead, last: None, exact: false }
    }

    /// The next release: `lead` before the first slot that starts strictly after the last slot
    /// released for, and whose release is still ahead of `now`. `None` without slots.
    pub fn next_after(&self, now: Instant<Tai>) -> Option<Instant<Tai>> {
        let after_last = self.last.map(|last| last.saturating_add(Span::from_ns(1)) - self.lead);
        let from = after_last.map_or(now, |after| after.max(now));
        next_release(&self.windows, self.lead, from)
    }

    /// Sleeps, then spins, until the next release; returns when it was due. One slot is released
    /// for once. `None`, at once, without slots.
    ///
    /// Takes the calling thread's timer slack away, which lets a sleep end 50 us late.
    pub fn wait(&mut self) -> Option<Instant<Tai>> {
        if !self.exact {
            // Where it is refused, spinning makes up for it.
            let _ = clock::set_timer_slack(Span::from_ns(1));
            self.exact = true;
        }
        let due = self.next_after(clock::now())?;
        self.last = Some(due + self.lead);
        // In virtual time a sleep ends exactly, and spinning only makes time pass.
        clock::sleep_until(if clock::is_virtual() { due } else { due - SPIN });
        while clock::now::<Tai>() < due {
            std::hint::spin_loop();
        }
        Some(due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use timewire_base::Window;

    fn at(us: i64) -> Instant<Tai> {
        Instant::from_ns(us * 1_000)
    }

    fn timer() -> SlotTimer {
        let slot = Window { offset: Span::from_us(260), length: Span::from_us(220) };
        let windows = CyclicWindows::new(at(0), Span::from_us(1_040), vec![slot]).unwrap();
        SlotTimer::new(windows, Span::from_us(40))
    }

    #[test]
    fn t0_release_comes_before_the_slot() {
        assert_eq!(timer().next_after(at(0)), Some(at(220)));
        assert_eq!(timer().next_after(at(220)), Some(at(220)));
        assert_eq!(timer().next_after(at(221)), Some(at(1_260)));
    }

    #[test]
    fn t0_a_slot_is_released_for_once() {
        let mut timer = timer();
        timer.last = Some(at(260));
        assert_eq!(timer.next_after(at(200)), Some(at(1_260)));
        assert_eq!(timer.next_after(at(1_261)), Some(at(2_300)));
    }

    #[test]
    fn t0_without_slots_there_is_nothing_to_wait_for() {
        let never = CyclicWindows::new(at(0), Span::from_us(10), vec![]).unwrap();
        assert_eq!(SlotTimer::new(never, Span::ZERO).wait(), None);
    }

    #[test]
    fn t0_waiting_never_ends_before_the_release() {
        let every_ms = Window { offset: Span::ZERO, length: Span::from_us(100) };
        let windows = CyclicWindows::new(at(0), Span::from_ms(1), vec![every_ms]).unwrap();
        let mut timer = SlotTimer::new(windows, Span::from_us(40));
        let first = timer.wait().unwrap();
        assert!(clock::now::<Tai>() >= first);
        let second = timer.wait().unwrap();
        assert!(second > first && clock::now::<Tai>() >= second);
    }
}
