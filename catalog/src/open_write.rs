//! A write that is open, until somebody commits or aborts it.

use tokio::runtime::Handle;
use volary_flight_proto::ids::WriteId;

use super::Catalog;

/// An open write. Where it is dropped, the write is aborted: a statement may be cancelled at any moment, also before it knows that its write
/// is open, and then nobody else would.
#[derive(Debug)]
#[must_use = "the write is aborted when this is dropped"]
pub struct OpenWrite {
    id: WriteId,
    /// `None` when it has been taken over.
    catalog: Option<Catalog>,
    runtime: Handle,
}

impl OpenWrite {
    /// Must be called within a runtime, which aborts it.
    pub(super) fn new(catalog: Catalog, id: WriteId) -> Self {
        Self {
            id,
            catalog: Some(catalog),
            runtime: Handle::current(),
        }
    }

    /// Its number. From now on the caller aborts it, unless it commits it.
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
        let write = self.id;
        self.runtime.spawn(async move {
            let _was_open = catalog.abort_write_at_last(write).await;
        });
    }
}
