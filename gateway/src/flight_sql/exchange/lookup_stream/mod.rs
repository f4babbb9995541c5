//! The gateway answers the batches of keys in their order. It reads ahead only up to the stream's
//! window, and looks up several batches meanwhile. Small batches that wait are looked up together,
//! so that each worker is asked once for all of them. A batch that cannot be looked up is refused,
//! and the stream goes on.

/// Encodes the answers to batches.
mod answers;
/// Defines the notes of a stream of lookups.
mod notes;
/// Keeps the order of batches, several of which are looked up at the same time.
mod queue;
/// Says when a client that reads nothing has to go.
mod unread;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use arrow::record_batch::RecordBatch;
use futures::FutureExt;
use futures::future::{self, BoxFuture, OptionFuture};
use futures::stream::{self, StreamExt, TryStreamExt};
use tokio::sync::mpsc;
use tonic::metadata::MetadataMap;
use tracing::Instrument;
use volary_exec::client_rows::{ClientMessages, schema_message};
use volary_flight_proto::{Error, ErrorCode, Result};
use volary_node::admission::RunPlace;
use volary_node::deadline::Deadline;
use volary_node::runtimes::{SHORT_WORK_BYTES, continue_on_cpu};

use self::answers::{AnswerColumns, AnswerMessage, BatchPart, refusal};
use self::notes::OpenedNote;
use self::queue::{LookupQueue, WaitingBatch};
use self::unread::{unread_error, wait_until_unread};
use super::answer_channel::{Answer, channel};
use super::batch_notes::message;
use super::endings::{Ending, Endings};
use super::open_login::OpenLogin;
use crate::engine::lookup_stream::{LookedUp, LookupStream, LookupTarget};
use crate::flight_sql::FlightSql;
use crate::flight_sql::call::ClientCall;
use crate::flight_sql::stream::with_query_id;
use crate::flight_sql::upload::{AnnotatedBatch, AnnotatedBatches};
use crate::lookup::keys::{Keys, bytes_of_keys};
use crate::statements::ListedStatement;

/// The longest time for which a stream may be idle. A later time could not be expressed.
const LONGEST_IDLE: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
/// Number of messages that wait to be sent, above which no further lookup begins.
const MAX_UNSENT: usize = 64;
/// Number of messages that are ready for the network. The others wait in the stream, where they can
/// be given up.
const MAX_UNREAD: usize = 4;
/// The error for a stream that breaks off.
const BROKEN_OFF: &str = "the stream of lookups was broken off; connect again, and send the batches that were not answered";
/// Time after which a stream gives its place to others who wait for one.
const TURN: Duration = Duration::from_millis(100);

impl FlightSql {
    /// Opens a stream of lookups. The stream goes on after this has returned the messages for the
    /// client.
    pub(in crate::flight_sql) async fn open_lookup_stream(
        &self,
        call: &ClientCall,
        listed: ListedStatement,
        target: LookupTarget,
        batches: AnnotatedBatches,
    ) -> Result<ClientMessages> {
        let id = listed.id();
        let opening = self.open_lookups(call, &listed, target, batches);
        let opening = listed.run_until_ended(opening, call.deadline.wait_expired());
        let opened = opening.await.and_then(|(stream, batches)| {
            let columns = AnswerColumns::new(&stream.columns(), call.profile);
            let schema = schema_message(columns.announced.clone())?;
            Ok((stream, batches, columns, schema))
        });
        let (stream, batches, columns, schema) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                let error = with_query_id(error, id);
                listed.set_failed(&error);
                return Err(error);
            }
        };
        let config = &self.config.lookup;
        let opened = message(&OpenedNote {
            query_id: id,
            max_keys: config.max_keys,
            window: config.window.bytes(),
        });
        let stopping = self.engine.streams().stopping().clone();
        let ended = listed.wait_for_end();
        // As long as the stream is open, workers keep what its one snapshot needs.
        let too_long = stream.has_one_snapshot().then_some(call.deadline);
        let at_once = async move {
            let too_long: OptionFuture<_> = too_long.map(Deadline::wait_expired).into();
            tokio::select! {
                error = ended => error,
                Some(error) = too_long => error.at("a stream of lookups in one snapshot"),
            }
        };
        let endings = Endings::new(at_once, stopping, "the batches that were not answered");
        let runtimes = stream.runtimes().clone();
        let (sender, messages) = channel(MAX_UNREAD, BROKEN_OFF);
        let mut served = ServedStream {
            stream,
            login: OpenLogin::new(&self.login, &call.credentials),
            batches,
            columns,
            listed,
            sender: sender.clone(),
            window: config.window.bytes(),
            idle_timeout: config.idle_timeout.min(LONGEST_IDLE),
            batch_timeout: self.config.query.timeout,
            statement_timeout: call.session.engine.statement_timeout(),
            next_sequence: 1,
            queue: LookupQueue::default(),
            turn: Turn::None,
            unsent: VecDeque::new(),
            is_input_open: true,
            end: None,
        };
        let serving = async move {
            let end = match served.run(endings).await {
                Ok(()) => {
                    served.listed.set_finished();
                    Ok(())
                }
                Err(error) => {
                    let error = with_query_id(error, id);
                    tracing::debug!(
                        error = format_args!("{error:#}"),
                        "the stream of lookups ended"
                    );
                    served.listed.set_failed(&error);
                    Err(error.into())
                }
            };
            let idle_timeout = served.idle_timeout;
            drop(served);
            // The client may have gone away, or it reads nothing more.
            let _ = sender.send_timeout(Answer::End(end), idle_timeout).await;
        };
        runtimes.spawn_here(serving.in_current_span());
        let first = stream::iter([Ok(opened), Ok(schema)]);
        Ok(first.chain(messages).boxed())
    }

    async fn open_lookups(
        &self,
        call: &ClientCall,
        listed: &ListedStatement,
        target: LookupTarget,
        mut batches: AnnotatedBatches,
    ) -> Result<(LookupStream, AnnotatedBatches)> {
        let Some(AnnotatedBatch::Columns(schema)) = batches.try_next().await? else {
            return Err(Error::invalid(
                "the stream of keys has no schema; send it in the first message, before the first batch",
            ));
        };
        let session = &call.session.engine;
        let opening = self
            .engine
            .open_lookup_stream(session, target, schema, listed.id());
        Ok((Box::pin(opening).await?, batches))
    }
}

/// The right of a stream to look up batches, which it shares with other statements.
enum Turn {
    None,
    Asked(BoxFuture<'static, Result<RunPlace>>),
    Has {
        #[expect(dead_code, reason = "held until it is dropped")]
        place: RunPlace,
        since: Instant,
    },
}

type RunningLookup = BoxFuture<'static, Result<LookedUp>>;

/// A stream of lookups while it is open.
struct ServedStream {
    stream: LookupStream,
    /// What the client has logged in with.
    login: OpenLogin,
    batches: AnnotatedBatches,
    columns: AnswerColumns,
    listed: ListedStatement,
    sender: mpsc::Sender<Answer<AnswerMessage>>,
    /// Size of the keys that are read ahead.
    window: usize,
    idle_timeout: Duration,
    batch_timeout: Duration,
    statement_timeout: Option<Duration>,
    /// The number of the next batch.
    next_sequence: u64,
    queue: LookupQueue,
    turn: Turn,
    /// The messages that wait until the client has read others.
    unsent: VecDeque<AnswerMessage>,
    is_input_open: bool,
    /// The error with which the stream ends when all batches that have begun are answered.
    end: Option<Error>,
}

enum Event {
    Ending(Ending),
    ClientGone,
    Sent,
    Answers(Vec<AnswerMessage>),
    Turn(Result<RunPlace>),
    Expired,
    Message(Option<Result<AnnotatedBatch>>),
    /// The client has read nothing for this time.
    Unread(Duration),
    Idle,
}

impl ServedStream {
    /// Reads and answers batches until the stream ends.
    ///
    /// # Errors
    /// The error with which the stream ends.
    async fn run(&mut self, mut endings: Endings) -> Result<()> {
        let mut active_at = tokio::time::Instant::now();
        // Since when the client reads none of the messages that wait for it.
        let (mut read_at, mut had_unsent) = (active_at, false);
        loop {
            self.begin_waiting();
            if self.queue.is_empty() && self.unsent.is_empty() {
                if let Some(error) = self.end.take() {
                    return Err(error);
                }
                if !self.is_input_open {
                    return Ok(());
                }
            }
            let is_full = self.is_full();
            let may_read = self.is_input_open && !is_full && self.queue.has_room(self.window);
            let has_unsent = !self.unsent.is_empty();
            let has_running = self.queue.has_running();
            if !had_unsent {
                read_at = active_at;
            }
            had_unsent = has_unsent;
            // Without a lookup that runs, only the client or others can let the stream go on.
            let may_be_idle = self.queue.is_empty() || has_unsent && !has_running;
            let idle = tokio::time::sleep_until(active_at + self.idle_timeout);
            let asked = match &mut self.turn {
                Turn::Asked(turn) => Some(turn),
                Turn::None | Turn::Has { .. } => None,
            };
            // What is refused needs room among the messages that wait to be sent.
            let may_refuse = asked.is_some() && !is_full;
            let expired = may_refuse.then(|| self.queue.next_deadline()).flatten();
            let expired: OptionFuture<_> = expired.map(Deadline::wait_expired).into();
            let asked: OptionFuture<_> = asked.into();
            let unread = (is_full && !has_running)
                .then(|| wait_until_unread(read_at, self.stream.statement_queue()));
            let unread: OptionFuture<_> = unread.into();
            let event = tokio::select! {
                biased;
                ending = endings.next() => Event::Ending(ending),
                () = self.sender.closed() => Event::ClientGone,
                permit = self.sender.reserve(), if has_unsent => match permit {
                    Ok(permit) => {
                        if let Some(answer) = self.unsent.pop_front() {
                            self.listed.add_sent_bytes(answer.message.data_body.len());
                            self.listed.progress().add_rows(answer.rows);
                            permit.send(Answer::Message(answer));
                        }
                        Event::Sent
                    }
                    Err(_) => Event::ClientGone,
                },
                answers = self.queue.next_answers(), if has_running => Event::Answers(answers),
                Some(turn) = asked => Event::Turn(turn),
                Some(_) = expired => Event::Expired,
                message = self.batches.next(), if may_read => Event::Message(message),
                Some(time) = unread => Event::Unread(time),
                () = idle, if may_be_idle => Event::Idle,
            };
            active_at = tokio::time::Instant::now();
            match event {
                Event::Ending(Ending::AfterWhatWasRead(error)) => self.end_after_answers(error),
                Event::Ending(Ending::AtOnce(error)) => return Err(error),
                Event::ClientGone => {
                    return Err(Error::new(ErrorCode::Cancelled, "the client went away"));
                }
                Event::Sent => read_at = active_at,
                Event::Answers(answers) => {
                    self.unsent.extend(answers);
                    self.stream.note_running(self.queue.running_since());
                }
                Event::Turn(Ok(place)) => {
                    let since = Instant::now();
                    self.turn = Turn::Has { place, since };
                }
                Event::Turn(Err(error)) => {
                    self.turn = Turn::None;
                    let waiting = self.queue.take_waiting();
                    self.refuse_all(&waiting, &error);
                }
                Event::Expired => {
                    if let Some((batch, error)) = self.queue.take_expired() {
                        self.refuse_all(&[batch], &error);
                    }
                }
                Event::Message(None) => self.is_input_open = false,
                Event::Message(Some(Ok(AnnotatedBatch::Rows(rows, _)))) => {
                    let bytes = bytes_of_keys(&rows);
                    if bytes > SHORT_WORK_BYTES {
                        continue_on_cpu().await;
                    }
                    self.take_batch(&rows, bytes);
                }
                Event::Message(Some(Ok(AnnotatedBatch::Columns(_)))) => {
                    self.end_after_answers(Error::invalid(
                        "the schema of the stream was sent again; a stream has one schema",
                    ));
                }
                Event::Message(Some(Err(error))) => self.end_after_answers(error),
                Event::Unread(time) => return Err(unread_error(time)),
                Event::Idle => return Err(self.idle_error(has_unsent)),
            }
        }
    }

    fn idle_error(&self, has_unsent: bool) -> Error {
        let what = match has_unsent {
            true => "the client has read no answer",
            false => "no batch of keys arrived",
        };
        Error::new(
            ErrorCode::DeadlineExceeded,
            format!(
                "the stream was idle: {what} for {:?} (gateway.lookup.idle_timeout); open another stream when there are keys",
                self.idle_timeout
            ),
        )
    }

    /// Reads nothing more. The stream ends with this error when what was read is answered.
    fn end_after_answers(&mut self, error: Error) {
        self.is_input_open = false;
        self.end.get_or_insert(error);
    }

    fn take_batch(&mut self, rows: &RecordBatch, bytes: usize) {
        let sequence = self.next_sequence;
        self.next_sequence = self.next_sequence.saturating_add(1);
        let read = self.stream.memory_for_keys(bytes).and_then(|memory| {
            let keys = self.stream.read_keys(rows)?;
            Ok((keys, memory))
        });
        let (keys, memory) = match read {
            Ok((keys, memory)) => (Ok(keys), Some(memory)),
            Err(error) => (Err(error), None),
        };
        let deadline = Deadline::from_metadata(&MetadataMap::new(), self.batch_timeout)
            .with_session_timeout(self.statement_timeout);
        self.queue.push(WaitingBatch {
            sequence,
            keys,
            bytes,
            memory,
            deadline,
        });
    }

    /// Returns whether so many messages wait to be sent that no further lookup begins.
    fn is_full(&self) -> bool {
        self.unsent.len() >= MAX_UNSENT
    }

    /// Begins to look up the batches that wait, as far as that is possible now. Gives the place
    /// back if nothing runs and only the client can let the stream go on.
    fn begin_waiting(&mut self) {
        while self.queue.has_waiting() && self.queue.may_begin() && !self.is_full() {
            match &self.turn {
                Turn::Asked(_) => return,
                Turn::Has { since, .. } if since.elapsed() < TURN => {}
                Turn::Has { .. } if !self.stream.must_give_way() => {}
                Turn::Has { .. } if self.queue.has_running() => return,
                Turn::None | Turn::Has { .. } => {
                    // The place is given back before another one is asked for.
                    self.turn = Turn::None;
                    self.turn = Turn::Asked(self.stream.wait_for_turn());
                    return;
                }
            }
            let joined = self.queue.take_joined();
            self.begin(joined);
        }
        if self.queue.is_empty() || self.is_full() && !self.queue.has_running() {
            self.turn = Turn::None;
        }
    }

    /// Begins to look up these batches together.
    fn begin(&mut self, batches: Vec<WaitingBatch>) {
        let Some(deadline) = batches.first().map(|batch| batch.deadline) else {
            return;
        };
        let taken = (batches.len(), batches.iter().map(|batch| batch.bytes).sum());
        let (mut parts, mut keys, mut memory) = (Vec::new(), Vec::new(), Vec::new());
        let mut start = 0;
        for batch in batches {
            let asked = batch.keys.map(|of_batch| {
                let positions = start..start + of_batch.count();
                start = positions.end;
                keys.push(of_batch);
                positions
            });
            memory.extend(batch.memory);
            parts.push(BatchPart {
                sequence: batch.sequence,
                asked,
            });
        }
        let looked_up = match self.look_up(keys) {
            Ok(looked_up) => looked_up,
            Err(error) => {
                // These batches are not answered, because the stream ends.
                self.queue.take_waiting();
                return self.end_after_answers(error);
            }
        };
        let (columns, counts) = (self.columns.clone(), self.stream.counts());
        let answering = async move {
            let looked_up = looked_up.map(|looked_up| deadline.run_until(looked_up));
            let found = OptionFuture::from(looked_up).await;
            drop(memory);
            if matches!(found, Some(Ok(_))) {
                for keys in parts.iter().filter_map(|part| part.asked.as_ref().ok()) {
                    counts.note_batch(keys.len());
                }
            }
            columns.answer(found, parts)
        };
        self.queue.run(taken, answering.boxed());
        self.stream.note_running(self.queue.running_since());
    }

    /// Begins to look up the keys of batches. Returns `None` if all of them are refused.
    ///
    /// # Errors
    /// The errors that end the stream.
    fn look_up(&mut self, keys: Vec<Keys>) -> Result<Option<RunningLookup>> {
        if keys.is_empty() {
            return Ok(None);
        }
        Ok(Some(match Keys::join(keys) {
            Ok(keys) => {
                self.login.check()?;
                self.stream.begin(keys)?.boxed()
            }
            Err(error) => future::ready(Err(error)).boxed(),
        }))
    }

    fn refuse_all(&mut self, batches: &[WaitingBatch], error: &Error) {
        let refused = batches.iter().map(|batch| {
            let own = batch.keys.as_ref().err();
            refusal(batch.sequence, own.unwrap_or(error))
        });
        self.unsent.extend(refused);
    }
}
