// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The integration tests of the command, one program: a file here is a module of it, and
//! `cargo test -p timewire-cli --test all streams::` runs the tests of `streams.rs`. They start the
//! command in processes of its own, on a host of their own where it changes one (`support`).
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod agent;
mod arrays;
mod avtp;
mod book;
mod cases;
mod clock;
mod clock_bounds;
mod compare;
mod control;
mod doctor;
mod drift;
mod experiments;
mod group;
mod interrupt;
mod interrupt_others;
mod kernels;
mod lab;
mod library;
mod marks;
mod measure;
mod measure_launch;
mod mistakes;
mod on_hosts;
mod on_sim;
mod one_segment;
mod pipeline;
mod plan;
mod plan_exchange;
mod plan_file;
mod plan_keep;
mod plan_yang;
mod preflight;
mod programs;
mod qemu;
mod receive;
mod report;
mod report_memory;
mod report_times;
mod resumed;
mod run;
mod sim;
mod sim_run;
mod soak;
mod stations;
mod streams;
mod support;
mod tables;
mod tdm;
mod top;
mod trace;
mod trace_files;
mod trace_functions;
mod trace_levels;
mod traffic;
mod transcripts;
mod wrong_use;
