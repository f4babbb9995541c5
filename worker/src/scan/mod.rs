//! Scans of segments.
//!
//! A table has a segment for each of its shards and writes: many, and most of them small. DataFusion's Parquet source is made for few large files. What it
//! prepares for each of them (pruning predicates, metrics, the file's Arrow schema) takes longer than a small segment's
//! rows, so [`source`] has it read only the large ones. What is the same for all small ones of a scan is prepared once: [`pruning`] tells by their
//! statistics which of them have no row of interest, and [`small`] reads the others in one go.

/// Parts of a segment's file that were read.
mod in_memory;
/// What the files of segments have.
mod layout;
/// Segments without a row of interest.
mod pruning;
/// Reads of segments.
mod reads;
/// Small segments, in one go.
mod small;
/// Which segments are read how.
mod source;

#[cfg(test)]
mod tests;

pub use reads::SegmentReaders;
pub use source::SegmentSource;
