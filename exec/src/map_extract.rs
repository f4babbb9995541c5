use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int32Array, ListArray};
use arrow::buffer::OffsetBuffer;
use arrow::compute::take;
use arrow::datatypes::{ArrowNativeType, DataType, Field};
use datafusion::common::{Result, ScalarValue, exec_err};
use datafusion::functions_nested::map_extract::map_extract_udf;
use datafusion::logical_expr::{
    ColumnarValue, Documentation, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};

use crate::columnar::{finish, rows_of};

/// Returns the function `map_extract`. DataFusion 55 returns `[NULL]` for a key that a map does not
/// have, as if the map had the key. Here, the list is empty.
pub(crate) fn map_extract() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(MapExtract(map_extract_udf())))
}

/// The function of DataFusion, which is only asked for its types.
#[derive(Debug, PartialEq, Eq, Hash)]
struct MapExtract(Arc<ScalarUDF>);

impl ScalarUDFImpl for MapExtract {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn aliases(&self) -> &[String] {
        self.0.aliases()
    }

    fn signature(&self) -> &Signature {
        self.0.signature()
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        self.0.coerce_types(arg_types)
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.0.inner().return_type(arg_types)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.0.documentation()
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [maps, keys] = args.args.as_slice() else {
            return exec_err!("map_extract takes a map and a key");
        };
        if maps.data_type().is_null() {
            return Ok(ColumnarValue::Scalar(ScalarValue::Null));
        }
        let rows = rows_of(&args.args, args.number_rows);
        let found = extract(&maps.to_array(rows)?, &keys.to_array(rows)?)?;
        finish(&args.args, found)
    }
}

/// Returns a list for each map: its value for the key of the same row, or nothing.
fn extract(maps: &ArrayRef, keys: &ArrayRef) -> Result<ArrayRef> {
    let Some(maps) = maps.as_map_opt() else {
        return exec_err!("the first argument of map_extract must be a map");
    };
    if maps.key_type() != keys.data_type() {
        return exec_err!(
            "map_extract looks for a key of type {}, but the keys of the map have the type {}",
            keys.data_type(),
            maps.key_type()
        );
    }
    let mut found = Vec::new();
    let mut lengths = Vec::with_capacity(maps.len());
    for (row, offsets) in maps.value_offsets().windows(2).enumerate() {
        let key = keys.slice(row, 1);
        let is_key = |entry: &i32| {
            let other = maps.keys().slice(entry.as_usize(), 1);
            other.as_ref() == key.as_ref()
        };
        let mut entries = offsets[0]..offsets[1];
        let entry = entries.find(|entry| maps.is_valid(row) && is_key(entry));
        found.extend(entry);
        lengths.push(usize::from(entry.is_some()));
    }
    let values = take(maps.values(), &Int32Array::from(found), None)?;
    Ok(Arc::new(ListArray::try_new(
        Arc::new(Field::new_list_field(maps.value_type().clone(), true)),
        OffsetBuffer::from_lengths(lengths),
        values,
        maps.nulls().cloned(),
    )?))
}
