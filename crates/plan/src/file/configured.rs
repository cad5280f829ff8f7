// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What stations and bridges of a file are configured with, read back and held against its streams:
//! for a node `NAME`, `NAME.tc.json` as `tc -j qdisc show` prints it, or `NAME.yang.json` or
//! `NAME.yang.xml`, instance data of gates; where it has told neither, `NAME.host.yaml`, what it is
//! to be configured with; and of a talker `NAME.launch.csv`, as a rendered plan has it.
//!
//! What is there and is not interpreted is told, and nothing is passed for it.
//!
//! Interfaces are called as rendered plans call them; one of another name is taken where a node has
//! one link and the file one interface with gates. A class of the file is a socket priority of
//! Linux and a priority of IEEE 802.1Q.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;
use timewire_base::{SocketPriority, Span, StationName};
use timewire_model::scenario::host::HostSettings;
use timewire_model::scenario::network::{NetDevice, NetworkFile};
use timewire_model::unread::Unread;
use timewire_tsn::desired::QdiscTree;
use timewire_tsn::file::ParseFile;
use timewire_tsn::qdisc::{Qdisc, QdiscPosition, ShownQdisc, Taprio};

use super::{FileProblem, node_id, qdiscs};
use crate::check::{CheckError, Configuration, Configured, PortStates, check_configured};
use crate::exchange::{InterfaceGates, LaunchRow, read_gates, read_launches};
use crate::model::{LinkId, NodeId, Route};

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// About frames and gates.
    pub configured: Configured,
    /// Other contradictions, in words.
    pub notes: Vec<String>,
    /// What was there and not interpreted, and may contradict the streams.
    pub unread: Vec<FileUnread>,
    /// Why something cannot be judged, in words.
    pub open: Vec<String>,
    /// What was taken for something that is not there, in words.
    pub taken: Vec<String>,
    /// Files that were read.
    pub files: Vec<String>,
}

/// Something of a file that was not interpreted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct FileUnread {
    /// The file's name.
    pub file: String,
    /// What it is, and how often.
    #[serde(flatten)]
    pub unread: Unread,
}

impl fmt::Display for FileUnread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Unread { path, count } = &self.unread;
        write!(f, "{}: {path}", self.file)?;
        if *count > 1 { write!(f, " ({count} times)") } else { Ok(()) }
    }
}

/// Why nothing was held against the streams.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HoldError {
    /// A file is none of its kind.
    #[error("{file}: {why}")]
    File {
        /// Which.
        file: String,
        /// What is wrong, and what would be right.
        why: String,
    },
    /// What is configured cannot be gone through.
    #[error(transparent)]
    Check(#[from] CheckError),
}

const TC: &str = ".tc.json";
const YANG: &str = ".yang.json";
const XML: &str = ".yang.xml";
const HOST: &str = ".host.yaml";
const LAUNCH: &str = ".launch.csv";

/// Whether a file of this name is read.
pub fn is_configuration(name: &str) -> bool {
    ENDS.into_iter().any(|end| name.ends_with(end))
}

/// Whether a file of this name says nothing that is not in another: what a rendered plan has for
/// people and for the simulator.
pub fn is_rendered_beside(name: &str) -> bool {
    name == "planned.network.json" || name.ends_with(".tc")
}

const ENDS: [&str; 5] = [TC, YANG, XML, HOST, LAUNCH];

/// Holds configurations against the streams of a file, as long as `go_on` says so. `files` are
/// names and contents.
///
/// **Errors**: a file that is none of its kind, or of no node; cycles that are too long.
pub fn hold(
    file: &NetworkFile,
    given: &FileProblem,
    files: &[(String, Vec<u8>)],
    go_on: &mut dyn FnMut() -> bool,
) -> Result<Held, HoldError> {
    let stations = file.stations.iter().map(|it| (&it.name, &it.device));
    let nodes: Vec<_> =
        stations.chain(file.bridges.iter().map(|it| (&it.name, &it.device))).collect();
    let around = |place: &Option<usize>| match place.map(|place| &file.streams[place]) {
        Some(stream) if stream.is_tagged() => ETHERNET + TAG,
        _ => ETHERNET,
    };
    let mut reading = Reading {
        given,
        around: given.streams.iter().map(around).collect(),
        made: Configuration::default(),
        notes: Vec::new(),
        unread: Vec::new(),
        open: Vec::new(),
        taken: Vec::new(),
    };
    let mut delays: BTreeMap<LinkId, Span> = BTreeMap::new();
    let mut read = Vec::new();
    let rows: Vec<_> = files.iter().filter(|(name, _)| is_configuration(name)).collect();
    let told = |node: &str| [TC, YANG, XML].iter().any(|end| read_has(&rows, node, end));
    for end in ENDS {
        for (name, bytes) in rows.iter().filter(|(name, _)| name.ends_with(end)) {
            let failed = |why: String| HoldError::File { file: name.clone(), why };
            let node = name.strip_suffix(end).unwrap_or(name);
            if end == HOST && told(node) {
                continue;
            }
            let known = nodes.iter().find(|(own, _)| own.as_str() == node);
            let (node, device) = known.copied().ok_or_else(|| {
                failed(format!("there is no station or bridge `{node}` in the network"))
            })?;
            let node = Node { name: node, device, id: node_id(file, node) };
            match end {
                TC => reading.tc(&node, name, bytes, &mut delays).map_err(failed)?,
                YANG | XML => reading.yang(&node, name, bytes).map_err(failed)?,
                HOST => reading.host(&node, name, bytes, &mut delays).map_err(failed)?,
                _ => reading.launches(&node, name, bytes, &delays).map_err(failed)?,
            }
            read.push(name.clone());
        }
    }
    let others = file.streams.iter().filter(|stream| !stream.scheduled);
    let others = others.fold(0_u8, |mask, it| mask | 1 << it.class.get().min(7));
    reading.made.ports.sort_by_key(|port| port.link);
    let configured = check_configured(&given.problem, &reading.made, others, go_on)?;
    let Reading { notes, mut unread, open, taken, .. } = reading;
    unread.sort();
    Ok(Held { configured, notes, unread, open, taken, files: read })
}

fn read_has(rows: &[&(String, Vec<u8>)], node: &str, end: &str) -> bool {
    rows.iter().any(|(name, _)| name.strip_suffix(end) == Some(node))
}

struct Node<'a> {
    name: &'a StationName,
    device: &'a NetDevice,
    id: NodeId,
}

struct Reading<'a> {
    given: &'a FileProblem,
    /// What each stream has around the payload of its frames. **Units**: bytes.
    around: Vec<u32>,
    made: Configuration,
    notes: Vec<String>,
    unread: Vec<FileUnread>,
    open: Vec<String>,
    taken: Vec<String>,
}

impl Reading<'_> {
    /// The links that a node sends on, in the order of its interfaces.
    fn links(&self, node: &Node) -> Vec<LinkId> {
        let links = self.given.problem.network().links().iter().enumerate();
        let own = links.filter(|(_, link)| link.from == node.id);
        own.map(|(index, _)| LinkId::from_index(index)).collect()
    }

    /// The link of an interface of this name, of so many.
    fn link(&self, node: &Node, name: &str, count: usize) -> Result<LinkId, String> {
        let links = self.links(node);
        let number = name.strip_prefix("eth").and_then(|number| number.parse::<usize>().ok());
        let link = number.and_then(|number| links.get(number));
        match (link, links.as_slice()) {
            (Some(link), _) => Ok(*link),
            (None, [only]) if count == 1 => Ok(*only),
            _ => Err(format!(
                "{name} is no interface of {}: they are eth0 to eth{}, in the order of its links \
                 in the file",
                node.name,
                links.len().saturating_sub(1)
            )),
        }
    }

    fn add(&mut self, node: &Node, port: PortStates) -> Result<(), String> {
        if self.made.ports.iter().any(|other| other.link == port.link) {
            return Err(format!("the gates of one port of {} are told twice", node.name));
        }
        self.made.ports.push(port);
        Ok(())
    }

    fn not_interpreted(&mut self, file: &str, path: impl Into<String>) {
        self.add_unread(file, Unread::at(path));
    }

    fn add_unread(&mut self, file: &str, unread: Unread) {
        let same = |it: &&mut FileUnread| it.file == file && it.unread.path == unread.path;
        match self.unread.iter_mut().find(same) {
            Some(before) => before.unread.count += unread.count,
            None => self.unread.push(FileUnread { file: file.to_owned(), unread }),
        }
    }

    /// Gates of `taprio`; and by link how long before its launch time `etf` sends a frame.
    fn tc(
        &mut self,
        node: &Node,
        name: &str,
        bytes: &[u8],
        delays: &mut BTreeMap<LinkId, Span>,
    ) -> Result<(), String> {
        let remedy = "what `tc -j qdisc show` printed";
        let text = std::str::from_utf8(bytes).map_err(|_| format!("it is no text; {remedy}"))?;
        let shown = ShownQdisc::parse(text).map_err(|error| format!("{error}; {remedy}"))?;
        let device = |one: &ShownQdisc| one.device.as_ref().map(ToString::to_string);
        let judged =
            |one: &&ShownQdisc| matches!(one.configured(), Some(Qdisc::Taprio(_) | Qdisc::Etf(_)));
        let devices: BTreeSet<_> = shown.iter().filter(judged).map(device).collect();
        for one in &shown {
            let interface = device(one).unwrap_or_default();
            let at = format!("{interface} {}", one.kind);
            let options = one.configured();
            if options.is_none() && !qdiscs::SENDS_AT_ONCE.contains(&one.kind.as_str()) {
                self.not_interpreted(name, at);
                continue;
            }
            // Those of a kind that sends at once only say how much it holds.
            let mut unread = one.unread.clone();
            unread.retain(|it| options.is_some() || !it.path.starts_with("/options"));
            for it in unread {
                let path = format!("{at}: {}", it.path.trim_start_matches('/'));
                self.add_unread(name, Unread { path, ..it });
            }
            if let (Some(admin), Some(Qdisc::Taprio(oper))) = (&one.admin, &one.oper)
                && admin != oper
            {
                self.not_interpreted(name, format!("{at}: schedule, beside the one in `admin`"));
            }
            let Some(qdisc) = options else { continue };
            let Some(place) = one.place else {
                self.not_interpreted(name, format!("{at} without a parent"));
                continue;
            };
            let of = (interface.as_str(), devices.len());
            self.qdisc(node, name, of, (place, &qdisc), delays)?;
            if let Qdisc::Taprio(taprio) = &qdisc {
                self.max_sdu(node, of, &by_queue(&one.max_sdu_in_force), taprio)?;
            }
        }
        Ok(())
    }

    /// The same of what a host is to be configured with.
    fn host(
        &mut self,
        node: &Node,
        name: &str,
        bytes: &[u8],
        delays: &mut BTreeMap<LinkId, Span>,
    ) -> Result<(), String> {
        let text = std::str::from_utf8(bytes).map_err(|_| "it is no text".to_owned());
        let host = HostSettings::parse(name, text?).map_err(|errors| errors.to_string())?;
        for key in qdiscs::not_judged(&host) {
            self.not_interpreted(name, key);
        }
        let specs = host.host.interfaces.iter().filter_map(|interface| {
            let transmit = interface.transmit.as_ref()?;
            Some((&interface.name, QdiscTree::of_desired(&interface.name, transmit)))
        });
        let specs: Vec<_> = specs.collect();
        for (interface, tree) in &specs {
            let tree = tree.as_ref().map_err(|errors| {
                let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
                errors.join("; ")
            })?;
            let of = (interface.as_str(), specs.len());
            for one in tree.nodes() {
                self.qdisc(node, name, of, (one.place(), one.qdisc()), delays)?;
                if let Qdisc::Taprio(taprio) = one.qdisc() {
                    self.max_sdu(node, of, &by_queue(&taprio.options().max_sdu), taprio)?;
                }
            }
        }
        Ok(())
    }

    /// What one queueing discipline of an interface, of so many, says.
    fn qdisc(
        &mut self,
        node: &Node,
        name: &str,
        (interface, count): (&str, usize),
        (place, qdisc): (QdiscPosition, &Qdisc),
        delays: &mut BTreeMap<LinkId, Span>,
    ) -> Result<(), String> {
        for what in qdiscs::settings_not_judged(place, qdisc) {
            let kind = qdisc.kind().as_str();
            self.not_interpreted(name, format!("{interface} {kind}: {what}"));
        }
        match qdisc {
            Qdisc::Taprio(taprio) if place == QdiscPosition::Root => {
                let link = self.link(node, interface, count)?;
                self.add(node, states(taprio, link, node)?)
            }
            Qdisc::Etf(etf) => {
                let link = self.link(node, interface, count)?;
                let early = if etf.flags().offload { Span::ZERO } else { etf.delta() };
                if delays.insert(link, early).is_some_and(|before| before != early) {
                    self.not_interpreted(name, format!("{interface} etf: delta, another each"));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Streams whose frames a class does not let through for their length.
    fn too_long(&mut self, node: &Node, link: LinkId, queues: &[u8; 8], most: &[u32; 8]) {
        for (stream, around) in self.given.problem.streams().iter().zip(&self.around) {
            let queue = usize::from(queues[usize::from(stream.priority.min(7))].min(7));
            let payload = stream.length_bytes.saturating_sub(*around);
            let leaves = |trees: &[Vec<LinkId>]| trees.iter().flatten().any(|own| *own == link);
            let is_here = matches!(&stream.route, Route::Given(trees) if leaves(trees));
            if is_here && most[queue] > 0 && payload > most[queue] {
                let link = &self.given.problem.network().link(link).name;
                self.notes.push(format!(
                    "{}: a frame of {} has a payload of {payload} B, and class {queue} sends none \
                     above {} B; link {link}",
                    node.name, stream.name, most[queue]
                ));
            }
        }
    }

    fn max_sdu(
        &mut self,
        node: &Node,
        (interface, count): (&str, usize),
        most: &[u32; 8],
        taprio: &Taprio,
    ) -> Result<(), String> {
        let link = self.link(node, interface, count)?;
        let queues = states(taprio, link, node)?.queues;
        self.too_long(node, link, &queues, most);
        Ok(())
    }

    fn yang(&mut self, node: &Node, name: &str, bytes: &[u8]) -> Result<(), String> {
        let reading = read_gates(name, bytes).map_err(|error| error.to_string())?;
        self.open.extend(reading.open.iter().map(|why| format!("{name}: {why}")));
        reading.unread.into_iter().for_each(|it| self.add_unread(name, it));
        let all = reading.interfaces;
        for gates in &all {
            let link = self.link(node, &gates.interface, all.len())?;
            self.supported(node, gates);
            let rate = self.given.problem.network().link(link).rate.get();
            if let Some(speed) = gates.speed.filter(|speed| *speed != rate) {
                let at = format!("{} {}", node.name, gates.interface);
                self.notes.push(format!("{at}: it sends {speed} bit/s; the link has {rate}"));
            }
            let last = u8::try_from(node.device.queues.get() - 1).unwrap_or(7);
            let mut queues = [0; 8];
            for (priority, queue) in (0_u8..).zip(&mut queues) {
                let class = gates.classes[usize::from(priority)];
                *queue = class.unwrap_or(priority.min(last));
            }
            self.too_long(node, link, &queues, &gates.max_sdu);
            if gates.classes.contains(&None) {
                self.taken.push(format!(
                    "{} {} does not tell the class of each priority: the others were taken for \
                     their own class",
                    node.name, gates.interface
                ));
            }
            let states = gates.entries.clone();
            let (base, cycle) = (gates.base, gates.cycle);
            self.add(node, PortStates { link, base, cycle, states, queues })?;
        }
        Ok(())
    }

    /// What the port itself says that it cannot have.
    fn supported(&mut self, node: &Node, gates: &InterfaceGates) {
        let count = gates.entries.len();
        let at = format!("{} {}", node.name, gates.interface);
        if let Some(most) =
            gates.entries_max.filter(|most| usize::try_from(*most).is_ok_and(|most| count > most))
        {
            self.notes.push(format!("{at}: {count} entries; supported-list-max is {most}"));
        }
        let longest = gates.entries.iter().map(|(_, lasts)| *lasts).max();
        if let (Some(longest), Some(most)) = (longest, gates.interval_max)
            && longest > most
        {
            self.notes
                .push(format!("{at}: an interval of {longest}; supported-interval-max is {most}"));
        }
        if let Some(most) = gates.cycle_max.filter(|most| gates.cycle > *most) {
            let cycle = gates.cycle;
            self.notes.push(format!("{at}: a cycle of {cycle}; supported-cycle-max is {most}"));
        }
    }

    /// When a talker's frames start.
    fn launches(
        &mut self,
        node: &Node,
        name: &str,
        bytes: &[u8],
        delays: &BTreeMap<LinkId, Span>,
    ) -> Result<(), String> {
        let rows = read_launches(name, bytes).map_err(|error| error.to_string())?;
        for row in &rows {
            let Some(id) = self.given.problem.find(&row.stream) else {
                let line = row.line;
                return Err(format!("line {line}: there is no planned stream `{}`", row.stream));
            };
            let link = self.link(node, &row.interface, 1)?;
            let stream = self.given.problem.stream(id);
            if stream.talker != node.id || row.frame >= stream.frames {
                let (line, frame) = (row.line, row.frame);
                let what = format!("{} sends no frame {frame} of {}", node.name, row.stream);
                return Err(format!("line {line}: {what}"));
            }
            let differs = [
                ("priority", u64::from(row.priority), u64::from(stream.priority)),
                (
                    "interval_ns",
                    row.interval.as_ns().unsigned_abs(),
                    stream.interval.as_ns().unsigned_abs(),
                ),
                ("bytes", u64::from(row.bytes), u64::from(stream.length_bytes)),
            ];
            for (what, found, wanted) in differs.into_iter().filter(|(_, a, b)| a != b) {
                let at = format!("{name}:{}: {}", row.line, row.stream);
                self.notes.push(format!("{at}: {what} is {found}, of the stream {wanted}"));
            }
            let start = self.start(node, name, row, delays.get(&link).copied());
            if self.made.starts.insert((id, link, row.frame), start).is_some() {
                return Err(format!("line {}: the frame was there before", row.line));
            }
        }
        Ok(())
    }

    /// When a frame goes: what the launch time makes of it, where it has one.
    fn start(&mut self, node: &Node, name: &str, row: &LaunchRow, delta: Option<Span>) -> Span {
        let at = format!("{name}:{}: {}", row.line, row.stream);
        let Some(asked) = node.device.launch_time else { return row.start };
        let asked = if node.device.offload { Span::ZERO } else { asked };
        let Some(launch) = row.launch else {
            self.notes
                .push(format!("{at}: it has no launch time, and {} sends by them", node.name));
            return row.start;
        };
        let start = launch - delta.unwrap_or(asked);
        if start != row.start {
            let planned = row.start;
            self.notes
                .push(format!("{at}: its launch time makes it start at {start}, not {planned}"));
        }
        start
    }
}

/// Addresses, type and check sequence. **Units**: bytes.
const ETHERNET: u32 = 18;
/// A VLAN tag, which is no part of the payload (IEEE Std 802.1Q-2022, 8.6.8.4). **Units**: bytes.
const TAG: u32 = 4;

/// Bounds of classes, by class.
fn by_queue(bounds: &[u32]) -> [u32; 8] {
    let mut all = [0; 8];
    all.iter_mut().zip(bounds).for_each(|(own, bound)| *own = *bound);
    all
}

/// The gates of a `taprio`.
fn states(taprio: &Taprio, link: LinkId, node: &Node) -> Result<PortStates, String> {
    let options = taprio.options();
    let Some(classes) = &options.classes else {
        return Err(format!("the taprio of {} shows no classes", node.name));
    };
    let mut queues = [0; 8];
    for (priority, queue) in (0_u64..).zip(&mut queues) {
        let class = SocketPriority::new(priority).map(|priority| classes.class_of(priority));
        *queue = class.map_or(0, |class| class.get().min(7));
    }
    let state = |entry: &timewire_tsn::qdisc::GateControlEntry| {
        (u8::try_from(entry.gate_states.bits() & 0xff).unwrap_or(u8::MAX), entry.interval)
    };
    Ok(PortStates {
        link,
        base: options.base_time,
        cycle: taprio.cycle(),
        states: options.entries.iter().map(state).collect(),
        queues,
    })
}
