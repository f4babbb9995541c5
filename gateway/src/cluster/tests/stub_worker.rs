use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use arrow_flight::{Action, FlightData, PutResult};
use futures::{StreamExt, stream};
use parking_lot::Mutex;
use prost::Message;
use tokio::sync::watch;
use tonic::{Request, Response, Status, Streaming};
use volary_flight_proto::control::{Control, Report, WorkerReport, control};
use volary_flight_proto::seal::{Purpose, Sealer};
use volary_flight_proto::write::{ShardWritten, WriteResult};
use volary_node::flight::{Answer, Flight, FlightAdapter, MessageStream};
use volary_node::listener::Listener;
use volary_node::message_limit::MessageLimit;
use volary_node::server::{Entrance, serve};

use super::{ANSWER_LIFETIME, Cluster, LOOPBACK, peer, request};

const INSTANCE: &str = "the first start";

/// A stub of a worker. It serves until the test ends.
#[derive(Debug, Clone)]
pub(super) struct StubWorker {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    address: SocketAddr,
    /// Opens the sealed questions.
    sealer: Sealer,
    answer_sealer: Mutex<Sealer>,
    report: Mutex<WorkerReport>,
    /// Number of rows that the stub claims to have stored for each write.
    claimed_rows: Mutex<u64>,
    hangs: watch::Sender<bool>,
    questions: watch::Sender<Vec<Report>>,
}

impl StubWorker {
    /// Starts a stub, and joins it to the cluster as a new worker.
    pub(super) async fn join(cluster: &Cluster) -> Self {
        let listener = Listener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let address = listener.address();
        let joining = request(None, &address.to_string(), INSTANCE);
        // The gateway may ask the stub before it serves. The stub answers as soon as it serves.
        let joined = cluster.join(joining, peer(LOOPBACK)).await.unwrap();
        let report = WorkerReport {
            worker_id: joined.worker_id,
            instance: INSTANCE.to_owned(),
            adopted: true,
            ..WorkerReport::default()
        };
        let stub = Self {
            inner: Arc::new(Inner {
                address,
                sealer: cluster.sealer().clone(),
                answer_sealer: Mutex::new(cluster.sealer().clone()),
                report: Mutex::new(report),
                claimed_rows: Mutex::new(0),
                hangs: watch::Sender::new(false),
                questions: watch::Sender::new(Vec::new()),
            }),
        };
        let limit = MessageLimit {
            bytes: 1 << 20,
            setting: "that of the tests",
        };
        tokio::spawn(serve(
            listener,
            FlightAdapter(stub.clone()),
            Entrance::unguarded(limit),
            std::future::pending(),
        ));
        stub
    }

    /// Joins again as the same instance of the same worker.
    pub(super) async fn join_again(&self, cluster: &Cluster) {
        let id = self.inner.report.lock().worker_id;
        let joining = request(Some(id), &self.inner.address.to_string(), INSTANCE);
        cluster.join(joining, peer(LOOPBACK)).await.unwrap();
    }

    /// Changes the report with which the stub answers.
    pub(super) fn change_report(&self, change: impl FnOnce(&mut WorkerReport)) {
        change(&mut self.inner.report.lock());
    }

    /// Sets how many rows the stub claims to have stored for each write.
    pub(super) fn claim_rows(&self, rows: u64) {
        *self.inner.claimed_rows.lock() = rows;
    }

    /// Sets the sealer of the stub's answers.
    pub(super) fn seal_with(&self, sealer: Sealer) {
        *self.inner.answer_sealer.lock() = sealer;
    }

    /// Sets whether the stub holds back its answers from now on.
    pub(super) fn set_hanging(&self, hangs: bool) {
        self.inner.hangs.send_replace(hangs);
    }

    /// Returns the questions that the stub was asked so far.
    pub(super) fn questions(&self) -> watch::Receiver<Vec<Report>> {
        self.inner.questions.subscribe()
    }

    pub(super) fn last_question(&self) -> Report {
        self.inner.questions.borrow().last().cloned().unwrap()
    }
}

impl Flight for StubWorker {
    async fn do_action(
        &self,
        request: Request<Action>,
    ) -> Answer<MessageStream<arrow_flight::Result>> {
        let body = request.into_inner().body;
        let asked: Control = self.inner.sealer.open(Purpose::Control, &body)?;
        let Some(control::Command::Report(question)) = asked.command else {
            return Err(self.unserved_error("DoAction"));
        };
        self.inner
            .questions
            .send_modify(|questions| questions.push(question));
        let mut hangs = self.inner.hangs.subscribe();
        while *hangs.borrow_and_update() {
            hangs
                .changed()
                .await
                .map_err(|_| Status::cancelled("the test has ended"))?;
        }
        let report = self.inner.report.lock().clone();
        let sealer = self.inner.answer_sealer.lock().clone();
        let body = sealer.seal(Purpose::Membership, &report, ANSWER_LIFETIME);
        let answer = stream::iter([Ok(arrow_flight::Result { body })]);
        Ok(Response::new(answer.boxed()))
    }

    /// Takes all rows, and answers that it has stored as many as a test has set.
    async fn do_put(
        &self,
        request: Request<Streaming<FlightData>>,
    ) -> Answer<MessageStream<PutResult>> {
        let mut messages = request.into_inner();
        while messages.message().await?.is_some() {}
        let shard = ShardWritten {
            rows: *self.inner.claimed_rows.lock(),
            ..ShardWritten::default()
        };
        let kept = WriteResult {
            shards: vec![shard],
            ..WriteResult::default()
        };
        let answer = PutResult {
            app_metadata: kept.encode_to_vec().into(),
        };
        Ok(Response::new(stream::iter([Ok(answer)]).boxed()))
    }
}
