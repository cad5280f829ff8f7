// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Examples for each target: files of the repository as they are, and what the product writes.
//!
//!   seeds DIRECTORY      writes DIRECTORY/TARGET/NAME

use std::fs;
use std::path::{Path, PathBuf};

use timewire_avtp::AvtpTime;
use timewire_avtp::pdu::{
    Aaf, AafFormat, AcfMessage, Can, CanId, Crf, CrfClock, CrfType, Cvf, CvfFormat, NominalRate,
    Ntscf, Pdu, Pull, Reserved, SampleFormat, StreamHeader, StreamId,
};
use timewire_agent::protocol::ExperimentId;
use timewire_agent::protocol::journal::{Side, header};
use timewire_agent::protocol::message::{Ask, ToAgent, What};
use timewire_fuzz::hosts::hosts;
use timewire_host::clock::dataset::{ClockIdentity, DataSet, DataSetId, PortIdentity};
use timewire_host::clock::management::{Action, Body, Management};
use timewire_agent::links::fuzzing;
use timewire_capture::record::{ClockInfo, Encoder, Record, RecordHeader, TimestampPoint};

/// The examples of a target, which are numbered.
struct Seeds<'a> {
    target: &'a Path,
    count: usize,
}

impl Seeds<'_> {
    fn add(&mut self, bytes: &[u8]) {
        let path = self.target.join(format!("{:04}", self.count));
        fs::write(path, bytes).expect("a directory that can be written");
        self.count += 1;
    }
}

fn main() {
    let into = PathBuf::from(std::env::args().nth(1).expect("usage: seeds DIRECTORY"));
    let files = Files::of_repository();
    type Make = fn(&mut Seeds<'_>, &Files);
    let targets: &[(&str, Make)] = &[
        ("yaml_network", yaml),
        ("yaml_host", yaml),
        ("yaml_hosts", yaml),
        ("capture", |seeds, files| files.of(".twc").for_each(|bytes| seeds.add(&bytes))),
        ("packet_paths", |seeds, files| {
            for bytes in files.of(".twc") {
                (0..3).for_each(|how| seeds.add(&[&bytes[..], &[how]].concat()));
            }
        }),
        ("records", |seeds, _| seeds.add(&records())),
        ("pcap", |seeds, _| pcaps().iter().for_each(|bytes| seeds.add(bytes))),
        ("qdisc", qdiscs),
        ("yang", instances),
        ("tables", |seeds, _| TABLES.iter().for_each(|text| seeds.add(text.as_bytes()))),
        ("configured", configured),
        ("link", |seeds, _| {
            for bytes in fuzzing::links().iter().chain(&fuzzing::announcements()) {
                [0, 3, 255].iter().for_each(|piece| seeds.add(&[&bytes[..], &[*piece]].concat()));
            }
            seeds
                .add(b"J{\"type\":\"want\",\"files\":[{\"index\":0,\"from\":0}],\"more\":false}\0");
            seeds.add(b"J{\"type\":\"offer\",\"version\":1,\"files\":[],\"more\":false}\0");
        }),
        ("messages", |seeds, _| messages().iter().for_each(|bytes| seeds.add(bytes))),
        ("journals", |seeds, _| {
            seeds.add(&header(Side::Agent));
            seeds.add(&header(Side::Controller));
        }),
        ("avtp", |seeds, _| packets().iter().for_each(|bytes| seeds.add(bytes))),
        ("media", |seeds, _| MEDIA.iter().for_each(|bytes| seeds.add(bytes))),
        ("control", |seeds, _| REQUESTS.iter().for_each(|text| seeds.add(text.as_bytes()))),
        ("ptp", |seeds, _| {
            management().iter().for_each(|bytes| seeds.add(bytes));
            seeds.add(b"#@ 3960057600\n3644697600 36 # 1 Jul 2015\n3692217600 37 # 1 Jan 2017\n");
        }),
        ("frames", |seeds, _| frames().iter().for_each(|bytes| seeds.add(bytes))),
        ("filter", filters),
        ("markers", |seeds, _| {
            seeds.add(b"\0\x01\x08\xff\xff\xff\xff\0\0\0\0");
            seeds.add(b"\x80\x01\x08\x40\0\0\0\0\0\0\0");
            seeds.add(b"\x10\x10\x04name");
        }),
        ("run_directory", |seeds, files| {
            files.of(".json").filter(|bytes| bytes.len() < 40_000).for_each(|it| seeds.add(&it));
            files.of(".jsonl").for_each(|bytes| seeds.add(&bytes));
        }),
        ("host", host),
        ("options", |seeds, _| OPTIONS.iter().for_each(|text| seeds.add(text.as_bytes()))),
        ("rings", |seeds, _| {
            seeds.add(&[3, 0, 1, 2, 0x10, 0, 0, 0, 0, 0, 0, 0, 0x20, 0, 0, 0, 1, 0, 0, 0]);
            seeds.add(&[8, 0, 1, 0, 12, 0, 2, 0, 1, 2, 3, 4]);
        }),
    ];
    for (name, make) in targets {
        let target = into.join(name);
        fs::create_dir_all(&target).expect("a directory that can be written");
        make(&mut Seeds { target: &target, count: 0 }, &files);
    }
}

/// All files of the repository that may be examples.
struct Files(Vec<PathBuf>);

impl Files {
    fn of_repository() -> Files {
        let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut all = Vec::new();
        for part in ["scenarios", "fixtures", "crates", "docs/schema"] {
            walk(&top.join(part), &mut all);
        }
        all.sort();
        Files(all)
    }

    /// The contents of those whose names end so.
    fn of<'a>(&'a self, end: &'a str) -> impl Iterator<Item = Vec<u8>> + 'a {
        let named = move |path: &&PathBuf| path.to_string_lossy().ends_with(end);
        self.0.iter().filter(named).filter_map(|path| fs::read(path).ok())
    }
}

fn walk(directory: &Path, all: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let kind = entry.file_type();
        match kind {
            Ok(kind) if kind.is_dir() => walk(&entry.path(), all),
            Ok(kind) if kind.is_file() => all.push(entry.path()),
            _ => {}
        }
    }
}

fn yaml(seeds: &mut Seeds<'_>, files: &Files) {
    files.of(".yaml").for_each(|bytes| seeds.add(&bytes));
    for base in files.of("tdm-64.yaml").chain(files.of("line.network.yaml")) {
        let own = b"#% file own.yaml\nname: own\nstreams: { control: { size: 80B } }\n";
        seeds.add(&[&b"#% file base.yaml\n"[..], &base, own].concat());
    }
    seeds.add(b"alpha: tls://10.0.0.1:4711\nbeta: unix:/run/a.sock\ngamma: netns:three\n");
    seeds.add(b"timewire: 1\nname: two\nstreams: [{id: 1, to: 10.0.0.2:15001, cycle: 1ms}]\n");
}

fn host(seeds: &mut Seeds<'_>, _: &Files) {
    for (host, recorded) in (0_u8..).zip(hosts()) {
        for (which, text) in (0_u16..).zip(&recorded.texts) {
            let [low, high] = which.to_le_bytes();
            // All short answers are of one host; the long ones differ.
            if host == 0 || text.len() > 100 {
                seeds.add(&[&[host, low, high], text.as_bytes()].concat());
            }
        }
    }
}

fn qdiscs(seeds: &mut Seeds<'_>, _: &Files) {
    for recorded in hosts() {
        let shown = recorded.texts.iter().filter(|text| text.contains("\"kind\":"));
        shown.for_each(|text| seeds.add(text.as_bytes()));
    }
    seeds.add(QDISC_COMMANDS.as_bytes());
    seeds.add(FILTERS.as_bytes());
}

fn instances(seeds: &mut Seeds<'_>, files: &Files) {
    let is_yang = |bytes: &Vec<u8>| {
        let text = String::from_utf8_lossy(bytes);
        text.contains("ieee802-dot1q") || text.contains("ietf-interfaces")
    };
    for end in [".json", ".xml"] {
        files.of(end).filter(is_yang).for_each(|bytes| seeds.add(&bytes));
    }
    YANG.iter().for_each(|text| seeds.add(text.as_bytes()));
}

fn configured(seeds: &mut Seeds<'_>, files: &Files) {
    for network in files.of(".network.yaml").filter(|bytes| bytes.len() < 4_000) {
        let mut input = network;
        for (name, content) in [("b1.tc.json", "[]"), ("b1.yang.json", YANG[0])] {
            input.extend(format!("\n---\n{name}\n---\n{content}").into_bytes());
        }
        seeds.add(&input);
    }
}

fn filters(seeds: &mut Seeds<'_>, _: &Files) {
    for text in FILTER_TEXTS {
        let mut input = text.as_bytes().to_vec();
        for frame in frames() {
            input.extend(b"\n---\n");
            input.extend(frame);
        }
        seeds.add(&input);
    }
}

fn records() -> Vec<u8> {
    let header = RecordHeader {
        writer: "alpha client control".to_owned(),
        case: "tiny/plain/alone".to_owned(),
        clocks: vec![ClockInfo {
            name: "TAI".to_owned(),
            error_bound: timewire_base::Span::from_ns(1),
        }],
        stations: vec!["alpha".to_owned()],
        flows: vec!["control".to_owned()],
        meta: Default::default(),
    };
    let (mut encoder, mut bytes) = Encoder::new(&header).expect("a header");
    for seq in 0..3 {
        let record = Record {
            at_ns: 1_000_000_000 + i64::from(seq),
            seq,
            frame_len: 64,
            point: TimestampPoint::Send,
            station: 0,
            flow: 0,
            flags: 0,
            clock: 0,
        };
        assert!(encoder.push(&record).is_none(), "a block has room for three");
    }
    bytes.extend_from_slice(&encoder.finish(0).bytes[..]);
    bytes
}

fn pcaps() -> Vec<Vec<u8>> {
    let frame = &frames()[0];
    let length = u32::try_from(frame.len()).expect("a short frame").to_le_bytes();
    let mut classic = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    classic.extend([0xff, 0xff, 0, 0, 1, 0, 0, 0]);
    classic.extend([1, 0, 0, 0, 2, 0, 0, 0]);
    classic.extend([length, length].concat());
    classic.extend(frame);
    let mut blocks = Vec::new();
    let mut block = |kind: u32, content: &[u8]| {
        let padded = content.len().next_multiple_of(4);
        let length = u32::try_from(padded + 12).expect("a short block").to_le_bytes();
        blocks.extend(kind.to_le_bytes());
        blocks.extend(length);
        blocks.extend(content);
        blocks.resize(blocks.len() + padded - content.len(), 0);
        blocks.extend(length);
    };
    block(
        0x0a0d_0d0a,
        &[0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255],
    );
    block(
        1,
        &[1, 0, 0, 0, 0, 0, 4, 0, 9, 0, 1, 0, 9, 0, 0, 0, 14, 0, 8, 0, 1, 0, 0, 0, 0, 0, 0, 0],
    );
    block(6, &[&[0; 12][..], &length, &length, frame].concat());
    vec![classic, blocks]
}

fn messages() -> Vec<Vec<u8>> {
    let id = ExperimentId::new("e-1").expect("a name");
    let halt = ToAgent::new(&id, Ask::Command { number: 7, what: What::Halt }).encode();
    let mut all = vec![halt];
    for text in MESSAGES {
        all.push(text.as_bytes().to_vec());
    }
    let together = all.join(&b'\n');
    all.push(together);
    all
}

fn packets() -> Vec<Vec<u8>> {
    let stream = StreamId::from_bits(0x0200_0000_0001_0007);
    let header = StreamHeader {
        stream,
        sequence: 1,
        media_restart: false,
        timestamp: Some(AvtpTime::from_bits(0x80c0_ffee)),
        timestamp_uncertain: false,
    };
    let format = AafFormat {
        sample: SampleFormat::Int16,
        rate: NominalRate::K48,
        channels: 2,
        bit_depth: 16,
    };
    let samples = [0x5a; 24];
    let aaf = |sequence| {
        let header = StreamHeader { sequence, ..header };
        let reserved = Reserved::NONE;
        written(Pdu::Aaf(Aaf {
            header,
            format,
            sparse: false,
            event: 0,
            samples: &samples,
            reserved,
        }))
    };
    let cvf = written(Pdu::Cvf(Cvf {
        header,
        format: CvfFormat::H264 { timestamp: None },
        marker: true,
        event: 0,
        payload: &[0x65, 1, 2, 3],
        reserved: Reserved::NONE,
    }));
    let mut all = vec![aaf(1), cvf];
    all.push([&aaf(1)[..], b"\n---\n", &aaf(2), b"\n---\n", &aaf(9)].concat());
    all.push(crf(stream));
    all.extend(can(stream));
    all
}

fn crf(stream: StreamId) -> Vec<u8> {
    let clock = CrfClock {
        kind: CrfType::AudioSample,
        base_frequency_hz: 48_000,
        pull: Pull::One,
        interval: 160,
    };
    let times: Vec<u8> =
        [1_000_000_u64, 4_333_333].iter().flat_map(|ns| ns.to_be_bytes()).collect();
    written(Pdu::Crf(Crf {
        stream,
        sequence: 1,
        media_restart: false,
        frame_sync: false,
        timestamp_uncertain: false,
        clock,
        data: &times,
        reserved: Reserved::NONE,
    }))
}

fn can(stream: StreamId) -> Option<Vec<u8>> {
    let can = Can {
        bus: 0,
        id: CanId::Standard(0x123),
        remote: false,
        flexible: false,
        rate_switch: false,
        error_passive: false,
        data: &[1, 2, 3, 4],
        reserved: Reserved::NONE,
    };
    let mut messages = vec![0; 64];
    let length = AcfMessage::CanBrief(can).write(&mut messages).ok()?;
    let ntscf = Ntscf { stream, sequence: 1, data: &messages[..length], reserved: Reserved::NONE };
    Some(written(Pdu::Ntscf(ntscf)))
}

fn written(pdu: Pdu<'_>) -> Vec<u8> {
    let mut out = vec![0; 400];
    let length = pdu.write(&mut out).expect("a packet");
    out.truncate(length);
    out
}

fn management() -> Vec<Vec<u8>> {
    let port = PortIdentity { clock: ClockIdentity([1, 2, 3, 0xff, 0xfe, 4, 5, 6]), port: 1 };
    let message = |action, body| Management {
        transport_specific: 0,
        domain: 0,
        source: port,
        sequence: 3,
        target: port,
        boundary_hops: 0,
        action,
        body,
    };
    let mut all = Vec::new();
    for id in DataSetId::ALL {
        all.push(message(Action::Get, Body::Question(id)).emit());
        if let Some(set) = DataSet::parse(id, &vec![1; id.length()]) {
            all.push(message(Action::Response, Body::Values(Box::new(set))).emit());
        }
    }
    all
}

fn frames() -> Vec<Vec<u8>> {
    let ethernet = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    let mut ip = vec![0x45, 0, 0, 46, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    ip.extend([0x3a, 0x99, 0x3a, 0x99, 0, 26, 0, 0]);
    ip.extend(b"TWs1\x07\0\x01\0\0\0\0\0\0\0\0\0\0\0");
    let v4 = [&ethernet[..], &[8, 0], &ip].concat();
    let tagged = [&ethernet[..], &[0x81, 0, 0xa0, 5, 8, 0], &ip].concat();
    let mut six = vec![0x60, 0, 0, 0, 0, 8, 17, 64];
    six.extend([[0xfd; 16], [0xfe; 16]].concat());
    six.extend([0x3a, 0x99, 0x3a, 0x99, 0, 8, 0, 0]);
    let v6 = [&ethernet[..], &[0x86, 0xdd], &six].concat();
    let mut ptp = vec![0; timewire_datapath::ptp_frame::CONTENT];
    timewire_datapath::ptp_frame::PtpProbe {
        domain: 200,
        probe: timewire_datapath::probe::Probe {
            stream: 7,
            seq: 1,
            time: timewire_base::Instant::from_ns(1),
            is_launch: true,
            skipped: None,
        },
    }
    .write([2, 0, 0, 0, 0, 9], &mut ptp);
    let ptp = [&ethernet[..], &[0x88, 0xf7], &ptp].concat();
    vec![v4, tagged, v6, ptp]
}

const QDISC_COMMANDS: &str = "\
qdisc replace dev eth0 parent root handle 100: taprio num_tc 2 map 0 1 queues 1@0 1@1 \
base-time 0 sched-entry S 01 300000 sched-entry S 02 700000 clockid CLOCK_TAI
qdisc replace dev eth0 parent 100:1 etf clockid CLOCK_TAI delta 200000 offload
qdisc add dev eth0 parent 100:1 cbs idleslope 98688 sendslope -901312 hicredit 153 locredit -1389
qdisc add dev eth0 parent root mqprio num_tc 2 map 0 1 queues 1@0 1@1 hw 0
";
const FILTERS: &str = r#"[{"protocol":"ip","pref":1,"kind":"flower","chain":0},
{"protocol":"ip","pref":1,"kind":"flower","chain":0,"options":{"handle":1,"keys":{"eth_type":"ipv4",
"ip_proto":"udp","dst_port":15001},"not_in_hw":true,"actions":[{"order":1,"kind":"skbedit",
"priority":":5","control_action":{"type":"pipe"}}]}}]"#;
const YANG: &[&str] = &[
    r#"{"ietf-interfaces:interfaces":{"interface":[{"name":"eth0","type":
"iana-if-type:ethernetCsmacd","ieee802-dot1q-bridge:bridge-port":{
"ieee802-dot1q-sched-bridge:gate-parameter-table":{"gate-enabled":true,"admin-gate-states":255,
"admin-control-list":{"gate-control-entry":[{"index":0,"operation-name":
"ieee802-dot1q-sched:set-gate-states","time-interval-value":500000,"gate-states-value":1}]},
"admin-cycle-time":{"numerator":1,"denominator":1000},"admin-base-time":{"seconds":"0",
"nanoseconds":0}}}}]}}"#,
    r#"<interfaces xmlns="urn:ietf:params:xml:ns:yang:ietf-interfaces"><interface><name>eth0</name>
<bridge-port xmlns="urn:ieee:std:802.1Q:yang:ieee802-dot1q-bridge"/></interface></interfaces>"#,
    r#"{"ieee802-dot1q-cnc-config:cnc-config":{"domain":[{"domain-id":"d","cuc":[{"cuc-id":"c",
"stream":[{"stream-id":"00-00-00-00-00-01:00-01","talker":{"stream-rank":{"rank":1},
"end-station-interfaces":[{"mac-address":"00-00-00-00-00-01","interface-name":"eth0"}],
"traffic-specification":{"interval":{"numerator":1,"denominator":1000},
"max-frames-per-interval":1,"max-frame-size":100,"transmission-selection":1}},
"listener":[{"index":"0","end-station-interfaces":[{"mac-address":"00-00-00-00-00-02",
"interface-name":"eth0"}]}]}]}]}]}}"#,
];
const TABLES: &[&str] = &[
    "stream,src,dst,size,period,deadline,jitter\n0,1,[2],100,1000000,1000000,0\n\n---\n\
     link,q_num,rate,t_proc,t_prop\n\"(1, 0)\",8,1,0,0\n\"(0, 1)\",8,1,0,0\n\"(0, 2)\",8,1,0,0\n\
     \"(2, 0)\",8,1,0,0\n\n---\nlink,queue,start,end,cycle\n\"(1, 0)\",7,0,800,1000000\n\n---\n\
     stream,frame,offset\n0,0,0\n\n---\nstream,frame,link,queue\n0,0,\"(1, 0)\",7\n\n---\n\
     stream,link\n0,\"(1, 0)\"\n0,\"(0, 2)\"\n",
    "stream,frame,interface,priority,interval_ns,start_ns,launch_ns,bytes\n\
     control,0,eth0,5,1000000,20000,19000,118\n",
    "{\"s1\":{\"source\":\"e1\",\"destinations\":[\"e2\"],\"size\":100,\"period\":1000}}\n---\n\
     {\"nodes\":[{\"id\":\"e1\"},{\"id\":\"e2\"}],\"links\":[{\"source\":\"e1\",\
     \"target\":\"e2\"}]}\n",
];
const MESSAGES: &[&str] = &[
    r#"{"version":2,"experiment":"e-1","ask":"greet"}"#,
    r#"{"version":2,"experiment":"e-1","ask":{"clock":{"sent":1}}}"#,
    r#"{"version":2,"experiment":"e-1","answer":"greeted"}"#,
];
const MEDIA: &[&[u8]] = &[
    b"RIFF\x2c\0\0\0WAVEfmt \x10\0\0\0\x01\0\x02\0\x80\xbb\0\0\0\xee\x02\0\x04\0\x10\0\
      data\x08\0\0\0\x01\0\x02\0\x03\0\x04\0",
    b"\0\0\0\x01\x67\x42\0\x1e\0\0\x01\x68\xce\0\0\x01\x65\x88\x84\0\0\x01\x41\x9a",
    b"123#DEADBEEF\n1F334455#R\n123##1112233\n(1.000000) can0 123#00\n",
    b"\x7c\x85\x88\n---\n\x7c\x45\x99\n---\n\x78\0\x02\x67\x42\0\x01\x68",
];
const REQUESTS: &[&str] = &[
    r#"{"request":"show"}"#,
    r#"{"request":"stop"}"#,
    r#"{"request":"add_process","pids":[1,2]}"#,
    r#"{"request":"remove_process","members":[1]}"#,
    r#"{"request":"send","list":{"queues":2,"rules":[[15001,1],[15002,2]]}}"#,
    r#"{"request":"on_time","word":{"hold_ns":1000000,"offset_ns":3,"by":"ptp4l","why":null}}"#,
    r#"{"request":"set","schedule":{"base_time_ns":0,"cycle_time_ns":1000000,"slots":
[{"station":"alpha","start_ns":0,"transmit_ns":450000,"guard_ns":50000}]},"not_before_ns":null}"#,
    r#"{"response":"done"}"#,
    r#"{"response":"members","members":[1]}"#,
    r#"{"response":"refused","message":"no"}"#,
    r#"{"request":"switch","file":{"timewire":1}}"#,
];
const FILTER_TEXTS: &[&str] = &[
    "udp port 15001",
    "vlan 5 and pcp 3 or not tcp",
    "src host 10.0.0.1 and dst net 10.0.0.0/8",
    "ether proto 0x88f7 || ether host 02:00:00:00:00:01",
    "ip6 and (portrange 15000-15010)",
    "station alpha and interface eth0 and pid 7",
];
const OPTIONS: &[&str] = &[
    "125us",
    "100Mbit",
    "1522B",
    "1.5ms",
    "0-3,7",
    "0x88f7",
    "0000:01:00.0",
    "10.0.0.2:15001",
    "02:00:00:00:00:02/10.0.0.2:15001",
    "5:3",
    "transfer.p99<=1ms",
    "lost<=0.1%",
    "rate=1,1000",
    "loss<=1%,latency.p99<=1ms",
    "4@0",
    "0x81",
    "eth0",
    "[fd00::2]:15001",
    "launch.p99=10us",
];
