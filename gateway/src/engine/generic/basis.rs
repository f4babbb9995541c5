//! What a generic plan was made for.

use std::collections::BTreeMap;
use std::sync::Arc;

use volary_catalog::access::Access;
use volary_catalog::{State, Table};

/// So few rows are planned alike.
const FEW_ROWS: u64 = 10_000;
/// A table that has so many times more or fewer rows than it had may be worth another plan.
const TIMES_ROWS: u64 = 2;

/// The tables and views that a plan reads, as they were.
#[derive(Debug)]
pub(super) struct Basis {
    /// By name: see [`State::version_of`].
    reads: BTreeMap<String, u64>,
    tables: Vec<Arc<Table>>,
    /// Who might do what.
    access: Arc<Access>,
}

impl Basis {
    /// Of a plan for this state of the catalog.
    pub(super) fn of(catalog: &State, reads: BTreeMap<String, u64>) -> Self {
        let tables = reads.keys().filter_map(|name| catalog.table(name));
        Self {
            tables: tables.cloned().collect(),
            reads,
            access: Arc::clone(catalog.access()),
        }
    }

    /// Who might do what.
    pub(super) fn access(&self) -> &Arc<Access> {
        &self.access
    }

    /// See [`crate::engine::Query::reads`].
    pub(super) fn reads(&self) -> &BTreeMap<String, u64> {
        &self.reads
    }

    /// Whether the plan suits this state: the same tables and views, on the same workers, with about as many rows, and with the same
    /// rights to them.
    pub(super) fn is_still(&self, catalog: &State) -> bool {
        if !Arc::ptr_eq(&self.access, catalog.access()) {
            return false;
        }
        let mut reads = self.reads.iter();
        let mut tables = self.tables.iter();
        reads.all(|(name, version)| catalog.version_of(name) == Some(*version))
            && tables.all(|before| {
                let now = catalog.table(before.name());
                now.is_some_and(|now| now.is_placed_as(before) && is_about_as_large(now, before))
            })
    }
}

fn is_about_as_large(now: &Table, before: &Table) -> bool {
    let (now, before) = (now.statistics().rows, before.statistics().rows);
    let (fewer, more) = (now.min(before), now.max(before));
    more <= FEW_ROWS || more / TIMES_ROWS <= fewer
}
