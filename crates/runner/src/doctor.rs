// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Trying what needs eBPF programs and AF_XDP, and having everything tried by a process of its
//! own, which takes all that it made with it however it ends.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};

use timewire_bpf::ingress::Ingress;
use timewire_bpf::{AttachMode, BpfError, probe as program};
use timewire_host::doctor::attempt::{self, Extent, Results, of_io_error};
use timewire_host::doctor::{Probe, ProbeOutcome, Probes, Scratch};
use timewire_sys::namespace::{self, OnParentDeath};
use timewire_sys::xsk::{XskQueue, XskReceiver, XskSender};
use timewire_sys::{FrameMemory, scheduler};

use crate::RunnerError;

/// Tries what this host can do, in this process.
pub fn probe(extent: Extent) -> Probes {
    attempt::probe(extent, &programs)
}

/// Has a program try everything that is started so, prints [`Probes`] as JSON and ends. It is
/// killed with this process.
///
/// **Errors**: it cannot be started, or does not end well.
pub fn probe_by(mut command: Command) -> Result<Probes, RunnerError> {
    let failed = |why: String| RunnerError::Probes { why };
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = namespace::spawn(command, None, OnParentDeath::Kill);
    let output = child.and_then(std::process::Child::wait_with_output);
    let output = output.map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(failed(format!("{}: {}", output.status, said.trim())));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| failed(error.to_string()))
}

fn programs(scratch: &Scratch) -> Results {
    Results::from([
        (Probe::XdpGeneric, attached(program::xdp(scratch.far_index, AttachMode::Generic))),
        (Probe::XdpNative, attached(program::xdp(scratch.far_index, AttachMode::Native))),
        (Probe::XdpReceiveTimestamps, attached(program::receive_timestamps(scratch.far_index))),
        (Probe::Tcx, attached(program::tcx(scratch.far_index))),
        (Probe::CpuMap, cpu_map()),
        (Probe::Tracing, tracing()),
        (Probe::XskGeneric, xsk(scratch, AttachMode::Generic, 0)),
        (Probe::XskNative, xsk(scratch, AttachMode::Native, 1)),
        (Probe::XskNeedWakeup, need_wakeup(scratch)),
        (Probe::XskZeroCopy, zero_copy(scratch)),
    ])
}

fn works(found: impl Into<String>) -> ProbeOutcome {
    ProbeOutcome::Works { found: found.into() }
}

fn of_error(error: &BpfError) -> ProbeOutcome {
    let said = one_line(&error.to_string());
    if error.is_forbidden() {
        ProbeOutcome::Forbidden { said }
    } else {
        ProbeOutcome::Absent { said }
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn attached<T>(link: Result<T, BpfError>) -> ProbeOutcome {
    link.map_or_else(|error| of_error(&error), |_| works("loaded and attached"))
}

fn cpu_map() -> ProbeOutcome {
    let cpu = scheduler::affinity(0).ok().and_then(|cpus| cpus.first().copied()).unwrap_or(0);
    match program::cpu_map(cpu) {
        Ok(()) => works("a thread on a CPU was made"),
        Err(error) => of_error(&error),
    }
}

/// Sends a message that a program on a tracepoint must see.
fn tracing() -> ProbeOutcome {
    // When it cannot be sent, it is not seen either, which is what counts.
    let sent = program::traced_sending(|| {
        let _ = UdpSocket::bind("127.0.0.1:0")
            .and_then(|socket| socket.send_to(b"x", socket.local_addr()?));
    });
    match sent {
        Ok(_) => works("a message was seen, and its record arrived"),
        Err(error) => of_error(&error),
    }
}

/// Sends a frame from an AF_XDP socket on one interface to one on the other, as the MAC does. Each
/// try has a queue of its own: the kernel lets go of one a while after its socket is closed.
fn xsk(scratch: &Scratch, mode: AttachMode, queue: u32) -> ProbeOutcome {
    let ingress = match Ingress::attach(scratch.far_index, mode) {
        Ok(ingress) => ingress,
        Err(error) => return of_error(&error),
    };
    let attempt = || -> io::Result<()> {
        let memory = FrameMemory::new(64)?;
        let on = |interface| XskQueue { interface, queue, zero_copy: false };
        let mut receiver = XskReceiver::open(&memory, on(scratch.far_index))?;
        let failed = |error: BpfError| io::Error::other(error.to_string());
        ingress.set_socket(queue, receiver.as_fd()).map_err(failed)?;
        let mut sender = XskSender::open(&memory, Some(&receiver), on(scratch.near_index))?;
        let mut free: Vec<u32> = (0..32).collect();
        receiver.offer(&mut free);
        let failed = |error| io::Error::other(format!("the frame was not sent: {error:?}"));
        sender.send(memory.write(40, &attempt::frame())).map_err(failed)?;
        let mut got = Vec::with_capacity(4);
        attempt::wait_for("no frame came", || Ok(receiver.receive(&mut got) > 0))
    };
    match attempt() {
        Ok(()) => works("a frame went from socket to socket, copied"),
        // The socket is there, and yet nothing came: that is no want of timeout.
        Err(error) if error.kind() == io::ErrorKind::TimedOut => {
            ProbeOutcome::Absent { said: error.to_string() }
        }
        Err(error) => of_io_error(&error),
    }
}

fn need_wakeup(scratch: &Scratch) -> ProbeOutcome {
    let open = || {
        let memory = FrameMemory::new(8)?;
        let on = XskQueue { interface: scratch.far_index, queue: 2, zero_copy: false };
        XskSender::open(&memory, None, on)
    };
    match open() {
        Ok(sender) if sender.wants_wakeup() => works("the ring says when it wants a call"),
        Ok(_) => {
            ProbeOutcome::Absent { said: "the ring does not say when it wants a call".to_owned() }
        }
        Err(error) => of_io_error(&error),
    }
}

fn zero_copy(scratch: &Scratch) -> ProbeOutcome {
    let open = || {
        let memory = FrameMemory::new(8)?;
        let on = XskQueue { interface: scratch.far_index, queue: 3, zero_copy: true };
        XskReceiver::open(&memory, on)
    };
    open().map_or_else(|error| of_io_error(&error), |_| works("a socket was bound"))
}
