use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::error::{Error, ErrorCode};

/// A number that names one thing of one kind within a cluster. Numbers are given out by the catalog and never reused.
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
    /// A worker, from its first join on; shown as `w3`. It lives in the worker's data directory.
    WorkerId,
    "w"
);
numeric_id!(
    /// A table; shown as `t12`. A table that is dropped and created again has another one.
    TableId,
    "t"
);
numeric_id!(
    /// One write statement; shown as `wr7`. Rows carry it, a query's snapshot is made of it.
    WriteId,
    "wr"
);

/// A version 7 or version 4 UUID that names one thing of one kind everywhere.
macro_rules! unique_id {
    ($(#[$doc:meta])* $name:ident, $what:literal, $new:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(pub Uuid);

        impl $name {
            /// A new one.
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
    /// A cluster. Every data directory names the cluster it belongs to.
    ClusterId, "cluster id", new_v4
);

impl ClusterId {
    /// The last 8 bytes of it, big-endian. They tell clusters apart where the whole of it would be too long.
    pub fn short(self) -> u64 {
        self.0.as_u64_pair().1
    }
}
unique_id!(
    /// One SQL statement being run: it is in every log line and error that the statement causes, on every node.
    QueryId, "query id", now_v7
);
unique_id!(
    /// A client's session: what its bearer token names.
    SessionId, "session id", new_v4
);
