use std::path::PathBuf;
use std::sync::Arc;

use datafusion::execution::runtime_env::RuntimeEnv;

use crate::disk_space::DiskSpace;
use crate::metrics::{Metric, Samples};
use crate::tls::CertificateFiles;

const READY: Metric = Metric::gauge(
    "volary_ready",
    &["node"],
    "1 if the node serves, otherwise 0.",
);
const MEMORY_LIMIT: Metric = Metric::gauge(
    "volary_memory_limit_bytes",
    &["node"],
    "Memory that the operators of all queries may hold.",
);
const MEMORY_RESERVED: Metric = Metric::gauge(
    "volary_memory_reserved_bytes",
    &["node"],
    "Memory that the operators of all queries hold.",
);
const SPILLED: Metric = Metric::gauge(
    "volary_spilled_bytes",
    &["node"],
    "Spilled data on disk now.",
);
const DISK_SIZE: Metric = Metric::gauge(
    "volary_disk_size_bytes",
    &["node"],
    "Size of the file system that holds the data directory.",
);
const DISK_AVAILABLE: Metric = Metric::gauge(
    "volary_disk_available_bytes",
    &["node"],
    "Free space of the file system that holds the data directory.",
);
const CERTIFICATE_EXPIRY: Metric = Metric::gauge(
    "volary_certificate_expiry_timestamp_seconds",
    &["node", "file"],
    "Time at which the first certificate of the file (`certificate`, `authorities`, `client_authorities`) expires, in seconds since 1970.",
);

/// The metrics that every node has.
pub const METRICS: &[Metric] = &[
    READY,
    MEMORY_LIMIT,
    MEMORY_RESERVED,
    SPILLED,
    DISK_SIZE,
    DISK_AVAILABLE,
    CERTIFICATE_EXPIRY,
];

pub(super) fn collect_readiness(node: &str, is_ready: bool, samples: &mut Samples) {
    let labels = [("node", node.to_owned())];
    samples.gauge(READY, labels, f64::from(u8::from(is_ready)));
}

/// The resources of a node that all nodes measure in the same way.
#[derive(Debug, Clone)]
pub struct NodeResources {
    /// Knows how much is spilled.
    pub runtime_env: Arc<RuntimeEnv>,
    /// Limit on the memory of all operators, in bytes.
    pub memory_limit_bytes: usize,
    /// The data directory.
    pub data_dir: PathBuf,
    /// The files of the node's certificates.
    pub certificates: CertificateFiles,
}

impl NodeResources {
    /// Adds the values of the node with this name, whose operators hold `reserved_bytes` of memory.
    /// May block for a moment.
    pub fn collect(&self, node: &str, reserved_bytes: usize, samples: &mut Samples) {
        let labels = || [("node", node.to_owned())];
        samples.gauge(MEMORY_LIMIT, labels(), self.memory_limit_bytes as f64);
        samples.gauge(MEMORY_RESERVED, labels(), reserved_bytes as f64);
        let spilled = self.runtime_env.disk_manager.used_disk_space();
        samples.gauge(SPILLED, labels(), spilled as f64);
        if let Ok(space) = DiskSpace::of(&self.data_dir) {
            samples.gauge(DISK_SIZE, labels(), space.size_bytes as f64);
            samples.gauge(DISK_AVAILABLE, labels(), space.available_bytes as f64);
        }
        for (file, expiry) in self.certificates.expiries() {
            let labels = [("node", node.to_owned()), ("file", file.to_owned())];
            samples.gauge(CERTIFICATE_EXPIRY, labels, expiry as f64);
        }
    }
}
