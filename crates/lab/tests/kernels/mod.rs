// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A test program that is also what runs in its kernels: their first process, a talker, a listener.
//!
//! Not here: what is tested.

use std::env;
use std::fs;
use std::net::{Ipv4Addr, UdpSocket};
use std::panic;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant as HostInstant;

use serde_json::Value as Json;
use timewire_base::{Instant, Span, StationName, Tai, parse_span};
use timewire_lab::LabError;
use timewire_lab::uml::Kernel;
use timewire_lab::uml::segment::{KernelStation, SegmentLab, Summary};
use timewire_sim::{SegmentConfig, StationClock};
use timewire_sys::clock;

/// A test: its name, and its function, which says why it cannot run here, if so.
pub type Test = (&'static str, fn() -> Option<String>);

const PORT: u16 = 5_000;

/// Runs this process as what it was started for.
pub fn main(tests: &[Test]) -> ExitCode {
    timewire_lab::enter_guest();
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["talk", to, count, bytes, interval] => talk(to, count, bytes, interval),
        ["flood", to, bursts, frames, bytes] => flood(to, bursts, frames, bytes),
        ["listen", count] => listen(count),
        ["sink"] => sink(),
        ["echo", count] => echo(count),
        ["ask", to, count] => ask(to, count),
        _ => return run_tests(tests, &words),
    }
    ExitCode::SUCCESS
}

fn run_tests(tests: &[Test], arguments: &[&str]) -> ExitCode {
    let filters: Vec<_> = arguments.iter().filter(|a| !a.starts_with('-')).collect();
    let chosen = |name: &str| filters.is_empty() || filters.iter().any(|f| name.contains(**f));
    let tests = tests.iter().filter(|(name, _)| chosen(name));
    if arguments.contains(&"--list") {
        tests.for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let missing = Kernel::find(None).err();
    let (mut passed, mut failed, mut skipped) = (0, 0, String::new());
    let began = HostInstant::now();
    for (name, test) in tests {
        let reason = match &missing {
            Some(error) => Ok(Some(error.to_string())),
            None => panic::catch_unwind(test),
        };
        println!("test {name} ... {}", if reason.is_ok() { "ok" } else { "FAILED" });
        match reason {
            Ok(reason) => {
                passed += 1;
                let section = |reason| format!("---- {name} stdout ----\nSKIP: {reason}\n");
                skipped += &reason.map(section).unwrap_or_default();
            }
            Err(_) => failed += 1,
        }
    }
    // As the usual harness says it, so that skips are counted.
    let outcome = if failed == 0 { "ok" } else { "FAILED" };
    println!("\nsuccesses:\n{skipped}");
    println!(
        "test result: {outcome}. {passed} passed; {failed} failed; 0 ignored; 0 measured; \
         0 filtered out; finished in {:?}",
        began.elapsed()
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// When all stations start what they run.
pub fn start() -> Instant<Tai> {
    Instant::from_ns(env::var("TIMEWIRE_START").unwrap().parse().unwrap())
}

/// Sends datagrams at exact instants of its clock: the first an interval after the start.
fn talk(to: &str, count: &str, bytes: &str, interval: &str) {
    let interval = parse_span(interval).unwrap();
    let socket = UdpSocket::bind(("0.0.0.0", PORT)).unwrap();
    // Nobody is asked for an address between the datagrams.
    socket.send_to(&[0; 4], (to, PORT + 1)).unwrap();
    let mut payload = vec![0; bytes.parse().unwrap()];
    clock::set_timer_slack(Span::from_ns(1)).unwrap();
    for number in 1..=count.parse().unwrap() {
        let at = start() + Span::from_ns(interval.as_ns() * number);
        clock::sleep_until(at);
        payload[..8].copy_from_slice(&number.to_be_bytes());
        socket.send_to(&payload, (to, PORT)).unwrap();
    }
}

/// Every millisecond, several datagrams at once.
fn flood(to: &str, bursts: &str, frames: &str, bytes: &str) {
    let socket = UdpSocket::bind(("0.0.0.0", PORT)).unwrap();
    let payload = vec![0; bytes.parse().unwrap()];
    for number in 1..=bursts.parse().unwrap() {
        clock::sleep_until(start() + Span::from_ms(number));
        for _ in 0..frames.parse::<u64>().unwrap() {
            socket.send_to(&payload, (to, PORT)).unwrap();
        }
    }
    // What is queued shall leave before the kernel does.
    clock::sleep_until(clock::now::<Tai>() + Span::from_ms(50));
}

/// Prints when each datagram came, by its clock.
fn listen(count: &str) {
    let socket = UdpSocket::bind(("0.0.0.0", PORT)).unwrap();
    let mut buffer = [0; 2_000];
    for _ in 0..count.parse::<u64>().unwrap() {
        let (length, _) = socket.recv_from(&mut buffer).unwrap();
        let now = clock::now::<Tai>() - start();
        let number = u64::from_be_bytes(buffer[..8].try_into().unwrap());
        println!("{number} {length} {}", now.as_ns());
    }
}

/// Takes what comes, so that nobody is told that the port is closed.
fn sink() {
    let socket = UdpSocket::bind(("0.0.0.0", PORT)).unwrap();
    loop {
        socket.recv_from(&mut [0; 2_000]).unwrap();
    }
}

fn echo(count: &str) {
    let socket = UdpSocket::bind(("0.0.0.0", PORT)).unwrap();
    let mut buffer = [0; 2_000];
    for _ in 0..count.parse::<u64>().unwrap() {
        let (length, from) = socket.recv_from(&mut buffer).unwrap();
        socket.send_to(&buffer[..length], from).unwrap();
    }
}

fn ask(to: &str, count: &str) {
    let socket = UdpSocket::bind(("0.0.0.0", PORT)).unwrap();
    let mut buffer = [0; 2_000];
    for number in 0..count.parse::<u64>().unwrap() {
        let before = clock::now::<Tai>();
        socket.send_to(&number.to_be_bytes(), (to, PORT)).unwrap();
        socket.recv_from(&mut buffer).unwrap();
        println!("{}", (clock::now::<Tai>() - before).as_ns());
    }
}

/// Station number N: its address is 10.77.0.N, and it runs this program with these words.
pub fn station(number: u8, clock: StationClock, words: &[&str]) -> KernelStation {
    let this = env::current_exe().unwrap().display().to_string();
    let name = char::from(b'a' + number - 1).to_string();
    KernelStation {
        name: StationName::new(&name).unwrap(),
        mac: timewire_base::wire::MacAddress([2, 0, 0, 0, 0, number]),
        address: (Ipv4Addr::new(10, 77, 0, number), 24),
        clock,
        queues: 1,
        memory_mib: 64,
        run: [this.as_str()].iter().chain(words).map(|&word| word.to_owned()).collect(),
    }
}

/// Station number N, running a shell script; in it, `$0` is this program.
pub fn scripted(number: u8, clock: StationClock, queues: u16, script: &str) -> KernelStation {
    let mut station = station(number, clock, &[]);
    let this = station.run.remove(0);
    station.run = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
    station.run.push(this);
    station.queues = queues;
    station
}

/// What a laboratory left behind.
#[derive(Debug)]
pub struct Ran {
    pub summary: Summary,
    pub out: PathBuf,
    pub frames: Vec<Frame>,
}

/// A line of `segment.jsonl`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub from: String,
    pub link: String,
    pub ready_ps: u64,
    pub start_ps: u64,
    pub end_ps: u64,
    pub busy_with: Option<String>,
    pub length: u64,
    pub bytes: String,
}

impl Ran {
    /// What a station's command wrote.
    pub fn output(&self, station: usize) -> String {
        fs::read_to_string(&self.summary.stations[station].output).unwrap()
    }

    /// What a station's command complained about.
    pub fn errors(&self, station: usize) -> String {
        fs::read_to_string(&self.summary.stations[station].errors).unwrap()
    }

    /// A file of the laboratory's directory.
    pub fn file(&self, name: &str) -> Vec<u8> {
        fs::read(self.out.join(name)).unwrap()
    }

    /// The frames of a station that are UDP to the port of the measurement.
    pub fn datagrams(&self, from: &str) -> Vec<Frame> {
        let is_ours = |frame: &&Frame| {
            frame.from == from && frame.bytes[24..28] == *"0800" && frame.bytes[72..76] == *"1388"
        };
        self.frames.iter().filter(is_ours).cloned().collect()
    }
}

impl Drop for Ran {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.out);
    }
}

/// Runs stations on a segment.
pub fn lab(name: &str, segment: SegmentConfig, stations: Vec<KernelStation>) -> Ran {
    run(name, &SegmentLab::new(segment, stations))
}

pub fn run(name: &str, lab: &SegmentLab) -> Ran {
    let (result, out) = try_run(name, lab);
    let summary = result.unwrap();
    let frames = frames(&out.join("segment.jsonl"));
    Ran { summary, out, frames }
}

pub fn try_run(name: &str, lab: &SegmentLab) -> (Result<Summary, LabError>, PathBuf) {
    let kernel = Kernel::find(None).unwrap();
    let this = env::current_exe().unwrap();
    let out = env::temp_dir().join(format!("timewire-t4-{}-{name}", std::process::id()));
    (lab.run(&kernel, &this, &out, None), out)
}

fn frames(file: &Path) -> Vec<Frame> {
    let text = fs::read_to_string(file).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Json>(line).unwrap());
    let frame = |line: Json| {
        let data = &line["data"];
        let text = |key: &str| data[key].as_str().map(str::to_owned);
        let number = |key: &str| data[key].as_u64().unwrap();
        (line["type"] == "frame").then(|| Frame {
            from: text("from").unwrap(),
            link: text("link").unwrap(),
            ready_ps: number("ready_ps"),
            start_ps: number("start_ps"),
            end_ps: number("end_ps"),
            busy_with: text("found_busy_with"),
            length: number("length"),
            bytes: text("bytes").unwrap(),
        })
    };
    lines.filter_map(frame).collect()
}
