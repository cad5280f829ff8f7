// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One station: makes the virtual interface for the local stack, starts the MAC on the link, takes
//! requests until it is told to end, and puts the host back as it was, also when it is killed.
//!
//! Not here: how frames are released (`timewire-path`, `timewire-mac`).

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;
use timewire_base::{IfName, Instant, Span, StationName, Tai};
use timewire_host::group::{Group, MemberId};
use timewire_host::journal::Journal;
use timewire_host::tool::{self, Tool};
use timewire_host::{HostError, Undo};
use timewire_mac::{Config, Mode, QueueIndex};
use timewire_path::CarrierChoice;
use timewire_path::mac::{ClockRule, Mac, MacSpec, MacStatus, PortList};
use timewire_sched::scenario::{Carrier, MacMode, PortPriority, Queues, Scenario};
use timewire_sched::tdm::TdmSchedule;
use timewire_sys::scheduler::RtPriority;
use timewire_sys::{clock, event};
use timewire_trace::summary::{MacSummary, QueueSummary};

use crate::CtlError;
use crate::control::{MemberStatus, Received, Request, Response, STATUS_SCHEMA, Server, Status};

/// Of members of the priority group: below the MAC that carries their frames.
const GROUP_PRIORITY: u8 = 60;
/// How far ahead a change of the schedule lies when nobody says when: long enough for a command that
/// goes to every station.
const CHANGE_AHEAD: Span = Span::from_ms(50);

/// What a station is started with.
#[derive(Clone, Debug)]
pub struct StationSpec {
    /// Name of the MAC, for the control socket.
    pub instance: String,
    /// Which station of the schedule this is.
    pub station: StationName,
    /// The interface to the segment.
    pub link: IfName,
    /// The virtual interface to make.
    pub stack: IfName,
    /// Addresses for it, as `10.77.0.1/24`.
    pub addresses: Vec<String>,
    /// Move the addresses that the link has.
    pub move_addresses: bool,
    /// The schedule; `None` sends at once.
    pub schedule: Option<TdmSchedule>,
    /// How the machine is configured.
    pub config: Config,
    /// How long before its slot the thread spins.
    pub spin: Span,
    /// Which carrier.
    pub carrier: CarrierChoice,
    /// How the clock must be.
    pub clock: ClockRule,
    /// Transmit priorities.
    pub send: PortList,
    /// Receive priorities.
    pub recv: PortList,
}

/// What a station of a scenario is started with, without addresses.
///
/// **Errors**: the scenario has no such station, or the station has no slot.
pub fn from_scenario(
    scenario: &Scenario,
    station: StationName,
    link: IfName,
    stack: IfName,
    instance: String,
    clock: ClockRule,
) -> Result<StationSpec, CtlError> {
    if scenario.station(&station).is_none() {
        let known = scenario.stations.iter().map(|known| known.name.to_string()).collect();
        return Err(CtlError::NoStation { name: station, known });
    }
    let options = &scenario.mac;
    let (send, recv) = port_lists(&scenario.queues);
    let config = Config {
        rate: scenario.segment.rate,
        margin: options.margin,
        ahead: options.ahead,
        mode: match options.mode {
            MacMode::Tdm => Mode::Tdm,
            MacMode::Hybrid => Mode::Hybrid { idle_after: options.hybrid_idle_after },
        },
        best_effort_share: options.best_effort_share,
        queue_capacity: usize::try_from(options.queue_frames.get()).unwrap_or(usize::MAX),
    };
    let carrier = match options.carrier {
        Carrier::Auto => CarrierChoice::Auto,
        Carrier::AfXdpNative => CarrierChoice::AfXdpNative,
        Carrier::AfXdpGeneric => CarrierChoice::AfXdpGeneric,
        Carrier::AfPacket => CarrierChoice::AfPacket,
    };
    let spec = StationSpec {
        instance,
        station,
        link,
        stack,
        addresses: Vec::new(),
        move_addresses: false,
        schedule: Some(scenario.schedule.clone()),
        config,
        spin: options.spin,
        carrier,
        clock,
        send,
        recv,
    };
    has_slot(&scenario.schedule, &spec.station)?;
    Ok(spec)
}

/// The transmit and receive lists of a scenario as a MAC takes them.
pub fn port_lists(queues: &Queues) -> (PortList, PortList) {
    let list = |entries: &[PortPriority], queues: Option<usize>| {
        let ports: Vec<_> = entries.iter().map(|entry| (entry.port, entry.priority)).collect();
        let distinct = ports.iter().map(|(_, priority)| *priority).collect::<BTreeSet<_>>();
        PortList { queues: queues.unwrap_or(distinct.len()), ports }
    };
    let transmit = usize::try_from(queues.transmit_queues()).unwrap_or(usize::MAX);
    (list(&queues.send, Some(transmit)), list(&queues.recv, None))
}

fn has_slot(schedule: &TdmSchedule, station: &StationName) -> Result<(), CtlError> {
    if schedule.slots().iter().any(|slot| slot.station == *station) {
        return Ok(());
    }
    Err(CtlError::Invalid(format!(
        "the schedule has no slot for station `{station}`, which could then never send"
    )))
}

/// A running station. Dropping it puts the host back.
pub struct Station {
    spec: StationSpec,
    far: IfName,
    server: Server,
    requests: event::EndRequests,
    // Fields drop in this order: members back first, then the frames stop, then the interfaces go.
    group: Group,
    mac: Mac,
    journal: Arc<Journal>,
}

impl Station {
    /// Makes the virtual interface and starts the MAC.
    ///
    /// **Errors**: whatever stands in the way; the host is as it was then.
    pub fn start(spec: StationSpec) -> Result<Station, CtlError> {
        // Before any thread is started, so that all of them leave the signals to us.
        let requests = event::EndRequests::new()
            .map_err(|error| CtlError::Invalid(format!("cannot wait for signals: {error}")))?;
        let link = LinkState::read(&spec.link)?;
        if !link.addresses.is_empty() && !spec.move_addresses {
            return Err(CtlError::LinkHasAddresses {
                link: spec.link.clone(),
                stack: spec.stack.clone(),
                addresses: link.addresses.iter().map(|text| first_word(text)).collect(),
            });
        }
        let far = far_name(&spec.stack)?;
        for name in [&spec.stack, &far] {
            if timewire_sys::interface_index(name).is_ok() {
                return Err(CtlError::InterfaceExists { name: name.clone() });
            }
        }
        let journal = Arc::new(Journal::begin(&format!("MAC on {}", spec.link))?);
        let (server, socket) = Server::bind(&spec.instance)?;
        journal.record(Undo::RemoveFile { path: socket })?;
        make_interfaces(&journal, &spec, &far, &link)?;
        let mac = Mac::start(mac_spec(&spec, &far, link.address))
            .map_err(|source| CtlError::Mac { link: spec.link.clone(), source })?;
        let priority = RtPriority::new(GROUP_PRIORITY)
            .expect("invariant: the priority lies in the kernel's range");
        let group = Group::new(Arc::clone(&journal), priority);
        Ok(Station { spec, far, server, requests, group, mac, journal })
    }

    /// Answers requests until one says stop or a signal asks to end; then puts the host back.
    ///
    /// **Errors**: the MAC ended by itself, or something could not be put back.
    pub fn serve(mut self) -> Result<(), CtlError> {
        let mut ended = None;
        let mut stop = false;
        while !stop && ended.is_none() {
            self.server.wait(self.requests.as_fd());
            stop = self.requests.take();
            let Station { spec, far: _, server, group, mac, .. } = &mut self;
            server.answer_all(|request| {
                stop |= request == Request::Stop;
                answer(spec, group, mac, request)
            });
            ended = self.mac.ended();
        }
        let Station { spec, group, mac, journal, .. } = self;
        drop(group);
        let stopped = match ended {
            Some(error) => Err(error),
            None => mac.stop(),
        };
        let journal = Arc::into_inner(journal).expect("invariant: the group was the other owner");
        journal.finish()?;
        stopped.map_err(|source| CtlError::Mac { link: spec.link, source })
    }

    /// How the station is; also what was chosen and what the host refused.
    pub fn status(&mut self) -> Result<Status, CtlError> {
        status(&self.spec, &mut self.group, &mut self.mac)
    }

    /// The name of the virtual interface's far side.
    pub fn far(&self) -> &IfName {
        &self.far
    }
}

fn mac_spec(spec: &StationSpec, far: &IfName, address: [u8; 6]) -> MacSpec {
    MacSpec {
        link: spec.link.clone(),
        stack: spec.stack.clone(),
        far: far.clone(),
        address,
        config: spec.config,
        windows: spec.schedule.as_ref().map(|schedule| schedule.windows_of(&spec.station)),
        spin: spec.spin,
        carrier: spec.carrier,
        send: spec.send.clone(),
        recv: spec.recv.clone(),
        defer_cpu: last_cpu(),
        clock: spec.clock,
    }
}

fn answer(spec: &mut StationSpec, group: &mut Group, mac: &mut Mac, request: Request) -> Response {
    let result = match request {
        Request::Stop => Ok(Response::Done),
        Request::Show => {
            status(spec, group, mac).map(|status| Response::Status { status: Box::new(status) })
        }
        Request::Set { schedule, not_before_ns } => set(spec, mac, schedule, not_before_ns),
        Request::Send { list } => changed(spec, mac.set_send(&list)),
        Request::Recv { list } => changed(spec, mac.set_recv(&list)),
        Request::AddProcess { pids } => add_processes(group, &pids),
        Request::RemoveProcess { members } => remove_processes(group, &members),
    };
    result.unwrap_or_else(|error| Response::Refused { message: error.with_hint() })
}

fn changed(
    spec: &StationSpec,
    result: Result<(), timewire_path::mac::PathError>,
) -> Result<Response, CtlError> {
    result
        .map(|()| Response::Done)
        .map_err(|source| CtlError::Mac { link: spec.link.clone(), source })
}

fn set(
    spec: &mut StationSpec,
    mac: &mut Mac,
    schedule: TdmSchedule,
    not_before: Option<Instant<Tai>>,
) -> Result<Response, CtlError> {
    has_slot(&schedule, &spec.station)?;
    let not_before = not_before.unwrap_or_else(|| clock::now::<Tai>() + CHANGE_AHEAD);
    let result = mac.set_windows(Some(schedule.windows_of(&spec.station)), not_before);
    if result.is_ok() {
        spec.schedule = Some(schedule);
    }
    changed(spec, result)
}

/// All or none: when one cannot be added, those added before it are removed again.
fn add_processes(group: &mut Group, pids: &[u32]) -> Result<Response, CtlError> {
    let mut members = Vec::new();
    if pids.contains(&std::process::id()) {
        return Err(CtlError::Invalid(format!(
            "process {} is this MAC itself; it has a higher priority than the group",
            std::process::id()
        )));
    }
    for &pid in pids {
        match group.add(pid, None) {
            Ok(member) => members.push(member),
            Err(error) => {
                for member in members {
                    group.remove(member)?;
                }
                return Err(error.into());
            }
        }
    }
    Ok(Response::Members { members: members.into_iter().map(MemberId::get).collect() })
}

/// All or none: a number that is no member's is found before any member is removed.
fn remove_processes(group: &mut Group, members: &[u32]) -> Result<Response, CtlError> {
    let known: Vec<u32> = group.members()?.iter().map(|member| member.id.get()).collect();
    if let Some(&member) = members.iter().find(|member| !known.contains(member)) {
        return Err(HostError::NoMember { member, members: known }.into());
    }
    for member in BTreeSet::from_iter(members) {
        group.remove(MemberId::new(*member))?;
    }
    Ok(Response::Done)
}

fn status(spec: &StationSpec, group: &mut Group, mac: &mut Mac) -> Result<Status, CtlError> {
    let now = mac.status().map_err(|source| CtlError::Mac { link: spec.link.clone(), source })?;
    let members = group.members()?;
    let by_priority = (1_u8..).zip(now.received.by_priority).filter(|(_, frames)| *frames > 0);
    Ok(Status {
        schema: STATUS_SCHEMA.to_owned(),
        name: spec.instance.clone(),
        pid: std::process::id(),
        station: spec.station.to_string(),
        link: spec.link.to_string(),
        stack: spec.stack.to_string(),
        receive: now.receive.clone(),
        refused: now.refused.clone(),
        transmit: transmit_summary(&spec.station, &now),
        send_failed: now.observed.send_failed,
        held_unsynchronised: now.counters.held_unsynchronised,
        schedule_changes: now.counters.schedule_changes,
        call_p999_ns: now.observed.call_quantile(0.999).map(Span::as_ns),
        call_max_ns: now.observed.call_max.as_ns(),
        received: Received {
            normal: now.received.normal,
            by_priority: by_priority.collect(),
            foreign: now.received.foreign,
            not_deferred: now.received.not_deferred,
        },
        schedule: spec.schedule.clone(),
        windows: now.windows,
        change_at_ns: now.pending.map(|pending| pending.config_change_time),
        send: now.send,
        recv: now.recv,
        members: members
            .into_iter()
            .map(|member| MemberStatus {
                member: member.id.get(),
                pid: member.process.pid,
                threads: member.threads,
            })
            .collect(),
    })
}

fn transmit_summary(station: &StationName, now: &MacStatus) -> MacSummary {
    let prioritised = (1..=u64::from(timewire_base::Priority::MAX))
        .filter_map(|number| timewire_base::Priority::new(number).ok())
        .filter_map(|priority| now.send.rules().ok()?.queue_set().index_of(priority));
    let queues = prioritised.chain([QueueIndex::DEFAULT]).map(|index| {
        let counters = now.counters.queue(index);
        QueueSummary {
            name: match index.priority() {
                Some(priority) => priority.get().to_string(),
                None => "default".to_owned(),
            },
            arrived: counters.arrived,
            released: counters.released,
            dropped_full: counters.dropped_full,
            dropped_oversize: counters.dropped_oversize,
        }
    });
    MacSummary {
        station: station.to_string(),
        carrier: now.carrier.clone(),
        released: now.counters.total().released,
        missed_slots: now.counters.missed_windows,
        ingress_dropped: now.observed.ingress_dropped,
        queues: queues.collect(),
    }
}

/// What must be known of the link before it is touched.
struct LinkState {
    address: [u8; 6],
    mtu: u64,
    is_up: bool,
    /// As `ip address add` takes them.
    addresses: Vec<String>,
    /// As `ip route add` takes them; those that the kernel makes by itself are not among them.
    routes: Vec<String>,
}

impl LinkState {
    fn read(link: &IfName) -> Result<LinkState, CtlError> {
        let bad = |why: &str| CtlError::Link { link: link.clone(), why: why.to_owned() };
        if timewire_sys::interface_index(link).is_err() {
            return Err(bad("there is no such interface here; `ip link` lists those there are"));
        }
        let text = tool::run(Tool::Ip, &["-j", "address", "show", "dev", link.as_str()])?;
        let list: Value = serde_json::from_str(&text).map_err(|_| bad("`ip` wrote no JSON"))?;
        let entry = list.get(0).ok_or_else(|| bad("`ip` does not know it"))?;
        if entry["link_type"] != "ether" {
            return Err(bad("it is no Ethernet interface"));
        }
        let address = entry["address"].as_str().and_then(parse_address);
        let infos = entry["addr_info"].as_array().into_iter().flatten();
        let global = infos.filter(|info| info["scope"] == "global").filter_map(address_text);
        let mut routes = Vec::new();
        for family in ["-4", "-6"] {
            let shown = tool::run(Tool::Ip, &[family, "route", "show", "dev", link.as_str()])?;
            routes.extend(shown.lines().filter_map(|line| route_text(line, family == "-6")));
        }
        Ok(LinkState {
            address: address.ok_or_else(|| bad("it has no Ethernet address"))?,
            mtu: entry["mtu"].as_u64().unwrap_or(1_500),
            is_up: entry["flags"].as_array().is_some_and(|flags| flags.contains(&"UP".into())),
            addresses: global.collect(),
            routes,
        })
    }
}

fn first_word(text: &str) -> String {
    text.split(' ').next().unwrap_or_default().to_owned()
}

/// `10.77.0.1/24 brd 10.77.0.255`
fn address_text(info: &Value) -> Option<String> {
    let mut text = format!("{}/{}", info["local"].as_str()?, info["prefixlen"].as_u64()?);
    if let Some(broadcast) = info["broadcast"].as_str() {
        text += &format!(" brd {broadcast}");
    }
    Some(text)
}

/// A line of `ip route show` as `ip route add` takes it; `None` for those that come by themselves
/// with an address or a router's advertisement.
fn route_text(line: &str, ipv6: bool) -> Option<String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let from = words.iter().position(|word| *word == "proto").and_then(|at| words.get(at + 1));
    if matches!(from, Some(&"kernel" | &"ra")) {
        return None;
    }
    let states = ["linkdown", "dead"];
    let text: Vec<&str> = words.into_iter().filter(|word| !states.contains(word)).collect();
    let text = text.join(" ");
    Some(match text.strip_prefix("default") {
        Some(rest) if ipv6 => format!("::/0{rest}"),
        _ => text,
    })
}

fn parse_address(text: &str) -> Option<[u8; 6]> {
    let mut bytes = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut bytes {
        *byte = u8::from_str_radix(parts.next()?, 16).ok()?;
    }
    parts.next().is_none().then_some(bytes)
}

/// The name of the virtual interface's far side: `tw0` and `tw0-mac`.
fn far_name(stack: &IfName) -> Result<IfName, CtlError> {
    IfName::new(&format!("{stack}-mac")).map_err(|_| {
        CtlError::Invalid(format!(
            "`{stack}` is too long for the virtual interface: at most 11 characters, since its far \
             side is called `{stack}-mac`"
        ))
    })
}

fn make_interfaces(
    journal: &Journal,
    spec: &StationSpec,
    far: &IfName,
    link: &LinkState,
) -> Result<(), CtlError> {
    let stack = &spec.stack;
    journal.record(Undo::DeleteLink { netns: None, name: stack.clone() })?;
    let [a, b, c, d, e, f] = link.address;
    let address = format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}");
    let mtu = link.mtu;
    tool::batch(
        Tool::Ip,
        None,
        &[format!(
            "link add {stack} address {address} mtu {mtu} numtxqueues 1 numrxqueues 1 txqueuelen \
             1000 type veth peer name {far} mtu {mtu} numtxqueues 1 numrxqueues 1"
        )],
    )?;
    // The stack's own frames must be whole when they reach the MAC: checksums filled in, no larger
    // than the link takes, tags in place.
    for name in [stack, far] {
        let off = [
            "-K",
            name.as_str(),
            "tx",
            "off",
            "sg",
            "off",
            "gso",
            "off",
            "tso",
            "off",
            "gro",
            "off",
            "rxvlan",
            "off",
            "txvlan",
            "off",
        ];
        tool::run(Tool::Ethtool, &off)?;
    }
    // Neither the far side nor the link itself may speak: only the MAC does, and only in its slots.
    silence(journal, far)?;
    let mut lines = vec![format!("link set {far} up"), format!("link set {stack} up")];
    if spec.move_addresses {
        lines.extend(take_addresses(journal, &spec.link, link)?);
    }
    tool::batch(Tool::Ip, None, &lines)?;
    silence(journal, &spec.link)?;
    if !link.is_up {
        journal.record(Undo::SetLinkDown { name: spec.link.clone() })?;
    }
    let mut lines = vec![format!("link set {} up", spec.link)];
    if spec.move_addresses {
        let add = |what: &str, value: &String| format!("{what} add {value} dev {stack}");
        lines.extend(link.addresses.iter().map(|address| add("address", address)));
        lines.extend(link.routes.iter().map(|route| add("route", route)));
    }
    lines.extend(spec.addresses.iter().map(|address| format!("address add {address} dev {stack}")));
    Ok(tool::batch(Tool::Ip, None, &lines)?)
}

/// The lines that take the link's addresses away; the kernel takes the routes that hang on them.
fn take_addresses(
    journal: &Journal,
    name: &IfName,
    link: &LinkState,
) -> Result<Vec<String>, CtlError> {
    // In this order: what is recorded last is put back first, and a route needs an address.
    for route in &link.routes {
        journal.record(Undo::AddRoute { interface: name.clone(), route: route.clone() })?;
    }
    for address in &link.addresses {
        let (interface, address) = (name.clone(), address.clone());
        journal.record(Undo::AddAddress { netns: None, interface, address })?;
    }
    Ok(link.addresses.iter().map(|address| format!("address del {address} dev {name}")).collect())
}

/// Keeps the kernel from sending on an interface by itself, and from taking frames there for the
/// addresses of another one: those come once more through the MAC.
fn silence(journal: &Journal, name: &IfName) -> Result<(), CtlError> {
    let silent = [
        // No IPv6 at all.
        ("ipv6", "disable_ipv6", "1"),
        // No answers to address resolution.
        ("ipv4", "arp_ignore", "8"),
        // Whoever sent a frame is reached through another interface, so it is dropped.
        ("ipv4", "rp_filter", "1"),
    ];
    for (family, setting, value) in silent {
        let path = PathBuf::from(format!("/proc/sys/net/{family}/conf/{name}/{setting}"));
        // A kernel without IPv6 needs nothing.
        let Ok(was) = fs::read_to_string(&path) else { continue };
        let was = was.trim();
        if was != value {
            journal.record(Undo::WriteSetting { path: path.clone(), value: was.to_owned() })?;
            fs::write(&path, value).map_err(|source| HostError::File {
                what: "write",
                path,
                source,
            })?;
        }
    }
    Ok(())
}

/// The CPU for deferred work: the last one, since the kernel and most programs favour the first.
fn last_cpu() -> u32 {
    let cpus = timewire_sys::scheduler::affinity(0).unwrap_or_default();
    cpus.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_addresses_are_read_whole() {
        assert_eq!(parse_address("02:00:0a:4d:00:ff"), Some([2, 0, 10, 77, 0, 255]));
        for bad in ["", "02:00", "02:00:0a:4d:00:ff:00", "zz:00:0a:4d:00:ff"] {
            assert_eq!(parse_address(bad), None, "{bad}");
        }
    }

    #[test]
    fn t0_routes_are_read_as_they_are_written() {
        let v4 = |line| route_text(line, false);
        assert_eq!(v4("10.1.0.0/24 proto kernel scope link src 10.1.0.1"), None);
        let dhcp = "default via 10.1.0.254 proto dhcp metric 100";
        assert_eq!(v4(&format!("{dhcp} linkdown ")).unwrap(), dhcp);
        let v6 = |line| route_text(line, true);
        assert_eq!(v6("default via fe80::1 proto ra metric 1024 expires 9sec pref medium"), None);
        let default = v6("default via fd00::2 metric 1024 pref medium");
        assert_eq!(default.unwrap(), "::/0 via fd00::2 metric 1024 pref medium");
        assert_eq!(v6("fd01::/64 metric 1024").unwrap(), "fd01::/64 metric 1024");
    }

    #[test]
    fn t0_the_far_side_has_a_name_the_kernel_takes() {
        assert_eq!(far_name(&IfName::new("tw0").unwrap()).unwrap().as_str(), "tw0-mac");
        assert!(far_name(&IfName::new("elevenchars").unwrap()).is_ok());
        assert!(far_name(&IfName::new("twelve-chars").unwrap()).is_err());
    }
}
