//! Workers that join and report, as the gateway sees them.

use std::net::SocketAddr;

use volary_flight_proto::membership::{
    HeartbeatRequest, HeartbeatResponse, JoinRequest, JoinResponse,
};

use super::*;
use crate::catalog::RedbStore;
use crate::config;

const LOOPBACK: &str = "127.0.0.1:50000";
const REMOTE: &str = "192.0.2.7:50000";

/// A cluster in a directory that goes away.
struct Fixture {
    cluster: Arc<Cluster>,
    directory: std::path::PathBuf,
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

async fn cluster(secret: Option<&str>) -> Fixture {
    cluster_that_loses_after(Config::default().cluster.lost_after, secret).await
}

async fn cluster_that_loses_after(lost_after: Duration, secret: Option<&str>) -> Fixture {
    let directory = std::env::temp_dir().join(format!("volary-cluster-{}", uuid::Uuid::new_v4()));
    std::fs::create_dir(&directory).unwrap();
    let store = RedbStore::open(&directory).await.unwrap();
    let catalog = Catalog::open(Arc::new(store)).await.unwrap();
    let config = Config {
        secret: secret.map(str::to_owned),
        cluster: config::Cluster {
            lost_after,
            ..config::Cluster::default()
        },
        ..Config::default()
    };
    Fixture {
        cluster: Cluster::new(&config, peer("127.0.0.1:7100"), catalog, Handle::current()),
        directory,
    }
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
    }
}

fn report(worker_id: u64, instance: &str) -> HeartbeatRequest {
    HeartbeatRequest {
        worker_id,
        instance: instance.to_owned(),
        rows: 42,
        ..HeartbeatRequest::default()
    }
}

#[tokio::test]
async fn a_worker_joins_reports_and_is_listed() {
    let fixture = cluster(None).await;
    let cluster = &fixture.cluster;
    let sealer = Sealer::new(Key::from_secret(""));
    let seal = |message: &JoinRequest| sealer.seal(Purpose::Membership, message, ANSWER_LIFETIME);
    let body = seal(&request(None, "127.0.0.1:7201", "a"));
    let answer = cluster
        .handle_action(JOIN_ACTION, &body, peer(LOOPBACK))
        .await
        .unwrap();
    let answer: JoinResponse = sealer.open(Purpose::Membership, &answer).unwrap();
    assert_eq!(answer.worker_id, 1);
    assert_eq!(answer.heartbeat_ms, 1000);
    let key: [u8; 32] = answer.key[..].try_into().unwrap();
    let sealed =
        Sealer::new(Key::from(key)).seal(Purpose::Control, &report(1, "a"), ANSWER_LIFETIME);
    assert!(
        cluster
            .sealer()
            .open::<HeartbeatRequest>(Purpose::Control, &sealed)
            .is_ok()
    );

    let body = sealer.seal(Purpose::Membership, &report(1, "a"), ANSWER_LIFETIME);
    let answer = cluster
        .handle_action(HEARTBEAT_ACTION, &body, peer(LOOPBACK))
        .await
        .unwrap();
    let answer: HeartbeatResponse = sealer.open(Purpose::Membership, &answer).unwrap();
    assert!(answer.known);
    let nodes = cluster.nodes();
    assert_eq!(nodes.len(), 1);
    assert_eq!(nodes[0].state, NodeState::Alive);
    assert_eq!(nodes[0].report.map(|report| report.rows), Some(42));
    assert_eq!(cluster.name(WorkerId(1)), "worker w1 at 127.0.0.1:7201");
    assert!(cluster.client(WorkerId(1), Window::Wide).is_ok());
    assert_eq!(
        cluster
            .client(WorkerId(2), Window::Wide)
            .unwrap_err()
            .code(),
        ErrorCode::Unavailable
    );
    let other_start = cluster.heartbeat(report(1, "b")).await.unwrap();
    assert!(!other_start.known);
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
    let answer: JoinResponse = sealer.open(Purpose::Membership, &answer).unwrap();
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
    // It starts again at the same address, or it is gone from there: then it is let in.
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
    let other_cluster = JoinRequest {
        cluster_id: Some("6f1a5c0e-1f57-4d4c-9d5e-0b6a7a1f2e3d".to_owned()),
        ..request(Some(1), "127.0.0.1:7201", "a")
    };
    for (refused, said) in [
        (other_release, "9.9.0"),
        (other_cluster, "belongs to cluster"),
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
async fn a_worker_that_falls_silent_is_lost() {
    let fixture = cluster_that_loses_after(Duration::ZERO, None).await;
    let cluster = &fixture.cluster;
    cluster
        .join(request(None, "127.0.0.1:7201", "a"), peer(LOOPBACK))
        .await
        .unwrap();
    assert_eq!(cluster.nodes()[0].state, NodeState::Lost);
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
    let fixture = cluster_that_loses_after(Duration::ZERO, None).await;
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
    let draining = HeartbeatRequest {
        draining: true,
        ..report(1, "a")
    };
    assert!(cluster.heartbeat(draining).await.unwrap().known);
    assert_eq!(cluster.nodes()[0].state, NodeState::Draining);
    assert!(cluster.live_workers().is_empty());
}
