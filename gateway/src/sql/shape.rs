//! The planner compares columns with each other, and every operator has a list of all of them: a
//! hundred thousand columns keep the planner busy for minutes, in which nothing can stop it.

use arrow::datatypes::{DataType, Schema};
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{Query, SetExpr};
use volary_flight_proto::{Error, Result, SqlState};

use super::visit::{QueryVisitor, visit};
use crate::config;

const MAX_COLUMNS: &str = "gateway.query.max_columns";
const MAX_TYPE_DEPTH: &str = "gateway.query.max_type_depth";

/// The limits that the settings define.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ShapeLimits {
    columns: usize,
    type_depth: usize,
}

impl ShapeLimits {
    pub(crate) fn new(config: &config::Query) -> Self {
        Self {
            columns: config.max_columns,
            type_depth: config.max_type_depth,
        }
    }

    /// Returns how many columns a table may have.
    pub(crate) fn max_columns(self) -> usize {
        self.columns
    }

    /// Refuses a table that would have too many columns, or types that are nested too deeply. Each
    /// field of a nested type counts as a column.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` with the names of the table and the setting.
    pub(crate) fn check_table(self, table: &str, schema: &Schema) -> Result<()> {
        let mut columns = 0;
        for field in schema.fields() {
            self.count(field.data_type(), 1, &mut columns)
                .map_err(|error| error.at(format!("table {table}, column {}", field.name())))?;
        }
        self.check_columns(table, columns)
    }

    /// Refuses a table of this many columns, if they are too many.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` with the names of the table and the setting.
    pub(crate) fn check_columns(self, table: &str, columns: usize) -> Result<()> {
        if columns > self.columns {
            return Err(Error::invalid(format!(
                "table {table} would have {columns} columns, counting the fields of nested columns, but {MAX_COLUMNS} allows {}; split it into several tables, or store a row for each value",
                self.columns
            ))
            .with_sqlstate(SqlState::TooManyColumns));
        }
        Ok(())
    }

    /// Refuses a statement in which a SELECT or a VALUES lists too many columns.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` with the name of the setting.
    pub(crate) fn check_lists(self, statement: &DfStatement) -> Result<()> {
        visit(statement, &mut ListLengthCheck(self))
    }

    fn count(self, data_type: &DataType, depth: usize, columns: &mut usize) -> Result<()> {
        if depth > self.type_depth {
            return Err(Error::invalid(format!(
                "its type is nested more than {} levels deep ({MAX_TYPE_DEPTH}); use a flatter type, or store the values as text",
                self.type_depth
            )));
        }
        *columns += 1;
        match data_type {
            DataType::List(item)
            | DataType::LargeList(item)
            | DataType::FixedSizeList(item, _)
            | DataType::Map(item, _) => self.count(item.data_type(), depth + 1, columns),
            DataType::Struct(fields) => {
                let mut fields = fields.iter();
                fields.try_for_each(|field| self.count(field.data_type(), depth + 1, columns))
            }
            _ => Ok(()),
        }
    }
}

/// Returns the number of fields of a type, including the type itself and the fields within fields.
/// Types can share their parts, so a small type may have more fields than can be counted. The count
/// stops once it exceeds `most`.
pub(crate) fn count_fields(data_type: &DataType, most: usize) -> usize {
    if !data_type.is_nested() {
        return 1;
    }
    let (mut open, mut fields) = (vec![data_type], 0);
    while let Some(data_type) = open.pop() {
        fields += 1;
        if fields > most {
            break;
        }
        match data_type {
            DataType::List(item)
            | DataType::LargeList(item)
            | DataType::ListView(item)
            | DataType::LargeListView(item)
            | DataType::FixedSizeList(item, _)
            | DataType::Map(item, _) => open.push(item.data_type()),
            DataType::Struct(fields) => open.extend(fields.iter().map(|field| field.data_type())),
            DataType::Union(fields, _) => {
                open.extend(fields.iter().map(|(_, field)| field.data_type()));
            }
            DataType::Dictionary(_, value) => open.push(value),
            DataType::RunEndEncoded(_, values) => open.push(values.data_type()),
            _ => {}
        }
    }
    fields
}

struct ListLengthCheck(ShapeLimits);

impl QueryVisitor for ListLengthCheck {
    fn enter(&mut self, query: &Query) -> Result<()> {
        let mut open = vec![query.body.as_ref()];
        while let Some(body) = open.pop() {
            let columns = match body {
                SetExpr::Select(select) => select.projection.len(),
                SetExpr::Values(values) => values.rows.first().map_or(0, |row| row.content.len()),
                SetExpr::SetOperation { left, right, .. } => {
                    open.extend([left.as_ref(), right.as_ref()]);
                    0
                }
                // The visitor enters other queries separately.
                _ => 0,
            };
            if columns > self.0.columns {
                return Err(Error::invalid(format!(
                    "the statement lists {columns} columns, but {MAX_COLUMNS} allows {}; split it into several statements",
                    self.0.columns
                ))
                .with_sqlstate(SqlState::TooManyColumns));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::Field;
    use datafusion::sql::parser::DFParser;

    use super::*;

    const LIMITS: ShapeLimits = ShapeLimits {
        columns: 3,
        type_depth: 3,
    };

    fn field(data_type: DataType) -> Arc<Field> {
        Arc::new(Field::new("item", data_type, true))
    }

    fn check(types: &[DataType]) -> Result<()> {
        let fields = types.iter().cloned().map(field);
        LIMITS.check_table("t", &Schema::new(fields.collect::<Vec<_>>()))
    }

    #[test]
    fn columns_are_counted_with_their_fields_and_nested_types_have_a_depth() {
        check(&[DataType::Int64, DataType::Int64, DataType::Int64]).unwrap();
        let pair = DataType::Struct(vec![field(DataType::Int64), field(DataType::Utf8)].into());
        check(std::slice::from_ref(&pair)).unwrap();
        let refused = check(&[DataType::Int64, pair]).unwrap_err();
        assert!(refused.message().contains("4 columns"), "{refused}");
        let lists = |depth| {
            let list = |inner, _| DataType::List(field(inner));
            (0..depth).fold(DataType::Int64, list)
        };
        check(&[lists(2)]).unwrap();
        let refused = check(&[lists(3)]).unwrap_err();
        assert!(refused.message().contains("column item"), "{refused}");
        assert!(refused.message().contains(MAX_TYPE_DEPTH), "{refused}");
    }

    #[test]
    fn the_fields_of_a_type_are_counted_as_far_as_somebody_asks() {
        let double = |inner: DataType, _| {
            let inner = field(inner);
            DataType::Struct(vec![Arc::clone(&inner), inner].into())
        };
        let doubled = |times| (0..times).fold(DataType::Int64, double);
        assert_eq!(count_fields(&DataType::Int64, 10), 1);
        assert_eq!(count_fields(&DataType::List(field(doubled(2))), 10), 8);
        assert_eq!(count_fields(&doubled(60), 1_000), 1_001);
    }

    #[test]
    fn long_lists_are_found_wherever_they_are() {
        let check = |sql: &str| {
            let statement = DFParser::parse_sql(sql).unwrap().pop_back().unwrap();
            LIMITS.check_lists(&statement)
        };
        check("SELECT 1, 2, 3 UNION SELECT 4, 5, 6").unwrap();
        check("VALUES (1, 2, 3), (1, 2, 3)").unwrap();
        for long in [
            "SELECT 1, 2, 3, 4",
            "EXPLAIN SELECT 1, 2, 3, 4",
            "VALUES (1, 2, 3, 4)",
            "SELECT 1 UNION SELECT 1 UNION SELECT 1, 2, 3, 4",
            "WITH t AS (SELECT 1, 2, 3, 4) SELECT 1",
            "SELECT 1 WHERE EXISTS (SELECT 1, 2, 3, 4)",
            "INSERT INTO t SELECT 1, 2, 3, 4",
        ] {
            let refused = check(long).unwrap_err();
            assert!(refused.message().contains(MAX_COLUMNS), "{long}: {refused}");
        }
    }
}
