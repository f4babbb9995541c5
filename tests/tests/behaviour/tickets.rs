//! The first ticket of a plan contains the plan, and later tickets only name it. A worker refuses
//! tickets that no gateway of its cluster has sealed for it, and plans with operators that read or
//! write anything but its shards.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::Int64Type;
use arrow_flight::{FlightData, Ticket};
use bytes::Bytes;
use datafusion_proto::protobuf::physical_plan_node::PhysicalPlanType;
use datafusion_proto::protobuf::{
    CsvScanExecNode, ExplainExecNode, FilterExecNode, MemoryScanExecNode, ParquetScanExecNode,
    ParquetSinkExecNode, PhysicalPlanNode,
};
use prost::Message;
use volary_cli::client::Client;
use volary_cli::settings::Settings;
use volary_cli::{LocalCluster, LocalOptions};
use volary_flight_proto::fragment::{Fragment, FragmentId};
use volary_flight_proto::frame::Frame;
use volary_flight_proto::ids::{ClusterId, QueryId};
use volary_flight_proto::seal::{Key, Purpose, Sealer};
use volary_flight_proto::snapshot::Snapshot;
use volary_flight_proto::ticket::FragmentTicket;
use volary_flight_proto::{Error, ErrorCode, Result};
use volary_node::channel::{ChannelOptions, flight_client};
use volary_node::runtimes::OwnedRuntimes;
use volary_node::size::MemorySize;
use volary_tests::cluster::{TestCluster, TestTable, run};

const SECRET: &str = "the secret of the cluster of these tests";
const LIFETIME: Duration = Duration::from_secs(60);

/// A worker that the test calls as a gateway would, with the cluster's secret.
struct Fixture {
    cluster: TestCluster,
    ticket: FragmentTicket,
}

impl Fixture {
    async fn start() -> Self {
        let secret = |options: &mut LocalOptions| {
            options.gateway.secret = Some(SECRET.to_owned());
        };
        let cluster = TestCluster::start_with(1, secret).await.unwrap();
        let nodes = cluster.nodes();
        let ticket = FragmentTicket {
            query_id: bytes_of(QueryId::new().0.as_bytes()),
            cluster: nodes.gateway().cluster_id().short(),
            worker_id: nodes.worker_id(0).unwrap().0,
            fragment_id: FragmentId::of(b"a plan that no worker knows").to_bytes(),
            snapshot: Some(Snapshot::default()),
            batch_bytes: 1 << 20,
            ..FragmentTicket::default()
        };
        Self { cluster, ticket }
    }

    /// Returns the first message of the worker's answer to a DoGet.
    async fn first_message(&self, ticket: impl Into<Bytes>) -> Result<Option<FlightData>> {
        let address = self.cluster.nodes().worker_address(0).unwrap().to_string();
        let options = ChannelOptions::default();
        let io = tokio::runtime::Handle::current();
        let mut client = flight_client(&address, &options, &io).unwrap();
        let ticket = Ticket {
            ticket: ticket.into(),
        };
        let mut messages = client.do_get(ticket).await?.into_inner();
        Ok(messages.message().await?)
    }

    async fn refusal(&self, ticket: impl Into<Bytes>) -> Error {
        self.first_message(ticket).await.unwrap_err()
    }

    fn seal_changed(&self, change: impl FnOnce(&mut FragmentTicket)) -> Bytes {
        let mut ticket = self.ticket.clone();
        change(&mut ticket);
        Sealer::new(Key::from_secret(SECRET)).seal(Purpose::Fragment, &ticket, LIFETIME)
    }

    fn seal_with_plan(&self, plan: Vec<u8>) -> Bytes {
        let fragment = encoded_fragment(plan);
        self.seal_changed(|ticket| {
            ticket.fragment_id = FragmentId::of(&fragment).to_bytes();
            ticket.fragment = Some(fragment);
        })
    }
}

fn bytes_of(id: &[u8; 16]) -> Bytes {
    Bytes::copy_from_slice(id)
}

fn encoded_fragment(plan: Vec<u8>) -> Bytes {
    let fragment = Fragment {
        plan: plan.into(),
        batch_rows: 8192,
        keep_alive_ms: 1000,
        ..Fragment::default()
    };
    fragment.encode_to_vec().into()
}

fn node(plan: PhysicalPlanType) -> PhysicalPlanNode {
    PhysicalPlanNode {
        physical_plan_type: Some(plan),
    }
}

#[test]
fn a_ticket_that_no_gateway_of_the_cluster_sealed_for_this_worker_is_refused() {
    run(async {
        let fixture = Fixture::start().await;
        let genuine = fixture.seal_changed(|_| {});
        let with_other_secret = Sealer::new(Key::from_secret("another")).seal(
            Purpose::Fragment,
            &fixture.ticket,
            LIFETIME,
        );
        let for_other_purpose =
            Sealer::new(Key::from_secret(SECRET)).seal(Purpose::Query, &fixture.ticket, LIFETIME);
        let mut altered = genuine.to_vec();
        altered[40] ^= 1;
        let denied = ErrorCode::PermissionDenied;
        for (ticket, code, said) in [
            (with_other_secret, denied, "was not sealed by this cluster"),
            (altered.into(), denied, "altered or truncated"),
            (genuine.slice(..genuine.len() - 1), denied, "truncated"),
            (genuine.slice(..10), ErrorCode::InvalidArgument, "truncated"),
            (Bytes::new(), ErrorCode::InvalidArgument, "truncated"),
            (for_other_purpose, denied, "another kind"),
            (
                fixture.seal_changed(|ticket| ticket.worker_id += 1),
                ErrorCode::Unavailable,
                "the call is for worker",
            ),
            (
                fixture.seal_changed(|ticket| ticket.cluster = ClusterId::new().short()),
                ErrorCode::Unavailable,
                "of another cluster",
            ),
            (
                fixture.seal_changed(|ticket| ticket.query_id = Bytes::from_static(b"a query")),
                ErrorCode::InvalidArgument,
                "query id",
            ),
        ] {
            let error = fixture.refusal(ticket).await;
            assert_eq!(error.code(), code, "{said}: {error}");
            assert!(error.message().contains(said), "{said}: {error}");
        }
        fixture.cluster.stop().await;
    });
}

#[test]
fn a_plan_with_an_operator_that_is_not_allowed_is_refused_by_name() {
    run(async {
        let fixture = Fixture::start().await;
        let csv = || PhysicalPlanType::CsvScan(CsvScanExecNode::default());
        let below_a_filter = PhysicalPlanType::Filter(Box::new(FilterExecNode {
            input: Some(Box::new(node(csv()))),
            ..FilterExecNode::default()
        }));
        for (plan, said) in [
            (csv(), "a CSV scan"),
            (below_a_filter, "a CSV scan"),
            (
                PhysicalPlanType::ParquetScan(ParquetScanExecNode::default()),
                "a Parquet scan",
            ),
            (
                PhysicalPlanType::MemoryScan(MemoryScanExecNode::default()),
                "a memory scan",
            ),
            (
                PhysicalPlanType::ParquetSink(Box::<ParquetSinkExecNode>::default()),
                "a Parquet sink",
            ),
            (
                PhysicalPlanType::Explain(ExplainExecNode::default()),
                "EXPLAIN",
            ),
        ] {
            let plan = node(plan).encode_to_vec();
            let error = fixture.refusal(fixture.seal_with_plan(plan)).await;
            assert_eq!(error.code(), ErrorCode::PermissionDenied, "{error}");
            let message = error.message();
            assert!(
                message.contains(&format!("a fragment may not contain {said}")),
                "{message}"
            );
        }
        let error = fixture.refusal(fixture.seal_with_plan(vec![0xff; 9])).await;
        assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error}");
        fixture.cluster.stop().await;
    });
}

#[test]
fn a_worker_asks_for_a_plan_that_it_does_not_know_and_takes_no_other_one() {
    run(async {
        let fixture = Fixture::start().await;
        let asked = fixture
            .first_message(fixture.seal_changed(|_| {}))
            .await
            .unwrap();
        let frame = asked.unwrap().app_metadata;
        assert_eq!(frame, Frame::send_fragment().to_bytes());

        let csv = node(PhysicalPlanType::CsvScan(CsvScanExecNode::default()));
        let another = fixture.seal_changed(|ticket| {
            ticket.fragment = Some(encoded_fragment(csv.encode_to_vec()));
        });
        let error = fixture.refusal(another).await;
        assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error}");
        assert!(error.message().contains("does not have the id"), "{error}");
        fixture.cluster.stop().await;
    });
}

/// Upper bound for the size of a ticket that only names its plan, in bytes.
const NAMED_BYTES: usize = 220;

/// What EXPLAIN ANALYZE shows for a query: the bytes of all tickets, and the number of streams that
/// were opened again.
struct SentPlan {
    plan_bytes: usize,
    retries: String,
}

impl SentPlan {
    fn of(analysed: &RecordBatch) -> Self {
        let texts = analysed.column(1).as_string::<i32>();
        let text: String = texts.iter().flatten().collect();
        let after = |key: &str| {
            let (_, rest) = text.split_once(key).unwrap_or_else(|| panic!("{text}"));
            rest.to_owned()
        };
        // A size is a number and its unit.
        let size = after("plan_bytes=");
        let size: Vec<_> = size.split(' ').take(2).collect();
        let MemorySize::Bytes(bytes) = size.join(" ").parse::<MemorySize>().unwrap() else {
            panic!("{text}");
        };
        let retries = after("retries=");
        let digits = retries.chars().take_while(char::is_ascii_digit);
        Self {
            plan_bytes: usize::try_from(bytes).unwrap(),
            retries: digits.collect(),
        }
    }
}

fn birds() -> RecordBatch {
    let names = ["wren", "rook", "kite", "gull"];
    let names: StringArray = (0..1000).map(|row| Some(names[row % 4])).collect();
    let ids = Int64Array::from_iter_values(0..1000);
    RecordBatch::try_from_iter([
        ("id", Arc::new(ids) as ArrayRef),
        ("name", Arc::new(names) as ArrayRef),
    ])
    .unwrap()
}

fn counting_query(least: i64, name: &str) -> String {
    format!(
        "SELECT count(*), sum(id) FROM birds WHERE id >= {least} AND name = '{name}' GROUP BY name"
    )
}

#[test]
fn a_plan_is_sent_once_whatever_its_values() {
    run(async {
        const WORKERS: usize = 3;
        let mut cluster = TestCluster::start(WORKERS).await.unwrap();
        let table = TestTable::sharded("birds", "id", 12, birds());
        cluster.load(&table).await.unwrap();
        let mut sent = async |sql: String| {
            let analysed = cluster.sql(&format!("EXPLAIN ANALYZE {sql}")).await;
            SentPlan::of(&analysed.unwrap())
        };
        let first = sent(counting_query(100, "wren")).await;
        assert!(first.plan_bytes > WORKERS * 2 * NAMED_BYTES);
        for sql in [counting_query(100, "wren"), counting_query(101, "kite")] {
            let again = sent(sql).await;
            assert!(
                again.plan_bytes < WORKERS * NAMED_BYTES,
                "{}",
                again.plan_bytes
            );
            assert_eq!(again.retries, "0");
        }
        let other = sent("SELECT max(id) FROM birds WHERE id >= 100".to_owned()).await;
        assert!(other.plan_bytes > WORKERS * 2 * NAMED_BYTES);
        // Each statement gets its own values.
        for (least, name, count) in [(0, "wren", 250), (500, "wren", 125), (996, "gull", 1)] {
            let rows = cluster.sql(&counting_query(least, name)).await.unwrap();
            let found = rows.column(0).as_primitive::<Int64Type>().value(0);
            assert_eq!(found, count, "{least} {name}");
        }
        cluster.stop().await;
    });
}

#[test]
fn a_worker_that_was_started_again_is_sent_the_plan_again() {
    let runtimes = OwnedRuntimes::start(None).unwrap();
    let handles = runtimes.handles().clone();
    handles.io().block_on(async {
        let directory = tempfile::tempdir().unwrap();
        let mut settings = Settings::default();
        settings.local.listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        settings.local.data_dir = directory.path().join("nodes");
        settings.local.workers = 2;
        settings.local.memory = MemorySize::Bytes(1 << 30);
        let options = LocalOptions::new(settings, handles.clone());
        let mut nodes = LocalCluster::start(options).await.unwrap();
        let mut client = Client::connect(&nodes.uri()).await.unwrap();
        let create = "CREATE TABLE numbers WITH (shard_key = 'n', shards = 8) AS SELECT n FROM generate_series(1, 1000) t(n)";
        client.collect(create).await.unwrap();

        let sql = "SELECT count(*) FROM numbers WHERE n > 10";
        let analyse = format!("EXPLAIN ANALYZE {sql}");
        client.collect(&analyse).await.unwrap();
        let known = SentPlan::of(&client.collect(&analyse).await.unwrap());
        assert!(known.plan_bytes < 2 * NAMED_BYTES, "{}", known.plan_bytes);

        nodes.stop_worker(0).await.unwrap();
        nodes.start_worker(0).await.unwrap();
        let asked = SentPlan::of(&client.collect(&analyse).await.unwrap());
        assert!(
            asked.plan_bytes > known.plan_bytes + NAMED_BYTES,
            "{}",
            asked.plan_bytes
        );
        assert_eq!(asked.retries, "0");
        let known_again = SentPlan::of(&client.collect(&analyse).await.unwrap());
        assert!(known_again.plan_bytes < 2 * NAMED_BYTES);
        let rows = client.collect(sql).await.unwrap();
        assert_eq!(rows.column(0).as_primitive::<Int64Type>().value(0), 990);
        nodes.shutdown().await;
    });
}
