//! The planner plans each use of a CTE separately. Thirty CTEs, each of which reads the previous
//! one twice, become a billion relations, and the planner would use up all memory for them
//! before [`depth`](super::depth) sees its plan. For a chain of two thousand CTEs, each of which
//! reads the previous one, the planner would copy two million operators.

use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{ObjectName, Query, SetExpr};
use volary_flight_proto::{Error, Result, SqlState};

use super::depth::{self, MAX_DEPTH, MAX_OPERATORS};
use super::names::{cte_name, identifier};
use super::visit::{QueryVisitor, visit};

/// Refuses a statement that reads too many relations, or CTEs that read each other in too long a
/// chain. `size_of_view` returns the number of operators of a view by its name as it is written.
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
    /// The CTEs in scope. If several have the same name, the last one counts.
    ctes: Vec<Cte>,
    open: Vec<OpenQuery>,
}

/// A CTE that can be read.
struct Cte {
    name: String,
    measure: Measure,
}

/// What a relation becomes in the plan.
#[derive(Clone, Copy)]
struct Measure {
    /// Number of operators.
    size: usize,
    /// The least number of levels on the longest path, weighted as [`depth`] weights them.
    levels: usize,
}

/// A query that the visitor has entered and not yet left.
struct OpenQuery {
    /// Names of the query's CTEs that the visitor has not yet left, in reverse order. The visitor
    /// enters the queries of the CTEs before all other queries within this one.
    cte_names: Vec<String>,
    /// Number of CTEs that were in scope before the visitor entered the query.
    outer_ctes: usize,
    measure: Measure,
    /// The levels that the query has above the relations that it reads.
    own_levels: usize,
}

impl<F: Fn(&ObjectName) -> Option<usize>> Expansion<F> {
    fn measure(&self, relation: &ObjectName) -> Measure {
        let name = cte_name(relation);
        let mut ctes = self.ctes.iter().rev();
        match ctes.find(|cte| Some(&cte.name) == name.as_ref()) {
            Some(cte) => cte.measure,
            None => Measure {
                size: (self.size_of_view)(relation).unwrap_or(1),
                levels: 1,
            },
        }
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
            measure: Measure { size: 1, levels: 0 },
            own_levels: match query.body.as_ref() {
                // A SELECT is at least a projection under the name of the CTE.
                SetExpr::Select(_) => depth::OPERATOR + 1,
                _ => 1,
            },
        });
        Ok(())
    }

    fn relation(&mut self, relation: &ObjectName) -> Result<()> {
        let measure = self.measure(relation);
        match self.open.last_mut() {
            Some(query) => query.add(measure),
            // A relation outside of all queries is the target of a write.
            None => Ok(()),
        }
    }

    fn leave(&mut self) -> Result<()> {
        let Some(mut query) = self.open.pop() else {
            return Ok(());
        };
        query.measure.levels += query.own_levels;
        self.ctes.truncate(query.outer_ctes);
        let Some(around) = self.open.last_mut() else {
            return Ok(());
        };
        match around.cte_names.pop() {
            Some(name) => {
                self.ctes.push(Cte {
                    name,
                    measure: query.measure,
                });
                Ok(())
            }
            None => around.add(query.measure),
        }
    }
}

impl OpenQuery {
    fn add(&mut self, read: Measure) -> Result<()> {
        self.measure.size += read.size;
        self.measure.levels = self.measure.levels.max(read.levels);
        if self.measure.levels > MAX_DEPTH {
            return Err(depth::too_deep(&format!(
                "its CTEs read each other over more than {MAX_DEPTH} levels of operators"
            )));
        }
        if self.measure.size > MAX_OPERATORS {
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
    fn a_chain_that_is_too_long_is_refused() {
        let chain = |last: usize, step: &str| {
            let steps = (1..=last).map(|n| format!("s{n} AS ({step} s{})", n - 1));
            let steps = steps.collect::<Vec<_>>().join(", ");
            is_refused(&format!(
                "WITH s0 AS (SELECT 1), {steps} SELECT * FROM s{last}"
            ))
        };
        assert!(!chain(490, "SELECT * FROM"));
        assert!(chain(510, "SELECT * FROM"));
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
