// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Receive priority as a command: what becomes of frames, what is told, and what the host is like
//! afterwards, however a command ended and whoever else has a program on the interface.

use std::fs;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use crate::support;
use crate::support::{Host, Said, TIMEWIRE, run, wait_until};
use serde_json::{Value, json};
use timewire_base::IfName;
use timewire_bpf::receive::resident::Resident;
use timewire_lab::ns;
use timewire_sys::scheduler::{self, Attributes, RtPriority};
use timewire_sys::xsk::{XskQueue, XskReceiver};
use timewire_sys::{FrameMemory, interface_index};

const HOME: &str = "/sys/fs/bpf/timewire/receive";

/// A host with `phy0`, whose other end is in its namespace `beta`; both have addresses.
struct Pair(Host);

impl Pair {
    fn start() -> Option<Pair> {
        let host = Host::start()?;
        let can = run(&mut host.command("", &["mount", "-t", "bpf", "bpf", "/sys/fs/bpf"]));
        if can.code != Some(0) {
            eprintln!("SKIP: no BPF file system");
            return None;
        }
        // Besides this one, those that the machine had; the host's mounts are its own.
        let none = "while umount /sys/fs/bpf 2> /dev/null; do :; done";
        run(&mut host.command("", &["sh", "-c", none])).done();
        let mounts = host.tool("cat /proc/self/mountinfo");
        assert!(!mounts.contains(" /sys/fs/bpf "), "{mounts}");
        host.tool("ip netns add beta");
        host.tool("ip link add phy0 type veth peer name phy0 netns beta");
        for (netns, address) in [("", "10.9.0.1/24"), ("beta", "10.9.0.2/24")] {
            host.tool_in(netns, &format!("ip address add {address} dev phy0"));
            host.tool_in(netns, "ip link set phy0 up");
            host.tool_in(netns, "ip link set lo up");
        }
        // A thread drops what has no checksum yet.
        if run(&mut host.command("beta", &["ethtool", "-K", "phy0", "tx", "off"])).code != Some(0) {
            eprintln!("SKIP: no ethtool");
            return None;
        }
        Some(Pair(host))
    }

    fn receive(&self, words: &[&str]) -> Said {
        self.0.timewire(&[&["receive"], words].concat())
    }

    fn show(&self) -> Value {
        let shown = self.receive(&["show", "phy0", "--json"]).done().json();
        assert_eq!(shown["schema"], "timewire.receive-list/1");
        shown["interfaces"][0].clone()
    }

    /// A field of a class.
    fn class(&self, name: &str, field: &str) -> Value {
        let shown = self.show();
        let classes = shown["classes"].as_array().unwrap().clone();
        let class = classes.iter().find(|class| class["name"] == name);
        class.unwrap_or_else(|| panic!("{name}: {shown}"))[field].clone()
    }

    /// Sends datagrams from `beta` and waits until a program on this host has each.
    fn deliver(&self, port: u16, count: u64) {
        let ours = self.socket("", ("10.9.0.1", port));
        let theirs = self.socket("beta", ("10.9.0.2", 0));
        let mut content = [0; 64];
        for number in 0..count {
            theirs.send_to(&number.to_be_bytes(), ("10.9.0.1", port)).unwrap();
            let length = ours.recv(&mut content).unwrap();
            assert_eq!(content[..length], number.to_be_bytes());
        }
    }

    fn socket(&self, netns: &str, address: (&str, u16)) -> UdpSocket {
        let socket = ns::in_namespace(&self.0.netns(netns), || UdpSocket::bind(address));
        let socket = socket.unwrap().unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        socket
    }

    /// The XDP program of an interface: its number and mode.
    fn xdp(&self, interface: &str) -> Option<(u64, u64)> {
        let text = self.0.tool(&format!("ip -j link show dev {interface}"));
        let links: Value = serde_json::from_str(&text).unwrap();
        let xdp = &links[0]["xdp"];
        Some((xdp["prog"]["id"].as_u64()?, xdp["mode"].as_u64()?))
    }

    /// Nothing of it is there, and nothing in progress.
    fn is_clean(&self) {
        self.0.is_clean();
        wait_until("the program is off", || self.xdp("phy0").is_none());
        let mounts = self.0.tool("cat /proc/self/mountinfo");
        assert!(!mounts.contains(" /sys/fs/bpf "), "{mounts}");
    }
}

#[test]
fn t3_classes_are_counted_delivered_changed_and_ended() {
    let Some(pair) = Pair::start() else { return };
    let rules = ["--class", "control:1:port=15001", "--class", "bulk:9:dscp=10,port=16001->kernel"];
    let said = pair.receive(&[&["start", "phy0"], &rules[..], &["--normal-cpus", "0-1"]].concat());
    assert!(said.done().stderr.contains("`ethtool -K PEER tx off txvlan off`"));
    pair.deliver(15_001, 20);
    pair.deliver(16_001, 7);
    pair.deliver(5_000, 30);
    let shown = pair.show();
    assert_eq!((&shown["mode"], &shown["interface"]), (&json!("native"), &json!("phy0")));
    for (name, to, frames) in [("control", "kernel", 20), ("bulk", "kernel", 7)] {
        assert_eq!(pair.class(name, "to"), to);
        assert_eq!(pair.class(name, "frames"), frames);
        assert_eq!(pair.class(name, "to_kernel"), frames);
        // 8 bytes in UDP, IPv4 and Ethernet.
        assert_eq!(pair.class(name, "bytes"), frames * (8 + 8 + 20 + 14));
    }
    // Address resolution and router solicitations are normal as well.
    assert!(pair.class("normal", "frames").as_u64().unwrap() >= 30);
    assert_eq!(pair.class("normal", "to_threads"), pair.class("normal", "frames"));
    assert_eq!(
        (pair.class("normal", "lost"), pair.class("normal", "turned")),
        (json!(0), json!(0))
    );
    let by_cpu = pair.class("control", "by_cpu");
    let sum: u64 = by_cpu.as_array().unwrap().iter().map(|it| it["frames"].as_u64().unwrap()).sum();
    assert_eq!(sum, 20);

    // A class that keeps its name keeps its counters; one that is new begins.
    let rules = ["--class", "urgent:1:port=16001", "--class", "control:2:port=15001"];
    assert_eq!(pair.receive(&[&["set", "phy0"], &rules[..]].concat()).done().stderr, "");
    pair.deliver(15_001, 5);
    pair.deliver(16_001, 6);
    pair.deliver(5_000, 3);
    assert_eq!(pair.class("control", "frames"), 25);
    assert_eq!(pair.class("urgent", "frames"), 6);
    assert_eq!(pair.class("normal", "threads"), json!([]));
    let text = pair.receive(&["show"]).done().stdout;
    assert!(text.starts_with("receive priority on phy0: native mode, program "), "{text}");
    for line in
        ["\n  urgent                  1  kernel  ", "\n  normal                  -  kernel  "]
    {
        assert!(text.contains(line), "{text}");
    }

    assert_eq!(pair.receive(&["stop", "phy0"]).done().stderr, "");
    pair.is_clean();
    assert_eq!(pair.receive(&["show"]).done().stdout, "no interface here has receive priority\n");
    pair.deliver(15_001, 3);
}

#[test]
fn t3_it_survives_without_a_process_and_the_file_says_the_same() {
    let Some(pair) = Pair::start() else { return };
    let text = "timewire: 1\nkind: network\nname: a\n\
                stations:\n- name: alpha\n  host:\n    interfaces:\n    - name: phy0\n      \
                receive:\n        \
        mode: generic\n        normal_cpus: 0\n        classes:\n        - name: media\n          \
        priority: 3\n          matches: [{stream: 00-11-22-33-44-55:00-01, pcp: 3}]\n          \
        to: threads\n          cpus: 1\n          scheduling: {policy: other}\n";
    let file = pair.0.scratch().write("host.yaml", text);
    pair.receive(&["start", "phy0", "--file", &file]).done();
    assert_eq!(pair.0.processes_with(TIMEWIRE).len(), 0);
    let shown = pair.show();
    assert_eq!(shown["mode"], "generic");
    assert_eq!(
        shown["receive"],
        json!({"mode": "generic", "normal_cpus": "0", "classes": [{
            "name": "media", "priority": 3, "to": "threads", "cpus": "1",
            "matches": [{"stream": "0011223344550001", "pcp": 3}],
            "scheduling": {"policy": "other"},
        }]})
    );
    assert_eq!(shown["classes"][0]["threads"][0]["cpu"], 1);
    pair.deliver(5_000, 10);
    pair.receive(&["set", "phy0", "--class", "a:1:port=1", "--mode", "native"]).failed(
        2,
        "error: receive priority is on phy0 in generic mode; native mode needs `receive stop` and \
         `receive start`\n",
    );
    assert_eq!(pair.show()["receive"], shown["receive"]);
    pair.receive(&["stop", "phy0"]).done();
    pair.is_clean();
}

#[test]
fn t3_wrong_use_is_told_and_changes_nothing() {
    let Some(pair) = Pair::start() else { return };
    let before = pair.0.tool("ip -d link");
    let long: Vec<String> = (1..=65).map(|port| format!("port={port}")).collect();
    let long = format!("a:1:{}", long.join(","));
    let cases: [(&[&str], i32, &str); 13] = [
        (&["start", "nosuch", "--class", "a:1:port=1"], 2, "there is no interface nosuch"),
        (&["start", "phy0"], 2, "no rules: give --file, or --class, or --normal-cpus"),
        (&["start", "phy0", "--class", "a:1"], 2, "a class is like control:1:port=15001"),
        (&["start", "phy0", "--class", "a:x:port=1"], 2, "`x` is no priority"),
        (&["start", "phy0", "--class", "a:33:port=1"], 2, "classes[0].priority: "),
        (&["start", "phy0", "--class", "a:1:prt=1"], 2, "unknown key `prt`: did you mean `port`?"),
        (&["start", "phy0", "--class", "a:1:port=1->moon"], 2, "`moon` is no destination"),
        (&["start", "phy0", "--class", "a:1:port=1->threads:4096"], 2, "CPU 4096 is not online"),
        (&["start", "phy0", "--class", &long], 2, "130 comparisons are more than 128"),
        // In a process namespace of its own the kernel's threads cannot be seen.
        (
            &["start", "phy0", "--class", "a:1:port=1->threads:0"],
            4,
            "the kernel's thread `cpumap/0",
        ),
        (&["set", "phy0", "--class", "a:1:port=1"], 2, "no receive priority is on phy0"),
        (&["stop", "phy0"], 2, "no receive priority is on phy0"),
        (&["show", "phy0"], 2, "no receive priority is on phy0"),
    ];
    for (words, code, said) in cases {
        let done = pair.receive(words);
        assert_eq!((done.code, done.stdout.as_str()), (Some(code), ""), "{words:?}: {done:?}");
        assert!(done.stderr.contains(said), "{words:?}: {done:?}");
        assert_eq!(pair.0.tool("ip -d link"), before, "{words:?}");
        pair.is_clean();
    }
}

#[test]
fn t3_a_refused_change_leaves_the_old_rules() {
    let Some(pair) = Pair::start() else { return };
    pair.receive(&["start", "phy0", "--class", "a:1:port=15001", "--normal-cpus", "0"]).done();
    pair.deliver(15_001, 4);
    let before = pair.show();
    let refused = pair.receive(&["set", "phy0", "--class", "b:1:port=1->threads:1:fifo:50"]);
    assert_eq!(refused.code, Some(4), "{refused:?}");
    assert_eq!(pair.show()["receive"], before["receive"]);
    pair.deliver(15_001, 4);
    assert_eq!(pair.class("a", "frames"), 8);
    pair.receive(&["start", "phy0", "--class", "b:1:port=1"]).failed(
        2,
        "error: receive priority is on phy0 already: `timewire receive set phy0` changes it\n",
    );
    pair.receive(&["stop", "phy0"]).done();
    pair.is_clean();
}

/// A program attached over netlink: one of ours, by the name that another interface keeps for it.
fn attach_another(pair: &Pair, mode: &str) -> (u64, u64) {
    pair.0.tool("ip link add other0 type veth peer name other1");
    // The kernel lets one program call another only if both were loaded for the same mode.
    let ours = if mode == "xdpdrv" { "native" } else { "generic" };
    let rules = ["--class", "theirs:1:port=15001", "--mode", ours];
    pair.receive(&[&["start", "other0"], &rules[..]].concat()).done();
    let directory = pair.0.list(HOME).remove(0);
    pair.0.tool(&format!("ip link set dev phy0 {mode} pinned {HOME}/{directory}/program"));
    pair.xdp("phy0").unwrap()
}

#[test]
fn t3_a_program_that_was_there_before_goes_on_and_comes_back() {
    for mode in ["xdpdrv", "xdpgeneric"] {
        let Some(pair) = Pair::start() else { return };
        let before = attach_another(&pair, mode);
        let theirs = || {
            let shown = pair.receive(&["show", "other0", "--json"]).done().json();
            shown["interfaces"][0]["classes"][0]["frames"].as_u64().unwrap()
        };
        pair.deliver(15_001, 5);
        assert_eq!(theirs(), 5);
        let said = pair.receive(&[
            "start",
            "phy0",
            "--class",
            "ours:1:port=15001",
            "--class",
            "more:2:port=16001->socket",
            "--normal-cpus",
            "0",
        ]);
        let told = format!("note: program {} (`tw_classify`) was there before", before.0);
        assert!(said.done().stderr.starts_with(&told));
        let now = pair.xdp("phy0").unwrap();
        assert!(now.0 != before.0 && now.1 == before.1, "{before:?} {now:?}");
        assert_eq!(pair.show()["chained"], json!({"program": before.0, "name": "tw_classify"}));
        pair.deliver(15_001, 6);
        pair.deliver(16_001, 3);
        pair.deliver(5_000, 3);
        // It sees what goes up at once, and that is all, since there is no socket.
        assert_eq!(theirs(), 5 + 6);
        assert_eq!(pair.class("ours", "to_other_program"), 6);
        assert_eq!(
            (pair.class("more", "turned"), pair.class("more", "to_other_program")),
            (json!(3), json!(3))
        );
        // Frames of the stacks themselves can come between two looks: one look.
        let shown = pair.show();
        let classes = shown["classes"].as_array().unwrap();
        let normal = classes.iter().find(|class| class["name"] == "normal").unwrap();
        assert_eq!(normal["to_other_program"], normal["frames"]);
        let wrong = if mode == "xdpdrv" { "generic" } else { "native" };
        pair.receive(&["set", "phy0", "--class", "ours:1:port=15001", "--mode", wrong]);
        pair.receive(&["stop", "phy0"]).done();
        assert_eq!(pair.xdp("phy0"), Some(before));
        pair.deliver(15_001, 7);
        assert_eq!(theirs(), 5 + 6 + 7);
        // The other mode cannot be had beside it.
        let refused = pair.receive(&["start", "phy0", "--class", "a:1:port=1", "--mode", wrong]);
        assert_eq!(refused.code, Some(4), "{refused:?}");
        assert!(refused.stderr.contains("both modes at once cannot be; "), "{refused:?}");
        let hint = format!("hint: `ip link set dev phy0 {mode} off` takes it off");
        assert!(refused.stderr.contains(&hint), "{refused:?}");
        assert_eq!(pair.xdp("phy0"), Some(before));
        pair.0.tool(&format!("ip link set dev phy0 {mode} off"));
        pair.receive(&["stop", "other0"]).done();
        pair.is_clean();
    }
}

#[test]
fn t3_a_program_with_a_link_is_named_and_left_alone() {
    let Some(pair) = Pair::start() else { return };
    pair.receive(&["start", "phy0", "--class", "theirs:1:port=15001"]).done();
    let before = pair.xdp("phy0").unwrap();
    // As if it were not of this command: its directory has another name.
    let name = pair.0.list(HOME).remove(0);
    pair.0.tool(&format!("mv {HOME}/{name} {HOME}/foreign"));
    for mode in ["auto", "native", "generic"] {
        let refused = pair.receive(&["start", "phy0", "--class", "a:1:port=1", "--mode", mode]);
        assert_eq!(refused.code, Some(4), "{refused:?}");
        let start =
            format!("error: the XDP program {} (`tw_classify`, attached by link ", before.0);
        assert!(refused.stderr.starts_with(&start), "{refused:?}");
        assert!(refused.stderr.contains(") is on phy0: a link attaches it, "), "{refused:?}");
        assert!(refused.stderr.contains("it was not touched"), "{refused:?}");
        assert_eq!(pair.xdp("phy0"), Some(before));
        assert_eq!(pair.0.list(HOME), ["foreign"]);
    }
    pair.deliver(15_001, 3);
    pair.0.tool(&format!("mv {HOME}/foreign {HOME}/{name}"));
    pair.receive(&["stop", "phy0"]).done();
    pair.is_clean();
}

/// Starts and kills after ever longer times, until it was not killed a few times.
fn killed_at_any_time(pair: &Pair, words: &[&str], holds: impl Fn(bool)) {
    let started = Instant::now();
    pair.receive(words).done();
    let takes = started.elapsed();
    pair.receive(&["stop", "phy0"]).done();
    let (mut whole, mut cut) = (0, 0);
    for step in 0..200 {
        let mut running = pair.0.spawn(&[&["receive"], words].concat());
        std::thread::sleep(takes * step / 24);
        let ended = running.has_ended();
        running.signal("KILL");
        drop(running);
        // The watchdog, and what it runs, may still be at it; or it is a copy of the one that was
        // killed, which holds the journal already and has not begun.
        wait_until("the watchdog is done", || {
            let ours = support::Process::is_ours;
            !pair.0.processes().iter().any(ours)
        });
        // Killed before it had a watchdog, it has done nothing, and the next one says so.
        pair.0.timewire(&["lab", "clean"]).done();
        let is_there = pair.receive(&["show", "phy0"]).code == Some(0);
        assert!(is_there || !ended, "it ended well and did nothing");
        holds(is_there);
        if is_there {
            pair.receive(&["stop", "phy0"]).done();
        } else {
            cut += 1;
        }
        whole += u32::from(ended);
        if whole == 3 {
            break;
        }
    }
    eprintln!("cut short {cut} times");
    assert!(whole == 3 && cut >= 5, "{whole} {cut}");
}

#[test]
fn t3_killed_at_any_time_it_is_there_whole_or_not_at_all() {
    let Some(pair) = Pair::start() else { return };
    let rules =
        ["start", "phy0", "--class", "a:1:port=15001->threads:0:other", "--normal-cpus", "1"];
    killed_at_any_time(&pair, &rules, |is_there| {
        if is_there {
            assert!(pair.xdp("phy0").is_some());
            assert_eq!(pair.0.list(HOME).len(), 1);
            pair.deliver(15_001, 2);
        } else {
            pair.is_clean();
        }
    });
    pair.is_clean();
}

#[test]
fn t3_killed_at_any_time_the_program_before_is_there_at_the_end() {
    let Some(pair) = Pair::start() else { return };
    let before = attach_another(&pair, "xdpdrv");
    killed_at_any_time(&pair, &["start", "phy0", "--class", "a:1:port=15001"], |is_there| {
        let now = pair.xdp("phy0").unwrap();
        assert_eq!(now == before, !is_there, "{before:?} {now:?}");
        assert_eq!(pair.0.list(HOME).len(), 1 + usize::from(is_there));
    });
    assert_eq!(pair.xdp("phy0"), Some(before));
}

#[test]
fn t3_what_a_deleted_interface_leaves_is_swept_away() {
    let Some(pair) = Pair::start() else { return };
    pair.0.tool("ip link add gone0 type veth peer name gone1");
    pair.receive(&["start", "gone0", "--class", "a:1:port=1"]).done();
    pair.0.tool("ip link delete gone0");
    let text = pair.receive(&["show"]).done().stdout;
    assert!(text.contains("(gone): NOT attached"), "{text}");
    let said = pair.receive(&["start", "phy0", "--class", "a:1:port=1"]).done();
    assert!(said.stderr.contains(", which is gone, has left"), "{said:?}");
    assert_eq!(pair.0.list(HOME).len(), 1);
    pair.receive(&["stop", "phy0"]).done();
    pair.is_clean();
}

#[test]
fn t3_a_socket_gets_its_class_and_the_stack_the_rest() {
    let Some(pair) = Pair::start() else { return };
    pair.receive(&["start", "phy0", "--class", "media:1:to_port=15001->socket"]).done();
    // Without a socket they go to the stack.
    pair.deliver(15_001, 4);
    assert_eq!(
        (pair.class("media", "to_kernel"), pair.class("media", "turned")),
        (json!(4), json!(4))
    );
    let directory = fs::read_dir(pair.0.see(HOME)).unwrap().next().unwrap().unwrap().path();
    let memory = FrameMemory::new(64).unwrap();
    let socket = ns::in_namespace(&pair.0.netns(""), || {
        let interface = interface_index(&IfName::new("phy0").unwrap()).unwrap();
        XskReceiver::open(&memory, XskQueue { interface, queue: 0, zero_copy: false })
    });
    let mut socket = socket.unwrap().unwrap();
    let mut free: Vec<u32> = (0..64).collect();
    socket.offer(&mut free);
    Resident::open(&directory).unwrap().set_socket(0, socket.as_fd()).unwrap();
    let theirs = pair.socket("beta", ("10.9.0.2", 0));
    for number in 0..8_u64 {
        theirs.send_to(&number.to_be_bytes(), ("10.9.0.1", 15_001)).unwrap();
    }
    let mut got = Vec::with_capacity(64);
    wait_until("all frames are in the socket", || {
        socket.receive(&mut got);
        got.len() == 8
    });
    for (number, frame) in (0..8_u64).zip(&got) {
        let mut bytes = [0; 64];
        let length = memory.copy_prefix(*frame, &mut bytes);
        assert_eq!(bytes[length - 8..length], number.to_be_bytes());
    }
    assert_eq!(pair.class("media", "to_socket"), 8);
    pair.deliver(5_000, 5);
    // Frames that find no buffer are lost, and that is counted.
    for number in 0..100_u64 {
        theirs.send_to(&number.to_be_bytes(), ("10.9.0.1", 15_001)).unwrap();
    }
    wait_until("the losses are counted", || pair.show()["lost_to_sockets"] == 100 - 56);
    // It ends with the socket.
    drop(socket);
    pair.deliver(15_001, 3);
    assert_eq!(pair.class("media", "frames"), 4 + 8 + 100 + 3);
    pair.receive(&["stop", "phy0"]).done();
    pair.is_clean();
}

/// What host settings say of receive classes is a setting like any other.
#[test]
fn t3_apply_puts_classes_there_and_undo_what_was_before() {
    let Some(pair) = Pair::start() else { return };
    let file = |name: &str, classes: &str| {
        let text = format!(
            "timewire: 1
kind: network
name: {name}
stations:
  - name: alpha
    host:
      interfaces:
        - {{name: phy0, receive: {{classes: [{classes}], normal_cpus: '0-1'}}}}
"
        );
        pair.0.scratch().write(&format!("{name}.yaml"), &text)
    };
    let timewire = |words: &[&str]| {
        let words = [&["env", "TIMEWIRE_STATE_DIR=/run/applied", TIMEWIRE], words].concat();
        run(&mut pair.0.command("", &words))
    };
    let control = file("control", "{name: control, priority: 1, matches: [{port: 15001}]}");
    let plan = timewire(&["apply", &control, "--dry-run"]).done().stdout;
    assert!(plan.contains("timewire receive start phy0 --rules '{"), "{plan}");
    assert!(plan.contains("#   undo: timewire receive stop phy0"), "{plan}");

    // On a host without any.
    timewire(&["apply", &control]).done();
    pair.deliver(15_001, 5);
    assert_eq!(pair.class("control", "frames"), 5);
    timewire(&["status"]).done();
    assert!(timewire(&["apply", &control]).done().stdout.contains("nothing was changed"));
    timewire(&["undo"]).done();
    pair.is_clean();

    // On one with other classes, which someone changes in between.
    pair.receive(&["start", "phy0", "--class", "bulk:9:dscp=10"]).done();
    let before = pair.show()["receive"].clone();
    timewire(&["apply", &control]).done();
    assert_eq!(pair.class("control", "frames"), 0);
    pair.receive(&["set", "phy0", "--class", "mine:2:port=9"]).done();
    let status = timewire(&["status"]);
    assert_eq!(status.code, Some(1), "{status:?}");
    let undone = timewire(&["undo"]);
    assert_eq!(undone.code, Some(3), "{undone:?}");
    assert!(undone.stderr.contains("phy0: receive classes"), "{undone:?}");
    assert_eq!(pair.class("mine", "frames"), 0);
    timewire(&["undo", "--force"]).done();
    assert_eq!(pair.show()["receive"], before);

    // What cannot be leaves what was there: there is no CPU 900.
    let text = fs::read_to_string(&control).unwrap().replace("'0-1'", "'0,900'");
    let refused = timewire(&["apply", &pair.0.scratch().write("refused.yaml", &text)]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("CPU 900"), "{refused:?}");
    assert_eq!(pair.show()["receive"], before);
    pair.receive(&["stop", "phy0"]).done();
    pair.is_clean();
}

#[test]
fn t3_mounts_over_each_other_are_told_apart() {
    let Some(pair) = Pair::start() else { return };
    let mounts = || pair.0.tool("cat /proc/self/mountinfo").matches(" /sys/fs/bpf ").count();
    // A BPF file system that is hidden is none; ours comes above, and goes.
    pair.0.tool("mount -t bpf bpf /sys/fs/bpf");
    pair.0.tool("mount -t tmpfs hides /sys/fs/bpf");
    pair.receive(&["start", "phy0", "--class", "a:1:port=15001"]).done();
    assert_eq!(mounts(), 3);
    pair.deliver(15_001, 3);
    assert_eq!(pair.class("a", "frames"), 3);
    pair.receive(&["stop", "phy0"]).done();
    assert_eq!(mounts(), 2);
    pair.0.tool("umount /sys/fs/bpf");
    // The upper one of two is used, and stays, since it was there before.
    pair.0.tool("mount -t bpf bpf /sys/fs/bpf");
    pair.receive(&["start", "phy0", "--class", "a:1:port=15001"]).done();
    assert_eq!(mounts(), 2);
    pair.deliver(15_001, 3);
    pair.receive(&["stop", "phy0"]).done();
    assert_eq!(mounts(), 2);
    assert_eq!(pair.0.list("/sys/fs/bpf").iter().filter(|it| !it.contains('.')).count(), 0);
    pair.0.tool("umount /sys/fs/bpf");
    pair.0.tool("umount /sys/fs/bpf");
    pair.is_clean();
}

#[test]
fn t3_starts_and_stops_at_once_do_not_meet() {
    let Some(pair) = Pair::start() else { return };
    pair.0.tool("ip link add other0 type veth peer name other1");
    std::thread::scope(|scope| {
        for interface in ["phy0", "other0", "other1"] {
            let pair = &pair;
            scope.spawn(move || {
                for _ in 0..8 {
                    pair.receive(&["start", interface, "--class", "a:1:port=15001"]).done();
                    pair.receive(&["show", interface]).done();
                    pair.receive(&["stop", interface]).done();
                }
            });
        }
    });
    pair.is_clean();
}

#[test]
fn t3_a_stop_killed_at_any_time_is_done_or_can_be_repeated() {
    for chained in [false, true] {
        let Some(pair) = Pair::start() else { return };
        let before = chained.then(|| attach_another(&pair, "xdpdrv"));
        let start = || pair.receive(&["start", "phy0", "--class", "a:1:port=15001"]).done();
        start();
        let started = Instant::now();
        pair.receive(&["stop", "phy0"]).done();
        let takes = started.elapsed();
        let (mut whole, mut cut) = (0, 0);
        for step in 0..200 {
            start();
            let mut running = pair.0.spawn(&["receive", "stop", "phy0"]);
            std::thread::sleep(takes * step / 24);
            let ended = running.has_ended();
            running.signal("KILL");
            drop(running);
            wait_until("the watchdog is done", || {
                let ours = support::Process::is_ours;
                !pair.0.processes().iter().any(ours)
            });
            pair.0.timewire(&["lab", "clean"]).done();
            let shown = pair.receive(&["show", "phy0"]);
            if shown.code == Some(0) {
                assert!(!ended, "it ended well and did nothing");
                pair.receive(&["stop", "phy0"]).done();
                cut += 1;
            } else {
                assert!(shown.stderr.contains("no receive priority is on phy0"), "{shown:?}");
            }
            assert_eq!(pair.xdp("phy0"), before);
            match chained {
                false => pair.is_clean(),
                true => assert_eq!(pair.0.list(HOME).len(), 1),
            }
            whole += u32::from(ended);
            if whole == 3 {
                break;
            }
        }
        eprintln!("cut short {cut} times");
        assert!(whole == 3 && cut >= 3, "{whole} {cut}");
    }
}

#[test]
fn t3_a_program_that_somebody_took_off_is_missed() {
    let Some(pair) = Pair::start() else { return };
    attach_another(&pair, "xdpdrv");
    let rules = ["phy0", "--class", "a:1:port=15001"];
    let start = || pair.receive(&[&["start"], &rules[..]].concat()).done();
    start();
    pair.0.tool("ip link set dev phy0 xdpdrv off");
    assert!(pair.receive(&["show", "phy0"]).done().stdout.contains("NOT attached"));
    pair.receive(&[&["set"], &rules[..]].concat()).failed(
        2,
        "error: the program of receive priority is not on phy0 any more: `timewire receive start \
         phy0` puts it there anew, `timewire receive stop phy0` removes the rest\n",
    );
    assert_eq!(
        pair.receive(&["stop", "phy0"]).done().stderr,
        "note: the program was not on phy0 any more; what is there now was not touched\n"
    );
    assert_eq!(pair.xdp("phy0"), None);
    pair.receive(&["stop", "other0"]).done();
    pair.is_clean();
}

#[test]
fn t3_where_nothing_would_stay_nothing_is_begun() {
    let Some(pair) = Pair::start() else { return };
    for words in [&["start", "phy0", "--class", "a:1:port=1"][..], &["show"], &["stop", "phy0"]] {
        let inside = [&["ip", "netns", "exec", "beta", TIMEWIRE, "receive"], words].concat();
        run(&mut pair.0.command("", &inside)).failed(
            2,
            "error: no BPF file system is at /sys/fs/bpf, and this process has a mount table of \
             its own: what is mounted here nobody else sees, and it ends with the last process \
             here\n  hint: instead of `ip netns exec`: `nsenter --net=/run/netns/beta timewire \
             receive ...`\n",
        );
    }
    let beta = |words: &[&str]| pair.0.timewire_in("beta", &[&["receive"], words].concat());
    beta(&["start", "phy0", "--class", "a:1:port=1"]).done();
    assert!(beta(&["show"]).done().stdout.starts_with("receive priority on phy0: "));
    beta(&["stop", "phy0"]).done();
    pair.is_clean();
}

#[test]
fn t3_who_may_not_look_is_told_so() {
    let Some(pair) = Pair::start() else { return };
    pair.receive(&["start", "phy0", "--class", "a:1:port=1"]).done();
    // Where every user may run it.
    let program = "/run/receive-of-nobody";
    pair.0.tool(&format!("cp {TIMEWIRE} {program}"));
    pair.0.tool(&format!("chmod 755 /run {program}"));
    let nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", program];
    for (words, what) in [
        (&["show"][..], "list"),
        (&["show", "phy0"], "look at"),
        (&["set", "phy0", "--class", "a:1:port=2"], "look at"),
    ] {
        let said = run(&mut pair.0.command("", &[&nobody[..], &["receive"], words].concat()));
        assert_eq!((said.code, said.stdout.as_str()), (Some(2), ""), "{said:?}");
        let start = format!("error: cannot {what} /sys/fs/bpf/timewire/receive");
        assert!(said.stderr.starts_with(&start), "{said:?}");
        assert!(said.stderr.ends_with("hint: needs root\n"), "{said:?}");
    }
    pair.receive(&["stop", "phy0"]).done();
    pair.is_clean();
}

#[test]
fn t3_what_a_full_queue_loses_is_counted_once() {
    for mode in ["native", "generic"] {
        let Some(pair) = Pair::start() else { return };
        let rules = ["start", "phy0", "--class", "a:1:port=15001->threads:0:other"];
        pair.receive(&[&rules[..], &["--mode", mode]].concat()).done();
        // So many that none waits for room of its own: a waiting frame takes some of its socket's.
        let theirs = [(); 50].map(|()| pair.socket("beta", ("10.9.0.2", 0)));
        let send = |socket: &UdpSocket| socket.send_to(&[0; 18], ("10.9.0.1", 15_001)).unwrap();
        // After address resolution.
        send(&theirs[0]);
        wait_until("it was delivered", || pair.class("a", "frames") == 1);
        // The thread does not run as long as this one has its CPU.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                scheduler::set_affinity(scheduler::thread_id(), &[0]).unwrap();
                let fifo = Attributes::fifo(RtPriority::new(50).unwrap());
                scheduler::set_attributes(scheduler::thread_id(), &fifo).unwrap();
                for number in 0..5_000 {
                    send(&theirs[number % theirs.len()]);
                }
            });
        });
        let (to_threads, lost) = (pair.class("a", "to_threads"), pair.class("a", "lost"));
        let (to_threads, lost) = (to_threads.as_u64().unwrap(), lost.as_u64().unwrap());
        eprintln!("{mode}: {to_threads} to the thread, {lost} lost");
        // Its queue has 2048, and the machine may have run it in between.
        assert!(lost > 0 && lost <= to_threads - 2_048, "{mode}: {lost} of {to_threads}");
        // What it leaves, threads and counters, a later class has.
        for number in 2..=4 {
            let class = format!("a{number}:1:port=15001->threads:0:other");
            pair.receive(&["set", "phy0", "--class", &class]).done();
            assert_eq!(pair.class(&format!("a{number}"), "lost"), 0);
        }
        pair.receive(&["stop", "phy0"]).done();
        pair.is_clean();
    }
}
