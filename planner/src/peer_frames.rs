//! DataFusion 55 refuses a window in the order of UUIDs, binary values, intervals or durations with
//! an internal error, because it cannot add a distance to such values. But the usual frame, from
//! the first row to the peers of the current one, has no distance. [`PeerFrames`] writes it as
//! `GROUPS`, which means the same and adds nothing.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{
    Expr, ExprSchemable, LogicalPlan, WindowFrame, WindowFrameBound, WindowFrameUnits,
};
use datafusion::optimizer::AnalyzerRule;
use volary_exec::rewrite::rewrite_expressions;

/// Writes frames by value that have no distance as frames by groups of equal values, for types
/// without distances. It must run before the rule that makes the types of frames agree.
#[derive(Debug)]
pub(crate) struct PeerFrames;

impl AnalyzerRule for PeerFrames {
    fn name(&self) -> &'static str {
        "peer_frames"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let plan = plan.transform_up_with_subqueries(|node| match node {
            LogicalPlan::Window(_) => rewrite_expressions(node, by_groups),
            other => Ok(Transformed::no(other)),
        })?;
        Ok(plan.data)
    }
}

/// Writes the frame of a window function by groups, if it is one that DataFusion refuses.
fn by_groups(mut part: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let Expr::WindowFunction(call) = &mut part else {
        return Ok(Transformed::no(part));
    };
    let (frame, order) = (&call.params.window_frame, &call.params.order_by);
    let Some(first) = order.first() else {
        return Ok(Transformed::no(part));
    };
    if frame.units != WindowFrameUnits::Range {
        return Ok(Transformed::no(part));
    }
    let data_type = first.expr.get_type(schema)?;
    if !lacks_distances(&data_type) {
        return Ok(Transformed::no(part));
    }
    if has_distance(&frame.start_bound) || has_distance(&frame.end_bound) {
        return plan_err!(
            "a frame RANGE BETWEEN … with a distance cannot be in the order of values of type {data_type}; use ROWS, or order by a number or a time"
        );
    }
    call.params.window_frame = WindowFrame::new_bounds(
        WindowFrameUnits::Groups,
        frame.start_bound.clone(),
        frame.end_bound.clone(),
    );
    Ok(Transformed::yes(part))
}

fn lacks_distances(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::FixedSizeBinary(_)
            | DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
            | DataType::Interval(_)
            | DataType::Duration(_)
            | DataType::Struct(_)
    )
}

fn has_distance(bound: &WindowFrameBound) -> bool {
    match bound {
        // NULL stands for UNBOUNDED.
        WindowFrameBound::Preceding(distance) | WindowFrameBound::Following(distance) => {
            !distance.is_null()
        }
        WindowFrameBound::CurrentRow => false,
    }
}
