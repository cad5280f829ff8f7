// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What places with kernels do otherwise than a network of one segment says.

use timewire_base::{Span, StationName};
use timewire_model::scenario::network::{NetAccess, NetClock, NetDelay, NetworkFile};

/// What a run on kernels does otherwise than the file says, in words.
pub fn notes(file: &NetworkFile) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    let mut of = |what: &str, named: Vec<String>| {
        if !named.is_empty() {
            notes.push(format!("{what} are those of the place: {}", named.join(", ")));
        }
    };
    let own = |name: &StationName, is_own: bool| is_own.then(|| name.to_string());
    let stations = || file.stations.iter();
    of("clocks", stations().filter_map(|it| own(&it.name, is_set(&it.clock))).collect());
    let none = NetDelay::Fixed(Span::ZERO);
    let takes = |send: &NetDelay, receive: &NetDelay| *send != none || *receive != none;
    let slow = stations().filter_map(|it| own(&it.name, takes(&it.send, &it.receive)));
    of("times to send and to receive", slow.collect());
    for segment in &file.segments {
        let whole = Span::from_us(segment.delay.as_ns() / 1_000);
        // Below one, it is less than a kernel can tell.
        if whole != segment.delay && whole > Span::ZERO {
            notes.push(format!(
                "kernels delay by whole microseconds: the delay of {} is {whole}, not {}",
                segment.name, segment.delay
            ));
        }
        if segment.access == NetAccess::Contention && file.schedule.is_none() {
            notes.push(format!(
                "frames on {} wait for each other, and do not collide",
                segment.name
            ));
        }
    }
    notes
}

/// Whether it is another than the right one.
pub(super) fn is_set(clock: &NetClock) -> bool {
    clock.drift.0 != 0
        || clock.offset.0 != Span::ZERO
        || clock.wander.0 != 0
        || clock.sync.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use timewire_model::scenario::network::NetworkCases;
    use timewire_tsn::file::ParseFile as _;

    #[test]
    fn t0_what_a_place_does_otherwise_is_told() {
        let notes_of = |segment: &str, station: &str, more: &str| {
            let text = format!(
                "timewire: 1\nkind: network\nname: x\nsegments: [{{ {segment} }}]\n{more}\
                 stations: [{station}, b]\n\
                 streams: [{{ name: s, talker: a, listeners: b, size: 64B, period: 1ms }}]\n"
            );
            let cases = NetworkCases::parse("x.yaml", &text).unwrap_or_else(|it| panic!("{it}"));
            notes(&cases.base)
        };
        assert_eq!(notes_of("access: in-turn, delay: 3us", "a", ""), [""; 0]);
        let schedule = "schedule: { kind: tdm, transmit: 400us, slots: [a, b] }\n";
        assert_eq!(notes_of("delay: 0us", "a", schedule), [""; 0]);
        let station = "{ name: a, clock: { drift: 1ppm }, receive: 2us }";
        assert_eq!(
            notes_of("name: hub, delay: 2500ns", station, ""),
            [
                "clocks are those of the place: a",
                "times to send and to receive are those of the place: a",
                "kernels delay by whole microseconds: the delay of hub is 2us, not 2500ns",
                "frames on hub wait for each other, and do not collide",
            ]
        );
    }
}
