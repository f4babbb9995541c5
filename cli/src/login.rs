use std::io::IsTerminal;
use std::path::PathBuf;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use volary_flight_proto::{Error, Result};
use volary_node::tls::ClientTls;

const PASSWORD_VARIABLE: &str = "VOLARY_PASSWORD";
const TOKEN_VARIABLE: &str = "VOLARY_TOKEN";

/// The user name of a client that names no user. Gateways without users accept it.
const ANONYMOUS_USER: &str = "volary";

/// The user or the token that a client logs in with.
#[derive(Debug, Default)]
pub struct Login {
    /// The name of the user. The password comes from the environment or the keyboard.
    pub user: Option<String>,
    /// A file that holds a token.
    pub token_file: Option<PathBuf>,
}

/// The files that an encrypted connection needs.
#[derive(Debug, Default)]
pub struct TlsFiles {
    /// The file of the authorities to trust. Without it, the client trusts those of the system.
    pub authorities: Option<PathBuf>,
    /// The files of the certificate to show and of its private key.
    pub certificate: Option<(PathBuf, PathBuf)>,
}

/// A gateway, and the credentials that are shown to it.
#[derive(Clone)]
pub struct Target {
    uri: String,
    /// The address as `host:port`.
    address: String,
    /// The encryption of the connection, or `None` for no encryption.
    tls: Option<ClientTls>,
    /// The value of the header `authorization`.
    authorization: String,
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The credentials must not reach a log.
        f.debug_struct("Target")
            .field("uri", &self.uri)
            .finish_non_exhaustive()
    }
}

impl Target {
    /// Creates the target for a gateway without users. Over TLS, an authority that the system
    /// trusts must have signed the gateway's certificate.
    ///
    /// # Errors
    /// Returns `INVALID_ARGUMENT` if the URI is not valid.
    pub fn without_user(uri: &str) -> Result<Self> {
        Self::new(
            uri,
            basic_authorization(ANONYMOUS_USER, ""),
            TlsFiles::default(),
        )
    }

    /// Creates the target for a gateway without users at an address (`host:port`), with the
    /// settings for connections between nodes.
    pub fn of_node(address: &str, tls: Option<ClientTls>) -> Self {
        let scheme = if tls.is_some() { "grpc+tls" } else { "grpc" };
        Self {
            uri: format!("{scheme}://{address}"),
            address: address.to_owned(),
            tls,
            authorization: basic_authorization(ANONYMOUS_USER, ""),
        }
    }

    fn new(uri: &str, authorization: String, tls: TlsFiles) -> Result<Self> {
        let TlsFiles {
            authorities,
            certificate,
        } = tls;
        let (address, is_encrypted) = address(uri)?;
        if !is_encrypted && (authorities.is_some() || certificate.is_some()) {
            return Err(Error::invalid(format!(
                "TLS files were given, but \"{uri}\" is not encrypted: write grpc+tls://"
            )));
        }
        let tls = is_encrypted.then(|| ClientTls::of_client(authorities, certificate));
        Ok(Self {
            uri: uri.to_owned(),
            address: address.to_owned(),
            tls: tls.transpose()?,
            authorization,
        })
    }

    /// Creates the target from the command line and the environment. Asks for a missing password if
    /// there is a terminal.
    ///
    /// # Errors
    /// Returns `INVALID_ARGUMENT` if a user has no password, and the errors of reading the file
    /// with the token.
    pub fn of(uri: &str, login: &Login, tls: TlsFiles) -> Result<Self> {
        let token = match &login.token_file {
            Some(file) => {
                let read = std::fs::read_to_string(file);
                let what = || format!("cannot read --token-file {}", file.display());
                Some(read.map_err(|source| Error::io(what(), source))?)
            }
            None => std::env::var(TOKEN_VARIABLE)
                .ok()
                .filter(|_| login.user.is_none()),
        };
        let authorization = match (&login.user, token) {
            (_, Some(token)) => format!("Bearer {}", token.trim()),
            (Some(user), None) => basic_authorization(user, &read_password(user)?),
            (None, None) => basic_authorization(ANONYMOUS_USER, ""),
        };
        Self::new(uri, authorization, tls)
    }

    /// Returns the URI of the gateway.
    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// Returns the address as `host:port`.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Returns the encryption of the connection.
    pub(crate) fn tls(&self) -> Option<&ClientTls> {
        self.tls.as_ref()
    }

    /// Returns the value of the header `authorization`.
    pub(crate) fn authorization(&self) -> &str {
        &self.authorization
    }
}

fn read_password(user: &str) -> Result<String> {
    if let Ok(password) = std::env::var(PASSWORD_VARIABLE) {
        return Ok(password);
    }
    if !std::io::stdin().is_terminal() {
        return Err(Error::invalid(format!(
            "user {user} has no password: set {PASSWORD_VARIABLE}, or use --token-file"
        )));
    }
    rpassword::prompt_password(format!("Password of {user}: "))
        .map_err(|source| Error::io("cannot read the password", source))
}

fn basic_authorization(user: &str, password: &str) -> String {
    format!(
        "Basic {}",
        BASE64_STANDARD.encode(format!("{user}:{password}"))
    )
}

/// Returns the address in a URI, and whether the connection is encrypted.
fn address(uri: &str) -> Result<(&str, bool)> {
    let (scheme, address) = uri.split_once("://").unwrap_or(("grpc", uri));
    let is_encrypted = match scheme {
        "grpc" | "grpc+tcp" | "http" => false,
        "grpc+tls" | "https" => true,
        _ => {
            return Err(Error::invalid(format!(
                "\"{uri}\" is not the URI of a gateway; write grpc://host:port or grpc+tls://host:port"
            )));
        }
    };
    Ok((address.trim_end_matches('/'), is_encrypted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_are_read_with_and_without_a_scheme() {
        for uri in ["grpc://h:1", "grpc+tcp://h:1", "h:1", "http://h:1/"] {
            assert_eq!(address(uri).unwrap(), ("h:1", false));
        }
        assert_eq!(address("grpc+tls://h:1").unwrap(), ("h:1", true));
        let error = address("postgres://h:1").unwrap_err();
        assert!(
            error.message().contains("write grpc://host:port"),
            "{error}"
        );
    }
}
