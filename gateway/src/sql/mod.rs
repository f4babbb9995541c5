//! Parses text into a [`Statement`](parse::Statement), and refuses some statements before they are
//! planned or run.

/// Parses statements about users, roles, grants and tokens.
pub mod access;
/// Bounds how often the parser may backtrack.
mod backtracking;
/// Defines what a COPY statement says.
pub mod copy;
/// Bounds how deep a plan may become.
pub mod depth;
/// Bounds how large a statement becomes by its CTEs and views.
pub(crate) mod expansion;
/// Parses KILL.
mod kill;
/// Refuses the columns that RIGHT and FULL JOIN merge.
mod merged_columns;
/// Names of the catalog and its schemas, and names as statements write them.
pub mod names;
/// Bounds how deep a statement's syntax tree may be.
mod nesting;
/// Parses text into a statement.
pub mod parse;
/// Saved queries: queries with parameters that the catalog keeps.
pub(crate) mod saved_query;
/// Bounds how many columns a statement may make.
pub mod shape;
/// Rewrites standard SQL into SQL that DataFusion plans as the standard says.
mod standard;
/// Helpers that all parts of the parser share.
mod syntax;
/// Classifies tokens.
mod tokens;
/// Defines BEGIN, COMMIT and ROLLBACK.
pub mod transaction;
/// Refuses what DataFusion would answer wrongly.
pub mod unsupported;
/// Walks over a syntax tree.
mod visit;
/// Bounds how many columns the joins of a statement may have.
pub mod width;

pub use access::without_passwords;
