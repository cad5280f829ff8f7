// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The laboratory: stations in namespaces of their own on one segment.
//!
//! ```text
//! twlab-PID-N-alpha  phy0 ---- port0 \
//! twlab-PID-N-beta   phy0 ---- port1 -- hub0   twlab-PID-N.hub
//! twlab-PID-N-gamma  phy0 ---- port2 /
//! ```
//!
//! The hub forgets addresses at once, so it floods every frame to every other port, and each port
//! sends towards its station no faster than the link's rate, counted as on the wire. Nothing speaks
//! on the segment unasked: there is no IPv6, no spanning tree, no multicast snooping. Offloads are
//! off, so that each frame is what a link would carry, complete with its checksums.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::Deserialize;
use timewire_base::wire::MacAddress;
use timewire_base::{BitsPerSecond, IfName, Span, StationName};
use timewire_host::HostError;
use timewire_host::journal::{Journal, Leftovers};
use timewire_host::tool::{self, Tool, netns_path};

use crate::{LabError, Namespaces, ns};

/// What a laboratory is to be like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabSpec {
    /// The stations, 1 to 64, with different names and addresses.
    pub stations: Vec<StationSpec>,
    /// The rate of the segment.
    pub rate: BitsPerSecond,
    /// How long a frame takes through the segment, beside its own length.
    pub delay: Span,
    /// Transmit and receive queues of each station's interface, 1 to 64.
    pub queues: u32,
}

/// One station.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StationSpec {
    /// Its name.
    pub name: StationName,
    /// The Ethernet address of its interface: of one station, not of a group.
    pub mac: MacAddress,
}

/// A running laboratory. Dropping it takes it down.
#[derive(Debug)]
pub struct Lab {
    /// Common start of its namespaces' names.
    prefix: String,
    stations: Vec<StationName>,
    namespaces: Namespaces,
    pacing: Pacing,
}

/// What gives the segment its rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pacing {
    /// A frame arrives when its last bit has: as exactly as the kernel's timers are.
    Netem,
    /// The mean rate: a frame or two may follow each other without a gap. Where netem is missing.
    Tbf,
}

impl Lab {
    /// Builds a laboratory; first takes away what dead ones have left. `progress` is told each
    /// step.
    ///
    /// **Errors**: an impossible description, a missing tool, a refusal. Nothing is left then.
    pub fn create(spec: &LabSpec, progress: &mut dyn FnMut(&str)) -> Result<Lab, LabError> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        check(spec)?;
        for leftovers in clean_leftovers()? {
            progress(&leftovers.to_string());
        }
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let names: Vec<_> = spec.stations.iter().map(|station| station.name.as_str()).collect();
        let title = format!("laboratory of {}", names.join(", "));
        progress("making namespaces");
        let prefix = format!("twlab-{}-{count}", std::process::id());
        let mut all = vec![hub_of(&prefix)];
        all.extend(names.iter().map(|name| station_of(&prefix, name)));
        let namespaces = Namespaces::make(&title, &all, false)?;
        let stations = spec.stations.iter().map(|station| station.name.clone()).collect();
        let mut lab = Lab { prefix, stations, namespaces, pacing: Pacing::Netem };
        progress("connecting stations to the hub");
        lab.make_links(spec)?;
        progress("waiting for the links");
        lab.wait_for_links()?;
        Ok(lab)
    }

    /// Takes it down.
    ///
    /// **Errors**: something could not be undone; the journal names it and stays.
    pub fn destroy(mut self) -> Result<(), LabError> {
        self.namespaces.take_down()
    }

    /// The stations, in the order of the description.
    pub fn stations(&self) -> &[StationName] {
        &self.stations
    }

    /// The file that is the namespace of a station.
    ///
    /// **Errors**: no such station.
    pub fn station_netns_path(&self, name: &StationName) -> Result<PathBuf, LabError> {
        self.index(name).map(|_| netns_path(&self.station_netns(name)))
    }

    /// The file that is the namespace of the hub.
    pub fn hub_netns_path(&self) -> PathBuf {
        netns_path(&self.hub_netns())
    }

    /// The interface of every station, in its namespace.
    pub fn phy(&self) -> IfName {
        if_name("phy0")
    }

    /// The hub's interface towards a station, in the hub's namespace.
    ///
    /// **Errors**: no such station.
    pub fn hub_port(&self, name: &StationName) -> Result<IfName, LabError> {
        self.index(name).map(port)
    }

    /// What gives the segment its rate.
    pub fn pacing(&self) -> Pacing {
        self.pacing
    }

    /// Gives the interface of a station a queueing discipline at its root, and others below it.
    /// Each line is what `tc qdisc add dev INTERFACE` is given, such as `root handle 100: ...`.
    ///
    /// The interface is down meanwhile, so it has no routes after: give it addresses later. On one
    /// that is up, a discipline that is put below taprio ends taprio's timer, and its gates never
    /// begin to move (linux v6.12 `net/sched/sch_taprio.c:taprio_graft`, `taprio_reset`).
    ///
    /// **Errors**: no such station, or `tc` or the kernel refuses; then it has none of them.
    pub fn add_qdiscs(&self, station: &StationName, lines: &[String]) -> Result<(), LabError> {
        self.index(station)?;
        let (phy, netns) = (self.phy(), self.station_netns(station));
        let lines: Vec<_> =
            lines.iter().map(|line| format!("qdisc add dev {phy} {line}")).collect();
        tool::batch(Tool::Ip, Some(&netns), &[format!("link set {phy} down")])?;
        let added = tool::batch(Tool::Tc, Some(&netns), &lines);
        if added.is_err() {
            // The first of them may have been installed.
            let _ = self.remove_qdiscs(station);
        }
        tool::batch(Tool::Ip, Some(&netns), &[format!("link set {phy} up")])?;
        added?;
        self.wait_for_links()
    }

    /// Takes the queueing disciplines of a station's interface away.
    ///
    /// **Errors**: no such station, or it has none.
    pub fn remove_qdiscs(&self, station: &StationName) -> Result<(), LabError> {
        self.index(station)?;
        let line = format!("qdisc del dev {} root", self.phy());
        Ok(tool::batch(Tool::Tc, Some(&self.station_netns(station)), &[line])?)
    }

    /// The undo journal, for what else is to be undone when the owner of the laboratory ends.
    pub fn journal(&self) -> &Arc<Journal> {
        self.namespaces.journal()
    }

    /// Gives an interface of a station an address, as `10.77.0.1/24`.
    ///
    /// **Errors**: no such station or interface, no address, or it has it already.
    pub fn assign(
        &self,
        station: &StationName,
        interface: &IfName,
        address: &str,
    ) -> Result<(), LabError> {
        self.address("add", station, interface, address)
    }

    /// Takes an address away from an interface of a station.
    ///
    /// **Errors**: no such station or interface, or it has no such address.
    pub fn unassign(
        &self,
        station: &StationName,
        interface: &IfName,
        address: &str,
    ) -> Result<(), LabError> {
        self.address("del", station, interface, address)
    }

    fn address(
        &self,
        verb: &str,
        station: &StationName,
        interface: &IfName,
        address: &str,
    ) -> Result<(), LabError> {
        self.index(station)?;
        if address.is_empty() || address.contains(char::is_whitespace) {
            return Err(LabError::Spec { why: format!("`{address}` is no address") });
        }
        let line = format!("addr {verb} {address} dev {interface}");
        Ok(tool::batch(Tool::Ip, Some(&self.station_netns(station)), &[line])?)
    }

    fn index(&self, name: &StationName) -> Result<usize, LabError> {
        let found = self.stations.iter().position(|station| station == name);
        found.ok_or_else(|| LabError::NoStation { name: name.clone() })
    }

    fn station_netns(&self, name: &StationName) -> String {
        station_of(&self.prefix, name.as_str())
    }

    fn hub_netns(&self) -> String {
        hub_of(&self.prefix)
    }

    fn make_links(&mut self, spec: &LabSpec) -> Result<(), LabError> {
        let hub = self.hub_netns();
        tool::batch(Tool::Ip, Some(&hub), &self.hub_lines(spec))?;
        self.pacing = match tool::batch(Tool::Tc, Some(&hub), &netem_lines(spec)) {
            Ok(()) => Pacing::Netem,
            Err(HostError::ToolFailed { .. }) if spec.delay == Span::ZERO => {
                tool::batch(Tool::Tc, Some(&hub), &tbf_lines(spec))?;
                Pacing::Tbf
            }
            Err(error @ HostError::ToolFailed { .. }) => {
                return Err(LabError::Unsupported {
                    missing: "the queueing discipline netem, for the delay of the segment",
                    remedy: "run in a kernel that has it: --on lab:uml",
                    source: io::Error::other(error),
                });
            }
            Err(error) => return Err(error.into()),
        };
        ns::in_namespace(&netns_path(&hub), || {
            (0..self.stations.len()).try_for_each(|index| switch_offloads_off(&port(index)))
        })??;
        // A neighbour once found stays known for the laboratory's life. By default Linux asks again
        // after 5 s, and every 15 to 45 s, with two frames that no schedule knows of (kernel 6.12,
        // net/core/neighbour.c, DELAY_PROBE_TIME and neigh_rand_reach_time).
        let keep = format!(
            "ntable change name arp_cache dev phy0 base_reachable {ONE_DAY_MS} delay_probe \
             {ONE_DAY_MS}"
        );
        let up = [keep, "link set lo up".to_owned(), "link set phy0 up".to_owned()];
        for name in &self.stations {
            let netns = self.station_netns(name);
            ns::in_namespace(&netns_path(&netns), || switch_offloads_off(&self.phy()))??;
            tool::batch(Tool::Ip, Some(&netns), &up)?;
        }
        Ok(())
    }

    /// The hub with its ports, and the stations' interfaces as the other ends.
    fn hub_lines(&self, spec: &LabSpec) -> Vec<String> {
        let mut lines = vec![
            // The mask has it forward link-local groups too, as a hub does.
            "link add hub0 type bridge ageing_time 0 stp_state 0 mcast_snooping 0 \
             group_fwd_mask 65528"
                .to_owned(),
        ];
        let queues = format!("numtxqueues {0} numrxqueues {0}", spec.queues);
        for (index, station) in spec.stations.iter().enumerate() {
            let (port, netns) = (port(index), self.station_netns(&station.name));
            let mac = station.mac;
            lines.push(format!(
                "link add {port} mtu {MTU} {queues} type veth \
                 peer name phy0 address {mac} mtu {MTU} {queues} netns {netns}"
            ));
            lines.push(format!("link set {port} master hub0"));
            lines.push(format!("link set {port} type bridge_slave learning off flood on"));
            lines.push(format!("link set {port} up"));
        }
        lines.push("link set hub0 up".to_owned());
        lines
    }

    /// Waits until every port forwards and every station has its link.
    fn wait_for_links(&self) -> Result<(), LabError> {
        let deadline = Instant::now() + LINKS_UP_WITHIN;
        while let Some(waiting) = self.link_not_ready()? {
            if Instant::now() > deadline {
                return Err(LabError::NotReady { waiting });
            }
            thread::sleep(LINKS_ASK_EVERY);
        }
        Ok(())
    }

    fn link_not_ready(&self) -> Result<Option<String>, LabError> {
        let hub = self.hub_netns();
        let ports = links(&["-n", &hub, "-d", "-j", "link", "show", "master", "hub0"])?;
        let forwarding = ports.iter().filter(|link| link.is_up() && link.forwards()).count();
        if forwarding < self.stations.len() {
            return Ok(Some(format!("{hub} ({forwarding} ports forward)")));
        }
        for name in &self.stations {
            let netns = self.station_netns(name);
            if !links(&["-n", &netns, "-j", "link", "show", "phy0"])?.iter().all(Link::is_up) {
                return Ok(Some(format!("phy0 of {name}")));
            }
        }
        Ok(None)
    }
}

fn station_of(prefix: &str, name: &str) -> String {
    format!("{prefix}-{name}")
}

/// No station can be called so: a station's name has no dot.
fn hub_of(prefix: &str) -> String {
    format!("{prefix}.hub")
}

/// Takes away what laboratories of dead processes have left, and nothing else; says what.
///
/// **Errors**: the directory of the journals cannot be used.
pub fn clean_leftovers() -> Result<Vec<Leftovers>, LabError> {
    Ok(timewire_host::recover()?)
}

fn check(spec: &LabSpec) -> Result<(), LabError> {
    let wrong = |why: String| Err(LabError::Spec { why });
    let count = spec.stations.len();
    if !(1..=MAX_STATIONS).contains(&count) {
        return wrong(format!("it has {count} stations, not 1 to {MAX_STATIONS}"));
    }
    if !(1..=MAX_QUEUES).contains(&spec.queues) {
        return wrong(format!("{} queues are not 1 to {MAX_QUEUES}", spec.queues));
    }
    let (mut names, mut macs) = (BTreeSet::new(), BTreeSet::new());
    for StationSpec { name, mac } in &spec.stations {
        if !names.insert(name) {
            return wrong(format!("two stations are called {name}"));
        }
        if !mac.is_of_one_station() {
            return wrong(format!("{mac} of {name} is no address of one station"));
        }
        if !macs.insert(mac) {
            return wrong(format!("two stations have the address {mac}"));
        }
    }
    Ok(())
}

/// Each port sends one frame after the other at the rate, counting frames with check sequence,
/// preamble and gap, and delays them all by the same.
fn netem_lines(spec: &LabSpec) -> Vec<String> {
    let rate = spec.rate.get();
    // In microseconds: not every `tc` reads nanoseconds here, and all read fractions.
    let delay = format!("{}.{:03}us", spec.delay.as_ns() / 1_000, spec.delay.as_ns() % 1_000);
    let line = |index| {
        let port = port(index);
        format!(
            "qdisc add dev {port} root netem rate {rate}bit {WIRE_OVERHEAD} delay {delay} limit \
             {PORT_FRAMES}"
        )
    };
    (0..spec.stations.len()).map(line).collect()
}

/// Shapes each port to the rate, counting frames with check sequence, preamble and gap.
fn tbf_lines(spec: &LabSpec) -> Vec<String> {
    // A timer of the kernel that is late by less than the burst costs no rate.
    let burst = spec.rate.bytes_in_floor(LATE_TIMER).max(TWO_FRAMES);
    let rate = spec.rate.get();
    let line = |index| {
        let port = port(index);
        format!(
            "qdisc add dev {port} root tbf rate {rate}bit burst {burst} limit {PORT_BUFFER} \
             overhead {WIRE_OVERHEAD} mpu 84"
        )
    };
    (0..spec.stations.len()).map(line).collect()
}

/// In the namespace of the calling thread: frames leave as they are on a link. A frame whose
/// checksum is left to the hardware would be dropped after a redirection, because no hardware
/// follows.
fn switch_offloads_off(interface: &IfName) -> Result<(), LabError> {
    let mut arguments = vec!["-K", interface.as_str()];
    // Tags too: beside the frame, where a NIC would insert them, XDP does not see them.
    let tags = ["rxvlan", "txvlan", "tx-vlan-stag-hw-insert"];
    for feature in ["tx", "rx", "sg", "tso", "gso", "gro"].into_iter().chain(tags) {
        arguments.extend([feature, "off"]);
    }
    Ok(tool::run(Tool::Ethtool, &arguments).map(drop)?)
}

/// What `ip -j link` says of an interface, as far as it is asked here.
#[derive(Debug, Deserialize)]
struct Link {
    operstate: String,
    linkinfo: Option<LinkInfo>,
}

#[derive(Debug, Deserialize)]
struct LinkInfo {
    info_slave_data: Option<BridgePort>,
}

#[derive(Debug, Deserialize)]
struct BridgePort {
    state: String,
}

impl Link {
    fn is_up(&self) -> bool {
        self.operstate == "UP"
    }

    fn forwards(&self) -> bool {
        let port = self.linkinfo.as_ref().and_then(|info| info.info_slave_data.as_ref());
        port.is_some_and(|port| port.state == "forwarding")
    }
}

fn links(arguments: &[&str]) -> Result<Vec<Link>, LabError> {
    let text = tool::run(Tool::Ip, arguments)?;
    serde_json::from_str(&text).map_err(|error| LabError::ToolOutput {
        command: format!("ip {}", arguments.join(" ")),
        why: error.to_string(),
    })
}

fn port(index: usize) -> IfName {
    if_name(&format!("port{index}"))
}

fn if_name(text: &str) -> IfName {
    IfName::new(text).expect("invariant: our interface names are short and plain")
}

const MTU: u32 = 1_500;
const MAX_STATIONS: usize = 64;
const MAX_QUEUES: u32 = 64;
/// Two of the longest frames on the wire, rounded up. **Units**: bytes.
const TWO_FRAMES: u64 = 3_200;
/// How late a timer may be without costing rate.
const LATE_TIMER: Span = Span::from_us(256);
/// Of a frame on the wire, beside what Linux counts: check sequence, preamble, gap.
/// **Units**: bytes.
const WIRE_OVERHEAD: u32 = 24;
/// What waits at a port before frames are dropped. **Units**: bytes.
const PORT_BUFFER: u32 = 262_144;
/// The same, in frames, where only those are counted.
const PORT_FRAMES: u32 = 1_024;
/// **Units**: milliseconds.
const ONE_DAY_MS: u32 = 86_400_000;
const LINKS_UP_WITHIN: Duration = Duration::from_secs(10);
const LINKS_ASK_EVERY: Duration = Duration::from_millis(2);

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(stations: &[(&str, [u8; 6])]) -> LabSpec {
        let station = |&(name, mac): &(&str, [u8; 6])| StationSpec {
            name: StationName::new(name).unwrap(),
            mac: MacAddress(mac),
        };
        LabSpec {
            stations: stations.iter().map(station).collect(),
            rate: BitsPerSecond::new(100_000_000).unwrap(),
            delay: Span::ZERO,
            queues: 1,
        }
    }

    #[test]
    fn t0_impossible_laboratories_are_refused() {
        let (one, two) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        let many: Vec<_> = (0..65_u8).map(|i| ("x", [2, 0, 0, 0, 0, i])).collect();
        let cases = [
            (spec(&[]), "it has 0 stations, not 1 to 64"),
            (spec(&many), "it has 65 stations, not 1 to 64"),
            (LabSpec { queues: 0, ..spec(&[("a", one)]) }, "0 queues are not 1 to 64"),
            (spec(&[("a", one), ("a", two)]), "two stations are called a"),
            (spec(&[("a", one), ("b", one)]), "two stations have the address 02:00:00:00:00:01"),
            (
                spec(&[("a", [1, 0, 0, 0, 0, 1])]),
                "01:00:00:00:00:01 of a is no address of one station",
            ),
            (spec(&[("a", [0; 6])]), "00:00:00:00:00:00 of a is no address of one station"),
        ];
        for (spec, why) in cases {
            let error = check(&spec).unwrap_err().to_string();
            assert_eq!(error, format!("this laboratory cannot be built: {why}"));
        }
        check(&spec(&[("a", one), ("b", two)])).unwrap();
    }

    #[test]
    fn t0_the_rate_is_that_of_the_wire() {
        let lines = tbf_lines(&spec(&[("a", [2, 0, 0, 0, 0, 1])]));
        assert_eq!(
            lines,
            ["qdisc add dev port0 root tbf rate 100000000bit burst 3200 limit 262144 \
              overhead 24 mpu 84"]
        );
        let slow = LabSpec { delay: Span::from_ns(1_500), ..spec(&[("a", [2; 6])]) };
        assert_eq!(
            netem_lines(&slow),
            ["qdisc add dev port0 root netem rate 100000000bit 24 delay 1.500us limit 1024"]
        );
        let fast =
            LabSpec { rate: BitsPerSecond::new(1_000_000_000).unwrap(), ..spec(&[("a", [2; 6])]) };
        assert!(tbf_lines(&fast)[0].contains("burst 32000 "));
    }

    #[test]
    fn t0_what_ip_says_is_understood() {
        let text = r#"[{"ifname":"port0","operstate":"UP","linkinfo":{"info_kind":"veth",
            "info_slave_kind":"bridge","info_slave_data":{"state":"forwarding","cost":2}}},
            {"ifname":"phy0","operstate":"LOWERLAYERDOWN"}]"#;
        let links: Vec<Link> = serde_json::from_str(text).unwrap();
        assert!(links[0].is_up() && links[0].forwards());
        assert!(!links[1].is_up() && !links[1].forwards());
    }
}
