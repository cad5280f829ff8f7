// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a program can do wrong is an error that says what was wrong, and never a crash.

use std::ffi::{CStr, c_int, c_void};
use std::mem::zeroed;
use std::ptr::{dangling_mut, null, null_mut, without_provenance_mut};

use crate::alone::alone;
use timewire::*;

const USAGE: c_int = -1;
const SYSTEM: c_int = -2;
const UNSUPPORTED: c_int = -3;
const FULL: c_int = -4;

type Handle = *mut c_void;

fn last() -> String {
    // SAFETY: the text of this thread, which ends with a zero and is copied at once.
    unsafe { CStr::from_ptr(tw_last_error()) }.to_str().unwrap().to_owned()
}

#[track_caller]
fn fails(result: c_int, code: c_int, words: &str) {
    let last = last();
    assert_eq!(result, code, "{last}");
    assert!(last.contains(words), "`{words}` is not in: {last}");
}

fn size<T>() -> u32 {
    u32::try_from(size_of::<T>()).unwrap()
}

fn transmitter_config() -> TransmitterConfig {
    // SAFETY: plain integers and pointers, for which zero is valid.
    let empty: TransmitterConfig = unsafe { zeroed() };
    let (size, to) = (size::<TransmitterConfig>(), c"127.0.0.1:9".as_ptr());
    TransmitterConfig { size, transport: 1, to, ..empty }
}

fn receiver_config() -> ReceiverConfig {
    // SAFETY: plain integers and pointers, for which zero is valid.
    let empty: ReceiverConfig = unsafe { zeroed() };
    let (size, bind) = (size::<ReceiverConfig>(), c"127.0.0.1:0".as_ptr());
    ReceiverConfig { size, transport: 1, bind, ..empty }
}

fn open_transmitter(config: &TransmitterConfig) -> Result<Handle, c_int> {
    let mut handle = null_mut();
    // SAFETY: a whole configuration with texts that end with a zero, and a place for the handle.
    match unsafe { tw_transmitter_open(config, &raw mut handle) } {
        0 => Ok(handle),
        error => Err(error),
    }
}

fn open_receiver(config: &ReceiverConfig) -> Result<Handle, c_int> {
    let mut handle = null_mut();
    // SAFETY: a whole configuration with texts that end with a zero, and a place for the handle.
    match unsafe { tw_receiver_open(config, &raw mut handle) } {
        0 => Ok(handle),
        error => Err(error),
    }
}

fn open_talker() -> Handle {
    let (ports, mut talker) = ([transmitter_config()], null_mut());
    let streams = [StreamConfig {
        size: size::<StreamConfig>(),
        stream: 7,
        cycle_ns: 1_000_000,
        payload: 4,
        ..StreamConfig::default()
    }];
    let config = TalkerConfig {
        size: size::<TalkerConfig>(),
        reserved: 0,
        ports: ports.as_ptr(),
        streams: streams.as_ptr(),
        port_count: 1,
        stream_count: 1,
        spin_ns: 0,
    };
    // SAFETY: a whole configuration, and a place for the handle.
    let result = unsafe { tw_talker_open(&raw const config, &raw mut talker) };
    assert_eq!(result, 0, "{}", last());
    talker
}

fn stream_counters() -> StreamCounters {
    StreamCounters { size: size::<StreamCounters>(), ..StreamCounters::default() }
}

fn open_slots() -> Handle {
    let (window, mut slots) = (Window { offset_ns: 0, length_ns: 1_000 }, null_mut());
    // SAFETY: one window and a place for the handle.
    let result = unsafe { tw_slots_make(0, 1_000_000, &raw const window, 1, 0, &raw mut slots) };
    assert_eq!(result, 0, "{}", last());
    slots
}

/// Every function that takes a handle, with everything else as it should be.
fn all_with_a_handle(handle: Handle) -> Vec<(&'static str, c_int)> {
    let (mut number, mut time, mut bytes, mut id) = (0_u64, 0_i64, [0_u8; 64], 0_u32);
    let (mut buffer, mut address) = (null_mut(), Address::default());
    let (text, context) = (bytes.as_mut_ptr().cast(), null_mut());
    // SAFETY: no configuration is more than zeros and pointers.
    let mut arrivals: Vec<Arrival> = vec![unsafe { zeroed() }; 64];
    let mut counters = stream_counters();
    let (many, each) = (arrivals.len(), size_of::<Arrival>());
    let mut room = vec![0_u8; 64 * 64];
    // SAFETY: all pointers are to locals that are large enough; the handle is what is tested.
    unsafe {
        vec![
            ("slots_next", tw_slots_next(handle, 0, &raw mut time)),
            ("slots_wait", tw_slots_wait(handle, &raw mut time)),
            ("buffer", tw_transmitter_buffer(handle, 1, &raw mut buffer)),
            ("send", tw_transmitter_send(handle, 1, null(), 0, &raw mut id)),
            ("copy", tw_transmitter_send_copy(handle, [0].as_ptr(), 1, null(), 0, &raw mut id)),
            ("flush", tw_transmitter_flush(handle)),
            ("reports", tw_transmitter_reports(handle, Some(ignore_report), context)),
            ("lost", tw_transmitter_lost_reports(handle, &raw mut number)),
            ("longest", tw_transmitter_longest(handle)),
            ("own", tw_transmitter_hardware_address(handle, [0; 6].as_mut_ptr())),
            ("transmitter_drop_causes", tw_transmitter_drop_causes(handle, 0, text, 64)),
            ("transmitter_mode", tw_transmitter_mode(handle, text, 64)),
            ("transmitter_fd", tw_transmitter_fd(handle)),
            // Until a time that is over.
            ("run", tw_talker_run(handle, 1, Some(leave_out), context)),
            ("stop", tw_talker_stop(handle)),
            ("counters", tw_talker_counters(handle, 7, &raw mut counters)),
            ("talker_drop_causes", tw_talker_drop_causes(handle, 0, text, 64)),
            ("talker_mode", tw_talker_mode(handle, 0, text, 64)),
            ("receive", tw_receiver_receive(handle, 0, Some(ignore_arrival), context)),
            (
                "take",
                tw_receiver_take(
                    handle,
                    0,
                    arrivals.as_mut_ptr(),
                    each,
                    many,
                    room.as_mut_ptr(),
                    64,
                ),
            ),
            ("drops", tw_receiver_drops(handle, &raw mut number)),
            ("other queues", tw_receiver_other_queues(handle, &raw mut number)),
            ("address", tw_receiver_address(handle, &raw mut address)),
            ("receiver_mode", tw_receiver_mode(handle, text, 64)),
            ("receiver_fd", tw_receiver_fd(handle)),
        ]
    }
}

unsafe extern "C" fn ignore_report(_: *const Report, _: *mut c_void) {}
unsafe extern "C" fn leave_out(_: *const Fill, _: *mut c_void) -> c_int {
    1
}
unsafe extern "C" fn ignore_arrival(_: *const Arrival, _: *mut c_void) {}

#[test]
fn t0_null_closed_foreign_and_made_up_handles_are_errors() {
    let transmitter = open_transmitter(&transmitter_config()).unwrap();
    assert_eq!(tw_transmitter_close(transmitter), 0);
    let slots = open_slots();
    assert_eq!(tw_slots_close(slots), 0);
    let made_up = [1, 12, 0x0fff_ffff, usize::MAX, usize::MAX - 4_095];
    let mut handles: Vec<Handle> = made_up.map(without_provenance_mut).into();
    let talker = open_talker();
    assert_eq!(tw_talker_close(talker), 0);
    handles.extend([
        null_mut(),
        transmitter,
        slots,
        talker,
        (&raw const handles).cast_mut().cast(),
    ]);
    for handle in handles {
        for (name, result) in all_with_a_handle(handle) {
            assert_eq!(result, USAGE, "{name} of {handle:?}: {}", last());
        }
        let closes = [
            tw_transmitter_close(handle),
            tw_receiver_close(handle),
            tw_slots_close(handle),
            tw_talker_close(handle),
        ];
        // Closing nothing is allowed.
        assert_eq!(closes, [if handle.is_null() { 0 } else { USAGE }; 4], "{handle:?}");
    }
}

#[test]
fn t0_a_handle_of_another_kind_is_an_error_and_stays_open() {
    let slots = open_slots();
    let receiver = open_receiver(&receiver_config()).unwrap();
    let transmitter = open_transmitter(&transmitter_config()).unwrap();
    let works = |handle| -> Vec<_> {
        let all = all_with_a_handle(handle);
        all.into_iter().filter(|(_, result)| *result >= 0).map(|(name, _)| name).collect()
    };
    assert_eq!(works(slots), ["slots_next", "slots_wait"]);
    assert_eq!(
        works(transmitter),
        [
            "buffer",
            "send",
            "copy",
            "flush",
            "reports",
            "lost",
            "longest",
            "transmitter_drop_causes",
            "transmitter_mode",
            "transmitter_fd"
        ]
    );
    assert_eq!(
        works(receiver),
        ["receive", "take", "drops", "other queues", "address", "receiver_mode", "receiver_fd"]
    );
    let talker = open_talker();
    assert_eq!(works(talker), ["run", "stop", "counters", "talker_drop_causes", "talker_mode"]);
    fails(tw_talker_close(slots), USAGE, "talker is closed");
    assert_eq!(tw_talker_close(talker), 0);
    fails(tw_slots_close(receiver), USAGE, "slots is closed");
    fails(tw_receiver_close(transmitter), USAGE, "receiver is closed");
    assert_eq!(tw_slots_close(slots), 0);
    assert_eq!(tw_receiver_close(receiver), 0);
    assert_eq!(tw_transmitter_close(transmitter), 0);
}

#[test]
fn t0_null_pointers_are_errors() {
    let (mut handle, mut address) = (null_mut(), Address::default());
    let transmitter = open_transmitter(&transmitter_config()).unwrap();
    let receiver = open_receiver(&receiver_config()).unwrap();
    let (slots, talker) = (open_slots(), open_talker());
    let config = transmitter_config();
    let receiving = receiver_config();
    let probe = Probe { size: size::<Probe>(), ..Probe::default() };
    let (out, room) = (&raw mut handle, 64);
    // SAFETY: what is not null is a local that is large enough.
    let results = unsafe {
        [
            tw_slots_open(null(), c"alpha".as_ptr(), 0, out),
            tw_slots_open(c"none".as_ptr(), null(), 0, null_mut()),
            tw_slots_parse(null(), null(), 0, out),
            tw_slots_make(0, 1, null(), 3, 0, out),
            tw_slots_make(0, 1, null(), 0, 0, null_mut()),
            tw_slots_next(slots, 0, null_mut()),
            tw_address_parse(null(), &raw mut address),
            tw_address_parse(c"127.0.0.1:1".as_ptr(), null_mut()),
            tw_address_format(null(), null_mut(), 0),
            tw_probe_write(null_mut(), room, &raw const probe),
            tw_probe_write([0; 64].as_mut_ptr(), room, null()),
            tw_probe_parse(null(), room, (&raw const probe).cast_mut()),
            tw_probe_parse([0; 64].as_ptr(), room, null_mut()),
            tw_transmitter_open(null(), out),
            tw_transmitter_open(&raw const config, null_mut()),
            tw_transmitter_buffer(transmitter, 1, null_mut()),
            tw_transmitter_send_copy(transmitter, null(), 1, null(), 0, null_mut()),
            tw_transmitter_reports(transmitter, None, null_mut()),
            tw_transmitter_lost_reports(transmitter, null_mut()),
            tw_transmitter_hardware_address(transmitter, null_mut()),
            tw_transmitter_drop_causes(transmitter, 0, null_mut(), room),
            tw_transmitter_drop_causes(transmitter, 2, null_mut(), 0),
            tw_transmitter_mode(transmitter, null_mut(), room),
            tw_talker_open(null(), out),
            tw_talker_run(talker, 1, None, null_mut()),
            tw_talker_counters(talker, 7, null_mut()),
            tw_talker_drop_causes(talker, 0, null_mut(), room),
            tw_talker_mode(talker, 0, null_mut(), room),
            tw_receiver_open(null(), out),
            tw_receiver_open(&raw const receiving, null_mut()),
            tw_receiver_receive(receiver, 0, None, null_mut()),
            tw_receiver_take(
                receiver,
                0,
                null_mut(),
                size_of::<Arrival>(),
                64,
                [0; 64].as_mut_ptr(),
                1,
            ),
            tw_receiver_take(receiver, 0, dangling_mut(), size_of::<Arrival>(), 64, null_mut(), 9),
            tw_receiver_drops(receiver, null_mut()),
            tw_receiver_other_queues(receiver, null_mut()),
            tw_receiver_address(receiver, null_mut()),
            tw_receiver_mode(receiver, null_mut(), room),
        ]
    };
    assert_eq!(results, [USAGE; 37]);
    assert_eq!(tw_talker_close(talker), 0);
    assert!(handle.is_null());
    for result in
        [tw_transmitter_close(transmitter), tw_receiver_close(receiver), tw_slots_close(slots)]
    {
        assert_eq!(result, 0);
    }
}

#[test]
fn t0_a_wrong_size_field_and_what_a_later_header_asks_for_are_errors() {
    for wrong in [0, 1, size::<TransmitterConfig>() - 1, 5_000, u32::MAX] {
        let config = TransmitterConfig { size: wrong, ..transmitter_config() };
        fails(open_transmitter(&config).unwrap_err(), USAGE, "sizeof(tw_transmitter_config)");
        let config = ReceiverConfig { size: wrong, ..receiver_config() };
        fails(open_receiver(&config).unwrap_err(), USAGE, "sizeof(tw_receiver_config)");
    }
    #[repr(C)]
    struct Later {
        known: TransmitterConfig,
        unknown: u64,
    }
    let mut later = Later { known: transmitter_config(), unknown: 0 };
    later.known.size = size::<Later>();
    let mut handle = null_mut();
    // SAFETY: readable for as many bytes as its size says.
    let open = |later: &Later, handle: &mut Handle| unsafe {
        tw_transmitter_open((&raw const *later).cast(), handle)
    };
    assert_eq!(open(&later, &mut handle), 0, "{}", last());
    assert_eq!(tw_transmitter_close(handle), 0);
    later.unknown = 1 << 40;
    fails(open(&later, &mut handle), UNSUPPORTED, "too old");

    let mut message = [0; 64];
    let probe = Probe { size: 3, ..Probe::default() };
    // SAFETY: locals of these lengths.
    let result = unsafe { tw_probe_write(message.as_mut_ptr(), 64, &raw const probe) };
    fails(result, USAGE, "sizeof(tw_probe)");
}

#[test]
fn t0_specs_that_make_no_sense_are_errors_with_words() {
    let base = transmitter_config;
    let name = c"lo".as_ptr();
    let cases = [
        (TransmitterConfig { transport: 0, ..base() }, "TW_TRANSPORT"),
        (TransmitterConfig { transport: 9, ..base() }, "TW_TRANSPORT"),
        (TransmitterConfig { transport: 2, to: null(), ..base() }, "interface is NULL"),
        (TransmitterConfig { transport: 2, interface: name, ..base() }, "to means nothing"),
        (TransmitterConfig { to: c"nobody".as_ptr(), ..base() }, "is no address"),
        (TransmitterConfig { from: c"[::1]:0".as_ptr(), ..base() }, "one family"),
        (TransmitterConfig { to: c"\xff".as_ptr(), ..base() }, "not UTF-8"),
        (TransmitterConfig { interface: c"much-too-long-a-name".as_ptr(), ..base() }, "much-too"),
        (TransmitterConfig { queue: 1, ..base() }, "queue means nothing"),
        (TransmitterConfig { flags: 1, ..base() }, "needs launch times"),
        (TransmitterConfig { flags: 64, ..base() }, "unknown bits 0x40"),
        (TransmitterConfig { flags: 2, ..base() }, "queueing discipline"),
        (TransmitterConfig { points: 8, ..base() }, "unknown bits 0x8"),
        (TransmitterConfig { priority: 16, ..base() }, "16"),
        (TransmitterConfig { traffic_class: 256, ..base() }, "at most 255"),
        (TransmitterConfig { launch: 3, ..base() }, "TW_LAUNCH"),
        (TransmitterConfig { busy_poll_us: 3, ..base() }, "busy polling means nothing"),
        (TransmitterConfig { reserved: 1, ..base() }, "reserved"),
    ];
    for (config, words) in cases {
        fails(open_transmitter(&config).unwrap_err(), USAGE, words);
    }
    let base = receiver_config;
    let vlan = Filter { parts: 8, vid: 4_095, ..Filter::default() };
    let udp = Filter { parts: 32, udp_port: 1, ..Filter::default() };
    let cases = [
        (ReceiverConfig { transport: 7, ..base() }, "TW_TRANSPORT"),
        (ReceiverConfig { bind: null(), ..base() }, "bind is NULL"),
        (ReceiverConfig { group: c"here".as_ptr(), ..base() }, "group is no address"),
        (ReceiverConfig { transport: 3, interface: name, ..base() }, "bind means nothing"),
        (ReceiverConfig { wait: 3, ..base() }, "TW_WAIT"),
        (ReceiverConfig { wait: 2, ..base() }, "needs busy_poll_us"),
        (ReceiverConfig { busy_poll_us: 9, ..base() }, "TW_WAIT_BUSY_POLL"),
        (ReceiverConfig { timestamps: 4, ..base() }, "timestamps has unknown"),
        (ReceiverConfig { xdp_mode: 1, ..base() }, "xdp_mode means nothing"),
        (ReceiverConfig { flags: 2, ..base() }, "TW_RECEIVE_ONE_QUEUE means nothing"),
        (
            ReceiverConfig { transport: 4, bind: null(), interface: name, queue: 1, ..base() },
            "queue needs TW_RECEIVE_ONE_QUEUE",
        ),
        (ReceiverConfig { filter: udp, ..base() }, "a filter is for frames"),
        (
            ReceiverConfig { transport: 2, bind: null(), interface: name, filter: vlan, ..base() },
            "0 to 4094",
        ),
        (
            ReceiverConfig { transport: 4, bind: null(), interface: name, xdp_mode: 4, ..base() },
            "TW_XDP",
        ),
    ];
    for (config, words) in cases {
        fails(open_receiver(&config).unwrap_err(), USAGE, words);
    }
    let config = TransmitterConfig {
        transport: 2,
        to: null(),
        interface: c"none-such".as_ptr(),
        ..transmitter_config()
    };
    fails(open_transmitter(&config).unwrap_err(), SYSTEM, "none-such");
    let config = ReceiverConfig {
        transport: 2,
        bind: null(),
        interface: c"none-such".as_ptr(),
        ..receiver_config()
    };
    fails(open_receiver(&config).unwrap_err(), SYSTEM, "none-such");
    // An address that is not this host's: EADDRNOTAVAIL.
    let config = ReceiverConfig { bind: c"192.0.2.1:0".as_ptr(), ..receiver_config() };
    fails(open_receiver(&config).unwrap_err(), SYSTEM, "192.0.2.1");
    assert_eq!(tw_last_errno(), 99);
}

#[test]
fn t0_messages_that_cannot_be_are_errors_and_cost_nothing() {
    let transmitter = open_transmitter(&transmitter_config()).unwrap();
    let (mut buffer, mut id) = (null_mut(), 7_u32);
    let v6 = Address { family: 6, port: 9, ..Address::default() };
    let none = Address::default();
    // SAFETY: the pointers are to locals, or null; at most the bytes of the buffer are written.
    unsafe {
        let send =
            |length, to, launch| tw_transmitter_send(transmitter, length, to, launch, null_mut());
        fails(send(1, null(), 0), USAGE, "no buffer was given");
        fails(tw_transmitter_buffer(transmitter, 1_473, &raw mut buffer), USAGE, "1472");
        assert!(buffer.is_null());
        assert_eq!(tw_transmitter_buffer(transmitter, 20, &raw mut buffer), 0);
        buffer.write_bytes(1, 20);
        fails(send(21, null(), 0), USAGE, "which has 20");
        fails(send(20, null(), 5), USAGE, "without launch times");
        fails(send(20, &raw const v6, 0), USAGE, "family");
        fails(send(20, &raw const none, 0), USAGE, "4 or 6");
        // After all these it is still there to be sent, once.
        assert_eq!(tw_transmitter_send(transmitter, 20, null(), 0, &raw mut id), 0);
        assert_eq!(id, 0);
        fails(send(20, null(), 0), USAGE, "no buffer was given");
        assert_eq!(tw_transmitter_buffer(transmitter, 20, &raw mut buffer), 0);
        assert_eq!(tw_transmitter_flush(transmitter), 0);
        fails(send(20, null(), 0), USAGE, "no buffer was given");
        let message = [0; 8];
        let huge = usize::MAX / 2 + 1;
        let copy = |length| {
            tw_transmitter_send_copy(transmitter, message.as_ptr(), length, null(), 0, null_mut())
        };
        fails(copy(huge), USAGE, "is no length");
        assert_eq!(copy(8), 0);
    }
    assert_eq!(tw_transmitter_close(transmitter), 0);

    let mut short = [0; 17];
    let probe = Probe { size: size::<Probe>(), ..Probe::default() };
    let high = Probe { stream: 32_768, ..probe };
    let bent = Probe { is_launch: 2, ..probe };
    let mut message = [0; 18];
    // SAFETY: locals of these lengths.
    unsafe {
        let write = |bytes: &mut [u8], probe: &Probe| {
            tw_probe_write(bytes.as_mut_ptr(), bytes.len(), probe)
        };
        fails(write(&mut short, &probe), USAGE, "no room");
        fails(write(&mut message, &high), USAGE, "the highest is 32767");
        fails(write(&mut message, &bent), USAGE, "is_launch");
        // The header with what was skipped is longer.
        let skipped = Probe { has_skipped: 1, skipped: 7, seq: 9, ..probe };
        fails(write(&mut message, &skipped), USAGE, "no room for the header of 22");
        fails(write(&mut message, &Probe { has_skipped: 2, ..probe }), USAGE, "has_skipped");
        let (mut longer, mut read) = ([0; 22], probe);
        assert_eq!(write(&mut longer, &skipped), 0);
        assert_eq!(tw_probe_parse(longer.as_ptr(), 22, &raw mut read), 1);
        assert_eq!(read, skipped);
        assert_eq!(tw_probe_parse(longer.as_ptr(), 21, &raw mut read), 0);
    }
    fails(tw_sleep_until(0, -1), USAGE, "negative");
}

#[test]
fn t0_room_that_is_too_small_is_an_error_or_cuts_a_text() {
    let receiver = open_receiver(&receiver_config()).unwrap();
    // SAFETY: plain integers and pointers, for which zero is valid.
    let mut arrivals: Vec<Arrival> = vec![unsafe { zeroed() }; 64];
    let (mut bytes, mut own) = (vec![0; 64 * 4], Address::default());
    let mut text = [1_u8; 64];
    // SAFETY: locals that are as large as is said.
    unsafe {
        let mut take = |each, many, room| {
            tw_receiver_take(
                receiver,
                5_000_000_000,
                arrivals.as_mut_ptr(),
                each,
                many,
                bytes.as_mut_ptr(),
                room,
            )
        };
        fails(take(size_of::<Arrival>(), 63, 4), USAGE, "TW_RECEIVE_MOST, 64");
        fails(take(8, 64, 4), USAGE, "an arrival of 8 bytes");
        fails(take(size_of::<Arrival>(), 64, usize::MAX), USAGE, "times");

        assert_eq!(tw_receiver_address(receiver, &raw mut own), 0);
        let length = tw_address_format(&raw const own, text.as_mut_ptr().cast(), 5);
        assert!(length > 10 && text[..5] == *b"127.\0" && text[5] == 1);
        assert_eq!(tw_address_format(&raw const own, null_mut(), 0), length);
        assert_eq!(tw_address_format(&raw const own, text.as_mut_ptr().cast(), 64), length);
        let to = CStr::from_bytes_until_nul(&text).unwrap().to_str().unwrap();
        assert_eq!(i32::try_from(to.len()), Ok(length));

        // A message that is longer than its room is cut, and says so.
        std::net::UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"longer", to).unwrap();
        assert_eq!(take(size_of::<Arrival>(), 64, 4), 1, "{}", last());
    }
    assert_eq!((&bytes[..4], arrivals[0].captured, arrivals[0].length), (&b"long"[..], 4, 6));
    assert_eq!(arrivals[0].bytes, bytes.as_ptr());
    assert_eq!(tw_receiver_close(receiver), 0);
}

/// What a callback found when it used the handle that it was called for.
static WITHIN: std::sync::Mutex<Vec<(c_int, c_int)>> = std::sync::Mutex::new(Vec::new());

unsafe extern "C" fn meddle(_: *const Arrival, context: *mut c_void) {
    let results = (tw_receiver_fd(context), tw_receiver_close(context));
    WITHIN.lock().unwrap().push(results);
}

#[test]
fn t0_a_callback_cannot_use_or_close_what_calls_it() {
    let receiver = open_receiver(&receiver_config()).unwrap();
    let mut own = Address::default();
    let mut text = [0_u8; 64];
    // SAFETY: locals that are as large as is said; the callback fits.
    unsafe {
        assert_eq!(tw_receiver_address(receiver, &raw mut own), 0);
        assert!(tw_address_format(&raw const own, text.as_mut_ptr().cast(), 64) > 0);
        let to = CStr::from_bytes_until_nul(&text).unwrap().to_str().unwrap();
        std::net::UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"x", to).unwrap();
        assert_eq!(tw_receiver_receive(receiver, 5_000_000_000, Some(meddle), receiver), 1);
    }
    assert_eq!(*WITHIN.lock().unwrap(), [(USAGE, USAGE)]);
    assert!(last().contains("in use"));
    // After all that it is as it was.
    assert!(tw_receiver_fd(receiver) > 2);
    assert_eq!(tw_receiver_close(receiver), 0);
}

#[test]
fn t0_slots_that_cannot_be_are_errors_with_their_place() {
    let mut slots = null_mut();
    let mut parse = |text: &CStr, station: Option<&CStr>, lead| {
        let station = station.map_or(null(), CStr::as_ptr);
        // SAFETY: texts that end with a zero.
        unsafe { tw_slots_parse(text.as_ptr(), station, lead, &raw mut slots) }
    };
    let scenario = include_str!("../../../scenarios/tdm-64.yaml");
    let scenario = std::ffi::CString::new(scenario).unwrap();
    let alpha = Some(c"alpha");
    fails(parse(&scenario, None, 0), USAGE, "say which station");
    fails(parse(&scenario, Some(c"omega"), 0), USAGE, "no station `omega`");
    fails(parse(&scenario, Some(c"Al pha"), 0), USAGE, "Al pha");
    fails(parse(&scenario, alpha, -1), USAGE, "a lead of -1 ns");
    fails(parse(&scenario, alpha, 1_040_001), USAGE, "1040us");
    fails(parse(c"timewire: 1\nname: [", alpha, 0), USAGE, "the text:2:8");
    fails(parse(c"{\"schema\":\"timewire.tdm-status/1\"}", None, 0), USAGE, "no schedule");
    let status = c"{\"schema\":\"timewire.tdm-status/1\",\"other\":[1],\"windows\":\
                   {\"base_time_ns\":7,\"cycle_ns\":100,\"windows\":\
                   [{\"offset_ns\":10,\"length_ns\":5}]}}";
    fails(parse(status, alpha, 0), USAGE, "no schedule");
    assert_eq!(parse(status, None, 0), 0, "{}", last());
    let mut at = 0;
    // SAFETY: a place for the time.
    let next = unsafe { tw_slots_next(slots, 1_000, &raw mut at) };
    assert_eq!((next, at), (0, 1_017));
    assert_eq!(tw_slots_close(slots), 0);
    // SAFETY: texts that end with a zero.
    let missing = unsafe { tw_slots_open(c"/none/such".as_ptr(), null(), 0, &raw mut slots) };
    fails(missing, SYSTEM, "/none/such");
    assert_eq!(tw_last_errno(), 2);
    // A file is read with those that it includes.
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/tdm-256.yaml");
    let file = std::ffi::CString::new(file).unwrap();
    // SAFETY: texts that end with a zero.
    let open = unsafe { tw_slots_open(file.as_ptr(), c"beta".as_ptr(), 0, &raw mut slots) };
    assert_eq!(open, 0, "{}", last());
    // SAFETY: a place for the time.
    let next = unsafe { tw_slots_next(slots, 0, &raw mut at) };
    assert_eq!((next, at), (0, 300_000));
    assert_eq!(tw_slots_close(slots), 0);
}

// The table is the process's: while it is full the other tests could open nothing.
#[test]
fn t0_too_many_open_objects_are_refused_until_one_is_closed() {
    alone("misuse::t0_too_many_open_objects_are_refused_until_one_is_closed", fill_the_table);
}

fn fill_the_table() {
    let mut open: Vec<Handle> = (0..1_024).map(|_| open_slots()).collect();
    let window = Window { offset_ns: 0, length_ns: 1 };
    let mut one_more = null_mut();
    // SAFETY: one window and a place for the handle.
    let mut make = || unsafe { tw_slots_make(0, 1, &raw const window, 1, 0, &raw mut one_more) };
    fails(make(), FULL, "close some");
    assert_eq!(tw_slots_close(open.swap_remove(500)), 0);
    assert_eq!(make(), 0);
    fails(make(), FULL, "close some");
}

#[test]
fn t0_handles_are_shared_between_threads_and_refused_to_the_second() {
    let receiver = open_receiver(&receiver_config()).unwrap();
    let address = receiver.addr();
    let (mut refused, mut served) = (0, 0);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(move || {
            loop {
                let handle = without_provenance_mut(address);
                // SAFETY: a callback that fits; nothing arrives.
                let result = unsafe {
                    tw_receiver_receive(handle, 200_000_000, Some(ignore_arrival), null_mut())
                };
                // The other thread may have been quicker.
                if result != USAGE {
                    return result;
                }
            }
        });
        while !waiting.is_finished() {
            match tw_receiver_fd(receiver) {
                USAGE => refused += 1,
                fd => served += i32::from(fd > 0),
            }
        }
        assert_eq!(waiting.join().unwrap(), 0);
    });
    assert!(refused > 0, "{refused} refused, {served} served");
    assert_eq!(tw_receiver_close(receiver), 0);
}
