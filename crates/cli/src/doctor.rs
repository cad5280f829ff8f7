// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `doctor`: whether something can run here, before it runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, bail};
use clap::Args;
use serde::Serialize;
use timewire_base::{IfName, StationName};
use timewire_host::doctor::attempt::Extent;
use timewire_host::doctor::{
    self, Diagnosis, Finding, PROBES_SCHEMA, Probe, Probes, Question, StationAsked, Verdict,
};
use timewire_host::snapshot::Snapshot;
use timewire_host::snapshot::source::{Live, Record, Recording, Redacting, with_own_sysfs};
use timewire_model::scenario::host::HostSettings;
use timewire_model::scenario::{CaseBackend, FileKind, Scenario};
use timewire_runner::network::Obstacle;
use timewire_tsn::backend;
use timewire_tsn::file::{ParseFile, with_slots};

use crate::ending::{self, Ending, WORDS};
use crate::{input, output};

pub mod on_hosts;

/// What is asked, and about which host.
#[derive(Debug, Args)]
pub struct Doctor {
    /// A network of one segment, host settings, or an interface; without it, this host in
    /// general
    #[arg(value_name = "FILE|INTERFACE")]
    pub what: Option<String>,
    /// This host as this station of a segment, instead of the local laboratory; needs
    /// --interface. Or the station, where several have host settings
    #[arg(long, value_name = "NAME")]
    pub station: Option<StationName>,
    /// With --station: the interface to the segment
    #[arg(long, value_name = "INTERFACE")]
    pub interface: Option<IfName>,
    /// Judge the host that was recorded in this directory instead of this one; or, with a network
    /// file, the hosts of a hosts file as its stations and bridges, all at the same time
    #[arg(long, value_name = "DIR|HOSTS")]
    pub on: Option<PathBuf>,
    /// Record this host into a directory, to be judged elsewhere
    #[arg(long, value_name = "DIR", conflicts_with = "on")]
    pub record: Option<PathBuf>,
    /// Ask this NIC what it does itself: it is changed for a moment, and restored. Its link may go
    /// down for some seconds
    #[arg(long, value_name = "INTERFACE", conflicts_with = "on")]
    pub try_offload: Option<IfName>,
    /// Tell everything that was looked at, also what is well
    #[arg(long)]
    pub all: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Exit code 0: all is well; 1: degraded, or a command is needed first; 3: a NIC that was tried
/// could not be restored; 4: something needed is missing here.
pub fn run(args: &Doctor) -> anyhow::Result<ExitCode> {
    if let Some(hosts) = args.on.as_ref().filter(|on| on.is_file()) {
        return on_hosts::run(args, hosts);
    }
    // A wrong file is told before anything is tried.
    let mut asked = args.what.as_deref().map(|what| Asked::parse(what, args)).transpose()?;
    let mut on = on_station(args, asked.as_ref())?;
    // What is tried on an interface is taken back first, and a record is written whole.
    let ends_whole = args.try_offload.is_some() || args.record.is_some();
    let ending = ends_whole.then(Ending::new).transpose()?;
    if ending.is_none() && args.on.is_none() {
        ending::exit_on_request()?;
    }
    let (snapshot, probes) = match (&args.on, &args.record) {
        (Some(directory), _) => recorded(directory)?,
        (None, Some(directory)) => {
            let (snapshot, probes, redacting) = record(directory, args.try_offload.as_ref())?;
            // The question is about the host, and the answer is about the record.
            if let Some(Asked::Name(name)) = &mut asked {
                *name = redacting.text(name);
            }
            on = on.map(|(station, interface)| (station, redacting.name(&interface)));
            (snapshot, probes)
        }
        (None, None) => {
            let snapshot = Snapshot::of_this_host(&[])?;
            let probes = probes_of_this_host(Extent::All, &snapshot, args.try_offload.as_ref())?;
            (snapshot, probes)
        }
    };
    anyhow::ensure!(!ending.is_some_and(|ending| ending.is_asked()), "{WORDS}");
    let question = question(asked, on, &snapshot)?;
    let diagnosis = doctor::judge(&snapshot, &probes, &question);
    let text = if args.json {
        let told = DoctorReport { diagnosis: &diagnosis, probes: &probes };
        format!("{}\n", serde_json::to_string_pretty(&told)?)
    } else {
        doctor::text(&diagnosis, args.all)
    };
    output::print(&text)?;
    Ok(ExitCode::from(diagnosis.exit_code()))
}

/// A judgement, and what was tried for it.
#[derive(Serialize)]
struct DoctorReport<'a> {
    #[serde(flatten)]
    diagnosis: &'a Diagnosis,
    probes: &'a Probes,
}

/// What the word on the command line is.
enum Asked {
    Scenario(Box<Scenario>),
    HostSettings(Box<HostSettings>),
    /// No file, so an interface, if there is one.
    Name(String),
}

impl Asked {
    fn parse(what: &str, args: &Doctor) -> anyhow::Result<Asked> {
        let path = Path::new(what);
        if !path.is_file() {
            return Ok(Asked::Name(what.to_owned()));
        }
        let nothing = "nothing was judged";
        let text = input::text(path)?;
        let kind = FileKind::of(&text);
        if matches!(kind, Some(FileKind::Network | FileKind::HostSettings)) {
            let file = input::host_settings(path, args.station.as_ref(), nothing)?;
            return Ok(Asked::HostSettings(Box::new(file)));
        }
        // A station is judged by its slots.
        let parse = if args.station.is_some() { with_slots } else { Scenario::parse };
        let (scenario, _) = input::read(path, FileKind::Segment, nothing, parse)?;
        Ok(Asked::Scenario(Box::new(scenario)))
    }
}

/// The station that this host is to be judged as, and its interface.
fn on_station(
    args: &Doctor,
    asked: Option<&Asked>,
) -> anyhow::Result<Option<(StationName, IfName)>> {
    if args.station.is_none() && args.interface.is_none() {
        return Ok(None);
    }
    if matches!(asked, Some(Asked::HostSettings(_))) && args.interface.is_none() {
        return Ok(None);
    }
    let Some(Asked::Scenario(scenario)) = asked else {
        match asked {
            Some(Asked::HostSettings(_)) => {
                bail!("--interface is about a segment; host settings name their interfaces")
            }
            _ => bail!("--station and --interface are about a segment; name its file as well"),
        }
    };
    match (&args.station, &args.interface) {
        (Some(station), Some(interface)) => {
            input::station(scenario, station)?;
            Ok(Some((station.clone(), interface.clone())))
        }
        (None, _) => bail!(
            "--interface needs --station, which of the stations this host is: {}",
            input::stations(scenario)
        ),
        (Some(_), None) => bail!("--station needs --interface, the one to the segment"),
    }
}

fn question(
    asked: Option<Asked>,
    on: Option<(StationName, IfName)>,
    snapshot: &Snapshot,
) -> anyhow::Result<Question> {
    Ok(match asked {
        None => Question::Host,
        Some(Asked::Scenario(scenario)) => match on {
            None => Question::Scenario(scenario),
            Some((station, interface)) => {
                let asked = StationAsked { scenario: *scenario, station, interface, by: None };
                Question::Station(Box::new(asked))
            }
        },
        Some(Asked::HostSettings(file)) => Question::HostSettings(file),
        Some(Asked::Name(name)) => {
            let known = snapshot.settings.interfaces.keys().find(|known| known.as_str() == name);
            let Some(known) = known else {
                let all: Vec<_> = snapshot.settings.interfaces.keys().map(IfName::as_str).collect();
                bail!(
                    "`{name}` is neither a file nor an interface of the host; its interfaces are \
                     {}",
                    all.join(", ")
                );
            };
            Question::Interface(known.clone())
        }
    })
}

/// Everything is tried by a process of its own, so that nothing is left of it however it ends.
fn probes_of_this_host(
    extent: Extent,
    snapshot: &Snapshot,
    nic: Option<&IfName>,
) -> anyhow::Result<Probes> {
    let program = std::env::current_exe().context("cannot find the path of this program")?;
    let mut command = Command::new(program);
    command.arg("__probe");
    if extent == Extent::Needs {
        command.arg("--needs");
    }
    let mut probes = timewire_runner::doctor::probe_by(command)?;
    if let Some(nic) = nic {
        let offloads = doctor::try_offloads(snapshot, nic)?;
        probes.offloads.insert(nic.clone(), offloads);
    }
    Ok(probes)
}

/// The judgement of this host, for every verb that is to carry out what is asked about.
pub fn of_this_host(snapshot: &Snapshot, question: &Question) -> anyhow::Result<Diagnosis> {
    let probes = probes_of_this_host(Extent::Needs, snapshot, None)?;
    Ok(doctor::judge(snapshot, &probes, question))
}

/// What this kernel lacks of these probes, each with what was said when it was tried.
pub fn lacking(probes: impl IntoIterator<Item = Probe>) -> anyhow::Result<Vec<Obstacle>> {
    let snapshot = Snapshot::of_this_host(&[])?;
    let tried = probes_of_this_host(Extent::Needs, &snapshot, None)?;
    let lacks = probes.into_iter().filter(|probe| !tried.works(*probe));
    let obstacle = |probe: Probe| Obstacle {
        what: format!("{probe}: {}", probe.what()),
        why: format!("{}; --on lab:uml has it", tried.of(probe).text()),
    };
    Ok(lacks.map(obstacle).collect())
}

/// The judgement of this host as the laboratory of scenarios: that of the first which cannot run
/// here, where there is one.
pub fn refusal_of_scenarios<'s>(
    scenarios: impl Iterator<Item = &'s Scenario>,
    backend: Option<backend::Asked>,
) -> anyhow::Result<Option<Diagnosis>> {
    let snapshot = Snapshot::of_this_host(&[])?;
    let probes = probes_of_this_host(Extent::Needs, &snapshot, None)?;
    let judged = scenarios.map(|scenario| {
        let question = Question::Scenario(Box::new(with_backend(scenario, backend)));
        doctor::judge(&snapshot, &probes, &question)
    });
    Ok(judged.into_iter().find(|diagnosis| diagnosis.verdict == Verdict::No))
}

/// A scenario whose cases of Timewire's MAC have the backend that is asked for. A run finds the
/// best one itself, so nothing is needed of it beforehand.
fn with_backend(scenario: &Scenario, backend: Option<backend::Asked>) -> Scenario {
    let mut scenario = scenario.clone();
    let cases = &mut scenario.experiment.cases;
    match backend {
        None => {}
        Some(backend::Asked::Auto) => cases.retain(|case| case.backend != CaseBackend::Mac),
        Some(backend::Asked::Only(backend)) => {
            let tdm = cases.iter_mut().filter(|case| case.backend == CaseBackend::Mac);
            tdm.for_each(|case| case.backend = backend.case_backend());
        }
    }
    scenario
}

/// Says what is missing here, and what was not done for it; exit code 4.
pub fn refuse(diagnosis: &Diagnosis, nothing: &str, is_json: bool) -> anyhow::Result<ExitCode> {
    if is_json {
        output::json(diagnosis)?;
    }
    diagnosis.missing().for_each(|finding| say!("error: {}", line(finding)));
    say!("  host: {nothing}");
    Ok(ExitCode::from(4))
}

/// A finding in one line: what it is about, what was found, and what mends it.
pub fn line(finding: &Finding) -> String {
    let about = finding.interface.as_ref().map_or_else(String::new, |name| format!(" {name}"));
    let part = finding.needed_by.as_ref().map_or_else(String::new, |part| format!(", for {part}"));
    let mend = match finding.mend.as_slice() {
        [] => String::new(),
        all => format!("; mend: {}", all.join(", or ")),
    };
    format!("{}{about}{part}: {}{mend}", finding.id, finding.found)
}

fn recorded(directory: &Path) -> anyhow::Result<(Snapshot, Probes)> {
    // A snapshot that somebody kept says the same as the record it was read from.
    let kept = directory.join(SNAPSHOT_FILE);
    let snapshot = match fs::read_to_string(&kept) {
        Ok(text) => {
            Snapshot::parse(&text).map_err(|why| anyhow::anyhow!("{}: {why}", kept.display()))?
        }
        Err(_) => {
            let record = Record::load(directory)?;
            Snapshot::read(&record, record.interfaces())?
        }
    };
    let path = directory.join(PROBES_FILE);
    let text =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let probes: Probes = serde_json::from_str(&text).with_context(|| path.display().to_string())?;
    if probes.schema != PROBES_SCHEMA {
        bail!("{} is of version `{}`, not `{PROBES_SCHEMA}`", path.display(), probes.schema);
    }
    Ok((snapshot, probes))
}

fn record(
    directory: &Path,
    nic: Option<&IfName>,
) -> anyhow::Result<(Snapshot, Probes, Redacting<Live>)> {
    // It is to be given away, so it says nothing that is nobody's business.
    let redacting = Redacting::new(Live);
    let (redacting, snapshot) = with_own_sysfs(|| -> anyhow::Result<_> {
        let source = Recording::new(&redacting, &[]);
        let snapshot = Snapshot::read(&source, &[])?;
        source.into_record().save(directory)?;
        Ok((redacting, snapshot))
    })?;
    // What is tried on a NIC is tried by its own name.
    let own = nic.map(|_| Snapshot::of_this_host(&[])).transpose()?;
    let probes = probes_of_this_host(Extent::All, own.as_ref().unwrap_or(&snapshot), nic)?;
    let probes = probes.redacted(&redacting);
    let path = directory.join(PROBES_FILE);
    let text = serde_json::to_string_pretty(&probes)? + "\n";
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok((snapshot, probes, redacting))
}

/// The process that tries; prints what came of it.
pub fn probe(needs: bool) -> anyhow::Result<ExitCode> {
    // Without the privilege for a namespace, what needs none is tried nonetheless.
    let _ = timewire_lab::privilege::enter();
    let extent = if needs { Extent::Needs } else { Extent::All };
    let probes = timewire_runner::doctor::probe(extent);
    output::json(&probes)
}

const PROBES_FILE: &str = "probes.json";
const SNAPSHOT_FILE: &str = "snapshot.json";
