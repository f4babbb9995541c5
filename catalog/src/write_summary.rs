use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use volary_flight_proto::ids::WorkerId;
use volary_flight_proto::write::{ColumnWritten, WriteResult};
use volary_flight_proto::{Error, Result, ipc};

use super::encoding;
use super::records::TableKind;
use super::statistics::{ColumnStatistics, ShardDelta, TableDelta};
use super::table::Table;

/// What a write adds to its table, summed over the answers of all workers.
#[derive(Debug, Clone, PartialEq)]
pub struct WriteSummary {
    delta: TableDelta,
}

impl WriteSummary {
    /// Builds the summary from the answers of all workers that took rows of the write. Every copy
    /// of a reference table reports the same rows, so they are counted once.
    ///
    /// # Errors
    /// `INTERNAL` if an answer does not fit the table, or if copies of a reference table differ.
    pub fn new(table: &Table, results: &[(WorkerId, WriteResult)]) -> Result<Self> {
        let mut added = TableDelta::empty(table.schema().fields().len());
        let mut first_copy: Option<(WorkerId, u64)> = None;
        for (worker, result) in results {
            // A write of few rows to thousands of workers leaves nearly all of them without rows.
            if result.shards.is_empty() && matches!(table.kind(), TableKind::Sharded { .. }) {
                continue;
            }
            let written = delta_of_worker(table, result).map_err(|error| {
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
        Ok(Self { delta: added })
    }

    /// Returns the number of rows that the write adds.
    pub fn rows(&self) -> u64 {
        self.delta.rows
    }

    /// Returns everything that the write adds.
    pub(super) fn delta(&self) -> &TableDelta {
        &self.delta
    }
}

fn delta_of_worker(table: &Table, result: &WriteResult) -> Result<TableDelta> {
    let fields = table.schema().fields();
    let mut written = TableDelta::empty(fields.len());
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
            .add(ShardDelta {
                rows: shard.rows,
                bytes: shard.bytes,
                segments: u64::from(shard.segments),
            });
        written.rows = written.rows.saturating_add(shard.rows);
    }
    if result.columns.len() == fields.len() {
        for (index, column) in result.columns.iter().enumerate() {
            written.columns[index] = column_statistics(fields[index].data_type(), column)?;
        }
    } else if written.rows > 0 {
        written.columns.fill(ColumnStatistics::default());
    }
    Ok(written)
}

fn column_statistics(data_type: &DataType, column: &ColumnWritten) -> Result<ColumnStatistics> {
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
    let mut bounds = [None, None];
    for batch in batches {
        // A value of another type cannot be compared with the known bounds, so the bounds stay
        // unknown.
        if batch.num_columns() != 1
            || batch.num_rows() != 2
            || batch.column(0).data_type() != data_type
        {
            continue;
        }
        for (index, value) in bounds.iter_mut().enumerate() {
            *value = ScalarValue::try_from_array(batch.column(0), index)
                .map_err(Error::from)
                .map(|value| {
                    (!value.is_null() && encoding::scalar_to_hex(&value).is_some()).then_some(value)
                })?;
        }
    }
    Ok(bounds)
}
