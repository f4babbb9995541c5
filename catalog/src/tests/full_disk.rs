use std::collections::BTreeSet;

use volary_faulty_disk::FaultyDisk;

use super::controlled_store::{ControlledStore, full_disk, until};
use super::*;

fn ballast(directory: &Directory) -> u64 {
    let file = directory.0.join("catalog.ballast");
    file.metadata().map_or(0, |metadata| metadata.len())
}

async fn open_on(directory: &Directory, disk: &FaultyDisk) -> Result<Catalog> {
    let store = RedbStore::open(&directory.0, Arc::new(disk.clone())).await?;
    Catalog::open(Arc::new(store)).await
}

fn put(key: usize) -> Vec<EntryChange> {
    vec![EntryChange::Put {
        key: key.to_string(),
        value: vec![b'x'; 9000],
    }]
}

fn refusal(committed: Result<u64, CommitError>) -> Option<ErrorCode> {
    match committed {
        Ok(_) => None,
        Err(CommitError::Failed(error)) => Some(error.code()),
        Err(conflict) => panic!("{conflict}"),
    }
}

#[tokio::test]
async fn only_some_changes_use_the_ballast_and_it_is_allocated_again() {
    let directory = Directory::new();
    let disk = FaultyDisk::over(&directory.0).unwrap();
    let store = RedbStore::open(&directory.0, Arc::new(disk.clone()));
    let store = store.await.unwrap();
    store.commit(Vec::new(), put(0)).await.unwrap();
    let filled = ballast(&directory);
    assert!(filled > 0);
    disk.set_room(Some(0));
    let mut keys = 1..;
    let refused = loop {
        let committed = store.commit(Vec::new(), put(keys.next().unwrap())).await;
        if let Some(code) = refusal(committed) {
            break code;
        }
    };
    assert_eq!(refused, ErrorCode::ResourceExhausted);
    assert_eq!(ballast(&directory), filled, "it is not for everybody");
    let made = store.commit_with_ballast(Vec::new(), put(keys.next().unwrap()));
    made.await.unwrap();
    let left = ballast(&directory);
    assert!(left < filled, "{left} of {filled} bytes are left");
    assert!(left > 0, "the rest was not taken back");
    let stored = keys.start - 1;
    assert_eq!(store.load().await.unwrap().entries.len(), stored);
    // Used up, it helps no more.
    let refused = loop {
        let change = put(keys.next().unwrap());
        let committed = store.commit_with_ballast(Vec::new(), change).await;
        if let Some(code) = refusal(committed) {
            break code;
        }
    };
    assert_eq!(refused, ErrorCode::ResourceExhausted);
    assert_eq!(
        store.load().await.unwrap().entries.len(),
        keys.start - 2,
        "all but the two that were refused"
    );
    disk.set_room(None);
    store.commit(Vec::new(), put(0)).await.unwrap();
    assert!(ballast(&directory) >= filled);
}

#[tokio::test]
async fn on_a_full_disk_a_gateway_reads_aborts_drops_and_starts_again() {
    let directory = Directory::new();
    let disk = FaultyDisk::over(&directory.0).unwrap();
    let catalog = open_on(&directory, &disk).await.unwrap();
    let worker = catalog.register_worker(None, "127.0.0.1:7201", "0.1.0", None);
    let workers = [worker.await.unwrap().id];
    let by = anybody();
    let create = async |catalog: &Catalog, number: usize| {
        let table = sharded(&format!("t{number}"), 4);
        let created = catalog.create_table(table, &workers, IfExists::Fail, &by);
        Ok::<_, Error>(created.await?.unwrap())
    };
    let first = create(&catalog, 0).await.unwrap();
    let write = catalog.begin_write(&first).await.unwrap().take_over();
    let filled = ballast(&directory);
    disk.set_room(Some(0));
    let mut numbers = 1..;
    let refused = loop {
        if let Err(refused) = create(&catalog, numbers.next().unwrap()).await {
            break refused;
        }
    };
    assert_eq!(refused.code(), ErrorCode::ResourceExhausted, "{refused}");
    assert!(refused.message().contains("catalog.redb"), "{refused}");
    assert!(catalog.abort_write(write, Some(first.id())).await.unwrap());
    catalog
        .record_deletions(workers[0], u64::MAX)
        .await
        .unwrap();
    assert!(catalog.state().aborts.is_empty());
    // A worker may come back at another address.
    let moved = catalog.register_worker(Some(workers[0]), "127.0.0.1:7299", "0.1.0", None);
    assert_eq!(moved.await.unwrap().address, "127.0.0.1:7299");
    drop(catalog);
    disk.set_room(Some(0));
    let catalog = open_on(&directory, &disk).await.unwrap();
    assert_eq!(catalog.state().tables().count(), numbers.start - 1);
    let all: BTreeSet<_> = (1..numbers.start - 1)
        .map(|number| named(&format!("t{number}")))
        .collect();
    let dropped = catalog.drop_tables(all, false, &by).await.unwrap();
    assert_eq!(dropped.len(), numbers.start - 2);
    disk.set_room(None);
    create(&catalog, numbers.start).await.unwrap();
    assert!(ballast(&directory) > 0 && filled > 0);
}

#[tokio::test]
async fn an_abort_is_made_although_the_commits_of_its_group_are_refused() {
    let directory = Directory::new();
    let store = ControlledStore::open(&directory).await;
    store.use_ballast();
    let catalog = Catalog::open(Arc::clone(&store) as _).await.unwrap();
    let worker = catalog.register_worker(None, "127.0.0.1:7201", "0.1.0", None);
    let workers = [worker.await.unwrap().id];
    let by = anybody();
    let created = catalog.create_table(sharded("t", 4), &workers, IfExists::Fail, &by);
    let table = created.await.unwrap().unwrap();
    let begin = async || catalog.begin_write(&table).await.unwrap().take_over();
    let (early, late, failed) = (begin().await, begin().await, begin().await);
    store.hold();
    store.fail_next(usize::MAX, full_disk);
    let before = store.begun();
    let commit = |write| {
        let (catalog, table) = (catalog.clone(), Arc::clone(&table));
        tokio::spawn(async move {
            let results = [(table.workers()[0], written(0, 7))];
            let summary = WriteSummary::new(&table, &results).unwrap();
            catalog.commit_write(write, &table, summary).await
        })
    };
    // The first one has the turn until it is refused, and the others wait.
    let first = commit(early);
    until(|| store.begun() == before + 1).await;
    let second = commit(late);
    until(|| catalog.inner.committer.waiting() == 1).await;
    let (aborting, id) = (catalog.clone(), table.id());
    let aborting = tokio::spawn(async move { aborting.abort_write(failed, Some(id)).await });
    until(|| catalog.inner.committer.waiting() == 2).await;
    store.allow(2);
    for refused in [first, second] {
        let refused = refused.await.unwrap().unwrap_err();
        assert_eq!(refused.code(), ErrorCode::ResourceExhausted, "{refused}");
    }
    assert!(aborting.await.unwrap().unwrap());
    let state = catalog.state();
    assert!(state.is_undecided(early) && state.is_undecided(late) && !state.is_undecided(failed));
}
