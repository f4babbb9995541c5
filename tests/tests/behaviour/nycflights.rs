use volary_tests::cluster::{Comparison, TestClusters, data_directory, queries_directory, run};
use volary_tests::reference::{DataFusionReference, queries};

const TABLES: [&str; 5] = ["airlines", "airports", "planes", "flights", "weather"];

#[test]
fn all_questions_have_the_answers_of_one_process_on_1_3_and_4_workers() {
    run(async {
        let data = data_directory().join("nycflights13");
        let questions = queries_directory().join("nycflights");
        let reference = DataFusionReference::over(&data).await.unwrap();
        let mut clusters = TestClusters::start(reference, &[1, 3, 4]).await.unwrap();
        for cluster in clusters.clusters_mut() {
            cluster
                .run_file(&questions.join("schema.sql"))
                .await
                .unwrap();
        }
        for table in TABLES {
            let file = data.join(format!("{table}.parquet"));
            let copy = format!("COPY {table} FROM '{}'", file.display());
            clusters.run(&copy).await.unwrap();
        }
        let mut wrong = Vec::new();
        let questions = queries(&questions).unwrap();
        assert!(questions.len() >= 15);
        for (name, sql) in questions {
            let answer = clusters.clusters_mut()[0].sql(&sql).await.unwrap();
            assert!(answer.num_rows() > 0, "{name} has no rows to compare");
            // Each query has an ORDER BY that orders its rows totally.
            match clusters
                .difference(&sql, Comparison::Sequence)
                .await
                .unwrap()
            {
                None => {}
                Some(difference) => wrong.push(format!("{name}, {difference}")),
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
        clusters.stop().await;
    });
}
