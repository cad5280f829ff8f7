// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The media that packets carry, as files have it.
//!
//! Not here: reading and writing the files; packets ([`crate::pdu`]).

pub mod h264;
pub mod wav;
