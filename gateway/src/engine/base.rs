use std::sync::Arc;

use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::session_state::SessionState;
use datafusion::execution::{FunctionRegistry, SessionStateBuilder, SessionStateDefaults};
use datafusion::prelude::SessionConfig;
use volary_exec::date_trunc::date_trunc;
use volary_exec::instants;
use volary_exec::math_order;
use volary_exec::postgres;
use volary_exec::single_row::single_row;
use volary_exec::timestamp_diff::timestamp_diff;
use volary_exec::value_limit::{self, BoundedFunctions, ValueLimit};
use volary_flight_proto::Result;
use volary_planner::aggregate_order::UnorderedAggregates;
use volary_planner::clock;
use volary_planner::large_filters::LargeFilterPlanner;
use volary_planner::narrowing_casts::NarrowingCasts;
use volary_planner::rules::{analyzer_rules, logical_rules, physical_rules, planner_config};
use volary_planner::session_functions;
use volary_planner::session_settings::SessionSettings;
use volary_planner::session_zone::SessionZone;
use volary_planner::subqueries::places::SubqueryPlaces;
use volary_planner::time_arithmetic::TimeArithmetic;
use volary_planner::time_units::TimesOfDay;

use super::parameter_planner::ParameterPlanner;
use super::{nested_types, parsed_types};
use crate::config::Config;
use crate::sql::names::{CATALOG, PUBLIC};
use crate::sql::types::SqlTypes;

/// Creates DataFusion's session without the catalog's tables, the settings of a client's session
/// and the query's own memory. Every statement adds these.
pub(super) fn base_state(config: &Config, runtime_env: Arc<RuntimeEnv>) -> Result<SessionState> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let target_partitions = config.query.target_partitions.unwrap_or(cores);
    let limits = SessionSettings::new(
        config.query.timeout,
        config.query_memory_limit(),
        config.gather.relays,
    );
    let session = SessionConfig::new()
        .with_option_extension(limits)
        .with_create_default_catalog_and_schema(false)
        .with_default_catalog_and_schema(CATALOG, PUBLIC)
        // Volary has its own.
        .with_information_schema(false)
        .with_batch_size(config.query.batch_rows.max(1));
    let session = ValueLimit(config.query.value_limit()).set(session);
    let defaults = SessionStateDefaults::default_scalar_functions();
    let functions = value_limit::bounded_functions(&defaults, config.query.value_limit());
    let type_building_functions =
        nested_types::bounded_functions(&defaults, config.query.max_columns);
    let mut state = SessionStateBuilder::new()
        .with_config(planner_config(
            session,
            target_partitions,
            config.gather.runtime_filter_keys,
        ))
        .with_runtime_env(runtime_env)
        // DataFusion asks this planner before its own planners.
        .with_expr_planners(vec![
            Arc::new(nested_types::BoundedLiteralPlanner::of(
                &type_building_functions,
            )),
            Arc::new(TimesOfDay),
            Arc::new(TimeArithmetic),
            Arc::new(ParameterPlanner),
        ])
        .with_type_planner(Arc::new(SqlTypes))
        .with_default_features()
        .with_analyzer_rules(analyzer_rules(vec![
            Arc::new(SubqueryPlaces),
            Arc::new(UnorderedAggregates),
            Arc::new(SessionZone),
            Arc::new(NarrowingCasts),
            Arc::new(BoundedFunctions::new(&functions)),
        ]))
        .with_optimizer_rules(logical_rules())
        .with_physical_optimizer_rules(physical_rules())
        .with_query_planner(Arc::new(LargeFilterPlanner))
        .build();
    let type_parsing_functions =
        parsed_types::bounded_functions(&defaults, config.query.max_type_depth);
    let bounded = functions.into_iter().chain(type_parsing_functions);
    let bounded = bounded.chain(type_building_functions);
    let bounded = bounded.chain(instants::functions());
    let bounded = bounded.chain(math_order::functions());
    let bounded = bounded.chain(postgres::functions());
    let bounded = bounded.chain([date_trunc(), single_row(), timestamp_diff()]);
    let of_session = session_functions::functions(env!("CARGO_PKG_VERSION"));
    for function in bounded.chain(clock::functions()).chain(of_session) {
        state.register_udf(function)?;
    }
    for function in postgres::window_functions() {
        state.register_udwf(function)?;
    }
    let aggregates = SessionStateDefaults::default_aggregate_functions();
    for function in value_limit::bounded_aggregates(&aggregates, config.query.value_limit()) {
        state.register_udaf(function)?;
    }
    Ok(state)
}
