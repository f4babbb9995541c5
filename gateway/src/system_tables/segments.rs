//! Makes the rows of system.segments, for which the gateway asks the workers.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{BooleanArray, RecordBatch, StringArray};
use futures::future::try_join_all;
use prost::Message;
use volary_catalog::State;
use volary_catalog::access::Rights;
use volary_flight_proto::control::{ListSegments, SegmentDescription, SegmentList, control};
use volary_flight_proto::ids::{TableId, WorkerId, WriteId};
use volary_flight_proto::{Error, ErrorCode, Result};

use super::kind::Kind;
use super::rows::{batch, numbers, texts};
use crate::cluster::Cluster;

/// A segment of a table that exists.
struct Row<'a> {
    table: &'a str,
    worker: WorkerId,
    segment: SegmentDescription,
    /// Whether a query that starts now reads the segment, because its write is committed.
    visible: bool,
}

/// Asks every worker that holds a table for its segments. If one worker cannot be asked, the query
/// fails: without the rows of that worker, a table would seem to have lost some.
pub(super) async fn rows(
    state: &State,
    cluster: &Arc<Cluster>,
    rights: &Rights,
) -> Result<RecordBatch> {
    let holders: BTreeSet<WorkerId> = state
        .tables()
        .filter(|table| rights.sees(table.name(), table.owner()))
        .flat_map(|table| table.workers())
        .copied()
        .collect();
    let asked = holders.into_iter().map(|worker| async move {
        let list = segments_of(cluster, worker).await?;
        Ok::<_, Error>((worker, list))
    });
    let answers = try_join_all(asked).await.map_err(|error| {
        error.at("system.segments needs all workers, and system.nodes tells which are up")
    })?;
    let rows: Vec<_> = answers
        .into_iter()
        .flat_map(|(worker, list)| listed(state, worker, list))
        .filter(|row| state.is_seen_by(row.table, rights))
        .collect();
    let visible: BooleanArray = rows.iter().map(|row| Some(row.visible)).collect();
    let damage = rows.iter().map(|row| {
        let damage = row.segment.damage.as_str();
        (!damage.is_empty()).then_some(damage)
    });
    let damage: StringArray = damage.collect();
    batch(
        Kind::Segments,
        vec![
            texts(rows.iter().map(|row| row.table)),
            numbers(rows.iter().map(|row| u64::from(row.segment.shard))),
            texts(rows.iter().map(|row| row.worker.to_string())),
            numbers(rows.iter().map(|row| row.segment.write_id)),
            texts(rows.iter().map(|row| row.segment.file.clone())),
            numbers(rows.iter().map(|row| row.segment.rows)),
            numbers(rows.iter().map(|row| row.segment.bytes)),
            Arc::new(visible),
            Arc::new(damage),
        ],
    )
}

async fn segments_of(cluster: &Cluster, worker: WorkerId) -> Result<SegmentList> {
    let command = control::Command::ListSegments(ListSegments {});
    let answer = cluster.control(worker, command).await?;
    SegmentList::decode(answer).map_err(|source| {
        Error::with_source(
            ErrorCode::Internal,
            format!(
                "the list of segments of {} cannot be decoded",
                cluster.name(worker)
            ),
            source,
        )
    })
}

/// Returns the rows for a worker's segments. Segments of failed writes are left out, because the
/// worker is about to delete them.
fn listed(state: &State, worker: WorkerId, list: SegmentList) -> impl Iterator<Item = Row<'_>> {
    let snapshot = state.snapshot();
    let aborted: BTreeSet<WriteId> = state.aborted_writes_of(worker).collect();
    list.segments.into_iter().filter_map(move |segment| {
        let write = WriteId(segment.write_id);
        let table = state.table_by_id(TableId(segment.table_id))?;
        (!aborted.contains(&write)).then(|| Row {
            table: table.name(),
            worker,
            visible: snapshot.sees(write),
            segment,
        })
    })
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field, Schema};

    use volary_catalog::{
        Catalog, DefinitionKind, IfExists, RedbStore, TableDefinition, WriteSummary,
    };
    use volary_node::disk::LocalDisk;

    use super::*;

    fn segment(table_id: u64, write: WriteId) -> SegmentDescription {
        SegmentDescription {
            table_id,
            write_id: write.0,
            ..SegmentDescription::default()
        }
    }

    #[tokio::test]
    async fn open_writes_are_marked_and_aborted_ones_and_dropped_tables_are_not_listed() {
        let directory =
            std::env::temp_dir().join(format!("volary-segments-{}", uuid::Uuid::new_v4()));
        std::fs::create_dir(&directory).unwrap();
        let store = RedbStore::open(&directory, Arc::new(LocalDisk))
            .await
            .unwrap();
        let catalog = Catalog::open(Arc::new(store)).await.unwrap();
        let address = "127.0.0.1:7201";
        let joined = catalog.register_worker(None, address, "0.1.0").await;
        let worker = joined.unwrap().id;
        let definition = TableDefinition {
            name: "birds".to_owned(),
            schema: Arc::new(Schema::new(vec![Field::new("k", DataType::Int64, true)])),
            kind: DefinitionKind::Sharded {
                key: Some(0),
                shards: 4,
            },
            sort_key: Vec::new(),
        };
        let created = catalog
            .create_table(
                definition,
                &[worker],
                IfExists::Fail,
                &Arc::new(Rights::open("kea")),
            )
            .await;
        let table = created.unwrap().unwrap();
        let committed = catalog.begin_write(&table).await.unwrap().take_over();
        let nothing = WriteSummary::new(&table, &[]).unwrap();
        catalog.commit_write(committed, nothing).await.unwrap();
        let aborted = catalog.begin_write(&table).await.unwrap().take_over();
        catalog.abort_write(aborted).await.unwrap();
        let open = catalog.begin_write(&table).await.unwrap().take_over();
        let state = catalog.state();
        // This write begins after the statement took its state of the catalog.
        let later = catalog.begin_write(&table).await.unwrap().take_over();

        let id = table.id().0;
        let mut segments: Vec<_> = [committed, aborted, open, later]
            .into_iter()
            .map(|write| segment(id, write))
            .collect();
        segments.push(segment(id + 1, committed));
        let found: Vec<_> = listed(&state, worker, SegmentList { segments })
            .map(|row| (row.table, WriteId(row.segment.write_id), row.visible))
            .collect();
        assert_eq!(
            found,
            [
                ("birds", committed, true),
                ("birds", open, false),
                ("birds", later, false)
            ]
        );
        drop(catalog);
        std::fs::remove_dir_all(directory).unwrap();
    }
}
