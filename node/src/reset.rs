//! Uploads that their client has broken off.
//!
//! tonic takes a request's stream that was reset for one that has ended: rows that are half of a table would look like all of it.

use http_body_util::BodyExt;
use tonic::body::Body;
use tonic::codegen::http::Request;
use tonic::{Code, Status};

/// The request, whose stream fails where its client breaks it off.
pub(crate) fn with_resets_as_errors(request: Request<Body>) -> Request<Body> {
    request.map(|body| Body::new(body.map_err(as_error)))
}

/// tonic hides errors with the code CANCELLED only.
fn as_error(status: Status) -> Status {
    if status.code() == Code::Cancelled {
        Status::aborted("the client has broken off its stream")
    } else {
        status
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{Full, Limited};
    use tonic::codegen::Bytes;

    use super::*;

    /// A body that ends with an error.
    fn broken(code: Code) -> Body {
        let too_long = Limited::new(Full::new(Bytes::from_static(b"rows")), 0);
        Body::new(too_long.map_err(move |_| Status::new(code, "broken")))
    }

    #[tokio::test]
    async fn a_reset_is_an_error_that_is_not_hidden() {
        for (sent, seen) in [
            (Code::Cancelled, Code::Aborted),
            (Code::Unavailable, Code::Unavailable),
        ] {
            let request = Request::new(broken(sent));
            let body = with_resets_as_errors(request).into_body();
            let error = body.collect().await.unwrap_err();
            assert_eq!(error.code(), seen);
        }
    }
}
