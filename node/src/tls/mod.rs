//! A node that has a certificate serves TLS only. A node that has authorities connects to other
//! nodes over TLS only, and trusts only certificates that these authorities have signed.
//! Certificates and authorities are loaded again when their files change.

/// Reads the files of certificates and keys.
mod files;
/// Looks at the files before a node starts: when certificates are valid, who signed them, and which
/// names they have.
mod inspection;
/// Decides from a peer's certificate whether the peer is a node.
mod peer_kind;
/// Builds rustls's configuration for the server side and the client side of a connection.
mod rustls_config;
/// Reads when certificates are valid.
mod validity;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::ServerName;
use volary_flight_proto::{Error, Result};

use crate::data_dir::NodeRole;
use files::Files;
pub use inspection::{Inspection, Validity};
pub use peer_kind::PeerKind;
pub(crate) use rustls_config::ServerSide;
pub use validity::CertificateFiles;

/// Time between two checks whether the files have changed.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// Returns the implementation of the cryptography that TLS uses.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// TLS. All files are PEM. They may be replaced while the node runs: new connections then use their
/// new content.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// File of the certificate that the node shows to clients and to other nodes, followed by the
    /// intermediate certificates. If it is set, the node serves TLS only.
    pub certificate: Option<PathBuf>,
    /// File of the certificate's private key.
    pub key: Option<PathBuf>,
    /// File of the certificate authorities (CAs) that sign the certificates of nodes. If it is set,
    /// the node connects to other nodes over TLS only, and a worker serves only nodes that show a
    /// certificate of one of these authorities.
    pub authorities: Option<PathBuf>,
    /// Name that the certificates of all nodes have. If it is not set, the certificate of a node
    /// must have the host name or the IP address that other nodes connect to.
    pub node_name: Option<String>,
    /// File of further authorities, which sign the certificates of a gateway's clients.
    pub client_authorities: Option<PathBuf>,
    /// Makes a gateway serve only clients that show a certificate of one of the authorities.
    pub require_client_certificates: bool,
}

impl Config {
    /// Checks what the types of the settings cannot express.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`, with the setting and what it accepts.
    pub fn validate(&self, role: NodeRole) -> Result<()> {
        let refuse = |what: String| Err(Error::invalid(format!("{role}.tls.{what}")));
        if self.certificate.is_some() != self.key.is_some() {
            return refuse("certificate and key belong together: set both, or none".to_owned());
        }
        if self.certificate.is_none()
            && (self.client_authorities.is_some() || self.require_client_certificates)
        {
            return refuse("certificate is needed if clients are to show certificates".to_owned());
        }
        if self.require_client_certificates
            && self.client_authorities.is_none()
            && self.authorities.is_none()
        {
            return refuse(
                "require_client_certificates needs client_authorities, or authorities".to_owned(),
            );
        }
        if role == NodeRole::Worker {
            if self.client_authorities.is_some() || self.require_client_certificates {
                return refuse(
                    "client_authorities and require_client_certificates are settings of a gateway; a worker serves only nodes with a certificate of one of its authorities"
                        .to_owned(),
                );
            }
            if self.certificate.is_some() && self.authorities.is_none() {
                return refuse(
                    "authorities is needed with certificate: a worker serves only nodes that show a certificate of an authority"
                        .to_owned(),
                );
            }
        }
        if let Some(name) = &self.node_name
            && ServerName::try_from(name.as_str()).is_err()
        {
            return refuse(format!("node_name is \"{name}\", which is not a host name"));
        }
        Ok(())
    }

    /// Returns each setting that may name a file of certificates, with that file.
    fn certificate_files(&self) -> [(&'static str, Option<&Path>); 3] {
        [
            ("certificate", self.certificate.as_deref()),
            ("authorities", self.authorities.as_deref()),
            ("client_authorities", self.client_authorities.as_deref()),
        ]
    }
}

/// The current TLS settings of a node. As long as this value lives, changed files are loaded.
#[derive(Debug)]
pub struct Tls {
    server: Option<ServerTls>,
    server_of_clients: Option<ServerTls>,
    client: Option<ClientTls>,
    _watching: JoinSet<()>,
}

/// The certificate that is shown to peers that connect, and the requirements for their
/// certificates.
#[derive(Debug, Clone)]
pub struct ServerTls(Arc<ArcSwap<ServerSide>>);

/// The settings for connecting to others.
#[derive(Debug, Clone)]
pub struct ClientTls {
    current: Arc<ArcSwap<ClientConfig>>,
    /// Name that certificates must have. With `None`, it is the host name that the client connects
    /// to.
    name: Option<ServerName<'static>>,
}

impl Tls {
    /// Reads the files. Must be called within the I/O runtime.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if a file does not hold what it should, and the errors of reading the
    /// files.
    pub fn load(role: NodeRole, config: &Config) -> Result<Self> {
        config.validate(role)?;
        Self::load_section(role.to_string(), role, config)
    }

    /// Reads the files of the listener for monitoring systems, which need not show certificates.
    /// Must be called within the I/O runtime.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if a file does not hold what it should, and the errors of reading the
    /// files.
    pub(crate) fn load_for_operations(
        certificate: Option<PathBuf>,
        key: Option<PathBuf>,
    ) -> Result<Self> {
        let config = Config {
            certificate,
            key,
            ..Config::default()
        };
        Self::load_section("operations".to_owned(), NodeRole::Gateway, &config)
    }

    /// Reads the files that the settings `[<section>.tls]` name, for a listener that accepts peers
    /// as a node of this role does.
    fn load_section(section: String, role: NodeRole, config: &Config) -> Result<Self> {
        let files = Files::read(&section, config)?;
        let swappable = |server: ServerSide| ServerTls(Arc::new(ArcSwap::from_pointee(server)));
        let name = config.node_name.clone().map(ServerName::try_from);
        let name = name.transpose().ok().flatten();
        let server = rustls_config::server(role, config, &files)?.map(swappable);
        let server_of_clients = rustls_config::server_of_clients(&files)?.map(swappable);
        let client = rustls_config::client_of_node(&files)?.map(|client| ClientTls {
            current: Arc::new(ArcSwap::from_pointee(client)),
            name,
        });
        let mut watching = JoinSet::new();
        if server.is_some() || client.is_some() {
            let watch = Watch {
                section,
                role,
                config: config.clone(),
                server: server.clone(),
                server_of_clients: server_of_clients.clone(),
                client: client.clone(),
            };
            watching.spawn(watch.run(files));
        }
        Ok(Self {
            server,
            server_of_clients,
            client,
            _watching: watching,
        })
    }

    /// Returns the settings for those who connect, or `None` if they connect without TLS.
    pub fn server(&self) -> Option<ServerTls> {
        self.server.clone()
    }

    /// Returns the settings for clients of a worker, who need not show a certificate, or `None` if
    /// they connect without TLS.
    pub fn server_of_clients(&self) -> Option<ServerTls> {
        self.server_of_clients.clone()
    }

    /// Returns the settings for connections to other nodes, or `None` if those are made without
    /// TLS.
    pub fn client(&self) -> Option<ClientTls> {
        self.client.clone()
    }
}

/// Watches the files and loads their new content. If that cannot be used, it logs the error once
/// and keeps the previous content.
struct Watch {
    section: String,
    role: NodeRole,
    config: Config,
    server: Option<ServerTls>,
    server_of_clients: Option<ServerTls>,
    client: Option<ClientTls>,
}

impl Watch {
    async fn run(self, mut current: Files) {
        let mut last_error = String::new();
        loop {
            tokio::time::sleep(CHECK_INTERVAL).await;
            let (section, config) = (self.section.clone(), self.config.clone());
            let read = tokio::task::spawn_blocking(move || Files::read(&section, &config)).await;
            let Ok(read) = read else { continue };
            match read.and_then(|files| self.apply_changes(&current, files)) {
                Ok(None) => {}
                Ok(Some(files)) => {
                    tracing::info!("new certificates are in use");
                    current = files;
                    last_error.clear();
                }
                Err(error) => {
                    let error = error.to_string();
                    if last_error != error {
                        tracing::warn!(
                            error,
                            "the new certificates cannot be used; the previous ones stay in use"
                        );
                        last_error = error;
                    }
                }
            }
        }
    }

    /// Returns the files if they have changed and are now in use.
    fn apply_changes(&self, known: &Files, files: Files) -> Result<Option<Files>> {
        if files == *known {
            return Ok(None);
        }
        let server = rustls_config::server(self.role, &self.config, &files)?;
        let server_of_clients = rustls_config::server_of_clients(&files)?;
        let client = rustls_config::client_of_node(&files)?;
        for (current, server) in [
            (&self.server, server),
            (&self.server_of_clients, server_of_clients),
        ] {
            if let (Some(current), Some(server)) = (current, server) {
                current.0.store(Arc::new(server));
            }
        }
        if let (Some(current), Some(client)) = (&self.client, client) {
            current.current.store(Arc::new(client));
        }
        Ok(Some(files))
    }
}

impl ServerTls {
    pub(crate) fn current(&self) -> Arc<ServerSide> {
        self.0.load_full()
    }
}

impl ClientTls {
    /// Creates the settings of a client that is not a node. It trusts `authorities`, or the
    /// system's authorities if that is `None`. It shows `certificate`, which is given with its key.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if a file does not hold what it should, and the errors of reading the
    /// files.
    pub fn of_client(
        authorities: Option<PathBuf>,
        certificate: Option<(PathBuf, PathBuf)>,
    ) -> Result<Self> {
        let client = rustls_config::client(&files::of_client(authorities, certificate)?)?;
        Ok(Self {
            current: Arc::new(ArcSwap::from_pointee(client)),
            name: None,
        })
    }

    pub(crate) fn current(&self) -> Arc<ClientConfig> {
        self.current.load_full()
    }

    pub(crate) fn name(&self, host: &str) -> Option<ServerName<'static>> {
        match &self.name {
            Some(name) => Some(name.clone()),
            // The brackets around an IPv6 address are not part of it.
            None => ServerName::try_from(host.trim_matches(['[', ']']).to_owned()).ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_together_is_refused_with_the_key() {
        let file = || Some(PathBuf::from("file.pem"));
        let served = Config {
            certificate: file(),
            key: file(),
            ..Config::default()
        };
        served.validate(NodeRole::Gateway).unwrap();
        Config::default().validate(NodeRole::Worker).unwrap();
        let cases = [
            (
                NodeRole::Gateway,
                Config {
                    key: None,
                    ..served.clone()
                },
                "gateway.tls.certificate and key",
            ),
            (
                NodeRole::Gateway,
                Config {
                    client_authorities: file(),
                    ..Config::default()
                },
                "gateway.tls.certificate is needed",
            ),
            (
                NodeRole::Gateway,
                Config {
                    require_client_certificates: true,
                    ..served.clone()
                },
                "gateway.tls.require_client_certificates needs",
            ),
            (NodeRole::Worker, served.clone(), "worker.tls.authorities"),
            (
                NodeRole::Worker,
                Config {
                    authorities: file(),
                    client_authorities: file(),
                    ..served.clone()
                },
                "worker.tls.client_authorities",
            ),
            (
                NodeRole::Gateway,
                Config {
                    node_name: Some("no host".to_owned()),
                    ..served
                },
                "gateway.tls.node_name is \"no host\"",
            ),
        ];
        for (role, config, said) in cases {
            let error = config.validate(role).unwrap_err();
            assert!(error.message().starts_with(said), "{error}");
        }
    }
}
