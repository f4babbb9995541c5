//! Who is let in, before anything of a call is read but its headers.
//!
//! tonic reads a call's message before the service sees the call: whoever connects could make a node hold as much as the largest message,
//! again and again, without showing who it is.

use std::net::SocketAddr;

use futures::future::BoxFuture;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{HeaderMap, Request};

use crate::message_limit::MessageLimit;
use crate::tls::PeerKind;
use crate::unfinished::{Sender, Unfinished};
use crate::whole_messages::{Introduction, WholeMessages};

/// Decides about calls by their headers.
pub trait Gate: std::fmt::Debug + Send + Sync + 'static {
    /// Who calls, or why it is not let in.
    fn admit<'a>(&'a self, call: &'a CallHeaders<'a>) -> BoxFuture<'a, Result<Admission, Status>>;

    /// The memory that messages take before they are whole.
    fn unfinished(&self) -> &Unfinished;
}

/// What is known of a call before its message.
#[derive(Debug)]
pub struct CallHeaders<'a> {
    /// The method's path: `/arrow.flight.protocol.FlightService/DoGet`.
    pub path: &'a str,
    /// The headers.
    pub headers: &'a HeaderMap,
    /// Where the caller is.
    pub peer: Option<SocketAddr>,
    /// Whether its certificate is one of a node.
    pub peer_kind: PeerKind,
}

/// How a call is let in.
pub struct Admission {
    /// What the service is told, as an extension of the request.
    pub told: Box<dyn Told>,
    /// Whose share of the memory for unfinished messages it takes.
    pub sender: Sender,
    /// Finds out who sends more than [`STRANGERS_BYTES`](crate::whole_messages::STRANGERS_BYTES); `None` for one who is known.
    pub introduction: Option<Introduction>,
}

/// Puts itself among the extensions of a request.
pub trait Told: std::fmt::Debug + Send {
    /// Does so.
    fn tell(self: Box<Self>, extensions: &mut tonic::codegen::http::Extensions);
}

impl<T: std::fmt::Debug + Clone + Send + Sync + 'static> Told for T {
    fn tell(self: Box<Self>, extensions: &mut tonic::codegen::http::Extensions) {
        extensions.insert(*self);
    }
}

/// The request, if the gate lets it in.
pub(crate) async fn admitted(
    gate: &dyn Gate,
    request: Request<Body>,
    peer: Option<SocketAddr>,
    limit: MessageLimit,
) -> Result<Request<Body>, Status> {
    let call = CallHeaders {
        path: request.uri().path(),
        headers: request.headers(),
        peer,
        peer_kind: PeerKind::of(request.extensions()),
    };
    let Admission {
        told,
        sender,
        introduction,
    } = gate.admit(&call).await?;
    let share = gate.unfinished().share(sender);
    let mut request =
        request.map(|body| Body::new(WholeMessages::new(body, limit.bytes, share, introduction)));
    told.tell(request.extensions_mut());
    Ok(request)
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt, Full};
    use tonic::codegen::Bytes;

    use super::*;

    const LIMIT: MessageLimit = MessageLimit {
        bytes: 1 << 20,
        setting: "a setting",
    };
    /// Of 6000 bytes.
    const HEAD: [u8; 5] = [0, 0, 0, 0x17, 0x70];

    #[derive(Debug)]
    struct ByPath(Unfinished);

    impl Gate for ByPath {
        fn admit<'a>(
            &'a self,
            call: &'a CallHeaders<'a>,
        ) -> BoxFuture<'a, Result<Admission, Status>> {
            Box::pin(async {
                if call.path == "/closed" {
                    return Err(Status::unauthenticated("log in"));
                }
                let refused = async { Err(Status::unauthenticated("log in before")) };
                let is_short = call.path == "/short";
                Ok(Admission {
                    told: Box::new("kea".to_owned()),
                    sender: Sender::stranger(call.peer),
                    introduction: is_short.then(|| Box::pin(refused) as Introduction),
                })
            })
        }

        fn unfinished(&self) -> &Unfinished {
            &self.0
        }
    }

    fn request(path: &str) -> Request<Body> {
        let message = Bytes::from([&HEAD[..], &[7; 6000]].concat());
        let body = Body::new(Full::new(message).map_err(|_| Status::internal("")));
        Request::builder().uri(path).body(body).unwrap()
    }

    #[tokio::test]
    async fn a_call_is_refused_told_of_or_cut() {
        let gate = ByPath(Unfinished::new(1 << 20, "send less"));
        let refused = admitted(&gate, request("/closed"), None, LIMIT).await;
        assert_eq!(refused.unwrap_err().message(), "log in");
        let open = admitted(&gate, request("/open"), None, LIMIT)
            .await
            .unwrap();
        assert_eq!(open.extensions().get::<String>().unwrap(), "kea");
        let read = open.into_body().collect().await.unwrap();
        assert_eq!(read.to_bytes().len(), 6005);
        let short = admitted(&gate, request("/short"), None, LIMIT)
            .await
            .unwrap();
        let error = short.into_body().collect().await.unwrap_err();
        assert_eq!(error.message(), "log in before");
    }
}
