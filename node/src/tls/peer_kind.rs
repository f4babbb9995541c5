//! One authority may sign for nodes and for clients. Their certificates differ in their extended
//! key usage: only the certificate of a node is for servers.

use std::sync::Arc;

use tokio_rustls::rustls::pki_types::{CertificateDer, UnixTime};
use tokio_rustls::rustls::{RootCertStore, ServerConnection};
use tonic::Extensions;
use volary_flight_proto::{Error, ErrorCode, Result};
use webpki::{EndEntityCert, KeyUsage};

use super::provider;

/// The extended key usage serverAuth, 1.3.6.1.5.5.7.3.1, in DER.
pub(super) const SERVER_AUTH: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x01];

/// The kind of a peer, according to its certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PeerKind {
    /// The kind is unknown, because this node trusts no authorities of nodes.
    #[default]
    Unknown,
    /// The peer has shown a certificate for servers that an authority of nodes has signed.
    Node,
    /// The peer has shown another certificate, or none.
    Client,
}

impl PeerKind {
    /// Returns the kind of the peer that sent a request. Returns `Unknown` if the request did not
    /// come through a node's listener.
    pub fn of(extensions: &Extensions) -> Self {
        extensions.get().copied().unwrap_or_default()
    }

    /// Refuses a client that tries to do what only nodes may do.
    ///
    /// # Errors
    /// `PERMISSION_DENIED` if the peer is a client.
    pub fn check_is_node(self) -> Result<()> {
        if self != Self::Client {
            return Ok(());
        }
        Err(Error::new(
            ErrorCode::PermissionDenied,
            "only nodes may do that, and the certificate that was shown is not the certificate of a node: one of the authorities in tls.authorities must have signed it, with the extended key usages serverAuth and clientAuth; `volary certificates --host` makes such certificates",
        ))
    }
}

/// Distinguishes nodes from clients.
#[derive(Debug)]
pub(crate) struct NodeCertificates {
    authorities: Option<Arc<RootCertStore>>,
}

impl NodeCertificates {
    /// Creates the check. `authorities` sign the certificates of nodes. It is `None` if this node
    /// trusts no authorities.
    pub(super) fn new(authorities: Option<Arc<RootCertStore>>) -> Self {
        Self { authorities }
    }

    /// Returns the kind of the peer of a connection whose handshake is over.
    pub(crate) fn peer_kind(&self, connection: &ServerConnection) -> PeerKind {
        let Some(authorities) = &self.authorities else {
            return PeerKind::Unknown;
        };
        match connection.peer_certificates() {
            Some([first, others @ ..]) if is_for_servers(authorities, first, others) => {
                PeerKind::Node
            }
            _ => PeerKind::Client,
        }
    }
}

/// Returns whether the authorities have signed a certificate for servers. `intermediates` are
/// the certificates between the authorities and this one. A certificate that names no usage is not
/// for servers.
fn is_for_servers(
    authorities: &RootCertStore,
    certificate: &CertificateDer<'_>,
    intermediates: &[CertificateDer<'_>],
) -> bool {
    let Ok(certificate) = EndEntityCert::try_from(certificate) else {
        return false;
    };
    let verified = certificate.verify_for_usage(
        provider().signature_verification_algorithms.all,
        &authorities.roots,
        intermediates,
        UnixTime::now(),
        KeyUsage::required(SERVER_AUTH),
        None,
        None,
    );
    verified.is_ok()
}
