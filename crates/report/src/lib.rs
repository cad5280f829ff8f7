// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Draws what a run came to: one self-contained HTML file, and plain tables for a terminal. Both
//! hold only what the summary says, and the same summary always gives the same bytes. The page has
//! the verdict at its head; the tables have it on the last line, where a terminal stops.
//!
//! The page needs no network, no script and no font of its own: hand-written HTML, one style sheet,
//! figures as inline SVG. Every text from the summary is escaped.
//!
//! Not here: computing the summary from records (`timewire-capture`), writing files
//! (`timewire-cli`).
#![forbid(unsafe_code)]

mod backend;
mod case;
pub mod compare;
mod extras;
mod figure;
mod group;
pub mod hdr;
pub mod live;
mod network;
pub mod packet_paths;
mod page;
pub mod parquet;
pub mod perfetto;
pub mod places;
pub mod run_report;
mod scatter;
mod scenario;
mod terminal;
mod text;
pub mod timeline;
mod traced;

pub use extras::{
    Carried, Extras, LongPacketPath, Topology, TopologyKind, TopologyLink, TopologyNode,
};
pub use page::{html, html_with};
pub use run_report::summary_markdown;
pub use scatter::{Scatter, ScatterRow};
pub use terminal::{TableOptions, table, traced_table};
