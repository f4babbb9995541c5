use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::BatchCoalescer;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::internal_datafusion_err;
use datafusion::error::Result;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::execution::spill_file::SpillFile;
use datafusion::physical_plan::spill::SpillManager;
use futures::StreamExt;
use volary_exec::buckets::{BucketPiece, DividedRows};

/// Rows on disk, in the order of their buckets.
pub(super) struct Run {
    file: Arc<dyn SpillFile>,
    /// The pieces that each batch of the file contains.
    pieces: Vec<Vec<BucketPiece>>,
}

impl Run {
    pub(super) fn new(file: Arc<dyn SpillFile>, pieces: Vec<Vec<BucketPiece>>) -> Self {
        Self { file, pieces }
    }

    /// Opens the file to read its rows.
    ///
    /// # Errors
    /// Returns an error if the file cannot be opened.
    pub(super) fn open(self, spills: &SpillManager) -> Result<Source> {
        Ok(Source {
            cursor: None,
            rest: Some(Rest {
                batches: spills.read_spill_as_stream(self.file, None)?,
                pieces: self.pieces.into(),
            }),
        })
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run")
            .field("batches", &self.pieces.len())
            .finish_non_exhaustive()
    }
}

/// A source of rows by ascending bucket.
pub(super) struct Source {
    cursor: Option<Cursor>,
    /// The rows that are still on disk.
    rest: Option<Rest>,
}

struct Rest {
    batches: SendableRecordBatchStream,
    pieces: VecDeque<Vec<BucketPiece>>,
}

/// A position in a batch.
struct Cursor {
    batch: RecordBatch,
    pieces: std::vec::IntoIter<BucketPiece>,
    next: BucketPiece,
    row: usize,
}

impl Cursor {
    fn new(divided: DividedRows) -> Option<Self> {
        let mut pieces = divided.pieces.into_iter();
        Some(Self {
            batch: divided.batch,
            next: pieces.next()?,
            pieces,
            row: 0,
        })
    }

    /// Gives the rows of a bucket to the sink. Returns `None` if no rows follow them.
    fn take(mut self, bucket: usize, sink: &mut Sink) -> Result<Option<Self>> {
        while self.next.bucket == bucket {
            sink.push(self.batch.slice(self.row, self.next.rows), bucket)?;
            self.row += self.next.rows;
            let Some(next) = self.pieces.next() else {
                return Ok(None);
            };
            self.next = next;
        }
        Ok(Some(self))
    }
}

impl Source {
    /// Builds a source of rows in memory.
    pub(super) fn in_memory(divided: DividedRows) -> Self {
        Self {
            cursor: Cursor::new(divided),
            rest: None,
        }
    }

    /// Gives the rows of a bucket that are in memory to the sink.
    ///
    /// # Errors
    /// No failure is known.
    pub(super) fn take(&mut self, bucket: usize, sink: &mut Sink) -> Result<()> {
        if let Some(cursor) = self.cursor.take() {
            self.cursor = cursor.take(bucket, sink)?;
        }
        Ok(())
    }

    /// Gives all rows of a bucket to the sink, those on disk included.
    async fn take_all(&mut self, bucket: usize, sink: &mut Sink) -> Result<()> {
        loop {
            self.take(bucket, sink)?;
            let (None, Some(rest)) = (&self.cursor, &mut self.rest) else {
                return Ok(());
            };
            let Some(batch) = rest.batches.next().await.transpose()? else {
                self.rest = None;
                return Ok(());
            };
            let pieces = rest.pieces.pop_front().ok_or_else(|| {
                internal_datafusion_err!("a spill file has more batches than were written")
            })?;
            self.cursor = Cursor::new(DividedRows { batch, pieces });
        }
    }
}

/// Makes batches with a given number of rows.
pub(super) struct Sink {
    coalescer: BatchCoalescer,
    pieces: VecDeque<BucketPiece>,
}

impl Sink {
    pub(super) fn new(schema: SchemaRef, rows: usize) -> Self {
        Self {
            coalescer: BatchCoalescer::new(schema, rows),
            pieces: VecDeque::new(),
        }
    }

    fn push(&mut self, rows: RecordBatch, bucket: usize) -> Result<()> {
        let count = rows.num_rows();
        match self.pieces.back_mut() {
            Some(last) if last.bucket == bucket => last.rows += count,
            _ => self.pieces.push_back(BucketPiece {
                bucket,
                rows: count,
            }),
        }
        Ok(self.coalescer.push_batch(rows)?)
    }

    /// Makes a batch of the rows that were pushed last, however few they are.
    pub(super) fn finish(&mut self) -> Result<()> {
        Ok(self.coalescer.finish_buffered_batch()?)
    }

    /// Returns the next complete batch.
    pub(super) fn next(&mut self) -> Option<DividedRows> {
        let batch = self.coalescer.next_completed_batch()?;
        let mut pieces = Vec::new();
        let mut left = batch.num_rows();
        while left > 0 {
            let piece = self.pieces.front_mut()?;
            let rows = piece.rows.min(left);
            pieces.push(BucketPiece {
                bucket: piece.bucket,
                rows,
            });
            left -= rows;
            piece.rows -= rows;
            if piece.rows == 0 {
                self.pieces.pop_front();
            }
        }
        Some(DividedRows { batch, pieces })
    }
}

/// All rows, merged by ascending bucket.
pub(super) struct Merged {
    sources: Vec<Source>,
    sink: Sink,
    next_bucket: usize,
    end: usize,
    /// Memory of the rows that are held in memory. It stays reserved until this value is dropped.
    _reservation: MemoryReservation,
}

impl Merged {
    pub(super) fn new(
        sources: Vec<Source>,
        sink: Sink,
        buckets: usize,
        reservation: MemoryReservation,
    ) -> Self {
        Self {
            sources,
            sink,
            next_bucket: 0,
            end: buckets,
            _reservation: reservation,
        }
    }

    /// Returns the next batch, or `None` at the end.
    ///
    /// # Errors
    /// Returns an error if spilled rows cannot be read.
    pub(super) async fn next(&mut self) -> Result<Option<DividedRows>> {
        loop {
            if let Some(divided) = self.sink.next() {
                return Ok(Some(divided));
            }
            if self.next_bucket == self.end {
                return Ok(None);
            }
            for source in &mut self.sources {
                source.take_all(self.next_bucket, &mut self.sink).await?;
            }
            self.next_bucket += 1;
            if self.next_bucket == self.end {
                self.sink.finish()?;
            }
        }
    }
}
