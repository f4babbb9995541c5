use std::fs::File;

use arrow::array::RecordBatch;
use volary_flight_proto::Result;
use volary_flight_proto::ids::{TableId, WriteId};

use super::properties::SegmentProperties;
use super::writer::{SegmentFileWriter, write_error};
use crate::storage::{NewSegment, Segment, SegmentChecksums, Storage};

/// A segment whose rows are being written. Dropping it deletes the file.
pub(crate) struct OpenSegment {
    segment: NewSegment,
    file: SegmentFileWriter,
    rows: u64,
}

/// A segment with all its rows, whose file is not durable yet. Dropping it deletes the file.
pub(crate) struct CompleteSegment {
    segment: NewSegment,
    file: File,
    rows: u64,
    checksums: SegmentChecksums,
}

impl OpenSegment {
    /// Creates the file of a segment. May block.
    ///
    /// # Errors
    /// Returns `NOT_FOUND` if the table was dropped, and the errors of the file system, with the
    /// file.
    pub(crate) fn create(
        storage: &Storage,
        properties: &SegmentProperties,
        table: TableId,
        shard: u32,
        write: WriteId,
    ) -> Result<Self> {
        let (segment, file) = storage.create(table, shard, write)?;
        let file = SegmentFileWriter::new(properties, file)
            .map_err(|error| write_error(segment.path(), error))?;
        Ok(Self {
            segment,
            file,
            rows: 0,
        })
    }

    /// Appends rows.
    ///
    /// # Errors
    /// Returns the errors of the file system, with the file.
    pub(crate) fn append(&mut self, rows: &RecordBatch) -> Result<()> {
        let written = self.file.write(rows);
        written.map_err(|error| write_error(self.segment.path(), error))?;
        self.rows += rows.num_rows() as u64;
        Ok(())
    }

    /// Returns the memory of the rows that are not in the file yet, in bytes.
    pub(crate) fn memory_size(&self) -> usize {
        self.file.memory_size()
    }

    /// Returns the estimated size that the file would have if it ended here, in bytes.
    pub(crate) fn size(&self) -> usize {
        self.file.size()
    }

    /// Writes the rest of the file.
    ///
    /// # Errors
    /// Returns the errors of the file system, with the file.
    pub(crate) fn finish(self) -> Result<CompleteSegment> {
        let finished = self.file.finish();
        let (file, checksums) =
            finished.map_err(|error| write_error(self.segment.path(), error))?;
        Ok(CompleteSegment {
            segment: self.segment,
            file,
            rows: self.rows,
            checksums,
        })
    }
}

impl CompleteSegment {
    /// Makes the file durable. Blocks.
    ///
    /// # Errors
    /// Returns the errors of the file system, with the file.
    pub(crate) fn sync(self) -> Result<Segment> {
        self.segment.complete(&self.file, self.rows, self.checksums)
    }
}
