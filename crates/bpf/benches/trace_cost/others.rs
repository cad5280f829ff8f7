// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Other tracers at the same seven tracepoints: the kernel's own (`ftrace`, in an instance of
//! tracefs), `perf record` and `bpftrace`. What they cost the thread that is traced, and how many
//! events they kept.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use timewire_sys::namespace::{self, Namespace};

use super::{BATCH, SEVEN, Samples, batches};
use crate::support::Pair;

const TRACEPOINTS: [&str; 7] = [
    "sock/sock_send_length",
    "net/net_dev_queue",
    "net/net_dev_start_xmit",
    "net/netif_rx",
    "net/netif_receive_skb",
    "sock/sk_data_ready",
    "sock/sock_recv_length",
];
const TRACEFS: &str = "/sys/kernel/tracing";

/// Measures each that is there, with a measurement without tracing before it.
pub fn compare(pair: &Pair, count: u32) {
    println!(
        "{:<26} {:>8} {:>8} {:>9} {:>9}",
        "other tracers, 7 hooks", "added", "added", "kept", "made"
    );
    if let Err(why) = tracefs() {
        return println!("(none: {why})\n");
    }
    for (name, run) in
        [("ftrace", ftrace as Run), ("perf record", perf as Run), ("bpftrace", bpftrace as Run)]
    {
        let before = Samples(batches(pair, count, || {}));
        match run(pair, count) {
            Ok((samples, kept)) => {
                let made = u64::from(count * BATCH) * u64::try_from(SEVEN.len()).unwrap();
                println!(
                    "{name:<26} {:>8.0} {:>8.0} {kept:>9} {made:>9}",
                    samples.least() - before.least(),
                    samples.median() - before.median(),
                );
            }
            Err(why) => println!("{name:<26} (not measured: {why})"),
        }
    }
    println!("(added: nanoseconds of the CPU a packet, least and median)\n");
}

type Run = fn(&Pair, u32) -> Result<(Samples, u64), String>;

/// Has tracefs where everybody looks for it, for this thread and its children alone.
fn tracefs() -> Result<(), String> {
    let failed = |error: std::io::Error| error.to_string();
    namespace::unshare(&[Namespace::Mount]).map_err(failed)?;
    namespace::make_mounts_private().map_err(failed)?;
    if Path::new(TRACEFS).join("events").exists() {
        return Ok(());
    }
    let mount = Command::new("mount").args(["-t", "tracefs", "tracefs", TRACEFS]).output();
    let mount = mount.map_err(failed)?;
    if mount.status.success() { Ok(()) } else { Err(text(&mount.stderr)) }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

/// An instance of tracefs, gone with it.
struct Instance(PathBuf);

impl Instance {
    fn write(&self, file: &str, value: &str) -> Result<(), String> {
        let path = self.0.join(file);
        fs::write(&path, value).map_err(|error| format!("{}: {error}", path.display()))
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        for event in TRACEPOINTS {
            let _ = self.write(&format!("events/{event}/enable"), "0");
        }
        let _ = fs::remove_dir(&self.0);
    }
}

fn ftrace(pair: &Pair, count: u32) -> Result<(Samples, u64), String> {
    let path = Path::new(TRACEFS).join(format!("instances/timewire-{}", std::process::id()));
    fs::create_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let instance = Instance(path);
    instance.write("buffer_size_kb", "16384")?;
    for event in TRACEPOINTS {
        instance.write(&format!("events/{event}/enable"), "1")?;
    }
    let samples = Samples(batches(pair, count, || {}));
    instance.write("tracing_on", "0")?;
    let mut kept = 0;
    let cpus = fs::read_dir(instance.0.join("per_cpu")).map_err(|error| error.to_string())?;
    for cpu in cpus.flatten() {
        let stats = fs::read_to_string(cpu.path().join("stats")).unwrap_or_default();
        let entries = stats.lines().find_map(|line| line.strip_prefix("entries: "));
        kept += entries.and_then(|entries| entries.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok((samples, kept))
}

fn perf(pair: &Pair, count: u32) -> Result<(Samples, u64), String> {
    let directory = std::env::temp_dir().join(format!("timewire-perf-{}", std::process::id()));
    fs::create_dir_all(&directory).map_err(|error| error.to_string())?;
    let result = perf_in(&directory, pair, count);
    let _ = fs::remove_dir_all(&directory);
    result
}

fn perf_in(directory: &Path, pair: &Pair, count: u32) -> Result<(Samples, u64), String> {
    let failed = |error: std::io::Error| format!("perf: {error}");
    let (control, answer) = (directory.join("control"), directory.join("answer"));
    for fifo in [&control, &answer] {
        let made = Command::new("mkfifo").arg(fifo).status().map_err(failed)?;
        assert!(made.success(), "mkfifo");
    }
    let (file, log) = (directory.join("data"), directory.join("log"));
    let output = fs::File::create(&log).map_err(failed)?;
    let mut command = Command::new("perf");
    command.args(["record", "--all-cpus", "-m", "16M", "--delay=-1", "-o"]).arg(&file);
    command.arg(format!("--control=fifo:{},{}", control.display(), answer.display()));
    for event in TRACEPOINTS {
        command.args(["-e", &event.replace('/', ":")]);
    }
    let output = command.stdout(Stdio::null()).stderr(output).spawn();
    let mut child = Ending(output.map_err(failed)?);
    // It opens both ends before it looks at events; when it ends before, it says why.
    let mut orders =
        fs::OpenOptions::new().read(true).write(true).open(&control).map_err(failed)?;
    let answers = fs::OpenOptions::new().read(true).write(true).open(&answer).map_err(failed)?;
    let mut answers = BufReader::new(answers);
    let mut order = |what: &str, child: &mut Ending| -> Result<(), String> {
        std::thread::sleep(std::time::Duration::from_secs(2));
        if child.0.try_wait().map_err(failed)?.is_some() {
            return Err(text(&fs::read(&log).unwrap_or_default()));
        }
        orders.write_all(format!("{what}\n").as_bytes()).map_err(failed)?;
        let mut line = Vec::new();
        answers.read_until(b'\n', &mut line).map(drop).map_err(failed)
    };
    order("enable", &mut child)?;
    let samples = Samples(batches(pair, count, || {}));
    order("disable", &mut child)?;
    order("stop", &mut child)?;
    child.0.wait().map_err(failed)?;
    let script = Command::new("perf").args(["script", "-F", "event", "-i"]).arg(&file).output();
    let events = script.map_err(failed)?.stdout;
    let kept = events.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count();
    Ok((samples, u64::try_from(kept).unwrap()))
}

fn bpftrace(pair: &Pair, count: u32) -> Result<(Samples, u64), String> {
    let mut program = String::from("BEGIN { printf(\"ready\\n\"); }");
    for event in TRACEPOINTS {
        program += &format!(
            " tracepoint:{} {{ printf(\"%llu %d\\n\", nsecs, cpu); }}",
            event.replace('/', ":")
        );
    }
    let mut command = Command::new("bpftrace");
    command.args(["-B", "line", "-e", &program]).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = Ending(command.spawn().map_err(|error| format!("bpftrace: {error}"))?);
    let output = child.0.stdout.take().unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut kept = 0_u64;
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if line == "ready" {
                let _ = tell.send(());
            } else if !line.is_empty() && !line.starts_with("Attaching") {
                kept += 1;
            }
        }
        kept
    });
    let patience = std::time::Duration::from_secs(60);
    told.recv_timeout(patience).map_err(|_| "bpftrace does not start".to_owned())?;
    let samples = Samples(batches(pair, count, || {}));
    drop(child);
    Ok((samples, reader.join().unwrap()))
}

/// A child that is asked to end, and waited for.
struct Ending(Child);

impl Drop for Ending {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(Some(_))) {
            return;
        }
        let process = namespace::Process::of(self.0.id());
        let _ = process.and_then(namespace::Process::ask_to_end);
        let _ = self.0.wait();
    }
}
