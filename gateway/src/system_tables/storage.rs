use futures::future::join_all;
use prost::Message;
use volary_flight_proto::control::{CompactionState, DescribeStorage, StorageState, control};
use volary_flight_proto::ids::WorkerId;
use volary_flight_proto::{Error, ErrorCode, Result};

use super::column::Column;
use super::sources::SystemTableSources;
use super::table::SystemTable;
use crate::cluster::Cluster;

pub(super) struct Storage;

/// What a worker stores, or the reason why that is not known.
pub(super) struct WorkerStorage {
    worker: WorkerId,
    state: Result<StorageState>,
}

impl WorkerStorage {
    fn number(&self, take: impl Fn(&StorageState) -> u64) -> Option<u64> {
        self.state.as_ref().ok().map(take)
    }

    fn compaction(&self, take: impl Fn(&CompactionState) -> u64) -> Option<u64> {
        self.number(|state| state.compaction.as_ref().map_or(0, &take))
    }
}

impl SystemTable for Storage {
    type Row = WorkerStorage;

    const NAME: &'static str = "storage";

    const COLUMNS: &'static [Column<WorkerStorage>] = &[
        Column::text("worker_id", |row| row.worker.to_string()),
        Column::optional_number("segments", |row| row.number(|state| state.segments)),
        Column::optional_number("rows", |row| row.number(|state| state.rows)),
        Column::optional_number("bytes", |row| row.number(|state| state.bytes)),
        Column::optional_number("log_rows", |row| row.number(|state| state.log_rows)),
        Column::optional_number("log_bytes", |row| row.number(|state| state.log_bytes)),
        Column::optional_number("logged_bytes", |row| row.number(|state| state.logged_bytes)),
        Column::optional_number("flushed_bytes", |row| {
            row.number(|state| state.flushed_bytes)
        }),
        Column::optional_number("written_bytes", |row| {
            row.number(|state| state.written_bytes)
        }),
        Column::optional_number("expired_rows", |row| row.number(|state| state.expired_rows)),
        Column::optional_number("merges", |row| row.compaction(|state| state.merges)),
        Column::optional_number("merged_bytes", |row| {
            row.compaction(|state| state.read_bytes)
        }),
        Column::optional_number("compacted_bytes", |row| {
            row.compaction(|state| state.written_bytes)
        }),
        Column::optional_number("waiting_segments", |row| {
            row.compaction(|state| state.waiting_segments)
        }),
        Column::optional_number("waiting_bytes", |row| {
            row.compaction(|state| state.waiting_bytes)
        }),
        Column::optional_text("last_failure", |row| {
            let failure = &row.state.as_ref().ok()?.compaction.as_ref()?.failure;
            (!failure.is_empty()).then(|| failure.clone())
        }),
        Column::optional_text("error", |row| {
            row.state.as_ref().err().map(ToString::to_string)
        }),
    ];

    /// Asks every worker. A worker that does not answer has a row, too, which says why.
    async fn rows(sources: &SystemTableSources) -> Result<Vec<WorkerStorage>> {
        let workers = sources.catalog.workers().map(|record| record.id);
        let asked = workers.map(|worker| async move {
            WorkerStorage {
                worker,
                state: fetch_state(&sources.cluster, worker).await,
            }
        });
        Ok(join_all(asked).await)
    }
}

async fn fetch_state(cluster: &Cluster, worker: WorkerId) -> Result<StorageState> {
    cluster.refuse_lost(&[worker])?;
    let command = control::Command::DescribeStorage(DescribeStorage {});
    let answer = cluster.control(worker, command).await?;
    StorageState::decode(answer).map_err(|source| {
        let name = cluster.name(worker);
        let what = format!("what {name} stores cannot be decoded");
        Error::with_source(ErrorCode::Internal, what, source)
    })
}
