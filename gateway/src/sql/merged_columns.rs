//! The column `k` of `a FULL JOIN b USING (k)` should be the key of whichever side has a row.
//! DataFusion 55 takes the key of the left side alone, which is NULL where only the right side has
//! a row (apache/datafusion#22881). `a.k` and `b.k` are right.

use datafusion::sql::sqlparser::ast::{
    Expr, JoinConstraint, JoinOperator, Select, SelectItem, TableFactor, TableWithJoins,
};
use volary_flight_proto::{Error, Result};

use super::names::identifier;
use super::visit::{QueryVisitor, visit_node};

/// Refuses a SELECT that reads a column that a RIGHT or FULL JOIN merges.
///
/// # Errors
/// `INVALID_ARGUMENT`.
pub(crate) fn check(select: &Select) -> Result<()> {
    let mut merged = MergedColumns::default();
    for from in &select.from {
        merged.add(from);
    }
    let reads_all = |item: &SelectItem| matches!(item, SelectItem::Wildcard(_));
    let is_refused = merged.is_always_refused
        || (!merged.names.is_empty() && select.projection.iter().any(reads_all))
        || merged.names.iter().any(|name| reads_column(select, name));
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
    /// Says whether the SELECT must be refused although it names no merged column. This is so for
    /// NATURAL, because only the tables know which columns it merges, and for a join by a merged
    /// column, because it reads that column.
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
                JoinConstraint::On(_) | JoinConstraint::None => {}
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

/// Returns whether a SELECT reads a column of this name without the name of a table.
fn reads_column(select: &Select, name: &str) -> bool {
    let mut reads = ColumnFinder(name);
    visit_node(&select.projection, &mut reads).is_err()
        || visit_node(&select.selection, &mut reads).is_err()
        || visit_node(&select.group_by, &mut reads).is_err()
        || visit_node(&select.having, &mut reads).is_err()
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
