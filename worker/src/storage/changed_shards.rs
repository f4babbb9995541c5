use std::collections::BTreeSet;

use parking_lot::Mutex;
use tokio::sync::Notify;
use volary_flight_proto::ids::TableId;

/// The shards that have had new segments since somebody last looked.
#[derive(Debug, Default)]
pub(super) struct ChangedShards {
    changed: Mutex<BTreeSet<(TableId, u32)>>,
    news: Notify,
}

impl ChangedShards {
    pub(super) fn note(&self, table: TableId, shards: impl IntoIterator<Item = u32>) {
        let mut changed = self.changed.lock();
        changed.extend(shards.into_iter().map(|shard| (table, shard)));
        if !changed.is_empty() {
            self.news.notify_one();
        }
    }

    /// Waits until a shard has changed, and takes all changed shards.
    pub(super) async fn take(&self) -> BTreeSet<(TableId, u32)> {
        loop {
            let changed = self.take_now();
            if !changed.is_empty() {
                return changed;
            }
            self.news.notified().await;
        }
    }

    /// Takes all changed shards.
    pub(super) fn take_now(&self) -> BTreeSet<(TableId, u32)> {
        std::mem::take(&mut *self.changed.lock())
    }
}
