// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table of gates as text: a row for each figure, a column for each class.

use timewire_base::{Span, Window};

use super::super::limit::FIGURES;
use super::super::result::{Conditions, Errors};
use super::super::text::{FIGURE_TEXTS, why_none};
use super::result::{AtPoint, Class, Measured};
use crate::measure::text::Table;

/// The table with what belongs to it.
pub(super) fn text(of: &Measured) -> String {
    let (schedule, Conditions { place, kernel, .. }) = (&of.schedule, &of.conditions);
    let mut text = format!(
        "gates of taprio ({}{}), cycle {} from {} of TAI: where frames left, in ns\n\
         {place}; Linux {kernel}{}; frames of {} bytes, {} ns at {} Mbit/s, every {}; {}\n",
        schedule.mode,
        if schedule.applied_before { ", as they were" } else { "" },
        Span::from_ns(schedule.cycle_ns),
        Span::from_ns(schedule.base_time_ns),
        of.conditions.of_time(),
        of.frame_bytes,
        of.frame_ns,
        of.rate_mbit,
        Span::from_ns(of.every_ns),
        of.scheduling,
    );
    if !of.classes.is_empty() {
        table(&of.classes, &mut text);
    }
    let mut line = |told: String| text += &(told + "\n");
    of.absent.iter().for_each(|absent| line(format!("not measured: {}", absent.why)));
    for class in &of.classes {
        if let Some(why) = why_none(class.at_shown().map(|at| &at.by)) {
            line(format!("class {}: inconclusive at {}: {why}", class.class, class.shown));
        }
    }
    of.drop_causes.iter().for_each(|cause| line(cause.to_string()));
    text + &of.conclusion.text()
}

fn table(classes: &[Class], text: &mut String) {
    let mut table = Table { text, columns: classes, widths: (16, 16) };
    let at = |class: &Class, cell: &dyn Fn(&AtPoint) -> String| {
        let at = class.at_shown().filter(|at| at.by.incomparable.is_none());
        at.map_or("-".to_owned(), cell)
    };
    table.row("", |class| format!("class {}", class.class));
    table.row("priority", |class| class.priority.to_string());
    let most = classes.iter().map(|class| class.windows.len()).max().unwrap_or(0);
    for index in 0..most {
        let name = if index == 0 { "open" } else { "" };
        table.row(name, |class| class.windows.get(index).map_or(String::new(), window));
    }
    table.row("timestamp", |class| class.shown.to_string());
    table.row("clock", |class| class.at_shown().map_or("-".to_owned(), |at| at.by.clock.clone()));
    table.row("sent", |class| class.counts.sent.to_string());
    table.row("not taken", |class| class.counts.not_taken.to_string());
    table.row("lost", |class| at(class, &|at| at.lost.to_string()));
    table.row("inside", |class| at(class, &|at| at.inside.to_string()));
    table.row("outside", |class| at(class, &|at| at.outside().to_string()));
    for (name, errors) in [("before", (|at| &at.before) as SpreadOf), ("after", |at| &at.after)] {
        table.row(&format!("  {name}"), |class| at(class, &|at| count(errors(at))));
        table.row(&format!("  {name} max"), |class| at(class, &|at| most_of(errors(at))));
    }
    let spreads: [(&str, SpreadOf); 3] =
        [("gate late", |at| &at.opening), ("first frame", |at| &at.first), ("wait", |at| &at.wait)];
    for (name, errors) in spreads {
        table.row(name, |class| at(class, &|at| count(errors(at))));
        for (figure, value) in FIGURES.into_iter().zip(FIGURE_TEXTS) {
            let cell = |at: &AtPoint| errors(at).as_ref().map_or("-".to_owned(), value);
            table.row(&format!("  {figure}"), |class| at(class, &cell));
        }
    }
    let ns = |ns: Option<i64>| ns.map_or("-".to_owned(), |ns| ns.to_string());
    table.row("past the end", |class| at(class, &|at| count(&at.past_end)));
    table.row("  max", |class| at(class, &|at| most_of(&at.past_end)));
    table.row("unused at end", |class| at(class, &|at| count(&at.unused)));
    table.row("  min", |class| at(class, &|at| ns(at.unused.as_ref().map(|all| all.min_ns))));
    table.row("  p50", |class| at(class, &|at| ns(at.unused.as_ref().map(|all| all.p50_ns))));
}

/// One distribution of a class.
type SpreadOf = fn(&AtPoint) -> &Option<Errors>;

fn window(window: &Window) -> String {
    format!("{}+{}", window.offset, window.length)
}

fn count(errors: &Option<Errors>) -> String {
    errors.as_ref().map_or(0, |errors| errors.count).to_string()
}

fn most_of(errors: &Option<Errors>) -> String {
    errors.as_ref().map_or("-".to_owned(), |errors| errors.max_ns.to_string())
}
