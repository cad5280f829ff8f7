// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table of launch errors as text: a row for each figure, a column for each way and cycle.
//!
//! Not here: computing it (`result`).

use std::fmt::Write;

use timewire_base::Span;

use super::result::{AtTap, Column, Errors, Figure, Measured, Ratio, SmallestDelta};

impl Measured {
    /// The table with what belongs to it.
    pub fn text(&self) -> String {
        let mut text = format!(
            "launch error, stamp less launch time, in ns\n{}; Linux {}{}; frames of {} bytes; \
             {} repeats, interleaved; {}\n",
            self.place,
            self.kernel,
            if self.virtual_time { " in virtual time" } else { "" },
            self.frame_bytes,
            self.repeats,
            self.scheduling,
        );
        if !self.columns.is_empty() {
            self.table(&mut text);
        }
        for absent in &self.absent {
            put(&mut text, format_args!("{}: not measured: {}\n", absent.way, absent.why));
        }
        for column in &self.columns {
            let why = match column.at_shown() {
                None => Some("its frames have no such stamp"),
                Some(at) => at.incomparable.as_deref(),
            };
            if let Some(why) = why {
                let head = column.name();
                put(&mut text, format_args!("{head}: no error at {}: {why}\n", column.shown));
            }
        }
        for column in &self.columns {
            for cause in &column.drop_causes {
                put(&mut text, format_args!("{}: {cause}\n", column.name()));
            }
        }
        for ratio in self.ratios.iter().filter(|ratio| self.shows(ratio)) {
            put(&mut text, format_args!("{}\n", ratio_text(ratio)));
        }
        if let Some(found) = &self.smallest_delta {
            put(&mut text, format_args!("{}\n", delta_text(found)));
        }
        for limit in &self.limits {
            put(&mut text, format_args!("{limit}\n"));
        }
        for note in &self.notes {
            put(&mut text, format_args!("note: {note}\n"));
        }
        if self.ended_early {
            text += "ended on request: this is what was measured until then\n";
        }
        text
    }

    fn shows(&self, ratio: &Ratio) -> bool {
        let column =
            |way| self.columns.iter().find(|one| one.way == way && one.cycle_ns == ratio.cycle_ns);
        [ratio.of, ratio.to]
            .into_iter()
            .all(|way| column(way).is_some_and(|c| c.shown == ratio.tap))
    }

    fn table(&self, text: &mut String) {
        let mut row = |name: &str, cell: &dyn Fn(&Column) -> String| {
            let mut line = format!("{name:<11}");
            for column in &self.columns {
                put(&mut line, format_args!(" {:>19}", cell(column)));
            }
            put(text, format_args!("{}\n", line.trim_end()));
        };
        row("", &Column::name);
        row("stamp", &|column| column.shown.to_string());
        row("clock", &|column| column.at_shown().map_or("-".to_owned(), |at| at.clock.clone()));
        let figures: [(&str, FigureText); 9] = [
            ("min", |errors| errors.min_ns.to_string()),
            ("max", |errors| errors.max_ns.to_string()),
            ("pk-pk", |errors| errors.peak_to_peak_ns.to_string()),
            ("mean", |errors| format!("{:.1}", errors.mean_ns)),
            ("stddev", |errors| format!("{:.1}", errors.stddev_ns)),
            ("p50", |errors| errors.p50_ns.to_string()),
            ("p90", |errors| errors.p90_ns.to_string()),
            ("p99", |errors| errors.p99_ns.to_string()),
            ("p99.9", |errors| errors.p999_ns.to_string()),
        ];
        for (name, figure) in figures {
            row(name, &|column| {
                let errors = column.at_shown().and_then(|at| at.errors.as_ref());
                errors.map_or("-".to_owned(), figure)
            });
        }
        row("count", &|column| {
            let errors = column.at_shown().and_then(|at| at.errors.as_ref());
            errors.map_or(0, |errors| errors.count).to_string()
        });
        row("missed", &|column| column.counts.missed.to_string());
        row("invalid", &|column| column.counts.invalid.to_string());
        row("not taken", &|column| column.counts.not_taken.to_string());
        row("unstamped", &|column| {
            column.at_shown().map_or("-".to_owned(), |at: &AtTap| at.unstamped.to_string())
        });
        row("delta", &|column| column.delta_ns.map_or("-".to_owned(), |ns| ns.to_string()));
        row("lead", &|column| column.lead_ns.map_or("-".to_owned(), |ns| ns.to_string()));
    }
}

/// One figure of a column in words.
type FigureText = fn(&Errors) -> String;

fn ratio_text(ratio: &Ratio) -> String {
    let figure = match ratio.figure {
        Figure::PeakToPeak => "pk-pk",
        Figure::Stddev => "stddev",
    };
    format!(
        "{} : {} @ {}, {figure} at {}: {:.2} (median of {} repeats, {:.2} to {:.2})",
        ratio.of,
        ratio.to,
        Span::from_ns(ratio.cycle_ns),
        ratio.tap,
        ratio.median,
        ratio.repeats,
        ratio.smallest,
        ratio.largest,
    )
}

fn delta_text(found: &SmallestDelta) -> String {
    let tried: u64 = found.trials.iter().map(|trial| trial.frames).sum();
    let cycles = found.cycles_ns.iter().map(|ns| Span::from_ns(*ns).to_string());
    let cycles = cycles.collect::<Vec<_>>().join(" and ");
    match found.delta_ns {
        Some(delta) => format!(
            "smallest delta: {} missed none of {} frames at {cycles}, after {} trials of {tried} \
             frames in all; this speaks of these frames, not of others under another load",
            Span::from_ns(delta),
            found.confirmed_by,
            found.trials.len(),
        ),
        None => format!(
            "smallest delta: none found at {cycles} in {} trials of {tried} frames",
            found.trials.len()
        ),
    }
}

fn put(text: &mut String, what: std::fmt::Arguments<'_>) {
    text.write_fmt(what).expect("invariant: a string takes all");
}
