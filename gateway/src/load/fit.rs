//! Rows as the table's columns want them.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, SchemaRef};
use volary_flight_proto::{Error, ErrorCode, Result};

/// Rows with exactly the table's columns: the batch's columns by position, cast where types differ.
///
/// # Errors
/// `INVALID_ARGUMENT` for a value that the column's type does not hold, or a NULL in a column that takes none; the error
/// names the column.
pub fn by_position(table: &str, schema: &SchemaRef, batch: &RecordBatch) -> Result<RecordBatch> {
    if batch.num_columns() != schema.fields().len() {
        return Err(Error::invalid(format!(
            "table {table} has {} columns and the rows have {}",
            schema.fields().len(),
            batch.num_columns()
        )));
    }
    let columns = batch.columns().iter().cloned().map(Some).collect();
    assemble(table, schema, columns, batch.num_rows())
}

/// The same by name: columns that the rows do not have are NULL.
///
/// # Errors
/// As [`by_position`], and for a column that the table does not have.
pub fn by_name(table: &str, schema: &SchemaRef, batch: &RecordBatch) -> Result<RecordBatch> {
    let mut columns = vec![None; schema.fields().len()];
    for (field, column) in batch.schema_ref().fields().iter().zip(batch.columns()) {
        let position = position_of(table, schema, field.name())?;
        columns[position] = Some(Arc::clone(column));
    }
    assemble(table, schema, columns, batch.num_rows())
}

/// Where a file's column is in the table; letters' case does not matter unless it decides.
///
/// # Errors
/// `INVALID_ARGUMENT` if the table has no such column.
pub fn position_of(table: &str, schema: &SchemaRef, name: &str) -> Result<usize> {
    let mut loosely = schema
        .fields()
        .iter()
        .enumerate()
        .filter(|(_, field)| field.name().eq_ignore_ascii_case(name))
        .map(|(position, _)| position);
    if let Ok(position) = schema.index_of(name) {
        return Ok(position);
    }
    loosely.next().ok_or_else(|| {
        let names: Vec<_> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        Error::invalid(format!(
            "column {name} is none of table {table}, which has {}; leave it out of the file, or add it to the table",
            names.join(", ")
        ))
    })
}

fn assemble(
    table: &str,
    schema: &SchemaRef,
    columns: Vec<Option<ArrayRef>>,
    rows: usize,
) -> Result<RecordBatch> {
    let mut fitted = Vec::with_capacity(columns.len());
    for (field, column) in schema.fields().iter().zip(columns) {
        let wanted = field.data_type();
        let column = match column {
            None => new_null_array(wanted, rows),
            Some(column) => cast(&column, wanted).map_err(|source| {
                Error::with_source(
                    ErrorCode::InvalidArgument,
                    format!(
                        "table {table}, column {}: a {} does not fit its type {wanted}",
                        field.name(),
                        column.data_type()
                    ),
                    source,
                )
            })?,
        };
        if !field.is_nullable() && column.null_count() > 0 {
            return Err(Error::invalid(format!(
                "table {table}, column {}: a NULL in a column that is NOT NULL",
                field.name()
            )));
        }
        fitted.push(column);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::clone(schema), fitted, &options).map_err(|source| {
        Error::with_source(ErrorCode::InvalidArgument, format!("table {table}"), source)
    })
}

fn cast(column: &ArrayRef, wanted: &DataType) -> Result<ArrayRef, arrow::error::ArrowError> {
    if column.data_type() == wanted {
        return Ok(Arc::clone(column));
    }
    let strict = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    cast_with_options(column, wanted, &strict)
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int32Array, Int64Array, StringArray};
    use arrow::datatypes::{Field, Schema};

    use super::*;

    fn table() -> SchemaRef {
        Arc::new(Schema::new(vec![
            Field::new("k", DataType::Int32, false),
            Field::new("name", DataType::Utf8View, true),
        ]))
    }

    fn rows(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
        RecordBatch::try_from_iter_with_nullable(
            columns
                .into_iter()
                .map(|(name, column)| (name, column, true)),
        )
        .unwrap()
    }

    #[test]
    fn columns_are_found_by_name_cast_and_filled() {
        let batch = rows(vec![("K", Arc::new(Int64Array::from(vec![1, 2])))]);
        let fitted = by_name("t", &table(), &batch).unwrap();
        assert_eq!(fitted.schema(), table());
        assert_eq!(fitted.column(1).null_count(), 2);
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let text = |result: Result<RecordBatch>| result.unwrap_err().text();
        let large = rows(vec![("k", Arc::new(Int64Array::from(vec![1_i64 << 40])))]);
        assert!(text(by_name("t", &table(), &large)).contains("table t, column k"));
        let null = rows(vec![("k", Arc::new(Int32Array::from(vec![None])))]);
        assert!(text(by_name("t", &table(), &null)).contains("NOT NULL"));
        let other = rows(vec![("x", Arc::new(StringArray::from(vec!["a"])))]);
        assert!(text(by_name("t", &table(), &other)).contains("column x is none of table t"));
        let few = rows(vec![("k", Arc::new(Int32Array::from(vec![1])))]);
        assert!(text(by_position("t", &table(), &few)).contains("2 columns"));
    }
}
