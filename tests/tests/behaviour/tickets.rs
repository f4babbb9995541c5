//! What a worker does not run: tickets that no gateway of its cluster sealed for it, and operators that read or write anything but
//! its shards.

use std::time::Duration;

use arrow_flight::Ticket;
use datafusion_proto::protobuf::physical_plan_node::PhysicalPlanType;
use datafusion_proto::protobuf::{
    CsvScanExecNode, ExplainExecNode, FilterExecNode, MemoryScanExecNode, ParquetScanExecNode,
    ParquetSinkExecNode, PhysicalPlanNode,
};
use prost::Message;
use volary_flight_proto::seal::{Key, Purpose, Sealer};
use volary_flight_proto::snapshot::Snapshot;
use volary_flight_proto::ticket::FragmentTicket;
use volary_flight_proto::{Error, ErrorCode};
use volary_node::channel::{ChannelOptions, flight_client};
use volary_tests::cluster::{Cluster, run};

const SECRET: &str = "the cluster's secret";
const LIFETIME: Duration = Duration::from_secs(60);

/// A worker that is spoken to as a gateway would.
struct Fixture {
    cluster: Cluster,
    ticket: FragmentTicket,
}

impl Fixture {
    async fn start() -> Self {
        let secret = |options: &mut volary_cli::LocalOptions| {
            options.gateway.secret = Some(SECRET.to_owned());
        };
        let cluster = Cluster::start_with(1, secret).await.unwrap();
        let nodes = cluster.nodes();
        let ticket = FragmentTicket {
            query_id: "a-query".to_owned(),
            cluster_id: nodes.gateway().cluster_id().to_string(),
            worker_id: nodes.worker_id(0).unwrap().0,
            snapshot: Some(Snapshot::default()),
            batch_rows: 8192,
            batch_bytes: 1 << 20,
            keep_alive_ms: 1000,
            ..FragmentTicket::default()
        };
        Self { cluster, ticket }
    }

    /// What the worker says to a DoGet.
    async fn refusal(&self, ticket: impl Into<bytes::Bytes>) -> Error {
        let address = self.cluster.nodes().worker_address(0).unwrap().to_string();
        let options = ChannelOptions::default();
        let io = tokio::runtime::Handle::current();
        let mut client = flight_client(&address, &options, &io).unwrap();
        let ticket = Ticket {
            ticket: ticket.into(),
        };
        let answered = match client.do_get(ticket).await {
            Ok(answer) => answer.into_inner().message().await.map(|_| ()),
            Err(status) => Err(status),
        };
        Error::from(answered.unwrap_err())
    }

    fn sealed(&self, change: impl FnOnce(&mut FragmentTicket)) -> bytes::Bytes {
        let mut ticket = self.ticket.clone();
        change(&mut ticket);
        Sealer::new(Key::from_secret(SECRET)).seal(Purpose::Fragment, &ticket, LIFETIME)
    }

    fn with_plan(&self, plan: PhysicalPlanType) -> bytes::Bytes {
        let plan = node(plan).encode_to_vec();
        self.sealed(|ticket| ticket.plan = plan.into())
    }
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
        let genuine = fixture.sealed(|_| {});
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
            (bytes::Bytes::new(), ErrorCode::InvalidArgument, "truncated"),
            (for_other_purpose, denied, "another kind"),
            (
                fixture.sealed(|ticket| ticket.worker_id += 1),
                ErrorCode::Unavailable,
                "the call is for worker",
            ),
            (
                fixture.sealed(|ticket| ticket.cluster_id = "another".to_owned()),
                ErrorCode::Unavailable,
                "of cluster another",
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
            let error = fixture.refusal(fixture.with_plan(plan)).await;
            assert_eq!(error.code(), ErrorCode::PermissionDenied, "{error}");
            let message = error.message();
            assert!(
                message.contains(&format!("a fragment may not contain {said}")),
                "{message}"
            );
        }
        let nonsense = fixture.sealed(|ticket| ticket.plan = vec![0xff; 9].into());
        let error = fixture.refusal(nonsense).await;
        assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error}");
        fixture.cluster.stop().await;
    });
}
