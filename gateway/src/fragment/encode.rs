//! From a fragment to the bytes of a ticket.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, FieldRef, Schema};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{ScalarValue, internal_err, not_impl_err};
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_expr::scalar_subquery::ScalarSubqueryExpr;
use datafusion::physical_expr_common::physical_expr::proto_encode::PhysicalExprEncodeCtx;
use datafusion::physical_plan::ExecutionPlan;
use datafusion_proto::physical_plan::to_proto::serialize_physical_expr_with_converter;
use datafusion_proto::physical_plan::{
    PhysicalExtensionCodec, PhysicalPlanDecodeContext, PhysicalPlanNodeExt,
    PhysicalProtoConverterExtension,
};
use datafusion_proto::protobuf::{PhysicalExprNode, PhysicalPlanNode};
use prost::Message;
use volary_flight_proto::fragment::ShardScan;
use volary_flight_proto::ipc;
use volary_node::key_set::KeySetExpr;

use super::shard_scan::ShardScanExec;

/// The fragment as a worker reads it. Scalar subqueries that stand in its expressions must have been run: their values are
/// sent.
///
/// # Errors
/// If an operator or expression cannot be encoded.
pub fn encode(fragment: &Arc<dyn ExecutionPlan>) -> Result<Vec<u8>> {
    Ok(encode_with(fragment, Converter::Fragment)?.encode_to_vec())
}

/// Whether this very operator and its expressions can be encoded; its inputs are not looked at.
pub fn can_encode_node(plan: &Arc<dyn ExecutionPlan>) -> bool {
    encode_with(plan, Converter::Root).is_ok()
}

/// Whether rows of this schema reach the gateway as they are. Flight's encoder sends a dictionary as its values and a LargeList as a
/// List, wherever they stand within a type, and the gateway reads messages as rows of the fragment's own schema.
pub fn can_travel(schema: &Schema) -> bool {
    let mut types = schema.fields().iter().map(|field| field.data_type());
    types.all(is_sent_as_it_is)
}

fn is_sent_as_it_is(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, _) | DataType::LargeList(_) => false,
        DataType::List(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _)
        | DataType::RunEndEncoded(_, item) => child_is_sent_as_it_is(item),
        DataType::Struct(fields) => fields.iter().all(child_is_sent_as_it_is),
        DataType::Union(members, _) => {
            let mut members = members.iter().map(|(_, member)| member);
            members.all(child_is_sent_as_it_is)
        }
        _ => true,
    }
}

fn child_is_sent_as_it_is(field: &FieldRef) -> bool {
    // A union's field is made anew: without metadata, and not nullable.
    let is_made_anew = matches!(field.data_type(), DataType::Union(_, _))
        && (field.is_nullable() || !field.metadata().is_empty());
    !is_made_anew && is_sent_as_it_is(field.data_type())
}

/// Messages within messages that a fragment may have. Protobuf's reader stops at 100, so that no input overflows its stack; what
/// is left is for the filters that joins add when the fragment is sent.
pub const MAX_LEVELS: usize = 70;

/// How deep the message of `plan` is, whose inputs are so deep.
///
/// # Errors
/// Those of walking its expressions.
pub fn levels(plan: &Arc<dyn ExecutionPlan>, inputs: impl Iterator<Item = usize>) -> Result<usize> {
    // An operator or expression is a message that says which one it is, and the one itself.
    const OF_A_NODE: usize = 2;
    fn of(expression: &Arc<dyn PhysicalExpr>) -> usize {
        let children = expression.children().into_iter().map(of);
        OF_A_NODE + children.max().unwrap_or(0)
    }
    let mut deepest = inputs.max().unwrap_or(0);
    plan.apply_expressions(&mut |expression| {
        deepest = deepest.max(of(expression));
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(OF_A_NODE + deepest)
}

fn encode_with(plan: &Arc<dyn ExecutionPlan>, converter: Converter) -> Result<PhysicalPlanNode> {
    PhysicalPlanNode::try_from_physical_plan_with_converter(
        Arc::clone(plan),
        &ScanCodec::default(),
        &converter,
    )
}

/// Encodes scans as [`ShardScan`]s and numbers them.
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
        let Some(scan) = node.downcast_ref::<ShardScanExec>() else {
            return not_impl_err!("{} cannot be sent to a worker", node.name());
        };
        let table = scan.table();
        let message = ShardScan {
            table_id: table.id().0,
            table_name: table.name().to_owned(),
            projection: scan
                .projection()
                .iter()
                .map(|column| to_u32(*column))
                .collect(),
            reference: scan.is_reference(),
            ordinal: self.next_ordinal.fetch_add(1, Ordering::Relaxed),
            table_schema: ipc::schema_to_bytes(table.schema()),
            late_materialisation: scan.has_late_materialisation(),
        };
        message
            .encode(buffer)
            .map_err(|source| datafusion::error::DataFusionError::External(Box::new(source)))
    }

    fn try_encode_expr(
        &self,
        expression: &Arc<dyn PhysicalExpr>,
        buffer: &mut Vec<u8>,
        _: &PhysicalExprEncodeCtx<'_>,
    ) -> Result<()> {
        let Some(keys) = expression.downcast_ref::<KeySetExpr>() else {
            return not_impl_err!("the expression {expression} cannot be sent to a worker");
        };
        buffer.extend(keys.values_to_bytes()?);
        Ok(())
    }
}

/// Positions and counts are far below 2³².
fn to_u32(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// What of a plan is encoded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Converter {
    /// All of it, with the values of scalar subqueries in place of the subqueries.
    Fragment,
    /// Its root operator and that one's expressions; subqueries have no values yet.
    Root,
}

impl PhysicalProtoConverterExtension for Converter {
    fn execution_plan_to_proto(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        codec: &dyn PhysicalExtensionCodec,
    ) -> Result<PhysicalPlanNode> {
        match self {
            Self::Fragment => PhysicalPlanNode::try_from_physical_plan_with_converter(
                Arc::clone(plan),
                codec,
                self,
            ),
            Self::Root => Ok(PhysicalPlanNode::default()),
        }
    }

    fn physical_expr_to_proto(
        &self,
        expression: &Arc<dyn PhysicalExpr>,
        codec: &dyn PhysicalExtensionCodec,
    ) -> Result<PhysicalExprNode> {
        let subquery = (expression.as_ref() as &dyn Any).downcast_ref::<ScalarSubqueryExpr>();
        let Some(subquery) = subquery else {
            return serialize_physical_expr_with_converter(expression, codec, self);
        };
        // Its schema plays no part: it reads no column.
        let empty = RecordBatch::new_empty(Arc::new(Schema::empty()));
        let value = match subquery.evaluate(&empty) {
            Ok(ColumnarValue::Scalar(value)) => value,
            Ok(ColumnarValue::Array(_)) => {
                return internal_err!("a scalar subquery has several values");
            }
            Err(error) if *self == Self::Fragment => return Err(error),
            Err(_) => {
                let field = subquery.return_field(empty.schema_ref())?;
                ScalarValue::try_from(field.data_type())?
            }
        };
        let literal: Arc<dyn PhysicalExpr> = Arc::new(Literal::new(value));
        serialize_physical_expr_with_converter(&literal, codec, self)
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

#[cfg(test)]
mod tests {
    use arrow_flight::encode::FlightDataEncoderBuilder;
    use datafusion::arrow::datatypes::{Field, Fields, UnionFields, UnionMode};
    use futures::stream;

    use super::*;

    /// The types that are made of another one, and some that are not.
    fn types_of(item: &DataType) -> Vec<DataType> {
        let field = |name: &str| Arc::new(Field::new(name, item.clone(), true));
        let ends = Arc::new(Field::new("run_ends", DataType::Int32, false));
        let entries = Fields::from(vec![
            Field::new("keys", DataType::Utf8, false),
            Field::new("values", item.clone(), true),
        ]);
        let entries = Field::new("entries", DataType::Struct(entries), false);
        let members = UnionFields::try_new([0], [Field::new("m", item.clone(), true)]).unwrap();
        vec![
            item.clone(),
            DataType::Dictionary(Box::new(DataType::Int32), Box::new(item.clone())),
            DataType::List(field("item")),
            DataType::LargeList(field("item")),
            DataType::ListView(field("item")),
            DataType::LargeListView(field("item")),
            DataType::FixedSizeList(field("item"), 2),
            DataType::Struct(vec![field("s")].into()),
            DataType::Map(Arc::new(entries), false),
            DataType::Union(members, UnionMode::Sparse),
            DataType::RunEndEncoded(ends, field("values")),
        ]
    }

    #[test]
    fn what_can_travel_is_what_the_encoder_leaves_as_it_is() {
        let leaves = [DataType::Int64, DataType::Utf8View, DataType::LargeUtf8];
        let types = leaves.iter().flat_map(types_of);
        for data_type in types.flat_map(|item| types_of(&item)) {
            let schema = Arc::new(Schema::new(vec![Field::new("c", data_type.clone(), true)]));
            let encoder = FlightDataEncoderBuilder::new()
                .with_schema(Arc::clone(&schema))
                .build(stream::empty());
            let sent = encoder.known_schema().unwrap();
            let is_same = *sent.field(0).data_type() == data_type;
            assert_eq!(can_travel(&schema), is_same, "{data_type}");
        }
    }
}
