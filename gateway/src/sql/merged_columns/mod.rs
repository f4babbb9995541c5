//! Joins with USING and NATURAL merge columns: `a JOIN b USING (k)` has one column `k` in place of
//! `a.k` and `b.k`. DataFusion 55 takes the column of the left side for it, which is NULL where
//! only the right side has a row (apache/datafusion#22881), and finds it ambiguous in WHERE. So
//! USING and NATURAL become ON before the planner sees them, and the merged columns become what
//! SQL defines: the column of the left side, that of the right side for a RIGHT JOIN, and
//! `coalesce(a.k, b.k)` for a FULL JOIN. `*` becomes the list of its columns, with the merged ones
//! first.

/// Replaces the names of merged columns in expressions.
mod replace;
/// Knows the columns of a FROM, and which of them are merged.
mod scope;

use std::ops::ControlFlow;

use datafusion::sql::parser::{CopyToSource, Statement as DfStatement};
use datafusion::sql::sqlparser::ast::{
    Cte, Distinct, Expr, Ident, JoinConstraint, JoinOperator, OrderBy, OrderByKind, Query, Select,
    SelectItem, SetExpr, TableFactor, TableWithJoins, Visit, VisitMut, VisitorMut, With,
};
use volary_flight_proto::{Error, Result, SqlState};

use super::headings::mark;
use super::names::identifier;
use super::visit::{QueryVisitor, visit_node};
use replace::Replacer;
use scope::{Scope, Scopes};

/// A function that plans a query and returns the names of its columns, or `None` if the query
/// cannot be planned by itself.
pub(crate) type ColumnsOf<'a> = &'a dyn Fn(Query) -> Option<Vec<String>>;

/// Writes the joins of a statement without USING and NATURAL.
///
/// # Errors
/// `INVALID_ARGUMENT` if a column of USING does not exist on both sides, or several times on one.
pub(crate) fn rewrite(statement: &mut DfStatement, columns_of: ColumnsOf<'_>) -> Result<()> {
    match statement {
        DfStatement::Statement(ast) => rewrite_node(ast.as_mut(), columns_of),
        DfStatement::Explain(explain) => rewrite(&mut explain.statement, columns_of),
        DfStatement::CopyTo(copy) => match &mut copy.source {
            CopyToSource::Query(query) => rewrite_node(query.as_mut(), columns_of),
            CopyToSource::Relation(_) => Ok(()),
        },
        DfStatement::CreateExternalTable(_) | DfStatement::Reset(_) => Ok(()),
    }
}

fn rewrite_node(node: &mut (impl Visit + VisitMut), columns_of: ColumnsOf<'_>) -> Result<()> {
    if visit_node(node, &mut MergeFinder).is_ok() {
        return Ok(());
    }
    let mut rewriter = Rewriter {
        scopes: Scopes::new(columns_of),
        withs: Vec::new(),
    };
    match VisitMut::visit(node, &mut rewriter) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

/// A visitor that fails at a FROM with USING or NATURAL.
struct MergeFinder;

impl QueryVisitor for MergeFinder {
    fn enter(&mut self, query: &Query) -> Result<()> {
        let mut bodies = vec![query.body.as_ref()];
        while let Some(body) = bodies.pop() {
            match body {
                SetExpr::Select(select) if select.from.iter().any(merges) => {
                    return Err(Error::invalid("a FROM merges columns"));
                }
                SetExpr::SetOperation { left, right, .. } => {
                    bodies.extend([left.as_ref(), right.as_ref()]);
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Returns whether the FROM merges columns.
fn merges(from: &TableWithJoins) -> bool {
    let is_nested = |factor: &TableFactor| match factor {
        TableFactor::NestedJoin {
            table_with_joins, ..
        } => merges(table_with_joins),
        _ => false,
    };
    is_nested(&from.relation)
        || from.joins.iter().any(|join| {
            let constraint = constraint_of(&join.join_operator);
            is_nested(&join.relation)
                || matches!(
                    constraint,
                    Some(JoinConstraint::Using(_) | JoinConstraint::Natural)
                )
        })
}

fn constraint_of(operator: &JoinOperator) -> Option<&JoinConstraint> {
    use JoinOperator as Op;
    match operator {
        Op::Join(constraint)
        | Op::Inner(constraint)
        | Op::Left(constraint)
        | Op::LeftOuter(constraint)
        | Op::Right(constraint)
        | Op::RightOuter(constraint)
        | Op::FullOuter(constraint)
        | Op::CrossJoin(constraint)
        | Op::Semi(constraint)
        | Op::LeftSemi(constraint)
        | Op::RightSemi(constraint)
        | Op::Anti(constraint)
        | Op::LeftAnti(constraint)
        | Op::RightAnti(constraint)
        | Op::StraightJoin(constraint)
        | Op::AsOf { constraint, .. } => Some(constraint),
        Op::CrossApply
        | Op::OuterApply
        | Op::ArrayJoin
        | Op::LeftArrayJoin
        | Op::InnerArrayJoin => None,
    }
}

/// Rewrites queries from the inside out. The CTEs of a query are rewritten before its body.
struct Rewriter<'a> {
    scopes: Scopes<'a>,
    /// The WITH of each query that is being visited, from the outermost to the innermost. It is
    /// taken out of the query, so that its CTEs are visited only once, before everything else.
    withs: Vec<Option<With>>,
}

impl Rewriter<'_> {
    /// Rewrites the CTEs of a query, and makes them known to the queries after them.
    fn enter_with(&mut self, with: &mut With) -> ControlFlow<Error> {
        for cte in &mut with.cte_tables {
            if with.recursive {
                self.scopes.add_cte(first_term(cte), false);
                VisitMut::visit(&mut cte.query, self)?;
                self.scopes.remove_cte();
            } else {
                VisitMut::visit(&mut cte.query, self)?;
            }
            self.scopes.add_cte(cte.clone(), with.recursive);
        }
        ControlFlow::Continue(())
    }

    fn rewrite_query(&mut self, query: &mut Query) -> Result<()> {
        match query.body.as_mut() {
            SetExpr::Select(select) => self.rewrite_select(select, query.order_by.as_mut()),
            body => self.rewrite_body(body),
        }
    }

    fn rewrite_body(&mut self, body: &mut SetExpr) -> Result<()> {
        match body {
            SetExpr::Select(select) => self.rewrite_select(select, None),
            SetExpr::SetOperation { left, right, .. } => {
                self.rewrite_body(left)?;
                self.rewrite_body(right)
            }
            _ => Ok(()),
        }
    }

    /// Rewrites a SELECT whose inner queries are rewritten already.
    fn rewrite_select(
        &mut self,
        select: &mut Select,
        order_by: Option<&mut OrderBy>,
    ) -> Result<()> {
        if !select.from.iter().any(merges) {
            return Ok(());
        }
        let mut scope = Scope::default();
        for from in &mut select.from {
            scope.append(self.scopes.of_joins(from)?);
        }
        let is_result = self.withs.len() == 1;
        let outputs = expand(&mut select.projection, &scope, is_result)?;
        let mut names_in = |query: &Query| self.scopes.names_in(query);
        let mut replacer = Replacer::new(scope.merged(), &mut names_in);
        replacer.replace(&mut select.projection);
        replacer.replace(&mut select.selection);
        replacer.replace(&mut select.group_by);
        replacer.replace(&mut select.having);
        replacer.replace(&mut select.named_window);
        replacer.replace(&mut select.qualify);
        if let Some(Distinct::On(expressions)) = &mut select.distinct {
            for expression in expressions {
                replace_in_order(&mut replacer, expression, &outputs)?;
            }
        }
        if let Some(order_by) = order_by
            && let OrderByKind::Expressions(sorted) = &mut order_by.kind
        {
            for by in sorted {
                replace_in_order(&mut replacer, &mut by.expr, &outputs)?;
            }
        }
        Ok(())
    }
}

impl VisitorMut for Rewriter<'_> {
    type Break = Error;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        let mut with = query.with.take();
        // The queries of the CTEs are within this one.
        self.withs.push(None);
        if let Some(with) = &mut with {
            self.enter_with(with)?;
        }
        if let Some(own) = self.withs.last_mut() {
            *own = with;
        }
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        let rewritten = self.rewrite_query(query);
        query.with = self.withs.pop().flatten();
        for _ in query.with.iter().flat_map(|with| &with.cte_tables) {
            self.scopes.remove_cte();
        }
        match rewritten {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }
}

/// Returns a recursive CTE with only its first term, which has the same columns and does not read
/// the CTE.
fn first_term(cte: &Cte) -> Cte {
    let mut first = cte.clone();
    while let SetExpr::SetOperation { left, .. } = *first.query.body {
        first.query.body = left;
    }
    first
}

/// A column of the result that an ORDER BY can name.
struct Output {
    name: String,
    /// Says whether the name is that of an expression, and not only that of a column in the FROM.
    is_alias: bool,
}

/// Replaces each `*` by its columns, and names the merged columns that are listed. Returns the
/// columns of the SELECT list. `is_result` says whether these are columns of the statement's
/// result.
///
/// # Errors
/// `INVALID_ARGUMENT` if a subquery has a merged column and another one of the same name.
fn expand(projection: &mut Vec<SelectItem>, scope: &Scope, is_result: bool) -> Result<Vec<Output>> {
    let mut items: Vec<Item> = Vec::with_capacity(projection.len());
    for item in projection.drain(..) {
        match item {
            SelectItem::Wildcard(options) => match scope.columns_of_wildcard(&options) {
                Some(columns) => items.extend(columns.into_iter().map(Item::made)),
                None => items.push(Item::written(SelectItem::Wildcard(options))),
            },
            SelectItem::UnnamedExpr(expression) => {
                items.push(with_name_of_merged(expression, scope));
            }
            other => items.push(Item::written(other)),
        }
    }
    let outputs: Vec<Output> = items
        .iter()
        .filter_map(|item| output_of(&item.item))
        .collect();
    // DataFusion does not tell a column without a table from a column of a table that has the same
    // name.
    for (number, Item { item, is_made }) in (1..).zip(&mut items) {
        if let SelectItem::ExprWithAlias { alias, .. } = item
            && *is_made
            && outputs.iter().filter(|it| it.name == alias.value).count() > 1
        {
            if !is_result {
                return Err(several_columns(&alias.value, "use"));
            }
            mark(&mut alias.value, number);
        }
    }
    projection.extend(items.into_iter().map(|item| item.item));
    Ok(outputs)
}

/// Returns the error for a name of several columns. `purpose` is a verb: what the name is for.
fn several_columns(name: &str, purpose: &str) -> Error {
    Error::invalid(format!(
        "several columns of a SELECT are called {name}; give them other names with AS to {purpose} one of them"
    ))
    .with_sqlstate(SqlState::AmbiguousColumn)
}

/// An item of a SELECT list.
struct Item {
    item: SelectItem,
    /// Says whether the name of the item was added here, and is not in the statement.
    is_made: bool,
}

impl Item {
    fn written(item: SelectItem) -> Self {
        let is_made = false;
        Self { item, is_made }
    }

    fn made(item: SelectItem) -> Self {
        let is_made = true;
        Self { item, is_made }
    }
}

/// Returns an item of the SELECT list. If it is a merged column that is computed, such as
/// `coalesce(a.k, b.k)`, it gets the name of the column.
fn with_name_of_merged(expression: Expr, scope: &Scope) -> Item {
    let mut inner = &expression;
    while let Expr::Nested(nested) = inner {
        inner = nested;
    }
    match inner {
        Expr::Identifier(name) if scope.is_computed(&identifier(name)) => {
            let alias = Ident::with_quote('"', identifier(name));
            let expr = expression;
            Item::made(SelectItem::ExprWithAlias { expr, alias })
        }
        _ => Item::written(SelectItem::UnnamedExpr(expression)),
    }
}

fn output_of(item: &SelectItem) -> Option<Output> {
    match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(Output {
            name: identifier(alias),
            is_alias: true,
        }),
        SelectItem::UnnamedExpr(Expr::Identifier(name)) => Some(Output {
            name: identifier(name),
            is_alias: false,
        }),
        SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) => Some(Output {
            name: identifier(parts.last()?),
            is_alias: false,
        }),
        _ => None,
    }
}

/// Replaces merged columns in an expression of ORDER BY or DISTINCT ON. There, a name that stands
/// alone is that of a column of the result, if there is one.
///
/// # Errors
/// `INVALID_ARGUMENT` if it is the name of several columns of the result.
fn replace_in_order(
    replacer: &mut Replacer<'_>,
    expression: &mut Expr,
    outputs: &[Output],
) -> Result<()> {
    if let Expr::Identifier(name) = &*expression {
        let name = identifier(name);
        let mut named = outputs.iter().filter(|output| output.name == name);
        match (named.next(), named.next()) {
            (Some(output), None) if output.is_alias => return Ok(()),
            (Some(one), Some(other)) if one.is_alias || other.is_alias => {
                return Err(several_columns(&name, "sort by"));
            }
            _ => {}
        }
    }
    replacer.replace(expression);
    Ok(())
}
