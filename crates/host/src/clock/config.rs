// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What linuxptp is started with for a wish: files and command lines as values, the same for the
//! same wish, abilities and version.
//!
//! Not here: starting it (`timewire-ctl`).

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde::Serialize;
use thiserror::Error;
use timewire_base::{IfName, Span};
use timewire_sched::scenario::host::{
    ClockDaemon, ClockRole, ClockTransport, ClockWish, Timestamps,
};
use timewire_sys::phc::StampAbilities;

/// What is known of the host.
#[derive(Clone, Debug)]
pub struct Place {
    /// What each of the wish's interfaces can stamp, in their order.
    pub stamps: Vec<StampAbilities>,
    /// First number of linuxptp's version: some keys have other names from 4 on.
    pub major_version: u32,
    /// Where files and sockets go.
    pub directory: PathBuf,
}

/// What is started for a wish.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClockPlan {
    /// Whether the card stamps, and why that was chosen.
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
    /// The clocks of cards that take part, without repetition.
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
    Card(u32),
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

/// A wish that cannot be carried out here.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The card cannot stamp.
    #[error("{interface} cannot stamp in hardware, and the file says `timestamps: hardware`")]
    NoHardware {
        /// Which interface.
        interface: IfName,
    },
    /// Not even the kernel stamps.
    #[error("{interface} stamps neither in hardware nor in software")]
    NoStamps {
        /// Which interface.
        interface: IfName,
    },
    /// A daemon that needs the clock of a card.
    #[error("{daemon} steers the clock of a card, and {interface} has none")]
    NoCard {
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

impl ConfigError {
    /// What the user can do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            ConfigError::NoHardware { .. } => {
                "write `timestamps: auto` or `software`; software stamps reach some 10us"
            }
            ConfigError::NoStamps { .. } => "PTP needs another interface, or another driver",
            ConfigError::SteersAlways { .. } => {
                "leave phc2sys out of `daemons`, or install linuxptp 4 or newer"
            }
            ConfigError::NoCard { .. } => "write `daemons: [ptp4l]`: it steers the system's clock",
        }
    }
}

/// The plan for a wish.
///
/// **Errors**: the interfaces cannot do it.
pub fn plan(wish: &ClockWish, place: &Place) -> Result<ClockPlan, ConfigError> {
    let (hardware, why) = choose(wish, place)?;
    let major_version = place.major_version;
    if !wish.adjust && wish.daemons.contains(&ClockDaemon::Phc2sys) && major_version < 4 {
        return Err(ConfigError::SteersAlways { major_version });
    }
    let mut phcs: Vec<u32> = Vec::new();
    if hardware {
        for phc in place.stamps.iter().filter_map(|stamps| stamps.phc) {
            if !phcs.contains(&phc) {
                phcs.push(phc);
            }
        }
    }
    let socket = place.directory.join("ptp4l");
    let domain = u8::try_from(wish.domain.get()).expect("invariant: at most 127");
    let transport_specific = u8::from(wish.gptp);
    let mut daemons = Vec::new();
    // The card's clock has the time before others take it from there.
    for kind in [ClockDaemon::Ts2phc, ClockDaemon::Ptp4l, ClockDaemon::Phc2sys] {
        if wish.daemons.contains(&kind) {
            let text = match kind {
                ClockDaemon::Ptp4l => ptp4l(wish, place, hardware, &socket),
                ClockDaemon::Phc2sys => phc2sys(wish, place, &socket),
                ClockDaemon::Ts2phc => ts2phc(wish, place),
            };
            daemons.push(daemon(kind, wish, &place.directory, text));
        }
    }
    let steers = steers(wish, hardware, &phcs);
    Ok(ClockPlan { hardware, why, daemons, socket, domain, transport_specific, phcs, steers })
}

/// Whether the card stamps, and why.
fn choose(wish: &ClockWish, place: &Place) -> Result<(bool, String), ConfigError> {
    let mut all = true;
    for (interface, stamps) in wish.interfaces.iter().zip(&place.stamps) {
        let can = stamps.hardware && stamps.phc.is_some();
        let interface = || interface.clone();
        match wish.timestamps {
            Timestamps::Hardware if !can => {
                return Err(ConfigError::NoHardware { interface: interface() });
            }
            Timestamps::Hardware => {}
            _ if !can && !stamps.software => {
                return Err(ConfigError::NoStamps { interface: interface() });
            }
            _ => {}
        }
        let needs = wish.daemons.iter().find(|daemon| **daemon != ClockDaemon::Ptp4l);
        if let (false, Some(daemon)) = (can, needs) {
            let daemon = daemon.word();
            return Err(ConfigError::NoCard { daemon, interface: interface() });
        }
        all &= can;
    }
    Ok(match wish.timestamps {
        Timestamps::Hardware => (true, "the file says so".to_owned()),
        Timestamps::Software => (false, "the file says so".to_owned()),
        Timestamps::Auto if all => (true, "every interface can".to_owned()),
        Timestamps::Auto => {
            let lacks = wish.interfaces.iter().zip(&place.stamps);
            let lacks = lacks.filter(|(_, stamps)| !stamps.hardware || stamps.phc.is_none());
            let lacks: Vec<String> = lacks.map(|(interface, _)| interface.to_string()).collect();
            (false, format!("{} cannot stamp in hardware", lacks.join(", ")))
        }
    })
}

fn steers(wish: &ClockWish, hardware: bool, phcs: &[u32]) -> Vec<Steers> {
    let mut steers = Vec::new();
    if !wish.adjust {
        return steers;
    }
    if hardware {
        steers.extend(phcs.iter().map(|phc| Steers::Card(*phc)));
    }
    let by_phc2sys = wish.daemons.contains(&ClockDaemon::Phc2sys);
    if !hardware || by_phc2sys {
        steers.push(Steers::System);
    }
    steers
}

fn daemon(kind: ClockDaemon, wish: &ClockWish, directory: &Path, text: String) -> DaemonPlan {
    let program = kind.word();
    let file = directory.join(format!("{program}.conf"));
    let mut arguments = vec!["-f".to_owned(), file.display().to_string()];
    match kind {
        ClockDaemon::Ptp4l => {}
        ClockDaemon::Phc2sys => {
            arguments.push("-a".to_owned());
            // Once: the system's clock follows. Twice: it can also be the one that is followed.
            let both = wish.role != ClockRole::Receiver;
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

fn ptp4l(wish: &ClockWish, place: &Place, hardware: bool, socket: &Path) -> String {
    let mut keys = Keys::new("global");
    let newer = place.major_version >= 4;
    let receiver = wish.role == ClockRole::Receiver;
    keys.set("domainNumber", wish.domain.get());
    keys.set("priority1", if receiver { 255 } else { wish.priority1() });
    keys.set("priority2", 248);
    keys.set(if newer { "clientOnly" } else { "slaveOnly" }, u8::from(receiver));
    keys.set("logSyncInterval", wish.log_sync_interval());
    keys.set("network_transport", transport(wish.transport));
    keys.set("time_stamping", if hardware { "hardware" } else { "software" });
    if wish.gptp {
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
        // 800 ns tells a cable from a bridge without gPTP; software stamps are later than that.
        keys.set("neighborPropDelayThresh", if hardware { 800 } else { 20_000_000 });
    } else {
        keys.set("transportSpecific", "0x0");
        keys.set("delay_mechanism", "E2E");
        keys.set("logAnnounceInterval", 1);
        keys.set("logMinDelayReqInterval", wish.log_sync_interval());
    }
    if !hardware {
        servo(&mut keys, wish.sync_interval());
    }
    keys.set("free_running", u8::from(!wish.adjust));
    // The default of 10 ms is too short for a host that is busy.
    keys.set("tx_timestamp_timeout", 100);
    keys.set("summary_interval", 4);
    keys.set("use_syslog", 0);
    keys.set("verbose", 1);
    keys.set("uds_address", socket.display());
    if newer {
        keys.set("uds_ro_address", format!("{}.ro", socket.display()));
    }
    for interface in &wish.interfaces {
        keys.section(interface);
    }
    keys.0
}

/// The constants of the servo for software stamps. linuxptp's own take 16 s and more to begin;
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

fn phc2sys(wish: &ClockWish, place: &Place, socket: &Path) -> String {
    let mut keys = Keys::new("global");
    keys.set("domainNumber", wish.domain.get());
    keys.set("transportSpecific", if wish.gptp { "0x1" } else { "0x0" });
    keys.set("use_syslog", 0);
    keys.set("verbose", 1);
    keys.set("uds_address", socket.display());
    if !wish.adjust {
        keys.set("free_running", 1);
    }
    if place.major_version >= 4 {
        keys.set("uds_ro_address", format!("{}.ro", socket.display()));
    }
    keys.0
}

fn ts2phc(wish: &ClockWish, place: &Place) -> String {
    let mut keys = Keys::new("global");
    keys.set("use_syslog", 0);
    keys.set("verbose", 1);
    keys.set("ts2phc.pulsewidth", 100_000_000);
    if !wish.adjust {
        keys.set("free_running", 1);
    }
    let mut seen = Vec::new();
    for (interface, stamps) in wish.interfaces.iter().zip(&place.stamps) {
        // Ports of one card have one clock, which is steered once.
        if !seen.contains(&stamps.phc) {
            seen.push(stamps.phc);
            keys.section(interface);
            keys.set("ts2phc.extts_polarity", "rising");
        }
    }
    keys.0
}
