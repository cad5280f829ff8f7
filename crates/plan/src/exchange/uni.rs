// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Streams as users ask a network for them: instance data of the configuration between users and
//! network, in JSON.
//!
//! **Source**: module `ieee802-dot1q-cnc-config` of 2024-01-31 (IEEE 802.1Qdj-2024) with the
//! groupings of `ieee802-dot1q-tsn-types` of 2022-10-29 (IEEE 802.1Q-2022 clause 46.2); times are
//! nanoseconds, an interval is a fraction of a second.

use std::collections::BTreeSet;

use serde_json::Value;
use timewire_base::Span;
use timewire_model::unread::Unread;

use super::csv::quoted;
use super::instance::{Data, Document, InstanceError};

/// The module of all names.
pub const MODULE: &str = "ieee802-dot1q-cnc-config";
const OWN: &[&str] = &[MODULE];

/// Everything that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uni {
    /// In the order of the file.
    pub streams: Vec<UniStream>,
    /// What was not interpreted: names of other modules.
    pub unread: Vec<Unread>,
}

/// A stream and what its users ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UniStream {
    /// The configuration domain it is in.
    pub domain: String,
    /// The centralized user configuration it is of.
    pub cuc: String,
    /// As written: an address, a colon, a number.
    pub id: String,
    /// The talker's interfaces.
    pub talker: Vec<UniInterface>,
    /// Who listens.
    pub listeners: Vec<UniListener>,
    /// The priority of its frames, where a tag says one.
    pub priority: Option<u8>,
    /// Whether its frames have a tag.
    pub tagged: bool,
    /// At most `frames` in each.
    pub interval: Span,
    /// Frames in an interval.
    pub frames: u32,
    /// Payload of the longest frame, without headers, tag and check sequence. **Units**: bytes.
    pub frame_size: u32,
    /// When the talker can begin; `None`: it keeps to no time.
    pub time_aware: Option<TimeAware>,
    /// Copies over ways without a common link; 1: no redundancy.
    pub trees: u8,
    /// From the start of the interval, or from sending without `time_aware`, until it is there;
    /// `None`: whatever comes out.
    pub latency_max: Option<Span>,
    /// All that was written of it, which an answer has as well.
    pub asked: Value,
}

/// What a talker can do that knows the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeAware {
    /// The first frame does not begin earlier in the interval.
    pub earliest: Span,
    /// Nor later; `None`: anywhere.
    pub latest: Option<Span>,
    /// How far from the instant that it is told it begins, either way.
    pub jitter: Span,
}

/// A point of attachment of an end station.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UniInterface {
    /// As written, with dashes; empty where there is none.
    pub mac: String,
    /// The name that the station gives it; empty where there is none.
    pub name: String,
}

/// Who listens to a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UniListener {
    /// Its key in the list.
    pub index: u32,
    /// Its interfaces.
    pub interfaces: Vec<UniInterface>,
    /// As of the stream, for this listener.
    pub latency_max: Option<Span>,
}

/// Streams of instance data.
///
/// **Errors**: the first mistake, with its place and what would be right.
pub fn read_uni(file: &str, bytes: &[u8]) -> Result<Uni, InstanceError> {
    let document = Document::parse(file, bytes)?;
    let root = document.root();
    if document.is_xml() {
        return Err(root.error("it is XML", "the same as JSON (RFC 7951)"));
    }
    let config = root.needed(OWN, "cnc-config")?;
    config.only(MODULE, &["domain"])?;
    let (mut streams, mut ids) = (Vec::new(), BTreeSet::new());
    for domain in config.list(OWN, "domain")? {
        domain.only(MODULE, &["domain-id", "cnc-enabled", "cuc"])?;
        let domain_id = domain.needed(OWN, "domain-id")?.text()?;
        for cuc in domain.list(OWN, "cuc")? {
            cuc.only(MODULE, &["cuc-id", "stream"])?;
            let cuc_id = cuc.needed(OWN, "cuc-id")?.text()?;
            for one in cuc.list(OWN, "stream")? {
                let made = stream(&one, domain_id, cuc_id)?;
                if !ids.insert(made.id.to_ascii_lowercase()) {
                    let what = format!("there is a stream {} before", made.id);
                    return Err(one.error(what, "each stream of a network has its own id"));
                }
                streams.push(made);
            }
        }
    }
    if streams.is_empty() {
        return Err(config.error("there is no stream", "domain, cuc and stream lists"));
    }
    Ok(Uni { streams, unread: document.unread() })
}

/// Marks names of these modules that say nothing of what is asked for.
fn pass_over(of: &Data, names: &[&str]) -> Result<(), InstanceError> {
    for name in names {
        of.child(OWN, name)?.into_iter().for_each(|it| it.pass_over());
    }
    Ok(())
}

/// What the network tells, and what the planner has no use for.
const TOLD: &[&str] = &["accumulated-latency", "interface-configuration", "interface-capabilities"];

/// The greatest of a leaf of 32 bits.
const MAX_32: u64 = 0xffff_ffff;

fn span(data: &Data) -> Result<Span, InstanceError> {
    Ok(Span::from_ns(i64::try_from(data.number(0, MAX_32)?).unwrap_or(i64::MAX)))
}

fn stream(one: &Data, domain: &str, cuc: &str) -> Result<UniStream, InstanceError> {
    one.only(
        MODULE,
        &["stream-id", "stream-status", "talker", "listener", "status-info", "failed-interfaces"],
    )?;
    pass_over(one, &["stream-status", "status-info", "failed-interfaces"])?;
    let id = one.needed(OWN, "stream-id")?;
    if !is_stream_id(id.text()?) {
        let what = format!("{} is no id of a stream", quoted(id.text()?));
        return Err(id.error(what, "an address and a number, such as 02-00-00-00-00-01:00-07"));
    }
    let talker = one.needed(OWN, "talker")?;
    talker.only(
        MODULE,
        &[
            "stream-rank",
            "end-station-interfaces",
            "data-frame-specification",
            "traffic-specification",
            "user-to-network-requirements",
            "interface-capabilities",
            "accumulated-latency",
            "interface-configuration",
        ],
    )?;
    pass_over(&talker, TOLD)?;
    pass_over(&talker, &["stream-rank"])?;
    let (tagged, priority) = frame(&talker)?;
    let (trees, latency_max) = requirements(&talker)?;
    let traffic = talker.needed(OWN, "traffic-specification")?;
    traffic.only(
        MODULE,
        &[
            "interval",
            "max-frames-per-interval",
            "max-frame-size",
            "transmission-selection",
            "time-aware",
        ],
    )?;
    if let Some(selection) = traffic.child(OWN, "transmission-selection")? {
        selection.number(0, 255)?;
    }
    let small = |name: &str| -> Result<u32, InstanceError> {
        let number = traffic.needed(OWN, name)?.number(1, 0xffff)?;
        Ok(u32::try_from(number).unwrap_or(u32::MAX))
    };
    Ok(UniStream {
        domain: domain.to_owned(),
        cuc: cuc.to_owned(),
        id: id.text()?.to_owned(),
        talker: interfaces(&talker)?,
        listeners: listeners(one)?,
        priority,
        tagged,
        interval: interval(&traffic)?,
        frames: small("max-frames-per-interval")?,
        frame_size: small("max-frame-size")?,
        time_aware: time_aware(&traffic)?,
        trees,
        latency_max,
        asked: one.copied(MODULE),
    })
}

fn listeners(one: &Data) -> Result<Vec<UniListener>, InstanceError> {
    let mut all: Vec<UniListener> = Vec::new();
    for listener in one.list(OWN, "listener")? {
        listener.only(
            MODULE,
            &[
                "index",
                "end-station-interfaces",
                "user-to-network-requirements",
                "interface-capabilities",
                "accumulated-latency",
                "interface-configuration",
            ],
        )?;
        pass_over(&listener, TOLD)?;
        let number = listener.needed(OWN, "index")?;
        let index = u32::try_from(number.number(0, MAX_32)?).unwrap_or(u32::MAX);
        if all.iter().any(|other| other.index == index) {
            return Err(number.error(format!("{index} was there before"), "another index"));
        }
        let (_, latency_max) = requirements(&listener)?;
        all.push(UniListener { index, interfaces: interfaces(&listener)?, latency_max });
    }
    if all.is_empty() {
        return Err(one.error("nobody listens", "a list `listener` with an entry for each"));
    }
    Ok(all)
}

/// Six bytes with dashes, a colon, two bytes with a dash.
fn is_stream_id(text: &str) -> bool {
    text.split_once(':').is_some_and(|(mac, number)| is_bytes(mac, 6) && is_bytes(number, 2))
}

fn is_bytes(text: &str, count: usize) -> bool {
    let parts: Vec<&str> = text.split('-').take(count + 1).collect();
    let is_byte = |part: &&str| part.len() == 2 && part.chars().all(|c| c.is_ascii_hexdigit());
    parts.len() == count && parts.iter().all(is_byte)
}

fn interfaces(of: &Data) -> Result<Vec<UniInterface>, InstanceError> {
    let mut all = Vec::new();
    for entry in of.list(OWN, "end-station-interfaces")? {
        entry.only(MODULE, &["mac-address", "interface-name"])?;
        let mac = entry.child(OWN, "mac-address")?;
        let mac_text = mac.as_ref().map(Data::text).transpose()?.unwrap_or_default();
        if let Some(mac) = mac.filter(|_| !mac_text.is_empty() && !is_bytes(mac_text, 6)) {
            let what = format!("{} is no address", quoted(mac_text));
            return Err(mac.error(what, "six bytes with dashes, such as 02-00-00-00-00-01"));
        }
        let name = entry.child(OWN, "interface-name")?;
        let name = name.as_ref().map(Data::text).transpose()?.unwrap_or_default();
        if mac_text.is_empty() && name.is_empty() {
            return Err(entry.error("it names no interface", "a `mac-address`"));
        }
        all.push(UniInterface { mac: mac_text.to_owned(), name: name.to_owned() });
    }
    if all.is_empty() {
        return Err(of.error("it has no interface", "a list `end-station-interfaces`"));
    }
    Ok(all)
}

/// Whether frames have a tag, and the priority in it.
fn frame(talker: &Data) -> Result<(bool, Option<u8>), InstanceError> {
    let mut found = (false, None);
    for field in talker.list(OWN, "data-frame-specification")? {
        let cases =
            ["index", "ieee802-mac-addresses", "ieee802-vlan-tag", "ipv4-tuple", "ipv6-tuple"];
        field.only(MODULE, &cases)?;
        pass_over(&field, &["index", "ieee802-mac-addresses", "ipv4-tuple", "ipv6-tuple"])?;
        if let Some(tag) = field.child(OWN, "ieee802-vlan-tag")? {
            tag.only(MODULE, &["priority-code-point", "vlan-id"])?;
            pass_over(&tag, &["vlan-id"])?;
            let priority = tag.child(OWN, "priority-code-point")?;
            let priority = priority.map(|it| it.number(0, 7)).transpose()?;
            if found.0 {
                return Err(tag.error("it is the second tag", "one tag"));
            }
            found = (true, priority.map(|it| u8::try_from(it).unwrap_or(7)));
        }
    }
    Ok(found)
}

/// Trees and latency. Zero trees are one, and no latency is none asked for.
fn requirements(of: &Data) -> Result<(u8, Option<Span>), InstanceError> {
    let Some(asked) = of.child(OWN, "user-to-network-requirements")? else { return Ok((1, None)) };
    asked.only(MODULE, &["num-seamless-trees", "max-latency"])?;
    let trees = asked.child(OWN, "num-seamless-trees")?;
    let trees = trees.map_or(Ok(1), |it| it.number(0, 255))?.max(1);
    let latency = asked.child(OWN, "max-latency")?;
    let latency = latency.map_or(Ok(Span::ZERO), |it| span(&it))?;
    let latency = Some(latency).filter(|latency| *latency > Span::ZERO);
    Ok((u8::try_from(trees).unwrap_or(u8::MAX), latency))
}

fn interval(traffic: &Data) -> Result<Span, InstanceError> {
    let interval = traffic.needed(OWN, "interval")?;
    interval.only(MODULE, &["numerator", "denominator"])?;
    let numerator = interval.needed(OWN, "numerator")?.number(1, MAX_32)?;
    let denominator = interval.needed(OWN, "denominator")?.number(1, MAX_32)?;
    fraction(&interval, numerator, denominator)
}

/// A fraction of a second.
///
/// **Errors**: it is no whole number of nanoseconds, or longer than any time here.
pub(super) fn fraction(at: &Data, numerator: u64, denominator: u64) -> Result<Span, InstanceError> {
    let ns = u128::from(numerator) * 1_000_000_000;
    let text = format!("{numerator}/{denominator} s");
    if denominator == 0 || !ns.is_multiple_of(u128::from(denominator)) {
        let what = format!("{text} is no whole number of nanoseconds");
        return Err(at.error(what, "such as 1/1000 for a millisecond"));
    }
    let ns = i64::try_from(ns / u128::from(denominator)).ok();
    let ns = ns.filter(|ns| *ns <= 1_000_000_000_000);
    ns.map(Span::from_ns).ok_or_else(|| at.error(format!("{text} is too long"), "at most 1000 s"))
}

fn time_aware(traffic: &Data) -> Result<Option<TimeAware>, InstanceError> {
    let Some(aware) = traffic.child(OWN, "time-aware")? else { return Ok(None) };
    aware.only(MODULE, &["earliest-transmit-offset", "latest-transmit-offset", "jitter"])?;
    let time = |name: &str| aware.child(OWN, name)?.as_ref().map(span).transpose();
    let earliest = time("earliest-transmit-offset")?.unwrap_or(Span::ZERO);
    let latest = time("latest-transmit-offset")?;
    if latest.is_some_and(|latest| latest < earliest) {
        return Err(aware.error("the latest offset is before the earliest", "a later one"));
    }
    let jitter = time("jitter")?.unwrap_or(Span::ZERO);
    Ok(Some(TimeAware { earliest, latest, jitter }))
}
