//! Filter pushdown that does not take one column for another.
//!
//! DataFusion 55 finds a filter's columns in the input of an operator by their names (apache/datafusion#25244), so that of two
//! columns of one name, as joins give them, the first is filtered. Here filters stay above such operators.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::common::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::{ExecutionPlan, replace_children_if_necessary};

/// DataFusion's `FilterPushdown`, for the largest subtrees in which all operators below the root have columns of different names. (A root is
/// given no filters; those that it makes itself are of its inputs.)
#[derive(Debug)]
pub struct PushdownByUniqueNames(pub Arc<dyn PhysicalOptimizerRule + Send + Sync>);

impl PhysicalOptimizerRule for PushdownByUniqueNames {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let children = plan.children();
        if children.iter().copied().all(are_unique_throughout) {
            return self.0.optimize(plan, config);
        }
        let children = children
            .into_iter()
            .map(|child| self.optimize(Arc::clone(child), config))
            .collect::<Result<Vec<_>>>()?;
        replace_children_if_necessary(plan, children)
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }
}

fn are_unique_throughout(plan: &Arc<dyn ExecutionPlan>) -> bool {
    are_unique(&plan.schema()) && plan.children().into_iter().all(are_unique_throughout)
}

/// Whether no two columns have one name.
pub fn are_unique(schema: &Schema) -> bool {
    let mut names = HashSet::with_capacity(schema.fields().len());
    schema
        .fields()
        .iter()
        .all(|field| names.insert(field.name()))
}
