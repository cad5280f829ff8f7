// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tables for other programs: columns with names and types, rows of cells, and such a row as a line
//! of CSV.

use std::borrow::Cow;
use std::fmt::{self, Write as _};

/// A column. A cell of any column may be empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name, with the unit at its end.
    pub name: Cow<'static, str>,
    /// What is in its cells.
    pub kind: Kind,
}

impl Column {
    /// A column with this name.
    pub fn new(name: impl Into<Cow<'static, str>>, kind: Kind) -> Column {
        Column { name: name.into(), kind }
    }
}

/// What is in the cells of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A whole number of 64 bits with a sign.
    Integer,
    /// A whole number of 64 bits that is not negative.
    Natural,
    /// Yes or no.
    Flag,
    /// Text.
    Text,
}

/// A cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cell<'a> {
    /// Nothing is known.
    Empty,
    /// Of a column of [`Kind::Integer`].
    Integer(i64),
    /// Of a column of [`Kind::Natural`].
    Natural(u64),
    /// Of a column of [`Kind::Flag`].
    Flag(bool),
    /// Of a column of [`Kind::Text`].
    Text(Cow<'a, str>),
}

impl<'a> Cell<'a> {
    /// A text; nothing, if it is empty.
    pub fn text(text: impl Into<Cow<'a, str>>) -> Cell<'a> {
        let text = text.into();
        if text.is_empty() { Cell::Empty } else { Cell::Text(text) }
    }

    /// A number; nothing, if there is none.
    pub fn integer(number: Option<i64>) -> Cell<'a> {
        number.map_or(Cell::Empty, Cell::Integer)
    }

    /// Whether a column of this kind can have it.
    pub fn fits(&self, kind: Kind) -> bool {
        match self {
            Cell::Empty => true,
            Cell::Integer(_) => kind == Kind::Integer,
            Cell::Natural(_) => kind == Kind::Natural,
            Cell::Flag(_) => kind == Kind::Flag,
            Cell::Text(_) => kind == Kind::Text,
        }
    }
}

impl fmt::Display for Cell<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cell::Empty => Ok(()),
            Cell::Integer(number) => number.fmt(f),
            Cell::Natural(number) => number.fmt(f),
            Cell::Flag(flag) => flag.fmt(f),
            Cell::Text(text) => f.write_str(text),
        }
    }
}

/// The names of columns as the first line of CSV, ending with a line feed.
pub fn csv_head(columns: &[Column]) -> String {
    let names: Vec<_> = columns.iter().map(|column| Cell::text(&*column.name)).collect();
    csv_line(&names)
}

/// A row as a line of CSV, ending with a line feed.
pub fn csv_line(cells: &[Cell<'_>]) -> String {
    let mut line = String::new();
    for (place, cell) in cells.iter().enumerate() {
        if place > 0 {
            line.push(',');
        }
        match cell {
            Cell::Text(text) => push_quoted(&mut line, text),
            cell => write!(line, "{cell}").expect("invariant: a String takes any text"),
        }
    }
    line.push('\n');
    line
}

/// Adds a text to a line of CSV, in quotes where it needs them.
///
/// **Source**: RFC 4180 section 2.
pub fn push_quoted(line: &mut String, text: &str) {
    if text.contains([',', '"', '\n', '\r']) {
        line.push('"');
        line.push_str(&text.replace('"', "\"\""));
        line.push('"');
    } else {
        line.push_str(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_a_line_of_csv_has_every_cell() {
        let columns = [Column::new("a,b", Kind::Text), Column::new("c_ns", Kind::Integer)];
        assert_eq!(csv_head(&columns), "\"a,b\",c_ns\n");
        let cells = [
            Cell::text("say \"it\""),
            Cell::text(""),
            Cell::Integer(-5),
            Cell::integer(None),
            Cell::Natural(u64::MAX),
            Cell::Flag(true),
            Cell::text("two\nlines"),
        ];
        let line = "\"say \"\"it\"\"\",,-5,,18446744073709551615,true,\"two\nlines\"\n";
        assert_eq!(csv_line(&cells), line);
    }

    #[test]
    fn t0_a_cell_is_of_a_kind_or_empty() {
        let kinds = [Kind::Integer, Kind::Natural, Kind::Flag, Kind::Text];
        let cells = [Cell::Integer(1), Cell::Natural(1), Cell::Flag(true), Cell::text("1")];
        for (place, cell) in cells.iter().enumerate() {
            for (other, kind) in kinds.into_iter().enumerate() {
                assert_eq!(cell.fits(kind), place == other);
                assert!(Cell::Empty.fits(kind));
            }
        }
    }
}
