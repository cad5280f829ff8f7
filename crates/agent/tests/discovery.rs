// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Agents are found on a link, and reached at the address that was found.

use std::process::Command;
use std::time::Duration;

use crate::support::{Lines, listen, paired, serves, talkative};
use timewire_agent::links::{Announcement, Announcer, find_agents};
use timewire_sys::multicast::link_locals;
use timewire_sys::namespace::{Namespace, unshare};

/// Runs `ip` with these words.
fn ip(words: &str) {
    let done = Command::new("ip").args(words.split(' ')).status().unwrap();
    assert!(done.success(), "ip {words}");
}

#[test]
fn t3_agents_are_found_on_a_link_and_reached_there() {
    // In a thread of its own, which leaves the network namespace.
    let tested = std::thread::spawn(|| {
        if let Err(error) = unshare(&[Namespace::Network]) {
            println!("SKIP: network namespaces are refused here: {error}");
            return;
        }
        let error = find_agents(Duration::ZERO, || false).unwrap_err().to_string();
        assert!(error.contains("no interface is up"), "{error}");
        ip("link add here type veth peer name there");
        for end in ["lo", "here", "there"] {
            ip(&format!("link set {end} up"));
        }
        // Until the kernel has made sure that nobody has the addresses.
        while link_locals().len() < 2 {
            std::thread::sleep(Duration::from_millis(20));
        }
        let (agent, controller) = paired();
        let listener = listen(&agent, "[::]:0", talkative(), &Lines::default());
        let announcement = Announcement {
            name: "st1".to_owned(),
            port: listener.address().unwrap().port(),
            fingerprint: agent.identity.fingerprint(),
            program: "0.1.0".to_owned(),
        };
        let announcer = Announcer::start(&announcement).unwrap();
        // Announced every two seconds; two programs may listen at once.
        let found = std::thread::scope(|scope| {
            let other =
                scope.spawn(|| find_agents(Duration::from_millis(2_500), || false).unwrap());
            let found = find_agents(Duration::from_millis(2_500), || false).unwrap();
            assert_eq!(other.join().unwrap(), found);
            found
        });
        drop(announcer);
        assert!(!found.is_empty());
        for agent in found {
            assert_eq!(agent.announcement, announcement);
            assert!(agent.address.starts_with("[fe80::"), "{}", agent.address);
            serves(&listener, || {
                let limits = timewire_agent::links::LinkLimits::default();
                let (identity, peers) = (&controller.identity, &controller.peers);
                timewire_agent::links::connect_tcp(&agent.address, identity, peers, limits)
            });
        }
    });
    tested.join().unwrap();
}
