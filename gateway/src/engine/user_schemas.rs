use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::{CatalogProvider, CatalogProviderList, SchemaProvider, TableProvider};
use datafusion::common::DFSchema;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::ViewTable;
use datafusion::error::{DataFusionError, Result as DfResult};
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{EmptyRelation, LogicalPlan};
use parking_lot::Mutex;
use volary_catalog::access::Rights;
use volary_catalog::{CatalogState, RelationName, TEMPORARY_SCHEMA};
use volary_flight_proto::ids::SessionId;
use volary_planner::table::ShardedTable;

use crate::sql::names::{CATALOG, INFORMATION_SCHEMA, PUBLIC, SYSTEM};
use crate::sql::search_path::schema_behind_temporary;
use crate::system_tables::{InformationSchema, InformationSources, SystemSchema};

/// The schemas of the catalog.
#[derive(Debug, Clone)]
pub(super) struct CatalogSchemas {
    pub(super) relations: Arc<UserRelations>,
    pub(super) system: Arc<SystemSchema>,
    /// The session with the functions that `information_schema` lists.
    pub(super) base_state: Arc<SessionState>,
}

impl CatalogProvider for CatalogSchemas {
    /// Returns the schemas that the user may see.
    fn schema_names(&self) -> Vec<String> {
        let UserRelations {
            catalog,
            rights,
            session,
            ..
        } = self.relations.as_ref();
        let has_temporary = session.is_some_and(|session| catalog.has_temporary(session));
        let temporary = has_temporary.then_some(TEMPORARY_SCHEMA);
        let created = catalog.schemas().map(|schema| schema.name.as_str());
        let created = created.filter(|schema| catalog.may_see_schema(schema, rights));
        let names = [PUBLIC, SYSTEM].into_iter().chain(temporary);
        names.chain(created).map(str::to_owned).collect()
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        match name {
            SYSTEM => Some(Arc::clone(&self.system) as _),
            // It is made when it is read, because few statements read it.
            INFORMATION_SCHEMA => Some(Arc::new(InformationSchema::new(
                InformationSources {
                    catalogs: Arc::new(OnlyCatalog(self.clone())),
                    state: Arc::clone(&self.relations.catalog),
                    session: self.relations.session,
                },
                self.base_state.table_functions().clone(),
            ))),
            TEMPORARY_SCHEMA if let Some(session) = self.relations.session => Some(Arc::new(
                self.user_schema(RelationName::temporary(session, "")),
            )),
            _ if name == PUBLIC || self.relations.catalog.schema(name).is_some() => {
                Some(Arc::new(self.user_schema(RelationName::new(name, ""))))
            }
            _ => {
                let session = self.relations.session?;
                let current = schema_behind_temporary(name)?;
                Some(Arc::new(SearchedSchemas {
                    temporary: self.user_schema(RelationName::temporary(session, "")),
                    current: self.user_schema(RelationName::new(current, "")),
                }))
            }
        }
    }
}

impl CatalogSchemas {
    /// Returns the schema in which this name is.
    fn user_schema(&self, any_name: RelationName) -> UserSchema {
        UserSchema {
            any_name,
            relations: Arc::clone(&self.relations),
        }
    }
}

/// The list of catalogs that `information_schema` describes.
#[derive(Debug)]
struct OnlyCatalog(CatalogSchemas);

impl CatalogProviderList for OnlyCatalog {
    fn register_catalog(
        &self,
        _: String,
        _: Arc<dyn CatalogProvider>,
    ) -> Option<Arc<dyn CatalogProvider>> {
        None
    }

    fn catalog_names(&self) -> Vec<String> {
        vec![CATALOG.to_owned()]
    }

    fn catalog(&self, name: &str) -> Option<Arc<dyn CatalogProvider>> {
        (name == CATALOG).then(|| Arc::new(self.0.clone()) as _)
    }
}

/// The users' tables and views in all schemas, as of one state of the catalog.
#[derive(Debug)]
pub(super) struct UserRelations {
    catalog: Arc<CatalogState>,
    has_exact_statistics: bool,
    /// The rights of the user who lists the tables. Whether the user may read a table is checked
    /// earlier.
    rights: Arc<Rights>,
    /// The session whose temporary tables are found.
    session: Option<SessionId>,
    /// The planned views that the statement reads.
    views: Mutex<HashMap<RelationName, Arc<dyn TableProvider>>>,
}

impl UserRelations {
    /// Creates the relations without any planned view.
    pub(super) fn new(
        catalog: Arc<CatalogState>,
        has_exact_statistics: bool,
        rights: Arc<Rights>,
        session: Option<SessionId>,
    ) -> Self {
        Self {
            catalog,
            has_exact_statistics,
            rights,
            session,
            views: Mutex::default(),
        }
    }

    /// Returns a table for DataFusion. Returns `None` if there is no such table.
    pub(super) fn sharded_table(&self, name: &RelationName) -> Option<ShardedTable> {
        let table = Arc::clone(self.catalog.table(name)?);
        Some(ShardedTable::new(table, self.has_exact_statistics))
    }

    /// Returns whether the view is planned.
    pub(super) fn has_view(&self, name: &RelationName) -> bool {
        self.views.lock().contains_key(name)
    }

    /// Adds a planned view.
    pub(super) fn insert_view(&self, name: RelationName, view: ViewTable) {
        self.views.lock().insert(name, Arc::new(view));
    }

    /// Returns the number of columns of a planned view. Returns `None` if the view is not planned.
    pub(super) fn columns_of_view(&self, name: &RelationName) -> Option<usize> {
        let views = self.views.lock();
        Some(views.get(name)?.schema().fields().len())
    }

    /// Returns the number of operators of a planned view. Returns `None` if the view is not
    /// planned.
    pub(super) fn size_of_view(&self, name: &RelationName) -> Option<usize> {
        let views = self.views.lock();
        count_operators(views.get(name)?.get_logical_plan()?.as_ref())
    }
}

/// Returns the number of operators of a plan.
pub(super) fn count_operators(plan: &LogicalPlan) -> Option<usize> {
    let mut operators = 0;
    plan.apply_with_subqueries(|_| {
        operators += 1;
        Ok(TreeNodeRecursion::Continue)
    })
    .ok()?;
    Some(operators)
}

/// The users' tables and views in one schema.
#[derive(Debug)]
struct UserSchema {
    /// Any name in the schema.
    any_name: RelationName,
    relations: Arc<UserRelations>,
}

impl UserSchema {
    fn full_name(&self, name: &str) -> RelationName {
        self.any_name.sibling(name)
    }
}

#[async_trait]
impl SchemaProvider for UserSchema {
    fn owner_name(&self) -> Option<&str> {
        let schema = self.relations.catalog.schema(self.any_name.schema())?;
        schema.owner.as_deref()
    }

    fn table_names(&self) -> Vec<String> {
        let UserRelations {
            catalog, rights, ..
        } = self.relations.as_ref();
        if let Some(session) = self.any_name.session() {
            let tables = catalog.temporary_tables(session).map(|it| it.name());
            let views = catalog.temporary_views(session).map(|it| it.name());
            let names = tables.chain(views);
            return names.map(|name| name.name().to_owned()).collect();
        }
        let tables = catalog.tables().map(|table| table.name());
        let views = catalog.views().filter(|view| !view.is_saved_query());
        tables
            .chain(views.map(|view| view.name()))
            .filter(|name| {
                name.is_sibling_of(&self.any_name) && catalog.is_visible_to(name, rights)
            })
            .map(|name| name.name().to_owned())
            .collect()
    }

    async fn table(&self, name: &str) -> DfResult<Option<Arc<dyn TableProvider>>, DataFusionError> {
        let relations = &self.relations;
        let name = self.full_name(name);
        if let Some(table) = relations.sharded_table(&name) {
            return Ok(Some(Arc::new(table)));
        }
        if let Some(view) = relations.views.lock().get(&name) {
            return Ok(Some(Arc::clone(view)));
        }
        // Only information_schema asks for a view that the statement does not read. It needs only
        // the view's columns and text.
        let Some(view) = relations.catalog.view(&name) else {
            return Ok(None);
        };
        // DataFusion looks up a called saved query here, too, but it is not a table.
        if view.is_saved_query() {
            return Ok(None);
        }
        let columns = LogicalPlan::EmptyRelation(EmptyRelation {
            produce_one_row: false,
            schema: Arc::new(DFSchema::try_from(Arc::clone(view.schema()))?),
        });
        let view = ViewTable::new(columns, Some(view.sql().to_owned()));
        Ok(Some(Arc::new(view)))
    }

    fn table_exist(&self, name: &str) -> bool {
        let (catalog, name) = (&self.relations.catalog, self.full_name(name));
        catalog.table(&name).is_some() || catalog.view(&name).is_some()
    }
}

/// The schemas in which a name without a schema is looked up, one after the other.
#[derive(Debug)]
struct SearchedSchemas {
    temporary: UserSchema,
    current: UserSchema,
}

#[async_trait]
impl SchemaProvider for SearchedSchemas {
    fn table_names(&self) -> Vec<String> {
        let mut names = self.temporary.table_names();
        names.extend(self.current.table_names());
        names
    }

    async fn table(&self, name: &str) -> DfResult<Option<Arc<dyn TableProvider>>, DataFusionError> {
        match self.temporary.table(name).await? {
            Some(table) => Ok(Some(table)),
            None => self.current.table(name).await,
        }
    }

    fn table_exist(&self, name: &str) -> bool {
        self.temporary.table_exist(name) || self.current.table_exist(name)
    }
}
