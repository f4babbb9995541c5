//! DataFusion's session for one statement: tables, settings, rules.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::{
    CatalogProvider, CatalogProviderList, MemoryCatalogProviderList, SchemaProvider, TableProvider,
};
use datafusion::common::{DFSchema, TableReference};
use datafusion::datasource::ViewTable;
use datafusion::error::{DataFusionError, Result as DfResult};
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{EmptyRelation, LogicalPlan};
use datafusion::sql::parser::Statement as DfStatement;
use parking_lot::Mutex;
use volary_flight_proto::ids::QueryId;
use volary_flight_proto::snapshot::Snapshot;
use volary_flight_proto::{Error, Result};

use super::errors::with_advice;
use super::names::{CATALOG, INFORMATION_SCHEMA, PUBLIC, SYSTEM};
use super::parse::{Statement, parse};
use super::{Engine, Session, settings};
use crate::catalog::State;
use crate::gather::QueryContext;
use crate::planning::table::ShardedTable;
use crate::system_tables::{self, SystemSchema};

/// Views within views within views.
const MAX_VIEW_DEPTH: usize = 16;

/// One statement's view of the world.
pub struct StatementContext {
    /// DataFusion's session.
    pub state: SessionState,
    /// The catalog as of the statement's start.
    pub catalog: Arc<State>,
    /// The statement.
    pub query_id: QueryId,
    /// What it sees.
    pub snapshot: Snapshot,
    public: Arc<PublicSchema>,
}

impl StatementContext {
    /// With the session's settings. `query_id` and `snapshot`: what a ticket says; otherwise a new id, and `None` for what is
    /// committed now. `with_plan_metrics`: see [`QueryContext`].
    ///
    /// # Errors
    /// Those of the session's settings.
    pub fn new(
        engine: &Engine,
        session: &Session,
        query_id: QueryId,
        snapshot: Option<Snapshot>,
        with_plan_metrics: bool,
    ) -> Result<Self> {
        let catalog = engine.catalog.state();
        let current = catalog.snapshot();
        let statistics_exact = snapshot.as_ref().is_none_or(|given| *given == current);
        let snapshot = snapshot.unwrap_or(current);
        let public = Arc::new(PublicSchema {
            catalog: Arc::clone(&catalog),
            statistics_exact,
            views: Mutex::new(HashMap::new()),
        });
        let mut config = engine.base.config().clone();
        settings::apply(&mut config, &session.settings())?;
        config.set_extension(Arc::new(QueryContext {
            query_id,
            snapshot: snapshot.clone(),
            cluster: Arc::clone(&engine.cluster),
            config: engine.config.gather.clone(),
            time_zone: config
                .options()
                .execution
                .time_zone
                .clone()
                .unwrap_or_default(),
            with_plan_metrics,
        }));
        let catalogs = MemoryCatalogProviderList::new();
        catalogs.register_catalog(
            CATALOG.to_owned(),
            Arc::new(Schemas {
                public: Arc::clone(&public),
                system: Arc::new(SystemSchema::new(
                    Arc::clone(&engine.cluster),
                    engine.loads.clone(),
                    Arc::clone(&catalog),
                )),
            }),
        );
        let mut state = SessionStateBuilder::new_from_existing(engine.base.clone())
            .with_session_id(query_id.to_string())
            .with_config(config)
            .with_catalog_list(Arc::new(catalogs))
            .build();
        // now() is this moment, for the whole statement; without it, now() cannot be planned.
        state.mark_start_execution();
        Ok(Self {
            state,
            catalog,
            query_id,
            snapshot,
            public,
        })
    }

    /// Plans the statement, and before it the views that it reads.
    ///
    /// # Errors
    /// `NOT_FOUND` for a table or a column that does not exist, with the nearest names; those of planning.
    pub async fn plan(&self, statement: DfStatement) -> Result<LogicalPlan> {
        self.resolve(&statement, 0).await?;
        self.state
            .statement_to_plan(statement)
            .await
            .map_err(with_advice)
    }

    /// Finds the statement's tables and plans the views it reads.
    async fn resolve(&self, statement: &DfStatement, depth: usize) -> Result<()> {
        for name in self.state.resolve_table_references(statement)? {
            refuse_unknown_schema(&name)?;
            if let Some(name) = public_name(&name)
                && self.catalog.table(name).is_none()
            {
                let Some(view) = self.catalog.view(name) else {
                    // FROM generate_series(…) is a reference too.
                    if self.state.table_functions().contains_key(name) {
                        continue;
                    }
                    return Err(self.catalog.no_such_table(name));
                };
                Box::pin(self.plan_view(view.name(), view.sql(), depth)).await?;
            }
        }
        Ok(())
    }

    async fn plan_view(&self, name: &str, sql: &str, depth: usize) -> Result<()> {
        if self.public.views.lock().contains_key(name) {
            return Ok(());
        }
        if depth >= MAX_VIEW_DEPTH {
            return Err(Error::invalid(format!(
                "view {name}: views are nested more than {MAX_VIEW_DEPTH} deep, or read each other"
            )));
        }
        let Statement::Planned(statement) = parse(sql)? else {
            return Err(Error::invalid(format!("view {name} is no query")));
        };
        let at = |error: Error| error.at(format!("view {name}"));
        self.resolve(&statement, depth + 1).await.map_err(at)?;
        let plan = self
            .state
            .statement_to_plan(*statement)
            .await
            .map_err(|error| at(with_advice(error)))?;
        let view = Arc::new(ViewTable::new(plan, Some(sql.to_owned())));
        self.public.views.lock().insert(name.to_owned(), view);
        Ok(())
    }
}

impl fmt::Debug for StatementContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StatementContext")
            .field("query_id", &self.query_id)
            .finish_non_exhaustive()
    }
}

/// DataFusion plans tables of the other schemas, and what it says of one that does not exist has another code than ours.
fn refuse_unknown_schema(reference: &TableReference) -> Result<()> {
    let table = reference.table();
    match (reference.catalog(), reference.schema()) {
        (Some(catalog), _) if catalog != CATALOG => Err(Error::not_found(format!(
            "there is no catalog {catalog}; the only one is {CATALOG}"
        ))),
        (_, None | Some(PUBLIC | INFORMATION_SCHEMA)) => Ok(()),
        (_, Some(SYSTEM)) if system_tables::names().any(|name| name == table) => Ok(()),
        (_, Some(SYSTEM)) => Err(Error::not_found(format!(
            "there is no table {SYSTEM}.{table}; there are {}",
            system_tables::names().collect::<Vec<_>>().join(", ")
        ))),
        (_, Some(schema)) => Err(Error::not_found(format!(
            "there is no schema {schema}; there are {PUBLIC}, {SYSTEM} and {INFORMATION_SCHEMA}"
        ))),
    }
}

/// The name within the schema `public`, if the reference is to a table there.
fn public_name(reference: &TableReference) -> Option<&str> {
    match reference {
        TableReference::Bare { table } => Some(table),
        TableReference::Partial { schema, table } => (schema.as_ref() == PUBLIC).then_some(table),
        TableReference::Full {
            catalog,
            schema,
            table,
        } => (catalog.as_ref() == CATALOG && schema.as_ref() == PUBLIC).then_some(table),
    }
}

/// The catalog's schemas. `information_schema` is DataFusion's own.
#[derive(Debug)]
struct Schemas {
    public: Arc<PublicSchema>,
    system: Arc<SystemSchema>,
}

impl CatalogProvider for Schemas {
    fn schema_names(&self) -> Vec<String> {
        vec![PUBLIC.to_owned(), SYSTEM.to_owned()]
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        match name {
            PUBLIC => Some(Arc::clone(&self.public) as _),
            SYSTEM => Some(Arc::clone(&self.system) as _),
            _ => None,
        }
    }
}

/// Users' tables and views, as of one state of the catalog.
#[derive(Debug)]
struct PublicSchema {
    catalog: Arc<State>,
    statistics_exact: bool,
    /// Views that the statement reads, planned.
    views: Mutex<HashMap<String, Arc<dyn TableProvider>>>,
}

#[async_trait]
impl SchemaProvider for PublicSchema {
    fn table_names(&self) -> Vec<String> {
        let tables = self.catalog.tables().map(|table| table.name().to_owned());
        let views = self.catalog.views().map(|view| view.name().to_owned());
        tables.chain(views).collect()
    }

    async fn table(&self, name: &str) -> DfResult<Option<Arc<dyn TableProvider>>, DataFusionError> {
        if let Some(table) = self.catalog.table(name) {
            return Ok(Some(Arc::new(ShardedTable::new(
                Arc::clone(table),
                self.statistics_exact,
            ))));
        }
        if let Some(view) = self.views.lock().get(name) {
            return Ok(Some(Arc::clone(view)));
        }
        // Only information_schema asks for a view that the statement does not read: its columns and text are enough.
        let Some(view) = self.catalog.view(name) else {
            return Ok(None);
        };
        let columns = LogicalPlan::EmptyRelation(EmptyRelation {
            produce_one_row: false,
            schema: Arc::new(DFSchema::try_from(Arc::clone(view.schema()))?),
        });
        let view = ViewTable::new(columns, Some(view.sql().to_owned()));
        Ok(Some(Arc::new(view)))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.catalog.table(name).is_some() || self.catalog.view(name).is_some()
    }
}
