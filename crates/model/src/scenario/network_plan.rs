// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a planner needs to know of a network beside what a simulator does, and what must hold when
//! a stream is scheduled.

use std::collections::{BTreeMap, BTreeSet};

use timewire_base::{FrameLen, Span, StationName};

use super::item::Reader;
use super::network::{
    NetClock, NetCyclic, NetDelay, NetDrawn, NetDriftFault, NetFault, NetPort, NetStream,
    NetTraffic, NetworkFile,
};
use super::record::record;
use super::value::{Drift, Offset};

record! {
    /// Time on every link in which nothing planned is sent, for frames of time synchronization,
    /// which come at instants of their own.
    pub struct NetReserve {
        /// It begins at each whole multiple of this.
        period: Span,
        /// How long it lasts.
        duration: Span,
    }
}

impl NetworkFile {
    /// The network with the worst clocks that `sync_error` allows. First those of neighbours that
    /// far apart: half of it ahead and half behind by turns, from the first node on, and the other
    /// way round. Then the same clocks on their way to the other end of the error and back, at a
    /// rate of at most 100 ppm, a whole number of times. Nothing without a `sync_error`.
    ///
    /// In a ring of an odd number of nodes two neighbours are alike.
    pub fn with_clocks_apart(&self) -> Vec<NetworkFile> {
        if self.sync_error == Span::ZERO {
            return Vec::new();
        }
        let ahead = self.every_other_node();
        let all = [(true, false), (false, false), (true, true), (false, true)];
        all.map(|(leads, moves)| self.with_clocks(&|name| ahead.contains(name) == leads, moves))
            .into()
    }

    fn with_clocks(&self, is_ahead: &dyn Fn(&StationName) -> bool, moves: bool) -> NetworkFile {
        let half = Span::from_ns(self.sync_error.as_ns() / 2);
        let (rate, turn) = self.turns();
        let sign = |name: &StationName| if is_ahead(name) { 1 } else { -1 };
        let clock = |name: &StationName| NetClock {
            offset: Offset(if is_ahead(name) { half } else { -half }),
            drift: Drift(if moves { -sign(name) * rate } else { 0 }),
            wander: Drift(0),
            sync: None,
        };
        let mut file = self.clone();
        file.stations.iter_mut().for_each(|node| node.clock = clock(&node.name));
        file.bridges.iter_mut().for_each(|node| node.clock = clock(&node.name));
        let stations = self.stations.iter().map(|node| &node.name);
        for node in stations.chain(self.bridges.iter().map(|node| &node.name)) {
            let mut towards = sign(node) * rate;
            for at in (1..=TURNS).map_while(|number| turn.checked_mul(number)) {
                if !moves || at >= self.duration {
                    break;
                }
                let (node, drift) = (node.clone(), Drift(towards));
                file.faults.push(NetFault::ClockDrift(NetDriftFault { node, at, drift }));
                towards = -towards;
            }
        }
        file
    }

    /// How fast a clock goes from one end of `sync_error` to the other, in parts per billion, and
    /// how long it takes; a clock turns a bounded number of times.
    fn turns(&self) -> (i32, Span) {
        // To the nanosecond as far apart as the clocks are, which each have half of it.
        let error = i128::from(self.sync_error.as_ns() / 2 * 2) * 1_000_000_000;
        let wanted = error * i128::from(TURNS) / i128::from(self.duration.as_ns().max(1));
        let rate = wanted.clamp(1, i128::from(WORST_PPB));
        let turn = i64::try_from(error / rate).unwrap_or(i64::MAX);
        (i32::try_from(rate).unwrap_or(WORST_PPB), Span::from_ns(turn.max(1)))
    }

    /// Nodes, none of which has another as its neighbour where the links allow it.
    fn every_other_node(&self) -> BTreeSet<StationName> {
        let stations = self.stations.iter().map(|node| &node.name);
        let nodes: Vec<_> = stations.chain(self.bridges.iter().map(|node| &node.name)).collect();
        let mut neighbours: BTreeMap<&StationName, Vec<&StationName>> = BTreeMap::new();
        for link in &self.links {
            let [one, other] = link.between.as_slice() else { continue };
            neighbours.entry(one).or_default().push(other);
            neighbours.entry(other).or_default().push(one);
        }
        let mut sides: BTreeMap<&StationName, bool> = BTreeMap::new();
        for first in nodes {
            let mut left = if sides.contains_key(first) { Vec::new() } else { vec![(first, true)] };
            while let Some((node, side)) = left.pop() {
                if sides.contains_key(node) {
                    continue;
                }
                sides.insert(node, side);
                left.extend(neighbours.get(node).into_iter().flatten().map(|it| (*it, !side)));
            }
        }
        sides.into_iter().filter(|(_, side)| *side).map(|(name, _)| name.clone()).collect()
    }
}

/// How often a clock goes from one end of the error to the other.
const TURNS: i64 = 20;
/// By how much a clock may go wrong. **Units**: billionths.
///
/// **Source**: IEEE 802.1AS-2020, B.1.1: 100 ppm either way.
const WORST_PPB: i32 = 100_000;

impl NetDelay {
    /// The least and the most that it can be; no most: there is none.
    pub fn range(&self) -> (Span, Option<Span>) {
        match self {
            NetDelay::Fixed(span) => (*span, Some(*span)),
            NetDelay::Drawn(NetDrawn::Uniform(it)) => (it.min, Some(it.max)),
            NetDelay::Drawn(NetDrawn::Normal(it)) => {
                let far = it.deviation.checked_mul(6);
                let least = far.map_or(Span::ZERO, |far| (it.mean - far).max(Span::ZERO));
                (least, far.and_then(|far| it.mean.checked_add(far)))
            }
            NetDelay::Drawn(NetDrawn::Exponential(it)) => {
                (it.min, (it.mean == Span::ZERO).then_some(it.min))
            }
            NetDelay::Drawn(NetDrawn::Empirical(it)) => {
                let times = it.times.iter().copied();
                (times.clone().min().unwrap_or(Span::ZERO), times.max())
            }
            // What is in the file is not known here.
            NetDelay::Drawn(NetDrawn::Recorded(_)) => (Span::ZERO, None),
        }
    }
}

/// What a plan needs, when a stream is scheduled.
pub(super) fn check(file: &NetworkFile, reader: &mut Reader) {
    devices(file, reader);
    reserve(file, reader);
    let planned = || file.streams.iter().filter(|stream| stream.scheduled);
    let Some(first) = planned().next() else { return };
    let because = format!("`{}` is scheduled", first.name);
    let mut refuse = |key: &str, what: &str, hint: &str| {
        reader.fail_at(key, format!("{what}, and {because}"), hint);
    };
    if !file.segments.is_empty() {
        refuse("segments", "a segment is shared", "plan networks of links only");
    }
    if file.schedule.is_some() {
        refuse("schedule", "slots are written here", "leave them out: a schedule is planned");
    }
    for (i, port) in file.ports.iter().enumerate() {
        if port.gates.is_some() {
            let key = format!("ports[{i}].gates");
            refuse(&key, "gates are written here", "leave them out: they are planned");
        }
    }
    for (i, port) in file.ports.iter().enumerate() {
        preemption(file, (i, port), &mut refuse);
    }
    let rates: Vec<_> = file.links.iter().map(|link| (&link.between, link.rate)).collect();
    for (i, bridge) in file.bridges.iter().enumerate() {
        if bridge.forward.range().1.is_none() {
            let key = format!("bridges[{i}].forward");
            refuse(&key, "it can take for ever", "write a time that has a most");
        }
        let mut own = rates.iter().filter(|(ends, _)| ends.contains(&bridge.name));
        let first = own.next().map(|(_, rate)| *rate);
        if bridge.cut_through.is_some() && own.any(|(_, rate)| Some(*rate) != first) {
            let key = format!("bridges[{i}].cut_through");
            refuse(&key, "its links differ in rate", "leave it out, or give them one rate");
        }
    }
    let lowest = planned().map(|stream| stream.class.get()).min().unwrap_or(0);
    let stations = file.stations.iter().map(|it| (&it.name, it.device.queues.get()));
    let devices = stations.chain(file.bridges.iter().map(|it| (&it.name, it.device.queues.get())));
    let fewest = devices.min_by_key(|(_, queues)| *queues);
    let bridges: Vec<&StationName> = file.bridges.iter().map(|bridge| &bridge.name).collect();
    for (i, stream) in file.streams.iter().enumerate() {
        if stream.scheduled {
            scheduled(reader, i, stream, &bridges);
            continue;
        }
        let (class, key) = (stream.class.get(), format!("streams[{i}].class"));
        let hint = "planned streams have classes and queues of their own, above all others";
        if class >= lowest {
            let message = format!("class {class} is not below {lowest}, that of planned streams");
            reader.fail_at(&key, message, hint);
        } else if let Some((name, queues)) = fewest.filter(|(_, queues)| class + 1 >= *queues) {
            let message =
                format!("at {name}, which has {queues} queues, that of class {class} is planned");
            reader.fail_at(&key, message, hint);
        }
    }
}

/// Planned frames are express, and no preemptable one is under way when their window opens.
fn preemption(
    file: &NetworkFile,
    (i, port): (usize, &NetPort),
    refuse: &mut impl FnMut(&str, &str, &str),
) {
    let mut scheduled = file.streams.iter().filter(|stream| stream.scheduled);
    let is_preemptable = |class: u64| port.preemptable.iter().any(|it| it.get() == class);
    if scheduled.any(|stream| is_preemptable(stream.class.get())) {
        let key = format!("ports[{i}].preemptable");
        refuse(&key, "its class is among these", "leave its class out: it goes before them");
    }
    let own = file.links.iter().filter(|link| link.between.iter().any(|it| port.of.contains(it)));
    let uncut = FrameLen::new(UNCUT_BYTES).map(FrameLen::wire_len);
    let waits = own.filter_map(|link| Some(link.rate.duration_of(uncut.ok()?)));
    let least = waits.max().unwrap_or(Span::ZERO);
    if port.hold_advance.is_some_and(|advance| advance < least) {
        let key = format!("ports[{i}].hold_advance");
        let what = "a frame that cannot be cut any more can take longer";
        refuse(&key, what, &format!("write {least} or more, or leave it out"));
    }
}

/// What is left of a frame that is too short to be cut, without check sequence. **Units**: bytes.
///
/// **Source**: IEEE 802.3-2022, 99.4: both parts of 124 bytes would be whole fragments.
const UNCUT_BYTES: u32 = 119;

fn devices(file: &NetworkFile, reader: &mut Reader) {
    let stations = file.stations.iter().enumerate().map(|(i, it)| ("stations", i, &it.device));
    let bridges = file.bridges.iter().enumerate().map(|(i, it)| ("bridges", i, &it.device));
    for (list, i, device) in stations.chain(bridges) {
        let at = |key: &str| format!("{list}[{i}].device.{key}");
        if device.granularity <= Span::ZERO {
            let message = "states begin somewhere".to_owned();
            reader.fail_at(&at("granularity"), message, "write 1ns or more");
        }
        if device.interval_max.is_some_and(|most| most < device.interval_min.max(Span::from_ns(1)))
        {
            let message = format!("no state lasts {} or longer", device.interval_min);
            reader.fail_at(&at("interval_max"), message, "write more than `interval_min`");
        }
        if device.cycle_max == Some(Span::ZERO) {
            let message = "no cycle takes no time".to_owned();
            reader.fail_at(&at("cycle_max"), message, "write a time above zero");
        }
    }
}

fn reserve(file: &NetworkFile, reader: &mut Reader) {
    let Some(NetReserve { period, duration }) = file.reserve else { return };
    if duration == Span::ZERO {
        let hint = "write as long as a frame of others and one of synchronization take";
        reader.fail_at("reserve.duration", "nothing is kept free".to_owned(), hint);
    } else if duration >= period {
        let message = format!("all of each {period} is kept free");
        reader.fail_at("reserve.duration", message, "write less than `period`");
    }
}

fn scheduled(reader: &mut Reader, i: usize, stream: &NetStream, bridges: &[&StationName]) {
    let at = |key: &str| format!("streams[{i}].{key}");
    let listeners = stream.listeners.all().iter().map(|name| ("listeners", name));
    for (key, name) in [("talker", &stream.talker)].into_iter().chain(listeners) {
        if bridges.contains(&name) {
            let message = format!("{name} is a bridge, and a planned stream goes between stations");
            reader.fail_at(&at(key), message, "name a station");
        }
    }
    if stream.class.get() == 0 {
        let message = "class 0 is for everything that is not planned".to_owned();
        reader.fail_at(&at("class"), message, "write `class: 7`");
    }
    for (key, is) in [("launch", stream.launch.is_some()), ("ats", stream.ats.is_some())] {
        if is {
            let message = format!("`{key}` is there, and the stream is scheduled");
            reader.fail_at(&at(key), message, "leave one of them out");
        }
    }
    if stream.max_latency == Some(Span::ZERO) {
        let message = "no frame takes no time".to_owned();
        reader.fail_at(&at("max_latency"), message, "write a time above zero");
    }
    match &stream.traffic {
        NetTraffic::Cyclic(cyclic) => scheduled_cyclic(reader, i, cyclic),
        NetTraffic::Sporadic(sporadic) if sporadic.gap.range().0 == Span::ZERO => {
            let message = "there is no least time between two messages".to_owned();
            reader.fail_at(&at("gap"), message, "write a gap with a least time");
        }
        NetTraffic::Sporadic(_) => {}
        _ => {
            let message = "nobody knows beforehand when its messages come".to_owned();
            let hint = "only `cyclic` and `sporadic` streams are scheduled";
            reader.fail_at(&at("kind"), message, hint);
        }
    }
}

fn scheduled_cyclic(reader: &mut Reader, i: usize, cyclic: &NetCyclic) {
    if cyclic.spacing != Span::ZERO {
        let message = "the frames of a planned message follow each other at once".to_owned();
        reader.fail_at(&format!("streams[{i}].spacing"), message, "leave it out");
    }
    let latest = cyclic.jitter.range().1.and_then(|most| most.checked_add(cyclic.offset));
    if latest.is_none_or(|latest| latest >= cyclic.period) {
        let message = "a message can be there after its period".to_owned();
        let hint = "`offset` and the most of `jitter` are together less than `period`";
        reader.fail_at(&format!("streams[{i}].offset"), message, hint);
    }
}

#[cfg(test)]
mod tests {
    use super::super::further::NothingFurther;
    use super::super::network::NetworkCases;
    use super::*;

    fn read(text: &str) -> NetworkFile {
        let text = format!(
            "timewire: 1\nkind: network\nname: n\nduration: 1s\n{text}\nstreams:\n\
             - {{ name: s, talker: a, listeners: c, size: 64B, period: 1ms }}\n"
        );
        NetworkCases::parse_with(&NothingFurther, "n.yaml", &text).unwrap().base
    }

    fn clocks(file: &NetworkFile) -> Vec<&NetClock> {
        let stations = file.stations.iter().map(|node| &node.clock);
        stations.chain(file.bridges.iter().map(|node| &node.clock)).collect()
    }

    #[test]
    fn t0_clocks_of_neighbours_are_apart_by_what_the_file_allows() {
        let line = "stations: [a, c]\nbridges: [b]\nlinks: [[a, b], [b, c]]";
        assert_eq!(read(&format!("sync_error: 0ns\n{line}")).with_clocks_apart(), []);
        let offsets = |text: &str| -> Vec<Vec<i64>> {
            let of = |file: &NetworkFile| {
                clocks(file).iter().map(|clock| clock.offset.0.as_ns()).collect()
            };
            read(text).with_clocks_apart().iter().map(of).collect()
        };
        let (one, other) = (vec![500, 500, -500], vec![-500, -500, 500]);
        let apart = [one.clone(), other.clone(), one, other];
        assert_eq!(offsets(line), apart, "the default");
        // What the file says of a clock itself is another question.
        let own = line.replace("[a, c]", "[{ name: a, clock: { offset: 9us, drift: 5ppm } }, c]");
        assert_eq!(offsets(&format!("sync_error: 1us\n{own}")), apart);
    }

    /// By clock: how far it is ahead, at its turns and at the end.
    fn reads(file: &NetworkFile, node: &str) -> Vec<i64> {
        let names =
            file.stations.iter().map(|it| &it.name).chain(file.bridges.iter().map(|it| &it.name));
        let clock = names.zip(clocks(file)).find(|(name, _)| name.as_str() == node).unwrap().1;
        let (mut offset, mut since) = (clock.offset.0.as_ns(), 0);
        let mut rate = i64::from(clock.drift.0);
        let mut all = vec![offset];
        let turns = file.faults.iter().filter_map(|fault| match fault {
            NetFault::ClockDrift(it) if it.node.as_str() == node => {
                Some((it.at.as_ns(), i64::from(it.drift.0)))
            }
            _ => None,
        });
        for (at, next) in turns.chain([(file.duration.as_ns(), 0)]) {
            offset += (at - since) * rate / 1_000_000_000;
            (since, rate) = (at, next);
            all.push(offset);
        }
        all
    }

    #[test]
    fn t0_clocks_that_move_stay_within_what_the_file_allows() {
        let line = "stations: [a, c]\nbridges: [b]\nlinks: [[a, b], [b, c]]";
        for (error, turns) in [("1us", 20), ("30us", 3), ("5ns", 20), ("1ms", 1)] {
            let files = read(&format!("sync_error: {error}\n{line}")).with_clocks_apart();
            let half = read(&format!("sync_error: {error}\n{line}")).sync_error.as_ns() / 2;
            assert_eq!(reads(&files[0], "a"), [half, half]);
            for (file, sign) in files[2..].iter().zip([1, -1]) {
                let (a, b) = (reads(file, "a"), reads(file, "b"));
                assert!(a.len() > turns, "{error}: {a:?}");
                assert_eq!((a[0], b[0]), (sign * half, -sign * half));
                for (at, (a, b)) in a.iter().zip(&b).enumerate() {
                    assert_eq!(*a, -*b, "{error}: neighbours go apart and together");
                    assert!(a.abs() <= half, "{error}, turn {at}: {a}");
                }
                // The last way may be a part.
                let reach = a[..a.len() - 1].iter().map(|at| at.abs()).min().unwrap();
                assert!(reach * 10 >= half * 9, "{error}: {a:?}");
            }
        }
    }
}
