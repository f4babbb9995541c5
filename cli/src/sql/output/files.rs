use std::io::Write;

use arrow::ipc::writer::FileWriter;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use volary_flight_proto::{Error, ErrorCode, Result};

use super::{for_each_batch, format_error};
use crate::client::RowStream;

/// Writes the rows as a Parquet file, compressed with Zstandard.
pub(super) async fn print_parquet(rows: RowStream, out: &mut (impl Write + Send)) -> Result<u64> {
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .build();
    let schema = rows.schema.clone();
    let writer = ArrowWriter::try_new(out, schema, Some(properties));
    let mut writer = writer.map_err(parquet_error)?;
    let count = for_each_batch(rows, |batch| writer.write(batch).map_err(parquet_error)).await?;
    writer.close().map_err(parquet_error)?;
    Ok(count)
}

/// Writes the rows as an Arrow file (the IPC file format, Feather version 2).
pub(super) async fn print_arrow(rows: RowStream, out: &mut impl Write) -> Result<u64> {
    let mut writer = FileWriter::try_new(out, &rows.schema).map_err(format_error)?;
    let count = for_each_batch(rows, |batch| writer.write(batch).map_err(format_error)).await?;
    writer.finish().map_err(format_error)?;
    Ok(count)
}

fn parquet_error(source: ParquetError) -> Error {
    let text = format!(
        "the rows cannot be written as Parquet: {source}; choose another --output, or CAST the column"
    );
    Error::with_source(ErrorCode::InvalidArgument, text, source)
}
