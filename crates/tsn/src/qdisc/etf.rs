// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `etf`, earliest launch time first: frames leave in the order and at the time that they carry.

use std::fmt;

use serde::Serialize;
use timewire_base::Span;

use super::words::{Words, begins, value};
use super::{QdiscClock, QdiscError};

/// An `etf` that some interface can take. It runs on `CLOCK_TAI` and no other clock.
///
/// **Source**: `linux v6.12 net/sched/sch_etf.c:validate_input_params`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Etf {
    #[serde(rename = "delta_ns")]
    delta: Span,
    #[serde(flatten)]
    flags: EtfFlags,
}

/// What `etf` does or leaves alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct EtfFlags {
    /// The device keeps the launch time, not a timer of the kernel.
    pub offload: bool,
    /// The launch time is the latest, not the exact time: frames leave at once, in its order.
    pub deadline_mode: bool,
    /// Frames without a socket that set `SO_TXTIME` are let through: those of txtime-assist.
    pub skip_sock_check: bool,
}

impl Etf {
    /// **Errors**: a delta that is not 0 ns to 2^31 - 1 ns.
    pub fn new(delta: Span, flags: EtfFlags) -> Result<Etf, QdiscError> {
        if delta.is_negative() || delta.as_ns() > i64::from(i32::MAX) {
            return Err(QdiscError::EtfDelta { delta });
        }
        Ok(Etf { delta, flags })
    }

    /// How long before its launch time a frame is handed to the device.
    pub fn delta(&self) -> Span {
        self.delta
    }

    /// What it does or leaves alone.
    pub fn flags(&self) -> EtfFlags {
        self.flags
    }

    /// The words after `etf`.
    pub(super) fn parse(words: &mut Words<'_>) -> Result<Etf, QdiscError> {
        let mut flags = EtfFlags::default();
        let (mut delta, mut clock) = (Span::ZERO, None);
        while let Some(word) = words.take() {
            // `tc` takes a cut word for the first of these that it begins.
            if begins(word, "offload") {
                words.once("offload")?;
                flags.offload = true;
            } else if begins(word, "deadline_mode") {
                words.once("deadline_mode")?;
                flags.deadline_mode = true;
            } else if begins(word, "delta") {
                let ns = words.any_base("delta", i64::from(i32::MIN), i64::from(i32::MAX))?;
                delta = Span::from_ns(ns);
            } else if begins(word, "clockid") {
                words.once("clockid")?;
                clock = Some(words.need("a clock")?.parse()?);
            } else if word == "skip_sock_check" {
                words.once("skip_sock_check")?;
                flags.skip_sock_check = true;
            } else {
                return Err(QdiscError::UnknownWord {
                    word: word.to_owned(),
                    to: "etf",
                    takes: "clockid, delta, offload, deadline_mode, skip_sock_check",
                });
            }
        }
        Etf::of(clock, delta, flags)
    }

    /// Checks the clock, too.
    pub(super) fn of(
        clock: Option<QdiscClock>,
        delta: Span,
        flags: EtfFlags,
    ) -> Result<Etf, QdiscError> {
        match clock {
            Some(QdiscClock::Tai) => Etf::new(delta, flags),
            Some(other) => Err(QdiscError::EtfClock { clock: other.to_string() }),
            None => Err(QdiscError::NoClock { kind: "etf" }),
        }
    }
}

/// Prints `etf clockid CLOCK_TAI delta 300000 offload`.
impl fmt::Display for Etf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "etf clockid {} delta {}", QdiscClock::Tai, self.delta.as_ns())?;
        let flags = [
            (self.flags.offload, "offload"),
            (self.flags.deadline_mode, "deadline_mode"),
            (self.flags.skip_sock_check, "skip_sock_check"),
        ];
        flags.iter().filter(|(on, _)| *on).try_for_each(|(_, word)| write!(f, " {word}"))
    }
}

/// `on` and `off` of `tc -j`.
pub(super) fn on_off(key: &'static str, text: &str) -> Result<bool, QdiscError> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(value(key, text, "on or off")),
    }
}
