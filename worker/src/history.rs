//! The catalog numbers writes. A catalog that was restored from a backup gives out some numbers a
//! second time. This worker may have rows of the first write with such a number. These rows would
//! appear in tables as soon as the number is committed again. So every call says which [`Lineage`]
//! its catalog has, and a worker does nothing for a lineage that it cannot adopt.

use std::sync::Arc;

use parking_lot::RwLock;
use volary_flight_proto::ids::WriteId;
use volary_flight_proto::lineage::{Incarnation, Lineage};
use volary_flight_proto::write_set::WriteSet;
use volary_flight_proto::{Error, Result};
use volary_node::DataDir;

use crate::storage::Storage;

/// Maximum number of incarnations that are remembered. The latest ones are kept. Each start of a
/// gateway makes an incarnation, and all starts between two writes count as one.
const MOST_REMEMBERED: usize = 64;

/// The incarnations of the catalog that this worker has adopted.
#[derive(Debug)]
pub struct History {
    data_dir: Arc<DataDir>,
    storage: Storage,
    adopted: RwLock<Adopted>,
}

#[derive(Debug, Clone)]
struct Adopted {
    /// The adopted incarnations, the oldest first.
    incarnations: Vec<Incarnation>,
    /// Says whether the data directory contains these incarnations.
    is_durable: bool,
}

impl History {
    /// Builds the history of the rows in `storage` from the incarnations that the data directory
    /// names.
    pub fn new(data_dir: Arc<DataDir>, storage: Storage) -> Self {
        Self {
            adopted: RwLock::new(Adopted {
                incarnations: data_dir.identity().incarnations,
                is_durable: true,
            }),
            data_dir,
            storage,
        }
    }

    /// Returns the adopted incarnations, the oldest first.
    pub fn incarnations(&self) -> Vec<Incarnation> {
        self.adopted.read().incarnations.clone()
    }

    /// Refuses a call from a catalog of another history. Adopts a new incarnation of the same
    /// history, but only in memory.
    ///
    /// # Errors
    /// Returns `UNAVAILABLE` for another history. The gateway learns from the next report whether
    /// the histories really differ.
    pub fn check(&self, lineage: Option<&Lineage>) -> Result<()> {
        let Some(lineage) = lineage else {
            return Ok(()); // The call comes from a release that does not know lineages.
        };
        if self.adopted.read().knows(lineage.incarnation) {
            return Ok(());
        }
        let max_write = self.storage.totals().max_write;
        let has_all_commits = lineage.has_all_commits(self.storage.heard_commits());
        let mut adopted = self.adopted.write();
        if adopted.knows(lineage.incarnation)
            || (has_all_commits && adopted.adopt(lineage, max_write))
        {
            return Ok(());
        }
        Err(Error::unavailable(
            "the worker does not know yet whether its rows belong to the gateway's catalog; retry, and if the error stays, see the gateway's log",
        ))
    }

    /// Does what [`Self::check`] does, and makes the adopted incarnations durable, so that they
    /// stay adopted when the worker starts again. Call it before rows are stored, so that it is
    /// known which history the rows on disk belong to. May block.
    ///
    /// # Errors
    /// Returns the errors of [`Self::check`] and those of the file system.
    pub(crate) fn adopt(&self, lineage: Option<&Lineage>) -> Result<()> {
        self.check(lineage)?;
        if self.adopted.read().is_durable {
            return Ok(());
        }
        let mut adopted = self.adopted.write();
        // Until they are durable, the worker deletes nothing, even if the disk is full.
        let incarnations = &adopted.incarnations;
        self.storage
            .write_with_ballast(|| self.data_dir.record_incarnations(incarnations.clone()))?;
        adopted.is_durable = true;
        Ok(())
    }

    /// Returns whether [`Self::hear`] of this lineage does not block.
    pub(crate) fn has_adopted(&self, lineage: Option<&Lineage>) -> bool {
        let adopted = self.adopted.try_read();
        adopted.is_some_and(|adopted| {
            adopted.is_durable && lineage.is_none_or(|lineage| adopted.knows(lineage.incarnation))
        })
    }

    /// Does what [`Self::adopt`] does, and notes how many writes the catalog has committed. May
    /// block.
    ///
    /// # Errors
    /// Returns the errors of [`Self::adopt`].
    pub(crate) fn hear(&self, lineage: Option<&Lineage>, commits: u64) -> Result<()> {
        self.adopt(lineage)?;
        self.storage.hear_commits(commits);
        Ok(())
    }

    /// Moves the rows that the lineage's catalog does not have to a directory that nobody reads,
    /// and adopts the lineage. These are the rows of `aborted` writes, and of all writes from the
    /// lineage's first one on. May block.
    ///
    /// # Errors
    /// Returns the errors of the file system, and `UNAVAILABLE` for a lineage whose ancestor is not
    /// known.
    pub fn set_aside(&self, lineage: &Lineage, aborted: &WriteSet) -> Result<()> {
        let knows_ancestor = self.adopted.read().knows(lineage.ancestor);
        if self.check(Some(lineage)).is_err() && knows_ancestor {
            let from = WriteId(lineage.from_write);
            let rows = self.storage.set_aside(aborted, from, lineage.incarnation)?;
            let commits = lineage.base_commits.unwrap_or_default();
            self.storage.reset_commits(commits)?;
            tracing::warn!(
                rows,
                from_write = %from,
                "the catalog was recovered without these rows: they were moved to the directory lost/{:08x}",
                lineage.incarnation
            );
        }
        self.adopt(Some(lineage))
    }
}

impl Adopted {
    fn knows(&self, id: u32) -> bool {
        id == 0 || self.incarnations.iter().any(|known| known.id == id)
    }

    /// Adopts the lineage if the rows here belong to its history, and returns whether it did.
    /// `max_write` is the highest write that has rows here.
    fn adopt(&mut self, lineage: &Lineage, max_write: Option<WriteId>) -> bool {
        let ancestor = self
            .incarnations
            .iter()
            .position(|known| known.id == lineage.ancestor);
        // The worker may have continued from the ancestor with another incarnation, and from an
        // earlier write.
        let followed = ancestor.map_or(0, |position| position + 1);
        let own_next = self.incarnations.get(followed);
        let from_write = own_next.map_or(lineage.from_write, |next| {
            next.first_write.min(lineage.from_write)
        });
        let has_later = max_write.is_some_and(|write| write.0 >= from_write);
        if has_later || !self.knows(lineage.ancestor) {
            return false;
        }
        self.incarnations.truncate(followed);
        self.incarnations.push(Incarnation {
            id: lineage.incarnation,
            first_write: lineage.from_write,
        });
        let surplus = self.incarnations.len().saturating_sub(MOST_REMEMBERED);
        self.incarnations.drain(..surplus);
        self.is_durable = false;
        true
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use tempfile::TempDir;
    use volary_flight_proto::ErrorCode;
    use volary_flight_proto::ids::TableId;
    use volary_node::data_dir::NodeRole;
    use volary_node::disk::LocalDisk;

    use super::*;
    use crate::storage::ChecksummedFile;

    fn open(dir: &TempDir) -> History {
        let data_dir = DataDir::open(dir.path(), NodeRole::Worker).unwrap();
        let storage = Storage::open(dir.path(), Arc::new(LocalDisk)).unwrap();
        History::new(Arc::new(data_dir), storage)
    }

    fn write(history: &History, write: u64) {
        let storage = &history.storage;
        let (segment, file) = storage.create(TableId(1), 0, WriteId(write)).unwrap();
        let mut checksummed = ChecksummedFile::new(file.try_clone().unwrap());
        checksummed.write_all(b"rows").unwrap();
        let checksums = checksummed.checksums();
        let segment = segment.complete(&file, 1, checksums).unwrap();
        storage.add(TableId(1), vec![segment]).unwrap();
    }

    fn lineage(incarnation: u32, ancestor: u32, from_write: u64) -> Lineage {
        Lineage {
            incarnation,
            ancestor,
            from_write,
            base_commits: None,
        }
    }

    fn assert_refused(history: &History, lineage: &Lineage) {
        let error = history.adopt(Some(lineage)).unwrap_err();
        assert_eq!(error.code(), ErrorCode::Unavailable, "{error}");
    }

    #[test]
    fn an_incarnation_that_follows_on_is_adopted_and_remembered() {
        let dir = tempfile::tempdir().unwrap();
        let history = open(&dir);
        history.adopt(Some(&lineage(10, 0, 1))).unwrap();
        write(&history, 3);
        history.adopt(Some(&lineage(20, 10, 4))).unwrap();
        drop(history);
        let history = open(&dir);
        let known: Vec<_> = history.incarnations().iter().map(|it| it.id).collect();
        assert_eq!(known, [10, 20]);
        // A ticket of an earlier incarnation is still accepted.
        history.check(Some(&lineage(10, 0, 1))).unwrap();
    }

    #[test]
    fn a_catalog_that_gives_out_numbers_again_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let history = open(&dir);
        history.adopt(Some(&lineage(10, 0, 1))).unwrap();
        write(&history, 3);
        history.adopt(Some(&lineage(20, 10, 4))).unwrap();
        write(&history, 5);
        // One catalog was restored to a point before the second start, the other one to the middle
        // of the second incarnation.
        assert_refused(&history, &lineage(30, 10, 4));
        assert_refused(&history, &lineage(30, 20, 5));
        // This ancestor was never adopted here.
        assert_refused(&history, &lineage(40, 30, 9));
        history.adopt(Some(&lineage(30, 20, 6))).unwrap();
    }

    #[test]
    fn rows_of_another_incarnation_after_the_ancestor_are_another_history() {
        let dir = tempfile::tempdir().unwrap();
        let history = open(&dir);
        history.adopt(Some(&lineage(10, 0, 1))).unwrap();
        history.adopt(Some(&lineage(25, 10, 4))).unwrap();
        write(&history, 5);
        // In the catalog of incarnation 30, the writes 4 and 5 belong to incarnation 10. The
        // catalog continues with 6.
        assert_refused(&history, &lineage(30, 10, 6));
    }

    #[test]
    fn a_start_in_between_without_writes_does_not_matter() {
        let dir = tempfile::tempdir().unwrap();
        let history = open(&dir);
        history.adopt(Some(&lineage(10, 0, 1))).unwrap();
        write(&history, 3);
        history.adopt(Some(&lineage(20, 10, 4))).unwrap();
        history.adopt(Some(&lineage(30, 10, 4))).unwrap();
        assert_refused(&history, &lineage(40, 20, 4));
        history.adopt(Some(&lineage(40, 30, 4))).unwrap();
    }

    #[test]
    fn a_catalog_with_fewer_commits_than_the_worker_has_heard_of_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let history = open(&dir);
        history.hear(Some(&lineage(10, 0, 1)), 6).unwrap();
        write(&history, 3);
        write(&history, 4);
        history.hear(Some(&lineage(10, 0, 1)), 8).unwrap();
        history.storage.record_commits().unwrap();
        drop(history);
        let history = open(&dir);
        // The catalog is a copy of the running one. It had reserved the number 4, and has aborted
        // it by now.
        let copy = Lineage {
            base_commits: Some(7),
            ..lineage(30, 10, 4097)
        };
        assert_refused(&history, &copy);
        let aborted = WriteSet::of_range(WriteId(4), WriteId(4096));
        history.set_aside(&copy, &aborted).unwrap();
        assert_eq!(history.storage.heard_commits(), 7);
        let kept = history.storage.list().segments;
        assert_eq!((kept.len(), kept[0].write_id), (1, 3));
        let goes_on = Lineage {
            base_commits: Some(8),
            ..lineage(40, 30, 8193)
        };
        history.hear(Some(&goes_on), 9).unwrap();
    }

    #[test]
    fn rows_of_another_history_are_set_aside_and_not_deleted() {
        let dir = tempfile::tempdir().unwrap();
        let history = open(&dir);
        history.adopt(Some(&lineage(10, 0, 1))).unwrap();
        for id in [3, 5, 6] {
            write(&history, id);
        }
        let recovered = lineage(30, 10, 5);
        assert_refused(&history, &recovered);
        history.set_aside(&recovered, &WriteSet::default()).unwrap();
        let kept = history.storage.list().segments;
        assert_eq!(kept.len(), 1);
        assert_eq!(kept[0].write_id, 3);
        let lost = dir.path().join("lost/0000001e/tables/1");
        let names = std::fs::read_dir(&lost).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.map(|name| name[..4].to_owned()).collect();
        names.sort();
        assert_eq!(names, ["0-5-", "0-6-"]);
        drop(history);
        let history = open(&dir);
        assert_eq!(history.incarnations().len(), 2);
        assert_eq!(history.storage.totals().rows, 1);
        // The gateway asks again, as if the answer had been lost.
        history.set_aside(&recovered, &WriteSet::default()).unwrap();
        assert_eq!(history.storage.totals().rows, 1);
    }
}
