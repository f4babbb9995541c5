//! A statement that writes runs once without parameters, or once for each row of parameters.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::record_batch::RecordBatch;
use arrow_flight::sql::DoPutUpdateResult;
use arrow_flight::{FlightData, PutResult};
use bytes::Bytes;
use futures::stream::{self, BoxStream, Stream, StreamExt, TryStreamExt};
use prost::Message;
use tonic::Status;
use volary_flight_proto::ids::QueryId;
use volary_flight_proto::{Error, ErrorCode, Result};

use super::FlightSql;
use super::call::ClientCall;
use super::descriptor::DescribedRequest;
use super::ingest;
use super::statement::{ClientStatement, record_count};
use super::upload::{BoundParameters, UploadedBatches, single_row};
use crate::engine::{InsertEachOutcome, StatementOutcome};

/// Stream of the answers to a DoPut.
pub(super) type PutResultStream = BoxStream<'static, Result<PutResult, Status>>;

/// Number of rows of parameters for which a statement was run so far. The statement is run once for
/// each row.
#[derive(Debug, Default)]
pub(super) struct AppliedRows(AtomicU64);

impl AppliedRows {
    fn add_row(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds to the error how many rows were applied before the statement failed. If the statement
    /// was cancelled, timed out or lost a node, the row at which it failed may have been applied,
    /// too.
    pub(super) fn add_to_error(&self, error: Error) -> Error {
        let rows = self.0.load(Ordering::Relaxed);
        let is_uncertain = matches!(
            error.code(),
            ErrorCode::Cancelled | ErrorCode::DeadlineExceeded | ErrorCode::Unavailable
        );
        let itself = if is_uncertain {
            ", and this row may be, too"
        } else {
            ""
        };
        error.at(format_args!(
            "row {} of the parameters ({rows} rows before it were applied{itself})",
            rows + 1
        ))
    }
}

/// The count that is sent if the number of written rows is not known, as for a query that was run
/// as an update.
const UNKNOWN_COUNT: i64 = -1;

impl FlightSql {
    /// Handles the request of a DoPut. The work is done when this returns, and the stream only
    /// reports it.
    pub(super) async fn put(
        &self,
        call: &ClientCall,
        ingest_options: HashMap<String, String>,
        mut messages: impl Stream<Item = Result<FlightData, Status>> + Send + Unpin + 'static,
    ) -> Result<PutResultStream> {
        let first = async { messages.try_next().await.map_err(Error::from) };
        let mut first = call.deadline.run_until(first).await?.ok_or_else(|| {
            Error::invalid(
                "the stream of a DoPut is empty; send the descriptor in the first message",
            )
        })?;
        let descriptor = first.flight_descriptor.take().ok_or_else(|| {
            Error::invalid("the first message of a DoPut has no descriptor; send a Flight SQL message in the descriptor")
        })?;
        let limit = self.config.query.message_limit();
        let totals = self.engine.statements().totals();
        let described = DescribedRequest::from_descriptor(&descriptor)?;
        let answer = match described {
            DescribedRequest::Sql(_) => {
                return Err(Error::new(
                    ErrorCode::Unimplemented,
                    "a DoPut takes only Flight SQL messages, not SQL text; load rows with CommandStatementIngest, COPY or INSERT",
                ));
            }
            // The stream is not read to its end, because the C++ client waits for the answer before
            // it closes the stream.
            DescribedRequest::Update(sql) => {
                self.update_once(call, &ClientStatement::without_parameters(sql))
                    .await?
            }
            DescribedRequest::PreparedUpdate(handle) => {
                let statement = self.prepared_statement(call, &handle)?;
                self.update_each(
                    call,
                    &statement,
                    UploadedBatches::new(first, messages, limit, totals),
                )
                .await?
            }
            DescribedRequest::PreparedQuery(handle) => {
                let row = call
                    .deadline
                    .run_until(single_row(UploadedBatches::new(
                        first, messages, limit, totals,
                    )))
                    .await?;
                self.bind(call, &handle, row.as_ref())?
            }
            DescribedRequest::Ingest(ingest) => {
                let batches = UploadedBatches::new(first, messages, limit, totals);
                let ingest = ingest::parse_command(ingest, ingest_options)?;
                let rows = self.ingest(call, ingest, batches).await?;
                update_result(record_count(Some(rows)))
            }
            DescribedRequest::Query(_)
            | DescribedRequest::Listing(_)
            | DescribedRequest::Lookup(_) => {
                return Err(described.unsupported_error());
            }
        };
        let answer = PutResult {
            app_metadata: answer,
        };
        Ok(stream::iter([Ok(answer)]).boxed())
    }

    /// Runs the statement once, with the parameters that are bound to it.
    async fn update_once(&self, call: &ClientCall, statement: &ClientStatement) -> Result<Bytes> {
        let parameters = statement.parameters()?;
        self.run_update(call, &statement.sql, parameters)
            .await
            .map(update_result)
    }

    /// Runs the statement for each row of parameters, or once if there is no row.
    async fn update_each(
        &self,
        call: &ClientCall,
        statement: &ClientStatement,
        batches: impl Stream<Item = Result<RecordBatch>> + Send + Unpin + 'static,
    ) -> Result<Bytes> {
        let rows = match call
            .deadline
            .run_until(BoundParameters::read(batches))
            .await?
        {
            BoundParameters::NoRow => return self.update_once(call, statement).await,
            BoundParameters::Row(row) => {
                let run = self.run_update(call, &statement.sql, Some(row));
                return run.await.map(update_result);
            }
            BoundParameters::Rows(rows) => rows,
        };
        let id = QueryId::new();
        let session = &call.session.engine;
        let inserting = self.engine.insert_each(session, &statement.sql, rows, id);
        let inserting = Box::pin(inserting);
        match self.run_listed(call, id, &statement.sql, inserting).await? {
            InsertEachOutcome::Inserted(rows) => Ok(update_result(record_count(Some(rows)))),
            InsertEachOutcome::OneByOne(rows) => {
                let applied = AppliedRows::default();
                let updating = self.update_one_by_one(call, statement, rows.batches, &applied);
                let count = updating
                    .await
                    .map_err(|error| applied.add_to_error(error))?;
                Ok(update_result(count))
            }
        }
    }

    /// Runs the statement for each row, in order, and returns the sum of the counts. `applied`
    /// counts the rows that are done, so that an error can state their number.
    pub(super) async fn update_one_by_one(
        &self,
        call: &ClientCall,
        statement: &ClientStatement,
        mut batches: impl Stream<Item = Result<RecordBatch>> + Unpin,
        applied: &AppliedRows,
    ) -> Result<i64> {
        if call.session.engine.batch_id().is_some() {
            return Err(Error::invalid(
                "this statement is run once for each row of parameters, and a batch id (volary-batch-id) stands for a single write; send one INSERT of VALUES with a parameter for each column, or ingest the rows",
            ));
        }
        let mut total: i64 = 0;
        while let Some(batch) = call.deadline.run_until(batches.try_next()).await? {
            for row in 0..batch.num_rows() {
                let run = self.run_update(call, &statement.sql, Some(batch.slice(row, 1)));
                total = add_counts(total, run.await?);
                applied.add_row();
            }
        }
        Ok(total)
    }

    /// Runs the statement and returns the number of rows that it wrote. A query is run to its end,
    /// and -1 is returned for it.
    async fn run_update(
        &self,
        call: &ClientCall,
        sql: &str,
        parameters: Option<RecordBatch>,
    ) -> Result<i64> {
        let id = QueryId::new();
        let work = async {
            match self.execute(call, id, sql, parameters).await? {
                StatementOutcome::Done(done) => {
                    tracing::debug!(rows = done.rows, "the statement was run");
                    Ok(record_count(done.rows))
                }
                StatementOutcome::Answer(_) => Err(Error::invalid(
                    "the statement was run, but it returns a row, and an update cannot return rows; undo it (DROP TOKEN), and send it as a query",
                )),
                StatementOutcome::Rows(query) => {
                    let statements = self.engine.statements();
                    let mut rows = Box::pin(query.start(statements.progress(id))).await?;
                    let mut count = 0;
                    while let Some(batch) = rows.try_next().await.map_err(Error::from)? {
                        count += batch.num_rows() as u64;
                    }
                    statements.set_done(id, count);
                    Ok(UNKNOWN_COUNT)
                }
            }
        };
        self.run_listed(call, id, sql, work).await
    }
}

/// Adds two counts. The sum is unknown if one of them is.
fn add_counts(total: i64, count: i64) -> i64 {
    if total == UNKNOWN_COUNT || count == UNKNOWN_COUNT {
        UNKNOWN_COUNT
    } else {
        total.saturating_add(count)
    }
}

pub(super) fn update_result(record_count: i64) -> Bytes {
    DoPutUpdateResult { record_count }.encode_to_vec().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_told_how_many_rows_were_applied() {
        let applied = AppliedRows::default();
        applied.add_row();
        let failed = applied.add_to_error(Error::invalid("division by zero"));
        assert_eq!(
            failed.message(),
            "row 2 of the parameters (1 rows before it were applied): division by zero"
        );
        let killed = applied.add_to_error(Error::new(ErrorCode::Cancelled, "it was killed"));
        assert_eq!(
            killed.message(),
            "row 2 of the parameters (1 rows before it were applied, and this row may be, too): it was killed"
        );
    }

    #[test]
    fn counts_add_up_unless_one_is_unknown() {
        assert_eq!(add_counts(2, 3), 5);
        assert_eq!(add_counts(i64::MAX, 1), i64::MAX);
        assert_eq!(add_counts(2, UNKNOWN_COUNT), UNKNOWN_COUNT);
        assert_eq!(add_counts(UNKNOWN_COUNT, 2), UNKNOWN_COUNT);
    }
}
