//! The stores that files are read from.

use std::sync::Arc;
use std::time::Duration;

use datafusion::datasource::listing::ListingTableUrl;
use datafusion::execution::session_state::SessionState;
use object_store::client::{HttpClient, HttpConnector};
use object_store::http::HttpBuilder;
use object_store::{ClientOptions, ObjectStore, RetryConfig};
use url::Url;
use volary_flight_proto::{Error, ErrorCode, Result};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Without a byte from a web server.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// How often a web server is asked again that fails, and for how long.
const RETRIES: usize = 4;
const RETRY_FOR: Duration = Duration::from_secs(30);

/// The store of a URL, with credentials from the gateway's environment.
///
/// # Errors
/// `INVALID_ARGUMENT` for a store of no known kind.
pub(super) fn object_store(
    state: &SessionState,
    url: &ListingTableUrl,
) -> Result<Arc<dyn ObjectStore>> {
    let place = url.object_store();
    if let Ok(store) = state.runtime_env().object_store(&place) {
        return Ok(store);
    }
    let base = Url::parse(place.as_str()).map_err(|source| {
        Error::with_source(
            ErrorCode::InvalidArgument,
            format!("URL {}", url.as_str()),
            source,
        )
    })?;
    let store = if is_web(url) {
        web_server(&base)
    } else {
        object_store::parse_url_opts(url.get_url(), std::env::vars())
            .map(|(store, _)| Arc::from(store))
    };
    let store = store.map_err(datafusion::error::DataFusionError::from)?;
    state
        .runtime_env()
        .register_object_store(&base, Arc::clone(&store));
    Ok(store)
}

/// Whether it is on a web server, which may not be able to list its files.
pub(super) fn is_web(url: &ListingTableUrl) -> bool {
    matches!(url.scheme(), "http" | "https")
}

fn web_server(base: &Url) -> object_store::Result<Arc<dyn ObjectStore>> {
    let retry = RetryConfig {
        max_retries: RETRIES,
        retry_timeout: RETRY_FOR,
        ..RetryConfig::default()
    };
    let store = HttpBuilder::new()
        .with_url(base.as_str())
        .with_http_connector(WithoutRedirects)
        .with_retry(retry)
        .build()?;
    Ok(Arc::new(store))
}

/// A redirect may lead out of the allowed roots.
#[derive(Debug)]
struct WithoutRedirects;

impl HttpConnector for WithoutRedirects {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(READ_TIMEOUT)
            .build()
            .map_err(|source| object_store::Error::Generic {
                store: "HTTP",
                source: Box::new(source),
            })?;
        Ok(HttpClient::new(client))
    }
}
