// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Gathers what a timeline shows from events and packet paths as they pass, in bounded memory.

use std::collections::{BTreeMap, BTreeSet};

use timewire_base::{CyclicWindows, Instant, Phase};
use timewire_capture::event::{Event, Hook};
use timewire_capture::kernel;
use timewire_capture::packet_path::worst::Judged;
use timewire_capture::packet_path::{ClockMap, Observer, PacketPath, PathOutcome, Point};

use super::lanes::Lanes;
use super::pick::{Picker, mixed};
use super::{Band, Count, Flow, HostView, Interval, LaneKind, Mark, Names, TimelineInput};

/// What is gathered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatherOptions {
    /// Packet paths at most: half of them the longest, a quarter those nearest to a threshold, the
    /// rest any.
    pub packet_paths: usize,
    /// Decides which are any.
    pub seed: u64,
    /// Times from end to end that matter.
    ///
    /// **Units**: ns.
    pub thresholds_ns: Vec<i64>,
    /// Interrupts, polls, queue lengths and markers at most. Those in the time of a packet path
    /// that is shown stay longest.
    pub others: usize,
    /// Windows of stations at most.
    pub bands: usize,
}

impl Default for GatherOptions {
    /// For a Perfetto file: 100 000 packet paths.
    fn default() -> GatherOptions {
        GatherOptions {
            packet_paths: 100_000,
            seed: 1,
            thresholds_ns: Vec::new(),
            others: 1_000_000,
            bands: 100_000,
        }
    }
}

impl GatherOptions {
    /// For a page: 2 000 packet paths.
    pub fn for_a_page() -> GatherOptions {
        let packet_paths = 2_000;
        GatherOptions { packet_paths, others: 50_000, bands: 10_000, ..GatherOptions::default() }
    }
}

/// What is no packet path's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Interrupt(u64),
    Softirq(u64),
    Poll(u64),
    /// Handle, frames.
    Queue(u32, u64),
    /// Point.
    Marker(u64),
}

#[derive(Clone, Copy, Debug)]
struct Other {
    from_ns: i64,
    point: Point,
    what: What,
}

/// Gathers; an [`Observer`] of the analysis.
#[derive(Clone, Debug)]
pub struct Gather {
    options: GatherOptions,
    picker: Picker,
    others: Vec<Other>,
    /// Others that came, and those that were left out.
    others_seen: u64,
    /// Handlers that have begun: by capture, CPU, and whether it is an interrupt's.
    begun: BTreeMap<(u8, u16, bool), i64>,
    bounds: BTreeMap<u8, u32>,
    events: u64,
    names: Names,
    schedules: BTreeMap<(usize, u8), CyclicWindows>,
}

impl Gather {
    /// Gathers what these options say.
    pub fn new(options: GatherOptions) -> Gather {
        let picker = Picker::new(options.packet_paths, options.seed, options.thresholds_ns.clone());
        Gather {
            options,
            picker,
            others: Vec::new(),
            others_seen: 0,
            begun: BTreeMap::new(),
            bounds: BTreeMap::new(),
            events: 0,
            names: Names::default(),
            schedules: BTreeMap::new(),
        }
    }

    /// The names, to be told headers and notes.
    pub fn names(&mut self) -> &mut Names {
        &mut self.names
    }

    /// When a station may send, in TAI as its host's kernel has it.
    pub fn schedule(&mut self, capture: usize, station: u8, windows: CyclicWindows) {
        self.schedules.insert((capture, station), windows);
    }

    fn other(&mut self, from_ns: i64, point: &Point, what: What) {
        self.others_seen += 1;
        self.others.push(Other { from_ns, point: *point, what });
        if self.others.len() >= self.options.others.max(1).saturating_mul(2) {
            // The newest may belong to packet paths that have not come out yet.
            self.thin(self.options.others / 2);
        }
    }

    /// Leaves out others down to what there is room for: first those in the time of no packet path
    /// that is kept, then any.
    fn thin(&mut self, newest: usize) {
        let spans = merged(self.picker.spans().collect());
        let keep_from = self.others.len().saturating_sub(newest);
        let seed = self.options.seed;
        let mut rank: Vec<(bool, u64, usize)> = Vec::with_capacity(keep_from);
        for (at, other) in self.others[..keep_from].iter().enumerate() {
            let beside = !overlaps(&spans, other.from_ns, other.point.at_ns);
            rank.push((beside, mixed(seed ^ other.point.raw_ns), at));
        }
        rank.sort_unstable();
        let room = self.options.others.saturating_sub(self.others.len() - keep_from);
        let gone: BTreeSet<usize> = rank.iter().skip(room).map(|(_, _, at)| *at).collect();
        let mut at = 0;
        self.others.retain(|_| {
            at += 1;
            !gone.contains(&(at - 1))
        });
    }

    /// What was gathered. `worst` are in it in any case, with their sentences; `clocks` say when
    /// windows were open.
    pub fn finish(
        mut self,
        title: &str,
        worst: &[Judged],
        clocks: &impl ClockMap,
    ) -> TimelineInput {
        if self.others.len() > self.options.others {
            self.thin(0);
        }
        let seen = self.picker.seen;
        let picker = std::mem::replace(&mut self.picker, Picker::new(0, 0, Vec::new()));
        let picked = picker.finish().into_iter().map(|it| (it.number, it));
        let judged = worst.iter().map(|it| (it.packet_path.number, it.packet_path.clone()));
        let packet_paths: BTreeMap<u64, PacketPath> = picked.chain(judged).collect();
        let packet_paths: Vec<PacketPath> = packet_paths.into_values().collect();
        let mut out = Drawing {
            lanes: Lanes::default(),
            names: &self.names,
            texts: BTreeMap::new(),
            input: TimelineInput { title: title.to_owned(), ..TimelineInput::default() },
        };
        out.input.losses = self.names.losses();
        for other in &self.others {
            out.other(other);
        }
        let markers = |other: &Other| match other.what {
            What::Marker(point) => Some((key(&other.point), point)),
            _ => None,
        };
        let markers: BTreeMap<_, u64> = self.others.iter().filter_map(markers).collect();
        let sentences: BTreeMap<u64, &str> =
            worst.iter().map(|it| (it.packet_path.number, it.sentence.as_str())).collect();
        for packet_path in &packet_paths {
            let sentence = sentences.get(&packet_path.number).copied().unwrap_or_default();
            out.packet_path(packet_path, sentence, &markers);
        }
        let left_out = self.bands(&packet_paths, clocks, &mut out);
        let used: BTreeSet<usize> = self.names.captures().collect();
        let used: BTreeSet<usize> = used
            .into_iter()
            .chain(self.bounds.keys().map(|&capture| usize::from(capture)))
            .collect();
        let hosts: Vec<usize> = used.into_iter().collect();
        out.input.extent = self.extent(seen, &out.input, left_out);
        out.input.utc_ahead_ns = self.utc_ahead(&hosts, clocks);
        let bound = |capture: usize| {
            let capture = u8::try_from(capture).unwrap_or(u8::MAX);
            u64::from(self.bounds.get(&capture).copied().unwrap_or(0))
        };
        out.input.hosts = hosts
            .iter()
            .map(|&host| HostView { name: self.names.host(host), bound_ns: bound(host) })
            .collect();
        out.finish(&self.names, &hosts)
    }

    fn extent(&self, seen: u64, input: &TimelineInput, bands_left_out: u64) -> Vec<String> {
        let shown = input.packet_paths.len();
        let mut extent = Vec::new();
        if seen == u64::try_from(shown).unwrap_or(u64::MAX) {
            extent.push(format!("all {seen} packet paths"));
        } else {
            let near = match self.options.thresholds_ns.is_empty() {
                true => "",
                false => ", a quarter of them those nearest to a threshold",
            };
            let seed = self.options.seed;
            extent.push(format!(
                "{shown} of {seen} packet paths: half of them the longest{near}, the rest any by \
                 seed {seed}"
            ));
        }
        let others = u64::try_from(self.others.len()).unwrap_or(u64::MAX);
        if others < self.others_seen {
            extent.push(format!(
                "{others} of {} interrupts, polls, queue lengths and markers, those in the time \
                 of a packet path first",
                self.others_seen
            ));
        }
        if bands_left_out > 0 {
            extent.push(format!("without {bands_left_out} windows of stations, the last ones"));
        }
        extent.push(format!("of {} events", self.events));
        extent
    }

    /// UTC less the common scale, by the first capture that has a sample of its clocks.
    fn utc_ahead(&self, hosts: &[usize], clocks: &impl ClockMap) -> Option<i64> {
        hosts.iter().find_map(|&host| {
            let sample = self.names.clocks(host)?;
            let common = clocks.to_common(host, sample.monotonic_ns).ns;
            let utc = i128::from(sample.monotonic_ns) + i128::from(sample.realtime_ahead_ns);
            i64::try_from(utc - i128::from(common)).ok()
        })
    }

    /// The windows of stations around the packet paths that pass them; how many were left out.
    fn bands(
        &self,
        packet_paths: &[PacketPath],
        clocks: &impl ClockMap,
        out: &mut Drawing<'_>,
    ) -> u64 {
        let mut left_out = 0;
        for (&(capture, station), windows) in &self.schedules {
            let at_station = |p: &&Point| (usize::from(p.capture), p.station) == (capture, station);
            let margin = u64::try_from(windows.cycle().as_ns()).unwrap_or(0);
            let span = |packet_path: &PacketPath| {
                let raw = || packet_path.points.iter().filter(at_station).map(|p| p.raw_ns);
                Some((raw().min()?.saturating_sub(margin), raw().max()?.saturating_add(margin)))
            };
            let lane = out.lanes.put((capture, station, LaneKind::Gates, 0, "may send".to_owned()));
            let name = out.text("open");
            for span in merged(packet_paths.iter().filter_map(span).collect()) {
                let room = self.options.bands.saturating_sub(out.input.bands.len());
                let (shown, more) = windows_in(windows, capture, span, clocks, room);
                left_out += more;
                for (open, close) in shown {
                    let at = |raw| clocks.to_common(capture, raw).ns;
                    let (from_ns, to_ns) = (at(open), at(close));
                    out.input.bands.push(Band { from_ns, to_ns, lane, name });
                }
            }
        }
        left_out
    }
}

/// The first open windows of `[from, to]` on the capture's own clock, so many at most, and how many
/// more there are: events may be years apart.
///
/// TAI is taken to run as the capture's clock does within this interval, from its begin: over the
/// length of a packet path, even a rate of 100 ppm is nanoseconds.
fn windows_in(
    windows: &CyclicWindows,
    capture: usize,
    (from, to): (u64, u64),
    clocks: &impl ClockMap,
    room: usize,
) -> (Vec<(u64, u64)>, u64) {
    let (mut found, mut more) = (Vec::new(), 0);
    let Some(tai) = clocks.to_tai(capture, from) else { return (found, more) };
    let ahead = i128::from(tai) - i128::from(from);
    let end = i128::from(to) + ahead;
    let mut at = tai;
    while i128::from(at) < end {
        if found.len() >= room {
            // Each whole cycle has all of them.
            let cycle = windows.cycle().as_ns();
            let whole = i64::try_from((end - i128::from(at) - 1) / i128::from(cycle));
            let whole = whole.unwrap_or(i64::MAX);
            let each = u64::try_from(windows.windows().len()).unwrap_or(0);
            more += whole.unsigned_abs().saturating_mul(each);
            at = at.saturating_add(whole.saturating_mul(cycle));
        }
        let (open, close) = match windows.phase(Instant::from_ns(at)) {
            Some(Phase::Inside { end: close, .. }) => (at, close.as_ns()),
            Some(Phase::Before { start, end: close }) => (start.as_ns(), close.as_ns()),
            None => break,
        };
        if i128::from(open) >= end || close <= at {
            break;
        }
        let raw = |tai: i64| u64::try_from(i128::from(tai) - ahead).unwrap_or(0);
        if found.len() < room {
            found.push((raw(open), raw(close)));
        } else {
            more += 1;
        }
        at = close;
    }
    (found, more)
}

/// What tells a point from another of the same hook.
fn key(point: &Point) -> (u8, u64, u32, u16) {
    (point.capture, point.raw_ns, point.thread, point.cpu)
}

/// Intervals, ascending and apart.
fn merged<T: Ord + Copy>(mut spans: Vec<(T, T)>) -> Vec<(T, T)> {
    spans.sort_unstable();
    let mut out: Vec<(T, T)> = Vec::new();
    for (from, to) in spans {
        match out.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => out.push((from, to)),
        }
    }
    out
}

fn overlaps(spans: &[(i64, i64)], from: i64, to: i64) -> bool {
    let next = spans.partition_point(|&(_, end)| end < from);
    spans.get(next).is_some_and(|&(begin, _)| begin <= to)
}

/// What is drawn, while it is put together.
struct Drawing<'a> {
    lanes: Lanes,
    names: &'a Names,
    texts: BTreeMap<String, usize>,
    input: TimelineInput,
}

impl Drawing<'_> {
    fn text(&mut self, text: &str) -> usize {
        let next = self.texts.len();
        *self.texts.entry(text.to_owned()).or_insert(next)
    }

    fn other(&mut self, other: &Other) {
        let (point, host) = (&other.point, usize::from(other.point.capture));
        let (order, line, text) = match other.what {
            What::Marker(object) => return self.mark(point, object, None),
            What::Queue(handle, value) => {
                let interface = self.names.interface(host, point.station, point.interface);
                let qdisc = self.names.qdisc(host, point.station, point.interface, handle);
                let name = format!("{interface} {qdisc}");
                let order = (u64::from(point.interface) << 32) | u64::from(handle);
                let key = (host, point.station, LaneKind::Queue, order, name);
                let lane = self.lanes.put(key);
                self.input.counts.push(Count { at_ns: point.at_ns, lane, value });
                return;
            }
            What::Interrupt(number) => (0, "interrupts", self.interrupt(host, number)),
            What::Softirq(kind) => (1, "softirqs", format!("softirq {}", kernel::softirq(kind))),
            What::Poll(frames) => (2, "polls", format!("poll of {frames}")),
        };
        let order = (u64::from(point.cpu) << 2) | order;
        let name = format!("CPU {} {line}", point.cpu);
        let lane = self.lanes.put((host, Event::NO_STATION, LaneKind::Cpu, order, name));
        let name = self.text(&text);
        if let What::Poll(_) = other.what {
            // Its end only is known.
            self.input.events.push(Mark { at_ns: point.at_ns, lane, name, packet_path: None });
            return;
        }
        let (from_ns, to_ns, bound_ns) = (other.from_ns, point.at_ns, 0);
        let interval = Interval { from_ns, to_ns, lane, name, bound_ns, packet_path: None };
        self.input.intervals.push(interval);
    }

    /// A marker with its point, or an event that begins or ends no stage.
    fn mark(&mut self, point: &Point, object: u64, packet_path: Option<u64>) {
        let host = usize::from(point.capture);
        let lane = self.lanes.event(self.names, point, object);
        let name = match point.hook {
            Hook::Marker => self.names.point(host, object),
            Hook::Drop => format!("drop: {}", self.names.reason(host, point.aux)),
            hook => hook.name().to_owned(),
        };
        let name = self.text(&name);
        self.input.events.push(Mark { at_ns: point.at_ns, lane, name, packet_path });
    }

    fn packet_path(
        &mut self,
        packet_path: &PacketPath,
        sentence: &str,
        markers: &BTreeMap<(u8, u64, u32, u16), u64>,
    ) {
        let number = Some(packet_path.number);
        // All others are where a stage begins or ends.
        let beside = |point: &&Point| matches!(point.hook, Hook::Marker | Hook::Drop);
        let timestamps = packet_path.timestamps.iter();
        for point in packet_path.points.iter().filter(beside).chain(timestamps) {
            let object = markers.get(&key(point)).copied().unwrap_or(0);
            self.mark(point, object, number);
        }
        let mut stages = Vec::new();
        for stage in &packet_path.stages {
            let lane = self.lanes.stage(self.names, packet_path, stage);
            let name = self.text(&stage.parts.name());
            let from_ns = packet_path.points[stage.from].at_ns;
            let to_ns = packet_path.points[stage.to].at_ns;
            let bound_ns = stage.bound_ns;
            let packet_path = number;
            stages.push(Interval { from_ns, to_ns, lane, name, bound_ns, packet_path });
        }
        self.input.intervals.extend_from_slice(&stages);
        let outcome = match packet_path.outcome {
            PathOutcome::Dropped { reason } => {
                let capture =
                    packet_path.points.last().map_or(0, |point| usize::from(point.capture));
                format!("dropped, {}", self.names.reason(capture, reason))
            }
            other => other.name().to_owned(),
        };
        let why = packet_path.why.map_or(String::new(), |why| format!(": {why}"));
        self.input.packet_paths.push(Flow {
            number: packet_path.number,
            state: format!("{}{why}; {outcome}", packet_path.status.name()),
            flow: self.names.flow(packet_path.flow()),
            from_ns: packet_path.from_ns(),
            length_ns: packet_path.end_to_end_ns(),
            bound_ns: packet_path.bound_ns(),
            sentence: sentence.to_owned(),
            stages: if sentence.is_empty() { Vec::new() } else { stages },
        });
    }

    fn interrupt(&self, host: usize, number: u64) -> String {
        format!("interrupt {}", self.names.interrupt(host, number))
    }

    fn finish(mut self, names: &Names, hosts: &[usize]) -> TimelineInput {
        let (lanes, places) = self.lanes.finish(names, hosts);
        let mut input = self.input;
        input.lanes = lanes;
        for mark in &mut input.events {
            mark.lane = places[mark.lane];
        }
        for interval in &mut input.intervals {
            interval.lane = places[interval.lane];
        }
        for band in &mut input.bands {
            band.lane = places[band.lane];
        }
        for count in &mut input.counts {
            count.lane = places[count.lane];
        }
        for flow in &mut input.packet_paths {
            flow.stages.iter_mut().for_each(|stage| stage.lane = places[stage.lane]);
        }
        // Packets with several receivers share the events before they part, and a marker of a
        // packet path is among the others too: the first packet path has it.
        let order = |mark: &Mark| (mark.at_ns, mark.lane, mark.packet_path.unwrap_or(u64::MAX));
        input.events.sort_unstable_by_key(order);
        input.events.dedup_by_key(|mark| (mark.at_ns, mark.lane));
        input.intervals.sort_unstable();
        input.intervals.dedup_by_key(|it| it.key());
        input.bands.sort_unstable();
        input.counts.sort_by_key(|count| (count.at_ns, count.lane));
        let mut texts: Vec<(String, usize)> = std::mem::take(&mut self.texts).into_iter().collect();
        texts.sort_by_key(|(_, number)| *number);
        input.names = texts.into_iter().map(|(text, _)| text).collect();
        input
    }
}

impl Observer for Gather {
    fn event(&mut self, _: usize, point: &Point, event: &Event) {
        use Hook::{IrqEntry, IrqExit, NapiPoll, QdiscDequeue, QdiscEnqueue};
        use Hook::{SoftirqEntry, SoftirqExit};
        self.events += 1;
        let bound = self.bounds.entry(point.capture).or_default();
        *bound = (*bound).max(point.bound_ns);
        let frames = event.aux & u64::from(u32::MAX);
        let handle = u32::try_from(event.aux >> 32).unwrap_or(0);
        let of = |interrupt: bool| (point.capture, point.cpu, interrupt);
        match event.hook {
            Hook::Marker => self.other(point.at_ns, point, What::Marker(event.object)),
            QdiscEnqueue => {
                self.other(point.at_ns, point, What::Queue(handle, frames.saturating_add(1)));
            }
            QdiscDequeue => self.other(point.at_ns, point, What::Queue(handle, frames)),
            NapiPoll => self.other(point.at_ns, point, What::Poll(event.aux >> 32)),
            IrqEntry | SoftirqEntry => {
                self.begun.insert(of(event.hook == IrqEntry), point.at_ns);
            }
            IrqExit => {
                if let Some(from) = self.begun.remove(&of(true)) {
                    self.other(from, point, What::Interrupt(event.aux));
                }
            }
            SoftirqExit => {
                if let Some(from) = self.begun.remove(&of(false)) {
                    self.other(from, point, What::Softirq(event.aux));
                }
            }
            _ => {}
        }
    }

    fn packet_path(&mut self, packet_path: &PacketPath) {
        for point in &packet_path.points {
            let bound = self.bounds.entry(point.capture).or_default();
            *bound = (*bound).max(point.bound_ns);
        }
        self.picker.add(packet_path);
    }
}

#[cfg(test)]
#[path = "gather_tests.rs"]
pub(crate) mod tests;
