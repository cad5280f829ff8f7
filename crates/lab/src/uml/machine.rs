// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Running a command in a kernel of the laboratory. The machine sees the host's files, read only;
//! it ends with its command, and dies with the process that started it.
//!
//! Its time is [`Time::Virtual`] for exact and repeatable experiments: computing takes no time,
//! waiting takes exactly as long as it was asked for, and nothing of the host's load gets in.
//! A look at the clock advances it by 256 ns (linux v6.12 `arch/um/kernel/time.c:timer_read`), so
//! a program that spins on the clock makes time pass that slowly.

use std::fs::{self, File};
use std::io::{self, IsTerminal, PipeReader};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant as HostInstant};

use timewire_base::{Instant, Utc};
use timewire_sys::children::{GroupSignal, signal_group};
use timewire_sys::{Randomness, namespace, scheduler};

use super::{Kernel, registers};
use crate::LabError;
use crate::cache::Work;
use crate::guest::{CONTROL, GuestOutcome, INIT_VERB, Job, Share, Terminal};

/// How a machine's time passes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Time {
    /// As fast as events follow each other; computing takes no time.
    Virtual {
        /// What the machine's clock shows at its start.
        start: Instant<Utc>,
    },
    /// As the host's.
    Wall,
    /// As a master says, over the socket of the kernel's external time-travel protocol.
    Master {
        /// The master's socket.
        socket: PathBuf,
        /// By which the master knows the machine.
        id: u64,
        /// What the machine's clock shows at time zero of the master.
        start: Instant<Utc>,
    },
}

impl Time {
    /// Virtual time from the start of 2026 on: the same in every run.
    pub fn virtual_from_2026() -> Time {
        Time::Virtual { start: Instant::from_ns(EPOCH_NS) }
    }
}

/// Where the command's words go.
#[derive(Debug)]
pub enum Connection {
    /// Output and errors to these descriptors, as they come; read is this text.
    Descriptors {
        /// Standard output.
        output: OwnedFd,
        /// Standard error.
        errors: OwnedFd,
        /// What the command reads.
        input: Vec<u8>,
    },
    /// To a person's terminal, all of them.
    Terminal(OwnedFd),
    /// Kept, and returned at the end.
    Kept,
}

/// One machine that is to run.
#[derive(Debug)]
pub struct Machine {
    /// The program that is its first process: one that begins with [`crate::enter_guest`].
    pub init: PathBuf,
    /// The command.
    pub command: Vec<String>,
    /// Where it starts; a directory of the host.
    pub directory: PathBuf,
    /// Its environment.
    pub environment: Vec<(String, String)>,
    /// Directories of the host that it may write to.
    pub writable: Vec<PathBuf>,
    /// **Units**: MiB.
    pub memory_mib: u32,
    /// How its time passes.
    pub time: Time,
    /// Where its words go.
    pub connection: Connection,
    /// More for the kernel's command line, such as devices.
    pub kernel_arguments: Vec<String>,
    /// More descriptors that the kernel's program finds open, each under a number above 63. What is
    /// named through `/proc/self/fd` has the same name in every run.
    pub descriptors: Vec<(OwnedFd, i32)>,
    /// Whether the kernel's random numbers come from the host, or are the same in every run.
    pub randomness: Randomness,
    /// After so long on the host it is killed.
    pub limit: Option<Duration>,
    /// The CPU of the host that it runs on; without, the next in turn.
    pub cpu: Option<u32>,
}

impl Machine {
    /// A machine that runs a command of the host in virtual time and keeps what it says.
    pub fn new(init: &Path, command: &[&str]) -> Machine {
        Machine {
            init: init.to_owned(),
            command: command.iter().map(|&word| word.to_owned()).collect(),
            directory: "/".into(),
            environment: vec![("PATH".to_owned(), USUAL_PATH.to_owned())],
            writable: Vec::new(),
            memory_mib: MEMORY_MIB,
            time: Time::virtual_from_2026(),
            connection: Connection::Kept,
            kernel_arguments: Vec::new(),
            descriptors: Vec::new(),
            randomness: Randomness::OfTheHost,
            limit: None,
            cpu: None,
        }
    }

    /// Runs it to its end.
    ///
    /// **Errors**: the kernel did not start, the command could not be started in it, it ended
    /// without an outcome (its last words are in the error), or the limit was reached.
    pub fn run(self, kernel: &Kernel) -> Result<Finished, LabError> {
        self.start(kernel)?.wait()
    }

    /// Starts it. It dies with the calling thread.
    ///
    /// **Errors**: as [`Machine::run`], as far as they show at once.
    pub fn start(self, kernel: &Kernel) -> Result<Running, LabError> {
        if !kernel.about().has_time_travel() && self.time != Time::Wall {
            return Err(LabError::Spec {
                why: format!(
                    "kernel {} has no virtual time; use wall time, or a kernel that \
                     `timewire lab uml` builds",
                    kernel.about().release
                ),
            });
        }
        let control = Control::make()?;
        let job = self.job(kernel, control.path());
        control.write_job(&job)?;
        if let Connection::Descriptors { input, .. } = &self.connection {
            let path = control.path().join("stdin");
            fs::write(&path, input).map_err(LabError::file("write", &path))?;
        }
        let limit = self.limit.map(|limit| HostInstant::now() + limit);
        let started = HostInstant::now();
        let mib = self.memory_mib;
        let (child, relays) = self.spawn(kernel, &control)?;
        Ok(Running { child: Some(child), control, limit, started, mib, relays })
    }

    fn job(&self, kernel: &Kernel, control: &Path) -> Job {
        let shares = self.writable.iter().map(|path| hostfs(path, path)).collect();
        Job {
            command: self.command.clone(),
            directory: self.directory.clone(),
            environment: self.environment.clone(),
            shares,
            modules: kernel.modules(),
            terminal: match self.connection {
                Connection::Descriptors { .. } => {
                    Terminal::Pipes { output: "/dev/tty0".into(), errors: "/dev/tty1".into() }
                }
                Connection::Terminal(_) => Terminal::Interactive { device: "/dev/tty0".into() },
                Connection::Kept => Terminal::Files,
            },
            repeatable: self.randomness == Randomness::None,
            control: hostfs(control, Path::new(CONTROL)),
            sealed: false,
        }
    }

    fn spawn(
        self,
        kernel: &Kernel,
        control: &Control,
    ) -> Result<(Child, Vec<Receiver<()>>), LabError> {
        let failed = |what: &str| LabError::file("prepare a machine:", Path::new(what));
        let log = control.create("kernel.log")?;
        let mut command = Command::new(kernel.program());
        command.args(self.kernel_arguments_for());
        let directory = File::open(control.path()).map_err(failed("its control directory"))?;
        let quiet = log.try_clone().map_err(failed("kernel.log"))?;
        let noise = log.try_clone().map_err(failed("kernel.log"))?;
        command.stdin(Stdio::null()).stdout(quiet).stderr(noise).env_clear();
        // For the machine's memory: in the host's memory, where there is room for it.
        for variable in ["TMPDIR", "PATH"] {
            if let Some(value) = std::env::var_os(variable) {
                command.env(variable, value);
            }
        }
        if let Some(library) = registers::preload(kernel)? {
            command.env("LD_PRELOAD", library);
        }
        let (cpu, randomness) = (self.cpu.or_else(next_cpu), self.randomness);
        let mut descriptors = self.descriptors;
        descriptors.extend([(OwnedFd::from(log), KERNEL_FD), (directory.into(), CONTROL_FD)]);
        let mut relays = Vec::new();
        match self.connection {
            Connection::Descriptors { output, errors, .. } => {
                for (descriptor, number) in [(output, OUT_FD), (errors, ERR_FD)] {
                    let descriptor = match descriptor.is_terminal() {
                        true => relayed(descriptor, &mut relays).map_err(failed("a pipe"))?,
                        false => descriptor,
                    };
                    descriptors.push((descriptor, number));
                }
            }
            Connection::Terminal(terminal) => {
                let copy = terminal.as_fd().try_clone_to_owned().map_err(failed("terminal"))?;
                descriptors.extend([(terminal, IN_FD), (copy, OUT_FD)]);
            }
            Connection::Kept => {}
        }
        let child = namespace::spawn_machine(command, descriptors, cpu, randomness)
            .map_err(LabError::file("start", &kernel.program()))?;
        Ok((child, relays))
    }

    /// The same in every run: it is part of what the kernel's random numbers are made from.
    fn kernel_arguments_for(&self) -> Vec<String> {
        let control = Path::new("/proc/self/fd").join(CONTROL_FD.to_string());
        let mut line = vec![
            format!("mem={}M", self.memory_mib),
            "root=/dev/root rootfstype=hostfs rootflags=/ ro".to_owned(),
            format!("init={}", self.init.display()),
            format!("uml_dir={}/", control.display()),
            "umid=machine panic=-1 loglevel=7".to_owned(),
            // The kernel's words are kept apart from the command's.
            format!("con=null con2=null,fd:{KERNEL_FD} console=tty2"),
        ];
        match self.connection {
            Connection::Descriptors { .. } => {
                line.push(format!("con0=null,fd:{OUT_FD} con1=null,fd:{ERR_FD}"));
            }
            Connection::Terminal(_) => line.push(format!("con0=fd:{IN_FD},fd:{OUT_FD}")),
            Connection::Kept => {}
        }
        line.push(match &self.time {
            Time::Virtual { start } => {
                format!("time-travel=inf-cpu time-travel-start={}", start.as_ns())
            }
            Time::Wall => String::new(),
            Time::Master { socket, id, start } => format!(
                "time-travel=ext:{id}:{} time-travel-start={}",
                socket.display(),
                start.as_ns()
            ),
        });
        if self.randomness == Randomness::None {
            // The device that feeds the host's randomness in by and by.
            line.push("initcall_blacklist=rng_init".to_owned());
        }
        let words = line.iter().flat_map(|part| part.split(' ')).filter(|word| !word.is_empty());
        let mut words: Vec<String> = words.map(str::to_owned).collect();
        words.extend(self.kernel_arguments.iter().cloned());
        words.push("--".to_owned());
        words.extend([INIT_VERB.to_owned(), control.join(JOB).display().to_string()]);
        words
    }
}

/// The kernel and the programs inside it hand over to each other at every system call, and never
/// run at the same time: on one CPU that takes a quarter of the time it takes on two. Machines
/// that run beside each other are spread.
fn next_cpu() -> Option<u32> {
    static NEXT_CPU: AtomicU32 = AtomicU32::new(0);
    let cpus = scheduler::affinity(0).ok().filter(|cpus| !cpus.is_empty())?;
    let turn = NEXT_CPU.fetch_add(1, Ordering::Relaxed).wrapping_add(std::process::id());
    cpus.get(usize::try_from(turn).unwrap_or(0) % cpus.len()).copied()
}

/// The writing end of a pipe whose bytes go to a terminal. The kernel would set up a terminal of
/// its own accord so that Ctrl-C is a byte like any other, for nobody.
fn relayed(terminal: OwnedFd, relays: &mut Vec<Receiver<()>>) -> io::Result<OwnedFd> {
    let (reader, writer) = io::pipe()?;
    let (tell, done) = channel();
    let pass_on = move |mut reader: PipeReader| {
        // A terminal that is gone does not end the machine.
        let _ = io::copy(&mut reader, &mut File::from(terminal));
        let _ = tell.send(());
    };
    thread::Builder::new().name("words".to_owned()).spawn(move || pass_on(reader))?;
    relays.push(done);
    Ok(writer.into())
}

fn hostfs(of_host: &Path, at: &Path) -> Share {
    Share {
        path: at.to_owned(),
        writable: true,
        kind: "hostfs".to_owned(),
        source: of_host.display().to_string(),
    }
}

/// A machine that runs. Dropping it kills it.
#[derive(Debug)]
pub struct Running {
    child: Option<Child>,
    control: Control,
    limit: Option<HostInstant>,
    started: HostInstant,
    mib: u32,
    /// Each tells when all words to a terminal are there.
    relays: Vec<Receiver<()>>,
}

/// How a machine ended.
#[derive(Clone, Debug)]
pub struct Finished {
    /// The command's end.
    pub outcome: GuestOutcome,
    /// What it wrote, where that was to be kept.
    pub output: Vec<u8>,
    /// Its errors, where they were to be kept.
    pub errors: Vec<u8>,
    /// How long it took on the host, from the start of the kernel to its end.
    pub host_time: Duration,
}

impl Running {
    /// Waits for its end.
    ///
    /// **Errors**: it ended without an outcome, or was killed because of its limit.
    pub fn wait(mut self) -> Result<Finished, LabError> {
        let mut child = self.child.take().expect("invariant: waited for once");
        let status = match self.limit {
            None => child.wait().map_err(LabError::file("wait for", Path::new("the machine"))),
            Some(limit) => wait_until(&mut child, limit),
        };
        let status = match status {
            Ok(status) => status,
            Err(error) => {
                self.child = Some(child);
                return Err(error);
            }
        };
        let host_time = self.started.elapsed();
        let _ = self.relays.iter().all(|relay| relay.recv_timeout(AFTER_THE_END).is_ok());
        let outcome = self.control.outcome(status, self.mib)?;
        let kept = |name: &str| fs::read(self.control.path().join(name)).unwrap_or_default();
        Ok(Finished { outcome, output: kept("stdout"), errors: kept("stderr"), host_time })
    }

    /// Waits for its end, or until that is not wanted any more, which is asked in between; then it
    /// is killed. What its command has written to files of the host is kept.
    ///
    /// **Errors**: as [`Running::wait`]; [`LabError::EndRequested`].
    pub fn wait_while(mut self, is_wanted: &mut dyn FnMut() -> bool) -> Result<Finished, LabError> {
        while !self.has_ended()? {
            if !is_wanted() {
                return Err(LabError::EndRequested);
            }
            thread::sleep(POLL_INTERVAL);
        }
        self.wait()
    }

    /// Whether it has ended.
    ///
    /// **Errors**: the host does not say.
    pub fn has_ended(&mut self) -> Result<bool, LabError> {
        let Some(child) = &mut self.child else { return Ok(true) };
        let ended = child.try_wait();
        Ok(ended.map_err(LabError::file("wait for", Path::new("the machine")))?.is_some())
    }

    /// The last lines of its kernel.
    pub fn kernel_log(&self) -> String {
        self.control.last_words()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // The kernel leads a group of its own, with the processes that stand for those in the
            // machine: one that it has just made would stay, stopped. Once it has been waited for,
            // another group may have its number.
            if matches!(child.try_wait(), Ok(None)) {
                let _ = signal_group(child.id(), GroupSignal::Kill);
            }
            // Both fail only when it has ended already.
            let _ = child.kill();
            let _ = child.wait();
            let _ = self.relays.iter().all(|relay| relay.recv_timeout(AFTER_THE_END).is_ok());
        }
    }
}

fn wait_until(child: &mut Child, limit: HostInstant) -> Result<ExitStatus, LabError> {
    loop {
        let ended = child.try_wait();
        match ended.map_err(LabError::file("wait for", Path::new("the machine")))? {
            Some(status) => return Ok(status),
            None if HostInstant::now() > limit => {
                return Err(LabError::Guest {
                    why: "it did not end within its time on the host and was killed".to_owned(),
                    log: String::new(),
                });
            }
            None => thread::sleep(POLL_INTERVAL),
        }
    }
}

/// A directory of the host that a machine and its owner share. It goes with its owner.
#[derive(Debug)]
pub(crate) struct Control(Work);

impl Control {
    /// Whoever makes one also removes those of killed owners.
    pub(crate) fn make() -> Result<Control, LabError> {
        let below = std::env::temp_dir();
        let below = fs::canonicalize(&below).map_err(LabError::file("find", &below))?;
        Ok(Control(Work::below(&below, "timewire-machine")?))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn create(&self, name: &str) -> Result<File, LabError> {
        let path = self.path().join(name);
        File::create(&path).map_err(LabError::file("create", &path))
    }

    pub(crate) fn write_job(&self, job: &Job) -> Result<(), LabError> {
        let path = self.path().join(JOB);
        let text = serde_json::to_vec(job).expect("invariant: plain values");
        fs::write(&path, text).map_err(LabError::file("write", &path))
    }

    /// What became of the command of a machine that has ended and had so much memory.
    pub(crate) fn outcome(&self, status: ExitStatus, mib: u32) -> Result<GuestOutcome, LabError> {
        let failed = |why: String| LabError::Guest { why, log: self.last_words() };
        let path = self.path().join("outcome.json");
        let text = fs::read_to_string(&path).map_err(|_| {
            match out_of_memory(&self.kernel_log(), mib) {
                Some(error) => error,
                None => failed(format!("it ended ({status}) before its command did")),
            }
        })?;
        let outcome: GuestOutcome = serde_json::from_str(&text)
            .map_err(|error| failed(format!("its outcome cannot be read: {error}")))?;
        match outcome.failure {
            Some(why) => Err(LabError::Guest { why, log: String::new() }),
            None => Ok(outcome),
        }
    }

    fn kernel_log(&self) -> String {
        let log = fs::read(self.path().join("kernel.log")).unwrap_or_default();
        String::from_utf8_lossy(&log).replace('\r', "")
    }

    pub(crate) fn last_words(&self) -> String {
        let log = self.kernel_log();
        let lines: Vec<_> = log.lines().filter(|line| !line.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
    }
}

/// Whether a kernel says that it had too little memory.
///
/// **Source**: linux v6.12 `mm/oom_kill.c:check_panic_on_oom`, `out_of_memory`, `dump_header`;
/// `mem_cgroup_out_of_memory`; `init/initramfs.c:do_copy`.
fn out_of_memory(log: &str, mib: u32) -> Option<LabError> {
    // A control group that ran out of its own memory is told of in other words.
    const SAYS: [&str; 3] = [
        "Out of memory",
        "System is deadlocked on memory",
        "Initramfs unpacking failed: write error",
    ];
    if !SAYS.iter().any(|says| log.contains(says)) {
        return None;
    }
    // `[   12.345678] NAME invoked oom-killer: gfp_mask=...`
    let program = log.lines().find_map(|line| {
        let before = line.split_once(" invoked oom-killer")?.0;
        Some(before.rsplit_once("] ").map_or(before, |(_, name)| name).trim().to_owned())
    });
    Some(LabError::OutOfMemory { machine: "the laboratory's machine".to_owned(), mib, program })
}

const EPOCH_NS: i64 = 1_767_225_600_000_000_000;
const MEMORY_MIB: u32 = 256;
pub(crate) const JOB: &str = "job.json";
pub(crate) const USUAL_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const LAST_LINES: usize = 15;
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// For the last words of a machine that has ended.
const AFTER_THE_END: Duration = Duration::from_secs(1);
/// Numbers that no other descriptor of the kernel's program has.
const CONTROL_FD: i32 = 59;
const KERNEL_FD: i32 = 60;
const IN_FD: i32 = 61;
const OUT_FD: i32 = 62;
const ERR_FD: i32 = 63;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_a_kernel_without_memory_is_told_from_one_that_failed() {
        let program = |log: &str| match out_of_memory(log, 128) {
            Some(LabError::OutOfMemory { mib: 128, program, .. }) => Some(program),
            _ => None,
        };
        let killer = "[    0.000000] tail invoked oom-killer: gfp_mask=0x140cca\nMem-Info:\n\
            [    0.000000] Kernel panic - not syncing: Out of memory: system-wide";
        assert_eq!(program(killer), Some(Some("tail".to_owned())));
        for log in [
            "[    1.0] Kernel panic - not syncing: Out of memory: system-wide panic_on_oom",
            "[    1.0] Kernel panic - not syncing: System is deadlocked on memory",
            "[    0.5] Initramfs unpacking failed: write error",
        ] {
            assert_eq!(program(log), Some(None), "{log}");
        }
        for log in [
            "",
            "[    1.0] Kernel panic - not syncing: Attempted to kill init!",
            "[    1.0] Freeing unused kernel image (initmem) memory: 2048K",
        ] {
            assert_eq!(program(log), None, "{log}");
        }
    }

    #[test]
    fn t0_a_group_that_ran_out_of_its_own_memory_is_no_machine_that_did() {
        let log = "[    1.0] tail invoked oom-killer: gfp_mask=0x140cca\n\
            [    1.0] Memory cgroup out of memory: Killed process 26 (tail)";
        assert!(out_of_memory(log, 128).is_none());
    }
}
