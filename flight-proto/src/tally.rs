use crate::ids::WriteId;

/// A checksum over the rows of a shard: the sum, over all rows, of a hash of the write that added
/// the row.
///
/// The catalog adds a write to the tallies of its shards when it commits the write. A worker sums
/// up the segments of a shard that a snapshot sees. The two tallies are equal if the worker holds
/// exactly the rows that were acknowledged. A tally depends neither on the order of writes nor on
/// the number of segments that a write made. Shards with different rows have equal tallies with a
/// probability of 2⁻³².
///
/// The hash is the finalizer of MurmurHash3 (`fmix64`). Only its low half is used. Tallies are
/// stored, so the hash never changes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally(pub u32);

impl Tally {
    /// Adds `rows` rows of a write.
    pub fn add(&mut self, write: WriteId, rows: u64) {
        let product = fmix64(write.0).wrapping_mul(rows);
        self.0 = self.0.wrapping_add(low_half(product));
    }

    /// Adds the rows of another tally.
    pub fn add_all(&mut self, other: Self) {
        self.0 = self.0.wrapping_add(other.0);
    }
}

impl FromIterator<(WriteId, u64)> for Tally {
    fn from_iter<I: IntoIterator<Item = (WriteId, u64)>>(writes: I) -> Self {
        let mut tally = Self::default();
        for (write, rows) in writes {
            tally.add(write, rows);
        }
        tally
    }
}

/// Hashes the number of a write. Source: MurmurHash3.cpp of Austin Appleby's smhasher, public
/// domain.
fn fmix64(mut key: u64) -> u64 {
    key ^= key >> 33;
    key = key.wrapping_mul(0xff51_afd7_ed55_8ccd);
    key ^= key >> 33;
    key = key.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    key ^ key >> 33
}

/// Returns the low 32 bits of a number. A sum modulo 2⁶⁴ and a sum modulo 2³² agree in these bits.
fn low_half(number: u64) -> u32 {
    u32::try_from(number & u64::from(u32::MAX)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(writes: &[(u64, u64)]) -> Tally {
        let writes = writes.iter().copied();
        writes.map(|(write, rows)| (WriteId(write), rows)).collect()
    }

    #[test]
    fn tallies_never_change() {
        // The expected value is what the reference implementation computes for fmix64(1).
        assert_eq!(fmix64(1), 0xb456_bcfc_34c2_cb2c);
        assert_eq!(tally(&[(1, 1)]), Tally(0x34c2_cb2c));
        assert_eq!(tally(&[]), Tally(0));
    }

    #[test]
    fn a_tally_depends_on_rows_and_writes_and_not_on_their_order_or_segments() {
        let all = tally(&[(3, 10), (4, 1), (9, 7)]);
        assert_eq!(tally(&[(9, 7), (3, 4), (4, 1), (3, 6)]), all);
        let mut parts = tally(&[(3, 10)]);
        parts.add_all(tally(&[(4, 1), (9, 7)]));
        assert_eq!(parts, all);
        for other in [
            tally(&[(3, 10), (4, 1)]),
            tally(&[(3, 10), (5, 1), (9, 7)]),
            tally(&[(3, 9), (4, 2), (9, 7)]),
            tally(&[(3, 10), (4, 1), (9, 8)]),
        ] {
            assert_ne!(other, all);
        }
    }
}
