// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is in a file of Parquet, as the CSV that there would be of the same table.
//!
//! Not here: the writer (`timewire-report`).

use std::fs::File;
use std::path::Path;

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use timewire_capture::table::{Cell, csv_line};

/// The names of the columns, and each row, as lines.
pub fn parquet_as_csv(path: impl AsRef<Path>) -> String {
    let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
    let schema = reader.metadata().file_metadata().schema_descr();
    let names: Vec<_> = schema.columns().iter().map(|column| Cell::text(column.name())).collect();
    let mut text = csv_line(&names);
    for row in reader.get_row_iter(None).unwrap() {
        let row = row.unwrap();
        let cell = |field| match field {
            &Field::Null => Cell::Empty,
            Field::Long(number) => Cell::Integer(*number),
            Field::ULong(number) => Cell::Natural(*number),
            Field::Bool(flag) => Cell::Flag(*flag),
            Field::Str(text) => Cell::text(text.as_str()),
            other => panic!("{other:?}"),
        };
        let cells: Vec<_> = row.get_column_iter().map(|(_, field)| cell(field)).collect();
        text += &csv_line(&cells);
    }
    text
}
