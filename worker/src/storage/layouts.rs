use std::collections::BTreeMap;

use parking_lot::Mutex;
use volary_flight_proto::ids::TableId;
use volary_flight_proto::write::TableDescription;

/// What the worker knows of the columns and keys of its tables. Rows of the log become segments,
/// and segments are merged, without a gateway. The store keeps the descriptions, so that this also
/// goes on after a restart.
#[derive(Debug, Default)]
pub(super) struct Layouts(Mutex<BTreeMap<TableId, Layout>>);

#[derive(Debug)]
struct Layout {
    description: TableDescription,
    /// Says whether the store has the description.
    is_stored: bool,
}

impl Layouts {
    /// Builds the layouts from those that the store has.
    pub(super) fn of_stored(descriptions: impl IntoIterator<Item = TableDescription>) -> Self {
        let layouts = descriptions.into_iter().map(|description| {
            let table = TableId(description.table_id);
            let layout = Layout {
                description,
                is_stored: true,
            };
            (table, layout)
        });
        Self(Mutex::new(layouts.collect()))
    }

    /// Learns the columns and keys of a table. They never change.
    pub(super) fn note(&self, table: &TableDescription) {
        let mut layouts = self.0.lock();
        layouts
            .entry(TableId(table.table_id))
            .or_insert_with(|| Layout {
                description: table.clone(),
                is_stored: false,
            });
    }

    pub(super) fn get(&self, table: TableId) -> Option<TableDescription> {
        let layouts = self.0.lock();
        layouts.get(&table).map(|layout| layout.description.clone())
    }

    /// Returns the description of a table, if the store does not have it yet.
    pub(super) fn unstored(&self, table: TableId) -> Option<TableDescription> {
        let layouts = self.0.lock();
        let layout = layouts.get(&table).filter(|layout| !layout.is_stored)?;
        Some(layout.description.clone())
    }

    /// Notes that the store has the description of a table.
    pub(super) fn mark_stored(&self, table: TableId) {
        if let Some(layout) = self.0.lock().get_mut(&table) {
            layout.is_stored = true;
        }
    }

    /// Forgets a table that was dropped.
    pub(super) fn forget(&self, table: TableId) {
        self.0.lock().remove(&table);
    }
}
