//! The filters that are pushed down here leave out only rows that a join discards anyway, so a
//! filter may also be dropped.
//!
//! DataFusion 55 pushes its own filters down, too, but finds their columns by name
//! (apache/datafusion#25259). Below an aggregate, another column may have the name. So may a column
//! on the side of a semi join that is not in the join's output. This module finds columns by
//! position.

use std::sync::Arc;

use datafusion::arrow::datatypes::Schema;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{JoinSide, JoinType};
use datafusion::error::Result;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::joins::utils::build_join_schema;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{ExecutionPlan, replace_children_if_necessary};

use super::Expr;
use super::fallible::may_fail;

type Plan = Arc<dyn ExecutionPlan>;

/// A function that places the filters that cannot go below an operator. It gets the operator and
/// these filters, and returns the plan that replaces the operator.
pub(crate) type AddFilters<'a> = &'a dyn Fn(Plan, Vec<Expr>) -> Result<Plan>;

/// The origin of each column of an operator, in the rows of one of its children.
type ColumnOrigins = Vec<Origin>;

/// The origin of a column.
enum Origin {
    /// The expression that computes the column from the rows of the child.
    Expression(Expr),
    /// An expression that may fail for rows that an operator further down leaves out. The planner
    /// of a worker would push a filter on it below that operator, so such a filter is dropped.
    Fallible,
    /// The column does not come from this child, or must not be computed a second time.
    Unavailable,
}

/// The result of pushing a filter to a child.
enum FilterOutcome {
    Pushed(Expr),
    Stopped,
    Dropped,
}

/// Pushes filters over the rows of `plan` as far down as they may go. Calls `stay` for each
/// operator that some of the filters cannot pass. These filters are then expressions over the rows
/// of that operator. Drops filters that might fail.
///
/// # Errors
/// The errors of `stay`, and an error if an operator or a filter cannot be rebuilt.
pub(crate) fn push_down(plan: Plan, filters: Vec<Expr>, stay: AddFilters<'_>) -> Result<Plan> {
    let children = child_columns(&plan);
    let mut below = vec![Vec::new(); children.len()];
    let mut stopped = Vec::new();
    for filter in filters {
        let mut stays = true;
        for (columns, below) in children.iter().zip(&mut below) {
            match rewrite_for_child(columns, &filter)? {
                FilterOutcome::Pushed(filter) => {
                    below.push(filter);
                    stays = false;
                }
                FilterOutcome::Dropped => stays = false,
                FilterOutcome::Stopped => {}
            }
        }
        if stays {
            stopped.push(filter);
        }
    }
    let mut inputs: Vec<_> = plan.children().into_iter().cloned().collect();
    for (input, filters) in inputs.iter_mut().zip(below) {
        if !filters.is_empty() {
            *input = push_down(Arc::clone(input), filters, stay)?;
        }
    }
    let plan = replace_children_if_necessary(plan, inputs)?;
    if stopped.is_empty() {
        return Ok(plan);
    }
    stay(plan, stopped)
}

/// Rewrites the filter for the rows of a child, and returns whether it may go there.
fn rewrite_for_child(columns: &ColumnOrigins, filter: &Expr) -> Result<FilterOutcome> {
    let (mut are_available, mut is_safe) = (true, true);
    let rewritten = Arc::clone(filter).transform_up(|part| {
        let Some(column) = part.downcast_ref::<Column>() else {
            return Ok(Transformed::no(part));
        };
        match columns.get(column.index()) {
            Some(Origin::Expression(expression)) => {
                return Ok(Transformed::yes(Arc::clone(expression)));
            }
            Some(Origin::Fallible) => is_safe = false,
            Some(Origin::Unavailable) | None => are_available = false,
        }
        Ok(Transformed::no(part))
    })?;
    Ok(match (are_available, is_safe) {
        (_, false) => FilterOutcome::Dropped,
        (true, true) => FilterOutcome::Pushed(rewritten.data),
        (false, true) => FilterOutcome::Stopped,
    })
}

/// Returns the origins of the columns in each child that filters may enter. The result is empty if
/// filters may enter no child.
fn child_columns(plan: &Plan) -> Vec<ColumnOrigins> {
    // Below a limit, a filter would change which rows the limit chooses.
    if plan.fetch().is_some() {
        return Vec::new();
    }
    if let Some(filter) = plan.downcast_ref::<FilterExec>() {
        return vec![match filter.projection() {
            Some(projection) => projection
                .iter()
                .map(|at| column_origin(filter.input(), *at))
                .collect(),
            None => all_columns(filter.input()),
        }];
    }
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        let schema = projection.input().schema();
        let computed = projection.expr().iter().map(|column| &column.expr);
        return vec![
            computed
                .map(|from| computed_origin(from, &schema))
                .collect(),
        ];
    }
    if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
        return group_columns(aggregate).into_iter().collect();
    }
    if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        return join_side_columns(join);
    }
    let preserves_rows = plan.is::<RepartitionExec>()
        || plan.is::<CoalescePartitionsExec>()
        || plan.is::<CooperativeExec>()
        || plan.is::<SortExec>()
        || plan.is::<SortPreservingMergeExec>()
        || plan.is::<UnionExec>();
    if preserves_rows {
        return plan.children().into_iter().map(all_columns).collect();
    }
    Vec::new()
}

/// Returns the origins of an aggregate's columns, or `None` if no filter may go down. Only a filter
/// on group keys may, because it leaves out whole groups.
fn group_columns(aggregate: &AggregateExec) -> Option<ColumnOrigins> {
    let grouped = aggregate.group_expr();
    // An aggregate without group keys returns a row even for no input, and a limit chooses among
    // the groups.
    let is_empty = |nulls: &Vec<bool>| nulls.iter().all(|is_null| *is_null);
    let has_empty_grouping = grouped.expr().is_empty() || grouped.groups().iter().any(is_empty);
    if has_empty_grouping || aggregate.limit_options().is_some() {
        return None;
    }
    let schema = aggregate.input().schema();
    let columns = grouped.expr().iter().enumerate();
    let columns = columns.map(|(at, (expression, _))| {
        let is_null = |nulls: &Vec<bool>| nulls.get(at).copied().unwrap_or(true);
        if grouped.groups().iter().any(is_null) {
            return Origin::Unavailable;
        }
        computed_origin(expression, &schema)
    });
    Some(columns.collect())
}

/// Returns the origins of a join's columns in each of its sides. A filter may go down to a side if
/// the join decides for each row of that side by itself whether it is in the output.
fn join_side_columns(join: &HashJoinExec) -> Vec<ColumnOrigins> {
    use JoinType::{
        Full, Inner, Left, LeftAnti, LeftMark, LeftSemi, Right, RightAnti, RightMark, RightSemi,
    };
    let (left, right) = (join.left(), join.right());
    let (_, columns) = build_join_schema(&left.schema(), &right.schema(), join.join_type());
    let output_columns: Vec<_> = match &join.projection {
        Some(projection) => projection.iter().map(|at| columns.get(*at)).collect(),
        None => columns.iter().map(Some).collect(),
    };
    let columns_of_side = |side: JoinSide, input: &Plan, may_go: bool| -> ColumnOrigins {
        let side_columns = output_columns
            .iter()
            .map(|from| from.filter(|from| from.side == side));
        side_columns
            .map(|from| match from.filter(|_| may_go) {
                Some(from) => column_origin(input, from.index),
                None => Origin::Unavailable,
            })
            .collect()
    };
    let (to_left, to_right) = match join.join_type() {
        Inner => (true, true),
        Left | LeftSemi | LeftAnti | LeftMark => (true, false),
        Right | RightSemi | RightAnti | RightMark => (false, true),
        Full => (false, false),
    };
    vec![
        columns_of_side(JoinSide::Left, left, to_left),
        columns_of_side(JoinSide::Right, right, to_right),
    ]
}

fn all_columns(input: &Plan) -> ColumnOrigins {
    let columns = 0..input.schema().fields().len();
    columns.map(|at| column_origin(input, at)).collect()
}

fn column_origin(input: &Plan, at: usize) -> Origin {
    match input.schema().fields().get(at) {
        Some(field) => Origin::Expression(Arc::new(Column::new(field.name(), at))),
        None => Origin::Unavailable,
    }
}

/// Returns the origin of a computed column. An expression that is computed a second time must have
/// the same result.
fn computed_origin(expression: &Expr, input: &Schema) -> Origin {
    if is_volatile(expression) {
        Origin::Unavailable
    } else if may_fail(expression, input) {
        Origin::Fallible
    } else {
        Origin::Expression(Arc::clone(expression))
    }
}
