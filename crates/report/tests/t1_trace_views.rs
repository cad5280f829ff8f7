// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A trace of two hosts as a Perfetto file, read back with a reader of its own, and as tables and
//! a page.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::trace_sample;
use timewire_base::Span;
use timewire_capture::capture::{CaptureHeader, HookCount, Station};
use timewire_capture::event::{Event, Flags};
use timewire_capture::packet_path::{Observer, Point};
use timewire_report::timeline::Interval;
use timewire_report::{live, packet_paths, perfetto};

/// Compares with a recorded file; with `TIMEWIRE_BLESS` set, records instead.
fn golden(name: &str, bytes: &[u8]) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    if std::env::var_os("TIMEWIRE_BLESS").is_some() {
        std::fs::write(&path, bytes).unwrap();
    }
    let want = std::fs::read(&path).unwrap_or_default();
    let at =
        want.iter().zip(bytes).position(|(a, b)| a != b).unwrap_or(want.len().min(bytes.len()));
    let shown = |all: &[u8]| {
        String::from_utf8_lossy(&all[at.saturating_sub(60)..all.len().min(at + 60)]).into_owned()
    };
    assert!(
        want == bytes,
        "{name} differs from byte {at}:\nrecorded: {}\nnow:      {}\n\
         (TIMEWIRE_BLESS=1 records anew)",
        shown(&want),
        shown(bytes)
    );
}

/// A field of a protocol buffers message, by what is written alone.
#[derive(Clone, Debug, PartialEq)]
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let (mut value, mut shift) = (0, 0);
    loop {
        let (&byte, rest) = bytes.split_first().unwrap();
        *bytes = rest;
        value |= u64::from(byte & 127) << shift;
        if byte < 128 {
            return value;
        }
        shift += 7;
    }
}

fn fields(mut bytes: &[u8]) -> Vec<(u64, Field<'_>)> {
    let mut out = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let field = match tag & 7 {
            0 => Field::Number(varint(&mut bytes)),
            1 => {
                let (head, rest) = bytes.split_first_chunk::<8>().unwrap();
                bytes = rest;
                Field::Number(u64::from_le_bytes(*head))
            }
            2 => {
                let length = usize::try_from(varint(&mut bytes)).unwrap();
                let (head, rest) = bytes.split_at(length);
                bytes = rest;
                Field::Bytes(head)
            }
            wire => panic!("wire type {wire}"),
        };
        out.push((tag >> 3, field));
    }
    out
}

fn number(of: &[(u64, Field<'_>)], field: u64) -> Option<u64> {
    of.iter().find_map(|(it, value)| match value {
        Field::Number(value) if *it == field => Some(*value),
        _ => None,
    })
}

fn bytes<'a>(of: &[(u64, Field<'a>)], field: u64) -> Option<&'a [u8]> {
    of.iter().find_map(|(it, value)| match value {
        Field::Bytes(value) if *it == field => Some(*value),
        _ => None,
    })
}

fn text(of: &[(u64, Field<'_>)], field: u64) -> String {
    String::from_utf8(bytes(of, field).unwrap_or_default().to_vec()).unwrap()
}

/// The arguments of an event: whole numbers and texts.
fn arguments(event: &[(u64, Field<'_>)]) -> BTreeMap<String, String> {
    let notes = event.iter().filter_map(|(field, value)| match value {
        Field::Bytes(note) if *field == 4 => Some(fields(note)),
        _ => None,
    });
    let value = |note: &[(u64, Field<'_>)]| match number(note, 3).or(number(note, 4)) {
        Some(number) => number.cast_signed().to_string(),
        None => text(note, 6),
    };
    notes.map(|note| (text(&note, 10), value(&note))).collect()
}

#[test]
fn t1_perfetto_has_every_stage_once_and_flows_across_hosts() {
    let mut analysed = trace_sample::analysed();
    let file = perfetto::file(&analysed.input);
    golden("two_hosts.perfetto-trace", &file);
    assert_eq!(file, perfetto::file(&trace_sample::analysed().input));

    // Names of tracks with those above them, and slices by packet path.
    let mut tracks: BTreeMap<u64, (u64, String)> = BTreeMap::new();
    let mut open: BTreeMap<u64, (u64, String, u64)> = BTreeMap::new();
    let mut slices: BTreeMap<u64, Vec<(String, u64, u64, String)>> = BTreeMap::new();
    let mut instants: BTreeMap<String, u64> = BTreeMap::new();
    let mut whole: BTreeMap<u64, BTreeMap<String, String>> = BTreeMap::new();
    let (mut counters, mut bounded, mut ended, mut last) = (0, 0, 0, 0);
    let path = |tracks: &BTreeMap<u64, (u64, String)>, mut uuid: u64| {
        let mut names = Vec::new();
        while let Some((parent, name)) = tracks.get(&uuid) {
            names.insert(0, name.clone());
            uuid = *parent;
        }
        names.join(" > ")
    };
    for (at, (field, packet)) in fields(&file).into_iter().enumerate() {
        let Field::Bytes(packet) = packet else { panic!("a packet is a message") };
        assert_eq!(field, 1);
        let packet = fields(packet);
        assert_eq!(number(&packet, 10), Some(1), "the sequence");
        if let Some(snapshot) = bytes(&packet, 6) {
            assert_eq!(at, 0);
            let clock = |(_, field): &(u64, Field<'_>)| {
                let Field::Bytes(clock) = field else { panic!("a clock is a message") };
                let clock = fields(clock);
                (number(&clock, 1).unwrap(), number(&clock, 2).unwrap())
            };
            let clocks: Vec<(u64, u64)> = fields(snapshot).iter().map(clock).collect();
            let (boot, utc) = (clocks[0], clocks[1]);
            assert_eq!((boot.0, utc.0), (6, 1));
            assert_eq!(utc.1 - boot.1, 1_800_000_000_000_000_000);
            continue;
        }
        if let Some(track) = bytes(&packet, 60) {
            let track = fields(track);
            let uuid = number(&track, 1).unwrap();
            let parent = number(&track, 5).unwrap_or(0);
            assert!(parent == 0 || tracks.contains_key(&parent), "parents come first");
            assert!(tracks.insert(uuid, (parent, text(&track, 2))).is_none());
            continue;
        }
        let (now, event) = (number(&packet, 8).unwrap(), fields(bytes(&packet, 11).unwrap()));
        assert!(now >= last, "in the order of time");
        last = now;
        let track = number(&event, 11).unwrap();
        assert!(tracks.contains_key(&track));
        let flow = number(&event, 47).or(number(&event, 48)).unwrap_or(0);
        match number(&event, 9).unwrap() {
            1 => {
                let arguments = arguments(&event);
                bounded += u64::from(arguments.get("bound_ns").is_some_and(|ns| ns == "70"));
                if number(&event, 48).is_some() {
                    ended += 1;
                    whole.insert(flow, arguments);
                }
                let begun = open.insert(track, (now, text(&event, 23), flow));
                assert!(begun.is_none(), "slices of a track do not overlap");
            }
            2 => {
                let (from, name, flow) = open.remove(&track).unwrap();
                slices.entry(flow).or_default().push((name, from, now, path(&tracks, track)));
            }
            3 => *instants.entry(text(&event, 23)).or_default() += 1,
            4 => counters += 1,
            other => panic!("type {other}"),
        }
    }
    assert!(open.is_empty(), "every slice ends");
    assert_eq!(counters, 15, "8 enter and 7 leave");
    let told: Vec<(&str, u64)> = instants.iter().map(|(name, n)| (name.as_str(), *n)).collect();
    let drop = format!("drop: {}", analysed.names.reason(0, 7));
    assert_eq!(told, [("</script>acted", 7), (&drop, 1), ("poll of 1", 7), ("sampled", 8)]);
    assert_eq!(bounded, 7, "the wire of each that arrived");
    assert_eq!(ended, 8, "each packet path ends once");
    for flow in &analysed.input.packet_paths {
        let known = &whole[&(flow.number + 1)];
        assert_eq!((&known["state"], &known["flow"]), (&flow.state, &flow.flow));
        assert_eq!(known["end_to_end_ns"], flow.length_ns.to_string());
        assert_eq!(known.get("why").map_or("", String::as_str), flow.sentence);
    }
    assert!(whole[&5]["why"].contains("its gates were closed for"), "{:?}", whole[&5]);
    for packet_path in &analysed.packet_paths {
        let mut want: Vec<(String, u64, u64)> = Vec::new();
        for stage in &packet_path.stages {
            let at = |place: usize| u64::try_from(packet_path.points[place].at_ns).unwrap();
            want.push((stage.parts.name(), at(stage.from), at(stage.to)));
        }
        let mut got: Vec<(String, u64, u64)> = slices[&(packet_path.number + 1)]
            .iter()
            .map(|(name, from, to, _)| (name.clone(), *from, *to))
            .collect();
        want.sort();
        got.sort();
        assert_eq!(got, want, "packet path {}", packet_path.number);
    }
    let of = |name: &str| slices[&1].iter().find(|slice| slice.0 == name).unwrap().3.clone();
    assert_eq!(of("qdisc"), "alpha > talker > eth0 qdisc");
    assert_eq!(of("wire"), "beta<b> (clock +-70 ns) > listener > eth1 wire");
    assert_eq!(of("read"), "beta<b> (clock +-70 ns) > listener > control \"loop\" (20)");
    assert!(slices[&0].iter().any(|slice| slice.0 == "softirq NET_RX"));
    // What was lost and which streams have one number are in the file and on the terminal.
    analysed.input.clashes.push("clash: of two talkers".to_owned());
    let file = perfetto::file(&analysed.input);
    let said = perfetto::said(&analysed.input, &file);
    let lines = [
        "beta<b>: 3 of 500 events of irq-entry were lost",
        "clash: of two talkers",
        "all 8 packet paths",
    ];
    assert!(said.starts_with(&lines.join("\n")), "{said}");
    assert!(String::from_utf8_lossy(&file).contains(&lines.join("; ")));
}

#[test]
fn t1_overlapping_stages_are_on_tracks_of_one_name() {
    let mut input = trace_sample::analysed().input;
    let lane = input.intervals[0].lane;
    let (from, to) = (input.intervals[0].from_ns, input.intervals[0].to_ns);
    let mut more = input.intervals[0];
    (more.from_ns, more.to_ns) = (from + 1, to + 1);
    input.intervals.insert(1, more);
    let file = perfetto::file(&input);
    let name = input.lanes[lane].name.clone();
    let packets: Vec<Vec<(u64, Field<'_>)>> = fields(&file)
        .into_iter()
        .map(|(_, packet)| if let Field::Bytes(it) = packet { fields(it) } else { Vec::new() })
        .collect();
    let tracks = packets.iter().filter_map(|packet| bytes(packet, 60));
    assert_eq!(tracks.filter(|track| text(&fields(track), 2) == name).count(), 2);
}

/// The tables of two hosts and the two longest packet paths, as text and as a page.
fn text_and_page(analysed: &trace_sample::Analysed) -> (String, String) {
    let (counts, rows) = (analysed.analysis.counts(), analysed.analysis.rows());
    let input = packet_paths::PacketPathsInput {
        counts: &counts,
        rows: &rows,
        longest: &analysed.analysis.longest()[..2],
        names: &analysed.names,
    };
    let notes = "clock of beta<b>: by the packets\n";
    (packet_paths::text(&input), packet_paths::page(&input, &analysed.input, notes))
}

#[test]
fn t1_tables_and_the_longest() {
    let mut analysed = trace_sample::analysed();
    analysed.input.clashes.push("clash: stream number 7 is of <two>".to_owned());
    // Another packet waits at the same time.
    let input = &mut analysed.input;
    let is_wait = |it: &&Interval| it.packet_path == Some(4) && input.names[it.name] == "qdisc";
    let mut wait = *input.intervals.iter().find(is_wait).unwrap();
    (wait.from_ns, wait.packet_path) = (wait.from_ns + 9_000, Some(5));
    input.intervals.push(wait);
    input.intervals.sort();
    let (text, page) = text_and_page(&analysed);
    golden("two_hosts.packet-paths.txt", text.as_bytes());
    let (_, html) = page.split_once("</header>").unwrap();
    golden("two_hosts.packet-paths.html", html.as_bytes());
    assert_eq!(page, text_and_page(&analysed).1, "the same bytes");
    assert_eq!(html.matches("<figure ").count(), 2);
    for words in [
        "<li>beta&lt;b&gt;: 3 of 500 events of irq-entry were lost</li>",
        "<li>clock of beta&lt;b&gt;: by the packets</li>",
        "<li>clash: stream number 7 is of &lt;two&gt;</li>",
        "Drawn from: all 8 packet paths; of ",
        "its gates were closed for",
        "beta&lt;b&gt; / listener (clock ±70 ns)",
        "class=\"unsure\"",
        "wire 400 ns ±70 ns. ",
        ">may send</text>",
        ">app 800 ns, send 1.20 µs</text>",
        ">&lt;/script&gt;acted</text>",
        "<title>packet path 5, qdisc, 39.5 µs</title>",
        "<title>interrupt 33, 100 ns</title>",
    ] {
        assert!(html.contains(words), "{words}");
    }
    // Nothing is fetched, and nothing of a trace is markup.
    let urls = ["http:", "https:", "src=", "@import", "url(h", "<script", "beta<b>"];
    assert!(urls.iter().all(|url| !page.contains(url)));
    for (open, close) in [("<table", "</table>"), ("<svg", "</svg>"), ("<details", "</details>")] {
        assert_eq!(html.matches(open).count(), html.matches(close).count());
    }
}

#[test]
fn t1_a_page_without_packet_paths_says_so() {
    let (counts, names) = (Default::default(), Default::default());
    let input =
        packet_paths::PacketPathsInput { counts: &counts, rows: &[], longest: &[], names: &names };
    let page = packet_paths::page(&input, &Default::default(), "");
    assert!(page.contains("<li>no event was lost</li>"), "{page}");
    assert!(page.contains("No packet path is of those that were asked for."), "{page}");
}

#[test]
fn t1_the_live_view() {
    let analysed = trace_sample::analysed();
    let mut meter = live::LiveMeter::default();
    let count = |seen, lost| HookCount { seen, written: seen - lost, lost };
    let hooks = |seen, lost| {
        BTreeMap::from([
            ("device-queue".to_owned(), count(seen, 0)),
            ("drop".to_owned(), count(seen / 4, lost)),
        ])
    };
    let header = |host: &str, names: &[&str]| CaptureHeader {
        host: host.to_owned(),
        stations: names
            .iter()
            .map(|name| Station { name: (*name).to_owned(), ..Station::default() })
            .collect(),
        ..CaptureHeader::default()
    };
    meter.header(0, &header("talker", &["talker"]));
    meter.header(1, &header("listener", &["listener"]));
    for packet_path in &analysed.packet_paths[..4] {
        packet_path.points.iter().for_each(|point| meter.event(0, point, &of(point)));
        meter.packet_path(packet_path);
    }
    let none = BTreeMap::new();
    let (at_first, later) = (hooks(4, 0), hooks(8, 1));
    let input = |second, hooks, not_shown, slowest, of_stations| live::LiveInput {
        elapsed: Span::from_secs(second),
        hooks,
        not_shown,
        slowest,
        of_stations,
    };
    let first = meter.snapshot(&input(1, &at_first, 0, None, &none));
    for packet_path in &analysed.packet_paths[4..] {
        packet_path.points.iter().for_each(|point| meter.event(0, point, &of(point)));
        meter.packet_path(packet_path);
    }
    let slowest = analysed.analysis.longest().first();
    let at = slowest.and_then(|it| it.packet_path.points.last()).unwrap();
    let ends = BTreeMap::from([((at.capture, at.station), slowest.unwrap().clone())]);
    let second = meter.snapshot(&input(2, &later, 7, slowest, &ends));
    let wide = live::LiveRoom { columns: 200, lines: None };
    let lines = live::line(&first) + &live::line(&second);
    let views = live::view(&first, wide) + "--------\n" + &live::view(&second, wide);
    let views = views + "--------\n" + &live::whole(&second);
    golden("two_hosts.live.txt", (views + "--------\n" + &lines).as_bytes());
    let small = live::view(&second, live::LiveRoom { columns: 40, lines: Some(12) });
    assert_eq!(small.lines().count(), 12);
    assert!(small.starts_with("LOST 1 of 2 events of drop\nNOT SHOWN 7 "), "losses stand first");
    assert!(small.lines().all(|line| line.chars().count() <= 40));
    assert!(small.contains("\n  "), "sentences go on in the next line: {small}");
    assert!(small.ends_with("lines more\n"));
    let idle = meter.snapshot(&input(3, &later, 7, slowest, &none));
    assert_eq!(live::line(&idle), "3.0s 0 events/s, 0 packet paths, 0/s\n");
    assert!(idle.stations.iter().all(|it| it.events == 0 && it.slowest.is_none()));
}

/// An event of a point; what is not in it does not matter here.
fn of(point: &Point) -> Event {
    Event {
        at_ns: point.raw_ns,
        object: 0,
        tag: 0,
        aux: point.aux,
        interface: point.interface,
        thread: point.thread,
        cpu: point.cpu,
        flags: Flags(0),
        length: point.length,
        hook: point.hook,
        station: point.station,
    }
}

#[test]
fn t0_a_live_view_does_not_grow() {
    let analysed = trace_sample::analysed();
    let mut meter = live::LiveMeter::default();
    let hooks = BTreeMap::from([("drop".to_owned(), HookCount::default())]);
    let none = BTreeMap::new();
    let mut lengths = std::collections::BTreeSet::new();
    for second in 1..2_000 {
        for packet_path in &analysed.packet_paths {
            meter.packet_path(packet_path);
        }
        let snapshot = meter.snapshot(&live::LiveInput {
            elapsed: Span::from_secs(second),
            hooks: &hooks,
            not_shown: 0,
            slowest: None,
            of_stations: &none,
        });
        let (_, last, total) = snapshot.stages.last().unwrap();
        assert_eq!(total.count, last.count * u64::try_from(second).unwrap());
        let bins: usize = snapshot.stages.iter().map(|it| it.1.bins.len() + it.2.bins.len()).sum();
        lengths.insert((snapshot.stages.len(), snapshot.stations.len(), bins));
    }
    assert_eq!(lengths.len(), 1, "the same packet paths are the same view: {lengths:?}");
}
