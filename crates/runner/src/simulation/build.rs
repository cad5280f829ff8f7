// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The file of a network as the simulator takes it: names become numbers.

use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;

use timewire_base::{BitsPerSecond, FrameLen, Span, StationName};
use timewire_model::scenario::network::{
    NetAccess, NetBridge, NetCbsRules, NetClock, NetDelay, NetDrawn, NetFault, NetGates, NetPort,
    NetStation, NetStream, NetSyncKind, NetTraffic, NetworkFile,
};
use timewire_model::scenario::{ByteCount, Count, Name};
use timewire_model::tdm::TdmSchedule;
use timewire_sim::net::{
    Access, ClockSpec, Delay, Fault, FaultKind, LinkSpec, MediumSpec, Network, NodeSpec, PortIndex,
    StreamSpec, SyncSpec, Traffic, plain_port,
};
use timewire_tsn::port::{
    AsyncLimits, CreditRules, EXPRESS_WAIT_BYTES, GateEntry, GateList, Order, PortConfig, Ps,
};

use crate::RunnerError;
use crate::error::{Context as _, invalid};

/// The network of a file that was checked, and of the files beside it that it names.
///
/// With what of those was not read: what follows of the traffic is not known.
///
/// **Errors**: one of those cannot be read.
pub fn network(file: &NetworkFile, beside: &Path) -> Result<(Network, Vec<String>), RunnerError> {
    let beside = Beside(beside, RefCell::default());
    let mut network = Network::empty(file.duration, file.seed.get());
    network.warm_up = file.warm_up;
    network.tolerance = file.tolerance;
    let stations = file.stations.iter().map(|it| beside.station(it));
    let bridges = file.bridges.iter().map(|it| beside.bridge(it));
    network.nodes = stations.chain(bridges).collect::<Result<_, RunnerError>>()?;
    for link in &file.links {
        let (one, other) = (node(file, &link.between[0])?, node(file, &link.between[1])?);
        let mut spec = LinkSpec::plain(one, other, link.rate, link.delay);
        (spec.loss_ppb, spec.corrupt_ppb) = (link.loss.0, link.corruption.0);
        for end in 0..2 {
            let (own, far) = (&link.between[end], &link.between[1 - end]);
            spec.ends[end].1 = port(file, own, far, link.rate)?;
        }
        network.links.push(spec);
    }
    for segment in &file.segments {
        let port = |name| Ok((node(file, name)?, port(file, name, &segment.name, segment.rate)?));
        network.media.push(MediumSpec {
            access: match segment.access {
                NetAccess::Contention => Access::Contention,
                NetAccess::InTurn => Access::InTurn,
                NetAccess::Token => Access::Token { hold: segment.hold, pass: segment.pass },
            },
            delay: segment.delay,
            stations: segment.stations.iter().map(port).collect::<Result<_, RunnerError>>()?,
            loss_ppb: segment.loss.0,
            corrupt_ppb: segment.corruption.0,
        });
    }
    let streams = file.streams.iter().map(|it| beside.stream(file, it));
    network.streams = streams.collect::<Result<_, RunnerError>>()?;
    for (number, stream) in file.streams.iter().enumerate() {
        let more = stream.listeners.all().iter().skip(1).map(|name| node(file, name));
        let more = more.collect::<Result<Vec<_>, RunnerError>>()?;
        if !more.is_empty() {
            network.more_listeners.insert(number, more);
        }
    }
    let faults = file.faults.iter().map(|it| fault(file, &network, it));
    network.faults = faults.collect::<Result<_, RunnerError>>()?;
    Ok((network, beside.1.into_inner()))
}

fn node(file: &NetworkFile, name: &StationName) -> Result<usize, RunnerError> {
    let stations = file.stations.iter().map(|station| &station.name);
    let mut all = stations.chain(file.bridges.iter().map(|bridge| &bridge.name));
    all.position(|other| other == name).with_context(|| format!("there is no {name}"))
}

fn stream_number(file: &NetworkFile, name: &Name) -> Result<usize, RunnerError> {
    let mut names = file.streams.iter().map(|stream| &stream.name);
    names.position(|other| other == name).with_context(|| format!("there is no stream {name}"))
}

/// Times and frames that are in files beside that of the network.
struct Beside<'a>(&'a Path, RefCell<Vec<String>>);

impl Beside<'_> {
    fn station(&self, station: &NetStation) -> Result<NodeSpec, RunnerError> {
        let of = |key: &str| format!("`{key}` of station {}", station.name);
        Ok(NodeSpec {
            send: self.delay(&station.send).with_context(|| of("send"))?,
            receive: self.delay(&station.receive).with_context(|| of("receive"))?,
            clock: clock(&station.clock),
            ..NodeSpec::default()
        })
    }

    fn bridge(&self, bridge: &NetBridge) -> Result<NodeSpec, RunnerError> {
        let of = || format!("`forward` of bridge {}", bridge.name);
        Ok(NodeSpec {
            forward: self.delay(&bridge.forward).with_context(of)?,
            cut_through_bytes: bridge.cut_through.map(ByteCount::get),
            clock: clock(&bridge.clock),
            ..NodeSpec::default()
        })
    }

    fn delay(&self, delay: &NetDelay) -> Result<Delay, RunnerError> {
        match delay {
            NetDelay::Drawn(NetDrawn::Recorded(it)) => {
                Ok(Delay::Empirical(super::recorded::read(self.0, it)?))
            }
            other => fixed_or_drawn(other).context("only recorded times are in a file"),
        }
    }

    fn stream(&self, file: &NetworkFile, stream: &NetStream) -> Result<StreamSpec, RunnerError> {
        let given = stream.frame_len();
        let traffic = self.traffic(file, &stream.traffic, given);
        let traffic = traffic.with_context(|| format!("stream {}", stream.name))?;
        let frame = match &traffic {
            Traffic::Replay { frames, .. } => frames.longest().unwrap_or(given),
            _ => given,
        };
        Ok(StreamSpec {
            from: node(file, &stream.talker)?,
            to: node(file, stream.listeners.all().first().context("nobody listens")?)?,
            class: class(stream.class),
            frame,
            traffic,
            launch: stream.launch,
            shape: stream.ats.as_ref().map(|shape| AsyncLimits {
                rate: shape.rate,
                burst_bytes: shape.burst.get(),
                max_residence: shape.max_residence,
            }),
        })
    }

    fn traffic(
        &self,
        file: &NetworkFile,
        traffic: &NetTraffic,
        frame: FrameLen,
    ) -> Result<Traffic, RunnerError> {
        Ok(match traffic {
            NetTraffic::Cyclic(it) => Traffic::Cyclic {
                period: it.period,
                offset: it.offset,
                jitter: self.delay(&it.jitter)?,
                frames: u32::try_from(it.burst.get()).context("a burst is below 2^32 frames")?,
                spacing: it.spacing,
            },
            NetTraffic::Sporadic(it) => Traffic::Sporadic { gap: self.delay(&it.gap)? },
            NetTraffic::Flood(it) => {
                let frames =
                    u32::try_from(it.burst.get()).context("a burst is below 2^32 frames")?;
                let one = it.rate.duration_of(frame.wire_len());
                let period = one.checked_mul(frames.into()).context("a flood so slow is none")?;
                let (offset, spacing, jitter) = (Span::ZERO, Span::ZERO, Delay::NONE);
                Traffic::Cyclic { period, offset, jitter, frames, spacing }
            }
            NetTraffic::Request(it) => Traffic::Request {
                answer: stream_number(file, &it.answer)?,
                think: self.delay(&it.think)?,
                timeout: it.timeout,
                first: it.first,
            },
            NetTraffic::After(it) => Traffic::After {
                stream: stream_number(file, &it.follows)?,
                work: self.delay(&it.work)?,
                from_cause: it.from_start,
            },
            NetTraffic::RequestResponse(_) | NetTraffic::Pipeline(_) => {
                return Err(invalid("programs on a segment are another simulation"));
            }
            NetTraffic::Replay(it) => {
                let frames = Arc::new(super::replay::read(self.0, it, &mut self.1.borrow_mut())?);
                Traffic::Replay { frames, offset: it.offset }
            }
        })
    }
}

fn clock(clock: &NetClock) -> ClockSpec {
    ClockSpec {
        offset: clock.offset.0,
        drift_ppb: clock.drift.0,
        wander_ppb: clock.wander.0.unsigned_abs(),
        sync: clock.sync.as_ref().map(|sync| SyncSpec {
            interval: sync.interval,
            error: sync.error,
            bias: sync.bias,
            rate: sync.by == NetSyncKind::Ptp,
        }),
    }
}

/// Frames that wait in each queue of a station that says nothing else: `txqueuelen`, which each
/// queue of `mqprio` and `taprio` has for itself.
///
/// **Source**: linux v6.12.117 `include/net/pkt_sched.h:DEFAULT_TX_QUEUE_LEN`.
const FRAMES_OF_STATION: u32 = 1_000;
/// The same of a bridge: about the frame memory of a small one, were it this queue's alone.
///
/// **Source**: linux v6.12.117 `drivers/net/dsa/sja1105/sja1105_static_config.h`:
/// `SJA1105_MAX_FRAME_MEMORY`, 929 blocks of 128 bytes.
const FRAMES_OF_BRIDGE: u32 = 100;

/// The port of a node towards another node or a segment.
fn port(
    file: &NetworkFile,
    own: &StationName,
    far: &StationName,
    rate: BitsPerSecond,
) -> Result<PortConfig, RunnerError> {
    let mut config = plain_port(rate);
    let is_bridge = file.bridges.iter().any(|bridge| bridge.name == *own);
    let capacity = if is_bridge { FRAMES_OF_BRIDGE } else { FRAMES_OF_STATION };
    config.classes.iter_mut().for_each(|class| class.capacity = Some(capacity));
    config.hold_advance = Ps::of_bytes(EXPRESS_WAIT_BYTES, rate);
    if let Some(schedule) = &file.schedule {
        config.gates = slots(&schedule.slots, own)?;
    }
    let is_this =
        |port: &&NetPort| port.of.contains(own) && port.to.as_ref().is_none_or(|to| to == far);
    for port in file.ports.iter().filter(is_this) {
        apply(port, &mut config)?;
    }
    Ok(config)
}

fn apply(port: &NetPort, config: &mut PortConfig) -> Result<(), RunnerError> {
    if let Some(list) = &port.gates {
        config.gates = Some(gates(list)?);
    }
    if let Some(advance) = port.hold_advance {
        config.hold_advance = Ps::from_span(advance);
    }
    for credit in &port.cbs {
        let bytes = |count: Option<ByteCount>| {
            i32::try_from(count.map_or(0, ByteCount::get)).context("a credit is below 2 GB")
        };
        let rules = match credit.rules {
            NetCbsRules::Standard => CreditRules::Standard,
            NetCbsRules::Linux => CreditRules::Linux {
                hi_credit: bytes(credit.hi_credit)?,
                lo_credit: -bytes(credit.lo_credit)?,
            },
        };
        config.classes[class(credit.class)].credit = Some((credit.idle_slope, rules));
    }
    for it in &port.preemptable {
        config.classes[class(*it)].preemptable = true;
    }
    for it in &port.ats {
        config.classes[class(*it)].order = Order::Timed;
    }
    for it in &port.launch {
        config.classes[class(*it)].order = Order::TimedStrict;
    }
    if let Some(capacity) = port.capacity {
        let capacity = capacity.frames();
        config.classes.iter_mut().for_each(|class| class.capacity = capacity);
    }
    Ok(())
}

fn class(class: Count<0, 7>) -> usize {
    usize::try_from(class.get()).unwrap_or(7)
}

fn gates(list: &NetGates) -> Result<GateList, RunnerError> {
    let entries = list.entries.iter().map(|entry| GateEntry {
        open: entry.open.iter().fold(0, |mask, it| mask | 1 << class(*it)),
        interval: entry.interval,
        hold: entry.hold,
    });
    let entries: Vec<GateEntry> = entries.collect();
    let base = Ps::from_span(list.base_time);
    let gates = GateList::new(base, list.cycle_time, &entries).map_err(invalid)?;
    // One that begins with the simulation has been in force before.
    Ok(if list.base_time > Span::ZERO { gates.from_base() } else { gates })
}

/// The slots of a station as gates; `None` when it has none and may send at any time.
fn slots(schedule: &TdmSchedule, own: &StationName) -> Result<Option<GateList>, RunnerError> {
    let slots = schedule.slots().iter().filter(|slot| slot.station == *own);
    gates_of(schedule, slots.map(|slot| (slot.offset, slot.transmit, 0xff)))
}

/// Gates that open in each cycle of a schedule at these offsets, so long, for these classes; `None`
/// where they never do.
pub(crate) fn gates_of(
    schedule: &TdmSchedule,
    openings: impl Iterator<Item = (Span, Span, u8)>,
) -> Result<Option<GateList>, RunnerError> {
    let cycle = schedule.cycle();
    let mut entries = Vec::new();
    let mut at = Span::ZERO;
    let mut add = |open, interval: Span| {
        if interval > Span::ZERO {
            entries.push(GateEntry { open, interval, hold: false });
        }
    };
    for (offset, length, classes) in openings {
        add(0, offset - at);
        add(classes, length);
        at = offset + length;
    }
    if at == Span::ZERO {
        return Ok(None);
    }
    add(0, cycle - at);
    let base = Span::from_ns(schedule.base_time().as_ns().rem_euclid(cycle.as_ns()));
    Ok(Some(GateList::new(Ps::from_span(base), Some(cycle), &entries).map_err(invalid)?))
}

fn fault(file: &NetworkFile, network: &Network, fault: &NetFault) -> Result<Fault, RunnerError> {
    let link = |ends: &[StationName]| {
        let mut links = file.links.iter();
        let is = |name: &StationName| ends.contains(name);
        links.position(|link| link.between.iter().all(is)).context("there is no such link")
    };
    let (at, lasts, kind) = match fault {
        NetFault::Loss(it) => (it.at, it.duration, FaultKind::Loss(link(&it.link)?, it.share.0)),
        NetFault::Corruption(it) => {
            (it.at, it.duration, FaultKind::Corruption(link(&it.link)?, it.share.0))
        }
        NetFault::LinkDown(it) => (it.at, it.duration, FaultKind::LinkDown(link(&it.link)?)),
        NetFault::Babble(it) => {
            (it.at, it.duration, FaultKind::Babble(stream_number(file, &it.stream)?))
        }
        NetFault::Restart(it) => (it.at, it.duration, FaultKind::Restart(node(file, &it.node)?)),
        NetFault::ClockStep(it) => {
            (it.at, Span::ZERO, FaultKind::ClockStep(node(file, &it.node)?, it.by.0))
        }
        NetFault::ClockDrift(it) => {
            (it.at, Span::ZERO, FaultKind::ClockDrift(node(file, &it.node)?, it.drift.0))
        }
        NetFault::MasterLost(it) => (it.at, it.duration, FaultKind::MasterLost),
        NetFault::Late(it) => {
            let stream = stream_number(file, &it.stream)?;
            (it.at, it.duration, FaultKind::LateApplication(stream, it.by))
        }
        NetFault::Gates(it) => {
            let list = it.gates.as_ref().map(gates).transpose()?.map(Box::new);
            let port = port_number(file, network, &it.node, &it.to)?;
            let change = Ps::from_span(it.change);
            (it.at, Span::ZERO, FaultKind::Gates { port, change, gates: list })
        }
    };
    Ok(Fault { at, lasts, kind })
}

fn port_number(
    file: &NetworkFile,
    network: &Network,
    own: &StationName,
    far: &StationName,
) -> Result<PortIndex, RunnerError> {
    for (number, link) in file.links.iter().enumerate() {
        for end in 0..2 {
            if link.between[end] == *own && link.between[1 - end] == *far {
                return Ok(network.link_port(number, end));
            }
        }
    }
    let segment = file.segments.iter().position(|segment| segment.name == *far);
    let segment = segment.with_context(|| format!("{own} has no port to {far}"))?;
    let mut stations = file.segments[segment].stations.iter();
    let place = stations.position(|name| name == own);
    let place = place.with_context(|| format!("{own} is not on {far}"))?;
    Ok(network.medium_port(segment, place))
}
/// A time as the simulator has it; `None` of recorded ones, which are in a file.
pub(crate) fn fixed_or_drawn(delay: &NetDelay) -> Option<Delay> {
    Some(match delay {
        NetDelay::Fixed(span) => Delay::Fixed(*span),
        NetDelay::Drawn(NetDrawn::Uniform(it)) => Delay::Uniform(it.min, it.max),
        NetDelay::Drawn(NetDrawn::Normal(it)) => {
            Delay::Normal { mean: it.mean, deviation: it.deviation }
        }
        NetDelay::Drawn(NetDrawn::Exponential(it)) => {
            Delay::Exponential { min: it.min, mean: it.mean }
        }
        NetDelay::Drawn(NetDrawn::Empirical(it)) => Delay::Empirical(it.times.clone()),
        NetDelay::Drawn(NetDrawn::Recorded(_)) => return None,
    })
}
