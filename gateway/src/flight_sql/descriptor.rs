//! Reads what a descriptor asks for: a message of Flight SQL, plain SQL, or a table by its path.

use arrow_flight::FlightDescriptor;
use arrow_flight::flight_descriptor::DescriptorType;
use arrow_flight::sql::{Any, Command};
use bytes::Bytes;
use prost::Message;
use volary_flight_proto::{Error, ErrorCode, Result};

/// Beginning of the type URL of an `Any`. All messages of Flight SQL travel in an `Any`.
const ANY_TYPE_PREFIX: &str = "type.googleapis.com/";

/// The request in a descriptor.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Described {
    /// A message of Flight SQL.
    Command(Command),
    /// A statement, as SQL text.
    Sql(String),
}

/// Reads a descriptor.
///
/// # Errors
/// `INVALID_ARGUMENT` if the descriptor is neither a message of Flight SQL, nor UTF-8 text, nor a
/// path of a table. `UNIMPLEMENTED` for a message of another kind.
pub(super) fn parse(descriptor: &FlightDescriptor) -> Result<Described> {
    match descriptor.r#type() {
        DescriptorType::Cmd => parse_cmd(&descriptor.cmd),
        DescriptorType::Path => table_sql(&descriptor.path).map(Described::Sql),
        DescriptorType::Unknown => Err(Error::invalid(
            "the flight descriptor has no type; send a command (a Flight SQL message or SQL text) or a path (a table)",
        )),
    }
}

fn parse_cmd(cmd: &Bytes) -> Result<Described> {
    if let Some(any) = parse_any(cmd) {
        return command(any).map(Described::Command);
    }
    match std::str::from_utf8(cmd) {
        Ok(sql) if !sql.trim().is_empty() => Ok(Described::Sql(sql.to_owned())),
        _ => Err(Error::invalid(
            "the descriptor's command is neither a message of Flight SQL nor SQL as UTF-8 text",
        )),
    }
}

/// Returns the `Any` in `bytes`, if there is one.
pub(super) fn parse_any(bytes: &Bytes) -> Option<Any> {
    Any::decode(bytes.clone())
        .ok()
        .filter(|any| any.type_url.starts_with(ANY_TYPE_PREFIX))
}

/// Returns the message of Flight SQL in an `Any`.
///
/// # Errors
/// `INVALID_ARGUMENT` if the message is damaged. `UNIMPLEMENTED` for a message of another kind.
pub(super) fn command(any: Any) -> Result<Command> {
    let type_url = any.type_url.clone();
    match Command::try_from(any) {
        Ok(Command::Unknown(any)) => Err(unimplemented(&any.type_url)),
        Ok(command) => Ok(command),
        Err(source) => Err(Error::with_source(
            ErrorCode::InvalidArgument,
            format!("the message {type_url} cannot be decoded"),
            source,
        )),
    }
}

/// Creates the error for a part of the protocol that is not supported.
pub(super) fn unimplemented(what: &str) -> Error {
    let name = what.rsplit(['.', '/']).next().unwrap_or(what);
    Error::new(
        ErrorCode::Unimplemented,
        match name {
            "CommandStatementSubstraitPlan" | "ActionCreatePreparedSubstraitPlanRequest" => {
                "Substrait plans are not supported; send SQL".to_owned()
            }
            _ => format!("{name} is not supported here"),
        },
    )
}

/// Refuses a statement that claims to be part of a transaction. Transactions do not exist here:
/// each statement commits by itself.
///
/// # Errors
/// `INVALID_ARGUMENT` if the id of a transaction is given.
pub(super) fn refuse_transaction(id: Option<&Bytes>) -> Result<()> {
    match id {
        Some(id) if !id.is_empty() => Err(Error::invalid(
            "there are no transactions: each statement commits by itself; connect with autocommit on",
        )),
        _ => Ok(()),
    }
}

/// Returns a query of all rows of the table with the path `[table]`, `[schema, table]` or
/// `[catalog, schema, table]`.
fn table_sql(path: &[String]) -> Result<String> {
    if path.is_empty() || path.len() > 3 || path.iter().any(String::is_empty) {
        return Err(Error::invalid(
            "the descriptor's path names no table; send [table], [schema, table] or [catalog, schema, table]",
        ));
    }
    let quoted: Vec<_> = path
        .iter()
        .map(|part| format!("\"{}\"", part.replace('"', "\"\"")))
        .collect();
    Ok(format!("SELECT * FROM {}", quoted.join(".")))
}

#[cfg(test)]
mod tests {
    use arrow_flight::sql::{CommandGetCatalogs, CommandStatementQuery, ProstMessageExt};

    use super::*;

    fn cmd(bytes: impl Into<Bytes>) -> Result<Described> {
        parse(&FlightDescriptor::new_cmd(bytes))
    }

    fn path(parts: &[&str]) -> Result<Described> {
        parse(&FlightDescriptor::new_path(
            parts.iter().map(|&part| part.to_owned()).collect(),
        ))
    }

    #[test]
    fn a_message_of_flight_sql_is_read() {
        let query = CommandStatementQuery {
            query: "SELECT 1".to_owned(),
            transaction_id: None,
        };
        assert_eq!(
            cmd(query.as_any().encode_to_vec()).unwrap(),
            Described::Command(Command::CommandStatementQuery(query))
        );
        let catalogs = CommandGetCatalogs {}.as_any().encode_to_vec();
        assert!(matches!(cmd(catalogs), Ok(Described::Command(_))));
    }

    #[test]
    fn plain_text_is_sql_also_when_it_begins_like_a_message() {
        for sql in ["SELECT 1", "\n SELECT 1", "\n\u{1}x", "-- ä\nSELECT 1"] {
            assert_eq!(cmd(sql).unwrap(), Described::Sql(sql.to_owned()));
        }
    }

    #[test]
    fn a_path_is_a_table() {
        assert_eq!(
            path(&["t"]).unwrap(),
            Described::Sql("SELECT * FROM \"t\"".to_owned())
        );
        assert_eq!(
            path(&["public", "a\"b"]).unwrap(),
            Described::Sql("SELECT * FROM \"public\".\"a\"\"b\"".to_owned())
        );
        assert!(path(&[]).is_err());
        assert!(path(&["a", ""]).is_err());
        assert!(path(&["a", "b", "c", "d"]).is_err());
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        let code = |result: Result<Described>| result.unwrap_err().code();
        assert_eq!(code(cmd(vec![0xff, 0xfe])), ErrorCode::InvalidArgument);
        assert_eq!(code(cmd(Vec::new())), ErrorCode::InvalidArgument);
        assert_eq!(
            code(parse(&FlightDescriptor::default())),
            ErrorCode::InvalidArgument
        );
        let other = |type_url: &str, value: &'static [u8]| {
            let type_url = type_url.to_owned();
            cmd(Any {
                type_url,
                value: value.into(),
            }
            .encode_to_vec())
        };
        assert_eq!(
            code(other("type.googleapis.com/other.Message", b"")),
            ErrorCode::Unimplemented
        );
        let damaged = "type.googleapis.com/arrow.flight.protocol.sql.CommandStatementQuery";
        assert_eq!(
            code(other(damaged, b"\x0a\xff")),
            ErrorCode::InvalidArgument
        );
    }

    #[test]
    fn a_transaction_is_refused_and_an_empty_id_is_none() {
        assert!(refuse_transaction(None).is_ok());
        assert!(refuse_transaction(Some(&Bytes::new())).is_ok());
        assert!(refuse_transaction(Some(&Bytes::from_static(b"1"))).is_err());
    }
}
