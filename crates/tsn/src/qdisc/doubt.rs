// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Settings that Linux takes and that still do not do what their reader would expect; and what one
//! interface refuses that another would take.

use std::fmt;

use serde::Serialize;
use timewire_base::{BitsPerSecond, GateMask, Span, TrafficClass};

use super::{Cbs, Etf, Qdisc, QdiscClock, QdiscError, Taprio, TrafficClasses, taprio_duration};

/// A setting that Linux takes and that makes little sense.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Doubt {
    /// The cycle ends before the last entry does.
    CycleCutsEntries {
        /// The cycle.
        cycle: Span,
        /// What the entries need.
        sum: Span,
    },
    /// The entries end before the cycle does, and the kernel starts over with them: the gates leave
    /// the base time.
    CycleOutlastsEntries {
        /// The cycle.
        cycle: Span,
        /// What the entries need.
        sum: Span,
    },
    /// No entry opens the gate of a class.
    NeverOpen {
        /// Which class.
        class: TrafficClass,
    },
    /// An entry opens gates of classes that do not exist.
    NoSuchGate {
        /// Which entry, from 0.
        entry: usize,
        /// Its gates.
        gates: GateMask,
        /// How many classes there are.
        count: u8,
    },
    /// A class has queues before those of a class with a lower number: Linux before 6.3 takes that
    /// for queues shared.
    QueueOrder {
        /// Which class.
        class: usize,
    },
    /// The schedule runs on a clock that does not tell the network's time.
    Clock {
        /// Which clock.
        clock: QdiscClock,
    },
    /// `etf` drops what is late, and with no time to spare everything is.
    NoDelta,
    /// The credit of a class never grows.
    IdleSlope {
        /// What was given.
        kbit: i32,
    },
    /// Sending does not cost credit.
    SendSlope {
        /// What was given.
        kbit: i32,
    },
    /// Credit is bounded on the wrong side of zero.
    Credit {
        /// Which bound.
        name: &'static str,
        /// What was given.
        bytes: i32,
    },
    /// The slopes are of a port with another rate.
    SlopesOfAnotherRate {
        /// Their difference.
        kbit: i64,
        /// The rate that the interface states.
        stated: BitsPerSecond,
    },
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Doubt::CycleCutsEntries { cycle, sum } => {
                write!(f, "the cycle-time of {cycle} cuts the entries off, which need {sum}")
            }
            Doubt::CycleOutlastsEntries { cycle, sum } => write!(
                f,
                "the entries need {sum} of the cycle-time of {cycle}: the kernel starts over with \
                 them at once, so cycles leave the base time; close the gates for the rest"
            ),
            Doubt::NeverOpen { class } => {
                write!(f, "no entry opens the gate of traffic class {class}: it never sends")
            }
            Doubt::NoSuchGate { entry, gates, count } => {
                write!(f, "sched-entry {entry} opens gates {gates} of {count} traffic classes")
            }
            Doubt::QueueOrder { class } => write!(
                f,
                "traffic class {class} has queues before those of a lower class: Linux before 6.3 \
                 refuses that"
            ),
            Doubt::Clock { clock } => {
                write!(f, "{clock} is not the time of the network: CLOCK_TAI is")
            }
            Doubt::NoDelta => write!(
                f,
                "a delta of 0 wakes etf at the launch time: every frame is late then and dropped"
            ),
            Doubt::IdleSlope { kbit } => {
                write!(f, "idleslope {kbit} is no rate: the class stops once its credit is spent")
            }
            Doubt::SendSlope { kbit } => {
                write!(f, "sendslope {kbit} is not negative: sending costs no credit")
            }
            Doubt::Credit { name, bytes } => {
                write!(f, "{name} {bytes} is on the wrong side of zero")
            }
            Doubt::SlopesOfAnotherRate { kbit, stated } => write!(
                f,
                "idleslope less sendslope is {kbit} kbit/s, and the interface states {stated}: \
                 the class does not get its rate"
            ),
        }
    }
}

impl Qdisc {
    /// What Linux takes and a reader would not expect, in the order of the settings.
    pub fn doubts(&self) -> Vec<Doubt> {
        match self {
            Qdisc::Mqprio(mqprio) => order(&mqprio.options().classes).into_iter().collect(),
            Qdisc::Taprio(taprio) => of_taprio(taprio),
            Qdisc::Etf(etf) => of_etf(etf),
            Qdisc::Cbs(cbs) => of_cbs(cbs),
        }
    }
}

fn of_taprio(taprio: &Taprio) -> Vec<Doubt> {
    let o = taprio.options();
    let mut doubts = Vec::new();
    let (cycle, sum) = (taprio.cycle(), taprio.intervals());
    if cycle < sum {
        doubts.push(Doubt::CycleCutsEntries { cycle, sum });
    } else if cycle > sum {
        doubts.push(Doubt::CycleOutlastsEntries { cycle, sum });
    }
    if let Some(clock) = o.clock.filter(|clock| *clock != QdiscClock::Tai) {
        doubts.push(Doubt::Clock { clock });
    }
    if let Some(classes) = &o.classes {
        doubts.extend(order(classes));
        doubts.extend(gates(taprio, classes));
    }
    doubts
}

/// The first class whose queues come too early. Classes that share queues are in no order.
fn order(classes: &TrafficClasses) -> Option<Doubt> {
    let ranges = classes.queues();
    let early = ranges.windows(2).position(|pair| pair[1].offset < pair[0].offset);
    early.map(|before| Doubt::QueueOrder { class: before + 1 })
}

fn gates(taprio: &Taprio, classes: &TrafficClasses) -> Vec<Doubt> {
    let entries = &taprio.options().entries;
    let count = classes.count();
    let used = |class: &TrafficClass| classes.map().contains(class);
    let never = (0..u64::from(count))
        .map(|n| TrafficClass::new(n).expect("invariant: at most 16 classes"))
        .filter(|class| !entries.iter().any(|entry| entry.gate_states.is_open(*class)))
        .filter(used)
        .map(|class| Doubt::NeverOpen { class });
    let beyond = u32::MAX.checked_shl(u32::from(count)).unwrap_or(0);
    let none = entries.iter().enumerate().filter(move |(_, entry)| {
        // `tc` examples write ff for "all": only gates beyond eight of them are a slip.
        entry.gate_states.bits() & beyond & !0xff != 0
    });
    let none = none.map(|(entry, e)| Doubt::NoSuchGate { entry, gates: e.gate_states, count });
    never.chain(none).collect()
}

fn of_etf(etf: &Etf) -> Vec<Doubt> {
    let waits = !etf.flags().offload && !etf.flags().deadline_mode;
    if waits && etf.delta() == Span::ZERO { vec![Doubt::NoDelta] } else { Vec::new() }
}

fn of_cbs(cbs: &Cbs) -> Vec<Doubt> {
    let mut doubts = Vec::new();
    if cbs.idle_slope_kbit <= 0 {
        doubts.push(Doubt::IdleSlope { kbit: cbs.idle_slope_kbit });
    }
    if cbs.send_slope_kbit >= 0 {
        doubts.push(Doubt::SendSlope { kbit: cbs.send_slope_kbit });
    }
    if cbs.hi_credit_bytes < 0 {
        doubts.push(Doubt::Credit { name: "hicredit", bytes: cbs.hi_credit_bytes });
    }
    if cbs.lo_credit_bytes > 0 {
        doubts.push(Doubt::Credit { name: "locredit", bytes: cbs.lo_credit_bytes });
    }
    doubts
}

/// What must be known of an interface to say what it refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortLimits {
    /// How many transmit queues are in use.
    pub tx_queues: u16,
    /// The rate that it states: that of `ethtool`, and 10 Mbit/s when it states none.
    pub stated: BitsPerSecond,
}

impl PortLimits {
    /// What this interface refuses of a discipline that another would take.
    ///
    /// **Source**: `linux v6.12 net/sched/sch_taprio.c:taprio_init`, `taprio_parse_mqprio_opt`,
    /// `fill_sched_entry`, `parse_taprio_schedule`; `net/sched/sch_mqprio.c:mqprio_init`;
    /// `net/sched/sch_mqprio_lib.c:mqprio_validate_queue_counts`.
    pub fn problems(&self, qdisc: &Qdisc) -> Vec<QdiscError> {
        let kind = qdisc.kind().as_str();
        match qdisc {
            Qdisc::Etf(_) | Qdisc::Cbs(_) => Vec::new(),
            Qdisc::Mqprio(mqprio) => self.queues(kind, Some(&mqprio.options().classes)),
            Qdisc::Taprio(taprio) => {
                let mut problems = self.queues(kind, taprio.options().classes.as_ref());
                problems.extend(self.times(taprio));
                problems
            }
        }
    }

    /// Settings of a discipline that this interface takes and a reader would not expect.
    pub fn doubts(&self, qdisc: &Qdisc) -> Vec<Doubt> {
        let Qdisc::Cbs(cbs) = qdisc else { return Vec::new() };
        let kbit = i64::from(cbs.idle_slope_kbit) - i64::from(cbs.send_slope_kbit);
        let stated = i64::try_from(self.stated.get() / 1_000).unwrap_or(i64::MAX);
        if kbit == stated {
            Vec::new()
        } else {
            vec![Doubt::SlopesOfAnotherRate { kbit, stated: self.stated }]
        }
    }

    fn queues(&self, kind: &'static str, classes: Option<&TrafficClasses>) -> Vec<QdiscError> {
        let queues = self.tx_queues;
        if queues < 2 {
            let why = "it takes an interface with several".to_owned();
            return vec![QdiscError::TooFewQueues { kind, queues, why }];
        }
        let ranges = classes.map(TrafficClasses::queues).unwrap_or_default();
        let beyond = ranges.iter().enumerate().filter(|(_, range)| range.end() > u32::from(queues));
        beyond
            .map(|(class, range)| QdiscError::TooFewQueues {
                kind,
                queues,
                why: format!("traffic class {class} has {range}"),
            })
            .collect()
    }

    fn times(&self, taprio: &Taprio) -> Vec<QdiscError> {
        let o = taprio.options();
        let least = taprio_duration(60, self.stated);
        let mut problems: Vec<QdiscError> = o
            .entries
            .iter()
            .enumerate()
            .filter(|(_, entry)| entry.interval < least)
            .map(|(index, entry)| QdiscError::IntervalTooShort {
                index,
                gates: entry.gate_states,
                interval: entry.interval,
                least,
            })
            .collect();
        let entries = o.entries.len();
        let needed = i64::try_from(entries).ok().and_then(|n| least.checked_mul(n));
        let needed = needed.unwrap_or(Span::MAX);
        if taprio.cycle() < needed {
            let cycle = taprio.cycle();
            problems.push(QdiscError::CycleBelowFrames { cycle, least: needed, entries });
        }
        problems
    }
}
