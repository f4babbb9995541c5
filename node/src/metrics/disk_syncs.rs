use std::ffi::OsStr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use super::definition::Metric;
use super::samples::Samples;

const DISK_SYNCS: Metric = Metric::counter(
    "volary_disk_syncs_total",
    &["what"],
    "Calls of `fsync` and `fdatasync`, by what was made durable (`log`, `segment`, `store`: a worker's store or the catalog, `directory`, `other`).",
);

/// The metrics of this file.
pub(crate) const METRICS: &[Metric] = &[DISK_SYNCS];

/// What a sync makes durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Synced {
    Log,
    Segment,
    Store,
    Directory,
    Other,
}

impl Synced {
    const ALL: [Self; 5] = [
        Self::Log,
        Self::Segment,
        Self::Store,
        Self::Directory,
        Self::Other,
    ];

    /// Tells files apart by the extensions that the parts of a node give to their files.
    fn of_file(path: &Path) -> Self {
        match path.extension().and_then(OsStr::to_str) {
            Some("log") => Self::Log,
            Some("parquet") => Self::Segment,
            Some("redb" | "unfinished") => Self::Store,
            _ => Self::Other,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Segment => "segment",
            Self::Store => "store",
            Self::Directory => "directory",
            Self::Other => "other",
        }
    }
}

/// The number of syncs of this process, in the order of [`Synced::ALL`].
static COUNTS: [AtomicU64; Synced::ALL.len()] = [const { AtomicU64::new(0) }; Synced::ALL.len()];

/// Counts a sync of a file, also if it fails.
pub(crate) fn count_file(path: &Path) {
    count(Synced::of_file(path));
}

/// Counts a sync of a directory, also if it fails.
pub(crate) fn count_directory() {
    count(Synced::Directory);
}

fn count(what: Synced) {
    COUNTS[what as usize].fetch_add(1, Ordering::Relaxed);
}

/// Adds the values of this process.
pub(crate) fn collect(samples: &mut Samples) {
    for (what, count) in Synced::ALL.into_iter().zip(&COUNTS) {
        let labels = [("what", what.name().to_owned())];
        samples.counter(DISK_SYNCS, labels, count.load(Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_is_counted_by_what_it_makes_durable() {
        for (path, expected) in [
            ("log/000000000000001f.log", Synced::Log),
            ("tables/1/3-7-0198c0de.parquet", Synced::Segment),
            ("store.redb", Synced::Store),
            ("catalog.unfinished", Synced::Store),
            ("volary.tmp", Synced::Other),
            ("lock", Synced::Other),
        ] {
            assert_eq!(Synced::of_file(Path::new(path)), expected, "{path}");
        }
        for (place, what) in Synced::ALL.into_iter().enumerate() {
            // Other tests may sync meanwhile.
            let before = COUNTS[place].load(Ordering::Relaxed);
            count(what);
            assert!(COUNTS[place].load(Ordering::Relaxed) > before, "{what:?}");
        }
    }
}
