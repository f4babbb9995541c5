//! Rows of some tables expire: queries leave them out, and the worker deletes them later. What a
//! query sees does not depend on whether they are deleted already: it leaves out the rows that had
//! expired when it began, and the worker deletes only rows that had expired for every query that
//! may still come.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::compute::{cast, max, min};
use datafusion::arrow::datatypes::{DataType, Int64Type, Schema, TimeUnit};
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, IsNullExpr, Literal};
use parquet::arrow::arrow_reader::ArrowReaderMetadata;
use parquet::arrow::arrow_reader::statistics::StatisticsConverter;
use volary_flight_proto::fragment::Expiry;

/// Microseconds of a day.
const DAY_US: i64 = 24 * 60 * 60 * 1_000_000;

/// The first time at which a row has not expired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cutoff {
    /// Position of the column with the times of the rows, in the table's schema.
    column: usize,
    data_type: DataType,
    /// The time, in the unit of the column.
    time: i64,
}

/// The times of the rows of a segment, in the unit of their column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TimeRange {
    /// The earliest and the latest time. `None` if no row has a time, or if this is not known.
    bounds: Option<(i64, i64)>,
    /// Says whether there may be rows without a time.
    may_have_nulls: bool,
}

/// How many rows of a segment have expired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expired {
    /// All rows.
    All,
    /// About half of the rows, or more.
    Many,
    /// Few rows, or none.
    Few,
}

impl Cutoff {
    /// Returns the cutoff at this time, in microseconds since 1970. Returns `None` if no row can
    /// have expired, or if the column has no times.
    pub(crate) fn at(time_us: i64, expiry: &Expiry, schema: &Schema) -> Option<Self> {
        let column = usize::try_from(expiry.time_column).ok()?;
        let data_type = schema.fields().get(column)?.data_type().clone();
        let cutoff_us = time_us.checked_sub_unsigned(expiry.keep_us)?;
        let time = match &data_type {
            DataType::Timestamp(TimeUnit::Second, _) => divide_up(cutoff_us, 1_000_000),
            DataType::Timestamp(TimeUnit::Millisecond, _) | DataType::Date64 => {
                divide_up(cutoff_us, 1_000)
            }
            DataType::Timestamp(TimeUnit::Microsecond, _) => cutoff_us,
            DataType::Timestamp(TimeUnit::Nanosecond, _) => cutoff_us.checked_mul(1_000)?,
            DataType::Date32 => divide_up(cutoff_us, DAY_US),
            _ => return None,
        };
        Some(Self {
            column,
            data_type,
            time,
        })
    }

    /// Returns the position of the column with the times, in the table's schema.
    pub(crate) fn column(&self) -> usize {
        self.column
    }

    /// Returns the condition that is true for rows that have not expired. `schema` has the time
    /// column at `position`.
    ///
    /// # Errors
    /// Returns an error if the column has another type.
    pub(crate) fn condition(
        &self,
        schema: &Schema,
        position: usize,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        let field = schema.field(position);
        if *field.data_type() != self.data_type {
            return Err(DataFusionError::Internal(format!(
                "the time column {} has the type {} instead of {}",
                field.name(),
                field.data_type(),
                self.data_type
            )));
        }
        let time: Arc<dyn PhysicalExpr> = Arc::new(Column::new(field.name(), position));
        let cutoff: Arc<dyn PhysicalExpr> = Arc::new(Literal::new(self.value()?));
        let kept: Arc<dyn PhysicalExpr> =
            Arc::new(BinaryExpr::new(Arc::clone(&time), Operator::GtEq, cutoff));
        if !field.is_nullable() {
            return Ok(kept);
        }
        let timeless = Arc::new(IsNullExpr::new(time));
        Ok(Arc::new(BinaryExpr::new(kept, Operator::Or, timeless)))
    }

    fn value(&self) -> Result<ScalarValue> {
        ScalarValue::Int64(Some(self.time))
            .cast_to(&match self.data_type {
                // There is no cast from 64 bits to a date.
                DataType::Date32 => DataType::Int32,
                _ => DataType::Int64,
            })?
            .cast_to(&self.data_type)
    }

    /// Returns how many rows with these times have expired, if they are spread evenly.
    pub(crate) fn expired(&self, times: TimeRange) -> Expired {
        let Some((earliest, latest)) = times.bounds else {
            return Expired::Few;
        };
        if latest < self.time && !times.may_have_nulls {
            return Expired::All;
        }
        let middle = earliest.midpoint(latest);
        if earliest < self.time && middle < self.time {
            return Expired::Many;
        }
        Expired::Few
    }
}

/// Divides, and rounds up.
fn divide_up(value: i64, by: i64) -> i64 {
    value.div_euclid(by) + i64::from(value.rem_euclid(by) != 0)
}

impl TimeRange {
    /// Reads the times of a segment from the metadata of its file. `name` is the time column.
    ///
    /// # Errors
    /// Returns an error if the metadata does not fit the column.
    pub(crate) fn of_file(metadata: &ArrowReaderMetadata, name: &str) -> Result<Self> {
        let file = metadata.metadata();
        let converter = StatisticsConverter::try_new(
            name,
            metadata.schema(),
            file.file_metadata().schema_descr(),
        )?;
        let groups = file.row_groups();
        let earliest = as_numbers(&converter.row_group_mins(groups)?)?;
        let latest = as_numbers(&converter.row_group_maxes(groups)?)?;
        let nulls = converter.row_group_null_counts(groups)?;
        let is_unknown = |group: usize| {
            // A group without times has no bounds, either.
            let has_only_nulls = nulls.is_valid(group)
                && i64::try_from(nulls.value(group)) == Ok(groups[group].num_rows());
            (earliest.is_null(group) || latest.is_null(group)) && !has_only_nulls
        };
        let bounds = match (0..groups.len()).any(is_unknown) {
            true => None,
            false => min(earliest.as_primitive::<Int64Type>())
                .zip(max(latest.as_primitive::<Int64Type>())),
        };
        Ok(Self {
            bounds,
            may_have_nulls: nulls.iter().any(|count| count != Some(0)),
        })
    }
}

fn as_numbers(times: &ArrayRef) -> Result<ArrayRef> {
    let times = match times.data_type() {
        DataType::Date32 => cast(times, &DataType::Int32)?,
        _ => Arc::clone(times),
    };
    Ok(cast(&times, &DataType::Int64)?)
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{BooleanArray, Int64Array, RecordBatch};
    use datafusion::arrow::datatypes::Field;

    use super::*;

    const SECOND: i64 = 1_000_000;

    fn schema(data_type: DataType, is_nullable: bool) -> Schema {
        Schema::new(vec![
            Field::new("k", DataType::Int64, false),
            Field::new("t", data_type, is_nullable),
        ])
    }

    fn cutoff(time_us: i64, keep_us: u64, data_type: &DataType) -> Option<Cutoff> {
        let expiry = Expiry {
            time_column: 1,
            keep_us,
        };
        Cutoff::at(time_us, &expiry, &schema(data_type.clone(), true))
    }

    #[test]
    fn a_row_expires_when_its_time_is_further_in_the_past_than_rows_are_kept() {
        let types = [
            (DataType::Timestamp(TimeUnit::Second, None), SECOND),
            (
                DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into())),
                1000,
            ),
            (DataType::Timestamp(TimeUnit::Microsecond, None), 1),
            (DataType::Date64, 1000),
            (DataType::Date32, DAY_US),
        ];
        for (data_type, unit_us) in types {
            for now_us in [-3 * DAY_US - 1, 0, 7, 5 * DAY_US, 5 * DAY_US + 700_001] {
                let keep_us = 2 * DAY_US.unsigned_abs();
                let cutoff = cutoff(now_us, keep_us, &data_type).unwrap();
                let middle = cutoff.time;
                let times: Vec<_> = (middle - 3..middle + 3).map(Some).collect();
                let numbers: ArrayRef =
                    Arc::new(times.iter().copied().chain([None]).collect::<Int64Array>());
                let numbers = match data_type {
                    DataType::Date32 => cast(&numbers, &DataType::Int32).unwrap(),
                    _ => numbers,
                };
                let column = cast(&numbers, &data_type).unwrap();
                let schema = Schema::new(vec![Field::new("t", data_type.clone(), true)]);
                let batch = RecordBatch::try_new(Arc::new(schema.clone()), vec![column]).unwrap();
                let condition = cutoff.condition(&schema, 0).unwrap();
                let kept = condition.evaluate(&batch).unwrap();
                let kept = kept.into_array(batch.num_rows()).unwrap();
                let expected: Vec<_> = times
                    .into_iter()
                    .map(|time| time.unwrap() * unit_us >= now_us - 2 * DAY_US)
                    .chain([true])
                    .collect();
                assert_eq!(
                    *kept.as_boolean(),
                    BooleanArray::from(expected),
                    "{data_type} at {now_us}"
                );
            }
        }
    }

    #[test]
    fn nothing_expires_where_the_clock_has_no_such_time() {
        let nanoseconds = DataType::Timestamp(TimeUnit::Nanosecond, None);
        assert!(cutoff(0, 300 * 365 * DAY_US.unsigned_abs(), &nanoseconds).is_none());
        assert!(cutoff(i64::MIN, 1, &nanoseconds).is_none());
        assert!(cutoff(0, 1, &DataType::Int64).is_none());
    }

    #[test]
    fn a_segment_is_judged_by_its_bounds() {
        let data_type = DataType::Timestamp(TimeUnit::Microsecond, None);
        let cutoff = cutoff(100, 0, &data_type).unwrap();
        let of = |bounds, may_have_nulls| {
            cutoff.expired(TimeRange {
                bounds,
                may_have_nulls,
            })
        };
        assert_eq!(of(Some((0, 99)), false), Expired::All);
        assert_eq!(of(Some((0, 99)), true), Expired::Many);
        assert_eq!(of(Some((0, 100)), false), Expired::Many);
        assert_eq!(of(Some((0, 199)), false), Expired::Many);
        assert_eq!(of(Some((0, 200)), false), Expired::Few);
        assert_eq!(of(Some((100, 100)), true), Expired::Few);
        assert_eq!(of(None, true), Expired::Few);
    }
}
