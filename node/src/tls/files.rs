use std::path::{Path, PathBuf};

use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use volary_flight_proto::{Error, Result};

use super::Config;

/// The contents of the files that the TLS settings name.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Files {
    pub(super) identity: Option<(File, File)>,
    pub(super) authorities: Option<File>,
    pub(super) client_authorities: Option<File>,
}

/// One of the files.
#[derive(PartialEq, Eq)]
pub(super) struct File {
    /// Setting or flag that names the file.
    pub(super) setting: String,
    pub(super) path: PathBuf,
    bytes: Vec<u8>,
}

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Keys must never appear in a log.
        f.debug_struct("File")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl Files {
    /// Reads the files that the settings `[<section>.tls]` name.
    pub(super) fn read(section: &str, config: &Config) -> Result<Self> {
        let read = |key: &str, path: &Option<PathBuf>| {
            let path = path.as_ref();
            path.map(|path| File::read(format!("{section}.tls.{key}"), path))
                .transpose()
        };
        let certificate = read("certificate", &config.certificate)?;
        Ok(Self {
            identity: certificate.zip(read("key", &config.key)?),
            authorities: read("authorities", &config.authorities)?,
            client_authorities: read("client_authorities", &config.client_authorities)?,
        })
    }

    /// Returns the error of each file that cannot be read or does not hold what it should.
    pub(super) fn unusable(section: &str, config: &Config) -> Vec<Error> {
        let read = |setting: &str, path| File::read(format!("{section}.tls.{setting}"), path);
        let of_certificates = config.certificate_files().into_iter();
        let certificates = of_certificates.filter_map(|(setting, path)| {
            let file = read(setting, path?);
            file.and_then(|file| file.certificates()).err()
        });
        let key = config.key.iter();
        let key = key.filter_map(|path| read("key", path).and_then(|file| file.key()).err());
        certificates.chain(key).collect()
    }
}

/// Reads the files of a client that is not a node.
pub(super) fn of_client(
    authorities: Option<PathBuf>,
    certificate: Option<(PathBuf, PathBuf)>,
) -> Result<Files> {
    let read = |flag: &str, path: &Path| File::read(format!("--tls-{flag}"), path);
    Ok(Files {
        identity: certificate
            .map(|(certificate, key)| {
                Ok::<_, Error>((read("certificate", &certificate)?, read("key", &key)?))
            })
            .transpose()?,
        authorities: authorities.map(|path| read("ca", &path)).transpose()?,
        client_authorities: None,
    })
}

impl File {
    fn read(setting: String, path: &Path) -> Result<Self> {
        let bytes = std::fs::read(path).map_err(|source| {
            Error::io(format!("cannot read {setting}, {}", path.display()), source)
        })?;
        Ok(Self {
            setting,
            path: path.to_owned(),
            bytes,
        })
    }

    /// Returns the certificates of the file. There is at least one.
    pub(super) fn certificates(&self) -> Result<Vec<CertificateDer<'static>>> {
        let read = CertificateDer::pem_slice_iter(&self.bytes).collect::<Result<Vec<_>, _>>();
        match read {
            Ok(certificates) if !certificates.is_empty() => Ok(certificates),
            _ => Err(self.missing_error("certificate")),
        }
    }

    /// Returns the private key of the file.
    pub(super) fn key(&self) -> Result<PrivateKeyDer<'static>> {
        PrivateKeyDer::from_pem_slice(&self.bytes).map_err(|_| self.missing_error("private key"))
    }

    fn missing_error(&self, what: &str) -> Error {
        self.file_error(format!("it holds no {what} in PEM (-----BEGIN …-----)"))
    }

    /// Returns the error for a file that cannot be used.
    pub(super) fn file_error(&self, why: impl std::fmt::Display) -> Error {
        Error::invalid(format!("{}, {}: {why}", self.setting, self.path.display()))
    }
}
