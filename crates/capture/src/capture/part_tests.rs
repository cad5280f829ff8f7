// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is made of captures: overviews, parts, wholes, text.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::tests::{event, header, losses, read, written};
use super::*;
use crate::event::{Event, Flags, Hook};
use crate::filter::{Filter, FlowFacts};

const FLOW: u32 = 0x1234_5678;

fn notes() -> Vec<Note> {
    vec![
        Note::Thread { thread: 100, name: "talk, \"er\"".to_owned() },
        Note::Point { point: 4, name: "start".to_owned(), process: 100 },
        Note::Flow { flow: FLOW, name: "UDP 10.0.0.1:7000 > 10.0.0.2:7001".to_owned() },
        Note::Flow { flow: 9, name: "0x88f7 02:00:00:00:00:01 > 01:1b:19:00:00:00".to_owned() },
        Note::Qdisc { station: 0, interface: 2, handle: 0x10000, kind: "taprio".to_owned() },
        losses(3),
    ]
}

fn of(hook: Hook, at_ns: u64, flow: u32) -> Event {
    let tag = u64::from(flow) << 32 | u64::from(flow != 0);
    Event { hook, tag, object: 4, aux: 5, ..event(at_ns, 0) }
}

/// Names and overview of a capture.
fn info(bytes: &[u8]) -> (Info, Names) {
    Info::read(&mut Reader::new(bytes).unwrap()).unwrap()
}

#[test]
fn t0_an_overview_counts_everything() {
    let events = [
        of(Hook::SocketSend, 10, FLOW),
        of(Hook::Drop, 30, 0),
        Event { station: Event::NO_STATION, ..of(Hook::Drop, 20, 0) },
    ];
    let bytes = written(&events, &notes(), 10);
    let (info, names) = info(&bytes);
    assert_eq!((info.events, info.first_ns, info.last_ns), (3, Some(10), Some(30)));
    let hooks = [("drop".to_owned(), 2), ("socket-send".to_owned(), 1)];
    assert_eq!(info.hooks, BTreeMap::from(hooks));
    let stations = [(String::new(), 1), ("alpha".to_owned(), 2)];
    assert_eq!(info.stations, BTreeMap::from(stations));
    assert_eq!((info.lost(), info.bytes), (3, u64::try_from(bytes.len()).unwrap()));
    assert!(info.health.is_whole());
    assert_eq!(names.points[&4], ("start".to_owned(), 100));
    assert_eq!(names.losses, info.losses);
    // It reads back from JSON.
    let json = serde_json::to_string(&info).unwrap();
    assert_eq!(serde_json::from_str::<Info>(&json).unwrap(), info);
}

fn cut(bytes: &[u8], cut: &Cut) -> (Vec<Event>, Vec<Note>, CutReport, CaptureHeader) {
    let (info, names) = info(bytes);
    let mut writer = Writer::new(Vec::new(), &cut.header(&info.header)).unwrap();
    let mut reader = Reader::new(bytes).unwrap();
    let report = cut.copy(&mut reader, &names, &mut writer).unwrap();
    let part = writer.finish().unwrap();
    let header = Reader::new(&part[..]).unwrap().header().clone();
    let (events, notes, health) = read(&part, 100);
    assert!(health.is_whole());
    (events, notes, report, header)
}

#[test]
fn t0_a_part_has_what_was_asked_for_and_says_so() {
    let events = [
        of(Hook::SocketSend, 10, FLOW),
        of(Hook::Drop, 20, FLOW),
        of(Hook::Drop, 30, 9),
        Event { station: 1, interface: 0, ..of(Hook::Waking, 40, 0) },
        of(Hook::Xdp, 50, 77),
    ];
    let bytes = written(&events, &notes(), 10);
    let filtered =
        |text: &str| Cut { filter: Some(Filter::parse(text).unwrap()), ..Cut::default() };
    for (part, kept, undecided) in [
        (Cut::default(), vec![10, 20, 30, 40, 50], 0),
        (Cut { from_ns: Some(20), until_ns: Some(50), ..Cut::default() }, vec![20, 30, 40], 0),
        (Cut { hooks: BTreeSet::from([Hook::Drop]), ..Cut::default() }, vec![20, 30], 0),
        (Cut { stations: BTreeSet::from([1]), ..Cut::default() }, vec![40], 0),
        (Cut { flows: BTreeSet::from([FLOW]), ..Cut::default() }, vec![10, 20], 0),
        // What a flow that has no name, or none, is about is not known.
        (filtered("udp port 7000"), vec![10, 20], 2),
        (filtered("not udp"), vec![30], 2),
        (filtered("ether proto 0x88f7"), vec![30], 2),
        (filtered("udp or hook xdp"), vec![10, 20, 50], 1),
        (filtered("udp and hook drop"), vec![20], 0),
        (filtered("vlan 5"), vec![], 5),
        (filtered("interface eth0 and not hook drop"), vec![10, 50], 0),
        (filtered("flow \"7001\""), vec![10, 20], 0),
        (filtered("tag 0x0000000900000001"), vec![30], 0),
        (filtered("process 100 and station alpha"), vec![10, 20, 30, 50], 0),
    ] {
        let (given, given_notes, report, _) = cut(&bytes, &part);
        let times: Vec<u64> = given.iter().map(|event| event.at_ns).collect();
        assert_eq!((times, report.undecided), (kept, undecided), "{part:?}");
        assert_eq!(given_notes, notes());
        assert_eq!(report.kept + report.left_out, 5);
    }
    let part = Cut { from_ns: Some(20), ..filtered("udp") };
    let (.., header) = cut(&bytes, &part);
    assert_eq!(header.meta["cut"], "from 20 ns; udp");
    assert_eq!(part.header(&header).meta["cut"], "from 20 ns; udp; then from 20 ns; udp");
}

#[test]
fn t0_names_of_flows_say_what_their_frames_are() {
    for name in [
        "UDP 10.0.0.1:7000 > 10.0.0.2:7001",
        "stream 3, UDP 10.0.0.1:7000 > 10.0.0.2:7001",
        "TCP [fd00::1]:1 > [fd00::2]:2",
        "IP 50 10.0.0.1 > 10.0.0.2",
        "IP 58 [fd00::1] > [fd00::2]",
        "0x22f0 02:00:00:00:00:01 > 91:e0:f0:00:00:01",
    ] {
        assert!(FlowFacts::of_name(name).is_some(), "{name}");
    }
    for name in ["", "stream 3", "UDP 10.0.0.1:7000", "UDP a > b", "0x22f0 1 > 2", "UDP 1.2.3.4 >"]
    {
        assert_eq!(FlowFacts::of_name(name), None, "{name}");
    }
}

fn merged(captures: &[Vec<u8>]) -> Result<(CaptureHeader, Vec<Event>, Names), MergeError> {
    let read_all: Vec<(Info, Names)> = captures.iter().map(|bytes| info(bytes)).collect();
    let sources: Vec<(&CaptureHeader, &Names)> =
        read_all.iter().map(|(info, names)| (&info.header, names)).collect();
    let merge = Merge::new(&sources)?;
    let mut writer = Writer::new(Vec::new(), merge.header()).unwrap();
    let mut readers: Vec<_> =
        captures.iter().map(|bytes| Reader::new(&bytes[..]).unwrap()).collect();
    let report = merge.copy(&mut readers, &mut writer).unwrap();
    let whole = writer.finish().unwrap();
    let (info, names) = info(&whole);
    assert_eq!(report.events.iter().sum::<u64>(), info.events);
    assert!(info.health.is_whole());
    Ok((info.header, read(&whole, 1).0, names))
}

fn capture(header: &CaptureHeader, events: &[Event], notes: &[Note]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), header).unwrap();
    notes.iter().for_each(|note| writer.note(note).unwrap());
    events.iter().for_each(|event| writer.event(event).unwrap());
    writer.finish().unwrap()
}

#[test]
fn t0_captures_of_one_boot_become_one_timeline() {
    let mark = |at_ns, point| Event { object: point, ..of(Hook::Marker, at_ns, 0) };
    let point = |point, name: &str| Note::Point { point, name: name.to_owned(), process: 100 };
    let one = capture(
        &header(),
        &[mark(10, 4), mark(30, 5)],
        &[point(4, "start"), point(5, "end"), losses(1)],
    );
    let mut other = header();
    let beta = Station { name: "beta".to_owned(), namespace: 8, ..Station::default() };
    other.stations =
        vec![beta, Station { name: "again".to_owned(), ..header().stations[0].clone() }];
    other.hooks.push("xdp".to_owned());
    other.filter = "tcp".to_owned();
    let events = [mark(20, 4), Event { station: 1, ..mark(40, 5) }];
    let two = capture(&other, &events, &[point(4, "end"), point(5, "middle"), losses(2)]);
    let (header, events, names) = merged(&[one, two]).unwrap();
    let stations: Vec<&str> = header.stations.iter().map(|station| &station.name[..]).collect();
    assert_eq!(stations, ["alpha", "beta"]);
    assert_eq!(header.hooks, ["socket-send", "drop", "xdp"]);
    assert_eq!(header.filter, "(udp) or (tcp)");
    let given: Vec<_> = events.iter().map(|event| (event.at_ns, event.station)).collect();
    assert_eq!(given, [(10, 0), (20, 1), (30, 0), (40, 0)]);
    let named: Vec<&str> = events.iter().map(|event| &names.points[&event.object].0[..]).collect();
    assert_eq!(named, ["start", "end", "end", "middle"]);
    assert_eq!(names.losses.unwrap()["drop"], HookCount { seen: 18, written: 15, lost: 3 });
}

#[test]
fn t0_captures_of_several_boots_stay_apart() {
    let boot = |boot: &str| CaptureHeader { boot: boot.to_owned(), ..header() };
    let headers = [boot("a"), boot("b"), boot("a"), boot(""), boot("")];
    let groups = by_boot(&headers.iter().collect::<Vec<_>>());
    assert_eq!(groups, [vec![0, 2], vec![1], vec![3], vec![4]]);
    let two: Vec<Vec<u8>> = headers[..2].iter().map(|header| capture(header, &[], &[])).collect();
    let said = merged(&two).unwrap_err().to_string();
    assert!(said.starts_with("capture 1 is of another boot (b) than the first (a)"), "{said}");
    assert_eq!(merged(&[]).unwrap_err(), MergeError::Nothing);
}

proptest! {
    #[test]
    fn t0_a_merge_keeps_every_event_in_order(
        times in prop::collection::vec(prop::collection::vec(0..500_u64, 0..60), 1..5),
    ) {
        let sets: Vec<Vec<Event>> = times
            .iter()
            .map(|times| times.iter().map(|at_ns| of(Hook::Drop, *at_ns, 3)).collect())
            .collect();
        let captures: Vec<Vec<u8>> = sets.iter().map(|events| written(events, &[], 7)).collect();
        let (_, events, _) = merged(&captures).unwrap();
        let mut expected: Vec<u64> = times.concat();
        expected.sort_unstable();
        prop_assert_eq!(events.iter().map(|event| event.at_ns).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn t0_rows_and_lines_have_every_column(mark in 0..1000_u64, flags in any::<u16>()) {
        let events = [Event { flags: Flags(flags), ..event(5, mark) }];
        let bytes = written(&events, &notes(), 1);
        let lines = exported(&bytes, Format::JsonLines);
        let value: serde_json::Value = serde_json::from_str(lines.trim_end()).unwrap();
        let object = value.as_object().unwrap();
        prop_assert_eq!(object.len(), COLUMNS.len());
        prop_assert!(COLUMNS.iter().all(|(column, _)| object.contains_key(*column)));
        prop_assert_eq!(object["time_ns"].as_u64(), Some(5));
        prop_assert_eq!(object["aux"].as_u64(), Some(u64::MAX - mark));

        let (_, names) = info(&bytes);
        let mut rows = exported(&bytes, Format::Csv).split_once('\n').unwrap().1.to_owned();
        let count = super::rows(&mut Reader::new(&bytes[..]).unwrap(), &names, &mut |cells| {
            let mut columns = cells.iter().zip(COLUMNS);
            assert!(columns.all(|(cell, (_, kind))| cell.fits(kind)), "{cells:?}");
            let line = crate::table::csv_line(cells);
            rows = rows.strip_prefix(&line).expect("the same text").to_owned();
            Ok(())
        });
        prop_assert_eq!((count.unwrap(), rows.as_str()), (1, ""));
    }
}

fn exported(bytes: &[u8], format: Format) -> String {
    let (info, names) = info(bytes);
    let mut out = Vec::new();
    let mut reader = Reader::new(bytes).unwrap();
    assert_eq!(export(&mut reader, &names, format, &mut out).unwrap(), info.events);
    String::from_utf8(out).unwrap()
}

#[test]
fn t1_exported_events_read_so() {
    let refused = Event { aux: 0_u64.wrapping_sub(11), ..of(Hook::SocketSend, 20, 0) };
    let queued = Event {
        aux: 0x10000 << 32 | 7,
        flags: Flags::TAGGED.with(Flags::FIRST).with(Flags(0x100)),
        ..of(Hook::QdiscEnqueue, 30, FLOW)
    };
    let bytes = written(&[of(Hook::Marker, 10, 0), refused, queued], &notes(), 10);
    let expected = "\
time_ns,hook,station,interface_index,interface,cpu,thread,thread_name,object,tag,flow,flow_name,\
length,flags,aux,point,result,qdisc,reason
10,marker,alpha,2,eth0,1,100,\"talk, \"\"er\"\"\",0x0000000000000004,,,,60,first,5,start,,,
20,socket-send,alpha,2,eth0,1,100,\"talk, \"\"er\"\"\",0x0000000000000004,,,,60,first,\
18446744073709551605,,-11,,
30,qdisc-enqueue,alpha,2,eth0,1,100,\"talk, \"\"er\"\"\",0x0000000000000004,0x1234567800000001,\
0x12345678,UDP 10.0.0.1:7000 > 10.0.0.2:7001,60,tagged|first|0x100,281474976710663,,,taprio,
";
    assert_eq!(exported(&bytes, Format::Csv), expected);
    let lines = exported(&bytes, Format::JsonLines);
    let first = "{\"time_ns\":10,\"hook\":\"marker\",\"station\":\"alpha\",\"interface_index\":2,\
                 \"interface\":\"eth0\",\"cpu\":1,\"thread\":100,\
                 \"thread_name\":\"talk, \\\"er\\\"\",\
                 \"object\":\"0x0000000000000004\",\"tag\":null,\"flow\":null,\"flow_name\":null,\
                 \"length\":60,\"flags\":\"first\",\"aux\":5,\"point\":\"start\",\"result\":null,\
                 \"qdisc\":null,\"reason\":null}";
    assert_eq!(lines.lines().next().unwrap(), first);
}
