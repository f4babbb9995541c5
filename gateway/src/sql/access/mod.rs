/// Folds the case and the width of letters, so that words can be compared.
mod fold;
/// Decides which statements are about logins, or seem to be.
mod logins;
/// Parses CREATE, ALTER and DROP of users, roles and tokens, GRANT, REVOKE, and OWNER TO.
mod parse;
/// Hides passwords in the texts of statements.
mod redact;

pub(crate) use parse::{AccessStatement, WrittenGrant, parse};
pub(crate) use redact::has_passwords;
pub use redact::without_passwords;
