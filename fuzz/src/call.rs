use std::sync::Arc;
use std::time::Duration;

use arrow_flight::flight_service_server::{FlightService, FlightServiceServer};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::codegen::http::{HeaderMap, Request};
use tonic::{Code, Status};
use volary_node::Runtimes;
use volary_node::gate::{CallHeaders, Gate};
use volary_node::tls::PeerKind;

use crate::guard;

/// Maximum number of messages of an answer that are read. Later messages depend on the query, and
/// no longer on how the input is read.
const MAX_MESSAGES: usize = 8;

/// Maximum time that a caller waits for the end of an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// A Flight service that is called with bytes, as its listener calls it.
pub(crate) struct Server<S: FlightService> {
    service: FlightServiceServer<S>,
    gate: Option<Arc<dyn Gate>>,
    runtimes: Runtimes,
}

/// The answer to a call.
#[derive(Debug, Default)]
pub struct Answer {
    /// How the call ended, or `None` if its end was not read.
    pub code: Option<Code>,
    /// The messages, undecoded.
    pub messages: Vec<Bytes>,
}

impl Answer {
    /// Returns whether the call ended without an error, or had not ended yet.
    pub fn is_ok(&self) -> bool {
        matches!(self.code, None | Some(Code::Ok))
    }
}

impl<S: FlightService> Server<S> {
    /// Creates a server. Calls are polled on the I/O runtime, like those of the listener. `gate` is
    /// the check that a listener makes before each call.
    pub fn new(service: S, gate: Option<Arc<dyn Gate>>, runtimes: Runtimes) -> Self {
        Self {
            service: FlightServiceServer::new(service),
            gate,
            runtimes,
        }
    }

    /// Makes a call with these messages.
    pub fn call<T: AsRef<[u8]>>(
        &self,
        rpc: &str,
        headers: HeaderMap,
        messages: impl IntoIterator<Item = T>,
    ) -> Answer {
        let mut body = BytesMut::new();
        for message in messages {
            let message = message.as_ref();
            body.put_u8(0);
            body.put_u32(u32::try_from(message.len()).expect("inputs are short"));
            body.put_slice(message);
        }
        self.call_with_body(rpc, headers, body.freeze())
    }

    /// Makes a call with this body, which may have any content.
    pub fn call_with_body(&self, rpc: &str, headers: HeaderMap, body: Bytes) -> Answer {
        let body = Full::new(body).map_err(|_| Status::internal("memory does not fail"));
        let mut request = Request::new(Body::new(body));
        *request.method_mut() = "POST".parse().expect("a method");
        *request.uri_mut() = format!("/arrow.flight.protocol.FlightService/{rpc}")
            .parse()
            .expect("a path");
        *request.headers_mut() = headers;
        let content_type = "application/grpc".parse().expect("a value");
        request.headers_mut().insert("content-type", content_type);
        guard::start_time_limits();
        let mut answer = Answer::default();
        let reading = self.read(request, &mut answer);
        // After the timeout, the answer is no longer read. The next input waits until the
        // computation of this one has ended. The timer is created within the runtime that it
        // belongs to.
        let reading = async { tokio::time::timeout(ANSWER_TIMEOUT, reading).await };
        let _ended = self.runtimes.io().block_on(reading);
        let idle = self.runtimes.cpu().spawn(std::future::ready(()));
        let _ended = self.runtimes.io().block_on(idle);
        answer
    }

    async fn read(&self, mut request: Request<Body>, answer: &mut Answer) {
        if let Some(gate) = &self.gate {
            let call = CallHeaders {
                path: request.uri().path(),
                headers: request.headers(),
                peer: None,
                peer_kind: PeerKind::Unknown,
            };
            let admission = gate.admit(&call).await;
            match admission {
                Ok(admission) => admission.extension.insert_into(request.extensions_mut()),
                Err(refused) => {
                    answer.code = Some(refused.code());
                    return;
                }
            }
        }
        let Ok(response) = self.service.clone().call(request).await;
        answer.code = status_code(response.headers());
        let mut body = response.into_body();
        let mut received = BytesMut::new();
        while answer.messages.len() < MAX_MESSAGES
            && let Some(frame) = body.frame().await
        {
            let Ok(frame) = frame else { return };
            match frame.into_data() {
                Ok(data) => received.put(data),
                Err(frame) => answer.code = frame.trailers_ref().and_then(status_code),
            }
            while let Some(message) = take_message(&mut received) {
                answer.messages.push(message);
            }
        }
    }
}

fn status_code(headers: &HeaderMap) -> Option<Code> {
    Status::from_header_map(headers).map(|status| status.code())
}

fn take_message(received: &mut BytesMut) -> Option<Bytes> {
    let length = received.get(1..5)?;
    let length = u32::from_be_bytes(length.try_into().ok()?) as usize;
    if received.len() < 5 + length {
        return None;
    }
    received.advance(5);
    Some(received.split_to(length).freeze())
}
