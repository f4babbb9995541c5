//! Base64 of the `authorization` header.
//!
//! A decoder of its own because headers come in two shapes: Go's driver leaves the padding out (RawStdEncoding), all others
//! write it; and because nothing else in the gateway needs one.

/// The bytes of standard base64 (RFC 4648 §4), padded or not; `None` if it is none.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=').as_bytes();
    // One digit left over holds six bits: no byte.
    if text.len() - digits.len() > 2 || digits.len() % 4 == 1 {
        return None;
    }
    let mut out = Vec::with_capacity(digits.len() * 3 / 4);
    for group in digits.chunks(4) {
        let mut bits: u32 = 0;
        for digit in group {
            bits = bits << 6 | u32::from(value(*digit)?);
        }
        // A short group is filled up with zero bits, and those bytes are left out.
        bits <<= 6 * (4 - group.len());
        out.extend_from_slice(&bits.to_be_bytes()[1..group.len()]);
    }
    Some(out)
}

fn value(digit: u8) -> Option<u8> {
    match digit {
        b'A'..=b'Z' => Some(digit - b'A'),
        b'a'..=b'z' => Some(digit - b'a' + 26),
        b'0'..=b'9' => Some(digit - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vectors_of_rfc_4648_decode_with_and_without_padding() {
        for (text, bytes) in [
            ("", ""),
            ("Zg==", "f"),
            ("Zm8=", "fo"),
            ("Zm9v", "foo"),
            ("Zm9vYg==", "foob"),
            ("Zm9vYmE=", "fooba"),
            ("Zm9vYmFy", "foobar"),
        ] {
            assert_eq!(decode(text).unwrap(), bytes.as_bytes());
            assert_eq!(
                decode(text.trim_end_matches('=')).unwrap(),
                bytes.as_bytes()
            );
        }
        assert_eq!(decode("+/+/").unwrap(), [0xfb, 0xff, 0xbf]);
    }

    #[test]
    fn what_is_no_base64_is_refused() {
        for text in ["Z", "Zg===", "Z g=", "Zm9v!", "Zm9vY", "=Zg"] {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
