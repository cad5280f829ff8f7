// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table of gates as text: a row for each figure, a column for each class.
//!
//! Not here: computing it (`super::result`).

use timewire_base::{Span, Window};

use super::super::result::Errors;
use super::result::{AtTap, Class, Measured};

impl Measured {
    /// The table with what belongs to it.
    pub fn text(&self) -> String {
        let schedule = &self.schedule;
        let mut text = format!(
            "gates of taprio ({}{}), cycle {} from {} of TAI: where frames left, in ns\n\
             {}; Linux {}{}; frames of {} bytes, {} ns at {} Mbit/s, every {}; {}\n",
            schedule.mode,
            if schedule.applied_before { ", as they were" } else { "" },
            Span::from_ns(schedule.cycle_ns),
            Span::from_ns(schedule.base_time_ns),
            self.place,
            self.kernel,
            if self.virtual_time { " in virtual time" } else { "" },
            self.frame_bytes,
            self.frame_ns,
            self.rate_mbit,
            Span::from_ns(self.every_ns),
            self.scheduling,
        );
        if !self.classes.is_empty() {
            self.table(&mut text);
        }
        let mut line = |told: String| text += &(told + "\n");
        if let Some(absent) = &self.absent {
            line(format!("not measured: {}", absent.why));
        }
        for class in &self.classes {
            let why = match class.at_shown() {
                None => Some("its frames have no such stamp"),
                Some(at) => at.incomparable.as_deref(),
            };
            if let Some(why) = why {
                line(format!("class {}: not judged at {}: {why}", class.class, class.shown));
            }
        }
        self.drop_causes.iter().for_each(|cause| line(cause.to_string()));
        self.limits.iter().for_each(|limit| line(limit.to_string()));
        self.notes.iter().for_each(|note| line(format!("note: {note}")));
        if self.ended_early {
            line("ended on request: this is what was measured until then".to_owned());
        }
        text
    }

    fn table(&self, text: &mut String) {
        let mut row = |name: &str, cell: &dyn Fn(&Class) -> String| {
            let mut line = format!("{name:<16}");
            for class in &self.classes {
                line += &format!(" {:>16}", cell(class));
            }
            *text += &(line.trim_end().to_owned() + "\n");
        };
        let at = |class: &Class, cell: &dyn Fn(&AtTap) -> String| {
            let at = class.at_shown().filter(|at| at.incomparable.is_none());
            at.map_or("-".to_owned(), cell)
        };
        row("", &|class| format!("class {}", class.class));
        row("priority", &|class| class.priority.to_string());
        let most = self.classes.iter().map(|class| class.windows.len()).max().unwrap_or(0);
        for index in 0..most {
            let name = if index == 0 { "open" } else { "" };
            row(name, &|class| class.windows.get(index).map_or(String::new(), window));
        }
        row("stamp", &|class| class.shown.to_string());
        row("clock", &|class| class.at_shown().map_or("-".to_owned(), |at| at.clock.clone()));
        row("sent", &|class| class.counts.sent.to_string());
        row("not taken", &|class| class.counts.not_taken.to_string());
        row("lost", &|class| at(class, &|at| at.lost.to_string()));
        row("inside", &|class| at(class, &|at| at.inside.to_string()));
        row("outside", &|class| at(class, &|at| at.outside().to_string()));
        for (name, errors) in [("before", (|at| &at.before) as SpreadOf), ("after", |at| &at.after)]
        {
            row(&format!("  {name}"), &|class| at(class, &|at| count(errors(at))));
            row(&format!("  {name} max"), &|class| at(class, &|at| most_of(errors(at))));
        }
        let spreads: [(&str, SpreadOf); 3] = [
            ("gate late", |at| &at.opening),
            ("first frame", |at| &at.first),
            ("wait", |at| &at.wait),
        ];
        for (name, errors) in spreads {
            row(name, &|class| at(class, &|at| count(errors(at))));
            for (figure, value) in FIGURES {
                let cell = |at: &AtTap| errors(at).as_ref().map_or("-".to_owned(), value);
                row(&format!("  {figure}"), &|class| at(class, &cell));
            }
        }
        row("past the end", &|class| at(class, &|at| count(&at.past_end)));
        row("  max", &|class| at(class, &|at| most_of(&at.past_end)));
        row("unused at end", &|class| at(class, &|at| count(&at.unused)));
        row("  min", &|class| {
            at(class, &|at| at.unused.as_ref().map_or("-".to_owned(), |all| all.min_ns.to_string()))
        });
        row("  p50", &|class| {
            at(class, &|at| at.unused.as_ref().map_or("-".to_owned(), |all| all.p50_ns.to_string()))
        });
    }
}

/// One distribution of a class.
type SpreadOf = fn(&AtTap) -> &Option<Errors>;

/// One figure of a distribution in words.
type FigureText = fn(&Errors) -> String;

const FIGURES: [(&str, FigureText); 9] = [
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

fn window(window: &Window) -> String {
    format!("{}+{}", window.offset, window.length)
}

fn count(errors: &Option<Errors>) -> String {
    errors.as_ref().map_or(0, |errors| errors.count).to_string()
}

fn most_of(errors: &Option<Errors>) -> String {
    errors.as_ref().map_or("-".to_owned(), |errors| errors.max_ns.to_string())
}
