// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the laboratory's kernel is configured with, and whether a kernel has it.

use std::fmt;

/// The configuration that is asked for; also what the kernel's build is given.
pub const FRAGMENT: &str = include_str!("kernel.config");

/// A kernel's version, as far as features depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Series {
    major: u32,
    minor: u32,
}

impl Series {
    /// From text that begins like `6.12`.
    pub fn parse(text: &str) -> Option<Series> {
        let (major, rest) = text.split_once('.')?;
        let minor: String = rest.chars().take_while(char::is_ascii_digit).collect();
        Some(Series { major: major.parse().ok()?, minor: minor.parse().ok()? })
    }
}

impl fmt::Display for Series {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The symbols that a kernel of this series must have, with their values.
fn wanted(series: Series) -> Vec<(&'static str, &'static str)> {
    let mut since = None;
    let mut symbols = Vec::new();
    for line in FRAGMENT.lines() {
        if let Some(version) = line.strip_prefix("# since ") {
            since = Series::parse(version);
        }
        let symbol = line.strip_prefix("CONFIG_").and_then(|line| line.split_once('='));
        symbols.extend(symbol.filter(|_| since.is_none_or(|since| series >= since)));
    }
    symbols
}

/// The symbols of [`FRAGMENT`] that a kernel's configuration does not have as they are asked for.
pub fn missing(series: Series, configuration: &str) -> Vec<String> {
    let has = |symbol: &str, value: &str| {
        let lines = configuration.lines().filter_map(|line| line.strip_prefix("CONFIG_"));
        let mut found = lines.filter_map(|line| line.split_once('='));
        found.any(|(name, is)| name == symbol && is == value)
    };
    let wanted = wanted(series).into_iter();
    wanted
        .filter(|(name, value)| !has(name, value))
        .map(|(name, _)| format!("CONFIG_{name}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_a_series_is_read_from_any_version() {
        for (text, shown) in [("6.12", "6.12"), ("6.12.117-1~deb12u1", "6.12"), ("6.1um4", "6.1")] {
            assert_eq!(Series::parse(text).unwrap().to_string(), shown);
        }
        assert!(Series::parse("6").is_none() && Series::parse("six.1").is_none());
        assert!(Series::parse("6.12") > Series::parse("6.2"));
    }

    #[test]
    fn t0_what_a_kernel_lacks_is_named() {
        let (old, new) = (Series::parse("6.1").unwrap(), Series::parse("6.12").unwrap());
        let all: String = wanted(new).iter().map(|(n, v)| format!("CONFIG_{n}={v}\n")).collect();
        assert_eq!(missing(new, &all), Vec::<String>::new());
        let without =
            all.replace("CONFIG_NET_SCH_TAPRIO=y\n", "# CONFIG_NET_SCH_TAPRIO is not set\n");
        assert_eq!(missing(new, &without), ["CONFIG_NET_SCH_TAPRIO"]);
        let without = all.replace("CONFIG_PTP_1588_CLOCK_MOCK=y\n", "");
        assert_eq!(missing(new, &without), ["CONFIG_PTP_1588_CLOCK_MOCK"]);
        assert_eq!(missing(old, &without), Vec::<String>::new());
        assert!(wanted(old).contains(&("VIRTIO_NET", "y")));
    }
}
