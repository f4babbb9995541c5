//! The key of a random table has one of the types that keys may have.

use std::sync::Arc;

use anyhow::Result;
use arrow::array::{
    ArrayRef, Date32Array, Decimal128Array, FixedSizeBinaryArray, Float64Array, Int32Array,
    Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use volary_tests::cluster::TestTable;

/// The type of the column `k` in all tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyType {
    Int32,
    Int64,
    Text,
    Date,
    Decimal,
    Timestamp,
    Uuid,
}

impl KeyType {
    pub(super) const ALL: [Self; 7] = [
        Self::Int32,
        Self::Int64,
        Self::Text,
        Self::Date,
        Self::Decimal,
        Self::Timestamp,
        Self::Uuid,
    ];

    fn column(self, values: impl Iterator<Item = Option<u8>>) -> Result<ArrayRef> {
        let values = values.map(|value| value.map(u16::from));
        Ok(match self {
            Self::Int32 => Arc::new(values.map(|value| value.map(int32)).collect::<Int32Array>()),
            Self::Int64 => Arc::new(values.map(|value| value.map(int64)).collect::<Int64Array>()),
            Self::Text => Arc::new(values.map(|value| value.map(text)).collect::<StringArray>()),
            Self::Date => Arc::new(values.map(|value| value.map(days)).collect::<Date32Array>()),
            Self::Decimal => Arc::new(
                values
                    .map(|value| value.map(|value| i128::from(hundredths(value))))
                    .collect::<Decimal128Array>()
                    .with_precision_and_scale(12, 2)?,
            ),
            Self::Timestamp => Arc::new(
                values
                    .map(|value| value.map(microseconds))
                    .collect::<TimestampMicrosecondArray>(),
            ),
            Self::Uuid => {
                let values: Vec<Option<[u8; 16]>> = values
                    .map(|value| value.map(|value| uuid(value).to_be_bytes()))
                    .collect();
                Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(
                    values.into_iter(),
                    16,
                )?)
            }
        })
    }

    /// Returns a value as SQL. `form` chooses between the ways to write it.
    pub(super) fn literal(self, value: u16, form: u16) -> String {
        let cast = form == 1;
        match self {
            Self::Int32 if cast => format!("CAST({} AS BIGINT)", int32(value)),
            Self::Int32 => int32(value).to_string(),
            Self::Int64 => int64(value).to_string(),
            Self::Text if cast => format!("concat('', '{}')", text(value)),
            Self::Text => format!("'{}'", text(value)),
            Self::Date if cast => format!("arrow_cast({}, 'Date32')", days(value)),
            Self::Date => format!("(DATE '1970-01-01' + INTERVAL '{} days')", days(value)),
            // DataFusion alone would compare the numbers with many digits as doubles.
            Self::Decimal if cast || matches!(value, SMALLEST | LARGEST) => {
                format!("CAST('{}' AS DECIMAL(20, 2))", decimal(value))
            }
            Self::Decimal => decimal(value),
            Self::Timestamp => format!(
                "arrow_cast({}, 'Timestamp(Microsecond, None)')",
                microseconds(value)
            ),
            Self::Uuid if cast => format!("X'{:032x}'", uuid(value)),
            Self::Uuid => format!("arrow_cast(X'{:032x}', 'FixedSizeBinary(16)')", uuid(value)),
        }
    }

    /// Returns whether values can be compared by `<`, and therefore have a minimum.
    pub(super) fn is_ordered(self) -> bool {
        self != Self::Uuid
    }
}

/// The values that stand for the smallest and the largest value of a type.
const SMALLEST: u16 = 0;
const LARGEST: u16 = 19;

/// Returns a number near zero, which may be negative.
fn signed(value: u16) -> i32 {
    i32::from(value) - 7
}

fn int32(value: u16) -> i32 {
    match value {
        SMALLEST => i32::MIN,
        LARGEST => i32::MAX,
        _ => signed(value),
    }
}

fn int64(value: u16) -> i64 {
    match value {
        // The smallest value, `i64::MIN`, cannot be written as a literal.
        SMALLEST => i64::MIN + 1,
        LARGEST => i64::MAX,
        _ => i64::from(signed(value)) * 1_000_000_007,
    }
}

fn text(value: u16) -> String {
    match value {
        SMALLEST => String::new(),
        LARGEST => "ключ\u{10ffff}".to_owned(),
        _ => format!("key {value}"),
    }
}

/// Returns days since 1970. The years 1 and 9999 are the first and the last one that SQL can write.
fn days(value: u16) -> i32 {
    match value {
        SMALLEST => -719_162,
        LARGEST => 2_932_896,
        _ => signed(value) * 31,
    }
}

fn hundredths(value: u16) -> i64 {
    match value {
        SMALLEST => -999_999_999_999,
        LARGEST => 999_999_999_999,
        _ => i64::from(signed(value)) * 125,
    }
}

fn decimal(value: u16) -> String {
    let hundredths = hundredths(value);
    let sign = if hundredths < 0 { "-" } else { "" };
    let (whole, rest) = (hundredths.abs() / 100, hundredths.abs() % 100);
    format!("{sign}{whole}.{rest:02}")
}

fn microseconds(value: u16) -> i64 {
    match value {
        SMALLEST => i64::MIN + 1,
        LARGEST => i64::MAX,
        _ => i64::from(signed(value)) * 86_400_000_001,
    }
}

fn uuid(value: u16) -> u128 {
    match value {
        LARGEST => u128::MAX,
        _ => u128::from(value),
    }
}

/// A row: the key, the other column, and a byte that determines the remaining columns.
type Row = (u8, u8, u8);

/// The rows of three tables:
///
/// - `facts (id, k, o, v, f, s)` and `partners (id, k, o, w)`, sharded by `k`, or without a shard
///   key;
/// - `kinds (id, k, o, name)`, a reference table.
///
/// All columns except `id` may be NULL. `id` is different in each row of a table.
#[derive(Debug, Clone)]
pub(super) struct Tables {
    pub(super) key: KeyType,
    pub(super) facts_shards: u32,
    pub(super) partners_shards: u32,
    pub(super) facts_have_key: bool,
    pub(super) partners_have_key: bool,
    pub(super) facts: Vec<Row>,
    pub(super) partners: Vec<Row>,
    pub(super) kinds: Vec<Row>,
}

impl Tables {
    pub(super) fn test_tables(&self) -> Result<Vec<TestTable>> {
        let mut facts = self.common(&self.facts)?;
        let number = |row: &Row| (!row.2.is_multiple_of(11)).then(|| i64::from(row.2) - 100);
        facts.push((
            "v",
            Arc::new(self.facts.iter().map(number).collect::<Int64Array>()),
        ));
        // Sums of these floats are exact in any order.
        let float = |row: &Row| (!row.2.is_multiple_of(7)).then(|| f64::from(row.2) * 0.25);
        facts.push((
            "f",
            Arc::new(self.facts.iter().map(float).collect::<Float64Array>()),
        ));
        let text = |row: &Row| (!row.2.is_multiple_of(5)).then(|| format!("s{}", row.2 % 13));
        facts.push((
            "s",
            Arc::new(self.facts.iter().map(text).collect::<StringArray>()),
        ));
        let mut partners = self.common(&self.partners)?;
        partners.push((
            "w",
            Arc::new(self.partners.iter().map(number).collect::<Int64Array>()),
        ));
        let mut kinds = self.common(&self.kinds)?;
        kinds.push((
            "name",
            Arc::new(self.kinds.iter().map(text).collect::<StringArray>()),
        ));
        let facts = batch(facts)?;
        let partners = batch(partners)?;
        Ok(vec![
            table("facts", self.facts_shards, self.facts_have_key, &facts),
            table(
                "partners",
                self.partners_shards,
                self.partners_have_key,
                &partners,
            ),
            TestTable::reference("kinds", batch(kinds)?),
        ])
    }

    fn common(&self, rows: &[Row]) -> Result<Vec<(&'static str, ArrayRef)>> {
        let ids = (0_i64..).zip(rows).map(|(id, _)| id);
        let keys = rows.iter().map(|row| (row.0 < 20).then_some(row.0));
        let others = rows
            .iter()
            .map(|row| (row.1 < 7).then_some(i64::from(row.1)));
        Ok(vec![
            ("id", Arc::new(ids.collect::<Int64Array>()) as ArrayRef),
            ("k", self.key.column(keys)?),
            ("o", Arc::new(others.collect::<Int64Array>())),
        ])
    }
}

/// Returns a table whose rows come in several writes. Shards then have several segments, and rows
/// without a shard key are in several shards.
fn table(name: &str, shards: u32, has_key: bool, rows: &RecordBatch) -> TestTable {
    let rows_per_write = rows.num_rows().div_ceil(if has_key { 2 } else { 5 }).max(1);
    let starts = (0..rows.num_rows().max(1)).step_by(rows_per_write);
    let batches =
        starts.map(|start| rows.slice(start, rows_per_write.min(rows.num_rows() - start)));
    let table = if has_key {
        TestTable::sharded(name, "k", shards, rows.slice(0, 0))
    } else {
        TestTable::in_any_shard(name, shards, rows.slice(0, 0))
    };
    TestTable {
        batches: batches.collect(),
        ..table
    }
}

fn batch(columns: Vec<(&'static str, ArrayRef)>) -> Result<RecordBatch> {
    let columns = columns
        .into_iter()
        .map(|(name, column)| (name, column, true));
    Ok(RecordBatch::try_from_iter_with_nullable(columns)?)
}
