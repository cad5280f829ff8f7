// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How AF_XDP is used: where the program runs, and who copies.

use std::fmt;

/// Where the XDP program of a receiver runs, and whether frames are copied. A sender has no
/// program: generic and native are the same to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XdpMode {
    /// The best that works: zero copy, native, generic.
    #[default]
    Auto,
    /// In the stack, with a copy: every driver.
    Generic,
    /// In the driver, with a copy.
    Native,
    /// In the driver, which reads and writes the program's memory itself; or it is an error.
    ZeroCopy,
}

impl fmt::Display for XdpMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            XdpMode::Auto => "auto",
            XdpMode::Generic => "generic",
            XdpMode::Native => "native",
            XdpMode::ZeroCopy => "zero copy",
        })
    }
}
