// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Filters against frames: tables, properties, and `tcpdump` where there is one.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use timewire_base::wire::MacAddress;

use super::*;
use crate::event::Hook;

const MACS: [[u8; 6]; 3] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2], [0xff; 6]];
const V4: [[u8; 4]; 4] = [[10, 0, 0, 1], [10, 0, 1, 2], [192, 168, 0, 1], [0, 0, 0, 0]];
const V6: [&str; 4] = ["fd00::1", "fd00::2", "fd01::1", "::"];
const PORTS: [u16; 4] = [0, 53, 7000, 65_535];
const NAMES: [&str; 3] = ["talker", "a 1", "kworker/0:1-eve"];

/// A frame of a small world, so that filters of the same world often hold.
#[derive(Clone, Debug)]
struct Made {
    tags: Vec<(u16, u16)>,
    ether_type: u16,
    addresses: (usize, usize),
    macs: (usize, usize),
    protocol: u8,
    ports: (usize, usize),
    fragment: bool,
    options: u8,
    cut: usize,
}

impl Made {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = [MACS[self.macs.1], MACS[self.macs.0]].concat();
        for (tpid, tci) in &self.tags {
            bytes.extend(tpid.to_be_bytes());
            bytes.extend(tci.to_be_bytes());
        }
        bytes.extend(self.ether_type.to_be_bytes());
        let (from, to) = self.addresses;
        match self.ether_type {
            0x0800 => {
                bytes.extend([0x45 + self.options, 0, 0, 64, 0, 1]);
                bytes.extend(if self.fragment { [0, 3] } else { [0x40, 0] });
                bytes.extend([64, self.protocol, 0, 0]);
                bytes.extend([V4[from], V4[to]].concat());
                bytes.extend(vec![1; 4 * usize::from(self.options)]);
            }
            0x86dd => {
                let next = if self.fragment { 44 } else { self.protocol };
                bytes.extend([0x60, 0, 0, 0, 0, 32, next, 64]);
                for address in [from, to] {
                    bytes.extend(V6[address].parse::<Ipv6Addr>().unwrap().octets());
                }
                if self.fragment {
                    bytes.extend([self.protocol, 0, 0, 8, 0, 0, 0, 1]);
                }
            }
            0x0806 | 0x8035 => {
                bytes.extend([0, 1, 8, 0, 6, 4, 0, 1]);
                bytes.extend([&MACS[0][..], &V4[from], &MACS[1], &V4[to]].concat());
            }
            _ => {}
        }
        bytes.extend(PORTS[self.ports.0].to_be_bytes());
        bytes.extend(PORTS[self.ports.1].to_be_bytes());
        bytes.extend([0; 32]);
        bytes.truncate(bytes.len() - self.cut.min(bytes.len()));
        bytes
    }
}

fn any_frame(cut: usize) -> impl Strategy<Value = Made> {
    let tag = (
        prop::sample::select(vec![0x8100_u16, 0x88a8]),
        prop::sample::select(vec![0x0005_u16, 0x6005, 0xe000, 0x7fff, 0x6064]),
    );
    let types = vec![0x0800_u16, 0x0800, 0x86dd, 0x86dd, 0x0806, 0x8035, 0x88f7, 46];
    let protocols = vec![1_u8, 6, 17, 17, 58, 132, 50];
    let pair = |n: usize| (0..n, 0..n);
    (
        prop::collection::vec(tag, 0..3),
        prop::sample::select(types),
        pair(4),
        pair(3),
        prop::sample::select(protocols),
        pair(4),
        (prop::bool::weighted(0.2), 0..2_u8, 0..=cut),
    )
        .prop_map(|(tags, ether_type, addresses, macs, protocol, ports, rest)| Made {
            tags,
            ether_type,
            addresses,
            macs,
            protocol,
            ports,
            fragment: rest.0,
            options: rest.1,
            cut: rest.2,
        })
}

fn any_facts() -> impl Strategy<Value = Facts> {
    let owner = (prop::option::of((1..4_u32, 1..4_u32, 0..3_usize)), 0..3_usize);
    (any_frame(80), owner).prop_filter_map("14 bytes", |(made, (owner, interface))| {
        let owner = owner.map(|(process, thread, name)| Owner {
            process,
            thread,
            name: NAMES[name].to_owned(),
        });
        Facts::of_frame(&made.bytes())
            .map(|facts| facts.with(owner, ["", "eth0", "br-0"][interface]))
    })
}

fn any_side() -> impl Strategy<Value = Side> {
    let sides = vec![Side::Source, Side::Destination, Side::Either, Side::Both];
    prop::sample::select(sides)
}

/// Conditions that `tcpdump` knows, too.
fn any_classic() -> impl Strategy<Value = Primitive> {
    use kind::{ARP, IP, IPV4, IPV6, RARP};
    let kinds = prop::sample::select(vec![IPV4, IPV6, ARP, RARP]);
    let protocol = prop::sample::select(vec![1_u8, 6, 17, 58, 132, 50]);
    let four = (
        prop::sample::select(vec![IPV4, ARP, RARP, IPV4 | ARP | RARP]),
        any_side(),
        0..4_usize,
        prop::sample::select(vec![0_u8, 8, 16, 24, 31, 32]),
    )
        .prop_map(|(kinds, side, address, prefix)| Primitive::Net {
            kinds,
            side,
            address: IpAddr::V4(Ipv4Addr::from(
                u32::from(Ipv4Addr::from(V4[address]))
                    & u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0),
            )),
            prefix,
        });
    let six = (any_side(), 0..4_usize, prop::sample::select(vec![8_u8, 16, 64, 127, 128]))
        .prop_map(|(side, address, prefix)| Primitive::Net {
            kinds: IPV6,
            side,
            address: IpAddr::V6(Ipv6Addr::from(
                u128::from(V6[address].parse::<Ipv6Addr>().unwrap())
                    & u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0),
            )),
            prefix,
        });
    let ports = (
        prop::sample::select(vec![None, Some(6_u8), Some(17), Some(132)]),
        any_side(),
        0..4_usize,
        0..4_usize,
    )
        .prop_map(|(protocol, side, a, b)| Primitive::Ports {
            kinds: IP,
            protocol,
            side,
            least: PORTS[a.min(b)],
            most: PORTS[a.max(b)],
        });
    prop_oneof![
        1 => kinds.prop_map(Primitive::Kinds),
        2 => (prop::sample::select(vec![IPV4, IPV6, IP]), protocol)
            .prop_map(|(kinds, protocol)| Primitive::Protocol { kinds, protocol }),
        3 => four,
        2 => six,
        4 => ports,
        1 => prop::sample::select(vec![0x88f7_u16, 0x0800, 0x86dd]).prop_map(Primitive::EtherType),
        1 => (any_side(), 0..3_usize)
            .prop_map(|(side, mac)| Primitive::Mac { side, address: MacAddress(MACS[mac]) }),
        1 => Just(Primitive::Multicast),
    ]
}

fn any_primitive() -> impl Strategy<Value = Primitive> {
    prop_oneof![
        8 => any_classic(),
        1 => prop::option::of(prop::sample::select(vec![0_u16, 5, 100])).prop_map(Primitive::Vlan),
        1 => prop::sample::select(vec![0_u8, 3, 7]).prop_map(Primitive::Pcp),
        1 => (1..5_u32).prop_map(Primitive::Process),
        1 => (0..3_usize).prop_map(|name| Primitive::ProcessName(NAMES[name].to_owned())),
        1 => prop::sample::select(vec!["eth0", "br-0"])
            .prop_map(|name| Primitive::Interface(name.to_owned())),
    ]
}

fn any_expr(primitive: impl Strategy<Value = Primitive> + 'static) -> impl Strategy<Value = Expr> {
    primitive.prop_map(|primitive| Expr::Is(0, primitive)).prop_recursive(4, 9, 2, |inner| {
        let pair = (inner.clone(), inner.clone());
        prop_oneof![
            inner.prop_map(|inner| Expr::Not(Box::new(inner))),
            pair.clone().prop_map(|(a, b)| Expr::And(0, Box::new(a), Box::new(b))),
            pair.prop_map(|(a, b)| Expr::Or(0, Box::new(a), Box::new(b))),
        ]
    })
}

/// The text of a filter for a world of frames without tags: `tcpdump` looks at the first bytes.
fn parsed(text: &str) -> Filter {
    Filter::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn t0_the_struct_says_what_the_filter_says(
        expr in any_expr(any_primitive()),
        frames in prop::collection::vec(any_facts(), 1..12),
    ) {
        match compile::compile(&expr) {
            Ok(compiled) => for frame in frames {
                prop_assert_eq!(compiled.holds(&frame.keys()), expr.holds(&frame), "{:?}", frame);
            },
            Err(error) => prop_assert!(error.what.contains("more than"), "{}", error),
        }
    }

    #[test]
    fn t0_a_filter_in_full_reads_back(
        expr in any_expr(any_primitive()),
        frame in any_facts(),
    ) {
        let again = parsed(&expr.to_string());
        prop_assert_eq!(again.to_string(), expr.to_string());
        prop_assert_eq!(again.holds(&frame), expr.holds(&frame));
    }

    #[test]
    fn t0_a_deep_or_long_filter_in_full_reads_back_too(
        (before, each, between, count, after) in prop_oneof![
            (1_usize..=100).prop_map(|n| ("!".repeat(n), "tcp", "", 1, String::new())),
            (1_usize..=100).prop_map(|n| ("(".repeat(n), "tcp", " or ", 2, ")".repeat(n))),
            (1_usize..=99).prop_map(|n| ("ip and (".repeat(n), "tcp", " or ", 2, ")".repeat(n))),
            (1_usize..=99).prop_map(|n| ("!(ip or ".repeat(n), "tcp", " or ", 2, ")".repeat(n))),
            (1_usize..2_000).prop_map(|n| (String::new(), "tcp", " or ", n, String::new())),
            (1_usize..1_000).prop_map(|n| (String::new(), "1.2.3.4", " and ", n, String::new())),
        ],
    ) {
        let text = format!("{before}{}{after}", vec![each; count].join(between));
        match Filter::parse(&text) {
            Ok(filter) => {
                let again = parsed(&filter.to_string());
                prop_assert_eq!(again.to_string(), filter.to_string());
            }
            Err(error) => {
                let said = error.to_string();
                let is_limit = ["at most 8192", "at most 100"].iter().any(|it| said.contains(it));
                prop_assert!(is_limit, "{said}");
            }
        }
    }

    #[test]
    fn t0_any_text_is_read_or_refused_with_its_place(text in any_text()) {
        if let Err(error) = Filter::parse(&text) {
            prop_assert!(error.at <= text.len() && text.is_char_boundary(error.at));
            prop_assert!(!error.right.is_empty());
        }
    }

    #[test]
    fn t0_any_bytes_are_a_frame_or_none(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        prop_assert_eq!(Facts::of_frame(&bytes).is_some(), bytes.len() >= 14);
    }
}

fn any_text() -> impl Strategy<Value = String> {
    let words = "host src dst or and not ( ) ! && || net port portrange 80 10.0.0.1 10/8 fd00::/16 \
                 ether proto vlan pcp process interface \" \"x\" flow tag hook 7-9 tcp udp ip ip6 \
                 icmp arp 2:0:0:0:0:1 \u{20ac} 99999 0x88f7 broadcast | &";
    let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
    prop_oneof![
        prop::collection::vec(prop::sample::select(words), 0..12).prop_map(|words| words.join(" ")),
        ".{0,40}",
    ]
}

fn udp(from: usize, to: usize, tags: &[(u16, u16)]) -> Facts {
    let made = Made {
        tags: tags.to_vec(),
        ether_type: 0x0800,
        addresses: (from, to),
        macs: (0, 1),
        protocol: 17,
        ports: (1, 2),
        fragment: false,
        options: 0,
        cut: 0,
    };
    Facts::of_frame(&made.bytes()).unwrap()
}

#[test]
fn t0_filters_hold_for_what_they_say() {
    let owner = Owner { process: 40, thread: 41, name: "talker".to_owned() };
    let plain = udp(0, 1, &[]).with(Some(owner), "eth0");
    let tagged = udp(0, 1, &[(0x8100, 0x6005)]);
    for (text, of_plain, of_tagged) in [
        ("", true, true),
        ("udp port 7000", true, true),
        ("udp dst port 7000 and src host 10.0.0.1", true, true),
        ("src port 7000", false, false),
        ("tcp port 7000", false, false),
        ("portrange 6990-7001", true, true),
        ("port 80 or 443 or 53", true, true),
        ("not port 80 and 53", true, true),
        ("net 10", true, true),
        ("net 10.0.0.0/24", true, true),
        ("dst net 10.0.0.0/24", false, false),
        ("src and dst net 10.0/16", true, true),
        ("10.0.0.1", true, true),
        ("host 192.168.0.1", false, false),
        ("ether host 02:00:00:00:00:01", true, true),
        ("ether dst 02:00:00:00:00:01", false, false),
        ("ether proto 0x0800", true, true),
        ("vlan", false, true),
        ("vlan 5", false, true),
        ("vlan 6", false, false),
        ("pcp 3", false, true),
        ("not vlan and ip", true, false),
        ("interface eth0", true, false),
        ("process 40 or process 7", true, false),
        ("process 41", true, false),
        ("process talker", true, false),
        ("ip proto 17", true, true),
        ("ip proto \\udp", true, true),
        ("! (tcp || icmp) && udp", true, true),
        // From the left: (udp or arp) and tcp.
        ("udp or arp and tcp", false, false),
        ("udp or (arp and tcp)", true, true),
        ("hook drop", false, false),
    ] {
        let filter = parsed(text);
        assert_eq!(filter.holds(&plain), of_plain, "{text}");
        assert_eq!(filter.holds(&tagged), of_tagged, "{text}");
        if !text.starts_with("hook") {
            let compiled = filter.compile().unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(compiled.holds(&plain.keys()), of_plain, "{text}");
            assert_eq!(compiled.holds(&tagged.keys()), of_tagged, "{text}");
        }
    }
}

#[test]
fn t0_wrong_filters_are_refused_with_place_and_remedy() {
    for (text, expected) in [
        (
            "host alpha",
            "byte 5: `alpha` is not right here; right would be: an address, such as \
                        10.0.0.1 or fd00::1; names of hosts are not looked up",
        ),
        ("udp and", "byte 7: the filter ends; right would be: a condition starts with"),
        ("port 70000", "byte 5: `70000` is not right here; right would be: a port, 0 to 65535"),
        (
            "net 10.0.0.1/8",
            "byte 4: `10.0.0.1/8` has bits behind its prefix; right would be: \
                            `10.0.0.0/8`",
        ),
        ("host 10.0.0.0/8", "byte 5: `10.0.0.0/8` is a network; right would be: `net 10.0.0.0/8`"),
        ("udp host 10.0.0.1", "byte 0: a protocol that has ports, before something else"),
        ("ip6 host 10.0.0.1", "byte 9: `10.0.0.1` is an address of the other version"),
        ("(udp", "byte 4: the filter ends; right would be: `)`"),
        ("udp tcp", "byte 4: `tcp` does not belong here; right would be: `and`, `or` or the end"),
        ("udp & tcp", "byte 4: a single `&`"),
        (
            "ether proto 0x8100",
            "byte 0: the EtherType behind VLAN tags is compared, and this is \
                                that of a tag; right would be: `vlan`",
        ),
        ("pcp 8", "byte 4: `8` is not right here; right would be: a priority code point, 0 to 7"),
        ("vlan 5000", "byte 5: `5000` is not right here; right would be: a VLAN, 0 to 4095"),
        (
            "interface a-name-of-16-byte",
            "byte 10: the kernel's names have at most 15 bytes; right \
                                       would be: \"a-name-of-16-by",
        ),
        ("interface \0", "byte 10: the kernel's names end before a byte that is zero; right"),
        ("process tw\0", "byte 8: the kernel's names end before a byte that is zero; right"),
        ("len > 5", "byte 0: `len` is no condition"),
        ("hook nowhere", "byte 5: `nowhere` is not right here; right would be: one of marker,"),
        ("process 0", "byte 8: `0` is not right here; right would be: a number from 1 on"),
        ("portrange 9-7", "byte 10: `9-7` is not right here"),
    ] {
        match Filter::parse(text) {
            Ok(filter) => panic!("{text}: read as {filter}"),
            Err(error) => {
                let said = error.to_string();
                let said = said.strip_prefix("filter, ").unwrap();
                assert!(said.starts_with(expected), "{text}: {said}");
            }
        }
    }
}

#[test]
fn t0_what_does_not_fit_says_where_and_what_to_do() {
    let ports: Vec<String> = (0..9).map(|n| format!("port {n}")).collect();
    let error = parsed(&ports.join(" or ")).compile().unwrap_err();
    assert_eq!(error.at, 77, "{error}");
    assert!(error.what.contains("more than 8 alternatives (9)"), "{error}");
    assert!(error.right.contains("`portrange`"), "{error}");

    let error = parsed("udp and flow 7").compile().unwrap_err();
    assert_eq!(
        (error.at, error.what.as_str()),
        (8, "`flow 0x00000007` is known of events, not of frames")
    );

    let many: Vec<String> = (0..17).map(|n| format!("not port {n}")).collect();
    let error = parsed(&many.join(" and ")).compile().unwrap_err();
    assert!(error.what.contains("more than 16 comparisons (17)"), "{error}");
    // One alternative and 16 comparisons are room enough.
    parsed(&many[..16].join(" and ")).compile().unwrap();
}

#[test]
fn t0_a_compiled_filter_is_small() {
    for (text, conjunctions, tests) in [
        ("", 1, 0),
        ("udp port 7000", 1, 1),
        ("host 10.0.0.1 and udp port 7000", 1, 2),
        ("not host 10.0.0.1", 1, 1),
        ("not (host 10.0.0.1 or port 22)", 1, 2),
        ("(host 10.0.0.1 or host 10.0.0.2) and (port 1 or port 2)", 4, 4),
        ("udp or not udp", 1, 0),
        ("udp and not udp", 0, 0),
        ("udp or (udp and port 7)", 1, 1),
        ("net fd00::/16 and not net fd00::/96", 1, 2),
    ] {
        let compiled = parsed(text).compile().unwrap();
        let size = (compiled.conjunctions().len(), compiled.tests().len());
        assert_eq!(size, (conjunctions, tests), "{text}: {compiled:?}");
    }
}

#[test]
fn t0_hooks_have_words_in_filters() {
    for hook in Hook::ALL {
        let filter = parsed(&format!("hook {}", hook.name()));
        assert_eq!(*filter.expr(), Expr::Is(0, Primitive::OfEvent(OfEvent::Hook(hook))));
    }
}
