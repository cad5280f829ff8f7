// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `talk` and `listen` between two namespaces of this kernel, by every way there is; and in the
//! laboratory's kernel, where time is exact.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

use crate::support;
use crate::support::{Host, Running, Said, TIMEWIRE, run, wait_until};
use serde_json::Value as Json;

/// A host whose namespace `beta` is at the other end of its `phy0`.
struct Pair {
    host: Host,
    /// The address of the NIC there.
    nic: String,
}

impl Pair {
    fn start() -> Option<Pair> {
        let host = Host::start()?;
        host.tool("ip netns add beta");
        for netns in ["", "beta"] {
            let quiet = "echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad";
            run(&mut host.command(netns, &["sh", "-c", quiet])).done();
        }
        host.tool("ip link add phy0 type veth peer name phy0 address 02:00:00:00:00:02 netns beta");
        for (netns, last) in [("", 1), ("beta", 2)] {
            host.tool_in(netns, &format!("ip addr add 10.77.0.{last}/24 dev phy0"));
            host.tool_in(netns, &format!("ip addr add fd00::{last}/64 dev phy0 nodad"));
            host.tool_in(netns, "ip link set phy0 up");
        }
        let nic = "02:00:00:00:00:02".to_owned();
        Some(Pair { host, nic })
    }

    /// Starts a listener in `beta`, and waits until it listens.
    fn listen(&self, arguments: &str) -> Running {
        self.listen_in("beta", arguments)
    }

    /// Both namespaces have the clock of one kernel, which a listener cannot know.
    fn listen_in(&self, netns: &str, arguments: &str) -> Running {
        let words = [TIMEWIRE, "listen", "--clock-error", "0ns"];
        let words: Vec<&str> = words.into_iter().chain(arguments.split(' ')).collect();
        let mut running = self.host.spawn_in(netns, &words);
        wait_until("it listens", || {
            running.stderr().contains("listening: ") || running.has_ended()
        });
        running
    }

    /// Talks; on a busy machine messages may be late.
    fn talk(&self, arguments: &str) -> Said {
        let words: Vec<&str> =
            ["talk", "--tolerance", "20s"].into_iter().chain(arguments.split(' ')).collect();
        self.host.timewire(&words)
    }
}

/// The last line of `--json`.
#[track_caller]
fn heard(said: &Said) -> Json {
    let last = said.stdout.lines().last().unwrap_or_default();
    let last: Json = serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {said:?}"));
    assert_eq!(last["type"], "result");
    last["data"]["heard"].clone()
}

#[track_caller]
fn talked(said: &Said) -> Json {
    let done = said.json();
    assert_eq!(done["schema"], "timewire.talk/1");
    done
}

/// Everything that was sent came, in order, once.
#[track_caller]
fn is_complete(heard: &Json, stream: usize, number: u64, count: u64) {
    let stream = &heard["streams"][stream];
    assert_eq!(stream["stream"], number, "{stream}");
    let sequence = &stream["sequence"];
    assert_eq!(sequence["received"], count, "{stream}");
    for none in ["lost", "open", "duplicate", "reordered", "restarts", "stray"] {
        assert_eq!(sequence[none], 0, "{none}: {stream}");
    }
    assert_eq!(stream["between"]["count"], count);
    assert!(stream["between"]["min_ns"].as_i64().unwrap() > 0, "{stream}");
}

#[test]
fn t3_each_way_carries_every_message_once() {
    let Some(pair) = Pair::start() else { return };
    let nic = pair.nic.clone();
    let frames = |way: &str| {
        let both = format!("--interface phy0 --over {way}");
        (format!("{both} --ethertype 0x88b5"), format!("{both} --vlan 5:6 {nic}"))
    };
    let ways = [
        ("0.0.0.0:15001".to_owned(), "10.77.0.2:15001 --dscp 46".to_owned()),
        ("[::]:15001".to_owned(), "[fd00::2]:15001 --priority 5".to_owned()),
        frames("frames"),
        frames("ring"),
        frames("xdp:generic"),
        frames("xdp"),
    ];
    for (listen, talk) in ways {
        let listener = pair.listen(&format!("{listen} --count 200 --for 30s --json"));
        if listen.contains("xdp") && listener.stderr().contains("hint: ") {
            eprintln!("SKIP: {}", listener.stderr());
            continue;
        }
        let told = pair.talk(&format!("{talk} --cycle 1ms --count 200 --json"));
        let done = talked(&told);
        assert_eq!((&done["total"]["planned"], &done["total"]["sent"]), (&200.into(), &200.into()));
        let heard = heard(&listener.end().done());
        is_complete(&heard, 0, 1, 200);
        assert_eq!((&heard["messages"], &heard["dropped"]), (&200.into(), &0.into()), "{listen}");
    }
    pair.host.is_clean();
}

#[test]
fn t3_frames_are_taken_by_af_xdp_with_the_capabilities_that_the_book_names() {
    let Some(pair) = Pair::start() else { return };
    let bare =
        ["setpriv", "--bounding-set=-all,+net_raw,+net_admin,+bpf,+ipc_lock,+perfmon", TIMEWIRE];
    let listen = ["listen", "--interface", "phy0", "--count", "50", "--for", "30s", "--json"];
    let listen = [&listen[..], &["--clock-error", "0ns"]].concat();
    let talk = ["talk", "--tolerance", "20s", "--interface", "phy0", "--over", "xdp"];
    let talk = [&talk[..], &["--cycle", "1ms", "--count", "50", &pair.nic]].concat();
    let mut is_there = false;
    for way in ["xdp:generic", "xdp"] {
        let words = [&bare[..], &listen, &["--over", way]].concat();
        let mut listener = pair.host.spawn_in("beta", &words);
        wait_until("it listens", || {
            listener.stderr().contains("listening: ") || listener.has_ended()
        });
        let said = listener.stderr();
        if said.contains("the mode `auto` takes what works") {
            eprintln!("SKIP: {said}");
            continue;
        }
        run(&mut pair.host.command("", &[&bare[..], &talk].concat())).done();
        is_complete(&heard(&listener.end().done()), 0, 1, 50);
        is_there = true;
    }
    if is_there {
        // What is missing is named.
        let refused = |netns: &str, words: &[&str], command: &[&str], hint: &str| {
            let said = run(&mut pair.host.command(netns, &[words, command].concat()));
            assert!(said.code == Some(2) && said.stderr.contains(hint), "{said:?}");
        };
        let listen_by_xdp = [&listen[..], &["--over", "xdp"]].concat();
        let less = bare.map(|word| word.trim_end_matches(",+perfmon"));
        refused("beta", &less, &listen_by_xdp, "CAP_BPF and CAP_PERFMON");
        let unlocked = bare[1].replace(",+ipc_lock", "");
        let short = ["prlimit", "--memlock=65536", "setpriv", &unlocked, TIMEWIRE];
        refused("beta", &short, &listen_by_xdp, "CAP_IPC_LOCK or more locked memory");
        refused("", &short, &talk, "it needs CAP_IPC_LOCK");
    }
    pair.host.is_clean();
}

#[test]
fn t3_timestamps_and_records_of_both_sides_are_kept() {
    let Some(pair) = Pair::start() else { return };
    let listener = pair.listen("0.0.0.0:15001 --count 100 --for 30s --out heard");
    let told =
        pair.talk("10.77.0.2:15001 --count 100 --timestamps sched,software --out sent --json");
    let done = talked(&told.done());
    assert_eq!(
        (&done["total"]["timestamps"], &done["total"]["timestamps_missing"]),
        (&200.into(), &0.into())
    );
    listener.end().done();
    let read = |name: &str| {
        let bytes = fs::read(pair.host.scratch().path().join(name)).unwrap();
        timewire_capture::record::RecordFile::decode(&bytes).unwrap()
    };
    use timewire_capture::record::TimestampPoint;
    let (sent, heard) = (read("sent/talker.twr"), read("heard/listener.twr"));
    assert!(sent.clean_end && heard.clean_end);
    let at = |file: &timewire_capture::record::RecordFile, point, seq| {
        let mut found = file.records.iter().filter(|it| it.point == point && it.seq == seq);
        let one = found.next().unwrap_or_else(|| panic!("{point:?} of {seq}"));
        assert!(found.next().is_none(), "{point:?} of {seq} twice");
        one.at_ns
    };
    for seq in 0..100 {
        let points = [
            at(&sent, TimestampPoint::Send, seq),
            at(&sent, TimestampPoint::QdiscEnter, seq),
            at(&sent, TimestampPoint::TxSw, seq),
            at(&heard, TimestampPoint::RxSw, seq),
            at(&heard, TimestampPoint::Receive, seq),
        ];
        assert!(points.is_sorted(), "{seq}: {points:?}");
        // The message says itself when it was sent.
        assert_eq!(at(&heard, TimestampPoint::Send, seq), points[0]);
        assert!(at(&sent, TimestampPoint::Scheduled, seq) <= points[0]);
    }
    let files = |name: &str| support::list(&pair.host.scratch().path().join(name));
    let expected =
        ["host.after.json", "host.before.json", "report.json", "talker.twr", "traffic.json"];
    assert_eq!(files("sent"), expected);
    let again = pair.talk("10.77.0.2:15001 --count 1 --out sent");
    assert_eq!((again.code, again.stderr.contains("not empty")), (Some(2), true), "{again:?}");
}

/// What another reader of the format finds: the captured frames with their timestamps.
fn read_capture(bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let length = |at: usize| usize::try_from(word(at)).unwrap();
    let (mut at, mut frames, mut blocks) = (0, Vec::new(), Vec::new());
    while at < bytes.len() {
        let (kind, all) = (word(at), length(at + 4));
        assert_eq!(all, length(at + all - 4), "a block has its length at both ends");
        blocks.push(kind);
        if kind == 6 {
            let timestamp = u64::from(word(at + 12)) << 32 | u64::from(word(at + 16));
            let captured = length(at + 20);
            assert_eq!(captured, length(at + 24));
            frames.push((timestamp, bytes[at + 28..at + 28 + captured].to_vec()));
        }
        at += all;
    }
    assert_eq!(blocks[0], 0x0a0d_0d0a, "a section comes first");
    assert_eq!(*blocks.last().unwrap(), 5, "counters come last");
    frames
}

#[test]
fn t3_a_capture_has_every_frame_with_its_nanoseconds() {
    let Some(pair) = Pair::start() else { return };
    let options = "--interface phy0 --ethertype 0x88b5 --count 300 --for 30s --pcap all.pcapng";
    let listener = pair.listen(options);
    let talk = format!("{} --interface phy0 --cycle 500us --count 300 --size 200B", pair.nic);
    pair.talk(&talk);
    listener.end().done();
    let path = pair.host.scratch().join("all.pcapng");
    let frames = read_capture(&fs::read(&path).unwrap());
    assert_eq!(frames.len(), 300);
    assert!(frames.windows(2).all(|two| two[0].0 <= two[1].0));
    for (seq, (timestamp, frame)) in (0_u32..).zip(&frames) {
        assert_eq!((frame.len(), &frame[12..14]), (214, &[0x88, 0xb5][..]));
        assert_eq!(frame[14 + 6..14 + 10], seq.to_le_bytes());
        let sent = i64::from_le_bytes(frame[24..32].try_into().unwrap());
        let took = i64::try_from(*timestamp).unwrap() - sent;
        assert!((0..30_000_000_000).contains(&took), "{took} ns");
    }
    // Not all of 300 timestamps are whole microseconds.
    assert!(frames.iter().any(|(timestamp, _)| timestamp % 1_000 != 0));
    match Command::new("tcpdump").args(["--count", "-r", &path]).output() {
        Ok(said) => {
            let text = String::from_utf8_lossy(&said.stdout);
            assert!(text.starts_with("300 packets"), "{text}");
        }
        Err(_) => eprintln!("tcpdump is not there to read it, too"),
    }
}

#[test]
fn t3_a_signal_ends_both_with_what_they_have() {
    let Some(pair) = Pair::start() else { return };
    let listener = pair.listen("0.0.0.0:15001 --out heard --json --every 100ms");
    let words =
        [TIMEWIRE, "talk", "--tolerance", "20s", "10.77.0.2:15001", "--out", "sent", "--json"];
    let talker = pair.host.spawn_in("", &words);
    let path = pair.host.scratch().path().join("heard/listener.twr");
    wait_until("records are there", || fs::metadata(&path).is_ok_and(|it| it.len() > 600_000));
    talker.signal("INT");
    let done = talked(&talker.end().done());
    assert_eq!(done["ended_early"], true);
    let sent = done["total"]["sent"].as_u64().unwrap();
    assert!(sent > 100, "{sent}");
    // What was sent is in the listener's socket before the talker has ended.
    listener.signal("INT");
    let heard = heard(&listener.end().done());
    is_complete(&heard, 0, 1, sent);
    for name in ["heard/listener.twr", "sent/talker.twr"] {
        let bytes = fs::read(pair.host.scratch().path().join(name)).unwrap();
        let file = timewire_capture::record::RecordFile::decode(&bytes).unwrap();
        assert!(file.clean_end && file.lost == 0, "{name}");
        let at_least = usize::try_from(2 * sent).unwrap();
        assert!(file.records.len() >= at_least, "{} of {sent}", file.records.len());
    }
}

#[test]
fn t3_limits_decide_the_exit_code() {
    let Some(pair) = Pair::start() else { return };
    let limits = [("loss=0,frames=50,streams=1,max<30s", 0), ("frames>50", 1), ("max<1ns", 1)];
    for (limits, code) in limits {
        let listener =
            pair.listen(&format!("0.0.0.0:15001 --count 50 --for 30s --expect {limits}"));
        pair.talk("10.77.0.2:15001 --count 50");
        let said = listener.end();
        assert_eq!(said.code, Some(code), "{said:?}");
        let word = if code == 0 { "PASS" } else { "FAIL" };
        assert!(said.stdout.lines().last().unwrap().starts_with(word), "{said:?}");
    }
    let silent = pair.listen("0.0.0.0:15001 --for 100ms --expect loss=0").end();
    assert_eq!(silent.code, Some(1), "{silent:?}");
    assert!(silent.stdout.contains("FAIL loss=0: no stream came"), "{silent:?}");
}

#[test]
fn t3_a_thousand_streams_are_told_apart() {
    let Some(pair) = Pair::start() else { return };
    let all = "1:to=10.77.0.2:15001,copies=1000,step=90us,cycle=100ms,count=5,size=64B";
    let listener = pair.listen("0.0.0.0:15001 --count 5000 --for 60s --every 200ms --json");
    let done = talked(&pair.talk(&format!("--stream {all} --json")));
    assert_eq!((&done["total"]["planned"], &done["total"]["sent"]), (&5_000.into(), &5_000.into()));
    let heard = heard(&listener.end().done());
    assert_eq!(heard["streams"].as_array().map(Vec::len), Some(1_000));
    for (index, number) in (1..=1_000).enumerate() {
        is_complete(&heard, index, number, 5);
    }
}

#[test]
fn t3_prometheus_is_served_what_is_counted() {
    let Some(pair) = Pair::start() else { return };
    let words = "0.0.0.0:15001 --every 50ms --prometheus 127.0.0.1:9464 --for 60s";
    let listener = pair.listen_in("", words);
    pair.host.tool_in("beta", "ip link set lo up");
    let talk = "talk --tolerance 20s 10.77.0.1:15001 --from 10.77.0.2:15009 --count 120";
    pair.host.timewire_in("beta", &talk.split(' ').collect::<Vec<_>>());
    let stream = "stream=\"1\",source=\"10.77.0.2:15009\"";
    let scrape = || {
        // Its address is one of the host's own namespace.
        let page = timewire_lab::ns::in_namespace(&pair.host.netns(""), || {
            let mut page = String::new();
            let mut client = TcpStream::connect("127.0.0.1:9464").unwrap();
            client.write_all(b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n").unwrap();
            client.read_to_string(&mut page).unwrap();
            page
        });
        page.unwrap()
    };
    let mut page = String::new();
    wait_until("all are counted", || {
        page = scrape();
        page.contains(&format!("timewire_listen_messages_total{{{stream}}} 120"))
    });
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
    assert!(page.contains(&format!("timewire_listen_lost_total{{{stream}}} 0")), "{page}");
    let count =
        format!("timewire_listen_latency_seconds_count{{{stream},from=\"Send\",to=\"Receive\"}}");
    assert!(page.contains(&format!("{count} 120")), "{page}");
    listener.signal("TERM");
    listener.end().done();
}

#[test]
fn t3_answers_come_back_to_a_listener_beside_the_talker() {
    let Some(pair) = Pair::start() else { return };
    let reflector = pair.listen("0.0.0.0:15001 --reflect --count 80 --for 30s --json");
    let answers = pair.listen_in("", "--interface phy0 --port 15002 --count 80 --for 30s --json");
    pair.talk("10.77.0.2:15001 --from 10.77.0.1:15002 --count 80");
    let there = heard(&reflector.end().done());
    assert_eq!(there["answers"], serde_json::json!({"sent": 80, "not_sent": 0, "drop_causes": []}));
    let back = heard(&answers.end().done());
    is_complete(&back, 0, 1, 80);

    let frames = "--interface phy0 --ethertype 0x88b5 --count 80 --for 30s --json";
    let reflector = pair.listen(&format!("{frames} --reflect"));
    let answers = pair.listen_in("", frames);
    pair.talk(&format!("{} --interface phy0 --count 80", pair.nic));
    assert_eq!(heard(&reflector.end().done())["answers"]["sent"], 80);
    is_complete(&heard(&answers.end().done()), 0, 1, 80);
}

/// A bucket that no frame fits into.
const NO_ROOM: &str =
    "tc qdisc replace dev phy0 root handle 100: tbf rate 8kbit burst 10b limit 10b";

#[test]
fn t3_answers_that_do_not_leave_have_their_reason() {
    let Some(pair) = Pair::start() else { return };
    let near = "02:00:00:00:00:01";
    pair.host.tool(&format!("ip link set phy0 address {near}"));
    for (netns, to, mac) in [("", 2, pair.nic.as_str()), ("beta", 1, near)] {
        for address in [format!("10.77.0.{to}"), format!("fd00::{to}")] {
            let words = format!("ip neigh replace {address} lladdr {mac} dev phy0 nud permanent");
            pair.host.tool_in(netns, &words);
        }
    }
    let words: Vec<&str> = NO_ROOM.split(' ').collect();
    let said = run(&mut pair.host.command("beta", &words));
    if said.code != Some(0) {
        return eprintln!("SKIP: no tbf on this kernel: {}", said.stderr.trim());
    }
    let names = |answers: &Json| {
        assert_eq!((&answers["sent"], &answers["not_sent"]), (&0.into(), &40.into()), "{answers}");
        let cause = &answers["drop_causes"][0];
        let candidate = &cause["candidates"][0];
        let of = ["cause", "qdisc", "handle", "interface"].map(|key| candidate[key].as_str());
        let told = ["queue_full", "tbf", "100:", "phy0"].map(Some);
        assert_eq!((of, &cause["frames"]), (told, &40.into()), "{answers}");
    };
    let nic = &pair.nic;
    let ways = [
        ("0.0.0.0:15001", "10.77.0.2:15001".to_owned()),
        ("[::]:15001", "[fd00::2]:15001".to_owned()),
        ("[::]:15001", "10.77.0.2:15001".to_owned()),
        ("--interface phy0 --ethertype 0x88b5", format!("{nic} --interface phy0")),
    ];
    for (listen, talk) in ways {
        let reflector = pair.listen(&format!("{listen} --reflect --count 40 --for 30s --json"));
        pair.talk(&format!("{talk} --count 40"));
        names(&heard(&reflector.end().done())["answers"]);
    }
    let answer = ["measure", "path", "--answer", "10.77.0.2:15001", "--json"];
    let answer = pair.host.spawn_in("beta", &[&[TIMEWIRE], &answer[..]].concat());
    wait_until("it answers", || answer.stderr().contains("answering on"));
    pair.talk("10.77.0.2:15001 --size 64B --count 40");
    answer.signal("INT");
    let said = answer.end().done().json();
    assert_eq!(said["schema"], "timewire.measure-path-answers/1");
    names(&said);
    // Where they leave and nobody takes them, the reflector goes on.
    pair.host.tool_in("beta", "tc qdisc del dev phy0 root");
    let reflector = pair.listen("0.0.0.0:15001 --reflect --count 80 --for 30s --json");
    let from = format!("{nic}/10.77.0.2:15001 --interface phy0 --from 10.77.0.1:15003 --count 40");
    pair.talk(&from);
    pair.talk(&from.replace("--count", "--stream 2 --count"));
    let there = heard(&reflector.end().done());
    assert_eq!(there["answers"], serde_json::json!({"sent": 80, "not_sent": 0, "drop_causes": []}));
}

/// Of each stream that was captured: the first two bytes behind the addresses and the two after
/// them, which are a tag or the type and the traffic class, with its number of frames.
fn marks(capture: &[u8]) -> BTreeMap<(u16, [u8; 4]), usize> {
    let mut marks = BTreeMap::new();
    for (_, frame) in read_capture(capture) {
        let behind = match frame[12..14] {
            [0x81, 0] => &frame[18..],
            [8, 0] => &frame[42..],
            _ => &frame[14..],
        };
        let stream = timewire_datapath::probe::Probe::parse(behind).unwrap().stream;
        *marks.entry((stream, frame[12..16].try_into().unwrap())).or_default() += 1;
    }
    marks
}

#[test]
fn t3_each_stream_of_a_talker_has_its_own_marks() {
    let Some(pair) = Pair::start() else { return };
    let nic = &pair.nic;
    let frames = format!(
        "--interface phy0 --from 10.77.0.1:15001 --vlan 5:1 --stream 1:to={nic} \
         --stream 2:to={nic},vlan=5:6 --stream 3:to={nic},vlan=9:7,per_cycle=2"
    );
    let tagged = BTreeMap::from([
        ((1, [0x81, 0, 0x20, 5]), 20),
        ((2, [0x81, 0, 0xc0, 5]), 20),
        ((3, [0x81, 0, 0xe0, 9]), 20),
    ]);
    let udp = "10.77.0.2:15001 --dscp 10 --stream 1:dscp=46 --stream 2 --stream 3:dscp=0";
    let of_frames = format!(
        "--interface phy0 --from 10.77.0.1:15001 --stream 1:to={nic}/10.77.0.2:15001,dscp=46 \
         --stream 2:to={nic}/10.77.0.2:15001,dscp=10 --stream 3:to={nic}/10.77.0.2:15001"
    );
    // The version and length of the header, then DSCP and ECN.
    let classes = BTreeMap::from([
        ((1, [8, 0, 0x45, 46 << 2]), 20),
        ((2, [8, 0, 0x45, 10 << 2]), 20),
        ((3, [8, 0, 0x45, 0]), 20),
    ]);
    let ways = [
        ("frames", "--ethertype 0x88b5", frames, &tagged),
        ("udp", "--port 15001", udp.to_owned(), &classes),
        ("headers", "--port 15001", of_frames, &classes),
    ];
    for (name, filter, talk, wanted) in ways {
        let listen = format!("--interface phy0 {filter} --count 60 --for 30s --pcap {name}.pcapng");
        let listener = pair.listen(&listen);
        talked(&pair.talk(&format!("{talk} --count 20 --json")).done());
        listener.end().done();
        let capture = fs::read(pair.host.scratch().join(&format!("{name}.pcapng"))).unwrap();
        assert_eq!(&marks(&capture), wanted, "{name}");
    }
    pair.host.is_clean();
}

#[test]
fn t3_what_is_asked_of_no_interface_is_named() {
    let Some(pair) = Pair::start() else { return };
    for words in [
        &["listen", "--interface", "none0"][..],
        &["talk", "--interface", "none0", "02:00:00:00:00:02"][..],
    ] {
        let said = pair.host.timewire(words);
        assert_eq!((said.code, said.stderr.contains("none0")), (Some(2), true), "{said:?}");
    }
    let said = pair.host.timewire(&["talk", "10.77.0.2:1", "--vlan", "5:6"]);
    assert_eq!(said.code, Some(2));
    assert!(said.stderr.contains("--over frames, ring or xdp"), "{said:?}");
}

/// Stations `phy0` of the machine and of `beta`, with `etf` that gives frames to the link 200 us
/// before their launch time.
const STATIONS: &str = "set -e
ip netns add beta
ip link add phy0 type veth peer name phy0 netns beta
ip link set phy0 up
ip addr add 10.77.0.1/24 dev phy0
ip -n beta link set phy0 up
ip -n beta addr add 10.77.0.2/24 dev phy0
nic=$(ip netns exec beta cat /sys/class/net/phy0/address)
ip neigh replace 10.77.0.2 lladdr $nic nud permanent dev phy0
tc qdisc replace dev phy0 root handle 1: etf clockid CLOCK_TAI delta 200000
listen() {
  ip netns exec beta $TW listen 0.0.0.0:15001 --clock-error 0ns \
    --for 2s --cycle 1ms --json \"$@\" > /tmp/heard &
  listener=$!
  until ip netns exec beta grep -q :3A99 /proc/net/udp; do sleep 0.01; done
  sleep 0.1
}
";

/// Runs the script in the laboratory's kernel; its lines, and `None`, after saying why, without
/// one.
fn in_virtual_time(script: &str) -> Option<Vec<Json>> {
    let there = support::timewire(&["lab", "exec", "--time", "virtual", "--", "true"]);
    if there.code != Some(0) {
        eprintln!("SKIP: no kernel of the laboratory: {}", there.stderr);
        return None;
    }
    let script = format!("TW={TIMEWIRE}\n{STATIONS}{script}");
    let words = ["lab", "exec", "--time", "virtual", "--", "sh", "-c", &script];
    let said = support::timewire(&words);
    let lines = said.stdout.lines().map(serde_json::from_str);
    let lines: Result<Vec<Json>, _> = lines.collect();
    Some(lines.unwrap_or_else(|error| panic!("{error}: {said:?}")))
}

#[test]
fn t4_launch_times_through_etf_are_kept_to_the_kernels_timer() {
    let script = "listen --until kernel
$TW talk 10.77.0.2:15001 --count 200 --offset 250us --launch 400us --json | tr -d '\\n'
echo
wait $listener
tail -n 1 /tmp/heard";
    let Some(lines) = in_virtual_time(script) else { return };
    let [talked, heard] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!(talked["total"]["sent"], 200);
    for none in ["launch_invalid", "launch_missed", "not_taken", "skipped_woke_late"] {
        assert_eq!(talked["total"][none], 0, "{none}: {talked}");
    }
    let stream = &heard["data"]["heard"]["streams"][0];
    assert_eq!(stream["from_point"], "Scheduled");
    assert_eq!(
        (&stream["sequence"]["received"], &stream["sequence"]["lost"]),
        (&200.into(), &0.into())
    );
    // Its timer ends 200 us before the launch time, and 512 ns late at most
    // (`docs/src/reference/laboratory-tests.md`), but where a program wakes at that moment: each of
    // its looks at the clock costs 256 ns, and how many there are differs from machine to machine.
    let time = |key: &str| stream["between"][key].as_f64().unwrap();
    assert!(time("min_ns") > -200_000.0 && time("mean_ns") <= -199_488.0, "{stream}");
    assert!(time("max_ns") <= -200_000.0 + 32.0 * 256.0, "{stream}");
    // 50 us into each cycle of 1 ms.
    let phase = |key: &str| stream["phase"][key].as_i64().unwrap();
    assert!(phase("min_ns") >= 50_001 && phase("max_ns") <= 50_000 + 32 * 256, "{stream}");
}

/// A VLAN interface makes a PCP of the priority of each stream.
#[test]
fn t4_each_stream_of_a_talker_has_its_own_priority() {
    let script = "tc qdisc del dev phy0 root
ip link add link phy0 name phy0.7 type vlan id 7 egress-qos-map 3:4 5:6
ip link set phy0.7 up
ip addr add 10.78.0.1/24 dev phy0.7
ip neigh replace 10.78.0.2 lladdr $nic nud permanent dev phy0.7
for pcp in 4 6 0; do
  ip netns exec beta $TW listen --interface phy0 --clock-error 0ns \
    --vlan 7 --pcp $pcp --for 2s --json > /tmp/$pcp &
done
sleep 0.5
$TW talk 10.78.0.2:15001 --priority 3 --stream 1 --stream 2:priority=5,per_cycle=2 \
  --stream 3:priority=0,per_cycle=5 --count 100 --json | tr -d '\\n'
echo
wait
for pcp in 4 6 0; do tail -n 1 /tmp/$pcp; done";
    let Some(lines) = in_virtual_time(script) else { return };
    let [talked, heard @ ..] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!(talked["total"]["sent"], 300);
    let streams = |heard: &Json| -> Vec<(u64, u64)> {
        let streams = heard["data"]["heard"]["streams"].as_array().unwrap();
        let number = |it: &Json| it.as_u64().unwrap();
        let of = |it: &Json| (number(&it["stream"]), number(&it["sequence"]["received"]));
        streams.iter().map(of).collect()
    };
    let heard: Vec<_> = heard.iter().map(streams).collect();
    assert_eq!(heard, [vec![(1, 100)], vec![(2, 100)], vec![(3, 100)]]);
}

#[test]
fn t4_launch_times_that_are_over_are_refused_and_counted() {
    let script = "listen
$TW talk 10.77.0.2:15001 --count 50 --launch 100ns --json | tr -d '\\n' || true
echo
wait $listener
tail -n 1 /tmp/heard";
    let Some(lines) = in_virtual_time(script) else { return };
    let [talked, heard] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!(
        (&talked["total"]["sent"], &talked["total"]["launch_invalid"]),
        (&50.into(), &50.into())
    );
    assert_eq!(heard["data"]["heard"]["messages"], 0);
}

/// Two talkers chose one number: each is a stream of its own, and the clash is named everywhere.
#[test]
fn t3_two_talkers_with_one_number_are_two_streams() {
    let Some(pair) = Pair::start() else { return };
    pair.host.tool("ip addr add 10.77.0.3/24 dev phy0");
    for (listen, to, sources) in [
        (
            "0.0.0.0:15001",
            "10.77.0.2:15001 --from 10.77.0.",
            ["10.77.0.1:15009", "10.77.0.3:15009"],
        ),
        (
            "--interface phy0 --ethertype 0x88b5",
            "02:00:00:00:00:02 --interface phy0 --over frames",
            ["02:00:00:00:01:01", "02:00:00:00:01:03"],
        ),
    ] {
        let listener = pair.listen(&format!("{listen} --count 400 --json --out heard"));
        for last in [1, 3] {
            pair.host.tool(&format!("ip link set phy0 address 02:00:00:00:01:0{last}"));
            let from = if to.ends_with('.') { format!("{last}:15009") } else { String::new() };
            pair.talk(&format!("{to}{from} --stream 7 --cycle 1ms --count 200")).done();
        }
        let heard = heard(&listener.end().done());
        let streams = heard["streams"].as_array().unwrap();
        assert_eq!(streams.len(), 2, "{heard}");
        for (stream, source) in streams.iter().zip(sources) {
            assert_eq!((&stream["stream"], &stream["clash"]), (&Json::from(7), &Json::from(true)));
            assert_eq!(stream["source"], source);
            assert_eq!(stream["sequence"]["received"], 200, "{stream}");
            assert_eq!(stream["sequence"]["duplicate"], 0, "{stream}");
        }
        let page = pair.host.timewire_in("beta", &["report", "heard"]).stdout;
        assert!(page.contains("stream 7 of ") || page.contains("clash"), "{page}");
        pair.host.tool("rm -r heard");
    }
}
