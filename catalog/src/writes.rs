use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use backon::{ExponentialBuilder, Retryable};
use tokio::sync::{Mutex, oneshot};
use volary_flight_proto::ids::{WorkerId, WriteId};
use volary_flight_proto::{Error, ErrorCode, Result};

use super::Catalog;
use super::committer::shutdown_error;
use super::draft::Draft;
use super::open_write::OpenWrite;
use super::records::{TableState, WriteRecord, WriteState};
use super::table::Table;
use super::tables::check_name_is_free;
use super::write_summary::WriteSummary;

/// Shortest and longest pause between two attempts to abort a write.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

impl Catalog {
    /// Opens a write to a table. Queries see its rows only after [`Self::commit_write`].
    ///
    /// # Errors
    /// `NOT_FOUND` if the table was dropped, and the errors of the store.
    pub async fn begin_write(&self, table: &Table) -> Result<OpenWrite> {
        let (id, name) = (table.id(), table.name().to_string());
        let change = move |draft: &mut Draft| {
            if draft.state().table_by_id(id).is_none() {
                return Err(dropped_table_error(&name));
            }
            let write = draft.next_write();
            draft.put_write(WriteRecord {
                id: write,
                table: id,
                table_name: name.clone(),
                state: WriteState::Open,
            })?;
            Ok(((), write))
        };
        let ((), write) = self.open_write(change).await?;
        Ok(write)
    }

    /// Makes a change that opens a write. The change is made even if the caller drops the future.
    /// In that case the write is aborted afterwards.
    pub(super) async fn open_write<T: Send + 'static>(
        &self,
        change: impl Fn(&mut Draft) -> Result<(T, WriteId)> + Send + Sync + 'static,
    ) -> Result<(T, OpenWrite)> {
        let (sender, receiver) = oneshot::channel();
        let catalog = self.clone();
        tokio::spawn(async move {
            let opened = catalog.change(change).await;
            // If nobody receives the guard, it is dropped, which aborts the write. That also holds
            // if the receiver goes away after the guard was sent.
            let _ =
                sender.send(opened.map(|(value, write)| (value, OpenWrite::new(catalog, write))));
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
    pub async fn commit_write(&self, write: WriteId, summary: WriteSummary) -> Result<()> {
        let limits = self.temporary_limits;
        self.change(move |draft| {
            let Some(record) = open_record(draft, write) else {
                return Err(Error::new(
                    ErrorCode::Cancelled,
                    format!("write {write} was aborted; nothing was written"),
                ));
            };
            let Some(table) = draft.state().tables.get(&record.table).cloned() else {
                return Err(dropped_table_error(&record.table_name));
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
            if was_created {
                draft.put_table(&written)?;
            }
            draft.put_written(&written, write, summary.delta())?;
            draft.remove_write(write);
            Ok(())
        })
        .await
    }

    /// Aborts a write: queries never see its rows, and workers delete them. A table that the write
    /// was creating is removed. Returns false if the write is not open: it was aborted before, or
    /// it was committed and its rows must be kept. This tells a statement that is cancelled during
    /// its commit whether the commit came first.
    ///
    /// # Errors
    /// The errors of the store.
    pub async fn abort_write(&self, write: WriteId) -> Result<bool> {
        self.change(move |draft| abort(draft, write)).await
    }

    /// Aborts a write like [`Self::abort_write`], and tries again until the store accepts the
    /// change. As long as a write is open, its rows take space on the workers, and the snapshot of
    /// every query names it. The retries end with the runtime. The next start of a gateway aborts
    /// all open writes.
    pub async fn abort_write_with_retries(&self, write: WriteId) -> bool {
        let pauses = ExponentialBuilder::default()
            .with_min_delay(SHORTEST_PAUSE)
            .with_max_delay(LONGEST_PAUSE)
            .without_max_times();
        let aborting = || self.abort_write(write);
        let aborted = aborting.retry(pauses).notify(|error, pause| {
            tracing::warn!(%write, %error, ?pause, "cannot abort a failed write yet; retrying");
        });
        // The retries have no limit, so this never returns an error.
        aborted.await.unwrap_or(false)
    }

    /// Records that a worker holds no rows of these failed writes any more. A write is forgotten
    /// when no worker holds rows of it.
    ///
    /// # Errors
    /// The errors of the store.
    pub async fn record_deleted_writes(&self, worker: WorkerId, writes: &[WriteId]) -> Result<()> {
        let state = self.state();
        let pending: Vec<WriteId> = state
            .aborted_writes_of(worker)
            .filter(|write| writes.contains(write))
            .collect();
        if pending.is_empty() {
            return Ok(()); // the usual case
        }
        let reports = &self.inner.deletion_reports;
        reports
            .uncommitted
            .lock()
            .extend(pending.into_iter().map(|write| (write, worker)));
        // The task that holds this lock commits what all tasks have recorded so far.
        let _turn = reports.commit_lock.lock().await;
        let mut by_write: BTreeMap<WriteId, BTreeSet<WorkerId>> = BTreeMap::new();
        for (write, worker) in std::mem::take(&mut *reports.uncommitted.lock()) {
            by_write.entry(write).or_default().insert(worker);
        }
        if by_write.is_empty() {
            return Ok(());
        }
        self.change(move |draft| {
            for (write, workers) in &by_write {
                remove_pending_workers(draft, workers, *write)?;
            }
            Ok(())
        })
        .await
    }
}

/// Reports of workers that have deleted the rows of failed writes, until they are committed.
/// Commits are batched, because after a large write has failed, thousands of workers report at the
/// same time. If a commit fails, its entries are lost, and the workers' next reports add them
/// again.
#[derive(Debug, Default)]
pub(super) struct DeletionReports {
    uncommitted: parking_lot::Mutex<Vec<(WriteId, WorkerId)>>,
    commit_lock: Mutex<()>,
}

/// Aborts the writes that the last gateway left open.
pub(super) fn abort_all_open(draft: &mut Draft) -> Result<()> {
    let writes: Vec<WriteId> = draft.state().writes.keys().copied().collect();
    for write in writes {
        let _was_open = abort(draft, write)?;
    }
    Ok(())
}

fn open_record(draft: &Draft, write: WriteId) -> Option<Arc<WriteRecord>> {
    let record = draft.state().writes.get(&write)?;
    (record.state == WriteState::Open).then(|| Arc::clone(record))
}

fn abort(draft: &mut Draft, write: WriteId) -> Result<bool> {
    let Some(record) = open_record(draft, write) else {
        return Ok(false);
    };
    match draft.state().tables.get(&record.table).cloned() {
        // Workers delete all files of dropped tables anyway.
        None => draft.remove_write(write),
        Some(table) if table.state() == TableState::Creating(write) => {
            draft.remove_write(write);
            draft.remove_table(&table);
        }
        Some(table) => draft.put_write(WriteRecord {
            id: write,
            table: record.table,
            table_name: record.table_name.clone(),
            state: WriteState::Aborted {
                pending: table.workers().to_vec(),
            },
        })?,
    }
    Ok(true)
}

fn remove_pending_workers(
    draft: &mut Draft,
    workers: &BTreeSet<WorkerId>,
    write: WriteId,
) -> Result<()> {
    let Some(record) = draft.state().writes.get(&write).cloned() else {
        return Ok(());
    };
    let WriteState::Aborted { pending } = &record.state else {
        return Ok(());
    };
    let pending: Vec<WorkerId> = pending
        .iter()
        .copied()
        .filter(|other| !workers.contains(other))
        .collect();
    if pending.is_empty() {
        draft.remove_write(write);
        return Ok(());
    }
    draft.put_write(WriteRecord {
        id: write,
        table: record.table,
        table_name: record.table_name.clone(),
        state: WriteState::Aborted { pending },
    })
}

fn dropped_table_error(table: &str) -> Error {
    Error::not_found(format!(
        "table \"{table}\" was dropped while the statement wrote to it; nothing was written"
    ))
}
