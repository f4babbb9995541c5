use std::fmt;
use std::time::Duration;

use arrow::datatypes::{DataType, Schema};
use serde::{Deserialize, Serialize};
use volary_flight_proto::fragment::Expiry;
use volary_flight_proto::{Error, Result, SqlState};

/// The longest time for which rows may be kept: 1,000 years. Longer times cannot be subtracted from
/// all clocks.
const LONGEST: Duration = Duration::from_secs(1000 * 365 * 24 * 60 * 60);

/// How long the rows of a table are kept. A row that is older than that is not seen any more, and
/// is deleted later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retention {
    /// Position of the column with the times of the rows. Rows without a time are kept.
    pub time_column: usize,
    /// The time for which rows are kept.
    pub keep: Duration,
}

impl Retention {
    /// Refuses a retention that does not fit a table with these columns.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` with what is wrong, and `INTERNAL` for a column that does not exist.
    pub(super) fn check(&self, schema: &Schema) -> Result<()> {
        let Some(field) = schema.fields().get(self.time_column) else {
            return Err(Error::internal(format!(
                "the time column is column {}, but there are {} columns",
                self.time_column,
                schema.fields().len()
            )));
        };
        if !matches!(
            field.data_type(),
            DataType::Timestamp(..) | DataType::Date32 | DataType::Date64
        ) {
            return Err(Error::invalid(format!(
                "time_column = '{}': a column of type {} has no times; choose a column of type TIMESTAMP or DATE",
                field.name(),
                field.data_type()
            ))
            .with_sqlstate(SqlState::InvalidTableDefinition));
        }
        if self.keep < Duration::from_micros(1) || self.keep > LONGEST {
            return Err(Error::invalid(format!(
                "retention = '{self}': rows are kept for a microsecond to a thousand years"
            ))
            .with_sqlstate(SqlState::InvalidTableDefinition));
        }
        Ok(())
    }

    /// Returns what workers must know to leave out rows that have expired.
    pub fn expiry(&self) -> Expiry {
        Expiry {
            time_column: u32::try_from(self.time_column).unwrap_or(u32::MAX),
            keep_us: u64::try_from(self.keep.as_micros()).unwrap_or(u64::MAX),
        }
    }
}

/// Shows the time for which rows are kept, as users write it: `30days`.
impl fmt::Display for Retention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_duration(self.keep).fmt(f)
    }
}
