// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A table as Parquet, for pandas, DuckDB, Polars, Spark and R: typed columns, compact without a
//! codec, since numbers are written as differences and texts as references to those before.
//!
//! **Source**: Apache Parquet format 2.11, by the crate of the Apache project.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, Write};
use std::mem;
use std::sync::Arc;

use parquet::basic::{Encoding, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{ColumnPath, Type, TypePtr};
use timewire_capture::table::{Cell, Column, Kind};

/// Rows that are written at once, and that are kept until then.
const GROUP: usize = 122_880;

/// A table that is being written.
pub struct ParquetWriter<W: Write + Send> {
    writer: SerializedFileWriter<W>,
    columns: Vec<Values>,
    rows: usize,
}

/// Cells of a column that are not written yet.
struct Values {
    kept: Kept,
    /// Of each row whether it has a value: 1 or 0.
    has: Vec<i16>,
}

enum Kept {
    /// Both kinds of whole numbers.
    Numbers(Kind, Vec<i64>),
    Flags(Vec<bool>),
    /// With each text that is among them, which is kept once.
    Texts(Vec<ByteArray>, HashMap<String, ByteArray>),
}

impl Values {
    fn new(kind: Kind) -> Values {
        let kept = match kind {
            Kind::Integer | Kind::Natural => Kept::Numbers(kind, Vec::new()),
            Kind::Flag => Kept::Flags(Vec::new()),
            Kind::Text => Kept::Texts(Vec::new(), HashMap::new()),
        };
        Values { kept, has: Vec::new() }
    }

    fn push(&mut self, cell: &Cell<'_>) {
        match (&mut self.kept, cell) {
            (_, Cell::Empty) => {
                self.has.push(0);
                return;
            }
            (Kept::Numbers(Kind::Integer, all), Cell::Integer(number)) => all.push(*number),
            // The column says that it has no sign.
            (Kept::Numbers(Kind::Natural, all), Cell::Natural(number)) => {
                all.push(number.cast_signed());
            }
            (Kept::Flags(all), Cell::Flag(flag)) => all.push(*flag),
            (Kept::Texts(all, known), Cell::Text(text)) => {
                let text = match known.get(text.as_ref()) {
                    Some(text) => text.clone(),
                    None => {
                        let new = ByteArray::from(text.as_ref());
                        known.insert(text.clone().into_owned(), new.clone());
                        new
                    }
                };
                all.push(text);
            }
            (_, cell) => panic!("{cell:?} is not of its column"),
        }
        self.has.push(1);
    }

    fn write<W: Write + Send>(
        &mut self,
        group: &mut SerializedRowGroupWriter<'_, W>,
    ) -> Result<(), ParquetError> {
        let has = mem::take(&mut self.has);
        match &mut self.kept {
            Kept::Numbers(_, all) => write::<Int64Type, W>(group, &mem::take(all), &has),
            Kept::Flags(all) => write::<BoolType, W>(group, &mem::take(all), &has),
            Kept::Texts(all, known) => {
                known.clear();
                write::<ByteArrayType, W>(group, &mem::take(all), &has)
            }
        }
    }
}

/// Writes the next column of a group.
fn write<T: DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: &[T::T],
    has: &[i16],
) -> Result<(), ParquetError> {
    let column = group.next_column()?;
    let mut column = column.expect("invariant: as many columns as the schema has");
    column.typed::<T>().write_batch(values, Some(has), None)?;
    column.close()
}

impl<W: Write + Send> ParquetWriter<W> {
    /// Begins a table. What it is of stands in the file as `what`.
    ///
    /// **Errors**: of the writer.
    pub fn new(out: W, what: &str, columns: &[Column]) -> io::Result<ParquetWriter<W>> {
        let schema = schema(columns).expect("invariant: these types are of Parquet");
        let mut properties = WriterProperties::builder()
            .set_created_by(concat!("timewire ", env!("CARGO_PKG_VERSION")).to_owned())
            .set_key_value_metadata(Some(vec![KeyValue::new("what".into(), what.to_owned())]));
        for column in columns {
            if matches!(column.kind, Kind::Integer | Kind::Natural) {
                let path = ColumnPath::from(column.name.as_ref());
                properties = properties
                    .set_column_dictionary_enabled(path.clone(), false)
                    .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
            }
        }
        let writer = SerializedFileWriter::new(out, schema, Arc::new(properties.build()));
        let columns = columns.iter().map(|column| Values::new(column.kind)).collect();
        Ok(ParquetWriter { writer: writer.map_err(of_writer)?, columns, rows: 0 })
    }

    /// Adds a row.
    ///
    /// **Errors**: of the writer.
    ///
    /// **Panics** when there are not as many cells as columns, or one is of another kind.
    pub fn row(&mut self, cells: &[Cell<'_>]) -> io::Result<()> {
        assert_eq!(cells.len(), self.columns.len(), "cells of a row");
        for (column, cell) in self.columns.iter_mut().zip(cells) {
            column.push(cell);
        }
        self.rows += 1;
        if self.rows == GROUP { self.flush() } else { Ok(()) }
    }

    /// Writes the rows that are kept.
    fn flush(&mut self) -> io::Result<()> {
        self.rows = 0;
        let mut group = self.writer.next_row_group().map_err(of_writer)?;
        for column in &mut self.columns {
            column.write(&mut group).map_err(of_writer)?;
        }
        group.close().map_err(of_writer)?;
        Ok(())
    }

    /// Writes the rest and the table's foot, without which it is none, and gives the sink back.
    ///
    /// **Errors**: of the writer.
    pub fn finish(mut self) -> io::Result<W> {
        if self.rows > 0 {
            self.flush()?;
        }
        self.writer.into_inner().map_err(of_writer)
    }
}

fn schema(columns: &[Column]) -> Result<TypePtr, ParquetError> {
    let field = |column: &Column| {
        let (physical, logical) = match column.kind {
            Kind::Integer => (Physical::INT64, None),
            Kind::Natural => (Physical::INT64, Some(LogicalType::integer(64, false))),
            Kind::Flag => (Physical::BOOLEAN, None),
            Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        };
        let field = Type::primitive_type_builder(&column.name, physical)
            .with_logical_type(logical)
            .with_repetition(Repetition::OPTIONAL);
        field.build().map(Arc::new)
    };
    let fields = columns.iter().map(field).collect::<Result<_, _>>()?;
    Type::group_type_builder("table").with_fields(fields).build().map(Arc::new)
}

/// The sink's own error, if it was that.
fn of_writer(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(error) => match error.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(other) => io::Error::other(other),
        },
        other => io::Error::other(other),
    }
}

impl<W: Write + Send> fmt::Debug for ParquetWriter<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ParquetWriter").field("rows", &self.rows).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::env::temp_dir;
    use std::fs::{self, File};
    use std::io::Cursor;

    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;

    use super::*;

    const KINDS: [Kind; 4] = [Kind::Integer, Kind::Natural, Kind::Flag, Kind::Text];

    fn columns() -> Vec<Column> {
        KINDS.into_iter().map(|kind| Column::new(format!("{kind:?}"), kind)).collect()
    }

    fn written(rows: &[Vec<Cell<'_>>]) -> Vec<u8> {
        let mut table = ParquetWriter::new(Vec::new(), "a test", &columns()).unwrap();
        rows.iter().for_each(|row| table.row(row).unwrap());
        table.finish().unwrap()
    }

    #[test]
    fn t0_what_was_written_is_read() {
        let at = |row: u64| -> Vec<Cell<'static>> {
            match row % 5 {
                0 => vec![Cell::Empty; 4],
                1 => vec![
                    Cell::Integer(i64::MIN + row.cast_signed()),
                    Cell::Natural(u64::MAX - row),
                    Cell::Flag(true),
                    Cell::text("the same"),
                ],
                _ => vec![
                    Cell::Integer(row.cast_signed().pow(2)),
                    Cell::Natural(row),
                    Cell::Flag(row.is_multiple_of(3)),
                    Cell::text(format!("say \"{row}\"")),
                ],
            }
        };
        for count in [0, 1, GROUP, 2 * GROUP + 7] {
            let count = u64::try_from(count).unwrap();
            let bytes = written(&(0..count).map(at).collect::<Vec<_>>());
            let path = temp_dir().join(format!("timewire-table-{}-{count}", std::process::id()));
            fs::write(&path, bytes).unwrap();
            let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
            fs::remove_file(&path).unwrap();
            let about = reader.metadata().file_metadata();
            assert_eq!(about.key_value_metadata().unwrap()[0].value.as_deref(), Some("a test"));
            let names: Vec<_> = about.schema_descr().columns().iter().map(|it| it.name()).collect();
            assert_eq!(names, ["Integer", "Natural", "Flag", "Text"]);
            let mut found = 0;
            for row in reader.get_row_iter(None).unwrap() {
                let row = row.unwrap();
                let cell = |field: &Field| match field {
                    Field::Null => Cell::Empty,
                    Field::Long(number) => Cell::Integer(*number),
                    Field::ULong(number) => Cell::Natural(*number),
                    Field::Bool(flag) => Cell::Flag(*flag),
                    Field::Str(text) => Cell::text(text.clone()),
                    other => panic!("{other:?}"),
                };
                let cells: Vec<_> = row.get_column_iter().map(|(_, field)| cell(field)).collect();
                assert_eq!(cells, at(found));
                found += 1;
            }
            assert_eq!(found, count);
        }
    }

    #[test]
    fn t0_the_same_rows_give_the_same_bytes() {
        let row = vec![Cell::Integer(1), Cell::Natural(2), Cell::Flag(true), Cell::text("three")];
        assert_eq!(written(&[row.clone(), row.clone()]), written(&[row.clone(), row]));
    }

    #[test]
    fn t0_an_error_of_the_sink_is_given_as_it_is() {
        let mut short = [0; 20];
        let mut table = ParquetWriter::new(Cursor::new(&mut short[..]), "", &columns()).unwrap();
        let row = [Cell::Empty, Cell::Natural(2), Cell::Empty, Cell::text("longer than there")];
        table.row(&row).unwrap();
        assert_eq!(table.finish().unwrap_err().kind(), io::ErrorKind::WriteZero);
    }

    #[test]
    #[should_panic(expected = "Natural(5) is not of its column")]
    fn t0_a_cell_of_another_kind_is_a_bug() {
        let mut table = ParquetWriter::new(Vec::new(), "", &columns()).unwrap();
        let _ = table.row(&[Cell::Natural(5), Cell::Empty, Cell::Empty, Cell::Empty]);
    }
}
