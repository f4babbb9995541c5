//! DataFusion joins tables in the order in which a statement names them. For
//! `customer, orders, lineitem` it first joins customers and orders, which are not co-located. Then
//! the rows of lineitem have to come to the gateway. If orders and lineitem are joined first, they
//! are joined on the workers, and only the result is sent.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::common::NullEquality;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::datasource::source_as_provider;
use datafusion::error::Result;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{
    Expr, Filter, Join, JoinConstraint, JoinType, LogicalPlan, Projection,
};
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

use crate::key_reference::type_of_key;
use crate::table::ShardedTable;
use volary_catalog::{Table, TableKind};
use volary_exec::shard_key::hash_agrees;

/// Joins co-located tables with each other first, then reference tables with the tables that they
/// are joined with, and then everything else in the order of the statement.
#[derive(Debug)]
pub(crate) struct LocalJoinsFirst;

impl OptimizerRule for LocalJoinsFirst {
    fn name(&self) -> &'static str {
        "local_joins_first"
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        plan.transform_down_with_subqueries(|node| {
            if !is_plain_inner_join(&node) {
                return Ok(Transformed::no(node));
            }
            // The joins below are part of this one, and are not visited again by themselves.
            let mut reordered = match reorder(&node)? {
                Some(plan) => Transformed::yes(plan),
                None => Transformed::no(node),
            };
            reordered.tnr = TreeNodeRecursion::Jump;
            Ok(reordered)
        })
    }
}

fn is_plain_inner_join(plan: &LogicalPlan) -> bool {
    matches!(
        plan,
        LogicalPlan::Join(Join {
            join_type: JoinType::Inner,
            null_equality: NullEquality::NullEqualsNothing,
            ..
        })
    )
}

/// A tree of inner joins in flat form.
#[derive(Default)]
struct FlatJoin {
    inputs: Vec<LogicalPlan>,
    equalities: Vec<(Expr, Expr)>,
    filters: Vec<Expr>,
    /// The shape of the tree as text. A leaf is its number, and a join is its two sides in
    /// parentheses.
    shape: String,
}

impl FlatJoin {
    fn add(&mut self, plan: &LogicalPlan) {
        match plan {
            LogicalPlan::Join(join) if is_plain_inner_join(plan) => {
                self.shape.push('(');
                self.add(&join.left);
                self.shape.push(' ');
                self.add(&join.right);
                self.shape.push(')');
                self.equalities.extend(join.on.iter().cloned());
                self.filters.extend(join.filter.iter().cloned());
            }
            leaf => {
                self.shape.push_str(&self.inputs.len().to_string());
                self.inputs.push(leaf.clone());
            }
        }
    }

    /// Returns the input that has all columns of an expression.
    fn input_of(&self, expression: &Expr) -> Option<usize> {
        let columns = expression.column_refs();
        let mut inputs = columns.iter().map(|column| {
            self.inputs
                .iter()
                .position(|input| input.schema().has_column(column))
        });
        let first = inputs.next()??;
        inputs.all(|input| input == Some(first)).then_some(first)
    }
}

fn reorder(plan: &LogicalPlan) -> Result<Option<LogicalPlan>> {
    let mut flat = FlatJoin::default();
    flat.add(plan);
    if flat.inputs.len() < 3 {
        return Ok(None);
    }
    let sides: Option<Vec<(usize, usize)>> = flat
        .equalities
        .iter()
        .map(|(left, right)| Some((flat.input_of(left)?, flat.input_of(right)?)))
        .collect();
    let Some(sides) = sides else {
        return Ok(None);
    };
    let tables: Vec<Option<Arc<Table>>> = flat.inputs.iter().map(table_of).collect();
    let groups = groups(&flat, &sides, &tables);
    if groups.iter().all(|group| group.len() == 1) {
        return Ok(None);
    }
    let mut builder = JoinBuilder {
        flat: &flat,
        sides: &sides,
        used_equalities: HashSet::new(),
    };
    let Some((mut joined, shape)) = builder.join_groups(&groups)? else {
        return Ok(None);
    };
    if shape == flat.shape {
        return Ok(None);
    }
    if let Some(predicate) = conjunction(flat.filters.iter().cloned()) {
        joined = LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(joined))?);
    }
    Ok(Some(LogicalPlan::Projection(Projection::new_from_schema(
        Arc::new(joined),
        Arc::clone(plan.schema()),
    ))))
}

/// Returns the table that an input reads, if it reads one table and keeps its column names.
fn table_of(input: &LogicalPlan) -> Option<Arc<Table>> {
    match input {
        LogicalPlan::SubqueryAlias(alias) => table_of(&alias.input),
        LogicalPlan::Filter(filter) => table_of(&filter.input),
        LogicalPlan::TableScan(scan) => source_as_provider(&scan.source)
            .ok()?
            .downcast_ref::<ShardedTable>()
            .map(|table| Arc::clone(table.table())),
        LogicalPlan::Projection(projection) => {
            let renames = projection
                .expr
                .iter()
                .any(|expr| !matches!(expr, Expr::Column(_)));
            if renames {
                None
            } else {
                table_of(&projection.input)
            }
        }
        _ => None,
    }
}

/// Returns groups of inputs that workers can join with each other, in the order of the statement.
/// Every other input is a group by itself.
fn groups(
    flat: &FlatJoin,
    sides: &[(usize, usize)],
    tables: &[Option<Arc<Table>>],
) -> Vec<Vec<usize>> {
    let mut group_of: Vec<usize> = (0..tables.len()).collect();
    let mut merge = |left: usize, right: usize| {
        let (keep, drop) = (
            group_of[left].min(group_of[right]),
            group_of[left].max(group_of[right]),
        );
        for group in &mut group_of {
            if *group == drop {
                *group = keep;
            }
        }
        keep != drop
    };
    for ((left_on, right_on), (left, right)) in flat.equalities.iter().zip(sides) {
        if left != right && are_colocated(&tables[*left], left_on, &tables[*right], right_on) {
            merge(*left, *right);
        }
    }
    // A reference table goes to the first group that it is joined with. Reference tables that are
    // joined with it follow.
    let is_reference = |input: usize| {
        tables[input]
            .as_ref()
            .is_some_and(|table| table.is_reference())
    };
    let mut assigned: HashSet<usize> = HashSet::new();
    loop {
        let next = sides.iter().find_map(|(left, right)| {
            let candidates = [(*left, *right), (*right, *left)];
            candidates.into_iter().find(|(reference, other)| {
                is_reference(*reference)
                    && !assigned.contains(reference)
                    && tables[*other].is_some()
                    && (!is_reference(*other) || assigned.contains(other))
            })
        });
        let Some((reference, other)) = next else {
            break;
        };
        assigned.insert(reference);
        merge(reference, other);
    }
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut order: Vec<usize> = group_of.clone();
    order.sort_unstable();
    order.dedup();
    for group in order {
        let members = (0..tables.len()).filter(|input| group_of[*input] == group);
        // Within a group, co-located tables come before reference tables. Otherwise the order is
        // that of the statement.
        let (sharded, reference): (Vec<_>, Vec<_>) =
            members.partition(|input| !is_reference(*input));
        groups.push(sharded.into_iter().chain(reference).collect());
    }
    groups
}

/// Returns whether the equality compares the shard keys of two tables in which equal keys are in
/// the same shard.
fn are_colocated(
    left: &Option<Arc<Table>>,
    left_on: &Expr,
    right: &Option<Arc<Table>>,
    right_on: &Expr,
) -> bool {
    let (Some(left), Some(right)) = (left, right) else {
        return false;
    };
    let (
        TableKind::Sharded {
            key: Some(left_key),
            shards: left_shards,
        },
        TableKind::Sharded {
            key: Some(right_key),
            shards: right_shards,
        },
    ) = (left.kind(), right.kind())
    else {
        return false;
    };
    let compared_as = |table: &Table, key: usize, on: &Expr| {
        let field = table.schema().field(key);
        type_of_key(on, field.name(), field.data_type())
    };
    let (Some(left_type), Some(right_type)) = (
        compared_as(left, *left_key, left_on),
        compared_as(right, *right_key, right_on),
    ) else {
        return false;
    };
    left_shards == right_shards && hash_agrees(&left_type, &right_type)
}

struct JoinBuilder<'a> {
    flat: &'a FlatJoin,
    sides: &'a [(usize, usize)],
    /// The equalities that a join uses already.
    used_equalities: HashSet<usize>,
}

/// A plan, the inputs in it, and its shape.
struct JoinPart {
    plan: LogicalPlan,
    inputs: HashSet<usize>,
    shape: String,
}

impl JoinBuilder<'_> {
    /// Joins all groups. Returns `None` if that would take a cross join.
    fn join_groups(&mut self, groups: &[Vec<usize>]) -> Result<Option<(LogicalPlan, String)>> {
        let mut parts = Vec::with_capacity(groups.len());
        for group in groups {
            let inputs = group.iter().map(|input| self.leaf(*input)).collect();
            let Some(part) = self.join_all(inputs)? else {
                return Ok(None);
            };
            parts.push(part);
        }
        let joined = self.join_all(parts)?;
        Ok(joined.map(|part| (part.plan, part.shape)))
    }

    fn leaf(&self, input: usize) -> JoinPart {
        JoinPart {
            plan: self.flat.inputs[input].clone(),
            inputs: HashSet::from([input]),
            shape: input.to_string(),
        }
    }

    /// Joins the first part with the others, each as soon as an equality connects it.
    fn join_all(&mut self, mut parts: Vec<JoinPart>) -> Result<Option<JoinPart>> {
        if parts.is_empty() {
            return Ok(None);
        }
        let mut joined = parts.remove(0);
        while !parts.is_empty() {
            let connected = parts.iter().position(|part| {
                (0..self.sides.len()).any(|equality| self.connects(equality, &joined, part))
            });
            let Some(position) = connected else {
                return Ok(None);
            };
            let part = parts.remove(position);
            joined = self.join(joined, part)?;
        }
        Ok(Some(joined))
    }

    fn connects(&self, equality: usize, left: &JoinPart, right: &JoinPart) -> bool {
        let (one, other) = self.sides[equality];
        !self.used_equalities.contains(&equality)
            && ((left.inputs.contains(&one) && right.inputs.contains(&other))
                || (left.inputs.contains(&other) && right.inputs.contains(&one)))
    }

    fn join(&mut self, left: JoinPart, right: JoinPart) -> Result<JoinPart> {
        let mut on = Vec::new();
        for (equality, (one, other)) in self.flat.equalities.iter().enumerate() {
            if self.connects(equality, &left, &right) {
                let is_in_order = left.inputs.contains(&self.sides[equality].0);
                let (one, other) = (one.clone(), other.clone());
                on.push(if is_in_order {
                    (one, other)
                } else {
                    (other, one)
                });
                self.used_equalities.insert(equality);
            }
        }
        let shape = format!("({} {})", left.shape, right.shape);
        let inputs = left.inputs.union(&right.inputs).copied().collect();
        let join = Join::try_new(
            Arc::new(left.plan),
            Arc::new(right.plan),
            on,
            None,
            JoinType::Inner,
            JoinConstraint::On,
            NullEquality::NullEqualsNothing,
            false,
        )?;
        Ok(JoinPart {
            plan: LogicalPlan::Join(join),
            inputs,
            shape,
        })
    }
}
