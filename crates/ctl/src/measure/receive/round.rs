// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One round: one combination for so long, with a talker of its own on the bench, or with what
//! others send to an interface.
//!
//! A receiver that spins before all other threads of its CPU spins 8 ms of every 10: the kernel
//! takes the CPU from a real-time thread that never sleeps, for 50 ms of every second
//! (linux v6.12 `kernel/sched/rt.c:sched_rt_runtime_exceeded`, and the fair server of
//! `kernel/sched/deadline.c`), which would be measured as the way's own. Messages that come while
//! it rests are counted and left out.
//!
//! Not here: the world around it (`world`), what is made of the samples (`report`).

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use timewire_base::{IfName, Instant, Mono, Span, Tai};
use timewire_path::listen::{
    Arrival, FrameFilter, ReceiveOptions, ReceiveStamps, Receiver, Source,
};
use timewire_path::probe::Probe;
use timewire_path::ptp_frame::probe_of_frame;
use timewire_path::talker::StreamReport;
use timewire_path::transmit::TransmitOptions;
use timewire_sys::clock;
use timewire_sys::event::EndRequests;
use timewire_trace::stream::sequence::{Arrived, SequenceCounts, SequenceLimits, SequenceWatch};

use super::plan::{Combination, Over};
use super::sample::Sample;
use super::world::{World, schedule, settle};
use super::{Place, ReceiveSpec};
use crate::CardStamping;
use crate::drops::{DropCause, QdiscCounts};
use crate::measure::MeasureError;
use crate::measure::bench::End;
use crate::measure::card_clock::{self, CardStamps, Mapping};
use crate::measure::exchange::{
    SLICE, STREAM, Sending, Signals, bench_frames, messages_in, mute, source_of, wait_for_stamps,
    wait_of,
};

/// What came of a round.
#[derive(Clone, Debug)]
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
    /// Messages without a stamp of the kernel or driver.
    pub(super) unstamped: u64,
    /// Messages beyond those that are kept.
    pub(super) not_kept: u64,
    /// Frames that other packet sockets read.
    pub(super) others_read: u64,
    /// About the card's stamps.
    pub(super) card: CardStamps,
    /// The messages, in the order in which they came.
    pub(super) samples: Vec<Sample>,
    /// Whether it was asked to end before its time.
    pub(super) ended_early: bool,
}

/// The port of the bench's talker.
const PORT: u16 = 15_100;
/// Spinning and rest of a real-time thread.
const SPIN: Span = Span::from_ms(8);
const REST: Span = Span::from_ms(2);
/// Most messages of a round that are kept. **Units**: messages of 88 bytes.
pub(super) const MOST_KEPT: u64 = 2_000_000;

/// Makes the world of a combination, measures in it, and takes it back.
pub(super) fn run(
    spec: &ReceiveSpec,
    place: &Place,
    of: &Combination,
    ends: &EndRequests,
) -> Result<Round, MeasureError> {
    let world = World::make(place, of)?;
    let result = measure(spec, place, of, ends);
    let others_read = world.others_read();
    world.undo()?;
    result.map(|round| Round { others_read, ..round })
}

fn measure(
    spec: &ReceiveSpec,
    place: &Place,
    of: &Combination,
    ends: &EndRequests,
) -> Result<Round, MeasureError> {
    let signals = Signals::default();
    let before = match place {
        Place::Bench(pair) => Some(pair.inside(End::A, QdiscCounts::now)?),
        _ => None,
    };
    let (ready, opened) = sync_channel(1);
    let (result, talked, ended_early) = thread::scope(|scope| {
        let signals = &signals;
        let receiver = scope.spawn(move || {
            let received = place.receiving(|| receive(spec, place, of, signals, &ready));
            signals.receiver_ended();
            received.map_err(MeasureError::from).and_then(|it| it)
        });
        // An error comes with the end of the receiver.
        let is_open = opened.recv().is_ok();
        let talker = match place {
            Place::Bench(pair) if is_open => before.map(|before| {
                scope.spawn(move || {
                    let talked = pair.inside(End::A, || talk(spec, place, of, before, signals));
                    signals.talker_ended();
                    talked.map_err(MeasureError::from).and_then(|it| it)
                })
            }),
            _ => None,
        };
        let ended_early = signals.wait(ends);
        let talked = talker.map(|talker| talker.join().expect("invariant: talkers do not panic"));
        let received = receiver.join().expect("invariant: receivers do not panic");
        (received, talked, ended_early)
    });
    let mut round = result?;
    if let Some((talker, drop_causes)) = talked.transpose()? {
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
    place: &Place,
    of: &Combination,
    before: QdiscCounts,
    signals: &Signals,
) -> Result<(StreamReport, Vec<DropCause>), MeasureError> {
    let Place::Bench(pair) = place else {
        return Err(MeasureError::Invalid("only the bench has a talker".to_owned()));
    };
    let rate = of.rate.ok_or_else(|| MeasureError::Invalid("the bench needs a rate".to_owned()))?;
    // The same frames for every source, and the same cost of sending them.
    let (port, to) = bench_frames(pair, PORT);
    let port = (port, TransmitOptions::default());
    let count = count_of(spec, of);
    let interface = Some(pair.interface());
    let talker =
        Sending { port, interface, to, rate, count, payload: spec.payload, before }.ready()?;
    if let Some(cpu) = spec.talker_cpu {
        timewire_sys::scheduler::set_affinity(0, &[cpu])
            .map_err(|error| MeasureError::kernel(format!("run on CPU {cpu}"), error))?;
    }
    schedule(spec.talker_policy)?;
    talker.talk(signals, &mut |_| {})
}

/// Where frames come from, and which are wanted.
fn wanted(place: &Place, of: &Combination) -> (Source, FrameFilter) {
    let bind = SocketAddr::from((Ipv4Addr::UNSPECIFIED, place.port().unwrap_or(PORT)));
    let source = source_of(of.over, bind, Some(place.interface()), place.queue());
    // Others send what they like; the bench's frames are known by their port.
    let udp_port = matches!(place, Place::Bench(_)).then_some(PORT);
    let filter = FrameFilter { udp_port, ..FrameFilter::default() };
    match of.over {
        Over::Udp => (source, FrameFilter::default()),
        Over::Frames | Over::Ring => (source, filter),
        Over::Xdp(_) => (source, place.xdp(filter)),
    }
}

fn receive(
    spec: &ReceiveSpec,
    place: &Place,
    of: &Combination,
    signals: &Signals,
    ready: &SyncSender<()>,
) -> Result<Round, MeasureError> {
    let (source, filter) = wanted(place, of);
    let before = match spec.stamps {
        CardStamping::Unused => Err("its stamps were not asked for".to_owned()),
        CardStamping::AsItIs | CardStamping::Told => place.card(),
    };
    let wait = wait_of(of.wait);
    let stamps = ReceiveStamps { software: true, hardware: before.is_ok() };
    let options = ReceiveOptions { stamps, wait, filter, ..ReceiveOptions::default() };
    let mut receiver = Receiver::open(&source, &options)?;
    let is_bench = matches!(place, Place::Bench(_));
    let _mute = is_bench.then(|| mute(of.over, (Ipv4Addr::UNSPECIFIED, PORT).into())).flatten();
    wait_for_stamps(&receiver);
    settle(of)?;
    let expected = count_of(spec, of);
    let room = usize::try_from(expected.unwrap_or(MOST_KEPT).min(MOST_KEPT)).unwrap_or(0);
    let mut log = Log {
        is_udp: of.over == Over::Udp,
        is_bench,
        stream: is_bench.then_some(STREAM),
        watch: SequenceWatch::new(SequenceLimits::default()),
        samples: Vec::with_capacity(room),
        foreign: 0,
        rested: 0,
        unstamped: 0,
        not_kept: 0,
        is_resting: false,
    };
    let _ = ready.try_send(());
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
        let is_over = match place {
            Place::Bench(_) => signals.is_over(received, now, last),
            Place::Interface { .. } => {
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
        .map_err(|error| MeasureError::kernel(format!("receive {source}"), error))?;
    let dropped = receiver.drops().map_err(|error| MeasureError::kernel("ask for drops", error))?;
    let other_queues = receiver.counters().transpose()?.map_or(0, |it| it.without_socket);
    let card = bring_over(&mut log.samples, before, place, spec.max_clock_error);
    Ok(Round {
        mode: receiver.mode().to_owned(),
        refused: receiver.refused().to_vec(),
        talker: None,
        drop_causes: Vec::new(),
        sequence: log.watch.finish(),
        foreign: log.foreign,
        dropped,
        other_queues,
        rested: log.rested,
        unstamped: log.unstamped,
        not_kept: log.not_kept,
        others_read: 0,
        card,
        samples: log.samples,
        ended_early: false,
    })
}

/// Makes the system's time of the card's stamps, or takes them away.
fn bring_over(
    samples: &mut [Sample],
    before: Result<card_clock::Look, String>,
    place: &Place,
    max_error: Span,
) -> CardStamps {
    let mapping = before.and_then(|before| Mapping::new(before, place.card()?, max_error));
    let has_any = samples.iter().any(|sample| sample.hardware.is_some());
    for sample in samples {
        sample.hardware = match &mapping {
            Ok(mapping) => sample.hardware.map(|ns| mapping.tai_ns(ns)),
            Err(_) => None,
        };
    }
    match mapping {
        Ok(_) if !has_any => CardStamps::unknown(
            "the card stamped no message: `--stamps hardware` tells it to, and one that stamps PTP \
             only needs `talk --ptp`",
        ),
        Ok(mapping) => CardStamps::known(&mapping),
        Err(why) => CardStamps::unknown(why),
    }
}

/// What is kept of messages.
struct Log {
    is_udp: bool,
    is_bench: bool,
    stream: Option<u16>,
    watch: SequenceWatch,
    samples: Vec<Sample>,
    foreign: u64,
    rested: u64,
    unstamped: u64,
    not_kept: u64,
    is_resting: bool,
}

impl Log {
    fn take(&mut self, arrival: &Arrival<'_>) {
        let probe =
            if self.is_udp { Probe::parse(arrival.bytes) } else { probe_of_frame(arrival.bytes) };
        let Some(probe) = probe else {
            self.foreign += 1;
            return;
        };
        if *self.stream.get_or_insert(probe.stream) != probe.stream {
            self.foreign += 1;
            return;
        }
        if self.watch.arrived(probe.seq) == Arrived::Duplicate {
            return;
        }
        if self.is_resting {
            self.rested += 1;
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
            self.unstamped += 1;
        }
        if self.samples.len() < self.samples.capacity() {
            self.samples.push(sample);
        } else {
            self.not_kept += 1;
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

    fn receive(&mut self, receiver: &mut Receiver, log: &mut Log) -> Result<usize, MeasureError> {
        let failed = |error| MeasureError::kernel("receive", error);
        let mut slice = SLICE;
        if self.must_rest {
            let now = clock::now::<Mono>();
            let rest_at = self.spun_since + SPIN;
            slice = rest_at - now;
            if slice <= Span::ZERO {
                clock::sleep_until(now + REST);
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

/// How the interface's clock stands.
pub(super) fn card_of(interface: &IfName) -> Result<card_clock::Look, String> {
    card_clock::look(interface)
}
