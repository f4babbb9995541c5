//! The gateway answers the batches in their order. It reads ahead only up to the stream's window,
//! and writes several batches meanwhile. Whatever ends the stream, the batches that are committed
//! are answered first.

use std::collections::VecDeque;
use std::pin::pin;
use std::time::Duration;

use arrow::record_batch::RecordBatch;
use arrow_flight::FlightData;
use bytes::Bytes;
use futures::future::{BoxFuture, OptionFuture};
use futures::stream::{self, StreamExt, TryStreamExt};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tonic::Status;
use tracing::Instrument;
use volary_catalog::{BatchContent, DecidedBatch};
use volary_exec::batches::used_bytes;
use volary_exec::client_rows::ClientMessages;
use volary_flight_proto::{Error, ErrorCode, Result, SqlState};

use super::batch_notes::{Acknowledgement, BatchNote, OpenedNote, Outcome, RefusalNote, message};
use crate::engine::ingest_stream::{EarlierBatch, IngestStream, LargePlace};
use crate::flight_sql::FlightSql;
use crate::flight_sql::call::ClientCall;
use crate::flight_sql::ingest::StreamRequest;
use crate::flight_sql::stream::with_query_id;
use crate::flight_sql::upload::{AnnotatedBatch, AnnotatedBatches};
use crate::load::budget::BudgetShare;
use crate::load::group::FittedRows;
use crate::load::ingest_streams::MAX_LARGE_IN_FLIGHT;
use crate::statements::ListedStatement;

/// Number of answers that may wait for the client to read them. The gateway reads no batch
/// meanwhile.
const MAX_UNREAD_NOTES: usize = 256;

/// Number of batches that are read ahead, however small they are. Each of them takes memory beside
/// that of its rows.
const MAX_QUEUED_BATCHES: usize = 1_024;

/// The longest time for which a stream may be idle. A later time could not be expressed.
const LONGEST_IDLE: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

impl FlightSql {
    /// Opens a stream of batches. The stream goes on after this has returned the notes for the
    /// client.
    pub(super) async fn open_batch_stream(
        &self,
        call: &ClientCall,
        listed: ListedStatement,
        request: StreamRequest,
        batches: AnnotatedBatches,
    ) -> Result<ClientMessages> {
        let id = listed.id();
        let opening = self.open_listed(call, &listed, &request, batches);
        let opening = listed.run_until_ended(opening, call.deadline.wait_expired());
        let (stream, batches) = match opening.await {
            Ok(opened) => opened,
            Err(error) => {
                let error = with_query_id(error, id);
                listed.set_failed(&error);
                return Err(error);
            }
        };
        let config = &self.config.ingest;
        let (notes, receiver) = mpsc::channel(MAX_UNREAD_NOTES);
        let last_sequence = stream.last_sequence();
        let window = config.stream_window.bytes();
        let opened = message(&OpenedNote {
            query_id: id,
            producer: stream.producer().map(|producer| producer.as_str()),
            last_sequence,
            window,
        });
        let ending = ending(&stream, &listed, self.engine.streams().stopping().clone());
        let cpu = stream.cpu().clone();
        let reader = BatchStream {
            stream,
            batches,
            notes: notes.clone(),
            window,
            idle_timeout: config.stream_idle_timeout.min(LONGEST_IDLE),
            goes_on: request.goes_on,
            next_sequence: last_sequence.saturating_add(1),
            incoming: None,
            refused: Vec::new(),
            queue: VecDeque::new(),
            begun: 0,
            large_in_flight: 0,
            outstanding_bytes: 0,
            is_input_open: true,
            end: None,
            rows: 0,
        };
        let idle_timeout = reader.idle_timeout;
        let reading = async move {
            let end = match reader.run(ending).await {
                Ok(()) => {
                    listed.set_answered();
                    Ok(())
                }
                Err(error) => {
                    let error = with_query_id(error, id);
                    tracing::debug!(
                        error = format_args!("{error:#}"),
                        "the stream of batches ended"
                    );
                    listed.set_failed(&error);
                    Err(error.into())
                }
            };
            // The client may have gone away, or it reads nothing more.
            let _ = notes.send_timeout(Answer::End(end), idle_timeout).await;
        };
        cpu.spawn(reading.in_current_span());
        let answers = stream::unfold(Some(receiver), next_answer);
        Ok(stream::iter([Ok(opened)]).chain(answers).boxed())
    }

    async fn open_listed(
        &self,
        call: &ClientCall,
        listed: &ListedStatement,
        request: &StreamRequest,
        mut batches: AnnotatedBatches,
    ) -> Result<(IngestStream, AnnotatedBatches)> {
        let Some(AnnotatedBatch::Columns(schema)) = batches.try_next().await? else {
            return Err(Error::invalid(
                "the stream of batches has no schema; send it in the first message, before the first batch",
            ));
        };
        let producer = request.producer.clone();
        let session = &call.session.engine;
        let opening =
            self.engine
                .open_ingest_stream(session, &request.table, schema, producer, listed.id());
        Ok((Box::pin(opening).await?, batches))
    }
}

/// An answer to the client.
enum Answer {
    Note(FlightData),
    /// The last one. Without it, answers are missing.
    End(Result<(), Status>),
}

/// Returns the next answer as the client is sent it. Returns `None` at the end.
async fn next_answer(
    receiver: Option<mpsc::Receiver<Answer>>,
) -> Option<(Result<FlightData, Status>, Option<mpsc::Receiver<Answer>>)> {
    let mut receiver = receiver?;
    match receiver.recv().await {
        Some(Answer::Note(note)) => Some((Ok(note), Some(receiver))),
        Some(Answer::End(Ok(()))) => None,
        Some(Answer::End(Err(status))) => Some((Err(status), None)),
        None => {
            let error = Error::unavailable(
                "the stream of batches was broken off; connect again, and send the batches that were not acknowledged",
            );
            Some((Err(error.into()), None))
        }
    }
}

/// How a stream ends if its client does not end it.
enum Ending {
    /// Nothing more is read. What was read is committed.
    AfterWhatWasRead(Error),
    /// What has not begun to commit is given up.
    AtOnce(Error),
}

/// Completes when something other than the client ends the stream.
fn ending(
    stream: &IngestStream,
    listed: &ListedStatement,
    stopping: tokio_util::sync::CancellationToken,
) -> impl Future<Output = Ending> + Send + use<> {
    let (ended, taken_over) = (listed.wait_for_end(), stream.wait_for_takeover());
    async move {
        tokio::select! {
            error = ended => Ending::AtOnce(error),
            error = taken_over => Ending::AtOnce(error),
            () = stopping.cancelled() => Ending::AfterWhatWasRead(
                Error::unavailable(
                    "the gateway is shutting down; connect again, and send the batches that were not acknowledged",
                )
                .with_sqlstate(SqlState::AdminShutdown),
            ),
        }
    }
}

/// A stream of batches while it is open.
struct BatchStream {
    stream: IngestStream,
    batches: AnnotatedBatches,
    notes: mpsc::Sender<Answer>,
    /// Size of the batches that are read ahead.
    window: usize,
    idle_timeout: Duration,
    goes_on: bool,
    /// The number of the next new batch.
    next_sequence: u64,
    /// The batch of which not all messages have arrived.
    incoming: Option<IncomingBatch>,
    /// Refused batches that are noted with the next one that commits.
    refused: Vec<DecidedBatch>,
    /// The batches that are not answered yet, in their order.
    queue: VecDeque<QueuedBatch>,
    /// Number of batches at the front of the queue that need not be begun any more.
    begun: usize,
    /// Number of large batches among them.
    large_in_flight: usize,
    /// Size of the batches in the queue.
    outstanding_bytes: usize,
    is_input_open: bool,
    /// The error with which the stream ends when all batches that have begun are answered.
    end: Option<Error>,
    /// Number of rows that were committed.
    rows: u64,
}

/// The messages of a batch that have arrived.
struct IncomingBatch {
    sequence: u64,
    rows: Vec<RecordBatch>,
    bytes: usize,
    memory: Vec<BudgetShare>,
}

enum QueuedBatch {
    /// The batch waits until it may be handed over.
    Ready {
        sequence: u64,
        rows: FittedRows,
        decided: Vec<DecidedBatch>,
        bytes: usize,
        memory: Vec<BudgetShare>,
    },
    /// The batch was handed over.
    Running {
        sequence: u64,
        rows: u64,
        bytes: usize,
        outcome: BoxFuture<'static, Result<()>>,
        large_place: Option<LargePlace>,
    },
    /// The batch has the number of an earlier one. It is looked up when that one is decided.
    Resent {
        sequence: u64,
        rows: u64,
        content: Option<BatchContent>,
    },
    /// The rows were refused, and the stream goes on.
    Refused { sequence: u64, error: Error },
    /// The stream ends with this error. If it is the fault of a batch, the batch is refused.
    Failed { sequence: Option<u64>, error: Error },
}

enum Event {
    Ending(Ending),
    ClientGone,
    Decided(Result<()>),
    LargePlace(Option<LargePlace>),
    Memory(Result<BudgetShare>),
    Message(Option<Result<AnnotatedBatch>>),
    Idle,
}

/// A message for whose rows there is no memory yet.
struct WaitingMessage {
    rows: RecordBatch,
    metadata: Bytes,
    bytes: usize,
    memory: BoxFuture<'static, Result<BudgetShare>>,
}

impl BatchStream {
    /// Reads and answers batches until the stream ends.
    ///
    /// # Errors
    /// The error with which the stream ends.
    async fn run(mut self, ending: impl Future<Output = Ending>) -> Result<()> {
        let mut ending = pin!(ending);
        let mut waiting: Option<WaitingMessage> = None;
        let mut large_place: Option<BoxFuture<'static, Option<LargePlace>>> = None;
        let mut idle_since = Instant::now();
        loop {
            self.begin_ready(&mut large_place, None);
            while self.answer_decided().await? {
                // Batches that had to wait for the answer may begin now.
                self.begin_ready(&mut large_place, None);
            }
            if self.queue.is_empty() {
                if let Some(error) = self.end.take() {
                    return Err(error);
                }
                if !self.is_input_open && waiting.is_none() {
                    return self.finish();
                }
            }
            let may_read = self.is_input_open && waiting.is_none() && self.has_room();
            let may_end = self.end.is_none();
            let is_idle = self.queue.is_empty();
            let idle = tokio::time::sleep_until(idle_since + self.idle_timeout);
            let outcome: OptionFuture<_> = match self.queue.front_mut() {
                Some(QueuedBatch::Running { outcome, .. }) => Some(outcome).into(),
                _ => None.into(),
            };
            let place: OptionFuture<_> = large_place.as_mut().into();
            let memory = waiting.as_mut().map(|waiting| &mut waiting.memory);
            let memory: OptionFuture<_> = memory.into();
            let event = tokio::select! {
                biased;
                ending = &mut ending, if may_end => Event::Ending(ending),
                () = self.notes.closed() => Event::ClientGone,
                Some(decided) = outcome => Event::Decided(decided),
                Some(place) = place => Event::LargePlace(place),
                Some(memory) = memory => Event::Memory(memory),
                message = self.batches.next(), if may_read => Event::Message(message),
                () = idle, if is_idle => Event::Idle,
            };
            idle_since = Instant::now();
            match event {
                Event::Ending(Ending::AfterWhatWasRead(error)) => {
                    waiting = None;
                    self.fail_after_what_was_read(error);
                }
                Event::Ending(Ending::AtOnce(error)) => {
                    (waiting, large_place) = (None, None);
                    self.end_at_once(error);
                }
                Event::ClientGone => {
                    return Err(Error::new(ErrorCode::Cancelled, "the client went away"));
                }
                Event::Decided(outcome) => self.answer_front(outcome).await?,
                Event::LargePlace(place) => {
                    large_place = None;
                    self.begin_ready(&mut large_place, place);
                }
                Event::Memory(memory) => {
                    if let Some(message) = waiting.take() {
                        let taken = memory.and_then(|memory| self.take_rows(message, memory));
                        self.fail_on_error(taken);
                    }
                }
                Event::Message(None) => self.end_input(),
                // A client whose library sends the schema with the first rows opens the stream so.
                Event::Message(Some(Ok(AnnotatedBatch::Rows(rows, metadata))))
                    if rows.num_rows() == 0 && metadata.is_empty() => {}
                Event::Message(Some(Ok(AnnotatedBatch::Rows(rows, metadata)))) => {
                    let bytes = used_bytes(&rows);
                    waiting = Some(WaitingMessage {
                        memory: self.stream.memory(bytes),
                        rows,
                        metadata,
                        bytes,
                    });
                }
                Event::Message(Some(Ok(AnnotatedBatch::Columns(_)))) => {
                    self.fail_after_what_was_read(Error::invalid(
                        "the schema of the stream was sent again; a stream has one schema",
                    ));
                }
                Event::Message(Some(Err(error))) => self.fail_after_what_was_read(error),
                Event::Idle => {
                    let error = self.idle_error(waiting.take().is_some());
                    self.fail_after_what_was_read(error);
                }
            }
        }
    }

    /// Returns whether the window has room for another message. The messages of a batch are read
    /// even without room if nothing else is in the window, until the batch is found to be too
    /// large.
    fn has_room(&self) -> bool {
        let incoming = self.incoming.as_ref().map_or(0, |incoming| incoming.bytes);
        let bytes = self.outstanding_bytes.saturating_add(incoming);
        self.queue.is_empty() || (bytes < self.window && self.queue.len() < MAX_QUEUED_BATCHES)
    }

    fn idle_error(&self, waits_for_memory: bool) -> Error {
        if waits_for_memory {
            return Error::new(
                ErrorCode::ResourceExhausted,
                format!(
                    "the rows of the next batch have waited {:?} for memory that other streams hold; send less at once, or raise gateway.ingest.stream_memory",
                    self.idle_timeout
                ),
            );
        }
        Error::new(
            ErrorCode::DeadlineExceeded,
            format!(
                "the stream was idle: no batch arrived for {:?} (gateway.ingest.stream_idle_timeout); all batches before were answered; open another stream when there are rows",
                self.idle_timeout
            ),
        )
    }

    fn end_input(&mut self) {
        self.is_input_open = false;
        if let Some(incoming) = self.incoming.take() {
            self.fail_after_what_was_read(Error::invalid(format!(
                "the stream was closed within batch {}, whose last message said that there is more; nothing of this batch was written; send it again",
                incoming.sequence
            )));
        }
    }

    /// Ends the stream with an error after everything that was read is answered.
    fn fail_after_what_was_read(&mut self, error: Error) {
        self.fail_batch(None, error);
    }

    fn fail_batch(&mut self, sequence: Option<u64>, error: Error) {
        self.is_input_open = false;
        self.incoming = None;
        let failed = QueuedBatch::Failed { sequence, error };
        self.queue.push_back(failed);
    }

    fn fail_on_error(&mut self, taken: Result<()>) {
        if let Err(error) = taken {
            self.fail_after_what_was_read(error);
        }
    }

    /// Gives up what has not begun to commit. The batches that were handed over are still answered
    /// if they commit.
    fn end_at_once(&mut self, error: Error) {
        self.stream.cancel();
        self.is_input_open = false;
        self.incoming = None;
        let is_running = |batch: &QueuedBatch| matches!(batch, QueuedBatch::Running { .. });
        let kept = self
            .queue
            .iter()
            .take_while(|batch| is_running(batch))
            .count();
        self.queue.truncate(kept);
        self.begun = self.begun.min(kept);
        self.end = Some(error);
    }

    /// Adds rows to the batch that they belong to. When the batch is complete, it is queued.
    ///
    /// # Errors
    /// The errors that end the stream.
    fn take_rows(&mut self, message: WaitingMessage, memory: BudgetShare) -> Result<()> {
        let note = BatchNote::parse(&message.metadata)?;
        let mut batch = match self.incoming.take() {
            Some(incoming) if incoming.sequence == note.sequence => incoming,
            Some(incoming) => {
                return Err(Error::invalid(format!(
                    "a message of batch {} came within batch {}, whose last message said that there is more; nothing of both was written; send all messages of a batch one after another",
                    note.sequence, incoming.sequence
                )));
            }
            None => IncomingBatch {
                sequence: note.sequence,
                rows: Vec::new(),
                bytes: 0,
                memory: Vec::new(),
            },
        };
        batch.bytes = batch.bytes.saturating_add(message.bytes);
        if batch.bytes > self.window {
            // The rest of the batch is read, because the next batch comes after it.
            batch.rows.clear();
            batch.memory.clear();
        } else {
            batch.rows.push(message.rows);
            batch.memory.push(memory);
        }
        if note.more {
            self.incoming = Some(batch);
            return Ok(());
        }
        self.queue_batch(batch)
    }

    fn queue_batch(&mut self, batch: IncomingBatch) -> Result<()> {
        let sequence = batch.sequence;
        if sequence > self.next_sequence {
            return Err(self.stream.gap(sequence, self.next_sequence));
        }
        self.stream.check()?;
        let content = self.stream.content(&batch.rows)?;
        let is_resent = sequence < self.next_sequence;
        let fitted = if batch.bytes > self.window {
            Err(Error::invalid(format!(
                "batch {sequence} has more than {} bytes, which is the stream's window (gateway.ingest.stream_window); nothing of it was written; send smaller batches",
                self.window
            )))
        } else if is_resent {
            let rows = batch.rows.iter().map(|rows| rows.num_rows() as u64).sum();
            self.queue.push_back(QueuedBatch::Resent {
                sequence,
                rows,
                content,
            });
            return Ok(());
        } else {
            self.stream.fit(&batch.rows)
        };
        self.next_sequence = self.next_sequence.max(sequence.saturating_add(1));
        let decided = |rows, is_refused| {
            content.map(|content| DecidedBatch {
                sequence,
                rows,
                content,
                is_refused,
            })
        };
        match fitted {
            Ok(rows) => {
                let mut noted = std::mem::take(&mut self.refused);
                noted.extend(decided(rows.rows(), false));
                self.outstanding_bytes += batch.bytes;
                self.queue.push_back(QueuedBatch::Ready {
                    sequence,
                    rows,
                    decided: noted,
                    bytes: batch.bytes,
                    memory: batch.memory,
                });
            }
            Err(error) if self.goes_on && error.code() == ErrorCode::InvalidArgument => {
                if !is_resent {
                    self.refused.extend(decided(0, true));
                }
                self.queue
                    .push_back(QueuedBatch::Refused { sequence, error });
            }
            Err(error) => self.fail_batch(Some(sequence), error),
        }
        Ok(())
    }

    /// Hands over the batches that may be written now. `place` is for the next large one. If a
    /// large batch needs a place, `wanted` is set to the future of one.
    fn begin_ready(
        &mut self,
        wanted: &mut Option<BoxFuture<'static, Option<LargePlace>>>,
        mut place: Option<LargePlace>,
    ) {
        while let Some(next) = self.queue.get_mut(self.begun) {
            match next {
                QueuedBatch::Ready { rows, .. } => {
                    let is_large = IngestStream::is_large(rows);
                    if is_large {
                        if self.large_in_flight >= MAX_LARGE_IN_FLIGHT {
                            return;
                        }
                        if place.is_none() {
                            wanted.get_or_insert_with(|| self.stream.large_place());
                            return;
                        }
                    } else if self.large_in_flight > 0 {
                        // It could be committed before the large ones.
                        return;
                    }
                    let large_place = is_large.then(|| place.take()).flatten();
                    self.begin(large_place);
                }
                // What comes after it may not be wanted.
                QueuedBatch::Resent { .. } => return,
                _ => {}
            }
            self.begun += 1;
        }
    }

    /// Hands over the first batch that has not begun.
    fn begin(&mut self, large_place: Option<LargePlace>) {
        let Some(next) = self.queue.get_mut(self.begun) else {
            return;
        };
        let placeholder = QueuedBatch::Resent {
            sequence: 0,
            rows: 0,
            content: None,
        };
        let QueuedBatch::Ready {
            sequence,
            rows,
            decided,
            bytes,
            memory,
        } = std::mem::replace(next, placeholder)
        else {
            return;
        };
        self.large_in_flight += usize::from(large_place.is_some());
        *next = QueuedBatch::Running {
            sequence,
            rows: rows.rows(),
            bytes,
            outcome: Box::pin(self.stream.submit(rows, decided, memory).outcome()),
            large_place,
        };
    }

    /// Answers the batch at the front of the queue if nothing has to be waited for. Returns whether
    /// there was such a batch.
    ///
    /// # Errors
    /// The error with which the stream ends.
    async fn answer_decided(&mut self) -> Result<bool> {
        match self.queue.front() {
            None | Some(QueuedBatch::Ready { .. } | QueuedBatch::Running { .. }) => {
                return Ok(false);
            }
            Some(_) => {}
        }
        match self.pop_front() {
            Some(QueuedBatch::Resent {
                sequence,
                rows,
                content,
            }) => match self.stream.earlier(sequence, content) {
                Ok(EarlierBatch::Committed(known)) => {
                    let rows = Some(known.unwrap_or(rows));
                    self.acknowledge(sequence, rows, Outcome::Duplicate).await?;
                }
                Ok(EarlierBatch::Refused) => {
                    let error = Error::invalid(format!(
                        "batch {sequence} was refused when it was first sent; nothing of it was written; send correct rows as a new batch"
                    ));
                    self.refuse(sequence, &error).await?;
                    if !self.goes_on {
                        return Err(error);
                    }
                }
                Err(error) => {
                    self.refuse(sequence, &error).await?;
                    return Err(error);
                }
            },
            Some(QueuedBatch::Refused { sequence, error }) => {
                self.refuse(sequence, &error).await?;
            }
            Some(QueuedBatch::Failed { sequence, error }) => {
                if let Some(sequence) = sequence {
                    self.refuse(sequence, &error).await?;
                }
                return Err(error);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn pop_front(&mut self) -> Option<QueuedBatch> {
        self.begun = self.begun.saturating_sub(1);
        self.queue.pop_front()
    }

    /// Answers the batch at the front of the queue, whose write has ended.
    async fn answer_front(&mut self, outcome: Result<()>) -> Result<()> {
        let Some(QueuedBatch::Running {
            sequence,
            rows,
            bytes,
            large_place,
            ..
        }) = self.pop_front()
        else {
            return Ok(());
        };
        self.outstanding_bytes = self.outstanding_bytes.saturating_sub(bytes);
        self.large_in_flight -= usize::from(large_place.is_some());
        match outcome {
            Ok(()) => {
                self.rows = self.rows.saturating_add(rows);
                self.stream.note_commit();
                self.acknowledge(sequence, Some(rows), Outcome::Committed)
                    .await
            }
            // The batch was given up because the stream ends.
            Err(error) => match self.end.take() {
                Some(end) => Err(end),
                None => {
                    self.refuse(sequence, &error).await?;
                    Err(error)
                }
            },
        }
    }

    async fn acknowledge(
        &mut self,
        sequence: u64,
        rows: Option<u64>,
        outcome: Outcome,
    ) -> Result<()> {
        self.send(Acknowledgement {
            sequence,
            rows,
            outcome,
            error: None,
            window: self.window,
        })
        .await
    }

    async fn refuse(&mut self, sequence: u64, error: &Error) -> Result<()> {
        self.send(Acknowledgement {
            sequence,
            rows: None,
            outcome: Outcome::Refused,
            error: Some(RefusalNote::new(error)),
            window: self.window,
        })
        .await
    }

    async fn send(&mut self, note: Acknowledgement) -> Result<()> {
        let note = Answer::Note(message(&note));
        let sending = self.notes.send_timeout(note, self.idle_timeout);
        sending.await.map_err(|_| {
            Error::new(
                ErrorCode::Cancelled,
                "the client went away, or it has read no answer for too long (gateway.ingest.stream_idle_timeout)",
            )
        })
    }

    fn finish(&self) -> Result<()> {
        self.stream.set_done(self.rows);
        Ok(())
    }
}
