//! Walks over a statement's syntax tree.

use std::ops::ControlFlow;

use datafusion::sql::parser::{CopyToSource, Statement as DfStatement};
use datafusion::sql::sqlparser::ast::{ObjectName, Query, Visit, Visitor};
use volary_flight_proto::{Error, Result};

/// What looks at the queries of a statement. An error ends the walk.
pub(super) trait QueryVisitor {
    /// Before what is in a query. Its CTEs come first.
    fn enter(&mut self, query: &Query) -> Result<()>;

    /// After what is in it.
    fn leave(&mut self) -> Result<()> {
        Ok(())
    }

    /// A table, a view or a CTE that is read, or written to.
    fn relation(&mut self, _: &ObjectName) -> Result<()> {
        Ok(())
    }
}

/// Takes a visitor through the statement, or through the one that is explained.
///
/// # Errors
/// The visitor's.
pub(super) fn visit(statement: &DfStatement, visitor: &mut dyn QueryVisitor) -> Result<()> {
    let walked = match statement {
        DfStatement::Statement(statement) => statement.visit(&mut Walk(visitor)),
        DfStatement::Explain(explain) => return visit(&explain.statement, visitor),
        DfStatement::CopyTo(copy) => match &copy.source {
            CopyToSource::Relation(_) => return Ok(()),
            CopyToSource::Query(query) => query.visit(&mut Walk(visitor)),
        },
        DfStatement::CreateExternalTable(_) | DfStatement::Reset(_) => return Ok(()),
    };
    match walked {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

/// One type for all visitors: sqlparser makes a thousand functions for each type.
struct Walk<'a>(&'a mut dyn QueryVisitor);

impl Visitor for Walk<'_> {
    type Break = Error;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<Error> {
        go_on(self.0.enter(query))
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<Error> {
        go_on(self.0.leave())
    }

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<Error> {
        go_on(self.0.relation(relation))
    }
}

fn go_on(result: Result<()>) -> ControlFlow<Error> {
    match result {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => ControlFlow::Break(error),
    }
}
