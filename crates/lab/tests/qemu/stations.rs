// SPDX-License-Identifier: Apache-2.0 OR MIT
//! NICs with clocks: what they say that they can, and two stations that synchronise by
//! their hardware timestamps.

use std::path::PathBuf;

use crate::{kernel, machine, said};

pub fn nics() {
    let script = "ls -d /dev/ptp*; for nic in 0 1; do ethtool -T eth$nic; done";
    let mut machine = machine(&["sh", "-c", script]);
    machine.nics = 2;
    let text = said(&machine.run(&kernel(None)).unwrap());
    assert!(text.starts_with("/dev/ptp0\n/dev/ptp1\n"), "{text}");
    let has = |what: &str| text.lines().filter(|line| line.trim().starts_with(what)).count();
    for capability in ["hardware-transmit", "hardware-receive", "hardware-raw-clock"] {
        assert_eq!(has(capability), 2, "{capability}: {text}");
    }
    assert_eq!((has("PTP Hardware Clock: 0"), has("PTP Hardware Clock: 1")), (1, 1), "{text}");
}

pub fn synchronise() {
    let kernel = kernel(None);
    let this = std::env::current_exe().unwrap();
    let (ptp4l, phc_ctl) = (kernel.tool("usr/sbin/ptp4l"), kernel.tool("usr/sbin/phc_ctl"));
    let script = format!(
        "set -e
         {this} role timestamps delay-req sync &
         mkdir -p /run/netns
         for station in 0 1; do
             ip netns add station$station
             ip link set eth$station netns station$station
             ip -n station$station link set eth$station up
         done
         sleep 4
         {phc_ctl} /dev/ptp1 adj 0.001
         ip netns exec station0 {ptp4l} -i eth0 -2 -H -m --masterOnly=1 --uds_address=/run/0 \\
             > /run/transmitter &
         ip netns exec station1 {ptp4l} -i eth1 -2 -H -m -s --uds_address=/run/1 > /run/receiver &
         sleep 40
         cat /run/transmitter
         echo ====
         cat /run/receiver",
        this = this.display(),
        ptp4l = ptp4l.display(),
        phc_ctl = phc_ctl.display(),
    );
    let mut machine = machine(&["sh", "-c", &script]);
    machine.nics = 2;
    let programs = ["sh", "sleep", "mkdir", "cat", "ip"].map(PathBuf::from);
    machine.sealed = Some(programs.into_iter().chain([ptp4l, phc_ctl]).collect());
    let text = said(&machine.run(&kernel).unwrap());
    let (transmitter, receiver) = text.split_once("====").unwrap();
    let refused: Vec<_> = text.lines().filter(|line| line.contains("without timestamp")).collect();
    assert!(refused.is_empty(), "{refused:?}");
    assert!(transmitter.contains("assuming the grand master role"), "{text}");
    assert!(receiver.contains("UNCALIBRATED to SLAVE on MASTER_CLOCK_SELECTED"), "{text}");
    // s0: the servo looks, s1: it steps the clock, s2: it has it.
    let servo: Vec<(i64, &str)> = receiver.lines().filter_map(offset_and_state).collect();
    let is_off = |ns: i64| (ns - OFF_NS).abs() < START_NS;
    assert!(servo.first().is_some_and(|(ns, state)| is_off(*ns) && *state == "s0"), "{text}");
    assert!(servo.iter().any(|(ns, state)| is_off(*ns) && *state == "s1"), "{text}");
    let locked: Vec<i64> = servo.iter().filter(|(_, s)| *s == "s2").map(|(ns, _)| *ns).collect();
    assert!(locked.len() >= LOCKED, "only {} seconds in step: {text}", locked.len());
    let squares: i64 = locked.iter().map(|ns| ns * ns).sum();
    let mean_square = squares / i64::try_from(locked.len()).unwrap();
    eprintln!("in step for {} messages, mean square {mean_square} ns^2", locked.len());
    // One clock counts for both NICs and the cable has no length: timestamps differ by nothing.
    assert_eq!(mean_square, 0, "{text}");
}

/// `... master offset  -12 s2 freq ...` -> -12, s2.
fn offset_and_state(line: &str) -> Option<(i64, &str)> {
    let (_, rest) = line.split_once("master offset")?;
    let mut words = rest.split_whitespace();
    Some((words.next()?.parse().ok()?, words.next()?))
}

/// The receiver's clock is set off by so much before it starts: a millisecond.
const OFF_NS: i64 = 1_000_000;
/// The driver sets each clock by the system's, one after the other: they begin so close together.
const START_NS: i64 = 10_000;
/// It has to be in step for so many messages, one a second.
const LOCKED: usize = 20;
