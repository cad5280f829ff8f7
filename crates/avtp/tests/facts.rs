// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Times, rates and reservations against numbers computed by hand.

use timewire_avtp::pdu::{AafFormat, CrfClock, CrfType, NominalRate, Pull, SampleFormat, StreamId};
use timewire_avtp::stream::{ControlFormat, ControlTalker};
use timewire_avtp::{
    AafPacking, AvtpTime, Cadence, ClockRecovery, MAX_TRANSIT, Ppb, Reservation, Sequence,
    SequenceOrder, SrClass,
};
use timewire_base::{Instant, SduLen, Span, Tai};

#[test]
fn t0_presentation_times_wrap() {
    let at = |ns| Instant::<Tai>::from_ns(ns);
    let wrap = 1_i64 << 32;
    assert_eq!(AvtpTime::of(at(3 * wrap + 5)).bits(), 5);
    assert_eq!(AvtpTime::of(at(-1)).bits(), u32::MAX);
    let cases = [
        // now, bits, nearest
        (3 * wrap + 10, 5, 3 * wrap + 5),
        (3 * wrap - 10, 5, 3 * wrap + 5),
        (3 * wrap + 5, u32::MAX, 3 * wrap - 1),
        // Exactly half a turn away is taken for the past.
        (wrap, 1 << 31, wrap - (1 << 31)),
        (wrap, (1 << 31) - 1, wrap + (1 << 31) - 1),
        (i64::MAX, 5, i64::MAX),
    ];
    for (now, bits, nearest) in cases {
        assert_eq!(AvtpTime::from_bits(bits).near(at(now)), at(nearest), "{bits} near {now}");
    }
}

#[test]
fn t0_a_cadence_does_not_drift() {
    let cadence = Cadence::of_hz(44_100).unwrap();
    assert_eq!(cadence.at_floor(1), Span::from_ns(22_675));
    assert_eq!(cadence.at_floor(44_100 * 3_600), Span::from_secs(3_600));
    assert_eq!(cadence.at_floor(-1), Span::from_ns(-22_676));
    assert_eq!(cadence.events_in_ceil(Span::from_ms(1)), 45);
    assert_eq!(cadence.events_in_ceil(Span::from_secs(1)), 44_100);
    assert_eq!(Cadence::new(2, 60).unwrap(), Cadence::new(1, 30).unwrap());
    assert_eq!(Cadence::new(1_001, 30_000).unwrap().at_floor(30_000), Span::from_secs(1_001));
    assert!(Cadence::new(0, 1).is_err() && Cadence::new(1, 0).is_err());
    assert_eq!(cadence.at_floor(i64::MAX), Span::MAX);
}

#[test]
fn t0_a_clock_of_known_rate_is_recovered() {
    let clock = CrfClock {
        kind: CrfType::AudioSample,
        pull: Pull::One,
        base_frequency_hz: 48_000,
        interval: 96,
    };
    let cadence = clock.cadence().unwrap();
    assert_eq!(cadence.at_floor(1), Span::from_ms(2));
    // A clock at 48 000 Hz * (1 + ppb / 10^9); times rounded to a nanosecond, a tenth of them gone.
    for ppb in [0_i64, 1_000, 100_000, -100_000, 37_123, 999_999, -500_000_000 / 2] {
        let mut recovery = ClockRecovery::new(cadence, 500).unwrap();
        assert_eq!(recovery.rate(), None);
        for event in (0..2_000_i64).filter(|event| event % 10 != 3) {
            let ns =
                i128::from(event) * 2_000_000 * 1_000_000_000 / i128::from(1_000_000_000 + ppb);
            let ns = i64::try_from(ns).unwrap() + 1_700_000_000_000_000_000;
            recovery.push(event, Instant::from_ns(ns));
        }
        assert_eq!(recovery.count(), 500);
        let found = recovery.rate().unwrap().get();
        assert!((found - ppb).abs() <= 1, "{found} for {ppb}");
    }
    // A step starts the window anew; half the rate is no clock.
    let mut recovery = ClockRecovery::new(cadence, 4).unwrap();
    recovery.push(0, Instant::from_ns(10_000_000));
    recovery.push(1, Instant::from_ns(14_000_000));
    assert_eq!(recovery.rate(), None);
    recovery.push(2, Instant::from_ns(0));
    assert_eq!(recovery.count(), 1);
    recovery.push(3, Instant::from_ns(2_000_200));
    assert_eq!(recovery.rate(), Some(Ppb::new(-99_990)));
    assert_eq!(Ppb::new(-99_990).to_string(), "-99990ppb");
    let pal = CrfClock { pull: Pull::Up25Of24, base_frequency_hz: 24, interval: 1, ..clock };
    assert_eq!(pal.cadence().unwrap().at_floor(25), Span::from_secs(1));
}

#[test]
fn t0_classes_are_those_of_the_standard() {
    let facts = |class: SrClass| {
        let (pcp, vlan) = (class.default_pcp().get(), class.default_vlan().get());
        (class.interval(), class.intervals_per_second(), class.max_transit(), pcp, vlan)
    };
    assert_eq!(facts(SrClass::A), (Span::from_us(125), 8_000, Span::from_ms(2), 3, 2));
    assert_eq!(facts(SrClass::B), (Span::from_us(250), 4_000, Span::from_ms(50), 2, 2));
    for class in [SrClass::A, SrClass::B] {
        let second = class.interval().checked_mul(class.intervals_per_second().into());
        assert_eq!(second, Some(Span::from_secs(1)));
    }
}

#[test]
fn t0_streams_of_audio_reserve_what_the_book_says() {
    use NominalRate::{K8, K44_1, K48, K96, K192};
    use SampleFormat::{Float32, Int16, Int24, Int32};
    use SrClass::{A, B};
    let mtu = SduLen::new(1_500).unwrap();
    // class, rate, format, channels -> samples, packets, payload, wire, bit/s
    let cases = [
        (A, K48, Int24, 2, (6, 1, 60, 102, 6_528_000)),
        (A, K44_1, Int16, 2, (6, 1, 48, 90, 5_760_000)),
        (B, K48, Int32, 8, (12, 1, 408, 450, 14_400_000)),
        (A, K8, Int16, 1, (1, 1, 26, 84, 5_376_000)),
        (A, K96, Float32, 1, (12, 1, 72, 114, 7_296_000)),
        (A, K192, Int32, 32, (8, 3, 1_048, 1_090, 209_280_000)),
        (A, K48, Int32, 369, (1, 6, 1_500, 1_542, 592_128_000)),
    ];
    for (class, rate, sample, channels, expected) in cases {
        let format = AafFormat { sample, rate, channels, bit_depth: sample.bits() };
        let packing = AafPacking::new(class, format, mtu).unwrap();
        let of = packing.reservation;
        let tspec = of.tspec();
        assert_eq!(tspec.max_interval_frames, packing.packets_per_interval);
        assert_eq!((of.class(), of.frames_per_interval()), (class, packing.packets_per_interval));
        let found = (
            packing.samples_per_packet,
            packing.packets_per_interval,
            tspec.max_frame_size.get(),
            of.frame().get(),
            of.bandwidth().unwrap().get(),
        );
        assert_eq!(found, expected, "{class:?} {rate:?} {sample:?} {channels}");
    }
    let format = AafFormat { sample: Int32, rate: K48, channels: 370, bit_depth: 32 };
    let error = AafPacking::new(A, format, mtu).unwrap_err().to_string();
    assert_eq!(error, "mtu of 1500 cannot be: it takes 1504 to 65517");
    let user = AafFormat { rate: NominalRate::User, ..format };
    assert!(AafPacking::new(A, user, mtu).is_err());
    assert!(Reservation::new(A, mtu, 0).is_err());
    assert!(Reservation::new(A, SduLen::new(65_518).unwrap(), 1).is_err());
}

#[test]
fn t0_numbers_are_placed() {
    let mut sequence = Sequence::new();
    let mut place = |number| {
        let index = sequence.index_of(number);
        let place = sequence.note(index);
        (place, sequence.missing())
    };
    assert_eq!(place(250), (SequenceOrder::First, 0));
    assert_eq!(place(251), (SequenceOrder::Next, 0));
    assert_eq!(place(251), (SequenceOrder::Duplicate, 0));
    assert_eq!(place(0), (SequenceOrder::Ahead { missing: 4 }, 4));
    assert_eq!(place(253), (SequenceOrder::Behind, 3));
    assert_eq!(place(253), (SequenceOrder::Duplicate, 3));
    assert_eq!(place(248), (SequenceOrder::Behind, 4));
    assert_eq!(place(128), (SequenceOrder::Ahead { missing: 127 }, 131));
    assert_eq!(place(1), (SequenceOrder::Behind, 130));
    assert_eq!(
        StreamId::new(timewire_base::wire::MacAddress([2, 0, 0, 0, 0, 1]), 7).to_string(),
        "02:00:00:00:00:01/7"
    );
}

#[test]
fn t0_a_transit_time_that_packets_cannot_say_is_refused() {
    let refused = |transit| {
        ControlTalker::new(StreamId::from_bits(1), ControlFormat::Tscf(transit), 60).err()
    };
    assert_eq!((refused(Span::ZERO), refused(MAX_TRANSIT)), (None, None));
    for wrong in [Span::from_ns(-1), MAX_TRANSIT + Span::from_ns(1)] {
        let told = refused(wrong).unwrap().to_string();
        assert!(told.ends_with("cannot be: it takes 0ns to 2s"), "{told}");
    }
}

#[test]
fn t0_a_packet_may_have_so_many_samples_as_it_is_told() {
    let format = AafFormat {
        sample: SampleFormat::Int16,
        rate: NominalRate::K48,
        channels: 2,
        bit_depth: 16,
    };
    let mtu = SduLen::new(1_500).unwrap();
    let with = |samples| AafPacking::with(SrClass::A, format, mtu, Some(samples));
    for (samples, packets, payload) in [(1, 6, 28), (4, 2, 40), (6, 1, 48), (48, 1, 216)] {
        let packing = with(samples).unwrap();
        assert_eq!((packing.samples_per_packet, packing.packets_per_interval), (samples, packets));
        assert_eq!(packing.reservation.tspec().max_frame_size.get(), payload);
    }
    assert_eq!(
        with(0).unwrap_err().to_string(),
        "samples in a packet of 0 cannot be: it takes 1 to 369"
    );
    assert!(with(369).is_ok() && with(370).is_err());
}
