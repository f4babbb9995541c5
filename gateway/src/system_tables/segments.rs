use std::collections::BTreeSet;
use std::sync::Arc;

use futures::future::try_join_all;
use prost::Message;
use volary_catalog::{CatalogState, Table};
use volary_flight_proto::control::{ListSegments, SegmentDescription, SegmentList, control};
use volary_flight_proto::ids::{TableId, WorkerId, WriteId};
use volary_flight_proto::{Error, ErrorCode, Result};

use super::column::Column;
use super::sources::SystemTableSources;
use super::table::SystemTable;
use crate::cluster::Cluster;

pub(super) struct Segments;

/// A segment of an existing table, on one worker.
pub(super) struct Segment {
    table: Arc<Table>,
    worker: WorkerId,
    description: SegmentDescription,
    /// True if a query that starts now reads the segment, because its write is committed.
    is_visible: bool,
}

impl SystemTable for Segments {
    type Row = Segment;

    const NAME: &'static str = "segments";

    const COLUMNS: &'static [Column<Segment>] = &[
        Column::text("table_name", |segment| {
            segment.table.name().name().to_owned()
        }),
        Column::number("shard", |segment| u64::from(segment.description.shard)),
        Column::text("worker_id", |segment| segment.worker.to_string()),
        Column::number("write_id", |segment| segment.description.write_id),
        Column::text("file", |segment| segment.description.file.clone()),
        Column::number("rows", |segment| segment.description.rows),
        Column::number("bytes", |segment| segment.description.bytes),
        Column::boolean("visible", |segment| segment.is_visible),
        Column::optional_text("damage", |segment| {
            let damage = &segment.description.damage;
            (!damage.is_empty()).then(|| damage.clone())
        }),
        Column::text("schema_name", |segment| {
            segment.table.name().schema().to_owned()
        }),
    ];

    /// Asks every worker that holds a table for its segments. If one worker does not answer, the
    /// query fails: without the segments of that worker, a table would seem to have lost rows.
    async fn rows(sources: &SystemTableSources) -> Result<Vec<Segment>> {
        let state = &sources.catalog;
        let holders: BTreeSet<WorkerId> = sources
            .tables()
            .flat_map(|table| table.workers())
            .copied()
            .collect();
        let requests = holders.into_iter().map(|worker| async move {
            let list = fetch_segments(&sources.cluster, worker).await?;
            Ok::<_, Error>((worker, list))
        });
        let answers = try_join_all(requests).await.map_err(|error| {
            error.at("system.segments needs an answer from every worker; system.nodes shows which workers are alive")
        })?;
        let segments = answers
            .into_iter()
            .flat_map(|(worker, list)| segment_rows(state, worker, list))
            .filter(|segment| {
                let name = segment.table.name();
                let is_of_session = name.session().is_none_or(|it| sources.session == Some(it));
                is_of_session && state.is_visible_to(name, &sources.rights)
            });
        Ok(segments.collect())
    }
}

async fn fetch_segments(cluster: &Cluster, worker: WorkerId) -> Result<SegmentList> {
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
fn segment_rows(
    state: &CatalogState,
    worker: WorkerId,
    list: SegmentList,
) -> impl Iterator<Item = Segment> {
    let snapshot = state.snapshot();
    let aborted = state.aborted_writes_of(worker);
    list.segments.into_iter().filter_map(move |segment| {
        let write = WriteId(segment.write_id);
        let table = state.table_by_id(TableId(segment.table_id))?;
        (!aborted.contains(write)).then(|| Segment {
            table: Arc::clone(table),
            worker,
            is_visible: snapshot.sees(write),
            description: segment,
        })
    })
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field, Schema};

    use volary_catalog::access::Rights;
    use volary_catalog::{
        Catalog, DefinitionKind, IfExists, RedbStore, RelationName, TableDefinition, WriteSummary,
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
        let joined = catalog.register_worker(None, address, "0.1.0", None).await;
        let worker = joined.unwrap().id;
        let definition = TableDefinition {
            name: RelationName::in_public("birds"),
            schema: Arc::new(Schema::new(vec![Field::new("k", DataType::Int64, true)])),
            kind: DefinitionKind::Sharded {
                key: Some(0),
                shards: 4,
            },
            sort_key: Vec::new(),
            declarations: Default::default(),
        };
        let created = catalog
            .create_table(
                definition,
                &[worker],
                IfExists::Fail,
                &Arc::new(Rights::of_open_cluster("kea")),
            )
            .await;
        let table = created.unwrap().unwrap();
        let committed = catalog.begin_write(&table).await.unwrap().take_over();
        let nothing = WriteSummary::new(&table, &[]).unwrap();
        catalog
            .commit_write(committed, &table, nothing)
            .await
            .unwrap();
        let aborted = catalog.begin_write(&table).await.unwrap().take_over();
        catalog
            .abort_write(aborted, Some(table.id()))
            .await
            .unwrap();
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
        let found: Vec<_> = segment_rows(&state, worker, SegmentList { segments })
            .map(|segment| {
                let write = WriteId(segment.description.write_id);
                (segment.table.name().to_string(), write, segment.is_visible)
            })
            .collect();
        let birds = || "birds".to_owned();
        assert_eq!(
            found,
            [
                (birds(), committed, true),
                (birds(), open, false),
                (birds(), later, false)
            ]
        );
        drop(catalog);
        std::fs::remove_dir_all(directory).unwrap();
    }
}
