// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Once it runs, the MAC neither allocates nor frees, whatever its socket type. The allocations of
//! all of its threads are counted.

use std::process::{Command, Stdio};

use crate::alone::alone;
use crate::counting::{calls_of_all, check_that_all_count};
use crate::station;
use crate::station::{now, on_each_socket, ports, run, spec, start, total, windows};
use timewire_base::Span;
use timewire_datapath::mac::MacSpec;
use timewire_sys::clock;

/// What the allocator was asked for while this thread slept.
fn calls_while_asleep(span: Span) -> u64 {
    let before = calls_of_all();
    clock::sleep_until(now() + span);
    calls_of_all() - before
}

#[test]
fn t3_a_running_mac_neither_allocates_nor_frees() {
    alone("no_alloc::t3_a_running_mac_neither_allocates_nor_frees", mac);
}

fn mac() {
    on_each_socket(|_, socket| {
        check_that_all_count();
        run("ip", "address add 10.77.0.1/24 dev tw0");
        run("ip", "neighbour add 10.77.0.2 lladdr 02:00:00:00:00:02 dev tw0");
        let tdm = windows(now(), Span::from_ms(1), Span::from_us(300));
        let mut mac = start(MacSpec {
            windows: Some(tdm),
            send: ports(&[(15_001, 1)]),
            recv: ports(&[(15_001, 1)]),
            ..spec(socket)
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
