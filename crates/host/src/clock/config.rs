// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What linuxptp is started with for a desired configuration: files and command lines as values,
//! the same for the same desired configuration, abilities and version.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde::Serialize;
use thiserror::Error;
use timewire_base::{Failure, IfName, Span};
use timewire_model::scenario::host::{
    ClockDaemon, ClockRole, ClockTransport, DesiredClock, Timestamps,
};
use timewire_sys::phc::TimestampAbilities;

/// What is known of the host.
#[derive(Clone, Debug)]
pub struct HostAbilities {
    /// What each of the desired configuration's interfaces can timestamp, in their order.
    pub timestamps: Vec<TimestampAbilities>,
    /// First number of linuxptp's version: some keys have other names from 4 on.
    pub major_version: u32,
    /// Where files and sockets go.
    pub directory: PathBuf,
}

/// What is started for a desired configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClockPlan {
    /// Whether the NIC timestamps, and why that was chosen.
    pub hardware: bool,
    /// In words.
    pub why: String,
    /// Who is started, in this order.
    pub daemons: Vec<DaemonPlan>,
    /// Where `ptp4l` takes questions.
    pub socket: PathBuf,
    /// PTP domain.
    pub domain: u8,
    /// 0 for plain PTP, 1 for 802.1AS.
    pub transport_specific: u8,
    /// The clocks of NICs that take part, without repetition.
    pub phcs: Vec<u32>,
    /// What of the host the daemons set and steer.
    pub steers: Vec<Steers>,
}

/// A clock that a daemon sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Steers {
    /// `CLOCK_REALTIME`.
    System,
    /// `/dev/ptpN`.
    Nic(u32),
}

/// One daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DaemonPlan {
    /// Its program.
    pub program: &'static str,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Its configuration file.
    pub file: PathBuf,
    /// What is in that.
    pub text: String,
}

/// A desired configuration that cannot be carried out here.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The NIC cannot timestamp.
    #[error("{interface} cannot timestamp in hardware, and the file says `timestamps: hardware`")]
    NoHardware {
        /// Which interface.
        interface: IfName,
    },
    /// Not even the kernel timestamps.
    #[error("{interface} timestamps neither in hardware nor in software")]
    NoTimestamps {
        /// Which interface.
        interface: IfName,
    },
    /// A daemon that needs the clock of a NIC.
    #[error("{daemon} steers the clock of a NIC, and {interface} has none")]
    NoNic {
        /// Which daemon.
        daemon: &'static str,
        /// Which interface.
        interface: IfName,
    },
    /// A `phc2sys` that cannot only compare: before linuxptp 4 it does not look at `free_running`.
    #[error(
        "phc2sys of linuxptp {major_version} steers a clock always, and the file says \
         `adjust: false`"
    )]
    SteersAlways {
        /// First number of its version.
        major_version: u32,
    },
}

impl Failure for ConfigError {
    fn is_unsupported(&self) -> bool {
        true
    }

    fn hint(&self) -> Option<Cow<'static, str>> {
        let hint = match self {
            ConfigError::NoHardware { .. } => {
                "write `timestamps: auto` or `software`; software timestamps reach some 10us"
            }
            ConfigError::NoTimestamps { .. } => "PTP needs another interface, or another driver",
            ConfigError::SteersAlways { .. } => {
                "leave phc2sys out of `daemons`, or install linuxptp 4 or newer"
            }
            ConfigError::NoNic { .. } => "write `daemons: [ptp4l]`: it steers the system's clock",
        };
        Some(hint.into())
    }
}

/// The plan for a desired configuration.
///
/// **Errors**: the interfaces cannot do it.
pub fn plan(desired: &DesiredClock, place: &HostAbilities) -> Result<ClockPlan, ConfigError> {
    let (hardware, why) = choose(desired, place)?;
    let major_version = place.major_version;
    if !desired.adjust && desired.daemons.contains(&ClockDaemon::Phc2sys) && major_version < 4 {
        return Err(ConfigError::SteersAlways { major_version });
    }
    let mut phcs: Vec<u32> = Vec::new();
    if hardware {
        for phc in place.timestamps.iter().filter_map(|timestamps| timestamps.phc) {
            if !phcs.contains(&phc) {
                phcs.push(phc);
            }
        }
    }
    let socket = place.directory.join("ptp4l");
    let domain = u8::try_from(desired.domain.get()).expect("invariant: at most 127");
    let transport_specific = u8::from(desired.gptp);
    let mut daemons = Vec::new();
    // The NIC's clock has the time before others take it from there.
    for kind in [ClockDaemon::Ts2phc, ClockDaemon::Ptp4l, ClockDaemon::Phc2sys] {
        if desired.daemons.contains(&kind) {
            let text = match kind {
                ClockDaemon::Ptp4l => ptp4l(desired, place, hardware, &socket),
                ClockDaemon::Phc2sys => phc2sys(desired, place, &socket),
                ClockDaemon::Ts2phc => ts2phc(desired, place),
            };
            daemons.push(daemon(kind, desired, &place.directory, text));
        }
    }
    let steers = steers(desired, hardware, &phcs);
    Ok(ClockPlan { hardware, why, daemons, socket, domain, transport_specific, phcs, steers })
}

/// Whether the NIC timestamps, and why.
fn choose(desired: &DesiredClock, place: &HostAbilities) -> Result<(bool, String), ConfigError> {
    let mut all = true;
    for (interface, timestamps) in desired.interfaces.iter().zip(&place.timestamps) {
        let can = timestamps.hardware && timestamps.phc.is_some();
        let interface = || interface.clone();
        match desired.timestamps {
            Timestamps::Hardware if !can => {
                return Err(ConfigError::NoHardware { interface: interface() });
            }
            Timestamps::Hardware => {}
            _ if !can && !timestamps.software => {
                return Err(ConfigError::NoTimestamps { interface: interface() });
            }
            _ => {}
        }
        let needs = desired.daemons.iter().find(|daemon| **daemon != ClockDaemon::Ptp4l);
        if let (false, Some(daemon)) = (can, needs) {
            let daemon = daemon.word();
            return Err(ConfigError::NoNic { daemon, interface: interface() });
        }
        all &= can;
    }
    Ok(match desired.timestamps {
        Timestamps::Hardware => (true, "the file says so".to_owned()),
        Timestamps::Software => (false, "the file says so".to_owned()),
        Timestamps::Auto if all => (true, "every interface can".to_owned()),
        Timestamps::Auto => {
            let lacks = desired.interfaces.iter().zip(&place.timestamps);
            let lacks =
                lacks.filter(|(_, timestamps)| !timestamps.hardware || timestamps.phc.is_none());
            let lacks: Vec<String> = lacks.map(|(interface, _)| interface.to_string()).collect();
            (false, format!("{} cannot timestamp in hardware", lacks.join(", ")))
        }
    })
}

fn steers(desired: &DesiredClock, hardware: bool, phcs: &[u32]) -> Vec<Steers> {
    let mut steers = Vec::new();
    if !desired.adjust {
        return steers;
    }
    if hardware {
        steers.extend(phcs.iter().map(|phc| Steers::Nic(*phc)));
    }
    let by_phc2sys = desired.daemons.contains(&ClockDaemon::Phc2sys);
    if !hardware || by_phc2sys {
        steers.push(Steers::System);
    }
    steers
}

fn daemon(kind: ClockDaemon, desired: &DesiredClock, directory: &Path, text: String) -> DaemonPlan {
    let program = kind.word();
    let file = directory.join(format!("{program}.conf"));
    let mut arguments = vec!["-f".to_owned(), file.display().to_string()];
    match kind {
        ClockDaemon::Ptp4l => {}
        ClockDaemon::Phc2sys => {
            arguments.push("-a".to_owned());
            // Once: the system's clock follows. Twice: it can also be the one that is followed.
            let both = desired.role != ClockRole::Receiver;
            arguments.push(if both { "-rr" } else { "-r" }.to_owned());
        }
        ClockDaemon::Ts2phc => arguments.extend(["-s", "generic"].map(str::to_owned)),
    }
    arguments.push("-m".to_owned());
    DaemonPlan { program, arguments, file, text }
}

/// Keys of linuxptp, in the order in which they are written.
struct Keys(String);

impl Keys {
    fn new(section: &str) -> Keys {
        Keys(format!("# Made by timewire.\n[{section}]\n"))
    }

    fn set(&mut self, key: &str, value: impl std::fmt::Display) {
        let _ = writeln!(self.0, "{key:<26} {value}");
    }

    fn section(&mut self, name: &IfName) {
        let _ = writeln!(self.0, "[{name}]");
    }
}

fn ptp4l(desired: &DesiredClock, place: &HostAbilities, hardware: bool, socket: &Path) -> String {
    let mut keys = Keys::new("global");
    let newer = place.major_version >= 4;
    let receiver = desired.role == ClockRole::Receiver;
    keys.set("domainNumber", desired.domain.get());
    keys.set("priority1", if receiver { 255 } else { desired.priority1() });
    keys.set("priority2", 248);
    keys.set(if newer { "clientOnly" } else { "slaveOnly" }, u8::from(receiver));
    keys.set("logSyncInterval", desired.log_sync_interval());
    keys.set("network_transport", transport(desired.transport));
    keys.set("time_stamping", if hardware { "hardware" } else { "software" });
    if desired.gptp {
        // IEEE 802.1AS-2020, as linuxptp's own gPTP.cfg has it.
        // A receiver is held back by `slaveOnly`, which ptp4l does not take without this.
        keys.set("gmCapable", 1);
        keys.set("transportSpecific", "0x1");
        keys.set("ptp_dst_mac", "01:80:C2:00:00:0E");
        keys.set("delay_mechanism", "P2P");
        keys.set("logAnnounceInterval", 0);
        keys.set("syncReceiptTimeout", 3);
        keys.set("assume_two_step", 1);
        keys.set("path_trace_enabled", 1);
        keys.set("follow_up_info", 1);
        keys.set("min_neighbor_prop_delay", -20_000_000);
        // 800 ns tells a cable from a bridge without gPTP; software timestamps are later than that.
        keys.set("neighborPropDelayThresh", if hardware { 800 } else { 20_000_000 });
    } else {
        keys.set("transportSpecific", "0x0");
        keys.set("delay_mechanism", "E2E");
        keys.set("logAnnounceInterval", 1);
        keys.set("logMinDelayReqInterval", desired.log_sync_interval());
    }
    if !hardware {
        servo(&mut keys, desired.sync_interval());
    }
    keys.set("free_running", u8::from(!desired.adjust));
    // The default of 10 ms is too short for a host that is busy.
    keys.set("tx_timestamp_timeout", 100);
    keys.set("summary_interval", 4);
    keys.set("use_syslog", 0);
    keys.set("verbose", 1);
    keys.set("uds_address", socket.display());
    if newer {
        keys.set("uds_ro_address", format!("{}.ro", socket.display()));
    }
    for interface in &desired.interfaces {
        keys.section(interface);
    }
    keys.0
}

/// The constants of the servo for software timestamps. linuxptp's own take 16 s and more to begin;
/// these take 3.2 s and less at up to one message a second, and still average over some seconds.
///
/// With them the phase follows with a natural frequency of 0.2 / s and a damping of 0.75, whatever
/// the interval up to a second; with longer ones, as much more slowly as keeps that damping.
fn servo(keys: &mut Keys, interval: Span) {
    let second = 1_000_000_000;
    let ns = interval.as_ns();
    // In millionths, rounded down.
    let proportional = 300_000 * second / ns.max(second);
    let integral = 40_000 * ns.min(second) / second * second / ns.max(second);
    keys.set("pi_proportional_const", format!("0.{proportional:06}"));
    keys.set("pi_integral_const", format!("0.{integral:06}"));
}

fn transport(transport: ClockTransport) -> &'static str {
    match transport {
        ClockTransport::L2 => "L2",
        ClockTransport::Udp4 => "UDPv4",
        ClockTransport::Udp6 => "UDPv6",
    }
}

fn phc2sys(desired: &DesiredClock, place: &HostAbilities, socket: &Path) -> String {
    let mut keys = Keys::new("global");
    keys.set("domainNumber", desired.domain.get());
    keys.set("transportSpecific", if desired.gptp { "0x1" } else { "0x0" });
    keys.set("use_syslog", 0);
    keys.set("verbose", 1);
    keys.set("uds_address", socket.display());
    if !desired.adjust {
        keys.set("free_running", 1);
    }
    if place.major_version >= 4 {
        keys.set("uds_ro_address", format!("{}.ro", socket.display()));
    }
    keys.0
}

fn ts2phc(desired: &DesiredClock, place: &HostAbilities) -> String {
    let mut keys = Keys::new("global");
    keys.set("use_syslog", 0);
    keys.set("verbose", 1);
    keys.set("ts2phc.pulsewidth", 100_000_000);
    if !desired.adjust {
        keys.set("free_running", 1);
    }
    let mut seen = Vec::new();
    for (interface, timestamps) in desired.interfaces.iter().zip(&place.timestamps) {
        // Ports of one NIC have one clock, which is steered once.
        if !seen.contains(&timestamps.phc) {
            seen.push(timestamps.phc);
            keys.section(interface);
            keys.set("ts2phc.extts_polarity", "rising");
        }
    }
    keys.0
}
