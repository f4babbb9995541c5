use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::{
    Expr, Join, LogicalPlan, LogicalPlanBuilder, Projection, Sort, Window,
};
use datafusion::optimizer::AnalyzerRule;
use volary_exec::rewrite::has_part;
use volary_flight_proto::Error;

/// Moves subqueries out of sorts, windows and the conditions of joins, into projections below them.
#[derive(Debug)]
pub struct SubqueryPlaces;

impl AnalyzerRule for SubqueryPlaces {
    fn name(&self) -> &'static str {
        "subquery_places"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let plan = plan.transform_up_with_subqueries(|node| {
            let is_place = matches!(
                node,
                LogicalPlan::Sort(_) | LogicalPlan::Window(_) | LogicalPlan::Join(_)
            );
            if !is_place || !has_part(&node, is_subquery)? {
                return Ok(Transformed::no(node));
            }
            match node {
                LogicalPlan::Sort(sort) => move_out_of_sort(sort),
                LogicalPlan::Window(window) => move_out_of_window(window),
                LogicalPlan::Join(join) => move_out_of_join(join),
                other => Ok(other),
            }
            .map(Transformed::yes)
        })?;
        Ok(plan.data)
    }
}

fn is_subquery(part: &Expr) -> bool {
    matches!(
        part,
        Expr::Exists(_) | Expr::InSubquery(_) | Expr::SetComparison(_) | Expr::ScalarSubquery(_)
    )
}

/// The subqueries that move to a projection, which makes a column of each.
#[derive(Default)]
struct Moved(Vec<(Expr, String)>);

impl Moved {
    /// Replaces the subqueries of an expression by columns of the projection.
    fn replace(&mut self, expression: Expr, input: &LogicalPlan) -> Result<Expr> {
        let replaced = expression.transform_down(|part| {
            if !is_subquery(&part) {
                return Ok(Transformed::no(part));
            }
            let known = self.0.iter().find(|(subquery, _)| *subquery == part);
            let name = match known {
                Some((_, name)) => name.clone(),
                None => {
                    let name = self.free_name(input);
                    self.0.push((part, name.clone()));
                    name
                }
            };
            let column = Expr::Column(Column::new_unqualified(name));
            Ok(Transformed::new(column, true, TreeNodeRecursion::Jump))
        })?;
        Ok(replaced.data)
    }

    fn free_name(&self, input: &LogicalPlan) -> String {
        let mut number = self.0.len();
        loop {
            let name = format!("__subquery_{number}");
            if !input.schema().has_column_with_unqualified_name(&name) {
                return name;
            }
            number += 1;
        }
    }

    /// Returns the projection: the columns of its input, and those of the subqueries.
    fn project(self, input: Arc<LogicalPlan>) -> Result<Arc<LogicalPlan>> {
        if self.0.is_empty() {
            return Ok(input);
        }
        let columns = input.schema().columns().into_iter().map(Expr::Column);
        let subqueries = self.0.into_iter();
        let expressions = columns
            .chain(subqueries.map(|(subquery, name)| subquery.alias(name)))
            .collect();
        let projection = Projection::try_new(expressions, input)?;
        Ok(Arc::new(LogicalPlan::Projection(projection)))
    }
}

fn move_out_of_sort(sort: Sort) -> Result<LogicalPlan> {
    let columns = sort.input.schema().columns();
    let mut moved = Moved::default();
    let mut sorted = Vec::with_capacity(sort.expr.len());
    for mut by in sort.expr {
        by.expr = moved.replace(by.expr, &sort.input)?;
        sorted.push(by);
    }
    let node = LogicalPlan::Sort(Sort {
        expr: sorted,
        input: moved.project(sort.input)?,
        fetch: sort.fetch,
    });
    let columns = columns.into_iter().map(Expr::Column);
    LogicalPlanBuilder::from(node).project(columns)?.build()
}

fn move_out_of_window(window: Window) -> Result<LogicalPlan> {
    let mut moved = Moved::default();
    let mut functions = Vec::with_capacity(window.window_expr.len());
    for function in window.window_expr {
        functions.push(moved.replace(function, &window.input)?);
    }
    let of_input = window.input.schema().fields().len();
    let input = moved.project(window.input)?;
    let more = input.schema().fields().len() - of_input;
    let node = Window::try_new(functions, input)?;
    let restored = window.schema.iter().enumerate();
    let restored = restored.map(|(position, (qualifier, field))| {
        if position < of_input {
            return Expr::Column(Column::from((qualifier, field)));
        }
        let column = Column::from(node.schema.qualified_field(position + more));
        Expr::Column(column).alias_qualified(qualifier.cloned(), field.name())
    });
    let restored: Vec<_> = restored.collect();
    LogicalPlanBuilder::from(LogicalPlan::Window(node))
        .project(restored)?
        .build()
}

fn move_out_of_join(join: Join) -> Result<LogicalPlan> {
    let columns = join.schema.columns();
    let (mut of_left, mut of_right) = (Moved::default(), Moved::default());
    let (left, right) = (join.left, join.right);
    let filter = join.filter.map(|filter| {
        filter.transform_down(|part| {
            if !is_subquery(&part) {
                return Ok(Transformed::no(part));
            }
            let outer = outer_columns(&part)?;
            let are_of = |side: &LogicalPlan| outer.iter().all(|name| side.schema().has_column(name));
            let column = if are_of(&left) {
                of_left.replace(part, &left)?
            } else if are_of(&right) {
                of_right.replace(part, &right)?
            } else {
                return Err(Error::unsupported(
                    "a subquery in the condition of an outer join may read columns of only one of the two sides; write the condition in a subquery of one side",
                )
                .into());
            };
            Ok(Transformed::new(column, true, TreeNodeRecursion::Jump))
        })
    });
    let filter = filter.transpose()?.map(|filter| filter.data);
    let node = Join::try_new(
        of_left.project(left)?,
        of_right.project(right)?,
        join.on,
        filter,
        join.join_type,
        join.join_constraint,
        join.null_equality,
        join.null_aware,
    )?;
    let columns = columns.into_iter().map(Expr::Column);
    LogicalPlanBuilder::from(LogicalPlan::Join(node))
        .project(columns)?
        .build()
}

/// Returns the columns of the outer query that a subquery reads, or is compared with.
fn outer_columns(subquery: &Expr) -> Result<Vec<Column>> {
    let (compared, rows) = match subquery {
        Expr::Exists(exists) => (None, &exists.subquery),
        Expr::InSubquery(in_subquery) => (Some(&in_subquery.expr), &in_subquery.subquery),
        Expr::SetComparison(comparison) => (Some(&comparison.expr), &comparison.subquery),
        Expr::ScalarSubquery(rows) => (None, rows),
        _ => return Ok(Vec::new()),
    };
    let mut columns: Vec<Column> = compared
        .map(|compared| compared.column_refs().into_iter().cloned().collect())
        .unwrap_or_default();
    for outer in &rows.outer_ref_columns {
        if let Expr::OuterReferenceColumn(_, column) = outer {
            columns.push(column.clone());
        }
    }
    Ok(columns)
}
