use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Int64Array, RecordBatch, StringArray, UInt32Array,
    new_null_array,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema};
use arrow::ipc::writer::IpcWriteOptions;
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::{Action, FlightDescriptor};
use futures::{StreamExt, TryStreamExt, stream};
use prost::Message;
use tonic::codegen::http::HeaderMap;
use volary_flight_proto::control::{CONTROL_ACTION, Control, ListSegments, control};
use volary_flight_proto::ids::{ClusterId, WorkerId};
use volary_flight_proto::ipc;
use volary_flight_proto::seal::Purpose;
use volary_flight_proto::write::{
    DESCRIPTOR_LIFETIME, SHARD_COLUMN, TableDescription, WriteRequest,
};
use volary_gather::connections::ConnectionOptions;
use volary_gather::{GatherTotals, KnownFragments, WorkerConnections};
use volary_node::DataDir;
use volary_node::admission::Admission;
use volary_node::data_dir::NodeRole;
use volary_node::disk::LocalDisk;
use volary_node::flight::FlightAdapter;
use volary_node::memory;
use volary_node::runtimes::OwnedRuntimes;
use volary_node::size::MemorySize;
use volary_worker::clients::ClientCalls;
use volary_worker::config::{Config, ExecutionConfig};
use volary_worker::context::WorkerContext;
use volary_worker::fragment::cache::FragmentCache;
use volary_worker::fragment::environment::FragmentEnvironments;
use volary_worker::fragment::running::RunningFragments;
use volary_worker::history::History;
use volary_worker::lookup::cache::LookupCache;
use volary_worker::membership::Reporter;
use volary_worker::memory_cache::DecodedMemory;
use volary_worker::scan::decoded::DecodedSegments;
use volary_worker::service::WorkerService;
use volary_worker::storage::Storage;

use crate::call::{Answer, Server};
use crate::directory::Directory;
use crate::gateway::{Gateway, UNREACHABLE_ADDRESS};
use crate::guard;
use crate::log_file;
use crate::seal::{VALID_FOR, sealer};

/// Maximum number of fragments, relays or parts that may run or wait. Those that are being dropped
/// still count.
const PLACES: usize = 64;

/// The name of the worker's present start. Writes are addressed to it.
pub const INSTANCE: &str = "the first start";

/// The write whose rows the worker holds. It is the first write of each table.
const WRITE: u64 = 1;

/// A worker that holds a few rows of the gateway's tables. Its own gateway does not answer.
pub struct Worker {
    server: Server<FlightAdapter<WorkerService>>,
    /// The cluster of the worker.
    pub cluster: ClusterId,
    /// The id of the worker.
    pub id: WorkerId,
    panics_seen: AtomicUsize,
    _runtimes: OwnedRuntimes,
    directory: Directory,
}

static WORKER: LazyLock<Worker> = LazyLock::new(Worker::start);

impl Worker {
    /// Returns the worker.
    pub fn get() -> &'static Self {
        &WORKER
    }

    fn start() -> Self {
        let runtimes = OwnedRuntimes::start(Some(1)).expect("there are threads");
        let directory = Directory::new("worker");
        let config = Config {
            gateway: UNREACHABLE_ADDRESS.to_owned(),
            execution: ExecutionConfig {
                target_partitions: Some(2),
                max_wait: Duration::from_secs(1),
                kept_fragments: MemorySize::Bytes(4 << 20),
                ..ExecutionConfig::default()
            },
            memory: memory::Config {
                limit: MemorySize::Bytes(256 << 20),
                spill_limit: MemorySize::Bytes(16 << 20),
            },
            ..Config::default()
        };
        let connections = ConnectionOptions {
            connect_timeout: Duration::from_millis(100),
            stream_window_bytes: 1 << 16,
            max_message_bytes: 1 << 20,
        };
        let handles = runtimes.handles().clone();
        let storage = Storage::open(directory.path(), Arc::new(LocalDisk));
        let storage = storage.expect("an empty directory opens");
        let data_dir = DataDir::open(&directory.path().join("node"), NodeRole::Worker);
        let data_dir = Arc::new(data_dir.expect("an empty directory"));
        let runtime_env = memory::runtime_env(&config.memory, directory.path(), 1 << 20);
        let runtime_env = runtime_env.expect("a directory");
        let decoded = DecodedMemory::new(
            config.lookup_bytes(),
            config.memory.limit.bytes(),
            &runtime_env.memory_pool,
        );
        let context = Arc::new(WorkerContext {
            history: Arc::new(History::new(data_dir, storage.clone())),
            id: WorkerId(1),
            cluster_id: ClusterId::new(),
            storage,
            lookups: LookupCache::new(decoded.clone()),
            decoded_segments: Arc::new(DecodedSegments::new(decoded)),
            runtime_env,
            environments: FragmentEnvironments::new(config.execution.value_limit()),
            running_fragments: RunningFragments::default(),
            fragment_cache: FragmentCache::new(config.execution.kept_fragments.bytes()),
            runtimes: handles.clone(),
            sealer: sealer(),
            fragment_admission: Admission::new("fragments", PLACES, PLACES),
            relay_admission: Admission::new("fragments that relay", PLACES, PLACES),
            client_admission: Admission::new("parts that clients fetch", PLACES, PLACES),
            clients_uri: String::new(),
            totals: Arc::default(),
            gather_totals: GatherTotals::default(),
            tls: None,
            connections: WorkerConnections::new(&connections, None, sealer(), handles.io().clone()),
            known_fragments: KnownFragments::default(),
            config,
        });
        let clients = ClientCalls::new(Arc::clone(&context), &handles).expect("an address");
        let instance = INSTANCE.to_owned();
        let reports = Reporter::new(Arc::clone(&context), instance, Duration::from_secs(1));
        let service = WorkerService::new(Arc::clone(&context), Arc::new(reports), clients);
        let worker = Self {
            server: Server::new(FlightAdapter(service), None, handles),
            cluster: context.cluster_id,
            id: context.id,
            panics_seen: AtomicUsize::new(guard::dependency_panics()),
            _runtimes: runtimes,
            directory,
        };
        let state = Gateway::open().catalog.state();
        for table in state.tables() {
            worker.fill(table.description());
        }
        worker
    }

    /// Calls the worker with these messages.
    ///
    /// # Panics
    /// Panics if the worker no longer serves because a dependency has panicked.
    pub fn call<T: AsRef<[u8]>>(&self, rpc: &str, messages: impl IntoIterator<Item = T>) -> Answer {
        let answer = self.server.call(rpc, HeaderMap::new(), messages);
        let contained = guard::dependency_panics();
        if self.panics_seen.swap(contained, Ordering::SeqCst) != contained {
            let list = control::Command::ListSegments(ListSegments {});
            let listed = self
                .server
                .call("DoAction", HeaderMap::new(), [self.control(list)]);
            assert!(listed.is_ok(), "no service after a panic: {listed:?}");
        }
        answer
    }

    /// Returns the kinds and the payloads of the frames in the worker's log.
    ///
    /// # Panics
    /// Panics if the log cannot be read.
    pub fn log_frames(&self) -> Vec<(u8, Vec<u8>)> {
        let log = self.directory.path().join("log");
        let first = std::fs::read(log.join(log_file::name(1)));
        log_file::frames_of(&first.expect("the worker has a log"))
    }

    /// Encodes a command as a sealed action.
    pub fn control(&self, command: control::Command) -> Vec<u8> {
        let command = Control {
            worker_id: self.id.0,
            cluster_id: self.cluster.to_string(),
            command: Some(command),
            lineage: None,
            commits: 0,
        };
        let sealed = sealer().seal(Purpose::Control, &command, VALID_FOR);
        Action::new(CONTROL_ACTION, sealed).encode_to_vec()
    }

    /// Writes a few rows into a table.
    fn fill(&self, table: TableDescription) {
        let schema = ipc::schema_from_bytes(&table.schema).expect("it was encoded a moment ago");
        let (is_sharded, name) = (table.is_sharded, table.name.clone());
        let request = WriteRequest {
            query_id: "fuzz".to_owned(),
            worker_id: self.id.0,
            write_id: WRITE,
            stream_id: name.clone(),
            table: Some(table),
            cluster_id: self.cluster.to_string(),
            instance: INSTANCE.to_owned(),
            lineage: None,
            owner: 0,
            trace: Vec::new().into(),
            commits: 0,
        };
        let sealed = sealer().seal(Purpose::Write, &request, DESCRIPTOR_LIFETIME);
        let written = self.call("DoPut", put(sealed.into(), &rows(&schema, is_sharded)));
        assert!(written.is_ok(), "{name}: {written:?}");
    }
}

/// Returns the messages of a DoPut with this batch.
pub fn put(descriptor: Vec<u8>, rows: &RecordBatch) -> Vec<Vec<u8>> {
    put_with(descriptor, rows, IpcWriteOptions::default())
}

/// Returns the messages of a DoPut with this batch, encoded with these options.
pub(crate) fn put_with(
    descriptor: Vec<u8>,
    rows: &RecordBatch,
    options: IpcWriteOptions,
) -> Vec<Vec<u8>> {
    let messages = FlightDataEncoderBuilder::new()
        .with_options(options)
        .with_flight_descriptor(Some(FlightDescriptor::new_cmd(descriptor)))
        .build(stream::iter([Ok(rows.clone())]))
        .map_ok(|message| message.encode_to_vec())
        .collect::<Vec<_>>();
    let messages = futures::executor::block_on(messages);
    messages
        .into_iter()
        .map(|message| message.expect("rows can be encoded"))
        .collect()
}

/// Returns four rows for any schema, in the shards 0 to 3.
fn rows(schema: &Schema, is_sharded: bool) -> RecordBatch {
    let mut fields: Vec<Arc<Field>> = schema.fields().iter().cloned().collect();
    let mut columns: Vec<ArrayRef> = fields.iter().map(|field| column(field)).collect();
    if is_sharded {
        fields.push(Arc::new(Field::new(SHARD_COLUMN, DataType::UInt32, false)));
        columns.push(Arc::new(UInt32Array::from(vec![0, 1, 2, 3])));
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).expect("columns fit their schema")
}

fn column(field: &Field) -> ArrayRef {
    let wanted = field.data_type();
    let values: ArrayRef = match wanted {
        DataType::Boolean => Arc::new(BooleanArray::from(vec![true, false, true, false])),
        DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8 => {
            Arc::new(StringArray::from(vec![
                "kea",
                "",
                "auk",
                "a text of more than twelve bytes",
            ]))
        }
        DataType::Binary | DataType::BinaryView | DataType::LargeBinary => {
            Arc::new(BinaryArray::from(vec![
                b"kea".as_slice(),
                b"",
                b"\xff",
                b"\0",
            ]))
        }
        _ => Arc::new(Int64Array::from(vec![1, 2, 3, 4])),
    };
    cast(&values, wanted).unwrap_or_else(|_| new_null_array(wanted, 4))
}
