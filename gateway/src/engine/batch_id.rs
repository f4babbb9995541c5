use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use futures::StreamExt;
use parking_lot::Mutex;
use volary_flight_proto::{Error, Result};

use super::Session;
use super::incoming_rows::IncomingRows;
use crate::load::content::ContentHasher;
use crate::load::statement_batch::{StatementBatch, StatementContent};

/// Stands for the statement of rows that are ingested without one.
pub(super) const INGEST: &str = "INGEST";

/// Returns the batch of a statement, if the client has given it an id. `values` are those of its
/// parameters.
///
/// # Errors
/// The errors of hashing the values.
pub(super) fn of_statement(
    session: &Session,
    sql: &str,
    values: Option<&RecordBatch>,
) -> Result<Option<StatementBatch>> {
    let Some(id) = session.batch_id() else {
        return Ok(None);
    };
    let mut hasher = ContentHasher::new();
    hasher.add_text(sql);
    if let Some(values) = values {
        hasher.add_rows(values)?;
    }
    Ok(Some(StatementBatch {
        id: id.clone(),
        content: StatementContent::Known(hasher.content()),
    }))
}

/// Returns the batch of a statement whose rows are still arriving, if the client has given it an
/// id. The rows must then be read from the stream that this returns.
///
/// # Errors
/// The errors of hashing the columns.
pub(super) fn of_rows(
    session: &Session,
    statement: &str,
    rows: IncomingRows,
) -> Result<(Option<StatementBatch>, IncomingRows)> {
    let Some(id) = session.batch_id() else {
        return Ok((None, rows));
    };
    let mut hasher = ContentHasher::new();
    hasher.add_text(statement);
    hasher.add_columns(&rows.schema)?;
    let hasher = Arc::new(Mutex::new(hasher));
    let batch = StatementBatch {
        id: id.clone(),
        content: StatementContent::Arriving(Arc::clone(&hasher)),
    };
    let batches = rows.batches.map(move |batch| {
        let batch = batch?;
        hasher.lock().add_rows(&batch)?;
        Ok(batch)
    });
    let rows = IncomingRows {
        schema: rows.schema,
        batches: batches.boxed(),
    };
    Ok((Some(batch), rows))
}

/// Refuses a statement that has an id but does not add rows to a table that exists.
///
/// # Errors
/// `INVALID_ARGUMENT`.
pub(crate) fn refuse(session: &Session) -> Result<()> {
    if session.batch_id().is_none() {
        return Ok(());
    }
    Err(Error::invalid(
        "a batch id (volary-batch-id) is for a statement that adds rows to an existing table: INSERT, COPY or ingestion; send other statements without it",
    ))
}
