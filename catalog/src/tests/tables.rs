use super::*;
use crate::definition::MAX_SHARDS;

#[tokio::test]
async fn tables_of_equal_shard_count_share_their_placement() {
    let directory = Directory::new();
    let (catalog, workers) = with_workers(&directory, 3).await;
    let create = async |name: &str, shards: u32, live: &[WorkerId]| {
        catalog
            .create_table(sharded(name, shards), live, IfExists::Fail, &anybody())
            .await
            .unwrap()
            .unwrap()
    };
    let orders = create("orders", 8, &workers).await;
    let lineitem = create("lineitem", 8, &workers[..1]).await;
    assert!(Arc::ptr_eq(
        orders.placement().unwrap(),
        lineitem.placement().unwrap()
    ));
    let mut counts = workers.iter().map(|worker| {
        (0..8)
            .filter(|shard| orders.worker_of(*shard) == Some(*worker))
            .count()
    });
    assert!(counts.all(|count| count == 2 || count == 3));

    // The worker that holds the least gets the only shard.
    let few = create("few", 1, &workers).await;
    assert_eq!(few.worker_of(0), Some(workers[2]));
    assert_eq!(few.worker_of(1), None);

    // A placement that no table uses any more is created anew.
    for name in ["orders", "lineitem"] {
        catalog
            .drop_tables([named(name)].into(), false, &anybody())
            .await
            .unwrap();
    }
    let orders = create("orders", 8, &workers[..2]).await;
    assert_eq!(orders.workers(), &workers[..2]);
    assert!(orders.placement().unwrap().epoch > few.placement().unwrap().epoch);
}

#[tokio::test]
async fn an_emptied_table_keeps_all_but_its_rows() {
    let directory = Directory::new();
    let (catalog, workers) = with_workers(&directory, 2).await;
    let table = catalog
        .create_table(sharded("orders", 4), &workers, IfExists::Fail, &anybody())
        .await
        .unwrap()
        .unwrap();
    let write = catalog.begin_write(&table).await.unwrap().take_over();
    let truncate = async |name: &str, if_exists| {
        let names = [named("orders"), named(name)].into();
        catalog.truncate_tables(names, if_exists, &anybody()).await
    };
    let error = truncate("nothing", false).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::NotFound);
    assert_eq!(
        catalog.state().table(&named("orders")).unwrap().id(),
        table.id()
    );
    let emptied = truncate("nothing", true).await.unwrap();
    assert_eq!(emptied.len(), 1);
    assert_eq!(emptied[0].id(), table.id());
    {
        let state = catalog.state();
        let empty = state.table(&named("orders")).unwrap();
        assert!(empty.id() > table.id());
        assert_eq!(empty.placement(), table.placement());
        assert_eq!(
            (empty.kind(), empty.schema()),
            (table.kind(), table.schema())
        );
        assert!(state.table_by_id(table.id()).is_none());
    }
    // A write that had begun before does not find its table.
    let nothing = WriteSummary::new(&table, &[]).unwrap();
    let error = catalog
        .commit_write(write, &table, nothing)
        .await
        .unwrap_err();
    assert_eq!(error.code(), ErrorCode::NotFound);
}

#[tokio::test]
async fn names_are_taken_once() {
    let directory = Directory::new();
    let (catalog, workers) = with_workers(&directory, 1).await;
    let table = catalog
        .create_table(sharded("orders", 4), &workers, IfExists::Fail, &anybody())
        .await
        .unwrap()
        .unwrap();
    let code = |error: Error| (error.code(), error.message().contains("\"orders\""));
    let taken = (ErrorCode::AlreadyExists, true);
    let again = catalog
        .create_table(sharded("orders", 8), &workers, IfExists::Fail, &anybody())
        .await;
    assert_eq!(code(again.unwrap_err()), taken);
    assert!(
        catalog
            .create_table(sharded("orders", 8), &workers, IfExists::Keep, &anybody())
            .await
            .unwrap()
            .is_none()
    );
    let view = catalog
        .create_view(
            new_view("orders", "SELECT 1", table.schema().clone()),
            true,
            &anybody(),
        )
        .await;
    assert_eq!(code(view.unwrap_err()), taken);
    assert!(
        catalog
            .create_table(sharded("Orders", 4), &workers, IfExists::Fail, &anybody())
            .await
            .unwrap()
            .is_some()
    );

    catalog
        .create_view(
            new_view("v", "SELECT 1", table.schema().clone()),
            false,
            &anybody(),
        )
        .await
        .unwrap();
    let table_of_the_view = catalog
        .create_table(sharded("v", 4), &workers, IfExists::Keep, &anybody())
        .await;
    assert_eq!(
        table_of_the_view.unwrap_err().code(),
        ErrorCode::AlreadyExists
    );
    let again = catalog
        .create_view(
            new_view("v", "SELECT 2", table.schema().clone()),
            false,
            &anybody(),
        )
        .await;
    assert_eq!(again.unwrap_err().code(), ErrorCode::AlreadyExists);
    catalog
        .create_view(
            new_view("v", "SELECT 2", table.schema().clone()),
            true,
            &anybody(),
        )
        .await
        .unwrap();
    assert_eq!(catalog.state().view(&named("v")).unwrap().sql(), "SELECT 2");

    let missing = catalog
        .drop_tables([named("order")].into(), false, &anybody())
        .await
        .unwrap_err();
    assert!(
        missing.message().contains("did you mean \"orders\""),
        "{missing}"
    );
    assert!(
        catalog
            .drop_tables([named("order")].into(), true, &anybody())
            .await
            .unwrap()
            .is_empty()
    );
    assert_eq!(
        catalog
            .drop_tables([named("v")].into(), true, &anybody())
            .await
            .unwrap_err()
            .code(),
        ErrorCode::InvalidArgument
    );
    let both = [named("v"), named("w")];
    let error = catalog
        .drop_views(ViewKind::View, both.into(), false, &anybody())
        .await
        .unwrap_err();
    assert_eq!(error.code(), ErrorCode::NotFound);
    assert!(catalog.state().view(&named("v")).is_some());
    let by = anybody();
    let dropped = catalog.drop_views(ViewKind::View, [named("v")].into(), false, &by);
    assert_eq!(dropped.await.unwrap(), 1);
}

#[tokio::test]
async fn definitions_that_cannot_be_tables_are_refused() {
    let directory = Directory::new();
    let (catalog, workers) = with_workers(&directory, 1).await;
    let float_key = definition(
        "t",
        DefinitionKind::Sharded {
            key: Some(1),
            shards: 4,
        },
    );
    for (bad, said) in [
        (sharded("t", 0), "1 to 65536"),
        (sharded("t", MAX_SHARDS + 1), "1 to 65536"),
        (float_key, "column \"value\""),
    ] {
        let error = catalog
            .create_table(bad, &workers, IfExists::Fail, &anybody())
            .await
            .unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidArgument);
        assert!(error.message().contains(said), "{error}");
    }
    let error = catalog
        .create_table(sharded("t", 4), &[], IfExists::Fail, &anybody())
        .await
        .unwrap_err();
    assert_eq!(error.code(), ErrorCode::Unavailable);
}

#[tokio::test]
async fn a_worker_keeps_its_id_and_is_found_at_its_new_address() {
    let directory = Directory::new();
    let (catalog, workers) = with_workers(&directory, 2).await;
    let moved = catalog
        .register_worker(Some(workers[0]), "10.0.0.1:7200", "0.1.1", None)
        .await
        .unwrap();
    assert_eq!(
        (moved.id, moved.address.as_str()),
        (workers[0], "10.0.0.1:7200")
    );
    assert_eq!(moved.zone, None);
    for zone in [Some("b"), Some("c"), None] {
        let elsewhere = catalog
            .register_worker(Some(workers[0]), "10.0.0.1:7200", "0.1.1", zone)
            .await
            .unwrap();
        assert_eq!(elsewhere.zone.as_deref(), zone);
    }
    let unknown = catalog
        .register_worker(Some(WorkerId(99)), "10.0.0.2:7200", "0.1.1", None)
        .await;
    assert_eq!(unknown.unwrap_err().code(), ErrorCode::NotFound);
    let another = catalog
        .register_worker(None, "10.0.0.2:7200", "0.1.1", None)
        .await
        .unwrap();
    assert!(another.id > workers[1]);
}
