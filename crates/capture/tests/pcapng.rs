// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A capture as the programs see it that people open captures with.
#![expect(clippy::disallowed_methods, reason = "a test may write a file and start a program")]

use std::process::Command;

use timewire_base::{Instant, Tai};
use timewire_capture::pcapng::{
    CaptureClock, Direction, Interface, InterfaceStatistics, Packet, Section,
};

/// 2026-01-02 03:04:05.123456789 UTC, and as TAI.
const UTC_NS: i64 = 1_767_323_045_123_456_789;
const TAI_NS: i64 = UTC_NS + 37_000_000_000;

/// Two interfaces, one timestamped in TAI and one in UTC, with a frame each.
fn capture() -> Vec<u8> {
    let mut frame = vec![0_u8; 60];
    frame[..14].copy_from_slice(b"\x02\0\0\0\0\x01\x02\0\0\0\0\x02\x88\xb5");
    let mut out = vec![0; 4_096];
    let mut len = 0;
    let section = Section { application: "timewire", ..Section::default() };
    len += section.write(&mut out[len..]).unwrap();
    let tai = CaptureClock::Tai { ahead_s: 37 };
    for (name, clock) in [("tw0", tai), ("tw1", CaptureClock::Utc)] {
        let interface = Interface { name, description: "RxSw", snap_len: 0, clock };
        len += interface.write(&mut out[len..]).unwrap();
    }
    let first = Packet {
        direction: Some(Direction::Inbound),
        packet_id: Some(1),
        comment: "first of two",
        ..Packet::whole(0, Instant::<Tai>::from_ns(TAI_NS), &frame)
    };
    let second = Packet { interface: 1, at_ns: UTC_NS + 1, comment: "", ..first };
    len += first.write(&mut out[len..]).unwrap();
    len += second.write(&mut out[len..]).unwrap();
    for interface in 0..2 {
        let end =
            InterfaceStatistics { interface, at_ns: TAI_NS, received: Some(1), dropped: Some(0) };
        len += end.write(&mut out[len..]).unwrap();
    }
    out.truncate(len);
    out
}

/// What a program prints of the capture; `None` when it is not installed.
fn printed(program: &str, args: &[&str]) -> Option<String> {
    let file = std::env::temp_dir().join(format!("timewire-{}-{program}", std::process::id()));
    std::fs::write(&file, capture()).unwrap();
    let ran = Command::new(program).args(args).arg("-r").arg(&file).env("TZ", "UTC").output();
    std::fs::remove_file(&file).unwrap();
    match ran {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{program}: {text}");
            Some(String::from_utf8(output.stdout).unwrap())
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => panic!("{program}: {error}"),
    }
}

#[test]
fn t1_tcpdump_reads_a_capture() {
    // Run by root it would look for a user of its own, which needs no test.
    let Some(text) = printed("tcpdump", &["-tt", "-n", "-e", "--nano", "-Z", "root"]) else {
        return eprintln!("SKIP: tcpdump is not installed");
    };
    let lines: Vec<&str> = text.lines().filter(|line| line.contains("length 60")).collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(lines[0].starts_with("1767323045.123456789 "), "{text}");
    assert!(lines[1].starts_with("1767323045.123456790 "), "{text}");
    assert!(lines[0].contains("0x88b5"), "{text}");
}

#[test]
fn t1_tshark_reads_a_capture() {
    let fields = ["frame.time_epoch", "frame.interface_name", "frame.len", "frame.comment"];
    let mut args = vec!["-T", "fields", "-E", "separator=;"];
    args.extend(fields.iter().flat_map(|field| ["-e", field]));
    let Some(text) = printed("tshark", &args) else {
        return eprintln!("SKIP: tshark is not installed");
    };
    let lines: Vec<&str> = text.lines().collect();
    let expected = ["1767323045.123456789;tw0;60;first of two", "1767323045.123456790;tw1;60;"];
    assert_eq!(lines, expected);
}
