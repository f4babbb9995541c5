//! A row's hash determines its *partition* and its *round*. The partition is the one that
//! DataFusion's own repartitioning would choose. Once a partition of the gateway has merged a round
//! of all workers, the groups of that round are complete and their memory is freed.

use std::ops::Range;

use arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
use datafusion::common::hash_utils::create_hashes;
use datafusion::error::Result;
use datafusion::physical_plan::repartition::REPARTITION_RANDOM_STATE;

/// The most buckets that [`Buckets::for_partitions`] aims at. With more buckets, a batch has only a
/// few rows of each.
const MAX_BUCKETS: usize = 4096;
/// Range of the number of rounds. Smaller rounds need less memory for their groups, but more rounds
/// make smaller pieces.
const ROUNDS: Range<usize> = 16..128;

/// The division of rows into buckets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Buckets {
    columns: Vec<usize>,
    partitions: usize,
    rounds: usize,
}

/// Consecutive rows of one bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BucketPiece {
    /// Number of the bucket: `round * partitions + partition`.
    pub bucket: usize,
    /// Number of rows. It is never zero.
    pub rows: usize,
}

/// Rows in the order of their buckets.
#[derive(Debug, Clone)]
pub struct DividedRows {
    /// The rows.
    pub batch: RecordBatch,
    /// The pieces that the rows consist of, by ascending bucket number.
    pub pieces: Vec<BucketPiece>,
}

impl Buckets {
    /// Creates a division by the hash of these columns. Rows with equal values in these columns
    /// have the same bucket, like the rows of an aggregate's group. Counts of zero are replaced by
    /// one.
    pub fn new(columns: Vec<usize>, partitions: usize, rounds: usize) -> Self {
        Self {
            columns,
            partitions: partitions.max(1),
            rounds: rounds.max(1),
        }
    }

    /// Creates a division with a number of rounds that suits the number of partitions.
    pub fn for_partitions(columns: Vec<usize>, partitions: usize) -> Self {
        let rounds = (MAX_BUCKETS / partitions.max(1)).clamp(ROUNDS.start, ROUNDS.end);
        Self::new(columns, partitions, rounds)
    }

    /// Returns a division with the same partitions and a single round.
    #[must_use]
    pub fn with_one_round(&self) -> Self {
        Self::new(self.columns.clone(), self.partitions, 1)
    }

    /// Returns the positions of the columns that are hashed.
    pub fn columns(&self) -> &[usize] {
        &self.columns
    }

    /// Returns the number of partitions.
    pub fn partitions(&self) -> usize {
        self.partitions
    }

    /// Returns the number of rounds.
    pub fn rounds(&self) -> usize {
        self.rounds
    }

    /// Returns the number of buckets.
    pub fn count(&self) -> usize {
        self.partitions * self.rounds
    }

    /// Returns the round that a bucket belongs to.
    pub fn round_of(&self, bucket: usize) -> usize {
        bucket / self.partitions
    }

    /// Returns the partition that a bucket belongs to.
    pub fn partition_of(&self, bucket: usize) -> usize {
        bucket % self.partitions
    }

    /// Sorts the rows of a batch by bucket. The rows of one bucket keep their order.
    ///
    /// # Errors
    /// Fails if a column does not exist or cannot be hashed.
    pub fn divide(&self, batch: &RecordBatch) -> Result<DividedRows> {
        let buckets = self.buckets_of(batch)?;
        // This is a counting sort. First, `next` is filled with the place of each bucket's first
        // row. While rows are placed, it advances to the place of the bucket's next row.
        let mut next = vec![0_u32; self.count() + 1];
        for bucket in &buckets {
            next[bucket + 1] += 1;
        }
        let mut pieces = Vec::new();
        for bucket in 0..self.count() {
            let rows = next[bucket + 1] as usize;
            if rows > 0 {
                pieces.push(BucketPiece { bucket, rows });
            }
            next[bucket + 1] += next[bucket];
        }
        let mut order = vec![0_u32; buckets.len()];
        for (row, bucket) in (0_u32..).zip(&buckets) {
            let place = &mut next[*bucket];
            order[*place as usize] = row;
            *place += 1;
        }
        Ok(DividedRows {
            batch: take_record_batch(batch, &UInt32Array::from(order))?,
            pieces,
        })
    }

    fn buckets_of(&self, batch: &RecordBatch) -> Result<Vec<usize>> {
        let columns: Vec<ArrayRef> = batch.project(&self.columns)?.columns().to_vec();
        let mut hashes = vec![0; batch.num_rows()];
        // DataFusion's repartitioning, which may divide the other input of a join, uses the same
        // hash.
        create_hashes(
            &columns,
            REPARTITION_RANDOM_STATE.random_state(),
            &mut hashes,
        )?;
        let count = self.count() as u64;
        // The value hash % (partitions * rounds) preserves hash % partitions. It fits into a usize.
        Ok(hashes
            .into_iter()
            .map(|hash| (hash % count) as usize)
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{AsArray, Int64Array, StringViewArray};
    use arrow::datatypes::{DataType, Field, Int64Type, Schema};
    use datafusion::physical_expr::expressions::Column;
    use datafusion::physical_plan::Partitioning;
    use datafusion::physical_plan::metrics::Time;
    use datafusion::physical_plan::repartition::BatchPartitioner;

    use super::*;

    fn rows(count: i64) -> RecordBatch {
        let schema = Schema::new(vec![
            Field::new("n", DataType::Int64, true),
            Field::new("s", DataType::Utf8View, true),
        ]);
        let numbers = Int64Array::from_iter((0..count).map(|n| (n % 7 != 3).then_some(n)));
        let texts = StringViewArray::from_iter((0..count).map(|n| {
            let text = format!("a text that is not inlined, number {}", n % 97);
            (n % 11 != 5).then_some(text)
        }));
        RecordBatch::try_new(Arc::new(schema), vec![Arc::new(numbers), Arc::new(texts)]).unwrap()
    }

    #[test]
    fn rows_come_by_ascending_bucket_and_none_is_lost() {
        for buckets in [
            Buckets::new(vec![0, 1], 3, 5),
            Buckets::new(vec![1], 2, 1),
            Buckets::for_partitions(vec![0], 2),
            Buckets::new(vec![0], 1, 1),
        ] {
            let batch = rows(1_000);
            let divided = buckets.divide(&batch).unwrap();
            let numbers: Vec<_> = divided.pieces.iter().map(|piece| piece.bucket).collect();
            assert!(numbers.is_sorted_by(|left, right| left < right));
            assert!(numbers.iter().all(|bucket| *bucket < buckets.count()));
            let mut at = 0;
            for piece in &divided.pieces {
                let part = divided.batch.slice(at, piece.rows);
                let of_part = buckets.buckets_of(&part).unwrap();
                assert!(of_part.iter().all(|bucket| *bucket == piece.bucket));
                // Rows keep their order within a bucket. This check leaves NULLs out.
                let numbers = part.column(0).as_primitive::<Int64Type>();
                assert!(numbers.iter().flatten().is_sorted());
                at += piece.rows;
            }
            assert_eq!(at, batch.num_rows());
            let sum = |batch: &RecordBatch| -> i64 {
                batch
                    .column(0)
                    .as_primitive::<Int64Type>()
                    .iter()
                    .flatten()
                    .sum()
            };
            assert_eq!(sum(&batch), sum(&divided.batch));
        }
    }

    #[test]
    fn partitions_are_those_of_datafusions_repartitioning() {
        const PARTITIONS: usize = 3;
        let batch = rows(1_000);
        let keys = vec![
            Arc::new(Column::new("n", 0)) as _,
            Arc::new(Column::new("s", 1)) as _,
        ];
        let hash = Partitioning::Hash(keys, PARTITIONS);
        let mut partitioner = BatchPartitioner::try_new(hash, Time::new(), 0, 1).unwrap();
        let mut theirs = [0; PARTITIONS];
        partitioner
            .partition(batch.clone(), |partition, rows| {
                theirs[partition] += rows.num_rows();
                let buckets = Buckets::new(vec![0, 1], PARTITIONS, 16);
                let divided = buckets.divide(&rows)?;
                let of_pieces = divided.pieces.iter().map(|piece| piece.bucket);
                assert!(
                    of_pieces
                        .map(|bucket| buckets.partition_of(bucket))
                        .all(|of| of == partition)
                );
                Ok(())
            })
            .unwrap();
        assert_eq!(theirs.iter().sum::<usize>(), 1_000);
    }

    /// Workers and gateways of one cluster must compute the same hash, whatever machine each was
    /// built for.
    #[test]
    fn the_hash_is_the_same_everywhere() {
        let buckets = Buckets::new(vec![0], 16, 64);
        let batch = rows(8);
        assert_eq!(
            buckets.buckets_of(&batch).unwrap(),
            [287, 561, 164, 0, 740, 896, 45, 456]
        );
    }

    #[test]
    fn no_rows_are_no_pieces() {
        let divided = Buckets::new(vec![0], 2, 2).divide(&rows(0)).unwrap();
        assert!(divided.pieces.is_empty());
        assert_eq!(divided.batch.num_rows(), 0);
    }
}
