use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::error::{Error, ErrorCode};

/// Defines an id: a number that names one thing of one kind within a cluster. The catalog gives out
/// the numbers and never reuses one.
macro_rules! numeric_id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

numeric_id!(
    /// Id of a worker, from its first join on. It is shown as `w3`, and the worker stores it in its
    /// data directory.
    WorkerId,
    "w"
);
numeric_id!(
    /// Id of a table, shown as `t12`. A table that is dropped and created again gets another id.
    TableId,
    "t"
);
numeric_id!(
    /// Id of one write statement, shown as `wr7`. Rows carry the id of their write, and a query's
    /// snapshot is made of these ids.
    WriteId,
    "wr"
);

/// Defines an id: a UUID of version 7 or 4 that names one thing of one kind everywhere.
macro_rules! unique_id {
    ($(#[$doc:meta])* $name:ident, $what:literal, $new:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(pub Uuid);

        impl $name {
            /// Creates a new id.
            #[allow(clippy::new_without_default)] // a default id would be a different one each time
            pub fn new() -> Self {
                Self(Uuid::$new())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl TryFrom<String> for $name {
            type Error = Error;

            fn try_from(text: String) -> Result<Self, Error> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.to_string()
            }
        }

        impl FromStr for $name {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self, Error> {
                Uuid::parse_str(text).map(Self).map_err(|source| {
                    Error::with_source(
                        ErrorCode::InvalidArgument,
                        format!(concat!("\"{}\" is not a ", $what), text),
                        source,
                    )
                })
            }
        }
    };
}

unique_id!(
    /// Id of a cluster. Every data directory names the cluster that it belongs to.
    ClusterId, "cluster id", new_v4
);

impl ClusterId {
    /// Returns the last 8 bytes of the id as a big-endian number. They tell clusters apart where
    /// the whole id would be too long.
    pub fn short(self) -> u64 {
        self.0.as_u64_pair().1
    }
}
unique_id!(
    /// Id of a worker's store, which names the worker's segments. The data directory names the
    /// store that belongs to it.
    StoreId, "store id", new_v4
);
unique_id!(
    /// Id of one SQL statement that is run. It appears in every log line and error that the
    /// statement causes, on every node.
    QueryId, "query id", now_v7
);
unique_id!(
    /// Id of a client's session. Logs may contain it, so it is not the session's token: whoever has
    /// the token has the session.
    SessionId, "session id", new_v4
);
