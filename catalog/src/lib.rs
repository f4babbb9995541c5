//! Keeps what must survive a restart of the gateway: tables, views, placements, workers, writes,
//! and users with their rights.
//!
//! A reader takes the current [`CatalogState`], which never changes. It may keep it for as long as
//! it likes, and holds no lock. A change is decided on a draft of the state and committed durably
//! to the [`MetadataStore`]. Only then does the draft become the current state. Changes are decided
//! one after another. Those that wait for the store meanwhile are committed together.
//!
//! The catalog decides which rows are visible. [`Catalog::begin_write`] gives a write its number.
//! Workers store the rows under that number, and queries do not see them:
//! [`CatalogState::snapshot`] excludes all writes that are not decided yet.
//! [`Catalog::commit_write`] makes the rows visible on all shards at once. The number of a failed
//! write stays excluded until every worker has deleted the rows of the write.

/// Aborts failed writes, and forgets them when their rows are deleted.
mod aborts;
/// Decides who may log in, and what they may do.
pub mod access;
/// Commits changes that wait at the same time together.
mod committer;
/// Describes what a table declares besides its columns: defaults, constraints and comments.
mod declarations;
/// Describes a table that a statement creates.
mod definition;
/// Holds a change of the catalog while it is decided: the future state, and the records that lead
/// to it.
mod draft;
/// Encodes bytes, schemas and values as hexadecimal text, because the catalog's records are JSON.
mod encoding;
/// Keeps the incarnations of the catalog, which reveal that it was restored from a backup.
mod lineage;
/// Checks the names of tables, views, saved queries, users, roles and tokens.
mod name;
/// Guards a write that is open until it is committed or aborted.
mod open_write;
/// Represents what a producer has written to a table.
mod producer_record;
/// Keeps track of the batches of producers, so that each batch is applied once.
mod producers;
/// Defines the records that the catalog keeps in its store: one JSON record per key.
mod records;
/// Implements the embedded metadata store: one file in the gateway's data directory.
mod redb_store;
/// Represents the names of tables, views and saved queries.
mod relation_name;
/// Describes how long the rows of a table are kept.
mod retention;
/// Creates and drops schemas, and decides who may see them and create objects in them.
mod schemas;
/// Decides which worker gets which shard.
mod shard_placement;
/// Represents the catalog as of one moment.
mod state;
/// Keeps the statistics of tables up to date with each committed write, so that planning asks no
/// worker.
mod statistics;
/// Tracks what the store has of a table's statistics, and decides when they are written as a whole.
mod statistics_log;
/// Defines what the catalog needs from a metadata store: atomic changes of several keys.
mod store;
/// Represents tables and views as the rest of the gateway sees them.
mod table;
/// Creates and drops tables.
mod tables;
/// Limits the temporary tables of sessions, and drops them.
mod temporary;
#[cfg(test)]
mod tests;
/// Creates and drops views and saved queries.
mod views;
/// Keeps the list of workers.
mod workers;
/// Gives out the numbers of writes.
mod write_numbers;
/// Computes what a write adds to its table, from the answers of the workers that took its rows.
mod write_summary;
/// Opens, commits and aborts writes.
mod writes;

pub use declarations::{Constraint, ConstraintKind, Declarations, ForeignKey, ReferentialAction};
pub use definition::{DefinitionKind, IfExists, TableDefinition};
pub use lineage::LineageVerdict;
pub use open_write::OpenWrite;
pub use producer_record::{BatchContent, DecidedBatch, ProducerName, ProducerRecord};
pub use producers::{ProducerBatches, ProducerWindows, sequence_gap};
pub use records::{QueryParameter, SchemaRecord, TableKind, WorkerRecord, format_parameters};
pub use redb_store::RedbStore;
pub use relation_name::{PUBLIC_SCHEMA, RelationName, TEMPORARY_SCHEMA};
pub use retention::Retention;
pub use state::CatalogState;
pub use statistics::{ColumnStatistics, ShardStatistics, TableStatistics};
pub use store::{
    CommitError, EntryChange, ExpectedVersion, MetadataStore, StoreContent, StoreEntry,
};
pub use table::{NewView, Table, View};
pub use temporary::TemporaryLimits;
pub use views::ViewKind;
pub use write_summary::WriteSummary;

use std::sync::Arc;

use volary_flight_proto::Result;
use volary_flight_proto::ids::ClusterId;
use volary_flight_proto::seal::Key;

use aborts::DeletedThrough;
use committer::Committer;
use draft::Draft;
use records::ClusterRecord;
use write_numbers::WriteNumbers;

/// The catalog. Clones share the same state and store.
#[derive(Debug, Clone)]
pub struct Catalog {
    inner: Arc<Inner>,
    temporary_limits: TemporaryLimits,
}

#[derive(Debug)]
struct Inner {
    committer: Arc<Committer>,
    write_numbers: WriteNumbers,
    deleted_through: DeletedThrough,
}

impl Catalog {
    /// Reads the state from a store, and changes nothing. Returns `None` if the store is empty.
    ///
    /// # Errors
    /// The errors of [`Self::open`].
    pub async fn read(store: &dyn MetadataStore) -> Result<Option<CatalogState>> {
        CatalogState::load(&store.load().await?)
    }

    /// Reads the catalog from the store, and creates a new cluster if the store is empty.
    /// Statements that were running when the last gateway ended count as failed: their rows stay
    /// invisible, and the tables that they were creating are removed. The temporary tables of its
    /// sessions are removed, too, because these sessions have ended.
    ///
    /// # Errors
    /// `DATA_LOSS` for a damaged record, `INVALID_ARGUMENT` for a record of a newer format, and the
    /// errors of the store.
    pub async fn open(store: Arc<dyn MetadataStore>) -> Result<Self> {
        let (state, is_new) = match Self::read(store.as_ref()).await? {
            Some(state) => (state, false),
            None => {
                let key = hex::encode(Key::random().as_bytes());
                (
                    CatalogState::new(ClusterRecord::new(ClusterId::new(), key), 0)?,
                    true,
                )
            }
        };
        let catalog = Self {
            inner: Arc::new(Inner {
                committer: Arc::new(Committer::new(store, state)),
                write_numbers: WriteNumbers::default(),
                deleted_through: DeletedThrough::default(),
            }),
            temporary_limits: TemporaryLimits::default(),
        };
        // Without this change, the gateway cannot start.
        catalog
            .change_with_ballast(move |draft| {
                if is_new {
                    draft.mark_cluster_changed();
                }
                draft.put_token_key();
                lineage::begin_incarnation(draft)?;
                aborts::abort_all_undecided(draft)?;
                temporary::drop_all(draft);
                Ok(())
            })
            .await?;
        Ok(catalog)
    }

    /// Returns the current state of the catalog.
    pub fn state(&self) -> Arc<CatalogState> {
        self.inner.committer.state()
    }

    /// Makes the change that `decide` drafts. The change is made as a whole or not at all, even if
    /// the caller drops the future.
    async fn change<T: Send + 'static>(
        &self,
        decide: impl Fn(&mut Draft) -> Result<T> + Send + Sync + 'static,
    ) -> Result<T> {
        self.inner.committer.change(decide, false).await
    }

    /// Makes a change like [`Self::change`]. If the disk is full, the store may use its ballast for
    /// it. This is for changes that remove something, or without which a node does not serve.
    async fn change_with_ballast<T: Send + 'static>(
        &self,
        decide: impl Fn(&mut Draft) -> Result<T> + Send + Sync + 'static,
    ) -> Result<T> {
        self.inner.committer.change(decide, true).await
    }
}

/// Returns the current time in milliseconds since 1970.
pub fn now_ms() -> i64 {
    chrono::Utc::now().timestamp_millis()
}
