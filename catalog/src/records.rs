//! What the catalog keeps in its store: one JSON record per key.
//!
//! Records change additively: a release reads what older ones wrote, and refuses a record of a newer format.

use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use volary_flight_proto::ids::{ClusterId, TableId, WorkerId, WriteId};
use volary_flight_proto::{Error, ErrorCode, Result};

/// The newest format of records. It grows only with a change that an older release must not overlook.
pub(super) const FORMAT: u32 = 5;

/// What the first release reads.
const FIRST_FORMAT: u32 = 1;

/// Tables without a shard key, and those that will replace another one.
const SECOND_FORMAT: u32 = 2;

/// Users and roles: an older release would let everybody in.
pub(super) const THIRD_FORMAT: u32 = 3;

/// Saved queries: to an older release they would be views.
const FOURTH_FORMAT: u32 = 4;

/// Incarnations: an older release would give out numbers of writes that no worker expects.
const FIFTH_FORMAT: u32 = 5;

/// A record and the key it is found under.
pub(super) trait Record: Serialize + DeserializeOwned {
    /// What keys of the kind start with.
    const PREFIX: &'static str;

    /// The rest of the key.
    fn name(&self) -> String;

    /// The oldest format that has all that the record says.
    fn format(&self) -> u32 {
        FIRST_FORMAT
    }

    /// The whole key.
    fn key(&self) -> String {
        format!("{}{}", Self::PREFIX, self.name())
    }
}

/// The cluster itself, and the numbers that were given out. It is written with every change, so that of two changes that
/// were decided at the same time only one is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ClusterRecord {
    /// The cluster.
    pub(super) cluster_id: ClusterId,
    /// The key that messages are sealed with where no secret is configured: 32 bytes in hexadecimal.
    pub(super) key: String,
    /// The next worker's number.
    pub(super) next_worker: u64,
    /// The next table's number.
    pub(super) next_table: u64,
    /// The next write's number.
    pub(super) next_write: u64,
    /// The next placement's epoch.
    pub(super) next_epoch: u64,
    /// The key that sessions' tokens are sealed with, which gateways alone know: 32 bytes in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) token_key: Option<String>,
    /// Whether there has been a user.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) secured: bool,
    /// The next number of a user's password.
    #[serde(default)]
    pub(super) next_generation: u64,
    /// The incarnation that made the last change; none before there were any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) incarnation: Option<u32>,
}

/// The incarnations of the catalog: each start of a gateway is one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LineageRecord {
    /// The oldest first. Those that gave out no write are left out, but for the last one.
    pub(super) incarnations: Vec<IncarnationRecord>,
    /// Whether the next one may go on although workers have rows of writes that the catalog does not know.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) recovers: bool,
}

/// An incarnation of the catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct IncarnationRecord {
    /// A random number, never 0.
    pub(super) id: u32,
    /// The first write that it gave out, or would have.
    pub(super) first_write: u64,
    /// Whether it went on although workers had rows of writes that the catalog did not know.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) recovered: bool,
}

/// A worker that has joined once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerRecord {
    /// The worker.
    pub id: WorkerId,
    /// `host:port` of its last join.
    pub address: String,
    /// The release of its last join.
    pub version: String,
    /// Its first join, in milliseconds since 1970.
    pub joined_at_ms: i64,
}

/// A table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TableRecord {
    /// The table.
    pub(super) id: TableId,
    /// Its name.
    pub(super) name: String,
    /// Its schema: an Arrow IPC message in hexadecimal.
    pub(super) schema: String,
    /// Names and types of its columns, for people.
    pub(super) columns: Vec<String>,
    /// How its rows are spread.
    pub(super) kind: TableKind,
    /// Columns that segments are sorted by.
    pub(super) sort_key: Vec<usize>,
    /// Whether it exists already.
    pub(super) state: TableState,
    /// While it is being created: whether it takes the place of the table that then has its name.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) replaces: bool,
    /// Who owns it; none if there was no user when it was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) owner: Option<String>,
    /// When it was created, in milliseconds since 1970.
    pub(super) created_at_ms: i64,
}

/// How a table's rows are spread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TableKind {
    /// Over shards.
    Sharded {
        /// Position in the schema of the shard key, by whose hash they are spread; none if a row may be in any shard.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<usize>,
        /// Number of shards.
        shards: u32,
    },
    /// All rows on every worker that has a copy.
    Reference {
        /// The workers that have one, ascending.
        copies: Vec<WorkerId>,
    },
}

/// Whether a table exists already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum TableState {
    /// It does.
    Live,
    /// Its name is taken; it comes to life when this write is committed.
    Creating(WriteId),
}

/// What a table holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StatisticsRecord {
    /// The table.
    pub(super) table: TableId,
    /// Shards that hold rows.
    pub(super) shards: Vec<ShardRecord>,
    /// Columns, in the table's order.
    pub(super) columns: Vec<ColumnRecord>,
}

/// What a shard holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ShardRecord {
    /// The shard.
    pub(super) shard: u32,
    /// Rows.
    pub(super) rows: u64,
    /// Bytes of its segments.
    pub(super) bytes: u64,
    /// Segments.
    pub(super) segments: u64,
    /// The tally of its rows; none if a release that counted none wrote some of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) tally: Option<u32>,
}

/// What a column holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ColumnRecord {
    /// NULLs, if known.
    pub(super) nulls: Option<u64>,
    /// Smallest value, if known: DataFusion's protobuf in hexadecimal.
    pub(super) min: Option<String>,
    /// Largest value, if known.
    pub(super) max: Option<String>,
}

/// A view.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ViewRecord {
    /// Its name.
    pub(super) name: String,
    /// Its query.
    pub(super) sql: String,
    /// Its columns: an Arrow IPC message in hexadecimal.
    pub(super) schema: String,
    /// Who owns it, and with whose rights it reads; none if there was no user when it was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) owner: Option<String>,
    /// When it was created, in milliseconds since 1970.
    pub(super) created_at_ms: i64,
    /// The parameters of a saved query; none if it is a view.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) parameters: Option<Vec<QueryParameter>>,
}

/// A parameter of a saved query.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueryParameter {
    /// Its name: `$name` stands for it.
    pub name: String,
    /// Its type, as SQL writes it.
    pub data_type: String,
    /// What it is where a call does not say: an expression of SQL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
}

impl fmt::Display for QueryParameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.data_type)?;
        match &self.default {
            Some(default) => write!(f, " DEFAULT {default}"),
            None => Ok(()),
        }
    }
}

/// Parameters as a definition lists them: `(k BIGINT, name VARCHAR DEFAULT 'kea')`; `none` if there are none.
pub fn listed(parameters: &[QueryParameter]) -> String {
    if parameters.is_empty() {
        return "none".to_owned();
    }
    let parameters: Vec<_> = parameters.iter().map(ToString::to_string).collect();
    format!("({})", parameters.join(", "))
}

/// Which worker holds which shard, for all tables of one shard count: that is what makes them co-located.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacementRecord {
    /// The shard count.
    pub shards: u32,
    /// By shard, the worker that holds it.
    pub workers: Vec<WorkerId>,
    /// Grows with every change of a placement.
    pub epoch: u64,
}

/// A write that is not committed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct WriteRecord {
    /// The write.
    pub(super) id: WriteId,
    /// The table it goes to.
    pub(super) table: TableId,
    /// That table's name, for errors.
    pub(super) table_name: String,
    /// What became of it.
    pub(super) state: WriteState,
}

/// What became of a write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum WriteState {
    /// A statement is writing.
    Open,
    /// It failed.
    Aborted {
        /// Workers that may hold rows of it.
        pending: Vec<WorkerId>,
    },
}

macro_rules! record {
    ($record:ident, $prefix:literal, $self:ident => $name:expr) => {
        impl Record for $record {
            const PREFIX: &'static str = $prefix;

            fn name(&$self) -> String {
                $name
            }
        }
    };
}

record!(WorkerRecord, "worker/", self => self.id.0.to_string());
record!(LineageRecord, "lineage", self => String::new());
record!(StatisticsRecord, "statistics/", self => self.table.0.to_string());
record!(PlacementRecord, "placement/", self => self.shards.to_string());
record!(WriteRecord, "write/", self => self.id.0.to_string());

impl Record for ViewRecord {
    const PREFIX: &'static str = "view/";

    fn name(&self) -> String {
        self.name.clone()
    }

    fn format(&self) -> u32 {
        match self.parameters {
            Some(_) => FOURTH_FORMAT,
            None => FIRST_FORMAT,
        }
    }
}

impl Record for ClusterRecord {
    const PREFIX: &'static str = "cluster";

    fn name(&self) -> String {
        String::new()
    }

    fn format(&self) -> u32 {
        if self.incarnation.is_some() {
            FIFTH_FORMAT
        } else if self.secured {
            THIRD_FORMAT
        } else {
            FIRST_FORMAT
        }
    }
}

impl Record for TableRecord {
    const PREFIX: &'static str = "table/";

    fn name(&self) -> String {
        self.id.0.to_string()
    }

    fn format(&self) -> u32 {
        match self.kind {
            _ if self.replaces => SECOND_FORMAT,
            TableKind::Sharded { key: None, .. } => SECOND_FORMAT,
            TableKind::Sharded { .. } | TableKind::Reference { .. } => FIRST_FORMAT,
        }
    }
}

#[derive(Serialize)]
struct Stored<'a, R> {
    format: u32,
    #[serde(flatten)]
    record: &'a R,
}

#[derive(Deserialize)]
struct Format {
    format: u32,
}

/// The value that a record is stored as.
///
/// # Errors
/// `INTERNAL` if it has no JSON form.
pub(super) fn encode<R: Record>(record: &R) -> Result<Vec<u8>> {
    let stored = Stored {
        format: record.format(),
        record,
    };
    serde_json::to_vec(&stored).map_err(|source| {
        let what = format!("the catalog's record {} cannot be encoded", record.key());
        Error::with_source(ErrorCode::Internal, what, source)
    })
}

/// The record that is stored under `key`.
///
/// # Errors
/// `INVALID_ARGUMENT` if a newer release wrote it, `DATA_LOSS` if it cannot be read.
pub(super) fn decode<R: Record>(key: &str, value: &[u8]) -> Result<R> {
    let unreadable = |source| {
        let what =
            format!("the catalog's record {key} is damaged; restore the catalog from a backup");
        Error::with_source(ErrorCode::DataLoss, what, source)
    };
    // The format is read first and alone: the rest of a newer record need not be understood.
    let Format { format } = serde_json::from_slice(value).map_err(unreadable)?;
    if format > FORMAT {
        return Err(Error::invalid(format!(
            "the catalog's record {key} has format {format}, this release knows formats up to {FORMAT}; start the release that wrote it, or a newer one"
        )));
    }
    serde_json::from_slice(value).map_err(unreadable)
}

/// The error for a part of a record that is no value of its type.
pub(super) fn damaged(key: &str, part: &str) -> Error {
    Error::new(
        ErrorCode::DataLoss,
        format!(
            "the catalog's record {key} is damaged: its {part} cannot be read; restore the catalog from a backup"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_the_same_text_for_ever() {
        let record = WriteRecord {
            id: WriteId(7),
            table: TableId(3),
            table_name: "flights".to_owned(),
            state: WriteState::Aborted {
                pending: vec![WorkerId(1), WorkerId(2)],
            },
        };
        let text = r#"{"format":1,"id":7,"table":3,"table_name":"flights","state":{"aborted":{"pending":[1,2]}}}"#;
        assert_eq!(encode(&record).unwrap(), text.as_bytes());
        assert_eq!(record.key(), "write/7");
        assert_eq!(
            decode::<WriteRecord>("write/7", text.as_bytes()).unwrap(),
            record
        );
    }

    #[test]
    fn only_tables_without_a_shard_key_are_refused_by_the_first_release() {
        let table = |key| TableRecord {
            id: TableId(1),
            name: "t".to_owned(),
            schema: String::new(),
            columns: Vec::new(),
            kind: TableKind::Sharded { key, shards: 4 },
            sort_key: Vec::new(),
            state: TableState::Live,
            replaces: false,
            owner: None,
            created_at_ms: 0,
        };
        for (key, part) in [
            (Some(0), r#"{"format":1,"#),
            (Some(0), r#""kind":{"sharded":{"key":0,"shards":4}}"#),
            (None, r#"{"format":2,"#),
            (None, r#""kind":{"sharded":{"shards":4}}"#),
        ] {
            let text = String::from_utf8(encode(&table(key)).unwrap()).unwrap();
            assert!(text.contains(part), "{text}");
            let read = decode::<TableRecord>("table/1", text.as_bytes()).unwrap();
            assert_eq!(read, table(key));
        }
    }

    #[test]
    fn a_newer_format_and_damage_are_told_apart() {
        let newer = format!(r#"{{"format":{},"something":"else"}}"#, FORMAT + 1);
        let error = decode::<WriteRecord>("write/7", newer.as_bytes()).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidArgument);
        let error = decode::<WriteRecord>("write/7", b"{\"format\":1}").unwrap_err();
        assert_eq!(error.code(), ErrorCode::DataLoss);
    }
}
