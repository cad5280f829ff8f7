// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tables of comma-separated values with a header: fields in quotation marks may have commas,
//! doubled quotation marks stand for one (RFC 4180), and every mistake has its place.

use std::fmt;

/// What is wrong in a table, where, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableError {
    /// The file's name.
    pub file: String,
    /// From 1, the header included.
    pub line: usize,
    /// Name of the column; empty when it is about the whole line.
    pub column: String,
    /// What is wrong.
    pub what: String,
    /// What would be right.
    pub remedy: String,
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: ", self.file, self.line)?;
        if !self.column.is_empty() {
            write!(f, "column `{}`: ", self.column)?;
        }
        write!(f, "{}\n  remedy: {}", self.what, self.remedy)
    }
}

impl std::error::Error for TableError {}

/// A table whose columns are found by name.
pub struct Table<'a> {
    file: &'a str,
    columns: Vec<String>,
    rows: Vec<Row<'a>>,
}

/// A line of a table.
pub struct Row<'a> {
    file: &'a str,
    line: usize,
    fields: Vec<String>,
}

/// The most that a message quotes of a field.
const QUOTED: usize = 40;

impl<'a> Table<'a> {
    /// Reads a table that has these columns, in any order, each with the names that it may have.
    ///
    /// **Errors**: no text, a column is missing or is not known, a line has more or fewer fields
    /// than the header.
    pub fn read(
        file: &'a str,
        bytes: &[u8],
        wanted: &[(&str, &[&str])],
    ) -> Result<Table<'a>, TableError> {
        let whole = Row { file, line: 1, fields: Vec::new() };
        let Ok(text) = std::str::from_utf8(bytes) else {
            return Err(whole.error("", "it is no text", "save it as UTF-8"));
        };
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let names: Vec<&str> = wanted.iter().map(|(name, _)| *name).collect();
        let header = format!("the first line is `{}`", names.join(","));
        let Some((_, first)) = lines.next() else {
            return Err(whole.error("", "it is empty", &header));
        };
        let found = split(first).unwrap_or_default();
        let mut columns = Vec::new();
        for (name, others) in wanted {
            let is_it = |field: &String| field == name || others.contains(&field.as_str());
            if !found.iter().any(is_it) {
                return Err(whole.error(name, "the column is missing", &header));
            }
        }
        for field in found {
            let is_it = |name: &str, others: &[&str]| field == name || others.contains(&&*field);
            let Some((name, _)) = wanted.iter().find(|(name, others)| is_it(name, others)) else {
                let what = format!("{} is no column of this table", quoted(&field));
                return Err(whole.error("", &what, &format!("take it out; {header}")));
            };
            if columns.iter().any(|before| before == name) {
                return Err(whole.error(name, "the column is there twice", &header));
            }
            columns.push((*name).to_owned());
        }
        let mut rows = Vec::new();
        for (number, line) in lines {
            let row = Row { file, line: number + 1, fields: Vec::new() };
            let Some(fields) = split(line) else {
                return Err(row.error("", "a quotation mark is open", "close it on its line"));
            };
            if fields.len() != columns.len() {
                let what = format!("{} fields; the header has {}", fields.len(), columns.len());
                let remedy = "a field with commas stands in quotation marks, such as \"(0, 1)\"";
                return Err(row.error("", &what, remedy));
            }
            rows.push(Row { fields, ..row });
        }
        if rows.is_empty() {
            return Err(whole.error(
                "",
                "there is nothing after the header",
                "add a line for each",
            ));
        }
        Ok(Table { file, columns, rows })
    }

    /// All lines after the header.
    pub fn rows(&self) -> &[Row<'a>] {
        &self.rows
    }

    /// The field of a column that was wanted.
    pub fn field<'r>(&self, row: &'r Row, column: &str) -> &'r str {
        let place = self.columns.iter().position(|name| name == column);
        place.and_then(|place| row.fields.get(place)).map_or("", |field| field.trim())
    }

    /// A whole number with its bounds, both included.
    ///
    /// **Errors**: the field is none, or it is outside.
    pub fn number(
        &self,
        row: &Row,
        column: &str,
        least: i64,
        most: i64,
        unit: &str,
    ) -> Result<i64, TableError> {
        let text = self.field(row, column);
        let remedy = format!("a whole number of {unit} from {least} to {most}");
        // Tables of others have 1000.0 where a column had an empty field once.
        let whole = text.strip_suffix(".0").unwrap_or(text);
        let Ok(number) = whole.parse::<i64>() else {
            return Err(row.error(
                column,
                &format!("{} is no whole number", quoted(text)),
                &remedy,
            ));
        };
        if number < least || number > most {
            return Err(row.error(column, &format!("{number} is out of its bounds"), &remedy));
        }
        Ok(number)
    }

    /// A mistake of the whole table.
    pub fn error(&self, what: &str, remedy: &str) -> TableError {
        Row { file: self.file, line: 1, fields: Vec::new() }.error("", what, remedy)
    }
}

impl Row<'_> {
    /// Where it stands, from 1, the header included.
    pub fn line(&self) -> usize {
        self.line
    }

    /// A mistake in this line.
    pub fn error(&self, column: &str, what: &str, remedy: &str) -> TableError {
        TableError {
            file: self.file.to_owned(),
            line: self.line,
            column: column.to_owned(),
            what: what.to_owned(),
            remedy: remedy.to_owned(),
        }
    }
}

/// A field as a message shows it.
pub fn quoted(text: &str) -> String {
    let short: String = text.chars().take(QUOTED).flat_map(char::escape_debug).collect();
    let more = if text.chars().nth(QUOTED).is_some() { "..." } else { "" };
    format!("`{short}{more}`")
}

/// The fields of a line; `None`: a quotation mark is open.
fn split(line: &str) -> Option<Vec<String>> {
    let mut fields = vec![String::new()];
    let mut chars = line.chars().peekable();
    let mut inside = false;
    while let Some(c) = chars.next() {
        match (c, inside) {
            ('"', true) if chars.peek() == Some(&'"') => {
                chars.next();
                fields.last_mut()?.push('"');
            }
            ('"', _) => inside = !inside,
            (',', false) => fields.push(String::new()),
            _ => fields.last_mut()?.push(c),
        }
    }
    let trimmed = fields.into_iter().map(|field| field.trim().to_owned()).collect();
    (!inside).then_some(trimmed)
}
