//! From text to a [`Statement`](parse::Statement), and what is refused before it is planned or run.

/// Statements about users, roles, grants and tokens.
pub mod access;
/// How often the parser would go back.
mod backtracking;
/// COPY, as its statement says it.
pub mod copy;
/// How deep a plan may become.
pub mod depth;
/// How large a statement becomes by its CTEs and views.
pub mod expansion;
/// KILL.
mod kill;
/// The columns that RIGHT and FULL JOIN merge.
mod merged_columns;
/// The names of the catalog and its schemas, and names as statements write them.
pub mod names;
/// How deep a statement's syntax tree is.
mod nesting;
/// From text to a statement.
pub mod parse;
/// What DataFusion would answer wrongly.
pub mod refused;
/// Queries with parameters that the catalog keeps.
pub mod saved_query;
/// How many columns a statement may make.
pub mod shape;
/// What all parts of the parser share.
mod syntax;
/// What tokens are.
mod tokens;
/// BEGIN, COMMIT and ROLLBACK.
pub mod transaction;
/// Walks over a syntax tree.
mod visit;
/// How many columns the joins of a statement have.
pub mod width;

pub use access::without_passwords;
