use std::net::SocketAddr;

use arrow_flight::Action;
use volary_flight_proto::Result;
use volary_flight_proto::direct::INTRODUCE_ACTION;
use volary_flight_proto::membership::{CHECK_ACTION, JOIN_ACTION, LEAVE_ACTION};

use super::FlightSql;
use super::actions::{ResultStream, single_result};

/// Returns whether workers send this action.
pub(super) fn is_worker_action(action: &Action) -> bool {
    [JOIN_ACTION, LEAVE_ACTION, CHECK_ACTION, INTRODUCE_ACTION].contains(&action.r#type.as_str())
}

impl FlightSql {
    /// Handles a message of a worker. The message is sealed with the cluster's secret or key.
    /// Workers have no other credentials.
    pub(super) async fn handle_worker_action(
        &self,
        action: &Action,
        peer: Option<SocketAddr>,
    ) -> Result<ResultStream> {
        if action.r#type == INTRODUCE_ACTION {
            return self.introduce(&action.body).await.map(single_result);
        }
        let answer = self
            .cluster
            .handle_action(&action.r#type, &action.body, peer);
        answer.await.map(single_result)
    }
}
