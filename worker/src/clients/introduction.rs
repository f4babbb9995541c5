//! A gateway says who a client is, and whether it may redeem a ticket.

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
use crate::membership::{Call, Gateway};

/// A connection to the gateway on which nobody is introduced is closed: there are thousands of workers.
const CLOSED_AFTER: Duration = Duration::from_secs(30);

const INTRODUCE: Call = Call {
    action: INTRODUCE_ACTION,
    request: Purpose::Introduction,
    answer: Purpose::IntroductionAnswer,
};

/// Asks the gateway that the worker has joined.
#[derive(Debug)]
pub(super) struct Introductions(Gateway);

impl Introductions {
    /// `sealer` has the cluster's key.
    pub(super) fn new(
        config: &Config,
        tls: Option<ClientTls>,
        sealer: Sealer,
        runtimes: &Runtimes,
    ) -> Result<Self> {
        let options = ChannelOptions {
            tls,
            closed_after: Some(CLOSED_AFTER),
            // A client's ticket may be large.
            node_header: Some(Arc::new(NodeHeader::new(sealer.clone()))),
            ..ChannelOptions::default()
        };
        Gateway::connected(config, sealer, &options, runtimes.io()).map(Self)
    }

    /// What the gateway answers.
    ///
    /// # Errors
    /// Those with which it refuses the client; `UNAVAILABLE` if it cannot be asked.
    pub(super) async fn introduce(&self, introduction: &Introduction) -> Result<Introduced> {
        let answered = self.0.call(INTRODUCE, introduction).await;
        answered.map_err(|error| match error.code() {
            ErrorCode::Unavailable => Error::with_source(
                ErrorCode::Unavailable,
                "the worker cannot ask who the client is; fetch the rows from the gateway, which takes the same ticket, or try again",
                error,
            ),
            _ => error,
        })
    }
}
