use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, FixedSizeListArray, GenericByteBuilder, GenericByteViewArray,
    ListArray, MapArray, StructArray, UnionArray, new_null_array,
};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{BinaryType, ByteArrayType, ByteViewType, DataType, Fields, Utf8Type};
use arrow::error::ArrowError;

use crate::uuids::{UUID, write_texts};

/// Converts `array` to `target`, which must be the client's type for the array's own type.
pub(super) fn convert(array: &ArrayRef, target: &DataType) -> Result<ArrayRef, ArrowError> {
    if array.data_type() == target {
        return Ok(array.clone());
    }
    match (array.data_type(), target) {
        (DataType::Null, _) => Ok(new_null_array(target, array.len())),
        (DataType::Dictionary(_, values), _) if **values != *target => {
            convert(&plain_cast(array, values)?, target)
        }
        (DataType::RunEndEncoded(_, values), _)
            if !matches!(target, DataType::RunEndEncoded(_, _)) && values.data_type() != target =>
        {
            convert(&plain_cast(array, values.data_type())?, target)
        }
        (
            DataType::LargeList(item) | DataType::ListView(item) | DataType::LargeListView(item),
            DataType::List(_),
        ) => convert(&plain_cast(array, &DataType::List(item.clone()))?, target),
        (DataType::List(_), DataType::List(item)) => {
            let list = array.as_list::<i32>();
            Ok(Arc::new(ListArray::try_new(
                item.clone(),
                list.offsets().clone(),
                convert(list.values(), item.data_type())?,
                list.nulls().cloned(),
            )?))
        }
        (DataType::FixedSizeList(_, _), DataType::FixedSizeList(item, size)) => {
            let list = array.as_fixed_size_list();
            Ok(Arc::new(FixedSizeListArray::try_new_with_length(
                item.clone(),
                *size,
                convert(list.values(), item.data_type())?,
                list.nulls().cloned(),
                list.len(),
            )?))
        }
        (DataType::Struct(_), DataType::Struct(fields)) => {
            Ok(Arc::new(convert_struct(array.as_struct(), fields)?))
        }
        (DataType::Map(_, _), DataType::Map(entries, ordered)) => {
            let map = array.as_map();
            let DataType::Struct(fields) = entries.data_type() else {
                return plain_cast(array, target);
            };
            Ok(Arc::new(MapArray::try_new(
                entries.clone(),
                map.offsets().clone(),
                convert_struct(map.entries(), fields)?,
                map.nulls().cloned(),
                *ordered,
            )?))
        }
        (DataType::Union(_, _), DataType::Union(fields, _)) => {
            let union = array.as_union();
            let children = fields
                .iter()
                .map(|(id, field)| convert(union.child(id), field.data_type()))
                .collect::<Result<Vec<_>, _>>()?;
            Ok(Arc::new(UnionArray::try_new(
                fields.clone(),
                union.type_ids().clone(),
                union.offsets().cloned(),
                children,
            )?))
        }
        (DataType::Utf8View, DataType::Utf8) => copy_views::<_, Utf8Type>(array.as_string_view()),
        (DataType::BinaryView, DataType::Binary) => {
            copy_views::<_, BinaryType>(array.as_binary_view())
        }
        (uuids, DataType::Utf8) if *uuids == UUID => Ok(write_texts(array)),
        _ => plain_cast(array, target),
    }
}

/// Copies the bytes that the views point to. arrow's own cast panics if there are more bytes than
/// `i32` offsets can address.
fn copy_views<V, B>(views: &GenericByteViewArray<V>) -> Result<ArrayRef, ArrowError>
where
    V: ByteViewType,
    B: ByteArrayType<Offset = i32>,
    V::Native: AsRef<B::Native>,
{
    let bytes = views.lengths().map(|length| length as usize).sum();
    if i32::try_from(bytes).is_err() {
        return Err(ArrowError::OffsetOverflowError(bytes));
    }
    let mut builder = GenericByteBuilder::<B>::with_capacity(views.len(), bytes);
    for value in views {
        builder.append_option(value);
    }
    Ok(Arc::new(builder.finish()))
}

fn convert_struct(array: &StructArray, fields: &Fields) -> Result<StructArray, ArrowError> {
    let columns = array
        .columns()
        .iter()
        .zip(fields)
        .map(|(column, field)| convert(column, field.data_type()))
        .collect::<Result<Vec<_>, _>>()?;
    StructArray::try_new_with_length(fields.clone(), columns, array.nulls().cloned(), array.len())
}

/// Casts an array. A value that does not fit is an error, not NULL.
fn plain_cast(array: &dyn Array, target: &DataType) -> Result<ArrayRef, ArrowError> {
    let options = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    cast_with_options(array, target, &options)
}

#[cfg(test)]
mod tests {
    use arrow::array::{BinaryViewArray, StringViewArray};
    use arrow::buffer::{Buffer, ScalarBuffer};

    use super::*;

    #[test]
    fn views_become_what_they_stand_for() {
        let long = "x".repeat(100);
        let texts = [Some("kea"), None, Some(""), Some(long.as_str())];
        let views: ArrayRef = Arc::new(StringViewArray::from_iter(texts).slice(1, 3));
        let made = convert(&views, &DataType::Utf8).unwrap();
        assert_eq!(
            made.as_string::<i32>().iter().collect::<Vec<_>>(),
            texts[1..]
        );
    }

    #[test]
    fn more_bytes_than_offsets_can_say_are_an_error() {
        let mebibyte = Buffer::from(vec![7_u8; 1 << 20]);
        // A view holds its length, the first four bytes of its value, and the buffer and the offset
        // at which the value begins.
        let view = (1_u128 << 20) | (0x0707_0707 << 32);
        let views = ScalarBuffer::from(vec![view; 2_048]);
        let array = BinaryViewArray::try_new(views, vec![mebibyte], None).unwrap();
        let array: ArrayRef = Arc::new(array);
        let error = convert(&array, &DataType::Binary).unwrap_err();
        assert!(matches!(error, ArrowError::OffsetOverflowError(bytes) if bytes == 1 << 31));
        let half = array.slice(0, 1_024);
        assert_eq!(convert(&half, &DataType::Binary).unwrap().len(), 1_024);
    }
}
