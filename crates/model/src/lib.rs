// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The description of a network and its transmission schedule: text goes in, checked values come
//! out. A value of these types has no overlapping slots, no unknown station, no message that fits
//! no slot; what is wrong with a text is said once, here, with file, line, column, key and remedy.
//!
//! Not here: what Linux makes of it, and with that the whole check of a scenario or network file
//! (`timewire-tsn`), reading the file (`timewire`), judging the limits of an experiment
//! (`timewire-capture`).
#![forbid(unsafe_code)]

pub mod queue;
pub mod scenario;
pub mod tdm;
pub mod unread;
