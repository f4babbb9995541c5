//! Environments that fragments run in: functions, settings and memory.
//!
//! DataFusion makes a few hundred functions and rules for each session. That takes longer than many
//! fragments take to run. So fragments with the same settings share an environment.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::execution::TaskContext;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::logical_expr::{AggregateUDF, ScalarUDF};
use datafusion::prelude::SessionContext;
use parking_lot::Mutex;
use volary_flight_proto::fragment::Fragment;
use volary_node::memory::Limit;
use volary_node::value_limit::{self, ValueLimit};

use super::optimize::session_config;

/// Maximum number of environments. There may be one for each combination of time zone and batch
/// size; gateways mostly use one of each.
const MOST: usize = 64;

/// The environments, by the settings of fragments.
#[derive(Debug)]
pub struct Environments {
    /// Limit for the size of values that functions make.
    values: Limit,
    known: Mutex<HashMap<Settings, Arc<TaskContext>>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Settings {
    batch_rows: u32,
    target_partitions: usize,
    time_zone: String,
}

impl Environments {
    /// Creates an empty set of environments. `values` limits the size of values that functions
    /// make.
    pub fn new(values: Limit) -> Self {
        Self {
            values,
            known: Mutex::default(),
        }
    }

    /// Returns the environment of a fragment.
    pub fn of(
        &self,
        fragment: &Fragment,
        target_partitions: usize,
        runtime_env: &Arc<RuntimeEnv>,
    ) -> Arc<TaskContext> {
        let settings = Settings {
            batch_rows: fragment.batch_rows,
            target_partitions,
            time_zone: fragment.time_zone.clone(),
        };
        if let Some(known) = self.known.lock().get(&settings) {
            return Arc::clone(known);
        }
        let config = session_config(
            fragment.batch_rows as usize,
            target_partitions,
            &fragment.time_zone,
        );
        let config = ValueLimit(self.values).set(config);
        let session = SessionContext::new_with_config_rt(config, Arc::clone(runtime_env));
        let known = session.state();
        for function in value_limit::bounded(known.scalar_functions().values(), self.values) {
            session.register_udf(ScalarUDF::clone(&function));
        }
        let aggregates = known.aggregate_functions().values();
        for function in value_limit::bounded_aggregates(aggregates, self.values) {
            session.register_udaf(AggregateUDF::clone(&function));
        }
        let made = session.task_ctx();
        let mut all = self.known.lock();
        if all.len() >= MOST {
            all.clear();
        }
        all.insert(settings, Arc::clone(&made));
        made
    }
}
