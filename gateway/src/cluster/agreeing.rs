//! Whether the workers' rows are of the history of writes that this catalog has.
//!
//! Each call of a worker says which [`Lineage`] the catalog has. A worker that cannot adopt it refuses the call, and says with
//! its next report what it knows. Then the gateway finds out whether the worker was only left behind, or whether the catalog is
//! older than the worker, and with it than rows that were acknowledged.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use volary_catalog::Agreement;
use volary_flight_proto::control::WorkerReport;
use volary_flight_proto::ids::{WorkerId, WriteId};
use volary_flight_proto::lineage::Lineage;
use volary_flight_proto::{Error, ErrorCode, Result};

use super::Cluster;

/// What workers said that have not adopted the catalog's lineage.
#[derive(Debug, Default)]
pub(super) struct Agreements(Mutex<BTreeMap<WorkerId, Agreement>>);

impl Cluster {
    /// Refuses statements while a worker has rows that the catalog does not know: acknowledged rows may be missing everywhere.
    ///
    /// # Errors
    /// `DATA_LOSS`, with the worker and what to do.
    pub fn refuse_conflicts(&self) -> Result<()> {
        let conflict = self.agreements.conflict();
        conflict.map_or(Ok(()), |(worker, from_write)| {
            Err(self.conflict(worker, from_write))
        })
    }

    /// Whether [`Self::refuse_conflicts`] refuses.
    pub fn has_conflicts(&self) -> bool {
        self.agreements.conflict().is_some()
    }

    fn conflict(&self, worker: WorkerId, from_write: WriteId) -> Error {
        Error::new(
            ErrorCode::DataLoss,
            format!(
                "{} has rows of write {from_write} or later ones that this gateway's catalog does not know: catalog.redb was restored from a backup that is older than these rows, or volary.json of the worker's data directory from an older one; stop the gateway and restore the newest copies, or give these rows up with `volary gateway recover` (docs/repair.md)",
                self.name(worker)
            ),
        )
    }

    /// What calls of a worker say of the catalog's history.
    pub(crate) fn lineage_for(&self, worker: WorkerId) -> Lineage {
        match self.agreements.0.lock().get(&worker) {
            Some(Agreement::Follows(lineage) | Agreement::SetsAside(lineage)) => *lineage,
            Some(Agreement::Conflicts { .. }) | None => self.catalog.state().lineage(),
        }
    }

    /// Whether a worker may set rows aside that the catalog does not know.
    pub(super) fn sets_aside(&self, worker: WorkerId) -> bool {
        let agreements = self.agreements.0.lock();
        matches!(agreements.get(&worker), Some(Agreement::SetsAside(_)))
    }

    /// Takes what a worker's report says of the incarnations that it knows.
    pub(super) fn note_agreement(&self, worker: WorkerId, report: &WorkerReport) {
        let mut agreements = self.agreements.0.lock();
        if report.adopted {
            if agreements.remove(&worker).is_some() {
                tracing::info!(%worker, "the worker goes on with this catalog");
            }
            return;
        }
        let state = self.catalog.state();
        let agreement = state.agree(&report.incarnations, report.max_write);
        if agreements.insert(worker, agreement) == Some(agreement) {
            return; // it is asked again in its turn
        }
        drop(agreements);
        match agreement {
            Agreement::Follows(_) => {}
            Agreement::SetsAside(lineage) => tracing::warn!(
                %worker,
                from_write = %WriteId(lineage.from_write),
                "the catalog was recovered: the worker sets aside the rows that the catalog does not know"
            ),
            Agreement::Conflicts { from_write } => {
                let error = self.conflict(worker, from_write);
                tracing::error!(%error, "the catalog is older than a worker: statements are refused");
            }
        }
        self.members.ask_soon([worker]);
    }
}

impl Agreements {
    fn conflict(&self) -> Option<(WorkerId, WriteId)> {
        let agreements = self.0.lock();
        agreements.iter().find_map(|(worker, agreement)| {
            let Agreement::Conflicts { from_write } = agreement else {
                return None;
            };
            Some((*worker, *from_write))
        })
    }
}
