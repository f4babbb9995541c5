//! Parses statements about users, roles, grants and tokens, and hides passwords in the texts of
//! such statements.

/// Decides which statements are about logins.
mod logins;
/// Decides which parts of a text may be a password.
mod mask;
/// Parses tokens into a statement.
mod parse;
/// Hides passwords in texts.
mod redact;
/// Gives access to the tokens of a text.
mod text;

pub(crate) use parse::{AccessStatement, parse};
pub(crate) use redact::has_passwords;
pub use redact::without_passwords;
