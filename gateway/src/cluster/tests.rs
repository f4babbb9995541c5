//! Tests how the gateway sees workers that join, answer and leave.

/// Implements a stub of a worker, whose reports and answers to writes are set by a test.
mod stub_worker;

use std::net::SocketAddr;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};
use volary_catalog::access::Rights;
use volary_catalog::{DefinitionKind, IfExists, RedbStore, RelationName, Table, TableDefinition};
use volary_flight_proto::ids::{QueryId, WriteId};
use volary_flight_proto::membership::{
    CheckAnswer, CheckRequest, JoinRequest, JoinResponse, LeaveRequest, LeaveResponse,
};
use volary_gather::{Peers, Window};
use volary_node::disk::LocalDisk;

use super::*;
use crate::config;
use crate::load::put::{self, PutContext};
use crate::statements::Statements;

use stub_worker::StubWorker;

/// How long a test waits for an event that must happen.
const PATIENCE: Duration = Duration::from_secs(20);
const LOOPBACK: &str = "127.0.0.1:50000";
const REMOTE: &str = "192.0.2.7:50000";

/// A cluster whose catalog is in a temporary directory.
struct Fixture {
    cluster: Arc<Cluster>,
    catalog: Catalog,
    config: Config,
    directory: std::path::PathBuf,
}

impl Fixture {
    /// Returns the cluster of a gateway that has been restarted with this catalog.
    fn started_again(&self) -> Arc<Cluster> {
        new_cluster(&self.config, &self.catalog)
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn new_cluster(config: &Config, catalog: &Catalog) -> Arc<Cluster> {
    let address = peer("127.0.0.1:7100");
    Cluster::new(
        config,
        address,
        catalog.clone(),
        None,
        Handle::current(),
        None,
    )
}

async fn cluster(secret: Option<&str>) -> Fixture {
    cluster_with(config::Cluster::default(), secret).await
}

async fn cluster_that_loses_after(lost_after: Duration) -> Fixture {
    let settings = config::Cluster {
        lost_after,
        ..config::Cluster::default()
    };
    cluster_with(settings, None).await
}

/// Creates a cluster in which workers are asked often.
async fn quick_cluster() -> Fixture {
    let settings = config::Cluster {
        heartbeat_interval: Duration::from_millis(10),
        lost_after: Duration::from_millis(200),
        ..config::Cluster::default()
    };
    cluster_with(settings, None).await
}

async fn cluster_with(settings: config::Cluster, secret: Option<&str>) -> Fixture {
    let directory = std::env::temp_dir().join(format!("volary-cluster-{}", uuid::Uuid::new_v4()));
    std::fs::create_dir(&directory).unwrap();
    let store = RedbStore::open(&directory, Arc::new(LocalDisk))
        .await
        .unwrap();
    let catalog = Catalog::open(Arc::new(store)).await.unwrap();
    let config = Config {
        secret: secret.map(str::to_owned),
        cluster: settings,
        ..Config::default()
    };
    Fixture {
        cluster: new_cluster(&config, &catalog),
        catalog,
        config,
        directory,
    }
}

/// Asks the workers until the guard is dropped.
fn ask_workers(cluster: &Arc<Cluster>) -> DropGuard {
    let stopping = CancellationToken::new();
    let statements = Arc::new(Statements::new(1));
    tokio::spawn(Arc::clone(cluster).ask_workers(statements, stopping.clone()));
    stopping.drop_guard()
}

/// Waits until the condition holds. It is checked whenever the stub is asked.
async fn until(stub: &StubWorker, condition: impl Fn() -> bool) {
    let mut questions = stub.questions();
    let waiting = async {
        while !condition() {
            questions.changed().await.unwrap();
        }
    };
    timeout(PATIENCE, waiting).await.unwrap();
}

fn states(cluster: &Cluster) -> Vec<NodeState> {
    cluster.nodes().iter().map(|node| node.state).collect()
}

fn peer(address: &str) -> SocketAddr {
    address.parse().unwrap()
}

fn request(worker_id: Option<u64>, address: &str, instance: &str) -> JoinRequest {
    JoinRequest {
        worker_id,
        cluster_id: None,
        address: address.to_owned(),
        instance: instance.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        zone: None,
    }
}

fn leaving(worker_id: u64, instance: &str) -> LeaveRequest {
    LeaveRequest {
        worker_id,
        instance: instance.to_owned(),
    }
}

#[tokio::test]
async fn a_worker_joins_and_is_listed_until_it_leaves() {
    let fixture = cluster(None).await;
    let cluster = &fixture.cluster;
    let sealer = Sealer::new(Key::from_secret(""));
    let joining = request(None, "127.0.0.1:7201", "a");
    let body = sealer.seal(Purpose::Membership, &joining, ANSWER_LIFETIME);
    let answer = cluster
        .handle_action(JOIN_ACTION, &body, peer(LOOPBACK))
        .await
        .unwrap();
    let answer: JoinResponse = sealer.open(Purpose::MembershipAnswer, &answer).unwrap();
    assert_eq!(answer.worker_id, 1);
    assert_eq!(answer.report_interval_ms, 1000);
    let key: [u8; 32] = answer.key[..].try_into().unwrap();
    let sealed = Sealer::new(Key::from(key)).seal(Purpose::Control, &joining, ANSWER_LIFETIME);
    assert!(
        cluster
            .sealer()
            .open::<JoinRequest>(Purpose::Control, &sealed)
            .is_ok()
    );
    let nodes = cluster.nodes();
    assert_eq!(nodes.len(), 1);
    assert_eq!(nodes[0].state, NodeState::Alive);
    assert_eq!(nodes[0].report, None);
    assert_eq!(cluster.name(WorkerId(1)), "worker w1 at 127.0.0.1:7201");
    assert!(cluster.client(WorkerId(1), Window::Wide).is_ok());
    assert_eq!(
        cluster
            .client(WorkerId(2), Window::Wide)
            .unwrap_err()
            .code(),
        ErrorCode::Unavailable
    );
    let leave = async |instance: &str| {
        let body = sealer.seal(Purpose::Membership, &leaving(1, instance), ANSWER_LIFETIME);
        let answer = cluster
            .handle_action(LEAVE_ACTION, &body, peer(LOOPBACK))
            .await
            .unwrap();
        let _: LeaveResponse = sealer.open(Purpose::MembershipAnswer, &answer).unwrap();
    };
    leave("another start").await;
    assert_eq!(states(cluster), [NodeState::Alive]);
    leave("a").await;
    assert_eq!(states(cluster), [NodeState::Draining]);
    let refused = cluster
        .handle_action("volary.heartbeat", &body, peer(LOOPBACK))
        .await;
    assert_eq!(refused.unwrap_err().code(), ErrorCode::Unimplemented);
}

#[tokio::test]
async fn without_a_secret_only_workers_of_the_same_machine_join() {
    let fixture = cluster(None).await;
    let refused = fixture
        .cluster
        .join(request(None, "192.0.2.7:7201", "a"), peer(REMOTE))
        .await;
    let error = refused.unwrap_err();
    assert_eq!(error.code(), ErrorCode::PermissionDenied);
    assert!(error.message().contains("gateway.secret"), "{error}");

    let fixture = cluster(Some("secret")).await;
    let join = |sealer: Sealer| {
        let message = request(None, "192.0.2.7:7201", "a");
        let body = sealer.seal(Purpose::Membership, &message, ANSWER_LIFETIME);
        let cluster = Arc::clone(&fixture.cluster);
        async move {
            cluster
                .handle_action(JOIN_ACTION, &body, peer(REMOTE))
                .await
        }
    };
    let error = join(Sealer::new(Key::from_secret("guess")))
        .await
        .unwrap_err();
    assert_eq!(error.code(), ErrorCode::PermissionDenied);
    let sealer = Sealer::new(Key::from_secret("secret"));
    let answer = join(sealer.clone()).await.unwrap();
    let answer: JoinResponse = sealer.open(Purpose::MembershipAnswer, &answer).unwrap();
    assert!(answer.key.is_empty());
}

#[tokio::test]
async fn a_second_worker_with_the_same_id_is_refused_while_the_first_is_there() {
    let fixture = cluster(None).await;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let first = listener.local_addr().unwrap().to_string();
    let join = async |address: &str, instance: &str, id| {
        fixture
            .cluster
            .join(request(id, address, instance), peer(LOOPBACK))
            .await
    };
    let id = Some(join(&first, "a", None).await.unwrap().worker_id);
    let error = join("127.0.0.1:7299", "b", id).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::AlreadyExists);
    assert!(
        error.message().contains(&first) && error.message().contains("127.0.0.1:7299"),
        "{error}"
    );
    // A new instance at the same address is admitted. A new instance at another address is admitted
    // when no process listens at the former address any more.
    assert_eq!(join(&first, "c", id).await.unwrap().worker_id, 1);
    drop(listener);
    assert_eq!(join("127.0.0.1:7299", "d", id).await.unwrap().worker_id, 1);
    assert_eq!(
        fixture.cluster.name(WorkerId(1)),
        "worker w1 at 127.0.0.1:7299"
    );
}

#[tokio::test]
async fn workers_that_do_not_belong_here_are_told_why() {
    let fixture = cluster(None).await;
    let other_release = JoinRequest {
        version: "9.9.0".to_owned(),
        ..request(None, "127.0.0.1:7201", "a")
    };
    let nowhere = JoinRequest {
        zone: Some("here and there".to_owned()),
        ..request(None, "127.0.0.1:7201", "a")
    };
    let other_cluster = JoinRequest {
        cluster_id: Some("6f1a5c0e-1f57-4d4c-9d5e-0b6a7a1f2e3d".to_owned()),
        ..request(Some(1), "127.0.0.1:7201", "a")
    };
    for (refused, said) in [
        (other_release, "9.9.0"),
        (other_cluster, "belongs to cluster"),
        (nowhere, "a zone has 1 to 63 letters"),
        (request(None, "0.0.0.0:7201", "a"), "worker.advertise"),
        (request(None, "nowhere", "a"), "host:port"),
        (request(Some(5), "127.0.0.1:7201", "a"), "unknown"),
    ] {
        let error = fixture
            .cluster
            .join(refused, peer(LOOPBACK))
            .await
            .unwrap_err();
        assert!(error.message().contains(said), "{error}");
    }
    assert!(fixture.cluster.nodes().is_empty());
}

#[tokio::test]
async fn the_zone_of_a_worker_is_that_of_its_last_join() {
    let fixture = cluster(None).await;
    let mut worker = None;
    for zone in [Some("a"), Some("b"), None] {
        let joining = JoinRequest {
            zone: zone.map(str::to_owned),
            ..request(worker, "127.0.0.1:7201", "a")
        };
        let joined = fixture.cluster.join(joining, peer(LOOPBACK)).await;
        worker = Some(joined.unwrap().worker_id);
        assert_eq!(fixture.cluster.nodes()[0].zone.as_deref(), zone);
    }
}

#[tokio::test]
async fn a_worker_that_only_checks_does_not_join() {
    let fixture = cluster(Some("secret")).await;
    let check = async |join: JoinRequest| -> CheckAnswer {
        let sealer = Sealer::new(Key::from_secret("secret"));
        let request = CheckRequest {
            join: Some(join),
            nonce: vec![7].into(),
        };
        let body = sealer.seal(Purpose::Check, &request, ANSWER_LIFETIME);
        let answer = fixture
            .cluster
            .handle_action(CHECK_ACTION, &body, peer(REMOTE))
            .await
            .unwrap();
        sealer.open(Purpose::CheckAnswer, &answer).unwrap()
    };
    let admitted = check(request(None, "192.0.2.7:7201", "")).await;
    assert_eq!(admitted.refusal, "");
    assert_eq!(admitted.nonce[..], [7]);
    assert_eq!(admitted.version, env!("CARGO_PKG_VERSION"));
    assert_eq!(
        admitted.cluster_id,
        fixture.catalog.state().cluster_id().to_string()
    );
    let unknown = check(request(Some(5), "192.0.2.7:7201", "")).await;
    assert!(
        unknown.refusal.starts_with("NOT_FOUND: worker w5"),
        "{}",
        unknown.refusal
    );
    assert!(fixture.cluster.nodes().is_empty());

    let joining = Sealer::new(Key::from_secret("secret")).seal(
        Purpose::Membership,
        &request(None, "192.0.2.7:7201", "a"),
        ANSWER_LIFETIME,
    );
    let confused = fixture
        .cluster
        .handle_action(CHECK_ACTION, &joining, peer(REMOTE))
        .await;
    assert_eq!(confused.unwrap_err().code(), ErrorCode::PermissionDenied);
}

#[tokio::test]
async fn a_worker_that_falls_silent_is_lost() {
    let fixture = cluster_that_loses_after(Duration::ZERO).await;
    let cluster = &fixture.cluster;
    cluster
        .join(request(None, "127.0.0.1:7201", "a"), peer(LOOPBACK))
        .await
        .unwrap();
    assert_eq!(states(cluster), [NodeState::Alive], "nobody has asked it");
    for _ in 0..2 {
        let (_, answered) = cluster.ask(WorkerId(1)).await;
        let error = answered.unwrap_err();
        assert!(
            error.message().contains("worker w1 at 127.0.0.1:7201"),
            "{error}"
        );
    }
    assert_eq!(states(cluster), [NodeState::Lost]);
    assert!(cluster.live_workers().is_empty());
    let waited = cluster.wait_for_workers(1, Duration::from_millis(1)).await;
    assert_eq!(waited.unwrap_err().code(), ErrorCode::Unavailable);
    let refused = cluster.refuse_lost(&[WorkerId(1)]).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::Unavailable);
    assert!(
        refused.message().contains("worker w1 at 127.0.0.1:7201"),
        "{refused}"
    );
}

#[tokio::test]
async fn workers_have_time_to_join_after_a_start_of_the_gateway() {
    let fixture = cluster(None).await;
    let never_joined = WorkerId(7);
    fixture.cluster.refuse_lost(&[never_joined]).unwrap();
    let fixture = cluster_that_loses_after(Duration::ZERO).await;
    let refused = fixture.cluster.refuse_lost(&[never_joined]);
    assert_eq!(refused.unwrap_err().code(), ErrorCode::Unavailable);
}

#[tokio::test]
async fn live_workers_come_first_and_others_keep_their_order() {
    let fixture = cluster(None).await;
    fixture
        .cluster
        .join(request(None, "127.0.0.1:7201", "a"), peer(LOOPBACK))
        .await
        .unwrap();
    let mut workers = [3, 2, 1, 4].map(WorkerId);
    fixture.cluster.sort_live_first(&mut workers);
    assert_eq!(workers, [1, 3, 2, 4].map(WorkerId));
}

#[tokio::test]
async fn a_worker_that_joins_is_waited_for_and_one_that_drains_does_not_count() {
    let fixture = cluster(None).await;
    let cluster = &fixture.cluster;
    let join = cluster.join(request(None, "127.0.0.1:7201", "a"), peer(LOOPBACK));
    let wait = cluster.wait_for_workers(1, Duration::from_secs(60));
    let (waited, joined) = tokio::join!(wait, join);
    waited.unwrap();
    joined.unwrap();
    assert_eq!(cluster.live_workers(), [WorkerId(1)]);
    cluster.leave(&leaving(1, "a"));
    assert_eq!(states(cluster), [NodeState::Draining]);
    assert!(cluster.live_workers().is_empty());
}

#[tokio::test]
async fn a_worker_that_has_joined_is_asked_for_its_report() {
    // The worker's turn comes after the end of the test, so it must be asked before its turn.
    let seldom = config::Cluster {
        heartbeat_interval: 2 * PATIENCE,
        lost_after: 4 * PATIENCE,
        ..config::Cluster::default()
    };
    let fixture = cluster_with(seldom, Some("secret")).await;
    let cluster = &fixture.cluster;
    let _asking = ask_workers(cluster);
    let stub = StubWorker::join(cluster).await;
    stub.change_report(|report| report.rows = 42);
    let mut questions = stub.questions();
    let asked = questions.wait_for(|questions| !questions.is_empty());
    let question = timeout(PATIENCE, asked).await.unwrap().unwrap()[0].clone();
    assert_eq!(u128::from(question.next_ms), (2 * PATIENCE).as_millis());
    // The worker joins again, so it is asked again as soon as it has answered.
    stub.join_again(cluster).await;
    let asked = questions.wait_for(|questions| questions.len() == 2);
    timeout(PATIENCE, asked).await.unwrap().unwrap();
    stub.join_again(cluster).await;
    let asked = questions.wait_for(|questions| questions.len() == 3);
    timeout(PATIENCE, asked).await.unwrap().unwrap();
    let reported = cluster.nodes()[0].report.map(|report| report.rows);
    assert_eq!(reported, Some(42));
}

#[tokio::test]
async fn workers_live_when_they_answer_the_gateway_that_was_started_again() {
    let fixture = quick_cluster().await;
    let _stub = StubWorker::join(&fixture.cluster).await;
    let cluster = fixture.started_again();
    assert_eq!(states(&cluster), [NodeState::Unknown]);
    let _asking = ask_workers(&cluster);
    cluster.wait_for_workers(1, PATIENCE).await.unwrap();
    let node = cluster.nodes().remove(0);
    assert_eq!(node.state, NodeState::Alive);
    assert_eq!(node.report.map(|report| report.bytes), Some(0));
    // A worker that is known by its answer is treated as if it had joined.
    let elsewhere = request(Some(node.id.0), "127.0.0.1:7299", "another start");
    let refused = cluster.join(elsewhere, peer(LOOPBACK)).await;
    assert_eq!(refused.unwrap_err().code(), ErrorCode::AlreadyExists);
}

#[tokio::test]
async fn a_worker_that_hangs_is_lost_alone_and_lives_when_it_answers_again() {
    let fixture = quick_cluster().await;
    let cluster = &fixture.cluster;
    let hanging = StubWorker::join(cluster).await;
    let answering = StubWorker::join(cluster).await;
    let _asking = ask_workers(cluster);
    hanging.set_hanging(true);
    let one_is_lost = [NodeState::Lost, NodeState::Alive];
    until(&answering, || states(cluster) == one_is_lost).await;
    let refused = cluster.refuse_lost(&[WorkerId(2), WorkerId(1)]);
    let name = cluster.name(WorkerId(1));
    assert!(refused.unwrap_err().message().starts_with(&name));
    hanging.set_hanging(false);
    until(&answering, || states(cluster) == [NodeState::Alive; 2]).await;
}

#[tokio::test]
async fn workers_are_told_what_is_garbage_until_they_say_that_it_is_deleted() {
    let fixture = cluster(None).await;
    let (cluster, catalog) = (&fixture.cluster, &fixture.catalog);
    let stub = StubWorker::join(cluster).await;
    let worker = WorkerId(1);
    let definition = TableDefinition {
        name: RelationName::in_public("birds"),
        schema: Arc::new(Schema::new(vec![Field::new("k", DataType::Int64, true)])),
        kind: DefinitionKind::Sharded {
            key: Some(0),
            shards: 4,
        },
        sort_key: Vec::new(),
        declarations: Default::default(),
    };
    let created = catalog
        .create_table(
            definition,
            &[worker],
            IfExists::Fail,
            &Arc::new(Rights::of_open_cluster("kea")),
        )
        .await;
    let table = created.unwrap().unwrap();
    let write = catalog.begin_write(&table).await.unwrap().take_over();
    catalog.abort_write(write, Some(table.id())).await.unwrap();
    // The worker has not deleted the rows yet, or the answer that says so was lost.
    for _ in 0..2 {
        cluster.ask(worker).await.1.unwrap();
        let question = stub.last_question();
        assert_eq!(question.live_tables, [table.id().0]);
        assert_eq!(question.last_table, table.id().0);
        assert_eq!(question.aborted_bounds, [write.0, write.0]);
    }
    let last_abort = stub.last_question().last_abort;
    stub.change_report(|report| report.deleted_through = last_abort);
    cluster.ask(worker).await.1.unwrap();
    assert!(catalog.state().aborted_writes_of(worker).is_empty());
    cluster.ask(worker).await.1.unwrap();
    assert!(stub.last_question().aborted_bounds.is_empty());
}

#[tokio::test]
async fn an_answer_of_somebody_else_is_not_believed() {
    let fixture = cluster(None).await;
    let cluster = fixture.started_again();
    let stub = StubWorker::join(&fixture.cluster).await;
    let refused = async |code: ErrorCode| {
        let (worker, answered) = cluster.ask(WorkerId(1)).await;
        let error = answered.unwrap_err();
        assert_eq!((worker, error.code()), (WorkerId(1), code), "{error}");
        assert!(error.message().starts_with(&cluster.name(worker)));
        assert_eq!(states(&cluster), [NodeState::Unknown]);
    };
    stub.change_report(|report| report.worker_id = 2);
    refused(ErrorCode::Unavailable).await;
    stub.change_report(|report| report.worker_id = 1);
    stub.seal_with(Sealer::new(Key::random()));
    refused(ErrorCode::PermissionDenied).await;
    stub.seal_with(cluster.sealer().clone());
    cluster.ask(WorkerId(1)).await.1.unwrap();
    assert_eq!(states(&cluster), [NodeState::Alive]);
}

/// Creates a reference table on the stub's worker.
async fn reference_table(catalog: &Catalog, worker: WorkerId) -> Arc<Table> {
    let schema = Schema::new(vec![Field::new("k", DataType::Int64, false)]);
    let definition = TableDefinition {
        name: RelationName::in_public("eggs"),
        schema: Arc::new(schema),
        kind: DefinitionKind::Reference,
        sort_key: Vec::new(),
        declarations: Default::default(),
    };
    let by = Arc::new(Rights::of_open_cluster("kea"));
    let created = catalog
        .create_table(definition, &[worker], IfExists::Fail, &by)
        .await;
    created.unwrap().unwrap()
}

#[tokio::test]
async fn a_worker_that_keeps_other_rows_than_it_was_sent_fails_the_write() {
    let fixture = quick_cluster().await;
    let (cluster, worker) = (&fixture.cluster, WorkerId(1));
    let stub = StubWorker::join(cluster).await;
    let table = reference_table(&fixture.catalog, worker).await;
    for (kept, is_right) in [(2, false), (3, true), (4, false)] {
        stub.claim_rows(kept);
        let (puts, written) = put::open(PutContext {
            cluster: Arc::clone(cluster),
            idle: PATIENCE,
            owner: 0,
            query_id: QueryId::new(),
            table: Arc::clone(&table),
            write: WriteId(1),
            span: tracing::Span::none(),
        });
        let keys: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
        let rows = RecordBatch::try_from_iter([("k", keys)]).unwrap();
        let sending = async {
            puts.sender(worker).send(rows).await.unwrap();
            drop(puts);
        };
        let written = async { tokio::join!(sending, written.finish()).1 };
        match timeout(PATIENCE, written).await.unwrap() {
            Ok(_) => assert!(is_right, "{kept} rows are taken for 3"),
            Err(error) => {
                assert!(!is_right && error.code() == ErrorCode::Internal, "{error}");
                let text = format!("was sent 3 rows, but reports that it has stored {kept}");
                assert!(error.message().contains(&text), "{error}");
            }
        }
    }
}

#[tokio::test]
async fn a_write_right_after_the_start_waits_until_the_worker_has_reported() {
    let fixture = quick_cluster().await;
    let stub = StubWorker::join(&fixture.cluster).await;
    let cluster = fixture.started_again();
    let worker = WorkerId(1);
    let instance = cluster.wait_for_instance(worker, PATIENCE).await;
    assert_eq!(instance.unwrap(), "the first start");
    let cluster = fixture.started_again();
    stub.seal_with(Sealer::new(Key::random()));
    let refused = cluster
        .wait_for_instance(worker, PATIENCE)
        .await
        .unwrap_err();
    assert_eq!(refused.code(), ErrorCode::PermissionDenied, "{refused}");
    let stranger = cluster.wait_for_instance(WorkerId(7), Duration::from_millis(10));
    let error = stranger.await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Unavailable, "{error}");
}

#[tokio::test]
async fn a_worker_with_rows_that_the_catalog_does_not_know_stops_all_statements() {
    let fixture = quick_cluster().await;
    let (cluster, catalog) = (&fixture.cluster, &fixture.catalog);
    let stub = StubWorker::join(cluster).await;
    let worker = WorkerId(1);
    let own = catalog.state().lineage();
    // The worker has not adopted this gateway's incarnation, and has no rows of later writes.
    stub.change_report(|report| report.adopted = false);
    cluster.ask(worker).await.1.unwrap();
    cluster.refuse_conflicts().unwrap();
    assert_eq!(cluster.lineage_for(worker).incarnation, own.incarnation);
    assert!(!stub.last_question().set_aside);
    // The worker has rows that no gateway of this catalog has sent to it.
    stub.change_report(|report| report.max_write = 9);
    cluster.ask(worker).await.1.unwrap();
    let error = cluster.refuse_conflicts().unwrap_err();
    assert_eq!(error.code(), ErrorCode::DataLoss);
    for part in [
        &cluster.name(worker),
        "volary gateway recover",
        "catalog.redb",
    ] {
        assert!(error.message().contains(part), "{error}");
    }
    assert!(cluster.refuse_lost(&[]).is_err());
    // Statements are refused until the worker has given these rows up, or a newer catalog is
    // restored.
    stub.change_report(|report| report.adopted = true);
    cluster.ask(worker).await.1.unwrap();
    cluster.refuse_conflicts().unwrap();
}
