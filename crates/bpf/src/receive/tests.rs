// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The classifier in the kernel against the one of the MAC: any frame has the same class in both.
//! The kernel runs the program on bytes of ours (`BPF_PROG_TEST_RUN`); nothing is attached.

use std::os::fd::AsRawFd;

use libbpf_rs::ProgramInput;
use timewire_tsn::PortRules;

use super::*;

const OWN: [u8; 6] = [2, 0, 0, 0, 0, 1];
const XDP_DROP: u32 = 1;
const XDP_PASS: u32 = 2;
const XDP_REDIRECT: u32 = 4;

/// The programs in the kernel, if this host lets us load them.
fn loaded() -> Option<StationPrograms> {
    let settings = Settings { stack_interface: 1, defer_cpu: 0, address: OWN };
    match StationPrograms::load(settings) {
        Ok(programs) => Some(programs),
        Err(error) => {
            eprintln!("SKIP: {error}");
            None
        }
    }
}

/// What the program does with a frame.
fn verdict(programs: &mut StationPrograms, frame: &[u8]) -> u32 {
    let input = ProgramInput { data_in: Some(frame), ..ProgramInput::default() };
    let mut all = programs.programs.0.progs_mut();
    let program = all.find(|program| program.name() == "tw_classify").unwrap();
    program.test_run(input).unwrap().return_value
}

fn count(programs: &StationPrograms, which: u32) -> u64 {
    let counters = map_of(&programs.programs.0, "counters");
    read_counter(&counters, which).unwrap().iter().map(|counter| counter.frames).sum()
}

fn list(ports: &[(u64, u64)]) -> Vec<(Port, Priority)> {
    let pair = |&(port, priority)| (Port::new(port).unwrap(), Priority::new(priority).unwrap());
    ports.iter().map(pair).collect()
}

/// Xorshift: the same frames every time.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % bound
    }

    pub(super) fn byte(&mut self) -> u8 {
        self.below(256).to_le_bytes()[0]
    }

    pub(crate) fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// A frame that is mostly right: tags, IPv4 with options or IPv6 with extensions, then ports.
    pub(crate) fn frame(&mut self) -> Vec<u8> {
        let mut frame = self.of(&[OWN, [0xff; 6], [2, 0, 0, 0, 0, 9]]).to_vec();
        frame.extend([2; 6]);
        for _ in 0..self.of(&[0, 0, 0, 1, 2, 3]) {
            frame.extend(self.of(&[[0x81, 0x00], [0x88, 0xa8]]));
            frame.extend([self.byte(), self.byte()]);
        }
        let protocol = self.of(&[17, 17, 6, 1]);
        let mut segment = Vec::new();
        for _ in 0..2 {
            segment.extend(self.of(&[15_001_u16, 15_002, 15_003, 9, 0]).to_be_bytes());
        }
        let content = self.of(&[4, 8, 20, 32, 64, 200]);
        segment.resize_with(4.max(content), || self.byte());
        if self.below(2) == 0 {
            self.ipv4(&mut frame, protocol, &segment);
        } else {
            self.ipv6(&mut frame, protocol, &segment);
        }
        // Padding to the smallest frame, or none.
        let padded = self.of(&[0, 60]).max(frame.len());
        frame.resize(padded, 0);
        frame
    }

    pub(super) fn ipv4(&mut self, frame: &mut Vec<u8>, protocol: u8, segment: &[u8]) {
        let header = 20 + 4 * self.of(&[0, 0, 1, 10]);
        let total = u16::try_from(header + segment.len()).unwrap();
        let total = total.saturating_add_signed(self.of(&[0, 0, 0, 0, 0, 0, -1, 1, -13, 500]));
        frame.extend([0x08, 0x00, 0x40 | u8::try_from(header / 4).unwrap(), 0]);
        frame.extend(total.to_be_bytes());
        frame.extend([0, 0]);
        frame.extend(self.of(&[[0, 0], [0, 0], [0x40, 0], [0x40, 0], [0x20, 0], [0, 5]]));
        frame.extend([64, protocol]);
        frame.resize_with(frame.len() + header - 10, || self.byte());
        frame.extend(segment);
    }

    pub(super) fn ipv6(&mut self, frame: &mut Vec<u8>, protocol: u8, segment: &[u8]) {
        let kinds: Vec<u8> = (0..self.of(&[0, 0, 1, 2, 4, 5]))
            .map(|_| self.of(&[0, 43, 60, 0, 43, 60, 44]))
            .collect();
        let mut body = Vec::new();
        for next in kinds.iter().skip(1).copied().chain([protocol]).take(kinds.len()) {
            let longer = self.of(&[0, 0, 1, 3]);
            body.extend([next, longer]);
            body.resize(body.len() + 6 + usize::from(longer) * 8, 1);
        }
        body.extend(segment);
        let payload = u16::try_from(body.len()).unwrap();
        let payload = payload.saturating_add_signed(self.of(&[0, 0, 0, 0, 0, 0, -1, 1, -9, 500]));
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        frame.extend(payload.to_be_bytes());
        frame.extend([kinds.first().copied().unwrap_or(protocol), 64]);
        frame.resize(frame.len() + 32, 3);
        frame.extend(body);
    }

    /// A frame with some of its bytes changed, or cut short.
    pub(crate) fn mutated(&mut self) -> Vec<u8> {
        let mut frame = self.frame();
        for _ in 0..self.below(4) {
            let at = self.below(frame.len());
            frame[at] = self.byte();
        }
        if self.below(3) == 0 {
            frame.truncate(14 + self.below(frame.len() - 13));
        }
        frame
    }
}

#[test]
fn t3_kernel_and_mac_give_any_frame_the_same_class() {
    let Some(mut programs) = loaded() else { return };
    let ports = list(&[(15_001, 1), (15_002, 17), (15_003, 32)]);
    let rules = PortRules::new(3, &ports).unwrap();
    programs.set_rules(&ports).unwrap();
    let mut random = Random(1);
    let mut prioritised = 0_u32;
    for turn in 0..40_000 {
        let frame = if turn % 2 == 0 { random.frame() } else { random.mutated() };
        let class = rules.classify(&frame).map_or(0, |priority| u32::from(priority.get()));
        let foreign = frame[0] & 1 == 0 && frame[..6] != OWN;
        let counter = if foreign { SLOT_FOREIGN } else { class };
        let before = (count(&programs, counter), count(&programs, SLOT_REAL_TIME));
        let expected = match (foreign, class) {
            (true, _) => XDP_DROP,
            (false, 0) => XDP_REDIRECT,
            (false, _) => XDP_PASS,
        };
        assert_eq!(verdict(&mut programs, &frame), expected, "class {class}: {frame:02x?}");
        let after = (count(&programs, counter), count(&programs, SLOT_REAL_TIME));
        let real_time = u64::from(class > 0);
        assert_eq!(after, (before.0 + 1, before.1 + real_time), "class {class}: {frame:02x?}");
        prioritised += u32::from(class > 0);
    }
    // The frames are worth something: a good part has a priority, a good part has not.
    assert!((6_000..34_000).contains(&prioritised), "{prioritised} of 40000 have a priority");
}

#[test]
fn t3_without_a_list_nothing_is_deferred() {
    let Some(mut programs) = loaded() else { return };
    let mut random = Random(2);
    for ports in [list(&[]), list(&[(15_001, 1)]), list(&[])] {
        programs.set_rules(&ports).unwrap();
        let mut deferred = 0;
        for _ in 0..500 {
            let mut frame = random.frame();
            frame[..6].copy_from_slice(&OWN);
            deferred += u32::from(verdict(&mut programs, &frame) == XDP_REDIRECT);
        }
        assert_eq!(deferred == 0, ports.is_empty(), "{deferred} deferred with {ports:?}");
    }
}

/// The kernel refuses a program whose verification takes more than a million instructions; ours
/// must stay far below on every kernel. The table is in the crate's README.
#[test]
fn t3_the_verifier_needs_few_instructions() {
    let Some(programs) = loaded() else { return };
    let ingress = match crate::ingress::tests::loaded() {
        Ok(object) => object,
        Err(error) => panic!("this host loads one program and not the other: {error}"),
    };
    let pass = crate::pass::loaded().unwrap();
    let bounds = [
        (&programs.programs.0, "tw_classify", 100_000),
        (&programs.programs.0, "tw_to_stack", 20),
        (&ingress, "tw_to_mac", 20),
        (&pass, "tw_pass", 20),
    ];
    for (object, name, bound) in bounds {
        let verified = verified_instructions(&program_of(object, name));
        eprintln!("{name}: {verified} instructions verified");
        assert!((1..=bound).contains(&verified), "{name}: {verified} is not 1 to {bound}");
    }
}

pub(crate) fn verified_instructions(program: &libbpf_rs::Program<'_>) -> u32 {
    // SAFETY: all-zero is a valid bpf_prog_info (plain integers).
    let mut info: libbpf_sys::bpf_prog_info = unsafe { std::mem::zeroed() };
    let mut length = u32::try_from(size_of_val(&info)).unwrap();
    // SAFETY: the descriptor is open, and `info` is writable for `length` bytes; with all pointers
    // in it null the kernel writes nothing else.
    let result = unsafe {
        libbpf_sys::bpf_obj_get_info_by_fd(
            program.as_fd().as_raw_fd(),
            (&raw mut info).cast(),
            &raw mut length,
        )
    };
    assert_eq!(result, 0);
    info.verified_insns
}
