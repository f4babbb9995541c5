use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use volary_flight_proto::write_set::WriteSet;

use super::controlled_store::{ControlledStore, full_disk};
use super::write_numbers::RESERVED_AT_ONCE;
use super::*;

async fn create_orders(catalog: &Catalog, workers: &[WorkerId]) -> Arc<Table> {
    let orders = sharded("orders", 4);
    let created = catalog
        .create_table(orders, workers, IfExists::Fail, &anybody())
        .await;
    created.unwrap().unwrap()
}

#[tokio::test]
async fn writes_are_visible_by_their_commits_and_not_by_their_numbers() {
    let directory = Directory::new();
    let (catalog, workers) = with_workers(&directory, 2).await;
    let table = create_orders(&catalog, &workers).await;
    let mut writes = Vec::new();
    for _ in 0..6 {
        writes.push(catalog.begin_write(&table).await.unwrap().take_over());
    }
    let visible = || {
        let snapshot = catalog.state().snapshot();
        let visible = (1..7).filter(|number| snapshot.sees(writes[number - 1]));
        visible.collect::<Vec<_>>()
    };
    let commit = async |number: usize| {
        let summary = WriteSummary::new(&table, &[(workers[0], written(3, 7))]).unwrap();
        catalog
            .commit_write(writes[number - 1], &table, summary)
            .await
    };
    let abort = async |number: usize| {
        let aborted = catalog.abort_write(writes[number - 1], Some(table.id()));
        aborted.await.unwrap()
    };
    assert!(visible().is_empty());
    commit(4).await.unwrap();
    assert_eq!(visible(), [4]);
    commit(2).await.unwrap();
    assert_eq!(visible(), [2, 4]);
    assert!(abort(3).await && abort(6).await);
    assert!(!abort(4).await && !abort(3).await);
    for number in [4, 3, 6] {
        let error = commit(number).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::Cancelled, "{number}");
    }
    commit(5).await.unwrap();
    assert_eq!(visible(), [2, 4, 5]);
    let failed: WriteSet = [writes[2], writes[5]].into_iter().collect();
    assert_eq!(catalog.state().aborted_writes_of(workers[1]), failed);
    // The first abort is forgotten before the second one, when both workers have deleted its rows.
    let first = catalog.state().last_abort() - 1;
    catalog
        .record_deletions(workers[0], first + 1)
        .await
        .unwrap();
    catalog.record_deletions(workers[1], first).await.unwrap();
    let failed = WriteSet::of_range(writes[5], writes[5]);
    assert_eq!(catalog.state().aborted_writes_of(workers[0]), failed);
    assert!(!visible().contains(&1) && !visible().contains(&6));
    commit(1).await.unwrap();
    // A worker that has restarted says that it has deleted nothing since.
    catalog.record_deletions(workers[0], 0).await.unwrap();
    catalog
        .record_deletions(workers[1], first + 1)
        .await
        .unwrap();
    assert_eq!(catalog.state().aborted_writes_of(workers[0]), failed);
    catalog
        .record_deletions(workers[0], first + 1)
        .await
        .unwrap();
    assert!(catalog.state().aborted_writes_of(workers[0]).is_empty());
    assert_eq!(catalog.state().commits(), 4);
}

#[tokio::test]
async fn a_write_begins_without_the_store_and_no_number_is_given_out_twice() {
    let directory = Directory::new();
    let (catalog, workers) = with_workers(&directory, 1).await;
    let table = create_orders(&catalog, &workers).await;
    let mut last = WriteId(0);
    let mut versions = std::collections::BTreeSet::new();
    for _ in 0..2 * RESERVED_AT_ONCE {
        let write = catalog.begin_write(&table).await.unwrap().take_over();
        assert!(write > last);
        last = write;
        versions.insert(catalog.state().version());
    }
    assert_eq!(versions.len(), 2);
    drop(catalog);
    let catalog = open(&directory.0).await.unwrap();
    let next = catalog.begin_write(&table).await.unwrap().take_over();
    assert!(next > last);
}

#[tokio::test]
async fn a_gateway_that_is_killed_in_a_load_leaves_nothing_visible() {
    let directory = Directory::new();
    let (catalog, workers) = with_workers(&directory, 2).await;
    let orders = catalog
        .create_table(sharded("orders", 4), &workers, IfExists::Fail, &anybody())
        .await
        .unwrap()
        .unwrap();
    load(&catalog, "orders", 10).await;
    let write = catalog.begin_write(&orders).await.unwrap().take_over();
    let (created, copying) = catalog
        .begin_create(sharded("copy", 16), &workers, IfExists::Fail, &anybody())
        .await
        .unwrap();
    copying.take_over();
    assert!(catalog.state().table(&named("copy")).is_none());
    assert!(
        catalog
            .state()
            .retained_tables()
            .any(|table| table == created.id())
    );
    drop(catalog);

    let catalog = open(&directory.0).await.unwrap();
    let state = catalog.state();
    assert!(!state.snapshot().sees(write));
    assert_eq!(state.table(&named("orders")).unwrap().statistics().rows, 10);
    assert!(!state.retained_tables().any(|table| table == created.id()));
    assert!(state.last_table_id() >= created.id());
    assert!(state.placements().all(|placement| placement.shards != 16));
    // All writes that had been reserved count as failed.
    let last = RESERVED_AT_ONCE;
    for worker in &workers {
        let aborted = state.aborted_writes_of(*worker);
        assert_eq!(aborted, WriteSet::of_range(write, WriteId(last)));
        let excluded = catalog.state().snapshot().excluded_bounds;
        assert_eq!(excluded, [write.0, last]);
        let through = catalog.state().last_abort();
        catalog.record_deletions(*worker, through).await.unwrap();
    }
    assert!(catalog.state().snapshot().excluded_bounds.is_empty());
    assert_eq!(catalog.state().snapshot().high, last);
    let next = catalog
        .create_table(sharded("copy", 16), &workers, IfExists::Fail, &anybody())
        .await
        .unwrap()
        .unwrap();
    assert!(next.id() > created.id());
    assert!(catalog.begin_write(&next).await.unwrap().take_over().0 > last);
}

#[tokio::test]
async fn a_table_that_is_created_with_rows_appears_with_them() {
    let directory = Directory::new();
    let (catalog, workers) = with_workers(&directory, 2).await;
    let (table, write) = catalog
        .begin_create(sharded("copy", 4), &workers, IfExists::Fail, &anybody())
        .await
        .unwrap();
    let write = write.take_over();
    let taken = catalog
        .create_table(sharded("copy", 4), &workers, IfExists::Keep, &anybody())
        .await
        .unwrap_err();
    assert_eq!(taken.code(), ErrorCode::AlreadyExists);
    assert!(taken.message().contains("being created"), "{taken}");
    let summary = WriteSummary::new(&table, &[(workers[0], written(3, 7))]).unwrap();
    catalog.commit_write(write, &table, summary).await.unwrap();
    let state = catalog.state();
    assert_eq!(state.table(&named("copy")).unwrap().statistics().rows, 7);
    assert!(state.snapshot().sees(write));
    // A statement that is cancelled during its commit must not delete committed rows.
    assert!(!catalog.abort_write(write, Some(table.id())).await.unwrap());
    assert!(catalog.state().snapshot().sees(write));

    let (other, write) = catalog
        .begin_create(sharded("other", 4), &workers, IfExists::Fail, &anybody())
        .await
        .unwrap();
    let write = write.take_over();
    assert!(catalog.abort_write(write, Some(other.id())).await.unwrap());
    assert!(!catalog.abort_write(write, Some(other.id())).await.unwrap());
    assert!(
        catalog
            .create_table(sharded("other", 4), &workers, IfExists::Fail, &anybody())
            .await
            .unwrap()
            .is_some()
    );
}

#[tokio::test]
async fn a_write_to_a_table_that_was_dropped_is_refused() {
    let directory = Directory::new();
    let (catalog, workers) = with_workers(&directory, 1).await;
    let table = catalog
        .create_table(sharded("orders", 4), &workers, IfExists::Fail, &anybody())
        .await
        .unwrap()
        .unwrap();
    let write = catalog.begin_write(&table).await.unwrap().take_over();
    catalog
        .drop_tables([named("orders")].into(), false, &anybody())
        .await
        .unwrap();
    let summary = WriteSummary::new(&table, &[(workers[0], written(3, 7))]).unwrap();
    let error = catalog
        .commit_write(write, &table, summary.clone())
        .await
        .unwrap_err();
    assert_eq!(error.code(), ErrorCode::NotFound);
    assert!(
        error.message().contains("\"orders\" was dropped"),
        "{error}"
    );
    catalog.abort_write(write, Some(table.id())).await.unwrap();
    assert!(catalog.state().snapshot().excluded_bounds.is_empty());
    let error = catalog
        .commit_write(write, &table, summary)
        .await
        .unwrap_err();
    assert_eq!(error.code(), ErrorCode::Cancelled);
    assert_eq!(
        catalog.begin_write(&table).await.unwrap_err().code(),
        ErrorCode::NotFound
    );
}

#[tokio::test]
async fn copies_of_a_reference_table_are_counted_once() {
    let directory = Directory::new();
    let (catalog, workers) = with_workers(&directory, 3).await;
    let nation = definition("nation", DefinitionKind::Reference);
    let nation = catalog
        .create_table(nation, &workers, IfExists::Fail, &anybody())
        .await
        .unwrap()
        .unwrap();
    let answers: Vec<_> = workers
        .iter()
        .map(|worker| (*worker, written(0, 25)))
        .collect();
    assert_eq!(WriteSummary::new(&nation, &answers).unwrap().rows(), 25);
    let unequal = [(workers[0], written(0, 25)), (workers[1], written(0, 24))];
    assert_eq!(
        WriteSummary::new(&nation, &unequal).unwrap_err().code(),
        ErrorCode::Internal
    );
}

#[tokio::test]
async fn a_table_is_there_until_the_one_that_replaces_it_is() {
    let directory = Directory::new();
    let (catalog, workers) = with_workers(&directory, 2).await;
    let first = catalog
        .create_table(sharded("orders", 4), &workers, IfExists::Fail, &anybody())
        .await
        .unwrap()
        .unwrap();
    let by = anybody();
    let begin = async || {
        let begun = catalog.begin_create(sharded("orders", 8), &workers, IfExists::Replace, &by);
        let (table, write) = begun.await.unwrap();
        (table, write.take_over())
    };
    let (abandoned, write) = begin().await;
    assert_eq!(
        catalog.state().table(&named("orders")).unwrap().id(),
        first.id()
    );
    assert!(
        catalog
            .abort_write(write, Some(abandoned.id()))
            .await
            .unwrap()
    );
    assert_eq!(
        catalog.state().table(&named("orders")).unwrap().id(),
        first.id()
    );
    assert!(
        !catalog
            .state()
            .retained_tables()
            .any(|id| id == abandoned.id())
    );

    // A write that is open when the gateway ends is aborted at the next start.
    let (third, left_open) = begin().await;
    let (second, write) = begin().await;
    let summary = WriteSummary::new(&second, &[]).unwrap();
    catalog.commit_write(write, &second, summary).await.unwrap();
    let state = catalog.state();
    assert_eq!(state.table(&named("orders")).unwrap().id(), second.id());
    assert_eq!(state.table(&named("orders")).unwrap().shards(), 8);
    assert!(!state.retained_tables().any(|id| id == first.id()));
    drop(catalog);
    let catalog = open(&directory.0).await.unwrap();
    assert_eq!(
        catalog.state().table(&named("orders")).unwrap().id(),
        second.id()
    );
    assert!(
        !catalog
            .abort_write(left_open, Some(third.id()))
            .await
            .unwrap()
    );
}

#[tokio::test]
async fn the_last_of_two_replacements_stays() {
    let directory = Directory::new();
    let (catalog, workers) = with_workers(&directory, 1).await;
    catalog
        .create_table(sharded("orders", 4), &workers, IfExists::Fail, &anybody())
        .await
        .unwrap();
    let by = anybody();
    let begin = async || {
        let begun = catalog.begin_create(sharded("orders", 4), &workers, IfExists::Replace, &by);
        let (table, write) = begun.await.unwrap();
        (table, write.take_over())
    };
    let (one, write_of_one) = begin().await;
    let (other, write_of_other) = begin().await;
    for (table, write) in [(&other, write_of_other), (&one, write_of_one)] {
        let summary = WriteSummary::new(table, &[]).unwrap();
        catalog.commit_write(write, table, summary).await.unwrap();
        assert_eq!(
            catalog.state().table(&named("orders")).unwrap().id(),
            table.id()
        );
    }
    assert_eq!(
        catalog.state().retained_tables().collect::<Vec<_>>(),
        [one.id()]
    );
}

/// A waker that records that it was called.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Creates the table as soon as no other statement is creating it. Panics after 20 seconds.
async fn create_at_last(catalog: &Catalog, workers: &[WorkerId]) {
    let creating = async {
        while let Err(error) = catalog
            .create_table(sharded("orders", 4), workers, IfExists::Fail, &anybody())
            .await
        {
            assert!(error.message().contains("being created"), "{error}");
            tokio::task::yield_now().await;
        }
    };
    let limit = Duration::from_secs(20);
    tokio::time::timeout(limit, creating)
        .await
        .expect("the table is not being created any more");
}

#[tokio::test]
async fn a_statement_that_is_cancelled_before_it_knows_its_write_leaves_none_open() {
    let directory = Directory::new();
    let (catalog, workers) = with_workers(&directory, 1).await;
    let by = anybody();
    let mut begin =
        Box::pin(catalog.begin_create(sharded("orders", 4), &workers, IfExists::Fail, &by));
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    assert!(
        begin
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    // The write has been sent to the statement, which never receives it.
    while !woken.0.load(Ordering::SeqCst) {
        tokio::task::yield_now().await;
    }
    drop(begin);
    create_at_last(&catalog, &workers).await;
}

#[tokio::test]
async fn a_write_that_is_dropped_is_aborted() {
    let directory = Directory::new();
    let (catalog, workers) = with_workers(&directory, 1).await;
    let begun = catalog
        .begin_create(sharded("orders", 4), &workers, IfExists::Fail, &anybody())
        .await;
    drop(begun.unwrap());
    create_at_last(&catalog, &workers).await;
}

#[tokio::test]
async fn bounds_that_do_not_fit_the_columns_are_refused_and_those_of_other_types_left_out() {
    let directory = Directory::new();
    let (catalog, workers) = with_workers(&directory, 1).await;
    let table = create_orders(&catalog, &workers).await;
    let summary = |result: WriteResult| WriteSummary::new(&table, &[(workers[0], result)]);
    let mut result = written(0, 7);
    result.columns[1].has_bounds = true;
    let refused = summary(result).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::Internal);
    assert!(
        refused.message().contains("two rows of 2 columns"),
        "{refused}"
    );
    // The bounds are integers, and the second column has floating-point numbers.
    let mut result = written(0, 7);
    result.columns.swap(0, 1);
    let summary = summary(result).unwrap();
    let columns = &summary.delta().columns;
    assert!(columns.iter().all(|column| column.min.is_none()));
}

#[tokio::test]
async fn an_abort_that_the_store_does_not_take_is_tried_again() {
    let directory = Directory::new();
    let store = ControlledStore::open(&directory).await;
    let catalog = Catalog::open(Arc::clone(&store) as _).await.unwrap();
    let worker = catalog.register_worker(None, "127.0.0.1:7201", "0.1.0", None);
    let workers = [worker.await.unwrap().id];
    catalog
        .create_table(sharded("orders", 4), &workers, IfExists::Fail, &anybody())
        .await
        .unwrap();
    let table = Arc::clone(catalog.state().table(&named("orders")).unwrap());
    let dropped = catalog.begin_write(&table).await.unwrap();
    store.fail_next(2, full_disk);
    drop(dropped);
    while catalog.state().aborted_writes_of(workers[0]).is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(store.failures_left(), 0);
}

#[tokio::test]
async fn the_writes_of_an_earlier_release_keep_their_state() {
    let directory = Directory::new();
    let (catalog, workers) = with_workers(&directory, 2).await;
    let table = create_orders(&catalog, &workers).await;
    drop(catalog);
    // An earlier release has given out the numbers up to 9, and has records of two open or failed
    // writes.
    let store = RedbStore::open(&directory.0, Arc::new(LocalDisk))
        .await
        .unwrap();
    let entries = store.load().await.unwrap().entries;
    let mut cluster: serde_json::Value = serde_json::from_slice(&entries["cluster"].value).unwrap();
    let fields = cluster.as_object_mut().unwrap();
    for field in ["high", "undecided", "commits", "next_abort"] {
        fields.remove(field);
    }
    fields.insert("next_write".to_owned(), 10.into());
    fields.insert("format".to_owned(), 8.into());
    let (first, second) = (workers[0].0, table.id().0);
    let open_write =
        format!(r#"{{"format":1,"id":7,"table":{second},"table_name":"orders","state":"open"}}"#);
    let failed = format!(
        r#"{{"format":1,"id":3,"table":{second},"table_name":"orders","state":{{"aborted":{{"pending":[{first}]}}}}}}"#
    );
    let put = |key: &str, value: Vec<u8>| EntryChange::Put {
        key: key.to_owned(),
        value,
    };
    let changes = vec![
        put("cluster", serde_json::to_vec(&cluster).unwrap()),
        put("write/7", open_write.into_bytes()),
        put("write/3", failed.into_bytes()),
    ];
    store.commit(Vec::new(), changes).await.unwrap();
    drop(store);
    let catalog = open(&directory.0).await.unwrap();
    let state = catalog.state();
    let snapshot = state.snapshot();
    let seen: Vec<_> = (1..12)
        .filter(|write| snapshot.sees(WriteId(*write)))
        .collect();
    assert_eq!(seen, [1, 2, 4, 5, 6, 8, 9]);
    let of_worker = |worker| state.aborted_writes_of(worker).to_string();
    assert_eq!(
        (of_worker(workers[0]), of_worker(workers[1])),
        ("wr3, wr7".to_owned(), "wr7".to_owned())
    );
    for worker in &workers {
        catalog
            .record_deletions(*worker, state.last_abort())
            .await
            .unwrap();
    }
    drop(catalog);
    let catalog = open(&directory.0).await.unwrap();
    assert!(catalog.state().snapshot().excluded_bounds.is_empty());
    assert!(load(&catalog, "orders", 3).await.0 > 9);
}
