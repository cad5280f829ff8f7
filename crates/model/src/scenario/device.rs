// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the ports of a station or bridge can do, and devices that are known by name: the limits of
//! each, and where they are written.

use std::fmt;

use serde_json::{Value as Json, json};
use timewire_base::Span;

use super::item::{Item, Reader};
use super::record::{choice, record};
use super::tree::{Node, Value};
use super::value::Count;

choice! {
    /// A device whose limits are known.
    pub enum DeviceModel {
        /// Software on any NIC: the queueing discipline taprio opens the gates, with timers.
        Taprio = "taprio",
        /// Intel I210, a NIC: launch times and no gates.
        I210 = "i210",
        /// Intel I225, a NIC: a queue opens once in a cycle.
        I225 = "i225",
        /// Intel I226, a NIC, as the I225.
        I226 = "i226",
        /// The switch of the NXP LS1028A (VSC9959).
        Ls1028a = "ls1028a",
        /// NXP SJA1105, a switch of five ports that share one list.
        Sja1105 = "sja1105",
        /// NXP SJA1110, a switch of eleven ports that share one list.
        Sja1110 = "sja1110",
        /// Microchip LAN966x, a switch whose ports share one list.
        Lan966x = "lan966x",
    }
}

/// Where the limits of a device end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Profile {
    /// As its maker writes it.
    pub title: &'static str,
    /// Queues of each port.
    pub queues: u64,
    /// The longest list of gate states of one port; 0: no gates.
    pub gate_entries: Option<u64>,
    /// So many gate states there are for all ports of the device together.
    pub shared_entries: Option<u64>,
    /// The shortest state.
    pub interval_min: Span,
    /// The longest state.
    pub interval_max: Option<Span>,
    /// States begin at multiples of this.
    pub granularity: Span,
    /// The longest cycle.
    pub cycle_max: Option<Span>,
    /// How often a queue opens in a cycle.
    pub openings: Option<u64>,
    /// Whether it has launch times, and how long before it is given each when the file does not
    /// say; without one, only where the file asks for them.
    pub launch_time: Option<Option<Span>>,
    /// Whether the device opens the gates, not the kernel.
    pub offload: bool,
    /// Whether the first of its queues goes before the others.
    pub first_queue_first: bool,
    /// No two gates of different ports change at the same instant, and cycles are multiples of each
    /// other.
    pub exclusive_changes: bool,
    /// Where this is written.
    pub source: &'static str,
}

record! {
    /// What the ports of a station or bridge can do. Only a planner asks for it. With a `model`
    /// what is left out is as that device has it, and the rest may only be less.
    struct DeviceDraft {
        /// A device whose limits are known.
        model: Option<DeviceModel>,
        /// Queues of each port. Without it, 8.
        queues: Option<Count<1, 8>>,
        /// The longest list of gate states; 0: no gates. Without the key, any.
        gate_entries: Option<Count<0, 1000000>>,
        /// The shortest state. Without it, 1ns.
        interval_min: Option<Span>,
        /// The longest state; without it, any.
        interval_max: Option<Span>,
        /// States begin at multiples of this. Without it, 1ns.
        granularity: Option<Span>,
        /// The longest cycle of the gates; without it, any.
        cycle_max: Option<Span>,
        /// How often a queue opens in a cycle, at most; without it, any.
        openings: Option<Count<1, 1000000>>,
        /// It sends frames at launch times, and is given each so long before.
        launch_time: Option<Span>,
        /// The NICs open gates and keep launch times; without it, the kernel does.
        offload: Option<bool>,
    }
}

/// What the ports of a station or bridge can do: `i210`, or a group of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NetDevice {
    /// A device whose limits are known. The others are no wider.
    pub model: Option<DeviceModel>,
    /// Queues of each port.
    pub queues: Count<1, 8>,
    /// The longest list of gate states of all ports together, as far as one is known.
    pub shared_entries: Option<u64>,
    /// The longest list of gate states; 0: no gates.
    pub gate_entries: Option<Count<0, 1000000>>,
    /// The shortest state. For `taprio` the links decide as well.
    pub interval_min: Span,
    /// The longest state.
    pub interval_max: Option<Span>,
    /// States begin at multiples of this.
    pub granularity: Span,
    /// The longest cycle of the gates.
    pub cycle_max: Option<Span>,
    /// How often a queue opens in a cycle, at most.
    pub openings: Option<Count<1, 1000000>>,
    /// It sends frames at launch times, and is given each so long before.
    pub launch_time: Option<Span>,
    /// The NICs open gates and keep launch times, not the kernel.
    pub offload: bool,
}

impl NetDevice {
    /// Whether the file says nothing of it.
    pub fn is_any(&self) -> bool {
        *self == NetDevice::of(&DeviceDraft::EMPTY)
    }

    /// The limits of its model.
    pub fn profile(&self) -> Option<Profile> {
        self.model.map(DeviceModel::profile)
    }

    fn of(draft: &DeviceDraft) -> NetDevice {
        let any = Profile { offload: false, launch_time: Some(None), ..Profile::ANY };
        let profile = draft.model.map_or(any, DeviceModel::profile);
        let entries = draft.gate_entries.map(Count::get).or(profile.gate_entries);
        let openings = draft.openings.map(Count::get).or(profile.openings);
        NetDevice {
            model: draft.model,
            queues: draft.queues.unwrap_or(Count::clamped(profile.queues)),
            shared_entries: profile.shared_entries,
            gate_entries: entries.map(Count::clamped),
            interval_min: draft.interval_min.unwrap_or(profile.interval_min),
            interval_max: draft.interval_max.or(profile.interval_max),
            granularity: draft.granularity.unwrap_or(profile.granularity),
            cycle_max: draft.cycle_max.or(profile.cycle_max),
            openings: openings.map(Count::clamped),
            launch_time: draft.launch_time.or(profile.launch_time.flatten()),
            offload: draft.offload.unwrap_or(profile.offload),
        }
    }
}

/// Refuses what the model does not have.
fn compare(draft: &DeviceDraft, profile: &Profile, reader: &mut Reader) {
    let path = reader.path().to_owned();
    let title = profile.title;
    let mut refuse = |key: &str, message: String, hint: String| {
        reader.fail_at(&format!("{path}.{key}"), message, &hint);
    };
    let counts = [
        ("queues", draft.queues.map(Count::get), Some(profile.queues), "queues"),
        ("gate_entries", draft.gate_entries.map(Count::get), profile.gate_entries, "gate states"),
        ("openings", draft.openings.map(Count::get), profile.openings, "openings in a cycle"),
    ];
    for (key, asked, most, what) in counts {
        if let (Some(asked), Some(most)) = (asked, most)
            && asked > most
        {
            let message = format!("the {title} has {most} {what}, fewer than {asked}");
            refuse(key, message, format!("write at most {most}, or leave it out"));
        }
    }
    let longest = [
        ("interval_max", draft.interval_max, profile.interval_max, "state"),
        ("cycle_max", draft.cycle_max, profile.cycle_max, "cycle"),
    ];
    for (key, asked, most, what) in longest {
        if let (Some(asked), Some(most)) = (asked, most)
            && asked > most
        {
            let message = format!("the longest {what} of the {title} is {most}");
            refuse(key, message, format!("write at most {most}, or leave it out"));
        }
    }
    if let Some(asked) = draft.interval_min.filter(|asked| *asked < profile.interval_min) {
        let least = profile.interval_min;
        let message = format!("{asked} is shorter than any state of the {title}");
        refuse("interval_min", message, format!("write at least {least}, or leave it out"));
    }
    let grain = profile.granularity;
    if let Some(asked) = draft.granularity.filter(|it| it.as_ns() % grain.as_ns() != 0) {
        let message = format!("{asked} is no multiple of {grain}, the step of the {title}");
        refuse("granularity", message, format!("write a multiple of {grain}, or leave it out"));
    }
    if draft.launch_time.is_some() && profile.launch_time.is_none() {
        let message = format!("the {title} has no launch times");
        refuse("launch_time", message, "leave it out".to_owned());
    }
    if draft.offload.is_some_and(|asked| asked != profile.offload) {
        let (message, hint) = if profile.offload {
            let software = "write `model: taprio` when the kernel does, for any NIC";
            (
                format!("with `model`, the {title} itself opens gates and keeps launch times"),
                software,
            )
        } else {
            let nic = "write the model of the NIC, or its limits without a `model`";
            (format!("{title} is the kernel's, and no NIC does its work"), nic)
        };
        refuse("offload", message, hint.to_owned());
    }
}

impl Item for NetDevice {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        if matches!(node.value, Value::Scalar { .. }) {
            let model = Some(DeviceModel::read(node, reader)?);
            return Some(NetDevice::of(&DeviceDraft { model, ..DeviceDraft::EMPTY }));
        }
        let draft = DeviceDraft::read(node, reader)?;
        if let Some(model) = draft.model {
            compare(&draft, &model.profile(), reader);
        }
        Some(NetDevice::of(&draft))
    }
    fn emit(&self) -> Option<Json> {
        let draft = DeviceDraft {
            model: self.model,
            queues: Some(self.queues),
            gate_entries: self.gate_entries,
            interval_min: Some(self.interval_min),
            interval_max: self.interval_max,
            granularity: Some(self.granularity),
            cycle_max: self.cycle_max,
            openings: self.openings,
            launch_time: self.launch_time,
            offload: Some(self.offload),
        };
        draft.emit()
    }
    fn schema() -> Json {
        let mut named = DeviceModel::schema();
        named["description"] = json!("A device whose limits are known.");
        json!({"anyOf": [named, DeviceDraft::schema()]})
    }
}

impl DeviceDraft {
    const EMPTY: DeviceDraft = DeviceDraft {
        model: None,
        queues: None,
        gate_entries: None,
        interval_min: None,
        interval_max: None,
        granularity: None,
        cycle_max: None,
        openings: None,
        launch_time: None,
        offload: None,
    };
}

impl fmt::Display for DeviceModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.profile().title)
    }
}

impl DeviceModel {
    /// All of them.
    pub const ALL: [DeviceModel; 8] = [
        DeviceModel::Taprio,
        DeviceModel::I210,
        DeviceModel::I225,
        DeviceModel::I226,
        DeviceModel::Ls1028a,
        DeviceModel::Sja1105,
        DeviceModel::Sja1110,
        DeviceModel::Lan966x,
    ];

    /// What it can do.
    pub fn profile(self) -> Profile {
        match self {
            // The shortest state depends on the link: see `Profile::taprio_state`.
            DeviceModel::Taprio => Profile {
                title: "taprio in software",
                cycle_max: Some(Span::from_ns(i64::from(i32::MAX))),
                launch_time: Some(None),
                offload: false,
                source: "linux v6.12.117 net/sched/sch_taprio.c:fill_sched_entry (a state lets 60 \
                         bytes go), parse_taprio_schedule (a cycle is at most INT_MAX ns)",
                ..Profile::ANY
            },
            DeviceModel::I210 => Profile {
                title: "I210",
                queues: 4,
                gate_entries: Some(0),
                launch_time: Some(Some(Span::from_us(300))),
                first_queue_first: true,
                source: "linux v6.12.117 drivers/net/ethernet/intel/igb/igb_main.c:\
                         igb_offload_txtime (launch times on queues 0 and 1 only), igb_setup_tc \
                         (no taprio)",
                ..Profile::ANY
            },
            DeviceModel::I225 => Profile::igc("I225"),
            DeviceModel::I226 => Profile::igc("I226"),
            DeviceModel::Ls1028a => Profile {
                title: "LS1028A",
                gate_entries: Some(63),
                interval_min: Span::from_ns(35),
                cycle_max: Some(Span::from_secs(1)),
                source: "linux v6.12.117 drivers/net/dsa/ocelot/felix_vsc9959.c: \
                         VSC9959_TAS_GCL_ENTRY_MAX, VSC9959_TAS_MIN_GATE_LEN_NS, \
                         vsc9959_qos_port_tas_set",
                ..Profile::ANY
            },
            DeviceModel::Sja1105 => Profile::sja("SJA1105", 1_024),
            DeviceModel::Sja1110 => Profile::sja("SJA1110", 4_096),
            DeviceModel::Lan966x => Profile {
                title: "LAN966x",
                gate_entries: Some(256),
                shared_entries: Some(256),
                interval_min: Span::from_us(1),
                interval_max: Some(Span::from_ns(999_999_999)),
                cycle_max: Some(Span::from_ns(999_999_999)),
                source: "linux v6.12.117 drivers/net/ethernet/microchip/lan966x/lan966x_taprio.c:\
                         lan966x_taprio_check, LAN966X_TAPRIO_NUM_GCL",
                ..Profile::ANY
            },
        }
    }
}

impl Profile {
    /// Eight queues, and gates without limits that the device opens.
    const ANY: Profile = Profile {
        title: "",
        queues: 8,
        gate_entries: None,
        shared_entries: None,
        interval_min: Span::from_ns(1),
        interval_max: None,
        granularity: Span::from_ns(1),
        cycle_max: None,
        openings: None,
        launch_time: None,
        offload: true,
        first_queue_first: false,
        exclusive_changes: false,
        source: "",
    };

    fn igc(title: &'static str) -> Profile {
        Profile {
            title,
            queues: 4,
            openings: Some(1),
            launch_time: Some(None),
            first_queue_first: true,
            source: "linux v6.12.117 drivers/net/ethernet/intel/igc/igc_main.c:\
                     validate_schedule (a queue opens once in a list), igc.h:IGC_MAX_TX_QUEUES",
            ..Profile::ANY
        }
    }

    fn sja(title: &'static str, entries: u64) -> Profile {
        Profile {
            title,
            gate_entries: Some(entries),
            shared_entries: Some(entries),
            interval_min: Span::from_ns(200),
            interval_max: Some(Span::from_ns(((1 << 18) - 1) * 200)),
            granularity: Span::from_ns(200),
            exclusive_changes: true,
            source: "linux v6.12.117 drivers/net/dsa/sja1105/sja1105_tas.c:\
                     sja1105_setup_tc_taprio, sja1105_tas_check_conflicts; sja1105_tas.h: \
                     SJA1105_TAS_MAX_DELTA; sja1105_static_config.h: \
                     SJA1105_MAX_SCHEDULE_COUNT, SJA1110_MAX_SCHEDULE_COUNT",
            ..Profile::ANY
        }
    }
}
