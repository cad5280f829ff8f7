// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Journeys as rows of a table with a column for each stage, or as JSON Lines with everything that
//! is known of each.
//!
//! Columns and fields: `docs/src/reference/trace-views.md`.
//!
//! Not here: tables as CSV ([`crate::table`]), events as lines (`capture`).

use serde::Serialize;

use super::culprit::Known;
use super::{Journey, Outcome, Parts, Rule, Status, Why};
use crate::table::{Cell, Column, Kind};

/// The `schema` field of every line of JSON.
pub const JOURNEY_SCHEMA: &str = "timewire.journey/1";

/// The columns of a table of journeys.
pub fn columns() -> Vec<Column> {
    let (text, integer, natural) = (Kind::Text, Kind::Integer, Kind::Natural);
    let before = [
        ("journey", natural),
        ("tag", text),
        ("tagged", Kind::Flag),
        ("flow", text),
        ("status", text),
        ("why", text),
        ("outcome", text),
        ("from_ns", integer),
        ("to_ns", integer),
        ("end_to_end_ns", integer),
        ("bound_ns", natural),
        ("hops", natural),
        ("from_station", text),
        ("to_station", text),
    ];
    let mut columns: Vec<_> = before.map(|(name, kind)| Column::new(name, kind)).into();
    columns.extend(stages().map(|(_, name)| Column::new(format!("{name}_ns"), integer)));
    columns.extend([Column::new("merged_ns", integer), Column::new("merged", text)]);
    columns
}

/// The stages that have columns: those that every capture can have.
fn stages() -> impl Iterator<Item = (Parts, &'static str)> {
    Parts::ALL.into_iter().filter(|(parts, _)| *parts != Parts::DRIVER_RECEIVE)
}

/// A journey as a row of a table with [`columns`].
///
/// The column of a stage has its time over all hops, and nothing where the journey has no such
/// stage. Where hooks were missing, neighbours are one stage: its time is in `merged_ns`, its name
/// in `merged`; and there is that of `driver-receive`, which only captures with `xdp` have. So the
/// stages' columns sum to `end_to_end_ns` exactly.
pub fn row(journey: &Journey, known: &Known) -> Vec<Cell<'static>> {
    let mut sums = vec![None::<i64>; stages().count()];
    let (mut merged_ns, mut merged) = (None::<i64>, Vec::new());
    for stage in &journey.stages {
        let place = stages().position(|(parts, _)| parts == stage.parts);
        let sum = match place {
            Some(place) => &mut sums[place],
            None => {
                merged.push(stage.parts.name());
                &mut merged_ns
            }
        };
        *sum = Some(sum.unwrap_or(0) + stage.ns);
    }
    let (from, to) = ends(journey, known);
    let why = journey.why.map_or(String::new(), |why| why.to_string());
    let outcome = match journey.outcome {
        Outcome::Dropped { reason } => format!("dropped:{}", why_dropped(journey, known, reason)),
        other => other.name().to_owned(),
    };
    let hops = journey.stages.last().map_or(0, |stage| stage.hop);
    let mut cells = vec![
        Cell::Natural(journey.number),
        Cell::text(format!("{:016x}", journey.tag)),
        Cell::Flag(journey.tagged),
        Cell::text(known.flow(journey.flow())),
        Cell::text(journey.status.name()),
        Cell::text(why),
        Cell::text(outcome),
        Cell::Integer(journey.from_ns()),
        Cell::Integer(journey.to_ns()),
        Cell::Integer(journey.end_to_end_ns()),
        Cell::Natural(journey.bound_ns()),
        Cell::Natural(hops.into()),
        Cell::text(from),
        Cell::text(to),
    ];
    cells.extend(sums.into_iter().map(Cell::integer));
    cells.push(Cell::integer(merged_ns));
    cells.push(Cell::text(merged.join(" ")));
    cells
}

/// The reason of a drop in words.
fn why_dropped(journey: &Journey, known: &Known, reason: u64) -> String {
    let capture = journey.points.last().map_or(0, |point| usize::from(point.capture));
    known.reason(capture, reason)
}

fn ends(journey: &Journey, known: &Known) -> (String, String) {
    let name = |point: Option<&super::Point>| {
        point.map_or(String::new(), |at| known.station(usize::from(at.capture), at.station))
    };
    (name(journey.points.first()), name(journey.points.last()))
}

#[derive(Serialize)]
struct Line<'a> {
    schema: &'static str,
    journey: u64,
    tag: String,
    tagged: bool,
    flow: String,
    status: Status,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<Why>,
    #[serde(flatten)]
    outcome: Outcome,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason_name: Option<String>,
    from_ns: i64,
    to_ns: i64,
    end_to_end_ns: i64,
    bound_ns: u64,
    stages: Vec<LineStage>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    transmit_stamps: Vec<LineStamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sentence: Option<&'a str>,
}

/// When a sender was told, and what the card's clock showed, if it was the card.
#[derive(Serialize)]
struct LineStamp {
    station: String,
    interface: u32,
    told_ns: i64,
    card_ns: Option<i64>,
}

#[derive(Serialize)]
struct LineStage {
    stage: String,
    hop: u8,
    station: String,
    ns: i64,
    bound_ns: u64,
    rule: Rule,
}

/// A journey as a line of JSON, ending with a line feed; with the reason for its length, where it
/// was judged.
pub fn json_line(journey: &Journey, known: &Known, sentence: Option<&str>) -> String {
    let stage = |stage: &super::Stage| {
        let at = &journey.points[stage.to];
        LineStage {
            stage: stage.parts.name(),
            hop: stage.hop,
            station: known.station(usize::from(at.capture), at.station),
            ns: stage.ns,
            bound_ns: stage.bound_ns,
            rule: stage.rule,
        }
    };
    let stamp = |at: &super::Point| LineStamp {
        station: known.station(usize::from(at.capture), at.station),
        interface: at.interface,
        told_ns: at.at_ns,
        card_ns: (at.aux != 0).then(|| at.aux.cast_signed()),
    };
    let line = Line {
        schema: JOURNEY_SCHEMA,
        journey: journey.number,
        tag: format!("{:016x}", journey.tag),
        tagged: journey.tagged,
        flow: known.flow(journey.flow()),
        status: journey.status,
        why: journey.why,
        outcome: journey.outcome,
        reason_name: match journey.outcome {
            Outcome::Dropped { reason } => Some(why_dropped(journey, known, reason)),
            _ => None,
        },
        from_ns: journey.from_ns(),
        to_ns: journey.to_ns(),
        end_to_end_ns: journey.end_to_end_ns(),
        bound_ns: journey.bound_ns(),
        stages: journey.stages.iter().map(stage).collect(),
        transmit_stamps: journey.stamps.iter().map(stamp).collect(),
        sentence,
    };
    serde_json::to_string(&line).expect("invariant: names and numbers become JSON") + "\n"
}

#[cfg(test)]
mod tests {
    use super::super::tests::{follow, whole};
    use super::super::{CaptureInfo, Hook};
    use super::*;
    use crate::capture::Note;
    use crate::event::Event;
    use crate::table::csv_line;

    fn known() -> Known {
        let mut known = Known::default();
        known.learn(0, &Note::Flow { flow: 0, name: "a \"flow\", quoted".to_owned() });
        known
    }

    fn sums(cells: &[Cell<'_>]) {
        let columns = columns();
        assert_eq!(cells.len(), columns.len());
        for (column, cell) in columns.iter().zip(cells) {
            assert!(cell.fits(column.kind), "{}: {cell:?}", column.name);
        }
        let cell = |name: &str| {
            let place = columns.iter().position(|it| it.name == name).unwrap();
            if let Cell::Integer(ns) = cells[place] { ns } else { 0 }
        };
        let of_stages = stages().map(|(_, name)| cell(&format!("{name}_ns")));
        assert_eq!(of_stages.sum::<i64>() + cell("merged_ns"), cell("end_to_end_ns"));
    }

    #[test]
    fn t0_columns_of_stages_sum_to_the_whole() {
        for left_out in Hook::ALL {
            let events: Vec<_> =
                whole().into_iter().filter(|event| event.hook != left_out).collect();
            let mut info = CaptureInfo::all();
            info.hooks.remove(&left_out);
            for journey in follow(info, &events) {
                sums(&row(&journey, &known()));
            }
        }
    }

    #[test]
    fn t0_what_is_of_no_station_has_no_number() {
        assert_eq!(known().station(0, Event::NO_STATION), "no station");
        assert_eq!(known().station(0, 254), "station 0.254");
    }

    #[test]
    fn t0_a_line_of_each_kind() {
        let journey = &follow(CaptureInfo::all(), &whole())[0];
        assert_eq!(
            csv_line(&row(journey, &known())),
            "0,0000000000000005,true,\"a \"\"flow\"\", quoted\",complete,,received,1000,3900,2900,\
             0,1,station 0.0,station 0.1,100,200,800,50,250,500,100,500,100,300,,,\n"
        );
        let line = json_line(journey, &known(), Some("why"));
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["schema"], JOURNEY_SCHEMA);
        assert_eq!(value["outcome"], "received");
        assert_eq!(value["sentence"], "why");
        assert_eq!(value["stages"].as_array().unwrap().len(), 10);
        assert_eq!(value["stages"][4]["stage"], "wire");
        assert_eq!(value["stages"][4]["ns"], 250);
        assert_eq!(value["stages"][4]["station"], "station 0.1");
    }
}
