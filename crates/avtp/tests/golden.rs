// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets byte by byte, put together by hand from the field tables of IEEE 1722-2016.

use timewire_avtp::pdu::{
    Aaf, AafFormat, AcfMessage, Can, CanId, Crf, CrfClock, CrfType, Cvf, CvfFormat, Gpc,
    NominalRate, Ntscf, OpaqueAcf, Pdu, Pull, Reserved, SampleFormat, StreamHeader, StreamId, Tscf,
};
use timewire_avtp::{AvtpError, AvtpTime};
use timewire_base::Instant;

const STREAM: StreamId = StreamId::from_bits(0x0200_0000_0001_0007);

fn header() -> StreamHeader {
    StreamHeader {
        stream: STREAM,
        sequence: 0x2a,
        media_restart: true,
        timestamp: Some(AvtpTime::from_bits(0x80c0_ffee)),
        timestamp_uncertain: true,
    }
}

/// Writes, compares, reads again.
fn is(pdu: &Pdu<'_>, expected: &[u8]) {
    let mut out = [0xff; 200];
    let length = pdu.write(&mut out).unwrap();
    assert_eq!(&out[..length], expected);
    assert_eq!(&Pdu::parse(expected).unwrap(), pdu);
    // What follows is padding of the link.
    assert_eq!(&Pdu::parse(&[expected, &[0; 20]].concat()).unwrap(), pdu);
    for short in 0..expected.len() {
        assert!(Pdu::parse(&expected[..short]).is_err(), "{short} bytes");
        assert!(pdu.write(&mut out[..short]).is_err(), "room for {short} bytes");
    }
}

#[test]
fn t1_aaf() {
    let format = AafFormat {
        sample: SampleFormat::Int24,
        rate: NominalRate::K48,
        channels: 0x102,
        bit_depth: 20,
    };
    let samples = vec![0x5a; 0x102 * 3];
    let aaf = Aaf {
        header: header(),
        format,
        sparse: true,
        event: 9,
        samples: &samples,
        reserved: Reserved::NONE,
    };
    let mut expected = vec![
        0x02, // 0: subtype AAF
        0x89, // 1: sv 1, version 0, mr 1, reserved 0, tv 1
        0x2a, // 2: sequence_num
        0x01, // 3: reserved, tu 1
        0x02, 0x00, 0x00, 0x00, 0x00, 0x01, 0x00, 0x07, // 4: stream_id
        0x80, 0xc0, 0xff, 0xee, // 12: avtp_timestamp
        0x03, // 16: format INT_24BIT
        0x51, // 17: nsr 5 (48 kHz), reserved 0, channels_per_frame bits 9 and 8: 01
        0x02, // 18: channels_per_frame bits 7 to 0
        0x14, // 19: bit_depth
        0x03, 0x06, // 20: stream_data_length, 774
        0x19, // 22: reserved 0, sp 1, evt 9
        0x00, // 23: reserved
    ];
    expected.extend(&samples);
    let mut out = [0; 1000];
    let length = aaf.write(&mut out).unwrap();
    assert_eq!(out[..length], expected);
    assert_eq!(Pdu::parse(&expected), Ok(Pdu::Aaf(aaf)));

    let small = AafFormat { sample: SampleFormat::Int16, channels: 1, bit_depth: 16, ..format };
    let header = StreamHeader { media_restart: false, timestamp: None, ..header() };
    let samples = &[0x01, 0x02];
    let aaf = Aaf { header, format: small, sparse: false, event: 0, samples, ..aaf };
    is(
        &Pdu::Aaf(aaf),
        &[
            0x02, 0x80, 0x2a, 0x01, 2, 0, 0, 0, 0, 1, 0, 7, 0, 0, 0, 0, 0x04, 0x50, 0x01, 0x10, 0,
            2, 0, 0, 1, 2,
        ],
    );
}

#[test]
fn t1_every_rate_and_format_has_its_code() {
    let rates: Vec<_> = NominalRate::all().map(|rate| (rate.code(), rate.hz())).collect();
    let expected = [
        (0, None),
        (1, Some(8_000)),
        (2, Some(16_000)),
        (3, Some(32_000)),
        (4, Some(44_100)),
        (5, Some(48_000)),
        (6, Some(88_200)),
        (7, Some(96_000)),
        (8, Some(176_400)),
        (9, Some(192_000)),
        (10, Some(24_000)),
    ];
    assert_eq!(rates, expected);
    let formats = SampleFormat::ALL.map(|format| (format.code(), format.bytes()));
    assert_eq!(formats, [(1, 4), (2, 4), (3, 3), (4, 2)]);
}

#[test]
fn t1_cvf() {
    let cvf = Cvf {
        header: header(),
        format: CvfFormat::H264 { timestamp: Some(AvtpTime::from_bits(0x0102_0304)) },
        marker: true,
        event: 5,
        payload: &[0x65, 0x88],
        reserved: Reserved::NONE,
    };
    let expected = [
        0x03, 0x89, 0x2a, 0x01, 2, 0, 0, 0, 0, 1, 0, 7, 0x80, 0xc0, 0xff, 0xee, //
        0x02, // 16: format RFC
        0x01, // 17: format_subtype H.264
        0, 0, // 18: reserved
        0, 6,    // 20: stream_data_length, h264_timestamp included
        0x35, // 22: reserved 0, ptv 1, M 1, evt 5
        0,    // 23: reserved
        1, 2, 3, 4, // 24: h264_timestamp
        0x65, 0x88, // 28: payload
    ];
    is(&Pdu::Cvf(cvf), &expected);
    let plain = Cvf { format: CvfFormat::Mjpeg, marker: false, event: 0, payload: &[7], ..cvf };
    let mut expected = expected[..16].to_vec();
    expected.extend([2, 0, 0, 0, 0, 1, 0, 0, 7]);
    is(&Pdu::Cvf(plain), &expected);
}

#[test]
fn t1_crf() {
    let clock = CrfClock {
        kind: CrfType::AudioSample,
        pull: Pull::Down1001,
        base_frequency_hz: 48_000,
        interval: 160,
    };
    let data = [0x17, 0, 0, 0, 0, 0, 0, 1, 0x17, 0, 0, 0, 0, 0x32, 0xdc, 0xd6];
    let crf = Crf {
        stream: STREAM,
        sequence: 3,
        media_restart: true,
        frame_sync: true,
        timestamp_uncertain: true,
        clock,
        data: &data,
        reserved: Reserved::NONE,
    };
    let mut expected = vec![
        0x04, // 0: subtype CRF
        0x8b, // 1: sv 1, version 0, mr 1, reserved 0, fs 1, tu 1
        0x03, // 2: sequence_num
        0x01, // 3: type audio sample
        2, 0, 0, 0, 0, 1, 0, 7, // 4: stream_id
        0x20, 0x00, 0xbb, 0x80, // 12: pull 1 (3 bits), base_frequency 48000 (29 bits)
        0, 16, // 16: crf_data_length
        0, 160, // 18: timestamp_interval
    ];
    expected.extend(data);
    is(&Pdu::Crf(crf), &expected);
    let times: Vec<_> = crf.timestamps().unwrap().iter().map(Instant::as_ns).collect();
    assert_eq!(times, [0x1700_0000_0000_0001, 0x1700_0000_0032_dcd6]);
    assert_eq!(Pull::all().map(Pull::code).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
    let user = CrfClock { kind: CrfType::User, interval: 0, base_frequency_hz: 0, ..clock };
    assert_eq!(Crf { clock: user, data: &[1, 2, 3], ..crf }.timestamps(), None);
}

const CAN: Can<'_> = Can {
    bus: 0x15,
    id: CanId::Extended(0x1234_5678),
    remote: false,
    flexible: true,
    rate_switch: true,
    error_passive: false,
    data: &[0xd0, 0xd1, 0xd2, 0xd3, 0xd4],
    reserved: Reserved::NONE,
};

/// CAN of 24 bytes, CAN_BRIEF of 8, GPC of 12, LIN of 8 as it is.
fn messages() -> ([AcfMessage<'static>; 4], Vec<u8>) {
    let brief = Can { id: CanId::Standard(0x7ff), remote: true, flexible: false, data: &[], ..CAN };
    let all = [
        AcfMessage::Can(CAN, Some(Instant::from_ns(0x0102_0304_0506_0708))),
        AcfMessage::CanBrief(Can { rate_switch: false, ..brief }),
        AcfMessage::Gpc(Gpc { id: 0x001c_ab12_3456, payload: &[0xde, 0xad, 0xbe, 0xef] }),
        AcfMessage::Opaque(OpaqueAcf { kind: 3, body: &[1, 2, 3, 4, 5, 6] }),
    ];
    let bytes = vec![
        0x02, 0x06, // acf_msg_type 1 CAN (7 bits), acf_msg_length 6 quadlets (9 bits)
        0xee, // pad 3, mtv 1, rtr 0, eff 1, brs 1, fdf 1, esi 0
        0x15, // reserved 0, can_bus_id
        1, 2, 3, 4, 5, 6, 7, 8, // message_timestamp
        0x12, 0x34, 0x56, 0x78, // reserved 0, can_identifier
        0xd0, 0xd1, 0xd2, 0xd3, 0xd4, 0, 0, 0, // data and pad
        0x04, 0x02, // CAN_BRIEF, 2 quadlets
        0x10, // pad 0, mtv 0, rtr 1, eff 0, brs 0, fdf 0, esi 0
        0x15, 0, 0, 0x07, 0xff, // can_bus_id, can_identifier
        0x0a, 0x03, // GPC, 3 quadlets
        0x00, 0x1c, 0xab, 0x12, 0x34, 0x56, // gpc_msg_id
        0xde, 0xad, 0xbe, 0xef, // payload
        0x06, 0x02, 1, 2, 3, 4, 5, 6, // LIN, 2 quadlets
    ];
    (all, bytes)
}

#[test]
fn t1_control_messages() {
    let (all, bytes) = messages();
    let (mut out, mut at) = ([0xff; 100], 0);
    for message in &all {
        at += message.write(&mut out[at..]).unwrap();
    }
    assert_eq!(out[..at], bytes);

    let tscf = Tscf { header: header(), data: &bytes, reserved: Reserved::NONE };
    let mut expected = vec![
        0x05, 0x89, 0x2a, 0x01, 2, 0, 0, 0, 0, 1, 0, 7, 0x80, 0xc0, 0xff, 0xee, //
        0, 0, 0, 0, // 16: reserved
        0, 52, // 20: stream_data_length
        0, 0, // 22: reserved
    ];
    expected.extend(&bytes);
    is(&Pdu::Tscf(tscf), &expected);
    let read: Result<Vec<_>, _> = tscf.messages().collect();
    assert_eq!(read.unwrap(), all);

    let ntscf = Ntscf { stream: STREAM, sequence: 7, data: &bytes, reserved: Reserved::NONE };
    let mut expected = vec![
        0x82, // 0: subtype NTSCF
        0x80, // 1: sv 1, version 0, reserved 0, ntscf_data_length bits 10 to 8
        52,   // 2: ntscf_data_length bits 7 to 0
        7,    // 3: sequence_num
        2, 0, 0, 0, 0, 1, 0, 7, // 4: stream_id
    ];
    expected.extend(&bytes);
    is(&Pdu::Ntscf(ntscf), &expected);
    let long = [0_u8; 2_044];
    let mut out = [0; 2_100];
    Ntscf { data: &long, ..ntscf }.write(&mut out).unwrap();
    assert_eq!(out[..3], [0x82, 0x87, 0xfc]);
    assert!(Ntscf { data: &[0; 2_048], ..ntscf }.write(&mut out).is_err());
}

#[test]
fn t1_reserved_bits_are_kept_for_a_report_and_written_as_zero() {
    let mut bytes = [
        0x02, 0x86, 0x2a, 0xfe, 2, 0, 0, 0, 0, 1, 0, 7, 0, 0, 0, 0, 0x04, 0x5c, 0x01, 0x10, 0, 2,
        0xe0, 0xff, 1, 2,
    ];
    let aaf = Aaf::parse(&bytes).unwrap();
    let found: Vec<_> = aaf.reserved.iter().collect();
    assert_eq!(found, [(1, 0x06), (3, 0xfe), (17, 0x0c), (22, 0xe0), (23, 0xff)]);
    let text = aaf.reserved.to_string();
    assert_eq!(
        text,
        "reserved bits 0x06 at byte 1, 0xfe at byte 3, 0x0c at byte 17, 0xe0 at byte 22, \
         0xff at byte 23"
    );
    let mut out = [0; 26];
    aaf.write(&mut out).unwrap();
    for (offset, bits) in found {
        bytes[offset] &= !bits;
    }
    assert_eq!(out, bytes);
    assert_eq!(Reserved::NONE.to_string(), "no reserved bits");

    // In CAN_BRIEF: mtv, three bits before the bus, all above 11 bits of a standard identifier.
    let brief = [0x04, 0x02, 0x20, 0xe1, 0x80, 0, 0x08, 0x01];
    let (AcfMessage::CanBrief(can), 8) = AcfMessage::parse(&brief).unwrap() else { panic!() };
    let found: Vec<_> = can.reserved.iter().collect();
    assert_eq!(found, [(2, 0x20), (3, 0xe0), (4, 0x80), (6, 0x08)]);
    assert_eq!((can.bus, can.id), (1, CanId::Standard(1)));
}

#[test]
fn t1_errors_say_where_what_and_what_would_be_right() {
    let good = [
        0x02, 0x80, 0x2a, 0x00, 2, 0, 0, 0, 0, 1, 0, 7, 0, 0, 0, 0, 0x04, 0x50, 0x01, 0x10, 0, 2,
        0, 0, 1, 2,
    ];
    let broken = |at: usize, byte: u8| {
        let mut bytes = good;
        bytes[at] = byte;
        Pdu::parse(&bytes).map(|_| ()).unwrap_err().to_string()
    };
    let right = "0x02 AAF, 0x03 CVF, 0x04 CRF, 0x05 TSCF or 0x82 NTSCF";
    assert_eq!(broken(0, 0x7f), format!("subtype at byte 0 is 0x7f; right would be {right}"));
    assert_eq!(broken(1, 0x90), "version at byte 1 is 0x1; right would be 0");
    assert_eq!(
        broken(1, 0),
        "sv at byte 1 is 0x0; right would be 1: a packet of a stream names it"
    );
    assert_eq!(
        broken(16, 5),
        "format at byte 16 is 0x5; right would be 1 FLOAT_32BIT, 2 INT_32BIT, 3 INT_24BIT or \
         4 INT_16BIT"
    );
    assert_eq!(broken(17, 0xb0), "nsr at byte 17 is 0xb; right would be 0 to 10");
    assert_eq!(broken(18, 0), "channels_per_frame at byte 17 is 0x0; right would be 1 to 1023");
    assert_eq!(
        broken(19, 17),
        "bit_depth at byte 19 is 0x11; right would be 1 to the bits of a sample, for floats 32"
    );
    assert_eq!(broken(21, 1), "stream_data_length at byte 20 is 1; right would be a multiple of 2");
    assert_eq!(broken(21, 4), "samples at byte 24 needs 4 bytes, 2 are there");
    let cut = Pdu::parse(&good[..14]).unwrap_err().to_string();
    assert_eq!(cut, "avtp_timestamp at byte 12 needs 4 bytes, 2 are there");

    // Offsets of messages count from the start of the packet.
    let data = [0x06, 0x01, 0, 0, 0x04, 0x01, 0, 0];
    let ntscf = Ntscf { stream: STREAM, sequence: 0, data: &data, reserved: Reserved::NONE };
    let mut out = [0; 20];
    ntscf.write(&mut out).unwrap();
    let read: Vec<_> = Ntscf::parse(&out).unwrap().messages().collect();
    let (field, offset, right) = ("acf_msg_length", 16, "2 quadlets or more");
    assert_eq!(read[1..], [Err(AvtpError::Wrong { field, offset, read: 1, right })]);
    let nine = Can { flexible: false, rate_switch: false, data: &[0; 9], ..CAN };
    let error = AcfMessage::CanBrief(nine).write(&mut [0; 99]).unwrap_err().to_string();
    assert_eq!(
        error,
        "CAN data of 9 cannot be: it takes 0 to 8 bytes, with fdf also 12, 16, 20, 24, 32, 48 or 64"
    );
    let error = AvtpError::NoRoom { needed: 26, room: 3 }.to_string();
    assert_eq!(error, "26 bytes are to be written, there is room for 3");
}
