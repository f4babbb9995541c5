//! The column `k` of `a FULL JOIN b USING (k)` should be the key of whichever side has a row.
//! DataFusion 55 takes the key of the left side alone, which is NULL where only the right side has
//! a row (apache/datafusion#22881). `a.k` and `b.k` are right.

use datafusion::sql::sqlparser::ast::{
    Expr, JoinConstraint, JoinOperator, OrderBy, OrderByKind, Select, SelectItem, TableFactor,
    TableWithJoins, Visit,
};
use volary_flight_proto::{Error, Result};

use super::names::identifier;
use super::visit::{QueryVisitor, visit_node};

/// Refuses a SELECT that reads a column that a RIGHT or FULL JOIN merges. `order_by` is the ORDER
/// BY of the query if the query is nothing but this SELECT.
///
/// # Errors
/// `INVALID_ARGUMENT`.
pub(crate) fn check(select: &Select, order_by: Option<&OrderBy>) -> Result<()> {
    let mut merged = MergedColumns::default();
    for from in &select.from {
        merged.add(from);
    }
    let reads_all = |item: &SelectItem| matches!(item, SelectItem::Wildcard(_));
    let is_refused = merged.is_always_refused
        || (!merged.names.is_empty() && select.projection.iter().any(reads_all))
        || merged.names.iter().any(|name| {
            reads_column(select, name)
                || order_by.is_some_and(|order_by| sorts_by_column(order_by, select, name))
        });
    if is_refused {
        return Err(Error::unsupported(
            "the merged columns of RIGHT and FULL JOIN with USING or NATURAL are not supported; join ON a.k = b.k, and write coalesce(a.k, b.k)",
        ));
    }
    Ok(())
}

#[derive(Default)]
struct MergedColumns {
    names: Vec<String>,
    /// Says whether the SELECT must be refused although it names no merged column. This applies to
    /// NATURAL, because only the schemas of the tables show which columns it merges, and to a join
    /// that reads a merged column.
    is_always_refused: bool,
}

impl MergedColumns {
    fn add(&mut self, from: &TableWithJoins) {
        self.add_nested(&from.relation);
        for join in &from.joins {
            self.add_nested(&join.relation);
            let (keeps_right, constraint) = match &join.join_operator {
                JoinOperator::Right(constraint)
                | JoinOperator::RightOuter(constraint)
                | JoinOperator::FullOuter(constraint) => (true, constraint),
                JoinOperator::Join(constraint)
                | JoinOperator::Inner(constraint)
                | JoinOperator::Left(constraint)
                | JoinOperator::LeftOuter(constraint) => (false, constraint),
                _ => continue,
            };
            match constraint {
                JoinConstraint::Using(columns) => {
                    let columns = columns.iter().filter_map(|name| name.0.last()?.as_ident());
                    for name in columns.map(identifier) {
                        self.is_always_refused |= self.names.contains(&name);
                        if keeps_right {
                            self.names.push(name);
                        }
                    }
                }
                JoinConstraint::Natural => {
                    self.is_always_refused |= keeps_right || !self.names.is_empty();
                }
                JoinConstraint::On(condition) => {
                    self.is_always_refused |=
                        self.names.iter().any(|name| has_column(condition, name));
                }
                JoinConstraint::None => {}
            }
        }
    }

    fn add_nested(&mut self, table: &TableFactor) {
        if let TableFactor::NestedJoin {
            table_with_joins, ..
        } = table
        {
            self.add(table_with_joins);
        }
    }
}

/// Returns whether a SELECT reads a column by this name alone, without the name of its table.
fn reads_column(select: &Select, name: &str) -> bool {
    has_column(&select.distinct, name)
        || has_column(&select.projection, name)
        || has_column(&select.selection, name)
        || has_column(&select.group_by, name)
        || has_column(&select.having, name)
        || has_column(&select.named_window, name)
        || has_column(&select.qualify, name)
}

/// Returns whether an ORDER BY reads a column of the FROM by this name alone. A name that stands
/// alone in an ORDER BY is that of a result column, if there is one.
fn sorts_by_column(order_by: &OrderBy, select: &Select, name: &str) -> bool {
    let OrderByKind::Expressions(sorted) = &order_by.kind else {
        return false;
    };
    let is_result = select.projection.iter().any(|item| match item {
        SelectItem::ExprWithAlias { alias, .. } => identifier(alias) == name,
        SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) => {
            parts.last().is_some_and(|last| identifier(last) == name)
        }
        _ => false,
    });
    sorted
        .iter()
        .filter(|by| !(is_result && matches!(by.expr, Expr::Identifier(_))))
        .any(|by| has_column(&by.expr, name))
}

fn has_column(node: &impl Visit, name: &str) -> bool {
    visit_node(node, &mut ColumnFinder(name)).is_err()
}

/// A visitor that fails at an expression that reads the column of this name.
struct ColumnFinder<'a>(&'a str);

impl QueryVisitor for ColumnFinder<'_> {
    fn expression(&mut self, expression: &Expr) -> Result<()> {
        match expression {
            Expr::Identifier(name) if identifier(name) == self.0 => Err(Error::invalid(self.0)),
            _ => Ok(()),
        }
    }
}
