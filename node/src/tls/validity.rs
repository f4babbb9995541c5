use std::path::{Path, PathBuf};

use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use x509_parser::parse_x509_certificate;
use x509_parser::time::ASN1Time;

use super::Config;

/// The files of certificates that a node uses.
#[derive(Debug, Clone, Default)]
pub struct CertificateFiles(Vec<(&'static str, PathBuf)>);

impl CertificateFiles {
    /// Returns the files that the settings name.
    pub fn of(config: &Config) -> Self {
        let files = [
            ("certificate", &config.certificate),
            ("authorities", &config.authorities),
            ("client_authorities", &config.client_authorities),
        ];
        let files = files.into_iter();
        Self(
            files
                .filter_map(|(setting, path)| Some((setting, path.clone()?)))
                .collect(),
        )
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
    let (_, parsed) = parse_x509_certificate(certificate).ok()?;
    let validity = parsed.validity();
    let seconds = |time: ASN1Time| u64::try_from(time.timestamp()).unwrap_or(0);
    Some((seconds(validity.not_before), seconds(validity.not_after)))
}
