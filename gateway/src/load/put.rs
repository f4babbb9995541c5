use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::error::FlightError;
use arrow_flight::{FlightData, FlightDescriptor, PutResult};
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{BoxStream, FuturesUnordered};
use futures::{FutureExt, Stream, StreamExt};
use parking_lot::Mutex;
use prost::Message;
use tokio::sync::mpsc;
use tracing::Span;
use uuid::Uuid;
use volary_catalog::Table;
use volary_flight_proto::ids::{QueryId, WorkerId, WriteId};
use volary_flight_proto::seal::Purpose;
use volary_flight_proto::write::{DESCRIPTOR_LIFETIME, WriteRequest, WriteResult};
use volary_flight_proto::{Error, ErrorCode, Result};
use volary_gather::{Window, worker_error};
use volary_node::traces;

use super::message::message_schema;
use crate::cluster::Cluster;

/// Number of batches that may wait for a worker. When the queue is full, the source waits.
const BATCHES_AHEAD: usize = 2;
/// Size above which a batch is split into several messages. Batches usually have a size that suits
/// the network, so only much larger ones are split. Each part of a split batch is sent with all
/// strings of the batch.
const MAX_MESSAGE_BYTES: usize = 64 << 20;
/// Number of checks of a worker's progress within the idle timeout.
const CHECKS_PER_TIMEOUT: u32 = 8;

/// The channel for the rows of one worker.
pub(crate) type RowSender = mpsc::Sender<RecordBatch>;

/// A future that sends the batches of its [`RowSender`] to the worker. It returns the worker's
/// report of the rows that it has stored.
type PutFuture = BoxFuture<'static, Result<(WorkerId, WriteResult)>>;

/// A write, as the streams to its workers see it.
pub(crate) struct PutContext {
    /// Reaches the workers.
    pub(crate) cluster: Arc<Cluster>,
    /// Maximum time for which a worker may send no keep-alive, or take no rows.
    pub(crate) idle: Duration,
    /// Number of the user who writes.
    pub(crate) owner: u32,
    /// The statement that writes.
    pub(crate) query_id: QueryId,
    /// The table that gets the rows.
    pub(crate) table: Arc<Table>,
    /// The number of the write.
    pub(crate) write: WriteId,
    /// The span of the statement, for its trace.
    pub(crate) span: Span,
}

/// Opens the streams to the workers that get rows. There may be thousands of workers, and a single
/// row is for only one of them. Clones share the streams. A stream ends when all clones, and all
/// of its senders, are dropped.
#[derive(Clone)]
pub(crate) struct Puts {
    shared: Arc<SharedPuts>,
}

struct SharedPuts {
    context: Arc<PutContext>,
    senders: Mutex<HashMap<WorkerId, RowSender>>,
    /// Hands the streams over to [`OpenedPuts`]. There are at most as many as workers.
    opened: mpsc::UnboundedSender<PutFuture>,
}

/// The streams to the workers, which send rows while [`Self::finish`] is polled.
pub(crate) struct OpenedPuts {
    opened: mpsc::UnboundedReceiver<PutFuture>,
}

/// Prepares the streams of a write.
pub(crate) fn open(context: PutContext) -> (Puts, OpenedPuts) {
    let (sender, opened) = mpsc::unbounded_channel();
    let shared = Arc::new(SharedPuts {
        context: Arc::new(context),
        senders: Mutex::default(),
        opened: sender,
    });
    (Puts { shared }, OpenedPuts { opened })
}

impl Puts {
    /// Returns the channel for the rows of a worker.
    pub(crate) fn sender(&self, worker: WorkerId) -> RowSender {
        let mut senders = self.shared.senders.lock();
        let sender = senders.entry(worker).or_insert_with(|| {
            let (sender, receiver) = mpsc::channel(BATCHES_AHEAD);
            let context = Arc::clone(&self.shared.context);
            let put = PutStream { context, worker }.put(receiver);
            // If nobody polls the streams any more, the receiver is dropped here, and sending rows
            // fails.
            let _ = self.shared.opened.send(put.boxed());
            sender
        });
        sender.clone()
    }

    /// Returns the number of streams that were prepared.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.shared.senders.lock().len()
    }
}

impl OpenedPuts {
    /// Sends the rows until all [`Puts`] and their senders are dropped. Returns the reports of the
    /// workers that got rows.
    ///
    /// # Errors
    /// The error of the first stream that fails, which names its worker.
    pub(crate) async fn finish(mut self) -> Result<Vec<(WorkerId, WriteResult)>> {
        let mut running = FuturesUnordered::new();
        let mut results = Vec::new();
        loop {
            tokio::select! {
                Some(put) = self.opened.recv() => running.push(put),
                Some(result) = running.next() => results.push(result?),
                else => return Ok(results),
            }
        }
    }
}

/// A stream of rows to one worker.
struct PutStream {
    context: Arc<PutContext>,
    worker: WorkerId,
}

impl PutStream {
    async fn request(&self) -> Result<WriteRequest> {
        let (context, worker) = (&self.context, self.worker);
        let cluster = &context.cluster;
        Ok(WriteRequest {
            query_id: context.query_id.to_string(),
            worker_id: worker.0,
            write_id: context.write.0,
            table: Some(context.table.description()),
            cluster_id: cluster.id().to_string(),
            instance: cluster.wait_for_instance(worker, context.idle).await?,
            stream_id: Uuid::new_v4().to_string(),
            lineage: Some(cluster.lineage_for(worker)),
            owner: context.owner,
            trace: traces::parent_bytes(&context.span),
            commits: cluster.commits(),
        })
    }

    async fn put(self, mut rows: mpsc::Receiver<RecordBatch>) -> Result<(WorkerId, WriteResult)> {
        let Some(first) = rows.recv().await else {
            return Ok((self.worker, WriteResult::default()));
        };
        let (context, worker) = (&self.context, self.worker);
        let (cluster, idle) = (&context.cluster, context.idle);
        let name = cluster.name(worker);
        let request = self.request().await?;
        let sealed = cluster
            .sealer()
            .seal(Purpose::Write, &request, DESCRIPTOR_LIFETIME);
        let progress = Arc::new(Mutex::new(WorkerProgress {
            last_heard: Instant::now(),
            handed_over_at: None,
            rows: 0,
        }));
        let rows = PutRows {
            first: Some(first),
            rows,
            progress: Arc::clone(&progress),
        };
        let encode_failure: EncodeFailure = Arc::default();
        let messages = messages(&context.table, sealed, rows, Arc::clone(&encode_failure));
        let mut client = cluster
            .client(worker, Window::Narrow)
            .map_err(|error| error.at(&name))?;
        let answer_progress = Arc::clone(&progress);
        let mut answer: BoxFuture<'static, Result<Option<PutResult>>> = Box::pin(async move {
            let answered = client.do_put(messages).await;
            let mut answers = answered.map_err(worker_error)?.into_inner();
            let mut last = None;
            // All answers but the last are empty keep-alives.
            while let Some(answer) = answers.message().await.map_err(worker_error)? {
                answer_progress.lock().last_heard = Instant::now();
                last = Some(answer);
            }
            Ok(last)
        });
        let answer = loop {
            match tokio::time::timeout(idle / CHECKS_PER_TIMEOUT, &mut answer).await {
                Ok(answer) => break answer.map_err(|error| error.at(&name))?,
                Err(_) => progress.lock().check(idle, &name)?,
            }
        };
        if let Some(error) = encode_failure.lock().take() {
            return Err(Error::from(error));
        }
        let answer = answer.ok_or_else(|| {
            Error::internal(format!("{name} did not report which rows it has stored"))
        })?;
        let result = WriteResult::decode(answer.app_metadata.clone()).map_err(|source| {
            Error::with_source(
                ErrorCode::Internal,
                "the worker's answer cannot be decoded",
                source,
            )
        })?;
        let sent = progress.lock().rows;
        check_stored_rows(sent, &result).map_err(|error| error.at(&name))?;
        Ok((worker, result))
    }
}

/// Checks that the worker keeps exactly as many rows as it was sent.
fn check_stored_rows(sent: u64, result: &WriteResult) -> Result<()> {
    let kept = result.shards.iter().map(|shard| shard.rows);
    let kept = kept.fold(0, u64::saturating_add);
    if kept == sent {
        return Ok(());
    }
    Err(Error::internal(format!(
        "the worker was sent {sent} rows, but reports that it has stored {kept}; the write was aborted; please report this"
    )))
}

/// The reason why rows could not be encoded, if that happened.
type EncodeFailure = Arc<Mutex<Option<FlightError>>>;

/// Returns the rows as messages. The first message has the sealed `WriteRequest`. If rows cannot
/// be encoded, the stream ends early and the error is put into `encode_failure`.
fn messages(
    table: &Table,
    sealed: Bytes,
    rows: PutRows,
    encode_failure: EncodeFailure,
) -> FlightMessages {
    let messages = FlightDataEncoderBuilder::new()
        .with_schema(message_schema(table))
        .with_max_flight_data_size(MAX_MESSAGE_BYTES)
        .with_flight_descriptor(Some(FlightDescriptor::new_cmd(sealed)))
        .build(rows)
        .map(move |message| message.map_err(|error| *encode_failure.lock() = Some(error)))
        .take_while(|message| futures::future::ready(message.is_ok()))
        .filter_map(|message| futures::future::ready(message.ok()))
        .boxed();
    FlightMessages(messages)
}

/// A stream of messages, as a type without lifetimes. Without it, the compiler cannot prove that a
/// future with a `BoxStream` is `Send` (rust-lang/rust#100013).
struct FlightMessages(BoxStream<'static, FlightData>);

impl Stream for FlightMessages {
    type Item = FlightData;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<FlightData>> {
        self.0.poll_next_unpin(cx)
    }
}

/// The progress of a worker, as far as this gateway knows it.
struct WorkerProgress {
    /// Time at which the worker last sent something. It sends keep-alives even during a long sort
    /// or sync.
    last_heard: Instant,
    /// Time at which the last batch was handed to the stream. `None` if the stream has asked for
    /// the next batch and there is none yet.
    handed_over_at: Option<Instant>,
    /// Number of rows that were handed to the stream.
    rows: u64,
}

impl WorkerProgress {
    fn check(&self, idle: Duration, name: &str) -> Result<()> {
        let did_not = if self.last_heard.elapsed() > idle {
            "sent nothing"
        } else if self
            .handed_over_at
            .is_some_and(|since| since.elapsed() > idle)
        {
            "took no rows"
        } else {
            return Ok(());
        };
        Err(Error::new(
            ErrorCode::DeadlineExceeded,
            format!(
                "{name} {did_not} for {idle:?}; the write was aborted; check that the worker is alive and reachable, and run the statement again"
            ),
        ))
    }
}

/// The rows for a worker. The stream notes whether the worker takes them.
struct PutRows {
    first: Option<RecordBatch>,
    rows: mpsc::Receiver<RecordBatch>,
    progress: Arc<Mutex<WorkerProgress>>,
}

impl Stream for PutRows {
    type Item = Result<RecordBatch, FlightError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = match self.first.take() {
            Some(first) => Poll::Ready(Some(first)),
            None => self.rows.poll_recv(cx),
        };
        let mut progress = self.progress.lock();
        progress.handed_over_at = None;
        if let Poll::Ready(Some(batch)) = &next {
            progress.handed_over_at = Some(Instant::now());
            progress.rows += batch.num_rows() as u64;
        }
        drop(progress);
        next.map(|batch| batch.map(Ok))
    }
}
