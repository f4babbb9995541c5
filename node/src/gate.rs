//! Who is let in, before anything of a call is read but its headers.
//!
//! tonic reads a call's message before the service sees the call: whoever connects could make a node hold as much as the largest message,
//! again and again, without showing who it is.

use std::net::SocketAddr;

use futures::future::BoxFuture;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{HeaderMap, Request};
use volary_flight_proto::{Error, ErrorCode};

/// Decides about calls by their headers.
pub trait Gate: std::fmt::Debug + Send + Sync + 'static {
    /// Who calls, or why it is not let in.
    fn admit<'a>(&'a self, call: &'a CallHeaders<'a>) -> BoxFuture<'a, Result<Admission, Status>>;
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
}

/// How a call is let in.
#[derive(Debug)]
pub struct Admission {
    /// What the service is told, as an extension of the request.
    pub told: Box<dyn Told>,
    /// The most bytes of it that are read; `None` for what the node takes.
    pub most_bytes: Option<usize>,
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
) -> Result<Request<Body>, Status> {
    let call = CallHeaders {
        path: request.uri().path(),
        headers: request.headers(),
        peer,
    };
    let Admission { told, most_bytes } = gate.admit(&call).await?;
    let mut request = match most_bytes {
        Some(bytes) => request.map(|body| cut(body, bytes)),
        None => request,
    };
    told.tell(request.extensions_mut());
    Ok(request)
}

/// The body, which fails after so many bytes.
fn cut(body: Body, bytes: usize) -> Body {
    let cut = Limited::new(body, bytes).map_err(move |error| {
        if error.is::<LengthLimitError>() {
            return Error::new(
                ErrorCode::Unauthenticated,
                format!("log in before you send more than {bytes} bytes"),
            )
            .into();
        }
        error
            .downcast::<Status>()
            .map_or_else(Status::from_error, |status| *status)
    });
    Body::new(cut)
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;
    use tonic::codegen::Bytes;

    use super::*;

    #[derive(Debug)]
    struct ByPath;

    impl Gate for ByPath {
        fn admit<'a>(
            &'a self,
            call: &'a CallHeaders<'a>,
        ) -> BoxFuture<'a, Result<Admission, Status>> {
            Box::pin(async {
                if call.path == "/closed" {
                    return Err(Status::unauthenticated("log in"));
                }
                Ok(Admission {
                    told: Box::new("kea".to_owned()),
                    most_bytes: (call.path == "/short").then_some(3),
                })
            })
        }
    }

    fn request(path: &str) -> Request<Body> {
        let body =
            Body::new(Full::new(Bytes::from_static(b"four")).map_err(|_| Status::internal("")));
        Request::builder().uri(path).body(body).unwrap()
    }

    #[tokio::test]
    async fn a_call_is_refused_told_of_or_cut() {
        let refused = admitted(&ByPath, request("/closed"), None).await;
        assert_eq!(refused.unwrap_err().message(), "log in");
        let open = admitted(&ByPath, request("/open"), None).await.unwrap();
        assert_eq!(open.extensions().get::<String>().unwrap(), "kea");
        let read = open.into_body().collect().await.unwrap();
        assert_eq!(read.to_bytes(), "four");
        let short = admitted(&ByPath, request("/short"), None).await.unwrap();
        let error = short.into_body().collect().await.unwrap_err();
        assert!(
            error
                .message()
                .contains("before you send more than 3 bytes"),
            "{error}"
        );
    }
}
