// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `timewire group`: trees of scheduling groups.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::bail;
use clap::{Args, Subcommand};
use serde_json::{Value as Json, json};
use timewire_base::{Span, parse_span};
use timewire_datapath::groups::{self, GroupRequest, GroupResponse, Groups};
use timewire_host::groups::{Kept, MemberStatus, ModelStatus, RowStatus};

use crate::ending::Ending;
use crate::input::SettingsFile;
use crate::output;

/// What is done with groups.
#[derive(Debug, Subcommand)]
pub enum GroupCommand {
    /// Show what is asked of this host for the groups of a file; changes nothing
    ///
    /// Exit code 2: the file is wrong, or this host cannot do it.
    Check(File),
    /// Put the groups of a file in force until ended, in the foreground
    ///
    /// Members get back what they had when it ends, also when it is killed.
    Start(SettingsFile),
    /// Show the groups in force, with what their members did
    Show(Show),
    /// Put the groups of another file in force: all members change, or none
    Switch(SettingsFile),
    /// Put a running process into a group
    Add(Add),
    /// Take a process out of its group and give it back what it had
    Remove {
        /// The process, as it was added or written in the file
        pid: u32,
    },
    /// End, and give all members back what they had
    Stop,
}

#[derive(Debug, Args)]
pub struct File {
    #[command(flatten)]
    pub of: SettingsFile,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Show {
    /// Print JSON, with --watch one object a line
    #[arg(long)]
    pub json: bool,
    /// Show again every second, with what was done since, until ended
    #[arg(long)]
    pub watch: bool,
}

#[derive(Debug, Args)]
pub struct Add {
    /// The group's name
    pub group: String,
    /// The process
    pub pid: u32,
    /// In a `priority` group: its number, lower goes first
    #[arg(long)]
    pub priority: Option<u32>,
    /// In a `tdm` group: start of its window in the cycle
    #[arg(long, value_parser = parse_span)]
    pub offset: Option<Span>,
    /// In a `tdm` group: length of its window
    #[arg(long, value_parser = parse_span)]
    pub length: Option<Span>,
    /// In a `deadline` group: its time of a processor in each period
    #[arg(long, value_parser = parse_span)]
    pub runtime: Option<Span>,
    /// In a `deadline` group: by when it has had it [default: the period]
    #[arg(long, value_parser = parse_span)]
    pub deadline: Option<Span>,
    /// In a `deadline` group: the period
    #[arg(long, value_parser = parse_span)]
    pub period: Option<Span>,
}

/// Carries a command out.
pub fn run(command: GroupCommand) -> anyhow::Result<ExitCode> {
    match command {
        GroupCommand::Check(args) => check(&args),
        GroupCommand::Start(of) => start(&of),
        GroupCommand::Show(args) if args.watch => watch(&args),
        GroupCommand::Show(args) => {
            let status = status()?;
            if args.json {
                return output::json(&status);
            }
            output::print(&describe(&status, None))
        }
        GroupCommand::Switch(of) => {
            let file = serde_json::to_value(of.read()?)?;
            done(&GroupRequest::Switch { file })
        }
        GroupCommand::Add(args) => {
            let member = member(&args);
            done(&GroupRequest::Add { group: args.group, member })
        }
        GroupCommand::Remove { pid } => done(&GroupRequest::Remove { pid }),
        GroupCommand::Stop => done(&GroupRequest::Stop),
    }
}

fn check(args: &File) -> anyhow::Result<ExitCode> {
    let plan = groups::plan(&args.of.read()?)?;
    if args.json { output::json(&plan.report()) } else { output::print(&plan.to_string()) }
}

fn start(of: &SettingsFile) -> anyhow::Result<ExitCode> {
    let file = of.read()?;
    crate::apply::recover()?;
    let groups = Groups::start(file)?;
    say_text!("{}", describe(&groups.status(), None));
    groups.serve()?;
    Ok(ExitCode::SUCCESS)
}

fn member(args: &Add) -> Json {
    let mut member = json!({"is": {"kind": "process", "pid": args.pid}});
    if let Some(priority) = args.priority {
        member["priority"] = json!(priority);
    }
    let times = [
        ("offset", args.offset),
        ("length", args.length),
        ("runtime", args.runtime),
        ("deadline", args.deadline),
        ("period", args.period),
    ];
    for (key, span) in times {
        if let Some(span) = span {
            member[key] = json!(span.to_string());
        }
    }
    member
}

fn done(request: &GroupRequest) -> anyhow::Result<ExitCode> {
    match groups::ask(request)? {
        GroupResponse::LeftChanged { message } => {
            say!("error: {message}");
            Ok(ExitCode::from(3))
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}

fn status() -> anyhow::Result<ModelStatus> {
    match groups::ask(&GroupRequest::Show)? {
        GroupResponse::Status { status } => Ok(*status),
        other => bail!("something else than the state of the groups was answered: {other:?}"),
    }
}

fn watch(args: &Show) -> anyhow::Result<ExitCode> {
    let ending = Ending::new()?;
    let mut before: Option<ModelStatus> = None;
    loop {
        let now = status()?;
        if args.json {
            output::json_line(&now)?;
        } else {
            let clear = if output::wants_colour() { "\x1b[H\x1b[2J" } else { "" };
            output::print(&format!("{clear}{}", describe(&now, before.as_ref())))?;
        }
        before = Some(now);
        if ending.rest(Span::from_secs(1)) {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

/// The tree; with a status from before, what was done since.
fn describe(status: &ModelStatus, before: Option<&ModelStatus>) -> String {
    let mut text = format!("groups, kept by process {}\n", status.pid);
    let _ = writeln!(text, "  members are followed by {}", status.follow);
    let _ = writeln!(text, "  clock: {}", status.clock);
    for note in &status.notes {
        let _ = writeln!(text, "  note: {note}");
    }
    let _ = writeln!(
        text,
        "  {:<38} {:<22} {:>7} {:>11} {:>11} {:>10} {:>9}",
        if before.is_some() { "since the last look" } else { "" },
        "scheduling",
        "threads",
        "ran",
        "waited",
        "mean wait",
        "switches"
    );
    for (index, row) in status.rows.iter().enumerate() {
        match row {
            RowStatus::Group { group } => describe_group(&mut text, group),
            RowStatus::Member(member) => {
                let last = before.and_then(|before| match before.rows.get(index) {
                    Some(RowStatus::Member(last)) if last.asked == member.asked => Some(&**last),
                    _ => None,
                });
                describe_member(&mut text, member, last);
            }
        }
    }
    text
}

fn indent(row: &Json) -> String {
    let depth = row["depth"].as_u64().and_then(|depth| usize::try_from(depth).ok()).unwrap_or(0);
    "  ".repeat(depth + 1)
}

fn describe_group(text: &mut String, group: &Json) {
    let word = |key: &str| group[key].as_str().unwrap_or_default();
    let _ = writeln!(text, "{}{} ({})", indent(group), word("name"), word("policy"));
}

fn describe_member(text: &mut String, member: &MemberStatus, last: Option<&MemberStatus>) {
    let asked = &member.asked;
    let word = |key: &str| asked[key].as_str().unwrap_or_default().to_owned();
    let scheduling = match (&asked["priority"], &asked["reservation_ns"]) {
        (Json::Number(priority), _) => format!("{} {priority}", word("policy")),
        (_, Json::Array(parts)) => {
            let spans = parts.iter().filter_map(Json::as_i64).map(Span::from_ns);
            let spans: Vec<String> = spans.map(|span| span.to_string()).collect();
            format!("deadline {}", spans.join("/"))
        }
        _ => word("policy"),
    };
    // Threads that have ended take what they did with them, so a sum can become smaller.
    let since = |of: fn(&MemberStatus) -> Option<u64>| {
        let now = of(member)?;
        Some(now.saturating_sub(last.and_then(of).unwrap_or(0)))
    };
    let (run, wait, slices) = (since(|m| m.run_ns), since(|m| m.wait_ns), since(|m| m.slices));
    let mean = wait.zip(slices).and_then(|(wait, slices)| wait.checked_div(slices));
    let _ = writeln!(
        text,
        "{:<40} {scheduling:<22} {:>7} {:>11} {:>11} {:>10} {:>9}",
        format!("{}{}", indent(asked), word("member")),
        if member.threads > 0 {
            member.threads.to_string()
        } else if word("member").starts_with("interrupts") {
            // They may have none and be served all the same.
            "none".to_owned()
        } else {
            "ended".to_owned()
        },
        time(run),
        time(wait),
        time(mean),
        since(|m| Some(m.switches)).unwrap_or(0),
    );
    if let Some(kept) = &member.kept {
        let _ = writeln!(text, "{}  {}", indent(asked), windows(kept));
    }
}

fn windows(kept: &Kept) -> String {
    let ns = |ns: i64| time(u64::try_from(ns).ok());
    let mean = |sum: i64| match i64::try_from(kept.edges) {
        Ok(edges) if edges > 0 => ns(sum / edges),
        _ => "-".to_owned(),
    };
    format!(
        "windows {}, missed {}, late {} of {}: mean {} (wake-up {}), opening at most {}, closing \
         at most {} (wake-up {}); not stopped in time {}",
        kept.opened,
        kept.missed,
        kept.late,
        kept.edges,
        mean(kept.late_sum_ns),
        mean(kept.wake_late_sum_ns),
        ns(kept.open_late_max_ns),
        ns(kept.close_late_max_ns),
        ns(kept.wake_late_max_ns),
        kept.not_stopped,
    )
}

/// Rounded to three digits or so; a dash for what the kernel does not count.
fn time(ns: Option<u64>) -> String {
    let Some(ns) = ns else { return "-".to_owned() };
    match ns {
        0..10_000 => format!("{ns}ns"),
        10_000..10_000_000 => format!("{}us", ns / 1_000),
        10_000_000..10_000_000_000 => format!("{}ms", ns / 1_000_000),
        _ => format!("{}s", ns / 1_000_000_000),
    }
}
