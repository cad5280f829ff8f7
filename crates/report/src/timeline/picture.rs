// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One packet path on the lines that it passes, with all that was there at the same time, as SVG.

use std::collections::BTreeMap;

use super::{Flow, Interval, Lane, LaneKind, TimelineInput};
use crate::figure::Xy;
use crate::text::{Escaped, as_f64, count_f64, duration, put};

const WIDTH: f64 = 1_100.0;
const LEFT: f64 = 190.0;
const TOP: f64 = 24.0;
const ROW: f64 = 14.0;
const HEAD: f64 = 19.0;
const MAX_ROWS: usize = 4;
/// Room that a letter takes.
const LETTER: f64 = 7.5;

/// Draws a packet path; lines without anything in its time are left out. `rows` are of
/// [`rows()`](super::rows).
pub(crate) fn picture(
    input: &TimelineInput,
    (placed, counted): &(Vec<usize>, Vec<usize>),
    flow: &Flow,
    id: &str,
) -> String {
    let window = around(flow);
    let mut used = vec![false; input.lanes.len()];
    let inside = |from: i64, to: i64| from < window.1 && to.max(from) >= window.0;
    let marks = input.events.iter().map(|mark| (mark.at_ns, mark.at_ns, mark.lane));
    let counts = input.counts.iter().map(|count| (count.at_ns, count.at_ns, count.lane));
    let bands = input.bands.iter().map(|band| (band.from_ns, band.to_ns, band.lane));
    let lasting = input.intervals.iter().chain(&flow.stages);
    let lasting = lasting.map(|it| (it.from_ns, it.to_ns, it.lane));
    for (from, to, lane) in marks.chain(counts).chain(bands).chain(lasting) {
        used[lane] |= inside(from, to);
    }
    let mut drawn =
        Picture { out: String::new(), input, flow, window, places: Vec::new(), rows: placed };
    let height = drawn.lay_out(&used, counted);
    let title = format!("Packet path {}: {}", flow.number, duration(flow.length_ns));
    put!(
        &mut drawn.out,
        "<svg role=\"img\" viewBox=\"0 0 {WIDTH} {}\" aria-labelledby=\"{id}-t {id}-d\">\
         <title id=\"{id}-t\">{}</title><desc id=\"{id}-d\">{}</desc>",
        Xy(height),
        Escaped(&title),
        Escaped(&words(input, flow))
    );
    drawn.axis(height);
    drawn.bands(&used);
    drawn.names();
    drawn.counts();
    drawn.others();
    drawn.marks();
    drawn.way();
    drawn.stages();
    drawn.times();
    drawn.out + "</svg>\n"
}

/// The window of a packet path, with some room.
fn around(flow: &Flow) -> (i64, i64) {
    let to_ns = flow.from_ns.saturating_add(flow.length_ns);
    let margin = i64::try_from(i128::from(flow.length_ns) * 3 / 20).unwrap_or(i64::MAX).max(50);
    (flow.from_ns.saturating_sub(margin), to_ns.saturating_add(margin))
}

/// Its stages in words.
fn words(input: &TimelineInput, flow: &Flow) -> String {
    let stage = |it: &Interval| format!("{} {}. ", input.names[it.name], time_of(it));
    flow.stages.iter().map(stage).collect()
}

/// The time of a stage, with how far it may be from right.
fn time_of(stage: &Interval) -> String {
    let time = duration(stage.to_ns.saturating_sub(stage.from_ns));
    match stage.bound_ns {
        0 => time,
        ns => format!("{time} ±{}", duration(i64::try_from(ns).unwrap_or(i64::MAX))),
    }
}

/// A line's top edge and height; `None` where it is left out.
type RowBox = Option<(f64, f64)>;

struct Picture<'a> {
    out: String,
    input: &'a TimelineInput,
    flow: &'a Flow,
    window: (i64, i64),
    places: Vec<RowBox>,
    rows: &'a [usize],
}

impl Picture<'_> {
    /// Gives lines their places; the height of all.
    fn lay_out(&mut self, used: &[bool], counted: &[usize]) -> f64 {
        let mut y = TOP;
        let mut group: Option<&Lane> = None;
        for ((lane, &used), &rows) in self.input.lanes.iter().zip(used).zip(counted) {
            if !used {
                self.places.push(None);
                continue;
            }
            if group.is_none_or(|one| (one.host, &one.station) != (lane.host, &lane.station)) {
                group = Some(lane);
                y += HEAD;
            }
            let height = count_f64(count(rows.clamp(1, MAX_ROWS))) * ROW + 3.0;
            self.places.push(Some((y, height)));
            y += height;
        }
        y + 4.0
    }

    fn x(&self, at_ns: i64) -> f64 {
        let (from, to) = self.window;
        let share = as_f64(at_ns.saturating_sub(from)) / as_f64(to.saturating_sub(from));
        (LEFT + share * (WIDTH - LEFT)).clamp(LEFT, WIDTH)
    }

    /// Times since the packet path began.
    fn axis(&mut self, height: f64) {
        let room = self.window.1.saturating_sub(self.window.0);
        let step = [1, 2, 5].into_iter().cycle().zip(0_u32..).find_map(|(n, turn)| {
            let step = 10_i64.checked_pow(turn / 3)?.checked_mul(n)?;
            (step.saturating_mul(8) >= room).then_some(step)
        });
        let Some(step) = step else { return };
        let origin = self.flow.from_ns;
        let mut grid = String::new();
        let before = self.window.0.saturating_sub(origin).div_euclid(step).saturating_mul(step);
        let mut next = Some(origin.saturating_add(before));
        while let Some(at) = next.filter(|at| *at <= self.window.1) {
            if at >= self.window.0 {
                let x = self.x(at);
                put!(&mut grid, "M{} {}V{}", Xy(x), Xy(TOP - 4.0), Xy(height));
                let class = if x > WIDTH - 40.0 { "e dim" } else { "m dim" };
                let text = duration(at.saturating_sub(origin));
                put!(
                    &mut self.out,
                    "<text class=\"{class}\" x=\"{}\" y=\"13\">{text}</text>",
                    Xy(x)
                );
            }
            next = at.checked_add(step);
        }
        put!(&mut self.out, "<path class=\"grid\" d=\"{grid}\"/>");
    }

    fn names(&mut self) {
        let mut group: Option<&Lane> = None;
        for (lane, place) in self.input.lanes.iter().zip(&self.places) {
            let Some((y, _)) = *place else { continue };
            if group.is_none_or(|one| (one.host, &one.station) != (lane.host, &lane.station)) {
                group = Some(lane);
                let text = group_name(self.input, lane);
                put!(
                    &mut self.out,
                    "<text class=\"strong\" x=\"2\" y=\"{}\">{}</text>",
                    Xy(y - 5.0),
                    Escaped(&text)
                );
            }
            let name: String = lane.name.chars().take(30).collect();
            put!(
                &mut self.out,
                "<text class=\"dim\" x=\"10\" y=\"{}\">{}</text>",
                Xy(y + 11.0),
                Escaped(&name)
            );
        }
    }

    fn bands(&mut self, used: &[bool]) {
        let mut apart = Apart::default();
        for band in &self.input.bands {
            let (left, right) = (self.x(band.from_ns), self.x(band.to_ns));
            let outside = band.from_ns >= self.window.1 || band.to_ns < self.window.0;
            if outside || !apart.is_seen((band.lane, 0), right) {
                continue;
            }
            let own = &self.input.lanes[band.lane];
            let lanes = self.input.lanes.iter().zip(&self.places).zip(used);
            let of_station = lanes.filter(|((lane, _), used)| {
                **used && (lane.host, &lane.station) == (own.host, &own.station)
            });
            let places: Vec<(f64, f64)> = of_station.filter_map(|((_, place), _)| *place).collect();
            let (Some(first), Some(last)) = (places.first(), places.last()) else { continue };
            let whole = (first.0, last.0 + last.1 - first.0);
            let own = self.places[band.lane].map(|(y, height)| (y + 3.0, height - 5.0));
            for (class, place) in [("gate", Some(whole)), ("gate own", own)] {
                let Some((y, height)) = place else { continue };
                self.rect(class, (left, right), (y, height), None);
            }
        }
    }

    fn counts(&mut self) {
        for (number, lane) in self.input.lanes.iter().enumerate() {
            let (LaneKind::Queue, Some((y, height))) = (lane.kind, self.places[number]) else {
                continue;
            };
            let of_lane = || self.input.counts.iter().filter(|count| count.lane == number);
            let most = of_lane().map(|count| count.value).max().unwrap_or(1).max(1);
            let bottom = y + height - 1.0;
            let mut d = String::new();
            let mut apart = Apart::default();
            for (one, next) in of_lane().zip(of_lane().skip(1)) {
                if next.at_ns < self.window.0 || one.at_ns > self.window.1 || one.value == 0 {
                    continue;
                }
                let high = count_f64(one.value) / count_f64(most) * (height - 3.0);
                let (left, right) = (self.x(one.at_ns), self.x(next.at_ns));
                if apart.is_seen((0, 0), right) {
                    let top = Xy(bottom - high);
                    put!(
                        &mut d,
                        "M{} {}V{top}H{}V{}Z",
                        Xy(left),
                        Xy(bottom),
                        Xy(right),
                        Xy(bottom)
                    );
                }
            }
            put!(&mut self.out, "<path class=\"queue\" d=\"{d}\"/>");
        }
    }

    /// Stages of other packet paths, interrupts, deferred work.
    fn others(&mut self) {
        let mut apart = Apart::default();
        for (at, it) in self.input.intervals.iter().enumerate() {
            let outside = it.from_ns >= self.window.1 || it.to_ns.max(it.from_ns) < self.window.0;
            let (false, Some((y, height))) = (outside, self.places[it.lane]) else { continue };
            let (left, right) = (self.x(it.from_ns), self.x(it.to_ns.max(it.from_ns)));
            let right = right.max(left + 1.0);
            let row = self.rows[at] % MAX_ROWS;
            let is_own = self.flow.stages.iter().any(|own| own.key() == it.key());
            if is_own || !apart.is_seen((it.lane, row), right) {
                continue;
            }
            let top = (y + 1.0 + count_f64(count(row)) * ROW).min(y + height - ROW);
            let (class, whose) = match it.packet_path {
                Some(number) => ("f s1 other", format!("packet path {number}, ")),
                None => ("bar f s5", String::new()),
            };
            let about = format!("{whose}{}, {}", self.input.names[it.name], time_of(it));
            self.rect(class, (left, right), (top, ROW - 1.0), Some(&about));
        }
    }

    fn marks(&mut self) {
        let mut d = String::new();
        let mut last = (usize::MAX, 0.0);
        for mark in &self.input.events {
            let inside = (self.window.0..=self.window.1).contains(&mark.at_ns);
            let (true, Some((y, height))) = (inside, self.places[mark.lane]) else { continue };
            let x = (self.x(mark.at_ns) * 2.0).round() / 2.0;
            if last == (mark.lane, x) {
                continue;
            }
            last = (mark.lane, x);
            put!(&mut d, "M{} {}v{}", Xy(x), Xy(y + 2.0), Xy(height - 4.0));
        }
        put!(&mut self.out, "<path class=\"tick\" d=\"{d}\"/>");
    }

    /// From the end of each stage to the begin of the next, with an arrow where that is at another
    /// station.
    fn way(&mut self) {
        let mut d = String::new();
        for pair in self.flow.stages.windows(2) {
            let [one, next] = pair else { continue };
            let middle = |lane: usize| self.places[lane].map(|(y, height)| y + height / 2.0);
            let (Some(from), Some(to)) = (middle(one.lane), middle(next.lane)) else { continue };
            let (ox, x) = (self.x(one.to_ns), self.x(next.from_ns));
            put!(&mut d, "M{} {}L{} {}", Xy(ox), Xy(from), Xy(x), Xy(to));
            let station = |lane: usize| {
                let lane = &self.input.lanes[lane];
                (lane.host, &lane.station)
            };
            if station(one.lane) != station(next.lane) {
                let down = if to > from { 9.0 } else { -9.0 };
                let y = Xy(to - down);
                put!(
                    &mut self.out,
                    "<path class=\"wayhead\" d=\"M{} {}L{} {y}L{} {y}Z\"/>",
                    Xy(x),
                    Xy(to),
                    Xy(x - 4.0),
                    Xy(x + 4.0)
                );
            }
        }
        put!(&mut self.out, "<path class=\"way\" d=\"{d}\"/>");
    }

    /// Its own stages, the largest in a colour of its own; where a clock is known within a bound
    /// only, how far the end may be from right.
    fn stages(&mut self) {
        let length = |stage: &Interval| stage.to_ns.saturating_sub(stage.from_ns);
        let largest = self.flow.stages.iter().map(length).max();
        for stage in &self.flow.stages {
            let Some((y, height)) = self.places[stage.lane] else { continue };
            let (left, right) = self.ends(stage);
            let found = self.input.intervals.binary_search_by_key(&stage.key(), Interval::key);
            let at = found.map_or(0, |at| self.rows[at]);
            let top = y + 1.0 + count_f64(count(at % MAX_ROWS)) * ROW;
            let top = top.min(y + height - ROW);
            let class = if Some(length(stage)) == largest { "bar f alarm" } else { "bar f s1" };
            let about = format!("{}, {}", self.input.names[stage.name], time_of(stage));
            self.rect(class, (left, right), (top, ROW - 1.0), Some(&about));
            let host = self.input.hosts.get(self.input.lanes[stage.lane].host);
            let bound = host.map_or(0, |host| host.bound_ns);
            if let (1.., Ok(bound)) = (bound, i64::try_from(bound)) {
                let from = self.x(stage.to_ns.saturating_sub(bound));
                let to = self.x(stage.to_ns.saturating_add(bound));
                self.rect("unsure", (from, to), (top + 4.0, 5.0), None);
            }
        }
    }

    fn ends(&self, stage: &Interval) -> (f64, f64) {
        let (left, right) = (self.x(stage.from_ns), self.x(stage.to_ns.max(stage.from_ns)));
        (left, right.max(left + 1.0))
    }

    /// How long its stages took, beside them; of those that follow each other on a line together.
    fn times(&mut self) {
        for stages in self.flow.stages.chunk_by(|one, next| one.lane == next.lane) {
            let [first, ..] = stages else { continue };
            let Some((y, _)) = self.places[first.lane] else { continue };
            let (left, right) = (self.ends(first).0, stages.iter().map(|it| self.ends(it).1));
            let right = right.fold(left, f64::max);
            // The line of an interface is named for the stage.
            let named = self.input.lanes[first.lane].kind == LaneKind::Interface;
            let times = stages.iter().map(|stage| match named {
                true => time_of(stage),
                false => format!("{} {}", self.input.names[stage.name], time_of(stage)),
            });
            let text = times.collect::<Vec<_>>().join(", ");
            let wide = count_f64(count(text.chars().count())) * LETTER;
            let (class, x) = match right + wide > WIDTH && left - wide > LEFT {
                true => ("e halo", left - 4.0),
                false => ("halo", right + 4.0),
            };
            let (x, y) = (Xy(x), Xy(y + 11.5));
            put!(
                &mut self.out,
                "<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{}</text>",
                Escaped(&text)
            );
        }
    }

    fn rect(&mut self, class: &str, x: (f64, f64), (y, height): (f64, f64), about: Option<&str>) {
        let (left, width, y, height) = (Xy(x.0), Xy(x.1 - x.0), Xy(y), Xy(height));
        put!(
            &mut self.out,
            "<rect class=\"{class}\" x=\"{left}\" y=\"{y}\" width=\"{width}\" height=\"{height}\""
        );
        match about {
            Some(about) => put!(&mut self.out, "><title>{}</title></rect>", Escaped(about)),
            None => self.out.push_str("/>"),
        }
    }
}

/// What has been drawn so far on each row of each line: what would add less than half a unit at
/// its right is not drawn, so that a picture is bounded whatever lies in its window.
#[derive(Default)]
struct Apart(BTreeMap<(usize, usize), f64>);

impl Apart {
    fn is_seen(&mut self, row: (usize, usize), right: f64) -> bool {
        let last = self.0.entry(row).or_insert(f64::NEG_INFINITY);
        let seen = right >= *last + 0.5;
        *last = if seen { right } else { *last };
        seen
    }
}

fn group_name(input: &TimelineInput, lane: &Lane) -> String {
    let Some(host) = input.hosts.get(lane.host) else { return lane.station.clone() };
    let bound = match host.bound_ns {
        0 => String::new(),
        ns => format!(" (clock ±{})", duration(i64::try_from(ns).unwrap_or(i64::MAX))),
    };
    match lane.station.is_empty() || lane.station == host.name {
        true => format!("{}{bound}", host.name),
        false => format!("{} / {}{bound}", host.name, lane.station),
    }
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
