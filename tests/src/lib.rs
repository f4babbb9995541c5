//! What the tests of the public protocol share.

/// Clusters within this process.
pub mod cluster;
/// What DataFusion alone answers, to compare with.
pub mod reference;
