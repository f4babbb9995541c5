//! Whether a peer is a node, by its certificate.
//!
//! One authority may sign for nodes and for clients. The certificates differ in their use: only a node's is
//! for servers.

use std::sync::Arc;

use tokio_rustls::rustls::pki_types::{CertificateDer, UnixTime};
use tokio_rustls::rustls::{RootCertStore, ServerConnection};
use tonic::Extensions;
use volary_flight_proto::{Error, ErrorCode, Result};
use webpki::{EndEntityCert, KeyUsage};

use super::sides::provider;

/// The extended key usage serverAuth, 1.3.6.1.5.5.7.3.1, in DER.
const SERVER_AUTH: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x01];

/// What a peer is, by its certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PeerKind {
    /// The node trusts no authorities of nodes: certificates tell nothing.
    #[default]
    Unknown,
    /// It has shown a certificate for servers, of an authority of nodes.
    Node,
    /// It has shown another certificate, or none.
    Client,
}

impl PeerKind {
    /// The peer that sent a request; `Unknown` if it did not come through a node's listener.
    pub fn of(extensions: &Extensions) -> Self {
        extensions.get().copied().unwrap_or_default()
    }

    /// Refuses a client to do what nodes do.
    ///
    /// # Errors
    /// `PERMISSION_DENIED`.
    pub fn check_is_node(self) -> Result<()> {
        if self != Self::Client {
            return Ok(());
        }
        Err(Error::new(
            ErrorCode::PermissionDenied,
            "only nodes may do that, and the certificate that was shown is not one of a node: one of the authorities in tls.authorities must have signed it, with the extended key usages serverAuth and clientAuth; `volary certificates --host` makes such certificates",
        ))
    }
}

/// Tells nodes from clients.
#[derive(Debug)]
pub(crate) struct NodeCertificates {
    authorities: Option<Arc<RootCertStore>>,
}

impl NodeCertificates {
    /// `authorities` sign for nodes; `None` where a node trusts none.
    pub(super) fn new(authorities: Option<Arc<RootCertStore>>) -> Self {
        Self { authorities }
    }

    /// Who is at the other end of a connection whose handshake is over.
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

/// Whether the authorities have signed a certificate for servers. `others` stand between the authorities and
/// it. A certificate that names no use is not for servers.
fn is_for_servers(
    authorities: &RootCertStore,
    certificate: &CertificateDer<'_>,
    others: &[CertificateDer<'_>],
) -> bool {
    let Ok(certificate) = EndEntityCert::try_from(certificate) else {
        return false;
    };
    let verified = certificate.verify_for_usage(
        provider().signature_verification_algorithms.all,
        &authorities.roots,
        others,
        UnixTime::now(),
        KeyUsage::required(SERVER_AUTH),
        None,
        None,
    );
    verified.is_ok()
}
