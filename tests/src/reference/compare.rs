use std::cmp::Ordering;
use std::collections::VecDeque;
use std::fmt::Write;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;

use super::cell::{Cell, cells, kind};

/// Number of rows of each kind that a message shows.
const SHOWN_ROWS: usize = 5;

type Row = Vec<Cell>;

/// Panics unless both results have the same rows, and shows the first rows that differ. If
/// `ordered` is set, the rows must be in the same order. Otherwise, each row must occur the same
/// number of times. See [`difference`] for when two rows are the same.
///
/// # Panics
/// Panics if the results differ.
#[track_caller]
pub fn assert_same_rows(expected: &[RecordBatch], actual: &[RecordBatch], ordered: bool) {
    if let Some(difference) = difference(expected, actual, ordered) {
        panic!("{difference}");
    }
}

/// Returns a description of the difference of two results, or `None` if they are the same.
///
/// Columns are matched by position. Their names and nullability do not count. Encodings and widths
/// do not count either (Utf8, LargeUtf8, Utf8View and dictionaries of them; all integers; all
/// decimals; all timestamp units), but an integer is not the same as a decimal or a float. Floats
/// may differ by 1e-9 relative. All other values must be exactly equal.
pub fn difference(
    expected: &[RecordBatch],
    actual: &[RecordBatch],
    ordered: bool,
) -> Option<String> {
    compare(expected, actual, ordered).err()
}

fn compare(expected: &[RecordBatch], actual: &[RecordBatch], ordered: bool) -> Result<(), String> {
    let header = match (expected.first(), actual.first()) {
        (Some(e), Some(a)) => {
            compare_columns(&e.schema(), &a.schema())?;
            names(&e.schema())
        }
        (Some(one), None) | (None, Some(one)) => names(&one.schema()),
        (None, None) => return Ok(()),
    };
    let expected = rows(expected)?;
    let actual = rows(actual)?;
    if ordered {
        compare_sequences(&header, &expected, &actual)
    } else {
        compare_bags(&header, &expected, &actual)
    }
}

fn compare_columns(expected: &SchemaRef, actual: &SchemaRef) -> Result<(), String> {
    if expected.fields().len() != actual.fields().len() {
        return Err(format!(
            "expected {} columns ({}), got {} ({})",
            expected.fields().len(),
            names(expected),
            actual.fields().len(),
            names(actual)
        ));
    }
    for (index, (e, a)) in expected.fields().iter().zip(actual.fields()).enumerate() {
        let (expected_kind, actual_kind) = (kind(e.data_type()), kind(a.data_type()));
        // A column with only NULLs has no type of its own. It is sent to clients with a type that
        // they know.
        let untyped = expected_kind == "null" || actual_kind == "null";
        if expected_kind != actual_kind && !untyped {
            return Err(format!(
                "column {} (`{}`): expected {expected_kind} ({}), got {actual_kind} ({})",
                index + 1,
                e.name(),
                e.data_type(),
                a.data_type()
            ));
        }
    }
    Ok(())
}

fn compare_sequences(header: &str, expected: &[Row], actual: &[Row]) -> Result<(), String> {
    let differing: Vec<usize> = (0..expected.len().max(actual.len()))
        .filter(|&index| match (expected.get(index), actual.get(index)) {
            (Some(e), Some(a)) => !is_same_row(e, a),
            _ => true,
        })
        .collect();
    if differing.is_empty() {
        return Ok(());
    }
    let mut message = row_counts_line(expected, actual);
    let _ = writeln!(
        message,
        "{} rows differ, in order; columns: {header}",
        differing.len()
    );
    for &index in differing.iter().take(SHOWN_ROWS) {
        let _ = writeln!(message, "row {}", index + 1);
        let _ = writeln!(message, "  expected  {}", show(expected.get(index)));
        let _ = writeln!(message, "  actual    {}", show(actual.get(index)));
    }
    Err(message)
}

fn compare_bags(header: &str, expected: &[Row], actual: &[Row]) -> Result<(), String> {
    let (missing, unexpected) = bag_difference(expected, actual);
    if missing.is_empty() && unexpected.is_empty() {
        return Ok(());
    }
    let mut message = row_counts_line(expected, actual);
    let _ = writeln!(message, "columns: {header}");
    for (title, rows) in [("missing", missing), ("unexpected", unexpected)] {
        let _ = writeln!(message, "{} rows {title}", rows.len());
        for row in rows.iter().take(SHOWN_ROWS) {
            let _ = writeln!(message, "  {}", show(Some(row)));
        }
    }
    Err(message)
}

/// Returns the rows of `expected` without a partner in `actual`, and the rows of `actual` without a
/// partner in `expected`.
///
/// Rows are sorted by their cells that must be exactly equal. Rows that agree in these cells are
/// paired one by one. A sort by floats that differ slightly could pair the wrong rows.
fn bag_difference<'a>(expected: &'a [Row], actual: &'a [Row]) -> (Vec<&'a Row>, Vec<&'a Row>) {
    let (expected, actual) = (sorted(expected), sorted(actual));
    let (mut missing, mut unexpected) = (Vec::new(), Vec::new());
    let (mut e, mut a) = (expected.as_slice(), actual.as_slice());
    while let (Some(first_e), Some(first_a)) = (e.first(), a.first()) {
        match order_exact(first_e, first_a) {
            Ordering::Less => {
                missing.push(*first_e);
                e = &e[1..];
            }
            Ordering::Greater => {
                unexpected.push(*first_a);
                a = &a[1..];
            }
            Ordering::Equal => {
                let in_group = |row: &&Row| order_exact(row, first_e) == Ordering::Equal;
                let (group_e, rest_e) = e.split_at(e.partition_point(in_group));
                let (group_a, rest_a) = a.split_at(a.partition_point(in_group));
                let mut partners: VecDeque<&Row> = group_a.iter().copied().collect();
                for &row in group_e {
                    match partners
                        .iter()
                        .position(|partner| is_same_row(row, partner))
                    {
                        Some(index) => {
                            partners.remove(index);
                        }
                        None => missing.push(row),
                    }
                }
                unexpected.extend(partners);
                (e, a) = (rest_e, rest_a);
            }
        }
    }
    missing.extend(e);
    unexpected.extend(a);
    (missing, unexpected)
}

fn sorted(rows: &[Row]) -> Vec<&Row> {
    let mut sorted: Vec<&Row> = rows.iter().collect();
    sorted.sort_by(|a, b| {
        order_exact(a, b).then_with(|| {
            let floats = a.iter().zip(b.iter()).map(|(a, b)| a.order(b));
            floats.fold(Ordering::Equal, Ordering::then)
        })
    });
    sorted
}

/// Orders rows by all cells except floats. Two floats always count as equal here.
fn order_exact(a: &Row, b: &Row) -> Ordering {
    a.iter()
        .zip(b)
        .map(|cells| match cells {
            (Cell::Float(_), Cell::Float(_)) => Ordering::Equal,
            (a, b) => a.order(b),
        })
        .find(|order| order.is_ne())
        .unwrap_or(Ordering::Equal)
}

fn is_same_row(a: &Row, b: &Row) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.is_same(b))
}

fn rows(batches: &[RecordBatch]) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for batch in batches {
        let first = rows.len();
        rows.resize_with(first + batch.num_rows(), || {
            Row::with_capacity(batch.num_columns())
        });
        for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
            let column = cells(column)
                .map_err(|error| format!("cannot compare column `{}`: {error}", field.name()))?;
            for (row, cell) in rows[first..].iter_mut().zip(column) {
                row.push(cell);
            }
        }
    }
    Ok(rows)
}

fn row_counts_line(expected: &[Row], actual: &[Row]) -> String {
    format!(
        "results differ: expected {} rows, got {}\n",
        expected.len(),
        actual.len()
    )
}

fn names(schema: &SchemaRef) -> String {
    let names: Vec<&str> = schema
        .fields()
        .iter()
        .map(|field| field.name().as_str())
        .collect();
    names.join(" | ")
}

fn show(row: Option<&Row>) -> String {
    row.map_or_else(
        || "(no row)".to_owned(),
        |row| {
            row.iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(" | ")
        },
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        ArrayRef, Decimal128Array, DictionaryArray, Float64Array, Int32Array, Int64Array,
        LargeStringArray, StringArray, StringViewArray, TimestampMillisecondArray,
        TimestampNanosecondArray, UInt64Array,
    };
    use arrow::datatypes::Int8Type;
    use arrow::error::ArrowError;

    use super::*;

    fn batch(columns: Vec<ArrayRef>) -> Result<Vec<RecordBatch>, ArrowError> {
        let named = columns
            .into_iter()
            .enumerate()
            .map(|(index, column)| (format!("c{index}"), column));
        Ok(vec![RecordBatch::try_from_iter(named)?])
    }

    fn floats(values: Vec<f64>) -> Result<Vec<RecordBatch>, ArrowError> {
        batch(vec![Arc::new(Float64Array::from(values))])
    }

    #[test]
    fn encodings_and_widths_do_not_count() -> Result<(), ArrowError> {
        let expected = batch(vec![
            Arc::new(StringArray::from(vec![Some("a"), None])),
            Arc::new(Int32Array::from(vec![1, -2])),
            Arc::new(Decimal128Array::from(vec![150, 200]).with_precision_and_scale(15, 2)?),
            Arc::new(TimestampMillisecondArray::from(vec![1, 2])),
            Arc::new(UInt64Array::from(vec![u64::MAX, 1])),
        ])?;
        let actual = batch(vec![
            Arc::new(LargeStringArray::from(vec![Some("a"), None])),
            Arc::new(Int64Array::from(vec![1, -2])),
            Arc::new(
                Decimal128Array::from(vec![1_500_000, 2_000_000])
                    .with_precision_and_scale(38, 6)?,
            ),
            Arc::new(TimestampNanosecondArray::from(vec![1_000_000, 2_000_000])),
            Arc::new(UInt64Array::from(vec![u64::MAX, 1])),
        ])?;
        assert_same_rows(&expected, &actual, true);
        let view: ArrayRef = Arc::new(StringViewArray::from(vec!["x", "y", "x"]));
        let dictionary: ArrayRef =
            Arc::new(DictionaryArray::<Int8Type>::from_iter(["x", "y", "x"]));
        assert_same_rows(&batch(vec![view])?, &batch(vec![dictionary])?, true);
        Ok(())
    }

    #[test]
    fn kinds_count() -> Result<(), ArrowError> {
        let integers = batch(vec![Arc::new(Int64Array::from(vec![1]))])?;
        let message = difference(&integers, &floats(vec![1.0])?, false).unwrap_or_default();
        assert_eq!(
            message,
            "column 1 (`c0`): expected integer (Int64), got float (Float64)"
        );
        Ok(())
    }

    #[test]
    fn floats_are_equal_to_nine_digits_in_any_row_order() -> Result<(), ArrowError> {
        let nearly = 1.0 + 1e-12;
        let expected = batch(vec![
            Arc::new(Float64Array::from(vec![1.0, nearly, f64::NAN])),
            Arc::new(Float64Array::from(vec![7.0, 5.0, 0.0])),
        ])?;
        let actual = batch(vec![
            Arc::new(Float64Array::from(vec![f64::NAN, nearly, 1.0])),
            Arc::new(Float64Array::from(vec![-0.0, 7.0, 5.0])),
        ])?;
        assert_same_rows(&expected, &actual, false);
        assert!(difference(&floats(vec![1.0])?, &floats(vec![1.0 + 1e-8])?, false).is_some());
        Ok(())
    }

    #[test]
    fn order_counts_only_when_asked_for() -> Result<(), ArrowError> {
        let expected = floats(vec![1.0, 2.0])?;
        let actual = floats(vec![2.0, 1.0])?;
        assert_same_rows(&expected, &actual, false);
        let message = difference(&expected, &actual, true).unwrap_or_default();
        assert!(
            message.contains("row 1\n  expected  1.0\n  actual    2.0"),
            "{message}"
        );
        Ok(())
    }

    #[test]
    fn a_row_given_twice_is_unexpected_once() -> Result<(), ArrowError> {
        let expected = floats(vec![1.0, 2.0])?;
        let actual = floats(vec![2.0, 1.0, 2.0])?;
        let message = difference(&expected, &actual, false).unwrap_or_default();
        assert!(message.contains("expected 2 rows, got 3"), "{message}");
        assert!(
            message.contains("0 rows missing\n1 rows unexpected\n  2.0"),
            "{message}"
        );
        Ok(())
    }

    #[test]
    fn no_batches_are_no_rows() -> Result<(), ArrowError> {
        assert_same_rows(&[], &floats(vec![])?, true);
        let message = difference(&floats(vec![1.0])?, &[], false).unwrap_or_default();
        assert!(message.contains("1 rows missing"), "{message}");
        Ok(())
    }
}
