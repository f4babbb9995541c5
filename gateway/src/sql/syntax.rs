//! What all parts of the parser share.

use datafusion::sql::sqlparser::ast::Expr;
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use volary_flight_proto::{Error, ErrorCode, Result};

/// Nesting that the parser follows; what is deeper is refused.
pub(crate) const RECURSION_LIMIT: usize = 200;

/// An expression by itself.
///
/// # Errors
/// `INVALID_ARGUMENT` with the place of what is wrong.
pub(crate) fn parse_expression(text: &str) -> Result<Expr> {
    Parser::new(&GenericDialect {})
        .with_recursion_limit(RECURSION_LIMIT)
        .try_with_sql(text)
        .and_then(|mut parser| parser.parse_expr())
        .map_err(syntax_error)
}

/// What is wrong with a text, for the user.
pub(crate) fn syntax_error(error: ParserError) -> Error {
    let message = match error {
        ParserError::TokenizerError(message) | ParserError::ParserError(message) => message,
        ParserError::RecursionLimitExceeded => {
            "the statement is nested too deeply; write it flatter".to_owned()
        }
    };
    Error::new(ErrorCode::InvalidArgument, format!("SQL syntax: {message}"))
}
