//! The rule for the shard of a row is the bucket transform of the Apache Iceberg table
//! specification: `hash & (2^31 - 1)`, modulo the number of shards of the table. The hash is
//! Murmur3-32 (x86, seed 0) of the canonical bytes of the value. The canonical bytes are those of
//! the specification's
//! [Appendix B, "32-bit Hash Requirements"](https://iceberg.apache.org/spec/#appendix-b-32-bit-hash-requirements):
//!
//! | Arrow type of the key | hashed as |
//! |---|---|
//! | `Int8` … `Int64`, `UInt8` … `UInt32` | the value as a 64-bit integer, little-endian |
//! | `Date32` | days since 1970-01-01, as a 64-bit integer |
//! | `Time64(µs)` | microseconds since midnight, as a 64-bit integer |
//! | `Timestamp` of any unit, with a time zone or without | microseconds since 1970-01-01T00:00:00, rounded down, as a 64-bit integer |
//! | `Decimal128` | the unscaled value in as few two's complement bytes as hold it, big-endian |
//! | `Utf8`, `LargeUtf8`, `Utf8View` | its UTF-8 bytes |
//! | `Binary`, `LargeBinary`, `BinaryView`, `FixedSizeBinary` | its bytes; a UUID is `FixedSizeBinary(16)` |
//!
//! A NULL has no hash. Rows with a NULL key belong to shard 0. Every other type is refused as a
//! key.
//!
//! The shard of a row is stored data. So neither the hash nor the canonical bytes of a type may
//! ever change. Any client can compute the shard with an Iceberg library.

/// Maps values to shard numbers.
mod bucket;
/// Decides which types may be shard keys, and which types give equal values equal hashes.
mod key_type;
/// Implements Murmur3-32, x86 variant, seed 0.
mod murmur3;
#[cfg(test)]
mod tests;

pub use bucket::{NULL_SHARD, shard_of_scalar, shards_of};
pub use key_type::{check_key_type, hash_agrees};
