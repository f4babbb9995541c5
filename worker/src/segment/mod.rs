//! Owns the format of the file of a segment.
//!
//! A segment is a Parquet file, which any Parquet tool can read. [`properties`] decides how it is
//! written, and [`schema`] what is recorded of Arrow's types. [`writer`] writes a file with the
//! checksums ([`page_checksums`]) of its pages ([`pages`]). [`reads`] compares what is read with
//! them, and refuses files of a newer format ([`format`]). [`crate::storage`] knows where the files
//! are, and which of them count. It does not look into them.

/// The number of a file's format.
mod format;
/// Checksums of the pages of a file.
mod page_checksums;
/// Takes the checksums of pages while they are written.
mod pages;
/// Decides how files are written.
mod properties;
/// Reads files, and compares what was read with its checksums.
mod reader;
/// Records the Arrow schema in a file.
mod schema;
/// Writes a file.
mod writer;

pub(crate) use page_checksums::{Damage, PageChecksums};
pub(crate) use properties::{ORDER, SegmentProperties, may_have_several_pages};
pub(crate) use reader::SegmentReaders;
pub(crate) use reader::{MAX_INLINE_READ_BYTES, damage_error, read_cached};
pub(crate) use writer::{SegmentFileWriter, write_error};
