// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a planner needs to know of a network beside what a simulator does: which streams are to
//! have a place in a schedule, and what must hold then.
//!
//! Not here: what the ports of a device can do (`device.rs`), finding the schedule
//! (`timewire-plan`).

use timewire_base::{Span, StationName};

use super::item::Reader;
use super::network::{NetCyclic, NetDelay, NetDrawn, NetStream, NetTraffic, NetworkFile};
use super::record::record;

record! {
    /// What a stream with a place in the schedule asks for.
    pub struct NetPlace {
        /// From its first bit at the talker's port until its last at the listener, at most;
        /// without it, its period.
        latency: Option<Span>,
        /// How much that may differ from message to message; without it, anything.
        jitter: Option<Span>,
    }
}

record! {
    /// Time on every link in which nothing planned is sent, for frames of time synchronization,
    /// which come at instants of their own.
    pub struct NetReserve {
        /// It begins at each whole multiple of this.
        every: Span,
        /// How long it lasts.
        lasts: Span,
    }
}

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

/// What a plan needs, when a stream asks for a place.
pub(super) fn check(file: &NetworkFile, reader: &mut Reader) {
    devices(file, reader);
    reserve(file, reader);
    let planned = || file.streams.iter().filter(|stream| stream.place.is_some());
    let Some(first) = planned().next() else { return };
    let because = format!("`{}` has a `place`", first.name);
    let mut refuse = |key: &str, what: &str, hint: &str| {
        reader.fail_at(key, format!("{what}, and {because}"), hint);
    };
    if !file.segments.is_empty() {
        refuse("segments", "a segment is shared", "plan networks of links only");
    }
    if file.schedule.is_some() {
        refuse("schedule", "slots are written here", "leave them out: the places are planned");
    }
    for (i, port) in file.ports.iter().enumerate() {
        if port.gates.is_some() {
            let key = format!("ports[{i}].gates");
            refuse(&key, "gates are written here", "leave them out: they are planned");
        }
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
        if stream.place.is_some() {
            place(reader, i, stream, &bridges);
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
    let Some(NetReserve { every, lasts }) = file.reserve else { return };
    if lasts == Span::ZERO {
        let hint = "write as long as a frame of others and one of synchronization take";
        reader.fail_at("reserve.lasts", "nothing is kept free".to_owned(), hint);
    } else if lasts >= every {
        let message = format!("all of each {every} is kept free");
        reader.fail_at("reserve.lasts", message, "write less than `every`");
    }
}

fn place(reader: &mut Reader, i: usize, stream: &NetStream, bridges: &[&StationName]) {
    let at = |key: &str| format!("streams[{i}].{key}");
    let listeners = stream.to.all().iter().map(|name| ("to", name));
    for (key, name) in [("from", &stream.from)].into_iter().chain(listeners) {
        if bridges.contains(&name) {
            let message = format!("{name} is a bridge, and a planned stream goes between stations");
            reader.fail_at(&at(key), message, "name a station");
        }
    }
    if stream.class.get() == 0 {
        let message = "class 0 is for everything that is not planned".to_owned();
        reader.fail_at(&at("class"), message, "write `class: 7`");
    }
    for (key, is) in [("launch", stream.launch.is_some()), ("shape", stream.shape.is_some())] {
        if is {
            let message = format!("`{key}` is there, and the stream has a `place`");
            reader.fail_at(&at(key), message, "leave one of them out");
        }
    }
    if stream.place.as_ref().is_some_and(|place| place.latency == Some(Span::ZERO)) {
        let message = "no frame takes no time".to_owned();
        reader.fail_at(&at("place.latency"), message, "write a time above zero");
    }
    match &stream.traffic {
        NetTraffic::Cyclic(cyclic) => cyclic_place(reader, &at("traffic"), cyclic),
        NetTraffic::Sporadic(sporadic) if sporadic.gap.range().0 == Span::ZERO => {
            let message = "there is no least time between two messages".to_owned();
            reader.fail_at(&at("traffic.gap"), message, "write a gap with a least time");
        }
        NetTraffic::Sporadic(_) => {}
        _ => {
            let message = "nobody knows beforehand when its messages come".to_owned();
            let hint = "only `cyclic` and `sporadic` streams have a `place`";
            reader.fail_at(&at("traffic"), message, hint);
        }
    }
}

fn cyclic_place(reader: &mut Reader, key: &str, cyclic: &NetCyclic) {
    if cyclic.spacing != Span::ZERO {
        let message = "the frames of a planned message follow each other at once".to_owned();
        reader.fail_at(&format!("{key}.spacing"), message, "leave it out");
    }
    let latest = cyclic.jitter.range().1.and_then(|most| most.checked_add(cyclic.offset));
    if latest.is_none_or(|latest| latest >= cyclic.period) {
        let message = "a message can be there after its period".to_owned();
        let hint = "`offset` and the most of `jitter` are together less than `period`";
        reader.fail_at(&format!("{key}.offset"), message, hint);
    }
}
