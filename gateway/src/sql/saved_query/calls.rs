use datafusion::common::TableReference;
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{
    GroupByExpr, SelectItem, SetExpr, Statement as Ast, TableFactor,
};
use volary_flight_proto::Result;

use crate::sql::names::WrittenName;
use crate::sql::visit::{QueryVisitor, visit};

/// Returns the names that the statement calls, even if a CTE has the same name.
///
/// # Errors
/// There are none: the walk refuses nothing.
pub(crate) fn find_calls(statement: &DfStatement) -> Result<Vec<TableReference>> {
    let mut calls = CallFinder(Vec::new());
    visit(statement, &mut calls)?;
    Ok(calls.0)
}

struct CallFinder(Vec<TableReference>);

impl QueryVisitor for CallFinder {
    fn table_factor(&mut self, factor: &TableFactor) -> Result<()> {
        // The planner resolves other names, or refuses them.
        if let TableFactor::Table {
            name,
            args: Some(_),
            ..
        } = factor
            && let Ok(name) = WrittenName::of_object(name)
        {
            self.0.push(name.to_reference());
        }
        Ok(())
    }
}

/// Returns whether a statement is `SELECT * FROM name(…)`, which CALL is rewritten to, without
/// joins, grouping, DISTINCT or CTEs. The rows of such a statement come in the order of the called
/// query.
pub(crate) fn is_plain_call(statement: &DfStatement) -> bool {
    let DfStatement::Statement(statement) = statement else {
        return false;
    };
    let Ast::Query(query) = statement.as_ref() else {
        return false;
    };
    let SetExpr::Select(select) = query.body.as_ref() else {
        return false;
    };
    let is_all = matches!(select.projection[..], [SelectItem::Wildcard(_)]);
    let is_call = matches!(
        &select.from[..],
        [from] if from.joins.is_empty() && matches!(&from.relation, TableFactor::Table { args: Some(_), .. })
    );
    let is_grouped = !matches!(&select.group_by, GroupByExpr::Expressions(by, _) if by.is_empty());
    is_all && is_call && !is_grouped && query.with.is_none() && select.distinct.is_none()
}

#[cfg(test)]
mod tests {
    use datafusion::sql::parser::DFParser;

    use super::*;

    fn statement(sql: &str) -> DfStatement {
        DFParser::parse_sql(sql).unwrap().pop_back().unwrap()
    }

    #[test]
    fn calls_are_found_behind_every_cte() {
        let sql = "WITH q AS (SELECT * FROM p(1)) SELECT * FROM q(2), q, Staging.R(3) WHERE EXISTS (SELECT * FROM \"S\"())";
        let names: Vec<_> = find_calls(&statement(sql)).unwrap();
        let names: Vec<_> = names.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["p", "q", "staging.r", "S"]);
    }

    #[test]
    fn a_plain_call_is_one_and_nothing_else() {
        assert!(is_plain_call(&statement("SELECT * FROM q(1)")));
        assert!(is_plain_call(&statement("SELECT * FROM q(1) LIMIT 3")));
        for sql in [
            "SELECT k FROM q(1)",
            "SELECT DISTINCT * FROM q(1)",
            "SELECT * FROM q(1), t",
            "SELECT * FROM t",
            "SELECT * FROM q(1) UNION ALL SELECT 1",
        ] {
            assert!(!is_plain_call(&statement(sql)), "{sql}");
        }
    }
}
