//! The text of a statement is bounded by [`nesting`](super::nesting), but the optimizer makes
//! deeper trees than the text shows: it merges a projection with the projections below it, pushes
//! filters through projections and merges them into one, and turns bushy joins into a chain. Code
//! that does not check its stack then walks the plan recursively, and a stack overflow ends the
//! process. So this module adds up what the optimizer may put on one path through the plan, before
//! the optimizer sees the plan.

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion, TreeNodeVisitor};
use datafusion::error::Result as DfResult;
use datafusion::logical_expr::expr::Case;
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, Operator};
use volary_flight_proto::{Error, Result, SqlState};

use super::nesting::TYPED;
use super::shape::count_fields;

/// Maximum number of levels of operators and expressions on one path. This is a bit more than the
/// longest chain that [`nesting`](super::nesting) accepts. The stacks of the CPU runtime's threads
/// hold several times as many levels.
pub(super) const MAX_DEPTH: usize = 2_500;

/// Maximum number of operators of a whole plan. The planner plans each use of a CTE or a view
/// separately: ten CTEs, each of which reads the previous one twice, become a thousand operators.
pub(crate) const MAX_OPERATORS: usize = 50_000;

/// All operators of a plan together may have this many times the columns that one table may have:
/// each rule of the planner makes lists of these columns.
const TABLES: usize = 256;

/// Number of levels that an operator counts as. At execution it becomes up to three operators, and
/// each of their stack frames is larger than that of an expression.
pub(super) const OPERATOR: usize = 4;

/// Number of levels that a join counts as. Its conditions are counted separately.
const JOIN: usize = 6;

/// Refuses a plan that could overflow a stack once it is optimized, or whose operators have too
/// many columns together. This walk itself cannot overflow the stack: DataFusion's visitors grow
/// it. `max_columns` is the number of columns that one table may have.
///
/// # Errors
/// `INVALID_ARGUMENT`.
pub(crate) fn check(plan: &LogicalPlan, max_columns: usize) -> Result<()> {
    let mut measuring = PlanMeasurer {
        max_total_columns: max_columns.saturating_mul(TABLES),
        ..PlanMeasurer::default()
    };
    plan.visit_with_subqueries(&mut measuring)?;
    measuring.refusal.map_or(Ok(()), Err)
}

pub(super) fn too_deep(what: &str) -> Error {
    Error::invalid(format!(
        "the statement is nested too deeply, counting the views and CTEs that it reads: {what}; write it flatter, or store an intermediate step in a table (CREATE TABLE … AS)"
    ))
    .with_sqlstate(SqlState::StatementTooComplex)
}

/// Measurements of a part of the plan, from one operator down to the leaves. Most of them are the
/// maximum over the operator's inputs.
#[derive(Debug, Default)]
struct SubplanDepth {
    /// Weighted number of operators on the longest path.
    levels: usize,
    /// Depth of the expressions that compute the columns, once the optimizer has put each
    /// expression in place of the column that it computes.
    values: usize,
    /// Depth of the filters, merged into one conjunction.
    filters: usize,
    /// Depth of the expressions that compute the columns of the filters.
    filtered_values: usize,
    /// Number of joins on all paths. `most_joins` is the number of joins below the input that has
    /// the most of them.
    joins: usize,
    most_joins: usize,
}

impl SubplanDepth {
    fn add(&mut self, input: &Self) {
        self.levels = self.levels.max(input.levels);
        self.values = self.values.max(input.values);
        self.filters = self.filters.max(input.filters);
        self.filtered_values = self.filtered_values.max(input.filtered_values);
        self.joins += input.joins;
        self.most_joins = self.most_joins.max(input.joins);
    }

    /// Returns the measurements with `plan` on top.
    fn with(mut self, plan: &LogicalPlan) -> DfResult<Self> {
        let own = depth_of_expressions(plan)?;
        match plan {
            LogicalPlan::Join(_) => {
                // The optimizer may put the joins of the smaller side on top of the joins of the
                // other side.
                self.levels += JOIN * (1 + self.joins - self.most_joins);
                self.joins += 1;
                self.add_filter(own);
            }
            // The optimizer pushes a filter down through projections and merges it with the filters
            // there.
            LogicalPlan::Filter(_) => {
                self.levels += OPERATOR;
                self.add_filter(own);
            }
            // The optimizer merges nested unions into one, and removes aliases and subquery nodes.
            // The others are leaves.
            LogicalPlan::Union(_)
            | LogicalPlan::SubqueryAlias(_)
            | LogicalPlan::Subquery(_)
            | LogicalPlan::TableScan(_)
            | LogicalPlan::EmptyRelation(_) => self.levels += 1,
            _ => {
                self.levels += OPERATOR;
                self.values += own;
            }
        }
        Ok(self)
    }

    fn add_filter(&mut self, depth: usize) {
        self.filters += depth;
        self.filtered_values = self.filtered_values.max(self.values);
    }

    fn depth(&self) -> usize {
        self.levels + self.values.max(self.filters + self.filtered_values)
    }
}

/// Measures a plan from its leaves to its root.
#[derive(Debug, Default)]
struct PlanMeasurer {
    /// The operators from the root to the current one. Each has the measurements of its inputs that
    /// were visited so far.
    path: Vec<SubplanDepth>,
    operators: usize,
    /// Number of columns of all operators, including the fields of nested columns.
    columns: usize,
    max_total_columns: usize,
    refusal: Option<Error>,
}

impl PlanMeasurer {
    fn add_columns(&mut self, plan: &LogicalPlan) {
        for field in plan.schema().fields() {
            self.columns += count_fields(field.data_type(), self.max_total_columns);
            if self.columns > self.max_total_columns {
                self.refusal = Some(Error::invalid(format!(
                    "the operators of the statement have more than {} columns together, counting the fields of nested columns; the limit is {TABLES} times gateway.query.max_columns: combine fewer tables, or select fewer columns of each first",
                    self.max_total_columns
                ))
                .with_sqlstate(SqlState::TooManyColumns));
                return;
            }
        }
    }
}

impl<'n> TreeNodeVisitor<'n> for PlanMeasurer {
    type Node = LogicalPlan;

    fn f_down(&mut self, plan: &'n LogicalPlan) -> DfResult<TreeNodeRecursion> {
        self.operators += 1;
        if self.operators > MAX_OPERATORS {
            let what = format!("its plan has more than {MAX_OPERATORS} operators");
            self.refusal = Some(too_deep(&what));
            return Ok(TreeNodeRecursion::Stop);
        }
        self.add_columns(plan);
        if self.refusal.is_some() {
            return Ok(TreeNodeRecursion::Stop);
        }
        self.path.push(SubplanDepth::default());
        Ok(TreeNodeRecursion::Continue)
    }

    fn f_up(&mut self, plan: &'n LogicalPlan) -> DfResult<TreeNodeRecursion> {
        let below = self.path.pop().unwrap_or_default().with(plan)?;
        if below.depth() > MAX_DEPTH {
            self.refusal = Some(too_deep(&format!(
                "more than {MAX_DEPTH} operators are nested in each other (an operator of the plan counts as {OPERATOR}, a join as {JOIN}, a CASE as its number of branches)"
            )));
            return Ok(TreeNodeRecursion::Stop);
        }
        if let Some(outer) = self.path.last_mut() {
            outer.add(&below);
        }
        Ok(TreeNodeRecursion::Continue)
    }
}

/// Returns the depth of the deepest of the operator's own expressions.
fn depth_of_expressions(plan: &LogicalPlan) -> DfResult<usize> {
    let mut deepest = 0;
    plan.apply_expressions(|expression| {
        deepest = deepest.max(depth_of(expression)?);
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(deepest)
}

/// Returns how deep an expression is once the optimizer has merged terms that are connected by AND
/// or by OR into chains, whatever parentheses the statement has. Subqueries count as operators of
/// the plan.
fn depth_of(expression: &Expr) -> DfResult<usize> {
    let mut measuring = ExpressionMeasurer::default();
    expression.visit(&mut measuring)?;
    Ok(measuring.depth)
}

/// Measurements of one expression.
#[derive(Debug, Default)]
struct TermDepth {
    /// AND or OR, if the expression is one of them. For a NOT above an AND it is OR, and the other
    /// way round, because the optimizer moves the NOT inwards.
    connective: Option<Operator>,
    is_not: bool,
    terms: usize,
    deepest: usize,
}

impl TermDepth {
    fn new(expression: &Expr) -> Self {
        let connective = match expression {
            Expr::BinaryExpr(BinaryExpr {
                op: op @ (Operator::And | Operator::Or),
                ..
            }) => Some(*op),
            _ => None,
        };
        let own = match expression {
            Expr::BinaryExpr(_) => TYPED,
            // The optimizer moves NOT inwards, where it turns AND into OR.
            Expr::Not(_) => 0,
            // A CASE whose results are constants becomes a chain when it is compared with a
            // constant.
            Expr::Case(Case { when_then_expr, .. }) => when_then_expr.len(),
            _ => 1,
        };
        Self {
            terms: if connective.is_some() { 0 } else { own },
            is_not: matches!(expression, Expr::Not(_)),
            connective,
            deepest: 0,
        }
    }

    fn depth(&self) -> usize {
        self.terms + self.deepest
    }

    fn add(&mut self, operand: &Self) {
        if self.is_not {
            self.connective = operand.connective.map(negated);
            self.terms = operand.terms;
            self.deepest = operand.deepest + 1;
        } else if self.connective.is_some() && self.connective == operand.connective {
            self.terms += operand.terms;
            self.deepest = self.deepest.max(operand.deepest);
        } else {
            self.terms += usize::from(self.connective.is_some());
            self.deepest = self.deepest.max(operand.depth());
        }
    }
}

fn negated(operator: Operator) -> Operator {
    match operator {
        Operator::And => Operator::Or,
        _ => Operator::And,
    }
}

/// Measures an expression from its leaves to its root.
#[derive(Debug, Default)]
struct ExpressionMeasurer {
    /// The expressions from the root to the current one.
    path: Vec<TermDepth>,
    depth: usize,
}

impl<'n> TreeNodeVisitor<'n> for ExpressionMeasurer {
    type Node = Expr;

    fn f_down(&mut self, expression: &'n Expr) -> DfResult<TreeNodeRecursion> {
        self.path.push(TermDepth::new(expression));
        Ok(TreeNodeRecursion::Continue)
    }

    fn f_up(&mut self, _: &'n Expr) -> DfResult<TreeNodeRecursion> {
        let term = self.path.pop().unwrap_or_default();
        match self.path.last_mut() {
            Some(outer) => outer.add(&term),
            None => self.depth = term.depth(),
        }
        Ok(TreeNodeRecursion::Continue)
    }
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;

    use super::*;

    /// Checks a statement, on a thread with the stack size of the threads that plan.
    fn checked(sql: &str) -> Result<()> {
        let sql = sql.to_owned();
        let planning = async move {
            let context = SessionContext::new();
            let table = "CREATE TABLE t (a BIGINT, b BOOLEAN)";
            context.sql(table).await.unwrap();
            let plan = context.state().create_logical_plan(&sql).await.unwrap();
            check(&plan, 50)
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        std::thread::Builder::new()
            .stack_size(16 << 20)
            .spawn(move || runtime.block_on(planning))
            .unwrap()
            .join()
            .unwrap()
    }

    fn is_refused(sql: &str) -> bool {
        checked(sql).is_err()
    }

    fn sum(terms: usize) -> String {
        vec!["a"; terms].join(" + ")
    }

    /// Returns copies of a term, connected in a tree that is as flat as possible.
    fn balanced(term: &str, operator: &str, levels: usize) -> String {
        (0..levels).fold(term.to_owned(), |side, _| {
            format!("({side} {operator} {side})")
        })
    }

    #[test]
    fn one_long_statement_is_planned() {
        let long = sum(490);
        let statement = format!("SELECT {long} AS s FROM t WHERE {long} > 1");
        assert!(!is_refused(&statement));
        let ors = vec!["a = 1 AND a < 2 + 3"; 1_500].join(" OR ");
        assert!(!is_refused(&format!("SELECT * FROM t WHERE {ors}")));
        let unions = vec!["SELECT a FROM t"; 300].join(" UNION ALL ");
        assert!(!is_refused(&unions));
        let joins = (1..100)
            .map(|n| format!(" JOIN t t{n} ON t0.a = t{n}.a"))
            .collect::<String>();
        assert!(!is_refused(&format!("SELECT t0.a FROM t t0{joins}")));
        let steps = (1..50)
            .map(|n| {
                let before = n - 1;
                format!("s{n} AS (SELECT a + 1 AS a FROM s{before} WHERE a > {n} AND a < 100 GROUP BY a)")
            })
            .collect::<Vec<_>>()
            .join(", ");
        let steps = format!("WITH s0 AS (SELECT a FROM t), {steps} SELECT * FROM s49");
        assert!(!is_refused(&steps));
    }

    #[test]
    fn projections_that_may_become_one_are_refused_by_their_sum() {
        let long = sum(400);
        let nested = format!("SELECT {long} AS a FROM (SELECT {long} AS a FROM t) x");
        assert!(is_refused(&nested));
        let ctes = format!(
            "WITH x AS (SELECT {long} AS a FROM t), y AS (SELECT {long} AS a FROM x) SELECT a FROM y"
        );
        assert!(is_refused(&ctes));
        let filtered = format!("SELECT a FROM (SELECT {long} AS a FROM t) x WHERE {long} > 1");
        assert!(is_refused(&filtered));
    }

    #[test]
    fn a_long_chain_of_steps_is_refused() {
        let steps = (1..700)
            .map(|n| format!("s{n} AS (SELECT * FROM s{})", n - 1))
            .collect::<Vec<_>>()
            .join(", ");
        let chain = format!("WITH s0 AS (SELECT a FROM t), {steps} SELECT * FROM s699");
        assert!(is_refused(&chain));
        let steps = (1..16)
            .map(|n| {
                let before = n - 1;
                format!("s{n} AS (SELECT * FROM s{before} UNION ALL SELECT * FROM s{before})")
            })
            .collect::<Vec<_>>()
            .join(", ");
        let doubled = format!("WITH s0 AS (SELECT a FROM t), {steps} SELECT * FROM s15");
        assert!(is_refused(&doubled));
    }

    #[test]
    fn what_becomes_a_chain_is_counted_as_one() {
        for condition in [
            balanced("b", "AND", 12),
            balanced("b", "OR", 12),
            format!(
                "NOT (NOT {} OR NOT {})",
                balanced("b", "AND", 11),
                balanced("b", "AND", 11)
            ),
            format!("CASE{} END = 1", " WHEN a = 1 THEN 1".repeat(3_000)),
        ] {
            let statement = format!("SELECT * FROM t WHERE {condition}");
            assert!(is_refused(&statement));
        }
        let tables = balanced("t", "CROSS JOIN", 9);
        let tables = tables
            .split('t')
            .enumerate()
            .map(|(n, after)| match n {
                0 => after.to_owned(),
                _ => format!("t t{n}{after}"),
            })
            .collect::<String>();
        assert!(is_refused(&format!("SELECT 1 FROM {tables}")));
    }

    #[test]
    fn operators_that_have_many_columns_together_are_refused() {
        let of = |count: usize| {
            let columns =
                (0..count).map(|n| format!("struct(a, struct(a, struct(a, {n}))) AS s{n}"));
            let columns: Vec<_> = columns.collect();
            format!("SELECT {} FROM t", columns.join(", "))
        };
        checked(&of(1_000)).unwrap();
        let error = checked(&of(2_000)).unwrap_err();
        assert!(error.message().contains("max_columns"), "{error}");
    }
}
