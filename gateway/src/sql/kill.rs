use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use volary_flight_proto::ids::QueryId;
use volary_flight_proto::{Error, Result, SqlState};

use super::tokens::is_keyword;

const FORM: &str = "write KILL [QUERY] 'id', with an id from system.queries";

/// Returns the query that a KILL names, or `None` if the statement is not a KILL.
///
/// # Errors
/// `INVALID_ARGUMENT` if the KILL does not name an id.
pub(crate) fn parse(tokens: &[TokenWithSpan]) -> Result<Option<QueryId>> {
    let mut tokens = tokens
        .iter()
        .map(|token| &token.token)
        .filter(|token| !matches!(token, Token::Whitespace(_) | Token::SemiColon));
    if !tokens
        .next()
        .is_some_and(|token| is_keyword(token, Keyword::KILL))
    {
        return Ok(None);
    }
    let mut tokens = tokens.peekable();
    tokens.next_if(|token| is_keyword(token, Keyword::QUERY));
    match (tokens.next(), tokens.next()) {
        (Some(Token::SingleQuotedString(id)), None) => {
            id.parse().map(Some).map_err(|error: Error| error.at(FORM))
        }
        _ => Err(
            Error::invalid(format!("this KILL is not understood; {FORM}"))
                .with_sqlstate(SqlState::SyntaxError),
        ),
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::tokenizer::Tokenizer;

    use super::*;

    fn parsed(sql: &str) -> Result<Option<QueryId>> {
        let tokens = Tokenizer::new(&GenericDialect {}, sql).tokenize_with_location();
        parse(&tokens.unwrap())
    }

    #[test]
    fn a_query_is_named_by_its_id() {
        let id = QueryId::new();
        for sql in [
            format!("KILL '{id}'"),
            format!(" kill -- it\n query '{id}' ;"),
        ] {
            assert_eq!(parsed(&sql).unwrap(), Some(id), "{sql}");
        }
        assert_eq!(parsed("SELECT 'KILL'").unwrap(), None);
        assert_eq!(parsed("").unwrap(), None);
    }

    #[test]
    fn what_is_no_id_is_refused_with_the_form() {
        for sql in [
            "KILL",
            "KILL 7",
            "KILL 'seven'",
            "KILL CONNECTION 7",
            "KILL ?",
            "KILL 'a' 'b'",
        ] {
            let error = parsed(sql).unwrap_err();
            assert!(
                error.message().contains("KILL [QUERY] 'id'"),
                "{sql}: {error}"
            );
        }
    }
}
