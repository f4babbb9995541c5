//! The first poll starts the query, so that its work does not wait for the DoGet. As soon as the
//! first rows are there, polls are answered that the query is complete. Further rows wait in the
//! query's own buffers. The query ends if its client neither polls nor fetches the rows.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arrow_flight::sql::Any;
use arrow_flight::{FlightDescriptor, FlightInfo, PollInfo};
use bytes::Bytes;
use futures::stream::{self, StreamExt};
use parking_lot::Mutex;
use prost::Message;
use prost_types::Timestamp;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tonic::metadata::MetadataMap;
use volary_catalog::access::Access;
use volary_flight_proto::Result;
use volary_flight_proto::ids::QueryId;
use volary_flight_proto::ticket::QueryTicket;

use super::FlightSql;
use super::actions::decode_body;
use super::call::ClientCall;
use super::command::parse_any;
use crate::statements::{MAX_POLLED, WorkerStatistics};
use volary_exec::client_rows::ClientMessages;
use volary_node::deadline::Deadline;

/// Time after which a query ends if its client neither polls it nor asks for its rows.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum time that the answer to a poll waits for new progress.
const MAX_POLL_WAIT: Duration = Duration::from_secs(1);

/// Interval at which progress is checked. Progress is counted when all rows of a worker have
/// arrived, without a notification.
pub(super) const PROGRESS_INTERVAL: Duration = Duration::from_millis(50);

/// Type URL of the descriptor that the client sends back with the next poll.
const CONTINUATION: &str = "type.googleapis.com/volary.PollQuery";

/// The queries that run before their rows are asked for.
#[derive(Debug)]
pub(super) struct PolledQueries {
    idle_timeout: Duration,
    by_id: Mutex<HashMap<QueryId, Arc<PolledQuery>>>,
}

/// A query that runs before its rows are asked for.
#[derive(Debug)]
struct PolledQuery {
    /// Users and their rights at the time when the query was planned.
    access: Arc<Access>,
    last_asked: Mutex<Instant>,
    /// The stream of the query's messages, beginning with the first rows. It is `None` until the
    /// first rows are there.
    stream: Mutex<Option<PolledStream>>,
    readiness: watch::Sender<bool>,
    /// Notified if the client did not receive the answer to its first poll. The client cannot poll
    /// again then.
    abandoned: Notify,
}

struct PolledStream(ClientMessages);

impl std::fmt::Debug for PolledStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PolledStream")
    }
}

impl PolledQuery {
    /// Completes when nobody has asked for the query for `idle_timeout`.
    async fn wait_until_idle(&self, idle_timeout: Duration) {
        loop {
            let until = *self.last_asked.lock() + idle_timeout;
            if until <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(until).await;
        }
    }
}

impl Default for PolledQueries {
    fn default() -> Self {
        Self::new(IDLE_TIMEOUT)
    }
}

impl PolledQueries {
    fn new(idle_timeout: Duration) -> Self {
        Self {
            idle_timeout,
            by_id: Mutex::default(),
        }
    }

    /// Starts a query. Must be called within a runtime.
    fn start(self: &Arc<Self>, id: QueryId, access: Arc<Access>, messages: ClientMessages) {
        let started = Arc::new(PolledQuery {
            access,
            last_asked: Mutex::new(Instant::now()),
            stream: Mutex::default(),
            readiness: watch::Sender::new(false),
            abandoned: Notify::new(),
        });
        self.by_id.lock().insert(id, Arc::clone(&started));
        let polled = Arc::clone(self);
        tokio::spawn(async move {
            tokio::select! {
                stream = wait_for_first_rows(messages) => {
                    *started.stream.lock() = Some(PolledStream(stream));
                    started.readiness.send_replace(true);
                    started.wait_until_idle(polled.idle_timeout).await;
                }
                () = started.wait_until_idle(polled.idle_timeout) => {}
                () = started.abandoned.notified() => {}
            }
            polled.remove(id, &started);
        });
    }

    fn is_full(&self) -> bool {
        self.by_id.lock().len() >= MAX_POLLED
    }

    fn remove(&self, id: QueryId, started: &Arc<PolledQuery>) {
        let mut by_id = self.by_id.lock();
        if by_id
            .get(&id)
            .is_some_and(|kept| Arc::ptr_eq(kept, started))
        {
            by_id.remove(&id);
        }
    }

    /// Ends a query whose client did not receive the answer to its first poll.
    fn abandon(&self, id: QueryId) {
        if let Some(started) = self.by_id.lock().get(&id) {
            started.abandoned.notify_one();
        }
    }

    fn get(&self, id: QueryId) -> Option<Arc<PolledQuery>> {
        let started = self.by_id.lock().get(&id).map(Arc::clone)?;
        *started.last_asked.lock() = Instant::now();
        Some(started)
    }

    /// Returns the stream of a started query, once its first rows are there. Returns `None` if
    /// there is no such query, or if users or rights have changed since it was planned.
    pub(super) async fn take(
        &self,
        id: QueryId,
        access: impl Fn() -> Arc<Access>,
    ) -> Option<ClientMessages> {
        loop {
            let started = self.get(id)?;
            if !Arc::ptr_eq(&started.access, &access()) {
                self.remove(id, &started);
                return None;
            }
            let mut is_ready = started.readiness.subscribe();
            let ready = is_ready.wait_for(|ready| *ready);
            // The query must not be dropped while this waits. Each iteration therefore asks for it
            // again, which restarts its idle timeout.
            if tokio::time::timeout(self.idle_timeout / 2, ready)
                .await
                .is_ok()
            {
                self.remove(id, &started);
                let stream = started.stream.lock().take();
                return stream.map(|PolledStream(stream)| stream);
            }
        }
    }
}

/// Ends the query that a first poll has started, unless the poll is answered. Without the answer,
/// the client cannot poll again.
struct FirstPoll<'a> {
    polled: &'a PolledQueries,
    started: Option<QueryId>,
}

impl Drop for FirstPoll<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.started {
            self.polled.abandon(id);
        }
    }
}

/// Waits for the first rows of the stream, or for its end. Returns a stream of the same messages.
async fn wait_for_first_rows(mut messages: ClientMessages) -> ClientMessages {
    let mut first = Vec::new();
    // The first message is the schema. The second one has the first rows.
    while first.len() < 2 {
        let Some(message) = messages.next().await else {
            break;
        };
        first.push(message);
    }
    stream::iter(first).chain(messages).boxed()
}

/// The message that the client sends back with the next poll.
#[derive(Clone, PartialEq, Message)]
struct PollQuery {
    /// The FlightInfo that the client receives when the query is ready. Its ticket is sealed.
    #[prost(message, optional, tag = "1")]
    info: Option<FlightInfo>,
    /// The progress that the client was told last, in percent.
    #[prost(uint32, optional, tag = "2")]
    progress: Option<u32>,
}

impl FlightSql {
    /// Answers a poll.
    pub(super) async fn poll(
        &self,
        call: &ClientCall,
        descriptor: FlightDescriptor,
    ) -> Result<PollInfo> {
        let mut first = FirstPoll {
            polled: &self.polled_queries,
            started: None,
        };
        let poll = match continuation(&descriptor)? {
            Some(poll) => poll,
            None => {
                let info = self.info(call, descriptor).await?;
                first.started = self.start_query(call, &info)?;
                PollQuery {
                    info: Some(info),
                    progress: None,
                }
            }
        };
        let info = poll.info.clone().unwrap_or_default();
        let Some((id, _)) = self.query_of(call, &info)? else {
            return Ok(complete_info(info));
        };
        let Some(started) = self.polled_queries.get(id) else {
            // The query is not kept here. It was not started, it was started too long ago, or it
            // runs on another gateway. Its ticket returns the same rows.
            return Ok(complete_info(info));
        };
        let answer_at = Instant::now() + MAX_POLL_WAIT;
        loop {
            let mut is_ready = started.readiness.subscribe();
            let ready = is_ready.wait_for(|ready| *ready);
            let is_ready = match tokio::time::timeout(PROGRESS_INTERVAL, ready).await {
                Ok(ready) => ready.is_ok(),
                Err(_) => false,
            };
            if is_ready {
                first.started = None;
                return Ok(complete_info(info));
            }
            let progress = self.engine.statements().work(id).and_then(percent_done);
            if progress != poll.progress || Instant::now() >= answer_at {
                first.started = None;
                return Ok(incomplete_info(info, progress));
            }
        }
    }

    /// Runs the query that was planned for a FlightInfo, and returns its id. Returns `None` if
    /// nothing was started.
    fn start_query(&self, call: &ClientCall, info: &FlightInfo) -> Result<Option<QueryId>> {
        let Some((id, ticket)) = self.query_of(call, info)? else {
            return Ok(None);
        };
        if self.polled_queries.is_full() {
            return Ok(None);
        }
        let Some(query) = self.take_plan(call, id) else {
            return Ok(None);
        };
        // The query continues after this call, so the call's deadline does not apply to it.
        let deadline = Deadline::from_metadata(&MetadataMap::new(), self.config.query.timeout)
            .with_session_timeout(call.session.engine.statement_timeout());
        let issuer = call.issuer_of_ticket(&ticket.trace);
        let listed = self.engine.statements().add(id, issuer, &ticket.sql);
        let access = Arc::clone(&query.access);
        let messages = self.open_stream(listed, query, call.profile, deadline);
        self.polled_queries.start(id, access, messages);
        Ok(Some(id))
    }

    /// Returns the query that the FlightInfo's ticket is for, and the ticket.
    fn query_of(
        &self,
        call: &ClientCall,
        info: &FlightInfo,
    ) -> Result<Option<(QueryId, QueryTicket)>> {
        let ticket = info
            .endpoint
            .first()
            .and_then(|endpoint| endpoint.ticket.as_ref());
        let Some(ticket) = ticket else {
            return Ok(None);
        };
        self.tickets.open_query(&call.principal, ticket)
    }
}

fn continuation(descriptor: &FlightDescriptor) -> Result<Option<PollQuery>> {
    match parse_any(&descriptor.cmd) {
        Some(any) if any.type_url == CONTINUATION => {
            decode_body("PollFlightInfo", &any.value).map(Some)
        }
        _ => Ok(None),
    }
}

fn complete_info(info: FlightInfo) -> PollInfo {
    PollInfo {
        info: Some(info),
        flight_descriptor: None,
        progress: Some(1.0),
        expiration_time: None,
    }
}

fn incomplete_info(info: FlightInfo, progress: Option<u32>) -> PollInfo {
    let sent_info = FlightInfo {
        endpoint: Vec::new(),
        ..info.clone()
    };
    let poll = PollQuery {
        info: Some(info),
        progress,
    };
    let any = Any {
        type_url: CONTINUATION.to_owned(),
        value: poll.encode_to_vec().into(),
    };
    PollInfo {
        info: Some(sent_info),
        flight_descriptor: Some(FlightDescriptor::new_cmd(Bytes::from(any.encode_to_vec()))),
        progress: progress.map(|percent| f64::from(percent) / 100.0),
        expiration_time: SystemTime::now()
            .checked_add(IDLE_TIMEOUT)
            .map(Timestamp::from),
    }
}

/// Returns the completed share of a query's work in percent, or `None` if it is not known.
pub(super) fn percent_done(work: WorkerStatistics) -> Option<u32> {
    let percent = (work.workers_done * 100).checked_div(work.workers)?;
    // The operators above the gathers still have work to do.
    u32::try_from(percent.min(99)).ok()
}

#[cfg(test)]
mod tests {
    use arrow_flight::FlightData;
    use tonic::Status;

    use super::*;

    fn message() -> Result<FlightData, Status> {
        Ok(FlightData::default())
    }

    #[tokio::test]
    async fn a_query_is_taken_with_all_of_its_messages() {
        let (polled, id) = (Arc::new(PolledQueries::default()), QueryId::new());
        let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
        let messages = stream::unfold(receiver, |mut receiver| async move {
            Some((receiver.recv().await?, receiver))
        });
        let access = Arc::<Access>::default();
        polled.start(id, Arc::clone(&access), messages.boxed());
        sender.send(message()).unwrap();
        let started = polled.get(id).unwrap();
        assert!(!*started.readiness.borrow());
        sender.send(message()).unwrap();
        sender.send(message()).unwrap();
        drop(sender);
        let stream = polled.take(id, || Arc::clone(&access)).await.unwrap();
        assert_eq!(stream.count().await, 3);
        assert!(polled.take(id, || Arc::clone(&access)).await.is_none());
    }

    #[tokio::test]
    async fn a_query_that_others_may_read_by_now_is_not_taken() {
        let (polled, id) = (Arc::new(PolledQueries::default()), QueryId::new());
        let messages = stream::iter([message(), message()]);
        polled.start(id, Arc::default(), messages.boxed());
        assert!(polled.take(id, Arc::default).await.is_none());
        assert!(polled.get(id).is_none());
    }

    #[tokio::test]
    async fn a_query_that_nobody_asks_for_is_dropped() {
        for rows in [0, 2] {
            let polled = Arc::new(PolledQueries::new(Duration::from_millis(10)));
            let (id, held) = (QueryId::new(), Arc::new(()));
            let holds = Arc::clone(&held);
            let first = stream::iter(std::iter::repeat_with(message).take(rows));
            let endless = first.chain(stream::pending()).map(move |message| {
                let _held = &holds;
                message
            });
            polled.start(id, Arc::default(), endless.boxed());
            while Arc::strong_count(&held) > 1 {
                tokio::task::yield_now().await;
            }
            while polled.by_id.lock().contains_key(&id) {
                tokio::task::yield_now().await;
            }
        }
    }

    #[test]
    fn progress_is_told_only_where_there_are_workers() {
        let work = |workers, workers_done| WorkerStatistics {
            workers,
            workers_done,
            ..WorkerStatistics::default()
        };
        assert_eq!(percent_done(work(0, 0)), None);
        assert_eq!(percent_done(work(3, 0)), Some(0));
        assert_eq!(percent_done(work(3, 2)), Some(66));
        assert_eq!(percent_done(work(3, 3)), Some(99));
    }
}
