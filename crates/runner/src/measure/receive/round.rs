// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One round: one combination for so long, with a talker of its own on the bench, or with what
//! others send to an interface.
//!
//! A receiver that spins before all other threads of its CPU spins 8 ms of every 10: the kernel
//! takes the CPU from a real-time thread that never sleeps, for 50 ms of every second
//! (linux v6.12 `kernel/sched/rt.c:sched_rt_runtime_exceeded`, and the fair server of
//! `kernel/sched/deadline.c`), which would be measured as the way's own. Messages that come while
//! it rests are counted and left out.

use std::net::{Ipv4Addr, SocketAddr};

use timewire_base::{Instant, Mono, Span, Tai};
use timewire_capture::stream::sequence::{Arrived, SequenceCounts, SequenceLimits, SequenceWatch};
use timewire_datapath::listen::{
    Arrival, FrameFilter, ReceiveOptions, ReceiveTimestamps, Receiver, Source,
};
use timewire_datapath::probe::Probe;
use timewire_datapath::ptp_frame::probe_of_frame;
use timewire_datapath::talker::StreamReport;
use timewire_datapath::transmit::TransmitOptions;
use timewire_sys::clock;
use timewire_sys::event::EndRequests;

use super::ReceiveSpec;
use super::plan::{Combination, Over};
use super::sample::Sample;
use super::world::{World, schedule, settle};
use crate::RunnerError;
use crate::measure::bench::{End, Pair};
use crate::measure::exchange::{
    self, Opened, Receiving, SLICE, STREAM, Sending, Signals, Talking, bench_frames, messages_in,
    mute, source_of, wait_for_timestamps, wait_of,
};
use crate::measure::nic_clock::{Look, Mapping, NicTimestamps};
use crate::measure::run::EndpointSetup;
use timewire_datapath::NicTimestamping;
use timewire_datapath::drops::{DropCause, QdiscCounts};

/// What came of a round.
#[derive(Clone, Debug, Default)]
pub(super) struct Round {
    /// How frames were received, in words.
    pub(super) mode: String,
    /// What was tried before and did not work.
    pub(super) refused: Vec<String>,
    /// What the talker of the bench did.
    pub(super) talker: Option<StreamReport>,
    /// Why messages of it did not leave.
    pub(super) drop_causes: Vec<DropCause>,
    /// What the sequence numbers say.
    pub(super) sequence: SequenceCounts,
    /// Frames that did not belong to the stream.
    pub(super) foreign: u64,
    /// Frames that the kernel dropped since the receiver was too slow.
    pub(super) dropped: u64,
    /// Frames that AF_XDP would have taken, on receive queues that it does not hear.
    pub(super) other_queues: u64,
    /// Messages that came while the receiver rested.
    pub(super) rested: u64,
    /// Messages without a timestamp of the kernel or driver.
    pub(super) not_timestamped: u64,
    /// Messages beyond those that are kept.
    pub(super) not_kept: u64,
    /// Frames that other packet sockets read.
    pub(super) others_read: u64,
    /// About the NIC's timestamps.
    pub(super) nic: NicTimestamps,
    /// The messages, in the order in which they came.
    pub(super) samples: Vec<Sample>,
    /// Whether it was asked to end before its time.
    pub(super) ended_early: bool,
}

/// The port of the bench's talker.
const PORT: u16 = 15_100;
/// Spinning and rest of a real-time thread.
const SPIN: Span = Span::from_ms(8);
const LOAD_SLEEP: Span = Span::from_ms(2);
/// Most messages of a round that are kept. **Units**: messages of 88 bytes.
pub(super) const MAX_KEPT: u64 = 2_000_000;

/// Makes the world of a combination, measures in it, and takes it back.
pub(super) fn run(
    spec: &ReceiveSpec,
    place: &EndpointSetup,
    of: &Combination,
    ends: &EndRequests,
) -> Result<Round, RunnerError> {
    let world = World::make(place, of)?;
    let result = measure(spec, place, of, ends);
    let others_read = world.others_read();
    world.undo()?;
    result.map(|round| Round { others_read, ..round })
}

fn measure(
    spec: &ReceiveSpec,
    place: &EndpointSetup,
    of: &Combination,
    ends: &EndRequests,
) -> Result<Round, RunnerError> {
    let receiver: Receiving<'_, Round> = Box::new(|signals, opened| {
        place.inside(End::B, || receive(spec, place, of, signals, opened))?
    });
    let mut talker: Option<Talking<'_, _>> = None;
    if let Some(pair) = place.pair() {
        let before = pair.inside(End::A, QdiscCounts::now)?;
        talker = Some(Box::new(move |signals| {
            pair.inside(End::A, || talk(spec, pair, of, before, signals))?
        }));
    }
    let (mut rounds, talked, ended_early) = exchange::run(ends, vec![receiver], talker)?;
    let mut round = rounds.pop().expect("invariant: there is one receiver");
    if let Some((talker, drop_causes)) = talked {
        (round.talker, round.drop_causes) = (Some(talker), drop_causes);
    }
    round.ended_early = ended_early;
    Ok(round)
}

/// How many messages a round has at most; `None` when only time ends it.
pub(super) fn count_of(spec: &ReceiveSpec, of: &Combination) -> Option<u64> {
    let by_time = spec.duration.zip(of.rate).map(|(time, rate)| messages_in(time, rate));
    match (spec.count, by_time) {
        (Some(count), Some(by_time)) => Some(count.min(by_time)),
        (count, by_time) => count.or(by_time),
    }
}

fn talk(
    spec: &ReceiveSpec,
    pair: &Pair,
    of: &Combination,
    before: QdiscCounts,
    signals: &Signals,
) -> Result<(StreamReport, Vec<DropCause>), RunnerError> {
    let rate = of.rate.ok_or_else(|| RunnerError::Invalid("the bench needs a rate".to_owned()))?;
    // The same frames for every source, and the same cost of sending them.
    let (port, to) = bench_frames(pair, PORT);
    let port = (port, TransmitOptions::default());
    let count = count_of(spec, of);
    let interface = Some(pair.interface());
    let talker =
        Sending { port, interface, to, rate, count, payload: spec.payload, before }.ready()?;
    if let Some(cpu) = spec.talker_cpu {
        timewire_sys::scheduler::set_affinity(0, &[cpu])
            .map_err(|error| RunnerError::kernel(format!("run on CPU {cpu}"), error))?;
    }
    schedule(spec.talker_policy)?;
    talker.talk(signals, &mut |_| {})
}

/// Where frames come from, and which are wanted.
fn wanted(spec: &ReceiveSpec, place: &EndpointSetup, of: &Combination) -> (Source, FrameFilter) {
    let bind = SocketAddr::from((Ipv4Addr::UNSPECIFIED, spec.port().unwrap_or(PORT)));
    let source = source_of(of.over, bind, place.name(), spec.queue());
    // Others send what they like; the bench's frames are known by their port.
    let of_bench = place.pair().map(|_| PORT);
    let udp_port = match of.over {
        Over::Udp => None,
        Over::Frames | Over::Ring => of_bench,
        // What it takes does not reach the stack, so of an interface only what is sent to the port.
        Over::Xdp(_) => of_bench.or(spec.port()),
    };
    (source, FrameFilter { udp_port, ..FrameFilter::default() })
}

fn receive(
    spec: &ReceiveSpec,
    place: &EndpointSetup,
    of: &Combination,
    signals: &Signals,
    opened: Opened,
) -> Result<Round, RunnerError> {
    let (source, filter) = wanted(spec, place, of);
    let before = match spec.timestamps {
        NicTimestamping::Unused => Err("its timestamps were not asked for".to_owned()),
        NicTimestamping::AsItIs | NicTimestamping::Told => place.look(),
    };
    let wait = wait_of(of.wait);
    let timestamps = ReceiveTimestamps { software: true, hardware: before.is_ok() };
    let options = ReceiveOptions { timestamps, wait, filter, ..ReceiveOptions::default() };
    let mut receiver = Receiver::open(&source, &options)?;
    let is_bench = place.pair().is_some();
    let _mute = is_bench.then(|| mute(of.over, (Ipv4Addr::UNSPECIFIED, PORT).into())).flatten();
    wait_for_timestamps(&receiver);
    settle(of)?;
    let expected = count_of(spec, of);
    let room = usize::try_from(expected.unwrap_or(MAX_KEPT).min(MAX_KEPT)).unwrap_or(0);
    let mut log = Log {
        is_udp: of.over == Over::Udp,
        is_bench,
        stream: is_bench.then_some(STREAM),
        watch: SequenceWatch::new(SequenceLimits::default()),
        round: Round { samples: Vec::with_capacity(room), ..Round::default() },
        is_resting: false,
    };
    opened.tell();
    let mut pace = Pace::new(of.must_rest());
    let end = spec.duration.map(|duration| clock::now::<Mono>() + duration);
    let mut last = clock::now::<Mono>();
    loop {
        let came = pace.receive(&mut receiver, &mut log)?;
        let now = clock::now::<Mono>();
        if came > 0 {
            last = now;
        }
        let received = log.watch.counts().received;
        let is_over = match is_bench {
            true => signals.is_over(received, now, last),
            false => {
                end.is_some_and(|end| now >= end)
                    || spec.count.is_some_and(|count| received >= count)
                    || signals.is_stopped()
            }
        };
        if is_over {
            break;
        }
    }
    receiver
        .take_error()
        .map_err(|error| RunnerError::kernel(format!("receive {source}"), error))?;
    let Log { mut watch, mut round, .. } = log;
    round.mode = receiver.mode().to_owned();
    round.refused = receiver.refused().to_vec();
    round.sequence = watch.finish();
    round.dropped =
        receiver.drops().map_err(|error| RunnerError::kernel("ask for drops", error))?;
    round.other_queues = receiver.counters().transpose()?.map_or(0, |it| it.without_socket);
    round.nic = bring_over(&mut round.samples, before, place, spec.max_clock_error);
    Ok(round)
}

/// Makes the system's time of the NIC's timestamps, or takes them away.
fn bring_over(
    samples: &mut [Sample],
    before: Result<Look, String>,
    place: &EndpointSetup,
    max_error: Span,
) -> NicTimestamps {
    let mapping = before.and_then(|before| Mapping::new(before, place.look()?, max_error));
    let has_any = samples.iter().any(|sample| sample.hardware.is_some());
    for sample in samples {
        sample.hardware = match &mapping {
            Ok(mapping) => sample.hardware.map(|ns| mapping.tai_ns(ns)),
            Err(_) => None,
        };
    }
    match mapping {
        Ok(_) if !has_any => NicTimestamps::unknown(
            "the NIC timestamped no message: `--timestamps hardware` tells it to, and one that \
                timestamps PTP \
             only needs `talk --ptp`",
        ),
        Ok(mapping) => NicTimestamps::known(&mapping),
        Err(why) => NicTimestamps::unknown(why),
    }
}

/// What is kept of messages.
struct Log {
    is_udp: bool,
    is_bench: bool,
    stream: Option<u16>,
    watch: SequenceWatch,
    round: Round,
    is_resting: bool,
}

impl Log {
    fn take(&mut self, arrival: &Arrival<'_>) {
        let probe = if self.is_udp {
            Probe::parse(arrival.bytes)
        } else {
            probe_of_frame(arrival.bytes, arrival.whole_length())
        };
        let Some(probe) = probe else {
            self.round.foreign += 1;
            return;
        };
        if *self.stream.get_or_insert(probe.stream) != probe.stream {
            self.round.foreign += 1;
            return;
        }
        if self.watch.arrived(probe.seq) == Arrived::Duplicate {
            return;
        }
        if self.is_resting {
            self.round.rested += 1;
            return;
        }
        let ns = |at: Option<Instant<Tai>>| at.map(Instant::as_ns);
        let sample = Sample {
            seq: probe.seq,
            // The clock of another host is another clock.
            send: (self.is_bench && !probe.is_launch).then_some(probe.time.as_ns()),
            hardware: arrival.hardware_ns,
            driver: ns(arrival.driver),
            kernel: ns(arrival.kernel),
            user: arrival.user.as_ns(),
        };
        if sample.driver.is_none() && sample.kernel.is_none() {
            self.round.not_timestamped += 1;
        }
        if self.round.samples.len() < self.round.samples.capacity() {
            self.round.samples.push(sample);
        } else {
            self.round.not_kept += 1;
        }
    }
}

/// When a receiver looks and when it rests.
struct Pace {
    must_rest: bool,
    spun_since: Instant<Mono>,
}

impl Pace {
    fn new(must_rest: bool) -> Pace {
        Pace { must_rest, spun_since: clock::now() }
    }

    fn receive(&mut self, receiver: &mut Receiver, log: &mut Log) -> Result<usize, RunnerError> {
        let failed = |error| RunnerError::kernel("receive", error);
        let mut slice = SLICE;
        if self.must_rest {
            let now = clock::now::<Mono>();
            let rest_at = self.spun_since + SPIN;
            slice = rest_at - now;
            if slice <= Span::ZERO {
                clock::sleep_until(now + LOAD_SLEEP);
                // What waits had come during the rest, or behind what had.
                log.is_resting = true;
                let mut came = 0;
                loop {
                    let more = receiver.receive(Some(Span::ZERO), &mut |a| log.take(&a));
                    match more.map_err(failed)? {
                        0 => break,
                        more => came += more,
                    }
                }
                log.is_resting = false;
                self.spun_since = clock::now();
                return Ok(came);
            }
        }
        receiver.receive(Some(slice), &mut |arrival| log.take(&arrival)).map_err(failed)
    }
}
