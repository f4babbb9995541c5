//! What workers have done for a query.

use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;
use volary_gather::report::Reports;

use volary_planner::gather::GatherExec;

/// What workers have done for a query so far. Of one that has not ended, what is scanned is told by the workers that have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Work {
    /// Workers that are asked, once for each gather.
    pub workers: u64,
    /// Of these, the ones whose rows have all arrived.
    pub workers_done: u64,
    /// Shards that they read, once for each scan.
    pub shards: u64,
    /// Segments of these.
    pub segments: u64,
    /// Rows that scans produced.
    pub scanned_rows: u64,
    /// Bytes that scans read from storage.
    pub scanned_bytes: u64,
}

/// The gathers of a plan. Not the plan: operators that are held after their query hold what it has collected, and the tasks that feed it.
#[derive(Debug, Clone, Default)]
pub(super) struct Gathers(Vec<OneGather>);

#[derive(Debug, Clone)]
struct OneGather {
    workers: u64,
    shards: u64,
    reports: Reports,
}

impl Gathers {
    pub(super) fn of(plan: &Arc<dyn ExecutionPlan>) -> Self {
        let mut gathers = Self::default();
        gathers.add(plan);
        gathers
    }

    fn add(&mut self, plan: &Arc<dyn ExecutionPlan>) {
        if let Some(gather) = plan.downcast_ref::<GatherExec>() {
            let scans = gather.targets().iter().flat_map(|target| &target.scans);
            self.0.push(OneGather {
                workers: gather.targets().len() as u64,
                shards: scans.map(|scan| scan.shards.len() as u64).sum(),
                reports: gather.reports().clone(),
            });
        }
        for child in plan.children() {
            self.add(child);
        }
    }

    /// What was done so far.
    pub(super) fn work(&self) -> Work {
        let mut work = Work::default();
        for gather in &self.0 {
            work.workers += gather.workers;
            work.shards += gather.shards;
            gather.reports.for_each_end(|end, workers| {
                work.workers_done += workers;
                // Numbers of workers, who may say anything.
                work.segments = work.segments.saturating_add(end.segments);
                work.scanned_rows = work.scanned_rows.saturating_add(end.scanned_rows);
                work.scanned_bytes = work.scanned_bytes.saturating_add(end.scanned_bytes);
            });
        }
        work
    }
}
