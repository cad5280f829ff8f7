// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Draws what a run came to: one self-contained HTML file, and plain tables for a terminal. Both
//! hold only what the summary says, and the same summary always gives the same bytes. The page has
//! the verdict at its head; the tables have it on the last line, where a terminal stops.
//!
//! The page needs no network, no script and no font of its own: hand-written HTML, one style sheet,
//! figures as inline SVG. Every text from the summary is escaped.
//!
//! Not here: computing the summary from records (`timewire-trace`), writing files (`timewire-cli`).
#![forbid(unsafe_code)]

mod case;
mod figure;
mod group;
mod page;
mod scenario;
mod terminal;
mod text;

pub use page::html;
pub use terminal::{TableOptions, table};
