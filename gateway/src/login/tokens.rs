//! Tokens that are shown instead of a password, by services and by tools that can keep one. They live until they expire or are dropped; the
//! catalog has their hashes only.

use volary_flight_proto::seal::Key;

use volary_catalog::hex;

const PREFIX: &str = "volary-token-";
const HASH_CONTEXT: &str = "volary 2026-11 api tokens v1";

/// A new token: 256 random bits.
pub fn new() -> String {
    format!("{PREFIX}{}", hex::encode(Key::random().as_bytes()))
}

/// What the catalog knows a token by; none if the text is no token.
pub fn hash(token: &str) -> Option<String> {
    let random = token.strip_prefix(PREFIX)?;
    Some(hex::encode(&blake3::derive_key(
        HASH_CONTEXT,
        random.as_bytes(),
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_known_by_its_hash_alone() {
        let token = new();
        assert_ne!(token, new());
        assert_eq!(hash(&token), hash(&token));
        assert_ne!(hash(&token), hash(&new()));
        assert!(!hash(&token).unwrap().contains(&token[PREFIX.len()..]));
        assert_eq!(hash("a password"), None);
    }
}
