// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How exact sending can be: a few classes, each with what it means and what makes it no better.

use serde::Serialize;
use timewire_base::Span;

use super::finding::{Accuracy, BackendVariant};
use super::{Probe, Probes};
use crate::snapshot::Snapshot;
use crate::snapshot::model::{CpuSet, Preemption};

/// How exact sending can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AccuracyClass {
    /// Time is virtual.
    Exact,
    /// The NIC sends at the time.
    Hardware,
    /// A real-time kernel with a CPU for it.
    RealTime,
    /// A kernel that can be late.
    Standard,
    /// Anything can happen.
    Unbounded,
}

impl AccuracyClass {
    /// All, the best first.
    pub const ALL: [AccuracyClass; 5] = [
        AccuracyClass::Exact,
        AccuracyClass::Hardware,
        AccuracyClass::RealTime,
        AccuracyClass::Standard,
        AccuracyClass::Unbounded,
    ];

    /// The name in output.
    pub fn word(self) -> &'static str {
        match self {
            AccuracyClass::Exact => "exact",
            AccuracyClass::Hardware => "hardware",
            AccuracyClass::RealTime => "real_time",
            AccuracyClass::Standard => "standard",
            AccuracyClass::Unbounded => "unbounded",
        }
    }

    /// What it means, in one sentence without a full stop.
    pub fn meaning(self) -> &'static str {
        match self {
            AccuracyClass::Exact => "in virtual time everything happens when it is due",
            AccuracyClass::Hardware => {
                "the NIC sends by its own clock: tens of nanoseconds beside the error of that \
                 clock"
            }
            AccuracyClass::RealTime => {
                "a thread on a CPU of its own, in a kernel that can be interrupted: some ten \
                 microseconds"
            }
            AccuracyClass::Standard => {
                "a thread with priority, in a kernel that may keep it waiting: mostly some ten \
                 microseconds, now and then some hundred"
            }
            AccuracyClass::Unbounded => {
                "nothing keeps a frame from being milliseconds late; good for trying things out"
            }
        }
    }

    /// How late a schedule has to allow a frame to be; `None` when there is no such time. A figure
    /// for the design, no promise.
    pub fn allowance(self) -> Option<Span> {
        match self {
            AccuracyClass::Exact | AccuracyClass::Hardware => Some(Span::from_us(1)),
            AccuracyClass::RealTime => Some(Span::from_us(50)),
            AccuracyClass::Standard => Some(Span::from_us(250)),
            AccuracyClass::Unbounded => None,
        }
    }
}

/// The class of a host with this backend, and what makes it no better: the facts, the worst first.
pub(super) fn accuracy(
    snapshot: &Snapshot,
    probes: &Probes,
    variant: Option<BackendVariant>,
) -> Accuracy {
    let (class, dominated_by) = class(snapshot, probes, variant);
    let (meaning, allowance) = (class.meaning(), class.allowance());
    Accuracy { class, meaning, allowance, dominated_by }
}

fn class(
    snapshot: &Snapshot,
    probes: &Probes,
    variant: Option<BackendVariant>,
) -> (AccuracyClass, String) {
    let host = &snapshot.settings.host;
    let said = |class, text: &str| (class, text.to_owned());
    if host.kernel.virtual_time {
        return said(AccuracyClass::Exact, "the resolution of the machine's clock");
    }
    if variant.is_some_and(BackendVariant::is_in_the_nic) {
        let synchronised =
            snapshot.state.host.clock.known().is_some_and(|clock| clock.synchronised);
        return said(
            AccuracyClass::Hardware,
            if synchronised {
                "the synchronisation of the NIC's clock"
            } else {
                "the NIC's clock, which nothing keeps on time"
            },
        );
    }
    if host.cpus.virtual_machine.known() == Some(&true) {
        return said(AccuracyClass::Unbounded, "the host of this virtual machine (cpu.virtual)");
    }
    if !probes.works(Probe::Timers) {
        let why = "timers without high resolution (clock.timers)";
        return said(AccuracyClass::Unbounded, why);
    }
    if !probes.works(Probe::Fifo) {
        let why = "every other program, without real-time scheduling (scheduling.fifo)";
        return said(AccuracyClass::Unbounded, why);
    }
    if host.kernel.preemption != Preemption::Rt {
        let why = "a kernel that cannot always be interrupted (kernel.preemption)";
        return said(AccuracyClass::Standard, why);
    }
    let online = host.cpus.online.known().map_or(1, CpuSet::len);
    if online < 2 {
        return said(AccuracyClass::Standard, "one CPU for everything (cpu.count)");
    }
    let isolated = host.cpus.isolated.known().is_some_and(|cpus| !cpus.is_empty());
    if !isolated {
        let why = "other threads and interrupts on the same CPU (cpu.isolated)";
        return said(AccuracyClass::Standard, why);
    }
    if !probes.works(Probe::WakeAtOnce) {
        return said(AccuracyClass::RealTime, "the sleep of idle CPUs (cpu.idle)");
    }
    said(AccuracyClass::RealTime, "the wake-up of the thread")
}
