// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Running a command in an emulated machine. It sees the host's files, read only; it ends with its
//! command, and dies with the process that started it.
//!
//! One instruction takes one nanosecond of the machine's time, and time in which it has nothing to
//! do is skipped (`-icount shift=0,sleep=off`): the host's load changes how long a run takes, not
//! what happens in it, but for one thing: the time at which a file of the host arrives. A machine
//! that is sealed sees none, and its runs are the same.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use timewire_base::wire::MacAddress;

use timewire_sys::{Randomness, namespace, scheduler};

use super::init::{self, EXIT_PORT, HOST, Next};
use super::{Kernel, image};
use crate::LabError;
use crate::guest::{CONTROL, Job, Share, Terminal};
use crate::uml::machine::{Control, JOB, USUAL_PATH};
use crate::uml::{Connection, Finished};

/// One machine that is to run.
#[derive(Debug)]
pub struct Machine {
    /// The program that starts it: one that begins with [`crate::enter_guest`], by its path.
    pub init: PathBuf,
    /// The command.
    pub command: Vec<String>,
    /// Where it starts; a directory of the host.
    pub directory: PathBuf,
    /// Its environment.
    pub environment: Vec<(String, String)>,
    /// Directories of the host that it may write to.
    pub writable: Vec<PathBuf>,
    /// Programs of the host, by name or path: the machine has these and their libraries, and sees
    /// nothing else of the host. So nothing of the host's speed gets in, and the same experiment
    /// has the same timestamps. `None`: it sees the host's files.
    pub sealed: Option<Vec<PathBuf>>,
    /// **Units**: MiB.
    pub memory_mib: u32,
    /// NICs (igb), 0 to [`MAX_NICS`], all on one hub: `eth0`, `eth1`, ... with a clock
    /// (`/dev/ptp0`, ...) and hardware timestamps.
    pub nics: u32,
    /// Where its words go; not a terminal.
    pub connection: Connection,
    /// After so long on the host it is killed.
    pub limit: Option<Duration>,
}

/// Most NICs of a machine.
pub const MAX_NICS: u32 = 8;

impl Machine {
    /// A machine that runs a command of the host and keeps what it says.
    pub fn new(init: &Path, command: &[&str]) -> Machine {
        Machine {
            init: init.to_owned(),
            command: command.iter().map(|&word| word.to_owned()).collect(),
            directory: "/".into(),
            environment: vec![("PATH".to_owned(), USUAL_PATH.to_owned())],
            writable: Vec::new(),
            sealed: None,
            memory_mib: MEMORY_MIB,
            nics: 0,
            connection: Connection::Kept,
            limit: None,
        }
    }

    /// Runs it to its end.
    ///
    /// **Errors**: it did not start, its command could not be started in it, it ended without an
    /// outcome (its last words are in the error), or the limit was reached.
    pub fn run(self, kernel: &Kernel) -> Result<Finished, LabError> {
        self.run_while(kernel, &mut || true)
    }

    /// The same, or until that is not wanted any more, which is asked in between; then it is
    /// killed. What its command has written to files of the host is kept.
    ///
    /// **Errors**: as [`Machine::run`]; [`LabError::EndRequested`].
    pub fn run_while(
        self,
        kernel: &Kernel,
        is_wanted: &mut dyn FnMut() -> bool,
    ) -> Result<Finished, LabError> {
        self.check()?;
        let to = match &self.connection {
            Connection::Kept => None,
            Connection::Descriptors { output, errors, .. } => Some((output, errors)),
            Connection::Terminal(_) => None,
        };
        let to = to.map(|(output, errors)| Ok([output.try_clone()?, errors.try_clone()?]));
        let to = to.transpose().map_err(LabError::file("copy", Path::new("a descriptor")))?;
        let control = Control::make()?;
        control.write_job(&self.job())?;
        if let Connection::Descriptors { input, .. } = &self.connection {
            let path = control.path().join(INPUT);
            fs::write(&path, input).map_err(LabError::file("write", &path))?;
        }
        // The kernel's words come through the emulator, which opens it anew.
        drop(control.create(LOG)?);
        let words = [grows(&control, OUTPUT)?, grows(&control, ERRORS)?];
        let command = self.emulator(kernel, &control)?;
        let archive = fs::metadata(control.path().join(INITRD)).map_or(0, |file| file.len());
        let (sealed, mib) = (self.sealed.is_some(), self.memory_mib);
        let started = Instant::now();
        let until = self.limit.map(|limit| started + limit);
        let failed = LabError::file("start", &kernel.emulator());
        let mut child = spawn(command, sealed).map_err(failed)?;
        let mut end = || match until.is_some_and(|until| Instant::now() > until) {
            true => Some(End::Limit),
            false => (!is_wanted()).then_some(End::Request),
        };
        let Followed { status, output, errors, own } = follow(&mut child, words, to, &mut end);
        let host_time = started.elapsed();
        let why = |why: String| LabError::Guest { why, log: control.last_words() };
        let status = match status.map_err(|error| why(format!("cannot wait for it: {error}")))? {
            Ok(status) => status,
            Err(End::Limit) => {
                return Err(why("it did not end within its time on the host".to_owned()));
            }
            Err(End::Request) => return Err(LabError::EndRequested),
        };
        let outcome = control.outcome(status, mib).map_err(|error| match error {
            // Before its kernel speaks, the emulator does.
            LabError::Guest { why, log } if log.is_empty() => {
                let log = String::from_utf8_lossy(&own).into_owned();
                // Neither does when there is no room to unpack what the kernel is given.
                match log.contains(NO_ROOM) || archive > u64::from(mib) << 19 {
                    true => {
                        let machine = "the laboratory's machine".to_owned();
                        LabError::OutOfMemory { machine, mib, program: None }
                    }
                    false => LabError::Guest { why, log },
                }
            }
            error => error,
        })?;
        Ok(Finished { outcome, output, errors, host_time })
    }

    fn check(&self) -> Result<(), LabError> {
        let wrong = |why: &str| Err(LabError::Spec { why: why.to_owned() });
        if self.nics > MAX_NICS {
            return wrong(&format!("{} NICs are more than {MAX_NICS}", self.nics));
        }
        let reads = matches!(&self.connection, Connection::Descriptors { input, .. }
            if !input.is_empty());
        if matches!(self.connection, Connection::Terminal(_)) {
            wrong("an emulated machine has no terminal for a person")
        } else if self.sealed.is_some() && !self.writable.is_empty() {
            wrong("a sealed machine sees no directory of the host, so it can write to none")
        } else if self.sealed.is_some() && reads {
            wrong("a sealed machine reads nothing from outside")
        } else {
            Ok(())
        }
    }

    fn job(&self) -> Job {
        let share = |(number, path): (usize, &PathBuf)| nine_p(&writable_tag(number), path);
        let mut environment = self.environment.clone();
        if !environment.iter().any(|(name, _)| name == "PATH") {
            environment.push(("PATH".to_owned(), USUAL_PATH.to_owned()));
        }
        Job {
            command: self.command.clone(),
            directory: self.directory.clone(),
            environment,
            shares: self.writable.iter().enumerate().map(share).collect(),
            modules: Vec::new(),
            terminal: Terminal::Pipes { output: "/dev/hvc0".into(), errors: "/dev/hvc1".into() },
            control: nine_p(CONTROL_TAG, Path::new(CONTROL)),
            repeatable: self.sealed.is_some(),
            sealed: self.sealed.is_some(),
        }
    }

    fn emulator(&self, kernel: &Kernel, control: &Control) -> Result<Command, LabError> {
        let program = self.init.clone();
        let first = match &self.sealed {
            None => {
                let job = control.path().join(JOB);
                image::first_process(&Next { program, job, on_host_files: true })?
            }
            Some(programs) => {
                let next = Next { program, job: SEALED_JOB.into(), on_host_files: false };
                image::sealed_root(&next, &self.job(), programs)?
            }
        };
        let modules = kernel.modules();
        let mut archive = fs::read(&modules).map_err(LabError::file("read", &modules))?;
        archive.extend(first.archive);
        let initrd = control.path().join(INITRD);
        fs::write(&initrd, archive).map_err(LabError::file("write", &initrd))?;
        let mut command = kernel.emulator_command();
        command.args(FIXED).arg("-m").arg(self.memory_mib.to_string());
        command.arg("-kernel").arg(kernel.vmlinux()).arg("-initrd").arg(initrd);
        command.arg("-append").arg(format!(
            "{KERNEL_LINE} initcall_blacklist={LEFT_OUT} {} {}",
            first.line,
            init::VERB
        ));
        command.arg("-serial").arg(with_path("file:", &control.path().join(LOG)));
        command.arg("-device").arg(format!("isa-debug-exit,iobase={EXIT_PORT:#x},iosize=0x04"));
        // The processor's own thread hands words over, so that when is no matter of chance.
        command.arg("-device").arg("virtio-serial-pci,ioeventfd=off");
        // Files, not pipes: what a pipe has no room for a console of the emulator drops.
        for name in [OUTPUT, ERRORS] {
            let before = format!("file,id={name},append=on,path=");
            command.arg("-chardev").arg(option_with_path(&before, &control.path().join(name)));
            command.arg("-device").arg(format!("virtconsole,chardev={name}"));
        }
        if self.sealed.is_none() {
            share(&mut command, HOST, Path::new("/"), false);
        }
        share(&mut command, CONTROL_TAG, control.path(), true);
        for (number, path) in self.writable.iter().enumerate() {
            share(&mut command, &writable_tag(number), path, true);
        }
        (0..self.nics).for_each(|nic| add_nic(&mut command, nic));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        Ok(command)
    }
}

fn nine_p(tag: &str, at: &Path) -> Share {
    Share { path: at.to_owned(), writable: true, kind: "9p".to_owned(), source: tag.to_owned() }
}

fn writable_tag(number: usize) -> String {
    format!("writable{number}")
}

/// Lets the machine see a directory of the host.
fn share(command: &mut Command, tag: &str, path: &Path, writable: bool) {
    let mut options = option_with_path(&format!("local,id={tag},path="), path);
    let access = if writable { "off" } else { "on" };
    options.push(format!(",security_model=none,multidevs=remap,readonly={access}"));
    command.arg("-fsdev").arg(options);
    command.arg("-device").arg(format!("virtio-9p-pci,fsdev={tag},mount_tag={tag}"));
}

/// Each NIC is behind a port of its own: on the root bus the second one finds no room for its
/// virtual functions.
fn add_nic(command: &mut Command, nic: u32) {
    let number = nic + 1;
    let port = format!("pcie-root-port,id=port{nic},chassis={number},slot={number}");
    let [.., low] = number.to_be_bytes();
    let address = MacAddress([2, 0, 0, 0, 0, low]);
    command.arg("-device").arg(port);
    command.arg("-netdev").arg(format!("hubport,id=hub{nic},hubid=0"));
    command.arg("-device").arg(format!("igb,bus=port{nic},netdev=hub{nic},mac={address}"));
}

/// In a list of options a comma is written twice.
fn option_with_path(before: &str, path: &Path) -> OsString {
    with_path(before, Path::new(&path.to_string_lossy().replace(',', ",,")))
}

fn with_path(before: &str, path: &Path) -> OsString {
    let mut text = OsString::from(before);
    text.push(path);
    text
}

/// Starts a command, on one CPU of the host if wanted; successive ones get different ones. Threads
/// of the emulator that race on two CPUs for who sees a timer first make runs differ. On one CPU
/// the thread that serves files can be kept waiting for long by a machine that is never idle, so
/// only a sealed one, which needs no files, is kept there.
fn spawn(command: Command, on_one_cpu: bool) -> io::Result<Child> {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let cpu = if on_one_cpu {
        let allowed = scheduler::affinity(0)?;
        let turn = COUNT.fetch_add(1, Ordering::Relaxed);
        let offset = usize::try_from(std::process::id()).unwrap_or_default();
        allowed.iter().copied().cycle().nth((turn + offset) % allowed.len().max(1))
    } else {
        None
    };
    namespace::spawn_machine(command, Vec::new(), cpu, Randomness::OfTheHost)
}

/// Why a machine was killed.
#[derive(Clone, Copy)]
enum End {
    Limit,
    Request,
}

/// A machine to its end.
struct Followed {
    /// How it ended, or why it was killed.
    status: io::Result<Result<ExitStatus, End>>,
    /// Words of its command, where they were to be kept.
    output: Vec<u8>,
    errors: Vec<u8>,
    /// Words of the emulator itself.
    own: Vec<u8>,
}

/// Reads all words to their end while waiting: the command's from files that grow until the machine
/// has ended.
fn follow(
    child: &mut Child,
    [output, errors]: [File; 2],
    to: Option<[OwnedFd; 2]>,
    end: &mut dyn FnMut() -> Option<End>,
) -> Followed {
    let stderr = child.stderr.take().expect("invariant: stderr was piped");
    let (to, errors_to) = match to {
        None => (None, None),
        Some([to, errors_to]) => (Some(to.into()), Some(errors_to.into())),
    };
    let has_ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let follow = |from, to| Grows { from, has_ended: &has_ended, to };
        let (output, errors) = (follow(output, to), follow(errors, errors_to));
        let output = scope.spawn(move || output.collect());
        let errors = scope.spawn(move || errors.collect());
        let own = scope.spawn(move || {
            let (mut words, mut stderr) = (Vec::new(), stderr);
            // What was read before an error is kept.
            let _ = stderr.read_to_end(&mut words);
            words
        });
        let status = wait(child, end);
        has_ended.store(true, Ordering::Release);
        let words = |thread: thread::ScopedJoinHandle<'_, Vec<u8>>| {
            thread.join().expect("invariant: reading does not panic")
        };
        Followed { status, output: words(output), errors: words(errors), own: words(own) }
    })
}

/// A new file that the emulator writes to, to be read.
fn grows(control: &Control, name: &str) -> Result<File, LabError> {
    drop(control.create(name)?);
    let path = control.path().join(name);
    File::open(&path).map_err(LabError::file("open", &path))
}

/// A file that grows until its writer has ended.
struct Grows<'a> {
    from: File,
    has_ended: &'a AtomicBool,
    /// Where its words go; else they are kept.
    to: Option<File>,
}

impl Grows<'_> {
    fn collect(mut self) -> Vec<u8> {
        let (mut kept, mut buffer) = (Vec::new(), [0; 1 << 16]);
        loop {
            // In this order: what was written before the end is read after it is known.
            let has_ended = self.has_ended.load(Ordering::Acquire);
            match (self.from.read(&mut buffer), &mut self.to) {
                (Ok(0), _) if !has_ended => thread::sleep(POLL_INTERVAL),
                (Ok(0) | Err(_), _) => return kept,
                (Ok(count), None) => kept.extend_from_slice(&buffer[..count]),
                // A reader that has gone away does not end the machine.
                (Ok(count), Some(to)) => drop(to.write_all(&buffer[..count])),
            }
        }
    }
}

fn wait(
    child: &mut Child,
    end: &mut dyn FnMut() -> Option<End>,
) -> io::Result<Result<ExitStatus, End>> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Ok(status));
        }
        if let Some(end) = end() {
            child.kill()?;
            child.wait()?;
            return Ok(Err(end));
        }
        thread::sleep(POLL_INTERVAL);
    }
}

const CONTROL_TAG: &str = "control";
const INPUT: &str = "stdin";
const OUTPUT: &str = "stdout";
const ERRORS: &str = "stderr";
const SEALED_JOB: &str = "/job.json";
const LOG: &str = "kernel.log";
const INITRD: &str = "initrd";
/// What the emulator says of an archive that its machine has no room for.
const NO_ROOM: &str = "initrd is too large";
/// Half of it can have files: this program with what it needs, unpacked, and what a command writes.
const MEMORY_MIB: u32 = 1024;
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// The same for every machine: the clock starts at a fixed date, chance at a fixed seed.
const FIXED: [&str; 17] = [
    "-nodefaults",
    "-no-user-config",
    "-no-reboot",
    "-display",
    "none",
    "-M",
    "q35",
    "-smp",
    "1",
    "-accel",
    "tcg",
    "-icount",
    "shift=0,sleep=off",
    "-rtc",
    "base=2026-01-01T00:00:00,clock=vm",
    "-seed",
    "1",
];
/// `iomem=relaxed` lets a program read the registers of a NIC (`nic`).
const KERNEL_LINE: &str = "console=ttyS0 quiet loglevel=4 panic=-1 nokaslr iomem=relaxed \
                           mitigations=off no_timer_check cryptomgr.notests";
/// What no laboratory needs and takes a second of the machine's time.
const LEFT_OUT: &str = "jent_mod_init,bpf_tcp_ca_kfunc_init,bpf_dummy_struct_ops_init,\
                        trace_eval_init,load_system_certificate_list,init_encrypted,\
                        init_kprobe_trace";
