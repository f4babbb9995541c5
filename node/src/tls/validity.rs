//! Nothing in webpki says when a certificate is valid, except its errors: a certificate that is
//! checked for a time before it is valid, or after it has expired, is refused with the limit. A
//! parser of certificates would be nine more crates.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, UnixTime};
use webpki::{EndEntityCert, KeyUsage};

use super::peer_kind::SERVER_AUTH;
use super::{Config, provider};

/// The files of certificates that a node uses.
#[derive(Debug, Clone, Default)]
pub struct CertificateFiles(Vec<(&'static str, PathBuf)>);

impl CertificateFiles {
    /// Returns the files that the settings name.
    pub fn of(config: &Config) -> Self {
        let files = config.certificate_files().into_iter();
        let named = files.filter_map(|(setting, path)| Some((setting, path?.to_owned())));
        Self(named.collect())
    }

    /// Returns for each file, under the name of its setting, when its first certificate expires, in
    /// seconds since 1970. Leaves out files that cannot be read. May block.
    pub(crate) fn expiries(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let files = self.0.iter();
        files.filter_map(|(setting, path)| Some((*setting, first_expiry(path)?)))
    }
}

fn first_expiry(path: &Path) -> Option<u64> {
    let bytes = std::fs::read(path).ok()?;
    let certificates = CertificateDer::pem_slice_iter(&bytes).flatten();
    let ends = certificates.filter_map(|certificate| Some(valid_times(&certificate)?.1));
    ends.min()
}

/// Returns the first and the last second (since 1970) in which the certificate is valid. Returns
/// `None` if the certificate cannot be read.
pub(super) fn valid_times(certificate: &CertificateDer<'_>) -> Option<(u64, u64)> {
    let parsed = EndEntityCert::try_from(certificate).ok()?;
    let refusal = |at_s: u64| {
        let algorithms = provider().signature_verification_algorithms.all;
        let usage = KeyUsage::required(SERVER_AUTH);
        let at = UnixTime::since_unix_epoch(Duration::from_secs(at_s));
        parsed
            .verify_for_usage(algorithms, &[], &[], at, usage, None, None)
            .err()
    };
    let not_before_s = match refusal(0) {
        Some(webpki::Error::CertNotValidYet { not_before, .. }) => not_before.as_secs(),
        // It is valid since 1970 or before.
        _ => 0,
    };
    match refusal(u64::MAX) {
        Some(webpki::Error::CertExpired { not_after, .. }) => {
            Some((not_before_s, not_after.as_secs()))
        }
        _ => None,
    }
}
