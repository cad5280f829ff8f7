// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From the participants of a case to simulated stations: who sends by what, and which program is
//! at the other end.
//!
//! The stations are those of the laboratory. Where a queueing discipline carries the schedule out,
//! both classes have one port with the gates of the station under `taprio` and `taprio-assist`, and
//! each has its own under `etf` and `cbs`, where best effort passes a port of the segment's rate
//! and real time, which is little, does not wait for it.

use timewire_base::{BitsPerSecond, FrameLen, Instant, Port, SduLen, Sequence, Span, StationName};
use timewire_capture::record::Record;
use timewire_datapath::MIN_MESSAGE;
use timewire_datapath::pipeline::Source;
use timewire_datapath::station::{mac_config, port_lists};
use timewire_datapath::traffic::Task;
use timewire_model::scenario::{Case, CaseBackend, Scenario};
use timewire_sim::net::plain_port;
use timewire_sim::stations::{
    Job, MacSpec, Pace, PipelineStep, PortsSpec, ProgramSpec, Stations, TransmitSpec,
};
use timewire_sim::{Loss, SegmentConfig, SegmentKind};
use timewire_tsn::backend::{TransmitBackend, assist_real_time, reservation};
use timewire_tsn::port::{CreditRules, Order, PortConfig};
use timewire_tsn::qdisc::TdmPort;
use timewire_tsn::{LaunchTimes, QueueIndex, QueueSet};

use super::super::participants::{Participants, Role};
use super::SimCase;
use crate::RunnerError;
use crate::error::{Context as _, invalid};
use crate::program::{Program, ProgramPace};
use crate::simulation::gates_of;

/// Headers of IPv4 and UDP. **Units**: bytes.
const IP_UDP_HEADERS: u32 = 28;
/// The classes of a port.
const BEST_EFFORT: usize = 0;
const REAL_TIME: usize = 1;

/// How a backend is simulated.
pub(super) fn transmits(backend: TransmitBackend) -> &'static str {
    match backend {
        TransmitBackend::Mac => "simulated: the MAC itself, on a host that wakes in time",
        TransmitBackend::Taprio => "simulated: gates of the standard, real time first",
        TransmitBackend::TaprioAssist => {
            "simulated: gates of the standard, the start of the slot for real time"
        }
        TransmitBackend::Etf => "simulated: launch times, exactly kept; best effort without gates",
        TransmitBackend::Cbs => "simulated: the credit-based shaper of the standard",
    }
}

/// The participants that are programs of stations, in the order of the simulation.
pub(super) fn programs(participants: &Participants) -> impl Iterator<Item = &Role> {
    let observes = |role: &&Role| matches!(role.file.program, Program::Observer { .. });
    participants.roles.iter().filter(move |role| !observes(role))
}

/// The flow of each program's frames in the file of the observer, as it numbers them.
pub(super) fn observed_flows(participants: &Participants) -> Vec<u16> {
    let observer = participants.roles.iter().find_map(|role| match &role.file.program {
        Program::Observer { ports, .. } => Some(ports.as_slice()),
        _ => None,
    });
    let ports = observer.unwrap_or_default();
    let flow = |port: Port, response: usize| {
        let index = ports.iter().position(|known| known.port == port);
        let flow = index.and_then(|index| u16::try_from(2 * index + response).ok());
        flow.unwrap_or(Record::NO_FLOW)
    };
    let of = |role: &Role| match &role.file.program {
        Program::Client { task, .. } => flow(task.port, 0),
        Program::Server { task, .. } => flow(task.port, 1),
        Program::Talker { task, .. } => flow(task.port, 0),
        Program::Pipeline { step, .. } => {
            step.to.as_ref().map_or(Record::NO_FLOW, |next| flow(next.port, 0))
        }
        Program::Listener { .. }
        | Program::Monitor { .. }
        | Program::Own(_)
        | Program::Flood { .. }
        | Program::Sink { .. }
        | Program::Observer { .. } => Record::NO_FLOW,
    };
    programs(participants).map(of).collect()
}

/// The queues of the MACs in a case.
///
/// **Errors**: more than a MAC has.
pub(super) fn queues(scenario: &Scenario, case: &Case) -> Result<QueueSet, RunnerError> {
    match case.priorities {
        true => Ok(port_lists(&scenario.queues).0.rules().map_err(invalid)?.queue_set()),
        false => Ok(QueueSet::default()),
    }
}

/// The stations of a case and what runs on them.
///
/// **Errors**: the simulator cannot do something of it; a message that fits no frame.
pub(super) fn stations(case: &SimCase<'_>) -> Result<Stations, RunnerError> {
    let (scenario, of_case) = (&case.script.scenario, case.run.case);
    let over = case.participants.times.over;
    if over - Instant::from_ns(0) > Stations::LONGEST {
        return Err(RunnerError::Unsupported {
            what: format!("--on sim cannot run {}", case.run.id),
            why: format!("it lasts longer than {}, the longest simulation", Stations::LONGEST),
        });
    }
    let transmit = scenario.stations.iter().map(|it| transmit(scenario, of_case, &it.name));
    let compile = Compile { case, roles: programs(&case.participants).collect() };
    let programs = compile.roles.iter().map(|role| compile.program(role));
    Ok(Stations {
        segment: SegmentConfig {
            kind: SegmentKind::Hub,
            rate: scenario.segment().rate,
            delay: scenario.segment().delay,
            loss: Loss::default(),
            seed: case.seed,
        },
        stations: transmit.collect::<Result<_, _>>()?,
        programs: programs.collect::<Result<_, _>>()?,
        until: over,
    })
}

fn transmit(
    scenario: &Scenario,
    case: &Case,
    station: &StationName,
) -> Result<TransmitSpec, RunnerError> {
    let schedule = &scenario.schedule;
    let windows = schedule.windows_of(station);
    let backend = match TransmitBackend::of_case(case.backend) {
        None => return Ok(TransmitSpec::Direct),
        Some(TransmitBackend::Mac) => {
            let (config, queues) = (mac_config(scenario), queues(scenario, case)?);
            return Ok(TransmitSpec::Mac(MacSpec { config, windows, queues }));
        }
        // As in the laboratory: it has no disciplines, and sends nothing.
        Some(_) if windows.windows().is_empty() => return Ok(TransmitSpec::Direct),
        Some(backend) => backend,
    };
    let capacity = u32::try_from(scenario.mac.queue_frames.get()).context("a queue is finite")?;
    let mut all = plain_port(scenario.segment().rate);
    all.classes[BEST_EFFORT].capacity = Some(capacity);
    let mut urgent = plain_port(TdmPort::virtual_of(scenario).stated);
    let slots = windows.windows().iter();
    let lines = match backend {
        TransmitBackend::Taprio => {
            let both = 1 << BEST_EFFORT | 1 << REAL_TIME;
            all.gates = gates_of(schedule, slots.map(|it| (it.offset, it.length, both)))?;
            vec![all]
        }
        TransmitBackend::TaprioAssist => {
            let kept = assist_real_time(scenario, station);
            let parts = slots.flat_map(|it| {
                let rest = (it.offset + kept, it.length - kept, 1 << BEST_EFFORT);
                [(it.offset, kept, 1 << REAL_TIME), rest]
            });
            all.gates = gates_of(schedule, parts)?;
            vec![all]
        }
        TransmitBackend::Etf => {
            urgent.classes[REAL_TIME].order = Order::TimedStrict;
            vec![all, urgent]
        }
        TransmitBackend::Cbs => {
            let reserved = reservation(scenario, station).map_err(invalid)?;
            let rate: Option<BitsPerSecond> = reserved.map(|reserved| reserved.rate);
            urgent.classes[REAL_TIME].credit = rate.map(|rate| (rate, CreditRules::Standard));
            vec![all, urgent]
        }
        TransmitBackend::Mac => Vec::<PortConfig>::new(),
    };
    Ok(TransmitSpec::Ports(PortsSpec { lines }))
}

struct Compile<'a> {
    case: &'a SimCase<'a>,
    roles: Vec<&'a Role>,
}

impl Compile<'_> {
    fn program(&self, role: &Role) -> Result<ProgramSpec, RunnerError> {
        let scenario = &self.case.script.scenario;
        let station = role.station.as_ref().context("a program is on a station")?;
        let (task, port) = match &role.file.program {
            Program::Client { task, .. }
            | Program::Server { task, .. }
            | Program::Talker { task, .. }
            | Program::Listener { task, .. }
            | Program::Flood { task, .. }
            | Program::Sink { task } => (task, task.port),
            Program::Pipeline { task, step, .. } => {
                (task, step.to.as_ref().map_or(task.port, |next| next.port))
            }
            Program::Monitor { .. } | Program::Own(_) | Program::Observer { .. } => {
                return Err(invalid(format!("{} is nothing that is simulated", role.name)));
            }
        };
        let place = scenario.stations.iter().position(|it| it.name == *station);
        Ok(ProgramSpec {
            station: place.with_context(|| format!("there is no station {station}"))?,
            start: task.start.saturating_add(self.begins_later(&role.name)),
            end: task.end,
            class: if task.priority.is_some() { REAL_TIME } else { BEST_EFFORT },
            queue: self.queue(port)?,
            frame: frame_of(task)?,
            launch: task.launch.as_ref().map(|launch| {
                (LaunchTimes::new(launch.windows.clone(), launch.margin), launch.busy)
            }),
            job: self.job(role, station)?,
        })
    }

    /// Programs of hosts begin at any time of a cycle; the same in all cases.
    fn begins_later(&self, name: &str) -> Span {
        let cycle = self.case.script.scenario.schedule.cycle();
        let own = name.bytes().fold(self.case.seed, |seed, byte| {
            Sequence::new(seed.rotate_left(8) ^ u64::from(byte)).next()
        });
        let below = usize::try_from(cycle.as_ns()).unwrap_or(usize::MAX);
        let ns = Sequence::new(own).below(below);
        Span::from_ns(i64::try_from(ns).unwrap_or(0))
    }

    /// The queue of frames to or from a port.
    fn queue(&self, port: Port) -> Result<QueueIndex, RunnerError> {
        let (scenario, case) = (&self.case.script.scenario, self.case.run.case);
        if case.backend != CaseBackend::Mac {
            return Ok(QueueIndex::DEFAULT);
        }
        let listed = scenario.queues.send.iter().find(|it| it.port == port);
        Ok(queues(scenario, case)?.queue_for(listed.map(|it| it.priority)))
    }

    fn job(&self, role: &Role, station: &StationName) -> Result<Job, RunnerError> {
        Ok(match &role.file.program {
            Program::Client { task, pace, timeout, .. } => {
                let serves = |it: &Program| matches!(it, Program::Server { .. });
                let to = self.at_port(task.port, serves)?;
                Job::Client { to, pace: self.pace(pace, station), timeout: *timeout }
            }
            Program::Server { task, pace, drain, .. } => Job::Server {
                pace: self.pace(pace, station),
                until: task.end.saturating_add(*drain),
            },
            Program::Talker { task, due, pace, .. } => Job::Talker {
                to: self.at_port(task.port, |it| matches!(it, Program::Listener { .. }))?,
                due: due.times(task.start),
                pace: self.pace(pace, station),
            },
            Program::Listener { task, drain, .. } => {
                Job::Listener { until: task.end.saturating_add(*drain) }
            }
            Program::Pipeline { task, step, pace, drain, .. } => {
                let components = i64::try_from(step.components).unwrap_or(i64::MAX);
                let to = step.to.as_ref().map(|next| {
                    let takes = |it: &Program| match it {
                        Program::Pipeline { step, .. } => {
                            matches!(step.from, Source::Port(port) if port == next.port)
                        }
                        _ => false,
                    };
                    self.position(takes)
                        .with_context(|| format!("nobody takes {}", next.port.get()))
                });
                Job::Pipeline(PipelineStep {
                    place: step.place,
                    period: match step.from {
                        Source::Own(period) => Some(period),
                        Source::Port(_) => None,
                    },
                    to: to.transpose()?,
                    compute: step.compute.checked_mul(components).unwrap_or(Span::MAX),
                    pace: self.pace(pace, station),
                    is_paced: step.is_paced,
                    until: task.end.saturating_add(*drain),
                })
            }
            Program::Flood { task, flow, .. } => Job::Flood {
                to: self.at_port(task.port, |it| matches!(it, Program::Sink { .. }))?,
                rate: BitsPerSecond::new(flow.bits_per_second).context("a flood has a rate")?,
                burst: flow.burst,
            },
            Program::Monitor { .. }
            | Program::Own(_)
            | Program::Sink { .. }
            | Program::Observer { .. } => Job::Sink,
        })
    }

    fn position(&self, is: impl Fn(&Program) -> bool) -> Option<usize> {
        self.roles.iter().position(|role| is(&role.file.program))
    }

    /// The program of a kind that has a port.
    fn at_port(&self, port: Port, is: impl Fn(&Program) -> bool) -> Result<usize, RunnerError> {
        let has = |it: &Program| match it {
            Program::Server { task, .. }
            | Program::Listener { task, .. }
            | Program::Sink { task } => task.port == port && is(it),
            _ => false,
        };
        self.position(has).with_context(|| format!("nobody listens at {}", port.get()))
    }

    fn pace(&self, pace: &ProgramPace, station: &StationName) -> Pace {
        match pace {
            ProgramPace::Closed => Pace::Closed,
            ProgramPace::Every(period) => Pace::Every(*period),
            // A MAC would say the windows of its station.
            ProgramPace::Aligned { lead, .. } => {
                let windows = self.case.script.scenario.schedule.windows_of(station);
                Pace::Windows { windows, lead: *lead }
            }
            ProgramPace::Windows { windows, lead } => {
                Pace::Windows { windows: windows.clone(), lead: *lead }
            }
        }
    }
}

/// The frame that carries a message of a program.
fn frame_of(task: &Task) -> Result<FrameLen, RunnerError> {
    let least = u32::try_from(MIN_MESSAGE).unwrap_or(0);
    let bytes = task.message.max(least).saturating_add(IP_UDP_HEADERS);
    Ok(SduLen::new(bytes).map_err(invalid)?.frame_len())
}
