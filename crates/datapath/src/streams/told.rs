// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a talker says: a line while it runs, a table at its end.
//!
//! Not here: what it did (`talk`).

use crate::talker::StreamCounters;

use super::numbers::{float, rate, table, us};
use super::talk::{LatenessSummary, TalkOutcome, TalkProgress};

/// How it goes, in one line.
pub fn line(progress: &TalkProgress) -> String {
    let seconds = progress.elapsed.as_us_f64() / 1e6;
    let per_second = if seconds > 0.0 { float(progress.sent) / seconds } else { 0.0 };
    let mut line = format!("{} sent, {}/s", progress.sent, rate(per_second));
    let also = [
        (progress.skipped, "skipped"),
        (progress.not_taken, "not taken"),
        (progress.launch_refused, "dropped for their launch time"),
        (progress.timestamps, "timestamps"),
    ];
    for (count, what) in also.into_iter().filter(|(count, _)| *count > 0) {
        line += &format!(", {count} {what}");
    }
    line
}

/// A column: its head, and the counter in it.
type Column = (&'static str, fn(&StreamCounters) -> u64);

/// Counters that have a column only when one of them is not zero: all is well without them.
const TROUBLES: [Column; 9] = [
    ("woke late", |it| it.skipped_woke_late),
    ("overran", |it| it.skipped_overran),
    ("expired", |it| it.expired),
    ("not taken", |it| it.not_taken),
    ("refused", |it| it.refused),
    ("sent late", |it| it.past_deadline),
    ("launch invalid", |it| it.launch_invalid),
    ("launch missed", |it| it.launch_missed),
    ("no timestamp", |it| it.timestamps_missing),
];

/// The table of the streams and what else is to be known, ending with a line feed.
///
/// **Units**: all times are microseconds.
pub fn outcome(done: &TalkOutcome) -> String {
    let troubles: Vec<&Column> = TROUBLES.iter().filter(|(_, of)| of(&done.total) > 0).collect();
    let mut head = vec!["stream", "to", "planned", "sent"];
    head.extend(troubles.iter().map(|(head, _)| *head));
    head.extend(["late min", "p50", "p99", "max"]);
    let mut rows = vec![head.into_iter().map(str::to_owned).collect::<Vec<_>>()];
    for stream in &done.streams {
        let mut row = vec![
            stream.stream.to_string(),
            stream.to.clone(),
            stream.counters.planned.to_string(),
            stream.counters.sent.to_string(),
        ];
        row.extend(troubles.iter().map(|(_, of)| of(&stream.counters).to_string()));
        row.extend(times(&stream.lateness));
        rows.push(row);
    }
    let mut out = table(&rows, &[1]);
    let total = &done.total;
    if done.streams.len() > 1 {
        out += &format!(
            "{} streams: {} planned, {} sent",
            done.streams.len(),
            total.planned,
            total.sent
        );
        for (head, of) in &troubles {
            out += &format!(", {} {head}", of(total));
        }
        out.push('\n');
    }
    if total.timestamps + total.timestamps_missing > 0 {
        out += &format!(
            "{} timestamps came back, {} did not\n",
            total.timestamps, total.timestamps_missing
        );
    }
    if !done.timestamp_faults.is_empty() {
        out += &format!("timestamps not as they should be: {}\n", done.timestamp_faults);
    }
    for cause in &done.drop_causes {
        out += &format!("{cause}\n");
    }
    let [min, p50, p99, max] = times(&done.wake);
    if done.wake.count > 0 {
        out += &format!("wake-ups were late by {min} to {max}us, p50 {p50}us, p99 {p99}us\n");
    }
    let also = [
        (done.busy_rounds, "rounds without a sleep, because something was due already"),
        (done.delayed, "times that frames stayed in the ring until the next call"),
        (done.other_errors, "errors about earlier messages, as of ICMP"),
        (done.unknown_reports, "reports about messages that are not known any more"),
        (done.lost_reports, "reports lost because they were not read in time"),
    ];
    for (count, what) in also.into_iter().filter(|(count, _)| *count > 0) {
        out += &format!("{count} {what}\n");
    }
    out
}

fn times(lateness: &LatenessSummary) -> [String; 4] {
    let LatenessSummary { count, min_ns, p50_ns, p99_ns, max_ns, .. } = *lateness;
    [min_ns, p50_ns, p99_ns, max_ns].map(|ns| if count == 0 { "-".to_owned() } else { us(ns) })
}

/// Whether everything was sent, and all timestamps came back.
pub fn is_well(done: &TalkOutcome) -> bool {
    TROUBLES.iter().all(|(_, of)| of(&done.total) == 0) && done.lost_reports == 0
}

#[cfg(test)]
mod tests {
    use super::super::talk::TalkedStream;
    use super::*;
    use crate::talker::TimestampFaults;
    use timewire_base::Span;

    fn done() -> TalkOutcome {
        let lateness = LatenessSummary {
            count: 1_000,
            min_ns: 120,
            p50_ns: 800,
            p99_ns: 4_000,
            max_ns: 12_345,
            mean_ns: 900.0,
        };
        let stream = |stream, to: &str, counters| TalkedStream {
            stream,
            to: to.to_owned(),
            counters,
            lateness,
        };
        let good = StreamCounters { planned: 1_000, sent: 1_000, ..StreamCounters::default() };
        let bad = StreamCounters {
            planned: 1_010,
            sent: 1_000,
            skipped_woke_late: 7,
            not_taken: 3,
            launch_missed: 2,
            timestamps: 1_998,
            timestamps_missing: 2,
            ..StreamCounters::default()
        };
        TalkOutcome {
            schema: super::super::talk::TALK_SCHEMA.to_owned(),
            ports: vec!["UDP".to_owned()],
            elapsed_ns: 1_000_000_000,
            ended_early: false,
            streams: vec![stream(1, "10.0.0.2:15001", good), stream(300, "[fd00::2]:15001", bad)],
            total: StreamCounters { planned: 2_010, sent: 2_000, ..bad },
            wake: lateness,
            busy_rounds: 5,
            delayed: 0,
            other_errors: 0,
            timestamp_faults: TimestampFaults::default(),
            unknown_reports: 0,
            lost_reports: 0,
            drop_causes: Vec::new(),
        }
    }

    #[test]
    fn t1_the_table_of_two_streams() {
        let expected = include_str!("told/two_streams.txt");
        let told = outcome(&done());
        assert_eq!(told, expected, "\n{told}");
        assert!(!is_well(&done()));
    }

    #[test]
    fn t0_a_stream_that_went_well_has_no_columns_of_trouble() {
        let mut well = done();
        well.streams.truncate(1);
        well.total = well.streams[0].counters;
        let told = outcome(&well);
        let head = "stream  to              planned  sent  late min  p50  p99   max";
        assert_eq!(told.lines().next(), Some(head));
        assert!(is_well(&well));
        let progress = TalkProgress {
            elapsed: Span::from_ms(500),
            sent: 100,
            skipped: 2,
            timestamps: 98,
            ..TalkProgress::default()
        };
        assert_eq!(line(&progress), "100 sent, 200.0/s, 2 skipped, 98 timestamps");
        assert_eq!(line(&TalkProgress::default()), "0 sent, 0.0/s");
    }
}
