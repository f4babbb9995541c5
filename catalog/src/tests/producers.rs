use std::collections::BTreeMap;
use std::time::Duration;

use super::*;

const FOREVER: Duration = Duration::from_secs(1_000_000);

fn producer(name: &str) -> ProducerName {
    ProducerName::parse("the producer", name).unwrap()
}

fn batch(sequence: u64) -> DecidedBatch {
    DecidedBatch {
        sequence,
        rows: 1,
        content: BatchContent([u8::try_from(sequence % 256).unwrap(); 16]),
        is_refused: false,
    }
}

fn batches(name: &str, sequences: impl IntoIterator<Item = u64>) -> ProducerBatches {
    ProducerBatches {
        producer: producer(name),
        batches: sequences.into_iter().map(batch).collect(),
        is_statement: false,
    }
}

async fn create_table(catalog: &Catalog, name: &str, workers: &[WorkerId]) -> Arc<Table> {
    let created = catalog
        .create_table(sharded(name, 4), workers, IfExists::Fail, &anybody())
        .await;
    created.unwrap().unwrap()
}

/// Writes rows with these batches, and commits them.
async fn commit(catalog: &Catalog, table: &Table, added: Vec<ProducerBatches>) -> Result<WriteId> {
    let write = catalog.begin_write(table).await?.take_over();
    let summary = WriteSummary::new(table, &[(table.workers()[0], written(0, 1))])?;
    catalog
        .commit_batches(write, table, summary, added)
        .await
        .map(|()| write)
}

fn last_sequence(catalog: &Catalog, table: &Table, name: &str) -> Option<u64> {
    let state = catalog.state();
    let known = state.producer(table.id(), &producer(name));
    known.map(|known| known.last_sequence())
}

#[tokio::test]
async fn batches_follow_on_from_each_other_also_after_a_restart() {
    let directory = Directory::new();
    let (catalog, workers) = with_workers(&directory, 1).await;
    let table = create_table(&catalog, "t", &workers).await;
    let gap = commit(&catalog, &table, vec![batches("kea", [2])]).await;
    let error = gap.unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
    assert!(
        error.message().contains("batch 1 must come next"),
        "{error}"
    );
    assert_eq!(last_sequence(&catalog, &table, "kea"), None);
    commit(&catalog, &table, vec![batches("kea", 1..=20)])
        .await
        .unwrap();
    let both = vec![batches("kea", [21]), batches("tui", [1])];
    commit(&catalog, &table, both).await.unwrap();
    let again = commit(&catalog, &table, vec![batches("kea", [21, 22])]).await;
    assert_eq!(again.unwrap_err().code(), ErrorCode::Unavailable);
    // A group is committed as a whole or not at all.
    let mixed = vec![batches("tui", [2]), batches("kea", [30])];
    commit(&catalog, &table, mixed).await.unwrap_err();
    assert_eq!(last_sequence(&catalog, &table, "tui"), Some(1));
    drop(catalog);

    let catalog = open(&directory.0).await.unwrap();
    assert_eq!(last_sequence(&catalog, &table, "kea"), Some(21));
    assert_eq!(last_sequence(&catalog, &table, "tui"), Some(1));
    let state = catalog.state();
    let kea = state.producer(table.id(), &producer("kea")).unwrap();
    assert_eq!(kea.batch(21), Some(&batch(21)));
    assert_eq!(kea.batch(6), Some(&batch(6)));
    assert_eq!(kea.batch(5), None, "only the last 16 are remembered");
    assert_eq!(state.table(&named("t")).unwrap().statistics().rows, 2);
}

#[tokio::test]
async fn a_dropped_table_has_no_producers_and_another_one_of_its_name_begins_anew() {
    let directory = Directory::new();
    let (catalog, workers) = with_workers(&directory, 1).await;
    let table = create_table(&catalog, "t", &workers).await;
    let other = create_table(&catalog, "u", &workers).await;
    for table in [&table, &other] {
        commit(&catalog, table, vec![batches("kea", [1])])
            .await
            .unwrap();
    }
    let names = [named("t")].into();
    catalog.drop_tables(names, false, &anybody()).await.unwrap();
    assert_eq!(catalog.state().count_producers(table.id()), 0);
    let table = create_table(&catalog, "t", &workers).await;
    commit(&catalog, &table, vec![batches("kea", [1])])
        .await
        .unwrap();
    drop(catalog);
    let catalog = open(&directory.0).await.unwrap();
    let counts = [&table, &other].map(|table| catalog.state().count_producers(table.id()));
    assert_eq!(counts, [1, 1]);
}

#[tokio::test]
async fn producers_are_forgotten_after_their_windows() {
    let directory = Directory::new();
    let (catalog, workers) = with_workers(&directory, 1).await;
    let table = create_table(&catalog, "t", &workers).await;
    let statement = ProducerBatches {
        is_statement: true,
        ..batches("statement", [1])
    };
    let added = vec![batches("stream", [1]), statement];
    commit(&catalog, &table, added).await.unwrap();
    let committed_at = now_ms();
    let windows = |streams, statements| ProducerWindows {
        streams,
        statements,
    };
    let both = catalog.forget_producers(windows(FOREVER, FOREVER)).await;
    assert_eq!(both.unwrap(), 0);
    // A window passes when the clock has gone on by at least a millisecond.
    while now_ms() <= committed_at {
        tokio::task::yield_now().await;
    }
    let statements = catalog.forget_producers(windows(FOREVER, Duration::ZERO));
    assert_eq!(statements.await.unwrap(), 1);
    assert_eq!(last_sequence(&catalog, &table, "statement"), None);
    assert_eq!(last_sequence(&catalog, &table, "stream"), Some(1));
    drop(catalog);
    let catalog = open(&directory.0).await.unwrap();
    assert_eq!(catalog.state().count_producers(table.id()), 1);
    let streams = catalog.forget_producers(windows(Duration::ZERO, FOREVER));
    assert_eq!(streams.await.unwrap(), 1);
    assert_eq!(catalog.state().count_producers(table.id()), 0);
}

/// A generator of numbers that are the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = self.0.wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

#[tokio::test]
async fn however_writes_end_and_are_sent_again_each_batch_is_committed_once_and_without_a_gap() {
    let directory = Directory::new();
    let (catalog, workers) = with_workers(&directory, 1).await;
    let table = create_table(&catalog, "t", &workers).await;
    let mut random = Random(25);
    let mut open: Vec<(WriteId, ProducerBatches)> = Vec::new();
    let mut commits: BTreeMap<(ProducerName, u64), u32> = BTreeMap::new();
    for _ in 0..600 {
        let name = ["kea", "tui"][random.below(2) as usize];
        match random.below(4) {
            0 | 1 => {
                // A client sends what follows, sends something again, or leaves something out.
                let last = last_sequence(&catalog, &table, name).unwrap_or(0);
                let first = (last + random.below(4)).max(1);
                let write = catalog.begin_write(&table).await.unwrap().take_over();
                open.push((write, batches(name, first..=first + random.below(3))));
            }
            2 if !open.is_empty() => {
                let at = random.below(open.len() as u64) as usize;
                let (write, added) = open.swap_remove(at);
                let summary = WriteSummary::new(&table, &[]).unwrap();
                let before = last_sequence(&catalog, &table, added.producer.as_str());
                let follows = added.batches[0].sequence == before.unwrap_or(0) + 1;
                let committed = catalog
                    .commit_batches(write, &table, summary, vec![added.clone()])
                    .await;
                assert_eq!(committed.is_ok(), follows, "{committed:?}");
                if follows {
                    for batch in &added.batches {
                        let key = (added.producer.clone(), batch.sequence);
                        *commits.entry(key).or_default() += 1;
                    }
                }
            }
            3 if !open.is_empty() => {
                let at = random.below(open.len() as u64) as usize;
                let (write, _) = open.swap_remove(at);
                assert!(catalog.abort_write(write, Some(table.id())).await.unwrap());
            }
            _ => {}
        }
    }
    for name in ["kea", "tui"] {
        let last = last_sequence(&catalog, &table, name).unwrap();
        assert!(last > 20, "{name} has come to {last} only");
        for sequence in 1..=last {
            assert_eq!(commits.remove(&(producer(name), sequence)), Some(1));
        }
    }
    assert!(commits.is_empty(), "{commits:?}");
}
