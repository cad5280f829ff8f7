// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `apply`, `status` and `undo`: the settings of this host, as one transaction.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use serde_json::{Value as Json, json};
use timewire_base::{BitsPerSecond, IfName, Span, StationName, parse_span};
use timewire_host::apply::{
    self, DesiredState, Difference, Failure, Plan, Refusal, State, TransactionOutcome, applied,
};
use timewire_host::doctor::{Diagnosis, Question, StationAsked, Verdict, take_covering};
use timewire_host::snapshot::Snapshot;
use timewire_host::snapshot::model::GatedCredit;
use timewire_model::scenario::host::DesiredHost;
use timewire_model::scenario::{FileKind, Scenario};
use timewire_tsn::backend::TransmitBackend;
use timewire_tsn::desired::QdiscTree;
use timewire_tsn::file;
use timewire_tsn::qdisc::TdmPort;

use crate::output::{self, ProgressLine};
use crate::{doctor, input};

#[derive(Debug, Args)]
pub struct Apply {
    /// Network file with host settings of a station or, for one --interface, slots (YAML or JSON)
    #[arg(required_unless_present = "confirm")]
    pub file: Option<PathBuf>,
    /// An interface of the file and its name on this host; may be repeated. For slots, the
    /// interface of this host
    #[arg(long, value_name = "[NAME=]REAL")]
    pub interface: Vec<String>,
    /// Which station this host is, where several have host settings, or for its slots
    #[arg(long)]
    pub station: Option<StationName>,
    /// For slots: who carries the schedule out
    #[arg(long, value_enum, default_value = "auto")]
    pub backend: Backend,
    /// Print the steps and the commands of each, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Take it back unless `timewire apply --confirm` comes within this time
    #[arg(long, value_name = "DURATION", value_parser = parse_span)]
    pub confirm_within: Option<Span>,
    /// Let what is applied stay
    #[arg(
        long,
        conflicts_with_all = ["file", "interface", "station", "dry_run", "confirm_within"]
    )]
    pub confirm: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Backend {
    /// What a setting of the kernel can carry it out with: taprio
    Auto,
    /// The queueing discipline taprio, in software
    Taprio,
}

#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Undo {
    /// Restore also what someone else changed since
    #[arg(long)]
    pub force: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

pub fn run(args: &Apply) -> anyhow::Result<ExitCode> {
    let Some(file) = &args.file else { return confirm(args.json) };
    let Read { name, wanted, question, seen } = read(args, file)?;
    // The doctor's judgement, so that no check here is weaker than what is known elsewhere.
    let judged = || doctor::of_this_host(&seen, &question);
    let wanted = match wanted {
        Ok(wanted) => wanted,
        // Where this host cannot have it, that is the reason.
        Err(error) => match judged()? {
            diagnosis if diagnosis.verdict == Verdict::No => return refused_by(args, &diagnosis),
            _ => return Err(error),
        },
    };
    if !wanted.errors.is_empty() {
        for error in &wanted.errors {
            say!("error: {}: {error}", file.display());
        }
        bail!("{} cannot be applied; nothing was changed", file.display());
    }
    for warning in &wanted.warnings {
        say!("warning: {warning}");
    }
    for note in &wanted.by_hand {
        say!("note: not a setting, start it by hand: {note}");
    }
    let diagnosis = judged()?;
    diagnosis.warnings().for_each(|finding| say!("warning: {}", doctor::line(finding)));
    if args.dry_run {
        return dry_run(args, &name, &wanted, &diagnosis);
    }
    recover()?;
    if diagnosis.verdict == Verdict::No {
        return refused_by(args, &diagnosis);
    }
    let mut line = ProgressLine::new();
    let shown = file.display().to_string();
    let title = applied::Title { name: &name, file: &shown, by_hand: &wanted.by_hand };
    let result =
        applied::apply(&title, &wanted.settings, args.confirm_within, &mut |step, count, what| {
            line.line(&format!("[{}/{count}] {}", step + 1, what.setting));
        });
    line.clear();
    match result? {
        Ok(TransactionOutcome::Nothing) => {
            let text = format!("{name}: the host is as desired already; nothing was changed\n");
            report(args.json, "unchanged", &name, json!({}), &text)
        }
        Ok(TransactionOutcome::Done { .. }) => {
            let count = wanted.settings.len();
            let mut text = format!("{name}: applied, {count} {}\n", settings(count));
            if let Some(within) = args.confirm_within {
                text += &format!("taken back in {within} unless: timewire apply --confirm\n");
            }
            let within = args.confirm_within.map(|within| within.as_ns());
            report(args.json, "applied", &name, json!({"confirm_within_ns": within}), &text)
        }
        Err(failure) => failed(args, failure),
    }
}

/// Undoes what dead processes have left, and what nobody confirmed, and says so.
pub fn recover() -> anyhow::Result<()> {
    for found in timewire_host::recover()? {
        say!("note: {found}");
    }
    Ok(())
}

fn settings(count: usize) -> &'static str {
    if count == 1 { "setting" } else { "settings" }
}

fn report(
    is_json: bool,
    state: &str,
    name: &str,
    more: Json,
    text: &str,
) -> anyhow::Result<ExitCode> {
    if !is_json {
        return output::print(text);
    }
    let mut value = json!({"schema": "timewire.apply/1", "state": state, "name": name});
    if let (Some(value), Json::Object(more)) = (value.as_object_mut(), more) {
        value.extend(more);
    }
    output::json(&value)
}

/// Says what did not work; the exit code that it leads to.
fn failed(args: &Apply, failure: Failure) -> anyhow::Result<ExitCode> {
    match failure {
        Failure::Unread(error) => Err(error.into()),
        Failure::Refused(refusals) => refused(args, &refusals),
        Failure::Failed { at, why, left, reasons } => {
            if args.json {
                let value = json!({
                    "schema": "timewire.apply/1", "state": "failed", "at": at, "why": why,
                    "left": left, "reasons": reasons,
                });
                output::json(&value)?;
            }
            say!("error: {at} failed");
            say!("  why:  {why}");
            let lacks_kind = why.contains("kind is unknown");
            if lacks_kind {
                say!("  hint: this kernel lacks the queueing discipline");
            }
            let lacks = [
                "not supported",
                "Unknown device type",
                "does not support",
                "does not have a PTP clock",
            ];
            let is_unsupported = lacks_kind || lacks.iter().any(|words| why.contains(words));
            if why.contains("not permitted") || why.contains("Permission denied") {
                say!("  hint: needs CAP_NET_ADMIN (run as root)");
            }
            if left.is_empty() {
                say!("  host: as it was before");
                return Ok(ExitCode::from(if is_unsupported { 4 } else { 2 }));
            }
            left_changed(&left, &reasons)
        }
    }
}

fn refused(args: &Apply, refusals: &[Refusal]) -> anyhow::Result<ExitCode> {
    if args.json {
        let value = json!({
            "schema": "timewire.apply/1", "state": "refused", "refusals": refusals,
        });
        output::json(&value)?;
    }
    for refusal in refusals {
        say!("error: {refusal}");
    }
    say!("  host: unchanged");
    let unsupported = refusals.iter().all(|refusal| refusal.unsupported);
    Ok(ExitCode::from(if unsupported { 4 } else { 2 }))
}

fn left_changed(left: &[Difference], reasons: &[String]) -> anyhow::Result<ExitCode> {
    for reason in reasons {
        say!("error: {reason}");
    }
    for difference in left {
        say!("  left: {difference}");
    }
    let path = apply::store::Store::open()?.log_path();
    say!("  host: left changed; the journal is {}", path.display());
    Ok(ExitCode::from(3))
}

/// Says what is missing here, instead of doing anything.
fn refused_by(args: &Apply, diagnosis: &Diagnosis) -> anyhow::Result<ExitCode> {
    if args.json {
        let value = json!({
            "schema": "timewire.apply/1", "state": "refused", "refusals": [],
            "missing": diagnosis.missing().collect::<Vec<_>>(),
        });
        output::json(&value)?;
    }
    doctor::refuse(diagnosis, "unchanged", false)
}

fn dry_run(
    args: &Apply,
    name: &str,
    wanted: &DesiredState,
    diagnosis: &Diagnosis,
) -> anyhow::Result<ExitCode> {
    let shown = match apply::plan(&mut apply::RealHost, &wanted.settings) {
        Ok((_, plan)) if args.json => {
            let value = json!({
                "schema": "timewire.plan/1", "name": name, "steps": lines(&plan),
                "by_hand": wanted.by_hand, "warnings": wanted.warnings,
                "missing": diagnosis.missing().collect::<Vec<_>>(),
                "degraded": diagnosis.warnings().collect::<Vec<_>>(),
            });
            output::json(&value)
        }
        Ok((_, plan)) if plan.steps.is_empty() => {
            output::print("# the host is as desired already\n")
        }
        Ok((_, plan)) => {
            let notes = wanted.by_hand.iter().map(|note| format!("# by hand: {note}\n"));
            output::print(&format!("{plan}{}", notes.collect::<String>()))
        }
        Err(Failure::Refused(refusals)) => return refused(args, &refusals),
        Err(failure) => return failed(args, failure),
    }?;
    match diagnosis.verdict {
        Verdict::No => doctor::refuse(diagnosis, "unchanged", false),
        _ => Ok(shown),
    }
}

/// The steps with their commands as lines of a shell.
fn lines(plan: &Plan) -> Json {
    let step = |step: &apply::Step| {
        let lines = |commands: &[apply::Command]| {
            commands.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        json!({
            "setting": step.setting, "reason": step.reason, "from": step.from, "to": step.to,
            "commands": lines(&step.commands), "undo": lines(&step.undo),
        })
    };
    plan.steps.iter().map(step).collect()
}

fn confirm(is_json: bool) -> anyhow::Result<ExitCode> {
    recover()?;
    let saved = applied::confirm()?;
    let name = &saved.transaction.name;
    report(is_json, "confirmed", name, json!({}), &format!("{name}: it stays\n"))
}

/// What a file describes.
struct Read {
    name: String,
    /// Or why it cannot be made into settings.
    wanted: anyhow::Result<DesiredState>,
    /// The same as a question to the doctor, with the names that interfaces have here.
    question: Question,
    /// This host.
    seen: Box<Snapshot>,
}

/// Whether the slots of a station are asked for, and not its host settings: those name their
/// interfaces, and slots are for one that is named here.
fn is_for_slots(args: &Apply, path: &Path, nothing: &'static str) -> anyhow::Result<bool> {
    let (network, _) = input::read(path, FileKind::Network, nothing, file::without_streams)?;
    let has_host = network.base.stations.iter().any(|station| station.host.is_some());
    let is_one = matches!(args.interface.as_slice(), [one] if !one.contains('='));
    Ok(!has_host || is_one && network.base.schedule.is_some())
}

fn read(args: &Apply, file: &Path) -> anyhow::Result<Read> {
    let shown = file.to_string_lossy();
    let nothing = "nothing was changed";
    let text = input::text(file)?;
    let is_segment = FileKind::of(&text) == Some(FileKind::Segment);
    if is_segment && is_for_slots(args, file, nothing)? {
        let (scenario, _) = input::read(file, FileKind::Segment, nothing, file::with_slots)?;
        let Some(station) = &args.station else {
            bail!(
                "{shown} is {}: say --station and --interface for its slots, or write `host` of a \
                 station",
                FileKind::Segment
            );
        };
        input::station(&scenario, station)?;
        let interface = interface_of_station(args)?;
        let wanted = of_station(&interface, &scenario, station);
        let name = scenario.name.to_string();
        let by = Some(TransmitBackend::Taprio);
        let asked = StationAsked { scenario, station: station.clone(), interface, by };
        let question = Question::Station(Box::new(asked));
        let seen = Box::new(Snapshot::of_this_host(&[])?);
        return Ok(Read { name, wanted, question, seen });
    }
    let mut host = input::host_settings(file, args.station.as_ref(), nothing)?;
    let real = names(&args.interface, &host.host)?;
    let mut here = host.clone();
    let names = here.host.interfaces.iter_mut().flat_map(|desired| {
        let vlans = desired.vlans.iter_mut().filter_map(|vlan| vlan.name.as_mut());
        vlans.chain([&mut desired.name])
    });
    let clocks = here.host.clock.iter_mut().flat_map(|clock| &mut clock.interfaces);
    for name in names.chain(clocks) {
        if let Some(real) = real.get(name) {
            name.clone_from(real);
        }
    }
    let snapshot = Snapshot::of_this_host(&[])?;
    for taken in take_covering(&mut here.host, &snapshot) {
        say!("note: {taken}");
    }
    for (desired, taken) in host.host.interfaces.iter_mut().zip(&here.host.interfaces) {
        desired.timestamping.clone_from(&taken.timestamping);
    }
    let by_hand = match &args.station {
        Some(station) => format!("{shown} --station {station}"),
        None => shown.to_string(),
    };
    let wanted = apply::wanted(&host.host, &real, &by_hand);
    let (name, question) = (host.name(), Question::HostSettings(Box::new(here)));
    Ok(Read { name, wanted: Ok(wanted), question, seen: Box::new(snapshot) })
}

/// The names that interfaces of the file have on this host.
fn names(given: &[String], host: &DesiredHost) -> anyhow::Result<BTreeMap<IfName, IfName>> {
    let mut names = BTreeMap::new();
    let known = || -> String {
        let names: Vec<_> =
            host.interfaces.iter().map(|desired| desired.name.to_string()).collect();
        names.join(", ")
    };
    for pair in given {
        let (name, real) = match (pair.split_once('='), host.interfaces.as_slice()) {
            (Some((name, real)), _) => (IfName::new(name)?, IfName::new(real)?),
            (None, [one]) => (one.name.clone(), IfName::new(pair)?),
            (None, _) => bail!("--interface {pair}: the file has {}; say NAME={pair}", known()),
        };
        if !host.interfaces.iter().any(|desired| desired.name == name) {
            bail!("--interface {pair}: the file has no interface {name}; it has {}", known());
        }
        if names.insert(name.clone(), real).is_some() {
            bail!("--interface {name} is there twice");
        }
    }
    Ok(names)
}

/// The interface to the segment.
fn interface_of_station(args: &Apply) -> anyhow::Result<IfName> {
    let [interface] = args.interface.as_slice() else {
        bail!("the slots of a station need one --interface, the one to the segment");
    };
    let real = interface.split_once('=').map_or(interface.as_str(), |(_, real)| real);
    Ok(IfName::new(real)?)
}

/// The gates of one station, on one interface.
fn of_station(
    interface: &IfName,
    scenario: &Scenario,
    station: &StationName,
) -> anyhow::Result<DesiredState> {
    let port = TdmPort { stated: stated_rate(interface)?, ..TdmPort::virtual_of(scenario) };
    let tree = QdiscTree::of_station(interface, &scenario.schedule, station, &port)?;
    let mut wanted = DesiredState::default();
    wanted.tree(interface, &tree);
    Ok(wanted)
}

/// The rate that an interface states, from which taprio computes how long a frame lasts: 10 Mbit/s
/// when it states none, and 10 Gbit/s of a virtual pair.
fn stated_rate(interface: &IfName) -> anyhow::Result<BitsPerSecond> {
    let speed = fs::read_to_string(format!("/sys/class/net/{interface}/speed"));
    let mbit = speed.ok().and_then(|text| text.trim().parse::<u64>().ok()).filter(|mbit| *mbit > 0);
    let rate = BitsPerSecond::new(mbit.unwrap_or(10).saturating_mul(1_000_000));
    rate.with_context(|| format!("{interface} states no rate that can be"))
}

/// What classes with credit carry behind gates, as the interfaces of a record are now.
fn gated_credit(status: &applied::Status) -> Vec<(&IfName, GatedCredit)> {
    let trees = status.settings.iter().filter_map(|(Difference { setting, is, .. }, _)| {
        let apply::Value::Qdiscs(tree) = is else { return None };
        Some((setting.interface()?, tree.gated_credit()))
    });
    trees.flat_map(|(name, gated)| gated.into_iter().map(move |one| (name, one))).collect()
}

pub fn status(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    let status = applied::status()?;
    let drifted = status.settings.iter().filter(|(_, state)| *state != State::Applied).count();
    let code = ExitCode::from(u8::from(drifted > 0 || status.rebooted));
    let gated = gated_credit(&status);
    if args.json {
        let settings: Vec<Json> = status
            .settings
            .iter()
            .map(|(difference, state)| {
                json!({
                    "setting": difference.setting, "state": state, "applied": difference.was,
                    "now": difference.is,
                })
            })
            .collect();
        let record = status.saved.as_ref().map(|saved| {
            json!({
                "name": saved.transaction.name, "file": saved.transaction.file,
                "journal": saved.path,
                "complete": saved.transaction.undo_log.after.is_some(),
                "waits_for_confirmation": status.waits,
                "by_hand": saved.transaction.by_hand, "left": saved.transaction.undo_log.left,
            })
        });
        let value = json!({
            "schema": "timewire.status/1", "applied": record, "rebooted": status.rebooted,
            "settings": settings, "last": status.ending,
            "gated_credit": gated.iter().map(|(interface, gated)| {
                let mut value = json!(gated);
                value["interface"] = json!(interface);
                value
            }).collect::<Vec<_>>(),
        });
        output::json(&value)?;
        return Ok(code);
    }
    let Some(saved) = &status.saved else {
        let mut text = "nothing is applied\n".to_owned();
        if let Some(ending) = &status.ending {
            text += &format!("last: {}: {}\n", ending.name, ending.how);
        }
        if timewire_sys::namespace::effective_user() != 0 {
            say!("note: only root sees what root has applied");
        }
        return output::print(&text);
    };
    let mut text = format!("{} (from {})\n", saved.transaction.name, saved.transaction.file);
    if status.rebooted {
        text += "the host was started again since, or this network is another of the same number: \
                 its settings are gone; `timewire undo` forgets them\n";
    } else if !saved.transaction.undo_log.left.is_empty() {
        text += "not wholly taken back; `timewire undo` tries again\n";
    } else if saved.transaction.undo_log.after.is_none() {
        text += "not complete: it is being applied, or its process died; `timewire undo` takes it \
                 back\n";
    } else if status.waits {
        text += "waits for: timewire apply --confirm\n";
    }
    for (Difference { setting, was, is }, state) in &status.settings {
        text += &match state {
            State::Applied => format!("  applied  {setting}: {was}\n"),
            State::Undone | State::Drifted => {
                let (was, is) = was.differing(is);
                let word = if *state == State::Undone { "undone " } else { "drifted" };
                format!("  {word}  {setting}: {is}, not {was}\n")
            }
        };
    }
    for (interface, gated) in &gated {
        text += &format!("  credit   {interface} {gated}\n");
    }
    for note in &saved.transaction.by_hand {
        text += &format!("  by hand  {note}\n");
    }
    output::print(&text)?;
    Ok(code)
}

pub fn undo(args: &Undo) -> anyhow::Result<ExitCode> {
    match applied::undo(args.force)? {
        applied::Undoing::Nothing => {
            report(args.json, "nothing", "", json!({}), "nothing is applied\n")
        }
        applied::Undoing::Rebooted { saved, differences } => {
            let name = &saved.transaction.name;
            let mut text = format!(
                "{name}: the host was started again since, or this network is another of the same \
                 number, so its settings are gone; nothing was changed\n"
            );
            for difference in &differences {
                text += &format!("  not as before: {difference}\n");
            }
            report(args.json, "rebooted", name, json!({"differences": differences}), &text)?;
            Ok(ExitCode::from(u8::from(!differences.is_empty())))
        }
        applied::Undoing::Done { saved, undone } => {
            let name = &saved.transaction.name;
            let text = format!("{name}: undone\n");
            let more = json!({
                "restored": undone.restored, "left": undone.left, "reasons": undone.reasons,
            });
            if undone.left.is_empty() {
                return report(args.json, "undone", name, more, &text);
            }
            if args.json {
                report(true, "left", name, more, "")?;
            }
            left_changed(&undone.left, &undone.reasons)
        }
    }
}
