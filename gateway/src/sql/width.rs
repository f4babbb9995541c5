//! Each join that the planner makes has a list of the columns of all tables that it joins,
//! including those of the joins before it: two hundred references to a table of four thousand
//! columns are eighty million columns, which take gigabytes before [`depth`](super::depth) sees the
//! plan. The planner also looks for each column that a SELECT lists among all columns of its FROM,
//! one by one: `SELECT *` of sixteen thousand columns takes half a minute, in which nothing can
//! stop it. So this module adds up both numbers in the syntax tree.

use std::collections::HashMap;

use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{
    ObjectName, Query, Select, SelectItem, SetExpr, TableFactor, TableWithJoins,
};
use volary_flight_proto::{Error, Result, SqlState};

use super::names::{cte_name, identifier};
use super::visit::{QueryVisitor, visit};

/// All joins of a statement together may have this many times the columns that one table may have.
const TABLES: usize = 128;

/// All SELECTs of a statement together may compare as many columns as this many `SELECT *` from the
/// widest table. Each of these takes two seconds if a table may have four thousand columns.
const SELECTS: usize = 8;

/// Refuses a statement whose joins have too many columns, or whose SELECTs compare too many
/// columns. `max_columns` is the number of columns that one table may have. `columns_of` returns
/// the number of columns of a table or a view by its name as it is written.
///
/// # Errors
/// `INVALID_ARGUMENT` with the name of the setting.
pub(crate) fn check(
    statement: &DfStatement,
    max_columns: usize,
    columns_of: impl Fn(&ObjectName) -> Option<usize>,
) -> Result<()> {
    let widths = Widths {
        columns_of,
        ctes: HashMap::new(),
    };
    let widest_select_lookups = max_columns.saturating_mul(max_columns);
    let mut joined = WidthCheck {
        widths,
        max_total_columns: max_columns.saturating_mul(TABLES),
        columns: 0,
        max_lookups: widest_select_lookups.saturating_mul(SELECTS),
        lookups: 0,
    };
    visit(statement, &mut joined)
}

struct WidthCheck<F> {
    widths: Widths<F>,
    max_total_columns: usize,
    columns: usize,
    max_lookups: usize,
    lookups: usize,
}

impl<F: Fn(&ObjectName) -> Option<usize>> WidthCheck<F> {
    /// Adds the number of columns of each join in a FROM. Returns the number of columns of the
    /// whole FROM. Tables that are separated by commas count as joined, too.
    fn add_joins(&mut self, from: &[TableWithJoins]) -> usize {
        let mut width: usize = 0;
        for (joins, factor) in from.iter().flat_map(factors).enumerate() {
            let factor_width = match factor {
                TableFactor::NestedJoin {
                    table_with_joins, ..
                } => self.add_joins(std::slice::from_ref(table_with_joins)),
                factor => self.widths.factor_width(factor),
            };
            width = width.saturating_add(factor_width);
            if joins > 0 {
                self.columns = self.columns.saturating_add(width);
            }
        }
        width
    }

    fn add_select(&mut self, select: &Select) {
        let width = self.add_joins(&select.from);
        let lookups = count_listed_columns(select, width).saturating_mul(width);
        self.lookups = self.lookups.saturating_add(lookups);
    }
}

impl<F: Fn(&ObjectName) -> Option<usize>> QueryVisitor for WidthCheck<F> {
    fn enter(&mut self, query: &Query) -> Result<()> {
        self.widths.add_ctes(query);
        for select in selects(query) {
            self.add_select(select);
        }
        if self.columns > self.max_total_columns {
            return Err(Error::invalid(format!(
                "the joins of the statement have {} columns together, but may have at most {}, which is {TABLES} times gateway.query.max_columns; join fewer tables, or select fewer columns of each before the join",
                self.columns, self.max_total_columns
            ))
            .with_sqlstate(SqlState::TooManyColumns));
        }
        if self.lookups > self.max_lookups {
            return Err(Error::invalid(format!(
                "the SELECTs of the statement list too many columns of wide tables: to find each column in its FROM, the planner would compare {} columns, and at most {} are allowed, as many as for {SELECTS} times SELECT * from a table with gateway.query.max_columns columns; list only the columns that you need instead of *, or join fewer wide tables",
                self.lookups, self.max_lookups
            ))
            .with_sqlstate(SqlState::TooManyColumns));
        }
        Ok(())
    }
}

/// Computes upper bounds of the numbers of columns that queries and relations have.
struct Widths<F> {
    columns_of: F,
    /// The number of columns of the widest CTE of each name.
    ctes: HashMap<String, usize>,
}

impl<F: Fn(&ObjectName) -> Option<usize>> Widths<F> {
    fn add_ctes(&mut self, query: &Query) {
        let ctes = query.with.iter().flat_map(|with| &with.cte_tables);
        for cte in ctes {
            let width = self.query_width(&cte.query);
            let widest = self.ctes.entry(identifier(&cte.alias.name)).or_default();
            *widest = width.max(*widest);
        }
    }

    fn query_width(&mut self, query: &Query) -> usize {
        self.add_ctes(query);
        let mut body = query.body.as_ref();
        loop {
            return match body {
                SetExpr::SetOperation { left, .. } => {
                    body = left.as_ref();
                    continue;
                }
                SetExpr::Select(select) => self.select_width(select),
                SetExpr::Query(query) => self.query_width(query),
                SetExpr::Values(values) => values.rows.first().map_or(0, |row| row.content.len()),
                _ => 0,
            };
        }
    }

    fn select_width(&mut self, select: &Select) -> usize {
        // Computes the width only once, however many wildcards the list has: each computation walks
        // all queries within the FROM.
        let width = self.width_of_from(&select.from);
        count_listed_columns(select, width)
    }

    fn width_of_from(&mut self, from: &[TableWithJoins]) -> usize {
        let factors = from.iter().flat_map(factors);
        let widths = factors.map(|factor| self.factor_width(factor));
        widths.fold(0, usize::saturating_add)
    }

    fn factor_width(&mut self, factor: &TableFactor) -> usize {
        match factor {
            TableFactor::Table { name, .. } => {
                let cte = cte_name(name).and_then(|name| self.ctes.get(&name).copied());
                cte.or_else(|| (self.columns_of)(name)).unwrap_or(1)
            }
            TableFactor::Derived { subquery, .. } => self.query_width(subquery),
            TableFactor::NestedJoin {
                table_with_joins, ..
            } => self.width_of_from(std::slice::from_ref(table_with_joins)),
            _ => 1,
        }
    }
}

/// Returns how many columns a SELECT lists if its FROM has `width` columns.
fn count_listed_columns(select: &Select, width: usize) -> usize {
    let widths = select.projection.iter().map(|item| match item {
        SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..) => width,
        _ => 1,
    });
    widths.fold(0, usize::saturating_add)
}

/// Returns the SELECTs of a query and of its set operations, but not those of nested queries.
fn selects(query: &Query) -> Vec<&Select> {
    let (mut open, mut found) = (vec![query.body.as_ref()], Vec::new());
    while let Some(body) = open.pop() {
        match body {
            SetExpr::Select(select) => found.push(select.as_ref()),
            SetExpr::SetOperation { left, right, .. } => {
                open.extend([left.as_ref(), right.as_ref()]);
            }
            _ => {}
        }
    }
    found
}

fn factors(from: &TableWithJoins) -> impl Iterator<Item = &TableFactor> {
    let joined = from.joins.iter().map(|join| &join.relation);
    std::iter::once(&from.relation).chain(joined)
}

#[cfg(test)]
mod tests {
    use datafusion::sql::parser::DFParser;

    use super::*;

    fn check_sql(sql: &str) -> Result<()> {
        let statement = DFParser::parse_sql(sql).unwrap().pop_back().unwrap();
        let columns_of = |name: &ObjectName| (name.to_string() == "wide").then_some(10);
        check(&statement, 10, columns_of)
    }

    fn joined(relation: &str, times: usize) -> String {
        let joins = (1..times).map(|join| format!(" JOIN {relation} t{join} ON true"));
        format!("SELECT * FROM {relation} t0{}", joins.collect::<String>())
    }

    #[test]
    fn joins_of_few_or_narrow_relations_are_let_through() {
        for sql in [
            joined("wide", 2),
            joined("wide", 10).replace("SELECT *", "SELECT 1"),
            joined("narrow", 25),
            joined("(SELECT a FROM wide)", 20),
            ["SELECT * FROM wide"; 8].join(" UNION ALL "),
            ["SELECT 1 FROM wide"; 50].join(" UNION ALL "),
            format!("WITH n AS (SELECT 1 AS a) {}", joined("n", 25)),
            "SELECT 1".to_owned(),
            "INSERT INTO wide SELECT * FROM wide".to_owned(),
        ] {
            check_sql(&sql).unwrap();
        }
    }

    #[test]
    fn joins_of_many_wide_relations_are_refused_wherever_they_are() {
        let wide = joined("wide", 20);
        for sql in [
            wide.clone(),
            format!("EXPLAIN {wide}"),
            format!("SELECT 1 UNION ALL {wide}"),
            format!("SELECT 1 WHERE EXISTS ({wide})"),
            format!("WITH w AS ({wide}) SELECT 1"),
            joined("(SELECT * FROM wide)", 20),
            format!("WITH w AS (SELECT * FROM wide) {}", joined("w", 20)),
            joined("(SELECT *, * FROM (wide JOIN wide w ON true))", 8),
            format!(
                "SELECT 1 FROM ({})",
                wide.trim_start_matches("SELECT * FROM ")
            ),
        ] {
            let error = check_sql(&sql).unwrap_err();
            assert!(error.message().contains("max_columns"), "{sql}: {error}");
        }
    }

    #[test]
    fn lists_of_many_columns_of_many_are_refused_wherever_they_are() {
        let stars = ["w.*"; 9].join(", ");
        for sql in [
            joined("wide", 3),
            format!("SELECT {stars} FROM wide w"),
            format!("WITH x AS (SELECT {stars} FROM wide w) SELECT 1"),
            ["SELECT * FROM wide"; 9].join(" UNION ALL "),
        ] {
            let error = check_sql(&sql).unwrap_err();
            assert!(
                error.message().contains("too many columns of wide tables"),
                "{sql}: {error}"
            );
        }
    }

    #[test]
    fn wildcards_of_queries_within_queries_are_counted_in_no_time() {
        let nested = |within: String, _| format!("SELECT {} FROM ({within})", ["*"; 8].join(", "));
        let sql = (0..15).fold("SELECT 1 AS a".to_owned(), nested);
        check_sql(&sql).unwrap_err();
    }
}
