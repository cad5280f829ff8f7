// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The description of a network and its transmission schedule: text goes in, checked values come
//! out. A value of these types has no overlapping slots, no unknown station, no message that fits
//! no slot; what is wrong with a text is said once, here, with file, line, column, key and remedy.
//!
//! Not here: carrying a schedule out (`timewire-mac`), reading the file (`timewire`), judging the
//! limits of an experiment (`timewire-trace`).
#![forbid(unsafe_code)]

pub mod carrier;
pub mod desired;
pub mod drops;
pub mod groups;
pub mod qdisc;
pub mod scenario;
pub mod tdm;
pub mod unread;
