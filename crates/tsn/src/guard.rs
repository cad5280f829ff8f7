// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether the clock is on time, so that slots may be open: a machine with hysteresis. It opens
//! after several good samples one after another and closes at the first bad one, after a silence,
//! and when nobody keeps the clock any more.
//!
//! It stands in this crate because it decides about gates and is driven on real and on virtual time
//! alike, as [`Machine`](crate::Machine) is.

use std::fmt;

use timewire_base::{Instant, Mono, Span};

use crate::{Config, MacError};

/// When a clock is on time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuardLimits {
    /// A sample farther off than this closes.
    pub offset: Span,
    /// So many samples one after another within half of [`offset`](Self::offset) open; at least 1.
    pub good_samples: u32,
    /// Without a sample for longer than this it closes.
    pub silence: Span,
}

/// What is known of the clock now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// It was compared with the segment's time and is off by this at most, the error of the
    /// comparison included. The sign does not matter.
    Offset(Span),
    /// Nobody keeps it on the segment's time.
    Lost(Loss),
    /// Nothing new.
    Nothing,
}

/// Why a clock is not on time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// There has not been a sample yet.
    Start,
    /// It is off by this.
    Offset(Span),
    /// There has not been a sample for this long.
    Silence(Span),
    /// It follows no other clock, and it is not the one that gives the time.
    NotFollowing,
    /// The daemon that kept it has ended.
    DaemonEnded,
    /// Its TAI - UTC is not the segment's, so its TAI is off by whole seconds.
    TaiOffset,
    /// What keeps the segment's time is a NIC's clock, and that cannot be read.
    Nic,
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "slots that should be closed stay open"]
pub struct GuardActions {
    /// Until when slots may be open, as far as is known now; `None` when they may not. It moves on
    /// with every sample, so that slots close by themselves when nobody speaks any more.
    pub open_until: Option<Instant<Mono>>,
    /// What has changed with this call.
    pub change: Option<Change>,
}

/// A change of the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The clock is on time: open. Carries how long it was not.
    Locked {
        /// Since the loss, or since the guard began.
        after: Span,
    },
    /// The clock is not on time: close.
    Lost(Loss),
}

/// The machine. It begins closed.
///
/// `now` is of the clock that nobody sets; one that goes back counts as standing still.
#[derive(Clone, Debug)]
pub struct SyncGuard {
    limits: GuardLimits,
    state: State,
    began: Instant<Mono>,
    /// The latest `now`.
    last: Instant<Mono>,
    losses: u64,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Locked { last_sample: Instant<Mono> },
    Lost { good: u32, last_sample: Option<Instant<Mono>>, why: Loss },
}

impl SyncGuard {
    /// A guard that has heard nothing yet.
    ///
    /// **Errors**: a bound that is not positive or absurdly long, or no sample to open.
    pub fn new(now: Instant<Mono>, limits: GuardLimits) -> Result<SyncGuard, MacError> {
        let max = Config::MAX_SPAN;
        for (what, span) in [("an offset", limits.offset), ("a silence", limits.silence)] {
            if span <= Span::ZERO || span > max {
                return Err(MacError::Span { what, span, max });
            }
        }
        if limits.good_samples == 0 {
            return Err(MacError::NoSamples);
        }
        let state = State::Lost { good: 0, last_sample: None, why: Loss::Start };
        Ok(SyncGuard { limits, state, began: now, last: now, losses: 0 })
    }

    /// Takes what was heard, if anything, and says what to do.
    pub fn on(&mut self, now: Instant<Mono>, heard: Heard) -> GuardActions {
        let now = now.max(self.last);
        self.last = now;
        // The silence before this sample counts, whatever the sample says.
        let silence = self.notice_silence(now);
        let heard = match heard {
            Heard::Nothing => None,
            Heard::Lost(why) => self.lose(now, why),
            // One call tells of one change, so what has closed now opens with the next sample.
            Heard::Offset(offset) => self.sample(now, offset, silence.is_none()),
        };
        let change = silence.or(heard);
        GuardActions { open_until: self.open_until(), change }
    }

    /// Until when slots may be open, as far as is known now.
    pub fn open_until(&self) -> Option<Instant<Mono>> {
        match self.state {
            State::Locked { last_sample } => Some(last_sample.saturating_add(self.limits.silence)),
            State::Lost { .. } => None,
        }
    }

    /// Why the clock is not on time; `None` when it is.
    pub fn loss(&self) -> Option<Loss> {
        match self.state {
            State::Locked { .. } => None,
            State::Lost { why, .. } => Some(why),
        }
    }

    /// Good samples of those that are needed to open; `None` when it is open.
    pub fn good_samples(&self) -> Option<(u32, u32)> {
        match self.state {
            State::Locked { .. } => None,
            State::Lost { good, .. } => Some((good, self.limits.good_samples)),
        }
    }

    /// Since when it is as it is.
    pub fn since(&self) -> Instant<Mono> {
        self.began
    }

    /// How often it was lost after it had been on time.
    pub fn losses(&self) -> u64 {
        self.losses
    }

    /// What it was built with.
    pub fn limits(&self) -> GuardLimits {
        self.limits
    }

    fn notice_silence(&mut self, now: Instant<Mono>) -> Option<Change> {
        let last_sample = match self.state {
            State::Locked { last_sample } => last_sample,
            State::Lost { last_sample: Some(last_sample), .. } => last_sample,
            State::Lost { last_sample: None, .. } => return None,
        };
        let silent = now - last_sample;
        if silent <= self.limits.silence { None } else { self.lose(now, Loss::Silence(silent)) }
    }

    fn lose(&mut self, now: Instant<Mono>, why: Loss) -> Option<Change> {
        match &mut self.state {
            State::Locked { .. } => {
                self.state = State::Lost { good: 0, last_sample: None, why };
                self.began = now;
                self.losses += 1;
                Some(Change::Lost(why))
            }
            State::Lost { good, last_sample, why: before } => {
                (*good, *last_sample, *before) = (0, None, why);
                None
            }
        }
    }

    fn sample(&mut self, now: Instant<Mono>, offset: Span, may_open: bool) -> Option<Change> {
        // Without a sign, and the one span that has no opposite is far off as well.
        let off = Span::from_ns(offset.as_ns().saturating_abs());
        if off > self.limits.offset {
            return self.lose(now, Loss::Offset(offset));
        }
        match &mut self.state {
            State::Locked { last_sample } => {
                *last_sample = now;
                None
            }
            State::Lost { good, last_sample, why } => {
                *last_sample = Some(now);
                if off.as_ns() > self.limits.offset.as_ns() / 2 {
                    (*good, *why) = (0, Loss::Offset(offset));
                    return None;
                }
                *good = good.saturating_add(1);
                if *good < self.limits.good_samples || !may_open {
                    return None;
                }
                let after = now - self.began;
                self.state = State::Locked { last_sample: now };
                self.began = now;
                Some(Change::Locked { after })
            }
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Loss::Start => f.write_str("there has not been a sample yet"),
            Loss::Offset(offset) => write!(f, "it is off by {offset}"),
            Loss::Silence(span) => write!(f, "there has not been a sample for {span}"),
            Loss::NotFollowing => f.write_str("it follows no other clock"),
            Loss::DaemonEnded => f.write_str("the daemon that kept it has ended"),
            Loss::TaiOffset => f.write_str("its TAI - UTC is not the segment's"),
            Loss::Nic => f.write_str("the NIC's clock cannot be read"),
        }
    }
}
