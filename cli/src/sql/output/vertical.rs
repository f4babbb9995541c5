use arrow::array::RecordBatch;
use arrow::error::ArrowError;

use crate::table::TextTable;

/// Adds the rows of a batch to `text`. `before` is the number of rows that were shown already.
pub(super) fn push(text: &mut String, batch: &RecordBatch, before: u64) -> Result<(), ArrowError> {
    let schema = batch.schema();
    let names = schema.fields().iter().map(|field| field.name().as_str());
    let names: Vec<&str> = names.collect();
    let width = names.iter().map(|name| name.chars().count()).max();
    let width = width.unwrap_or(0);
    for (number, values) in (before + 1..).zip(TextTable::cells(batch)?) {
        text.push_str(&format!("── row {number}\n"));
        for (name, value) in names.iter().zip(values) {
            text.push_str(&format!("{name:<width$}  {value}\n"));
        }
    }
    Ok(())
}
