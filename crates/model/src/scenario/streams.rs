// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The streams of a talker, as the command line names them: units and errors as in a file. What a
//! stream leaves out, other options give to all of them.

use std::fmt;
use std::net::{SocketAddr, SocketAddrV4};

use serde_json::{Value as Json, json};
use timewire_base::Span;
use timewire_base::wire::MacAddress;

use super::ScenarioErrors;
use super::item::{Item, Reader};
use super::record::{choice, record};
use super::tree::{self, Node};
use super::value::{ByteCount, Count};

record! {
    /// What a talker sends.
    struct TalkerStreams {
        /// The streams.
        streams: Vec<StreamEntry>,
    }
}

record! {
    /// A stream, or several that differ in their number and when they are due.
    pub struct StreamEntry {
        /// Its number, which its messages carry.
        id: Count<0, 32767>,
        /// Where it goes: `10.0.0.2:15001`, `[fd00::2]:15001`, the address of a NIC, or that with
        /// the address of a UDP port behind it, as `02:00:00:00:00:02/10.0.0.2:15001`.
        to: Option<Target>,
        /// From one message to the next.
        cycle: Option<Span>,
        /// How long after the start of each cycle it is due.
        offset: Option<Span>,
        /// Messages in each cycle.
        per_cycle: Option<Count<1, 100000>>,
        /// Between the messages of a cycle; zero sends them together.
        spacing: Option<Span>,
        /// Length of a message: the payload of UDP, or what follows the EtherType of a frame.
        size: Option<ByteCount>,
        /// Messages after which it ends.
        count: Option<Count<1, 0xffff_ffff>>,
        /// Its socket priority.
        priority: Option<Count<0, 15>>,
        /// VLAN tag of a frame: identifier and priority code point, as `10:6`.
        vlan: Option<VlanMark>,
        /// Differentiated services code point of UDP.
        dscp: Option<Count<0, 63>>,
        /// The time that a message is due is its launch time, and it is handed over so much
        /// earlier.
        launch: Option<Span>,
        /// How late a message may be handed over; without it, one cycle.
        tolerance: Option<Span>,
        /// What becomes of a message that is later than that.
        late: Option<Late>,
        /// So many such streams, with the numbers from `id` on.
        copies: Count<1, 32768> = "1",
        /// Each copy is due so much later in its cycle than the one before.
        step: Span = "0ns",
    }
}

choice! {
    /// What becomes of a message that is too late.
    pub enum Late {
        /// It is left out, and counted.
        Skip = "skip",
        /// It is sent, and counted.
        Send = "send",
    }
}

/// The highest number of a stream.
pub const MAX_STREAM: u64 = 32_767;

/// Where a stream goes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// A UDP port.
    Udp(SocketAddr),
    /// A UDP port of a host by its name, which whoever sends looks up.
    Name(String, u16),
    /// A NIC, or a group of NICs.
    Nic(MacAddress),
    /// A UDP port behind a NIC, for a talker that makes the whole frame.
    NicUdp(MacAddress, SocketAddrV4),
}

impl Target {
    /// Reads `10.0.0.2:15001`, `[fd00::2]:15001`, `host:15001`, `02:00:00:00:00:02` or
    /// `02:00:00:00:00:02/10.0.0.2:15001`.
    ///
    /// **Errors**: a sentence that says what is wrong.
    pub fn parse(text: &str) -> Result<Target, String> {
        let refused = || {
            format!(
                "`{text}` is no destination: 10.0.0.2:15001, [fd00::2]:15001 or NAME:15001 for \
                 UDP, 02:00:00:00:00:02 for frames"
            )
        };
        let no_port = || format!("`{text}` goes to port 0, which nobody has");
        if let Some((nic, port)) = text.split_once('/') {
            let nic = nic.parse().map_err(|_| refused())?;
            let port: SocketAddrV4 = port.parse().map_err(|_| refused())?;
            let target = Target::NicUdp(nic, port);
            return if port.port() == 0 { Err(no_port()) } else { Ok(target) };
        }
        if let Ok(nic) = text.parse() {
            return Ok(Target::Nic(nic));
        }
        match text.parse::<SocketAddr>() {
            Ok(port) if port.port() == 0 => Err(no_port()),
            Ok(port) => Ok(Target::Udp(port)),
            Err(_) => match host_and_port(text) {
                Some((_, 0)) => Err(no_port()),
                Some((host, port)) => Ok(Target::Name(host.to_owned(), port)),
                None => Err(refused()),
            },
        }
    }
}

/// The parts of `NAME:PORT`, the name being one that a host may have; `None` for anything else,
/// also for an address.
///
/// **Source**: RFC 1123, 2.1.
pub fn host_and_port(text: &str) -> Option<(&str, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let is_label = |label: &str| {
        let inside = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        (1..=63).contains(&label.len()) && label.chars().all(inside) && !label.starts_with('-')
    };
    let labels: Vec<&str> = host.strip_suffix('.').unwrap_or(host).split('.').collect();
    let is_number = labels.last()?.chars().all(|c| c.is_ascii_digit());
    let is_name = host.len() <= 253 && labels.iter().all(|label| is_label(label)) && !is_number;
    let port = Some(port).filter(|port| port.chars().all(|c| c.is_ascii_digit()))?;
    is_name.then_some((host, port.parse().ok()?))
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Udp(port) => port.fmt(f),
            Target::Name(host, port) => write!(f, "{host}:{port}"),
            Target::Nic(nic) => nic.fmt(f),
            Target::NicUdp(nic, port) => write!(f, "{nic}/{port}"),
        }
    }
}

impl Item for Target {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        let hint = "put it in quotes when it has colons only";
        reader.checked(node, "a destination such as 10.0.0.2:15001", hint, Target::parse)
    }
    fn emit(&self) -> Option<Json> {
        Some(json!(self.to_string()))
    }
    fn schema() -> Json {
        json!({"type": "string"})
    }
}

/// Identifier and priority code point of a VLAN tag. Prints as `10:6`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct VlanMark {
    vid: u16,
    pcp: u8,
}

impl VlanMark {
    /// The identifier, 0 (priority only) to 4094.
    pub const fn vid(self) -> u16 {
        self.vid
    }

    /// The priority code point, 0 to 7.
    pub const fn pcp(self) -> u8 {
        self.pcp
    }

    /// Reads `10:6`.
    ///
    /// **Errors**: a sentence that says what is wrong.
    pub fn parse(text: &str) -> Result<VlanMark, String> {
        let refused =
            || format!("`{text}` is no VLAN tag: VID:PCP with 0 to 4094 and 0 to 7, such as 10:6");
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let (vid, pcp) = text.split_once(':').ok_or_else(refused)?;
        if !digits(vid) || !digits(pcp) {
            return Err(refused());
        }
        let vid = vid.parse().ok().filter(|vid| *vid <= 4_094).ok_or_else(refused)?;
        let pcp = pcp.parse().ok().filter(|pcp| *pcp <= 7).ok_or_else(refused)?;
        Ok(VlanMark { vid, pcp })
    }
}

impl fmt::Display for VlanMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.vid, self.pcp)
    }
}

impl Item for VlanMark {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        reader.checked(node, "a VLAN tag such as '10:6'", "", VlanMark::parse)
    }
    fn emit(&self) -> Option<Json> {
        Some(json!(self.to_string()))
    }
    fn schema() -> Json {
        json!({"type": "string", "pattern": "^[0-9]{1,4}:[0-7]$"})
    }
}

impl StreamEntry {
    /// As [`StreamEntry::read_all`] takes it.
    pub fn to_json(&self) -> Json {
        self.emit().unwrap_or_default()
    }

    /// Reads and checks streams that were given one by one; `what` names them in messages.
    ///
    /// **Errors**: everything that is wrong, each with its place.
    pub fn read_all(what: &str, streams: &[Json]) -> Result<Vec<StreamEntry>, ScenarioErrors> {
        let text = json!({"streams": streams}).to_string();
        let failed = |problems| ScenarioErrors::new(what, &text, problems);
        let root = tree::parse(&text).map_err(failed)?;
        let mut reader = Reader::new(root.mark);
        let read = TalkerStreams::read(&root, &mut reader);
        if let Some(read) = &read {
            check(read, &mut reader);
        }
        match read {
            Some(read) if reader.problems.is_empty() => Ok(read.streams),
            _ => Err(failed(reader.problems)),
        }
    }
}

fn check(file: &TalkerStreams, reader: &mut Reader) {
    let mut taken: Vec<(u64, u64)> = Vec::new();
    if file.streams.is_empty() {
        reader.fail_at("streams", "there is no stream".to_owned(), "write at least one");
    }
    for (index, stream) in file.streams.iter().enumerate() {
        let place = format!("streams[{index}]");
        let (first, copies) = (stream.id.get(), stream.copies.get());
        let last = first + (copies - 1);
        if last > MAX_STREAM {
            let message = format!("the last of {copies} copies has number {last}");
            let hint = "numbers go to 32767";
            reader.fail_at(&format!("{place}.copies"), message, hint);
        }
        if let Some((from, to)) = taken.iter().find(|(from, to)| first <= *to && *from <= last) {
            let whose = if from == to { format!("{from}") } else { format!("{from} to {to}") };
            let message = format!("another stream has number {whose} already");
            reader.fail_at(&format!("{place}.id"), message, "give each its own number");
        }
        taken.push((first, last));
        if stream.cycle == Some(Span::ZERO) {
            let hint = "write a time above zero, such as 1ms";
            reader.fail_at(&format!("{place}.cycle"), "a cycle takes time".to_owned(), hint);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(streams: Json) -> String {
        let streams = streams.as_array().unwrap();
        StreamEntry::read_all("s", streams).unwrap_err().to_string()
    }

    #[test]
    fn t0_destinations_are_read_and_written() {
        let good = [
            "10.0.0.2:15001",
            "[fd00::2]:15001",
            "02:00:00:00:00:02",
            "02:00:00:00:00:02/10.0.0.2:15001",
        ];
        for text in good {
            assert_eq!(Target::parse(text).unwrap().to_string(), text);
        }
        let bad = [
            "",
            "10.0.0.2",
            "10.0.0.2:0",
            "fd00::2",
            "02:00:00:00:00",
            "02:00:00:00:00:02/",
            "a/b",
            "02:00:00:00:00:02/10.0.0.2:0",
            "02:00:00:00:00:02/[fd00::2]:5",
            "10.0.0.2:99999",
        ];
        for text in bad {
            assert!(Target::parse(text).is_err(), "{text}");
        }
        assert_eq!(VlanMark::parse("4094:7").unwrap().to_string(), "4094:7");
        for text in ["", "1", "4095:0", "1:8", "1:", ":1", "+1:1", "1:1:1"] {
            assert!(VlanMark::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn t0_streams_are_read_and_written_again() {
        let given = json!([
            {"id": 1, "to": "10.0.0.2:15001", "cycle": "1ms", "offset": "250us", "vlan": "10:6"},
            {"id": 100, "copies": 1_000, "step": "1us", "late": "send", "launch": "300us",
             "count": 5, "tolerance": "50us"},
        ]);
        let streams = StreamEntry::read_all("s", given.as_array().unwrap()).unwrap();
        assert_eq!(streams.len(), 2);
        let many = &streams[1];
        assert_eq!((many.copies.get(), many.step), (1_000, Span::from_us(1)));
        assert_eq!(many.to, None);
        assert_eq!((many.late, many.launch), (Some(Late::Send), Some(Span::from_us(300))));
        let written: Vec<Json> = streams.iter().map(StreamEntry::to_json).collect();
        assert_eq!(StreamEntry::read_all("again", &written).unwrap(), streams);
    }

    #[test]
    fn t0_what_is_wrong_with_streams_is_said_with_its_key() {
        let text = errors(json!([{"id": 5, "copies": 3}, {"id": 7}]));
        assert!(text.contains("streams[1].id"), "{text}");
        assert!(text.contains("another stream has number 5 to 7 already"), "{text}");
        let text = errors(json!([{"id": 32_767, "copies": 2, "cycle": "0us"}]));
        assert!(text.contains("32768") && text.contains("a cycle takes time"), "{text}");
        let text = errors(json!([{"id": 1, "cycel": "1ms"}]));
        assert!(text.contains("did you mean `cycle`"), "{text}");
        assert!(errors(json!([])).contains("there is no stream"));
    }
}
