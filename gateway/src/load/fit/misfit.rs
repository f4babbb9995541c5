//! Why rows do not fit.

use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use volary_flight_proto::{Error, ErrorCode};

use crate::sql_type::sql_type_name;

/// Why rows do not fit.
#[derive(Debug)]
pub struct Misfit {
    row: Option<usize>,
    what: String,
    source: Option<ArrowError>,
}

impl Misfit {
    /// Of a column's type, or of a value that the cast names itself.
    pub(super) fn of_type(column: &DataType, wanted: &DataType, source: ArrowError) -> Self {
        Self {
            row: None,
            what: format!(
                "{} does not fit its type {}",
                sql_type_name(column),
                sql_type_name(wanted)
            ),
            source: Some(source),
        }
    }

    /// Of one row's value.
    pub(super) fn of_value(row: usize, what: impl Into<String>) -> Self {
        Self {
            row: Some(row),
            what: what.into(),
            source: None,
        }
    }

    /// Of a value that the wanted type holds only a part of.
    pub(super) fn of_part(row: usize, value: &str, wanted: &DataType) -> Self {
        Self::of_value(
            row,
            format!(
                "{value} does not fit {} as it is; round it first, or give the column a finer type",
                sql_type_name(wanted)
            ),
        )
    }

    /// Of columns that make no rows.
    pub(super) fn of_rows(source: ArrowError) -> Self {
        Self {
            row: None,
            what: "rows".to_owned(),
            source: Some(source),
        }
    }

    /// The same, said of a column.
    pub(super) fn in_column(mut self, name: &str) -> Self {
        self.what = format!("column {name}: {}", self.what);
        self
    }

    /// The row of the batch, if it is one row's value that does not fit.
    pub fn row(&self) -> Option<usize> {
        self.row
    }

    /// The error, said of the table.
    pub fn in_table(self, table: &str) -> Error {
        self.at(&format!("table {table}"))
    }

    /// The error, said of a line of a file.
    pub fn in_line(self, line: u64) -> Error {
        self.at(&format!("line {line}"))
    }

    fn at(self, place: &str) -> Error {
        let message = format!("{place}, {}", self.what);
        match self.source {
            Some(source) => Error::with_source(ErrorCode::InvalidArgument, message, source),
            None => Error::invalid(message),
        }
    }
}
