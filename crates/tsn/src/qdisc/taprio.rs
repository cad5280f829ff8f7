// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `taprio`: gates of traffic classes that open and close by a list, over and over.

use std::fmt;

use serde::Serialize;
use timewire_base::{GateMask, Span};

use super::class::{self, PRIORITIES};
use super::words::{Words, integer, value};
use super::{QdiscClock, QdiscError, TrafficClasses, mqprio};

/// Who opens and closes the gates.
///
/// **Source**: `linux v6.12 include/uapi/linux/pkt_sched.h:TCA_TAPRIO_ATTR_FLAG_TXTIME_ASSIST`,
/// `TCA_TAPRIO_ATTR_FLAG_FULL_OFFLOAD`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TaprioMode {
    /// A timer of the kernel.
    #[default]
    Software,
    /// The kernel gives each frame a launch time; an `etf` below keeps it.
    TxtimeAssist,
    /// The device.
    FullOffload,
}

impl TaprioMode {
    /// The value of `flags`.
    pub fn flags(self) -> u32 {
        match self {
            TaprioMode::Software => 0,
            TaprioMode::TxtimeAssist => 1,
            TaprioMode::FullOffload => 2,
        }
    }

    /// **Errors**: unknown flags, or both at once.
    pub fn from_flags(flags: u32) -> Result<TaprioMode, QdiscError> {
        match flags {
            0 => Ok(TaprioMode::Software),
            1 => Ok(TaprioMode::TxtimeAssist),
            2 => Ok(TaprioMode::FullOffload),
            _ => Err(QdiscError::Flags { flags }),
        }
    }
}

/// What an entry does with the gates.
#[doc(alias = "operation-name")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum GateOperation {
    /// Sets them: `S` of `tc`.
    #[doc(alias = "SetGateStates")]
    #[default]
    SetGates,
    /// Sets them, and holds preemptible frames back: `H`. `tc` of iproute2 6.1 does not know it.
    #[doc(alias = "Set-And-Hold-MAC")]
    SetAndHold,
    /// Sets them, and lets preemptible frames go: `R`. `tc` of iproute2 6.1 does not know it.
    #[doc(alias = "Set-And-Release-MAC")]
    SetAndRelease,
}

impl GateOperation {
    /// The letter of `tc`.
    pub fn letter(self) -> &'static str {
        match self {
            GateOperation::SetGates => "S",
            GateOperation::SetAndHold => "H",
            GateOperation::SetAndRelease => "R",
        }
    }

    /// The operation of this letter.
    pub fn of_letter(letter: &str) -> Option<GateOperation> {
        use GateOperation as G;
        [G::SetGates, G::SetAndHold, G::SetAndRelease].into_iter().find(|o| o.letter() == letter)
    }
}

/// One entry of a gate control list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct GateControlEntry {
    /// What it does.
    pub operation: GateOperation,
    /// The gates that are open.
    #[doc(alias = "gate-states-value")]
    pub gate_states: GateMask,
    /// How long.
    #[doc(alias = "time-interval-value")]
    #[serde(rename = "interval_ns")]
    pub interval: Span,
}

impl GateControlEntry {
    /// These gates are open for so long.
    pub fn set_gates(gate_states: GateMask, interval: Span) -> GateControlEntry {
        GateControlEntry { operation: GateOperation::SetGates, gate_states, interval }
    }
}

/// Whether a class may be interrupted by an express class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FramePreemption {
    /// Never interrupted: `E`.
    Express,
    /// May be: `P`.
    Preemptible,
}

impl fmt::Display for FramePreemption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FramePreemption::Express => "E",
            FramePreemption::Preemptible => "P",
        })
    }
}

/// The settings of `taprio`, not yet checked against each other: see [`Taprio::new`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TaprioOptions {
    /// The classes; `None` keeps those that the interface has.
    pub classes: Option<TrafficClasses>,
    /// Who opens and closes the gates.
    pub mode: TaprioMode,
    /// The clock that `base_time` is of; none with full offload.
    pub clock: Option<QdiscClock>,
    /// When a cycle starts, from the epoch of the clock.
    #[doc(alias = "AdminBaseTime")]
    #[serde(rename = "base_time_ns")]
    pub base_time: Span,
    /// The length of the cycle; zero is the sum of the intervals.
    #[doc(alias = "AdminCycleTime")]
    #[serde(rename = "cycle_time_ns")]
    pub cycle_time: Span,
    /// How much a cycle may be drawn out when the next schedule begins.
    #[doc(alias = "AdminCycleTimeExtension")]
    #[serde(rename = "cycle_time_extension_ns")]
    pub cycle_time_extension: Span,
    /// The gates, in order.
    #[doc(alias = "AdminControlList")]
    #[doc(alias = "GateControlList")]
    pub entries: Vec<GateControlEntry>,
    /// With txtime-assist: the latest that a frame may reach the device after it was queued.
    #[serde(rename = "txtime_delay_ns")]
    pub txtime_delay: Span,
    /// The longest payload of each class in bytes; 0 sets no bound.
    #[doc(alias = "queueMaxSDU")]
    #[serde(rename = "max_sdu_bytes")]
    pub max_sdu: Vec<u32>,
    /// Which classes may be interrupted.
    #[doc(alias = "framePreemptionStatusTable")]
    pub preemption: Vec<FramePreemption>,
}

/// A `taprio` that some interface can take.
///
/// **Shape**: at least one entry; each interval 1 ns to 2^32 - 1 ns; a cycle of at most
/// 2^31 - 1 ns; a clock exactly when the device has not its own.
///
/// Prints the words of `tc`: `taprio num_tc ...`.
///
/// **Source**: `linux v6.12 net/sched/sch_taprio.c:taprio_change`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Taprio(TaprioOptions);

/// The kernel keeps the cycle in 63 bits and takes no more than this.
const CYCLE_MAX: Span = Span::from_ns(2_147_483_647);
/// 32 bits of nanoseconds.
const U32_MAX: Span = Span::from_ns(4_294_967_295);

impl Taprio {
    /// Checks the settings against each other and against what every interface refuses.
    ///
    /// **Errors**: the first rule of Linux that is broken. Rules that depend on the interface are
    /// those of [`super::PortLimits::problems`].
    pub fn new(options: TaprioOptions) -> Result<Taprio, QdiscError> {
        options.check_classes()?;
        options.check_entries()?;
        options.check_cycle()?;
        options.check_mode()?;
        Ok(Taprio(options))
    }

    /// The settings.
    pub fn options(&self) -> &TaprioOptions {
        &self.0
    }

    /// The length of the cycle: `cycle-time`, or the sum of the intervals.
    pub fn cycle(&self) -> Span {
        if self.0.cycle_time == Span::ZERO { self.0.sum() } else { self.0.cycle_time }
    }

    /// The sum of the intervals; saturates.
    pub fn intervals(&self) -> Span {
        self.0.sum()
    }
}

/// What `tc` adds to its message for each entry.
const ENTRY_BYTES: usize = 28;
/// The longest message that `tc` writes for `taprio`.
const MESSAGE_BYTES: usize = 1_024;

/// The most entries that the kernel shows: it writes a list into one message of at most 32 768
/// bytes, of which its own head takes some 320, the other settings some 400, each entry 36. A
/// longer list could be installed, and no longer be read.
///
/// **Source**: `linux v6.12 net/sched/sch_taprio.c:dump_entry`,
/// `net/netlink/af_netlink.c:netlink_dump`.
pub const MAX_SHOWN_ENTRIES: usize = 880;

impl Taprio {
    /// How many entries `tc` has room for, with the other settings as they are. It writes what has
    /// room and may then succeed, with a schedule that lacks its end.
    ///
    /// **Source**: `iproute2 v6.1.0 tc/q_taprio.c:taprio_parse_opt`, `add_sched_list`.
    pub fn entries_in_tc_message(&self) -> usize {
        let o = &self.0;
        // Headers of the message (16 + 20), the kind (12), the options and the list (4 + 4).
        let mut used = 56;
        let given = [
            (o.clock.is_some(), 8),
            (o.mode != TaprioMode::Software, 8),
            (o.classes.is_some(), 88),
            (o.txtime_delay != Span::ZERO, 8),
            (o.base_time != Span::ZERO, 12),
            (o.cycle_time != Span::ZERO, 12),
            (o.cycle_time_extension != Span::ZERO, 12),
        ];
        used += given.iter().filter(|(is, _)| *is).map(|(_, bytes)| bytes).sum::<usize>();
        let (sdu, fp) = (o.max_sdu.len(), o.preemption.len());
        used += sdu.max(fp) * 12 + (sdu + fp) * 8;
        MESSAGE_BYTES.saturating_sub(used) / ENTRY_BYTES
    }

    /// **Errors**: more entries than `tc` has room for.
    pub fn check_tc_message(&self) -> Result<(), QdiscError> {
        let (count, max) = (self.0.entries.len(), self.entries_in_tc_message());
        if count > max { Err(QdiscError::TooManyEntries { count, max }) } else { Ok(()) }
    }

    /// The words after `taprio`.
    pub(super) fn parse(words: &mut Words<'_>) -> Result<Taprio, QdiscError> {
        let mut o = TaprioOptions::default();
        let mut raw = RawClasses::default();
        while let Some(word) = words.take() {
            match word {
                "num_tc" => raw.count = class::parse_count(words)?,
                "map" => raw.map = Some(class::parse_map(words)?),
                "queues" => raw.queues = class::parse_queues(words)?,
                "sched-entry" => o.entries.push(parse_entry(words)?),
                "base-time" => o.base_time = words.nanoseconds("base-time")?,
                "cycle-time" => o.cycle_time = words.nanoseconds("cycle-time")?,
                "cycle-time-extension" => {
                    o.cycle_time_extension = words.nanoseconds("cycle-time-extension")?;
                }
                "clockid" => {
                    words.once("clockid")?;
                    o.clock = Some(words.need("a clock")?.parse()?);
                }
                "flags" => {
                    let flags = words.any_base("flags", 0, i64::from(u32::MAX))?;
                    let flags = u32::try_from(flags).expect("invariant: read as 32 bits");
                    o.mode = TaprioMode::from_flags(flags)?;
                }
                "txtime-delay" => {
                    let ns = words.any_base("txtime-delay", 0, i64::from(u32::MAX))?;
                    o.txtime_delay = Span::from_ns(ns);
                }
                "max-sdu" => o.max_sdu = parse_max_sdu(words)?,
                "fp" => o.preemption = mqprio::parse_preemption(words)?,
                _ => {
                    return Err(QdiscError::UnknownWord {
                        word: word.to_owned(),
                        to: "taprio",
                        takes: "num_tc, map, queues, sched-entry, base-time, cycle-time, \
                                cycle-time-extension, clockid, flags, txtime-delay, max-sdu, fp",
                    });
                }
            }
        }
        o.classes = raw.finish()?;
        Taprio::new(o)
    }
}

/// The tables as they come. Without `num_tc`, `tc` sends none of them.
#[derive(Default)]
struct RawClasses {
    count: u64,
    map: Option<[timewire_base::TrafficClass; PRIORITIES]>,
    queues: Vec<super::QueueRange>,
}

impl RawClasses {
    fn finish(self) -> Result<Option<TrafficClasses>, QdiscError> {
        if self.count == 0 {
            if self.map.is_some() || !self.queues.is_empty() {
                return Err(QdiscError::ClassCount { count: 0 });
            }
            return Ok(None);
        }
        let first = timewire_base::TrafficClass::new(0)?;
        let map = self.map.unwrap_or([first; PRIORITIES]);
        TrafficClasses::new(self.count, map, self.queues).map(Some)
    }
}

fn parse_entry(words: &mut Words<'_>) -> Result<GateControlEntry, QdiscError> {
    let letter = words.need("S, a gate mask and an interval")?;
    let operation = GateOperation::of_letter(letter)
        .ok_or_else(|| value("sched-entry", letter, "S (set), H (and hold) or R (and release)"))?;
    let gate_states = words.need("a gate mask and an interval")?.parse()?;
    let interval = words.need("an interval in nanoseconds")?;
    let ns = integer(interval, 0).filter(|ns| (0..=i64::from(u32::MAX)).contains(ns));
    let ns = ns.ok_or_else(|| {
        value("sched-entry", interval, "an interval is whole nanoseconds, 1 to 4294967295")
    })?;
    Ok(GateControlEntry { operation, gate_states, interval: Span::from_ns(ns) })
}

fn parse_max_sdu(words: &mut Words<'_>) -> Result<Vec<u32>, QdiscError> {
    words.run("max-sdu", PRIORITIES, "traffic classes", |word| {
        let bytes = integer(word, 10)?;
        Some(u32::try_from(bytes).map_err(|_| value("max-sdu", word, "bytes, 0 to 4294967295")))
    })
}

impl TaprioOptions {
    /// **Source**: `linux v6.12 net/sched/sch_taprio.c:taprio_parse_mqprio_opt`: ranges may overlap
    /// with txtime-assist only.
    fn check_classes(&self) -> Result<(), QdiscError> {
        let max = PRIORITIES;
        let of = "traffic classes";
        for (key, count) in [("max-sdu", self.max_sdu.len()), ("fp", self.preemption.len())] {
            if count > max {
                return Err(QdiscError::TooMany { key, count, max, of });
            }
        }
        let Some(classes) = &self.classes else { return Ok(()) };
        if classes.queues().is_empty() {
            return Err(QdiscError::QueueCount { given: 0, count: classes.count() });
        }
        match classes.overlap() {
            Some(overlap) if self.mode != TaprioMode::TxtimeAssist => Err(overlap),
            _ => Ok(()),
        }
    }

    /// **Source**: `linux v6.12 net/sched/sch_taprio.c:fill_sched_entry` (an interval of zero is
    /// shorter than any frame), `TCA_TAPRIO_SCHED_ENTRY_INTERVAL` of 32 bits.
    fn check_entries(&self) -> Result<(), QdiscError> {
        if self.entries.is_empty() {
            return Err(QdiscError::NoEntry);
        }
        for (index, &GateControlEntry { interval, .. }) in self.entries.iter().enumerate() {
            if interval <= Span::ZERO || interval > U32_MAX {
                return Err(QdiscError::Interval { index, interval });
            }
        }
        Ok(())
    }

    /// **Source**: `linux v6.12 net/sched/sch_taprio.c:taprio_cycle_time_range`,
    /// `parse_taprio_schedule`.
    fn check_cycle(&self) -> Result<(), QdiscError> {
        let cycle = self.cycle_time;
        if cycle.is_negative() || cycle > CYCLE_MAX {
            return Err(QdiscError::CycleRange { what: "a cycle-time", cycle });
        }
        let (what, sum) = ("a sum of the intervals", self.sum());
        if cycle == Span::ZERO && sum > CYCLE_MAX {
            return Err(QdiscError::CycleRange { what, cycle: sum });
        }
        let entries = self.entries.len();
        let least = Span::from_ns(i64::try_from(entries).unwrap_or(i64::MAX));
        if cycle != Span::ZERO && cycle < least {
            return Err(QdiscError::CycleTooShort { cycle, entries });
        }
        Ok(())
    }

    /// **Source**: `linux v6.12 net/sched/sch_taprio.c:taprio_parse_clockid`,
    /// `taprio_parse_tc_entries`, `taprio_change`.
    fn check_mode(&self) -> Result<(), QdiscError> {
        match (self.mode, self.clock) {
            (TaprioMode::FullOffload, Some(_)) => return Err(QdiscError::ClockWithOffload),
            (TaprioMode::Software | TaprioMode::TxtimeAssist, None) => {
                return Err(QdiscError::NoClock { kind: "taprio" });
            }
            _ => {}
        }
        let delay = self.txtime_delay;
        if delay.is_negative() || delay > U32_MAX {
            return Err(QdiscError::DelayRange { delay });
        }
        if delay != Span::ZERO && self.mode != TaprioMode::TxtimeAssist {
            return Err(QdiscError::DelayWithoutAssist);
        }
        let preempts = self.preemption.contains(&FramePreemption::Preemptible);
        if preempts && self.mode != TaprioMode::FullOffload {
            return Err(QdiscError::PreemptionWithoutOffload { needs: "full offload (flags 0x2)" });
        }
        Ok(())
    }

    /// The sum of the intervals; saturates.
    fn sum(&self) -> Span {
        self.entries
            .iter()
            .fold(Span::ZERO, |sum, entry| sum.checked_add(entry.interval).unwrap_or(Span::MAX))
    }
}

impl fmt::Display for Taprio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let o = &self.0;
        write!(f, "taprio")?;
        if let Some(classes) = &o.classes {
            write!(f, " {classes}")?;
        }
        write!(f, " base-time {}", o.base_time.as_ns())?;
        for entry in &o.entries {
            let (letter, interval) = (entry.operation.letter(), entry.interval.as_ns());
            write!(f, " sched-entry {letter} {} {interval}", entry.gate_states)?;
        }
        for (key, span) in
            [("cycle-time", o.cycle_time), ("cycle-time-extension", o.cycle_time_extension)]
        {
            if span != Span::ZERO {
                write!(f, " {key} {}", span.as_ns())?;
            }
        }
        if o.mode != TaprioMode::Software {
            write!(f, " flags {:#x}", o.mode.flags())?;
        }
        if o.txtime_delay != Span::ZERO {
            write!(f, " txtime-delay {}", o.txtime_delay.as_ns())?;
        }
        if let Some(clock) = o.clock {
            write!(f, " clockid {clock}")?;
        }
        list(f, "max-sdu", &o.max_sdu)?;
        list(f, "fp", &o.preemption)
    }
}

/// ` key a b c`, or nothing.
pub(super) fn list<T: fmt::Display>(
    f: &mut fmt::Formatter<'_>,
    key: &str,
    values: &[T],
) -> fmt::Result {
    if !values.is_empty() {
        write!(f, " {key}")?;
    }
    values.iter().try_for_each(|value| write!(f, " {value}"))
}
