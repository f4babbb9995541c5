use std::sync::Arc;

use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use volary_flight_proto::{Error, ErrorCode, Result};

use super::files::{File, Files};
use super::peer_kind::NodeCertificates;
use super::{Config, provider};
use crate::data_dir::NodeRole;

/// Application protocol of TLS: gRPC uses HTTP/2.
const PROTOCOL: &[u8] = b"h2";

/// The configuration of a server, and the means to recognise the certificates of nodes.
#[derive(Debug)]
pub(crate) struct ServerSide {
    pub(crate) config: Arc<ServerConfig>,
    pub(crate) nodes: NodeCertificates,
}

/// Builds the server side, which asks peers for certificates if the settings name authorities.
/// Returns `None` if the node has no certificate.
pub(super) fn server(role: NodeRole, config: &Config, files: &Files) -> Result<Option<ServerSide>> {
    let trusted: Vec<&File> = [&files.authorities, &files.client_authorities]
        .into_iter()
        .flatten()
        .collect();
    if trusted.is_empty() {
        return server_of_clients(files);
    }
    let all = Arc::new(roots(&trusted)?);
    let verifier = WebPkiClientVerifier::builder_with_provider(all, provider());
    let is_required = role == NodeRole::Worker || config.require_client_certificates;
    let verifier = if is_required {
        verifier
    } else {
        verifier.allow_unauthenticated()
    };
    let verifier = verifier.build().map_err(unusable)?;
    let nodes = files.authorities.as_ref().map(|file| roots(&[file]));
    let nodes = NodeCertificates::new(nodes.transpose()?.map(Arc::new));
    build_server(verifier, nodes, files)
}

/// Builds the server side whose clients need not show a certificate. Returns `None` if the node has
/// no certificate.
pub(super) fn server_of_clients(files: &Files) -> Result<Option<ServerSide>> {
    let verifier = WebPkiClientVerifier::no_client_auth();
    build_server(verifier, NodeCertificates::new(None), files)
}

fn build_server(
    verifier: Arc<dyn ClientCertVerifier>,
    nodes: NodeCertificates,
    files: &Files,
) -> Result<Option<ServerSide>> {
    let Some((certificate, key)) = &files.identity else {
        return Ok(None);
    };
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(unusable)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(certificate.certificates()?, key.key()?)
        .map_err(|source| key.file_error(format!("it does not match the certificate: {source}")))?;
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    Ok(Some(ServerSide {
        config: Arc::new(config),
        nodes,
    }))
}

/// Builds the client side of a node, or returns `None` if it connects to other nodes without TLS.
pub(super) fn client_of_node(files: &Files) -> Result<Option<ClientConfig>> {
    // A gateway without authorities reaches its workers without TLS, whatever its clients use.
    files
        .authorities
        .is_some()
        .then(|| client(files))
        .transpose()
}

/// Builds the client side of a connection. It trusts the system's authorities if `files` has none.
pub(super) fn client(files: &Files) -> Result<ClientConfig> {
    let roots = match &files.authorities {
        Some(authorities) => roots(&[authorities])?,
        None => {
            let mut roots = RootCertStore::empty();
            let system = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(system.certs);
            roots
        }
    };
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(unusable)?
        .with_root_certificates(roots);
    let mut client = match &files.identity {
        Some((certificate, key)) => builder
            .with_client_auth_cert(certificate.certificates()?, key.key()?)
            .map_err(|source| {
                key.file_error(format!("it does not match the certificate: {source}"))
            })?,
        None => builder.with_no_client_auth(),
    };
    client.alpn_protocols = vec![PROTOCOL.to_vec()];
    Ok(client)
}

fn roots(files: &[&File]) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for file in files {
        for certificate in file.certificates()? {
            roots
                .add(certificate)
                .map_err(|source| file.file_error(format!("it holds no authority: {source}")))?;
        }
    }
    Ok(roots)
}

fn unusable(source: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::with_source(ErrorCode::Internal, "TLS cannot be set up", source)
}
