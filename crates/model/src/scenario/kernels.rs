// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The file of a segment with a kernel for each station: the same text, units and errors as a
//! scenario, other keys.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};
use timewire_base::wire::MacAddress;
use timewire_base::{BitsPerSecond, Span, StationName, parse_span};

use super::ScenarioErrors;
use super::item::{Item, Reader};
use super::record::{choice, record};
use super::tree::{self, Node};
use super::value::{Count, FormatVersion, Ipv4Prefix, Name, Text, decimal, decimal_text};

record! {
    /// A simulated segment, and stations on it that are kernels of their own.
    pub struct SegmentFile {
        /// Version of this file format.
        timewire: FormatVersion,
        /// Short name, used in directory names and results.
        name: Name,
        /// What is shown, for people.
        description: Text = "''",
        /// What is between the stations.
        segment: SimulatedSegment,
        /// When each station starts what it runs, by its own clock, counted from the start of the
        /// simulation; before that it boots.
        start: Span = "1s",
        /// What still runs by then, by its station's clock, is ended; without it, stations run
        /// until their commands end.
        duration: Option<Span>,
        /// The stations, in the order in which they go at the same instant.
        stations: Vec<KernelStation>,
    }
}

record! {
    /// What is between the stations.
    pub struct SimulatedSegment {
        /// Hub or switch.
        kind: MediumKind = "hub",
        /// Rate of every link.
        rate: BitsPerSecond = "100Mbit",
        /// From one end of a link to the other; of a hub, from any station to any other.
        delay: Span = "500ns",
        /// How often a receiver of a link loses a frame.
        loss: LossShare = "0%",
        /// Decides which frames are lost.
        seed: Count<0, 0xffff_ffff> = "1",
    }
}

choice! {
    /// What is in the middle.
    pub enum MediumKind {
        /// One medium for all: one frame at a time, and every frame reaches every station.
        Hub = "hub",
        /// A switch that stores and forwards; links are full duplex.
        Switch = "switch",
    }
}

record! {
    /// A station that is a kernel of its own.
    pub struct KernelStation {
        /// Its name.
        name: StationName,
        /// IPv4 address on the segment and length of the subnet's prefix.
        address: Ipv4Prefix,
        /// Address of its NIC; without it, 02:00:00:00:00:01 for the first station, and
        /// so on.
        mac: Option<MacAddress>,
        /// How its clock goes wrong.
        clock: ClockErrors = "{}",
        /// How many transmit and receive queues its NIC has.
        queues: Count<1, 16> = "1",
        /// Memory of the kernel, in MiB.
        memory_mib: Count<32, 4096> = "128",
        /// The program it runs, and its arguments.
        run: Vec<Text>,
    }
}

record! {
    /// How a clock goes wrong.
    pub struct ClockErrors {
        /// How far it is ahead at the start of the simulation; negative: behind.
        offset: Offset = "0ns",
        /// How much too fast it goes; negative: too slow.
        drift: Drift = "0ppm",
        /// Later changes of the drift, in their order.
        changes: Vec<DriftChange> = "[]",
    }
}

record! {
    /// A change of a clock's drift.
    pub struct DriftChange {
        /// When, counted from the start of the simulation.
        at: Span,
        /// How much too fast it goes from then on.
        drift: Drift,
    }
}

/// A time that may be negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offset(pub Span);

/// How much too fast a clock goes.
///
/// **Units**: parts per billion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drift(pub i32);

/// A share of frames.
///
/// **Units**: parts per billion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LossShare(pub u32);

impl SegmentFile {
    /// Reads and checks a file; `file_name` is for the messages.
    ///
    /// **Errors**: everything that is wrong with the text, each with its place.
    pub fn parse(file_name: &str, text: &str) -> Result<SegmentFile, ScenarioErrors> {
        let failed = |problems| ScenarioErrors::new(file_name, text, problems);
        let root = tree::parse(text).map_err(failed)?;
        let mut reader = Reader::new(root.mark);
        let file = SegmentFile::read(&root, &mut reader);
        if let Some(file) = &file {
            file.check(&mut reader);
        }
        match file {
            Some(file) if reader.problems.is_empty() => Ok(file),
            _ => Err(failed(reader.problems)),
        }
    }

    /// The address of a station's NIC, by the station's place in the list.
    pub fn mac(&self, station: usize) -> MacAddress {
        let numbered = || {
            let [.., high, low] = (station + 1).to_be_bytes();
            MacAddress([2, 0, 0, 0, high, low])
        };
        self.stations.get(station).and_then(|station| station.mac).unwrap_or_else(numbered)
    }

    fn check(&self, reader: &mut Reader) {
        if self.stations.is_empty() {
            reader.fail_at("stations", "there is no station".into(), "name at least one");
        }
        if self.duration.is_some_and(|duration| duration <= self.start) {
            let message = format!("everything ends before the start at {}", self.start);
            reader.fail_at("duration", message, "write a later time");
        }
        let (mut names, mut macs, mut addresses) =
            (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        for (i, station) in self.stations.iter().enumerate() {
            let key = |field: &str| format!("stations[{i}].{field}");
            let (name, mac, address) = (&station.name, self.mac(i), station.address);
            if names.insert(name, i).is_some() {
                let message = format!("there is a station {name} before");
                reader.fail_at(&key("name"), message, "give it another name");
            }
            if let Some(other) = macs.insert(mac, name) {
                let message = format!("{mac} is the address of {other}");
                reader.fail_at(&key("mac"), message, "give each NIC its own");
            }
            if !mac.is_of_one_station() {
                let message = format!("{mac} is no address of a single station");
                reader.fail_at(&key("mac"), message, "write one such as 02:00:00:00:00:01");
            }
            if let Some(other) = addresses.insert(address.address(), name) {
                let message = format!("{} is the address of {other}", address.address());
                reader.fail_at(&key("address"), message, "give each station its own");
            }
            if station.run.is_empty() {
                let hint = "write a program and its arguments, such as [sleep, '1']";
                reader.fail_at(&key("run"), "there is nothing to run".into(), hint);
            }
            let mut last = Span::ZERO;
            for (j, change) in station.clock.changes.iter().enumerate() {
                if change.at <= last {
                    let message = format!("{} does not come after {last}", change.at);
                    let key = key(&format!("clock.changes[{j}].at"));
                    reader.fail_at(&key, message, "write changes in their order");
                }
                last = change.at;
            }
        }
    }
}

impl Item for Offset {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        const LONGEST: Span = Span::from_secs(366 * 86_400);
        reader.checked(node, "a time such as 5us or -5us", "", |text| {
            let span = parse_span(text).map_err(|error| error.to_string())?;
            match span {
                span if span <= LONGEST && span >= -LONGEST => Ok(Offset(span)),
                _ => Err(format!("{span} is more than a year")),
            }
        })
    }
    fn emit(&self) -> Option<Json> {
        Some(json!(self.0.to_string()))
    }
    fn schema() -> Json {
        json!({"type": "string", "pattern": "^-?[0-9][0-9_]*(\\.[0-9]+)? *(ns|us|µs|ms|s)$"})
    }
}

impl Drift {
    /// The largest, either way: a tenth of a second per second.
    const MAX_PPB: u64 = 100_000_000;

    fn parse(text: &str) -> Result<Drift, String> {
        let refused = || format!("`{text}` is no drift of a clock, such as 20ppm or -150ppb");
        let (number, negative) = match text.strip_prefix('-') {
            Some(number) => (number, true),
            None => (text, false),
        };
        let (number, shift) = match (number.strip_suffix("ppm"), number.strip_suffix("ppb")) {
            (Some(number), _) => (number, 3),
            (_, Some(number)) => (number, 0),
            _ => return Err(refused()),
        };
        let is_number = number.starts_with(|c: char| c.is_ascii_digit())
            && number.chars().all(|c| c.is_ascii_digit() || c == '.');
        let ppb = decimal(number, shift).filter(|_| is_number).ok_or_else(refused)?;
        match i32::try_from(ppb) {
            Ok(ppb) if u64::from(ppb.unsigned_abs()) <= Self::MAX_PPB => {
                Ok(Drift(if negative { -ppb } else { ppb }))
            }
            _ => Err(format!("`{text}` is more than 100000ppm")),
        }
    }

    fn text(self) -> String {
        let sign = if self.0 < 0 { "-" } else { "" };
        format!("{sign}{}ppm", decimal_text(self.0.unsigned_abs().into(), 3))
    }
}

impl Item for Drift {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        reader.checked(node, "a drift such as 20ppm", "", Self::parse)
    }
    fn emit(&self) -> Option<Json> {
        Some(json!(self.text()))
    }
    fn schema() -> Json {
        json!({"type": "string", "pattern": "^-?[0-9]+(\\.[0-9]+)?(ppm|ppb)$"})
    }
}

impl LossShare {
    fn parse(text: &str) -> Result<LossShare, String> {
        let refused = || format!("`{text}` is no share of frames, such as 0.1%");
        let percent = text.strip_suffix('%').ok_or_else(refused)?;
        let is_number = percent.starts_with(|c: char| c.is_ascii_digit());
        let ppb = decimal(percent, 7).filter(|_| is_number).ok_or_else(refused)?;
        match u32::try_from(ppb) {
            Ok(ppb) if ppb <= 1_000_000_000 => Ok(LossShare(ppb)),
            _ => Err(format!("`{text}` is more than everything: a share is at most 100%")),
        }
    }
}

impl Item for LossShare {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        reader.checked(node, "a share such as 0.1%", "", Self::parse)
    }
    fn emit(&self) -> Option<Json> {
        Some(json!(format!("{}%", decimal_text(self.0.into(), 7))))
    }
    fn schema() -> Json {
        json!({"type": "string", "pattern": "^[0-9]+(\\.[0-9]+)?%$"})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "timewire: 1\nname: two\nsegment: {kind: switch, loss: 0.5%}\n\
        duration: 2s\nstations:\n\
        - {name: a, address: 10.0.0.1/24, run: [sleep, '1']}\n\
        - name: b\n  address: 10.0.0.2/24\n  mac: 02:00:00:00:00:0b\n  queues: 2\n\
        \x20 clock: {offset: -5us, drift: 20.5ppm, changes: [{at: 1s, drift: -3ppb}]}\n\
        \x20 run:\n  - sh\n  - -c\n  - |\n    one\n    two\n";

    #[test]
    fn t0_a_file_is_read_with_its_defaults() {
        let file = SegmentFile::parse("x", GOOD).unwrap();
        assert_eq!(file.segment.kind, MediumKind::Switch);
        assert_eq!(file.segment.rate, BitsPerSecond::new(100_000_000).unwrap());
        assert_eq!(file.segment.loss, LossShare(5_000_000));
        assert_eq!(file.mac(0), MacAddress([2, 0, 0, 0, 0, 1]));
        assert_eq!(file.mac(1), MacAddress([2, 0, 0, 0, 0, 11]));
        let clock = &file.stations[1].clock;
        assert_eq!((clock.offset.0, clock.drift), (Span::from_us(-5), Drift(20_500)));
        assert_eq!(clock.changes[0].drift, Drift(-3));
        assert_eq!(file.stations[1].run[2].as_str(), "one\ntwo\n");
        // What it writes it reads.
        let text = serde_json::to_string(&file.emit()).unwrap();
        assert_eq!(SegmentFile::parse("y", &text).unwrap(), file);
    }

    #[test]
    fn t0_what_cannot_be_is_told_with_its_place() {
        let cases = [
            ("name: b", "name: a", "stations[1].name: there is a station a before"),
            ("10.0.0.2/24", "10.0.0.1/24", "stations[1].address: 10.0.0.1 is the address of a"),
            ("00:0b", "00:01", "stations[1].mac: 02:00:00:00:00:01 is the address of a"),
            ("00:0b", "00", "is no MAC address"),
            ("mac: 02", "mac: 03", "is no address of a single station"),
            ("duration: 2s", "duration: 1s", "duration: everything ends before the start at 1s"),
            ("20.5ppm", "20.5", "`20.5` is no drift of a clock"),
            ("20.5ppm", "200000ppm", "is more than 100000ppm"),
            ("0.5%", "101%", "is more than everything"),
            ("-5us", "-5", "-5"),
            ("at: 1s", "at: 0s", "clock.changes[0].at: 0ns does not come after"),
            ("[sleep, '1']", "[]", "stations[0].run: there is nothing to run"),
            ("queues: 2", "queue: 2", "unknown key `queue`: did you mean `queues`?"),
        ];
        for (right, wrong, said) in cases {
            let text = GOOD.replacen(right, wrong, 1);
            assert_ne!(text, GOOD, "{right}");
            let errors = SegmentFile::parse("x", &text).unwrap_err().to_string();
            assert!(errors.contains(said), "{errors}");
        }
    }
}
