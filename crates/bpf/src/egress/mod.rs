// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Holds frames of some priorities back before an interface's queueing discipline, unless told
//! again and again that they may pass (`egress.bpf.c`).
//!
//! Not here: who tells (`timewire-datapath`).

use std::os::fd::AsFd;

use libbpf_rs::{MapCore, MapFlags};
use timewire_base::{Instant, Mono};

use crate::{BpfError, Link, attach, load, map_of, program_of};

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/egress.bpf.o"));
const PROGRAM: &str = "egress";

/// Frames that came to the gate since it was attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GateCounters {
    /// Found it open.
    pub passed: u64,
    /// Found it closed, and were dropped.
    pub dropped: u64,
}

/// The program, attached to one interface; dropping it lets all frames pass again.
#[derive(Debug)]
pub struct EgressGate {
    object: libbpf_rs::Object,
    priorities: u16,
    _link: Link,
}

impl EgressGate {
    /// Attaches a closed gate for frames of these priorities: bit N is priority N.
    ///
    /// **Errors**: no privilege; the kernel is older than 6.6 (no tcx).
    pub fn attach(interface: u32, priorities: u16) -> Result<EgressGate, BpfError> {
        let object = load(PROGRAM, OBJECT, |_| Ok(()))?;
        set(&object, priorities, None)?;
        let link = attach::tcx_egress(program_of(&object, "tw_egress").as_fd(), interface)
            .map_err(|source| BpfError::Attach { program: PROGRAM, interface, source })?;
        Ok(EgressGate { object, priorities, _link: link })
    }

    /// Frames pass until then; `None` closes at once.
    pub fn open_until(&self, until: Option<Instant<Mono>>) -> Result<(), BpfError> {
        set(&self.object, self.priorities, until)
    }

    /// What came so far, over all CPUs.
    pub fn counters(&self) -> Result<GateCounters, BpfError> {
        let of = |key: u32| -> Result<u64, BpfError> {
            let failed = |source| BpfError::Map { map: "counters", source };
            let values = map_of(&self.object, "counters")
                .lookup_percpu(&key.to_ne_bytes(), MapFlags::ANY)
                .map_err(failed)?
                .unwrap_or_default();
            let count = |bytes: &Vec<u8>| bytes.first_chunk().map(|b| u64::from_ne_bytes(*b));
            Ok(values.iter().filter_map(count).sum())
        };
        Ok(GateCounters { passed: of(0)?, dropped: of(1)? })
    }
}

fn set(
    object: &libbpf_rs::Object,
    priorities: u16,
    until: Option<Instant<Mono>>,
) -> Result<(), BpfError> {
    let until = until.map_or(0, |until| u64::try_from(until.as_ns()).unwrap_or(0));
    let mut value = [0; 16];
    value[..8].copy_from_slice(&until.to_ne_bytes());
    value[8..12].copy_from_slice(&u32::from(priorities).to_ne_bytes());
    map_of(object, "gate")
        .update(&0_u32.to_ne_bytes(), &value, MapFlags::ANY)
        .map_err(|source| BpfError::Map { map: "gate", source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::process::Command;

    use timewire_sys::namespace::{self, Namespace};

    /// Loopback in a network namespace of its own.
    const LOOPBACK: u32 = 1;
    /// That of frames whose sender has not asked for another.
    const USUAL: u16 = 1 << 0;

    fn gates() -> Result<[EgressGate; 2], String> {
        namespace::unshare(&[Namespace::Network]).map_err(|error| error.to_string())?;
        let up = Command::new("ip").args(["link", "set", "lo", "up"]).status();
        assert!(up.unwrap().success());
        let gate = || EgressGate::attach(LOOPBACK, USUAL).map_err(|error| error.to_string());
        Ok([gate()?, gate()?])
    }

    #[test]
    fn t3_the_gate_stands_before_those_that_were_there() {
        // In a thread of its own, which alone is in the namespace.
        let test = std::thread::spawn(|| {
            let [was_there, newer] = match gates() {
                Ok(gates) => gates,
                Err(error) => return eprintln!("SKIP: {error}"),
            };
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            // Whether the sender hears of the loss is the kernel's affair.
            let _ = socket.send_to(b"x", socket.local_addr().unwrap());
            let dropped = |gate: &EgressGate| gate.counters().unwrap().dropped;
            assert_eq!((dropped(&was_there), dropped(&newer)), (0, 1));
        });
        test.join().unwrap();
    }
}
