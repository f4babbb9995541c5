//! The gateway answers the batches in their order. It reads ahead only up to the stream's window,
//! and writes several batches meanwhile. Whatever ends the stream, the batches that are committed
//! are answered first.

/// Sends answers to the client.
mod answers;
/// Keeps the order of batches, several of which are written at the same time.
mod queue;

use std::time::Duration;

use arrow::record_batch::RecordBatch;
use bytes::Bytes;
use futures::future::{BoxFuture, OptionFuture};
use futures::stream::{self, StreamExt, TryStreamExt};
use tokio::time::Instant;
use tracing::Instrument;
use volary_catalog::DecidedBatch;
use volary_exec::batches::used_bytes;
use volary_exec::client_rows::ClientMessages;
use volary_flight_proto::{Error, ErrorCode, Result};
use volary_node::runtimes::{SHORT_WORK_BYTES, continue_on_cpu};

use self::answers::Answers;
use self::queue::{BatchQueue, DecidedAnswer, ReadyBatch, WantedPlace};
use super::batch_notes::{BatchNote, OpenedNote, Outcome, message};
use super::endings::{Ending, Endings};
use super::open_login::OpenLogin;
use crate::engine::ingest_stream::{EarlierBatch, IngestStream, LargePlace};
use crate::flight_sql::FlightSql;
use crate::flight_sql::call::ClientCall;
use crate::flight_sql::ingest::StreamRequest;
use crate::flight_sql::stream::with_query_id;
use crate::flight_sql::upload::{AnnotatedBatch, AnnotatedBatches};
use crate::load::budget::BudgetShare;
use crate::statements::ListedStatement;

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
        let last_sequence = stream.last_sequence();
        let window = config.stream_window.bytes();
        let idle_timeout = config.stream_idle_timeout.min(LONGEST_IDLE);
        let (answers, messages) = Answers::channel(window, idle_timeout);
        let opened = message(&OpenedNote {
            query_id: id,
            producer: stream.producer().map(|producer| producer.as_str()),
            last_sequence,
            window,
        });
        let (ended, taken_over) = (listed.wait_for_end(), stream.wait_for_takeover());
        let at_once = async move {
            tokio::select! {
                error = ended => error,
                error = taken_over => error,
            }
        };
        let stopping = self.engine.streams().stopping().clone();
        let endings = Endings::new(at_once, stopping, "the batches that were not acknowledged");
        let runtimes = stream.runtimes().clone();
        let reader = BatchStream {
            stream,
            login: OpenLogin::new(&self.login, &call.credentials),
            batches,
            answers: answers.clone(),
            window,
            idle_timeout,
            goes_on: request.goes_on,
            next_sequence: last_sequence.saturating_add(1),
            incoming: None,
            refused: Vec::new(),
            queue: BatchQueue::default(),
            is_input_open: true,
            end: None,
            rows: 0,
        };
        let reading = async move {
            let end = match reader.run(endings).await {
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
            answers.end(end).await;
        };
        runtimes.spawn_here(reading.in_current_span());
        Ok(stream::iter([Ok(opened)]).chain(messages).boxed())
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

/// A stream of batches while it is open.
struct BatchStream {
    stream: IngestStream,
    /// What the client has logged in with.
    login: OpenLogin,
    batches: AnnotatedBatches,
    answers: Answers,
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
    queue: BatchQueue,
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
    async fn run(mut self, mut endings: Endings) -> Result<()> {
        let mut waiting: Option<WaitingMessage> = None;
        let mut large_place: WantedPlace = None;
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
            let outcome: OptionFuture<_> = self.queue.front_outcome().into();
            let place: OptionFuture<_> = large_place.as_mut().into();
            let memory = waiting.as_mut().map(|waiting| &mut waiting.memory);
            let memory: OptionFuture<_> = memory.into();
            let event = tokio::select! {
                biased;
                ending = endings.next(), if may_end => Event::Ending(ending),
                () = self.answers.closed() => Event::ClientGone,
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
                    if bytes > SHORT_WORK_BYTES {
                        continue_on_cpu().await;
                    }
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
        self.queue.is_empty() || self.queue.has_room(incoming, self.window)
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
        self.queue
            .push_decided(DecidedAnswer::Failed { sequence, error });
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
        self.queue.keep_running();
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
        self.login.check()?;
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
            self.queue.push_decided(DecidedAnswer::Resent {
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
                self.queue.push_ready(ReadyBatch {
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
                    .push_decided(DecidedAnswer::Refused { sequence, error });
            }
            Err(error) => self.fail_batch(Some(sequence), error),
        }
        Ok(())
    }

    fn begin_ready(&mut self, wanted: &mut WantedPlace, place: Option<LargePlace>) {
        self.queue.begin_ready(&mut self.stream, wanted, place);
    }

    /// Answers the batch at the front of the queue if nothing has to be waited for. Returns whether
    /// there was such a batch.
    ///
    /// # Errors
    /// The error with which the stream ends.
    async fn answer_decided(&mut self) -> Result<bool> {
        let Some(decided) = self.queue.take_decided() else {
            return Ok(false);
        };
        match decided {
            DecidedAnswer::Resent {
                sequence,
                rows,
                content,
            } => match self.stream.earlier(sequence, content) {
                Ok(EarlierBatch::Committed(known)) => {
                    let rows = known.unwrap_or(rows);
                    let acknowledged = self.answers.acknowledge(sequence, rows, Outcome::Duplicate);
                    acknowledged.await?;
                }
                Ok(EarlierBatch::Refused) => {
                    let error = Error::invalid(format!(
                        "batch {sequence} was refused when it was first sent; nothing of it was written; send correct rows as a new batch"
                    ));
                    self.answers.refuse(sequence, &error).await?;
                    if !self.goes_on {
                        return Err(error);
                    }
                }
                Err(error) => {
                    self.answers.refuse(sequence, &error).await?;
                    return Err(error);
                }
            },
            DecidedAnswer::Refused { sequence, error } => {
                self.answers.refuse(sequence, &error).await?;
            }
            DecidedAnswer::Failed { sequence, error } => {
                if let Some(sequence) = sequence {
                    self.answers.refuse(sequence, &error).await?;
                }
                return Err(error);
            }
        }
        Ok(true)
    }

    /// Answers the batch at the front of the queue, whose write has ended.
    async fn answer_front(&mut self, outcome: Result<()>) -> Result<()> {
        let Some(batch) = self.queue.take_written() else {
            return Ok(());
        };
        match outcome {
            Ok(()) => {
                self.rows = self.rows.saturating_add(batch.rows);
                self.stream.note_commit();
                let outcome = Outcome::Committed;
                let acknowledged = self
                    .answers
                    .acknowledge(batch.sequence, batch.rows, outcome);
                acknowledged.await
            }
            // The batch was given up because the stream ends.
            Err(error) => match self.end.take() {
                Some(end) => Err(end),
                None => {
                    self.answers.refuse(batch.sequence, &error).await?;
                    Err(error)
                }
            },
        }
    }

    fn finish(&self) -> Result<()> {
        self.stream.set_done(self.rows);
        Ok(())
    }
}
