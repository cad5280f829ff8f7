// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The program, run by an interpreter of what classic BPF is, against the rule in Rust: any frame
//! fits both or neither, with its tag in the frame or taken off by the kernel.

use std::os::fd::AsFd;

use proptest::prelude::*;
use proptest::sample::select;

use super::*;

fn number(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.try_into().ok().map(u16::from_be_bytes)
}

/// Whether the program lets a frame through. With `taken`, the kernel has taken the outer tag off.
fn runs(program: &[libc::sock_filter], frame: &[u8], taken: bool) -> bool {
    if program.is_empty() {
        return true;
    }
    let is_tagged = matches!(number(frame, 12), Some(0x8100 | 0x88a8)) && frame.len() >= 18;
    let (tag, data) = match taken && is_tagged {
        true => (number(frame, 14), [&frame[..12], &frame[16..]].concat()),
        false => (None, frame.to_vec()),
    };
    interpret(program, &data, tag).is_some_and(|kept| kept != 0)
}

/// What the program returns; `None` where the kernel would end it for reading past the end.
fn interpret(program: &[libc::sock_filter], data: &[u8], tag: Option<u16>) -> Option<u32> {
    let (mut a, mut x, mut memory, mut at) = (0_u32, 0_u32, [0_u32; 16], 0_usize);
    loop {
        let libc::sock_filter { code, jt, jf, k } = program[at];
        at += 1;
        let other = if code & FROM_X != 0 { x } else { k };
        let index = usize::try_from(k).unwrap();
        match code {
            LD_LEN => a = u32::try_from(data.len()).unwrap(),
            LDX_IMM => x = k,
            LD_MEM => a = memory[index],
            LDX_MEM => x = memory[index],
            ST => memory[index] = a,
            STX => memory[index] = x,
            TAX => x = a,
            RET => return Some(k),
            JA => at += index,
            _ if code & 7 == 0 => {
                let from = match code & 0xe0 {
                    LD_ABS => k,
                    LD_IND => x.checked_add(k)?,
                    _ => panic!("no such load: {code:#x}"),
                };
                a = match from {
                    TAG => tag.unwrap_or(0).into(),
                    TAG_PRESENT => tag.is_some().into(),
                    _ => {
                        let count = match code & 0x18 {
                            W => 4,
                            H => 2,
                            _ => 1,
                        };
                        let from = usize::try_from(from).unwrap();
                        let bytes = data.get(from..from + count)?;
                        bytes.iter().fold(0, |number, byte| number << 8 | u32::from(*byte))
                    }
                };
            }
            _ if code & 7 == 4 => {
                a = match code & 0xf0 {
                    ADD => a.wrapping_add(other),
                    SUB => a.wrapping_sub(other),
                    AND => a & other,
                    LSH => a << other,
                    RSH => a >> other,
                    _ => panic!("no such operation: {code:#x}"),
                }
            }
            _ => {
                let holds = match code & !FROM_X {
                    JEQ => a == other,
                    JGE => a >= other,
                    _ => panic!("no such jump: {code:#x}"),
                };
                at += usize::from(if holds { jt } else { jf });
            }
        }
    }
}

const ADDRESSES: [MacAddress; 3] =
    [MacAddress([2, 0, 0, 0, 0, 1]), MacAddress([2, 0, 0, 0, 1, 1]), MacAddress([0xff; 6])];

fn maybe<T: Strategy>(probability: f64, of: T) -> impl Strategy<Value = Option<T::Value>> {
    proptest::option::weighted(probability, of)
}

fn filters() -> impl Strategy<Value = FrameFilter> {
    let fields = (
        maybe(0.3, select(vec![0x0800_u16, 0x86dd, 0x88f7, 0x8100])),
        maybe(0.2, select(ADDRESSES.to_vec())),
        maybe(0.2, select(ADDRESSES.to_vec())),
        maybe(0.3, select(vec![0_u16, 5, 4_094])),
        maybe(0.3, 0_u8..8),
        maybe(0.4, select(vec![0_u16, 319, 15_001])),
    );
    fields.prop_map(|(ethertype, destination, source, vid, pcp, udp_port)| FrameFilter {
        ethertype,
        destination,
        source,
        vid,
        pcp,
        udp_port,
    })
}

fn ipv4() -> impl Strategy<Value = Vec<u8>> {
    let first = select(vec![0x45_u8, 0x45, 0x45, 0x46, 0x4f, 0x44, 0x65]);
    let fragment = select(vec![0_u16, 0, 0x4000, 0x2000, 5]);
    let protocol = select(vec![17_u8, 17, 17, 6]);
    (first, fragment, protocol, -9_i16..4, segments()).prop_map(
        |(first, fragment, protocol, wrong, segment)| {
            let header = usize::from(first & 15) * 4;
            let mut packet = vec![first, 0];
            let total = u16::try_from(header + segment.len()).unwrap();
            packet.extend(total.saturating_add_signed(wrong).to_be_bytes());
            packet.extend([0, 0]);
            packet.extend(fragment.to_be_bytes());
            packet.extend([64, protocol]);
            packet.resize(header.max(20), 0);
            packet.extend(segment);
            packet
        },
    )
}

fn ipv6() -> impl Strategy<Value = Vec<u8>> {
    let kinds = proptest::collection::vec((select(vec![0_u8, 43, 60, 44]), 0_u8..3), 0..6);
    let last = select(vec![17_u8, 17, 17, 6]);
    (kinds, last, -9_i16..4, segments()).prop_map(|(kinds, last, wrong, segment)| {
        let mut body = Vec::new();
        for (index, (_, longer)) in kinds.iter().enumerate() {
            body.extend([kinds.get(index + 1).map_or(last, |it| it.0), *longer]);
            body.resize(body.len() + 6 + usize::from(*longer) * 8, 0);
        }
        body.extend(segment);
        let mut packet = vec![0x60, 0, 0, 0];
        let payload = u16::try_from(body.len()).unwrap();
        packet.extend(payload.saturating_add_signed(wrong).to_be_bytes());
        packet.extend([kinds.first().map_or(last, |it| it.0), 64]);
        packet.resize(40, 7);
        packet.extend(body);
        packet
    })
}

fn segments() -> impl Strategy<Value = Vec<u8>> {
    let port = || select(vec![0_u16, 319, 15_001]);
    (port(), port(), select(vec![4_usize, 7, 8, 26])).prop_map(|(from, to, length)| {
        let mut segment = [from.to_be_bytes(), to.to_be_bytes()].concat();
        segment.resize(length, 0);
        segment
    })
}

pub(crate) fn frames() -> impl Strategy<Value = Vec<u8>> {
    let tag = (select(vec![0x8100_u16, 0x88a8]), select(vec![5_u16, 0xa005, 0x6000, 0xeffe]));
    let packet = prop_oneof![
        ipv4().prop_map(|packet| (0x0800_u16, packet)),
        ipv6().prop_map(|packet| (0x86dd_u16, packet)),
        Just((0x88f7_u16, vec![0; 44])),
    ];
    let address = || select(ADDRESSES.to_vec());
    let tags = proptest::collection::vec(tag, 0..4);
    let cut = proptest::option::weighted(0.2, 0_usize..80);
    (address(), address(), tags, packet, 0_usize..12, cut).prop_map(
        |(to, from, tags, (kind, packet), padding, cut)| {
            let mut frame = [to.0, from.0].concat();
            for (kind, tci) in tags {
                frame.extend(kind.to_be_bytes());
                frame.extend(tci.to_be_bytes());
            }
            frame.extend(kind.to_be_bytes());
            frame.extend(packet);
            frame.resize(frame.len() + padding, 0);
            frame.truncate(cut.map_or(frame.len(), |cut| cut.max(14)));
            frame
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn t0_program_and_rule_let_the_same_frames_through(filter in filters(), frame in frames()) {
        let program = filter.program();
        prop_assert!(program.len() < 250);
        SOCKET.with(|socket| filter.attach(socket.as_fd())).unwrap();
        let fits = filter.fits(&frame);
        prop_assert_eq!(runs(&program, &frame, false), fits);
        prop_assert_eq!(runs(&program, &frame, true), fits);
    }
}

thread_local! {
    /// Any socket takes a filter that the kernel finds sound.
    static SOCKET: std::net::UdpSocket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
}

#[test]
fn t0_each_part_of_a_filter_is_looked_at() {
    let mut frame = [ADDRESSES[0].0, ADDRESSES[1].0].concat();
    frame.extend([0x81, 0x00, 0xa0, 0x05, 0x08, 0x00, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17]);
    frame.resize(frame.len() + 10, 0);
    frame.extend([0, 9, 0x3a, 0x99, 0, 8, 0, 0]);
    let right = FrameFilter {
        ethertype: Some(0x0800),
        destination: Some(ADDRESSES[0]),
        source: Some(ADDRESSES[1]),
        vid: Some(5),
        pcp: Some(5),
        udp_port: Some(15_001),
    };
    let wrong = [
        FrameFilter { ethertype: Some(0x86dd), ..right },
        FrameFilter { destination: Some(ADDRESSES[1]), ..right },
        FrameFilter { source: Some(ADDRESSES[0]), ..right },
        FrameFilter { vid: Some(6), ..right },
        FrameFilter { pcp: Some(4), ..right },
        FrameFilter { udp_port: Some(9), ..right },
    ];
    for taken in [false, true] {
        assert!(runs(&right.program(), &frame, taken));
        for filter in wrong {
            assert!(!filter.fits(&frame), "{filter:?}");
            assert!(!runs(&filter.program(), &frame, taken), "{filter:?}");
        }
    }
    assert_eq!(Frame::parse(&frame).unwrap().content(), Some(&[][..]));
}

#[test]
fn t0_numbers_that_no_frame_has_are_refused_in_words() {
    let none = FrameFilter::default();
    assert!(none.check().is_ok() && none.is_empty() && none.fits(&[]));
    for (filter, says) in [
        (FrameFilter { ethertype: Some(0x05ff), ..none }, "0x0600 to 0xffff"),
        (FrameFilter { vid: Some(4_095), ..none }, "0 to 4094"),
        (FrameFilter { pcp: Some(8), ..none }, "0 to 7"),
    ] {
        let error = filter.check().unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}
