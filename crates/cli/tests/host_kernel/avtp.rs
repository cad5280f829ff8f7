// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Streams of IEEE 1722 through the kernel's shapers in virtual time: files come back bit for bit,
//! every packet leaves at its instant, presentation times are launch times plus the transit time,
//! and the margins that a listener tells are those that another observer computes.

use std::fs;
use std::process::{Child, Command, Stdio};

use serde_json::{Value as Json, json};
use timewire_avtp::AvtpTime;
use timewire_avtp::media::wav::{self, Wav, WavFormat};
use timewire_avtp::pdu::SampleFormat;
use timewire_base::{IfName, Instant, Span, Tai, Utc};
use timewire_lab::cache::fingerprint;
use timewire_lab::fixture::Bench;
use timewire_lab::ns;
use timewire_lab::trial::Trial;
use timewire_sys::clock::{self, tai_offset};
use timewire_sys::interface_index;
use timewire_sys::packet::{Observed, PacketOptions, PacketSocket};

use super::station::{Station, file, pair, transmit};
use super::{LATE, TIMER, shifted, us};

pub const TRIALS: &[Trial] = &[
    Trial::new("t4_avtp_class_a_audio_leaves_at_its_launch_times_through_etf", class_a),
    Trial::new("t4_avtp_class_b_audio_is_shaped_by_what_it_reserves", class_b),
    Trial::new("t4_avtp_a_stream_without_its_bandwidth_comes_late_and_is_told", class_b_without),
    Trial::new("t4_avtp_video_leaves_at_its_launch_times_through_etf", video),
    Trial::new("t4_avtp_a_lead_that_is_too_short_loses_packets_and_is_told", too_short),
    Trial::new("t4_avtp_a_clock_is_followed_to_the_ppb", clock_rate),
];

const STREAM: &str = "02:00:00:00:00:01/7";

/// A packet on the link.
#[derive(Clone, Copy, Debug)]
struct Seen {
    at: Instant<Tai>,
    tag: [u8; 4],
    to: [u8; 6],
    sequence: u8,
    presentation: Instant<Tai>,
    /// The M of an H.264 packet.
    marker: bool,
}

/// What came of a stream.
struct Played {
    told: Json,
    heard: Json,
    /// The listener's exit code.
    code: i32,
    seen: Vec<Seen>,
}

fn timewire(bench: &Bench, on: &str, words: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_timewire"));
    command.arg("avtp").args(words).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    bench.spawn(on, command).unwrap()
}

/// Its exit code and its stdout as JSON.
fn ended(child: Child) -> (i32, Json) {
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    let code = output.status.code().unwrap_or(-1);
    (code, serde_json::from_str(&out).unwrap_or_else(|_| panic!("{code} {out} {err}")))
}

/// Sends a file from `a` to `b` and records it there, with an observer beside the listener.
fn play(bench: &Bench, of: &[u8], talk: &[&str], listen: &[&str]) -> Played {
    let (sent, got) = ("/tmp/sent", "/tmp/got");
    fs::write(sent, of).unwrap();
    let out = ["listen", "--interface", "eth0", "--clock-error", "0ns", "--out", got];
    let out = [&out[..], &["--idle", "100ms", "--json"]].concat();
    let options = PacketOptions { receive: true, timestamps: true, buffer_bytes: 64 << 20 };
    let open = || {
        let eth0 = IfName::new("eth0").unwrap();
        PacketSocket::open(interface_index(&eth0)?, options)
    };
    let mut observer = ns::in_namespace(&bench.netns("b"), open).unwrap().unwrap();
    let listener = timewire(bench, "b", &[&out[..], listen].concat());
    // A program starts within a moment of virtual time; the kernel's timestamps begin with it.
    clock::sleep_until(clock::now::<Tai>() + Span::from_ms(500));
    let head = ["talk", sent, "--interface", "eth0", "--stream", STREAM, "--json"];
    let (code, told) = ended(timewire(bench, "a", &[&head[..], talk].concat()));
    let refused = &told["sent"]["refused"];
    let all_left = refused.as_object().unwrap().values().all(|count| count == 0);
    assert_eq!(code, i32::from(!all_left), "{told}");
    let (code, heard) = ended(listener);
    let seen = observed(&mut observer);
    println!("timestamps {}", fingerprint(&[&format!("{seen:?}{told}{heard}")]));
    Played { told, heard, code, seen }
}

/// Every packet of IEEE 1722 that the observer saw.
fn observed(observer: &mut PacketSocket) -> Vec<Seen> {
    let offset = tai_offset();
    let mut seen = Vec::new();
    let mut some = vec![Observed::default(); 32];
    loop {
        let count = observer.observe(&mut some).unwrap_or(0);
        if count == 0 {
            return seen;
        }
        for one in &some[..count] {
            let bytes = &one.prefix[..one.prefix_len];
            if bytes.get(12..14) != Some(&[0x22, 0xf0]) {
                continue;
            }
            let timestamp: Instant<Utc> = one.timestamp.expect("a timestamp");
            let at = Instant::<Tai>::from_ns(timestamp.as_ns()) + offset;
            let packet = &bytes[14..];
            let time = u32::from_be_bytes(packet[12..16].try_into().unwrap());
            seen.push(Seen {
                at,
                tag: one.tag.expect("a tag"),
                to: bytes[..6].try_into().unwrap(),
                sequence: packet[2],
                presentation: AvtpTime::from_bits(time).near(at),
                marker: packet[22] & 0x10 != 0,
            });
        }
    }
}

impl Played {
    fn first(&self) -> Instant<Tai> {
        Instant::from_ns(self.told["sent"]["first_launch_ns"].as_i64().unwrap())
    }

    /// As many came as were sent, in order, the listener counted them all and nothing else, and the
    /// file is the same.
    #[track_caller]
    fn complete(&self, packets: usize) -> &Played {
        assert_eq!(self.seen.len(), packets);
        assert_eq!(self.told["sent"]["packets"], packets);
        for (what, count) in [
            ("received", packets),
            ("presented", packets),
            ("lost", 0),
            ("duplicates", 0),
            ("reordered", 0),
            ("discarded", 0),
            ("malformed", 0),
        ] {
            assert_eq!(self.heard["packets"][what], count, "{what}: {}", self.heard);
        }
        assert_eq!((self.heard["dropped_here"].clone(), self.code), (Json::from(0), 0));
        let (sent, got) = (fs::read("/tmp/sent").unwrap(), fs::read("/tmp/got").unwrap());
        assert!(sent == got, "the file is another");
        for (number, seen) in self.seen.iter().enumerate() {
            assert_eq!(usize::from(seen.sequence), number % 256);
            assert_eq!(seen.to, [0x91, 0xe0, 0xf0, 0, 0xfe, 7]);
        }
        self.margins()
    }

    /// The listener's margins are those of the observer, to the nanosecond.
    #[track_caller]
    fn margins(&self) -> &Played {
        let mut all: Vec<i64> =
            self.seen.iter().map(|seen| (seen.presentation - seen.at).as_ns()).collect();
        all.sort_unstable();
        let told = &self.heard["margin"];
        // The smallest value that so many percent of all do not exceed.
        let rank = |percent: usize| all[(all.len() * percent).div_ceil(100).max(1) - 1];
        println!("margins {told}");
        let expected = [
            ("min_ns", all[0]),
            ("p01_ns", rank(1)),
            ("p50_ns", rank(50)),
            ("p99_ns", rank(99)),
            ("max_ns", all[all.len() - 1]),
        ];
        for (what, ns) in expected {
            assert_eq!(told[what], ns, "{what}");
        }
        assert_eq!(told["count"], all.len());
        self
    }

    /// Every packet came so long after its launch time, and is presented so long after it.
    #[track_caller]
    fn at_launch(
        &self,
        launches: &[Instant<Tai>],
        late: &std::ops::RangeInclusive<i64>,
        transit: Span,
    ) {
        for (number, (seen, launch)) in self.seen.iter().zip(launches).enumerate() {
            assert_eq!(seen.presentation, *launch + transit, "packet {number}");
            let was = (seen.at - *launch).as_ns();
            assert!(late.contains(&was), "packet {number} came {was} ns after its launch time");
        }
    }
}

fn music(sample: SampleFormat, channels: u16, frames: u32) -> Vec<u8> {
    let valid_bits = sample.bits().into();
    let format = WavFormat { sample, channels, rate_hz: 48_000, valid_bits, channel_mask: None };
    let bytes = format.frame_bytes() * usize::try_from(frames).unwrap();
    let samples: Vec<u8> = (0..bytes).map(|n| (n * n / 7 % 251).try_into().unwrap()).collect();
    wav::write(&Wav { format, samples: &samples }).unwrap()
}

/// Class A through `etf`, as host settings have it.
fn through_etf() -> (Bench, std::path::PathBuf) {
    let desired = "classes: [{ priorities: [3], queues: 1@0, launch_time: { delta: 100us } }, \
                { queues: 1@1 }]";
    (pair(), file(&transmit(desired)))
}

/// `etf` hands a packet over so long before its launch time.
const DELTA: i64 = -100_000;

/// 6 samples every 125 us, half a second.
fn class_a() {
    let (bench, host) = through_etf();
    Station::of(&bench, "a").with(&host, || {
        let music = music(SampleFormat::Int16, 2, 24_000);
        let played = play(&bench, &music, &["--launch", "300us"], &[]);
        let first = played.first();
        assert_eq!(first.as_ns() % 10_000_000, 0);
        let launches: Vec<_> = (0..4_000).map(|n| first + us(125 * n)).collect();
        played.complete(4_000);
        played.at_launch(&launches, &shifted(DELTA, &LATE), Span::from_ms(2));
        // The least and the most that the kernel's arithmetic allows.
        let margin = |key: &str| played.heard["margin"][key].as_i64().unwrap();
        assert!(margin("min_ns") >= 2_000_000 + 100_000 - LATE.end());
        assert!(margin("max_ns") <= 2_000_000 + 100_000 - LATE.start());
        assert!(played.seen.iter().all(|seen| seen.tag == [0x81, 0, 0x60, 2]));
    });
}

/// 12 samples of 3 channels every 250 us, an odd number of bytes at the end; the class' shaper is
/// what `reserve` says.
fn class_b() {
    let bench = pair();
    let music = music(SampleFormat::Int24, 3, 12_001);
    fs::write("/tmp/reserve", &music).unwrap();
    let words = ["reserve", "/tmp/reserve", "--class", "B", "--port", "10Gbit", "--json"];
    let (code, reserved) = ended(timewire(&bench, "a", &words));
    assert_eq!((code, &reserved["frame_on_the_wire_bytes"]), (0, &Json::from(174)));
    let shaper = reserved["shaper"].as_str().unwrap();
    // Without what is around a frame on the link, Linux would count too little.
    let desired = format!(
        "overhead: 24B\nclasses: [{{ priorities: [2], queues: 1@0, {shaper} }}, {{ queues: 1@1 }}]"
    );
    Station::of(&bench, "a").with(&file(&transmit(&desired)), || {
        let played = play(&bench, &music, &["--class", "B"], &[]);
        let first = played.first();
        let launches: Vec<_> = (0..1_001).map(|n| first + us(250 * n)).collect();
        played.complete(1_001);
        played.at_launch(&launches, &WOKEN, Span::from_ms(50));
        // A frame of 150 bytes, as 174: the time it takes at 10 Gbit/s, and the time in which 5568
        // kbit/s give back the 173 bytes of credit that it took, but for two timers.
        let gap = 139 + 173 * 1_000_000_000 / 696_000;
        for pair in played.seen.windows(2) {
            assert!((pair[1].at - pair[0].at).as_ns() >= gap - 2 * TIMER.end(), "{pair:?}");
        }
        assert!(played.seen.iter().all(|seen| seen.tag == [0x81, 0, 0x40, 2]));
        let shaped = bench.counted("a", "b", "cbs").unwrap();
        assert_eq!((shaped.sent, shaped.dropped), (1_001, 0));
    });
}

/// How late a packet leaves whose talker is woken for it: a timer, and then at least two looks at
/// the clock by the talker, and more by scheduler and shaper; each costs 256 ns.
///
/// **Units**: nanoseconds.
const WOKEN: std::ops::RangeInclusive<i64> = 512..=20 * 256;

/// With half of what it reserves a stream comes ever later; nothing is lost, and every packet that
/// came after its time is counted.
fn class_b_without() {
    let bench = pair();
    let desired = "overhead: 24B\nclasses: [{ priorities: [2], queues: 1@0, shaper: { credit: { \
        from: \
                slopes, idle_slope: 2784kbit, port: 10Gbit, hi_credit: 1, lo_credit: -174 } } }, \
                { queues: 1@1 }]";
    Station::of(&bench, "a").with(&file(&transmit(desired)), || {
        let music = music(SampleFormat::Int24, 3, 12 * 400);
        let how = ["--class", "B", "--transit", "10ms"];
        let played = play(&bench, &music, &how, &["--late", "keep"]);
        assert_eq!(played.seen.len(), 400);
        assert!(fs::read("/tmp/got").unwrap() == music);
        let late = played.seen.iter().filter(|seen| seen.presentation < seen.at).count();
        // The shaper gives 500 us to each packet of 250 us: the 10 ms are used up by the 40th.
        assert!((358..=362).contains(&late), "{late}");
        assert_eq!(played.heard["late"], json!({"at_least": late, "at_most": late}));
        assert_eq!((played.heard["packets"]["lost"].clone(), played.code), (Json::from(0), 1));
        played.margins();
    });
}

/// Parameter sets, then slices of up to 3000 bytes; the start codes that Annex B demands.
fn film(pictures: usize) -> Vec<u8> {
    let mut stream = Vec::new();
    let mut unit = |long: bool, head: u8, length: usize, first: u8| {
        stream.extend(if long { [0, 0, 0, 1].as_slice() } else { &[0, 0, 1] });
        stream.extend([head, first]);
        stream.extend((0..length).map(|n| u8::try_from(n % 251).unwrap() | 2));
    };
    for picture in 0..pictures {
        let key = picture % 10 == 0;
        if key {
            unit(true, 0x67, 4, 0x42);
            unit(true, 0x68, 3, 0xce);
        }
        for slice in 0..3 {
            let length = if key { 3_000 } else { 137 } * slice + 20;
            let first = if slice == 0 { 0x88 } else { 0x44 };
            unit(slice == 0 && !key, if key { 0x65 } else { 0x41 }, length, first);
        }
    }
    stream
}

/// Access unit k is sent from the start of the k-th 10 ms, a packet in an interval, and presented
/// one transit time after their end.
fn video() {
    let (bench, host) = through_etf();
    Station::of(&bench, "a").with(&host, || {
        let how = ["--frame-rate", "100", "--launch", "300us", "--transit", "3ms"];
        let played = play(&bench, &film(40), &how, &[]);
        // 2 parameter sets and slices in 1, 3 and 5 packets; or 3 slices in one each.
        played.complete(4 * 11 + 36 * 3);
        let (mut picture, mut nth) = (0, 0);
        for seen in &played.seen {
            let start = played.first() + Span::from_ms(10 * picture);
            let was = (seen.at - (start + us(125 * nth))).as_ns();
            assert!(shifted(DELTA, &LATE).contains(&was), "{picture}, packet {nth}: {was} ns");
            assert_eq!(seen.presentation, start + Span::from_ms(10 + 3));
            (picture, nth) = if seen.marker { (picture + 1, 0) } else { (picture, nth + 1) };
        }
        assert_eq!((picture, nth), (40, 0));
        assert_eq!(played.heard["written"]["access_units"], 40);
        assert_eq!(played.heard["written"]["broken"], 0);
    });
}

/// With no more time than `etf` takes for itself, most packets miss their launch time; the talker
/// and the listener count the same ones.
fn too_short() {
    let desired = "classes: [{ priorities: [3], queues: 1@0, launch_time: { delta: 256ns } }, \
                { queues: 1@1 }]";
    let bench = pair();
    Station::of(&bench, "a").with(&file(&transmit(desired)), || {
        let music = music(SampleFormat::Int16, 2, 6 * 400);
        let played = play(&bench, &music, &["--launch", "300us"], &[]);
        let refused = &played.told["sent"]["refused"];
        let missed = refused["launch_missed"].as_u64().unwrap();
        println!("{missed} of 400 missed");
        assert!(missed > 0 && missed < 400);
        assert_eq!((&refused["not_taken"], &refused["launch_invalid"]), (&0.into(), &0.into()));
        let dropped = bench.counted("a", "b", "etf").unwrap().dropped;
        assert_eq!(dropped, missed);
        assert_eq!(u64::try_from(played.seen.len()).unwrap(), 400 - missed);
        assert_eq!(played.heard["packets"]["received"], 400 - missed);
        played.margins();
        assert_eq!(played.code, 1);
        // What is missing before the first and after the last that came is not known.
        let sequences: Vec<_> = played.seen.iter().map(|seen| seen.sequence).collect();
        let span = played.seen[sequences.len() - 1].presentation - played.seen[0].presentation;
        let between = u64::try_from(span.as_ns() / 125_000 + 1).unwrap() - (400 - missed);
        assert_eq!(played.heard["packets"]["lost"], between);
        let silent = played.heard["written"]["silent"].as_u64().unwrap();
        assert_eq!(silent, between * 6);
        let samples = played.heard["written"]["samples"].as_u64().unwrap();
        assert_eq!(samples, (between + 400 - missed) * 6);
    });
}

/// The times of a clock are computed, not read: what a listener finds is exact but for rounding.
fn clock_rate() {
    let bench = pair();
    for ppb in [0_i64, 1_000, -100_000] {
        let listen = ["crf", "listen", "--interface", "eth0", "--clock-error", "0ns"];
        let listen = [&listen[..], &["--packets", "100", "--json"]].concat();
        let listener = timewire(&bench, "b", &listen);
        clock::sleep_until(clock::now::<Tai>() + Span::from_ms(500));
        let word = ppb.to_string();
        let head = ["crf", "talk", "--interface", "eth0", "--stream", STREAM, "--json"];
        let how = ["--packets", "100", "--ppb", &word];
        let (code, sent) = ended(timewire(&bench, "a", &[&head[..], &how].concat()));
        assert_eq!((code, &sent["packets"]), (0, &Json::from(100)));
        let (code, found) = ended(listener);
        assert_eq!((code, &found["packets"]["presented"]), (0, &Json::from(100)), "{found}");
        println!("clock {ppb} {found}");
        // Timestamps are whole nanoseconds, of 850 ms.
        let rate = found["rate_ppb"].as_i64().unwrap();
        assert!((rate - ppb).abs() <= 1, "{found}");
        // Launched at its last event.
        let late = |key: &str| 2_000_000 - found["margin"][key].as_i64().unwrap();
        assert!(late("max_ns") >= *WOKEN.start() && late("min_ns") <= *WOKEN.end(), "{found}");
    }
}
