//! The encoded plan of a fragment contains no values. Each literal, value of a scalar subquery and
//! set of keys becomes a [`Parameter`] in the plan. The values are sent beside the plan, by
//! ordinal. So statements that differ only in their values are the same fragment for the workers,
//! which keep its plan.

use std::any::Any;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, FieldRef, Schema};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{ScalarValue, internal_err, not_impl_err};
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{DynamicFilterPhysicalExpr, Literal};
use datafusion::physical_expr::scalar_subquery::ScalarSubqueryExpr;
use datafusion::physical_expr_common::physical_expr::proto_encode::PhysicalExprEncodeCtx;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion_proto::physical_plan::to_proto::serialize_physical_expr_with_converter;
use datafusion_proto::physical_plan::{
    PhysicalExtensionCodec, PhysicalPlanDecodeContext, PhysicalPlanNodeExt,
    PhysicalProtoConverterExtension,
};
use datafusion_proto::protobuf::physical_expr_node::ExprType;
use datafusion_proto::protobuf::physical_plan_node::PhysicalPlanType;
use datafusion_proto::protobuf::{
    self, PhysicalExprNode, PhysicalExtensionExprNode, PhysicalPlanNode,
};
use prost::Message;
use volary_catalog::Retention;
use volary_exec::key_set::KeySetExpr;
use volary_flight_proto::fragment::{
    Leaf, MemberRows, Parameter, Parameters, ShardScan, Sharding, leaf, parameter,
};
use volary_flight_proto::ipc;
use volary_gather::members::MembersExec;

use super::shard_scan::ShardScanExec;
use super::statement_parameter;
use crate::value_list::ValueList;

#[cfg(test)]
mod tests;

/// The encoded plan of a fragment, with the plan of its relays.
#[derive(Debug, Default)]
pub struct EncodedPlan {
    /// The plan of the fragment (`datafusion_proto::protobuf::PhysicalPlanNode`) with parameters in
    /// place of its values. Plans that differ only in their values have the same bytes.
    pub plan: Bytes,
    /// The plan that relays run above the fragment, encoded in the same way. `None` without relays.
    pub relay: Option<Bytes>,
    /// The values of both plans.
    pub parameters: Parameters,
    /// The values that are parameters of the statement: the ordinal of each value, and the number
    /// of its statement parameter.
    pub statement_parameters: Vec<(usize, usize)>,
}

impl EncodedPlan {
    /// Returns the values of the plan, with `values` in place of the statement's parameters.
    ///
    /// # Errors
    /// An error if a value cannot be encoded.
    pub(crate) fn parameters_with(&self, values: &[ScalarValue]) -> Result<Parameters> {
        let mut parameters = self.parameters.clone();
        for (ordinal, number) in &self.statement_parameters {
            let slot = parameters.values.get_mut(*ordinal);
            let (Some(slot), Some(value)) = (slot, values.get(*number)) else {
                return internal_err!("a plan has a parameter that its statement does not have");
            };
            *slot = encode_value(value)?;
        }
        Ok(parameters)
    }
}

/// Encodes a value. DataFusion encodes some types as others, such as Float16 as Float32. A worker
/// would then compute other rows than the gateway has planned.
///
/// # Errors
/// An error if the worker would not decode the same value.
fn encode_value(value: &ScalarValue) -> Result<Bytes> {
    let encoded = protobuf::ScalarValue::try_from(value)?;
    let decoded = ScalarValue::try_from(&encoded)?;
    if decoded != *value {
        return not_impl_err!(
            "a value of type {} would be {} on a worker",
            value.data_type(),
            decoded.data_type()
        );
    }
    Ok(encoded.encode_to_vec().into())
}

/// Encodes a fragment for workers. Scalar subqueries in its expressions must have been run before,
/// because their values are sent.
///
/// # Errors
/// An error if an operator or expression cannot be encoded.
pub fn encode(
    fragment: &Arc<dyn ExecutionPlan>,
    relay: Option<&Arc<dyn ExecutionPlan>>,
) -> Result<EncodedPlan> {
    let values = Values::default();
    let converter = Converter::Fragment(&values);
    let encoded = |plan: &Arc<dyn ExecutionPlan>| -> Result<Bytes> {
        let node = converter.execution_plan_to_proto(plan, &ScanCodec::default())?;
        Ok(node.encode_to_vec().into())
    };
    // The fragment is encoded before the relay's plan. So it has the same ordinals, and the same
    // bytes, as without relays.
    let plan = encoded(fragment)?;
    let relay = relay.map(encoded).transpose()?;
    let values = values.into_inner();
    Ok(EncodedPlan {
        plan,
        relay,
        parameters: Parameters {
            values: values.encoded,
        },
        statement_parameters: values.statement_parameters,
    })
}

/// Returns whether this operator and its expressions can be encoded. Its inputs are not checked.
pub(crate) fn can_encode_node(plan: &Arc<dyn ExecutionPlan>) -> bool {
    if loses_grouping_sets(plan) {
        return false;
    }
    let values = Values::default();
    let converter = Converter::Root(&values);
    converter.node_to_proto(plan, &ScanCodec::default()).is_ok()
}

/// Returns whether the operator is an aggregate whose grouping sets are all empty, such as those of
/// `GROUP BY GROUPING SETS ((), ())`. DataFusion encodes all sets as one list with an element for
/// each column of each set. Sets without columns leave nothing in the list, so a worker would make
/// no group and no row.
fn loses_grouping_sets(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.downcast_ref::<AggregateExec>()
        .is_some_and(|aggregate| {
            let group_by = aggregate.group_expr();
            group_by.has_grouping_set() && group_by.expr().is_empty()
        })
}

/// Returns whether rows of this schema reach the gateway unchanged. Flight's encoder sends a
/// dictionary as its values and a LargeList as a List, wherever they are nested in a type. But the
/// gateway reads messages as rows of the fragment's own schema.
pub fn can_send_unchanged(schema: &Schema) -> bool {
    let mut types = schema.fields().iter().map(|field| field.data_type());
    types.all(is_sent_unchanged)
}

fn is_sent_unchanged(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, _) | DataType::LargeList(_) => false,
        DataType::List(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _)
        | DataType::RunEndEncoded(_, item) => is_child_sent_unchanged(item),
        DataType::Struct(fields) => fields.iter().all(is_child_sent_unchanged),
        DataType::Union(members, _) => {
            let mut members = members.iter().map(|(_, member)| member);
            members.all(is_child_sent_unchanged)
        }
        _ => true,
    }
}

fn is_child_sent_unchanged(field: &FieldRef) -> bool {
    // Flight's encoder rebuilds the field of a union without metadata, and as not nullable.
    let is_rebuilt = matches!(field.data_type(), DataType::Union(_, _))
        && (field.is_nullable() || !field.metadata().is_empty());
    !is_rebuilt && is_sent_unchanged(field.data_type())
}

/// Maximum depth of nested messages in a fragment. Protobuf's reader stops at 100 levels, so that
/// no input overflows its stack. The difference is left for the filters of joins, which are added
/// when the fragment is sent.
pub const MAX_LEVELS: usize = 70;

/// Returns the depth of the message of `plan`. `inputs` are the depths of its inputs.
///
/// # Errors
/// Fails if the expressions of `plan` cannot be traversed.
pub fn levels(plan: &Arc<dyn ExecutionPlan>, inputs: impl Iterator<Item = usize>) -> Result<usize> {
    // Each operator or expression takes two messages: one says which kind it is, and the other one
    // is its content.
    const LEVELS_PER_NODE: usize = 2;
    fn levels_of_expression(expression: &Arc<dyn PhysicalExpr>) -> usize {
        let children = expression.children().into_iter().map(levels_of_expression);
        LEVELS_PER_NODE + children.max().unwrap_or(0)
    }
    let mut deepest = inputs.max().unwrap_or(0);
    plan.apply_expressions(&mut |expression| {
        deepest = deepest.max(levels_of_expression(expression));
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(LEVELS_PER_NODE + deepest)
}

/// Encodes the leaves of a plan, and numbers the scans among them.
#[derive(Debug, Default)]
struct ScanCodec {
    next_ordinal: AtomicU32,
}

impl PhysicalExtensionCodec for ScanCodec {
    fn try_decode(
        &self,
        _: &[u8],
        _: &[Arc<dyn ExecutionPlan>],
        _: &TaskContext,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        internal_err!("a gateway decodes no fragments")
    }

    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        buffer: &mut Vec<u8>,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        let kind = if let Some(scan) = node.downcast_ref::<ShardScanExec>() {
            leaf::Kind::Scan(self.shard_scan(scan))
        } else if node.is::<MembersExec>() {
            leaf::Kind::Members(MemberRows {
                schema: ipc::schema_to_bytes(&node.schema()),
            })
        } else {
            return not_impl_err!("{} cannot be sent to a worker", node.name());
        };
        let leaf = Leaf { kind: Some(kind) };
        leaf.encode(buffer)
            .map_err(|source| datafusion::error::DataFusionError::External(Box::new(source)))
    }

    fn try_encode_expr(
        &self,
        expression: &Arc<dyn PhysicalExpr>,
        _: &mut Vec<u8>,
        _: &PhysicalExprEncodeCtx<'_>,
    ) -> Result<()> {
        not_impl_err!("the expression {expression} cannot be sent to a worker")
    }
}

impl ScanCodec {
    fn shard_scan(&self, scan: &ShardScanExec) -> ShardScan {
        let table = scan.table();
        ShardScan {
            table_id: table.id().0,
            table_name: table.name().to_string(),
            projection: scan
                .projection()
                .iter()
                .map(|column| to_u32(*column))
                .collect(),
            reference: scan.is_reference(),
            ordinal: self.next_ordinal.fetch_add(1, Ordering::Relaxed),
            table_schema: ipc::schema_to_bytes(table.schema()),
            late_materialisation: scan.has_late_materialisation(),
            expiry: table.retention().map(Retention::expiry),
            sharding: table.shard_key().map(|key| Sharding {
                key_column: to_u32(key),
                shards: table.shards(),
            }),
        }
    }
}

/// Converts a position or a count. Both are far below 2³².
fn to_u32(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// The values that were taken out of a plan.
type Values = RefCell<ExtractedValues>;

#[derive(Debug, Default)]
struct ExtractedValues {
    /// The encoded values, by the ordinal of their parameter.
    encoded: Vec<Bytes>,
    /// The values that are parameters of the statement: see [`EncodedPlan`].
    statement_parameters: Vec<(usize, usize)>,
}

/// The part of a plan that is encoded.
enum Converter<'a> {
    /// The whole plan, with parameters in place of its values.
    Fragment(&'a Values),
    /// An expression of the plan, with its values inside.
    Inline,
    /// Only the root operator of a plan and its expressions. Scalar subqueries may have no value
    /// yet.
    Root(&'a Values),
}

impl Converter<'_> {
    fn node_to_proto(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        codec: &dyn PhysicalExtensionCodec,
    ) -> Result<PhysicalPlanNode> {
        PhysicalPlanNode::try_from_physical_plan_with_converter(Arc::clone(plan), codec, self)
    }

    /// Returns the literal for the value of a subquery.
    fn value_of(&self, subquery: &ScalarSubqueryExpr) -> Result<Arc<dyn PhysicalExpr>> {
        // The schema does not matter, because the expression reads no column.
        let empty = RecordBatch::new_empty(Arc::new(Schema::empty()));
        let value = match subquery.evaluate(&empty) {
            Ok(ColumnarValue::Scalar(value)) => value,
            Ok(ColumnarValue::Array(_)) => {
                return internal_err!("a scalar subquery has several values");
            }
            Err(_) if matches!(self, Self::Root(_)) => {
                let field = subquery.return_field(empty.schema_ref())?;
                ScalarValue::try_from(field.data_type())?
            }
            Err(error) => return Err(error),
        };
        Ok(Arc::new(Literal::new(value)))
    }
}

/// Adds a value, and returns its ordinal.
fn add_value(values: &Values, value: impl Into<Bytes>) -> u32 {
    let mut values = values.borrow_mut();
    values.encoded.push(value.into());
    to_u32(values.encoded.len() - 1)
}

fn parameter_node(kind: parameter::Kind, inputs: Vec<PhysicalExprNode>) -> PhysicalExprNode {
    let expr = Parameter { kind: Some(kind) }.encode_to_vec();
    PhysicalExprNode {
        expr_id: None,
        expr_type: Some(ExprType::Extension(PhysicalExtensionExprNode {
            expr,
            inputs,
        })),
    }
}

/// The meaning of a literal's metadata.
enum LiteralMark {
    Unmarked,
    Parameter(usize),
    /// The metadata has another meaning. DataFusion encodes such a literal, as of version 55
    /// without the metadata.
    Other,
}

impl LiteralMark {
    fn from_literal(literal: &Literal) -> Result<Self> {
        let field = literal.return_field(&Schema::empty())?;
        let metadata = field.metadata();
        Ok(match statement_parameter::parameter_number(metadata) {
            Some(number) => Self::Parameter(number),
            None if metadata.is_empty() => Self::Unmarked,
            None => Self::Other,
        })
    }
}

/// Removes the filter that an operator fills while it runs. The operator on the worker creates its
/// own. The filter has a number that is unique to its plan, so two plans with filters would never
/// be the same fragment.
fn remove_dynamic_filter(node: &mut PhysicalPlanNode) {
    match &mut node.physical_plan_type {
        Some(PhysicalPlanType::Sort(sort)) => sort.dynamic_filter = None,
        Some(PhysicalPlanType::Aggregate(aggregate)) => aggregate.dynamic_filter = None,
        Some(PhysicalPlanType::HashJoin(join)) => join.dynamic_filter = None,
        _ => {}
    }
}

impl PhysicalProtoConverterExtension for Converter<'_> {
    fn execution_plan_to_proto(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        codec: &dyn PhysicalExtensionCodec,
    ) -> Result<PhysicalPlanNode> {
        if matches!(self, Self::Root(_)) {
            return Ok(PhysicalPlanNode::default());
        }
        let mut node = self.node_to_proto(plan, codec)?;
        remove_dynamic_filter(&mut node);
        Ok(node)
    }

    fn physical_expr_to_proto(
        &self,
        expression: &Arc<dyn PhysicalExpr>,
        codec: &dyn PhysicalExtensionCodec,
    ) -> Result<PhysicalExprNode> {
        let subquery = (expression.as_ref() as &dyn Any).downcast_ref::<ScalarSubqueryExpr>();
        if let Some(subquery) = subquery {
            return self.physical_expr_to_proto(&self.value_of(subquery)?, codec);
        }
        let (Self::Fragment(values) | Self::Root(values)) = self else {
            return serialize_physical_expr_with_converter(expression, codec, self);
        };
        if expression.is::<DynamicFilterPhysicalExpr>() {
            // `remove_dynamic_filter` removes this filter from the plan. Parameters for its values
            // would remain, and nothing would refer to them.
            return serialize_physical_expr_with_converter(expression, codec, &Self::Inline);
        }
        if let Some(keys) = ValueList::key_set(expression)? {
            return self.physical_expr_to_proto(&keys, codec);
        }
        if let Some(keys) = expression.downcast_ref::<KeySetExpr>() {
            let ordinal = add_value(values, keys.values_to_bytes()?);
            let inputs = keys.children().into_iter();
            let inputs = inputs.map(|key| self.physical_expr_to_proto(key, codec));
            let inputs = inputs.collect::<Result<Vec<_>>>()?;
            return Ok(parameter_node(parameter::Kind::KeySet(ordinal), inputs));
        }
        if let Some(literal) = expression.downcast_ref::<Literal>() {
            let marked = LiteralMark::from_literal(literal)?;
            let encoded = encode_value(literal.value())?;
            if !matches!(marked, LiteralMark::Other) {
                let ordinal = add_value(values, encoded);
                if let LiteralMark::Parameter(number) = marked {
                    let occurrence = (ordinal as usize, number);
                    values.borrow_mut().statement_parameters.push(occurrence);
                }
                let kind = parameter::Kind::Literal(ordinal);
                return Ok(parameter_node(kind, Vec::new()));
            }
        }
        serialize_physical_expr_with_converter(expression, codec, self)
    }

    fn proto_to_execution_plan(
        &self,
        _: &PhysicalPlanNode,
        _: &PhysicalPlanDecodeContext<'_>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        internal_err!("a gateway decodes no fragments")
    }

    fn proto_to_physical_expr(
        &self,
        _: &PhysicalExprNode,
        _: &Schema,
        _: &PhysicalPlanDecodeContext<'_>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        internal_err!("a gateway decodes no fragments")
    }
}
