// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The times of all combinations as text, and a picture of their messages one by one.

use std::fs;
use std::path::Path;

use timewire_report::{Scatter, ScatterRow};

use super::report::{CombinationReport, Point, Ratio, ReceiveReport, StageReport};
use super::sample::Part;
use crate::RunnerError;
use crate::measure::run::Report;
use crate::measure::text::times_us;

impl Report for ReceiveReport {
    const NAME: &'static str = "receive";

    fn text(&self) -> String {
        let (place, bytes, rounds) = (&self.place, self.payload_bytes, self.repeats);
        let mut out = format!("{place}, {bytes} bytes, {rounds} rounds each");
        if self.ended_early {
            out += "; ended on request";
        }
        out += "\ntimes in us: percentiles within 1.6 % over all rounds, the rest exact\n";
        if let Some(compare) = &self.compare {
            let words = "ratios by round, to the first value of";
            out += &format!("{words} `{compare}`: median (smallest - largest)\n");
        }
        for of in &self.combinations {
            out += &format!("\n{}\n  {}\n", of.name, counts(of));
            out += &format!(
                "  {:<17}{:>9}{:>9}{:>9}{:>9}{:>9}{:>10}{:>9}{:>9}  ratio of p50, of p99\n",
                "", "min", "p50", "p90", "p99", "p99.9", "max", "mean", "stddev"
            );
            of.stages.iter().for_each(|stage| out += &row(stage));
            of.drop_causes.iter().for_each(|cause| out += &format!("  {cause}\n"));
            if let Some(why) = of.nic.why.as_ref().filter(|_| self.place != "bench") {
                out += &format!("  no times from the NIC: {why}\n");
            }
            if let Some(error) = of.nic.error_ns {
                out += &format!("  times from the NIC are wrong by {error} ns at most\n");
            }
        }
        out
    }

    fn ended_early(&self) -> bool {
        self.ended_early
    }

    /// Whether a message was lost, frames came on queues that were not heard, or there is a
    /// combination without any message that was measured to its end.
    fn has_findings(&self) -> bool {
        let nothing = |it: &CombinationReport| it.received == 0 && !self.ended_early;
        self.combinations.iter().any(|it| it.lost > 0 || it.other_queues > 0 || nothing(it))
    }

    fn write_pictures(&self, directory: &Path) -> Result<(), RunnerError> {
        let picture = directory.join("receive.svg");
        fs::write(&picture, self.picture()).map_err(RunnerError::file("write", &picture))
    }
}

impl ReceiveReport {
    /// The picture of all combinations, as SVG.
    pub fn picture(&self) -> String {
        let part = |points: &[Point], get: fn(&Point) -> Option<i64>| -> Vec<(u32, i64)> {
            points.iter().filter_map(|point| Some((point.seq, get(point)?))).collect()
        };
        let row = |of: &CombinationReport| ScatterRow {
            name: match of.messages_per_point {
                0 | 1 => of.name.clone(),
                run => format!("{}, the slowest of every {run}", of.name),
            },
            points: [
                part(&of.points, |point| point.driver_ns),
                part(&of.points, |point| point.stack_ns),
                part(&of.points, |point| point.complete_ns),
            ],
        };
        let rows: Vec<_> = self.combinations.iter().map(row).collect();
        let title = format!("Received messages one by one: {}", self.place);
        let columns = Part::ALL.map(Part::name);
        Scatter { title: &title, thresholds_ns: self.thresholds_ns, columns, rows: &rows }.svg()
    }
}

fn counts(of: &CombinationReport) -> String {
    let mut text = format!("{}: ", of.mode);
    if let Some(sent) = of.sent {
        text += &format!("{sent} sent, ");
    }
    text += &format!("{} received, {} lost", of.received, of.lost);
    for (count, what) in [
        (of.not_sent, "not taken from the talker"),
        (of.dropped, "dropped by the kernel"),
        (of.duplicate, "came twice"),
        (of.reordered, "out of order"),
        (of.other_queues, "on receive queues that were not heard (inconclusive)"),
        (of.foreign, "of others"),
        (of.during_rest, "left out, they came while the receiver rested"),
        (of.not_timestamped, "without a timestamp"),
        (of.not_kept, "too many to be kept"),
        (of.read_by_others, "read by other sockets"),
    ] {
        if count > 0 {
            text += &format!(", {count} {what}");
        }
    }
    text
}

fn row(stage: &StageReport) -> String {
    let mut text = format!("  {:<17}{}", stage.stage, times_us(&stage.all));
    if let Some(ratio) = &stage.ratio {
        text += &format!("  {}, {}", told(ratio.p50), told(ratio.p99));
    }
    text.trim_end().to_owned() + "\n"
}

fn told(ratio: Ratio) -> String {
    format!("{:.2} ({:.2} - {:.2})", ratio.median, ratio.min, ratio.max)
}
