//! The format of the file of a segment.
//!
//! A segment is a Parquet file, which any Parquet tool can read. [`properties`] says how it is
//! written, and [`schema`] what is recorded of Arrow's types. [`writer`] writes a file with the
//! checksums ([`page_checksums`]) of its pages ([`pages`]), and [`reads`] reads it and compares
//! them. Nothing else knows what is in a file. Where files are, and which of them count, is the
//! matter of [`crate::storage`].

/// Checksums of the pages of a file.
pub(crate) mod page_checksums;
/// Takes the checksums of pages while they are written.
mod pages;
/// How files are written.
pub(crate) mod properties;
/// Reads files, and compares what was read with its checksums.
pub(crate) mod reads;
/// The Arrow schema in a file.
mod schema;
/// Writes a file.
pub(crate) mod writer;

pub use reads::SegmentReaders;
