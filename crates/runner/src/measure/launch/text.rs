// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table of launch errors as text: a row for each figure, a column for each way and cycle.

use timewire_base::Span;

use super::super::text::Table;
use super::limit::FIGURES;
use super::result::{
    Absent, Column, Conclusion, Conditions, Errors, Figure, Measured, PointClock, Ratio,
    SmallestDelta,
};

/// The table with what belongs to it.
pub(super) fn text(of: &Measured) -> String {
    let Conditions { place, kernel, .. } = &of.conditions;
    let mut text = format!(
        "launch error, timestamp less launch time, in ns\n{place}; Linux {kernel}{}; frames of {} \
         bytes; {} repeats, interleaved; {}\n",
        of.conditions.of_time(),
        of.frame_bytes,
        of.repeats,
        of.scheduling,
    );
    if !of.columns.is_empty() {
        table(&of.columns, &mut text);
    }
    let mut line = |told: String| text += &(told + "\n");
    for Absent { way, reason } in &of.absent {
        line(format!("{way}: not measured: {}", reason.why));
    }
    for column in &of.columns {
        if let Some(why) = why_none(column.at_shown().map(|at| &at.by)) {
            line(format!("{}: no error at {}: {why}", column.name(), column.shown));
        }
    }
    for column in &of.columns {
        column.drop_causes.iter().for_each(|cause| line(format!("{}: {cause}", column.name())));
    }
    of.ratios.iter().filter(|ratio| shows(of, ratio)).for_each(|ratio| line(ratio_text(ratio)));
    of.smallest_delta.iter().for_each(|found| line(delta_text(found)));
    text + &of.conclusion.text()
}

fn shows(of: &Measured, ratio: &Ratio) -> bool {
    let column =
        |way| of.columns.iter().find(|one| one.way == way && one.cycle_ns == ratio.cycle_ns);
    [ratio.of, ratio.to].into_iter().all(|way| column(way).is_some_and(|c| c.shown == ratio.point))
}

fn table(columns: &[Column], text: &mut String) {
    let mut table = Table { text, columns, widths: (11, 19) };
    let errors = |column: &Column| column.at_shown().and_then(|at| at.errors.clone());
    let ns = |ns: Option<i64>| ns.map_or("-".to_owned(), |ns| ns.to_string());
    table.row("", Column::name);
    table.row("timestamp", |column| column.shown.to_string());
    table.row("clock", |column| column.at_shown().map_or("-".to_owned(), |at| at.by.clock.clone()));
    for (name, figure) in FIGURES.into_iter().zip(FIGURE_TEXTS) {
        table.row(name, |column| errors(column).as_ref().map_or("-".to_owned(), figure));
    }
    table.row("count", |column| errors(column).map_or(0, |errors| errors.count).to_string());
    table.row("missed", |column| column.counts.missed.to_string());
    table.row("invalid", |column| column.counts.invalid.to_string());
    table.row("not taken", |column| column.counts.not_taken.to_string());
    table.row("not timestamped", |column| {
        column.at_shown().map_or("-".to_owned(), |at| at.not_timestamped.to_string())
    });
    table.row("delta", |column| ns(column.delta_ns));
    table.row("lead", |column| ns(column.lead_ns));
}

/// One figure of a distribution in words.
type FigureText = fn(&Errors) -> String;

/// In the order of [`FIGURES`].
pub(super) const FIGURE_TEXTS: [FigureText; 9] = [
    |errors| errors.min_ns.to_string(),
    |errors| errors.max_ns.to_string(),
    |errors| errors.peak_to_peak_ns.to_string(),
    |errors| format!("{:.1}", errors.mean_ns),
    |errors| format!("{:.1}", errors.stddev_ns),
    |errors| errors.p50_ns.to_string(),
    |errors| errors.p90_ns.to_string(),
    |errors| errors.p99_ns.to_string(),
    |errors| errors.p999_ns.to_string(),
];

/// Why a column has nothing at the timestamp point that is shown.
pub(super) fn why_none(shown: Option<&PointClock>) -> Option<&str> {
    shown.map_or(Some("its frames have no such timestamp"), |by| by.incomparable.as_deref())
}

impl Conditions {
    pub(super) fn of_time(&self) -> &'static str {
        if self.virtual_time { " in virtual time" } else { "" }
    }
}

impl Conclusion {
    pub(super) fn text(&self) -> String {
        let limits = self.limits.iter().map(|limit| format!("{limit}\n"));
        let notes = self.notes.iter().map(|note| format!("note: {note}\n"));
        let ended = "ended on request: this is what was measured until then\n".to_owned();
        limits.chain(notes).chain(self.ended_early.then_some(ended)).collect()
    }
}

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
        ratio.point,
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
