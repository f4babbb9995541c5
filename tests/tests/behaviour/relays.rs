//! A query must have the same rows with and without relays.

/// Tests relays that have too little memory, have forgotten their fragments, or get no answer from
/// their members.
mod faults;
/// Tests the setting `relays` of a session and of its gateway, also with prepared statements.
mod setting;
/// Makes tables whose rows are worth merging, and clusters with these tables.
mod tables;

use arrow::array::AsArray;
use volary_tests::cluster::{Comparison, TestCluster, TestClusters, run};
use volary_tests::reference::DataFusionReference;

use tables::{cluster, set_relays, tables};

/// Values of the setting `relays`: no relay, one for all workers, several, as many as one of the
/// clusters has workers, and more than any cluster has.
const RELAYS: [&str; 5] = ["off", "1", "2", "3", "100"];

/// The nodes that must merge the rows of a query's workers if the session asks for relays.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MergedBy {
    /// Relays must merge the rows of every gather.
    Relays,
    /// The gateway alone must merge.
    Gateway,
    /// This test does not check who merges, for example for a gather from a single worker.
    Either,
}

/// Checks that all queries have the rows of DataFusion alone, with any number of relays, and that
/// EXPLAIN shows relays if it should. Reports all queries for which this fails.
fn check(merged_by: MergedBy, same: Comparison, queries: &[&str]) {
    run(async {
        let clusters = TestClusters::start(DataFusionReference::new(), &[1, 3, 7]).await;
        let mut clusters = clusters.unwrap();
        for table in tables() {
            clusters.load(&table).await.unwrap();
        }
        let mut wrong = Vec::new();
        for relays in RELAYS {
            for cluster in clusters.clusters_mut() {
                set_relays(cluster, relays).await;
            }
            for sql in queries {
                let difference = clusters.difference(sql, same).await.unwrap();
                wrong.extend(difference.map(|it| format!("relays = '{relays}', {it}")));
                for cluster in clusters.clusters_mut() {
                    wrong.extend(wrong_plan(cluster, sql, relays, merged_by).await);
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
        clusters.stop().await;
    });
}

/// Returns the plan of a query if the wrong nodes merge in it.
async fn wrong_plan(
    cluster: &mut TestCluster,
    sql: &str,
    relays: &str,
    merged_by: MergedBy,
) -> Option<String> {
    let workers = cluster.workers();
    // A single worker has all rows, so that some plans need no merge.
    if workers == 1 || merged_by == MergedBy::Either {
        return None;
    }
    let plan = cluster.physical_plan(sql).await.unwrap();
    let is_right = match (merged_by, relays.parse::<usize>()) {
        (MergedBy::Relays, Ok(count)) => {
            let relays = format!("workers={workers}, relays={}, ", count.min(workers));
            let gathers: Vec<_> = plan
                .lines()
                .filter(|line| line.contains("GatherExec: "))
                .collect();
            !gathers.is_empty() && gathers.iter().all(|line| line.contains(&relays))
        }
        _ => plan.contains("GatherExec: ") && !plan.contains("relays="),
    };
    (!is_right).then(|| format!("relays = '{relays}', {workers} workers\n{sql}\n{plan}"))
}

#[test]
fn aggregates_without_groups_are_merged_by_relays() {
    check(
        MergedBy::Relays,
        Comparison::Rows,
        &[
            "SELECT count(*) FROM facts WHERE v % 3 = 1",
            "SELECT sum(v), avg(f), min(s), max(s), count(v), min(v), max(d) FROM facts WHERE g <> 7",
            "SELECT sum(d), avg(d), stddev(f), var_pop(f) FROM facts WHERE v > -400",
            "SELECT bit_xor(v), bool_or(v > 499), sum(f) FROM facts WHERE g < 900",
            "SELECT sum(v * 3), max(v + 1), count(*) FILTER (WHERE v > 10) FROM facts WHERE g <> 1",
            // Distinct values are grouped over all shards, or within each shard.
            "SELECT count(DISTINCT g) FROM facts WHERE v > 0",
            "SELECT count(DISTINCT s) FROM facts WHERE v > 0",
            "SELECT count(DISTINCT id) FROM facts WHERE v > 0",
        ],
    );
}

#[test]
fn groups_are_merged_by_relays() {
    check(
        MergedBy::Relays,
        Comparison::Rows,
        &[
            "SELECT g, count(*), sum(v), min(s), max(f), avg(v) FROM facts GROUP BY g",
            "SELECT s, sum(d), avg(d), count(g) FROM facts GROUP BY s",
            "SELECT g, s, count(*), max(id) FROM facts GROUP BY g, s",
            "SELECT v > 0 AS b, f, max(d) FROM facts GROUP BY b, f",
            "SELECT CASE WHEN v > 0 THEN 'more' END AS c, count(*) FROM facts GROUP BY c",
            "SELECT g, sum(v * 3 + 1) AS t FROM facts GROUP BY g HAVING count(*) > 3 AND sum(v * 3 + 1) > 10",
            "SELECT s, count(*) FILTER (WHERE v > 100) AS n, sum(v) FILTER (WHERE g IS NULL) AS t FROM facts GROUP BY s",
            "SELECT g, s, count(*), sum(v) FROM facts GROUP BY ROLLUP (g, s)",
            "SELECT g, s, sum(v) FROM facts GROUP BY GROUPING SETS ((g), (s), ())",
            "SELECT DISTINCT g, s FROM facts",
            "SELECT DISTINCT s FROM facts WHERE v > 0",
            "SELECT s, count(DISTINCT g) FROM facts GROUP BY s",
        ],
    );
}

#[test]
fn first_rows_are_merged_by_relays() {
    check(
        MergedBy::Relays,
        Comparison::Sequence,
        &[
            "SELECT id, v FROM facts ORDER BY v DESC NULLS LAST, id LIMIT 20",
            "SELECT id, g, s FROM facts ORDER BY s NULLS FIRST, g DESC NULLS LAST, id LIMIT 50 OFFSET 13",
            "SELECT id, v % 7 AS m FROM facts WHERE v > -300 ORDER BY m, id DESC LIMIT 10",
            // The first limit is above the number of rows of a worker, the second above that of all
            // rows.
            "SELECT id, d FROM facts ORDER BY d DESC, id LIMIT 3000 OFFSET 2900",
            "SELECT id, f FROM facts WHERE v > 0 ORDER BY f NULLS FIRST, id LIMIT 10000",
            // The groups are merged first, and then the first rows are taken from them.
            "SELECT g, sum(v) AS t FROM facts GROUP BY g ORDER BY t DESC NULLS LAST, g NULLS LAST LIMIT 10",
        ],
    );
}

#[test]
fn queries_of_several_merges_have_relays_for_each() {
    check(
        MergedBy::Relays,
        Comparison::Rows,
        &[
            "SELECT a.g, a.n, b.m FROM (SELECT g, count(*) AS n FROM facts GROUP BY g) a \
             JOIN (SELECT g, max(w) AS m FROM others WHERE w < 50 GROUP BY g) b ON a.g = b.g",
            "SELECT g, count(*) AS n FROM facts GROUP BY g UNION ALL SELECT g, sum(w) FROM others GROUP BY g",
            "SELECT count(*) AS n FROM facts WHERE v > 7 UNION ALL SELECT sum(w) FROM others WHERE w > 7",
            "SELECT count(*) FROM facts WHERE v > (SELECT avg(w) FROM others WHERE w > 3)",
            "SELECT m, count(*) FROM (SELECT g, max(v) AS m FROM facts GROUP BY g) GROUP BY m",
            "SELECT count(*), sum(id) FROM (SELECT id, v FROM facts ORDER BY v NULLS LAST, id LIMIT 100)",
            // These fragments have two scans.
            "SELECT f.g, count(*), sum(o.w) FROM facts f JOIN others o ON f.id = o.id GROUP BY f.g",
            "SELECT g, count(*) FROM (SELECT g FROM facts UNION ALL SELECT g FROM others) GROUP BY g",
        ],
    );
}

#[test]
fn what_cannot_be_merged_on_its_way_comes_to_the_gateway() {
    check(
        MergedBy::Gateway,
        Comparison::Rows,
        &[
            "SELECT g, array_agg(id ORDER BY id) AS ids FROM facts GROUP BY g",
            "SELECT array_length(array_agg(id)) AS n FROM facts WHERE v > 0",
            "SELECT g, count(DISTINCT v), count(DISTINCT s) FROM facts GROUP BY g",
            "SELECT count(DISTINCT g), count(DISTINCT v) FROM facts WHERE v > 0",
            "SELECT id, count(*) FROM facts GROUP BY id",
            "SELECT id, v FROM facts WHERE v > 400",
            "SELECT id, v FROM facts WHERE v > 400 ORDER BY v, id",
            "SELECT count(*) FROM (SELECT id FROM facts WHERE v > 0 LIMIT 50)",
            "SELECT f.id, o.w FROM facts f JOIN others o ON f.g = o.g WHERE f.v > 490",
        ],
    );
}

#[test]
fn rows_of_few_workers_or_of_none_are_merged_like_any_others() {
    check(
        MergedBy::Either,
        Comparison::Rows,
        &[
            "SELECT count(*), sum(v), min(s), avg(d) FROM nothing WHERE v > 0",
            "SELECT g, count(*) FROM nothing GROUP BY g",
            "SELECT DISTINCT s FROM nothing",
            "SELECT count(DISTINCT g) FROM nothing",
            "SELECT id FROM nothing ORDER BY v, id LIMIT 5",
            "SELECT count(*), sum(v) FROM facts WHERE v > 100000",
            "SELECT s, sum(v) FROM facts WHERE d < 0 GROUP BY s",
            "SELECT count(*), sum(v) FROM lonely WHERE v > 3",
            "SELECT g, sum(v) FROM lonely GROUP BY g",
            "SELECT g, v FROM lonely ORDER BY g DESC, v LIMIT 9",
            // These queries are pruned to one worker, to a few workers, or to none.
            "SELECT count(*), sum(v) FROM lonely WHERE k = 7",
            "SELECT g, sum(v) FROM facts WHERE id IN (5, 600, 601, 602, 4000) GROUP BY g",
            "SELECT count(*), sum(v) FROM facts WHERE id IN (5, 600, 601, 602, 4000)",
            "SELECT id, v FROM facts WHERE id IN (5, 600, 601, 602, 4000) ORDER BY v, id LIMIT 3",
            "SELECT count(*), sum(v) FROM facts WHERE id = 7 AND id = 8",
            // The planner knows that there is only one group.
            "SELECT g, count(*) FROM facts WHERE g = 5 GROUP BY g",
            "SELECT count(DISTINCT g), sum(v) FROM facts WHERE v > 0",
            "SELECT o.id, t.n FROM others o JOIN (SELECT g, count(*) AS n FROM facts GROUP BY g) t ON o.g = t.g WHERE o.w = 5",
        ],
    );
}

#[test]
fn explain_shows_who_merges_and_how() {
    run(async {
        let mut cluster = cluster(7, |_| {}).await;
        for (sql, relay) in [
            (
                "SELECT count(*) FROM facts WHERE v > 7",
                "AggregateExec: mode=PartialReduce, gby=[], ",
            ),
            (
                "SELECT g, sum(v) FROM facts GROUP BY g",
                "AggregateExec: mode=PartialReduce, gby=[g@0 as g], ",
            ),
            (
                "SELECT id FROM facts ORDER BY v, id LIMIT 10",
                "SortExec: TopK(fetch=10), ",
            ),
        ] {
            set_relays(&mut cluster, "2").await;
            let plan = cluster.physical_plan(sql).await.unwrap();
            let mut lines = plan.lines().map(str::trim_start);
            let gather = "GatherExec: workers=7, relays=2, ";
            for shown in [gather, "relay:", relay, "MembersExec", "fragment 1:"] {
                assert!(
                    lines.any(|line| line.starts_with(shown)),
                    "no `{shown}`, or not below what is above it:\n{plan}"
                );
            }
            // With a few workers, the gateway is no bottleneck.
            set_relays(&mut cluster, "auto").await;
            let plan = cluster.physical_plan(sql).await.unwrap();
            assert!(!plan.contains("relay"), "{plan}");
        }
        cluster.stop().await;
    });
}

#[test]
fn explain_analyze_tells_of_the_members_of_all_relays() {
    run(async {
        const SQL: &str = "SELECT count(*), sum(v) FROM facts WHERE g % 2 = 0";
        let mut cluster = cluster(3, |_| {}).await;
        let mut analyse = async |relays| {
            set_relays(&mut cluster, relays).await;
            let shown = cluster
                .sql(&format!("EXPLAIN ANALYZE {SQL}"))
                .await
                .unwrap();
            shown.column(1).as_string::<i32>().value(0).to_owned()
        };
        let flat = analyse("off").await;
        assert!(flat.contains("| workers=3 plan_bytes="), "{flat}");
        assert!(!flat.contains("members"), "{flat}");
        let rows_per_worker = scanned_rows(&flat);
        let total_rows: u64 = rows_per_worker.iter().sum();

        let one = analyse("1").await;
        assert!(one.contains("| relays=1 members=3 plan_bytes="), "{one}");
        assert!(one.contains("| slowest of its members: "), "{one}");
        assert_eq!(scanned_rows(&one), [total_rows; 3], "{one}");

        let three = analyse("3").await;
        assert!(
            three.contains("| relays=3 members=3 plan_bytes="),
            "{three}"
        );
        assert_eq!(scanned_rows(&three), rows_per_worker, "{three}");
        cluster.stop().await;
    });
}

/// Returns the smallest, the median and the largest number of scanned rows over the nodes that the
/// gateway asked. With three nodes, these are the numbers of all nodes.
fn scanned_rows(analysed: &str) -> Vec<u64> {
    let (_, rest) = analysed.split_once(" scanned_rows=").expect(analysed);
    let numbers = rest.split_whitespace().next().expect(analysed).split('/');
    numbers.map(|number| number.parse().unwrap()).collect()
}
