// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The networks that are simulated to see what a hop costs.
//!
//! Not here: how it is seen (`net.rs`, `sim_instructions.rs`).

use timewire_base::{BitsPerSecond, FrameLen, Span};
use timewire_sim::net::{Delay, LinkSpec, Network, NodeSpec, StreamSpec, Traffic};

pub fn rate() -> BitsPerSecond {
    BitsPerSecond::new(1_000_000_000).unwrap()
}

/// A station at each bridge, with streams to stations a few hops away. About the same number of
/// hops in each network, so that times are of one size.
pub fn line(bridges: usize, ring: bool) -> Network {
    let mut network = Network::empty(Span::from_ns(ns(1_600_000_000 / bridges)), 1);
    network.nodes = vec![NodeSpec::default(); 2 * bridges];
    let delay = Span::from_ns(500);
    for bridge in 1..bridges {
        network.links.push(LinkSpec::plain(bridge - 1, bridge, rate(), delay));
    }
    if ring {
        network.links.push(LinkSpec::plain(bridges - 1, 0, rate(), delay));
    }
    for bridge in 0..bridges {
        network.links.push(LinkSpec::plain(bridge, bridges + bridge, rate(), delay));
        let to = if ring || bridge + 4 < bridges { (bridge + 4) % bridges } else { bridge - 4 };
        network.streams.extend((0..4).map(|n| stream(bridges + bridge, bridges + to, n)));
    }
    network
}

/// The usual tree of `k`-port bridges: `k` pods, `k^3 / 4` stations. All streams of a pod go over
/// one core, as ways are found here, so the larger the pod the longer the periods: 29 % of the
/// busiest links is used in each tree. `even`: the frames of a pod follow each other at equal
/// distances to one other pod, so none ever waits and each hop is the same work in each tree.
pub fn fat_tree(k: usize, even: bool) -> Network {
    let (half, delay) = (k / 2, Span::from_ns(500));
    let slower = ns(half * half / 4);
    let (cores, edges) = (half * half, k * half);
    let stations = edges * half;
    let mut network = Network::empty(Span::from_ns(slower * ns(1_600_000_000 / stations)), 1);
    network.nodes = vec![NodeSpec::default(); cores + 2 * edges + stations];
    for pod in 0..k {
        for above in 0..half {
            let aggregation = cores + pod * half + above;
            for core in 0..half {
                network.links.push(LinkSpec::plain(
                    aggregation,
                    above * half + core,
                    rate(),
                    delay,
                ));
            }
            for below in 0..half {
                let edge = cores + edges + pod * half + below;
                network.links.push(LinkSpec::plain(aggregation, edge, rate(), delay));
            }
        }
        for below in 0..half {
            let edge = cores + edges + pod * half + below;
            for n in 0..half {
                let station = cores + 2 * edges + (pod * half + below) * half + n;
                network.links.push(LinkSpec::plain(edge, station, rate(), delay));
            }
        }
    }
    for station in 0..stations {
        // To another pod.
        let to = (station + stations / 2 + usize::from(!even)) % stations;
        let first = cores + 2 * edges;
        network.streams.extend((0..4).map(|n| stream(first + station, first + to, n)));
    }
    for (number, stream) in network.streams.iter_mut().enumerate() {
        if let Traffic::Cyclic { period, offset, .. } = &mut stream.traffic {
            *period = Span::from_ns(period.as_ns() * slower);
            *offset = Span::from_ns(offset.as_ns() * slower);
            if even {
                // No two pods do anything at one instant.
                let (pod, place) = (number / (k * k), number % (k * k));
                *offset = Span::from_ns(period.as_ns() * ns(place) / ns(k * k) + 193 * ns(pod));
            }
        }
    }
    network
}

/// A thousand bridges in a ring, two thousand stations, a hundred thousand streams of 100 frames a
/// second, four bridges apart.
pub fn large() -> Network {
    const BRIDGES: usize = 1_000;
    let mut network = Network::empty(Span::from_secs(1), 1);
    network.nodes = vec![NodeSpec::default(); 3 * BRIDGES];
    let delay = Span::from_ns(500);
    for bridge in 0..BRIDGES {
        network.links.push(LinkSpec::plain(bridge, (bridge + 1) % BRIDGES, rate(), delay));
        for station in [BRIDGES + bridge, 2 * BRIDGES + bridge] {
            network.links.push(LinkSpec::plain(bridge, station, rate(), delay));
        }
    }
    for number in 0..100_000 {
        let bridge = number % BRIDGES;
        let (from, to) = (BRIDGES + bridge, 2 * BRIDGES + (bridge + 4) % BRIDGES);
        let mut stream = stream(from, to, number / BRIDGES);
        stream.traffic = cyclic(Span::from_ms(10), Span::from_ns(ns(number * 97)));
        network.streams.push(stream);
    }
    network
}

fn stream(from: usize, to: usize, number: usize) -> StreamSpec {
    let frame = FrameLen::new(200).unwrap();
    let traffic =
        cyclic(Span::from_us(100), Span::from_ns(ns((from * 7 + number * 20_011) % 99_991)));
    StreamSpec { from, to, class: number % 8, frame, traffic, launch: None, shape: None }
}

fn cyclic(period: Span, offset: Span) -> Traffic {
    Traffic::Cyclic { period, offset, jitter: Delay::NONE, frames: 1, spacing: Span::ZERO }
}

fn ns(number: usize) -> i64 {
    i64::try_from(number).unwrap()
}
