//! Records only ever gain fields. A release reads what older releases wrote, and refuses a record
//! of a newer format.

use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use volary_flight_proto::ids::{ClusterId, TableId, WorkerId, WriteId};
use volary_flight_proto::write_set::WriteSet;
use volary_flight_proto::{Error, ErrorCode, Result};

use super::declarations::Declarations;
use super::relation_name::RelationName;

/// The newest format of records. It grows only with a change that an older release must not ignore.
pub(super) const NEWEST_FORMAT: u32 = 10;

/// The format that the first release reads.
const FIRST_FORMAT: u32 = 1;

/// The format of tables without a shard key, and of tables that will replace another one.
const SECOND_FORMAT: u32 = 2;

/// The format of users and roles. An older release would let everybody in.
pub(super) const THIRD_FORMAT: u32 = 3;

/// The format of saved queries. An older release would take them for views.
const FOURTH_FORMAT: u32 = 4;

/// The format of incarnations. An older release would give out numbers of writes that no worker
/// expects.
const FIFTH_FORMAT: u32 = 5;

/// The format of tables with defaults or checks. An older release would write other rows.
const SIXTH_FORMAT: u32 = 6;

/// The format of schemas, and of what is in another schema than `public`. An older release would
/// take a table `s.t` for a table `t`.
pub(super) const SEVENTH_FORMAT: u32 = 7;

/// The format of a catalog with deltas of statistics. An older release would ignore them.
const EIGHTH_FORMAT: u32 = 8;

/// The format of a catalog that reserves numbers of writes in advance. An older release would take
/// writes for committed that are not.
const NINTH_FORMAT: u32 = 9;

/// The format of a catalog with producers, and of tables whose rows expire. An older release would
/// keep the producers of tables that it drops, would apply batches a second time, and would return
/// rows that have expired.
pub(super) const TENTH_FORMAT: u32 = 10;

/// A record, and the key that it is stored under.
pub(super) trait Record: Serialize + DeserializeOwned {
    /// The prefix of all keys of this kind of record.
    const PREFIX: &'static str;

    /// Returns the part of the key after the prefix.
    fn name(&self) -> String;

    /// Returns the oldest format that can express this record.
    fn format(&self) -> u32 {
        FIRST_FORMAT
    }

    /// Returns the whole key.
    fn key(&self) -> String {
        format!("{}{}", Self::PREFIX, self.name())
    }
}

/// The cluster itself, and the next ids to give out. It is written with every change. So if two
/// changes are decided at the same time, only one of them is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ClusterRecord {
    /// The id of the cluster.
    pub(super) cluster_id: ClusterId,
    /// The key that messages are sealed with if no secret is configured: 32 bytes in hexadecimal.
    pub(super) key: String,
    /// The id of the next worker.
    pub(super) next_worker: u64,
    /// The id of the next table.
    pub(super) next_table: u64,
    /// The first write that is not reserved yet. A gateway reserves many numbers at a time, and
    /// gives them out without asking the store.
    pub(super) next_write: u64,
    /// The epoch of the next placement.
    pub(super) next_epoch: u64,
    /// The key that session tokens are sealed with. Only gateways know it: 32 bytes in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) token_key: Option<String>,
    /// Says whether the cluster has ever had a user.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) secured: bool,
    /// The generation of the next password.
    #[serde(default)]
    pub(super) next_generation: u64,
    /// The incarnation that made the last change. `None` in a catalog from before incarnations
    /// existed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) incarnation: Option<u32>,
    /// Says whether there are schemas that users have created. An older release ignores the records
    /// of schemas, so it must refuse this record.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) has_schemas: bool,
    /// Says whether a write has added a [`DeltaRecord`]. An older release ignores these records, so
    /// it must refuse this record.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) has_deltas: bool,
    /// Says whether a write has added the record of a producer. An older release ignores these
    /// records, so it must refuse this record.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) has_producers: bool,
    /// The highest write that was committed or aborted. `None` in a catalog of an older release, in
    /// which all writes without a record were committed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) high: Option<WriteId>,
    /// The writes up to `high` that are neither committed nor aborted.
    #[serde(default, skip_serializing_if = "WriteSet::is_empty")]
    pub(super) undecided: WriteSet,
    /// Number of writes that were committed since the catalog reserves numbers.
    #[serde(default)]
    pub(super) commits: u64,
    /// The number of the next abort.
    #[serde(default)]
    pub(super) next_abort: u64,
}

/// The incarnations of the catalog. Each start of a gateway is one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LineageRecord {
    /// The incarnations, oldest first. Incarnations that gave out no write are left out, except the
    /// last one and those that recovered the catalog.
    pub(super) incarnations: Vec<IncarnationRecord>,
    /// Says whether the next incarnation recovers the catalog: workers set aside the rows of writes
    /// that the catalog does not know.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) recovers: bool,
}

/// An incarnation of the catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct IncarnationRecord {
    /// The id of the incarnation: a random number, never 0.
    pub(super) id: u32,
    /// The first write that the incarnation gave out. If it gave out none, the first that it would
    /// have given out.
    pub(super) first_write: u64,
    /// Says whether the incarnation recovered the catalog: an operator agreed to lose the rows of
    /// writes that the catalog did not know.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) recovered: bool,
    /// Number of writes that had been committed when the incarnation began. `None` if an earlier
    /// release began it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) base_commits: Option<u64>,
}

/// A worker that has joined at least once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerRecord {
    /// The id of the worker.
    pub id: WorkerId,
    /// The `host:port` that the worker gave when it last joined.
    pub address: String,
    /// The release of the worker when it last joined.
    pub version: String,
    /// Time of the first join, in milliseconds since 1970.
    pub joined_at_ms: i64,
    /// The zone of the worker when it last joined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
}

/// A schema that a user has created: a set of names of tables, views and saved queries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchemaRecord {
    /// The name of the schema.
    pub name: String,
    /// The owner of the schema. `None` if there was no user when it was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Time of creation, in milliseconds since 1970.
    pub created_at_ms: i64,
    /// The comment on the schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
}

/// A table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TableRecord {
    /// The id of the table.
    pub(super) id: TableId,
    /// The name of the table.
    pub(super) name: RelationName,
    /// The schema of the table: an Arrow IPC message in hexadecimal.
    pub(super) schema: String,
    /// Names and types of the columns, for people who read the record.
    pub(super) columns: Vec<String>,
    /// The distribution of the table's rows.
    pub(super) kind: TableKind,
    /// Positions of the columns that segments are sorted by.
    pub(super) sort_key: Vec<usize>,
    /// Says whether the table exists already or is still being created.
    pub(super) state: TableState,
    /// Says whether a table that is still being created will replace the table that has its name by
    /// then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) replaces: bool,
    /// The owner of the table. `None` if there was no user when it was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) owner: Option<String>,
    /// Time of creation, in milliseconds since 1970.
    pub(super) created_at_ms: i64,
    /// Defaults, constraints and comments.
    #[serde(default, skip_serializing_if = "Declarations::is_empty")]
    pub(super) declarations: Declarations,
}

/// The distribution of a table's rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TableKind {
    /// The rows are distributed over shards.
    Sharded {
        /// Position of the shard key in the schema. The hash of the shard key decides the shard of
        /// a row. `None` means that a row may be in any shard.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<usize>,
        /// Number of shards.
        shards: u32,
    },
    /// Every worker that has a copy holds all rows.
    Reference {
        /// The workers that have a copy, ascending.
        copies: Vec<WorkerId>,
    },
}

/// Says whether a table exists already or is still being created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum TableState {
    /// The table exists.
    Live,
    /// The name of the table is taken. The table becomes visible when this write is committed.
    Creating(WriteId),
}

/// The statistics of a table, without those of the writes that have a [`DeltaRecord`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StatisticsRecord {
    /// The id of the table.
    pub(super) table: TableId,
    /// The shards that hold rows.
    pub(super) shards: Vec<ShardRecord>,
    /// The columns, in the order of the table.
    pub(super) columns: Vec<ColumnRecord>,
}

/// What a write has added to the statistics of a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DeltaRecord {
    /// The id of the table.
    pub(super) table: TableId,
    /// Number of the delta. It grows with each write to the table.
    pub(super) number: u64,
    /// The number of the write.
    pub(super) write: WriteId,
    /// The shards that have new rows.
    pub(super) shards: Vec<ShardDeltaRecord>,
    /// The columns of the new rows, in the order of the table.
    pub(super) columns: Vec<ColumnRecord>,
}

/// What a write has added to a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ShardDeltaRecord {
    /// The number of the shard.
    pub(super) shard: u32,
    /// Number of rows.
    pub(super) rows: u64,
    /// Size of the segments in bytes.
    pub(super) bytes: u64,
    /// Number of segments.
    pub(super) segments: u64,
}

/// The statistics of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ShardRecord {
    /// The number of the shard.
    pub(super) shard: u32,
    /// Number of rows.
    pub(super) rows: u64,
    /// Size of the segments in bytes.
    pub(super) bytes: u64,
    /// Number of segments.
    pub(super) segments: u64,
    /// The tally of the rows. `None` if some of them were written by a release that kept no
    /// tallies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) tally: Option<u32>,
}

/// The statistics of a column.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ColumnRecord {
    /// Number of NULLs, if known.
    pub(super) nulls: Option<u64>,
    /// The smallest value, if known: DataFusion's protobuf message in hexadecimal.
    pub(super) min: Option<String>,
    /// The largest value, if known, encoded in the same way as `min`.
    pub(super) max: Option<String>,
}

/// A view or a saved query.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ViewRecord {
    /// The name of the view.
    pub(super) name: RelationName,
    /// The SQL text of its query.
    pub(super) sql: String,
    /// The columns of the view: an Arrow IPC message in hexadecimal.
    pub(super) schema: String,
    /// The owner of the view. The view reads with the owner's rights. `None` if there was no user
    /// when it was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) owner: Option<String>,
    /// Time of creation, in milliseconds since 1970.
    pub(super) created_at_ms: i64,
    /// The parameters of a saved query. `None` for a view.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) parameters: Option<Vec<QueryParameter>>,
    /// The schema of the names in the query that are written without one. `None` stands for
    /// `public`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) search_schema: Option<String>,
    /// The comment on the view.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) comment: Option<String>,
}

/// A parameter of a saved query.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueryParameter {
    /// The name of the parameter. The query refers to it as `$name`.
    pub name: String,
    /// The type of the parameter, as SQL writes it.
    pub data_type: String,
    /// The value of the parameter if a call does not give one: an SQL expression.
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

/// Formats parameters like their definition: `(k BIGINT, name VARCHAR DEFAULT 'kea')`, or `none` if
/// the list is empty.
pub fn format_parameters(parameters: &[QueryParameter]) -> String {
    if parameters.is_empty() {
        return "none".to_owned();
    }
    let parameters: Vec<_> = parameters.iter().map(ToString::to_string).collect();
    format!("({})", parameters.join(", "))
}

/// The worker of each shard, for all tables of one shard count. These tables are co-located,
/// because they share the placement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PlacementRecord {
    /// Number of shards.
    pub(crate) shards: u32,
    /// The worker that holds each shard, by shard number.
    pub(crate) workers: Vec<WorkerId>,
    /// A number that grows with every change of a placement.
    pub(crate) epoch: u64,
}

/// Writes that failed, and whose rows some workers may still hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AbortRecord {
    /// The number of the abort.
    pub(super) number: u64,
    /// The writes.
    pub(super) writes: WriteSet,
    /// The table that the writes added rows to. `None` if there may be several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) table: Option<TableId>,
    /// The workers that may have got rows of the writes.
    pub(super) workers: Vec<WorkerId>,
}

/// A write that is not committed, in a catalog of an older release.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct WriteRecord {
    /// The number of the write.
    pub(super) id: WriteId,
    /// The table that the write adds rows to.
    pub(super) table: TableId,
    /// The name of that table, for error messages.
    pub(super) table_name: String,
    /// The state of the write.
    pub(super) state: WriteState,
}

/// The state of a write that is not committed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum WriteState {
    /// A statement is writing.
    Open,
    /// The write failed.
    Aborted {
        /// The workers that may still hold rows of the write.
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
        Self::key_part(&self.name)
    }

    fn format(&self) -> u32 {
        match self.parameters {
            _ if !self.name.is_in_public() || self.search_schema.is_some() => SEVENTH_FORMAT,
            Some(_) => FOURTH_FORMAT,
            None => FIRST_FORMAT,
        }
    }
}

impl ViewRecord {
    /// Returns the part of the key after the prefix, for a view of this name. No name contains a
    /// control character, so the keys of different views are different.
    pub(super) fn key_part(name: &RelationName) -> String {
        if let Some(session) = name.session() {
            format!("{}\u{1f}{session}\u{1f}{}", name.schema(), name.name())
        } else if name.is_in_public() {
            name.name().to_owned()
        } else {
            format!("{}\u{1f}{}", name.schema(), name.name())
        }
    }
}

impl Record for SchemaRecord {
    const PREFIX: &'static str = "schema/";

    fn name(&self) -> String {
        self.name.clone()
    }

    fn format(&self) -> u32 {
        SEVENTH_FORMAT
    }
}

impl Record for AbortRecord {
    const PREFIX: &'static str = "abort/";

    fn name(&self) -> String {
        Self::key_part(self.number)
    }

    fn format(&self) -> u32 {
        NINTH_FORMAT
    }
}

impl AbortRecord {
    /// Returns the part of the key after the prefix. The keys are in the order of the numbers.
    pub(super) fn key_part(number: u64) -> String {
        format!("{number:020}")
    }
}

impl Record for DeltaRecord {
    const PREFIX: &'static str = "statistics_delta/";

    fn name(&self) -> String {
        Self::key_part(self.table, self.number)
    }

    fn format(&self) -> u32 {
        EIGHTH_FORMAT
    }
}

impl DeltaRecord {
    /// Returns the part of the key after the prefix. The keys of a table's deltas are in the order
    /// of their numbers.
    pub(super) fn key_part(table: TableId, number: u64) -> String {
        format!("{}/{number:020}", table.0)
    }
}

impl Record for ClusterRecord {
    const PREFIX: &'static str = "cluster";

    fn name(&self) -> String {
        String::new()
    }

    fn format(&self) -> u32 {
        if self.has_producers {
            TENTH_FORMAT
        } else if self.high.is_some() {
            NINTH_FORMAT
        } else if self.has_deltas {
            EIGHTH_FORMAT
        } else if self.has_schemas {
            SEVENTH_FORMAT
        } else if self.incarnation.is_some() {
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
            _ if self.declarations.retention.is_some() => TENTH_FORMAT,
            _ if !self.name.is_in_public() => SEVENTH_FORMAT,
            _ if self.declarations.change_writes() => SIXTH_FORMAT,
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

/// Encodes a record as it is stored.
///
/// # Errors
/// `INTERNAL` if the record has no JSON form.
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

/// Decodes the record that is stored under `key`.
///
/// # Errors
/// `INVALID_ARGUMENT` if a newer release wrote it, `DATA_LOSS` if it cannot be read.
pub(super) fn decode<R: Record>(key: &str, value: &[u8]) -> Result<R> {
    let unreadable = |source| {
        let what =
            format!("the catalog's record {key} is damaged; restore the catalog from a backup");
        Error::with_source(ErrorCode::DataLoss, what, source)
    };
    // The format is read first and alone, because this release may not understand the rest of a
    // newer record.
    let Format { format } = serde_json::from_slice(value).map_err(unreadable)?;
    if format > NEWEST_FORMAT {
        return Err(Error::invalid(format!(
            "the catalog's record {key} has format {format}, but this release reads only up to format {NEWEST_FORMAT}; start the release that wrote it, or a newer one"
        )));
    }
    serde_json::from_slice(value).map_err(unreadable)
}

/// Returns the error for a part of a record that is no valid value of its type.
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
    fn a_worker_of_a_release_without_zones_has_none() {
        let text = r#"{"format":1,"id":7,"address":"h:1","version":"0.1.0","joined_at_ms":5}"#;
        let worker: WorkerRecord = decode("worker/7", text.as_bytes()).unwrap();
        assert_eq!((worker.id, worker.zone.as_deref()), (WorkerId(7), None));
        assert_eq!(encode(&worker).unwrap(), text.as_bytes());
        let zoned = WorkerRecord {
            zone: Some("a".to_owned()),
            ..worker
        };
        let text =
            r#"{"format":1,"id":7,"address":"h:1","version":"0.1.0","joined_at_ms":5,"zone":"a"}"#;
        assert_eq!(encode(&zoned).unwrap(), text.as_bytes());
    }

    #[test]
    fn only_tables_without_a_shard_key_are_refused_by_the_first_release() {
        let table = |key| TableRecord {
            id: TableId(1),
            name: RelationName::in_public("t"),
            schema: String::new(),
            columns: Vec::new(),
            kind: TableKind::Sharded { key, shards: 4 },
            sort_key: Vec::new(),
            state: TableState::Live,
            replaces: false,
            owner: None,
            created_at_ms: 0,
            declarations: Declarations::default(),
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
    fn older_releases_refuse_what_is_not_in_public() {
        let view = |name, search_schema: Option<&str>| ViewRecord {
            name,
            sql: "SELECT 1".to_owned(),
            schema: String::new(),
            owner: None,
            created_at_ms: 7,
            parameters: None,
            search_schema: search_schema.map(str::to_owned),
            comment: None,
        };
        let in_public = || RelationName::in_public("v");
        let in_staging = RelationName::new("staging", "v");
        for (record, key, text) in [
            (
                view(in_public(), None),
                "view/v",
                r#"{"format":1,"name":"v","sql":"SELECT 1","schema":"","created_at_ms":7}"#,
            ),
            (
                view(in_public(), Some("staging")),
                "view/v",
                r#"{"format":7,"name":"v","sql":"SELECT 1","schema":"","created_at_ms":7,"search_schema":"staging"}"#,
            ),
            (
                view(in_staging, None),
                "view/staging\u{1f}v",
                r#"{"format":7,"name":{"schema":"staging","name":"v"},"sql":"SELECT 1","schema":"","created_at_ms":7}"#,
            ),
        ] {
            assert_eq!(String::from_utf8(encode(&record).unwrap()).unwrap(), text);
            assert_eq!(record.key(), key);
            assert_eq!(decode::<ViewRecord>(key, text.as_bytes()).unwrap(), record);
        }
        let schema = SchemaRecord {
            name: "staging".to_owned(),
            owner: Some("kea".to_owned()),
            created_at_ms: 7,
            comment: None,
        };
        let text = r#"{"format":7,"name":"staging","owner":"kea","created_at_ms":7}"#;
        assert_eq!(String::from_utf8(encode(&schema).unwrap()).unwrap(), text);
        assert_eq!(schema.key(), "schema/staging");
    }

    #[test]
    fn a_newer_format_and_damage_are_told_apart() {
        let newer = format!(r#"{{"format":{},"something":"else"}}"#, NEWEST_FORMAT + 1);
        let error = decode::<WriteRecord>("write/7", newer.as_bytes()).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidArgument);
        let error = decode::<WriteRecord>("write/7", b"{\"format\":1}").unwrap_err();
        assert_eq!(error.code(), ErrorCode::DataLoss);
    }
}
