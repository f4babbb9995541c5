//! DataFusion 55 plans a subquery as a join, and only in some places. What it leaves out is
//! rewritten here to what it plans.

/// Turns EXISTS and IN into columns, where DataFusion has no plan for them.
pub(crate) mod marks;
/// Moves subqueries out of operators in which DataFusion takes none.
pub mod places;
/// Lets a correlated subquery be a value if it has one row at most, which is only known when it
/// runs.
pub mod single_row;
