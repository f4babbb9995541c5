//! Encodes bytes as hexadecimal text.

/// Encodes bytes as two lower-case digits each.
pub fn encode(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes
        .iter()
        .flat_map(|byte| {
            [
                DIGITS[usize::from(byte >> 4)],
                DIGITS[usize::from(byte & 15)],
            ]
        })
        .map(char::from)
        .collect()
}

/// Decodes what [`encode`] returned. Returns `None` for any other text.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    pairs
        .iter()
        .map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?))
        .collect()
}

fn digit(text: u8) -> Option<u8> {
    match text {
        b'0'..=b'9' => Some(text - b'0'),
        b'a'..=b'f' => Some(text - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_encoded_is_decoded() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(encode(&[0, 10, 255]), "000aff");
        assert_eq!(decode(&encode(&bytes)), Some(bytes));
        for text in ["0", "0g", "0A", "ä", "00 "] {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
