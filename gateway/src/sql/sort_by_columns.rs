//! DataFusion takes the names in ORDER BY for the columns of the result, also within expressions.
//! So it fails on `SELECT sum(price) AS price … ORDER BY sum(price)`, which sorts by a column of
//! the result as a whole.

use std::collections::HashMap;

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
    // Most queries sort by names, for which no text is made.
    let mut positions = None;
    for key in sorted {
        if is_name_or_constant(&key.expr) {
            continue;
        }
        let positions = positions.get_or_insert_with(|| positions_of(&select.projection));
        if let Some(position) = positions.get(&Comparable::of(&key.expr)) {
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

/// Returns the positions of the items, from 1. An item behind a wildcard has none, because any
/// number of columns may be in the place of the wildcard.
fn positions_of(items: &[SelectItem]) -> HashMap<Comparable, usize> {
    let expressions = items.iter().map_while(|item| match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => Some(expr),
        _ => None,
    });
    let mut positions = HashMap::new();
    for (before, expression) in expressions.enumerate() {
        // The first of several equal items counts.
        positions
            .entry(Comparable::of(expression))
            .or_insert(before + 1);
    }
    positions
}

/// An expression that equals others in which names and keywords are in another case.
#[derive(PartialEq, Eq, Hash)]
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
