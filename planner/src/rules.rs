use std::sync::Arc;

use datafusion::optimizer::Analyzer;
use datafusion::optimizer::optimizer::Optimizer;
use datafusion::physical_optimizer::ensure_requirements::EnsureRequirements;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::physical_optimizer::output_requirements::OutputRequirements;
use datafusion::prelude::SessionConfig;
use volary_exec::instants::plan_in_utc;
use volary_exec::unambiguous_pushdown::UnambiguousPushdown;
use volary_exec::value_limit::SmallConstantFolding;

use crate::awaited::{AwaitedRule, DynAnalyzerRule, DynLogicalRule, DynPhysicalRule};
use crate::branch_limits::BranchLimits;
use crate::bucket_merge::BucketMerge;
use crate::cut::Cut;
use crate::decimal_operands::DecimalOperands;
use crate::filter_operators::FilterOperators;
use crate::gather_count::GatherCount;
use crate::interval_order::IntervalOrder;
use crate::join_order::LocalJoinsFirst;
use crate::joins::{ColocatedJoins, ReferenceJoins};
use crate::key_filters::KeyFilters;
use crate::not_in::NotInWithNulls;
use crate::peer_frames::PeerFrames;
use crate::relays::RelayTree;
use crate::set_comparison::SetComparisons;
use crate::subqueries::marks::SubqueryMarks;
use crate::text_casts::{TextCasts, TextOperands};
use crate::time_types::TimeTypes;
use crate::time_units::TimeUnits;

/// Returns DataFusion's rules of the analyzer, between those of this crate that must come right
/// before and after them, and followed by `ours`.
pub fn analyzer_rules(ours: Vec<Arc<DynAnalyzerRule>>) -> Vec<Arc<DynAnalyzerRule>> {
    let before: [Arc<DynAnalyzerRule>; 5] = [
        Arc::new(TimeTypes),
        Arc::new(TimeUnits),
        // The next rule compares what is still a double with doubles.
        Arc::new(DecimalOperands),
        Arc::new(TextOperands),
        Arc::new(PeerFrames),
    ];
    let after: [Arc<DynAnalyzerRule>; 2] = [Arc::new(TextCasts), Arc::new(IntervalOrder)];
    let rules = before.into_iter().chain(Analyzer::new().rules);
    let rules = rules.chain(after).chain(ours);
    rules.map(|rule| Arc::new(AwaitedRule(rule)) as _).collect()
}

/// Returns DataFusion's physical rules with the rules of this crate between them.
pub fn physical_rules() -> Vec<Arc<DynPhysicalRule>> {
    // The other rules compare the numbers of rows that filters are estimated to pass.
    let mut rules: Vec<Arc<DynPhysicalRule>> = vec![Arc::new(FilterOperators)];
    for rule in PhysicalOptimizer::new().rules {
        match rule.name() {
            // This rule decides the sides of joins. The distribution is decided next, and depends
            // on them.
            "join_selection" => {
                rules.push(rule);
                rules.push(Arc::new(ReferenceJoins));
            }
            // A later rule combines final aggregates with partial ones, so co-located joins must be
            // known by then.
            "EnsureRequirements" => {
                rules.push(rule);
                rules.push(Arc::new(ColocatedJoins));
            }
            // The remaining rules only add to the plan. After the cut, the plan above the gathers
            // gets the distribution that the gathers really have.
            "EnsureCooperative" => {
                // The order that the query requires must be known again. Otherwise it is lost with
                // the merge above a sort.
                rules.push(Arc::new(OutputRequirements::new_add_mode()));
                rules.push(Arc::new(BranchLimits));
                rules.push(Arc::new(Cut));
                rules.push(Arc::new(EnsureRequirements::new()));
                rules.push(Arc::new(BranchLimits));
                rules.push(Arc::new(OutputRequirements::new_remove_mode()));
                rules.push(rule);
            }
            name if name.starts_with("FilterPushdown") => {
                // The last pushdown rule runs after the cut. By then the joins above the cut have
                // made their filters.
                let is_last = name.ends_with("(Post)");
                rules.push(Arc::new(UnambiguousPushdown(rule)));
                if is_last {
                    rules.push(Arc::new(KeyFilters));
                }
            }
            _ => rules.push(rule),
        }
    }
    rules.push(Arc::new(GatherCount));
    // These rules come last, because other rules look for aggregates and repartitionings.
    rules.push(Arc::new(BucketMerge));
    rules.push(Arc::new(RelayTree));
    let rules = rules.into_iter();
    rules.map(|rule| Arc::new(AwaitedRule(rule)) as _).collect()
}

/// Returns DataFusion's logical rules with the rules of this crate between them.
pub fn logical_rules() -> Vec<Arc<DynLogicalRule>> {
    let mut rules: Vec<Arc<DynLogicalRule>> = Vec::new();
    for rule in Optimizer::new().rules {
        if rule.name() == "rewrite_set_comparison" {
            rules.push(Arc::new(SetComparisons) as _);
        }
        if rule.name() == "decorrelate_predicate_subquery" {
            rules.push(Arc::new(SubqueryMarks) as _);
            rules.push(Arc::new(NotInWithNulls) as _);
        }
        // This rule turns comma-separated tables into joins. Their order is decided next.
        let makes_joins = rule.name() == "eliminate_cross_join";
        if rule.name() == "simplify_expressions" {
            rules.push(Arc::new(SmallConstantFolding::of(rule)) as _);
            continue;
        }
        rules.push(rule);
        if makes_joins {
            rules.push(Arc::new(LocalJoinsFirst) as _);
        }
    }
    let rules = rules.into_iter();
    rules.map(|rule| Arc::new(AwaitedRule(rule)) as _).collect()
}

/// Maximum size of the list of keys that a join's build side sends to its other side, in bytes.
const MAX_KEYS_BYTES: usize = 1 << 20;

/// Sets the planner options that the cut relies on. For `runtime_filter_keys` see
/// [`crate::gather::config::Gather`].
pub fn planner_config(
    config: SessionConfig,
    target_partitions: usize,
    runtime_filter_keys: usize,
) -> SessionConfig {
    // With one partition the planner collects the left side of every join, and no join would be
    // co-located.
    let target_partitions = target_partitions.max(2);
    let mut config = config.with_target_partitions(target_partitions);
    let options = config.options_mut();
    plan_in_utc(options);
    let optimizer = &mut options.optimizer;
    // `ReferenceJoins` decides which sides are collected, by whether a worker can run the join
    // alone and not by size.
    optimizer.hash_join_single_partition_threshold = 0;
    optimizer.hash_join_single_partition_threshold_rows = 0;
    // A gather has as many partitions as the gateway has cores. Spreading the few rows above it
    // costs more than it gains.
    optimizer.enable_round_robin_repartition = false;
    // The scans of a worker do not declare the hash partitioning that an `InterleaveExec` requires.
    optimizer.prefer_existing_union = true;
    // The keys of a join's build side are known before its other side is asked, and are sent in the
    // tickets.
    optimizer.enable_join_dynamic_filter_pushdown = true;
    optimizer.hash_join_inlist_pushdown_max_distinct_values =
        max_keys_per_partition(runtime_filter_keys, target_partitions);
    optimizer.hash_join_inlist_pushdown_max_size = MAX_KEYS_BYTES;
    // Other dynamic filters change while rows arrive, and tickets cannot. Workers make their own.
    optimizer.enable_topk_dynamic_filter_pushdown = false;
    optimizer.enable_aggregate_dynamic_filter_pushdown = false;
    // DataFusion 55 pushes limits through windows and computed columns (apache/datafusion#25066).
    // It cuts off rows that LEAD and LAG look ahead to (#25471). And it loses columns that are
    // computed under the name of another column (#25414).
    optimizer.enable_topk_aggregation = false;
    optimizer.enable_window_limits = false;
    optimizer.enable_leaf_expression_pushdown = false;
    // Each spilled batch gets its own file. With more batches in a file, a repartition may wait for
    // a file that nobody writes to (#24883).
    config.set_u64("datafusion.execution.max_spill_file_size_bytes", 1)
}

/// Returns how many keys each partition of a join may list. If the lists of all partitions together
/// would be too long to send, they are not made. The result is one eighth more than an equal share,
/// because hashes do not divide keys quite equally.
fn max_keys_per_partition(all: usize, partitions: usize) -> usize {
    let equal = all.div_ceil(partitions);
    equal + equal / 8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_of_a_join_share_the_keys_that_may_be_sent() {
        assert_eq!(max_keys_per_partition(0, 16), 0);
        assert_eq!(max_keys_per_partition(3, 2), 2);
        assert_eq!(max_keys_per_partition(16_384, 16), 1_152);
    }

    #[test]
    fn joins_are_ordered_after_they_are_made() {
        let rules = logical_rules();
        let ours = rules
            .iter()
            .position(|rule| rule.name() == "local_joins_first");
        assert!(ours.is_some_and(|at| rules[at - 1].name() == "eliminate_cross_join"));
        let ours = rules
            .iter()
            .position(|rule| rule.name() == "not_in_of_nulls");
        assert!(ours.is_some_and(|at| rules[at + 1].name() == "decorrelate_predicate_subquery"));
    }

    #[test]
    fn our_rules_are_where_they_belong() {
        let rules = physical_rules();
        let at = |name: &str| {
            rules
                .iter()
                .position(|rule| rule.name() == name)
                .unwrap_or_else(|| panic!("{name} is missing"))
        };
        assert_eq!(at("ReferenceJoins"), at("join_selection") + 1);
        assert_eq!(at("ColocatedJoins"), at("EnsureRequirements") + 1);
        assert!(at("ColocatedJoins") < at("CombinePartialFinalAggregate"));
        let around: Vec<_> = rules[at("Cut") - 2..]
            .iter()
            .map(|rule| rule.name())
            .collect();
        assert_eq!(
            around[..6],
            [
                "OutputRequirements",
                "BranchLimits",
                "Cut",
                "EnsureRequirements",
                "BranchLimits",
                "OutputRequirements"
            ]
        );
        assert_eq!(at("KeyFilters"), at("FilterPushdown(Post)") + 1);
        assert!(at("Cut") < at("KeyFilters"));
        assert!(at("PushdownSort") < at("Cut"));
        assert!(at("Cut") < at("SanityCheckPlan"));
        assert_eq!(at("BucketMerge"), rules.len() - 2);
        assert_eq!(at("RelayTree"), rules.len() - 1);
    }
}
