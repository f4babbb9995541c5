//! The secret that the nodes of a cluster share.

use std::net::SocketAddr;

use volary_flight_proto::{Error, Result};

use crate::data_dir::Role;

/// Checks the settings `secret` and `listen` of a node.
///
/// # Errors
/// `INVALID_ARGUMENT` for a secret that everybody could guess, and for none where other machines reach the node.
pub fn check(node: Role, secret: Option<&str>, listen: SocketAddr) -> Result<()> {
    if secret.is_some_and(|secret| secret.trim().is_empty()) {
        return Err(Error::invalid(format!(
            "{node}.secret is empty, which everybody could guess; set a secret, or leave the key out"
        )));
    }
    if secret.is_none() && !listen.ip().is_loopback() {
        let others = match node {
            Role::Gateway => "worker.secret on the workers",
            Role::Worker => "gateway.secret on the gateway",
        };
        return Err(Error::invalid(format!(
            "{node}.listen is {listen}, which other machines reach: set {node}.secret (and the same {others})"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_others_reach_has_a_secret_that_is_none_of_blanks() {
        let address = |text: &str| text.parse::<SocketAddr>().unwrap();
        let (here, everywhere) = (address("127.0.0.1:7100"), address("0.0.0.0:7100"));
        check(Role::Gateway, None, here).unwrap();
        check(Role::Gateway, Some("secret"), everywhere).unwrap();
        let empty = check(Role::Worker, Some(" "), here).unwrap_err();
        assert!(
            empty.message().starts_with("worker.secret is empty"),
            "{empty}"
        );
        let none = check(Role::Worker, None, everywhere).unwrap_err();
        let said = "worker.listen is 0.0.0.0:7100, which other machines reach: set worker.secret (and the same gateway.secret on the gateway)";
        assert_eq!(none.message(), said);
    }
}
