// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A MAC rests when there is nothing to do, whatever its socket type. The CPU time of all MACs of
//! the process is counted.

use crate::alone::alone;
use crate::station;
use crate::station::{OTHER, now, on_each_socket, run, spec, start};
use timewire_base::Span;
use timewire_sys::clock;

/// CPU time of this process's threads of a name. **Units**: nanoseconds.
fn cpu_time(of: &str) -> u64 {
    let mut sum = 0;
    for entry in std::fs::read_dir("/proc/self/task").unwrap() {
        let path = entry.unwrap().path();
        let read = |file| std::fs::read_to_string(path.join(file)).unwrap_or_default();
        if read("comm").trim() == of {
            sum += read("schedstat").split(' ').next().unwrap_or("0").parse::<u64>().unwrap_or(0);
        }
    }
    sum
}

#[test]
fn t3_a_mac_rests_when_it_has_nothing_to_do_and_when_its_link_is_gone() {
    alone("mac_rests::t3_a_mac_rests_when_it_has_nothing_to_do_and_when_its_link_is_gone", rests);
}

fn rests() {
    for lost in [None, Some("phy0"), Some("tw0")] {
        on_each_socket(|station, socket| {
            let mut mac = start(spec(socket));
            station.stack.send(&station::raw(OTHER, 100, 1));
            station.wire.expect(1);
            if let Some(lost) = lost {
                run("ip", &format!("link del {lost}"));
            }
            let threads = ["tw-mac", "tw-receive"];
            let before = threads.map(cpu_time);
            let span = Span::from_ms(400);
            clock::sleep_until(now() + span);
            let after = threads.map(cpu_time);
            let busy = after.iter().sum::<u64>().saturating_sub(before.iter().sum());
            eprintln!("  without {lost:?}: busy for {} us of {span}", busy / 1_000);
            assert!(busy < 40_000_000, "busy for {busy} ns of {span}");
            assert_eq!(mac.ended().is_some(), lost.is_some());
        });
    }
}
