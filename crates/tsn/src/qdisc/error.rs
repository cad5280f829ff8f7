// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What keeps a queueing discipline from existing, and who says so.

use thiserror::Error;
use timewire_base::{GateMask, IdError, QueueError, Span};

use super::QdiscPosition;

/// Who would refuse the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refuser {
    /// `tc` itself, before the kernel is asked.
    Tc,
    /// The kernel.
    Kernel,
    /// Timewire alone: `tc` passes over part of the command without a word, keeps the last of two
    /// settings, or takes something else than one of the four disciplines.
    Timewire,
}

impl QdiscError {
    /// Who would refuse it if it were given to `tc` all the same. Of a setting of `etf`, `cbs` or
    /// `taprio` that stands twice, `tc` does not notice when the first was 0.
    pub fn refuser(&self) -> Refuser {
        use QdiscError as E;
        match self {
            // Of these `tc` reads on after a number that it does not understand, without a word.
            E::Value { key, .. } if PASSED_OVER.contains(key) => Refuser::Timewire,
            E::Twice { word } if OVERWRITTEN.contains(&word.as_str()) => Refuser::Timewire,
            E::UnknownWord { to: "stab", .. } => Refuser::Timewire,
            E::QueueCount { given, count } if *given > usize::from(*count) => Refuser::Timewire,
            E::Value { .. }
            | E::Twice { .. }
            | E::UnknownWord { .. }
            | E::Missing { .. }
            | E::TooMany { .. }
            | E::RateWithoutShaper { .. }
            | E::RateCount { .. }
            | E::NeedsHardware { key: "mode" | "shaper" }
            | E::Queue(QueueError::NotANumber { .. })
            | E::Id(_) => Refuser::Tc,
            E::Kind { .. } | E::TooManyEntries { .. } | E::Json { .. } => Refuser::Timewire,
            _ => Refuser::Kernel,
        }
    }
}

const PASSED_OVER: [&str; 4] = ["base-time", "cycle-time", "cycle-time-extension", "offload"];
const OVERWRITTEN: [&str; 11] = [
    "num_tc",
    "map",
    "queues",
    "base-time",
    "hw",
    "mode",
    "shaper",
    "min_rate",
    "max_rate",
    "max-sdu",
    "fp",
];

/// A queueing discipline that cannot be, or a command that names none.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum QdiscError {
    /// Words end where one more is needed.
    #[error("`{after}` is the last word: {wanted} must follow")]
    Missing {
        /// The last word.
        after: String,
        /// What should follow.
        wanted: &'static str,
    },
    /// A word that means nothing where it stands.
    #[error("`{word}` means nothing to {to}: {takes}")]
    UnknownWord {
        /// The word.
        word: String,
        /// Who was to read it.
        to: &'static str,
        /// What it takes instead.
        takes: &'static str,
    },
    /// The same setting twice.
    #[error("`{word}` stands twice")]
    Twice {
        /// The setting.
        word: String,
    },
    /// A word of the right place and the wrong form.
    #[error("`{key} {text}`: {why}")]
    Value {
        /// The setting.
        key: &'static str,
        /// What was given.
        text: String,
        /// What would be right.
        why: String,
    },
    /// A discipline of another kind.
    #[error("`{kind}` is none of mqprio, taprio, etf and cbs")]
    Kind {
        /// The kind.
        kind: String,
    },
    /// A discipline is to be changed that Linux cannot change.
    #[error("{kind} cannot be changed: delete it and add it, or `replace` it under another handle")]
    NoChange {
        /// The kind.
        kind: &'static str,
    },
    /// Nothing says where the discipline is to stand.
    #[error("`{verb}` needs a place: `root` or `parent CLASS`")]
    NoPlace {
        /// The command.
        verb: &'static str,
    },
    /// A discipline that takes over all queues stands under another one.
    #[error("{kind} can only be the root of an interface, not at {place}")]
    NotRoot {
        /// The kind.
        kind: &'static str,
        /// Where it was to stand.
        place: QdiscPosition,
    },
    /// No traffic class, or more than Linux keeps.
    #[error("num_tc {count}: 1 to 16 traffic classes")]
    ClassCount {
        /// What was given.
        count: u64,
    },
    /// A priority goes to a class that does not exist.
    #[error(
        "map: socket priority {priority} goes to traffic class {class}, \
         and num_tc {count} has 0 to {}", .count - 1
    )]
    MapBeyond {
        /// Which priority.
        priority: usize,
        /// Where it was to go.
        class: u8,
        /// How many classes there are.
        count: u8,
    },
    /// More numbers than there are priorities or classes.
    #[error("{key}: {count} values are more than the {max} that there are {of}")]
    TooMany {
        /// The setting.
        key: &'static str,
        /// How many were given.
        count: usize,
        /// How many there can be.
        max: usize,
        /// What they are for.
        of: &'static str,
    },
    /// Some classes have queues and others have none.
    #[error("queues: {given} ranges for {count} traffic classes: one COUNT@OFFSET for each")]
    QueueCount {
        /// How many were given.
        given: usize,
        /// How many are needed.
        count: u8,
    },
    /// A class without queues.
    #[error("queues: traffic class {class} has no queue")]
    NoQueue {
        /// Which class.
        class: usize,
    },
    /// Two classes share a queue.
    #[error("queues: traffic classes {first} ({a}) and {second} ({b}) share a queue")]
    QueueOverlap {
        /// The one class.
        first: usize,
        /// Its queues.
        a: String,
        /// The other class.
        second: usize,
        /// Its queues.
        b: String,
    },
    /// A schedule without entries.
    #[error("taprio needs at least one `sched-entry S MASK INTERVAL`")]
    NoEntry,
    /// An entry that lasts no time, or longer than 32 bits of nanoseconds.
    #[error("sched-entry {index}: an interval of {interval} is not 1ns to 4294967295ns")]
    Interval {
        /// Which entry, from 0.
        index: usize,
        /// What was given.
        interval: Span,
    },
    /// More entries than `tc` can put into one message.
    #[error(
        "{count} sched-entries: tc has room for {max} of this command, and may leave out the rest \
         and still succeed"
    )]
    TooManyEntries {
        /// How many were given.
        count: usize,
        /// How many go into the message.
        max: usize,
    },
    /// A cycle that the kernel cannot keep.
    #[error("{what} of {cycle} is not 0ns to 2147483647ns")]
    CycleRange {
        /// Which of its lengths.
        what: &'static str,
        /// What was given, or the sum of the intervals.
        cycle: Span,
    },
    /// A cycle shorter than one nanosecond for each entry.
    #[error("a cycle-time of {cycle} is too short for {entries} entries")]
    CycleTooShort {
        /// What was given.
        cycle: Span,
        /// How many entries there are.
        entries: usize,
    },
    /// Flags that the kernel does not know, or that exclude each other.
    #[error("flags {flags:#x}: 0x0 (software), 0x1 (txtime-assist) or 0x2 (full offload)")]
    Flags {
        /// What was given.
        flags: u32,
    },
    /// A clock is needed and none is named.
    #[error("{kind} needs `clockid`: CLOCK_TAI")]
    NoClock {
        /// The kind.
        kind: &'static str,
    },
    /// Full offload runs on the clock of the device alone.
    #[error("taprio with full offload runs on the clock of the device: leave `clockid` out")]
    ClockWithOffload,
    /// A clock that the discipline does not run on.
    #[error("etf runs on CLOCK_TAI only, not on {clock}")]
    EtfClock {
        /// What was given.
        clock: String,
    },
    /// A launch time before which a frame leaves the discipline must not lie in the past.
    #[error("etf: a delta of {delta} is not 0ns to 2147483647ns")]
    EtfDelta {
        /// What was given.
        delta: Span,
    },
    /// A delay of launch times where none are given.
    #[error("txtime-delay works with txtime-assist (flags 0x1) only")]
    DelayWithoutAssist,
    /// A delay that 32 bits of nanoseconds do not hold.
    #[error("a txtime-delay of {delay} is not 0ns to 4294967295ns")]
    DelayRange {
        /// What was given.
        delay: Span,
    },
    /// Preemption without the hardware that does it.
    #[error("fp: preemptible classes need {needs}")]
    PreemptionWithoutOffload {
        /// What they need.
        needs: &'static str,
    },
    /// A setting of mqprio that only hardware can carry out.
    #[error("mqprio: `{key}` needs `hw 1`")]
    NeedsHardware {
        /// The setting.
        key: &'static str,
    },
    /// A rate of a class without the shaper that keeps it.
    #[error("mqprio: `{key}` needs `shaper bw_rlimit`")]
    RateWithoutShaper {
        /// The setting.
        key: &'static str,
    },
    /// Some classes have a rate and others have none.
    #[error("{key}: {given} rates for {count} traffic classes: one for each")]
    RateCount {
        /// The setting.
        key: &'static str,
        /// How many were given.
        given: usize,
        /// How many are needed.
        count: u8,
    },
    /// A mode and a shaper that the kernel does not join.
    #[error("mqprio: {why}")]
    ModeAndShaper {
        /// Which rule is broken.
        why: &'static str,
    },
    /// A schedule on an interface that cannot carry it out: see [`super::PortLimits`].
    #[error("{kind} on {queues} transmit queues: {why}")]
    TooFewQueues {
        /// The kind.
        kind: &'static str,
        /// How many queues there are.
        queues: u16,
        /// Which rule is broken.
        why: String,
    },
    /// An entry in which not even the shortest frame can be sent.
    #[error(
        "sched-entry {index} ({gates}): an interval of {interval} is shorter than {least}, \
         the shortest frame at the rate that the interface states"
    )]
    IntervalTooShort {
        /// Which entry, from 0.
        index: usize,
        /// Its gates.
        gates: GateMask,
        /// What was given.
        interval: Span,
        /// The least.
        least: Span,
    },
    /// A cycle in which not every entry could carry the shortest frame.
    #[error("a cycle-time of {cycle} is shorter than {least}: {entries} times the shortest frame")]
    CycleBelowFrames {
        /// What was given.
        cycle: Span,
        /// The least.
        least: Span,
        /// How many entries there are.
        entries: usize,
    },
    /// A number of a queue, a class or a priority.
    #[error(transparent)]
    Queue(#[from] QueueError),
    /// The name of an interface.
    #[error(transparent)]
    Id(#[from] IdError),
    /// Text that is not what `tc -j qdisc show` prints.
    #[error("`tc -j qdisc show`: {at}: {why}")]
    Json {
        /// Where in the text.
        at: String,
        /// What is wrong with it.
        why: String,
    },
}
