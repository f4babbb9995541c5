//! JDBC, ODBC and other databases have functions that DataFusion has under other names or in
//! another form.

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, DataType, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArgumentClause, FunctionArguments, Ident, Interval, ObjectName, TimezoneInfo, Value,
};
use volary_flight_proto::{Error, Result};

use super::names::{identifier, name_in_public};
use super::syntax::{binary, call, cast, nested, parse_data_type};

/// Functions with another name, and the same arguments.
const NAMES: [(&str, &str); 16] = [
    ("ceiling", "ceil"),
    ("char", "chr"),
    ("curdate", "current_date"),
    ("curtime", "current_time"),
    ("database", "current_database"),
    ("every", "bool_and"),
    ("getdate", "now"),
    ("group_concat", "string_agg"),
    ("lcase", "lower"),
    ("len", "length"),
    ("listagg", "string_agg"),
    ("rand", "random"),
    ("sign", "signum"),
    ("truncate", "trunc"),
    ("ucase", "upper"),
    ("variance", "var"),
];
/// Functions that take a part of a time, and the names of the parts.
const PARTS: [(&str, &str); 10] = [
    ("dayofmonth", "day"),
    ("dayofweek", "dow"),
    ("dayofyear", "doy"),
    ("hour", "hour"),
    ("minute", "minute"),
    ("month", "month"),
    ("quarter", "quarter"),
    ("second", "second"),
    ("week", "week"),
    ("year", "year"),
];

/// Rewrites a call of a function of another database. Other expressions stay as they are.
///
/// # Errors
/// `INVALID_ARGUMENT` for a call with wrong arguments.
pub(super) fn rewrite(expression: &mut Expr) -> Result<()> {
    match expression {
        Expr::Identifier(name) if name.quote_style.is_none() => {
            if let Some(value) = value_of_name(&name.value.to_ascii_lowercase()) {
                *expression = value;
            }
        }
        Expr::Function(function) if matches!(function.args, FunctionArguments::None) => {
            let name = name_in_public(&function.name);
            if let Some(value) = name.and_then(|name| value_of_name(&name)) {
                *expression = value;
            }
        }
        Expr::Convert {
            is_try,
            expr,
            data_type: Some(data_type),
            charset: None,
            styles,
            ..
        } if styles.is_empty() => {
            let kind = if *is_try {
                CastKind::TryCast
            } else {
                CastKind::Cast
            };
            *expression = cast(kind, expr.as_ref().clone(), data_type.clone());
        }
        Expr::Function(function) => {
            if let Some(rewritten) = rewrite_call(function)? {
                *expression = rewritten;
            }
        }
        _ => {}
    }
    Ok(())
}

/// Returns the value that the standard gives to a name without parentheses. Returns `None` for the
/// other such names, which sqlparser knows, and for names of columns.
fn value_of_name(name: &str) -> Option<Expr> {
    match name {
        "current_schema" => Some(call("current_schema", Vec::new())),
        "localtimestamp" => Some(local_timestamp()),
        "localtime" => Some(call("current_time", Vec::new())),
        _ => None,
    }
}

/// Returns the wall-clock time of the session's zone.
fn local_timestamp() -> Expr {
    let without_zone = DataType::Timestamp(None, TimezoneInfo::None);
    cast(CastKind::Cast, call("now", Vec::new()), without_zone)
}

/// Rewrites a call in place, or returns the expression that takes its place.
fn rewrite_call(function: &mut Function) -> Result<Option<Expr>> {
    let Some(written) = name_in_public(&function.name) else {
        return Ok(None);
    };
    let separator = match written.as_str() {
        "listagg" => Some(""),
        "group_concat" => Some(","),
        _ => None,
    };
    let name = match NAMES.iter().find(|(name, _)| *name == written) {
        Some((_, name)) => {
            rename(function, name);
            (*name).to_owned()
        }
        None => written,
    };
    if name == "string_agg" {
        rewrite_string_agg(function, separator)?;
        return Ok(None);
    }
    if name == "array_agg" {
        move_order(function);
        return Ok(None);
    }
    let Some(arguments) = plain_arguments(function) else {
        return Ok(None);
    };
    if let Some((_, part)) = PARTS.iter().find(|(function, _)| *function == name)
        && let [time] = arguments.as_slice()
    {
        let part = call("date_part", vec![text(part), time.clone()]);
        return Ok(Some(match name.as_str() {
            // In JDBC and ODBC, the week begins with day 1.
            "dayofweek" => nested(binary(part, BinaryOperator::Plus, number("1"))),
            // There, a second has no fraction.
            "second" => {
                let whole = call("floor", vec![part]);
                cast(CastKind::Cast, whole, DataType::Integer(None))
            }
            _ => part,
        }));
    }
    Ok(match (name.as_str(), arguments.as_slice()) {
        ("user", []) => Some(call("current_user", Vec::new())),
        // The parentheses stay around the operators when the text of a view is written.
        ("mod", [dividend, divisor]) => Some(nested(binary(
            nested(dividend.clone()),
            BinaryOperator::Modulo,
            nested(divisor.clone()),
        ))),
        ("locate", [part, whole]) => Some(call("strpos", vec![whole.clone(), part.clone()])),
        ("space", [count]) => Some(call("repeat", vec![text(" "), count.clone()])),
        ("isnull", [value, other]) => Some(call("coalesce", vec![value.clone(), other.clone()])),
        ("insert", [whole, start, length, new]) => Some(Expr::Overlay {
            expr: Box::new(whole.clone()),
            overlay_what: Box::new(new.clone()),
            overlay_from: Box::new(start.clone()),
            overlay_for: Some(Box::new(length.clone())),
        }),
        ("dayname", [time]) => Some(call("to_char", vec![time.clone(), text("%A")])),
        ("monthname", [time]) => Some(call("to_char", vec![time.clone(), text("%B")])),
        ("convert", [value, Expr::Identifier(of)]) => {
            let data_type = odbc_type(&of.value)?;
            Some(cast(CastKind::Cast, value.clone(), data_type))
        }
        ("timestampadd", [unit, count, time]) => Some(timestamp_add(unit, count, time)?),
        ("timestampdiff", [unit, begin, end]) => {
            let timestamp = || DataType::Timestamp(None, TimezoneInfo::None);
            let time = |time: &Expr| cast(CastKind::Cast, time.clone(), timestamp());
            let unit = text(&unit_name(unit)?);
            // The name without an alias is the function that counts.
            Some(call("timestampdiff", vec![unit, time(begin), time(end)]))
        }
        _ => None,
    })
}

fn rename(function: &mut Function, name: &str) {
    function.name = ObjectName::from(vec![Ident::new(name)]);
    function.uses_odbc_syntax = false;
}

/// Returns the arguments of a plain call: one without DISTINCT, names and other clauses.
fn plain_arguments(function: &Function) -> Option<Vec<Expr>> {
    let FunctionArguments::List(list) = &function.args else {
        return None;
    };
    if list.duplicate_treatment.is_some()
        || !list.clauses.is_empty()
        || function.over.is_some()
        || function.filter.is_some()
    {
        return None;
    }
    let arguments = list.args.iter().map(|argument| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expression)) => Some(expression.clone()),
        _ => None,
    });
    arguments.collect()
}

/// Moves the ORDER BY of WITHIN GROUP into the arguments, where DataFusion takes it. LISTAGG and
/// GROUP_CONCAT need no separator: `default` is the one that they use then.
fn rewrite_string_agg(function: &mut Function, default: Option<&str>) -> Result<()> {
    move_order(function);
    let FunctionArguments::List(list) = &mut function.args else {
        return Ok(());
    };
    let position = list
        .clauses
        .iter()
        .position(|clause| matches!(clause, FunctionArgumentClause::Separator(_)));
    let separator = match position.map(|position| list.clauses.remove(position)) {
        Some(FunctionArgumentClause::Separator(separator)) => Some(Expr::Value(separator)),
        _ => None,
    };
    if list
        .clauses
        .iter()
        .any(|clause| matches!(clause, FunctionArgumentClause::OnOverflow(_)))
    {
        return Err(Error::unsupported(
            "ON OVERFLOW is not supported; a text that becomes too long is an error",
        ));
    }
    let has_one_argument = list.args.len() == 1;
    if separator.is_some() && !has_one_argument {
        return Err(Error::unsupported(
            "SEPARATOR is taken after one value; join several values with concat(a, b), and leave SEPARATOR out if the separator is an argument",
        ));
    }
    let default = default.filter(|_| has_one_argument).map(text);
    if let Some(separator) = separator.or(default) {
        list.args
            .push(FunctionArg::Unnamed(FunctionArgExpr::Expr(separator)));
    }
    Ok(())
}

fn move_order(function: &mut Function) {
    if function.within_group.is_empty() {
        return;
    }
    if let FunctionArguments::List(list) = &mut function.args {
        let order = std::mem::take(&mut function.within_group);
        list.clauses.push(FunctionArgumentClause::OrderBy(order));
    }
}

/// Returns `time + CAST(count || ' unit' AS INTERVAL)`.
fn timestamp_add(unit: &Expr, count: &Expr, time: &Expr) -> Result<Expr> {
    let (factor, unit) = match unit_name(unit)?.as_str() {
        "FRAC_SECOND" => (1, "nanosecond"),
        "QUARTER" => (3, "month"),
        "SECOND" => (1, "second"),
        "MINUTE" => (1, "minute"),
        "HOUR" => (1, "hour"),
        "DAY" => (1, "day"),
        "WEEK" => (7, "day"),
        "MONTH" => (1, "month"),
        "YEAR" => (12, "month"),
        other => {
            return Err(Error::invalid(format!(
                "timestampadd has no unit {other}; it takes FRAC_SECOND, SECOND, MINUTE, HOUR, DAY, WEEK, MONTH, QUARTER and YEAR"
            )));
        }
    };
    let count = cast(CastKind::Cast, count.clone(), DataType::BigInt(None));
    // The planner sees that a constant interval has whole days, and keeps a date a date.
    let interval = Expr::Interval(Interval {
        value: Box::new(text(&format!("{factor} {unit}"))),
        leading_field: None,
        leading_precision: None,
        last_field: None,
        fractional_seconds_precision: None,
    });
    let interval = binary(interval, BinaryOperator::Multiply, count);
    Ok(nested(binary(
        nested(time.clone()),
        BinaryOperator::Plus,
        interval,
    )))
}

/// Returns the name of a unit in capitals, without ODBC's prefix.
fn unit_name(unit: &Expr) -> Result<String> {
    let name = match unit {
        Expr::Identifier(name) => identifier(name),
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(name) => name.clone(),
            _ => unit.to_string(),
        },
        _ => {
            return Err(Error::invalid(format!(
                "{unit} is no unit of time; write a name such as DAY"
            )));
        }
    };
    let upper = name.to_ascii_uppercase();
    Ok(upper.trim_start_matches("SQL_TSI_").to_owned())
}

/// Returns the type with ODBC's name, such as `SQL_VARCHAR`.
fn odbc_type(name: &str) -> Result<DataType> {
    let upper = name.to_ascii_uppercase();
    let plain = match upper.trim_start_matches("SQL_") {
        "TYPE_DATE" => "DATE",
        "TYPE_TIME" => "TIME",
        "TYPE_TIMESTAMP" => "TIMESTAMP",
        "LONGVARCHAR" | "WCHAR" | "WVARCHAR" | "WLONGVARCHAR" => "VARCHAR",
        "LONGVARBINARY" => "VARBINARY",
        plain => plain,
    }
    .to_owned();
    parse_data_type(&plain).map_err(|_| Error::invalid(format!("there is no type {name}")))
}

fn text(text: &str) -> Expr {
    Expr::value(Value::SingleQuotedString(text.to_owned()))
}

fn number(digits: &str) -> Expr {
    Expr::value(Value::Number(digits.to_owned(), false))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::syntax::parse_expression;

    fn rewritten(sql: &str) -> Result<String> {
        let mut expression = parse_expression(sql)?;
        rewrite(&mut expression)?;
        Ok(expression.to_string())
    }

    #[test]
    fn functions_of_other_databases_are_those_of_datafusion() {
        for (sql, expected) in [
            ("{fn UCASE(x)}", "upper(x)"),
            ("current_schema", "current_schema()"),
            ("CONVERT(x, VARCHAR(3))", "CAST(x AS VARCHAR(3))"),
            ("{fn CONVERT(x, SQL_BIGINT)}", "CAST(x AS BIGINT)"),
            ("{fn DAYOFWEEK(x)}", "(date_part('dow', x) + 1)"),
            ("{fn LOCATE('a', x)}", "strpos(x, 'a')"),
            ("MOD(a + 1, b)", "((a + 1) % (b))"),
            (
                "LISTAGG(x, ',') WITHIN GROUP (ORDER BY y DESC)",
                "string_agg(x, ',' ORDER BY y DESC)",
            ),
            ("LISTAGG(x)", "string_agg(x, '')"),
            ("string_agg(x SEPARATOR ';')", "string_agg(x, ';')"),
            (
                "string_agg(x, ';') WITHIN GROUP (ORDER BY y)",
                "string_agg(x, ';' ORDER BY y)",
            ),
            (
                "TIMESTAMPADD(SQL_TSI_WEEK, n, t)",
                "((t) + INTERVAL '7 day' * CAST(n AS BIGINT))",
            ),
            (
                "TIMESTAMPDIFF(MONTH, a, b)",
                "timestampdiff('MONTH', CAST(a AS TIMESTAMP), CAST(b AS TIMESTAMP))",
            ),
            ("upper(x)", "upper(x)"),
            ("count(DISTINCT x)", "count(DISTINCT x)"),
        ] {
            assert_eq!(rewritten(sql).unwrap(), expected);
        }
        assert!(rewritten("TIMESTAMPADD(FORTNIGHT, 1, t)").is_err());
        assert!(rewritten("{fn CONVERT(x, SQL_)}").is_err());
        assert!(rewritten("GROUP_CONCAT(x, y SEPARATOR ';')").is_err());
    }
}
