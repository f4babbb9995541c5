use std::sync::Arc;
use std::time::Duration;

use backon::{ExponentialBuilder, Retryable};
use tokio::sync::oneshot;
use volary_flight_proto::ids::{TableId, WriteId};
use volary_flight_proto::{Error, ErrorCode, Result};

use super::Catalog;
use super::aborts::abort;
use super::committer::shutdown_error;
use super::draft::Draft;
use super::open_write::OpenWrite;
use super::producers::{ProducerBatches, put_batches};
use super::records::TableState;
use super::relation_name::RelationName;
use super::table::Table;
use super::tables::check_name_is_free;
use super::write_numbers::RESERVED_AT_ONCE;
use super::write_summary::WriteSummary;

/// Shortest and longest pause between two attempts to abort a write.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

impl Catalog {
    /// Opens a write to a table. Queries see its rows only after [`Self::commit_write`]. The store
    /// is asked only now and then: it reserves numbers of writes in advance.
    ///
    /// # Errors
    /// `NOT_FOUND` if the table was dropped, and the errors of the store.
    pub async fn begin_write(&self, table: &Table) -> Result<OpenWrite> {
        if self.state().table_by_id(table.id()).is_none() {
            return Err(dropped_table_error(table.name()));
        }
        let write = self.next_write().await?;
        Ok(OpenWrite::new(self.clone(), write, Some(table.id())))
    }

    async fn next_write(&self) -> Result<WriteId> {
        let reserve = self.change(|draft| Ok(draft.reserve_writes(RESERVED_AT_ONCE)));
        self.inner.write_numbers.next(reserve).await
    }

    /// Makes a change that opens the first write to a table, which it creates. The change is made
    /// even if the caller drops the future. In that case the write is aborted afterwards.
    pub(super) async fn open_first_write(
        &self,
        create: impl Fn(&mut Draft, WriteId) -> Result<Arc<Table>> + Send + Sync + 'static,
    ) -> Result<(Arc<Table>, OpenWrite)> {
        let (sender, receiver) = oneshot::channel();
        let catalog = self.clone();
        tokio::spawn(async move {
            let opened = async {
                let write = catalog.next_write().await?;
                let guard = OpenWrite::new(catalog.clone(), write, None);
                let create = move |draft: &mut Draft| create(draft, write);
                let table = catalog.change(create).await?;
                let guard = guard.with_table(table.id());
                Ok((table, guard))
            };
            // If nobody receives the guard, it is dropped, which aborts the write. That also holds
            // if the receiver goes away after the guard was sent.
            let _ = sender.send(opened.await);
        });
        receiver.await.unwrap_or_else(|_| Err(shutdown_error()))
    }

    /// Makes the rows of a write visible on all shards at once. If the table was being created by
    /// this write, it becomes visible, too. The caller must first wait until every worker has
    /// answered that its rows are durable.
    ///
    /// # Errors
    /// `NOT_FOUND` if the table was dropped in the meantime, `CANCELLED` if the write was aborted,
    /// `ALREADY_EXISTS` if a new table cannot take its name any more, `RESOURCE_EXHAUSTED` if a
    /// temporary table would become too large, and the errors of the store.
    /// Abort the write after any error. After an error of the store the rows are most likely not
    /// visible.
    pub async fn commit_write(
        &self,
        write: WriteId,
        table: &Table,
        summary: WriteSummary,
    ) -> Result<()> {
        self.commit_batches(write, table, summary, Vec::new()).await
    }

    /// Makes the rows of a write visible like [`Self::commit_write`], and notes in the same
    /// transaction that these batches of producers are committed.
    ///
    /// # Errors
    /// The errors of [`Self::commit_write`]. `INVALID_ARGUMENT` if a batch does not follow on from
    /// the last one of its producer, `UNAVAILABLE` if it was committed already.
    pub async fn commit_batches(
        &self,
        write: WriteId,
        table: &Table,
        summary: WriteSummary,
        batches: Vec<ProducerBatches>,
    ) -> Result<()> {
        let limits = self.temporary_limits;
        let (id, name) = (table.id(), table.name().clone());
        self.change(move |draft| {
            if !draft.state().is_undecided(write) {
                return Err(Error::new(
                    ErrorCode::Cancelled,
                    format!("write {write} was aborted; nothing was written"),
                ));
            }
            let Some(table) = draft.state().tables.get(&id).cloned() else {
                return Err(dropped_table_error(&name));
            };
            let was_created = table.state() == TableState::Creating(write);
            if table.is_replacement() {
                if let Some(replaced) = draft.state().table(table.name()).cloned() {
                    if replaced.owner() != table.owner() {
                        return Err(Error::new(
                            ErrorCode::AlreadyExists,
                            format!(
                                "a table of another user has taken the name \"{}\" in the meantime; nothing was replaced",
                                table.name()
                            ),
                        ));
                    }
                    draft.remove_table(&replaced);
                }
                check_name_is_free(draft, table.name())?;
            }
            let written = Arc::new(table.as_live(table.statistics().with_write(write, summary.delta())));
            limits.check_bytes(draft.state(), &table, &written)?;
            for of_producer in &batches {
                put_batches(draft, &table, write, of_producer)?;
            }
            if was_created {
                draft.put_table(&written)?;
            }
            draft.put_written(&written, write, summary.delta())?;
            draft.commit(write);
            Ok(())
        })
        .await
    }

    /// Aborts a write to a table: queries never see its rows, and workers delete them. A table that
    /// the write was creating is removed. Returns false if the write is not open: it was aborted
    /// before, or it was committed and its rows must be kept. This tells a statement that is
    /// cancelled during its commit whether the commit came first.
    ///
    /// # Errors
    /// The errors of the store.
    pub async fn abort_write(&self, write: WriteId, table: Option<TableId>) -> Result<bool> {
        self.change_with_ballast(move |draft| abort(draft, write, table))
            .await
    }

    /// Aborts a write like [`Self::abort_write`], and tries again until the store accepts the
    /// change. As long as a write is open, its rows take space on the workers, and the snapshot of
    /// every query excludes it. The retries end with the runtime. The next start of a gateway
    /// aborts all open writes.
    pub async fn abort_write_with_retries(&self, write: WriteId, table: Option<TableId>) -> bool {
        let pauses = ExponentialBuilder::default()
            .with_min_delay(SHORTEST_PAUSE)
            .with_max_delay(LONGEST_PAUSE)
            .without_max_times();
        let aborting = || self.abort_write(write, table);
        let aborted = aborting.retry(pauses).notify(|error, pause| {
            tracing::warn!(%write, %error, ?pause, "cannot abort a failed write yet; retrying");
        });
        // The retries have no limit, so this never returns an error.
        aborted.await.unwrap_or(false)
    }
}

fn dropped_table_error(table: &RelationName) -> Error {
    Error::not_found(format!(
        "table \"{table}\" was dropped while the statement wrote to it; nothing was written"
    ))
}
