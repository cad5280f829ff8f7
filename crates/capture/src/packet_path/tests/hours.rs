// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Those who watch for hours: what is kept in mind does not grow, and what is forgotten is never
//! taken for known.

use super::super::analysis::{Analysis, Wanted};
use super::super::worst::Keep;
use super::*;
use crate::capture::{ClockSample, Note};
use crate::event::Flags;

/// A whole packet path at another time, with buffers, threads and sockets of its own.
fn another(n: u64, apart_ns: u64) -> Vec<Event> {
    let mut events = whole();
    for event in &mut events {
        event.at_ns += n * apart_ns;
        event.thread += u32::try_from(n).unwrap() * 100;
        event.tag = if event.tag == 0 { 0 } else { (n << 32) | 5 };
        match event.hook {
            Hook::Marker => {}
            Hook::DeviceQueue | Hook::SocketQueue => {
                event.object += n << 16;
                event.aux += n << 16;
            }
            Hook::Waking => {
                event.object += n << 16;
                event.aux = 20 + n * 100;
            }
            _ => event.object += n << 16,
        }
        if event.hook == Hook::SocketQueue {
            *event = event.flag(Flags::ALONE);
        }
    }
    events
}

fn watching() -> Analysis<OneClock> {
    let info = CaptureInfo { tells_alone: true, ..CaptureInfo::all() };
    let keep = Keep { longest: 3, of_stations: true, ..Keep::default() };
    let wanted = Wanted { settings: settings(), keep, flows: 4, ..Wanted::default() };
    Analysis::new(vec![info], OneClock, wanted)
}

#[test]
fn t0_what_is_kept_in_mind_does_not_grow() {
    // Each second another program with other sockets, a loss, and names.
    let apart = settings().longest_ns.unsigned_abs();
    let mut analysis = watching();
    let mut out = Vec::new();
    let mut most = Held::default();
    for n in 0..20_000_u64 {
        for event in another(n, apart) {
            analysis.event(0, &event, &mut out);
        }
        let at = i64::try_from(n * apart).unwrap();
        let half = n * apart + apart / 2;
        analysis
            .lose(0, Loss { hook: Hook::DriverStart, from_ns: half, to_ns: half + 1, events: 1 });
        let thread = u32::try_from(n).unwrap();
        analysis.note(0, &Note::Thread { thread, name: "one of many".to_owned() });
        analysis.note(0, &Note::Flow { flow: thread, name: "one of many".to_owned() });
        let step = i64::try_from(n * n).unwrap() * 1_000;
        let sample = ClockSample {
            monotonic_ns: n * apart,
            realtime_ahead_ns: step,
            tai_ahead_ns: 0,
            error_ns: 10,
            offset_ns: None,
        };
        analysis.note(0, &Note::Clocks(sample));
        analysis.settle(at + settings().longest_ns / 2, &mut out);
        if n % 10 == 9 {
            analysis.forget(0);
            let held = analysis.held();
            most.packets = most.packets.max(held.packets);
            most.events = most.events.max(held.events);
            most.sockets = most.sockets.max(held.sockets);
            most.threads = most.threads.max(held.threads);
            most.losses = most.losses.max(held.losses);
            most.names = most.names.max(held.names);
        }
        let slowest = analysis.take_of_stations();
        assert!(slowest.len() <= 1, "{slowest:?}");
    }
    assert!(most.packets <= 4 && most.events <= 32, "{most:?}");
    assert!(most.sockets <= 8 && most.threads <= 16 && most.losses <= 8, "{most:?}");
    assert!(most.names <= 2 * 16_500 + 1_024, "{most:?}");
    // It forgot nothing that it needed.
    assert!(out.len() >= 19_999, "{}", out.len());
    let complete = |packet_path: &&PacketPath| packet_path.status == Status::Complete;
    assert_eq!(out.iter().filter(complete).count(), out.len());
    let rows = analysis.rows();
    assert!(rows.len() < 200, "{}", rows.len());
}

#[test]
fn t0_a_socket_that_is_forgotten_is_not_known() {
    let apart = 10 * settings().longest_ns.unsigned_abs();
    let mut analysis = watching();
    let mut out = Vec::new();
    let settled = |n: u64| i64::try_from(n * apart + apart / 2).unwrap();
    for (n, alone) in [(0, true), (1, false), (2, true)] {
        for mut event in another(0, apart) {
            event.at_ns += n * apart;
            // The reader was awake and took what it found.
            if matches!(event.hook, Hook::Waking | Hook::SwitchIn) {
                continue;
            }
            if event.hook == Hook::SocketQueue && !alone {
                event.flags = Flags::TAGGED;
            }
            analysis.event(0, &event, &mut out);
        }
        analysis.settle(settled(n), &mut out);
        analysis.forget(0);
    }
    let whys: Vec<Option<Why>> = out.iter().map(|packet_path| packet_path.why).collect();
    assert_eq!(whys, [None, Some(Why::SocketAfterLoss), None]);
}

#[test]
fn t0_the_longest_of_each_station_is_that_since_it_was_asked() {
    let apart = 10 * settings().longest_ns.unsigned_abs();
    let mut analysis = watching();
    let mut out = Vec::new();
    for (n, later) in [(0, 0), (1, 500), (2, 100)] {
        for mut event in another(n, apart) {
            if event.at_ns >= n * apart + 3_000 {
                event.at_ns += later;
            }
            analysis.event(0, &event, &mut out);
        }
        if n == 1 {
            analysis.settle(i64::try_from(n * apart + apart / 2).unwrap(), &mut out);
            let taken = analysis.take_of_stations();
            let [((0, 1), judged)] = &taken.into_iter().collect::<Vec<_>>()[..] else { panic!() };
            assert_eq!((judged.packet_path.number, judged.packet_path.end_to_end_ns()), (1, 3_400));
            assert!(judged.sentence.contains(" us of 3.400 us"), "{}", judged.sentence);
        }
    }
    analysis.finish(&mut out);
    let taken = analysis.take_of_stations();
    assert_eq!(taken.values().map(|judged| judged.packet_path.number).collect::<Vec<_>>(), [2]);
    assert!(analysis.take_of_stations().is_empty());
    assert_eq!(analysis.longest().len(), 3);
}
