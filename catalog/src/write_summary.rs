use arrow::array::{Array, RecordBatch};
use arrow::datatypes::Fields;
use datafusion::common::ScalarValue;
use volary_flight_proto::ids::WorkerId;
use volary_flight_proto::write::WriteResult;
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
        written.columns = column_statistics(fields, result)?;
    } else if written.rows > 0 {
        written.columns.fill(ColumnStatistics::default());
    }
    Ok(written)
}

fn column_statistics(fields: &Fields, result: &WriteResult) -> Result<Vec<ColumnStatistics>> {
    let bounds = read_bounds(result)?;
    let mut bounds = bounds.iter().flat_map(RecordBatch::columns);
    let columns = result.columns.iter().zip(fields);
    let columns = columns.map(|(column, field)| {
        let bounds = column.has_bounds.then(|| bounds.next()).flatten();
        let [min, max] = match bounds {
            Some(bounds) if bounds.data_type() == field.data_type() => {
                [known_bound(bounds, 0)?, known_bound(bounds, 1)?]
            }
            // A value of another type cannot be compared with the bounds of other writes.
            _ => [None, None],
        };
        Ok(ColumnStatistics {
            nulls: Some(column.nulls),
            min,
            max,
        })
    });
    columns.collect()
}

/// Returns the two rows with the bounds. Returns `None` if there are no bounds.
fn read_bounds(result: &WriteResult) -> Result<Option<RecordBatch>> {
    let columns = result.columns.iter();
    let expected = columns.filter(|column| column.has_bounds).count();
    if expected == 0 {
        return Ok(None);
    }
    let (_, mut batches) = ipc::batches_from_bytes(&result.bounds)?;
    match (batches.pop(), batches.is_empty()) {
        (Some(rows), true) if rows.num_rows() == 2 && rows.num_columns() == expected => {
            Ok(Some(rows))
        }
        _ => Err(Error::internal(format!(
            "its bounds are not two rows of {expected} columns; please report this"
        ))),
    }
}

fn known_bound(bounds: &dyn Array, row: usize) -> Result<Option<ScalarValue>> {
    let value = ScalarValue::try_from_array(bounds, row)?;
    let is_known = !value.is_null() && encoding::scalar_to_hex(&value).is_some();
    Ok(is_known.then_some(value))
}
