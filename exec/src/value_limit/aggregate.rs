use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::logical_expr::expr::{
    AggregateFunction, AggregateFunctionParams, WindowFunctionParams,
};
use datafusion::logical_expr::function::{
    AccumulatorArgs, AggregateFunctionSimplification, StateFieldsArgs,
};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, Expr, GroupsAccumulator, Operator,
    ReversedUDAF, SetMonotonicity, Signature, StatisticsArgs,
};
use datafusion::physical_expr::expressions::Literal;

use super::one_state::{OneStateAtATime, SINGLE_STATE_AGGREGATES};
use volary_node::memory::{ByteLimit, ProcessMemory, ProcessReservation};
use volary_node::size::MemorySize;

/// The aggregates whose value contains all values of their rows.
const COLLECTING_AGGREGATES: [&str; 2] = ["array_agg", "string_agg"];
/// The aggregates that keep a number of centroids. A constant after the first two arguments sets
/// this number.
const CENTROID_AGGREGATES: [&str; 2] = [
    "approx_percentile_cont",
    "approx_percentile_cont_with_weight",
];
/// Bytes of a centroid: two numbers, and the same again while centroids are merged.
const CENTROID_BYTES: usize = 32;

/// An aggregate that refuses to make a value that is too large. If rows are grouped, the memory of
/// the query limits all groups together instead, except with DISTINCT or ORDER BY. It also merges
/// all states of an aggregate that would read only the first one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct BoundedAggregate {
    function: Arc<AggregateUDF>,
    limit_bytes: usize,
    setting: &'static str,
}

impl BoundedAggregate {
    /// Wraps an aggregate if it may make a large value or loses states, and is not wrapped yet.
    pub(super) fn of(function: Arc<AggregateUDF>, limit: ByteLimit) -> Option<Self> {
        let is_bounded = function.inner().is::<Self>();
        let bounded_names = [COLLECTING_AGGREGATES, CENTROID_AGGREGATES].as_flattened();
        let needs_wrapper = [bounded_names, &SINGLE_STATE_AGGREGATES]
            .iter()
            .any(|names| names.contains(&function.name()));
        (needs_wrapper && !is_bounded).then(|| Self {
            function,
            limit_bytes: limit.bytes,
            setting: limit.setting,
        })
    }

    fn inner(&self) -> &Arc<dyn AggregateUDFImpl> {
        self.function.inner()
    }

    fn with_function(&self, function: AggregateUDF) -> Self {
        Self {
            function: Arc::new(function),
            ..self.clone()
        }
    }

    /// Refuses a number of centroids that would take too much memory, because all of them are
    /// allocated at once.
    fn check_centroids(&self, args: &AccumulatorArgs<'_>) -> Result<()> {
        if !CENTROID_AGGREGATES.contains(&self.function.name()) {
            return Ok(());
        }
        for expression in args.exprs.iter().skip(2) {
            let constant = expression.downcast_ref::<Literal>();
            let number = constant.and_then(|it| it.value().cast_to(&DataType::UInt64).ok());
            let Some(ScalarValue::UInt64(Some(number))) = number else {
                continue;
            };
            let bytes = usize::try_from(number).unwrap_or(usize::MAX);
            let bytes = bytes.saturating_mul(CENTROID_BYTES);
            if bytes > self.limit_bytes {
                return Err(too_large(
                    self.function.name(),
                    &MemorySize::from(bytes).to_string(),
                    self.limit_bytes,
                    self.setting,
                ));
            }
        }
        Ok(())
    }

    fn wrap_accumulator(&self, within: Box<dyn Accumulator>) -> Box<dyn Accumulator> {
        if SINGLE_STATE_AGGREGATES.contains(&self.function.name()) {
            return Box::new(OneStateAtATime(within));
        }
        if !COLLECTING_AGGREGATES.contains(&self.function.name()) {
            return within;
        }
        Box::new(BoundedAccumulator {
            inner: within,
            name: self.function.name().to_owned(),
            limit_bytes: self.limit_bytes,
            setting: self.setting,
        })
    }
}

// Every method is forwarded. Otherwise the aggregate would lose its own implementation of that
// method.
#[warn(clippy::missing_trait_methods)]
impl AggregateUDFImpl for BoundedAggregate {
    fn name(&self) -> &str {
        self.inner().name()
    }

    fn aliases(&self) -> &[String] {
        self.inner().aliases()
    }

    fn schema_name(&self, params: &AggregateFunctionParams) -> Result<String> {
        self.inner().schema_name(params)
    }

    fn human_display(&self, params: &AggregateFunctionParams) -> Result<String> {
        self.inner().human_display(params)
    }

    fn window_function_schema_name(&self, params: &WindowFunctionParams) -> Result<String> {
        self.inner().window_function_schema_name(params)
    }

    fn display_name(&self, params: &AggregateFunctionParams) -> Result<String> {
        self.inner().display_name(params)
    }

    fn window_function_display_name(&self, params: &WindowFunctionParams) -> Result<String> {
        self.inner().window_function_display_name(params)
    }

    fn signature(&self) -> &Signature {
        self.inner().signature()
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.inner().return_type(arg_types)
    }

    fn return_field(&self, arg_fields: &[FieldRef]) -> Result<FieldRef> {
        self.inner().return_field(arg_fields)
    }

    fn is_nullable(&self) -> bool {
        self.inner().is_nullable()
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        self.check_centroids(&args)?;
        Ok(self.wrap_accumulator(self.inner().accumulator(args)?))
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        self.inner().state_fields(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        self.inner().groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        self.inner().create_groups_accumulator(args)
    }

    fn create_sliding_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn Accumulator>> {
        self.check_centroids(&args)?;
        Ok(self.wrap_accumulator(self.inner().create_sliding_accumulator(args)?))
    }

    fn with_beneficial_ordering(
        self: Arc<Self>,
        beneficial_ordering: bool,
    ) -> Result<Option<Arc<dyn AggregateUDFImpl>>> {
        let function = AggregateUDF::clone(&self.function);
        let ordered = function.with_beneficial_ordering(beneficial_ordering)?;
        Ok(ordered.map(|function| Arc::new(self.with_function(function)) as _))
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.inner().order_sensitivity()
    }

    fn simplify(&self) -> Option<AggregateFunctionSimplification> {
        self.inner().simplify()
    }

    fn simplify_expr_op_literal(
        &self,
        function: &AggregateFunction,
        argument: &Expr,
        operator: Operator,
        literal: &Expr,
        argument_is_left: bool,
    ) -> Result<Option<Expr>> {
        self.inner().simplify_expr_op_literal(
            function,
            argument,
            operator,
            literal,
            argument_is_left,
        )
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        match self.inner().reverse_expr() {
            ReversedUDAF::Reversed(function) => {
                let function = AggregateUDF::clone(&function);
                ReversedUDAF::Reversed(Arc::new(AggregateUDF::from(self.with_function(function))))
            }
            other => other,
        }
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner().coerce_types(arg_types)
    }

    fn is_descending(&self) -> Option<bool> {
        self.inner().is_descending()
    }

    fn value_from_stats(&self, statistics: &StatisticsArgs<'_>) -> Option<ScalarValue> {
        self.inner().value_from_stats(statistics)
    }

    fn default_value(&self, data_type: &DataType) -> Result<ScalarValue> {
        self.inner().default_value(data_type)
    }

    fn supports_null_handling_clause(&self) -> bool {
        self.inner().supports_null_handling_clause()
    }

    fn supports_within_group_clause(&self) -> bool {
        self.inner().supports_within_group_clause()
    }

    fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity {
        self.inner().set_monotonicity(data_type)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner().documentation()
    }
}

/// An accumulator that fails when it has collected too much.
#[derive(Debug)]
struct BoundedAccumulator {
    inner: Box<dyn Accumulator>,
    name: String,
    limit_bytes: usize,
    setting: &'static str,
}

impl BoundedAccumulator {
    /// Reserves twice the collected size. The collected values may move to a buffer of that size
    /// before their old buffer is freed.
    fn reserve_growth(&self) -> Result<Option<ProcessReservation<'static>>> {
        self.reserve(self.inner.size().saturating_mul(2))
    }

    fn reserve_copy(&self) -> Result<Option<ProcessReservation<'static>>> {
        self.reserve(self.inner.size())
    }

    fn reserve(&self, bytes: usize) -> Result<Option<ProcessReservation<'static>>> {
        ProcessMemory::this().try_reserve(bytes, || format!("{}(…)", self.name))
    }

    fn check(&self) -> Result<()> {
        let bytes = self.inner.size();
        if bytes <= self.limit_bytes {
            return Ok(());
        }
        let size = format!("{} or more", MemorySize::from(bytes));
        Err(too_large(&self.name, &size, self.limit_bytes, self.setting))
    }
}

fn too_large(name: &str, size: &str, limit_bytes: usize, setting: &str) -> DataFusionError {
    let limit = MemorySize::from(limit_bytes);
    DataFusionError::ResourcesExhausted(format!(
        "{name}(…) would make a value of {size}; {setting} allows {limit}"
    ))
}

impl Accumulator for BoundedAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let _being_made = self.reserve_growth()?;
        self.inner.update_batch(values)?;
        self.check()
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let _being_made = self.reserve_copy()?;
        self.inner.evaluate()
    }

    fn size(&self) -> usize {
        self.inner.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let _being_made = self.reserve_copy()?;
        self.inner.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let _being_made = self.reserve_growth()?;
        self.inner.merge_batch(states)?;
        self.check()
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.inner.retract_batch(values)
    }

    fn supports_retract_batch(&self) -> bool {
        self.inner.supports_retract_batch()
    }
}
