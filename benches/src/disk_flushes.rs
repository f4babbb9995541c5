//! A sync of a file ends with a command to the disk to flush its cache. Linux counts these commands
//! for each disk: in `/sys/dev/block/<major>:<minor>/stat`, see iostats.rst of the kernel. The
//! count includes the flushes of all processes, so it is exact only if nothing else syncs
//! meanwhile. Syncs that wait at the same time share a flush. So there may be fewer flushes than
//! syncs.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Position of the number of flushes in the file, since Linux 5.5.
const FLUSHES: usize = 15;

/// Counts how often the disk of a directory has flushed its cache.
#[derive(Debug, Clone)]
pub struct DiskFlushes {
    stat: PathBuf,
}

impl DiskFlushes {
    /// Finds the disk. Returns `None` if the directory is not on a disk that counts flushes: if the
    /// file system is in memory or made of layers, or if the disk has no cache of its own.
    ///
    /// # Errors
    /// Returns an error if the directory does not exist.
    pub fn of(directory: &Path) -> Result<Option<Self>> {
        let device = fs::metadata(directory)
            .with_context(|| format!("cannot read {}", directory.display()))?
            .dev();
        let (major, minor) = numbers_of(device);
        let entry = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
        let Ok(entry) = entry.canonicalize() else {
            return Ok(None);
        };
        // Flushes of a partition are counted for its whole disk.
        let is_partition = entry.join("partition").exists();
        let disk = entry.parent().filter(|_| is_partition).unwrap_or(&entry);
        let cache = fs::read_to_string(disk.join("queue").join("write_cache"));
        let has_cache = cache.is_ok_and(|cache| cache.trim() == "write back");
        let flushes = Self {
            stat: disk.join("stat"),
        };
        let counts = has_cache && flushes.count().is_ok();
        Ok(counts.then_some(flushes))
    }

    /// Returns the number of flushes since the start of the machine.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, or has no such number.
    pub fn count(&self) -> Result<u64> {
        let path = self.stat.display();
        let text = fs::read_to_string(&self.stat).with_context(|| format!("cannot read {path}"))?;
        parse(&text).with_context(|| format!("{path} has no number of flushes"))
    }
}

fn parse(stat: &str) -> Option<u64> {
    stat.split_whitespace().nth(FLUSHES)?.parse().ok()
}

/// Splits the number of a device, as glibc's `gnu_dev_major` and `gnu_dev_minor` do.
fn numbers_of(device: u64) -> (u64, u64) {
    let major = ((device >> 8) & 0xfff) | ((device >> 32) & !0xfff);
    let minor = (device & 0xff) | ((device >> 12) & !0xff);
    (major, minor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_flushes_comes_after_the_discards() {
        let stat = "178850 30284 7102530 178468 24052 143235 14058064 156841 0 38200 342668 9565 117 2698336 4564 836 2794\n";
        assert_eq!(parse(stat), Some(836));
        // Before Linux 5.5.
        assert_eq!(parse("1 2 3 4 5 6 7 8 9 10 11 12 13 14 15\n"), None);
    }

    #[test]
    fn the_number_of_a_device_has_two_parts() {
        assert_eq!(numbers_of(0xfe00), (254, 0));
        assert_eq!(numbers_of(0x10_3b02), (0x3b, 0x102));
    }

    #[test]
    fn a_file_system_in_memory_counts_nothing() {
        assert!(DiskFlushes::of(Path::new("/proc")).unwrap().is_none());
        assert!(DiskFlushes::of(Path::new("/not/there")).is_err());
    }
}
