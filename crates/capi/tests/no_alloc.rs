// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Once it is open or runs, sending, receiving and waiting through the library neither allocate nor
//! free, errors of normal work and the talker's loop included.

use std::ffi::{CStr, c_int, c_void};
use std::mem::zeroed;
use std::ptr::{null, null_mut};

use timewire::*;

use crate::counting::calls;

const ROUNDS: u32 = 2_000;

#[derive(Default)]
struct Seen {
    arrivals: u32,
    next: u32,
    timestamps: u32,
}

unsafe extern "C" fn on_arrival(arrival: *const Arrival, context: *mut c_void) {
    // SAFETY: the library gives an arrival with its bytes, and the context that it was given, which
    // nobody else uses meanwhile.
    let (arrival, seen) = unsafe { (&*arrival, &mut *context.cast::<Seen>()) };
    let mut probe = Probe { size: 32, ..Probe::default() };
    let captured = usize::try_from(arrival.captured).unwrap();
    // SAFETY: as before.
    let known = unsafe { tw_probe_parse(arrival.bytes, captured, &raw mut probe) };
    assert_eq!((known, probe.seq), (1, seen.next));
    seen.next += 1;
    seen.arrivals += 1;
}

unsafe extern "C" fn on_report(report: *const Report, context: *mut c_void) {
    // SAFETY: as in `on_arrival`.
    let (report, seen) = unsafe { (&*report, &mut *context.cast::<Seen>()) };
    assert_eq!(report.kind, 1);
    seen.timestamps += 1;
}

#[test]
fn t3_sending_and_receiving_neither_allocate_nor_free() {
    let (mut receiver, mut transmitter, mut slots) = (null_mut(), null_mut(), null_mut());
    let (mut own, mut text) = (Address::default(), [0_u8; 64]);
    let window = Window { offset_ns: 0, length_ns: 1 };
    // SAFETY: configurations of plain integers and pointers to texts that end with a zero, and
    // locals as large as is said.
    unsafe {
        let config = ReceiverConfig {
            size: size_of::<ReceiverConfig>().try_into().unwrap(),
            transport: 1,
            bind: c"127.0.0.1:0".as_ptr(),
            timestamps: 1,
            ..zeroed()
        };
        assert_eq!(tw_receiver_open(&raw const config, &raw mut receiver), 0);
        assert_eq!(tw_receiver_address(receiver, &raw mut own), 0);
        assert!(tw_address_format(&raw const own, text.as_mut_ptr().cast(), text.len()) > 0);
        let config = TransmitterConfig {
            size: size_of::<TransmitterConfig>().try_into().unwrap(),
            transport: 1,
            to: CStr::from_bytes_until_nul(&text).unwrap().as_ptr(),
            points: 2,
            ..zeroed()
        };
        assert_eq!(tw_transmitter_open(&raw const config, &raw mut transmitter), 0);
        let made = tw_slots_make(0, 100_000, &raw const window, 1, 20_000, &raw mut slots);
        assert_eq!(made, 0);
    }

    // SAFETY: plain integers and pointers, for which zero is valid.
    let mut arrivals: Vec<Arrival> = vec![unsafe { zeroed() }; 64];
    let mut bytes = vec![0_u8; 64 * 128];
    let mut seen = Seen::default();
    let context = (&raw mut seen).cast();
    let mut before = 0;
    for seq in 0..ROUNDS {
        if seq == 10 {
            before = calls();
        }
        let mut buffer = null_mut();
        let (mut slot, mut drops) = (0, 0);
        let probe = Probe { size: 32, seq, time_ns: tw_now(), ..Probe::default() };
        // SAFETY: locals as large as is said, handles that are open, callbacks that fit.
        unsafe {
            if seq % 8 == 0 {
                assert_eq!(tw_slots_wait(slots, &raw mut slot), 0);
            }
            assert_eq!(tw_sleep_until(tw_now() + 1_000, 1_000), 0);
            // An error is normal work, too.
            assert_eq!(tw_transmitter_buffer(transmitter, 9_999, &raw mut buffer), -1);
            assert_eq!(tw_transmitter_buffer(transmitter, 64, &raw mut buffer), 0);
            assert_eq!(tw_probe_write(buffer, 64, &raw const probe), 0);
            assert_eq!(tw_transmitter_send(transmitter, 64, null(), 0, null_mut()), 0);
            assert_eq!(tw_transmitter_flush(transmitter), 0);
            if seq % 2 == 0 {
                let got = tw_receiver_receive(receiver, 5_000_000_000, Some(on_arrival), context);
                assert_eq!(got, 1);
            } else {
                let (each, room) = (size_of::<Arrival>(), 128);
                let (to, at) = (arrivals.as_mut_ptr(), bytes.as_mut_ptr());
                assert_eq!(tw_receiver_take(receiver, 5_000_000_000, to, each, 64, at, room), 1);
                on_arrival(to, context);
            }
            assert!(tw_transmitter_reports(transmitter, Some(on_report), context) >= 0);
            assert_eq!(tw_receiver_drops(receiver, &raw mut drops), 0);
            assert_eq!(drops, 0);
        }
    }
    let during = calls() - before;
    // It counts: this is a call.
    drop(std::hint::black_box(Box::new(seen.timestamps)));
    assert!(calls() > before + during);
    assert_eq!((seen.arrivals, during), (ROUNDS, 0));
    assert!(seen.timestamps > ROUNDS - 10, "{} timestamps", seen.timestamps);
    let closed =
        [tw_receiver_close(receiver), tw_transmitter_close(transmitter), tw_slots_close(slots)];
    assert_eq!(closed, [0; 3]);
}

/// What a callback saw of the allocator between its first message and its last.
#[derive(Default)]
struct Filling {
    talker: usize,
    messages: u64,
    first: u64,
    last: u64,
}

unsafe extern "C" fn on_fill(fill: *const Fill, context: *mut c_void) -> c_int {
    // SAFETY: the library gives a message with its bytes, and the context that it was given, which
    // nobody else uses meanwhile.
    let (fill, filling) = unsafe { (&*fill, &mut *context.cast::<Filling>()) };
    filling.messages += 1;
    // What is made once was made for the first few.
    if filling.messages == 10 {
        filling.first = calls();
    }
    filling.last = calls();
    let talker = std::ptr::without_provenance_mut(filling.talker);
    let mut counters = StreamCounters { size: 112, ..StreamCounters::default() };
    // SAFETY: a structure as large as it says; and an error, which is normal work, too.
    let results = unsafe {
        fill.bytes.write_bytes(7, 1);
        [tw_talker_counters(talker, fill.stream, &raw mut counters), tw_talker_close(talker)]
    };
    assert_eq!(results, [0, -1]);
    c_int::from(fill.seq % 7 == 6)
}

#[test]
fn t3_a_running_talker_neither_allocates_nor_frees() {
    let there = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = std::ffi::CString::new(there.local_addr().unwrap().to_string()).unwrap();
    let mut talker = null_mut();
    let streams = [1, 2, 3].map(|stream| StreamConfig {
        size: size_of::<StreamConfig>().try_into().unwrap(),
        stream,
        flags: 1 | 2,
        cycle_ns: 300_000,
        offset_ns: 40_000 * i64::from(stream),
        cycles: 500,
        frames: 2,
        payload: 64,
        ..StreamConfig::default()
    });
    // SAFETY: configurations of plain integers and pointers to texts that end with a zero and to
    // arrays as long as is said, and locals as large as is said.
    unsafe {
        let port = TransmitterConfig {
            size: size_of::<TransmitterConfig>().try_into().unwrap(),
            transport: 1,
            to: to.as_ptr(),
            points: 2,
            ..zeroed()
        };
        let config = TalkerConfig {
            size: size_of::<TalkerConfig>().try_into().unwrap(),
            ports: &raw const port,
            streams: streams.as_ptr(),
            port_count: 1,
            stream_count: 3,
            ..zeroed()
        };
        assert_eq!(tw_talker_open(&raw const config, &raw mut talker), 0);
        let mut filling = Filling { talker: talker.addr(), ..Filling::default() };
        let before = calls();
        let ran = tw_talker_run(talker, 0, Some(on_fill), (&raw mut filling).cast());
        assert_eq!((ran, filling.messages), (0, 3_000));
        assert_eq!(filling.last - filling.first, 0);
        // It counts: the timetable was made, and is gone.
        assert!(calls() > before);
        let mut counters = StreamCounters { size: 112, ..StreamCounters::default() };
        assert_eq!(tw_talker_counters(talker, 2, &raw mut counters), 0);
        assert_eq!((counters.not_filled, counters.planned), (142, 1_000), "{counters:?}");
        assert!(counters.timestamps > 0, "{counters:?}");
    }
    assert_eq!(tw_talker_close(talker), 0);
}
