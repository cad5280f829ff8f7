// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Once it runs, the MAC neither allocates nor frees, whatever its carrier. In a file of its own:
//! the allocations of all of its threads are counted.
//!
//! Not here: the machine alone (`timewire-mac`), what a MAC without work costs (`mac_rests`).
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "data_path/counting.rs"]
mod counting;
#[path = "data_path/station.rs"]
#[expect(dead_code, reason = "other tests use more of it")]
mod station;

use std::process::{Command, Stdio};

use counting::{calls, check_that_it_counts};
use station::{now, on_each_carrier, ports, run, spec, start, total, windows};
use timewire_base::Span;
use timewire_path::mac::MacSpec;
use timewire_sys::clock;

/// What the allocator was asked for while this thread slept.
fn calls_while_asleep(span: Span) -> u64 {
    let before = calls();
    clock::sleep_until(now() + span);
    calls() - before
}

// One test, so that nothing else of this process runs meanwhile.
#[test]
fn t3_a_running_mac_neither_allocates_nor_frees() {
    on_each_carrier(|_, carrier| {
        check_that_it_counts();
        run("ip", "address add 10.77.0.1/24 dev tw0");
        run("ip", "neighbour add 10.77.0.2 lladdr 02:00:00:00:00:02 dev tw0");
        let tdm = windows(now(), Span::from_ms(1), Span::from_us(300));
        let mut mac = start(MacSpec {
            windows: Some(tdm),
            send: ports(&[(15_001, 1)]),
            recv: ports(&[(15_001, 1)]),
            ..spec(carrier)
        });
        // The test's own process must not speak, or it would be counted.
        let mut flood = Command::new("bash");
        let script = "while true; do
            printf x > /dev/udp/10.77.0.2/15001
            printf x > /dev/udp/10.77.0.2/9
        done";
        flood.args(["-c", script]);
        let mut flood = flood.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let before = station::wait_for(&mut mac, "frames come", |s| total(s).released > 100);
        let calls = calls_while_asleep(Span::from_ms(700));
        let after = mac.status().unwrap();
        flood.kill().unwrap();
        flood.wait().unwrap();
        let moved = total(&after).released - total(&before).released;
        eprintln!("  {calls} calls, {moved} frames");
        assert!(moved > 100, "only {moved} frames moved");
        assert_eq!(calls, 0);
        mac.stop().unwrap();
    });
}
