//! DataFusion finds table functions only by names in lower case, and its table functions
//! `generate_series` and `range` take only some constants that are times. Its functions of the same
//! names, which make arrays, take all times.

use datafusion::sql::sqlparser::ast::{
    CastKind, DataType, Expr, FunctionArg, FunctionArgExpr, Ident, ObjectNamePart, TableAlias,
    TableAliasColumnDef, TableFactor, TimezoneInfo, TypedString, Value,
};

use super::names::identifier;
use super::syntax::{call, cast};

/// The column of a series whose alias does not name it.
const COLUMN: &str = "value";

/// Writes the name of a table function in lower case, and makes a series of times the elements of
/// an array.
pub(super) fn rewrite(factor: &mut TableFactor) {
    let TableFactor::Table {
        name,
        alias,
        args: Some(args),
        with_ordinality,
        ..
    } = factor
    else {
        return;
    };
    let Some(ObjectNamePart::Identifier(written)) = name.0.last_mut() else {
        return;
    };
    let function = identifier(written);
    if written.quote_style.is_none() {
        written.value.clone_from(&function);
    }
    if !matches!(function.as_str(), "generate_series" | "range") {
        return;
    }
    let arguments = args.args.iter().map(|argument| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(argument)) => Some(argument.clone()),
        _ => None,
    });
    let Some(arguments) = arguments.collect::<Option<Vec<_>>>() else {
        return;
    };
    let [start, stop, step] = arguments.as_slice() else {
        return;
    };
    if !arguments.iter().any(is_time) {
        return;
    }
    let series = call(
        &function,
        vec![
            with_time(start.clone()),
            with_time(stop.clone()),
            interval(step.clone()),
        ],
    );
    let mut alias = alias.take().unwrap_or_else(|| TableAlias {
        explicit: true,
        name: Ident::new(function),
        columns: Vec::new(),
        at: None,
    });
    if alias.columns.is_empty() {
        alias.columns.push(TableAliasColumnDef::from_name(COLUMN));
    }
    *factor = TableFactor::UNNEST {
        alias: Some(alias),
        array_exprs: vec![series],
        with_offset: false,
        with_offset_alias: None,
        with_ordinality: *with_ordinality,
    };
}

/// Returns whether an argument of a series is a time or an interval as far as its text tells.
fn is_time(argument: &Expr) -> bool {
    match argument {
        Expr::Interval(_) | Expr::TypedString(_) | Expr::AtTimeZone { .. } => true,
        Expr::Cast { data_type, .. } => matches!(
            data_type,
            DataType::Date
                | DataType::Timestamp(..)
                | DataType::TimestampNtz(_)
                | DataType::Datetime(_)
                | DataType::Interval { .. }
        ),
        Expr::Nested(inner) => is_time(inner),
        Expr::BinaryOp { left, right, .. } => is_time(left) || is_time(right),
        other => is_text(other),
    }
}

fn is_text(argument: &Expr) -> bool {
    matches!(argument, Expr::Value(value) if matches!(value.value, Value::SingleQuotedString(_)))
}

/// Makes dates timestamps, because a step may be shorter than a day.
fn with_time(argument: Expr) -> Expr {
    let is_date = match &argument {
        Expr::TypedString(TypedString { data_type, .. }) | Expr::Cast { data_type, .. } => {
            matches!(data_type, DataType::Date)
        }
        other => is_text(other),
    };
    if is_date {
        let timestamp = DataType::Timestamp(None, TimezoneInfo::None);
        cast(CastKind::Cast, argument, timestamp)
    } else {
        argument
    }
}

fn interval(step: Expr) -> Expr {
    if !is_text(&step) {
        return step;
    }
    let interval = DataType::Interval {
        fields: None,
        precision: None,
    };
    cast(CastKind::Cast, step, interval)
}
