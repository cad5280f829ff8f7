// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The latencies at each load as text.

use timewire_datapath::drops::DropCause;

use super::{FarClockReport, PathReport, StepReport, TrialReport};
use crate::measure::run::Report;
use crate::measure::text::times_us;

impl Report for PathReport {
    const NAME: &'static str = "path";

    fn text(&self) -> String {
        let trip = if self.round_trip { "round trip" } else { "one way" };
        let mut out = format!(
            "{trip} to {}, {} {}, {} bytes",
            self.to, self.over, self.wait, self.payload_bytes
        );
        if self.ended_early {
            out += "; ended on request";
        }
        out += match self.far_clock {
            FarClockReport::Same => "\n".to_owned(),
            FarClockReport::Within(ns) => {
                format!("\ntimes between the two hosts are wrong by {ns} ns at most, as told\n")
            }
            FarClockReport::Foreign => {
                "\nno times between the two hosts: nobody said how close their clocks are\n"
                    .to_owned()
            }
        }
        .as_str();
        if let Some(why) = self.nic.why.as_ref().filter(|_| self.to != "bench") {
            out += &format!("no times from the NIC: {why}\n");
        }
        for trial in &self.search {
            out += &format!("search: {}\n", told(trial));
        }
        match self.full_rate {
            None => out += "every rate lost something\n",
            Some(rate) if self.searched => out += &format!("nothing is lost up to {rate}/s\n"),
            Some(_) => {}
        }
        self.steps.iter().for_each(|step| out += &of_step(step));
        let trials = self.search.iter().chain(self.steps.iter().map(|step| &step.trial));
        let mut causes = Vec::new();
        trials.for_each(|trial| DropCause::merge(&mut causes, &trial.drop_causes));
        causes.iter().for_each(|cause| out += &format!("{cause}\n"));
        out
    }

    fn ended_early(&self) -> bool {
        self.ended_early
    }

    /// Whether a step lost something, or there was none.
    fn has_findings(&self) -> bool {
        self.steps.is_empty() || self.steps.iter().any(|step| step.trial.lost() > 0)
    }
}

fn told(trial: &TrialReport) -> String {
    let mut text = format!("{}/s: {} sent, {} lost", trial.rate, trial.sent, trial.lost());
    if trial.sent < trial.planned {
        text += &format!(", {} not taken from the talker", trial.planned - trial.sent);
    }
    if !trial.kept_pace {
        text += ", the talker was slower than that";
    }
    text
}

fn of_step(step: &StepReport) -> String {
    let mut out = format!("\n{} %, {}", step.load, told(&step.trial));
    if step.timestamps_missing > 0 {
        out += &format!(", {} timestamps missing", step.timestamps_missing);
    }
    out += &format!(
        "\n  {:<27}{:>9}{:>9}{:>9}{:>9}{:>9}{:>10}{:>9}{:>9}{:>9}\n",
        "us", "n", "min", "p50", "p90", "p99", "p99.9", "max", "mean", "stddev"
    );
    for stage in &step.stages {
        let times = &stage.times;
        out += &format!("  {:<27}{:>9}{}\n", stage.stage, times.count, times_us(times));
    }
    out
}
