// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a running program costs for a frame: CPU time as the scheduler counts it, between two
//! moments of its steady state, and instructions as valgrind counts them, as the difference of two
//! runs. Start-up and end are in neither.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::command::{line_of, output_of};

pub const NEAR: &str = "near0";
pub const FAR: &str = "far0";
pub const FAR_NAMESPACE: &str = "far";
pub const FAR_ADDRESS: &str = "02:00:00:00:00:02";
pub const FAR_IP: &str = "10.99.0.2";
/// Frames before the steady state is taken to begin.
const WARM: u64 = 200;
const TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A talker and its listener.
pub struct Pair {
    pub talker: Command,
    pub listener: Command,
    /// Whether the talker connects to its listener first.
    pub connects: bool,
}

/// A program that ends with this value.
pub struct Running {
    child: Child,
    line: String,
}

impl Running {
    pub fn start(command: &mut Command) -> Result<Running, String> {
        let line = line_of(command);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let child = command.spawn().map_err(|error| format!("{line}: {error}"))?;
        Ok(Running { child, line })
    }

    fn failed(&mut self, what: &str) -> String {
        let mut said = String::new();
        let _ = self.child.kill();
        if let Some(mut stderr) = self.child.stderr.take() {
            let _ = std::io::Read::read_to_string(&mut stderr, &mut said);
        }
        let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
        format!("{}: {what}: {}", self.line, last.trim())
    }

    /// Waits until something is so, for as long as the program lives.
    fn until(&mut self, what: &str, holds: impl Fn(u32) -> bool) -> Result<(), String> {
        let deadline = Instant::now() + TIMEOUT;
        while !holds(self.child.id()) {
            let ended = self.child.try_wait().is_ok_and(|status| status.is_some());
            if ended || Instant::now() > deadline {
                return Err(self.failed(what));
            }
            sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    pub fn ended(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + TIMEOUT;
        while self.child.try_wait().map_err(|error| error.to_string())?.is_none() {
            if Instant::now() > deadline {
                return Err(self.failed("did not end"));
            }
            sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// CPU time of all its threads. **Units**: ns.
    fn cpu_ns(&self) -> u64 {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id()));
        tasks.into_iter().flatten().flatten().map(|task| run_ns(&task.path())).sum()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The virtual cable, in the network and mount namespace of this process, which is its own.
///
/// **Errors**: a tool is missing or refuses.
pub fn lay_cable() -> Result<(), String> {
    // Sockets and namespaces by name stay in here.
    tool("mount -t tmpfs tmpfs /run")?;
    tool(&format!("ip netns add {FAR_NAMESPACE}"))?;
    for inside in ["", "ip netns exec far "] {
        for scope in ["all", "default"] {
            tool(&format!("{inside}sysctl -qw net.ipv6.conf.{scope}.disable_ipv6=1"))?;
        }
        tool(&format!("{inside}ip link set lo up"))?;
    }
    tool(&format!(
        "ip link add {NEAR} address 02:00:00:00:00:01 type veth peer name {FAR} address \
         {FAR_ADDRESS} netns {FAR_NAMESPACE}"
    ))?;
    tool(&format!("ip addr add 10.99.0.1/24 dev {NEAR}"))?;
    tool(&format!("ip netns exec far ip addr add {FAR_IP}/24 dev {FAR}"))?;
    tool(&format!("ip link set {NEAR} up"))?;
    tool(&format!("ip netns exec far ip link set {FAR} up"))?;
    // Frames from XDP are taken by this end only so.
    tool(&format!("ip netns exec far ethtool -K {FAR} gro on"))
}

fn tool(line: &str) -> Result<(), String> {
    let mut words = line.split(' ');
    let mut command = Command::new(words.next().unwrap_or_default());
    output_of(command.args(words)).map(drop)
}

/// The same program at the far end of the cable.
pub fn far(program: &Path) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", FAR_NAMESPACE]).arg(program);
    command
}

/// CPU time for a frame, of the talker and of the listener. **Units**: ns.
///
/// **Errors**: one of them does not run.
pub fn cpu_per_frame(pair: &mut Pair, window: Duration) -> Result<[f64; 2], String> {
    let listener = started(&mut pair.listener, pair.connects)?;
    let before = frames(listener.child.id(), FAR).0;
    let mut talker = Running::start(&mut pair.talker)?;
    let far_end = listener.child.id();
    let flows = |_| frames(far_end, FAR).0 >= before + WARM;
    talker.until("no frames", flows)?;
    let sample = |talker: &Running, listener: &Running| {
        (frames(talker.child.id(), NEAR).1, [talker.cpu_ns(), listener.cpu_ns()])
    };
    let (first, cpu) = sample(&talker, &listener);
    sleep(window);
    let (last, cpu_after) = sample(&talker, &listener);
    let frames = last.saturating_sub(first);
    if frames < WARM {
        return Err(talker.failed("the frames stopped"));
    }
    Ok([0, 1].map(|of| per(cpu_after[of].saturating_sub(cpu[of]), frames)))
}

/// How long the talker and the listener compute for a frame between calls of the kernel: from the
/// end of one to the beginning of the next, with what telling of it costs; not where another
/// program took the processor meanwhile. **Units**: ns.
///
/// **Errors**: one of them does not run, or bpftrace does not.
pub fn own_per_frame(pair: &mut Pair, window: Duration) -> Result<[f64; 2], String> {
    let listener = started(&mut pair.listener, pair.connects)?;
    let before = frames(listener.child.id(), FAR).0;
    let mut talker = Running::start(&mut pair.talker)?;
    let far_end = listener.child.id();
    talker.until("no frames", |_| frames(far_end, FAR).0 >= before + WARM)?;
    let pids = [talker.child.id(), listener.child.id()];
    let program = between_calls(pids, window);
    let told = output_of(Command::new("bpftrace").args(["-f", "json", "-e"]).arg(program))?;
    own_of(&told, pids).ok_or_else(|| format!("bpftrace tells nothing of {pids:?}: {told}"))
}

fn between_calls([one, other]: [u32; 2], window: Duration) -> String {
    let these = format!("pid == {one} || pid == {other}");
    format!(
        "tracepoint:raw_syscalls:sys_exit /{these}/ {{ @since[tid] = nsecs; }}
         tracepoint:raw_syscalls:sys_enter /({these}) && @since[tid]/ {{
             @ns[pid] = sum(nsecs - @since[tid]);
         }}
         tracepoint:sched:sched_switch {{ delete(@since[args->prev_pid]); }}
         tracepoint:net:net_dev_xmit /str(args->name) == \"{NEAR}\"/ {{ @frames = count(); }}
         interval:ms:{} {{ exit(); }}",
        window.as_millis()
    )
}

/// What bpftrace's maps say, for a frame.
fn own_of(told: &str, pids: [u32; 2]) -> Option<[f64; 2]> {
    let maps = told.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let data: Vec<Value> = maps.filter(|line| line["type"] == "map").collect();
    let of = |name: &str| data.iter().find_map(|line| line["data"].get(name));
    let frames = of("@frames")?.as_u64().filter(|frames| *frames > 0)?;
    let mut each = pids.map(|pid| of("@ns")?.get(pid.to_string())?.as_u64()).into_iter();
    Some([per(each.next()??, frames), per(each.next()??, frames)])
}

/// CPU time of a program that sends so many frames as fast as it can, until all have arrived, with
/// that of the kernel's threads which hand them on. **Units**: ns.
///
/// **Errors**: it does not run, or frames are lost.
pub fn cpu_of_flood(talker: &mut Command, count: u64) -> Result<u64, String> {
    let mut witness = Running::start(far(Path::new("sleep")).arg("600"))?;
    let pid = witness.child.id();
    witness.until("no far end", |pid| has(pid, FAR))?;
    let before = frames(pid, FAR).0;
    let helpers = softirq_threads();
    let of_helpers = || helpers.iter().map(|it| run_ns(it)).sum::<u64>();
    let helped = of_helpers();
    let mut talker = Running::start(talker)?;
    talker.until("not all frames arrived", |_| frames(pid, FAR).0 >= before + count)?;
    Ok(talker.cpu_ns() + of_helpers().saturating_sub(helped))
}

/// Instructions in user space.
#[derive(Clone, Copy)]
pub struct Counted {
    /// Of the talker's first thread,
    pub first: u64,
    /// and of its others.
    pub others: u64,
    pub listener: u64,
    /// Of the program that makes a table of what was sent and received, if it is one apart.
    pub report: u64,
}

/// What a pair costs from its start to its end, and then its report, if that is another program.
///
/// **Errors**: one of them does not run, or valgrind does not.
pub fn instructions(pair: &mut Pair, report: Option<&mut Command>) -> Result<Counted, String> {
    let outputs = ["/run/talker.cg", "/run/listener.cg"];
    let mut listener = started(&mut counted(&pair.listener, outputs[1]), pair.connects)?;
    let mut talker = Running::start(&mut counted(&pair.talker, outputs[0]))?;
    talker.ended()?;
    // One that counts its frames has ended; the others are told to.
    sleep(Duration::from_millis(500));
    let pid = listener.child.id().to_string();
    let _ = output_of(Command::new("kill").args(["-TERM", &pid]));
    listener.ended()?;
    let (first, others) = totals(outputs[0]).map_err(|why| talker.failed(&why))?;
    let heard = totals(outputs[1]).map_err(|why| listener.failed(&why))?;
    let report = report.map_or(Ok(0), |report| {
        let output = "/run/report.cg";
        let mut report = Running::start(&mut counted(report, output))?;
        report.ended()?;
        totals(output).map(|(first, others)| first + others).map_err(|why| report.failed(&why))
    })?;
    Ok(Counted { first, others, listener: heard.0 + heard.1, report })
}

/// A listener that is ready.
pub fn started(command: &mut Command, connects: bool) -> Result<Running, String> {
    let mut listener = Running::start(command)?;
    listener.until("does not listen", |pid| {
        has(pid, FAR) && frames_are_read(pid) && (!connects || accepts(pid))
    })?;
    Ok(listener)
}

/// Whether its namespace has a packet socket.
fn frames_are_read(pid: u32) -> bool {
    read(&format!("/proc/{pid}/net/packet")).lines().count() > 1
}

/// Whether its namespace has a TCP socket that listens.
fn accepts(pid: u32) -> bool {
    let listens = |table| {
        let table = read(&format!("/proc/{pid}/net/{table}"));
        table.lines().any(|line| line.split_whitespace().nth(3) == Some("0A"))
    };
    listens("tcp") || listens("tcp6")
}

fn has(pid: u32, interface: &str) -> bool {
    counters(&read(&format!("/proc/{pid}/net/dev")), interface).is_some()
}

/// Frames that an interface of its namespace received and sent.
fn frames(pid: u32, interface: &str) -> (u64, u64) {
    counters(&read(&format!("/proc/{pid}/net/dev")), interface).unwrap_or_default()
}

fn counters(table: &str, interface: &str) -> Option<(u64, u64)> {
    let of = |line: &str| {
        line.trim_start().strip_prefix(interface)?.strip_prefix(':').map(str::to_owned)
    };
    let line = table.lines().find_map(of)?;
    let numbers: Vec<u64> = line.split_whitespace().map_while(|it| it.parse().ok()).collect();
    Some((*numbers.get(1)?, *numbers.get(9)?))
}

/// How long a thread has run. **Units**: ns.
fn run_ns(task: &Path) -> u64 {
    let text = fs::read_to_string(task.join("schedstat")).unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
}

fn softirq_threads() -> Vec<PathBuf> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_one = |path: &PathBuf| {
        fs::read_to_string(path.join("comm")).is_ok_and(|name| name.starts_with("ksoftirqd/"))
    };
    processes.map(|process| process.path()).filter(is_one).collect()
}

/// The same command with its instructions counted.
fn counted(command: &Command, output: &str) -> Command {
    let options = ["--tool=callgrind", "--separate-threads=yes"].map(str::to_owned);
    let file = format!("--callgrind-out-file={output}");
    under_valgrind(command, &options.into_iter().chain([file]).collect::<Vec<_>>())
}

/// The same command under valgrind, with these options.
pub fn under_valgrind(command: &Command, options: &[String]) -> Command {
    let words: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
    // What is started inside a namespace by another program is what counts.
    let is_far = command.get_program() == "ip";
    let (before, rest) = words.split_at(if is_far { 3 } else { 0 });
    let mut line: Vec<std::ffi::OsString> = Vec::new();
    if is_far {
        line.push("ip".into());
    }
    line.extend(before.iter().cloned());
    line.push("valgrind".into());
    line.extend(options.iter().map(Into::into));
    if !is_far {
        line.push(command.get_program().to_owned());
    }
    line.extend(rest.iter().cloned());
    let mut under = Command::new(&line[0]);
    under.args(&line[1..]);
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            under.env(name, value);
        }
    }
    under
}

/// What was counted of the first thread and of the others; the files are removed.
fn totals(output: &str) -> Result<(u64, u64), String> {
    let path = Path::new(output);
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let directory = path.parent().unwrap_or(Path::new("/"));
    let (mut first, mut others) = (0, 0);
    for entry in fs::read_dir(directory).map_err(|error| error.to_string())?.flatten() {
        let file = entry.file_name().to_string_lossy().into_owned();
        let Some(thread) = file.strip_prefix(&format!("{name}-")) else { continue };
        let text = read(&entry.path().to_string_lossy());
        let _ = fs::remove_file(entry.path());
        let totals = text.lines().find_map(|line| line.strip_prefix("totals: "));
        let total = totals.and_then(|it| it.trim().parse::<u64>().ok()).unwrap_or(0);
        *(if thread == "01" { &mut first } else { &mut others }) += total;
    }
    if first + others == 0 {
        Err("no instructions counted".to_owned())
    } else {
        Ok((first, others))
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

#[expect(clippy::cast_precision_loss, reason = "nanoseconds of minutes, counts of millions")]
pub fn per(amount: u64, frames: u64) -> f64 {
    amount as f64 / frames.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_the_counters_of_an_interface_are_found() {
        let table = "Inter-|  Receive\n face |bytes\n    lo: 1 2 0 0 0 0 0 0 3 4 0 0 0 0 0 0\n \
                     far0: 516 6 0 0 0 0 0 0 426 5 0 0 0 0 0 0\n";
        assert_eq!(counters(table, "far0"), Some((6, 5)));
        assert_eq!(counters(table, "lo"), Some((2, 4)));
        assert_eq!(counters(table, "far"), None);
    }

    #[test]
    fn t0_time_between_calls_is_shared_among_frames() {
        let told = r#"{"type": "attached_probes", "data": {"probes": 4}}

{"type": "map", "data": {"@frames": 4}}
{"type": "map", "data": {"@ns": {"7": 10, "8": 6}}}"#;
        assert_eq!(format!("{:?}", own_of(told, [7, 8])), "Some([2.5, 1.5])");
        assert_eq!(own_of(told, [7, 9]), None);
        assert_eq!(own_of(&told.replace("\"@frames\": 4", "\"@frames\": 0"), [7, 8]), None);
        assert!(between_calls([7, 8], Duration::from_secs(2)).contains("interval:ms:2000 "));
    }

    #[test]
    fn t0_what_is_counted_is_the_program_itself() {
        let near = counted(Command::new("/x/prog").args(["a", "b"]), "/run/o");
        let words = line_of(&near);
        assert!(words.starts_with("valgrind --tool=callgrind"), "{words}");
        assert!(words.ends_with("--callgrind-out-file=/run/o /x/prog a b"), "{words}");
        let words = line_of(&counted(far(Path::new("/x/prog")).arg("a"), "/run/o"));
        assert!(words.starts_with("ip netns exec far valgrind"), "{words}");
        assert!(words.ends_with("=/run/o /x/prog a"), "{words}");
    }
}
