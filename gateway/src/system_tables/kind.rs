//! Lists the tables and their columns.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};

/// A table of the schema `system`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Nodes,
    Tables,
    Shards,
    Segments,
    Loads,
    Queries,
    QueryLog,
    SavedQueries,
    Users,
    Grants,
    Tokens,
    Limits,
}

/// All tables, in the order in which they are listed.
pub(super) const KINDS: [Kind; 12] = [
    Kind::Nodes,
    Kind::Tables,
    Kind::Shards,
    Kind::Segments,
    Kind::Loads,
    Kind::Queries,
    Kind::QueryLog,
    Kind::SavedQueries,
    Kind::Users,
    Kind::Grants,
    Kind::Tokens,
    Kind::Limits,
];

impl Kind {
    /// Returns the name of the table within the schema `system`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Nodes => "nodes",
            Self::Tables => "tables",
            Self::Shards => "shards",
            Self::Segments => "segments",
            Self::Loads => "loads",
            Self::Queries => "queries",
            Self::QueryLog => "query_log",
            Self::SavedQueries => "saved_queries",
            Self::Users => "users",
            Self::Grants => "grants",
            Self::Tokens => "tokens",
            Self::Limits => "limits",
        }
    }

    /// Returns the columns of the table.
    pub(super) fn schema(self) -> SchemaRef {
        use DataType::{Boolean, Int64, Timestamp, Utf8};
        use TimeUnit::Microsecond;
        let time = || Timestamp(Microsecond, Some("UTC".into()));
        let columns: &[(&str, DataType, bool)] = match self {
            Self::Nodes => &[
                ("id", Utf8, false),
                ("role", Utf8, false),
                ("address", Utf8, false),
                ("state", Utf8, false),
                ("version", Utf8, false),
                ("running_fragments", Int64, true),
                ("memory_reserved_bytes", Int64, true),
                ("segments", Int64, true),
                ("rows", Int64, true),
                ("bytes", Int64, true),
                ("last_heartbeat_ms", Int64, true),
            ],
            Self::Tables => &[
                ("name", Utf8, false),
                ("kind", Utf8, false),
                ("shard_key", Utf8, true),
                ("shards", Int64, false),
                ("sort_key", Utf8, true),
                ("workers", Int64, false),
                ("rows", Int64, false),
                ("bytes", Int64, false),
                ("owner", Utf8, true),
            ],
            Self::Shards => &[
                ("table_name", Utf8, false),
                ("shard", Int64, false),
                ("worker_id", Utf8, false),
                ("rows", Int64, false),
                ("bytes", Int64, false),
            ],
            Self::Segments => &[
                ("table_name", Utf8, false),
                ("shard", Int64, false),
                ("worker_id", Utf8, false),
                ("write_id", Int64, false),
                ("file", Utf8, false),
                ("rows", Int64, false),
                ("bytes", Int64, false),
                ("visible", Boolean, false),
                ("damage", Utf8, true),
            ],
            Self::Loads => &[
                ("query_id", Utf8, false),
                ("table_name", Utf8, false),
                ("rows_written", Int64, false),
                ("running_ms", Int64, false),
            ],
            Self::Queries => &[
                ("query_id", Utf8, false),
                ("session_id", Utf8, false),
                ("user_name", Utf8, false),
                ("client_address", Utf8, true),
                ("query_tag", Utf8, true),
                ("state", Utf8, false),
                ("statement", Utf8, false),
                ("started", time(), false),
                ("planning_us", Int64, false),
                ("queued_us", Int64, false),
                ("running_us", Int64, false),
                ("sent_bytes", Int64, false),
                ("memory_bytes", Int64, false),
                ("workers", Int64, false),
                ("workers_done", Int64, false),
                ("shards", Int64, false),
                ("scanned_rows", Int64, false),
                ("scanned_bytes", Int64, false),
            ],
            Self::QueryLog => &[
                ("query_id", Utf8, false),
                ("session_id", Utf8, false),
                ("user_name", Utf8, false),
                ("client_address", Utf8, true),
                ("query_tag", Utf8, true),
                ("outcome", Utf8, false),
                ("statement", Utf8, false),
                ("started", time(), false),
                ("planning_us", Int64, false),
                ("queued_us", Int64, false),
                ("running_us", Int64, false),
                ("rows", Int64, false),
                ("sent_bytes", Int64, false),
                ("workers", Int64, false),
                ("shards", Int64, false),
                ("segments", Int64, false),
                ("scanned_rows", Int64, false),
                ("scanned_bytes", Int64, false),
                ("error_code", Utf8, true),
                ("error", Utf8, true),
            ],
            Self::SavedQueries => &[
                ("name", Utf8, false),
                ("parameters", Utf8, true),
                ("definition", Utf8, false),
                ("owner", Utf8, true),
                ("created_at", time(), false),
            ],
            Self::Users => &[
                ("name", Utf8, false),
                ("kind", Utf8, false),
                ("admin", Boolean, false),
                ("has_password", Boolean, false),
                ("roles", Utf8, true),
                ("max_queries", Int64, true),
                ("query_memory_bytes", Int64, true),
                ("created", time(), false),
            ],
            Self::Grants => &[
                ("grantee", Utf8, false),
                ("privilege", Utf8, false),
                ("object_kind", Utf8, false),
                ("object", Utf8, true),
            ],
            Self::Tokens => &[
                ("name", Utf8, false),
                ("user_name", Utf8, false),
                ("created", time(), false),
                ("expires", time(), true),
            ],
            Self::Limits => &[
                ("scope", Utf8, false),
                ("name", Utf8, false),
                ("setting", Utf8, true),
                ("allowed", Int64, false),
                ("unit", Utf8, false),
                ("in_use", Int64, true),
                ("beyond", Utf8, false),
                ("user_name", Utf8, true),
            ],
        };
        let fields: Vec<_> = columns
            .iter()
            .map(|(name, data_type, nullable)| Field::new(*name, data_type.clone(), *nullable))
            .collect();
        Arc::new(Schema::new(fields))
    }
}
