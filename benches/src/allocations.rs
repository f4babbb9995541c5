//! jemalloc counts the requests of each size class. The counts are exact at any time only if
//! threads have no caches of their own (see [`EXACT`]): otherwise a thread counts what its cache
//! served only when the cache is filled or emptied.

use anyhow::{Context, Result};
use tikv_jemalloc_ctl::{Access, AsName, Name, epoch};

/// The environment variable with which jemalloc counts exactly. Allocations take longer then.
pub const EXACT: (&str, &str) = ("_RJEM_MALLOC_CONF", "tcache:false");

/// The number that stands for all arenas (`MALLCTL_ARENAS_ALL`).
const ALL_ARENAS: usize = 4096;

/// Returns how many bytes this process has allocated since its start, including those that it has
/// freed again. A size counts as that of its size class.
///
/// # Errors
/// Returns an error if jemalloc does not keep statistics.
pub fn allocated_bytes() -> Result<u64> {
    // jemalloc updates its figures only when the epoch advances.
    epoch::advance().map_err(|error| anyhow::anyhow!("jemalloc has no epoch: {error}"))?;
    Ok(bytes_of("nbins", "bin", "bins")? + bytes_of("nlextents", "lextent", "lextents")?)
}

/// Returns the bytes of all size classes of a kind: small ones (bins) or large ones (extents). The
/// names are those of jemalloc's manual.
fn bytes_of(count: &str, class: &str, classes: &str) -> Result<u64> {
    let count: u32 = read(&format!("arenas.{count}"))?;
    let mut bytes = 0;
    for index in 0..count {
        let size: usize = read(&format!("arenas.{class}.{index}.size"))?;
        let name = format!("stats.arenas.{ALL_ARENAS}.{classes}.{index}.nrequests");
        let requests: u64 = read(&name)?;
        bytes += size as u64 * requests;
    }
    Ok(bytes)
}

fn read<T>(name: &str) -> Result<T>
where
    Name: Access<T>,
{
    let terminated = format!("{name}\0");
    let value = terminated.as_str().name().read();
    value
        .map_err(|error| anyhow::anyhow!("{error}"))
        .with_context(|| format!("jemalloc does not know {name}"))
}
