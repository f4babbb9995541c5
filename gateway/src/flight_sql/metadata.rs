use arrow::datatypes::{Field, Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use arrow_flight::sql::metadata::SqlInfoDataBuilder;
use arrow_flight::sql::{Command, CommandGetDbSchemas, CommandGetTableTypes, CommandGetTables};
use arrow_flight::{FlightDescriptor, FlightInfo};
use bytes::Bytes;
use prost::Message;
use volary_flight_proto::ticket::QueryTicket;
use volary_flight_proto::{Error, Result};

use super::call::ClientCall;
use super::command::{command, parse_any, unimplemented};
use super::{FlightSql, keys, sql_info, xdbc};
use crate::client_types::{TypeProfile, map_field, with_sql_metadata};
use crate::engine::{Session, TableListing};
use crate::sql::names::CATALOG;

/// The kinds of tables.
const TABLE_TYPES: [&str; 5] = [
    "TABLE",
    "REFERENCE TABLE",
    "LOCAL TEMPORARY",
    "VIEW",
    "SYSTEM TABLE",
];

impl FlightSql {
    /// Returns a FlightInfo whose ticket holds the command.
    pub(super) fn metadata_info(
        &self,
        call: &ClientCall,
        command: Command,
        descriptor: FlightDescriptor,
    ) -> Result<FlightInfo> {
        let schema = metadata_schema(&command)?;
        let ticket = QueryTicket {
            command: Some(command.into_any().encode_to_vec().into()),
            ..QueryTicket::default()
        };
        self.flight_info(call, &schema, ticket, descriptor)
    }

    /// Returns the rows of the command that a ticket holds.
    pub(super) fn ticket_rows(
        &self,
        call: &ClientCall,
        any: &Bytes,
        profile: TypeProfile,
    ) -> Result<RecordBatch> {
        let any = parse_any(any).ok_or_else(|| {
            Error::internal("the command in a ticket is not a Flight SQL message")
        })?;
        self.metadata_rows(call, command(any)?, profile)
    }

    /// Returns the rows of a command.
    pub(super) fn metadata_rows(
        &self,
        call: &ClientCall,
        command: Command,
        profile: TypeProfile,
    ) -> Result<RecordBatch> {
        let session = &call.session.engine;
        let rows = match command {
            Command::CommandGetCatalogs(command) => {
                let mut builder = command.into_builder();
                builder.append(CATALOG);
                builder.build()
            }
            Command::CommandGetDbSchemas(command) => self.schemas(session, command),
            Command::CommandGetTables(command) => {
                return tables(command, profile, self.engine.tables(session));
            }
            Command::CommandGetTableTypes(command) => table_types(command),
            Command::CommandGetSqlInfo(command) => return sql_info::rows(&command.info),
            Command::CommandGetXdbcTypeInfo(command) => return xdbc::rows(command),
            Command::CommandGetPrimaryKeys(command) => {
                let tables = self.engine.visible_tables(session);
                return keys::primary_keys(&tables, (&command).into());
            }
            Command::CommandGetExportedKeys(command) => {
                let tables = self.engine.visible_tables(session);
                return keys::foreign_keys(&tables, (&command).into());
            }
            Command::CommandGetImportedKeys(command) => {
                let tables = self.engine.visible_tables(session);
                return keys::foreign_keys(&tables, (&command).into());
            }
            Command::CommandGetCrossReference(command) => {
                let tables = self.engine.visible_tables(session);
                return keys::foreign_keys(&tables, (&command).into());
            }
            other => return Err(unimplemented(other.type_url())),
        };
        rows.map_err(Error::from)
    }

    fn schemas(
        &self,
        session: &Session,
        command: CommandGetDbSchemas,
    ) -> arrow_flight::error::Result<RecordBatch> {
        let mut builder = command.into_builder();
        for name in self.engine.schemas(session) {
            builder.append(CATALOG, name);
        }
        builder.build()
    }
}

/// Returns the columns of a metadata command, exactly as FlightSql.proto defines them.
///
/// # Errors
/// `UNIMPLEMENTED` for a message that is not a metadata command.
pub(super) fn metadata_schema(command: &Command) -> Result<SchemaRef> {
    Ok(match command {
        Command::CommandGetCatalogs(command) => command.into_builder().schema(),
        Command::CommandGetDbSchemas(command) => command.clone().into_builder().schema(),
        Command::CommandGetTables(command) => command.clone().into_builder().schema(),
        Command::CommandGetTableTypes(command) => command.into_builder().schema(),
        Command::CommandGetSqlInfo(_) => SqlInfoDataBuilder::schema().clone().into(),
        Command::CommandGetXdbcTypeInfo(_) => xdbc::schema(),
        Command::CommandGetPrimaryKeys(_) => keys::primary_key_columns(),
        Command::CommandGetExportedKeys(_)
        | Command::CommandGetImportedKeys(_)
        | Command::CommandGetCrossReference(_) => keys::foreign_key_columns(),
        other => return Err(unimplemented(other.type_url())),
    })
}

/// Returns the tables that pass the command's filters, in order. An absent filter lets all tables
/// through. An empty catalog name lets no table through.
fn tables(
    command: CommandGetTables,
    profile: TypeProfile,
    tables: Vec<TableListing>,
) -> Result<RecordBatch> {
    let include_schema = command.include_schema;
    let mut builder = command.into_builder();
    for table in tables {
        // Schemas are encoded only if the client asks for them, because there may be thousands of
        // tables.
        let schema = if include_schema {
            table_schema(profile, &table)
        } else {
            Schema::empty()
        };
        builder.append(
            &table.catalog,
            &table.schema_name,
            &table.name,
            table.table_type,
            &schema,
        )?;
    }
    Ok(builder.build()?)
}

/// Returns the columns of a table with the types that a query would return, and with Flight SQL's
/// metadata about columns.
fn table_schema(profile: TypeProfile, table: &TableListing) -> Schema {
    let names = [table.catalog.as_str(), &table.schema_name, &table.name];
    let fields: Vec<Field> = table
        .columns
        .fields()
        .iter()
        .map(|field| with_sql_metadata(&map_field(profile, field), field.data_type(), names))
        .collect();
    Schema::new(fields)
}

fn table_types(command: CommandGetTableTypes) -> arrow_flight::error::Result<RecordBatch> {
    let mut builder = command.into_builder();
    for table_type in TABLE_TYPES {
        builder.append(table_type);
    }
    builder.build()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::AsArray;
    use arrow::datatypes::DataType;
    use arrow_flight::IpcMessage;

    use super::*;

    fn listing() -> Vec<TableListing> {
        let columns = Schema::new(vec![
            Field::new("name", DataType::Utf8View, true),
            Field::new("amount", DataType::Decimal128(15, 2), false),
            Field::new("big", DataType::UInt64, false),
        ]);
        let table = |schema_name: &str, name: &str, table_type| TableListing {
            catalog: CATALOG.to_owned(),
            schema_name: schema_name.to_owned(),
            name: name.to_owned(),
            session: None,
            table_type,
            columns: Arc::new(columns.clone()),
        };
        vec![
            table("system", "nodes", "SYSTEM TABLE"),
            table("public", "orders", "TABLE"),
            table("public", "order_items", "TABLE"),
            table("public", "nation", "REFERENCE TABLE"),
        ]
    }

    fn names(command: CommandGetTables) -> Vec<String> {
        let rows = tables(command, TypeProfile::Classic, listing()).unwrap();
        rows.column(2)
            .as_string::<i32>()
            .iter()
            .flatten()
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn absent_filters_let_all_tables_through_in_order() {
        let all = names(CommandGetTables::default());
        assert_eq!(all, ["nation", "order_items", "orders", "nodes"]);
    }

    #[test]
    fn an_empty_catalog_is_not_an_absent_one() {
        let catalog = |name: &str| CommandGetTables {
            catalog: Some(name.to_owned()),
            ..Default::default()
        };
        assert_eq!(names(catalog("")), Vec::<String>::new());
        assert_eq!(names(catalog("volary")).len(), 4);
    }

    #[test]
    fn patterns_and_types_filter() {
        let pattern = |text: &str| CommandGetTables {
            table_name_filter_pattern: Some(text.to_owned()),
            ..Default::default()
        };
        assert_eq!(names(pattern("order%")), ["order_items", "orders"]);
        assert_eq!(names(pattern("order_")), ["orders"]);
        assert_eq!(names(pattern("order\\_%")), ["order_items"]);
        assert_eq!(names(pattern("")), Vec::<String>::new());
        let in_system = CommandGetTables {
            db_schema_filter_pattern: Some("sys%".to_owned()),
            ..Default::default()
        };
        assert_eq!(names(in_system), ["nodes"]);
        let two_types = CommandGetTables {
            table_types: vec!["VIEW".to_owned(), "REFERENCE TABLE".to_owned()],
            ..Default::default()
        };
        assert_eq!(names(two_types), ["nation"]);
    }

    #[test]
    fn every_column_has_classic_types_and_a_type_name() {
        let command = CommandGetTables {
            include_schema: true,
            ..Default::default()
        };
        let announced = metadata_schema(&Command::CommandGetTables(command.clone())).unwrap();
        let rows = tables(command, TypeProfile::Classic, listing()).unwrap();
        assert_eq!(rows.schema(), announced);
        let bytes = rows.column(4).as_binary::<i32>().value(0);
        let schema = Schema::try_from(IpcMessage(Bytes::copy_from_slice(bytes))).unwrap();
        assert_eq!(schema.field(0).data_type(), &DataType::Utf8);
        assert_eq!(schema.field(2).data_type(), &DataType::Decimal128(20, 0));
        let type_names: Vec<_> = schema
            .fields()
            .iter()
            .map(|field| field.metadata()["ARROW:FLIGHT:SQL:TYPE_NAME"].as_str())
            .collect();
        assert_eq!(type_names, ["VARCHAR", "DECIMAL(15, 2)", "BIGINT UNSIGNED"]);
    }

    #[test]
    fn the_table_types_are_those_that_tables_have() {
        let rows = table_types(CommandGetTableTypes {}).unwrap();
        assert_eq!(rows.num_rows(), TABLE_TYPES.len());
        assert!(
            listing()
                .iter()
                .all(|table| TABLE_TYPES.contains(&table.table_type))
        );
    }
}
