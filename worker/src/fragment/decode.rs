//! Fragments come in sealed tickets, so only a node of the cluster can have made them. The
//! allow-list is a second protection: a plan that reads or writes files is refused, whoever sealed
//! it.

use std::sync::Arc;

use bytes::Bytes;
use datafusion::arrow::datatypes::Schema;
use datafusion::common::{ScalarValue, internal_err, not_impl_err};
use datafusion::error::DataFusionError;
use datafusion::execution::TaskContext;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_expr_common::physical_expr::proto_decode::PhysicalExprDecodeCtx;
use datafusion::physical_plan::ExecutionPlan;
use datafusion_proto::physical_plan::from_proto::parse_physical_expr_with_converter;
use datafusion_proto::physical_plan::{
    PhysicalExtensionCodec, PhysicalPlanDecodeContext, PhysicalPlanNodeExt,
    PhysicalProtoConverterExtension,
};
use datafusion_proto::protobuf::physical_plan_node::PhysicalPlanType;
use datafusion_proto::protobuf::{self, PhysicalExprNode, PhysicalPlanNode};
use prost::Message;
use volary_exec::checked_arithmetic::checked_operator;
use volary_exec::key_set::KeySetExpr;
use volary_flight_proto::fragment::{Leaf, Parameter, leaf, parameter};
use volary_flight_proto::{Error, ErrorCode, Result};

use super::batch_rows::check_batch_rows;
use super::bind::{Binder, missing_parameter_error};
use super::filtered_scan;

#[cfg(test)]
mod tests;

/// Makes an executable plan from the plan of a fragment. The scans and parameters of the executable
/// plan are bound.
///
/// # Errors
/// Returns `INVALID_ARGUMENT` for an invalid plan, `PERMISSION_DENIED` for an operator that is not
/// allowed, and the errors of binding.
pub fn decode(
    plan: &PhysicalPlanNode,
    binder: &Binder,
    context: &TaskContext,
) -> Result<Arc<dyn ExecutionPlan>> {
    let context = PhysicalPlanDecodeContext::new(context, binder);
    Ok(AllowList.proto_to_execution_plan(plan, &context)?)
}

struct AllowList;

impl PhysicalProtoConverterExtension for AllowList {
    fn proto_to_execution_plan(
        &self,
        node: &PhysicalPlanNode,
        context: &PhysicalPlanDecodeContext<'_>,
    ) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
        if let Some(kind) = &node.physical_plan_type
            && let Err(name) = check_operator(kind)
        {
            return Err(Error::new(
                ErrorCode::PermissionDenied,
                format!("a fragment may not contain {name}"),
            )
            .into());
        }
        match &node.physical_plan_type {
            Some(PhysicalPlanType::Filter(filter)) => check_batch_rows(filter.batch_size)?,
            Some(PhysicalPlanType::CoalesceBatches(coalesce)) => {
                check_batch_rows(coalesce.target_batch_size)?;
            }
            _ => {}
        }
        if let Some(PhysicalPlanType::Filter(filter)) = &node.physical_plan_type
            && let Some(scan) = filtered_scan::late_scan(filter)
        {
            return filtered_scan::decode(filter, scan, context, self);
        }
        node.try_into_physical_plan_with_context(context, self)
    }

    fn execution_plan_to_proto(
        &self,
        _: &Arc<dyn ExecutionPlan>,
        _: &dyn PhysicalExtensionCodec,
    ) -> Result<PhysicalPlanNode, DataFusionError> {
        internal_err!("a worker encodes no fragments")
    }

    fn proto_to_physical_expr(
        &self,
        node: &PhysicalExprNode,
        schema: &Schema,
        context: &PhysicalPlanDecodeContext<'_>,
    ) -> Result<Arc<dyn PhysicalExpr>, DataFusionError> {
        let decoded = parse_physical_expr_with_converter(node, schema, context, self)?;
        checked_operator(decoded, schema)
    }

    fn physical_expr_to_proto(
        &self,
        _: &Arc<dyn PhysicalExpr>,
        _: &dyn PhysicalExtensionCodec,
    ) -> Result<PhysicalExprNode, DataFusionError> {
        internal_err!("a worker encodes no fragments")
    }
}

/// Allows the operators on the list, which work on rows only. Returns the name of any other
/// operator as an error. The match has no catch-all arm, so that every new operator of DataFusion
/// has to be judged.
fn check_operator(kind: &PhysicalPlanType) -> std::result::Result<(), &'static str> {
    match kind {
        PhysicalPlanType::Projection(_)
        | PhysicalPlanType::Filter(_)
        | PhysicalPlanType::CoalesceBatches(_)
        | PhysicalPlanType::GlobalLimit(_)
        | PhysicalPlanType::LocalLimit(_)
        | PhysicalPlanType::Window(_)
        | PhysicalPlanType::Aggregate(_)
        | PhysicalPlanType::HashJoin(_)
        | PhysicalPlanType::SortMergeJoin(_)
        | PhysicalPlanType::NestedLoopJoin(_)
        | PhysicalPlanType::CrossJoin(_)
        | PhysicalPlanType::Union(_)
        | PhysicalPlanType::Interleave(_)
        | PhysicalPlanType::Sort(_)
        | PhysicalPlanType::Unnest(_)
        | PhysicalPlanType::Cooperative(_)
        // The only extension nodes that can be decoded are leaves: see Binder.
        | PhysicalPlanType::Extension(_) => Ok(()),
        PhysicalPlanType::ParquetScan(_) => Err("a Parquet scan"),
        PhysicalPlanType::CsvScan(_) => Err("a CSV scan"),
        PhysicalPlanType::JsonScan(_) => Err("a JSON scan"),
        PhysicalPlanType::AvroScan(_) => Err("an Avro scan"),
        PhysicalPlanType::ArrowScan(_) => Err("an Arrow scan"),
        PhysicalPlanType::MemoryScan(_) => Err("a memory scan"),
        PhysicalPlanType::JsonSink(_) => Err("a JSON sink"),
        PhysicalPlanType::CsvSink(_) => Err("a CSV sink"),
        PhysicalPlanType::ParquetSink(_) => Err("a Parquet sink"),
        PhysicalPlanType::Explain(_) => Err("EXPLAIN"),
        PhysicalPlanType::Analyze(_) => Err("EXPLAIN ANALYZE"),
        PhysicalPlanType::Empty(_) => Err("an empty relation"),
        PhysicalPlanType::PlaceholderRow(_) => Err("a placeholder row"),
        PhysicalPlanType::GenerateSeries(_) => Err("a generated series"),
        PhysicalPlanType::Merge(_) => Err("a merge of partitions"),
        PhysicalPlanType::SortPreservingMerge(_) => Err("a sorted merge of partitions"),
        PhysicalPlanType::Repartition(_) => Err("a repartitioning"),
        PhysicalPlanType::SymmetricHashJoin(_) => Err("a symmetric hash join"),
        PhysicalPlanType::AsyncFunc(_) => Err("an asynchronous function"),
        PhysicalPlanType::Buffer(_) => Err("a buffer"),
        PhysicalPlanType::ScalarSubquery(_) => Err("a scalar subquery"),
    }
}

impl PhysicalExtensionCodec for Binder {
    fn try_decode(
        &self,
        buffer: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        _: &TaskContext,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
        if !inputs.is_empty() {
            return not_impl_err!("a leaf must not have inputs");
        }
        let leaf = Leaf::decode(buffer).map_err(|source| {
            Error::with_source(
                ErrorCode::InvalidArgument,
                "a leaf cannot be decoded",
                source,
            )
        })?;
        match &leaf.kind {
            Some(leaf::Kind::Scan(scan)) => Ok(self.bind_scan(scan)?),
            Some(leaf::Kind::Members(rows)) => Ok(self.bind_members(rows)?),
            None => not_impl_err!("a leaf must be a scan or the rows of other workers"),
        }
    }

    fn try_encode(
        &self,
        _: Arc<dyn ExecutionPlan>,
        _: &mut Vec<u8>,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> Result<(), DataFusionError> {
        internal_err!("a worker encodes no fragments")
    }

    fn try_decode_expr(
        &self,
        buffer: &[u8],
        inputs: &[Arc<dyn PhysicalExpr>],
        _: &PhysicalExprDecodeCtx<'_>,
    ) -> Result<Arc<dyn PhysicalExpr>, DataFusionError> {
        decode_parameter(buffer, inputs, |ordinal| self.parameter_value(ordinal))
    }
}

/// Makes an expression of a fragment, with the ticket's values in place of its parameters.
///
/// # Errors
/// Returns `INVALID_ARGUMENT` for an expression that is not valid, or for missing values.
pub(crate) fn decode_expression(
    expression: &PhysicalExprNode,
    schema: &Schema,
    values: &[Bytes],
    task: &TaskContext,
) -> Result<Arc<dyn PhysicalExpr>> {
    let codec = TicketValues(values.to_vec());
    let context = PhysicalPlanDecodeContext::new(task, &codec);
    Ok(AllowList.proto_to_physical_expr(expression, schema, &context)?)
}

/// The values of a ticket. They decode expressions, and no operators.
#[derive(Debug)]
struct TicketValues(Vec<Bytes>);

impl PhysicalExtensionCodec for TicketValues {
    fn try_decode(
        &self,
        _: &[u8],
        _: &[Arc<dyn ExecutionPlan>],
        _: &TaskContext,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
        internal_err!("an expression contains no operators")
    }

    fn try_encode(
        &self,
        _: Arc<dyn ExecutionPlan>,
        _: &mut Vec<u8>,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> Result<(), DataFusionError> {
        internal_err!("a worker encodes no fragments")
    }

    fn try_decode_expr(
        &self,
        buffer: &[u8],
        inputs: &[Arc<dyn PhysicalExpr>],
        _: &PhysicalExprDecodeCtx<'_>,
    ) -> Result<Arc<dyn PhysicalExpr>, DataFusionError> {
        decode_parameter(buffer, inputs, |ordinal| {
            let value = self.0.get(ordinal as usize);
            value.ok_or_else(|| missing_parameter_error(ordinal, self.0.len()))
        })
    }
}

/// Makes an expression of a parameter and its value.
fn decode_parameter<'a>(
    buffer: &[u8],
    inputs: &[Arc<dyn PhysicalExpr>],
    value: impl Fn(u32) -> Result<&'a Bytes>,
) -> Result<Arc<dyn PhysicalExpr>, DataFusionError> {
    let parameter = Parameter::decode(buffer).map_err(|source| {
        Error::with_source(
            ErrorCode::InvalidArgument,
            "a parameter cannot be decoded",
            source,
        )
    })?;
    match (parameter.kind, inputs) {
        (Some(parameter::Kind::Literal(ordinal)), []) => {
            Ok(Arc::new(Literal::new(scalar(value(ordinal)?)?)))
        }
        (Some(parameter::Kind::KeySet(ordinal)), [key]) => {
            let keys = KeySetExpr::from_bytes(Arc::clone(key), value(ordinal)?)?;
            Ok(Arc::new(keys))
        }
        _ => not_impl_err!(
            "a parameter must be a literal without inputs, or a set of keys with one input"
        ),
    }
}

/// Decodes the value of a literal.
fn scalar(encoded: &Bytes) -> Result<ScalarValue> {
    const WHAT: &str = "the value of a parameter cannot be decoded";
    let value = protobuf::ScalarValue::decode(encoded.clone())
        .map_err(|source| Error::with_source(ErrorCode::InvalidArgument, WHAT, source))?;
    ScalarValue::try_from(&value)
        .map_err(|source| Error::with_source(ErrorCode::InvalidArgument, WHAT, source))
}
