// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which frames have a priority, and that everything doubtful has none.

use proptest::prelude::*;
use timewire_base::wire::Frame;
use timewire_base::{Port, Priority};
use timewire_tsn::PortRules;

const TCP: u8 = 6;
const UDP: u8 = 17;

fn rules(list: &[(u64, u64)]) -> PortRules {
    PortRules::new(32, &pairs(list)).unwrap()
}

fn pairs(list: &[(u64, u64)]) -> Vec<(Port, Priority)> {
    let pair = |&(port, priority)| (Port::new(port).unwrap(), Priority::new(priority).unwrap());
    list.iter().map(pair).collect()
}

/// `tdm send 3 15001 2 15002 4 15003 1`
fn three_queues() -> PortRules {
    rules(&[(15_001, 2), (15_002, 4), (15_003, 1)])
}

fn priority_of(rules: &PortRules, frame: &[u8]) -> Option<u8> {
    rules.classify(frame).map(Priority::get)
}

/// A UDP or TCP header with its ports.
fn segment(protocol: u8, source: u16, destination: u16) -> Vec<u8> {
    let mut bytes = [source.to_be_bytes(), destination.to_be_bytes()].concat();
    bytes.resize(if protocol == TCP { 20 } else { 8 }, 0);
    bytes
}

fn ethernet(tags: &[u16], ethertype: u16, packet: &[u8]) -> Vec<u8> {
    let mut frame = vec![2; 12];
    for tag in tags {
        frame.extend(tag.to_be_bytes());
        frame.extend([0x60, 0x05]);
    }
    frame.extend(ethertype.to_be_bytes());
    frame.extend(packet);
    frame
}

fn ipv4(protocol: u8, options: usize, content: &[u8]) -> Vec<u8> {
    let header = 20 + options;
    let mut packet = vec![0; header];
    packet[0] = 0x40 | u8::try_from(header / 4).unwrap();
    packet[2..4].copy_from_slice(&u16::try_from(header + content.len()).unwrap().to_be_bytes());
    packet[6] = 0x40; // don't fragment
    packet[9] = protocol;
    packet.extend(content);
    packet
}

/// `extensions` are header numbers in order, each 8 or 16 bytes long.
fn ipv6(protocol: u8, extensions: &[u8], content: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    let chain: Vec<u8> = extensions.iter().copied().chain([protocol]).collect();
    for (n, next) in chain.iter().skip(1).enumerate() {
        let longer = u8::try_from(n % 2).unwrap();
        body.extend([*next, longer]);
        body.resize(body.len() + 6 + usize::from(longer) * 8, 0);
    }
    body.extend(content);
    let mut packet = vec![0; 40];
    packet[0] = 0x60;
    packet[4..6].copy_from_slice(&u16::try_from(body.len()).unwrap().to_be_bytes());
    packet[6] = chain[0];
    packet.extend(body);
    packet
}

#[test]
fn t0_priority_follows_the_destination_port_then_the_source_port() {
    let rules = three_queues();
    let frame = |source, destination| {
        ethernet(&[], 0x0800, &ipv4(UDP, 0, &segment(UDP, source, destination)))
    };
    assert_eq!(priority_of(&rules, &frame(40_000, 15_001)), Some(2));
    assert_eq!(priority_of(&rules, &frame(15_003, 40_000)), Some(1));
    assert_eq!(priority_of(&rules, &frame(15_003, 15_002)), Some(4));
    assert_eq!(priority_of(&rules, &frame(40_000, 40_001)), None);
    assert_eq!(priority_of(&PortRules::default(), &frame(40_000, 15_001)), None);
}

#[test]
fn t0_every_nesting_that_is_understood() {
    let rules = three_queues();
    for protocol in [UDP, TCP] {
        let content = segment(protocol, 1, 15_002);
        for tags in [&[][..], &[0x8100], &[0x88a8, 0x8100], &[0x8100, 0x8100]] {
            for options in [0, 4, 40] {
                let frame = ethernet(tags, 0x0800, &ipv4(protocol, options, &content));
                assert_eq!(priority_of(&rules, &frame), Some(4));
                let padded = [frame, vec![0; 20]].concat();
                assert_eq!(priority_of(&rules, &padded), Some(4));
            }
            for extensions in [&[][..], &[0], &[60], &[43], &[0, 60, 43, 60]] {
                let frame = ethernet(tags, 0x86dd, &ipv6(protocol, extensions, &content));
                assert_eq!(priority_of(&rules, &frame), Some(4), "{extensions:?}");
            }
        }
    }
}

#[test]
fn t0_everything_doubtful_has_no_priority() {
    let rules = three_queues();
    let content = segment(UDP, 15_001, 15_001);
    let v4 = ipv4(UDP, 0, &content);
    let v6 = ipv6(UDP, &[0], &content);
    let changed = |packet: &[u8], at: usize, value: u8| {
        let mut packet = packet.to_vec();
        packet[at] = value;
        packet
    };
    let mut with_ports_for_an_address = v4.clone();
    with_ports_for_an_address[16..20].copy_from_slice(&content[..4]);
    let v4_cases = [
        ("more fragments", changed(&v4, 6, 0x20)),
        ("a later fragment", changed(&v4, 7, 0x01)),
        ("a late fragment", changed(&v4, 6, 0x10)),
        ("a header too short", changed(&with_ports_for_an_address, 0, 0x44)),
        ("a header too long", changed(&v4, 0, 0x4f)),
        ("another version", changed(&v4, 0, 0x65)),
        ("a length beyond the frame", changed(&v4, 3, 29)),
        ("a length without the ports", changed(&v4, 3, 27)),
        ("no length", changed(&v4, 3, 0)),
        ("ICMP", changed(&v4, 9, 1)),
        ("TCP cut short", changed(&v4, 9, TCP)),
    ];
    for (what, packet) in v4_cases {
        assert_eq!(rules.classify(&ethernet(&[], 0x0800, &packet)), None, "{what}");
    }
    let v6_cases = [
        ("another version", changed(&v6, 0, 0x45)),
        ("a length beyond the frame", changed(&v6, 5, 17)),
        ("a length without the ports", changed(&v6, 5, 15)),
        ("an extension beyond the packet", changed(&v6, 41, 1)),
        ("a fragment", changed(&v6, 6, 44)),
        ("a fragment behind an extension", changed(&v6, 40, 44)),
        ("encryption", changed(&v6, 40, 50)),
        ("five extensions", ipv6(UDP, &[0, 60, 60, 60, 60], &content)),
    ];
    for (what, packet) in v6_cases {
        assert_eq!(rules.classify(&ethernet(&[], 0x86dd, &packet)), None, "{what}");
    }
    let frames = [
        ("three tags", ethernet(&[0x8100, 0x8100, 0x8100], 0x0800, &v4)),
        ("an unknown tag", ethernet(&[0x9100], 0x0800, &v4)),
        ("a length for a type", ethernet(&[], 46, &v4)),
        ("v4 said to be v6", ethernet(&[], 0x86dd, &v4)),
        ("v6 said to be v4", ethernet(&[], 0x0800, &v6)),
        ("ARP", ethernet(&[], 0x0806, &v4)),
        ("nothing", vec![]),
    ];
    for (what, frame) in frames {
        assert_eq!(rules.classify(&frame), None, "{what}");
    }
}

#[test]
fn t0_lists_that_cannot_be_say_why() {
    let error =
        |queues, list: &[(u64, u64)]| PortRules::new(queues, &pairs(list)).unwrap_err().to_string();
    assert_eq!(
        error(2, &[(5, 7), (9, 1), (5, 3)]),
        "port 5 has two rules, priority 7 and priority 3: a port takes one"
    );
    assert_eq!(
        error(1, &[(5, 7), (5, 7)]),
        "port 5 has two rules, priority 7 and priority 7: a port takes one"
    );
    assert_eq!(
        error(1, &[(5, 7), (6, 3)]),
        "the number of queues is 1, but the rules name 2 priorities: say 2"
    );
    assert_eq!(
        error(33, &[]),
        "33 queues cannot be: there are 32 priorities, and the default queue is extra"
    );
    let many: Vec<_> = (1..=65).map(|port| (port, 1)).collect();
    assert_eq!(error(1, &many), "65 port rules are more than the 64 that a list takes");
}

#[test]
fn t0_ports_may_share_a_queue() {
    let list = pairs(&[(30, 4), (10, 4), (20, 1)]);
    let rules = PortRules::new(2, &list).unwrap();
    assert_eq!(rules.queue_set().priorities().map(Priority::get).collect::<Vec<_>>(), [1, 4]);
    assert_eq!(rules.rules().map(|(port, _)| port).collect::<Vec<_>>(), [10, 20, 30]);
    // More queues than priorities: the rest would stay empty for ever.
    assert_eq!(PortRules::new(9, &list).unwrap().queue_set(), rules.queue_set());
    assert!(PortRules::new(0, &[]).unwrap().queue_set().is_empty());
    let full: Vec<_> = (1..=64).map(|port| (port, port % 32 + 1)).collect();
    assert_eq!(PortRules::new(32, &pairs(&full)).unwrap().queue_set().len(), 32);
}

/// A frame with its source and destination port.
fn frames() -> impl Strategy<Value = (Vec<u8>, u16, u16)> {
    let tags = proptest::collection::vec(prop_oneof![Just(0x8100_u16), Just(0x88a8)], 0..3);
    let ports = prop_oneof![Just(15_001_u16), Just(15_002), any::<u16>()];
    let extensions = proptest::collection::vec(prop_oneof![Just(0_u8), Just(43), Just(60)], 0..5);
    let head = (prop_oneof![Just(UDP), Just(TCP)], any::<bool>(), 0_usize..11);
    (tags, head, extensions, ports.clone(), ports).prop_map(
        |(tags, (protocol, old, options), extensions, source, destination)| {
            let content = segment(protocol, source, destination);
            let frame = if old {
                ethernet(&tags, 0x0800, &ipv4(protocol, options * 4, &content))
            } else {
                ethernet(&tags, 0x86dd, &ipv6(protocol, &extensions, &content))
            };
            (frame, source, destination)
        },
    )
}

fn many_cases() -> ProptestConfig {
    ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(many_cases())]

    /// The ports are enough, as long as the packet is said to have been whole.
    #[test]
    fn t0_a_captured_start_is_classified_like_the_whole(
        (frame, source, destination) in frames(),
        cut in any::<prop::sample::Index>(),
    ) {
        let whole = frame.len();
        let ports = Frame::parse(&frame).and_then(|it| it.ports(whole)).unwrap();
        prop_assert_eq!((ports.source, ports.destination), (source, destination));
        // The segments made here have no content: it would start where the frame ends.
        prop_assert_eq!(ports.content_at, whole);
        let rules = three_queues();
        let captured = &frame[..cut.index(whole)];
        let answer = rules.classify_captured(captured, whole);
        let ports = Frame::parse(captured).and_then(|it| it.ports(whole));
        let has_ports = captured.len() + 20 >= whole && ports.is_some();
        prop_assert!(answer.is_none() || (has_ports && answer == rules.classify(&frame)));
        prop_assert_eq!(rules.classify_captured(&frame, whole - 1), None);
        let short = rules.classify_captured(&frame[..whole - 4], whole);
        prop_assert_eq!(short, rules.classify(&frame));
    }

    /// A whole frame is found by its ports, and one that is cut anywhere has no priority.
    #[test]
    fn t0_whole_frames_are_classified_and_cut_ones_are_not(
        (frame, source, destination) in frames(),
        cut in any::<prop::sample::Index>(),
    ) {
        let rules = three_queues();
        let find = |port| rules.rules().find(|rule| rule.0 == port).map(|rule| rule.1);
        prop_assert_eq!(rules.classify(&frame), find(destination).or_else(|| find(source)));
        prop_assert_eq!(rules.classify(&frame[..cut.index(frame.len())]), None);
    }

    /// One wrong bit, or noise: some answer, never a panic, never a priority without a rule.
    #[test]
    fn t0_any_bytes_are_answered(
        (mut frame, _, _) in frames(),
        bit in any::<prop::sample::Index>(),
        noise in any::<[u8; 64]>(),
    ) {
        let rules = three_queues();
        let bit = bit.index(frame.len() * 8);
        frame[bit / 8] ^= 1 << (bit % 8);
        let known = [None, Some(1), Some(2), Some(4)];
        prop_assert!(known.contains(&priority_of(&rules, &frame)));
        prop_assert!(known.contains(&priority_of(&rules, &noise)));
    }
}
