//! Writes of few rows to one table are committed together: with one number, one DoPut for each
//! worker that gets rows, and one commit. Their rows were fitted to the table before, so a wrong
//! row fails nobody else's write.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use arrow::array::RecordBatch;
use futures::FutureExt;
use futures::future::{BoxFuture, Either, select};
use tokio::sync::oneshot;
use tracing::{Instrument, Span};
use volary_catalog::{ProducerBatches, Table};
use volary_exec::batches::{compact, used_bytes};
use volary_flight_proto::ids::{QueryId, TableId};
use volary_flight_proto::{Error, ErrorCode, Result};
use volary_node::Runtimes;
use volary_node::runtimes::{SHORT_WORK_BYTES, continue_on_cpu};

use super::batcher::{Batcher, GroupMember, GroupRunner, Place};
use super::budget::{BudgetShare, ByteBudget};
use super::checks::Checks;
use super::leases::ProducerLease;
use super::parts::GatewayParts;
use super::route::fit_and_check;
use super::stream_order::StreamOrder;
use super::write::{SourceRows, write_fitted};
use crate::config;

/// Maximum size of the rows of a group. A larger group would not be cheaper for each of its rows.
const MAX_GROUP_BYTES: usize = 8 << 20;

/// The small writes that wait or are in flight.
#[derive(Debug)]
pub(crate) struct Groups {
    batcher: Arc<Batcher<TableId, Member>>,
    /// The memory of the statements' rows that wait or are in flight.
    queue: ByteBudget,
    totals: GroupTotals,
}

/// Totals over all groups since the gateway's start.
#[derive(Debug, Default)]
struct GroupTotals {
    groups: AtomicU64,
    members: AtomicU64,
    rows: AtomicU64,
    bytes: AtomicU64,
}

/// Totals over all groups that have committed since the gateway's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GroupCounts {
    /// Number of groups.
    pub(crate) groups: u64,
    /// Number of writes in these groups.
    pub(crate) members: u64,
    /// Number of rows.
    pub(crate) rows: u64,
    /// Size of the rows in memory.
    pub(crate) bytes: u64,
}

/// Rows that fit their table.
#[derive(Debug)]
pub(crate) struct FittedRows {
    batches: Vec<RecordBatch>,
    rows: u64,
    bytes: usize,
}

impl FittedRows {
    /// Fits rows to a table.
    ///
    /// # Errors
    /// The errors of the rows.
    pub(crate) fn fit(checks: &Checks, rows: &[RecordBatch]) -> Result<Self> {
        let mut fitted = Self {
            batches: Vec::with_capacity(rows.len()),
            rows: 0,
            bytes: 0,
        };
        for batch in rows.iter().filter(|batch| batch.num_rows() > 0) {
            // Rows that wait must not keep the memory of other rows.
            let batch = compact(fit_and_check(checks, batch)?).map_err(|source| {
                Error::with_source(ErrorCode::Internal, "rows cannot be copied", source)
            })?;
            fitted.rows += batch.num_rows() as u64;
            fitted.bytes += used_bytes(&batch);
            fitted.batches.push(batch);
        }
        Ok(fitted)
    }

    /// Returns the number of rows.
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    /// Returns the size of the rows.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// A write whose rows fit their table.
#[derive(Debug)]
pub(crate) struct FittedWrite {
    /// The statement that writes.
    pub(crate) query_id: QueryId,
    /// Number of the user who writes.
    pub(crate) owner: u32,
    /// The table that gets the rows.
    pub(crate) table: Arc<Table>,
    /// The rows.
    pub(crate) rows: FittedRows,
    /// The batches that the write commits, if a producer sent the rows.
    pub(crate) batches: Option<LeasedBatches>,
    /// Says what decides whether the write may still commit.
    pub(crate) origin: Origin,
    /// The memory of the rows.
    #[expect(dead_code, reason = "held until the write is decided")]
    pub(crate) memory: Vec<BudgetShare>,
}

/// Batches of a producer, with the right to write them.
#[derive(Debug)]
pub(crate) struct LeasedBatches {
    /// The batches.
    pub(crate) batches: ProducerBatches,
    /// The right to write them.
    #[expect(dead_code, reason = "held until the batches are decided")]
    pub(crate) lease: Arc<ProducerLease>,
}

/// The origin of a write.
#[derive(Debug)]
pub(crate) enum Origin {
    /// A statement, which commits if nobody has ended it.
    Statement,
    /// A stream, whose batches commit in their order.
    Stream(Arc<StreamOrder>),
}

#[derive(Debug)]
struct Member {
    write: FittedWrite,
    span: Span,
    answer: oneshot::Sender<Result<()>>,
}

impl GroupMember for Member {
    fn bytes(&self) -> usize {
        self.write.rows.bytes
    }
}

impl Member {
    /// Also returns the receiver of the write's outcome.
    fn new(write: FittedWrite) -> (Self, oneshot::Receiver<Result<()>>) {
        let (answer, outcome) = oneshot::channel();
        let member = Self {
            write,
            span: Span::current(),
            answer,
        };
        (member, outcome)
    }

    fn finish(self, outcome: Result<()>) {
        if let Origin::Stream(order) = &self.write.origin {
            match &outcome {
                Ok(()) => order.note_commit(),
                Err(_) => order.fail(),
            }
        }
        // The caller may have gone away.
        let _ = self.answer.send(outcome);
    }
}

/// A write that was handed over. Dropping it takes the write out, unless its group has begun.
#[derive(Debug)]
pub(crate) struct SubmittedWrite {
    answer: oneshot::Receiver<Result<()>>,
    _place: Option<Place<TableId, Member>>,
}

impl SubmittedWrite {
    /// Waits until the write has committed.
    ///
    /// # Errors
    /// The errors of the write's group.
    pub(crate) async fn outcome(self) -> Result<()> {
        let Self { answer, _place } = self;
        answer.await.unwrap_or_else(|_| {
            Err(Error::unavailable(
                "the write was given up, because the gateway stops or because of a bug that its log shows; nothing is known to be written",
            ))
        })
    }
}

impl Groups {
    pub(crate) fn new(config: &config::Ingest) -> Self {
        Self {
            batcher: Batcher::new(MAX_GROUP_BYTES),
            queue: ByteBudget::new(
                config.queue_memory.bytes(),
                "the rows of small writes that wait",
                "gateway.ingest.queue_memory",
            ),
            totals: GroupTotals::default(),
        }
    }

    /// Returns the memory of the statements' rows that wait or are in flight.
    pub(crate) fn queue(&self) -> &ByteBudget {
        &self.queue
    }

    /// Returns the totals over all groups.
    pub(crate) fn counts(&self) -> GroupCounts {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        GroupCounts {
            groups: load(&self.totals.groups),
            members: load(&self.totals.members),
            rows: load(&self.totals.rows),
            bytes: load(&self.totals.bytes),
        }
    }

    /// Queues a write, which is committed together with others to its table.
    pub(crate) fn submit(
        self: &Arc<Self>,
        parts: &GatewayParts,
        write: FittedWrite,
    ) -> SubmittedWrite {
        let (submitted, running) = self.join(parts, write);
        // Dropping it starts a task.
        drop(running);
        submitted
    }

    /// Commits a write of a statement together with others to its table. If no group of the table
    /// is in flight, the write is a group of its own, which is committed by whoever waits for it: a
    /// task would take longer to start than the group's own work takes.
    ///
    /// # Errors
    /// The errors of the write's group.
    pub(crate) async fn commit_statement(
        self: &Arc<Self>,
        parts: &GatewayParts,
        write: FittedWrite,
    ) -> Result<()> {
        let (submitted, running) = self.join(parts, write);
        match running {
            Some(running) => match select(running, pin!(submitted.outcome())).await {
                Either::Left(((), outcome)) => outcome.await,
                Either::Right((outcome, _)) => outcome,
            },
            None => submitted.outcome().await,
        }
    }

    /// Queues a write. Also returns the groups to run, if nobody runs those of the table.
    fn join(
        self: &Arc<Self>,
        parts: &GatewayParts,
        write: FittedWrite,
    ) -> (SubmittedWrite, Option<RunningGroups>) {
        let table = write.table.id();
        let (member, answer) = Member::new(write);
        let (place, runner) = self.batcher.join(table, member);
        let running = runner.map(|runner| RunningGroups {
            running: Some(run_groups(Arc::clone(self), parts.clone(), runner).boxed()),
            runtimes: parts.runtimes.clone(),
        });
        let submitted = SubmittedWrite {
            answer,
            _place: Some(place),
        };
        (submitted, running)
    }

    /// Begins a write that is a group of its own, and that commits after the `earlier` batches of
    /// its stream.
    pub(crate) fn submit_alone(
        self: &Arc<Self>,
        parts: &GatewayParts,
        write: FittedWrite,
        earlier: u64,
    ) -> SubmittedWrite {
        let (member, answer) = Member::new(write);
        let (groups, parts) = (Arc::clone(self), parts.clone());
        let cpu = parts.runtimes.cpu().clone();
        cpu.spawn(async move { groups.commit(&parts, vec![member], earlier).await });
        SubmittedWrite {
            answer,
            _place: None,
        }
    }

    /// Commits a group, and answers its members. Before the commit it waits until the stream of a
    /// lone member has committed `earlier` batches.
    async fn commit(&self, parts: &GatewayParts, group: Vec<Member>, earlier: u64) {
        let mut members = admitted(parts, group);
        let Some(first) = members.first() else {
            return;
        };
        // The trace of a group continues that of its first member, also if the span of the group is
        // not recorded.
        let first_span = first.span.clone();
        let span = tracing::debug_span!(parent: &first_span, "group", members = members.len());
        let outcome = match members.as_mut_slice() {
            [alone] if matches!(alone.write.origin, Origin::Statement) => {
                let writing = write_alone(parts, alone).instrument(span);
                writing.instrument(first_span).await
            }
            several => {
                let writing = write_group(parts, several, earlier).instrument(span);
                writing.instrument(first_span).await
            }
        };
        if outcome.is_ok() {
            self.note_group(&members);
        }
        let failure = outcome.err().map(Arc::new);
        for member in members {
            member.finish(match &failure {
                Some(failure) => Err(Error::shared(failure)),
                None => Ok(()),
            });
        }
    }

    fn note_group(&self, members: &[Member]) {
        let sum =
            |of: fn(&FittedRows) -> u64| members.iter().map(|member| of(&member.write.rows)).sum();
        let totals = &self.totals;
        totals.groups.fetch_add(1, Ordering::Relaxed);
        totals
            .members
            .fetch_add(members.len() as u64, Ordering::Relaxed);
        totals
            .rows
            .fetch_add(sum(|rows| rows.rows), Ordering::Relaxed);
        totals
            .bytes
            .fetch_add(sum(|rows| rows.bytes as u64), Ordering::Relaxed);
    }
}

/// Commits the groups of a table while it is polled. If it is dropped before it has ended, a task
/// continues: others wait for their groups.
struct RunningGroups {
    running: Option<BoxFuture<'static, ()>>,
    runtimes: Runtimes,
}

impl Future for RunningGroups {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if let Some(running) = &mut self.running {
            ready!(running.as_mut().poll(context));
        }
        self.running = None;
        Poll::Ready(())
    }
}

impl Drop for RunningGroups {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            self.runtimes.spawn_here(running);
        }
    }
}

async fn run_groups(
    groups: Arc<Groups>,
    parts: GatewayParts,
    mut runner: GroupRunner<TableId, Member>,
) {
    while let Some(group) = runner.next_group() {
        // A panic must not take the next group with it. The members of this one are dropped, which
        // their callers notice.
        let committing = AssertUnwindSafe(groups.commit(&parts, group, 0)).catch_unwind();
        if committing.await.is_err() {
            tracing::error!("committing a group of writes panicked; please report this");
        }
    }
}

/// Returns the members that may still commit. The others are answered. From now on nobody can end
/// the statements of a group with several members, because their rows commit together.
fn admitted(parts: &GatewayParts, group: Vec<Member>) -> Vec<Member> {
    let is_shared = group.len() > 1;
    let mut members = Vec::with_capacity(group.len());
    for member in group {
        let admitted = match &member.write.origin {
            // The client has gone away, and its statement takes the rows with it.
            Origin::Statement if member.answer.is_closed() => continue,
            Origin::Statement if is_shared => parts.statements.begin_commit(member.write.query_id),
            Origin::Statement => Ok(()),
            Origin::Stream(order) => order.check(),
        };
        match admitted {
            Ok(()) => members.push(member),
            Err(error) => member.finish(Err(error)),
        }
    }
    members
}

/// Writes the rows of a statement that shares its group with no other. Until it commits, it can be
/// ended, and its rows are given up if the client goes away.
async fn write_alone(parts: &GatewayParts, member: &mut Member) -> Result<()> {
    let Member { write, answer, .. } = member;
    let write = &*write;
    let writes = [write];
    let may_commit = || {
        let begun = parts.statements.begin_commit(write.query_id);
        std::future::ready(begun.map(|()| merged_batches([write])))
    };
    let writing = std::pin::pin!(write_rows_of(parts, write, &writes, may_commit));
    let abandoned = std::pin::pin!(answer.closed());
    match select(writing, abandoned).await {
        Either::Left((outcome, _)) => outcome,
        Either::Right(((), _)) => Err(Error::new(ErrorCode::Cancelled, "the client went away")),
    }
}

async fn write_group(parts: &GatewayParts, members: &[Member], earlier: u64) -> Result<()> {
    let writes: Vec<_> = members.iter().map(|member| &member.write).collect();
    let Some(first) = writes.first() else {
        return Ok(());
    };
    let may_commit = || async {
        if let ([alone], Origin::Stream(order)) = (writes.as_slice(), &first.origin) {
            order.wait_for_commits(earlier).await?;
            order.check()?;
            return Ok(merged_batches([*alone]));
        }
        Ok(merged_batches(writes.iter().copied()))
    };
    write_rows_of(parts, first, &writes, may_commit).await
}

async fn write_rows_of<F>(
    parts: &GatewayParts,
    first: &FittedWrite,
    writes: &[&FittedWrite],
    may_commit: impl FnOnce() -> F,
) -> Result<()>
where
    F: Future<Output = Result<Vec<ProducerBatches>>>,
{
    let table = &first.table;
    // A write that cannot succeed is refused before it begins. Otherwise each retry of a client
    // would leave an aborted write in the catalog until the lost worker is back.
    parts.cluster.refuse_lost(table.workers())?;
    let number = parts.catalog.begin_write(table).await?;
    if writes.iter().map(|write| write.rows.bytes).sum::<usize>() > SHORT_WORK_BYTES {
        continue_on_cpu().await;
    }
    let batches = writes.iter().flat_map(|write| &write.rows.batches);
    let rows = SourceRows::Few(batches.cloned().collect());
    let parts = GatewayParts {
        owner: first.owner,
        ..parts.clone()
    };
    let may_commit = |_| may_commit();
    let writing = write_fitted(&parts, first.query_id, table, number, rows, may_commit);
    writing.await.map(|_| ())
}

/// Returns the batches that the writes commit, those of one producer together.
fn merged_batches<'a>(writes: impl IntoIterator<Item = &'a FittedWrite>) -> Vec<ProducerBatches> {
    let mut merged: Vec<ProducerBatches> = Vec::new();
    let mut positions = HashMap::new();
    for added in writes
        .into_iter()
        .filter_map(|write| write.batches.as_ref())
    {
        let added = &added.batches;
        match positions.get(&added.producer) {
            Some(position) => {
                let known: &mut ProducerBatches = &mut merged[*position];
                known.batches.extend_from_slice(&added.batches);
            }
            None => {
                positions.insert(&added.producer, merged.len());
                merged.push(added.clone());
            }
        }
    }
    merged
}
