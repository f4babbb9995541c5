//! Nodes seal what they send each other with a key that is derived from the secret that they share.
//! Somebody who listens on the network can try secrets offline. With the right secret, they could
//! run anything on the workers.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use volary_flight_proto::seal::Key;
use volary_flight_proto::{Error, Result};

use crate::data_dir::NodeRole;

/// The fewest bits that a secret must have. A secret with fewer bits can be guessed.
const MIN_BITS: usize = 128;
/// The fewest different characters that a secret must have. A random secret of [`MIN_BITS`] bits
/// has more.
const MIN_DIFFERENT_CHARACTERS: usize = 8;

/// Generates a secret of 256 bits from the operating system's randomness, in hexadecimal.
pub fn generate() -> String {
    hex::encode(Key::random().as_bytes())
}

/// Returns the most bits that the text can hold: 4 bits a character for hexadecimal text, and for
/// other text 6 bits a character, as in base64.
fn bits(secret: &str) -> usize {
    let is_hexadecimal = secret.chars().all(|letter| letter.is_ascii_hexdigit());
    let per_character = if is_hexadecimal { 4 } else { 6 };
    secret.chars().count() * per_character
}

/// Refuses users in a cluster without a secret. There, any process of the machine could join as a
/// worker, and read and change what users may not.
///
/// # Errors
/// `INVALID_ARGUMENT` if there is no secret.
pub fn check_for_users(has_secret: bool) -> Result<()> {
    if has_secret {
        return Ok(());
    }
    Err(Error::invalid(
        "a cluster with users needs a secret, because otherwise any process on this machine could join as a worker and read all tables: set gateway.secret and the same worker.secret (VOLARY_SECRET is both; `volary secret new` prints a good one), and start the nodes again",
    ))
}

/// Checks the settings `secret` and `listen` of a node.
///
/// # Errors
/// `INVALID_ARGUMENT` for a secret that can be guessed, and for a missing secret if other machines
/// can reach the node.
pub fn check(node: NodeRole, secret: Option<&str>, listen: SocketAddr) -> Result<()> {
    if let Some(secret) = secret
        && bits(secret.trim()) < MIN_BITS
    {
        return Err(Error::invalid(format!(
            "{node}.secret is so short that it could be guessed: it must have {MIN_BITS} bits, which are {} hexadecimal digits or {} other characters; `volary secret new` prints a good one",
            MIN_BITS / 4,
            MIN_BITS.div_ceil(6),
        )));
    }
    if let Some(secret) = secret
        && secret.chars().collect::<BTreeSet<_>>().len() < MIN_DIFFERENT_CHARACTERS
    {
        return Err(Error::invalid(format!(
            "{node}.secret has so few different characters that it could be guessed; `volary secret new` prints a good one"
        )));
    }
    if secret.is_none() && !listen.ip().is_loopback() {
        let others = match node {
            NodeRole::Gateway => "worker.secret on the workers",
            NodeRole::Worker => "gateway.secret on the gateway",
        };
        return Err(Error::invalid(format!(
            "{node}.listen is {listen}, which other machines reach: set {node}.secret (and the same {others}); `volary secret new` prints a good one"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_others_reach_has_a_secret_that_cannot_be_guessed() {
        let address = |text: &str| text.parse::<SocketAddr>().unwrap();
        let (here, everywhere) = (address("127.0.0.1:7100"), address("0.0.0.0:7100"));
        check(NodeRole::Gateway, None, here).unwrap();
        check(NodeRole::Gateway, Some(&generate()), everywhere).unwrap();
        let of_hexadecimal = "0123456789abcdef0123456789abcdef";
        let of_base64 = "gLNwg6hcbLVKr7c3k5J2iA";
        for good in [of_hexadecimal, of_base64] {
            check(NodeRole::Gateway, Some(good), everywhere).unwrap();
            for address in [here, everywhere] {
                let short = check(NodeRole::Worker, Some(&good[1..]), address).unwrap_err();
                assert!(short.message().starts_with("worker.secret is so short"));
                assert!(short.message().contains("volary secret new"), "{short}");
            }
        }
        let blank = " ".repeat(50);
        check(NodeRole::Worker, Some(&blank), here).unwrap_err();
        let uniform = check(NodeRole::Worker, Some(&"zy".repeat(30)), here).unwrap_err();
        assert!(uniform.message().contains("few different"), "{uniform}");
        let none = check(NodeRole::Worker, None, everywhere).unwrap_err();
        let said = "worker.listen is 0.0.0.0:7100, which other machines reach: set worker.secret (and the same gateway.secret on the gateway); `volary secret new` prints a good one";
        assert_eq!(none.message(), said);
    }
}
