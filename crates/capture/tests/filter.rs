// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a filter lets through is what `tcpdump` lets through, by the same words.
#![expect(clippy::disallowed_methods, reason = "a test may write a file and start a program")]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use timewire_capture::filter::{Facts, Filter};

const FILTERS: usize = 150;

/// Numbers that look random and are the same each time.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        let bound = u64::try_from(choices.len()).unwrap();
        choices[usize::try_from(self.below(bound)).unwrap()]
    }
}

const V4: [[u8; 4]; 4] = [[10, 0, 0, 1], [10, 0, 1, 2], [192, 168, 0, 1], [10, 9, 0, 1]];
const PORTS: [u16; 5] = [0, 53, 7000, 7001, 65_535];

fn frame(draw: &mut Draw, tagged: bool) -> Vec<u8> {
    let macs = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2], [0xff; 6], [1, 0x80, 0xc2, 0, 0, 0x0e]];
    let mut bytes = [draw.of(&macs), draw.of(&macs)].concat();
    if tagged {
        bytes.extend(draw.of(&[[0x81, 0, 0x60, 5], [0x81, 0, 0, 0x64], [0x88, 0xa8, 0xe0, 0]]));
    }
    let protocol = draw.of(&[1, 6, 17, 17, 58, 132, 50]);
    match draw.below(6) {
        0 | 1 => {
            let options = draw.of(&[0, 0, 2]);
            bytes.extend([8, 0, 0x45 + options, 0, 0, 64, 0, 1]);
            bytes.extend(draw.of(&[[0x40, 0], [0x20, 0], [0, 3]]));
            bytes.extend([64, protocol, 0, 0]);
            bytes.extend([draw.of(&V4), draw.of(&V4)].concat());
            bytes.extend(vec![1; 4 * usize::from(options)]);
        }
        2 | 3 => {
            let fragment = draw.below(4) == 0;
            let next = if fragment { 44 } else { protocol };
            bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 32, next, 64]);
            for _ in 0..2 {
                bytes.extend([0xfd, draw.of(&[0, 1]), 0, 0, 0, 0, 0, draw.of(&[0, 1])]);
                bytes.extend([0, 0, 0, 0, 0, 0, 0, draw.of(&[1, 2])]);
            }
            if fragment {
                bytes.extend([protocol, 0, 0, 8, 0, 0, 0, 1]);
            }
        }
        4 => {
            bytes.extend([draw.of(&[[8, 6], [0x80, 0x35]])].concat());
            bytes.extend([0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1]);
            bytes.extend(draw.of(&V4));
            bytes.extend([2, 0, 0, 0, 0, 2]);
            bytes.extend(draw.of(&V4));
        }
        _ => bytes.extend(draw.of(&[[0x88, 0xf7], [0x22, 0xf0]])),
    }
    bytes.extend(draw.of(&PORTS).to_be_bytes());
    bytes.extend(draw.of(&PORTS).to_be_bytes());
    bytes.extend([0; 60]);
    bytes
}

fn condition(draw: &mut Draw) -> String {
    let side = draw.of(&["", "src ", "dst ", "src or dst ", "src and dst "]);
    match draw.below(9) {
        0 => {
            draw.of(&["ip", "ip6", "arp", "rarp", "tcp", "udp", "sctp", "icmp", "icmp6"]).to_owned()
        }
        1 => format!(
            "{}proto {}",
            draw.of(&["", "ip ", "ip6 "]),
            draw.of(&["17", "\\udp", "50", "132", "\\tcp"])
        ),
        2 => format!("{}{side}host {}", draw.of(&["", "ip ", "arp ", "rarp "]), v4(draw)),
        3 => format!(
            "{side}net {}",
            draw.of(&["10", "10.0", "10.0.0.0/23", "192.168.0.1", "0.0.0.0/0", "10.0.0.1/32"])
        ),
        4 => format!(
            "{side}net {}",
            draw.of(&["fd00::/16", "fd01::/64", "fd00:0:0:1::/64", "fd00::1/128", "fd00::2/127"])
        ),
        5 => format!("{}{side}port {}", draw.of(&["", "tcp ", "udp ", "sctp "]), draw.of(&PORTS)),
        6 => format!(
            "{}{side}portrange {}",
            draw.of(&["", "tcp ", "udp "]),
            draw.of(&["0-53", "53-7000", "7000-7001", "1-52"])
        ),
        7 => format!("ether {side}host 02:00:00:00:00:0{}", draw.of(&[1, 2])),
        _ => draw
            .of(&["ether proto 0x88f7", "ether proto 0x0800", "ether multicast", "ether broadcast"])
            .to_owned(),
    }
}

fn v4(draw: &mut Draw) -> String {
    let [a, b, c, d] = draw.of(&V4);
    format!("{a}.{b}.{c}.{d}")
}

fn filter(draw: &mut Draw, depth: u64) -> String {
    let mut text = String::new();
    for part in 0..=draw.below(3) {
        if part > 0 {
            text += draw.of(&[" and ", " or ", " && ", " || "]);
        }
        text += draw.of(&["", "", "not ", "! "]);
        text += &if depth > 0 && draw.below(3) == 0 {
            format!("({})", filter(draw, depth - 1))
        } else {
            condition(draw)
        };
    }
    text
}

/// The oldest format of captures; the second of each timestamp is the number of the frame.
fn pcap(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 1] {
        file.extend(word.to_le_bytes());
    }
    for (number, frame) in (0_u32..).zip(frames) {
        let length = u32::try_from(frame.len()).unwrap();
        for word in [number, 0, length, length] {
            file.extend(word.to_le_bytes());
        }
        file.extend(frame);
    }
    file
}

/// The frames that `tcpdump` lets through; `None` when there is no `tcpdump`.
fn kept(capture: &Path, filter: &str) -> Option<BTreeSet<usize>> {
    let run = Command::new("tcpdump")
        .args(["-Z", "root", "-w", "-", "-r"])
        .arg(capture)
        .arg(filter)
        .output();
    let output = match run {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        Err(error) => panic!("tcpdump: {error}"),
    };
    let said = String::from_utf8_lossy(&output.stderr);
    // What can never hold is refused by it; that is no frame.
    if said.contains("expression rejects all packets") {
        return Some(BTreeSet::new());
    }
    assert!(output.status.success(), "{filter}: {said}");
    let mut rest = output.stdout.get(24..).unwrap_or(&[]);
    let word = |bytes: &[u8], at: usize| {
        usize::try_from(u32::from_le_bytes(*bytes[at..].first_chunk().unwrap())).unwrap()
    };
    let mut kept = BTreeSet::new();
    while rest.len() >= 16 {
        kept.insert(word(rest, 0));
        rest = &rest[16 + word(rest, 8)..];
    }
    Some(kept)
}

#[test]
fn t1_filters_are_those_of_tcpdump() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let mut draw = Draw(6);
    let mut both = (0, 0);
    for tagged in [false, true] {
        let frames: Vec<Vec<u8>> = (0..400).map(|_| frame(&mut draw, tagged)).collect();
        let capture = directory.join(format!("{}-{tagged}.pcap", std::process::id()));
        std::fs::write(&capture, pcap(&frames)).unwrap();
        for _ in 0..FILTERS {
            let mut text = filter(&mut draw, 2);
            if tagged {
                text = format!("{} and ({text})", draw.of(&["vlan", "vlan 5", "vlan 100"]));
            }
            let Some(theirs) = kept(&capture, &text) else {
                std::fs::remove_file(&capture).unwrap();
                return eprintln!("SKIP: tcpdump is not installed");
            };
            let ours = Filter::parse(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
            let compiled = ours.compile().ok();
            let facts: Vec<Facts> = frames.iter().filter_map(|f| Facts::of_frame(f)).collect();
            for (number, facts) in facts.iter().enumerate() {
                assert_eq!(ours.holds(facts), theirs.contains(&number), "{text}: {facts:?}");
                if let Some(compiled) = &compiled {
                    assert_eq!(compiled.holds(&facts.keys()), theirs.contains(&number), "{text}");
                }
            }
            both.0 += theirs.len();
            both.1 += frames.len() - theirs.len();
        }
        std::fs::remove_file(&capture).unwrap();
    }
    // Filters that let nothing or all through would say nothing.
    assert!(both.0 > 10_000 && both.1 > 10_000, "{both:?}");
}
