use tokio::runtime::Handle;
use volary_flight_proto::ids::{TableId, WriteId};

use super::Catalog;

/// An open write. Dropping it aborts the write. A statement may be cancelled at any moment, even
/// before it knows that its write is open, and then nothing else would abort the write.
#[derive(Debug)]
#[must_use = "the write is aborted when this is dropped"]
pub struct OpenWrite {
    id: WriteId,
    /// The table that the write adds rows to. `None` while the table is being created.
    table: Option<TableId>,
    /// The catalog. `None` after the write was taken over.
    catalog: Option<Catalog>,
    runtime: Handle,
}

impl OpenWrite {
    /// Creates the guard. Must be called within a runtime, which later runs the abort.
    pub(super) fn new(catalog: Catalog, id: WriteId, table: Option<TableId>) -> Self {
        Self {
            id,
            table,
            catalog: Some(catalog),
            runtime: Handle::current(),
        }
    }

    /// Sets the table that the write adds rows to.
    pub(super) fn with_table(mut self, table: TableId) -> Self {
        self.table = Some(table);
        self
    }

    /// Returns the number of the write. From now on the caller must commit or abort it.
    pub fn take_over(mut self) -> WriteId {
        self.catalog = None;
        self.id
    }
}

impl Drop for OpenWrite {
    fn drop(&mut self) {
        let Some(catalog) = self.catalog.take() else {
            return;
        };
        let (write, table) = (self.id, self.table);
        self.runtime.spawn(async move {
            let _was_open = catalog.abort_write_with_retries(write, table).await;
        });
    }
}
