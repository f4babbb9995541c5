use std::sync::Arc;

use volary_catalog::Table;
use volary_flight_proto::control::{DropTable, control};

use super::Engine;

/// Tells the workers of a dropped table to delete its files, without waiting for them.
pub(super) fn delete_files(engine: &Engine, table: &Table) {
    for worker in table.workers().to_vec() {
        let (cluster, id) = (Arc::clone(&engine.cluster), table.id());
        engine.runtimes.io().spawn(async move {
            let command = control::Command::DropTable(DropTable { table_id: id.0 });
            if let Err(error) = cluster.control(worker, command).await {
                tracing::info!(%worker, table = %id, %error, "the worker deletes the table's files later");
            }
        });
    }
}
