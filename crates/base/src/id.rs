// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names and numbers that identify things: stations, interfaces, ports, priorities.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Text or a number that identifies nothing.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum IdError {
    /// No interface can have this name.
    #[error("`{text}` is no interface name: 1 to 15 bytes, no `/`, no space, not `.` or `..`")]
    IfName {
        /// What was given.
        text: String,
    },
    /// No station can have this name.
    #[error(
        "`{text}` is no station name: 1 to 24 characters of a-z, 0-9 and `-`, \
         starting with a letter"
    )]
    StationName {
        /// What was given.
        text: String,
    },
    /// No priority can have this number.
    #[error("{number} is no priority: 1 (most urgent) to {max} (least urgent)")]
    Priority {
        /// What was given.
        number: u64,
        /// The largest number.
        max: u8,
    },
    /// No UDP or TCP port can have this number.
    #[error("{number} is no port: 1 to 65535")]
    Port {
        /// What was given.
        number: u64,
    },
}

/// What types have that are text which was checked: a tuple struct of one `String`, and its
/// `new(&str) -> Result<Self, Error>`.
#[macro_export]
macro_rules! checked_text {
    ($name:ident, $error:ty) => {
        impl $name {
            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl ::std::str::FromStr for $name {
            type Err = $error;
            fn from_str(text: &str) -> ::std::result::Result<Self, $error> {
                $name::new(text)
            }
        }
        impl ::std::convert::TryFrom<String> for $name {
            type Error = $error;
            fn try_from(text: String) -> ::std::result::Result<Self, $error> {
                $name::new(&text)
            }
        }
        impl ::std::convert::From<$name> for String {
            fn from(name: $name) -> String {
                name.0
            }
        }
    };
}

/// The name of a network interface, as `dev_valid_name` of Linux (v6.12 `net/core/dev.c`) takes it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct IfName(String);

impl IfName {
    /// Checks the text.
    ///
    /// **Errors**: empty, longer than 15 bytes, `.`, `..`, or with `/`, `:` or white space.
    pub fn new(text: &str) -> Result<IfName, IdError> {
        let bad = text.is_empty()
            || text.len() > 15
            || text == "."
            || text == ".."
            || text.chars().any(|c| c == '/' || c == ':' || c.is_whitespace());
        if bad {
            Err(IdError::IfName { text: text.to_owned() })
        } else {
            Ok(IfName(text.to_owned()))
        }
    }
}
checked_text!(IfName, IdError);

/// Whether a text is a relative path that no host can understand otherwise: its parts are of `a-z`,
/// `A-Z`, `0-9`, `-`, `_` and `.`, and none begins with a dot.
pub fn is_plain_path(text: &str) -> bool {
    let part_fits = |part: &str| {
        !part.is_empty()
            && !part.starts_with('.')
            && part.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    };
    text.split('/').all(part_fits)
}

/// The name of a station in a scenario; safe as part of a file, namespace and interface name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct StationName(String);

impl StationName {
    /// Checks the text.
    ///
    /// **Errors**: not 1 to 24 characters of `a-z`, `0-9`, `-`, or not starting with a letter.
    pub fn new(text: &str) -> Result<StationName, IdError> {
        let starts = text.chars().next().is_some_and(|c| c.is_ascii_lowercase());
        let rest = text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
        if starts && rest && text.len() <= 24 {
            Ok(StationName(text.to_owned()))
        } else {
            Err(IdError::StationName { text: text.to_owned() })
        }
    }
}
checked_text!(StationName, IdError);

/// The priority of a transmit or receive queue: a lower number is served first.
///
/// **Units**: 1 to 32. This is the order of Timewire's own queues, not a PCP and not `SO_PRIORITY`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct Priority(u8);

impl Priority {
    /// The least urgent priority.
    pub const MAX: u8 = 32;

    /// **Errors**: not 1 to 32.
    pub fn new(number: u64) -> Result<Priority, IdError> {
        match u8::try_from(number) {
            Ok(n) if (1..=Self::MAX).contains(&n) => Ok(Priority(n)),
            _ => Err(IdError::Priority { number, max: Self::MAX }),
        }
    }

    /// The number, 1 to 32.
    pub const fn get(self) -> u8 {
        self.0
    }
}

impl TryFrom<u64> for Priority {
    type Error = IdError;
    fn try_from(number: u64) -> Result<Self, IdError> {
        Priority::new(number)
    }
}

impl From<Priority> for u64 {
    fn from(priority: Priority) -> u64 {
        u64::from(priority.0)
    }
}

/// A UDP or TCP port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct Port(u16);

impl Port {
    /// **Errors**: not 1 to 65535.
    pub fn new(number: u64) -> Result<Port, IdError> {
        match u16::try_from(number) {
            Ok(n) if n != 0 => Ok(Port(n)),
            _ => Err(IdError::Port { number }),
        }
    }

    /// The number, 1 to 65535.
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl TryFrom<u64> for Port {
    type Error = IdError;
    fn try_from(number: u64) -> Result<Self, IdError> {
        Port::new(number)
    }
}

impl From<Port> for u64 {
    fn from(port: Port) -> u64 {
        u64::from(port.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_names_and_numbers_are_checked() {
        for good in ["eth0", "enp3s0f1", "a.b", "averylongname15"] {
            assert!(IfName::new(good).is_ok(), "{good}");
        }
        for bad in ["", ".", "..", "a b", "a/b", "a:b", "averylongname016"] {
            assert!(IfName::new(bad).is_err(), "{bad}");
        }
        for bad in ["", "Alpha", "1a", "a_b", "abcdefghijklmnopqrstuvwxy"] {
            assert!(StationName::new(bad).is_err(), "{bad}");
        }
        assert!(StationName::new("robot-7").is_ok());
        assert!(Priority::new(0).is_err() && Priority::new(33).is_err());
        assert!(Port::new(0).is_err() && Port::new(65_536).is_err());
    }
}
