use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, OffsetSizeTrait, RecordBatch, RecordBatchOptions};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::DataType;

/// Size of a view in bytes: length, prefix, buffer and offset.
const VIEW_BYTES: usize = 16;

/// Cuts a batch into pieces of at most `max_bytes` each. A single row that is larger becomes a
/// piece of its own.
///
/// arrow-flight's own cut divides by the average size of a row. It also counts the memory of whole
/// buffers, even where a slice uses little of them. A single long text then makes a message that
/// clients refuse (ADBC accepts 16 MiB, gRPC clients accept 4 MiB by default).
pub(super) fn split(batch: RecordBatch, max_bytes: usize) -> Vec<RecordBatch> {
    let mut pieces = Vec::with_capacity(1);
    let mut left = vec![batch];
    while let Some(batch) = left.pop() {
        let rows = batch.num_rows();
        if rows <= 1 || batch_bytes(&batch) <= max_bytes {
            pieces.push(batch);
            continue;
        }
        let half = rows / 2;
        left.push(compact(&batch.slice(half, rows - half)));
        left.push(compact(&batch.slice(0, half)));
    }
    pieces
}

/// Returns the number of bytes of a batch's message, without its header.
fn batch_bytes(batch: &RecordBatch) -> usize {
    batch
        .columns()
        .iter()
        .map(|column| array_bytes(column))
        .sum()
}

fn array_bytes(array: &dyn Array) -> usize {
    let rows = array.len();
    // The validity bitmap is not sent if there is no NULL.
    let validity = if array.null_count() > 0 {
        rows.div_ceil(8)
    } else {
        0
    };
    let values = match array.data_type() {
        DataType::Null => 0,
        DataType::Boolean => rows.div_ceil(8),
        DataType::FixedSizeBinary(width) => rows * usize::try_from(*width).unwrap_or(0),
        DataType::Utf8 => offsets_bytes(array.as_string::<i32>().offsets()),
        DataType::LargeUtf8 => offsets_bytes(array.as_string::<i64>().offsets()),
        DataType::Binary => offsets_bytes(array.as_binary::<i32>().offsets()),
        DataType::LargeBinary => offsets_bytes(array.as_binary::<i64>().offsets()),
        // The buffers of views are sent whole.
        DataType::Utf8View => {
            rows * VIEW_BYTES + buffers_bytes(array.as_string_view().data_buffers())
        }
        DataType::BinaryView => {
            rows * VIEW_BYTES + buffers_bytes(array.as_binary_view().data_buffers())
        }
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            list_bytes(list.offsets(), list.values())
        }
        DataType::LargeList(_) => {
            let list = array.as_list::<i64>();
            list_bytes(list.offsets(), list.values())
        }
        DataType::Map(_, _) => {
            let map = array.as_map();
            list_bytes(map.offsets(), map.entries())
        }
        DataType::FixedSizeList(_, _) => array_bytes(array.as_fixed_size_list().values()),
        DataType::Struct(_) => array
            .as_struct()
            .columns()
            .iter()
            .map(|child| array_bytes(child))
            .sum(),
        other => match other.primitive_width() {
            Some(width) => rows * width,
            // Unions, run-end arrays and list views are rare. This size is never less than what is
            // sent.
            None => array.get_array_memory_size(),
        },
    };
    validity + values
}

fn offsets_bytes<O: OffsetSizeTrait>(offsets: &OffsetBuffer<O>) -> usize {
    let (first, last) = first_and_last(offsets);
    size_of_val(offsets.as_ref()) + (last - first)
}

fn list_bytes<O: OffsetSizeTrait>(offsets: &OffsetBuffer<O>, values: &dyn Array) -> usize {
    let (first, last) = first_and_last(offsets);
    size_of_val(offsets.as_ref()) + array_bytes(&values.slice(first, last - first))
}

fn first_and_last<O: OffsetSizeTrait>(offsets: &OffsetBuffer<O>) -> (usize, usize) {
    let end = |offset: Option<&O>| offset.map_or(0, |offset| offset.as_usize());
    (end(offsets.first()), end(offsets.last()))
}

fn buffers_bytes(buffers: &[arrow::buffer::Buffer]) -> usize {
    buffers.iter().map(|buffer| buffer.len()).sum()
}

/// Copies only the bytes that the rows of the batch use. A slice of views would otherwise keep the
/// buffers of all rows.
fn compact(batch: &RecordBatch) -> RecordBatch {
    let columns: Vec<ArrayRef> = batch
        .columns()
        .iter()
        .map(|column| match column.data_type() {
            DataType::Utf8View => Arc::new(column.as_string_view().gc()) as ArrayRef,
            DataType::BinaryView => Arc::new(column.as_binary_view().gc()) as ArrayRef,
            _ => column.clone(),
        })
        .collect();
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    // Types and lengths stay the same, so this cannot fail.
    RecordBatch::try_new_with_options(batch.schema(), columns, &options)
        .unwrap_or_else(|_| batch.clone())
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, ListArray, StringArray, StringViewArray};
    use arrow::datatypes::{Field, Int64Type, Schema};
    use arrow::ipc::writer::StreamWriter;

    use super::*;

    fn batch(column: impl Array + 'static) -> RecordBatch {
        let schema = Schema::new(vec![Field::new("c", column.data_type().clone(), true)]);
        RecordBatch::try_new(Arc::new(schema), vec![Arc::new(column)]).unwrap()
    }

    fn skewed_texts() -> Vec<String> {
        (0..1_000)
            .map(|row| {
                if row == 500 {
                    "x".repeat(900_000)
                } else {
                    "y".to_owned()
                }
            })
            .collect()
    }

    fn on_the_wire(batch: &RecordBatch) -> usize {
        let mut bytes = Vec::new();
        let mut writer = StreamWriter::try_new(&mut bytes, batch.schema_ref()).unwrap();
        writer.write(batch).unwrap();
        writer.finish().unwrap();
        bytes.len()
    }

    #[test]
    fn sizes_are_those_on_the_wire_also_of_slices() {
        let rows = (0..5_000_i64).map(|row| Some(vec![Some(row); 7]));
        let lists = batch(ListArray::from_iter_primitive::<Int64Type, _, _>(rows));
        let texts = batch(StringArray::from(skewed_texts()));
        for batch in [
            lists.clone(),
            lists.slice(100, 2_000),
            texts.slice(400, 200),
            texts.slice(0, 400),
        ] {
            let (said, sent) = (batch_bytes(&batch), on_the_wire(&batch));
            assert!(said <= sent && sent - said < 2_000, "{said} {sent}");
        }
    }

    #[test]
    fn a_skewed_batch_is_cut_until_only_single_rows_are_larger() {
        for batch in [
            batch(StringArray::from(skewed_texts())),
            batch(StringViewArray::from_iter_values(skewed_texts())),
        ] {
            let pieces = split(batch.clone(), 100_000);
            assert_eq!(
                pieces.iter().map(RecordBatch::num_rows).sum::<usize>(),
                1_000
            );
            assert!(pieces.len() < 30, "{}", pieces.len());
            for piece in &pieces {
                assert!(piece.num_rows() == 1 || on_the_wire(piece) < 110_000);
            }
            let joined = arrow::compute::concat_batches(&batch.schema(), &pieces).unwrap();
            assert_eq!(joined, batch);
        }
    }

    #[test]
    fn what_is_small_enough_stays_whole() {
        let numbers = batch(Int64Array::from_iter_values(0..1_000));
        assert_eq!(
            split(numbers.clone(), 8_000),
            std::slice::from_ref(&numbers)
        );
        assert_eq!(split(numbers.slice(0, 0), 1), [numbers.slice(0, 0)]);
    }
}
