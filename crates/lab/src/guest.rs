// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Inside a laboratory machine: the first process. The program that starts a machine is also the
//! machine's first process, and does there what a [`Job`] says: mounts, one command, switching off.
//!
//! ```text
//! /        the host's files, read only       /dev /proc /sys   the machine's own
//! /tmp     the host's, changes are lost      /run              empty, in memory
//! shares   directories of the host, at their own place, writable if they are so
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::{self, PipeWriter, Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use timewire_base::Utc;
use timewire_sys::file::{self, Access};
use timewire_sys::{clock, machine};

/// The argument that tells a program that it is the first process of a machine; the job's file
/// follows.
pub const INIT_VERB: &str = "__lab-init";

/// What a machine does; `job.json` in its control directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Where it starts.
    pub directory: PathBuf,
    /// Its environment, and nothing else.
    pub environment: Vec<(String, String)>,
    /// Directories of the host.
    pub shares: Vec<Share>,
    /// Kernel modules to load first, in this order.
    pub modules: Vec<PathBuf>,
    /// Where the command's words go, and where it reads.
    pub terminal: Terminal,
    /// Whether random numbers are to be the same in every run.
    pub repeatable: bool,
    /// How the directory for [`GuestOutcome`] is reached; the machine has it at [`CONTROL`].
    pub control: Share,
    /// Nothing of the host is seen, nor that directory, before the command has ended.
    pub sealed: bool,
}

/// Where a machine has the directory that it shares with its owner.
pub const CONTROL: &str = "/run/timewire-control";

/// A directory of the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Share {
    /// Where the machine has it: at the same place, as a rule.
    pub path: PathBuf,
    /// Whether the machine may change it.
    pub writable: bool,
    /// The kind of file system that reaches the host: `hostfs`, or `9p` with a tag in `source`.
    pub kind: String,
    /// What the kind needs to know.
    pub source: String,
}

/// How the machine's command is connected to the outside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Terminal {
    /// Output and errors are pipes, whose bytes go on to these devices as they come. What is read
    /// is the file `stdin` of the control directory, or nothing.
    Pipes {
        /// For example `/dev/tty0`.
        output: PathBuf,
        /// For example `/dev/tty1`.
        errors: PathBuf,
    },
    /// One device for all three, as its controlling terminal.
    Interactive {
        /// For example `/dev/tty0`.
        device: PathBuf,
    },
    /// Nothing is read; words go to files of the control directory: `stdout`, `stderr`.
    Files,
}

/// How it ended; `outcome.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuestOutcome {
    /// The command's exit code; 128 and the signal's number when it was killed, as in a shell.
    pub code: u8,
    /// What kept it from being started, in words.
    pub failure: Option<String>,
    /// The machine's time when the command started,
    pub started_ns: i64,
    /// and when it had ended.
    pub ended_ns: i64,
}

/// Whether this process was started as the first of a machine; then the job's file.
pub fn job_of(arguments: &[String]) -> Option<PathBuf> {
    match arguments {
        [_, verb, job, ..] if verb == INIT_VERB && std::process::id() == 1 => Some(job.into()),
        _ => None,
    }
}

/// Does the job and switches the machine off.
///
/// It never returns: without its first process a machine panics.
pub fn init_main(file: &Path) -> ! {
    let error = match read_job(file) {
        Ok(job) => {
            let outcome = perform(&job);
            report(&job, &outcome)
        }
        Err(error) => Err(error),
    };
    if let Err(error) = error {
        // To the kernel's log: there is no other place.
        let _ = fs::write("/dev/kmsg", format!("timewire: {error}\n"));
        eprintln!("timewire: {error}");
    }
    let refused = machine::power_off();
    eprintln!("timewire: cannot switch off: {refused}");
    std::process::exit(1)
}

fn read_job(file: &Path) -> Result<Job, String> {
    let text = fs::read_to_string(file).map_err(|e| format!("cannot read the job: {e}"))?;
    serde_json::from_str(&text).map_err(|e| format!("{} is no job: {e}", file.display()))
}

fn perform(job: &Job) -> GuestOutcome {
    let started_ns = now();
    let ended = set_up(job).and_then(|()| run(job));
    let ended_ns = now();
    match ended {
        Ok(status) => GuestOutcome { code: exit_code(status), failure: None, started_ns, ended_ns },
        Err(failure) => GuestOutcome { code: 127, failure: Some(failure), started_ns, ended_ns },
    }
}

fn now() -> i64 {
    clock::now::<Utc>().as_ns()
}

fn exit_code(status: ExitStatus) -> u8 {
    let killed = status.signal().map(|signal| 128 + signal);
    u8::try_from(status.code().or(killed).unwrap_or(255)).unwrap_or(255)
}

/// Written beside and renamed: whoever sees it sees all of it.
fn report(job: &Job, outcome: &GuestOutcome) -> Result<(), String> {
    if job.sealed {
        mount_share(&job.control).map_err(|error| format!("cannot reach the owner: {error}"))?;
    }
    let text = serde_json::to_vec(outcome).expect("invariant: plain values");
    let whole = Path::new(CONTROL).join("outcome.json");
    let written = file::replace(&whole, &text, Access::Umask);
    written.map_err(|error| format!("cannot write {}: {error}", whole.display()))
}

fn set_up(job: &Job) -> Result<(), String> {
    for (kind, target, data) in NEEDED {
        match machine::mount(kind, Path::new(target), data, true) {
            // The kernel has mounted it by itself.
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {}
            mounted => {
                mounted.map_err(|error| format!("cannot mount {kind} on {target}: {error}"))?
            }
        }
    }
    // First of all, so that what goes wrong later can be told.
    if !job.sealed {
        mount_share(&job.control).map_err(|error| format!("cannot reach the owner: {error}"))?;
    }
    if job.control.kind == "9p" && !job.sealed {
        // Without it the machine does the same; it only waits for its host at any moment.
        let _ = read_own_code();
    }
    // In virtual time a kernel that looks for memory can do so for ever; its owner is to know.
    let _ = fs::write("/proc/sys/vm/panic_on_oom", "1");
    // Modules first: the file systems below may be among them.
    for module in &job.modules {
        load(module)?;
    }
    for (kind, target, data) in OPTIONAL {
        // What this kernel lacks the command will miss, or not.
        let _ = fs::create_dir_all(target);
        let _ = machine::mount(kind, Path::new(target), data, true);
    }
    for (link, target) in LINKS {
        let _ = std::os::unix::fs::symlink(target, link);
    }
    if job.repeatable {
        machine::seed_random(SEED).map_err(|error| format!("cannot seed randomness: {error}"))?;
    }
    writable_tmp().map_err(|error| format!("cannot make /tmp writable: {error}"))?;
    for share in &job.shares {
        mount_share(share)
            .map_err(|error| format!("cannot reach {}: {error}", share.path.display()))?;
    }
    // So that file modes are what programs ask for.
    let _ = fs::write("/proc/sys/kernel/hostname", "timewire-lab");
    machine::loopback_up().map_err(|error| format!("cannot switch lo on: {error}"))
}

/// Reads all code of this program from the host at once, and the machine keeps it. A page that
/// comes at its first use keeps its process waiting, and meanwhile the time of a machine that has
/// nothing else to do goes on to whatever is due next: a process that ends can so take seconds.
fn read_own_code() -> io::Result<()> {
    for line in fs::read_to_string("/proc/self/maps")?.lines() {
        let Some((path, start, length)) = file_of(line) else { continue };
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(start))?;
        io::copy(&mut file.take(length), &mut io::sink())?;
    }
    Ok(())
}

/// The file of a mapping, from which byte on, and how many: `START-END MODE OFFSET DEVICE INODE
/// PATH` (proc_pid_maps(5)).
fn file_of(line: &str) -> Option<(&Path, u64, u64)> {
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    let (fields, path) = line.split_at(line.find('/')?);
    let mut fields = fields.split_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let length = number(end)?.checked_sub(number(start)?)?;
    Some((Path::new(path), number(fields.nth(1)?)?, length))
}

fn load(module: &Path) -> Result<(), String> {
    let compressed = module.extension().is_some_and(|kind| kind == "xz" || kind == "zst");
    File::open(module)
        .and_then(|file| machine::load_module(&file, compressed))
        .map_err(|error| format!("cannot load the module {}: {error}", module.display()))
}

/// The host's, below a layer in memory; without the kernel's support for that, empty.
fn writable_tmp() -> io::Result<()> {
    let (upper, work) = ("/run/tmp/changes", "/run/tmp/work");
    fs::create_dir_all(upper)?;
    fs::create_dir_all(work)?;
    let layers = format!("lowerdir=/tmp,upperdir={upper},workdir={work}");
    machine::mount("overlay", Path::new("/tmp"), &layers, true)
        .or_else(|_| machine::mount("tmpfs", Path::new("/tmp"), "mode=1777", true))
}

fn mount_share(share: &Share) -> io::Result<()> {
    fs::create_dir_all(&share.path)?;
    match share.kind.as_str() {
        "9p" => {
            let (kind, tag) = (&share.kind, &share.source);
            machine::mount_from(kind, tag, &share.path, OVER_9P, share.writable)
        }
        kind => machine::mount(kind, &share.path, &share.source, share.writable),
    }
}

fn run(job: &Job) -> Result<ExitStatus, String> {
    let Some((program, arguments)) = job.command.split_first() else {
        return Err("the job has no command".to_owned());
    };
    let mut command = Command::new(program);
    command.args(arguments).current_dir(&job.directory).env_clear();
    command.envs(job.environment.iter().map(|(name, value)| (name, value)));
    let connected = connect(job, &mut command)?;
    let started = match connected {
        Connected::Terminal => machine::spawn_on_terminal(command),
        _ => {
            let started = command.spawn();
            drop(command);
            started
        }
    };
    // With the command go this process's copies of the descriptors that it was given.
    let mut child = started.map_err(|error| {
        format!("cannot run `{program}` in {}: {error}", job.directory.display())
    })?;
    let ended = child.wait().map_err(|error| format!("cannot wait for `{program}`: {error}"));
    if let Connected::Relays(relays) = connected {
        relays.finish();
    }
    ended
}

/// How the command is connected.
enum Connected {
    Terminal,
    Files,
    Relays(Relays),
}

/// Threads that pass on what a command says.
struct Relays {
    relays: Vec<Relay>,
    devices: Vec<File>,
}

/// One of them.
struct Relay {
    done: Receiver<()>,
    passed: Arc<Passed>,
}

/// **Units**: bytes.
#[derive(Default)]
struct Passed {
    read: AtomicU64,
    written: AtomicU64,
}

impl Relays {
    /// Waits until all that the command has said is outside, however slowly that goes. What other
    /// processes still have to say is not waited for when they stay silent, or never end.
    fn finish(self) {
        self.relays.iter().for_each(Relay::finish);
        for device in &self.devices {
            let _ = machine::drain_terminal(device.as_fd());
        }
    }
}

impl Relay {
    fn finish(&self) {
        let read = || self.passed.read.load(Ordering::Acquire);
        let written = || self.passed.written.load(Ordering::Acquire);
        let most = read() + PIPE_BYTES;
        let mut before = written();
        while self.done.recv_timeout(AFTER_THE_END) == Err(RecvTimeoutError::Timeout) {
            let now = written();
            let is_idle = now == before && now == read();
            if is_idle || now >= most {
                break;
            }
            before = now;
        }
    }
}

/// Gives a command its standard descriptors.
fn connect(job: &Job, command: &mut Command) -> Result<Connected, String> {
    let open = |path: &Path| {
        OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .map_err(|error| format!("cannot open {}: {error}", path.display()))
    };
    let copy = |file: &File| {
        file.try_clone().map_err(|error| format!("cannot copy a descriptor: {error}"))
    };
    match &job.terminal {
        Terminal::Pipes { output, errors } => {
            command.stdin(match File::open(Path::new(CONTROL).join("stdin")) {
                Ok(file) => Stdio::from(file),
                Err(_) => Stdio::null(),
            });
            let (output, errors) = (open(output)?, open(errors)?);
            let (says, output_relay) = relay(copy(&output)?)?;
            let (warns, errors_relay) = relay(copy(&errors)?)?;
            command.stdout(says).stderr(warns);
            let relays = vec![output_relay, errors_relay];
            Ok(Connected::Relays(Relays { relays, devices: vec![output, errors] }))
        }
        Terminal::Interactive { device } => {
            let device = open(device)?;
            command.stdin(copy(&device)?).stdout(copy(&device)?).stderr(device);
            Ok(Connected::Terminal)
        }
        Terminal::Files => {
            let create = |name: &str| {
                let path = Path::new(CONTROL).join(name);
                File::create(&path)
                    .map_err(|error| format!("cannot create {}: {error}", path.display()))
            };
            command.stdin(Stdio::null()).stdout(create("stdout")?).stderr(create("stderr")?);
            Ok(Connected::Files)
        }
    }
}

/// The writing end of a pipe whose bytes go to a device.
fn relay(device: File) -> Result<(PipeWriter, Relay), String> {
    machine::raw_terminal(device.as_fd())
        .map_err(|error| format!("cannot set up a terminal: {error}"))?;
    let (reader, writer) = io::pipe().map_err(|error| format!("cannot make a pipe: {error}"))?;
    Ok((writer, pass_on(reader, device)))
}

/// Passes on what comes until there is an end.
fn pass_on(mut from: impl Read + Send + 'static, mut to: impl Write + Send + 'static) -> Relay {
    let (tell, done) = channel();
    let passed = Arc::new(Passed::default());
    let counts = Arc::clone(&passed);
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            let bytes = u64::try_from(count).expect("invariant: a buffer's length");
            counts.read.fetch_add(bytes, Ordering::Release);
            if to.write_all(&buffer[..count]).is_err() {
                break;
            }
            counts.written.fetch_add(bytes, Ordering::Release);
        }
        let _ = tell.send(());
    });
    Relay { done, passed }
}

/// Any will do.
const SEED: [u8; 32] = *b"the same in every run, for ever.";
const AFTER_THE_END: Duration = Duration::from_secs(1);
/// What a pipe holds, and a little.
const PIPE_BYTES: u64 = 70_000;
/// Nothing of a writable directory is kept in the machine's memory.
const OVER_9P: &str = "trans=virtio,version=9p2000.L,msize=512000,cache=none";
const NEEDED: [(&str, &str, &str); 4] = [
    ("proc", "/proc", ""),
    ("sysfs", "/sys", ""),
    ("devtmpfs", "/dev", ""),
    ("tmpfs", "/run", "mode=0755"),
];
const OPTIONAL: [(&str, &str, &str); 6] = [
    ("devpts", "/dev/pts", "mode=620,ptmxmode=666"),
    ("tmpfs", "/dev/shm", "mode=1777"),
    ("mqueue", "/dev/mqueue", ""),
    ("bpf", "/sys/fs/bpf", ""),
    ("cgroup2", "/sys/fs/cgroup", ""),
    ("debugfs", "/sys/kernel/debug", ""),
];
const LINKS: [(&str, &str); 4] = [
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
    ("/dev/stderr", "/proc/self/fd/2"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_only_the_first_process_is_a_machines() {
        let arguments = ["x", INIT_VERB, "/job.json"].map(str::to_owned);
        assert_eq!(job_of(&arguments), None);
        assert_eq!(job_of(&[]), None);
    }

    #[test]
    fn t0_exit_codes_are_those_of_a_shell() {
        for (raw, code) in [(0, 0), (3 << 8, 3), (9, 137), (15, 143)] {
            assert_eq!(exit_code(ExitStatus::from_raw(raw)), code);
        }
    }

    #[test]
    fn t0_the_files_of_a_programs_code_are_found() {
        let line = "55fa8ab7c000-55fa8ab81000 r-xp 00002000 fe:00 247026    /usr/bin/a cat";
        assert_eq!(file_of(line), Some((Path::new("/usr/bin/a cat"), 0x2000, 0x5000)));
        for none in ["7f0c-7f0d rw-p 00000000 00:00 0", "7ffd-7ffe r-xp 0 00:00 0 [vdso]", "x /"] {
            assert_eq!(file_of(none), None, "{none}");
        }
        read_own_code().unwrap();
    }

    /// Takes its time for each write.
    struct Slow(Arc<AtomicU64>);

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            std::thread::sleep(AFTER_THE_END * 5 / 4);
            let count = bytes.len().min(1500);
            self.0.fetch_add(u64::try_from(count).unwrap(), Ordering::Relaxed);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn t0_what_was_said_is_outside_however_slow_that_is() {
        let outside = Arc::new(AtomicU64::new(0));
        // Another process keeps the pipe open and stays silent.
        let (reader, mut writer) = io::pipe().unwrap();
        let relay = pass_on(reader, Slow(Arc::clone(&outside)));
        writer.write_all(&[1; 4000]).unwrap();
        relay.finish();
        assert_eq!(outside.load(Ordering::Relaxed), 4000);
    }

    /// Takes what comes.
    struct Fast(Arc<AtomicU64>);

    impl Write for Fast {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            std::thread::sleep(Duration::from_millis(5));
            self.0.fetch_add(u64::try_from(bytes.len()).unwrap(), Ordering::Relaxed);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn t0_one_that_never_stops_talking_does_not_keep_the_machine() {
        let outside = Arc::new(AtomicU64::new(0));
        let relay = pass_on(io::repeat(1), Fast(Arc::clone(&outside)));
        relay.finish();
        assert!(outside.load(Ordering::Relaxed) >= PIPE_BYTES);
    }

    #[test]
    fn t0_a_job_survives_its_file() {
        let job = Job {
            command: vec!["true".to_owned()],
            directory: "/".into(),
            environment: vec![("A".to_owned(), "b=c".to_owned())],
            shares: vec![],
            modules: vec![],
            terminal: Terminal::Files,
            repeatable: true,
            control: Share {
                path: CONTROL.into(),
                writable: true,
                kind: "hostfs".to_owned(),
                source: "/x".to_owned(),
            },
            sealed: false,
        };
        let text = serde_json::to_string(&job).unwrap();
        assert_eq!(serde_json::from_str::<Job>(&text).unwrap(), job);
    }
}
