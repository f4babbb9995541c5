//! A request stream that was reset looks to tonic like one that has ended. Half of a table would
//! then look like the whole table.

use http_body_util::BodyExt;
use tonic::body::Body;
use tonic::codegen::http::Request;
use tonic::{Code, Status};

/// Wraps a request so that its stream fails if the client breaks it off.
pub(crate) fn fail_on_reset(request: Request<Body>) -> Request<Body> {
    request.map(|body| Body::new(body.map_err(as_error)))
}

/// Replaces the code CANCELLED by ABORTED, because tonic hides errors with the code CANCELLED.
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

    /// Creates a body that ends with an error.
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
            let body = fail_on_reset(request).into_body();
            let error = body.collect().await.unwrap_err();
            assert_eq!(error.code(), seen);
        }
    }
}
