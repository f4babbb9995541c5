use std::sync::{Arc, OnceLock};

use tokio_util::sync::{CancellationToken, DropGuard};
use volary_flight_proto::{Error, ErrorCode};

use super::turns::Work;

/// Owns a plan that runs or is to be run. Dropping it stops the plan's joins.
#[derive(Debug)]
pub struct PlanOwner {
    plan: RunningPlan,
    _ended: DropGuard,
}

impl PlanOwner {
    /// Creates the owner of a plan. All tasks of the plan belong to `work`, and `ended` stops them.
    pub fn new(work: Work, ended: CancellationToken) -> Self {
        let plan = RunningPlan {
            work,
            ended: ended.clone(),
            reason: Arc::default(),
        };
        Self {
            plan,
            _ended: ended.drop_guard(),
        }
    }

    /// Returns the work that all tasks of the plan belong to.
    pub(crate) fn work(&self) -> &Work {
        &self.plan.work
    }

    /// Returns a handle with which others can inspect the plan and end it.
    pub fn running_plan(&self) -> RunningPlan {
        self.plan.clone()
    }

    /// Returns the error of the plan if it was ended.
    pub(crate) fn error(&self) -> Option<Error> {
        self.plan.error()
    }

    /// Runs `action` as a part of the plan: the memory that it reserves is counted as the plan's.
    pub fn start<T>(&self, action: impl FnOnce() -> T) -> T {
        self.plan.work.run(action)
    }
}

/// A handle of a running plan, for others than its reader. Clones are handles of the same plan.
#[derive(Debug, Clone)]
pub struct RunningPlan {
    work: Work,
    ended: CancellationToken,
    /// Reason why the plan was ended. It is not set if the plan ended because its reader dropped
    /// it.
    reason: Arc<OnceLock<String>>,
}

impl RunningPlan {
    /// Returns the bytes that the plan's operators hold of the node's memory.
    pub fn held_bytes(&self) -> usize {
        self.work.held_bytes()
    }

    /// Ends the plan with `RESOURCE_EXHAUSTED`. Returns false if the plan has already ended.
    pub fn end(&self, reason: &str) -> bool {
        let is_first = !self.ended.is_cancelled() && self.reason.set(reason.to_owned()).is_ok();
        if is_first {
            self.ended.cancel();
        }
        is_first
    }

    /// Completes with the error of the plan when it was [ended](Self::end).
    pub(crate) async fn wait_ended(&self) -> Error {
        self.ended.cancelled().await;
        match self.error() {
            Some(error) => error,
            None => std::future::pending().await,
        }
    }

    /// Returns the error of the plan if it was [ended](Self::end).
    pub(crate) fn error(&self) -> Option<Error> {
        let reason = self.reason.get()?;
        Some(Error::new(ErrorCode::ResourceExhausted, reason.as_str()))
    }
}
