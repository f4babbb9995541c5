use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use volary_catalog::QueryParameter;
use volary_flight_proto::{Error, Result, SqlState};

use super::SavedQueryStatement;
use super::body::parse_with_types;
use crate::sql::names::{WrittenName, identifier};
use crate::sql::printing::printed;
use crate::sql::syntax::{RECURSION_LIMIT, syntax_error};
use crate::sql::tokens::{first_words, is_one_of};

const CREATE_FORM: &str = "write CREATE [OR REPLACE] QUERY name [(parameter type [DEFAULT value], …)] AS SELECT … $parameter …";
const DROP_FORM: &str = "write DROP QUERY [IF EXISTS] name";

/// Maximum number of parameters of a saved query.
const MAX_PARAMETERS: usize = 255;

/// Parses a statement about saved queries. Returns `None` for any other statement.
///
/// # Errors
/// `INVALID_ARGUMENT` with the position of the error.
pub(crate) fn parse(tokens: &[TokenWithSpan]) -> Result<Option<SavedQueryStatement>> {
    let words = first_words(tokens, 4);
    let is = |position: usize, word: &str| is_one_of(&words, position, &[word]);
    let creates = is(0, "CREATE") && is(1, "QUERY");
    let replaces = is(0, "CREATE") && is(1, "OR") && is(2, "REPLACE") && is(3, "QUERY");
    let drops = is(0, "DROP") && is(1, "QUERY");
    let words_before = match (creates, replaces, drops) {
        (true, ..) | (.., true) => 2,
        (_, true, _) => 4,
        _ => return Ok(None),
    };
    let dialect = GenericDialect {};
    let mut parser = Parser::new(&dialect)
        .with_recursion_limit(RECURSION_LIMIT)
        .with_tokens_with_locations(tokens.to_vec());
    for _ in 0..words_before {
        parser.next_token();
    }
    if drops {
        return drop_query(&mut parser).map(Some);
    }
    create_query(&mut parser, replaces).map(Some)
}

fn drop_query(parser: &mut Parser<'_>) -> Result<SavedQueryStatement> {
    let if_exists = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
    let name = parser.parse_object_name(false).map_err(syntax_error)?;
    expect_end(parser, DROP_FORM)?;
    Ok(SavedQueryStatement::Drop {
        name: WrittenName::of_object(&name)?,
        if_exists,
    })
}

fn create_query(parser: &mut Parser<'_>, or_replace: bool) -> Result<SavedQueryStatement> {
    let name = parser.parse_object_name(false).map_err(syntax_error)?;
    let name = WrittenName::of_object(&name)?;
    let at = |error: Error| error.at(format!("query {name}"));
    let parameters = parse_parameters(parser).map_err(at)?;
    if !parser.parse_keyword(Keyword::AS) {
        return Err(at(not_understood(parser, CREATE_FORM)));
    }
    let query = parser.parse_query().map_err(syntax_error).map_err(at)?;
    expect_end(parser, CREATE_FORM).map_err(at)?;
    let sql = printed(&*query);
    // This checks the text that the catalog keeps, because each call parses it again.
    parse_with_types(&sql, &parameters).map_err(at)?;
    Ok(SavedQueryStatement::Create {
        name,
        parameters,
        sql,
        or_replace,
    })
}

fn parse_parameters(parser: &mut Parser<'_>) -> Result<Vec<QueryParameter>> {
    let mut parameters: Vec<QueryParameter> = Vec::new();
    if !parser.consume_token(&Token::LParen) || parser.consume_token(&Token::RParen) {
        return Ok(parameters);
    }
    loop {
        let name = identifier(&parser.parse_identifier().map_err(syntax_error)?);
        if !is_name(&name) {
            return Err(Error::invalid(format!(
                "the parameter \"{name}\" cannot be written as ${name}: use only letters, digits and _, and begin with a letter"
            )));
        }
        if parameters.iter().any(|other| other.name == name) {
            return Err(Error::invalid(format!(
                "there are two parameters \"{name}\"; give them different names"
            )));
        }
        let data_type = parser.parse_data_type().map_err(syntax_error)?;
        let default = if parser.parse_keyword(Keyword::DEFAULT) {
            Some(printed(&parser.parse_expr().map_err(syntax_error)?))
        } else {
            None
        };
        if default.is_none() && parameters.iter().any(|other| other.default.is_some()) {
            return Err(Error::invalid(format!(
                "the parameter \"{name}\" has no default, but follows a parameter that has one; put the parameters with a default last"
            )));
        }
        parameters.push(QueryParameter {
            name,
            data_type: data_type.to_string(),
            default,
        });
        if parameters.len() > MAX_PARAMETERS {
            return Err(Error::invalid(format!(
                "a saved query may have at most {MAX_PARAMETERS} parameters"
            )));
        }
        if parser.consume_token(&Token::RParen) {
            return Ok(parameters);
        }
        if !parser.consume_token(&Token::Comma) {
            return Err(not_understood(parser, CREATE_FORM));
        }
    }
}

fn is_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_lowercase() || first == '_')
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}

fn expect_end(parser: &mut Parser<'_>, form: &str) -> Result<()> {
    while parser.consume_token(&Token::SemiColon) {}
    if parser.peek_token() == Token::EOF {
        return Ok(());
    }
    Err(not_understood(parser, form))
}

fn not_understood(parser: &Parser<'_>, form: &str) -> Error {
    let next = parser.peek_token();
    Error::invalid(format!(
        "\"{next}\" is not understood{}; {form}",
        next.span.start
    ))
    .with_sqlstate(SqlState::SyntaxError)
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::tokenizer::Tokenizer;

    use super::*;

    fn parsed(sql: &str) -> Result<Option<SavedQueryStatement>> {
        let tokens = Tokenizer::new(&GenericDialect {}, sql).tokenize_with_location();
        parse(&tokens.unwrap())
    }

    #[test]
    fn a_query_with_parameters_is_read() {
        let sql = "create or replace query Nests (K bigint, \"name\" VARCHAR(20) DEFAULT 'kea''s') AS\n SELECT * FROM t WHERE k = $K AND name = $name ;";
        let Some(SavedQueryStatement::Create {
            name,
            parameters,
            sql,
            or_replace: true,
        }) = parsed(sql).unwrap()
        else {
            panic!("another statement");
        };
        assert_eq!(name.to_string(), "nests");
        assert_eq!(sql, "SELECT * FROM t WHERE k = $K AND name = $name");
        let read: Vec<_> = parameters.iter().map(ToString::to_string).collect();
        assert_eq!(read, ["k BIGINT", "name VARCHAR(20) DEFAULT 'kea''s'"]);
        for none in ["CREATE QUERY q AS SELECT 1", "CREATE QUERY q() AS SELECT 1"] {
            assert!(matches!(
                parsed(none).unwrap(),
                Some(SavedQueryStatement::Create { parameters, or_replace: false, .. }) if parameters.is_empty()
            ));
        }
    }

    #[test]
    fn other_statements_are_left_to_others() {
        for sql in [
            "CREATE TABLE query (k BIGINT)",
            "CREATE VIEW query AS SELECT 1",
            "CREATE \"QUERY\" q AS SELECT 1",
            "DROP TABLE query",
            "SELECT 'CREATE QUERY'",
            "",
        ] {
            assert_eq!(parsed(sql).unwrap(), None, "{sql}");
        }
        let dropped = SavedQueryStatement::Drop {
            name: WrittenName::new(None, "q".to_owned()),
            if_exists: true,
        };
        assert_eq!(parsed("DROP QUERY IF EXISTS Q;").unwrap(), Some(dropped));
    }

    #[test]
    fn what_is_wrong_is_said_with_the_form() {
        for (sql, part) in [
            ("CREATE QUERY", "SQL syntax"),
            ("CREATE QUERY q SELECT 1", "CREATE_FORM"),
            ("CREATE QUERY q(a BIGINT b) AS SELECT $a", "CREATE_FORM"),
            ("CREATE QUERY q AS SELECT 1 SELECT 2", "CREATE_FORM"),
            ("CREATE QUERY q AS DROP TABLE t", "SQL syntax"),
            ("CREATE QUERY q(a) AS SELECT 1", "SQL syntax"),
            (
                "CREATE QUERY q(a BIGINT, A TEXT) AS SELECT $a",
                "two parameters \"a\"",
            ),
            (
                "CREATE QUERY q(\"A b\" BIGINT) AS SELECT 1",
                "cannot be written as $A b",
            ),
            (
                "CREATE QUERY q(a BIGINT DEFAULT 1, b BIGINT) AS SELECT 1",
                "put the parameters with a default last",
            ),
            (
                "CREATE QUERY q(a BIGINT) AS SELECT $b",
                "no parameter $b; the query has (a BIGINT)",
            ),
            (
                "CREATE QUERY q AS SELECT $1",
                "no parameter $1; the query has none",
            ),
            ("DROP QUERY q, r", "DROP_FORM"),
        ] {
            let error = parsed(sql).unwrap_err();
            let part = part
                .replace("CREATE_FORM", CREATE_FORM)
                .replace("DROP_FORM", DROP_FORM);
            assert!(error.message().contains(&part), "{sql}: {error}");
        }
    }
}
