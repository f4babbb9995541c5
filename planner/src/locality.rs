//! The place of a subtree is decided bottom-up from properties: the distribution that an operator
//! requires of its inputs, and the distribution that the inputs declare. Operators that are unknown
//! here run on the gateway.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::common::JoinType;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::physical_expr::Distribution;
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_optimizer::output_requirements::OutputRequirementExec;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::distribution_requirements::ChildSatisfactionOptions;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, NestedLoopJoinExec, PartitionMode, SortMergeJoinExec,
};
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::unnest::UnnestExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use volary_flight_proto::ids::WorkerId;

use crate::colocation::is_colocated;
use crate::fragment::ShardScanExec;

/// The place where a subtree can run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Locality {
    /// Each worker runs the subtree over its shards. The result is the union of their results.
    Sharded {
        /// The workers that hold the shards.
        workers: BTreeSet<WorkerId>,
    },
    /// Each of these workers can run the whole subtree, with the same rows. The subtree reads only
    /// reference tables, and does not choose among their rows.
    Replicated {
        /// The workers that have a copy of all tables of the subtree.
        copies: BTreeSet<WorkerId>,
    },
    /// Any one of these workers can run the whole subtree, but another one may return other rows.
    OneWorker {
        /// The workers that have a copy of all tables of the subtree.
        copies: BTreeSet<WorkerId>,
    },
    /// The gateway runs the subtree, for this reason.
    Gateway(Cow<'static, str>),
}

fn gateway(reason: impl Into<Cow<'static, str>>) -> Locality {
    Locality::Gateway(reason.into())
}

/// Returns where `plan` can run, given where its children can run.
pub(crate) fn locality(plan: &Arc<dyn ExecutionPlan>, children: &[Locality]) -> Locality {
    if let Some(scan) = plan.downcast_ref::<ShardScanExec>() {
        return if scan.is_reference() {
            Locality::Replicated {
                copies: scan.workers(),
            }
        } else {
            Locality::Sharded {
                workers: scan.workers(),
            }
        };
    }
    match children {
        [] => gateway(format!("{} reads no table", plan.name())),
        [child] => unary(plan, child),
        [left, right] if is_join(plan) => join(plan, left, right),
        many => union(plan, many),
    }
}

fn unary(plan: &Arc<dyn ExecutionPlan>, child: &Locality) -> Locality {
    match child {
        Locality::Gateway(_) => gateway("its input is on the gateway"),
        Locality::Sharded { workers } => match check_shard_local(plan) {
            Ok(()) => Locality::Sharded {
                workers: workers.clone(),
            },
            Err(reason) => gateway(reason),
        },
        Locality::Replicated { copies } => {
            let keeps_rows = plan.is::<FilterExec>() || plan.is::<ProjectionExec>();
            if keeps_rows && !is_nondeterministic(plan) {
                Locality::Replicated {
                    copies: copies.clone(),
                }
            } else {
                one_worker(plan, copies)
            }
        }
        Locality::OneWorker { copies } => one_worker(plan, copies),
    }
}

/// Returns where an operator runs if its whole input is on one worker: any operator of the
/// allow-list may run there.
fn one_worker(plan: &Arc<dyn ExecutionPlan>, copies: &BTreeSet<WorkerId>) -> Locality {
    let is_allowed = plan.is::<FilterExec>()
        || plan.is::<ProjectionExec>()
        || plan.is::<SortExec>()
        || plan.is::<LocalLimitExec>()
        || plan.is::<GlobalLimitExec>()
        || plan.is::<AggregateExec>()
        || plan.is::<WindowAggExec>()
        || plan.is::<BoundedWindowAggExec>()
        || plan.is::<UnnestExec>();
    if is_allowed && plan.output_partitioning().partition_count() == 1 {
        Locality::OneWorker {
            copies: copies.clone(),
        }
    } else {
        gateway(gateway_reason(plan))
    }
}

/// Refuses an operator that returns other rows if it runs on each shard separately. The error is
/// the reason.
fn check_shard_local(plan: &Arc<dyn ExecutionPlan>) -> Result<(), Cow<'static, str>> {
    let is_allowed = plan.is::<FilterExec>()
        || plan.is::<ProjectionExec>()
        || plan.is::<LocalLimitExec>()
        || plan.is::<UnnestExec>()
        || plan
            .downcast_ref::<SortExec>()
            .is_some_and(SortExec::preserve_partitioning)
        || plan
            .downcast_ref::<AggregateExec>()
            .is_some_and(|aggregate| {
                matches!(
                    aggregate.mode(),
                    AggregateMode::Partial
                        | AggregateMode::FinalPartitioned
                        | AggregateMode::SinglePartitioned
                )
            })
        || plan.is::<WindowAggExec>()
        || plan.is::<BoundedWindowAggExec>();
    if !is_allowed {
        return Err(gateway_reason(plan));
    }
    let requirements = plan.input_distribution_requirements();
    for (position, child) in plan.children().into_iter().enumerate() {
        let satisfied = match requirements.child_distribution(position) {
            None | Some(Distribution::UnspecifiedDistribution) => true,
            // A scan declares many partitions, so `SinglePartition` is never satisfied.
            Some(_) => requirements
                .child_satisfaction(
                    position,
                    child.as_ref(),
                    ChildSatisfactionOptions::new().with_allow_subset(!has_grouping_sets(plan)),
                )
                .is_ok_and(|satisfaction| satisfaction.is_satisfied()),
        };
        if !satisfied {
            return Err(format!("{} needs rows of several shards together", plan.name()).into());
        }
    }
    Ok(())
}

fn has_grouping_sets(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.downcast_ref::<AggregateExec>()
        .is_some_and(|aggregate| aggregate.group_expr().has_grouping_set())
}

fn is_join(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.is::<HashJoinExec>()
        || plan.is::<SortMergeJoinExec>()
        || plan.is::<NestedLoopJoinExec>()
        || plan.is::<CrossJoinExec>()
}

fn join(plan: &Arc<dyn ExecutionPlan>, left: &Locality, right: &Locality) -> Locality {
    match (left, right) {
        (Locality::Gateway(_), _) | (_, Locality::Gateway(_)) => {
            gateway("one side of the join is on the gateway")
        }
        (Locality::Sharded { workers: left }, Locality::Sharded { workers: right }) => {
            if is_colocated(plan) {
                Locality::Sharded {
                    workers: left.union(right).copied().collect(),
                }
            } else {
                gateway(
                    "the tables are not co-located on the join key (equal shard keys and shard counts)",
                )
            }
        }
        (Locality::Replicated { copies }, Locality::Sharded { workers }) => {
            if !collects_left(plan) {
                gateway("rows of the reference table that match nothing would come once per worker")
            } else if !workers.is_subset(copies) {
                gateway("not every worker has a copy of the reference table")
            } else {
                Locality::Sharded {
                    workers: workers.clone(),
                }
            }
        }
        (Locality::Sharded { .. }, Locality::Replicated { .. }) => {
            gateway("rows of the reference table that match nothing would come once per worker")
        }
        (Locality::Replicated { copies: left }, Locality::Replicated { copies: right }) => {
            let copies: BTreeSet<_> = left.intersection(right).copied().collect();
            if copies.is_empty() {
                gateway("no worker has a copy of both reference tables")
            } else if is_nondeterministic(plan) {
                Locality::OneWorker { copies }
            } else {
                Locality::Replicated { copies }
            }
        }
        (
            Locality::Replicated { copies: left } | Locality::OneWorker { copies: left },
            Locality::Replicated { copies: right } | Locality::OneWorker { copies: right },
        ) => {
            let copies: BTreeSet<_> = left.intersection(right).copied().collect();
            if copies.is_empty() {
                gateway("no worker has a copy of both reference tables")
            } else {
                Locality::OneWorker { copies }
            }
        }
        (Locality::OneWorker { .. }, Locality::Sharded { .. })
        | (Locality::Sharded { .. }, Locality::OneWorker { .. }) => {
            gateway("one side of the join is whole on one worker only")
        }
    }
}

/// Returns whether the left side is collected as a whole, and emits no row without a match. If the
/// left side is the same on all workers, they together then return each result row once.
fn collects_left(plan: &Arc<dyn ExecutionPlan>) -> bool {
    if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        return *join.partition_mode() == PartitionMode::CollectLeft
            && !join.null_aware
            && emits_right_side_only(*join.join_type());
    }
    if let Some(join) = plan.downcast_ref::<NestedLoopJoinExec>() {
        return emits_right_side_only(*join.join_type());
    }
    plan.is::<CrossJoinExec>()
}

/// Returns whether a join of this type emits rows only for rows of its right side. It emits no left
/// row without a match, and no left row only once for all its matches.
pub(crate) fn emits_right_side_only(join_type: JoinType) -> bool {
    match join_type {
        JoinType::Inner
        | JoinType::Right
        | JoinType::RightSemi
        | JoinType::RightAnti
        | JoinType::RightMark => true,
        JoinType::Left
        | JoinType::Full
        | JoinType::LeftSemi
        | JoinType::LeftAnti
        | JoinType::LeftMark => false,
    }
}

fn union(plan: &Arc<dyn ExecutionPlan>, children: &[Locality]) -> Locality {
    if !plan.is::<UnionExec>() {
        return gateway(gateway_reason(plan));
    }
    let mut workers = BTreeSet::new();
    for child in children {
        match child {
            Locality::Sharded { workers: more } => workers.extend(more),
            _ => return gateway("a branch of the union does not run on the shards"),
        }
    }
    Locality::Sharded { workers }
}

/// Returns whether two workers with the same input rows may return different rows. They may if the
/// operator takes some of its rows without saying which, or has an expression like `random()`.
pub(crate) fn is_nondeterministic(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.fetch().is_some() || has_volatile_expression(plan)
}

/// Returns whether an expression of the operator itself has another value each time, like
/// `random()`.
fn has_volatile_expression(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let mut found = false;
    let visited = plan.apply_expressions(&mut |expression| {
        found |= is_volatile(expression);
        Ok(TreeNodeRecursion::Continue)
    });
    found || visited.is_err()
}

fn gateway_reason(plan: &Arc<dyn ExecutionPlan>) -> Cow<'static, str> {
    if plan.is::<OutputRequirementExec>() {
        "it is the whole query".into()
    } else if plan.is::<RepartitionExec>() {
        "rows of several shards meet by another key than the shard key".into()
    } else if plan.is::<SortPreservingMergeExec>() {
        "the sorted rows of several shards are merged".into()
    } else if plan.is::<CoalescePartitionsExec>() || plan.is::<GlobalLimitExec>() {
        "rows of several shards meet in one place".into()
    } else {
        format!("{} does not run on workers", plan.name()).into()
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::{DataType, Field, Schema};
    use datafusion::physical_expr::Partitioning;
    use datafusion::physical_expr::expressions::col;
    use datafusion::physical_plan::empty::EmptyExec;
    use datafusion::physical_plan::union::InterleaveExec;

    use super::*;

    /// Returns rows that are partitioned by their only column.
    fn partitioned() -> Arc<dyn ExecutionPlan> {
        let fields = vec![Field::new("k", DataType::Int64, true)];
        let schema = Arc::new(Schema::new(fields));
        let key = col("k", &schema).unwrap();
        let rows = Arc::new(EmptyExec::new(schema));
        Arc::new(RepartitionExec::try_new(rows, Partitioning::Hash(vec![key], 4)).unwrap())
    }

    fn on_shards() -> Locality {
        Locality::Sharded {
            workers: BTreeSet::from([WorkerId(1)]),
        }
    }

    #[test]
    fn operators_that_are_not_known_run_on_the_gateway() {
        let branches = vec![partitioned(), partitioned()];
        let known = UnionExec::try_new(branches.clone()).unwrap();
        assert_eq!(locality(&known, &[on_shards(), on_shards()]), on_shards());
        let unknown: Arc<dyn ExecutionPlan> = Arc::new(InterleaveExec::try_new(branches).unwrap());
        assert_eq!(
            locality(&unknown, &[on_shards(), on_shards()]),
            gateway("InterleaveExec does not run on workers")
        );
    }

    #[test]
    fn a_union_with_a_branch_on_the_gateway_runs_there() {
        let union = UnionExec::try_new(vec![partitioned(), partitioned()]).unwrap();
        let copy = Locality::Replicated {
            copies: BTreeSet::from([WorkerId(1)]),
        };
        for other in [gateway("a reason"), copy] {
            assert!(matches!(
                locality(&union, &[on_shards(), other]),
                Locality::Gateway(_)
            ));
        }
    }
}
