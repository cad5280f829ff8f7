// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The talker: many streams from one thread, each message filled by the program when it is due.
//!
//! While it runs its handle is in use; stopping it and reading its counters go beside the handle's
//! lock (`beside`).

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

use timewire_base::drops::{Heard, Socket};
use timewire_base::{Instant, Span};
use timewire_datapath::heard::Hear;
use timewire_datapath::talker::{Draft, Filled, LiveCounters, StreamEvent, Talker, TalkerError};
use timewire_datapath::transmit::{TransmitOptions, Transport};

use crate::beside;
use crate::error::{Answer, Failed, guard};
use crate::handle::{self, Handle, Kind};
use crate::raw;
use crate::stream::{StreamConfig, StreamCounters};
use crate::transmit::{TransmitterConfig, give_causes, interface_name, port_failed};

/// `tw_talker_config`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct TalkerConfig {
    /// `sizeof(tw_talker_config)`.
    pub size: u32,
    /// Zero.
    pub reserved: u32,
    /// The ways out.
    pub ports: *const TransmitterConfig,
    /// The streams.
    pub streams: *const StreamConfig,
    /// How many ways out.
    pub port_count: u32,
    /// How many streams.
    pub stream_count: u32,
    /// How long before a message is due it spins. **Units**: nanoseconds.
    pub spin_ns: i64,
}

// SAFETY: `repr(C)`; two u32, two pointers, two u32 and an i64 leave no padding (asserted); raw
// pointers are valid with any bytes; the size comes first.
unsafe impl raw::Sized32 for TalkerConfig {
    const FIRST: usize = 24 + 2 * size_of::<*const c_char>();
    const NAME: &'static str = "tw_talker_config";
}
const _: () = assert!(size_of::<TalkerConfig>() == <TalkerConfig as raw::Sized32>::FIRST);

/// `TW_SPIN_USUAL`. **Units**: nanoseconds.
const SPIN_USUAL: i64 = 80_000;
/// `TW_SPIN_NONE`.
const SPIN_NONE: i64 = -1;
/// **Units**: nanoseconds.
const LONGEST_SPIN: i64 = 1_000_000_000;
/// Ports of one talker.
const MAX_PORTS: usize = 64;
/// Streams of one talker, each with a number of its own.
const MAX_STREAMS: usize = 32_768;

/// `tw_fill`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Fill {
    /// As the library has it.
    pub size: u32,
    /// The number of the stream.
    pub stream: u32,
    /// The sequence number in it.
    pub seq: u32,
    /// **Units**: bytes to be filled.
    pub length: u32,
    /// When it is due. **Units**: nanoseconds of TAI.
    pub due_ns: i64,
    /// Its launch time, or 0. **Units**: nanoseconds of TAI.
    pub launch_ns: i64,
    /// What is to be filled.
    pub bytes: *mut u8,
}

/// `tw_fill_fn`.
pub type FillFn = Option<unsafe extern "C" fn(fill: *const Fill, context: *mut c_void) -> c_int>;

/// What a talker handle names.
pub(crate) struct OpenTalker {
    talker: Talker,
    live: Arc<LiveCounters>,
    /// Of each port how it sends, and what it heard of messages that did not leave.
    sockets: Vec<(Socket, Heard)>,
    /// The port of each stream, in their order, and of each number.
    port_of: Vec<usize>,
    port_by_number: Vec<usize>,
}

impl Kind for OpenTalker {
    const NAME: &'static str = "talker";
}

fn talker_failed(error: &TalkerError) -> Failed {
    match error {
        TalkerError::Port(error) => port_failed(error),
        TalkerError::Io(source) => Failed::system("the talker", source),
        other => Failed::usage(other),
    }
}

impl TalkerConfig {
    /// # Safety
    /// Its pointers are null or to as many structures as it says, whose texts end with a zero.
    unsafe fn open(&self) -> Result<OpenTalker, Failed> {
        raw::only(self.reserved, 0, "reserved")?;
        let spin = match self.spin_ns {
            SPIN_NONE => 0,
            0 => SPIN_USUAL,
            spin @ 1..=LONGEST_SPIN => spin,
            spin => {
                return Err(Failed::usage(format_args!(
                    "spin_ns {spin}: it is 0 to {LONGEST_SPIN}, or TW_SPIN_NONE"
                )));
            }
        };
        // SAFETY: the caller's promise.
        let (port_configs, stream_configs) = unsafe {
            (
                raw::structures(self.ports, self.port_count, MAX_PORTS)?,
                raw::structures(self.streams, self.stream_count, MAX_STREAMS)?,
            )
        };
        let mut ports = Vec::with_capacity(port_configs.len());
        for config in port_configs {
            // SAFETY: the caller's promise.
            ports.push(unsafe { config.read()? });
        }
        let streams = stream_configs.iter().map(|config| config.read(&ports));
        let streams = streams.collect::<Result<Vec<_>, Failed>>()?;
        let mut talker = Talker::new(&ports, &streams).map_err(|error| talker_failed(&error))?;
        talker.set_spin(Span::from_ns(spin));
        let live = talker.live();
        let socket = |(transport, options): &(Transport, TransmitOptions)| {
            (options.socket(interface_name(transport)), Heard::default())
        };
        let mut port_by_number = vec![0; MAX_STREAMS];
        for stream in &streams {
            port_by_number[usize::from(stream.number)] = stream.port;
        }
        Ok(OpenTalker {
            talker,
            live,
            sockets: ports.iter().map(socket).collect(),
            port_of: streams.iter().map(|stream| stream.port).collect(),
            port_by_number,
        })
    }
}

/// Opens a talker.
///
/// # Safety
/// `config` is null or as its size says, its pointers are to as many structures as it says, each as
/// its size says, and their texts end with a zero; `talker` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_talker_open(config: *const TalkerConfig, talker: *mut Handle) -> c_int {
    guard(|| {
        // SAFETY: the caller's promises are those that these ask for.
        let (open, to) = unsafe {
            let to = raw::target(talker, "the room for the handle")?;
            (raw::structure(config)?.open()?, to)
        };
        let live = Arc::clone(&open.live);
        let handle = handle::keep(open)?;
        beside::opened(handle, live);
        *to = handle;
        Ok(0)
    })
}

/// Sends what is due until a time, until all streams have ended, or until it is stopped.
///
/// # Safety
/// `fill` is null or a function that may be called with `context`, does not unwind, and writes to
/// no more than it is given.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_talker_run(
    talker: Handle,
    until_ns: i64,
    fill: FillFn,
    context: *mut c_void,
) -> c_int {
    guard(|| {
        let fill = fill.ok_or_else(|| Failed::usage("the callback is NULL"))?;
        let until = (until_ns != 0).then(|| Instant::from_ns(until_ns));
        handle::with(talker, |it: &mut OpenTalker| -> Answer {
            let size = u32::try_from(size_of::<Fill>()).expect("invariant: a small structure");
            let mut ask = |draft: Draft<'_>| {
                let length = draft.payload.len();
                let one = Fill {
                    size,
                    stream: draft.stream.into(),
                    seq: draft.seq,
                    length: u32::try_from(length).expect("invariant: a frame fits its port"),
                    due_ns: draft.due.as_ns(),
                    launch_ns: draft.launch.map_or(0, Instant::as_ns),
                    bytes: draft.payload.as_mut_ptr(),
                };
                // SAFETY: the caller's promise; the structure and its bytes live until the call
                // returns, and the bytes are nobody else's meanwhile.
                match unsafe { fill(&raw const one, context) } {
                    0 => Filled::Send,
                    _ => Filled::LeaveOut,
                }
            };
            let stop = || beside::is_stopped(talker);
            let (ports, sockets) = (&it.port_by_number, &mut it.sockets);
            let mut on = |event: StreamEvent| {
                sockets[ports[usize::from(event.stream)]].1.event(&event.what);
            };
            let ran = it.talker.run_filled(&stop, until, &mut ask, &mut on);
            ran.map_err(|error| talker_failed(&error))?;
            Ok(c_int::from(beside::take_stop(talker)))
        })
    })
}

/// Ends the run of a talker, or the next one. Touches nothing but one atomic: it may be called by a
/// signal handler, so that it leaves no text behind either.
#[unsafe(no_mangle)]
pub extern "C" fn tw_talker_stop(talker: Handle) -> c_int {
    if beside::stop(talker) { 0 } else { Failed::USAGE_WITHOUT_WORDS }
}

/// The counters of a stream; also while the talker runs.
///
/// # Safety
/// `counters` is null or as its size says, and writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_talker_counters(
    talker: Handle,
    stream: u32,
    counters: *mut StreamCounters,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise is the one that this asks for.
        let room = unsafe { raw::room_for(counters)? };
        let live = beside::counters(talker);
        let live = live.ok_or_else(|| handle::not_one::<OpenTalker>(talker))?;
        let found = u16::try_from(stream).ok().and_then(|stream| live.of(stream));
        let (of, latest) = found.ok_or_else(|| {
            Failed::usage(format_args!("the talker has no stream with the number {stream}"))
        })?;
        // SAFETY: as before.
        unsafe { raw::give(&StreamCounters::new(&of, latest), counters, room) };
        Ok(0)
    })
}

/// Why messages did not leave.
///
/// # Safety
/// `text` is null or writable for `room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_talker_drop_causes(
    talker: Handle,
    is_json: c_int,
    text: *mut c_char,
    room: usize,
) -> c_int {
    guard(|| {
        handle::with(talker, |it: &mut OpenTalker| -> Answer {
            let mut sockets = it.sockets.clone();
            let mut not_taken = vec![0; sockets.len()];
            for (port, told) in it.port_of.iter().zip(&it.talker.report().streams) {
                not_taken[*port] += told.counters.not_taken;
            }
            for ((_, heard), not_taken) in sockets.iter_mut().zip(not_taken) {
                heard.complete(not_taken);
            }
            // SAFETY: the caller's promise is the one that this asks for.
            unsafe { give_causes(&sockets, is_json, text, room) }
        })
    })
}

/// How one of its ports sends, in words.
///
/// # Safety
/// `text` is null or writable for `room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_talker_mode(
    talker: Handle,
    port: u32,
    text: *mut c_char,
    room: usize,
) -> c_int {
    guard(|| {
        handle::with(talker, |it: &mut OpenTalker| -> Answer {
            let index = usize::try_from(port).expect("invariant: u32 fits usize");
            let one = it
                .talker
                .ports()
                .get(index)
                .ok_or_else(|| Failed::usage(format_args!("the talker has no port {port}")))?;
            // SAFETY: the caller's promise is the one that this asks for.
            unsafe { raw::give_text(&one.mode().to_string(), text, room) }
        })
    })
}

/// Ends a talker.
#[unsafe(no_mangle)]
pub extern "C" fn tw_talker_close(talker: Handle) -> c_int {
    guard(|| {
        // Its counters go with it: one that has its place next must find nobody at them.
        handle::close::<OpenTalker>(talker, || beside::closed(talker))
    })
}
