//! The requests in descriptors are told apart only here. Each call then decides which of them it
//! takes.

use arrow_flight::FlightDescriptor;
use arrow_flight::flight_descriptor::DescriptorType;
use arrow_flight::sql::{
    Command, CommandPreparedStatementQuery, CommandPreparedStatementUpdate, CommandStatementIngest,
    CommandStatementQuery, CommandStatementUpdate, ProstMessageExt,
};
use bytes::Bytes;
use prost::Message;
use volary_flight_proto::lookup::LookupRequest;
use volary_flight_proto::{Error, ErrorCode, Result};

use super::command::{command, parse_any, refuse_transaction, unimplemented};

/// The request in a descriptor.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum DescribedRequest {
    /// A statement as plain SQL text, or the query of all rows of a table that is named by its
    /// path.
    Sql(String),
    /// A statement that returns rows.
    Query(String),
    /// A statement that writes.
    Update(String),
    /// The handle of a prepared statement. A DoPut binds its parameters, and other calls ask for
    /// its rows.
    PreparedQuery(Bytes),
    /// The handle of a prepared statement that writes.
    PreparedUpdate(Bytes),
    /// Rows that are written into a table without a statement.
    Ingest(CommandStatementIngest),
    /// Rows of keys that follow.
    Lookup(LookupRequest),
    /// Any other message. It asks for metadata, or it is refused where its rows are made.
    Listing(Command),
}

impl DescribedRequest {
    /// Reads a descriptor.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the descriptor is neither a message of Flight SQL, nor UTF-8 text, nor
    /// a path of a table, or if it belongs to a transaction. `UNIMPLEMENTED` for a message of
    /// another kind.
    pub(super) fn from_descriptor(descriptor: &FlightDescriptor) -> Result<Self> {
        match descriptor.r#type() {
            DescriptorType::Cmd => Self::from_cmd(&descriptor.cmd),
            DescriptorType::Path => table_sql(&descriptor.path).map(Self::Sql),
            DescriptorType::Unknown => Err(Error::invalid(
                "the flight descriptor has no type; send a command (a Flight SQL message or SQL text) or a path (a table)",
            )),
        }
    }

    fn from_cmd(cmd: &Bytes) -> Result<Self> {
        if let Some(any) = parse_any(cmd) {
            if any.type_url == LookupRequest::TYPE_URL {
                return lookup_request(any.value);
            }
            return Self::from_command(command(any)?);
        }
        match std::str::from_utf8(cmd) {
            Ok(sql) if !sql.trim().is_empty() => Ok(Self::Sql(sql.to_owned())),
            _ => Err(Error::invalid(
                "the descriptor's command is neither a message of Flight SQL nor SQL as UTF-8 text",
            )),
        }
    }

    fn from_command(command: Command) -> Result<Self> {
        Ok(match command {
            Command::CommandStatementQuery(query) => {
                refuse_transaction(query.transaction_id.as_ref())?;
                Self::Query(query.query)
            }
            Command::CommandStatementUpdate(update) => {
                refuse_transaction(update.transaction_id.as_ref())?;
                Self::Update(update.query)
            }
            Command::CommandPreparedStatementQuery(query) => {
                Self::PreparedQuery(query.prepared_statement_handle)
            }
            Command::CommandPreparedStatementUpdate(update) => {
                Self::PreparedUpdate(update.prepared_statement_handle)
            }
            Command::CommandStatementIngest(ingest) => {
                refuse_transaction(ingest.transaction_id.as_ref())?;
                Self::Ingest(ingest)
            }
            other => Self::Listing(other),
        })
    }

    /// Creates the error of a call that does not take the request.
    pub(super) fn unsupported_error(&self) -> Error {
        unimplemented(match self {
            Self::Sql(_) => "SQL text",
            Self::Query(_) => CommandStatementQuery::type_url(),
            Self::Update(_) => CommandStatementUpdate::type_url(),
            Self::PreparedQuery(_) => CommandPreparedStatementQuery::type_url(),
            Self::PreparedUpdate(_) => CommandPreparedStatementUpdate::type_url(),
            Self::Ingest(_) => CommandStatementIngest::type_url(),
            Self::Lookup(_) => LookupRequest::TYPE_URL,
            Self::Listing(command) => command.type_url(),
        })
    }
}

fn lookup_request(message: Bytes) -> Result<DescribedRequest> {
    let request = LookupRequest::decode(message).map_err(|source| {
        Error::with_source(
            ErrorCode::InvalidArgument,
            format!("the message {} cannot be decoded", LookupRequest::TYPE_URL),
            source,
        )
    })?;
    Ok(DescribedRequest::Lookup(request))
}

/// Returns a query of all rows of the table with the path `[table]`, `[schema, table]` or
/// `[catalog, schema, table]`.
///
/// # Errors
/// `INVALID_ARGUMENT` for any other path.
pub(super) fn table_sql(path: &[String]) -> Result<String> {
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
    use super::*;
    use arrow_flight::sql::{Any, CommandGetCatalogs};

    fn cmd(bytes: impl Into<Bytes>) -> Result<DescribedRequest> {
        DescribedRequest::from_descriptor(&FlightDescriptor::new_cmd(bytes))
    }

    fn message(message: &impl ProstMessageExt) -> Result<DescribedRequest> {
        cmd(message.as_any().encode_to_vec())
    }

    fn path(parts: &[&str]) -> Result<DescribedRequest> {
        DescribedRequest::from_descriptor(&FlightDescriptor::new_path(
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
            message(&query).unwrap(),
            DescribedRequest::Query("SELECT 1".to_owned())
        );
        assert!(matches!(
            message(&CommandGetCatalogs {}),
            Ok(DescribedRequest::Listing(Command::CommandGetCatalogs(_)))
        ));
    }

    #[test]
    fn what_belongs_to_a_transaction_is_refused() {
        let transaction_id = Some(Bytes::from_static(b"1"));
        let described = [
            message(&CommandStatementQuery {
                transaction_id: transaction_id.clone(),
                ..CommandStatementQuery::default()
            }),
            message(&CommandStatementUpdate {
                transaction_id: transaction_id.clone(),
                ..CommandStatementUpdate::default()
            }),
            message(&CommandStatementIngest {
                transaction_id: transaction_id.clone(),
                ..CommandStatementIngest::default()
            }),
        ];
        for described in described {
            let error = described.unwrap_err();
            assert!(error.message().contains("no transactions"), "{error}");
        }
    }

    #[test]
    fn a_request_that_is_not_taken_is_named() {
        let update = CommandStatementUpdate::default();
        assert_eq!(
            message(&update).unwrap().unsupported_error().message(),
            "CommandStatementUpdate is not supported here"
        );
        let listing = message(&CommandGetCatalogs {}).unwrap();
        assert_eq!(
            listing.unsupported_error().message(),
            "CommandGetCatalogs is not supported here"
        );
    }

    #[test]
    fn plain_text_is_sql_also_when_it_begins_like_a_message() {
        for sql in ["SELECT 1", "\n SELECT 1", "\n\u{1}x", "-- ä\nSELECT 1"] {
            assert_eq!(cmd(sql).unwrap(), DescribedRequest::Sql(sql.to_owned()));
        }
    }

    #[test]
    fn a_path_is_a_table() {
        assert_eq!(
            path(&["t"]).unwrap(),
            DescribedRequest::Sql("SELECT * FROM \"t\"".to_owned())
        );
        assert_eq!(
            path(&["public", "a\"b"]).unwrap(),
            DescribedRequest::Sql("SELECT * FROM \"public\".\"a\"\"b\"".to_owned())
        );
        assert!(path(&[]).is_err());
        assert!(path(&["a", ""]).is_err());
        assert!(path(&["a", "b", "c", "d"]).is_err());
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        let code = |result: Result<DescribedRequest>| result.unwrap_err().code();
        assert_eq!(code(cmd(vec![0xff, 0xfe])), ErrorCode::InvalidArgument);
        assert_eq!(code(cmd(Vec::new())), ErrorCode::InvalidArgument);
        assert_eq!(
            code(DescribedRequest::from_descriptor(
                &FlightDescriptor::default()
            )),
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
        for damaged in [damaged, LookupRequest::TYPE_URL] {
            assert_eq!(
                code(other(damaged, b"\x0a\xff")),
                ErrorCode::InvalidArgument
            );
        }
    }
}
