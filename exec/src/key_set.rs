//! An `IN` list has one expression for each of its values. With thousands of values, sending the
//! list and rewriting it for each opened file costs more than evaluating it. A key set has all
//! values in one array.

use std::collections::HashSet;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::sort;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::{ScalarValue, exec_err, internal_err};
use datafusion::error::Result;
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{Column, InListExpr};
use volary_flight_proto::ipc;

/// The expression `key IN (values)` for many values. It is NULL if the key is NULL.
#[derive(Debug, Clone)]
pub struct KeySetExpr {
    key: Arc<dyn PhysicalExpr>,
    set: Arc<KeySet>,
}

#[derive(Debug)]
struct KeySet {
    values: ArrayRef,
    /// Schema with one column, the key.
    schema: SchemaRef,
    /// Expression that looks up the key column. It hashes the values once.
    lookup: InListExpr,
}

impl KeySetExpr {
    /// Builds the test whether `key` is one of `values`. The values must have the key's type.
    ///
    /// # Errors
    /// Fails if values of this type cannot be looked up.
    pub fn try_new(key: Arc<dyn PhysicalExpr>, values: ArrayRef) -> Result<Self> {
        let schema = key_schema(values.data_type());
        let column = Arc::new(Column::new("key", 0));
        let lookup = InListExpr::try_new_from_array(column, Arc::clone(&values), false, &schema)?;
        let set = KeySet {
            values,
            schema,
            lookup,
        };
        Ok(Self {
            key,
            set: Arc::new(set),
        })
    }

    /// Builds the test whether `key` is one of `values`, which are scalars.
    ///
    /// # Errors
    /// Fails if there are no values, if they have different types, or if values of their type
    /// cannot be looked up.
    pub fn from_scalars(key: Arc<dyn PhysicalExpr>, values: HashSet<ScalarValue>) -> Result<Self> {
        let values = ScalarValue::iter_to_array(values)?;
        // Equal sets are encoded to equal bytes if they are sorted.
        Self::try_new(key, sort(&values, None)?)
    }

    /// Returns the number of values.
    fn len(&self) -> usize {
        self.set.values.len()
    }

    /// Encodes the values for transport. The key is not included: it is sent beside them.
    ///
    /// # Errors
    /// Fails if the values cannot be written as Arrow IPC.
    pub fn values_to_bytes(&self) -> Result<Vec<u8>> {
        Self::encode_values(&self.set.values)
    }

    /// Encodes values like [`Self::values_to_bytes`] does, without building the test.
    ///
    /// # Errors
    /// Fails if the values cannot be written as Arrow IPC.
    pub fn encode_values(values: &ArrayRef) -> Result<Vec<u8>> {
        let schema = key_schema(values.data_type());
        let batch = RecordBatch::try_new(Arc::clone(&schema), vec![Arc::clone(values)])?;
        Ok(ipc::batches_to_bytes(&schema, &[batch])?.into())
    }

    /// Reads what [`Self::values_to_bytes`] has written.
    ///
    /// # Errors
    /// Fails if the bytes are not an encoded set of keys.
    pub fn from_bytes(key: Arc<dyn PhysicalExpr>, bytes: &[u8]) -> Result<Self> {
        let (_, batches) = ipc::batches_from_bytes(bytes)?;
        match batches.as_slice() {
            [batch] if batch.num_columns() == 1 => Self::try_new(key, Arc::clone(batch.column(0))),
            _ => exec_err!("a set of keys is one column of one batch"),
        }
    }
}

/// Returns the schema of a set of keys: one column.
fn key_schema(data_type: &DataType) -> SchemaRef {
    let field = Field::new("key", data_type.clone(), true);
    Arc::new(Schema::new(vec![field]))
}

impl PhysicalExpr for KeySetExpr {
    fn data_type(&self, _: &Schema) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn nullable(&self, schema: &Schema) -> Result<bool> {
        self.key.nullable(schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        let keys = self.key.evaluate(batch)?.into_array(batch.num_rows())?;
        let keys = RecordBatch::try_new(Arc::clone(&self.set.schema), vec![keys])?;
        self.set.lookup.evaluate(&keys)
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.key]
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        match (children.pop(), children.is_empty()) {
            (Some(key), true) => Ok(Arc::new(Self {
                key,
                set: Arc::clone(&self.set),
            })),
            _ => internal_err!("a set of keys has one key"),
        }
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.key.fmt_sql(f)?;
        write!(f, " IN ({} values)", self.len())
    }
}

impl fmt::Display for KeySetExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} IN ({} values)", self.key, self.len())
    }
}

// Sets are compared by identity: only clones of one set are equal. Nothing requires that other sets
// with the same values are recognised as equal.
impl PartialEq for KeySetExpr {
    fn eq(&self, other: &Self) -> bool {
        self.key.as_ref() == other.key.as_ref() && Arc::ptr_eq(&self.set, &other.set)
    }
}

impl Eq for KeySetExpr {}

impl Hash for KeySetExpr {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key.hash(state);
        Arc::as_ptr(&self.set).hash(state);
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, Int64Array, StringArray};

    use super::*;

    fn lookup(column: ArrayRef, values: ArrayRef) -> Vec<Option<bool>> {
        let key = Arc::new(Column::new("k", 0));
        let made = KeySetExpr::try_new(Arc::clone(&key) as _, values).unwrap();
        let bytes = made.values_to_bytes().unwrap();
        let read = KeySetExpr::from_bytes(key, &bytes).unwrap();
        let batch = RecordBatch::try_from_iter_with_nullable([("k", column, true)]).unwrap();
        let answer = read.evaluate(&batch).unwrap();
        let answer = answer.into_array(batch.num_rows()).unwrap();
        answer.as_boolean().iter().collect()
    }

    #[test]
    fn a_key_is_found_after_the_journey_and_null_is_unknown() {
        assert_eq!(
            lookup(
                Arc::new(Int64Array::from(vec![Some(1), None, Some(3)])),
                Arc::new(Int64Array::from(vec![3, 4])),
            ),
            [Some(false), None, Some(true)]
        );
        assert_eq!(
            lookup(
                Arc::new(StringArray::from(vec!["a", "b"])),
                Arc::new(StringArray::from(vec!["b", "c"])),
            ),
            [Some(false), Some(true)]
        );
    }

    #[test]
    fn bytes_that_are_no_set_are_refused() {
        let key = Arc::new(Column::new("k", 0));
        assert!(KeySetExpr::from_bytes(key, b"nonsense").is_err());
    }
}
