//! A key finds the rows that `WHERE key = ?` would find with the same value as parameter. So it is
//! cast to the type of the shard key like a parameter. A value that the cast would change equals no
//! value of the shard key, so its key has no row.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, new_empty_array};
use arrow::compute::kernels::cmp::not_distinct;
use arrow::compute::{CastOptions, can_cast_types, cast_with_options, concat, filter};
use arrow::datatypes::{DataType, Float32Type, Float64Type, Schema};
use arrow::error::ArrowError;
use volary_exec::batches::used_bytes;
use volary_exec::instants::cast_in_zone;
use volary_exec::text_casts::cast_column;
use volary_flight_proto::{Error, ErrorCode, Result, SqlState};

use super::row_sizes::written_out_bytes;
use crate::sql_type::sql_type_name;

/// The shard key of a table, by which keys are looked up.
#[derive(Debug, Clone)]
pub(crate) struct KeyColumn {
    /// Name of the table.
    pub(crate) table: String,
    /// Name of the column.
    pub(crate) name: String,
    /// Type of the column.
    pub(crate) data_type: DataType,
    /// The time zone of values that are instants only with a zone.
    pub(crate) zone: Arc<str>,
}

/// The keys of one or several batches, in the type of the shard key.
#[derive(Debug)]
pub(crate) struct Keys {
    values: ArrayRef,
    /// The position of each value among the keys that were asked for.
    positions: Vec<u32>,
    /// Number of keys that were asked for.
    count: u32,
}

impl KeyColumn {
    /// Checks the schema of a stream of keys.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if it does not have one column, or if its type cannot be cast to that of
    /// the shard key.
    pub(crate) fn check_schema(&self, schema: &Schema) -> Result<()> {
        let [field] = &schema.fields()[..] else {
            return Err(Error::invalid(format!(
                "a stream of keys has one column, and this one has {}; send the keys of table \"{}\", which are its column {} of type {}",
                schema.fields().len(),
                self.table,
                self.name,
                sql_type_name(&self.data_type)
            )));
        };
        self.cast(&new_empty_array(field.data_type())).map(|_| ())
    }

    /// Reads the keys of a batch, which may have `max_keys` keys.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for too many keys, for NULL, and for a text that is no value of the shard
    /// key's type.
    pub(crate) fn read(&self, batch: &RecordBatch, max_keys: usize) -> Result<Keys> {
        let [column] = batch.columns() else {
            return Err(Error::internal(
                "a batch of keys has the stream's one column",
            ));
        };
        let too_many = || {
            Error::invalid(format!(
                "a batch may have {max_keys} keys (gateway.lookup.max_keys), and this one has {}; send several batches",
                column.len()
            ))
        };
        if column.len() > max_keys {
            return Err(too_many());
        }
        let count = u32::try_from(column.len()).map_err(|_| too_many())?;
        let nulls = column.logical_nulls();
        if let Some(position) =
            nulls.and_then(|nulls| (0..nulls.len()).find(|at| nulls.is_null(*at)))
        {
            return Err(Error::invalid(format!(
                "the key at position {position} is NULL, which finds no row; leave it out"
            )));
        }
        let values = self.cast(column)?;
        let Some(nulls) = values.nulls().filter(|nulls| nulls.null_count() > 0) else {
            return Ok(Keys {
                values,
                positions: (0..count).collect(),
                count,
            });
        };
        let positions = (0..count).zip(nulls.iter());
        let positions = positions.filter_map(|(position, is_valid)| is_valid.then_some(position));
        let kept = BooleanArray::new(nulls.inner().clone(), None);
        Ok(Keys {
            positions: positions.collect(),
            values: filter(&values, &kept).map_err(unexpected)?,
            count,
        })
    }

    /// Casts a column. The result is NULL where the cast would change the value.
    fn cast(&self, column: &ArrayRef) -> Result<ArrayRef> {
        let written_out = match column.data_type() {
            DataType::Dictionary(_, values) => Some(values.as_ref()),
            DataType::RunEndEncoded(_, values) => Some(values.data_type()),
            _ => None,
        };
        let column = match written_out {
            Some(values) => cast_with_options(column, values, &STRICT)
                .map_err(|source| self.cast_error(values, source))?,
            None => Arc::clone(column),
        };
        let column = match self.data_type.is_floating() {
            true => column,
            false => without_negative_zero(column),
        };
        let (given, wanted) = (column.data_type(), &self.data_type);
        if given == wanted {
            return Ok(column);
        }
        // A number that is out of the type's range has no row.
        let options = match given.is_numeric() && wanted.is_numeric() {
            true => LENIENT,
            false => STRICT,
        };
        let cast = |column: &ArrayRef, wanted: &DataType| {
            cast_column(column, wanted, |column, wanted| {
                cast_with_options(column, wanted, &options)
            })
        };
        let cast = cast_in_zone(&column, wanted, &self.zone, cast)
            .map_err(|source: ArrowError| self.cast_error(given, source))?;
        // The same value may be written as a text in many ways, so texts are not compared.
        if given.is_string() || !can_cast_types(wanted, given) {
            return Ok(cast);
        }
        let unzoned = match (given, wanted) {
            // The zone moves a local time without a loss. Only the unit can change it.
            (
                DataType::Timestamp(_, None) | DataType::Date32 | DataType::Date64,
                DataType::Timestamp(unit, Some(_)),
            ) => {
                let local = DataType::Timestamp(*unit, None);
                cast_with_options(&column, &local, &LENIENT).map_err(unexpected)?
            }
            _ => Arc::clone(&cast),
        };
        let back = cast_with_options(&unzoned, given, &LENIENT).map_err(unexpected)?;
        let is_same = not_distinct(&back, &column).map_err(unexpected)?;
        if is_same.false_count() == 0 {
            return Ok(cast);
        }
        let is_changed = arrow::compute::not(&is_same).map_err(unexpected)?;
        arrow::compute::nullif(&cast, &is_changed).map_err(unexpected)
    }

    fn cast_error(&self, given: &DataType, source: ArrowError) -> Error {
        let sqlstate = SqlState::of_arrow(&source);
        let error = Error::with_source(
            ErrorCode::InvalidArgument,
            format!(
                "the keys are {}, but the shard key {} of table \"{}\" is {}; send keys of this type",
                sql_type_name(given),
                self.name,
                self.table,
                sql_type_name(&self.data_type)
            ),
            source,
        );
        error.with_sqlstate(sqlstate)
    }
}

/// Returns the memory that the keys of a batch need, in bytes, including those that are written out
/// of a dictionary or of runs.
pub(crate) fn bytes_of_keys(batch: &RecordBatch) -> usize {
    let columns = batch.columns().iter();
    let written_out: usize = columns.map(|column| written_out_bytes(column)).sum();
    used_bytes(batch).saturating_add(written_out)
}

/// Returns floating-point numbers with 0 in place of -0, which is the same number. Other arrays
/// stay as they are.
fn without_negative_zero(column: ArrayRef) -> ArrayRef {
    match column.data_type() {
        DataType::Float32 => {
            let values = column.as_primitive::<Float32Type>();
            Arc::new(values.unary::<_, Float32Type>(|value| value + 0.0))
        }
        DataType::Float64 => {
            let values = column.as_primitive::<Float64Type>();
            Arc::new(values.unary::<_, Float64Type>(|value| value + 0.0))
        }
        _ => column,
    }
}

const STRICT: CastOptions<'_> = cast_options(false);
const LENIENT: CastOptions<'_> = cast_options(true);

const fn cast_options(safe: bool) -> CastOptions<'static> {
    CastOptions {
        safe,
        format_options: arrow::util::display::FormatOptions::new(),
    }
}

fn unexpected(source: ArrowError) -> Error {
    Error::with_source(
        ErrorCode::InvalidArgument,
        "the keys cannot be compared with the shard key",
        source,
    )
}

impl Keys {
    /// Joins the keys of one or several batches. The keys of each batch follow those of the batch
    /// before.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if they are too many for one lookup.
    pub(crate) fn join(mut batches: Vec<Self>) -> Result<Self> {
        if batches.len() == 1
            && let Some(only) = batches.pop()
        {
            return Ok(only);
        }
        let too_large = || {
            Error::new(
                ErrorCode::ResourceExhausted,
                "the keys are too many for one lookup",
            )
        };
        let arrays: Vec<&dyn Array> = batches.iter().map(|keys| keys.values.as_ref()).collect();
        let values = concat(&arrays).map_err(|_| too_large())?;
        let mut positions = Vec::with_capacity(values.len());
        let mut count = 0_u32;
        for keys in &batches {
            positions.extend(keys.positions.iter().map(|position| count + position));
            count = count.checked_add(keys.count).ok_or_else(too_large)?;
        }
        Ok(Self {
            values,
            positions,
            count,
        })
    }

    /// Returns the keys that may have rows.
    pub(crate) fn values(&self) -> &ArrayRef {
        &self.values
    }

    /// Returns the position of each value among the keys that were asked for, ascending.
    pub(crate) fn positions(&self) -> &[u32] {
        &self.positions
    }

    /// Returns the number of keys that were asked for.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        Float64Array, Int32Array, Int64Array, NullArray, RunArray, StringArray, StringViewArray,
        TimestampNanosecondArray, UInt64Array,
    };
    use arrow::datatypes::{Field, Int32Type, Int64Type, TimeUnit, TimestampMicrosecondType};

    use super::*;

    fn column(data_type: DataType) -> KeyColumn {
        KeyColumn {
            table: "t".to_owned(),
            name: "k".to_owned(),
            data_type,
            zone: "UTC".into(),
        }
    }

    fn read(wanted: DataType, given: impl Array + 'static) -> Result<Keys> {
        let batch =
            RecordBatch::try_from_iter_with_nullable([("k", Arc::new(given) as ArrayRef, true)]);
        column(wanted).read(&batch.unwrap(), 5)
    }

    #[test]
    fn keys_of_the_same_type_stay_as_they_are() {
        let keys = read(DataType::Int64, Int64Array::from(vec![7, 8, 7])).unwrap();
        assert_eq!(
            keys.values().as_primitive::<Int64Type>().values(),
            &[7, 8, 7]
        );
        assert_eq!(keys.positions(), [0, 1, 2]);
        assert_eq!(keys.count(), 3);
    }

    #[test]
    fn a_value_that_no_key_can_have_is_left_out() {
        let numbers = UInt64Array::from(vec![1, u64::MAX, 3, 1 << 31]);
        let keys = read(DataType::Int32, numbers).unwrap();
        assert_eq!(keys.values().as_primitive::<Int32Type>().values(), &[1, 3]);
        assert_eq!((keys.positions(), keys.count()), (&[0, 2][..], 4));
        let numbers = Float64Array::from(vec![1.5, f64::NAN, 2.0, f64::INFINITY]);
        let keys = read(DataType::Int64, numbers).unwrap();
        assert_eq!(keys.values().as_primitive::<Int64Type>().values(), &[2]);
        assert_eq!(keys.positions(), [2]);
        for wanted in [DataType::Int64, DataType::Decimal128(10, 2)] {
            let keys = read(wanted, Float64Array::from(vec![-0.0, 0.5])).unwrap();
            assert_eq!(keys.positions().first(), Some(&0));
        }
    }

    #[test]
    fn keys_that_are_stored_once_are_counted_as_often_as_they_are_asked_for() {
        let ends = Int32Array::from(vec![2, 5]);
        let runs: RunArray<Int32Type> =
            RunArray::try_new(&ends, &Int64Array::from(vec![7, 8])).unwrap();
        let batch = RecordBatch::try_from_iter([("k", Arc::new(runs.clone()) as ArrayRef)]);
        assert!(bytes_of_keys(&batch.unwrap()) >= 5 * 8);
        let keys = read(DataType::Int32, runs).unwrap();
        let values = keys.values().as_primitive::<Int32Type>().values();
        assert_eq!(values, &[7, 7, 8, 8, 8]);
    }

    #[test]
    fn local_times_are_instants_in_the_zone_of_the_session() {
        let utc = DataType::Timestamp(
            TimeUnit::Microsecond,
            Some(volary_exec::instants::UTC.into()),
        );
        let column = KeyColumn {
            zone: "Asia/Tokyo".into(),
            ..column(utc)
        };
        // Nine hours after midnight, and a nanosecond more, which no key has.
        let nine = 9 * 60 * 60 * 1_000_000_000;
        let given: ArrayRef = Arc::new(TimestampNanosecondArray::from(vec![nine, nine + 1]));
        let batch = RecordBatch::try_from_iter([("k", given)]).unwrap();
        let keys = column.read(&batch, 5).unwrap();
        let instants = keys.values().as_primitive::<TimestampMicrosecondType>();
        assert_eq!(instants.values(), &[0]);
        assert_eq!(keys.positions(), [0]);
    }

    #[test]
    fn texts_are_parsed_and_what_is_no_value_is_refused() {
        let keys = read(DataType::Int64, StringArray::from(vec!["1", "02"])).unwrap();
        assert_eq!(keys.values().as_primitive::<Int64Type>().values(), &[1, 2]);
        let error = read(DataType::Int64, StringArray::from(vec!["1", "kea"])).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidArgument);
        let text = error.text();
        for part in ["VARCHAR", "shard key k of table \"t\" is BIGINT", "kea"] {
            assert!(text.contains(part), "{text}");
        }
        let dictionary: arrow::array::DictionaryArray<Int32Type> =
            vec!["a", "b", "a"].into_iter().collect();
        let keys = read(DataType::Utf8View, dictionary).unwrap();
        let texts: &StringViewArray = keys.values().as_string_view();
        assert_eq!(texts.iter().flatten().collect::<Vec<_>>(), ["a", "b", "a"]);
    }

    #[test]
    fn wrong_batches_are_refused() {
        let message = |keys: Result<Keys>| keys.unwrap_err().message().to_owned();
        let null = message(read(DataType::Int64, Int64Array::from(vec![Some(1), None])));
        assert!(null.contains("position 1 is NULL"), "{null}");
        let null = message(read(DataType::Int64, NullArray::new(1)));
        assert!(null.contains("position 0 is NULL"), "{null}");
        let many = message(read(DataType::Int64, Int64Array::from(vec![1; 6])));
        assert!(many.contains("gateway.lookup.max_keys"), "{many}");
        let of_type = |data_type: DataType| Field::new("k", data_type, true);
        let check = |fields: Vec<Field>| {
            let checked = column(DataType::Int64).check_schema(&Schema::new(fields));
            checked.map_err(|error| error.text())
        };
        assert_eq!(check(vec![of_type(DataType::Int16)]), Ok(()));
        assert_eq!(check(vec![of_type(DataType::Utf8)]), Ok(()));
        let list = DataType::new_list(DataType::Int64, true);
        let list = check(vec![of_type(list)]).unwrap_err();
        assert!(
            list.contains("shard key k of table \"t\" is BIGINT"),
            "{list}"
        );
        let two = check(vec![of_type(DataType::Int64), of_type(DataType::Int64)]).unwrap_err();
        assert!(two.contains("has one column, and this one has 2"), "{two}");
    }

    #[test]
    fn batches_are_joined_and_keep_their_positions() {
        let first = read(DataType::Int32, Int64Array::from(vec![1, i64::MAX, 3])).unwrap();
        let second = read(DataType::Int32, Int64Array::from(vec![i64::MIN, 5])).unwrap();
        let joined = Keys::join(vec![first, second]).unwrap();
        assert_eq!(
            joined.values().as_primitive::<Int32Type>().values(),
            &[1, 3, 5]
        );
        assert_eq!((joined.positions(), joined.count()), (&[0, 2, 4][..], 5));
    }
}
