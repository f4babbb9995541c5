//! Flight SQL needs two calls for a query, and five for a query with parameters. In a DoExchange,
//! the descriptor of the first message holds the statement, and the rows of the client's stream are
//! its parameters: one row, or any number of rows for a statement that writes. The client then
//! closes its side of the stream. The answer is a note, the rows, and a note with the time and
//! resources that the statement took.

/// Adds notes to a stream of rows: the statement's id, its progress, and the time and resources
/// that it took.
mod annotated_stream;
/// Passes answers to a client that streams batches.
mod answer_channel;
/// Defines the notes of a stream of batches, in both directions.
mod batch_notes;
/// Reads batches that a client streams, and answers each of them.
mod batch_stream;
/// Tells streams when something other than their client ends them.
mod endings;
/// Reads batches of keys that a client streams, and answers each of them with the rows of its keys.
mod lookup_stream;
/// Defines the notes that are sent beside the rows.
mod note;
/// Keeps the credentials of calls that go on, and checks them again.
mod open_login;
/// Defines the statistics in the last note of a statement.
mod statistics;

use std::collections::HashMap;

use arrow::record_batch::RecordBatch;
use arrow_flight::sql::Command;
use arrow_flight::{FlightData, FlightDescriptor, FlightInfo};
use futures::stream::{self, Stream, StreamExt, TryStreamExt};
use tonic::Status;
use tracing::Instrument;
use volary_flight_proto::ids::QueryId;
use volary_flight_proto::{Error, ErrorCode, Result};

use self::annotated_stream::AnnotatedStream;
pub(super) use self::annotated_stream::ProgressNotes;
use self::note::Note;
use super::FlightSql;
use super::call::ClientCall;
use super::descriptor::DescribedRequest;
use super::direct_option::DirectResults;
use super::ingest::{self, StreamRequest};
use super::lookup;
use super::statement::{ClientStatement, batch_to_bytes, query_ticket, record_count};
use super::stream::with_query_id;
use super::update::AppliedRows;
use super::upload::{AnnotatedBatches, BoundParameters, UploadedBatches};
use crate::client_types::map_schema;
use crate::engine::lookup_stream::LookupTarget;
use crate::engine::{
    IncomingRows, IngestTarget, InsertEachOutcome, PlannedQuery, StatementOutcome,
};
use crate::statements::ListedStatement;
use volary_exec::client_rows::{ClientMessages, batch_messages};

/// The request in the first message.
enum ExchangeRequest {
    /// A statement. The rows of the stream are its parameters.
    Statement(String),
    /// Bulk ingestion of the stream's rows.
    Ingest(IngestTarget),
    /// A stream of batches, each of which is a write of its own.
    Stream(StreamRequest),
    /// A stream of keys whose rows are looked up.
    Lookup(LookupTarget),
    /// A request for metadata, which GetFlightInfo also answers.
    Listing(Command),
}

/// The outcome of a statement's first step.
enum FirstStep {
    /// The statement has its answer.
    Answered(StatementAnswer),
    /// The statement writes, and has to be run for each of these rows of parameters.
    OneByOne(IncomingRows),
}

/// The answer to a statement.
enum StatementAnswer {
    /// The statement was run and has written this number of rows.
    Done(i64),
    /// The statement was run and has returned these rows.
    Rows(RecordBatch),
    /// A query that is planned and has yet to run.
    Query(Box<PlannedQuery>),
    /// A query whose rows the client fetches from the workers.
    Parts(Box<FlightInfo>),
}

impl FlightSql {
    /// Handles the request in the first message. A statement without rows is complete when this
    /// returns. A query runs while its rows are read.
    pub(super) async fn exchange(
        &self,
        call: &ClientCall,
        progress: ProgressNotes,
        ingest_options: HashMap<String, String>,
        mut messages: impl Stream<Item = Result<FlightData, Status>> + Send + Unpin + 'static,
    ) -> Result<ClientMessages> {
        let first = async { messages.try_next().await.map_err(Error::from) };
        let mut first = call.deadline.run_until(first).await?.ok_or_else(|| {
            Error::invalid("the stream of a DoExchange is empty; send the statement in the descriptor of the first message")
        })?;
        let descriptor = first.flight_descriptor.take().ok_or_else(|| {
            Error::invalid("the first message of a DoExchange has no descriptor; send the statement in the descriptor, as SQL text")
        })?;
        let request = request_in(&descriptor, ingest_options)?;
        let text = match &request {
            ExchangeRequest::Statement(sql) => sql.clone(),
            ExchangeRequest::Ingest(ingest) => ingest::statement_text(ingest),
            ExchangeRequest::Stream(stream) => ingest::stream_text(stream),
            ExchangeRequest::Lookup(target) => lookup::stream_text(target),
            ExchangeRequest::Listing(command) => {
                // Reads the client's stream to its end. A client that is still writing when the
                // answer ends would take the answer for a broken one.
                let rest = async {
                    while messages.try_next().await?.is_some() {}
                    Ok(())
                };
                call.deadline.run_until(rest).await?;
                let rows = self.metadata_rows(call, command.clone(), call.profile);
                return rows.map(batch_messages);
            }
        };
        let id = QueryId::new();
        let listed = self.engine.statements().add(id, call.issuer(), &text);
        let span = tracing::info_span!(
            "statement",
            query_id = %id,
            session = %call.session.engine.id(),
            user = call.principal.name(),
        );
        listed.begin_trace(&span);
        let limit = self.config.query.message_limit();
        let totals = self.engine.statements().totals();
        let request = match request {
            ExchangeRequest::Stream(stream) => {
                let batches = AnnotatedBatches::new(first, messages, limit, totals);
                let opening = self.open_batch_stream(call, listed, stream, batches);
                return opening.instrument(span).await;
            }
            ExchangeRequest::Lookup(target) => {
                let batches = AnnotatedBatches::new(first, messages, limit, totals);
                let opening = self.open_lookup_stream(call, listed, target, batches);
                return opening.instrument(span).await;
            }
            other => other,
        };
        let rows = UploadedBatches::new(first, messages, limit, totals);
        let beginning = async {
            match request {
                ExchangeRequest::Ingest(ingest) => {
                    let rows = self.ingest_rows(call, id, ingest, rows).await?;
                    Ok(FirstStep::Answered(StatementAnswer::Done(record_count(
                        Some(rows),
                    ))))
                }
                _ => {
                    self.begin_statement(call, id, &text, rows, descriptor)
                        .await
                }
            }
        };
        let beginning = listed.run_until_ended(beginning, call.deadline.wait_expired());
        let answer = match beginning.instrument(span.clone()).await {
            Ok(FirstStep::Answered(answer)) => Ok(answer),
            Ok(FirstStep::OneByOne(rows)) => {
                let updating = self.update_listed(call, &listed, &text, rows);
                updating.instrument(span).await.map(StatementAnswer::Done)
            }
            Err(error) => Err(error),
        };
        let answer = answer.map_err(|error| {
            let error = with_query_id(error, id);
            tracing::debug!(query_id = %id, error = format_args!("{error:#}"), "the statement failed");
            listed.set_failed(&error);
            error
        })?;
        let (mut begin, noted) = (Note::for_query(id), listed.progress());
        let rows = match answer {
            StatementAnswer::Query(query) => {
                let deadline = call
                    .deadline
                    .with_session_timeout(call.session.engine.statement_timeout());
                let rows = self.open_stream(listed, *query, call.profile, deadline);
                return Ok(AnnotatedStream::new(begin, rows, id, noted, progress).boxed());
            }
            StatementAnswer::Rows(rows) => batch_messages(rows),
            StatementAnswer::Done(count) => {
                begin = begin.with_rows_affected(count);
                stream::empty().boxed()
            }
            StatementAnswer::Parts(info) => {
                begin = begin.with_parts(&info);
                stream::empty().boxed()
            }
        };
        listed.set_answered();
        Ok(AnnotatedStream::new(begin, rows, id, noted, progress).boxed())
    }

    async fn begin_statement(
        &self,
        call: &ClientCall,
        id: QueryId,
        sql: &str,
        parameters: UploadedBatches,
        descriptor: FlightDescriptor,
    ) -> Result<FirstStep> {
        let row = match BoundParameters::read(parameters).await? {
            BoundParameters::NoRow => None,
            BoundParameters::Row(row) => Some(row),
            BoundParameters::Rows(rows) => {
                let session = &call.session.engine;
                let inserting = Box::pin(self.engine.insert_each(session, sql, rows, id));
                let rows = match inserting.await? {
                    InsertEachOutcome::Inserted(rows) => {
                        return Ok(FirstStep::Answered(StatementAnswer::Done(record_count(
                            Some(rows),
                        ))));
                    }
                    InsertEachOutcome::OneByOne(rows) => rows,
                };
                let describing = self.engine.describe(session, sql, None, id);
                if Box::pin(describing).await?.rows.is_some() {
                    return Err(Error::invalid(
                        "a query takes one row of parameters, and more were sent; send one query for each row",
                    ));
                }
                return Ok(FirstStep::OneByOne(rows));
            }
        };
        let query = match self.execute(call, id, sql, row.clone()).await? {
            StatementOutcome::Rows(query) => query,
            StatementOutcome::Done(done) => {
                return Ok(FirstStep::Answered(StatementAnswer::Done(record_count(
                    done.rows,
                ))));
            }
            StatementOutcome::Answer(answer) => {
                return Ok(FirstStep::Answered(StatementAnswer::Rows(answer)));
            }
        };
        if call.direct_results == DirectResults::On {
            let statement = ClientStatement {
                sql: sql.to_owned(),
                parameters: row.as_ref().map(batch_to_bytes).transpose()?,
            };
            let ticket = query_ticket(call, &statement, &query);
            let schema = map_schema(call.profile, &query.schema);
            if let Some(info) = self.direct_info(call, &query, &schema, &ticket, &descriptor)? {
                return Ok(FirstStep::Answered(StatementAnswer::Parts(Box::new(info))));
            }
        }
        Ok(FirstStep::Answered(StatementAnswer::Query(query)))
    }
}

impl FlightSql {
    /// Runs a statement for each of these rows, in order, and returns how many rows it has written.
    /// Each run is also listed as a statement of its own, beside `listed`.
    async fn update_listed(
        &self,
        call: &ClientCall,
        listed: &ListedStatement,
        sql: &str,
        rows: IncomingRows,
    ) -> Result<i64> {
        let (statement, applied) = (
            ClientStatement::without_parameters(sql),
            AppliedRows::default(),
        );
        let updating = self.update_one_by_one(call, &statement, rows.batches, &applied);
        let updating = listed.run_until_ended(Box::pin(updating), call.deadline.wait_expired());
        let count = updating
            .await
            .map_err(|error| applied.add_to_error(error))?;
        let written = u64::try_from(count).unwrap_or_default();
        self.engine.statements().set_done(listed.id(), written);
        Ok(count)
    }
}

/// Returns the request in a descriptor.
fn request_in(
    descriptor: &FlightDescriptor,
    ingest_options: HashMap<String, String>,
) -> Result<ExchangeRequest> {
    Ok(match DescribedRequest::from_descriptor(descriptor)? {
        DescribedRequest::Sql(sql)
        | DescribedRequest::Query(sql)
        | DescribedRequest::Update(sql) => ExchangeRequest::Statement(sql),
        DescribedRequest::Ingest(ingest) => {
            let ingest = ingest::parse_command(ingest, ingest_options)?;
            match ingest::stream_request(&ingest)? {
                Some(stream) => ExchangeRequest::Stream(stream),
                None => ExchangeRequest::Ingest(ingest),
            }
        }
        DescribedRequest::PreparedQuery(_) | DescribedRequest::PreparedUpdate(_) => {
            return Err(Error::new(
                ErrorCode::Unimplemented,
                "a DoExchange takes no prepared statement; send the statement itself, and its parameters as rows",
            ));
        }
        DescribedRequest::Lookup(request) => {
            ExchangeRequest::Lookup(lookup::parse_request(request)?)
        }
        DescribedRequest::Listing(command) => ExchangeRequest::Listing(command),
    })
}
