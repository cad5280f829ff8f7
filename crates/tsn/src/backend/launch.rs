// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where in its station's slots each real-time stream launches its frames.
//!
//! The programs of a station do not know of each other. So each stream has a part of every slot for
//! itself, in proportion to how long its frames are on the link, in the order of the scenario: no
//! two frames of a station are launched into one another.

use timewire_base::{CyclicWindows, FrameLen, SduLen, Span, StationName, Window};

use super::BackendError;
use timewire_model::scenario::{ByteCount, Measured, Name, Scenario, StreamClass};

/// Headers of IPv4 without options and of UDP, bytes.
const IP_UDP_HEADERS: u32 = 20 + 8;
/// Bytes of an untagged frame before its payload.
const ETHERNET_HEADER: u32 = 14;

/// When a stream's frames may be on the link, and how long each is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchPlan {
    /// The stream's part of the station's slots.
    pub windows: CyclicWindows,
    /// How long one of its frames is on the link.
    pub busy: Span,
}

/// The frame that carries a message. One that fits no frame, which is an error of its own, counts
/// as the longest that can be written.
pub(super) fn frame_of(message: ByteCount) -> FrameLen {
    let bytes = message.get().saturating_add(IP_UDP_HEADERS);
    let longest = u32::from(u16::MAX) - ETHERNET_HEADER;
    SduLen::new(bytes.min(longest)).expect("invariant: 16 bits of bytes").frame_len()
}

/// How long a stream's message is on the link.
fn busy(scenario: &Scenario, stream: &Measured<'_>) -> Span {
    scenario.segment().rate.duration_of(frame_of(stream.size).wire_len())
}

/// The real-time streams that a station sends frames of, in the order of the file.
pub(super) fn real_time_of<'a>(
    scenario: &'a Scenario,
    station: &'a StationName,
) -> impl Iterator<Item = Measured<'a>> {
    let sends = move |s: &Measured<'_>| s.senders.contains(&station);
    scenario.measured().filter(|s| s.class == StreamClass::RealTime).filter(sends)
}

/// The part of a station's slots that a real-time stream has for its launch times.
///
/// Slots whose part is shorter than a frame of the stream are left out.
///
/// **Errors**: no slot has room for a frame of it.
pub fn launch_plan(
    scenario: &Scenario,
    stream: &Name,
    station: &StationName,
) -> Result<LaunchPlan, BackendError> {
    let schedule = &scenario.schedule;
    let slots = schedule.windows_of(station);
    let all: Vec<_> = real_time_of(scenario, station).collect();
    let total: i64 = all.iter().map(|stream| busy(scenario, stream).as_ns()).sum();
    let before: i64 = all
        .iter()
        .take_while(|other| other.name != *stream)
        .map(|other| busy(scenario, other).as_ns())
        .sum();
    let Some(own) = all.iter().find(|other| other.name == *stream) else {
        return Err(BackendError::NotRealTime { stream: stream.clone(), station: station.clone() });
    };
    let own = busy(scenario, own);
    // In 128 bits: two times of seconds multiply to more than 64.
    let part = |length: Span, share: i64| {
        let ns = i128::from(length.as_ns()) * i128::from(share) / i128::from(total.max(1));
        Span::from_ns(i64::try_from(ns).expect("invariant: a part of a slot"))
    };
    let parts = slots.windows().iter().map(|slot| {
        let start = part(slot.length, before);
        let length = part(slot.length, before + own.as_ns()) - start;
        Window { offset: slot.offset + start, length }
    });
    let longest = parts.clone().map(|part| part.length).max().unwrap_or(Span::ZERO);
    let windows: Vec<_> = parts.filter(|part| part.length >= own).collect();
    if windows.is_empty() {
        let (stream, station) = (stream.clone(), station.clone());
        return Err(BackendError::NoRoom { stream, station, part: longest, busy: own });
    }
    let windows = CyclicWindows::new(schedule.base_time(), schedule.cycle(), windows)
        .expect("invariant: parts of windows that exist");
    Ok(LaunchPlan { windows, busy: own })
}
