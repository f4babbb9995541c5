use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::Column;
use datafusion::logical_expr::{Expr as Planned, LogicalPlan, LogicalPlanBuilder, cast};
use datafusion::sql::sqlparser::ast::{
    CastKind, DataType as SqlType, ExactNumberInfo, Expr, Ident, Insert, ObjectName, Query,
    SetExpr, TableObject, Value, ValueWithSpan, Values,
};
use datafusion::sql::sqlparser::tokenizer::Span;
use volary_catalog::{CatalogState, Table};
use volary_exec::text_casts::{is_own_cast, is_read_by_own_cast};
use volary_flight_proto::Result;

use crate::sql::exact_numbers::{inexact_number, number_below};
use crate::sql::names::{WrittenName, identifier};
use crate::sql::search_path::SearchPath;
use crate::sql::syntax::{self, nested, parse_expression, parse_query};
use crate::sql_type::{DURATION, fraction_digits};

const NULL: Expr = Expr::Value(ValueWithSpan {
    value: Value::Null,
    span: Span::empty(),
});

/// Adds the columns that the INSERT leaves out and that have defaults. Replaces DEFAULT within
/// VALUES, and DEFAULT VALUES, by the defaults. `path` says where the table is looked up. If the
/// rows come from a query, returns the expressions that have to be selected behind the columns of
/// the query.
///
/// # Errors
/// `DATA_LOSS` if a default in the catalog cannot be parsed.
pub(in crate::engine) fn fill_in(
    catalog: &CatalogState,
    path: &SearchPath,
    insert: &mut Insert,
) -> Result<Vec<Expr>> {
    let Some(table) = target(catalog, path, insert) else {
        return Ok(Vec::new());
    };
    if insert.source.is_none() && insert.columns.is_empty() && insert.assignments.is_empty() {
        // INSERT INTO t DEFAULT VALUES.
        insert.source = Some(parse_query("VALUES (DEFAULT)")?);
        insert.columns = vec![column_name(table, 0)];
    }
    let listed = listed_columns(table, insert);
    let types = listed.iter().map(|column| type_of(table, *column));
    let types: Vec<_> = types.collect();
    let mut added = Vec::new();
    if !insert.columns.is_empty() {
        for column in table.declarations().defaults.keys() {
            if !listed.contains(&Some(*column)) {
                insert.columns.push(column_name(table, *column));
                added.push(default_of(table, Some(*column))?);
            }
        }
    }
    let Some(rows) = insert.source.as_mut().and_then(values_of) else {
        return Ok(added);
    };
    for row in &mut rows.rows {
        for ((item, column), data_type) in row.content.iter_mut().zip(&listed).zip(&types) {
            if is_default(item) {
                *item = default_of(table, *column)?;
            } else if let Some(number) = data_type.as_ref().and_then(|it| exact_number(item, it)) {
                *item = number;
            } else if let Some(data_type) = data_type
                && may_need_cast(item, data_type)
            {
                *item = explicit_cast(std::mem::replace(item, NULL), data_type);
            }
        }
        // A row of another length stays wrong, so that the planner refuses it.
        row.content.extend(added.iter().cloned());
    }
    Ok(Vec::new())
}

/// Returns the types of the columns that get the items of a row. `None` for a column that the table
/// does not have.
pub(in crate::engine) fn listed_types(
    catalog: &CatalogState,
    path: &SearchPath,
    insert: &Insert,
) -> Vec<Option<DataType>> {
    let Some(table) = target(catalog, path, insert) else {
        return Vec::new();
    };
    let listed = listed_columns(table, insert).into_iter();
    listed.map(|column| type_of(table, column)).collect()
}

/// Casts the columns whose casts Arrow does not make, such as texts that are inserted into a column
/// of UUIDs. The planner would refuse them. For `wanted` see [`listed_types`].
///
/// # Errors
/// The errors of planning.
pub(in crate::engine) fn cast_columns(
    rows: LogicalPlan,
    wanted: &[Option<DataType>],
) -> Result<LogicalPlan> {
    let schema = Arc::clone(rows.schema());
    let needs_cast = |from: &DataType, to: &Option<DataType>| {
        to.as_ref().is_some_and(|to| is_own_cast(from, to))
    };
    let mut fields = schema.fields().iter().zip(wanted);
    if !fields.any(|(field, to)| needs_cast(field.data_type(), to)) {
        return Ok(rows);
    }
    let columns = schema
        .iter()
        .enumerate()
        .map(|(position, (qualifier, field))| {
            let column = Planned::Column(Column::from((qualifier, field)));
            match wanted.get(position).and_then(Option::as_ref) {
                Some(to) if is_own_cast(field.data_type(), to) => {
                    cast(column, to.clone()).alias(field.name())
                }
                _ => column,
            }
        });
    Ok(LogicalPlanBuilder::from(rows)
        .project(columns.collect::<Vec<_>>())?
        .build()?)
}

fn type_of(table: &Table, column: Option<usize>) -> Option<DataType> {
    Some(table.schema().field(column?).data_type().clone())
}

/// Returns a cast of the text of a number, if the column keeps digits that a double would round.
/// All numbers of a column of decimals are cast, because the rows of VALUES get a common type.
fn exact_number(item: &Expr, column: &DataType) -> Option<Expr> {
    let (text, data_type) = match column {
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => {
            // A number that is too large stays a number, and is refused as such.
            let integer_digits = i64::from(*precision) - i64::from(*scale);
            let text = number_below(item, usize::try_from(integer_digits).ok()?)?;
            let decimal = ExactNumberInfo::PrecisionAndScale((*precision).into(), (*scale).into());
            (text, SqlType::Decimal(decimal))
        }
        // The text is read as the nearest of all doubles.
        DataType::Float64 => (
            inexact_number(item)?,
            SqlType::Double(ExactNumberInfo::None),
        ),
        _ => return None,
    };
    let text = Expr::value(Value::SingleQuotedString(text));
    Some(syntax::cast(CastKind::Cast, text, data_type))
}

/// Returns whether an item of VALUES may have to be cast explicitly. DataFusion refuses casts that
/// Arrow does not make. The planner casts parameters.
fn may_need_cast(item: &Expr, column: &DataType) -> bool {
    match item {
        Expr::Value(value) => match &value.value {
            Value::Placeholder(_) | Value::Null => false,
            _ => is_read_by_own_cast(column),
        },
        // Any expression may be a UUID.
        _ => is_read_by_own_cast(column) || column.is_string(),
    }
}

/// Returns a cast of the item to the type of the column, for which [`may_need_cast`] is true.
fn explicit_cast(item: Expr, column: &DataType) -> Expr {
    let data_type = match column {
        DataType::Interval(_) => SqlType::Interval {
            fields: None,
            precision: None,
        },
        DataType::Duration(unit) => {
            let name = ObjectName::from(Ident::new(DURATION));
            SqlType::Custom(name, vec![fraction_digits(*unit).to_string()])
        }
        text if text.is_string() => SqlType::Varchar(None),
        _ => SqlType::Uuid,
    };
    syntax::cast(CastKind::Cast, item, data_type)
}

fn target<'a>(catalog: &'a CatalogState, path: &SearchPath, insert: &Insert) -> Option<&'a Table> {
    let TableObject::TableName(name) = &insert.table else {
        return None;
    };
    let name = path.find(catalog, &WrittenName::of_object(name).ok()?);
    let table = catalog.table(&name)?;
    Some(table.as_ref())
}

/// Returns the positions of the columns that get the items of a row. `None` for a column that the
/// table does not have; the planner refuses it.
fn listed_columns(table: &Table, insert: &Insert) -> Vec<Option<usize>> {
    if insert.columns.is_empty() {
        return (0..table.schema().fields().len()).map(Some).collect();
    }
    let position = |name: &ObjectName| {
        let name = identifier(name.0.last()?.as_ident()?);
        table.schema().index_of(&name).ok()
    };
    insert.columns.iter().map(position).collect()
}

fn column_name(table: &Table, column: usize) -> ObjectName {
    let name = table.schema().field(column).name();
    ObjectName::from(Ident::with_quote('"', name))
}

/// Returns the default of a column, or NULL if it has none.
fn default_of(table: &Table, column: Option<usize>) -> Result<Expr> {
    let text = column.and_then(|column| table.declarations().defaults.get(&column));
    let Some(text) = text else {
        return Ok(NULL);
    };
    let default = nested(parse_expression(text)?);
    Ok(match type_of(table, column) {
        Some(data_type) if let Some(number) = exact_number(&default, &data_type) => number,
        Some(data_type) if may_need_cast(&default, &data_type) => {
            explicit_cast(default, &data_type)
        }
        _ => default,
    })
}

fn values_of(query: &mut Box<Query>) -> Option<&mut Values> {
    match query.body.as_mut() {
        SetExpr::Values(values) => Some(values),
        _ => None,
    }
}

fn is_default(item: &Expr) -> bool {
    matches!(item, Expr::Identifier(name)
        if name.quote_style.is_none() && name.value.eq_ignore_ascii_case("default"))
}
