// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The integration tests of this crate, one program: a file here is a module of it.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../../base/tests/support/counting.rs"]
mod counting;
mod memory;
mod run_report_sample;
mod sample;
mod t1_compare;
mod t1_extras;
mod t1_report;
mod t1_scatter;
mod t1_trace_views;
mod t3_chromium;
mod trace_sample;
