// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A host of its own for each test: mount, network and process namespaces with an empty `/run`, so
//! that tests run side by side, see nobody else's MACs and laboratories, and leave nothing.
//!
//! Not here: anything that knows what a command should say.

pub mod interrupted;

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The program under test.
pub const TIMEWIRE: &str = env!("CARGO_BIN_EXE_timewire");
/// A user without any privilege.
pub const NOBODY: u32 = 65_534;

/// What a command said and how it ended.
#[derive(Debug)]
pub struct Said {
    /// Exit code; none when a signal ended it.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Said {
    fn of(output: Output) -> Said {
        let text = |bytes| String::from_utf8(bytes).expect("output is UTF-8");
        Said {
            code: output.status.code(),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }

    /// It did what it was asked for.
    #[track_caller]
    pub fn done(self) -> Said {
        assert_eq!(self.code, Some(0), "{self:?}");
        self
    }

    /// It ended with this code, wrote nothing to stdout and this to stderr.
    #[track_caller]
    pub fn failed(self, code: i32, stderr: &str) {
        assert_eq!(
            (self.code, self.stdout.as_str(), self.stderr.as_str()),
            (Some(code), "", stderr)
        );
    }

    /// Its stdout as JSON.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Runs a command to its end.
#[track_caller]
pub fn run(command: &mut Command) -> Said {
    Said::of(command.stdin(Stdio::null()).output().expect("the command starts"))
}

/// `timewire` with these arguments, without a host of its own: for what changes nothing.
#[track_caller]
pub fn timewire(arguments: &[&str]) -> Said {
    // However slow the machine is, stderr has what is wrong.
    run(Command::new(TIMEWIRE).args(arguments).env("TIMEWIRE_PROGRESS", "0"))
}

/// Whether there is a kernel of the laboratory to test with; says so when not.
#[track_caller]
pub fn has_kernel() -> bool {
    let has = timewire(&["lab", "exec", "--", "true"]).code == Some(0);
    if !has {
        eprintln!("SKIP: no laboratory kernel here; `timewire lab uml` builds one");
    }
    has
}

/// Between two looks at something that is waited for: who waits leaves the processors to it.
pub const MOMENT: Duration = Duration::from_millis(2);

/// Waits until a condition holds; panics with its name after a long while.
#[track_caller]
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !holds() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        std::thread::sleep(MOMENT);
    }
}

/// A directory that goes away with the value. Everybody may enter it.
pub struct Scratch(tempfile::TempDir);

impl Scratch {
    pub fn new() -> Scratch {
        let all = fs::Permissions::from_mode(0o755);
        let place = tempfile::Builder::new().prefix("timewire-cli-").permissions(all).tempdir();
        Scratch(place.expect("a directory that nobody else has"))
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes a file; its path.
    /// Writes `hosts.yaml` with these stations and the addresses of their agents.
    pub fn hosts<A: std::fmt::Display>(&self, stations: &[(&str, A)]) -> String {
        let line =
            |(name, agent): &(&str, A)| format!("  - {{ name: {name}, agent: '{agent}' }}\n");
        let stations: String = stations.iter().map(line).collect();
        self.write("hosts.yaml", &format!("timewire: 1\nkind: hosts\nstations:\n{stations}"))
    }

    /// Writes a file.
    pub fn write(&self, name: &str, text: &str) -> String {
        fs::write(self.path().join(name), text).expect("scratch takes files");
        self.join(name)
    }

    /// The names in it, sorted.
    pub fn list(&self) -> Vec<String> {
        list(self.path())
    }

    /// The path of a file in it.
    pub fn join(&self, name: &str) -> String {
        self.path().join(name).to_str().expect("a plain path").to_owned()
    }
}

/// A host of its own. All that was started in it ends with it.
pub struct Host {
    watchdog: Child,
    /// Its first process, as the outside numbers it.
    init: u32,
    scratch: Scratch,
}

impl Host {
    /// `None`, after saying why, where no such host can be made.
    pub fn start() -> Option<Host> {
        let mut unshare = Command::new("unshare");
        unshare.args(["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]);
        // It lives as long as its stdin, which ends with this process at the latest.
        let init = "mount -t tmpfs tmpfs /run && mkdir -p /var/lib/timewire && \
                    mount -t tmpfs tmpfs /var/lib/timewire && ip link set lo up && echo ready && \
                    exec cat";
        unshare.args(["sh", "-c", init]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let Ok(output) = Command::new("id").arg("-u").output() else { return skip("no `id`") };
        if output.stdout != b"0\n" {
            return skip("needs root");
        }
        let Ok(mut watchdog) = unshare.spawn() else { return skip("no `unshare`") };
        let mut line = String::new();
        let stdout = watchdog.stdout.take().expect("stdout is piped");
        let read = BufReader::new(stdout).read_line(&mut line);
        if read.is_err() || line != "ready\n" {
            let _ = watchdog.wait();
            return skip("no namespaces");
        }
        let init = children_of(watchdog.id())[0];
        Some(Host { watchdog, init, scratch: Scratch::new() })
    }

    /// A directory for this host's files.
    pub fn scratch(&self) -> &Scratch {
        &self.scratch
    }

    /// A path as this host has it, for the test to open.
    pub fn see(&self, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{path}", self.init))
    }

    /// The names in a directory of this host, sorted; none when there is no such directory.
    pub fn list(&self, directory: &str) -> Vec<String> {
        list(&self.see(directory))
    }

    /// The file that is a network namespace of this host: its own (`""`) or a named one.
    pub fn netns(&self, name: &str) -> PathBuf {
        match name {
            "" => PathBuf::from(format!("/proc/{}/ns/net", self.init)),
            _ => self.see(&format!("/run/netns/{name}")),
        }
    }

    /// A command in this host, in its directory.
    pub fn command(&self, netns: &str, words: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--target={}", self.init)).args(["--mount", "--pid"]);
        command.arg(format!("--net={}", self.netns(netns).display()));
        command.arg(format!("--wdns={}", self.scratch.path().display())).arg("--").args(words);
        // As for `timewire` below.
        command.env("TIMEWIRE_PROGRESS", "0");
        command
    }

    /// Runs a command that succeeds; its stdout.
    #[track_caller]
    pub fn tool(&self, line: &str) -> String {
        self.tool_in("", line)
    }

    /// The same, in a named network namespace.
    #[track_caller]
    pub fn tool_in(&self, netns: &str, line: &str) -> String {
        self.tool_words(netns, &line.split_whitespace().collect::<Vec<_>>())
    }

    /// The same, of words that may have spaces in them.
    #[track_caller]
    pub fn tool_words(&self, netns: &str, words: &[&str]) -> String {
        run(&mut self.command(netns, words)).done().stdout
    }

    /// Runs `timewire`.
    #[track_caller]
    pub fn timewire(&self, arguments: &[&str]) -> Said {
        self.timewire_in("", arguments)
    }

    /// The same, in a named network namespace.
    #[track_caller]
    pub fn timewire_in(&self, netns: &str, arguments: &[&str]) -> Said {
        run(self.command(netns, &[TIMEWIRE]).args(arguments))
    }

    /// Starts `timewire` and lets it run.
    pub fn spawn(&self, arguments: &[&str]) -> Running {
        self.spawn_in("", &[&[TIMEWIRE], arguments].concat())
    }

    /// Starts a command in a named network namespace and lets it run.
    pub fn spawn_in(&self, netns: &str, words: &[&str]) -> Running {
        let mut command = self.command(netns, words);
        let out = |name: &str| File::create(self.scratch.path().join(name)).expect("a file");
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let (stdout, stderr) = (format!("{count}.stdout"), format!("{count}.stderr"));
        command.stdin(Stdio::null()).stdout(out(&stdout)).stderr(out(&stderr));
        let mut entry = command.spawn().expect("nsenter starts");
        // The command itself is the only child of the one that enters.
        let mut pid = None;
        wait_until("the command runs", || {
            pid = children_of(entry.id()).first().copied();
            pid.is_some() || entry.try_wait().expect("our child").is_some()
        });
        let files = [self.scratch.path().join(stdout), self.scratch.path().join(stderr)];
        Running { entry, pid, files }
    }

    /// All processes of this host that run, without its first: number outside, number inside and
    /// command line.
    pub fn processes(&self) -> Vec<Process> {
        let ours = fs::read_link(format!("/proc/{}/ns/pid", self.init)).expect("it runs");
        let mut found = Vec::new();
        for pid in numbers_in("/proc").filter(|pid| *pid != self.init) {
            if fs::read_link(format!("/proc/{pid}/ns/pid")).is_ok_and(|ns| ns == ours)
                && let Some(process) = Process::read(pid)
            {
                found.push(process);
            }
        }
        found
    }

    /// The processes whose command line contains a word.
    pub fn processes_with(&self, word: &str) -> Vec<Process> {
        let mut found = self.processes();
        found.retain(|process| process.command.split(' ').any(|part| part == word));
        found
    }

    /// Nothing of Timewire runs, and nothing is left in `/run`, of namespaces and of interfaces.
    /// The watchdogs may need a moment for it.
    #[track_caller]
    pub fn is_clean(&self) {
        let mut left = String::new();
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let processes: Vec<_> = self.processes().into_iter().filter(Process::is_ours).collect();
            // The last words of a MAC in the background may stay.
            let files = self.list("/run/timewire").into_iter();
            let files = files.filter(|name| name != "journal" && !name.ends_with(".log"));
            let files: Vec<_> = files.chain(self.list("/run/timewire/journal")).collect();
            let namespaces: Vec<_> =
                self.list("/run/netns").into_iter().filter(|n| n.starts_with("twlab-")).collect();
            let links = self.tool("ip -o link show");
            let links: Vec<_> = links.lines().filter(|line| line.contains("tw0")).collect();
            if processes.is_empty() && files.is_empty() && namespaces.is_empty() && links.is_empty()
            {
                return;
            }
            let found = format!("{processes:?} {files:?} {namespaces:?} {links:?}");
            // Only a state that does not change any more is a failure.
            assert!(found != left || Instant::now() < deadline, "left behind: {found}");
            left = found;
            std::thread::sleep(MOMENT);
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // Killing the watchdog kills the first process, and with it all others.
        let _ = self.watchdog.kill();
        let _ = self.watchdog.wait();
    }
}

fn skip(why: &str) -> Option<Host> {
    eprintln!("SKIP: {why}");
    None
}

/// A process of a host.
#[derive(Clone, Debug)]
pub struct Process {
    /// Its number outside.
    pub pid: u32,
    /// Its number inside the host.
    pub inside: u32,
    pub command: String,
}

impl Process {
    /// `None` when it has ended.
    fn read(pid: u32) -> Option<Process> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let field = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name))?;
            line.split_whitespace().last()
        };
        if status.lines().any(|line| line.starts_with("State:") && line.contains('Z')) {
            return None;
        }
        let inside = field("NSpid:")?.parse().ok()?;
        let command = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        Some(Process { pid, inside, command: command.trim_end().to_owned() })
    }

    /// Whether it is of the program, or a watchdog, which is started by another name.
    pub fn is_ours(&self) -> bool {
        self.command.contains(TIMEWIRE) || self.command.contains(" __watchdog ")
    }

    pub fn signal(&self, signal: &str) {
        send_signal(self.pid, signal);
    }

    pub fn has_ended(&self) -> bool {
        Process::read(self.pid).is_none()
    }
}

/// A command that goes on while the test does something else.
pub struct Running {
    entry: Child,
    /// The command itself; none when it ended at once.
    pid: Option<u32>,
    files: [PathBuf; 2],
}

impl Running {
    /// Its number outside.
    pub fn pid(&self) -> u32 {
        self.pid.expect("it runs")
    }

    /// Its number inside the host.
    pub fn inside(&self) -> u32 {
        Process::read(self.pid()).expect("it runs").inside
    }

    /// Sends it a signal; gone already is fine.
    pub fn signal(&self, signal: &str) {
        if let Some(pid) = self.pid {
            send_signal(pid, signal);
        }
    }

    pub fn has_ended(&mut self) -> bool {
        self.entry.try_wait().expect("our child").is_some()
    }

    /// What it has written to stderr so far.
    pub fn stderr(&self) -> String {
        fs::read_to_string(&self.files[1]).expect("a file of ours")
    }

    /// Waits for its end; what it said.
    pub fn end(mut self) -> Said {
        let status: ExitStatus = self.entry.wait().expect("our child");
        let [stdout, stderr] = self.files.clone().map(|path| fs::read(path).expect("our file"));
        Said::of(Output { status, stdout, stderr })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.entry.try_wait(), Ok(None)) {
            self.signal("KILL");
            let _ = self.entry.wait();
        }
    }
}

/// Sends a signal; gone already is fine.
pub fn send_signal(pid: u32, signal: &str) {
    let mut kill = Command::new("sh");
    kill.args(["-c", &format!("kill -{signal} {pid}")]).stderr(Stdio::null());
    let _ = kill.status();
}

/// The processes that a process has started, as this one numbers them.
pub fn children_of(parent: u32) -> Vec<u32> {
    let is_child = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The name is in parentheses and may contain anything; then the state, then the parent.
        let rest = stat.rsplit(')').next().unwrap_or_default();
        rest.split_whitespace().nth(1) == Some(&parent.to_string())
    };
    numbers_in("/proc").filter(is_child).collect()
}

fn numbers_in(directory: &str) -> impl Iterator<Item = u32> {
    let entries = fs::read_dir(directory).expect("a directory").flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The names in a directory, sorted; none when there is no such directory.
pub fn list(directory: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let mut names: Vec<_> =
        entries.flatten().map(|entry| entry.file_name().into_string().expect("UTF-8")).collect();
    names.sort();
    names
}

/// A scenario of two stations that runs in a moment.
pub struct Tiny {
    pub name: &'static str,
    /// The list of cases, in braces.
    pub cases: &'static str,
    /// More top-level keys.
    pub more: &'static str,
}

/// Plain Ethernet, and TDM with priorities.
pub const BOTH_CASES: &str = "{ name: plain, title: Plain, change: { schedule: null } }, \
     { name: tdm, title: TDM }";
/// Plain Ethernet only.
pub const PLAIN_CASE: &str = "{ name: plain, title: Plain, change: { schedule: null } }";

impl Tiny {
    pub fn text(&self) -> String {
        let Tiny { name, cases, more } = self;
        // `more` may have a `mac` of its own.
        let mac = if more.contains("mac:") { "" } else { "mac: { queue_frames: 64 }\n" };
        format!(
            "timewire: 1
name: {name}
kind: network
duration: 250ms
warm_up: 50ms
segments: [{{ rate: 100Mbit }}]
stations:
  - {{ name: alpha, address: 10.77.0.1/24 }}
  - {{ name: beta, address: 10.77.0.2/24 }}
schedule:
  kind: tdm
  cycle_time: 1ms
  guard: 50us
  slots:
    - {{ station: alpha, transmit: 450us }}
    - {{ station: beta, transmit: 450us }}
{mac}queues:
  send: [{{ port: 15001, priority: 1 }}]
  recv: [{{ port: 15001, priority: 1 }}]
streams:
  - name: control
    kind: request-response
    talker: alpha
    listeners: beta
    port: 15001
    size: 64B
    class: 7
    deadline: 1ms
    timeout: 100ms
experiment:
  quick_duration: 250ms
  loads: [alone]
  cases: [{cases}]
{more}"
        )
    }
}

/// A host with two stations, `phy0` of the host itself and `phy0` of its namespace `beta`, on one
/// segment, and a scenario for both.
pub struct Segment {
    pub host: Host,
    /// The scenario: stations `alpha` and `beta`.
    pub file: String,
}

impl Segment {
    /// `None`, after saying why, where no such host can be made.
    pub fn start() -> Option<Segment> {
        Segment::with("")
    }

    /// The same, with more keys in the scenario.
    pub fn with(more: &'static str) -> Option<Segment> {
        let host = Host::start()?;
        host.tool("ip netns add beta");
        for netns in ["", "beta"] {
            // Addresses are there at once, without looking for another station that has them.
            let quiet = "echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad";
            run(&mut host.command(netns, &["sh", "-c", quiet])).done();
        }
        host.tool("ip link add phy0 type veth peer name phy0 netns beta");
        host.tool("ip link set phy0 up");
        host.tool_in("beta", "ip link set phy0 up");
        let text = Tiny { name: "tiny", cases: BOTH_CASES, more }.text();
        let file = host.scratch().write("tiny.yaml", &text);
        Some(Segment { host, file })
    }

    /// Starts the MAC of a station under its name, and waits until it answers.
    pub fn foreground(&self, netns: &str, station: &str, more: &[&str]) -> Running {
        let words = ["tdm", "start", "phy0", "--foreground", "--clock", "one-host"];
        let names = ["--file", &self.file, "--station", station, "--name", station];
        let words = [&[TIMEWIRE], &words[..], &names[..], more].concat();
        let mut running = self.host.spawn_in(netns, &words);
        wait_until("the MAC answers", || {
            assert!(!running.has_ended(), "it ended: {}", running.stderr());
            self.host.timewire(&["tdm", "show", "--name", station]).code == Some(0)
        });
        running
    }
}
