use std::fs::File;

use arrow::array::AsArray;
use arrow::datatypes::UInt64Type;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::errors::ParquetError;
use volary_flight_proto::{Error, Result};

use super::segment::Segment;

/// Name of the column (UInt64, not null) with the write of each row, in segments with rows of
/// several writes. It is the last column.
pub(crate) const WRITE_COLUMN: &str = "__volary_write";

/// Reads the write of each row of a segment, in the order of the rows and in batches. The segment
/// has a [`WRITE_COLUMN`]. May block.
///
/// # Errors
/// Returns `DATA_LOSS` if the file is damaged, and the errors of the file system.
pub(crate) fn read_writes(segment: &Segment, visit: impl FnMut(&[u64])) -> Result<()> {
    read(segment, visit).map_err(|error| {
        // The checksum tells a damaged file from one that cannot be read now.
        let damage = segment.check_content(|_| ()).err();
        let what = || format!("cannot read segment {}", segment.relative_path());
        damage.unwrap_or_else(|| Error::io_within(what(), error))
    })
}

fn read(segment: &Segment, mut visit: impl FnMut(&[u64])) -> Result<(), ParquetError> {
    let builder = ParquetRecordBatchReaderBuilder::try_new(File::open(segment.path())?)?;
    let mask = ProjectionMask::columns(builder.parquet_schema(), [WRITE_COLUMN]);
    for batch in builder.with_projection(mask).build()? {
        visit(batch?.column(0).as_primitive::<UInt64Type>().values());
    }
    Ok(())
}
