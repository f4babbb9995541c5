use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use volary_flight_proto::{Error, ErrorCode, Result};

use super::observed::Observed;
use super::token;
use crate::metrics::TextFormat;

/// Longest time that the values of all metrics may take. Only a file system that hangs takes long.
const COLLECT_TIMEOUT: Duration = Duration::from_secs(10);
const PLAIN_TEXT: &str = "text/plain; charset=utf-8";
const PATHS: &str = "the paths are /metrics, /healthz and /readyz\n";

/// Answers a request. `token_file` holds the token that `/metrics` asks for.
pub(super) async fn answer<B>(
    request: Request<B>,
    observed: &Arc<Observed>,
    token_file: Option<&Path>,
) -> Response<String> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return text(
            StatusCode::METHOD_NOT_ALLOWED,
            "only GET and HEAD are answered here\n",
        );
    }
    match request.uri().path() {
        "/healthz" => text(StatusCode::OK, "alive\n"),
        "/readyz" => match observed.why_not_ready() {
            None => text(StatusCode::OK, "ready\n"),
            Some(why) => text(StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
        },
        "/metrics" => match check_token(request.headers(), token_file).await {
            Ok(()) => metrics(text_format(request.headers()), observed).await,
            Err(error) => refusal(&error),
        },
        _ => text(StatusCode::NOT_FOUND, PATHS),
    }
}

async fn metrics(format: TextFormat, observed: &Arc<Observed>) -> Response<String> {
    let observed = Arc::clone(observed);
    let collecting = tokio::task::spawn_blocking(move || observed.samples().into_text(format));
    let collected = match tokio::time::timeout(COLLECT_TIMEOUT, collecting).await {
        Ok(Ok(collected)) => collected,
        Ok(Err(_)) => Err(Error::internal("collecting the metrics panicked")),
        Err(_) => Err(Error::new(
            ErrorCode::DeadlineExceeded,
            format!(
                "the metrics were not collected within {COLLECT_TIMEOUT:?}; check the file system of the data directory"
            ),
        )),
    };
    match collected {
        Ok(body) => response(StatusCode::OK, format.content_type(), body),
        Err(error) => refusal(&error),
    }
}

/// Prometheus says that it reads OpenMetrics. Whoever says nothing gets the older format.
fn text_format(headers: &HeaderMap) -> TextFormat {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
    match accept {
        Some(accept) if accept.contains("application/openmetrics-text") => TextFormat::OpenMetrics,
        _ => TextFormat::Prometheus,
    }
}

async fn check_token(headers: &HeaderMap, token_file: Option<&Path>) -> Result<()> {
    let Some(file) = token_file.map(Path::to_owned) else {
        return Ok(());
    };
    let reading = tokio::task::spawn_blocking(move || token::read(&file));
    let token = reading
        .await
        .map_err(|_| Error::internal("reading the token panicked"))??;
    let header = headers.get(AUTHORIZATION);
    token::check(header.and_then(|header| header.to_str().ok()), &token)
}

fn refusal(error: &Error) -> Response<String> {
    tracing::debug!(error = format_args!("{error:#}"), "a scrape was refused");
    match error.code() {
        ErrorCode::Unauthenticated => {
            let mut refused = text(StatusCode::UNAUTHORIZED, format!("{}\n", error.message()));
            let scheme = HeaderValue::from_static("Bearer");
            refused.headers_mut().insert(WWW_AUTHENTICATE, scheme);
            refused
        }
        // The message may name a file, which is for the log and not for strangers.
        _ => {
            tracing::warn!(
                error = format_args!("{error:#}"),
                "the metrics cannot be sent"
            );
            text(
                StatusCode::INTERNAL_SERVER_ERROR,
                "the metrics cannot be sent; the log of the node says why\n",
            )
        }
    }
}

fn text(status: StatusCode, body: impl Into<String>) -> Response<String> {
    response(status, PLAIN_TEXT, body.into())
}

fn response(status: StatusCode, content_type: &'static str, body: String) -> Response<String> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let content_type = HeaderValue::from_static(content_type);
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}
