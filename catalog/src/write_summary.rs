//! Reads what a write adds to its table from the answers of the workers that took its rows.

use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use volary_flight_proto::ids::WorkerId;
use volary_flight_proto::write::{ColumnWritten, WriteResult};
use volary_flight_proto::{Error, Result, ipc};

use super::encoding;
use super::records::TableKind;
use super::statistics::{Added, ColumnStatistics, ShardAdded};
use super::table::Table;

/// What a write adds to its table, summed over the answers of all workers.
#[derive(Debug, Clone, PartialEq)]
pub struct WriteSummary {
    added: Added,
}

impl WriteSummary {
    /// Builds the summary from the answers of all workers that took rows of the write. Every copy
    /// of a reference table reports the same rows, so they are counted once.
    ///
    /// # Errors
    /// `INTERNAL` if an answer does not fit the table, or if copies of a reference table differ.
    pub fn new(table: &Table, results: &[(WorkerId, WriteResult)]) -> Result<Self> {
        let mut added = Added::nothing(table.schema().fields().len());
        let mut first_copy: Option<(WorkerId, u64)> = None;
        for (worker, result) in results {
            // A write of few rows to thousands of workers leaves nearly all of them without rows.
            if result.shards.is_empty() && matches!(table.kind(), TableKind::Sharded { .. }) {
                continue;
            }
            let written = of_one_worker(table, result).map_err(|error| {
                error.at(format!(
                    "worker {worker}'s answer to a write to table \"{}\"",
                    table.name()
                ))
            })?;
            if let TableKind::Reference { .. } = table.kind() {
                if let Some((other, rows)) = first_copy {
                    if rows != written.rows {
                        return Err(Error::internal(format!(
                            "worker {other} wrote {rows} rows to its copy of table \"{}\" and worker {worker} {}; please report this",
                            table.name(),
                            written.rows
                        )));
                    }
                    continue;
                }
                first_copy = Some((*worker, written.rows));
            }
            added.add(&written);
        }
        Ok(Self { added })
    }

    /// Returns the number of rows that the write adds.
    pub fn rows(&self) -> u64 {
        self.added.rows
    }

    /// Returns everything that the write adds.
    pub(super) fn added(&self) -> &Added {
        &self.added
    }
}

fn of_one_worker(table: &Table, result: &WriteResult) -> Result<Added> {
    let fields = table.schema().fields();
    let mut written = Added::nothing(fields.len());
    for shard in &result.shards {
        if shard.shard >= table.shards() {
            return Err(Error::internal(format!(
                "it names shard {}, but the table has {} shards; please report this",
                shard.shard,
                table.shards()
            )));
        }
        written
            .shards
            .entry(shard.shard)
            .or_default()
            .add(ShardAdded {
                rows: shard.rows,
                bytes: shard.bytes,
                segments: u64::from(shard.segments),
            });
        written.rows = written.rows.saturating_add(shard.rows);
    }
    if result.columns.len() == fields.len() {
        for (index, column) in result.columns.iter().enumerate() {
            written.columns[index] = of_column(fields[index].data_type(), column)?;
        }
    } else if written.rows > 0 {
        written.columns.fill(ColumnStatistics::default());
    }
    Ok(written)
}

fn of_column(data_type: &DataType, column: &ColumnWritten) -> Result<ColumnStatistics> {
    let [min, max] = if column.min_max.is_empty() {
        [None, None]
    } else {
        read_min_max(data_type, &column.min_max)?
    };
    Ok(ColumnStatistics {
        nulls: Some(column.nulls),
        min,
        max,
    })
}

fn read_min_max(data_type: &DataType, stream: &[u8]) -> Result<[Option<ScalarValue>; 2]> {
    let (_, batches) = ipc::batches_from_bytes(stream)?;
    let mut found = [None, None];
    for batch in batches {
        // A value of another type cannot be compared with the known bounds, so the bounds stay
        // unknown.
        if batch.num_columns() != 1
            || batch.num_rows() != 2
            || batch.column(0).data_type() != data_type
        {
            continue;
        }
        for (index, value) in found.iter_mut().enumerate() {
            *value = ScalarValue::try_from_array(batch.column(0), index)
                .map_err(Error::from)
                .map(|value| {
                    (!value.is_null() && encoding::scalar_to_hex(&value).is_some()).then_some(value)
                })?;
        }
    }
    Ok(found)
}
