use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{JoinType, ScalarValue};
use datafusion::error::Result as DfResult;
use datafusion::logical_expr::expr::{NullTreatment, WindowFunction};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan};
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{
    Expr as SqlExpr, Query, SetExpr, SetOperator, SetQuantifier, TableFactor,
};
use volary_flight_proto::{Error, Result, SqlState};

use super::equal_names;
use super::visit::{QueryVisitor, visit};

/// Refuses INTERSECT ALL and EXCEPT ALL, because DataFusion plans them as joins that ignore copies
/// of rows (apache/datafusion#12955, #12956). Also refuses tables of equal names in one FROM,
/// subqueries without columns, and TABLESAMPLE.
///
/// # Errors
/// `INVALID_ARGUMENT`.
pub(crate) fn check_statement(statement: &DfStatement) -> Result<()> {
    visit(statement, &mut UnsupportedSyntax)
}

struct UnsupportedSyntax;

impl QueryVisitor for UnsupportedSyntax {
    fn enter(&mut self, query: &Query) -> Result<()> {
        let mut sides = vec![query.body.as_ref()];
        while let Some(side) = sides.pop() {
            match side {
                SetExpr::Select(select) => equal_names::check(select)?,
                SetExpr::SetOperation {
                    op,
                    set_quantifier,
                    left,
                    right,
                } => {
                    let keeps_copies = matches!(
                        set_quantifier,
                        SetQuantifier::All | SetQuantifier::AllByName
                    );
                    if keeps_copies && matches!(op, SetOperator::Intersect | SetOperator::Except) {
                        return Err(Error::unsupported(format!(
                            "{op} ALL is not supported; leave ALL out, or add row_number() OVER (PARTITION BY all columns) as a column to both sides before"
                        )));
                    }
                    sides.extend([left.as_ref(), right.as_ref()]);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Refuses a subquery without columns where a value is needed, because the planner would panic.
    fn expression(&mut self, expression: &SqlExpr) -> Result<()> {
        let (SqlExpr::Subquery(query)
        | SqlExpr::InSubquery {
            subquery: query, ..
        }) = expression
        else {
            return Ok(());
        };
        match query.body.as_ref() {
            SetExpr::Select(select) if select.projection.is_empty() => Err(Error::invalid(
                "a subquery that is used as a value has no columns; select one",
            )
            .with_sqlstate(SqlState::SyntaxError)),
            _ => Ok(()),
        }
    }

    /// Refuses TABLESAMPLE: the planner would silently read all rows.
    fn table_factor(&mut self, factor: &TableFactor) -> Result<()> {
        match factor {
            TableFactor::Table {
                sample: Some(_), ..
            }
            | TableFactor::Derived {
                sample: Some(_), ..
            } => Err(Error::unsupported(
                "TABLESAMPLE is not supported; WHERE random() < 0.01 selects about one percent of the rows",
            )),
            _ => Ok(()),
        }
    }
}

/// Refuses these kinds of plans:
/// - Subqueries whose conditions on outer columns the planner would move, although they must stay
///   where they are.
/// - Window functions that look ahead over NULLs.
/// - The minimum and the maximum of maps, which have no order.
/// - Operators that rely on unique keys although `unnest` repeats the keys.
///
/// # Errors
/// `INVALID_ARGUMENT`.
pub(crate) fn check_plan(plan: &LogicalPlan) -> Result<()> {
    let mut refused = None;
    plan.apply_with_subqueries(|node| {
        refused = refused.take().or(unnest_refusal(node)?);
        node.apply_expressions(|expression| {
            expression.apply(|part| {
                refused = refused.take().or(map_order_refusal(part, node)?);
                refused = refused.take().or(match part {
                    Expr::Exists(exists) => correlation_refusal(&exists.subquery.subquery, true)?,
                    Expr::InSubquery(in_subquery) => {
                        correlation_refusal(&in_subquery.subquery.subquery, true)?
                    }
                    Expr::SetComparison(comparison) => {
                        correlation_refusal(&comparison.subquery.subquery, true)?
                    }
                    Expr::ScalarSubquery(subquery) => {
                        correlation_refusal(&subquery.subquery, false)?
                    }
                    Expr::WindowFunction(function) => look_ahead_refusal(function),
                    _ => None,
                });
                Ok(TreeNodeRecursion::Continue)
            })
        })?;
        Ok(if refused.is_some() {
            TreeNodeRecursion::Stop
        } else {
            TreeNodeRecursion::Continue
        })
    })?;
    match refused {
        Some(what) => Err(Error::unsupported(what)),
        None => Ok(()),
    }
}

/// Returns why a correlated subquery must be refused, or `None`. The planner turns such a subquery
/// into a join, and the subquery's conditions on outer columns into conditions of the join. This is
/// wrong if an operator between the old and the new place of a condition depends on which rows the
/// condition leaves (apache/datafusion#24960, #25283, #25507, #25519).
fn correlation_refusal(subquery: &LogicalPlan, is_predicate: bool) -> DfResult<Option<String>> {
    let mut walk = CorrelationWalk {
        is_predicate,
        has_inner_limit: false,
        obstacle: None,
    };
    let correlated = walk.is_correlated(subquery, true)?;
    if correlated && is_predicate && walk.has_inner_limit {
        walk.obstacle.get_or_insert("a LIMIT inside it");
    }
    Ok(walk.obstacle.map(|what| {
        format!(
            "a correlated subquery (one that reads columns of the outer query) with {what} is not supported; write it as a join"
        )
    }))
}

struct CorrelationWalk {
    is_predicate: bool,
    /// Says whether there is a LIMIT other than the subquery's own.
    has_inner_limit: bool,
    obstacle: Option<&'static str>,
}

impl CorrelationWalk {
    /// Returns whether the plan reads columns of the outer query. `is_top` says whether the rows of
    /// the plan are the rows of the subquery.
    fn is_correlated(&mut self, plan: &LogicalPlan, is_top: bool) -> DfResult<bool> {
        let keeps_rows = matches!(
            plan,
            LogicalPlan::Projection(_)
                | LogicalPlan::SubqueryAlias(_)
                | LogicalPlan::Sort(_)
                | LogicalPlan::Distinct(_)
                | LogicalPlan::Limit(_)
        );
        let mut inputs = Vec::new();
        for input in plan.inputs() {
            inputs.push(self.is_correlated(input, is_top && keeps_rows)?);
        }
        let has_correlated_input = inputs.contains(&true);
        let side = |side: usize| inputs.get(side) == Some(&true);
        let obstacle = match plan {
            LogicalPlan::Window(_) if has_correlated_input => Some("a window function"),
            LogicalPlan::Limit(limit) => {
                self.has_inner_limit |= !is_top;
                (has_correlated_input && limit.skip.as_deref().is_some_and(|skip| !is_zero(skip)))
                    .then_some("an OFFSET")
            }
            LogicalPlan::Aggregate(aggregate) if has_correlated_input => {
                let has_sets = matches!(aggregate.group_expr.as_slice(), [Expr::GroupingSet(_)]);
                if has_sets {
                    Some("GROUPING SETS, ROLLUP or CUBE")
                } else if aggregate.group_expr.is_empty() && self.is_predicate {
                    Some("an aggregate without GROUP BY, in IN or EXISTS,")
                } else {
                    None
                }
            }
            LogicalPlan::Join(join) => {
                let from_nullable_side = match join.join_type {
                    JoinType::Left => side(1),
                    JoinType::Right => side(0),
                    JoinType::Full => has_correlated_input,
                    _ => false,
                };
                from_nullable_side.then_some("such columns on the nullable side of an outer join")
            }
            _ => None,
        };
        self.obstacle = self.obstacle.or(obstacle);
        let mut own = false;
        plan.apply_expressions(|expression| {
            own |= expression.contains_outer();
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(own || has_correlated_input)
    }
}

/// Returns why a minimum or a maximum must be refused, or `None`.
fn map_order_refusal(part: &Expr, node: &LogicalPlan) -> DfResult<Option<String>> {
    let (name, arguments) = match part {
        Expr::AggregateFunction(call) => (call.func.name(), &call.params.args),
        Expr::WindowFunction(call) => (call.fun.name(), &call.params.args),
        _ => return Ok(None),
    };
    if !matches!(name, "min" | "max") {
        return Ok(None);
    }
    let columns = merge_schema(&node.inputs());
    for argument in arguments {
        if has_map(&argument.get_type(&columns)?) {
            return Ok(Some(format!(
                "{name} of a map is not supported, because maps have no order; compare its entries"
            )));
        }
    }
    Ok(None)
}

fn has_map(data_type: &DataType) -> bool {
    match data_type {
        DataType::Map(_, _) => true,
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _) => has_map(item.data_type()),
        DataType::Struct(fields) => fields.iter().any(|field| has_map(field.data_type())),
        _ => false,
    }
}

/// Returns why an operator above `unnest` must be refused, or `None`. DataFusion takes the keys of
/// a grouped query for unique even above `unnest`, which repeats them (apache/datafusion#24787).
fn unnest_refusal(plan: &LogicalPlan) -> DfResult<Option<String>> {
    let what = match plan {
        LogicalPlan::Aggregate(aggregate) if !aggregate.group_expr.is_empty() => "GROUP BY",
        LogicalPlan::Sort(sort) if sort.expr.len() > 1 => "ORDER BY of several columns",
        LogicalPlan::Distinct(_) => "DISTINCT",
        LogicalPlan::Join(_) => "a join",
        LogicalPlan::Window(_) => "a window function",
        _ => return Ok(None),
    };
    let has_keys = |plan: &LogicalPlan| !plan.schema().functional_dependencies().is_empty();
    for input in plan.inputs() {
        let is_repeated =
            |below: &LogicalPlan| matches!(below, LogicalPlan::Unnest(_)) && has_keys(below);
        if has_keys(input) && input.exists(|below| Ok(is_repeated(below)))? {
            return Ok(Some(format!(
                "{what} above unnest of a query with GROUP BY is not supported; store the unnested rows in a table first (CREATE TABLE … AS)"
            )));
        }
    }
    Ok(None)
}

fn is_zero(expression: &Expr) -> bool {
    matches!(expression, Expr::Literal(ScalarValue::Int64(Some(0)), _))
}

/// Returns why `lead` or `lag` with IGNORE NULLS must be refused, or `None`. Looking ahead,
/// DataFusion finds the right row only if it is the very next one that is not NULL
/// (apache/datafusion#25471).
fn look_ahead_refusal(function: &WindowFunction) -> Option<String> {
    if function.params.null_treatment != Some(NullTreatment::IgnoreNulls) {
        return None;
    }
    let offset = function.params.args.get(1);
    let offset = offset.map_or(Some(1), |offset| match offset {
        Expr::Literal(ScalarValue::Int64(offset), _) => *offset,
        _ => None,
    });
    let is_right = match (function.fun.name(), offset) {
        ("lead", Some(offset)) => offset <= 1,
        ("lag", Some(offset)) => offset >= -1,
        ("lead" | "lag", None) => false,
        _ => true,
    };
    (!is_right).then(|| {
        format!(
            "{} with IGNORE NULLS that looks ahead by more than one row is not supported; filter the NULLs out first",
            function.fun.name()
        )
    })
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;
    use datafusion::sql::parser::DFParser;

    use super::*;

    async fn refusal(sql: &str) -> Option<String> {
        let statement = DFParser::parse_sql(sql).unwrap().pop_back().unwrap();
        if let Err(error) = check_statement(&statement) {
            return Some(error.message().to_owned());
        }
        let context = SessionContext::new();
        for table in ["facts", "partners", "kinds"] {
            let create = format!("CREATE TABLE {table} (id BIGINT, k BIGINT, o BIGINT, v BIGINT)");
            context.sql(&create).await.unwrap();
        }
        let state = context.state();
        let plan = state.statement_to_plan(statement).await.unwrap();
        let refused = check_plan(&plan).err();
        refused.map(|error| error.message().to_owned())
    }

    #[tokio::test]
    async fn what_would_be_wrong_is_refused() {
        let unnested = "SELECT k, unnest(array_agg(v)) AS u FROM facts GROUP BY k";
        let exists = |rest: &str| format!("SELECT f.id FROM facts f WHERE EXISTS ({rest})");
        for (sql, what) in [
            (exists("SELECT 1 FROM (SELECT row_number() OVER (ORDER BY p.id) AS n FROM partners p WHERE p.k = f.k) x WHERE x.n = 2"), "window"),
            (exists("SELECT 1 FROM partners p WHERE p.k = f.k OFFSET 1"), "OFFSET"),
            (exists("SELECT 1 FROM (SELECT * FROM partners p WHERE p.k = f.k LIMIT 3) x WHERE x.v > 5"), "LIMIT"),
            (exists("SELECT 1 FROM partners p JOIN (SELECT * FROM kinds LIMIT 2) x ON x.o = p.o WHERE p.k = f.k"), "LIMIT"),
            (exists("SELECT count(*) FROM partners p WHERE p.k = f.k"), "without GROUP BY"),
            (exists("SELECT 1 FROM partners p WHERE p.k = f.k GROUP BY ROLLUP (p.k)"), "ROLLUP"),
            (exists("SELECT 1 FROM kinds x LEFT JOIN (SELECT * FROM partners p WHERE p.k = f.k) q ON x.o = q.o WHERE q.id IS NULL"), "outer join"),
            ("SELECT id FROM facts f WHERE 0 IN (SELECT count(*) FROM partners p WHERE p.k = f.k)".to_owned(), "without GROUP BY"),
            ("SELECT o FROM facts INTERSECT ALL SELECT o FROM partners".to_owned(), "INTERSECT ALL"),
            ("SELECT 1 FROM (SELECT 1 UNION (SELECT o FROM facts EXCEPT ALL SELECT o FROM partners)) x".to_owned(), "EXCEPT ALL"),
            (format!("SELECT k, count(*) FROM ({unnested}) x GROUP BY k"), "GROUP BY above unnest"),
            (format!("SELECT DISTINCT k FROM ({unnested}) x"), "DISTINCT above unnest"),
            (format!("{unnested} ORDER BY k, u"), "ORDER BY of several"),
            (format!("SELECT k, sum(u) OVER (ORDER BY k) FROM ({unnested}) x"), "a window function above"),
            (format!("SELECT id FROM facts f WHERE k IN (SELECT x.k FROM ({unnested}) x JOIN kinds USING (k))"), "a join above"),
            ("SELECT f.v FROM kinds, (facts JOIN public.facts ON true)".to_owned(), "same name"),
            ("SELECT 1 FROM public.facts, staging.facts".to_owned(), "same name"),
            ("SELECT 1 FROM public.facts, kinds AS facts".to_owned(), "same name"),
            ("SELECT lead(v, 2) IGNORE NULLS OVER (ORDER BY id) FROM facts".to_owned(), "lead"),
            ("SELECT lag(v, -2) IGNORE NULLS OVER (ORDER BY id) FROM facts".to_owned(), "lag"),
        ] {
            let refused = refusal(&sql).await;
            assert!(refused.as_ref().is_some_and(|why| why.contains(what)), "{sql}: {refused:?}");
        }
    }

    #[tokio::test]
    async fn what_is_right_is_not_refused() {
        for sql in [
            "SELECT id FROM facts f WHERE EXISTS (SELECT 1 FROM partners p WHERE p.k = f.k LIMIT 1)",
            "SELECT id FROM facts f WHERE EXISTS (SELECT 1 FROM partners p LEFT JOIN kinds x ON x.o = p.o WHERE p.k = f.k)",
            "SELECT id FROM facts f WHERE v > (SELECT 0.2 * avg(p.v) FROM partners p WHERE p.k = f.k)",
            "SELECT id FROM facts f WHERE k IN (SELECT p.k FROM partners p WHERE p.o = f.o GROUP BY p.k)",
            "SELECT id FROM facts WHERE EXISTS (SELECT count(*) FROM partners LIMIT 3 OFFSET 1)",
            "SELECT id FROM facts WHERE o IN (SELECT o FROM (SELECT o, row_number() OVER (ORDER BY id) AS n FROM kinds) x WHERE n < 3)",
            "SELECT id, lead(v) IGNORE NULLS OVER (ORDER BY id), lag(v, 2) IGNORE NULLS OVER (ORDER BY id), lead(v, 2) OVER (ORDER BY id) FROM facts",
            "SELECT k, unnest(array_agg(v)) FROM facts GROUP BY k ORDER BY k",
            "SELECT k, count(*) FROM (SELECT k, unnest(make_array(v, o)) AS u FROM facts) x GROUP BY k",
            "SELECT facts.v FROM public.facts, public.facts AS f, kinds WHERE EXISTS (SELECT 1 FROM facts WHERE facts.k = f.k)",
            "SELECT * FROM facts f LEFT JOIN partners p USING (k)",
            "SELECT o FROM facts INTERSECT SELECT o FROM partners EXCEPT SELECT o FROM kinds UNION ALL SELECT 1",
        ] {
            assert_eq!(refusal(sql).await, None, "{sql}");
        }
    }
}
