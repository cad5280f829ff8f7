// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ports of a simulated network: what each frame needs of one, and the rest of it.

use timewire_base::{Sequence, Span};
use timewire_tsn::port::{GAP_BYTES, Port, PortConfig, Ps};

use super::delay::{Delay, below, ps};
use super::describe::Network;
use super::engine::{Simulation, sequence};
use super::frame::{Frame, slot};
use super::route::index;
use super::stats::LostBy;

/// A port whose link has more than one other end.
pub(super) const NO_PEER: u32 = u32::MAX;

/// A port, as far as a frame needs it that waits for nothing: one line of a cache.
#[repr(C, align(64))]
pub(super) struct PortState {
    pub free_at: u64,
    pub wake_at: u64,
    /// From the end of a frame, gap included, to the arrival of its last bit.
    pub lag: i64,
    /// How long the node at the other end takes to forward a frame, or [`VARIES`].
    pub takes: u32,
    /// Frames may be lost or damaged here.
    pub is_rough: bool,
    /// Its link has more than one other end.
    pub is_shared: bool,
    pub port: Port<Frame>,
}

const _: () = assert!(size_of::<PortState>() == 64);

/// A time that is not always the same, or does not fit; who knows it says so.
pub(super) const VARIES: u32 = u32::MAX;

/// The rest of a port.
pub(super) struct PortMore {
    pub node: u32,
    /// The node at the other end; of a segment there are several.
    pub peer: u32,
    /// The last frame sent here enters the next queue then; later ones do not overtake it. Not kept
    /// where each takes the same time, as they cannot; of a segment in [`Simulation::forwarded`].
    pub forwarded: u64,
    pub delay: u64,
    pub gap: u64,
    pub loss_ppb: u64,
    pub corrupt_ppb: u64,
    random: Sequence,
    /// Of a segment: its number and the place of this station.
    pub medium: Option<(u32, u32)>,
    /// How many faults have it down.
    pub down: u32,
}

impl PortMore {
    fn is_rough(&self) -> bool {
        self.down > 0 || self.loss_ppb > 0 || self.corrupt_ppb > 0
    }
}

impl Simulation {
    /// What a link does to a frame; [`LostBy::Corrupted`] shows at the other end.
    #[cold]
    pub(super) fn befalls(&mut self, port: u32) -> Option<LostBy> {
        let more = &mut self.port_more[slot(port)];
        if more.down > 0 {
            return Some(LostBy::LinkDown);
        }
        if happens(&mut more.random, more.loss_ppb) {
            return Some(LostBy::Link);
        }
        happens(&mut more.random, more.corrupt_ppb).then_some(LostBy::Corrupted)
    }

    /// Something changes of what becomes of frames at a port.
    pub(super) fn roughen(&mut self, port: usize, change: impl FnOnce(&mut PortMore)) {
        let more = &mut self.port_more[port];
        change(more);
        self.ports[port].is_rough = more.is_rough();
    }
}

fn happens(random: &mut Sequence, ppb: u64) -> bool {
    ppb > 0 && below(random.next(), 1_000_000_000) < ppb
}

/// How long a node takes to forward each frame, if that is always the same.
fn takes(network: &Network, node: usize) -> u32 {
    let spec = &network.nodes[node];
    match spec.cut_through_bytes {
        Some(_) => VARIES,
        None => fixed(&spec.forward),
    }
}

/// A time that is always the same, and short.
pub(super) fn fixed(delay: &Delay) -> u32 {
    delay.fixed().and_then(|takes| u32::try_from(takes).ok()).unwrap_or(VARIES)
}

pub(super) fn ports(network: &Network) -> (Vec<PortState>, Vec<PortMore>) {
    let (mut ports, mut port_more) = (Vec::new(), Vec::new());
    let mut add = |node: usize, peer: Option<usize>, config, medium, delay: Span, loss| {
        let (config, (loss_ppb, corrupt_ppb)): (PortConfig, (u32, u32)) = (config, loss);
        let gap = Ps::of_bytes(GAP_BYTES, config.rate);
        let gap = u64::try_from(gap.get()).unwrap_or(0);
        let more = PortMore {
            node: index(node),
            peer: peer.map_or(NO_PEER, index),
            forwarded: 0,
            delay: ps(delay),
            gap,
            loss_ppb: loss_ppb.into(),
            corrupt_ppb: corrupt_ppb.into(),
            random: sequence(network.seed, 4, ports.len()),
            medium,
            down: 0,
        };
        ports.push(PortState {
            free_at: 0,
            wake_at: u64::MAX,
            lag: ps(delay).cast_signed() - gap.cast_signed(),
            takes: peer.map_or(VARIES, |peer| takes(network, peer)),
            is_rough: more.is_rough(),
            is_shared: peer.is_none(),
            port: Port::new(&config),
        });
        port_more.push(more);
    };
    for link in &network.links {
        for end in 0..2 {
            let (node, config) = &link.ends[end];
            let (peer, loss) = (link.ends[1 - end].0, (link.loss_ppb, link.corrupt_ppb));
            add(*node, Some(peer), config.clone(), None, link.delay, loss);
        }
    }
    for (number, medium) in network.media.iter().enumerate() {
        for (place, (node, config)) in medium.stations.iter().enumerate() {
            let of = Some((index(number), index(place)));
            // Half duplex has no preemption.
            let mut config = config.clone();
            config.classes.iter_mut().for_each(|class| class.preemptable = false);
            let loss = (medium.loss_ppb, medium.corrupt_ppb);
            add(*node, None, config, of, medium.delay, loss);
        }
    }
    (ports, port_more)
}
