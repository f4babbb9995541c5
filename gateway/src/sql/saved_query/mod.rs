//! The statement `CALL name(…)` runs a saved query, and FROM name(…) reads its rows within another
//! query.
//!
//! A saved query is a view with parameters: it has an owner, reads with the owner's rights, and is
//! granted as views are. Its query is planned once per statement, with a cast to the parameter's
//! type around each `$name` ([`body`]). A call then puts its arguments in place of the parameters
//! ([`call`]).

/// Checks arguments and defaults of parameters.
mod argument;
/// Plans the query of a saved query: gives types to its parameters, and puts arguments in their
/// place.
mod body;
/// Plans calls of saved queries, and matches their arguments with the parameters.
mod call;
/// Finds the calls in the FROM clauses of a statement.
mod calls;
/// Parses CREATE QUERY and DROP QUERY, which sqlparser does not know.
mod parse;

use volary_catalog::QueryParameter;

use crate::sql::names::WrittenName;

pub(crate) use argument::check_defaults;
pub(crate) use body::{PlannedBody, bind_nulls, parse_with_types};
pub(crate) use call::{SavedQueries, rewrite_call};
pub(crate) use calls::{find_calls, is_plain_call};
pub(crate) use parse::parse;

/// A statement about saved queries.
#[derive(Debug, PartialEq, Eq)]
pub enum SavedQueryStatement {
    /// CREATE [OR REPLACE] QUERY.
    Create {
        /// Name of the saved query.
        name: WrittenName,
        /// Parameters of the saved query, in the order of a call's arguments.
        parameters: Vec<QueryParameter>,
        /// Text of the query, with `$name` for each parameter.
        sql: String,
        /// Says whether the statement may replace an existing saved query.
        or_replace: bool,
    },
    /// DROP QUERY.
    Drop {
        /// Name of the saved query.
        name: WrittenName,
        /// Says whether the statement succeeds if there is no such saved query.
        if_exists: bool,
    },
}
