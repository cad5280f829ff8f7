// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files and payloads byte by byte.

use timewire_avtp::media::h264::{
    Assembler, AssemblerCounters, StartCodes, nal_units, payloads, write_payload,
};
use timewire_avtp::media::wav::{self, Wav, WavFormat};
use timewire_avtp::pdu::SampleFormat;

#[test]
fn t1_a_wav_file_byte_by_byte() {
    let format = WavFormat {
        sample: SampleFormat::Int24,
        channels: 1,
        rate_hz: 48_000,
        valid_bits: 24,
        channel_mask: None,
    };
    let samples = [1, 2, 3];
    let plain = wav::write(&Wav { format, samples: &samples }).unwrap();
    let expected = [
        b"RIFF\x28\0\0\0WAVEfmt \x10\0\0\0".as_slice(),
        &[1, 0, 1, 0, 0x80, 0xbb, 0, 0, 0x80, 0x32, 0x02, 0, 3, 0, 24, 0], // 144 000 B/s
        b"data\x03\0\0\0\x01\x02\x03\0",                                   // and a byte of padding
    ]
    .concat();
    assert_eq!(plain, expected);
    let masked = WavFormat { valid_bits: 20, channel_mask: Some(4), ..format };
    let extensible = wav::write(&Wav { format: masked, samples: &samples }).unwrap();
    let expected = [
        b"RIFF\x40\0\0\0WAVEfmt \x28\0\0\0".as_slice(),
        &[0xfe, 0xff, 1, 0, 0x80, 0xbb, 0, 0, 0x80, 0x32, 0x02, 0, 3, 0, 24, 0],
        &[22, 0, 20, 0, 4, 0, 0, 0], // size of the rest, valid bits, mask
        &[1, 0, 0, 0, 0, 0, 0x10, 0, 0x80, 0, 0, 0xaa, 0, 0x38, 0x9b, 0x71],
        b"data\x03\0\0\0\x01\x02\x03\0",
    ]
    .concat();
    assert_eq!(extensible, expected);

    let broken = |file: &[u8], at: usize, byte: u8| {
        let mut file = file.to_vec();
        file[at] = byte;
        wav::read(&file).unwrap_err().to_string()
    };
    let file = &plain;
    assert_eq!(
        broken(file, 3, b'X'),
        "the file's type at byte 0 is 0x52494658; right would be `RIFF`"
    );
    assert!(broken(file, 11, 0).starts_with("the file's form at byte 8 is"));
    let no_format = "the chunk at byte 36 is 0x64617461; right would be `fmt `, which comes before \
                     `data`";
    assert_eq!(broken(file, 12, b'x'), no_format);
    assert_eq!(
        broken(file, 20, 2),
        "the format at byte 20 is 0x2; right would be 1 PCM or 3 floats"
    );
    assert_eq!(broken(file, 22, 0), "channels at byte 22 is 0x0; right would be 1 or more");
    assert_eq!(
        broken(file, 34, 8),
        "bits of a sample at byte 34 is 0x8; right would be 16, 24, 32; floats 32"
    );
    assert!(broken(file, 32, 4).starts_with("the block alignment at byte 32 is 0x4"));
    assert_eq!(
        broken(file, 40, 4),
        "the length of `data` at byte 40 is 4; right would be a multiple of 3"
    );
    assert_eq!(broken(file, 40, 6), "a chunk at byte 44 needs 6 bytes, 4 are there");
    assert_eq!(broken(file, 36, b'x'), "the chunk `data` at byte 48 needs 8 bytes, 0 are there");
    let file = &extensible;
    assert!(broken(file, 46, 9).starts_with("the sub-format at byte 46 is"));
    assert!(broken(file, 38, 25).starts_with("valid bits at byte 38 is 0x19"));
    let two = WavFormat { channels: 2, ..format };
    assert!(wav::write(&Wav { format: two, samples: &samples }).is_err());
}

#[test]
fn t1_a_byte_stream_is_cut_where_the_annex_says() {
    // Leading zeros, an SPS, trailing zeros, a slice of macroblock 0, one of another, a prefix NAL
    // unit between slices, SEI and slice of the next picture, end of sequence.
    let stream = [
        0, 0, 0, 0, 0, 1, 0x67, 1, 0, 0, 0, 0, 1, 0x65, 0x88, 0, 0, 1, 0x65, 0x40, 0, 0, 1, 0x6e,
        9, 0, 0, 1, 0x65, 0x20, 0, 0, 1, 0x06, 5, 0, 0, 0, 1, 0x41, 0x9a, 0, 0, 1, 0x0a,
    ];
    let units = nal_units(&stream).unwrap();
    let found: Vec<_> = units
        .iter()
        .map(|unit| (unit.offset, unit.length, unit.start_code, unit.begins, unit.ends))
        .collect();
    let expected = [
        (6, 2, 4, true, false),
        (13, 2, 4, false, false),
        (18, 2, 3, false, false),
        (23, 2, 3, false, false),
        (28, 2, 3, false, true),
        (33, 2, 3, true, false),
        (39, 2, 4, false, false),
        (44, 1, 3, false, true),
    ];
    assert_eq!(found, expected);
    assert_eq!(StartCodes::of(&stream, &units), None);
    // Types 14 to 18 begin an access unit when the next slice does.
    let stream = [0, 0, 1, 0x41, 0x9a, 0, 0, 1, 0x6e, 9, 0, 0, 1, 0x41, 0x9a];
    let begins: Vec<_> = nal_units(&stream).unwrap().iter().map(|unit| unit.begins).collect();
    assert_eq!(begins, [true, true, false]);
    assert_eq!(nal_units(&[]).unwrap(), []);
    assert_eq!(nal_units(&[0, 0, 0]).unwrap(), []);
    assert_eq!(
        nal_units(&[0, 0, 1, 0x7c]).unwrap_err().to_string(),
        "nal_unit_type at byte 3 is 0x1c; right would be 1 to 23"
    );
    assert_eq!(
        nal_units(&[0, 0, 1, 0, 0, 0, 1, 9]).unwrap_err().to_string(),
        "a NAL unit at byte 3 is 0x0; right would be 1 byte or more, not zero"
    );
}

#[test]
fn t1_payloads_byte_by_byte() {
    let unit = [0x65, 1, 2, 3, 4, 5, 6, 7];
    let all = |limit| -> Vec<Vec<u8>> {
        (0..payloads(unit.len(), limit))
            .map(|nth| {
                let mut out = vec![0xee; limit];
                let length = write_payload(&unit, nth, limit, &mut out);
                out[..length].to_vec()
            })
            .collect()
    };
    assert_eq!(all(8), [unit.to_vec()]);
    // FU indicator: F 0, NRI 3, type 28; FU header: S, E, R, type 5.
    assert_eq!(all(7), [vec![0x7c, 0x85, 1, 2, 3, 4, 5], vec![0x7c, 0x45, 6, 7]]);
    assert_eq!(all(5), [vec![0x7c, 0x85, 1, 2, 3], vec![0x7c, 0x05, 4, 5, 6], vec![0x7c, 0x45, 7]]);
}

#[test]
fn t1_payloads_are_put_together() {
    let run = |payloads: &[&[u8]]| {
        let mut assembler = Assembler::new(StartCodes::Shortest, 20);
        for payload in payloads {
            // Nothing stands for a gap.
            if payload == b"gap" { assembler.gap() } else { assembler.payload(payload) }
        }
        let (bytes, whole) = assembler.access_unit();
        (bytes.to_vec(), whole, assembler.counters())
    };
    let counters = |nal_units, broken, refused, overflowed| AssemblerCounters {
        nal_units,
        broken,
        refused,
        overflowed,
    };
    // STAP-A with a PPS and a slice.
    let (bytes, whole, counted) = run(&[&[0x78, 0, 2, 0x68, 7, 0, 3, 0x41, 8, 9]]);
    assert_eq!(bytes, [0, 0, 0, 1, 0x68, 7, 0, 0, 1, 0x41, 8, 9]);
    assert_eq!((whole, counted), (true, counters(2, 0, 0, 0)));
    // Its last length is too long.
    let (bytes, whole, counted) = run(&[&[0x78, 0, 2, 0x68, 7, 0, 3, 0x41, 8]]);
    assert_eq!((bytes, whole), (vec![0, 0, 0, 1, 0x68, 7], false));
    assert_eq!(counted, counters(1, 0, 1, 0));
    // Fragments, with one missing: what came is dropped, what follows is kept.
    let (first, middle, last): (&[u8], &[u8], &[u8]) =
        (&[0x7c, 0x85, 1], &[0x7c, 5, 2], &[0x7c, 0x45, 3]);
    let (bytes, whole, counted) = run(&[first, middle, last]);
    assert_eq!((bytes, whole), (vec![0, 0, 0, 1, 0x65, 1, 2, 3], true));
    assert_eq!(counted, counters(1, 0, 0, 0));
    let slice: &[u8] = &[0x41, 6];
    for (given, broken) in [
        (vec![first, b"gap", last, slice], 1),
        (vec![b"gap", middle, last, slice], 0),
        (vec![first, middle, slice], 1),
    ] {
        let (bytes, whole, counted) = run(&given);
        assert_eq!((bytes, whole), (vec![0, 0, 0, 1, 0x41, 6], false));
        assert_eq!(counted, counters(1, broken, 0, 0));
    }
    let (bytes, whole, counted) = run(&[first, middle]);
    assert_eq!((bytes.len(), whole, counted), (7, false, counters(0, 0, 0, 0)));
    // No room; interleaved and senseless payloads.
    assert_eq!(run(&[&[0x41; 17]]), (vec![], false, counters(0, 0, 0, 1)));
    assert_eq!(run(&[&[0x41; 16]]).2, counters(1, 0, 0, 0));
    assert_eq!(run(&[first, &[&[0x7c, 5][..], &[1; 15]].concat()]).2, counters(0, 0, 0, 1));
    let senseless: [&[u8]; 5] = [&[0x79, 1], &[], &[0x7c, 0xc5, 1], &[0x7c, 0x85], &[0]];
    assert_eq!(run(&senseless), (vec![], false, counters(0, 0, 5, 0)));
}
