// SPDX-License-Identifier: Apache-2.0 OR MIT
//! VLANs from settings: the tag that a socket's priority gets, and the priority that a tag gets.

use std::collections::BTreeMap;
use std::os::fd::AsFd;

use timewire_base::{IfName, Span, Tai};
use timewire_lab::fixture::{Bench, Fixture};
use timewire_lab::ns;
use timewire_lab::trial::Trial;
use timewire_sys::event::wait_readable;
use timewire_sys::interface_index;
use timewire_sys::packet::{Observed, PacketOptions, PacketSocket};
use timewire_sys::talk::{TalkOptions, TalkSocket};

use super::station::{Station, file};

pub const TRIALS: &[Trial] =
    &[Trial::new("t4_applied_vlan_maps_priorities_to_tags_and_back", maps)];

const TALKER: &str = "\
timewire: 1
kind: network
name: talker
stations:
  - name: alpha
    host:
      interfaces:
        - name: eth0
          vlans: [{ id: 5, egress: [{ priority: 3, pcp: 3 }, { priority: 2, pcp: 6 }] }]
        - { name: eth0.5, up: true }
";

/// What it receives in the VLAN it sends on through `eth1`, by class.
const LISTENER: &str = "\
timewire: 1
kind: network
name: listener
stations:
  - name: alpha
    host:
      interfaces:
        - name: eth0
          vlans:
            - { id: 5, name: stream, ingress: [{ pcp: 3, priority: 3 }, { pcp: 6, priority: 2 }] }
        - { name: stream, up: true }
        - name: eth1
          transmit:
            classes:
              - { priorities: [3], queues: 1@0 }
              - { priorities: [2], queues: 1@1 }
              - { queues: 2@2 }
";

/// Socket priority, PCP in the tag, transmit queue of the listener, frames.
const WAYS: [(u32, u8, usize, usize); 3] = [(3, 3, 0, 10), (2, 6, 1, 20), (5, 0, 2, 30)];

fn maps() {
    let mut fixture = Fixture::new();
    fixture.station("a").station("b").station("c").link("a", "b").link("b", "c");
    let bench = fixture.build().unwrap();
    let (a, b) = (Station::of(&bench, "a"), Station::of(&bench, "b"));
    a.with(&file(TALKER), || {
        b.with(&file(LISTENER), || {
            bench.tc("b", "a", "qdisc add dev stream clsact").unwrap();
            let redirect = "filter add dev stream ingress matchall action mirred egress redirect \
                            dev eth1";
            bench.tc("b", "a", redirect).unwrap();
            let tags = send(&bench);
            for (_, pcp, _, frames) in WAYS {
                assert_eq!(tags.get(&(u16::from(pcp) << 13 | 5)), Some(&frames), "{tags:?}");
            }
            assert_eq!(tags.len(), WAYS.len(), "{tags:?}");
            let mut sent = [0; 8];
            for discipline in bench.disciplines("b", "c").unwrap() {
                if let Some((_, class)) = discipline.parent.split_once(':') {
                    sent[usize::from_str_radix(class, 16).unwrap() - 1] += discipline.sent;
                }
            }
            // The last class has two queues.
            assert_eq!((sent[0], sent[1], sent[2] + sent[3]), (10, 20, 30));
            bench.tc("b", "a", "qdisc del dev stream clsact").unwrap();
        });
    });
}

/// Sends frames of each priority into the VLAN, and counts the tags that arrive.
fn send(bench: &Bench) -> BTreeMap<u16, usize> {
    let name = |text| IfName::new(text).unwrap();
    let options = PacketOptions { receive: true, timestamps: false, buffer_bytes: 1 << 20 };
    let listen = || PacketSocket::open(interface_index(&name("eth0"))?, options);
    let mut listener = ns::in_namespace(&bench.netns("b"), listen).unwrap().unwrap();
    for (priority, _, _, frames) in WAYS {
        let open = || {
            let options = TalkOptions { priority, launch: None };
            TalkSocket::<Tai>::frames(interface_index(&name("eth0.5"))?, options)
        };
        let talker = ns::in_namespace(&bench.netns("a"), open).unwrap().unwrap();
        for _ in 0..frames {
            // The address of the second station, that of the first, an EtherType for experiments.
            let mut frame = vec![2, 0x77, 0, 0, 2, 0, 2, 0x77, 0, 0, 1, 0, 0x88, 0xb5];
            frame.resize(100, 0);
            talker.send(&frame, None).unwrap();
        }
    }
    let mut tags = BTreeMap::new();
    let mut got = vec![Observed::default(); 32];
    while wait_readable(&[listener.as_fd()], Some(Span::from_ms(100))).unwrap() {
        let count = listener.observe(&mut got).unwrap();
        for tag in got[..count].iter().filter_map(|one| one.tag) {
            let [a, b, c, d] = tag;
            assert_eq!([a, b], [0x81, 0x00]);
            *tags.entry(u16::from_be_bytes([c, d])).or_default() += 1;
        }
    }
    tags
}
