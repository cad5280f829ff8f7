// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Once made, talkers and listeners neither allocate nor free: not with loss, not when full.

use timewire_avtp::media::h264::StartCodes;
use timewire_avtp::pdu::{
    AafFormat, AcfMessage, CrfClock, CrfType, Gpc, NominalRate, Pull, SampleFormat, StreamId,
};
use timewire_avtp::stream::{
    AafListener, AafListenerConfig, AafTalker, AafTalkerConfig, ByteOrder, ControlFormat,
    ControlListener, ControlTalker, CrfListener, CrfTalker, CrfTalkerConfig, CvfListener,
    CvfListenerConfig, CvfTalker, CvfTalkerConfig, Late, Next, Tail,
};
use timewire_avtp::{Cadence, Ppb, SrClass};
use timewire_base::{Instant, Span, Tai};

use crate::counting::calls_during;

#[test]
fn t0_the_count_counts() {
    assert_eq!(calls_during(|| drop(std::hint::black_box(Box::new(1)))), 2);
}

const STREAM: StreamId = StreamId::from_bits(1);
const START: Instant<Tai> = Instant::from_ns(0);
const FORMAT: AafFormat =
    AafFormat { sample: SampleFormat::Int24, rate: NominalRate::K48, channels: 2, bit_depth: 24 };

#[test]
fn t0_audio_does_not_allocate() {
    let (stream, format, samples_per_packet) = (STREAM, FORMAT, 6);
    let mut talker = AafTalker::new(AafTalkerConfig {
        stream,
        format,
        samples_per_packet,
        transit: SrClass::A.max_transit(),
        start: START,
        lead: Span::ZERO,
        sparse: true,
        queue: 40,
        tail: Tail::Short,
    })
    .unwrap();
    let late = Late::Discard;
    let config = AafListenerConfig { stream, format, samples_per_packet, capacity: 20, late };
    let mut listener = AafListener::new(config).unwrap();
    let (samples, mut now, mut packets) = ([7; 6 * 11], START, 0);
    let calls = calls_during(|| {
        while packets < 20_000 {
            talker.push(&samples, ByteOrder::Little);
            match talker.next(now) {
                Next::At(at) => now = at,
                Next::Packet(packet) => {
                    packets += 1;
                    // Lost, doubled, spoilt.
                    for _ in 0..[1, 1, 0, 2, 1][packets % 5] {
                        let _ = std::hint::black_box(listener.receive(now, packet.bytes));
                    }
                    let _ = std::hint::black_box(listener.receive(now, &packet.bytes[..30]));
                }
                _ => {}
            }
            while std::hint::black_box(listener.present(now)).is_some() {}
        }
    });
    assert_eq!(calls, 0);
    let counters = listener.counters();
    assert!(counters.lost > 3_000 && counters.duplicates == 4_000 && counters.malformed == 20_000);
}

#[test]
fn t0_video_does_not_allocate() {
    let mut film = Vec::new();
    for picture in 0..2_000 {
        film.extend([0, 0, 0, 1, 0x65, 0x88]);
        film.resize(film.len() + picture * 37 % 4_000, 0x55);
    }
    let mut talker = CvfTalker::new(
        CvfTalkerConfig {
            stream: STREAM,
            class: SrClass::A,
            transit: SrClass::A.max_transit(),
            start: START,
            lead: Span::ZERO,
            frame_rate: Cadence::of_hz(60).unwrap(),
            max_payload: 1_400,
            packets_per_interval: 1,
        },
        film,
    )
    .unwrap();
    let mut listener = CvfListener::new(CvfListenerConfig {
        stream: STREAM,
        capacity: 16,
        max_payload: 1_400,
        max_access_unit: 3_000,
        start_codes: StartCodes::Four,
        late: Late::Discard,
    })
    .unwrap();
    let (mut now, mut packets, mut whole) = (START, 0_u32, 0_u32);
    let calls = calls_during(|| {
        loop {
            match talker.next(now) {
                Next::At(at) => now = at,
                Next::Packet(packet) => {
                    packets += 1;
                    if !packets.is_multiple_of(50) {
                        listener.receive(now, packet.bytes).unwrap();
                    }
                }
                _ => break,
            }
            while let Some(unit) = listener.present(now) {
                whole += u32::from(unit.whole);
            }
        }
    });
    assert_eq!(calls, 0);
    // Some do not fit the listener.
    assert!(whole > 1_000 && packets > 3_000 && listener.nal_counters().overflowed > 300);
}

#[test]
fn t0_clock_and_control_do_not_allocate() {
    let clock = CrfClock {
        kind: CrfType::AudioSample,
        pull: Pull::One,
        base_frequency_hz: 48_000,
        interval: 96,
    };
    let mut talker = CrfTalker::new(CrfTalkerConfig {
        stream: STREAM,
        clock,
        timestamps_per_packet: 2,
        transit: SrClass::A.max_transit(),
        start: START,
        lead: Span::ZERO,
        rate: Ppb::new(1_000),
    })
    .unwrap();
    let mut listener = CrfListener::new(STREAM, clock, 64).unwrap();
    let mut messages =
        ControlTalker::new(STREAM, ControlFormat::Tscf(SrClass::A.max_transit()), 60).unwrap();
    let mut control = ControlListener::new(STREAM);
    let message = AcfMessage::Gpc(Gpc { id: 5, payload: &[1, 2, 3, 4] });
    let (mut now, mut read) = (START, 0);
    let calls = calls_during(|| {
        for _ in 0..5_000 {
            match talker.next(now) {
                Next::At(at) => now = at,
                Next::Packet(packet) => {
                    listener.receive(now, packet.bytes).unwrap();
                    std::hint::black_box(listener.rate());
                }
                _ => {}
            }
            while messages.push(&message).unwrap() {}
            let packet = messages.next(now).unwrap();
            let all = control.receive(now, packet.bytes).unwrap().unwrap();
            read += all.messages.filter(|message| message.is_ok()).count();
        }
    });
    assert_eq!((calls, read), (0, 25_000));
    assert_eq!(listener.rate(), Some(Ppb::new(1_000)));
}
