//! The planner plans each use of a CTE separately. Thirty CTEs, each of which reads the previous
//! one twice, become a billion relations, and the planner would use up all memory for them
//! before [`depth`](super::depth) sees its plan.

use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{ObjectName, Query};
use volary_flight_proto::{Error, Result, SqlState};

use super::depth::MAX_OPERATORS;
use super::names::{cte_name, identifier};
use super::visit::{QueryVisitor, visit};

/// Refuses a statement that reads too many relations. `size_of_view` returns the number of
/// operators of a view by its name as it is written.
///
/// # Errors
/// `INVALID_ARGUMENT`.
pub(crate) fn check(
    statement: &DfStatement,
    size_of_view: impl Fn(&ObjectName) -> Option<usize>,
) -> Result<()> {
    let mut expansion = Expansion {
        size_of_view,
        ctes: Vec::new(),
        open: Vec::new(),
    };
    visit(statement, &mut expansion)
}

struct Expansion<F> {
    size_of_view: F,
    /// The CTEs in scope, each with its size. If several have the same name, the last one counts.
    ctes: Vec<(String, usize)>,
    open: Vec<OpenQuery>,
}

/// A query that the visitor has entered and not yet left.
struct OpenQuery {
    /// Names of the query's CTEs that the visitor has not yet left, in reverse order. The visitor
    /// enters the queries of the CTEs before all other queries within this one.
    cte_names: Vec<String>,
    /// Number of CTEs that were in scope before the visitor entered the query.
    outer_ctes: usize,
    size: usize,
}

impl<F: Fn(&ObjectName) -> Option<usize>> Expansion<F> {
    fn size_of(&self, relation: &ObjectName) -> usize {
        let name = cte_name(relation);
        let mut ctes = self.ctes.iter().rev();
        let cte = ctes.find(|(cte, _)| Some(cte) == name.as_ref());
        let size = cte.map(|(_, size)| *size);
        size.or_else(|| (self.size_of_view)(relation)).unwrap_or(1)
    }
}

impl<F: Fn(&ObjectName) -> Option<usize>> QueryVisitor for Expansion<F> {
    fn enter(&mut self, query: &Query) -> Result<()> {
        let ctes = query.with.iter().flat_map(|with| &with.cte_tables);
        let names = ctes.map(|cte| identifier(&cte.alias.name));
        let mut names: Vec<_> = names.collect();
        names.reverse();
        self.open.push(OpenQuery {
            cte_names: names,
            outer_ctes: self.ctes.len(),
            size: 1,
        });
        Ok(())
    }

    fn relation(&mut self, relation: &ObjectName) -> Result<()> {
        let size = self.size_of(relation);
        match self.open.last_mut() {
            Some(query) => query.add(size),
            // A relation outside of all queries is the target of a write.
            None => Ok(()),
        }
    }

    fn leave(&mut self) -> Result<()> {
        let Some(query) = self.open.pop() else {
            return Ok(());
        };
        self.ctes.truncate(query.outer_ctes);
        let Some(around) = self.open.last_mut() else {
            return Ok(());
        };
        match around.cte_names.pop() {
            Some(name) => {
                self.ctes.push((name, query.size));
                Ok(())
            }
            None => around.add(query.size),
        }
    }
}

impl OpenQuery {
    fn add(&mut self, size: usize) -> Result<()> {
        self.size += size;
        if self.size > MAX_OPERATORS {
            return Err(Error::invalid(format!(
                "the statement is nested too deeply: it has more than {MAX_OPERATORS} tables and operators, counting its views and CTEs as often as they are read; store an intermediate step in a table (CREATE TABLE … AS)"
            ))
            .with_sqlstate(SqlState::StatementTooComplex));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::parser::DFParser;

    use super::*;

    fn is_refused(sql: &str) -> bool {
        let statement = DFParser::parse_sql(sql).unwrap().pop_back().unwrap();
        let size_of_view = |name: &ObjectName| {
            let last = name.0.last()?.as_ident()?;
            (identifier(last) == "large_view").then_some(20_000)
        };
        check(&statement, size_of_view).is_err()
    }

    /// Returns a WITH of this many CTEs, each of which reads the previous one twice.
    fn doubled(steps: usize) -> String {
        let steps = (1..=steps)
            .map(|n| format!("S{n} AS (SELECT * FROM s{0}, \"s{0}\" t)", n - 1))
            .collect::<Vec<_>>();
        format!("WITH s0 AS (SELECT 1), {}", steps.join(", "))
    }

    #[test]
    fn what_grows_beyond_measure_is_refused() {
        for rest in [
            "SELECT * FROM s40",
            "SELECT 1",
            "SELECT (SELECT count(*) FROM s40)",
        ] {
            assert!(!is_refused(&format!("{} {rest}", doubled(12))), "{rest}");
            let large = format!("{} {rest}", doubled(40));
            assert!(is_refused(&large), "{rest}");
            for before in [
                "EXPLAIN ",
                "EXPLAIN ANALYZE ",
                "CREATE VIEW v AS ",
                "INSERT INTO t ",
            ] {
                assert!(is_refused(&format!("{before}{large}")), "{before}{rest}");
            }
        }
        assert!(is_refused(&format!(
            "SELECT * FROM ({} SELECT * FROM s40) x",
            doubled(40)
        )));
        let views = "SELECT * FROM large_view, public.large_view b";
        assert!(!is_refused(views));
        assert!(is_refused(&format!("{views}, Large_View c")));
    }

    #[test]
    fn a_name_means_what_was_defined_last_around_it() {
        let twelve = doubled(12);
        // Both statements read `s12` ten times. In the first one it has eight thousand relations,
        // in the second one it has one.
        let uses = ["SELECT * FROM s12"; 10].join(" UNION ALL ");
        assert!(is_refused(&format!("{twelve} {uses}")));
        assert!(!is_refused(&format!("{twelve}, s12 AS (SELECT 1) {uses}")));
        let within = format!("SELECT * FROM ({twelve} SELECT * FROM s12) x");
        assert!(!is_refused(&format!("{within} UNION ALL {uses}")));
        let recursive = "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 9) SELECT * FROM n";
        assert!(!is_refused(recursive));
    }
}
