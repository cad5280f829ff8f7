// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `receive` of host settings: what it takes, and what is told about what it does not.

use serde_json::json;
use timewire_model::scenario::host::{
    Destination, HostSettings, MAX_COMPARISONS, Receive, SchedulingPolicy, XdpMode,
};
use timewire_model::scenario::{NothingFurther, ScenarioErrors};

fn host(file_name: &str, text: &str) -> Result<HostSettings, ScenarioErrors> {
    HostSettings::parse_with(&NothingFurther, file_name, text, None)
}

const GOOD: &str = "timewire: 1
kind: network
name: control-host
stations:
  - name: alpha
    host:
      interfaces:
      - name: eth0
        receive:
          mode: native
          normal_cpus: 2-3
          classes:
          - name: control
            priority: 2
            matches:
            - {port: 15001}
            - {to_address: 10.77.0.0/24, dscp: 46}
          - name: media
            priority: 3
            to: socket
            matches:
            - {stream: 00-11-22-33-44-55:00-01}
            - {destination: '91:e0:f0:00:fe:01', vlan: 2}
          - name: time
            priority: 1
            to: threads
            cpus: 1
            matches:
            - {ethertype: 0x88f7}
            - {from_address: fd00::/64, to_port: 319}
";

fn receive(text: &str) -> Receive {
    let file = host("x", text).unwrap_or_else(|errors| panic!("{errors}"));
    file.host.interfaces[0].receive.clone().expect("it is in the file")
}

#[test]
fn t0_classes_are_read_and_written_again() {
    let good = receive(GOOD);
    assert_eq!(good.mode, XdpMode::Native);
    assert_eq!(good.normal_cpus(), [2, 3]);
    assert!(good.looks_at_tags());
    let names: Vec<_> = good.in_order().iter().map(|class| class.name.as_str()).collect();
    assert_eq!(names, ["time", "control", "media"]);
    let time = good.in_order()[0];
    assert_eq!((time.to, time.cpus()), (Destination::Threads, vec![1]));
    assert_eq!(time.thread_scheduling(), (SchedulingPolicy::Fifo, 49));
    let written = serde_json::to_value(&good).unwrap();
    assert_eq!(written["classes"][1]["matches"][0], json!({"stream": "0011223344550001"}));
    assert_eq!(written["classes"][0]["matches"][1]["to_address"], "10.77.0.0/24");
    assert_eq!(written["classes"][2]["matches"][0]["ethertype"], "0x88f7");
    assert_eq!(Receive::from_json("y", &written).unwrap(), good);
}

#[test]
fn t0_what_cannot_be_is_told_with_its_place() {
    let cases = [
        ("port: 15001", "port: 0", "0 is no port: 1 to 65535"),
        ("{port: 15001}", "{}", "classes[0].matches[0]: a match without keys fits every frame"),
        (
            "{port: 15001}",
            "{port: 1, to_port: 2}",
            "classes[0].matches[0].port: `port` is that of either end",
        ),
        (
            "{port: 15001}",
            "{address: ::1, from_address: ::2}",
            "classes[0].matches[0].address: `address` is that of either end",
        ),
        (
            "{port: 15001}",
            "{from_address: 10.0.0.1, to_address: '::1'}",
            "no frame goes from an IPv4 to an IPv6 address or back",
        ),
        ("{port: 15001}", "{ethertype: 0x88f7, port: 1}", "EtherType 0x88f7 has no port"),
        ("{port: 15001}", "{ethertype: 0x86dd, address: 10.0.0.1}", "0x86dd has no address"),
        ("{port: 15001}", "{stream: 0011223344550001, dscp: 1}", "0x22f0 has no dscp"),
        ("10.77.0.0/24", "10.77.0.1/24", "the network is 10.77.0.0/24"),
        ("10.77.0.0/24", "10.77.0.0/33", "has the prefix /33: it goes to /32"),
        ("10.77.0.0/24", "host", "`host` is no IP address or prefix"),
        ("fd00::/64", "fd00::/129", "it goes to /128"),
        ("dscp: 46", "dscp: 64", "64 is not a whole number, 0 to 63"),
        ("0x88f7", "88f7", "`88f7` is no EtherType"),
        ("0x88f7", "0x05dc", "0x05dc is a length"),
        ("0x88f7", "0x8100", "is a VLAN tag, and the EtherType is behind it"),
        ("vlan: 2", "vlan: 4095", "4095 is not a whole number, 1 to 4094"),
        ("91:e0:f0:00:fe:01", "91:e0:f0:00:fe", "is no MAC address"),
        ("00-11-22-33-44-55:00-01", "00-11-22", "is no stream: 16 hexadecimal digits"),
        ("name: media", "name: control", "classes[1].name: there is a class control before"),
        ("name: media", "name: normal", "`normal` are the frames of no class"),
        ("priority: 2", "priority: 0", "priority"),
        ("            cpus: 1\n", "", "classes[2].cpus: its threads have no CPUs"),
        (
            "to: socket",
            "to: socket\n            cpus: 1",
            "only a class with `to: threads` has cpus",
        ),
        (
            "to: socket",
            "scheduling: {policy: fifo, priority: 1}",
            "only a class with `to: threads` has scheduling",
        ),
        (
            "cpus: 1",
            "cpus: 1\n            scheduling: {policy: fifo}",
            "scheduling.priority: a real-time policy needs a priority",
        ),
        (
            "cpus: 1",
            "cpus: 1\n            scheduling: {policy: other, priority: 3}",
            "scheduling.priority: this policy has no priority",
        ),
        ("2-3", "0-16", "normal_cpus: 17 CPUs are more than 16"),
        ("2-3", "3-2", "`3-2` is no list of CPUs"),
        ("mode: native", "mode: offload", "`offload` is not known here"),
    ];
    for (right, wrong, said) in cases {
        let text = GOOD.replacen(right, wrong, 1);
        assert_ne!(text, GOOD, "{right}");
        let told = host("x", &text).err().map(|errors| errors.to_string());
        let told = told.unwrap_or_else(|| panic!("{wrong} was taken"));
        assert!(told.contains(said), "{wrong}: {told}");
    }
}

#[test]
fn t0_there_is_a_limit_of_everything() {
    let class = |number: usize, more: serde_json::Value| {
        let mut class = json!({
            "name": format!("c{number}"), "priority": 1, "matches": [{"to_port": number + 1}],
        });
        class.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        class
    };
    let classes = |count: usize, more: serde_json::Value| {
        let classes: Vec<_> = (0..count).map(|i| class(i, more.clone())).collect();
        json!({"classes": classes})
    };
    let threads = json!({"to": "threads", "cpus": "0"});
    let matches = |count: u64| (1..=count).map(|port| json!({"port": port})).collect::<Vec<_>>();
    let half = u64::try_from(MAX_COMPARISONS / 2).unwrap();
    for good in [
        classes(32, json!({})),
        classes(7, threads.clone()),
        classes(1, json!({"matches": matches(half)})),
        json!({"normal_cpus": "0"}),
    ] {
        Receive::from_json("x", &good).unwrap_or_else(|errors| panic!("{errors}"));
    }
    for (bad, said) in [
        (classes(33, json!({})), "33 classes are more than 32"),
        (classes(8, threads), "8 classes with threads of their own are more than 7"),
        (classes(1, json!({"matches": matches(half + 1)})), "130 comparisons are more than 128"),
        (classes(1, json!({"matches": []})), "classes[0].matches: no frame belongs to it"),
        (json!({"classes": []}), "there is no class"),
    ] {
        let told = Receive::from_json("x", &bad).unwrap_err().to_string();
        assert!(told.contains(said), "{said}: {told}");
    }
}
