// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The queueing disciplines of an egress port, as `tc qdisc replace dev INTERFACE` takes them:
//! gates, credit, launch times, or strict priority, and the rate of a port that is virtual.
//!
//! A virtual interface states 10 Gbit/s and sends at once. Where frames of several classes meet, a
//! token bucket for one frame makes it a port of the link's rate: the next frame is chosen when the
//! one before has ended. Behind gates, classes that are always open together share one traffic
//! class of `taprio`. Where it has load or credit it has that bucket, and its gate closes two
//! frames earlier: a frame that the bucket gave to a gate as it closed goes at once when the gate
//! opens, and another one behind it.

use std::collections::{BTreeMap, BTreeSet};

use timewire_base::{BitsPerSecond, FrameLen, Span};
use timewire_model::scenario::network::NetGates;

/// An egress port and what leaves there.
#[derive(Clone, Debug)]
pub struct Port<'a> {
    /// Rate of the link.
    pub rate: BitsPerSecond,
    /// The interface has no rate of its own.
    pub is_virtual: bool,
    /// It is a bridge's, where the VLAN tag of a frame is apart from it.
    pub is_bridge: bool,
    /// Classes of the streams that leave here.
    pub classes: BTreeSet<u8>,
    /// The longest frame of those.
    pub longest: FrameLen,
    /// Of those, the classes with traffic that fills the link.
    pub floods: BTreeSet<u8>,
    /// When which classes may send.
    pub gates: Option<&'a NetGates>,
    /// Idle slope of each class with credit.
    pub credit: BTreeMap<u8, BitsPerSecond>,
    /// Classes with launch times, and how long before each the NIC is given the frame.
    pub launch: BTreeMap<u8, Span>,
    /// Of those, the classes whose gate need not hold them back, and is always open.
    pub held: BTreeSet<u8>,
}

/// A state of the gates: the traffic classes that are open, as bits, and how long it lasts.
type State = (u32, Span);

impl Port<'_> {
    /// The lines, in their order; none for a port that serves frames as they come.
    pub fn commands(&self) -> Vec<String> {
        match self.gates {
            Some(gates) => self.gated(gates),
            None if !self.launch.is_empty() => self.only_launch(),
            None if self.classes.len() > 1 || !self.credit.is_empty() => {
                self.priorities("root", &self.own_classes(), 1)
            }
            None => Vec::new(),
        }
    }

    /// The classes that are told apart, from the lowest, which has all others.
    fn own_classes(&self) -> Vec<u8> {
        self.classes.iter().copied().chain([0]).collect::<BTreeSet<u8>>().into_iter().collect()
    }

    /// Those that are always open together, by their lowest class.
    fn groups(&self, gates: &NetGates) -> Vec<Vec<u8>> {
        let pattern = |class: u8| -> Vec<bool> {
            let opens = |open: &[u64]| open.contains(&u64::from(class));
            let entries = gates.entries.iter();
            entries
                .map(|it| opens(&it.open.iter().map(|class| class.get()).collect::<Vec<_>>()))
                .collect()
        };
        let mut groups: Vec<(Vec<bool>, Vec<u8>)> = Vec::new();
        for class in self.own_classes() {
            let own = pattern(class);
            match groups.iter_mut().find(|(pattern, _)| *pattern == own) {
                Some((_, classes)) => classes.push(class),
                None => groups.push((own, vec![class])),
            }
        }
        groups.into_iter().map(|(_, classes)| classes).collect()
    }

    /// Sixteen priorities as numbers in a list.
    fn map(of: impl Fn(u8) -> usize) -> String {
        (0..16).map(|priority| of(priority).to_string()).collect::<Vec<_>>().join(" ")
    }

    /// What a link carries of a frame besides its bytes here: what a talker sends has its VLAN tag,
    /// and reception takes it out.
    ///
    /// **Units**: bytes. **Source**: `linux v6.12 net/core/dev.c:__netif_receive_skb_core`
    /// (`skb_vlan_untag`).
    fn overhead(&self) -> u32 {
        if self.is_bridge { OVERHEAD_BYTES + TAG_BYTES } else { OVERHEAD_BYTES }
    }

    fn bucket(&self, parent: &str, handle: usize) -> String {
        let overhead = match parent {
            "root" => format!("stab overhead {} ", self.overhead()),
            _ => String::new(),
        };
        format!(
            "{parent} handle {handle}: {overhead}tbf rate {}bit burst \
             {LONGEST_BYTES} limit {QUEUE_BYTES}",
            self.rate.get()
        )
    }

    fn gated(&self, gates: &NetGates) -> Vec<String> {
        let groups = self.groups(gates);
        let group = |class: u8| groups.iter().position(|own| own.contains(&class)).unwrap_or(0);
        let is_own = |class: u8| groups.iter().any(|own| own.contains(&class));
        let bit = |class: u8| u32::from(is_own(class)) << group(class);
        let open = self.held.iter().fold(0, |mask, class| mask | bit(*class));
        let mut states: Vec<State> =
            states(gates, bit).into_iter().map(|(mask, lasts)| (mask | open, lasts)).collect();
        let has_bucket = |classes: &[u8]| {
            let is = |class: &u8| self.floods.contains(class) || self.credit.contains_key(class);
            (classes.iter().any(is) || classes.len() > 1)
                && !classes.iter().any(|class| self.launch.contains_key(class))
        };
        for (number, classes) in groups.iter().enumerate() {
            if self.is_virtual && has_bucket(classes) {
                let guard = self.rate.duration_of(self.longest.wire_len());
                states = shortened(&states, 1 << number, guard + guard);
            }
        }
        let queues: Vec<String> = (0..groups.len()).map(|queue| format!("1@{queue}")).collect();
        let mut line = format!(
            "root handle 100: stab overhead {} taprio num_tc {} map {} queues {} base-time {}",
            self.overhead(),
            groups.len(),
            Self::map(group),
            queues.join(" "),
            gates.base_time.as_ns()
        );
        for (mask, lasts) in merged(states) {
            line += &format!(" sched-entry S {mask:02x} {}", lasts.as_ns());
        }
        line += " clockid CLOCK_TAI";
        let mut lines = vec![line.clone()];
        for (number, classes) in groups.iter().enumerate() {
            let parent = format!("parent 100:{}", number + 1);
            let delta = classes.iter().find_map(|class| self.launch.get(class));
            if let Some(delta) = delta {
                let delta = delta.as_ns();
                lines.push(format!("{parent} etf clockid CLOCK_TAI delta {delta}"));
            } else if has_bucket(classes) {
                lines.extend(self.priorities(&parent, classes, 10 * (number + 1)));
            }
        }
        // A discipline that comes below stops the gates of an interface that is up
        // (linux v6.12 net/sched/sch_taprio.c:taprio_reset); a schedule starts them again.
        if lines.len() > 1 {
            lines.push(line);
        }
        lines
    }

    /// Strict priority among classes, the highest first, with credit where it is asked for; on a
    /// virtual interface at the rate of the link. Handles begin with this one.
    fn priorities(&self, parent: &str, classes: &[u8], handle: usize) -> Vec<String> {
        let credit = || self.credit.iter().filter(|(class, _)| classes.contains(class));
        let (mut lines, mut parent) = (Vec::new(), parent.to_owned());
        if self.is_virtual {
            lines.push(self.bucket(&parent, handle));
            parent = format!("parent {handle}:1");
        }
        if classes.len() < 2 && credit().next().is_none() {
            return lines;
        }
        let handle = handle + 1;
        let mut order = classes.to_vec();
        order.sort_unstable_by(|one, other| other.cmp(one));
        let last = order.len() - 1;
        let band = |class: u8| order.iter().position(|own| *own == class).unwrap_or(last);
        lines.push(format!(
            "{parent} handle {handle}: prio bands {} priomap {}",
            order.len().max(2),
            Self::map(band)
        ));
        for (class, idle_slope) in credit() {
            let band = band(*class) + 1;
            lines.push(format!("parent {handle}:{band} cbs {}", self.credit_words(*idle_slope)));
        }
        lines
    }

    /// The four numbers of `cbs`: rates in kbit/s against what the interface states, credit in
    /// bytes. The most credit is what gathers while the longest frame of others is sent; a virtual
    /// interface sends it in no time, so credit is bounded by the frame itself.
    fn credit_words(&self, idle_slope: BitsPerSecond) -> String {
        let idle = i128::from(idle_slope.get().div_ceil(1_000));
        let stated = if self.is_virtual { VIRTUAL_BPS } else { self.rate.get() };
        let stated = i128::from(stated / 1_000).max(idle);
        let frame = i128::from(CREDIT_BYTES);
        let (hi, lo) = match self.is_virtual {
            true => (frame, -frame),
            false => ((frame * idle + stated - 1) / stated, -(frame * (stated - idle)) / stated),
        };
        format!("idleslope {idle} sendslope {} hicredit {hi} locredit {lo}", idle - stated)
    }

    /// Launch times without gates.
    fn only_launch(&self) -> Vec<String> {
        let classes = self.own_classes();
        let last = classes.len() - 1;
        let band = |class: u8| classes.iter().rev().position(|own| *own == class).unwrap_or(last);
        let mut lines = vec![format!(
            "root handle 2: prio bands {} priomap {}",
            classes.len().max(2),
            Self::map(band)
        )];
        for (class, delta) in &self.launch {
            let (band, delta) = (band(*class) + 1, delta.as_ns());
            lines.push(format!("parent 2:{band} etf clockid CLOCK_TAI delta {delta}"));
        }
        lines
    }
}

/// The states of a list; the last one lasts to the end of the cycle.
fn states(gates: &NetGates, bit: impl Fn(u8) -> u32) -> Vec<State> {
    let total = gates.entries.iter().fold(Span::ZERO, |sum, entry| sum + entry.interval);
    let rest = gates.cycle_time.map_or(Span::ZERO, |cycle| (cycle - total).max(Span::ZERO));
    let last = gates.entries.len().saturating_sub(1);
    let state = |(index, entry): (usize, &timewire_model::scenario::network::NetGateEntry)| {
        let classes = entry.open.iter().map(|class| u8::try_from(class.get()).unwrap_or(7));
        let mask = classes.fold(0, |mask, class| mask | bit(class));
        (mask, if index == last { entry.interval + rest } else { entry.interval })
    };
    gates.entries.iter().enumerate().map(state).collect()
}

/// The list in which each time that these gates are open ends so much earlier. Gates that never
/// close are left alone.
fn shortened(states: &[State], bits: u32, by: Span) -> Vec<State> {
    let is_open = |index: usize| states[index].0 & bits != 0;
    let count = states.len();
    let Some(closed) = (0..count).find(|index| !is_open(*index)) else { return states.to_vec() };
    let mut cut = vec![Span::ZERO; count];
    let mut left = Span::ZERO;
    // Backwards from a state in which they are closed, once around.
    for step in 1..=count {
        let index = (closed + count - step) % count;
        let next = (index + 1) % count;
        if is_open(index) && !is_open(next) {
            left = by;
        }
        if is_open(index) {
            cut[index] = left.min(states[index].1);
            left = left - cut[index];
        }
    }
    let mut made = Vec::new();
    for ((mask, lasts), cut) in states.iter().zip(cut) {
        made.push((*mask, *lasts - cut));
        made.push((*mask & !bits, cut));
    }
    made.retain(|(_, lasts)| *lasts > Span::ZERO);
    made
}

/// The same list without states that are like the one before.
fn merged(states: Vec<State>) -> Vec<State> {
    let mut made: Vec<State> = Vec::new();
    for (mask, lasts) in states {
        match made.last_mut() {
            Some(before) if before.0 == mask => before.1 += lasts,
            _ => made.push((mask, lasts)),
        }
    }
    made
}

/// Check sequence, preamble and gap. **Units**: bytes.
const OVERHEAD_BYTES: u32 = 24;
/// A VLAN tag. **Units**: bytes.
pub const TAG_BYTES: u32 = 4;
/// The longest frame with those and a VLAN tag. **Units**: bytes.
const LONGEST_BYTES: u32 = 1_542;
/// The longest frame as credit counts it. **Units**: bytes.
const CREDIT_BYTES: u32 = 1_538;
/// What waits at most. **Units**: bytes.
const QUEUE_BYTES: u32 = 200_000;
/// What a virtual interface states. **Units**: bits per second.
const VIRTUAL_BPS: u64 = 10_000_000_000;

#[cfg(test)]
mod tests {
    use timewire_tsn::file::ParseFile;

    use super::*;

    fn us(us: i64) -> Span {
        Span::from_us(us)
    }

    fn port(classes: &[u8]) -> Port<'static> {
        Port {
            rate: BitsPerSecond::new(100_000_000).unwrap(),
            is_virtual: true,
            is_bridge: false,
            classes: classes.iter().copied().collect(),
            longest: FrameLen::new(1_514).unwrap(),
            floods: BTreeSet::new(),
            gates: None,
            credit: BTreeMap::new(),
            launch: BTreeMap::new(),
            held: BTreeSet::new(),
        }
    }

    #[test]
    fn t0_gates_close_earlier_at_the_end_of_each_time_they_are_open() {
        // Open for 300 us over two states, closed, open for 100 us.
        let list = [(1, us(200)), (3, us(100)), (2, us(50)), (1, us(100)), (2, us(50))];
        let got = shortened(&list, 1, us(100));
        assert_eq!(merged(got), [(1, us(200)), (2, us(150)), (0, us(100)), (2, us(50))]);
        // Over the turn of the list, and longer than the last state.
        let list = [(1, us(100)), (2, us(50)), (1, us(30))];
        assert_eq!(
            merged(shortened(&list, 1, us(40))),
            [(1, us(60)), (0, us(40)), (2, us(50)), (1, us(30))]
        );
        // Always open, and never.
        assert_eq!(shortened(&[(1, us(10))], 1, us(4)), [(1, us(10))]);
        assert_eq!(shortened(&[(2, us(10))], 1, us(4)), [(2, us(10))]);
    }

    #[test]
    fn t0_a_port_of_one_class_needs_nothing_and_one_of_several_has_priorities() {
        assert_eq!(port(&[3]).commands(), Vec::<String>::new());
        assert_eq!(
            port(&[0, 6]).commands(),
            [
                "root handle 1: stab overhead 24 tbf rate 100000000bit burst \
                 1542 limit 200000",
                "parent 1:1 handle 2: prio bands 2 priomap \
                 1 1 1 1 1 1 0 1 1 1 1 1 1 1 1 1",
            ]
        );
        let nic = Port { is_virtual: false, ..port(&[0, 6]) };
        assert_eq!(
            nic.commands(),
            ["root handle 2: prio bands 2 priomap \
              1 1 1 1 1 1 0 1 1 1 1 1 1 1 1 1"]
        );
    }

    #[test]
    fn t0_credit_is_counted_against_what_the_interface_states() {
        let rate = |bps| BitsPerSecond::new(bps).unwrap();
        let credit = BTreeMap::from([(3, rate(22_912_000)), (2, rate(21_056_000))]);
        let lines = Port { credit: credit.clone(), ..port(&[0, 2, 3]) }.commands();
        assert_eq!(
            lines[1..],
            [
                "parent 1:1 handle 2: prio bands 3 priomap \
                 2 2 1 0 2 2 2 2 2 2 2 2 2 2 2 2",
                "parent 2:2 cbs idleslope 21056 sendslope -9978944 \
                 hicredit 1538 locredit -1538",
                "parent 2:1 cbs idleslope 22912 sendslope -9977088 \
                 hicredit 1538 locredit -1538",
            ]
        );
        let nic = Port { credit, is_virtual: false, ..port(&[0, 2, 3]) }.commands();
        assert!(nic[2].ends_with("idleslope 22912 sendslope -77088 hicredit 353 locredit -1185"));
    }

    #[test]
    fn t0_classes_that_are_open_together_share_a_traffic_class_and_leave_room_for_their_frames() {
        let gates = |text: &str| {
            let text = format!(
                "{{timewire: 1, kind: network, name: n, duration: 1s, stations: [{{name: a}}, \
                 {{name: b}}], links: [{{between: [a, b]}}], ports: [{{of: [a], gates: {text}}}], \
                 streams: [{{name: s, talker: a, listeners: b, size: 64B, \
                 kind: cyclic, period: 1ms}}]}}"
            );
            let file = timewire_model::scenario::network::NetworkFile::parse("n", &text);
            file.unwrap().ports[0].gates.clone().unwrap()
        };
        let list = gates(
            "{entries: [{open: [7], interval: 250us}, \
             {open: [0, 1, 2, 3, 4, 5, 6], interval: 750us}]}",
        );
        let plain = Port { gates: Some(&list), ..port(&[7]) };
        assert_eq!(
            plain.commands(),
            ["root handle 100: stab overhead 24 taprio num_tc 2 map \
              0 0 0 0 0 0 0 1 0 0 0 0 0 0 0 0 queues 1@0 1@1 base-time 0 sched-entry S 02 250000 \
              sched-entry S 01 750000 clockid CLOCK_TAI"]
        );
        let credit = BTreeMap::from([(5, BitsPerSecond::new(20_000_000).unwrap())]);
        let floods = BTreeSet::from([0]);
        let lines = Port { gates: Some(&list), floods, credit, ..port(&[0, 5, 7]) }.commands();
        // Two frames of 123.04 us end before the gate of the others opens again.
        let first = "root handle 100: stab overhead 24 taprio num_tc 2 \
                     map 0 0 0 0 0 0 0 1 0 0 0 0 0 0 0 0 queues 1@0 1@1 base-time 0 sched-entry S \
                     02 250000 sched-entry S 01 503920 sched-entry S 00 246080 clockid CLOCK_TAI";
        assert_eq!(
            lines,
            [
                first,
                "parent 100:1 handle 10: tbf rate 100000000bit burst \
                 1542 limit 200000",
                "parent 10:1 handle 11: prio bands 2 priomap \
                 1 1 1 1 1 0 1 1 1 1 1 1 1 1 1 1",
                "parent 11:1 cbs idleslope 20000 sendslope -9980000 \
                 hicredit 1538 locredit -1538",
                first,
            ]
        );
        // A launch time is kept by the discipline below.
        let launch = BTreeMap::from([(7, us(20))]);
        let etf = Port { gates: Some(&list), launch, ..port(&[7]) };
        let lines = etf.commands();
        assert!(lines[0].contains("sched-entry S 02 250000 sched-entry S 01 750000"), "{lines:?}");
        assert_eq!(lines[1], "parent 100:2 etf clockid CLOCK_TAI delta 20000");
        // `taprio` looks at the launch time, and a planned frame leaves before it.
        let lines = Port { held: BTreeSet::from([7]), ..etf }.commands();
        assert!(lines[0].contains("sched-entry S 02 250000 sched-entry S 03 750000"), "{lines:?}");
    }
}
