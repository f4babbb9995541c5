//! DataFusion 55's `sum` wraps around: the sum of two large integers is a negative number. This one
//! fails if the sum does not fit its type. It keeps the number of times that a sum has wrapped
//! around, so sums may leave the range of the type on their way and come back to it. A partial sum
//! of integers or durations is sent as a decimal. So the answer does not depend on how the rows are
//! spread over workers.

/// Sums distinct values.
mod distinct;
/// Sums the rows of groups.
mod groups;
/// Defines the types of numbers that are summed.
mod summand;

use std::fmt;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, DurationMicrosecondType,
    DurationMillisecondType, DurationNanosecondType, DurationSecondType, Field, FieldRef,
    Int64Type, TimeUnit, UInt64Type,
};
use datafusion::common::{Result, ScalarValue};
use datafusion::functions_aggregate::sum::sum_udaf;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, Expr, GroupsAccumulator, Operator,
    ReversedUDAF, SetMonotonicity, Signature, StatisticsArgs,
};

use distinct::DistinctSum;
use groups::GroupSums;
use summand::{Summand, Total};

/// Returns the aggregate `sum`.
pub(crate) fn checked_sum() -> Arc<AggregateUDF> {
    Arc::new(AggregateUDF::from(CheckedSum(sum_udaf())))
}

/// The aggregate of DataFusion, with other accumulators for the types that could wrap around.
#[derive(Debug, PartialEq, Eq, Hash)]
struct CheckedSum(Arc<AggregateUDF>);

/// Calls a generic function with the type of a sum, or evaluates `$other` for the types whose sums
/// DataFusion computes.
macro_rules! by_type {
    ($data_type:expr, $call:ident::<_>($($argument:expr),*), $other:expr) => {
        match $data_type {
            DataType::Int64 => $call::<Int64Type>($($argument),*),
            DataType::UInt64 => $call::<UInt64Type>($($argument),*),
            DataType::Duration(TimeUnit::Second) => $call::<DurationSecondType>($($argument),*),
            DataType::Duration(TimeUnit::Millisecond) => {
                $call::<DurationMillisecondType>($($argument),*)
            }
            DataType::Duration(TimeUnit::Microsecond) => {
                $call::<DurationMicrosecondType>($($argument),*)
            }
            DataType::Duration(TimeUnit::Nanosecond) => {
                $call::<DurationNanosecondType>($($argument),*)
            }
            // The type of a sum has ten digits more than the decimals, up to 38. Ten more digits
            // are enough for as many rows as a table may have.
            DataType::Decimal128(precision, _) if *precision == DECIMAL128_MAX_PRECISION => {
                $call::<Decimal128Type>($($argument),*)
            }
            _ => $other,
        }
    };
}

fn sum_of_rows<T: Summand>(data_type: &DataType) -> Result<Box<dyn Accumulator>> {
    Ok(Box::new(RowSum::<T>::new(data_type)))
}

fn sum_of_groups<T: Summand>(data_type: &DataType) -> Result<Box<dyn GroupsAccumulator>> {
    Ok(Box::new(GroupSums::<T>::new(data_type)))
}

fn sum_of_distinct<T: Summand>(data_type: &DataType) -> Result<Box<dyn Accumulator>> {
    Ok(Box::new(DistinctSum::<T>::new(data_type)))
}

fn state_type<T: Summand>(data_type: &DataType) -> Option<DataType> {
    Some(T::state_type(data_type))
}

impl AggregateUDFImpl for CheckedSum {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn signature(&self) -> &Signature {
        self.0.signature()
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.0.return_type(arg_types)
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let data_type = args.return_type().clone();
        if args.is_distinct {
            by_type!(
                &data_type,
                sum_of_distinct::<_>(&data_type),
                self.0.accumulator(args)
            )
        } else {
            by_type!(
                &data_type,
                sum_of_rows::<_>(&data_type),
                self.0.accumulator(args)
            )
        }
    }

    fn create_sliding_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn Accumulator>> {
        let data_type = args.return_type().clone();
        let others = |args| self.0.create_sliding_accumulator(args);
        if args.is_distinct {
            by_type!(&data_type, sum_of_distinct::<_>(&data_type), others(args))
        } else {
            by_type!(&data_type, sum_of_rows::<_>(&data_type), others(args))
        }
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let data_type = args.return_type();
        match by_type!(data_type, state_type::<_>(data_type), None) {
            Some(state) if !args.is_distinct => {
                let name = format_state_name(args.name, "sum");
                Ok(vec![Arc::new(Field::new(name, state, true))])
            }
            _ => self.0.state_fields(args),
        }
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        self.0.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        let data_type = args.return_type().clone();
        let others = |args| self.0.create_groups_accumulator(args);
        by_type!(&data_type, sum_of_groups::<_>(&data_type), others(args))
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.0.order_sensitivity()
    }

    fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity {
        self.0.inner().set_monotonicity(data_type)
    }

    fn simplify_expr_op_literal(
        &self,
        function: &AggregateFunction,
        argument: &Expr,
        operator: Operator,
        literal: &Expr,
        argument_is_left: bool,
    ) -> Result<Option<Expr>> {
        self.0.inner().simplify_expr_op_literal(
            function,
            argument,
            operator,
            literal,
            argument_is_left,
        )
    }

    fn value_from_stats(&self, statistics: &StatisticsArgs<'_>) -> Option<ScalarValue> {
        self.0.value_from_stats(statistics)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.0.documentation()
    }
}

/// The sum of the rows of a query or of a window.
struct RowSum<T: Summand> {
    data_type: DataType,
    total: Total<T>,
    /// Number of values that were added and not taken away again. Without any, the sum is NULL.
    values: u64,
}

impl<T: Summand> RowSum<T> {
    fn new(data_type: &DataType) -> Self {
        Self {
            data_type: data_type.clone(),
            total: Total::default(),
            values: 0,
        }
    }
}

impl<T: Summand> fmt::Debug for RowSum<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowSum")
            .field("data_type", &self.data_type)
            .finish_non_exhaustive()
    }
}

impl<T: Summand> Accumulator for RowSum<T> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let values = values[0].as_primitive::<T>();
        self.values += (values.len() - values.null_count()) as u64;
        self.total.add(T::sum(values));
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let values = values[0].as_primitive::<T>();
        self.values -= (values.len() - values.null_count()) as u64;
        self.total.subtract(T::sum(values));
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        for state in states[0].as_primitive::<T::State>().iter().flatten() {
            self.values += 1;
            self.total.add(T::of_state(state));
        }
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let state = match self.values {
            0 => None,
            _ => Some(self.total.state()?),
        };
        let data_type = T::state_type(&self.data_type);
        Ok(vec![ScalarValue::new_primitive::<T::State>(
            state, &data_type,
        )?])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let sum = match self.values {
            0 => None,
            _ => Some(self.total.value()?),
        };
        ScalarValue::new_primitive::<T>(sum, &self.data_type)
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }
}

#[cfg(test)]
mod tests;
