// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finding out what a kernel can do by doing it, in a place of its own. Nothing of the host is
//! changed, but for modules that the kernel loads by itself.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use timewire_base::{Instant, Span, Tai};
use timewire_stats::Statistics;
use timewire_sys::error_queue::{self, Report, TxPoint};
use timewire_sys::hardware_clock::HardwareClock;
use timewire_sys::namespace::{Capabilities, Capability};
use timewire_sys::packet::{Observed, PacketOptions, PacketSocket};
use timewire_sys::scheduler::{self, RtPriority};
use timewire_sys::talk::{LaunchMode, TalkOptions, TalkSocket};
use timewire_sys::udp::TimestampedUdp;
use timewire_sys::{FrameMemory, clock, probe as call};
use timewire_tsn::qdisc::{Qdisc, ShownQdisc};

use super::probes::{
    HardwareClockProbe, PROBES_SCHEMA, Probe, ProbeOutcome, Probes, Tried, WakeUps,
};
use super::scratch::{self, QUEUES, Scratch};
use crate::HostError;
use crate::tool::{self, Tool};

/// Results by what was tried.
pub type Results = BTreeMap<Probe, ProbeOutcome>;

/// How much is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Everything.
    All,
    /// All but what takes long and decides about nothing that can be missing: how late threads
    /// wake up.
    Needs,
}

/// Tries what a host can do. `more` tries what this crate cannot, in the same place; what it
/// answers counts.
pub fn probe(extent: Extent, more: &(dyn Fn(&Scratch) -> Results + Sync)) -> Probes {
    let before = modules();
    let mut results = host();
    let tried = scratch::within(|scratch| {
        let mut results = inside(scratch);
        results.extend(more(scratch));
        results
    });
    match tried {
        Ok(inside) => results.extend(inside),
        Err(error) => {
            results.insert(Probe::Scratch, of_tool_error(&error));
        }
    }
    for probe in Probe::ALL {
        let why = || ProbeOutcome::Untried { why: "there was no place to try it in".to_owned() };
        results.entry(*probe).or_insert_with(why);
    }
    let mut loaded: Vec<String> = modules().difference(&before).cloned().collect();
    loaded.sort();
    Probes {
        schema: PROBES_SCHEMA.to_owned(),
        kernel: read(Path::new("/proc/sys/kernel/osrelease")).unwrap_or_default(),
        privilege: privilege(),
        results,
        wake_ups: if extent == Extent::All { wake_ups() } else { Vec::new() },
        hardware_clocks: hardware_clocks(Path::new("/dev")),
        offloads: BTreeMap::new(),
        modules_loaded: loaded,
    }
}

fn privilege() -> Tried {
    let held = Capabilities::of_this_process();
    let admin = held.is_ok_and(|held| held.has(Capability::SysAdmin));
    let mapping = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    match (admin, mapping.split_whitespace().eq(["0", "0", "4294967295"])) {
        (true, true) => Tried::Root,
        (true, false) => Tried::UserNamespace,
        (false, _) => Tried::Nobody,
    }
}

fn modules() -> BTreeSet<String> {
    let text = fs::read_to_string("/proc/modules").unwrap_or_default();
    text.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

fn works(found: impl Into<String>) -> ProbeOutcome {
    ProbeOutcome::Works { found: found.into() }
}

/// What an error of a system call means.
pub fn of_io_error(error: &io::Error) -> ProbeOutcome {
    let said = error.to_string();
    match error.kind() {
        io::ErrorKind::PermissionDenied => ProbeOutcome::Forbidden { said },
        io::ErrorKind::TimedOut => ProbeOutcome::Untried { why: said },
        _ => ProbeOutcome::Absent { said },
    }
}

/// What an error of a tool means.
pub(super) fn of_tool_error(error: &HostError) -> ProbeOutcome {
    match error {
        HostError::ToolFailed { stderr, .. } => of_tool_words(stderr),
        HostError::Kernel { source, .. } => of_io_error(source),
        other => ProbeOutcome::Untried { why: other.to_string() },
    }
}

fn of_tool_words(stderr: &str) -> ProbeOutcome {
    // The last part only says which line of the batch it was.
    let said = stderr.split(" / Command failed").next().unwrap_or_default().trim();
    let said = said.strip_prefix("Error: ").unwrap_or(said).trim_end_matches('.').to_owned();
    if stderr.contains("not permitted") || stderr.contains("Permission denied") {
        ProbeOutcome::Forbidden { said }
    } else if stderr.contains("Unknown qdisc") || stderr.contains("What is \"") {
        ProbeOutcome::Untried { why: format!("the tool does not know it: {said}") }
    } else {
        ProbeOutcome::Absent { said }
    }
}

fn of_result(result: io::Result<String>) -> ProbeOutcome {
    result.map_or_else(|error| of_io_error(&error), works)
}

fn of_tool(result: Result<String, HostError>) -> ProbeOutcome {
    result.map_or_else(|error| of_tool_error(&error), works)
}

fn read(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// What needs no interface.
fn host() -> Results {
    Results::from([
        (Probe::Btf, btf()),
        (Probe::BpfFileSystem, bpf_file_system()),
        (Probe::Fifo, policy(FIFO)),
        (Probe::RoundRobin, policy(RR)),
        (Probe::Deadline, policy(DEADLINE)),
        (Probe::LockMemory, lock_memory()),
        (Probe::WakeAtOnce, wake_at_once()),
        (Probe::CpuSets, cpu_sets()),
        (Probe::Freezer, freezer()),
        (Probe::Timers, resolution()),
        (Probe::ToolIp, of_tool(Tool::Ip.version())),
        (Probe::ToolTc, of_tool(Tool::Tc.version())),
        (Probe::ToolEthtool, of_tool(Tool::Ethtool.version())),
        (Probe::ToolPtp4l, program("ptp4l")),
        (Probe::ToolPhc2sys, program("phc2sys")),
        (Probe::ToolTs2phc, program("ts2phc")),
    ])
}

fn btf() -> ProbeOutcome {
    let path = "/sys/kernel/btf/vmlinux";
    match fs::metadata(path) {
        Ok(_) => works(path),
        Err(error) => ProbeOutcome::Absent { said: format!("{path}: {error}") },
    }
}

fn bpf_file_system() -> ProbeOutcome {
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    let mount = mounts.lines().find(|line| line.split(' ').nth(2) == Some("bpf"));
    match mount.and_then(|line| line.split(' ').nth(1)) {
        Some(path) => works(path),
        None => ProbeOutcome::Absent { said: "it is not mounted".to_owned() },
    }
}

const FIFO: scheduler::Attributes = attributes(1, 10);
const RR: scheduler::Attributes = attributes(2, 10);
const DEADLINE: scheduler::Attributes = scheduler::Attributes {
    runtime_ns: 100_000,
    deadline_ns: 1_000_000,
    period_ns: 1_000_000,
    ..attributes(6, 0)
};

const fn attributes(policy: u32, rt_priority: u32) -> scheduler::Attributes {
    scheduler::Attributes {
        policy,
        flags: 0,
        nice: 0,
        rt_priority,
        runtime_ns: 0,
        deadline_ns: 0,
        period_ns: 0,
    }
}

/// Schedules a thread that has nothing to do so.
fn policy(wanted: scheduler::Attributes) -> ProbeOutcome {
    let attempt = thread::spawn(move || {
        scheduler::set_attributes(0, &wanted)?;
        let now = scheduler::attributes(0)?;
        if now.policy != wanted.policy {
            let said = format!("policy {} was set and {} read", wanted.policy, now.policy);
            return Err(io::Error::other(said));
        }
        Ok("on a thread of its own".to_owned())
    });
    of_result(attempt.join().unwrap_or_else(|_| Err(io::Error::other("the thread panicked"))))
}

fn lock_memory() -> ProbeOutcome {
    match call::lock_memory(LOCKED_BYTES) {
        Ok(()) => works(format!("{} MiB", LOCKED_BYTES >> 20)),
        // Beyond the limit of an ordinary user.
        Err(error) if error.kind() == io::ErrorKind::OutOfMemory => {
            ProbeOutcome::Forbidden { said: format!("{} MiB: {error}", LOCKED_BYTES >> 20) }
        }
        Err(error) => of_io_error(&error),
    }
}

fn wake_at_once() -> ProbeOutcome {
    let request = scheduler::WakeAtOnce::request();
    of_result(request.map(|_| "/dev/cpu_dma_latency".to_owned()))
}

/// Where control groups of version 2 are mounted.
fn control_groups() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/mounts").ok()?;
    let mount = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2"))?;
    mount.split(' ').nth(1).map(PathBuf::from)
}

fn cpu_sets() -> ProbeOutcome {
    let Some(root) = control_groups() else {
        return ProbeOutcome::Absent {
            said: "no control groups of version 2 are mounted".to_owned(),
        };
    };
    let controllers = read(&root.join("cgroup.controllers")).unwrap_or_default();
    if controllers.split(' ').any(|one| one == "cpuset") {
        works(format!("a controller of {}", root.display()))
    } else {
        let said = format!("{} has only: {controllers}", root.display());
        ProbeOutcome::Absent { said }
    }
}

/// The root group cannot be stopped, so only another one has the file.
fn freezer() -> ProbeOutcome {
    let Some(root) = control_groups() else {
        return ProbeOutcome::Absent {
            said: "no control groups of version 2 are mounted".to_owned(),
        };
    };
    let groups = fs::read_dir(&root).into_iter().flatten().flatten();
    let mut groups = groups.filter(|entry| entry.path().is_dir()).peekable();
    if groups.peek().is_none() {
        return ProbeOutcome::Untried {
            why: format!("{} has no group to look at", root.display()),
        };
    }
    match groups.find(|entry| entry.path().join("cgroup.freeze").exists()) {
        // Which group it was says what runs here, and nothing else.
        Some(_) => works(format!("cgroup.freeze in the groups of {}", root.display())),
        None => ProbeOutcome::Absent { said: "no group has a file cgroup.freeze".to_owned() },
    }
}

/// What the kernel states of its clock is not what its timers do, so they are asked.
fn resolution() -> ProbeOutcome {
    let stated = match call::resolution::<Tai>() {
        Ok(stated) => stated,
        Err(error) => return of_io_error(&error),
    };
    let sleeper = || {
        // Others may run all the same, where this one may not have real-time priority.
        if let Some(priority) = RtPriority::new(50) {
            let _ = scheduler::set_attributes(0, &scheduler::Attributes::fifo(priority));
        }
        let late = |_| {
            let until = clock::now::<Tai>() + Span::from_us(100);
            clock::sleep_until(until);
            clock::now::<Tai>() - until
        };
        earliest((0..MAX_SLEEPS).map(late))
    };
    let late = thread::spawn(sleeper).join().ok().flatten();
    of_sleeps(late, stated)
}

/// Sleeps until one ends in time.
const MAX_SLEEPS: u32 = 200;
/// The error of a timer of high resolution is far below it, that of others a tick of 1 ms or more.
const IN_TIME: Span = Span::from_us(500);

/// How late the first sleep in time was, or else the least late one.
fn earliest(late: impl Iterator<Item = Span>) -> Option<Span> {
    let mut least: Option<Span> = None;
    for late in late {
        least = Some(least.map_or(late, |least| least.min(late)));
        if late < IN_TIME {
            break;
        }
    }
    least
}

/// What sleeps say of the timers. Those of a busy host end late whatever its timers are, so what
/// the kernel states decides.
fn of_sleeps(late: Option<Span>, stated: Span) -> ProbeOutcome {
    match late {
        Some(late) if late < Span::ZERO => {
            ProbeOutcome::Absent { said: format!("a sleep ended {} early", -late) }
        }
        Some(late) if late < IN_TIME => works(format!("a sleep of 100us ended {late} late")),
        late => {
            let late = late.map_or_else(|| "never".to_owned(), |late| format!("{late} late"));
            let said = format!("a sleep of 100us ended {late}; the kernel states {stated}");
            if stated < IN_TIME {
                ProbeOutcome::Untried { why: format!("{said}: the host is too busy to tell") }
            } else {
                ProbeOutcome::Absent { said }
            }
        }
    }
}

fn program(name: &str) -> ProbeOutcome {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    match dirs.map(|dir| dir.join(name)).find(|candidate| candidate.is_file()) {
        Some(found) => works(found.display().to_string()),
        None => ProbeOutcome::Absent { said: format!("`{name}` is not installed") },
    }
}

/// What needs interfaces.
fn inside(scratch: &Scratch) -> Results {
    let mut results = Results::from([
        (Probe::Scratch, works(format!("{} and {}, {QUEUES} queues", scratch.near, scratch.far))),
        (Probe::Vlan, of_tool(vlan(scratch))),
        (Probe::BridgeVlan, of_tool(bridge_vlan())),
        (Probe::Filters, of_tool(filters(scratch))),
        (Probe::PacketSocket, of_result(packet_socket(scratch))),
        (Probe::LaunchTimes, of_result(launch_times())),
        (Probe::TransmitTimestamps, of_result(transmit_timestamps())),
        (Probe::ReceiveTimestamps, of_result(receive_timestamps())),
        (
            Probe::BusyPoll,
            of_result(call::busy_poll(50).map(|()| "50us, before interrupts".to_owned())),
        ),
        (Probe::Rps, queue_cpus(scratch, "rx-0/rps_cpus")),
        (Probe::Xps, queue_cpus(scratch, "tx-0/xps_cpus")),
        (Probe::ThreadedNapi, threaded_napi(scratch)),
    ]);
    results.extend(QDISCS.map(|(probe, words)| (probe, of_tool(qdisc(scratch, words)))));
    results
}

/// The disciplines as they are tried: of each kind the one of an example that is in many books.
const QDISCS: [(Probe, &str); 9] = [
    (Probe::Mqprio, "mqprio num_tc 3 map 2 2 1 0 2 2 2 2 2 2 2 2 2 2 2 2 queues 1@0 1@1 2@2 hw 0"),
    (
        Probe::Taprio,
        "taprio num_tc 3 map 2 2 1 0 2 2 2 2 2 2 2 2 2 2 2 2 queues 1@0 1@1 2@2 base-time 0 \
         sched-entry S 01 300000 sched-entry S 03 300000 sched-entry S 04 400000 \
         cycle-time 1000000 clockid CLOCK_TAI",
    ),
    (
        Probe::TaprioTxtimeAssist,
        "taprio num_tc 3 map 2 2 1 0 2 2 2 2 2 2 2 2 2 2 2 2 queues 1@0 1@0 1@0 base-time 0 \
         sched-entry S 01 300000 sched-entry S 03 300000 sched-entry S 04 400000 \
         cycle-time 1000000 flags 0x1 txtime-delay 200000 clockid CLOCK_TAI",
    ),
    (Probe::Etf, "etf clockid CLOCK_TAI delta 300000"),
    (Probe::Cbs, "cbs idleslope 20000 sendslope -980000 hicredit 30 locredit -1470 offload 0"),
    (Probe::Fq, "fq"),
    (Probe::Netem, "netem delay 1ms"),
    (Probe::Tbf, "tbf rate 100mbit burst 2000b latency 1ms"),
    (Probe::Prio, "prio bands 2 priomap 1 1 1 1 1 1 0 0 1 1 1 1 1 1 1 1"),
];

/// Puts a discipline at the root, reads it back and takes it away.
fn qdisc(scratch: &Scratch, words: &str) -> Result<String, HostError> {
    let place = format!("qdisc replace dev {} root handle 100: ", scratch.near);
    tool::run(Tool::Tc, &format!("{place}{words}").split(' ').collect::<Vec<_>>())?;
    let shown = tool::run(Tool::Tc, &["-j", "qdisc", "show", "dev", scratch.near.as_str()]);
    let removed =
        tool::run(Tool::Tc, &["qdisc", "del", "dev", scratch.near.as_str(), "root"]).map(drop);
    let found = read_back(words, &shown?)?;
    removed.map(|()| found)
}

/// Whether what `tc` shows is what was given; a kind that is not of the four only by its name.
fn read_back(words: &str, shown: &str) -> Result<String, HostError> {
    let kind = words.split(' ').next().unwrap_or_default();
    let wrong = |why: String| HostError::kernel(format!("read {kind} back"), io::Error::other(why));
    let shown = ShownQdisc::parse(shown).map_err(|error| wrong(error.to_string()))?;
    let root = shown.iter().find(|qdisc| qdisc.kind == kind && qdisc.handle.is_some());
    let root = root.ok_or_else(|| wrong("it is not there".to_owned()))?;
    let Ok(wanted) = words.parse::<Qdisc>() else {
        return Ok("installed and seen".to_owned());
    };
    match root.configured() {
        Some(found) if found == wanted => Ok("installed, and read back the same".to_owned()),
        Some(found) => Ok(format!("installed, and read back as `{found}`")),
        None => Err(wrong("it has no settings".to_owned())),
    }
}

fn bridge_vlan() -> Result<String, HostError> {
    let words = "link add probe-bridge type bridge vlan_filtering 1 vlan_default_pvid 0";
    tool::run(Tool::Ip, &words.split(' ').collect::<Vec<_>>())?;
    tool::run(Tool::Ip, &["link", "del", "probe-bridge"])?;
    Ok("made and taken away".to_owned())
}

/// A priority for frames with a tag, and a copy of every frame to another interface.
fn filters(scratch: &Scratch) -> Result<String, HostError> {
    let (near, far) = (&scratch.near, &scratch.far);
    let add = format!("filter add dev {near} ingress");
    let lines = [
        format!("qdisc add dev {near} clsact"),
        format!("{add} protocol 802.1Q flower vlan_prio 3 action skbedit priority 3"),
        format!("{add} protocol all matchall action mirred egress mirror dev {far}"),
    ];
    let words = |line: &String| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let added = lines.iter().try_for_each(|line| {
        let words = words(line);
        tool::run(Tool::Tc, &words.iter().map(String::as_str).collect::<Vec<_>>()).map(drop)
    });
    let removed = tool::run(Tool::Tc, &["qdisc", "del", "dev", near.as_str(), "clsact"]);
    added?;
    removed.map(|_| "both installed".to_owned())
}

fn vlan(scratch: &Scratch) -> Result<String, HostError> {
    let name = format!("{}.5", scratch.near);
    let add = format!(
        "link add link {} name {name} type vlan id 5 egress-qos-map 3:5 ingress-qos-map 5:3",
        scratch.near
    );
    tool::run(Tool::Ip, &add.split(' ').collect::<Vec<_>>())?;
    let shown = tool::run(Tool::Ip, &["-d", "-j", "link", "show", "dev", &name]);
    let removed = tool::run(Tool::Ip, &["link", "del", &name]);
    let shown: Value = serde_json::from_str(&shown?).unwrap_or_default();
    removed?;
    let maps = &shown[0]["linkinfo"]["info_data"];
    let pair = |map: &str| (maps[map][0]["from"].as_u64(), maps[map][0]["to"].as_u64());
    if (pair("egress_qos"), pair("ingress_qos")) == ((Some(3), Some(5)), (Some(5), Some(3))) {
        Ok("both maps read back the same".to_owned())
    } else {
        let why = io::Error::other(format!("the maps read back as {maps}"));
        Err(HostError::kernel("read a VLAN interface back", why))
    }
}

/// A frame of an EtherType for experiments, to everyone.
pub fn frame() -> [u8; 60] {
    let mut frame = [0; 60];
    frame[..6].fill(0xff);
    frame[6] = 0x02;
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame
}

fn packet_socket(scratch: &Scratch) -> io::Result<String> {
    let open = |interface, receive| {
        PacketSocket::open(
            interface,
            PacketOptions { receive, timestamps: true, buffer_bytes: 65_536 },
        )
    };
    let mut receiver = open(scratch.far_index, true)?;
    let sender = open(scratch.near_index, false)?;
    let memory = FrameMemory::new(1)?;
    sender.send(&memory, memory.write(0, &frame()))?;
    let mut seen = [Observed::default()];
    wait_for("no frame came", || Ok(receiver.observe(&mut seen)? > 0))?;
    Ok("a frame went there and back".to_owned())
}

/// Waits until something is so, for half a second at most.
pub fn wait_for(else_say: &str, mut so: impl FnMut() -> io::Result<bool>) -> io::Result<()> {
    for _ in 0..500 {
        if so()? {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(1));
    }
    Err(io::Error::new(io::ErrorKind::TimedOut, else_say.to_owned()))
}

fn loopback() -> io::Result<(UdpSocket, SocketAddr, SocketAddr)> {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let to = UdpSocket::bind(any)?;
    let address = to.local_addr()?;
    Ok((to, any, address))
}

fn launch_times() -> io::Result<String> {
    let (_to, any, address) = loopback()?;
    let options = TalkOptions { priority: 3, launch: Some(LaunchMode::default()) };
    let from = TalkSocket::<Tai>::udp(any, address, options)?;
    from.send(b"x", Some(clock::now::<Tai>()))?;
    Ok("a message with a time of TAI was taken".to_owned())
}

fn transmit_timestamps() -> io::Result<String> {
    let (_to, any, address) = loopback()?;
    let from = TalkSocket::<Tai>::udp(any, address, TalkOptions::default())?;
    error_queue::timestamp_messages(from.as_fd(), &[TxPoint::Sched, TxPoint::Send])?;
    from.send(b"x", None)?;
    let mut seen = BTreeSet::new();
    wait_for("no timestamps came", || {
        while let Some(report) = error_queue::take(from.as_fd())? {
            if let Report::Timestamped { point, .. } = report {
                seen.insert(point);
            }
        }
        Ok(seen.len() == 2)
    })?;
    Ok("before the queueing discipline and at the interface".to_owned())
}

fn receive_timestamps() -> io::Result<String> {
    let bind = || TimestampedUdp::bind(std::net::SocketAddrV4::new([127, 0, 0, 1].into(), 0));
    let (from, to) = (bind()?, bind()?);
    to.set_timeout(Span::from_ms(500))?;
    let address = to.local_address()?;
    from.send_to(b"x", address)?;
    let received = to.receive(&mut [0; 8])?;
    match received.and_then(|received| received.timestamp) {
        Some(_) => Ok("a message came with one".to_owned()),
        None => Err(io::Error::other("a message came without")),
    }
}

/// Where `/sys` shows the scratch interface.
fn sys_of(scratch: &Scratch) -> Result<PathBuf, ProbeOutcome> {
    if scratch.has_sys {
        return Ok(Path::new("/sys/class/net").join(scratch.near.as_str()));
    }
    Err(ProbeOutcome::Untried { why: "/sys of a namespace could not be mounted".to_owned() })
}

fn queue_cpus(scratch: &Scratch, file: &str) -> ProbeOutcome {
    let path = match sys_of(scratch) {
        Ok(dir) => dir.join("queues").join(file),
        Err(outcome) => return outcome,
    };
    if !path.exists() {
        return ProbeOutcome::Absent {
            said: format!("there is no file {file}: a kernel for one CPU"),
        };
    }
    let attempt = fs::write(&path, "1").and_then(|()| fs::read_to_string(&path));
    match attempt {
        Ok(text) if text.trim().ends_with('1') => works("a set of CPUs was set and read"),
        Ok(text) => ProbeOutcome::Absent { said: format!("1 was set and {} read", text.trim()) },
        Err(error) => of_io_error(&error),
    }
}

fn threaded_napi(scratch: &Scratch) -> ProbeOutcome {
    let dir = match sys_of(scratch) {
        Ok(dir) => dir,
        Err(outcome) => return outcome,
    };
    // A virtual interface is polled only when it joins packets or has XDP in its driver.
    let polled = tool::run(Tool::Ethtool, &["-K", scratch.near.as_str(), "gro", "on"]);
    if let Err(error) = polled {
        return of_tool_error(&error);
    }
    let path = dir.join("threaded");
    match fs::write(&path, "1").and_then(|()| fs::read_to_string(&path)) {
        Ok(text) if text.trim() == "1" => works("it was set and read"),
        Ok(text) => ProbeOutcome::Absent { said: format!("1 was set and {} read", text.trim()) },
        Err(error) => of_io_error(&error),
    }
}

/// Sleeps many times, as an ordinary thread and, where that is allowed, as a real-time one.
fn wake_ups() -> Vec<WakeUps> {
    let run = |policy: &str, wanted: Option<scheduler::Attributes>| {
        let sleeper = move || -> io::Result<Vec<i64>> {
            if let Some(wanted) = wanted {
                scheduler::set_attributes(0, &wanted)?;
            }
            clock::set_timer_slack(Span::from_ns(1))?;
            let mut late = Vec::with_capacity(SLEEPS);
            let mut until: Instant<Tai> = clock::now::<Tai>() + SLEEP;
            while late.len() < SLEEPS {
                clock::sleep_until(until);
                let now = clock::now::<Tai>();
                late.push((now - until).as_ns());
                until = now + SLEEP;
            }
            Ok(late)
        };
        let late = Statistics::of(thread::spawn(sleeper).join().ok()?.ok()?)?;
        Some(WakeUps {
            policy: policy.to_owned(),
            samples: u32::try_from(late.count).expect("invariant: a small count"),
            p50_ns: late.p50_ns,
            p99_ns: late.p99_ns,
            max_ns: late.max_ns,
        })
    };
    let priority = RtPriority::new(80).expect("invariant: 1 to 99");
    let fifo = scheduler::Attributes::fifo(priority);
    [run("other", None), run("fifo", Some(fifo))].into_iter().flatten().collect()
}

/// The clocks of NICs that there are device files of.
fn hardware_clocks(dev: &Path) -> Vec<HardwareClockProbe> {
    let entries = fs::read_dir(dev).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut indices: Vec<u32> =
        names.filter_map(|name| name.strip_prefix("ptp")?.parse().ok()).collect();
    indices.sort_unstable();
    indices.into_iter().map(|index| hardware_clock(dev, index)).collect()
}

fn hardware_clock(dev: &Path, index: u32) -> HardwareClockProbe {
    let name = read(Path::new(&format!("/sys/class/ptp/ptp{index}/clock_name")));
    let clock = HardwareClock::open(&dev.join(format!("ptp{index}")));
    let abilities = clock.as_ref().ok().and_then(|clock| clock.abilities().ok());
    let window = clock.as_ref().ok().and_then(|clock| clock.reading_window().ok());
    let read = clock.and_then(|clock| clock.now_ns()).map(|_| "it was read".to_owned());
    HardwareClockProbe {
        index,
        name: name.unwrap_or_default(),
        read: of_result(read),
        cross_timestamps: abilities.is_some_and(|abilities| abilities.cross_timestamps),
        external_timestamps: abilities.map_or(0, |abilities| abilities.external_timestamps),
        reading_window_ns: window.map(Span::as_ns),
    }
}

const LOCKED_BYTES: usize = 64 << 20;
/// So many sleeps of this length.
const SLEEPS: usize = 500;
const SLEEP: Span = Span::from_us(500);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_late_sleeps_of_a_busy_host_say_nothing_of_its_timers() {
        let (fine, tick) = (Span::from_ns(1), Span::from_ms(4));
        let us = |us: i64| Some(Span::from_us(us));
        let is_absent = |outcome: ProbeOutcome| matches!(outcome, ProbeOutcome::Absent { .. });
        assert!(of_sleeps(us(499), fine).works() && of_sleeps(us(499), tick).works());
        assert!(matches!(of_sleeps(us(611), fine), ProbeOutcome::Untried { .. }));
        assert!(is_absent(of_sleeps(us(611), tick)) && is_absent(of_sleeps(us(-1), fine)));
        // One in time is enough, and none is waited for after it.
        let mut asked = 0;
        let late = [700, 900, 650, 20, 10].map(Span::from_us);
        assert_eq!(earliest(late.into_iter().inspect(|_| asked += 1)), us(20));
        assert_eq!(asked, 4);
        assert_eq!(earliest([900, 700, 800].map(Span::from_us).into_iter()), us(700));
    }
}
