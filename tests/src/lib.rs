//! .

/// What DataFusion alone answers, to compare with.
pub mod reference;
