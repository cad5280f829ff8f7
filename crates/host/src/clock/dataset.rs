// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The data sets of a PTP clock that management messages carry: those of IEEE 1588-2008 clause
//! 15.5.3, and those that linuxptp adds (names end in `_NP`).
//!
//! What is reserved is not kept, and is written as zero.

use std::fmt;

use serde::{Serialize, Serializer};

use super::wire::Reading;

/// The identity of a clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClockIdentity(pub [u8; 8]);

/// The identity of a port of a clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct PortIdentity {
    /// Its clock.
    pub clock: ClockIdentity,
    /// Its number, from 1.
    pub port: u16,
}

/// How good a clock says that it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClockQuality {
    /// 6 follows a primary reference, 248 is the default, 255 never gives the time.
    pub class: u8,
    /// `0x20` within 25 ns, up to `0x31` more than 10 s, `0xfe` unknown.
    pub accuracy: u8,
    /// Logarithm of the Allan variance, scaled and offset.
    pub variance: u16,
}

/// What a port does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PortState {
    /// Starting.
    Initializing,
    /// It cannot work, such as without a link.
    Faulty,
    /// Switched off.
    Disabled,
    /// It waits for somebody who gives the time.
    Listening,
    /// It is about to give the time.
    PreTransmitter,
    /// It gives the time.
    Transmitter,
    /// Another port of this clock has it.
    Passive,
    /// It follows, but not closely yet.
    Uncalibrated,
    /// It follows.
    Receiver,
    /// linuxptp: a port for grandmasters.
    Grandmaster,
    /// A number that no edition names.
    Other(u8),
}

/// `DEFAULT_DATA_SET`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DefaultDataSet {
    /// Bit 0: two-step, bit 1: receiver only.
    pub flags: u8,
    /// How many ports it has.
    pub ports: u16,
    /// The first thing that decides who gives the time; the lower number does.
    pub priority1: u8,
    /// How good it is.
    pub quality: ClockQuality,
    /// Decides among those that are equally good.
    pub priority2: u8,
    /// Who it is.
    pub clock: ClockIdentity,
    /// Its domain.
    pub domain: u8,
}

/// `CURRENT_DATA_SET`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CurrentDataSet {
    /// Clocks between this one and the one that gives the time.
    pub steps_removed: u16,
    /// How much it is ahead. **Units**: ns times 65536.
    pub offset_scaled: i64,
    /// How long a message takes. **Units**: ns times 65536.
    pub mean_path_delay_scaled: i64,
}

/// `PARENT_DATA_SET`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ParentDataSet {
    /// The port that this clock follows; its own when it follows none.
    pub parent: PortIdentity,
    /// Whether the next two are measured.
    pub stats: u8,
    /// As in [`ClockQuality`].
    pub observed_variance: u16,
    /// Scaled rate of change of the parent's phase.
    pub observed_change_rate: u32,
    /// Of the clock that gives the time.
    pub priority1: u8,
    /// Of the clock that gives the time.
    pub quality: ClockQuality,
    /// Of the clock that gives the time.
    pub priority2: u8,
    /// The clock that gives the time.
    pub grandmaster: ClockIdentity,
}

/// `TIME_PROPERTIES_DATA_SET`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TimeProperties {
    /// TAI - UTC, in seconds.
    pub utc_offset_s: i16,
    /// See the constants.
    pub flags: u8,
    /// Where the time comes from: `0x20` satellites, `0x60` by hand, `0xa0` its own oscillator.
    pub source: u8,
}

impl TimeProperties {
    /// The last minute of this day has 61 seconds.
    pub const LEAP_61: u8 = 0x01;
    /// The last minute of this day has 59 seconds.
    pub const LEAP_59: u8 = 0x02;
    /// The offset is known to be right.
    pub const UTC_OFFSET_VALID: u8 = 0x04;
    /// The time is TAI, and not some scale of the giver's own.
    pub const PTP_TIMESCALE: u8 = 0x08;

    /// TAI - UTC, when it is known to be right.
    pub fn valid_utc_offset_s(&self) -> Option<i16> {
        (self.flags & Self::UTC_OFFSET_VALID != 0).then_some(self.utc_offset_s)
    }
}

/// `PORT_DATA_SET`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PortDataSet {
    /// Which port.
    pub port: PortIdentity,
    /// What it does.
    pub state: PortState,
    /// Power of two of a second between requests for the delay.
    pub log_min_delay_req_interval: i8,
    /// Delay to the neighbour. **Units**: ns times 65536.
    pub peer_mean_path_delay_scaled: i64,
    /// Power of two of a second between announcements.
    pub log_announce_interval: i8,
    /// So many announcements may be missing.
    pub announce_receipt_timeout: u8,
    /// Power of two of a second between messages with the time.
    pub log_sync_interval: i8,
    /// 1: end to end, 2: neighbour to neighbour.
    pub delay_mechanism: u8,
    /// Power of two of a second between requests for the neighbour's delay.
    pub log_min_pdelay_req_interval: i8,
    /// Version of the protocol.
    pub version: u8,
}

/// `TIME_STATUS_NP` of linuxptp.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TimeStatus {
    /// How much this clock is ahead of the one that gives the time.
    pub offset_ns: i64,
    /// When the last message with the time came, by this clock; 0 without any.
    pub ingress_ns: i64,
    /// How the rate of the giver differs, times 2^41.
    pub rate_offset_scaled: i32,
    /// Of 802.1AS.
    pub last_phase_change_scaled: i32,
    /// Of 802.1AS.
    pub time_base_indicator: u16,
    /// Of 802.1AS: the three parts of a scaled nanosecond.
    pub last_phase_change: (u16, u64, u16),
    /// Whether another clock gives the time.
    pub giver_present: bool,
    /// Which one.
    pub giver: ClockIdentity,
}

/// `GRANDMASTER_SETTINGS_NP` of linuxptp: what this clock says when it gives the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GrandmasterSettings {
    /// How good it is.
    pub quality: ClockQuality,
    /// The rest.
    pub time: TimeProperties,
}

/// `PORT_STATS_NP` of linuxptp: messages by type, the number in their header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PortStats {
    /// Which port.
    pub port: PortIdentity,
    /// Received.
    pub received: [u64; 16],
    /// Sent.
    pub sent: [u64; 16],
}

/// Which data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DataSetId {
    /// [`DefaultDataSet`].
    Default,
    /// [`CurrentDataSet`].
    Current,
    /// [`ParentDataSet`].
    Parent,
    /// [`TimeProperties`].
    TimeProperties,
    /// [`PortDataSet`].
    Port,
    /// [`TimeStatus`].
    TimeStatus,
    /// [`GrandmasterSettings`].
    Grandmaster,
    /// [`PortStats`].
    PortStats,
}

impl DataSetId {
    /// All.
    pub const ALL: [DataSetId; 8] = [
        DataSetId::Default,
        DataSetId::Current,
        DataSetId::Parent,
        DataSetId::TimeProperties,
        DataSetId::Port,
        DataSetId::TimeStatus,
        DataSetId::Grandmaster,
        DataSetId::PortStats,
    ];

    /// Its number in a message.
    pub fn number(self) -> u16 {
        match self {
            DataSetId::Default => 0x2000,
            DataSetId::Current => 0x2001,
            DataSetId::Parent => 0x2002,
            DataSetId::TimeProperties => 0x2003,
            DataSetId::Port => 0x2004,
            DataSetId::TimeStatus => 0xC000,
            DataSetId::Grandmaster => 0xC001,
            DataSetId::PortStats => 0xC005,
        }
    }

    /// The one of that number.
    pub fn of_number(number: u16) -> Option<DataSetId> {
        Self::ALL.into_iter().find(|id| id.number() == number)
    }

    /// The name that `pmc` gives it.
    pub fn name(self) -> &'static str {
        match self {
            DataSetId::Default => "DEFAULT_DATA_SET",
            DataSetId::Current => "CURRENT_DATA_SET",
            DataSetId::Parent => "PARENT_DATA_SET",
            DataSetId::TimeProperties => "TIME_PROPERTIES_DATA_SET",
            DataSetId::Port => "PORT_DATA_SET",
            DataSetId::TimeStatus => "TIME_STATUS_NP",
            DataSetId::Grandmaster => "GRANDMASTER_SETTINGS_NP",
            DataSetId::PortStats => "PORT_STATS_NP",
        }
    }

    /// **Units**: bytes.
    pub fn length(self) -> usize {
        match self {
            DataSetId::Default => 20,
            DataSetId::Current => 18,
            DataSetId::Parent => 32,
            DataSetId::TimeProperties => 4,
            DataSetId::Port => 26,
            DataSetId::TimeStatus => 50,
            DataSetId::Grandmaster => 8,
            DataSetId::PortStats => 10 + 2 * 16 * 8,
        }
    }
}

/// A data set with its values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "each is named for the type it holds")]
pub enum DataSet {
    Default(DefaultDataSet),
    Current(CurrentDataSet),
    Parent(ParentDataSet),
    TimeProperties(TimeProperties),
    Port(PortDataSet),
    TimeStatus(TimeStatus),
    Grandmaster(GrandmasterSettings),
    PortStats(Box<PortStats>),
}

impl DataSet {
    /// Which one.
    pub fn id(&self) -> DataSetId {
        match self {
            DataSet::Default(_) => DataSetId::Default,
            DataSet::Current(_) => DataSetId::Current,
            DataSet::Parent(_) => DataSetId::Parent,
            DataSet::TimeProperties(_) => DataSetId::TimeProperties,
            DataSet::Port(_) => DataSetId::Port,
            DataSet::TimeStatus(_) => DataSetId::TimeStatus,
            DataSet::Grandmaster(_) => DataSetId::Grandmaster,
            DataSet::PortStats(_) => DataSetId::PortStats,
        }
    }

    /// Reads it; `None` when there are not exactly as many bytes as it has.
    pub fn parse(id: DataSetId, bytes: &[u8]) -> Option<DataSet> {
        if bytes.len() != id.length() {
            return None;
        }
        let r = &mut Reading::new(bytes);
        Some(match id {
            DataSetId::Default => DataSet::Default(default_data_set(r)?),
            DataSetId::Current => DataSet::Current(CurrentDataSet {
                steps_removed: r.u16()?,
                offset_scaled: r.i64()?,
                mean_path_delay_scaled: r.i64()?,
            }),
            DataSetId::Parent => DataSet::Parent(parent(r)?),
            DataSetId::TimeProperties => DataSet::TimeProperties(time_properties(r)?),
            DataSetId::Port => DataSet::Port(port_data_set(r)?),
            DataSetId::TimeStatus => DataSet::TimeStatus(time_status(r)?),
            DataSetId::Grandmaster => DataSet::Grandmaster(GrandmasterSettings {
                quality: quality(r)?,
                time: time_properties(r)?,
            }),
            DataSetId::PortStats => DataSet::PortStats(Box::new(PortStats {
                port: port_identity(r)?,
                received: counters(r)?,
                sent: counters(r)?,
            })),
        })
    }

    /// Writes it.
    pub fn emit(&self, to: &mut Vec<u8>) {
        match self {
            DataSet::Default(d) => {
                to.extend([d.flags, 0]);
                to.extend(d.ports.to_be_bytes());
                to.push(d.priority1);
                emit_quality(d.quality, to);
                to.push(d.priority2);
                to.extend(d.clock.0);
                to.extend([d.domain, 0]);
            }
            DataSet::Current(d) => {
                to.extend(d.steps_removed.to_be_bytes());
                to.extend(d.offset_scaled.to_be_bytes());
                to.extend(d.mean_path_delay_scaled.to_be_bytes());
            }
            DataSet::Parent(d) => {
                emit_port(d.parent, to);
                to.extend([d.stats, 0]);
                to.extend(d.observed_variance.to_be_bytes());
                to.extend(d.observed_change_rate.to_be_bytes());
                to.push(d.priority1);
                emit_quality(d.quality, to);
                to.push(d.priority2);
                to.extend(d.grandmaster.0);
            }
            DataSet::TimeProperties(d) => emit_time(*d, to),
            DataSet::Port(d) => {
                emit_port(d.port, to);
                to.push(d.state.number());
                to.extend(d.log_min_delay_req_interval.to_be_bytes());
                to.extend(d.peer_mean_path_delay_scaled.to_be_bytes());
                to.extend(d.log_announce_interval.to_be_bytes());
                to.push(d.announce_receipt_timeout);
                to.extend(d.log_sync_interval.to_be_bytes());
                to.push(d.delay_mechanism);
                to.extend(d.log_min_pdelay_req_interval.to_be_bytes());
                to.push(d.version);
            }
            DataSet::TimeStatus(d) => {
                to.extend(d.offset_ns.to_be_bytes());
                to.extend(d.ingress_ns.to_be_bytes());
                to.extend(d.rate_offset_scaled.to_be_bytes());
                to.extend(d.last_phase_change_scaled.to_be_bytes());
                to.extend(d.time_base_indicator.to_be_bytes());
                to.extend(d.last_phase_change.0.to_be_bytes());
                to.extend(d.last_phase_change.1.to_be_bytes());
                to.extend(d.last_phase_change.2.to_be_bytes());
                to.extend(i32::from(d.giver_present).to_be_bytes());
                to.extend(d.giver.0);
            }
            DataSet::Grandmaster(d) => {
                emit_quality(d.quality, to);
                emit_time(d.time, to);
            }
            DataSet::PortStats(d) => {
                emit_port(d.port, to);
                // The counters alone are little-endian
                // (linuxptp v3.1.1 tlv.c:mgt_post_recv, TLV_PORT_STATS_NP).
                let counters = d.received.iter().chain(&d.sent);
                to.extend(counters.flat_map(|count| count.to_le_bytes()));
            }
        }
    }
}

fn identity(r: &mut Reading<'_>) -> Option<ClockIdentity> {
    r.take().map(ClockIdentity)
}

pub(super) fn port_identity(r: &mut Reading<'_>) -> Option<PortIdentity> {
    Some(PortIdentity { clock: identity(r)?, port: r.u16()? })
}

pub(super) fn emit_port(port: PortIdentity, to: &mut Vec<u8>) {
    to.extend(port.clock.0);
    to.extend(port.port.to_be_bytes());
}

fn quality(r: &mut Reading<'_>) -> Option<ClockQuality> {
    Some(ClockQuality { class: r.u8()?, accuracy: r.u8()?, variance: r.u16()? })
}

fn emit_quality(quality: ClockQuality, to: &mut Vec<u8>) {
    to.extend([quality.class, quality.accuracy]);
    to.extend(quality.variance.to_be_bytes());
}

fn time_properties(r: &mut Reading<'_>) -> Option<TimeProperties> {
    Some(TimeProperties { utc_offset_s: r.i16()?, flags: r.u8()?, source: r.u8()? })
}

fn emit_time(time: TimeProperties, to: &mut Vec<u8>) {
    to.extend(time.utc_offset_s.to_be_bytes());
    to.extend([time.flags, time.source]);
}

fn default_data_set(r: &mut Reading<'_>) -> Option<DefaultDataSet> {
    let flags = r.u8()?;
    r.u8()?;
    Some(DefaultDataSet {
        flags,
        ports: r.u16()?,
        priority1: r.u8()?,
        quality: quality(r)?,
        priority2: r.u8()?,
        clock: identity(r)?,
        domain: r.u8()?,
    })
}

fn parent(r: &mut Reading<'_>) -> Option<ParentDataSet> {
    let (parent, stats) = (port_identity(r)?, r.u8()?);
    r.u8()?;
    Some(ParentDataSet {
        parent,
        stats,
        observed_variance: r.u16()?,
        observed_change_rate: r.u32()?,
        priority1: r.u8()?,
        quality: quality(r)?,
        priority2: r.u8()?,
        grandmaster: identity(r)?,
    })
}

fn port_data_set(r: &mut Reading<'_>) -> Option<PortDataSet> {
    Some(PortDataSet {
        port: port_identity(r)?,
        state: PortState::of_number(r.u8()?),
        log_min_delay_req_interval: r.i8()?,
        peer_mean_path_delay_scaled: r.i64()?,
        log_announce_interval: r.i8()?,
        announce_receipt_timeout: r.u8()?,
        log_sync_interval: r.i8()?,
        delay_mechanism: r.u8()?,
        log_min_pdelay_req_interval: r.i8()?,
        version: r.u8()?,
    })
}

fn time_status(r: &mut Reading<'_>) -> Option<TimeStatus> {
    Some(TimeStatus {
        offset_ns: r.i64()?,
        ingress_ns: r.i64()?,
        rate_offset_scaled: r.i32()?,
        last_phase_change_scaled: r.i32()?,
        time_base_indicator: r.u16()?,
        last_phase_change: (r.u16()?, r.u64()?, r.u16()?),
        giver_present: r.i32()? != 0,
        giver: identity(r)?,
    })
}

fn counters(r: &mut Reading<'_>) -> Option<[u64; 16]> {
    let mut counters = [0; 16];
    for counter in &mut counters {
        *counter = u64::from_le_bytes(r.take()?);
    }
    Some(counters)
}

impl PortState {
    /// IEEE 1588-2008 table 8, and linuxptp.
    const NUMBERS: [(u8, PortState); 10] = [
        (1, PortState::Initializing),
        (2, PortState::Faulty),
        (3, PortState::Disabled),
        (4, PortState::Listening),
        (5, PortState::PreTransmitter),
        (6, PortState::Transmitter),
        (7, PortState::Passive),
        (8, PortState::Uncalibrated),
        (9, PortState::Receiver),
        (10, PortState::Grandmaster),
    ];

    /// The one of that number.
    pub fn of_number(number: u8) -> PortState {
        let known = Self::NUMBERS.iter().find(|(known, _)| *known == number);
        known.map_or(PortState::Other(number), |(_, state)| *state)
    }

    /// Its number.
    pub fn number(self) -> u8 {
        match self {
            PortState::Other(number) => number,
            state => Self::NUMBERS.iter().find(|(_, known)| *known == state).map_or(0, |(n, _)| *n),
        }
    }
}

impl fmt::Display for PortState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PortState::Initializing => "initializing",
            PortState::Faulty => "faulty",
            PortState::Disabled => "disabled",
            PortState::Listening => "listening",
            PortState::PreTransmitter => "about to give the time",
            PortState::Transmitter => "gives the time",
            PortState::Passive => "passive",
            PortState::Uncalibrated => "begins to follow",
            PortState::Receiver => "follows",
            PortState::Grandmaster => "grandmaster",
            PortState::Other(number) => return write!(f, "state {number}"),
        })
    }
}

/// As `pmc` writes it: `525400.fffe.123456`.
impl fmt::Display for ClockIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g, h, i] = self.0;
        write!(f, "{a:02x}{b:02x}{c:02x}.{d:02x}{e:02x}.{g:02x}{h:02x}{i:02x}")
    }
}

impl fmt::Display for PortIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.clock, self.port)
    }
}

impl Serialize for ClockIdentity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
