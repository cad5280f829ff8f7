// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a listener shows: a table of the streams, a histogram of the one that is worst, and where
//! in the cycle its messages came; or one line for each stream, where nothing can be redrawn.
//!
//! Not here: what is counted (`listen`), the terminal (`timewire-cli`).

use timewire_capture::stream::StreamSnapshot;
use timewire_capture::stream::phase::PhaseSummary;
use timewire_stats::{HistogramBin, HistogramSummary};

use super::clocks::{ClockBasis, ClockBound};
use super::listen::{HeardStream, ListenSnapshot};
use super::numbers::{rate, table, us};

/// The room that there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Columns of the terminal.
    pub columns: usize,
    /// Its lines; `None` for no end.
    pub lines: Option<usize>,
}

/// Lines of a histogram at most.
const ROWS: usize = 12;
/// Columns of its longest bar.
const BAR: usize = 40;
/// Lines around the table of streams: the head, the line of what was left out, the histogram.
const AROUND: usize = 6 + ROWS;

/// The whole view, ending with a line feed.
///
/// **Units**: all times are microseconds.
pub fn view(heard: &ListenSnapshot, room: Room) -> String {
    let mut out = first_line(heard);
    let inconclusive: String =
        heard.inconclusive.iter().map(|why| format!("INCONCLUSIVE: {why}\n")).collect();
    let clashes: String = heard.clashes().iter().map(|it| format!("clash: {it}\n")).collect();
    // What is redrawn has no room for them.
    let others = heard.not_understood.iter().filter(|_| room.lines.is_none());
    let others: String = others.map(|it| format!("not understood: {}\n", it.describe())).collect();
    let causes = heard.answers.iter().flat_map(|answers| &answers.drop_causes);
    let not_answered: String = causes.map(|cause| format!("answers: {cause}\n")).collect();
    if heard.streams.is_empty() {
        return out + "no stream yet\n" + &others + &not_answered + &inconclusive;
    }
    let mut streams: Vec<&HeardStream> = heard.streams.iter().collect();
    let most = room.lines.map_or(usize::MAX, |lines| lines.saturating_sub(AROUND).max(3));
    let left_out = streams.len().saturating_sub(most);
    if left_out > 0 {
        // The worst ones are shown, in the order of their numbers.
        streams.sort_by_key(|it| std::cmp::Reverse(badness(&it.seen)));
        streams.truncate(most);
        streams.sort_by_key(|it| it.stream);
    }
    let has_skipped = heard.streams.iter().any(|it| it.seen.skipped.is_some_and(|it| it > 0));
    let mut rows = vec![HEAD.map(str::to_owned).to_vec()];
    if has_skipped {
        rows[0].insert(SKIPPED_AT, "skipped".to_owned());
    }
    // What stays on the terminal tells of the whole time, and what is redrawn of the last moment.
    let is_live = room.lines.is_some();
    rows.extend(streams.iter().map(|it| {
        let mut row = row(it, is_live);
        if has_skipped {
            let skipped = it.seen.skipped.map_or_else(|| "-".to_owned(), |it| it.to_string());
            row.insert(SKIPPED_AT, skipped);
        }
        row
    }));
    out += &cut(&table(&rows, &[]), room.columns);
    if left_out > 0 {
        out += &format!("and {left_out} streams with less loss and shorter times\n");
    }
    let worst = heard.streams.iter().max_by_key(|it| badness(&it.seen));
    if let Some(worst) = worst {
        let (stream, seen) = (worst.name(), &worst.seen);
        if let Some(between) = seen.between.as_ref().filter(|it| it.count > 0) {
            let error = plus_minus(&worst.clock);
            let (from, to) = (&seen.from_point, &seen.to_point);
            out += &format!("\nstream {stream}, {from} -> {to}, us{error}\n");
            out += &cut(&histogram(between), room.columns);
        }
        if let Some(phase) = &seen.phase {
            out += &cut(&phase_line(&stream, phase), room.columns);
        }
    }
    out + &ways(heard) + &clocks(&streams) + &clashes + &others + &not_answered + &inconclusive
}

const HEAD: [&str; 14] = [
    "stream", "messages", "1/s", "Mbit/s", "lost", "open", "reord", "dup", "min", "p50", "p99",
    "p99.9", "max", "gap max",
];

/// Where the column is of what talkers did not send, if they did not send anything.
const SKIPPED_AT: usize = 5;

fn row(stream: &HeardStream, is_live: bool) -> Vec<String> {
    let (stream, clock, seen) = (stream.name(), &stream.clock, &stream.seen);
    let sequence = &seen.sequence;
    let (last, total) = (seen.interval_rate, seen.total_rate);
    let latest = if is_live { last.or(total) } else { total };
    let gaps = Some(&seen.inter_arrival).filter(|gaps| gaps.count > 0);
    let gap = gaps.map_or_else(|| "-".to_owned(), |gaps| us(gaps.max_ns));
    let between = seen.between.as_ref().filter(|it| it.count > 0);
    let time = |of: fn(&HistogramSummary) -> i64| {
        between.map_or_else(|| "-".to_owned(), |it| clock.within(of(it), us))
    };
    vec![
        stream,
        seen.frames.to_string(),
        latest.map_or_else(|| "-".to_owned(), |it| rate(it.frames_per_s)),
        latest.map_or_else(|| "-".to_owned(), |it| format!("{:.3}", it.frame_bits_per_s / 1e6)),
        sequence.lost.to_string(),
        sequence.open.to_string(),
        sequence.reordered.to_string(),
        sequence.duplicate.to_string(),
        time(|it| it.min_ns),
        time(|it| it.p50_ns),
        time(|it| it.p99_ns),
        time(|it| it.p999_ns),
        time(|it| it.max_ns),
        gap,
    ]
}

fn first_line(heard: &ListenSnapshot) -> String {
    let mut line = format!(
        "{} ({}), {}: {} messages of {} streams",
        heard.source,
        heard.mode,
        elapsed(heard.elapsed_ns),
        heard.messages,
        heard.streams.len()
    );
    let also = [
        (heard.others, "of others"),
        (heard.no_room, "of streams beyond the most"),
        (heard.dropped, "dropped before the program"),
        (heard.other_queues.unwrap_or(0), "on receive queues that are not heard"),
        (heard.not_timestamped, "without a timestamp"),
    ];
    for (count, what) in also.into_iter().filter(|(count, _)| *count > 0) {
        line += &format!(", {count} {what}");
    }
    if let Some(answers) = &heard.answers {
        line += &format!(", {} answered", answers.sent);
        if answers.not_sent > 0 {
            line += &format!(", {} not answered", answers.not_sent);
        }
    }
    if let Some(capture) = heard.capture {
        line += &format!(", {} captured", capture.frames);
        if capture.lost > 0 {
            line += &format!(", {} not captured", capture.lost);
        }
    }
    line + "\n"
}

fn elapsed(ns: i64) -> String {
    let tenths = ns / 100_000_000;
    format!("{}.{}s", tenths / 10, tenths % 10)
}

/// How bad a stream is: what it lost, then its longest times.
fn badness(seen: &StreamSnapshot) -> (u64, i64) {
    (seen.sequence.lost, seen.between.as_ref().map_or(0, |it| it.p99_ns))
}

/// The error of clocks that goes with a time, where there is one.
fn plus_minus(clock: &ClockBound) -> String {
    match clock.error_ns {
        Some(error_ns @ 1..) => format!(" (±{}us)", us(error_ns)),
        _ => String::new(),
    }
}

/// What the latencies of streams are worth, where their clocks are not one.
fn clocks(streams: &[&HeardStream]) -> String {
    let mut told: Vec<(String, Vec<String>)> = Vec::new();
    for stream in streams.iter().filter(|it| it.clock.basis != ClockBasis::OneClock) {
        let what = stream.clock.describe();
        match told.iter_mut().find(|(known, _)| *known == what) {
            Some((_, names)) => names.push(stream.name()),
            None => told.push((what, vec![stream.name()])),
        }
    }
    let line = |(what, names): (String, Vec<String>)| {
        format!("latency of stream {}: {what}\n", names.join(", "))
    };
    told.into_iter().map(line).collect()
}

fn ways(heard: &ListenSnapshot) -> String {
    let way = |it: &super::listen::HostLatency| {
        let (from, to, clock) = (&it.from_point, &it.to_point, &it.clock);
        let Some(times) = &it.between else {
            return format!("{from} -> {to}, all streams: {}\n", clock.describe());
        };
        let [p50, p99, max] =
            [times.p50_ns, times.p99_ns, times.max_ns].map(|ns| clock.within(ns, us));
        let error = plus_minus(clock);
        format!("{from} -> {to}, all streams: p50 {p50}us, p99 {p99}us, max {max}us{error}\n")
    };
    heard.ways.iter().map(way).collect()
}

/// A line for each stream, of the interval that has just ended.
///
/// **Units**: microseconds, as they are written.
pub fn lines(heard: &ListenSnapshot) -> String {
    let mut out = String::new();
    for stream in &heard.streams {
        let (stream, clock, seen) = (stream.name(), &stream.clock, &stream.seen);
        let sequence = &seen.sequence;
        out += &format!("{} stream {stream}: {}", elapsed(heard.elapsed_ns), seen.frames);
        if let Some(latest) = seen.interval_rate {
            out += &format!(", {}/s", rate(latest.frames_per_s));
        }
        out += &format!(", lost {}", sequence.lost);
        let also = [
            (seen.skipped.unwrap_or(0), "skipped by the talker"),
            (sequence.reordered, "reordered"),
            (sequence.duplicate, "twice"),
            (sequence.restarts, "restarts"),
        ];
        for (count, what) in also.into_iter().filter(|(count, _)| *count > 0) {
            out += &format!(", {count} {what}");
        }
        let (from, to) = (&seen.from_point, &seen.to_point);
        match &seen.between {
            Some(times) if times.count > 0 => {
                let [p50, p99, max] =
                    [times.p50_ns, times.p99_ns, times.max_ns].map(|ns| clock.within(ns, us));
                out += &format!(", {from} -> {to} p50 {p50}us p99 {p99}us max {max}us");
                out += &plus_minus(clock);
            }
            Some(_) => {}
            None => out += &format!(", {from} -> {to}: {}", clock.describe()),
        }
        out.push('\n');
    }
    if heard.dropped > 0 {
        let (at, dropped) = (elapsed(heard.elapsed_ns), heard.dropped);
        out += &format!("{at} {dropped} dropped before the program\n");
    }
    out
}

/// Bars of equal steps on a logarithmic scale, as fine as fits the rows.
fn histogram(times: &HistogramSummary) -> String {
    let rows = (0..=3).rev().map(|fine| grouped(&times.bins, fine));
    let rows: Vec<Row> = rows.into_iter().find(|rows| rows.len() <= ROWS).unwrap_or_else(|| {
        // Wider than twelve octaves: the rarest ends go together.
        merged(grouped(&times.bins, 0))
    });
    let most = rows.iter().map(|row| row.count).max().unwrap_or(1).max(1);
    let texts = rows.iter().map(|row| {
        vec![
            us(row.from_ns),
            "to".to_owned(),
            us(row.to_ns),
            format!("|{}", bar(row.count, most)),
            row.count.to_string(),
        ]
    });
    table(&texts.collect::<Vec<_>>(), &[3])
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Row {
    from_ns: i64,
    to_ns: i64,
    count: u64,
}

/// Bins put together, `2^fine` rows for each power of two.
fn grouped(bins: &[HistogramBin], fine: u32) -> Vec<Row> {
    let key = |ns: i64| {
        let magnitude = ns.unsigned_abs();
        let step = match magnitude.checked_ilog2() {
            Some(log) if log >= fine => {
                (u64::from(log - fine + 1) << fine)
                    + ((magnitude >> (log - fine)) & ((1 << fine) - 1))
            }
            _ => magnitude,
        };
        (ns < 0, step)
    };
    let mut rows: Vec<((bool, u64), Row)> = Vec::new();
    for bin in bins {
        match rows.last_mut() {
            Some((of, row)) if *of == key(bin.from_ns) => {
                row.to_ns = bin.to_ns;
                row.count += bin.count;
            }
            _ => {
                let row = Row { from_ns: bin.from_ns, to_ns: bin.to_ns, count: bin.count };
                rows.push((key(bin.from_ns), row));
            }
        }
    }
    rows.into_iter().map(|(_, row)| row).collect()
}

/// Neighbours put together until they fit.
fn merged(mut rows: Vec<Row>) -> Vec<Row> {
    while rows.len() > ROWS {
        let pair = |at: &usize| rows[*at].count + rows[*at + 1].count;
        let least = (0..rows.len() - 1).min_by_key(pair).expect("invariant: two rows at least");
        let next = rows.remove(least + 1);
        rows[least].to_ns = next.to_ns;
        rows[least].count += next.count;
    }
    rows
}

fn bar(count: u64, most: u64) -> String {
    let columns = u64::try_from(BAR).expect("invariant: small");
    // Whatever there is, is seen.
    let length = u128::from(count) * u128::from(columns);
    let length = length.div_ceil(u128::from(most));
    "#".repeat(usize::try_from(length).expect("invariant: at most a bar"))
}

fn phase_line(stream: &str, phase: &PhaseSummary) -> String {
    const MARKS: [char; 8] = ['.', ':', '-', '=', '+', '*', '%', '#'];
    const COLUMNS: usize = 64;
    let (Some(min), Some(max)) = (phase.min_ns, phase.max_ns) else { return String::new() };
    let mut sums = vec![0_u64; COLUMNS.min(phase.counts.len()).max(1)];
    let columns = sums.len();
    for (bin, count) in phase.counts.iter().enumerate() {
        sums[bin * columns / phase.counts.len()] += count;
    }
    let most = sums.iter().copied().max().unwrap_or(1).max(1);
    let mark = |count: &u64| match *count {
        0 => ' ',
        count => {
            let level = u128::from(count) * 7 / u128::from(most);
            MARKS[usize::try_from(level).expect("invariant: at most 7")]
        }
    };
    let marks: String = sums.iter().map(mark).collect();
    let (cycle, min, max) = (us(phase.cycle_time_ns), us(min), us(max));
    format!("arrival of stream {stream} in the cycle of {cycle}us: {min} to {max}us\n|{marks}|\n")
}

/// Lines that a terminal does not wrap.
fn cut(text: &str, columns: usize) -> String {
    let lines = text.lines().map(|line| line.chars().take(columns).collect::<String>() + "\n");
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::super::listen::tests::heard;
    use super::super::listen::{CaptureCounts, HostLatency};
    use super::*;
    use crate::drops::AnswerCounts;

    const WIDE: Room = Room { columns: 120, lines: None };

    #[test]
    fn t1_the_view_of_two_streams() {
        let expected = include_str!("view/two_streams.txt");
        let shown = view(&heard(), WIDE);
        assert_eq!(shown, expected, "\n{shown}");
    }

    #[test]
    fn t1_the_lines_of_two_streams() {
        let expected = "\
0.1s stream 1: 100, 990.1/s, lost 1, Send -> Receive p50 19.7us p99 30.0us max 30.0us
0.1s stream 7: 5, 49.5/s, lost 0, Send -> Receive p50 10.4us p99 10.8us max 10.8us
";
        let shown = lines(&heard());
        assert_eq!(shown, expected, "\n{shown}");
        let dropped = ListenSnapshot { dropped: 9, ..heard() };
        assert!(lines(&dropped).ends_with("0.1s 9 dropped before the program\n"));
    }

    #[test]
    fn t0_latencies_are_shown_with_their_bound_or_not_at_all() {
        let of = |clock: ClockBound| {
            let mut heard = heard();
            for stream in &mut heard.streams {
                stream.clock = clock.clone();
                stream.seen.between =
                    stream.seen.between.take().filter(|_| clock.error_ns.is_some());
            }
            (view(&heard, WIDE), lines(&heard), super::super::metrics::text(&heard))
        };
        let (shown, line, page) = of(ClockBound::stated(None));
        let unknown = "clock error unknown; not shown (state it with --clock-error)";
        assert!(shown.contains(&format!("latency of stream 1, 7: {unknown}\n")), "{shown}");
        assert!(shown.lines().nth(2).unwrap().ends_with("    -    -    -      -    -   2000.4"));
        assert!(!shown.contains("Send -> Receive"), "{shown}");
        assert!(line.contains(&format!("Send -> Receive: {unknown}\n")), "{line}");
        assert!(!line.contains("p50") && shown.contains("in the cycle of"), "{line}");
        assert!(!page.contains("latency_seconds_") && !page.contains("clock_error_seconds{"));
        let (shown, line, page) = of(ClockBound::stated(Some(timewire_base::Span::from_us(15))));
        assert!(shown.contains("Send -> Receive, us (±15.0us)\n"), "{shown}");
        assert!(shown.contains("1, 7: clock error ±15us, as --clock-error states\n"), "{shown}");
        let row = shown.lines().nth(2).unwrap();
        assert!(row.contains("<=25.0") && row.contains("  30.0"), "{row}");
        assert!(line.contains("p99 <=25.8us max <=25.8us (±15.0us)"), "{line}");
        assert!(
            page.contains("clock_error_seconds{stream=\"7\",source=\"10.0.0.7:15000\"} 0.000015")
        );
    }

    #[test]
    fn t0_everything_that_is_not_well_is_in_the_first_line() {
        let way = HostLatency {
            from_point: "RxSw".to_owned(),
            to_point: "Receive".to_owned(),
            clock: ClockBound::one(),
            between: heard().streams[0].seen.between.clone(),
        };
        let bad = ListenSnapshot {
            dropped: 4,
            not_timestamped: 5,
            no_room: 6,
            answers: Some(AnswerCounts { sent: 7, not_sent: 8, drop_causes: Vec::new() }),
            capture: Some(CaptureCounts { frames: 9, lost: 10 }),
            ways: vec![way],
            ..heard()
        };
        let shown = view(&bad, WIDE);
        let expected = "UDP on 10.0.0.2:15001 (UDP socket), 0.1s: 105 messages of 2 streams, 3 of \
             others, 6 of streams beyond the most, 4 dropped before the program, 5 without a \
             timestamp, 7 answered, 8 not answered, 9 captured, 10 not captured";
        assert_eq!(shown.lines().next(), Some(expected));
        assert!(
            shown.ends_with("RxSw -> Receive, all streams: p50 19.7us, p99 30.0us, max 30.0us\n")
        );
    }

    #[test]
    fn t0_a_small_terminal_has_the_worst_streams() {
        let mut many = heard();
        for number in 100..200 {
            let mut one = many.streams[1].clone();
            one.stream = number;
            many.streams.push(one);
        }
        let shown = view(&many, Room { columns: 40, lines: Some(24) });
        assert!(shown.lines().count() <= 24, "{shown}");
        assert!(shown.lines().skip(1).all(|line| line.chars().count() <= 60), "{shown}");
        assert!(shown.contains("and 96 streams with less loss"), "{shown}");
        assert!(shown.lines().any(|line| line.trim_start().starts_with("1  ")), "{shown}");
        let none = ListenSnapshot { streams: Vec::new(), messages: 0, ..heard() };
        assert!(view(&none, WIDE).ends_with("no stream yet\n"));
    }

    #[test]
    fn t0_rows_of_a_histogram_hold_every_bin_once() {
        for spread in [1_i64, 5, 1_000, 1_000_000] {
            let mut log = timewire_stats::LogHistogram::new();
            for n in -3..300 {
                log.record(timewire_base::Span::from_ns(n * spread * (n.abs() + 1)));
            }
            let bins: Vec<_> = log.bins().collect();
            for fine in 0..=3 {
                let rows = grouped(&bins, fine);
                assert_eq!(rows.iter().map(|row| row.count).sum::<u64>(), 303);
                assert!(rows.windows(2).all(|two| two[0].to_ns < two[1].from_ns));
            }
            let rows = merged(grouped(&bins, 0));
            assert!(rows.len() <= ROWS);
            assert_eq!(rows.iter().map(|row| row.count).sum::<u64>(), 303);
            assert!(histogram(&log.summary()).lines().count() <= ROWS);
        }
        assert_eq!((bar(1, 1_000).len(), bar(1_000, 1_000).len(), bar(0, 9).len()), (1, BAR, 0));
    }
}
