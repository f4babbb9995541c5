use datafusion::sql::sqlparser::ast::{Expr, GroupByExpr, Query, Select, SelectItem, SetExpr};

/// Returns whether a query has only a FROM, a WHERE and a list of columns, beside an ORDER BY.
/// FETCH and TOP count as limits: they become LIMIT only after the outer query was rewritten.
pub(super) fn is_filter(query: &Query, select: &Select) -> bool {
    query.with.is_none()
        && query.limit_clause.is_none()
        && query.fetch.is_none()
        && query.pipe_operators.is_empty()
        && select.distinct.is_none()
        && select.top.is_none()
        && select.lateral_views.is_empty()
        && select.prewhere.is_none()
        && select.connect_by.is_empty()
        && !is_grouped(select)
        && select.having.is_none()
        && select.qualify.is_none()
}

/// Returns whether a SELECT has a GROUP BY.
pub(super) fn is_grouped(select: &Select) -> bool {
    !matches!(&select.group_by, GroupByExpr::Expressions(by, _) if by.is_empty())
}

/// Returns whether an expression is the name of a column, or a value.
pub(super) fn is_column(expression: &Expr) -> bool {
    is_name(expression) || matches!(expression, Expr::Value(_))
}

/// Returns whether an expression is the name of a column.
pub(super) fn is_name(expression: &Expr) -> bool {
    matches!(
        expression,
        Expr::Identifier(_) | Expr::CompoundIdentifier(_)
    )
}

/// Returns the SELECT that names the columns of a query.
pub(super) fn first_select(query: &Query) -> Option<&Select> {
    let mut body = query.body.as_ref();
    loop {
        match body {
            SetExpr::Select(select) => return Some(select),
            SetExpr::Query(inner) => body = inner.body.as_ref(),
            SetExpr::SetOperation { left, .. } => body = left.as_ref(),
            _ => return None,
        }
    }
}

/// Returns the number of columns of a query, unless it has a wildcard, or operators that change its
/// columns.
pub(super) fn count_columns(query: &Query) -> Option<usize> {
    let select = first_select(query)?;
    let is_plain = |item: &SelectItem| {
        matches!(
            item,
            SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. }
        )
    };
    let items = &select.projection;
    let is_counted = query.pipe_operators.is_empty() && items.iter().all(is_plain);
    is_counted.then_some(items.len())
}
