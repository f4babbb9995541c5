use std::net::SocketAddr;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use volary_flight_proto::{Error, Result};

/// Settings of the listener for monitoring systems.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Address that monitoring systems connect to over HTTP, such as `0.0.0.0:7190`. Without it,
    /// there is no such listener.
    pub listen: Option<SocketAddr>,
    /// File with a token. `/metrics` then answers only those who show it as a bearer token. The
    /// file may be replaced while the process runs. `/healthz` and `/readyz` ask for no token.
    pub token_file: Option<PathBuf>,
    /// Adds metrics with the names of users in the label `user`. The 1000 users who came first have
    /// their own values, and all others share one.
    pub label_users: bool,
    /// TLS of the listener.
    pub tls: TlsConfig,
}

/// TLS of the listener for monitoring systems. Both files are PEM. They may be replaced while the
/// process runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TlsConfig {
    /// File of the certificate, followed by the intermediate certificates. If it is set, the
    /// listener serves HTTPS only.
    pub certificate: Option<PathBuf>,
    /// File of the certificate's private key.
    pub key: Option<PathBuf>,
}

impl Config {
    /// Checks what the types of the settings cannot express.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`, with the setting and what it accepts.
    pub fn validate(&self) -> Result<()> {
        if self.tls.certificate.is_some() != self.tls.key.is_some() {
            return Err(Error::invalid(
                "operations.tls.certificate and key belong together: set both, or none",
            ));
        }
        let is_unused = self.listen.is_none();
        let unused = [
            ("operations.token_file", self.token_file.is_some()),
            ("operations.tls.certificate", self.tls.certificate.is_some()),
            ("operations.label_users", self.label_users),
        ];
        match unused.into_iter().find(|(_, is_set)| is_unused && *is_set) {
            Some((key, _)) => Err(Error::invalid(format!(
                "{key} is set, but operations.listen is not: set the address of the listener, such as 127.0.0.1:7190"
            ))),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_would_do_nothing_are_refused_with_the_key() {
        let alone = Config {
            token_file: Some("token".into()),
            ..Config::default()
        };
        let error = alone.validate().unwrap_err();
        assert!(
            error.message().starts_with("operations.token_file is set"),
            "{error}"
        );
        let half = Config {
            listen: Some(([127, 0, 0, 1], 0).into()),
            tls: TlsConfig {
                certificate: Some("a.pem".into()),
                key: None,
            },
            ..Config::default()
        };
        let error = half.validate().unwrap_err();
        assert!(error.message().contains("certificate and key"), "{error}");
        Config::default().validate().unwrap();
    }
}
