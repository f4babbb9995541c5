//! A [`Way`] is a database and a method of writing to it. All ways write the same rows
//! ([`rows`]): each batch is one statement, and is durable and visible when the writer goes on.

/// Writes several batches at the same time, for a while, and measures that.
pub mod measured;
/// Writes to PostgreSQL, with INSERT and with COPY.
pub mod postgres;
/// Measures what any durable write costs: syncs, round trips, and encoding the rows.
pub mod raw;
/// Builds the rows.
pub mod rows;
/// Writes to Volary, on streams that stay open.
pub mod stream;
/// Writes to Volary, with one call for each batch.
pub mod volary;

use anyhow::Result;
use arrow::array::RecordBatch;
use futures::FutureExt;
use futures::future::{BoxFuture, LocalBoxFuture};

use crate::clients::Ask;
use rows::RowSource;

/// The name of the table that is written to.
pub const TABLE: &str = "w";

/// A connection that writes.
pub trait WriteRows: Send + 'static {
    /// Writes the rows as one statement. They are durable and visible when this returns.
    fn write(&mut self, rows: RecordBatch) -> BoxFuture<'_, Result<()>>;
}

/// A way of writing.
pub trait Way {
    /// Returns the name of the way, for people.
    fn name(&self) -> &'static str;

    /// Opens a connection.
    fn connect(&self) -> LocalBoxFuture<'_, Result<Box<dyn WriteRows>>>;

    /// Makes sure that the table exists and is empty.
    fn empty_table(&self) -> LocalBoxFuture<'_, Result<()>>;

    /// Returns how often the database has synced a file since its start, or `None` if it does not
    /// say so.
    fn syncs(&self) -> LocalBoxFuture<'_, Result<Option<f64>>>;
}

/// A client that writes one batch after another.
pub struct WritingClient {
    writer: Box<dyn WriteRows>,
    rows: RowSource,
}

impl WritingClient {
    /// Creates a client with the rows that it writes.
    pub fn new(writer: Box<dyn WriteRows>, rows: RowSource) -> Self {
        Self { writer, rows }
    }

    /// Writes the next batch.
    ///
    /// # Errors
    /// Returns the errors of the database.
    pub async fn write(&mut self) -> Result<()> {
        let batch = self.rows.next_batch()?;
        self.writer.write(batch).await
    }

    /// Returns the connection.
    pub fn into_writer(self) -> Box<dyn WriteRows> {
        self.writer
    }
}

impl Ask for WritingClient {
    fn ask(&mut self, _: usize) -> (&'static str, BoxFuture<'_, Result<()>>) {
        ("write", self.write().boxed())
    }
}
