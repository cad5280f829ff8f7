// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The program against a model of it: the same frames and rules, judged by Rust that reads a frame
//! field by field and knows nothing of keys and masks. The kernel runs the program on bytes of
//! ours (`BPF_PROG_TEST_RUN`); nothing is attached.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use libbpf_rs::{MapCore, MapHandle, ProgramInput};

use timewire_base::wire::MacAddress;

use super::program::{ProgramSettings, Programs, add_thread, read_counter, replace_rules};
use super::rules::{Class, FrameMatch, MAX_COMPARISONS, Prefix, Rules, Target};
use super::tests::Random;
use super::{ClassCounter, map_of};

const XDP_PASS: u32 = 2;
const XDP_REDIRECT: u32 = 4;

/// What a frame has, as far as it can be trusted.
#[derive(Debug, Default)]
struct Seen {
    destination: Option<MacAddress>,
    source: Option<MacAddress>,
    tag: Option<u16>,
    ethertype: Option<u16>,
    /// To and from.
    addresses: Option<(IpAddr, IpAddr)>,
    dscp: Option<u8>,
    ports: Option<(u16, u16)>,
    stream: Option<u64>,
}

fn number(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().unwrap()))
}

fn see(frame: &[u8]) -> Seen {
    let mut seen = Seen {
        destination: frame.get(..6).map(|it| MacAddress(it.try_into().unwrap())),
        source: frame.get(6..12).map(|it| MacAddress(it.try_into().unwrap())),
        ..Seen::default()
    };
    let mut at = 12;
    for depth in 0..3 {
        let Some(kind) = number(frame, at) else { return seen };
        if depth == 2 || (kind != 0x8100 && kind != 0x88a8) {
            seen.ethertype = Some(kind);
            break;
        }
        if frame.len() < at + 6 {
            return seen;
        }
        seen.tag = seen.tag.or(number(frame, at + 2));
        at += 4;
    }
    let packet = &frame[at + 2..];
    match seen.ethertype {
        Some(0x0800) => see_ipv4(packet, &mut seen),
        Some(0x86dd) => see_ipv6(packet, &mut seen),
        Some(0x22f0) if packet.len() >= 12 && packet[1] & 0xf0 == 0x80 => {
            seen.stream = Some(u64::from_be_bytes(packet[4..12].try_into().unwrap()));
        }
        _ => {}
    }
    seen
}

fn see_ipv4(packet: &[u8], seen: &mut Seen) {
    let Some(first) = packet.first() else { return };
    let header = usize::from(first & 15) * 4;
    if first >> 4 != 4 || header < 20 || packet.len() < header {
        return;
    }
    let total = usize::from(number(packet, 2).unwrap());
    if total < header || total > packet.len() {
        return;
    }
    let address = |at: usize| IpAddr::from(<[u8; 4]>::try_from(&packet[at..at + 4]).unwrap());
    seen.addresses = Some((address(16), address(12)));
    seen.dscp = Some(packet[1] >> 2);
    if number(packet, 6).unwrap() & 0x3fff == 0 {
        seen.ports = see_ports(packet[9], &packet[header..], total - header);
    }
}

fn see_ipv6(packet: &[u8], seen: &mut Seen) {
    if packet.len() < 40 || packet[0] >> 4 != 6 {
        return;
    }
    let end = 40 + usize::from(number(packet, 4).unwrap());
    if end > packet.len() {
        return;
    }
    let address = |at: usize| IpAddr::from(<[u8; 16]>::try_from(&packet[at..at + 16]).unwrap());
    seen.addresses = Some((address(24), address(8)));
    seen.dscp = Some(u8::try_from(number(packet, 0).unwrap() >> 6 & 63).unwrap());
    let (mut next, mut at) = (packet[6], 40);
    for _ in 0..4 {
        if ![0, 43, 60].contains(&next) {
            break;
        }
        let Some(&[following, length]) = packet.get(at..at + 2) else { return };
        (next, at) = (following, at + 8 + usize::from(length) * 8);
    }
    if at <= end {
        seen.ports = see_ports(next, &packet[at..], end - at);
    }
}

/// To and from.
fn see_ports(protocol: u8, segment: &[u8], said: usize) -> Option<(u16, u16)> {
    let header = match protocol {
        17 => 8,
        6 => 20,
        _ => return None,
    };
    let is_whole = said >= header && segment.len() >= header;
    is_whole.then(|| (number(segment, 2).unwrap(), number(segment, 0).unwrap()))
}

fn is_in(address: IpAddr, prefix: Prefix) -> bool {
    let bits = |it: IpAddr| -> Vec<bool> {
        let bytes = match it {
            IpAddr::V4(it) => it.octets().to_vec(),
            IpAddr::V6(it) => it.octets().to_vec(),
        };
        bytes.iter().flat_map(|byte| (0..8).map(move |i| byte >> (7 - i) & 1 == 1)).collect()
    };
    let count = usize::from(prefix.bits);
    address.is_ipv4() == prefix.address.is_ipv4()
        && bits(address)[..count] == bits(prefix.address)[..count]
}

fn fits(one: &FrameMatch, seen: &Seen) -> bool {
    let either = |wanted: Option<u16>| {
        wanted.is_none_or(|port| seen.ports.is_some_and(|(to, from)| to == port || from == port))
    };
    let within = |wanted: Option<Prefix>, ends: fn((IpAddr, IpAddr)) -> Vec<IpAddr>| {
        wanted.is_none_or(|prefix| {
            let ends = seen.addresses.map(ends).unwrap_or_default();
            ends.into_iter().any(|end| is_in(end, prefix))
        })
    };
    fn same<T: PartialEq>(wanted: Option<T>, found: Option<T>) -> bool {
        wanted.is_none() || wanted == found
    }
    either(one.port)
        && same(one.to_port, seen.ports.map(|it| it.0))
        && same(one.from_port, seen.ports.map(|it| it.1))
        && within(one.address, |(to, from)| vec![to, from])
        && within(one.to_address, |(to, _)| vec![to])
        && within(one.from_address, |(_, from)| vec![from])
        && same(one.pcp, seen.tag.map(|tci| tci.to_be_bytes()[0] >> 5))
        && same(one.vlan, seen.tag.map(|tci| tci & 0x0fff))
        && same(one.dscp, seen.dscp)
        && same(one.ethertype, seen.ethertype)
        && same(one.destination, seen.destination)
        && same(one.source, seen.source)
        && same(one.stream, seen.stream)
}

/// The class that a frame has.
fn judge(rules: &Rules, frame: &[u8]) -> usize {
    let seen = see(frame);
    rules.matches.iter().find(|(_, one)| fits(one, &seen)).map_or(0, |(class, _)| *class)
}

const NICS: [[u8; 6]; 3] = [[2, 0, 0, 0, 0, 1], [0x91, 0xe0, 0xf0, 0, 0xfe, 1], [0xff; 6]];
const PORTS: [u16; 4] = [15_001, 15_002, 319, 0];
const STREAMS: [u64; 3] = [0x0200_0000_0001_0001, 0x0200_0000_0001_0002, 0];
const DSCPS: [u8; 3] = [46, 34, 0];
const V4: [[u8; 4]; 4] = [[10, 77, 0, 1], [10, 77, 1, 2], [10, 78, 0, 1], [239, 1, 2, 3]];

fn v6(random: &mut Random) -> [u8; 16] {
    let mut address = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    address[random.of(&[5, 7, 9, 15])] = random.of(&[0, 1, 0x80]);
    address
}

/// A frame of the kinds that rules ask for, mostly right.
fn frame(random: &mut Random) -> Vec<u8> {
    let mut frame = random.of(&NICS).to_vec();
    frame.extend(random.of(&NICS));
    for _ in 0..random.of(&[0, 0, 0, 1, 1, 2, 3]) {
        frame.extend(random.of(&[[0x81, 0x00], [0x88, 0xa8]]));
        frame.extend(random.of(&[0xc00a_u16, 0xc014, 0x600a, 0xd00a, 0x0000]).to_be_bytes());
    }
    let tos = random.of(&DSCPS) << 2 | random.of(&[0, 1, 2]);
    let mut segment = Vec::new();
    segment.extend(random.of(&PORTS).to_be_bytes());
    segment.extend(random.of(&PORTS).to_be_bytes());
    segment.resize(random.of(&[7, 8, 19, 20, 64]), 0);
    match random.of(&[0, 0, 0, 1, 1, 2, 3]) {
        0 => {
            let protocol = random.of(&[17, 17, 6, 1]);
            random.ipv4(&mut frame, protocol, &segment);
            let at = frame.len() - segment.len();
            let start = ipv4_start(&frame, at);
            frame[start + 1] = tos;
            let from = random.of(&V4);
            frame[start + 12..start + 16].copy_from_slice(&from);
            let to = random.of(&V4);
            frame[start + 16..start + 20].copy_from_slice(&to);
        }
        1 => {
            let start = frame.len() + 2;
            let protocol = random.of(&[17, 17, 6, 1]);
            random.ipv6(&mut frame, protocol, &segment);
            frame[start] |= tos >> 4;
            frame[start + 1] |= tos << 4;
            let from = v6(random);
            frame[start + 8..start + 24].copy_from_slice(&from);
            let to = v6(random);
            frame[start + 24..start + 40].copy_from_slice(&to);
        }
        2 => {
            frame.extend([0x22, 0xf0, random.of(&[0x02, 0x7e]), random.of(&[0x80, 0x81, 0, 0x90])]);
            frame.extend([0, 0]);
            frame.extend(random.of(&STREAMS).to_be_bytes());
            frame.resize(frame.len() + random.of(&[0, 12]), 0);
        }
        _ => {
            frame.extend(random.of(&[[0x88, 0xf7], [0x08, 0x06], [0x00, 0x2e]]));
            frame.resize(frame.len() + 46, 1);
        }
    }
    let padded = random.of(&[0, 60]).max(frame.len());
    frame.resize(padded, 0);
    for _ in 0..random.of(&[0, 0, 0, 1, 2]) {
        let at = random.below(frame.len());
        frame[at] = random.byte();
    }
    if random.below(6) == 0 {
        frame.truncate(14 + random.below(frame.len() - 13));
    }
    frame
}

/// Where the IPv4 header begins whose content begins at `at`.
fn ipv4_start(frame: &[u8], at: usize) -> usize {
    let is_it = |start: &usize| {
        frame[start - 2..*start] == [8, 0]
            && frame[*start] >> 4 == 4
            && start + usize::from(frame[*start] & 15) * 4 == at
    };
    (14..=at - 20).step_by(4).find(is_it).expect("it was written a moment ago")
}

fn a_match(random: &mut Random) -> FrameMatch {
    let mut one = FrameMatch::default();
    let prefix = |random: &mut Random| {
        if random.below(3) > 0 {
            let address = IpAddr::from(random.of(&V4));
            Prefix { address, bits: random.of(&[0, 8, 15, 16, 24, 31, 32]) }
        } else {
            let address = IpAddr::from(v6(random));
            Prefix { address, bits: random.of(&[0, 1, 47, 64, 127, 128]) }
        }
    };
    for _ in 0..random.of(&[1, 1, 1, 2, 3]) {
        match random.below(13) {
            0 => one.port = Some(random.of(&PORTS)),
            1 => one.to_port = Some(random.of(&PORTS)),
            2 => one.from_port = Some(random.of(&PORTS)),
            3 => one.address = Some(prefix(random)),
            4 => one.to_address = Some(prefix(random)),
            5 => one.from_address = Some(prefix(random)),
            6 => one.pcp = Some(random.of(&[6, 3, 0])),
            7 => one.vlan = Some(random.of(&[10, 20])),
            8 => one.dscp = Some(random.of(&DSCPS)),
            9 => one.ethertype = Some(random.of(&[0x88f7, 0x22f0, 0x0800, 0x86dd, 0x8100])),
            10 => one.destination = Some(MacAddress(random.of(&NICS))),
            11 => one.source = Some(MacAddress(random.of(&NICS))),
            _ => one.stream = Some(random.of(&STREAMS)),
        }
    }
    // Two requests for one field, of which the later would win.
    if one.port.is_some() {
        (one.to_port, one.from_port) = (None, None);
    }
    if one.address.is_some() {
        (one.to_address, one.from_address) = (None, None);
    }
    if let (Some(to), Some(from)) = (one.to_address, one.from_address)
        && to.address.is_ipv4() != from.address.is_ipv4()
    {
        one.from_address = None;
    }
    one
}

fn some_rules(random: &mut Random) -> Rules {
    let count = random.of(&[1, 2, 5, 12, 32]);
    let mut classes = vec![Class { slot: 0, target: a_target(random) }];
    classes.extend((1..=count).map(|slot| {
        let slot = u32::try_from(slot).unwrap();
        Class { slot, target: a_target(random) }
    }));
    let mut matches = Vec::new();
    let mut comparisons = 0;
    for _ in 0..random.of(&[1, 4, 20, 100]) {
        let one = a_match(random);
        comparisons += one.comparisons();
        if comparisons > MAX_COMPARISONS {
            break;
        }
        matches.push((1 + random.below(count), one));
    }
    Rules { classes, matches, text: "as it was".to_owned() }
}

fn a_target(random: &mut Random) -> Target {
    match random.below(3) {
        0 => Target::Kernel,
        1 => Target::Socket,
        // Only CPU 0 has threads: of those with 1 as well, a part goes up at once.
        _ => Target::Threads {
            lane: random.of(&[0, 3, 7]),
            cpus: random.of(&[&[0][..], &[0, 1]]).to_vec(),
        },
    }
}

fn loaded() -> Option<Programs> {
    let programs = match Programs::load(ProgramSettings::default()) {
        Ok(programs) => programs,
        Err(error) => {
            eprintln!("SKIP: {error}");
            return None;
        }
    };
    for lane in ["lane_0", "lane_3", "lane_7"] {
        add_thread(&map_of(&programs.0, lane), 0).unwrap();
    }
    Some(programs)
}

fn run(programs: &mut Programs, frame: &[u8], times: u32) -> u32 {
    let input = ProgramInput { data_in: Some(frame), repeat: times, ..ProgramInput::default() };
    let mut all = programs.0.progs_mut();
    let program = all.find(|program| program.name() == "tw_classify").unwrap();
    program.test_run(input).unwrap().return_value
}

fn count(map: &impl MapCore, slot: u32) -> ClassCounter {
    read_counter(map, slot).unwrap().into_iter().sum()
}

#[test]
fn t3_the_kernel_judges_frames_as_the_model_does() {
    let Some(mut programs) = loaded() else { return };
    let mut random = Random(7);
    let (mut judged, mut redirected) = (0_u32, 0_u32);
    for _ in 0..300 {
        let rules = some_rules(&mut random);
        replace_rules(&map_of(&programs.0, "rules"), &rules).unwrap();
        for _ in 0..150 {
            let frame = frame(&mut random);
            let class = judge(&rules, &frame);
            let slot = rules.classes[class].slot;
            let before = count(&map_of(&programs.0, "counters"), slot);
            let verdict = run(&mut programs, &frame, 1);
            let after = count(&map_of(&programs.0, "counters"), slot);
            let more = |of: fn(&ClassCounter) -> u64| of(&after) - of(&before);
            let told = format!("{class} of {rules:?}: {frame:02x?}");
            assert_eq!(more(|it| it.frames), 1, "{told}");
            assert_eq!(more(|it| it.bytes), u64::try_from(frame.len()).unwrap(), "{told}");
            let is_redirected = u64::from(verdict == XDP_REDIRECT);
            assert!(is_redirected == 1 || verdict == XDP_PASS, "{verdict}: {told}");
            assert_eq!(more(|it| it.kernel), 1 - is_redirected, "{told}");
            match &rules.classes[class].target {
                Target::Kernel => assert_eq!((verdict, more(|it| it.turned)), (XDP_PASS, 0)),
                // There is no socket.
                Target::Socket => assert_eq!((verdict, more(|it| it.turned)), (XDP_PASS, 1)),
                Target::Threads { cpus, .. } => {
                    assert!(is_redirected == 1 || cpus.len() == 2, "{told}");
                    assert_eq!(more(|it| it.threads), is_redirected, "{told}");
                    assert_eq!(more(|it| it.turned), 1 - is_redirected, "{told}");
                }
            }
            judged += u32::from(class > 0);
            redirected += u32::from(verdict == XDP_REDIRECT);
        }
    }
    // A good part has a class, and a good part has not.
    assert!((5_000..40_000).contains(&judged), "{judged} of 45000 have a class");
    assert!((3_000..40_000).contains(&redirected), "{redirected} of 45000 are redirected");
}

/// Rules that differ from each other in every comparison: the frame fits the last of as many as
/// there can be, which stands elsewhere in the other.
fn one_of_two(first: bool) -> Rules {
    let class = |slot| Class { slot, target: Target::Kernel };
    let never = |port| FrameMatch { to_port: Some(port), ..FrameMatch::default() };
    let fits = FrameMatch { to_port: Some(15_001), ..FrameMatch::default() };
    let others = u16::try_from(MAX_COMPARISONS).unwrap() - 1;
    let others = (0..others).map(|i| (3, never(if first { 1_000 } else { 2_000 } + i)));
    let mut matches: Vec<_> = others.collect();
    let (own, at) = if first { (1, matches.len()) } else { (2, 60) };
    matches.insert(at, (own, fits));
    Rules { classes: vec![class(0), class(1), class(2), class(3)], matches, text: String::new() }
}

#[test]
fn t3_under_traffic_each_frame_is_judged_by_the_old_or_the_new_rules() {
    const TURNS: usize = 2_000;
    let Some(mut programs) = loaded() else { return };
    let rules = MapHandle::try_from(&map_of(&programs.0, "rules")).unwrap();
    let counters = MapHandle::try_from(&map_of(&programs.0, "counters")).unwrap();
    replace_rules(&rules, &one_of_two(true)).unwrap();
    let mut frame = vec![2; 12];
    frame.extend([0x08, 0x00, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17]);
    frame.resize(36, 0);
    frame.extend(15_001_u16.to_be_bytes());
    frame.resize(60, 0);
    let (done, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let traffic = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                run(&mut programs, &frame, 1_000);
                sent.fetch_add(1_000, Ordering::Relaxed);
            }
        });
        for turn in 0..TURNS {
            assert!(!traffic.is_finished(), "the traffic broke off");
            let first = turn % 2 == 1;
            replace_rules(&rules, &one_of_two(first)).unwrap();
            // When it returns, the old ones judge no frame any more.
            let old = if first { 2 } else { 1 };
            let before = count(&counters, old);
            if turn % 8 == 0 {
                let frames = sent.load(Ordering::Relaxed);
                while sent.load(Ordering::Relaxed) < frames + 2_000 {
                    std::thread::yield_now();
                }
            }
            assert_eq!(count(&counters, old), before, "turn {turn}");
        }
        done.store(true, Ordering::Relaxed);
    });
    let by_slot = [0, 1, 2, 3].map(|slot| count(&counters, slot).frames);
    eprintln!("{TURNS} turns in {sent:?} frames: {by_slot:?}");
    assert_eq!((by_slot[0], by_slot[3]), (0, 0), "judged by a mixture: {by_slot:?}");
    assert_eq!(by_slot[1] + by_slot[2], sent.into_inner());
    assert!(by_slot[1] > 10_000 && by_slot[2] > 10_000, "{by_slot:?}");
}

#[test]
fn t0_what_there_is_no_room_for_is_refused() {
    let one = |class| (class, FrameMatch { port: Some(1), ..FrameMatch::default() });
    let class = |slot| Class { slot, target: Target::Kernel };
    let rules = Rules { matches: (0..65).map(|_| one(0)).collect(), ..Rules::none() };
    assert_eq!(rules.encode().unwrap_err().to_string(), "130 comparisons are more than 128");
    let rules = Rules { classes: (0..34).map(class).collect(), ..Rules::none() };
    assert_eq!(rules.encode().unwrap_err().to_string(), "33 classes are more than 32");
    let rules = Rules { text: "x".repeat(40_000), ..Rules::none() };
    assert_eq!(rules.encode().unwrap_err().to_string(), "40000 bytes of text are more than 32768");
    let target = Target::Threads { lane: 1, cpus: (0..17).collect() };
    let rules = Rules { classes: vec![Class { slot: 0, target }], ..Rules::none() };
    assert_eq!(rules.encode().unwrap_err().to_string(), "17 CPUs of a class are more than 16");
}
