use std::sync::Arc;

use tokio::time::sleep;
use volary_flight_proto::ids::TableId;
use volary_flight_proto::{Error, Result};

use super::{Compactor, Inputs};
use crate::background::run_blocking;
use crate::expiry::{Cutoff, Expired};
use crate::storage::{Segment, SettledRows};
use crate::write::{WriteLayout, flush};

/// What becomes of the segments of a shard.
#[derive(Debug, Default)]
struct Plan {
    /// The segments of which all rows have expired.
    gone: Vec<Arc<Segment>>,
    /// The segments that are written anew, without the rows that have expired.
    rewritten: Vec<Arc<Segment>>,
    /// Says whether there are other expired rows, which the log may still have.
    waits_for_log: bool,
}

/// Number of looks at the shards after which the log is flushed, if expired rows wait for that.
const ROUNDS_PER_FLUSH: u32 = 6;

impl Compactor {
    /// Deletes rows that have expired, as long as gateways say that there are tables whose rows
    /// expire.
    pub(super) async fn delete_expired_rows_forever(&self) {
        let storage = &self.context.storage;
        for round in (1..=ROUNDS_PER_FLUSH).cycle() {
            storage.await_expiries().await;
            let mut waits_for_log = false;
            for table in storage.expiring_tables() {
                for shard in storage.shards_of(table) {
                    match self.delete_expired_rows(table, shard).await {
                        Ok(waits) => waits_for_log |= waits,
                        Err(error) => self.note_failure(table, shard, &error),
                    }
                }
            }
            if waits_for_log
                && round == ROUNDS_PER_FLUSH
                && let Err(error) = self.forget_logged_writes().await
            {
                tracing::warn!(%error, "rows of the log cannot be written into segments; they stay in the log, and the worker tries again");
            }
            sleep(self.context.config.compaction_interval).await;
        }
    }

    /// Deletes rows of a shard that have expired: segments of which all rows have expired, and
    /// about half of the rows, or more, of others. So expired rows take about as much space as the
    /// others, at most, if the times of a segment are spread evenly. Returns whether there are
    /// other expired rows, which the log may still have.
    ///
    /// # Errors
    /// Returns the errors of a merge. What was deleted until then stays deleted.
    pub(crate) async fn delete_expired_rows(&self, table: TableId, shard: u32) -> Result<bool> {
        let storage = &self.context.storage;
        let Some(description) = storage.table_description(table) else {
            return Ok(false);
        };
        let layout = Arc::new(WriteLayout::new(&description)?);
        let Some((cutoff, time_us)) = self.cutoff(&layout) else {
            return Ok(false);
        };
        let _turn = self.turn.lock().await;
        let (segments, logged) = storage.settleable(table, shard);
        let name = layout.schema().field(cutoff.column()).name().clone();
        let judged = cutoff.clone();
        let plan = run_blocking(move || plan(segments, &logged, &judged, &name)).await?;
        if !plan.gone.is_empty() {
            let rows = plan.gone.iter().filter_map(|segment| segment.sum());
            let rows = SettledRows::sum(rows);
            tracing::debug!(%table, shard, segments = plan.gone.len(), "segments have expired");
            let storage = storage.clone();
            let expired = rows.map(|rows| (rows, time_us));
            run_blocking(move || storage.replace(table, plan.gone, Vec::new(), expired)).await?;
            self.count_expired(rows);
        }
        for segment in plan.rewritten {
            let inputs = Inputs {
                segments: vec![segment],
                cutoff: Some((cutoff.clone(), time_us)),
            };
            self.merge_inputs(&layout, shard, inputs).await?;
        }
        Ok(plan.waits_for_log)
    }

    /// Returns the first time at which rows of a table have not expired, and the time, in
    /// microseconds since 1970, at which this holds. Returns `None` if no rows may be deleted.
    pub(super) fn cutoff(&self, layout: &WriteLayout) -> Option<(Cutoff, i64)> {
        let (expiry, time_us) = self.context.storage.expiry_of(layout.table())?;
        let cutoff = Cutoff::at(time_us, &expiry, layout.schema())?;
        Some((cutoff, time_us))
    }

    /// Makes segments of all committed rows in the log, so that the log is not needed for their
    /// writes any more: rows that the log may still have are not deleted.
    pub(super) async fn forget_logged_writes(&self) -> Result<()> {
        let storage = &self.context.storage;
        storage.close_log_file();
        for table in storage.unflushed_tables() {
            flush(&self.context, table, &storage.committed()).await?;
        }
        Ok(())
    }

    /// Counts rows that have expired and were deleted.
    pub(super) fn count_expired(&self, rows: Option<SettledRows>) {
        let rows = rows.map_or(0, |rows| rows.rows);
        self.context.totals.expired_rows.inc_by(rows);
    }
}

fn plan(
    segments: Vec<Arc<Segment>>,
    logged: &[Arc<Segment>],
    cutoff: &Cutoff,
    name: &str,
) -> Result<Plan> {
    let expired = |segment: &Segment| {
        let times = segment.times(cutoff.column(), name)?;
        Ok::<_, Error>(cutoff.expired(times))
    };
    let mut plan = Plan::default();
    for segment in logged {
        plan.waits_for_log |= expired(segment)? != Expired::Few;
    }
    for segment in segments {
        match expired(&segment)? {
            Expired::All => plan.gone.push(segment),
            Expired::Many => plan.rewritten.push(segment),
            Expired::Few => {}
        }
    }
    Ok(plan)
}
