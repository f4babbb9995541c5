//! Parquet's own type of intervals has no digits below milliseconds, and the Rust writer refuses
//! Arrow's intervals of months, days and nanoseconds. So segments store an interval as a group of
//! these three numbers. Other readers of Parquet can read it, too.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Int32Array, Int64Array, PrimitiveArray, RecordBatch, StructArray,
};
use arrow::datatypes::{
    DataType, Field, Fields, Int32Type, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType,
    Schema, SchemaRef,
};
use arrow::error::ArrowError;
use datafusion::common::{ScalarValue, internal_err};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::physical_expr::ScalarFunctionExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr_common::physical_expr::PhysicalExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::projection::ProjectionExec;
use volary_exec::intervals::INTERVAL;

/// Returns the columns of the files of a table with these columns.
pub(crate) fn stored_schema(schema: &SchemaRef) -> SchemaRef {
    let mut fields = schema.fields().iter();
    if !fields.any(|field| *field.data_type() == INTERVAL) {
        return Arc::clone(schema);
    }
    let stored = schema.fields().iter().map(|field| {
        if *field.data_type() == INTERVAL {
            Arc::new(Field::clone(field).with_data_type(DataType::Struct(parts())))
        } else {
            Arc::clone(field)
        }
    });
    let stored: Fields = stored.collect();
    Arc::new(Schema::new_with_metadata(stored, schema.metadata().clone()))
}

/// Returns the columns of the parts of an interval.
fn parts() -> Fields {
    Fields::from(vec![
        Field::new("months", DataType::Int32, false),
        Field::new("days", DataType::Int32, false),
        Field::new("nanoseconds", DataType::Int64, false),
    ])
}

pub(super) fn has_intervals(rows: &RecordBatch) -> bool {
    let mut columns = rows.columns().iter();
    columns.any(|column| *column.data_type() == INTERVAL)
}

/// Returns rows of the table as rows of its files, which have the schema `stored`.
///
/// # Errors
/// Fails if the rows are not rows of the table.
pub(super) fn to_stored(rows: &RecordBatch, stored: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let columns = rows.columns().iter().map(|column| {
        if *column.data_type() == INTERVAL {
            split(column.as_primitive())
        } else {
            Ok(Arc::clone(column))
        }
    });
    RecordBatch::try_new(Arc::clone(stored), columns.collect::<Result<_, _>>()?)
}

/// Returns rows of a table as rows of its files.
///
/// # Errors
/// Fails if the rows are not rows of the table.
pub(crate) fn to_stored_rows(rows: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    to_stored(rows, &stored_schema(rows.schema_ref()))
}

/// Splits intervals into their parts.
fn split(intervals: &PrimitiveArray<IntervalMonthDayNanoType>) -> Result<ArrayRef, ArrowError> {
    let values = intervals.values().iter();
    let months = Int32Array::from_iter_values(values.clone().map(|value| value.months));
    let days = Int32Array::from_iter_values(values.clone().map(|value| value.days));
    let nanoseconds = Int64Array::from_iter_values(values.map(|value| value.nanoseconds));
    let columns: Vec<ArrayRef> = vec![Arc::new(months), Arc::new(days), Arc::new(nanoseconds)];
    let split = StructArray::try_new(parts(), columns, intervals.nulls().cloned())?;
    Ok(Arc::new(split))
}

/// Returns a scan of a table's files as a scan of the table. `schema` is that of the table, and
/// `projection` are the positions in it of the columns that are read.
///
/// # Errors
/// Fails if the scan has other columns.
pub(crate) fn with_intervals(
    scan: Arc<dyn ExecutionPlan>,
    schema: &Schema,
    projection: &[usize],
) -> Result<Arc<dyn ExecutionPlan>> {
    let read = projection.iter().map(|column| schema.field(*column));
    if read.clone().all(|field| *field.data_type() != INTERVAL) {
        return Ok(scan);
    }
    let expressions = read.enumerate().map(|(position, field)| {
        let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(field.name(), position));
        let expression = if *field.data_type() == INTERVAL {
            Arc::new(ScalarFunctionExpr::new(
                JOIN_NAME,
                Arc::new(ScalarUDF::from(JoinParts(Signature::any(
                    1,
                    Volatility::Immutable,
                )))),
                vec![column],
                Arc::new(field.clone()),
                Arc::new(ConfigOptions::default()),
            ))
        } else {
            column
        };
        (expression, field.name().clone())
    });
    let expressions: Vec<_> = expressions.collect();
    Ok(Arc::new(ProjectionExec::try_new(expressions, scan)?))
}

const JOIN_NAME: &str = "interval_of_parts";

/// The function that joins the parts of intervals. No statement can call it by its name.
#[derive(Debug, PartialEq, Eq, Hash)]
struct JoinParts(Signature);

impl ScalarUDFImpl for JoinParts {
    fn name(&self) -> &'static str {
        JOIN_NAME
    }

    fn signature(&self) -> &Signature {
        &self.0
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(INTERVAL)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [values] = args.args.as_slice() else {
            return internal_err!("{JOIN_NAME} takes one argument");
        };
        Ok(match values {
            ColumnarValue::Array(values) => ColumnarValue::Array(join(values)?),
            ColumnarValue::Scalar(value) => {
                let joined = join(&value.to_array()?)?;
                ColumnarValue::Scalar(ScalarValue::try_from_array(&joined, 0)?)
            }
        })
    }
}

/// Joins the parts of intervals.
fn join(values: &ArrayRef) -> Result<ArrayRef> {
    let Some(parts) = values.as_struct_opt() else {
        return internal_err!("{JOIN_NAME} takes the parts of intervals");
    };
    let [months, days, nanoseconds] = parts.columns() else {
        return internal_err!("an interval has three parts");
    };
    let months = months.as_primitive::<Int32Type>().values();
    let days = days.as_primitive::<Int32Type>().values();
    let nanoseconds = nanoseconds.as_primitive::<Int64Type>().values();
    let intervals = months.iter().zip(days).zip(nanoseconds);
    let intervals =
        intervals.map(|((months, days), nanos)| IntervalMonthDayNano::new(*months, *days, *nanos));
    let joined = PrimitiveArray::<IntervalMonthDayNanoType>::try_new(
        intervals.collect(),
        parts.nulls().cloned(),
    )?;
    Ok(Arc::new(joined))
}

#[cfg(test)]
mod tests {
    use arrow::array::IntervalMonthDayNanoArray;

    use super::*;

    #[test]
    fn intervals_are_split_and_joined() {
        let fields = vec![
            Field::new("k", DataType::Int32, false),
            Field::new("i", INTERVAL, true),
        ];
        let schema = Arc::new(Schema::new(fields));
        let stored = stored_schema(&schema);
        assert_eq!(stored.field(0), schema.field(0));
        assert_eq!(stored.field(1).data_type(), &DataType::Struct(parts()));
        let intervals = IntervalMonthDayNanoArray::from(vec![
            Some(IntervalMonthDayNano::new(14, -3, 5)),
            None,
            Some(IntervalMonthDayNano::new(i32::MIN, i32::MAX, i64::MIN)),
        ]);
        let numbers = Int32Array::from(vec![1, 2, 3]);
        let columns: Vec<ArrayRef> = vec![Arc::new(numbers), Arc::new(intervals.clone())];
        let rows = RecordBatch::try_new(schema, columns).unwrap();
        let written = to_stored(&rows, &stored).unwrap();
        assert_eq!(written.column(1).null_count(), 1);
        let read = join(written.column(1)).unwrap();
        assert_eq!(read.as_primitive::<IntervalMonthDayNanoType>(), &intervals);
    }

    #[test]
    fn other_tables_are_stored_as_they_are() {
        let fields = vec![Field::new("k", DataType::Int32, false)];
        let schema = Arc::new(Schema::new(fields));
        assert!(Arc::ptr_eq(&stored_schema(&schema), &schema));
    }
}
