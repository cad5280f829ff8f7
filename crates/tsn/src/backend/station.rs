// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What one station's interface is given for each backend of the kernel, as words of `tc`.
//!
//! In all of them the best-effort class has the first transmit queue and the real-time class the
//! second. An interface that states more than the segment's rate would hand over at once whatever
//! waits, so best effort passes a `tbf` of the segment's rate, or is spaced by launch times.

use thiserror::Error;
use timewire_base::{BitsPerSecond, FrameLen, GateMask, Span, StationName, TrafficClass, WireLen};

use super::TransmitBackend;
use super::launch::{frame_of, launch_plan, real_time_of};
use crate::qdisc::{
    CreditError, CreditShaper, Etf, EtfFlags, GateControlEntry, Mqprio, MqprioHardware,
    MqprioOptions, QdiscClock, QdiscError, ReservedClass, ReservedStream, SizeTable, Taprio,
    TaprioMode, TaprioOptions, TdmPort, TdmTaprioError, best_effort_and_real_time,
    rate_of_streams_ceil, taprio_duration, taprio_of_station,
};
use timewire_model::scenario::{Measured, Name, Scenario, Stream};

/// A schedule or stream that a backend cannot carry.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BackendError {
    /// No gates can be made of the schedule.
    #[error(transparent)]
    Gates(#[from] TdmTaprioError),
    /// Linux would refuse the result.
    #[error(transparent)]
    Qdisc(#[from] QdiscError),
    /// The real-time class cannot be shaped.
    #[error("the real-time streams of `{station}` cannot be shaped: {source}")]
    Credit {
        /// Whose class.
        station: StationName,
        /// Why.
        source: CreditError,
    },
    /// The part of the slots that a stream has is too short for one frame of it.
    #[error(
        "the real-time stream `{stream}` has {part} of the longest slot of `{station}`, and a \
         frame of it lasts {busy}"
    )]
    NoRoom {
        /// The stream.
        stream: Name,
        /// The station.
        station: StationName,
        /// Its longest part of a slot.
        part: Span,
        /// How long a frame is on the link.
        busy: Span,
    },
    /// The slot does not hold a real-time window and one best-effort frame beside it.
    #[error(
        "the slot of `{station}` at {offset} transmits for {transmit}: a window for {frames} \
         real-time frames and one frame of best effort need {least}"
    )]
    SlotTooShort {
        /// The station.
        station: StationName,
        /// Start of the slot in the cycle.
        offset: Span,
        /// How long it transmits.
        transmit: Span,
        /// How many real-time frames the station sends in it.
        frames: usize,
        /// What it must have.
        least: Span,
    },
    /// A stream that has no launch times at this station.
    #[error("`{station}` sends no frame of a real-time stream `{stream}`")]
    NotRealTime {
        /// The stream.
        stream: Name,
        /// The station.
        station: StationName,
    },
}

/// What a station's real-time class reserves under `cbs`: what it may send in any interval is the
/// rate times its length, and one burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// The rate, frames counted as on the wire.
    #[doc(alias = "idleSlope")]
    pub rate: BitsPerSecond,
    /// `hiCredit` less `loCredit`. **Units**: bits.
    pub burst_bits: u64,
    shaper: CreditShaper,
}

/// What the real-time class of a station reserves: of each of its real-time streams one frame in a
/// cycle, or as many as come in one by the stream's period. `None` when it has no real-time stream.
///
/// **Errors**: more than the interface can carry.
pub fn reservation(
    scenario: &Scenario,
    station: &StationName,
) -> Result<Option<Reservation>, BackendError> {
    let port = TdmPort::virtual_of(scenario);
    let cycle = scenario.schedule.cycle();
    let streams: Vec<_> = real_time_of(scenario, station)
        .map(|stream| ReservedStream {
            longest: wire_len(&stream),
            frames: u32::try_from(stream.frames_in(cycle)).unwrap_or(u32::MAX),
        })
        .collect();
    let longest = streams.iter().map(|stream| stream.longest);
    let Some(longest) = longest.max_by_key(|length| length.get()) else {
        return Ok(None);
    };
    let failed = |source| BackendError::Credit { station: station.clone(), source };
    let rate = rate_of_streams_ceil(&streams, cycle).map_err(failed)?;
    let class = ReservedClass { idle_slope: rate, longest };
    let shaper =
        CreditShaper::class_a(port.stated, class, port.largest.wire_len()).map_err(failed)?;
    let burst = shaper.hi_credit_bits() - shaper.lo_credit_bits();
    let burst_bits = u64::try_from(burst).expect("invariant: hiCredit is above loCredit");
    Ok(Some(Reservation { rate, burst_bits, shaper }))
}

fn wire_len(stream: &Measured<'_>) -> WireLen {
    frame_of(stream.size).wire_len()
}

/// What `tc qdisc add dev INTERFACE` is given for one station, line by line; nothing where the
/// station needs none, as with Timewire's own MAC.
///
/// **Errors**: a schedule or streams that the backend cannot carry.
pub fn station_qdiscs(
    scenario: &Scenario,
    station: &StationName,
    backend: TransmitBackend,
) -> Result<Vec<String>, BackendError> {
    let port = TdmPort::virtual_of(scenario);
    match backend {
        TransmitBackend::Mac => Ok(Vec::new()),
        TransmitBackend::Taprio => {
            let gates = taprio_of_station(&scenario.schedule, station, &port)?;
            Ok(vec![format!("root handle 100: {gates}"), link_rate(scenario, &port)])
        }
        TransmitBackend::TaprioAssist => assisted(scenario, station, &port),
        TransmitBackend::Etf => {
            for stream in real_time_of(scenario, station) {
                launch_plan(scenario, &stream.name, station)?;
            }
            let etf = Etf::new(scenario.mac.launch_delta, EtfFlags::default())?;
            Ok(vec![
                format!("root handle 100: {}", two_classes(&port)?),
                link_rate(scenario, &port),
                format!("parent 100:2 {etf}"),
            ])
        }
        TransmitBackend::Cbs => {
            let mut lines = vec![
                format!("root handle 100: {}", two_classes(&port)?),
                link_rate(scenario, &port),
            ];
            if let Some(reservation) = reservation(scenario, station)? {
                let cbs = reservation.shaper.to_cbs_kbit_and_bytes(false);
                let failed = |source| BackendError::Credit { station: station.clone(), source };
                let (table, cbs) = (SizeTable::ETHERNET, cbs.map_err(failed)?);
                lines.push(format!("parent 100:2 handle 102: {table} {cbs}"));
            }
            Ok(lines)
        }
    }
}

/// Best effort at the segment's rate, frame by frame: what a NIC of that rate would take.
fn link_rate(scenario: &Scenario, port: &TdmPort) -> String {
    let rate = scenario.segment().rate.get();
    let burst = port.largest.wire_len().get();
    let queued = scenario.mac.queue_frames.get() * u64::from(port.largest.get());
    format!("parent 100:1 tbf rate {rate}bit burst {burst} limit {queued} overhead 24 mpu 84")
}

fn two_classes(port: &TdmPort) -> Result<Mqprio, QdiscError> {
    Mqprio::new(MqprioOptions {
        classes: best_effort_and_real_time(&port.urgent)?,
        hardware: MqprioHardware::None,
        min_rate: Vec::new(),
        max_rate: Vec::new(),
        preemption: Vec::new(),
    })
}

/// `taprio` that gives launch times, and an `etf` for each class that keeps them.
///
/// It takes one frame after the other from one list for each gate, whatever its class, at the rate
/// that the interface states. So the classes have gates of their own, and each frame counts as
/// what the longest frame of the scenario lasts on the link, by a size table. Its launch times are
/// those of the gates; `etf` in software sends `delta` before them, so the gates are that much
/// later than the slots.
///
/// **Source**: `linux v6.12 net/sched/sch_taprio.c:get_packet_txtime`, `find_entry_to_transmit`.
fn assisted(
    scenario: &Scenario,
    station: &StationName,
    port: &TdmPort,
) -> Result<Vec<String>, BackendError> {
    let schedule = &scenario.schedule;
    let slots = schedule.windows_of(station);
    let windows = slots.windows();
    let Some(first) = windows.first() else {
        return Err(TdmTaprioError::NoSlot { station: station.clone() }.into());
    };
    let Spacing { overhead, spacing, frames, real_time } = spacing_of(scenario, station, port);
    let [rt, be] = [1_u64, 0]
        .map(|class| GateMask::of(&[TrafficClass::new(class).expect("invariant: two classes")]));
    let mut entries = Vec::new();
    for (index, slot) in windows.iter().enumerate() {
        let least = real_time.checked_add(spacing).unwrap_or(Span::MAX);
        if slot.length < least {
            return Err(BackendError::SlotTooShort {
                station: station.clone(),
                offset: slot.offset,
                transmit: slot.length,
                frames,
                least,
            });
        }
        let next = match windows.get(index + 1) {
            Some(next) => next.offset,
            None => first.offset + schedule.cycle(),
        };
        let closed = next - (slot.offset + slot.length);
        let parts = [(rt, real_time), (be, slot.length - real_time), (GateMask::CLOSED, closed)];
        let parts = parts.into_iter().filter(|(_, length)| *length > Span::ZERO);
        entries.extend(parts.map(|(gates, length)| GateControlEntry::set_gates(gates, length)));
    }
    let delta = scenario.mac.launch_delta;
    let base_time = Span::from_ns(schedule.base_time().as_ns());
    let base_time = base_time.checked_add(first.offset + delta).unwrap_or(Span::MAX);
    let taprio = Taprio::new(TaprioOptions {
        classes: Some(best_effort_and_real_time(&port.urgent)?),
        mode: TaprioMode::TxtimeAssist,
        clock: Some(QdiscClock::Tai),
        base_time,
        cycle_time: schedule.cycle(),
        entries,
        txtime_delay: delta + scenario.mac.margin,
        ..TaprioOptions::default()
    })?;
    taprio.check_tc_message()?;
    let flags = EtfFlags { skip_sock_check: true, ..EtfFlags::default() };
    let etf = Etf::new(delta, flags)?;
    Ok(vec![
        format!("root handle 100: stab overhead {overhead} {taprio}"),
        format!("parent 100:1 {etf}"),
        format!("parent 100:2 {etf}"),
    ])
}

/// How `taprio-assist` spaces the frames of a station.
struct Spacing {
    /// **Units**: bytes that each frame counts for more.
    overhead: u32,
    /// From frame to frame.
    spacing: Span,
    /// Real-time frames in a slot.
    frames: usize,
    /// The start of a slot that is kept for them.
    real_time: Span,
}

fn spacing_of(scenario: &Scenario, station: &StationName, port: &TdmPort) -> Spacing {
    let longest = longest_frame(scenario);
    let overhead = spacing_overhead(port, longest);
    let spacing = taprio_duration(longest.get() + overhead, port.stated) + ROUNDING;
    let frames = real_time_of(scenario, station).count();
    let count = i64::try_from(frames).expect("invariant: streams of one file");
    let real_time = spacing.checked_mul(count).unwrap_or(Span::MAX);
    Spacing { overhead, spacing, frames, real_time }
}

/// How long the start of each slot of a station is kept for real time under `taprio-assist`; best
/// effort has the rest.
pub fn assist_real_time(scenario: &Scenario, station: &StationName) -> Span {
    spacing_of(scenario, station, &TdmPort::virtual_of(scenario)).real_time
}

/// `taprio` rounds each frame's time down.
const ROUNDING: Span = Span::from_ns(1);

/// The longest frame that a program of the scenario sends.
fn longest_frame(scenario: &Scenario) -> FrameLen {
    let frames = scenario.streams.iter().map(|stream: &Stream| frame_of(stream.size()));
    frames.max_by_key(|frame| frame.get()).unwrap_or(TdmPort::virtual_of(scenario).largest)
}

/// How many bytes must be added to every frame so that `taprio` takes none for shorter than it
/// lasts on the link. A longer frame lasts more than `taprio` adds for it, so the longest decides.
fn spacing_overhead(port: &TdmPort, longest: FrameLen) -> u32 {
    let lasts = port.link.duration_of(longest.wire_len()) + ROUNDING;
    let mut bytes = SizeTable::ETHERNET.overhead();
    let byte = taprio_duration(1_000_000, port.stated).as_ns();
    let wanted = lasts - taprio_duration(longest.get() + bytes, port.stated);
    if wanted > Span::ZERO {
        // `byte` is the time of a million bytes.
        let more = (i128::from(wanted.as_ns()) * 1_000_000).div_euclid(i128::from(byte.max(1))) + 2;
        bytes += u32::try_from(more).expect("invariant: a frame of a second at 10 Tbit/s");
    }
    bytes
}

/// Whether a backend can carry the schedule and the real-time streams of a scenario at all.
///
/// **Errors**: the first station's that cannot.
pub fn check_backend(scenario: &Scenario, backend: TransmitBackend) -> Result<(), BackendError> {
    for station in scenario.stations_with_slots() {
        station_qdiscs(scenario, &station.name, backend)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::ParseFile;
    use proptest::prelude::*;

    fn scenario(more: &str) -> Scenario {
        let text = format!(
            "timewire: 1
name: two
kind: network
segments: [{{ rate: 100Mbit }}]
stations:
  - {{ name: alpha, address: 10.77.0.1/24 }}
  - {{ name: beta, address: 10.77.0.2/24 }}
schedule:
  kind: tdm
  cycle_time: 1ms
  guard: 50us
  slots:
    - {{ station: alpha, transmit: 450us }}
    - {{ station: beta, transmit: 450us }}
streams:
  - {{ name: control, kind: request-response, talker: alpha, listeners: beta, port: 15001,
      size: 64B, class: 7, deadline: 1ms, timeout: 100ms }}
  - {{ name: video, kind: request-response, talker: alpha, listeners: beta, port: 15002,
      size: 472B, class: 7, deadline: 1ms, timeout: 100ms }}
  - {{ name: load, kind: flood, talker: beta, listeners: alpha, port: 17001, size: 512B,
      rate: 30Mbit }}
mac: {{ queue_frames: 64 }}
duration: 200ms
{more}"
        );
        Scenario::parse("two", &text).unwrap_or_else(|errors| panic!("{errors}"))
    }

    fn name(text: &str) -> StationName {
        StationName::new(text).unwrap()
    }

    fn lines(backend: TransmitBackend) -> Vec<String> {
        station_qdiscs(&scenario(""), &name("beta"), backend).unwrap()
    }

    const TBF: &str =
        "parent 100:1 tbf rate 100000000bit burst 1538 limit 96896 overhead 24 mpu 84";
    const MQPRIO: &str = "root handle 100: mqprio num_tc 2 map 0 0 0 0 0 0 1 0 0 0 0 0 0 0 0 0 \
                          queues 1@0 1@1 hw 0";

    #[test]
    fn t0_what_a_station_is_given_for_each_backend() {
        assert_eq!(lines(TransmitBackend::Mac), Vec::<String>::new());
        assert_eq!(
            lines(TransmitBackend::Etf),
            [MQPRIO, TBF, "parent 100:2 etf clockid CLOCK_TAI delta 100000"]
        );
        // 130 and 538 bytes in each millisecond, on an interface that states 10 Gbit/s.
        assert_eq!(
            lines(TransmitBackend::Cbs),
            [
                MQPRIO,
                TBF,
                "parent 100:2 handle 102: stab overhead 24 cbs idleslope 5344 sendslope -9994656 \
                 hicredit 1 locredit -538"
            ]
        );
        // A frame of 554 bytes is 46.24 us on the link and counts as that; two such windows, then
        // the rest of the slot of 450 us. All is 100 us later, which etf is earlier.
        let [taprio, be, rt] = &lines(TransmitBackend::TaprioAssist)[..] else { panic!() };
        assert_eq!(
            taprio,
            "root handle 100: stab overhead 57249 taprio num_tc 2 map 0 0 0 0 0 0 1 0 0 0 0 0 0 0 \
             0 0 queues 1@0 1@1 base-time 600000 sched-entry S 02 92486 sched-entry S 01 357514 \
             sched-entry S 00 550000 cycle-time 1000000 flags 0x1 txtime-delay 105000 clockid \
             CLOCK_TAI"
        );
        assert_eq!(be, "parent 100:1 etf clockid CLOCK_TAI delta 100000 skip_sock_check");
        assert_eq!(rt, "parent 100:2 etf clockid CLOCK_TAI delta 100000 skip_sock_check");
        assert_eq!(assist_real_time(&scenario(""), &name("beta")).as_ns(), 92_486);
        assert!(lines(TransmitBackend::Taprio)[0].contains(" taprio num_tc 2 map "));
    }

    #[test]
    fn t0_the_streams_of_a_station_share_its_slot() {
        let scenario = scenario("");
        let plan = |stream: &str| {
            let stream = scenario.measured().find(|s| s.name.as_str() == stream).unwrap();
            launch_plan(&scenario, &stream.name, &name("beta")).unwrap()
        };
        let (control, video) = (plan("control"), plan("video"));
        assert_eq!((control.busy.as_ns(), video.busy.as_ns()), (10_400, 43_040));
        let [first] = control.windows.windows() else { panic!() };
        let [second] = video.windows.windows() else { panic!() };
        assert_eq!(first.offset, Span::from_us(500));
        assert_eq!(first.offset + first.length, second.offset);
        assert_eq!(second.offset + second.length, Span::from_us(950));
        assert_eq!(first.length.as_ns(), 450_000 * 10_400 / 53_440);
        let load = scenario.floods().next().unwrap();
        let error = launch_plan(&scenario, &load.name, &name("beta")).unwrap_err();
        assert_eq!(error.to_string(), "`beta` sends no frame of a real-time stream `load`");
    }

    #[test]
    fn t0_a_reservation_is_one_frame_of_each_stream_in_a_cycle() {
        let reserved = reservation(&scenario(""), &name("alpha")).unwrap().unwrap();
        assert_eq!(reserved.rate.get(), (130 + 538) * 8 * 1_000);
        // The longest frame, less what its time on the interface gives back, and one frame of
        // best effort at 10 Gbit/s.
        assert_eq!(reserved.burst_bits, 538 * 8 + 5);
    }

    proptest! {
        /// Every length up to the longest: `taprio` spaces frames by no less than they last.
        #[test]
        fn t0_no_frame_counts_as_shorter_than_it_lasts(
            link in prop::sample::select(vec![10_u64, 100, 1_000, 2_500, 10_000]),
            longest in 42_u32..1_514,
        ) {
            let mbit = |mbit| BitsPerSecond::new(mbit * 1_000_000).unwrap();
            let port = TdmPort {
                link: mbit(link),
                stated: mbit(10_000),
                largest: FrameLen::new(1_514).unwrap(),
                urgent: Vec::new(),
            };
            let overhead = spacing_overhead(&port, FrameLen::new(longest).unwrap());
            for bytes in 14..=longest {
                let lasts = port.link.duration_of(FrameLen::new(bytes).unwrap().wire_len());
                let counts = taprio_duration(bytes + overhead, port.stated);
                prop_assert!(counts >= lasts || bytes < 60, "{bytes} bytes: {counts} < {lasts}");
            }
            // And the longest by hardly more than it lasts.
            let lasts = port.link.duration_of(FrameLen::new(longest).unwrap().wire_len());
            let counts = taprio_duration(longest + overhead, port.stated);
            prop_assert!((counts - lasts).as_ns() <= 24, "{counts} for {lasts}");
        }
    }
}
