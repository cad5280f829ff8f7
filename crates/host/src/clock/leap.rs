// SPDX-License-Identifier: Apache-2.0 OR MIT
//! TAI - UTC as the distribution's list of leap seconds has it.

use std::fs;
use std::path::PathBuf;

/// The list of leap seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeapSeconds {
    /// From when (seconds since 1970 UTC) TAI - UTC was how many seconds; ascending.
    changes: Vec<(i64, i32)>,
    /// Until when the list says that it is complete, seconds since 1970 UTC.
    pub expires: Option<i64>,
    /// Where it was read.
    pub source: PathBuf,
}

/// From 1900, where NTP counts from, to 1970.
const NTP_TO_UNIX: i64 = 2_208_988_800;

impl LeapSeconds {
    /// The list of this host, when it has one.
    pub fn of_this_host() -> Option<LeapSeconds> {
        let paths = ["/usr/share/zoneinfo/leap-seconds.list", "/etc/ntp.leap", "/etc/leap-seconds"];
        paths.into_iter().find_map(|path| {
            LeapSeconds::parse(&fs::read_to_string(path).ok()?, PathBuf::from(path))
        })
    }

    /// Reads the list of the format of NIST and IERS: `NTP-SECONDS TAI-UTC # date`, `#@ expiry`.
    /// `None` when a line is neither, or there is no change.
    pub fn parse(text: &str, source: PathBuf) -> Option<LeapSeconds> {
        let (mut changes, mut expires) = (Vec::<(i64, i32)>::new(), None);
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            if let Some(expiry) = line.strip_prefix("#@") {
                expires = Some(expiry.trim().parse::<i64>().ok()?.checked_sub(NTP_TO_UNIX)?);
            } else if !line.starts_with('#') {
                let mut words = line.split('#').next()?.split_whitespace();
                let at = words.next()?.parse::<i64>().ok()?.checked_sub(NTP_TO_UNIX)?;
                let offset = words.next()?.parse().ok()?;
                let in_order = changes.last().is_none_or(|(before, _)| *before < at);
                if words.next().is_some() || !in_order {
                    return None;
                }
                changes.push((at, offset));
            }
        }
        (!changes.is_empty()).then_some(LeapSeconds { changes, expires, source })
    }

    /// TAI - UTC at a time, in seconds; `None` before the list begins.
    pub fn at(&self, utc_s: i64) -> Option<i32> {
        self.changes.iter().rev().find(|(from, _)| *from <= utc_s).map(|(_, offset)| *offset)
    }

    /// Whether the list may lack a change that has come since it was made.
    pub fn is_stale(&self, utc_s: i64) -> bool {
        self.expires.is_some_and(|expires| expires < utc_s)
    }
}

/// What is to be said about the kernel's TAI - UTC; nothing when all is well.
pub fn judge(kernel_s: i32, list: Option<&LeapSeconds>, utc_s: i64) -> Option<String> {
    let right = list.and_then(|list| list.at(utc_s));
    let source = || list.map(|list| list.source.display().to_string()).unwrap_or_default();
    match right {
        Some(right) if right == kernel_s => None,
        Some(right) if kernel_s == 0 => Some(format!(
            "nobody has told the kernel what TAI - UTC is, so its TAI is UTC; by {} it is {right} \
             s: `timewire clock tai --set {right}`",
            source()
        )),
        Some(right) => Some(format!(
            "the kernel has {kernel_s} s for TAI - UTC, and {} has {right} s",
            source()
        )),
        None if kernel_s == 0 => Some(
            "nobody has told the kernel what TAI - UTC is, so its TAI is UTC; this host has no \
             list of leap seconds (package tzdata) to compare with"
                .to_owned(),
        ),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "#  a comment\n#$ 3929093563\n#@ 3943209600\n\
        2272060800 10 # 1 Jan 1972\n3644697600\t36\t# 1 Jul 2015\n3692217600 37 # 1 Jan 2017\n";

    fn list() -> LeapSeconds {
        LeapSeconds::parse(LIST, PathBuf::from("/l")).expect("a list")
    }

    #[test]
    fn t0_the_list_says_what_tai_was() {
        let list = list();
        assert_eq!(list.at(1_483_228_799), Some(36));
        assert_eq!(list.at(1_483_228_800), Some(37));
        assert_eq!(list.at(0), None);
        assert!(!list.is_stale(1_700_000_000) && list.is_stale(1_800_000_000));
        for bad in ["", "# only\n", "1 2 3\n", "x 1\n", "9 1\n8 2\n", "#@ x\n1 1\n"] {
            assert_eq!(LeapSeconds::parse(bad, PathBuf::new()), None, "{bad:?}");
        }
    }

    #[test]
    fn t0_only_what_is_wrong_is_said() {
        let list = list();
        let now = 1_700_000_000;
        assert_eq!(judge(37, Some(&list), now), None);
        assert_eq!(judge(37, None, now), None);
        assert!(judge(0, Some(&list), now).unwrap().contains("--set 37"));
        assert!(judge(35, Some(&list), now).unwrap().contains("has 37 s"));
        assert!(judge(0, None, now).unwrap().contains("tzdata"));
    }

    #[test]
    fn t1_the_list_of_this_host_is_read() {
        let Some(list) = LeapSeconds::of_this_host() else {
            eprintln!("SKIP: this host has no list of leap seconds");
            return;
        };
        assert_eq!(list.at(1_600_000_000), Some(37));
    }
}
