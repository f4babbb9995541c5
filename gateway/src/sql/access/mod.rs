//! Statements about users, roles, grants and tokens, and texts without the passwords that such statements have.

/// Which statements are about who logs in.
mod logins;
/// What of a text may be a password.
mod mask;
/// From tokens to a statement.
mod parse;
/// Texts without passwords.
mod redact;
/// The tokens of a text.
mod text;

pub(crate) use parse::{AccessStatement, parse};
pub(crate) use redact::has_passwords;
pub use redact::without_passwords;
