//! The functions `adbc_ingest`, pandas' `to_sql` and polars' `write_database` send a
//! CommandStatementIngest.

use std::collections::HashMap;

use arrow_flight::sql::{
    CommandStatementIngest, TableDefinitionOptions, TableExistsOption, TableNotExistOption,
};
use futures::stream::{self, StreamExt, TryStreamExt};
use tonic::metadata::{KeyAndValueRef, MetadataMap};
use volary_catalog::ProducerName;
use volary_flight_proto::ids::QueryId;
use volary_flight_proto::{Error, Result};

use super::FlightSql;
use super::call::ClientCall;
use super::client_option::is_on;
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

/// The option that makes an ingest command a stream of batches.
const STREAM: &str = "stream";
/// The option of a stream that names its producer.
const PRODUCER: &str = "producer";
/// The option of a stream that goes on after a batch whose rows are refused.
const CONTINUE: &str = "continue";

/// A stream of batches that a client opens.
#[derive(Debug)]
pub(super) struct StreamRequest {
    /// The name of the table.
    pub(super) table: WrittenName,
    /// The producer of the batches. `None` if they are not recognised when they are sent again.
    pub(super) producer: Option<ProducerName>,
    /// Says whether the stream goes on after a batch whose rows are refused.
    pub(super) goes_on: bool,
}

/// Returns the stream that a command asks for, or `None` if the command ingests rows at once.
///
/// # Errors
/// `INVALID_ARGUMENT` for an option that a stream does not have, or that has a wrong value.
pub(super) fn stream_request(ingest: &IngestTarget) -> Result<Option<StreamRequest>> {
    let option = |name: &str| ingest.options.get(name);
    let is_set = |name| match option(name) {
        Some(text) => is_on(&format!("{OPTION}{name}"), text),
        None => Ok(false),
    };
    if !is_set(STREAM)? {
        return Ok(None);
    }
    if ingest.creates_table || ingest.is_temporary || ingest.if_exists != IfTableExists::Append {
        return Err(Error::invalid(
            "a stream of batches appends to a table that exists; create the table first, and send the command with if_not_exist = FAIL and if_exists = APPEND",
        ));
    }
    let known = [STREAM, PRODUCER, CONTINUE];
    if let Some(unknown) = ingest
        .options
        .keys()
        .find(|name| !known.contains(&name.as_str()))
    {
        return Err(Error::invalid(format!(
            "a stream of batches has no option \"{unknown}\"; its options are {}",
            known.join(", ")
        )));
    }
    let producer = option(PRODUCER).map(|name| {
        ProducerName::parse(
            &format!("the producer of the stream ({OPTION}{PRODUCER})"),
            name,
        )
    });
    Ok(Some(StreamRequest {
        table: ingest.table.clone(),
        producer: producer.transpose()?,
        goes_on: is_set(CONTINUE)?,
    }))
}

/// Returns the text that is listed as the statement while a stream is open.
pub(super) fn stream_text(stream: &StreamRequest) -> String {
    format!("INGEST STREAM INTO {}", stream.table)
}

impl FlightSql {
    /// Writes the rows as a statement of its own, and returns their number.
    pub(super) async fn ingest(
        &self,
        call: &ClientCall,
        ingest: IngestTarget,
        batches: UploadedBatches,
    ) -> Result<u64> {
        if stream_request(&ingest)?.is_some() {
            return Err(Error::invalid(
                "a stream of batches needs a DoExchange, in which the gateway answers each batch; open one, or leave the option \"stream\" out",
            ));
        }
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
    fn a_stream_appends_to_a_table_and_has_options_of_its_own() {
        let ingest = |options: &[(&str, &str)]| IngestTarget {
            table: WrittenName::new(None, "birds".to_owned()),
            creates_table: false,
            if_exists: IfTableExists::Append,
            is_temporary: false,
            options: options
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
        };
        assert!(stream_request(&ingest(&[])).unwrap().is_none());
        assert!(
            stream_request(&ingest(&[("stream", "off")]))
                .unwrap()
                .is_none()
        );
        let all = [("stream", "true"), ("producer", "kea"), ("continue", "on")];
        let stream = stream_request(&ingest(&all)).unwrap().unwrap();
        assert_eq!(stream.producer.as_ref().unwrap().as_str(), "kea");
        assert!(stream.goes_on);
        assert_eq!(stream_text(&stream), "INGEST STREAM INTO birds");
        for (wrong, part) in [
            (
                [("stream", "yes")].as_slice(),
                "volary-ingest-stream is \"yes\"",
            ),
            (&[("stream", "on"), ("shards", "4")], "no option \"shards\""),
            (
                &[("stream", "on"), ("producer", "")],
                "volary-ingest-producer",
            ),
            (
                &[("stream", "on"), ("continue", "1")],
                "volary-ingest-continue",
            ),
        ] {
            let error = stream_request(&ingest(wrong)).unwrap_err();
            assert!(error.message().contains(part), "{error}");
        }
        let creating = IngestTarget {
            creates_table: true,
            ..ingest(&[("stream", "on")])
        };
        let error = stream_request(&creating).unwrap_err();
        assert!(
            error.message().contains("create the table first"),
            "{error}"
        );
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
