// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Gates of ports as instance data of YANG, read back: what a bridge, or an end station, was told
//! or does. What is there and is not interpreted is told beside it.
//!
//! **Source**: module `ieee802-dot1q-sched` of 2023-10-22 (IEEE 802.1Qcw-2023), below a bridge port
//! by `ieee802-dot1q-sched-bridge` or below an interface by `ieee802-dot1dc-sched-if`; the table of
//! traffic classes of `ieee802-dot1q-types` of 2023-10-22, and the list that it replaces. Intervals
//! are nanoseconds, cycles a fraction of a second. Of the drafts before 802.1Qcw, as devices have
//! them: `gate-parameters` and `max-sdu-table` below an interface, where `fractional-seconds` are
//! nanoseconds.

use std::collections::BTreeSet;

use timewire_base::Span;
use timewire_model::unread::Unread;

use super::csv::quoted;
use super::instance::{Data, Document, InstanceError};
use super::uni::fraction;

const SCHED: &str = "ieee802-dot1q-sched";
/// All modules that have names here.
const MODULES: &[&str] = &[
    "ietf-interfaces",
    "ieee802-dot1q-bridge",
    "ieee802-dot1q-sched-bridge",
    "ieee802-dot1dc-sched-if",
    SCHED,
];
const MAX_32: u64 = 0xffff_ffff;

/// The gates of one interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceGates {
    /// Its name.
    pub interface: String,
    /// When a cycle begins. **Units**: nanoseconds modulo the cycle.
    pub base: Span,
    /// It repeats with this.
    pub cycle: Span,
    /// By state: bit `n` is set when class `n` may send; and how long it lasts.
    pub entries: Vec<(u8, Span)>,
    /// By priority: its class, where the table of classes says one.
    pub classes: [Option<u8>; 8],
    /// By class: the longest payload that it sends; 0: any. **Units**: bytes.
    pub max_sdu: [u32; 8],
    /// The rate that the interface says it has. **Units**: bit/s.
    pub speed: Option<u64>,
    /// The longest list that the port says it can have.
    pub entries_max: Option<u32>,
    /// The longest interval that it says it can have.
    pub interval_max: Option<Span>,
    /// The longest cycle that it says it can have.
    pub cycle_max: Option<Span>,
}

/// What instance data say of gates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateReading {
    /// Interfaces whose gates are enabled.
    pub interfaces: Vec<InterfaceGates>,
    /// Why something cannot be judged, in words.
    pub open: Vec<String>,
    /// What is there, was not interpreted, and may change what the gates do.
    pub unread: Vec<Unread>,
}

/// Names without a module, of which it is known that no frame goes sooner or later for them.
const WITHOUT_EFFECT: &[(&str, &[&str])] = &[
    (
        "interfaces/interface",
        &[
            "type",
            "description",
            "link-up-down-trap-enable",
            "if-index",
            "last-change",
            "phys-address",
            "speed",
            "higher-layer-if",
            "lower-layer-if",
            "statistics",
            "ietf-ip:ipv4",
            "ietf-ip:ipv6",
        ],
    ),
    (
        "interfaces/interface/bridge-port",
        &[
            "bridge-name",
            "component-name",
            "port-number",
            "port-type",
            "address",
            "capabilities",
            "type-capabilties",
            "external",
            "acceptable-frame",
            "enable-ingress-filtering",
            "statistics",
        ],
    ),
    ("interfaces/interface/bridge-port/gate-parameter-table", TABLE_WITHOUT_EFFECT),
    ("interfaces/interface/gate-parameter-table", TABLE_WITHOUT_EFFECT),
    ("interfaces/interface/gate-parameters", TABLE_WITHOUT_EFFECT),
];
/// While a list is carried out, the states before it do not count.
const TABLE_WITHOUT_EFFECT: &[&str] = &[
    "admin-gate-states",
    "oper-gate-states",
    "admin-cycle-time-extension",
    "oper-cycle-time-extension",
    "config-change-time",
    "config-change-error",
    "tick-granularity",
    "current-time",
];

fn is_without_effect(path: &str) -> bool {
    let Some((above, last)) = path.trim_start_matches('/').rsplit_once('/') else { return false };
    let plain = |name: &str| match name.split_once(':') {
        Some((module, name)) if MODULES.contains(&module) => name.to_owned(),
        _ => name.to_owned(),
    };
    let above: Vec<String> = above.split('/').map(plain).collect();
    let (above, last) = (above.join("/"), plain(last));
    // Around it there may be what an answer of a device has around its data.
    let is_it = |own: &str| above == own || above.ends_with(&format!("/{own}"));
    let known = WITHOUT_EFFECT.iter().find(|(own, _)| is_it(own));
    known.is_some_and(|(_, names)| names.contains(&last.as_str()))
}

/// The gates of all interfaces that have some; one whose gates are not enabled has none.
///
/// **Errors**: the first mistake, with its place and what would be right.
pub fn read_gates(file: &str, bytes: &[u8]) -> Result<GateReading, InstanceError> {
    let document = Document::parse(file, bytes)?;
    let interfaces = document.root().needed(MODULES, "interfaces")?;
    let mut reading = GateReading { interfaces: Vec::new(), open: Vec::new(), unread: Vec::new() };
    let mut names = BTreeSet::new();
    for interface in interfaces.list(MODULES, "interface")? {
        let name = interface.needed(MODULES, "name")?;
        if !names.insert(name.text()?) {
            return Err(name.error("it was there before", "each interface once"));
        }
        self::interface(name.text()?, &interface, &mut reading)?;
    }
    reading.unread = document.unread();
    reading.unread.retain(|it| !is_without_effect(&it.path));
    Ok(reading)
}

fn interface(name: &str, of: &Data, reading: &mut GateReading) -> Result<(), InstanceError> {
    let port = of.child(MODULES, "bridge-port")?;
    let classes = port.as_ref().map_or(Ok([None; 8]), classes)?;
    let speed = of.child(MODULES, "speed")?.map(|it| it.long_number()).transpose()?;
    let enabled = of.child(MODULES, "enabled")?;
    let is_up = |leaf: &str| -> Result<bool, InstanceError> {
        let leaf = of.child(MODULES, leaf)?;
        leaf.map_or(Ok(true), |leaf| Ok(leaf.text()? == "up"))
    };
    let up = enabled.map_or(Ok(true), |it| it.boolean())?;
    if !(up && is_up("admin-status")? && is_up("oper-status")?) {
        reading.open.push(format!("{name} is not enabled or not up"));
    }
    let mut tables = Vec::new();
    for (place, model) in [(port.as_ref(), Model::Current), (Some(of), Model::Current)] {
        let table = place.map(|it| it.child(MODULES, "gate-parameter-table")).transpose()?;
        tables.extend(table.flatten().map(|table| (table, model)));
    }
    tables.extend(of.child(MODULES, "gate-parameters")?.map(|table| (table, Model::Older)));
    let older_sdu = max_sdu(of, "max-sdu-table")?;
    let Some((table, model)) = tables.first() else { return Ok(()) };
    if let Some((second, _)) = tables.get(1) {
        return Err(second.error("it is the second table of gates there", "one of the models"));
    }
    let told = told(table, *model)?;
    let enabled = table.child(MODULES, "gate-enabled")?;
    if !enabled.map_or(Ok(false), |enabled| enabled.boolean())? {
        if told.is_some() {
            reading.open.push(format!("{name} has a list of gate states that is not enabled"));
        }
        return Ok(());
    }
    let Some((told, differs)) = told else {
        reading
            .open
            .push(format!("the gates of {name} are enabled, and no list of states is there"));
        return Ok(());
    };
    if let Some(why) = differs {
        reading.open.push(format!("{name}: {why}"));
    }
    let own_sdu = max_sdu(table, "queue-max-sdu-table")?;
    let number = |name: &str| -> Result<Option<u64>, InstanceError> {
        table.child(MODULES, name)?.map(|it| it.number(0, MAX_32)).transpose()
    };
    let entries_max = number("supported-list-max")?;
    let interval_max = number("supported-interval-max")?;
    let cycle_max = table.child(MODULES, "supported-cycle-max")?;
    reading.interfaces.push(InterfaceGates {
        interface: name.to_owned(),
        base: told.base,
        cycle: told.cycle,
        entries: told.entries,
        classes,
        max_sdu: if *model == Model::Older { older_sdu } else { own_sdu },
        speed,
        entries_max: entries_max.map(|most| u32::try_from(most).unwrap_or(u32::MAX)),
        interval_max: interval_max.map(nanoseconds),
        cycle_max: cycle_max.map(|cycle| rational(&cycle)).transpose()?,
    });
    Ok(())
}

/// How a table has its list.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Model {
    /// As 802.1Qcw: a container with a list.
    Current,
    /// As the drafts before it: a list, and how much of it counts.
    Older,
}

/// A list and its cycle.
#[derive(PartialEq, Eq)]
struct GateList {
    base: Span,
    cycle: Span,
    entries: Vec<(u8, Span)>,
}

/// What a port was told, or else what it does; and why these are not the same, where they are not.
fn told(
    table: &Data,
    model: Model,
) -> Result<Option<(GateList, Option<&'static str>)>, InstanceError> {
    let admin = one(table, model, "admin")?;
    let oper = one(table, model, "oper")?;
    let yes = |name: &str| -> Result<Option<bool>, InstanceError> {
        table.child(MODULES, name)?.map(|it| it.boolean()).transpose()
    };
    let (change, pending) = (yes("config-change")?, yes("config-pending")?);
    Ok(match (admin, oper) {
        (None, None) => None,
        (Some(told), Some(does)) => {
            let why = "what it was told (admin) is not what it does (oper); the former was judged";
            let differs = told != does;
            Some((told, differs.then_some(why)))
        }
        (Some(told), None) if change == Some(false) || pending == Some(true) => {
            Some((told, Some("what it was told is not in force")))
        }
        (told, does) => told.or(does).map(|told| (told, None)),
    })
}

fn one(table: &Data, model: Model, kind: &str) -> Result<Option<GateList>, InstanceError> {
    let name = format!("{kind}-control-list");
    let Some(list) = table.child(MODULES, &name)? else { return Ok(None) };
    let entries = match model {
        Model::Current => entries(&list, list.list(MODULES, "gate-control-entry")?, model)?,
        Model::Older => entries(&list, table.list(MODULES, &name)?, model)?,
    };
    if let Some(length) = table.child(MODULES, &format!("{name}-length"))? {
        let count = length.number(0, MAX_32)?;
        if usize::try_from(count) != Ok(entries.len()) {
            let what = format!("{count} entries count, and the list has {}", entries.len());
            return Err(length.error(what, "as many entries as count"));
        }
    }
    let sum = entries.iter().try_fold(Span::ZERO, |sum, (_, lasts)| sum.checked_add(*lasts));
    let sum = sum.ok_or_else(|| list.error("it is too long", "intervals below 2^32 ns"))?;
    let cycle = match table.child(MODULES, &format!("{kind}-cycle-time"))? {
        Some(cycle) => rational(&cycle)?,
        None => sum,
    };
    let base = match table.child(MODULES, &format!("{kind}-base-time"))? {
        Some(base) => base_time(&base, cycle)?,
        None => Span::ZERO,
    };
    Ok(Some(GateList { base, cycle, entries }))
}

fn nanoseconds(ns: u64) -> Span {
    Span::from_ns(i64::try_from(ns).unwrap_or(i64::MAX))
}

fn entries(of: &Data, all: Vec<Data>, model: Model) -> Result<Vec<(u8, Span)>, InstanceError> {
    let mut numbered = Vec::new();
    for entry in all {
        let index = entry.needed(MODULES, "index")?.number(0, MAX_32)?;
        let operation = entry.needed(MODULES, "operation-name")?;
        // An identity: its module is before it in JSON, and some prefix in XML.
        let (prefix, name) =
            operation.text()?.split_once(':').unwrap_or((SCHED, operation.text()?));
        let is_own = prefix == SCHED || operation.is_xml() && !prefix.contains(char::is_whitespace);
        if !is_own
            || !["set-gate-states", "set-and-hold-mac", "set-and-release-mac"].contains(&name)
        {
            let remedy = "set-gate-states, set-and-hold-mac or set-and-release-mac";
            let what = format!("{} is no operation", quoted(operation.text()?));
            return Err(operation.error(what, remedy));
        }
        let values = match model {
            Model::Current => entry,
            Model::Older => entry.needed(MODULES, "sgs-params")?,
        };
        let lasts = values.needed(MODULES, "time-interval-value")?.number(1, MAX_32)?;
        let open = values.needed(MODULES, "gate-states-value")?.number(0, 255)?;
        numbered.push((index, u8::try_from(open).unwrap_or(u8::MAX), nanoseconds(lasts)));
    }
    if numbered.is_empty() {
        return Err(of.error("it is empty", "a list of entries"));
    }
    numbered.sort_by_key(|(index, ..)| *index);
    if numbered.windows(2).any(|pair| pair[0].0 == pair[1].0) {
        return Err(of.error("two entries have one index", "each index once"));
    }
    Ok(numbered.into_iter().map(|(_, open, lasts)| (open, lasts)).collect())
}

fn rational(at: &Data) -> Result<Span, InstanceError> {
    let numerator = at.needed(MODULES, "numerator")?.number(1, MAX_32)?;
    let denominator = at.needed(MODULES, "denominator")?.number(1, MAX_32)?;
    fraction(at, numerator, denominator)
}

/// Where in a cycle that begins with the epoch the given one begins.
fn base_time(at: &Data, cycle: Span) -> Result<Span, InstanceError> {
    let seconds = at.child(MODULES, "seconds")?.map_or(Ok(0), |it| it.long_number())?;
    let mut ns = 0;
    for name in ["nanoseconds", "fractional-seconds"] {
        if let Some(leaf) = at.child(MODULES, name)? {
            ns = leaf.long_number()?;
            if ns > 999_999_999 {
                return Err(leaf.error(format!("{ns} is out of its bounds"), "0 to 999999999"));
            }
        }
    }
    let since = u128::from(seconds) * 1_000_000_000 + u128::from(ns);
    let cycle = u128::from(cycle.as_ns().unsigned_abs().max(1));
    Ok(nanoseconds(u64::try_from(since % cycle).unwrap_or(0)))
}

/// The longest payload of each class.
fn max_sdu(of: &Data, name: &str) -> Result<[u32; 8], InstanceError> {
    let mut all = [0; 8];
    for row in of.list(MODULES, name)? {
        let class = row.needed(MODULES, "traffic-class")?.number(0, 7)?;
        let bytes = row.child(MODULES, "queue-max-sdu")?;
        let bytes = bytes.map_or(Ok(0), |it| it.number(0, MAX_32))?;
        row.child(MODULES, "transmission-overrun")?;
        all[usize::try_from(class).unwrap_or(7)] = u32::try_from(bytes).unwrap_or(u32::MAX);
    }
    Ok(all)
}

/// The class of each priority: by the table, or by the list that it replaced, for as many classes
/// as the port has at most.
fn classes(port: &Data) -> Result<[Option<u8>; 8], InstanceError> {
    let mut classes = [None; 8];
    let Some(table) = port.child(MODULES, "traffic-class")? else { return Ok(classes) };
    for entry in table.list(MODULES, "traffic-class-map")? {
        let priority = entry.needed(MODULES, "priority")?.number(0, 7)?;
        let mut most = 0;
        for one in entry.list(MODULES, "available-traffic-class")? {
            let count = one.needed(MODULES, "num-traffic-class")?.number(1, 8)?;
            let class = one.needed(MODULES, "traffic-class")?.number(0, 7)?;
            if count > most {
                most = count;
                classes[usize::try_from(priority).unwrap_or(7)] = u8::try_from(class).ok();
            }
        }
    }
    let Some(table) = table.child(MODULES, "traffic-class-table")? else { return Ok(classes) };
    let count = table.child(MODULES, "number-of-traffic-classes")?;
    let count = count.map_or(Ok(8), |it| it.number(1, 8))?;
    for (priority, class) in classes.iter_mut().enumerate() {
        let Some(leaf) = table.child(MODULES, &format!("priority{priority}"))? else { continue };
        let told = u8::try_from(leaf.number(0, count - 1)?).ok();
        if class.is_some() && *class != told {
            let what = "it contradicts the list traffic-class-map";
            return Err(leaf.error(what, "the table alone"));
        }
        *class = told;
    }
    Ok(classes)
}
