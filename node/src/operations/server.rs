use std::convert::Infallible;
use std::io;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

use super::answer::answer;
use super::observed::Observed;
use crate::connection::HANDSHAKE_TIMEOUT;
use crate::listener::Listener;
use crate::tls::Tls;

/// Number of connections that are served at the same time. A few monitoring systems have one each,
/// and strangers must not take the process's file descriptors.
const MAX_CONNECTIONS: usize = 64;
/// Time limit for the headers of a request. A connection without a request is closed after it.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// Application protocol of TLS.
const PROTOCOL: &[u8] = b"http/1.1";

/// Serves the connections of the listener.
pub(super) struct Server {
    pub(super) observed: Arc<Observed>,
    pub(super) token_file: Option<PathBuf>,
    pub(super) tls: Tls,
}

impl Server {
    /// Accepts connections on the current runtime, and serves them on `runtime`, until the future
    /// is dropped.
    pub(super) async fn serve(self, listener: Listener, runtime: Handle) {
        let server = Arc::new(self);
        let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let mut connections = JoinSet::new();
        let mut accepted = pin!(listener.accept());
        loop {
            // A place is taken before a connection is accepted, so that further ones wait.
            let Ok(place) = Arc::clone(&places).acquire_owned().await else {
                return;
            };
            match accepted.next().await {
                Some(Ok(stream)) => {
                    let server = Arc::clone(&server);
                    let serving = async move {
                        if let Err(error) = server.serve_connection(stream).await {
                            tracing::debug!(error, "a connection to the operations listener broke");
                        }
                        drop(place);
                    };
                    connections.spawn_on(serving, &runtime);
                }
                Some(Err(error)) => {
                    tracing::debug!(%error, "a connection to the operations listener was not accepted");
                }
                None => return,
            }
            while connections.try_join_next().is_some() {}
        }
    }

    async fn serve_connection(self: Arc<Self>, stream: TcpStream) -> Result<(), String> {
        let Some(tls) = self.tls.server() else {
            return self.serve_stream(stream).await;
        };
        let mut config = ServerConfig::clone(&tls.current().config);
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        let handshake = TlsAcceptor::from(Arc::new(config)).accept(stream);
        let stream = tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake)
            .await
            .map_err(io::Error::from)
            .flatten()
            .map_err(|error| format!("the TLS handshake failed: {error}"))?;
        self.serve_stream(stream).await
    }

    async fn serve_stream(
        self: Arc<Self>,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Result<(), String> {
        let service = service_fn(move |request| {
            let server = Arc::clone(&self);
            async move {
                let token_file = server.token_file.as_deref();
                Ok::<_, Infallible>(answer(request, &server.observed, token_file).await)
            }
        });
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIMEOUT)
            .serve_connection(TokioIo::new(stream), service)
            .await
            .map_err(|error| error.to_string())
    }
}
