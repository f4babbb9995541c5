//! The names of the catalog and its schemas.

/// The one catalog.
pub const CATALOG: &str = "volary";
/// The schema of users' tables and views.
pub const PUBLIC: &str = "public";
/// The schema of tables about the cluster.
pub const SYSTEM: &str = "system";
/// DataFusion's own schema.
pub const INFORMATION_SCHEMA: &str = "information_schema";
