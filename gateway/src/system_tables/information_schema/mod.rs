//! DataFusion has some of the tables of `information_schema`. The others are here: each has its own
//! file, which lists its columns, each with the function that returns its value.

/// Provides information_schema.check_constraints: the conditions of checks.
mod check_constraints;
/// Provides information_schema.columns: the columns of all tables, with their defaults.
mod columns;
/// Lists the constraints of all tables.
mod constraints;
/// Provides information_schema.key_column_usage: the columns of keys.
mod key_column_usage;
/// Provides information_schema.referential_constraints: the foreign keys.
mod referential_constraints;
/// Provides information_schema.schemata: the schemas.
mod schemata;
/// Provides information_schema.sequences, which has no rows.
mod sequences;
/// Describes a table of the schema, and makes its rows.
mod table;
/// Provides information_schema.table_constraints: the constraints.
mod table_constraints;
/// Provides information_schema.tables: all tables and views.
mod tables;
/// Provides information_schema.views: the views, with their queries.
mod views;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::information_schema::{
    INFORMATION_SCHEMA_TABLES, InformationSchemaProvider,
};
use datafusion::catalog::{SchemaProvider, TableFunction, TableProvider};
use datafusion::error::{DataFusionError, Result as DfResult};

use super::made_table::MadeTable;
pub(crate) use table::InformationSources;
use table::{InformationRows, InformationTableEntry};

/// The tables that are not DataFusion's.
const TABLES: &[InformationTableEntry] = &[
    InformationTableEntry::new::<check_constraints::CheckConstraints>(),
    InformationTableEntry::new::<columns::Columns>(),
    InformationTableEntry::new::<key_column_usage::KeyColumnUsage>(),
    InformationTableEntry::new::<referential_constraints::ReferentialConstraints>(),
    InformationTableEntry::new::<schemata::Schemata>(),
    InformationTableEntry::new::<sequences::Sequences>(),
    InformationTableEntry::new::<table_constraints::TableConstraints>(),
    InformationTableEntry::new::<tables::Tables>(),
    InformationTableEntry::new::<views::Views>(),
];

/// The schema `information_schema` of a statement.
pub(crate) struct InformationSchema {
    sources: Arc<InformationSources>,
    of_datafusion: InformationSchemaProvider,
}

impl fmt::Debug for InformationSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InformationSchema").finish_non_exhaustive()
    }
}

impl InformationSchema {
    /// Creates the schema from the sources of its rows, and for these table functions.
    pub(crate) fn new(
        sources: InformationSources,
        functions: HashMap<String, Arc<TableFunction>>,
    ) -> Self {
        Self {
            of_datafusion: InformationSchemaProvider::new(Arc::clone(&sources.catalogs))
                .with_table_functions(functions),
            sources: Arc::new(sources),
        }
    }
}

/// Returns the names of the tables of the schema.
fn names() -> impl Iterator<Item = &'static str> {
    let own = TABLES.iter().map(|table| table.name);
    let others = INFORMATION_SCHEMA_TABLES.iter().copied();
    own.chain(others.filter(|name| TABLES.iter().all(|table| table.name != *name)))
}

#[async_trait]
impl SchemaProvider for InformationSchema {
    fn table_names(&self) -> Vec<String> {
        names().map(str::to_owned).collect()
    }

    async fn table(&self, name: &str) -> DfResult<Option<Arc<dyn TableProvider>>, DataFusionError> {
        match TABLES.iter().find(|table| table.name == name) {
            Some(table) => Ok(Some(Arc::new(MadeTable(InformationRows {
                table: *table,
                sources: Arc::clone(&self.sources),
            })))),
            None => self.of_datafusion.table(name).await,
        }
    }

    fn table_exist(&self, name: &str) -> bool {
        names().any(|known| known == name)
    }
}
