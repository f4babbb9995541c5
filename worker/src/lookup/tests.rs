//! Rows that are looked up by key are those of the ordinary scan, whatever was written, flushed,
//! merged or aborted before, and whatever the snapshot sees.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryViewArray, Date32Array, Decimal128Array, Float64Array, Int64Array,
    RecordBatch, StringViewArray, TimestampMicrosecondArray, UInt32Array,
};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use arrow::util::pretty::pretty_format_batches;
use bytes::Bytes;
use datafusion::common::ScalarValue;
use datafusion::config::TableParquetOptions;
use datafusion::execution::TaskContext;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::physical_plan::collect;
use datafusion::physical_plan::expressions::Column;
use datafusion_proto::protobuf::physical_expr_node::ExprType;
use datafusion_proto::protobuf::physical_plan_node::PhysicalPlanType;
use datafusion_proto::protobuf::{
    self, FilterExecNode, PhysicalBinaryExprNode, PhysicalColumn, PhysicalExprNode,
    PhysicalExtensionExprNode, PhysicalExtensionNode, PhysicalInListNode, PhysicalPlanNode,
    ProjectionExecNode,
};
use prost::Message;
use tempfile::TempDir;
use volary_exec::key_set::KeySetExpr;
use volary_flight_proto::fragment::{
    Expiry, Fragment, Leaf, Parameter, ScanShards, ShardScan, leaf, parameter,
};
use volary_flight_proto::ids::WriteId;
use volary_flight_proto::ipc;
use volary_flight_proto::snapshot::Snapshot;
use volary_flight_proto::tally::Tally;
use volary_flight_proto::write::{SHARD_COLUMN, TableDescription, WriteRequest};
use volary_flight_proto::write_set::WriteSet;
use volary_node::memory;
use volary_node::size::MemorySize;

use super::answer::{LookupParts, look_up};
use super::cache::LookupCache;
use super::request::KeyedFragment;
use super::rows::Refusal;
use crate::compaction::Compactor;
use crate::fragment::bind::{Binder, TicketBindings};
use crate::fragment::decode::decode;
use crate::fragment::optimize::{optimize, session_config};
use crate::memory_cache::DecodedMemory;
use crate::scan::decoded::DecodedSegments;
use crate::write::tests::logged::{Numbers, flush_all, restart, small_worker};
use crate::write::tests::{SHARDS, Worker, request, write_all};

const TABLE: u64 = 3;
/// Time for which rows are kept, in microseconds.
const KEEP_US: u64 = 1_000;
const TIME_COLUMN: usize = 4;
/// Number of different keys.
const KEYS: u64 = 60;

/// The columns of a table with a key of this type.
pub(crate) fn schema(key: &DataType) -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("key", key.clone(), true),
        Field::new("name", DataType::Utf8View, true),
        Field::new("price", DataType::Decimal128(12, 2), true),
        Field::new("ratio", DataType::Float64, true),
        Field::new("at", DataType::Timestamp(TimeUnit::Microsecond, None), true),
    ]))
}

/// The types of keys that are tested.
fn key_types() -> Vec<DataType> {
    vec![
        DataType::Int64,
        DataType::Utf8View,
        DataType::Decimal128(20, 3),
        DataType::Date32,
        DataType::Timestamp(TimeUnit::Microsecond, Some("Europe/Berlin".into())),
        DataType::BinaryView,
    ]
}

/// Returns keys of this type. Numbers stand for keys, and `None` is NULL.
fn keys(data_type: &DataType, numbers: &[Option<i64>]) -> ArrayRef {
    let all = numbers.iter().copied();
    let text = |number: i64| format!("the key with the number {number}, or so");
    match data_type {
        DataType::Int64 => Arc::new(Int64Array::from_iter(all.map(|it| Some(it? * 7 - 100)))),
        DataType::Utf8View => Arc::new(StringViewArray::from_iter(all.map(|it| it.map(text)))),
        DataType::BinaryView => Arc::new(BinaryViewArray::from_iter(
            all.map(|it| it.map(|it| vec![0xff, it as u8, 0])),
        )),
        DataType::Decimal128(precision, scale) => {
            let values = all.map(|it| Some(i128::from(it? - 30) << 40));
            let values = Decimal128Array::from_iter(values);
            Arc::new(values.with_precision_and_scale(*precision, *scale).unwrap())
        }
        DataType::Date32 => Arc::new(Date32Array::from_iter(all.map(|it| Some(it? as i32 - 30)))),
        DataType::Timestamp(..) => {
            let values = TimestampMicrosecondArray::from_iter(all.map(|it| Some(it? - 30)));
            Arc::new(values.with_data_type(data_type.clone()))
        }
        other => panic!("{other} is not tested"),
    }
}

/// Builds rows with these keys, all of one shard.
pub(crate) fn rows(
    data_type: &DataType,
    numbers: &[Option<i64>],
    shard: u32,
    random: &mut Numbers,
) -> RecordBatch {
    let count = numbers.len();
    let values: Vec<_> = (0..count).map(|_| random.below(50) as i64).collect();
    let some = |modulus: i64| move |it: &i64| (it % modulus != 0).then_some(*it);
    let prices = values.iter().map(some(3)).map(|it| it.map(i128::from));
    let prices = Decimal128Array::from_iter(prices);
    let ratios = values.iter().map(|it| match it % 5 {
        0 => None,
        1 => Some(f64::NAN),
        2 => Some(-0.0),
        _ => Some(*it as f64 / 8.0),
    });
    let names = values.iter().map(some(4));
    let names = names.map(|it| it.map(|it| format!("a name that is not inlined: {it}")));
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("key", keys(data_type, numbers)),
        ("name", Arc::new(StringViewArray::from_iter(names))),
        (
            "price",
            Arc::new(prices.with_precision_and_scale(12, 2).unwrap()),
        ),
        ("ratio", Arc::new(Float64Array::from_iter(ratios))),
        (
            "at",
            Arc::new(TimestampMicrosecondArray::from_iter(
                values.iter().map(some(6)).map(|it| it.map(|it| it * 100)),
            )),
        ),
    ];
    let shard = UInt32Array::from(vec![shard; count]);
    let columns = columns
        .into_iter()
        .map(|(name, values)| (name, values, true));
    let columns = columns.chain([(SHARD_COLUMN, Arc::new(shard) as ArrayRef, false)]);
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

pub(crate) fn table(schema: &Schema) -> TableDescription {
    TableDescription {
        table_id: TABLE,
        ..request(schema, true).table.unwrap()
    }
}

/// The encoded values of a ticket.
#[derive(Default)]
pub(crate) struct Values(pub(crate) Vec<Bytes>);

impl Values {
    pub(crate) fn literal(&mut self, value: &ScalarValue) -> PhysicalExprNode {
        let encoded = protobuf::ScalarValue::try_from(value).unwrap();
        self.0.push(encoded.encode_to_vec().into());
        let ordinal = self.0.len() as u32 - 1;
        extension(parameter::Kind::Literal(ordinal), vec![])
    }

    fn set(&mut self, key: PhysicalExprNode, values: ArrayRef) -> PhysicalExprNode {
        let set = KeySetExpr::try_new(Arc::new(Column::new("key", 0)), values).unwrap();
        self.0.push(set.values_to_bytes().unwrap().into());
        let ordinal = self.0.len() as u32 - 1;
        extension(parameter::Kind::KeySet(ordinal), vec![key])
    }
}

fn expression(expr_type: ExprType) -> PhysicalExprNode {
    PhysicalExprNode {
        expr_id: None,
        expr_type: Some(expr_type),
    }
}

fn extension(kind: parameter::Kind, inputs: Vec<PhysicalExprNode>) -> PhysicalExprNode {
    let expr = Parameter { kind: Some(kind) }.encode_to_vec();
    expression(ExprType::Extension(PhysicalExtensionExprNode {
        expr,
        inputs,
    }))
}

pub(crate) fn column(name: &str, index: u32) -> PhysicalExprNode {
    let name = name.to_owned();
    expression(ExprType::Column(PhysicalColumn { name, index }))
}

pub(crate) fn binary(op: &str, operands: Vec<PhysicalExprNode>) -> PhysicalExprNode {
    expression(ExprType::BinaryExpr(Box::new(PhysicalBinaryExprNode {
        l: None,
        r: None,
        op: op.to_owned(),
        operands,
    })))
}

fn plan(kind: PhysicalPlanType) -> PhysicalPlanNode {
    PhysicalPlanNode {
        physical_plan_type: Some(kind),
    }
}

pub(crate) fn scan(schema: &SchemaRef, expires: bool, late: bool) -> PhysicalPlanNode {
    let scan = ShardScan {
        table_id: TABLE,
        table_name: "t".to_owned(),
        projection: vec![0, 1, 2, 3],
        table_schema: ipc::schema_to_bytes(schema),
        late_materialisation: late,
        expiry: expires.then_some(Expiry {
            time_column: TIME_COLUMN as u32,
            keep_us: KEEP_US,
        }),
        ..ShardScan::default()
    };
    let leaf = Leaf {
        kind: Some(leaf::Kind::Scan(scan)),
    };
    plan(PhysicalPlanType::Extension(PhysicalExtensionNode {
        node: leaf.encode_to_vec(),
        inputs: vec![],
    }))
}

pub(crate) fn filter(
    input: PhysicalPlanNode,
    condition: PhysicalExprNode,
    columns: &[u32],
) -> PhysicalPlanNode {
    plan(PhysicalPlanType::Filter(Box::new(FilterExecNode {
        input: Some(Box::new(input)),
        expr: Some(condition),
        default_filter_selectivity: 20,
        projection: columns.to_vec(),
        batch_size: 1_000,
        fetch: None,
    })))
}

/// A worker whose rows are read in both ways.
struct Fixture {
    worker: Worker,
    schema: SchemaRef,
    cache: LookupCache,
    decoded: Arc<DecodedSegments>,
    runtime_env: Arc<RuntimeEnv>,
    task: Arc<TaskContext>,
    answered: usize,
    _spill: TempDir,
}

impl Fixture {
    fn new(key: &DataType, budget_bytes: usize) -> Self {
        let spill = tempfile::tempdir().unwrap();
        let limits = memory::Config {
            limit: MemorySize::Bytes(1 << 30),
            ..memory::Config::default()
        };
        let runtime_env = memory::runtime_env(&limits, spill.path(), 16 << 20).unwrap();
        let task = TaskContext::default()
            .with_session_config(session_config(1_000, 2))
            .with_runtime(Arc::clone(&runtime_env));
        let decoded = DecodedMemory::new(budget_bytes, 1 << 30, &runtime_env.memory_pool);
        Self {
            worker: small_worker(),
            schema: schema(key),
            cache: LookupCache::new(decoded.clone()),
            decoded: Arc::new(DecodedSegments::new(decoded)),
            runtime_env,
            task: Arc::new(task),
            answered: 0,
            _spill: spill,
        }
    }

    async fn write(&mut self, write: u64, rows: RecordBatch, is_small: bool) {
        let bytes = if is_small { 1 << 20 } else { 0 };
        self.worker.context.config.logged_write = MemorySize::Bytes(bytes);
        let request = WriteRequest {
            write_id: write,
            table: Some(table(&self.schema)),
            ..request(&self.schema, true)
        };
        write_all(&self.worker, request, vec![Ok(rows)])
            .await
            .unwrap();
    }

    fn bindings(
        &self,
        snapshot: &Snapshot,
        tallies: &BTreeMap<u32, Tally>,
        values: &Values,
        as_of_us: i64,
    ) -> TicketBindings {
        let tally = |shard| tallies.get(&shard).copied().unwrap_or_default();
        let shards = ScanShards {
            shards: (0..SHARDS).collect(),
            tallies: (0..SHARDS).map(|shard| tally(shard).0).collect(),
            rows: vec![],
        };
        TicketBindings {
            snapshot: snapshot.clone(),
            scans: vec![shards],
            counted_writes: None,
            as_of_us,
            values: values.0.clone(),
        }
    }

    /// Returns the rows of the ordinary way, which are the same whether it finds decoded columns or
    /// not.
    async fn ordinary(&self, plan: &PhysicalPlanNode, bindings: TicketBindings) -> RecordBatch {
        let nothing = DecodedMemory::new(0, 0, &self.runtime_env.memory_pool);
        let nothing = Arc::new(DecodedSegments::new(nothing));
        let decoding = self.scanned(plan, bindings.clone(), nothing).await;
        let decoded = Arc::clone(&self.decoded);
        let kept = self.scanned(plan, bindings, decoded).await;
        assert_eq!(shown(&kept), shown(&decoding));
        decoding
    }

    async fn scanned(
        &self,
        plan: &PhysicalPlanNode,
        bindings: TicketBindings,
        decoded: Arc<DecodedSegments>,
    ) -> RecordBatch {
        let binder = Binder::new(
            self.worker.context.storage.clone(),
            Arc::clone(&self.runtime_env),
            decoded,
            TableParquetOptions::default(),
            bindings,
            2,
        );
        let plan = decode(plan, &binder, &self.task).unwrap();
        let plan = optimize(plan, self.task.session_config().options()).unwrap();
        let schema = plan.schema();
        let batches = collect(plan, Arc::clone(&self.task)).await.unwrap();
        concat_batches(&schema, &batches).unwrap()
    }

    async fn by_key(
        &self,
        keyed: &KeyedFragment,
        bindings: &TicketBindings,
    ) -> Result<RecordBatch, Refusal> {
        let parts = LookupParts {
            storage: &self.worker.context.storage,
            cache: &self.cache,
            task: &self.task,
            check_bytes: 1 << 20,
        };
        let found = look_up(parts, keyed, bindings).await;
        found.map(|found| found.rows)
    }

    /// Checks that both ways return the same rows, if the fragment is answered by key.
    async fn check(&mut self, plan: &PhysicalPlanNode, bindings: TicketBindings, place: &str) {
        let keyed = KeyedFragment::of(plan, &Fragment::default()).unwrap();
        let clone = TicketBindings {
            snapshot: bindings.snapshot.clone(),
            scans: bindings.scans.clone(),
            counted_writes: None,
            as_of_us: bindings.as_of_us,
            values: bindings.values.clone(),
        };
        let expected = self.ordinary(plan, clone).await;
        keyed.note_schema(&expected.schema());
        match self.by_key(&keyed, &bindings).await {
            Ok(rows) => {
                self.answered += 1;
                assert_eq!(rows.schema(), expected.schema(), "{place}");
                assert_eq!(shown(&rows), shown(&expected), "{place}");
            }
            // Some rows are not visible, or not in memory.
            Err(Refusal::Cold | Refusal::Unfit) => {}
        }
    }
}

/// Returns the rows as text, sorted. NaN and both zeros differ in it.
fn shown(rows: &RecordBatch) -> Vec<String> {
    let shown = pretty_format_batches(std::slice::from_ref(rows)).unwrap();
    let mut lines: Vec<String> = shown.to_string().lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// Returns a condition on the key, of a random form, and joined with a random further condition.
fn condition(data_type: &DataType, random: &mut Numbers, values: &mut Values) -> PhysicalExprNode {
    let mut some = |count: u64| -> Vec<Option<i64>> {
        let number = |random: &mut Numbers| {
            let number = random.below(KEYS + 6) as i64 - 3;
            (random.below(8) > 0).then_some(number)
        };
        (0..count).map(|_| number(random)).collect()
    };
    let form = some(1)[0].unwrap_or(0).rem_euclid(4);
    let wanted = some(if form == 0 {
        1
    } else {
        2 + form.unsigned_abs() * 9
    });
    let array = keys(data_type, &wanted);
    let scalar = |position| ScalarValue::try_from_array(&array, position).unwrap();
    let key = || column("key", 0);
    let test = match form {
        0 => {
            let value = values.literal(&scalar(0));
            binary("Eq", vec![key(), value])
        }
        1 => {
            // A short IN list is planned so.
            let sides = (0..array.len()).map(|position| {
                let value = values.literal(&scalar(position));
                binary("Eq", vec![value, key()])
            });
            let sides = sides.collect();
            binary("Or", sides)
        }
        2 => {
            let list = (0..array.len()).map(|position| values.literal(&scalar(position)));
            let list = list.collect();
            expression(ExprType::InList(Box::new(PhysicalInListNode {
                expr: Some(Box::new(key())),
                list,
                negated: false,
            })))
        }
        _ => values.set(key(), array),
    };
    match random.below(3) {
        0 => test,
        1 => {
            let price = values.literal(&ScalarValue::Decimal128(Some(25), 12, 2));
            binary(
                "And",
                vec![test, binary("Lt", vec![column("price", 2), price])],
            )
        }
        _ => {
            let ratio = values.literal(&ScalarValue::Float64(Some(f64::NAN)));
            binary(
                "And",
                vec![binary("Eq", vec![column("ratio", 3), ratio]), test],
            )
        }
    }
}

#[tokio::test]
async fn rows_by_key_are_those_of_the_scan_after_any_mix_of_changes() {
    for (seed, data_type) in key_types().iter().enumerate() {
        let mut random = Numbers(seed as u64 + 1);
        let mut fixture = Fixture::new(data_type, 1 << 20);
        // The tallies of each write, and whether the write is committed; `None` if it is open.
        let mut writes: BTreeMap<u64, (BTreeMap<u32, u64>, Option<bool>)> = BTreeMap::new();
        let mut old: Vec<Snapshot> = Vec::new();
        for step in 0..60 {
            let snapshot_of = |writes: &BTreeMap<u64, (BTreeMap<u32, u64>, Option<bool>)>| {
                let high = writes.keys().next_back().copied().unwrap_or_default();
                let hidden = writes.iter().filter(|(_, (_, state))| *state != Some(true));
                let hidden: WriteSet = hidden.map(|(write, _)| WriteId(*write)).collect();
                Snapshot::new(WriteId(high), &hidden)
            };
            match random.below(12) {
                0..=5 => {
                    let write = writes.len() as u64 + 1;
                    let shard = random.below(u64::from(SHARDS)) as u32;
                    let count = 1 + random.below(40);
                    let numbers = (0..count).map(|_| {
                        let number = random.below(KEYS) as i64;
                        (random.below(12) > 0).then_some(number)
                    });
                    let numbers: Vec<_> = numbers.collect();
                    let rows = rows(data_type, &numbers, shard, &mut random);
                    fixture.write(write, rows, random.below(3) > 0).await;
                    let state = (random.below(4) > 0).then_some(true);
                    writes.insert(write, (BTreeMap::from([(shard, count)]), state));
                }
                6 => {
                    let open = writes.iter_mut().find(|(_, (_, state))| state.is_none());
                    if let Some((write, (_, state))) = open {
                        *state = Some(false);
                        let storage = &fixture.worker.context.storage;
                        storage.abort_write(WriteId(*write)).unwrap();
                    }
                }
                7 => {
                    let open = writes.values_mut().find(|(_, state)| state.is_none());
                    if let Some((_, state)) = open {
                        *state = Some(true);
                    }
                }
                8 => flush_all(&fixture.worker, &snapshot_of(&writes)).await,
                9 | 10 => {
                    let compactor = Compactor::new(fixture.worker.context.clone());
                    let table = table(&fixture.schema);
                    compactor
                        .optimize(table, snapshot_of(&writes))
                        .await
                        .unwrap();
                }
                _ => restart(&mut fixture.worker),
            }
            old.push(snapshot_of(&writes));
            let snapshot = match random.below(4) {
                0 => old[random.below(old.len() as u64) as usize].clone(),
                _ => snapshot_of(&writes),
            };
            // An older snapshot does not see the writes that were aborted meanwhile.
            let aborted = writes
                .iter()
                .filter(|(_, (_, state))| *state == Some(false));
            let aborted: Vec<u64> = aborted.map(|(write, _)| *write).collect();
            let mut tallies: BTreeMap<u32, Tally> = BTreeMap::new();
            for (write, (shards, _)) in &writes {
                if snapshot.sees(WriteId(*write)) && !aborted.contains(write) {
                    for (shard, rows) in shards {
                        tallies
                            .entry(*shard)
                            .or_default()
                            .add(WriteId(*write), *rows);
                    }
                }
            }
            for _ in 0..3 {
                let mut values = Values::default();
                let condition = condition(data_type, &mut random, &mut values);
                let expires = random.below(3) == 0;
                let scan = scan(&fixture.schema, expires, random.below(2) == 0);
                let columns: &[u32] = match random.below(3) {
                    0 => &[],
                    1 => &[2, 0],
                    _ => &[1],
                };
                let mut fragment = filter(scan, condition, columns);
                if columns.len() == 2 && random.below(2) == 0 {
                    fragment = plan(PhysicalPlanType::Projection(Box::new(ProjectionExecNode {
                        input: Some(Box::new(fragment)),
                        expr: vec![
                            column("key", 1),
                            binary("Plus", vec![column("price", 0), column("price", 0)]),
                        ],
                        expr_name: vec!["k".to_owned(), "twice".to_owned()],
                    })));
                }
                let as_of_us = random.below(6_000) as i64;
                let bindings = fixture.bindings(&snapshot, &tallies, &values, as_of_us);
                let place = format!("{data_type}, step {step}");
                fixture.check(&fragment, bindings, &place).await;
            }
        }
        let answered = fixture.answered;
        assert!(answered > 60, "{data_type}: only {answered} of 180");
        assert!(fixture.cache.totals.hits.get() > 0, "{data_type}");
    }
}

#[tokio::test]
async fn a_row_group_is_decoded_when_as_many_keys_were_asked_as_it_has_pages() {
    let mut fixture = Fixture::new(&DataType::Int64, 64 << 20);
    fixture.worker.context.config.row_group_rows = 50_000;
    let numbers: Vec<_> = (0..60_000).map(Some).collect();
    let rows = rows(&DataType::Int64, &numbers, 1, &mut Numbers(7));
    fixture.write(1, rows, false).await;
    let snapshot = Snapshot::new(WriteId(1), &WriteSet::default());
    let tallies = BTreeMap::from([(1, [(WriteId(1), 60_000)].into_iter().collect())]);
    let mut values = Values::default();
    let literal = values.literal(&ScalarValue::Int64(Some(0)));
    let condition = binary("Eq", vec![column("key", 0), literal]);
    let plan = filter(scan(&fixture.schema, false, true), condition, &[1, 2]);
    let keyed = KeyedFragment::of(&plan, &Fragment::default()).unwrap();
    // Keys are 7 · n - 100, so this one is absent, and the bloom filter says so.
    let mut found = vec![(7 * 100 - 99, 0)];
    // The first row group has three pages, and the second one is small.
    for number in [0, 0, 1, 2, 3, 59_999, 59_998] {
        found.push((number * 7 - 100, 1));
    }
    let mut outcomes = Vec::new();
    for (key, count) in found {
        let mut values = Values::default();
        values.literal(&ScalarValue::Int64(Some(key)));
        let bindings = || fixture.bindings(&snapshot, &tallies, &values, 0);
        let expected = fixture.ordinary(&plan, bindings()).await;
        assert_eq!(expected.num_rows(), count);
        keyed.note_schema(&expected.schema());
        let rows = fixture.by_key(&keyed, &bindings()).await;
        let misses = fixture.cache.totals.misses.get();
        outcomes.push(match rows {
            Ok(rows) => {
                assert_eq!(shown(&rows), shown(&expected));
                Some(misses)
            }
            Err(refusal) => {
                assert_eq!(refusal, Refusal::Cold);
                None
            }
        });
    }
    // The key column and the four columns of the scan are decoded, of each row group once.
    let expected = [
        Some(0),
        None,
        None,
        Some(4),
        Some(4),
        Some(4),
        Some(8),
        Some(8),
    ];
    assert_eq!(outcomes, expected);
    let held = fixture.cache.held_bytes();
    assert!(held > 60_000 * (8 + 16 + 16 + 8), "{held}");
    assert!(fixture.runtime_env.memory_pool.reserved() >= held);
}

/// A worker with segments of these keys, and a fragment that asks for the rows of some of them.
struct Written {
    fixture: Fixture,
    keyed: KeyedFragment,
    snapshot: Snapshot,
    tallies: BTreeMap<u32, Tally>,
}

impl Written {
    async fn new(budget_bytes: usize, segments: &[Vec<i64>]) -> Self {
        let mut fixture = Fixture::new(&DataType::Int64, budget_bytes);
        fixture.worker.context.config.row_group_rows = 50_000;
        let mut tally = Tally::default();
        for (write, numbers) in (1..).zip(segments) {
            let numbers: Vec<_> = numbers.iter().copied().map(Some).collect();
            let rows = rows(&DataType::Int64, &numbers, 1, &mut Numbers(7));
            tally.add(WriteId(write), rows.num_rows() as u64);
            fixture.write(write, rows, false).await;
        }
        let mut values = Values::default();
        let keys = values.set(column("key", 0), keys(&DataType::Int64, &[Some(1)]));
        let plan = filter(scan(&fixture.schema, false, true), keys, &[0, 1, 2, 3]);
        let snapshot = Snapshot::new(WriteId(segments.len() as u64), &WriteSet::default());
        let written = Self {
            keyed: KeyedFragment::of(&plan, &Fragment::default()).unwrap(),
            fixture,
            snapshot,
            tallies: BTreeMap::from([(1, tally)]),
        };
        let bindings = written.bindings(&[1]);
        let expected = written.fixture.ordinary(&plan, bindings).await;
        written.keyed.note_schema(&expected.schema());
        written
    }

    fn bindings(&self, numbers: &[i64]) -> TicketBindings {
        let numbers: Vec<_> = numbers.iter().copied().map(Some).collect();
        let mut values = Values::default();
        values.set(column("key", 0), keys(&DataType::Int64, &numbers));
        let fixture = &self.fixture;
        fixture.bindings(&self.snapshot, &self.tallies, &values, 0)
    }

    /// Returns the number of rows with these keys.
    async fn look_up(&self, numbers: &[i64]) -> Result<usize, Refusal> {
        let bindings = self.bindings(numbers);
        let rows = self.fixture.by_key(&self.keyed, &bindings).await;
        rows.map(|rows| rows.num_rows())
    }

    fn decoded_columns(&self) -> u64 {
        self.fixture.cache.totals.misses.get()
    }
}

#[tokio::test]
async fn columns_that_have_no_room_together_are_not_decoded() {
    let segments: Vec<Vec<i64>> = (0..8)
        .map(|segment| (segment * 2_000..(segment + 1) * 2_000).collect())
        .collect();
    let written = Written::new(500_000, &segments).await;
    let of_all: Vec<i64> = (0..8).map(|segment| segment * 2_000 + 1).collect();
    for _ in 0..3 {
        assert_eq!(written.look_up(&of_all).await, Err(Refusal::Cold));
        assert_eq!(written.decoded_columns(), 0);
    }
    assert_eq!(written.look_up(&[4_001, 4_002, 9]).await, Ok(3));
    assert_eq!(written.decoded_columns(), 8);
    assert!(written.fixture.cache.held_bytes() <= 500_000);
}

#[tokio::test]
async fn a_column_is_decoded_once_however_many_ask_at_the_same_time() {
    let segments = [(0..9_000).collect(), (9_000..18_000).collect()];
    let written = Written::new(64 << 20, &segments).await;
    let look_up = async |number| written.look_up(&[number, number + 9_000, -5]).await;
    let lookups = (0..8).map(look_up);
    for found in futures::future::join_all(lookups).await {
        assert_eq!(found, Ok(2));
    }
    assert_eq!(written.decoded_columns(), 8);
}

#[tokio::test]
async fn rows_that_are_found_stay_right_while_other_columns_are_decoded() {
    let segments = [(0..2_000).collect(), (2_000..4_000).collect()];
    let written = Written::new(64 << 20, &segments).await;
    assert_eq!(written.look_up(&[3, 5]).await, Ok(2));
    let bindings = || written.bindings(&[3, 5, 2_007]);
    let rows = written.fixture.by_key(&written.keyed, &bindings()).await;
    let again = written.fixture.by_key(&written.keyed, &bindings()).await;
    assert_eq!(shown(&rows.unwrap()), shown(&again.unwrap()));
    assert_eq!(written.decoded_columns(), 8);
}

#[tokio::test]
async fn rows_are_counted_before_more_than_their_keys_is_decoded() {
    let mut numbers = vec![7; 40_000];
    numbers.push(8);
    let written = Written::new(64 << 20, &[numbers]).await;
    // The row group has three pages, so it is decoded for the third key.
    assert_eq!(written.look_up(&[7, 8]).await, Err(Refusal::Cold));
    for _ in 0..2 {
        assert_eq!(written.look_up(&[7, 8]).await, Err(Refusal::Unfit));
        assert_eq!(written.decoded_columns(), 1);
    }
    for found in [Err(Refusal::Cold), Err(Refusal::Cold), Ok(1)] {
        assert_eq!(written.look_up(&[8]).await, found);
    }
}

#[test]
fn other_fragments_are_not_by_key() {
    let schema = schema(&DataType::Int64);
    let mut values = Values::default();
    let number = values.literal(&ScalarValue::Int64(Some(1)));
    let by_key = binary("Eq", vec![column("key", 0), number.clone()]);
    let is_keyed = |condition: &PhysicalExprNode, settings: &Fragment| {
        let plan = filter(scan(&schema, false, true), condition.clone(), &[]);
        KeyedFragment::of(&plan, settings).is_some()
    };
    let plain = Fragment::default();
    assert!(is_keyed(&by_key, &plain));
    let ordered = Fragment {
        ordered: true,
        ..Fragment::default()
    };
    assert!(!is_keyed(&by_key, &ordered));
    let compared = binary("Lt", vec![column("key", 0), number.clone()]);
    assert!(!is_keyed(&compared, &plain));
    let either = vec![by_key.clone(), compared.clone()];
    assert!(!is_keyed(&binary("Or", either.clone()), &plain));
    assert!(is_keyed(&binary("And", either), &plain));
    let negated = expression(ExprType::InList(Box::new(PhysicalInListNode {
        expr: Some(Box::new(column("key", 0))),
        list: vec![number.clone()],
        negated: true,
    })));
    assert!(!is_keyed(&negated, &plain));
    // Floating-point numbers are not searched for.
    let by_ratio = binary("Eq", vec![column("ratio", 3), number]);
    assert!(!is_keyed(&by_ratio, &plain));
    let joined = binary("StringConcat", vec![column("name", 1), column("name", 1)]);
    let equal = binary("Eq", vec![joined, column("name", 1)]);
    assert!(!is_keyed(&binary("And", vec![by_key, equal]), &plain));
}
