// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Streams with several listeners: where bridges copy their frames, and what of a stream is behind
//! each port.
//!
//! A copy has the number of its place in the tree. The first places are ports; behind them there is
//! a place for each listener, whose port is the last before it.

use std::sync::Arc;

use super::describe::{NetError, Network};
use super::engine::Simulation;
use super::frame::{Frame, NO_PORT, Tags, slot};
use super::observe::{What, place};
use super::stats::{Latencies, StreamResult};

/// The ways of a stream to its listeners.
#[derive(Debug, Default)]
pub(super) struct Tree {
    /// Ports of the talker.
    pub roots: Vec<u8>,
    places: Vec<Behind>,
    /// How many of the places are ports.
    ports: usize,
    /// Nodes, in the order in which they were given.
    listeners: Vec<u32>,
}

/// What is behind a place.
#[derive(Debug)]
struct Behind {
    /// The port that sends the frame there, or [`NO_PORT`].
    sent_by: u32,
    /// Places of ports that send the frame on.
    ports: Vec<u8>,
    /// Places of listeners.
    ends: Vec<u8>,
    /// All listeners that get the frame by it.
    all: Vec<usize>,
}

impl Behind {
    fn nothing() -> Behind {
        Behind { sent_by: NO_PORT, ports: Vec::new(), ends: Vec::new(), all: Vec::new() }
    }
}

impl Tree {
    /// Of the ways to each listener, which part and never meet again; and the port of each place.
    ///
    /// **Errors**: more places than a frame can name.
    pub fn of(ways: &[Vec<u32>], listeners: Vec<u32>) -> Result<(Tree, Vec<u32>), NetError> {
        let mut ports: Vec<u32> = Vec::new();
        for port in ways.iter().flatten() {
            if !ports.contains(port) {
                ports.push(*port);
            }
        }
        let count = ports.len() + ways.len();
        if count > Network::MAX_HOPS {
            let what = "hops and listeners of a stream";
            return Err(NetError::TooMany { what, count, max: Network::MAX_HOPS });
        }
        let mut tree = Tree { ports: ports.len(), listeners, ..Tree::default() };
        tree.places.resize_with(count, Behind::nothing);
        let ends = ports.len();
        for (listener, way) in ways.iter().enumerate() {
            let mut before: Option<usize> = None;
            for port in way {
                let place = ports.iter().position(|it| it == port).unwrap_or(0);
                let list = match before {
                    None => &mut tree.roots,
                    Some(before) => {
                        tree.places[place].sent_by = ports[before];
                        &mut tree.places[before].ports
                    }
                };
                add(list, place);
                tree.places[place].all.push(listener);
                before = Some(place);
            }
            if let Some(last) = before {
                add(&mut tree.places[last].ends, ends + listener);
                tree.places[ends + listener].sent_by = ports[last];
                ports.push(ports[last]);
            }
            tree.places[ends + listener].all.push(listener);
        }
        Ok((tree, ports))
    }

    /// Places of ports behind a place.
    pub fn ports(&self, place: u8) -> &[u8] {
        &self.places[usize::from(place)].ports
    }

    /// Places of listeners behind a place.
    pub fn ends(&self, place: u8) -> &[u8] {
        &self.places[usize::from(place)].ends
    }

    /// The port that sends a frame to a place, or [`NO_PORT`].
    pub fn sent_by(&self, place: u8) -> u32 {
        self.places[usize::from(place)].sent_by
    }

    /// Which listener a place is, and its node.
    pub fn listener(&self, place: u8) -> (usize, u32) {
        let listener = usize::from(place) - self.ports;
        (listener, self.listeners[listener])
    }

    fn behind(&self, place: u8) -> &[usize] {
        &self.places[usize::from(place)].all
    }
}

fn add(list: &mut Vec<u8>, place: usize) {
    let place = u8::try_from(place).expect("invariant: places were counted");
    if !list.contains(&place) {
        list.push(place);
    }
}

/// A stream's listeners, and what became of its frames at each.
#[derive(Debug)]
pub(super) struct Listeners {
    pub tree: Arc<Tree>,
    pub results: Vec<StreamResult>,
}

impl Listeners {
    pub fn new(tree: Tree, room: &Latencies) -> Listeners {
        let result = || StreamResult { latencies: room.clone(), ..StreamResult::default() };
        let results = tree.listeners.iter().map(|_| result()).collect();
        Listeners { tree: Arc::new(tree), results }
    }
}

impl Simulation {
    /// Where the copies of a frame go when its stream has several listeners.
    #[inline]
    pub(super) fn tree(&self, frame: &Frame) -> Option<&Arc<Tree>> {
        if !frame.tags.has(Tags::SEVERAL) {
            return None;
        }
        self.several[slot(frame.stream)].as_ref().map(|several| &several.tree)
    }

    /// A frame that somebody may be told of, or that has several listeners, has a link for itself.
    /// `times`: until when, gap included; when its last bit is at the other end; and since when.
    #[inline(never)]
    pub(super) fn depart_watched(
        &mut self,
        frame: Frame,
        port: u32,
        times: (u64, u64, Option<u64>),
    ) {
        let (ends, arrives, since) = times;
        let at_ps = ends.saturating_sub(self.port_more[slot(port)].gap);
        self.tell(&frame, What::Ended { port: place(port), at_ps });
        if frame.tags.has(Tags::SEVERAL) {
            return self.part(frame, port, arrives, since);
        }
        let next = Frame { at: frame.at + 1, ..frame };
        if self.routes.hop(frame.at).is_last() {
            return self.arrive(next, port, arrives);
        }
        self.go_to_next::<true>(next, port, (arrives, since), None);
    }

    /// A frame of several listeners has left a port: a copy goes each way that is behind it.
    fn part(&mut self, frame: Frame, port: u32, arrives: u64, since: Option<u64>) {
        let Some(tree) = self.tree(&frame).map(Arc::clone) else { return };
        let place = self.routes.place(&frame);
        // A bridge looks at a frame once, however many copies it makes.
        let mut looked: Vec<(u32, u64)> = Vec::new();
        for next in tree.ports(place) {
            let copy = self.routes.moved(frame, *next);
            let node = self.port_more[slot(self.routes.hop(copy.at).port())].node;
            let before = looked.iter().find(|(other, _)| *other == node).map(|(_, takes)| *takes);
            let takes = self.go_to_next::<true>(copy, port, (arrives, since), before);
            if before.is_none() && tree.ports(place).len() > 1 {
                looked.push((node, takes));
            }
        }
        for end in tree.ends(place) {
            self.arrive(self.routes.moved(frame, *end), port, arrives);
        }
    }

    /// A frame that a port has sent comes to the end of its way.
    fn arrive(&mut self, frame: Frame, port: u32, arrives: u64) {
        let (_, node) = self.end_of(&frame);
        self.tell(&frame, What::Reaches { port: place(port), node, at_ps: arrives });
        let place = self.slab.put(frame, arrives);
        self.delivered_at(arrives, place, &frame);
    }

    /// A frame of a stream counts at each of its listeners that get it by where it is.
    pub(super) fn count(&mut self, frame: &Frame, mut count: impl FnMut(&mut StreamResult)) {
        let place = self.routes.place(frame);
        match &mut self.several[slot(frame.stream)] {
            None => count(&mut self.results[slot(frame.stream)]),
            Some(several) => {
                for listener in several.tree.behind(place) {
                    count(&mut several.results[*listener]);
                }
            }
        }
    }

    /// The nodes of the listeners that get a frame by where it is.
    pub(super) fn behind(&self, frame: &Frame) -> Vec<usize> {
        match self.tree(frame) {
            None => vec![self.end_of(frame).1],
            Some(tree) => {
                let node = |listener: &usize| slot(tree.listeners[*listener]);
                tree.behind(self.routes.place(frame)).iter().map(node).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_ways_share_what_they_have_in_common() {
        // 0 -> 1 -> 2 and 0 -> 1 -> 3 -> 4, and another at the end of 1.
        let ways = [vec![10, 11, 12], vec![10, 11, 13, 14], vec![10, 11]];
        let (tree, ports) = Tree::of(&ways, vec![7, 8, 9]).unwrap();
        assert_eq!(ports, [10, 11, 12, 13, 14, 12, 14, 11]);
        assert_eq!((tree.roots.as_slice(), tree.ports(0)), (&[0][..], &[1][..]));
        assert_eq!((tree.ports(1), tree.ends(1)), (&[2, 3][..], &[7][..]));
        assert_eq!((tree.ends(2), tree.ends(4)), (&[5][..], &[6][..]));
        assert_eq!((tree.behind(1), tree.behind(3)), (&[0, 1, 2][..], &[1][..]));
        assert_eq!((tree.listener(5), tree.listener(7)), ((0, 7), (2, 9)));
        assert_eq!([0, 1, 4, 5, 7].map(|place| tree.sent_by(place)), [NO_PORT, 10, 13, 12, 11]);
        let long: Vec<Vec<u32>> = (0..128).map(|way| vec![way, way + 1_000]).collect();
        let error = Tree::of(&long, vec![0; 128]).unwrap_err().to_string();
        assert_eq!(error, "384 hops and listeners of a stream are more than 255");
    }
}
