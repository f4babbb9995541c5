//! The rows of TPC-H come from `tpchgen`, which generates the same rows as the benchmark's own
//! `dbgen`. A table has the same rows in the same order for any number of parts or threads. Strings
//! are `Utf8View`, money is `Decimal128(15, 2)`, and dates are `Date32`.

use std::fs::{self, File};
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::mpsc::sync_channel;
use std::thread;

use anyhow::{Context, Result, bail};
use arrow::array::{RecordBatch, RecordBatchReader};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::{
    ArrowColumnChunk, ArrowColumnWriter, ArrowRowGroupWriterFactory, ArrowWriterOptions,
    compute_leaves,
};
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator,
    PartSuppGenerator, RegionGenerator, SupplierGenerator,
};
use tpchgen_arrow::{
    CustomerArrow, LineItemArrow, NationArrow, OrderArrow, PartArrow, PartSuppArrow, RegionArrow,
    SupplierArrow,
};

/// Approximate number of rows in a row group. Groups are cut between orders, not between line
/// items.
const ROW_GROUP_ROWS: u64 = 128 * 1024;

/// Maximum number of rows in a batch.
const BATCH_ROWS: usize = 8192;

/// Maximum number of row groups in a file. Parquet numbers them with 16 bits.
const MAX_ROW_GROUPS: u64 = i16::MAX as u64;

/// The scale factors that are accepted. The upper bound is the largest that TPC-H defines. Far
/// below the lower bound, the number of suppliers becomes zero, and `tpchgen` divides by it.
const SCALES: std::ops::RangeInclusive<f64> = 0.001..=100_000.0;

const TABLES: [&str; 8] = [
    "region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem",
];

/// A part of a table, as batches of at most 8,192 rows, with their schema.
pub type TablePart = Box<dyn RecordBatchReader + Send>;

/// Returns the names of the eight tables, the smallest table first.
pub fn tables() -> &'static [&'static str] {
    &TABLES
}

/// Returns the number of rows of a table at a scale factor. Scale factor 1 is about 1 GB of text in
/// all. The number is exact except for `lineitem`, where it is within 1 %.
///
/// # Errors
/// Returns an error if there is no such table, or the scale is not between 0.001 and 100,000.
pub fn expected_rows(table: &str, scale: f64) -> Result<u64> {
    check_scale(scale)?;
    let rows = match table {
        "region" => 5,
        "nation" => 25,
        "supplier" => SupplierGenerator::calculate_row_count(scale, 1, 1),
        "customer" => CustomerGenerator::calculate_row_count(scale, 1, 1),
        "part" => PartGenerator::calculate_row_count(scale, 1, 1),
        "partsupp" => 4 * PartGenerator::calculate_row_count(scale, 1, 1),
        "orders" => OrderGenerator::calculate_row_count(scale, 1, 1),
        "lineitem" => 4 * OrderGenerator::calculate_row_count(scale, 1, 1),
        unknown => return Err(no_such_table(unknown)),
    };
    Ok(u64::try_from(rows)?)
}

/// Returns a table as `parts` parts of about equal size. Read one after another, the parts give the
/// whole table, and each part can be read on its own thread. `region` and `nation` are always one
/// part.
///
/// # Errors
/// Returns an error if there is no such table, the scale is not between 0.001 and 100,000, or
/// `parts` is not between 1 and 2^31 - 1.
pub fn batches(table: &str, scale: f64, parts: usize) -> Result<Vec<TablePart>> {
    check_scale(scale)?;
    let parts = i32::try_from(parts).ok().filter(|parts| *parts > 0);
    let parts = parts.context("the number of parts must be between 1 and 2^31 - 1")?;
    let parts = if matches!(table, "region" | "nation") {
        1
    } else {
        parts
    };
    (1..=parts)
        .map(|part| build_part(table, scale, part, parts))
        .collect()
}

/// Writes each table to `<table>.parquet` in `dir`, and returns the tables with their numbers of
/// rows. Creates the directory if it does not exist.
///
/// Files are compressed with LZ4, as segments are by default. Their row groups have about 131,072
/// rows and are built on all cores. A file gets its name when it is complete, and replaces an older
/// file of that name. `progress` is called after each row group with the table and the rows that it
/// has so far.
///
/// # Errors
/// Returns an error if the scale is not between 0.001 and 100,000, or the directory or a file
/// cannot be written.
pub fn write_parquet(
    dir: &Path,
    scale: f64,
    progress: &mut dyn FnMut(&str, u64),
) -> Result<Vec<(String, u64)>> {
    check_scale(scale)?;
    fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let mut written = Vec::with_capacity(TABLES.len());
    for table in TABLES {
        let path = dir.join(format!("{table}.parquet"));
        let unfinished = dir.join(format!(".{table}.parquet.unfinished"));
        let rows = write_table(&unfinished, table, scale, progress)
            .and_then(|rows| {
                fs::rename(&unfinished, &path)?;
                Ok(rows)
            })
            .inspect_err(|_| {
                // The first error is reported, and an error of this removal is ignored. Nothing
                // reads a file of this name.
                let _ = fs::remove_file(&unfinished);
            })
            .with_context(|| format!("cannot write {}", path.display()))?;
        written.push((table.to_owned(), rows));
    }
    Ok(written)
}

/// Writes a table to a file. Of `n` threads, thread `t` builds the row groups `t`, `t + n`, … and
/// is at most one group ahead. The calling thread appends the groups in order, and so it holds a
/// bounded number of them.
fn write_table(
    path: &Path,
    table: &str,
    scale: f64,
    progress: &mut dyn FnMut(&str, u64),
) -> Result<u64> {
    let groups = expected_rows(table, scale)?
        .div_ceil(ROW_GROUP_ROWS)
        .clamp(1, MAX_ROW_GROUPS);
    let groups = usize::try_from(groups)?;
    let threads = thread::available_parallelism()
        .map_or(1, NonZeroUsize::get)
        .min(groups);

    let mut parts: Vec<Vec<(usize, TablePart)>> = (0..threads).map(|_| Vec::new()).collect();
    for (group, part) in batches(table, scale, groups)?.into_iter().enumerate() {
        parts[group % threads].push((group, part));
    }
    let schema = parts
        .iter()
        .flatten()
        .next()
        .context("a table has a part")?
        .1
        .schema();
    let properties = WriterProperties::builder().set_compression(Compression::LZ4_RAW);
    // The file does not contain the Arrow schema, so that readers get plain strings instead of
    // views.
    let options = ArrowWriterOptions::new()
        .with_properties(properties.build())
        .with_skip_arrow_metadata(true);
    let (mut writer, factory) =
        ArrowWriter::try_new_with_options(File::create(path)?, schema, options)?
            .into_serialized_writer()?;

    let rows = thread::scope(|scope| {
        let mut receivers = Vec::with_capacity(threads);
        for parts in parts {
            let (sender, receiver) = sync_channel(1);
            receivers.push(receiver);
            let factory = &factory;
            scope.spawn(move || {
                for (group, part) in parts {
                    let encoded = encode(factory, group, part);
                    let failed = encoded.is_err();
                    if sender.send(encoded).is_err() || failed {
                        return;
                    }
                }
            });
        }
        let mut rows = 0;
        for group in 0..groups {
            let encoded = receivers[group % threads]
                .recv()
                .context("a thread that generates rows has panicked")??;
            let mut row_group = writer.next_row_group()?;
            for chunk in encoded.chunks {
                chunk.append_to_row_group(&mut row_group)?;
            }
            row_group.close()?;
            rows += encoded.rows;
            progress(table, rows);
        }
        anyhow::Ok(rows)
    })?;
    writer.close()?;
    Ok(rows)
}

/// A row group that is ready to be appended.
struct RowGroup {
    chunks: Vec<ArrowColumnChunk>,
    rows: u64,
}

fn encode(factory: &ArrowRowGroupWriterFactory, group: usize, part: TablePart) -> Result<RowGroup> {
    let schema = part.schema();
    let mut columns = factory.create_column_writers(group)?;
    let mut rows = 0;
    for batch in part {
        let batch: RecordBatch = batch?;
        rows += u64::try_from(batch.num_rows())?;
        // No column is nested, so each column has one writer.
        for ((field, values), writer) in schema
            .fields()
            .iter()
            .zip(batch.columns())
            .zip(&mut columns)
        {
            for leaf in compute_leaves(field, values)? {
                writer.write(&leaf)?;
            }
        }
    }
    let chunks = columns
        .into_iter()
        .map(ArrowColumnWriter::close)
        .collect::<Result<_, _>>()?;
    Ok(RowGroup { chunks, rows })
}

/// Builds part `part` of `parts`. The first part is 1.
fn build_part(table: &str, scale: f64, part: i32, parts: i32) -> Result<TablePart> {
    Ok(match table {
        "region" => Box::new(
            RegionArrow::new(RegionGenerator::new(scale, part, parts)).with_batch_size(BATCH_ROWS),
        ),
        "nation" => Box::new(
            NationArrow::new(NationGenerator::new(scale, part, parts)).with_batch_size(BATCH_ROWS),
        ),
        "supplier" => Box::new(
            SupplierArrow::new(SupplierGenerator::new(scale, part, parts))
                .with_batch_size(BATCH_ROWS),
        ),
        "customer" => Box::new(
            CustomerArrow::new(CustomerGenerator::new(scale, part, parts))
                .with_batch_size(BATCH_ROWS),
        ),
        "part" => Box::new(
            PartArrow::new(PartGenerator::new(scale, part, parts)).with_batch_size(BATCH_ROWS),
        ),
        "partsupp" => Box::new(
            PartSuppArrow::new(PartSuppGenerator::new(scale, part, parts))
                .with_batch_size(BATCH_ROWS),
        ),
        "orders" => Box::new(
            OrderArrow::new(OrderGenerator::new(scale, part, parts)).with_batch_size(BATCH_ROWS),
        ),
        "lineitem" => Box::new(
            LineItemArrow::new(LineItemGenerator::new(scale, part, parts))
                .with_batch_size(BATCH_ROWS),
        ),
        unknown => return Err(no_such_table(unknown)),
    })
}

fn check_scale(scale: f64) -> Result<()> {
    if !SCALES.contains(&scale) {
        bail!(
            "scale {scale}: give a number from {} to {}",
            SCALES.start(),
            SCALES.end()
        );
    }
    Ok(())
}

fn no_such_table(table: &str) -> anyhow::Error {
    anyhow::anyhow!(
        "TPC-H has no table {table}; its tables are {}",
        TABLES.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use arrow::compute::concat_batches;
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

    use super::*;

    const SCALE: f64 = 0.001;

    fn rows_of(parts: Vec<TablePart>) -> Result<RecordBatch> {
        let schema = parts.first().context("no part")?.schema();
        let batches = parts.into_iter().flatten().collect::<Result<Vec<_>, _>>()?;
        Ok(concat_batches(&schema, &batches)?)
    }

    #[test]
    fn parts_one_after_the_other_are_the_table() -> Result<()> {
        for table in tables() {
            let whole = rows_of(batches(table, SCALE, 1)?)?;
            assert_eq!(whole, rows_of(batches(table, SCALE, 3)?)?, "{table}");
            if *table != "lineitem" {
                assert_eq!(
                    whole.num_rows() as u64,
                    expected_rows(table, SCALE)?,
                    "{table}"
                );
            }
        }
        Ok(())
    }

    #[test]
    fn files_hold_the_rows_and_are_the_only_files() -> Result<()> {
        let dir = tempfile::tempdir()?;
        let mut last_progress = Vec::new();
        let written = write_parquet(dir.path(), SCALE, &mut |table, rows| {
            last_progress.push((table.to_owned(), rows));
        })?;
        assert_eq!(written, last_progress);
        assert_eq!(fs::read_dir(dir.path())?.count(), tables().len());
        for (table, rows) in written {
            let file = File::open(dir.path().join(format!("{table}.parquet")))?;
            let read: usize = ParquetRecordBatchReaderBuilder::try_new(file)?
                .build()?
                .map(|batch| batch.map(|batch| batch.num_rows()))
                .sum::<Result<_, _>>()?;
            assert_eq!(read as u64, rows, "{table}");
        }
        Ok(())
    }

    #[test]
    fn a_wrong_scale_table_or_number_of_parts_is_refused() {
        for scale in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(expected_rows("orders", scale).is_err(), "{scale}");
            assert!(batches("orders", scale, 1).is_err(), "{scale}");
        }
        assert!(batches("orders", 1.0, 0).is_err());
        let message = expected_rows("order", 1.0)
            .map_or_else(|error| error.to_string(), |rows| rows.to_string());
        assert!(
            message.contains("no table order; its tables are region"),
            "{message}"
        );
    }
}
