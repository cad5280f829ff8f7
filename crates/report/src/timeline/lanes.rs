// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The lines of a timeline while it is put together, and which line a stage or event belongs to.

use std::collections::BTreeMap;

use timewire_capture::event::Hook;
use timewire_capture::packet_path::{PacketPath, Parts, Point, Stage};

use super::{Lane, LaneKind, Names};

/// By what lines are ordered.
type Key = (usize, u8, LaneKind, u64, String);

/// Lines by what they stand for; numbered as they come, put in order at the end.
#[derive(Clone, Debug, Default)]
pub(super) struct Lanes {
    places: BTreeMap<Key, usize>,
    sockets: BTreeMap<(u8, u64), u64>,
}

impl Lanes {
    pub fn put(&mut self, key: Key) -> usize {
        let next = self.places.len();
        *self.places.entry(key).or_insert(next)
    }

    /// The line of an event.
    pub fn event(&mut self, names: &Names, point: &Point, object: u64) -> usize {
        let host = usize::from(point.capture);
        match point.hook {
            Hook::Marker => {
                let name = names.point(host, object);
                self.put((host, point.station, LaneKind::Marker, object, name))
            }
            hook => {
                let (order, name) = (u64::from(hook.number()), hook.name().to_owned());
                self.put((host, point.station, LaneKind::Hook, order, name))
            }
        }
    }

    /// The line of a stage: the thread that carries it out, the socket it waits in, or the
    /// interface.
    pub fn stage(&mut self, names: &Names, packet_path: &PacketPath, stage: &Stage) -> usize {
        use Hook::{Marker, SendEnter, SocketQueue, SocketReceive, SocketSend, SwitchIn, Waking};
        let (from, to) = (&packet_path.points[stage.from], &packet_path.points[stage.to]);
        match from.hook {
            Marker | SendEnter | SocketSend => self.thread(names, from, from.thread),
            SocketQueue | Waking => {
                let socket = if from.hook == SocketQueue { from.aux } else { 0 };
                let next = u64::try_from(self.sockets.len()).unwrap_or(u64::MAX).saturating_add(1);
                let number = *self.sockets.entry((from.capture, socket)).or_insert(next);
                let host = usize::from(from.capture);
                let name = format!("socket {number}");
                self.put((host, from.station, LaneKind::Socket, number, name))
            }
            SwitchIn | SocketReceive => self.thread(names, to, to.thread),
            _ => {
                let at = if stage.parts.has(Parts::WIRE) { to } else { from };
                let host = usize::from(at.capture);
                let interface = names.interface(host, at.station, at.interface);
                let name = format!("{interface} {}", stage.parts.name());
                // Stages of an interface stand together, in the order of a packet's way.
                let bit = Parts::ALL.iter().position(|(part, _)| stage.parts.has(*part));
                let rank = u64::try_from(bit.unwrap_or(0)).unwrap_or(0);
                let order = (u64::from(at.interface) << 8) | rank;
                self.put((host, at.station, LaneKind::Interface, order, name))
            }
        }
    }

    fn thread(&mut self, names: &Names, at: &Point, thread: u32) -> usize {
        let host = usize::from(at.capture);
        let name = names.thread(host, thread);
        self.put((host, at.station, LaneKind::Thread, u64::from(thread), name))
    }

    /// The lines in order, and the place of each by the number it was given.
    pub fn finish(self, names: &Names, hosts: &[usize]) -> (Vec<Lane>, Vec<usize>) {
        let mut places = vec![0; self.places.len()];
        let mut lanes = Vec::new();
        for ((host, station, kind, _, name), number) in self.places {
            places[number] = lanes.len();
            // What belongs to no station is of the host as a whole.
            let station = match kind {
                LaneKind::Cpu => String::new(),
                _ => names.station(host, station),
            };
            let host = hosts.iter().position(|one| *one == host).unwrap_or(0);
            lanes.push(Lane { host, station, kind, name });
        }
        (lanes, places)
    }
}
