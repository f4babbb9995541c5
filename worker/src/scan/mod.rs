//! A table has a segment for each of its shards and writes. There are many segments, and most of
//! them are small. DataFusion's Parquet source is made for few large files. For each file, it
//! prepares pruning predicates, metrics and the file's Arrow schema. That takes longer than reading
//! the rows of a small segment. So [`source`] lets DataFusion read only the large segments. A scan
//! prepares once what all its small segments share. [`pruning`] tells from their statistics which
//! of them have no matching row, and [`small`] reads the others in one go.

/// Reads whole columns of a row group.
mod column;
/// Keeps the columns of tiny segments decoded.
pub mod decoded;
/// Holds the parts of a segment's file that were read into memory.
mod in_memory;
/// Determines how the columns of segments' files are read.
mod layout;
/// Hands rows that are in the log to scans.
mod logged;
/// Selects the rows of a segment of which a snapshot does not see all.
mod partly;
/// Tells which segments have no matching row.
mod pruning;
/// Reads small segments in one go.
mod small;
/// Decides how each segment is read.
mod source;

#[cfg(test)]
mod tests;

pub(crate) use column::{RowGroup, has_columns, read_column};
pub(crate) use in_memory::bloom_filter;
pub(crate) use logged::LoggedBatches;
pub(crate) use partly::visible_rows;
pub(crate) use source::SegmentSource;
