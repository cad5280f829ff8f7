// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A plan as Linux takes it: host settings for `timewire apply`, their `tc` lines,
//! and launch times of each talker. Of bridges, instance data of YANG as well.
//!
//! Interfaces are `eth0`, `eth1`, ... in the order of a node's links in the file. A class of the
//! file is a socket priority.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use timewire_base::{IfName, Span, StationName};
use timewire_model::scenario::host::HostSettings;
use timewire_model::scenario::network::{NetDevice, NetworkFile};
use timewire_tsn::desired::QdiscTree;
use timewire_tsn::file::ParseFile;
use timewire_tsn::qdisc::InstallVerb;

use super::agree::check_rendered;
use super::planned::{queues, states};
use super::{FileProblem, SHORTEST, ends, yang};
use crate::model::{LinkId, NodeId, Plan, PortGates, Stream, bytes_time};

/// A text and the name of the file that it goes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendered {
    /// The file's name, without a directory.
    pub name: String,
    /// What is in it.
    pub text: String,
}

/// Why a plan is nothing that Linux takes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RenderError {
    /// The kernel refuses states in which no frame could go.
    #[error(
        "{node}, port to {to}: a state of the gates lasts {lasts}, and the kernel takes none below \
         {least} there; write `device: {{interval_min: {least}}}`, or `offload: true` when the \
         NIC opens the gates"
    )]
    Short {
        /// Whose port.
        node: String,
        /// Who is at its other end.
        to: String,
        /// How long the state lasts.
        lasts: Span,
        /// The shortest that would do.
        least: Span,
    },
    /// `taprio` drops a frame whose launch time and length lie in no single state, though its gate
    /// is open in both.
    #[error(
        "{node}: a frame of {stream} with a launch time of {launch} in a cycle of {cycle} would \
         reach from one state of the gates into another, and taprio drops such; write another \
         `device: {{launch_time}}`, such as a multiple of the cycle"
    )]
    Across {
        /// The talker.
        node: String,
        /// Whose frame.
        stream: String,
        /// The launch time, from the start of the cycle.
        launch: Span,
        /// The port's cycle.
        cycle: Span,
    },
    /// The ports of the device share what steps through their lists.
    #[error(
        "{node}: the ports to {one} and to {other} {what}, which the {device} cannot have; write \
         another `offset`, or a longer `interval_min` at one of their stations"
    )]
    Together {
        /// The bridge.
        node: String,
        /// What it is.
        device: &'static str,
        /// Who is at the other end of a port.
        one: String,
        /// And of the other.
        other: String,
        /// What they would do.
        what: String,
    },
    /// Two of the files say different things of one port, which is a mistake of this program.
    #[error(
        "the files of the plan disagree, which is a mistake of this program: {one} and {other}, \
         {port}: {what}"
    )]
    Disagree {
        /// A file.
        one: String,
        /// Another, or the plan.
        other: String,
        /// The interface and who is at its other end.
        port: String,
        /// What differs: the entry, and when it is in the cycle.
        what: String,
    },
    /// It was ended before all were made.
    #[error("ended on request")]
    Ended,
    /// The reader of host settings, or the rules of Linux, refuse it.
    #[error("{node}: {why}")]
    Refused {
        /// Whose host settings.
        node: String,
        /// What is said of it.
        why: String,
    },
}

impl RenderError {
    pub(super) fn one_queue(node: &StationName) -> RenderError {
        let why = "with one queue, everything else would go as planned".to_owned();
        RenderError::Refused { node: node.to_string(), why }
    }
}

/// The files of all nodes that send something planned.
///
/// **Errors**: gates that Linux does not take.
pub fn render(
    file: &NetworkFile,
    given: &FileProblem,
    plan: &Plan,
) -> Result<Vec<Rendered>, RenderError> {
    render_while(file, given, plan, &mut || true)
}

/// The same, as long as `go_on` says so, which is asked before each node.
///
/// **Errors**: as [`render`]; [`RenderError::Ended`].
pub fn render_while(
    file: &NetworkFile,
    given: &FileProblem,
    plan: &Plan,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<Vec<Rendered>, RenderError> {
    let mut files = Vec::new();
    for node in Node::all(file, given, plan) {
        if !go_on() {
            return Err(RenderError::Ended);
        }
        node.exclusive()?;
        node.settings(&mut files)?;
        node.launches(&mut files)?;
        node.instance(&mut files);
    }
    check_rendered(file, given, plan, &files, go_on)?;
    Ok(files)
}

pub(super) struct Node<'a> {
    file: &'a NetworkFile,
    given: &'a FileProblem,
    plan: &'a Plan,
    pub name: &'a StationName,
    pub device: &'a NetDevice,
}

impl<'a> Node<'a> {
    /// Of stations, then of bridges.
    pub fn all(
        file: &'a NetworkFile,
        given: &'a FileProblem,
        plan: &'a Plan,
    ) -> impl Iterator<Item = Node<'a>> {
        let stations = file.stations.iter().map(|it| (&it.name, &it.device));
        let bridges = file.bridges.iter().map(|it| (&it.name, &it.device));
        stations.chain(bridges).map(move |(name, device)| Node { file, given, plan, name, device })
    }
}

impl Node<'_> {
    /// The ports that have links: number, link, who is at the other end.
    pub fn ports(&self) -> impl Iterator<Item = (usize, LinkId, &StationName)> {
        let links = self.file.links.iter().enumerate();
        let own = links.filter_map(|(index, link)| {
            let end = link.between.iter().position(|name| name == self.name)?;
            Some((LinkId::from_index(2 * index + end), &link.between[1 - end]))
        });
        own.enumerate().map(|(number, (link, far))| (number, link, far))
    }

    /// The host settings and their `tc` lines.
    fn settings(&self, files: &mut Vec<Rendered>) -> Result<(), RenderError> {
        let name = self.name;
        let mut text = format!(
            "# Planned gates of {name}; apply with --interface eth0=NAME for its real interfaces.\n\
             timewire: 1\nkind: network\nname: {name}\n\
             stations:\n  - name: {name}\n    host:\n      interfaces:\n"
        );
        let mut any = false;
        for (number, link, far) in self.ports() {
            any |= self.port(&mut text, number, link, far)?;
        }
        if !any {
            return Ok(());
        }
        let refused = |why: String| RenderError::Refused { node: name.to_string(), why };
        let file_name = format!("{name}.host.yaml");
        let host =
            HostSettings::parse(&file_name, &text).map_err(|why| refused(why.to_string()))?;
        let mut lines = String::new();
        let mut is_for_tc = true;
        for interface in &host.host.interfaces {
            let Some(spec) = &interface.transmit else { continue };
            let device: &IfName = &interface.name;
            let tree = QdiscTree::of_desired(device, spec).map_err(|errors| {
                let each: Vec<String> = errors.iter().map(ToString::to_string).collect();
                refused(format!("{device}: {}", each.join("; ")))
            })?;
            let commands = tree.commands(InstallVerb::Replace);
            is_for_tc &= commands.iter().all(|command| command.check_tc_message().is_ok());
            for command in &commands {
                let _ = writeln!(lines, "{command}");
            }
            // A discipline that comes below stops the gates of an interface that is up
            // (linux v6.12 net/sched/sch_taprio.c:taprio_reset); a schedule starts them again.
            if let [first, _, ..] = commands.as_slice() {
                let _ = writeln!(lines, "{first}");
            }
        }
        files.push(Rendered { name: file_name, text });
        // What tc has no room for is put there by `apply` alone.
        if is_for_tc {
            files.push(Rendered { name: format!("{name}.tc"), text: lines });
        }
        Ok(())
    }

    /// One interface; false: nothing planned leaves there.
    fn port(
        &self,
        text: &mut String,
        number: usize,
        link: LinkId,
        far: &StationName,
    ) -> Result<bool, RenderError> {
        let planned = queues(self.plan, self.given, link);
        if planned.is_empty() {
            return Ok(false);
        }
        if planned.contains_key(&0) {
            return Err(RenderError::one_queue(self.name));
        }
        let _ = writeln!(text, "        # to {far}\n        - name: eth{number}");
        let _ = writeln!(text, "          transmit:");
        let _ = writeln!(text, "            handle: 100");
        let gates = self.plan.gates.iter().find(|gates| gates.link == link);
        if gates.is_some() && !self.device.offload {
            // Reception takes the VLAN tag out of a frame, so a bridge's port does not count it.
            let overhead = if self.is_bridge() { 28 } else { 24 };
            let _ = writeln!(text, "            overhead: {overhead}B");
        }
        let classes = self.classes(&planned);
        let _ = writeln!(text, "            classes:");
        for (class, (_, priorities)) in classes.iter().enumerate() {
            let first = self.device.profile().is_some_and(|profile| profile.first_queue_first);
            let queue = if first { classes.len() - 1 - class } else { class };
            let planned = planned.contains_key(&classes[class].0);
            self.class(text, (class, queue), priorities, planned);
        }
        let Some(gates) = gates else { return Ok(true) };
        let _ = writeln!(text, "            gates:");
        if self.device.offload {
            let _ = writeln!(text, "              mode: full_offload");
        }
        let (base, states) = self.turned(gates);
        let _ = writeln!(text, "              base_time: {base}\n              entries:");
        let least = bytes_time(self.given.problem.network().link(link).rate, SHORTEST);
        for (queue, lasts) in states {
            if lasts < least && !self.device.offload {
                return Err(self.short(far, lasts, least));
            }
            let open = |own: u8| match queue {
                // Launch times hold the frames of a talker back, so its gates need not.
                _ if self.launch_time().is_some() && planned.contains_key(&own) => true,
                Some(queue) => own == queue,
                None => !planned.contains_key(&own),
            };
            let numbers = classes.iter().enumerate().filter(|(_, (own, _))| open(*own));
            let numbers: Vec<String> = numbers.map(|(number, _)| number.to_string()).collect();
            let _ = writeln!(
                text,
                "                - {{ open: [{}], interval: {lasts} }}",
                numbers.join(", ")
            );
        }
        Ok(true)
    }

    /// Whether a gate mask is one of the queues of the device, whatever the classes are: drivers of
    /// switches write it into the list as it is. Those of NICs, and the kernel, go by the classes.
    ///
    /// **Source**: `linux v6.12.117 net/sched/sch_taprio.c:taprio_sched_to_offload`
    /// (`gate_mask_per_txq`, which no driver of a switch asks for),
    /// `drivers/net/dsa/sja1105/sja1105_tas.c:sja1105_init_scheduling` (`resmedia`),
    /// `drivers/net/dsa/ocelot/felix_vsc9959.c:vsc9959_tas_gcl_set`,
    /// `drivers/net/ethernet/microchip/lan966x/lan966x_taprio.c:lan966x_taprio_gcl_setup_entry`.
    pub fn has_a_class_for_each_queue(&self) -> bool {
        self.device.offload && self.is_bridge()
    }

    pub fn short(&self, far: &StationName, lasts: Span, least: Span) -> RenderError {
        let (node, to) = (self.name.to_string(), far.to_string());
        RenderError::Short { node, to, lasts, least }
    }

    pub fn is_bridge(&self) -> bool {
        self.file.bridges.iter().any(|bridge| bridge.name == *self.name)
    }

    /// A class for each queue of the port, by the same table as in YANG. One that no frame with a
    /// tag has is given a socket priority beyond those.
    fn every_class(&self, planned: &BTreeMap<u8, BTreeSet<u64>>) -> Vec<(u8, BTreeSet<u64>)> {
        let queues = self.device.queues.get().min(8);
        let classes = yang::classes_of(planned, queues);
        let one = |queue: u64| {
            let own = (0_u64..).zip(classes).filter(|(_, class)| u64::from(*class) == queue);
            let mut own: BTreeSet<u64> = own.map(|(priority, _)| priority).collect();
            if own.is_empty() {
                own.insert(8 + queue);
            }
            (u8::try_from(queue).unwrap_or(7), own)
        };
        (0..queues).map(one).collect()
    }

    /// The queues of a port from the lowest, each with its priorities; the lowest has all others.
    fn classes(&self, planned: &BTreeMap<u8, BTreeSet<u64>>) -> Vec<(u8, BTreeSet<u64>)> {
        if self.has_a_class_for_each_queue() {
            return self.every_class(planned);
        }
        let last = u8::try_from(self.device.queues.get() - 1).unwrap_or(7);
        let mut all = planned.clone();
        for stream in self.file.streams.iter().filter(|stream| !stream.scheduled) {
            let class = u8::try_from(stream.class.get()).unwrap_or(7);
            all.entry(class.min(last)).or_default().insert(class.into());
        }
        // Whatever is in no stream of the file has the lowest place.
        if planned.keys().next() == all.keys().next() {
            all.entry(0).or_default();
        }
        all.into_iter().collect()
    }

    /// Whether no two ports change their gates at the same instant, where they must not.
    pub fn exclusive(&self) -> Result<(), RenderError> {
        let Some(profile) = self.device.profile().filter(|it| it.exclusive_changes) else {
            return Ok(());
        };
        let mut before: Vec<(&StationName, i64, Vec<i64>)> = Vec::new();
        for (_, link, far) in self.ports() {
            let Some(gates) = self.plan.gates.iter().find(|gates| gates.link == link) else {
                continue;
            };
            let (base, states) = self.turned(gates);
            let cycle = gates.cycle.as_ns();
            let mut at = base.as_ns();
            let mut changes = Vec::new();
            for (_, lasts) in states {
                changes.push(at);
                at += lasts.as_ns();
            }
            for (other, other_cycle, others) in &before {
                let (least, most) = (cycle.min(*other_cycle), cycle.max(*other_cycle));
                let folded: BTreeSet<i64> = others.iter().map(|at| at.rem_euclid(least)).collect();
                let same = changes.iter().find(|at| folded.contains(&at.rem_euclid(least)));
                let what = match same {
                    _ if most % least != 0 => {
                        "have cycles of which none is a multiple of the other".to_owned()
                    }
                    Some(at) => {
                        let at = Span::from_ns(at.rem_euclid(least));
                        format!("both change their gates at {at} of a cycle")
                    }
                    None => continue,
                };
                let (one, other) = (other.to_string(), far.to_string());
                let (node, device) = (self.name.to_string(), profile.title);
                return Err(RenderError::Together { node, device, one, other, what });
            }
            before.push((far, cycle, changes));
        }
        Ok(())
    }

    /// When the list begins in the cycle, and its states. Where a queue opens only so often, no
    /// state goes over the turn of the list, since drivers count both halves; and where the ports
    /// must not change at once, not all lists begin with the cycle.
    /// A state that is longer than an entry can be has several.
    pub fn turned(&self, gates: &PortGates) -> (Span, Vec<(Option<u8>, Span)>) {
        let (base, states) = self.whole_states(gates);
        let network = self.given.problem.network();
        let limits = &network.node(network.link(gates.link).from).limits;
        let Some(most) = limits.interval_max else { return (base, states) };
        let mut pieces = Vec::with_capacity(states.len());
        for (queue, mut rest) in states {
            while rest > most {
                // What is left is an entry of its own, and not too short for one.
                let piece = most.min((rest - limits.interval_min).max(Span::from_ns(1)));
                pieces.push((queue, piece));
                rest = rest - piece;
            }
            pieces.push((queue, rest));
        }
        (base, pieces)
    }

    fn whole_states(&self, gates: &PortGates) -> (Span, Vec<(Option<u8>, Span)>) {
        let mut states = states(gates);
        let exclusive = self.device.profile().is_some_and(|profile| profile.exclusive_changes);
        if exclusive && states.len() == 1 {
            // Its one entry begins at an instant of its own, too.
            return (self.given.problem.network().grid(gates.link).1, states);
        }
        if !(self.device.openings.is_some() || exclusive) || states.len() < 2 {
            return (Span::ZERO, states);
        }
        let (first, last) = (states[0], states[states.len() - 1]);
        if first.0 == last.0 {
            states.remove(0);
            if let Some(last) = states.last_mut() {
                last.1 += first.1;
            }
            return (first.1, states);
        }
        (Span::ZERO, states)
    }

    fn class(
        &self,
        text: &mut String,
        (number, queue): (usize, usize),
        priorities: &BTreeSet<u64>,
        planned: bool,
    ) {
        let listed: Vec<String> = priorities.iter().map(u64::to_string).collect();
        let mut keys = vec![format!("queues: 1@{queue}")];
        if number > 0 {
            keys.insert(0, format!("priorities: [{}]", listed.join(", ")));
        }
        if let Some(delta) = self.launch_time().filter(|_| planned) {
            let offload = self.device.offload;
            keys.push(format!("launch_time: {{ delta: {delta}, offload: {offload} }}"));
        }
        let _ = writeln!(text, "              - {{ {} }}", keys.join(", "));
    }

    /// The gates of a bridge as instance data of YANG.
    fn instance(&self, files: &mut Vec<Rendered>) {
        if !self.is_bridge() {
            return;
        }
        let mut interfaces = Vec::new();
        for (number, link, _) in self.ports() {
            let Some(gates) = self.plan.gates.iter().find(|gates| gates.link == link) else {
                continue;
            };
            let name = format!("eth{number}");
            let planned = queues(self.plan, self.given, link);
            let (base, states) = self.turned(gates);
            interfaces.push(yang::interface(&name, gates, (base, &states), self.device, &planned));
        }
        if !interfaces.is_empty() {
            let name = format!("{}.yang.json", self.name);
            files.push(Rendered { name, text: yang::document(&interfaces) });
        }
    }

    /// When each frame of each stream of this talker goes, in each interval, which begin at whole
    /// multiples of it on the TAI scale.
    ///
    /// **Errors**: a launch time that the gates do not take.
    fn launches(&self, files: &mut Vec<Rendered>) -> Result<(), RenderError> {
        let mut rows = String::new();
        for admission in &self.plan.admitted {
            let stream = self.given.problem.stream(admission.stream);
            for sent in &admission.transmissions {
                if ends(self.file, sent.link).0 != self.name || stream.talker != self.id(sent.link)
                {
                    continue;
                }
                let port = self.ports().find(|(_, link, _)| *link == sent.link);
                let number = port.map_or(0, |(number, _, _)| number);
                let launch = self.launch_of(sent.start);
                if let Some(launch) = launch {
                    self.fits(stream, sent.link, launch)?;
                }
                let _ = writeln!(
                    rows,
                    "{},{},eth{number},{},{},{},{},{}",
                    stream.name,
                    sent.frame,
                    stream.priority,
                    stream.interval.as_ns(),
                    sent.start.as_ns(),
                    launch.map_or(String::new(), |launch| launch.as_ns().to_string()),
                    stream.length_bytes,
                );
            }
        }
        if !rows.is_empty() {
            let head = "stream,frame,interface,priority,interval_ns,start_ns,launch_ns,bytes\n";
            let name = format!("{}.launch.csv", self.name);
            files.push(Rendered { name, text: format!("{head}{rows}") });
        }
        Ok(())
    }

    /// Talkers alone give their frames launch times; what a bridge forwards has none.
    fn launch_time(&self) -> Option<Span> {
        self.device.launch_time.filter(|_| !self.is_bridge())
    }

    /// The launch time of a frame; `None`: the device has none.
    pub fn launch_of(&self, start: Span) -> Option<Span> {
        // Without offload etf sends a frame its delta before the launch time.
        let delta = self.device.launch_time?;
        Some(if self.device.offload { start } else { start + delta })
    }

    /// Whether each frame with this launch time lies within one state of the gates.
    ///
    /// **Source**: `linux v6.12 net/sched/sch_taprio.c:is_valid_interval`.
    fn fits(&self, stream: &Stream, link: LinkId, launch: Span) -> Result<(), RenderError> {
        let Some(gates) = self.plan.gates.iter().find(|gates| gates.link == link) else {
            return Ok(());
        };
        self.fits_into(stream, launch, gates)
    }

    /// The same, of the gates of the port.
    pub fn fits_into(
        &self,
        stream: &Stream,
        launch: Span,
        gates: &PortGates,
    ) -> Result<(), RenderError> {
        let cycle = gates.cycle.as_ns();
        let busy = self.given.problem.network().occupancy(gates.link, stream.length_bytes);
        let mut ends = Vec::new();
        let mut until = Span::ZERO;
        for (_, lasts) in states(gates) {
            until += lasts;
            ends.push(until);
        }
        for message in 0..cycle / stream.interval.as_ns() {
            let at = launch.as_ns() + message * stream.interval.as_ns();
            let launch = Span::from_ns(at.rem_euclid(cycle));
            let end = ends.get(ends.partition_point(|end| *end <= launch));
            if end.is_some_and(|end| launch + busy > *end) {
                return Err(RenderError::Across {
                    node: self.name.to_string(),
                    stream: stream.name.clone(),
                    launch,
                    cycle: gates.cycle,
                });
            }
        }
        Ok(())
    }

    fn id(&self, link: LinkId) -> NodeId {
        self.given.problem.network().link(link).from
    }
}
