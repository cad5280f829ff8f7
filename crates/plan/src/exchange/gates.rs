// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Gates of ports as instance data of YANG, read back: what a bridge, or an end station, was told
//! or does.
//!
//! **Source**: module `ieee802-dot1q-sched` of 2023-10-22 (IEEE 802.1Qcw-2023), below a bridge port
//! by `ieee802-dot1q-sched-bridge` or below an interface by `ieee802-dot1dc-sched-if`; the table of
//! traffic classes of `ieee802-dot1q-bridge`. Intervals are nanoseconds, cycles a fraction of a
//! second.
//!
//! Not here: whether frames pass (`crate::check`); frame preemption, queue-max-sdu.

use timewire_base::Span;

use super::instance::{self, Data, InstanceError};
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
const MOST_32: u64 = 0xffff_ffff;

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
    /// The longest list that the port says it can have.
    pub entries_max: Option<u32>,
    /// The longest interval that it says it can have.
    pub interval_max: Option<Span>,
    /// The longest cycle that it says it can have.
    pub cycle_max: Option<Span>,
}

/// The gates of all interfaces that have some; one whose gates are not enabled has none.
///
/// **Errors**: the first mistake, with its place and what would be right.
pub fn read_gates(file: &str, bytes: &[u8]) -> Result<Vec<InterfaceGates>, InstanceError> {
    let value = instance::parse(file, bytes)?;
    let interfaces = Data::root(file, &value).needed(MODULES, "interfaces")?;
    let mut all: Vec<InterfaceGates> = Vec::new();
    for interface in interfaces.list(MODULES, "interface")? {
        let name = interface.needed(MODULES, "name")?;
        let port = interface.child(MODULES, "bridge-port")?;
        let table = port.as_ref().unwrap_or(&interface).child(MODULES, "gate-parameter-table")?;
        let Some(table) = table else { continue };
        let enabled = table.child(MODULES, "gate-enabled")?;
        if !enabled.map_or(Ok(false), |enabled| enabled.boolean())? {
            continue;
        }
        if all.iter().any(|other| other.interface == name.text().unwrap_or_default()) {
            return Err(name.error("it was there before", "each interface once"));
        }
        all.push(gates(name.text()?, &table, port.as_ref())?);
    }
    Ok(all)
}

fn gates(name: &str, table: &Data, port: Option<&Data>) -> Result<InterfaceGates, InstanceError> {
    // What was told, or else what runs.
    let told = table.child(MODULES, "admin-control-list")?.is_some();
    let kind = if told { "admin" } else { "oper" };
    let list = table.needed(MODULES, &format!("{kind}-control-list"))?;
    let entries = entries(&list)?;
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
    let number = |name: &str| -> Result<Option<u64>, InstanceError> {
        table.child(MODULES, name)?.map(|it| it.number(0, MOST_32)).transpose()
    };
    let entries_max = number("supported-list-max")?;
    let interval_max = number("supported-interval-max")?;
    let cycle_max = table.child(MODULES, "supported-cycle-max")?;
    Ok(InterfaceGates {
        interface: name.to_owned(),
        base,
        cycle,
        entries,
        classes: port.map_or(Ok([None; 8]), classes)?,
        entries_max: entries_max.map(|most| u32::try_from(most).unwrap_or(u32::MAX)),
        interval_max: interval_max.map(nanoseconds),
        cycle_max: cycle_max.map(|cycle| rational(&cycle)).transpose()?,
    })
}

fn nanoseconds(ns: u64) -> Span {
    Span::from_ns(i64::try_from(ns).unwrap_or(i64::MAX))
}

fn entries(list: &Data) -> Result<Vec<(u8, Span)>, InstanceError> {
    let mut numbered = Vec::new();
    for entry in list.list(MODULES, "gate-control-entry")? {
        let index = entry.needed(MODULES, "index")?.number(0, MOST_32)?;
        let operation = entry.needed(MODULES, "operation-name")?;
        let name = operation.text()?.rsplit(':').next().unwrap_or_default();
        if !["set-gate-states", "set-and-hold-mac", "set-and-release-mac"].contains(&name) {
            let remedy = "set-gate-states, set-and-hold-mac or set-and-release-mac";
            return Err(operation.error(format!("`{name}` is no operation"), remedy));
        }
        let lasts = entry.needed(MODULES, "time-interval-value")?.number(1, MOST_32)?;
        let open = entry.needed(MODULES, "gate-states-value")?.number(0, 255)?;
        numbered.push((index, u8::try_from(open).unwrap_or(u8::MAX), nanoseconds(lasts)));
    }
    if numbered.is_empty() {
        return Err(list.error("it is empty", "a list `gate-control-entry`"));
    }
    numbered.sort_by_key(|(index, ..)| *index);
    if numbered.windows(2).any(|pair| pair[0].0 == pair[1].0) {
        return Err(list.error("two entries have one index", "each index once"));
    }
    Ok(numbered.into_iter().map(|(_, open, lasts)| (open, lasts)).collect())
}

fn rational(at: &Data) -> Result<Span, InstanceError> {
    let numerator = at.needed(MODULES, "numerator")?.number(1, MOST_32)?;
    let denominator = at.needed(MODULES, "denominator")?.number(1, MOST_32)?;
    fraction(at, numerator, denominator)
}

/// Where in a cycle that begins with the epoch the given one begins.
fn base_time(at: &Data, cycle: Span) -> Result<Span, InstanceError> {
    let seconds = at.child(MODULES, "seconds")?.map_or(Ok(0), |it| it.long_number())?;
    let ns = at.child(MODULES, "nanoseconds")?.map_or(Ok(0), |it| it.number(0, 999_999_999))?;
    let since = u128::from(seconds) * 1_000_000_000 + u128::from(ns);
    let cycle = u128::from(cycle.as_ns().unsigned_abs().max(1));
    Ok(nanoseconds(u64::try_from(since % cycle).unwrap_or(0)))
}

/// The class of each priority, for as many classes as the port has at most.
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
    Ok(classes)
}
