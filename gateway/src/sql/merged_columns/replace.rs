use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{Expr, Query, Visit, VisitMut, VisitorMut};
use volary_flight_proto::{Error, Result};

use crate::sql::names::identifier;
use crate::sql::visit::{QueryVisitor, visit_node};

/// Replaces the names of merged columns by their values.
pub(super) struct Replacer<'a> {
    merged: HashMap<String, Expr>,
    names_in: &'a mut dyn FnMut(&Query) -> Option<HashSet<String>>,
    /// The names that mean something else in the queries and lambda functions that are being
    /// visited. `None` stands for all names.
    hidden: Vec<Option<HashSet<String>>>,
}

impl<'a> Replacer<'a> {
    /// Creates a replacer of these columns. `names_in` returns the names of the columns that a
    /// subquery can use without the name of a table, or `None` if they are unknown. A name is not
    /// replaced if it may be one of them: it is then ambiguous, rather than the wrong column.
    pub(super) fn new(
        merged: HashMap<String, Expr>,
        names_in: &'a mut dyn FnMut(&Query) -> Option<HashSet<String>>,
    ) -> Self {
        Self {
            merged,
            names_in,
            hidden: Vec::new(),
        }
    }

    /// Replaces the columns in a part of a SELECT.
    pub(super) fn replace(&mut self, node: &mut impl VisitMut) {
        if !self.merged.is_empty() {
            let _: ControlFlow<()> = VisitMut::visit(node, self);
        }
    }
}

impl VisitorMut for Replacer<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        // The columns of the subquery come first. They need not be known if it names none of ours.
        let hidden = if names_any(query, &self.merged) {
            (self.names_in)(query)
        } else {
            Some(HashSet::new())
        };
        self.hidden.push(hidden);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.hidden.pop();
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        if let Expr::Lambda(lambda) = expression {
            let parameters = lambda.params.iter();
            let names = parameters.map(|parameter| identifier(&parameter.name));
            self.hidden.push(Some(names.collect()));
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        match expression {
            Expr::Lambda(_) => {
                self.hidden.pop();
            }
            Expr::Identifier(name) => {
                let name = identifier(name);
                let mut hidden = self.hidden.iter();
                let is_hidden = hidden.any(|names| {
                    let names = names.as_ref();
                    names.is_none_or(|names| names.contains(&name))
                });
                if let Some(value) = self.merged.get(&name)
                    && !is_hidden
                {
                    *expression = value.clone();
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

fn names_any(node: &impl Visit, merged: &HashMap<String, Expr>) -> bool {
    visit_node(node, &mut NameFinder(merged)).is_err()
}

/// A visitor that fails at the name of a merged column.
struct NameFinder<'a>(&'a HashMap<String, Expr>);

impl QueryVisitor for NameFinder<'_> {
    fn expression(&mut self, expression: &Expr) -> Result<()> {
        match expression {
            Expr::Identifier(name) if self.0.contains_key(&identifier(name)) => {
                Err(Error::invalid(identifier(name)))
            }
            _ => Ok(()),
        }
    }
}
