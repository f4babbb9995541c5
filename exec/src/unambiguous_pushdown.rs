//! DataFusion 55 finds the columns of a filter in the input of an operator by name (fixed after 55:
//! apache/datafusion#25259). This goes wrong in three cases:
//!
//! - A join may return two columns of one name. Then the first one is filtered.
//! - A filter on a key of a semi join is pushed to the column of that name on the join's other
//!   side, whichever column that is.
//! - A filter on a group of an aggregate is pushed to the input column that has the name given to
//!   the group.
//!
//! Here filters stay above such operators.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::common::JoinType;
use datafusion::common::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{ExecutionPlan, replace_children_if_necessary};

/// DataFusion's `FilterPushdown`, applied only where names are unambiguous: to the largest subtrees
/// in which no operator below the root has an ambiguous name. A name is ambiguous if two columns
/// have it, or if a column of the operator's input has it and is not the source of its values. (The
/// root receives no filters, and the filters that it makes itself use the columns of its inputs.)
#[derive(Debug)]
pub struct UnambiguousPushdown(pub Arc<dyn PhysicalOptimizerRule + Send + Sync>);

impl PhysicalOptimizerRule for UnambiguousPushdown {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let children = plan.children();
        if children.iter().copied().all(has_unambiguous_names) {
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

fn has_unambiguous_names(plan: &Arc<dyn ExecutionPlan>) -> bool {
    has_unique_names(&plan.schema())
        && names_match_inputs(plan)
        && plan.children().into_iter().all(has_unambiguous_names)
}

/// Returns whether the operator's column names lead to the same values in the children that its
/// filters are pushed to.
fn names_match_inputs(plan: &Arc<dyn ExecutionPlan>) -> bool {
    if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        let (left, right) = (join.left().schema(), join.right().schema());
        let mut keys = join.on().iter();
        return match join.join_type() {
            JoinType::LeftSemi => {
                keys.all(|(left, partner)| key_name_matches(left, &right, partner))
            }
            JoinType::RightSemi => {
                keys.all(|(partner, right)| key_name_matches(right, &left, partner))
            }
            _ => true,
        };
    }
    if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
        let input = aggregate.input().schema();
        let mut groups = aggregate.group_expr().expr().iter();
        return groups.all(|(group, name)| name_matches(name, &input, group));
    }
    if plan.is::<UnionExec>() {
        let union = plan.schema();
        return plan
            .children()
            .into_iter()
            .all(|child| names(&union).eq(names(&child.schema())));
    }
    true
}

fn names(schema: &Schema) -> impl Iterator<Item = &String> {
    schema.fields().iter().map(|field| field.name())
}

/// Returns whether a key's name belongs to no column of the other side, or only to the key's
/// partner.
fn key_name_matches(
    key: &Arc<dyn PhysicalExpr>,
    other: &Schema,
    partner: &Arc<dyn PhysicalExpr>,
) -> bool {
    key.downcast_ref::<Column>()
        .is_none_or(|key| name_matches(key.name(), other, partner))
}

fn name_matches(name: &str, input: &Schema, expected: &Arc<dyn PhysicalExpr>) -> bool {
    input.column_with_name(name).is_none_or(|(found, _)| {
        let expected = expected.downcast_ref::<Column>();
        expected.is_some_and(|expected| expected.index() == found)
    })
}

/// Returns whether all column names differ.
fn has_unique_names(schema: &Schema) -> bool {
    let mut names = HashSet::with_capacity(schema.fields().len());
    schema
        .fields()
        .iter()
        .all(|field| names.insert(field.name()))
}
