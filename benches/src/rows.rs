use std::sync::Arc;

use anyhow::{Result, ensure};
use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringViewArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};

/// Size of a BIGINT in bytes.
const NUMBER_BYTES: usize = 8;

/// The shape of rows with a given number of payload bytes. A row has a BIGINT `k`, a BIGINT `v` if
/// there is room for it, and a text `s` that takes the rest. The text has the type in which workers
/// send text. What Arrow adds to text (16 bytes per value) does not count as payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowShape {
    row_bytes: usize,
}

impl RowShape {
    /// Creates the shape of rows of this width.
    ///
    /// # Errors
    /// Returns an error if no rows have this width. The width must be 8 bytes, or 16 and more.
    pub fn new(row_bytes: usize) -> Result<Self> {
        ensure!(
            row_bytes == NUMBER_BYTES || row_bytes >= 2 * NUMBER_BYTES,
            "rows have 8 bytes, or 16 and more, not {row_bytes}"
        );
        Ok(Self { row_bytes })
    }

    /// Returns the schema of the rows.
    pub fn schema(self) -> SchemaRef {
        let columns = [
            Field::new("k", DataType::Int64, false),
            Field::new("v", DataType::Int64, false),
            Field::new("s", DataType::Utf8View, false),
        ];
        let count = self.columns();
        Arc::new(Schema::new(
            columns.into_iter().take(count).collect::<Vec<_>>(),
        ))
    }

    /// Returns a batch of `rows` rows.
    ///
    /// # Errors
    /// No error is expected, because the columns match the schema.
    pub fn batch(self, rows: usize) -> Result<RecordBatch> {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values((0i64..).take(rows)));
        let mut columns = vec![Arc::clone(&numbers), numbers];
        columns.truncate(self.columns());
        if let Some(text) = self.text() {
            let texts = StringViewArray::from_iter_values((0..rows).map(|_| text.as_str()));
            columns.push(Arc::new(texts));
        }
        Ok(RecordBatch::try_new(self.schema(), columns)?)
    }

    fn columns(self) -> usize {
        self.row_bytes.div_ceil(NUMBER_BYTES).min(3)
    }

    fn text(self) -> Option<String> {
        let bytes = self.row_bytes.checked_sub(2 * NUMBER_BYTES)?;
        (bytes > 0).then(|| "x".repeat(bytes))
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray;

    use super::*;

    #[test]
    fn rows_have_the_bytes_that_were_asked_for() {
        for (row_bytes, columns) in [(8, 1), (16, 2), (17, 3), (723, 3)] {
            let batch = RowShape::new(row_bytes).unwrap().batch(5).unwrap();
            assert_eq!((batch.num_rows(), batch.num_columns()), (5, columns));
            let text: usize = batch.columns().get(2).map_or(0, |column| {
                column.as_string_view().iter().flatten().map(str::len).sum()
            });
            assert_eq!(columns.min(2) * NUMBER_BYTES * 5 + text, row_bytes * 5);
        }
        assert!(RowShape::new(9).is_err());
    }
}
