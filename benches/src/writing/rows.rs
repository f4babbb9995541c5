use std::sync::Arc;

use anyhow::Result;
use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};

/// The columns of the table, in SQL that both databases understand.
pub const COLUMNS: &str = "k BIGINT NOT NULL, a BIGINT, b DOUBLE PRECISION, s VARCHAR";

/// The keys of two clients are this far apart.
const KEYS_PER_CLIENT: i64 = 1 << 40;
/// The values of `a` are below this number.
const NUMBERS: u64 = 1_000_000;
/// A constant of SplitMix64, <https://prng.di.unimi.it/splitmix64.c>.
const GOLDEN_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// Returns the schema of the rows.
pub fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("k", DataType::Int64, false),
        Field::new("a", DataType::Int64, true),
        Field::new("b", DataType::Float64, true),
        Field::new("s", DataType::Utf8, true),
    ]))
}

/// A source of batches of equal size. Keys count on from batch to batch. The other columns have
/// random values, which are the same in each batch, so that building a batch costs next to nothing.
#[derive(Debug, Clone)]
pub struct RowSource {
    next_key: i64,
    values: [ArrayRef; 3],
}

impl RowSource {
    /// Creates the rows of a client, which is counted from 0. Different clients have different
    /// keys. No key is below 2^40.
    pub fn new(client: usize, rows: usize) -> Self {
        let first_key = KEYS_PER_CLIENT.saturating_mul(1 + client as i64);
        let random = |index: usize| random(first_key as u64 + index as u64);
        let a = Int64Array::from_iter_values((0..rows).map(|row| (random(row) % NUMBERS) as i64));
        let b = Float64Array::from_iter_values((0..rows).map(|row| random(row) as f64));
        let texts = (0..rows).map(|row| format!("{:012x}", random(row) >> 16));
        let s = StringArray::from_iter_values(texts);
        Self {
            next_key: first_key,
            values: [Arc::new(a), Arc::new(b), Arc::new(s)],
        }
    }

    /// Returns the next batch.
    ///
    /// # Errors
    /// No error is expected, because the columns match the schema.
    pub fn next_batch(&mut self) -> Result<RecordBatch> {
        let rows = self.values[0].len() as i64;
        let keys = Int64Array::from_iter_values(self.next_key..self.next_key + rows);
        self.next_key += rows;
        let [a, b, s] = self.values.clone();
        Ok(RecordBatch::try_new(
            schema(),
            vec![Arc::new(keys), a, b, s],
        )?)
    }
}

/// Returns a number that looks random: SplitMix64's mixing of a counter.
fn random(counter: u64) -> u64 {
    let mut mixed = counter.wrapping_mul(GOLDEN_GAMMA);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use arrow::array::AsArray;
    use arrow::datatypes::Int64Type;

    use super::*;

    #[test]
    fn no_two_rows_have_the_same_key() {
        let mut keys = BTreeSet::new();
        for client in 0..3 {
            let mut rows = RowSource::new(client, 10);
            for _ in 0..2 {
                let batch = rows.next_batch().unwrap();
                assert_eq!(batch.num_rows(), 10);
                keys.extend(batch.column(0).as_primitive::<Int64Type>().values());
                let texts = batch.column(3).as_string::<i32>();
                assert!(texts.iter().flatten().all(|text| text.len() == 12));
            }
        }
        assert_eq!(keys.len(), 60);
        assert!(keys.first() >= Some(&(1 << 40)));
    }
}
