// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Plans of random networks in the simulator, on the worst clocks that the file allows: no planned
//! frame is lost, outside its window or later than promised, and the others keep their bounds.

use std::fmt::Write as _;
use std::path::Path;

use timewire_base::{Sequence, Span};
use timewire_model::scenario::network::{NetDelay, NetworkFile};
use timewire_plan::check::check;
use timewire_plan::file::{self, FileProblem};
use timewire_plan::model::{Plan, StreamId};
use timewire_plan::synth::{self, Options};
use timewire_plan::words;
use timewire_runner::simulation::{self, Report};
use timewire_sim::net::{SimOutcome, Simulation};
use timewire_tsn::file::ParseFile;

fn of(random: &mut Sequence, words: &[&'static str]) -> &'static str {
    words[random.below(words.len())]
}

/// A network by chance, with all that a plan has to do with.
struct Chance<'a> {
    random: &'a mut Sequence,
    /// How clocks go: 0 perfect, 1 wrong for ever, 2 drifting and set right.
    clocks: usize,
    /// Bridges forward before a frame is whole; all links have one rate then.
    cuts: bool,
    stations: Vec<(String, usize)>,
}

impl Chance<'_> {
    fn of(&mut self, words: &[&'static str]) -> &'static str {
        of(self.random, words)
    }

    /// Within 500 ns of the right time.
    fn clock(&mut self) -> String {
        let clock = match self.clocks {
            0 => return String::new(),
            1 => self.of(&["offset: 500ns", "offset: -500ns", "offset: 120ns"]),
            _ => self.of(&[
                "drift: 20ppm, sync: { interval: 5ms, error: 60ns }",
                "drift: -30ppm, wander: 1ppm, sync: { interval: 5ms, error: 60ns }",
                "drift: 40ppm, sync: { by: beacon, interval: 2ms, error: 60ns, bias: 100ns }",
                "offset: -500ns",
            ]),
        };
        format!("clock: {{ {clock} }}, ")
    }

    fn network(&mut self, seed: u64) -> String {
        let bridges = 1 + self.random.below(4);
        let sync = match self.clocks {
            0 => self.of(&["0ns", "40ns", "1us", "5us"]),
            _ => "1us",
        };
        let mut text = format!(
            "timewire: 1\nkind: network\nname: chance-{seed}\nduration: 30ms\nseed: {}\n\
             sync_error: {sync}\n",
            seed + 1
        );
        if self.random.below(5) == 0 {
            text += "reserve: { period: 250us, duration: 15us }\n";
        }
        self.nodes(bridges, &mut text);
        self.ports(bridges, &mut text);
        self.streams(&mut text);
        text
    }

    fn nodes(&mut self, bridges: usize, text: &mut String) {
        let mut links = "links:\n".to_owned();
        text.push_str("stations:\n");
        for bridge in 0..bridges {
            for number in 0..=self.random.below(2) + usize::from(bridges == 1) {
                let name = format!("s{bridge}-{number}");
                let device = self.of(&[
                    "",
                    "",
                    "launch_time: 30us",
                    "gate_entries: 200, interval_min: 2us",
                    "interval_min: 1us, granularity: 8ns",
                ]);
                let send = self.of(&["0us", "3us", "{ kind: uniform, min: 1us, max: 3us }"]);
                let receive = self.of(&["0us", "{ kind: uniform, min: 1us, max: 4us }"]);
                let clock = self.clock();
                let _ = writeln!(
                    text,
                    "- {{ name: {name}, send: {send}, receive: {receive}, {clock}\
                     device: {{ {device} }} }}"
                );
                let rates = ["100Mbit", "100Mbit", "1Gbit", "1Gbit", "10Mbit"];
                let rate = if self.cuts { "1Gbit" } else { self.of(&rates) };
                let _ = writeln!(links, "- {{ between: [{name}, b{bridge}], rate: {rate} }}");
                self.stations.push((name, bridge));
            }
        }
        text.push_str("bridges:\n");
        for bridge in 0..bridges {
            let forward = self.of(&["0us", "1500ns", "{ kind: uniform, min: 500ns, max: 3us }"]);
            let device = self.of(&[
                "",
                "",
                "interval_min: 1us",
                "interval_min: 5us",
                "gate_entries: 64, granularity: 100ns",
                "gate_entries: 63",
                "openings: 2",
            ]);
            let cut = if self.cuts { "cut_through: 64B, " } else { "" };
            let clock = self.clock();
            let _ = writeln!(
                text,
                "- {{ name: b{bridge}, forward: {forward}, {cut}{clock}device: {{ {device} }} }}"
            );
            let rate = if self.cuts { "1Gbit" } else { self.of(&["100Mbit", "1Gbit", "1Gbit"]) };
            let delay = self.of(&["0us", "500ns"]);
            if bridge > 0 {
                let before = bridge - 1;
                let _ = writeln!(
                    links,
                    "- {{ between: [b{before}, b{bridge}], rate: {rate}, delay: {delay} }}"
                );
            }
        }
        if bridges > 2 && self.random.below(2) == 0 {
            let _ = writeln!(links, "- {{ between: [b0, b{}], rate: 1Gbit }}", bridges - 1);
        }
        text.push_str(&links);
    }

    fn ports(&mut self, bridges: usize, text: &mut String) {
        let mut ports = String::new();
        let all = |bridges: usize| (0..bridges).map(|it| format!("b{it}")).collect::<Vec<_>>();
        if self.random.below(2) == 0 {
            let classes = self.of(&["0, 3", "0, 1, 2, 3, 4, 5", "2"]);
            let names = all(1 + self.random.below(bridges)).join(", ");
            let _ = writeln!(ports, "- {{ of: [{names}], preemptable: [{classes}] }}");
        }
        if self.random.below(3) == 0 {
            let names = all(bridges).join(", ");
            let _ =
                writeln!(ports, "- {{ of: [{names}], cbs: [{{ class: 5, idle_slope: 8Mbit }}] }}");
        }
        if !ports.is_empty() {
            let _ = write!(text, "ports:\n{ports}");
        }
    }

    fn streams(&mut self, text: &mut String) {
        text.push_str("streams:\n");
        let sets: [&[&str]; 3] =
            [&["500us", "1ms", "2ms"], &["400us", "1ms"], &["250us", "750us", "3ms"]];
        let periods = sets[self.random.below(3)];
        for stream in 0..4 + self.random.below(24) {
            let count = self.stations.len();
            let from = self.random.below(count);
            let to = (from + 1 + self.random.below(count - 1)) % count;
            let mut listeners = vec![self.stations[to].0.clone()];
            if self.random.below(5) == 0 {
                let other = self.random.below(count);
                if other != from && other != to {
                    listeners.push(self.stations[other].0.clone());
                }
            }
            let more = match stream % 4 {
                3 => self.unscheduled(),
                _ => self.scheduled(periods),
            };
            let _ = writeln!(
                text,
                "- {{ name: t{stream}, talker: {}, listeners: [{}], {more} }}",
                self.stations[from].0,
                listeners.join(", ")
            );
        }
    }

    fn scheduled(&mut self, periods: &[&'static str]) -> String {
        let (class, size) = (self.of(&["6", "7", "7"]), 20 + self.random.below(1_400));
        let period = self.of(periods);
        let jitter = self.of(&["", "", ", max_jitter: 40us", ", max_jitter: 2us"]);
        let traffic = match self.random.below(8) {
            0 => format!("kind: sporadic, gap: {period}"),
            _ => format!("period: {period}, burst: {}", self.of(&["1", "1", "3"])),
        };
        format!("class: {class}, size: {size}B, {traffic}, scheduled: true{jitter}")
    }

    fn unscheduled(&mut self) -> String {
        let (class, size) = (self.random.below(6), 50 + self.random.below(1_400));
        let traffic = match self.random.below(3) {
            0 => format!("kind: flood, rate: {}Mbit, burst: 4", 1 + self.random.below(9)),
            _ => format!(
                "period: {}, jitter: {{ kind: uniform, min: 0us, max: 200us }}",
                self.of(&["500us", "1ms"])
            ),
        };
        format!("class: {class}, size: {size}B, {traffic}")
    }
}

fn text(seed: u64) -> (String, usize) {
    let mut random = Sequence::new(seed);
    let (clocks, cuts) = (random.below(3), random.below(5) == 0);
    let mut chance = Chance { random: &mut random, clocks, cuts, stations: Vec::new() };
    (chance.network(seed), clocks)
}

/// What was seen, so that the test knows that it looked at something.
#[derive(Debug, Default)]
struct Seen {
    planned: usize,
    messages: u64,
    refused: usize,
    simulations: usize,
    bounded: usize,
    /// By what a file has.
    preemptable: usize,
    credit: usize,
    several: usize,
    moving: usize,
}

fn run(file: &NetworkFile) -> SimOutcome {
    let (network, _) = simulation::network(file, Path::new(".")).unwrap();
    Simulation::run(&network).unwrap()
}

fn ps(span: Span) -> u64 {
    u64::try_from(span.as_ns()).unwrap() * 1_000
}

fn range(delay: &NetDelay) -> (Span, Span) {
    (delay.range().0, delay.range().1.unwrap())
}

/// How long after its release a planned message is there at the last listener at most.
fn promised(given: &FileProblem, file: &NetworkFile, plan: &Plan, id: StreamId) -> Span {
    let stream = &file.streams[given.streams[id.index()].unwrap()];
    let station = |name: &str| file.stations.iter().find(|it| it.name.as_str() == name).unwrap();
    let talker = station(stream.talker.as_str());
    let lead = range(&talker.send).1 + talker.device.launch_time.unwrap_or(Span::ZERO);
    let listeners = stream.listeners.all().iter();
    let receive = listeners.map(|it| range(&station(it.as_str()).receive).1).max().unwrap();
    let latency = words::latency(&given.problem, plan, id).unwrap();
    lead + latency + receive + file.sync_error
}

fn look(seed: u64, seen: &mut Seen) {
    let (text, clocks) = text(seed);
    look_at(seed, &text, clocks, seen);
}

fn look_at(seed: u64, text: &str, clocks: usize, seen: &mut Seen) {
    let file = NetworkFile::parse("chance", text).unwrap_or_else(|it| panic!("{it}\n{text}"));
    let given = file::problem(&file).unwrap();
    let plan = synth::plan(given.problem.clone(), Options { seed, routes: 3 }, 100_000);
    let report = check(&given.problem, &plan).unwrap();
    let words: Vec<String> = report.findings.iter().map(|it| it.describe(&given.problem)).collect();
    assert!(report.is_clean(), "seed {seed}: {words:#?}\n{text}");
    seen.refused += plan.refused.len();
    let planned = file::planned(&file, &given, &plan).unwrap();
    if planned.streams.is_empty() {
        return;
    }
    let outcome = run(&planned);
    let apart = planned.with_clocks_apart();
    let all = apart.iter().map(|file| (file, run(file)));
    for (number, (own, outcome)) in
        std::iter::once((&planned, outcome.clone())).chain(all).enumerate()
    {
        let report = Report::of(own, 0, 1, &outcome);
        assert!(report.is_good(), "seed {seed}, clocks {number}: {}\n{text}", report.table());
        for admission in &plan.admitted {
            let name = &given.problem.stream(admission.stream).name;
            let place = own.streams.iter().position(|it| it.name.as_str() == name).unwrap();
            let limit = promised(&given, &file, &plan, admission.stream);
            let result = &outcome.streams[place];
            let most = result.latencies.max_ps().unwrap_or(0);
            assert!(
                most <= ps(limit),
                "seed {seed}, clocks {number}: {name} took {most} ps, {limit} promised\n{text}"
            );
            seen.messages += result.delivered;
            seen.planned += 1;
            seen.several += usize::from(own.streams[place].listeners.all().len() > 1);
        }
        seen.simulations += 1;
        seen.moving += usize::from(!own.faults.is_empty() || clocks == 2);
        seen.preemptable += usize::from(own.ports.iter().any(|it| !it.preemptable.is_empty()));
        seen.credit += usize::from(own.ports.iter().any(|it| !it.cbs.is_empty()));
    }
    // By clocks that go at the right rate.
    if clocks < 2 {
        seen.bounded += bounds(seed, text, (&file, &given, &plan), (&planned, &outcome));
    }
}

/// What is not scheduled keeps its bound.
fn bounds(
    seed: u64,
    text: &str,
    (file, given, plan): (&NetworkFile, &FileProblem, &Plan),
    (planned, outcome): (&NetworkFile, &SimOutcome),
) -> usize {
    let Ok(bounds) = file::bounds(file, given, plan) else { return 0 };
    let mut bounded = 0;
    for own in bounds {
        let Ok((latency, _)) = own.bound else { continue };
        let stream = &file.streams[own.stream];
        let station = |name: &str| file.stations.iter().find(|it| it.name.as_str() == name);
        let send = station(stream.talker.as_str()).map(|it| range(&it.send).1).unwrap();
        let listeners = stream.listeners.all().iter().filter_map(|it| station(it.as_str()));
        let receive = listeners.map(|it| range(&it.receive).1).max().unwrap();
        let place = planned.streams.iter().position(|it| it.name == stream.name).unwrap();
        let Some(most) = outcome.streams[place].latencies.max_ps() else { continue };
        let limit = latency + send + receive;
        assert!(
            most <= ps(limit),
            "seed {seed}: {} took {most} ps, its bound is {limit}\n{text}",
            stream.name
        );
        bounded += 1;
    }
    bounded
}

#[test]
fn t0_plans_hold_on_the_worst_clocks() {
    let number = |name| std::env::var(name).ok().and_then(|text: String| text.parse().ok());
    let count = number("TIMEWIRE_FUZZ_PLANNED").unwrap_or(300);
    let from: u64 = number("TIMEWIRE_FUZZ_FROM").unwrap_or(0);
    let mut seen = Seen::default();
    for seed in from..from + count {
        look(seed, &mut seen);
    }
    println!("{count} networks: {seen:?}");
    let kinds = [seen.preemptable, seen.credit, seen.several, seen.moving, seen.refused];
    assert!(kinds.iter().all(|count| *count > 20), "{seen:?}");
    assert!(seen.planned > 2_000 && seen.bounded > 100, "{seen:?}");
}

/// Two classes in one queue of a port whose list is bounded: the slow link's frame comes early.
const ONE_QUEUE: &str = "timewire: 1
kind: network
name: one-queue
duration: 40ms
sync_error: 5us
stations: [a, b, c]
bridges:
- { name: b0, forward: 2us }
- { name: br, forward: { kind: uniform, min: 1us, max: 4us }, device: { gate_entries: 63 } }
links:
- { between: [a, b0], rate: 100Mbit }
- { between: [b0, br], rate: 1Gbit }
- { between: [c, br], rate: 10Mbit }
- { between: [b, br], rate: 1Gbit }
streams:
- { name: low, class: 6, talker: a, listeners: b, size: 320B, period: 700us, scheduled: true }
- { name: high, class: 7, talker: c, listeners: b, size: 100B, period: 1ms, scheduled: true }
";

/// A frame is forwarded before the gap after it has passed.
const AT_ONCE: &str = "timewire: 1
kind: network
name: at-once
sync_error: 0ns
stations: [a, b, c]
bridges: [{ name: br, forward: 0us, device: { openings: 2 } }]
links:
- { between: [a, br], rate: 1Gbit }
- { between: [b, br], rate: 100Mbit }
- { between: [c, br], rate: 1Gbit }
streams:
- { name: large, class: 7, talker: c, listeners: a, size: 600B, period: 700us, offset: 39us,
    scheduled: true }
- { name: exact, class: 7, talker: b, listeners: a, size: 20B, period: 1ms, scheduled: true,
    max_jitter: JITTER }
";

#[test]
fn t0_frames_of_a_queue_leave_as_they_come_and_before_their_gap() {
    let mut seen = Seen::default();
    look_at(0, ONE_QUEUE, 0, &mut seen);
    assert_eq!((seen.refused, seen.simulations), (0, 5));
    for (jitter, refused) in [("960ns", 1), ("1us", 0)] {
        let mut seen = Seen::default();
        look_at(0, &AT_ONCE.replace("JITTER", jitter), 0, &mut seen);
        assert_eq!(seen.refused, refused, "{jitter}");
    }
}
