// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The events of a capture for other programs: CSV or JSON Lines, one line an event, or rows of a
//! table.
//!
//! **Shape**: a row is an event, in the order of the reader; the columns are [`COLUMNS`]. JSON
//! Lines have the same keys, with `null` in place of an empty field; numbers of 64 bits that are
//! identities (`object`, `tag`) are text in hexadecimal in both, since readers of JSON lose digits.

use std::fmt::{self, Write as _};
use std::io::{self, Read, Write};

use super::{CaptureError, CaptureHeader, Item, Names, Reader};
use crate::event::{Event, Flags, Hook};
use crate::table::{Cell, Kind, push_quoted};

/// The columns, in this order.
pub const COLUMNS: [(&str, Kind); 19] = [
    ("time_ns", Kind::Natural),
    ("hook", Kind::Text),
    ("station", Kind::Text),
    ("interface_index", Kind::Natural),
    ("interface", Kind::Text),
    ("cpu", Kind::Natural),
    ("thread", Kind::Natural),
    ("thread_name", Kind::Text),
    ("object", Kind::Text),
    ("tag", Kind::Text),
    ("flow", Kind::Text),
    ("flow_name", Kind::Text),
    ("length", Kind::Natural),
    ("flags", Kind::Text),
    ("aux", Kind::Natural),
    ("point", Kind::Text),
    ("result", Kind::Integer),
    ("qdisc", Kind::Text),
    ("reason", Kind::Text),
];

/// How events are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Columns with commas between (RFC 4180); the first line has their names.
    Csv,
    /// An object of JSON on each line.
    JsonLines,
}

/// Writes all events; how many there were. The names are of the same capture
/// ([`super::Info::read`]).
///
/// **Errors**: source or sink fails.
pub fn export<R: Read, W: Write>(
    reader: &mut Reader<R>,
    names: &Names,
    format: Format,
    out: &mut W,
) -> Result<u64, CaptureError> {
    let header = reader.header().clone();
    if format == Format::Csv {
        out.write_all(COLUMNS.map(|(name, _)| name).join(",").as_bytes())?;
        out.write_all(b"\n")?;
    }
    let mut line = String::new();
    let mut count = 0;
    while let Some(item) = reader.next()? {
        let Item::Event(event) = item else { continue };
        line.clear();
        let fields = fields(&event, &header, names);
        let written = match format {
            Format::Csv => csv(&mut line, &fields),
            Format::JsonLines => json(&mut line, &fields),
        };
        written.expect("invariant: a text takes all");
        line.push('\n');
        out.write_all(line.as_bytes())?;
        count += 1;
    }
    Ok(count)
}

/// Gives all events as rows of a table with [`COLUMNS`]; how many there were. The names are of the
/// same capture ([`super::Info::read`]).
///
/// **Errors**: the source or `row` fails.
pub fn rows<R: Read>(
    reader: &mut Reader<R>,
    names: &Names,
    row: &mut dyn FnMut(&[Cell<'_>]) -> io::Result<()>,
) -> Result<u64, CaptureError> {
    let header = reader.header().clone();
    let mut count = 0;
    while let Some(item) = reader.next()? {
        let Item::Event(event) = item else { continue };
        row(&fields(&event, &header, names).map(Field::cell))?;
        count += 1;
    }
    Ok(count)
}

/// A field of a row.
#[derive(Clone, Debug)]
enum Field<'a> {
    None,
    Number(u64),
    Signed(i64),
    Hex(u64, usize),
    Text(&'a str),
    Words(String),
    Flags(Flags),
}

fn fields<'a>(
    event: &Event,
    header: &'a CaptureHeader,
    names: &'a Names,
) -> [Field<'a>; COLUMNS.len()] {
    let text = |text: Option<&'a String>| text.map_or(Field::None, |text| Field::Text(text));
    let station = header.stations.get(usize::from(event.station));
    let interface = station.and_then(|station| station.interfaces.get(&event.interface));
    let has_tag = event.tag != 0;
    let point = names.points.get(&event.object).filter(|_| event.hook == Hook::Marker);
    let result = match event.hook {
        Hook::SocketSend | Hook::SocketReceive | Hook::DriverDone => {
            Field::Signed(event.aux.cast_signed())
        }
        _ => Field::None,
    };
    let handle = u32::try_from(event.aux >> 32).expect("invariant: 32 bits");
    let of_qdisc = matches!(event.hook, Hook::QdiscEnqueue | Hook::QdiscDequeue);
    let qdisc = names.qdiscs.get(&(event.station, event.interface, handle));
    let tagged = |field: Field<'a>| if has_tag { field } else { Field::None };
    [
        Field::Number(event.at_ns),
        Field::Text(event.hook.name()),
        text(station.map(|station| &station.name)),
        Field::Number(u64::from(event.interface)),
        text(interface),
        Field::Number(u64::from(event.cpu)),
        Field::Number(u64::from(event.thread)),
        text(names.threads.get(&event.thread)),
        Field::Hex(event.object, 16),
        tagged(Field::Hex(event.tag, 16)),
        tagged(Field::Hex(u64::from(event.flow()), 8)),
        tagged(text(names.flows.get(&event.flow()))),
        Field::Number(u64::from(event.length)),
        Field::Flags(event.flags),
        Field::Number(event.aux),
        text(point.map(|(name, _)| name)),
        result,
        text(qdisc.filter(|_| of_qdisc)),
        match event.hook {
            Hook::Drop => Field::Words(header.reason(event.aux)),
            _ => Field::None,
        },
    ]
}

impl<'a> Field<'a> {
    fn cell(self) -> Cell<'a> {
        match self {
            Field::None => Cell::Empty,
            Field::Number(number) => Cell::Natural(number),
            Field::Signed(number) => Cell::Integer(number),
            Field::Text(text) => Cell::text(text),
            Field::Words(text) => Cell::text(text),
            Field::Hex(..) | Field::Flags(_) => Cell::text(self.to_string()),
        }
    }
}

impl fmt::Display for Field<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Field::None => Ok(()),
            Field::Number(number) => number.fmt(f),
            Field::Signed(number) => number.fmt(f),
            Field::Hex(number, digits) => write!(f, "0x{number:0digits$x}", digits = *digits),
            Field::Text(text) => f.write_str(text),
            Field::Words(text) => f.write_str(text),
            Field::Flags(flags) => {
                let mut rest = flags.0;
                let mut between = "";
                for (flag, name) in FLAGS {
                    if flags.has(flag) {
                        write!(f, "{between}{name}")?;
                        between = "|";
                        rest &= !flag.0;
                    }
                }
                if rest == 0 { Ok(()) } else { write!(f, "{between}{rest:#x}") }
            }
        }
    }
}

const FLAGS: [(Flags, &str); 7] = [
    (Flags::TAGGED, "tagged"),
    (Flags::FIRST, "first"),
    (Flags::OTHER, "other"),
    (Flags::CLONED, "cloned"),
    (Flags::SEGMENTED, "segmented"),
    (Flags::PEEKED, "peeked"),
    (Flags::ALONE, "alone"),
];

fn csv(line: &mut String, fields: &[Field<'_>]) -> fmt::Result {
    for (number, field) in fields.iter().enumerate() {
        if number > 0 {
            line.push(',');
        }
        match field {
            Field::Text(text) => push_quoted(line, text),
            Field::Words(text) => push_quoted(line, text),
            field => write!(line, "{field}")?,
        }
    }
    Ok(())
}

fn json(line: &mut String, fields: &[Field<'_>]) -> fmt::Result {
    let mut between = '{';
    for ((name, _), field) in COLUMNS.iter().zip(fields) {
        write!(line, "{between}\"{name}\":")?;
        between = ',';
        match field {
            Field::None => line.push_str("null"),
            Field::Text(text) => {
                let text = serde_json::to_string(text).expect("invariant: text is always JSON");
                line.push_str(&text);
            }
            Field::Words(text) => {
                let text = serde_json::to_string(text).expect("invariant: text is always JSON");
                line.push_str(&text);
            }
            Field::Hex(..) | Field::Flags(_) => write!(line, "\"{field}\"")?,
            field => write!(line, "{field}")?,
        }
    }
    line.push('}');
    Ok(())
}
