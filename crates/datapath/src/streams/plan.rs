// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From streams as they are asked for to the ports and streams of a talker: streams that need the
//! same of their socket share one.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4};

use crate::probe::Probe;
use crate::talker::{Cadence, Destination, FrameContent, FrameHeader, StreamSpec, VlanTag};
use crate::transmit::{
    BusyPoll, LaunchClock, LaunchOptions, TransmitOptions, Transport, TxPoints, XdpMode, XdpPort,
};
use timewire_base::{CyclicWindows, IfName, Instant, SocketPriority, Span, Tai};
use timewire_model::scenario::streams::{Late, StreamEntry, Target, VlanMark};

use super::TrafficError;

/// What a talker goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// UDP sockets.
    Udp,
    /// A packet socket.
    Frames,
    /// A packet socket with shared memory.
    Ring,
    /// AF_XDP.
    Xdp(XdpMode),
}

/// What a stream has that says nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defaults {
    /// From one message to the next.
    pub cycle: Span,
    /// When in each cycle.
    pub offset: Span,
    /// Messages in each cycle.
    pub per_cycle: u32,
    /// Between those.
    pub spacing: Span,
    /// **Units**: bytes of a message.
    pub size: u32,
    /// Messages after which it ends.
    pub count: Option<u64>,
    /// Socket priority.
    pub priority: Option<u8>,
    /// VLAN tag.
    pub vlan: Option<VlanMark>,
    /// Differentiated services code point.
    pub dscp: Option<u8>,
    /// How long before its launch time a message is handed over.
    pub launch: Option<Span>,
    /// How late it may be handed over.
    pub tolerance: Option<Span>,
    /// Whether messages that are later are sent all the same.
    pub send_late: bool,
}

impl Default for Defaults {
    /// A message of 64 bytes every millisecond.
    fn default() -> Defaults {
        Defaults {
            cycle: Span::from_ms(1),
            offset: Span::ZERO,
            per_cycle: 1,
            spacing: Span::ZERO,
            size: 64,
            count: None,
            priority: None,
            vlan: None,
            dscp: None,
            launch: None,
            tolerance: None,
            send_late: false,
        }
    }
}

/// Slots that streams are sent just before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aligned {
    /// The slots of the station.
    pub windows: CyclicWindows,
    /// How long before each.
    pub lead: Span,
}

/// Everything that is the same for all streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// What it goes through.
    pub over: Over,
    /// The interface; with UDP the only one.
    pub interface: Option<IfName>,
    /// With AF_XDP: the transmit queue.
    pub queue: u32,
    /// With AF_XDP: let the kernel say when it wants a call.
    pub need_wakeup: bool,
    /// With AF_XDP: look at the NIC's queue with each call.
    pub busy_poll: Option<BusyPoll>,
    /// The source of UDP.
    pub from: Option<SocketAddr>,
    /// Where streams go that do not say it.
    pub to: Vec<Target>,
    /// The streams; without any, one for each of `to`, with numbers from 1 on.
    pub streams: Vec<StreamEntry>,
    /// The number of the first stream, without `streams`.
    pub first: u16,
    /// What a stream has that says nothing else.
    pub defaults: Defaults,
    /// A start of the cycle of each stream.
    pub base_time: Instant<Tai>,
    /// Instead of the cycle.
    pub aligned: Option<Aligned>,
    /// Of whole frames that are no UDP.
    pub ethertype: u16,
    /// Instead of that: they are PTP messages of this domain.
    pub ptp: Option<u8>,
    /// How launch times are meant, of the streams that have them.
    pub launch: LaunchOptions,
    /// Timestamps that come back.
    pub points: TxPoints,
    /// Whole frames go to the driver without the queueing discipline.
    pub qdisc_bypass: bool,
    /// Bytes that may wait in a socket.
    pub buffer_bytes: Option<u32>,
}

impl Spec {
    /// Streams to these destinations, with all else as usual.
    pub fn new(over: Over, to: Vec<Target>) -> Spec {
        Spec {
            over,
            interface: None,
            queue: 0,
            need_wakeup: true,
            busy_poll: None,
            from: None,
            to,
            streams: Vec::new(),
            first: 1,
            defaults: Defaults::default(),
            base_time: Instant::from_ns(0),
            aligned: None,
            ethertype: ETHERTYPE,
            ptp: None,
            launch: LaunchOptions { deadline: false, clock: LaunchClock::Tai },
            points: TxPoints::default(),
            qdisc_bypass: false,
            buffer_bytes: None,
        }
    }
}

/// EtherType for local experiments (IEEE Std 802-2014, 9.2.4).
pub const ETHERTYPE: u16 = 0x88b5;

/// What a talker is made of.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Its ports.
    pub ports: Vec<(Transport, TransmitOptions)>,
    /// Its streams.
    pub streams: Vec<StreamSpec>,
    /// Where each of them goes, in words.
    pub names: Vec<String>,
}

/// What streams of one port have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kind {
    is_ipv6: bool,
    priority: Option<SocketPriority>,
    traffic_class: Option<u8>,
    has_launch: bool,
}

fn bad<T>(text: impl Into<String>) -> Result<T, TrafficError> {
    Err(TrafficError::Request(text.into()))
}

/// Makes the ports and streams.
///
/// **Errors**: what cannot be, and what would be right.
pub fn plan(spec: &Spec) -> Result<Plan, TrafficError> {
    if spec.aligned.as_ref().is_some_and(|aligned| aligned.windows.windows().is_empty()) {
        return bad("this station has no slot, so nothing can be sent before it");
    }
    let given = given(spec)?;
    let (mut kinds, mut ports) = (Vec::<Kind>::new(), Vec::new());
    let (mut streams, mut names) = (Vec::new(), Vec::new());
    for (stream, target) in &given {
        let kind = kind_of(spec, stream, target)?;
        let port = match kinds.iter().position(|known| *known == kind) {
            Some(port) => port,
            None => {
                kinds.push(kind);
                ports.push((transport(spec, kind)?, options(spec, kind)));
                ports.len() - 1
            }
        };
        for copy in 0..stream.copies.get() {
            streams.push(stream_spec(spec, stream, target, port, copy)?);
            names.push(target.to_string());
        }
    }
    if ports.len() > 1 && spec.over == Over::Udp && spec.from.is_some_and(|from| from.port() != 0) {
        return bad(
            "streams of different priority, DSCP, IP version or launch times have a socket each, \
             which cannot have the same port: give --from with port 0",
        );
    }
    one_destination(&mut ports, &mut streams);
    Ok(Plan { ports, streams, names })
}

/// The streams with where they go.
fn given(spec: &Spec) -> Result<Vec<(StreamEntry, Target)>, TrafficError> {
    if !spec.streams.is_empty() {
        let with_target = |stream: &StreamEntry| match (&stream.to, &spec.to[..]) {
            (Some(to), _) | (None, [to]) => Ok((stream.clone(), to.clone())),
            (None, []) => bad(format!("stream {} has no destination", stream.id.get())),
            (None, _) => bad(format!(
                "stream {} names none of the {} destinations: give it `to`",
                stream.id.get(),
                spec.to.len()
            )),
        };
        return spec.streams.iter().map(with_target).collect();
    }
    if spec.to.is_empty() {
        return bad("nothing to send to: give a destination, or streams that have one");
    }
    let numbers = u64::from(spec.first)..;
    let texts: Vec<_> =
        numbers.zip(&spec.to).map(|(id, _)| serde_json::json!({"id": id})).collect();
    let streams = StreamEntry::read_all("the command line", &texts);
    let streams = streams.map_err(|errors| TrafficError::Request(errors.to_string()))?;
    Ok(streams.into_iter().zip(spec.to.iter().cloned()).collect())
}

fn kind_of(spec: &Spec, stream: &StreamEntry, target: &Target) -> Result<Kind, TrafficError> {
    let id = stream.id.get();
    let of = |number: Option<u64>, default: Option<u8>| {
        number.and_then(|number| u8::try_from(number).ok()).or(default)
    };
    let is_udp = spec.over == Over::Udp;
    let is_ipv6 = match (is_udp, target) {
        (_, Target::Name(host, _)) => {
            return bad(format!("stream {id}: the address of `{host}` was not looked up"));
        }
        (true, Target::Udp(to)) => to.is_ipv6(),
        (true, _) => return bad(format!("stream {id}: {target} needs --over frames, ring or xdp")),
        (false, Target::Udp(to)) => {
            return bad(format!(
                "stream {id}: whole frames go to a NIC: write its address before, as \
                 02:00:00:00:00:02/{to}"
            ));
        }
        (false, _) => false,
    };
    if is_udp && stream.vlan.or(spec.defaults.vlan).is_some() {
        return bad(format!(
            "stream {id}: a VLAN tag needs --over frames, ring or xdp; of UDP the interface and \
             the priority make it"
        ));
    }
    let priority = of(stream.priority.map(|it| it.get()), spec.defaults.priority);
    let priority = match priority.map(|number| SocketPriority::new(number.into())) {
        None => None,
        Some(Ok(priority)) => Some(priority),
        Some(Err(error)) => return bad(format!("stream {id}: {error}")),
    };
    let dscp = of(stream.dscp.map(|it| it.get()), spec.defaults.dscp);
    Ok(Kind {
        is_ipv6,
        priority,
        traffic_class: dscp.filter(|_| is_udp).map(|dscp| dscp << 2),
        has_launch: stream.launch.or(spec.defaults.launch).is_some(),
    })
}

fn transport(spec: &Spec, kind: Kind) -> Result<Transport, TrafficError> {
    let interface = || match &spec.interface {
        Some(interface) => Ok(interface.clone()),
        None => bad("whole frames need --interface"),
    };
    Ok(match spec.over {
        Over::Udp => {
            let any = match kind.is_ipv6 {
                true => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
                false => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            };
            let from = spec.from.unwrap_or(any);
            if from.is_ipv6() != kind.is_ipv6 {
                return bad(format!(
                    "--from {from} is not of the same IP version as a destination"
                ));
            }
            Transport::Udp { from, to: None, device: spec.interface.clone() }
        }
        Over::Frames => Transport::Frames { interface: interface()? },
        Over::Ring => Transport::Ring { interface: interface()? },
        Over::Xdp(mode) => Transport::Xdp(XdpPort {
            interface: interface()?,
            queue: spec.queue,
            mode,
            need_wakeup: spec.need_wakeup,
            busy_poll: spec.busy_poll,
        }),
    })
}

fn options(spec: &Spec, kind: Kind) -> TransmitOptions {
    TransmitOptions {
        priority: kind.priority,
        traffic_class: kind.traffic_class,
        launch: kind.has_launch.then_some(spec.launch),
        points: spec.points,
        qdisc_bypass: spec.qdisc_bypass,
        buffer_bytes: spec.buffer_bytes,
        longest: 0,
    }
}

fn stream_spec(
    spec: &Spec,
    stream: &StreamEntry,
    target: &Target,
    port: usize,
    copy: u64,
) -> Result<StreamSpec, TrafficError> {
    let defaults = &spec.defaults;
    let id = stream.id.get() + copy;
    let number = u16::try_from(id).ok().filter(|number| *number <= Probe::MAX_STREAM);
    let Some(number) = number else { return bad(format!("stream {id}: numbers go to 32767")) };
    let cadence = match &spec.aligned {
        Some(Aligned { windows, lead }) => Cadence::Slots { windows: windows.clone(), lead: *lead },
        None => {
            let cycle = stream.cycle.unwrap_or(defaults.cycle);
            Cadence::Cycle { start: spec.base_time, cycle }
        }
    };
    let frames = stream.per_cycle.map_or(u64::from(defaults.per_cycle), |it| it.get());
    let cycles = match stream.count.map(|it| it.get()).or(defaults.count) {
        Some(count) if count % frames != 0 => {
            return bad(format!("stream {id}: {count} messages are no whole cycles of {frames}"));
        }
        count => count.map(|count| count / frames),
    };
    let size = stream.size.map_or(defaults.size, |it| it.get());
    let step = i64::try_from(copy).ok().and_then(|copy| stream.step.checked_mul(copy));
    let Some(later) = step else { return bad(format!("stream {id}: its step is too long")) };
    let offset = stream.offset.unwrap_or(defaults.offset).checked_add(later);
    let Some(offset) = offset else { return bad(format!("stream {id}: its offset is too long")) };
    let late = stream.late.map_or(defaults.send_late, |late| late == Late::Send);
    Ok(StreamSpec {
        port,
        offset,
        frames: u32::try_from(frames).expect("invariant: at most 100000"),
        spacing: stream.spacing.unwrap_or(defaults.spacing),
        cycles,
        launch_lead: stream.launch.or(defaults.launch),
        deadline: stream.tolerance.or(defaults.tolerance),
        send_late: late,
        ..StreamSpec::new(
            number,
            destination(spec, stream, target)?,
            cadence,
            usize::try_from(size).expect("invariant: u32 fits usize"),
        )
    })
}

fn destination(
    spec: &Spec,
    stream: &StreamEntry,
    target: &Target,
) -> Result<Destination, TrafficError> {
    let defaults = &spec.defaults;
    let vlan = stream.vlan.or(defaults.vlan);
    let vlan = vlan.map(|mark| VlanTag { vid: mark.vid(), pcp: mark.pcp() });
    let frame = |destination, content| {
        Destination::Frame(FrameHeader { source: None, destination, vlan, content })
    };
    Ok(match target {
        Target::Udp(to) => Destination::Udp(*to),
        Target::Name(host, _) => return bad(format!("the address of `{host}` was not looked up")),
        Target::Nic(nic) => {
            let plain = FrameContent::EtherType(spec.ethertype);
            frame(nic.0, spec.ptp.map_or(plain, |domain| FrameContent::Ptp { domain }))
        }
        Target::NicUdp(nic, to) => {
            let dscp = stream.dscp.and_then(|it| u8::try_from(it.get()).ok()).or(defaults.dscp);
            let from: SocketAddrV4 = match spec.from {
                Some(SocketAddr::V4(from)) => from,
                _ => return bad(format!("{target} needs --from with an IPv4 address and a port")),
            };
            let traffic_class = dscp.unwrap_or(0) << 2;
            frame(nic.0, FrameContent::Udp { from, to: *to, traffic_class })
        }
    })
}

/// A UDP port whose streams all go to one address is bound to it: the kernel looks for the way once
/// only, and tells when nobody is there.
fn one_destination(ports: &mut [(Transport, TransmitOptions)], streams: &mut [StreamSpec]) {
    for (index, (transport, _)) in ports.iter_mut().enumerate() {
        let Transport::Udp { to, .. } = transport else { continue };
        let mut targets = streams.iter().filter(|it| it.port == index).map(|it| it.to);
        let Some(first @ Destination::Udp(only)) = targets.next() else { continue };
        if targets.all(|target| target == first) {
            *to = Some(only);
            for stream in streams.iter_mut().filter(|it| it.port == index) {
                stream.to = Destination::Port;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(text: &str) -> Target {
        Target::parse(text).unwrap()
    }

    fn streams(texts: &[serde_json::Value]) -> Vec<StreamEntry> {
        StreamEntry::read_all("test", texts).unwrap()
    }

    fn refused(spec: &Spec) -> String {
        plan(spec).unwrap_err().to_string()
    }

    #[test]
    fn t0_one_destination_is_one_stream_through_a_bound_socket() {
        let mut spec = Spec::new(Over::Udp, vec![target("10.0.0.2:15001")]);
        spec.defaults.dscp = Some(46);
        let plan = plan(&spec).unwrap();
        let [(Transport::Udp { to, from, .. }, options)] = &plan.ports[..] else { panic!() };
        assert_eq!(to.map(|to| to.to_string()).as_deref(), Some("10.0.0.2:15001"));
        assert_eq!((from.to_string().as_str(), options.traffic_class), ("0.0.0.0:0", Some(0xb8)));
        assert_eq!((plan.streams[0].number, plan.streams[0].to), (1, Destination::Port));
        assert_eq!(plan.streams[0].payload, 64);
    }

    #[test]
    fn t0_streams_share_a_port_when_it_can_serve_them() {
        let mut spec = Spec::new(Over::Udp, vec![target("10.0.0.2:15001")]);
        spec.streams = streams(&[
            serde_json::json!({"id": 1}),
            serde_json::json!({"id": 2, "to": "10.0.0.3:15001"}),
            serde_json::json!({"id": 3, "priority": 5}),
            serde_json::json!({"id": 4, "priority": 5, "launch": "300us"}),
            serde_json::json!({"id": 5, "to": "[fd00::2]:9"}),
            serde_json::json!({"id": 10, "copies": 3, "step": "10us", "offset": "5us"}),
        ]);
        let plan = plan(&spec).unwrap();
        let ports: Vec<_> = plan.streams.iter().map(|it| it.port).collect();
        assert_eq!(ports, [0, 0, 1, 2, 3, 0, 0, 0]);
        assert!(matches!(plan.ports[0].0, Transport::Udp { to: None, .. }));
        assert!(matches!(plan.ports[1].0, Transport::Udp { to: Some(_), .. }));
        assert!(plan.ports[2].1.launch.is_some() && plan.ports[1].1.launch.is_none());
        let offsets: Vec<_> = plan.streams[5..].iter().map(|it| it.offset.as_ns()).collect();
        assert_eq!(offsets, [5_000, 15_000, 25_000]);
        assert_eq!(plan.streams[7].number, 12);
        spec.from = Some("0.0.0.0:77".parse().unwrap());
        assert!(refused(&spec).contains("not of the same IP version"));
        spec.streams.truncate(3);
        assert!(refused(&spec).contains("--from with port 0"));
    }

    #[test]
    fn t0_frames_have_a_header_of_their_own() {
        let nic = target("02:00:00:00:00:02");
        let udp = target("02:00:00:00:00:02/10.0.0.2:15001");
        let mut spec = Spec::new(Over::Xdp(XdpMode::Generic), vec![nic, udp]);
        assert!(refused(&spec).contains("need --interface"));
        spec.interface = Some(IfName::new("eth0").unwrap());
        assert!(refused(&spec).contains("needs --from"));
        spec.from = Some("10.0.0.1:15002".parse().unwrap());
        spec.defaults.vlan = Some(VlanMark::parse("5:6").unwrap());
        let plan = plan(&spec).unwrap();
        assert_eq!((plan.ports.len(), plan.streams.len()), (1, 2));
        let Destination::Frame(header) = plan.streams[0].to else { panic!() };
        assert_eq!(header.vlan, Some(VlanTag { vid: 5, pcp: 6 }));
        assert_eq!(header.content, FrameContent::EtherType(ETHERTYPE));
        let Destination::Frame(header) = plan.streams[1].to else { panic!() };
        assert!(matches!(header.content, FrameContent::Udp { traffic_class: 0, .. }));
        spec.over = Over::Udp;
        assert!(refused(&spec).contains("needs --over frames"));
    }

    #[test]
    fn t0_what_cannot_be_is_refused_in_words() {
        let mut spec = Spec::new(Over::Udp, Vec::new());
        assert!(refused(&spec).contains("nothing to send to"));
        spec.streams = streams(&[serde_json::json!({"id": 1})]);
        assert!(refused(&spec).contains("stream 1 has no destination"));
        spec.to = vec![target("10.0.0.2:1"), target("10.0.0.3:1")];
        assert!(refused(&spec).contains("names none of the 2 destinations"));
        spec.to.truncate(1);
        spec.defaults.vlan = Some(VlanMark::parse("5:6").unwrap());
        assert!(refused(&spec).contains("a VLAN tag needs"));
        spec.defaults.vlan = None;
        (spec.defaults.per_cycle, spec.defaults.count) = (3, Some(10));
        assert!(refused(&spec).contains("no whole cycles of 3"));
        spec.defaults.count = Some(12);
        assert_eq!(plan(&spec).unwrap().streams[0].cycles, Some(4));
        spec.over = Over::Frames;
        assert!(refused(&spec).contains("02:00:00:00:00:02/10.0.0.2:1"));
    }
}
