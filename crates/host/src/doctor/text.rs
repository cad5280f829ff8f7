// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A judgement for people to read.

use std::fmt::{self, Write};

use super::finding::{Diagnosis, Finding, RunSite, State, Subject, Verdict};

/// As text, with a final newline. With `all`, what is well is told line by line.
pub fn text(diagnosis: &Diagnosis, all: bool) -> String {
    let mut text = String::new();
    write_all(&mut text, diagnosis, all).expect("invariant: a string takes any text");
    text
}

fn write_all(to: &mut String, diagnosis: &Diagnosis, all: bool) -> fmt::Result {
    writeln!(to, "{}", subject(&diagnosis.subject))?;
    let judged = !matches!(diagnosis.subject, Subject::Host | Subject::Interface { .. });
    let verdict = match (diagnosis.verdict, judged) {
        (Verdict::Yes, true) => "it can run here",
        (Verdict::YesBut, true) => "it can run here, with what is said below",
        (Verdict::No, true) => "it cannot run here: what is missing is below",
        (Verdict::Yes, false) => "all is well",
        (Verdict::YesBut, false) => "it could be better: see below",
        (Verdict::No, false) => "something is missing: see below",
    };
    writeln!(to, "  {verdict}")?;
    let accuracy = &diagnosis.accuracy;
    let allowance = match accuracy.allowance {
        Some(allowance) => format!("a schedule has to allow for {allowance}"),
        None => "no schedule can allow for it".to_owned(),
    };
    writeln!(to, "  accuracy  {}: {}", accuracy.class.word(), accuracy.meaning)?;
    writeln!(to, "            {allowance}; dominated by {}", accuracy.dominated_by)?;
    if !diagnosis.backends.is_empty() {
        let backend = diagnosis.backend.map_or("none", super::finding::BackendVariant::word);
        writeln!(to, "  backend   {backend}")?;
        for variant in &diagnosis.backends {
            let mark = match variant.possible {
                true if Some(variant.backend) == diagnosis.backend => "taken",
                true => "possible",
                false => "no",
            };
            writeln!(to, "    {mark:<9} {:<18} {}", variant.backend.word(), variant.why)?;
        }
    }
    for state in [State::Missing, State::Degraded] {
        section(to, diagnosis, state)?;
    }
    for state in [State::Ok, State::NotAsked] {
        if all {
            section(to, diagnosis, state)?;
        } else {
            summary(to, diagnosis, state)?;
        }
    }
    Ok(())
}

fn subject(subject: &Subject) -> String {
    match subject {
        Subject::Host => "this host".to_owned(),
        Subject::Interface { name } => format!("interface {name}"),
        Subject::HostSettings { name } => format!("host settings {name}"),
        Subject::Scenario { name, place: RunSite::Laboratory { this_host } } => {
            format!("scenario {name}, in the local laboratory (to judge this host: {this_host})")
        }
        Subject::Scenario { name, place: RunSite::Station { station, interface } } => {
            format!("scenario {name}, this host as {station} on {interface}")
        }
    }
}

fn of_state(diagnosis: &Diagnosis, state: State) -> impl Iterator<Item = &Finding> {
    diagnosis.findings.iter().filter(move |finding| finding.state == state)
}

fn section(to: &mut String, diagnosis: &Diagnosis, state: State) -> fmt::Result {
    let mut findings = of_state(diagnosis, state).peekable();
    if findings.peek().is_some() {
        writeln!(to, "{}", state.word())?;
    }
    for finding in findings {
        let about = finding.interface.as_ref().map(|name| format!(" {name}")).unwrap_or_default();
        let by = finding.needed_by.as_ref().map(|by| format!(", for {by}")).unwrap_or_default();
        writeln!(to, "  {}{about}{by}: {}", finding.id, finding.found)?;
        if !finding.why.is_empty() && state != State::NotAsked {
            writeln!(to, "      why:  {}", finding.why)?;
        }
        for mend in &finding.mend {
            writeln!(to, "      mend: {mend}")?;
        }
    }
    Ok(())
}

fn summary(to: &mut String, diagnosis: &Diagnosis, state: State) -> fmt::Result {
    let ids = of_state(diagnosis, state).map(|finding| match &finding.interface {
        Some(name) => format!("{} {name}", finding.id),
        None => finding.id.to_string(),
    });
    let ids: Vec<_> = ids.collect();
    if ids.is_empty() {
        return Ok(());
    }
    write!(to, "{}", state.word())?;
    let mut column = usize::MAX;
    for (i, id) in ids.iter().enumerate() {
        let comma = if i + 1 < ids.len() { "," } else { "" };
        if column.saturating_add(id.len() + 2) > WIDTH {
            write!(to, "\n ")?;
            column = 1;
        }
        write!(to, " {id}{comma}")?;
        column += id.len() + 2;
    }
    writeln!(to)
}

/// A line of names is at most so long.
const WIDTH: usize = 96;
