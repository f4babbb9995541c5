use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;
use volary_flight_proto::stage_times::StageTimes;
use volary_gather::report::StreamReports;

use volary_planner::gather::GatherExec;

/// The work that workers have done for a query so far. While the query runs, the numbers of
/// segments, rows and bytes include only workers that have ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WorkerStatistics {
    /// Number of workers that are asked. A worker counts once for each gather.
    pub workers: u64,
    /// Number of these workers whose rows have all arrived.
    pub workers_done: u64,
    /// Number of shards that the workers read. A shard counts once for each scan.
    pub shards: u64,
    /// Number of segments of these shards that the snapshot sees, before pruning.
    pub segments: u64,
    /// Number of rows that the scans produced.
    pub scanned_rows: u64,
    /// Number of bytes that the scans read from storage.
    pub scanned_bytes: u64,
    /// How long the stages of the workers took, added up over the workers. `None` if no worker has
    /// ended.
    pub stages: Option<StageTimes>,
}

impl WorkerStatistics {
    /// Returns the work of workers that were asked for rows of so many shards, as they reported it.
    pub(crate) fn of_reports(workers: usize, shards: usize, reports: &StreamReports) -> Self {
        let mut work = Self {
            workers: workers as u64,
            shards: shards as u64,
            ..Self::default()
        };
        work.add_reports(reports);
        work
    }

    /// Adds the work for another part of the statement.
    pub(super) fn add(&mut self, other: &Self) {
        self.workers += other.workers;
        self.workers_done += other.workers_done;
        self.shards += other.shards;
        self.segments = self.segments.saturating_add(other.segments);
        self.scanned_rows = self.scanned_rows.saturating_add(other.scanned_rows);
        self.scanned_bytes = self.scanned_bytes.saturating_add(other.scanned_bytes);
        self.add_stages(other.stages);
    }

    fn add_reports(&mut self, reports: &StreamReports) {
        reports.for_each_end(|end, workers| {
            self.workers_done += workers;
            // These numbers come from workers, and may have any value.
            self.segments = self.segments.saturating_add(end.segments);
            self.scanned_rows = self.scanned_rows.saturating_add(end.scanned_rows);
            self.scanned_bytes = self.scanned_bytes.saturating_add(end.scanned_bytes);
        });
        self.add_stages(reports.stage_times());
    }

    fn add_stages(&mut self, other: Option<StageTimes>) {
        let stages = [self.stages, other];
        self.stages = stages.into_iter().flatten().reduce(StageTimes::plus);
    }
}

/// The gathers of a plan. The plan itself is not kept: operators that outlive their query would
/// keep the rows that they have collected, and the tasks that feed them.
#[derive(Debug, Clone, Default)]
pub(super) struct Gathers(Vec<GatherSummary>);

#[derive(Debug, Clone)]
struct GatherSummary {
    workers: u64,
    shards: u64,
    reports: StreamReports,
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
            self.0.push(GatherSummary {
                workers: gather.targets().len() as u64,
                shards: scans.map(|scan| scan.shards.len() as u64).sum(),
                reports: gather.reports().clone(),
            });
        }
        for child in plan.children() {
            self.add(child);
        }
    }

    /// Returns the work that was done so far.
    pub(super) fn work(&self) -> WorkerStatistics {
        let mut work = WorkerStatistics::default();
        for gather in &self.0 {
            work.workers += gather.workers;
            work.shards += gather.shards;
            work.add_reports(&gather.reports);
        }
        work
    }
}
