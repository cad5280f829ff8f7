// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Credit of a class, in whole numbers: as the standard counts it, and as Linux does.

use timewire_base::BitsPerSecond;

use crate::time::Ps;

/// Who counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreditRules {
    /// The credit-based shaper of the standard: credit grows while frames wait and their gate is
    /// open, so much faster that the class has its rate over a cycle of the gates; it falls while
    /// one is sent with everything that the link carries for it, and positive credit is lost when
    /// nothing waits.
    ///
    /// **Source**: IEEE 802.1Q-2022, 8.6.8.2 and annex L.
    Standard,
    /// The software of Linux: credit in whole bytes of frames without check sequence, preamble
    /// and gap; it grows only while it is below zero, whether frames wait or not, so that none is
    /// saved. Here a frame is paid for when its transmission starts, as by a driver that takes one
    /// frame at a time.
    ///
    /// **Source**: linux v6.12 net/sched/sch_cbs.c:cbs_dequeue_soft, cbs_enqueue_soft.
    Linux {
        /// Most credit. **Units**: bytes.
        hi_credit: i32,
        /// Least credit, negative. **Units**: bytes.
        lo_credit: i32,
    },
}

/// The credit of one class.
#[derive(Clone, Debug)]
pub(crate) struct Credit {
    /// What the class is to have over a cycle of the gates.
    reserved: i64,
    idle: i64,
    send: i64,
    rate: BitsPerSecond,
    rules: CreditRules,
    /// `Standard`: bits times 10^12. `Linux`: bytes.
    value: i128,
    at: Ps,
    sending_until: Ps,
}

impl Credit {
    pub fn new(idle_slope: BitsPerSecond, rate: BitsPerSecond, rules: CreditRules) -> Credit {
        let bps = |rate: BitsPerSecond| {
            i64::try_from(rate.get()).expect("invariant: a rate is at most 10^13 bit/s")
        };
        let (idle, send) = (bps(idle_slope), bps(idle_slope) - bps(rate));
        let (at, sending_until) = (Ps::ZERO, Ps::ZERO);
        Credit { reserved: idle, idle, send, rate, rules, value: 0, at, sending_until }
    }

    /// From now on the gate of the class is open for so much of each cycle.
    ///
    /// **Source**: IEEE 802.1Q-2022, 8.6.8.2: idleSlope is operIdleSlope times OperCycleTime by
    /// GateOpenTime. Linux knows nothing of gates.
    pub fn behind_gate(&mut self, open: Ps, cycle: Ps) {
        if self.rules != CreditRules::Standard || open <= Ps::ZERO {
            return;
        }
        let idle = i128::from(self.reserved) * i128::from(cycle.get()) / i128::from(open.get());
        let slope = i64::try_from(idle).unwrap_or(i64::MAX);
        self.send += slope - self.idle;
        self.idle = slope;
    }

    /// Brings the credit up to now. Until now, frames waited or not (`waiting`), all the time;
    /// `open` tells how much of an interval the gate was open.
    pub fn settle(&mut self, now: Ps, waiting: bool, open: impl Fn(Ps, Ps) -> Ps) {
        if self.rules != CreditRules::Standard || now <= self.at {
            return;
        }
        if self.at < self.sending_until {
            let until = now.min(self.sending_until);
            self.value += i128::from(self.send) * i128::from((until - self.at).get());
            self.at = until;
            if now < self.sending_until {
                return;
            }
        }
        let grown = |span: Ps| i128::from(self.idle) * i128::from(span.get());
        if waiting {
            self.value += grown(open(self.at, now));
        } else if self.value < 0 {
            self.value = (self.value + grown(open(self.at, now))).min(0);
        } else {
            self.value = 0;
        }
        self.at = now;
    }

    /// A frame came; it is the `first` when none waited. Only Linux minds.
    ///
    /// Each coming has the kernel look at the credit: what has grown since its last look counts in
    /// whole bytes, and the rest of a byte is lost.
    pub fn arrived(&mut self, now: Ps, first: bool) {
        let CreditRules::Linux { hi_credit, .. } = self.rules else { return };
        self.watchdog(now, hi_credit);
        if first && self.value > 0 {
            (self.value, self.at) = (0, whole(now));
        }
        if self.value < 0 && ns(now) > ns(self.at) {
            self.value += self.grown(ns(now) - ns(self.at));
            self.at = whole(now);
        }
    }

    /// Whether a frame may go now, which is settled; else when to ask again.
    pub fn ready(&mut self, now: Ps) -> Result<(), Ps> {
        match self.rules {
            CreditRules::Standard if self.value >= 0 => Ok(()),
            CreditRules::Standard => {
                let wait = ceil(-self.value, i128::from(self.idle));
                Err(now.saturating_add(Ps::new(i64::try_from(wait).unwrap_or(i64::MAX))))
            }
            CreditRules::Linux { hi_credit, .. } => {
                // `q->last` is where the last frame ends, in nanoseconds.
                if ns(now) < ns(self.at) {
                    return Err(self.at);
                }
                self.watchdog(now, hi_credit);
                if self.value < 0 { Err(self.due(hi_credit)) } else { Ok(()) }
            }
        }
    }

    /// Linux' timer, which runs while the credit is below zero, whether frames wait or not: once at
    /// the end of the last frame, and when the credit is back.
    fn watchdog(&mut self, now: Ps, hi_credit: i32) {
        let due = self.due(hi_credit);
        if self.value < 0 && due <= now {
            let grown = self.grown(ns(due) - ns(self.at));
            self.value = (self.value + grown).min(i128::from(hi_credit));
            self.at = due;
        }
    }

    /// When Linux finds that a credit below zero is back: the first nanosecond at which its whole
    /// bytes are. The kernel sets its timer with that time rounded down and finds a byte missing
    /// unless the timer is late by a nanosecond, which timers are.
    fn due(&self, hi_credit: i32) -> Ps {
        let slope = i128::from(self.idle / 8);
        if slope == 0 || hi_credit < 0 {
            return Ps::MAX;
        }
        let wait = i64::try_from(ceil(-self.value * NS, slope)).unwrap_or(i64::MAX);
        self.at.saturating_add(Ps::new(wait.saturating_mul(1_000)))
    }

    /// Whole bytes that Linux' credit grows by.
    fn grown(&self, span_ns: i64) -> i128 {
        i128::from(span_ns) * i128::from(self.idle / 8) / NS
    }

    /// A frame of so many bytes on the link (with preamble, check sequence and gap) goes now.
    pub fn sent(&mut self, now: Ps, ends: Ps, wire_bytes: u32) {
        match self.rules {
            CreditRules::Standard => (self.at, self.sending_until) = (now, ends),
            CreditRules::Linux { lo_credit, .. } => {
                let bytes = i128::from(wire_bytes.saturating_sub(NOT_OF_FRAME));
                let rate = i128::from(self.rate.get() / 8).max(1);
                let credits = bytes * i128::from(self.send / 8) / rate;
                self.value = (self.value + credits).max(i128::from(lo_credit));
                let busy = i64::try_from(bytes * NS / rate).unwrap_or(i64::MAX / 1_000);
                self.at = whole(now).saturating_add(Ps::new(busy * 1_000));
            }
        }
    }

    /// The credit, rounded down. **Units**: bits.
    pub fn bits_floor(&self) -> i64 {
        let bits = match self.rules {
            CreditRules::Standard => self.value.div_euclid(PARTS),
            CreditRules::Linux { .. } => self.value * 8,
        };
        i64::try_from(bits).unwrap_or(i64::MAX)
    }
}

/// Nanoseconds of a second.
const NS: i128 = 1_000_000_000;
/// What one bit counts.
const PARTS: i128 = 1_000_000_000_000;
/// Check sequence, preamble, start delimiter and gap.
const NOT_OF_FRAME: u32 = 24;

fn ns(at: Ps) -> i64 {
    at.get().div_euclid(1_000)
}

fn whole(at: Ps) -> Ps {
    Ps::new(ns(at) * 1_000)
}

fn ceil(value: i128, by: i128) -> i128 {
    (value + by - 1) / by
}
