// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hands the frames that a listener wants to its AF_XDP socket, with timestamps, and leaves all
//! others to the stack (`listen.bpf.c`).
//!
//! Not here: the socket (`timewire_sys::xsk`), classes of received frames (`receive`).

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use libbpf_rs::{MapCore, MapFlags};
use timewire_base::wire::MacAddress;
use timewire_base::{Instant, Tai};
use timewire_sys::filter::FrameFilter;

use crate::{AttachMode, BpfError, Link, attach, load, map_of, objects, program_of};

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/listen.bpf.o"));
const PROGRAM: &str = "listen";
/// Most queues that sockets can be on.
pub const MAX_QUEUES: u32 = 256;
/// Linux `BPF_F_XDP_DEV_BOUND_ONLY`.
const BOUND_TO_DEVICE: u32 = 1 << 6;
const MARK: u32 = 0x4d6c_7754;

/// What became of frames since the program was attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListenCounters {
    /// Went to a socket.
    pub taken: u64,
    /// Did not fit, so went up the stack.
    pub passed: u64,
    /// Fit, but came on a queue without a socket, so went up the stack.
    pub without_socket: u64,
    /// Among those taken: had no room before them for timestamps.
    pub without_metadata: u64,
}

/// What the program has written before a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// When the program had the frame.
    pub driver: Option<Instant<Tai>>,
    /// When the NIC received it. **Units**: nanoseconds of the NIC's clock.
    pub hardware_ns: Option<i64>,
}

impl Metadata {
    /// **Units**: bytes before the frame.
    pub const LEN: usize = 24;

    /// What those bytes say; nothing when the program has not written them.
    pub fn decode(bytes: &[u8; Metadata::LEN]) -> Metadata {
        let word = |at: usize| {
            let word = bytes[at..at + 8].try_into().expect("invariant: eight bytes");
            Some(i64::from_ne_bytes(word)).filter(|ns| *ns != 0)
        };
        if bytes[20..] != MARK.to_ne_bytes() {
            return Metadata::default();
        }
        Metadata { driver: word(0).map(Instant::from_ns), hardware_ns: word(8) }
    }
}

/// The program, attached to one interface.
#[derive(Debug)]
pub struct Listen {
    object: libbpf_rs::Object,
    mode: AttachMode,
    _link: Link,
}

impl Listen {
    /// Loads the program and attaches it. With `hardware` it asks the driver for the NIC's
    /// timestamp of each frame.
    ///
    /// **Errors**: no privilege; the driver does not know the mode; there is a program on the
    /// interface ([`crate::attached`] says which); with `hardware`, the kernel is older than 6.3,
    /// the driver cannot be asked, or the mode is not native.
    pub fn attach(
        interface: u32,
        mode: AttachMode,
        filter: &FrameFilter,
        hardware: bool,
    ) -> Result<Listen, BpfError> {
        let (object, name) = loaded(filter, hardware.then_some(interface))?;
        let link = attach::xdp(program_of(&object, name).as_fd(), interface, mode)
            .map_err(|source| BpfError::Attach { program: PROGRAM, interface, source })?;
        Ok(Listen { object, mode, _link: link })
    }

    /// How it is attached.
    pub fn mode(&self) -> AttachMode {
        self.mode
    }

    /// From now on frames of this queue that fit go to that AF_XDP socket; until it is closed.
    pub fn set_socket(&self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), BpfError> {
        let socket = u32::try_from(socket.as_raw_fd()).expect("invariant: open");
        map_of(&self.object, "sockets")
            .update(&queue.to_ne_bytes(), &socket.to_ne_bytes(), MapFlags::ANY)
            .map_err(|source| BpfError::Map { map: "sockets", source })
    }

    /// Reads the counters, summed over all CPUs.
    pub fn counters(&self) -> Result<ListenCounters, BpfError> {
        counters(&self.object)
    }
}

fn counters(object: &libbpf_rs::Object) -> Result<ListenCounters, BpfError> {
    let per_cpu = map_of(object, "counters")
        .lookup_percpu(&0_u32.to_ne_bytes(), MapFlags::ANY)
        .map_err(|source| BpfError::Map { map: "counters", source })?;
    let mut sum = ListenCounters::default();
    for bytes in per_cpu.into_iter().flatten() {
        let word = |at: usize| {
            let word = bytes.get(at * 8..at * 8 + 8).and_then(|word| word.try_into().ok());
            word.map_or(0, u64::from_ne_bytes)
        };
        sum.taken += word(0);
        sum.passed += word(1);
        sum.without_socket += word(2);
        sum.without_metadata += word(3);
    }
    Ok(sum)
}

/// The object in the kernel, and the name of the one program of it that is; bound to an interface
/// if the driver is to be asked.
fn loaded(
    filter: &FrameFilter,
    bound: Option<u32>,
) -> Result<(libbpf_rs::Object, &'static str), BpfError> {
    let name = if bound.is_some() { "tw_listen_bound" } else { "tw_listen" };
    let settings = encode(filter, objects::xdp_has_tai());
    let object = load(PROGRAM, OBJECT, |open| {
        for mut map in open.maps_mut() {
            if map.name().to_string_lossy().ends_with(".rodata") {
                let data = map.initial_value_mut().expect("invariant: rodata has a value");
                data[..settings.len()].copy_from_slice(&settings);
            }
        }
        for mut program in open.progs_mut() {
            let wanted = program.name() == name;
            program.set_autoload(wanted);
            if let Some(interface) = bound.filter(|_| wanted) {
                program.set_flags(BOUND_TO_DEVICE);
                program.set_ifindex(interface);
            }
        }
        Ok(())
    })?;
    Ok((object, name))
}

/// The mirror of `struct tw_listen_settings`.
fn encode(filter: &FrameFilter, has_tai: bool) -> [u8; 24] {
    let FrameFilter { ethertype, destination, source, vid, pcp, udp_port } = *filter;
    let mut bytes = [0; 24];
    let octets = |it: Option<MacAddress>| it.map_or([0; 6], |it| it.0);
    bytes[..6].copy_from_slice(&octets(destination));
    bytes[6..12].copy_from_slice(&octets(source));
    for (at, number) in [(12, ethertype), (14, vid), (16, udp_port)] {
        bytes[at..at + 2].copy_from_slice(&number.unwrap_or_default().to_ne_bytes());
    }
    bytes[18] = pcp.unwrap_or_default();
    let wants = [
        destination.is_some(),
        source.is_some(),
        ethertype.is_some(),
        vid.is_some(),
        pcp.is_some(),
        udp_port.is_some(),
    ];
    bytes[19] = wants.iter().rev().fold(0, |bits, wants| bits << 1 | u8::from(*wants));
    bytes[20] = u8::from(has_tai);
    bytes
}

#[cfg(test)]
mod tests {
    use libbpf_rs::ProgramInput;

    use super::*;
    use crate::receive::tests::{Random, verified_instructions};

    #[test]
    fn t0_timestamps_are_read_where_the_program_has_left_its_mark() {
        let mut bytes = [0; Metadata::LEN];
        bytes[..8].copy_from_slice(&7_i64.to_ne_bytes());
        assert_eq!(Metadata::decode(&bytes), Metadata::default());
        bytes[20..].copy_from_slice(&MARK.to_ne_bytes());
        let driver = Some(Instant::from_ns(7));
        assert_eq!(Metadata::decode(&bytes), Metadata { driver, hardware_ns: None });
        bytes[8..16].copy_from_slice(&9_i64.to_ne_bytes());
        assert_eq!(Metadata::decode(&bytes), Metadata { driver, hardware_ns: Some(9) });
    }

    fn filter(random: &mut Random) -> FrameFilter {
        let maybe = |random: &mut Random| random.of(&[true, false, false]);
        FrameFilter {
            ethertype: maybe(random).then(|| random.of(&[0x0800, 0x86dd, 0x8100])),
            destination: maybe(random)
                .then(|| MacAddress(random.of(&[[2, 0, 0, 0, 0, 1], [0xff; 6]]))),
            source: random.of(&[None, None, Some([2; 6]), Some([3; 6])]).map(MacAddress),
            vid: random.of(&[None, None, None, Some(5)]),
            pcp: random.of(&[None, None, None, Some(3)]),
            udp_port: maybe(random).then(|| random.of(&[15_001, 15_002, 9, 0])),
        }
    }

    /// No queue has a socket, so the counters tell which frames would have been taken.
    #[test]
    fn t3_the_program_wants_the_frames_that_the_rule_wants() {
        let mut random = Random(77);
        let (mut wanted, mut tagged) = (0, 0);
        for _ in 0..60 {
            let filter = filter(&mut random);
            let (object, name) = match loaded(&filter, None) {
                Ok(loaded) => loaded,
                Err(error) => return eprintln!("SKIP: {error}"),
            };
            let mut expected = ListenCounters::default();
            for turn in 0..400 {
                let mut frame = if turn % 2 == 0 { random.frame() } else { random.mutated() };
                if filter.vid.is_some() || filter.pcp.is_some() {
                    frame.splice(12..12, [0x81, 0, 0x60, 5]);
                    tagged += 1;
                }
                let input = ProgramInput { data_in: Some(&frame), ..ProgramInput::default() };
                let mut all = object.progs_mut();
                let program = all.find(|program| program.name() == name).unwrap();
                let verdict = program.test_run(input).unwrap().return_value;
                assert_eq!(verdict, 2, "passes");
                let fits = filter.fits(&frame);
                expected.without_socket += u64::from(fits);
                expected.passed += u64::from(!fits);
                wanted += u32::from(fits);
                assert_eq!(counters(&object).unwrap(), expected, "{filter:?} {frame:02x?}");
            }
        }
        assert!(wanted > 1_000 && tagged > 1_000, "{wanted} wanted, {tagged} tagged");
    }

    #[test]
    fn t3_the_verifier_needs_few_instructions_for_a_listener() {
        let all = FrameFilter {
            ethertype: Some(0x0800),
            destination: Some(MacAddress([2; 6])),
            source: Some(MacAddress([2; 6])),
            vid: Some(5),
            pcp: Some(5),
            udp_port: Some(9),
        };
        let (object, name) = match loaded(&all, None) {
            Ok(loaded) => loaded,
            Err(error) => return eprintln!("SKIP: {error}"),
        };
        let verified = verified_instructions(&program_of(&object, name));
        eprintln!("{name}: {verified} instructions verified");
        assert!((1..=20_000).contains(&verified), "{verified}");
    }
}
