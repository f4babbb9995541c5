//! Each call to a worker states the [`Lineage`] of the catalog. A worker that cannot adopt the
//! lineage refuses the call, and its next report says which incarnations it knows. Then the gateway
//! judges the worker. If the worker has only missed incarnations, it may adopt the lineage. If it
//! has rows that the catalog does not know, the catalog is older than acknowledged rows.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use volary_catalog::LineageVerdict;
use volary_flight_proto::control::WorkerReport;
use volary_flight_proto::ids::{WorkerId, WriteId};
use volary_flight_proto::lineage::Lineage;
use volary_flight_proto::{Error, ErrorCode, Result};

use super::Cluster;

/// The gateway's verdict on each worker that has not adopted the catalog's lineage.
#[derive(Debug, Default)]
pub(super) struct LineageVerdicts(Mutex<BTreeMap<WorkerId, LineageVerdict>>);

impl Cluster {
    /// Refuses statements while a worker has rows that the catalog does not know. Then the catalog
    /// may lack acknowledged rows of any worker.
    ///
    /// # Errors
    /// `DATA_LOSS`, with the name of the worker and with advice.
    pub(crate) fn refuse_conflicts(&self) -> Result<()> {
        let conflict = self.lineage_verdicts.first_conflict();
        conflict.map_or(Ok(()), |worker| Err(self.conflict_error(worker)))
    }

    /// Returns whether [`Self::refuse_conflicts`] refuses statements.
    pub(crate) fn has_conflicts(&self) -> bool {
        self.lineage_verdicts.first_conflict().is_some()
    }

    fn conflict_error(&self, worker: WorkerId) -> Error {
        Error::new(
            ErrorCode::DataLoss,
            format!(
                "{} has rows of writes that this gateway's catalog does not know: catalog.redb, or volary.json in the worker's data directory, was restored from a backup that is older than these rows; stop the gateway and restore the newest copies, or give these rows up with `volary gateway recover` (docs/repair.md)",
                self.name(worker)
            ),
        )
    }

    /// Returns the lineage that the gateway states in its calls to a worker.
    pub(crate) fn lineage_for(&self, worker: WorkerId) -> Lineage {
        match self.lineage_verdicts.0.lock().get(&worker) {
            Some(LineageVerdict::Adopt(lineage) | LineageVerdict::SetAside(lineage)) => *lineage,
            Some(LineageVerdict::Conflict) | None => self.catalog.state().lineage(),
        }
    }

    /// Returns the number of writes that the catalog has committed. Workers compare it with the
    /// number that a later start of a gateway begins with.
    pub(crate) fn commits(&self) -> u64 {
        self.catalog.state().commits()
    }

    /// Returns whether a worker may set aside rows that the catalog does not know.
    pub(super) fn may_set_aside(&self, worker: WorkerId) -> bool {
        let verdicts = self.lineage_verdicts.0.lock();
        matches!(verdicts.get(&worker), Some(LineageVerdict::SetAside(_)))
    }

    /// Judges a worker by its report. If the verdict is new, the worker is asked again soon.
    pub(super) fn note_lineage(&self, worker: WorkerId, report: &WorkerReport) {
        let mut verdicts = self.lineage_verdicts.0.lock();
        if report.adopted {
            if verdicts.remove(&worker).is_some() {
                tracing::info!(%worker, "the worker has adopted this catalog again");
            }
            return;
        }
        let state = self.catalog.state();
        let verdict =
            state.judge_lineage(&report.incarnations, report.max_write, report.heard_commits);
        if verdicts.insert(worker, verdict) == Some(verdict) {
            return; // the worker is asked again in its turn
        }
        drop(verdicts);
        match verdict {
            LineageVerdict::Adopt(_) => {}
            LineageVerdict::SetAside(lineage) => tracing::warn!(
                %worker,
                from_write = %WriteId(lineage.from_write),
                "the catalog was recovered: the worker sets aside the rows that the catalog does not know"
            ),
            LineageVerdict::Conflict => {
                let error = self.conflict_error(worker);
                tracing::error!(%error, "the catalog is older than a worker: statements are refused");
            }
        }
        self.known_workers.ask_soon([worker]);
    }
}

impl LineageVerdicts {
    fn first_conflict(&self) -> Option<WorkerId> {
        let verdicts = self.0.lock();
        let mut verdicts = verdicts.iter();
        let conflict = verdicts.find(|(_, verdict)| **verdict == LineageVerdict::Conflict);
        conflict.map(|(worker, _)| *worker)
    }
}
