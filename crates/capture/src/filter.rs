// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which packets: the words of `tcpdump`, and some of ours.
//!
//! A [`Filter`] is read from text ([`Filter::parse`]). What it says of a frame is said twice: by
//! the filter as it is meant ([`Filter::holds`]), and by the struct that programs in the kernel
//! evaluate ([`Filter::compile`], [`Match::holds`]). In a capture there are no frames: an
//! [`EventFilter`] says what is known of events.
//!
//! Other than in `tcpdump`, addresses, ports and EtherTypes are looked for behind VLAN tags without
//! a word, and `vlan` changes nothing for what stands after it.
//!
//! Not here: programs in the kernel (`timewire-bpf`), files of events ([`crate::capture`]).

mod compile;
mod compiled;
mod event;
mod expr;
mod frame;
mod parse;
mod value;

#[cfg(test)]
mod tests;

use std::fmt;

use thiserror::Error;

pub use compiled::{
    Conjunction, KEY_WORDS, Keys, MAX_CONJUNCTIONS, MAX_TESTS, Match, Test, kind, word,
};
pub use event::{EventFilter, FlowFacts};
pub use expr::{Expr, OfEvent, Primitive, Side};
pub use frame::{Facts, Owner, VlanTag};
pub use parse::MAX_TEXT;

/// What is wrong with a filter.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("filter, byte {at}: {what}; right would be: {right}")]
pub struct FilterError {
    /// Where: bytes before it.
    pub at: usize,
    /// What is there.
    pub what: String,
    /// What would be right.
    pub right: String,
}

/// A filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    text: String,
    expr: Expr,
}

impl Filter {
    /// Reads a filter; an empty text is that for everything.
    ///
    /// **Errors**: what cannot be read, with its place and what would be right.
    pub fn parse(text: &str) -> Result<Filter, FilterError> {
        let expr = parse::parse(text)?;
        let full = expr.to_string().len();
        if full > MAX_TEXT {
            let what = format!("a filter of {full} bytes when each condition is written in full");
            return Err(FilterError { at: text.len(), what, right: "at most 8192 bytes".into() });
        }
        Ok(Filter { text: text.trim().to_owned(), expr })
    }

    /// As it was given.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// As it is meant.
    pub fn expr(&self) -> &Expr {
        &self.expr
    }

    /// Whether it holds for a frame.
    pub fn holds(&self, frame: &Facts) -> bool {
        self.expr.holds(frame)
    }

    /// The struct for programs in the kernel.
    ///
    /// **Errors**: it does not fit, or asks for what frames do not show.
    pub fn compile(&self) -> Result<Match, FilterError> {
        compile::compile(&self.expr)
    }
}

/// As it is meant, in full.
impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.expr.fmt(f)
    }
}
