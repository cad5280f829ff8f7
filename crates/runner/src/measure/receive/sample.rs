// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One received message with the times of its way, and how long each part of it took.
//!
//! ```text
//! send | hardware -> kernel or driver -> user
//! ```

use timewire_base::Span;
use timewire_stats::Statistics;

/// The times of one message, all nanoseconds of TAI of this host's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Its number in the stream.
    pub seq: u32,
    /// When it was given to the kernel, of a talker on this host.
    pub send: Option<i64>,
    /// When the NIC had it, brought over to the system's clock.
    pub hardware: Option<i64>,
    /// When the XDP program had it.
    pub driver: Option<i64>,
    /// When the kernel's stack had it.
    pub kernel: Option<i64>,
    /// When the program had it.
    pub user: i64,
}

/// A part of the way, named by its two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// From the sending program to the kernel's timestamp.
    SendKernel,
    /// From the sending program to the XDP program.
    SendDriver,
    /// From the NIC to the kernel's timestamp.
    HardwareKernel,
    /// From the NIC to the XDP program.
    HardwareDriver,
    /// From the kernel's timestamp to the program.
    KernelUser,
    /// From the XDP program to the program.
    DriverUser,
    /// From the sending program to the receiving one.
    SendUser,
    /// From the NIC to the program.
    HardwareUser,
}

/// Which third of the way a stage is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Up to the first timestamp in this kernel: link, NIC, interrupt, driver.
    Driver,
    /// From there to the program: stack or ring, wake-up.
    Stack,
    /// All of it.
    Complete,
}

impl Part {
    /// Every one.
    pub const ALL: [Part; 3] = [Part::Driver, Part::Stack, Part::Complete];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Part::Driver => "driver",
            Part::Stack => "stack",
            Part::Complete => "complete",
        }
    }
}

impl Stage {
    /// Every one.
    pub const ALL: [Stage; 8] = [
        Stage::SendKernel,
        Stage::SendDriver,
        Stage::HardwareKernel,
        Stage::HardwareDriver,
        Stage::KernelUser,
        Stage::DriverUser,
        Stage::SendUser,
        Stage::HardwareUser,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Stage::SendKernel => "send->kernel",
            Stage::SendDriver => "send->driver",
            Stage::HardwareKernel => "hardware->kernel",
            Stage::HardwareDriver => "hardware->driver",
            Stage::KernelUser => "kernel->user",
            Stage::DriverUser => "driver->user",
            Stage::SendUser => "send->user",
            Stage::HardwareUser => "hardware->user",
        }
    }

    /// Which part it is.
    pub fn part(self) -> Part {
        match self {
            Stage::SendKernel
            | Stage::SendDriver
            | Stage::HardwareKernel
            | Stage::HardwareDriver => Part::Driver,
            Stage::KernelUser | Stage::DriverUser => Part::Stack,
            Stage::SendUser | Stage::HardwareUser => Part::Complete,
        }
    }

    /// How long it took a message; `None` when one of the ends is not known.
    pub fn of(self, sample: &Sample) -> Option<Span> {
        let (from, to) = match self {
            Stage::SendKernel => (sample.send, sample.kernel),
            Stage::SendDriver => (sample.send, sample.driver),
            Stage::HardwareKernel => (sample.hardware, sample.kernel),
            Stage::HardwareDriver => (sample.hardware, sample.driver),
            Stage::KernelUser => (sample.kernel, Some(sample.user)),
            Stage::DriverUser => (sample.driver, Some(sample.user)),
            Stage::SendUser => (sample.send, Some(sample.user)),
            Stage::HardwareUser => (sample.hardware, Some(sample.user)),
        };
        Some(Span::from_ns(to?.saturating_sub(from?)))
    }
}

/// How long a message took in each part, the better-known end first: the NIC's timestamp goes
/// before the talker's.
pub fn parts(sample: &Sample) -> [Option<Span>; 3] {
    let first = |stages: &[Stage]| stages.iter().find_map(|stage| stage.of(sample));
    [
        first(&[
            Stage::HardwareDriver,
            Stage::HardwareKernel,
            Stage::SendDriver,
            Stage::SendKernel,
        ]),
        first(&[Stage::DriverUser, Stage::KernelUser]),
        first(&[Stage::HardwareUser, Stage::SendUser]),
    ]
}

/// How long a stage took over messages; `None` when none has both ends.
pub fn statistics(samples: &[Sample], stage: Stage) -> Option<Statistics> {
    Statistics::of(samples.iter().filter_map(|sample| stage.of(sample)).map(Span::as_ns).collect())
}

/// At most `most` messages for a drawing, in their order: of each run of neighbours the slowest, so
/// that no outlier is lost. Says how long a run is.
pub fn thinned(samples: &[Sample], most: usize) -> (usize, Vec<Sample>) {
    let run = samples.len().div_ceil(most.max(1)).max(1);
    let slowness = |sample: &&Sample| parts(sample).into_iter().flatten().max();
    let slowest = samples.chunks(run).filter_map(|run| run.iter().max_by_key(slowness));
    (run, slowest.copied().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(seq: u32, kernel: i64, user: i64) -> Sample {
        Sample { seq, send: Some(100), kernel: Some(kernel), user, ..Sample::default() }
    }

    #[test]
    fn t0_stages_are_between_the_ends_that_are_known() {
        let of_xdp =
            Sample { hardware: Some(150), driver: Some(170), kernel: None, ..sample(0, 0, 300) };
        let known: Vec<_> = Stage::ALL
            .iter()
            .filter_map(|stage| Some((stage.name(), stage.of(&of_xdp)?.as_ns())))
            .collect();
        let wanted = [
            ("send->driver", 70),
            ("hardware->driver", 20),
            ("driver->user", 130),
            ("send->user", 200),
            ("hardware->user", 150),
        ];
        assert_eq!(known, wanted);
        let ns = |part: Option<Span>| part.map(Span::as_ns);
        assert_eq!(parts(&of_xdp).map(ns), [Some(20), Some(130), Some(150)]);
        assert_eq!(parts(&sample(0, 130, 131)).map(ns), [Some(30), Some(1), Some(31)]);
        let bare = Sample { user: 5, ..Sample::default() };
        assert_eq!(parts(&bare), [None; 3]);
        for (stage, part) in Stage::ALL.iter().zip([0, 0, 0, 0, 1, 1, 2, 2]) {
            assert_eq!(stage.part(), Part::ALL[part]);
        }
    }

    #[test]
    fn t0_statistics_of_known_samples() {
        let samples: Vec<_> = (1..=1_000_u32).map(|n| sample(n, 200, 200 + i64::from(n))).collect();
        let d = statistics(&samples, Stage::KernelUser).unwrap();
        assert_eq!((d.count, d.min_ns, d.max_ns), (1_000, 1, 1_000));
        assert_eq!((d.p50_ns, d.p90_ns, d.p99_ns, d.p999_ns), (500, 900, 990, 999));
        assert!((d.mean_ns - 500.5).abs() < 1e-9);
        // (n^2 - 1) / 12 of the numbers 1 to n is the variance of the whole, here of a sample.
        let variance: f64 = (1_000.0 * 1_000.0 - 1.0) / 12.0 * 1_000.0 / 999.0;
        assert!((d.stddev_ns - variance.sqrt()).abs() < 1e-9);
        assert_eq!(statistics(&samples, Stage::DriverUser), None);
    }

    #[test]
    fn t0_thinning_keeps_the_slowest_and_the_order() {
        let user = |n: i64| if n == 37 { 9_000 } else { 300 + n % 3 };
        let samples: Vec<_> = (0..100_u32).map(|n| sample(n, 200, user(i64::from(n)))).collect();
        let (run, thin) = thinned(&samples, 10);
        assert_eq!((run, thin.len()), (10, 10));
        assert!(thin.is_sorted_by_key(|sample| sample.seq));
        assert!(thin.iter().any(|sample| sample.seq == 37));
        assert_eq!(thinned(&samples, 1_000), (1, samples));
        assert_eq!(thinned(&[], 10), (1, Vec::new()));
    }
}
