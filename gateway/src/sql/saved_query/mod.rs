//! Saved queries: queries with typed parameters that the catalog keeps under a name. `CALL name(…)` runs one, and FROM name(…) reads its rows
//! within another query.
//!
//! A saved query is a view with parameters: it has an owner, with whose rights it reads, and is granted as views are. Its query is planned
//! once per statement, with a cast of the parameter's type around each `$name` ([`body`]); a call puts its arguments in their place
//! ([`call`]).

/// What arguments and defaults may be.
mod argument;
/// The query of a saved query.
mod body;
/// Calls: from arguments to a plan.
mod call;
/// Where a statement calls something.
mod calls;
/// CREATE QUERY and DROP QUERY as they are written.
mod parse;

use volary_catalog::QueryParameter;

pub(crate) use argument::check_defaults;
pub(crate) use body::{PlannedBody, typed, with_nulls};
pub(crate) use call::{SavedQueries, called_as_select};
pub(crate) use calls::{calls, is_plain_call};
pub(crate) use parse::parse;

/// A statement about saved queries.
#[derive(Debug, PartialEq, Eq)]
pub enum SavedQueryStatement {
    /// CREATE [OR REPLACE] QUERY.
    Create {
        /// Its name.
        name: String,
        /// Its parameters, in the order of a call's arguments.
        parameters: Vec<QueryParameter>,
        /// Its query, with `$name` for each parameter.
        sql: String,
        /// Whether it may replace another one.
        or_replace: bool,
    },
    /// DROP QUERY.
    Drop {
        /// Its name.
        name: String,
        /// Whether it is no error if there is none.
        if_exists: bool,
    },
}
