// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `tc -j qdisc show` prints, of iproute2 6.1 and of newer ones: the disciplines as the kernel
//! has them.

use serde::Serialize;
use serde_json::{Map, Value};
use timewire_base::{GateMask, IfName, Span, TrafficClass, TxQueue};

use super::class::PRIORITIES;
use super::command::{parse_handle, parse_place};
use super::etf::on_off;
use super::words::integer;
use super::{
    Cbs, ClassRate, Etf, EtfFlags, FramePreemption, GateControlEntry, GateOperation, Handle,
    Mqprio, MqprioHardware, MqprioOptions, MqprioShaper, Qdisc, QdiscError, QdiscKind,
    QdiscPosition, QueueRange, SizeTable, Taprio, TaprioMode, TaprioOptions, TrafficClasses,
};
use timewire_model::unread::{Seen, Unread};

/// One discipline of an interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ShownQdisc {
    /// Its kind, also when it is none of the four.
    pub kind: String,
    /// On which interface; `None` when only one was asked about.
    pub device: Option<IfName>,
    /// Its name; `None` for one that the kernel put there by itself.
    pub handle: Option<Handle>,
    /// Where it stands.
    pub place: Option<QdiscPosition>,
    /// What is added to the length of each frame. `tc` prints it with `-d` only.
    pub size_table: Option<SizeTable>,
    /// What runs now; `None` when it is none of the four, or a `taprio` that has yet to start.
    pub oper: Option<Qdisc>,
    /// What `taprio` will run from its base time on.
    pub admin: Option<Taprio>,
    /// The longest payload of each class that `taprio` lets through, in bytes; 0 is no bound. It is
    /// the least of what was set and what the gates leave room for: the kernel does not tell apart.
    #[serde(rename = "max_sdu_in_force_bytes")]
    pub max_sdu_in_force: Vec<u32>,
    /// Settings that `tc` does not print as they were given; read here as their default.
    pub unshown: Vec<&'static str>,
    /// What `tc` printed of it and was not interpreted, without counters, which change nothing.
    #[serde(skip)]
    pub unread: Vec<Unread>,
}

/// What `tc` prints beside the settings: counters, and where a discipline is carried out.
const WITHOUT_EFFECT: &[&str] = &[
    "/refcnt",
    "/offloaded",
    "/bytes",
    "/packets",
    "/drops",
    "/overlimits",
    "/requeues",
    "/backlog",
    "/qlen",
];

impl ShownQdisc {
    /// The text that `tc -j qdisc show` or `tc -j -d qdisc show` printed.
    ///
    /// **Shape**: one for each discipline, in the order of `tc`.
    ///
    /// **Errors**: text of another kind; a discipline of the four that Linux would refuse.
    pub fn parse(text: &str) -> Result<Vec<ShownQdisc>, QdiscError> {
        let list = ShownQdisc::objects(text)?;
        list.iter().enumerate().map(|(index, one)| read(&format!("[{index}]"), one)).collect()
    }

    /// The same text as JSON, with every key that `tc` printed; also of a `taprio` that has yet to
    /// start, for which iproute2 6.1 prints no JSON.
    ///
    /// **Errors**: text of another kind.
    pub fn objects(text: &str) -> Result<Vec<Value>, QdiscError> {
        let name = "the whole text";
        let value: Value = serde_json::from_str(&name_admin(text))
            .map_err(|error| wrong(name, &error.to_string()))?;
        match value {
            Value::Array(list) => Ok(list),
            _ => Err(wrong(name, "is no list")),
        }
    }

    /// One of the objects.
    ///
    /// **Errors**: a discipline of the four that Linux would refuse.
    pub fn of_object(object: &Value) -> Result<ShownQdisc, QdiscError> {
        read("it", object)
    }

    /// What was last set: the schedule that waits for its base time, or what runs.
    pub fn configured(&self) -> Option<Qdisc> {
        self.admin.clone().map(Qdisc::Taprio).or_else(|| self.oper.clone())
    }
}

fn wrong(at: &str, why: &str) -> QdiscError {
    QdiscError::Json { at: at.to_owned(), why: why.to_owned() }
}

/// iproute2 6.1 prints the schedule that waits as an object without a name inside another object,
/// which is no JSON; newer ones call it `admin`. Gives it that name.
fn name_admin(text: &str) -> String {
    let mut named = String::with_capacity(text.len() + 8);
    let mut open: Vec<char> = Vec::new();
    let (mut quoted, mut escaped) = (false, false);
    let mut last = ' ';
    for c in text.chars() {
        if quoted {
            quoted = escaped || c != '"';
            escaped = !escaped && c == '\\';
        } else {
            match c {
                '"' => quoted = true,
                '{' | '[' => {
                    if c == '{' && last == ',' && open.last() == Some(&'{') {
                        named.push_str("\"admin\":");
                    }
                    open.push(c);
                }
                '}' | ']' => {
                    open.pop();
                }
                _ => {}
            }
        }
        named.push(c);
        if !c.is_whitespace() {
            last = c;
        }
    }
    named
}

/// An object of the text, where it stands, and what of the text was asked for.
struct Object<'a> {
    at: &'a str,
    map: &'a Map<String, Value>,
    seen: &'a Seen,
}

impl<'a> Object<'a> {
    fn of(at: &'a str, value: &'a Value, seen: &'a Seen) -> Result<Object<'a>, QdiscError> {
        let map = value.as_object().ok_or_else(|| wrong(at, "is no object"))?;
        seen.mark(value);
        Ok(Object { at, map, seen })
    }

    fn get(&self, key: &str) -> Option<&'a Value> {
        let value = self.map.get(key);
        value.into_iter().for_each(|value| self.seen.mark(value));
        value
    }

    fn bad(&self, key: &str, why: &str) -> QdiscError {
        wrong(&format!("{}.{key}", self.at), why)
    }

    fn text(&self, key: &str) -> Result<Option<&'a str>, QdiscError> {
        match self.get(key) {
            None => Ok(None),
            Some(value) => value.as_str().map(Some).ok_or_else(|| self.bad(key, "is no text")),
        }
    }

    fn number(&self, key: &str) -> Result<Option<i64>, QdiscError> {
        match self.get(key) {
            None => Ok(None),
            Some(value) => {
                value.as_i64().map(Some).ok_or_else(|| self.bad(key, "is no whole number"))
            }
        }
    }

    /// `tc` prints times before the epoch as numbers without a sign.
    fn nanoseconds(&self, key: &str) -> Result<Span, QdiscError> {
        match self.get(key).and_then(Value::as_u64) {
            Some(ns) => Ok(Span::from_ns(ns.cast_signed())),
            None => Ok(Span::from_ns(self.number(key)?.unwrap_or(0))),
        }
    }

    fn list(&self, key: &str) -> Result<&'a [Value], QdiscError> {
        match self.get(key) {
            None => Ok(&[]),
            Some(Value::Array(list)) => Ok(list),
            Some(_) => Err(self.bad(key, "is no list")),
        }
    }

    fn numbers(&self, key: &str) -> Result<Vec<u64>, QdiscError> {
        let number = |value: &Value| value.as_u64().ok_or_else(|| self.bad(key, "has no numbers"));
        let list = self.list(key)?;
        list.iter().for_each(|value| self.seen.mark(value));
        list.iter().map(number).collect()
    }

    fn hexadecimal(&self, key: &str) -> Result<Option<u32>, QdiscError> {
        let Some(text) = self.text(key)? else { return Ok(None) };
        let number = integer(text, 0).and_then(|number| u32::try_from(number).ok());
        number.map(Some).ok_or_else(|| self.bad(key, "is no number of 32 bits"))
    }
}

fn read(at: &str, value: &Value) -> Result<ShownQdisc, QdiscError> {
    let seen = Seen::default();
    let mut shown = read_object(&Object::of(at, value, &seen)?)?;
    shown.unread = seen.unread(value);
    shown.unread.retain(|it| !WITHOUT_EFFECT.contains(&it.path.as_str()));
    Ok(shown)
}

fn read_object(object: &Object<'_>) -> Result<ShownQdisc, QdiscError> {
    let at = object.at;
    let kind = object.text("kind")?.ok_or_else(|| wrong(at, "has no kind"))?;
    let handle = object.text("handle")?.map(parse_handle).transpose()?;
    let root = object.get("root").and_then(Value::as_bool) == Some(true);
    let place = match object.text("parent")? {
        _ if root => Some(QdiscPosition::Root),
        Some(parent) => Some(parse_place(parent)?),
        None => None,
    };
    let mut shown = ShownQdisc {
        kind: kind.to_owned(),
        device: object.text("dev")?.map(IfName::new).transpose()?,
        handle: handle.filter(|handle| handle.get() != 0),
        place,
        size_table: size_table(object)?,
        oper: None,
        admin: None,
        max_sdu_in_force: Vec::new(),
        unshown: Vec::new(),
        unread: Vec::new(),
    };
    let Ok(kind) = kind.parse() else { return Ok(shown) };
    let Some(options) = object.get("options") else { return Ok(shown) };
    let at = format!("{at}.options");
    let options = Object::of(&at, options, object.seen)?;
    match kind {
        QdiscKind::Taprio => read_taprio(&options, &mut shown)?,
        QdiscKind::Mqprio => {
            shown.oper = Some(Qdisc::Mqprio(read_mqprio(&options)?));
            shown.unshown.push("hw");
        }
        QdiscKind::Etf => shown.oper = Some(Qdisc::Etf(read_etf(&options)?)),
        QdiscKind::Cbs => shown.oper = Some(Qdisc::Cbs(read_cbs(&options)?)),
    }
    Ok(shown)
}

/// Of the size tables only the one that adds bytes and looks nothing up.
fn size_table(object: &Object<'_>) -> Result<Option<SizeTable>, QdiscError> {
    let Some(value) = object.get("stab") else { return Ok(None) };
    let at = format!("{}.stab", object.at);
    let table = Object::of(&at, value, object.seen)?;
    if let Some(key) = ["mpu", "mtu", "tsize"].into_iter().find(|key| table.map.contains_key(*key))
    {
        return Err(table.bad(key, "is no size table of overhead alone"));
    }
    let overhead = table.number("overhead")?.and_then(|bytes| u16::try_from(bytes).ok());
    overhead.map(|bytes| Some(SizeTable::new(bytes))).ok_or_else(|| wrong(&at, "has no overhead"))
}

fn classes(options: &Object<'_>, queues: Vec<QueueRange>) -> Result<TrafficClasses, QdiscError> {
    let count = options.number("tc")?.and_then(|count| u64::try_from(count).ok());
    let given = options.numbers("map")?;
    if given.len() != PRIORITIES {
        return Err(options.bad("map", "has not 16 numbers"));
    }
    let mut map = [TrafficClass::new(0)?; PRIORITIES];
    for (class, number) in map.iter_mut().zip(given) {
        *class = TrafficClass::new(number)?;
    }
    TrafficClasses::new(count.ok_or_else(|| options.bad("tc", "is no number"))?, map, queues)
}

/// The schedule of `taprio` stands beside its settings, the one that waits in `admin`.
fn read_taprio(options: &Object<'_>, shown: &mut ShownQdisc) -> Result<(), QdiscError> {
    let queues = options.list("queues")?.iter().map(|range| {
        let range = Object::of("options.queues", range, options.seen)?;
        let number = |key| -> Result<u64, QdiscError> {
            let number = range.number(key)?.and_then(|number| u64::try_from(number).ok());
            number.ok_or_else(|| range.bad(key, "is no number"))
        };
        let count = u16::try_from(number("count")?);
        Ok(QueueRange {
            count: count.map_err(|_| range.bad("count", "is more than 65535"))?,
            offset: TxQueue::new(number("offset")?)?,
        })
    });
    let classes = match options.number("tc")? {
        None | Some(0) => None,
        Some(_) => Some(classes(options, queues.collect::<Result<_, QdiscError>>()?)?),
    };
    let max_sdu = options.numbers("max-sdu")?.into_iter().map(|bytes| {
        u32::try_from(bytes).map_err(|_| options.bad("max-sdu", "is more than 32 bits"))
    });
    let mut max_sdu = max_sdu.collect::<Result<Vec<u32>, QdiscError>>()?;
    trim(&mut max_sdu, &0);
    shown.max_sdu_in_force = max_sdu;
    shown.unshown.push("max-sdu");
    let settings = TaprioOptions {
        classes,
        mode: TaprioMode::from_flags(options.hexadecimal("flags")?.unwrap_or(0))?,
        // iproute2 6.1 prints a clock that is not there, of full offload, as `invalid`.
        clock: match options.text("clockid")? {
            None | Some("invalid") => None,
            Some(clock) => Some(clock.parse()?),
        },
        txtime_delay: options.nanoseconds("txtime_delay")?,
        preemption: preemption(options)?,
        ..TaprioOptions::default()
    };
    if !options.list("schedule")?.is_empty() {
        shown.oper = Some(Qdisc::Taprio(Taprio::new(schedule(options, settings.clone())?)?));
    } else {
        // iproute2 6.1 prints zeros of the schedule that is not there.
        for key in ["base_time", "cycle_time", "cycle_time_extension"] {
            if options.map.get(key).and_then(Value::as_u64) == Some(0) {
                options.get(key);
            }
        }
    }
    if let Some(admin) = options.get("admin") {
        let admin = Object::of("options.admin", admin, options.seen)?;
        shown.admin = Some(Taprio::new(schedule(&admin, settings)?)?);
    }
    Ok(())
}

fn schedule(object: &Object<'_>, settings: TaprioOptions) -> Result<TaprioOptions, QdiscError> {
    let entry = |value: &Value| {
        let entry = Object::of("options.schedule", value, object.seen)?;
        entry.get("index");
        let operation = GateOperation::of_letter(entry.text("cmd")?.unwrap_or("S"))
            .ok_or_else(|| entry.bad("cmd", "is none of S, H and R"))?;
        let gates = entry.hexadecimal("gatemask")?;
        let gate_states = GateMask::new(gates.ok_or_else(|| entry.bad("gatemask", "is missing"))?);
        let interval = entry.nanoseconds("interval")?;
        Ok(GateControlEntry { operation, gate_states, interval })
    };
    Ok(TaprioOptions {
        base_time: object.nanoseconds("base_time")?,
        cycle_time: object.nanoseconds("cycle_time")?,
        cycle_time_extension: object.nanoseconds("cycle_time_extension")?,
        entries: object.list("schedule")?.iter().map(entry).collect::<Result<_, QdiscError>>()?,
        ..settings
    })
}

/// The kernel prints all 16; what it takes without being told is left out.
fn preemption(options: &Object<'_>) -> Result<Vec<FramePreemption>, QdiscError> {
    let read = |value: &Value| match value.as_str() {
        Some("E") => Ok(FramePreemption::Express),
        Some("P") => Ok(FramePreemption::Preemptible),
        _ => Err(options.bad("fp", "is neither E nor P")),
    };
    let given = options.list("fp")?;
    given.iter().for_each(|value| options.seen.mark(value));
    let mut list = given.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    trim(&mut list, &FramePreemption::Express);
    Ok(list)
}

fn trim<T: PartialEq>(list: &mut Vec<T>, default: &T) {
    let kept = list.iter().rposition(|value| value != default).map_or(0, |last| last + 1);
    list.truncate(kept);
}

/// `tc` does not print `hw`: a mode of `dcb` is taken for `hw 0`, which prints the same.
fn read_mqprio(options: &Object<'_>) -> Result<Mqprio, QdiscError> {
    let queues = options.list("queues")?;
    queues.iter().for_each(|range| options.seen.mark_all(range));
    let ranges = queues.iter().map(|range| {
        let ends: Option<Vec<u64>> =
            range.as_array().and_then(|ends| ends.iter().map(Value::as_u64).collect());
        match ends.as_deref() {
            // A class without queues prints as one that ends before it starts.
            Some(&[first, last]) if last == u64::from(u32::MAX) || last < first => Ok(None),
            Some(&[first, last]) => {
                let count = u16::try_from(last - first + 1);
                let count = count.map_err(|_| options.bad("queues", "is more than 65535"))?;
                Ok(Some(QueueRange { count, offset: TxQueue::new(first)? }))
            }
            _ => Err(options.bad("queues", "has no pair of numbers")),
        }
    });
    let ranges = ranges.collect::<Result<Vec<_>, QdiscError>>()?;
    let limited = options.text("shaper")? == Some("bw_rlimit");
    let preemption = preemption(options)?;
    let hardware = match options.text("mode")? {
        Some("channel") if limited => MqprioHardware::Channel(MqprioShaper::BwRlimit),
        Some("channel") => MqprioHardware::Channel(MqprioShaper::Dcb),
        _ if ranges.contains(&None) || !preemption.is_empty() => MqprioHardware::Dcb,
        _ => MqprioHardware::None,
    };
    let queues = ranges.into_iter().collect::<Option<Vec<_>>>().unwrap_or_default();
    let rates = |key| -> Result<Vec<ClassRate>, QdiscError> {
        let rates = options.numbers(key)?;
        Ok(rates.into_iter().map(ClassRate::from_bytes_per_second).collect())
    };
    Mqprio::new(MqprioOptions {
        classes: classes(options, queues)?,
        hardware,
        min_rate: rates("min_rate")?,
        max_rate: rates("max_rate")?,
        preemption,
    })
}

fn read_etf(options: &Object<'_>) -> Result<Etf, QdiscError> {
    let flag = |key: &'static str| on_off(key, options.text(key)?.unwrap_or("off"));
    let flags = EtfFlags {
        offload: flag("offload")?,
        deadline_mode: flag("deadline_mode")?,
        skip_sock_check: flag("skip_sock_check")?,
    };
    let clock = options.text("clockid")?.map(str::parse).transpose()?;
    Etf::of(clock, options.nanoseconds("delta")?, flags)
}

fn read_cbs(options: &Object<'_>) -> Result<Cbs, QdiscError> {
    let number = |key| -> Result<i32, QdiscError> {
        let number = options.number(key)?.unwrap_or(0);
        i32::try_from(number).map_err(|_| options.bad(key, "is more than 32 bits"))
    };
    Ok(Cbs {
        idle_slope_kbit: number("idleslope")?,
        send_slope_kbit: number("sendslope")?,
        hi_credit_bytes: number("hicredit")?,
        lo_credit_bytes: number("locredit")?,
        offload: number("offload")? != 0,
    })
}
