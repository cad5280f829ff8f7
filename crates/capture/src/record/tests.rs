// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of the record file.

use proptest::prelude::*;

use super::*;

fn header() -> RecordHeader {
    let names = |list: &[&str]| list.iter().map(|&name| name.to_owned()).collect();
    RecordHeader {
        writer: "hub observer".to_owned(),
        case: "first/tdm/alone".to_owned(),
        clocks: vec![ClockInfo { name: "CLOCK_TAI".to_owned(), error_bound: Span::from_ns(40) }],
        stations: names(&["alpha", "beta"]),
        flows: names(&["control.request"]),
        meta: BTreeMap::from([("backend".to_owned(), "af_packet".to_owned())]),
    }
}

fn record(seq: u32) -> Record {
    Record {
        at_ns: 1_700_000_037_000_000_000 + i64::from(seq),
        seq,
        frame_len: 106,
        point: TimestampPoint::Segment,
        station: 1,
        flow: 0,
        flags: 0,
        clock: 0,
    }
}

/// A file as a writer leaves it on disk.
struct Disk(Vec<u8>);

impl Disk {
    fn put(&mut self, offset: u64, block: &[u8; BLOCK_BYTES]) {
        let at = usize::try_from(offset).unwrap();
        if self.0.len() < at + BLOCK_BYTES {
            self.0.resize(at + BLOCK_BYTES, 0);
        }
        self.0[at..at + BLOCK_BYTES].copy_from_slice(block);
    }
}

fn written(records: &[Record], lost: u64, flush_every: usize) -> Vec<u8> {
    let (mut encoder, bytes) = Encoder::new(&header()).unwrap();
    let mut disk = Disk(bytes);
    for (index, record) in records.iter().enumerate() {
        if let Some(block) = encoder.push(record) {
            disk.put(block.offset, block.bytes);
        }
        if index % flush_every == 0
            && let Some(block) = encoder.flush()
        {
            disk.put(block.offset, block.bytes);
        }
    }
    let last = encoder.finish(lost);
    disk.put(last.offset, &last.bytes);
    disk.0
}

fn records(count: u32) -> Vec<Record> {
    (0..count).map(record).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn t0_every_point_has_its_number_and_name() {
    for (index, point) in TimestampPoint::ALL.into_iter().enumerate() {
        assert_eq!(usize::from(point.number()), index + 1);
        assert_eq!(TimestampPoint::from_number(point.number()), Some(point));
        assert_eq!(point.name(), format!("{point:?}"));
    }
    assert_eq!(TimestampPoint::from_number(0), None);
    assert_eq!(TimestampPoint::from_number(18), None);
}

/// The bytes, checksums included, were made by another program from the documented layout.
#[test]
fn t1_the_bytes_of_a_small_file() {
    let mut second = record(2);
    (second.flow, second.point, second.seq) =
        (Record::NO_FLOW, TimestampPoint::Receive, 0x0102_0304);
    let file = written(&[record(1), second], 5, usize::MAX);
    assert_eq!(file.len(), 2 * BLOCK_BYTES);
    let json = concat!(
        r#"{"schema":"timewire.records/1","writer":"hub observer","case":"first/tdm/alone","#,
        r#""clocks":[{"name":"CLOCK_TAI","error_bound_ns":40}],"stations":["alpha","beta"],"#,
        r#""flows":["control.request"],"meta":{"backend":"af_packet"}}"#,
    );
    assert_eq!(json.len(), 0xdb);
    let prefix = "895457520d0a1a0a 0100 0100 0010 2000 db000000 110d908b";
    let block = "54575242 2fac1052 0000000000000000 0500000000000000 0200 2000 01 000000";
    let first = "013289d3069d9717 01000000 6a00 0e 01 0000 00 00 000000000000000000000000";
    let second = "023289d3069d9717 04030201 6a00 0d 01 ffff 00 00 000000000000000000000000";
    let squeeze = |text: &str| text.replace(' ', "");
    assert_eq!(hex(&file[..24]), squeeze(prefix));
    assert_eq!(std::str::from_utf8(&file[24..24 + json.len()]), Ok(json));
    assert!(file[24 + json.len()..4096].iter().all(|&byte| byte == 0));
    assert_eq!(hex(&file[4096..4128]), squeeze(block));
    assert_eq!(hex(&file[4128..4160]), squeeze(first));
    assert_eq!(hex(&file[4160..4192]), squeeze(second));
    assert!(file[4192..].iter().all(|&byte| byte == 0));
}

#[test]
fn t0_any_flipped_bit_is_detected() {
    let good = written(&records(130), 0, usize::MAX);
    let whole = RecordFile::decode(&good).unwrap();
    assert_eq!((whole.records.len(), whole.corrupt_blocks, whole.clean_end), (130, 0, true));
    let mut bytes = good.clone();
    for bit in 0..good.len() * 8 {
        let (byte, mask) = (bit / 8, 1 << (bit % 8));
        bytes[byte] ^= mask;
        match RecordFile::decode(&bytes) {
            Err(_) => assert!(byte < BLOCK_BYTES, "bit {bit} of a block spoiled the file"),
            Ok(file) => {
                assert_eq!(file.corrupt_blocks, 1, "bit {bit} was not detected");
                let kept = if byte < 2 * BLOCK_BYTES {
                    &whole.records[127..]
                } else {
                    &whole.records[..127]
                };
                assert_eq!(file.records, kept, "bit {bit}");
            }
        }
        bytes[byte] ^= mask;
    }
}

#[test]
fn t0_a_file_cut_anywhere_keeps_its_whole_blocks() {
    let whole = written(&records(300), 0, usize::MAX);
    for len in 0..=whole.len() {
        let result = RecordFile::decode(&whole[..len]);
        if len < FILE_MAGIC.len() {
            assert_eq!(result, Err(RecordError::NotARecordFile));
        } else if len < BLOCK_BYTES {
            let cut = RecordError::HeaderTruncated { bytes: len, wanted: BLOCK_BYTES };
            assert_eq!(result, Err(cut));
        } else {
            let file = result.unwrap();
            let blocks = len / BLOCK_BYTES - 1;
            assert_eq!(file.records, records(300)[..300.min(blocks * RECORDS_PER_BLOCK)]);
            assert_eq!(file.corrupt_blocks, u64::from(!len.is_multiple_of(BLOCK_BYTES)));
            assert_eq!(file.clean_end, len == whole.len());
        }
    }
}

#[test]
fn t0_a_killed_writer_leaves_what_it_flushed() {
    let (mut encoder, bytes) = Encoder::new(&header()).unwrap();
    let mut disk = Disk(bytes);
    for record in &records(5) {
        assert_eq!(encoder.push(record), None);
    }
    encoder.add_lost(3);
    let block = encoder.flush().unwrap();
    disk.put(block.offset, block.bytes);
    assert_eq!(encoder.flush(), None, "nothing new to write");
    encoder.push(&record(5));
    let file = RecordFile::decode(&disk.0).unwrap();
    assert_eq!(file.records, records(5));
    assert_eq!((file.lost, file.corrupt_blocks, file.clean_end), (3, 0, false));
    // The next write of the same block is torn in the middle.
    let block = encoder.flush().unwrap();
    let at = usize::try_from(block.offset).unwrap();
    disk.0[at..at + 100].copy_from_slice(&block.bytes[..100]);
    let file = RecordFile::decode(&disk.0).unwrap();
    assert_eq!((file.records.len(), file.corrupt_blocks), (0, 1));
}

#[test]
fn t0_losses_after_a_full_block_reach_the_file() {
    let (mut encoder, bytes) = Encoder::new(&header()).unwrap();
    let mut disk = Disk(bytes);
    let full = records(127).iter().filter(|record| encoder.push(record).is_some()).count();
    assert_eq!(full, 1, "the last record fills the block");
    encoder.add_lost(2);
    let block = encoder.flush().unwrap();
    assert_eq!(block.offset, 4096);
    disk.put(block.offset, block.bytes);
    assert_eq!(RecordFile::decode(&disk.0).unwrap().lost, 2);
    let last = encoder.finish(7);
    assert_eq!(last.offset, 4096);
    disk.put(last.offset, &last.bytes);
    let file = RecordFile::decode(&disk.0).unwrap();
    assert_eq!((file.records.len(), file.lost, file.clean_end), (127, 9, true));
}

#[test]
fn t0_other_files_are_refused_with_the_reason() {
    let good = written(&records(1), 0, usize::MAX);
    let refused = |bytes: &[u8]| RecordFile::decode(bytes).unwrap_err().to_string();
    assert_eq!(
        refused(b"PK\x03\x04 something else"),
        "this is no record file: it does not start with the .twr magic"
    );
    let mut newer = good.clone();
    newer[8] = 2;
    assert_eq!(refused(&newer), "the record file has version 2; this program reads version 1 only");
    let sealed = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        let crc = crc_without(&bytes[..BLOCK_BYTES], 20);
        bytes[20..24].copy_from_slice(&crc.to_le_bytes());
        bytes
    };
    let other_schema = sealed(&|bytes| bytes[24 + 28] = b'2');
    assert_eq!(
        refused(&other_schema),
        "the header of the record file cannot be read: its schema is `timewire.records/2`, not \
         `timewire.records/1`"
    );
    let long_json = sealed(&|bytes| bytes[17] = 0xff);
    assert_eq!(
        refused(&long_json),
        "the header of the record file is damaged: more JSON than there is header"
    );
    let wide = sealed(&|bytes| bytes[14] = 48);
    assert_eq!(
        refused(&wide),
        "the header of the record file is damaged: blocks or records of another size"
    );
}

#[test]
fn t0_records_the_header_does_not_explain_are_counted() {
    let mut odd = records(4);
    odd[0].station = 2;
    odd[1].clock = 1;
    odd[2].flow = 1;
    odd[3].flow = Record::NO_FLOW;
    let file = RecordFile::decode(&written(&odd, 0, usize::MAX)).unwrap();
    assert_eq!((file.records.as_slice(), file.unknown_records), (&odd[3..], 3));
}

#[test]
fn t0_a_large_header_takes_more_blocks_and_a_huge_one_is_refused() {
    let mut large = header();
    large.flows = (0..2_000).map(|i| format!("flow-{i}.request")).collect();
    let (encoder, mut bytes) = Encoder::new(&large).unwrap();
    assert!(bytes.len() > 2 * BLOCK_BYTES && bytes.len().is_multiple_of(BLOCK_BYTES));
    let last = encoder.finish(0);
    assert_eq!(usize::try_from(last.offset), Ok(bytes.len()));
    bytes.extend_from_slice(&last.bytes[..]);
    assert_eq!(RecordFile::decode(&bytes).unwrap().header, large);

    let mut huge = header();
    huge.stations = (0..257).map(|i| format!("s{i}")).collect();
    assert_eq!(
        Encoder::new(&huge).unwrap_err().to_string(),
        "a record file cannot have 257 stations; at most 256"
    );
}

prop_compose! {
    fn any_record()(
        at_ns in any::<i64>(), seq in any::<u32>(), frame_len in any::<u16>(),
        point in 0..16_usize, station in 0..2_u8, flow in prop_oneof![Just(0), Just(0xffff)],
        flags in any::<u8>(),
    ) -> Record {
        let point = TimestampPoint::ALL[point];
        Record { at_ns, seq, frame_len, point, station, flow, flags, clock: 0 }
    }
}

proptest! {
    #[test]
    fn t0_what_is_written_is_read(
        records in proptest::collection::vec(any_record(), 0..600),
        lost in any::<u64>(),
        flush_every in 1..200_usize,
    ) {
        let file = RecordFile::decode(&written(&records, lost, flush_every)).unwrap();
        prop_assert_eq!(file.header, header());
        prop_assert_eq!(file.records, records);
        prop_assert_eq!((file.lost, file.corrupt_blocks, file.unknown_records), (lost, 0, 0));
        prop_assert!(file.clean_end);
    }

    #[test]
    fn t0_any_bytes_are_read_or_refused(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..9_000),
        as_header in any::<bool>(),
    ) {
        if as_header {
            let good = written(&[], 0, 1);
            let len = bytes.len().min(BLOCK_BYTES);
            bytes[..len].copy_from_slice(&good[..len]);
        }
        let _ = RecordFile::decode(&bytes);
    }
}
