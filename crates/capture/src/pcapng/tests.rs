// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Blocks byte by byte, and read back by a small reader that knows the format and nothing of the
//! writer.

use std::collections::BTreeMap;

use proptest::prelude::*;
use timewire_base::Tai;

use super::*;

fn hex(bytes: &[u8]) -> String {
    let words = bytes.chunks(4).map(|word| word.iter().map(|b| format!("{b:02x}")).collect());
    words.collect::<Vec<String>>().join(" ")
}

fn written(write: impl Fn(&mut [u8]) -> Result<usize, PcapngError>) -> Vec<u8> {
    let Err(PcapngError::NoRoom { needed, room: 0 }) = write(&mut []) else {
        panic!("a block is longer than nothing");
    };
    let room = needed - 1;
    assert_eq!(write(&mut vec![0; room]), Err(PcapngError::NoRoom { needed, room }));
    let mut out = vec![0xAA; needed + 9];
    assert_eq!(write(&mut out), Ok(needed));
    assert_eq!(out[needed..], [0xAA; 9], "nothing behind the block is touched");
    out.truncate(needed);
    out
}

#[test]
fn t1_blocks_have_these_bytes() {
    let section = Section { application: "timewire", ..Section::default() };
    assert_eq!(
        hex(&written(|out| section.write(out))),
        "0a0d0d0a 2c000000 4d3c2b1a 01000000 ffffffff ffffffff \
         04000800 74696d65 77697265 00000000 2c000000",
    );
    let bare = Section::default();
    assert_eq!(
        hex(&written(|out| bare.write(out))),
        "0a0d0d0a 1c000000 4d3c2b1a 01000000 ffffffff ffffffff 1c000000",
    );
    let interface = Interface {
        name: "tw0",
        description: "RxSw",
        snap_len: 128,
        clock: CaptureClock::Tai { ahead_s: 37 },
    };
    assert_eq!(
        hex(&written(|out| interface.write(out))),
        "01000000 3c000000 01000000 80000000 02000300 74773000 03000400 52785377 \
         09000100 09000000 0e000800 dbffffff ffffffff 00000000 3c000000",
    );
    let packet = Packet {
        original_len: 60,
        direction: Some(Direction::Outbound),
        packet_id: Some(7),
        comment: "late",
        ..Packet::whole(1, Instant::<Tai>::from_ns(0x0102_0304_0506_0708), &[1, 2, 3, 4, 5])
    };
    assert_eq!(
        hex(&written(|out| packet.write(out))),
        "06000000 48000000 01000000 04030201 08070605 05000000 3c000000 01020304 05000000 \
         01000400 6c617465 02000400 02000000 05000800 07000000 00000000 00000000 48000000",
    );
    let statistics =
        InterfaceStatistics { interface: 0, at_ns: 1, received: Some(5), dropped: Some(2) };
    assert_eq!(
        hex(&written(|out| statistics.write(out))),
        "05000000 34000000 00000000 00000000 01000000 04000800 05000000 00000000 \
         05000800 02000000 00000000 00000000 34000000",
    );
}

#[test]
fn t0_what_the_format_cannot_say_is_refused() {
    let mut out = vec![0; 300_000];
    let frame = vec![0; MAX_FRAME_BYTES + 1];
    let whole = |len: usize| Packet::whole(0, Instant::<Tai>::from_ns(0), &frame[..len]);
    assert!(whole(MAX_FRAME_BYTES).write(&mut out).is_ok());
    let long = PcapngError::LongFrame { bytes: MAX_FRAME_BYTES + 1, max: MAX_FRAME_BYTES };
    assert_eq!(whole(MAX_FRAME_BYTES + 1).write(&mut out), Err(long));
    let cut = Packet { original_len: 9, ..whole(10) };
    let more = PcapngError::MoreThanAll { captured: 10, original: 9 };
    assert_eq!(cut.write(&mut out), Err(more));
    let early = Packet { at_ns: -1, ..whole(10) };
    assert_eq!(early.write(&mut out), Err(PcapngError::Before1970 { ns: -1 }));
    let text = "x".repeat(65_536);
    let told = Packet { comment: &text[1..], ..whole(10) };
    assert!(told.write(&mut out).is_ok());
    let told = Packet { comment: &text, ..whole(10) };
    let long = PcapngError::LongOption { bytes: 65_536, max: 65_535 };
    assert_eq!(told.write(&mut out), Err(long));
}

#[test]
fn t0_clocks_of_timestamps_are_told_as_far_as_they_are_known() {
    let of = |clock| CaptureClock::of(clock, 37);
    assert_eq!(of(TimestampClock::Utc), CaptureClock::Utc);
    assert_eq!(of(TimestampClock::Tai), CaptureClock::Tai { ahead_s: 37 });
    assert_eq!([of(TimestampClock::Mono), of(TimestampClock::Phc(1))], [CaptureClock::Other; 2]);
}

/// A block as read: its kind, its fixed part and its options.
#[derive(Debug, PartialEq)]
pub(crate) struct Read {
    pub kind: u32,
    pub fixed: Vec<u8>,
    pub options: BTreeMap<u16, Vec<u8>>,
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap())
}

/// Reads a file from its first byte to its last, or panics.
pub(crate) fn read(mut file: &[u8]) -> Vec<Read> {
    let mut blocks = Vec::new();
    while !file.is_empty() {
        let len = usize::try_from(u32_at(file, 4)).unwrap();
        assert_eq!(len % 4, 0);
        let (block, rest) = file.split_at(len);
        assert_eq!(u32_at(block, len - 4), u32_at(block, 4));
        let body = &block[8..len - 4];
        let kind = u32_at(block, 0);
        let fixed = match kind {
            0x0A0D_0D0A => 16,
            1 => 8,
            5 => 12,
            6 => 20 + usize::try_from(u32_at(body, 12)).unwrap().div_ceil(4) * 4,
            other => panic!("block {other}"),
        };
        let (fixed, mut left) = body.split_at(fixed);
        let mut options = BTreeMap::new();
        let mut ended = left.is_empty();
        while !left.is_empty() {
            let (code, len) = (u16_at(left, 0), usize::from(u16_at(left, 2)));
            ended = code == 0;
            if !ended {
                assert_eq!(options.insert(code, left[4..4 + len].to_vec()), None);
            }
            left = &left[4 + len.div_ceil(4) * 4..];
        }
        assert!(ended, "options end with their end");
        blocks.push(Read { kind, fixed: fixed.to_vec(), options });
        file = rest;
    }
    blocks
}

fn option<T: AsRef<[u8]>>(code: u16, value: Option<T>) -> Option<(u16, Vec<u8>)> {
    value.map(|value| (code, value.as_ref().to_vec())).filter(|(_, value)| !value.is_empty())
}

proptest! {
    #[test]
    fn t0_what_was_written_is_read(
        name in "[a-z0-9]{1,15}",
        description in "\\PC{0,20}",
        clock in prop_oneof![
            Just(CaptureClock::Utc),
            Just(CaptureClock::Other),
            any::<i32>().prop_map(|ahead_s| CaptureClock::Tai { ahead_s }),
        ],
        packets in proptest::collection::vec(
            (
                0..=i64::MAX,
                proptest::collection::vec(any::<u8>(), 0..70),
                0..2_000_u32,
                proptest::option::of(prop_oneof![
                    Just(Direction::Inbound),
                    Just(Direction::Outbound),
                ]),
                any::<Option<u64>>(),
                "\\PC{0,9}",
            ),
            0..8,
        ),
        counts in any::<(Option<u64>, Option<u64>)>(),
    ) {
        let section = Section { hardware: &name, os: &description, application: "a", comment: "" };
        let interface =
            Interface { name: &name, description: &description, snap_len: 70, clock };
        let mut file = [
            written(|out| section.write(out)),
            written(|out| interface.write(out)),
        ].concat();
        let mut last_ns = 0;
        for (at_ns, frame, more, direction, packet_id, comment) in &packets {
            let original_len = u32::try_from(frame.len()).unwrap() + more;
            let packet = Packet {
                interface: 0, at_ns: *at_ns, frame, original_len,
                direction: *direction, packet_id: *packet_id, comment,
            };
            file.extend(written(|out| packet.write(out)));
            last_ns = *at_ns;
        }
        let (received, dropped) = counts;
        let end = InterfaceStatistics { interface: 0, at_ns: last_ns, received, dropped };
        file.extend(written(|out| end.write(out)));

        let blocks = read(&file);
        prop_assert_eq!(blocks.len(), packets.len() + 3);
        let offset = match clock {
            CaptureClock::Tai { ahead_s } => Some((-i64::from(ahead_s)).to_le_bytes()),
            _ => None,
        };
        let of_interface: BTreeMap<_, _> = [
            option(2, Some(&name)),
            option(3, Some(&description)),
            option(9, Some([9])),
            option(14, offset),
        ].into_iter().flatten().collect();
        prop_assert_eq!(&blocks[1].options, &of_interface);
        prop_assert_eq!((blocks[1].kind, u16_at(&blocks[1].fixed, 0)), (1, 1));
        for (block, (at_ns, frame, more, direction, packet_id, comment)) in
            blocks[2..].iter().zip(&packets)
        {
            let time = u64::from(u32_at(&block.fixed, 4)) << 32
                | u64::from(u32_at(&block.fixed, 8));
            prop_assert_eq!(time, u64::try_from(*at_ns).unwrap());
            let captured = usize::try_from(u32_at(&block.fixed, 12)).unwrap();
            prop_assert_eq!(&block.fixed[20..20 + captured], &frame[..]);
            prop_assert!(block.fixed[20 + captured..].iter().all(|&byte| byte == 0));
            let original = usize::try_from(u32_at(&block.fixed, 16) - more).unwrap();
            prop_assert_eq!((block.kind, original), (6, captured));
            let flags = direction.map(|direction| match direction {
                Direction::Inbound => [1, 0, 0, 0],
                Direction::Outbound => [2, 0, 0, 0],
            });
            let options: BTreeMap<_, _> = [
                option(1, Some(comment)),
                option(2, flags),
                option(5, packet_id.map(u64::to_le_bytes)),
            ].into_iter().flatten().collect();
            prop_assert_eq!(&block.options, &options);
        }
        let end = blocks.last().unwrap();
        let options: BTreeMap<_, _> = [
            option(4, received.map(u64::to_le_bytes)),
            option(5, dropped.map(u64::to_le_bytes)),
        ].into_iter().flatten().collect();
        prop_assert_eq!((end.kind, &end.options), (5, &options));
    }
}
