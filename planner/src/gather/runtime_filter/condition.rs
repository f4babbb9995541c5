use std::cmp::Ordering;
use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::datatypes::Schema;
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, InListExpr, Literal};
use datafusion::physical_expr::utils::conjunction;
use volary_exec::key_set::KeySetExpr;

use super::Expr;

/// Maximum length of a list that Parquet readers still compare with statistics. Longer lists are
/// sent as a set.
const MAX_LISTED: usize = 20;

/// A condition on one expression of the probe side.
#[derive(Clone)]
pub(super) enum Condition {
    AtLeast(Expr, ScalarValue),
    AtMost(Expr, ScalarValue),
    In(Expr, HashSet<ScalarValue>),
    /// The expression, which is true for NULL keys, or all of the conditions. It is never merged
    /// with another condition.
    NullOr(Expr, Vec<Condition>),
}

impl Condition {
    /// Returns the condition that holds where either of the two holds. Returns `None` if they are
    /// not the same kind of condition on the same key.
    pub(super) fn or(self, other: &Self) -> Option<Self> {
        match (self, other) {
            (Self::AtLeast(key, left), Self::AtLeast(other, right)) if is_same_key(&key, other) => {
                let smaller = if left <= *right { left } else { right.clone() };
                Some(Self::AtLeast(key, smaller))
            }
            (Self::AtMost(key, left), Self::AtMost(other, right)) if is_same_key(&key, other) => {
                let larger = if left >= *right { left } else { right.clone() };
                Some(Self::AtMost(key, larger))
            }
            (Self::In(key, mut left), Self::In(other, right)) if is_same_key(&key, other) => {
                left.extend(right.iter().cloned());
                Some(Self::In(key, left))
            }
            _ => None,
        }
    }

    /// Returns the condition as an expression over rows of `schema`. Equal conditions give equal
    /// expressions, and so equal tickets.
    ///
    /// # Errors
    /// An error if the condition does not fit `schema`.
    pub(super) fn into_expression(self, schema: &Schema) -> Result<Expr> {
        let literal = |value| Arc::new(Literal::new(value)) as Expr;
        Ok(match self {
            Self::AtLeast(key, bound) => {
                Arc::new(BinaryExpr::new(key, Operator::GtEq, literal(bound)))
            }
            Self::AtMost(key, bound) => {
                Arc::new(BinaryExpr::new(key, Operator::LtEq, literal(bound)))
            }
            Self::In(key, values) if values.len() <= MAX_LISTED => {
                let mut values: Vec<_> = values.into_iter().collect();
                values.sort_by(|left, right| left.partial_cmp(right).unwrap_or(Ordering::Equal));
                let values = values.into_iter().map(literal).collect();
                Arc::new(InListExpr::try_new(key, values, false, schema)?)
            }
            Self::In(key, values) => Arc::new(KeySetExpr::from_scalars(key, values)?),
            Self::NullOr(nulls, conditions) => {
                let mut parts = Vec::new();
                for condition in conditions {
                    parts.push(condition.into_expression(schema)?);
                }
                if parts.is_empty() {
                    nulls
                } else {
                    Arc::new(BinaryExpr::new(nulls, Operator::Or, conjunction(parts)))
                }
            }
        })
    }
}

/// Returns whether two keys are the same expression.
pub(super) fn is_same_key(left: &Expr, right: &Expr) -> bool {
    left.as_ref() == right.as_ref()
}
