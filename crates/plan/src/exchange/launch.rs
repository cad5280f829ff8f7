// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table of launch times that a rendered plan has for each talker, read back.

use timewire_base::Span;

use super::csv::{Table, TableError};

/// A frame of a stream of this talker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchRow {
    /// Where it stands in the table, from 1.
    pub line: usize,
    /// The stream's name.
    pub stream: String,
    /// Which frame of the message, from 0.
    pub frame: u32,
    /// The interface it leaves by.
    pub interface: String,
    /// Its socket priority.
    pub priority: u32,
    /// The stream's interval.
    pub interval: Span,
    /// When its first bit leaves, from the start of the interval.
    pub start: Span,
    /// The launch time that the program gives, where the station has them.
    pub launch: Option<Span>,
    /// Its length without preamble and gap. **Units**: bytes.
    pub bytes: u32,
}

const COLUMNS: &[(&str, &[&str])] = &[
    ("stream", &[]),
    ("frame", &[]),
    ("interface", &[]),
    ("priority", &[]),
    ("interval_ns", &[]),
    ("start_ns", &[]),
    ("launch_ns", &[]),
    ("bytes", &[]),
];
const LONGEST_NS: i64 = 4_000_000_000_000_000;

/// All frames of a talker.
///
/// **Errors**: the first mistake, with its place and what would be right.
pub fn read_launches(file: &str, bytes: &[u8]) -> Result<Vec<LaunchRow>, TableError> {
    let table = Table::read(file, bytes, COLUMNS)?;
    let mut all = Vec::new();
    for row in table.rows() {
        let small = |column: &str, most: i64, unit: &str| -> Result<u32, TableError> {
            let number = table.number(row, column, 0, most, unit)?;
            Ok(u32::try_from(number).unwrap_or(u32::MAX))
        };
        let time = |column: &str| -> Result<Span, TableError> {
            Ok(Span::from_ns(table.number(row, column, 0, LONGEST_NS, "nanoseconds")?))
        };
        let has_launch = !table.field(row, "launch_ns").is_empty();
        all.push(LaunchRow {
            line: row.line(),
            stream: table.field(row, "stream").to_owned(),
            frame: small("frame", 1_000_000, "a frame")?,
            interface: table.field(row, "interface").to_owned(),
            priority: small("priority", 15, "a priority")?,
            interval: time("interval_ns")?,
            start: time("start_ns")?,
            launch: if has_launch { Some(time("launch_ns")?) } else { None },
            bytes: small("bytes", 1 << 24, "bytes")?,
        });
    }
    Ok(all)
}
