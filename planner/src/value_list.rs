//! A statement may have a list of hundreds of thousands of constants: `k IN (1, 2, …)`. An
//! expression for each of them takes more time and memory than everything else that is done for the
//! statement. The gateway takes such a list out of the text before it parses the text, and puts a
//! call of a function in its place that knows the values. On workers, the call is a [`KeySetExpr`].

use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use arrow::array::{Array as _, ArrayRef, RecordBatch};
use arrow::compute::{cast, filter, is_not_null};
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::{internal_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use volary_exec::key_set::KeySetExpr;

/// The function that says whether its argument is one of the values of a list. It is NULL if the
/// argument is NULL.
#[derive(Debug)]
pub struct ValueList {
    name: String,
    signature: Signature,
    /// The values, without NULLs.
    values: ArrayRef,
    /// The values in the type of the argument. Empty until the function was planned.
    typed: OnceLock<ArrayRef>,
    /// The test for a column that stands alone. It hashes the values once.
    set: OnceLock<KeySetExpr>,
}

impl ValueList {
    /// Creates the function with this name. The values are whole numbers (Int64) or texts (Utf8).
    pub fn new(name: String, values: ArrayRef) -> Self {
        Self {
            name,
            signature: Signature::user_defined(Volatility::Immutable),
            values,
            typed: OnceLock::new(),
            set: OnceLock::new(),
        }
    }

    /// Returns the size of the values as they were read, in bytes.
    pub fn bytes(&self) -> usize {
        self.values.get_array_memory_size()
    }

    /// Returns whether the planner has found an argument whose type fits the values.
    pub fn is_typed(&self) -> bool {
        self.typed.get().is_some()
    }

    /// Returns the values of the list that an expression tests, in the type of the argument, and
    /// the argument. Returns `None` for another expression.
    pub(crate) fn of_call(expression: &Expr) -> Option<(&ArrayRef, &Expr)> {
        let Expr::ScalarFunction(call) = expression else {
            return None;
        };
        let list = call.func.inner().downcast_ref::<Self>()?;
        Some((list.typed.get()?, call.args.first()?))
    }

    /// Returns whether a physical expression tests a list.
    pub(crate) fn is_called_in(expression: &Arc<dyn PhysicalExpr>) -> bool {
        called(expression).is_some()
    }

    /// Returns the test of a list as workers know it. Returns `None` for another expression.
    ///
    /// # Errors
    /// Fails if values of this type cannot be looked up.
    pub(crate) fn key_set(
        expression: &Arc<dyn PhysicalExpr>,
    ) -> Result<Option<Arc<dyn PhysicalExpr>>> {
        let Some((list, key)) = called(expression) else {
            return Ok(None);
        };
        let set = Arc::new(list.set()?.clone());
        set.with_new_children(vec![Arc::clone(key)]).map(Some)
    }

    fn set(&self) -> Result<&KeySetExpr> {
        if let Some(set) = self.set.get() {
            return Ok(set);
        }
        let Some(values) = self.typed.get() else {
            return internal_err!("a list of values is used before it was planned");
        };
        let made = KeySetExpr::try_new(Arc::new(Column::new("key", 0)), Arc::clone(values))?;
        Ok(self.set.get_or_init(|| made))
    }

    /// Returns the values that can be values of this type, in this type.
    fn values_as(&self, data_type: &DataType) -> Result<ArrayRef> {
        let fits = match self.values.data_type() {
            DataType::Int64 => data_type.is_integer(),
            _ => data_type.is_string(),
        };
        if !fits {
            return plan_err!("the list has no values of the type {data_type}");
        }
        // A value that is out of range becomes NULL.
        let values = cast(&self.values, data_type)?;
        Ok(match values.null_count() {
            0 => values,
            _ => filter(&values, &is_not_null(&values)?)?,
        })
    }
}

impl ScalarUDFImpl for ValueList {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let [key] = types else {
            return plan_err!("a list of values is compared with one expression");
        };
        let typed = match self.typed.get() {
            Some(typed) => typed,
            None => {
                let values = self.values_as(key)?;
                self.typed.get_or_init(|| values)
            }
        };
        if typed.data_type() != key {
            return plan_err!("a list of values is compared with one type only");
        }
        Ok(types.to_vec())
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = arguments.number_rows;
        let keys = ColumnarValue::values_to_arrays(&arguments.args)?;
        let [keys] = keys.as_slice() else {
            return plan_err!("a list of values is compared with one expression");
        };
        let schema = Schema::new(vec![Field::new("key", keys.data_type().clone(), true)]);
        let batch = RecordBatch::try_new(Arc::new(schema), vec![Arc::clone(keys)])?;
        let found = self.set()?.evaluate(&batch)?;
        Ok(ColumnarValue::Array(found.into_array(rows)?))
    }
}

/// Returns the list that a physical expression tests, and the argument.
fn called(expression: &Arc<dyn PhysicalExpr>) -> Option<(&ValueList, &Arc<dyn PhysicalExpr>)> {
    let call = expression.downcast_ref::<ScalarFunctionExpr>()?;
    let list = call.fun().inner().downcast_ref::<ValueList>()?;
    Some((list, call.args().first()?))
}

// Lists are compared by identity. Nothing requires that other lists with the same values are
// recognised as equal.
impl PartialEq for ValueList {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && Arc::ptr_eq(&self.values, &other.values)
    }
}

impl Eq for ValueList {}

impl Hash for ValueList {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
        Arc::as_ptr(&self.values).cast::<()>().hash(state);
    }
}
