use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::pki_types::{ServerName, UnixTime};
use volary_flight_proto::{Error, Result};
use webpki::{EndEntityCert, KeyUsage};

use super::files::{File, Files};
use super::peer_kind::SERVER_AUTH;
use super::validity::valid_times;
use super::{Config, provider, rustls_config};
use crate::data_dir::NodeRole;

/// The extended key usage clientAuth, 1.3.6.1.5.5.7.3.2, in DER.
const CLIENT_AUTH: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x02];
/// A name that no certificate has (RFC 6761).
const NO_NAME: &str = "no.name.invalid";

/// The TLS files of a node, before the node starts.
#[derive(Debug)]
pub struct Inspection {
    files: Files,
}

/// The time for which the certificates of a file are valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Validity {
    /// The setting that names the file.
    pub setting: String,
    /// The file.
    pub path: PathBuf,
    /// The latest beginning of the validity of a certificate, in seconds since 1970.
    pub not_before_s: u64,
    /// The earliest end of the validity of a certificate, in seconds since 1970.
    pub not_after_s: u64,
}

impl Inspection {
    /// Reads the files that the settings name, as the node does when it starts.
    ///
    /// # Errors
    /// Returns all errors: those of each file, or else those of files that do not fit together.
    pub fn read(role: NodeRole, config: &Config) -> Result<Self, Vec<Error>> {
        let problems = Files::unusable(&role.to_string(), config);
        if !problems.is_empty() {
            return Err(problems);
        }
        Self::read_together(role, config).map_err(|error| vec![error])
    }

    fn read_together(role: NodeRole, config: &Config) -> Result<Self> {
        config.validate(role)?;
        let files = Files::read(&role.to_string(), config)?;
        rustls_config::server(role, config, &files)?;
        rustls_config::client_of_node(&files)?;
        Ok(Self { files })
    }

    /// Returns the file of the private key.
    pub fn key(&self) -> Option<&Path> {
        let (_, key) = self.files.identity.as_ref()?;
        Some(&key.path)
    }

    /// Returns for how long the certificates of each file are valid. Certificates that are too old
    /// to say it are left out.
    ///
    /// # Errors
    /// The errors of a file that holds no certificates.
    pub fn validities(&self) -> Result<Vec<Validity>> {
        let certificate = self
            .files
            .identity
            .as_ref()
            .map(|(certificate, _)| certificate);
        let authorities = [&self.files.authorities, &self.files.client_authorities];
        let authorities = authorities.into_iter().flatten();
        let mut validities = Vec::new();
        for file in certificate.into_iter().chain(authorities) {
            let certificates = file.certificates()?;
            let times: Vec<_> = certificates.iter().filter_map(valid_times).collect();
            let limits = times
                .into_iter()
                .reduce(|a, b| (a.0.max(b.0), a.1.min(b.1)));
            validities.extend(limits.map(|(not_before_s, not_after_s)| Validity {
                setting: file.setting.clone(),
                path: file.path.clone(),
                not_before_s,
                not_after_s,
            }));
        }
        Ok(validities)
    }

    /// Checks that other nodes of the cluster accept the certificate, apart from its names and from
    /// the time. Nodes without authorities accept any certificate or none.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if none of the authorities has signed the certificate, or if it is not
    /// the certificate of a node.
    pub fn check_signature(&self) -> Result<()> {
        let (Some((certificate, _)), Some(authorities)) =
            (&self.files.identity, &self.files.authorities)
        else {
            return Ok(());
        };
        let mut roots = RootCertStore::empty();
        for authority in authorities.certificates()? {
            roots
                .add(authority)
                .map_err(|source| authorities.file_error(source))?;
        }
        let chain = certificate.certificates()?;
        let Some((first, intermediates)) = chain.split_first() else {
            return Ok(());
        };
        let parsed =
            EndEntityCert::try_from(first).map_err(|source| certificate.file_error(source))?;
        // The time of the certificate itself is not compared here.
        let now_s = UnixTime::now().as_secs();
        let at_s = valid_times(first).map_or(now_s, |(begin_s, end_s)| {
            now_s.clamp(begin_s, end_s.max(begin_s))
        });
        for usage in [SERVER_AUTH, CLIENT_AUTH] {
            parsed
                .verify_for_usage(
                    provider().signature_verification_algorithms.all,
                    &roots.roots,
                    intermediates,
                    time(at_s),
                    KeyUsage::required(usage),
                    None,
                    None,
                )
                .map_err(|source| {
                    certificate.file_error(match source {
                        // The authorities of two clusters may have the same name.
                        webpki::Error::UnknownIssuer
                        | webpki::Error::InvalidSignatureForPublicKey => format!(
                            "none of the authorities in {} has signed it; use a certificate of the cluster's authority",
                            authorities.path.display()
                        ),
                        webpki::Error::RequiredEkuNotFoundContext(_) => {
                            "it is not the certificate of a node: it needs the extended key usages serverAuth and clientAuth; `volary certificates --host` makes such certificates".to_owned()
                        }
                        other => format!("other nodes refuse it: {other}"),
                    })
                })?;
        }
        Ok(())
    }

    /// Checks that the certificate has the name or the IP address `host`, by which others connect.
    /// A node without a certificate passes.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the certificate does not have the name, with the names that it has.
    pub fn check_name(&self, host: &str) -> Result<()> {
        let Some((certificate, _)) = &self.files.identity else {
            return Ok(());
        };
        let Ok(name) = ServerName::try_from(host.trim_matches(['[', ']']).to_owned()) else {
            return Err(Error::invalid(format!(
                "\"{host}\" is not a name that a certificate can have"
            )));
        };
        match presented_names(certificate, &name)? {
            None => Ok(()),
            Some(names) => {
                Err(certificate
                    .file_error(format!("it is for {}, and not for {host}", listed(&names))))
            }
        }
    }

    /// Returns the names and IP addresses of the certificate.
    ///
    /// # Errors
    /// The errors of a file that holds no certificate.
    pub fn names(&self) -> Result<Vec<String>> {
        let (Some((certificate, _)), Ok(name)) =
            (&self.files.identity, ServerName::try_from(NO_NAME))
        else {
            return Ok(Vec::new());
        };
        Ok(presented_names(certificate, &name)?.unwrap_or_default())
    }
}

/// Returns the names of the first certificate of the file if `name` is not among them.
fn presented_names(file: &File, name: &ServerName<'_>) -> Result<Option<Vec<String>>> {
    let certificates = file.certificates()?;
    let Some(first) = certificates.first() else {
        return Ok(None);
    };
    let parsed = EndEntityCert::try_from(first).map_err(|source| file.file_error(source))?;
    match parsed.verify_is_valid_for_subject_name(name) {
        Ok(()) => Ok(None),
        Err(webpki::Error::CertNotValidForName(context)) => Ok(Some(
            context.presented.iter().map(|name| plain(name)).collect(),
        )),
        Err(source) => Err(file.file_error(source)),
    }
}

/// Returns a name without what webpki puts around it: `DnsName("a.example")`, `IpAddress(::1)`.
fn plain(presented: &str) -> String {
    let inner = presented.split_once('(').and_then(|(_, inner)| {
        let inner = inner.strip_suffix(')')?;
        Some(inner.trim_matches('"'))
    });
    inner.unwrap_or(presented).to_owned()
}

fn listed(names: &[String]) -> String {
    if names.is_empty() {
        return "no name".to_owned();
    }
    names.join(", ")
}

fn time(since_1970_s: u64) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(since_1970_s))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_shown_as_people_write_them() {
        assert_eq!(plain("DnsName(\"a.example\")"), "a.example");
        assert_eq!(plain("IpAddress(127.0.0.1)"), "127.0.0.1");
        assert_eq!(plain("DirectoryName"), "DirectoryName");
    }

    #[test]
    fn all_files_that_cannot_be_read_are_named_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("text.pem");
        std::fs::write(&file, "text").unwrap();
        let config = Config {
            certificate: Some(dir.path().join("none.pem")),
            key: Some(file.clone()),
            authorities: Some(file),
            ..Config::default()
        };
        let problems = Inspection::read(NodeRole::Worker, &config).unwrap_err();
        let said: Vec<_> = problems.iter().map(Error::message).collect();
        assert_eq!(said.len(), 3, "{said:?}");
        assert!(said[0].starts_with("cannot read worker.tls.certificate"));
        assert!(said[1].contains("holds no certificate"), "{said:?}");
        assert!(said[2].contains("holds no private key"), "{said:?}");
        let none = Inspection::read(NodeRole::Gateway, &Config::default()).unwrap();
        none.check_name("anything").unwrap();
        none.check_signature().unwrap();
        assert_eq!(none.validities().unwrap(), []);
    }
}
