//! A service sees a call only after tonic has read the call's message. So without a gate, anybody
//! who connects could make a node hold as much memory as the largest message takes, again and
//! again, without showing who they are.

use std::net::SocketAddr;

use futures::FutureExt;
use futures::future::BoxFuture;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{HeaderMap, Request};

use crate::message_budget::{MessageBudget, Sender};
use crate::message_limit::MessageLimit;
use crate::tls::PeerKind;
use crate::unidentified_calls::{Introduction, UnidentifiedCall};
use crate::whole_messages::WholeMessages;

/// Decides about calls by their headers.
pub trait Gate: std::fmt::Debug + Send + Sync + 'static {
    /// Returns how the call is let in, or the status with which it is refused.
    fn admit<'a>(
        &'a self,
        call: &'a CallHeaders<'a>,
    ) -> BoxFuture<'a, Result<AdmittedCall, Status>>;

    /// Returns the memory budget of messages that are not complete yet.
    fn message_budget(&self) -> &MessageBudget;
}

/// The facts about a call that are known before its message is read.
#[derive(Debug)]
pub struct CallHeaders<'a> {
    /// Path of the method, such as `/arrow.flight.protocol.FlightService/DoGet`.
    pub path: &'a str,
    /// The headers.
    pub headers: &'a HeaderMap,
    /// Address of the caller.
    pub peer: Option<SocketAddr>,
    /// Kind of the caller, according to its certificate.
    pub peer_kind: PeerKind,
}

/// Bytes that HTTP/2 counts for a header beside its name and its value (RFC 9113, 6.5.2).
const HEADER_BYTES: usize = 32;

impl CallHeaders<'_> {
    /// Returns the size of the headers in bytes, as HTTP/2 counts them.
    fn bytes(&self) -> usize {
        let headers = self.headers.iter();
        let headers = headers.map(|(name, value)| HEADER_BYTES + name.as_str().len() + value.len());
        self.path.len() + headers.sum::<usize>()
    }
}

/// The decision to let a call in.
pub struct AdmittedCall {
    /// Value that the service receives as an extension of the request.
    pub extension: Box<dyn CallExtension>,
    /// The sender of the call. The call's incomplete messages count towards the sender's share of
    /// memory.
    pub sender: Sender,
    /// Identifies a sender that sends more than
    /// [`MAX_UNIDENTIFIED_BYTES`](crate::whole_messages::MAX_UNIDENTIFIED_BYTES). It is `None` if
    /// the sender is known.
    pub introduction: Option<Introduction>,
}

/// A value that can add itself to the extensions of a request.
pub trait CallExtension: std::fmt::Debug + Send {
    /// Adds the value to the extensions.
    fn insert_into(self: Box<Self>, extensions: &mut tonic::codegen::http::Extensions);
}

impl<T: std::fmt::Debug + Clone + Send + Sync + 'static> CallExtension for T {
    fn insert_into(self: Box<Self>, extensions: &mut tonic::codegen::http::Extensions) {
        extensions.insert(*self);
    }
}

/// Returns the request if the gate lets it in. As long as the gate does not know the sender, the
/// call counts as waiting in `undecided`.
pub(crate) async fn admit_request(
    gate: &dyn Gate,
    request: Request<Body>,
    peer: Option<SocketAddr>,
    limit: MessageLimit,
    unidentified_call: &mut UnidentifiedCall,
) -> Result<Request<Body>, Status> {
    let call = CallHeaders {
        path: request.uri().path(),
        headers: request.headers(),
        peer,
        peer_kind: PeerKind::of(request.extensions()),
    };
    let AdmittedCall {
        extension,
        sender,
        introduction,
    } = admit_call(gate, &call, unidentified_call).await?;
    let introduction =
        introduction.map(|introduction| unidentified_call.watch_introduction(introduction));
    let (share, read_progress) = (
        gate.message_budget().share(sender),
        unidentified_call.read_progress(),
    );
    let mut request = request.map(|body| {
        let body = WholeMessages::new(body, limit.bytes, share, introduction, read_progress);
        Body::new(body)
    });
    extension.insert_into(request.extensions_mut());
    Ok(request)
}

async fn admit_call(
    gate: &dyn Gate,
    call: &CallHeaders<'_>,
    unidentified_call: &mut UnidentifiedCall,
) -> Result<AdmittedCall, Status> {
    let wait = |unidentified_call: &mut UnidentifiedCall| {
        let share = gate.message_budget().share(Sender::stranger(call.peer));
        unidentified_call.register_waiting(share, call.bytes())
    };
    // A sender that is known at once, for example by a token, takes no place among the waiting
    // calls.
    let mut admitting = gate.admit(call);
    let admission = match (&mut admitting).now_or_never() {
        Some(admission) => admission?,
        None => {
            wait(unidentified_call)?;
            admitting.await?
        }
    };
    if admission.sender.is_stranger() {
        wait(unidentified_call)?;
    } else {
        unidentified_call.note_identified();
    }
    Ok(admission)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http_body_util::{BodyExt, Full};
    use tonic::codegen::Bytes;

    use super::*;
    use crate::unidentified_calls::UnidentifiedCalls;

    const LIMIT: MessageLimit = MessageLimit {
        bytes: 1 << 20,
        setting: "a setting",
    };
    /// Head of a message of 6000 bytes.
    const HEAD: [u8; 5] = [0, 0, 0, 0x17, 0x70];

    #[derive(Debug)]
    struct ByPath(MessageBudget);

    impl Gate for ByPath {
        fn admit<'a>(
            &'a self,
            call: &'a CallHeaders<'a>,
        ) -> BoxFuture<'a, Result<AdmittedCall, Status>> {
            Box::pin(async {
                if call.path == "/closed" {
                    return Err(Status::unauthenticated("log in"));
                }
                let refused = async { Err(Status::unauthenticated("log in before")) };
                let is_short = call.path == "/short";
                let sender = match call.path {
                    "/kea" => Sender::User("kea".into()),
                    _ => Sender::stranger(call.peer),
                };
                Ok(AdmittedCall {
                    extension: Box::new("kea".to_owned()),
                    sender,
                    introduction: is_short.then(|| Box::pin(refused) as Introduction),
                })
            })
        }

        fn message_budget(&self) -> &MessageBudget {
            &self.0
        }
    }

    fn request(path: &str) -> Request<Body> {
        let message = Bytes::from([&HEAD[..], &[7; 6000]].concat());
        let body = Body::new(Full::new(message).map_err(|_| Status::internal("")));
        Request::builder().uri(path).body(body).unwrap()
    }

    async fn admit(path: &str) -> Result<Request<Body>, Status> {
        let gate = ByPath(MessageBudget::new(1 << 20, "send less"));
        let mut unidentified_call = Arc::new(UnidentifiedCalls::new(false)).begin();
        admit_request(&gate, request(path), None, LIMIT, &mut unidentified_call).await
    }

    #[tokio::test]
    async fn a_call_is_refused_told_of_or_cut() {
        let refused = admit("/closed").await;
        assert_eq!(refused.unwrap_err().message(), "log in");
        let open = admit("/open").await.unwrap();
        assert_eq!(open.extensions().get::<String>().unwrap(), "kea");
        let read = open.into_body().collect().await.unwrap();
        assert_eq!(read.to_bytes().len(), 6005);
        let short = admit("/short").await.unwrap();
        let error = short.into_body().collect().await.unwrap_err();
        assert_eq!(error.message(), "log in before");
    }

    #[tokio::test]
    async fn headers_take_of_a_strangers_share_until_the_call_is_decided() {
        let gate = ByPath(MessageBudget::new(1 << 20, "send less"));
        let calls = Arc::new(UnidentifiedCalls::new(false));
        let mut unidentified_call = calls.begin();
        let mut request = request("/short");
        let large = vec![b'x'; 1000].try_into().unwrap();
        request.headers_mut().insert("large", large);
        let admitted = admit_request(&gate, request, None, LIMIT, &mut unidentified_call).await;
        drop(admitted.unwrap());
        assert_eq!(gate.0.bytes(), "/short".len() + 32 + "large".len() + 1000);
        assert!(!calls.is_identified());
        drop(unidentified_call);
        assert_eq!(gate.0.bytes(), 0);
    }

    #[tokio::test]
    async fn who_is_known_takes_nothing_and_is_known_on_the_connection() {
        let gate = ByPath(MessageBudget::new(1 << 20, "send less"));
        let calls = Arc::new(UnidentifiedCalls::new(false));
        let mut undecided = calls.begin();
        let admitted = admit_request(&gate, request("/kea"), None, LIMIT, &mut undecided).await;
        assert_eq!(gate.0.bytes(), 0);
        assert!(calls.is_identified());
        drop(admitted.unwrap());
    }
}
