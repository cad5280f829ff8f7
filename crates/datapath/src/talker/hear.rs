// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a talker makes of what a port tells: whose message it was, and what that counts.

use timewire_base::drops::is_full;

use super::ledger::{Ledger, Timestamped};
use super::live::LiveCounters;
use super::report::StreamCounters;
use super::run::StreamState;
use super::{StreamEvent, StreamEventKind};
use crate::transmit::{Hear, LaunchRefusal, TimestampTime, TxPoint, TxReport};

/// Hears of the messages of one port.
pub(super) struct PortReports<'a, F: FnMut(StreamEvent) + ?Sized> {
    pub(super) ledger: &'a mut Ledger,
    pub(super) lines: &'a mut [StreamState],
    pub(super) by_number: &'a [u32],
    pub(super) live: Option<&'a LiveCounters>,
    /// Timestamps that are expected of each message.
    pub(super) per_message: u32,
    /// The place of the stream that the last report was of, whose counters are not told yet.
    pub(super) last: Option<usize>,
    pub(super) other_errors: &'a mut u64,
    pub(super) unknown_reports: &'a mut u64,
    pub(super) on: &'a mut F,
}

impl<F: FnMut(StreamEvent) + ?Sized> PortReports<'_, F> {
    #[inline]
    fn place(&self, stream: u16) -> usize {
        let place = self.by_number[usize::from(stream)];
        usize::try_from(place).expect("invariant: u32 fits usize")
    }

    /// The last report was of the stream at this place: the one before is told when it is another.
    #[inline]
    fn was_of(&mut self, place: usize) {
        if let Some(before) = self.last.replace(place)
            && before != place
        {
            self.tell(before);
        }
    }

    #[inline(never)]
    fn tell(&mut self, place: usize) {
        if let Some(live) = self.live {
            let line = &mut self.lines[place];
            live.store(place, &line.counters(self.per_message), line.latest());
        }
    }

    fn other(&mut self, report: TxReport) {
        let (entry, what) = match report {
            TxReport::Timestamp { id, point, at } => return self.timestamp(id, point, at),
            TxReport::NotTaken { id, error } => {
                let errno = error.raw_os_error().unwrap_or(0);
                (self.ledger.not_taken(id), StreamEventKind::NotTaken { errno })
            }
            TxReport::LaunchRefused { why, launch } => {
                (self.ledger.refused(launch), StreamEventKind::LaunchRefused { why, launch })
            }
            TxReport::Other { .. } => {
                *self.other_errors += 1;
                return;
            }
        };
        let Some(entry) = entry else {
            *self.unknown_reports += 1;
            return;
        };
        let place = self.place(entry.stream);
        let counters = &mut self.lines[place].counters;
        if let StreamEventKind::LaunchRefused { .. } = what
            && entry.not_taken
        {
            // The call that sent it failed because of its launch time, which is told only now.
            counters.sent += 1;
            counters.not_taken = counters.not_taken.saturating_sub(1);
            counters.timestamps += u64::from(entry.timestamps);
        }
        count(counters, what);
        if let StreamEventKind::NotTaken { .. } = what {
            // Those of the way that it got before it was dropped.
            counters.timestamps = counters.timestamps.saturating_sub(entry.timestamps.into());
        }
        self.was_of(place);
        (self.on)(StreamEvent { stream: entry.stream, seq: entry.seq, what });
    }
}

impl<F: FnMut(StreamEvent) + ?Sized> Hear for PortReports<'_, F> {
    #[inline]
    fn timestamp(&mut self, id: u32, point: TxPoint, at: TimestampTime) {
        match self.ledger.timestamped(id, point, at) {
            Timestamped::First { stream, seq } => {
                let place = self.place(stream);
                self.lines[place].counters.timestamps += 1;
                self.was_of(place);
                let what = StreamEventKind::Timestamp { point, at };
                (self.on)(StreamEvent { stream, seq, what });
            }
            Timestamped::Again => {}
            Timestamped::Unknown => *self.unknown_reports += 1,
        }
    }

    fn report(&mut self, report: TxReport) {
        self.other(report);
    }
}

fn count(counters: &mut StreamCounters, what: StreamEventKind) {
    match what {
        StreamEventKind::Sent { .. }
        | StreamEventKind::Timestamp { .. }
        | StreamEventKind::Skipped { .. } => {}
        StreamEventKind::NotTaken { errno } => {
            counters.sent -= 1;
            if is_full(errno) {
                counters.not_taken += 1;
            } else {
                counters.refused += 1;
            }
        }
        StreamEventKind::LaunchRefused { why: LaunchRefusal::Invalid, .. } => {
            counters.launch_invalid += 1;
        }
        StreamEventKind::LaunchRefused { why: LaunchRefusal::Missed, .. } => {
            counters.launch_missed += 1;
        }
    }
}
