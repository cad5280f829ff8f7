// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Limits that a listener is held to, as one writes them on a command line: `loss=0,p99<100us`.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use serde::Serialize;
use timewire_base::{Span, Verdict, parse_span};
use timewire_capture::judge::Statistic;
use timewire_capture::stream::StreamSnapshot;

use super::listen::{HeardStream, ListenSnapshot};
use super::numbers::float;

/// One limit.
#[derive(Clone, Debug, PartialEq)]
pub struct Expectation {
    text: String,
    figure: Figure,
    relation: Relation,
    value: f64,
}

/// What is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Figure {
    /// Of each stream by itself.
    Stream(OfStream),
    /// Of everything that was heard.
    All(OfAll),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OfStream {
    Loss,
    LossShare,
    Skipped,
    Duplicate,
    Reordered,
    Restarts,
    Frames,
    /// Of the times from the one timestamp point to the other.
    Time(Statistic),
    Gap,
    Rate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OfAll {
    Streams,
    Dropped,
    Others,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    Less,
    AtMost,
    Equal,
    AtLeast,
    More,
}

/// What kind of value a figure has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Count,
    CountOrShare,
    Time,
    PerSecond,
}

const FIGURES: [(&str, Figure, Kind); 18] = [
    ("loss", Figure::Stream(OfStream::Loss), Kind::CountOrShare),
    ("skipped", Figure::Stream(OfStream::Skipped), Kind::Count),
    ("duplicate", Figure::Stream(OfStream::Duplicate), Kind::Count),
    ("reordered", Figure::Stream(OfStream::Reordered), Kind::Count),
    ("restarts", Figure::Stream(OfStream::Restarts), Kind::Count),
    ("frames", Figure::Stream(OfStream::Frames), Kind::Count),
    ("rate", Figure::Stream(OfStream::Rate), Kind::PerSecond),
    ("min", Figure::Stream(OfStream::Time(Statistic::Min)), Kind::Time),
    ("p50", Figure::Stream(OfStream::Time(Statistic::P50)), Kind::Time),
    ("p90", Figure::Stream(OfStream::Time(Statistic::P90)), Kind::Time),
    ("p99", Figure::Stream(OfStream::Time(Statistic::P99)), Kind::Time),
    ("p99.9", Figure::Stream(OfStream::Time(Statistic::P999)), Kind::Time),
    ("max", Figure::Stream(OfStream::Time(Statistic::Max)), Kind::Time),
    ("mean", Figure::Stream(OfStream::Time(Statistic::Mean)), Kind::Time),
    ("gap", Figure::Stream(OfStream::Gap), Kind::Time),
    ("streams", Figure::All(OfAll::Streams), Kind::Count),
    ("dropped", Figure::All(OfAll::Dropped), Kind::Count),
    ("others", Figure::All(OfAll::Others), Kind::Count),
];

const RELATIONS: [(&str, Relation); 5] = [
    ("<=", Relation::AtMost),
    (">=", Relation::AtLeast),
    ("<", Relation::Less),
    (">", Relation::More),
    ("=", Relation::Equal),
];

/// What became of a limit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judged {
    /// The limit, as it was written.
    pub limit: String,
    /// What it came to; inconclusive where the error of clocks decides.
    pub verdict: Verdict,
    /// What was found, of the stream that is worst; in words.
    pub found: String,
}

/// Several limits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Expectations(pub Vec<Expectation>);

impl FromStr for Expectations {
    type Err = String;

    fn from_str(text: &str) -> Result<Expectations, String> {
        let all: Result<Vec<_>, _> = text.split(',').map(|one| one.trim().parse()).collect();
        all.map(Expectations)
    }
}

impl FromStr for Expectation {
    type Err = String;

    fn from_str(text: &str) -> Result<Expectation, String> {
        let relation = RELATIONS.iter().filter_map(|(sign, relation)| {
            text.find(sign).map(|at| (at, std::cmp::Reverse(sign.len()), *sign, *relation))
        });
        let Some((at, _, sign, relation)) = relation.min_by_key(|it| (it.0, it.1)) else {
            return Err(format!("`{text}` is no limit, such as loss=0 or p99<100us"));
        };
        let (name, value) = (text[..at].trim(), text[at + sign.len()..].trim());
        let found = FIGURES.iter().find(|(known, ..)| *known == name);
        let Some(&(_, mut figure, kind)) = found else {
            let known: Vec<_> = FIGURES.iter().map(|(known, ..)| *known).collect();
            return Err(format!("`{name}` is no figure: {}", known.join(", ")));
        };
        let count = |text: &str| {
            let is_number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            text.parse::<u64>().ok().filter(|_| is_number).map(float)
        };
        let number = |text: &str| text.parse::<f64>().ok().filter(|n| n.is_finite() && *n >= 0.0);
        let value =
            match kind {
                Kind::Time => {
                    let span = parse_span(value).map_err(|error| format!("{name}: {error}"))?;
                    span_ns(span)
                }
                Kind::CountOrShare if value.ends_with('%') => {
                    figure = Figure::Stream(OfStream::LossShare);
                    let percent = number(value.trim_end_matches('%').trim());
                    percent.ok_or_else(|| format!("{name}: `{value}` is no share, such as 0.1%"))?
                }
                Kind::Count | Kind::CountOrShare => count(value)
                    .ok_or_else(|| format!("{name}: `{value}` is no count, such as 0"))?,
                Kind::PerSecond => number(value)
                    .ok_or_else(|| format!("{name}: `{value}` is no number per second"))?,
            };
        Ok(Expectation { text: text.to_owned(), figure, relation, value })
    }
}

impl fmt::Display for Expectation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[expect(clippy::cast_precision_loss, reason = "limits of less than 104 days are exact")]
fn span_ns(span: Span) -> f64 {
    span.as_ns() as f64
}

impl Relation {
    fn holds(self, found: f64, limit: f64) -> bool {
        match self {
            Relation::Less => found < limit,
            Relation::AtMost => found <= limit,
            // Counts, and times of whole nanoseconds.
            Relation::Equal => (found - limit).abs() < 1e-9,
            Relation::AtLeast => found >= limit,
            Relation::More => found > limit,
        }
    }

    /// The same of a value that may be wrong by so much; `None` where that decides.
    fn holds_within(self, found: f64, error: f64, limit: f64) -> Option<bool> {
        let can_be_equal = self == Relation::Equal && error > 0.0;
        if can_be_equal && (found - limit).abs() <= error {
            return None;
        }
        let (least, most) = (self.holds(found - error, limit), self.holds(found + error, limit));
        (least == most).then_some(least)
    }

    /// Whether one found value is further from the good side than another.
    fn is_worse(self, one: f64, than: f64, limit: f64) -> bool {
        match self {
            Relation::Less | Relation::AtMost => one > than,
            Relation::AtLeast | Relation::More => one < than,
            Relation::Equal => (one - limit).abs() > (than - limit).abs(),
        }
    }
}

impl Expectation {
    /// Judges what a listener has heard. Each stream is judged by itself; a time that no message
    /// had, and a limit of streams when there was none, fails. A latency is judged with the
    /// error of its clocks: it passes, or fails, when it does so anywhere within.
    pub fn judge(&self, heard: &ListenSnapshot) -> Judged {
        let limit = self.text.clone();
        let of = match self.figure {
            Figure::All(figure) => {
                let found = match figure {
                    OfAll::Streams => u64::try_from(heard.streams.len()).unwrap_or(u64::MAX),
                    OfAll::Dropped => heard.dropped,
                    OfAll::Others => heard.others,
                };
                let verdict = self.relation.holds(float(found), self.value).into();
                return Judged { limit, verdict, found: found.to_string() };
            }
            Figure::Stream(figure) => figure,
        };
        let mut worst: Option<OneStream> = None;
        for stream in &heard.streams {
            let one = match self.judge_stream(of, stream) {
                Ok(one) => one,
                Err(found) => return Judged { limit, verdict: Verdict::Fail, found },
            };
            let is_worse = worst.as_ref().is_none_or(|than| {
                match one.verdict.severity().cmp(&than.verdict.severity()) {
                    Ordering::Equal => self.relation.is_worse(one.value, than.value, self.value),
                    order => order == Ordering::Greater,
                }
            });
            if is_worse {
                worst = Some(one);
            }
        }
        match worst {
            None => Judged { limit, verdict: Verdict::Fail, found: "no stream came".to_owned() },
            Some(OneStream { verdict, found, .. }) => Judged { limit, verdict, found },
        }
    }

    /// One stream by itself; an error is in words why there is no such figure.
    fn judge_stream(&self, of: OfStream, stream: &HeardStream) -> Result<OneStream, String> {
        let (name, clock) = (stream.name(), &stream.clock);
        let error_ns = if of.is_of_two_clocks() { clock.error_ns } else { Some(0) };
        let Some(error_ns) = error_ns else {
            let found = format!("latency of stream {name}: {}", clock.describe());
            return Ok(OneStream { verdict: Verdict::Inconclusive, value: 0.0, found });
        };
        let Some(value) = of.of(&stream.seen) else {
            return Err(format!("stream {name} has no such figure"));
        };
        let error = span_ns(Span::from_ns(error_ns));
        let verdict = self.relation.holds_within(value, error, self.value).into();
        let mut found = of.text(value);
        if error_ns > 0 {
            found += &format!(" ±{}", of.text(error));
        }
        Ok(OneStream { verdict, value, found: found + &format!(" of stream {name}") })
    }
}

/// What became of a limit with one stream.
struct OneStream {
    verdict: Verdict,
    value: f64,
    found: String,
}

impl OfStream {
    /// Whether it is a difference of the talker's clock and the listener's.
    fn is_of_two_clocks(self) -> bool {
        matches!(self, OfStream::Time(_))
    }

    fn of(self, seen: &StreamSnapshot) -> Option<f64> {
        let sequence = &seen.sequence;
        Some(match self {
            OfStream::Loss => float(sequence.lost + sequence.open),
            OfStream::LossShare => {
                let lost = sequence.lost + sequence.open;
                let all = lost + sequence.received;
                if all == 0 { 0.0 } else { float(lost) / float(all) * 100.0 }
            }
            OfStream::Skipped => float(seen.skipped?),
            OfStream::Duplicate => float(sequence.duplicate),
            OfStream::Reordered => float(sequence.reordered),
            OfStream::Restarts => float(sequence.restarts),
            OfStream::Frames => float(seen.frames),
            OfStream::Rate => seen.total_rate?.frames_per_s,
            OfStream::Time(statistic) => {
                statistic.of_ns(seen.between.as_ref().filter(|between| between.count > 0)?)
            }
            OfStream::Gap => {
                let gaps = &seen.inter_arrival;
                (gaps.count > 0).then(|| span_ns(Span::from_ns(gaps.max_ns)))?
            }
        })
    }

    fn text(self, value: f64) -> String {
        match self {
            OfStream::Loss
            | OfStream::Skipped
            | OfStream::Duplicate
            | OfStream::Reordered
            | OfStream::Restarts
            | OfStream::Frames => format!("{value:.0}"),
            OfStream::LossShare => format!("{value:.4}%"),
            OfStream::Rate => format!("{value:.1}/s"),
            _ => format!("{:.3}us", value / 1e3),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::clocks::ClockBound;
    use super::super::listen::tests::heard;
    use super::*;

    fn judge(text: &str) -> Vec<(bool, String)> {
        let all: Expectations = text.parse().unwrap();
        let judged = all.0.iter().map(|one| one.judge(&heard()));
        judged.map(|one| (one.verdict == Verdict::Pass, one.found)).collect()
    }

    #[test]
    fn t0_limits_are_judged_for_the_worst_stream() {
        // Stream 1 has 100 messages and one lost, stream 7 has 5 and none.
        assert_eq!(judge("loss=0"), [(false, "1 of stream 1".to_owned())]);
        assert_eq!(judge("loss<1%"), [(true, "0.9901% of stream 1".to_owned())]);
        assert!(!judge("loss<=0.99%")[0].0);
        assert_eq!(judge("frames>=6"), [(false, "5 of stream 7".to_owned())]);
        assert_eq!(
            judge("frames>=5, streams=2"),
            [(true, "5 of stream 7".to_owned()), (true, "2".to_owned())]
        );
        assert_eq!(judge("max<=30us")[0], (true, "30.000us of stream 1".to_owned()));
        assert!(!judge("max<30us")[0].0);
        assert_eq!(judge("min>9us")[0], (true, "10.000us of stream 1".to_owned()));
        assert_eq!(judge("dropped=0,others=3").iter().filter(|it| it.0).count(), 2);
        assert!(!judge("dropped>0")[0].0);
    }

    #[test]
    fn t0_latencies_are_judged_within_the_error_of_clocks() {
        let judged = |error: Option<i64>, limit: &str| {
            let mut heard = heard();
            heard.streams.truncate(1);
            for stream in &mut heard.streams {
                stream.clock = ClockBound::stated(error.map(Span::from_us));
                stream.seen.between = stream.seen.between.take().filter(|_| error.is_some());
            }
            limit.parse::<Expectation>().unwrap().judge(&heard)
        };
        // The longest took 30 us.
        for (limit, error, within) in [
            ("max<=35us", Some(5), Some(true)),
            ("max<35us", Some(5), None),
            ("max<=25us", Some(5), None),
            ("max<25us", Some(5), Some(false)),
            ("max=30us", Some(0), Some(true)),
            ("max=30us", Some(5), None),
            ("max=36us", Some(5), Some(false)),
            ("min>=5us", Some(5), Some(true)),
            ("min>9us", Some(5), None),
            ("min>15us", Some(5), Some(false)),
        ] {
            let found = judged(error, limit);
            assert_eq!(found.verdict, Verdict::from(within), "{limit} {error:?}: {}", found.found);
            assert_eq!(found.found.contains("±5.000us"), error != Some(0), "{}", found.found);
        }
        // Without a bound nothing is judged of latencies, and all else as before.
        for (name, figure, _) in FIGURES {
            let limit = format!("{name}>=0{}", if name == "gap" { "us" } else { "" });
            let limit = match figure {
                Figure::Stream(of) if of.is_of_two_clocks() => format!("{name}>=0us"),
                _ => limit,
            };
            let is_latency = matches!(figure, Figure::Stream(of) if of.is_of_two_clocks());
            let found = judged(None, &limit);
            let is_unsure = found.verdict == Verdict::Inconclusive;
            assert_eq!(is_unsure, is_latency, "{limit}: {}", found.found);
            assert_eq!(found.found.contains("clock error unknown"), is_latency, "{}", found.found);
        }
    }

    #[test]
    fn t0_what_is_no_limit_is_refused_with_what_would_be() {
        let refused = |text: &str| text.parse::<Expectations>().unwrap_err();
        assert!(refused("loss").contains("p99<100us"));
        assert!(refused("p98<1us").contains("p99.9"));
        assert!(refused("p99<100").contains("no unit"));
        assert!(refused("loss=0us").contains("no count"));
        assert!(refused("loss<x%").contains("0.1%"));
        assert!(refused("loss=0,").contains("no limit"));
        assert!("p99 <= 1.5ms".parse::<Expectation>().is_ok());
    }

    #[test]
    fn t0_without_streams_limits_of_streams_fail() {
        let mut none = heard();
        none.streams.clear();
        let judged = "loss=0".parse::<Expectation>().unwrap().judge(&none);
        assert_eq!((judged.verdict, judged.found.as_str()), (Verdict::Fail, "no stream came"));
    }
}
