// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rules of the model, one command each, given to `tc` and the kernel all the same: who the
//! model says refuses it must refuse it, and what the model takes must be taken and be there.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};
use timewire_base::{BitsPerSecond, FrameLen, Instant, SocketPriority, Span, StationName};
use timewire_model::tdm::{Slot, TdmSchedule};
use timewire_sys::namespace::{self, Namespace};
use timewire_tsn::qdisc::{QdiscCommand, Refuser, TdmPort, taprio_of_station};

use crate::guest::GuestDirectory;

/// What came of a rule.
#[derive(Debug, Serialize, Deserialize)]
pub struct Ruled {
    /// The words after the handle.
    pub words: String,
    /// The exit code of `tc`.
    pub code: i32,
    /// What `tc` said first.
    pub said: String,
    /// Why what is there afterwards is not what was set.
    pub misread: Option<String>,
}

/// Words after `tc qdisc add dev eth0 root handle 1:`, on an interface with 16 queues that states
/// no rate.
const RULES: [&str; 62] = [
    // Taken.
    "taprio num_tc 2 map 0 1 queues 1@0 1@1 sched-entry S 01 48000 clockid TAI",
    "taprio num_tc 2 queues 2@4 10@6 base-time -5 sched-entry S 0x3 0xbb80 clockid boottime",
    "taprio num_tc 1 queues 16@0 base-time 9000000000000000000 sched-entry S 80000000 50000 \
     cycle-time 2147483647 cycle-time-extension 7 clockid CLOCK_REALTIME",
    "taprio num_tc 16 map 15 14 13 12 11 10 9 8 7 6 5 4 3 2 1 0 queues 1@15 1@14 1@13 1@12 1@11 \
     1@10 1@9 1@8 1@7 1@6 1@5 1@4 1@3 1@2 1@1 1@0 sched-entry S ffff 50000 sched-entry S 0 50000 \
     cycle-time 96000 clockid MONOTONIC",
    "taprio num_tc 3 map 2 2 1 0 queues 1@0 1@0 1@0 sched-entry S 7 50000 flags 1 \
     txtime-delay 4294967295 clockid TAI",
    "taprio num_tc 2 map 0 1 queues 1@0 1@1 base-time 5 sched-entry S 1 50000 flags 0x2",
    "stab overhead 24 taprio num_tc 1 queues 1@0 sched-entry S 1 50000 clockid TAI",
    "mqprio num_tc 2 map 0 1 queues 1@0 15@1 hw 0",
    "mqprio num_tc 16 map 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 queues 1@0 1@1 1@2 1@3 1@4 1@5 \
     1@6 1@7 1@8 1@9 1@10 1@11 1@12 1@13 1@14 1@15 hw 0",
    "etf clockid CLOCK_TAI delta 2147483647 skip_sock_check deadline_mode",
    "etf del 0x10 clockid tai",
    "cbs idleslope 2147483647 sendslope -2147483648 hicredit 2147483647 locredit -2147483648",
    "cbs idle 010 send -1",
    // Refused by the kernel.
    "taprio num_tc 2 map 0 2 queues 1@0 1@1 sched-entry S 1 50000 clockid TAI",
    "taprio num_tc 17 queues 1@0 sched-entry S 1 50000 clockid TAI",
    "taprio num_tc 2 map 0 1 queues 1@0 sched-entry S 1 50000 clockid TAI",
    "taprio num_tc 2 map 0 1 queues 1@0 0@1 sched-entry S 1 50000 clockid TAI",
    "taprio num_tc 2 map 0 1 queues 2@0 1@1 sched-entry S 1 50000 clockid TAI",
    "taprio num_tc 2 map 0 1 sched-entry S 1 50000 clockid TAI",
    "taprio num_tc 2 map 0 1 queues 1@0 1@1 clockid TAI",
    "taprio num_tc 2 map 0 1 queues 1@0 1@1 sched-entry S 1 0 clockid TAI",
    "taprio num_tc 2 map 0 1 queues 1@0 1@1 sched-entry S 1 50000",
    "taprio num_tc 2 map 0 1 queues 1@0 1@1 sched-entry S 1 50000 clockid TAI flags 2",
    "taprio num_tc 2 map 0 1 queues 1@0 1@1 sched-entry S 1 50000 clockid TAI flags 3",
    "taprio num_tc 2 map 0 1 queues 1@0 1@1 sched-entry S 1 50000 clockid TAI flags 4",
    "taprio num_tc 2 map 0 1 queues 1@0 1@1 sched-entry S 1 50000 clockid TAI txtime-delay 1",
    "taprio num_tc 2 map 0 1 queues 1@0 1@1 sched-entry S 1 50000 clockid TAI cycle-time -1",
    "taprio num_tc 2 map 0 1 queues 1@0 1@1 sched-entry S 1 50000 clockid TAI \
     cycle-time 2147483648",
    "taprio num_tc 1 queues 1@0 sched-entry S 1 2147483647 sched-entry S 1 50000 clockid TAI",
    "taprio num_tc 1 queues 1@0 sched-entry S 1 50000 sched-entry S 1 50000 cycle-time 1 \
     clockid TAI",
    "mqprio num_tc 2 map 0 2 queues 1@0 1@1 hw 0",
    "mqprio num_tc 2 map 0 1 queues 1@0 hw 0",
    "mqprio num_tc 2 map 0 1 queues 2@0 1@1 hw 0",
    "mqprio num_tc 2 map 0 1 hw 0",
    "mqprio num_tc 0 map 0 hw 0",
    "taprio map 0 sched-entry S 1 50000 clockid TAI",
    "etf delta 5",
    "etf clockid CLOCK_REALTIME",
    "etf clockid TAI delta -1",
    // Refused by `tc`.
    "taprio num_tc 256 queues 1@0 sched-entry S 1 50000 clockid TAI",
    "taprio num_tc 1 map 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 queues 1@0 sched-entry S 1 50000 \
     clockid TAI",
    "taprio num_tc 1 queues 1@65536 sched-entry S 1 50000 clockid TAI",
    "taprio num_tc 1 queues 1@0 sched-entry X 1 50000 clockid TAI",
    "taprio num_tc 1 queues 1@0 sched-entry S 100000000 50000 clockid TAI",
    "taprio num_tc 1 queues 1@0 sched-entry S 1 4294967296 clockid TAI",
    "taprio num_tc 1 queues 1@0 sched-entry S 1 50000 clockid TAI clockid TAI",
    "taprio num_tc 1 queues 1@0 sched-entry S 1 50000 clockid TAI flags x",
    "taprio num_tc 1 queues 1@0 sched-entry S 1 50000 clockid TAI gates 8",
    "taprio num_tc 1 queues 1@0 sched-entry S 1",
    "mqprio num_tc 1 map 0 queues 1@0 hw 0 mode channel",
    "mqprio num_tc 1 map 0 queues 1@0 hw 1 min_rate 1mbit",
    "mqprio num_tc 2 map 0 1 queues 1@0 1@1 hw 1 mode channel shaper bw_rlimit min_rate 1mbit",
    "etf clockid TAI delta 2147483648",
    "etf clockid TAI clockid TAI",
    "etf clockid",
    "cbs idleslope 20mbit",
    "cbs idleslope 1 idleslope 2",
    "cbs credit 3",
    // Taken by both, but not as it stands: the model alone refuses it.
    "taprio num_tc 1 queues 1@0 sched-entry S 1 50000 clockid TAI base-time soon",
    "taprio num_tc 1 queues 1@0 sched-entry S 1 50000 clockid TAI cycle-time 1ms",
    "taprio num_tc 1 queues 1@0 1@1 sched-entry S 1 50000 clockid TAI",
    "taprio num_tc 2 num_tc 1 queues 1@0 sched-entry S 1 50000 clockid TAI",
];

/// Rules that older kernels do not have, or have otherwise, by what is in the words: the first
/// series that has them as the model does.
const YOUNGER: [(&str, [u32; 2]); 3] = [
    // Queues in another order than their classes count as overlapping.
    ("queues 1@15 1@14", [6, 3]),
    // The device has no clock of its own.
    ("flags 0x2", [6, 6]),
    // Linux 6.1 takes a cycle of any length.
    ("cycle-time 1 clockid", [6, 12]),
];

/// Whether a kernel of this release has the rule.
pub fn is_known_to(words: &str, release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    let mut next = || numbers.next().and_then(Result::ok).unwrap_or(u32::MAX);
    let series = [next(), next()];
    YOUNGER.iter().all(|(part, since)| !words.contains(part) || series >= *since)
}

/// The gates of the stations of a TDM schedule, in words that follow the handle.
fn schedules() -> Vec<String> {
    let name = |text| StationName::new(text).expect("a station's name");
    let slot = |station, offset, transmit| Slot {
        station: name(station),
        offset: Span::from_us(offset),
        transmit: Span::from_us(transmit),
        guard: Span::from_us(40),
    };
    let slots = vec![slot("a", 0, 1_400), slot("b", 1_440, 1_300), slot("a", 2_780, 1_300)];
    let schedule = TdmSchedule::new(Instant::from_ns(5), Span::from_us(4_160), slots);
    let schedule = schedule.expect("a schedule");
    // The device states no rate, and taprio takes that for 10 Mbit/s.
    let rate = BitsPerSecond::new(10_000_000).expect("a rate");
    let largest = FrameLen::new(1_514).expect("a frame");
    let urgent = vec![SocketPriority::new(5).expect("a priority")];
    let port = TdmPort { link: rate, stated: rate, largest, urgent };
    let words = |station| taprio_of_station(&schedule, &name(station), &port).expect("gates");
    ["a", "b"].map(|station| words(station).to_string()).into()
}

/// All words.
pub fn all() -> Vec<String> {
    RULES.into_iter().map(str::to_owned).chain(schedules()).collect()
}

/// The whole command.
pub fn line(words: &str) -> String {
    format!("tc qdisc add dev eth0 root handle 1: {words}")
}

/// Gives each to `tc` and prints a [`Ruled`] per line.
pub fn main() {
    let place = GuestDirectory { directory: Path::new("/") };
    namespace::unshare(&[Namespace::Network]).expect("a network namespace");
    fs::write("/sys/bus/netdevsim/new_device", "1 1 16").expect("a device with 16 queues");
    for words in all() {
        let line = line(&words);
        let output = place.shell(&line);
        let code = output.status.code().unwrap_or(-1);
        let errors = String::from_utf8_lossy(&output.stderr);
        let misread = match line.parse::<QdiscCommand>() {
            Ok(command) if code == 0 => place.reads_back(&command).err(),
            _ => None,
        };
        let said = errors.lines().next().unwrap_or_default().to_owned();
        let ruled = Ruled { words, code, said, misread };
        println!("{}", serde_json::to_string(&ruled).expect("plain values"));
        place.shell("tc qdisc delete dev eth0 root");
    }
}

/// Who the model says takes or refuses it.
pub fn name(who: Option<Refuser>) -> &'static str {
    match who {
        None => "taken",
        Some(Refuser::Tc) => "tc refuses",
        Some(Refuser::Kernel) => "the kernel refuses",
        Some(Refuser::Timewire) => "taken in part, the model alone refuses",
    }
}

/// Who refused it, by the exit code of `tc`.
pub fn refused_by(code: i32) -> Option<Refuser> {
    match code {
        0 => None,
        2 => Some(Refuser::Kernel),
        _ => Some(Refuser::Tc),
    }
}
