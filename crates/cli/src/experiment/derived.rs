// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What follows from the files of segments: slots, where streams go and by which port, how long
//! their frames are on the link, cases and limits.

use std::process::ExitCode;

use timewire_model::scenario::network::NetworkCases;
use timewire_model::scenario::{Limit, Metric, Scenario, Stream};
use timewire_runner::experiment::Script;
use timewire_tsn::file::ParseFile;

use crate::output;

/// Prints it; as JSON the files with all that follows.
pub(super) fn show(scripts: &[Script], json: bool) -> anyhow::Result<ExitCode> {
    if json {
        let read = |script: &Script| {
            let network = NetworkCases::parse(script.scenario.name.as_str(), &script.text)?;
            Ok(script.scenario.filled_into(&network.written).to_json())
        };
        let files: Vec<_> = scripts.iter().map(read).collect::<anyhow::Result<_>>()?;
        return output::json(&files);
    }
    let texts = scripts.iter().map(|script| of_scenario(&script.scenario));
    output::print(&texts.collect::<Vec<_>>().join("\n"))
}

fn of_scenario(scenario: &Scenario) -> String {
    let parts = [slots(scenario), streams(scenario), cases(scenario), limits(scenario)];
    parts.concat()
}

fn slots(scenario: &Scenario) -> String {
    let (schedule, rate) = (&scenario.schedule, scenario.segment().rate);
    if !scenario.has_schedule {
        return format!("{}: no schedule, at {rate}\n", scenario.name);
    }
    let mut text = format!("{}: cycle {} at {rate}\n", scenario.name, schedule.cycle());
    for slot in schedule.slots() {
        let largest = schedule.largest_frame(&slot.station, rate);
        let largest = largest.map_or("none".to_owned(), |length| length.to_string());
        let need = scenario.need_of(&slot.station);
        let sends = match need.frames {
            0 => String::new(),
            frames => format!("  sends {frames} in {}us", need.busy.as_us_f64()),
        };
        text += &format!(
            "  {:<12} at {:>8}  transmit {:>8}  guard {:>7}  largest frame {largest}{sends}\n",
            slot.station.to_string(),
            slot.offset.to_string(),
            slot.transmit.to_string(),
            slot.guard.to_string(),
        );
    }
    text
}

fn streams(scenario: &Scenario) -> String {
    let rows = scenario.streams.iter().map(|stream| {
        let on_link = scenario.on_link(stream.size()).as_us_f64();
        let class = match stream.priority() {
            Some(priority) => format!("class {}", 8_u32.saturating_sub(priority.get().into())),
            None => "best effort".to_owned(),
        };
        let size = stream.size();
        [
            stream.name().to_string(),
            way(stream),
            format!("{size}, {on_link}us"),
            class,
            pace(stream),
        ]
    });
    let rows: Vec<[String; 5]> = rows.collect();
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..4).map(width).collect();
    let line = |row: &[String; 5]| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        format!("  {}  {}\n", cells.collect::<Vec<_>>().join("  "), row[4])
    };
    rows.iter().map(line).collect()
}

/// From station to station, each with the port that it receives at.
fn way(stream: &Stream) -> String {
    match stream {
        Stream::RequestResponse(it) => {
            format!("{} <-> {}:{}", it.talker, it.listeners, it.port().get())
        }
        Stream::Cyclic(it) => format!("{} -> {}:{}", it.talker, it.listeners, stream.port().get()),
        Stream::Sporadic(it) => {
            format!("{} -> {}:{}", it.talker, it.listeners, stream.port().get())
        }
        Stream::Flood(it) => format!("{} -> {}:{}", it.talker, it.listeners, it.port().get()),
        Stream::Pipeline(it) => {
            let hops = it
                .connections()
                .into_iter()
                .map(|hop| format!(" -> {}:{}", hop.to, hop.port.get()));
            let first = it.stations.first().map(ToString::to_string).unwrap_or_default();
            std::iter::once(first).chain(hops).collect()
        }
    }
}

/// How often it sends, and what is late.
fn pace(stream: &Stream) -> String {
    let late = |deadline| format!(", late after {deadline}");
    match stream {
        Stream::RequestResponse(it) => {
            format!("one after the other{}, lost after {}", late(it.deadline), it.timeout)
        }
        Stream::Cyclic(it) => {
            format!("every {}{}", it.period, late(it.deadline.unwrap_or(it.period)))
        }
        Stream::Sporadic(it) => {
            format!("at any time{}", it.deadline.map(late).unwrap_or_default())
        }
        Stream::Pipeline(it) => {
            let period = it.period.map_or("cycle".to_owned(), |it| it.to_string());
            format!("every {period}{}", late(it.deadline))
        }
        Stream::Flood(it) => format!("{} of the link", it.rate),
    }
}

fn cases(scenario: &Scenario) -> String {
    let (cases, loads) = (&scenario.experiment.cases, &scenario.experiment.loads);
    let count = |all: usize, what: &str| format!("{all} {what}{}", if all == 1 { "" } else { "s" });
    format!("  {} x {}\n", count(cases.len(), "case"), count(loads.len(), "load"))
}

fn limits(scenario: &Scenario) -> String {
    let limits = scenario.limits();
    let width = limits.iter().map(|limit| limit.id.len()).max().unwrap_or(0);
    limits.iter().map(|limit| format!("  {:<width$}  {}\n", limit.id, limited(limit))).collect()
}

/// `latency-p99 of control in tdm/flood at most 520us`.
fn limited(limit: &Limit) -> String {
    let Limit { metric, stream, case, load, at_most, relative_to, .. } = limit;
    let of = stream.as_ref().map(|stream| format!(" of {stream}")).unwrap_or_default();
    let to = relative_to.as_ref().map(|to| format!(" of that in {}/{}", to.case, to.load));
    let metric = Metric::word(*metric);
    format!("{metric}{of} in {case}/{load} at most {at_most}{}", to.unwrap_or_default())
}
