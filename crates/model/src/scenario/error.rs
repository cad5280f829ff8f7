// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is wrong with a file, and how it is printed: file, line, column, key, what was read,
//! what would be right, and the line itself with a mark under the place.

use std::fmt;

use serde::Serialize;

use super::include::{Part, parts};

/// Everything that is wrong with a file, in the order of the file; never empty.
///
/// Prints one block per error and a last line with their number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ScenarioErrors {
    /// The file, as it was named.
    pub file: String,
    /// The errors, at most [`ScenarioErrors::MAX_SHOWN`].
    pub errors: Vec<ScenarioError>,
    /// How many more there are.
    pub not_shown: usize,
}

/// One thing that is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ScenarioError {
    /// The file that it is in: this one, or one that is included.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column, from 1, in characters.
    pub column: usize,
    /// The key, as in `schedule.slots[1].transmit`; empty for the whole file.
    pub key: String,
    /// What was read, why it is wrong and what would be right.
    pub message: String,
    /// What to do or look at; empty when there is nothing to add.
    pub hint: String,
    /// The line of the file, cut when it is long.
    pub source: String,
    /// How many characters before the marked ones in `source`.
    pub mark_start: usize,
    /// How many characters are marked.
    pub mark_width: usize,
}

/// A place in the text.
///
/// **Units**: lines and columns count from 1, columns and width in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub line: usize,
    pub column: usize,
    pub width: usize,
}

/// An error before it is put beside the line of the file.
#[derive(Clone, Debug)]
pub(super) struct Problem {
    pub mark: Mark,
    pub key: String,
    pub message: String,
    pub hint: String,
}

impl Problem {
    pub fn new(mark: Mark, message: String, hint: &str) -> Problem {
        Problem { mark, key: String::new(), message, hint: hint.to_owned() }
    }
}

impl ScenarioErrors {
    /// Most errors that are shown.
    pub const MAX_SHOWN: usize = 50;

    pub(super) fn new(file: &str, text: &str, mut problems: Vec<Problem>) -> ScenarioErrors {
        problems.sort_by_key(|problem| (problem.mark.line, problem.mark.column));
        let not_shown = problems.len().saturating_sub(Self::MAX_SHOWN);
        problems.truncate(Self::MAX_SHOWN);
        let lines: Vec<&str> = text.lines().collect();
        let parts = parts(text);
        let located = |problem: Problem| {
            let part = parts.iter().rfind(|part| part.line < problem.mark.line);
            // The last part is the file that was asked for, as it was named.
            let is_last = |part: &Part<'_>| parts.last().is_some_and(|last| last.line == part.line);
            let of_other = part.filter(|part| !is_last(part)).and_then(|part| part.name);
            let before = part.map_or(0, |part| part.line);
            ScenarioError::new(problem, &lines, (of_other.unwrap_or(file), before))
        };
        ScenarioErrors {
            file: file.to_owned(),
            errors: problems.into_iter().map(located).collect(),
            not_shown,
        }
    }
}

impl ScenarioError {
    /// Of a file that begins behind so many lines.
    fn new(problem: Problem, lines: &[&str], (file, before): (&str, usize)) -> ScenarioError {
        let Problem { mark, key, message, hint } = problem;
        let line: Vec<char> =
            lines.get(mark.line - 1).map_or_else(Vec::new, |line| line.chars().collect());
        let at = (mark.column - 1).min(line.len());
        let from = if line.len() > LINE_WIDTH { at.saturating_sub(LINE_WIDTH / 2) } else { 0 };
        let shown = &line[from..line.len().min(from + LINE_WIDTH)];
        let mark_start = at - from;
        let mark_width = mark.width.min(shown.len().saturating_sub(mark_start)).max(1);
        ScenarioError {
            file: file.to_owned(),
            line: mark.line - before,
            column: mark.column,
            key: printable(&key),
            message: printable(&message),
            hint: printable(&hint),
            source: shown.iter().copied().map(printable_char).collect(),
            mark_start,
            mark_width,
        }
    }
}

/// A terminal must not be steered by what a file contains.
fn printable(text: &str) -> String {
    text.chars().map(printable_char).collect()
}

fn printable_char(c: char) -> char {
    match c {
        '\t' => ' ',
        c if c.is_control() || is_bidi_control(c) => '\u{fffd}',
        c => c,
    }
}

/// Characters that change the order in which a terminal shows others.
fn is_bidi_control(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Longest part of a line that is shown.
const LINE_WIDTH: usize = 120;

impl fmt::Display for ScenarioErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for error in &self.errors {
            let ScenarioError { file, line, column, key, message, hint, source, .. } = error;
            let separator = if key.is_empty() { "" } else { ": " };
            writeln!(f, "error: {file}:{line}:{column}: {key}{separator}{message}")?;
            let (blank, marks) = (" ".repeat(error.mark_start), "^".repeat(error.mark_width));
            writeln!(f, "{line:>5} | {source}\n      | {blank}{marks}")?;
            if !hint.is_empty() {
                writeln!(f, "  hint: {hint}")?;
            }
        }
        let count = self.errors.len() + self.not_shown;
        write!(f, "{}: {count} error{}", self.file, if count == 1 { "" } else { "s" })?;
        if self.not_shown > 0 {
            write!(f, ", {} of them not shown", self.not_shown)?;
        }
        Ok(())
    }
}

impl std::error::Error for ScenarioErrors {}
