use std::sync::Barrier;
use std::time::Duration;

use arrow::datatypes::{DataType, Field, Schema};
use arrow_flight::FlightDescriptor;
use datafusion::common::ScalarValue;
use tempfile::TempDir;
use tonic::Code;
use volary_flight_proto::control::{AbortWrite, DropTable, Report, WorkerReport};
use volary_flight_proto::fragment::{Fragment, FragmentId, Parameters, ScanShards};
use volary_flight_proto::frame::{EndOfStream, Frame, frame};
use volary_flight_proto::ids::{ClusterId, QueryId, WorkerId};
use volary_flight_proto::ipc;
use volary_flight_proto::lineage::Lineage;
use volary_flight_proto::seal::{Key, Sealer};
use volary_flight_proto::snapshot::Snapshot;
use volary_flight_proto::write_set::WriteSet;
use volary_gather::connections::ConnectionOptions;
use volary_gather::{GatherTotals, KnownFragments, WorkerConnections};
use volary_node::DataDir;
use volary_node::admission::{Admission, RunPlace};
use volary_node::data_dir::NodeRole;
use volary_node::disk::LocalDisk;
use volary_node::memory;
use volary_node::runtimes::OwnedRuntimes;
use volary_node::size::MemorySize;

use super::*;
use crate::config::{Config, ExecutionConfig};
use crate::fragment::cache::FragmentCache;
use crate::fragment::environment::FragmentEnvironments;
use crate::fragment::running::RunningFragments;
use crate::history::History;
use crate::lookup::cache::LookupCache;
use crate::lookup::tests as lookup;
use crate::memory_cache::DecodedMemory;
use crate::scan::decoded::DecodedSegments;
use crate::storage::{ChecksummedFile, Storage};
use crate::write::tests::logged::Numbers;

const TABLE: TableId = TableId(5);
/// Id of this start of the worker.
const INSTANCE: &str = "the first start";
/// Longest time that a test waits for an expected event.
const PATIENCE: Duration = Duration::from_secs(20);

const CONNECTIONS: ConnectionOptions = ConnectionOptions {
    connect_timeout: PATIENCE,
    stream_window_bytes: 1 << 20,
    max_message_bytes: 1 << 20,
};

struct Worker {
    service: WorkerService,
    _dir: TempDir,
    _runtimes: OwnedRuntimes,
}

fn worker() -> Worker {
    worker_with(ExecutionConfig::default())
}

/// Builds a worker with one thread for computing and one place for fragments.
fn worker_with(execution: ExecutionConfig) -> Worker {
    let dir = tempfile::tempdir().unwrap();
    let runtimes = OwnedRuntimes::start(Some(1)).unwrap();
    let kept_fragments = execution.kept_fragments.bytes();
    let values = execution.value_limit();
    let storage = Storage::open(dir.path(), Arc::new(LocalDisk)).unwrap();
    let data_dir = DataDir::open(&dir.path().join("node"), NodeRole::Worker).unwrap();
    let sealer = Sealer::new(Key::from_secret("secret of two clusters"));
    let runtime_env = memory::runtime_env(&memory::Config::default(), dir.path(), 1 << 20).unwrap();
    let decoded = DecodedMemory::new(1 << 20, 1 << 30, &runtime_env.memory_pool);
    let context = WorkerContext {
        history: Arc::new(History::new(Arc::new(data_dir), storage.clone())),
        id: WorkerId(3),
        cluster_id: ClusterId::new(),
        config: Config {
            execution,
            ..Config::default()
        },
        storage,
        lookups: LookupCache::new(decoded.clone()),
        decoded_segments: Arc::new(DecodedSegments::new(decoded)),
        runtime_env,
        environments: FragmentEnvironments::new(values),
        running_fragments: RunningFragments::default(),
        fragment_cache: FragmentCache::new(kept_fragments),
        runtimes: runtimes.handles().clone(),
        sealer: sealer.clone(),
        fragment_admission: Admission::new("fragments", 1, 1),
        relay_admission: Admission::new("fragments that relay", 1, 1),
        connections: WorkerConnections::new(
            &CONNECTIONS,
            None,
            sealer.clone(),
            runtimes.handles().io().clone(),
        ),
        known_fragments: KnownFragments::default(),
        totals: Arc::default(),
        gather_totals: GatherTotals::default(),
        client_admission: Admission::new("parts that clients fetch", 1, 1),
        clients_uri: String::new(),
        tls: None,
    };
    let context = Arc::new(context);
    let clients = ClientCalls::new(Arc::clone(&context), runtimes.handles()).unwrap();
    let reports = Reporter::new(Arc::clone(&context), INSTANCE.to_owned(), PATIENCE);
    Worker {
        service: WorkerService::new(Arc::clone(&context), Arc::new(reports), clients),
        _dir: dir,
        _runtimes: runtimes,
    }
}

impl Worker {
    fn context(&self) -> &WorkerContext {
        &self.service.context
    }

    fn seal(&self, purpose: Purpose, message: &impl Message) -> Vec<u8> {
        let sealed = self.context().sealer.seal(purpose, message, PATIENCE);
        sealed.to_vec()
    }

    /// Builds a ticket with a fragment, and without a snapshot. The worker refuses such a ticket as
    /// soon as it processes it, which a test can observe.
    fn ticket(&self) -> FragmentTicket {
        let fragment = fragment(200);
        FragmentTicket {
            query_id: Bytes::copy_from_slice(QueryId::new().0.as_bytes()),
            cluster: self.context().cluster_id.short(),
            worker_id: self.context().id.0,
            fragment_id: FragmentId::of(&fragment).to_bytes(),
            fragment: Some(fragment),
            ..FragmentTicket::default()
        }
    }

    /// Builds a ticket that names its fragment, but does not contain it.
    fn ticket_with_handle(&self) -> FragmentTicket {
        FragmentTicket {
            fragment: None,
            ..self.ticket()
        }
    }

    async fn redeem(&self, ticket: &FragmentTicket) -> Result<MessageStream<FlightData>, Status> {
        let ticket = Ticket::new(self.seal(Purpose::Fragment, ticket));
        let answered = timeout(PATIENCE, self.service.do_get(Request::new(ticket)));
        answered.await.unwrap().map(Response::into_inner)
    }

    async fn do_get(&self) -> MessageStream<FlightData> {
        self.redeem(&self.ticket()).await.unwrap()
    }

    async fn control(&self, cluster_id: ClusterId, command: control::Command) -> Result<Bytes> {
        self.control_as(cluster_id, command, None).await
    }

    async fn control_as(
        &self,
        cluster_id: ClusterId,
        command: control::Command,
        lineage: Option<Lineage>,
    ) -> Result<Bytes> {
        let control = Control {
            worker_id: self.context().id.0,
            command: Some(command),
            cluster_id: cluster_id.to_string(),
            lineage,
            commits: 0,
        };
        let body = self.seal(Purpose::Control, &control);
        self.service
            .run_command(self.service.open_command(&body)?)
            .await
    }

    /// Returns the worker's report to a gateway that says that these writes have failed. The last
    /// abort is the number of these writes.
    async fn report(&self, aborted: &[WriteId]) -> WorkerReport {
        let writes: WriteSet = aborted.iter().copied().collect();
        let question = Report {
            live_tables: vec![TABLE.0],
            last_table: TABLE.0,
            aborted_bounds: writes.to_bounds(),
            last_abort: aborted.len() as u64,
            next_ms: 1000,
            ..Report::default()
        };
        let question = control::Command::Report(question);
        let asked = self.control(self.context().cluster_id, question);
        let answer = timeout(PATIENCE, asked).await.unwrap().unwrap();
        let sealer = &self.context().sealer;
        sealer.open(Purpose::Membership, &answer).unwrap()
    }

    /// Asks for reports until one says that the rows of these writes are deleted. Returns that
    /// report.
    async fn report_that_has_collected(&self, aborted: &[WriteId]) -> WorkerReport {
        let asking = async {
            loop {
                let report = self.report(aborted).await;
                if report.deleted_through == aborted.len() as u64 {
                    return report;
                }
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, asking).await.unwrap()
    }

    /// Adds a segment with one row to a table.
    fn keep(&self, table: TableId, write: WriteId) {
        let storage = &self.context().storage;
        let (segment, file) = storage.create(table, 0, write).unwrap();
        let checksums = ChecksummedFile::new(file.try_clone().unwrap()).checksums();
        let segment = segment.complete(&file, 1, checksums).unwrap();
        storage.add(table, vec![segment]).unwrap();
    }

    /// Takes the only place.
    async fn occupy(&self) -> RunPlace {
        self.context()
            .fragment_admission
            .enter_session(&0_u32)
            .await
            .unwrap()
    }
}

fn fragment(batch_rows: u32) -> Bytes {
    let fragment = Fragment {
        batch_rows,
        ..Fragment::default()
    };
    fragment.encode_to_vec().into()
}

async fn next(stream: &mut MessageStream<FlightData>) -> Result<FlightData, Status> {
    timeout(PATIENCE, stream.next()).await.unwrap().unwrap()
}

/// Checks that only keep-alives come before the worker refuses the ticket, which has no snapshot.
async fn assert_refused_in_the_end(mut stream: MessageStream<FlightData>) {
    loop {
        match next(&mut stream).await {
            Ok(message) => assert_eq!(message.app_metadata, Frame::keep_alive().to_bytes()),
            Err(status) => {
                assert_eq!(status.code(), Code::InvalidArgument, "{status}");
                assert!(stream.next().await.is_none());
                return;
            }
        }
    }
}

#[tokio::test]
async fn a_fragment_that_waits_for_a_place_gives_keep_alives() {
    let worker = worker();
    let place = worker.occupy().await;
    let mut waiting = worker.do_get().await;
    for _ in 0..2 {
        let message = next(&mut waiting).await.unwrap();
        assert_eq!(message.app_metadata, Frame::keep_alive().to_bytes());
    }
    let mut refused = worker.do_get().await;
    let status = next(&mut refused).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    drop(place);
    assert_refused_in_the_end(waiting).await;
}

#[tokio::test]
async fn a_fragment_does_not_wait_for_ever() {
    let worker = worker_with(ExecutionConfig {
        max_wait: Duration::from_millis(10),
        ..ExecutionConfig::default()
    });
    let _place = worker.occupy().await;
    let status = next(&mut worker.do_get().await).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.message().contains("waited 10ms"), "{status}");
}

#[tokio::test]
async fn a_fragment_that_nobody_waits_for_any_more_gives_up_its_turn() {
    let worker = worker();
    let place = worker.occupy().await;
    let mut waiting = worker.do_get().await;
    next(&mut waiting).await.unwrap();
    drop(waiting);
    drop(place);
    assert_eq!(worker.context().fragment_admission.running(), 0);
    assert_refused_in_the_end(worker.do_get().await).await;
}

#[tokio::test]
async fn a_worker_whose_threads_all_compute_gives_keep_alives() {
    let worker = worker();
    let cpu = worker.context().runtimes.cpu();
    let threads = cpu.metrics().num_workers();
    let end = Arc::new(Barrier::new(threads + 1));
    let (begins, mut begun) = tokio::sync::mpsc::unbounded_channel();
    for _ in 0..threads {
        let (end, begins) = (Arc::clone(&end), begins.clone());
        cpu.spawn(async move {
            begins.send(()).unwrap();
            end.wait();
        });
    }
    for _ in 0..threads {
        begun.recv().await.unwrap();
    }
    let mut stream = worker.do_get().await;
    let message = next(&mut stream).await.unwrap();
    assert_eq!(message.app_metadata, Frame::keep_alive().to_bytes());
    end.wait();
    assert_refused_in_the_end(stream).await;
}

/// Checks that the worker asks for the fragment, and says nothing else.
async fn assert_asks(mut stream: MessageStream<FlightData>) {
    let message = next(&mut stream).await.unwrap();
    assert_eq!(message.app_metadata, Frame::send_fragment().to_bytes());
    assert!(stream.next().await.is_none());
}

#[tokio::test]
async fn a_fragment_that_is_not_known_is_asked_for_at_once() {
    let worker = worker();
    let _place = worker.occupy().await;
    let ticket = worker.ticket_with_handle();
    for _ in 0..2 {
        assert_asks(worker.redeem(&ticket).await.unwrap()).await;
    }
}

#[tokio::test]
async fn a_fragment_that_was_sent_is_known_by_its_name() {
    let worker = worker();
    assert_refused_in_the_end(worker.do_get().await).await;
    let ticket = worker.ticket_with_handle();
    assert_refused_in_the_end(worker.redeem(&ticket).await.unwrap()).await;
    let other = FragmentTicket {
        fragment_id: FragmentId::of(&fragment(300)).to_bytes(),
        ..ticket
    };
    assert_asks(worker.redeem(&other).await.unwrap()).await;
}

#[tokio::test]
async fn a_fragment_that_is_not_what_its_id_says_is_refused_and_not_kept() {
    let worker = worker();
    let altered = FragmentTicket {
        fragment: Some(fragment(300)),
        ..worker.ticket()
    };
    assert_refused_in_the_end(worker.redeem(&altered).await.unwrap()).await;
    for other in [200, 300] {
        let ticket = FragmentTicket {
            fragment_id: FragmentId::of(&fragment(other)).to_bytes(),
            ..worker.ticket_with_handle()
        };
        assert_asks(worker.redeem(&ticket).await.unwrap()).await;
    }
}

#[tokio::test]
async fn a_ticket_with_ids_that_are_none_is_refused() {
    let worker = worker();
    let short = || Bytes::from_static(b"15 bytes, or so");
    for ticket in [
        FragmentTicket {
            query_id: short(),
            ..worker.ticket()
        },
        FragmentTicket {
            fragment_id: short(),
            ..worker.ticket()
        },
        FragmentTicket {
            fragment: Some(Bytes::from_static(b"\xff\xff\xff")),
            ..worker.ticket()
        },
    ] {
        let refused = worker.redeem(&ticket).await.map(|_| ());
        let status = refused.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    }
}

#[tokio::test]
async fn what_is_for_another_cluster_of_the_same_secret_is_refused() {
    let worker = worker();
    let (storage, own) = (&worker.context().storage, worker.context().cluster_id);
    let write = WriteId(1);
    worker.keep(TABLE, write);
    let drop_table = || control::Command::DropTable(DropTable { table_id: TABLE.0 });
    let abort = control::Command::AbortWrite(AbortWrite { write_id: write.0 });
    let report = control::Command::Report(Report {
        last_table: TABLE.0,
        ..Report::default()
    });
    for command in [drop_table(), abort, report] {
        let other = ClusterId::new();
        let error = worker.control(other, command).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::Unavailable);
        assert!(error.message().contains(&other.to_string()), "{error}");
    }
    assert_eq!(storage.totals().rows, 1);
    worker.control(own, drop_table()).await.unwrap();
    assert_eq!(storage.totals().rows, 0);

    let first = |cluster_id: ClusterId, instance: &str| {
        let request = WriteRequest {
            cluster_id: cluster_id.to_string(),
            worker_id: worker.context().id.0,
            instance: instance.to_owned(),
            ..WriteRequest::default()
        };
        let descriptor = FlightDescriptor::new_cmd(worker.seal(Purpose::Write, &request));
        FlightData::new().with_descriptor(descriptor)
    };
    let write = |cluster_id, instance| {
        worker
            .service
            .accept_write_request(&first(cluster_id, instance))
    };
    write(own, INSTANCE).unwrap();
    let again = write(own, INSTANCE).unwrap_err();
    assert_eq!(again.code(), ErrorCode::AlreadyExists);
    for refused in [write(ClusterId::new(), INSTANCE), write(own, "before")] {
        assert_eq!(refused.unwrap_err().code(), ErrorCode::Unavailable);
    }
}

#[tokio::test]
async fn a_worker_whose_places_are_all_taken_reports_what_it_has_and_does() {
    let worker = worker();
    worker.keep(TABLE, WriteId(1));
    let _place = worker.occupy().await;
    let report = worker.report(&[]).await;
    assert_eq!(report.worker_id, worker.context().id.0);
    assert_eq!(report.instance, INSTANCE);
    assert_eq!(report.running_fragments, 1);
    assert_eq!((report.segments, report.rows), (1, 1));
    assert!(!report.draining);
}

#[tokio::test]
async fn a_worker_deletes_what_a_gateway_says_is_garbage_and_says_so_until_the_gateway_has_heard_it()
 {
    let worker = worker();
    let (kept, failed) = (WriteId(1), WriteId(2));
    worker.keep(TABLE, kept);
    worker.keep(TABLE, failed);
    worker.keep(TableId(4), kept);
    worker.report_that_has_collected(&[failed]).await;
    assert_eq!(worker.context().storage.totals().rows, 1);
    // The answer may be lost. So it stays the same as long as the gateway has not heard of it.
    for _ in 0..3 {
        let report = worker.report(&[failed]).await;
        assert_eq!(report.deleted_through, 1);
        assert_eq!(report.rows, 1);
    }
    worker.report_that_has_collected(&[]).await;
}

#[tokio::test]
async fn a_question_that_another_cluster_has_sealed_is_not_answered() {
    let worker = worker();
    let question = Control {
        worker_id: worker.context().id.0,
        command: Some(control::Command::Report(Report::default())),
        cluster_id: worker.context().cluster_id.to_string(),
        lineage: None,
        commits: 0,
    };
    let stranger = Sealer::new(Key::random());
    let body = stranger.seal(Purpose::Control, &question, PATIENCE);
    let error = worker.service.open_command(&body).unwrap_err();
    assert_eq!(error.code(), ErrorCode::PermissionDenied);
}

#[tokio::test]
async fn a_catalog_of_another_history_is_neither_answered_nor_obeyed() {
    let worker = worker();
    let own = worker.context().cluster_id;
    let first = Lineage {
        incarnation: 10,
        ancestor: 0,
        from_write: 1,
        base_commits: None,
    };
    worker.context().history.adopt(Some(&first)).unwrap();
    worker.keep(TABLE, WriteId(5));
    let restored = Lineage {
        incarnation: 20,
        ancestor: 10,
        from_write: 4,
        base_commits: None,
    };
    let drop_table = control::Command::DropTable(DropTable { table_id: TABLE.0 });
    let abort = control::Command::AbortWrite(AbortWrite { write_id: 5 });
    for command in [drop_table, abort] {
        let refused = worker.control_as(own, command, Some(restored)).await;
        assert_eq!(refused.unwrap_err().code(), ErrorCode::Unavailable);
    }
    let ticket = FragmentTicket {
        lineage: Some(restored),
        ..worker.ticket()
    };
    let refused = worker.redeem(&ticket).await.err().unwrap();
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    let question = control::Command::Report(Report {
        last_table: TABLE.0,
        aborted_bounds: vec![5, 5],
        ..Report::default()
    });
    let answer = worker
        .control_as(own, question, Some(restored))
        .await
        .unwrap();
    let sealer = &worker.context().sealer;
    let report: WorkerReport = sealer.open(Purpose::Membership, &answer).unwrap();
    assert!(!report.adopted);
    assert_eq!(report.incarnations[0].id, 10);
    assert_eq!((report.max_write, report.rows), (5, 1));
    // The worker obeys a catalog of its own history.
    worker.report_that_has_collected(&[WriteId(5)]).await;
}

/// Returns all messages of a fragment.
async fn all_messages(worker: &Worker, ticket: &FragmentTicket) -> Vec<FlightData> {
    let stream = worker.redeem(ticket).await.unwrap();
    let messages: Vec<_> = timeout(PATIENCE, stream.collect()).await.unwrap();
    let messages = messages.into_iter().map(Result::unwrap);
    let keep_alive = Frame::keep_alive().to_bytes();
    messages
        .filter(|message| message.app_metadata != keep_alive)
        .collect()
}

/// Returns the rows of a fragment, from its schema and one message.
fn rows_of(messages: &[FlightData]) -> Vec<arrow::array::RecordBatch> {
    arrow_flight::utils::flight_data_to_batches(&messages[..2]).unwrap()
}

/// Returns what the end of a stream says, without times.
fn end_of(message: &FlightData) -> EndOfStream {
    match Frame::decode(message.app_metadata.clone()).unwrap().kind {
        Some(frame::Kind::End(end)) => EndOfStream {
            rows: end.rows,
            batches: end.batches,
            segments: end.segments,
            ..EndOfStream::default()
        },
        other => panic!("{other:?} is no end"),
    }
}

#[tokio::test]
async fn an_answer_by_key_has_the_messages_of_the_ordinary_way() {
    let worker = worker();
    let schema = lookup::schema(&DataType::Int64);
    let keys: Vec<_> = (0..100).chain([40, 40]).map(Some).collect();
    let rows = lookup::rows(&DataType::Int64, &keys, 1, &mut Numbers(1));
    let request = WriteRequest {
        table: Some(lookup::table(&schema)),
        write_id: 1,
        ..WriteRequest::default()
    };
    let mut context = WriteContext::of_worker(worker.context());
    context.config.logged_write = MemorySize::Bytes(0);
    write::write(&context, request, stream::iter([Ok(rows)]))
        .await
        .unwrap();
    let mut values = lookup::Values::default();
    // The key with the number 40.
    let key = values.literal(&ScalarValue::Int64(Some(180)));
    let condition = lookup::binary("Eq", vec![lookup::column("key", 0), key]);
    let plan = lookup::filter(lookup::scan(&schema, false, true), condition, &[1, 0]);
    let fragment = Fragment {
        plan: plan.encode_to_vec().into(),
        batch_rows: 1000,
        keep_alive_ms: 60_000,
        ..Fragment::default()
    };
    let fragment = Bytes::from(fragment.encode_to_vec());
    let text = Field::new("name", DataType::Utf8, true);
    let number = Field::new("key", DataType::Int64, true);
    let announced = ipc::schema_to_bytes(&Schema::new(vec![text, number]));
    for (asked, announced) in [Bytes::new(), announced].into_iter().enumerate() {
        let ticket = FragmentTicket {
            fragment_id: FragmentId::of(&fragment).to_bytes(),
            fragment: Some(fragment.clone()),
            parameters: Parameters {
                values: values.0.clone(),
            }
            .encode_to_vec()
            .into(),
            scans: vec![ScanShards {
                shards: vec![1],
                ..ScanShards::default()
            }],
            snapshot: Some(Snapshot::new(WriteId(1), &WriteSet::default())),
            batch_bytes: 1 << 17,
            announced,
            ..worker.ticket()
        };
        let answered = || worker.context().lookups.totals.answered.get();
        if asked == 0 {
            let ordinary = all_messages(&worker, &ticket).await;
            assert_eq!(answered(), 0);
            // Metadata and columns are in memory after a few fragments.
            let mut by_key = Vec::new();
            for _ in 0..3 {
                by_key = all_messages(&worker, &ticket).await;
            }
            assert!(answered() > 0);
            assert_eq!(by_key.len(), 3);
            assert_eq!(by_key[0], ordinary[0]);
            assert_eq!(rows_of(&by_key), rows_of(&ordinary));
            assert_eq!(end_of(&by_key[2]), end_of(&ordinary[2]));
            assert_eq!(end_of(&by_key[2]).rows, 3);
        } else {
            let before = answered();
            let by_key = all_messages(&worker, &ticket).await;
            assert_eq!(answered(), before + 1);
            // The first time, a fragment is run in the ordinary way.
            let same = Fragment::decode(fragment.clone()).unwrap();
            let other = Fragment {
                batch_rows: 999,
                ..same
            };
            let other = Bytes::from(other.encode_to_vec());
            let ordinary = FragmentTicket {
                fragment_id: FragmentId::of(&other).to_bytes(),
                fragment: Some(other),
                ..ticket
            };
            let ordinary = all_messages(&worker, &ordinary).await;
            assert_eq!(answered(), before + 1);
            assert_eq!(by_key[0], ordinary[0]);
            assert_eq!(rows_of(&by_key), rows_of(&ordinary));
            assert_eq!(end_of(&by_key[2]), end_of(&ordinary[2]));
        }
    }
}
