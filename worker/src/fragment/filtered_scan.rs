//! A filter over a scan that reads columns late is decoded into that scan. DataFusion would first
//! build an operator for the filter, with estimates that nobody reads here. Then it would push the
//! filter down, which builds both the filter and the scan again. For a query of one row, this took
//! a fifth of the worker's time.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::config::ConfigOptions;
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::{DataFusionError, Result};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::projection::ProjectionExprs;
use datafusion::physical_expr::utils::split_conjunction;
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::FilterExecBuilder;
use datafusion::physical_plan::filter_pushdown::PushedDown;
use datafusion_proto::physical_plan::{PhysicalPlanDecodeContext, PhysicalProtoConverterExtension};
use datafusion_proto::protobuf::physical_plan_node::PhysicalPlanType;
use datafusion_proto::protobuf::{FilterExecNode, PhysicalPlanNode};
use prost::Message;
use volary_flight_proto::fragment::{Leaf, leaf};

/// Returns the scan below a filter, if the scan reads columns late.
pub(super) fn late_scan(filter: &FilterExecNode) -> Option<&PhysicalPlanNode> {
    let input = filter.input.as_deref()?;
    let Some(PhysicalPlanType::Extension(leaf)) = &input.physical_plan_type else {
        return None;
    };
    let leaf = Leaf::decode(&leaf.node[..]).ok()?;
    matches!(leaf.kind, Some(leaf::Kind::Scan(scan)) if scan.late_materialisation).then_some(input)
}

/// Decodes a filter and its scan. The scan applies the filter itself where it can.
///
/// # Errors
/// Returns the errors of decoding the filter or the scan.
pub(super) fn decode(
    filter: &FilterExecNode,
    scan: &PhysicalPlanNode,
    context: &PhysicalPlanDecodeContext<'_>,
    converter: &dyn PhysicalProtoConverterExtension,
) -> Result<Arc<dyn ExecutionPlan>> {
    let scan = converter.proto_to_execution_plan(scan, context)?;
    let predicate = filter.expr.as_ref().ok_or_else(|| {
        DataFusionError::Plan("a filter of a fragment has no predicate".to_owned())
    })?;
    let predicate = converter.proto_to_physical_expr(predicate, &scan.schema(), context)?;
    let columns = filter.projection.iter().map(|column| *column as usize);
    let columns: Vec<usize> = columns.collect();
    if filter.fetch.is_none()
        && let Some(filtered) = push_filter_into_scan(&scan, &predicate, &columns)?
    {
        return Ok(filtered);
    }
    let filter = filter_above(scan, predicate, columns)?
        .with_batch_size(filter.batch_size as usize)
        .with_fetch(filter.fetch.map(|rows| rows as usize))
        .build()?;
    Ok(Arc::new(filter))
}

/// Returns the rows of a scan that pass the predicate, with these columns. If the scan reads
/// columns late, it applies the predicate itself where it can.
///
/// # Errors
/// Returns the errors of building the operators.
pub(super) fn filter_scan(
    scan: Arc<dyn ExecutionPlan>,
    predicate: Arc<dyn PhysicalExpr>,
    columns: Vec<usize>,
    reads_late: bool,
) -> Result<Arc<dyn ExecutionPlan>> {
    if reads_late && let Some(filtered) = push_filter_into_scan(&scan, &predicate, &columns)? {
        return Ok(filtered);
    }
    Ok(Arc::new(filter_above(scan, predicate, columns)?.build()?))
}

/// Begins a filter above a scan that returns these columns.
fn filter_above(
    scan: Arc<dyn ExecutionPlan>,
    predicate: Arc<dyn PhysicalExpr>,
    columns: Vec<usize>,
) -> Result<FilterExecBuilder> {
    let all_columns = columns.iter().copied().eq(0..scan.schema().fields().len());
    FilterExecBuilder::new(predicate, scan).apply_projection((!all_columns).then_some(columns))
}

/// Returns a scan that applies the predicate itself and returns these columns. Returns `None` if
/// the scan cannot do all of that.
pub(crate) fn push_filter_into_scan(
    scan: &Arc<dyn ExecutionPlan>,
    predicate: &Arc<dyn PhysicalExpr>,
    columns: &[usize],
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let schema = scan.schema();
    let column_count = schema.fields().len();
    let Some(scan) = scan.downcast_ref::<DataSourceExec>() else {
        return Ok(None);
    };
    // The scan evaluates the predicate only on rows that it reads, and in an order of its own. So a
    // volatile expression, whose value may differ each time, stays above the scan.
    if columns.iter().any(|column| *column >= column_count)
        || predicate.data_type(&schema)? != DataType::Boolean
        || is_volatile(predicate)
    {
        return Ok(None);
    }
    // The conjuncts are pushed one by one, because a scan accepts a conjunction even if it can
    // apply only a part of it.
    let conjuncts = split_conjunction(predicate).into_iter().map(Arc::clone);
    let source = scan.data_source();
    let pushed = source.try_pushdown_filters(conjuncts.collect(), &ConfigOptions::default())?;
    let all_pushed = pushed
        .filters
        .iter()
        .all(|pushed| matches!(pushed, PushedDown::Yes));
    let Some(source) = pushed.updated_node.filter(|_| all_pushed) else {
        return Ok(None);
    };
    if columns.iter().copied().eq(0..column_count) {
        return Ok(Some(Arc::new(DataSourceExec::new(source))));
    }
    let projection = ProjectionExprs::from_indices(columns, &schema);
    let projected = source.try_swapping_with_projection(&projection)?;
    Ok(projected.map(|source| Arc::new(DataSourceExec::new(source)) as Arc<dyn ExecutionPlan>))
}
