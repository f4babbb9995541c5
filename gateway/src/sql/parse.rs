use datafusion::sql::parser::{DFParserBuilder, ResetStatement, Statement as DfStatement};
use datafusion::sql::sqlparser::ast::{
    CopyLegacyOption, CopyOption, CopySource, CopyTarget, CreateTable, ObjectName,
    Statement as Ast, Use,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};
use volary_flight_proto::ids::QueryId;
use volary_flight_proto::{Error, Result, SqlState};

use super::access::{self, AccessStatement};
use super::alter::{self, AlterStatement};
use super::copy::CopyFrom;
use super::drop_statement::{self, DropStatement};
use super::names::{WrittenName, identifier, name_in_public};
use super::saved_query::{self, SavedQueryStatement};
use super::schema_statement::{self, SchemaStatement};
use super::session_statement::{self, SessionStatement};
use super::syntax::{RECURSION_LIMIT, syntax_error};
use super::tokens::{is_keyword, is_meant};
use super::transaction::TransactionStatement;
use super::truncate::{self, TruncateStatement};
use super::{backtracking, foreign_tokens, kill, nesting, optimize, standard};

/// Exclusive upper bound of the number of a parameter, as in `$1`.
const MAX_PARAMETERS: usize = 1 << 16;

/// A statement. The variant decides which part of the gateway runs it.
#[derive(Debug)]
pub enum Statement {
    /// A statement that DataFusion plans.
    Planned(Box<DfStatement>),
    /// CREATE TABLE, with Volary's options.
    CreateTable(Box<CreateTable>),
    /// ALTER TABLE or COMMENT ON.
    Alter(AlterStatement),
    /// DROP TABLE or DROP VIEW.
    Drop(DropStatement),
    /// COPY table FROM 'location'.
    CopyFrom(CopyFrom),
    /// TRUNCATE tables.
    Truncate(TruncateStatement),
    /// OPTIMIZE table.
    Optimize(WrittenName),
    /// BEGIN, COMMIT or ROLLBACK.
    Transaction(TransactionStatement),
    /// KILL of a query.
    Kill(QueryId),
    /// A statement about the session.
    Session(SessionStatement),
    /// A statement about users, roles, grants or tokens.
    Access(AccessStatement),
    /// A statement about saved queries.
    SavedQuery(SavedQueryStatement),
    /// CREATE SCHEMA, DROP SCHEMA or COMMENT ON SCHEMA.
    Schema(SchemaStatement),
}

/// Parses one statement. Replaces the parameters `?` by `$1`, `$2` and so on.
///
/// # Errors
/// `INVALID_ARGUMENT` with the position of the error.
pub fn parse(sql: &str) -> Result<Statement> {
    let dialect = GenericDialect {};
    // The text is tokenized once for all checks and parsers: every statement passes here, however
    // small.
    let mut tokens = Tokenizer::new(&dialect, sql)
        .tokenize_with_location()
        .map_err(|error| syntax_error(error.into()))?;
    nesting::check(tokens.iter().map(|token| &token.token))?;
    backtracking::check(tokens.iter().map(|token| &token.token))?;
    number_placeholders(&mut tokens).map_err(|error| hide_password(error, sql))?;
    if let Some(query_id) = kill::parse(&tokens)? {
        return Ok(Statement::Kill(query_id));
    }
    if let Some(statement) = access::parse(&tokens)? {
        return Ok(Statement::Access(statement));
    }
    if let Some(statement) = saved_query::parse(&tokens)? {
        return Ok(Statement::SavedQuery(statement));
    }
    saved_query::rewrite_call(&mut tokens)?;
    foreign_tokens::rewrite(&mut tokens);
    if is_copy_from(&tokens) {
        return parse_copy(tokens, &dialect);
    }
    let mut parser = DFParserBuilder::new(tokens)
        .with_dialect(&dialect)
        .with_recursion_limit(RECURSION_LIMIT)
        .build()
        .map_err(Error::from)?;
    let mut statements = parser
        .parse_statements()
        .map_err(|error| hide_password(error.into(), sql))?;
    let Some(mut statement) = statements.pop_front() else {
        return Err(Error::invalid("the text contains no statement; write one")
            .with_sqlstate(SqlState::SyntaxError));
    };
    if !statements.is_empty() {
        return Err(
            Error::invalid("the text contains several statements; send them one by one")
                .with_sqlstate(SqlState::SyntaxError),
        );
    }
    standard::rewrite(&mut statement)?;
    Ok(match statement {
        DfStatement::Reset(ResetStatement::Variable(name)) if is_all(&name) => {
            Statement::Session(SessionStatement::ResetAll)
        }
        DfStatement::Statement(ast) => match *ast {
            ast if let Some(statement) = session_statement::convert(&ast)? => {
                Statement::Session(statement)
            }
            ast if let Some(statement) = schema_statement::convert(&ast)? => {
                Statement::Schema(statement)
            }
            ast if let Some(statement) = alter::convert(&ast)? => Statement::Alter(statement),
            ast if let Some(statement) = drop_statement::convert(&ast)? => {
                Statement::Drop(statement)
            }
            ast if let Some(statement) = truncate::convert(&ast)? => Statement::Truncate(statement),
            ast if let Some(table) = optimize::convert(&ast)? => Statement::Optimize(table),
            Ast::CreateTable(create) => Statement::CreateTable(Box::new(create)),
            Ast::StartTransaction { modes, .. } => {
                Statement::Transaction(TransactionStatement::begin(&modes)?)
            }
            Ast::Commit { .. } => Statement::Transaction(TransactionStatement::Commit),
            Ast::Rollback {
                savepoint: None, ..
            } => Statement::Transaction(TransactionStatement::Rollback),
            Ast::Use(of) => Statement::Session(SessionStatement::Use(used_name(&of)?)),
            // The error of the planner would also repeat the statement.
            other if !is_planned(&other) && access::has_passwords(sql) => {
                return Err(Error::unsupported(
                    "the statement is not supported; its text is not shown, because it contains a password",
                ));
            }
            other => Statement::Planned(Box::new(DfStatement::Statement(Box::new(other)))),
        },
        DfStatement::CreateExternalTable(_) => {
            return Err(Error::unsupported(
                "CREATE EXTERNAL TABLE is not supported; use CREATE TABLE, and then COPY table FROM 'files'",
            ));
        }
        other => Statement::Planned(Box::new(other)),
    })
}

/// Returns the error, which may repeat the text of the statement. If there is a password in the
/// statement, returns another error in its place.
fn hide_password(error: Error, sql: &str) -> Error {
    if access::has_passwords(sql) {
        return Error::invalid(
            "the statement is not understood; the position is not shown, because that might show the password in the statement",
        )
        .with_sqlstate(SqlState::SyntaxError);
    }
    error
}

/// Returns whether DataFusion plans this kind of statement. A column in it may be called
/// `password`.
fn is_planned(statement: &Ast) -> bool {
    matches!(
        statement,
        Ast::Query(_)
            | Ast::Insert(_)
            | Ast::Update(_)
            | Ast::Delete(_)
            | Ast::CreateView(_)
            | Ast::Explain { .. }
            | Ast::Set(_)
    )
}

fn is_all(name: &ObjectName) -> bool {
    name_in_public(name).is_some_and(|name| name == "all")
}

/// Returns the parts of the name in a USE, or no parts for USE DEFAULT.
fn used_name(of: &Use) -> Result<Vec<String>> {
    let (Use::Catalog(name) | Use::Schema(name) | Use::Database(name) | Use::Object(name)) = of
    else {
        return match of {
            Use::Default => Ok(Vec::new()),
            _ => Err(Error::unsupported(format!(
                "{of} is not supported; write USE and the name of a schema"
            ))),
        };
    };
    // sqlparser reads DEFAULT as a name.
    if let [part] = name.0.as_slice()
        && let Some(word) = part.as_ident()
        && word.quote_style.is_none()
        && word.value.eq_ignore_ascii_case("default")
    {
        return Ok(Vec::new());
    }
    name.0
        .iter()
        .map(|part| part.as_ident().map(identifier))
        .collect::<Option<_>>()
        .ok_or_else(|| Error::invalid(format!("USE takes a name, not {name}")))
}

/// Returns whether a statement is COPY … FROM. COPY … TO is DataFusion's own statement.
fn is_copy_from(tokens: &[TokenWithSpan]) -> bool {
    let first = tokens.iter().find(|token| is_meant(token));
    if !first.is_some_and(|token| is_keyword(&token.token, Keyword::COPY)) {
        return false;
    }
    // A query in parentheses has a FROM of its own.
    let mut depth = 0_usize;
    let direction = tokens.iter().find(|token| {
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.saturating_sub(1),
            _ => {}
        }
        let token = &token.token;
        depth == 0 && (is_keyword(token, Keyword::FROM) || is_keyword(token, Keyword::TO))
    });
    !direction.is_some_and(|token| is_keyword(&token.token, Keyword::TO))
}

const COPY_FORM: &str = "write COPY table [(columns)] FROM 'file, folder, glob or URL' [WITH (FORMAT parquet|csv|json, HEADER true|false, DELIMITER ',', NULL '', QUOTE '\"', ESCAPE '\\')]";

fn parse_copy(tokens: Vec<TokenWithSpan>, dialect: &GenericDialect) -> Result<Statement> {
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
            legacy_options,
            ..
        },
    ] = statements.as_slice()
    else {
        return Err(
            Error::invalid(format!("this COPY is not understood; {COPY_FORM}"))
                .with_sqlstate(SqlState::SyntaxError),
        );
    };
    refuse_legacy(legacy_options)?;
    let mut copy = CopyFrom {
        table: WrittenName::of_object(table_name)?,
        columns: columns.iter().map(identifier).collect(),
        location: filename.clone(),
        options: Default::default(),
    };
    for option in options {
        set_option(&mut copy, option)?;
    }
    Ok(Statement::CopyFrom(copy))
}

/// Refuses options without parentheses, which are those of old versions of PostgreSQL and of
/// Redshift. The error does not repeat their values, because some of them are credentials.
fn refuse_legacy(options: &[CopyLegacyOption]) -> Result<()> {
    if options.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = options
        .iter()
        .map(ToString::to_string)
        .filter_map(|option| option.split_whitespace().next().map(str::to_owned))
        .collect();
    Err(Error::invalid(format!(
        "COPY takes options only within parentheses, not {}; {COPY_FORM}",
        names.join(", ")
    )))
}

fn set_option(copy: &mut CopyFrom, option: &CopyOption) -> Result<()> {
    let options = &mut copy.options;
    match option {
        CopyOption::Format(format) => {
            set(&mut options.format, "FORMAT", format.value.to_lowercase())
        }
        CopyOption::Header(header) => set(&mut options.header, "HEADER", *header),
        CopyOption::Delimiter(text) => set_byte(&mut options.delimiter, "DELIMITER", *text),
        CopyOption::Null(text) => set(&mut options.null, "NULL", text.clone()),
        CopyOption::Quote(text) => set_byte(&mut options.quote, "QUOTE", *text),
        CopyOption::Escape(text) => set_byte(&mut options.escape, "ESCAPE", *text),
        CopyOption::Encoding(name) => match name.to_lowercase().as_str() {
            "utf8" | "utf-8" => Ok(()),
            _ => Err(Error::unsupported(format!(
                "ENCODING '{name}' is not supported: files are read as UTF-8; convert the file"
            ))),
        },
        CopyOption::Freeze(_) => Err(not_supported("FREEZE", "leave it out")),
        CopyOption::ForceQuote(_) => {
            Err(not_supported("FORCE_QUOTE", "it is an option of COPY … TO"))
        }
        CopyOption::ForceNull(_) => Err(not_supported(
            "FORCE_NULL",
            "a field without text is NULL, whether it has quotes or not; leave the option out",
        )),
        CopyOption::ForceNotNull(_) => Err(not_supported(
            "FORCE_NOT_NULL",
            "a field without text is NULL; write the wanted value into the file",
        )),
    }
}

/// Sets an option. Refuses a second value, because it is unknown which of the two is meant.
fn set<T>(slot: &mut Option<T>, name: &str, value: T) -> Result<()> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(Error::invalid(format!(
            "COPY has {name} twice; write it once"
        ))),
    }
}

fn set_byte(slot: &mut Option<u8>, name: &str, text: char) -> Result<()> {
    let byte = u8::try_from(text).ok().filter(u8::is_ascii);
    let byte = byte
        .ok_or_else(|| Error::invalid(format!("{name} takes one ASCII character, not '{text}'")))?;
    set(slot, name, byte)
}

fn not_supported(option: &str, advice: &str) -> Error {
    Error::unsupported(format!("{option} is not supported: {advice}"))
}

/// Numbers the parameters: drivers send `?`, but DataFusion knows `$n`.
///
/// # Errors
/// `INVALID_ARGUMENT` if one statement has both kinds, because the first `?` would be `$1` too, or
/// if a number is too high, because DataFusion makes a list of that length.
fn number_placeholders(tokens: &mut [TokenWithSpan]) -> Result<()> {
    let mut named: Option<String> = None;
    let mut count = 0;
    for token in tokens {
        let Token::Placeholder(text) = &mut token.token else {
            continue;
        };
        if text == "?" {
            count += 1;
            *text = format!("${count}");
            continue;
        }
        let number = text.strip_prefix('$').unwrap_or_default();
        let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        if is_number
            && !number
                .parse()
                .is_ok_and(|number: usize| number < MAX_PARAMETERS)
        {
            return Err(Error::invalid(format!(
                "parameter {text}: parameters are numbered from $1 to ${} at most",
                MAX_PARAMETERS - 1
            )));
        }
        named.get_or_insert_with(|| text.clone());
    }
    match named {
        Some(name) if count > 0 => Err(Error::invalid(format!(
            "the statement has parameters of two kinds, ? and {name}; write all of them as ?, or all with numbers"
        ))
        .with_sqlstate(SqlState::SyntaxError)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use volary_flight_proto::ErrorCode;

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
    fn parameters_of_two_kinds_are_refused() {
        for sql in [
            "SELECT * FROM t WHERE a = $1 AND b = ?",
            "SELECT * FROM t WHERE a = ? AND b = $2",
        ] {
            let error = parse(sql).unwrap_err();
            assert!(error.message().contains("of two kinds"), "{sql}: {error}");
        }
        assert!(parse("SELECT * FROM t WHERE a = $2 AND b = $1 AND c = '?'").is_ok());
    }

    #[test]
    fn a_parameter_with_an_absurd_number_is_refused() {
        for sql in [
            "INSERT INTO t VALUES ($9999999999999)",
            "SELECT * FROM t WHERE a = $99999999999999999999999",
        ] {
            let error = parse(sql).unwrap_err();
            assert!(
                error.message().contains("numbered from $1"),
                "{sql}: {error}"
            );
        }
    }

    #[test]
    fn an_error_names_the_place_as_it_was_written() {
        let error = parse("SELECT a FROM t\nWHERE b = ? AND c = ? FROM u").unwrap_err();
        assert!(error.message().contains("Line: 2, Column: 23"), "{error}");
    }

    #[test]
    fn a_copy_to_a_file_is_no_copy_from() {
        for sql in [
            "COPY t TO '/x.csv'",
            " -- copies\n COPY (SELECT k FROM t) TO '/x'",
        ] {
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
        assert_eq!(copy.table.to_string(), "t");
        assert_eq!(copy.columns, ["a", "B"]);
        assert_eq!(copy.location, "/data/*.csv");
        assert_eq!(copy.options.format.as_deref(), Some("csv"));
        assert_eq!(copy.options.header, Some(false));
        assert_eq!(copy.options.delimiter, Some(b';'));
        assert_eq!(copy.options.quote, None);
    }

    #[test]
    fn copy_does_as_it_is_told_or_says_why_not() {
        let parse_copy_with = |options: &str| parse(&format!("COPY t FROM '/x.csv' {options}"));
        for options in [
            "WITH (FORMAT 'CSV', ENCODING 'UTF8')",
            "(HEADER, QUOTE '''')",
            "WITH",
        ] {
            assert!(parse_copy_with(options).is_ok(), "{options}");
        }
        for (options, part) in [
            ("CSV NULL '\\N'", "not CSV, NULL"),
            ("DELIMITER '|'", "not DELIMITER"),
            ("WITH CSV HEADER", "not CSV"),
            ("(FORMAT csv) HEADER", "not HEADER"),
            ("IGNOREHEADER 1 GZIP", "not IGNOREHEADER, GZIP"),
            ("CREDENTIALS 'secret'", "not CREDENTIALS;"),
            ("(ENCODING 'latin1')", "ENCODING 'latin1'"),
            ("(FREEZE)", "FREEZE is not supported"),
            ("(FORCE_NULL (a))", "FORCE_NULL is not supported"),
            ("(FORCE_NOT_NULL (a))", "FORCE_NOT_NULL is not supported"),
            ("(FORCE_QUOTE (a))", "FORCE_QUOTE is not supported"),
            ("(NULL '', NULL 'x')", "NULL twice"),
        ] {
            let error = parse_copy_with(options).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidArgument);
            assert!(error.message().contains(part), "{options}: {error}");
        }
    }

    #[test]
    fn optimize_takes_the_name_of_a_table() {
        for sql in [
            "OPTIMIZE s.t",
            "optimize table s.t",
            "OPTIMIZE TABLE s.t FINAL",
        ] {
            let Statement::Optimize(table) = parse(sql).unwrap() else {
                panic!("{sql}: another statement");
            };
            assert_eq!(table.to_string(), "s.t");
        }
        for clause in ["WHERE k = 1", "ZORDER BY (k)", "PARTITION 7", "DEDUPLICATE"] {
            let error = parse(&format!("OPTIMIZE t {clause}")).unwrap_err();
            assert!(error.message().contains("is not supported"), "{error}");
        }
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
