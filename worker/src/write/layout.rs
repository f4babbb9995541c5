use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, UInt32Type};
use volary_flight_proto::ids::TableId;
use volary_flight_proto::write::{SHARD_COLUMN, TableDescription};
use volary_flight_proto::{Error, Result, SqlState, ipc};

/// The shard of a reference table.
pub(super) const REFERENCE_SHARD: u32 = 0;

/// The columns of a write, and what they are for.
#[derive(Debug)]
pub(crate) struct WriteLayout {
    table: TableId,
    schema: SchemaRef,
    /// The table's columns, followed by the shard column unless the table is a reference table.
    input: SchemaRef,
    is_sharded: bool,
    shard_key: Option<usize>,
    sort_key: Vec<usize>,
    shards: u32,
}

impl WriteLayout {
    /// Builds the layout from the description of a table.
    ///
    /// # Errors
    /// Returns `INVALID_ARGUMENT` if the description contradicts itself.
    pub(crate) fn new(table: &TableDescription) -> Result<Self> {
        let schema = Arc::new(ipc::schema_from_bytes(&table.schema)?);
        let column = |position: u32| {
            let position = position as usize;
            if position < schema.fields().len() {
                return Ok(position);
            }
            Err(Error::invalid(format!(
                "the write names column {position} of table {}, which has only {} columns",
                table.name,
                schema.fields().len()
            )))
        };
        let shard_key = table.shard_key.map(column).transpose()?;
        let sort_key = table
            .sort_key
            .iter()
            .copied()
            .map(column)
            .collect::<Result<_>>()?;
        // A gateway that knows no tables without a shard key does not send `is_sharded`.
        let is_sharded = table.is_sharded || shard_key.is_some();
        let input = if is_sharded {
            let shard = Arc::new(Field::new(SHARD_COLUMN, DataType::UInt32, false));
            let fields = schema.fields().iter().cloned().chain([shard]);
            Arc::new(Schema::new(fields.collect::<Vec<_>>()))
        } else {
            Arc::clone(&schema)
        };
        Ok(Self {
            table: TableId(table.table_id),
            schema,
            input,
            is_sharded,
            shard_key,
            sort_key,
            shards: table.shards,
        })
    }

    pub(crate) fn table(&self) -> TableId {
        self.table
    }

    /// Returns the table's columns.
    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Returns the columns that arrive.
    pub(super) fn input(&self) -> &SchemaRef {
        &self.input
    }

    /// Returns the position of the shard key among the table's columns, if the table has one.
    pub(crate) fn shard_key(&self) -> Option<usize> {
        self.shard_key
    }

    /// Returns the positions of the sort key among the table's columns.
    pub(crate) fn sort_key(&self) -> &[usize] {
        &self.sort_key
    }

    /// Returns the position of the shard column among the columns that arrive. Returns `None` for a
    /// reference table.
    pub(super) fn shard_column(&self) -> Option<usize> {
        self.is_sharded.then(|| self.schema.fields().len())
    }

    /// Returns the batch with the schema of [`Self::input`], if it fits.
    ///
    /// # Errors
    /// Returns `INVALID_ARGUMENT`, with the column, if the batch does not fit.
    pub(super) fn check(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let expected = self.input.fields();
        if batch.num_columns() != expected.len() {
            return Err(Error::invalid(format!(
                "the rows have {} columns, but {} are expected{}",
                batch.num_columns(),
                expected.len(),
                if self.is_sharded {
                    " (those of the table and the shard)"
                } else {
                    ""
                }
            )));
        }
        for (field, column) in expected.iter().zip(batch.columns()) {
            if column.data_type() != field.data_type() {
                return Err(Error::invalid(format!(
                    "column {} has type {}, but the table says {}",
                    field.name(),
                    column.data_type(),
                    field.data_type()
                )));
            }
            let nulls = column.logical_null_count();
            if nulls > 0 && !field.is_nullable() {
                return Err(Error::invalid(format!(
                    "column {} is NOT NULL, but {nulls} of {} rows have NULL in it",
                    field.name(),
                    batch.num_rows()
                ))
                .with_sqlstate(SqlState::NotNullViolation));
            }
        }
        if let Some(position) = self.shard_column() {
            let largest = compute::max(batch.column(position).as_primitive::<UInt32Type>());
            if let Some(shard) = largest.filter(|shard| *shard >= self.shards) {
                return Err(Error::invalid(format!(
                    "column {SHARD_COLUMN} says shard {shard}, but the table has {} shards",
                    self.shards
                )));
            }
        }
        RecordBatch::try_new(Arc::clone(&self.input), batch.columns().to_vec()).map_err(|source| {
            Error::with_source(
                volary_flight_proto::ErrorCode::InvalidArgument,
                "the rows do not fit the table",
                source,
            )
        })
    }
}
