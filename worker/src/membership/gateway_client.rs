use std::fmt;
use std::time::Duration;

use arrow_flight::Action;
use backon::{ExponentialBuilder, Retryable};
use bytes::Bytes;
use prost::Message;
use tokio::runtime::Handle;
use tokio::time::timeout;
use tonic::Status;
use volary_flight_proto::error::innermost_cause;
use volary_flight_proto::ids::WorkerId;
use volary_flight_proto::membership::{
    CHECK_ACTION, CheckAnswer, CheckRequest, JOIN_ACTION, JoinRequest, JoinResponse, LEAVE_ACTION,
    LeaveRequest, LeaveResponse,
};
use volary_flight_proto::seal::{Key, Purpose, Sealer};
use volary_flight_proto::{Error, ErrorCode, Result};
use volary_node::Runtimes;
use volary_node::channel::{ChannelOptions, NodeClient, flight_client};
use volary_node::tls::ClientTls;

use crate::config::Config;

/// Timeout of one attempt to reach the gateway.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for which a sealed message is valid. It is long because the clocks of two machines may
/// differ by seconds.
const MESSAGE_LIFETIME: Duration = Duration::from_secs(60);
/// Time for which a question about the gateway is valid: a hundred years. The clocks may differ by
/// any time, which is what the question is to find out. It changes nothing, so nobody gains
/// anything by sending it again.
const CHECK_LIFETIME: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// A kind of call to a gateway, and the purposes that its request and its answer are sealed for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    pub(crate) action: &'static str,
    pub(crate) request: Purpose,
    pub(crate) answer: Purpose,
}

const JOIN: Call = Call {
    action: JOIN_ACTION,
    request: Purpose::Membership,
    answer: Purpose::MembershipAnswer,
};

const LEAVE: Call = Call {
    action: LEAVE_ACTION,
    ..JOIN
};

/// A connection to the gateway. It is closed when this value is dropped.
pub(crate) struct GatewayClient {
    address: String,
    client: NodeClient,
    sealer: Sealer,
}

impl fmt::Debug for GatewayClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GatewayClient")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for GatewayClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gateway at {}", self.address)
    }
}

impl GatewayClient {
    /// Builds a connection for joining and leaving.
    pub(super) fn new(
        config: &Config,
        tls: Option<ClientTls>,
        runtimes: &Runtimes,
    ) -> Result<Self> {
        let secret = config.secret.as_deref().unwrap_or_default();
        let sealer = Sealer::new(Key::from_secret(secret));
        let options = ChannelOptions {
            tls,
            ..ChannelOptions::default()
        };
        // On the health runtime, these messages do not wait behind rows.
        Self::with_options(config, sealer, &options, runtimes.health())
    }

    /// Builds a connection that is opened on `runtime` when the gateway is first called.
    pub(crate) fn with_options(
        config: &Config,
        sealer: Sealer,
        options: &ChannelOptions,
        runtime: &Handle,
    ) -> Result<Self> {
        Ok(Self {
            address: config.gateway_address().to_owned(),
            client: flight_client(config.gateway_address(), options, runtime)?,
            sealer,
        })
    }

    /// Joins as soon as the gateway can be reached.
    pub(super) async fn join(&self, request: &JoinRequest) -> Result<JoinResponse> {
        let backoff = ExponentialBuilder::new()
            .with_min_delay(FIRST_PAUSE)
            .with_max_delay(LONGEST_PAUSE)
            .with_jitter()
            .without_max_times();
        let mut logged = None;
        let attempt = || self.join_once(request);
        attempt
            .retry(backoff)
            .when(|error| {
                matches!(
                    error.code(),
                    ErrorCode::Unavailable
                        | ErrorCode::DeadlineExceeded
                        | ErrorCode::ResourceExhausted
                )
            })
            .notify(|error, _| {
                if logged != Some(error.code()) {
                    logged = Some(error.code());
                    tracing::warn!(error = format_args!("{error:#}"), "waiting for the gateway");
                }
            })
            .await
    }

    pub(super) async fn join_once(&self, request: &JoinRequest) -> Result<JoinResponse> {
        self.call(JOIN, request).await
    }

    /// Tells the gateway that this start of the worker is about to stop.
    pub(super) async fn leave(&self, worker: WorkerId, instance: &str) -> Result<LeaveResponse> {
        let request = LeaveRequest {
            worker_id: worker.0,
            instance: instance.to_owned(),
        };
        self.call(LEAVE, &request).await
    }

    /// Sends a sealed message, and opens the answer.
    pub(crate) async fn call<A: Message + Default>(
        &self,
        call: Call,
        request: &impl Message,
    ) -> Result<A> {
        let answered = timeout(CALL_TIMEOUT, self.call_once(call, request)).await;
        let answer = answered.unwrap_or_else(|_| Err(no_answer()));
        answer.map_err(|error| error.at(self))
    }

    async fn call_once<A: Message + Default>(
        &self,
        call: Call,
        request: &impl Message,
    ) -> Result<A> {
        let body = self.sealer.seal(call.request, request, MESSAGE_LIFETIME);
        let answer = self.exchange(call.action, body).await?;
        self.sealer.open(call.answer, &answer)
    }

    /// Asks the gateway about itself. The answer may seem to have expired, because the two clocks
    /// may differ: its nonce shows that it is new.
    pub(super) async fn check(&self, request: &CheckRequest) -> Result<CheckAnswer> {
        let asking = async {
            let body = self.sealer.seal(Purpose::Check, request, CHECK_LIFETIME);
            let answer = self.exchange(CHECK_ACTION, body).await?;
            let answer: CheckAnswer = self.sealer.open_expired(Purpose::CheckAnswer, &answer)?;
            if answer.nonce != request.nonce {
                return Err(Error::new(
                    ErrorCode::PermissionDenied,
                    "the answer is that of an earlier question; check who answers there",
                ));
            }
            Ok(answer)
        };
        let answered = timeout(CALL_TIMEOUT, asking).await;
        answered.unwrap_or_else(|_| Err(no_answer()))
    }

    /// Sends a sealed message, and returns the sealed answer.
    async fn exchange(&self, action: &str, body: Bytes) -> Result<Bytes> {
        let mut client = self.client.clone();
        let mut answers = client
            .do_action(Action::new(action, body))
            .await
            .map_err(call_error)?
            .into_inner();
        let answer = answers.message().await.map_err(call_error)?;
        let answer = answer.ok_or_else(|| {
            Error::unavailable(
                "the answer has no message; check that a gateway of Volary listens there",
            )
        })?;
        Ok(answer.body)
    }
}

fn no_answer() -> Error {
    Error::new(
        ErrorCode::DeadlineExceeded,
        format!("no answer within {CALL_TIMEOUT:?}; check its address and the network"),
    )
}

/// Converts a failed call into the gateway's own error. If no gateway answered, returns an error
/// that says what to check.
fn call_error(status: Status) -> Error {
    if std::error::Error::source(&status).is_none() {
        return status.into();
    }
    let text = format!(
        "{} ({}); check that a gateway listens there, and that both sides use TLS or neither does",
        status.message(),
        innermost_cause(&status)
    );
    Error::new(ErrorCode::Unavailable, text)
}
