//! A segment is a Parquet file, which any Parquet tool can read. [`properties`] decides how it is
//! written, and [`schema`] what is recorded of Arrow's types. [`writer`] writes a file with the
//! checksums ([`page_checksums`]) of its pages ([`pages`]). [`reader`] compares what is read with
//! them, and refuses files of a newer format ([`mod@format`]). [`crate::storage`] knows where the
//! files are, and which of them the store names. It does not look into them.

/// Records the number of the format in a segment's file, and reads it.
mod format;
/// Stores intervals in a form that Parquet has.
mod intervals;
/// Writes the rows of a new segment.
mod open_segment;
/// Keeps the checksums of the pages and bloom filters of a segment in the metadata of its file.
mod page_checksums;
/// Takes the checksums of pages when the Parquet writer takes the pages from their store to write
/// them.
mod pages;
/// Decides how the files of a table's segments are written.
mod properties;
/// Reads the files of segments, and compares what was read with its checksums.
mod reader;
/// Records the Arrow schema in a segment's file.
mod schema;
/// Writes the file of a segment, with its checksums.
mod writer;

pub(crate) use intervals::{stored_schema, to_stored_rows, with_intervals};
pub(crate) use open_segment::OpenSegment;
pub(crate) use page_checksums::{Damage, PageChecksums};
pub(crate) use properties::{ORDER, SegmentProperties, may_have_several_pages};
pub(crate) use reader::SegmentReaders;
pub(crate) use reader::{
    MAX_INLINE_READ_BYTES, STORE_WAIT_TIME, damage_error, read_cached, read_waiting,
};
