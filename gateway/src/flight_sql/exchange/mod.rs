//! Handles DoExchange: one call carries a statement, its parameters, its rows, and a summary of the
//! time and resources that it took.
//!
//! Flight SQL needs two calls for a query, and five for a query with parameters. Here the
//! descriptor of the first message holds the statement, and the rows of the client's stream are its
//! parameters: one row, or any number of rows for a statement that writes. The client then closes
//! its side of the stream. The answer is a note, the rows, and a note with the statement's
//! statistics.

/// Defines the notes, which are sent beside the rows.
mod note;
/// Merges notes and rows into one stream.
mod told;

use std::collections::HashMap;

use arrow::record_batch::RecordBatch;
use arrow_flight::sql::Command;
use arrow_flight::{FlightData, FlightDescriptor, FlightInfo};
use futures::stream::{self, Stream, StreamExt, TryStreamExt};
use tonic::Status;
use tracing::Instrument;
use volary_flight_proto::ids::QueryId;
use volary_flight_proto::{Error, ErrorCode, Result};

use self::note::Note;
pub(super) use self::told::Progress;
use self::told::Told;
use super::FlightSql;
use super::call::Call;
use super::descriptor::Described;
use super::direct_option::DirectResults;
use super::ingest;
use super::statement::{Statement, batch_to_bytes, count_of, query_ticket, stream_of};
use super::stream::with_query;
use super::types::map_schema;
use super::update::Applied;
use super::upload::{Batches, Bound};
use crate::engine::{Each, IncomingRows, Ingest, Outcome, Query};
use crate::statements::Listed;
use volary_node::client_rows::{ClientMessages, batch_messages};

/// The request in the first message.
enum Asked {
    /// A statement. The rows of the stream are its parameters.
    Statement(String),
    /// Bulk ingestion of the stream's rows.
    Ingest(Ingest),
    /// A request for metadata, which GetFlightInfo also answers.
    Listing(Command),
}

/// What the first step of a statement has led to.
enum Begun {
    /// The statement has its answer.
    Answered(Answer),
    /// The statement writes, and has to be run for each of these rows of parameters.
    OneByOne(IncomingRows),
}

/// The answer to a statement.
enum Answer {
    /// The statement was run and has written this number of rows.
    Done(i64),
    /// The statement was run and has returned these rows.
    Rows(RecordBatch),
    /// A query that is planned and has yet to run.
    Query(Box<Query>),
    /// A query whose rows the client fetches from the workers.
    Parts(Box<FlightInfo>),
}

impl FlightSql {
    /// Handles the request in the first message. A statement without rows is complete when this
    /// returns. A query runs while its rows are read.
    pub(super) async fn exchange(
        &self,
        call: &Call,
        progress: Progress,
        ingest_options: HashMap<String, String>,
        mut messages: impl Stream<Item = Result<FlightData, Status>> + Send + Unpin + 'static,
    ) -> Result<ClientMessages> {
        let first = async { messages.try_next().await.map_err(Error::from) };
        let mut first = call.deadline.bound(first).await?.ok_or_else(|| {
            Error::invalid("the stream of a DoExchange is empty; send the statement in the descriptor of the first message")
        })?;
        let descriptor = first.flight_descriptor.take().ok_or_else(|| {
            Error::invalid("the first message of a DoExchange has no descriptor; send the statement in the descriptor, as SQL text")
        })?;
        let asked = asked_in(&descriptor, ingest_options)?;
        let text = match &asked {
            Asked::Statement(sql) => sql.clone(),
            Asked::Ingest(ingest) => ingest::listed_as(ingest),
            Asked::Listing(command) => {
                // Reads the client's stream to its end. A client that is still writing when the
                // answer ends would take the answer for a broken one.
                let rest = async {
                    while messages.try_next().await?.is_some() {}
                    Ok(())
                };
                call.deadline.bound(rest).await?;
                let rows = self.metadata_rows(call, command.clone(), call.profile);
                return rows.map(batch_messages);
            }
        };
        let id = QueryId::new();
        let listed = self.engine.statements().enter(id, call.issuer(), &text);
        let span = tracing::info_span!(
            "statement",
            query_id = %id,
            session = %call.session.engine.id(),
            user = call.principal.name(),
        );
        let rows = Batches::new(first, messages, self.config.query.message_limit());
        let beginning = async {
            match asked {
                Asked::Ingest(ingest) => {
                    let rows = self.ingest_rows(call, id, ingest, rows).await?;
                    Ok(Begun::Answered(Answer::Done(count_of(Some(rows)))))
                }
                _ => self.begin(call, id, &text, rows, descriptor).await,
            }
        };
        let beginning = listed.unless_ended(beginning, call.deadline.passes());
        let answer = match beginning.instrument(span.clone()).await {
            Ok(Begun::Answered(answer)) => Ok(answer),
            Ok(Begun::OneByOne(rows)) => {
                let updating = self.update_listed(call, &listed, &text, rows);
                updating.instrument(span).await.map(Answer::Done)
            }
            Err(error) => Err(error),
        };
        let answer = answer.map_err(|error| {
            let error = with_query(error, id);
            tracing::debug!(query_id = %id, error = format_args!("{error:#}"), "the statement failed");
            listed.failed(&error);
            error
        })?;
        let (mut begin, noted) = (Note::of(id), listed.noted());
        let rows = match answer {
            Answer::Query(query) => {
                let deadline = call
                    .deadline
                    .within(call.session.engine.statement_timeout());
                let rows = stream_of(listed, *query, call.profile, deadline);
                return Ok(Told::new(begin, rows, id, noted, progress).boxed());
            }
            Answer::Rows(rows) => batch_messages(rows),
            Answer::Done(count) => {
                begin = begin.with_rows_affected(count);
                stream::empty().boxed()
            }
            Answer::Parts(info) => {
                begin = begin.with_parts(&info);
                stream::empty().boxed()
            }
        };
        listed.answered();
        Ok(Told::new(begin, rows, id, noted, progress).boxed())
    }

    async fn begin(
        &self,
        call: &Call,
        id: QueryId,
        sql: &str,
        parameters: Batches,
        descriptor: FlightDescriptor,
    ) -> Result<Begun> {
        let row = match Bound::of(parameters).await? {
            Bound::Nothing => None,
            Bound::Row(row) => Some(row),
            Bound::Rows(rows) => {
                let session = &call.session.engine;
                let inserting = Box::pin(self.engine.insert_each(session, sql, rows, id));
                let rows = match inserting.await? {
                    Each::Inserted(rows) => {
                        return Ok(Begun::Answered(Answer::Done(count_of(Some(rows)))));
                    }
                    Each::OneByOne(rows) => rows,
                };
                let describing = self.engine.describe(session, sql, None, id);
                if Box::pin(describing).await?.rows.is_some() {
                    return Err(Error::invalid(
                        "a query takes one row of parameters, and more were sent; send one query for each row",
                    ));
                }
                return Ok(Begun::OneByOne(rows));
            }
        };
        let query = match self.execute(call, id, sql, row.clone()).await? {
            Outcome::Rows(query) => query,
            Outcome::Done(done) => return Ok(Begun::Answered(Answer::Done(count_of(done.rows)))),
            Outcome::Answer(answer) => return Ok(Begun::Answered(Answer::Rows(answer))),
        };
        if call.direct_results == DirectResults::On {
            let statement = Statement {
                sql: sql.to_owned(),
                parameters: row.as_ref().map(batch_to_bytes).transpose()?,
            };
            let ticket = query_ticket(call, &statement, &query);
            let schema = map_schema(call.profile, &query.schema);
            if let Some(info) = self.direct_info(call, &query, &schema, &ticket, &descriptor)? {
                return Ok(Begun::Answered(Answer::Parts(Box::new(info))));
            }
        }
        Ok(Begun::Answered(Answer::Query(query)))
    }
}

impl FlightSql {
    /// Runs a statement for each of these rows, in order, and returns how many rows it has written.
    /// Each run is also listed as a statement of its own, beside `listed`.
    async fn update_listed(
        &self,
        call: &Call,
        listed: &Listed,
        sql: &str,
        rows: IncomingRows,
    ) -> Result<i64> {
        let (statement, applied) = (Statement::plain(sql), Applied::default());
        let updating = self.update_one_by_one(call, &statement, rows.batches, &applied);
        let updating = listed.unless_ended(Box::pin(updating), call.deadline.passes());
        let count = updating.await.map_err(|error| applied.told_by(error))?;
        let written = u64::try_from(count).unwrap_or_default();
        self.engine.statements().done(listed.id(), written);
        Ok(count)
    }
}

/// Returns the request in a descriptor.
fn asked_in(
    descriptor: &FlightDescriptor,
    ingest_options: HashMap<String, String>,
) -> Result<Asked> {
    Ok(match Described::of(descriptor)? {
        Described::Sql(sql) | Described::Query(sql) | Described::Update(sql) => {
            Asked::Statement(sql)
        }
        Described::Ingest(ingest) => Asked::Ingest(ingest::read(ingest, ingest_options)?),
        Described::PreparedQuery(_) | Described::PreparedUpdate(_) => {
            return Err(Error::new(
                ErrorCode::Unimplemented,
                "a DoExchange takes no prepared statement; send the statement itself, and its parameters as rows",
            ));
        }
        Described::Listing(command) => Asked::Listing(command),
    })
}
