//! From text to a statement.

use std::collections::HashMap;

use datafusion::sql::parser::{DFParserBuilder, Statement as DfStatement};
use datafusion::sql::sqlparser::ast::{
    CopySource, CopyTarget, CreateTable, Ident, ObjectName, Statement as Ast,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::{Location, Token, Tokenizer, TokenizerError};
use volary_flight_proto::{Error, ErrorCode, Result};

use super::nesting;

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
    /// BEGIN, COMMIT, ROLLBACK: statements stand for themselves, and dialects send these as a habit.
    Transaction(&'static str),
}

/// COPY table FROM 'location'.
#[derive(Debug, Clone)]
pub struct CopyFrom {
    /// The table.
    pub table: String,
    /// Columns in the file's order, where it has no header; empty for the table's own.
    pub columns: Vec<String>,
    /// A file, folder, glob or URL.
    pub location: String,
    /// Options as written, lower-case names.
    pub options: HashMap<String, String>,
}

/// Parses one statement. `?` becomes `$1`, `$2` …
///
/// # Errors
/// `INVALID_ARGUMENT` with the place of what is wrong.
pub fn parse(sql: &str) -> Result<Statement> {
    let dialect = GenericDialect {};
    let sql = number_placeholders(sql, &dialect)?;
    // What cannot be read as tokens is for the parser to explain.
    nesting::check(
        &Tokenizer::new(&dialect, &sql)
            .tokenize()
            .unwrap_or_default(),
    )?;
    if first_keyword(&sql, &dialect) == Some(Keyword::COPY) && !copies_out(&sql, &dialect) {
        return parse_copy(&sql, &dialect);
    }
    let mut parser = DFParserBuilder::new(sql.as_str())
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
            Ast::StartTransaction { .. } => Statement::Transaction("BEGIN"),
            Ast::Commit { .. } => Statement::Transaction("COMMIT"),
            Ast::Rollback { .. } => Statement::Transaction("ROLLBACK"),
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

fn first_keyword(sql: &str, dialect: &GenericDialect) -> Option<Keyword> {
    let tokens = Tokenizer::new(dialect, sql).tokenize().ok()?;
    tokens.into_iter().find_map(|token| match token {
        Token::Whitespace(_) => None,
        Token::Word(word) => Some(Some(word.keyword)),
        _ => Some(None),
    })?
}

/// COPY … TO is DataFusion's own statement.
fn copies_out(sql: &str, dialect: &GenericDialect) -> bool {
    let tokens = Tokenizer::new(dialect, sql).tokenize().unwrap_or_default();
    let direction = tokens.iter().find_map(|token| match token {
        Token::Word(word) if matches!(word.keyword, Keyword::FROM | Keyword::TO) => {
            Some(word.keyword)
        }
        _ => None,
    });
    direction == Some(Keyword::TO)
}

fn parse_copy(sql: &str, dialect: &GenericDialect) -> Result<Statement> {
    const FORM: &str = "write COPY table FROM 'file, folder, glob or URL' [WITH (FORMAT parquet|csv|json, HEADER true|false, DELIMITER ',', NULL '')]";
    let statements = Parser::new(dialect)
        .with_recursion_limit(RECURSION_LIMIT)
        .try_with_sql(sql)
        .and_then(|mut parser| parser.parse_statements())
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
        Some([schema, table]) if schema == super::context::PUBLIC => Ok(table.clone()),
        Some([catalog, schema, table])
            if catalog == super::context::CATALOG && schema == super::context::PUBLIC =>
        {
            Ok(table.clone())
        }
        _ => Err(Error::invalid(format!(
            "tables are created in the schema {}, not as {name}; write the name alone",
            super::context::PUBLIC
        ))),
    }
}

/// Drivers send `?`; DataFusion knows `$n`.
fn number_placeholders(sql: &str, dialect: &GenericDialect) -> Result<String> {
    if !sql.contains('?') {
        return Ok(sql.to_owned());
    }
    let tokens = Tokenizer::new(dialect, sql)
        .tokenize_with_location()
        .map_err(|error: TokenizerError| syntax_error(ParserError::from(error)))?;
    let lines = LineStarts::new(sql);
    let mut out = String::with_capacity(sql.len() + 8);
    let (mut copied, mut number) = (0, 0);
    for token in tokens {
        if matches!(&token.token, Token::Placeholder(text) if text == "?") {
            let start = lines.offset(token.span.start);
            number += 1;
            out.push_str(&sql[copied..start]);
            out.push_str(&format!("${number}"));
            copied = start + 1;
        }
    }
    out.push_str(&sql[copied..]);
    Ok(out)
}

/// From the parser's lines and columns (both from 1, in characters) to bytes.
struct LineStarts<'a> {
    sql: &'a str,
    starts: Vec<usize>,
}

impl<'a> LineStarts<'a> {
    fn new(sql: &'a str) -> Self {
        let after_newlines = sql.match_indices('\n').map(|(at, _)| at + 1);
        Self {
            sql,
            starts: std::iter::once(0).chain(after_newlines).collect(),
        }
    }

    fn offset(&self, location: Location) -> usize {
        let line = usize::try_from(location.line).unwrap_or(1).max(1) - 1;
        let column = usize::try_from(location.column).unwrap_or(1).max(1) - 1;
        let start = self.starts.get(line).copied().unwrap_or(0);
        self.sql[start..]
            .char_indices()
            .nth(column)
            .map_or(self.sql.len(), |(at, _)| start + at)
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

    fn numbered(sql: &str) -> String {
        number_placeholders(sql, &GenericDialect {}).unwrap()
    }

    #[test]
    fn question_marks_become_numbers_where_they_are_parameters() {
        assert_eq!(
            numbered("SELECT '?', \"?\" -- ?\n FROM t\nWHERE ä = ? AND b IN (?, ?)"),
            "SELECT '?', \"?\" -- ?\n FROM t\nWHERE ä = $1 AND b IN ($2, $3)"
        );
        assert_eq!(numbered("VALUES (?,?)"), "VALUES ($1,$2)");
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
