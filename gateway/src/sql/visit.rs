use std::ops::ControlFlow;

use datafusion::sql::parser::{CopyToSource, Statement as DfStatement};
use datafusion::sql::sqlparser::ast::{Expr, ObjectName, Query, TableFactor, Visit, Visitor};
use volary_flight_proto::{Error, Result};

/// A visitor of the queries of a statement. An error ends the walk.
pub(crate) trait QueryVisitor {
    /// Runs before the contents of a query are visited. The query's CTEs are visited first.
    fn enter(&mut self, _: &Query) -> Result<()> {
        Ok(())
    }

    /// Runs after the contents of a query were visited.
    fn leave(&mut self) -> Result<()> {
        Ok(())
    }

    /// Visits the name of a table, a view or a CTE that is read or written to.
    fn relation(&mut self, _: &ObjectName) -> Result<()> {
        Ok(())
    }

    /// Visits a relation in a FROM, before its contents are visited.
    fn table_factor(&mut self, _: &TableFactor) -> Result<()> {
        Ok(())
    }

    /// Visits an expression, before its contents are visited.
    fn expression(&mut self, _: &Expr) -> Result<()> {
        Ok(())
    }
}

/// Takes a visitor through the statement, or through the statement that an EXPLAIN explains.
///
/// # Errors
/// The errors of the visitor.
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

/// Takes a visitor through a part of a statement.
///
/// # Errors
/// The errors of the visitor.
pub(crate) fn visit_node(node: &impl Visit, visitor: &mut dyn QueryVisitor) -> Result<()> {
    match node.visit(&mut VisitorAdapter(visitor)) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

/// Adapts all visitors to sqlparser's trait. It is one type for all of them, because the compiler
/// generates a thousand functions of sqlparser for each type.
struct VisitorAdapter<'a>(&'a mut dyn QueryVisitor);

impl Visitor for VisitorAdapter<'_> {
    type Break = Error;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<Error> {
        to_control_flow(self.0.enter(query))
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<Error> {
        to_control_flow(self.0.leave())
    }

    fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<Error> {
        to_control_flow(self.0.expression(expression))
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<Error> {
        to_control_flow(self.0.table_factor(factor))
    }

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<Error> {
        to_control_flow(self.0.relation(relation))
    }
}

fn to_control_flow(result: Result<()>) -> ControlFlow<Error> {
    match result {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => ControlFlow::Break(error),
    }
}
