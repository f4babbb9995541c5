use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use datafusion::datasource::listing::ListingTableUrl;
use datafusion::execution::session_state::SessionState;
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::client::{HttpClient, HttpConnector};
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::http::HttpBuilder;
use object_store::{
    ClientConfigKey, ClientOptions, Error as StoreError, ObjectStore, ObjectStoreScheme,
    RetryConfig,
};
use url::Url;
use volary_flight_proto::{Error, ErrorCode, Result};

use crate::url_credentials::without_credentials;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time after which a request fails if no byte arrives from the web server or the store.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of retries if a web server fails. There are no retries after `RETRY_FOR`.
const MAX_RETRIES: usize = 4;
const RETRY_FOR: Duration = Duration::from_secs(30);

const USER_AGENT: &str = concat!("volary/", env!("CARGO_PKG_VERSION"));

/// Returns the store of a URL, with credentials from the gateway's environment.
///
/// # Errors
/// `INVALID_ARGUMENT` for a store of an unknown kind.
pub(super) fn object_store(
    state: &SessionState,
    url: &ListingTableUrl,
) -> Result<Arc<dyn ObjectStore>> {
    let store_url = url.object_store();
    if let Ok(store) = state.runtime_env().object_store(&store_url) {
        return Ok(store);
    }
    let base = Url::parse(store_url.as_str()).map_err(|source| {
        Error::with_source(
            ErrorCode::InvalidArgument,
            format!("URL {}", without_credentials(url.as_str())),
            source,
        )
    })?;
    let store = if is_web(url) {
        web_store(&base)
    } else {
        cloud_store(url.get_url())
    };
    let store = store.map_err(datafusion::error::DataFusionError::from)?;
    state
        .runtime_env()
        .register_object_store(&base, Arc::clone(&store));
    Ok(store)
}

/// Returns whether the URL is on a web server. A web server may be unable to list its files.
pub(super) fn is_web(url: &ListingTableUrl) -> bool {
    matches!(url.scheme(), "http" | "https")
}

fn web_store(base: &Url) -> object_store::Result<Arc<dyn ObjectStore>> {
    let retry = RetryConfig {
        max_retries: MAX_RETRIES,
        retry_timeout: RETRY_FOR,
        ..RetryConfig::default()
    };
    // The request has no timeout: a file may take longer than any timeout, as long as bytes keep
    // arriving.
    let client = ClientOptions::new()
        .with_allow_http(true)
        .with_allow_http2()
        .with_connect_timeout(CONNECT_TIMEOUT)
        .with_timeout_disabled();
    let store = HttpBuilder::new()
        .with_url(base.as_str())
        .with_http_connector(NoRedirectConnector)
        .with_client_options(client)
        .with_retry(retry)
        .build()?;
    Ok(Arc::new(store))
}

/// Creates the builder of a store, with all environment variables that the builder knows.
macro_rules! of_environment {
    ($builder:ty, $url:expr) => {
        std::env::vars().fold(
            <$builder>::new()
                .with_url($url.as_str())
                .with_http_connector(NoRedirectConnector),
            |builder, (name, value)| match name.to_ascii_lowercase().parse() {
                Ok(key) => builder.with_config(key, value),
                Err(_) => builder,
            },
        )
    };
}

/// Creates the store of a URL, like `object_store::parse_url_opts`, which takes no connector.
fn cloud_store(url: &Url) -> object_store::Result<Arc<dyn ObjectStore>> {
    Ok(match ObjectStoreScheme::parse(url)?.0 {
        ObjectStoreScheme::AmazonS3 => Arc::new(of_environment!(AmazonS3Builder, url).build()?),
        ObjectStoreScheme::GoogleCloudStorage => {
            Arc::new(of_environment!(GoogleCloudStorageBuilder, url).build()?)
        }
        ObjectStoreScheme::MicrosoftAzure => {
            Arc::new(of_environment!(MicrosoftAzureBuilder, url).build()?)
        }
        // The remaining stores have no HTTP client. Web servers are handled by `web_store`.
        _ => Arc::from(object_store::parse_url(url)?.0),
    })
}

/// Connects to a store or web server without following redirects. A redirect may lead out of the
/// allowed roots, and to servers that only the gateway can reach.
#[derive(Debug)]
struct NoRedirectConnector;

impl HttpConnector for NoRedirectConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = HttpClientOptions(options)
            .client()?
            .redirect(reqwest::redirect::Policy::none())
            .read_timeout(READ_TIMEOUT)
            .build()
            .map_err(http_error)?;
        Ok(HttpClient::new(client))
    }
}

fn http_error(source: impl Into<Box<dyn std::error::Error + Send + Sync + 'static>>) -> StoreError {
    StoreError::Generic {
        store: "HTTP",
        source: source.into(),
    }
}

/// The options that `object_store` would give to its own client. That client follows redirects, and
/// has no option to prevent it.
///
/// Only `randomize_addresses` is ignored, because it needs the resolver of `object_store`. The
/// system's resolver rotates the addresses, too.
struct HttpClientOptions<'a>(&'a ClientOptions);

impl HttpClientOptions<'_> {
    fn client(&self) -> object_store::Result<reqwest::ClientBuilder> {
        let agent = self.text(ClientConfigKey::UserAgent);
        let mut client = reqwest::Client::builder()
            .user_agent(agent.as_deref().unwrap_or(USER_AGENT))
            .https_only(!self.is_set(ClientConfigKey::AllowHttp)?)
            .danger_accept_invalid_certs(self.is_set(ClientConfigKey::AllowInvalidCertificates)?)
            .http2_keep_alive_while_idle(self.is_set(ClientConfigKey::Http2KeepAliveWhileIdle)?)
            // Responses must not be compressed, so that their length is the length of the file.
            .no_gzip()
            .no_brotli()
            .no_zstd()
            .no_deflate();
        if let Some(proxy) = self.proxy()? {
            client = client.proxy(proxy);
            if let Some(pem) = self.text(ClientConfigKey::ProxyCaCertificate) {
                let certificate = reqwest::Certificate::from_pem(pem.as_bytes());
                client = client.add_root_certificate(certificate.map_err(http_error)?);
            }
        }
        if let Some(timeout) = self.duration(ClientConfigKey::Timeout)? {
            client = client.timeout(timeout);
        }
        if let Some(timeout) = self.duration(ClientConfigKey::ConnectTimeout)? {
            client = client.connect_timeout(timeout);
        }
        if let Some(timeout) = self.duration(ClientConfigKey::PoolIdleTimeout)? {
            client = client.pool_idle_timeout(timeout);
        }
        if let Some(most) = self.number(ClientConfigKey::PoolMaxIdlePerHost)? {
            client = client.pool_max_idle_per_host(most);
        }
        if let Some(interval) = self.duration(ClientConfigKey::Http2KeepAliveInterval)? {
            client = client.http2_keep_alive_interval(interval);
        }
        if let Some(timeout) = self.duration(ClientConfigKey::Http2KeepAliveTimeout)? {
            client = client.http2_keep_alive_timeout(timeout);
        }
        if let Some(most) = self.number::<u32>(ClientConfigKey::Http2MaxFrameSize)? {
            client = client.http2_max_frame_size(most);
        }
        if self.is_set(ClientConfigKey::Http1Only)? {
            client = client.http1_only();
        }
        if self.is_set(ClientConfigKey::Http2Only)? {
            client = client.http2_prior_knowledge();
        }
        Ok(client)
    }

    fn proxy(&self) -> object_store::Result<Option<reqwest::Proxy>> {
        let Some(url) = self.text(ClientConfigKey::ProxyUrl) else {
            return Ok(None);
        };
        let excluded = self.text(ClientConfigKey::ProxyExcludes);
        let excluded = excluded.and_then(|hosts| reqwest::NoProxy::from_string(&hosts));
        let proxy = reqwest::Proxy::all(url).map_err(http_error)?;
        Ok(Some(proxy.no_proxy(excluded)))
    }

    fn text(&self, key: ClientConfigKey) -> Option<String> {
        self.0.get_config_value(&key)
    }

    fn is_set(&self, key: ClientConfigKey) -> object_store::Result<bool> {
        let is_set = self.parse_value(key, |text| match text.to_ascii_lowercase().as_str() {
            "1" | "true" | "on" | "yes" | "y" => Some(true),
            "0" | "false" | "off" | "no" | "n" => Some(false),
            _ => None,
        })?;
        Ok(is_set.unwrap_or_default())
    }

    fn duration(&self, key: ClientConfigKey) -> object_store::Result<Option<Duration>> {
        self.parse_value(key, |text| humantime::parse_duration(text).ok())
    }

    fn number<T: FromStr>(&self, key: ClientConfigKey) -> object_store::Result<Option<T>> {
        self.parse_value(key, |text| text.parse().ok())
    }

    fn parse_value<T>(
        &self,
        key: ClientConfigKey,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> object_store::Result<Option<T>> {
        let parsed = self.text(key).map(|text| {
            parse(&text).ok_or_else(|| format!("\"{text}\" is not a valid value of {key:?}"))
        });
        parsed.transpose().map_err(http_error)
    }
}
