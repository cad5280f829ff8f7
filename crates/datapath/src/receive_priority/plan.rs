// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From the classes of host settings to the rules of the program: which counters and which lane of
//! threads each class gets. Classes keep theirs as long as they keep their names.

use std::collections::{BTreeMap, BTreeSet};

use timewire_bpf::BpfError;
use timewire_bpf::receive::resident::Resident;
use timewire_bpf::receive::rules::{self, Class, FrameMatch, LANES, Prefix, Rules, Target};
use timewire_model::scenario::host::{
    AddressPrefix, Destination, Match, Receive, ReceiveClass, SchedulingPolicy,
};

/// What is in force, or is to be.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) rules: Rules,
    /// The threads that there must be, and how they are scheduled.
    pub(super) threads: BTreeMap<(u8, u32), (SchedulingPolicy, u8)>,
    /// Slots that start from 0.
    pub(super) fresh_slots: Vec<u32>,
    /// Lanes whose losses start from 0: a class of another name may have had them.
    pub(super) fresh_lanes: Vec<u8>,
}

/// Rules in force: what they were made of, and the slot and lane of each class in their order.
#[derive(Clone, Debug)]
pub(super) struct InForce {
    pub(super) desired: Receive,
    pub(super) places: Vec<(u32, u8)>,
}

/// Reads what is in force.
pub(super) fn in_force(resident: &Resident) -> Result<InForce, BpfError> {
    let found = resident.rules(|text| parse(text).classes.len())?;
    Ok(InForce { desired: parse(&found.text), places: found.places })
}

/// What this program has written, it reads; a text of another version counts as no classes.
fn parse(text: &str) -> Receive {
    let value = serde_json::from_str(text).unwrap_or_default();
    let none = || Receive::from_json("none", &serde_json::json!({"normal_cpus": "0"}));
    Receive::from_json("the rules in force", &value)
        .or_else(|_| none())
        .expect("invariant: these are good")
}

impl Plan {
    /// The plan where nothing was before.
    pub(super) fn first(desired: &Receive) -> Plan {
        Plan::place(desired, &BTreeMap::new())
    }

    /// The plan after other rules: what they use is only reused by classes of the same name, so
    /// that counters never mix.
    pub(super) fn after(desired: &Receive, old: &InForce) -> Plan {
        let names = old.desired.in_order().into_iter().map(|class| class.name.as_str().to_owned());
        let places = names.zip(old.places.iter().copied().skip(1));
        Plan::place(desired, &places.collect())
    }

    /// The plan that is in force.
    pub(super) fn again(old: &InForce) -> Plan {
        Plan::after(&old.desired, old)
    }

    fn place(desired: &Receive, before: &BTreeMap<String, (u32, u8)>) -> Plan {
        let classes = desired.in_order();
        let used: BTreeSet<u32> = before.values().map(|(slot, _)| *slot).collect();
        let mut free_slots = (1..rules::SLOTS).filter(|slot| !used.contains(slot));
        let kept = |class: &ReceiveClass| before.get(class.name.as_str()).copied();
        let mut fresh_slots = Vec::new();
        let mut slot_of = |class: &ReceiveClass| match kept(class) {
            Some((slot, _)) => slot,
            None => {
                let slot = free_slots.next().expect("invariant: twice as many slots as classes");
                fresh_slots.push(slot);
                slot
            }
        };
        let lanes = lanes(&classes, before);
        let had = |name: &str, lane: u8| before.get(name).is_some_and(|(_, it)| *it == lane);
        let fresh = lanes.iter().filter(|(name, lane)| !had(name, **lane));
        let fresh_lanes = fresh.map(|(_, lane)| *lane).collect();
        let mut threads = BTreeMap::new();
        let normal_cpus = desired.normal_cpus();
        threads.extend(normal_cpus.iter().map(|cpu| ((0, *cpu), (SchedulingPolicy::Other, 0))));
        let normal = match normal_cpus {
            cpus if cpus.is_empty() => Target::Kernel,
            cpus => Target::Threads { lane: 0, cpus },
        };
        let mut placed = vec![Class { slot: 0, target: normal }];
        for class in &classes {
            let target = match (class.to, lanes.get(class.name.as_str())) {
                (Destination::Threads, Some(lane)) => {
                    let how = class.thread_scheduling();
                    threads.extend(class.cpus().into_iter().map(|cpu| ((*lane, cpu), how)));
                    Target::Threads { lane: *lane, cpus: class.cpus() }
                }
                (Destination::Socket, _) => Target::Socket,
                _ => Target::Kernel,
            };
            placed.push(Class { slot: slot_of(class), target });
        }
        let matches = classes.iter().zip(1..).flat_map(|(class, number)| {
            class.matches.iter().map(move |one| (number, frame_match(one)))
        });
        let matches = matches.collect();
        let text = serde_json::to_string(desired).expect("invariant: it has text keys");
        let rules = Rules { classes: placed, matches, text };
        Plan { rules, threads, fresh_slots, fresh_lanes }
    }

    /// Makes the threads that are missing; which those were. On an error none of them is left.
    pub(super) fn prepare_threads(&self, resident: &Resident) -> Result<Vec<(u8, u32)>, BpfError> {
        let mut made = Vec::new();
        for (lane, cpu) in self.threads.keys() {
            if resident.threads(*lane)?.contains(cpu) {
                continue;
            }
            if let Err(error) = resident.add_thread(*lane, *cpu) {
                for (lane, cpu) in made {
                    // The first error is the one to tell.
                    let _ = resident.remove_thread(lane, cpu);
                }
                return Err(error);
            }
            made.push((*lane, *cpu));
        }
        Ok(made)
    }

    /// Ends the threads that no class has any more.
    pub(super) fn end_other_threads(&self, resident: &Resident) -> Result<(), BpfError> {
        for lane in 0..LANES {
            for cpu in resident.threads(lane)? {
                if !self.threads.contains_key(&(lane, cpu)) {
                    resident.remove_thread(lane, cpu)?;
                }
            }
        }
        Ok(())
    }
}

/// A lane for each class with threads; those of before first, then such as nobody had.
fn lanes<'a>(
    classes: &[&'a ReceiveClass],
    before: &BTreeMap<String, (u32, u8)>,
) -> BTreeMap<&'a str, u8> {
    let with_threads = || {
        let mut classes = classes.iter().filter(|class| class.to == Destination::Threads);
        std::iter::from_fn(move || classes.next().map(|class| class.name.as_str()))
    };
    let mut lanes = BTreeMap::new();
    for name in with_threads() {
        if let Some((_, lane)) = before.get(name).filter(|(_, lane)| *lane > 0) {
            lanes.insert(name, *lane);
        }
    }
    let had: BTreeSet<u8> = before.values().map(|(_, lane)| *lane).collect();
    let (unused, used): (Vec<u8>, Vec<u8>) = (1..LANES).partition(|lane| !had.contains(lane));
    let taken: BTreeSet<u8> = lanes.values().copied().collect();
    let mut free = unused.into_iter().chain(used).filter(|lane| !taken.contains(lane));
    for name in with_threads() {
        if !lanes.contains_key(name) {
            lanes.insert(name, free.next().expect("invariant: the file's check counts them"));
        }
    }
    lanes
}

fn frame_match(one: &Match) -> FrameMatch {
    let prefix = |it: AddressPrefix| Prefix { address: it.address(), bits: it.bits() };
    let small = |number: u64| u8::try_from(number).expect("invariant: its type bounds it");
    FrameMatch {
        port: one.port.map(|it| it.get()),
        to_port: one.to_port.map(|it| it.get()),
        from_port: one.from_port.map(|it| it.get()),
        address: one.address.map(prefix),
        to_address: one.to_address.map(prefix),
        from_address: one.from_address.map(prefix),
        pcp: one.pcp.map(|it| small(it.get())),
        vlan: one.vlan.map(|it| u16::try_from(it.get()).expect("invariant: its type bounds it")),
        dscp: one.dscp.map(|it| small(it.get())),
        ethertype: one.ethertype.map(|it| it.get()),
        destination: one.destination,
        source: one.source,
        stream: one.stream.map(|it| it.0),
    }
}
