// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The programs against their references: any frame has the same tag and the same numbers for a
//! filter in both, and a filter holds for it in both or in none. The kernel runs the program on
//! bytes of ours (`BPF_PROG_TEST_RUN`); nothing is attached.

use libbpf_rs::ProgramInput;
use timewire_capture::event::Flags;
use timewire_capture::filter::{Facts, Filter};
use timewire_capture::identity::{TagPlace, identify, is_kept};

use super::*;
use crate::receive::tests::{Random, verified_instructions};

/// **Units**: bytes of `struct tw_question` before the frame.
const BEFORE: usize = 24 + 24 + 17 * 8;

/// What the program says of a frame: tag, flags, verdict, words.
fn answer(tracer: &Tracer, frame: &[u8], linear: usize) -> (u64, u64, i64, Vec<u64>) {
    let small = |number: usize| u32::try_from(number).unwrap().to_ne_bytes();
    let mut value = vec![0; BEFORE + 2048];
    value[8..12].copy_from_slice(&small(frame.len()));
    value[12..16].copy_from_slice(&small(linear));
    value[16] = 1;
    value[BEFORE..BEFORE + frame.len()].copy_from_slice(frame);
    // What lies behind is none of the frame's.
    value[BEFORE + frame.len()..].fill(0x99);
    let map = map_of(&tracer.object, "question");
    let first = 0_u32.to_ne_bytes();
    map.update(&first, &value, MapFlags::ANY).unwrap();
    let mut programs = tracer.object.progs_mut();
    let program = programs.find(|program| program.name() == "tw_answer").unwrap();
    assert_eq!(program.test_run(ProgramInput::default()).unwrap().return_value, 0);
    let answer = map.lookup(&first, MapFlags::ANY).unwrap().unwrap();
    let word = |n: usize| u64::from_ne_bytes(answer[24 + n * 8..32 + n * 8].try_into().unwrap());
    (word(0), word(1), word(2).cast_signed(), (3..20).map(word).collect())
}

fn loaded(settings: &Settings) -> Option<Tracer> {
    let types = Btf::from_vmlinux().map_err(|source| BpfError::NoTypes { source });
    let tracer = types.and_then(|types| {
        let has = |level, at: &str| describes(&types, level, at);
        let choice = Choice::new(&settings.hooks, settings.levels, &BTreeMap::new(), &has);
        Tracer::load(settings, &choice, &types)
    });
    match tracer {
        Ok(tracer) => Some(tracer),
        Err(error @ BpfError::NoTypes { .. }) => {
            eprintln!("SKIP: {error}");
            None
        }
        Err(error) if timewire_sys::namespace::effective_user() != 0 => {
            eprintln!("SKIP: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// A frame of a kind that matters here.
fn frame(random: &mut Random) -> Vec<u8> {
    let mut frame = match random.of(&[0, 1, 2, 3, 4, 5]) {
        0 => [&[1; 12][..], &[0x88, 0xf7], &[3; 60]].concat(),
        1 => [&[1; 12][..], &[0x08, 0x06], &[5; 28]].concat(),
        2 => random.mutated(),
        _ => random.frame(),
    };
    // Timewire's own headers, where the payload of most begins.
    if let (Some(at), true) = (random.of(&[None, Some(42), Some(14), Some(46)]), frame.len() > 66) {
        let header = random.of(&[
            *b"TWs1\x05\x80\x04\x03",
            *b"TWs2\x05\x80\x04\x03",
            *b"\x01\x02\x03\x04TWm1",
        ]);
        frame[at..at + 8].copy_from_slice(&header);
    }
    frame
}

#[test]
fn t3_kernel_and_reference_know_any_frame_as_the_same() {
    let place = |offset, width, big_endian| Some(TagPlace { offset, width, big_endian });
    let mut random = Random(7);
    let (mut tagged, mut held) = (0, 0);
    for (tag, filter, keep_one_of) in [
        (None, "", 1),
        (None, "udp port 15001 or vlan 5 or arp", 1),
        (place(2, 4, true), "not (tcp or ip6)", 3),
        (place(30, 8, false), "ether proto 0x88f7 or portrange 15001-15002", 2),
        (place(63, 1, false), "host 10.0.0.1 or (udp and not vlan)", 1),
    ] {
        let filter = Filter::parse(filter).unwrap();
        let settings =
            Settings { filter: filter.compile().unwrap(), tag, keep_one_of, ..Settings::default() };
        let Some(tracer) = loaded(&settings) else { return };
        for _ in 0..4000 {
            let frame = frame(&mut random);
            let (found, flags, verdict, words) = answer(&tracer, &frame, frame.len());
            let facts = Facts::of_frame(&frame).unwrap();
            let keys = facts.keys();
            assert_eq!(words[..16], keys.words, "{frame:02x?}");
            assert_eq!(words[16], u64::from(keys.kind), "{frame:02x?}");
            let identity = identify(&frame, tag).unwrap();
            assert_eq!(found, identity.tag, "{frame:02x?} {facts:?}");
            assert_eq!(flags & 0xff == 1, identity.flags.has(Flags::TAGGED));
            let holds = filter.holds(&facts) && is_kept(identity.tag, keep_one_of);
            assert_eq!(verdict, i64::from(holds), "{frame:02x?}");
            tagged += u32::from(identity.flags.has(Flags::TAGGED));
            held += u32::from(holds);
        }
    }
    assert!(tagged > 1000 && held > 1000, "{tagged} {held}");
}

#[test]
fn t3_content_that_lies_elsewhere_is_told() {
    let Some(tracer) = loaded(&Settings::default()) else { return };
    let mut random = Random(3);
    for _ in 0..1000 {
        let frame = random.frame();
        let (_, whole, _, _) = answer(&tracer, &frame, frame.len());
        let (_, flags, _, _) = answer(&tracer, &frame, 14);
        assert_eq!((whole >> 32 & 1, flags >> 32 & 1), (0, 1), "{frame:02x?}");
    }
}

#[test]
fn t3_the_verifier_needs_few_instructions_for_tracing() {
    // What is no tracepoint is refused by kernels in lockdown; they are measured elsewhere.
    let levels = Levels::Only(Level::Tracepoint);
    let hooks = hooks().chain([Hook::Xdp]).collect();
    let Some(tracer) = loaded(&Settings { hooks, levels, ..Settings::default() }) else { return };
    let drivers = tracer.has_xdp().then_some(Hook::Xdp);
    for hook in tracer.hooks().iter().chain(&drivers) {
        let names = tracer.programs.get(hook).cloned();
        for name in names.unwrap_or_else(|| BTreeSet::from([XDP])) {
            let verified = verified_instructions(&program_of(&tracer.object, name));
            eprintln!("{name}: {verified} instructions verified");
            assert!((1..=20_000).contains(&verified), "{name}: {verified}");
        }
    }
}

/// What a kernel without these names is watched with, of sockets.
fn chosen(levels: Levels, refused: &[Level], without: &[&str]) -> Choice {
    let refused = refused.iter().map(|&level| (level, "refused".to_owned())).collect();
    let has = |_: Level, at: &str| !without.contains(&at);
    Choice::new(&[Hook::SocketSend, Hook::SocketReceive], levels, &refused, &has)
}

#[test]
fn t0_a_kernel_without_a_family_is_watched_at_the_others() {
    let old = ["sock_send_length", "sock_recv_length"];
    let without = [&old[..], &["packet_recvmsg", "inet6_sendmsg"]].concat();
    for (levels, refused, level) in [
        (Levels::Auto, &[][..], Level::Fentry),
        (Levels::Auto, &[Level::Fentry][..], Level::Kprobe),
        (Levels::Only(Level::Kprobe), &[][..], Level::Kprobe),
    ] {
        let choice = chosen(levels, refused, &without);
        assert!(choice.levels.values().all(|found| *found == level), "{choice:?}");
        let places = |hook| choice.probes(hook).map(|probe| probe.at).collect::<BTreeSet<_>>();
        assert_eq!(places(Hook::SocketSend), ["inet_sendmsg", "packet_sendmsg"].into());
        assert_eq!(places(Hook::SocketReceive), ["inet_recvmsg", "inet6_recvmsg"].into());
        let names: Vec<_> = choice.missing.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            ["socket-receive at packet_recvmsg", "socket-send at inet6_sendmsg"],
            "{choice:?}"
        );
    }
    // With tracepoints nothing is missing; without any family, all.
    let choice = chosen(Levels::Auto, &[], &["packet_recvmsg"]);
    assert!(choice.missing.is_empty() && choice.absent.is_empty(), "{choice:?}");
    let none = [&old[..], &["inet_recvmsg", "inet6_recvmsg", "packet_recvmsg"]].concat();
    let choice = chosen(Levels::Auto, &[], &none);
    assert_eq!(choice.levels, [(Hook::SocketSend, Level::Fentry)].into());
    let why = "this kernel has no tracepoint `sock_recv_length`; this kernel has no function \
               `inet_recvmsg` built in; this kernel has no function `inet_recvmsg` built in";
    assert_eq!(choice.missing["socket-receive"], why);
}

#[test]
fn t0_what_is_refused_is_blamed_on_its_level() {
    // Sends by a function, receives by a tracepoint.
    let choice = chosen(Levels::Auto, &[], &["sock_send_length"]);
    assert_eq!(choice.blamed(Some("inet_sendmsg")), Some(Level::Fentry));
    assert_eq!(choice.blamed(Some("sock_recv_length")), None);
    assert_eq!(choice.blamed(None), Some(Level::Fentry));
    assert_eq!(chosen(Levels::Auto, &[], &[]).blamed(None), None);
}
