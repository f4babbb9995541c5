//! Parses statements about users, roles, grants and tokens, and hides passwords in the texts of
//! such statements.

/// Makes words comparable.
mod fold;
/// Decides which statements are about logins.
mod logins;
/// Parses tokens into a statement.
mod parse;
/// Hides passwords in texts.
mod redact;

pub(crate) use parse::{AccessStatement, parse};
pub(crate) use redact::has_passwords;
pub use redact::without_passwords;
