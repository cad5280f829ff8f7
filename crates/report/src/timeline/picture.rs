// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The timeline of one window as a picture that needs no script.
//!
//! Not here: the page around it, and the picture that can be moved (`page`).

use super::{Flow, Lane, LaneKind, TimelineInput};
use crate::figure::Xy;
use crate::text::{Escaped, as_f64, count_f64, put};

const WIDTH: f64 = 1_100.0;
const LEFT: f64 = 190.0;
const TOP: f64 = 24.0;
const ROW: f64 = 11.0;
const HEAD: f64 = 19.0;
const MOST_ROWS: usize = 4;

/// Draws what lies in `window`; lines without anything in it are left out.
pub(super) fn picture(
    input: &TimelineInput,
    (placed, counted): (&[usize], &[usize]),
    window: (i64, i64),
    chosen: Option<&Flow>,
    id: &str,
) -> String {
    let mut used = vec![false; input.lanes.len()];
    let inside = |from: i64, to: i64| from < window.1 && to.max(from) >= window.0;
    for mark in input.events.iter().filter(|mark| inside(mark.at_ns, mark.at_ns)) {
        used[mark.lane] = true;
    }
    for interval in input.intervals.iter().filter(|it| inside(it.from_ns, it.to_ns)) {
        used[interval.lane] = true;
    }
    for band in input.bands.iter().filter(|band| inside(band.from_ns, band.to_ns)) {
        used[band.lane] = true;
    }
    for count in input.counts.iter().filter(|count| inside(count.at_ns, count.at_ns)) {
        used[count.lane] = true;
    }
    let mut drawn = Picture { out: String::new(), input, window, places: Vec::new(), rows: placed };
    let height = drawn.lay_out(&used, counted);
    let title = format!("Timeline of {}", input.title);
    let about = describe(input, window, chosen);
    put!(
        &mut drawn.out,
        "<svg role=\"img\" viewBox=\"0 0 {WIDTH} {}\" aria-labelledby=\"{id}-t {id}-d\">\
         <title id=\"{id}-t\">{}</title><desc id=\"{id}-d\">{}</desc>",
        Xy(height),
        Escaped(&title),
        Escaped(&about)
    );
    drawn.axis(height);
    drawn.bands(&used);
    drawn.names();
    drawn.counts();
    drawn.intervals();
    drawn.marks();
    if let Some(flow) = chosen {
        drawn.way(flow);
    }
    drawn.out + "</svg>\n"
}

fn describe(input: &TimelineInput, window: (i64, i64), chosen: Option<&Flow>) -> String {
    let length = duration(window.1.saturating_sub(window.0));
    let lines = input.lanes.len();
    match chosen {
        Some(flow) => format!(
            "{length} around journey {} of {}, which took {}. {}",
            flow.number,
            flow.flow,
            duration(flow.length_ns),
            flow.sentence
        ),
        None => format!("{length}, {lines} lines; no journey is in it."),
    }
}

/// A line's top edge and height; `None` where it is left out.
type Place = Option<(f64, f64)>;

struct Picture<'a> {
    out: String,
    input: &'a TimelineInput,
    window: (i64, i64),
    places: Vec<Place>,
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
            let height = count_f64(count(rows.clamp(1, MOST_ROWS))) * ROW + 3.0;
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

    fn axis(&mut self, height: f64) {
        let room = self.window.1.saturating_sub(self.window.0);
        let step = [1, 2, 5].into_iter().cycle().zip(0_u32..).find_map(|(n, turn)| {
            let step = 10_i64.checked_pow(turn / 3)?.checked_mul(n)?;
            (step.saturating_mul(8) >= room).then_some(step)
        });
        let Some(step) = step else { return };
        let origin = self.input.span_ns().map_or(0, |(from, _)| from);
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
                Xy(y + 10.0),
                Escaped(&name)
            );
        }
    }

    fn bands(&mut self, used: &[bool]) {
        for band in &self.input.bands {
            if band.from_ns >= self.window.1 || band.to_ns < self.window.0 {
                continue;
            }
            let own = &self.input.lanes[band.lane];
            let (left, right) = (self.x(band.from_ns), self.x(band.to_ns));
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
                put!(
                    &mut self.out,
                    "<rect class=\"{class}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>",
                    Xy(left),
                    Xy(y),
                    Xy(right - left),
                    Xy(height)
                );
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
            for (one, next) in of_lane().zip(of_lane().skip(1)) {
                if next.at_ns < self.window.0 || one.at_ns > self.window.1 || one.value == 0 {
                    continue;
                }
                let high = count_f64(one.value) / count_f64(most) * (height - 3.0);
                let (left, right) = (self.x(one.at_ns), self.x(next.at_ns));
                put!(
                    &mut d,
                    "M{} {}V{}H{}V{}Z",
                    Xy(left),
                    Xy(bottom),
                    Xy(bottom - high),
                    Xy(right),
                    Xy(bottom)
                );
            }
            put!(&mut self.out, "<path class=\"queue\" d=\"{d}\"/>");
        }
    }

    fn intervals(&mut self) {
        let outside = |from: i64, to: i64| from >= self.window.1 || to.max(from) < self.window.0;
        for (at, interval) in self.input.intervals.iter().enumerate() {
            if outside(interval.from_ns, interval.to_ns) {
                continue;
            }
            let Some((y, height)) = self.places[interval.lane] else { continue };
            let (left, right) =
                (self.x(interval.from_ns), self.x(interval.to_ns.max(interval.from_ns)));
            let row = self.rows[at] % MOST_ROWS;
            let top = y + 1.0 + count_f64(count(row)) * ROW;
            let name = &self.input.names[interval.name];
            put!(
                &mut self.out,
                "<rect class=\"bar f s{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"><title>{}, \
                 {}</title></rect>",
                interval.name % 6 + 1,
                Xy(left),
                Xy(top.min(y + height - ROW)),
                Xy((right - left).max(1.0)),
                Xy(ROW - 1.0),
                Escaped(name),
                duration(interval.to_ns.saturating_sub(interval.from_ns))
            );
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

    /// A journey from event to event, with how far each may be from right.
    fn way(&mut self, flow: &Flow) {
        let mut d = String::new();
        let mut before: Option<(usize, f64, f64)> = None;
        for &(lane, at_ns) in &flow.steps {
            let Some((y, height)) = self.places[lane] else { continue };
            let (x, y) = (self.x(at_ns), y + height / 2.0);
            let host = self.input.lanes[lane].host;
            let bound = self.input.hosts.get(host).map_or(0, |host| host.bound_ns);
            if bound > 0 {
                let bound = i64::try_from(bound).unwrap_or(i64::MAX);
                let left = self.x(at_ns.saturating_sub(bound));
                let right = self.x(at_ns.saturating_add(bound));
                put!(
                    &mut self.out,
                    "<rect class=\"unsure\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"5\"/>",
                    Xy(left),
                    Xy(y - 2.5),
                    Xy(right - left)
                );
            }
            put!(&mut d, "{}{} {}", if before.is_none() { 'M' } else { 'L' }, Xy(x), Xy(y));
            let station = |lane: usize| {
                let lane = &self.input.lanes[lane];
                (lane.host, lane.station.clone())
            };
            let elsewhere = before.filter(|&(from, ..)| station(from) != station(lane));
            if let Some((_, ox, oy)) = elsewhere {
                let (dx, dy) = (x - ox, y - oy);
                let length = dx.hypot(dy).max(1.0);
                let (dx, dy) = (dx / length * 9.0, dy / length * 9.0);
                put!(
                    &mut self.out,
                    "<path class=\"wayhead\" d=\"M{} {}L{} {}L{} {}Z\"/>",
                    Xy(x),
                    Xy(y),
                    Xy(x - dx - dy * 0.4),
                    Xy(y - dy + dx * 0.4),
                    Xy(x - dx + dy * 0.4),
                    Xy(y - dy - dx * 0.4)
                );
            }
            before = Some((lane, x, y));
        }
        put!(&mut self.out, "<path class=\"way\" d=\"{d}\"/>");
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

/// A time with its unit.
pub(crate) fn duration(ns: i64) -> String {
    let (value, size) = (as_f64(ns), ns.unsigned_abs());
    match size {
        0..1_000 => format!("{ns} ns"),
        1_000..10_000 => format!("{:.2} µs", value / 1e3),
        10_000..1_000_000 => format!("{:.1} µs", value / 1e3),
        1_000_000..10_000_000 => format!("{:.2} ms", value / 1e6),
        10_000_000..1_000_000_000 => format!("{:.1} ms", value / 1e6),
        _ => format!("{:.3} s", value / 1e9),
    }
}
