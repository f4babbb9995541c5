use std::collections::BTreeSet;

use tokio::task::JoinHandle;

use super::controlled_store::{ControlledStore, store_is_away, until};
use super::*;

/// A catalog that creates the table `first`, and waits for the store.
struct Held {
    store: Arc<ControlledStore>,
    catalog: Catalog,
    workers: Vec<WorkerId>,
    /// Number of commits before that of the table.
    before: usize,
    first: JoinHandle<Result<Arc<Table>>>,
}

impl Held {
    async fn open(directory: &Directory) -> Self {
        let store = ControlledStore::open(directory).await;
        let catalog = Catalog::open(store.clone()).await.unwrap();
        let workers = vec![worker(&catalog).await];
        store.hold();
        let before = store.begun();
        let first = tokio::spawn(create(&catalog, "first", &workers));
        until(|| store.begun() == before + 1).await;
        Self {
            store,
            catalog,
            workers,
            before,
            first,
        }
    }
}

#[tokio::test]
async fn writes_that_wait_for_the_store_are_committed_together() {
    const WRITES: u32 = 50;
    let directory = Directory::new();
    let store = ControlledStore::open(&directory).await;
    let catalog = Catalog::open(store.clone()).await.unwrap();
    let table = one_table(&catalog).await;
    let mut ids = Vec::new();
    for _ in 0..WRITES {
        ids.push(catalog.begin_write(&table).await.unwrap().take_over());
    }
    let before = store.begun();
    store.hold();
    let mut committing = tokio::task::JoinSet::new();
    for id in ids {
        let (catalog, table) = (catalog.clone(), Arc::clone(&table));
        committing.spawn(async move {
            let results = [(table.workers()[0], written(id.0 as u32 % 4, 7))];
            let summary = WriteSummary::new(&table, &results).unwrap();
            catalog.commit_write(id, &table, summary).await
        });
        // The first write waits for the store, and the others for their turn.
        until(|| store.begun() == before + 1).await;
    }
    until(|| catalog.inner.committer.waiting() == WRITES as usize - 1).await;
    assert_eq!(rows(&catalog), 0, "nothing is visible before it is durable");
    store.allow(2);
    while let Some(committed) = committing.join_next().await {
        committed.unwrap().unwrap();
    }
    assert_eq!(store.begun(), before + 2);
    assert_eq!(rows(&catalog), u64::from(WRITES) * 7);
    drop(catalog);
    let catalog = open_store(store).await;
    assert_eq!(rows(&catalog), u64::from(WRITES) * 7);
}

#[tokio::test]
async fn a_change_that_is_refused_or_panics_leaves_the_others_of_its_group_alone() {
    let directory = Directory::new();
    let Held {
        store,
        catalog,
        workers,
        before,
        first,
    } = Held::open(&directory).await;
    let second = tokio::spawn(create(&catalog, "second", &workers));
    until(|| catalog.inner.committer.waiting() == 1).await;
    let again = tokio::spawn(create(&catalog, "second", &workers));
    until(|| catalog.inner.committer.waiting() == 2).await;
    let broken = catalog.clone();
    let broken = tokio::spawn(async move {
        let change = |draft: &mut Draft| -> Result<()> {
            draft.next_table();
            panic!("a fault of the test");
        };
        broken.change(change).await
    });
    until(|| catalog.inner.committer.waiting() == 3).await;
    let third = tokio::spawn(create(&catalog, "third", &workers));
    until(|| catalog.inner.committer.waiting() == 4).await;
    store.allow(2);
    let ids: Vec<_> = [
        first.await.unwrap().unwrap(),
        second.await.unwrap().unwrap(),
        third.await.unwrap().unwrap(),
    ]
    .iter()
    .map(|table| table.id().0)
    .collect();
    let refused = again.await.unwrap().unwrap_err();
    assert_eq!(refused.code(), ErrorCode::AlreadyExists, "{refused}");
    let panicked = broken.await.unwrap().unwrap_err();
    assert_eq!(panicked.code(), ErrorCode::Internal, "{panicked}");
    assert_eq!(ids, [ids[0], ids[0] + 1, ids[0] + 2]);
    assert_eq!(store.begun(), before + 2);
}

#[tokio::test]
async fn a_store_that_fails_fails_all_changes_of_the_group_and_none_is_made() {
    let directory = Directory::new();
    let Held {
        store,
        catalog,
        workers,
        before,
        first,
    } = Held::open(&directory).await;
    let waiting: Vec<_> = ["second", "third"]
        .map(|name| tokio::spawn(create(&catalog, name, &workers)))
        .into();
    until(|| catalog.inner.committer.waiting() == 2).await;
    store.allow(1);
    first.await.unwrap().unwrap();
    until(|| store.begun() == before + 2).await;
    store.fail_next(usize::MAX, store_is_away);
    store.allow(1);
    for change in waiting {
        let error = change.await.unwrap().unwrap_err();
        assert_eq!(error.code(), ErrorCode::Unavailable, "{error}");
        assert!(error.message().contains("the store is away"), "{error}");
        assert_eq!(
            error.text(),
            "UNAVAILABLE: the store is away: a fault of the test"
        );
    }
    store.fail_next(0, store_is_away);
    store.allow(100);
    assert!(catalog.state().table(&named("second")).is_none());
    create(&catalog, "second", &workers).await.unwrap();
}

#[tokio::test]
async fn statistics_are_the_same_after_a_restart_however_many_writes_there_were() {
    const SHARDS: u32 = 300;
    let directory = Directory::new();
    let (catalog, workers) = with_workers(&directory, 1).await;
    let table = catalog
        .create_table(sharded("t", SHARDS), &workers, IfExists::Fail, &anybody())
        .await
        .unwrap()
        .unwrap();
    let mut most_entries = 0;
    for number in 0..400 {
        let write = catalog.begin_write(&table).await.unwrap().take_over();
        let results = [(workers[0], written(number * 7 % SHARDS, number % 5 + 1))];
        let summary = WriteSummary::new(&table, &results).unwrap();
        catalog.commit_write(write, &table, summary).await.unwrap();
        if number % 50 == 49 {
            let before = statistics(&catalog);
            let stored = catalog.inner.committer.store().load().await.unwrap();
            most_entries = most_entries.max(stored.entries.len());
            let state = CatalogState::load(&stored).unwrap().unwrap();
            let table = state.table(&named("t")).unwrap();
            assert_eq!(**table.statistics(), before, "after {number} writes");
        }
    }
    // The deltas were folded into the whole statistics meanwhile.
    assert!(most_entries < 300, "{most_entries}");
    let name = BTreeSet::from([named("t")]);
    catalog.drop_tables(name, false, &anybody()).await.unwrap();
    let stored = catalog.inner.committer.store().load().await.unwrap();
    let left: Vec<_> = stored.entries.keys().collect();
    assert!(
        !left.iter().any(|key| key.starts_with("statistics")),
        "{left:?}"
    );
}

fn statistics(catalog: &Catalog) -> TableStatistics {
    let state = catalog.state();
    let table = state.table(&named("t")).unwrap();
    table.statistics().as_ref().clone()
}

fn rows(catalog: &Catalog) -> u64 {
    statistics(catalog).rows
}

async fn open_store(store: Arc<ControlledStore>) -> Catalog {
    store.allow(100);
    Catalog::open(store).await.unwrap()
}

async fn worker(catalog: &Catalog) -> WorkerId {
    let worker = catalog.register_worker(None, "127.0.0.1:7201", "0.1.0", None);
    worker.await.unwrap().id
}

async fn one_table(catalog: &Catalog) -> Arc<Table> {
    let workers = [worker(catalog).await];
    create(catalog, "t", &workers).await.unwrap()
}

fn create(
    catalog: &Catalog,
    name: &str,
    workers: &[WorkerId],
) -> impl Future<Output = Result<Arc<Table>>> + Send + use<> {
    let (catalog, definition, workers) = (catalog.clone(), sharded(name, 4), workers.to_vec());
    async move {
        let by = anybody();
        let created = catalog.create_table(definition, &workers, IfExists::Fail, &by);
        Ok(created.await?.unwrap())
    }
}
