//! Arrow compares the parts of intervals instead of their lengths ([`volary_exec::intervals`]), and
//! DataFusion turns durations into intervals to compare them. So a difference of two days would not
//! be longer than one day.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{
    AggregateFunction, Case, InSubquery, ScalarFunction, SetComparison, Sort,
};
use datafusion::logical_expr::{
    AggregateUDF, Cast, Expr, ExprSchemable, Join, LogicalPlan, LogicalPlanBuilder, Subquery,
    WindowFunctionDefinition, lit, when,
};
use datafusion::optimizer::AnalyzerRule;
use volary_exec::intervals::{self, INTERVAL, has_length};
use volary_exec::rewrite::{has_part, rewrite_expressions};

use crate::time_units::{is_comparison, operands_of};

/// Compares and sorts intervals by their lengths. It must run after the rule that makes the types
/// of operands agree.
#[derive(Debug)]
pub(crate) struct IntervalOrder;

impl AnalyzerRule for IntervalOrder {
    fn name(&self) -> &'static str {
        "interval_order"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let plan = plan.transform_up_with_subqueries(|node| {
            if !mentions_intervals(&node)? {
                return Ok(Transformed::no(node));
            }
            rewrite_expressions(node, by_length)?.transform_data(|node| match node {
                LogicalPlan::Sort(mut sort) => {
                    order_by_length(&mut sort.expr, sort.input.schema())?;
                    Ok(Transformed::yes(LogicalPlan::Sort(sort)))
                }
                LogicalPlan::Join(mut join) => {
                    join_by_length(&mut join)?;
                    Ok(Transformed::yes(LogicalPlan::Join(join)))
                }
                other => Ok(Transformed::no(other)),
            })
        })?;
        Ok(plan.data)
    }
}

/// Returns whether the node may compute with intervals. Most nodes do not, and need not be
/// rewritten.
fn mentions_intervals(node: &LogicalPlan) -> Result<bool> {
    let inputs = node.inputs();
    let mut fields = inputs.iter().flat_map(|input| input.schema().fields());
    if fields.any(|field| has_intervals(field.data_type())) {
        return Ok(true);
    }
    has_part(node, |part| match part {
        Expr::Literal(value, _) => has_intervals(&value.data_type()),
        Expr::Cast(cast) => has_intervals(cast.field.data_type()),
        Expr::TryCast(cast) => has_intervals(cast.field.data_type()),
        Expr::OuterReferenceColumn(field, _) => has_intervals(field.data_type()),
        Expr::ScalarSubquery(rows) => {
            let mut fields = rows.subquery.schema().fields().iter();
            fields.any(|field| has_intervals(field.data_type()))
        }
        // Casts of texts to intervals have become functions.
        Expr::ScalarFunction(call) => {
            let name = call.func.name();
            name.starts_with("arrow_") || name.contains("interval")
        }
        _ => false,
    })
}

/// Returns whether values of the type are intervals or contain some.
fn has_intervals(data_type: &DataType) -> bool {
    match data_type {
        DataType::List(element)
        | DataType::LargeList(element)
        | DataType::FixedSizeList(element, _)
        | DataType::Map(element, _) => has_intervals(element.data_type()),
        DataType::Struct(fields) => {
            let mut fields = fields.iter();
            fields.any(|field| has_intervals(field.data_type()))
        }
        other => is_interval(other),
    }
}

fn is_interval(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Interval(_))
}

/// Compares, sorts and aggregates intervals by their lengths.
fn by_length(mut part: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    if is_comparison(&part) {
        let mut operands = operands_of(&mut part);
        let types = operands.iter().map(|operand| operand.get_type(schema));
        let types = types.collect::<Result<Vec<_>>>()?;
        let have_lengths = types
            .iter()
            .all(|data_type| has_length(data_type) || data_type.is_null());
        if !have_lengths || !types.iter().any(is_interval) {
            return Ok(Transformed::no(part));
        }
        for operand in &mut operands {
            **operand = length_of(std::mem::take(*operand), schema);
        }
        return Ok(Transformed::yes(part));
    }
    match &mut part {
        Expr::AggregateFunction(call) => {
            let is_changed = order_by_length(&mut call.params.order_by, schema)?;
            let extreme = extreme_of_intervals(call, schema)?;
            let is_extreme = extreme.is_some();
            if let Some(extreme) = extreme {
                call.func = extreme;
            }
            Ok(Transformed::new_transformed(part, is_changed || is_extreme))
        }
        Expr::WindowFunction(call) => {
            let mut is_changed = order_by_length(&mut call.params.order_by, schema)?;
            if let WindowFunctionDefinition::AggregateUDF(function) = &call.fun
                && let Some(value) = call.params.args.first()
                && value.get_type(schema)? == INTERVAL
                && let Some(extreme) = intervals::aggregate(function.name())
            {
                call.fun = WindowFunctionDefinition::AggregateUDF(extreme);
                is_changed = true;
            }
            Ok(Transformed::new_transformed(part, is_changed))
        }
        Expr::InSubquery(InSubquery { expr, subquery, .. })
        | Expr::SetComparison(SetComparison { expr, subquery, .. }) => {
            let is_changed = search_by_length(expr, subquery, schema)?;
            Ok(Transformed::new_transformed(part, is_changed))
        }
        Expr::Case(Case {
            expr: Some(value),
            when_then_expr,
            ..
        }) if is_interval(&value.get_type(schema)?) => {
            let compared = when_then_expr.iter_mut().map(|(value, _)| value.as_mut());
            for operand in compared.chain([value.as_mut()]) {
                *operand = length_of(std::mem::take(operand), schema);
            }
            Ok(Transformed::yes(part))
        }
        Expr::ScalarFunction(call) => {
            let other = function_by_length(call, schema)?;
            Ok(other.map_or_else(|| Transformed::no(part), Transformed::yes))
        }
        _ => Ok(Transformed::no(part)),
    }
}

/// Returns a call of GREATEST, LEAST or NULLIF that compares intervals by their lengths. Returns
/// `None` for other calls.
fn function_by_length(call: &ScalarFunction, schema: &DFSchema) -> Result<Option<Expr>> {
    let name = call.func.name();
    let extreme = intervals::extreme_of_row(name);
    if extreme.is_none() && name != "nullif" {
        return Ok(None);
    }
    let types = call.args.iter().map(|value| value.get_type(schema));
    let types = types.collect::<Result<Vec<_>>>()?;
    let are_intervals = types
        .iter()
        .all(|data_type| is_interval(data_type) || data_type.is_null());
    if !are_intervals || !types.iter().any(is_interval) {
        return Ok(None);
    }
    match (extreme, call.args.as_slice()) {
        (Some(extreme), values) => Ok(Some(extreme.call(values.to_vec()))),
        (None, [value, other]) => {
            let of_value = length_of(value.clone(), schema);
            let are_equal = of_value.eq(length_of(other.clone(), schema));
            let null = ScalarValue::try_from(&INTERVAL)?;
            let value = value.clone();
            when(are_equal, lit(null)).otherwise(value).map(Some)
        }
        _ => Ok(None),
    }
}

/// Name of a column of lengths. The optimizer mistakes it for the column of intervals if both have
/// the same name.
const LENGTH: &str = "__length";

/// Searches for intervals by their lengths. Returns whether any are searched for.
fn search_by_length(value: &mut Expr, found: &mut Subquery, schema: &DFSchema) -> Result<bool> {
    let rows = Arc::clone(&found.subquery);
    let types = [
        value.get_type(schema)?,
        rows.schema().field(0).data_type().clone(),
    ];
    if !types.iter().all(has_length) || !types.iter().any(is_interval) {
        return Ok(false);
    }
    let column = Column::from(rows.schema().qualified_field(0));
    let lengths = length_of(Expr::Column(column), rows.schema()).alias(LENGTH);
    let lengths = LogicalPlanBuilder::from(rows).project([lengths])?.build()?;
    found.subquery = Arc::new(lengths);
    *value = length_of(std::mem::take(value), schema);
    Ok(true)
}

/// Returns the aggregate that stands for a MIN or MAX of intervals.
fn extreme_of_intervals(
    call: &AggregateFunction,
    schema: &DFSchema,
) -> Result<Option<Arc<AggregateUDF>>> {
    match call.params.args.as_slice() {
        [value] if value.get_type(schema)? == INTERVAL => {
            Ok(intervals::aggregate(call.func.name()))
        }
        _ => Ok(None),
    }
}

/// Sorts by the lengths of intervals. Returns whether there are any.
fn order_by_length(order: &mut [Sort], schema: &DFSchema) -> Result<bool> {
    let mut is_changed = false;
    for sort in order {
        if is_interval(&sort.expr.get_type(schema)?) {
            sort.expr = length_of(std::mem::take(&mut sort.expr), schema);
            is_changed = true;
        }
    }
    Ok(is_changed)
}

/// Joins intervals by their lengths.
fn join_by_length(join: &mut Join) -> Result<()> {
    for (left, right) in &mut join.on {
        let of_left = left.get_type(join.left.schema())?;
        let of_right = right.get_type(join.right.schema())?;
        if is_interval(&of_left) && has_length(&of_right) {
            *left = length_of(std::mem::take(left), join.left.schema());
            *right = length_of(std::mem::take(right), join.right.schema());
        }
    }
    Ok(())
}

/// Returns the length of an interval. If the interval was cast from a duration, it returns the
/// length of the duration, because the cast fails for long durations.
fn length_of(value: Expr, schema: &DFSchema) -> Expr {
    let value = match value {
        Expr::Cast(Cast { expr, field }) => {
            let is_duration = expr
                .get_type(schema)
                .is_ok_and(|from| matches!(from, DataType::Duration(_)));
            if is_duration && is_interval(field.data_type()) {
                *expr
            } else {
                Expr::Cast(Cast { expr, field })
            }
        }
        other => other,
    };
    intervals::length().call(vec![value])
}
