// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whatever can be written is read again; whatever comes, nothing panics.

use proptest::collection::vec;
use proptest::prelude::*;
use timewire_avtp::media::h264::{Assembler, StartCodes, nal_units, payloads, write_payload};
use timewire_avtp::media::wav::{self, Wav, WavFormat};
use timewire_avtp::pdu::{
    Aaf, AafFormat, AcfMessage, Can, CanId, Crf, CrfClock, CrfType, Cvf, CvfFormat, Gpc,
    NominalRate, Ntscf, OpaqueAcf, Pdu, Pull, Reserved, SampleFormat, StreamHeader, StreamId, Tscf,
};
use timewire_avtp::stream::{
    AafListener, AafListenerConfig, ControlListener, CrfListener, CvfListener, CvfListenerConfig,
    Late,
};
use timewire_avtp::{AvtpTime, Cadence, ClockRecovery, Sequence};
use timewire_base::{Instant, Tai};

const NONE: Reserved = Reserved::NONE;

fn header() -> impl Strategy<Value = StreamHeader> {
    let time = proptest::option::of(any::<u32>().prop_map(AvtpTime::from_bits));
    let stream = any::<u64>().prop_map(StreamId::from_bits);
    (stream, any::<u8>(), any::<bool>(), time, any::<bool>()).prop_map(
        |(stream, sequence, media_restart, timestamp, timestamp_uncertain)| StreamHeader {
            stream,
            sequence,
            media_restart,
            timestamp,
            timestamp_uncertain,
        },
    )
}

fn format() -> impl Strategy<Value = AafFormat> {
    let rate = proptest::sample::select(NominalRate::all().collect::<Vec<_>>());
    let sample = proptest::sample::select(SampleFormat::ALL.to_vec());
    (sample, rate, 1_u16..=1_023, 1_u8..=16).prop_map(|(sample, rate, channels, depth)| {
        let bit_depth = if sample == SampleFormat::Float32 { 32 } else { depth };
        AafFormat { sample, rate, channels, bit_depth }
    })
}

fn can_data() -> impl Strategy<Value = (bool, Vec<u8>)> {
    any::<bool>().prop_flat_map(|fd| {
        let lengths: &[usize] =
            if fd { &[0, 1, 7, 8, 12, 16, 20, 24, 32, 48, 64] } else { &[0, 1, 2, 3, 4, 5, 8] };
        let data = proptest::sample::select(lengths).prop_flat_map(|n| vec(any::<u8>(), n));
        (Just(fd), data)
    })
}

fn again(pdu: &Pdu<'_>) -> Result<(), TestCaseError> {
    let mut out = vec![0xff; 66_000];
    let length = pdu.write(&mut out).unwrap();
    prop_assert_eq!(&Pdu::parse(&out[..length]).unwrap(), pdu);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn t0_aaf_is_read_as_written(
        header in header(), format in format(), sparse: bool, event in 0_u8..16,
        frames in 0_usize..5
    ) {
        let samples: Vec<u8> = (0..=255).cycle().take(frames * format.frame_bytes()).collect();
        again(&Pdu::Aaf(Aaf { header, format, sparse, event, samples: &samples, reserved: NONE }))?;
    }

    #[test]
    fn t0_cvf_is_read_as_written(
        header in header(), kind in 0..3, time: Option<u32>, marker: bool, event in 0_u8..16,
        payload in vec(any::<u8>(), 0..300)
    ) {
        let timestamp = time.map(AvtpTime::from_bits);
        let h264 = CvfFormat::H264 { timestamp };
        let format = [CvfFormat::Mjpeg, h264, CvfFormat::Jpeg2000][usize::try_from(kind).unwrap()];
        let payload = &payload;
        again(&Pdu::Cvf(Cvf { header, format, marker, event, payload, reserved: NONE }))?;
    }

    #[test]
    fn t0_crf_is_read_as_written(
        bits: u64, sequence: u8, flags: [bool; 3], base_frequency_hz in 1_u32..1 << 29,
        interval in 1_u16.., times in vec(0..i64::MAX, 1..20), user: bool,
        pull in proptest::sample::select(Pull::all().collect::<Vec<_>>())
    ) {
        let kind = if user { CrfType::User } else { CrfType::VideoLine };
        let clock = CrfClock { kind, pull, base_frequency_hz, interval };
        let mut data: Vec<u8> = times.iter().flat_map(|time| time.to_be_bytes()).collect();
        if user {
            data.pop();
        }
        let stream = StreamId::from_bits(bits);
        let [media_restart, frame_sync, timestamp_uncertain] = flags;
        let crf = Crf {
            stream, sequence, media_restart, frame_sync, timestamp_uncertain, clock, data: &data,
            reserved: NONE,
        };
        again(&Pdu::Crf(crf))?;
        if let Some(read) = crf.timestamps() {
            prop_assert_eq!(read.iter().map(Instant::as_ns).collect::<Vec<_>>(), times);
        }
    }

    #[test]
    fn t0_control_messages_are_read_as_written(
        header in header(), (flexible, data) in can_data(), bus in 0_u8..32, raw: u32,
        flags: [bool; 4], time in proptest::option::of(0..i64::MAX), gpc in 0_u64..1 << 48,
        payload in vec(any::<u8>(), 0..50), kind in 6_u8..128
    ) {
        let [extended, remote, rate_switch, error_passive] = flags;
        let short = u16::try_from(raw & 0x7ff).unwrap();
        let long = CanId::Extended(raw & 0x1fff_ffff);
        let id = if extended { long } else { CanId::Standard(short) };
        let (data, reserved) = (&data[..], NONE);
        let can = Can { bus, id, remote, flexible, rate_switch, error_passive, data, reserved };
        let whole = payload.len() / 4 * 4;
        let body: Vec<u8> = payload[..whole].iter().copied().chain([1, 2]).collect();
        let all = vec![
            AcfMessage::Can(can, time.map(Instant::from_ns)),
            AcfMessage::CanBrief(can),
            AcfMessage::Gpc(Gpc { id: gpc, payload: &payload[..whole] }),
            AcfMessage::Opaque(OpaqueAcf { kind, body: &body }),
        ];
        let (mut out, mut at) = (vec![0xff; 2_000], 0);
        for message in &all {
            let length = message.write(&mut out[at..]).unwrap();
            prop_assert_eq!(length, message.length());
            at += length;
        }
        let data = &out[..at];
        let tscf = Tscf { header, data, reserved: NONE };
        again(&Pdu::Tscf(tscf))?;
        let (stream, sequence) = (header.stream, header.sequence);
        let ntscf = Ntscf { stream, sequence, data, reserved: NONE };
        again(&Pdu::Ntscf(ntscf))?;
        prop_assert_eq!(&tscf.messages().collect::<Result<Vec<_>, _>>().unwrap(), &all);
        prop_assert_eq!(&ntscf.messages().collect::<Result<Vec<_>, _>>().unwrap(), &all);
    }

    #[test]
    fn t0_times_come_back_within_half_a_turn(
        now in 0_i64..i64::MAX / 2, off in -(1_i64 << 31)..1 << 31
    ) {
        let (now, at) = (Instant::<Tai>::from_ns(now), Instant::from_ns(now + off));
        prop_assert_eq!(AvtpTime::of(at).near(now), at);
    }

    #[test]
    fn t0_wav_is_read_as_written(
        sample in proptest::sample::select(SampleFormat::ALL.to_vec()), channels in 1_u16..9,
        rate_hz in 1_u32..400_000, mask: Option<u32>, spare in 0_u16..8, frames in 0_usize..40,
        seed: u8
    ) {
        let valid_bits = u16::from(sample.bits()) - spare;
        let format = WavFormat { sample, channels, rate_hz, valid_bits, channel_mask: mask };
        let samples: Vec<u8> = (0..frames * format.frame_bytes())
            .map(|n| u8::try_from(n * 7 % 256).unwrap() ^ seed).collect();
        let file = wav::write(&Wav { format, samples: &samples }).unwrap();
        prop_assert_eq!(file.len() % 2, 0);
        let read = wav::read(&file).unwrap();
        prop_assert_eq!(read.samples, &samples[..]);
        // A file with fewer valid bits says so in the extensible format, which has a mask.
        let channel_mask = if spare > 0 { Some(mask.unwrap_or(0)) } else { mask };
        prop_assert_eq!(read.format, WavFormat { channel_mask, ..format });
        // Chunks before and after do not matter.
        let mut more = file[..12].to_vec();
        more.extend(b"LIST\x03\0\0\0abc\0");
        more.extend(&file[12..]);
        more.extend(b"note\x02\0\0\0hi");
        prop_assert_eq!(wav::read(&more).unwrap(), read);
    }

    #[test]
    fn t0_a_byte_stream_survives_payloads_of_any_size(
        units in vec((1_u8..24, vec(any::<u8>(), 0..60), 0_usize..3), 1..20), limit in 3_usize..70
    ) {
        let mut stream = Vec::new();
        for (kind, body, zeros) in &units {
            stream.resize(stream.len() + zeros, 0);
            stream.extend([0, 0, 1, 0x60 | kind]);
            // No start code inside, no zero at the end, as emulation prevention has it.
            stream.extend(body.iter().map(|byte| byte | 1));
        }
        let found = nal_units(&stream).unwrap();
        prop_assert_eq!(found.len(), units.len());
        for codes in [StartCodes::Four, StartCodes::Shortest] {
            let normal = codes.normalise(&stream, &found);
            let again = nal_units(&normal).unwrap();
            prop_assert_eq!(&codes.normalise(&normal, &again), &normal);
            prop_assert!(StartCodes::of(&normal, &again).is_some());
            let mut assembler = Assembler::new(codes, 10_000);
            let (mut out, mut joined) = (vec![0; limit], Vec::new());
            for unit in &found {
                let body = &stream[unit.offset..unit.offset + unit.length];
                for nth in 0..payloads(unit.length, limit) {
                    let length = write_payload(body, nth, limit, &mut out);
                    prop_assert!(length <= limit);
                    assembler.payload(&out[..length]);
                }
                if unit.ends {
                    let (bytes, whole) = assembler.access_unit();
                    prop_assert!(whole);
                    joined.extend_from_slice(bytes);
                    assembler.clear();
                }
            }
            prop_assert_eq!(joined, normal);
        }
    }
}

fn now() -> impl Strategy<Value = Instant<Tai>> {
    any::<i64>().prop_map(Instant::from_ns)
}

/// Bytes that are likely to get past the first checks.
fn nearly() -> impl Strategy<Value = Vec<u8>> {
    let head = proptest::sample::select(vec![2_u8, 3, 4, 5, 0x82]);
    (head, any::<u8>(), vec(any::<u8>(), 0..120), any::<u8>(), 0..4_u8).prop_map(
        |(subtype, flags, mut rest, length, small)| {
            // A length and the formats that fit more often than not.
            for (at, value) in [(14, small + 1), (16, 0), (18, 0), (19, length % 64)] {
                if let Some(byte) = rest.get_mut(at).filter(|_| length % 3 > 0) {
                    *byte = value;
                }
            }
            [vec![subtype, 0x80 | flags & 0x0f], rest].concat()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn t0_no_bytes_make_a_parser_panic(raw in vec(any::<u8>(), 0..120), nearly in nearly()) {
        for bytes in [raw, nearly] {
            if let Ok(pdu) = Pdu::parse(&bytes) {
                let messages = match &pdu {
                    Pdu::Tscf(tscf) => tscf.messages().count(),
                    Pdu::Ntscf(ntscf) => ntscf.messages().count(),
                    _ => 0,
                };
                prop_assert!(messages <= bytes.len());
                // What was read can be written, and is the same but for reserved bits.
                let mut out = [0; 200];
                let length = pdu.write(&mut out).unwrap();
                let again = Pdu::parse(&out[..length]).unwrap();
                let mut twice = [0; 200];
                prop_assert_eq!(again.write(&mut twice).unwrap(), length);
                prop_assert_eq!(out, twice);
                prop_assert!(length <= bytes.len());
            }
            let _ = AcfMessage::parse(&bytes);
            let _ = wav::read(&bytes);
            let _ = nal_units(&bytes);
            let riff = [b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0".as_slice(), &bytes].concat();
            let _ = wav::read(&riff);
        }
    }

    #[test]
    fn t0_no_payloads_make_the_assembler_panic(
        payloads in vec(vec(any::<u8>(), 0..12), 0..30), limit in 0_usize..60, gaps: u32
    ) {
        let mut assembler = Assembler::new(StartCodes::Shortest, limit);
        for (nth, payload) in (0..).zip(&payloads) {
            if gaps >> nth & 1 == 1 { assembler.gap(); }
            assembler.payload(payload);
            prop_assert!(assembler.access_unit().0.len() <= limit);
            if gaps >> (31 - nth) & 1 == 1 { assembler.clear(); }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn t0_no_packets_make_a_listener_panic(
        packets in vec((nearly(), any::<u8>(), now(), any::<bool>()), 0..60), capacity in 1_usize..9
    ) {
        let stream = StreamId::from_bits(0);
        let rate = NominalRate::K48;
        let format = AafFormat { sample: SampleFormat::Int16, rate, channels: 1, bit_depth: 16 };
        let mut aaf = AafListener::new(AafListenerConfig {
            stream, format, samples_per_packet: 6, capacity, late: Late::Keep,
        }).unwrap();
        let mut cvf = CvfListener::new(CvfListenerConfig {
            stream, capacity, max_payload: 40, max_access_unit: 90, late: Late::Discard,
            start_codes: StartCodes::Four,
        }).unwrap();
        let clock = CrfClock {
            kind: CrfType::AudioSample, pull: Pull::One, base_frequency_hz: 48_000, interval: 96,
        };
        let mut crf = CrfListener::new(stream, clock, 16).unwrap();
        let mut control = ControlListener::new(stream);
        for (mut bytes, sequence, now, far) in packets {
            // Of this stream, in this format; times near or anywhere.
            bytes.resize(bytes.len().max(60), 0);
            let at = if bytes[0] == 0x82 { 3 } else { 2 };
            bytes[at] = sequence;
            bytes[4..12].fill(0);
            match bytes[0] {
                2 => bytes[16..24].copy_from_slice(&[4, 0x50, 1, 16, 0, 12, 0, 0]),
                4 => {
                    bytes[3] = 1;
                    bytes[12..20].copy_from_slice(&[0, 0, 0xbb, 0x80, 0, 16, 0, 96]);
                    bytes[20] &= 0x7f;
                    bytes[28] &= 0x7f;
                }
                _ => {}
            }
            let now = if far { now } else { Instant::from_ns(now.as_ns() >> 30) };
            let _ = aaf.receive(now, &bytes);
            let _ = cvf.receive(now, &bytes);
            let _ = crf.receive(now, &bytes);
            let _ = control.receive(now, &bytes).map(|all| all.map(|all| all.messages.count()));
            let _ = (aaf.next_time(), cvf.next_time(), crf.rate());
            while aaf.present(now).is_some() {}
            while cvf.present(now).is_some() {}
        }
        cvf.finish();
        for (counters, waiting) in [
            (aaf.counters(), aaf.waiting()), (cvf.counters(), cvf.waiting()),
            (crf.counters(), 0), (control.counters(), 0),
        ] {
            let all = counters.presented + counters.duplicates + counters.discarded;
            prop_assert_eq!(counters.received, all + u64::try_from(waiting).unwrap());
        }
    }

    #[test]
    fn t0_recovery_never_panics(times in vec((any::<i64>(), now()), 0..40), hz in 1_u32.., s: u16) {
        let cadence = Cadence::new(u64::from(s) + 1, hz.into()).unwrap();
        let mut recovery = ClockRecovery::new(cadence, 8).unwrap();
        for (event, at) in times {
            recovery.push(event, at);
            let _ = recovery.rate();
        }
    }

    #[test]
    fn t0_missing_is_what_never_came(
        gone in vec(any::<bool>(), 1..600), swaps in vec(0_usize..600, 0..30)
    ) {
        // At most 100 in a row missing; neighbours change places.
        let mut numbers: Vec<i64> = (0..).zip(&gone)
            .filter(|(n, gone)| !**gone || n % 100 == 0).map(|(n, _)| n).collect();
        for at in swaps {
            if at + 1 < numbers.len() { numbers.swap(at, at + 1); }
        }
        let mut sequence = Sequence::new();
        for number in &numbers {
            let index = sequence.index_of(u8::try_from(number % 256).unwrap());
            sequence.note(index);
        }
        let (low, high) = (numbers.iter().min().unwrap(), numbers.iter().max().unwrap());
        let span = u64::try_from(high - low + 1).unwrap();
        prop_assert_eq!(sequence.missing(), span - u64::try_from(numbers.len()).unwrap());
    }
}
