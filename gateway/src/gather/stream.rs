//! The rows of one worker: opening, retrying, deadlines, decoding.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_flight::utils::flight_data_to_arrow_batch;
use arrow_flight::{FlightData, Ticket};
use backon::BackoffBuilder;
use bytes::Bytes;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::ipc::{MessageHeader, root_as_message};
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use parking_lot::Mutex;
use prost::Message;
use tokio::time::{sleep, timeout};
use tonic::Streaming;
use volary_flight_proto::fragment::ScanShards;
use volary_flight_proto::frame::{EndOfStream, Frame, frame};
use volary_flight_proto::ids::WorkerId;
use volary_flight_proto::seal::Purpose;
use volary_flight_proto::ticket::FragmentTicket;
use volary_flight_proto::{Error, ErrorCode, Result};
use volary_node::message_limit::MessageLimit;

use super::context::QueryContext;
use super::report::WorkerReport;
use super::request::{Fragment, FragmentRequest};
use super::target::Target;
use crate::cluster::worker_error;

/// Workers send a sign of life so many times within the idle timeout.
const SIGNS_OF_LIFE_PER_TIMEOUT: u32 = 4;
const FIRST_BACKOFF: Duration = Duration::from_millis(50);
const LONGEST_BACKOFF: Duration = Duration::from_millis(500);
/// Workers with the same rows that are asked one after another: each may take the whole idle timeout to fail.
const MAX_COPIES_ASKED: usize = 3;

/// The rows of one worker, whole: the stream ends well only after the worker has said that it sent all.
pub type WorkerStream = BoxStream<'static, Result<RecordBatch>>;

/// Opens when it is first polled. Errors name the worker.
pub fn worker_stream(
    fragment: Arc<Fragment>,
    query: Arc<QueryContext>,
    batch_rows: usize,
    target: Target,
) -> WorkerStream {
    let opened = async move {
        let request = fragment.request(&query, batch_rows)?;
        Ok::<_, Error>(match request {
            Some(request) => read(request, target),
            None => stream::empty().boxed(),
        })
    };
    stream::once(opened).try_flatten().boxed()
}

fn read(request: Arc<FragmentRequest>, target: Target) -> WorkerStream {
    let mut copies = vec![target.worker];
    copies.extend(target.others);
    request.query.cluster.sort_live_first(&mut copies);
    copies.truncate(MAX_COPIES_ASKED);
    let mut copies = copies.into_iter();
    let worker = copies.next().unwrap_or(target.worker);
    let reader = Reader {
        report: request.reports.begin(worker),
        request,
        worker,
        other_copies: copies,
        scans: target.scans,
        started: Instant::now(),
        messages: None,
    };
    Box::pin(stream::try_unfold(Some(reader), |reader| async move {
        let Some(mut reader) = reader else {
            return Ok(None);
        };
        match reader.next().await {
            Ok(Some(batch)) => Ok(Some((batch, Some(reader)))),
            Ok(None) => Ok(None),
            Err(error) => Err(reader.name(error)),
        }
    }))
}

struct Reader {
    request: Arc<FragmentRequest>,
    /// The one that is asked now.
    worker: WorkerId,
    /// Those that were not asked yet.
    other_copies: std::vec::IntoIter<WorkerId>,
    scans: Vec<ScanShards>,
    report: Arc<Mutex<WorkerReport>>,
    started: Instant,
    messages: Option<Streaming<FlightData>>,
}

/// What a message of a worker is.
enum Received {
    Rows(RecordBatch),
    Nothing,
    End(EndOfStream),
}

impl Reader {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        let next = self.next_of_any_attempt().await;
        self.report.lock().total = self.started.elapsed();
        next
    }

    async fn next_of_any_attempt(&mut self) -> Result<Option<RecordBatch>> {
        let mut backoff = None;
        loop {
            match self.attempt().await {
                Err(error) if self.may_retry(&error) => {
                    tracing::debug!(query_id = %self.request.query.query_id, worker = %self.worker, %error, "retrying a fragment");
                    self.messages = None;
                    let other = self.other_copies.next();
                    self.worker = other.unwrap_or(self.worker);
                    self.report.lock().begin_again(self.worker);
                    if other.is_some() {
                        continue;
                    }
                    let waits = backoff.get_or_insert_with(|| {
                        backon::ExponentialBuilder::default()
                            .with_min_delay(FIRST_BACKOFF)
                            .with_max_delay(LONGEST_BACKOFF)
                            .without_max_times()
                            .with_jitter()
                            .build()
                    });
                    sleep(waits.next().unwrap_or(LONGEST_BACKOFF)).await;
                }
                other => return other,
            }
        }
    }

    /// Only what has shown no row can be had again from the start: from another copy, or from the same worker, which may only have
    /// restarted.
    fn may_retry(&self, error: &Error) -> bool {
        let has_other_copy = self.other_copies.len() > 0;
        let may_recover = match error.code() {
            ErrorCode::Unavailable => {
                has_other_copy || self.started.elapsed() < self.request.query.config.retry_for
            }
            ErrorCode::DeadlineExceeded => has_other_copy,
            _ => false,
        };
        may_recover && self.report.lock().rows == 0
    }

    async fn attempt(&mut self) -> Result<Option<RecordBatch>> {
        if self.messages.is_none() {
            let started = Instant::now();
            self.messages = Some(self.open().await?);
            self.report.lock().open = started.elapsed();
        }
        loop {
            let started = Instant::now();
            let message = self.receive().await;
            self.report.lock().network += started.elapsed();
            let started = Instant::now();
            let received = self.decode(&message?);
            self.report.lock().decode += started.elapsed();
            match received? {
                Received::Rows(batch) => return Ok(Some(batch)),
                Received::Nothing => {}
                Received::End(end) => {
                    self.report.lock().end = Some(end);
                    return Ok(None);
                }
            }
        }
    }

    async fn open(&self) -> Result<Streaming<FlightData>> {
        let query = &self.request.query;
        let mut client = query.cluster.client(self.worker)?;
        let ticket = Ticket {
            ticket: self.ticket(),
        };
        let response = self
            .in_time(client.do_get(ticket), "opened no stream")
            .await?;
        Ok(response.map_err(worker_error)?.into_inner())
    }

    fn ticket(&self) -> Bytes {
        let request = &self.request;
        let query = &request.query;
        let keep_alive = query.config.idle_timeout / SIGNS_OF_LIFE_PER_TIMEOUT;
        let ticket = FragmentTicket {
            query_id: query.query_id.to_string(),
            cluster_id: query.cluster.id().to_string(),
            worker_id: self.worker.0,
            plan: request.plan.clone(),
            scans: self.scans.clone(),
            snapshot: Some(query.snapshot.clone()),
            ordered: request.ordered,
            fetch: request.fetch.map(|rows| rows as u64),
            batch_rows: u32::try_from(request.batch_rows).unwrap_or(u32::MAX),
            batch_bytes: query.config.batch.bytes() as u64,
            keep_alive_ms: u32::try_from(keep_alive.as_millis()).unwrap_or(u32::MAX),
            with_plan_metrics: query.with_plan_metrics,
            time_zone: query.time_zone.clone(),
        };
        // Long enough for clocks that differ: a worker opens the ticket before it lets it wait.
        let valid_for =
            query.config.retry_for + query.config.idle_timeout + Duration::from_secs(60);
        query
            .cluster
            .sealer()
            .seal(Purpose::Fragment, &ticket, valid_for)
    }

    async fn receive(&mut self) -> Result<FlightData> {
        let Some(mut messages) = self.messages.take() else {
            return Err(Error::internal("a stream is read that is not open"));
        };
        let message = self
            .in_time(messages.message(), "sent nothing, not even a sign of life,")
            .await?;
        self.messages = Some(messages);
        let limit = MessageLimit {
            bytes: self.request.query.config.max_message.bytes(),
            setting: "gateway.gather.max_message",
        };
        let message = message.map_err(|status| worker_error(limit.explain(status)))?;
        message.ok_or_else(|| {
            Error::unavailable("the stream ended before the worker said that it had sent all rows; run the query again")
        })
    }

    async fn in_time<T>(&self, work: impl Future<Output = T>, what: &str) -> Result<T> {
        let limit = self.request.query.config.idle_timeout;
        timeout(limit, work).await.map_err(|_| {
            Error::new(
                ErrorCode::DeadlineExceeded,
                format!("the worker {what} for {limit:?}; check that it is alive and reachable"),
            )
        })
    }

    fn decode(&self, message: &FlightData) -> Result<Received> {
        let bytes = message.data_body.len() + message.data_header.len();
        self.report.lock().bytes += bytes as u64;
        if !message.app_metadata.is_empty() {
            let frame = Frame::decode(message.app_metadata.clone()).map_err(|source| {
                Error::with_source(ErrorCode::Internal, "a frame cannot be decoded", source)
            })?;
            if let Some(frame::Kind::End(end)) = frame.kind {
                return self.complete(end);
            }
        }
        if message.data_header.is_empty() {
            return Ok(Received::Nothing);
        }
        let header = root_as_message(&message.data_header)
            .map_err(|source| {
                Error::internal(format!("a message of the worker is malformed: {source}"))
            })?
            .header_type();
        if header != MessageHeader::RecordBatch {
            return Ok(Received::Nothing);
        }
        let schema = &self.request.schema;
        let batch = flight_data_to_arrow_batch(message, Arc::clone(schema), &HashMap::new())
            .map_err(datafusion::error::DataFusionError::from)?;
        let mut report = self.report.lock();
        report.rows += batch.num_rows() as u64;
        report.batches += 1;
        Ok(Received::Rows(batch))
    }

    /// A result is whole or an error.
    fn complete(&self, end: EndOfStream) -> Result<Received> {
        let report = self.report.lock();
        if (end.rows, end.batches) == (report.rows, report.batches) {
            return Ok(Received::End(end));
        }
        Err(Error::internal(format!(
            "the worker sent {} rows in {} batches, {} rows in {} batches arrived",
            end.rows, end.batches, report.rows, report.batches
        )))
    }

    fn name(&self, error: Error) -> Error {
        error.at(self.request.query.cluster.name(self.worker))
    }
}
