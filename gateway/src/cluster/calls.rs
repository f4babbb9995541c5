use std::sync::Arc;
use std::time::Duration;

use arrow_flight::Action;
use bytes::Bytes;
use prost::Message;
use tokio::time::timeout;
use tonic::Streaming;
use volary_flight_proto::control::{CONTROL_ACTION, Control, Optimize, OptimizeResult, control};
use volary_flight_proto::fragment::FragmentId;
use volary_flight_proto::ids::{ClusterId, WorkerId};
use volary_flight_proto::seal::{Purpose, Sealer};
use volary_flight_proto::snapshot::Snapshot;
use volary_flight_proto::write::TableDescription;
use volary_flight_proto::{Error, ErrorCode, Result};
use volary_gather::{FragmentHolders, GatherTotals, Peers, Window, worker_error};
use volary_node::channel::NodeClient;

use super::Cluster;

/// Deadline of a command. The slowest command deletes the files of a table.
const CONTROL_DEADLINE: Duration = Duration::from_secs(30);

impl Cluster {
    /// Returns a client for a worker, at the address of the worker's last join, even if that was
    /// before this gateway started. The client connects when it is used.
    ///
    /// # Errors
    /// `UNAVAILABLE` if the worker has never joined.
    pub fn client(&self, worker: WorkerId, window: Window) -> Result<NodeClient> {
        let state = self.catalog.state();
        let record = state.worker(worker).ok_or_else(|| never_joined(worker))?;
        self.connections.client(worker, window, &record.address)
    }

    /// Sends a command to a worker and returns its answer.
    ///
    /// # Errors
    /// The errors of the worker and of the connection to it, with the worker's name.
    /// `DEADLINE_EXCEEDED` if the worker does not answer.
    pub async fn control(&self, worker: WorkerId, command: control::Command) -> Result<Bytes> {
        let sent = timeout(CONTROL_DEADLINE, self.send(worker, command)).await;
        let answer = sent.unwrap_or_else(|_| {
            Err(Error::new(
                ErrorCode::DeadlineExceeded,
                format!("no answer to a command within {CONTROL_DEADLINE:?}; retry, and look into the worker's log"),
            ))
        });
        answer.map_err(|error| error.at(self.name(worker)))
    }

    /// Makes a worker merge the segments of a table, and waits for it. `idle` is the maximum time
    /// for which the worker may send no keep-alive. The worker stops if the future is dropped.
    ///
    /// # Errors
    /// The errors of the worker and of the connection to it, with the worker's name.
    /// `DEADLINE_EXCEEDED` if the worker sends nothing for too long.
    pub(crate) async fn optimize(
        &self,
        worker: WorkerId,
        table: TableDescription,
        snapshot: Snapshot,
        idle: Duration,
    ) -> Result<OptimizeResult> {
        let command = control::Command::Optimize(Optimize {
            table: Some(table),
            snapshot: Some(snapshot),
        });
        let silent = |_| {
            let text = format!(
                "nothing was heard of an OPTIMIZE for {idle:?}; retry, and look into the worker's log"
            );
            Error::new(ErrorCode::DeadlineExceeded, text)
        };
        let merging = async {
            let mut answers = timeout(idle, self.call(worker, command))
                .await
                .map_err(silent)??;
            // All answers but the last are empty keep-alives.
            let mut last = Bytes::new();
            while let Some(answer) = {
                let next = timeout(idle, answers.message()).await.map_err(silent)?;
                next.map_err(worker_error)?
            } {
                last = answer.body;
            }
            OptimizeResult::decode(last).map_err(|source| {
                Error::with_source(
                    ErrorCode::Internal,
                    "the result of an OPTIMIZE cannot be decoded",
                    source,
                )
            })
        };
        merging
            .await
            .map_err(|error: Error| error.at(self.name(worker)))
    }

    async fn send(&self, worker: WorkerId, command: control::Command) -> Result<Bytes> {
        let first = self.call(worker, command).await?.message().await;
        let first = first.map_err(worker_error)?;
        Ok(first.map(|result| result.body).unwrap_or_default())
    }

    async fn call(
        &self,
        worker: WorkerId,
        command: control::Command,
    ) -> Result<Streaming<arrow_flight::Result>> {
        let mut client = self.client(worker, Window::Narrow)?;
        let control = Control {
            worker_id: worker.0,
            command: Some(command),
            cluster_id: self.id().to_string(),
            lineage: Some(self.lineage_for(worker)),
            commits: self.commits(),
        };
        let body = self
            .sealer
            .seal(Purpose::Control, &control, CONTROL_DEADLINE);
        let action = Action::new(CONTROL_ACTION, body);
        let answer = client.do_action(action).await.map_err(worker_error)?;
        Ok(answer.into_inner())
    }
}

fn never_joined(worker: WorkerId) -> Error {
    Error::unavailable(format!(
        "worker {worker} has never joined this cluster; start it and retry"
    ))
}

impl Peers for Cluster {
    fn cluster_id(&self) -> ClusterId {
        self.id()
    }

    fn sealer(&self) -> &Sealer {
        &self.sealer
    }

    fn client(&self, worker: WorkerId, window: Window) -> Result<NodeClient> {
        Self::client(self, worker, window)
    }

    fn address(&self, worker: WorkerId) -> Result<String> {
        let state = self.catalog.state();
        let record = state.worker(worker).ok_or_else(|| never_joined(worker))?;
        Ok(record.address.clone())
    }

    fn name(&self, worker: WorkerId) -> String {
        Self::name(self, worker)
    }

    fn sort_live_first(&self, workers: &mut [WorkerId]) {
        self.known_workers.sort_live_first(workers);
    }

    fn fragment_holders(&self, fragment: FragmentId) -> Arc<FragmentHolders> {
        self.known_fragments.holders(fragment)
    }

    fn totals(&self) -> &GatherTotals {
        &self.gather_totals
    }
}
