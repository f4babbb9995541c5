use std::sync::Arc;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::physical_plan::ExecutionPlan;
use volary_flight_proto::fragment::ScanShards;
use volary_gather::WorkerTarget;

use crate::fragment::ShardScanExec;
use volary_catalog::{Table, TableStatistics};

/// The tables of a fragment's scans, by the ordinal of the scan.
#[derive(Debug)]
pub(super) struct ScannedTables(Vec<Arc<Table>>);

impl ScannedTables {
    /// Returns the tables of a fragment. If the fragment was planned for an earlier query, `newer`
    /// has the current state of its tables.
    pub(super) fn from_fragment(
        fragment: &Arc<dyn ExecutionPlan>,
        newer: &[Arc<Table>],
    ) -> Result<Self> {
        let mut tables = Vec::new();
        fragment.apply(|node| {
            if let Some(scan) = node.downcast_ref::<ShardScanExec>() {
                let planned = scan.table();
                let newer = newer.iter().find(|newer| newer.id() == planned.id());
                tables.push(Arc::clone(newer.unwrap_or(planned)));
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(Self(tables))
    }

    /// Returns whether a target reads one shard of each scanned table, and these have several.
    pub(super) fn is_one_shard_of_several(&self, target: &WorkerTarget) -> bool {
        let mut scans = target.scans.iter().zip(&self.0);
        !self.0.is_empty()
            && scans.all(|(scan, table)| scan.shards.len() == 1 && table.shards() > 1)
    }

    /// Returns the target with the catalog's tally of each shard that it reads, or with the number
    /// of rows if there is no tally.
    pub(super) fn with_counts(&self, target: &WorkerTarget) -> WorkerTarget {
        let scans = target.scans.iter().enumerate();
        let scans = scans.map(|(ordinal, scan)| match self.0.get(ordinal) {
            Some(table) => count_shards(scan, table.statistics()),
            None => scan.clone(),
        });
        let members = target.members.iter();
        WorkerTarget {
            worker: target.worker,
            replicas: target.replicas.clone(),
            scans: scans.collect(),
            members: members.map(|member| self.with_counts(member)).collect(),
        }
    }
}

fn count_shards(scan: &ScanShards, known: &TableStatistics) -> ScanShards {
    // A reference table has one shard, which the target does not name.
    let reference = [0];
    let shards = match &scan.shards[..] {
        [] => &reference[..],
        shards => shards,
    };
    let shard_statistics = || {
        shards.iter().map(|shard| {
            let index = usize::try_from(*shard).unwrap_or(usize::MAX);
            known.shards.get(index).copied().unwrap_or_default()
        })
    };
    let tallies: Option<Vec<u32>> = shard_statistics()
        .map(|shard| shard.tally.map(|tally| tally.0))
        .collect();
    let rows = match tallies {
        Some(_) => Vec::new(),
        None => shard_statistics().map(|shard| shard.rows).collect(),
    };
    ScanShards {
        shards: scan.shards.clone(),
        tallies: tallies.unwrap_or_default(),
        rows,
    }
}
