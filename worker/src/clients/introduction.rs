use std::sync::Arc;
use std::time::Duration;

use volary_flight_proto::direct::{INTRODUCE_ACTION, Introduced, Introduction};
use volary_flight_proto::seal::{Purpose, Sealer};
use volary_flight_proto::{Error, ErrorCode, Result};
use volary_node::Runtimes;
use volary_node::channel::ChannelOptions;
use volary_node::node_header::NodeHeader;
use volary_node::tls::ClientTls;

use crate::config::Config;
use crate::membership::{Call, GatewayClient};

/// Idle time after which the connection to the gateway is closed. A gateway has thousands of
/// workers, and should not hold an idle connection to each.
const CLOSED_AFTER: Duration = Duration::from_secs(30);

const INTRODUCE: Call = Call {
    action: INTRODUCE_ACTION,
    request: Purpose::Introduction,
    answer: Purpose::IntroductionAnswer,
};

/// A connection to the gateway that the worker has joined, for asking who a client is.
#[derive(Debug)]
pub(super) struct Introducer(GatewayClient);

impl Introducer {
    /// Builds a connection to the gateway. `sealer` has the cluster's key.
    pub(super) fn new(
        config: &Config,
        tls: Option<ClientTls>,
        sealer: Sealer,
        runtimes: &Runtimes,
    ) -> Result<Self> {
        let options = ChannelOptions {
            tls,
            idle_timeout: Some(CLOSED_AFTER),
            // A client's ticket may be large, and a node must identify itself before it sends a
            // large message.
            node_header: Some(Arc::new(NodeHeader::new(sealer.clone()))),
            ..ChannelOptions::default()
        };
        GatewayClient::with_options(config, sealer, &options, runtimes.io()).map(Self)
    }

    /// Returns the gateway's answer.
    ///
    /// # Errors
    /// Returns the error with which the gateway refuses the client, or `UNAVAILABLE` if the gateway
    /// cannot be asked.
    pub(super) async fn introduce(&self, introduction: &Introduction) -> Result<Introduced> {
        let answered = self.0.call(INTRODUCE, introduction).await;
        answered.map_err(|error| match error.code() {
            ErrorCode::Unavailable => Error::with_source(
                ErrorCode::Unavailable,
                "the worker cannot ask the gateway who the client is; retry, or fetch the rows from the gateway with the same ticket",
                error,
            ),
            _ => error,
        })
    }
}
