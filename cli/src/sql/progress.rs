use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::client::StatementProgress;

/// Time after which the bar appears. A shorter statement needs no bar.
const SHOW_DELAY: Duration = Duration::from_millis(400);
const STEPS: u64 = 1_000;

/// The bar of one statement. The bar disappears when it is dropped.
pub(super) struct Progress {
    since: Instant,
    bar: Option<ProgressBar>,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self {
            since: Instant::now(),
            bar: None,
        }
    }

    /// Updates the bar with the progress that the gateway has reported.
    pub(super) fn update(&mut self, polled: &StatementProgress<'_>) {
        if self.since.elapsed() < SHOW_DELAY {
            return;
        }
        let bar = self.bar.get_or_insert_with(|| {
            let bar = ProgressBar::new(STEPS);
            if let Ok(style) = ProgressStyle::with_template("{elapsed} {bar:40} {percent}%") {
                bar.set_style(style);
            }
            bar
        });
        let done = polled.progress.unwrap_or_default().clamp(0.0, 1.0);
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "it is between 0 and 1"
        )]
        bar.set_position((done * STEPS as f64) as u64);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
