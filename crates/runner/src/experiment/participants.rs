// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who takes part in one case under one load: every program with its station, its times and the
//! name of its record file.

use std::collections::BTreeMap;
use std::path::Path;

use timewire_base::wire::MacAddress;
use timewire_base::{Instant, Port, Span, StationName, Tai};
use timewire_capture::record::RecordHeader;
use timewire_datapath::monitor::{Between, End};
use timewire_datapath::observe::{MeasuredPort, ObservedPort};
use timewire_datapath::pipeline::{Next, Source, Step};
use timewire_datapath::traffic::{Due, FloodRate, LaunchTask, Task};
use timewire_model::scenario::{
    Case, CaseBackend, Cyclic, Flood, Measured, MessageFlow, Name, Pipeline, Release,
    RequestResponse, Scenario, Sporadic, StationProgram, Stream, StreamClass, address_variable,
    port_variable,
};
use timewire_tsn::backend::{LaunchPlan, SlotPromise, TransmitBackend, launch_plan};

use super::{DRAIN, START_AHEAD};
use crate::RunnerError;
use crate::error::Context as _;
use crate::own_program::OwnProgram;
use crate::program::{Program, ProgramFile, ProgramPace, ProgramPriority, Records};
use crate::simulation::fixed_or_drawn;

/// What the record files of observers call the hosts that are no stations: they have no slot. No
/// station has this name.
const OTHERS: &str = "(others)";
/// Most messages of a stream whose instants are listed.
const MOST_MESSAGES: usize = 1_000_000;

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
    /// The first message a little after `now`, at a whole multiple of `step`.
    pub(super) fn starting(
        now: Instant<Tai>,
        step: Span,
        (warm_up, duration): (Span, Span),
    ) -> Times {
        let soon = now + START_AHEAD;
        let step = step.max(Span::from_ns(1)).as_ns();
        let start = soon + Span::from_ns((-soon.as_ns()).rem_euclid(step));
        let from = start + warm_up;
        let to = from + duration;
        Times { start, from, to, over: to + DRAIN }
    }
}

/// Where a case begins, so that streams and slots have the same phases in every place: after a
/// whole number of periods and cycles, where that is at most [`LONGEST_STEP`].
pub(super) fn step_of(scenario: &Scenario) -> Span {
    let periods = scenario.streams.iter().filter_map(|stream| match stream {
        Stream::Cyclic(stream) => Some(stream.period),
        // Its messages count from the begin; the slots do not.
        Stream::Sporadic(_) => Some(Span::from_ns(1)),
        _ => None,
    });
    let periods: Vec<Span> = periods.collect();
    if periods.is_empty() {
        return Span::from_ns(1);
    }
    let gcd = |mut a: i64, mut b: i64| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a.max(1)
    };
    let cycle = scenario.has_schedule.then(|| scenario.schedule.cycle());
    let longest = periods.iter().copied().max();
    let all = periods.into_iter().chain(cycle);
    let common = all.map(Span::as_ns).try_fold(1_i64, |common, one| {
        let common = (common / gcd(common, one)).checked_mul(one)?;
        (common <= LONGEST_STEP.as_ns()).then_some(common)
    });
    common.map(Span::from_ns).or(cycle).or(longest).unwrap_or(Span::from_ns(1))
}

/// The longest wait for the begin of a case.
const LONGEST_STEP: Span = Span::from_secs(1);

/// One program on one station, or of an observer.
#[derive(Clone, Debug)]
pub(super) struct Role {
    /// Unique in the case; also the stem of its files. An observer's is its host's.
    pub(super) name: String,
    /// Where; `None` is an observer.
    pub(super) station: Option<StationName>,
    /// What it is started with.
    pub(super) file: ProgramFile,
}

/// Who times the frames of the segment.
#[derive(Clone, Debug)]
pub(super) struct Observer {
    /// Its host.
    pub(super) name: String,
    /// Where the frames arrive.
    pub(super) ports: Vec<ObservedPort>,
    /// Of the stations, in their order, where the ports do not tell them.
    pub(super) addresses: Vec<MacAddress>,
}

/// Everybody, in the order in which they are started: those who listen first.
#[derive(Clone, Debug)]
pub(super) struct Participants {
    /// `SCENARIO/CASE/LOAD`.
    pub(super) id: String,
    pub(super) times: Times,
    pub(super) roles: Vec<Role>,
}

/// What the participants need to know beside the scenario.
pub(super) struct ParticipantsOf<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) case: &'a Case,
    pub(super) load: &'a Name,
    pub(super) id: &'a str,
    pub(super) times: Times,
    /// Where the record files go, and programs of the user's have directories of their own.
    pub(super) directory: &'a Path,
    pub(super) observers: Vec<Observer>,
    /// Whether programs of the user's run; without, Timewire's send what their streams say.
    pub(super) runs_programs: bool,
    /// The name of a station's MAC.
    pub(super) instance: &'a dyn Fn(&StationName) -> String,
}

impl Participants {
    /// **Errors**: more stations or streams than a record file can number.
    pub(super) fn of(of_case: &ParticipantsOf<'_>) -> Result<Participants, RunnerError> {
        let mut roles: Vec<_> =
            of_case.observers.iter().map(|observer| of_case.observer(observer)).collect();
        let streams = of_case.scenario.streams.iter().enumerate();
        for (number, stream) in streams.filter(|it| it.1.runs_in(of_case.load)) {
            match stream {
                Stream::RequestResponse(stream) => {
                    roles.push(of_case.server(stream)?);
                    roles.push(of_case.client(stream)?);
                }
                Stream::Cyclic(stream) if of_case.has_program(stream) => {
                    roles.push(of_case.monitor(stream, End::Listener)?);
                    roles.push(of_case.monitor(stream, End::Talker)?);
                    roles.extend(of_case.taker(stream)?);
                }
                Stream::Cyclic(it) => {
                    let due = Due::InPeriods { period: it.period, offset: it.offset };
                    roles.extend(of_case.one_way((&it.name, &it.talker, &it.listeners), due)?);
                }
                Stream::Sporadic(it) => {
                    let due = of_case.due(number, it)?;
                    roles.extend(of_case.one_way((&it.name, &it.talker, &it.listeners), due)?);
                }
                Stream::Pipeline(pipeline) => {
                    for place in 0..pipeline.stations.len() {
                        roles.push(of_case.step(pipeline, place)?);
                    }
                }
                Stream::Flood(flood) => {
                    roles.push(of_case.sink(flood)?);
                    roles.push(of_case.flood(flood)?);
                }
            }
        }
        if of_case.runs_programs {
            let programs = of_case.scenario.programs_in(of_case.load);
            roles.extend(programs.map(|program| of_case.program(program)));
        }
        // Who listens must be there before anybody talks.
        roles.sort_by_key(|role| !role.listens());
        for (i, role) in roles.iter().enumerate() {
            if roles[..i].iter().any(|other| other.name == role.name) {
                return Err(RunnerError::Invalid(format!(
                    "two programs would be called `{}`, by the names of streams and programs of \
                     the file: give one of them another name",
                    role.name
                )));
            }
        }
        Ok(Participants { id: of_case.id.to_owned(), times: of_case.times, roles })
    }

    /// Names of the record files of all who measure messages.
    pub(super) fn endpoints(&self) -> Vec<String> {
        let records = |role: &Role| match &role.file.program {
            Program::Client { .. }
            | Program::Server { .. }
            | Program::Talker { .. }
            | Program::Listener { .. }
            | Program::Monitor { .. }
            | Program::Pipeline { .. } => Some(record_file(&role.name)),
            Program::Own(_)
            | Program::Flood { .. }
            | Program::Sink { .. }
            | Program::Observer { .. } => None,
        };
        self.roles.iter().filter_map(records).collect()
    }

    /// Names of the record files of observers.
    pub(super) fn observers(&self) -> Vec<String> {
        let observes = |role: &&Role| matches!(role.file.program, Program::Observer { .. });
        self.roles.iter().filter(observes).map(|role| record_file(&role.name)).collect()
    }
}

impl Role {
    fn listens(&self) -> bool {
        match &self.file.program {
            Program::Server { .. }
            | Program::Listener { .. }
            | Program::Monitor { .. }
            | Program::Sink { .. }
            | Program::Observer { .. } => true,
            Program::Pipeline { step, .. } => matches!(step.from, Source::Port(_)),
            Program::Client { .. }
            | Program::Talker { .. }
            | Program::Own(_)
            | Program::Flood { .. } => false,
        }
    }
}

/// The name of the role of a user's program.
pub(super) fn own_name(program: &Name) -> String {
    format!("{program}-program")
}

fn record_file(name: &str) -> String {
    format!("{name}.twr")
}

impl ParticipantsOf<'_> {
    fn records(&self, name: &str, flows: Vec<String>) -> Records {
        Records {
            path: self.directory.join(record_file(name)),
            header: RecordHeader {
                writer: name.to_owned(),
                case: self.id.to_owned(),
                clocks: timewire_datapath::clocks(),
                stations: self.scenario.stations.iter().map(|s| s.name.to_string()).collect(),
                flows,
                ..RecordHeader::default()
            },
        }
    }

    fn task(&self, station: &StationName, port: Port, message: u32) -> Result<Task, RunnerError> {
        let index = self
            .scenario
            .stations
            .iter()
            .position(|known| known.name == *station)
            .expect("invariant: a checked scenario names known stations only");
        Ok(Task {
            address: self.scenario.stations[index].address().address(),
            port,
            message,
            start: self.times.start,
            end: self.times.to,
            station: u8::try_from(index)
                .map_err(|_| RunnerError::Invalid("at most 256 stations can be recorded".into()))?,
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
    ) -> Result<Task, RunnerError> {
        let port = stream.way.port().expect("invariant: a whole pipeline sends nothing by itself");
        let mut task = self.task(station, port, stream.size.get())?;
        let backend = TransmitBackend::of_case(self.case.backend).filter(|c| c.is_kernels());
        let Some(backend) = backend.filter(|_| stream.class == StreamClass::RealTime) else {
            return Ok(task);
        };
        if self.case.priorities || backend.always_has_classes() {
            task.priority = Some(Scenario::real_time_priority().get());
        }
        if backend == TransmitBackend::Etf {
            let plan = launch_plan(self.scenario, &stream.name, station);
            let LaunchPlan { windows, busy } =
                plan.map_err(|error| RunnerError::Invalid(error.to_string()))?;
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
        self.pace_with(pipeline.class(), &pipeline.stations[place], lead)
    }

    fn pace_with(
        &self,
        class: StreamClass,
        station: &StationName,
        lead: Option<Span>,
    ) -> ProgramPace {
        match (self.case.backend, lead.filter(|_| class == StreamClass::RealTime)) {
            (CaseBackend::Mac, Some(lead)) => {
                ProgramPace::Aligned { instance: (self.instance)(station), lead }
            }
            (mac, Some(lead)) if mac != CaseBackend::None => {
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

    fn client(&self, stream: &RequestResponse) -> Result<Role, RunnerError> {
        let name = format!("{}-client", stream.name);
        // Where no backend paces the exchange, one message in a cycle keeps the load the same.
        let paced = match TransmitBackend::of_case(self.case.backend) {
            None => !self.scenario.has_schedule,
            Some(backend) => {
                backend.slots() == SlotPromise::All || stream.class() == StreamClass::RealTime
            }
        };
        let pace = match paced {
            false => ProgramPace::Every(self.scenario.schedule.cycle()),
            true => self.pace(stream.class(), &stream.talker),
        };
        let server = self.task(&stream.listeners, stream.port(), stream.size.get())?.address;
        let program = Program::Client {
            task: self.measured_task(&self.measured(&stream.name), &stream.talker)?,
            server,
            pace,
            timeout: stream.timeout,
            records: self.records(&name, Self::flows(&stream.name)),
        };
        Ok(self.role(name, &stream.talker, stream.class(), program))
    }

    fn server(&self, stream: &RequestResponse) -> Result<Role, RunnerError> {
        let name = format!("{}-server", stream.name);
        let program = Program::Server {
            task: self.measured_task(&self.measured(&stream.name), &stream.listeners)?,
            pace: self.pace(stream.class(), &stream.listeners),
            drain: DRAIN,
            records: self.records(&name, Self::flows(&stream.name)),
        };
        Ok(self.role(name, &stream.listeners, stream.class(), program))
    }

    /// The listener and the talker of a stream to which nothing comes back.
    fn one_way(
        &self,
        (stream, from, to): (&Name, &StationName, &StationName),
        due: Due,
    ) -> Result<[Role; 2], RunnerError> {
        let measured = self.measured(stream);
        let class = measured.class;
        let task = self.measured_task(&measured, from)?;
        let hears = self.task(to, task.port, task.message)?;
        let address = hears.address;
        let name = format!("{stream}-listener");
        let records = self.records(&name, vec![stream.to_string()]);
        let program = Program::Listener { task: hears, drain: DRAIN, records };
        let listener = self.role(name, to, class, program);
        let name = format!("{stream}-talker");
        let records = self.records(&name, vec![stream.to_string()]);
        let pace = self.pace(class, from);
        let program = Program::Talker { task, to: address, due, pace, records };
        Ok([listener, self.role(name, from, class, program)])
    }

    /// When messages of a sporadic stream are due, as the simulator of networks has it.
    fn due(&self, number: usize, stream: &Sporadic) -> Result<Due, RunnerError> {
        let gap = fixed_or_drawn(&stream.gap);
        let gap = gap.with_context(|| format!("the gaps of {} are recorded", stream.name))?;
        let lasts = self.times.to - self.times.start;
        let seed = (self.scenario.seed.get(), number);
        let times = gap.releases(seed, lasts, MOST_MESSAGES + 1);
        if times.len() > MOST_MESSAGES {
            let what = format!("{} has more than {MOST_MESSAGES} messages", stream.name);
            return Err(RunnerError::Invalid(format!("{what}: make `gap` or `duration` another")));
        }
        Ok(Due::Listed(times))
    }

    /// Whether a program of the user's sends a stream's messages here.
    fn has_program(&self, stream: &Cyclic) -> bool {
        self.runs_programs && self.scenario.is_of_program(stream)
    }

    /// Who timestamps the messages of a user's program at one end.
    fn monitor(&self, stream: &Cyclic, end: End) -> Result<Role, RunnerError> {
        let (station, what) = match end {
            End::Talker => (&stream.talker, "talker"),
            End::Listener => (&stream.listeners, "listener"),
        };
        let name = format!("{}-{what}", stream.name);
        let program = Program::Monitor {
            task: self.task(station, stream.port(), stream.size.get())?,
            between: Between {
                from: self.task(&stream.talker, stream.port(), 0)?.address,
                to: self.task(&stream.listeners, stream.port(), 0)?.address,
            },
            end,
            drain: DRAIN,
            records: self.records(&name, vec![stream.name.to_string()]),
        };
        Ok(self.role(name, station, StreamClass::BestEffort, program))
    }

    /// Who has the port of a user's stream open where no program of the user's does.
    fn taker(&self, stream: &Cyclic) -> Result<Option<Role>, RunnerError> {
        let station = &stream.listeners;
        if self.scenario.program_of(&stream.name, station).is_some() {
            return Ok(None);
        }
        let program = Program::Sink { task: self.task(station, stream.port(), stream.size.get())? };
        let name = format!("{}-sink", stream.name);
        Ok(Some(self.role(name, station, StreamClass::BestEffort, program)))
    }

    fn program(&self, program: &StationProgram) -> Role {
        let scenario = self.scenario;
        let class = scenario.class_of(program);
        let mut environment = BTreeMap::new();
        for station in &scenario.stations {
            let address = station.address().address().to_string();
            if station.name == program.station {
                environment.insert("TIMEWIRE_ADDRESS".to_owned(), address.clone());
            }
            environment.insert(address_variable(&station.name), address);
        }
        for stream in &scenario.streams {
            let port = stream.port().get().to_string();
            environment.insert(port_variable(stream.name()), port);
        }
        environment.insert("TIMEWIRE_STATION".to_owned(), program.station.to_string());
        let backend = TransmitBackend::of_case(self.case.backend);
        let kernels = backend.filter(|backend| backend.is_kernels());
        let has_class = |it: &TransmitBackend| self.case.priorities || it.always_has_classes();
        if class == StreamClass::RealTime && kernels.is_some_and(|it| has_class(&it)) {
            let priority = Scenario::real_time_priority().get().to_string();
            environment.insert("TIMEWIRE_SOCKET_PRIORITY".to_owned(), priority);
        }
        let name = own_name(&program.name);
        let own = OwnProgram {
            name: program.name.to_string(),
            command: program.command.to_string(),
            environment,
            files: program.files.iter().map(ToString::to_string).collect(),
            directory: self.directory.join(&name),
            start: self.times.start,
            end: self.times.to,
            drain: DRAIN,
        };
        self.role(name, &program.station, class, Program::Own(own))
    }

    /// The program of the station at a place of a pipeline.
    fn step(&self, pipeline: &Pipeline, place: usize) -> Result<Role, RunnerError> {
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
            None => self.task(station, pipeline.port(), pipeline.size.get())?,
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
        Ok(self.role(name, station, pipeline.class(), program))
    }

    fn flood(&self, flood: &Flood) -> Result<Role, RunnerError> {
        let to = self.task(&flood.listeners, flood.port(), flood.size.get())?.address;
        let program = Program::Flood {
            task: self.task(&flood.talker, flood.port(), flood.size.get())?,
            to,
            flow: FloodRate { bits_per_second: flood.rate.get(), burst: flood.burst.get() },
        };
        Ok(self.role(flood.name.to_string(), &flood.talker, StreamClass::BestEffort, program))
    }

    fn sink(&self, flood: &Flood) -> Result<Role, RunnerError> {
        let program =
            Program::Sink { task: self.task(&flood.listeners, flood.port(), flood.size.get())? };
        let name = format!("{}-sink", flood.name);
        Ok(self.role(name, &flood.listeners, StreamClass::BestEffort, program))
    }

    /// A program of a station; where the case has priorities, one of a real-time stream has one.
    fn role(
        &self,
        name: String,
        station: &StationName,
        class: StreamClass,
        program: Program,
    ) -> Role {
        let priority = match TransmitBackend::of_case(self.case.backend) {
            Some(backend) if self.case.priorities && class == StreamClass::RealTime => {
                Some(match backend {
                    TransmitBackend::Mac => ProgramPriority::Group((self.instance)(station)),
                    _ => ProgramPriority::Own,
                })
            }
            _ => None,
        };
        Role { name, station: Some(station.clone()), file: ProgramFile { priority, program } }
    }

    fn observer(&self, observer: &Observer) -> Role {
        let name = observer.name.clone();
        let measured = self.scenario.measured_in(self.load);
        let measured: Vec<_> = measured.filter(|stream| stream.way != MessageFlow::Whole).collect();
        let by_content = |name: &Name| {
            self.scenario.streams.iter().any(|stream| match stream {
                Stream::Cyclic(stream) => stream.name == *name && self.has_program(stream),
                _ => false,
            })
        };
        let ports = measured.iter().filter_map(|stream| {
            Some(MeasuredPort { port: stream.way.port()?, by_content: by_content(&stream.name) })
        });
        let flows = measured.iter().flat_map(|stream| match stream.way {
            MessageFlow::Asked { .. } => Self::flows(&stream.name),
            // Nothing comes back; the observer counts two for each port.
            MessageFlow::OneWay { .. } | MessageFlow::Whole => {
                vec![stream.name.to_string(), format!("{}.response", stream.name)]
            }
        });
        let mut records = self.records(&name, flows.collect());
        if observer.ports.iter().any(|port| port.station.is_none()) {
            records.header.stations.push(OTHERS.to_owned());
        }
        let program = Program::Observer {
            hub: observer.ports.clone(),
            addresses: observer.addresses.clone(),
            ports: ports.collect(),
            end: self.times.over,
            records,
        };
        Role { name, station: None, file: ProgramFile { priority: None, program } }
    }
}
