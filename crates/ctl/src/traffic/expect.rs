// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Limits that a listener is held to, as one writes them on a command line: `loss=0,p99<100us`.
//!
//! Not here: limits of a scenario (`timewire_trace::judge`).

use std::fmt;
use std::str::FromStr;

use serde::Serialize;
use timewire_base::{Span, parse_span};
use timewire_trace::stream::StreamSnapshot;

use super::listen::ListenSnapshot;
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
    Min,
    P50,
    P90,
    P99,
    P999,
    Max,
    Mean,
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
    ("min", Figure::Stream(OfStream::Min), Kind::Time),
    ("p50", Figure::Stream(OfStream::P50), Kind::Time),
    ("p90", Figure::Stream(OfStream::P90), Kind::Time),
    ("p99", Figure::Stream(OfStream::P99), Kind::Time),
    ("p99.9", Figure::Stream(OfStream::P999), Kind::Time),
    ("max", Figure::Stream(OfStream::Max), Kind::Time),
    ("mean", Figure::Stream(OfStream::Mean), Kind::Time),
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
    /// Whether it was kept.
    pub kept: bool,
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
    /// had, and a limit of streams when there was none, is not kept.
    pub fn judge(&self, heard: &ListenSnapshot) -> Judged {
        let limit = self.text.clone();
        let of = match self.figure {
            Figure::All(figure) => {
                let found = match figure {
                    OfAll::Streams => u64::try_from(heard.streams.len()).unwrap_or(u64::MAX),
                    OfAll::Dropped => heard.dropped,
                    OfAll::Others => heard.others,
                };
                let kept = self.relation.holds(float(found), self.value);
                return Judged { limit, kept, found: found.to_string() };
            }
            Figure::Stream(figure) => figure,
        };
        let mut worst: Option<(String, f64)> = None;
        for stream in &heard.streams {
            let Some(found) = of.of(&stream.seen) else {
                let found = format!("stream {} has no such figure", stream.name());
                return Judged { limit, kept: false, found };
            };
            if worst
                .as_ref()
                .is_none_or(|(_, than)| self.relation.is_worse(found, *than, self.value))
            {
                worst = Some((stream.name(), found));
            }
        }
        match worst {
            None => Judged { limit, kept: false, found: "no stream came".to_owned() },
            Some((stream, value)) => {
                let kept = self.relation.holds(value, self.value);
                let found = format!("{} of stream {stream}", of.text(value));
                Judged { limit, kept, found }
            }
        }
    }
}

impl OfStream {
    fn of(self, seen: &StreamSnapshot) -> Option<f64> {
        let time = |ns: i64| (seen.between.count > 0).then(|| span_ns(Span::from_ns(ns)));
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
            OfStream::Min => time(seen.between.min_ns)?,
            OfStream::P50 => time(seen.between.p50_ns)?,
            OfStream::P90 => time(seen.between.p90_ns)?,
            OfStream::P99 => time(seen.between.p99_ns)?,
            OfStream::P999 => time(seen.between.p999_ns)?,
            OfStream::Max => time(seen.between.max_ns)?,
            OfStream::Mean => (seen.between.count > 0).then_some(seen.between.mean_ns)?,
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
    use super::super::listen::tests::heard;
    use super::*;

    fn judge(text: &str) -> Vec<(bool, String)> {
        let all: Expectations = text.parse().unwrap();
        let judged = all.0.iter().map(|one| one.judge(&heard()));
        judged.map(|one| (one.kept, one.found)).collect()
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
    fn t0_without_streams_no_limit_of_streams_is_kept() {
        let mut none = heard();
        none.streams.clear();
        let judged = "loss=0".parse::<Expectation>().unwrap().judge(&none);
        assert_eq!((judged.kept, judged.found.as_str()), (false, "no stream came"));
    }
}
