// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a backend does here, found by trying it in a station: whether its disciplines can be had,
//! whether a frame of each class passes them, and, where the gates are for both, which goes first.

use std::io;
use std::os::fd::AsFd;

use timewire_base::{CyclicWindows, FrameLen, IfName, Instant, Phase, Span, Tai};
use timewire_host::HostError;
use timewire_lab::{Lab, LabError, ns};
use timewire_model::scenario::{Scenario, Station};
use timewire_sys::error_queue::{self, Report};
use timewire_sys::packet::{Observed, PacketOptions, PacketSocket};
use timewire_sys::talk::{LaunchMode, TalkOptions, TalkSocket};
use timewire_sys::{clock, interface_index};
use timewire_tsn::LaunchTimes;
use timewire_tsn::backend::{TransmitBackend, Tried, check_backend, station_qdiscs};

use super::backend::invalid;
use crate::RunnerError;

/// Tries one backend in the first station that has a slot. The station is as it was after.
///
/// **Errors**: the laboratory itself failed.
pub(super) fn attempt(
    scenario: &Scenario,
    lab: &Lab,
    backend: TransmitBackend,
) -> Result<Tried, RunnerError> {
    if let Err(error) = check_backend(scenario, backend) {
        return Ok(Tried::Fails(error.to_string()));
    }
    let Some(station) = scenario.stations_with_slots().next() else { return Ok(Tried::Works) };
    if backend == TransmitBackend::Mac {
        // What its last resort needs; everything better it tries itself.
        return Ok(match sockets(lab, station, backend)? {
            Ok(_) => Tried::Works,
            Err(error) => Tried::Missing(format!("packet sockets are refused: {error}")),
        });
    }
    let lines = station_qdiscs(scenario, &station.name, backend).map_err(invalid)?;
    match lab.add_qdiscs(&station.name, &lines) {
        Ok(()) => {}
        Err(LabError::Host(HostError::ToolFailed { line, stderr, .. })) => {
            return Ok(Tried::Missing(refusal(line.as_deref(), &stderr, backend)));
        }
        Err(error) => return Err(error.into()),
    }
    let passed = Passage::of(scenario, lab, station, backend);
    lab.remove_qdiscs(&station.name)?;
    passed
}

/// What `tc` said of which discipline.
fn refusal(line: Option<&str>, stderr: &str, backend: TransmitBackend) -> String {
    let kinds = ["taprio", "mqprio", "etf", "cbs", "tbf"];
    let words = || line.unwrap_or_default().split_whitespace();
    let kind = words().find(|word| kinds.contains(word)).unwrap_or(backend.as_str());
    // Its lines are joined into one: first the reason, then where the batch ended.
    let said = stderr.split(" / ").flat_map(str::lines).next().unwrap_or_default();
    let said = said.trim_start_matches("Error: ").trim_end_matches('.');
    format!("the kernel refuses the queueing discipline {kind}: {said}")
}

/// Senders of both classes in the station, and who sees their frames at the hub.
struct Sockets {
    best_effort: TalkSocket<Tai>,
    real_time: TalkSocket<Tai>,
    hub: PacketSocket,
}

fn sockets(
    lab: &Lab,
    station: &Station,
    backend: TransmitBackend,
) -> Result<io::Result<Sockets>, RunnerError> {
    let (phy, port) = (lab.phy(), lab.hub_port(&station.name)?);
    let netns = lab.station_netns_path(&station.name)?;
    let launch = LaunchMode { deadline: false, report: true };
    let real_time = TalkOptions {
        priority: u32::from(Scenario::real_time_priority().get()),
        launch: (backend == TransmitBackend::Etf).then_some(launch),
    };
    let open = |interface: &IfName, options| {
        interface_index(interface).and_then(|index| TalkSocket::frames(index, options))
    };
    let senders = ns::in_namespace(&netns, || {
        Ok((open(&phy, TalkOptions::default())?, open(&phy, real_time)?))
    })?;
    let hub = ns::in_namespace(&lab.hub_netns_path(), || {
        let options = PacketOptions { receive: true, timestamps: false, buffer_bytes: BUFFER };
        interface_index(&port).and_then(|index| PacketSocket::open(index, options))
    })?;
    Ok(senders
        .and_then(|(best_effort, real_time)| Ok(Sockets { best_effort, real_time, hub: hub? })))
}

/// A frame of each class on its way through the disciplines.
struct Passage {
    sockets: Sockets,
    windows: CyclicWindows,
    launch: LaunchTimes,
    busy: Span,
    delta: Span,
}

impl Passage {
    fn of(
        scenario: &Scenario,
        lab: &Lab,
        station: &Station,
        backend: TransmitBackend,
    ) -> Result<Tried, RunnerError> {
        let sockets = match sockets(lab, station, backend)? {
            Ok(sockets) => sockets,
            Err(error) => return Ok(Tried::Missing(format!("its sockets are refused: {error}"))),
        };
        let windows = scenario.schedule.windows_of(&station.name);
        let frame = FrameLen::new(FRAME).expect("invariant: a short frame");
        let mut passage = Passage {
            sockets,
            launch: LaunchTimes::new(windows.clone(), scenario.mac.margin),
            windows,
            busy: scenario.segment().rate.duration_of(frame.wire_len()),
            delta: scenario.mac.launch_delta,
        };
        // New gates begin to move with the next cycle.
        clock::sleep_until(clock::now::<Tai>() + passage.cycles(SETTLE));
        for number in 0..ATTEMPTS {
            let (in_time, seen) = passage.send(number, backend).map_err(invalid)?;
            let missing = match &seen[..] {
                [_, _] => None,
                [BEST_EFFORT] => Some("real-time"),
                _ => Some("best-effort"),
            };
            if let Some(class) = missing {
                return Ok(Tried::Fails(passage.lost(class)));
            }
            if backend != TransmitBackend::Taprio || !in_time {
                continue;
            }
            if seen[0] == BEST_EFFORT {
                let what = "while its gates are open, best effort goes first";
                return Ok(Tried::Lacks(what.to_owned()));
            }
            break;
        }
        Ok(Tried::Works)
    }

    fn cycles(&self, count: i64) -> Span {
        self.windows.cycle().checked_mul(count).unwrap_or(Span::MAX)
    }

    /// Sends a frame of each class, best effort first, where it can be while the gates are closed.
    /// Whether they were until both had been sent, and the classes in the order of their arrival.
    fn send(&mut self, number: u8, backend: TransmitBackend) -> io::Result<(bool, Vec<u8>)> {
        let opens = self.wait_until_closed();
        self.sockets.best_effort.send(&frame(BEST_EFFORT, number), None)?;
        let launch = match backend {
            TransmitBackend::Etf => {
                let on_link = self.launch.next(clock::now(), self.busy);
                on_link.map(|on_link| on_link + self.delta)
            }
            _ => None,
        };
        self.sockets.real_time.send(&frame(REAL_TIME, number), launch)?;
        let in_time = opens.is_some_and(|opens| clock::now::<Tai>() < opens);
        let give_up = clock::now::<Tai>() + self.cycles(SETTLE) + TIMEOUT;
        let mut seen = Vec::new();
        let mut batch = [Observed::default(); 8];
        while seen.len() < 2 && clock::now::<Tai>() < give_up {
            let count = self.sockets.hub.observe(&mut batch)?;
            for observed in &batch[..count] {
                let bytes = &observed.prefix[..observed.prefix_len];
                if bytes.get(12..14) == Some(&ETHER_TYPE[..]) && bytes.get(15) == Some(&number) {
                    seen.extend(bytes.get(14));
                }
            }
            if count == 0 {
                clock::sleep_until(clock::now::<Tai>() + POLL_INTERVAL);
            }
        }
        Ok((in_time, seen))
    }

    /// Waits until the gates are closed for a while; when they open. `None` where they are never
    /// closed for long enough.
    fn wait_until_closed(&self) -> Option<Instant<Tai>> {
        for _ in 0..=2 * self.windows.windows().len() {
            let now = clock::now::<Tai>();
            match self.windows.phase(now)? {
                Phase::Before { start, .. } if start - now >= CLOSED => return Some(start),
                Phase::Before { end, .. } | Phase::Inside { end, .. } => clock::sleep_until(end),
            }
        }
        None
    }

    /// Why a frame did not arrive.
    fn lost(&self, class: &str) -> String {
        let said = error_queue::take(self.sockets.real_time.as_fd());
        match said {
            Ok(Some(Report::Refused { .. })) => format!(
                "its launch time was not kept: timers here are later than the launch_delta of {}",
                self.delta
            ),
            _ => format!("a {class} frame does not pass it"),
        }
    }
}

/// Destination and source of no station, a type for experiments, class and number.
fn frame(class: u8, number: u8) -> [u8; 60] {
    let mut frame = [0; 60];
    frame[..6].copy_from_slice(&[0x02, 0x54, 0x57, 0xff, 0xff, 0x01]);
    frame[6..12].copy_from_slice(&[0x02, 0x54, 0x57, 0xff, 0xff, 0x02]);
    frame[12..14].copy_from_slice(&ETHER_TYPE);
    frame[14..16].copy_from_slice(&[class, number]);
    frame
}

/// IEEE 802 local experimental EtherType 1.
const ETHER_TYPE: [u8; 2] = [0x88, 0xb5];
/// **Units**: bytes.
const FRAME: u32 = 60;
const BEST_EFFORT: u8 = b'b';
const REAL_TIME: u8 = b'r';
const BUFFER: u32 = 1 << 16;
/// How often frames are sent: one that passes may have had luck with a timer, and a sender that is
/// held up says nothing of the order.
const ATTEMPTS: u8 = 20;
/// Cycles until gates move, and in which a frame must have passed.
const SETTLE: i64 = 3;
/// Beyond that: what a busy host may take.
const TIMEOUT: Span = Span::from_ms(500);
/// How long the gates must be closed yet for two frames to be sent.
const CLOSED: Span = Span::from_us(50);
const POLL_INTERVAL: Span = Span::from_us(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_what_tc_says_is_told_of_the_discipline_it_is_about() {
        let line = "qdisc add dev phy0 root handle 100: stab overhead 24 taprio num_tc 2 map 0";
        let said = "Error: Specified qdisc kind is unknown. / Command failed -:1";
        assert_eq!(
            refusal(Some(line), said, TransmitBackend::Taprio),
            "the kernel refuses the queueing discipline taprio: Specified qdisc kind is unknown"
        );
        assert_eq!(
            refusal(None, "RTNETLINK answers: Operation not permitted\n", TransmitBackend::Etf),
            "the kernel refuses the queueing discipline etf: RTNETLINK answers: Operation not \
             permitted"
        );
    }
}
