// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Plans for scheduled traffic (IEEE 802.1Q-2022 clause 8.6.8.4): given a network and its streams,
//! at which instant each frame starts on each link, or why a stream is rejected.
//!
//! * [`bounds`]: latency and backlog of traffic without a schedule.
//! * [`calculus`]: curves of arrival and service, and bounds for networks of servers.
//! * [`check`]: whether a plan holds, and the reasons of its refusals.
//! * [`model`]: networks, streams, plans, and the reasons of refusals. Values only.
//! * [`synth`]: finds a plan.
//! * [`mod@file`]: files of networks, and plans as such files and as settings of Linux.
//! * [`exchange`]: formats of others. [`words`], [`gantt`]: what a plan says, for people.
//! * [`keep`]: plans that keep the reservations of an earlier one.
//! * [`generate`]: networks and streams made up for tests.
//!
//! Everything is a function from values to values; the same input gives the same plan.
//!
//! Not here: the schedule of one shared segment (`timewire-model`), files and clocks
//! (`timewire-cli`).
#![forbid(unsafe_code)]

pub mod bounds;
pub mod calculus;
pub mod check;
pub mod exchange;
pub mod file;
pub mod gantt;
pub mod generate;
pub mod keep;
pub mod model;
pub mod synth;
pub mod words;
