// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stages: what lies between two events of a packet, and its name.
//!
//! Every hook on the way has a rank. What lies between one rank and the next is an elementary
//! stage; where a hook in between was not watched or not passed, neighbours are one stage, and its
//! name has all of their names.

use serde::{Deserialize, Serialize};

use super::{Point, Rule};
use crate::event::Hook;

/// Elementary stages that make one stage: a set.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Parts(u16);

impl Parts {
    /// Marker to send call: the program before it sends.
    pub const APP: Parts = Parts(1);
    /// Send call to `device-queue`: socket and protocols on their way down.
    pub const SEND: Parts = Parts(1 << 1);
    /// `device-queue` to `driver-start`: queueing discipline, its lock, its gates.
    pub const QDISC: Parts = Parts(1 << 2);
    /// `driver-start` to `driver-done`.
    pub const DRIVER: Parts = Parts(1 << 3);
    /// `driver-done` to the next station: its `xdp`, or else its first receive hook.
    pub const WIRE: Parts = Parts(1 << 4);
    /// `xdp` to the first receive hook: the driver has the frame and makes a packet of it. Without
    /// `xdp` this is part of [`Parts::WIRE`] and is not named.
    pub const DRIVER_RECEIVE: Parts = Parts(1 << 5);
    /// First receive hook to `stack-receive`: the wait for the softirq.
    pub const SOFTIRQ: Parts = Parts(1 << 6);
    /// `stack-receive` to `socket-queue`: protocols on their way up.
    pub const STACK: Parts = Parts(1 << 7);
    /// `socket-queue` to the reader's `switch-in`.
    pub const WAKE_UP: Parts = Parts(1 << 8);
    /// `switch-in` to `socket-receive`: the reader takes the message.
    pub const READ: Parts = Parts(1 << 9);
    /// `socket-receive` to the receiving program's marker.
    pub const HANDLE: Parts = Parts(1 << 10);
    /// `stack-receive` to `device-queue` of the same station: bridge or router.
    pub const FORWARD: Parts = Parts(1 << 11);

    /// Each, in the order of a packet's way, with its name.
    pub const ALL: [(Parts, &'static str); 12] = [
        (Parts::APP, "app"),
        (Parts::SEND, "send"),
        (Parts::QDISC, "qdisc"),
        (Parts::DRIVER, "driver"),
        (Parts::WIRE, "wire"),
        (Parts::DRIVER_RECEIVE, "driver-receive"),
        (Parts::SOFTIRQ, "softirq"),
        (Parts::STACK, "stack"),
        (Parts::WAKE_UP, "wake-up"),
        (Parts::READ, "read"),
        (Parts::HANDLE, "handle"),
        (Parts::FORWARD, "forward"),
    ];

    /// Whether all of `other` are in it.
    pub const fn has(self, other: Parts) -> bool {
        self.0 & other.0 == other.0
    }

    /// The name: `driver+wire` for two that no hook parts.
    pub fn name(self) -> String {
        let order = if self.has(Parts::FORWARD) { FORWARDED } else { DIRECT };
        let names = order.iter().flat_map(|&bit| Parts::ALL.get(bit));
        let names = names.filter(|(part, _)| self.has(*part)).map(|(_, name)| *name);
        names.collect::<Vec<_>>().join("+")
    }

    /// The stage of a name, merged or not.
    pub fn from_name(name: &str) -> Option<Parts> {
        name.split('+').try_fold(Parts(0), |sum, name| {
            let (part, _) = Parts::ALL.into_iter().find(|(_, known)| *known == name)?;
            Some(Parts(sum.0 | part.0))
        })
    }

    /// Elementary stages from one rank to a higher one.
    const fn between(from: u8, to: u8) -> Parts {
        let all = (1 << to) - (1 << from);
        Parts(if from == XDP { all } else { all & !Parts::DRIVER_RECEIVE.0 })
    }

    const fn and(self, other: Parts) -> Parts {
        Parts(self.0 | other.0)
    }
}

const DIRECT: &[usize] = &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
/// From the receiving side of a station to its sending one.
const FORWARDED: &[usize] = &[5, 6, 7, 11, 2, 3, 4, 0, 1, 8, 9, 10];

/// One stage of a packet path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stage {
    /// What it is.
    pub parts: Parts,
    /// How many wires lie before it; a wire has the number of the hop that it ends.
    pub hop: u8,
    /// Index in the packet path's points of its first event.
    pub from: usize,
    /// Of its last.
    pub to: usize,
    /// How long. Below zero only where two clocks disagree, within the bound.
    ///
    /// **Units**: ns.
    pub ns: i64,
    /// How far that may be from right since two clocks were read; 0 within one capture.
    ///
    /// **Units**: ns.
    pub bound_ns: u64,
    /// Why its last event is of the same packet.
    pub rule: Rule,
}

/// The place of a hook on the way of a packet; `None` for those that only tell more of a stage.
pub(super) const fn rank(hook: Hook) -> Option<u8> {
    Some(match hook {
        Hook::SendEnter => 1,
        Hook::DeviceQueue => DEVICE_QUEUE,
        Hook::DriverStart => DRIVER_START,
        Hook::DriverDone => DRIVER_DONE,
        Hook::Xdp => XDP,
        Hook::ReceiveQueue | Hook::NapiReceive => RECEIVE,
        Hook::StackReceive => STACK_RECEIVE,
        Hook::SocketQueue => SOCKET_QUEUE,
        Hook::SwitchIn => 9,
        Hook::SocketReceive => 10,
        _ => return None,
    })
}

pub(super) const DEVICE_QUEUE: u8 = 2;
pub(super) const DRIVER_START: u8 = 3;
pub(super) const DRIVER_DONE: u8 = 4;
const XDP: u8 = 5;
pub(super) const RECEIVE: u8 = 6;
pub(super) const STACK_RECEIVE: u8 = 7;
pub(super) const SOCKET_QUEUE: u8 = 8;
const MARKER_AFTER: u8 = 11;

/// What lies between two hooks of these ranks.
fn parts(from: u8, to: u8) -> Parts {
    match (from, to) {
        _ if to > from => Parts::between(from, to),
        (RECEIVE | STACK_RECEIVE, DEVICE_QUEUE | DRIVER_START) => {
            Parts::between(from, STACK_RECEIVE)
                .and(Parts::FORWARD)
                .and(Parts::between(DEVICE_QUEUE, to))
        }
        (STACK_RECEIVE, RECEIVE) => Parts::FORWARD,
        // A device above another: the upper one's driver is at work.
        (DRIVER_START | DRIVER_DONE, DEVICE_QUEUE | DRIVER_START) => {
            Parts::DRIVER.and(Parts::between(DEVICE_QUEUE, to))
        }
        _ => Parts::between(from, from + 1),
    }
}

/// The rank of a point in its packet path. Details count only where a packet path begins with them.
fn rank_at(points: &[Point], index: usize) -> Option<u8> {
    let first = index == 0;
    match points[index].hook {
        Hook::Marker if first => Some(0),
        Hook::Marker => Some(MARKER_AFTER),
        Hook::QdiscEnqueue | Hook::QdiscDequeue if first => Some(DEVICE_QUEUE),
        Hook::Drop if first => Some(STACK_RECEIVE),
        hook => rank(hook),
    }
}

/// The stages of points that stand in their order. They fill the packet path without a gap.
pub(super) fn stages_of(points: &[Point], into: &mut Vec<Stage>) {
    into.clear();
    let Some(mut before) = (!points.is_empty()).then(|| rank_at(points, 0).unwrap_or(0)) else {
        return;
    };
    let (mut from, mut hop) = (0, 0_u8);
    for to in 1..points.len() {
        let last = to + 1 == points.len();
        let (parts, after) = match rank_at(points, to) {
            Some(after) => (parts(before, after), after),
            None if last => (Parts::between(before, before + 1), before + 1),
            None => continue,
        };
        if parts.has(Parts::WIRE) {
            hop = hop.saturating_add(1);
        }
        let (a, b) = (&points[from], &points[to]);
        let apart = a.capture != b.capture;
        let bound_ns = if apart { u64::from(a.bound_ns) + u64::from(b.bound_ns) } else { 0 };
        let ns = b.at_ns - a.at_ns;
        into.push(Stage { parts, hop, from, to, ns, bound_ns, rule: b.rule });
        (from, before) = (to, after);
    }
}
