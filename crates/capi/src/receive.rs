// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Receiving messages with every timestamp that there is.

use std::ffi::{c_char, c_int, c_void};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};

use timewire_base::wire::MacAddress;
use timewire_base::{Failure, Instant, Span, Tai};
use timewire_datapath::listen::{
    self, BusyPoll, FrameFilter, ListenError, ReceiveOptions, ReceiveTimestamps, Receiver, Source,
    UdpPlace, Wait, XdpMode,
};

use crate::address::{self, Address};
use crate::error::{Answer, Code, Failed, count, errno_of, guard};
use crate::handle::{self, Handle, Kind};
use crate::raw;
use crate::transmit::{interface_of, none_of, required, unknown_xdp_mode};

/// `tw_filter`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Filter {
    /// `TW_FILTER_...` as bits: which of the others are looked at.
    pub parts: u32,
    /// Behind the tags.
    pub ethertype: u16,
    /// Of the outer tag.
    pub vid: u16,
    /// The UDP port that it goes to.
    pub udp_port: u16,
    /// Of the outer tag.
    pub pcp: u8,
    /// Zero.
    pub reserved: u8,
    /// The address that it goes to.
    pub destination: [u8; 6],
    /// The address that it comes from.
    pub source: [u8; 6],
}
const _: () = assert!(size_of::<Filter>() == 24);

/// `tw_receiver_config`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ReceiverConfig {
    /// `sizeof(tw_receiver_config)`.
    pub size: u32,
    /// `TW_TRANSPORT_...`.
    pub transport: u32,
    /// The interface.
    pub interface: *const c_char,
    /// The address that a UDP socket is bound to.
    pub bind: *const c_char,
    /// A multicast group.
    pub group: *const c_char,
    /// The one queue of AF_XDP, with `TW_RECEIVE_ONE_QUEUE`.
    pub queue: u32,
    /// `TW_XDP_...`.
    pub xdp_mode: u32,
    /// `TW_RECEIVE_...`.
    pub flags: u32,
    /// `TW_TIMESTAMP_...` as bits.
    pub timestamps: u32,
    /// `TW_WAIT_...`.
    pub wait: u32,
    /// **Units**: microseconds of busy polling.
    pub busy_poll_us: u32,
    /// Packets of one look.
    pub busy_poll_budget: u32,
    /// **Units**: bytes that may wait.
    pub buffer_bytes: u32,
    /// **Units**: bytes of the longest message.
    pub longest: u32,
    /// Zero.
    pub reserved: u32,
    /// Which frames.
    pub filter: Filter,
}

// SAFETY: `repr(C)`; two u32, three pointers, ten u32 and a filter of 24 bytes without padding of
// its own leave none (asserted); raw pointers are valid with any bytes; the size comes first.
unsafe impl raw::Sized32 for ReceiverConfig {
    const FIRST: usize = 8 + 3 * size_of::<*const c_char>() + 40 + 24;
    const NAME: &'static str = "tw_receiver_config";
}
const _: () = assert!(size_of::<ReceiverConfig>() == <ReceiverConfig as raw::Sized32>::FIRST);

/// `tw_arrival`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Arrival {
    /// As the library has it.
    pub size: u32,
    /// `TW_HAS_...` as bits: which of the others are known.
    pub has: u32,
    /// The message or frame.
    pub bytes: *const u8,
    /// **Units**: bytes that can be read there.
    pub captured: u32,
    /// **Units**: bytes that the message had.
    pub length: u32,
    /// The NIC's clock. **Units**: nanoseconds.
    pub hardware_ns: i64,
    /// TAI. **Units**: nanoseconds.
    pub driver_ns: i64,
    /// TAI. **Units**: nanoseconds.
    pub kernel_ns: i64,
    /// TAI. **Units**: nanoseconds.
    pub user_ns: i64,
    /// Who sent a UDP message.
    pub from: Address,
    /// The outer tag that the kernel had taken off.
    pub tag: [u8; 4],
    /// Zero.
    pub reserved: u32,
}

const PREFER_BUSY_POLL: u32 = 1;
const ONE_QUEUE: u32 = 2;

const HAS_HARDWARE: u32 = 1;
const HAS_DRIVER: u32 = 2;
const HAS_KERNEL: u32 = 4;
const HAS_FROM: u32 = 8;
const HAS_TAG: u32 = 16;

/// `tw_arrival_fn`.
pub type ArrivalFn = Option<unsafe extern "C" fn(arrival: *const Arrival, context: *mut c_void)>;

/// `TW_RECEIVE_MOST`: no look brings more.
const MAX_MESSAGES: usize = 64;

/// What a receiver handle names.
pub(crate) struct OpenReceiver(Receiver);

impl Kind for OpenReceiver {
    const NAME: &'static str = "receiver";
}

impl Filter {
    fn read(&self) -> Result<FrameFilter, Failed> {
        raw::only(self.parts, 63, "filter.parts")?;
        raw::only(self.reserved.into(), 0, "filter.reserved")?;
        let has = |bit: u32| self.parts & bit > 0;
        Ok(FrameFilter {
            ethertype: has(1).then_some(self.ethertype),
            destination: has(2).then_some(MacAddress(self.destination)),
            source: has(4).then_some(MacAddress(self.source)),
            vid: has(8).then_some(self.vid),
            pcp: has(16).then_some(self.pcp),
            udp_port: has(32).then_some(self.udp_port),
        })
    }
}

impl ReceiverConfig {
    /// # Safety
    /// Its texts are null or end with a zero.
    unsafe fn read(&self) -> Result<(Source, ReceiveOptions), Failed> {
        // SAFETY: the caller's promise.
        let (interface, bind, group) = unsafe {
            (
                raw::maybe_text(self.interface, "interface")?,
                raw::maybe_text(self.bind, "bind")?,
                raw::maybe_text(self.group, "group")?,
            )
        };
        raw::only(self.reserved, 0, "reserved")?;
        raw::only(self.flags, 3, "flags")?;
        raw::only(self.timestamps, 3, "timestamps")?;
        let interface = interface_of(interface)?;
        let source = match self.transport {
            1 => {
                let bind = address::parse(required(bind, "bind")?, "bind")?;
                let group: Option<IpAddr> = group.map(str::parse).transpose().map_err(|_| {
                    Failed::usage("group is no address: write 239.1.2.3 or ff02::1234")
                })?;
                Source::Udp(UdpPlace { bind, device: interface, group })
            }
            2 => Source::Frames { interface: required(interface, "interface")? },
            3 => Source::Ring { interface: required(interface, "interface")? },
            4 => {
                let interface = required(interface, "interface")?;
                let queue = (self.flags & ONE_QUEUE > 0).then_some(self.queue);
                if queue.is_none() && self.queue > 0 {
                    return Err(Failed::usage(
                        "queue needs TW_RECEIVE_ONE_QUEUE: without it all queues are heard",
                    ));
                }
                Source::Xdp { interface, queue, mode: self.xdp_mode()? }
            }
            other => {
                return Err(Failed::usage(format_args!(
                    "transport {other}: it is one of TW_TRANSPORT_..."
                )));
            }
        };
        if !matches!(source, Source::Udp(_)) {
            none_of(&[(bind.is_some(), "bind"), (group.is_some(), "group")], "whole frames")?;
        }
        if !matches!(source, Source::Xdp { .. }) {
            let given = [
                (self.queue > 0, "queue"),
                (self.flags & ONE_QUEUE > 0, "TW_RECEIVE_ONE_QUEUE"),
                (self.xdp_mode > 0, "xdp_mode"),
            ];
            none_of(&given, "any source but AF_XDP")?;
        }
        Ok((source, self.options()?))
    }

    fn xdp_mode(&self) -> Result<XdpMode, Failed> {
        Ok(match self.xdp_mode {
            0 => XdpMode::Auto,
            1 => XdpMode::Generic,
            2 => XdpMode::Native,
            3 => XdpMode::ZeroCopy,
            other => return Err(unknown_xdp_mode(other)),
        })
    }

    fn options(&self) -> Result<ReceiveOptions, Failed> {
        let budget = u16::try_from(self.busy_poll_budget)
            .map_err(|_| Failed::usage("busy_poll_budget is at most 65535"))?;
        let budget = (budget > 0).then_some(budget);
        let prefer = self.flags & PREFER_BUSY_POLL > 0;
        let polls = self.busy_poll_us > 0 || budget.is_some() || prefer;
        let wait = match self.wait {
            0 | 1 if polls => {
                return Err(Failed::usage("busy polling is for TW_WAIT_BUSY_POLL"));
            }
            0 => Wait::Block,
            1 => Wait::Poll,
            2 if self.busy_poll_us == 0 => {
                return Err(Failed::usage("TW_WAIT_BUSY_POLL needs busy_poll_us"));
            }
            2 => Wait::BusyPoll(BusyPoll { microseconds: self.busy_poll_us, budget, prefer }),
            other => {
                return Err(Failed::usage(format_args!("wait {other}: it is one of TW_WAIT_...")));
            }
        };
        let or = |given, default| if given == 0 { default } else { given };
        let default = ReceiveOptions::default();
        Ok(ReceiveOptions {
            timestamps: ReceiveTimestamps {
                software: self.timestamps & 1 > 0,
                hardware: self.timestamps & 2 > 0,
            },
            wait,
            filter: self.filter.read()?,
            buffer_bytes: or(self.buffer_bytes, default.buffer_bytes),
            longest: or(self.longest, default.longest),
        })
    }
}

fn listen_failed(error: &ListenError) -> Failed {
    let (code, errno) = match error {
        ListenError::Contradiction(_) => (Code::Usage, 0),
        error if error.is_unsupported() => (Code::Unsupported, 0),
        ListenError::NoInterface { source, .. } | ListenError::Open { source, .. } => {
            // A filter that no frame can fit is found before the kernel is asked.
            let is_own = source.raw_os_error().is_none();
            let is_usage = is_own && source.kind() == io::ErrorKind::InvalidInput;
            (if is_usage { Code::Usage } else { Code::System }, errno_of(source))
        }
        _ => (Code::System, 0),
    };
    match error.hint() {
        Some(hint) => Failed::with(code, errno, format_args!("{error}; {hint}")),
        None => Failed::with(code, errno, format_args!("{error}")),
    }
}

/// As C knows it; `bytes` stay where they are.
fn arrival_of(arrival: &listen::Arrival<'_>) -> Arrival {
    let mut has = 0;
    let mut known = |is: bool, bit: u32| has |= if is { bit } else { 0 };
    known(arrival.hardware_ns.is_some(), HAS_HARDWARE);
    known(arrival.driver.is_some(), HAS_DRIVER);
    known(arrival.kernel.is_some(), HAS_KERNEL);
    known(arrival.from.is_some(), HAS_FROM);
    known(arrival.tag.is_some(), HAS_TAG);
    let ns = |at: Option<Instant<Tai>>| at.map_or(0, |at| at.as_ns());
    Arrival {
        size: u32::try_from(size_of::<Arrival>()).expect("invariant: a small structure"),
        has,
        bytes: arrival.bytes.as_ptr(),
        captured: u32::try_from(arrival.bytes.len()).unwrap_or(u32::MAX),
        length: arrival.length,
        hardware_ns: arrival.hardware_ns.unwrap_or(0),
        driver_ns: ns(arrival.driver),
        kernel_ns: ns(arrival.kernel),
        user_ns: arrival.user.as_ns(),
        from: arrival.from.map_or(Address::default(), Address::from),
        tag: arrival.tag.unwrap_or_default(),
        reserved: 0,
    }
}

/// Negative is for ever.
fn timeout(wait_ns: i64) -> Option<Span> {
    (wait_ns >= 0).then(|| Span::from_ns(wait_ns))
}

/// Opens a receiver.
///
/// # Safety
/// `config` is null or as its size says, its texts end with a zero; `receiver` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_receiver_open(
    config: *const ReceiverConfig,
    receiver: *mut Handle,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promises are those that these ask for.
        let ((source, options), to) = unsafe {
            let config = raw::structure(config)?;
            (config.read()?, raw::target(receiver, "the room for the handle")?)
        };
        let receiver = Receiver::open(&source, &options).map_err(|error| listen_failed(&error))?;
        *to = handle::keep(OpenReceiver(receiver))?;
        Ok(0)
    })
}

/// Calls a function with each message that is there.
///
/// # Safety
/// `each` is null or a function that may be called with `context` and does not unwind.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_receiver_receive(
    receiver: Handle,
    wait_ns: i64,
    each: ArrivalFn,
    context: *mut c_void,
) -> c_int {
    guard(|| {
        let each = each.ok_or_else(|| Failed::usage("the callback is NULL"))?;
        handle::with(receiver, |it: &mut OpenReceiver| {
            let got = it.0.receive(timeout(wait_ns), &mut |arrival| {
                let arrival = arrival_of(&arrival);
                // SAFETY: the caller's promise; the arrival and its bytes live until the call
                // returns.
                unsafe { each(&raw const arrival, context) };
            });
            count(got.map_err(|error| Failed::system("receiving", &error))?)
        })
    })
}

/// Copies the messages that are there.
///
/// # Safety
/// `arrivals` is null or writable for `count` of them, `bytes` for `count` times `room`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_receiver_take(
    receiver: Handle,
    wait_ns: i64,
    arrivals: *mut Arrival,
    arrival_size: usize,
    many: usize,
    bytes: *mut u8,
    room: usize,
) -> c_int {
    guard(|| {
        if arrival_size != size_of::<Arrival>() {
            return Err(Failed::usage(format_args!(
                "an arrival of {arrival_size} bytes: this library's has {}",
                size_of::<Arrival>()
            )));
        }
        if many < MAX_MESSAGES {
            return Err(Failed::usage(format_args!(
                "room for {many} arrivals: there must be room for TW_RECEIVE_MOST, {MAX_MESSAGES}"
            )));
        }
        let all = many.checked_mul(room);
        let all = all.ok_or_else(|| Failed::usage(format_args!("{many} times {room} bytes")))?;
        // SAFETY: the caller's promise is the one that this asks for.
        let bytes = unsafe { raw::slice_mut(bytes, all, "the room for the bytes")? };
        if arrivals.is_null() {
            return Err(Failed::usage("the room for the arrivals is NULL"));
        }
        handle::with(receiver, |it: &mut OpenReceiver| {
            let mut at = 0;
            let got = it.0.receive(timeout(wait_ns), &mut |arrival| {
                assert!(at < many, "invariant: a look brings at most {MAX_MESSAGES} messages");
                let fits = arrival.bytes.len().min(room);
                let place = &mut bytes[at * room..at * room + fits];
                place.copy_from_slice(&arrival.bytes[..fits]);
                let arrival = listen::Arrival { bytes: place, ..arrival };
                // SAFETY: not null, writable for `many`, and `at` is below.
                unsafe { arrivals.add(at).write_unaligned(arrival_of(&arrival)) };
                at += 1;
            });
            count(got.map_err(|error| Failed::system("receiving", &error))?)
        })
    })
}

/// Messages that were lost because the receiver was too slow.
///
/// # Safety
/// `drops` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_receiver_drops(receiver: Handle, drops: *mut u64) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise is the one that this asks for.
        let to = unsafe { raw::target(drops, "the room for the number")? };
        handle::with(receiver, |it: &mut OpenReceiver| {
            *to =
                it.0.drops().map_err(|error| Failed::system("the receiver's counters", &error))?;
            Ok(0)
        })
    })
}

/// Frames that AF_XDP would have taken, on queues that are not heard.
///
/// # Safety
/// `frames` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_receiver_other_queues(receiver: Handle, frames: *mut u64) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise is the one that this asks for.
        let to = unsafe { raw::target(frames, "the room for the number")? };
        handle::with(receiver, |it: &mut OpenReceiver| {
            let counters = it.0.counters().transpose().map_err(|error| listen_failed(&error))?;
            *to = counters.map_or(0, |counters| counters.without_socket);
            Ok(0)
        })
    })
}

/// The address that a UDP socket is bound to.
///
/// # Safety
/// `address` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_receiver_address(receiver: Handle, address: *mut Address) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise is the one that this asks for.
        let to = unsafe { raw::target(address, "the room for the address")? };
        handle::with(receiver, |it: &mut OpenReceiver| {
            let own = it.0.local_address();
            let own = own.map_err(|error| Failed::system("the socket's address", &error))?;
            *to = own.ok_or_else(|| Failed::usage("only UDP has an address"))?.into();
            Ok(0)
        })
    })
}

/// How it receives, in words.
///
/// # Safety
/// `text` is null or writable for `room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_receiver_mode(
    receiver: Handle,
    text: *mut c_char,
    room: usize,
) -> c_int {
    guard(|| {
        handle::with(receiver, |it: &mut OpenReceiver| -> Answer {
            let mut mode = it.0.mode().to_owned();
            for refused in it.0.refused() {
                mode += "; ";
                mode += refused;
            }
            // SAFETY: the caller's promise is the one that this asks for.
            unsafe { raw::give_text(&mode, text, room) }
        })
    })
}

/// The descriptor to wait for in `poll()`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_receiver_fd(receiver: Handle) -> c_int {
    guard(|| handle::with(receiver, |it: &mut OpenReceiver| Ok(it.0.as_fd().as_raw_fd())))
}

/// Ends a receiver.
#[unsafe(no_mangle)]
pub extern "C" fn tw_receiver_close(receiver: Handle) -> c_int {
    guard(|| handle::close::<OpenReceiver>(receiver, || ()))
}
