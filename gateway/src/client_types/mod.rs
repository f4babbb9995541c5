//! Results, FlightInfo, prepared statements and GetTables all use this one mapping of types.
//!
//! Many clients cannot read the types that DataFusion computes with. JDBC 18.3 fails on Utf8View,
//! ODBC fails on LargeUtf8, and pyarrow cannot sort a string view. The default profile, `classic`,
//! therefore sends types that all of them can read. The profile `native` sends DataFusion's types.
//! A client asks for it with the header or the session option `volary-types`.
//!
//! | DataFusion's type | `classic` | `native` |
//! |---|---|---|
//! | Utf8View, LargeUtf8 | Utf8 | as it is |
//! | BinaryView, LargeBinary | Binary | as it is |
//! | ListView, LargeListView | List | as it is |
//! | LargeList | List | List (the encoder of arrow 59 cannot send it) |
//! | RunEndEncoded | its values | as it is |
//! | Dictionary | its values | its values |
//! | Decimal32, Decimal64; Decimal256 of at most 38 digits | Decimal128 | as it is |
//! | Float16 | Float32 | as it is |
//! | UInt8, UInt16, UInt32 | Int16, Int32, Int64 | as it is |
//! | UInt64 | Decimal128(20, 0) | as it is |
//! | Null | Utf8 | as it is |
//! | Map | entries named `key` and `value` | as it is |
//! | FixedSizeBinary(16), which is a UUID | Utf8 with the type name `UUID` | with the extension `arrow.uuid` |
//!
//! Nested types are mapped at any depth. Types that are not in the table stay as they are, and so
//! do time zones. `volary_exec::client_rows` converts the rows.

/// Makes the schema of a query's rows in the form that a client is sent.
mod client_schema;
/// Maps types and fields to those that a client is sent.
mod field;
/// Adds the field metadata from which drivers read a column's SQL type.
mod name;

#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use volary_flight_proto::{Error, Result};

pub(crate) use client_schema::{ClientSchema, ClientSchemas};
pub(crate) use field::map_field;
pub(crate) use name::with_sql_metadata;

/// Name of the header and of the session option that choose the profile.
pub(crate) const PROFILE_OPTION: &str = "volary-types";

/// The types in which a client is sent rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum TypeProfile {
    /// Types that every known client can read.
    #[default]
    Classic,
    /// DataFusion's own types.
    Native,
}

impl FromStr for TypeProfile {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "classic" => Ok(Self::Classic),
            "native" => Ok(Self::Native),
            _ => Err(Error::invalid(format!(
                "{PROFILE_OPTION} is \"{text}\"; write classic or native"
            ))),
        }
    }
}

impl fmt::Display for TypeProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Classic => "classic",
            Self::Native => "native",
        })
    }
}

/// Returns the schema that a client is sent for rows of `schema`.
pub(crate) fn map_schema(profile: TypeProfile, schema: &Schema) -> SchemaRef {
    let fields: Vec<_> = schema
        .fields()
        .iter()
        .map(|field| map_field(profile, field))
        .collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}
