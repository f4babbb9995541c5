use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Date32Type, Int64Type, TimeUnit, TimestampNanosecondType};
use datafusion::error::Result;
use datafusion::logical_expr::ColumnarValue;

pub(super) const NANOS_A_DAY: i128 = 24 * 60 * 60 * 1_000_000_000;

/// An argument of a function. A scalar stands for all rows, and is not copied for each row.
pub(super) struct Argument {
    array: ArrayRef,
    is_scalar: bool,
}

impl Argument {
    pub(super) fn new(value: &ColumnarValue) -> Result<Self> {
        Ok(match value {
            ColumnarValue::Array(array) => Self {
                array: ArrayRef::clone(array),
                is_scalar: false,
            },
            ColumnarValue::Scalar(scalar) => Self {
                array: scalar.to_array()?,
                is_scalar: true,
            },
        })
    }

    pub(super) fn data_type(&self) -> &DataType {
        self.array.data_type()
    }

    fn valid_position(&self, row: usize) -> Option<usize> {
        let row = if self.is_scalar { 0 } else { row };
        self.array.is_valid(row).then_some(row)
    }

    /// Returns the bytes of the row's value, or 0 for NULL.
    pub(super) fn bytes(&self, row: usize) -> u64 {
        let Some(row) = self.valid_position(row) else {
            return 0;
        };
        match self.text(row) {
            Some(text) => text.len() as u64,
            None => bytes_of(&self.array.slice(row, 1)),
        }
    }

    /// Returns the row's value if it is text or bytes.
    pub(super) fn text_at(&self, row: usize) -> Option<&[u8]> {
        self.text(self.valid_position(row)?)
    }

    fn text(&self, row: usize) -> Option<&[u8]> {
        Some(match self.data_type() {
            DataType::Utf8 => self.array.as_string::<i32>().value(row).as_bytes(),
            DataType::LargeUtf8 => self.array.as_string::<i64>().value(row).as_bytes(),
            DataType::Utf8View => self.array.as_string_view().value(row).as_bytes(),
            DataType::Binary => self.array.as_binary::<i32>().value(row),
            DataType::LargeBinary => self.array.as_binary::<i64>().value(row),
            DataType::BinaryView => self.array.as_binary_view().value(row),
            _ => return None,
        })
    }

    /// Returns the elements of the row's list, or `None` for NULL and for other types.
    pub(super) fn elements(&self, row: usize) -> Option<ArrayRef> {
        let row = self.valid_position(row)?;
        Some(match self.data_type() {
            DataType::List(_) => self.array.as_list::<i32>().value(row),
            DataType::LargeList(_) => self.array.as_list::<i64>().value(row),
            DataType::FixedSizeList(_, _) => self.array.as_fixed_size_list().value(row),
            _ => return None,
        })
    }

    /// Returns a function from a row to its integer. It returns `None` for NULL, and for all rows
    /// if the argument does not consist of integers.
    pub(super) fn integers(&self) -> Result<impl Fn(usize) -> Option<i64> + use<>> {
        let numbers = if self.data_type().is_integer() {
            Some(cast(&self.array, &DataType::Int64)?)
        } else {
            None
        };
        let is_scalar = self.is_scalar;
        Ok(move |row| {
            let numbers = numbers.as_ref()?.as_primitive::<Int64Type>();
            let row = if is_scalar { 0 } else { row };
            numbers.is_valid(row).then(|| numbers.value(row))
        })
    }

    /// Returns a function from a row to its date or time, in nanoseconds since 1970. It returns
    /// `None` for NULL.
    pub(super) fn nanos(&self) -> Result<impl Fn(usize) -> Option<i128> + use<>> {
        // If a time in nanoseconds does not fit into 64 bits, its day is used.
        let nanos = cast(
            &self.array,
            &DataType::Timestamp(TimeUnit::Nanosecond, None),
        )?;
        let days = cast(&self.array, &DataType::Date32)?;
        let is_scalar = self.is_scalar;
        Ok(move |row| {
            let row = if is_scalar { 0 } else { row };
            let (nanos, days) = (
                nanos.as_primitive::<TimestampNanosecondType>(),
                days.as_primitive::<Date32Type>(),
            );
            if nanos.is_valid(row) {
                return Some(i128::from(nanos.value(row)));
            }
            let is_valid = days.is_valid(row);
            is_valid.then(|| i128::from(days.value(row)) * NANOS_A_DAY)
        })
    }

    /// Returns the array. The array of a scalar has one row.
    pub(super) fn array(&self) -> &ArrayRef {
        &self.array
    }

    /// Returns the position of the row in the array.
    pub(super) fn position(&self, row: usize) -> usize {
        if self.is_scalar { 0 } else { row }
    }
}

/// Returns the bytes of an array's values, without other values in the same buffers.
pub(super) fn bytes_of(array: &dyn Array) -> u64 {
    match array.data_type() {
        // The buffers of views may also belong to other arrays.
        DataType::Utf8View => lengths(array.as_string_view().views()),
        DataType::BinaryView => lengths(array.as_binary_view().views()),
        _ => array
            .to_data()
            .get_slice_memory_size()
            .map_or(0, |bytes| bytes as u64),
    }
}

/// Returns the sum of the lengths of views. The length of a view is in its lowest 32 bits.
fn lengths(views: &[u128]) -> u64 {
    let lengths = views.iter().map(|view| view & u128::from(u32::MAX));
    lengths
        .map(|length| u64::try_from(length).unwrap_or(u64::MAX))
        .sum()
}
