// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Streams from end to end: a file goes through talker, channel and listener.

use proptest::collection::vec;
use proptest::prelude::*;
use timewire_avtp::media::h264::{StartCodes, nal_units};
use timewire_avtp::media::wav::{self, Wav, WavFormat};
use timewire_avtp::pdu::{
    AcfMessage, Can, CanId, Crf, CrfClock, CrfType, NominalRate, Pdu, Pull, Reserved, SampleFormat,
    StreamId,
};
use timewire_avtp::stream::{
    AafListener, AafListenerConfig, AafTalker, AafTalkerConfig, ByteOrder, ControlFormat,
    ControlListener, ControlTalker, CrfListener, CrfTalker, CrfTalkerConfig, CvfListener,
    CvfListenerConfig, CvfTalker, CvfTalkerConfig, Late, Next, Received, Sound, StreamCounters,
    Tail,
};
use timewire_avtp::{AafPacking, Cadence, Ppb, SequenceOrder, SrClass};
use timewire_base::{Instant, SduLen, Span, Tai};

const STREAM: StreamId = StreamId::from_bits(0x0200_0000_0001_0001);
/// Near the wrap of 32 bits, so that presentation times wrap within a stream.
const START: Instant<Tai> = Instant::from_ns((400_000_000 << 32) - 20_000_000);

fn after(ns: i64) -> Instant<Tai> {
    START + Span::from_ns(ns)
}

/// A packet on its way: when it is sent, when it is to be presented, what it is.
type Sent = (Instant<Tai>, Instant<Tai>, Vec<u8>);

/// A generated file: 3 channels of 24 bits, an odd number of frames and of bytes.
fn music(rate_hz: u32, frames: usize) -> (WavFormat, Vec<u8>, Vec<u8>) {
    let sample = SampleFormat::Int24;
    let format = WavFormat { sample, channels: 3, rate_hz, valid_bits: 24, channel_mask: None };
    let mut state = 1_u32;
    let samples: Vec<u8> = (0..frames * 9)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state.to_be_bytes()[0]
        })
        .collect();
    let file = wav::write(&Wav { format, samples: &samples }).unwrap();
    (format, samples, file)
}

fn aaf_talker(format: WavFormat, sparse: bool, tail: Tail) -> (AafTalker, AafListenerConfig) {
    let format = format.aaf().unwrap();
    let packing = AafPacking::new(SrClass::A, format, SduLen::new(1_500).unwrap()).unwrap();
    let samples_per_packet = packing.samples_per_packet;
    let talker = AafTalker::new(AafTalkerConfig {
        stream: STREAM,
        format,
        samples_per_packet,
        transit: SrClass::A.max_transit(),
        start: START,
        lead: Span::ZERO,
        sparse,
        queue: 50,
        tail,
    });
    let late = Late::Discard;
    let listener =
        AafListenerConfig { stream: STREAM, format, samples_per_packet, capacity: 64, late };
    (talker.unwrap(), listener)
}

/// Everything that a talker sends of a file, each packet asked for at its own time.
fn play(talker: &mut AafTalker, mut samples: &[u8]) -> Vec<Sent> {
    let (mut sent, mut now) = (Vec::new(), START - Span::from_ms(1));
    loop {
        samples = &samples[talker.push(samples, ByteOrder::Little)..];
        if samples.is_empty() {
            talker.finish();
        }
        match talker.next(now) {
            Next::Packet(launch) => {
                assert_eq!(launch.launch_time, now);
                let presentation = launch.presentation_time.unwrap();
                assert_eq!(presentation, now + Span::from_ms(2));
                sent.push((now, presentation, launch.bytes.to_vec()));
            }
            Next::At(at) => {
                assert!(at > now);
                now = at;
            }
            Next::Starved => panic!("the file is there"),
            Next::Done => return sent,
        }
    }
}

/// What a listener lets hear: time and samples in little endian, gaps as `None`.
type Heard = Vec<(Instant<Tai>, Option<Vec<u8>>, u64)>;

fn hear(listener: &mut AafListener, now: Instant<Tai>, heard: &mut Heard) {
    while let Some(sound) = listener.present(now) {
        match sound {
            Sound::Samples { at, bytes } => {
                let mut little = vec![0; bytes.len()];
                SampleFormat::Int24.swap(bytes, &mut little);
                heard.push((at, Some(little), 1));
            }
            Sound::Gap { at, packets, samples } => {
                assert_eq!(samples, packets * 6);
                heard.push((at, None, packets));
            }
        }
    }
}

#[test]
fn t0_a_wav_file_comes_back_bit_for_bit_at_its_times() {
    for (rate_hz, sparse) in [(48_000, false), (44_100, false), (48_000, true), (44_100, true)] {
        let (format, samples, file) = music(rate_hz, 4_001);
        let (mut talker, listener) = aaf_talker(format, sparse, Tail::Short);
        let sent = play(&mut talker, wav::read(&file).unwrap().samples);
        assert_eq!(sent.len(), 667);
        let mut listener = AafListener::new(listener).unwrap();
        let mut heard = Vec::new();
        for (nth, (launch, _, bytes)) in (0_i64..).zip(&sent) {
            let expected = nth * 6 * 1_000_000_000 / i64::from(rate_hz);
            assert_eq!(*launch, after(expected));
            let Pdu::Aaf(aaf) = Pdu::parse(bytes).unwrap() else { panic!() };
            assert_eq!(aaf.header.timestamp.is_some(), !sparse || nth % 8 == 0);
            // 300 us on the way; nothing is heard before its time.
            let now = *launch + Span::from_us(300);
            assert_eq!(listener.receive(now, bytes), Ok(Received::Kept));
            hear(&mut listener, now, &mut heard);
        }
        assert_eq!(listener.next_time(), Some(sent[heard.len()].1));
        hear(&mut listener, START + Span::from_secs(1), &mut heard);
        assert_eq!(listener.next_time(), None);
        let back: Vec<u8> = heard.iter().flat_map(|(_, bytes, _)| bytes.clone().unwrap()).collect();
        assert_eq!(wav::write(&Wav { format, samples: &back }).unwrap(), file);
        assert_eq!(back, samples);
        // Between two sparse timestamps a listener's times are computed, and may round otherwise.
        let tolerance = if sparse { Span::from_ns(1) } else { Span::ZERO };
        for ((_, presentation, _), (at, ..)) in sent.iter().zip(&heard) {
            let off = *at - *presentation;
            assert!(off <= tolerance && -off <= tolerance, "{off}");
        }
        let all = 667;
        let expected = StreamCounters { received: all, presented: all, ..Default::default() };
        assert_eq!(listener.counters(), expected);
    }
}

#[test]
fn t0_a_talker_fills_up_starves_and_starts_anew() {
    let (format, samples, _) = music(48_000, 13);
    let (mut talker, _) = aaf_talker(format, false, Tail::Silence);
    assert_eq!(talker.next(START), Next::Starved);
    assert_eq!(talker.push(&samples[..9 * 7 + 5], ByteOrder::Little), 9 * 7);
    assert_eq!(talker.queued(), 7);
    assert!(matches!(talker.next(START), Next::Packet(_)));
    assert_eq!(talker.next(START), Next::At(after(125_000)));
    assert_eq!(talker.next(after(125_000)), Next::Starved);
    talker.restart(after(1_000_000));
    assert_eq!(talker.push(&samples[9 * 7..], ByteOrder::Little), 9 * 6);
    talker.finish();
    assert_eq!(talker.next(after(125_000)), Next::At(after(1_000_000)));
    for (launch, restart, length) in [(1_000_000, true, 54), (1_125_000, true, 54)] {
        let Next::Packet(packet) = talker.next(after(launch)) else { panic!() };
        let Pdu::Aaf(aaf) = Pdu::parse(packet.bytes).unwrap() else { panic!() };
        assert_eq!((packet.launch_time, aaf.header.media_restart), (after(launch), restart));
        assert_eq!(aaf.samples.len(), length);
        if launch == 1_125_000 {
            assert_eq!(&aaf.samples[9..], [0; 45]);
        }
    }
    assert_eq!(talker.next(after(9_000_000)), Next::Done);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Fates: 0 lost, 1 doubled, 2 to 5 delayed by so many packets, 6 late, else on time.
    #[test]
    fn t0_loss_order_duplicates_and_lateness_are_counted_exactly(fates in vec(0_u8..40, 3..400)) {
        let (format, _, file) = music(48_000, fates.len() * 6);
        let (mut talker, listener) = aaf_talker(format, false, Tail::Short);
        let sent = play(&mut talker, wav::read(&file).unwrap().samples);
        prop_assert_eq!(sent.len(), fates.len());
        let last = sent.len() - 1;
        let mut arrivals = Vec::new();
        let mut gone = vec![false; sent.len()];
        let mut expected = StreamCounters::default();
        for (nth, (launch, presentation, _)) in sent.iter().enumerate() {
            // The first and the last come, so that all loss is between packets.
            let fate = if nth == 0 || nth == last { 40 } else { fates[nth] };
            let transit = Span::from_us(300);
            match fate {
                0 => gone[nth] = true,
                1 => {
                    arrivals.push((*launch + transit, nth));
                    arrivals.push((*launch + transit + Span::from_us(10), nth));
                    expected.duplicates += 1;
                }
                2..=5 => {
                    let more = Span::from_us(125 * i64::from(fate) + 20);
                    arrivals.push((*launch + transit + more, nth));
                }
                6 => {
                    arrivals.push((*presentation + Span::from_us(60), nth));
                    gone[nth] = true;
                    expected.late += 1;
                    expected.discarded += 1;
                }
                _ => arrivals.push((*launch + transit, nth)),
            }
        }
        arrivals.sort();
        let mut highest = 0;
        let mut seen = vec![false; sent.len()];
        for (_, nth) in &arrivals {
            expected.reordered += u64::from(*nth < highest && !seen[*nth]);
            seen[*nth] = true;
            highest = highest.max(*nth);
        }
        expected.received = u64::try_from(arrivals.len()).unwrap();
        expected.lost = gone.iter().map(|gone| u64::from(*gone)).sum();
        expected.presented = u64::try_from(sent.len()).unwrap() - expected.lost;

        let mut listener = AafListener::new(listener).unwrap();
        let mut heard = Vec::new();
        for (now, nth) in arrivals {
            hear(&mut listener, now, &mut heard);
            listener.receive(now, &sent[nth].2).unwrap();
        }
        hear(&mut listener, START + Span::from_secs(9), &mut heard);
        prop_assert_eq!(listener.counters(), expected);

        // All in order, each at its time, gaps where packets are gone.
        let mut next = 0;
        for (at, bytes, packets) in heard {
            prop_assert_eq!(at, sent[next].1);
            match bytes {
                Some(bytes) => {
                    let original = wav::read(&file).unwrap().samples;
                    prop_assert_eq!(&bytes, &original[next * 54..next * 54 + 54]);
                    prop_assert!(!gone[next]);
                }
                None => {
                    let packets = usize::try_from(packets).unwrap();
                    prop_assert!(gone[next..next + packets].iter().all(|gone| *gone));
                }
            }
            next += usize::try_from(packets).unwrap();
        }
        prop_assert_eq!(next, sent.len());
    }
}

#[test]
fn t0_a_long_hole_is_counted_by_the_times() {
    let (format, samples, _) = music(48_000, 6 * 5_000);
    for hole in [1, 127, 128, 200, 255, 256, 257, 1_000, 4_000] {
        let (mut talker, listener) = aaf_talker(format, false, Tail::Short);
        let sent = play(&mut talker, &samples);
        let mut listener = AafListener::new(listener).unwrap();
        let mut heard = Vec::new();
        for (nth, (launch, _, bytes)) in sent.iter().enumerate() {
            if !(100..100 + hole).contains(&nth) {
                let now = *launch + Span::from_us(300);
                hear(&mut listener, now, &mut heard);
                assert_eq!(listener.receive(now, bytes), Ok(Received::Kept), "{hole} {nth}");
            }
        }
        hear(&mut listener, START + Span::from_secs(9), &mut heard);
        assert_eq!(listener.counters().lost, u64::try_from(hole).unwrap());
        let gaps: Vec<_> = heard.iter().filter(|(_, bytes, _)| bytes.is_none()).collect();
        assert_eq!(gaps.len(), 1);
        assert_eq!((gaps[0].0, gaps[0].2), (sent[100].1, u64::try_from(hole).unwrap()));
    }
}

#[test]
fn t0_a_recorder_keeps_late_packets_and_full_room_is_counted() {
    let (format, samples, _) = music(48_000, 6 * 100);
    let (mut talker, config) = aaf_talker(format, false, Tail::Short);
    let sent = play(&mut talker, &samples);
    let late = START + Span::from_secs(1);
    let mut listener = AafListener::new(AafListenerConfig { late: Late::Keep, ..config }).unwrap();
    let mut heard = Vec::new();
    for (_, _, bytes) in &sent {
        assert_eq!(listener.receive(late, bytes), Ok(Received::Kept));
        hear(&mut listener, late, &mut heard);
    }
    let back: Vec<u8> = heard.iter().flat_map(|(_, bytes, _)| bytes.clone().unwrap()).collect();
    assert_eq!(back, samples);
    let counters = listener.counters();
    assert_eq!((counters.late, counters.presented, counters.discarded), (100, 100, 0));

    // Room for 64 packets; then for shorter ones.
    let mut listener = AafListener::new(config).unwrap();
    let all = sent.iter().map(|(_, _, bytes)| listener.receive(START, bytes).unwrap());
    assert_eq!(all.filter(|all| *all == Received::TooFar).count(), 36);
    assert_eq!((listener.waiting(), listener.counters().discarded), (64, 36));
    let short = AafListenerConfig { samples_per_packet: 5, ..config };
    let mut listener = AafListener::new(short).unwrap();
    assert_eq!(listener.receive(START, &sent[0].2), Ok(Received::TooLong));
    assert_eq!(listener.counters().discarded, 1);
    // A packet that comes after it was given up.
    let mut listener = AafListener::new(config).unwrap();
    for nth in [0, 2, 1] {
        let expected = if nth == 1 { Received::Late } else { Received::Kept };
        assert_eq!(listener.receive(START, &sent[nth].2), Ok(expected));
        hear(&mut listener, sent[2].1, &mut Vec::new());
    }
    let counters = listener.counters();
    assert_eq!((counters.lost, counters.late, counters.reordered), (1, 1, 1));
}

#[test]
fn t0_other_packets_are_counted_and_dropped() {
    let (format, samples, _) = music(48_000, 6);
    let (mut talker, config) = aaf_talker(format, false, Tail::Short);
    let bytes = play(&mut talker, &samples).remove(0).2;
    let mut listener = AafListener::new(config).unwrap();
    let mut changed = |at: usize, byte: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = byte;
        listener.receive(START, &bytes)
    };
    assert_eq!(changed(4, 9), Ok(Received::OtherStream));
    assert_eq!(changed(17, 0x70), Ok(Received::OtherFormat));
    assert!(changed(0, 0x7f).is_err());
    assert_eq!(changed(3, 0x03), Ok(Received::Kept));
    assert_eq!(changed(1, 0x89), Ok(Received::Duplicate));
    let expected = StreamCounters {
        received: 2,
        duplicates: 1,
        other_stream: 1,
        other_format: 1,
        malformed: 1,
        media_restarts: 1,
        uncertain: 1,
        reserved: 1,
        ..StreamCounters::default()
    };
    assert_eq!(listener.counters(), expected);
}

/// A byte stream like an encoder's: parameter sets, SEI, pictures of several slices, from 1 byte to
/// many packets; with the start codes of the policy.
fn film(pictures: usize, codes: StartCodes) -> Vec<u8> {
    let mut stream = Vec::new();
    let mut unit = |long: bool, head: u8, body: &[u8]| {
        let long = long || codes == StartCodes::Four;
        stream.extend(if long { [0, 0, 0, 1].as_slice() } else { &[0, 0, 1] });
        stream.push(head);
        stream.extend(body);
    };
    for picture in 0..pictures {
        let key = picture % 10 == 0;
        if key {
            unit(true, 0x67, &[0x42, 0, 0x1f, 0xe9]);
            unit(true, 0x68, &[0xce, 0x3c, 0x80]);
            unit(false, 0x06, &[5, 3, 1, 2, 3, 0x80]);
        }
        for slice in 0..3 {
            let length = if key { 3_000 } else { 137 } * slice + 20 + picture * 7 % 90;
            let mut body: Vec<u8> =
                (0..length).map(|n| u8::try_from(n % 251).unwrap() | 2).collect();
            // The first bit says whether it is macroblock 0.
            body[0] = if slice == 0 { 0x88 } else { 0x44 };
            body.extend([0, 0, 3, 1, 0x80]);
            unit(slice == 0 && !key, if key { 0x65 } else { 0x41 }, &body);
        }
    }
    stream
}

fn cvf(stream: Vec<u8>, codes: StartCodes) -> (CvfTalker, CvfListener) {
    let max_payload = 1_000;
    let talker = CvfTalker::new(
        CvfTalkerConfig {
            stream: STREAM,
            class: SrClass::A,
            transit: SrClass::A.max_transit(),
            start: START,
            lead: Span::from_us(50),
            frame_rate: Cadence::new(1_001, 30_000).unwrap(),
            max_payload,
            packets_per_interval: 2,
        },
        stream,
    );
    let listener = CvfListener::new(CvfListenerConfig {
        stream: STREAM,
        capacity: 100,
        max_payload,
        max_access_unit: 20_000,
        start_codes: codes,
        late: Late::Discard,
    });
    (talker.unwrap(), listener.unwrap())
}

fn show(talker: &mut CvfTalker) -> Vec<Sent> {
    let (mut sent, mut now) = (Vec::new(), START - Span::from_ms(1));
    loop {
        match talker.next(now) {
            Next::Packet(launch) => {
                let presentation = launch.presentation_time.unwrap();
                sent.push((launch.launch_time, presentation, launch.bytes.to_vec()));
            }
            Next::At(at) => {
                assert!(at > now);
                now = at;
            }
            Next::Starved => panic!("the file is there"),
            Next::Done => return sent,
        }
    }
}

#[test]
fn t0_an_h264_file_comes_back_bit_for_bit_at_its_times() {
    for codes in [StartCodes::Four, StartCodes::Shortest] {
        let film = film(35, codes);
        let (mut talker, mut listener) = cvf(film.clone(), codes);
        assert_eq!(StartCodes::of(&film, talker.units()), Some(codes));
        assert_eq!(talker.units().iter().filter(|unit| unit.begins).count(), 35);
        assert_eq!(talker.units().iter().filter(|unit| unit.ends).count(), 35);
        let reservation = talker.reservation().unwrap();
        assert_eq!(reservation.tspec().max_frame_size.get(), 1_028);
        let sent = show(&mut talker);
        let (mut back, mut pictures) = (Vec::new(), 0);
        let mut rate = std::collections::BTreeMap::new();
        let mut look = |listener: &mut CvfListener, now| {
            while let Some(unit) = listener.present(now) {
                let end = (pictures + 1) * 1_001 * 1_000_000_000 / 30_000;
                assert_eq!(unit.at, after(end + 2_000_000));
                assert!(unit.whole && unit.at <= now);
                back.extend_from_slice(unit.bytes);
                pictures += 1;
            }
        };
        for (launch, presentation, bytes) in &sent {
            *rate.entry(*launch).or_insert(0) += 1;
            assert!(*launch + Span::from_ms(2) <= *presentation);
            let now = *launch + Span::from_us(400);
            look(&mut listener, now);
            assert_eq!(listener.receive(now, bytes), Ok(Received::Kept));
        }
        look(&mut listener, START + Span::from_secs(9));
        assert_eq!(pictures, 35);
        assert_eq!(back, film);
        // Never more than two at a time, the next 125 us later.
        assert!(rate.values().all(|count| *count <= 2));
        let times: Vec<_> = rate.keys().copied().collect();
        assert!(times.windows(2).all(|two| two[1] - two[0] >= Span::from_us(125)));
        let all = u64::try_from(sent.len()).unwrap();
        let expected = StreamCounters { received: all, presented: all, ..Default::default() };
        assert_eq!(listener.counters(), expected);
        assert_eq!(listener.nal_counters().nal_units, 35 * 3 + 4 * 3);
    }
    // Other start codes: the same NAL units, in normal form.
    let codes = StartCodes::Shortest;
    let odd = [&[0, 0, 0, 0][..], &film(2, codes), &[0, 0, 0, 0, 1, 9, 0x10, 0, 0]].concat();
    let units = nal_units(&odd).unwrap();
    assert_eq!(StartCodes::of(&odd, &units), None);
    let (mut talker, mut listener) = cvf(odd.clone(), codes);
    for (launch, _, bytes) in show(&mut talker) {
        listener.receive(launch, &bytes).unwrap();
    }
    let mut back = Vec::new();
    while let Some(unit) = listener.present(START + Span::from_secs(9)) {
        back.extend_from_slice(unit.bytes);
    }
    assert_eq!(back, codes.normalise(&odd, &units));
}

#[test]
fn t0_a_long_hole_in_a_film_is_counted_up_to_255_packets() {
    for hole in [1, 100, 127, 128, 200, 255] {
        let codes = StartCodes::Four;
        let (mut talker, mut listener) = cvf(film(200, codes), codes);
        for (nth, (launch, _, bytes)) in show(&mut talker).iter().enumerate() {
            let now = *launch + Span::from_us(400);
            while listener.present(now).is_some() {}
            if !(150..150 + hole).contains(&nth) {
                assert_eq!(listener.receive(now, bytes), Ok(Received::Kept), "{hole} {nth}");
            }
        }
        while listener.present(START + Span::from_secs(99)).is_some() {}
        let counters = listener.counters();
        assert_eq!((counters.lost, counters.late), (u64::try_from(hole).unwrap(), 0));
    }
}

#[test]
fn t0_a_talker_too_slow_for_its_film_is_refused() {
    let config = CvfTalkerConfig {
        stream: STREAM,
        class: SrClass::B,
        transit: SrClass::B.max_transit(),
        start: START,
        lead: Span::ZERO,
        frame_rate: Cadence::of_hz(1_000).unwrap(),
        max_payload: 1_000,
        packets_per_interval: 1,
    };
    // The largest picture: 3 short NAL units and slices of 1, 4 and 7 packets, in 4 intervals.
    let error = CvfTalker::new(config, film(1, StartCodes::Four)).unwrap_err().to_string();
    assert_eq!(error, "packets in an interval of 1 cannot be: it takes 4 to 65535");
    let enough = CvfTalkerConfig { packets_per_interval: 4, ..config };
    assert!(CvfTalker::new(enough, film(1, StartCodes::Four)).is_ok());
    let error = CvfTalker::new(config, vec![7, 0, 0, 1, 9]).unwrap_err().to_string();
    assert_eq!(error, "the byte stream at byte 0 is 0x7; right would be 00 00 01 or 00 00 00 01");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn t0_pictures_with_loss_are_never_called_whole(fates in vec(0_u8..50, 1..80), twice: bool) {
        let codes = StartCodes::Shortest;
        let film = film(25, codes);
        let (mut talker, mut listener) = cvf(film.clone(), codes);
        let units = talker.units().to_vec();
        let sent = show(&mut talker);
        let fate = |nth: usize| fates[nth % fates.len()];
        // A picture is whole when no packet of it is missing.
        let mut intact = std::collections::BTreeMap::new();
        let (mut lost, mut received) = (0, 0);
        // Every picture of which a packet came is handed out once, in order.
        let (mut came, mut shown) = (std::collections::BTreeSet::new(), Vec::new());
        let last = sent.len() - 1;
        let mut order: Vec<usize> = (0..sent.len()).collect();
        for nth in (0..last).step_by(2) {
            // Neighbours change places.
            if fate(nth) == 9 { order.swap(nth, nth + 1); }
        }
        for (nth, (_, at, _)) in sent.iter().enumerate() {
            let missing = fate(nth) == 0 && nth != 0 && nth != last;
            *intact.entry(*at).or_insert(true) &= !missing;
            lost += u64::from(missing);
        }
        for nth in order {
            if fate(nth) == 0 && nth != 0 && nth != last { continue; }
            let now = sent[nth].0 + Span::from_us(400);
            while let Some(unit) = listener.present(now) {
                prop_assert!(!unit.whole || intact[&unit.at]);
                shown.push(unit.at);
            }
            for _ in 0..if twice { 2 } else { 1 } {
                listener.receive(now, &sent[nth].2).unwrap();
                received += 1;
                came.insert(sent[nth].1);
            }
        }
        let mut pictures: Vec<Vec<u8>> = Vec::new();
        for unit in &units {
            if unit.begins { pictures.push(Vec::new()); }
            let body = &film[unit.offset - unit.start_code..unit.offset + unit.length];
            pictures.last_mut().unwrap().extend(body);
        }
        let by_time: std::collections::BTreeMap<_, _> =
            intact.keys().copied().zip(&pictures).collect();
        while let Some(unit) = listener.present(START + Span::from_secs(9)) {
            shown.push(unit.at);
            if unit.whole {
                prop_assert!(intact[&unit.at]);
                prop_assert_eq!(unit.bytes, &by_time[&unit.at][..]);
            }
        }
        if let Some(unit) = listener.finish() {
            prop_assert!(!unit.whole);
            shown.push(unit.at);
        }
        prop_assert_eq!(shown, came.into_iter().collect::<Vec<_>>());
        let counters = listener.counters();
        prop_assert_eq!((counters.lost, counters.received), (lost, received));
        prop_assert_eq!(counters.duplicates, if twice { received / 2 } else { 0 });
        prop_assert_eq!(counters.late + counters.discarded, 0);
    }
}

#[test]
fn t0_a_listener_recovers_the_rate_of_a_clock() {
    let clock = CrfClock {
        kind: CrfType::AudioSample,
        pull: Pull::One,
        base_frequency_hz: 48_000,
        interval: 160,
    };
    for ppb in [0, 50_000, -100_000] {
        let mut talker = CrfTalker::new(CrfTalkerConfig {
            stream: STREAM,
            clock,
            timestamps_per_packet: 6,
            transit: SrClass::A.max_transit(),
            start: START,
            lead: Span::ZERO,
            rate: Ppb::new(ppb),
        })
        .unwrap();
        let mut listener = CrfListener::new(STREAM, clock, 600).unwrap();
        let (mut now, mut packets) = (START, 0_u64);
        while packets < 400 {
            match talker.next(now) {
                Next::At(at) => now = at,
                Next::Packet(launch) => {
                    packets += 1;
                    assert_eq!(launch.launch_time, now);
                    // One in ten is lost, one in ten comes twice.
                    let expected = [Ok(Received::Kept), Ok(Received::Duplicate)];
                    let times = [1, 0, 2].get(usize::try_from(packets % 10).unwrap());
                    for expected in &expected[..*times.unwrap_or(&1)] {
                        assert_eq!(listener.receive(now, launch.bytes), *expected);
                    }
                }
                _ => panic!("a clock does not end"),
            }
        }
        let found = listener.rate().unwrap().get();
        assert!((found - ppb).abs() <= 1, "{found} for {ppb}");
        // The first of the stream was lost, and nobody can know.
        let expected = StreamCounters {
            received: 400,
            presented: 360,
            duplicates: 40,
            lost: 39,
            ..StreamCounters::default()
        };
        assert_eq!(listener.counters(), expected);
        let event = i128::from(2_399 * 160) * 1_000_000_000_000_000_000
            / (48_000 * i128::from(1_000_000_000 + ppb));
        let last = after(i64::try_from(event).unwrap() + 2_000_000);
        assert!((listener.last().unwrap() - last).as_ns().abs() <= 1);
    }
}

#[test]
fn t0_a_clock_that_starts_anew_is_judged_anew() {
    let clock = CrfClock {
        kind: CrfType::VideoFrame,
        pull: Pull::Down1001,
        base_frequency_hz: 30,
        interval: 1,
    };
    let mut listener = CrfListener::new(STREAM, clock, 100).unwrap();
    let mut send = |sequence, media_restart, times: &[i64], kind, now| {
        let data: Vec<u8> = times.iter().flat_map(|ms| (ms * 1_000_000).to_be_bytes()).collect();
        let crf = Crf {
            stream: STREAM,
            sequence,
            media_restart,
            frame_sync: false,
            timestamp_uncertain: false,
            clock: CrfClock { kind, ..clock },
            data: &data,
            reserved: Reserved::NONE,
        };
        let mut out = [0; 100];
        let length = crf.write(&mut out).unwrap();
        let received = listener.receive(Instant::from_ns(now), &out[..length]).unwrap();
        (received, listener.rate().is_some())
    };
    let kind = CrfType::VideoFrame;
    assert_eq!(send(0, false, &[100], kind, 0), (Received::Kept, false));
    assert_eq!(send(1, false, &[133], kind, 0), (Received::Kept, true));
    // The media's clock starts anew; then a packet has another number of timestamps.
    assert_eq!(send(2, true, &[166], kind, 0), (Received::Kept, false));
    assert_eq!(send(3, true, &[200], kind, 0), (Received::Kept, true));
    assert_eq!(send(4, true, &[], CrfType::User, 0), (Received::OtherFormat, true));
    assert_eq!(send(6, true, &[300, 333], kind, 0), (Received::Kept, true));
    // One that is behind changes nothing; then packets have another length again; one is past,
    // which the rate does not mind.
    assert_eq!(send(5, true, &[266], kind, 0), (Received::Late, true));
    assert_eq!(send(7, true, &[366], kind, 0), (Received::Kept, false));
    assert_eq!(send(8, true, &[400], kind, 400_000_001), (Received::Kept, true));
    let expected = StreamCounters {
        received: 8,
        presented: 7,
        discarded: 1,
        late: 1,
        reordered: 1,
        lost: 1,
        media_restarts: 1,
        other_format: 1,
        ..StreamCounters::default()
    };
    assert_eq!(listener.counters(), expected);
}

#[test]
fn t0_can_frames_arrive_in_both_formats() {
    for format in [ControlFormat::Tscf(SrClass::B.max_transit()), ControlFormat::Ntscf] {
        let mut talker = ControlTalker::new(STREAM, format, 100).unwrap();
        let mut listener = ControlListener::new(STREAM);
        assert_eq!(talker.next(START), None);
        let (mut sent, mut packets) = (Vec::new(), Vec::new());
        let data: Vec<u8> = (0..8).collect();
        for n in 0..100_u16 {
            let can = Can {
                bus: 3,
                id: CanId::Standard(n),
                remote: false,
                flexible: false,
                rate_switch: false,
                error_passive: false,
                data: &data[..usize::from(n % 9)],
                reserved: Reserved::NONE,
            };
            let time = Some(after(i64::from(n)));
            let message =
                if n % 2 == 0 { AcfMessage::CanBrief(can) } else { AcfMessage::Can(can, time) };
            let now = after(i64::from(n) * 1_000);
            if !talker.push(&message).unwrap() {
                packets.push((now, talker.next(now).unwrap().bytes.to_vec()));
                assert!(talker.push(&message).unwrap());
            }
            sent.push(message);
        }
        packets.push((after(100_000), talker.next(after(100_000)).unwrap().bytes.to_vec()));
        let mut read = Vec::new();
        for (now, bytes) in &packets {
            let control = listener.receive(*now, bytes).unwrap().unwrap();
            let expected = (format != ControlFormat::Ntscf).then(|| *now + Span::from_ms(50));
            assert_eq!((control.at, control.late), (expected, false));
            read.extend(control.messages.map(Result::unwrap));
        }
        assert_eq!(read, sent);
        let count = u64::try_from(packets.len()).unwrap();
        let expected = StreamCounters { received: count, presented: count, ..Default::default() };
        assert_eq!(listener.counters(), expected);

        // Without the second, with the third before the first, the first twice, and late.
        let mut listener = ControlListener::new(STREAM);
        let late = after(60_000_000);
        let mut places = Vec::new();
        for nth in [2, 0, 0, 4] {
            let control = listener.receive(late, &packets[nth].1).unwrap();
            places.push(control.map(|control| (control.place, control.late)));
        }
        let is_late = format != ControlFormat::Ntscf;
        assert_eq!(
            places,
            [
                Some((SequenceOrder::First, is_late)),
                Some((SequenceOrder::Behind, is_late)),
                None,
                Some((SequenceOrder::Ahead { missing: 1 }, is_late)),
            ]
        );
        let expected = StreamCounters {
            received: 4,
            presented: 3,
            duplicates: 1,
            reordered: 1,
            lost: 2,
            late: if is_late { 3 } else { 0 },
            ..StreamCounters::default()
        };
        assert_eq!(listener.counters(), expected);
    }
}

#[test]
fn t0_rates_of_files_have_names_in_packets() {
    let (format, ..) = music(48_000, 1);
    assert_eq!(format.aaf().unwrap().rate, NominalRate::K48);
    assert!(WavFormat { rate_hz: 11_025, ..format }.aaf().is_err());
    assert!(WavFormat { channels: 1_024, ..format }.aaf().is_err());
}

#[test]
fn t0_a_film_that_is_shown_again_goes_on_in_time() {
    let film = film(3, StartCodes::Four);
    let (mut talker, mut listener) = cvf(film.clone(), StartCodes::Four);
    let mut sent = show(&mut talker);
    talker.rewind();
    sent.extend(show(&mut talker));
    let mut back = Vec::new();
    for (launch, _, bytes) in &sent {
        assert_eq!(listener.receive(*launch, bytes), Ok(Received::Kept));
    }
    let mut times = Vec::new();
    while let Some(unit) = listener.present(START + Span::from_secs(1)) {
        back.extend_from_slice(unit.bytes);
        times.push(unit.at);
    }
    assert_eq!(back, film.repeat(2));
    let expected = (1..=6).map(|n| after(n * 1_001 * 1_000_000_000 / 30_000 + 2_000_000));
    assert_eq!(times, expected.collect::<Vec<_>>());
}
