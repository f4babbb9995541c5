/// Parses statements about users, roles, grants and tokens, and hides passwords in their texts.
pub mod access;
/// Reads ALTER TABLE and COMMENT ON.
pub(crate) mod alter;
/// Refuses statements over which the parser would backtrack too often, before it parses them.
mod backtracking;
/// Defines the statement COPY … FROM and its options.
pub mod copy;
/// Bounds how deep a plan may become, including its views and CTEs.
pub mod depth;
/// Defines the statements that drop tables and views.
pub(crate) mod drop_statement;
/// Refuses tables of equal names in one FROM, whose columns the planner would mix up.
mod equal_names;
/// Reads numbers that doubles would round.
pub(crate) mod exact_numbers;
/// Bounds how large a statement becomes when each use of a CTE or a view is replaced by its query.
pub(crate) mod expansion;
/// Finds the statement in an EXPLAIN.
pub(crate) mod explained;
/// Rewrites calls of functions that other databases have.
mod foreign_functions;
/// Rewrites words of other databases that sqlparser does not read.
mod foreign_tokens;
/// Refuses clauses of functions that the planner would ignore.
pub(crate) mod function_clauses;
/// Names the columns of results.
pub(crate) mod headings;
/// Parses KILL, in which sqlparser accepts only a number.
mod kill;
/// Puts parameters in place of a statement's literals.
pub(crate) mod literals;
/// Takes long lists of constants out of a statement's text.
pub(crate) mod long_lists;
/// Rewrites joins with USING and NATURAL, so that their merged columns are those of SQL.
pub(crate) mod merged_columns;
/// Defines the names of the catalog and its schemas, and converts the names in statements.
pub mod names;
/// Measures how deep a statement's syntax tree will be, before the parser builds it.
mod nesting;
/// Reads OPTIMIZE.
mod optimize;
/// Reads the values of options.
pub(crate) mod options;
/// Parses text into a statement.
pub mod parse;
/// Writes parts of statements as text that the parser reads back.
pub(crate) mod printing;
/// Rewrites comparisons of rows with subqueries, and arrays of the rows of a subquery.
pub(crate) mod row_subqueries;
/// Parses and plans saved queries: queries with typed parameters that the catalog keeps by name.
pub(crate) mod saved_query;
/// Defines the statements that create and drop schemas.
pub(crate) mod schema_statement;
/// Says in which schemas names are looked up.
pub(crate) mod search_path;
/// Defines the statements about a session that other databases have.
pub(crate) mod session_statement;
/// Bounds how many columns a statement may list and a table may have, and how deep their types may
/// be.
pub mod shape;
/// Answers SHOW FUNCTIONS.
mod show_functions;
/// Sorts by the columns of a result that ORDER BY names by their expressions.
mod sort_by_columns;
/// Rewrites standard SQL that DataFusion 55 refuses or plans wrongly into SQL that it plans as the
/// standard says.
mod standard;
/// Provides the helpers that all parts of the parser share.
pub(crate) mod syntax;
/// Rewrites calls of table functions in FROM.
mod table_functions;
/// Finds the texts of tokens.
mod text_position;
/// Classifies tokens.
mod tokens;
/// Defines the statements BEGIN, COMMIT and ROLLBACK.
pub mod transaction;
/// Reads TRUNCATE.
pub(crate) mod truncate;
/// Plans the names of types.
pub(crate) mod types;
/// Refuses statements that DataFusion 55 would answer wrongly and that Volary does not answer yet:
/// an error is better than wrong rows.
pub mod unsupported;
/// Walks over a statement's syntax tree.
mod visit;
/// Bounds how many columns a statement's joins have in total, and how many columns the planner
/// compares to find those that its SELECTs list.
pub mod width;

pub use access::without_passwords;
