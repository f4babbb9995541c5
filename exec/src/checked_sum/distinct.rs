use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, PrimitiveArray};
use arrow::datatypes::DataType;
use datafusion::common::utils::SingleRowListArrayBuilder;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::Accumulator;

use super::summand::{Summand, Total};

/// The sum of the distinct values of a query or of a window.
pub(super) struct DistinctSum<T: Summand> {
    data_type: DataType,
    /// How many times each value was added and not taken away again.
    counts: HashMap<T::Native, u64>,
    total: Total<T>,
}

impl<T: Summand> DistinctSum<T> {
    /// Creates the sum of no values. `data_type` is the type of the sum.
    pub(super) fn new(data_type: &DataType) -> Self {
        Self {
            data_type: data_type.clone(),
            counts: HashMap::new(),
            total: Total::default(),
        }
    }

    fn add_all(&mut self, values: &ArrayRef) {
        for value in values.as_primitive::<T>().iter().flatten() {
            let count = self.counts.entry(value).or_default();
            *count += 1;
            if *count == 1 {
                self.total.add(Total::of(value));
            }
        }
    }
}

impl<T: Summand> fmt::Debug for DistinctSum<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DistinctSum")
            .field("data_type", &self.data_type)
            .finish_non_exhaustive()
    }
}

impl<T: Summand> Accumulator for DistinctSum<T> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.add_all(&values[0]);
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for value in values[0].as_primitive::<T>().iter().flatten() {
            if let Some(count) = self.counts.get_mut(&value) {
                *count -= 1;
                if *count == 0 {
                    self.counts.remove(&value);
                    self.total.subtract(Total::of(value));
                }
            }
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        for values in states[0].as_list::<i32>().iter().flatten() {
            self.add_all(&values);
        }
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let values = PrimitiveArray::<T>::from_iter_values(self.counts.keys().copied());
        let values: ArrayRef = Arc::new(values.with_data_type(self.data_type.clone()));
        let list = SingleRowListArrayBuilder::new(values);
        Ok(vec![list.build_list_scalar()])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let sum = if self.counts.is_empty() {
            None
        } else {
            Some(self.total.value()?)
        };
        ScalarValue::new_primitive::<T>(sum, &self.data_type)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.counts.capacity() * size_of::<(T::Native, u64)>()
    }
}
