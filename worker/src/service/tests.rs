use std::time::Duration;

use tempfile::TempDir;
use tokio::time::timeout;
use tonic::Code;
use volary_flight_proto::control::{AbortWrite, DropTable};
use volary_flight_proto::frame::Frame;
use volary_flight_proto::ids::ClusterId;
use volary_flight_proto::seal::{Key, Sealer};
use volary_node::admission::{Admission, Place};
use volary_node::memory;
use volary_node::runtimes::OwnedRuntimes;

use super::*;
use crate::config::{Config, Execution};
use crate::fragment::environment::Environments;
use crate::storage::Storage;

const TABLE: TableId = TableId(5);
/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(20);

struct Worker {
    service: WorkerService,
    _dir: TempDir,
    _runtimes: OwnedRuntimes,
}

fn worker() -> Worker {
    worker_with(Execution::default())
}

/// With one thread for computing, and one place for fragments.
fn worker_with(execution: Execution) -> Worker {
    let dir = tempfile::tempdir().unwrap();
    let runtimes = OwnedRuntimes::start(Some(1)).unwrap();
    let context = WorkerContext {
        id: WorkerId(3),
        cluster_id: ClusterId::new(),
        config: Config {
            execution,
            ..Config::default()
        },
        storage: Storage::open(dir.path()).unwrap(),
        runtime_env: memory::runtime_env(&memory::Config::default(), dir.path(), 0).unwrap(),
        environments: Environments::default(),
        runtimes: runtimes.handles().clone(),
        sealer: Sealer::new(Key::from_secret("secret of two clusters")),
        admission: Admission::new("fragments", 1, 1),
    };
    Worker {
        service: WorkerService::new(Arc::new(context)),
        _dir: dir,
        _runtimes: runtimes,
    }
}

impl Worker {
    fn context(&self) -> &WorkerContext {
        &self.service.context
    }

    fn seal(&self, purpose: Purpose, message: &impl Message) -> Vec<u8> {
        let sealed = self.context().sealer.seal(purpose, message, PATIENCE);
        sealed.to_vec()
    }

    /// A ticket without a plan: asking for it shows when the worker begins to look at it.
    async fn do_get(&self) -> <WorkerService as FlightService>::DoGetStream {
        let ticket = FragmentTicket {
            cluster_id: self.context().cluster_id.to_string(),
            worker_id: self.context().id.0,
            ..FragmentTicket::default()
        };
        let ticket = Ticket::new(self.seal(Purpose::Fragment, &ticket));
        let answered = timeout(PATIENCE, self.service.do_get(Request::new(ticket)));
        answered.await.unwrap().unwrap().into_inner()
    }

    async fn control(&self, cluster_id: ClusterId, command: control::Command) -> Result<Vec<u8>> {
        let control = Control {
            worker_id: self.context().id.0,
            command: Some(command),
            cluster_id: cluster_id.to_string(),
        };
        let body = self.seal(Purpose::Control, &control);
        self.service.control(&body).await
    }

    /// Takes the only place.
    async fn occupy(&self) -> Place {
        self.context().admission.enter().await.unwrap()
    }
}

async fn next(
    stream: &mut <WorkerService as FlightService>::DoGetStream,
) -> Result<FlightData, Status> {
    timeout(PATIENCE, stream.next()).await.unwrap().unwrap()
}

/// The worker has looked at the ticket, and found no plan in it.
async fn assert_refused_in_the_end(mut stream: <WorkerService as FlightService>::DoGetStream) {
    loop {
        match next(&mut stream).await {
            Ok(message) => assert_eq!(message.app_metadata, Frame::keep_alive().to_bytes()),
            Err(status) => {
                assert_eq!(status.code(), Code::InvalidArgument, "{status}");
                assert!(stream.next().await.is_none());
                return;
            }
        }
    }
}

#[tokio::test]
async fn a_fragment_that_waits_for_a_place_gives_signs_of_life() {
    let worker = worker();
    let place = worker.occupy().await;
    let mut waiting = worker.do_get().await;
    for _ in 0..2 {
        let message = next(&mut waiting).await.unwrap();
        assert_eq!(message.app_metadata, Frame::keep_alive().to_bytes());
    }
    let mut refused = worker.do_get().await;
    let status = next(&mut refused).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    drop(place);
    assert_refused_in_the_end(waiting).await;
}

#[tokio::test]
async fn a_fragment_does_not_wait_for_ever() {
    let worker = worker_with(Execution {
        max_wait: Duration::from_millis(10),
        ..Execution::default()
    });
    let _place = worker.occupy().await;
    let status = next(&mut worker.do_get().await).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.message().contains("waited 10ms"), "{status}");
}

#[tokio::test]
async fn a_fragment_that_nobody_waits_for_any_more_gives_up_its_turn() {
    let worker = worker();
    let place = worker.occupy().await;
    let mut waiting = worker.do_get().await;
    next(&mut waiting).await.unwrap();
    drop(waiting);
    drop(place);
    assert_eq!(worker.context().admission.running(), 0);
    assert_refused_in_the_end(worker.do_get().await).await;
}

#[tokio::test]
async fn a_worker_whose_threads_all_compute_gives_signs_of_life() {
    let worker = worker();
    let (release, released) = std::sync::mpsc::channel::<()>();
    let computing = worker.context().runtimes.cpu().spawn(async move {
        released.recv().unwrap();
    });
    let mut stream = worker.do_get().await;
    let message = next(&mut stream).await.unwrap();
    assert_eq!(message.app_metadata, Frame::keep_alive().to_bytes());
    release.send(()).unwrap();
    computing.await.unwrap();
    assert_refused_in_the_end(stream).await;
}

#[tokio::test]
async fn what_is_for_another_cluster_of_the_same_secret_is_refused() {
    let worker = worker();
    let (storage, own) = (&worker.context().storage, worker.context().cluster_id);
    let write = WriteId(1);
    let (segment, _) = storage.create(TABLE, 0, write).unwrap();
    storage.add(TABLE, vec![segment.complete(1, 0)]).unwrap();
    let drop_table = || control::Command::DropTable(DropTable { table_id: TABLE.0 });
    let abort = control::Command::AbortWrite(AbortWrite { write_id: write.0 });
    for command in [drop_table(), abort] {
        let other = ClusterId::new();
        let error = worker.control(other, command).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::Unavailable);
        assert!(error.message().contains(&other.to_string()), "{error}");
    }
    assert_eq!(storage.totals().rows, 1);
    worker.control(own, drop_table()).await.unwrap();
    assert_eq!(storage.totals().rows, 0);

    let first = |cluster_id: ClusterId| {
        let request = WriteRequest {
            cluster_id: cluster_id.to_string(),
            worker_id: worker.context().id.0,
            ..WriteRequest::default()
        };
        let descriptor = FlightDescriptor::new_cmd(worker.seal(Purpose::Write, &request));
        FlightData::new().with_descriptor(descriptor)
    };
    worker.service.write_request(&first(own)).unwrap();
    let refused = worker.service.write_request(&first(ClusterId::new()));
    assert_eq!(refused.unwrap_err().code(), ErrorCode::Unavailable);
}
