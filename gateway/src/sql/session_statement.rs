use datafusion::sql::sqlparser::ast::{
    DiscardObject, Expr, Set, ShowStatementFilter, ShowStatementFilterPosition,
    ShowStatementInParentType, ShowStatementOptions, Statement as Ast, TransactionAccessMode,
    TransactionIsolationLevel, TransactionMode, Value,
};
use volary_flight_proto::{Error, Result, SqlState};

use super::names::{identifier, name_in_public, schema_name};
use super::show_functions;

/// A statement about the session that other databases have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionStatement {
    /// Changes a setting. `None` resets the setting to its default.
    Change {
        /// One of the setting's names.
        name: &'static str,
        /// The new value.
        value: Option<String>,
    },
    /// RESET ALL.
    ResetAll,
    /// DISCARD ALL of connection pools, and DISCARD TEMP.
    Discard {
        /// Says whether all settings are reset. Temporary tables are always dropped.
        resets_settings: bool,
    },
    /// SET TRANSACTION READ ONLY or READ WRITE, for the transaction that has begun.
    SetTransaction {
        /// Says whether the transaction refuses writes.
        is_read_only: bool,
    },
    /// USE of a schema or a catalog.
    Use(Vec<String>),
    /// A statement that asks for what always holds, such as SET NAMES 'utf8'.
    Nothing,
}

/// The setting that refuses writes.
const READ_ONLY: &str = "read_only";

/// Settings of PostgreSQL that its tools send, and that change nothing here: what the client calls
/// itself, which notices it wants, how many digits of a float it reads, and how long it waits for
/// locks.
const WITHOUT_EFFECT: [&str; 5] = [
    "application_name",
    "client_min_messages",
    "extra_float_digits",
    "idle_in_transaction_session_timeout",
    "lock_timeout",
];

/// Converts a statement, if it is about the session and DataFusion does not plan it. Returns `None`
/// for other statements.
///
/// # Errors
/// `INVALID_ARGUMENT` for what a session cannot be or have.
pub(super) fn convert(ast: &Ast) -> Result<Option<SessionStatement>> {
    Ok(Some(match ast {
        Ast::Set(Set::SetTimeZone { value, .. }) => SessionStatement::Change {
            name: "time_zone",
            value: time_zone(value)?,
        },
        Ast::Set(Set::SetNames { charset_name, .. }) => {
            check_charset(&charset_name.value)?;
            SessionStatement::Nothing
        }
        Ast::Set(Set::SetNamesDefault {}) => SessionStatement::Nothing,
        Ast::Set(Set::SetTransaction { modes, session, .. }) => {
            match (access_mode(modes)?, session) {
                (None, _) => SessionStatement::Nothing,
                (Some(is_read_only), true) => SessionStatement::Change {
                    name: READ_ONLY,
                    value: is_read_only.then(|| "true".to_owned()),
                },
                (Some(is_read_only), false) => SessionStatement::SetTransaction { is_read_only },
            }
        }
        Ast::Set(Set::SingleAssignment {
            variable, values, ..
        }) if name_in_public(variable).is_some_and(|name| name == "search_path") => {
            SessionStatement::Use(search_path(values)?)
        }
        Ast::Set(Set::SingleAssignment { variable, .. })
            if name_in_public(variable)
                .is_some_and(|name| WITHOUT_EFFECT.contains(&name.as_str())) =>
        {
            SessionStatement::Nothing
        }
        Ast::Set(Set::SingleAssignment {
            variable, values, ..
        }) if name_in_public(variable).is_some_and(|name| name == "client_encoding") => {
            for value in values {
                check_charset(&value.to_string())?;
            }
            SessionStatement::Nothing
        }
        Ast::Discard { object_type } => match object_type {
            DiscardObject::ALL => SessionStatement::Discard {
                resets_settings: true,
            },
            DiscardObject::TEMP => SessionStatement::Discard {
                resets_settings: false,
            },
            // There are no sequences, and plans that are kept are always up to date.
            DiscardObject::PLANS | DiscardObject::SEQUENCES => SessionStatement::Nothing,
        },
        _ => return Ok(None),
    }))
}

/// Returns the query that answers a SHOW that DataFusion does not know. Returns `None` for other
/// statements.
///
/// # Errors
/// `INVALID_ARGUMENT` for parts of a SHOW that are not supported.
pub(super) fn query_of_show(ast: &Ast) -> Result<Option<String>> {
    let (column, from, show_options) = match ast {
        Ast::ShowSchemas { show_options, .. } => {
            ("schema_name", "information_schema.schemata", show_options)
        }
        Ast::ShowDatabases { show_options, .. } | Ast::ShowCatalogs { show_options, .. } => (
            "DISTINCT catalog_name",
            "information_schema.schemata",
            show_options,
        ),
        Ast::ShowViews { show_options, .. } if show_options.show_in.is_none() => {
            ("table_name", "information_schema.views", show_options)
        }
        Ast::ShowFunctions { filter } => return show_functions::query(filter.as_ref()).map(Some),
        Ast::ShowVariable { variable } => {
            let name: Vec<_> = variable.iter().map(identifier).collect();
            return Ok(answer_of_variable(&name.join("_")));
        }
        _ => return Ok(None),
    };
    let name = column.trim_start_matches("DISTINCT ");
    let filter = filter(name, show_options)?;
    Ok(Some(format!(
        "SELECT {column} FROM {from}{filter} ORDER BY {name}"
    )))
}

/// A SHOW that lists what is in one schema.
#[derive(Debug)]
pub(crate) struct ShowInSchema {
    /// Name of the schema.
    pub(crate) schema: String,
    /// The query that answers the SHOW.
    pub(crate) query: String,
}

/// Returns the schema and the query of SHOW TABLES IN or SHOW VIEWS IN. Returns `None` for other
/// statements.
///
/// # Errors
/// `INVALID_ARGUMENT` for parts of a SHOW that are not supported. `NOT_FOUND` for another catalog.
pub(crate) fn show_in_schema(ast: &Ast) -> Result<Option<ShowInSchema>> {
    let (columns, from, options) = match ast {
        Ast::ShowTables { show_options, .. } => ("*", "tables WHERE", show_options),
        // The list of views has tables, too, without a definition.
        Ast::ShowViews { show_options, .. } => ("table_name", "views WHERE", show_options),
        _ => return Ok(None),
    };
    let Some(parent) = &options.show_in else {
        return Ok(None);
    };
    let schema = match (&parent.parent_type, &parent.parent_name) {
        (None | Some(ShowStatementInParentType::Schema), Some(name)) => schema_name(name)?,
        _ => {
            return Err(Error::unsupported(
                "SHOW … IN takes the name of a schema, and nothing else",
            ));
        }
    };
    let filter = filter("table_name", options)?;
    let filter = filter.replacen(" WHERE ", " AND ", 1);
    let in_schema = schema.replace('\'', "''");
    let query = format!(
        "SELECT {columns} FROM information_schema.{from} table_schema = '{in_schema}'{filter} ORDER BY table_name"
    );
    Ok(Some(ShowInSchema { schema, query }))
}

/// Returns the query for a variable that other databases have and whose value never changes.
fn answer_of_variable(name: &str) -> Option<String> {
    let value = match name {
        "search_path" => "current_schema()",
        "server_version" => "version()",
        "transaction_isolation_level" | "transaction_isolation" => "'read committed'",
        "server_encoding" | "client_encoding" => "'UTF8'",
        _ => return None,
    };
    Some(format!("SELECT '{name}' AS name, {value} AS value"))
}

fn filter(column: &str, options: &ShowStatementOptions) -> Result<String> {
    if options.starts_with.is_some() || options.limit.is_some() || options.limit_from.is_some() {
        return Err(Error::unsupported(
            "SHOW takes only LIKE 'pattern'; query information_schema for other filters",
        ));
    }
    match &options.filter_position {
        None => Ok(String::new()),
        Some(
            ShowStatementFilterPosition::Infix(filter)
            | ShowStatementFilterPosition::Suffix(filter),
        ) => match filter {
            ShowStatementFilter::Like(pattern) => Ok(format!(
                " WHERE {column} LIKE '{}'",
                pattern.replace('\'', "''")
            )),
            ShowStatementFilter::ILike(pattern) => Ok(format!(
                " WHERE {column} ILIKE '{}'",
                pattern.replace('\'', "''")
            )),
            _ => Err(Error::unsupported(
                "SHOW takes only LIKE 'pattern'; query information_schema for other filters",
            )),
        },
    }
}

/// Returns the zone of SET TIME ZONE, or `None` for LOCAL and DEFAULT.
fn time_zone(value: &Expr) -> Result<Option<String>> {
    match value {
        Expr::Identifier(name)
            if ["local", "default"].contains(&name.value.to_ascii_lowercase().as_str()) =>
        {
            Ok(None)
        }
        Expr::Identifier(name) => Ok(Some(name.value.clone())),
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(zone) | Value::DoubleQuotedString(zone) => {
                Ok(Some(zone.clone()))
            }
            _ => Err(no_time_zone()),
        },
        _ => Err(no_time_zone()),
    }
}

fn no_time_zone() -> Error {
    Error::invalid(
        "SET TIME ZONE takes a name in quotes such as 'Europe/Berlin', an offset such as '+02:00', LOCAL or DEFAULT",
    )
    .with_sqlstate(SqlState::InvalidParameterValue)
}

fn check_charset(name: &str) -> Result<()> {
    let plain: String = name
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .map(|char| char.to_ascii_lowercase())
        .collect();
    match plain.as_str() {
        "utf8" | "utf8mb4" | "unicode" | "default" => Ok(()),
        _ => Err(Error::invalid(format!(
            "text is in UTF-8, not in {name}; write SET NAMES 'UTF8', or leave the statement out"
        ))
        .with_sqlstate(SqlState::InvalidParameterValue)),
    }
}

/// Returns whether the modes of a transaction say that it is read-only. Returns `None` if they do
/// not say it.
///
/// # Errors
/// `INVALID_ARGUMENT` for an isolation level that promises more than that each statement reads what
/// was committed when it began.
pub(super) fn access_mode(modes: &[TransactionMode]) -> Result<Option<bool>> {
    let mut is_read_only = None;
    for mode in modes {
        match mode {
            TransactionMode::IsolationLevel(
                TransactionIsolationLevel::ReadUncommitted
                | TransactionIsolationLevel::ReadCommitted,
            ) => {}
            TransactionMode::IsolationLevel(level) => {
                return Err(Error::unsupported(format!(
                    "the isolation level {level} is not supported: each statement reads what was committed when it began, which is READ COMMITTED"
                )));
            }
            TransactionMode::AccessMode(access) => {
                is_read_only = Some(matches!(access, TransactionAccessMode::ReadOnly));
            }
        }
    }
    Ok(is_read_only)
}

/// Returns the only schema of a search path.
fn search_path(values: &[Expr]) -> Result<Vec<String>> {
    let mut schemas = Vec::new();
    for value in values {
        let name = match value {
            Expr::Identifier(name) => identifier(name),
            Expr::Value(value) => match &value.value {
                Value::SingleQuotedString(text) => text.clone(),
                _ => value.to_string(),
            },
            other => other.to_string(),
        };
        schemas.extend(name.split(',').map(|name| name.trim().to_owned()));
    }
    // PostgreSQL looks first into a schema with the name of the user, which need not exist.
    schemas.retain(|name| !matches!(name.as_str(), "$user" | "\"$user\"" | "default" | ""));
    if schemas.len() > 1 {
        return Err(Error::unsupported(
            "a search path of several schemas is not supported; name one",
        ));
    }
    Ok(schemas)
}

#[cfg(test)]
mod tests {
    use datafusion::sql::parser::Statement as DfStatement;

    use super::*;
    use crate::sql::parse::{Statement, parse};

    fn converted(sql: &str) -> Result<SessionStatement> {
        match parse(sql)? {
            Statement::Session(statement) => Ok(statement),
            other => panic!("another statement: {other:?}"),
        }
    }

    fn change(name: &'static str, value: Option<&str>) -> SessionStatement {
        SessionStatement::Change {
            name,
            value: value.map(str::to_owned),
        }
    }

    #[test]
    fn statements_of_other_databases_are_understood() {
        for (sql, expected) in [
            (
                "SET TIME ZONE 'Europe/Berlin'",
                change("time_zone", Some("Europe/Berlin")),
            ),
            ("SET TIME ZONE LOCAL", change("time_zone", None)),
            (
                "SET TRANSACTION ISOLATION LEVEL READ COMMITTED",
                SessionStatement::Nothing,
            ),
            (
                "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
                change(READ_ONLY, Some("true")),
            ),
            (
                "SET TRANSACTION READ WRITE",
                SessionStatement::SetTransaction {
                    is_read_only: false,
                },
            ),
            ("RESET ALL", SessionStatement::ResetAll),
            (
                "DISCARD ALL",
                SessionStatement::Discard {
                    resets_settings: true,
                },
            ),
            (
                "DISCARD TEMP",
                SessionStatement::Discard {
                    resets_settings: false,
                },
            ),
            ("DISCARD PLANS", SessionStatement::Nothing),
            ("SET NAMES 'UTF-8'", SessionStatement::Nothing),
            (
                "SET search_path TO \"$user\", public",
                SessionStatement::Use(vec!["public".to_owned()]),
            ),
            (
                "SET SCHEMA 'public'",
                SessionStatement::Use(vec!["public".to_owned()]),
            ),
        ] {
            assert_eq!(converted(sql).unwrap(), expected, "{sql}");
        }
        for sql in [
            "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
            "SET NAMES 'latin1'",
            "SET TIME ZONE 1 + 1",
            "SET search_path TO a, b",
        ] {
            assert!(parse(sql).is_err(), "{sql}");
        }
    }

    #[test]
    fn shows_of_other_databases_are_queries() {
        for (sql, expected) in [
            (
                "SHOW SCHEMAS",
                "SELECT schema_name FROM information_schema.schemata ORDER BY schema_name",
            ),
            (
                "SHOW VIEWS LIKE 'a''%'",
                "SELECT table_name FROM information_schema.views WHERE table_name LIKE 'a''%' ORDER BY table_name",
            ),
            (
                "SHOW search_path",
                "SELECT 'search_path' AS name, current_schema() AS value",
            ),
        ] {
            match parse(sql).unwrap() {
                Statement::Planned(statement) => assert_eq!(statement.to_string(), expected),
                other => panic!("another statement: {other:?}"),
            }
        }
        assert!(parse("SHOW SCHEMAS STARTS WITH 'a'").is_err());
    }

    #[test]
    fn shows_of_one_schema_are_queries() {
        let shown = |sql: &str| match parse(sql).unwrap() {
            Statement::Planned(statement) => match *statement {
                DfStatement::Statement(ast) => show_in_schema(&ast),
                other => panic!("another statement: {other}"),
            },
            other => panic!("another statement: {other:?}"),
        };
        for (sql, schema, expected) in [
            (
                "SHOW TABLES FROM Staging",
                "staging",
                "SELECT * FROM information_schema.tables WHERE table_schema = 'staging' ORDER BY table_name",
            ),
            (
                "SHOW TABLES IN SCHEMA volary.\"it's\" LIKE 'e%'",
                "it's",
                "SELECT * FROM information_schema.tables WHERE table_schema = 'it''s' AND table_name LIKE 'e%' ORDER BY table_name",
            ),
            (
                "SHOW VIEWS IN staging",
                "staging",
                "SELECT table_name FROM information_schema.views WHERE table_schema = 'staging' ORDER BY table_name",
            ),
        ] {
            let show = shown(sql).unwrap().unwrap();
            assert_eq!(
                (show.schema.as_str(), show.query.as_str()),
                (schema, expected)
            );
        }
        assert!(shown("SHOW TABLES").unwrap().is_none());
        assert!(shown("SHOW TABLES IN moon.staging").is_err());
    }
}
