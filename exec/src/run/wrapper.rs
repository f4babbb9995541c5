use std::fmt;
use std::sync::Arc;

use datafusion::common::internal_err;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties,
    ReplaceChildrenOptions,
};

/// An action that a [`WrapperExec`] adds to an operator.
pub(super) trait Wrapper: fmt::Debug + Send + Sync + 'static {
    /// Name of the wrapping operator in displayed plans.
    const NAME: &'static str;

    /// Starts a partition.
    ///
    /// # Errors
    /// The errors of the wrapped operator and of the action.
    fn execute(
        &self,
        within: &Arc<dyn ExecutionPlan>,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream>;
}

/// An operator that wraps another one and has all properties of it.
#[derive(Debug)]
pub(super) struct WrapperExec<A> {
    inner: Arc<dyn ExecutionPlan>,
    wrapper: Arc<A>,
}

impl<A: Wrapper> WrapperExec<A> {
    /// Wraps an operator. Call it after all planner rules have run.
    pub(super) fn wrap(within: Arc<dyn ExecutionPlan>, around: A) -> Arc<dyn ExecutionPlan> {
        Arc::new(Self {
            inner: within,
            wrapper: Arc::new(around),
        })
    }
}

impl<A: Wrapper> DisplayAs for WrapperExec<A> {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(A::NAME)
    }
}

impl<A: Wrapper> ExecutionPlan for WrapperExec<A> {
    fn name(&self) -> &'static str {
        A::NAME
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.inner.properties()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.inner]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match (children.pop(), children.is_empty()) {
            (Some(within), true) => Ok(Arc::new(Self {
                inner: within,
                wrapper: Arc::clone(&self.wrapper),
            })),
            _ => internal_err!("{} has one child", A::NAME),
        }
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let recompute = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        self.replace_children(children, recompute)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        self.wrapper.execute(&self.inner, partition, context)
    }
}
