use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{Int64Type, Schema, SchemaRef};
use arrow_flight::error::FlightError;
use arrow_flight::sql::client::FlightSqlServiceClient;
use arrow_flight::sql::{CommandStatementQuery, ProstMessageExt};
use arrow_flight::{
    Action, CancelFlightInfoRequest, FlightDescriptor, FlightInfo, HandshakeRequest,
};
use futures::future::{BoxFuture, ready};
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt, TryStreamExt};
use prost::Message;
use tokio::runtime::Handle;
use tonic::Request;
use tonic::metadata::MetadataValue;
use volary_flight_proto::{Error, ErrorCode, Result};
use volary_node::channel::{ChannelOptions, Transport, flight_client};

use crate::login::Target;

/// A session with a gateway.
#[derive(Debug)]
pub struct Client {
    inner: FlightSqlServiceClient<Transport>,
    uri: String,
}

/// The rows of a statement, as a stream.
pub struct RowStream {
    /// The schema of the rows. It has no columns if the statement returns no rows.
    pub schema: SchemaRef,
    /// The stream of the rows.
    pub batches: BoxStream<'static, Result<RecordBatch>>,
    /// The id of the statement in the gateway's log.
    pub query_id: Option<String>,
}

impl std::fmt::Debug for RowStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RowStream")
            .field("schema", &self.schema)
            .finish_non_exhaustive()
    }
}

impl RowStream {
    /// Returns the number of rows that a statement other than a query has written. Such a statement
    /// returns nothing else. The number is 0 for a statement that does not count rows.
    ///
    /// # Errors
    /// Returns the errors of the statement.
    pub async fn rows_written(self) -> Result<u64> {
        let batches: Vec<RecordBatch> = self.batches.try_collect().await?;
        let counts = batches.iter().filter_map(|batch| {
            let column = batch.columns().first()?.as_primitive_opt::<Int64Type>()?;
            Some(column.iter().flatten().sum::<i64>())
        });
        Ok(u64::try_from(counts.sum::<i64>()).unwrap_or(0))
    }
}

impl Client {
    /// Opens a session at `grpc://host:port`, with a gateway that has no users. Call it within the
    /// I/O runtime.
    ///
    /// # Errors
    /// Returns `INVALID_ARGUMENT` if the URI is not valid, `UNAVAILABLE` if no gateway answers
    /// there, and the errors of the login.
    pub fn connect(uri: &str) -> BoxFuture<'_, Result<Self>> {
        async move { Self::log_in(&Target::without_user(uri)?).await }.boxed()
    }

    /// Opens a session with the credentials of the target. Call it within the I/O runtime.
    ///
    /// # Errors
    /// Returns the errors of [`Self::connect`], and `UNAUTHENTICATED` for wrong credentials.
    pub fn log_in(target: &Target) -> BoxFuture<'_, Result<Self>> {
        async move {
            let uri = target.uri();
            let options = ChannelOptions {
                tls: target.tls().cloned(),
                ..ChannelOptions::default()
            };
            let mut flight = flight_client(target.address(), &options, &Handle::current())?;
            let mut request = Request::new(stream::iter([HandshakeRequest::default()]));
            let authorization = MetadataValue::try_from(target.authorization())
                .map_err(|_| Error::invalid("the token has characters that a header cannot hold"))?;
            request
                .metadata_mut()
                .insert("authorization", authorization);
            let response = flight.handshake(request).await.map_err(|status| {
                let error = Error::from(status);
                match error.code() {
                    ErrorCode::Unavailable => Error::with_source(
                        ErrorCode::Unavailable,
                        format!("no gateway answers at {uri}; start one (volary local) or name another one (--gateway)"),
                        error,
                    ),
                    _ => error,
                }
            })?;
            let returned_authorization = response
                .metadata()
                .get("authorization")
                .and_then(|value| value.to_str().ok());
            // A gateway answers a login by password with a token for the session. A client that
            // logs in with a token gets no other one, and keeps using its own.
            let token = returned_authorization
                .unwrap_or(target.authorization())
                .strip_prefix("Bearer ")
                .map(str::to_owned);
            let mut inner = FlightSqlServiceClient::new_from_inner(flight);
            if let Some(token) = token {
                inner.set_token(token);
            }
            Ok(Self {
                inner,
                uri: uri.to_owned(),
            })
        }
        .boxed()
    }

    /// Returns the URI that the client is connected to.
    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// Runs a statement and streams its rows while it runs. Dropping the rows ends the statement.
    ///
    /// # Errors
    /// Returns the errors of the statement.
    pub async fn run(&mut self, sql: &str) -> Result<RowStream> {
        let rows = self.run_unchecked(sql).await?;
        Ok(check_columns(rows))
    }

    /// Returns the schema of a statement's rows without running it. A statement that returns no
    /// rows has one column, for the number of rows that it writes.
    ///
    /// # Errors
    /// Returns the errors of the statement that are found before it runs.
    pub async fn describe(&mut self, sql: &str) -> Result<SchemaRef> {
        let request = self.request(statement_descriptor(sql))?;
        let answer = self.inner.inner_mut().get_schema(request).await;
        let schema = Schema::try_from(&answer.map_err(Error::from)?.into_inner());
        Ok(schema
            .map_err(|source| from_flight_error(source.into()))?
            .into())
    }

    /// Runs a statement and polls it until its rows can be fetched. Until then, calls `on_progress`
    /// with the progress after each poll.
    ///
    /// # Errors
    /// Returns the errors of the statement.
    pub async fn run_with_progress(
        &mut self,
        sql: &str,
        on_progress: &mut (dyn FnMut(StatementProgress<'_>) + Send),
    ) -> Result<RowStream> {
        let mut descriptor = statement_descriptor(sql);
        loop {
            let request = self.request(descriptor)?;
            let poll = self.inner.inner_mut().poll_flight_info(request).await;
            let poll = poll.map_err(Error::from)?.into_inner();
            let info = poll.info.unwrap_or_default();
            let Some(next) = poll.flight_descriptor else {
                return self.fetch_rows(info).await.map(check_columns);
            };
            on_progress(StatementProgress {
                info: &info,
                progress: poll.progress,
            });
            descriptor = next;
        }
    }

    /// Cancels the statement that `info` describes.
    ///
    /// # Errors
    /// Returns an error if the statement has ended, or can no longer be cancelled.
    pub async fn cancel(&mut self, info: FlightInfo) -> Result<()> {
        let request = CancelFlightInfoRequest::new(info);
        let request = self.request(Action::new("CancelFlightInfo", request.encode_to_vec()))?;
        self.inner
            .inner_mut()
            .do_action(request)
            .await
            .map_err(Error::from)?;
        Ok(())
    }

    fn request<T>(&self, message: T) -> Result<Request<T>> {
        let mut request = Request::new(message);
        if let Some(token) = self.inner.token() {
            let value = MetadataValue::try_from(format!("Bearer {token}")).map_err(|_| {
                Error::internal("the session's token has characters that a header cannot hold")
            })?;
            request.metadata_mut().insert("authorization", value);
        }
        Ok(request)
    }

    /// Runs a statement to its end and counts its rows. Also works with a server that sends other
    /// columns than it announced.
    ///
    /// # Errors
    /// Returns the errors of the statement.
    pub async fn count(&mut self, sql: &str) -> Result<usize> {
        let rows = self.run_unchecked(sql).await?.batches;
        rows.try_fold(0, |rows, batch| ready(Ok(rows + batch.num_rows())))
            .await
    }

    /// Runs a statement without checking its batches. They may have other columns than the schema.
    fn run_unchecked<'a>(&'a mut self, sql: &'a str) -> BoxFuture<'a, Result<RowStream>> {
        async move {
            let info = self
                .inner
                .execute(sql.to_owned(), None)
                .await
                .map_err(from_flight_error)?;
            self.fetch_rows(info).await
        }
        .boxed()
    }

    fn fetch_rows(&mut self, info: FlightInfo) -> BoxFuture<'_, Result<RowStream>> {
        async move {
            let query_id = std::str::from_utf8(&info.app_metadata).map(str::to_owned);
            let query_id = query_id.ok().filter(|id| !id.is_empty());
            let tickets: Vec<_> = info
                .endpoint
                .iter()
                .filter_map(|endpoint| endpoint.ticket.clone())
                .collect();
            let schema = if info.schema.is_empty() {
                Schema::empty()
            } else {
                info.try_decode_schema()
                    .map_err(|source| from_flight_error(source.into()))?
            };
            let mut streams = Vec::with_capacity(tickets.len());
            for ticket in tickets {
                streams.push(self.inner.do_get(ticket).await.map_err(from_flight_error)?);
            }
            Ok(RowStream {
                schema: schema.into(),
                batches: stream::iter(streams)
                    .flatten()
                    .map_err(from_flight_error)
                    .boxed(),
                query_id,
            })
        }
        .boxed()
    }

    /// Runs a statement to its end and returns its rows as one batch.
    ///
    /// # Errors
    /// Returns the errors of the statement.
    pub async fn collect(&mut self, sql: &str) -> Result<RecordBatch> {
        let rows = self.run(sql).await?;
        let batches: Vec<_> = rows.batches.try_collect().await?;
        arrow::compute::concat_batches(&rows.schema, &batches)
            .map_err(|source| from_flight_error(source.into()))
    }
}

/// The progress of a statement.
#[derive(Debug)]
pub struct StatementProgress<'a> {
    /// The information that [`Client::cancel`] needs.
    pub info: &'a FlightInfo,
    /// The progress from 0 to 1, or `None` if it is not known.
    pub progress: Option<f64>,
}

fn statement_descriptor(sql: &str) -> FlightDescriptor {
    let command = CommandStatementQuery {
        query: sql.to_owned(),
        transaction_id: None,
    };
    FlightDescriptor::new_cmd(command.as_any().encode_to_vec())
}

fn check_columns(rows: RowStream) -> RowStream {
    let columns = rows.schema.fields().len();
    let batches = rows.batches;
    RowStream {
        batches: batches
            .and_then(move |batch| ready(check_column_count(batch, columns)))
            .boxed(),
        ..rows
    }
}

/// Refuses a batch that does not have the announced number of columns. A server other than Volary
/// may send such a batch.
fn check_column_count(batch: RecordBatch, columns: usize) -> Result<RecordBatch> {
    if columns > 0 && batch.num_columns() != columns {
        return Err(Error::internal(format!(
            "the gateway announced {columns} columns, but sent {}: {}",
            batch.num_columns(),
            batch.schema()
        )));
    }
    Ok(batch)
}

fn from_flight_error(error: FlightError) -> Error {
    error.into()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array};

    use super::*;

    #[test]
    fn rows_of_other_columns_than_announced_are_an_error() {
        let column: ArrayRef = Arc::new(Int64Array::from(vec![1]));
        let batch = RecordBatch::try_from_iter([("n", column)]).unwrap();
        assert_eq!(check_column_count(batch.clone(), 1).unwrap(), batch);
        assert!(check_column_count(batch.clone(), 0).is_ok());
        let error = check_column_count(batch, 2).unwrap_err();
        assert!(error.message().contains("2 columns, but sent 1"), "{error}");
    }
}
