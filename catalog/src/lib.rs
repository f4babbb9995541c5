//! Tables, placement, workers, writes, users and their rights: what must survive a restart.
//!
//! Readers take the current [`State`], which never changes, for as long as they like; it costs them no lock. A change is decided
//! on a draft of it, committed to the [`MetadataStore`], durably, and only then becomes the current state. Changes are made one after
//! another.
//!
//! Visibility is decided here: a write has a number from [`Catalog::begin_write`] on, its rows are unseen on the workers, and
//! [`Catalog::commit_write`] makes them visible on all shards at once, as it takes the number out of
//! [`State::snapshot`]'s list of excluded writes. A write that fails stays in that list until every worker
//! has deleted its rows.

pub mod access;
mod definition;
mod draft;
mod encoding;
/// Bytes as text.
pub mod hex;
mod lineage;
mod name;
mod open_write;
mod placing;
mod records;
mod redb_store;
/// From the value of a shard key to the shard.
pub mod shard_key;
mod state;
mod statistics;
mod store;
mod table;
mod tables;
#[cfg(test)]
mod tests;
mod views;
mod workers;
mod write_summary;
mod writes;

pub use definition::{DefinitionKind, IfExists, MAX_SHARDS, TableDefinition};
pub use lineage::Agreement;
pub use open_write::OpenWrite;
pub use records::{PlacementRecord, QueryParameter, TableKind, WorkerRecord, listed};
pub use redb_store::RedbStore;
pub use state::State;
pub use statistics::{ColumnStatistics, ShardStatistics, TableStatistics};
pub use store::{Change, CommitError, Entries, Entry, Expected, MetadataStore};
pub use table::{NewView, Table, View};
pub use write_summary::WriteSummary;

use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::Mutex;
use volary_flight_proto::ids::ClusterId;
use volary_flight_proto::seal::Key;
use volary_flight_proto::{Error, ErrorCode, Result};

use draft::Draft;
use records::ClusterRecord;

/// How often a change is decided again because somebody else changed the store in the meantime.
const ATTEMPTS: usize = 10;

/// The catalog; clones share it.
#[derive(Debug, Clone)]
pub struct Catalog {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    store: Arc<dyn MetadataStore>,
    state: ArcSwap<State>,
    turn: Mutex<()>,
    collected: writes::Collected,
}

impl Catalog {
    /// Reads what the store holds; makes a new cluster if that is nothing. Statements that were running when the last gateway
    /// ended have failed: what they wrote stays unseen, and tables that they were creating are gone.
    ///
    /// # Errors
    /// Those of the store; `DATA_LOSS` for a damaged record, `INVALID_ARGUMENT` for one of a newer format.
    pub async fn open(store: Arc<dyn MetadataStore>) -> Result<Self> {
        let (state, is_new) = match State::load(&store.load().await?)? {
            Some(state) => (state, false),
            None => {
                let key = hex::encode(Key::random().as_bytes());
                (
                    State::new(ClusterRecord::new(ClusterId::new(), key), 0)?,
                    true,
                )
            }
        };
        let catalog = Self {
            inner: Arc::new(Inner {
                store,
                state: ArcSwap::from_pointee(state),
                turn: Mutex::new(()),
                collected: writes::Collected::default(),
            }),
        };
        catalog
            .change(move |draft| {
                if is_new {
                    draft.put_cluster()?;
                }
                draft.put_token_key()?;
                lineage::begin_incarnation(draft)?;
                writes::abort_all_open(draft)
            })
            .await?;
        Ok(catalog)
    }

    /// Everything, as of now.
    pub fn state(&self) -> Arc<State> {
        self.inner.state.load_full()
    }

    /// Makes the change that `decide` drafts. It is made, or not made, as a whole, also if the caller goes away.
    async fn change<T: Send + 'static>(
        &self,
        decide: impl Fn(&mut Draft) -> Result<T> + Send + Sync + 'static,
    ) -> Result<T> {
        let inner = Arc::clone(&self.inner);
        let task = tokio::spawn(async move { inner.change(decide).await });
        task.await.unwrap_or_else(|source| {
            Err(if source.is_cancelled() {
                Error::new(ErrorCode::Cancelled, "the gateway is shutting down")
            } else {
                Error::with_source(
                    ErrorCode::Internal,
                    "a change of the catalog panicked",
                    source,
                )
            })
        })
    }
}

impl Inner {
    async fn change<T>(&self, decide: impl Fn(&mut Draft) -> Result<T>) -> Result<T> {
        let _turn = self.turn.lock().await;
        for _ in 0..ATTEMPTS {
            let mut draft = Draft::new(&self.state.load());
            let outcome = decide(&mut draft)?;
            let Some((expected, changes)) = draft.transaction()? else {
                return Ok(outcome);
            };
            match self.store.commit(expected, changes).await {
                Ok(version) => {
                    self.state.store(Arc::new(draft.into_state(version)));
                    return Ok(outcome);
                }
                Err(CommitError::Conflict { .. }) => {
                    // Another gateway was faster, or an earlier commit got through although its answer was an error.
                    if let Some(state) = State::load(&self.store.load().await?)? {
                        self.state.store(Arc::new(state));
                    }
                }
                Err(CommitError::Failed(error)) => return Err(error),
            }
        }
        Err(Error::unavailable(format!(
            "the catalog was changed by others {ATTEMPTS} times while this change was being made; retry"
        )))
    }
}

/// Now, in milliseconds since 1970.
pub fn now_ms() -> i64 {
    chrono::Utc::now().timestamp_millis()
}
