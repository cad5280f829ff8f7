// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Single values that only scenarios have: names, texts, counts, shares, an address with its
//! prefix.

use std::fmt;
use std::net::Ipv4Addr;

use serde_json::{Value as Json, json};
use timewire_base::{Span, parse_bytes, parse_span};

use super::item::{Item, Reader};
use super::tree::Node;

/// The name of a scenario, stream, load, case or limit; safe as part of a file name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

impl Name {
    /// Checks the text; `None` when it is not 1 to 48 characters of `a-z`, `0-9`, `-` and `_`,
    /// starting with a letter.
    pub fn new(text: &str) -> Option<Name> {
        let first = text.starts_with(|c: char| c.is_ascii_lowercase());
        let allowed =
            |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
        (first && text.len() <= 48 && text.chars().all(allowed)).then(|| Name(text.to_owned()))
    }

    /// The name of a limit of one of several networks; `None` as of [`Name::new`].
    pub(super) fn of_limit(case: &str, load: &str, id: &str) -> Option<Name> {
        Name::new(id).map(|id| Name(format!("{case}/{load}/{id}")))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Item for Name {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        let refusal = |text: &str| {
            format!(
                "`{text}` is no name: 1 to 48 characters of a-z, 0-9, `-` and `_`, starting with a \
                 letter"
            )
        };
        reader.checked(node, "a name", "", |text| Name::new(text).ok_or_else(|| refusal(text)))
    }
    fn emit(&self) -> Option<Json> {
        Some(json!(self.0))
    }
    fn schema() -> Json {
        json!({"type": "string", "pattern": "^[a-z][a-z0-9_-]{0,47}$"})
    }
}

/// Text for people, of any number of lines, without other control characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text(String);

impl Text {
    /// The text of a name.
    pub(super) fn of(name: &Name) -> Text {
        Text(name.0.clone())
    }

    /// One that was read before.
    pub(super) fn like(text: &str) -> Text {
        Text(text.to_owned())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Item for Text {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        reader.checked(node, "text", "write it without", |text| {
            match text.chars().find(|&c| c.is_control() && c != '\n') {
                None => Ok(Text(text.to_owned())),
                Some(c) => Err(format!("the text contains the control character {c:?}")),
            }
        })
    }
    fn emit(&self) -> Option<Json> {
        Some(json!(self.0))
    }
    fn schema() -> Json {
        json!({"type": "string"})
    }
}

/// A text for programs, such as a word of a command: a number is taken as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word(Text);

impl Word {
    /// The text.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Item for Word {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        Text::read(node, reader).map(Word)
    }
    fn emit(&self) -> Option<Json> {
        self.0.emit()
    }
    fn schema() -> Json {
        json!({"type": ["string", "number", "boolean"]})
    }
}

/// A number of bytes, at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteCount(u32);

impl ByteCount {
    /// **Units**: bytes.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for ByteCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}B", self.0)
    }
}

impl Item for ByteCount {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        let bytes = reader.checked(node, "a length such as 64B", "", parse_bytes)?;
        if bytes == 0 {
            reader.fail(node.mark, "0B is no length of a message".into(), "write at least 1B");
            return None;
        }
        Some(ByteCount(bytes))
    }
    fn emit(&self) -> Option<Json> {
        Some(json!(self.to_string()))
    }
    fn schema() -> Json {
        json!({"type": "string", "pattern": "^[0-9][0-9_]*(\\.[0-9]+)? *(B|kB|KiB)$"})
    }
}

/// A whole number from `MIN` to `MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Count<const MIN: u64, const MAX: u64>(u64);

impl<const MIN: u64, const MAX: u64> Count<MIN, MAX> {
    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The nearest number from `MIN` to `MAX`.
    pub(super) fn clamped(number: u64) -> Self {
        Count(number.clamp(MIN, MAX))
    }
}

impl<const MIN: u64, const MAX: u64> Item for Count<MIN, MAX> {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        reader.integer_within(node, MIN, MAX).map(Count)
    }
    fn emit(&self) -> Option<Json> {
        Some(json!(self.0))
    }
    fn schema() -> Json {
        schema_of_count(MIN, MAX)
    }
}

fn schema_of_count(min: u64, max: u64) -> Json {
    json!({"type": "integer", "minimum": min, "maximum": max})
}

/// The version of the file format that this program reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FormatVersion(());

impl FormatVersion {
    /// The number in the file.
    pub const NUMBER: u64 = 1;
}

impl Item for FormatVersion {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        let number = reader.integer(node, "the version of the file format, 1")?;
        if number != Self::NUMBER {
            let message = format!("the file format {number} is not known: this program reads 1");
            reader.fail(
                node.mark,
                message,
                "write `timewire: 1`, or use the program that wrote it",
            );
            return None;
        }
        Some(FormatVersion(()))
    }
    fn emit(&self) -> Option<Json> {
        Some(json!(Self::NUMBER))
    }
    fn schema() -> Json {
        json!({"const": Self::NUMBER})
    }
}

/// An IPv4 address of a host and the length of its subnet's prefix, `10.77.0.1/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ipv4Prefix {
    address: Ipv4Addr,
    prefix_bits: u8,
}

impl Ipv4Prefix {
    /// The address of the host.
    pub fn address(self) -> Ipv4Addr {
        self.address
    }

    /// Length of the prefix, 1 to 30 bits.
    pub fn prefix_bits(self) -> u8 {
        self.prefix_bits
    }

    /// First address of the subnet.
    pub fn network(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.address.to_bits() & self.mask())
    }

    /// Last address of the subnet.
    pub fn broadcast(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.address.to_bits() | !self.mask())
    }

    fn mask(self) -> u32 {
        u32::MAX << (32 - u32::from(self.prefix_bits))
    }

    pub(super) fn parse(text: &str) -> Result<Ipv4Prefix, String> {
        let no_address =
            || format!("`{text}` is no IPv4 address with a prefix, such as 10.77.0.1/24");
        let (address, prefix) = text.split_once('/').ok_or_else(no_address)?;
        let address: Ipv4Addr = address.parse().map_err(|_| no_address())?;
        let prefix_bits = prefix.parse::<u8>().ok().filter(|bits| (1..=30).contains(bits));
        let prefix_bits = prefix_bits
            .ok_or_else(|| format!("`{text}` has the prefix /{prefix}: it goes from /1 to /30"))?;
        let parsed = Ipv4Prefix { address, prefix_bits };
        let no_host = |what: &str| Err(format!("{address} is {what}, no address of a host"));
        if address == parsed.network() {
            return no_host("the network itself");
        }
        if address == parsed.broadcast() {
            return no_host("the broadcast address");
        }
        if address.is_loopback() || address.is_multicast() || address.octets()[0] == 0 {
            return no_host("a special address");
        }
        Ok(parsed)
    }
}

impl fmt::Display for Ipv4Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_bits)
    }
}

impl Item for Ipv4Prefix {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        reader.checked(node, "an IPv4 address with a prefix, such as 10.77.0.1/24", "", Self::parse)
    }
    fn emit(&self) -> Option<Json> {
        Some(json!(self.to_string()))
    }
    fn schema() -> Json {
        json!({"type": "string", "pattern": "^[0-9]{1,3}(\\.[0-9]{1,3}){3}/[0-9]{1,2}$"})
    }
}

/// A share or a ratio.
///
/// **Units**: parts per million.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ppm(u64);

impl Ppm {
    /// **Units**: parts per million.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Whether `part` is at most this share of `whole`; exact.
    pub fn allows(self, part: u64, whole: u64) -> bool {
        u128::from(part) * 1_000_000 <= u128::from(self.0) * u128::from(whole)
    }
}

/// How many frames a queue takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capacity {
    /// At most so many wait.
    Frames(u32),
    /// Any number.
    Unbounded,
}

impl Capacity {
    const MAX: u64 = 1_000_000;
    const UNBOUNDED: &str = "unbounded";

    /// Most frames that wait; `None` when there is no bound.
    pub fn frames(self) -> Option<u32> {
        match self {
            Capacity::Frames(frames) => Some(frames),
            Capacity::Unbounded => None,
        }
    }
}

impl Item for Capacity {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        let wanted = format!("a whole number, 1 to {}, or `{}`", Self::MAX, Self::UNBOUNDED);
        let text = reader.scalar(node, &wanted)?;
        if text == Self::UNBOUNDED {
            return Some(Capacity::Unbounded);
        }
        let number = reader.integer(node, &wanted)?;
        if !(1..=Self::MAX).contains(&number) {
            reader.fail(node.mark, format!("{number} is not {wanted}"), "");
            return None;
        }
        u32::try_from(number).ok().map(Capacity::Frames)
    }
    fn emit(&self) -> Option<Json> {
        Some(match self {
            Capacity::Frames(frames) => json!(frames),
            Capacity::Unbounded => json!(Self::UNBOUNDED),
        })
    }
    fn schema() -> Json {
        json!({"anyOf": [schema_of_count(1, Self::MAX), {"const": Self::UNBOUNDED}]})
    }
}

/// The largest good value of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtMost {
    /// A time.
    Time(Span),
    /// A share of all messages or frames.
    Share(Ppm),
    /// A multiple of the value that the limit is relative to.
    Ratio(Ppm),
}

impl fmt::Display for AtMost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AtMost::Time(span) => span.fmt(f),
            AtMost::Share(ppm) => write!(f, "{}%", decimal_text(ppm.0, 4)),
            AtMost::Ratio(ppm) => f.write_str(&decimal_text(ppm.0, 6)),
        }
    }
}

impl AtMost {
    fn parse(text: &str) -> Result<AtMost, String> {
        let too_fine = || format!("`{text}` is finer than a millionth, or too large");
        let is_number = |text: &str| {
            text.starts_with(|c: char| c.is_ascii_digit())
                && text.chars().all(|c| c.is_ascii_digit() || c == '.')
        };
        if let Some(percent) = text.strip_suffix('%').map(str::trim_end).filter(|p| is_number(p)) {
            let ppm = decimal(percent, 4).ok_or_else(too_fine)?;
            if ppm > 1_000_000 {
                return Err(format!("`{text}` is more than everything: a share is at most 100%"));
            }
            return Ok(AtMost::Share(Ppm(ppm)));
        }
        if is_number(text) {
            return decimal(text, 6).map(|ppm| AtMost::Ratio(Ppm(ppm))).ok_or_else(too_fine);
        }
        match parse_span(text) {
            Ok(span) if !span.is_negative() => Ok(AtMost::Time(span)),
            _ => Err(format!(
                "`{text}` is neither a time such as 1040us, nor a share such as 0.1%, nor a ratio \
                 such as 0.5"
            )),
        }
    }
}

impl Item for AtMost {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        reader.checked(node, "a time, a share or a ratio", "", Self::parse)
    }
    fn emit(&self) -> Option<Json> {
        Some(json!(self.to_string()))
    }
    fn schema() -> Json {
        let pattern = "^[0-9][0-9_]*(\\.[0-9]+)? *(ns|us|µs|ms|s|%)?$";
        json!({"anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": pattern}]})
    }
}

/// `text * 10^shift` when that is a whole number of at most 15 digits.
pub(super) fn decimal(text: &str, shift: usize) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let fraction_digits = fraction.trim_end_matches('0');
    if fraction.is_empty() || fraction_digits.len() > shift || whole.len() + shift > 15 {
        return None;
    }
    format!("{whole}{fraction_digits:0<shift$}").parse().ok()
}

/// The inverse of [`decimal`].
pub(super) fn decimal_text(value: u64, shift: u32) -> String {
    let scale = 10_u64.pow(shift);
    let width = usize::try_from(shift).expect("invariant: 4 or 6");
    let digits = format!("{}.{:0width$}", value / scale, value % scale);
    digits.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A time that may be negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offset(pub Span);

/// How much too fast a clock goes.
///
/// **Units**: parts per billion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drift(pub i32);

/// A share of frames.
///
/// **Units**: parts per billion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LossShare(pub u32);

impl Item for Offset {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        const LONGEST: Span = Span::from_secs(366 * 86_400);
        reader.checked(node, "a time such as 5us or -5us", "", |text| {
            let span = parse_span(text).map_err(|error| error.to_string())?;
            match span {
                span if span <= LONGEST && span >= -LONGEST => Ok(Offset(span)),
                _ => Err(format!("{span} is more than a year")),
            }
        })
    }
    fn emit(&self) -> Option<Json> {
        Some(json!(self.0.to_string()))
    }
    fn schema() -> Json {
        json!({"type": "string", "pattern": "^-?[0-9][0-9_]*(\\.[0-9]+)? *(ns|us|µs|ms|s)$"})
    }
}

impl Drift {
    /// The largest, either way: a tenth of a second per second.
    const MAX_PPB: u64 = 100_000_000;

    fn parse(text: &str) -> Result<Drift, String> {
        let refused = || format!("`{text}` is no drift of a clock, such as 20ppm or -150ppb");
        let (number, negative) = match text.strip_prefix('-') {
            Some(number) => (number, true),
            None => (text, false),
        };
        let (number, shift) = match (number.strip_suffix("ppm"), number.strip_suffix("ppb")) {
            (Some(number), _) => (number, 3),
            (_, Some(number)) => (number, 0),
            _ => return Err(refused()),
        };
        let is_number = number.starts_with(|c: char| c.is_ascii_digit())
            && number.chars().all(|c| c.is_ascii_digit() || c == '.');
        let ppb = decimal(number, shift).filter(|_| is_number).ok_or_else(refused)?;
        match i32::try_from(ppb) {
            Ok(ppb) if u64::from(ppb.unsigned_abs()) <= Self::MAX_PPB => {
                Ok(Drift(if negative { -ppb } else { ppb }))
            }
            _ => Err(format!("`{text}` is more than 100000ppm")),
        }
    }

    fn text(self) -> String {
        let sign = if self.0 < 0 { "-" } else { "" };
        format!("{sign}{}ppm", decimal_text(self.0.unsigned_abs().into(), 3))
    }
}

impl Item for Drift {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        reader.checked(node, "a drift such as 20ppm", "", Self::parse)
    }
    fn emit(&self) -> Option<Json> {
        Some(json!(self.text()))
    }
    fn schema() -> Json {
        json!({"type": "string", "pattern": "^-?[0-9]+(\\.[0-9]+)?(ppm|ppb)$"})
    }
}

impl LossShare {
    fn parse(text: &str) -> Result<LossShare, String> {
        let refused = || format!("`{text}` is no share of frames, such as 0.1%");
        let percent = text.strip_suffix('%').ok_or_else(refused)?;
        let is_number = percent.starts_with(|c: char| c.is_ascii_digit());
        let ppb = decimal(percent, 7).filter(|_| is_number).ok_or_else(refused)?;
        match u32::try_from(ppb) {
            Ok(ppb) if ppb <= 1_000_000_000 => Ok(LossShare(ppb)),
            _ => Err(format!("`{text}` is more than everything: a share is at most 100%")),
        }
    }
}

impl Item for LossShare {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        reader.checked(node, "a share such as 0.1%", "", Self::parse)
    }
    fn emit(&self) -> Option<Json> {
        Some(json!(format!("{}%", decimal_text(self.0.into(), 7))))
    }
    fn schema() -> Json {
        json!({"type": "string", "pattern": "^[0-9]+(\\.[0-9]+)?%$"})
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn t0_drifts_and_losses_are_read_in_their_units() {
        for (text, ppb) in [("20.5ppm", 20_500), ("-3ppb", -3), ("100000ppm", 100_000_000)] {
            assert_eq!(Drift::parse(text), Ok(Drift(ppb)), "{text}");
            assert_eq!(Drift::parse(&Drift(ppb).text()), Ok(Drift(ppb)), "{text}");
        }
        for (bad, why) in [
            ("20.5", "`20.5` is no drift of a clock"),
            ("ppm", "is no drift of a clock"),
            ("--3ppm", "is no drift of a clock"),
            ("0.0001ppm", "is no drift of a clock"),
            ("200000ppm", "is more than 100000ppm"),
        ] {
            assert!(Drift::parse(bad).unwrap_err().contains(why), "{bad}");
        }
        assert_eq!(LossShare::parse("0.5%"), Ok(LossShare(5_000_000)));
        assert_eq!(LossShare::parse("100%"), Ok(LossShare(1_000_000_000)));
        for (bad, why) in [("101%", "is more than everything"), ("0.5", "is no share of frames")] {
            assert!(LossShare::parse(bad).unwrap_err().contains(why), "{bad}");
        }
    }

    #[test]
    fn t0_limits_are_read_by_their_unit() {
        let cases = [
            ("1040us", AtMost::Time(Span::from_us(1_040))),
            ("0.1%", AtMost::Share(Ppm(1_000))),
            ("100%", AtMost::Share(Ppm(1_000_000))),
            ("0.5", AtMost::Ratio(Ppm(500_000))),
            ("2", AtMost::Ratio(Ppm(2_000_000))),
            ("0.000001", AtMost::Ratio(Ppm(1))),
        ];
        for (text, value) in cases {
            assert_eq!(AtMost::parse(text), Ok(value), "{text}");
            assert_eq!(value.to_string(), text);
        }
        for bad in ["", "%", "101%", "0.00001%", "0.0000001", "1.2.3", "1.", ".5", "-1us", "5GB"] {
            assert!(AtMost::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn t0_a_share_is_compared_exactly() {
        let share = Ppm(1_000);
        assert!(share.allows(1, 1_000) && !share.allows(1_001, 1_000_000));
        assert!(share.allows(0, 0) && !share.allows(1, 0));
        assert!(Ppm(u64::MAX).allows(u64::MAX, u64::MAX));
    }

    #[test]
    fn t0_addresses_of_hosts_only() {
        let good = Ipv4Prefix::parse("10.77.3.1/22").unwrap();
        assert_eq!(good.network().to_string(), "10.77.0.0");
        assert_eq!(good.broadcast().to_string(), "10.77.3.255");
        assert_eq!(good.to_string(), "10.77.3.1/22");
        let bad = [
            "10.77.0.1",
            "10.77.0.1/",
            "10.77.0.1/0",
            "10.77.0.1/31",
            "10.77.0.256/24",
            "::1/64",
            "10.77.0.0/24",
            "10.77.0.255/24",
            "127.0.0.1/8",
            "224.0.0.1/24",
            "0.0.0.1/8",
        ];
        for text in bad {
            assert!(Ipv4Prefix::parse(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn t0_any_text_is_a_limit_or_refused(text in "\\PC{0,24}") {
            let _ = (AtMost::parse(&text), Ipv4Prefix::parse(&text));
        }

        #[test]
        fn t0_printed_limits_read_back(ppm in 0_u64..1_000_001) {
            for limit in [AtMost::Share(Ppm(ppm)), AtMost::Ratio(Ppm(ppm))] {
                prop_assert_eq!(AtMost::parse(&limit.to_string()), Ok(limit));
            }
        }
    }
}
