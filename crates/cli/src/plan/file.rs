// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `plan FILE`: what there is beside the plan when the network comes from a file of our own: bounds
//! for streams that are not scheduled, settings for Linux, a simulation.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::{Value, json};
use timewire_base::{Span, Verdict};
use timewire_model::scenario::network::NetworkFile;
use timewire_model::unread::Unread;
use timewire_plan::exchange::{Uni, read_uni};
use timewire_plan::file::{self, FileProblem, FileUnread, Held, RestBound, Unbounded, UniPlaced};
use timewire_plan::model::{Plan, Problem};
use timewire_plan::words;
use timewire_tsn::file::without_streams;

use super::PlanArgs;
use crate::ending::{Ending, WORDS};
use crate::new_file::NewFile;
use crate::sim;

/// The format of one stream alone as JSON.
pub(super) const STREAM_SCHEMA: &str = "timewire.planned-stream/1";

/// A file of a network and its problem.
pub struct OwnFile {
    file: NetworkFile,
    given: FileProblem,
    asked: Option<(Uni, UniPlaced)>,
    /// What of the request was not interpreted.
    unread: Vec<FileUnread>,
    /// Where the files are that it names.
    beside: PathBuf,
}

/// What is known besides the plan.
pub struct More {
    /// Streams that are not scheduled.
    rest: Vec<String>,
    bounds: Result<Vec<RestBound>, Unbounded>,
    simulated: Option<sim::Report>,
    /// No stream was left to simulate.
    is_empty: bool,
    /// With the clocks of neighbours as far apart as `sync_error` allows, one way and the other.
    apart: Vec<sim::Report>,
    sync_error: Span,
    /// Clocks that can be further off than that allows.
    beyond: Vec<(String, Span)>,
    written: usize,
    asked: Vec<Asked>,
    /// What of the request was not interpreted.
    unread: Vec<FileUnread>,
    gated: Vec<file::GatedClass>,
    /// Why the plan is nothing that Linux takes.
    unrendered: Option<file::RenderError>,
    /// What the file asks of streams that are not scheduled.
    limits: Vec<file::JudgedLimit>,
}

/// What became of a stream that users asked for.
struct Asked {
    id: String,
    name: String,
    code: u8,
    why: Option<String>,
    /// A file cannot express it, so the simulator did not see it.
    unseen: bool,
}

impl OwnFile {
    pub fn read(
        path: &Path,
        case: Option<&str>,
        streams: Option<&Path>,
    ) -> anyhow::Result<OwnFile> {
        let beside = sim::directory_of(path).to_owned();
        let Some(streams) = streams else {
            let (file, _) = sim::read(path, "nothing was planned", case)?;
            let given = file::problem(&file)
                .with_context(|| format!("{} cannot be planned", path.display()))?;
            return Ok(OwnFile { file, given, asked: None, unread: Vec::new(), beside });
        };
        let (file, _) = sim::read_as(path, "nothing was planned", case, without_streams)?;
        let name = streams.to_string_lossy();
        let bytes = fs::read(streams).with_context(|| format!("cannot read {name}"))?;
        let uni = read_uni(&name, &bytes)?;
        let placed = file::with_uni(&file, &uni)
            .with_context(|| format!("{name} does not fit to {}", path.display()))?;
        let (file, given) = (placed.file.clone(), placed.given.clone());
        let named = |unread: &Unread| FileUnread { file: name.to_string(), unread: unread.clone() };
        let unread = uni.unread.iter().map(named).collect();
        Ok(OwnFile { file, given, asked: Some((uni, placed)), unread, beside })
    }

    /// The answer to those who asked for streams.
    pub fn status(&self, plan: &Plan) -> Option<String> {
        let (uni, placed) = self.asked.as_ref()?;
        Some(format!("{:#}\n", placed.status(uni, plan)))
    }

    fn asked(&self, plan: &Plan) -> Vec<Asked> {
        let Some((uni, placed)) = &self.asked else { return Vec::new() };
        let each = uni.streams.iter().zip(&placed.placed).enumerate();
        let refusals = words::Refusals::of(&self.given.problem);
        each.map(|(index, (stream, place))| {
            let refused = |id| plan.refused.iter().find(|refusal| refusal.stream == id);
            let (why, unseen) = match place {
                Err(refusal) => (Some(refusal.why.clone()), true),
                Ok(id) => {
                    let why = refused(*id).map(|it| refusals.text(it));
                    (why, self.given.streams[id.index()].is_none())
                }
            };
            let (id, name) = (stream.id.clone(), file::uni_name(&stream.id));
            Asked { id, name, code: placed.code(plan, index), why, unseen }
        })
        .collect()
    }

    /// What contradicts the streams in configurations of the nodes.
    pub fn hold(
        &self,
        files: &[(String, Vec<u8>)],
        go_on: &mut dyn FnMut() -> bool,
    ) -> anyhow::Result<Held> {
        Ok(file::hold(&self.file, &self.given, files, go_on)?)
    }

    /// The name of the network.
    pub fn name(&self) -> &str {
        self.file.name.as_str()
    }

    pub fn problem(&self) -> Problem {
        self.given.problem.clone()
    }

    pub fn is_not_scheduled(&self, name: &str) -> bool {
        let mut streams = self.file.streams.iter();
        streams.any(|stream| stream.name.as_str() == name && !stream.scheduled)
    }

    /// Bounds the rest; writes and simulates what is asked for.
    pub fn finish(&self, plan: &Plan, args: &PlanArgs, ending: &Ending) -> anyhow::Result<More> {
        let rest = self.file.streams.iter().filter(|stream| !stream.scheduled);
        let bounds = file::bounds(&self.file, &self.given, plan);
        let limits = file::judged_limits(&self.file, bounds.as_deref());
        let mut more = More {
            rest: rest.map(|stream| stream.name.to_string()).collect(),
            bounds,
            simulated: None,
            is_empty: false,
            apart: Vec::new(),
            sync_error: self.file.sync_error,
            beyond: file::clocks_beyond(&self.file)
                .into_iter()
                .filter(|_| !plan.admitted.is_empty())
                .map(|(name, wrong)| (name.to_string(), wrong))
                .collect(),
            written: 0,
            asked: self.asked(plan),
            unread: self.unread.clone(),
            gated: Vec::new(),
            limits,
            unrendered: file::unrendered(&self.file, &self.given, plan),
        };
        let planned = || {
            let planned = file::planned(&self.file, &self.given, plan);
            planned.map_err(|errors| anyhow::anyhow!("the plan makes no network:\n{errors}"))
        };
        // Behind the gates of the plan, where there are some; of a large network only when asked.
        if self.file.ports.iter().any(|port| !port.cbs.is_empty()) {
            more.gated = match planned() {
                Ok(planned) => file::gated_classes(&planned),
                Err(_) => file::gated_classes(&self.file),
            };
        }
        if let Some(dir) = &args.render {
            anyhow::ensure!(
                !plan.admitted.is_empty(),
                "no stream is admitted, so nothing was written; without --render the \
                 reasons are shown"
            );
            let mut go_on = || !ending.is_asked_anew();
            let rendered = file::render_while(&self.file, &self.given, plan, &mut go_on);
            let mut files = match rendered {
                Err(file::RenderError::Ended) => {
                    anyhow::bail!("{WORDS}; nothing was written to {}", dir.display())
                }
                other => {
                    other.context("the plan is nothing that Linux takes; nothing was rendered")?
                }
            };
            files.push(file::Rendered {
                name: "planned.network.json".to_owned(),
                text: format!("{:#}\n", planned()?.to_json()),
            });
            write(dir, &files, args.force)?;
            more.written = files.len();
        }
        if args.simulate {
            let planned = planned()?;
            more.is_empty = planned.streams.is_empty();
            if !more.is_empty {
                more.simulated = Some(sim::simulate(&planned, &self.beside, ending)?);
                for apart in planned.with_clocks_apart() {
                    more.apart.push(sim::simulate(&apart, &self.beside, ending)?);
                }
            }
        }
        Ok(more)
    }
}

/// **Errors**: something is there that would be written over.
pub fn check_directory(dir: &Path, force: bool) -> anyhow::Result<()> {
    anyhow::ensure!(dir.is_dir() || !dir.exists(), "{} is no directory", dir.display());
    let is_free = fs::read_dir(dir).map_or(!dir.exists(), |mut files| files.next().is_none());
    anyhow::ensure!(
        force || is_free,
        "{} is there and not empty; --force writes into it",
        dir.display()
    );
    Ok(())
}

fn write(dir: &Path, files: &[file::Rendered], force: bool) -> anyhow::Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    for file in files {
        let mut new = NewFile::create(&dir.join(&file.name), force)?;
        new.write_all(file.text.as_bytes())?;
        new.finish()?;
    }
    Ok(())
}

impl More {
    /// Whether the simulation was ended on request.
    pub fn is_cut(&self) -> bool {
        self.simulated.iter().chain(&self.apart).any(sim::Report::is_cut)
    }

    pub fn is_good(&self) -> bool {
        let asked = self.asked.iter().all(|asked| asked.code == 0);
        let simulated = self.simulated.iter().chain(&self.apart).all(sim::Report::is_good);
        let limits = self.limits.iter().all(|it| it.verdict == Verdict::Pass);
        asked && simulated && limits && self.unread.is_empty()
    }

    fn bound(&self, index: usize) -> Result<(Span, Span), &Unbounded> {
        match &self.bounds {
            Ok(bounds) => bounds[index].bound.as_ref().copied(),
            Err(why) => Err(why),
        }
    }

    fn line(&self, index: usize) -> String {
        let name = &self.rest[index];
        match self.bound(index) {
            Ok((latency, jitter)) => {
                format!("{name}: latency at most {latency}, which differs by at most {jitter}")
            }
            Err(why) => format!("{name}: no bound: {why}"),
        }
    }

    fn json(&self, index: usize) -> Value {
        let bound = self.bound(index);
        json!({
            "name": self.rest[index],
            "latency_max_ns": bound.ok().map(|bound| bound.0),
            "jitter_max_ns": bound.ok().map(|bound| bound.1),
            "why": bound.err(),
        })
    }

    /// One stream that is not scheduled.
    pub fn explained(&self, name: &str, json: bool) -> Option<String> {
        let index = self.rest.iter().position(|own| own == name)?;
        Some(match json {
            true => {
                let mut value = self.json(index);
                value["schema"] = json!(STREAM_SCHEMA);
                format!("{value:#}\n")
            }
            false => format!("{}\n", self.line(index)),
        })
    }

    pub fn text(&self) -> String {
        let mut text = String::new();
        if !self.asked.is_empty() {
            let served = self.asked.iter().filter(|asked| asked.code == 0).count();
            let _ = writeln!(text, "asked for: {served} of {} streams", self.asked.len());
        }
        for asked in self.asked.iter().filter(|asked| asked.code != 0) {
            let why = asked.why.as_deref().unwrap_or_default();
            let _ = writeln!(text, "  {} ({}): code {}: {why}", asked.id, asked.name, asked.code);
        }
        for unread in &self.unread {
            let _ = writeln!(text, "not interpreted: {unread}");
        }
        for (name, wrong) in &self.beyond {
            let allowed = Span::from_ns(self.sync_error.as_ns() / 2);
            let _ = writeln!(
                text,
                "clock of {name}: it can be {wrong} off, and with a sync_error of {} a plan allows \
                 {allowed}: frames can miss their windows",
                self.sync_error
            );
        }
        if !self.unread.is_empty() {
            text.push_str("INCONCLUSIVE: what was not interpreted may ask for more\n");
        }
        match &self.bounds {
            // One cause takes all bounds away, and is told once.
            Err(why) if self.rest.len() > 1 => {
                let _ = writeln!(text, "not scheduled, and no bound for any of them: {why}");
                let _ = writeln!(text, "  {}", self.rest.join(", "));
            }
            _ => {
                if !self.rest.is_empty() {
                    text.push_str("not scheduled:\n");
                }
                for index in 0..self.rest.len() {
                    let _ = writeln!(text, "  {}", self.line(index));
                }
            }
        }
        for limit in &self.limits {
            let _ = writeln!(text, "  {}", limit.text());
        }
        // What was simulated tells the same.
        if self.simulated.is_none() {
            text.push_str(&file::gated_text(&self.gated));
        }
        if let Some(why) = &self.unrendered {
            let _ = writeln!(text, "no --render: {why}");
        }
        if self.written > 0 {
            let _ = writeln!(text, "{} files written", self.written);
        }
        if self.is_empty {
            text.push_str("not simulated: no stream is left that can be\n");
        }
        if let Some(report) = &self.simulated {
            let _ = write!(text, "\nsimulated:\n{}", report.table());
            let ways = ["apart", "apart, the other way round"];
            let moving = ["apart, and moving to the other side", "apart, and moving back"];
            for (apart, which) in self.apart.iter().zip(ways.iter().chain(&moving)) {
                let (error, limits) = (self.sync_error, apart.limits_in_short());
                let _ = write!(text, "clocks of neighbours {error} {which}: {limits}");
            }
            let unseen = self.asked.iter().filter(|it| it.code == 0 && it.unseen).count();
            if unseen > 0 {
                let _ = writeln!(
                    text,
                    "not simulated: {unseen} streams with several listeners or trees"
                );
            }
        }
        text
    }

    pub fn simulated(&self) -> Option<&sim::Report> {
        self.simulated.as_ref()
    }

    /// With clocks of neighbours apart.
    pub fn apart(&self) -> &[sim::Report] {
        &self.apart
    }

    /// Clocks that can be further off than `sync_error` allows.
    pub fn clocks_beyond(&self) -> impl Iterator<Item = Value> + '_ {
        self.beyond.iter().map(|(name, off)| json!({"node": name, "off_ns": off}))
    }

    /// Classes with credit behind gates.
    pub fn gated(&self) -> &[file::GatedClass] {
        &self.gated
    }

    /// Why the plan is nothing that Linux takes.
    pub fn unrendered(&self) -> Option<String> {
        self.unrendered.as_ref().map(ToString::to_string)
    }

    /// What the file asks of streams that are not scheduled.
    pub fn limits(&self) -> &[file::JudgedLimit] {
        &self.limits
    }

    pub fn is_asked(&self) -> bool {
        !self.asked.is_empty()
    }

    /// Streams that are not scheduled.
    pub fn rest_json(&self) -> impl Iterator<Item = Value> + '_ {
        (0..self.rest.len()).map(|index| self.json(index))
    }

    /// What was read of the users' file and not interpreted.
    pub fn not_interpreted(&self) -> &[FileUnread] {
        &self.unread
    }

    /// Streams that users asked for.
    pub fn asked_json(&self) -> impl Iterator<Item = Value> + '_ {
        self.asked.iter().map(|it| {
            json!({
                "stream_id": it.id,
                "name": it.name,
                "failure_code": it.code,
                "why": it.why,
                "in_simulation": self.simulated.is_some() && it.code == 0 && !it.unseen,
            })
        })
    }
}
