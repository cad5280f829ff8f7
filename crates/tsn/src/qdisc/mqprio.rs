// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `mqprio`: traffic classes with transmit queues of their own, for other disciplines to stand in.

use std::fmt;

use serde::Serialize;
use timewire_base::TrafficClass;

use super::class::{self, PRIORITIES};
use super::taprio::list;
use super::words::{Words, begins, value};
use super::{FramePreemption, QdiscError, TrafficClasses};

/// Who keeps the classes apart.
///
/// **Source**: `linux v6.12 net/sched/sch_mqprio.c:mqprio_enable_offload`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MqprioHardware {
    /// The kernel: `hw 0`.
    #[default]
    None,
    /// The device, as data centre bridging sets it up: `hw 1 mode dcb`.
    Dcb,
    /// The device: `hw 1 mode channel`.
    Channel(MqprioShaper),
}

/// How the device shares its rate among the classes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Copy)]
#[serde(rename_all = "snake_case")]
pub enum MqprioShaper {
    /// As data centre bridging sets it up.
    #[default]
    Dcb,
    /// By the rates given.
    BwRlimit,
}

/// A rate of a class. Prints as `tc` takes it, bytes per second: `125000bps`.
///
/// **Units**: bytes per second, as the kernel keeps it; bits are rounded down, as `tc` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct ClassRate(u64);

impl ClassRate {
    /// So many bytes per second; 0 sets no bound.
    pub const fn from_bytes_per_second(rate: u64) -> ClassRate {
        ClassRate(rate)
    }

    /// **Units**: bytes per second.
    pub const fn bytes_per_second(self) -> u64 {
        self.0
    }

    /// A number, whole or with a fraction, and a unit of `tc`; without one, bits per second.
    fn parse(text: &str) -> Option<ClassRate> {
        let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(split);
        let unit = unit.to_ascii_lowercase();
        let bits = UNITS.iter().find(|(name, _)| *name == unit)?.1;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() || fraction.len() > 12 {
            return None;
        }
        let scale = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
        let digits = format!("{whole}{fraction}").parse::<u128>().ok()?;
        u64::try_from(digits.checked_mul(bits)? / scale / 8).ok().map(ClassRate)
    }
}

impl fmt::Display for ClassRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}bps", self.0)
    }
}

/// Bits per second of one; `bps` counts bytes.
const UNITS: [(&str, u128); 19] = [
    ("", 1),
    ("bit", 1),
    ("kbit", 1_000),
    ("mbit", 1_000_000),
    ("gbit", 1_000_000_000),
    ("tbit", 1_000_000_000_000),
    ("kibit", 1 << 10),
    ("mibit", 1 << 20),
    ("gibit", 1 << 30),
    ("tibit", 1 << 40),
    ("bps", 8),
    ("kbps", 8_000),
    ("mbps", 8_000_000),
    ("gbps", 8_000_000_000),
    ("tbps", 8_000_000_000_000),
    ("kibps", 8 << 10),
    ("mibps", 8 << 20),
    ("gibps", 8 << 30),
    ("tibps", 8 << 40),
];

/// The settings of `mqprio`, not yet checked against each other: see [`Mqprio::new`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MqprioOptions {
    /// The classes.
    pub classes: TrafficClasses,
    /// Who keeps them apart.
    pub hardware: MqprioHardware,
    /// The rate that each class has at least.
    #[serde(rename = "min_rate_bytes_per_second")]
    pub min_rate: Vec<ClassRate>,
    /// The rate that each class has at most.
    #[serde(rename = "max_rate_bytes_per_second")]
    pub max_rate: Vec<ClassRate>,
    /// Which classes may be interrupted.
    #[doc(alias = "framePreemptionStatusTable")]
    pub preemption: Vec<FramePreemption>,
}

/// An `mqprio` that some interface can take.
///
/// Prints the words of `tc`: `mqprio num_tc ... hw 0`.
///
/// **Source**: `linux v6.12 net/sched/sch_mqprio.c:mqprio_init`, `mqprio_parse_nlattr`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Mqprio(MqprioOptions);

impl Mqprio {
    /// Checks the settings against each other.
    ///
    /// **Errors**: the first rule of Linux that is broken.
    pub fn new(options: MqprioOptions) -> Result<Mqprio, QdiscError> {
        let o = &options;
        if o.hardware == MqprioHardware::None {
            if o.classes.queues().is_empty() {
                return Err(QdiscError::QueueCount { given: 0, count: o.classes.count() });
            }
            if let Some(overlap) = o.classes.overlap() {
                return Err(overlap);
            }
            if !o.preemption.is_empty() {
                return Err(QdiscError::NeedsHardware { key: "fp" });
            }
        }
        let limited = o.hardware == MqprioHardware::Channel(MqprioShaper::BwRlimit);
        let classes = usize::from(o.classes.count());
        let of = "traffic classes";
        for (key, rates) in [("min_rate", &o.min_rate), ("max_rate", &o.max_rate)] {
            if !rates.is_empty() && !limited {
                return Err(QdiscError::RateWithoutShaper { key });
            }
            if !rates.is_empty() && rates.len() != classes {
                let (given, count) = (rates.len(), o.classes.count());
                return Err(QdiscError::RateCount { key, given, count });
            }
        }
        if limited && o.min_rate.is_empty() && o.max_rate.is_empty() {
            let why = "`shaper bw_rlimit` needs `min_rate` or `max_rate`";
            return Err(QdiscError::ModeAndShaper { why });
        }
        let (key, count, max) = ("fp", o.preemption.len(), PRIORITIES);
        if count > max {
            return Err(QdiscError::TooMany { key, count, max, of });
        }
        Ok(Mqprio(options))
    }

    /// The settings.
    pub fn options(&self) -> &MqprioOptions {
        &self.0
    }

    /// The words after `mqprio`.
    pub(super) fn parse(words: &mut Words<'_>) -> Result<Mqprio, QdiscError> {
        let mut raw = Raw::default();
        while let Some(word) = words.take() {
            raw.read(word, words)?;
        }
        raw.finish()
    }
}

/// The words as they come, with the defaults of `tc`.
struct Raw {
    count: u64,
    map: [TrafficClass; PRIORITIES],
    queues: Vec<super::QueueRange>,
    hardware: bool,
    channel: bool,
    limited: bool,
    min_rate: Vec<ClassRate>,
    max_rate: Vec<ClassRate>,
    preemption: Vec<FramePreemption>,
}

/// The map of `tc` when there is none.
const DEFAULT_MAP: [u64; PRIORITIES] = [0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 1, 1, 3, 3, 3, 3];

impl Default for Raw {
    fn default() -> Raw {
        Raw {
            count: 8,
            map: DEFAULT_MAP
                .map(|n| TrafficClass::new(n).expect("invariant: the map of tc names classes")),
            queues: Vec::new(),
            hardware: true,
            channel: false,
            limited: false,
            min_rate: Vec::new(),
            max_rate: Vec::new(),
            preemption: Vec::new(),
        }
    }
}

impl Raw {
    fn read(&mut self, word: &str, words: &mut Words<'_>) -> Result<(), QdiscError> {
        match word {
            "num_tc" => self.count = class::parse_count(words)?,
            "map" => self.map = class::parse_map(words)?,
            "queues" => self.queues = class::parse_queues(words)?,
            "fp" => self.preemption = parse_preemption(words)?,
            "hw" => self.hardware = words.decimal("hw", 0, 1)? == 1,
            // `tc` reads these only after it knows that there is hardware.
            "mode" if self.hardware => {
                words.once("mode")?;
                let mode = words.need("a mode")?;
                self.channel = either("mode", mode, "dcb", "channel")?;
            }
            "shaper" if self.hardware => {
                words.once("shaper")?;
                let shaper = words.need("a shaper")?;
                self.limited = either("shaper", shaper, "dcb", "bw_rlimit")?;
            }
            "mode" => return Err(QdiscError::NeedsHardware { key: "mode" }),
            "shaper" => return Err(QdiscError::NeedsHardware { key: "shaper" }),
            "min_rate" | "max_rate" if !self.limited => {
                let key = if word == "min_rate" { "min_rate" } else { "max_rate" };
                return Err(QdiscError::RateWithoutShaper { key });
            }
            "min_rate" => self.min_rate = parse_rates(words, "min_rate")?,
            "max_rate" => self.max_rate = parse_rates(words, "max_rate")?,
            _ => {
                return Err(QdiscError::UnknownWord {
                    word: word.to_owned(),
                    to: "mqprio",
                    takes: "num_tc, map, queues, hw, mode, shaper, min_rate, max_rate, fp",
                });
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<Mqprio, QdiscError> {
        let hardware = match (self.hardware, self.channel, self.limited) {
            (false, false, false) => MqprioHardware::None,
            (true, false, false) => MqprioHardware::Dcb,
            (true, true, false) => MqprioHardware::Channel(MqprioShaper::Dcb),
            (true, true, true) => MqprioHardware::Channel(MqprioShaper::BwRlimit),
            (true, false, true) => {
                let why = "`shaper bw_rlimit` needs `mode channel`";
                return Err(QdiscError::ModeAndShaper { why });
            }
            (false, ..) => {
                let why = "`hw 0` after `mode` or `shaper`";
                return Err(QdiscError::ModeAndShaper { why });
            }
        };
        Mqprio::new(MqprioOptions {
            classes: TrafficClasses::new(self.count, self.map, self.queues)?,
            hardware,
            min_rate: self.min_rate,
            max_rate: self.max_rate,
            preemption: self.preemption,
        })
    }
}

/// Whether it is the second; either may be cut short.
pub(super) fn either(
    key: &'static str,
    word: &str,
    first: &'static str,
    second: &'static str,
) -> Result<bool, QdiscError> {
    match (begins(word, first), begins(word, second)) {
        (true, _) => Ok(false),
        (_, true) => Ok(true),
        _ => Err(value(key, word, &format!("{first} or {second}"))),
    }
}

fn parse_rates(words: &mut Words<'_>, key: &'static str) -> Result<Vec<ClassRate>, QdiscError> {
    words.run(key, PRIORITIES, "traffic classes", |word| ClassRate::parse(word).map(Ok))
}

/// `E` and `P` of each class; a word of another kind ends them, any other letter is wrong.
pub(super) fn parse_preemption(words: &mut Words<'_>) -> Result<Vec<FramePreemption>, QdiscError> {
    words.run("fp", PRIORITIES, "traffic classes", |word| match word {
        "E" => Some(Ok(FramePreemption::Express)),
        "P" => Some(Ok(FramePreemption::Preemptible)),
        _ if word.len() == 1 => Some(Err(value("fp", word, "E (express) or P (preemptible)"))),
        _ => None,
    })
}

impl fmt::Display for Mqprio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let o = &self.0;
        write!(f, "mqprio {} hw {}", o.classes, u8::from(o.hardware != MqprioHardware::None))?;
        f.write_str(match o.hardware {
            MqprioHardware::None => "",
            MqprioHardware::Dcb => " mode dcb",
            MqprioHardware::Channel(MqprioShaper::Dcb) => " mode channel shaper dcb",
            MqprioHardware::Channel(MqprioShaper::BwRlimit) => " mode channel shaper bw_rlimit",
        })?;
        list(f, "min_rate", &o.min_rate)?;
        list(f, "max_rate", &o.max_rate)?;
        list(f, "fp", &o.preemption)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_rates_read_as_tc_reads_them() {
        let cases = [
            ("8", Some(1)),
            ("15", Some(1)),
            ("1mbit", Some(125_000)),
            ("1.5Mbit", Some(187_500)),
            ("1bps", Some(1)),
            ("2KiBps", Some(2_048)),
            ("0", Some(0)),
            ("mbit", None),
            ("1.2.3mbit", None),
            ("-1mbit", None),
            ("1mbits", None),
        ];
        for (text, rate) in cases {
            assert_eq!(ClassRate::parse(text).map(ClassRate::bytes_per_second), rate, "{text}");
        }
    }
}
