use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
use arrow::compute::concat_batches;
use arrow_flight::sql::client::FlightSqlServiceClient;
use futures::TryStreamExt;
use tokio::runtime::Handle;
use volary_cli::LocalOptions;
use volary_flight_proto::ErrorCode;
use volary_node::channel::{ChannelOptions, flight_client};
use volary_tests::cluster::{TestCluster, run};

use super::tables::{cluster, set_relays};

#[test]
fn the_setting_is_shown_and_refuses_what_is_no_number_of_relays() {
    run(async {
        let mut cluster = TestCluster::start(1).await.unwrap();
        let shown = async |cluster: &mut TestCluster| {
            let rows = cluster.sql("SHOW relays").await.unwrap();
            let text = |column: usize| rows.column(column).as_string::<i32>().value(0).to_owned();
            assert_eq!(text(0), "volary.relays");
            text(1)
        };
        assert_eq!(shown(&mut cluster).await, "auto");
        for (set, value) in [
            ("SET relays = '3'", "3"),
            ("SET relays = 46", "46"),
            ("SET volary.relays = 'off'", "off"),
            ("RESET relays", "auto"),
            ("SET relays = '2'", "2"),
        ] {
            cluster.sql(set).await.unwrap();
            assert_eq!(shown(&mut cluster).await, value, "{set}");
        }
        for nonsense in ["many", "-1", "0", "1.5"] {
            let set = format!("SET relays = '{nonsense}'");
            let error = cluster.sql(&set).await.unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error}");
            for said in ["volary.relays", nonsense, "auto", "off", "number"] {
                assert!(error.message().contains(said), "{said}: {error}");
            }
            assert_eq!(shown(&mut cluster).await, "2");
        }
        cluster.stop().await;
    });
}

/// Statements with a number as their parameter.
const PREPARED: [&str; 6] = [
    "SELECT count(*), sum(v) FROM facts WHERE g = $1",
    "SELECT s, count(*), sum(v * 2) FROM facts WHERE v > $1 GROUP BY s ORDER BY s NULLS LAST",
    "SELECT id, v FROM facts WHERE g <> $1 ORDER BY v DESC NULLS LAST, id LIMIT 5",
    // The fragment of the relays contains the parameter, too.
    "SELECT s, sum(v * $1) AS t FROM facts GROUP BY s ORDER BY s NULLS LAST",
    // Each value selects another worker.
    "SELECT count(*), sum(v) FROM facts WHERE id = $1",
    "SELECT count(*), sum(v) FROM facts WHERE id IN ($1, 5, 600)",
];
const VALUES: [Option<i64>; 6] = [
    Some(3),
    Some(500),
    Some(-7),
    None,
    Some(1_000_000),
    Some(499),
];

#[test]
fn a_prepared_statement_is_relayed_with_each_of_its_values() {
    run(async {
        let relaying = |options: &mut LocalOptions| {
            options.gateway.gather.relays = "2".parse().unwrap();
        };
        let mut cluster = cluster(3, relaying).await;
        let plan = "SELECT count(*), sum(v) FROM facts WHERE g = 3";
        let plan = cluster.physical_plan(plan).await.unwrap();
        assert!(plan.contains("relays=2"), "{plan}");
        // The prepared statements run in another session, which keeps the gateway's setting.
        set_relays(&mut cluster, "off").await;
        let address = cluster.nodes().address().to_string();
        let flight = flight_client(&address, &ChannelOptions::default(), &Handle::current());
        let mut client = FlightSqlServiceClient::new_from_inner(flight.unwrap());
        client.handshake("volary", "").await.unwrap();
        for sql in PREPARED {
            let mut statement = client.prepare(sql.to_owned(), None).await.unwrap();
            for value in VALUES.iter().cycle().take(2 * VALUES.len()) {
                let column: ArrayRef = Arc::new(Int64Array::from(vec![*value]));
                let bound = RecordBatch::try_from_iter([("$1", column)]).unwrap();
                statement.set_parameters(bound).unwrap();
                let mut info = statement.execute().await.unwrap();
                let ticket = info.endpoint.remove(0).ticket.unwrap();
                let schema = Arc::new(info.try_decode_schema().unwrap());
                let batches = client.do_get(ticket).await.unwrap();
                let batches: Vec<RecordBatch> = batches.try_collect().await.unwrap();
                let given = concat_batches(&schema, &batches).unwrap();

                let literal = value.map_or("NULL".to_owned(), |value| format!("'{value}'"));
                let literal = format!("CAST({literal} AS BIGINT)");
                let expected = cluster.sql(&sql.replace("$1", &literal)).await.unwrap();
                assert_eq!(given.columns(), expected.columns(), "{sql} with {value:?}");
            }
        }
        cluster.stop().await;
    });
}
