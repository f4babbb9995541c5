use std::collections::BTreeMap;

use datafusion::common::ScalarValue;
use volary_faulty_disk::FaultyDisk;

use super::*;

/// Returns the part of a state that can be compared.
fn content(state: &CatalogState) -> impl PartialEq + std::fmt::Debug + use<> {
    let tables: BTreeMap<_, _> = state
        .tables()
        .map(|table| {
            let content = (
                table.description(),
                table.workers().to_vec(),
                table.statistics().clone(),
            );
            (table.id(), content)
        })
        .collect();
    let views: Vec<_> = state
        .views()
        .map(|view| (view.sql().to_owned(), view.schema().clone()))
        .collect();
    let workers: Vec<_> = state.workers().cloned().collect();
    let placements: Vec<_> = state.placements().cloned().collect();
    (
        state.cluster_id(),
        *state.key().as_bytes(),
        state.commits(),
        tables,
        views,
        workers,
        placements,
    )
}

#[tokio::test]
async fn a_catalog_that_is_opened_again_is_the_same() {
    let directory = Directory::new();
    let (catalog, workers) = with_workers(&directory, 3).await;
    catalog
        .create_table(sharded("orders", 8), &workers, IfExists::Fail, &anybody())
        .await
        .unwrap();
    let reference = definition("nation", DefinitionKind::Reference);
    catalog
        .create_table(reference, &workers[..2], IfExists::Fail, &anybody())
        .await
        .unwrap();
    load(&catalog, "orders", 25).await;
    let schema = catalog
        .state()
        .table(&named("orders"))
        .unwrap()
        .schema()
        .clone();
    catalog
        .create_view(
            new_view("recent", "SELECT * FROM orders", schema),
            false,
            &anybody(),
        )
        .await
        .unwrap();
    let before = content(&catalog.state());
    drop(catalog);
    let catalog = open(&directory.0).await.unwrap();
    assert_eq!(content(&catalog.state()), before);
    let orders = catalog.state().table(&named("orders")).unwrap().clone();
    let statistics = orders.statistics();
    assert_eq!(
        (statistics.rows, statistics.bytes, statistics.shards[0].rows),
        (25, 1000, 25)
    );
    assert_eq!(
        statistics.columns[0].max,
        Some(ScalarValue::Int64(Some(25)))
    );
    assert_eq!(orders.sort_key(), [0]);
}

#[tokio::test]
async fn a_transaction_that_relies_on_what_has_changed_is_a_conflict() {
    let directory = Directory::new();
    let store = RedbStore::open(&directory.0, Arc::new(LocalDisk))
        .await
        .unwrap();
    let put = |value: &str| {
        vec![EntryChange::Put {
            key: "k".to_owned(),
            value: value.as_bytes().to_vec(),
        }]
    };
    let expect = |version| {
        vec![ExpectedVersion {
            key: "k".to_owned(),
            version,
        }]
    };
    assert_eq!(store.load().await.unwrap(), StoreContent::default());
    let first = store.commit(expect(None), put("a")).await.unwrap();
    for stale in [None, Some(first + 1)] {
        let conflict = store.commit(expect(stale), put("b")).await.unwrap_err();
        assert!(matches!(conflict, CommitError::Conflict { key } if key == "k"));
    }
    let second = store.commit(expect(Some(first)), put("c")).await.unwrap();
    let entries = store.load().await.unwrap();
    assert_eq!(entries.revision, second);
    assert_eq!(entries.entries["k"].value, b"c");
    assert_eq!(entries.entries["k"].version, second);
}

#[tokio::test]
async fn two_gateways_on_one_store_see_each_others_changes() {
    let directory = Directory::new();
    let store: Arc<dyn MetadataStore> = Arc::new(
        RedbStore::open(&directory.0, Arc::new(LocalDisk))
            .await
            .unwrap(),
    );
    let one = Catalog::open(Arc::clone(&store)).await.unwrap();
    let other = Catalog::open(store).await.unwrap();
    let first = one
        .register_worker(None, "10.0.0.1:7200", "0.1.0", None)
        .await
        .unwrap();
    let second = other
        .register_worker(None, "10.0.0.2:7200", "0.1.0", None)
        .await
        .unwrap();
    assert!(second.id > first.id);
    assert_eq!(other.state().workers().count(), 2);
}

#[tokio::test]
async fn a_file_that_is_no_catalog_is_data_loss() {
    let directory = Directory::new();
    std::fs::write(directory.0.join("catalog.redb"), "not a catalog").unwrap();
    let error = open(&directory.0).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::DataLoss);
    assert!(error.message().contains("catalog.redb"), "{error}");
}

#[tokio::test]
async fn a_catalog_of_a_newer_format_is_refused() {
    let directory = Directory::new();
    let store = RedbStore::open(&directory.0, Arc::new(LocalDisk))
        .await
        .unwrap();
    let newer = vec![EntryChange::Put {
        key: "cluster".to_owned(),
        value: br#"{"format":1000}"#.to_vec(),
    }];
    store.commit(Vec::new(), newer).await.unwrap();
    let error = Catalog::open(Arc::new(store)).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
    assert!(error.message().contains("format 1000"), "{error}");
}

#[tokio::test]
async fn an_empty_or_flipped_file_is_data_loss_and_stays_as_it_is() {
    let directory = Directory::new();
    let (catalog, _) = with_workers(&directory, 3).await;
    drop(catalog);
    let path = directory.0.join("catalog.redb");
    let whole = std::fs::read(&path).unwrap();
    let name = whole.windows(9).position(|bytes| bytes == b"\"address\"");
    let mut flipped = whole.clone();
    flipped[name.unwrap() + 14] ^= 1;
    for content in [Vec::new(), whole[..whole.len() / 2].to_vec(), flipped] {
        std::fs::write(&path, &content).unwrap();
        let error = open(&directory.0).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::DataLoss, "{error}");
        assert!(error.message().contains("catalog.redb"), "{error}");
        assert!(std::fs::read(&path).unwrap() == content, "it was changed");
    }
}

#[tokio::test]
async fn a_change_that_was_told_durable_is_there_after_a_power_loss_whichever_sync_fails() {
    let mut acknowledged = 0;
    for failing in 0..16 {
        let directory = Directory::new();
        drop(open(&directory.0).await.unwrap());
        let disk = FaultyDisk::over(&directory.0).unwrap();
        let store = RedbStore::open(&directory.0, Arc::new(disk.clone()));
        let store = store.await.unwrap();
        disk.fail_sync_after(failing);
        let mut durable = Vec::new();
        for number in 0..5 {
            let key = format!("kea/{number}");
            let change = EntryChange::Put {
                key: key.clone(),
                value: vec![b'x'; 9000],
            };
            if store.commit(Vec::new(), vec![change]).await.is_ok() {
                durable.push(key);
            }
            let after = Directory::new();
            disk.crash(&after.0).unwrap();
            let survived = RedbStore::open(&after.0, Arc::new(LocalDisk))
                .await
                .unwrap();
            let survived = survived.load().await.unwrap();
            for key in &durable {
                assert!(
                    survived.entries.contains_key(key),
                    "sync {failing} failed, and {key} is gone after change {number}"
                );
            }
        }
        acknowledged += durable.len();
    }
    assert!(
        acknowledged >= 16 * 4,
        "only {acknowledged} of the changes were made"
    );
}

#[tokio::test]
async fn a_full_disk_refuses_changes_and_the_store_goes_on_when_there_is_space() {
    let directory = Directory::new();
    let disk = FaultyDisk::over(&directory.0).unwrap();
    let store = RedbStore::open(&directory.0, Arc::new(disk.clone()));
    let store = store.await.unwrap();
    let put = |key: usize| {
        vec![EntryChange::Put {
            key: key.to_string(),
            value: vec![b'x'; 9000],
        }]
    };
    disk.set_room(Some(256 << 10));
    let mut made = 0;
    let refused = loop {
        match store.commit(Vec::new(), put(made)).await {
            Ok(_) => made += 1,
            Err(CommitError::Failed(error)) => break error,
            Err(conflict) => panic!("{conflict}"),
        }
    };
    assert_eq!(refused.code(), ErrorCode::ResourceExhausted, "{refused}");
    let text = refused.message();
    assert!(
        text.contains("catalog.redb") && !text.contains("unknown"),
        "{text}"
    );
    assert_eq!(store.load().await.unwrap().entries.len(), made);
    disk.set_room(None);
    store.commit(Vec::new(), put(made)).await.unwrap();
    assert_eq!(store.load().await.unwrap().entries.len(), made + 1);
}

/// Opens a copy of a store that was not closed, and returns the keys that it has.
async fn keys_after_kill(content: &[u8], mark: Option<&[u8]>) -> Result<Vec<String>> {
    let directory = Directory::new();
    std::fs::write(directory.0.join("catalog.redb"), content).unwrap();
    if let Some(mark) = mark {
        std::fs::write(directory.0.join("catalog.revision"), mark).unwrap();
    }
    let store = RedbStore::open(&directory.0, Arc::new(LocalDisk)).await?;
    Ok(store.load().await?.entries.into_keys().collect())
}

#[tokio::test]
async fn damage_in_the_last_commit_of_a_killed_process_is_not_taken_for_an_unfinished_commit() {
    let directory = Directory::new();
    let store = RedbStore::open(&directory.0, Arc::new(LocalDisk));
    let store = store.await.unwrap();
    let files = ["catalog.redb", "catalog.revision"].map(|name| directory.0.join(name));
    let read = || files.each_ref().map(|path| std::fs::read(path).unwrap());
    let put = |key: &str| EntryChange::Put {
        key: key.to_owned(),
        value: vec![b'x'; 900],
    };
    store.commit(Vec::new(), vec![put("kea")]).await.unwrap();
    let [before, old_mark] = read();
    store.commit(Vec::new(), vec![put("tui")]).await.unwrap();
    // The process is killed now: the file was not closed.
    let [after, mark] = read();
    let keys = keys_after_kill(&after, Some(&mark)).await.unwrap();
    assert_eq!(keys, ["kea", "tui"]);
    let changed: Vec<_> = (0..after.len())
        .filter(|&at| before.get(at) != Some(&after[at]))
        .collect();
    let mut taken_back = 0;
    for at in changed.iter().step_by(changed.len().div_ceil(60)) {
        let mut flipped = after.clone();
        flipped[*at] ^= 0x10;
        match keys_after_kill(&flipped, Some(&mark)).await {
            Ok(keys) => assert_eq!(keys, ["kea", "tui"], "byte {at} was flipped"),
            Err(error) => assert_eq!(error.code(), ErrorCode::DataLoss, "{error}"),
        }
        // A mark of the commit before is what a kill between the commit and its mark leaves.
        for mark in [None, Some(old_mark.as_slice())] {
            let found = keys_after_kill(&flipped, mark).await;
            taken_back += usize::from(found.is_ok_and(|keys| keys == ["kea"]));
        }
        if taken_back == 2 {
            recovers_what_is_left(&flipped, &mark).await;
        }
    }
    assert!(taken_back > 2, "no flipped bit undid the last commit");
}

async fn recovers_what_is_left(content: &[u8], mark: &[u8]) {
    let directory = Directory::new();
    let path = directory.0.join("catalog.redb");
    std::fs::write(&path, content).unwrap();
    std::fs::write(directory.0.join("catalog.revision"), mark).unwrap();
    let refused = RedbStore::open(&directory.0, Arc::new(LocalDisk)).await;
    let refused = refused.unwrap_err().to_string();
    assert!(
        refused.contains("ends with commit 1, and commit 2 was durable"),
        "{refused}"
    );
    assert!(std::fs::read(&path).unwrap() == content, "it was changed");
    RedbStore::accept_lost_commits(&directory.0).unwrap();
    let store = RedbStore::open(&directory.0, Arc::new(LocalDisk))
        .await
        .unwrap();
    assert_eq!(
        store
            .load()
            .await
            .unwrap()
            .entries
            .into_keys()
            .collect::<Vec<_>>(),
        ["kea"]
    );
}
