// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who takes part in one case under one load: every program with its station, its times and the
//! name of its record file.
//!
//! Not here: starting them (`stage`).

use std::path::Path;

use timewire_base::{Instant, Port, Span, StationName, Tai};
use timewire_path::observe::ObservedPort;
use timewire_path::pipeline::{Next, Source, Step};
use timewire_path::traffic::{FloodRate, LaunchTask, Task};
use timewire_sched::carrier::{LaunchPlan, ScheduleCarrier, SlotPromise, launch_plan};
use timewire_sched::scenario::{
    Case, CaseMac, Flood, Measured, Name, Pipeline, Release, RequestResponse, Scenario, Stream,
    StreamClass, Way,
};
use timewire_trace::record::RecordHeader;

use super::{DRAIN, START_AHEAD};
use crate::CtlError;
use crate::program::{Program, ProgramPace, Records};

/// When a case happens.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// The first message.
    pub(super) start: Instant<Tai>,
    /// The measured interval starts,
    pub(super) from: Instant<Tai>,
    /// and ends; no request is sent after it.
    pub(super) to: Instant<Tai>,
    /// Everything has arrived or is lost.
    pub(super) over: Instant<Tai>,
}

impl Times {
    pub(super) fn starting(now: Instant<Tai>, warm_up: Span, duration: Span) -> Times {
        let start = now + START_AHEAD;
        let from = start + warm_up;
        let to = from + duration;
        Times { start, from, to, over: to + DRAIN }
    }
}

/// One program on one station, or on the hub.
#[derive(Clone, Debug)]
pub(super) struct Role {
    /// Unique in the case; also the stem of its files.
    pub(super) name: String,
    /// Where; `None` is the hub.
    pub(super) station: Option<StationName>,
    /// Whether it goes into its station's priority group where the case has priorities.
    pub(super) real_time: bool,
    /// What it does.
    pub(super) program: Program,
}

/// Everybody, in the order in which they are started: those who listen first.
#[derive(Clone, Debug)]
pub(super) struct Cast {
    /// `SCENARIO/CASE/LOAD`.
    pub(super) id: String,
    pub(super) times: Times,
    pub(super) roles: Vec<Role>,
}

/// What the cast needs to know beside the scenario.
pub(super) struct Casting<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) case: &'a Case,
    pub(super) load: &'a Name,
    pub(super) id: &'a str,
    pub(super) times: Times,
    /// The case's directory.
    pub(super) directory: &'a Path,
    /// The hub's ports, in the order of the stations.
    pub(super) hub: Vec<ObservedPort>,
    /// The name of a station's MAC.
    pub(super) instance: &'a dyn Fn(&StationName) -> String,
}

impl Cast {
    /// **Errors**: more stations or streams than a record file can number.
    pub(super) fn of(casting: &Casting<'_>) -> Result<Cast, CtlError> {
        let mut roles = vec![casting.observer()];
        let streams = casting.scenario.traffic.iter();
        for stream in streams.filter(|stream| stream.runs_in(casting.load)) {
            match stream {
                Stream::RequestResponse(_) | Stream::Pipeline(_) => long_enough(stream)?,
                Stream::Flood(_) => {}
            }
            match stream {
                Stream::RequestResponse(stream) => {
                    roles.push(casting.server(stream)?);
                    roles.push(casting.client(stream)?);
                }
                Stream::Pipeline(pipeline) => {
                    for place in 0..pipeline.stations.len() {
                        roles.push(casting.step(pipeline, place)?);
                    }
                }
                Stream::Flood(flood) => {
                    roles.push(casting.sink(flood)?);
                    roles.push(casting.flood(flood)?);
                }
            }
        }
        // Who listens must be there before anybody talks.
        roles.sort_by_key(|role| !role.listens());
        Ok(Cast { id: casting.id.to_owned(), times: casting.times, roles })
    }

    /// Names of the record files of clients, servers and the steps of pipelines.
    pub(super) fn endpoints(&self) -> Vec<String> {
        let records = |role: &Role| match &role.program {
            Program::Client { .. } | Program::Server { .. } | Program::Pipeline { .. } => {
                Some(record_file(&role.name))
            }
            Program::Flood { .. } | Program::Sink { .. } | Program::Observer { .. } => None,
        };
        self.roles.iter().filter_map(records).collect()
    }

    /// Names of the record files of observers.
    pub(super) fn observers(&self) -> Vec<String> {
        let observes = |role: &&Role| matches!(role.program, Program::Observer { .. });
        self.roles.iter().filter(observes).map(|role| record_file(&role.name)).collect()
    }
}

/// A measured message carries its number.
fn long_enough(stream: &Stream) -> Result<(), CtlError> {
    let least = timewire_path::MIN_MESSAGE;
    if u64::from(stream.message().get()) >= least as u64 {
        return Ok(());
    }
    Err(CtlError::Invalid(format!(
        "stream `{}` has messages of {}: a measured message carries its number, so {least}B at \
         least",
        stream.name(),
        stream.message()
    )))
}

impl Role {
    fn listens(&self) -> bool {
        match &self.program {
            Program::Server { .. } | Program::Sink { .. } | Program::Observer { .. } => true,
            Program::Pipeline { step, .. } => matches!(step.from, Source::Port(_)),
            Program::Client { .. } | Program::Flood { .. } => false,
        }
    }
}

fn record_file(name: &str) -> String {
    format!("{name}.twr")
}

impl Casting<'_> {
    fn records(&self, name: &str, flows: Vec<String>) -> Records {
        Records {
            path: self.directory.join(record_file(name)),
            header: RecordHeader {
                writer: name.to_owned(),
                case: self.id.to_owned(),
                clocks: timewire_path::clocks(),
                stations: self.scenario.stations.iter().map(|s| s.name.to_string()).collect(),
                flows,
                ..RecordHeader::default()
            },
        }
    }

    fn task(&self, station: &StationName, port: Port, message: u32) -> Result<Task, CtlError> {
        let index = self
            .scenario
            .stations
            .iter()
            .position(|known| known.name == *station)
            .expect("invariant: a checked scenario names known stations only");
        Ok(Task {
            address: self.scenario.stations[index].address.address(),
            port,
            message,
            start: self.times.start,
            end: self.times.to,
            station: u8::try_from(index)
                .map_err(|_| CtlError::Invalid("at most 256 stations can be recorded".into()))?,
            priority: None,
            launch: None,
        })
    }

    /// The task of a measured stream's program: where the kernel's queueing disciplines carry the
    /// schedule out, they tell real time by the socket's priority, and `etf` wants launch times.
    fn measured_task(
        &self,
        stream: &Measured<'_>,
        station: &StationName,
    ) -> Result<Task, CtlError> {
        let port = stream.way.port().expect("invariant: a whole pipeline sends nothing by itself");
        let mut task = self.task(station, port, stream.message.get())?;
        let carrier = ScheduleCarrier::of_case(self.case.mac).filter(|c| c.is_kernels());
        let Some(carrier) = carrier.filter(|_| stream.class == StreamClass::RealTime) else {
            return Ok(task);
        };
        if self.case.priorities || carrier.always_has_classes() {
            task.priority = Some(Scenario::real_time_priority().get());
        }
        if carrier == ScheduleCarrier::Etf {
            let plan = launch_plan(self.scenario, &stream.name, station);
            let LaunchPlan { windows, busy } =
                plan.map_err(|error| CtlError::Invalid(error.to_string()))?;
            let mac = &self.scenario.mac;
            let (margin, delta) = (mac.margin, mac.launch_delta);
            task.launch = Some(LaunchTask { windows, busy, margin, delta });
        }
        Ok(task)
    }

    fn pace(&self, class: StreamClass, station: &StationName) -> ProgramPace {
        self.pace_with(class, station, self.case.aligned_lead())
    }

    /// Planned: the source begins so early that it has computed when the others would be woken, and
    /// the others wait for nothing but their slot.
    fn pace_of_step(&self, pipeline: &Pipeline, place: usize) -> ProgramPace {
        let lead = self.case.aligned_lead();
        let lead = match (self.case.release, place) {
            (Release::Planned, 0) => {
                let components = i64::try_from(pipeline.components.get()).unwrap_or(i64::MAX);
                let computing = pipeline.compute.checked_mul(components).unwrap_or(Span::MAX);
                lead.and_then(|lead| lead.checked_add(computing))
            }
            (Release::Planned, _) => None,
            (Release::Aligned | Release::Free, _) => lead,
        };
        self.pace_with(pipeline.class, &pipeline.stations[place], lead)
    }

    fn pace_with(
        &self,
        class: StreamClass,
        station: &StationName,
        lead: Option<Span>,
    ) -> ProgramPace {
        match (self.case.mac, lead.filter(|_| class == StreamClass::RealTime)) {
            (CaseMac::Tdm, Some(lead)) => {
                ProgramPace::Aligned { instance: (self.instance)(station), lead }
            }
            (mac, Some(lead)) if mac != CaseMac::None => {
                ProgramPace::Windows { windows: self.scenario.schedule.windows_of(station), lead }
            }
            _ => ProgramPace::Closed,
        }
    }

    /// What is measured of one stream.
    fn measured(&self, stream: &Name) -> Measured<'_> {
        let mut all = self.scenario.measured_in(self.load);
        all.find(|measured| measured.name == *stream).expect("invariant: a stream that runs")
    }

    fn flows(stream: &Name) -> Vec<String> {
        vec![format!("{stream}.request"), format!("{stream}.response")]
    }

    fn client(&self, stream: &RequestResponse) -> Result<Role, CtlError> {
        let name = format!("{}-client", stream.name);
        // Where no carrier paces the exchange, one message in a cycle keeps the load the same.
        let paced = match ScheduleCarrier::of_case(self.case.mac) {
            None => false,
            Some(carrier) => {
                carrier.slots() == SlotPromise::All || stream.class == StreamClass::RealTime
            }
        };
        let pace = match paced {
            false => ProgramPace::Every(self.scenario.schedule.cycle()),
            true => self.pace(stream.class, &stream.client),
        };
        let server = self.task(&stream.server, stream.port, stream.message.get())?.address;
        let program = Program::Client {
            task: self.measured_task(&self.measured(&stream.name), &stream.client)?,
            server,
            pace,
            timeout: stream.timeout,
            records: self.records(&name, Self::flows(&stream.name)),
        };
        let real_time = stream.class == StreamClass::RealTime;
        Ok(Role { name, station: Some(stream.client.clone()), real_time, program })
    }

    fn server(&self, stream: &RequestResponse) -> Result<Role, CtlError> {
        let name = format!("{}-server", stream.name);
        let program = Program::Server {
            task: self.measured_task(&self.measured(&stream.name), &stream.server)?,
            pace: self.pace(stream.class, &stream.server),
            drain: DRAIN,
            records: self.records(&name, Self::flows(&stream.name)),
        };
        let real_time = stream.class == StreamClass::RealTime;
        Ok(Role { name, station: Some(stream.server.clone()), real_time, program })
    }

    /// The program of the station at a place of a pipeline.
    fn step(&self, pipeline: &Pipeline, place: usize) -> Result<Role, CtlError> {
        let station = &pipeline.stations[place];
        let connections = pipeline.connections();
        let before = place.checked_sub(1).and_then(|before| connections.get(before));
        let to = connections.get(place);
        let step = Step {
            place: u16::try_from(place).expect("invariant: a checked pipeline is short"),
            from: match before {
                Some(connection) => Source::Port(connection.port),
                None => Source::Own(pipeline.period.unwrap_or(self.scenario.schedule.cycle())),
            },
            to: match to {
                Some(connection) => Some(Next {
                    address: self.task(connection.to, connection.port, 0)?.address,
                    port: connection.port,
                }),
                None => None,
            },
            components: pipeline.components.get(),
            compute: pipeline.compute,
            is_paced: place == 0 && self.case.release == Release::Planned,
        };
        let task = match to {
            Some(connection) => self.measured_task(&self.measured(&connection.name), station)?,
            None => self.task(station, pipeline.port, pipeline.message.get())?,
        };
        let name = format!("{}-{station}", pipeline.name);
        let whole = std::iter::once(pipeline.name.to_string());
        let flows = whole.chain(connections.iter().map(|it| it.name.to_string())).collect();
        let program = Program::Pipeline {
            task,
            step,
            pace: self.pace_of_step(pipeline, place),
            drain: DRAIN,
            records: self.records(&name, flows),
        };
        let real_time = pipeline.class == StreamClass::RealTime;
        Ok(Role { name, station: Some(station.clone()), real_time, program })
    }

    fn flood(&self, flood: &Flood) -> Result<Role, CtlError> {
        let to = self.task(&flood.to, flood.port, flood.message.get())?.address;
        let program = Program::Flood {
            task: self.task(&flood.from, flood.port, flood.message.get())?,
            to,
            flow: FloodRate { bits_per_second: flood.rate.get(), burst: flood.burst.get() },
        };
        let (name, station) = (flood.name.to_string(), Some(flood.from.clone()));
        Ok(Role { name, station, real_time: false, program })
    }

    fn sink(&self, flood: &Flood) -> Result<Role, CtlError> {
        let program =
            Program::Sink { task: self.task(&flood.to, flood.port, flood.message.get())? };
        let (name, station) = (format!("{}-sink", flood.name), Some(flood.to.clone()));
        Ok(Role { name, station, real_time: false, program })
    }

    fn observer(&self) -> Role {
        let name = "hub".to_owned();
        let measured = self.scenario.measured_in(self.load);
        let measured: Vec<_> = measured.filter(|stream| stream.way != Way::Whole).collect();
        let flows = measured.iter().flat_map(|stream| match stream.way {
            Way::Asked { .. } => Self::flows(&stream.name),
            // Nothing comes back; the observer counts two for each port.
            Way::OneWay { .. } | Way::Whole => {
                vec![stream.name.to_string(), format!("{}.response", stream.name)]
            }
        });
        let flows = flows.collect();
        let program = Program::Observer {
            hub: self.hub.clone(),
            ports: measured.iter().filter_map(|stream| stream.way.port()).collect(),
            end: self.times.over,
            records: self.records(&name, flows),
        };
        Role { name, station: None, real_time: false, program }
    }
}
