//! What fragments run in: functions, settings, memory.
//!
//! DataFusion makes a few hundred functions and rules for each session, which takes longer than many a fragment. Fragments with the
//! same settings share them.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::execution::TaskContext;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::prelude::SessionContext;
use parking_lot::Mutex;
use volary_flight_proto::fragment::Fragment;

use super::optimize::session_config;

/// Time zones times batch sizes; gateways mostly use one of each.
const MOST: usize = 64;

/// Environments by the settings of fragments.
#[derive(Debug, Default)]
pub struct Environments(Mutex<HashMap<Settings, Arc<TaskContext>>>);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Settings {
    batch_rows: u32,
    target_partitions: usize,
    time_zone: String,
}

impl Environments {
    /// The environment of a fragment.
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
        if let Some(known) = self.0.lock().get(&settings) {
            return Arc::clone(known);
        }
        let config = session_config(
            fragment.batch_rows as usize,
            target_partitions,
            &fragment.time_zone,
        );
        let made = SessionContext::new_with_config_rt(config, Arc::clone(runtime_env)).task_ctx();
        let mut all = self.0.lock();
        if all.len() >= MOST {
            all.clear();
        }
        all.insert(settings, Arc::clone(&made));
        made
    }
}
