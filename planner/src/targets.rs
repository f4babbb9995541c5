use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::physical_plan::ExecutionPlan;
use volary_flight_proto::fragment::ScanShards;
use volary_flight_proto::ids::WorkerId;

use crate::fragment::ShardScanExec;
use crate::gather::WorkerTarget;
use volary_catalog::TableKind;

/// Returns the scans of a fragment, in the order in which they are encoded.
pub(crate) fn scans_of(fragment: &Arc<dyn ExecutionPlan>) -> Result<Vec<Arc<dyn ExecutionPlan>>> {
    let mut scans = Vec::new();
    fragment.apply(|node| {
        if node.is::<ShardScanExec>() {
            scans.push(Arc::clone(node));
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(scans)
}

/// Returns a target for each worker that holds shards of a scan, with its shards of each scan. No
/// other worker can stand in for it, because each shard is on one worker.
pub(crate) fn shard_targets(scans: &[Arc<dyn ExecutionPlan>]) -> Vec<WorkerTarget> {
    let mut by_worker: BTreeMap<WorkerId, Vec<ScanShards>> = BTreeMap::new();
    for (ordinal, scan) in scans.iter().enumerate() {
        let Some(scan) = scan.downcast_ref::<ShardScanExec>() else {
            continue;
        };
        if let TableKind::Sharded { .. } = scan.table().kind() {
            for shard in scan.shards() {
                if let Some(worker) = scan.table().worker_of(shard) {
                    by_worker
                        .entry(worker)
                        .or_insert_with(|| vec![ScanShards::default(); scans.len()])[ordinal]
                        .shards
                        .push(shard);
                }
            }
        }
    }
    by_worker
        .into_iter()
        .map(|(worker, scans)| WorkerTarget {
            worker,
            replicas: Vec::new(),
            scans,
            members: Vec::new(),
        })
        .collect()
}

/// Returns the one worker that runs a fragment of reference tables. The choice rotates between
/// queries, so that all workers with a copy get their share.
pub(crate) fn replica_target(
    scans: &[Arc<dyn ExecutionPlan>],
    copies: &BTreeSet<WorkerId>,
) -> Vec<WorkerTarget> {
    let mut copies: VecDeque<_> = copies.iter().copied().collect();
    copies.rotate_left(next_rotation(copies.len()));
    let Some(worker) = copies.pop_front() else {
        return Vec::new();
    };
    vec![WorkerTarget {
        worker,
        replicas: copies.into(),
        scans: vec![ScanShards::default(); scans.len()],
        members: Vec::new(),
    }]
}

fn next_rotation(count: usize) -> usize {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed) % count.max(1)
}
