use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::array::StructArray;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::ScalarFunctionExpr;
use datafusion::physical_expr::expressions::{
    BinaryExpr, CaseExpr, InListExpr, IsNullExpr, Literal,
};
use datafusion::physical_expr::utils::split_conjunction;

use super::Expr;
use super::condition::Condition;
use super::single_key::is_resolved;

/// The rows that a filter keeps, as a conjunction of conditions.
pub(super) enum KeptRows {
    All,
    None,
    Where(Vec<Condition>),
}

/// Reads the filters of joins.
pub(super) struct FilterReader {
    /// Maximum length of a list of keys. Longer lists are ignored.
    pub(super) max_values: usize,
}

impl FilterReader {
    /// Reads a filter of [`datafusion::physical_plan::joins::HashJoinExec`]: bounds and lists of
    /// keys, by partition of the join in a CASE. Anything else that the join writes, such as a
    /// reference to its hash table, keeps all rows.
    pub(super) fn read(&self, filter: &Expr) -> KeptRows {
        let mut all = Vec::new();
        for part in split_conjunction(filter) {
            match self.read_part(part) {
                KeptRows::All => {}
                KeptRows::None => return KeptRows::None,
                KeptRows::Where(conditions) => all.extend(conditions),
            }
        }
        if all.is_empty() {
            KeptRows::All
        } else {
            KeptRows::Where(all)
        }
    }

    fn read_part(&self, part: &Expr) -> KeptRows {
        if let Some(literal) = part.downcast_ref::<Literal>() {
            return match literal.value() {
                ScalarValue::Boolean(Some(true)) => KeptRows::All,
                ScalarValue::Boolean(_) => KeptRows::None,
                _ => KeptRows::All,
            };
        }
        if let Some(binary) = part.downcast_ref::<BinaryExpr>() {
            return self.read_binary(binary);
        }
        if let Some(list) = part.downcast_ref::<InListExpr>() {
            return self.read_list(list);
        }
        if let Some(case) = part.downcast_ref::<CaseExpr>() {
            let branches = case.when_then_expr().iter().map(|(_, then)| then);
            let branches = branches
                .chain(case.else_expr())
                .map(|branch| self.read(branch));
            return self.merge_branches(branches);
        }
        KeptRows::All
    }

    fn read_binary(&self, binary: &BinaryExpr) -> KeptRows {
        let (left, right) = (binary.left(), binary.right());
        if *binary.op() == Operator::Or {
            // This is `key IS NULL OR …`, which a join writes if NULL keys can match.
            if !is_null_check(left) || !is_resolved(left) {
                return KeptRows::All;
            }
            return match self.read(right) {
                KeptRows::All => KeptRows::All,
                KeptRows::None => {
                    KeptRows::Where(vec![Condition::NullOr(Arc::clone(left), Vec::new())])
                }
                KeptRows::Where(conditions) => {
                    KeptRows::Where(vec![Condition::NullOr(Arc::clone(left), conditions)])
                }
            };
        }
        let Some(bound) = right.downcast_ref::<Literal>() else {
            return KeptRows::All;
        };
        let (key, bound) = (Arc::clone(left), bound.value().clone());
        match binary.op() {
            _ if bound.is_null() || !is_resolved(&key) => KeptRows::All,
            Operator::GtEq => KeptRows::Where(vec![Condition::AtLeast(key, bound)]),
            Operator::LtEq => KeptRows::Where(vec![Condition::AtMost(key, bound)]),
            _ => KeptRows::All,
        }
    }

    /// Reads a list of keys. A list of several keys together becomes one list for each key, which
    /// can be compared with statistics and encoded. Keys that are unknown at the place of the
    /// filter are ignored.
    fn read_list(&self, list: &InListExpr) -> KeptRows {
        if list.negated() {
            return KeptRows::All;
        }
        let literals = list.list().iter().map(|item| {
            let literal = item.downcast_ref::<Literal>();
            literal.map(Literal::value)
        });
        let Some(values) = literals.collect::<Option<Vec<_>>>() else {
            return KeptRows::All;
        };
        let keys = match list.expr().downcast_ref::<ScalarFunctionExpr>() {
            Some(function) if function.name() == "struct" => function.args().to_vec(),
            _ => {
                let set = values.into_iter().cloned().collect();
                return self.keep_usable(vec![Condition::In(Arc::clone(list.expr()), set)]);
            }
        };
        let mut lists = vec![HashSet::new(); keys.len()];
        for value in values {
            let ScalarValue::Struct(row) = value else {
                return KeptRows::All;
            };
            if add_row(row, &mut lists).is_none() {
                return KeptRows::All;
            }
        }
        let conditions = keys.into_iter().zip(lists);
        self.keep_usable(
            conditions
                .map(|(key, set)| Condition::In(key, set))
                .collect(),
        )
    }

    fn keep_usable(&self, conditions: Vec<Condition>) -> KeptRows {
        let kept: Vec<_> = conditions
            .into_iter()
            .filter(|condition| self.is_usable(condition))
            .collect();
        if kept.is_empty() {
            KeptRows::All
        } else {
            KeptRows::Where(kept)
        }
    }

    /// Returns whether a condition can be used. A list must be short enough, and its key must be
    /// known.
    fn is_usable(&self, condition: &Condition) -> bool {
        match condition {
            Condition::In(key, set) => set.len() <= self.max_values && is_resolved(key),
            _ => true,
        }
    }

    /// Returns the union of the branches: the conditions that every branch has on the same key,
    /// widened to hold for all branches.
    fn merge_branches(&self, branches: impl Iterator<Item = KeptRows>) -> KeptRows {
        let mut merged: Option<Vec<Condition>> = None;
        for branch in branches {
            let conditions = match branch {
                KeptRows::All => return KeptRows::All,
                KeptRows::None => continue,
                KeptRows::Where(conditions) => conditions,
            };
            merged = Some(match merged {
                None => conditions,
                Some(previous) => previous
                    .into_iter()
                    .filter_map(|left| conditions.iter().find_map(|right| left.clone().or(right)))
                    .filter(|condition| self.is_usable(condition))
                    .collect(),
            });
        }
        match merged {
            None => KeptRows::None,
            Some(conditions) if conditions.is_empty() => KeptRows::All,
            Some(conditions) => KeptRows::Where(conditions),
        }
    }
}

/// Adds the values of a row to the lists of the keys. Returns `None` if the row does not have one
/// value per key.
fn add_row(row: &StructArray, lists: &mut [HashSet<ScalarValue>]) -> Option<()> {
    for (list, column) in lists.iter_mut().zip(row.columns()) {
        list.insert(ScalarValue::try_from_array(column, 0).ok()?);
    }
    (row.num_columns() == lists.len()).then_some(())
}

fn is_null_check(expression: &Expr) -> bool {
    if expression.is::<IsNullExpr>() {
        return true;
    }
    expression
        .downcast_ref::<BinaryExpr>()
        .is_some_and(|binary| {
            *binary.op() == Operator::Or
                && is_null_check(binary.left())
                && is_null_check(binary.right())
        })
}
