// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The marks that Timewire's own programs put: one for each message, with its tag.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use timewire_base::{Port, Span, Tai};
use timewire_datapath::traffic::Task;
use timewire_datapath::udp_flow;
use timewire_runner::program::{Program, ProgramFile, ProgramPace, Records};
use timewire_sys::clock;
use timewire_sys::marker::{Mark, News, Reader, Users, tag};

/// A directory for rings, new.
fn place(test: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("marks-of-{test}"));
    let _ = std::fs::remove_dir_all(&path);
    path
}

fn timewire(directory: &Path, words: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_timewire"))
        .args(words)
        .env("TIMEWIRE_MARKERS", directory)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// All marks of the programs, which have ended, by the names of their points.
fn marks(reader: Reader) -> BTreeMap<String, Vec<Mark>> {
    let (mut names, mut marks) = (BTreeMap::new(), BTreeMap::<String, Vec<Mark>>::new());
    let totals = reader.finish(&mut |news| match news {
        News::Point { point, name, .. } => {
            names.insert(point, name.to_owned());
        }
        News::Mark(mark) => marks.entry(names[&mark.point].clone()).or_default().push(mark),
        _ => {}
    });
    assert_eq!((totals.lost, totals.unsound), (0, 0));
    marks
}

#[test]
fn t3_each_message_of_a_talker_is_marked_where_it_is_sent_and_where_it_is_received() {
    let directory = place("talk");
    let reader = Reader::open_at(&directory, Users::Own).unwrap();
    let free = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let at = free.local_addr().unwrap().to_string();
    drop(free);
    let mut listener = timewire(&directory, &["listen", &at, "--count", "20", "--for", "60s"]);
    // Until it listens, messages are lost: streams go on until it has heard enough.
    let mut sent = 0;
    while listener.try_wait().unwrap().is_none() {
        let words = ["talk", &at, "--count", "20", "--tolerance", "20s"];
        assert!(timewire(&directory, &words).wait().unwrap().success());
        sent += 20;
    }
    let marks = marks(reader);
    let (sends, received) = (&marks["talk.send"], &marks["listen.received"]);
    assert_eq!((sends.len(), received.len()), (sent, 20));
    for (number, mark) in (0..).zip(sends) {
        assert_eq!(mark.tag, tag(1, number % 20));
    }
    for mark in received {
        let before = sends.iter().filter(|it| it.tag == mark.tag && it.at_ns <= mark.at_ns);
        assert!(before.count() > 0, "{mark:?}");
    }
}

#[test]
fn t3_requests_and_responses_are_marked_with_the_tags_of_their_packets() {
    let directory = place("programs");
    let reader = Reader::open_at(&directory, Users::Own).unwrap();
    let free = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let server = free.local_addr().unwrap();
    drop(free);
    let start = clock::now::<Tai>() + Span::from_ms(500);
    let task = Task {
        address: Ipv4Addr::LOCALHOST,
        port: Port::new(server.port().into()).unwrap(),
        message: 64,
        start,
        end: start + Span::from_ms(300),
        station: 0,
        priority: None,
        launch: None,
    };
    let records = |name: &str| {
        let header = timewire_capture::record::RecordHeader {
            writer: name.to_owned(),
            case: String::new(),
            clocks: timewire_datapath::clocks(),
            stations: vec!["here".to_owned()],
            flows: vec!["request".to_owned(), "response".to_owned()],
            meta: BTreeMap::new(),
        };
        Records { path: directory.join(format!("{name}.twr")), header }
    };
    let second = Span::from_secs(1);
    let programs = [
        Program::Server {
            task: task.clone(),
            pace: ProgramPace::Closed,
            drain: second,
            records: records("server"),
        },
        Program::Client {
            task,
            server: Ipv4Addr::LOCALHOST,
            pace: ProgramPace::Every(Span::from_ms(10)),
            timeout: second,
            records: records("client"),
        },
    ];
    let started = programs.map(|program| {
        let role = if matches!(program, Program::Client { .. }) { "client" } else { "server" };
        let text = serde_json::to_string(&ProgramFile { priority: None, program }).unwrap();
        let file = directory.join(format!("{role}.json"));
        std::fs::write(&file, text).unwrap();
        timewire(&directory, &["__program", file.to_str().unwrap()])
    });
    for mut program in started {
        assert!(program.wait().unwrap().success());
    }
    let marks = marks(reader);
    let answered = marks["client.receive"].len();
    assert!(answered > 0 && marks["server.send"].len() >= answered, "{marks:?}");
    // Both sides give a packet the same tag.
    for (sent, received) in [("client.send", "server.receive"), ("server.send", "client.receive")] {
        for mark in &marks[received] {
            let before = marks[sent].iter().filter(|it| it.tag == mark.tag);
            assert_eq!(before.filter(|it| it.at_ns <= mark.at_ns).count(), 1, "{mark:?}");
        }
    }
    // And it is that of the addresses: of the ports that the client may have had, one fits.
    let flow = u32::try_from(marks["server.send"][0].tag >> 32).unwrap();
    let fits = (1024..=u16::MAX)
        .filter(|port| udp_flow(server, (Ipv4Addr::LOCALHOST, *port).into()) == flow);
    assert!(fits.count() >= 1);
}
