//! The algorithm is Austin Appleby's public-domain `MurmurHash3_x86_32`
//! (<https://github.com/aappleby/smhasher>). It is implemented here because its results are stored
//! data: no release of a dependency may change them.

/// Returns the hash of `bytes`.
#[inline]
pub(super) fn hash_bytes(bytes: &[u8]) -> u32 {
    let (words, tail) = bytes.as_chunks::<4>();
    let mut state = 0_u32;
    for word in words {
        state ^= scramble(u32::from_le_bytes(*word));
        state = state
            .rotate_left(13)
            .wrapping_mul(5)
            .wrapping_add(0xe654_6b64);
    }
    // An empty tail is the word 0, which scrambles to 0 and so changes nothing.
    let last = tail
        .iter()
        .rev()
        .fold(0, |word, byte| word << 8 | u32::from(*byte));
    state ^= scramble(last);
    // The length counts modulo 2^32, as in the reference implementation: `as` truncates it on
    // purpose.
    finish(state ^ bytes.len() as u32)
}

/// Returns the hash of the 8 little-endian bytes of `value`.
#[inline]
pub(super) fn hash_long(value: i64) -> u32 {
    // The length is a constant once this function is inlined, so no loop is left.
    hash_bytes(&value.to_le_bytes())
}

#[inline]
fn scramble(word: u32) -> u32 {
    word.wrapping_mul(0xcc9e_2d51)
        .rotate_left(15)
        .wrapping_mul(0x1b87_3593)
}

#[inline]
fn finish(mut state: u32) -> u32 {
    state = (state ^ (state >> 16)).wrapping_mul(0x85eb_ca6b);
    state = (state ^ (state >> 13)).wrapping_mul(0xc2b2_ae35);
    state ^ (state >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors were published for seed 0 by several implementations. They cover every length of
    /// the tail.
    #[test]
    fn published_vectors_are_met() {
        for (text, expected) in [
            ("", 0),
            ("t", 0xca87_df4d),
            ("te", 0xedb8_ee1b),
            ("tes", 0x0bb9_0e5a),
            ("test", 0xba6b_d213),
            ("testy", 0x44af_8342),
            ("testy1", 0x8a1a_243a),
            ("testy12", 0x8454_61b9),
            ("testy123", 0x4762_8ac4),
            ("hello", 0x248b_fa47),
            ("Hello, world!", 0xc036_3e43),
            ("The quick brown fox jumps over the lazy dog", 0x2e4f_f723),
            ("The quick brown fox jumps over the lazy cog", 0xf082_00fc),
            ("special characters açb↓c", 0xbe83_b140),
        ] {
            assert_eq!(hash_bytes(text.as_bytes()), expected, "{text:?}");
        }
    }

    #[test]
    fn a_long_is_its_little_endian_bytes() {
        for value in [0, 1, 34, -1, i64::MIN, i64::MAX] {
            assert_eq!(hash_long(value), hash_bytes(&value.to_le_bytes()));
        }
        assert_eq!(hash_long(34), 2_017_239_379);
    }
}
