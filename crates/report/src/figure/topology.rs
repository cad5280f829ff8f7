// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A network as a drawing: what forwards stands inside, stations around it, each near what it is
//! linked to; a link is as wide as it was busy, and says how much. The same network is always drawn
//! the same.

use std::f64::consts::{FRAC_PI_2, TAU};

use super::{Svg, WIDTH, Xy};
use crate::extras::{Topology, TopologyKind, TopologyLink};
use crate::text::{count_f64, put};

const HEIGHT: f64 = 420.0;
/// More would stand on each other.
pub(crate) const MAX_NODES: usize = 48;
const MIDDLE: (f64, f64) = (WIDTH / 2.0, HEIGHT / 2.0);
const OUTER: (f64, f64) = (220.0, 172.0);
const INNER: (f64, f64) = (105.0, 78.0);

/// The figure; `None` of nothing, and of more than can be told apart.
pub(crate) fn topology(id: &str, title: &str, network: &Topology) -> Option<String> {
    if network.nodes.is_empty() || network.nodes.len() > MAX_NODES {
        return None;
    }
    let mut svg = Svg::open(id, title, &description(network), HEIGHT);
    let places = places(network);
    let mut labels = Vec::new();
    for link in &network.links {
        let [from, to] = link.ends.map(|end| places.get(end).copied().unwrap_or(MIDDLE));
        let d = format!("M{} {}L{} {}", Xy(from.0), Xy(from.1), Xy(to.0), Xy(to.1));
        let busy = busiest(link);
        let class = match busy {
            None => "edge-0",
            Some(share) if share >= 0.75 => "edge-3 v-bad",
            Some(share) if share >= 0.5 => "edge-2 v-open",
            Some(share) if share >= 0.1 => "edge-1 v-good",
            Some(_) => "edge-0 v-good",
        };
        svg.path(&format!("edge {class}"), &d);
        if let Some(share) = busy.filter(|share| *share > 0.0) {
            labels.push(((from.0 + to.0) / 2.0, (from.1 + to.1) / 2.0 + 4.0, percent(share)));
        }
    }
    for (node, (x, y)) in network.nodes.iter().zip(&places) {
        let (class, wide, high) = match node.kind {
            TopologyKind::Station => ("node", 7.0, 7.0),
            TopologyKind::Bridge => ("node bridge", 13.0, 9.0),
            TopologyKind::Segment => ("node segment", 26.0, 5.0),
        };
        svg.rect(class, (x - wide, x + wide), (y - high, y + high));
    }
    // Above everything, so that no line crosses a word.
    for (x, y, text) in labels {
        svg.text("m back", x, y, &text);
    }
    for (node, (x, y)) in network.nodes.iter().zip(&places) {
        let below = *y > MIDDLE.1;
        let y = if below { y + 23.0 } else { y - 13.0 };
        let class = match *x {
            x if x < 60.0 => "halo",
            x if x > WIDTH - 60.0 => "e halo",
            _ => "m halo",
        };
        let x = if class == "m halo" { *x } else { x.clamp(4.0, WIDTH - 4.0) };
        svg.text(class, x, y, &node.name);
    }
    Some(svg.close())
}

/// The busier direction.
pub(crate) fn busiest(link: &TopologyLink) -> Option<f64> {
    link.carried.map(|[there, back]| there.share.max(back.share))
}

/// Never rounds something to nothing.
pub(crate) fn percent(share: f64) -> String {
    match share * 100.0 {
        percent if percent <= 0.0 => "0 %".to_owned(),
        percent if percent < 0.1 => "<0.1 %".to_owned(),
        percent if percent < 10.0 => format!("{percent:.1} %"),
        percent => format!("{percent:.0} %"),
    }
}

/// Where each node stands.
fn places(network: &Topology) -> Vec<(f64, f64)> {
    let of_kind = |inside: bool| {
        let nodes = network.nodes.iter().enumerate();
        let nodes = nodes.filter(move |(_, node)| (node.kind != TopologyKind::Station) == inside);
        nodes.map(|(at, _)| at).collect::<Vec<usize>>()
    };
    let hubs = in_order(network, of_kind(true));
    let mut stations = of_kind(false);
    let hub_of = |station: &usize| {
        let ends = network.links.iter().filter(|link| link.ends.contains(station));
        let other = |link: &TopologyLink| {
            if link.ends[0] == *station { link.ends[1] } else { link.ends[0] }
        };
        ends.map(other).find_map(|other| hubs.iter().position(|hub| *hub == other))
    };
    // Stations of one bridge stand beside each other, in the order of the file.
    stations.sort_by_key(|station| hub_of(station).unwrap_or(usize::MAX));
    let mut places = vec![MIDDLE; network.nodes.len()];
    let around = |radius: (f64, f64), turn: f64| {
        (MIDDLE.0 + radius.0 * turn.cos(), MIDDLE.1 + radius.1 * turn.sin())
    };
    let mut turns = vec![Vec::new(); hubs.len()];
    for (at, station) in stations.iter().enumerate() {
        let turn = count_f64(at as u64) / count_f64(stations.len() as u64) * TAU - FRAC_PI_2;
        places[*station] = around(OUTER, turn);
        if let Some(hub) = hub_of(station) {
            turns[hub].push(turn);
        }
    }
    if let [only] = hubs[..] {
        places[only] = MIDDLE;
        return places;
    }
    for (at, hub) in hubs.iter().enumerate() {
        let even = count_f64(at as u64) / count_f64(hubs.len() as u64) * TAU - FRAC_PI_2;
        let all_have = turns.iter().all(|turns| !turns.is_empty());
        let turn = match &turns[at][..] {
            // Each hub in front of its stations, as long as every hub has some.
            own if all_have => own.iter().sum::<f64>() / count_f64(own.len() as u64),
            _ => even,
        };
        places[*hub] = around(INNER, turn);
    }
    places
}

/// From neighbour to neighbour, so that few lines cross.
fn in_order(network: &Topology, hubs: Vec<usize>) -> Vec<usize> {
    let mut ordered: Vec<usize> = Vec::new();
    for start in &hubs {
        let mut next = Some(*start).filter(|start| !ordered.contains(start));
        while let Some(hub) = next {
            ordered.push(hub);
            next = hubs.iter().copied().find(|other| {
                let linked =
                    |link: &&TopologyLink| link.ends.contains(&hub) && link.ends.contains(other);
                !ordered.contains(other) && network.links.iter().any(|link| linked(&link))
            });
        }
    }
    ordered
}

fn description(network: &Topology) -> String {
    let count = |kind| network.nodes.iter().filter(|node| node.kind == kind).count();
    let mut text = format!(
        "{} stations, {} bridges, {} segments, {} links.",
        count(TopologyKind::Station),
        count(TopologyKind::Bridge),
        count(TopologyKind::Segment),
        network.links.len()
    );
    let busy = network.links.iter().filter_map(|link| Some((busiest(link)?, link)));
    if let Some((share, link)) = busy.max_by(|one, two| one.0.total_cmp(&two.0)) {
        let name = |end: usize| network.nodes.get(end).map_or("", |node| node.name.as_str());
        let [from, to] = link.ends.map(name);
        put!(&mut text, " The busiest is {from} to {to}, {}.", percent(share));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extras::TopologyNode;

    fn network(bridges: usize, stations: usize) -> Topology {
        let node = |name: String, kind| TopologyNode { name, kind };
        let nodes = (0..bridges).map(|at| node(format!("b{at}"), TopologyKind::Bridge));
        let others = (0..stations).map(|at| node(format!("s{at}"), TopologyKind::Station));
        let link = |at: usize| TopologyLink {
            ends: [bridges + at, at % bridges],
            rate_bps: 1_000_000_000,
            carried: None,
        };
        Topology { nodes: nodes.chain(others).collect(), links: (0..stations).map(link).collect() }
    }

    #[test]
    fn t0_no_two_nodes_share_a_place() {
        for (bridges, stations) in [(1, 3), (2, 2), (3, 9), (6, 12), (8, 40)] {
            let places = places(&network(bridges, stations));
            for (at, one) in places.iter().enumerate() {
                for two in &places[at + 1..] {
                    let far = (one.0 - two.0).hypot(one.1 - two.1);
                    assert!(far > 8.0, "{bridges} {stations}: {one:?} and {two:?}");
                }
            }
        }
    }

    #[test]
    fn t0_shares_keep_what_is_small() {
        let of = |share| percent(share);
        assert_eq!((of(0.0), of(0.000_1)), ("0 %".to_owned(), "<0.1 %".to_owned()));
        assert_eq!((of(0.05), of(0.5)), ("5.0 %".to_owned(), "50 %".to_owned()));
    }

    #[test]
    fn t0_more_than_can_be_told_apart_is_not_drawn() {
        assert!(topology("a", "b", &network(1, MAX_NODES)).is_none());
        assert!(topology("a", "b", &Topology::default()).is_none());
        assert!(topology("a", "b", &network(2, 4)).is_some());
    }
}
