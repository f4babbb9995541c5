//! The rows of a random query must be those of DataFusion alone on 1, 3 and 7 workers, with and
//! without relays.

/// Makes tables of random rows.
mod data;
/// Makes queries over the tables of random rows.
mod grammar;

use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any, prop_oneof};
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use volary_tests::cluster::{TestClusters, TestTable, run};
use volary_tests::reference::DataFusionReference;

use data::{KeyType, Tables};
use grammar::{Choices, query, relays};

/// Number of random sets of tables. Each of them is queried `QUERIES` times.
const CASES: u32 = 24;
const QUERIES: usize = 12;
/// Maximum time for shrinking a failing case. Without it, a query that hangs would run sixty times.
const MAX_SHRINK_MILLISECONDS: u32 = 120_000;
/// Maximum number of choices that a query and its relays take.
const CHOICES: usize = 25;

fn tables() -> impl Strategy<Value = Tables> {
    // The tables may have equal or different numbers of shards. There may be fewer shards than
    // workers, or as many as the gateway (4) or a worker (3) has partitions.
    let shards = || prop_oneof![Just(1_u32), Just(2), Just(3), Just(4), Just(8), Just(64)];
    let rows = |most| vec((0_u8..24, 0_u8..9, any::<u8>()), 0..most);
    let has_key = || prop_oneof![3 => Just(true), 1 => Just(false)];
    let key = proptest::sample::select(KeyType::ALL.to_vec());
    (
        key,
        shards(),
        shards(),
        any::<bool>(),
        (has_key(), has_key()),
        rows(60),
        rows(40),
        rows(15),
    )
        .prop_map(
            |(key, facts_shards, other_shards, colocated, have_key, facts, partners, kinds)| {
                Tables {
                    key,
                    facts_shards,
                    partners_shards: if colocated {
                        facts_shards
                    } else {
                        other_shards
                    },
                    facts_have_key: have_key.0,
                    partners_have_key: have_key.1,
                    facts,
                    partners,
                    kinds,
                }
            },
        )
}

#[test]
fn any_query_over_any_tables_has_the_rows_of_one_process() {
    let start = TestClusters::start(DataFusionReference::new(), &[1, 3, 7]);
    let mut clusters = run(start).unwrap();
    let config = Config {
        cases: CASES,
        max_shrink_iters: 60,
        max_shrink_time: MAX_SHRINK_MILLISECONDS,
        failure_persistence: None,
        ..Config::default()
    };
    let case = (tables(), vec(vec(any::<u16>(), CHOICES), QUERIES));
    let cell = std::cell::RefCell::new(&mut clusters);
    let answered = std::cell::Cell::new(0);
    let outcome = TestRunner::new(config).run(&case, |(tables, queries)| {
        let mut clusters = cell.borrow_mut();
        let checked = run(check(&mut clusters, &tables, &queries))
            .map_err(|error| TestCaseError::fail(format!("{error:#}")))?;
        answered.set(answered.get() + checked);
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
    let asked = CASES as usize * QUERIES;
    assert!(
        answered.get() * 4 >= asked * 3,
        "DataFusion alone answered only {} of {asked} queries: the others test nothing",
        answered.get()
    );
    run(clusters.stop());
}

async fn check(
    clusters: &mut TestClusters,
    tables: &Tables,
    queries: &[Vec<u16>],
) -> anyhow::Result<usize> {
    let loaded = tables.test_tables()?;
    let outcome = ask(clusters, tables.key, &loaded, queries).await;
    // The tables of the next case have the same names.
    for table in &loaded {
        clusters.drop_table(&table.name).await?;
    }
    outcome
}

/// Runs the queries, and returns how many of them DataFusion alone could answer.
async fn ask(
    clusters: &mut TestClusters,
    key: KeyType,
    tables: &[TestTable],
    queries: &[Vec<u16>],
) -> anyhow::Result<usize> {
    for table in tables {
        clusters.load(table).await?;
    }
    let mut answered = 0;
    for choices in queries {
        let mut choices = Choices::new(choices);
        let relays = relays(&mut choices);
        let (sql, same) = query(key, &mut choices);
        clusters.run(&format!("SET relays = '{relays}'")).await?;
        match clusters.difference(&sql, same).await {
            Ok(Some(difference)) => anyhow::bail!("relays = '{relays}', {difference}"),
            Ok(None) => answered += 1,
            // Queries that DataFusion alone refuses, such as a comparison of two types, are not
            // tested.
            Err(_) => {}
        }
    }
    Ok(answered)
}
