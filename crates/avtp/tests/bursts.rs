// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Talkers that timestamp when they send, in bursts or with pauses: what came is not lost.

use proptest::collection::vec;
use proptest::prelude::*;
use timewire_avtp::AvtpTime;
use timewire_avtp::pdu::{
    Aaf, AafFormat, NominalRate, Reserved, SampleFormat, StreamHeader, StreamId,
};
use timewire_avtp::stream::{AafListener, AafListenerConfig, Late, Sound, StreamCounters};
use timewire_base::{Instant, Span, Tai};

const STREAM: StreamId = StreamId::from_bits(0x0200_0000_0001_0001);
/// Near the wrap of 32 bits.
const START: Instant<Tai> = Instant::from_ns((400_000_000 << 32) - 20_000_000);

fn after(ns: i64) -> Instant<Tai> {
    START + Span::from_ns(ns)
}

/// A talker of so many samples in a packet that sends them in bursts, and timestamps when it sends.
fn bursts(burst: usize, packets: usize, samples: u16) -> Vec<(Instant<Tai>, Vec<u8>)> {
    let format = AafFormat {
        sample: SampleFormat::Int16,
        rate: NominalRate::K48,
        channels: 2,
        bit_depth: 16,
    };
    let packet_ns = i64::from(samples) * 1_000_000_000 / 48_000;
    let packet = |nth: usize| {
        let begun = i64::try_from(nth / burst * burst).unwrap() * packet_ns;
        // Sending one takes a microsecond.
        let at = after(begun + i64::try_from(nth % burst).unwrap() * 1_000);
        let value = i16::try_from(nth % 30_000).unwrap().to_be_bytes();
        let data = value.repeat(2 * usize::from(samples));
        let aaf = Aaf {
            header: StreamHeader {
                stream: STREAM,
                sequence: u8::try_from(nth % 256).unwrap(),
                media_restart: false,
                timestamp: Some(AvtpTime::of(at + Span::from_ms(50))),
                timestamp_uncertain: false,
            },
            format,
            sparse: false,
            event: 0,
            samples: &data,
            reserved: Reserved::NONE,
        };
        let mut bytes = vec![0; 24 + data.len()];
        aaf.write(&mut bytes).unwrap();
        (at, bytes)
    };
    (0..packets).map(packet).collect()
}

fn listen_to(sent: &[(Instant<Tai>, Vec<u8>)], samples: u16) -> (StreamCounters, u64) {
    let mut listener = AafListener::new(AafListenerConfig {
        stream: STREAM,
        format: AafFormat {
            sample: SampleFormat::Int16,
            rate: NominalRate::K48,
            channels: 2,
            bit_depth: 16,
        },
        samples_per_packet: samples,
        capacity: 4_096,
        late: Late::Keep,
    })
    .unwrap();
    let mut silent = 0;
    let mut hear = |listener: &mut AafListener, now: Instant<Tai>| {
        while let Some(sound) = listener.present(now) {
            if let Sound::Gap { samples, .. } = sound {
                silent += samples;
            }
        }
    };
    for (at, bytes) in sent {
        listener.receive(*at, bytes).unwrap();
        hear(&mut listener, *at);
    }
    hear(&mut listener, Instant::from_ns(i64::MAX));
    (listener.counters(), silent)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Of a talker that sends in bursts of any size, or pauses, nothing is lost that came; and of
    /// the packets that are lost as many are counted, up to what eight bits tell. No pause is a
    /// multiple of what 256 packets take: that alone is no pause of a regular talker.
    #[test]
    fn t0_bursts_and_pauses_are_no_loss(
        burst in 1_usize..1_200,
        samples in prop_oneof![Just(1_u16), Just(6)],
        pauses in vec((10_usize..3_000, 1_i64..500), 0..3),
        hole in 0_usize..127,
    ) {
        let mut sent = bursts(burst, 4_000, samples);
        for (from, ms) in pauses {
            for (at, bytes) in &mut sent[from..] {
                let pause = Span::from_ms(ms) + Span::from_us(500);
                *at = *at + pause;
                let timestamp = AvtpTime::of(*at + Span::from_ms(50));
                bytes[12..16].copy_from_slice(&timestamp.bits().to_be_bytes());
            }
        }
        sent.drain(3_500..3_500 + hole);
        let (counters, silent) = listen_to(&sent, samples);
        let lost = u64::try_from(hole).unwrap();
        prop_assert_eq!(counters.lost, lost, "{:?}", counters);
        prop_assert_eq!(silent, lost * u64::from(samples));
        prop_assert_eq!(counters.presented, u64::try_from(sent.len()).unwrap());
        prop_assert_eq!((counters.duplicates, counters.reordered), (0, 0));
        if burst > 8 {
            prop_assert!(counters.irregular > 0);
        }
    }
}

#[test]
fn t0_bursts_as_a_sound_nic_gives_them_are_whole_and_told_as_irregular() {
    let sent = bursts(288, 48_000, 1);
    let (counters, silent) = listen_to(&sent, 1);
    assert_eq!((counters.received, counters.presented), (48_000, 48_000));
    assert_eq!((counters.lost, silent, counters.late), (0, 0, 0));
    assert!(counters.irregular > 40_000, "{}", counters.irregular);
}
