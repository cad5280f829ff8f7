// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `snapshot`: what this host and its interfaces are like, as far as timing depends on it.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use timewire_base::IfName;
use timewire_host::HostError;
use timewire_host::snapshot::model::{InterfaceSettings, InterfaceState, Reading};
use timewire_host::snapshot::source::{Live, Record, Recording, Redacting, Source, with_own_sysfs};
use timewire_host::snapshot::{Fact, Level, Snapshot};

use crate::output;

#[derive(Debug, Args)]
pub struct SnapshotArgs {
    /// Interfaces, with the VLANs on them [default: all of this network namespace]
    #[arg(value_name = "IFACE")]
    pub interfaces: Vec<IfName>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Write JSON to a file
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Replace addresses, and parameters of the kernel that have nothing to do with timing
    #[arg(long)]
    pub redact: bool,
    /// Keep every answer of files, tools and the kernel in a directory, as record.json
    #[arg(long, value_name = "DIR")]
    pub record: Option<PathBuf>,
    /// Read a directory that --record wrote, instead of this host
    #[arg(long, value_name = "DIR", conflicts_with = "record")]
    pub of: Option<PathBuf>,
}

pub fn run(args: &SnapshotArgs) -> anyhow::Result<ExitCode> {
    let snapshot = match &args.of {
        Some(directory) => {
            let record = Record::load(directory)?;
            let asked =
                if args.interfaces.is_empty() { record.interfaces() } else { &args.interfaces };
            read(&record, args, asked)?
        }
        None => with_own_sysfs(|| read(&Live, args, &args.interfaces))?,
    };
    if let Some(path) = &args.out {
        let write = || format!("cannot write {}", path.display());
        fs::write(path, snapshot.to_text()).with_context(write)?;
    }
    if args.json {
        return output::print(&snapshot.to_text());
    }
    output::print(&summary(&snapshot))
}

fn read(
    source: &dyn Source,
    args: &SnapshotArgs,
    interfaces: &[IfName],
) -> Result<Snapshot, HostError> {
    let redacting;
    let mut interfaces = interfaces.to_vec();
    let source: &dyn Source = if args.redact {
        redacting = Redacting::new(source);
        interfaces = interfaces.iter().map(|name| redacting.name(name)).collect();
        &redacting
    } else {
        source
    };
    let Some(directory) = &args.record else {
        return Snapshot::read(source, &interfaces);
    };
    let recording = Recording::new(source, &interfaces);
    let snapshot = Snapshot::read(&recording, &interfaces)?;
    recording.into_record().save(directory)?;
    Ok(snapshot)
}

/// What people look at first. The JSON has everything.
fn summary(snapshot: &Snapshot) -> String {
    let mut text = String::new();
    for Fact { area, name, value, level } in snapshot.facts() {
        let mark = match level {
            Level::Ok => ' ',
            Level::Degraded => '~',
            Level::Missing => '!',
        };
        let _ = writeln!(text, "{mark} {area:<11} {name:<22} {value}");
    }
    for (name, settings) in &snapshot.settings.interfaces {
        let Some(state) = snapshot.state.interfaces.get(name) else { continue };
        let _ = writeln!(text, "\n{name}");
        for (what, value) in lines(settings, state) {
            let _ = writeln!(text, "  {what:<14} {value}");
        }
    }
    text
}

/// The value, or why there is none.
fn shown<T>(reading: &Reading<T>, show: impl FnOnce(&T) -> String) -> String {
    match reading {
        Reading::Known(value) => show(value),
        Reading::Absent(why) => format!("none: {why}"),
        Reading::Unreadable(why) => format!("unreadable: {why}"),
    }
}

fn lines(settings: &InterfaceSettings, state: &InterfaceState) -> Vec<(&'static str, String)> {
    let driver = shown(&settings.driver, |driver| format!("{} {}", driver.name, driver.bus));
    let speed =
        state.speed_mbps.map_or("unknown speed".to_owned(), |mbps| format!("{mbps} Mbit/s"));
    let qdiscs = shown(&settings.qdiscs, |qdiscs| {
        let one = |qdisc: &timewire_host::snapshot::model::QdiscSettings| {
            format!("{} {} at {}", qdisc.kind, qdisc.handle, qdisc.parent)
        };
        qdiscs.iter().map(one).collect::<Vec<_>>().join(", ")
    });
    let timestamps = shown(&settings.timestamping, |timestamps| {
        let hardware = timestamps.capabilities.iter().any(|c| c == "hardware-transmit");
        let clock = timestamps.phc.map_or("no clock".to_owned(), |phc| format!("/dev/ptp{phc}"));
        format!("{}, {clock}", if hardware { "hardware" } else { "software only" })
    });
    let filters = shown(&settings.timestamp_filters, |now| format!("tx {}, rx {}", now.tx, now.rx));
    let queues = format!(
        "{} to send, {} to receive",
        settings.tx_queues.unwrap_or_default(),
        settings.rx_queues.unwrap_or_default()
    );
    let irqs = shown(&settings.irqs, |irqs| {
        let one = |irq: &timewire_host::snapshot::model::Irq| {
            let cpus = shown(&irq.affinity, ToString::to_string);
            format!("{} on CPUs {cpus}", irq.name)
        };
        irqs.iter().map(one).collect::<Vec<_>>().join(", ")
    });
    let mut lines = vec![
        ("driver", driver),
        ("kind", settings.kind.clone().unwrap_or("nic".to_owned())),
        ("link", format!("{}, {speed}, MTU {}", state.operstate, settings.mtu)),
        ("qdiscs", qdiscs),
        ("queues", queues),
        ("timestamps", timestamps),
        ("timestamps now", filters),
        ("interrupts", irqs),
        ("sleeps (EEE)", shown(&settings.eee, |eee| on(eee.enabled))),
        ("preemption", shown(&settings.mac_merge, |merge| on(merge.tx_enabled))),
    ];
    let gated = state.gated_credit.iter();
    lines.splice(4..4, gated.map(|gated| ("gated credit", gated.to_string())));
    if let Some(vlan) = &settings.vlan {
        let lower = settings.lower.as_deref().unwrap_or("?");
        lines.insert(2, ("VLAN", format!("{} on {lower}", vlan.id)));
    }
    lines
}

fn on(is: bool) -> String {
    if is { "on" } else { "off" }.to_owned()
}
