use std::time::{Duration, Instant};

use prometheus_client::metrics::histogram::Histogram;
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use super::definition::Metric;
use super::samples::Samples;
use crate::Runtimes;

/// Time between two measurements.
const INTERVAL: Duration = Duration::from_secs(1);

const LAG: Metric = Metric::histogram(
    "volary_runtime_lag_seconds",
    &["runtime"],
    "Delay with which a task of the runtime (`io`, `cpu`, `health`) continues after a timer; one measurement a second.",
);

/// The metrics of this file.
pub(crate) const METRICS: &[Metric] = &[LAG];

/// Measures the lag of the runtimes as long as this value lives.
#[derive(Debug)]
pub(crate) struct RuntimeLag {
    measured: [(&'static str, Histogram); 3],
    _measuring: JoinSet<()>,
}

impl RuntimeLag {
    pub(crate) fn measure(runtimes: &Runtimes) -> Self {
        let mut measuring = JoinSet::new();
        let mut start = |name, runtime: &Handle| {
            let lag = Histogram::new([
                0.000_1, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0,
                2.5,
            ]);
            let observed = lag.clone();
            measuring.spawn_on(observe(observed), runtime);
            (name, lag)
        };
        let measured = [
            start("io", runtimes.io()),
            start("cpu", runtimes.cpu()),
            start("health", runtimes.health()),
        ];
        Self {
            measured,
            _measuring: measuring,
        }
    }

    pub(crate) fn collect(&self, samples: &mut Samples) {
        for (name, lag) in &self.measured {
            samples.histogram(LAG, [("runtime", (*name).to_owned())], lag);
        }
    }
}

async fn observe(lag: Histogram) {
    loop {
        let started = Instant::now();
        tokio::time::sleep(INTERVAL).await;
        lag.observe(started.elapsed().saturating_sub(INTERVAL).as_secs_f64());
    }
}
