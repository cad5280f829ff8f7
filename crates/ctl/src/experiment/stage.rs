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

use timewire_base::{IfName, Instant, Span, StationName, Tai};
use timewire_lab::{Lab, ns};
use timewire_path::mac::PortList;
use timewire_path::observe::ObservedPort;
use timewire_sched::carrier::ScheduleCarrier;
use timewire_sched::scenario::{Case, CaseMac, Name, Scenario};
use timewire_sys::clock;
use timewire_sys::event::EndRequests;
use timewire_sys::marker::{self, RunPlace};
use timewire_sys::namespace::OnParentDeath;
use timewire_trace::summary::{Fact, FactLevel, MacSummary};

use super::carrier::{self, Resolved};
use super::cast::{Cast, Casting, Role, Times};
use super::tracing::Tracing;
use super::{Options, Progress};
use crate::CtlError;
use crate::control::{Client, Request, Response, Status};
use crate::rundir::{RunDir, StampBoundMeta};
use crate::station::port_lists;
use crate::sync::RunSync;

/// How long a MAC may take to answer after its start.
const MAC_START: Duration = Duration::from_secs(10);
/// How long a program may take beyond the end of its case.
const LATE_END: Span = Span::from_secs(5);
/// How often processes are looked at.
const LOOK: Duration = Duration::from_millis(5);

/// What the MACs counted over a case.
pub(super) struct Counted {
    pub(super) macs: Vec<MacSummary>,
    pub(super) stamp_bound: Option<StampBoundMeta>,
}

/// A process of the experiment; killed when it goes out of scope.
struct Process {
    what: String,
    child: Child,
}

impl Process {
    fn ended(&mut self, directory: &RunDir) -> Result<bool, CtlError> {
        let status = self
            .child
            .try_wait()
            .map_err(|error| CtlError::Invalid(format!("{}: {error}", self.what)))?;
        match status {
            None => Ok(false),
            Some(status) if status.success() => Ok(true),
            Some(status) => Err(CtlError::Program {
                what: self.what.clone(),
                how: format!("ended with {status}"),
                stderr: fs::read_to_string(directory.log_path(&self.what)).unwrap_or_default(),
            }),
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
    ByKernel(ScheduleCarrier),
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
    ) -> Result<Stage<'a>, CtlError> {
        let scenario = &resolved.scenario;
        let connected = Connected::Not;
        let marks = options.trace.then(RunPlace::new).transpose();
        let failed = |error| CtlError::Invalid(format!("there is no place for marks: {error}"));
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
    ) -> Result<Vec<Fact>, CtlError> {
        match (ScheduleCarrier::of_case(case.mac), &self.connected) {
            (None, Connected::Plainly) | (Some(ScheduleCarrier::Mac), Connected::ByMacs(_)) => {
                Ok(Vec::new())
            }
            (Some(carrier), Connected::ByKernel(now)) if carrier == *now => Ok(Vec::new()),
            (None, _) => {
                self.disconnect()?;
                self.assign_addresses()?;
                self.connected = Connected::Plainly;
                Ok(Vec::new())
            }
            (Some(ScheduleCarrier::Mac), _) => {
                self.disconnect()?;
                progress(Progress::Step("starting the MACs of all stations".to_owned()));
                self.connected = Connected::ByMacs(self.start_macs()?);
                self.mac_facts()
            }
            (Some(carrier), _) => {
                self.disconnect()?;
                progress(Progress::Step(format!("giving all stations {carrier}")));
                carrier::install(self.scenario, self.lab, carrier)?;
                self.connected = Connected::ByKernel(carrier);
                self.assign_addresses()?;
                Ok(self.resolved.facts(carrier))
            }
        }
    }

    /// Takes the stations off the segment.
    pub(super) fn close(mut self) -> Result<(), CtlError> {
        self.disconnect()
    }

    fn disconnect(&mut self) -> Result<(), CtlError> {
        match std::mem::replace(&mut self.connected, Connected::Not) {
            Connected::Not => Ok(()),
            Connected::Plainly => self.unassign_addresses(),
            Connected::ByKernel(_) => {
                carrier::remove(self.scenario, self.lab)?;
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

    fn assign_addresses(&self) -> Result<(), CtlError> {
        for station in &self.scenario.stations {
            let address = station.address.to_string();
            self.lab.assign(&station.name, &self.lab.phy(), &address)?;
        }
        Ok(())
    }

    fn unassign_addresses(&self) -> Result<(), CtlError> {
        for station in &self.scenario.stations {
            let address = station.address.to_string();
            self.lab.unassign(&station.name, &self.lab.phy(), &address)?;
        }
        Ok(())
    }

    /// The name of a station's MAC: unique on this host.
    fn instance(&self, station: &StationName) -> String {
        format!("lab{}-{station}", std::process::id())
    }

    fn start_macs(&self) -> Result<Vec<Process>, CtlError> {
        let scenario = self.directory.scenario_path(self.scenario.name.as_str());
        let mut macs = Vec::new();
        for station in &self.scenario.stations {
            let mut command = Command::new(&self.options.program);
            command.args(["tdm", "start", self.lab.phy().as_str(), "--foreground"]);
            command.arg("--file").arg(&scenario);
            command.args(["--station", station.name.as_str(), "--clock", "one-host"]);
            command.args(["--address", &station.address.to_string()]);
            command.args(["--name", &self.instance(&station.name), "--no-priorities"]);
            let what = format!("{} MAC {}", self.scenario.name, station.name);
            macs.push(self.spawn(&what, Some(&station.name), command)?);
        }
        let give_up = std::time::Instant::now() + MAC_START;
        for (station, mac) in self.scenario.stations.iter().zip(&mut macs) {
            let client = Client::new(&self.instance(&station.name));
            while client.status().is_err() {
                if mac.ended(self.directory)? || std::time::Instant::now() > give_up {
                    return Err(CtlError::Program {
                        what: mac.what.clone(),
                        how: "did not start".to_owned(),
                        stderr: fs::read_to_string(self.directory.log_path(&mac.what))
                            .unwrap_or_default(),
                    });
                }
                std::thread::sleep(LOOK);
            }
        }
        Ok(macs)
    }

    fn spawn(
        &self,
        what: &str,
        station: Option<&StationName>,
        mut command: Command,
    ) -> Result<Process, CtlError> {
        let path = self.directory.log_path(what);
        let log = File::create(&path).map_err(CtlError::file("create", &path))?;
        let copy = log.try_clone().map_err(CtlError::file("create", &path))?;
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

    fn statuses(&self) -> Result<Vec<Status>, CtlError> {
        let stations = self.scenario.stations.iter();
        stations.map(|station| Client::new(&self.instance(&station.name)).status()).collect()
    }

    /// What the MACs use and could not have. All stations are alike, so the first speaks for all.
    fn mac_facts(&self) -> Result<Vec<Fact>, CtlError> {
        let statuses = self.statuses()?;
        let Some(first) = statuses.first() else { return Ok(Vec::new()) };
        let fact = |name: &str, value: String, level| Fact {
            area: format!("MACs of {}", self.scenario.name),
            name: name.to_owned(),
            value,
            level,
        };
        let mut facts = vec![
            fact("transmit", first.transmit.carrier.clone(), FactLevel::Ok),
            fact("receive", first.receive.clone(), FactLevel::Ok),
        ];
        for refused in &first.refused {
            facts.push(fact("not available", refused.clone(), FactLevel::Missing));
        }
        Ok(facts)
    }

    /// Who takes part in a case, with its times starting a little from now.
    pub(super) fn cast(&self, case: &Case, load: &Name, id: &str) -> Result<Cast, CtlError> {
        let experiment = &self.scenario.experiment;
        let duration =
            if self.options.quick { experiment.quick_duration } else { experiment.duration };
        let directory = self.case_directory(id)?;
        let mut hub = Vec::new();
        for (index, station) in (0_u8..).zip(&self.scenario.stations) {
            let interface: IfName = self.lab.hub_port(&station.name)?;
            hub.push(ObservedPort { interface, station: index });
        }
        Cast::of(&Casting {
            scenario: self.scenario,
            case,
            load,
            id,
            times: Times::starting(clock::now(), experiment.warm_up, duration),
            directory: &directory,
            hub,
            instance: &|station| self.instance(station),
        })
    }

    /// Begins the capture of a case, where there is to be one. It takes its time: to be called
    /// before the times of the case are set.
    pub(super) fn trace(&self, load: &Name, id: &str) -> Result<Option<Tracing>, CtlError> {
        let Some(marks) = &self.marks else { return Ok(None) };
        let directory = self.case_directory(id)?;
        Tracing::start(self.scenario, (load, id), (self.lab, marks), &directory).map(Some)
    }

    /// Starts everybody, waits for all of them, ends the capture, and says what the MACs counted
    /// meanwhile.
    pub(super) fn perform(
        &self,
        case: &Case,
        cast: &Cast,
        tracing: Option<Tracing>,
        requests: &EndRequests,
    ) -> Result<Counted, CtlError> {
        let tdm = case.mac == CaseMac::Tdm;
        if tdm {
            self.set_priorities(case.priorities)?;
        }
        let before = if tdm { self.statuses()? } else { Vec::new() };
        let mut processes = Vec::new();
        let mut members = Vec::new();
        let mut group = carrier::priority_group(self.lab);
        for role in &cast.roles {
            let process = self.start_role(cast, role)?;
            match case.mac {
                CaseMac::Tdm if case.priorities && role.real_time => {
                    members.extend(self.add_to_group(role, process.child.id())?);
                }
                CaseMac::None | CaseMac::Tdm => {}
                _ if case.priorities && role.real_time => {
                    // Without the privilege the programs run as they are.
                    let _ = group.add(process.child.id(), None);
                }
                _ => {}
            }
            processes.push(process);
        }
        self.wait_for_all(&mut processes, cast.times.over + LATE_END, Some(requests))?;
        if let Some(tracing) = tracing {
            tracing.finish()?;
        }
        for (instance, member) in members {
            // A member that has ended is none any more.
            let _ = Client::new(&instance).ask(&Request::RemoveProcess { members: vec![member] });
        }
        let after = if tdm { self.statuses()? } else { Vec::new() };
        Ok(Counted {
            macs: before.iter().zip(&after).map(|(a, b)| difference(a, b)).collect(),
            stamp_bound: stamp_bound(&after),
        })
    }

    fn start_role(&self, cast: &Cast, role: &Role) -> Result<Process, CtlError> {
        let directory = self.case_directory(&cast.id)?;
        let path = directory.join(format!("{}.json", role.name));
        let text = serde_json::to_vec_pretty(&role.program)
            .map_err(|error| CtlError::Content { path: path.clone(), why: error.to_string() })?;
        fs::write(&path, text).map_err(CtlError::file("write", &path))?;
        let mut command = Command::new(&self.options.program);
        command.arg("__program").arg(&path);
        self.spawn(&format!("{} {}", cast.id, role.name), role.station.as_ref(), command)
    }

    fn case_directory(&self, id: &str) -> Result<PathBuf, CtlError> {
        let directory = self.directory.case_path(id);
        fs::create_dir_all(&directory).map_err(CtlError::file("create", &directory))?;
        Ok(directory)
    }

    fn add_to_group(&self, role: &Role, pid: u32) -> Result<Vec<(String, u32)>, CtlError> {
        let Some(station) = &role.station else { return Ok(Vec::new()) };
        let instance = self.instance(station);
        let asked = Client::new(&instance).ask(&Request::AddProcess { pids: vec![pid] });
        match asked {
            Ok(Response::Members { members }) => {
                Ok(members.into_iter().map(|member| (instance.clone(), member)).collect())
            }
            Ok(_) => Ok(Vec::new()),
            // Without the privilege the programs run as they are; the MAC has said so already.
            Err(CtlError::Refused { message }) if message.contains("CAP_SYS_NICE") => {
                Ok(Vec::new())
            }
            Err(error) => Err(error),
        }
    }

    fn set_priorities(&self, on: bool) -> Result<(), CtlError> {
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
    ) -> Result<(), CtlError> {
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
                return Err(CtlError::EndRequested { path: self.directory.path().to_owned() });
            }
            if let Some(late) = processes.first()
                && clock::now::<Tai>() > give_up
            {
                return Err(CtlError::Program {
                    what: late.what.clone(),
                    how: "did not end in time".to_owned(),
                    stderr: String::new(),
                });
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }
}

fn difference(before: &Status, after: &Status) -> MacSummary {
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

/// The bound over all stations, since the MACs started.
fn stamp_bound(statuses: &[Status]) -> Option<StampBoundMeta> {
    let p999 = statuses.iter().filter_map(|status| status.call_p999_ns).max()?;
    let max = statuses.iter().map(|status| status.call_max_ns).max()?;
    Some(StampBoundMeta { p999_ns: Span::from_ns(p999), max_ns: Span::from_ns(max) })
}
