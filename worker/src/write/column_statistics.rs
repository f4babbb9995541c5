use std::sync::Arc;

use arrow::array::{Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use bytes::Bytes;
use datafusion::common::ScalarValue;
use datafusion::functions_aggregate::min_max::{MaxAccumulator, MinAccumulator};
use datafusion::logical_expr::Accumulator;
use volary_exec::uuids::UUID;
use volary_flight_proto::write::{ColumnWritten, ShardWritten, WriteResult};
use volary_flight_proto::{Result, ipc};

/// Length above which a text bound is not kept, in bytes. Longer bounds are of little use, and
/// every plan would carry them.
const MAX_BOUND_BYTES: usize = 64;

/// Number of NULLs and bounds of a table's columns. The bounds are those of SQL's MIN and MAX,
/// where NaN is the largest number. Parquet's own bounds leave NaN out, and cut long strings.
#[derive(Debug)]
pub(super) struct ColumnStatistics {
    schema: SchemaRef,
    columns: Vec<Column>,
}

#[derive(Debug)]
struct Column {
    nulls: u64,
    bounds: Option<(MinAccumulator, MaxAccumulator)>,
}

impl ColumnStatistics {
    pub(super) fn new(schema: &SchemaRef) -> Result<Self> {
        let column = |field: &Arc<Field>| {
            let data_type = field.data_type();
            let bounds = if has_bounds(data_type) {
                Some((
                    MinAccumulator::try_new(data_type)?,
                    MaxAccumulator::try_new(data_type)?,
                ))
            } else {
                None
            };
            Ok(Column { nulls: 0, bounds })
        };
        Ok(Self {
            schema: Arc::clone(schema),
            columns: schema.fields().iter().map(column).collect::<Result<_>>()?,
        })
    }

    /// Adds rows. Columns beyond those of the table are ignored.
    pub(super) fn update(&mut self, batch: &RecordBatch) -> Result<()> {
        for (column, array) in self.columns.iter_mut().zip(batch.columns()) {
            column.nulls += array.logical_null_count() as u64;
            if let Some((min, max)) = &mut column.bounds {
                min.update_batch(std::slice::from_ref(array))?;
                max.update_batch(std::slice::from_ref(array))?;
            }
        }
        Ok(())
    }

    /// Adds the statistics of other rows of the same table.
    pub(super) fn merge(&mut self, other: Self) -> Result<()> {
        for (column, other) in self.columns.iter_mut().zip(other.columns) {
            column.nulls += other.nulls;
            if let (Some((min, max)), Some((mut other_min, mut other_max))) =
                (&mut column.bounds, other.bounds)
            {
                min.update_batch(&[other_min.evaluate()?.to_array()?])?;
                max.update_batch(&[other_max.evaluate()?.to_array()?])?;
            }
        }
        Ok(())
    }

    /// Returns the result of a write of rows with these statistics. `shards` says what was written
    /// to each shard.
    pub(super) fn into_result(self, shards: Vec<ShardWritten>) -> Result<WriteResult> {
        let mut columns = Vec::with_capacity(self.columns.len());
        let (mut fields, mut values) = (Vec::new(), Vec::new());
        for (column, field) in self.columns.into_iter().zip(self.schema.fields()) {
            let mut written = ColumnWritten {
                nulls: column.nulls,
                has_bounds: false,
            };
            if let Some((mut min, mut max)) = column.bounds {
                let bounds = [min.evaluate()?, max.evaluate()?];
                if bounds.iter().all(is_useful_bound) {
                    written.has_bounds = true;
                    fields.push(Field::new(field.name(), field.data_type().clone(), true));
                    values.push(ScalarValue::iter_to_array(bounds)?);
                }
            }
            columns.push(written);
        }
        let mut result = WriteResult {
            shards,
            columns,
            bounds: Bytes::new(),
        };
        if !values.is_empty() {
            let schema = Arc::new(Schema::new(fields));
            let rows = RecordBatch::try_new(Arc::clone(&schema), values)
                .map_err(datafusion::error::DataFusionError::from)?;
            result.bounds = ipc::batches_to_bytes(&schema, &[rows])?;
        }
        Ok(result)
    }
}

fn has_bounds(data_type: &DataType) -> bool {
    data_type.is_integer()
        || data_type.is_floating()
        || *data_type == UUID
        || matches!(
            data_type,
            DataType::Decimal32(..)
                | DataType::Decimal64(..)
                | DataType::Decimal128(..)
                | DataType::Decimal256(..)
                | DataType::Date32
                | DataType::Date64
                | DataType::Timestamp(..)
                | DataType::Duration(..)
                | DataType::Utf8
                | DataType::LargeUtf8
                | DataType::Utf8View
        )
}

fn is_useful_bound(bound: &ScalarValue) -> bool {
    let text = bound.try_as_str().flatten();
    !bound.is_null() && text.is_none_or(|text| text.len() <= MAX_BOUND_BYTES)
}
