use futures::future::try_join_all;
use volary_flight_proto::Result;

use super::Engine;
use super::context::StatementContext;
use crate::sql::names::WrittenName;

/// Runs OPTIMIZE: makes as few segments as possible of the table's rows, on all of its workers at
/// the same time, and waits for them. The workers stop if the future is dropped. What they have
/// merged until then stays merged.
///
/// # Errors
/// `NOT_FOUND` if there is no such table, `PERMISSION_DENIED` without the right to insert into it,
/// and the errors of the workers, which name the worker.
pub(super) async fn run(
    engine: &Engine,
    context: &StatementContext,
    table: &WrittenName,
) -> Result<()> {
    let name = context.user_relation(table)?;
    let table = context
        .catalog
        .table(&name)
        .ok_or_else(|| context.catalog.no_such_table(&name, &context.rights))?;
    context.check_may_insert(table)?;
    let cluster = &engine.cluster;
    cluster.refuse_lost(table.workers())?;
    let idle = engine.config.load.idle_timeout;
    let snapshot = context.catalog.snapshot();
    let merging = table.workers().iter().map(|worker| {
        let (description, snapshot) = (table.description(), snapshot.clone());
        cluster.optimize(*worker, description, snapshot, idle)
    });
    let merged = try_join_all(merging).await?;
    let before: u64 = merged.iter().map(|worker| worker.segments_before).sum();
    let after: u64 = merged.iter().map(|worker| worker.segments_after).sum();
    tracing::info!(table = %name, segments_before = before, segments_after = after, "a table was optimized");
    Ok(())
}
