//! DataFusion takes the names in ORDER BY for the columns of the result, also within expressions.
//! So it fails on `SELECT sum(price) AS price … ORDER BY sum(price)`, which sorts by a column of
//! the result as a whole.

use datafusion::sql::sqlparser::ast::{
    Distinct, Expr, OrderByKind, Query, SelectItem, SetExpr, Value,
};

/// Replaces expressions of ORDER BY that are items of the SELECT list by the position of the item.
pub(super) fn rewrite(query: &mut Query) {
    let SetExpr::Select(select) = query.body.as_ref() else {
        return;
    };
    if matches!(select.distinct, Some(Distinct::On(_))) {
        return;
    }
    let Some(order_by) = &mut query.order_by else {
        return;
    };
    let OrderByKind::Expressions(sorted) = &mut order_by.kind else {
        return;
    };
    for key in sorted {
        if is_name_or_constant(&key.expr) {
            continue;
        }
        if let Some(position) = position(&select.projection, &key.expr) {
            key.expr = Expr::value(Value::Number(position.to_string(), false));
        }
    }
}

fn is_name_or_constant(expression: &Expr) -> bool {
    matches!(
        expression,
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Value(_)
    )
}

/// Returns the position of the item that is this expression, from 1. Returns `None` if there is
/// none, and if its position is not known.
fn position(items: &[SelectItem], expression: &Expr) -> Option<usize> {
    let expression = Comparable::of(expression);
    for (before, item) in items.iter().enumerate() {
        let item = match item {
            SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => expr,
            // Any number of columns may be here.
            _ => return None,
        };
        if Comparable::of(item) == expression {
            return Some(before + 1);
        }
    }
    None
}

/// An expression that equals others in which names and keywords are in another case.
#[derive(PartialEq, Eq)]
struct Comparable(String);

impl Comparable {
    fn of(expression: &Expr) -> Self {
        let text = expression.to_string();
        // Within quotes, the case matters.
        Self(if text.contains(['\'', '"']) {
            text
        } else {
            text.to_lowercase()
        })
    }
}
