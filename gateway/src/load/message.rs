use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use volary_catalog::{Table, TableKind};
use volary_flight_proto::write::SHARD_COLUMN;

/// Returns the schema of the rows that are sent to a worker: the table's columns and, unless the
/// table is a reference table, a column with the number of the row's shard.
pub(super) fn message_schema(table: &Table) -> SchemaRef {
    match table.kind() {
        TableKind::Reference { .. } => Arc::clone(table.schema()),
        TableKind::Sharded { .. } => {
            let mut fields: Vec<_> = table.schema().fields().iter().cloned().collect();
            fields.push(Arc::new(Field::new(SHARD_COLUMN, DataType::UInt32, false)));
            Arc::new(Schema::new(fields))
        }
    }
}
