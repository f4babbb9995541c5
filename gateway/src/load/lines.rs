//! Which line of a text file an error is about.
//!
//! Lines are counted as records: line breaks within quotes and empty lines, which the readers skip, do not count.

use std::sync::Arc;

use arrow::array::{Array, RecordBatch};
use arrow::datatypes::Schema;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use futures::StreamExt;
use volary_flight_proto::{Error, ErrorCode};

use super::file_errors;

/// Records that are read again, one by one, for the line of an error: some seconds' work.
const MAX_SEARCHED: u64 = 1_000_000;

/// How the records of a file are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lines {
    /// They are not: the file is no text.
    None,
    /// One after the other, after the header if there is one.
    Csv {
        /// Whether the first line is none of the records.
        has_header: bool,
    },
    /// One after the other.
    Json,
}

impl Lines {
    /// An error of reading records, after `read` of them were read.
    pub(super) async fn of_reading(
        self,
        error: Error,
        read: u64,
        columns: &Schema,
        plan: Arc<dyn ExecutionPlan>,
        task: &TaskContext,
    ) -> Error {
        match self {
            Self::None => error,
            Self::Csv { has_header } => file_errors::of_row(error, columns, has_header),
            Self::Json if error.code() != ErrorCode::InvalidArgument => error,
            Self::Json => match first_bad_record(plan, task).await {
                Some((line, error)) => error.at(format!("line {line}")),
                None => error.at(format!("after line {read}")),
            },
        }
    }

    /// An error of a NULL in `batch`, before which `read` records were read. `columns` are the table's.
    pub(super) fn of_null(
        self,
        error: Error,
        read: u64,
        batch: &RecordBatch,
        columns: &Schema,
    ) -> Error {
        let header = match self {
            Self::None => return error,
            Self::Csv { has_header } => u64::from(has_header),
            Self::Json => 0,
        };
        match first_null(batch, columns) {
            Some(row) => error.at(format!("line {}", read + header + row + 1)),
            None => error,
        }
    }
}

/// The first row with a NULL in a column that takes none, in the order of the table's columns.
fn first_null(batch: &RecordBatch, columns: &Schema) -> Option<u64> {
    let required = columns.fields().iter().filter(|field| !field.is_nullable());
    required
        .filter_map(|field| {
            let schema = batch.schema_ref();
            let is_same = |name: &str| name.eq_ignore_ascii_case(field.name());
            let position = schema.index_of(field.name()).ok().or_else(|| {
                let mut fields = schema.fields().iter();
                fields.position(|column| is_same(column.name()))
            })?;
            let column = batch.column(position);
            (0..column.len()).find(|row| column.is_null(*row))
        })
        .map(|row| row as u64)
        .next()
}

/// Reads records one by one until the first that cannot be read. The reader of JSON does not say which one it is.
async fn first_bad_record(
    plan: Arc<dyn ExecutionPlan>,
    task: &TaskContext,
) -> Option<(u64, Error)> {
    let config = task.session_config().clone().with_batch_size(1);
    let one_by_one = TaskContext::default()
        .with_session_config(config)
        .with_runtime(task.runtime_env());
    // Without it, the plan goes on behind what it has read already.
    let again = plan.reset_state().ok()?;
    let mut records = execute_stream(again, Arc::new(one_by_one)).ok()?;
    let mut read = 0;
    while read < MAX_SEARCHED {
        match records.next().await? {
            Ok(batch) => read += batch.num_rows() as u64,
            Err(error) => return Some((read + 1, error.into())),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array};
    use arrow::datatypes::{DataType, Field};

    use super::*;

    #[test]
    fn a_null_is_found_with_its_line() {
        let columns = Schema::new(vec![
            Field::new("name", DataType::Int64, true),
            Field::new("k", DataType::Int64, false),
        ]);
        let of = |values: Vec<Option<i64>>| Arc::new(Int64Array::from(values)) as ArrayRef;
        let batch = RecordBatch::try_from_iter_with_nullable([
            ("K", of(vec![Some(1), Some(2), None]), true),
            ("name", of(vec![None, None, None]), true),
        ])
        .unwrap();
        let text = |lines: Lines| {
            let error = lines.of_null(Error::invalid("x"), 100, &batch, &columns);
            error.message().to_owned()
        };
        assert_eq!(text(Lines::Csv { has_header: true }), "line 104: x");
        assert_eq!(text(Lines::Json), "line 103: x");
        assert_eq!(text(Lines::None), "x");
    }
}
