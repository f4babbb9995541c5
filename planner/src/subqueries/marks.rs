use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result, ScalarValue, Spans};
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::expr::{Exists, InSubquery};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{
    Aggregate, BinaryExpr, Expr, ExprSchemable, Filter, LogicalPlan, LogicalPlanBuilder, Operator,
    Projection, Subquery, lit, when,
};
use datafusion::optimizer::decorrelate_predicate_subquery::DecorrelatePredicateSubquery;
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use volary_exec::rewrite::has_part;
use volary_flight_proto::Error;

/// Turns EXISTS and IN (SELECT …) into columns of the input: in SELECT lists, in aggregates, and in
/// conditions on rows where the result NULL is another one than false. A join makes each of these
/// columns: it marks the rows for which the subquery has rows. DataFusion makes such joins only for
/// conditions on rows, and takes NULL for false.
///
/// This rule must run before DataFusion's rule for such conditions.
#[derive(Debug)]
pub(crate) struct SubqueryMarks;

impl OptimizerRule for SubqueryMarks {
    fn name(&self) -> &'static str {
        "subquery_marks"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        // Subqueries that stay subqueries may have such expressions, too.
        let plan = plan.map_subqueries(|subquery| {
            subquery.transform_down(|node| self.rewrite(node, config))
        })?;
        plan.transform_data(|plan| {
            let is_place = matches!(
                plan,
                LogicalPlan::Projection(_) | LogicalPlan::Aggregate(_) | LogicalPlan::Filter(_)
            );
            if !is_place || !has_part(&plan, is_predicate)? {
                return Ok(Transformed::no(plan));
            }
            match plan {
                LogicalPlan::Projection(projection) => {
                    mark_projection(projection, config).map(Transformed::yes)
                }
                LogicalPlan::Aggregate(aggregate) => {
                    mark_aggregate(aggregate, config).map(Transformed::yes)
                }
                LogicalPlan::Filter(filter) => mark_filter(filter, config),
                other => Ok(Transformed::no(other)),
            }
        })
    }
}

fn is_predicate(part: &Expr) -> bool {
    matches!(part, Expr::Exists(_) | Expr::InSubquery(_))
}

fn mark_projection(projection: Projection, config: &dyn OptimizerConfig) -> Result<LogicalPlan> {
    let mut marker = Marker::new(Arc::unwrap_or_clone(projection.input), config);
    let names = NamePreserver::new_for_projection();
    let expressions = projection.expr.into_iter().map(|expression| {
        let name = names.save(&expression);
        Ok(name.restore(marker.replace(expression)?))
    });
    let expressions = expressions.collect::<Result<Vec<_>>>()?;
    let projection = Projection::try_new(expressions, Arc::new(marker.input))?;
    Ok(LogicalPlan::Projection(projection))
}

fn mark_aggregate(aggregate: Aggregate, config: &dyn OptimizerConfig) -> Result<LogicalPlan> {
    let mut marker = Marker::new(Arc::unwrap_or_clone(aggregate.input), config);
    let mut replace = |expressions: Vec<Expr>| {
        let expressions = expressions.into_iter();
        let replaced = expressions.map(|expression| marker.replace(expression));
        replaced.collect::<Result<Vec<_>>>()
    };
    let groups = replace(aggregate.group_expr)?;
    let aggregates = replace(aggregate.aggr_expr)?;
    let node = Aggregate::try_new(Arc::new(marker.input), groups, aggregates)?;
    let restored = aggregate.schema.iter().zip(node.schema.iter());
    let restored = restored.map(|((qualifier, field), (new_qualifier, new_field))| {
        let column = Expr::Column(Column::from((new_qualifier, new_field)));
        if (qualifier, field.name()) == (new_qualifier, new_field.name()) {
            column
        } else {
            column.alias_qualified(qualifier.cloned(), field.name())
        }
    });
    let restored: Vec<_> = restored.collect();
    LogicalPlanBuilder::from(LogicalPlan::Aggregate(node))
        .project(restored)?
        .build()
}

/// Marks what [`is_part_of_value`] finds, and leaves the other conditions to DataFusion.
fn mark_filter(filter: Filter, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
    let conditions = split_conjunction(&filter.predicate).into_iter();
    if !conditions.clone().any(is_part_of_value) {
        return Ok(Transformed::no(LogicalPlan::Filter(filter)));
    }
    let columns = filter.input.schema().columns();
    let mut marker = Marker::new(filter.input.as_ref().clone(), config);
    let conditions = conditions.map(|condition| {
        if is_part_of_value(condition) {
            marker.replace(condition.clone())
        } else {
            Ok(condition.clone())
        }
    });
    let conditions = conditions.collect::<Result<Vec<_>>>()?;
    let predicate = conjunction(conditions).unwrap_or_else(|| lit(true));
    let node = Filter::try_new(predicate, Arc::new(marker.input))?;
    LogicalPlanBuilder::from(LogicalPlan::Filter(node))
        .project(columns.into_iter().map(Expr::Column))?
        .build()
        .map(Transformed::yes)
}

/// Returns whether the condition has EXISTS or IN within something else than AND, OR, NOT and tests
/// for a truth value.
fn is_part_of_value(condition: &Expr) -> bool {
    match condition {
        Expr::BinaryExpr(BinaryExpr {
            left,
            op: Operator::And | Operator::Or,
            right,
        }) => is_part_of_value(left) || is_part_of_value(right),
        Expr::Not(inner)
        | Expr::IsTrue(inner)
        | Expr::IsNotTrue(inner)
        | Expr::IsFalse(inner)
        | Expr::IsNotFalse(inner) => is_part_of_value(inner),
        Expr::Exists(_) | Expr::InSubquery(_) => false,
        other => {
            let found = other.exists(|part| Ok(is_predicate(part)));
            found.unwrap_or_default()
        }
    }
}

/// Adds a column to an input for each EXISTS and IN.
struct Marker<'a> {
    input: LogicalPlan,
    config: &'a dyn OptimizerConfig,
    /// The subqueries that have columns, and the expressions that take their places.
    known: Vec<(Expr, Expr)>,
}

impl<'a> Marker<'a> {
    fn new(input: LogicalPlan, config: &'a dyn OptimizerConfig) -> Self {
        Self {
            input,
            config,
            known: Vec::new(),
        }
    }

    fn replace(&mut self, expression: Expr) -> Result<Expr> {
        let replaced = expression.transform_down(|part| {
            if !is_predicate(&part) {
                return Ok(Transformed::no(part));
            }
            let known = self.known.iter().find(|(subquery, _)| *subquery == part);
            let value = match known {
                Some((_, value)) => value.clone(),
                None => {
                    let value = match part.clone() {
                        Expr::Exists(exists) => self.exists(exists)?,
                        Expr::InSubquery(in_subquery) => self.is_in(in_subquery)?,
                        other => other,
                    };
                    self.known.push((part, value.clone()));
                    value
                }
            };
            Ok(Transformed::new(value, true, TreeNodeRecursion::Jump))
        })?;
        Ok(replaced.data)
    }

    /// Returns the value of EXISTS. A subquery that reads no outer column has one value for all
    /// rows, and needs no join.
    fn exists(&mut self, exists: Exists) -> Result<Expr> {
        if !exists.subquery.outer_ref_columns.is_empty() {
            return self.mark(Expr::Exists(exists));
        }
        let rows = LogicalPlanBuilder::from(exists.subquery.subquery)
            .limit(0, Some(1))?
            .aggregate(Vec::<Expr>::new(), [count(lit(1_i64))])?
            .build()?;
        let rows = Expr::ScalarSubquery(Subquery {
            subquery: Arc::new(rows),
            outer_ref_columns: Vec::new(),
            spans: Spans::new(),
        });
        Ok(if exists.negated {
            rows.eq(lit(0_i64))
        } else {
            rows.gt(lit(0_i64))
        })
    }

    /// Returns the value of IN. It is NULL if the subquery has no equal value, but a NULL, or if it
    /// has rows and NULL is looked for.
    fn is_in(&mut self, in_subquery: InSubquery) -> Result<Expr> {
        let negated = in_subquery.negated;
        let rows = in_subquery.subquery.clone();
        let sought = in_subquery.expr.as_ref().clone();
        let is_sought_nullable = sought.nullable(self.input.schema())?;
        let are_rows_nullable = rows.subquery.schema().field(0).is_nullable();
        let found = self.mark(Expr::InSubquery(InSubquery {
            negated: false,
            ..in_subquery
        }))?;
        let mut unknown = Vec::new();
        if is_sought_nullable {
            let any = self.exists(Exists {
                subquery: rows.clone(),
                negated: false,
            })?;
            unknown.push(sought.is_null().and(any));
        }
        if are_rows_nullable {
            let value = Column::from(rows.subquery.schema().qualified_field(0));
            let nulls = Filter::try_new(Expr::Column(value).is_null(), Arc::clone(&rows.subquery))?;
            unknown.push(self.exists(Exists {
                subquery: Subquery {
                    subquery: Arc::new(LogicalPlan::Filter(nulls)),
                    ..rows
                },
                negated: false,
            })?);
        }
        let value = match unknown.into_iter().reduce(Expr::or) {
            None => found,
            Some(unknown) => when(found, lit(true))
                .when(unknown, lit(ScalarValue::Boolean(None)))
                .otherwise(lit(false))?,
        };
        Ok(if negated { !value } else { value })
    }

    /// Returns the column that says whether the subquery has rows for a row of the input. The join
    /// is the one that DataFusion makes for a condition.
    fn mark(&mut self, subquery: Expr) -> Result<Expr> {
        let input = std::mem::take(&mut self.input);
        let condition = Filter::try_new(subquery.is_unknown(), Arc::new(input))?;
        let joined = DecorrelatePredicateSubquery::new()
            .rewrite(LogicalPlan::Filter(condition), self.config)?
            .data;
        if let LogicalPlan::Projection(projection) = joined
            && let LogicalPlan::Filter(filter) = projection.input.as_ref()
            && let Expr::IsUnknown(mark) = &filter.predicate
            && !mark.exists(|part| Ok(is_predicate(part)))?
        {
            self.input = filter.input.as_ref().clone();
            return Ok(mark.as_ref().clone());
        }
        Err(Error::unsupported(
            "this subquery in EXISTS or IN is not supported outside WHERE; write it as a join",
        )
        .into())
    }
}
