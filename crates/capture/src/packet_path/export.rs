// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packet paths as rows of a table with a column for each stage, or as JSON Lines with everything
//! that is known of each.
//!
//! Columns and fields: `docs/src/reference/trace-views.md`.

use serde::Serialize;

use super::culprit::Known;
use super::{PacketPath, Parts, PathOutcome, Rule, Status, Why};
use crate::table::{Cell, Column, Kind};

/// The `schema` field of every line of JSON.
pub const PACKET_PATH_SCHEMA: &str = "timewire.packet-path/1";

/// The columns of a table of packet paths.
pub fn columns() -> Vec<Column> {
    let (text, integer, natural) = (Kind::Text, Kind::Integer, Kind::Natural);
    let before = [
        ("packet_path", natural),
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

/// A packet path as a row of a table with [`columns`].
///
/// The column of a stage has its time over all hops, and nothing where the packet path has no such
/// stage. Where hooks were missing, neighbours are one stage: its time is in `merged_ns`, its name
/// in `merged`; and there is that of `driver-receive`, which only captures with `xdp` have. So the
/// stages' columns sum to `end_to_end_ns` exactly.
pub fn row(packet_path: &PacketPath, known: &Known) -> Vec<Cell<'static>> {
    let mut sums = vec![None::<i64>; stages().count()];
    let (mut merged_ns, mut merged) = (None::<i64>, Vec::new());
    for stage in &packet_path.stages {
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
    let (from, to) = ends(packet_path, known);
    let why = packet_path.why.map_or(String::new(), |why| why.to_string());
    let outcome = match packet_path.outcome {
        PathOutcome::Dropped { reason } => {
            format!("dropped:{}", why_dropped(packet_path, known, reason))
        }
        other => other.name().to_owned(),
    };
    let hops = packet_path.stages.last().map_or(0, |stage| stage.hop);
    let mut cells = vec![
        Cell::Natural(packet_path.number),
        Cell::text(format!("{:016x}", packet_path.tag)),
        Cell::Flag(packet_path.tagged),
        Cell::text(known.flow(packet_path.flow())),
        Cell::text(packet_path.status.name()),
        Cell::text(why),
        Cell::text(outcome),
        Cell::Integer(packet_path.from_ns()),
        Cell::Integer(packet_path.to_ns()),
        Cell::Integer(packet_path.end_to_end_ns()),
        Cell::Natural(packet_path.bound_ns()),
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
fn why_dropped(packet_path: &PacketPath, known: &Known, reason: u64) -> String {
    let capture = packet_path.points.last().map_or(0, |point| usize::from(point.capture));
    known.reason(capture, reason)
}

fn ends(packet_path: &PacketPath, known: &Known) -> (String, String) {
    let name = |point: Option<&super::Point>| {
        point.map_or(String::new(), |at| known.station(usize::from(at.capture), at.station))
    };
    (name(packet_path.points.first()), name(packet_path.points.last()))
}

#[derive(Serialize)]
struct ExportLine<'a> {
    schema: &'static str,
    packet_path: u64,
    tag: String,
    tagged: bool,
    flow: String,
    status: Status,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<Why>,
    #[serde(flatten)]
    outcome: PathOutcome,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason_name: Option<String>,
    from_ns: i64,
    to_ns: i64,
    end_to_end_ns: i64,
    bound_ns: u64,
    stages: Vec<LineStage>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    transmit_timestamps: Vec<LineTimestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sentence: Option<&'a str>,
}

/// When a sender was told, and what the NIC's clock showed, if it was the NIC.
#[derive(Serialize)]
struct LineTimestamp {
    station: String,
    interface: u32,
    told_ns: i64,
    nic_ns: Option<i64>,
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

/// A packet path as a line of JSON, ending with a line feed; with the reason for its length, where
/// it was judged.
pub fn json_line(packet_path: &PacketPath, known: &Known, sentence: Option<&str>) -> String {
    let stage = |stage: &super::Stage| {
        let at = &packet_path.points[stage.to];
        LineStage {
            stage: stage.parts.name(),
            hop: stage.hop,
            station: known.station(usize::from(at.capture), at.station),
            ns: stage.ns,
            bound_ns: stage.bound_ns,
            rule: stage.rule,
        }
    };
    let timestamp = |at: &super::Point| LineTimestamp {
        station: known.station(usize::from(at.capture), at.station),
        interface: at.interface,
        told_ns: at.at_ns,
        nic_ns: (at.aux != 0).then(|| at.aux.cast_signed()),
    };
    let line = ExportLine {
        schema: PACKET_PATH_SCHEMA,
        packet_path: packet_path.number,
        tag: format!("{:016x}", packet_path.tag),
        tagged: packet_path.tagged,
        flow: known.flow(packet_path.flow()),
        status: packet_path.status,
        why: packet_path.why,
        outcome: packet_path.outcome,
        reason_name: match packet_path.outcome {
            PathOutcome::Dropped { reason } => Some(why_dropped(packet_path, known, reason)),
            _ => None,
        },
        from_ns: packet_path.from_ns(),
        to_ns: packet_path.to_ns(),
        end_to_end_ns: packet_path.end_to_end_ns(),
        bound_ns: packet_path.bound_ns(),
        stages: packet_path.stages.iter().map(stage).collect(),
        transmit_timestamps: packet_path.timestamps.iter().map(timestamp).collect(),
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
            for packet_path in follow(info, &events) {
                sums(&row(&packet_path, &known()));
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
        let packet_path = &follow(CaptureInfo::all(), &whole())[0];
        assert_eq!(
            csv_line(&row(packet_path, &known())),
            "0,0000000000000005,true,\"a \"\"flow\"\", quoted\",complete,,received,1000,3900,2900,\
             0,1,station 0.0,station 0.1,100,200,800,50,250,500,100,500,100,300,,,\n"
        );
        let line = json_line(packet_path, &known(), Some("why"));
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["schema"], PACKET_PATH_SCHEMA);
        assert_eq!(value["outcome"], "received");
        assert_eq!(value["sentence"], "why");
        assert_eq!(value["stages"].as_array().unwrap().len(), 10);
        assert_eq!(value["stages"][4]["stage"], "wire");
        assert_eq!(value["stages"][4]["ns"], 250);
        assert_eq!(value["stages"][4]["station"], "station 0.1");
    }
}
