use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use volary_flight_proto::{Error, ErrorCode, SqlState};

use crate::sql_type::sql_type_name;

/// The reason why rows do not fit.
#[derive(Debug)]
pub(crate) struct Misfit {
    row: Option<usize>,
    sqlstate: SqlState,
    reason: String,
    source: Option<ArrowError>,
}

impl Misfit {
    /// Creates the misfit of a cast that has failed because of the column's type, or because of a
    /// value that `source` names.
    pub(super) fn of_type(column: &DataType, wanted: &DataType, source: ArrowError) -> Self {
        Self {
            row: None,
            sqlstate: SqlState::of_arrow(&source),
            reason: format!(
                "{} does not fit the column's type {}",
                sql_type_name(column),
                sql_type_name(wanted)
            ),
            source: Some(source),
        }
    }

    /// Creates the misfit of the value in one row.
    pub(super) fn of_value(row: usize, sqlstate: SqlState, what: impl Into<String>) -> Self {
        Self {
            row: Some(row),
            sqlstate,
            reason: what.into(),
            source: None,
        }
    }

    /// Creates the misfit of a value that the wanted type can hold only in part.
    pub(super) fn of_lossy_value(row: usize, value: &str, wanted: &DataType) -> Self {
        Self::of_value(
            row,
            SqlState::NumericValueOutOfRange,
            format!(
                "{value} does not fit {} without loss; round it first, or give the column a more precise type",
                sql_type_name(wanted)
            ),
        )
    }

    /// Creates the misfit of a default that cannot be computed.
    pub(super) fn of_default(error: &Error) -> Self {
        Self {
            row: None,
            sqlstate: error.sqlstate(),
            reason: format!("its default cannot be computed: {}", error.message()),
            source: None,
        }
    }

    /// Creates the misfit of columns that cannot be combined into rows.
    pub(super) fn of_rows(source: ArrowError) -> Self {
        Self {
            row: None,
            sqlstate: SqlState::of_arrow(&source),
            reason: "rows".to_owned(),
            source: Some(source),
        }
    }

    /// Adds the name of the column to the misfit.
    pub(super) fn in_column(mut self, name: &str) -> Self {
        self.reason = format!("column {name}: {}", self.reason);
        self
    }

    /// Returns the row of the batch, if the value of one row does not fit.
    pub(crate) fn row(&self) -> Option<usize> {
        self.row
    }

    /// Converts the misfit into an error that names the table.
    pub(crate) fn in_table(self, table: &str) -> Error {
        self.into_error(&format!("table {table}"))
    }

    /// Converts the misfit into an error that names the line of a file.
    pub(crate) fn in_line(self, line: u64) -> Error {
        self.into_error(&format!("line {line}"))
    }

    fn into_error(self, place: &str) -> Error {
        let message = format!("{place}, {}", self.reason);
        let error = match self.source {
            Some(source) => Error::with_source(ErrorCode::InvalidArgument, message, source),
            None => Error::invalid(message),
        };
        error.with_sqlstate(self.sqlstate)
    }
}
