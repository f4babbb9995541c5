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
use volary_catalog::{CatalogState, RelationName};
use volary_planner::table::ShardedTable;

use crate::sql::names::{CATALOG, INFORMATION_SCHEMA, PUBLIC, SYSTEM};
use crate::system_tables::{InformationSchema, SystemSchema};

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
            catalog, rights, ..
        } = self.relations.as_ref();
        let created = catalog.schemas().map(|schema| schema.name.as_str());
        let created = created.filter(|schema| catalog.may_see_schema(schema, rights));
        let names = [PUBLIC, SYSTEM].into_iter().chain(created);
        names.map(str::to_owned).collect()
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        match name {
            SYSTEM => Some(Arc::clone(&self.system) as _),
            // It is made when it is read, because few statements read it.
            INFORMATION_SCHEMA => Some(Arc::new(InformationSchema::new(
                Arc::new(OnlyCatalog(self.clone())),
                self.base_state.table_functions().clone(),
            ))),
            _ if name == PUBLIC || self.relations.catalog.schema(name).is_some() => {
                Some(Arc::new(UserSchema {
                    name: name.to_owned(),
                    relations: Arc::clone(&self.relations),
                }))
            }
            _ => None,
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
    /// The planned views that the statement reads.
    views: Mutex<HashMap<RelationName, Arc<dyn TableProvider>>>,
}

impl UserRelations {
    /// Creates the relations without any planned view.
    pub(super) fn new(
        catalog: Arc<CatalogState>,
        has_exact_statistics: bool,
        rights: Arc<Rights>,
    ) -> Self {
        Self {
            catalog,
            has_exact_statistics,
            rights,
            views: Mutex::default(),
        }
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
    name: String,
    relations: Arc<UserRelations>,
}

impl UserSchema {
    fn full_name(&self, name: &str) -> RelationName {
        RelationName::new(self.name.as_str(), name)
    }
}

#[async_trait]
impl SchemaProvider for UserSchema {
    fn owner_name(&self) -> Option<&str> {
        let schema = self.relations.catalog.schema(&self.name)?;
        schema.owner.as_deref()
    }

    fn table_names(&self) -> Vec<String> {
        let UserRelations {
            catalog, rights, ..
        } = self.relations.as_ref();
        let tables = catalog.tables().map(|table| table.name());
        let views = catalog.views().filter(|view| !view.is_saved_query());
        tables
            .chain(views.map(|view| view.name()))
            .filter(|name| name.schema() == self.name && catalog.is_visible_to(name, rights))
            .map(|name| name.name().to_owned())
            .collect()
    }

    async fn table(&self, name: &str) -> DfResult<Option<Arc<dyn TableProvider>>, DataFusionError> {
        let relations = &self.relations;
        let name = self.full_name(name);
        if let Some(table) = relations.catalog.table(&name) {
            return Ok(Some(Arc::new(ShardedTable::new(
                Arc::clone(table),
                relations.has_exact_statistics,
            ))));
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
