// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The stations of one scenario while it runs: with their addresses on the link (plain Ethernet) or
//! behind their MACs, and the processes of the case that is being performed.
//!
//! Whatever was started is ended when the stage goes, also after an error.

use std::cell::RefCell;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use timewire_base::{FileError, IfName, Instant, Span, StationName, Tai};
use timewire_capture::summary::{Fact, FactLevel, MacSummary};
use timewire_datapath::DatapathError;
use timewire_datapath::mac::PortList;
use timewire_datapath::observe::ObservedPort;
use timewire_lab::{Lab, ns};
use timewire_model::scenario::{Case, CaseBackend, Name, Scenario};
use timewire_sys::clock;
use timewire_sys::event::EndRequests;
use timewire_sys::marker::{self, RunPlace};
use timewire_sys::namespace::OnParentDeath;
use timewire_tsn::backend::TransmitBackend;

use super::backend::{self, Resolved};
use super::participants::{Observer, Participants, ParticipantsOf, Role, Times, step_of};
use super::tracing::{Tracing, filter_text};
use super::{Options, Progress};
use crate::RunnerError;
use crate::own_program::OwnProgram;
use crate::program::Program;
use crate::rundir::{RunDir, TimestampBoundMeta};
use crate::trace::collect::StationAt;
use timewire_datapath::control::{Client, Request, Status};
use timewire_datapath::station::port_lists;
use timewire_datapath::sync::RunSync;

/// How long a MAC may take to answer after its start.
const MAC_START: Duration = Duration::from_secs(10);
/// How long a program may take beyond the end of its case.
const LATE_END: Span = Span::from_secs(5);
/// How often processes are looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// What the MACs counted over a case.
pub(super) struct Counted {
    pub(super) macs: Vec<MacSummary>,
    pub(super) timestamp_bound: Option<TimestampBoundMeta>,
}

/// A process of the experiment; killed when it goes out of scope.
struct Process {
    what: String,
    child: Child,
}

impl Process {
    fn ended(&mut self, directory: &RunDir) -> Result<bool, RunnerError> {
        let status = self
            .child
            .try_wait()
            .map_err(|error| RunnerError::Invalid(format!("{}: {error}", self.what)))?;
        match status {
            None => Ok(false),
            Some(status) if status.success() => Ok(true),
            Some(status) => Err(RunnerError::Station(DatapathError::Program {
                what: self.what.clone(),
                how: format!("ended with {status}"),
                stderr: fs::read_to_string(directory.log_path(&self.what)).unwrap_or_default(),
            })),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How the stations are connected now.
enum Connected {
    Not,
    /// Addresses on the link.
    Plainly,
    /// Addresses behind a MAC on each station.
    ByMacs(Vec<Process>),
    /// Addresses on the link, whose queueing disciplines carry the schedule out.
    ByKernel(TransmitBackend),
}

pub(super) struct Stage<'a> {
    resolved: &'a Resolved,
    scenario: &'a Scenario,
    lab: &'a Lab,
    directory: &'a RunDir,
    options: &'a Options,
    sync: &'a RefCell<RunSync>,
    connected: Connected,
    /// Where marks are put, when each case is traced. After who puts them: it goes last.
    marks: Option<RunPlace>,
}

impl<'a> Stage<'a> {
    /// **Errors**: there is no place for marks.
    pub(super) fn new(
        resolved: &'a Resolved,
        lab: &'a Lab,
        directory: &'a RunDir,
        options: &'a Options,
        sync: &'a RefCell<RunSync>,
    ) -> Result<Stage<'a>, RunnerError> {
        let scenario = &resolved.scenario;
        let connected = Connected::Not;
        let marks = options.trace.then(RunPlace::new).transpose();
        let failed = |error| RunnerError::Invalid(format!("there is no place for marks: {error}"));
        let marks = marks.map_err(failed)?;
        Ok(Stage { resolved, scenario, lab, directory, options, sync, connected, marks })
    }

    pub(super) fn scenario(&self) -> &'a Scenario {
        self.scenario
    }

    pub(super) fn directory(&self) -> &'a RunDir {
        self.directory
    }

    /// Whether each case is traced.
    pub(super) fn traces(&self) -> bool {
        self.marks.is_some()
    }

    /// Connects the stations as the case wants it. Says what the MACs use and could not have.
    pub(super) fn prepare(
        &mut self,
        case: &Case,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Vec<Fact>, RunnerError> {
        match (TransmitBackend::of_case(case.backend), &self.connected) {
            (None, Connected::Plainly) | (Some(TransmitBackend::Mac), Connected::ByMacs(_)) => {
                Ok(Vec::new())
            }
            (Some(backend), Connected::ByKernel(now)) if backend == *now => Ok(Vec::new()),
            (None, _) => {
                self.disconnect()?;
                self.assign_addresses()?;
                self.connected = Connected::Plainly;
                Ok(Vec::new())
            }
            (Some(TransmitBackend::Mac), _) => {
                self.disconnect()?;
                progress(Progress::Step("starting the MACs of all stations".to_owned()));
                self.connected = Connected::ByMacs(self.start_macs()?);
                Ok(mac_facts(self.scenario, &self.statuses()?))
            }
            (Some(backend), _) => {
                self.disconnect()?;
                progress(Progress::Step(format!("giving all stations {backend}")));
                backend::install(self.scenario, self.lab, backend)?;
                self.connected = Connected::ByKernel(backend);
                self.assign_addresses()?;
                Ok(self.resolved.facts(backend))
            }
        }
    }

    /// Takes the stations off the segment.
    pub(super) fn close(mut self) -> Result<(), RunnerError> {
        self.disconnect()
    }

    fn disconnect(&mut self) -> Result<(), RunnerError> {
        match std::mem::replace(&mut self.connected, Connected::Not) {
            Connected::Not => Ok(()),
            Connected::Plainly => self.unassign_addresses(),
            Connected::ByKernel(_) => {
                backend::remove(self.scenario, self.lab)?;
                self.unassign_addresses()
            }
            Connected::ByMacs(mut macs) => {
                for station in &self.scenario.stations {
                    Client::new(&self.instance(&station.name)).ask(&Request::Stop)?;
                }
                let give_up = clock::now::<Tai>() + LATE_END;
                self.wait_for_all(&mut macs, give_up, None)
            }
        }
    }

    fn assign_addresses(&self) -> Result<(), RunnerError> {
        for station in &self.scenario.stations {
            let address = station.address().to_string();
            self.lab.assign(&station.name, &self.lab.phy(), &address)?;
        }
        Ok(())
    }

    fn unassign_addresses(&self) -> Result<(), RunnerError> {
        for station in &self.scenario.stations {
            let address = station.address().to_string();
            self.lab.unassign(&station.name, &self.lab.phy(), &address)?;
        }
        Ok(())
    }

    /// The name of a station's MAC: unique on this host.
    fn instance(&self, station: &StationName) -> String {
        format!("lab{}-{station}", std::process::id())
    }

    fn start_macs(&self) -> Result<Vec<Process>, RunnerError> {
        let scenario = self.directory.scenario_path(self.scenario.name.as_str());
        let mut macs = Vec::new();
        for station in &self.scenario.stations {
            let mut command = Command::new(&self.options.program);
            command.args(["tdm", "start", self.lab.phy().as_str(), "--foreground"]);
            command.arg("--file").arg(&scenario);
            command.args(["--station", station.name.as_str(), "--clock", "one-host"]);
            command.args(["--address", &station.address().to_string()]);
            command.args(["--name", &self.instance(&station.name), "--no-priorities"]);
            let what = format!("{} MAC {}", self.scenario.name, station.name);
            macs.push(self.spawn(&what, Some(&station.name), command)?);
        }
        let give_up = std::time::Instant::now() + MAC_START;
        for (station, mac) in self.scenario.stations.iter().zip(&mut macs) {
            let client = Client::new(&self.instance(&station.name));
            while client.status().is_err() {
                if mac.ended(self.directory)? || std::time::Instant::now() > give_up {
                    return Err(RunnerError::Station(DatapathError::Program {
                        what: mac.what.clone(),
                        how: "did not start".to_owned(),
                        stderr: fs::read_to_string(self.directory.log_path(&mac.what))
                            .unwrap_or_default(),
                    }));
                }
                std::thread::sleep(POLL_INTERVAL);
            }
        }
        Ok(macs)
    }

    fn spawn(
        &self,
        what: &str,
        station: Option<&StationName>,
        mut command: Command,
    ) -> Result<Process, RunnerError> {
        let path = self.directory.log_path(what);
        let log = File::create(&path).map_err(RunnerError::file("create", &path))?;
        let copy = log.try_clone().map_err(RunnerError::file("create", &path))?;
        command.stdin(Stdio::null()).stdout(copy).stderr(log);
        let netns = match station {
            Some(station) => self.lab.station_netns_path(station)?,
            None => self.lab.hub_netns_path(),
        };
        if let Some(marks) = &self.marks {
            command.env(marker::VARIABLE, marks.path());
        }
        let child = ns::spawn(&netns, command, OnParentDeath::Kill)?;
        Ok(Process { what: what.to_owned(), child })
    }

    fn statuses(&self) -> Result<Vec<Status>, RunnerError> {
        let stations = self.scenario.stations.iter();
        let status = |name| Ok(Client::new(&self.instance(name)).status()?);
        stations.map(|station| status(&station.name)).collect()
    }

    /// Who takes part in a case, with its times starting a little from now.
    pub(super) fn participants(
        &self,
        case: &Case,
        load: &Name,
        id: &str,
    ) -> Result<Participants, RunnerError> {
        let duration = self.scenario.measured_for(self.options.quick);
        let directory = self.case_directory(id)?;
        let mut hub = Vec::new();
        for (index, station) in (0_u8..).zip(&self.scenario.stations) {
            let interface: IfName = self.lab.hub_port(&station.name)?;
            hub.push(ObservedPort { interface, station: Some(index) });
        }
        Participants::of(&ParticipantsOf {
            scenario: self.scenario,
            case,
            load,
            id,
            times: Times::starting(
                clock::now(),
                step_of(self.scenario),
                (self.scenario.warm_up, duration),
            ),
            directory: &directory,
            observers: vec![Observer { name: "hub".to_owned(), ports: hub, addresses: Vec::new() }],
            runs_programs: true,
            instance: &|station| self.instance(station),
        })
    }

    /// Begins the capture of a case, where there is to be one. It takes its time: to be called
    /// before the times of the case are set.
    pub(super) fn trace(&self, load: &Name, id: &str) -> Result<Option<Tracing>, RunnerError> {
        let Some(marks) = &self.marks else { return Ok(None) };
        let directory = self.case_directory(id)?;
        let mut stations = Vec::new();
        for station in &self.scenario.stations {
            let netns = self.lab.station_netns_path(&station.name)?;
            stations.push(StationAt { name: station.name.to_string(), netns });
        }
        let of = (id, self.lab.phy().to_string());
        let filter = filter_text(self.scenario, load);
        Tracing::start(&filter, of, (stations, marks), &directory).map(Some)
    }

    /// Starts everybody, waits for all of them, ends the capture, and says what the MACs counted
    /// meanwhile.
    pub(super) fn perform(
        &self,
        case: &Case,
        participants: &Participants,
        tracing: Option<Tracing>,
        requests: &EndRequests,
    ) -> Result<Counted, RunnerError> {
        let tdm = case.backend == CaseBackend::Mac;
        if tdm {
            self.set_priorities(case.priorities)?;
        }
        let before = if tdm { self.statuses()? } else { Vec::new() };
        let roles = participants.roles.iter();
        let processes = roles.map(|role| self.start_role(participants, role));
        let mut processes = processes.collect::<Result<Vec<_>, _>>()?;
        self.wait_for_all(&mut processes, participants.times.over + LATE_END, Some(requests))?;
        if let Some(tracing) = tracing {
            tracing.finish()?;
        }
        let after = if tdm { self.statuses()? } else { Vec::new() };
        Ok(Counted {
            macs: before.iter().zip(&after).map(|(a, b)| difference(a, b)).collect(),
            timestamp_bound: timestamp_bound(&after),
        })
    }

    fn start_role(&self, participants: &Participants, role: &Role) -> Result<Process, RunnerError> {
        let directory = self.case_directory(&participants.id)?;
        let path = directory.join(format!("{}.json", role.name));
        let text = serde_json::to_vec_pretty(&role.file)
            .map_err(|error| FileError::content(&path, error))?;
        fs::write(&path, text).map_err(RunnerError::file("write", &path))?;
        if let Program::Own(OwnProgram { files, directory: place, .. }) = &role.file.program {
            fs::create_dir_all(place).map_err(RunnerError::file("create", place))?;
            let kept = self.directory.files_path(self.scenario.name.as_str());
            for file in files {
                let (from, to) = (kept.join(file), place.join(file));
                let parent = to.parent().unwrap_or(place);
                fs::create_dir_all(parent).map_err(RunnerError::file("create", parent))?;
                fs::copy(&from, &to).map_err(RunnerError::file("copy", &from))?;
            }
        }
        let mut command = Command::new(&self.options.program);
        command.arg("__program").arg(&path);
        self.spawn(&format!("{} {}", participants.id, role.name), role.station.as_ref(), command)
    }

    fn case_directory(&self, id: &str) -> Result<PathBuf, RunnerError> {
        let directory = self.directory.case_path(id);
        fs::create_dir_all(&directory).map_err(RunnerError::file("create", &directory))?;
        Ok(directory)
    }

    fn set_priorities(&self, on: bool) -> Result<(), RunnerError> {
        let (send, recv) = match on {
            true => port_lists(&self.scenario.queues),
            false => (PortList::default(), PortList::default()),
        };
        for station in &self.scenario.stations {
            let client = Client::new(&self.instance(&station.name));
            client.ask(&Request::Send { list: send.clone() })?;
            client.ask(&Request::Recv { list: recv.clone() })?;
        }
        Ok(())
    }

    fn wait_for_all(
        &self,
        processes: &mut Vec<Process>,
        give_up: Instant<Tai>,
        requests: Option<&EndRequests>,
    ) -> Result<(), RunnerError> {
        while !processes.is_empty() {
            self.sync.borrow_mut().look();
            let mut index = 0;
            while index < processes.len() {
                if processes[index].ended(self.directory)? {
                    processes.swap_remove(index);
                } else {
                    index += 1;
                }
            }
            if requests.is_some_and(EndRequests::take) {
                return Err(RunnerError::EndRequested { path: self.directory.path().to_owned() });
            }
            if let Some(late) = processes.first()
                && clock::now::<Tai>() > give_up
            {
                return Err(RunnerError::Station(DatapathError::Program {
                    what: late.what.clone(),
                    how: "did not end in time".to_owned(),
                    stderr: String::new(),
                }));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }
}

pub(super) fn difference(before: &Status, after: &Status) -> MacSummary {
    let mut difference = after.transmit.clone();
    let was = &before.transmit;
    difference.released -= was.released;
    difference.missed_slots -= was.missed_slots;
    difference.ingress_dropped -= was.ingress_dropped;
    for queue in &mut difference.queues {
        if let Some(was) = was.queues.iter().find(|was| was.name == queue.name) {
            queue.arrived -= was.arrived;
            queue.released -= was.released;
            queue.dropped_full -= was.dropped_full;
            queue.dropped_oversize -= was.dropped_oversize;
        }
    }
    difference
}

/// What the MACs of a scenario use and could not have.
pub(super) fn mac_facts(scenario: &Scenario, statuses: &[Status]) -> Vec<Fact> {
    let of = |status: &Status| {
        let fact = |name: &str, value: &str, level| Fact {
            area: format!("MACs of {}", scenario.name),
            name: name.to_owned(),
            value: value.to_owned(),
            level,
        };
        let mut facts = vec![
            fact("transmit", &status.transmit.socket, FactLevel::Ok),
            fact("receive", &status.receive, FactLevel::Ok),
        ];
        let refused = status.refused.iter();
        facts.extend(refused.map(|why| fact("not available", why, FactLevel::Missing)));
        (status.station.clone(), facts)
    };
    merged(statuses.iter().map(of).collect())
}

/// The facts of several stations: each once, with its stations where it is not of all of them.
pub(super) fn merged(of_stations: Vec<(String, Vec<Fact>)>) -> Vec<Fact> {
    let all = of_stations.len();
    let mut found: Vec<(Fact, Vec<String>)> = Vec::new();
    for (station, facts) in of_stations {
        for fact in facts {
            match found.iter_mut().find(|(known, _)| *known == fact) {
                Some((_, stations)) => stations.push(station.clone()),
                None => found.push((fact, vec![station.clone()])),
            }
        }
    }
    let named = found.into_iter().map(|(mut fact, stations)| {
        if stations.len() < all {
            fact.value += &format!(" ({})", stations.join(", "));
        }
        fact
    });
    named.collect()
}

/// The bound over all stations, since the MACs started.
pub(super) fn timestamp_bound(statuses: &[Status]) -> Option<TimestampBoundMeta> {
    let p999 = statuses.iter().filter_map(|status| status.call_p999_ns).max()?;
    let max = statuses.iter().map(|status| status.call_max_ns).max()?;
    Some(TimestampBoundMeta { p999_ns: Span::from_ns(p999), max_ns: Span::from_ns(max) })
}
