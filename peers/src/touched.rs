// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How many lines and pages of memory a talker touches for a frame in user space, code and data, as
//! valgrind sees it: what a program that wakes for each frame with cold caches pays for. There the
//! kernel has no code for clocks in the program, and each look at a clock is a call.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};

use crate::measure::{self, Pair, Running};

const LOG: &str = "/run/talker.touched";
/// Frames that are sent, and those at the beginning that are not looked at.
pub const FRAMES: u64 = 300;
const WARM: usize = 100;
/// **Units**: ns; valgrind takes some hundred microseconds for a frame.
pub const CYCLE_NS: u64 = 4_000_000;
const LINE_BITS: u32 = 6;
const PAGE_BITS: u32 = 12;

/// Lines of 64 bytes and pages of 4 KiB, of the frame in the middle.
///
/// **Errors**: one of them does not run, or valgrind does not.
pub fn per_frame(pair: &mut Pair) -> Result<[usize; 2], String> {
    let _listener = measure::started(&mut pair.listener, pair.connects)?;
    let options = ["--tool=lackey", "--trace-mem=yes", "--trace-syscalls=yes"].map(str::to_owned);
    let log = format!("--log-file={LOG}");
    let words: Vec<_> = options.into_iter().chain([log]).collect();
    let mut talker = Running::start(&mut measure::under_valgrind(&pair.talker, &words))?;
    talker.ended()?;
    let file = File::open(LOG).map_err(|error| format!("{LOG}: {error}"))?;
    let frames = frames(BufReader::new(file).lines().map_while(Result::ok));
    let _ = fs::remove_file(LOG);
    middle(frames.get(WARM..).unwrap_or_default()).ok_or_else(|| format!("{LOG}: too few frames"))
}

/// What is touched from each call that sends to the next.
fn frames(log: impl Iterator<Item = String>) -> Vec<[usize; 2]> {
    let mut frames = Vec::new();
    let (mut lines, mut pages) = (BTreeSet::new(), BTreeSet::new());
    for entry in log {
        if let Some((first, last)) = touched(&entry) {
            // An instruction is code, whatever else is there.
            lines.extend(first >> LINE_BITS..=last >> LINE_BITS);
            pages.extend(first >> PAGE_BITS..=last >> PAGE_BITS);
        } else if sends(&entry) {
            frames.push([lines.len(), pages.len()]);
            lines.clear();
            pages.clear();
        }
    }
    frames
}

/// From where to where an instruction or what it reads or writes reaches: `I  0400d7d4,8`.
fn touched(entry: &str) -> Option<(u64, u64)> {
    let (kind, place) = entry.split_at_checked(3)?;
    if !["I  ", " L ", " S ", " M "].contains(&kind) {
        return None;
    }
    let (start, length) = place.trim_end().split_once(',')?;
    let start = u64::from_str_radix(start, 16).ok()?;
    Some((start, start + length.parse::<u64>().ok()?.checked_sub(1)?))
}

fn sends(entry: &str) -> bool {
    entry.starts_with("SYSCALL[")
        && [" sys_sendto (", " sys_sendmsg ("].iter().any(|call| entry.contains(call))
}

/// Of each number the one in the middle.
fn middle(frames: &[[usize; 2]]) -> Option<[usize; 2]> {
    let of = |at: usize| {
        let mut values: Vec<_> = frames.iter().map(|frame| frame[at]).collect();
        values.sort_unstable();
        values.get(values.len() / 2).copied()
    };
    Some([of(0)?, of(1)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_a_frame_is_what_is_touched_between_two_calls_that_send() {
        let log = "==7== Lackey\nI  00001000,3\n L 00001ffe,4\n M 00001010,8\n\
                   SYSCALL[7,2](44) sys_sendto ( 6, 0x1, 64, 64, 0x0, 0 ) --> [async] ... \n\
                   SYSCALL[7,2](44) ... [async] --> Success(0x40) \n\
                   I  00001000,3\n S 1ffefff680,8\n\
                   SYSCALL[7,2](230) sys_clock_nanosleep( 11, 1, 0x4de68a0, 0x0 ) --> [async] ...\n\
                   SYSCALL[7,2](46) sys_sendmsg ( 6, 0x4035370, 0 ) --> [async] ... \n";
        let seen = frames(log.lines().map(str::to_owned));
        assert_eq!(seen, [[3, 2], [2, 2]]);
        assert_eq!(middle(&[[9, 1], [1, 2], [5, 3]]), Some([5, 2]));
        assert_eq!(middle(&[]), None);
    }
}
