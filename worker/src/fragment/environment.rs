//! DataFusion makes a few hundred functions and rules for each session. That takes longer than many
//! fragments take to run. So fragments with the same settings share an environment.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::execution::TaskContext;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::logical_expr::{AggregateUDF, ScalarUDF, WindowUDF};
use datafusion::prelude::SessionContext;
use parking_lot::Mutex;
use volary_exec::date_trunc::date_trunc;
use volary_exec::instants;
use volary_exec::math_order;
use volary_exec::postgres;
use volary_exec::single_row::single_row;
use volary_exec::timestamp_diff::timestamp_diff;
use volary_exec::value_limit::{self, ValueLimit};
use volary_flight_proto::fragment::Fragment;
use volary_node::memory::ByteLimit;

use super::optimize::session_config;

/// Maximum number of environments. There may be one for each combination of time zone and batch
/// size; gateways mostly use one of each.
const MAX_ENVIRONMENTS: usize = 64;

/// The environments, by the settings of fragments.
#[derive(Debug)]
pub struct FragmentEnvironments {
    /// Limit for the size of values that functions make.
    value_limit: ByteLimit,
    by_settings: Mutex<HashMap<Settings, Arc<TaskContext>>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Settings {
    batch_rows: u32,
    target_partitions: usize,
}

impl FragmentEnvironments {
    /// Creates an empty set of environments. `values` limits the size of values that functions
    /// make.
    pub fn new(values: ByteLimit) -> Self {
        Self {
            value_limit: values,
            by_settings: Mutex::default(),
        }
    }

    /// Returns the environment of a fragment.
    pub(crate) fn for_fragment(
        &self,
        fragment: &Fragment,
        target_partitions: usize,
        runtime_env: &Arc<RuntimeEnv>,
    ) -> Arc<TaskContext> {
        let settings = Settings {
            batch_rows: fragment.batch_rows,
            target_partitions,
        };
        if let Some(known) = self.by_settings.lock().get(&settings) {
            return Arc::clone(known);
        }
        let config = session_config(fragment.batch_rows as usize, target_partitions);
        let config = ValueLimit(self.value_limit).set(config);
        let session = SessionContext::new_with_config_rt(config, Arc::clone(runtime_env));
        let state = session.state();
        let bounded =
            value_limit::bounded_functions(state.scalar_functions().values(), self.value_limit);
        for function in bounded
            .into_iter()
            .chain(instants::functions())
            .chain(math_order::functions())
            .chain(postgres::functions())
            .chain([date_trunc(), single_row(), timestamp_diff()])
        {
            session.register_udf(ScalarUDF::clone(&function));
        }
        for function in postgres::window_functions() {
            session.register_udwf(WindowUDF::clone(&function));
        }
        let aggregates = state.aggregate_functions().values();
        for function in value_limit::bounded_aggregates(aggregates, self.value_limit) {
            session.register_udaf(AggregateUDF::clone(&function));
        }
        let environment = session.task_ctx();
        let mut by_settings = self.by_settings.lock();
        if by_settings.len() >= MAX_ENVIRONMENTS {
            by_settings.clear();
        }
        by_settings.insert(settings, Arc::clone(&environment));
        environment
    }
}
