// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs that do next to nothing, to see what the kernel takes (`probe.bpf.c`,
//! `metadata.bpf.c`). Each is gone when its function returns.
//!
//! Not here: what the answers mean (`timewire-host`, `doctor`).

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use libbpf_rs::libbpf_sys::{bpf_map_create_opts, size_t};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, RingBufferBuilder};

use crate::{AttachMode, attach, load, map_of, program_of};
use crate::{BpfError, Link};

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/probe.bpf.o"));
static METADATA: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/metadata.bpf.o"));
const PROGRAM: &str = "probe";
/// Linux `BPF_F_XDP_DEV_BOUND_ONLY`.
const BOUND_TO_DEVICE: u32 = 1 << 6;
/// How long a record may take from the tracepoint to here.
const TIMEOUT: Duration = Duration::from_millis(500);

/// Loads the object with only these programs of it.
fn only(program: &str, watched: &str) -> Result<libbpf_rs::Object, BpfError> {
    load(PROGRAM, OBJECT, |open| {
        for mut other in open.progs_mut() {
            let wanted = other.name() == program;
            other.set_autoload(wanted);
        }
        for mut map in open.maps_mut() {
            if map.name() == "events" && program != "tw_sent" {
                map.set_autocreate(false)?;
            }
            if map.name().to_string_lossy().ends_with(".rodata") {
                let data = map.initial_value_mut().expect("invariant: rodata has a value");
                let name = watched.as_bytes();
                data[..name.len()].copy_from_slice(name);
            }
        }
        Ok(())
    })
}

/// Attaches an XDP program that lets everything pass, in this mode.
///
/// **Errors**: no privilege, no eBPF in the kernel, or the driver does not know the mode.
pub fn xdp(interface: u32, mode: AttachMode) -> Result<Link, BpfError> {
    let object = only("tw_pass", "")?;
    attach::xdp(program_of(&object, "tw_pass").as_fd(), interface, mode)
        .map_err(|source| BpfError::Attach { program: PROGRAM, interface, source })
}

/// Attaches a traffic-control program by link (Linux 6.6).
///
/// **Errors**: as [`xdp`].
pub fn tcx(interface: u32) -> Result<Link, BpfError> {
    let object = only("tw_next", "")?;
    attach::tcx_ingress(program_of(&object, "tw_next").as_fd(), interface)
        .map_err(|source| BpfError::Attach { program: PROGRAM, interface, source })
}

/// Attaches an XDP program that asks the driver for the receive timestamp of each frame.
///
/// **Errors**: as [`xdp`]; the kernel or the driver has no such question (Linux 6.3).
pub fn receive_timestamps(interface: u32) -> Result<Link, BpfError> {
    let index = interface;
    let object = load("metadata", METADATA, |open| {
        for mut program in open.progs_mut() {
            program.set_flags(BOUND_TO_DEVICE);
            program.set_ifindex(index);
        }
        Ok(())
    })?;
    attach::xdp(program_of(&object, "tw_timestamp").as_fd(), interface, AttachMode::Native)
        .map_err(|source| BpfError::Attach { program: "metadata", interface, source })
}

/// Makes a map whose entries are threads on CPUs, with one of them.
///
/// **Errors**: as [`xdp`].
pub fn cpu_map(cpu: u32) -> Result<(), BpfError> {
    let failed = |source| BpfError::Map { map: "cpus", source };
    let cpus = u32::try_from(libbpf_rs::num_possible_cpus().map_err(failed)?).unwrap_or(1);
    let size = size_t::try_from(size_of::<bpf_map_create_opts>());
    let options =
        bpf_map_create_opts { sz: size.expect("invariant: usize fits u64"), ..Default::default() };
    let map = MapHandle::create(MapType::Cpumap, Some("tw_cpus"), 4, 4, cpus, &options)
        .map_err(failed)?;
    let room = 64_u32.to_ne_bytes();
    map.update(&cpu.to_ne_bytes(), &room, MapFlags::ANY).map_err(failed)
}

/// Attaches to the tracepoint that every sent frame passes, runs `send` in a thread of a name that
/// nobody else has, and waits for the record of it in the ring buffer. **Units**: the result is the
/// timestamp of the record in nanoseconds of the monotonic clock.
///
/// **Errors**: as [`xdp`]; `TimedOut` when no record came.
pub fn traced_sending(send: impl FnOnce() + Send) -> Result<u64, BpfError> {
    let name = format!("twp{:07x}{:05x}", std::process::id(), thread_number() & 0xf_ffff);
    let object = only("tw_sent", &name)?;
    let program = object.progs_mut().find(|program| program.name() == "tw_sent");
    let program = program.expect("invariant: the object we embed has the program");
    let failed = |source: libbpf_rs::Error| BpfError::Map { map: "events", source };
    let link = program
        .attach_raw_tracepoint("net_dev_queue")
        .map_err(|source| BpfError::Load { program: "tracepoint", source })?;
    let mut timestamp = None;
    let events = map_of(&object, "events");
    let mut builder = RingBufferBuilder::new();
    builder
        .add(&events, |bytes: &[u8]| {
            timestamp = bytes.try_into().ok().map(u64::from_ne_bytes);
            0
        })
        .map_err(failed)?;
    let ring = builder.build().map_err(failed)?;
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name(name.clone()).spawn_scoped(scope, send);
        thread.map(|thread| thread.join()).is_ok()
    });
    ring.poll(TIMEOUT).map_err(failed)?;
    drop((ring, link));
    timestamp.ok_or_else(|| failed(io::Error::from(io::ErrorKind::TimedOut).into()))
}

/// Something that differs between the threads of a process.
fn thread_number() -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    std::thread::current().id().hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t3_a_thread_s_sending_is_seen_in_the_ring_buffer() {
        let send = || {
            let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.send_to(b"x", socket.local_addr().unwrap()).unwrap();
        };
        match traced_sending(send) {
            Ok(timestamp) => assert!(timestamp > 0),
            Err(error) => return eprintln!("SKIP: {error}"),
        }
        // Nothing was sent, so nothing is seen, however much others send.
        let error = traced_sending(|| ()).unwrap_err();
        assert!(error.to_string().contains("timed out"), "{error}");
    }

    #[test]
    fn t3_threads_on_cpus_are_had_or_the_error_says_why() {
        match cpu_map(0) {
            Ok(()) => assert!(cpu_map(u32::MAX).is_err(), "there are not so many CPUs"),
            Err(error) => eprintln!("SKIP: {error}"),
        }
    }

    #[test]
    fn t3_an_interface_that_is_not_there_takes_no_program() {
        let none = i32::MAX.unsigned_abs();
        let errors = [
            xdp(none, AttachMode::Generic).unwrap_err(),
            xdp(none, AttachMode::Native).unwrap_err(),
            tcx(none).unwrap_err(),
            receive_timestamps(none).unwrap_err(),
        ];
        for error in errors {
            assert!(!error.to_string().is_empty(), "{error:?}");
        }
    }
}
