// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Launch times: what `measure launch` says of the kernel is the kernel's own arithmetic, and the
//! cases of the kernel's test of `SO_TXTIME` come out through Timewire's ports.

use std::net::{SocketAddr, UdpSocket};
use std::ops::RangeInclusive;
use std::process::{Command, Stdio};

use serde_json::Value as Json;
use timewire_base::{IfName, Instant, Span, Tai};
use timewire_datapath::transmit::{
    LaunchClock, LaunchOptions, LaunchRefusal, TransmitOptions, Transmitter, Transport, TxReport,
};
use timewire_lab::fixture::{Bench, Fixture};
use timewire_lab::ns;
use timewire_lab::trial::{self, Trial};
use timewire_sys::packet::{Observed, PacketOptions, PacketSocket};
use timewire_sys::{clock, interface_index};

use super::station::{Station, pair};
use super::{LATE, TIMER, shifted, us};

pub const TRIALS: &[Trial] = &[
    Trial::new("t4_measure_launch_is_the_kernels_arithmetic", kept),
    Trial::new("t4_measure_launch_meets_the_slot_of_the_mac", slot),
    Trial::new("t4_measure_launch_counts_what_etf_missed", missed),
    Trial::new("t4_measure_launch_finds_the_smallest_delta", smallest_delta),
    Trial::new("t4_measure_launch_puts_an_interface_back_also_when_killed", restore),
    Trial::new("t4_so_txtime_matrix_through_ports", matrix),
];

/// The one reading of the clock by the sender between its wake-up and the timestamp, which makes
/// time pass (linux v6.12 `arch/um/kernel/time.c:timer_read`).
const READING: i64 = 256;
/// What a reading of the clock or a timer of another thread can add in between.
const DISTURBED: i64 = 8 * 256;

/// Measures at the machine itself, with a pair of its own; the exit code and what was measured.
fn measure(words: &str) -> (i32, Json) {
    let arguments = format!("measure launch {words} --json");
    let arguments: Vec<&str> = arguments.split_whitespace().collect();
    let ended = Station::machine().timewire(&arguments);
    assert!(!ended.err.contains("error"), "{ended:?}");
    let measured: Json = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(
        (&measured["schema"], &measured["virtual_time"]),
        (&"timewire.measure-launch/1".into(), &true.into())
    );
    (ended.code, measured)
}

fn column<'a>(measured: &'a Json, way: &str, cycle: i64) -> &'a Json {
    let of = |column: &&Json| column["way"] == way && column["cycle_ns"] == cycle;
    measured["columns"].as_array().unwrap().iter().find(of).unwrap()
}

/// Errors at the timestamp point that is shown.
fn errors(column: &Json) -> &Json {
    let at = |point: &&Json| point["point"] == column["shown"];
    let point = column["points"].as_array().unwrap().iter().find(at).unwrap();
    assert_eq!(
        (&point["clock"], &point["not_timestamped"]),
        (&"CLOCK_TAI".into(), &0.into()),
        "{point}"
    );
    &point["errors"]
}

#[track_caller]
fn inside(errors: &Json, count: u64, allowed: &RangeInclusive<i64>) {
    assert_eq!(errors["count"], count);
    let (min, max) = (errors["min_ns"].as_i64().unwrap(), errors["max_ns"].as_i64().unwrap());
    assert!(allowed.contains(&min) && allowed.contains(&max), "{min} to {max} in {allowed:?}");
}

/// As `etf` has it: each frame leaves when its launch time less delta is past, by a timer.
fn kept() {
    println!("{}", trial::kernel_name());
    for (delta, ways) in [(20, "etf"), (130, "plain,etf")] {
        let (code, measured) =
            measure(&format!("--how {ways} --count 400 --repeats 1 --delta {delta}us"));
        assert_eq!(code, 0, "{measured}");
        for cycle in [1_000_000, 250_000] {
            let etf = column(&measured, "etf", cycle);
            println!("etf {delta} us {cycle} {}", errors(etf));
            inside(errors(etf), 400, &shifted(-delta * 1_000, &LATE));
            assert_eq!(
                (&etf["delta_ns"], &etf["shown"]),
                (&(delta * 1_000).into(), &"tx-software".into())
            );
            for lost in ["missed", "invalid", "not_taken", "unsent"] {
                assert_eq!(etf["counts"][lost], 0, "{lost}");
            }
            if ways == "etf" {
                continue;
            }
            let plain = errors(column(&measured, "plain", cycle));
            println!("plain {cycle} {plain}");
            inside(plain, 400, &(READING..=READING + TIMER.end() + DISTURBED));
            let p50 = plain["p50_ns"].as_i64().unwrap();
            assert!(shifted(READING, &TIMER).contains(&p50), "{p50}");
        }
    }
}

/// The slot begins at the launch time, and nothing leaves before.
fn slot() {
    let (code, measured) = measure("--how mac --count 100 --repeats 1");
    for cycle in [1_000_000, 250_000] {
        let mac = column(&measured, "mac", cycle);
        assert_eq!((&mac["shown"], code), (&"peer".into(), 0));
        inside(errors(mac), 100, &(0..=READING + TIMER.end() + DISTURBED));
    }
}

/// With too small a delta the timer can come after the launch time, and the verb says so.
fn missed() {
    let (code, measured) = measure("--how etf --cycle 250us --count 400 --repeats 1 --delta 256ns");
    let etf = column(&measured, "etf", 250_000);
    let counts = &etf["counts"];
    let cause = &etf["drop_causes"][0];
    assert_eq!(cause["frames"], counts["missed"], "{etf}");
    let candidates = cause["candidates"].as_array().unwrap();
    let told = candidates.iter().map(|it| (&it["cause"], &it["qdisc"])).collect::<Vec<_>>();
    assert_eq!(told, [(&"launch_missed".into(), &"etf".into())], "{etf}");
    let (missed, sent) = (counts["missed"].as_u64().unwrap(), counts["sent"].as_u64().unwrap());
    assert!(missed > 0 && missed + sent == 400 && code == 1, "{counts}");
}

/// A timer is up to 511 ns late, and what it lets go leaves strictly before its launch time.
fn smallest_delta() {
    let words = "--how etf --cycle 125us --count 800 --repeats 1 --find-delta --delta 1us";
    let (_, measured) = measure(words);
    let found = &measured["smallest_delta"];
    println!("{} {}", trial::kernel_name(), found["delta_ns"]);
    let delta = found["delta_ns"].as_i64().unwrap();
    assert!((385..=544).contains(&delta), "{found}");
    assert_eq!(found["confirmed_by"], 800);
    // What was said is used.
    assert_eq!(column(&measured, "etf", 125_000)["delta_ns"], 1_000);
    let trials = found["trials"].as_array().unwrap();
    assert!(trials.iter().any(|trial| trial["missed"].as_u64() > Some(0)), "{found}");
}

/// On an interface that is not its own: the discipline is there while it runs and goes in any case.
fn restore() {
    let bench = pair();
    let station = Station::of(&bench, "a");
    let netns = bench.netns("a");
    let netns = netns.file_name().unwrap().to_str().unwrap();
    let before = station.snapshot();
    let has_etf = || bench.counted("a", "b", "etf").unwrap().sent > 10;
    for signal in ["INT", "KILL"] {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", netns, env!("CARGO_BIN_EXE_timewire"), "measure", "launch"]);
        command.args(["--interface", "eth0", "--how", "etf", "--cycle", "1ms"]);
        command.args(["--count", "1000000", "--repeats", "1"]).stdout(Stdio::null());
        let mut running = command.spawn().unwrap();
        wait(&format!("etf is there before {signal}"), has_etf);
        let busy = station.timewire(&["measure", "launch", "--interface", "eth0", "--how", "etf"]);
        assert_eq!(busy.code, 2, "{busy:?}");
        assert!(
            busy.out.contains("etf: not measured: ") && busy.out.contains("applied"),
            "{busy:?}"
        );
        let pid = running.id().to_string();
        let killed = Command::new("kill").args([&format!("-{signal}"), &pid]).status().unwrap();
        assert!(killed.success());
        running.wait().unwrap();
        wait(&format!("the interface is as before {signal}"), || station.snapshot() == before);
        let status = station.timewire(&["status", "--json"]).well();
        assert!(status.contains("\"applied\": null"), "{status}");
    }
    // And after all that it is free again.
    let ended = station.timewire(&[
        "measure",
        "launch",
        "--interface",
        "eth0",
        "--how",
        "etf",
        "--count",
        "50",
        "--repeats",
        "1",
        "--cycle",
        "1ms",
    ]);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(station.snapshot() == before);
}

fn wait(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..200 {
        if holds() {
            return;
        }
        clock::sleep_until(clock::now::<Tai>() + us(50_000));
    }
    panic!("waited in vain until {what}");
}

/// What is given one port: letters with the launch times that they have, counted from the start.
type Sends = &'static [(char, Option<Span>)];

/// What a discipline is to make of it: when letters arrive, and which are refused.
type Arrivals = &'static [(char, RangeInclusive<i64>)];

const MS: i64 = 1_000_000;
/// linux v6.12 `net/sched/sch_fq.c`: its timer may be late by `timer_slack`.
const FQ_SLACK: i64 = 10_000;
/// Readings of the clock by us between the start and the discipline.
const HANDED: i64 = 16 * 256;
const ETF_DELTA: i64 = 400_000;

const fn fq_at(ms: i64) -> RangeInclusive<i64> {
    ms * MS..=ms * MS + FQ_SLACK + HANDED
}

const fn etf_at(ms: i64) -> RangeInclusive<i64> {
    ms * MS - ETF_DELTA + 1..=ms * MS - ETF_DELTA + 512
}

const fn in_ms(ms: i64) -> Option<Span> {
    Some(Span::from_ms(ms))
}

/// One flow: what is first in it holds the rest up, though that is sorted.
const FQ: &[(Sends, Arrivals)] = &[
    (&[('a', None)], &[('a', 0..=HANDED)]),
    (&[('a', in_ms(-1))], &[('a', 0..=HANDED)]),
    (&[('a', in_ms(0))], &[('a', 0..=HANDED)]),
    (&[('a', in_ms(10))], &[('a', fq_at(10))]),
    (&[('a', in_ms(10)), ('b', in_ms(20))], &[('a', fq_at(10)), ('b', fq_at(20))]),
    (&[('a', in_ms(20)), ('b', in_ms(10))], &[('b', fq_at(20)), ('a', fq_at(20))]),
];

/// With no time after now there is none left when a message gets there.
const ETF: &[(Sends, Arrivals)] = &[
    (&[('a', None)], &[]),
    (&[('a', in_ms(-1))], &[]),
    (&[('a', in_ms(0))], &[]),
    (&[('a', in_ms(10))], &[('a', etf_at(10))]),
    (&[('a', in_ms(10)), ('b', in_ms(20))], &[('a', etf_at(10)), ('b', etf_at(20))]),
    (&[('a', in_ms(20)), ('b', in_ms(10))], &[('b', etf_at(10)), ('a', etf_at(20))]),
];

/// As `tools/testing/selftests/net/so_txtime.sh` of linux v6.12, with a past launch time besides.
fn matrix() {
    let mut fixture = Fixture::new();
    fixture.station("a").station("b").link("a", "b").ipv6().qdisc("a", "b", "root fq");
    let bench = fixture.build().unwrap();
    for (clock, cases) in [(LaunchClock::Mono, FQ), (LaunchClock::Tai, ETF)] {
        if clock == LaunchClock::Tai {
            let etf = format!("qdisc replace dev DEV root etf clockid CLOCK_TAI delta {ETF_DELTA}");
            bench.tc("a", "b", &etf).unwrap();
        }
        for (name, transport) in transports() {
            for (sends, arrivals) in cases {
                let case = format!("{clock:?} {name} {sends:?}");
                exchange(&bench, &transport, clock, sends, arrivals, &case);
            }
        }
    }
}

fn transports() -> Vec<(&'static str, Transport)> {
    let udp = |from: &str, to: &str| Transport::Udp {
        from: SocketAddr::new(from.parse().unwrap(), 0),
        to: Some(SocketAddr::new(to.parse().unwrap(), 8_000)),
        device: None,
    };
    let interface = IfName::new("eth0").unwrap();
    vec![
        ("UDP over IPv4", udp("10.77.0.1", "10.77.0.2")),
        ("UDP over IPv6", udp("fd77::1", "fd77::2")),
        ("frames", Transport::Frames { interface }),
    ]
}

/// The letter of a message follows this mark, wherever that is in the frame.
const MARK: &[u8] = b"so_txtime:";

fn exchange(
    bench: &Bench,
    transport: &Transport,
    clock: LaunchClock,
    sends: Sends,
    expected: Arrivals,
    case: &str,
) {
    let listen = || {
        let options = PacketOptions { receive: true, timestamps: true, buffer_bytes: 1 << 16 };
        PacketSocket::open(interface_index(&IfName::new("eth0").unwrap()).unwrap(), options)
    };
    // So that nobody answers that there is none.
    let bind = || ["10.77.0.2:8000", "[fd77::2]:8000"].map(UdpSocket::bind).map(Result::unwrap);
    let _sinks = ns::in_namespace(&bench.netns("b"), bind).unwrap();
    let mut listener = ns::in_namespace(&bench.netns("b"), listen).unwrap().unwrap();
    let launch = Some(LaunchOptions { deadline: false, clock });
    let options = TransmitOptions { launch, ..TransmitOptions::default() };
    let open = || Transmitter::open(transport, &options);
    let mut port = ns::in_namespace(&bench.netns("a"), open).unwrap().unwrap();
    let start: Instant<Tai> = clock::now();
    // Only a look at the clock makes virtual time pass: what is due at the start is past now.
    let _ = clock::now::<Tai>();
    for (letter, launch) in sends {
        let mut message = Vec::new();
        if let Transport::Frames { .. } = transport {
            // To everybody, from anybody.
            message.extend([[0xff; 6], [2, 0, 0, 0, 0, 9]].concat());
            message.extend([0x88, 0xb5]);
        }
        message.extend(MARK);
        message.extend(letter.to_string().bytes());
        message.resize(message.len().max(60), 0);
        port.send_copy(&message, None, launch.map(|after| start + after)).unwrap();
    }
    assert_eq!(port.flush(), 0);
    clock::sleep_until(start + us(40_000));
    let mut got = vec![Observed::default(); 8];
    let count = listener.observe(&mut got).unwrap();
    let offset = clock::tai_offset();
    let arrived = got[..count].iter().filter_map(|frame| {
        let bytes = &frame.prefix[..frame.prefix_len];
        let at = bytes.windows(MARK.len()).position(|found| found == MARK)?;
        let timestamp = frame.timestamp.unwrap().as_ns() + offset.as_ns();
        Some((char::from(bytes[at + MARK.len()]), timestamp - start.as_ns()))
    });
    let arrived: Vec<(char, i64)> = arrived.collect();
    println!("{case}: {arrived:?}");
    let letters = |of: &mut dyn Iterator<Item = char>| of.collect::<String>();
    assert_eq!(
        letters(&mut arrived.iter().map(|one| one.0)),
        letters(&mut expected.iter().map(|one| one.0)),
        "{case}"
    );
    for ((_, at), (_, allowed)) in arrived.iter().zip(expected) {
        assert!(allowed.contains(at), "{case}: {at} is not in {allowed:?}");
    }
    let (mut invalid, mut not_taken) = (0, 0);
    port.reports(&mut |report| match report {
        TxReport::LaunchRefused { why, .. } => {
            assert_eq!(why, LaunchRefusal::Invalid, "{case}");
            invalid += 1;
        }
        TxReport::NotTaken { .. } => not_taken += 1,
        other => panic!("{case}: {other:?}"),
    })
    .unwrap();
    let refused = sends.len() - expected.len();
    assert_eq!(invalid, refused, "{case}");
    assert!(not_taken <= refused, "{case}");
}
