//! A token is valid until it expires or is dropped. The catalog has only the hash of a token.

use volary_flight_proto::seal::Key;

const PREFIX: &str = "volary-token-";
const HASH_CONTEXT: &str = "volary 2026-11 api tokens v1";

/// Creates a new token of 256 random bits.
pub fn new() -> String {
    format!("{PREFIX}{}", hex::encode(Key::random().as_bytes()))
}

/// Returns the hash by which the catalog knows a token, or `None` if the text is not a token.
pub fn hash(token: &str) -> Option<String> {
    let random = token.strip_prefix(PREFIX)?;
    Some(hex::encode(blake3::derive_key(
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
