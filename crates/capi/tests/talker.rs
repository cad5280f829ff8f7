// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The talker: what its streams send, what a callback may do, and what another thread may do while
//! it runs. Over UDP on the loopback interface.

use std::ffi::{CStr, CString, c_int, c_void};
use std::mem::zeroed;
use std::net::UdpSocket;
use std::ptr::{null, null_mut, without_provenance_mut};
use std::time::Duration;

use timewire::*;

const USAGE: c_int = -1;
const UNSUPPORTED: c_int = -3;

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

fn port(to: &CStr) -> TransmitterConfig {
    // SAFETY: plain integers and pointers, for which zero is valid.
    let empty: TransmitterConfig = unsafe { zeroed() };
    let size = size::<TransmitterConfig>();
    TransmitterConfig { size, transport: 1, to: to.as_ptr(), ..empty }
}

fn frames() -> TransmitterConfig {
    TransmitterConfig { transport: 2, to: null(), interface: c"lo".as_ptr(), ..port(c"") }
}

/// All that is late is sent, too: the machine may be busy.
fn stream(stream: u32) -> StreamConfig {
    StreamConfig {
        size: size::<StreamConfig>(),
        stream,
        flags: 2,
        cycle_ns: 1_000_000,
        payload: 32,
        ..StreamConfig::default()
    }
}

fn config(ports: &[TransmitterConfig], streams: &[StreamConfig]) -> TalkerConfig {
    TalkerConfig {
        size: size::<TalkerConfig>(),
        reserved: 0,
        ports: ports.as_ptr(),
        streams: streams.as_ptr(),
        port_count: ports.len().try_into().unwrap(),
        stream_count: streams.len().try_into().unwrap(),
        spin_ns: -1,
    }
}

fn open(config: &TalkerConfig) -> Result<Handle, c_int> {
    let mut handle = null_mut();
    // SAFETY: a whole configuration with arrays as long as it says, and a place for the handle.
    match unsafe { tw_talker_open(config, &raw mut handle) } {
        0 => Ok(handle),
        error => Err(error),
    }
}

fn counters(talker: Handle, stream: u32) -> StreamCounters {
    let mut counters = StreamCounters { size: size::<StreamCounters>(), ..Default::default() };
    // SAFETY: a whole structure with its size.
    let result = unsafe { tw_talker_counters(talker, stream, &raw mut counters) };
    assert_eq!(result, 0, "{}", last());
    counters
}

/// Somewhere to send to: what comes can be read, or never is.
fn somewhere() -> (UdpSocket, CString) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let address = CString::new(socket.local_addr().unwrap().to_string()).unwrap();
    (socket, address)
}

#[test]
fn t0_talkers_and_streams_that_cannot_be_are_errors_with_words() {
    let udp = [port(c"127.0.0.1:9")];
    let base = || stream(1);
    let address = Address { family: 4, port: 9, bytes: [127; 16], ..Address::default() };
    let cases = [
        (StreamConfig { stream: 32_768, ..base() }, "at most 32767"),
        (StreamConfig { stream: 1 << 20, ..base() }, "TW_PROBE_MAX_STREAM"),
        (StreamConfig { port: 1, ..base() }, "a port that the talker has not"),
        (StreamConfig { flags: 16, ..base() }, "unknown bits 0x10"),
        (StreamConfig { start_ns: -1, ..base() }, "start_ns"),
        (StreamConfig { start_ns: i64::MAX, ..base() }, "start_ns"),
        (StreamConfig { cycle_ns: 0, ..base() }, "cycle_ns is 0"),
        (StreamConfig { cycle_ns: i64::MAX, ..base() }, "cycle_ns is"),
        (StreamConfig { offset_ns: i64::MIN, ..base() }, "offset_ns is"),
        (StreamConfig { spacing_ns: -1, ..base() }, "spacing_ns is -1"),
        (StreamConfig { frames: 3, spacing_ns: 400_000, ..base() }, "must fit into the cycle"),
        (StreamConfig { frames: u32::MAX, spacing_ns: 1_000_000, ..base() }, "must fit into"),
        (StreamConfig { deadline_ns: -1, ..base() }, "deadline_ns is -1"),
        (StreamConfig { launch_lead_ns: 5, ..base() }, "without launch times"),
        (StreamConfig { payload: 0, ..base() }, "payload is 0"),
        (StreamConfig { payload: 1_473, ..base() }, "1472 bytes"),
        (StreamConfig { payload: u32::MAX, ..base() }, "1472 bytes"),
        (StreamConfig { flags: 1, payload: 17, ..base() }, "at least 18"),
        (StreamConfig { flags: 4, ..base() }, "means nothing for UDP"),
        (StreamConfig { ethertype: 0x88b5, ..base() }, "means nothing for UDP"),
        (StreamConfig { to: address, ..base() }, "a destination already"),
        (StreamConfig { to: Address { family: 5, ..address }, ..base() }, "family"),
        (StreamConfig { reserved: [0, 0, 0, 0, 0, 1], ..base() }, "reserved"),
        (StreamConfig { size: 8, ..base() }, "sizeof(tw_stream_config)"),
    ];
    for (stream, words) in cases {
        fails(open(&config(&udp, &[stream])).unwrap_err(), USAGE, words);
    }
    let lo = [frames()];
    let base = || StreamConfig { destination: [0xff; 6], ethertype: 0x88b5, flags: 4, ..stream(1) };
    let v6 = Address { family: 6, ..address };
    let cases = [
        (StreamConfig { destination: [0; 6], ..base() }, "its destination"),
        (StreamConfig { ethertype: 0x5ff, ..base() }, "0x0600"),
        (StreamConfig { pcp: 8, ..base() }, "PCP up to 7"),
        (StreamConfig { vid: 4_095, ..base() }, "4094"),
        (StreamConfig { flags: 0, vid: 3, ..base() }, "TW_STREAM_TAG"),
        (StreamConfig { to: address, ..base() }, "TW_STREAM_UDP"),
        (StreamConfig { flags: 8, to: address, from: address, ..base() }, "ethertype means"),
        (StreamConfig { flags: 8, ethertype: 0, to: address, ..base() }, "needs `from`"),
        (StreamConfig { flags: 8, ethertype: 0, to: v6, from: address, ..base() }, "needs `to`"),
    ];
    // Without the privilege the port is refused first, in another word.
    if open(&config(&lo, &[base()])).is_ok_and(|it| tw_talker_close(it) == 0) {
        for (stream, words) in cases {
            fails(open(&config(&lo, &[stream])).unwrap_err(), USAGE, words);
        }
    } else {
        eprintln!("SKIP: no packet socket: {}", last());
    }

    let twice = [stream(1), stream(1)];
    fails(open(&config(&udp, &twice)).unwrap_err(), USAGE, "another stream has this number");
    let uneven = [stream(1), StreamConfig { size: size::<StreamConfig>() + 8, ..stream(2) }];
    fails(open(&config(&udp, &uneven)).unwrap_err(), USAGE, "of the first");
    let one = [stream(1)];
    let whole = || config(&udp, &one);
    let cases = [
        (TalkerConfig { size: 8, ..whole() }, "sizeof(tw_talker_config)"),
        (TalkerConfig { reserved: 1, ..whole() }, "reserved"),
        (TalkerConfig { ports: null(), ..whole() }, "tw_transmitter_config is NULL"),
        (TalkerConfig { port_count: 0, ..whole() }, "1 to 64"),
        (TalkerConfig { port_count: u32::MAX, ..whole() }, "1 to 64"),
        (TalkerConfig { streams: null(), ..whole() }, "tw_stream_config is NULL"),
        (TalkerConfig { stream_count: 0, ..whole() }, "1 to 32768"),
        (TalkerConfig { stream_count: 40_000, ..whole() }, "1 to 32768"),
        (TalkerConfig { spin_ns: -2, ..whole() }, "TW_SPIN_NONE"),
        (TalkerConfig { spin_ns: i64::MAX, ..whole() }, "TW_SPIN_NONE"),
    ];
    for (config, words) in cases {
        fails(open(&config).unwrap_err(), USAGE, words);
    }
}

#[test]
fn t0_arrays_of_a_later_header_are_read_by_their_size() {
    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Later {
        known: StreamConfig,
        unknown: u64,
    }
    let udp = [port(c"127.0.0.1:9")];
    let later = |number, unknown| Later {
        known: StreamConfig { size: size::<Later>(), ..stream(number) },
        unknown,
    };
    let with = |streams: &[Later]| {
        let config = TalkerConfig { streams: streams.as_ptr().cast(), ..config(&udp, &[]) };
        open(&TalkerConfig { stream_count: streams.len().try_into().unwrap(), ..config })
    };
    let talker = with(&[later(3, 0), later(5, 0)]).unwrap();
    assert_eq!(
        (counters(talker, 3), counters(talker, 5)),
        (counters(talker, 5), counters(talker, 3))
    );
    fails(with(&[later(3, 0), later(5, 9)]).unwrap_err(), UNSUPPORTED, "too old");

    // What the library gives: no more than there is room for, and zeros where it knows nothing.
    #[repr(C)]
    struct Larger {
        known: StreamCounters,
        unknown: u64,
    }
    let mut larger = Larger { known: StreamCounters::default(), unknown: 7 };
    for (wrong, stream) in [(0, 3), (size::<StreamCounters>() - 1, 3), (5_000, 3), (112, 4)] {
        larger.known.size = wrong;
        // SAFETY: as large as the library may write to for any of these sizes.
        let result = unsafe { tw_talker_counters(talker, stream, (&raw mut larger).cast()) };
        assert_eq!(result, USAGE, "{}", last());
    }
    assert!(last().contains("no stream with the number 4"));
    larger.known.size = size::<Larger>();
    // SAFETY: as large as its size says.
    let result = unsafe { tw_talker_counters(talker, 3, (&raw mut larger).cast()) };
    assert_eq!((result, larger.known.size, larger.unknown), (0, size::<Larger>(), 0));
    assert_eq!(tw_talker_close(talker), 0);
}

/// Fills with the sequence number; leaves each fourth message of stream 2 out.
unsafe extern "C" fn fill_number(fill: *const Fill, context: *mut c_void) -> c_int {
    // SAFETY: the library gives a whole structure with its bytes, and the context it was given,
    // which nobody else uses meanwhile.
    let (fill, bytes, order) = unsafe {
        let fill = &*fill;
        let length = usize::try_from(fill.length).unwrap();
        let bytes = std::slice::from_raw_parts_mut(fill.bytes, length);
        (fill, bytes, &mut *context.cast::<Vec<(u32, u32, i64)>>())
    };
    assert!(bytes.iter().all(|byte| *byte == 0) && fill.size == size::<Fill>());
    assert_eq!(fill.launch_ns, 0);
    order.push((fill.stream, fill.seq, fill.due_ns));
    bytes.fill(u8::try_from(fill.seq).unwrap());
    c_int::from(fill.stream == 2 && fill.seq % 4 == 3)
}

#[test]
fn t3_messages_are_filled_one_by_one_and_those_left_out_are_counted() {
    let (here, address) = somewhere();
    let streams = [
        StreamConfig { flags: 2 | 1, cycles: 20, offset_ns: 300_000, ..stream(1) },
        StreamConfig { cycles: 10, frames: 2, spacing_ns: 100_000, ..stream(2) },
    ];
    let talker = open(&config(&[port(&address)], &streams)).unwrap();
    let mut order: Vec<(u32, u32, i64)> = Vec::new();
    let context = (&raw mut order).cast();
    // SAFETY: a callback that fits, with its context.
    let ran = unsafe { tw_talker_run(talker, 0, Some(fill_number), context) };
    assert_eq!(ran, 0, "{}", last());
    assert_eq!(order.len(), 40);
    assert!(order.is_sorted_by_key(|(_, _, due)| *due), "{order:?}");
    // Cycles begin at multiples of their length since 1970.
    for (stream, seq, due) in &order {
        let phase = if *stream == 1 { 300_000 } else { i64::from(seq % 2) * 100_000 };
        assert_eq!(due % 1_000_000, phase, "{stream} {seq}");
    }
    let (one, two) = (counters(talker, 1), counters(talker, 2));
    assert_eq!((one.planned, one.sent, one.not_filled), (20, 20, 0), "{one:?}");
    assert_eq!((two.planned, two.sent, two.not_filled), (20, 15, 5), "{two:?}");
    assert_eq!(one.woke_late + one.overran + one.not_taken + one.refused, 0, "{one:?}");
    assert!(one.latest_ns >= 0);
    let (mut numbers, mut message) = ([Vec::new(), Vec::new()], [0; 64]);
    for _ in 0..35 {
        let length = here.recv(&mut message).unwrap();
        let message = &message[..length];
        let mut probe = Probe { size: size::<Probe>(), ..Probe::default() };
        // SAFETY: as long as is said.
        let known = unsafe { tw_probe_parse(message.as_ptr(), length, &raw mut probe) } == 1;
        let own = if known { &message[18..] } else { message };
        assert_eq!((length, own.iter().all(|byte| *byte == own[0])), (32, true));
        assert!(!known || (probe.stream, probe.seq) == (1, own[0].into()));
        numbers[usize::from(!known)].push(own[0]);
    }
    assert_eq!(numbers[0], (0..20).collect::<Vec<u8>>());
    assert_eq!(numbers[1], (0..20).filter(|seq| seq % 4 != 3).collect::<Vec<u8>>());
    // A second run goes on with the numbers.
    // SAFETY: as before.
    assert_eq!(unsafe { tw_talker_run(talker, 0, Some(fill_number), context) }, 0);
    assert_eq!((order.len(), counters(talker, 1).sent), (80, 40));
    assert_eq!(order.iter().filter(|(stream, _, _)| *stream == 1).count(), 40);
    assert_eq!(order.iter().map(|(_, seq, _)| *seq).max(), Some(39));
    assert_eq!(tw_talker_close(talker), 0);
}

unsafe extern "C" fn fill_nothing(_: *const Fill, _: *mut c_void) -> c_int {
    0
}

/// Stops a talker as it goes.
struct StopAtEnd(Handle);

impl Drop for StopAtEnd {
    fn drop(&mut self) {
        tw_talker_stop(self.0);
    }
}

/// One thread opens and closes objects, another one uses its own: neither is told that it is in
/// use, or closed.
#[test]
fn t3_handles_of_others_come_and_go_unnoticed() {
    let (_here, address) = somewhere();
    let until = std::time::Instant::now() + Duration::from_millis(300);
    std::thread::scope(|scope| {
        for number in [1, 2, 3] {
            let address = &address;
            scope.spawn(move || {
                while std::time::Instant::now() < until {
                    let talker = open(&config(&[port(address)], &[stream(number)])).unwrap();
                    for _ in 0..20 {
                        let mut text = [0_u8; 64];
                        // SAFETY: room as large as is said.
                        let mode =
                            unsafe { tw_talker_mode(talker, 0, text.as_mut_ptr().cast(), 64) };
                        assert!(mode > 0, "{}", last());
                        assert_eq!(counters(talker, number).sent, 0);
                    }
                    assert_eq!(tw_talker_close(talker), 0, "{}", last());
                }
            });
        }
    });
}

#[test]
fn t3_a_talker_is_watched_and_stopped_by_another_thread_and_by_nothing_else() {
    let (_here, address) = somewhere();
    let talker = open(&config(&[port(&address)], &[stream(9)])).unwrap();
    let name = talker.addr();
    std::thread::scope(|scope| {
        // Also when something below fails: the scope waits for the run.
        let _stops = StopAtEnd(talker);
        let running = scope.spawn(move || {
            // SAFETY: a callback that needs no context.
            unsafe {
                tw_talker_run(without_provenance_mut(name), 0, Some(fill_nothing), null_mut())
            }
        });
        while counters(talker, 9).sent < 20 {
            assert!(!running.is_finished(), "it ended by itself");
            std::thread::yield_now();
        }
        let mut text = [0_u8; 64];
        // SAFETY: a callback that needs no context, and room as large as is said.
        unsafe {
            let run = tw_talker_run(talker, 1, Some(fill_nothing), null_mut());
            fails(run, USAGE, "in use");
            fails(tw_talker_mode(talker, 0, text.as_mut_ptr().cast(), 64), USAGE, "in use");
        }
        fails(tw_talker_close(talker), USAGE, "in use");
        // Neither a handle of nothing nor one of another use of its place.
        for other in [0, name ^ (1 << 12), name | (1 << 11), usize::MAX] {
            assert_eq!(tw_talker_stop(without_provenance_mut(other)), USAGE);
        }
        assert!(!running.is_finished());
        assert_eq!(tw_talker_stop(talker), 0);
        assert_eq!(running.join().unwrap(), 1);
    });
    let one = counters(talker, 9);
    let left_out = one.woke_late + one.overran + one.not_filled + one.not_taken + one.refused;
    assert_eq!(one.planned, one.sent + left_out, "{one:?}");
    // Told before it runs, it ends at once; that was for one run only.
    assert_eq!([tw_talker_stop(talker), tw_talker_stop(talker)], [0; 2]);
    // SAFETY: a callback that needs no context.
    let run = |until| unsafe { tw_talker_run(talker, until, Some(fill_nothing), null_mut()) };
    assert_eq!(run(0), 1);
    assert_eq!(counters(talker, 9), one);
    assert_eq!(run(tw_now() + 3_000_000), 0);
    assert_eq!(tw_talker_close(talker), 0);
    assert_eq!(tw_talker_stop(talker), USAGE);
}

/// What a callback got when it used the talker that it was called by.
#[derive(Default)]
struct Within {
    talker: usize,
    results: Vec<c_int>,
}

unsafe extern "C" fn meddle(fill: *const Fill, context: *mut c_void) -> c_int {
    // SAFETY: as in `fill_number`.
    let (within, stream) = unsafe { (&mut *context.cast::<Within>(), (*fill).stream) };
    let talker = without_provenance_mut(within.talker);
    let mut counters = StreamCounters { size: size::<StreamCounters>(), ..Default::default() };
    // SAFETY: room as large as is said.
    within.results = unsafe {
        vec![
            tw_talker_run(talker, 1, Some(meddle), context),
            tw_talker_mode(talker, 0, null_mut(), 0),
            tw_talker_close(talker),
            tw_talker_counters(talker, stream, &raw mut counters),
            tw_talker_stop(talker),
        ]
    };
    0
}

#[test]
fn t3_a_callback_cannot_use_or_close_its_talker_but_stop_it() {
    let (here, address) = somewhere();
    let talker = open(&config(&[port(&address)], &[stream(2)])).unwrap();
    let mut within = Within { talker: talker.addr(), results: Vec::new() };
    // SAFETY: a callback that fits, with its context.
    let run = unsafe { tw_talker_run(talker, 0, Some(meddle), (&raw mut within).cast()) };
    assert_eq!((run, within.results), (1, vec![USAGE, USAGE, USAGE, 0, 0]), "{}", last());
    // The message that was being filled was sent all the same.
    assert_eq!(here.recv(&mut [0; 64]).unwrap(), 32);
    assert_eq!(tw_talker_close(talker), 0);
}

/// Why messages did not leave, as JSON and as lines.
fn drop_causes(call: impl Fn(c_int, *mut std::ffi::c_char, usize) -> c_int) -> (String, String) {
    let told = [1, 0].map(|is_json| {
        let mut text = [0_u8; 2048];
        assert!(call(is_json, text.as_mut_ptr().cast(), text.len()) >= 0, "{}", last());
        CStr::from_bytes_until_nul(&text).unwrap().to_str().unwrap().to_owned()
    });
    let [json, lines] = told;
    (json, lines)
}

#[test]
fn t0_transmitters_and_talkers_say_why_messages_did_not_leave() {
    // Nobody may send to a broadcast address unasked: `EACCES`.
    let mut to = Address::default();
    // SAFETY: a text that ends with a zero, and room for an address.
    assert_eq!(unsafe { tw_address_parse(c"127.255.255.255:9".as_ptr(), &raw mut to) }, 0);
    let open_port = TransmitterConfig { to: null(), ..port(c"") };
    let talker = open(&config(&[open_port], &[StreamConfig { cycles: 3, to, ..stream(7) }]));
    let talker = talker.unwrap_or_else(|_| panic!("{}", last()));
    let mut transmitter = null_mut();
    unsafe extern "C" fn fill(_: *const Fill, _: *mut c_void) -> c_int {
        0
    }
    unsafe extern "C" fn ignore(_: *const Report, _: *mut c_void) {}
    // SAFETY: a whole configuration, a handle, a callback that does nothing.
    unsafe {
        assert_eq!(tw_talker_run(talker, 0, Some(fill), null_mut()), 0, "{}", last());
        assert_eq!(
            tw_transmitter_open(&raw const open_port, &raw mut transmitter),
            0,
            "{}",
            last()
        );
        for _ in 0..3 {
            let sent = tw_transmitter_send_copy(
                transmitter,
                [1].as_ptr(),
                1,
                &raw const to,
                0,
                null_mut(),
            );
            assert_eq!(sent, 0, "{}", last());
        }
    }
    let of_talker =
        // SAFETY: room for as many bytes as is said.
        drop_causes(|json, text, room| unsafe { tw_talker_drop_causes(talker, json, text, room) });
    let of_port = || {
        drop_causes(|json, text, room| {
            // SAFETY: as before.
            unsafe { tw_transmitter_drop_causes(transmitter, json, text, room) }
        })
    };
    assert_eq!(of_port(), ("[]".to_owned(), String::new()));
    tw_transmitter_flush(transmitter);
    // SAFETY: a callback that does nothing.
    assert!(unsafe { tw_transmitter_reports(transmitter, Some(ignore), null_mut()) } >= 3);
    let of_port = of_port();
    for (json, lines) in [&of_talker, &of_port] {
        assert!(json.starts_with(r#"[{"frames":3,"candidates":[{"cause":"refused","#), "{json}");
        assert!(json.contains(r#""errno":13}"#), "{json}");
        assert!(lines.starts_with("3 dropped: the message was refused (errno 13). "), "{lines}");
    }
    assert_eq!(of_talker, of_port);
    assert_eq!((tw_talker_close(talker), tw_transmitter_close(transmitter)), (0, 0));
}
