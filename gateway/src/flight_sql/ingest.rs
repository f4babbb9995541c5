//! The functions `adbc_ingest`, pandas' `to_sql` and polars' `write_database` send a
//! CommandStatementIngest.

use std::collections::HashMap;

use arrow_flight::sql::{
    CommandStatementIngest, TableDefinitionOptions, TableExistsOption, TableNotExistOption,
};
use futures::stream::{self, StreamExt, TryStreamExt};
use tonic::metadata::{KeyAndValueRef, MetadataMap};
use volary_flight_proto::ids::QueryId;
use volary_flight_proto::{Error, Result};

use super::FlightSql;
use super::call::ClientCall;
use super::upload::UploadedBatches;
use crate::engine::{IfTableExists, IncomingRows, IngestTarget};
use crate::sql::names::{WrittenName, check_catalog};

/// Beginning of the names of headers that carry an option of a new table, such as
/// `volary-ingest-shard_key`.
const OPTION: &str = "volary-ingest-";

/// Returns the text that is listed as the statement while rows are ingested.
pub(super) fn statement_text(ingest: &IngestTarget) -> String {
    format!("INGEST INTO {}", ingest.table)
}

impl FlightSql {
    /// Writes the rows as a statement of its own, and returns their number.
    pub(super) async fn ingest(
        &self,
        call: &ClientCall,
        ingest: IngestTarget,
        batches: UploadedBatches,
    ) -> Result<u64> {
        let (id, text) = (QueryId::new(), statement_text(&ingest));
        let ingesting = self.ingest_rows(call, id, ingest, batches);
        self.run_listed(call, id, &text, ingesting).await
    }

    /// Writes the rows and returns their number.
    pub(super) async fn ingest_rows(
        &self,
        call: &ClientCall,
        id: QueryId,
        ingest: IngestTarget,
        mut batches: UploadedBatches,
    ) -> Result<u64> {
        // Waits for the first batch, because the schema is known only then. The schema is also read
        // if no batch follows it.
        let first = call.deadline.run_until(batches.try_next()).await?;
        let schema = batches.schema().ok_or_else(|| {
            Error::invalid("the rows to ingest have no schema; send it in the first message")
        })?;
        let rows = IncomingRows {
            schema,
            batches: stream::iter(first.map(Ok)).chain(batches).boxed(),
        };
        let session = &call.session.engine;
        Box::pin(self.engine.ingest(session, ingest, rows, id)).await
    }
}

/// Returns the options of a new table that the headers carry. Drivers have no other way to send
/// them.
///
/// # Errors
/// `INVALID_ARGUMENT` if the value of an option is not text.
pub(super) fn header_options(metadata: &MetadataMap) -> Result<HashMap<String, String>> {
    let headers = metadata.iter().filter_map(|header| match header {
        KeyAndValueRef::Ascii(name, value) => Some((name.as_str().strip_prefix(OPTION)?, value)),
        KeyAndValueRef::Binary(..) => None,
    });
    headers
        .map(|(option, value)| {
            let value = value
                .to_str()
                .map_err(|_| Error::invalid(format!("the header {OPTION}{option} is not text")))?;
            Ok((option.to_owned(), value.to_owned()))
        })
        .collect()
}

/// Reads an ingest command. The headers supply the options that the command does not set.
///
/// # Errors
/// `INVALID_ARGUMENT` for a request that is not supported. `NOT_FOUND` for another catalog.
pub(super) fn parse_command(
    command: CommandStatementIngest,
    header_options: HashMap<String, String>,
) -> Result<IngestTarget> {
    if command.table.is_empty() {
        return Err(Error::invalid(
            "the ingest command names no table; name one",
        ));
    }
    let is_named = |name: &String| !name.is_empty();
    if let Some(catalog) = command.catalog.filter(is_named) {
        check_catalog(&catalog)?;
    }
    let definition = command.table_definition_options.unwrap_or_default();
    let mut options = command.options;
    for (option, value) in header_options {
        options.entry(option).or_insert(value);
    }
    Ok(IngestTarget {
        table: WrittenName::new(command.schema.filter(is_named), command.table),
        is_temporary: command.temporary,
        creates_table: creates_table(&definition)?,
        if_exists: if_exists(&definition)?,
        options,
    })
}

fn creates_table(options: &TableDefinitionOptions) -> Result<bool> {
    match options.if_not_exist() {
        TableNotExistOption::Create => Ok(true),
        TableNotExistOption::Fail => Ok(false),
        TableNotExistOption::Unspecified => Err(unspecified_option("if_not_exist")),
    }
}

fn if_exists(options: &TableDefinitionOptions) -> Result<IfTableExists> {
    match options.if_exists() {
        TableExistsOption::Fail => Ok(IfTableExists::Fail),
        TableExistsOption::Append => Ok(IfTableExists::Append),
        TableExistsOption::Replace => Ok(IfTableExists::Replace),
        TableExistsOption::Unspecified => Err(unspecified_option("if_exists")),
    }
}

fn unspecified_option(option: &str) -> Error {
    Error::invalid(format!(
        "the option {option} of the table to ingest into is not specified; say whether it is created, appended to or replaced"
    ))
}

#[cfg(test)]
mod tests {
    use volary_flight_proto::ErrorCode;

    use super::*;

    fn command() -> CommandStatementIngest {
        CommandStatementIngest {
            table_definition_options: Some(TableDefinitionOptions {
                if_not_exist: TableNotExistOption::Create.into(),
                if_exists: TableExistsOption::Append.into(),
            }),
            table: "birds".to_owned(),
            ..CommandStatementIngest::default()
        }
    }

    #[test]
    fn a_command_is_read() {
        let command = CommandStatementIngest {
            catalog: Some("volary".to_owned()),
            schema: Some(String::new()),
            ..command()
        };
        let ingest = parse_command(command, HashMap::new()).unwrap();
        assert!(ingest.creates_table);
        assert_eq!(ingest.if_exists, IfTableExists::Append);
        assert_eq!(ingest.table.to_string(), "birds");
        assert!(!ingest.is_temporary);
        let command = CommandStatementIngest {
            schema: Some("nests".to_owned()),
            temporary: true,
            ..self::command()
        };
        let ingest = parse_command(command, HashMap::new()).unwrap();
        assert_eq!(ingest.table.to_string(), "nests.birds");
        assert!(ingest.is_temporary);
    }

    #[test]
    fn options_are_read_from_headers() {
        let mut metadata = MetadataMap::new();
        metadata.insert("volary-ingest-shard_key", "k".parse().unwrap());
        metadata.insert("volary-types", "native".parse().unwrap());
        let expected = HashMap::from([("shard_key".to_owned(), "k".to_owned())]);
        assert_eq!(header_options(&metadata).unwrap(), expected);
    }

    #[test]
    fn what_cannot_be_done_is_refused() {
        let code = |command| parse_command(command, HashMap::new()).unwrap_err().code();
        let invalid = [
            CommandStatementIngest {
                table: String::new(),
                ..command()
            },
            CommandStatementIngest {
                table_definition_options: None,
                ..command()
            },
        ];
        for command in invalid {
            assert_eq!(code(command), ErrorCode::InvalidArgument);
        }
        let elsewhere = CommandStatementIngest {
            catalog: Some("moon".to_owned()),
            ..command()
        };
        assert_eq!(code(elsewhere), ErrorCode::NotFound);
    }
}
