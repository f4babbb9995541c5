//! The crate sqlparser reads statements about users, roles and grants with the options of other
//! databases. So this module reads these statements itself, and uses sqlparser only for their
//! parts.

use std::collections::BTreeSet;
use std::time::Duration;

use datafusion::sql::sqlparser::ast::Ident;
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use volary_catalog::access::{
    Grant, GrantObject, LimitChange, LimitChanges, PrincipalKind, Privilege,
};
use volary_flight_proto::{Error, Result, SqlState};
use volary_node::size::MemorySize;

use super::logins::StatementBeginning;
use crate::sql::names::{WrittenName, identifier, schema_name};
use crate::sql::tokens::{first_words, is_keyword, is_one_of};

const CREATE_FORM: &str = "write CREATE USER [IF NOT EXISTS] name [PASSWORD 'text'] [ADMIN] [MAX_QUERIES n] [QUERY_MEMORY '256MiB'], or CREATE ROLE [IF NOT EXISTS] name [ADMIN]";
const ALTER_FORM: &str = "write ALTER USER name [PASSWORD 'text'] [ADMIN | NOADMIN] [MAX_QUERIES n | DEFAULT] [QUERY_MEMORY '256MiB' | DEFAULT], or ALTER ROLE name [ADMIN | NOADMIN]";
const DROP_FORM: &str = "write DROP USER | ROLE | TOKEN [IF EXISTS] name";
const TOKEN_FORM: &str = "write CREATE TOKEN name [FOR user] [VALID FOR '90 days']";
const GRANT_FORM: &str = "write GRANT SELECT, INSERT ON table [, …] TO name [, …], GRANT ALL ON ALL TABLES TO name, GRANT CREATE TO name, GRANT CREATE, SELECT, INSERT ON SCHEMA name TO name, or GRANT role TO name; REVOKE … FROM likewise";
const OWNER_FORM: &str = "write ALTER TABLE | VIEW | QUERY | SCHEMA name OWNER TO name";

/// A statement about who may do what.
#[derive(Clone, PartialEq, Eq)]
pub enum AccessStatement {
    /// CREATE USER or CREATE ROLE.
    Create {
        /// Says whether the statement is about a user or a role.
        kind: PrincipalKind,
        /// Name of the user or role.
        name: String,
        /// Says whether an existing user or role is left as it is.
        if_not_exists: bool,
        /// Password of the user.
        password: Option<String>,
        /// Says whether the user or role may do everything.
        admin: bool,
        /// Limits of the resources that the user may use at once.
        limits: LimitChanges,
    },
    /// ALTER USER or ALTER ROLE.
    Alter {
        /// Says whether the statement is about a user or a role.
        kind: PrincipalKind,
        /// Name of the user or role.
        name: String,
        /// New password of the user.
        password: Option<String>,
        /// Says whether the user or role may do everything from now on.
        admin: Option<bool>,
        /// New limits of the resources that the user may use at once.
        limits: LimitChanges,
    },
    /// DROP USER or DROP ROLE.
    Drop {
        /// Says whether the statement is about a user or a role.
        kind: PrincipalKind,
        /// Name of the user or role.
        name: String,
        /// Says whether the statement succeeds if there is no such user or role.
        if_exists: bool,
    },
    /// GRANT or REVOKE.
    Grant {
        /// The grants that are given or taken away.
        grants: Vec<WrittenGrant>,
        /// The users and roles that get the grants or lose them.
        names: Vec<String>,
        /// Says whether the statement is REVOKE.
        is_revoke: bool,
    },
    /// CREATE TOKEN.
    CreateToken {
        /// Name of the token.
        name: String,
        /// The user that logs in with the token. `None` stands for the user that creates the token.
        user: Option<String>,
        /// How long the token is valid. `None` means for ever.
        valid_for: Option<Duration>,
    },
    /// DROP TOKEN.
    DropToken {
        /// Name of the token.
        name: String,
        /// Says whether the statement succeeds if there is no such token.
        if_exists: bool,
    },
    /// ALTER TABLE, ALTER VIEW or ALTER QUERY … OWNER TO.
    SetOwner {
        /// Name of the table, view or saved query.
        table: WrittenName,
        /// The new owner.
        owner: String,
    },
    /// ALTER SCHEMA … OWNER TO.
    SetSchemaOwner {
        /// Name of the schema.
        schema: String,
        /// The new owner.
        owner: String,
    },
}

/// What a `GRANT` or `REVOKE` statement gives or takes away.
#[derive(Clone, PartialEq, Eq)]
pub enum WrittenGrant {
    /// Privileges on a table, a view or a saved query.
    OnRelation(WrittenName, BTreeSet<Privilege>),
    /// Anything else.
    Other(Grant),
}

impl std::fmt::Debug for AccessStatement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Passwords must never reach a log.
        f.write_str("AccessStatement")
    }
}

/// Parses a statement about access. Returns `None` for any other statement.
///
/// # Errors
/// `INVALID_ARGUMENT` for a statement that is not understood. The error shows the right form, and
/// repeats nothing that may be a password.
pub(crate) fn parse(tokens: &[TokenWithSpan]) -> Result<Option<AccessStatement>> {
    let words = first_words(tokens, 2);
    let is = |position, word| is_one_of(&words, position, &[word]);
    let is_principal = is(1, "USER") || is(1, "ROLE");
    let (form, parse_statement): (_, ParseFn) = if is(0, "CREATE") && is_principal {
        (CREATE_FORM, parse_create)
    } else if is(0, "ALTER") && is_principal {
        (ALTER_FORM, parse_alter)
    } else if is(0, "DROP") && (is_principal || is(1, "TOKEN")) {
        (DROP_FORM, parse_drop)
    } else if is(0, "CREATE") && is(1, "TOKEN") {
        (TOKEN_FORM, parse_create_token)
    } else if is(0, "GRANT") || is(0, "REVOKE") {
        (GRANT_FORM, parse_grant)
    } else if is(0, "ALTER")
        && (is(1, "TABLE") || is(1, "VIEW") || is(1, "QUERY") || is(1, "SCHEMA"))
        && tokens
            .iter()
            .any(|token| is_keyword(&token.token, Keyword::OWNER))
    {
        (OWNER_FORM, parse_set_owner)
    } else if StatementBeginning::of(tokens).is_about_logins() {
        // DataFusion's error would repeat the statement with the password.
        return Err(not_understood(CREATE_FORM));
    } else {
        return Ok(None);
    };
    let dialect = GenericDialect {};
    let mut parser = Parser::new(&dialect).with_tokens_with_locations(tokens.to_vec());
    let statement = match parse_statement(&mut parser) {
        Ok(statement) => statement,
        // The parser's message repeats the token that it has found, which may be a password.
        Err(ParseFailure::Syntax) => return Err(not_understood(form)),
        Err(ParseFailure::Explained(error)) => return Err(error),
    };
    while parser.consume_token(&Token::SemiColon) {}
    if parser.peek_token().token != Token::EOF {
        return Err(not_understood(form));
    }
    Ok(Some(statement))
}

fn not_understood(form: &str) -> Error {
    Error::invalid(format!("this statement is not understood; {form}"))
        .with_sqlstate(SqlState::SyntaxError)
}

type ParseFn = fn(&mut Parser<'_>) -> ParseResult<AccessStatement>;
type ParseResult<T> = std::result::Result<T, ParseFailure>;

/// The reason why a statement is refused.
enum ParseFailure {
    Syntax,
    Explained(Error),
}

impl From<ParserError> for ParseFailure {
    fn from(_: ParserError) -> Self {
        Self::Syntax
    }
}

impl From<Error> for ParseFailure {
    fn from(error: Error) -> Self {
        Self::Explained(error)
    }
}

fn parse_create(parser: &mut Parser<'_>) -> ParseResult<AccessStatement> {
    let kind = parse_kind(parser)?;
    let if_not_exists = parser.parse_keywords(&[Keyword::IF, Keyword::NOT, Keyword::EXISTS]);
    let name = parse_name(parser)?;
    let options = parse_options(parser, kind)?;
    Ok(AccessStatement::Create {
        kind,
        name,
        if_not_exists,
        password: options.password,
        admin: options.admin.unwrap_or(false),
        limits: options.limits,
    })
}

fn parse_alter(parser: &mut Parser<'_>) -> ParseResult<AccessStatement> {
    let kind = parse_kind(parser)?;
    let name = parse_name(parser)?;
    let options = parse_options(parser, kind)?;
    if options == PrincipalOptions::default() {
        return Err(ParseFailure::Syntax);
    }
    Ok(AccessStatement::Alter {
        kind,
        name,
        password: options.password,
        admin: options.admin,
        limits: options.limits,
    })
}

fn parse_drop(parser: &mut Parser<'_>) -> ParseResult<AccessStatement> {
    parser.next_token();
    let kind = match take_word(parser)?.as_str() {
        "USER" => Some(PrincipalKind::User),
        "ROLE" => Some(PrincipalKind::Role),
        _ => None,
    };
    let if_exists = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
    let name = parse_name(parser)?;
    Ok(match kind {
        Some(kind) => AccessStatement::Drop {
            kind,
            name,
            if_exists,
        },
        None => AccessStatement::DropToken { name, if_exists },
    })
}

fn parse_create_token(parser: &mut Parser<'_>) -> ParseResult<AccessStatement> {
    parser.next_token();
    parser.next_token();
    let token = parse_name(parser)?;
    let user = parser
        .parse_keyword(Keyword::FOR)
        .then(|| parse_name(parser))
        .transpose()?;
    let mut valid_for = None;
    if take_word_if(parser, "VALID") {
        parser.expect_keyword(Keyword::FOR)?;
        let text = parser.parse_literal_string()?;
        let time = humantime::parse_duration(&text).map_err(|_| {
            Error::invalid(format!(
                "{text:?} is not a duration; write one such as '90 days' or '12h'"
            ))
        })?;
        valid_for = Some(time);
    }
    Ok(AccessStatement::CreateToken {
        name: token,
        user,
        valid_for,
    })
}

fn parse_grant(parser: &mut Parser<'_>) -> ParseResult<AccessStatement> {
    let revoke = take_word(parser)? == "REVOKE";
    let granted = parser.parse_comma_separated(Parser::parse_identifier)?;
    // PRIVILEGES is an optional word, as in ALL PRIVILEGES.
    take_word_if(parser, "PRIVILEGES");
    let on = if parser.parse_keyword(Keyword::ON) {
        Some(parse_objects(parser)?)
    } else {
        None
    };
    let direction = if revoke { Keyword::FROM } else { Keyword::TO };
    parser.expect_keyword(direction)?;
    let names = parser.parse_comma_separated(|parser| {
        let _kind = take_word_if(parser, "USER") || take_word_if(parser, "ROLE");
        parser.parse_identifier()
    })?;
    let grants = match on {
        Some(objects) => objects.with_privileges(&granted)?,
        // A grant without ON is a role, or the right to create.
        None => granted
            .iter()
            .map(|what| {
                let is_create =
                    what.quote_style.is_none() && what.value.eq_ignore_ascii_case("CREATE");
                if is_create {
                    Ok(Grant::Privileges(
                        GrantObject::Cluster,
                        [Privilege::Create].into(),
                    ))
                } else {
                    identifier_name(what).map(Grant::Role)
                }
            })
            .map(|grant| grant.map(WrittenGrant::Other))
            .collect::<ParseResult<_>>()?,
    };
    Ok(AccessStatement::Grant {
        grants,
        names: names
            .iter()
            .map(identifier_name)
            .collect::<ParseResult<_>>()?,
        is_revoke: revoke,
    })
}

/// The objects after ON.
enum WrittenObjects {
    AllTables,
    AllTablesIn(String),
    Relations(Vec<WrittenName>),
    Schemas(Vec<String>),
}

impl WrittenObjects {
    /// Returns the grants of these privileges on the objects.
    fn with_privileges(self, granted: &[Ident]) -> ParseResult<Vec<WrittenGrant>> {
        let (all, objects): (&[Privilege], _) = match self {
            Self::Schemas(_) => (
                &[Privilege::Select, Privilege::Insert, Privilege::Create],
                "schemas; there are SELECT, INSERT, CREATE and ALL",
            ),
            _ => (
                &[Privilege::Select, Privilege::Insert],
                "tables; there are SELECT, INSERT and ALL",
            ),
        };
        let mut privileges = BTreeSet::new();
        for what in granted {
            let name = what.value.to_uppercase();
            match all.iter().find(|privilege| privilege.name() == name) {
                Some(privilege) => _ = privileges.insert(*privilege),
                None if name == "ALL" => privileges.extend(all),
                None => {
                    return Err(Error::invalid(format!(
                        "there is no privilege {name} on {objects}"
                    ))
                    .into());
                }
            }
        }
        let on = |object| WrittenGrant::Other(Grant::Privileges(object, privileges.clone()));
        Ok(match self {
            Self::AllTables => vec![on(GrantObject::AllTables)],
            Self::AllTablesIn(schema) => vec![on(GrantObject::Schema(schema))],
            Self::Schemas(schemas) => schemas
                .into_iter()
                .map(|schema| on(GrantObject::Schema(schema)))
                .collect(),
            Self::Relations(names) => names
                .into_iter()
                .map(|name| WrittenGrant::OnRelation(name, privileges.clone()))
                .collect(),
        })
    }
}

fn parse_objects(parser: &mut Parser<'_>) -> ParseResult<WrittenObjects> {
    if parser.parse_keywords(&[Keyword::ALL, Keyword::TABLES]) {
        if parser.parse_keywords(&[Keyword::IN, Keyword::SCHEMA]) {
            let schema = schema_name(&parser.parse_object_name(false)?)?;
            return Ok(WrittenObjects::AllTablesIn(schema));
        }
        return Ok(WrittenObjects::AllTables);
    }
    if parser.parse_keyword(Keyword::SCHEMA) {
        let names = parser.parse_comma_separated(|parser| parser.parse_object_name(false))?;
        let names = names.iter().map(schema_name).collect::<Result<_>>()?;
        return Ok(WrittenObjects::Schemas(names));
    }
    let kinds = [Keyword::TABLE, Keyword::VIEW, Keyword::QUERY];
    let _kind = parser.parse_one_of_keywords(&kinds);
    let names = parser.parse_comma_separated(|parser| parser.parse_object_name(false))?;
    let names = names.iter().map(WrittenName::of_object);
    Ok(WrittenObjects::Relations(names.collect::<Result<_>>()?))
}

fn parse_set_owner(parser: &mut Parser<'_>) -> ParseResult<AccessStatement> {
    parser.next_token();
    let is_schema = take_word(parser)? == "SCHEMA";
    let name = parser.parse_object_name(false)?;
    parser.expect_keywords(&[Keyword::OWNER, Keyword::TO])?;
    let owner = parse_name(parser)?;
    Ok(if is_schema {
        let schema = schema_name(&name)?;
        AccessStatement::SetSchemaOwner { schema, owner }
    } else {
        let table = WrittenName::of_object(&name)?;
        AccessStatement::SetOwner { table, owner }
    })
}

#[derive(Default, PartialEq)]
struct PrincipalOptions {
    password: Option<String>,
    admin: Option<bool>,
    limits: LimitChanges,
}

fn parse_options(parser: &mut Parser<'_>, kind: PrincipalKind) -> ParseResult<PrincipalOptions> {
    let mut options = PrincipalOptions::default();
    let _with = parser.parse_keyword(Keyword::WITH);
    while (kind == PrincipalKind::User && parse_user_option(parser, &mut options)?)
        || parse_common_option(parser, &mut options)
    {}
    Ok(options)
}

/// Reads an option that only users have. Returns whether there was one.
fn parse_user_option(parser: &mut Parser<'_>, options: &mut PrincipalOptions) -> ParseResult<bool> {
    let LimitChanges {
        max_queries,
        query_memory,
    } = &mut options.limits;
    if options.password.is_none() && take_word_if(parser, "PASSWORD") {
        options.password = Some(parser.parse_literal_string()?);
        return Ok(true);
    }
    Ok(
        parse_limit(parser, "MAX_QUERIES", max_queries, parse_count)?
            || parse_limit(parser, "QUERY_MEMORY", query_memory, parse_size)?,
    )
}

/// Reads an option that users and roles have. Returns whether there was one.
fn parse_common_option(parser: &mut Parser<'_>, options: &mut PrincipalOptions) -> bool {
    for (option, admin) in [("ADMIN", true), ("NOADMIN", false)] {
        if options.admin.is_none() && take_word_if(parser, option) {
            options.admin = Some(admin);
            return true;
        }
    }
    false
}

/// Reads a limit of this name. Returns whether there was one.
fn parse_limit(
    parser: &mut Parser<'_>,
    name: &str,
    change: &mut LimitChange,
    value: impl FnOnce(&mut Parser<'_>) -> ParseResult<u64>,
) -> ParseResult<bool> {
    if *change != LimitChange::Keep || !take_word_if(parser, name) {
        return Ok(false);
    }
    *change = if parser.parse_keyword(Keyword::DEFAULT) {
        LimitChange::Reset
    } else {
        match value(parser)? {
            // With a limit of 0, nothing would ever run.
            0 => return Err(ParseFailure::Syntax),
            value => LimitChange::Set(value),
        }
    };
    Ok(true)
}

fn parse_count(parser: &mut Parser<'_>) -> ParseResult<u64> {
    Ok(parser.parse_literal_uint()?)
}

/// Reads a size of memory in bytes.
fn parse_size(parser: &mut Parser<'_>) -> ParseResult<u64> {
    match parser.parse_literal_string()?.parse() {
        Ok(MemorySize::Bytes(bytes)) => Ok(bytes),
        Ok(MemorySize::Percent(_)) | Err(_) => Err(ParseFailure::Syntax),
    }
}

fn parse_kind(parser: &mut Parser<'_>) -> ParseResult<PrincipalKind> {
    parser.next_token();
    Ok(if take_word(parser)? == "ROLE" {
        PrincipalKind::Role
    } else {
        PrincipalKind::User
    })
}

fn parse_name(parser: &mut Parser<'_>) -> ParseResult<String> {
    identifier_name(&parser.parse_identifier()?)
}

/// Returns the name that an identifier stands for. Refuses text in single quotes, which sqlparser
/// takes for a name, too.
fn identifier_name(ident: &Ident) -> ParseResult<String> {
    if ident.quote_style == Some('\'') {
        return Err(ParseFailure::Syntax);
    }
    Ok(identifier(ident))
}

/// Takes the next token, which must be a word, and returns it in upper case.
fn take_word(parser: &mut Parser<'_>) -> ParseResult<String> {
    match parser.next_token().token {
        Token::Word(word) => Ok(word.value.to_uppercase()),
        _ => Err(ParseFailure::Syntax),
    }
}

/// Returns whether the next token is this word, and takes the token if so. This compares text,
/// because not all of these words are keywords of sqlparser.
fn take_word_if(parser: &mut Parser<'_>, text: &str) -> bool {
    let is_next = matches!(
        parser.peek_token().token,
        Token::Word(word) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(text)
    );
    if is_next {
        parser.next_token();
    }
    is_next
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::tokenizer::Tokenizer;

    use super::*;

    fn parsed(sql: &str) -> Result<Option<AccessStatement>> {
        let tokens = Tokenizer::new(&GenericDialect {}, sql).tokenize_with_location();
        parse(&tokens.unwrap())
    }

    fn statement(sql: &str) -> AccessStatement {
        parsed(sql)
            .unwrap_or_else(|error| panic!("{sql}: {error}"))
            .unwrap_or_else(|| panic!("{sql}: another statement"))
    }

    #[test]
    fn users_and_roles_are_created_changed_and_dropped() {
        let create = |kind, password: Option<&str>, if_not_exists, admin| AccessStatement::Create {
            kind,
            name: "kea".to_owned(),
            if_not_exists,
            password: password.map(str::to_owned),
            admin,
            limits: LimitChanges::default(),
        };
        let (user, role) = (PrincipalKind::User, PrincipalKind::Role);
        for (sql, expected) in [
            ("CREATE USER kea", create(user, None, false, false)),
            (
                "create user if not exists Kea with password 'it''s' admin;",
                create(user, Some("it's"), true, true),
            ),
            (
                "CREATE USER kea ADMIN PASSWORD 'x'",
                create(user, Some("x"), false, true),
            ),
            (
                "CREATE ROLE \"kea\" NOADMIN",
                create(role, None, false, false),
            ),
        ] {
            assert!(statement(sql) == expected, "{sql}");
        }
        let altered = AccessStatement::Alter {
            kind: user,
            name: "kea".to_owned(),
            password: Some("new".to_owned()),
            admin: Some(false),
            limits: LimitChanges::default(),
        };
        assert!(statement("ALTER USER kea PASSWORD 'new' NOADMIN") == altered);
        let dropped = AccessStatement::Drop {
            kind: role,
            name: "kea".to_owned(),
            if_exists: true,
        };
        assert!(statement("DROP ROLE IF EXISTS kea") == dropped);
    }

    #[test]
    fn grants_are_read() {
        let granted = |grants: Vec<WrittenGrant>, names: &[&str], revoke| AccessStatement::Grant {
            grants,
            names: names.iter().map(|&name| name.to_owned()).collect(),
            is_revoke: revoke,
        };
        let on = |schema: Option<&str>, table: &str, privileges: &[Privilege]| {
            let name = WrittenName::new(schema.map(str::to_owned), table.to_owned());
            WrittenGrant::OnRelation(name, privileges.iter().copied().collect())
        };
        let other = |object: GrantObject, privileges: &[Privilege]| {
            let privileges = privileges.iter().copied().collect();
            WrittenGrant::Other(Grant::Privileges(object, privileges))
        };
        let schema = |name: &str| GrantObject::Schema(name.to_owned());
        let both = [Privilege::Select, Privilege::Insert];
        for (sql, expected) in [
            (
                "GRANT select, INSERT ON TABLE eggs, public.\"Nests\" TO kea, ROLE keas",
                granted(
                    vec![on(None, "eggs", &both), on(Some("public"), "Nests", &both)],
                    &["kea", "keas"],
                    false,
                ),
            ),
            (
                "REVOKE ALL PRIVILEGES ON eggs FROM PUBLIC",
                granted(vec![on(None, "eggs", &both)], &["public"], true),
            ),
            (
                "GRANT SELECT ON ALL TABLES TO kea",
                granted(
                    vec![other(GrantObject::AllTables, &[Privilege::Select])],
                    &["kea"],
                    false,
                ),
            ),
            (
                "GRANT ALL ON ALL TABLES IN SCHEMA staging TO kea",
                granted(vec![other(schema("staging"), &both)], &["kea"], false),
            ),
            (
                "REVOKE CREATE, SELECT ON SCHEMA volary.staging, \"Raw\" FROM kea",
                granted(
                    ["staging", "Raw"]
                        .map(|name| other(schema(name), &[Privilege::Create, Privilege::Select]))
                        .into(),
                    &["kea"],
                    true,
                ),
            ),
            (
                "GRANT CREATE, keas TO kea",
                granted(
                    vec![
                        other(GrantObject::Cluster, &[Privilege::Create]),
                        WrittenGrant::Other(Grant::Role("keas".to_owned())),
                    ],
                    &["kea"],
                    false,
                ),
            ),
        ] {
            assert!(statement(sql) == expected, "{sql}");
        }
    }

    #[test]
    fn tokens_and_owners_are_read() {
        let token = AccessStatement::CreateToken {
            name: "nightly".to_owned(),
            user: Some("kea".to_owned()),
            valid_for: Some(Duration::from_secs(90 * 24 * 60 * 60)),
        };
        assert!(statement("CREATE TOKEN nightly FOR kea VALID FOR '90 days'") == token);
        let owner = AccessStatement::SetOwner {
            table: WrittenName::new(Some("public".to_owned()), "eggs".to_owned()),
            owner: "kea".to_owned(),
        };
        assert!(statement("ALTER TABLE volary.public.eggs OWNER TO kea") == owner);
        let owner = AccessStatement::SetSchemaOwner {
            schema: "staging".to_owned(),
            owner: "kea".to_owned(),
        };
        assert!(statement("ALTER SCHEMA volary.staging OWNER TO kea") == owner);
    }

    #[test]
    fn other_statements_are_not_these() {
        for sql in [
            "",
            "SELECT 1",
            "CREATE TABLE user (k BIGINT)",
            "CREATE VIEW role AS SELECT 1",
            "DROP TABLE token",
            "ALTER TABLE eggs ADD COLUMN k BIGINT",
            "CREATE \"USER\" kea",
        ] {
            assert!(parsed(sql).unwrap().is_none(), "{sql}");
        }
    }

    #[test]
    fn limits_of_users_are_set_and_taken_back() {
        let altered = |max_queries, query_memory| AccessStatement::Alter {
            kind: PrincipalKind::User,
            name: "kea".to_owned(),
            password: None,
            admin: None,
            limits: LimitChanges {
                max_queries,
                query_memory,
            },
        };
        let (same, default) = (LimitChange::Keep, LimitChange::Reset);
        for (options, expected) in [
            ("max_queries 4", altered(LimitChange::Set(4), same)),
            (
                "WITH QUERY_MEMORY '1MiB' MAX_QUERIES DEFAULT",
                altered(default, LimitChange::Set(1 << 20)),
            ),
            ("QUERY_MEMORY DEFAULT", altered(same, default)),
        ] {
            let sql = format!("ALTER USER kea {options}");
            assert!(statement(&sql) == expected, "{sql}");
        }
        for refused in [
            "USER kea MAX_QUERIES",
            "USER kea MAX_QUERIES 0",
            "USER kea MAX_QUERIES -1",
            "USER kea MAX_QUERIES 1 MAX_QUERIES 2",
            "USER kea QUERY_MEMORY 5",
            "USER kea QUERY_MEMORY 'much'",
            "USER kea QUERY_MEMORY '10%'",
            "ROLE kea MAX_QUERIES 4",
        ] {
            let error = parsed(&format!("ALTER {refused}")).err();
            let said = error.map(|error| error.to_string()).unwrap_or_default();
            assert!(
                said.contains("MAX_QUERIES n | DEFAULT"),
                "{refused}: {said}"
            );
        }
    }

    #[test]
    fn what_is_not_understood_is_refused_with_its_form_and_without_a_password() {
        for sql in [
            "CREATE USER",
            "CREATE OR REPLACE USER kea PASSWORD = 'secret'",
            "EXPLAIN CREATE USER kea PASSWORD 'secret'",
            "SET PASSWORD = 'secret'",
            "CREATE USER kea PASSWORD",
            "CREATE USER kea PASSWORD 'secret' SUPERUSER",
            "CREATE USER kea PASSWORD secret",
            "CREATE USER 'secret'",
            "CREATE ROLE kea PASSWORD 'secret'",
            "CREATE USER kea PASSWORD 'secret' PASSWORD 'secret'",
            "CREATE USER kea; DROP TABLE secret",
            "ALTER USER kea",
            "ALTER USER kea RENAME TO 'secret'",
            "DROP USER",
            "DROP USER kea, auk",
            "GRANT SELECT ON eggs",
            "GRANT ON eggs TO kea",
            "GRANT SELECT ON eggs TO kea WITH GRANT OPTION",
            "REVOKE SELECT ON eggs TO kea",
            "CREATE TOKEN t VALID FOR 7",
            "ALTER TABLE eggs OWNER kea",
        ] {
            let error = parsed(sql).unwrap_err().message().to_owned();
            assert!(error.contains("write "), "{sql}: {error}");
            assert!(!error.contains("secret"), "{sql}: {error}");
        }
        let error = parsed("GRANT DELETE ON eggs TO kea").unwrap_err();
        assert!(
            error.message().contains("SELECT, INSERT and ALL"),
            "{error}"
        );
        let error = parsed("GRANT USAGE ON SCHEMA staging TO kea").unwrap_err();
        assert!(
            error.message().contains("SELECT, INSERT, CREATE and ALL"),
            "{error}"
        );
        let error = parsed("CREATE TOKEN t VALID FOR 'soon'").unwrap_err();
        assert!(error.message().contains("90 days"), "{error}");
    }
}
