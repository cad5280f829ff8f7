// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sending messages through any way out of the host.

use std::ffi::{c_char, c_int, c_void};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};

use timewire_base::drops::{Heard, Socket};
use timewire_base::{Failure, IfName, Instant, SocketPriority};
use timewire_datapath::heard::Hear;
use timewire_datapath::transmit::{
    BusyPoll, LaunchClock, LaunchOptions, LaunchRefusal, NotSent, PortError, TimestampTime,
    TransmitOptions, Transmitter, Transport, TxPoint, TxPoints, TxReport, XdpMode, XdpPort,
};
use timewire_tsn::drops::decide;

use crate::address::{self, Address};
use crate::error::{Answer, Code, Failed, count, errno_of, guard};
use crate::handle::{self, Handle, Kind};
use crate::raw;

/// `tw_transmitter_config`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct TransmitterConfig {
    /// `sizeof(tw_transmitter_config)`.
    pub size: u32,
    /// `TW_TRANSPORT_...`.
    pub transport: u32,
    /// The interface.
    pub interface: *const c_char,
    /// The address that a UDP socket is bound to.
    pub from: *const c_char,
    /// The only destination of a UDP socket.
    pub to: *const c_char,
    /// The queue of AF_XDP.
    pub queue: u32,
    /// `TW_XDP_...`.
    pub xdp_mode: u32,
    /// `TW_TRANSMIT_...`.
    pub flags: u32,
    /// `SO_PRIORITY`.
    pub priority: u32,
    /// The byte with DSCP and ECN.
    pub traffic_class: u32,
    /// `TW_LAUNCH_...`.
    pub launch: u32,
    /// `TW_POINT_...` as bits.
    pub points: u32,
    /// **Units**: bytes that may wait in the kernel.
    pub buffer_bytes: u32,
    /// **Units**: bytes of the longest message.
    pub longest: u32,
    /// **Units**: microseconds of busy polling.
    pub busy_poll_us: u32,
    /// Frames of one look.
    pub busy_poll_budget: u32,
    /// Zero.
    pub reserved: u32,
}

// SAFETY: `repr(C)`; two u32, three pointers and twelve u32 leave no padding (asserted); raw
// pointers are valid with any bytes; the size comes first.
unsafe impl raw::Sized32 for TransmitterConfig {
    const FIRST: usize = 8 + 3 * size_of::<*const c_char>() + 48;
    const NAME: &'static str = "tw_transmitter_config";
}
const _: () = assert!(size_of::<TransmitterConfig>() == <TransmitterConfig as raw::Sized32>::FIRST);

const FLAG_DEADLINE: u32 = 1;
const FLAG_QDISC_BYPASS: u32 = 2;
const FLAG_NEED_WAKEUP: u32 = 4;
const FLAG_PREFER_BUSY_POLL: u32 = 8;

const POINT_SCHED: u32 = 1;
const POINT_SOFTWARE: u32 = 2;
const POINT_HARDWARE: u32 = 4;
const POINT_FREED: u32 = 8;

/// `tw_report`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Report {
    /// As the library has it.
    pub size: u32,
    /// `TW_REPORT_...`.
    pub kind: u32,
    /// The number of the message, where one is known.
    pub id: u32,
    /// Of a timestamp: `TW_POINT_...`.
    pub point: u32,
    /// Of a timestamp: 1 when the time is of the NIC's own clock.
    pub is_nic_clock: u32,
    /// The kernel's number of an error.
    pub error: i32,
    /// Of a timestamp, when; of a refused launch time, which. **Units**: nanoseconds.
    pub time_ns: i64,
}
const _: () = assert!(size_of::<Report>() == 32);

const REPORT_TIMESTAMP: u32 = 1;
const REPORT_NOT_TAKEN: u32 = 2;
const REPORT_LAUNCH_INVALID: u32 = 3;
const REPORT_LAUNCH_MISSED: u32 = 4;
const REPORT_OTHER: u32 = 5;

/// `tw_report_fn`.
pub type ReportFn = Option<unsafe extern "C" fn(report: *const Report, context: *mut c_void)>;

/// What a transmitter handle names.
pub(crate) struct OpenTransmitter {
    port: Transmitter,
    /// The family of a UDP socket: whether it is IPv4.
    is_ipv4: Option<bool>,
    has_destination: bool,
    has_launch: bool,
    /// The length of the buffer that the caller was given and has not sent.
    lent: Option<usize>,
    /// How it sends, and what it heard of messages that did not leave.
    socket: (Socket, Heard),
}

impl Kind for OpenTransmitter {
    const NAME: &'static str = "transmitter";
}

/// An error of a port, with what to do about it.
pub(crate) fn port_failed(error: &PortError) -> Failed {
    let (code, errno) = match error {
        PortError::Contradiction(_) => (Code::Usage, 0),
        error if error.is_unsupported() => (Code::Unsupported, 0),
        PortError::Interface { source, .. } | PortError::Open { source, .. } => {
            (Code::System, errno_of(source))
        }
        _ => (Code::System, 0),
    };
    match error.hint() {
        Some(hint) => Failed::with(code, errno, format_args!("{error}; {hint}")),
        None => Failed::with(code, errno, format_args!("{error}")),
    }
}

/// An interface's name that must or may be there.
pub(crate) fn interface_of(text: Option<&str>) -> Result<Option<IfName>, Failed> {
    text.map(IfName::new).transpose().map_err(Failed::usage)
}

pub(crate) fn required<T>(it: Option<T>, what: &str) -> Result<T, Failed> {
    it.ok_or_else(|| Failed::usage(format_args!("{what} is NULL, and this way needs it")))
}

/// What must not be given, since nothing would come of it.
pub(crate) fn none_of(given: &[(bool, &str)], way: &str) -> Result<(), Failed> {
    match given.iter().find(|(is, _)| *is) {
        Some((_, what)) => Err(Failed::usage(format_args!("{what} means nothing for {way}"))),
        None => Ok(()),
    }
}

impl TransmitterConfig {
    /// # Safety
    /// Its texts are null or end with a zero.
    pub(crate) unsafe fn read(&self) -> Result<(Transport, TransmitOptions), Failed> {
        // SAFETY: the caller's promise.
        let (interface, from, to) = unsafe {
            (
                raw::maybe_text(self.interface, "interface")?,
                raw::maybe_text(self.from, "from")?,
                raw::maybe_text(self.to, "to")?,
            )
        };
        raw::only(self.reserved, 0, "reserved")?;
        let known = FLAG_DEADLINE | FLAG_QDISC_BYPASS | FLAG_NEED_WAKEUP | FLAG_PREFER_BUSY_POLL;
        raw::only(self.flags, known, "flags")?;
        raw::only(self.points, POINT_SCHED | POINT_SOFTWARE | POINT_HARDWARE, "points")?;
        let interface = interface_of(interface)?;
        let transport = match self.transport {
            1 => udp(interface, from, to)?,
            2 => Transport::Frames { interface: required(interface, "interface")? },
            3 => Transport::Ring { interface: required(interface, "interface")? },
            4 => Transport::Xdp(self.xdp_port(required(interface, "interface")?)?),
            other => {
                return Err(Failed::usage(format_args!(
                    "transport {other}: it is one of TW_TRANSPORT_..."
                )));
            }
        };
        if !matches!(transport, Transport::Udp { .. }) {
            none_of(&[(from.is_some(), "from"), (to.is_some(), "to")], "whole frames")?;
        }
        if !matches!(transport, Transport::Xdp(_)) {
            let polls = self.busy_poll_us > 0 || self.busy_poll_budget > 0;
            let given = [
                (self.queue > 0, "queue"),
                (self.xdp_mode > 0, "xdp_mode"),
                (self.flags & (FLAG_NEED_WAKEUP | FLAG_PREFER_BUSY_POLL) > 0, "a flag of AF_XDP"),
                (polls, "busy polling"),
            ];
            none_of(&given, "any transport but AF_XDP")?;
        }
        Ok((transport, self.options()?))
    }

    fn xdp_port(&self, interface: IfName) -> Result<XdpPort, Failed> {
        let mode = match self.xdp_mode {
            0 => XdpMode::Auto,
            1 => XdpMode::Generic,
            2 => XdpMode::Native,
            3 => XdpMode::ZeroCopy,
            other => return Err(unknown_xdp_mode(other)),
        };
        let budget = match u16::try_from(self.busy_poll_budget) {
            Ok(0) => None,
            Ok(budget) => Some(budget),
            Err(_) => return Err(Failed::usage("busy_poll_budget is at most 65535")),
        };
        let prefer = self.flags & FLAG_PREFER_BUSY_POLL > 0;
        if self.busy_poll_us == 0 && (budget.is_some() || prefer) {
            return Err(Failed::usage("busy polling needs busy_poll_us"));
        }
        let busy_poll = (self.busy_poll_us > 0).then_some(BusyPoll {
            microseconds: self.busy_poll_us,
            budget,
            prefer,
        });
        let need_wakeup = self.flags & FLAG_NEED_WAKEUP > 0;
        Ok(XdpPort { interface, queue: self.queue, mode, need_wakeup, busy_poll })
    }

    fn options(&self) -> Result<TransmitOptions, Failed> {
        let priority = SocketPriority::new(self.priority.into()).map_err(Failed::usage)?;
        let traffic_class = u8::try_from(self.traffic_class)
            .map_err(|_| Failed::usage("traffic_class is a byte: at most 255"))?;
        let deadline = self.flags & FLAG_DEADLINE > 0;
        let launch = match self.launch {
            0 if deadline => {
                return Err(Failed::usage("TW_TRANSMIT_DEADLINE needs launch times"));
            }
            0 => None,
            1 => Some(LaunchOptions { deadline, clock: LaunchClock::Tai }),
            2 => Some(LaunchOptions { deadline, clock: LaunchClock::Mono }),
            other => {
                return Err(Failed::usage(format_args!(
                    "launch {other}: it is one of TW_LAUNCH_..."
                )));
            }
        };
        Ok(TransmitOptions {
            priority: (self.priority > 0).then_some(priority),
            traffic_class: (traffic_class > 0).then_some(traffic_class),
            launch,
            points: TxPoints {
                sched: self.points & POINT_SCHED > 0,
                software: self.points & POINT_SOFTWARE > 0,
                hardware: self.points & POINT_HARDWARE > 0,
            },
            qdisc_bypass: self.flags & FLAG_QDISC_BYPASS > 0,
            buffer_bytes: (self.buffer_bytes > 0).then_some(self.buffer_bytes),
            longest: usize::try_from(self.longest).expect("invariant: u32 fits usize"),
        })
    }
}

pub(crate) fn unknown_xdp_mode(mode: u32) -> Failed {
    Failed::usage(format_args!("xdp_mode {mode}: it is one of TW_XDP_..."))
}

fn udp(device: Option<IfName>, from: Option<&str>, to: Option<&str>) -> Result<Transport, Failed> {
    let to = to.map(|to| address::parse(to, "to")).transpose()?;
    let from = match (from, to) {
        (Some(from), _) => address::parse(from, "from")?,
        (None, Some(SocketAddr::V6(_))) => SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0),
        (None, _) => SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
    };
    if to.is_some_and(|to| to.is_ipv4() != from.is_ipv4()) {
        return Err(Failed::usage(format_args!("from {from} and to are not of one family")));
    }
    Ok(Transport::Udp { from, to, device })
}

impl OpenTransmitter {
    fn open(transport: &Transport, options: &TransmitOptions) -> Result<OpenTransmitter, Failed> {
        let port = Transmitter::open(transport, options).map_err(|error| port_failed(&error))?;
        let (is_ipv4, has_destination) = match transport {
            Transport::Udp { from, to, .. } => (Some(from.is_ipv4()), to.is_some()),
            _ => (None, true),
        };
        let has_launch = options.launch.is_some();
        let socket = (options.socket(interface_name(transport)), Heard::default());
        Ok(OpenTransmitter { port, is_ipv4, has_destination, has_launch, lent: None, socket })
    }

    /// What a message is sent with.
    fn way(
        &self,
        to: Option<&Address>,
        launch_ns: i64,
    ) -> Result<(Option<SocketAddr>, Option<Instant<timewire_base::Tai>>), Failed> {
        let to = to.map(|to| to.to_socket_address()).transpose()?;
        match (to, self.is_ipv4) {
            (Some(_), None) => {
                return Err(Failed::usage("whole frames have their destination in them"));
            }
            (Some(to), Some(is_ipv4)) if to.is_ipv4() != is_ipv4 => {
                return Err(Failed::usage("the destination is not of the socket's family"));
            }
            (None, _) if !self.has_destination => {
                return Err(Failed::usage(
                    "the transmitter was opened without destination: the message needs one",
                ));
            }
            _ => {}
        }
        if launch_ns != 0 && !self.has_launch {
            return Err(Failed::usage("the transmitter was opened without launch times"));
        }
        Ok((to, (launch_ns != 0).then(|| Instant::from_ns(launch_ns))))
    }

    fn is_too_long(&self, length: usize) -> Result<(), Failed> {
        let longest = self.port.longest();
        if length <= longest {
            return Ok(());
        }
        Err(Failed::usage(format_args!("{length} bytes are longer than the longest, {longest}")))
    }
}

fn full() -> Failed {
    let text = format_args!("as many messages are under way as the transmitter can have");
    Failed::with(Code::Full, 0, text)
}

fn not_sent(why: &NotSent, heard: &mut Heard) -> Failed {
    heard.not_sent(why);
    match why {
        NotSent::Full => full(),
        NotSent::Refused(error) => Failed::system("the message", error),
    }
}

/// Opens a transmitter.
///
/// # Safety
/// `config` is null or as its size says, its texts end with a zero; `transmitter` is null or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_transmitter_open(
    config: *const TransmitterConfig,
    transmitter: *mut Handle,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promises are those that these ask for.
        let ((transport, options), to) = unsafe {
            let config = raw::structure(config)?;
            (config.read()?, raw::target(transmitter, "the room for the handle")?)
        };
        *to = handle::keep(OpenTransmitter::open(&transport, &options)?)?;
        Ok(0)
    })
}

/// Lends the memory in which the next message is written.
///
/// # Safety
/// `buffer` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_transmitter_buffer(
    transmitter: Handle,
    length: usize,
    buffer: *mut *mut u8,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise is the one that this asks for.
        let to = unsafe { raw::target(buffer, "the room for the buffer")? };
        *to = std::ptr::null_mut();
        handle::with(transmitter, |it: &mut OpenTransmitter| {
            it.lent = None;
            it.is_too_long(length)?;
            let Some(buffer) = it.port.message_buffer(length) else {
                it.socket.1.again += 1;
                return Err(full());
            };
            *to = buffer.as_mut_ptr();
            it.lent = Some(length);
            Ok(0)
        })
    })
}

/// Lets the message that was written into the buffer go with the next flush.
///
/// # Safety
/// `to` is null or an address; `id` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_transmitter_send(
    transmitter: Handle,
    length: usize,
    to: *const Address,
    launch_ns: i64,
    id: *mut u32,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promises.
        let (to, id) = unsafe { (to.as_ref(), id.as_mut()) };
        handle::with(transmitter, |it: &mut OpenTransmitter| {
            match it.lent {
                Some(lent) if length <= lent => {}
                Some(lent) => {
                    return Err(Failed::usage(format_args!(
                        "{length} bytes are longer than the buffer, which has {lent}"
                    )));
                }
                None => return Err(Failed::usage("no buffer was given for this message")),
            }
            let (to, launch) = it.way(to, launch_ns)?;
            let sent = it.port.send(length, to, launch);
            let sent = sent.map_err(|why| not_sent(&why, &mut it.socket.1))?;
            it.lent = None;
            if let Some(id) = id {
                *id = sent.id;
            }
            Ok(0)
        })
    })
}

/// Copies a message and lets it go with the next flush.
///
/// # Safety
/// `message` is null or readable for `length` bytes; `to` is null or an address; `id` is null or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_transmitter_send_copy(
    transmitter: Handle,
    message: *const u8,
    length: usize,
    to: *const Address,
    launch_ns: i64,
    id: *mut u32,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promises are those that these ask for.
        let (message, to, id) =
            unsafe { (raw::slice(message, length, "the message")?, to.as_ref(), id.as_mut()) };
        handle::with(transmitter, |it: &mut OpenTransmitter| {
            it.lent = None;
            it.is_too_long(length)?;
            let (to, launch) = it.way(to, launch_ns)?;
            let sent = it.port.send_copy(message, to, launch);
            let sent = sent.map_err(|why| not_sent(&why, &mut it.socket.1))?;
            if let Some(id) = id {
                *id = sent.id;
            }
            Ok(0)
        })
    })
}

/// Hands over to the kernel what waits.
#[unsafe(no_mangle)]
pub extern "C" fn tw_transmitter_flush(transmitter: Handle) -> c_int {
    guard(|| {
        handle::with(transmitter, |it: &mut OpenTransmitter| {
            it.lent = None;
            count(it.port.flush())
        })
    })
}

fn report_of(report: &TxReport) -> Report {
    let size = u32::try_from(size_of::<Report>()).expect("invariant: a small structure");
    let empty = Report { size, ..Report::default() };
    match report {
        TxReport::Timestamp { id, point, at } => {
            let point = match point {
                TxPoint::Sched => POINT_SCHED,
                TxPoint::Software => POINT_SOFTWARE,
                TxPoint::Hardware => POINT_HARDWARE,
                TxPoint::Freed => POINT_FREED,
            };
            let (is_nic_clock, time_ns) = match at {
                TimestampTime::System(at) => (0, at.as_ns()),
                TimestampTime::Nic { ns } => (1, *ns),
            };
            Report { kind: REPORT_TIMESTAMP, id: *id, point, is_nic_clock, time_ns, ..empty }
        }
        TxReport::NotTaken { id, error } => {
            Report { kind: REPORT_NOT_TAKEN, id: *id, error: errno_of(error), ..empty }
        }
        TxReport::LaunchRefused { why, launch } => {
            let kind = match why {
                LaunchRefusal::Invalid => REPORT_LAUNCH_INVALID,
                LaunchRefusal::Missed => REPORT_LAUNCH_MISSED,
            };
            Report { kind, time_ns: launch.as_ns(), ..empty }
        }
        TxReport::Other { errno, .. } => {
            let error = i32::try_from(*errno).unwrap_or(i32::MAX);
            Report { kind: REPORT_OTHER, error, ..empty }
        }
    }
}

/// Tells what has become known of messages since the last call.
///
/// # Safety
/// `on` is null or a function that may be called with `context` and does not unwind.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_transmitter_reports(
    transmitter: Handle,
    on: ReportFn,
    context: *mut c_void,
) -> c_int {
    guard(|| {
        let on = on.ok_or_else(|| Failed::usage("the callback is NULL"))?;
        handle::with(transmitter, |it: &mut OpenTransmitter| {
            it.lent = None;
            let mut told = 0_u64;
            let heard = &mut it.socket.1;
            it.port
                .reports(&mut |report| {
                    told += 1;
                    heard.report(&report);
                    let report = report_of(&report);
                    // SAFETY: the caller's promise; the report lives until the call returns.
                    unsafe { on(&raw const report, context) };
                })
                .map_err(|error| Failed::system("the transmitter's error queue", &error))?;
            count(told)
        })
    })
}

/// The interface through which it sends, if it was told one.
pub(crate) fn interface_name(transport: &Transport) -> Option<String> {
    match transport {
        Transport::Udp { device, .. } => device.as_ref().map(ToString::to_string),
        Transport::Frames { interface } | Transport::Ring { interface } => {
            Some(interface.to_string())
        }
        Transport::Xdp(port) => Some(port.interface.to_string()),
    }
}

/// Why frames of these sockets did not leave, as JSON or as lines.
///
/// # Safety
/// `text` is null or writable for `room` bytes.
pub(crate) unsafe fn give_causes(
    sockets: &[(Socket, Heard)],
    is_json: c_int,
    text: *mut c_char,
    room: usize,
) -> Answer {
    let mut causes = decide(sockets, None);
    for cause in &mut causes {
        cause.not_counted = Some("the library does not read them; see tc -s qdisc".to_owned());
    }
    let told = match is_json {
        0 => causes.iter().map(|cause| format!("{cause}\n")).collect(),
        1 => serde_json::to_string(&causes).expect("invariant: texts and numbers"),
        other => return Err(Failed::usage(format_args!("is_json {other}: it is 0 or 1"))),
    };
    // SAFETY: the caller's promise.
    unsafe { raw::give_text(&told, text, room) }
}

/// Why messages did not leave.
///
/// # Safety
/// `text` is null or writable for `room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_transmitter_drop_causes(
    transmitter: Handle,
    is_json: c_int,
    text: *mut c_char,
    room: usize,
) -> c_int {
    guard(|| {
        handle::with(transmitter, |it: &mut OpenTransmitter| {
            // SAFETY: the caller's promise is the one that this asks for.
            unsafe { give_causes(std::slice::from_ref(&it.socket), is_json, text, room) }
        })
    })
}

/// How many reports were lost because they were not asked for in time.
///
/// # Safety
/// `lost` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_transmitter_lost_reports(transmitter: Handle, lost: *mut u64) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise is the one that this asks for.
        let to = unsafe { raw::target(lost, "the room for the number")? };
        handle::with(transmitter, |it: &mut OpenTransmitter| {
            *to = it.port.lost_reports();
            Ok(0)
        })
    })
}

/// The longest message.
#[unsafe(no_mangle)]
pub extern "C" fn tw_transmitter_longest(transmitter: Handle) -> c_int {
    guard(|| handle::with(transmitter, |it: &mut OpenTransmitter| count(it.port.longest())))
}

/// The interface's own address.
///
/// # Safety
/// `address` is null or writable for six bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_transmitter_hardware_address(
    transmitter: Handle,
    address: *mut u8,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise is the one that this asks for.
        let to = unsafe { raw::slice_mut(address, 6, "the room for the address")? };
        handle::with(transmitter, |it: &mut OpenTransmitter| {
            let own = it.port.address();
            let own = own.ok_or_else(|| Failed::usage("UDP has no hardware address"))?;
            to.copy_from_slice(&own);
            Ok(0)
        })
    })
}

/// How it sends, in words.
///
/// # Safety
/// `text` is null or writable for `room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_transmitter_mode(
    transmitter: Handle,
    text: *mut c_char,
    room: usize,
) -> c_int {
    guard(|| {
        handle::with(transmitter, |it: &mut OpenTransmitter| -> Answer {
            // SAFETY: the caller's promise is the one that this asks for.
            unsafe { raw::give_text(&it.port.mode().to_string(), text, room) }
        })
    })
}

/// The descriptor to wait for in `poll()`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_transmitter_fd(transmitter: Handle) -> c_int {
    guard(|| handle::with(transmitter, |it: &mut OpenTransmitter| Ok(it.port.as_fd().as_raw_fd())))
}

/// Ends a transmitter.
#[unsafe(no_mangle)]
pub extern "C" fn tw_transmitter_close(transmitter: Handle) -> c_int {
    guard(|| handle::close::<OpenTransmitter>(transmitter, || ()))
}
