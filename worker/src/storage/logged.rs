use std::sync::Arc;

use arrow::array::{BooleanArray, RecordBatch};
use arrow::compute::{concat_batches, filter_record_batch};
use arrow::error::ArrowError;
use volary_flight_proto::ids::WriteId;
use volary_flight_proto::snapshot::Snapshot;
use volary_flight_proto::tally::Tally;
use volary_flight_proto::{Error, ErrorCode, Result};

/// Number of rows above which rows are not joined with others any more.
const CHUNK_ROWS: usize = 8 * 1024;

/// Consecutive rows of one write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) write: WriteId,
    pub(super) rows: usize,
    /// Number of the log file that the rows are in.
    pub(super) file: u64,
}

/// Rows of a shard that are in the log, and that no segment has yet. Rows of small writes are
/// joined, so that a scan reads few batches.
#[derive(Debug, Clone, Default)]
pub(super) struct LoggedRows {
    chunks: Vec<Chunk>,
}

/// Rows in memory, with the writes that they belong to.
#[derive(Debug, Clone)]
struct Chunk {
    rows: RecordBatch,
    runs: Arc<Vec<Run>>,
    /// The lowest and the highest write.
    writes: (WriteId, WriteId),
    /// The tally of all rows.
    tally: Tally,
}

impl Chunk {
    /// Creates a chunk of rows, of which there is at least one run.
    fn new(rows: RecordBatch, runs: Vec<Run>) -> Self {
        let mut writes = (WriteId(u64::MAX), WriteId(0));
        let mut tally = Tally::default();
        for run in &runs {
            writes = (writes.0.min(run.write), writes.1.max(run.write));
            tally.add(run.write, run.rows as u64);
        }
        Self {
            rows,
            runs: Arc::new(runs),
            writes,
            tally,
        }
    }

    fn joined_with(&self, later: &Self) -> Result<Self> {
        let rows = concat_batches(self.rows.schema_ref(), [&self.rows, &later.rows]);
        let runs = self.runs.iter().chain(later.runs.iter()).copied();
        let mut tally = self.tally;
        tally.add_all(later.tally);
        Ok(Self {
            rows: rows.map_err(internal)?,
            runs: Arc::new(runs.collect()),
            writes: (
                self.writes.0.min(later.writes.0),
                self.writes.1.max(later.writes.1),
            ),
            tally,
        })
    }

    /// Returns whether the snapshot sees all rows. It may also return false if the snapshot does
    /// not see another write between them.
    fn is_visible_to(&self, snapshot: &Snapshot) -> bool {
        snapshot.sees_all_between(self.writes.0, self.writes.1)
    }

    fn sees(&self, mut sees: impl FnMut(&Run) -> bool) -> (bool, bool) {
        let mut any = false;
        let mut all = true;
        for run in self.runs.iter() {
            let seen = sees(run);
            any |= seen;
            all &= seen;
        }
        (any, all)
    }

    fn mask(&self, mut sees: impl FnMut(&Run) -> bool) -> BooleanArray {
        let runs = self.runs.iter();
        let seen = runs.flat_map(|run| std::iter::repeat_n(sees(run), run.rows));
        seen.collect::<Vec<_>>().into()
    }
}

impl LoggedRows {
    /// Returns all runs.
    pub(super) fn runs(&self) -> impl Iterator<Item = &Run> {
        self.chunks.iter().flat_map(|chunk| chunk.runs.iter())
    }

    /// Adds the rows of a write, which the log file `file` has.
    ///
    /// # Errors
    /// Returns `INTERNAL` if the rows have other columns than those before them.
    pub(super) fn push(&mut self, rows: RecordBatch, write: WriteId, file: u64) -> Result<()> {
        let run = Run {
            write,
            rows: rows.num_rows(),
            file,
        };
        self.chunks.push(Chunk::new(rows, vec![run]));
        // Each row is copied only as often as the number of rows doubles.
        while let [.., before, last] = &self.chunks[..]
            && before.rows.num_rows() <= 2 * last.rows.num_rows()
            && before.rows.num_rows() + last.rows.num_rows() <= CHUNK_ROWS
        {
            let joined = before.joined_with(last)?;
            self.chunks.truncate(self.chunks.len() - 2);
            self.chunks.push(joined);
        }
        Ok(())
    }

    /// Returns the rows that a snapshot sees, in the order in which they were added.
    ///
    /// # Errors
    /// Returns `INTERNAL` if the rows cannot be filtered.
    pub(super) fn visible(&self, snapshot: &Snapshot) -> Result<Vec<RecordBatch>> {
        let mut visible = Vec::new();
        for chunk in &self.chunks {
            // There may be a run for each row, and nearly always a query sees all of them.
            if chunk.is_visible_to(snapshot) {
                visible.push(chunk.rows.clone());
                continue;
            }
            let sees = |run: &Run| snapshot.sees(run.write);
            match chunk.sees(sees) {
                (false, _) => {}
                (true, true) => visible.push(chunk.rows.clone()),
                (true, false) => {
                    let rows = filter_record_batch(&chunk.rows, &chunk.mask(sees));
                    visible.push(rows.map_err(internal)?);
                }
            }
        }
        Ok(visible)
    }

    /// Returns the number and the tally of the rows that a snapshot sees.
    pub(super) fn counted(&self, snapshot: &Snapshot) -> (u64, Tally) {
        let (mut rows, mut tally) = (0, Tally::default());
        for chunk in &self.chunks {
            if chunk.is_visible_to(snapshot) {
                rows += chunk.rows.num_rows() as u64;
                tally.add_all(chunk.tally);
                continue;
            }
            for run in chunk.runs.iter().filter(|run| snapshot.sees(run.write)) {
                rows += run.rows as u64;
                tally.add(run.write, run.rows as u64);
            }
        }
        (rows, tally)
    }

    /// Returns the rows of some writes, with their runs.
    ///
    /// # Errors
    /// Returns `INTERNAL` if the rows cannot be filtered.
    pub(super) fn of(
        &self,
        is_wanted: impl Fn(WriteId) -> bool,
    ) -> Result<Vec<(RecordBatch, Vec<Run>)>> {
        let mut visible = Vec::new();
        for chunk in &self.chunks {
            let sees = |run: &Run| is_wanted(run.write);
            let runs: Vec<_> = chunk.runs.iter().filter(|run| sees(run)).copied().collect();
            if runs.is_empty() {
                continue;
            }
            let rows = filter_record_batch(&chunk.rows, &chunk.mask(sees)).map_err(internal)?;
            visible.push((rows, runs));
        }
        Ok(visible)
    }

    /// Removes the rows of some writes, and returns their runs.
    ///
    /// # Errors
    /// Returns `INTERNAL` if the rows cannot be filtered.
    pub(super) fn remove(&mut self, is_gone: impl Fn(WriteId) -> bool) -> Result<Vec<Run>> {
        let gone = |run: &Run| is_gone(run.write);
        let mut removed = Vec::new();
        let mut kept = Vec::with_capacity(self.chunks.len());
        for chunk in &self.chunks {
            let (any, all) = chunk.sees(gone);
            if !any {
                kept.push(chunk.clone());
                continue;
            }
            removed.extend(chunk.runs.iter().filter(|run| gone(run)));
            if !all {
                let rows = filter_record_batch(&chunk.rows, &chunk.mask(|run| !gone(run)));
                let runs = chunk.runs.iter().filter(|run| !gone(run)).copied();
                kept.push(Chunk::new(rows.map_err(internal)?, runs.collect()));
            }
        }
        self.chunks = kept;
        Ok(removed)
    }
}

fn internal(source: ArrowError) -> Error {
    Error::with_source(
        ErrorCode::Internal,
        "rows of the log cannot be read",
        source,
    )
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, Int64Array};
    use arrow::datatypes::Int64Type;
    use volary_flight_proto::write_set::WriteSet;

    use super::*;

    fn rows(values: impl IntoIterator<Item = i64>) -> RecordBatch {
        let column = Int64Array::from_iter_values(values);
        RecordBatch::try_from_iter([("k", Arc::new(column) as _)]).unwrap()
    }

    fn values(batches: &[RecordBatch]) -> Vec<i64> {
        let columns = batches.iter().map(|batch| batch.column(0));
        columns
            .flat_map(|column| column.as_primitive::<Int64Type>().values().to_vec())
            .collect()
    }

    fn rows_of(logged: &LoggedRows) -> usize {
        logged.runs().map(|run| run.rows).sum()
    }

    fn snapshot(high: u64, excluded: &[u64]) -> Snapshot {
        let excluded: WriteSet = excluded.iter().copied().map(WriteId).collect();
        Snapshot::new(WriteId(high), &excluded)
    }

    #[test]
    fn each_snapshot_sees_its_rows_in_few_batches() {
        let mut logged = LoggedRows::default();
        // Write `w` has `w % 3 + 1` rows with the value `w`.
        for write in 0..1000 {
            let new = rows(std::iter::repeat_n(write, (write % 3 + 1) as usize));
            logged.push(new, WriteId(write as u64), 1).unwrap();
        }
        assert_eq!(rows_of(&logged), 1999);
        let expected = |sees: &dyn Fn(i64) -> bool| -> Vec<i64> {
            let seen = (0..1000).filter(|write| sees(*write));
            seen.flat_map(|write| std::iter::repeat_n(write, (write % 3 + 1) as usize))
                .collect()
        };
        let all = logged.visible(&snapshot(2000, &[])).unwrap();
        assert!(all.len() <= 11, "{} batches", all.len());
        assert_eq!(values(&all), expected(&|_| true));
        let some = logged.visible(&snapshot(700, &[3, 500])).unwrap();
        assert_eq!(
            values(&some),
            expected(&|write| write <= 700 && ![3, 500].contains(&write))
        );
        assert!(logged.visible(&snapshot(0, &[0])).unwrap().is_empty());
        for snapshot in [
            snapshot(2000, &[]),
            snapshot(700, &[3, 500]),
            snapshot(0, &[0]),
        ] {
            let seen = logged.runs().filter(|run| snapshot.sees(run.write));
            let seen: Vec<_> = seen.map(|run| (run.write, run.rows as u64)).collect();
            let rows = seen.iter().map(|(_, rows)| rows).sum();
            let tally = seen.into_iter().collect();
            assert_eq!(logged.counted(&snapshot), (rows, tally));
        }
        let removed = logged
            .remove(|write| write.0 < 600 && write.0 != 5)
            .unwrap();
        assert_eq!(removed.len(), 599);
        let rest = logged.visible(&snapshot(2000, &[])).unwrap();
        assert_eq!(values(&rest), expected(&|write| write >= 600 || write == 5));
        let with_writes = logged.of(|write| write.0 <= 601).unwrap();
        let writes = with_writes.iter().flat_map(|(_, runs)| runs);
        let writes: Vec<_> = writes.map(|run| (run.write.0, run.rows)).collect();
        assert_eq!(writes, [(5, 3), (600, 1), (601, 2)]);
        logged.remove(|_| true).unwrap();
        assert_eq!(rows_of(&logged), 0);
    }
}
