// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Opening a port: what was asked for becomes a socket with its options, or words that say why not.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use timewire_base::{IfName, Mono, Span};
use timewire_bpf::AttachMode;
use timewire_bpf::pass::Pass;
use timewire_sys::clock;
use timewire_sys::error_queue::{self, ReportReader};
use timewire_sys::nic::LinkBefore;
use timewire_sys::outbox::{Outbox, Treatment};
use timewire_sys::packet_ring::{self, TxPacketRing};
use timewire_sys::phc::timestamp_abilities;
use timewire_sys::talk::LaunchMode;
use timewire_sys::xsk_talk::{self, XskTalkOptions, XskTalker, xsk_features};
use timewire_sys::{Sending, interface_index, sending_of};

use super::{
    KNOWN, Offsets, PortError, PortMode, TransmitOptions, Transmitter, Transport, TxPoints,
    TxSocket, XdpMode, XdpPort,
};

/// The payload of UDP over IPv4 in the usual Ethernet frame.
const UDP_PAYLOAD: usize = 1_472;
/// How long to wait for a queue of AF_XDP that has a socket.
const LETTING_GO: Span = Span::from_ms(300);
/// Addresses, type and two VLAN tags before a frame's payload.
const HEADERS: u32 = 14 + 2 * 4;

impl Transmitter {
    /// Opens a port.
    ///
    /// **Errors**: no such interface, no privilege, what kernel or driver cannot do, or requests
    /// that exclude each other.
    pub fn open(transport: &Transport, options: &TransmitOptions) -> Result<Self, PortError> {
        match transport {
            Transport::Udp { from, to, device } => open_udp(*from, *to, device.as_ref(), options),
            Transport::Frames { interface } => open_frames(interface, options),
            Transport::Ring { interface } => open_ring(interface, options),
            Transport::Xdp(port) => open_xdp(port, options),
        }
    }
}

fn transmitter(
    socket: TxSocket,
    mode: PortMode,
    longest: usize,
    address: Option<[u8; 6]>,
    options: &TransmitOptions,
) -> Transmitter {
    Transmitter {
        socket,
        mode,
        longest,
        address,
        next_id: 0,
        points: options.points,
        launch: options.launch.map(|launch| launch.clock),
        offsets: Offsets::now(),
        reader: ReportReader::default(),
        known: Vec::with_capacity(KNOWN),
        lost: 0,
        _program: None,
    }
}

fn mode(name: &'static str) -> PortMode {
    PortMode { name, fallbacks: Vec::new() }
}

fn treatment(options: &TransmitOptions) -> Treatment {
    Treatment {
        priority: options.priority,
        traffic_class: options.traffic_class,
        launch: options
            .launch
            .map(|one| (one.clock, LaunchMode { deadline: one.deadline, report: true })),
        buffer_bytes: options.buffer_bytes,
        qdisc_bypass: options.qdisc_bypass,
    }
}

fn open_udp(
    from: SocketAddr,
    to: Option<SocketAddr>,
    device: Option<&IfName>,
    options: &TransmitOptions,
) -> Result<Transmitter, PortError> {
    if options.qdisc_bypass {
        return Err(PortError::Contradiction(
            "UDP goes through the queueing discipline: use frames, a ring or AF_XDP to bypass it",
        ));
    }
    let longest = if options.longest == 0 { UDP_PAYLOAD } else { options.longest };
    let failed = |source| PortError::Open { what: format!("UDP socket on {from}"), source };
    let mut outbox = Outbox::udp(from, to, device, longest, treatment(options)).map_err(failed)?;
    check_hardware(device, options.points)?;
    timestamp(&mut outbox, options.points).map_err(failed)?;
    Ok(transmitter(TxSocket::Outbox(outbox), mode("UDP"), longest, None, options))
}

fn open_frames(interface: &IfName, options: &TransmitOptions) -> Result<Transmitter, PortError> {
    let (index, sending) = find(interface)?;
    check_frames(interface, options)?;
    let longest = longest_of(sending, options, usize::MAX);
    let failed = |source| {
        let what = format!("packet socket on {interface}");
        PortError::Open { what, source }
    };
    let mut outbox = Outbox::frames(index, longest, treatment(options)).map_err(failed)?;
    timestamp(&mut outbox, options.points).map_err(failed)?;
    Ok(transmitter(
        TxSocket::Outbox(outbox),
        mode("AF_PACKET"),
        longest,
        Some(sending.address.0),
        options,
    ))
}

fn open_ring(interface: &IfName, options: &TransmitOptions) -> Result<Transmitter, PortError> {
    let (index, sending) = find(interface)?;
    check_frames(interface, options)?;
    let longest = longest_of(sending, options, packet_ring::LONGEST);
    let failed = |source| {
        let what = format!("packet ring on {interface}");
        PortError::Open { what, source }
    };
    let ring = TxPacketRing::open(index, treatment(options)).map_err(failed)?;
    ask_timestamps(ring.as_fd(), options.points).map_err(failed)?;
    Ok(transmitter(
        TxSocket::Ring(ring),
        mode("AF_PACKET ring"),
        longest,
        Some(sending.address.0),
        options,
    ))
}

fn check_frames(interface: &IfName, options: &TransmitOptions) -> Result<(), PortError> {
    if options.traffic_class.is_some() {
        return Err(PortError::Contradiction(
            "whole frames have their IP header with them: the traffic class is a byte in it",
        ));
    }
    if options.qdisc_bypass && options.launch.is_some() {
        return Err(PortError::Contradiction(
            "launch times are kept by the queueing discipline: do not bypass it",
        ));
    }
    if options.qdisc_bypass && options.points.sched {
        return Err(PortError::Contradiction(
            "the sched timestamp is taken before the queueing discipline: do not bypass it",
        ));
    }
    check_hardware(Some(interface), options.points)
}

fn check_hardware(interface: Option<&IfName>, points: TxPoints) -> Result<(), PortError> {
    let Some(interface) = interface.filter(|_| points.hardware) else { return Ok(()) };
    match timestamp_abilities(interface) {
        Ok(abilities) if abilities.hardware => Ok(()),
        _ => Err(PortError::Unsupported {
            what: format!("hardware timestamps on {interface}"),
            why: "its driver has none; ask for software timestamps".to_owned(),
        }),
    }
}

fn find(interface: &IfName) -> Result<(u32, Sending), PortError> {
    let failed = |source| PortError::Interface { name: interface.clone(), source };
    let index = interface_index(interface).map_err(failed)?;
    Ok((index, sending_of(interface).map_err(failed)?))
}

fn longest_of(sending: Sending, options: &TransmitOptions, most: usize) -> usize {
    let fits = usize::try_from(sending.payload.saturating_add(HEADERS)).unwrap_or(usize::MAX);
    let wanted = if options.longest == 0 { fits } else { options.longest };
    // The loopback interface takes 64 KiB; buffers of that size serve nobody unasked.
    wanted.min(fits).min(most).min(if options.longest == 0 { 9_216 } else { usize::MAX })
}

fn timestamp(outbox: &mut Outbox, points: TxPoints) -> io::Result<()> {
    let asked = asked(points);
    if asked.is_empty() { Ok(()) } else { outbox.timestamp(&asked) }
}

fn asked(points: TxPoints) -> Vec<error_queue::TxPoint> {
    let of = [
        (points.sched, error_queue::TxPoint::Sched),
        (points.software, error_queue::TxPoint::Send),
        (points.hardware, error_queue::TxPoint::Hardware),
    ];
    of.into_iter().filter_map(|(is_asked, point)| is_asked.then_some(point)).collect()
}

fn ask_timestamps(fd: BorrowedFd<'_>, points: TxPoints) -> io::Result<()> {
    let asked = asked(points);
    if asked.is_empty() { Ok(()) } else { error_queue::timestamp_messages(fd, &asked) }
}

fn open_xdp(port: &XdpPort, options: &TransmitOptions) -> Result<Transmitter, PortError> {
    let interface = &port.interface;
    let (index, sending) = find(interface)?;
    check_xdp(port, options)?;
    let wants_nic = options.launch.is_some() || options.points.hardware;
    if wants_nic {
        check_features(interface, index, options)?;
    }
    let base = XskTalkOptions {
        interface: index,
        queue: port.queue,
        zero_copy: false,
        need_wakeup: port.need_wakeup,
        busy_poll: port.busy_poll,
        priority: options.priority,
        metadata: wants_nic || options.points.software,
    };
    let mut fallbacks = Vec::new();
    if port.mode == XdpMode::Native {
        fallbacks.push(
            "native is as generic for what is sent: without zero copy the kernel copies".to_owned(),
        );
    }
    let longest = longest_of(sending, options, xsk_talk::LONGEST);
    if matches!(port.mode, XdpMode::Auto | XdpMode::ZeroCopy) && !copies(options) {
        let link = LinkBefore::of(interface);
        match open_socket(XskTalkOptions { zero_copy: true, ..base }) {
            Ok(xsk) => {
                let program = match Pass::attach(index, AttachMode::Native) {
                    Ok(program) => Some(program),
                    Err(error) => {
                        fallbacks.push(format!("no XDP program in the driver: {error}"));
                        None
                    }
                };
                fallbacks.extend(link.is_back());
                let mode = PortMode { name: "AF_XDP zero copy", fallbacks };
                let made = transmitter(
                    TxSocket::Xsk(xsk),
                    mode,
                    longest,
                    Some(sending.address.0),
                    options,
                );
                return Ok(Transmitter { _program: program, ..made });
            }
            Err(source) if port.mode == XdpMode::ZeroCopy || wants_nic => {
                return Err(no_zero_copy(port, source));
            }
            Err(error) => fallbacks.push(format!("no zero copy: {error}")),
        }
    }
    let xsk = open_socket(base).map_err(|source| refused(port, options, source))?;
    let mode = PortMode { name: "AF_XDP copy", fallbacks };
    Ok(transmitter(TxSocket::Xsk(xsk), mode, longest, Some(sending.address.0), options))
}

/// The kernel lets go of a queue a moment after its last socket was closed
/// (linux v6.12 `net/xdp/xsk_buff_pool.c:xp_put_pool`).
fn open_socket(options: XskTalkOptions) -> io::Result<XskTalker> {
    let timeout = clock::now::<Mono>() + LETTING_GO;
    loop {
        match XskTalker::open(options) {
            Err(error)
                if error.kind() == io::ErrorKind::ResourceBusy
                    && clock::now::<Mono>() < timeout =>
            {
                clock::sleep_until(clock::now::<Mono>() + Span::from_ms(2));
            }
            result => return result,
        }
    }
}

/// Whether it must be the kernel that copies: only then is the timestamp one of its own clock.
fn copies(options: &TransmitOptions) -> bool {
    options.points.software
}

fn check_xdp(port: &XdpPort, options: &TransmitOptions) -> Result<(), PortError> {
    let points = options.points;
    if points.sched {
        return Err(PortError::Contradiction(
            "AF_XDP bypasses the queueing discipline, so there is no sched timestamp",
        ));
    }
    if points.software && (points.hardware || options.launch.is_some()) {
        return Err(PortError::Contradiction(
            "a frame of AF_XDP has one timestamp: of the NIC with zero copy, of the kernel \
                without; \
             launch times are for zero copy",
        ));
    }
    if options.traffic_class.is_some() {
        return Err(PortError::Contradiction(
            "whole frames have their IP header with them: the traffic class is a byte in it",
        ));
    }
    let copies = matches!(port.mode, XdpMode::Generic | XdpMode::Native);
    if copies && (points.hardware || options.launch.is_some()) {
        return Err(PortError::Contradiction(
            "hardware timestamps and launch times of AF_XDP need zero copy",
        ));
    }
    if port.mode == XdpMode::ZeroCopy && points.software {
        return Err(PortError::Contradiction(
            "with zero copy the kernel has no copy whose end it could timestamp: ask for hardware \
             timestamps",
        ));
    }
    if options.launch.is_some_and(|launch| launch.deadline) {
        return Err(PortError::Contradiction("launch times of AF_XDP are exact, not deadlines"));
    }
    Ok(())
}

fn check_features(
    interface: &IfName,
    index: u32,
    options: &TransmitOptions,
) -> Result<(), PortError> {
    let features = xsk_features(index).unwrap_or_default();
    let lacks = |what: &str, since: &str| PortError::Unsupported {
        what: format!("{what} of AF_XDP on {interface}"),
        why: format!("the driver does not offer it (Linux {since} and later tell which do)"),
    };
    if options.launch.is_some() && !features.launch {
        return Err(lacks("launch times", "6.15"));
    }
    if options.points.hardware && !features.timestamps {
        return Err(lacks("transmit timestamps", "6.8"));
    }
    Ok(())
}

fn no_zero_copy(port: &XdpPort, source: io::Error) -> PortError {
    match source.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ResourceBusy => opening(port, source),
        _ => PortError::Unsupported {
            what: format!("zero copy on {} queue {}", port.interface, port.queue),
            why: format!("{source}; the mode `auto` takes what works"),
        },
    }
}

fn refused(port: &XdpPort, options: &TransmitOptions, source: io::Error) -> PortError {
    // Registering memory with room for metadata is the one request that kernels before 6.11 do
    // not know; a queue that is not there has the same error.
    if options.points.software && source.kind() == io::ErrorKind::InvalidInput {
        return PortError::Unsupported {
            what: format!("timestamps of AF_XDP on {} queue {}", port.interface, port.queue),
            why: "no such queue, or the kernel is older than 6.11".to_owned(),
        };
    }
    opening(port, source)
}

fn opening(port: &XdpPort, source: io::Error) -> PortError {
    let what = format!("AF_XDP socket on {} queue {}", port.interface, port.queue);
    PortError::Open { what, source }
}
