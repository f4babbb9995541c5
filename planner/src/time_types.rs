//! DataFusion 55 casts to nanoseconds where timestamps meet dates or texts, and for AT TIME ZONE.
//! Nanoseconds do not have the years before 1677 and after 2262. [`TimeTypes`] casts to the unit of
//! the timestamp before that.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Case, InSubquery, ScalarFunction};
use datafusion::logical_expr::{
    Cast, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Subquery, Union, cast,
};
use datafusion::optimizer::AnalyzerRule;
use volary_exec::instants::UTC;
use volary_exec::rewrite::{has_part, rewrite_expressions};

use crate::time_units::{digits, is_exact};

/// Functions that return one of their arguments, which have one type.
const OF_ONE_TYPE: [&str; 6] = ["coalesce", "nullif", "ifnull", "nvl", "greatest", "least"];

/// Casts dates and texts to the type of the timestamps that they meet in CASE, UNION, IN and some
/// functions. It must run before the rule that makes types agree.
#[derive(Debug)]
pub(crate) struct TimeTypes;

impl AnalyzerRule for TimeTypes {
    fn name(&self) -> &'static str {
        "time_types"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let mut changed = false;
        let plan = plan.transform_up_with_subqueries(|node| {
            let mut node = Transformed::no(node);
            if has_part(&node.data, may_change)? {
                node = rewrite_expressions(node.data, agree)?;
            }
            if let LogicalPlan::Union(union) = &node.data
                && let Some(inputs) = with_timestamps(union)?
            {
                let union = Union::try_new_with_loose_types(inputs)?;
                node = Transformed::yes(LogicalPlan::Union(union));
            }
            changed |= node.transformed;
            // The types of the operators above may change, too.
            if changed {
                return node.map_data(LogicalPlan::recompute_schema);
            }
            Ok(node)
        })?;
        Ok(plan.data)
    }
}

fn may_change(part: &Expr) -> bool {
    match part {
        Expr::Case(_) | Expr::InSubquery(_) => true,
        Expr::ScalarFunction(call) => OF_ONE_TYPE.contains(&call.func.name()),
        Expr::Cast(cast) => is_zone_of_expression(cast.field.data_type()),
        _ => false,
    }
}

/// Returns whether this is the type to which AT TIME ZONE casts. The types of SQL itself have only
/// the zone UTC.
fn is_zone_of_expression(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Timestamp(TimeUnit::Nanosecond, Some(zone)) if **zone != *UTC)
}

fn agree(mut part: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let is_changed = match &mut part {
        Expr::Case(Case {
            when_then_expr,
            else_expr,
            ..
        }) => {
            let results = when_then_expr.iter_mut().map(|(_, then)| then.as_mut());
            cast_to_timestamp(results.chain(else_expr.as_deref_mut()).collect(), schema)
        }
        Expr::ScalarFunction(ScalarFunction { func, args })
            if OF_ONE_TYPE.contains(&func.name()) =>
        {
            cast_to_timestamp(args.iter_mut().collect(), schema)
        }
        Expr::Cast(Cast { expr, field }) if is_zone_of_expression(field.data_type()) => {
            let unit = match expr.get_type(schema)? {
                DataType::Timestamp(unit, _) => unit,
                _ => TimeUnit::Microsecond,
            };
            let DataType::Timestamp(_, zone) = field.data_type() else {
                return Ok(Transformed::no(part));
            };
            let zoned = DataType::Timestamp(unit, zone.clone());
            *field = Arc::new(field.as_ref().clone().with_data_type(zoned));
            unit != TimeUnit::Nanosecond
        }
        Expr::InSubquery(search) => search_timestamps(search, schema)?,
        _ => false,
    };
    Ok(Transformed::new_transformed(part, is_changed))
}

/// Casts dates and exact texts among values of one type to the timestamp among them. Returns
/// whether it did.
fn cast_to_timestamp(values: Vec<&mut Expr>, schema: &DFSchema) -> bool {
    let types = values.iter().map(|value| value.get_type(schema).ok());
    let types: Vec<_> = types.collect();
    let Some(wanted) = timestamp_among(types.iter().flatten()) else {
        return false;
    };
    let mut is_changed = false;
    for (value, data_type) in values.into_iter().zip(types) {
        let is_cast = match data_type {
            Some(DataType::Date32 | DataType::Date64) => true,
            Some(text) if text.is_string() => is_exact(value, digits(&wanted)),
            _ => false,
        };
        if is_cast {
            *value = cast(std::mem::take(value), wanted.clone());
            is_changed = true;
        }
    }
    is_changed
}

/// Returns the timestamp with most digits, if it has no nanoseconds.
fn timestamp_among<'a>(types: impl Iterator<Item = &'a DataType>) -> Option<DataType> {
    let timestamps = types.filter(|data_type| matches!(data_type, DataType::Timestamp(..)));
    let finest = timestamps.max_by_key(|data_type| digits(data_type))?;
    let is_coarse = !matches!(finest, DataType::Timestamp(TimeUnit::Nanosecond, _));
    is_coarse.then(|| finest.clone())
}

/// Returns the inputs of a UNION with timestamps in place of dates, if it has both in a column.
fn with_timestamps(union: &Union) -> Result<Option<Vec<Arc<LogicalPlan>>>> {
    let columns = union.schema.fields().len();
    let type_of = |input: &LogicalPlan, column: usize| {
        let field = input.schema().fields().get(column);
        field.map(|field| field.data_type().clone())
    };
    let wanted: Vec<_> = (0..columns)
        .map(|column| {
            let types = union.inputs.iter();
            let types: Vec<_> = types.filter_map(|input| type_of(input, column)).collect();
            timestamp_among(types.iter())
        })
        .collect();
    let needs_cast = |input: &LogicalPlan| {
        (0..columns).any(|column| {
            wanted[column].is_some() && type_of(input, column).is_some_and(|it| is_date(&it))
        })
    };
    if !union.inputs.iter().any(|input| needs_cast(input)) {
        return Ok(None);
    }
    let inputs = union.inputs.iter().map(|input| {
        if needs_cast(input) {
            dates_to_timestamps(input, &wanted).map(Arc::new)
        } else {
            Ok(Arc::clone(input))
        }
    });
    inputs.collect::<Result<_>>().map(Some)
}

fn is_date(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Date32 | DataType::Date64)
}

/// Casts the dates among the columns of a plan to the wanted types.
fn dates_to_timestamps(plan: &LogicalPlan, wanted: &[Option<DataType>]) -> Result<LogicalPlan> {
    let columns = plan.schema().iter().zip(wanted);
    let columns = columns.map(|((qualifier, field), wanted)| {
        let column = Expr::Column(Column::from((qualifier, field)));
        match wanted {
            Some(wanted) if is_date(field.data_type()) => {
                let timestamp = cast(column, wanted.clone());
                timestamp.alias_qualified(qualifier.cloned(), field.name())
            }
            _ => column,
        }
    });
    LogicalPlanBuilder::from(plan.clone())
        .project(columns.collect::<Vec<_>>())?
        .build()
}

/// Casts the dates of a search for a timestamp among dates, or for a date among timestamps. Returns
/// whether it did.
fn search_timestamps(search: &mut InSubquery, schema: &DFSchema) -> Result<bool> {
    let searched = search.expr.get_type(schema)?;
    let rows = &search.subquery.subquery;
    let Some(found) = rows.schema().fields().first() else {
        return Ok(false);
    };
    let found = found.data_type().clone();
    if is_date(&found)
        && let Some(wanted) = timestamp_among([&searched].into_iter())
    {
        let rows = dates_to_timestamps(rows, &[Some(wanted)])?;
        search.subquery = Subquery {
            subquery: Arc::new(rows),
            ..search.subquery.clone()
        };
        return Ok(true);
    }
    if is_date(&searched)
        && let Some(wanted) = timestamp_among([&found].into_iter())
    {
        let date = std::mem::take(search.expr.as_mut());
        *search.expr = cast(date, wanted);
        return Ok(true);
    }
    Ok(false)
}
