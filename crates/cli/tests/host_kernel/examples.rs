// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The published examples of `scenarios/hosts`, put before a kernel: what software can do is taken,
//! what needs a NIC is refused with the kernel's reason, and then nothing is left of it.

use std::fs;

use timewire_lab::trial::{self, Trial};

use super::station::{Station, file, pair, shipped, transmit};

pub const TRIALS: &[Trial] = &[
    Trial::new("t4_published_classes_are_taken", classes),
    Trial::new("t4_published_uneven_classes_are_taken", uneven),
    Trial::new("t4_published_gates_are_taken", gates),
    Trial::new("t4_published_shaper_is_taken", shaper),
    Trial::new("t4_published_classes_of_nics_are_refused_without_one", nics_classes),
    Trial::new("t4_published_gates_of_nics_are_refused_without_one", nics_gates),
    Trial::new("t4_published_launch_times_of_nics_are_refused_without_one", nics_launch_times),
    Trial::new("t4_published_shaper_of_nics_is_refused_without_one", nics_shaper),
    Trial::new("t4_offloads_are_taken_by_a_nic_that_has_them", simulated).since(6, 6),
];

#[track_caller]
fn taken(name: &str) {
    let bench = pair();
    Station::of(&bench, "a").with(&shipped(name), || ());
    println!("{name}: taken");
}

fn classes() {
    taken("mqprio-three-classes.yaml");
}

fn uneven() {
    taken("mqprio-uneven.yaml");
}

fn gates() {
    taken("taprio-software.yaml");
}

fn shaper() {
    taken("cbs-20mbit-software.yaml");
}

/// A virtual pair is no NIC. `reasons`: what the kernel says of it, in part; one of them.
#[track_caller]
fn refused(name: &str, reasons: &[&str]) {
    let bench = pair();
    let told = Station::of(&bench, "a").refuses(&shipped(name), "eth0");
    println!("{name}, {}: exit code {}\n{}", trial::kernel_name(), told.code, told.err);
    let reason = reasons.iter().find(|reason| told.err.contains(**reason));
    // What the NIC lacks is told from what is wrong, where the kernel tells it.
    let code =
        if *reason.unwrap_or_else(|| panic!("{told:?}")) == "Invalid argument" { 2 } else { 4 };
    assert_eq!(told.code, code, "{told:?}");
}

fn nics_classes() {
    // Linux 6.1 gives no reason.
    let reasons = ["Device does not support hardware offload", "Invalid argument"];
    refused("mqprio-four-classes-nic.yaml", &reasons);
    refused("mqprio-five-classes-nic.yaml", &reasons);
}

fn nics_gates() {
    refused("taprio-full-offload.yaml", &["it is no NIC"]);
    refused("taprio-txtime-assist.yaml", &["it is no NIC"]);
}

fn nics_launch_times() {
    refused("etf-150us-nic.yaml", &["it is no NIC"]);
    refused("etf-300us-nic.yaml", &["it is no NIC"]);
}

fn nics_shaper() {
    refused("cbs-20mbit-nic.yaml", &["it is no NIC"]);
}

/// Gates for a NIC that states no rate: taken for 10 Mbit/s, on which a frame lasts 48 us.
const GATES: &str = "\
classes:
  - { priorities: [3], queues: 1@0 }
  - { queues: 1@1 }
gates:
  mode: full_offload
  base_time: 200ns
  entries:
    - { open: [0], interval: 300us }
    - { open: [1], interval: 200us }
";

/// The simulated NIC of the kernel says that it has gates of its own, and nothing else.
fn simulated() {
    fs::write("/sys/bus/netdevsim/new_device", "1 1 16").unwrap();
    let station = Station::machine();
    let names = fs::read_dir("/sys/bus/netdevsim/devices/netdevsim1/net").unwrap();
    let name = names.map(|name| name.unwrap().file_name().into_string().unwrap()).next();
    assert_eq!(name.as_deref(), Some("eth0"), "the simulated NIC");
    station.run("ip", &["link", "set", "eth0", "up"]).well();
    // Until its address is no longer tentative, and its driver has said that it has the routes.
    station.run("sleep", &["3"]).well();
    station.with(&file(&transmit(GATES)), || ());
    for (name, reason) in [
        ("cbs-20mbit-nic.yaml", "Specified device failed to setup cbs hardware offload"),
        ("etf-300us-nic.yaml", "Specified device failed to setup ETF hardware offload"),
        // On 10 Mbit/s its entries are shorter than the shortest frame.
        ("taprio-full-offload.yaml", "Invalid interval for schedule entry"),
    ] {
        let told = station.refuses(&shipped(name), "eth0");
        println!("{name}: exit code {}\n{}", told.code, told.err);
        assert!(told.err.contains(reason), "{told:?}");
    }
}
