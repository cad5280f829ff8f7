// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A network file whose programs run on kernels of their own, with one simulated segment between
//! them: as the laboratory takes it, or why it cannot be one.
//!
//! Not here: the laboratory (`timewire_lab::uml::segment`).

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::Path;

use timewire_agent::sweep::file_beside;
use timewire_base::wire::MacAddress;
use timewire_base::{BitsPerSecond, Span, StationName};
use timewire_lab::uml::segment::{KernelStation, SegmentLab};
use timewire_model::scenario::network::{
    NetAccess, NetBridge, NetDelay, NetFault, NetStation, NetworkCases, NetworkFile,
};
use timewire_model::scenario::{Drift, LossShare, address_variable};
use timewire_sim::{Loss, SegmentConfig, SegmentKind, SimTime, StationClock};

use crate::RunnerError;
use crate::network::Obstacle;
use crate::own_program::{make_executable, write_files};

/// Memory of each kernel. **Units**: MiB.
const MEMORY_MIB: u32 = 128;
/// Length of the prefix of the stations' subnet. **Units**: bits.
const PREFIX_BITS: u8 = 24;

/// The laboratory of a network: a kernel for each station, which runs its program from 1 s of its
/// clock on, for as long as `duration` says.
///
/// **Errors**: what the file has and the laboratory does not do, all of it.
///
/// # Example
///
/// ```
/// use timewire_tsn::file;
///
/// let text = "timewire: 1\nkind: network\nname: two\nstations: [a, b]\n\
///     segments: [{ access: in-turn }]\n\
///     programs: [{ name: hello, station: a, command: 'ping -c 1 $TIMEWIRE_ADDRESS_B' },\n\
///     \x20          { name: idle, station: b, command: 'sleep 1' }]\n";
/// let network = file::without_streams("two.yaml", text).unwrap();
/// let laboratory = timewire_runner::kernels::laboratory(&network).unwrap();
/// assert_eq!(laboratory.stations[1].address.0.to_string(), "10.77.0.2");
/// ```
pub fn laboratory(network: &NetworkCases) -> Result<SegmentLab, Vec<Obstacle>> {
    let file = &network.base;
    let mut obstacles = Obstacles::default();
    if network.has_experiment {
        obstacles.add("experiment", "the programs run once; leave it out");
    }
    obstacles.of_file(file);
    let segment = medium(file, &mut obstacles);
    let mut stations = Vec::new();
    for number in 0..file.stations.len() {
        stations.extend(station(file, number, &mut obstacles));
    }
    let Some(segment) = segment.filter(|_| obstacles.0.is_empty()) else {
        return Err(obstacles.0);
    };
    let mut laboratory = SegmentLab::new(segment, stations);
    laboratory.duration = Some(laboratory.start + file.duration);
    laboratory.environment = environment(file);
    match laboratory.check() {
        Ok(()) => Ok(laboratory),
        Err(error) => {
            Err(vec![Obstacle { what: "the network".to_owned(), why: error.to_string() }])
        }
    }
}

/// The files that programs need.
#[derive(Clone, Debug)]
pub struct ProgramFiles {
    /// Of each program, the station, and what is in its files, by their names.
    all: Vec<(StationName, BTreeMap<String, Vec<u8>>)>,
}

impl ProgramFiles {
    /// Reads them; they are beside the network file.
    ///
    /// **Errors**: one cannot be read.
    pub fn read(file: &NetworkFile, beside: &Path) -> Result<ProgramFiles, RunnerError> {
        let mut all = Vec::new();
        for program in &file.programs {
            let mut files = BTreeMap::new();
            for name in &program.files {
                files.insert(name.to_string(), file_beside(beside, name.as_str())?);
            }
            all.push((program.station.clone(), files));
        }
        Ok(ProgramFiles { all })
    }

    /// Writes them into the directories in which the programs start; they can be executed.
    ///
    /// **Errors**: one cannot be written.
    pub fn write(&self, out: &Path) -> Result<(), RunnerError> {
        for (station, files) in &self.all {
            let directory = out.join(station.as_str());
            write_files(&directory, files)?;
            files.keys().try_for_each(|name| make_executable(&directory.join(name)))?;
        }
        Ok(())
    }
}

/// A station's address in the laboratory, by its place in the file.
pub fn address(number: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 0, u8::try_from(number + 1).unwrap_or(u8::MAX))
}

/// How often a receiver loses a frame.
pub fn loss(file: &NetworkFile) -> LossShare {
    let segments = file.segments.iter().map(|it| it.loss);
    segments.chain(file.links.iter().map(|it| it.loss)).next().unwrap_or(LossShare(0))
}

#[derive(Default)]
struct Obstacles(Vec<Obstacle>);

impl Obstacles {
    fn add(&mut self, what: impl Into<String>, why: &str) {
        self.0.push(Obstacle { what: what.into(), why: why.to_owned() });
    }

    fn of_file(&mut self, file: &NetworkFile) {
        if !file.streams.is_empty() {
            self.add("streams", "kernels run programs here; timewire run has talkers for streams");
        }
        if file.schedule.is_some() || !file.ports.is_empty() {
            let what = if file.schedule.is_some() { "schedule" } else { "ports" };
            self.add(what, "a program sets its station's ports up, with tc or timewire tdm");
        }
        for (i, fault) in file.faults.iter().enumerate() {
            let bridges = |node: &StationName| file.bridges.iter().any(|it| it.name == *node);
            match fault {
                NetFault::ClockDrift(it) if bridges(&it.node) => {
                    self.add(format!("faults[{i}]"), "the switch goes by the right time");
                }
                NetFault::ClockDrift(_) => {}
                _ => self.add(format!("faults[{i}]"), "of faults there is `clock-drift`"),
            }
        }
        for NetBridge { name, clock, .. } in &file.bridges {
            let is_right = clock.offset.0 == Span::ZERO && clock.drift.0 == 0;
            if !is_right || clock.sync.is_some() || clock.wander.0 != 0 {
                self.add(format!("bridge {name}: clock"), "the switch goes by the right time");
            }
        }
        let clocks = file.stations.iter().map(|it| (&it.name, &it.clock));
        for (name, clock) in clocks {
            if clock.sync.is_some() || clock.wander.0 != 0 {
                let what = format!("station {name}: clock");
                self.add(what, "it has `offset` and `drift`; a program such as ptp4l sets it");
            }
        }
        for NetStation { name, send, receive, .. } in &file.stations {
            let zero = NetDelay::Fixed(Span::ZERO);
            if *send != zero || *receive != zero {
                self.add(format!("station {name}: send, receive"), "computing takes no time");
            }
        }
    }
}

/// What is between the stations: one segment, or one bridge with a link to each station.
fn medium(file: &NetworkFile, obstacles: &mut Obstacles) -> Option<SegmentConfig> {
    let of = |kind, rate, delay, loss: LossShare| {
        let seed = file.seed.get();
        Some(SegmentConfig { kind, rate, delay, loss: Loss::from_ppb(loss.0)?, seed })
    };
    let is_whole = |names: &[StationName]| {
        names.len() == file.stations.len()
            && file.stations.iter().all(|station| names.contains(&station.name))
    };
    match (&file.segments[..], &file.bridges[..], &file.links[..]) {
        ([segment], [], []) if is_whole(&segment.stations) => {
            let what = format!("segment {}", segment.name);
            if segment.access != NetAccess::InTurn {
                let why = "frames wait for each other and do not collide: write `access: in-turn`";
                obstacles.add(&what, why);
            }
            if segment.corruption.0 > 0 {
                obstacles.add(&what, "frames are lost, not damaged");
            }
            of(SegmentKind::Hub, segment.rate, segment.delay, segment.loss)
        }
        ([], [bridge], [first, ..]) => {
            let what = format!("bridge {}", bridge.name);
            let far = |name: &&StationName| **name != bridge.name;
            let ends = file.links.iter().flat_map(|it| it.between.iter().find(far)).cloned();
            let ends: Vec<StationName> = ends.collect();
            let reaches = file.links.iter().all(|it| it.between.contains(&bridge.name));
            if !reaches || !is_whole(&ends) {
                obstacles.add(&what, "it has a link to each station, and there is no other link");
            }
            let same = file
                .links
                .iter()
                .all(|it| (it.rate, it.delay, it.loss) == (first.rate, first.delay, first.loss));
            if !same {
                obstacles.add(&what, "its links have the same rate, delay and loss");
            }
            if file.links.iter().any(|it| it.corruption.0 > 0) {
                obstacles.add(&what, "frames are lost, not damaged");
            }
            if bridge.cut_through.is_some() || bridge.forward != NetDelay::Fixed(Span::ZERO) {
                obstacles.add(&what, "it stores and forwards, and takes no time for it");
            }
            of(SegmentKind::Switch, first.rate, first.delay, first.loss)
        }
        ([], [], []) if file.stations.len() == 1 => {
            let rate = BitsPerSecond::new(100_000_000)?;
            of(SegmentKind::Hub, rate, Span::ZERO, LossShare(0))
        }
        _ => {
            let why = "between the stations is one of `segments` with all of them, or one of \
                       `bridges` with a link to each";
            obstacles.add("the network", why);
            None
        }
    }
}

fn station(file: &NetworkFile, number: usize, obstacles: &mut Obstacles) -> Option<KernelStation> {
    let station = &file.stations[number];
    let what = format!("station {}", station.name);
    let mut programs = file.programs.iter().filter(|it| it.station == station.name);
    let Some(program) = programs.next() else {
        obstacles.add(what, "it has no program: name one in `programs`");
        return None;
    };
    if programs.next().is_some() {
        obstacles.add(what, "a station has one program, which can start others");
        return None;
    }
    if station.mac.len() > 1 {
        obstacles.add(what, "it has one NIC, and so one `mac`");
        return None;
    }
    if number + 1 >= usize::from(u8::MAX) {
        obstacles.add(what, "there is no address for it");
        return None;
    }
    let clock = clock(file, station).map_err(|why| obstacles.add(&what, &why)).ok()?;
    let [.., high, low] = (number + 1).to_be_bytes();
    let queues = if station.device.is_any() { 1 } else { station.device.queues.get() };
    Some(KernelStation {
        name: station.name.clone(),
        mac: station.mac.first().copied().unwrap_or(MacAddress([2, 0, 0, 0, high, low])),
        address: (address(number), PREFIX_BITS),
        clock,
        queues: u16::try_from(queues).unwrap_or(1),
        memory_mib: MEMORY_MIB,
        run: ["sh", "-c", program.command.as_str()].map(str::to_owned).to_vec(),
    })
}

/// Its clock, and what becomes of it.
fn clock(file: &NetworkFile, station: &NetStation) -> Result<StationClock, String> {
    let changes = file.faults.iter().filter_map(|fault| match fault {
        NetFault::ClockDrift(it) if it.node == station.name => Some((it.at, it.drift)),
        _ => None,
    });
    let mut changes: BTreeMap<Span, Drift> = changes.collect();
    // As in the simulator, one at the start is how it goes from the start.
    let drift = changes.remove(&Span::ZERO).unwrap_or(station.clock.drift);
    let clock = StationClock::new(station.clock.offset.0, drift.0);
    let mut clock = clock.map_err(|error| error.to_string())?;
    for (at, drift) in changes {
        let at = SimTime::START.plus(at);
        clock = clock.drifting_from(at, drift.0).map_err(|error| error.to_string())?;
    }
    Ok(clock)
}

/// What programs find in their environment: the addresses of all stations.
fn environment(file: &NetworkFile) -> Vec<(String, String)> {
    let stations = file.stations.iter().enumerate();
    stations.map(|(i, it)| (address_variable(&it.name), address(i).to_string())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use timewire_tsn::file;

    const HUB: &str = "timewire: 1\nkind: network\nname: two\nduration: 2s\n\
        segments: [{ access: in-turn, rate: 10Mbit, loss: 0.5% }]\n\
        stations:\n- { name: a, clock: { offset: -5us, drift: 20.5ppm } }\n\
        - { name: b, mac: ['02:00:00:00:00:0b'], device: { queues: 2 } }\n\
        programs: [{ name: one, station: a, command: 'true' },\n\
        \x20 { name: two, station: b, command: 'sleep 1' }]\n\
        faults: [{ kind: clock-drift, node: a, at: 1s, drift: -3ppb }]\n";

    const SWITCH: &str = "timewire: 1\nkind: network\nname: two\nstations: [a, b]\n\
        bridges: [west]\nlinks: [[a, west], [west, b]]\n\
        programs: [{ name: one, station: a, command: 'true' },\n\
        \x20 { name: two, station: b, command: 'true' }]\n";

    const STEP: &str = "clock-step, node: a, at: 1s, by: 1us";

    fn of(text: &str) -> Result<SegmentLab, String> {
        let network = file::without_streams("x", text).unwrap_or_else(|errors| panic!("{errors}"));
        let told = |it: &Obstacle| format!("{}: {}", it.what, it.why);
        laboratory(&network).map_err(|all| all.iter().map(told).collect::<Vec<_>>().join("\n"))
    }

    #[test]
    fn t0_a_file_is_a_laboratory() {
        let hub = of(HUB).unwrap();
        assert_eq!((hub.segment.kind, hub.segment.seed), (SegmentKind::Hub, 1));
        assert_eq!(hub.segment.rate.get(), 10_000_000);
        assert_eq!(Some(hub.segment.loss), Loss::from_ppb(5_000_000));
        assert_eq!(hub.duration, Some(Span::from_secs(3)));
        let [a, b] = &hub.stations[..] else { panic!("{:?}", hub.stations) };
        assert_eq!(a.mac, MacAddress([2, 0, 0, 0, 0, 1]));
        assert_eq!((b.mac, b.queues), (MacAddress([2, 0, 0, 0, 0, 11]), 2));
        assert_eq!((a.queues, b.address), (1, (Ipv4Addr::new(10, 77, 0, 2), 24)));
        assert_eq!(b.run, ["sh", "-c", "sleep 1"]);
        let right = StationClock::new(Span::from_us(-5), 20_500).unwrap();
        let right = right.drifting_from(SimTime::START.plus(Span::from_secs(1)), -3).unwrap();
        let at = SimTime::START.plus(Span::from_secs(9));
        assert_eq!(a.clock.read(at), right.read(at));
        let name = StationName::new("b").unwrap();
        let address = (address_variable(&name), "10.77.0.2".to_owned());
        assert!(hub.environment.contains(&address), "{:?}", hub.environment);
        let at_start = of(&HUB.replace("at: 1s", "at: 0s")).unwrap().stations[0].clock.read(at);
        let right = StationClock::new(Span::from_us(-5), -3).unwrap();
        assert_eq!(at_start, right.read(at));
        let switch = of(SWITCH).unwrap();
        assert_eq!(switch.segment.kind, SegmentKind::Switch);
        assert_eq!(switch.segment.delay, Span::from_ns(500));
    }

    #[test]
    fn t0_what_the_laboratory_does_not_do_is_told() {
        for (text, right, wrong, said) in [
            (HUB, "access: in-turn", "access: token", "segment segment: frames wait"),
            (HUB, "loss: 0.5%", "corruption: 0.5%", "segment segment: frames are lost, not"),
            (HUB, "drift: 20.5ppm", "sync: { by: ptp }", "station a: clock: it has `offset`"),
            (HUB, "station: b, command", "station: a, command", "station b: it has no program"),
            (HUB, "clock-drift, node: a, at: 1s, drift: -3ppb", STEP, "faults[0]: of faults there"),
            (HUB, "duration", "ports: [{ of: [a], capacity: 5 }]\nduration", "ports: a program"),
            (SWITCH, "[west, b]", "[a, b]", "bridge west: it has a link to each station"),
            (SWITCH, "[west, b]", "{ between: [west, b], rate: 1Gbit }", "its links have the same"),
            (SWITCH, "[west]", "[{ name: west, forward: 1us }]", "it stores and forwards, and"),
            (
                SWITCH,
                "[west]",
                "[{ name: west, clock: { offset: 1us } }]",
                "bridge west: clock: the",
            ),
            (
                SWITCH,
                "bridges: [west]\nlinks: [[a, west], [west, b]]\n",
                "",
                "the network: between",
            ),
        ] {
            let told = of(&text.replacen(right, wrong, 1)).unwrap_err();
            assert!(told.contains(said), "{told}");
        }
    }
}
