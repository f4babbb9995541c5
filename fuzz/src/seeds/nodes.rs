use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, DictionaryArray, Float64Array, Int64Array, ListArray, RecordBatch,
    StringViewArray, StructArray, TimestampNanosecondArray, UInt32Array,
};
use arrow::datatypes::{DataType, Field, Int32Type, Int64Type, Schema};
use bytes::Bytes;
use prost::Message;
use volary_flight_proto::control::{
    AbortWrite, Control, DescribeStorage, DropTable, ListSegments, Optimize, Report,
    SegmentDescription, SegmentList, WorkerReport, control,
};
use volary_flight_proto::direct::{DirectTicket, Introduced, Introduction};
use volary_flight_proto::fragment::{
    Fragment, HashBuckets, Leaf, MemberRows, Parameter, Parameters, Relayed, ScanShards, ShardScan,
    leaf, parameter,
};
use volary_flight_proto::frame::{EndOfStream, Frame, RowsByBucket};
use volary_flight_proto::ipc;
use volary_flight_proto::lineage::Lineage;
use volary_flight_proto::membership::{CheckRequest, JoinRequest, JoinResponse, LeaveRequest};
use volary_flight_proto::session::{SessionClaims, SetSessionOptionsRequest};
use volary_flight_proto::snapshot::Snapshot;
use volary_flight_proto::stage_times::StageTimes;
use volary_flight_proto::ticket::{FragmentTicket, Member, PreparedStatementHandle, QueryTicket};
use volary_flight_proto::write::{
    ColumnWritten, SHARD_COLUMN, ShardWritten, TableDescription, WriteRequest, WriteResult,
};

use super::{Seed, clients, seed};
use crate::worker::{Worker, put};
use crate::{log_file, wire};

/// Returns the seeds of `sealed`: a purpose, a position, and a plaintext.
pub fn sealed() -> Vec<Seed> {
    let input = |purpose: u8, place: u32, plaintext: &[u8]| {
        [&[purpose][..], &place.to_le_bytes(), plaintext].concat()
    };
    let snapshot = snapshot().encode_to_vec();
    vec![
        ("empty".to_owned(), Vec::new()),
        ("snapshot".to_owned(), input(2, 77, &snapshot)),
        ("no_plaintext".to_owned(), input(8, 200, b"")),
        ("no_message".to_owned(), input(0, 5, b"\xff\xff")),
    ]
}

fn snapshot() -> Snapshot {
    Snapshot {
        high: 300,
        excluded_bounds: vec![12, 299],
        ..Snapshot::default()
    }
}

pub fn messages() -> Vec<Seed> {
    let member = Relayed {
        fragment: Bytes::from_static(b"\x08\x01"),
        idle_timeout_ms: 100,
        batch_bytes: 1 << 20,
    };
    let fragment = Fragment {
        plan: Bytes::from_static(b"\x0a\x00"),
        fetch: Some(3),
        batch_rows: 8192,
        buckets: Some(HashBuckets {
            columns: vec![0, 1],
            partitions: 2,
            rounds: 64,
        }),
        relayed: Some(member),
        ..Fragment::default()
    };
    let query = QueryTicket {
        query_id: "q".to_owned(),
        sql: "SELECT 1".to_owned(),
        snapshot: Some(snapshot()),
        settings: [("a".to_owned(), "b".to_owned())].into(),
        reads: [("t".to_owned(), 7)].into(),
        columns: Some(9),
        ..QueryTicket::default()
    };
    let handle = PreparedStatementHandle {
        sql: "SELECT ?".to_owned(),
        parameters: Some(Bytes::from_static(b"p")),
        user: "u".to_owned(),
    };
    let segment = SegmentDescription {
        table_id: 7,
        file: "t7/0/wr1".to_owned(),
        ..SegmentDescription::default()
    };
    let written = WriteResult {
        shards: vec![ShardWritten {
            shard: 3,
            rows: 300,
            ..ShardWritten::default()
        }],
        columns: vec![ColumnWritten::default()],
        ..WriteResult::default()
    };
    let key_set = Parameter {
        kind: Some(parameter::Kind::KeySet(300)),
    };
    let members = Leaf {
        kind: Some(leaf::Kind::Members(MemberRows {
            schema: Bytes::from_static(b"s"),
        })),
    };
    let claims = SessionClaims {
        user: "u".to_owned(),
        generation: 3,
        session: "s".to_owned(),
        issued_at_s: 300,
    };
    let direct = DirectTicket {
        query: Some(query.clone()),
        part: Some(ticket()),
        announced: Bytes::from_static(b"s"),
        timeout_ms: 300,
    };
    vec![
        seed("fragment_ticket", 0, ticket().encode_to_vec()),
        seed("query_ticket", 1, query.encode_to_vec()),
        seed("handle", 2, handle.encode_to_vec()),
        seed("direct_ticket", 3, direct.encode_to_vec()),
        seed("introduction", 4, introduction().encode_to_vec()),
        seed("introduced", 5, introduced().encode_to_vec()),
        seed("control", 6, control(report()).encode_to_vec()),
        seed("worker_report", 7, worker_report().encode_to_vec()),
        seed(
            "segments",
            8,
            SegmentList {
                segments: vec![segment],
            }
            .encode_to_vec(),
        ),
        seed("join", 9, join().encode_to_vec()),
        seed("joined", 10, joined().encode_to_vec()),
        seed("write", 13, write_request().encode_to_vec()),
        seed("written", 14, written.encode_to_vec()),
        seed("snapshot", 15, snapshot().encode_to_vec()),
        seed("fragment", 16, fragment.encode_to_vec()),
        seed(
            "parameters",
            17,
            Parameters {
                values: vec![Bytes::from_static(b"v")],
            }
            .encode_to_vec(),
        ),
        seed("scan", 18, scan().encode_to_vec()),
        seed("members", 18, members.encode_to_vec()),
        seed("key_set", 19, key_set.encode_to_vec()),
        seed("end_of_stream", 20, end(3, 1).encode_to_vec()),
        seed("claims", 21, claims.encode_to_vec()),
        seed("options", 22, options().encode_to_vec()),
        seed("lookup", 31, clients::lookup().encode_to_vec()),
        seed(
            "refusal",
            30,
            b"\x08120\nRESOURCE_EXHAUSTED: retry in 120 ms",
        ),
    ]
}

fn ticket() -> FragmentTicket {
    FragmentTicket {
        query_id: Bytes::from_static(&[1; 16]),
        cluster: 7,
        worker_id: 5,
        fragment_id: Bytes::from_static(&[2; 16]),
        fragment: Some(Bytes::from_static(b"\x20\x01")),
        parameters: Bytes::from_static(b"\x0a\x01v"),
        scans: vec![shards(&[0, 64])],
        snapshot: Some(snapshot()),
        batch_bytes: 1 << 20,
        single_round_bytes: 1 << 16,
        members: vec![Member {
            worker_id: 6,
            address: "127.0.0.1:7202".to_owned(),
            scans: vec![shards(&[1])],
        }],
        announced: ipc::schema_to_bytes(&Schema::empty()),
        lineage: Some(Lineage {
            incarnation: 9,
            ancestor: 8,
            from_write: 300,
            base_commits: Some(7),
        }),
        counted: Some(snapshot()),
        owner: 11,
        trace: Bytes::new(),
        as_of_us: 1_700_000_000_000_000,
    }
}

fn shards(shards: &[u32]) -> ScanShards {
    ScanShards {
        shards: shards.to_vec(),
        tallies: shards.to_vec(),
        rows: Vec::new(),
    }
}

fn options() -> SetSessionOptionsRequest {
    use volary_flight_proto::session::SessionOptionValue;
    use volary_flight_proto::session::session_option_value::OptionValue;
    let option_value = Some(OptionValue::DoubleValue(0.5));
    SetSessionOptionsRequest {
        session_options: [("a".to_owned(), SessionOptionValue { option_value })].into(),
    }
}

fn scan() -> Leaf {
    let scan = ShardScan {
        table_id: 7,
        table_name: "t".to_owned(),
        projection: vec![0, 3],
        table_schema: ipc::schema_to_bytes(&Schema::empty()),
        ..ShardScan::default()
    };
    Leaf {
        kind: Some(leaf::Kind::Scan(scan)),
    }
}

fn worker_report() -> WorkerReport {
    WorkerReport {
        worker_id: 5,
        instance: "i".to_owned(),
        segments: 3,
        deleted_through: 300,
        clients_uri: "grpc://h:1".to_owned(),
        ..WorkerReport::default()
    }
}

fn introduction() -> Introduction {
    Introduction {
        authorization: Some("Bearer volary-bearer-00".to_owned()),
        peer: "127.0.0.1:5".to_owned(),
        ticket: Bytes::new(),
    }
}

fn introduced() -> Introduced {
    Introduced {
        authorization: Some("Bearer a".to_owned()),
        user: "kea".to_owned(),
        ticket: None,
    }
}

fn join() -> JoinRequest {
    JoinRequest {
        worker_id: Some(1),
        cluster_id: Some("67e55044-10b1-426f-9247-bb680e5fe0c8".to_owned()),
        address: "127.0.0.1:7201".to_owned(),
        instance: "i".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        zone: Some("z".to_owned()),
    }
}

fn joined() -> JoinResponse {
    JoinResponse {
        worker_id: 5,
        cluster_id: "67e55044-10b1-426f-9247-bb680e5fe0c8".to_owned(),
        key: Bytes::from_static(&[7; 32]),
        report_interval_ms: 1000,
    }
}

fn report() -> control::Command {
    control::Command::Report(Report {
        live_tables: vec![1, 3],
        last_table: 4,
        aborted_bounds: vec![7, 300],
        next_ms: 1000,
        ..Report::default()
    })
}

fn control(command: control::Command) -> Control {
    Control {
        command: Some(command),
        ..Control::default()
    }
}

fn write_request() -> WriteRequest {
    let schema = Schema::new(vec![
        Field::new("k", DataType::Int64, false),
        Field::new("s", DataType::Utf8View, true),
    ]);
    WriteRequest {
        query_id: "q".to_owned(),
        write_id: 7,
        table: Some(TableDescription {
            table_id: 7,
            name: "n".to_owned(),
            schema: ipc::schema_to_bytes(&schema),
            shard_key: Some(0),
            sort_key: vec![1],
            shards: 4,
            is_sharded: true,
        }),
        ..WriteRequest::default()
    }
}

fn end(rows: u64, batches: u64) -> Frame {
    Frame::end(EndOfStream {
        rows,
        batches,
        total_us: 20,
        scanned_rows: 9,
        stages: Some(StageTimes {
            read_us: 12,
            wire_us: 3,
            ..StageTimes::default()
        }),
        reader_us: 2,
        ..EndOfStream::default()
    })
}

/// Returns the seeds of `ipc`. `what` is 0 for a schema, and 1 for rows.
pub fn ipc() -> Vec<Seed> {
    let batch = batch();
    let rows = ipc::batches_to_bytes(&batch.schema(), std::slice::from_ref(&batch));
    let none = ipc::batches_to_bytes(&batch.schema(), &[]);
    vec![
        seed("schema", 0, ipc::schema_to_bytes(&batch.schema())),
        seed("rows", 1, rows.expect("rows can be encoded")),
        seed("no_rows", 1, none.expect("rows can be encoded")),
    ]
}

fn batch() -> RecordBatch {
    let list = ListArray::from_iter_primitive::<Int64Type, _, _>([Some(vec![Some(1), None]), None]);
    let member = Arc::new(Field::new("a", DataType::Int64, true));
    let members: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
    let zoned = TimestampNanosecondArray::from(vec![1, 2]).with_timezone("Europe/Berlin");
    let columns: [(&str, ArrayRef); 8] = [
        ("n", Arc::new(Int64Array::from(vec![Some(1), None]))),
        ("d", Arc::new(Float64Array::from(vec![0.5, f64::NAN]))),
        ("b", Arc::new(BooleanArray::from(vec![true, false]))),
        (
            "s",
            Arc::new(StringViewArray::from(vec![
                "a",
                "a text of more than twelve bytes",
            ])),
        ),
        (
            "c",
            Arc::new(DictionaryArray::<Int32Type>::from_iter(["x", "y"])),
        ),
        ("l", Arc::new(list)),
        ("p", Arc::new(StructArray::from(vec![(member, members)]))),
        ("t", Arc::new(zoned)),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true)))
        .expect("columns of one length")
}

/// Returns the seeds of `membership`. `what` is 0 for a join, 1 for a leave, 2 for an introduction,
/// 3 for an introduction with a ticket, 4 for a message without a seal, and 5 for a check.
pub fn membership() -> Vec<Seed> {
    let leave = LeaveRequest {
        worker_id: 1,
        instance: "start of 0".to_owned(),
    };
    let with_ticket = Introduction {
        authorization: None,
        ticket: clients::direct_ticket().encode_to_vec().into(),
        ..introduction()
    };
    let check = CheckRequest {
        join: Some(join()),
        nonce: vec![1, 2].into(),
    };
    let new = JoinRequest {
        worker_id: None,
        cluster_id: None,
        ..join()
    };
    vec![
        seed("join", 0, join().encode_to_vec()),
        seed("first_join", 0, new.encode_to_vec()),
        seed("leave", 1, leave.encode_to_vec()),
        seed("login", 2, introduction().encode_to_vec()),
        seed("ticket", 3, with_ticket.encode_to_vec()),
        seed("unsealed", 4, join().encode_to_vec()),
        seed("check", 5, check.encode_to_vec()),
    ]
}

/// Returns the seeds of `worker_calls`. `what` is 0 for a command, 1 for a write, 2 for a client's
/// ticket, and 3 for a message without a seal.
pub fn worker_calls() -> Vec<Seed> {
    let drop_table = control::Command::DropTable(DropTable { table_id: 107 });
    let abort = control::Command::AbortWrite(AbortWrite { write_id: 7 });
    let list = control::Command::ListSegments(ListSegments {});
    let describe = control::Command::DescribeStorage(DescribeStorage {});
    let optimize = control::Command::Optimize(Optimize {
        table: write_request().table,
        snapshot: Some(snapshot()),
    });
    let columns: [(&str, ArrayRef, bool); 3] = [
        ("k", Arc::new(Int64Array::from(vec![3, 1])), false),
        (
            "s",
            Arc::new(StringViewArray::from(vec![Some("a"), None])),
            true,
        ),
        (SHARD_COLUMN, Arc::new(UInt32Array::from(vec![1, 0])), false),
    ];
    let rows = RecordBatch::try_from_iter_with_nullable(columns).expect("columns of one length");
    // The target fills in a sealed descriptor.
    let messages = put(Vec::new(), &rows);
    let write = std::iter::once(write_request().encode_to_vec()).chain(messages);
    vec![
        seed("report", 0, control(report()).encode_to_vec()),
        seed("drop", 0, control(drop_table).encode_to_vec()),
        seed("abort", 0, control(abort).encode_to_vec()),
        seed("list", 0, control(list).encode_to_vec()),
        seed("describe", 0, control(describe).encode_to_vec()),
        seed("optimize", 0, control(optimize).encode_to_vec()),
        seed("write", 1, wire::encode_list(write)),
        seed("part", 2, clients::direct_ticket().encode_to_vec()),
        seed("unsealed", 3, control(report()).encode_to_vec()),
    ]
}

/// Returns the seeds of `log_files`: a byte that chooses the form, and frames.
pub fn log_files() -> Vec<Seed> {
    let frames = Worker::get().log_frames();
    let listed = frames
        .iter()
        .map(|(kind, payload)| [&[*kind], &payload[..]].concat());
    let listed: Vec<_> = listed.take(4).collect();
    let raw = frames.iter().zip(1..).take(4);
    let raw: Vec<_> = raw
        .flat_map(|((kind, payload), number)| log_file::frame(1, number, *kind, payload))
        .collect();
    let torn = &raw[..raw.len() - 20];
    let mut damaged = raw.clone();
    damaged[50] ^= 1;
    vec![
        seed("empty", 0, b""),
        seed("one_file", 0, wire::encode_list(&listed)),
        seed("two_files", 4, wire::encode_list(&listed)),
        seed("bytes", 1, &raw),
        seed("torn", 1, torn),
        seed("damaged", 1, damaged),
    ]
}

/// Returns the seeds of `answers`: a byte that chooses the query, and the messages of the answer.
pub fn answers() -> Vec<Seed> {
    let plain: [(&str, ArrayRef, bool); 3] = [
        ("k", Arc::new(Int64Array::from(vec![1, 2])), false),
        (
            "s",
            Arc::new(StringViewArray::from(vec![Some("a"), None])),
            true,
        ),
        ("d", Arc::new(Float64Array::from(vec![0.5, 1.5])), true),
    ];
    let times = TimestampNanosecondArray::from(vec![1, 2]);
    let sorted: [(&str, ArrayRef, bool); 2] = [
        ("k", Arc::new(Int64Array::from(vec![1, 2])), false),
        ("at", Arc::new(times), true),
    ];
    let states: [(&str, ArrayRef, bool); 3] = [
        (
            "s",
            Arc::new(StringViewArray::from(vec![Some("a"), None])),
            true,
        ),
        (
            "count(Int64(1))[count]",
            Arc::new(Int64Array::from(vec![3, 4])),
            false,
        ),
        (
            "sum(t.d)[sum]",
            Arc::new(Float64Array::from(vec![0.5, 1.5])),
            true,
        ),
    ];
    let outline = Frame::rows_by_bucket(RowsByBucket {
        rounds: 1,
        total_bytes: 300,
        buckets: vec![0, 1],
        rows: vec![1, 1],
    });
    let answer = |rows: Vec<(&str, ArrayRef, bool)>, outline: Option<Frame>| {
        let rows = RecordBatch::try_from_iter_with_nullable(rows).expect("columns of one length");
        let mut messages = put(Vec::new(), &rows);
        if let Some(outline) = outline {
            messages[1] = with_metadata(&messages[1], &outline);
        }
        messages.push(with_metadata(&[], &end(2, 1)));
        wire::encode_list(messages)
    };
    let keep_alive = with_metadata(&[], &Frame::keep_alive());
    let question = with_metadata(&[], &Frame::send_fragment());
    vec![
        seed("rows", 0, answer(plain.to_vec(), None)),
        seed("sorted", 1, answer(sorted.to_vec(), None)),
        seed("by_bucket", 2, answer(states.to_vec(), Some(outline))),
        seed(
            "no_rows",
            3,
            wire::encode_list([with_metadata(&[], &end(0, 0))]),
        ),
        seed("signs", 0, wire::encode_list([keep_alive, question])),
    ]
}

fn with_metadata(message: &[u8], frame: &Frame) -> Vec<u8> {
    let message = arrow_flight::FlightData::decode(message).expect("it was encoded a moment ago");
    message.with_app_metadata(frame.to_bytes()).encode_to_vec()
}
