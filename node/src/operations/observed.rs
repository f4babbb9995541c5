use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::RwLock;

use super::node_metrics;
use crate::metrics::runtime_lag::RuntimeLag;
use crate::metrics::{Samples, disk_syncs, process};

/// A node that runs in this process, as monitoring systems see it.
pub trait ObservedNode: fmt::Debug + Send + Sync {
    /// Returns the name of the node in the label `node`: `gateway`, or the id of a worker.
    fn name(&self) -> String;

    /// Returns why the node does not serve, or `None` if it serves.
    fn why_not_ready(&self) -> Option<String>;

    /// Makes the node count by user from now on, for metrics with the label `user`.
    fn count_users(&self) {}

    /// Adds the values of the node's metrics. May block for a moment.
    fn collect(&self, samples: &mut Samples);
}

/// The nodes of the process, and what is measured of the process itself.
#[derive(Debug)]
pub(super) struct Observed {
    /// Number of nodes that the process is going to have.
    expected_nodes: usize,
    counts_users: bool,
    /// The nodes, as long as they run.
    nodes: RwLock<Vec<Weak<dyn ObservedNode>>>,
    is_stopping: AtomicBool,
    lag: Option<RuntimeLag>,
}

impl Observed {
    pub(super) fn new(expected_nodes: usize, counts_users: bool, lag: Option<RuntimeLag>) -> Self {
        Self {
            expected_nodes,
            counts_users,
            nodes: RwLock::default(),
            is_stopping: AtomicBool::new(false),
            lag,
        }
    }

    pub(super) fn add(&self, node: &Arc<dyn ObservedNode>) {
        if self.counts_users {
            node.count_users();
        }
        let mut nodes = self.nodes.write();
        nodes.retain(|node| node.strong_count() > 0);
        nodes.push(Arc::downgrade(node));
    }

    pub(super) fn set_stopping(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
    }

    fn running(&self) -> Vec<Arc<dyn ObservedNode>> {
        self.nodes.read().iter().filter_map(Weak::upgrade).collect()
    }

    /// Returns why the process does not serve, or `None` if it serves.
    pub(super) fn why_not_ready(&self) -> Option<String> {
        if self.is_stopping.load(Ordering::Relaxed) {
            return Some("the process is stopping".to_owned());
        }
        let nodes = self.running();
        if nodes.len() < self.expected_nodes {
            let (started, expected) = (nodes.len(), self.expected_nodes);
            return Some(format!(
                "the process is starting: {started} of {expected} nodes serve"
            ));
        }
        nodes.iter().find_map(|node| {
            let why = node.why_not_ready()?;
            Some(format!("{}: {why}", node.name()))
        })
    }

    /// Returns the values of all metrics. May block for a moment.
    pub(super) fn samples(&self) -> Samples {
        let mut samples = Samples::default();
        process::collect(&mut samples);
        disk_syncs::collect(&mut samples);
        if let Some(lag) = &self.lag {
            lag.collect(&mut samples);
        }
        for node in self.running() {
            let is_ready = node.why_not_ready().is_none();
            node_metrics::collect_readiness(&node.name(), is_ready, &mut samples);
            node.collect(&mut samples);
        }
        samples
    }
}
