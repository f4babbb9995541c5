//! Walks over a statement's syntax tree.

use std::ops::ControlFlow;

use datafusion::sql::parser::{CopyToSource, Statement as DfStatement};
use datafusion::sql::sqlparser::ast::{Expr, ObjectName, Query, TableFactor, Visit, Visitor};
use volary_flight_proto::{Error, Result};

/// What looks at the queries of a statement. An error ends the walk.
pub(crate) trait QueryVisitor {
    /// Before what is in a query. Its CTEs come first.
    fn enter(&mut self, _: &Query) -> Result<()> {
        Ok(())
    }

    /// After what is in it.
    fn leave(&mut self) -> Result<()> {
        Ok(())
    }

    /// A table, a view or a CTE that is read, or written to.
    fn relation(&mut self, _: &ObjectName) -> Result<()> {
        Ok(())
    }

    /// What a FROM reads, before what is in it.
    fn table_factor(&mut self, _: &TableFactor) -> Result<()> {
        Ok(())
    }

    /// Before what is in an expression.
    fn expression(&mut self, _: &Expr) -> Result<()> {
        Ok(())
    }
}

/// Takes a visitor through the statement, or through the one that is explained.
///
/// # Errors
/// The visitor's.
pub(crate) fn visit(statement: &DfStatement, visitor: &mut dyn QueryVisitor) -> Result<()> {
    match statement {
        DfStatement::Statement(statement) => visit_node(statement, visitor),
        DfStatement::Explain(explain) => visit(&explain.statement, visitor),
        DfStatement::CopyTo(copy) => match &copy.source {
            CopyToSource::Relation(_) => Ok(()),
            CopyToSource::Query(query) => visit_node(query, visitor),
        },
        DfStatement::CreateExternalTable(_) | DfStatement::Reset(_) => Ok(()),
    }
}

/// The same for a part of a statement.
///
/// # Errors
/// The visitor's.
pub(crate) fn visit_node(node: &impl Visit, visitor: &mut dyn QueryVisitor) -> Result<()> {
    match node.visit(&mut Walk(visitor)) {
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

    fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<Error> {
        go_on(self.0.expression(expression))
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<Error> {
        go_on(self.0.table_factor(factor))
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
