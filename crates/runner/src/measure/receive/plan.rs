// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is varied: sources, ways to wait, rates, and settings of the host, multiplied out, in the
//! order in which they are measured.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;
use timewire_datapath::listen::XdpMode;
use timewire_sys::scheduler::RtPriority;

/// How frames are received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// A UDP socket.
    Udp,
    /// A packet socket.
    Frames,
    /// A packet socket with memory that is shared with the kernel.
    Ring,
    /// AF_XDP.
    Xdp(XdpMode),
}

impl Over {
    /// Every one, by the names that are read and shown.
    pub const ALL: [(&str, Over); 7] = [
        ("udp", Over::Udp),
        ("frames", Over::Frames),
        ("ring", Over::Ring),
        ("xdp", Over::Xdp(XdpMode::Auto)),
        ("xdp:generic", Over::Xdp(XdpMode::Generic)),
        ("xdp:native", Over::Xdp(XdpMode::Native)),
        ("xdp:zero-copy", Over::Xdp(XdpMode::ZeroCopy)),
    ];
}

impl fmt::Display for Over {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(name_in(&Over::ALL, *self))
    }
}

impl FromStr for Over {
    type Err = String;

    fn from_str(text: &str) -> Result<Over, String> {
        named_in(&Over::ALL, text)
    }
}

/// How a receiver waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// It sleeps.
    Block,
    /// It looks again and again.
    Poll,
    /// It has the kernel look at the device again and again, then sleeps.
    Busy,
}

impl Waiting {
    /// Every one, by the names that are read and shown.
    pub const ALL: [(&str, Waiting); 3] =
        [("block", Waiting::Block), ("poll", Waiting::Poll), ("busy", Waiting::Busy)];
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(name_in(&Waiting::ALL, *self))
    }
}

impl FromStr for Waiting {
    type Err = String;

    fn from_str(text: &str) -> Result<Waiting, String> {
        named_in(&Waiting::ALL, text)
    }
}

fn name_in<T: PartialEq>(all: &[(&'static str, T)], one: T) -> &'static str {
    all.iter().find(|(_, it)| *it == one).expect("invariant: the list is complete").0
}

fn named_in<T: Copy>(all: &[(&str, T)], text: &str) -> Result<T, String> {
    all.iter().find(|(name, _)| *name == text).map(|(_, it)| *it).ok_or_else(|| {
        let names: Vec<_> = all.iter().map(|(name, _)| *name).collect();
        format!("`{text}` is none of {}", names.join(", "))
    })
}

/// How a thread is scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// As everything else.
    Other,
    /// `SCHED_FIFO`.
    Fifo(RtPriority),
    /// `SCHED_RR`.
    RoundRobin(RtPriority),
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Policy::Other => f.write_str("other"),
            Policy::Fifo(priority) => write!(f, "fifo:{}", priority.get()),
            Policy::RoundRobin(priority) => write!(f, "rr:{}", priority.get()),
        }
    }
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Policy, String> {
        let priority = |number: &str| number.parse().ok().and_then(RtPriority::new);
        let policy = match text.split_once(':') {
            None if text == "other" => Some(Policy::Other),
            Some(("fifo", number)) => priority(number).map(Policy::Fifo),
            Some(("rr", number)) => priority(number).map(Policy::RoundRobin),
            _ => None,
        };
        policy.ok_or_else(|| format!("`{text}` is no policy: other, fifo:1 to 99, rr:1 to 99"))
    }
}

/// Sockets that are open besides the measured one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OtherSockets {
    /// UDP sockets of other ports: they get nothing.
    pub udp: u32,
    /// Packet sockets of the same interface: each gets every frame.
    pub packet: u32,
}

/// Most of one kind.
const MAX_SOCKETS: u32 = 1_000;

impl fmt::Display for OtherSockets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.udp, self.packet) {
            (0, 0) => f.write_str("0"),
            (udp, 0) => write!(f, "{udp}udp"),
            (0, packet) => write!(f, "{packet}packet"),
            (udp, packet) => write!(f, "{udp}udp+{packet}packet"),
        }
    }
}

impl FromStr for OtherSockets {
    type Err = String;

    fn from_str(text: &str) -> Result<OtherSockets, String> {
        let mut sockets = OtherSockets::default();
        for part in text.split('+').filter(|part| *part != "0") {
            let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
            let (number, kind) = part.split_at(digits);
            let place = match kind {
                "udp" => &mut sockets.udp,
                "packet" => &mut sockets.packet,
                _ => return Err(format!("`{text}`: as 0, 10udp, 100packet, 10udp+5packet")),
            };
            *place =
                number.parse().ok().filter(|count| *count <= MAX_SOCKETS).ok_or_else(|| {
                    format!("`{part}`: a number up to {MAX_SOCKETS} and its kind")
                })?;
        }
        Ok(sockets)
    }
}

/// One setting of the host, or of the receiving thread, and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Frames that one round of the receive interrupt may handle, all interfaces together.
    NetdevBudget(u32),
    /// How long one may take. **Units**: microseconds.
    NetdevBudgetUsecs(u32),
    /// Whether the kernel timestamps a frame before it may hand it to another CPU, or after.
    TstampPrequeue(bool),
    /// The CPUs that the interface's frames are handed to; none: they stay where they came.
    Rps(Vec<u32>),
    /// How busy every CPU is kept by threads in normal scheduling. **Units**: percent.
    Load(u8),
    /// Other sockets.
    Sockets(OtherSockets),
    /// The CPU of the receiving thread.
    Cpu(u32),
    /// How the receiving thread is scheduled.
    Policy(Policy),
}

impl Setting {
    /// The names of all of them.
    pub const KEYS: [&str; 8] = [
        "netdev_budget",
        "netdev_budget_usecs",
        "netdev_tstamp_prequeue",
        "rps",
        "load",
        "sockets",
        "cpu",
        "policy",
    ];

    /// Reads a value.
    ///
    /// **Errors**: in words, with what would be right.
    pub fn parse(key: &str, value: &str) -> Result<Setting, String> {
        let positive = || match value.parse() {
            Ok(number @ 1..=1_000_000) => Ok(number),
            _ => Err(format!("`{value}` is no number of 1 to 1000000")),
        };
        match key {
            "netdev_budget" => positive().map(Setting::NetdevBudget),
            "netdev_budget_usecs" => positive().map(Setting::NetdevBudgetUsecs),
            "netdev_tstamp_prequeue" => match value {
                "0" => Ok(Setting::TstampPrequeue(false)),
                "1" => Ok(Setting::TstampPrequeue(true)),
                _ => Err(format!("`{value}` is neither 0 nor 1")),
            },
            "rps" => cpus(value).map(Setting::Rps),
            "load" => match value.trim_end_matches('%').parse() {
                Ok(percent @ 0..=100) => Ok(Setting::Load(percent)),
                _ => Err(format!("`{value}` is no percentage")),
            },
            "sockets" => value.parse().map(Setting::Sockets),
            "cpu" => match value.parse() {
                Ok(cpu @ 0..=8_191) => Ok(Setting::Cpu(cpu)),
                _ => Err(format!("`{value}` is no CPU")),
            },
            "policy" => value.parse().map(Setting::Policy),
            _ => Err(format!("`{key}` is none of {}", Setting::KEYS.join(", "))),
        }
    }

    /// Its name.
    pub fn key(&self) -> &'static str {
        let index = match self {
            Setting::NetdevBudget(_) => 0,
            Setting::NetdevBudgetUsecs(_) => 1,
            Setting::TstampPrequeue(_) => 2,
            Setting::Rps(_) => 3,
            Setting::Load(_) => 4,
            Setting::Sockets(_) => 5,
            Setting::Cpu(_) => 6,
            Setting::Policy(_) => 7,
        };
        Setting::KEYS[index]
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Setting::NetdevBudget(number)
            | Setting::NetdevBudgetUsecs(number)
            | Setting::Cpu(number) => write!(f, "{number}"),
            Setting::TstampPrequeue(is_on) => write!(f, "{}", u8::from(*is_on)),
            Setting::Rps(cpus) if cpus.is_empty() => f.write_str("off"),
            Setting::Rps(cpus) => {
                let cpus: Vec<_> = cpus.iter().map(u32::to_string).collect();
                f.write_str(&cpus.join("+"))
            }
            Setting::Load(percent) => write!(f, "{percent}"),
            Setting::Sockets(sockets) => write!(f, "{sockets}"),
            Setting::Policy(policy) => write!(f, "{policy}"),
        }
    }
}

fn cpus(text: &str) -> Result<Vec<u32>, String> {
    if text == "off" {
        return Ok(Vec::new());
    }
    let cpu = |part: &str| part.parse().ok().filter(|cpu| *cpu < 1_024);
    let cpus: Option<Vec<u32>> = text.split('+').map(cpu).collect();
    let mut cpus = cpus.ok_or_else(|| format!("`{text}`: `off`, or CPUs as 0+2"))?;
    cpus.sort_unstable();
    cpus.dedup();
    Ok(cpus)
}

/// A setting with the values that it is to have, one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sweep(Vec<Setting>);

impl Sweep {
    /// The values, at least one, in the order given, all of one setting.
    pub fn values(&self) -> &[Setting] {
        &self.0
    }
}

impl FromStr for Sweep {
    type Err = String;

    fn from_str(text: &str) -> Result<Sweep, String> {
        let (key, values) =
            text.split_once('=').ok_or_else(|| format!("`{text}`: as KEY=VALUE,VALUE"))?;
        let parse =
            |value: &str| Setting::parse(key, value.trim()).map_err(|why| format!("{key}: {why}"));
        let values: Vec<Setting> = values.split(',').map(parse).collect::<Result<_, _>>()?;
        match values.iter().enumerate().find(|(at, it)| values[..*at].contains(it)) {
            Some((_, twice)) => Err(format!("{key}: {twice} stands there twice")),
            None => Ok(Sweep(values)),
        }
    }
}

/// Everything that is varied; each list has at least one.
#[derive(Clone, Debug)]
pub struct Variety {
    /// Sources.
    pub over: Vec<Over>,
    /// Ways to wait.
    pub wait: Vec<Waiting>,
    /// Frames per second; `None` when others send.
    pub rate: Vec<Option<u32>>,
    /// Settings; no two of one name.
    pub sweeps: Vec<Sweep>,
}

/// One way of everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Combination {
    /// The source.
    pub over: Over,
    /// How it waits.
    pub wait: Waiting,
    /// Frames per second; `None` when others send.
    pub rate: Option<u32>,
    /// One value of each sweep, in their order.
    pub settings: Vec<Setting>,
}

/// What is varied, of which one way is compared with the first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Dimension {
    /// The source.
    Over,
    /// How it waits.
    Wait,
    /// The rate.
    Rate,
    /// A setting, by name.
    #[serde(untagged)]
    Setting(String),
}

impl fmt::Display for Dimension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Dimension::Over => "over",
            Dimension::Wait => "wait",
            Dimension::Rate => "rate",
            Dimension::Setting(key) => key,
        })
    }
}

impl Variety {
    /// Checks that no setting is swept twice.
    ///
    /// **Errors**: the name of one that is.
    pub fn check(&self) -> Result<(), String> {
        let key = |sweep: &Sweep| sweep.0[0].key();
        for (at, sweep) in self.sweeps.iter().enumerate() {
            if self.sweeps[..at].iter().any(|other| key(other) == key(sweep)) {
                return Err(format!("{} is swept twice: name all its values at once", key(sweep)));
            }
        }
        Ok(())
    }

    /// All combinations: the settings change slowest, then the rate, the source, the way to wait.
    pub fn combinations(&self) -> Vec<Combination> {
        let mut settings: Vec<Vec<Setting>> = vec![Vec::new()];
        for sweep in &self.sweeps {
            let longer = |had: &Vec<Setting>| -> Vec<Vec<Setting>> {
                let with = |it: &Setting| had.iter().cloned().chain([it.clone()]).collect();
                sweep.0.iter().map(with).collect()
            };
            settings = settings.iter().flat_map(longer).collect();
        }
        let mut all = Vec::new();
        for settings in &settings {
            for &rate in &self.rate {
                for &over in &self.over {
                    for &wait in &self.wait {
                        let settings = settings.clone();
                        all.push(Combination { over, wait, rate, settings });
                    }
                }
            }
        }
        all
    }

    /// What is varied, in the order in which comparing it makes most sense.
    pub fn dimensions(&self) -> Vec<Dimension> {
        let mut all = Vec::new();
        if self.over.len() > 1 {
            all.push(Dimension::Over);
        }
        if self.wait.len() > 1 {
            all.push(Dimension::Wait);
        }
        for sweep in self.sweeps.iter().filter(|sweep| sweep.0.len() > 1) {
            all.push(Dimension::Setting(sweep.0[0].key().to_owned()));
        }
        if self.rate.len() > 1 {
            all.push(Dimension::Rate);
        }
        all
    }

    /// The combination that one is compared with: the same but for this dimension, which has its
    /// first value.
    pub fn reference(&self, of: &Combination, dimension: &Dimension) -> Combination {
        let mut reference = of.clone();
        match dimension {
            Dimension::Over => reference.over = self.over[0],
            Dimension::Wait => reference.wait = self.wait[0],
            Dimension::Rate => reference.rate = self.rate[0],
            Dimension::Setting(key) => {
                for (setting, sweep) in reference.settings.iter_mut().zip(&self.sweeps) {
                    if setting.key() == key {
                        *setting = sweep.0[0].clone();
                    }
                }
            }
        }
        reference
    }
}

impl Combination {
    /// The setting of this name, if it is among them.
    pub fn setting(&self, key: &str) -> Option<&Setting> {
        self.settings.iter().find(|setting| setting.key() == key)
    }

    /// How the receiving thread is scheduled.
    pub fn policy(&self) -> Policy {
        match self.setting("policy") {
            Some(Setting::Policy(policy)) => *policy,
            _ => Policy::Other,
        }
    }

    /// Whether the receiving thread must rest, since it would otherwise have a CPU for itself
    /// before all others.
    pub fn must_rest(&self) -> bool {
        self.wait != Waiting::Block && self.policy() != Policy::Other
    }
}

impl fmt::Display for Combination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.over, self.wait)?;
        if let Some(rate) = self.rate {
            write!(f, " {rate}/s")?;
        }
        self.settings.iter().try_for_each(|it| write!(f, " {}={it}", it.key()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variety(sweeps: &[&str]) -> Variety {
        Variety {
            over: vec![Over::Udp, Over::Xdp(XdpMode::Native)],
            wait: vec![Waiting::Block],
            rate: vec![Some(1), Some(128)],
            sweeps: sweeps.iter().map(|text| text.parse().unwrap()).collect(),
        }
    }

    #[test]
    fn t0_sweeps_are_multiplied_out() {
        let all = variety(&["load=0,50", "policy=other,fifo:80"]).combinations();
        assert_eq!(all.len(), 16);
        let told: Vec<String> = all.iter().map(ToString::to_string).collect();
        assert_eq!(told[0], "udp block 1/s load=0 policy=other");
        assert_eq!(told[1], "xdp:native block 1/s load=0 policy=other");
        assert_eq!(told[2], "udp block 128/s load=0 policy=other");
        assert_eq!(told[4], "udp block 1/s load=0 policy=fifo:80");
        assert_eq!(told[15], "xdp:native block 128/s load=50 policy=fifo:80");
        assert_eq!(variety(&[]).combinations().len(), 4);
    }

    #[test]
    fn t0_each_is_compared_with_the_first_of_its_dimension() {
        let all = variety(&["load=0,50", "cpu=1"]);
        let last = all.combinations().pop().unwrap();
        assert_eq!(last.to_string(), "xdp:native block 128/s load=50 cpu=1");
        let told = |dimension| all.reference(&last, &dimension).to_string();
        let load = Dimension::Setting("load".to_owned());
        assert_eq!(all.dimensions(), [Dimension::Over, load.clone(), Dimension::Rate]);
        assert_eq!(told(Dimension::Over), "udp block 128/s load=50 cpu=1");
        assert_eq!(told(Dimension::Rate), "xdp:native block 1/s load=50 cpu=1");
        assert_eq!(told(load), "xdp:native block 128/s load=0 cpu=1");
    }

    #[test]
    fn t0_values_are_read_and_shown_the_same() {
        for text in [
            "netdev_budget=50,300",
            "netdev_budget_usecs=2000",
            "netdev_tstamp_prequeue=0,1",
            "rps=off,0,0+1",
            "load=0,50,100",
            "sockets=0,10udp,100packet,10udp+5packet",
            "cpu=0,1",
            "policy=other,fifo:80,rr:1",
        ] {
            let sweep: Sweep = text.parse().unwrap();
            let values: Vec<_> = sweep.values().iter().map(ToString::to_string).collect();
            assert_eq!(format!("{}={}", sweep.values()[0].key(), values.join(",")), text);
        }
        for (name, over) in Over::ALL {
            assert_eq!((name.parse(), over.to_string().as_str()), (Ok(over), name));
        }
        for (name, wait) in Waiting::ALL {
            assert_eq!((name.parse(), wait.to_string().as_str()), (Ok(wait), name));
        }
    }

    #[test]
    fn t0_what_cannot_be_says_what_can() {
        for (text, why) in [
            ("load", "`load`: as KEY=VALUE,VALUE"),
            ("speed=1", "speed: `speed` is none of netdev_budget, netdev_budget_usecs"),
            ("load=101", "load: `101` is no percentage"),
            ("load=5,5", "load: 5 stands there twice"),
            ("rps=0-3", "rps: `0-3`: `off`, or CPUs as 0+2"),
            ("policy=fifo:0", "policy: `fifo:0` is no policy: other, fifo:1 to 99, rr:1 to 99"),
            ("sockets=5tcp", "sockets: `5tcp`: as 0, 10udp, 100packet, 10udp+5packet"),
            ("sockets=2000udp", "sockets: `2000udp`: a number up to 1000 and its kind"),
            ("netdev_budget=0", "netdev_budget: `0` is no number of 1 to 1000000"),
        ] {
            let error = text.parse::<Sweep>().unwrap_err();
            assert!(error.starts_with(why), "{error}");
        }
        assert!("xdp:fast".parse::<Over>().unwrap_err().contains("xdp:zero-copy"));
        let twice = variety(&["load=1", "load=2"]).check().unwrap_err();
        assert_eq!(twice, "load is swept twice: name all its values at once");
    }

    #[test]
    fn t0_only_a_thread_that_spins_before_all_others_must_rest() {
        let of = |wait: &str, policy: &str| {
            let settings = vec![Setting::parse("policy", policy).unwrap()];
            let wait = wait.parse().unwrap();
            Combination { over: Over::Udp, wait, rate: None, settings }.must_rest()
        };
        assert!(of("poll", "fifo:1") && of("busy", "rr:9"));
        assert!(!of("block", "fifo:1") && !of("poll", "other"));
    }
}
