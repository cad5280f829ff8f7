// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Takes out of every answer what tells one host from others of its kind: addresses and parameters
//! of the kernel that have nothing to do with timing. The same address becomes the same
//! replacement everywhere, so that what belongs together still does.
//!
//! Names of interfaces stay, but for those that udev makes of an address, such as
//! `enx525400abcdef`: what is asked about the replacement is asked about the interface.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use serde_json::Value;
use timewire_base::IfName;
use timewire_base::wire::MacAddress;

use super::{Output, Question, Source};
use crate::snapshot::Reading;

/// A source whose answers are those of another, without what tells hosts apart.
#[derive(Debug)]
pub struct Redacting<S> {
    source: S,
    known: RefCell<Replacements>,
}

impl<S: Source> Redacting<S> {
    /// Redacts the answers of this source.
    pub fn new(source: S) -> Redacting<S> {
        Redacting { source, known: RefCell::default() }
    }

    /// The name by which an interface stands in the answers.
    pub fn name(&self, interface: &IfName) -> IfName {
        let name = self.known.borrow_mut().name(interface.as_str());
        IfName::new(&name).expect("invariant: a replacement is as long as the name")
    }

    /// A text as it would stand in an answer.
    pub fn text(&self, text: &str) -> String {
        self.known.borrow_mut().in_text(text)
    }

    fn names(&self, text: &str) -> String {
        self.known.borrow_mut().names_in(text)
    }

    /// What is asked of the host when this is asked here.
    fn asked(&self, text: &str) -> String {
        self.known.borrow().asked(text)
    }

    fn value(&self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(&text)),
            Value::Array(list) => list.into_iter().map(|value| self.value(value)).collect(),
            Value::Object(map) => {
                map.into_iter().map(|(key, value)| (key, self.value(value))).collect()
            }
            other => other,
        }
    }
}

impl<S: Source> Source for Redacting<S> {
    fn read(&self, path: &str) -> Reading<String> {
        let text = self.source.read(&self.asked(path));
        match path {
            "/proc/cmdline" => text.map(|text| of_timing(&text)),
            "/proc/cpuinfo" => text.map(|text| without_host(&text)),
            "/proc/self/cgroup" => text.map(|text| of_cpu(&text)),
            _ => text.map(|text| self.text(&text)),
        }
    }

    fn list(&self, path: &str) -> Reading<Vec<String>> {
        let names = self.source.list(&self.asked(path));
        names.map(|names| names.iter().map(|name| self.names(name)).collect())
    }

    fn link(&self, path: &str) -> Reading<String> {
        self.source.link(&self.asked(path)).map(|path| self.names(&path))
    }

    fn run(&self, words: &[&str]) -> Reading<Output> {
        let words: Vec<String> = words.iter().map(|word| self.asked(word)).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        self.source.run(&words).map(|output| Output {
            stdout: self.text(&output.stdout),
            stderr: self.text(&output.stderr),
            ..output
        })
    }

    fn ask(&self, question: Question<'_>) -> Reading<Value> {
        let asked = |interface: &str| self.asked(interface);
        let answer = match question {
            Question::TimestampFilters(name) => {
                self.source.ask(Question::TimestampFilters(&asked(name)))
            }
            Question::Polls(name) => self.source.ask(Question::Polls(&asked(name))),
            Question::TcxPrograms(name) => self.source.ask(Question::TcxPrograms(&asked(name))),
            Question::MacMerge(name) => self.source.ask(Question::MacMerge(&asked(name))),
            other => self.source.ask(other),
        };
        answer.map(|value| self.value(value))
    }
}

/// Parameters of the kernel that timing depends on, up to `=` or the first dot.
const OF_TIMING: [&str; 32] = [
    "isolcpus",
    "nohz_full",
    "nohz",
    "rcu_nocbs",
    "rcu_nocb_poll",
    "rcutree",
    "rcupdate",
    "irqaffinity",
    "threadirqs",
    "kthread_cpus",
    "processor",
    "intel_idle",
    "intel_pstate",
    "amd_pstate",
    "cpuidle",
    "cpuidle_haltpoll",
    "idle",
    "nosmt",
    "mitigations",
    "clocksource",
    "tsc",
    "hpet",
    "nowatchdog",
    "nmi_watchdog",
    "nosoftlockup",
    "skew_tick",
    "preempt",
    "transparent_hugepage",
    "pcie_aspm",
    "noapic",
    "time-travel",
    "lockdown",
];

/// The words of a command line that timing depends on; the others become `...`.
fn of_timing(command_line: &str) -> String {
    let mut words: Vec<&str> = Vec::new();
    for word in command_line.split_ascii_whitespace() {
        let end = word.find(['=', '.']).unwrap_or(word.len());
        let shown = if OF_TIMING.contains(&&word[..end]) { word } else { "..." };
        if shown != "..." || words.last() != Some(&"...") {
            words.push(shown);
        }
    }
    words.join(" ")
}

/// A kernel that runs as a program says what host it runs on, and some boards their number.
fn without_host(info: &str) -> String {
    let is_of_host = |line: &&str| {
        let key = line.split(':').next().unwrap_or_default().trim();
        key == "host" || key.eq_ignore_ascii_case("serial")
    };
    info.lines().filter(|line| !is_of_host(line)).collect::<Vec<_>>().join("\n")
}

/// The control group that schedules; the others' paths name services.
fn of_cpu(groups: &str) -> String {
    let schedules = |line: &&str| {
        let controllers = line.split(':').nth(1).unwrap_or_default();
        controllers.split(',').any(|controller| controller == "cpu")
    };
    groups.lines().filter(schedules).collect::<Vec<_>>().join("\n")
}

/// What stands for what, by kind of address.
#[derive(Debug, Default)]
struct Replacements {
    macs: BTreeMap<String, String>,
    v4: BTreeMap<Ipv4Addr, String>,
    v6: BTreeMap<Ipv6Addr, String>,
    /// Names that were made of addresses.
    names: BTreeMap<String, String>,
}

impl Replacements {
    /// Restores the names that this replaced.
    fn asked(&self, text: &str) -> String {
        let back = |text: String, (real, shown): (&String, &String)| text.replace(shown, real);
        self.names.iter().fold(text.to_owned(), back)
    }

    fn names_in(&mut self, text: &str) -> String {
        let words = text.split_inclusive('/').map(|word| self.name(word));
        words.collect()
    }

    /// A word that begins with such a name, or with as much of a known one as a thread has in its
    /// own name.
    fn name(&mut self, word: &str) -> String {
        let Some(kind) = ["enx", "wlx", "wwx"].into_iter().find(|kind| word.starts_with(kind))
        else {
            return word.to_owned();
        };
        let is_hex = |b: &u8| b.is_ascii_digit() || (b'a'..=b'f').contains(b);
        let digits = word.bytes().skip(kind.len()).take(12).take_while(is_hex).count();
        let (name, rest) = word.split_at(kind.len() + digits);
        if digits == 12 {
            let shown = format!("{kind}{}", self.digits(&name[kind.len()..]));
            if shown != name {
                self.names.insert(name.to_owned(), shown.clone());
            }
            return format!("{shown}{rest}");
        }
        let known = self.names.iter().find(|(real, _)| digits > 0 && real.starts_with(name));
        match known {
            Some((_, shown)) => format!("{}{rest}", &shown[..name.len()]),
            None => word.to_owned(),
        }
    }

    fn in_text(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        let belongs = |c: char| c.is_ascii_alphanumeric() || matches!(c, ':' | '.' | '_' | '-');
        while let Some(start) = rest.find(belongs) {
            out.push_str(&rest[..start]);
            let word = &rest[start..];
            let end = word.find(|c| !belongs(c)).unwrap_or(word.len());
            out.push_str(&self.word(&word[..end]));
            rest = &word[end..];
        }
        out.push_str(rest);
        out
    }

    /// Twelve digits that may be an address.
    fn digits(&mut self, digits: &str) -> String {
        let pairs: Vec<&str> = (0..6).map(|at| &digits[2 * at..2 * at + 2]).collect();
        let mac = pairs.join(":");
        if is_mac(&mac) { self.word(&mac).replace(':', "") } else { digits.to_owned() }
    }

    fn word(&mut self, word: &str) -> String {
        // `Src MAC addr:` and sentences end in marks that are no part of an address.
        let bare = word.trim_end_matches(['.', ':']);
        let end = &word[bare.len()..];
        if is_mac(bare) {
            let number = self.macs.len() + 1;
            let [.., high, low] = number.to_be_bytes();
            let fresh = || MacAddress([2, 0, 0, 0, high, low]).to_string();
            let mac = self.macs.entry(bare.to_ascii_lowercase()).or_insert_with(fresh);
            return format!("{mac}{end}");
        }
        let named = self.name(bare);
        if named != bare {
            return format!("{named}{end}");
        }
        // Some drivers name a clock for the address of its NIC.
        let of_digits = |is: fn(&u8) -> bool| bare.bytes().all(|b| is(&b));
        if bare.len() == 12 && of_digits(u8::is_ascii_hexdigit) && !of_digits(u8::is_ascii_digit) {
            return format!("{}{end}", self.digits(bare));
        }
        if let Some(address) = bare.parse::<Ipv4Addr>().ok().filter(|a| tells_a_host(*a)) {
            let number = self.v4.len() + 1;
            let fresh = || format!("198.18.{}.{}", number / 256, number % 256);
            return format!("{}{end}", self.v4.entry(address).or_insert_with(fresh));
        }
        if let Some(address) = word.parse::<Ipv6Addr>().ok().filter(|a| is_of_a_host(*a)) {
            let number = self.v6.len() + 1;
            let net = if address.segments()[0] == 0xfe80 { "fe80::" } else { "2001:db8::" };
            return self.v6.entry(address).or_insert_with(|| format!("{net}{number:x}")).clone();
        }
        word.to_owned()
    }
}

/// Neither nothing, nor a group: those are the same everywhere.
fn is_mac(word: &str) -> bool {
    word.parse().is_ok_and(MacAddress::is_of_one_station)
}

fn tells_a_host(address: Ipv4Addr) -> bool {
    let [first, .., last] = address.octets();
    let is_mask = first == 255 && (last == 0 || last == 255);
    !(address.is_loopback() || address.is_multicast() || first == 0 || is_mask)
}

/// Global, local or of one link. `fe80::` alone is no address, and the names of some filters of
/// `tc` only look like one.
fn is_of_a_host(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    let kind = segments[0];
    let of_a_host = kind & 0xe000 == 0x2000 || kind & 0xfe00 == 0xfc00 || kind & 0xffc0 == 0xfe80;
    of_a_host && segments[1..].iter().any(|segment| *segment != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_addresses_are_replaced_by_the_same_everywhere() {
        let mut known = Replacements::default();
        let text =
            "link/ether 52:54:00:ab:cd:ef brd ff:ff:ff:ff:ff:ff inet 10.1.2.3/24 lo 127.0.0.1";
        let expected =
            "link/ether 02:00:00:00:00:01 brd ff:ff:ff:ff:ff:ff inet 198.18.0.1/24 lo 127.0.0.1";
        assert_eq!(known.in_text(text), expected);
        assert_eq!(known.in_text("\"52:54:00:AB:CD:EF\","), "\"02:00:00:00:00:01\",");
        assert_eq!(known.in_text("525400abcdef"), "020000000001");
        assert_eq!(known.in_text("fe80::5054:ff:feab:cdef/64"), "fe80::1/64");
        assert_eq!(
            known.in_text("2a01:1:2::3 ::1 ff02::1 fe80::"),
            "2001:db8::2 ::1 ff02::1 fe80::"
        );
    }

    #[test]
    fn t0_names_that_are_addresses_are_replaced_and_asked_about() {
        let mut known = Replacements::default();
        let text = "2: enx525400abcdef: <UP> link/ether 52:54:00:ab:cd:ef, wlan0, enxabc";
        let expected = "2: enx020000000001: <UP> link/ether 02:00:00:00:00:01, wlan0, enxabc";
        assert_eq!(known.in_text(text), expected);
        assert_eq!(known.in_text("napi/enx525400abcdef-8193"), "napi/enx020000000001-8193");
        assert_eq!(known.in_text("enx002233445566"), "enx020000000002");
        assert_eq!(known.in_text("napi/enx525400ab"), "napi/enx02000000");
        assert_eq!(known.names_in("../../net/enx525400abcdef/x"), "../../net/enx020000000001/x");
        let asked = "/sys/class/net/enx020000000001/mtu";
        assert_eq!(known.asked(asked), "/sys/class/net/enx525400abcdef/mtu");
    }

    #[test]
    fn t0_what_only_looks_like_an_address_stays() {
        let mut known = Replacements::default();
        for text in [
            "6.1.0-18-amd64",
            "3.16, 0x800004ff",
            "0000:01:00.0",
            "handle 8001: parent 1:2",
            "00:00:00:00:00:00",
            "255.255.255.0",
            "100:",
            "a:b",
            "version 1.2.3",
            "12:30:59",
            "01:1b:19:00:00:00",
            "\"fh\":\"800::800\"",
        ] {
            assert_eq!(known.in_text(text), text);
        }
    }

    #[test]
    fn t0_of_a_command_line_the_parameters_of_timing_stay() {
        let line = "BOOT_IMAGE=/vmlinuz root=UUID=1 isolcpus=2-3 processor.max_cstate=1 quiet";
        assert_eq!(of_timing(line), "... isolcpus=2-3 processor.max_cstate=1 ...");
        assert_eq!(of_timing(""), "");
        assert_eq!(without_host("vendor_id\t: UML\nhost\t\t: Linux vm"), "vendor_id\t: UML");
        assert_eq!(without_host("Model\t: B\nSerial\t\t: 10000000abcdef01"), "Model\t: B");
        let groups = "4:memory:/service\n2:cpu,cpuacct:/a\n0::/b";
        assert_eq!(of_cpu(groups), "2:cpu,cpuacct:/a");
    }
}
