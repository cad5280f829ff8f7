// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is told of packets that come: of talkers of other makes, and of packets that are not
//! understood.

use super::*;

/// The example talker of the reference library (COVESA Open1722, formerly AVnu libavtp,
/// `examples/aaf-talker.c`): one sample of two channels of 16 bits at 48 kHz in a packet.
const REFERENCE: [u8; 28] = [
    0x02, 0x81, 0x00, 0x00, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff, 0x00, 0x01, 0, 0, 0, 0, 0x04, 0x50,
    0x02, 0x10, 0x00, 0x04, 0x00, 0x00, 0, 0, 0, 0,
];
const STREAM: StreamId = StreamId::from_bits(0xaabb_ccdd_eeff_0001);
const NOW: Instant<Tai> = Instant::from_ns(1_800_000_000_000_000_000);

/// What is told of these packets, and what is in the file.
fn heard(
    name: &str,
    stream: Option<StreamId>,
    packets: impl Iterator<Item = (Instant<Tai>, Vec<u8>)>,
) -> (Heard, Vec<u8>) {
    heard_on("lo", name, stream, None, packets)
}

fn heard_on(
    interface: &str,
    name: &str,
    stream: Option<StreamId>,
    clock_error: Option<Span>,
    packets: impl Iterator<Item = (Instant<Tai>, Vec<u8>)>,
) -> (Heard, Vec<u8>) {
    let interface = IfName::new(interface).unwrap();
    let spec = ListenSpec { interface, clock_error, ..spec(name, stream) };
    let mut listener = Listener::new(&spec, 1_500).unwrap();
    for (at, payload) in packets {
        listener.take(Arrived { at, source: MacAddress([2; 6]), payload: &payload }).unwrap();
    }
    let heard = listener.finish().unwrap();
    let file = std::fs::read(&spec.out).unwrap_or_default();
    let _ = std::fs::remove_file(&spec.out);
    (heard, file)
}

fn spec(name: &str, stream: Option<StreamId>) -> ListenSpec {
    let out = std::env::temp_dir().join(format!("timewire-{name}-{}", std::process::id()));
    ListenSpec {
        interface: IfName::new("lo").unwrap(),
        stream,
        to: None,
        out,
        force: true,
        limits: Limits::default(),
        late: Late::Keep,
        start_codes: StartCodes::Shortest,
        max_access_unit: 1 << 20,
        clock_error: None,
    }
}

/// A second of the reference talker: it timestamps when it sends, and has 288 samples each 6 ms.
fn reference() -> impl Iterator<Item = (Instant<Tai>, Vec<u8>)> {
    (0..48_000_u32).map(|nth| {
        let sent = Span::from_us(6_000 * i64::from(nth / 288) + i64::from(nth % 288));
        let at = NOW.saturating_add(sent);
        let timestamp = timewire_avtp::AvtpTime::of(at.saturating_add(Span::from_ms(50))).bits();
        let mut packet = REFERENCE.to_vec();
        packet[2] = nth.to_le_bytes()[0];
        packet[12..16].copy_from_slice(&timestamp.to_be_bytes());
        packet[24..28].copy_from_slice(&nth.to_be_bytes());
        (at, packet)
    })
}

#[test]
fn t1_the_reference_talker_is_recorded_whole_and_its_timestamps_are_a_finding() {
    let (heard, file) = heard("reference", Some(STREAM), reference());
    let packets = heard.packets;
    assert_eq!((packets.received, packets.presented, packets.lost), (48_000, 48_000, 0));
    assert_eq!(heard.written, Some(Written::Audio { samples: 48_000, silent: 0 }));
    assert_eq!(heard.media.as_deref(), Some("48000 Hz, 2 channels of Int16"));
    let wav = timewire_avtp::media::wav::read(&file).unwrap();
    for (nth, sample) in (0_u32..).zip(wav.samples.chunks_exact(4)) {
        let [a, b, c, d] = nth.to_be_bytes();
        assert_eq!(sample, [b, a, d, c]);
    }
    let found =
        Expect::default().findings(&packets, &heard.timeliness, &heard.not_understood, None);
    let [one] = &found[..] else { panic!("{found:?}") };
    assert!(one.contains("off their media's rate"), "{one}");
    let allowed = Expect { irregular: 48_000, ..Expect::default() };
    assert!(allowed.findings(&packets, &heard.timeliness, &heard.not_understood, None).is_empty());
}

/// Packets of the stream that cannot be recorded, with what is told of each.
fn strange() -> Vec<(Vec<u8>, &'static str)> {
    let with = |changes: &[(usize, u8)]| {
        let mut packet = REFERENCE.to_vec();
        changes.iter().for_each(|(at, byte)| packet[*at] = *byte);
        packet
    };
    vec![
        (with(&[(0, 0x00)]), "IEC 61883/IIDC (subtype 0x00 at byte 0)"),
        (with(&[(0, 0x03), (16, 0)]), "format at byte 16 is 0x0; right would be 2 (RFC)"),
        (with(&[(0, 0x03), (16, 2), (17, 0)]), "format_subtype at byte 17 is MJPEG"),
        (with(&[(0, 0x03), (16, 2), (17, 3)]), "format_subtype at byte 17 is 0x3"),
        (with(&[(16, 0)]), "format at byte 16 is 0x0; right would be 1 FLOAT_32BIT"),
        (with(&[(16, 5)]), "format at byte 16 is 0x5"),
        (with(&[(17, 0x00)]), "nsr"),
        (with(&[(17, 0xf0)]), "nsr at byte 17 is 0xf"),
        (with(&[(21, 0)]), "it has no samples"),
        (with(&[(0, 0x04)]), "CRF (subtype 0x04"),
        (with(&[(0, 0x05)]), "TSCF (subtype 0x05"),
        (with(&[(0, 0x07)]), "RVF (subtype 0x07"),
        (with(&[(0, 0x6f)]), "VSF (subtype 0x6f"),
        (with(&[(0, 0x7f)]), "EF (subtype 0x7f"),
        (with(&[(0, 0x42)]), "reserved (subtype 0x42"),
        (with(&[(1, 0x91)]), "version at byte 1 is 0x1"),
        (with(&[(20, 0x40)]), "samples at byte 24 needs 16388 bytes"),
    ]
}

#[test]
fn t1_packets_of_the_stream_that_are_not_understood_are_never_absent() {
    for (packet, told) in strange() {
        // Alone, asked for or the first that is heard; and among those that are recorded.
        for (name, stream) in [("asked", Some(STREAM)), ("first", None)] {
            let alone = (0..200).map(|_| (NOW, packet.clone()));
            let (heard, file) = heard(name, stream, alone);
            assert!(file.is_empty() && heard.stream.is_none());
            let found = Expect::default().findings(
                &heard.packets,
                &heard.timeliness,
                &heard.not_understood,
                None,
            );
            let [one] = &found[..] else { panic!("{told}: {found:?}") };
            assert!(one.starts_with("inconclusive: 200 packets of stream aa:bb"), "{one}");
            assert!(one.contains(told), "{one}: {told}");
        }
        if told == "it has no samples" {
            // Once the format is known, a packet without samples is one of it.
            continue;
        }
        let mixed = reference().take(100).chain([(NOW, packet.clone())]);
        let (heard, _) = heard("mixed", Some(STREAM), mixed);
        let unread: u64 = heard.not_understood.iter().map(|it| it.packets).sum();
        assert_eq!(unread, 1, "{told}: {heard:?}");
        assert!(heard.not_understood[0].wanted);
    }
    // Of another stream they are told, and are no finding.
    let (packet, _) = strange().remove(0);
    let other = Some(StreamId::from_bits(1));
    let (heard, _) = heard("other", other, (0..9).map(|_| (NOW, packet.clone())));
    assert_eq!((heard.not_understood[0].packets, heard.not_understood[0].wanted), (9, false));
    let found =
        Expect::default().findings(&heard.packets, &heard.timeliness, &heard.not_understood, None);
    assert_eq!(found, ["nothing was heard of it"]);
}

#[test]
fn t1_two_talkers_with_one_stream_are_a_clash_and_no_duplicates() {
    let spec = spec("clash", Some(STREAM));
    let mut listener = Listener::new(&spec, 1_500).unwrap();
    for (at, payload) in reference().take(1_000) {
        for source in [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]].map(MacAddress) {
            listener.take(Arrived { at, source, payload: &payload }).unwrap();
        }
    }
    let heard = listener.finish().unwrap();
    let _ = std::fs::remove_file(&spec.out);
    let packets = heard.packets;
    assert_eq!((packets.received, packets.duplicates, packets.lost), (1_000, 0, 0));
    let found = Expect { irregular: 1_000, ..Expect::default() };
    let found =
        found.findings(&packets, &heard.timeliness, &heard.not_understood, heard.clash.as_ref());
    assert_eq!(
        found,
        ["clash: 1000 packets of the stream came from 02:00:00:00:00:02, not from \
          02:00:00:00:00:01, and were left out"]
    );
}

#[test]
fn t1_a_clock_that_is_off_loses_nothing_and_is_no_finding_where_it_is_not_known() {
    // Whatever the talker's clock says: timestamps are 32 bits, so all offsets are among these.
    for off_ms in (-2_100..2_100).step_by(300) {
        let packets = reference()
            .take(9_600)
            .map(|(at, packet)| (at.saturating_add(Span::from_ms(off_ms)), packet));
        let (heard, _) = heard_on("nosuch0", "off", Some(STREAM), None, packets);
        let counts = (heard.packets.received, heard.packets.presented, heard.packets.lost);
        assert_eq!(counts, (9_600, 9_600, 0), "{off_ms} ms");
        assert_eq!((heard.timeliness.late, heard.timeliness.margin.clone()), (None, None));
        let expect = Expect { irregular: 9_600, ..Expect::default() };
        let found = |expect: Expect| {
            expect.findings(&heard.packets, &heard.timeliness, &heard.not_understood, None)
        };
        assert!(found(expect).is_empty(), "{off_ms} ms: {:?}", found(expect));
        for asked in [
            Expect { late: Some(9_600), ..expect },
            Expect { margin: Some(Span::from_ns(1)), ..expect },
        ] {
            let found = found(asked);
            let [one] = &found[..] else { panic!("{found:?}") };
            assert!(one.starts_with("inconclusive: ") && one.contains("clock error unknown"));
        }
    }
}
