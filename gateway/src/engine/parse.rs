//! From text to a statement.

use std::collections::HashMap;

use datafusion::sql::parser::{DFParserBuilder, Statement as DfStatement};
use datafusion::sql::sqlparser::ast::{
    CopySource, CopyTarget, CreateTable, Ident, ObjectName, Statement as Ast,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};
use volary_flight_proto::{Error, ErrorCode, Result};

use super::names::{CATALOG, PUBLIC};
use super::{backtracking, nesting};
use crate::load::CopyFrom;

/// Nesting that the parser follows; what is deeper is refused.
const RECURSION_LIMIT: usize = 200;

/// A statement, by who runs it.
#[derive(Debug)]
pub enum Statement {
    /// DataFusion plans it.
    Planned(Box<DfStatement>),
    /// CREATE TABLE, with Volary's options.
    CreateTable(Box<CreateTable>),
    /// COPY table FROM 'location'.
    CopyFrom(CopyFrom),
    /// BEGIN or COMMIT: statements stand for themselves, and dialects send these as a habit.
    Transaction,
    /// ROLLBACK, of which nothing can be kept.
    Rollback,
}

/// Parses one statement. `?` becomes `$1`, `$2` …
///
/// # Errors
/// `INVALID_ARGUMENT` with the place of what is wrong.
pub fn parse(sql: &str) -> Result<Statement> {
    let dialect = GenericDialect {};
    // Once for all who look at tokens: every statement passes here, however small.
    let mut tokens = Tokenizer::new(&dialect, sql)
        .tokenize_with_location()
        .map_err(|error| syntax_error(error.into()))?;
    nesting::check(tokens.iter().map(|token| &token.token))?;
    backtracking::check(tokens.iter().map(|token| &token.token))?;
    number_placeholders(&mut tokens);
    if is_copy_from(&tokens) {
        return parse_copy(tokens, &dialect);
    }
    let mut parser = DFParserBuilder::new(tokens)
        .with_dialect(&dialect)
        .with_recursion_limit(RECURSION_LIMIT)
        .build()
        .map_err(Error::from)?;
    let mut statements = parser.parse_statements().map_err(Error::from)?;
    let Some(statement) = statements.pop_front() else {
        return Err(Error::invalid("there is no statement; write one"));
    };
    if !statements.is_empty() {
        return Err(Error::invalid(
            "these are several statements; send them one by one",
        ));
    }
    Ok(match statement {
        DfStatement::Statement(ast) => match *ast {
            Ast::CreateTable(create) => Statement::CreateTable(Box::new(create)),
            Ast::StartTransaction { .. } | Ast::Commit { .. } => Statement::Transaction,
            Ast::Rollback { .. } => Statement::Rollback,
            other => Statement::Planned(Box::new(DfStatement::Statement(Box::new(other)))),
        },
        DfStatement::CreateExternalTable(_) => {
            return Err(Error::invalid(
                "CREATE EXTERNAL TABLE is not supported; CREATE TABLE, then COPY table FROM 'files'",
            ));
        }
        other => Statement::Planned(Box::new(other)),
    })
}

/// COPY … TO is DataFusion's own statement.
fn is_copy_from(tokens: &[TokenWithSpan]) -> bool {
    let first = tokens
        .iter()
        .find(|token| !matches!(token.token, Token::Whitespace(_)));
    if !first.is_some_and(|token| is_word(&token.token, Keyword::COPY)) {
        return false;
    }
    let direction = tokens
        .iter()
        .find(|token| is_word(&token.token, Keyword::FROM) || is_word(&token.token, Keyword::TO));
    !direction.is_some_and(|token| is_word(&token.token, Keyword::TO))
}

fn is_word(token: &Token, keyword: Keyword) -> bool {
    matches!(token, Token::Word(word) if word.keyword == keyword)
}

fn parse_copy(tokens: Vec<TokenWithSpan>, dialect: &GenericDialect) -> Result<Statement> {
    const FORM: &str = "write COPY table FROM 'file, folder, glob or URL' [WITH (FORMAT parquet|csv|json, HEADER true|false, DELIMITER ',', NULL '')]";
    let statements = Parser::new(dialect)
        .with_recursion_limit(RECURSION_LIMIT)
        .with_tokens_with_locations(tokens)
        .parse_statements()
        .map_err(syntax_error)?;
    let [
        Ast::Copy {
            source:
                CopySource::Table {
                    table_name,
                    columns,
                },
            to: false,
            target: CopyTarget::File { filename },
            options,
            ..
        },
    ] = statements.as_slice()
    else {
        return Err(Error::invalid(format!(
            "this COPY is not understood; {FORM}"
        )));
    };
    let mut by_name = HashMap::new();
    for option in options {
        let text = option.to_string();
        let (name, value) = text.split_once(' ').unwrap_or((&text, "true"));
        // A quote may be the value itself: QUOTE ''''.
        let quoted = value
            .strip_prefix('\'')
            .and_then(|text| text.strip_suffix('\''));
        by_name.insert(
            name.to_lowercase(),
            quoted.unwrap_or(value).replace("''", "'"),
        );
    }
    Ok(Statement::CopyFrom(CopyFrom {
        table: object_name(table_name)?,
        columns: columns.iter().map(identifier).collect(),
        location: filename.clone(),
        options: by_name,
    }))
}

/// A name without quotes is lower case, as everywhere in SQL here.
pub fn identifier(identifier: &Ident) -> String {
    match identifier.quote_style {
        Some(_) => identifier.value.clone(),
        None => identifier.value.to_lowercase(),
    }
}

/// The name of a table in the schema `public`.
///
/// # Errors
/// `INVALID_ARGUMENT` for another schema or catalog.
pub fn object_name(name: &ObjectName) -> Result<String> {
    let parts: Option<Vec<String>> = name
        .0
        .iter()
        .map(|part| part.as_ident().map(identifier))
        .collect();
    match parts.as_deref() {
        Some([table]) => Ok(table.clone()),
        Some([schema, table]) if schema == PUBLIC => Ok(table.clone()),
        Some([catalog, schema, table]) if catalog == CATALOG && schema == PUBLIC => {
            Ok(table.clone())
        }
        _ => Err(Error::invalid(format!(
            "tables are created in the schema {PUBLIC}, not as {name}; write the name alone"
        ))),
    }
}

/// Drivers send `?`; DataFusion knows `$n`.
fn number_placeholders(tokens: &mut [TokenWithSpan]) {
    let placeholders = tokens
        .iter_mut()
        .filter_map(|token| match &mut token.token {
            Token::Placeholder(text) if text == "?" => Some(text),
            _ => None,
        });
    for (number, text) in (1..).zip(placeholders) {
        *text = format!("${number}");
    }
}

fn syntax_error(error: ParserError) -> Error {
    let message = match error {
        ParserError::TokenizerError(message) | ParserError::ParserError(message) => message,
        ParserError::RecursionLimitExceeded => {
            "the statement is nested too deeply; write it flatter".to_owned()
        }
    };
    Error::new(ErrorCode::InvalidArgument, format!("SQL syntax: {message}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn question_marks_become_numbers_where_they_are_parameters() {
        let sql = "SELECT '?', \"?\" -- ?\n FROM t\nWHERE ä = ? AND b IN (?, ?)";
        let Statement::Planned(statement) = parse(sql).unwrap() else {
            panic!("another statement");
        };
        assert_eq!(
            statement.to_string(),
            "SELECT '?', \"?\" FROM t WHERE ä = $1 AND b IN ($2, $3)"
        );
    }

    #[test]
    fn an_error_names_the_place_as_it_was_written() {
        let error = parse("SELECT a FROM t\nWHERE b = ? AND c = ? FROM u").unwrap_err();
        assert!(error.message().contains("Line: 2, Column: 23"), "{error}");
    }

    #[test]
    fn a_copy_to_a_file_is_no_copy_from() {
        for sql in ["COPY t TO '/x.csv'", " -- copies\n COPY (SELECT 1) TO '/x'"] {
            assert!(matches!(parse(sql), Ok(Statement::Planned(_))), "{sql}");
        }
        // A word within quotes is a name.
        assert!(parse("\"COPY\" t FROM '/x'").is_err());
    }

    #[test]
    fn copy_from_is_understood() {
        let sql =
            "COPY t (a, \"B\") FROM '/data/*.csv' WITH (FORMAT csv, HEADER false, DELIMITER ';')";
        let Statement::CopyFrom(copy) = parse(sql).unwrap() else {
            panic!("another statement");
        };
        assert_eq!(copy.table, "t");
        assert_eq!(copy.columns, ["a", "B"]);
        assert_eq!(copy.location, "/data/*.csv");
        assert_eq!(copy.options["format"], "csv");
        assert_eq!(copy.options["header"], "FALSE");
        assert_eq!(copy.options["delimiter"], ";");
    }

    #[test]
    fn nonsense_is_refused_with_its_place() {
        for (sql, part) in [
            ("SELEC 1", "SELEC"),
            ("", "no statement"),
            ("SELECT 1; SELECT 2", "several statements"),
            ("COPY t FROM STDIN", "not understood"),
            (
                "CREATE EXTERNAL TABLE t (k INT) STORED AS CSV LOCATION '/x'",
                "EXTERNAL",
            ),
            ("SELECT 'open", "Unterminated"),
        ] {
            let error = parse(sql).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidArgument);
            assert!(error.text().contains(part), "{sql}: {error}");
        }
    }
}
