use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_flight::{FlightData, Ticket};
use backon::BackoffBuilder;
use bytes::Bytes;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::ipc::{MessageHeader, root_as_message};
use datafusion::execution::memory_pool::MemoryReservation;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use parking_lot::Mutex;
use prost::Message;
use tokio::time::{sleep, timeout};
use tonic::{Request, Streaming};
use volary_flight_proto::fragment::ScanShards;
use volary_flight_proto::frame::{EndOfStream, Frame, RowsByBucket, frame};
use volary_flight_proto::ids::WorkerId;
use volary_flight_proto::seal::Purpose;
use volary_flight_proto::ticket::{FragmentTicket, Member};
use volary_flight_proto::{Error, ErrorCode, Result};
use volary_node::channel::OneOfMany;
use volary_node::traces;

use crate::connections::worker_error;
use crate::message_rows::decode_rows;
use crate::report::StreamReport;
use crate::request::GatherRequest;
use crate::target::WorkerTarget;

const FIRST_BACKOFF: Duration = Duration::from_millis(50);
const LONGEST_BACKOFF: Duration = Duration::from_millis(500);
/// Number of times within the idle timeout that the limit of a stream is checked.
const LIMIT_CHECKS: u32 = 8;
/// Maximum number of workers with the same rows that are asked one after another. Each of them may
/// take the whole idle timeout to fail.
const MAX_REPLICAS_ASKED: usize = 3;

/// All rows of one worker. The stream ends without an error only after the worker has said that it
/// sent all rows.
pub type WorkerStream = BoxStream<'static, Result<DecodedRows>>;

/// A type that each message with rows of a worker's stream is converted into.
pub trait FromMessage: Sized + Send + 'static {
    /// Converts a message that has `rows` rows. `outline` says which buckets the rows belong to, if
    /// the fragment asked for rows by bucket.
    ///
    /// # Errors
    /// Fails if the message cannot be decoded.
    fn from_message(
        message: FlightData,
        rows: u64,
        outline: Option<RowsByBucket>,
        request: &GatherRequest,
    ) -> Result<Self>;
}

/// A message with rows, decoded.
#[derive(Debug)]
pub struct DecodedRows {
    /// The rows.
    pub batch: RecordBatch,
    /// The buckets that the rows belong to, if the fragment asked for rows by bucket.
    pub outline: Option<RowsByBucket>,
}

impl FromMessage for DecodedRows {
    fn from_message(
        message: FlightData,
        _: u64,
        outline: Option<RowsByBucket>,
        request: &GatherRequest,
    ) -> Result<Self> {
        let schema = Arc::clone(&request.schema);
        let batch = decode_rows(&message, schema)?;
        Ok(Self { batch, outline })
    }
}

/// Returns a stream that asks the worker when it is first polled. `request` returns `None` if no
/// row is needed. Errors that come from the worker name it.
pub fn worker_stream<T, R>(request: R, target: WorkerTarget) -> BoxStream<'static, Result<T>>
where
    T: FromMessage,
    R: FnOnce() -> Result<Option<Arc<GatherRequest>>> + Send + 'static,
{
    let opened = async move {
        match request()? {
            Some(request) => open_reader(request, target),
            None => Ok(stream::empty().boxed()),
        }
    };
    stream::once(opened).try_flatten().boxed()
}

fn open_reader<T: FromMessage>(
    request: Arc<GatherRequest>,
    target: WorkerTarget,
) -> Result<BoxStream<'static, Result<T>>> {
    let mut replicas = vec![target.worker];
    replicas.extend(target.replicas);
    request.peers.sort_live_first(&mut replicas);
    replicas.truncate(MAX_REPLICAS_ASKED);
    let mut replicas = replicas.into_iter();
    let worker = replicas.next().unwrap_or(target.worker);
    let transit_memory = request.flow.take_share()?;
    request.peers.totals().begin();
    let reader = StreamReader {
        report: request.reports.begin(worker, target.members.len() as u64),
        transit_memory: Some(transit_memory),
        request,
        worker,
        other_replicas: replicas,
        scans: target.scans,
        members: target.members,
        started: Instant::now(),
        ticket_form: TicketForm::HandleOnly,
        messages: None,
    };
    Ok(Box::pin(stream::try_unfold(
        Some(Box::new(reader)),
        |reader| async move {
            let Some(mut reader) = reader else {
                return Ok(None);
            };
            match reader.next().await {
                Ok(Some(rows)) => Ok(Some((rows, Some(reader)))),
                Ok(None) => Ok(None),
                Err(error) => Err(reader.with_worker_name(error)),
            }
        },
    )))
}

struct StreamReader {
    request: Arc<GatherRequest>,
    /// The worker that is asked now.
    worker: WorkerId,
    /// The workers with the same rows that were not asked yet.
    other_replicas: std::vec::IntoIter<WorkerId>,
    scans: Vec<ScanShards>,
    members: Vec<WorkerTarget>,
    report: Arc<Mutex<StreamReport>>,
    started: Instant,
    /// What the ticket that opened `messages` says of the fragment.
    ticket_form: TicketForm,
    messages: Option<Streaming<FlightData>>,
    /// The stream's share of the memory for rows in transit. It is held until the stream ends.
    transit_memory: Option<MemoryReservation>,
}

impl Drop for StreamReader {
    fn drop(&mut self) {
        self.request.peers.totals().end(&self.report.lock());
    }
}

/// What a ticket says of its fragment.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TicketForm {
    /// Only the fragment's handle.
    HandleOnly,
    /// The fragment's handle, and the fragment itself.
    WithFragment,
}

/// What a message of a worker contains.
enum Received<T> {
    /// The schema of the rows that follow. It shows that the worker has decoded the fragment.
    Schema,
    Rows(T),
    SendFragment,
    Nothing,
    End(EndOfStream),
}

impl StreamReader {
    async fn next<T: FromMessage>(&mut self) -> Result<Option<T>> {
        let next = self.next_with_retries().await;
        self.report.lock().total = self.started.elapsed();
        next
    }

    async fn next_with_retries<T: FromMessage>(&mut self) -> Result<Option<T>> {
        let mut backoff = None;
        loop {
            match self.attempt().await {
                Err(error) if self.may_retry(&error) => {
                    tracing::debug!(query_id = %self.request.query_id, worker = %self.worker, error = format_args!("{error:#}"), "retrying a fragment");
                    self.messages = None;
                    let other = self.other_replicas.next();
                    self.worker = other.unwrap_or(self.worker);
                    self.report.lock().restart(self.worker);
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

    /// Returns whether the stream may be opened again. This is possible only if it has handed out
    /// no row. It is then read from the start: from another replica, or from the same worker, which
    /// may have restarted.
    fn may_retry(&self, error: &Error) -> bool {
        let has_other_replica = self.other_replicas.len() > 0;
        let may_recover = match error.code() {
            ErrorCode::Unavailable => {
                has_other_replica || self.started.elapsed() < self.request.limits.retry_timeout
            }
            ErrorCode::DeadlineExceeded => has_other_replica,
            _ => false,
        };
        may_recover && self.report.lock().rows == 0
    }

    async fn attempt<T: FromMessage>(&mut self) -> Result<Option<T>> {
        if self.messages.is_none() {
            let is_known = self.request.holders.contains(self.worker);
            self.open(if is_known {
                TicketForm::HandleOnly
            } else {
                TicketForm::WithFragment
            })
            .await?;
        }
        loop {
            let started = Instant::now();
            let message = self.receive().await;
            let waited = started.elapsed();
            self.report.lock().network += waited;
            if message.is_ok() {
                self.request.reports.note_wait(waited);
            }
            let started = Instant::now();
            let received = self.decode(message?);
            self.report.lock().decode += started.elapsed();
            match received? {
                Received::Rows(rows) => return Ok(Some(rows)),
                Received::Schema if self.ticket_form == TicketForm::WithFragment => {
                    self.request.holders.insert(self.worker);
                }
                Received::SendFragment => {
                    self.check_may_ask()?;
                    self.request.holders.remove(self.worker);
                    self.open(TicketForm::WithFragment).await?;
                }
                Received::Schema | Received::Nothing => {}
                Received::End(end) => {
                    self.report.lock().end = Some(end);
                    self.request.reports.note_end();
                    self.transit_memory = None;
                    return Ok(None);
                }
            }
        }
    }

    async fn open(&mut self, form: TicketForm) -> Result<()> {
        let started = Instant::now();
        let window = self.request.flow.window;
        let mut client = self.request.peers.client(self.worker, window)?;
        let ticket = self.ticket(form)?;
        self.report.lock().sent_bytes += ticket.len() as u64;
        let mut request = Request::new(Ticket { ticket });
        if self.request.flow.streams > 1 {
            request.extensions_mut().insert(OneOfMany);
        }
        // The future is boxed because it is large, and needed only until the stream is open.
        let opening = Box::pin(async move { client.do_get(request).await });
        let response = self.with_timeout(opening, "opened no stream").await?;
        self.messages = Some(response.map_err(worker_error)?.into_inner());
        self.ticket_form = form;
        self.report.lock().open += started.elapsed();
        Ok(())
    }

    fn ticket(&self, form: TicketForm) -> Result<Bytes> {
        let request = &self.request;
        let peers = &request.peers;
        // The address is looked up for each ticket: a worker may have started again since the query
        // was planned, or since a relay could not reach it.
        let members = self.members.iter().map(|member| {
            Ok(Member {
                worker_id: member.worker.0,
                address: peers.address(member.worker)?,
                scans: member.scans.clone(),
            })
        });
        let ticket = FragmentTicket {
            query_id: Bytes::copy_from_slice(request.query_id.0.as_bytes()),
            cluster: peers.cluster_id().short(),
            worker_id: self.worker.0,
            fragment_id: request.fragment_id.to_bytes(),
            fragment: (form == TicketForm::WithFragment).then(|| request.fragment.clone()),
            parameters: request.parameters.clone(),
            scans: self.scans.clone(),
            snapshot: Some(request.snapshot.clone()),
            batch_bytes: request.flow.batch_bytes as u64,
            single_round_bytes: request.flow.small_bytes(&request.limits) as u64,
            members: members.collect::<Result<_>>()?,
            announced: request
                .announced
                .as_ref()
                .map(|announced| announced.schema.clone())
                .unwrap_or_default(),
            lineage: Some(request.lineage),
            counted: request.counted.clone(),
            owner: request.owner,
            trace: traces::parent_bytes(&request.span),
            as_of_us: request.as_of_us,
        };
        // The additional minute is for clocks that differ. Time in a queue need not be covered,
        // because a worker opens the ticket before it queues the fragment.
        let limits = &request.limits;
        let valid_for = limits.retry_timeout + limits.idle_timeout + Duration::from_secs(60);
        let sealer = peers.sealer();
        Ok(sealer.seal(Purpose::Fragment, &ticket, valid_for))
    }

    /// Checks that the worker may ask for the fragment: it may ask once, and only before it has
    /// sent rows.
    fn check_may_ask(&self) -> Result<()> {
        if self.ticket_form == TicketForm::HandleOnly && self.report.lock().rows == 0 {
            return Ok(());
        }
        Err(Error::internal(
            "the worker asks for a fragment that it was already sent",
        ))
    }

    async fn receive(&mut self) -> Result<FlightData> {
        let Some(mut messages) = self.messages.take() else {
            return Err(Error::internal("a stream is read before it is open"));
        };
        let message = self
            .with_timeout(
                messages.message(),
                "sent nothing, not even a keep-alive message,",
            )
            .await?;
        self.messages = Some(messages);
        let limit = self.request.limits.message_limit;
        let message = message.map_err(|status| worker_error(limit.explain(status)))?;
        message.ok_or_else(|| {
            Error::unavailable("the stream ended before the worker said that it had sent all rows; run the query again")
        })
    }

    async fn with_timeout<T>(&self, work: impl Future<Output = T>, what: &str) -> Result<T> {
        let idle_timeout = self.request.limits.idle_timeout;
        let mut work = pin!(work);
        // Counts only the time in which somebody waited. If a client reads nothing, nobody polls
        // the gather, and the gather does not learn that messages have come.
        let mut waited = Duration::ZERO;
        loop {
            // The limit becomes shorter when sibling streams end meanwhile.
            let limit = self.request.reports.silence_limit(idle_timeout);
            let left = limit.saturating_sub(waited);
            if left.is_zero() {
                return Err(Error::new(
                    ErrorCode::DeadlineExceeded,
                    format!(
                        "the worker {what} for {limit:?}; check that it is alive and reachable"
                    ),
                ));
            }
            let check = left.min(idle_timeout / LIMIT_CHECKS);
            let asked = Instant::now();
            if let Ok(done) = timeout(check, &mut work).await {
                return Ok(done);
            }
            // If the check itself comes late, nobody polled the stream in time, and the worker is
            // not to blame.
            if asked.elapsed() < check + check / 4 {
                waited += check;
            }
        }
    }

    fn decode<T: FromMessage>(&self, message: FlightData) -> Result<Received<T>> {
        let bytes = message.data_body.len() + message.data_header.len();
        self.report.lock().bytes += bytes as u64;
        let mut outline = None;
        if !message.app_metadata.is_empty() {
            let frame = Frame::decode(message.app_metadata.clone()).map_err(|source| {
                Error::with_source(ErrorCode::Internal, "a frame cannot be decoded", source)
            })?;
            match frame.kind {
                Some(frame::Kind::End(end)) => return self.check_end(end),
                Some(frame::Kind::SendFragment(_)) => return Ok(Received::SendFragment),
                Some(frame::Kind::RowsByBucket(rows)) => outline = Some(rows),
                Some(frame::Kind::KeepAlive(_)) | None => {}
            }
        }
        if message.data_header.is_empty() {
            return Ok(Received::Nothing);
        }
        let header = root_as_message(&message.data_header).map_err(|source| {
            Error::internal(format!("a message of the worker is malformed: {source}"))
        })?;
        if header.header_type() == MessageHeader::Schema {
            if let Some(announced) = &self.request.announced {
                announced.check_header(&message.data_header)?;
            }
            return Ok(Received::Schema);
        }
        let Some(batch) = header.header_as_record_batch() else {
            return Ok(Received::Nothing);
        };
        let rows = u64::try_from(batch.length()).map_err(|_| {
            Error::internal("a message of the worker has a negative number of rows")
        })?;
        let message = match batch.compression() {
            Some(_) => self
                .request
                .limits
                .message_limit
                .check_uncompressed(message)?,
            None => message,
        };
        let received = T::from_message(message, rows, outline, &self.request)?;
        let mut report = self.report.lock();
        report.rows = report.rows.saturating_add(rows);
        report.batches += 1;
        Ok(Received::Rows(received))
    }

    /// Accepts the end of a stream only if all rows and batches arrived: a result is whole or an
    /// error.
    fn check_end<T>(&self, end: EndOfStream) -> Result<Received<T>> {
        let report = self.report.lock();
        if (end.rows, end.batches) == (report.rows, report.batches) {
            return Ok(Received::End(end));
        }
        Err(Error::internal(format!(
            "the worker sent {} rows in {} batches, but {} rows in {} batches arrived",
            end.rows, end.batches, report.rows, report.batches
        )))
    }

    fn with_worker_name(&self, error: Error) -> Error {
        self.request.peers.with_worker_name(self.worker, error)
    }
}
