/// Counts how much memory each work holds of a shared memory pool.
mod attributed_pool;
/// Measures the memory of the whole process, beyond the memory that operators report.
mod process;
/// Refuses more memory to operators while the process has more memory than it may.
mod process_limited_pool;
/// Gives each query a limit below the limit of all queries of the node.
mod query_memory;
/// Ends the largest running query before the system ends the process.
mod watch;

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{FairSpillPool, TrackConsumersPool};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use volary_flight_proto::{Error, Result};

use crate::size::MemorySize;

use attributed_pool::AttributedPool;
pub use process::{Excess, ProcessMemory, ProcessReservation};
use process_limited_pool::ProcessLimitedPool;
pub use query_memory::{ByteLimit, QueryMemory};
pub use watch::{MIN_ENDED_BYTES, end_largest_when_full};

/// Number of the largest memory consumers that an out-of-memory error names.
const NAMED_CONSUMERS: NonZeroUsize = NonZeroUsize::new(3).unwrap();

/// Memory and spill space.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Memory that all running queries may hold together. An operator that needs more memory spills
    /// to disk, or fails with RESOURCE_EXHAUSTED if it cannot spill. For memory that operators do
    /// not report, the node's process may use a fifth more than this limit, and at least 512 MiB
    /// more. Above that, queries get no more memory.
    pub limit: MemorySize,
    /// Disk space that spilled data may take, in the data directory.
    pub spill_limit: MemorySize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            limit: MemorySize::Percent(50),
            spill_limit: MemorySize::Bytes(100 << 30),
        }
    }
}

/// Creates DataFusion's environment with these limits. Spilled data is written below `data_dir`,
/// and is deleted when the node starts again. Up to `footer_cache_bytes` bytes of Parquet metadata
/// are cached. The cache is only correct for files that never change: it identifies a file by its
/// path alone, without its store.
///
/// # Errors
/// The errors of the file system.
pub fn runtime_env(
    config: &Config,
    data_dir: &Path,
    footer_cache_bytes: usize,
) -> Result<Arc<RuntimeEnv>> {
    let spill = data_dir.join("spill");
    // Spilled data that a killed process has left behind is useless.
    match std::fs::remove_dir_all(&spill) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
            return Err(Error::io(
                format!("cannot empty {}", spill.display()),
                source,
            ));
        }
        _ => {}
    }
    crate::durable::create_directory(&crate::disk::LocalDisk, &spill)?;
    let disk = DiskManagerBuilder::default()
        .with_mode(DiskManagerMode::Directories(vec![spill]))
        .with_max_temp_directory_size(config.spill_limit.bytes() as u64);
    let limit = config.limit.bytes();
    let pool = ProcessLimitedPool::of_node(AttributedPool::new(FairSpillPool::new(limit)), limit);
    let pool = TrackConsumersPool::new(pool, NAMED_CONSUMERS);
    RuntimeEnvBuilder::new()
        .with_memory_pool(Arc::new(pool))
        .with_disk_manager_builder(disk)
        .with_metadata_cache_limit(footer_cache_bytes)
        // A folder may have other files the next time.
        .with_object_list_cache_limit(0)
        .with_file_statistics_cache_limit(0)
        .build_arc()
        .map_err(Error::from)
}
