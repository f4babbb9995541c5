//! Defaults and checks are SQL texts in the catalog. Writes plan them anew each time, so they mean
//! what they would mean in the statement itself.

/// Runs ALTER TABLE and COMMENT ON.
pub(super) mod alter;
/// Reads the declarations of CREATE TABLE.
pub(super) mod declare;
/// Checks the expressions of defaults and checks when they are declared.
mod expressions;
/// Fills in the defaults of columns that an INSERT leaves out.
pub(super) mod insert;
/// Reads how long the rows of a table are kept.
pub(super) mod retention;
